//! What makes running out of memory our own error, and not the system's trouble.

use crate::EngineError;

/// The `oom_score_adj` that this process asks for: half way to "kill this one first".
const OOM_SCORE_ADJ: i32 = 500;

/// Allows this process to commit `bytes` in all, what it holds now included (`--strict-memory`): sets the soft limit of
/// RLIMIT_DATA to that and the address space that is reserved and not committed, and returns the one in force, in bytes. A limit that is tighter already stays. Reserved address space
/// counts, used or not, so this comes before a plan is allocated; what goes beyond it is refused with an error then.
///
/// # Errors
/// Not Linux, where alone this limit counts mappings, or `/proc` is not there.
pub fn limit_data(bytes: u64) -> Result<u64, EngineError> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let fail = |why: String| EngineError::StrictMemory { why };
        let status = super::probe::status()
            .ok_or_else(|| fail("/proc/self/status cannot be read".into()))?;
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        let last = |what| {
            let e = std::io::Error::last_os_error();
            fail(format!("{what} RLIMIT_DATA: {e}"))
        };
        // SAFETY: `getrlimit` writes the struct it is given.
        if unsafe { libc::getrlimit(libc::RLIMIT_DATA, &mut limit) } != 0 {
            return Err(last("getrlimit"));
        }
        // The limit counts address space; what of it is committed by now is part of `bytes`.
        let idle = status.data.saturating_sub(status.anon);
        let wanted = idle.saturating_add(bytes);
        // RLIM_INFINITY is the largest number.
        limit.rlim_cur = libc::rlim_t::try_from(wanted)
            .unwrap_or(libc::RLIM_INFINITY)
            .min(limit.rlim_cur);
        // SAFETY: `setrlimit` reads the struct it is given.
        if unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) } != 0 {
            return Err(last("setrlimit"));
        }
        #[allow(clippy::unnecessary_cast)] // 32 bits wide on some targets
        Ok(limit.rlim_cur as u64)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = bytes;
        Err(EngineError::StrictMemory {
            why: "only Linux counts mapped memory against RLIMIT_DATA".into(),
        })
    }
}

/// Tells the kernel to kill this process before its neighbours when memory runs out, so that the system survives. Never
/// makes it less likely than it was. Returns the `oom_score_adj` in force; `None` where there is none. A refusal changes
/// nothing and is no error.
pub fn prefer_us_for_oom() -> Option<i32> {
    const FILE: &str = "/proc/self/oom_score_adj";
    let now = || -> Option<i32> { std::fs::read_to_string(FILE).ok()?.trim().parse().ok() };
    if now()? < OOM_SCORE_ADJ {
        // Refused in some sandboxes: then it stays as it is.
        let _ = std::fs::write(FILE, OOM_SCORE_ADJ.to_string());
    }
    now()
}
