//! A store in a temporary folder, with its events written down.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ounce_store::{Event, ModelRef, Pull, Resolved, Settings, Store, StoreError};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub struct Bench {
    pub dir: TempDir,
    pub settings: Settings,
}

impl Bench {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap().to_owned();
        let vars = |name: &str| match name {
            "HOME" => Some(home.clone()),
            // Nothing listens on port 9: what a test does not set up cannot be reached.
            "HF_ENDPOINT" | "OUNCE_OLLAMA_REGISTRY" => Some("http://127.0.0.1:9".into()),
            "OUNCE_PIP" => Some("/nowhere/pip".into()),
            _ => None,
        };
        let mut settings = Settings::from_vars(&vars).unwrap();
        settings.home = dir.path().join("store");
        settings.ollama_stores = vec![dir.path().join("ollama")];
        settings.hf_caches = vec![dir.path().join("hub")];
        settings.retry_delay = Duration::from_millis(1);
        settings.attempts = 3;
        Self { dir, settings }
    }

    pub fn store(&self) -> Store {
        Store::with(self.settings.clone())
    }

    pub fn resolve(&self, model: &str, pull: Pull) -> (Result<Resolved, StoreError>, Vec<Event>) {
        let reference: ModelRef = model.parse().unwrap_or_else(|e| panic!("{model}: {e}"));
        let mut events = Vec::new();
        let result = self
            .store()
            .resolve(&reference, pull, &mut |event| events.push(event));
        (result, events)
    }

    pub fn get(&self, model: &str) -> Resolved {
        let (result, events) = self.resolve(model, Pull::IfMissing);
        result.unwrap_or_else(|e| panic!("{model}: {e}; {events:?}"))
    }

    /// The one line of the error that fetching `model` ends in.
    pub fn error(&self, model: &str) -> String {
        let (result, _) = self.resolve(model, Pull::IfMissing);
        let text = result.expect_err(model).to_string();
        assert!(!text.contains('\n'), "more than one line: {text}");
        text
    }

    /// Relative paths of all files in the models folder.
    pub fn files(&self) -> Vec<String> {
        let models = self.settings.home.join("models");
        let mut found = Vec::new();
        collect(&models, &mut found);
        let relative = |path: &PathBuf| {
            path.strip_prefix(&models)
                .unwrap()
                .to_str()
                .unwrap()
                .replace('\\', "/")
        };
        let mut names: Vec<String> = found.iter().map(relative).collect();
        names.sort();
        names
    }
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
    {
        if path.is_dir() {
            collect(&path, found)
        } else {
            found.push(path)
        }
    }
}

/// Something that passes for a GGUF file: the right first bytes, then noise.
pub fn model_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = 2 * seed + 1;
    let noise = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    });
    b"GGUF".iter().copied().chain(noise).take(len).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub fn notes(events: &[Event]) -> String {
    let note = |event: &Event| match event {
        Event::Note(text) => Some(text.clone()),
        _ => None,
    };
    events
        .iter()
        .filter_map(note)
        .collect::<Vec<_>>()
        .join("\n")
}
