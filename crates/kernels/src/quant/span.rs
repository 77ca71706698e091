//! 256 weights unpacked: the form that all products work on, whatever the block type.

use super::half::{u16_at, u32_at};
use super::lanes::{Lanes, Scalar};

/// Weights in a [`Span`]: the longest block, so that short blocks are unpacked several at a time.
pub(crate) const SPAN: usize = 256;

/// A block type. The weight with integer `q` is `scale * (q - OFFSET) - min`, where `scale` and
/// `min` belong to its group.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // MAX_Q is for SIMD.
pub(crate) trait Block: 'static {
    /// Weights in a block; divides [`SPAN`].
    const LEN: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// Weights that share a scale: 16 or 32.
    const GROUP: usize = 32;
    /// What is taken from `q` to make it signed; types with 128 use the whole range of a byte.
    const OFFSET: u8;
    /// The largest `q` that [`Block::unpack`] gives; it says how many products fit into 16 bits.
    const MAX_Q: u8;

    /// Unpacks the whole blocks of `bytes`, at most a span of them, to the front of `out`. What lies
    /// behind them stays as it is, and so does `min` where the type has none.
    fn unpack<L: Lanes>(l: L, bytes: &[u8], out: &mut Span<L>);
}

/// Up to 256 unpacked weights.
pub(crate) struct Span<L: Lanes> {
    /// The integers, 32 each.
    pub q: [L::U8; SPAN / 32],
    /// One for each group: 8 used when groups have 32 weights, 16 when they have 16.
    pub scale: [f32; SPAN / 16],
    /// Like `scale`.
    pub min: [f32; SPAN / 16],
}

impl<L: Lanes> Span<L> {
    /// Weights that are all zero.
    #[inline(always)]
    pub fn zero(l: L) -> Span<L> {
        Span {
            q: [l.splat(0); SPAN / 32],
            scale: [0.0; SPAN / 16],
            min: [0.0; SPAN / 16],
        }
    }
}

/// Half-precision numbers, one a block of 32, `at` bytes from each block's start; zeros past the last block.
#[inline(always)]
pub(crate) fn halves_of_blocks<B: Block, L: Lanes>(l: L, bytes: &[u8], at: usize) -> [f32; 8] {
    let mut bits = [0; 8];
    for (bits, block) in bits.iter_mut().zip(bytes.chunks_exact(B::BYTES)) {
        *bits = u16_at(block, at);
    }
    l.halves(&bits)
}

/// The same for pairs of half-precision numbers: all first ones, all second ones.
#[inline(always)]
pub(crate) fn half_pairs_of_blocks<B: Block, L: Lanes>(
    l: L,
    bytes: &[u8],
    at: usize,
) -> ([f32; 8], [f32; 8]) {
    let mut pairs = [0; 8];
    for (pair, block) in pairs.iter_mut().zip(bytes.chunks_exact(B::BYTES)) {
        *pair = u32_at(block, at);
    }
    l.half_pairs(&pairs)
}

/// The `N` bytes at `at` in a block.
#[inline(always)]
pub(crate) fn bytes_at<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a whole block")
}

/// Bytes of a full span.
pub(crate) const fn span_bytes<B: Block>() -> usize {
    SPAN / B::LEN * B::BYTES
}

/// Dequantises a row of whole blocks.
pub(crate) fn dequantize_row<B: Block>(bytes: &[u8], out: &mut [f32]) {
    let mut span = Span::zero(Scalar);
    for (bytes, out) in bytes.chunks(span_bytes::<B>()).zip(out.chunks_mut(SPAN)) {
        B::unpack(Scalar, bytes, &mut span);
        for (i, y) in out.iter_mut().enumerate() {
            let group = i / B::GROUP;
            let q = i32::from(span.q[i / 32][i % 32]) - i32::from(B::OFFSET);
            *y = span.scale[group] * q as f32 - span.min[group];
        }
    }
}
