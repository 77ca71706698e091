//! Q4_K: 256 weights of 4 bits; 8 scales and minima of 6 bits; f16 `d` and `dmin` of those.

use super::k_scales::unpack_scales;
use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at};

pub(crate) struct Q4_K;

impl Block for Q4_K {
    const LEN: usize = 256;
    const BYTES: usize = 144;
    const OFFSET: u8 = 0;
    const MAX_Q: u8 = 15;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        unpack_scales(l, bytes, out);
        let nibble = l.splat(15);
        for j in 0..4 {
            let v = l.load(bytes_at(bytes, 16 + 32 * j));
            out.q[2 * j] = l.and(v, nibble);
            out.q[2 * j + 1] = l.shr::<4>(v);
        }
    }
}
