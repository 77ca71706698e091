//! How fast storage gives a file's bytes, measured past the page cache.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use super::direct::{read_at, set_direct};

/// Bytes of a read: as much as a long readahead brings.
const STEP: usize = 1 << 20;
/// Reads at most.
const MOST: u64 = 16;
/// Time after which none is begun.
const TIME: Duration = Duration::from_millis(30);

/// Bytes per second of up to 16 reads of a megabyte, spread over the file, in about 30 ms. They leave no page in the cache
/// and disturb none. `None` for a file of less than a megabyte, and where the file system does not read past the cache:
/// then it would be memory that is measured.
pub fn read_rate(path: &Path) -> Option<f64> {
    let file = File::open(path).ok()?;
    let steps = file.metadata().ok()?.len() / STEP as u64;
    if steps == 0 || !set_direct(&file, true) {
        return None;
    }
    // Its pages are aligned as unbuffered reads want it.
    let mut buffer = memmap2::MmapMut::map_anon(STEP).ok()?;
    let n = steps.min(MOST);
    // The first read also wakes the device up.
    read_at(&file, &mut buffer, 0).ok()?;
    let start = Instant::now();
    let mut bytes = 0;
    for i in 0..n {
        bytes += read_at(&file, &mut buffer, i * steps / n * STEP as u64).ok()?;
        if start.elapsed() > TIME {
            break;
        }
    }
    Some(bytes as f64 / start.elapsed().as_secs_f64().max(1e-9))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::memory::Mapping;
    use crate::memory::direct::drop_cache;

    /// Pages of the mapped file that are in the page cache.
    fn cached(m: &Mapping) -> usize {
        let bytes = m.bytes();
        let mut pages = vec![0u8; bytes.len().div_ceil(super::super::page_size())];
        // SAFETY: the mapping is live, and the vector holds a byte for each of its pages.
        let done = unsafe {
            libc::mincore(
                bytes.as_ptr().cast_mut().cast(),
                bytes.len(),
                pages.as_mut_ptr().cast(),
            )
        };
        assert_eq!(done, 0);
        pages.iter().filter(|&&p| p & 1 == 1).count()
    }

    #[test]
    fn a_rate_is_measured_and_leaves_no_page() {
        // Beside the test itself: the folder for temporary files is often memory.
        let test = std::env::current_exe().unwrap();
        let path = test.with_file_name(format!("rate-{}", std::process::id()));
        std::fs::write(&path, vec![7u8; 8 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        drop_cache(&file, 0, 0);
        let mapping = Mapping::open(&path).unwrap();
        let before = cached(&mapping);
        match read_rate(&path) {
            Some(rate) => assert!(rate > 1e5, "{rate}"),
            None => eprintln!("not run: this file system does not read past the cache"),
        }
        assert_eq!(cached(&mapping), before);
        std::fs::write(&path, [0; 100]).unwrap();
        assert_eq!(read_rate(&path), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read_rate(&path), None);
    }
}
