//! Q2_K: 256 weights of 2 bits; 16 bytes of 4-bit scale and minimum, one a group of 16; f16 `d` and `dmin` of those.

use super::half::u32_at;
use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at};

pub(crate) struct Q2_K;

impl Block for Q2_K {
    const LEN: usize = 256;
    const BYTES: usize = 84;
    const GROUP: usize = 16;
    const OFFSET: u8 = 0;
    const MAX_Q: u8 = 3;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        let (d, dmin) = l.half_pair(u32_at(bytes, 80));
        for (i, s) in bytes[..16].iter().enumerate() {
            out.scale[i] = d * f32::from(s & 15);
            out.min[i] = dmin * f32::from(s >> 4);
        }
        let two_bits = l.splat(3);
        for half in 0..2 {
            let v = l.load(bytes_at(bytes, 16 + 32 * half));
            out.q[4 * half] = l.and(v, two_bits);
            out.q[4 * half + 1] = l.and(l.shr::<2>(v), two_bits);
            out.q[4 * half + 2] = l.and(l.shr::<4>(v), two_bits);
            out.q[4 * half + 3] = l.shr::<6>(v);
        }
    }
}
