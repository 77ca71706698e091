//! A file copied into memory of our own, past the page cache: its bytes are held once all the same.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::EngineError;

/// Bytes a read; large enough for any device's queue, and a step of the progress.
const STEP: usize = 8 << 20;

/// What unbuffered reads are aligned to: the largest logical block that storage has.
const BLOCK: usize = 4096;

/// Reads the `len` bytes of `file`, which becomes unbuffered where its file system can do that; elsewhere the pages that
/// the reads leave in the cache are given up step by step. `progress` gets the bytes done after each step. The copy is a
/// whole number of pages, zeros after the last byte, and read-only from the moment it is whole.
///
/// # Errors
/// There is no room for the copy, a read failed, or the file ended early.
pub(super) fn copy(
    path: &Path,
    file: &File,
    len: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<memmap2::Mmap, EngineError> {
    let no_room = |source| EngineError::Reserve {
        what: "copy of the weights",
        bytes: len,
        source,
    };
    let mut map = memmap2::MmapOptions::new()
        .len(len.next_multiple_of(BLOCK))
        .no_reserve_swap()
        .map_anon()
        .map_err(no_room)?;
    // All of it is written, so huge pages cost nothing and save page-table look-ups.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    let mut reader = Reader {
        file,
        is_direct: set_direct(file, true),
    };
    fill(&mut map, len, &mut |to, at| reader.read(to, at), progress).map_err(|source| {
        EngineError::Io {
            path: path.to_owned(),
            source,
        }
    })?;
    map.make_read_only().map_err(no_room)
}

struct Reader<'a> {
    file: &'a File,
    is_direct: bool,
}

impl Reader<'_> {
    fn read(&mut self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let result = read_at(self.file, buffer, at);
        match result {
            // Some file systems take the flag and refuse the read, or want a coarser alignment.
            Err(e) if self.is_direct && e.kind() == io::ErrorKind::InvalidInput => {
                self.is_direct = set_direct(self.file, false);
                self.read(buffer, at)
            }
            Ok(n) if !self.is_direct => {
                drop_cache(self.file, at, n as u64);
                Ok(n)
            }
            other => other,
        }
    }
}

/// Fills the first `len` bytes of `buffer` from position 0 on. Each read starts on a block and is whole blocks long, so
/// the last one may ask for more than the file has; `buffer` has room for it.
fn fill(
    buffer: &mut [u8],
    len: usize,
    read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<usize>,
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        // After a read that ended within a block, that block is read again.
        let start = done - done % BLOCK;
        let end = buffer.len().min(start + STEP);
        let n = match read(&mut buffer[start..end], start as u64) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if start + n <= done {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done = len.min(start + n);
        progress(done as u64);
    }
    Ok(())
}

#[cfg(unix)]
pub(super) fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, at)
}

#[cfg(windows)]
pub(super) fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, at)
}

/// Turns unbuffered reading on or off; says whether it is on.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn set_direct(file: &File, on: bool) -> bool {
    use std::os::fd::AsRawFd;
    let fd = file.as_raw_fd();
    // SAFETY: both calls take the descriptor of an open file and plain flags.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        let wanted = if on {
            flags | libc::O_DIRECT
        } else {
            flags & !libc::O_DIRECT
        };
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, wanted) == 0 && on
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn set_direct(_file: &File, _on: bool) -> bool {
    false
}

/// Lets the kernel forget `len` bytes of the file's pages from `at` on (0 is: to the end), those that nobody has mapped.
pub(super) fn drop_cache(file: &File, at: u64, len: u64) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: takes the descriptor of an open file and plain numbers; advice only, so a refusal is nothing.
        unsafe {
            libc::posix_fadvise(
                file.as_raw_fd(),
                at as libc::off_t,
                len as libc::off_t,
                libc::POSIX_FADV_DONTNEED,
            )
        };
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (file, at, len);
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Reads that are cut short anywhere, interrupted or refused for their alignment still give the file's bytes.
        #[test]
        fn short_and_interrupted_reads_lose_nothing(
            len in 1usize..60_000,
            cuts in proptest::collection::vec(0usize..20_000, 1..40),
        ) {
            let file: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            let mut buffer = vec![0xaa; len.next_multiple_of(BLOCK)];
            let mut cuts = cuts.iter().cycle();
            let mut last = 0;
            let mut calls = 0;
            fill(&mut buffer, len, &mut |out, at| {
                assert!(at % BLOCK as u64 == 0 && out.len() % BLOCK == 0);
                calls += 1;
                let cut = *cuts.next().unwrap();
                if cut < 2_000 && calls % 2 == 0 {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let at = at as usize;
                // At least a block and a byte, as storage that makes any way at all.
                let n = out.len().min(len - at).min(BLOCK + 1 + cut);
                out[..n].copy_from_slice(&file[at..at + n]);
                Ok(n)
            }, &mut |done| {
                assert!(done > last);
                last = done;
            }).unwrap();
            assert_eq!(&buffer[..len], &file[..]);
            assert_eq!(last, len as u64);
        }
    }

    #[test]
    fn a_file_that_ends_early_and_a_failed_read_are_errors() {
        let mut buffer = vec![0; 2 * BLOCK];
        let mut none = |_| {};
        let early = fill(
            &mut buffer,
            5000,
            &mut |_, at| Ok((4500 - at) as usize),
            &mut none,
        );
        assert_eq!(early.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let failed = fill(
            &mut buffer,
            5000,
            &mut |_, _| Err(io::Error::other("disk")),
            &mut none,
        );
        assert_eq!(failed.unwrap_err().to_string(), "disk");
    }
}
