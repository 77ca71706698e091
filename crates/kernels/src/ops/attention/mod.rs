//! Causal attention over the cache, in tiles (Dao et al., "FlashAttention", arXiv 2205.14135).
//!
//! A unit of work is one key/value head and a tile of tokens: all query heads that share the head go together. It walks
//! over the keys in blocks, turns each block of K and V to floats once for all its queries, and keeps a running maximum
//! and sum, so that no row of scores as long as the context exists. A single token over few heads leaves threads
//! without work; its keys are then divided among the threads and the parts merged.

mod tile;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::floats::for_floats;
use super::kv::KvRows;
use super::split;
use crate::{Cpu, SharedSlice};
use tile::{Layout, Tile, walk};

/// Query rows of a tile, at least as many as a group has heads.
const TILE_ROWS: usize = 32;
/// Keys that are worth a thread of their own.
const MIN_PART: usize = 256;

/// The input of [`attention`].
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// Queries `[n_tokens][n_head][dk]`.
    pub q: &'a [f32],
    /// Tokens.
    pub n_tokens: usize,
    /// Query heads.
    pub n_head: usize,
    /// Key/value heads; query head `h` reads head `h / (n_head / n_head_kv)`.
    pub n_head_kv: usize,
    /// Width of a query and key head.
    pub dk: usize,
    /// Width of a value head.
    pub dv: usize,
    /// Keys of all positions up to the last token's.
    pub k: KvRows<'a>,
    /// Values of the same.
    pub v: KvRows<'a>,
    /// Position of the first token.
    pub pos0: usize,
    /// A key is visible when its distance is below this; `None` sees all.
    pub window: Option<usize>,
    /// Factor of the scores.
    pub scale: f32,
}

impl Attention<'_> {
    fn group(&self) -> usize {
        self.n_head / self.n_head_kv
    }

    /// Positions that the token at `pos` sees.
    fn visible(&self, pos: usize) -> (usize, usize) {
        (
            self.window.map_or(0, |w| (pos + 1).saturating_sub(w)),
            pos + 1,
        )
    }

    /// Positions that any of the tokens sees.
    fn seen(&self, tokens: Range<usize>) -> Range<usize> {
        let (first, last) = (self.pos0 + tokens.start, self.pos0 + tokens.end - 1);
        self.visible(first).0..self.visible(last).1
    }

    fn check(&self) {
        assert_eq!(self.q.len(), self.n_tokens * self.n_head * self.dk);
        assert!(self.dk > 0 && self.dv > 0 && self.n_head > 0 && self.n_head_kv > 0);
        assert!(
            self.n_head.is_multiple_of(self.n_head_kv),
            "{} heads cannot share {} alike",
            self.n_head,
            self.n_head_kv
        );
        assert_ne!(self.window, Some(0), "a token sees at least itself");
        for (rows, width) in [(&self.k, self.dk), (&self.v, self.dv)] {
            assert!(width.is_multiple_of(rows.ty.block_len()));
            assert!(rows.row_bytes >= self.n_head_kv * rows.ty.row_bytes(width));
        }
    }
}

/// Scratch of [`attention`], allocated once.
pub struct AttnScratch {
    threads: Vec<f32>,
    parts: Vec<f32>,
}

impl AttnScratch {
    fn rows(group: usize) -> usize {
        TILE_ROWS.max(group)
    }

    fn per_thread(dk: usize, dv: usize, group: usize) -> usize {
        Layout::new(dk, dv, Self::rows(group)).len()
    }

    /// One partial result for each thread and query head.
    fn parts(n_threads: usize, dv: usize, n_head: usize) -> usize {
        n_threads * n_head * (dv + 2)
    }

    /// Bytes that [`AttnScratch::new`] allocates.
    pub fn bytes(n_threads: usize, dk: usize, dv: usize, n_head: usize, n_head_kv: usize) -> usize {
        4 * (n_threads * Self::per_thread(dk, dv, n_head / n_head_kv)
            + Self::parts(n_threads, dv, n_head))
    }

    /// Scratch for `n_threads` threads and the largest head sizes and counts of a model.
    pub fn new(
        n_threads: usize,
        dk: usize,
        dv: usize,
        n_head: usize,
        n_head_kv: usize,
    ) -> AttnScratch {
        AttnScratch {
            threads: vec![0.0; n_threads * Self::per_thread(dk, dv, n_head / n_head_kv)],
            parts: vec![0.0; Self::parts(n_threads, dv, n_head)],
        }
    }
}

/// `softmax(scale · q·kᵀ, over the visible keys) · v` into `out` `[n_tokens][n_head][dv]`.
///
/// # Panics
/// When the shapes do not fit each other, the rows or the scratch, or a token sees nothing.
pub fn attention(cpu: &Cpu, a: &Attention<'_>, scratch: &mut AttnScratch, out: &mut [f32]) {
    a.check();
    assert_eq!(out.len(), a.n_tokens * a.n_head * a.dv);
    let (group, n_threads) = (a.group(), cpu.pool.n_threads());
    let layout = Layout::new(a.dk, a.dv, AttnScratch::rows(group));
    let per_thread = layout.len();
    assert!(
        scratch.threads.len() >= n_threads * per_thread,
        "the scratch is for smaller heads or fewer threads"
    );
    if a.n_tokens == 0 {
        return;
    }
    let tile = (TILE_ROWS / group).max(1);
    let n_tiles = a.n_tokens.div_ceil(tile);
    let seen = a.seen(0..a.n_tokens);
    // Only a lone token is divided: of more, there are tiles enough.
    let n_parts = if a.n_tokens == 1 && !a.n_head_kv.is_multiple_of(n_threads) {
        (seen.len() / MIN_PART).clamp(1, n_threads)
    } else {
        1
    };
    let n_units = a.n_head_kv * n_tiles * n_parts;
    let threads = SharedSlice::new(&mut scratch.threads);
    let row = a.dv + 2;
    let parts = SharedSlice::new(&mut scratch.parts);
    let shared_out = SharedSlice::new(out);
    let next = AtomicUsize::new(0);
    let work = |thread: usize| {
        // SAFETY: thread `i` of a pool run is one thread, and this is its own scratch.
        let mine = unsafe { threads.slice_mut(thread * per_thread..(thread + 1) * per_thread) };
        loop {
            let unit = next.fetch_add(1, Ordering::Relaxed);
            if unit >= n_units {
                return;
            }
            // The last tiles see the most keys: they are taken first.
            let (rest, part) = (unit / n_parts, unit % n_parts);
            let (tile_index, head) = (n_tiles - 1 - rest / a.n_head_kv, rest % a.n_head_kv);
            let tokens = tile_index * tile..((tile_index + 1) * tile).min(a.n_tokens);
            let seen = a.seen(tokens.clone());
            let at = |part: usize| seen.start + seen.len() * part / n_parts;
            let keys = at(part)..at(part + 1);
            let n_rows = tokens.len() * group;
            let first = tokens.start;
            let mut sums = Tile::new(mine, layout, a.dv);
            let sums_ref = &mut sums;
            for_floats!(cpu.isa, walk, (a: &Attention<'_>, head: usize, tokens: Range<usize>, keys: Range<usize>, sums_ref: &mut Tile<'_>));
            for r in 0..n_rows {
                let (acc, max, sum) = sums.row(r);
                let (t, h) = (first + r / group, head * group + r % group);
                if n_parts == 1 {
                    let at = (t * a.n_head + h) * a.dv;
                    // SAFETY: each unit has its tokens' rows of its heads to itself.
                    let out = unsafe { shared_out.slice_mut(at..at + a.dv) };
                    let inverse = 1.0 / sum;
                    out.iter_mut().zip(acc).for_each(|(o, x)| *o = x * inverse);
                } else {
                    let at = (part * a.n_head + h) * row;
                    // SAFETY: each unit has the partial results of its part and heads to itself.
                    let p = unsafe { parts.slice_mut(at..at + row) };
                    p[..a.dv].copy_from_slice(acc);
                    p[a.dv] = max;
                    p[a.dv + 1] = sum;
                }
            }
        }
    };
    // Multiply-adds of the whole op decide whether the pool is worth waking.
    let cost = (a.n_tokens * a.n_head).saturating_mul(seen.len() * (a.dk + a.dv));
    if split::worth_threads(cost) && n_threads > 1 {
        cpu.pool.run(&work);
    } else {
        work(0);
    }
    if n_parts > 1 {
        merge(
            &scratch.parts[..n_parts * a.n_head * row],
            a.n_head,
            a.dv,
            out,
        );
    }
}

/// Parts of one token's rows, each with its maximum and sum, into one.
fn merge(parts: &[f32], n_head: usize, dv: usize, out: &mut [f32]) {
    let row = dv + 2;
    for (h, out) in out.chunks_exact_mut(dv).enumerate() {
        let of_head = || parts.chunks_exact(row).skip(h).step_by(n_head);
        let max = of_head().map(|p| p[dv]).fold(f32::NEG_INFINITY, f32::max);
        let weight = |p: &[f32]| (p[dv] - max).exp();
        let sum: f32 = of_head().map(|p| p[dv + 1] * weight(p)).sum();
        out.fill(0.0);
        for p in of_head() {
            let w = weight(p) / sum;
            out.iter_mut().zip(p).for_each(|(o, x)| *o += w * x);
        }
    }
}
