//! The sidecar of a pulled model: `models/<folder>/model.json`.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::StoreError;
use crate::hash;
use crate::ollama::OllamaExtras;
use crate::partial::write_whole;

/// File name of the sidecar.
pub(crate) const RECORD_FILE: &str = "model.json";

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Name in the model's folder.
    pub file: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256, lower-case hexadecimal.
    pub sha256: String,
}

/// What the store knows of a model it pulled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Canonical name.
    pub name: String,
    /// Other canonical names that led here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// False while the model is being pulled.
    pub complete: bool,
    /// Where it came from.
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// Seconds since 1970-01-01 UTC.
    pub pulled: u64,
    /// In the order in which the model is loaded.
    pub files: Vec<FileRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ollama: Option<OllamaExtras>,
}

impl Record {
    /// The record of a model that is about to be pulled.
    pub(crate) fn begin(name: &str, source: &str) -> Self {
        Self {
            name: name.to_owned(),
            aliases: Vec::new(),
            complete: false,
            source: source.to_owned(),
            licence: None,
            pulled: now(),
            files: Vec::new(),
            ollama: None,
        }
    }

    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    pub(crate) fn size(&self) -> u64 {
        self.files
            .iter()
            .map(|file| file.size)
            .fold(0, u64::saturating_add)
    }

    pub(crate) fn pulled_at(&self) -> SystemTime {
        UNIX_EPOCH
            .checked_add(Duration::from_secs(self.pulled))
            .unwrap_or(UNIX_EPOCH)
    }

    /// The record in `folder`; `None` where there is none or it cannot be read.
    pub(crate) fn load(folder: &Path) -> Option<Self> {
        let text = fs::read(folder.join(RECORD_FILE)).ok()?;
        let record: Self = serde_json::from_slice(&text).ok()?;
        // A file name with a separator would lead out of the folder.
        let plain = |f: &FileRecord| Path::new(&f.file).file_name() == Some(f.file.as_ref());
        record.files.iter().all(plain).then_some(record)
    }

    pub(crate) fn save(&self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(RECORD_FILE);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|e| StoreError::io("write", &path, e.into()))?;
        text.push(b'\n');
        write_whole(&path, &text)
    }

    /// Whether every file is there with its recorded size.
    pub(crate) fn is_intact(&self, folder: &Path) -> bool {
        let there = |f: &FileRecord| {
            fs::metadata(folder.join(&f.file)).is_ok_and(|m| m.is_file() && m.len() == f.size)
        };
        self.complete && !self.files.is_empty() && self.files.iter().all(there)
    }
}

pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// A folder name for a model name, different for different names: `/` is `+`, `:` is
/// `@`, anything unusual is `%XX`. Very long names end in a hash.
pub(crate) fn folder_name(name: &str) -> String {
    const LONGEST: usize = 160;
    let mut folder = String::new();
    for (i, byte) in name.bytes().enumerate() {
        match byte {
            b'/' => folder.push('+'),
            b':' => folder.push('@'),
            b'.' if i == 0 => folder.push_str("%2E"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => {
                folder.push(char::from(byte));
            }
            other => folder.push_str(&format!("%{other:02X}")),
        }
    }
    if folder.len() > LONGEST {
        folder.truncate(LONGEST - 17);
        folder = format!(
            "{folder}-{}",
            &hash::hex(Sha256::new_with_prefix(name))[..16]
        );
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn folder_names_stay_in_the_folder() {
        assert_eq!(folder_name("hf.co/u/r:Q8_0"), "hf.co+u+r@Q8_0");
        assert_eq!(folder_name(".."), "%2E.");
        let long = folder_name(&format!("https://h/{}", "é".repeat(500)));
        assert!(long.len() == 160 && long.is_ascii(), "{long}");
    }

    #[test]
    fn a_record_that_leads_out_of_its_folder_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::begin("m", "here");
        for (file, good) in [
            ("m.gguf", true),
            ("../m.gguf", false),
            ("/m.gguf", false),
            ("", false),
        ] {
            record.files = vec![FileRecord {
                file: file.into(),
                size: 1,
                sha256: String::new(),
            }];
            record.save(dir.path()).unwrap();
            assert_eq!(Record::load(dir.path()).is_some(), good, "{file}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn different_names_have_different_folders(a in "[a-zA-Z./:+@%é-]{1,8}", b in "[a-zA-Z./:+@%é-]{1,8}") {
            prop_assert_eq!(a == b, folder_name(&a) == folder_name(&b));
        }
    }
}
