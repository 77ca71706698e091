//! Runs the binary and keeps what it said.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    /// It worked.
    #[track_caller]
    pub fn ok(self) -> Said {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self
    }

    /// It failed with this code and one line that holds all of `words`, and printed no result.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) -> Said {
        assert_eq!(
            self.code,
            Some(code),
            "stdout {:?} stderr {:?}",
            self.out,
            self.err
        );
        assert_eq!(self.out, "", "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in {:?}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    /// An error of the program: exit code 1, exactly one line.
    #[track_caller]
    pub fn error(self, words: &[&str]) -> Said {
        let said = self.fails(1, words);
        assert!(
            said.err.starts_with("error: ") && said.err.trim_end().lines().count() == 1,
            "{:?}",
            said.err
        );
        said
    }
}

/// A command with a store of its own and no network.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ounce"));
    command
        .args(args)
        .env("OUNCE_HOME", home())
        .env("OLLAMA_MODELS", home().join("ollama"))
        .env("HF_HUB_CACHE", home().join("hf"))
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .env("OUNCE_OLLAMA_REGISTRY", "http://127.0.0.1:9")
        .env("OUNCE_PIP", "/nonexistent/pip")
        .env_remove("HF_TOKEN");
    for proxy in [
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ] {
        command.env_remove(proxy);
    }
    command
}

/// The store of the tests of this process.
pub fn home() -> PathBuf {
    scratch("home")
}

/// A folder of this test run.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("cli-{}", std::process::id()))
        .join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs to the end with this standard input.
pub fn run_with(mut command: Command, stdin: &[u8]) -> Said {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let stdin = stdin.to_owned();
    // A program that fails early does not read its input.
    let writer = std::thread::spawn(move || {
        let _ = pipe.write_all(&stdin);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs with no input.
pub fn ounce(args: &[&str]) -> Said {
    run_with(command(args), b"")
}

/// A file under `tests/data`, as an argument.
pub fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data")
        .join(name)
        .display()
        .to_string()
}

/// A tiny model.
pub fn model(name: &str) -> String {
    data(&format!("golden/{name}"))
}

/// A real model, or `None` when `OUNCE_TEST_MODELS` is not set; under CI a missing model is a failure.
pub fn real(file: &str) -> Option<String> {
    let Some(folder) = std::env::var_os("OUNCE_TEST_MODELS") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI must set OUNCE_TEST_MODELS"
        );
        eprintln!("not run: OUNCE_TEST_MODELS is not set");
        return None;
    };
    Some(
        std::path::Path::new(&folder)
            .join(file)
            .display()
            .to_string(),
    )
}

/// A file of the header of `w` and a hole as large as its tensors.
pub fn sparse(path: &Path, w: &ounce_gguf::write::Writer) {
    let header = w.header();
    std::fs::write(path, &header).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(header.len() as u64 + w.data_len()).unwrap();
}
