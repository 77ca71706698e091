//! What the system allows this process: physical memory, limits of the process, limits of its cgroups.

use std::path::{Path, PathBuf};

use super::probe;

/// Physical memory and swap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// Physical memory.
    pub total: u64,
    /// What could be had without swapping, page cache that can be dropped included.
    pub available: u64,
    /// Swap on storage that is free.
    pub swap_free: u64,
    /// Swap that is compressed memory (zram): it costs memory itself.
    pub zram: u64,
    /// What of it is free, and counted in `swap_free`.
    pub zram_free: u64,
}

/// A limit and what it leaves to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Who sets it, as a user knows it: `ulimit -d`, `cgroup memory.max`.
    pub name: String,
    /// The limit itself.
    pub limit: u64,
    /// What this process may hold under it, what it holds now included.
    pub bytes: u64,
}

/// Reads `/proc/meminfo` and `/proc/swaps`; `None` where there is none.
pub fn meminfo() -> Option<MemInfo> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let mut info = parse_meminfo(&text)?;
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    (info.zram, info.zram_free) = parse_zram(&swaps);
    Some(info)
}

fn parse_meminfo(text: &str) -> Option<MemInfo> {
    let of = |key: &str| probe::kib(text, key);
    let total = of("MemTotal:")?;
    Some(MemInfo {
        total,
        // Kernels before 3.14 do not say; free memory and cache is what they used to be asked for.
        available: of("MemAvailable:")
            .or_else(|| Some(of("MemFree:")?.saturating_add(of("Cached:")?)))?
            .min(total),
        swap_free: of("SwapFree:").unwrap_or(0),
        zram: 0,
        zram_free: 0,
    })
}

/// Bytes of swap areas that are zram, and those of them that are free: lines of `path type size used priority`, sizes in KiB.
fn parse_zram(text: &str) -> (u64, u64) {
    let area = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let is_zram = words.next()?.contains("/zram");
        let size: u64 = words.nth(1)?.parse().ok()?;
        let used: u64 = words.next()?.parse().ok()?;
        let bytes = |kib: u64| kib.saturating_mul(1024);
        is_zram.then(|| (bytes(size), bytes(size.saturating_sub(used))))
    };
    let add = |a: (u64, u64), b: (u64, u64)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1));
    text.lines().filter_map(area).fold((0, 0), add)
}

/// `RLIMIT_DATA` and `RLIMIT_AS` where they are set. Both count address space, so what is mapped and not counted as
/// anonymous memory (reserved stacks, for `RLIMIT_AS` file mappings too) is taken off. A file that is yet to be mapped is
/// not known here: map it first.
pub fn process_limits() -> Vec<Limit> {
    let mut found = Vec::new();
    let Some(status) = probe::status() else {
        return found;
    };
    let anon = status.anon;
    for (name, limit, counted) in [
        ("ulimit -d (RLIMIT_DATA)", rlimit_data(), status.data),
        ("ulimit -v (RLIMIT_AS)", rlimit_as(), status.virt),
    ] {
        if let Some(limit) = limit {
            found.push(Limit {
                name: name.to_owned(),
                limit,
                bytes: limit.saturating_sub(counted.saturating_sub(anon)),
            });
        }
    }
    found
}

#[cfg(unix)]
fn limit_of(get: impl FnOnce(&mut libc::rlimit) -> i32) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let done = get(&mut limit) == 0;
    #[allow(clippy::unnecessary_cast)] // 32 bits wide on some targets
    (done && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as u64)
}

/// The soft limit on private writable memory.
pub fn rlimit_data() -> Option<u64> {
    #[cfg(unix)]
    // SAFETY: `getrlimit` writes the struct it is given.
    return limit_of(|l| unsafe { libc::getrlimit(libc::RLIMIT_DATA, l) });
    #[cfg(not(unix))]
    None
}

/// The soft limit on address space.
pub fn rlimit_as() -> Option<u64> {
    #[cfg(unix)]
    // SAFETY: `getrlimit` writes the struct it is given.
    return limit_of(|l| unsafe { libc::getrlimit(libc::RLIMIT_AS, l) });
    #[cfg(not(unix))]
    None
}

/// The soft limit on locked memory.
pub fn rlimit_memlock() -> Option<u64> {
    #[cfg(unix)]
    // SAFETY: `getrlimit` writes the struct it is given.
    return limit_of(|l| unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, l) });
    #[cfg(not(unix))]
    None
}

/// The limit on locked memory that holds for this process: none for one that may lock what it likes (`CAP_IPC_LOCK`).
pub fn lock_limit() -> Option<Limit> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limit = rlimit_memlock().filter(|_| !may_lock_all(&status))?;
    Some(Limit {
        name: "ulimit -l (RLIMIT_MEMLOCK)".to_owned(),
        limit,
        bytes: limit,
    })
}

/// Whether a `/proc/self/status` names `CAP_IPC_LOCK`, bit 14, among the effective capabilities.
fn may_lock_all(status: &str) -> bool {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    set.is_some_and(|set| set >> 14 & 1 == 1)
}

/// Limits of this process's cgroups, its own and those above it, version 2 and 1.
pub fn cgroup_limits() -> Vec<Limit> {
    let Ok(text) = std::fs::read_to_string("/proc/self/cgroup") else {
        return Vec::new();
    };
    let own = probe::status().map_or(0, |s| s.anon);
    let mut found = Vec::new();
    for place in cgroup_places(&text) {
        for folder in place.folders() {
            for file in place.files() {
                let Some(limit) = number(&folder.join(file)) else {
                    continue;
                };
                // Version 1 says "none" with a number near the largest.
                if limit >= 1 << 60 {
                    continue;
                }
                let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
                let held = anon_of(&stat).saturating_sub(own);
                found.push(Limit {
                    name: format!("cgroup {file} of {}", folder.display()),
                    limit,
                    bytes: limit.saturating_sub(held),
                });
            }
        }
    }
    found
}

/// Folders of this process's memory cgroups that can be seen, its own and those above it; `true` for version 2.
pub(super) fn memory_cgroups() -> Vec<(PathBuf, bool)> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let places = cgroup_places(&text);
    let folders = |p: &Place| {
        p.folders()
            .into_iter()
            .map(|f| (f, p.is_v2))
            .collect::<Vec<_>>()
    };
    places.iter().flat_map(folders).collect()
}

/// Where a cgroup hierarchy is mounted, and this process's place in it.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    root: &'static str,
    path: String,
    is_v2: bool,
}

impl Place {
    /// From the process's own folder up to the root; in a container only the root may be visible.
    fn folders(&self) -> Vec<PathBuf> {
        let own = Path::new(self.root).join(self.path.trim_start_matches('/'));
        let root = Path::new(self.root);
        let up = own.ancestors().take_while(|p| p.starts_with(root));
        up.filter(|p| p.is_dir()).map(Path::to_owned).collect()
    }

    fn files(&self) -> &'static [&'static str] {
        match self.is_v2 {
            true => &["memory.max", "memory.high"],
            false => &["memory.limit_in_bytes"],
        }
    }
}

/// Places of a text in the format of `/proc/self/cgroup`: lines of `id:controllers:path`.
fn cgroup_places(text: &str) -> Vec<Place> {
    let place = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if path.split('/').any(|p| p == "..") {
            return None;
        }
        let is_v2 = id == "0" && controllers.is_empty();
        let is_v1 = controllers.split(',').any(|c| c == "memory");
        (is_v2 || is_v1).then(|| Place {
            root: if is_v2 {
                "/sys/fs/cgroup"
            } else {
                "/sys/fs/cgroup/memory"
            },
            path: path.to_owned(),
            is_v2,
        })
    };
    text.lines().filter_map(place).collect()
}

/// Anonymous bytes of a `memory.stat`, version 2 or 1.
fn anon_of(stat: &str) -> u64 {
    let of = |key: &str| {
        let line = stat
            .lines()
            .find(|l| l.split_ascii_whitespace().next() == Some(key))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    of("anon")
        .or_else(|| of("total_rss"))
        .or_else(|| of("rss"))
        .unwrap_or(0)
}

/// The number a file holds; "max" is none.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_kernel_are_read() {
        let text = "MemTotal: 8000 kB\nMemFree: 1000 kB\nMemAvailable: 6000 kB\nSwapFree: 50 kB\n";
        let info = parse_meminfo(text).unwrap();
        assert_eq!(
            (info.total, info.available, info.swap_free),
            (8_192_000, 6_144_000, 51_200)
        );
        let old = parse_meminfo("MemTotal: 80 kB\nMemFree: 10 kB\nCached: 20 kB\n").unwrap();
        assert_eq!(old.available, 30 * 1024);
        assert_eq!(parse_meminfo("nothing"), None);
        assert!(may_lock_all("Name:\tx\nCapEff:\t0000000000004000\n"));
        assert!(!may_lock_all("CapEff:\t000001ffffffbfff\n") && !may_lock_all(""));
        let swaps = "Filename Type Size Used Priority\n/dev/zram0 partition 1024 256 100\n/swapfile file 2048 0 -2\n";
        assert_eq!(parse_zram(swaps), (1 << 20, 768 << 10));
        assert_eq!(anon_of("cache 5\nrss 7\ntotal_rss 9\n"), 9);
        assert_eq!(anon_of("anon 11\nfile 3\n"), 11);
    }

    #[test]
    fn places_in_both_versions_and_none_outside_the_mount() {
        let places = cgroup_places("4:cpu,memory:/a/b\n0::/user.slice\n3:cpuset:/x\n0::/../up\n");
        let named: Vec<_> = places.iter().map(|p| (p.path.as_str(), p.is_v2)).collect();
        assert_eq!(named, [("/a/b", false), ("/user.slice", true)]);
        for p in places {
            assert!(p.folders().iter().all(|f| f.starts_with(p.root)));
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(text in "[ -~\n]{0,200}") {
            parse_meminfo(&text);
            parse_zram(&text);
            cgroup_places(&text);
            anon_of(&text);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_memory() {
        let info = meminfo().unwrap();
        assert!(info.available <= info.total && info.total > 1 << 20);
        cgroup_limits()
            .iter()
            .chain(&process_limits())
            .for_each(|l| assert!(l.bytes <= l.limit && l.limit > 0 && !l.name.is_empty()));
    }
}
