//! Dividing an op among the threads, when there is enough of it.

use std::ops::Range;

use crate::{Cpu, SharedSlice};

/// Element-operations below which waking the pool costs more than it gains.
const WORTH_THREADS: usize = 24 << 10;

/// Whether so many element-operations are worth waking the pool for.
pub(crate) fn worth_threads(cost: usize) -> bool {
    cost >= WORTH_THREADS
}

/// Calls `f` with ranges that cover `0..n` once, on several threads if `n * cost` operations are worth it.
pub(crate) fn ranges(cpu: &Cpu, n: usize, cost: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
    let threads = cpu.pool.n_threads().min(n);
    if threads <= 1 || !worth_threads(n.saturating_mul(cost)) {
        return f(0..n);
    }
    cpu.pool.run(&|i| {
        let (start, end) = (n * i / threads, n * (i + 1) / threads);
        if i < threads && start < end {
            f(start..end);
        }
    });
}

/// As [`ranges`], over the rows of `y`, each `width` long; `f` gets the first row's index and the rows.
pub(crate) fn rows(
    cpu: &Cpu,
    y: &mut [f32],
    width: usize,
    cost: usize,
    f: &(dyn Fn(usize, &mut [f32]) + Sync),
) {
    let n = y.len() / width;
    let shared = SharedSlice::new(y);
    ranges(cpu, n, cost, &|r| {
        // SAFETY: `ranges` gives every row to one call only.
        let mine = unsafe { shared.slice_mut(r.start * width..r.end * width) };
        f(r.start, mine);
    });
}
