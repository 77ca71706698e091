//! Matrix times matrix over quantised weights, for AVX2 and AVX-512.
//!
//! A panel of 16 rows by 256 columns is unpacked once and meets all tokens; a tile kernel multiplies it
//! with a few tokens at a time. A panel is 6 KiB, on the stack, and stays in the first cache with the
//! activations of a tile.

use super::panel::Panel;
use super::{Chunk, TILE_ROWS, tile_avx2, tile_avx512};
use crate::ops::acts::ActSpan;
use crate::quant::{Avx2, Block, SPAN, Span, Vnni, X86};

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

/// Tokens whose sums lie on the stack at once, for few tokens and for many: 4 KiB and 32 KiB.
const FEW: usize = 64;
const MANY: usize = 512;

/// `tile` adds the product of a panel with up to `TOKENS` tokens to their sums.
///
/// The sums of 16 rows stay side by side until they are whole: rows of `y` are a power of two apart more often than not, and
/// what is written to them again and again would share a few sets of the cache.
#[inline(always)]
fn matmul<B: Block, L: X86, const TOKENS: usize>(
    l: L,
    chunk: &mut Chunk<'_>,
    tile: impl Fn(&Panel, &[ActSpan], &mut Sums),
) {
    let n_tokens = chunk.x.n_tokens;
    // Zeroing room for many would be most of the work on a few.
    let (mut few, mut many);
    let room: &mut Sums = if n_tokens <= FEW {
        few = [[0.0; TILE_ROWS]; FEW];
        &mut few
    } else {
        many = [[0.0; TILE_ROWS]; MANY];
        &mut many
    };
    let rows = chunk.rows.clone();
    let mut panel = Panel::new();
    let mut spans: [Span<L>; 8] = std::array::from_fn(|_| Span::zero(l));
    for first in rows.clone().step_by(TILE_ROWS) {
        let n_rows = TILE_ROWS.min(rows.end - first);
        let at = first - rows.start;
        let mut bias = [0.0; TILE_ROWS];
        if let Some(all) = chunk.bias {
            bias[..n_rows].copy_from_slice(&all[first..first + n_rows]);
        }
        for from in (0..n_tokens).step_by(room.len()) {
            let n = room.len().min(n_tokens - from);
            let sums = &mut room[..n];
            sums.fill(bias);
            for s in 0..chunk.w.cols.div_ceil(SPAN) {
                panel.fill::<B, L>(l, &mut spans, chunk.w, first, n_rows, s);
                let x = &chunk.x.q[s * n_tokens + from..][..n];
                for (x, sums) in x.chunks(TOKENS).zip(sums.chunks_mut(TOKENS)) {
                    tile(&panel, x, sums);
                }
            }
            for (t, sums) in sums.iter().enumerate() {
                let y = &mut chunk.y.token(from + t)[at..at + n_rows];
                match y.as_mut_array::<TILE_ROWS>() {
                    Some(y) => *y = *sums,
                    None => y.copy_from_slice(&sums[..n_rows]),
                }
            }
        }
    }
}
