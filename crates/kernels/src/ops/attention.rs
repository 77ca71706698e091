//! Causal attention over the cache, in tiles (Dao et al., "FlashAttention", arXiv 2205.14135).
//!
//! A unit of work is one key/value head and a tile of tokens: all query heads that share the head go together. It walks
//! over the keys in blocks, turns each block of K and V to floats once for all its queries, and keeps a running maximum
//! and sum, so that no row of scores as long as the context exists. A single token over few heads leaves threads
//! without work; its keys are then divided among the threads and the parts merged. Where rows hold rotated heads, the
//! tile's queries are rotated once, and the finished output of a head once back.

use super::hadamard::{rotate_heads, unrotate_heads};
use super::kv::{KvRows, load};
use super::math::{LANES, dot, exp, sum_lanes};
use super::split;
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

    /// A block of keys, of values, of scores, and a tile's rows: rotated queries and running sums.
    fn per_thread(dk: usize, dv: usize, group: usize) -> usize {
        BLOCK * (dk + dv) + Self::rows(group) * (BLOCK + dk + dv + 2)
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
                    if a.v.ty.is_rotated() {
                        unrotate_heads(cpu.isa, a.dv, out);
                    }
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
        if a.v.ty.is_rotated() {
            unrotate_heads(cpu.isa, a.dv, out);
        }
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
    let (queries, rest) = rest.split_at_mut(n_rows * dk);
    let (acc, rest) = rest.split_at_mut(n_rows * dv);
    let (max, rest) = rest.split_at_mut(n_rows);
    let sum = &mut rest[..n_rows];
    acc.fill(0.0);
    max.fill(f32::NEG_INFINITY);
    sum.fill(0.0);
    let query = |r: usize| {
        let t = tokens.start + r / group;
        &a.q[(t * a.n_head + head * group + r % group) * dk..][..dk]
    };
    if a.k.ty.is_rotated() {
        for (r, q) in queries.chunks_exact_mut(dk).enumerate() {
            q.copy_from_slice(query(r));
        }
        rotate_heads(isa, dk, queries);
    }
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
            let row = Row {
                q: if a.k.ty.is_rotated() {
                    &queries[r * dk..(r + 1) * dk]
                } else {
                    query(r)
                },
                k: &k_block[from * dk..to * dk],
                v: &v_block[from * dv..to * dv],
                scale: a.scale,
                scores: &mut scores[r * BLOCK..r * BLOCK + to - from],
                acc: &mut acc[r * dv..(r + 1) * dv],
                max: &mut max[r],
                sum: &mut sum[r],
            };
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Isa` is chosen only where the CPU has these features.
                Isa::Avx2 | Isa::Avx512 => unsafe { x86::online_softmax(row) },
                _ => online_softmax(row),
            }
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

/// Adds the part of a block to its row: the reference, whose order of sums every other form keeps to the bit.
fn online_softmax(row: Row<'_>) {
    let dk = row.q.len();
    for (s, k) in row.scores.iter_mut().zip(row.k.chunks_exact(dk)) {
        *s = dot(row.q, k);
    }
    soften(row.scores, row.scale, row.acc, row.max, row.sum);
    // Key j goes into part j mod LANES of each column's sum.
    let dv = row.acc.len();
    for (i, acc) in row.acc.iter_mut().enumerate() {
        let mut sums = [0.0f32; LANES];
        for (j, (v, w)) in row.v.chunks_exact(dv).zip(row.scores.iter()).enumerate() {
            sums[j % LANES] = w.mul_add(v[i], sums[j % LANES]);
        }
        *acc += sum_lanes(sums);
    }
}

/// Products become `e^(scale · product - max)`; what was summed so far is scaled to a new maximum.
#[inline(always)]
fn soften(scores: &mut [f32], scale: f32, acc: &mut [f32], max: &mut f32, sum: &mut f32) {
    let mut best = *max;
    for s in scores.iter_mut() {
        *s *= scale;
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
    *max = best;
    *sum = total;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, Row, dot, soften};

    /// As the reference, to the bit: sixteen lanes are two registers.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub fn online_softmax(row: Row<'_>) {
        let (dk, dv) = (row.q.len(), row.acc.len());
        if !dk.is_multiple_of(LANES) || !dv.is_multiple_of(8) {
            return super::online_softmax(row);
        }
        let n = row.scores.len();
        assert!(row.k.len() >= n * dk && row.v.len() >= n * dv);
        products(row.q, row.k, row.scores);
        soften(row.scores, row.scale, row.acc, row.max, row.sum);
        mix(row.scores, row.v, row.acc);
    }

    /// Four keys at a time: eight sums in flight hide the latency of the additions.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn products(q: &[f32], k: &[f32], scores: &mut [f32]) {
        let dk = q.len();
        let mut fours = scores.chunks_exact_mut(4);
        let mut keys = k.chunks_exact(4 * dk);
        for (scores, k) in fours.by_ref().zip(keys.by_ref()) {
            let mut sums = [[_mm256_setzero_ps(); 2]; 4];
            for c in (0..dk).step_by(LANES) {
                // SAFETY: `c + LANES <= dk`, `q` has `dk` floats and `k` four times as many.
                unsafe {
                    let q = [
                        _mm256_loadu_ps(q.as_ptr().add(c)),
                        _mm256_loadu_ps(q.as_ptr().add(c + 8)),
                    ];
                    for (j, sums) in sums.iter_mut().enumerate() {
                        let k = k.as_ptr().add(j * dk + c);
                        sums[0] = _mm256_fmadd_ps(q[0], _mm256_loadu_ps(k), sums[0]);
                        sums[1] = _mm256_fmadd_ps(q[1], _mm256_loadu_ps(k.add(8)), sums[1]);
                    }
                }
            }
            for (s, sums) in scores.iter_mut().zip(sums) {
                *s = sum(_mm256_add_ps(sums[0], sums[1]));
            }
        }
        let rest = keys.remainder().chunks_exact(dk);
        for (s, k) in fours.into_remainder().iter_mut().zip(rest) {
            *s = dot(q, k);
        }
    }

    /// Halves first, as `sum_lanes`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn sum(v: __m256) -> f32 {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }

    /// Eight columns at a time, a register for each of the sixteen parts of their sums.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn mix(w: &[f32], v: &[f32], acc: &mut [f32]) {
        let dv = acc.len();
        let whole = w.len() / LANES * LANES;
        for c in (0..dv).step_by(8) {
            let mut sums = [_mm256_setzero_ps(); LANES];
            let mut add = |j: usize, part: usize| {
                // SAFETY: `j` is below `w.len()`, and `v` has `dv` floats for each of them; `c + 8 <= dv`.
                unsafe {
                    let v = _mm256_loadu_ps(v.as_ptr().add(j * dv + c));
                    let w = _mm256_broadcast_ss(w.get_unchecked(j));
                    sums[part] = _mm256_fmadd_ps(w, v, sums[part]);
                }
            };
            for j in (0..whole).step_by(LANES) {
                for part in 0..LANES {
                    add(j + part, part);
                }
            }
            for j in whole..w.len() {
                add(j, j - whole);
            }
            for n in [8, 4, 2, 1] {
                for part in 0..n {
                    sums[part] = _mm256_add_ps(sums[part], sums[part + n]);
                }
            }
            // SAFETY: `c + 8` is at most the length of `acc`.
            unsafe {
                let at = acc.as_mut_ptr().add(c);
                _mm256_storeu_ps(at, _mm256_add_ps(_mm256_loadu_ps(at), sums[0]));
            }
        }
    }
}
