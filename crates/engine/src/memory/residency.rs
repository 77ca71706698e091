//! Ways of holding a file other than page by page as it is touched: locked, read ahead, or copied.

use std::io;

use super::map::Mapping;
use super::page_size;
use super::{caps, direct};
use crate::EngineError;

/// How the weights of a model are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residency {
    /// In the page cache, through the mapping; the kernel may take pages back and read them again.
    #[default]
    Mapped,
    /// The same, and no page leaves memory (`--mlock`).
    Locked,
    /// In memory of this process, copied past the page cache (`--direct`).
    Direct,
}

impl Residency {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Residency::Mapped => "mapped",
            Residency::Locked => "locked",
            Residency::Direct => "direct",
        }
    }
}

/// Bytes a step of [`Mapping::prefetch`]: often enough for a progress bar, far apart enough to be read in one go.
const STEP: usize = 8 << 20;

impl Mapping {
    /// Keeps every page in memory until the mapping is dropped, reading what is not there yet.
    ///
    /// # Errors
    /// The limit on locked memory is smaller, there is too little memory, or the file has changed.
    pub fn lock(&self) -> Result<(), EngineError> {
        let bytes = self.bytes();
        let done = lock(bytes);
        self.check()?;
        done.map_err(|source| EngineError::Lock {
            path: self.path().to_owned(),
            bytes: bytes.len() as u64,
            limit: caps::rlimit_memlock(),
            source,
        })
    }

    /// Reads the whole file into the page cache and maps every page, in steps of some megabytes; `progress` gets the
    /// bytes done and those of the file after each.
    ///
    /// # Errors
    /// The file has changed or a page of it cannot be read.
    pub fn prefetch(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<(), EngineError> {
        let total = self.len;
        for start in (0..total).step_by(STEP) {
            let end = total.min(start + STEP);
            // The step after this one is on its way while this one is waited for. Advice only: what is not read now is
            // read when touched.
            #[cfg(unix)]
            let _ = self
                .map
                .advise_range(memmap2::Advice::WillNeed, end, STEP.min(total - end));
            self.populate(start, end);
            self.check()?;
            progress(end as u64, total as u64);
        }
        Ok(())
    }

    /// Has pages `start..end` in memory; one that cannot be had is noticed by [`Mapping::check`].
    fn populate(&self, start: usize, end: usize) {
        #[cfg(target_os = "linux")]
        {
            let advice = memmap2::Advice::PopulateRead;
            let mut done = self.map.advise_range(advice, start, end - start);
            while done
                .as_ref()
                .is_err_and(|e| e.kind() == io::ErrorKind::Interrupted)
            {
                done = self.map.advise_range(advice, start, end - start);
            }
            if done.is_ok() {
                return;
            }
        }
        // Kernels before 5.14 do not know the advice. Others refuse it where a page cannot be had: touched, it raises
        // the signal that marks the mapping.
        for at in (start..end).step_by(page_size()) {
            std::hint::black_box(self.map[at]);
        }
    }

    /// Copies the file into anonymous memory, past the page cache, and unmaps it: its bytes are held once, at the same
    /// offsets, cannot be changed by anybody, and leave no page in the cache. `progress` as in [`Mapping::prefetch`].
    ///
    /// # Errors
    /// There is no room for the copy, a read failed, or the file has changed. The mapping is then as it was.
    pub fn make_direct(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<(), EngineError> {
        let Some(watch) = &self.watch else {
            return Ok(());
        };
        let len = self.len;
        let copy = direct::copy(&self.path, &watch.file, len, &mut |done| {
            progress(done, len as u64);
        });
        // Before the error of a read, for a file that has become shorter is the reason of it.
        self.check()?;
        let copy = copy?;
        let watch = self.watch.take();
        // Unmapped here; the guard is dropped with the watch, before.
        let file = watch.map(|w| w.file);
        self.map = copy;
        if let Some(file) = file {
            // What the reading of the header left there.
            direct::drop_cache(&file, 0, 0);
        }
        Ok(())
    }

    /// Whether the bytes are a copy in memory of our own rather than the file's pages.
    pub fn is_copied(&self) -> bool {
        self.watch.is_none()
    }
}

#[cfg(unix)]
fn lock(bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the range is one live mapping; locking changes nothing that can be read.
    match unsafe { libc::mlock(bytes.as_ptr().cast(), bytes.len()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(unix))]
fn lock(_bytes: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::memory::smaps;

    /// Some steps, and an end within a block.
    const LEN: usize = 2 * STEP + 3 * 4096 + 1234;

    fn content(i: usize) -> u8 {
        (i % 251) as u8 ^ (i >> 16) as u8
    }

    /// A file beside the test binary, on storage, of whose pages none is in the cache.
    fn file_in(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(format!("residency-{}-{name}", std::process::id()));
        std::fs::write(&path, (0..LEN).map(content).collect::<Vec<u8>>()).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        // Only pages that are written out can be dropped.
        file.sync_all().unwrap();
        direct::drop_cache(&file, 0, 0);
        path
    }

    fn file(name: &str) -> PathBuf {
        file_in(std::env::current_exe().unwrap().parent().unwrap(), name)
    }

    /// Pages of the mapping's file that are in the page cache.
    fn cached(m: &Mapping) -> usize {
        let mut pages = vec![0u8; m.map.len().div_ceil(page_size())];
        // SAFETY: the range is one live mapping, and there is a byte for each of its pages.
        let done = unsafe {
            libc::mincore(
                m.map.as_ptr().cast_mut().cast(),
                m.map.len(),
                pages.as_mut_ptr(),
            )
        };
        assert_eq!(done, 0);
        pages.iter().filter(|&&p| p & 1 == 1).count()
    }

    fn area(m: &Mapping) -> smaps::Area {
        let at = m.bytes().as_ptr() as usize;
        let areas = smaps::areas().unwrap();
        areas.into_iter().find(|a| a.range.contains(&at)).unwrap()
    }

    /// Checks that the steps go forward to the end.
    fn steps(seen: &mut Vec<u64>) -> impl FnMut(u64, u64) + '_ {
        |done, total| {
            assert_eq!(total, LEN as u64);
            assert!(seen.last().is_none_or(|&before| done > before));
            seen.push(done);
        }
    }

    #[test]
    fn prefetch_brings_every_page() {
        let path = file("prefetch");
        let m = Mapping::open(&path).unwrap();
        assert_eq!((area(&m).rss, cached(&m)), (0, 0));
        let mut seen = Vec::new();
        m.prefetch(&mut steps(&mut seen)).unwrap();
        assert_eq!((seen.len(), seen.last()), (3, Some(&(LEN as u64))));
        assert_eq!(cached(&m), LEN.div_ceil(page_size()));
        assert!(area(&m).rss >= LEN as u64);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(STEP as u64)
            .unwrap();
        let e = m.prefetch(&mut |_, _| {}).unwrap_err();
        assert!(matches!(e, EngineError::FileChanged(p) if p == path));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_page_that_cannot_be_populated_marks_the_mapping() {
        let path = file("populate");
        let m = Mapping::open(&path).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(4096)
            .unwrap();
        m.populate(0, LEN);
        assert!(m.watch.as_ref().unwrap().slot.failed());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn lock_holds_the_pages_or_names_the_limit() {
        let path = file("lock");
        let m = Mapping::open(&path).unwrap();
        let locked = || {
            let text = std::fs::read_to_string("/proc/self/status").unwrap();
            crate::memory::probe::kib(&text, "VmLck:").unwrap()
        };
        match m.lock() {
            Ok(()) => {
                assert!(locked() >= LEN as u64 && area(&m).rss >= LEN as u64);
                drop(m);
                assert!(locked() < LEN as u64);
            }
            Err(e) => {
                let (text, limit) = (e.to_string(), caps::rlimit_memlock().unwrap());
                assert!(limit < LEN as u64);
                for word in [
                    &LEN.to_string(),
                    &limit.to_string(),
                    "RLIMIT_MEMLOCK",
                    "ulimit -l",
                ] {
                    assert!(text.contains(word), "{text}");
                }
            }
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_direct_copy_is_the_file_and_leaves_the_cache_clean() {
        let path = file("direct");
        let mut m = Mapping::open(&path).unwrap();
        // As the header's reading does.
        assert_eq!(m.bytes()[5], content(5));
        assert!(cached(&m) > 0 && area(&m).name.ends_with("direct"));
        let mut seen = Vec::new();
        m.make_direct(&mut steps(&mut seen)).unwrap();
        assert_eq!(seen.last(), Some(&(LEN as u64)));
        assert!(m.is_copied() && m.bytes().len() == LEN);
        assert!(m.bytes().iter().enumerate().all(|(i, &b)| b == content(i)));
        let areas = smaps::areas().unwrap();
        assert!(
            !areas.iter().any(|a| a.name.ends_with("-direct")),
            "still mapped"
        );
        let at = m.bytes().as_ptr() as usize;
        let range = at..at + m.map.len();
        let mine = areas
            .iter()
            .filter(|a| a.range.start < range.end && range.start < a.range.end);
        assert!(mine.map(|a| a.anonymous).sum::<u64>() >= LEN as u64);
        assert_eq!(cached(&Mapping::open(&path).unwrap()), 0);
        // The file may go; the copy stays.
        std::fs::write(&path, b"other").unwrap();
        m.check().unwrap();
        m.prefetch(&mut |_, _| {}).unwrap();
        assert_eq!(m.bytes()[LEN - 1], content(LEN - 1));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_changed_is_not_copied() {
        let path = file("cut");
        let mut m = Mapping::open(&path).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(LEN as u64 - 1)
            .unwrap();
        let e = m.make_direct(&mut |_, _| {}).unwrap_err();
        assert!(matches!(e, EngineError::FileChanged(p) if p == path));
        assert!(!m.is_copied());
        std::fs::remove_file(path).unwrap();
    }

    /// Where unbuffered reads are refused, or are not what they are elsewhere.
    #[test]
    fn memory_file_systems_are_read_too() {
        let folder = Path::new("/dev/shm");
        if !folder.is_dir() {
            return;
        }
        let path = file_in(folder, "shm");
        let mut m = Mapping::open(&path).unwrap();
        m.make_direct(&mut |_, _| {}).unwrap();
        assert!(m.bytes().iter().enumerate().all(|(i, &b)| b == content(i)));
        std::fs::remove_file(path).unwrap();
    }
}
