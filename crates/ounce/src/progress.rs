//! Events of a pull as bars and lines on standard error; no bars when it is not a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ounce_store::Event;

use crate::out;

/// Shows the events of one pull.
pub struct Progress {
    bar: Option<ProgressBar>,
    is_terminal: bool,
}

impl Progress {
    /// Nothing is drawn before the first event.
    pub fn new() -> Progress {
        Progress {
            bar: None,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Draws an event.
    pub fn show(&mut self, event: Event) {
        match event {
            Event::Start { file, total } => {
                self.clear();
                if self.is_terminal {
                    self.bar = Some(bar(file, total));
                } else {
                    let size = total
                        .map(|n| format!(" ({})", out::bytes(n)))
                        .unwrap_or_default();
                    out::note(format_args!("pulling {file}{size}"));
                }
            }
            Event::Progress { done, total } => {
                if let Some(bar) = &self.bar {
                    if let Some(total) = total {
                        bar.set_length(total);
                    }
                    bar.set_position(done);
                }
            }
            Event::Finish { file, size } => {
                self.clear();
                out::note(format_args!(
                    "pulled {file}, {}, hash verified",
                    out::bytes(size)
                ));
            }
            Event::Note(line) => match &self.bar {
                Some(bar) => bar.suspend(|| out::note(line)),
                None => out::note(line),
            },
            _ => {}
        }
    }

    /// Draws bytes of work on the model's file, `what` being done with them; nothing where there is no terminal.
    pub fn bytes(&mut self, what: &'static str, done: u64, total: u64) {
        if self.is_terminal {
            let bar = self
                .bar
                .get_or_insert_with(|| bar(what.to_owned(), Some(total)));
            bar.set_position(done);
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn bar(file: String, total: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10))
        .with_message(file);
    let template = match total {
        Some(_) => {
            "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}"
        }
        None => "{msg} {spinner} {decimal_bytes} {decimal_bytes_per_sec}",
    };
    // The template is a constant; a mistake in it would show in the first pull, and the plain bar serves.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
