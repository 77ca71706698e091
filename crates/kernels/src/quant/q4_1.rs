//! Q4_1: 32 weights, f16 scale `d`, f16 `m` that is added, 16 bytes of nibbles.

use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at, half_pairs_of_blocks};

pub(crate) struct Q4_1;

impl Block for Q4_1 {
    const LEN: usize = 32;
    const BYTES: usize = 20;
    const OFFSET: u8 = 0;
    const MAX_Q: u8 = 15;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        let (scale, m) = half_pairs_of_blocks::<Self, L>(l, bytes, 0);
        out.scale[..8].copy_from_slice(&scale);
        out.min[..8].copy_from_slice(&m.map(|m| -m));
        for (q, block) in out.q.iter_mut().zip(bytes.chunks_exact(Self::BYTES)) {
            *q = l.nibbles(bytes_at(block, 4));
        }
    }
}
