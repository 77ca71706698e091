//! Regions of anonymous memory: address space from the start, pages only where they are used.

use crate::EngineError;

/// A zeroed region of fixed size. A page costs memory from its first write until [`Region::release`]. An inaccessible
/// page lies on either side: a write past the end is a fault and not a neighbour's loss, and the kernel never merges the
/// region with another one, so that `smaps` counts it by itself.
pub struct Region {
    map: Option<memmap2::MmapMut>,
    /// Bytes before and after the usable ones.
    guard: usize,
    len: usize,
}

impl Region {
    /// Reserves `len` bytes of address space; `what` names the section in the error.
    ///
    /// # Errors
    /// The kernel refuses the address space (RLIMIT_AS, RLIMIT_DATA, overcommit).
    pub fn reserve(what: &'static str, len: usize) -> Result<Region, EngineError> {
        if len == 0 {
            return Ok(Region {
                map: None,
                guard: 0,
                len,
            });
        }
        let fail = |source| EngineError::Reserve {
            what,
            bytes: len,
            source,
        };
        let guard = if cfg!(unix) { page_size() } else { 0 };
        let whole = len
            .checked_next_multiple_of(page_size())
            .and_then(|n| n.checked_add(2 * guard))
            .ok_or_else(|| fail(std::io::ErrorKind::OutOfMemory.into()))?;
        let map = memmap2::MmapOptions::new()
            .len(whole)
            .no_reserve_swap()
            .map_anon()
            .map_err(fail)?;
        // Huge pages would commit 2 MiB for the first row of every layer.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::NoHugePage);
        let region = Region {
            map: Some(map),
            guard,
            len,
        };
        #[cfg(unix)]
        region.protect_guards().map_err(fail)?;
        Ok(region)
    }

    #[cfg(unix)]
    fn protect_guards(&self) -> std::io::Result<()> {
        let Some(map) = &self.map else { return Ok(()) };
        for start in [0, map.len() - self.guard] {
            // SAFETY: whole pages inside this mapping, which `bytes` and `bytes_mut` never hand out.
            let done = unsafe {
                let at = map.as_ptr().add(start).cast_mut();
                libc::mprotect(at.cast(), self.guard, libc::PROT_NONE)
            };
            if done != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// The bytes; untouched ones read as zero.
    pub fn bytes(&self) -> &[u8] {
        let usable = self.guard..self.guard + self.len;
        self.map.as_deref().map_or(&[], |map| &map[usable])
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let usable = self.guard..self.guard + self.len;
        self.map
            .as_deref_mut()
            .map_or(&mut [], |map| &mut map[usable])
    }

    /// The region as floats (it starts on a page, so it is aligned).
    pub fn floats_mut(&mut self) -> &mut [f32] {
        match self.len {
            // An empty slice of bytes is not aligned for floats.
            0 => &mut [],
            _ => bytemuck::cast_slice_mut(self.bytes_mut()),
        }
    }

    /// Addresses of the region, whole pages.
    pub fn range(&self) -> std::ops::Range<usize> {
        let start = self.bytes().as_ptr() as usize;
        match self.len {
            0 => 0..0,
            len => start..start + len.next_multiple_of(page_size()),
        }
    }

    /// Gives back the pages that lie wholly within these bytes; they read as zero again. The others keep what they hold.
    pub fn release_within(&mut self, bytes: std::ops::Range<usize>) {
        let page = page_size();
        let start = bytes.start.next_multiple_of(page);
        let end = bytes.end.min(self.len) / page * page;
        if start >= end {
            return;
        }
        #[cfg(unix)]
        if let Some(map) = &mut self.map {
            // SAFETY: as in `release`; the range lies within the usable pages.
            let done = unsafe {
                map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    self.guard + start,
                    end - start,
                )
            };
            if done.is_ok() {
                return;
            }
        }
        self.bytes_mut()[start..end].fill(0);
    }

    /// Gives every page back to the kernel; the region reads as zero again.
    pub fn release(&mut self) {
        if let Some(map) = &mut self.map {
            #[cfg(unix)]
            {
                let len = map.len() - 2 * self.guard;
                // SAFETY: the range is private anonymous memory that nobody borrows (`&mut self`); after
                // MADV_DONTNEED it reads as zeros, which is a valid value of every type stored in it.
                let done = unsafe {
                    map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.guard, len)
                };
                if done.is_ok() {
                    return;
                }
            }
            self.bytes_mut().fill(0);
        }
    }
}

/// Bytes of a page.
pub fn page_size() -> usize {
    #[cfg(unix)]
    // SAFETY: `sysconf` only reads.
    let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    #[cfg(not(unix))]
    let n = 4096;
    usize::try_from(n).unwrap_or(4096).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_zeroes() {
        let mut r = Region::reserve("test", 1 << 20).unwrap();
        r.bytes_mut()[12345] = 7;
        r.release();
        assert_eq!(r.bytes()[12345], 0);
        assert!(Region::reserve("none", 0).unwrap().bytes().is_empty());
    }

    #[test]
    fn whole_pages_within_are_released() {
        let page = page_size();
        let mut r = Region::reserve("test", 8 * page + 100).unwrap();
        r.bytes_mut().fill(7);
        let kept = |r: &Region, at: usize| r.bytes()[at] == 7;
        r.release_within(page + 1..5 * page - 1);
        assert!(kept(&r, 2 * page - 1) && !kept(&r, 2 * page));
        assert!(!kept(&r, 4 * page - 1) && kept(&r, 4 * page));
        r.release_within(7 * page..usize::MAX);
        assert!(kept(&r, 7 * page - 1) && !kept(&r, 7 * page) && kept(&r, 8 * page));
        r.release_within(6 * page..6 * page + 9);
        assert!(kept(&r, 6 * page));
        Region::reserve("none", 0).unwrap().release_within(0..10);
    }

    #[test]
    fn refused_address_space_is_an_error() {
        let text = Region::reserve("KV cache", usize::MAX / 4)
            .err()
            .expect("must fail")
            .to_string();
        assert!(text.contains("KV cache"), "{text}");
    }
}
