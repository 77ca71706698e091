//! What this process really costs, read from the kernel.

/// Resident memory of this process in bytes, split as the kernel accounts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Anonymous pages: heap, stacks, KV cache.
    pub anon: u64,
    /// File pages: mapped weights and the binary; clean, so the kernel can take them back.
    pub file: u64,
    /// Highest total ever reached.
    pub peak: u64,
}

impl Resident {
    /// Both kinds together.
    pub fn total(&self) -> u64 {
        self.anon + self.file
    }
}

/// Reads `/proc/self/status`; `None` where it does not exist.
pub fn resident() -> Option<Resident> {
    let s = status()?;
    Some(Resident {
        anon: s.anon,
        file: s.file,
        peak: s.peak,
    })
}

/// Resident memory, as it can be asked for between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rss {
    /// Anonymous pages.
    pub anon: u64,
    /// File pages.
    pub file: u64,
}

impl Rss {
    /// Reads `/proc/self/statm` without the heap; `None` where it does not exist. The kernel's own count, which may lag by
    /// some pages a thread.
    pub fn now() -> Option<Rss> {
        let mut text = [0u8; 128];
        let n = std::fs::File::open("/proc/self/statm")
            .and_then(|mut f| std::io::Read::read(&mut f, &mut text))
            .ok()?;
        let page = super::page_size() as u64;
        let mut pages = std::str::from_utf8(&text[..n])
            .ok()?
            .split_ascii_whitespace()
            .skip(1)
            .map(|w| w.parse::<u64>().ok());
        let (resident, shared) = (pages.next()??, pages.next()??);
        Some(Rss {
            anon: resident.saturating_sub(shared) * page,
            file: shared * page,
        })
    }
}

/// The memory lines of `/proc/self/status`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Resident anonymous pages.
    pub anon: u64,
    /// Resident file pages.
    pub file: u64,
    /// Highest resident total.
    pub peak: u64,
    /// Private writable address space: what RLIMIT_DATA counts.
    pub data: u64,
    /// Address space: what RLIMIT_AS counts.
    pub virt: u64,
}

/// Reads it; `None` where it does not exist.
pub fn status() -> Option<Status> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(Status {
        anon: kib(&text, "RssAnon:")?,
        file: kib(&text, "RssFile:")?,
        peak: kib(&text, "VmHWM:")?,
        data: kib(&text, "VmData:")?,
        virt: kib(&text, "VmSize:")?,
    })
}

/// The bytes of a line `key N kB`.
pub(super) fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.starts_with(key))?;
    let n: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    n.checked_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn this_process_is_resident() {
        let r = super::resident().unwrap();
        assert!(r.anon > 0 && r.peak >= r.anon);
    }
}
