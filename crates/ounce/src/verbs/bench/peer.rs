//! llama-bench, run on one test at a time with the same settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ounce_engine::Session;
use ounce_engine::bench::Test;
use serde_json::Value;

/// A llama-bench and what it is given with every test.
pub struct Peer {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Peer {
    /// `program` on the model at `model`, with the threads, chunk and cache types of `session`.
    pub fn new(program: &Path, model: &Path, session: &Session) -> Peer {
        let p = &session.plan().params;
        let pairs = [
            ("-m", model.display().to_string()),
            ("-t", p.n_threads.to_string()),
            ("-ub", p.n_ubatch.to_string()),
            ("-ctk", p.type_k.name().to_owned()),
            ("-ctv", p.type_v.name().to_owned()),
            // A quantised cache of values asks for it, and it is what the peer is fastest with.
            ("-fa", "1".to_owned()),
            ("-r", "1".to_owned()),
            ("-o", "jsonl".to_owned()),
        ];
        let arguments = pairs
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value]);
        Peer {
            // A file beside us needs no "./"; what is not there is looked for on the PATH.
            program: program.canonicalize().unwrap_or(program.to_owned()),
            arguments: arguments.collect(),
        }
    }

    /// Runs it once; its own warm-up comes before. Tokens a second.
    ///
    /// # Errors
    /// It cannot be started, fails, or prints something else than llama-bench does.
    pub fn run(&self, test: Test) -> Result<f64, String> {
        let program = self.program.display();
        let (p, n) = match test {
            Test::Prompt { n, .. } => (n, 0),
            Test::Generation { n, .. } => (0, n),
        };
        let counts = [("-p", p), ("-n", n), ("-d", test.depth())];
        let counts = counts
            .iter()
            .flat_map(|(flag, n)| [(*flag).to_owned(), n.to_string()]);
        let output = Command::new(&self.program)
            .args(&self.arguments)
            .args(counts)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("--peer {program}: {e}; name a llama-bench"))?;
        if !output.status.success() {
            let err = String::from_utf8_lossy(&output.stderr);
            let last = err
                .lines()
                .rfind(|l| !l.trim().is_empty())
                .unwrap_or("it says nothing");
            return Err(format!(
                "--peer {program} failed ({}): {last}",
                output.status
            ));
        }
        rate(&output.stdout).ok_or_else(|| {
            format!("--peer {program}: no line of JSON with one avg_ts; a llama-bench that knows -o jsonl is needed")
        })
    }
}

/// The rate in the only record.
fn rate(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut records = text.lines().filter(|l| l.starts_with('{'));
    let record: Value = serde_json::from_str(records.next()?).ok()?;
    let rate = record.get("avg_ts")?.as_f64()?;
    (records.next().is_none() && rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn one_record_is_read() {
        assert_eq!(
            rate(b"noise\n{\"n_gen\": 4, \"avg_ts\": 12.5}\n"),
            Some(12.5)
        );
        for bad in [
            "",
            "x",
            "{\"avg_ts\": 0}",
            "{\"avg_ts\": 1}\n{\"avg_ts\": 2}",
            "{\"a\": 1}",
        ] {
            assert_eq!(rate(bad.as_bytes()), None, "{bad}");
        }
    }
}
