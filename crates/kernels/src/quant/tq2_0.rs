//! TQ2_0: 256 ternary weights of 2 bits; f16 `d`.

use super::half::u16_at;
use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at};

pub(crate) struct TQ2_0;

impl Block for TQ2_0 {
    const LEN: usize = 256;
    const BYTES: usize = 66;
    const OFFSET: u8 = 1;
    const MAX_Q: u8 = 3;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        out.scale[..8].fill(l.half(u16_at(bytes, 64)));
        let two_bits = l.splat(3);
        for half in 0..2 {
            let v = l.load(bytes_at(bytes, 32 * half));
            out.q[4 * half] = l.and(v, two_bits);
            out.q[4 * half + 1] = l.and(l.shr::<2>(v), two_bits);
            out.q[4 * half + 2] = l.and(l.shr::<4>(v), two_bits);
            out.q[4 * half + 3] = l.shr::<6>(v);
        }
    }
}
