//! Page faults of this process, and thrash told: a model whose weights are read from storage again for every token.

use super::Size;
use super::pressure::{self, Room};

/// Faults since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A page had to be read from storage.
    pub major: u64,
    /// A page was in memory, but not yet this process's.
    pub minor: u64,
    /// Bytes read from storage, by faults and else; 0 where the kernel or the file system does not count them.
    pub read: u64,
}

impl Faults {
    /// Asks the kernel; one system call, no allocation. `None` where it does not count.
    pub fn now() -> Option<Faults> {
        #[cfg(unix)]
        {
            // SAFETY: a zeroed rusage is valid, and `getrusage` writes the struct it is given.
            let usage = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                (libc::getrusage(libc::RUSAGE_SELF, &mut usage) == 0).then_some(usage)
            }?;
            Some(Faults {
                major: u64::try_from(usage.ru_majflt).ok()?,
                minor: u64::try_from(usage.ru_minflt).ok()?,
                // In blocks of 512 bytes on Linux; other systems count operations.
                read: match cfg!(any(target_os = "linux", target_os = "android")) {
                    true => u64::try_from(usage.ru_inblock).ok()?.saturating_mul(512),
                    false => 0,
                },
            })
        }
        #[cfg(not(unix))]
        None
    }
}

impl Faults {
    /// What came after `then`.
    pub fn since(&self, then: &Faults) -> Faults {
        Faults {
            major: self.major.saturating_sub(then.major),
            minor: self.minor.saturating_sub(then.minor),
            read: self.read.saturating_sub(then.read),
        }
    }
}

/// Tokens that may fault: the first ones read the weights for the first time.
const WARM_UP: u32 = 8;
/// Tokens over which faults are averaged.
const WINDOW: u32 = 16;
/// Major faults a token that are told whatever was read. Each waits for storage, a hundred microseconds and more; a
/// process that has what it needs makes none.
const MANY: u64 = 100;
/// Major faults a token that are told when more than the weights' own bytes was read, so that some were read twice:
/// with a long readahead few faults bring much.
const SOME: u64 = 4;

/// Watches the faults of a generation and speaks once.
#[derive(Debug)]
pub struct ThrashWatch {
    /// Bytes of the model's files.
    weights: u64,
    n_tokens: u32,
    /// At the first token.
    first: Faults,
    /// At the start of the window.
    start: Faults,
    has_spoken: bool,
}

impl ThrashWatch {
    /// A watch over a model whose files hold `weights` bytes.
    pub fn new(weights: u64) -> ThrashWatch {
        ThrashWatch {
            weights,
            n_tokens: 0,
            first: Faults::default(),
            start: Faults::default(),
            has_spoken: false,
        }
    }

    /// To be called after every token with the faults by then. Allocates nothing until it returns the one line that says
    /// what is wrong and what helps.
    pub fn token(&mut self, now: Faults) -> Option<String> {
        if self.has_spoken {
            return None;
        }
        if self.n_tokens == 0 {
            self.first = now;
        }
        self.n_tokens += 1;
        if self.n_tokens == WARM_UP {
            self.start = now;
        }
        if self.n_tokens < WARM_UP + WINDOW {
            return None;
        }
        let each = |now: u64, start: u64| now.saturating_sub(start) / u64::from(WINDOW);
        let major = each(now.major, self.start.major);
        let read = each(now.read, self.start.read);
        let is_reread = now.read.saturating_sub(self.first.read) > self.weights;
        // The next window begins here.
        self.n_tokens = WARM_UP;
        self.start = now;
        self.has_spoken = major >= if is_reread { SOME } else { MANY };
        self.has_spoken
            .then(|| line(major, read, pressure::room(), self.weights))
    }
}

fn line(major: u64, read: u64, room: Option<Room>, weights: u64) -> String {
    let needed = Size(weights);
    let cause = match room {
        Some(r) if r.available < weights => {
            format!("{} {} of {needed} needed", r.name, Size(r.available))
        }
        // Memory seems to suffice; something takes the pages all the same.
        Some(r) => format!("{needed} needed; {} is {}", r.name, Size(r.available)),
        None => format!("{needed} needed"),
    };
    let reads = match read {
        0 => String::new(),
        n => format!(" and {} from storage", Size(n)),
    };
    format!(
        "{major} major faults{reads} a token: the weights do not stay in memory ({cause}); use a smaller quantisation, close other programs, or lock the model with --mlock"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: u64 = 1 << 30;

    /// Lines told, and at which token, when token `i` makes `of(i)` major faults and reads so many bytes.
    fn told(n: u64, of: impl Fn(u64) -> (u64, u64)) -> Vec<(u64, String)> {
        let mut watch = ThrashWatch::new(WEIGHTS);
        let mut now = Faults {
            major: 77,
            minor: 0,
            read: WEIGHTS,
        };
        let mut lines = Vec::new();
        for i in 0..n {
            let (major, read) = of(i);
            now.major += major;
            now.read += read;
            lines.extend(watch.token(now).map(|l| (i, l)));
        }
        lines
    }

    #[test]
    fn thrash_is_told_once_and_a_cold_start_is_not() {
        assert_eq!(told(200, |_| (0, 0)), []);
        assert_eq!(
            told(200, |i| if i < 8 { (100_000, WEIGHTS) } else { (0, 0) }),
            []
        );
        assert_eq!(told(200, |_| (MANY - 1, 0)), []);
        let lines = told(200, |_| (MANY, 0));
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].0, u64::from(WARM_UP + WINDOW) - 1);
        assert!(
            lines[0].1.starts_with("100 major faults a token: "),
            "{lines:?}"
        );
        // Memory that becomes short later.
        assert_eq!(
            told(200, |i| if i < 90 { (0, 0) } else { (1000, 0) }).len(),
            1
        );
    }

    #[test]
    fn few_faults_are_told_once_bytes_are_read_twice() {
        // Experts met one after another: each byte is read once.
        assert_eq!(
            told(500, |i| if i <= 400 {
                (50, WEIGHTS / 400)
            } else {
                (0, 0)
            }),
            []
        );
        assert_eq!(told(500, |_| (SOME - 1, WEIGHTS / 4)), []);
        let lines = told(500, |_| (SOME, WEIGHTS / 100));
        assert_eq!(lines.len(), 1);
        assert!((100..140).contains(&lines[0].0), "{lines:?}");
        assert!(
            lines[0]
                .1
                .starts_with("4 major faults and 11 MB from storage a token: ")
        );
    }

    #[test]
    fn the_line_names_cause_and_remedy() {
        let room = |available| {
            Some(Room {
                available,
                total: 1 << 40,
                name: "MemAvailable".into(),
            })
        };
        let text = line(1240, 0, room(310_000_000), 1_000_000_000);
        assert!(
            text.contains("(MemAvailable 310 MB of 1.0 GB needed)"),
            "{text}"
        );
        assert!(text.contains("--mlock") && text.contains("smaller quantisation"));
        let text = line(9, 0, room(2_000_000_000), 1_000_000_000);
        assert!(
            text.contains("(1.0 GB needed; MemAvailable is 2.0 GB)"),
            "{text}"
        );
        assert!(line(9, 0, None, 1_000_000_000).contains("(1.0 GB needed)"));
    }

    #[test]
    #[cfg(unix)]
    fn faults_are_counted() {
        let before = Faults::now().unwrap();
        // Touched for the first time: a minor fault a page.
        let mut region = crate::memory::Region::reserve("test", 64 * 4096).unwrap();
        region.bytes_mut().fill(1);
        let after = Faults::now().unwrap();
        assert!(after.minor > before.minor && after.major >= before.major);
    }
}
