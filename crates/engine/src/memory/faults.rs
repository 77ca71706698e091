//! Page faults, and the one line that is said when the weights do not stay in memory.

use super::{Size, pressure};

/// Page faults of this process since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Pages that had to be read from storage.
    pub major: u64,
    /// Pages that only had to be mapped.
    pub minor: u64,
}

impl Faults {
    /// Asks the kernel (`getrusage`); `None` where it does not say.
    pub fn now() -> Option<Faults> {
        #[cfg(unix)]
        {
            // SAFETY: a zeroed rusage is valid; `getrusage` writes the struct it is given.
            let usage = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                if libc::getrusage(libc::RUSAGE_SELF, &mut usage) != 0 {
                    return None;
                }
                usage
            };
            #[allow(clippy::unnecessary_cast)] // 32 bits wide on some targets
            Some(Faults {
                major: u64::try_from(usage.ru_majflt as i64).ok()?,
                minor: u64::try_from(usage.ru_minflt as i64).ok()?,
            })
        }
        #[cfg(not(unix))]
        None
    }
}

/// Tokens that are not judged: the first ones page the weights in.
const WARM_UP: u64 = 4;

/// Tokens over which faults are averaged.
const WINDOW: u64 = 8;

/// Major faults a token from which on it is thrash. In steady state there are none; weights that are read again for each
/// token fault once per readahead, hundreds of times even for the smallest models.
const THRESHOLD: u64 = 16;

/// Windows over the threshold after which it is said although memory seems to suffice. Before that it may be a cold file:
/// the experts of a mixture are paged in as they are chosen.
const PATIENCE: u32 = 8;

/// Watches the major faults of a generation, token by token, and speaks once. Allocates nothing until it speaks.
#[derive(Debug)]
pub struct ThrashWatch {
    weights: u64,
    tokens: u64,
    window_start: u64,
    windows_over: u32,
    is_done: bool,
}

impl ThrashWatch {
    /// A watch over a model whose weights are `weights` bytes.
    pub fn new(weights: u64) -> ThrashWatch {
        ThrashWatch {
            weights,
            tokens: 0,
            window_start: 0,
            windows_over: 0,
            is_done: false,
        }
    }

    /// After each token; the line to be shown, once.
    pub fn token(&mut self) -> Option<String> {
        if self.is_done {
            return None;
        }
        let per_token = self.feed(Faults::now()?.major)?;
        self.judge(per_token, pressure::room().map(|r| r.available))
    }

    /// Takes the count of major faults after a token; the faults a token when a window ends over the threshold.
    fn feed(&mut self, major: u64) -> Option<u64> {
        self.tokens += 1;
        let judged = self.tokens.checked_sub(WARM_UP)?;
        if judged % WINDOW != 0 {
            return None;
        }
        let faults = major.saturating_sub(self.window_start);
        self.window_start = major;
        if judged == 0 {
            return None;
        }
        let per_token = faults / WINDOW;
        if per_token < THRESHOLD {
            self.windows_over = 0;
            return None;
        }
        Some(per_token)
    }

    /// What is to be said of a window over the threshold, with `available` bytes of memory.
    fn judge(&mut self, per_token: u64, available: Option<u64>) -> Option<String> {
        self.windows_over += 1;
        let is_short = available.is_some_and(|a| a < self.weights);
        if !is_short && self.windows_over < PATIENCE {
            return None;
        }
        self.is_done = true;
        let figures = match available {
            Some(a) if is_short => {
                format!("{} available of {} needed", Size(a), Size(self.weights))
            }
            Some(a) => format!(
                "{} are available, {} needed, so something else takes them out: a cgroup limit or memory reclaim",
                Size(a),
                Size(self.weights)
            ),
            None => format!("{} needed", Size(self.weights)),
        };
        Some(format!(
            "{per_token} major faults a token: the weights do not stay in memory ({figures}); use a smaller quantisation, close other programs, or --mlock"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    /// Feeds `n` tokens with `per_token` major faults each, from a count of `start`; every line said, by token.
    fn said(
        n: u64,
        start: u64,
        per_token: impl Fn(u64) -> u64,
        available: Option<u64>,
    ) -> Vec<(u64, String)> {
        let mut watch = ThrashWatch::new(GB);
        let mut major = start;
        let mut said = Vec::new();
        for token in 1..=n {
            major += per_token(token);
            // As `token` does, without the kernel.
            if !watch.is_done
                && let Some(over) = watch.feed(major)
                && let Some(line) = watch.judge(over, available)
            {
                said.push((token, line));
            }
        }
        said
    }

    #[test]
    fn thrash_is_said_once_with_cause_and_remedy() {
        let said = said(100, 5000, |_| 1240, Some(310_000_000));
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].0, WARM_UP + WINDOW);
        for part in [
            "1240 major faults a token",
            "310 MB available of 1.0 GB needed",
            "--mlock",
        ] {
            assert!(said[0].1.contains(part), "{part}: {}", said[0].1);
        }
    }

    #[test]
    fn a_cold_start_and_few_faults_are_not_thrash() {
        assert!(said(100, 0, |t| if t <= WARM_UP { 20_000 } else { 0 }, Some(1)).is_empty());
        assert!(said(100, 0, |_| THRESHOLD - 1, Some(1)).is_empty());
        // Experts that are paged in one after another, with memory enough for all.
        assert!(said(100, 0, |t| if t < 50 { 100 } else { 0 }, Some(2 * GB)).is_empty());
    }

    #[test]
    fn faults_that_go_on_are_said_although_memory_seems_to_suffice() {
        for available in [Some(2 * GB), None] {
            let said = said(200, 0, |_| 300, available);
            assert_eq!(said.len(), 1);
            assert_eq!(said[0].0, WARM_UP + WINDOW * u64::from(PATIENCE));
            assert!(said[0].1.contains("300 major"), "{}", said[0].1);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_kernel_counts_minor_faults() {
        let before = Faults::now().unwrap();
        let mut region = crate::memory::Region::reserve("test", 64 * 4096).unwrap();
        region.bytes_mut().fill(1);
        assert!(Faults::now().unwrap().minor >= before.minor + 64);
    }
}
