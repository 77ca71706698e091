//! Read-only file mappings, and what happens when the file shrinks under one.
//!
//! A page of a mapping that lies past the end of its file raises SIGBUS when touched. A guard, installed with
//! the first mapping, turns that into one line naming the file and exit code [`EXIT_FILE_CHANGED`]; a SIGBUS
//! anywhere else keeps its default effect.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use crate::EngineError;

/// Exit code when a mapped file shrank or its storage failed while it was being read (`EX_IOERR`).
pub const EXIT_FILE_CHANGED: i32 = 74;

/// One file, mapped read-only and shared with the page cache: its bytes are held once, by the kernel.
pub struct Mapping {
    map: memmap2::Mmap,
    path: PathBuf,
    slot: Option<usize>,
}

impl Mapping {
    /// Maps the whole of a regular file.
    ///
    /// # Errors
    /// The file is missing, not a regular file, empty, unreadable, or too large for the address space.
    pub fn open(path: &Path) -> Result<Mapping, EngineError> {
        let fail = |e| EngineError::open(path, e);
        let meta = std::fs::metadata(path).map_err(fail)?;
        if meta.is_dir() {
            return Err(EngineError::IsDirectory(path.to_owned()));
        }
        if !meta.is_file() {
            return Err(EngineError::NotAFile(path.to_owned()));
        }
        if meta.len() == 0 {
            return Err(EngineError::EmptyFile(path.to_owned()));
        }
        let file = File::open(path).map_err(fail)?;
        // SAFETY: the mapping is read-only and private to this struct. Another process may still change the
        // file: then the bytes change under us, which every reader here tolerates (any byte pattern is a valid
        // weight or was bounds-checked when read), or pages vanish, which `guard` turns into a clean exit.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(fail)?;
        let slot = guard::register(map.as_ptr() as usize, map.len(), path);
        Ok(Mapping {
            map,
            path: path.to_owned(),
            slot,
        })
    }

    /// The file's bytes. Nothing is read from storage until it is touched.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells the kernel that the whole file will be read, so that it reads ahead instead of a page at a time.
    pub fn will_need(&self) {
        // Advice only: on failure pages are still read when touched.
        #[cfg(unix)]
        let _ = self.map.advise(memmap2::Advice::WillNeed);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            guard::unregister(slot);
        }
    }
}

/// The SIGBUS handler and its table of mappings.
mod guard {
    use super::*;

    /// Split models have a few dozen parts at most; mappings past the table's end are simply not named.
    const SLOTS: usize = 256;

    struct Slot {
        start: AtomicUsize,
        len: AtomicUsize,
        name: AtomicPtr<u8>,
        name_len: AtomicUsize,
    }

    static TABLE: [Slot; SLOTS] = [const {
        Slot {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            name: AtomicPtr::new(std::ptr::null_mut()),
            name_len: AtomicUsize::new(0),
        }
    }; SLOTS];
    static INSTALL: Once = Once::new();

    pub fn register(start: usize, len: usize, path: &Path) -> Option<usize> {
        INSTALL.call_once(install);
        let slot = TABLE
            .iter()
            .position(|s| s.start.compare_exchange(0, start, SeqCst, SeqCst).is_ok())?;
        // Leaked on purpose: the handler may read the name at any time, even after `unregister`.
        let name: &'static mut str = path.display().to_string().leak();
        TABLE[slot].name.store(name.as_mut_ptr(), SeqCst);
        TABLE[slot].name_len.store(name.len(), SeqCst);
        TABLE[slot].len.store(len, SeqCst);
        Some(slot)
    }

    pub fn unregister(slot: usize) {
        TABLE[slot].len.store(0, SeqCst);
        TABLE[slot].start.store(0, SeqCst);
    }

    #[cfg(not(unix))]
    fn install() {}

    #[cfg(unix)]
    fn install() {
        // SAFETY: a zeroed sigaction is valid; `on_sigbus` has the SA_SIGINFO signature and calls only
        // async-signal-safe functions (write, _exit, sigaction, raise).
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    }

    #[cfg(unix)]
    extern "C" fn on_sigbus(
        _signal: i32,
        info: *mut libc::siginfo_t,
        _context: *mut std::ffi::c_void,
    ) {
        // SAFETY: the kernel passes a valid siginfo for a handler installed with SA_SIGINFO; SIGBUS carries an address.
        let addr = unsafe { (*info).si_addr() } as usize;
        for slot in &TABLE {
            let (start, len) = (slot.start.load(SeqCst), slot.len.load(SeqCst));
            if start != 0 && addr >= start && addr - start < len {
                let (name, name_len) = (slot.name.load(SeqCst), slot.name_len.load(SeqCst));
                // SAFETY: name and name_len describe a leaked, never freed string; write and _exit are
                // async-signal-safe.
                unsafe {
                    say(b"error: ");
                    say(std::slice::from_raw_parts(name, name_len));
                    say(b": the file shrank or its storage failed while the model was in use; check the file and start again\n");
                    libc::_exit(EXIT_FILE_CHANGED);
                }
            }
        }
        // Not ours: back to the default, which the faulting instruction meets again on return.
        // SAFETY: a zeroed sigaction with SIG_DFL is valid.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        }
    }

    /// # Safety
    /// Callable from a signal handler only because `write` is async-signal-safe.
    #[cfg(unix)]
    unsafe fn say(text: &[u8]) {
        // SAFETY: pointer and length come from one live slice.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_path() {
        let dir = std::env::temp_dir();
        assert!(matches!(Mapping::open(&dir), Err(EngineError::IsDirectory(p)) if p == dir));
        let missing = dir.join("ounce-no-such-file.gguf");
        let text = Mapping::open(&missing)
            .err()
            .expect("must fail")
            .to_string();
        assert!(text.contains("ounce-no-such-file.gguf"), "{text}");
    }
}
