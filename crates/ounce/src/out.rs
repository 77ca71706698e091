//! Standard output carries results, standard error everything else.

use std::error::Error;
use std::io::{self, ErrorKind, IsTerminal, Write};

use clap::builder::styling::AnsiColor;

/// A failed write to standard output.
#[derive(Debug)]
pub struct StdoutError(io::Error);

impl std::fmt::Display for StdoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write to standard output: {}", self.0)
    }
}

impl Error for StdoutError {}

/// A text from outside, without what would steer a terminal.
pub fn plain(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

/// Writes text to standard output as it is.
pub fn text(text: &str) -> Result<(), StdoutError> {
    io::stdout().write_all(text.as_bytes()).map_err(StdoutError)
}

/// Writes text and sees it through to the reader.
pub fn text_now(s: &str) -> Result<(), StdoutError> {
    text(s)?;
    flush()
}

/// Writes a line.
pub fn line(s: impl std::fmt::Display) -> Result<(), StdoutError> {
    writeln!(io::stdout(), "{s}").map_err(StdoutError)
}

/// Writes a JSON document, indented.
pub fn json(value: &serde_json::Value) -> Result<(), StdoutError> {
    line(format_args!("{value:#}"))
}

/// Sees everything written so far through to the reader; an error here is an error of the verb.
pub fn flush() -> Result<(), StdoutError> {
    io::stdout().flush().map_err(StdoutError)
}

/// Whether the reader of standard output went away.
pub fn is_broken_pipe(e: &(dyn Error + 'static)) -> bool {
    e.downcast_ref::<StdoutError>()
        .is_some_and(|e| e.0.kind() == ErrorKind::BrokenPipe)
}

/// One line on standard error; a standard error that is gone too is nobody's to tell.
pub fn note(s: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{s}");
}

/// One line on standard error while generated text is on its way: on a terminal that shows both it starts a line.
pub fn note_amid_text(s: &str) {
    if io::stdout().is_terminal() && io::stderr().is_terminal() {
        note("");
    }
    note(s);
}

/// The one line of a failure.
pub fn error(e: &dyn Error) {
    note(format_args!("error: {}", e.to_string().replace('\n', " ")));
}

/// Bytes in the units people use: powers of 1000, as the sizes of downloads are given.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut x = n as f64;
    let mut unit = 0;
    while x >= 999.5 && unit + 1 < UNITS.len() {
        x /= 1000.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{n} B")
    } else if x < 10.0 {
        format!("{x:.1} {}", UNITS[unit])
    } else {
        format!("{x:.0} {}", UNITS[unit])
    }
}

/// How good the news is that a text tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Fair,
    Bad,
}

/// The text in the colour of its tone where standard output is a terminal that shows colours, and as it is elsewhere.
pub fn painted(text: &str, tone: Tone) -> String {
    let said = |key| std::env::var_os(key).filter(|v| !v.is_empty());
    // https://no-color.org; the consoles of Windows do not all know the codes.
    let plain =
        cfg!(windows) || said("NO_COLOR").is_some() || said("TERM").is_none_or(|t| t == "dumb");
    if plain || !io::stdout().is_terminal() {
        return text.to_owned();
    }
    let colour = match tone {
        Tone::Good => AnsiColor::Green,
        Tone::Fair => AnsiColor::Yellow,
        Tone::Bad => AnsiColor::Red,
    };
    let style = colour.on_default();
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_in_units() {
        for (n, want) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (98_362_432, "98 MB"),
            (1_270_000_000, "1.3 GB"),
            (999_600, "1.0 MB"),
        ] {
            assert_eq!(super::bytes(n), want);
        }
    }
}
