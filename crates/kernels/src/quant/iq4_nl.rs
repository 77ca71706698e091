//! IQ4_NL: 32 weights, f16 scale `d`, 16 bytes of nibbles that index [`VALUES`].

use super::lanes::Lanes;
use super::span::{Block, Span, bytes_at, halves_of_blocks};

pub(crate) struct IQ4_NL;

impl Block for IQ4_NL {
    const LEN: usize = 32;
    const BYTES: usize = 18;
    const OFFSET: u8 = 128;
    const MAX_Q: u8 = 241;

    #[inline(always)]
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>) {
        out.scale[..8].copy_from_slice(&halves_of_blocks::<Self, L>(l, bytes, 0));
        for (q, block) in out.q.iter_mut().zip(bytes.chunks_exact(Self::BYTES)) {
            *q = l.lookup(&VALUES, l.nibbles(bytes_at(block, 2)));
        }
    }
}

/// ggml's `kvalues_iq4nl`, plus 128: -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.
pub(crate) const VALUES: [u8; 16] = [
    1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241,
];
