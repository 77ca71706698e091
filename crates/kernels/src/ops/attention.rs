//! Causal attention over the cache, in tiles (Dao et al., "FlashAttention", arXiv 2205.14135).
//!
//! A unit of work is one key/value head and a tile of tokens: all query heads that share the head go together. It walks
//! over the keys in blocks, turns each block of K and V to floats once for all its queries, and keeps a running maximum
//! and sum, so that no row of scores as long as the context exists. A single token over few heads leaves threads
//! without work; its keys are then divided among the threads and the parts merged.

use super::kv::{KvRows, load};
use super::math::{LANES, dot, exp, sum_lanes};
use super::{for_isa, split};
use crate::{Cpu, Isa, SharedSlice};

/// Keys of a block.
const BLOCK: usize = 64;
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
}

/// Scratch of [`attention`], allocated once.
pub struct AttnScratch {
    threads: Vec<f32>,
    per_thread: usize,
    parts: Vec<f32>,
    max_rows: usize,
}

impl AttnScratch {
    fn rows(group: usize) -> usize {
        TILE_ROWS.max(group)
    }

    /// A block of keys, of values, of scores, and the running sums of a tile's rows.
    fn per_thread(dk: usize, dv: usize, group: usize) -> usize {
        BLOCK * (dk + dv) + Self::rows(group) * (BLOCK + dv + 2)
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
        let group = n_head / n_head_kv;
        let per_thread = Self::per_thread(dk, dv, group);
        AttnScratch {
            threads: vec![0.0; n_threads * per_thread],
            per_thread,
            parts: vec![0.0; Self::parts(n_threads, dv, n_head)],
            max_rows: Self::rows(group),
        }
    }
}

/// `softmax(scale · q·kᵀ, over the visible keys) · v` into `out` `[n_tokens][n_head][dv]`.
///
/// # Panics
/// When the shapes do not fit each other or the scratch.
pub fn attention(cpu: &Cpu, a: &Attention<'_>, scratch: &mut AttnScratch, out: &mut [f32]) {
    let (group, n_threads) = (a.group(), cpu.pool.n_threads());
    assert_eq!(a.q.len(), a.n_tokens * a.n_head * a.dk);
    assert_eq!(out.len(), a.n_tokens * a.n_head * a.dv);
    assert!(
        scratch.per_thread >= AttnScratch::per_thread(a.dk, a.dv, group)
            && scratch.max_rows >= group
    );
    assert!(scratch.threads.len() >= n_threads * scratch.per_thread);
    if a.n_tokens == 0 {
        return;
    }
    let tile = (TILE_ROWS / group).max(1);
    let n_tiles = a.n_tokens.div_ceil(tile);
    let (start, end) = a.visible(a.pos0);
    // Only a lone token is divided: of more, there are tiles enough.
    let n_parts = if a.n_tokens == 1 && !a.n_head_kv.is_multiple_of(n_threads) {
        ((end - start) / MIN_PART).clamp(1, n_threads)
    } else {
        1
    };
    let n_units = a.n_head_kv * n_tiles * n_parts;
    let per_thread = scratch.per_thread;
    let threads = SharedSlice::new(&mut scratch.threads);
    let row = a.dv + 2;
    let parts = SharedSlice::new(&mut scratch.parts);
    let shared_out = SharedSlice::new(out);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = |thread: usize| {
        // SAFETY: thread `i` of a pool run is one thread, and this is its own scratch.
        let mut mine = unsafe { threads.slice_mut(thread * per_thread..(thread + 1) * per_thread) };
        loop {
            let unit = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if unit >= n_units {
                return;
            }
            // The last tiles see the most keys: they are taken first.
            let (rest, part) = (unit / n_parts, unit % n_parts);
            let (tile_index, head) = (n_tiles - 1 - rest / a.n_head_kv, rest % a.n_head_kv);
            let tokens = tile_index * tile..((tile_index + 1) * tile).min(a.n_tokens);
            let first = a.visible(a.pos0 + tokens.start).0;
            let last = a.visible(a.pos0 + tokens.end - 1).1;
            let len = last - first;
            let keys = (
                first + len * part / n_parts,
                first + len * (part + 1) / n_parts,
            );
            let sums = walk(cpu.isa, a, head, tokens.clone(), keys, &mut mine);
            for (r, (acc, (max, sum))) in sums.rows(a.dv).enumerate() {
                let (t, h) = (tokens.start + r / group, head * group + r % group);
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
    let cost = a.n_tokens * a.n_head * (end - start + a.n_tokens / 2) * (a.dk + a.dv);
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

/// The running sums of a tile's rows.
struct Sums<'a> {
    acc: &'a [f32],
    max: &'a [f32],
    sum: &'a [f32],
}

impl<'a> Sums<'a> {
    fn rows(&self, dv: usize) -> impl Iterator<Item = (&'a [f32], (f32, f32))> {
        self.acc
            .chunks_exact(dv)
            .zip(self.max.iter().copied().zip(self.sum.iter().copied()))
    }
}

/// One unit: the tile's queries of one head's group over the keys `keys.0..keys.1`.
fn walk<'s>(
    isa: Isa,
    a: &Attention<'_>,
    head: usize,
    tokens: std::ops::Range<usize>,
    keys: (usize, usize),
    scratch: &'s mut &mut [f32],
) -> Sums<'s> {
    let (group, dk, dv) = (a.group(), a.dk, a.dv);
    let n_rows = tokens.len() * group;
    let (k_block, rest) = scratch.split_at_mut(BLOCK * dk);
    let (v_block, rest) = rest.split_at_mut(BLOCK * dv);
    let (scores, rest) = rest.split_at_mut(n_rows * BLOCK);
    let (acc, rest) = rest.split_at_mut(n_rows * dv);
    let (max, rest) = rest.split_at_mut(n_rows);
    let sum = &mut rest[..n_rows];
    acc.fill(0.0);
    max.fill(f32::NEG_INFINITY);
    sum.fill(0.0);
    let (k_bytes, v_bytes) = (a.k.ty.row_bytes(dk), a.v.ty.row_bytes(dv));
    let mut first = keys.0;
    while first < keys.1 {
        let n = BLOCK.min(keys.1 - first);
        for j in 0..n {
            load(
                isa,
                a.k.ty,
                a.k.head(first + j, head, k_bytes),
                &mut k_block[j * dk..(j + 1) * dk],
            );
            load(
                isa,
                a.v.ty,
                a.v.head(first + j, head, v_bytes),
                &mut v_block[j * dv..(j + 1) * dv],
            );
        }
        for r in 0..n_rows {
            let t = tokens.start + r / group;
            let (from, to) = a.visible(a.pos0 + t);
            // The block's keys that this row sees.
            let (from, to) = (
                from.saturating_sub(first).min(n),
                to.saturating_sub(first).min(n),
            );
            if from >= to {
                continue;
            }
            let q = &a.q[(t * a.n_head + head * group + r % group) * dk..][..dk];
            let row = Row {
                q,
                k: &k_block[from * dk..to * dk],
                v: &v_block[from * dv..to * dv],
                scale: a.scale,
                scores: &mut scores[r * BLOCK..r * BLOCK + to - from],
                acc: &mut acc[r * dv..(r + 1) * dv],
                max: &mut max[r],
                sum: &mut sum[r],
            };
            for_isa!(isa, online_softmax, (row: Row<'_>));
        }
        first += n;
    }
    Sums { acc, max, sum }
}

/// A row and the part of a block that it sees.
struct Row<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    scale: f32,
    scores: &'a mut [f32],
    acc: &'a mut [f32],
    max: &'a mut f32,
    sum: &'a mut f32,
}

#[inline(always)]
fn online_softmax(row: Row<'_>) {
    let Row {
        q,
        k,
        v,
        scale,
        scores,
        acc,
        max,
        sum,
    } = row;
    let (dk, dv) = (q.len(), acc.len());
    let mut best = *max;
    for (s, k) in scores.iter_mut().zip(k.chunks_exact(dk)) {
        *s = dot(q, k) * scale;
        best = best.max(*s);
    }
    // Of a row whose scores are all -inf (or NaN) nothing has been seen; any finite maximum serves.
    let best = if best == f32::NEG_INFINITY { 0.0 } else { best };
    let keep = if *max == f32::NEG_INFINITY {
        0.0
    } else {
        exp(*max - best)
    };
    if keep != 1.0 {
        acc.iter_mut().for_each(|x| *x *= keep);
    }
    let mut total = *sum * keep;
    for s in scores.iter_mut() {
        *s = exp(*s - best);
    }
    for s in scores.iter() {
        total += s;
    }
    // Key j goes into part j mod LANES of the sum, for eight columns at a time.
    const COLS: usize = 8;
    for (c, acc) in acc.chunks_mut(COLS).enumerate() {
        let mut sums = [[0.0f32; COLS]; LANES];
        let at = c * COLS;
        if acc.len() == COLS {
            for (v, w) in v.chunks(LANES * dv).zip(scores.chunks(LANES)) {
                for (s, w) in w.iter().enumerate() {
                    let v = &v[s * dv + at..s * dv + at + COLS];
                    for i in 0..COLS {
                        sums[s][i] = w.mul_add(v[i], sums[s][i]);
                    }
                }
            }
        } else {
            for (j, (v, w)) in v.chunks_exact(dv).zip(scores.iter()).enumerate() {
                for (sum, v) in sums[j % LANES].iter_mut().zip(&v[at..]) {
                    *sum = w.mul_add(*v, *sum);
                }
            }
        }
        for (i, acc) in acc.iter_mut().enumerate() {
            *acc += sum_lanes(sums.map(|s| s[i]));
        }
    }
    *max = best;
    *sum = total;
}
