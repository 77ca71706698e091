//! Q6_K: 256 weights of 6 bits (128 bytes of low nibbles, 64 of high pairs); 16 signed byte scales; f16 `d`.

use super::half::u16_at;
use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at};

pub(crate) struct Q6_K;

impl Block for Q6_K {
    const LEN: usize = 256;
    const BYTES: usize = 210;
    const GROUP: usize = 16;
    const OFFSET: u8 = 32;
    const MAX_Q: u8 = 63;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        let d = l.half(u16_at(bytes, 208));
        for (scale, &s) in out.scale.iter_mut().zip(&bytes[192..208]) {
            *scale = d * f32::from(s as i8);
        }
        let (nibble, pair) = (l.splat(15), l.splat(0x30));
        for half in 0..2 {
            let a = l.load(bytes_at(bytes, 64 * half));
            let b = l.load(bytes_at(bytes, 64 * half + 32));
            let high = l.load(bytes_at(bytes, 128 + 32 * half));
            out.q[4 * half] = l.or(l.and(a, nibble), l.and(l.shl::<4>(high), pair));
            out.q[4 * half + 1] = l.or(l.and(b, nibble), l.and(l.shl::<2>(high), pair));
            out.q[4 * half + 2] = l.or(l.shr::<4>(a), l.and(high, pair));
            out.q[4 * half + 3] = l.or(l.shr::<4>(b), l.and(l.shr::<2>(high), pair));
        }
    }
}
