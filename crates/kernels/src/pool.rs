//! Threads: spin for a moment, then park.
//!
//! A decode step is hundreds of short parallel sections; waking a parked thread for each would cost more than the work.
//! Between sections of one step the workers spin, after a step they park and cost nothing.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread spins before it parks.
const SPIN: Duration = Duration::from_micros(60);

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Counts the sections; a change is the call to work.
    epoch: AtomicUsize,
    /// Workers that have not finished the current section.
    busy: AtomicUsize,
    /// The current section. Written by `run` alone, while no worker is busy.
    job: UnsafeCell<Option<Job>>,
    panicked: AtomicBool,
    stop: AtomicBool,
    /// With fewer CPUs than threads, spinning takes the CPU from the one that is waited for.
    spins: bool,
}

// SAFETY: `job` is written only in `Pool::run` while `busy` is 0, and read by workers only after they saw the epoch that
// was stored after it and before they count themselves out of `busy`; what it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in `job` is never used after `run` returns.
unsafe impl Send for Shared {}

struct Worker {
    thread: Thread,
    handle: JoinHandle<()>,
    parked: Arc<AtomicBool>,
}

/// Worker threads; the caller of [`Pool::run`] is thread 0.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// One section at a time; a second caller waits.
    turn: Mutex<()>,
}

impl Pool {
    /// Starts `n_threads - 1` workers (none for 0 or 1).
    pub fn new(n_threads: usize) -> Pool {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            spins: n_threads <= cpus,
        });
        let mut workers = Vec::new();
        for i in 1..n_threads.max(1) {
            let parked = Arc::new(AtomicBool::new(false));
            let (their_shared, their_parked) = (Arc::clone(&shared), Arc::clone(&parked));
            let started = std::thread::Builder::new()
                .name(format!("ounce-{i}"))
                .stack_size(256 << 10)
                .spawn(move || work(i, &their_shared, &their_parked));
            // A system that refuses more threads leaves us with those it gave.
            let Ok(handle) = started else { break };
            workers.push(Worker {
                thread: handle.thread().clone(),
                handle,
                parked,
            });
        }
        Pool {
            shared,
            workers,
            turn: Mutex::new(()),
        }
    }

    /// Threads that take part, the caller included.
    pub fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f(i)` once for each `i` in `0..n_threads`, on as many threads, and returns when all are done.
    /// Must not be called from within `f`.
    ///
    /// # Panics
    /// When `f` panics on any thread; all have left it by then.
    pub fn run(&self, f: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return f(0);
        }
        let turn = self.turn.lock().unwrap_or_else(|e| e.into_inner());
        let s = &*self.shared;
        // SAFETY: the lifetime is erased, not extended: every worker has left `f` (`busy` is 0) before this function
        // returns or unwinds, and none reads `job` before the next epoch.
        let job: Job = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(f) };
        // SAFETY: no worker is busy, so none reads the cell; `turn` keeps other callers out.
        unsafe { *s.job.get() = Some(job) };
        s.busy.store(self.workers.len(), Ordering::Relaxed);
        // SeqCst pairs with the worker's: either it sees the new epoch, or we see it parked.
        s.epoch.fetch_add(1, Ordering::SeqCst);
        for w in &self.workers {
            if w.parked.load(Ordering::SeqCst) {
                w.thread.unpark();
            }
        }
        let mine = catch_unwind(AssertUnwindSafe(|| f(0)));
        let start = Instant::now();
        let mut spun = 0u32;
        while s.busy.load(Ordering::Acquire) != 0 {
            spun += 1;
            if !s.spins || (spun.is_multiple_of(256) && start.elapsed() > SPIN) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        // SAFETY: as for the write above.
        unsafe { *s.job.get() = None };
        let theirs = s.panicked.swap(false, Ordering::Relaxed);
        drop(turn);
        if let Err(payload) = mine {
            resume_unwind(payload);
        }
        assert!(!theirs, "a worker thread panicked; its message is above");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for w in self.workers.drain(..) {
            w.thread.unpark();
            let _: Result<(), Box<dyn Any + Send>> = w.handle.join();
        }
    }
}

fn work(i: usize, s: &Shared, parked: &AtomicBool) {
    let mut seen = 0;
    loop {
        seen = wait(s, parked, seen);
        if s.stop.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: the epoch just seen was stored after the cell; `run` waits for `busy` before it touches it again.
        let job = unsafe { *s.job.get() };
        if let Some(job) = job {
            // SAFETY: the closure lives until `run` has seen `busy` at 0, which is after this call.
            let called = catch_unwind(AssertUnwindSafe(|| unsafe { (*job)(i) }));
            if called.is_err() {
                s.panicked.store(true, Ordering::Relaxed);
            }
        }
        s.busy.fetch_sub(1, Ordering::Release);
    }
}

/// Returns the epoch that follows `seen`.
fn wait(s: &Shared, parked: &AtomicBool, seen: usize) -> usize {
    if s.spins
        && let Some(epoch) = spin(s, seen)
    {
        return epoch;
    }
    parked.store(true, Ordering::SeqCst);
    loop {
        let epoch = s.epoch.load(Ordering::SeqCst);
        if epoch != seen {
            parked.store(false, Ordering::SeqCst);
            return epoch;
        }
        std::thread::park();
    }
}

/// As [`wait`], for a moment only.
fn spin(s: &Shared, seen: usize) -> Option<usize> {
    let start = Instant::now();
    let mut spun = 0u32;
    loop {
        let epoch = s.epoch.load(Ordering::Acquire);
        if epoch != seen {
            return Some(epoch);
        }
        std::hint::spin_loop();
        spun += 1;
        if spun.is_multiple_of(256) && start.elapsed() > SPIN {
            return None;
        }
    }
}

/// Threads by default: the physical cores this process may use. Affinity and cgroup CPU quota are honoured by
/// [`std::thread::available_parallelism`]; hyper-threads of one core share its execution units and gain nothing here.
pub fn default_threads() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    allowed.min(physical_cores().unwrap_or(allowed)).max(1)
}

/// Cores among the CPUs that the affinity mask allows; `None` where the system does not say.
fn physical_cores() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    let mut cores: Vec<String> = Vec::new();
    for cpu in parse_cpu_list(allowed.trim())? {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = std::fs::read_to_string(path).ok()?;
        if !cores.contains(&siblings) {
            cores.push(siblings);
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}

/// "0-2,5" is 0, 1, 2, 5.
fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // More CPUs than Linux can have is a misreading.
        if last < first || last > 65_536 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_takes_part_every_time() {
        for n in [1, 2, 3, 5] {
            let pool = Pool::new(n);
            assert_eq!(pool.n_threads(), n);
            for round in 0..2000 {
                let calls: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                pool.run(&|i| {
                    calls[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    calls.iter().all(|c| c.load(Ordering::Relaxed) == 1),
                    "{n} threads, round {round}"
                );
            }
        }
    }

    #[test]
    fn parked_threads_wake() {
        let pool = Pool::new(3);
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(5));
            let sum = AtomicUsize::new(0);
            pool.run(&|i| {
                sum.fetch_add(i + 1, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 6);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3);
        for bad in 0..3 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|i| assert!(i != bad, "on purpose"))
            }));
            assert!(result.is_err());
            let calls = AtomicUsize::new(0);
            pool.run(&|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(calls.load(Ordering::Relaxed), 3);
        }
    }

    #[test]
    fn callers_take_turns() {
        let pool = Pool::new(2);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..200 {
                        pool.run(&|_| {
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpu_list("3"), Some(vec![3]));
        assert_eq!(parse_cpu_list("2-1"), None);
        assert_eq!(parse_cpu_list(""), None);
        assert!(default_threads() >= 1);
    }
}
