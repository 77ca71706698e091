//! One tile: some tokens' queries of one key/value head over a range of keys, block by block.

use std::ops::Range;

use super::Attention;
use crate::ops::floats::{Floats, dots, mix};
use crate::ops::kv::{KvRows, load};
use crate::ops::math::{LANES, exp, sum_lanes};

/// Keys of a block.
const BLOCK: usize = 64;
/// Floats that pad a block's rows. Rows a power of two apart fall into the same few sets of the cache.
const PAD: usize = 16;
/// Columns of the output that are worked on together.
const COLS: usize = 16;

/// Sizes of a tile's scratch, in floats.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// From key to key of a block.
    k_stride: usize,
    /// From value to value.
    v_stride: usize,
    /// From row to row of the sums.
    acc_stride: usize,
    rows: usize,
}

impl Layout {
    /// For at most `rows` rows (query heads of tokens) and heads of `dk` and `dv`.
    pub fn new(dk: usize, dv: usize, rows: usize) -> Layout {
        let acc_stride = dv.next_multiple_of(COLS);
        Layout {
            k_stride: dk.next_multiple_of(COLS) + PAD,
            v_stride: acc_stride + PAD,
            acc_stride,
            rows,
        }
    }

    /// Floats of a block of keys, of values, the scores, and the rows' sums.
    pub fn len(self) -> usize {
        BLOCK * (self.k_stride + self.v_stride) + self.rows * (BLOCK + self.acc_stride + 2)
    }
}

/// What a tile works with; made of a thread's scratch.
pub(super) struct Tile<'a> {
    layout: Layout,
    dv: usize,
    k: &'a mut [f32],
    v: &'a mut [f32],
    scores: &'a mut [f32],
    acc: &'a mut [f32],
    max: &'a mut [f32],
    sum: &'a mut [f32],
}

impl<'a> Tile<'a> {
    /// With nothing summed yet. `scratch` is at least [`Layout::len`] long.
    pub fn new(scratch: &'a mut [f32], layout: Layout, dv: usize) -> Tile<'a> {
        let rows = layout.rows;
        let (k, rest) = scratch.split_at_mut(BLOCK * layout.k_stride);
        let (v, rest) = rest.split_at_mut(BLOCK * layout.v_stride);
        let (scores, rest) = rest.split_at_mut(rows * BLOCK);
        let (acc, rest) = rest.split_at_mut(rows * layout.acc_stride);
        let (max, rest) = rest.split_at_mut(rows);
        let sum = &mut rest[..rows];
        acc.fill(0.0);
        max.fill(f32::NEG_INFINITY);
        sum.fill(0.0);
        Tile {
            layout,
            dv,
            k,
            v,
            scores,
            acc,
            max,
            sum,
        }
    }

    /// Of row `r`: `Σ e^(score - max) · v`, the maximum of its scores, and `Σ e^(score - max)`.
    pub fn row(&self, r: usize) -> (&[f32], f32, f32) {
        let acc = &self.acc[r * self.layout.acc_stride..][..self.dv];
        (acc, self.max[r], self.sum[r])
    }
}

/// Walks over `keys`. Row `r` of the tile is query head `r % group` of token `r / group`.
#[inline(always)]
pub(super) fn walk<L: Floats>(
    l: L,
    a: &Attention<'_>,
    head: usize,
    tokens: Range<usize>,
    keys: Range<usize>,
    tile: &mut Tile<'_>,
) {
    let group = a.group();
    let n_rows = tokens.len() * group;
    for first in keys.clone().step_by(BLOCK) {
        let n = BLOCK.min(keys.end - first);
        load_block(
            l,
            &a.k,
            head,
            first..first + n,
            a.dk,
            tile.layout.k_stride,
            tile.k,
        );
        load_block(
            l,
            &a.v,
            head,
            first..first + n,
            a.dv,
            tile.layout.v_stride,
            tile.v,
        );
        // The block's keys that a row sees.
        let seen = |r: usize| {
            let (from, to) = a.visible(a.pos0 + tokens.start + r / group);
            from.saturating_sub(first).min(n)..to.saturating_sub(first).min(n)
        };
        let q = |r: usize| {
            let (t, h) = (tokens.start + r / group, head * group + r % group);
            &a.q[(t * a.n_head + h) * a.dk..][..a.dk]
        };
        // Rows that see the same keys go in pairs.
        let mut r = 0;
        while r < n_rows {
            let range = seen(r);
            let pair = r + 1 < n_rows && seen(r + 1) == range;
            if !range.is_empty() {
                if pair {
                    attend(l, [q(r), q(r + 1)], a.scale, r, range, tile);
                } else {
                    attend(l, [q(r)], a.scale, r, range, tile);
                }
            }
            r += 1 + usize::from(pair);
        }
    }
}

#[inline(always)]
fn load_block<L: Floats>(
    l: L,
    rows: &KvRows<'_>,
    head: usize,
    positions: Range<usize>,
    width: usize,
    stride: usize,
    out: &mut [f32],
) {
    let heads = rows.head(positions, head, rows.ty.row_bytes(width));
    for (bytes, out) in heads.zip(out.chunks_exact_mut(stride)) {
        load(l, rows.ty, bytes, &mut out[..width]);
    }
}

/// Adds the block's keys in `range` to the tile's rows from `r` on, one for each query.
#[inline(always)]
fn attend<L: Floats, const R: usize>(
    l: L,
    q: [&[f32]; R],
    scale: f32,
    r: usize,
    range: Range<usize>,
    tile: &mut Tile<'_>,
) {
    let (n, layout) = (range.len(), tile.layout);
    let k = &tile.k[range.start * layout.k_stride..];
    let v = &tile.v[range.start * layout.v_stride..];
    let mut scores = tile.scores[r * BLOCK..].chunks_exact_mut(BLOCK);
    let mut scores: [&mut [f32]; R] =
        std::array::from_fn(|_| &mut scores.next().expect("a row's scores")[..n]);
    score(l, q, k, layout.k_stride, &mut scores);
    for (i, scores) in scores.iter_mut().enumerate() {
        let acc = &mut tile.acc[(r + i) * layout.acc_stride..][..layout.acc_stride];
        soften(
            scores,
            scale,
            acc,
            &mut tile.max[r + i],
            &mut tile.sum[r + i],
        );
    }
    let mut acc = tile.acc[r * layout.acc_stride..].chunks_exact_mut(layout.acc_stride);
    let mut acc: [&mut [f32]; R] = std::array::from_fn(|_| acc.next().expect("a row's sums"));
    let w = scores.map(|s| &*s);
    for col in (0..layout.acc_stride).step_by(COLS) {
        let mut acc = acc.iter_mut();
        let acc: [&mut [f32]; R] = std::array::from_fn(|_| &mut **acc.next().expect("R rows"));
        mix::<L, R, 2>(l, w, v, layout.v_stride, col, acc);
    }
}

/// Products of the queries with the first keys, as many as there are places for each query.
#[inline(always)]
fn score<L: Floats, const R: usize>(
    l: L,
    q: [&[f32]; R],
    k: &[f32],
    stride: usize,
    scores: &mut [&mut [f32]; R],
) {
    let (n, dk) = (scores[0].len(), q[0].len());
    // A group of keys is always whole: what is missing is one that is there.
    let key = |j: usize| &k[j.min(n - 1) * stride..][..dk];
    let keys = 4 / R;
    for j in (0..n).step_by(keys) {
        let products = match q.as_slice() {
            [a, b] => dots(l, [a, b], [key(j), key(j + 1)]),
            [a] => dots(l, [a], [key(j), key(j + 1), key(j + 2), key(j + 3)]),
            _ => unreachable!("one query or two"),
        };
        for (scores, products) in scores.iter_mut().zip(products.chunks_exact(keys)) {
            let m = keys.min(n - j);
            scores[j..j + m].copy_from_slice(&products[..m]);
        }
    }
}

/// Scores become `e^(scale · score - max)`; what was summed so far is scaled to a new maximum.
#[inline(always)]
fn soften(scores: &mut [f32], scale: f32, acc: &mut [f32], max: &mut f32, sum: &mut f32) {
    // Comparisons rather than `f32::max`: they are one instruction, and skip NaN as well.
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut best = [*max; LANES];
    for scores in scores.chunks_mut(LANES) {
        for (s, best) in scores.iter_mut().zip(&mut best) {
            *s *= scale;
            *best = larger(*best, *s);
        }
    }
    let best = best.into_iter().fold(*max, larger);
    // Of a row whose scores are all -inf (or NaN) nothing has been seen; any finite maximum serves.
    let best = if best == f32::NEG_INFINITY { 0.0 } else { best };
    let keep = match *max {
        f32::NEG_INFINITY => 0.0,
        max => exp(max - best),
    };
    if keep != 1.0 {
        acc.iter_mut().for_each(|x| *x *= keep);
    }
    let mut parts = [0.0f32; LANES];
    for scores in scores.chunks_mut(LANES) {
        for (s, part) in scores.iter_mut().zip(&mut parts) {
            *s = exp(*s - best);
            *part += *s;
        }
    }
    *max = best;
    *sum = *sum * keep + sum_lanes(parts);
}
