//! Matrix times matrix over quantised weights, for AVX2 and AVX-512.
//!
//! A panel of 16 rows by 256 columns is unpacked once and meets all tokens; a tile kernel multiplies it
//! with a few tokens at a time. A panel is 6 KiB, on the stack, and stays in the first cache with the
//! activations of a tile.

use super::panel::Panel;
use super::{Chunk, TILE_ROWS, tile_avx2, tile_avx512};
use crate::ops::acts::ActSpan;
use crate::quant::{Avx2, Block, Lanes, SPAN, Vnni};

/// Sums of a tile: `[token][row]`.
pub(super) type Sums = [[f32; TILE_ROWS]];

/// With byte products by `vpmaddubsw`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn avx2<B: Block>(v: Avx2, chunk: &mut Chunk<'_>) {
    matmul::<B, _, { tile_avx2::TOKENS }>(v, chunk, |panel, x, sums| {
        tile_avx2::add::<B>(panel, x, sums)
    });
}

/// With byte products by `vpdpbusd`.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn avx512<B: Block>(v: Vnni, chunk: &mut Chunk<'_>) {
    matmul::<B, _, { tile_avx512::TOKENS }>(v, chunk, |panel, x, sums| {
        tile_avx512::add::<B>(panel, x, sums)
    });
}

/// `tile` adds the product of a panel with up to `TOKENS` tokens to their sums.
#[inline(always)]
fn matmul<B: Block, L: Lanes, const TOKENS: usize>(
    l: L,
    chunk: &mut Chunk<'_>,
    tile: impl Fn(&Panel, &[ActSpan], &mut Sums),
) {
    let n_tokens = chunk.x.n_tokens;
    let rows = chunk.rows.clone();
    chunk.set_to_bias();
    let mut panel = Panel::new();
    for first in rows.clone().step_by(TILE_ROWS) {
        let n_rows = TILE_ROWS.min(rows.end - first);
        let at = first - rows.start;
        for s in 0..chunk.w.cols.div_ceil(SPAN) {
            panel.fill::<B, L>(l, chunk.w, first, n_rows, s);
            for t in (0..n_tokens).step_by(TOKENS) {
                let n = TOKENS.min(n_tokens - t);
                let mut sums = [[0.0; TILE_ROWS]; TOKENS];
                for (i, sums) in sums[..n].iter_mut().enumerate() {
                    sums[..n_rows].copy_from_slice(&chunk.y.token(t + i)[at..at + n_rows]);
                }
                let x = &chunk.x.q[s * n_tokens + t..][..n];
                tile(&panel, x, &mut sums[..n]);
                for (i, sums) in sums[..n].iter().enumerate() {
                    chunk.y.token(t + i)[at..at + n_rows].copy_from_slice(&sums[..n_rows]);
                }
            }
        }
    }
}
