//! What happens when a page of a mapped file cannot be read: the process lives on and the mapping is marked as failed.
//!
//! A page past the end of its file, or one whose storage fails, raises SIGBUS when it is touched. The handler, installed
//! with the first mapping, puts zeros from that page to the mapping's end, so that the instruction goes on; the reader
//! asks [`Slot::failed`] afterwards and throws away what it computed. A SIGBUS anywhere else goes to the handler that
//! was there before, or has its default effect.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Mappings that can be guarded at once. Split models have a few dozen parts at most.
const SLOTS: usize = 1024;

struct Entry {
    /// First address; 0 in a free entry.
    start: AtomicUsize,
    /// Bytes; 0 in an entry that is not complete.
    len: AtomicUsize,
    failed: AtomicBool,
}

static TABLE: [Entry; SLOTS] = [const {
    Entry {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    }
}; SLOTS];

/// A guarded range of addresses. It is dropped before the range is unmapped.
pub struct Slot(&'static Entry);

impl Slot {
    /// Guards `len` bytes at `start`, a read-only mapping of a file; `None` when the table is full.
    pub fn register(start: usize, len: usize) -> Option<Slot> {
        #[cfg(unix)]
        handler::install();
        let free = |e: &&Entry| e.start.compare_exchange(0, start, SeqCst, SeqCst).is_ok();
        let entry = TABLE.iter().find(free)?;
        entry.failed.store(false, SeqCst);
        entry.len.store(len, SeqCst);
        Some(Slot(entry))
    }

    /// Whether a page could not be read and zeros lie in its place.
    pub fn failed(&self) -> bool {
        self.0.failed.load(SeqCst)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.len.store(0, SeqCst);
        self.0.start.store(0, SeqCst);
    }
}

#[cfg(unix)]
mod handler {
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Once, OnceLock};

    use super::{Entry, TABLE};
    use crate::memory::map::EXIT_FILE_CHANGED;
    use crate::memory::page_size;

    static INSTALL: Once = Once::new();
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    /// Who took care of SIGBUS before us: the handler of a virtual machine, of a sanitizer.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

    pub fn install() {
        INSTALL.call_once(|| {
            PAGE.store(page_size(), SeqCst);
            // SAFETY: a zeroed sigaction is valid to be written to and to be filled in; `on_sigbus` has the signature
            // that SA_SIGINFO asks for and calls only what is async-signal-safe. What was there before is known before
            // ours can run.
            unsafe {
                let mut before: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) == 0 {
                    let _ = BEFORE.set(before);
                }
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_sigbus as *const () as usize;
                // On the alternative stack where a thread has one: a thread of somebody else's may have little of its own.
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
            }
        });
    }

    extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel passes a valid siginfo to a handler installed with SA_SIGINFO. A positive code means that
        // it is about an address; the others are sent by `kill` and hold a process id there.
        let (is_fault, addr) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
        if is_fault {
            let holds = |e: &&Entry| {
                let (start, len) = (e.start.load(SeqCst), e.len.load(SeqCst));
                start != 0 && addr >= start && addr - start < len
            };
            if let Some(entry) = TABLE.iter().find(holds) {
                return put_zeros(entry, addr);
            }
        }
        pass_on(signal, info, context, is_fault);
    }

    /// Zeros from the page of `addr` to the end of the mapping. Threads that fault at once do the same thing twice.
    fn put_zeros(entry: &Entry, addr: usize) {
        entry.failed.store(true, SeqCst);
        let page = addr & !(PAGE.load(SeqCst) - 1);
        let end = entry.start.load(SeqCst) + entry.len.load(SeqCst);
        // SAFETY: the range lies in a mapping of ours, which is read-only and which stays mapped while somebody reads it,
        // as the faulting instruction does; it reads zeros afterwards, which every reader accepts as it accepts any
        // content of a file. `mmap` is a bare system call.
        let at = unsafe {
            libc::mmap(
                page as *mut c_void,
                end.saturating_sub(page),
                libc::PROT_READ,
                libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANON,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            let line = b"error: a model file shrank or its storage failed while the model was in use, and no zeros can be mapped in its place; check the file and start again\n";
            // SAFETY: pointer and length are of one constant; `write` and `_exit` are async-signal-safe. To return would
            // be to meet the same fault for ever.
            unsafe {
                libc::write(2, line.as_ptr().cast(), line.len());
                libc::_exit(EXIT_FILE_CHANGED);
            }
        }
    }

    /// A signal that is not about a mapping of ours.
    fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
        let before = BEFORE.get();
        match before.map_or(libc::SIG_DFL, |b| b.sa_sigaction) {
            libc::SIG_IGN if !is_fault => return,
            // The kernel does not let a fault be ignored either.
            libc::SIG_DFL | libc::SIG_IGN => {
                // SAFETY: a zeroed sigaction with SIG_DFL is valid.
                unsafe {
                    let mut action: libc::sigaction = std::mem::zeroed();
                    action.sa_sigaction = libc::SIG_DFL;
                    libc::sigaction(signal, &action, std::ptr::null_mut());
                }
            }
            address if before.is_some_and(|b| b.sa_flags & libc::SA_SIGINFO != 0) => {
                // SAFETY: it was installed as a handler of this signature.
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(address) };
                handler(signal, info, context);
            }
            address => {
                // SAFETY: it was installed as a handler of this signature.
                let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(address) };
                handler(signal);
            }
        }
        // A fault is met again on return. A signal that was sent is not, and some handlers, that of Rust's own runtime for
        // one, leave it to the default effect by setting that and returning: it would be lost, and our handler with it.
        if !is_fault {
            // SAFETY: both calls may be made in a handler; a zeroed sigaction is valid to be written to. What is raised
            // arrives when this handler returns.
            unsafe {
                let mut now: libc::sigaction = std::mem::zeroed();
                let known = libc::sigaction(signal, std::ptr::null(), &mut now) == 0;
                if known && now.sa_sigaction == libc::SIG_DFL {
                    libc::raise(signal);
                }
            }
        }
    }
}
