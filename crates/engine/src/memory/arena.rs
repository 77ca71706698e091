//! Regions of anonymous memory: address space from the start, pages only where they are used.

use crate::EngineError;

/// A zeroed region of fixed size. A page costs memory from its first write until [`Region::release`].
pub struct Region {
    map: Option<memmap2::MmapMut>,
}

impl Region {
    /// Reserves `len` bytes of address space; `what` names the section in the error.
    ///
    /// # Errors
    /// The kernel refuses the address space (RLIMIT_AS, overcommit).
    pub fn reserve(what: &'static str, len: usize) -> Result<Region, EngineError> {
        if len == 0 {
            return Ok(Region { map: None });
        }
        let map = memmap2::MmapOptions::new()
            .len(len)
            .no_reserve_swap()
            .map_anon()
            .map_err(|source| EngineError::Reserve {
                what,
                bytes: len,
                source,
            })?;
        // Huge pages would commit 2 MiB for the first row of every layer.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::NoHugePage);
        Ok(Region { map: Some(map) })
    }

    /// The bytes; untouched ones read as zero.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or(&mut [])
    }

    /// The region as floats (a mapping starts on a page, so it is aligned).
    pub fn floats_mut(&mut self) -> &mut [f32] {
        match &mut self.map {
            Some(map) => bytemuck::cast_slice_mut(map),
            None => &mut [],
        }
    }

    /// Gives every page back to the kernel; the region reads as zero again.
    pub fn release(&mut self) {
        if let Some(map) = &mut self.map {
            #[cfg(unix)]
            {
                // SAFETY: the region is private anonymous memory that nobody borrows (`&mut self`); after
                // MADV_DONTNEED it reads as zeros, which is a valid value of every type stored in it.
                let done = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
                if done.is_ok() {
                    return;
                }
            }
            map.fill(0);
        }
    }
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
    fn refused_address_space_is_an_error() {
        let text = Region::reserve("KV cache", usize::MAX / 4)
            .err()
            .expect("must fail")
            .to_string();
        assert!(text.contains("KV cache"), "{text}");
    }
}
