//! IQ4_XS: 256 weights of 4 bits that index the values of IQ4_NL; 8 signed 6-bit scales; f16 `d`.

use super::half::u16_at;
use super::iq4_nl::VALUES;
use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at};

pub(crate) struct IQ4_XS;

impl Block for IQ4_XS {
    const LEN: usize = 256;
    const BYTES: usize = 136;
    const OFFSET: u8 = 128;
    const MAX_Q: u8 = 241;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        let d = l.half(u16_at(bytes, 0));
        let high = u16_at(bytes, 2);
        for i in 0..8 {
            let low = bytes[4 + i / 2] >> (4 * (i % 2)) & 15;
            let s = i32::from(low) | i32::from(high >> (2 * i) & 3) << 4;
            out.scale[i] = d * (s - 32) as f32;
            out.q[i] = l.lookup(&VALUES, l.nibbles(bytes_at(bytes, 8 + 16 * i)));
        }
    }
}
