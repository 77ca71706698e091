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

/// Reads `/proc/self/status`; `None` where it does not exist.
pub fn resident() -> Option<Resident> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = |key: &str| {
        let line = text.lines().find(|l| l.starts_with(key))?;
        line.split_ascii_whitespace()
            .nth(1)?
            .parse::<u64>()
            .ok()
            .map(|k| k * 1024)
    };
    Some(Resident {
        anon: kib("RssAnon:")?,
        file: kib("RssFile:")?,
        peak: kib("VmHWM:")?,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn this_process_is_resident() {
        let r = super::resident().unwrap();
        assert!(r.anon > 0 && r.peak >= r.anon);
    }
}
