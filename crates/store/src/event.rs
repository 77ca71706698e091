//! What a pull tells its caller while it runs. The library itself prints nothing.

use std::time::{Duration, Instant};

/// A step of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A transfer begins.
    Start {
        /// Name of the file.
        file: String,
        /// Size in bytes, where known.
        total: Option<u64>,
    },
    /// So many bytes of the current file are on disk. Sent a few times a second.
    Progress {
        /// Bytes on disk, those of an earlier attempt included.
        done: u64,
        /// Size in bytes, where known.
        total: Option<u64>,
    },
    /// The file is verified and under its final name.
    Finish {
        /// Name of the file.
        file: String,
        /// Size in bytes.
        size: u64,
    },
    /// A line the user should see: a source gave way, a download resumes, and so on.
    Note(String),
}

/// Where events go.
pub type Events<'a> = &'a mut dyn FnMut(Event);

/// Lets a progress event through every tenth of a second.
pub(crate) struct Meter {
    last: Instant,
}

impl Meter {
    const INTERVAL: Duration = Duration::from_millis(100);

    pub(crate) fn start(events: Events, done: u64, total: Option<u64>) -> Self {
        events(Event::Progress { done, total });
        Self {
            last: Instant::now(),
        }
    }

    pub(crate) fn tick(&mut self, events: Events, done: u64, total: Option<u64>) {
        if self.last.elapsed() >= Self::INTERVAL || Some(done) == total {
            self.last = Instant::now();
            events(Event::Progress { done, total });
        }
    }
}
