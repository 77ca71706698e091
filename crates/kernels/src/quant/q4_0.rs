//! Q4_0: 32 weights, f16 scale `d`, 16 bytes of nibbles.

use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at, halves_of_blocks};

pub(crate) struct Q4_0;

impl Block for Q4_0 {
    const LEN: usize = 32;
    const BYTES: usize = 18;
    const OFFSET: u8 = 8;
    const MAX_Q: u8 = 15;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        out.scale[..8].copy_from_slice(&halves_of_blocks::<Self, L>(l, bytes, 0));
        for (q, block) in out.q.iter_mut().zip(bytes.chunks_exact(Self::BYTES)) {
            *q = l.nibbles(bytes_at(block, 2));
        }
    }
}
