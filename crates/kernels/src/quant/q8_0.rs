//! Q8_0: 32 weights, f16 scale `d`, 32 signed bytes.

use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at, halves_of_blocks};

pub(crate) struct Q8_0;

impl Block for Q8_0 {
    const LEN: usize = 32;
    const BYTES: usize = 34;
    const OFFSET: u8 = 128;
    const MAX_Q: u8 = 255;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        out.scale[..8].copy_from_slice(&halves_of_blocks::<Self, L>(l, bytes, 0));
        for (q, block) in out.q.iter_mut().zip(bytes.chunks_exact(Self::BYTES)) {
            *q = l.xor(l.load(bytes_at(block, 2)), l.splat(128));
        }
    }
}
