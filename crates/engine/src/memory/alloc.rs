//! The counting allocator: what lies on the heap, and one line instead of an abort when there is no more.
//!
//! A program installs it with `#[global_allocator]`; a library that lives in somebody else's program does without, and
//! its figures of heap sections are then absent, never guessed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Exit code when the heap cannot grow (`EX_OSERR`).
pub const EXIT_NO_MEMORY: i32 = 71;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
pub struct CountingAlloc;

/// Figures of the heap since the program began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Bytes asked for and not yet given back.
    pub live: usize,
    /// The most that `live` ever was.
    pub peak: usize,
    /// Calls that asked for memory.
    pub allocations: usize,
}

/// The figures, or `None` when the program does not use [`CountingAlloc`].
pub fn heap() -> Option<Heap> {
    let allocations = COUNT.load(Relaxed);
    (allocations != 0).then(|| Heap {
        live: LIVE.load(Relaxed),
        peak: PEAK.load(Relaxed),
        allocations,
    })
}

/// Runs `f`; also returns by how many bytes the heap grew, where that is counted. Right only while no other thread
/// allocates, as at load.
pub fn grown_by<T>(f: impl FnOnce() -> T) -> (T, Option<usize>) {
    let before = heap();
    let out = f();
    let grown = before
        .zip(heap())
        .map(|(a, b)| b.live.saturating_sub(a.live));
    (out, grown)
}

fn grew(bytes: usize) {
    COUNT.fetch_add(1, Relaxed);
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
}

/// A null pointer would end in an abort with a core dump; the user gets a line and a code instead. Nothing that Ounce
/// does asks for memory in order to see whether there is some.
#[cold]
fn refused(bytes: usize) -> ! {
    use std::io::Write;
    let mut line = [0u8; 160];
    let room = line.len();
    let mut rest = &mut line[..];
    // Written without the heap, which is what is gone.
    let _ = writeln!(
        rest,
        "error: out of memory: {bytes} more bytes were refused (ulimit -d, ulimit -v or the machine); lower -c, or see: ounce plan"
    );
    let used = room - rest.len();
    let _ = std::io::stderr().write_all(&line[..used]);
    #[cfg(unix)]
    // SAFETY: `_exit` never returns and runs no code of ours.
    unsafe {
        libc::_exit(EXIT_NO_MEMORY)
    }
    #[cfg(not(unix))]
    std::process::abort()
}

// SAFETY: every call goes to the system's allocator unchanged; the counters are atomics and allocate nothing. A refusal
// ends the process, so that no null pointer is returned.
unsafe impl GlobalAlloc for CountingAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        let p = unsafe { System.alloc(layout) };
        if p.is_null() {
            refused(layout.size());
        }
        grew(layout.size());
        p
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        let p = unsafe { System.alloc_zeroed(layout) };
        if p.is_null() {
            refused(layout.size());
        }
        grew(layout.size());
        p
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        let p = unsafe { System.realloc(p, layout, new_size) };
        if p.is_null() {
            refused(new_size);
        }
        LIVE.fetch_sub(layout.size(), Relaxed);
        grew(new_size);
        p
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(p, layout) }
    }
}

/// Gives what load left behind in the allocator's free lists back to the system, and keeps large buffers out of them
/// from now on. Does nothing where the C library has no such calls.
pub fn settle() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        static TUNED: std::sync::Once = std::sync::Once::new();
        // SAFETY: mallopt(3) is unsafe beside another mallopt, which `Once` excludes, and beside the first allocation, which
        // the runtime made before `main`. The threshold is one word that glibc reads and writes whole.
        TUNED.call_once(|| unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        });
        // SAFETY: thread-safe, and touches no memory that is in use.
        unsafe { libc::malloc_trim(0) };
    }
}
