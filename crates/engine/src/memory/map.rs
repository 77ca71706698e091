//! Read-only file mappings that notice when the file changes under them.

use std::fs::{File, Metadata};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use super::page_size;
use super::sigbus::Slot;
use super::smaps::{Area, resident_in};
use crate::EngineError;

/// Exit code of a program that ends because a mapped file changed or its storage failed (`EX_IOERR`).
pub const EXIT_FILE_CHANGED: i32 = 74;

/// The bytes of one file: mapped read-only and shared with the page cache, so that the kernel holds them once; or, after
/// [`Mapping::make_direct`], in memory of this process.
pub struct Mapping {
    // Dropped in this order: the guard goes before the mapping.
    pub(super) watch: Option<Watch>,
    pub(super) map: memmap2::Mmap,
    /// Bytes of the file; a copy is a little longer.
    pub(super) len: usize,
    pub(super) path: PathBuf,
}

/// What tells that a mapped file is no longer the one that was opened.
pub(super) struct Watch {
    pub(super) slot: Slot,
    /// Kept open: a file renamed over the path is another one and changes nothing here.
    pub(super) file: File,
    stamp: Stamp,
    /// Once changed, always: the bytes may come back, what was computed from the others does not.
    failed: AtomicBool,
}

/// Length and time of the last write. A write moves the time; a cut within the last page moves the length, and would
/// otherwise read as zeros without a fault.
#[derive(PartialEq, Eq)]
struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(meta: &Metadata) -> Stamp {
        Stamp {
            len: meta.len(),
            modified: meta.modified().ok(),
        }
    }
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
        // Before it is opened, which for a pipe would wait for a writer.
        if !meta.is_file() {
            return Err(EngineError::NotAFile(path.to_owned()));
        }
        let file = File::open(path).map_err(fail)?;
        let stamp = Stamp::of(&file.metadata().map_err(fail)?);
        if stamp.len == 0 {
            return Err(EngineError::EmptyFile(path.to_owned()));
        }
        // SAFETY: the mapping is read-only and private to this struct. Another process may still change the
        // file: then the bytes change under us, which every reader here tolerates (any byte pattern is a valid
        // weight or was bounds-checked when read), or pages vanish, in whose place `sigbus` puts zeros.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(fail)?;
        let slot = Slot::register(map.as_ptr() as usize, map.len()).ok_or_else(|| {
            fail(std::io::Error::other(
                "too many model files are in use at once; unload some",
            ))
        })?;
        Ok(Mapping {
            watch: Some(Watch {
                slot,
                file,
                stamp,
                failed: AtomicBool::new(false),
            }),
            len: map.len(),
            map,
            path: path.to_owned(),
        })
    }

    /// Whether everything read so far came from the file that was opened. Asked after a computation over the bytes, whose
    /// result is worth nothing otherwise. Costs one system call, allocates nothing.
    ///
    /// # Errors
    /// The file shrank, was written to, or a page of it could not be read. The mapping stays failed from then on.
    pub fn check(&self) -> Result<(), EngineError> {
        let Some(w) = &self.watch else { return Ok(()) };
        let is_same = |meta: Metadata| Stamp::of(&meta) == w.stamp;
        if w.slot.failed() || !w.file.metadata().is_ok_and(is_same) {
            w.failed.store(true, Relaxed);
        }
        if w.failed.load(Relaxed) {
            return Err(EngineError::FileChanged(self.path.clone()));
        }
        Ok(())
    }

    /// The file's bytes. Nothing is read from storage until it is touched.
    pub fn bytes(&self) -> &[u8] {
        &self.map[..self.len]
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the first `n` bytes out of this process's memory, whole pages of them; the page cache may keep them, and they
    /// are read again if touched.
    pub fn release(&self, n: usize) {
        #[cfg(unix)]
        if self.watch.is_some() {
            let n = n.min(self.len) / page_size() * page_size();
            // SAFETY: a read-only shared mapping of a file: dropped pages come back from the file with the same bytes.
            let done = unsafe {
                self.map
                    .unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, 0, n)
            };
            // Locked pages are refused, and stay.
            let _ = done;
        }
    }

    /// Tells the kernel that these bytes are read a little here and there, so that it reads ahead nothing. Whole pages.
    pub fn read_by_row(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        {
            let inner = whole_pages(bytes);
            let _ = self
                .map
                .advise_range(memmap2::Advice::Random, inner.start, inner.len());
        }
    }

    /// Resident bytes of this mapping; for one made by [`Mapping::make_direct`] those of the copy.
    pub fn resident(&self, areas: &[Area]) -> u64 {
        let start = self.map.as_ptr() as usize;
        let end = start + self.map.len().next_multiple_of(page_size());
        resident_in(areas, &(start..end))
    }

    /// Resident bytes of the whole pages of a range after [`Mapping::read_by_row`], which makes it an area of its own.
    pub fn resident_rows(&self, areas: &[Area], bytes: Range<usize>) -> u64 {
        let start = self.map.as_ptr() as usize;
        let inner = whole_pages(bytes);
        resident_in(areas, &(start + inner.start..start + inner.end))
    }

    /// Tells the kernel that these bytes will be read, so that it reads ahead instead of a page at a time.
    pub fn will_need(&self, bytes: Range<usize>) {
        // Advice only: on failure pages are still read when touched.
        #[cfg(unix)]
        {
            let start = bytes.start / page_size() * page_size();
            let len = bytes.end.saturating_sub(start);
            let _ = self.map.advise_range(memmap2::Advice::WillNeed, start, len);
        }
    }
}

/// The whole pages within.
fn whole_pages(bytes: Range<usize>) -> Range<usize> {
    let page = page_size();
    let start = bytes.start.next_multiple_of(page);
    start..(bytes.end / page * page).max(start)
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

    const LEN: usize = 64 * 4096 + 100;

    /// A file of ones with a name of its own.
    fn ones(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ounce-map-{}-{name}", std::process::id()));
        std::fs::write(&path, vec![1; LEN]).unwrap();
        path
    }

    fn cut(path: &Path, len: u64) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(len).unwrap();
    }

    fn changed(m: &Mapping) -> bool {
        match m.check() {
            Ok(()) => false,
            Err(EngineError::FileChanged(p)) => p == m.path(),
            Err(e) => panic!("{e}"),
        }
    }

    #[test]
    #[cfg(unix)]
    fn threads_that_read_past_a_cut_read_zeros_and_live() {
        let path = ones("cut");
        let m = Mapping::open(&path).unwrap();
        assert!(!changed(&m));
        let kept = 16 * 4096;
        cut(&path, kept as u64);
        std::thread::scope(|s| {
            for i in 0..8 {
                let m = &m;
                // From different pages on, backwards, so that zeros are put several times.
                s.spawn(move || {
                    for page in (0..64 - i).rev() {
                        let want = u8::from(page < 16);
                        assert_eq!(m.bytes()[page * 4096 + i], want, "page {page}");
                    }
                });
            }
        });
        assert!(m.watch.as_ref().unwrap().slot.failed() && changed(&m));
        // The bytes coming back makes nothing good; a new mapping is another matter.
        cut(&path, LEN as u64);
        assert!(changed(&m));
        std::fs::write(&path, vec![1; LEN]).unwrap();
        let new = Mapping::open(&path).unwrap();
        assert!(new.bytes().iter().all(|&b| b == 1) && !changed(&new));
        std::fs::remove_file(&path).unwrap();
        assert!(!changed(&new), "an unlinked file is still the file");
    }

    #[test]
    fn changes_without_a_fault_are_noticed() {
        let path = ones("quiet");
        let m = Mapping::open(&path).unwrap();
        // Within the last page: reads as zeros.
        cut(&path, LEN as u64 - 1);
        assert!(changed(&m));
        let m = Mapping::open(&path).unwrap();
        // As long as before, but later. Some file systems keep time in ticks of 10 ms.
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::write(&path, vec![2; LEN - 1]).unwrap();
        assert!(changed(&m));
        let m = Mapping::open(&path).unwrap();
        let other = ones("other");
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(m.bytes()[0], 2);
        assert!(
            !changed(&m),
            "another file under the same name is no change"
        );
        std::fs::remove_file(&path).unwrap();
    }
}
