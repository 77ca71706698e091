//! Q5_1: 32 weights, f16 scale `d`, f16 `m` that is added, 32 fifth bits, 16 bytes of nibbles.

use super::half::u32_at;
use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at, half_pairs_of_blocks};

pub(crate) struct Q5_1;

impl Block for Q5_1 {
    const LEN: usize = 32;
    const BYTES: usize = 24;
    const OFFSET: u8 = 0;
    const MAX_Q: u8 = 31;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        let (scale, m) = half_pairs_of_blocks::<Self, L>(l, bytes, 0);
        out.scale[..8].copy_from_slice(&scale);
        out.min[..8].copy_from_slice(&m.map(|m| -m));
        for (q, block) in out.q.iter_mut().zip(bytes.chunks_exact(Self::BYTES)) {
            let fifth = l.and(l.mask(u32_at(block, 4)), l.splat(16));
            *q = l.or(l.nibbles(bytes_at(block, 8)), fifth);
        }
    }
}
