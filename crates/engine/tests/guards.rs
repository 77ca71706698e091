//! Guards that are set for a whole process, each tried in a process of its own.
#![cfg(target_os = "linux")]

use std::process::Command;

use ounce_engine::memory::{Region, caps, limit_data, prefer_us_for_oom, probe};

const ROLE: &str = "OUNCE_TEST_ROLE";

/// Runs the test of this name again in a process where [`is_child`] says yes, and expects it to pass there.
#[track_caller]
fn passes_apart(test: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn is_child(test: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == test)
}

#[test]
fn beyond_a_strict_limit_memory_is_refused_with_an_error() {
    if !is_child("beyond_a_strict_limit_memory_is_refused_with_an_error") {
        return passes_apart("beyond_a_strict_limit_memory_is_refused_with_an_error");
    }
    const MIB: u64 = 1 << 20;
    let idle = |s: probe::Status| s.data.saturating_sub(s.anon);
    let (before, anon) = probe::status().map(|s| (idle(s), s.anon)).unwrap();
    let limit = limit_data(anon + 64 * MIB).unwrap();
    let bytes = limit - before - anon;
    assert!((63 * MIB..66 * MIB).contains(&bytes), "{bytes}");
    assert_eq!(caps::rlimit_data(), Some(limit));
    let planned = Region::reserve("KV cache", 48 << 20).unwrap();
    let error = Region::reserve("forward slab", 48 << 20).err().unwrap();
    let text = error.to_string();
    assert!(
        text.contains("forward slab") && text.contains("50331648"),
        "{text}"
    );
    drop(planned);
    Region::reserve("forward slab", 48 << 20).unwrap();
    // A limit that is tighter already stays.
    assert_eq!(limit_data(u64::MAX).unwrap(), limit);
    assert!(limit_data(anon + MIB).unwrap() < limit);
}

#[test]
fn the_kernel_is_told_to_kill_us_first() {
    if !is_child("the_kernel_is_told_to_kill_us_first") {
        return passes_apart("the_kernel_is_told_to_kill_us_first");
    }
    const FILE: &str = "/proc/self/oom_score_adj";
    let now = || -> i32 {
        std::fs::read_to_string(FILE)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    let before = now();
    let set = prefer_us_for_oom();
    assert_eq!(set, Some(now()));
    assert!(set >= Some(before));
    // Raising needs no privilege; a sandbox that forbids it leaves it as it was.
    if std::fs::write(FILE, "700").is_ok() {
        assert!(set >= Some(500));
        assert_eq!(prefer_us_for_oom(), Some(700), "never lowered");
    }
}
