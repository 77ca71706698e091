//! The device a plan is made for: this one, or one that is not here.

use crate::memory::caps::{self, Limit};
use crate::memory::probe;

/// A pool of memory and what bounds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Bytes this process may hold.
    pub bytes: u64,
    /// The tightest limit, as a user knows it.
    pub limit: String,
}

impl Pool {
    /// [`Pool::bytes`] of a pool of which no limit is known.
    const UNKNOWN: u64 = u64::MAX;

    /// The bytes, if a limit is known.
    pub fn known(&self) -> Option<u64> {
        (self.bytes != Pool::UNKNOWN).then_some(self.bytes)
    }
}

/// What a plan is held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// "this machine", or the profile's name.
    pub name: String,
    /// Physical memory.
    pub total: u64,
    /// What the process may commit: heap, cache, scratch.
    pub heap: Pool,
    /// What may be resident at once, mapped weights included; CPU and GPU share it where memory is unified.
    pub memory: Pool,
    /// What may be locked.
    pub lock: Pool,
    /// Free swap on storage; never counted as memory.
    pub swap_free: u64,
    /// Compressed swap; never counted as memory.
    pub zram: u64,
    /// Threads of a profile; `None` asks this machine.
    pub n_threads: Option<usize>,
}

/// A profile that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{name}\" is not a profile; the profiles are {known}")]
pub struct ProfileError {
    name: String,
    known: String,
}

struct Profile {
    name: &'static str,
    total: u64,
    /// What the system and its usual services leave.
    available: u64,
    heap_cap: Option<u64>,
    n_threads: usize,
}

const MB: u64 = 1 << 20;

const PROFILES: &[Profile] = &[
    // A phone of 4 GB whose apps get a heap of 256 MB.
    Profile {
        name: "mobile-256m",
        total: 4096 * MB,
        available: 2048 * MB,
        heap_cap: Some(256 * MB),
        n_threads: 4,
    },
    // A phone of 2 GB; half is the system's.
    Profile {
        name: "mobile-2gb",
        total: 2048 * MB,
        available: 1024 * MB,
        heap_cap: None,
        n_threads: 4,
    },
    // Jetson Orin Nano or NX: 7.4 GB after carve-outs, shared by CPU and GPU, with a desktop running.
    Profile {
        name: "orin-8gb",
        total: 7620 * MB,
        available: 6144 * MB,
        heap_cap: None,
        n_threads: 6,
    },
    // Raspberry Pi 5 without a desktop.
    Profile {
        name: "pi-8gb",
        total: 8062 * MB,
        available: 7424 * MB,
        heap_cap: None,
        n_threads: 4,
    },
    Profile {
        name: "vm-2gb",
        total: 1968 * MB,
        available: 1640 * MB,
        heap_cap: None,
        n_threads: 2,
    },
];

impl Device {
    /// This machine, with a cap on the heap if the user names one. The model's files are mapped by now: they count as
    /// address space in use.
    pub fn here(heap_cap: Option<u64>) -> Device {
        let known = caps::meminfo();
        let info = known.unwrap_or_default();
        let own = probe::status().map_or(0, |s| s.anon);
        let physical = known.map(|info| Limit {
            name: "memory available".to_owned(),
            limit: info.total,
            bytes: info.available.saturating_add(own),
        });
        // Where the system does not say what it has, nothing is refused for it.
        let mut memory: Vec<Limit> = physical.into_iter().collect();
        memory.extend(caps::cgroup_limits());
        let mut heap = caps::process_limits();
        heap.extend(heap_cap.map(cap));
        // What is committed is resident in the end.
        heap.extend(memory.iter().cloned());
        Device {
            name: "this machine".to_owned(),
            total: info.total,
            heap: tightest(&heap),
            memory: tightest(&memory),
            lock: tightest(&caps::lock_limit().into_iter().collect::<Vec<_>>()),
            swap_free: info.swap_free.saturating_sub(info.zram_free),
            zram: info.zram,
            n_threads: None,
        }
    }

    /// A device that is not here.
    ///
    /// # Errors
    /// No such profile.
    pub fn profile(name: &str, heap_cap: Option<u64>) -> Result<Device, ProfileError> {
        let p = PROFILES.iter().find(|p| p.name == name).ok_or_else(|| {
            let known: Vec<&str> = PROFILES.iter().map(|p| p.name).collect();
            ProfileError {
                name: name.to_owned(),
                known: known.join(", "),
            }
        })?;
        let memory = Limit {
            name: format!("memory available on {name}"),
            limit: p.total,
            bytes: p.available,
        };
        let caps = [p.heap_cap, heap_cap].into_iter().flatten().map(cap);
        let heap: Vec<Limit> = caps.chain([memory.clone()]).collect();
        Ok(Device {
            name: name.to_owned(),
            total: p.total,
            heap: tightest(&heap),
            memory: tightest(&[memory]),
            lock: tightest(&[]),
            swap_free: 0,
            zram: 0,
            n_threads: Some(p.n_threads),
        })
    }
}

fn cap(bytes: u64) -> Limit {
    Limit {
        name: "heap cap".to_owned(),
        limit: bytes,
        bytes,
    }
}

/// The limit that leaves the least.
fn tightest(limits: &[Limit]) -> Pool {
    let least = limits.iter().min_by_key(|l| l.bytes);
    least.map_or_else(
        || Pool {
            bytes: Pool::UNKNOWN,
            limit: "no limit known".to_owned(),
        },
        |l| Pool {
            bytes: l.bytes,
            limit: l.name.clone(),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_is_named() {
        let d = Device::profile("mobile-256m", None).unwrap();
        assert_eq!(
            (d.heap.bytes, d.heap.limit.as_str()),
            (256 << 20, "heap cap")
        );
        assert_eq!(d.memory.bytes, 2 << 30);
        let d = Device::profile("vm-2gb", Some(1 << 40)).unwrap();
        assert_eq!(d.heap, d.memory);
        let here = Device::here(Some(1 << 20));
        assert_eq!(here.heap.bytes, 1 << 20);
        let text = Device::profile("pdp-11", None).unwrap_err().to_string();
        assert!(
            text.contains("pdp-11") && text.contains("orin-8gb"),
            "{text}"
        );
    }
}
