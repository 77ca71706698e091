//! A file on its way: written under `NAME.partial`, and under its own name only once
//! its size, hash and first bytes are right.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::StoreError;
use crate::hash;
use crate::record::FileRecord;

/// What is known of a file before it is fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expect {
    /// Size in bytes.
    pub size: Option<u64>,
    /// SHA-256, lower-case hexadecimal.
    pub sha256: Option<String>,
}

/// Where the bytes of a partial file came from, kept beside it: without this a resumed
/// download could splice two different files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    pub url: String,
    /// Strong entity tag of the response, in its quotes.
    pub etag: Option<String>,
    /// Hash the whole file is expected to have.
    pub sha256: Option<String>,
}

pub(crate) struct PartialFile {
    path: PathBuf,
    final_path: PathBuf,
    file: File,
    hasher: Sha256,
    len: u64,
}

const BUFFER: usize = 256 * 1024;

impl PartialFile {
    /// An empty partial file for `final_path`; an earlier one is discarded.
    pub(crate) fn create(final_path: &Path) -> Result<Self, StoreError> {
        let mut partial = Self::open(final_path)?;
        partial.restart()?;
        Ok(partial)
    }

    /// Opens the partial file with what an earlier attempt left in it.
    pub(crate) fn resume(final_path: &Path) -> Result<Self, StoreError> {
        let mut partial = Self::open(final_path)?;
        let mut buffer = vec![0; BUFFER];
        loop {
            match partial.file.read(&mut buffer) {
                Ok(0) => return Ok(partial),
                Ok(n) => {
                    partial.hasher.update(&buffer[..n]);
                    partial.len += n as u64;
                }
                Err(e) => return Err(StoreError::io("read", &partial.path, e)),
            }
        }
    }

    fn open(final_path: &Path) -> Result<Self, StoreError> {
        let path = with_suffix(final_path, ".partial");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| StoreError::io("write", &path, e))?;
        let final_path = final_path.to_owned();
        Ok(Self {
            path,
            final_path,
            file,
            hasher: Sha256::new(),
            len: 0,
        })
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Throws away what is there.
    pub(crate) fn restart(&mut self) -> Result<(), StoreError> {
        let io = |e| StoreError::io("write", &self.path, e);
        self.file.set_len(0).map_err(io)?;
        self.file.seek(SeekFrom::Start(0)).map_err(io)?;
        self.hasher = Sha256::new();
        self.len = 0;
        self.forget()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file
            .write_all(bytes)
            .map_err(|e| StoreError::io("write", &self.path, e))?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// What [`PartialFile::remember`] wrote, if it can be read.
    pub(crate) fn provenance(&self) -> Option<Provenance> {
        let text = fs::read(with_suffix(&self.path, ".json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub(crate) fn remember(&self, provenance: &Provenance) -> Result<(), StoreError> {
        let path = with_suffix(&self.path, ".json");
        let text =
            serde_json::to_vec(provenance).map_err(|e| StoreError::io("write", &path, e.into()))?;
        fs::write(&path, text).map_err(|e| StoreError::io("write", &path, e))
    }

    fn forget(&self) -> Result<(), StoreError> {
        remove_if_there(&with_suffix(&self.path, ".json"))
    }

    /// Deletes the partial file.
    pub(crate) fn discard(self) -> Result<(), StoreError> {
        self.forget()?;
        remove_if_there(&self.path)
    }

    /// Checks the file and gives it its final name. A wrong file is deleted.
    pub(crate) fn finish(self, expect: &Expect, origin: &str) -> Result<FileRecord, StoreError> {
        if let Err(error) = self.check(expect, origin) {
            self.discard()?;
            return Err(error);
        }
        let (io_path, len) = (self.path.clone(), self.len);
        self.file
            .sync_all()
            .map_err(|e| StoreError::io("write", &io_path, e))?;
        self.forget()?;
        fs::rename(&self.path, &self.final_path)
            .map_err(|e| StoreError::io("create", &self.final_path, e))?;
        sync_folder(&self.final_path)?;
        let file = file_name(&self.final_path);
        Ok(FileRecord {
            file,
            size: len,
            sha256: hash::hex(self.hasher),
        })
    }

    fn check(&self, expect: &Expect, origin: &str) -> Result<(), StoreError> {
        let file = file_name(&self.final_path);
        if let Some(wanted) = expect.size.filter(|&size| size != self.len) {
            return Err(StoreError::WrongSize {
                file,
                wanted,
                got: self.len,
            });
        }
        if let Some(wanted) = &expect.sha256 {
            let got = hash::hex(self.hasher.clone());
            if got != *wanted {
                return Err(StoreError::WrongHash {
                    file,
                    wanted: wanted.clone(),
                    got,
                });
            }
        }
        let mut start = Vec::new();
        let mut file_again = &self.file;
        file_again
            .seek(SeekFrom::Start(0))
            .and_then(|_| file_again.take(16).read_to_end(&mut start))
            .map_err(|e| StoreError::io("read", &self.path, e))?;
        if !start.starts_with(b"GGUF") {
            let start = String::from_utf8_lossy(&start).into_owned();
            return Err(StoreError::NotGguf {
                file,
                origin: origin.to_owned(),
                start,
            });
        }
        Ok(())
    }
}

/// Makes a rename in the folder of `path` survive a crash.
fn sync_folder(path: &Path) -> Result<(), StoreError> {
    // Windows cannot open a folder as a file, and journals renames itself.
    if cfg!(unix)
        && let Some(folder) = path.parent()
    {
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|e| StoreError::io("write", folder, e))?;
    }
    Ok(())
}

/// Writes a small file so that a crash leaves the old or the new one, never half of it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let temporary = with_suffix(path, ".new");
    let io = |e| StoreError::io("write", &temporary, e);
    let mut file = File::create(&temporary).map_err(io)?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(io)?;
    fs::rename(&temporary, path).map_err(|e| StoreError::io("create", path, e))?;
    sync_folder(path)
}

pub(crate) fn remove_if_there(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io("delete", path, e))
        }
        _ => Ok(()),
    }
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"GGUF and more";
    // sha256sum of BODY.
    fn sha(bytes: &[u8]) -> String {
        hash::hex(Sha256::new_with_prefix(bytes))
    }

    fn expect(size: u64, sha256: &str) -> Expect {
        Expect {
            size: Some(size),
            sha256: Some(sha256.to_owned()),
        }
    }

    #[test]
    fn the_final_name_appears_only_when_all_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        let mut partial = PartialFile::create(&path).unwrap();
        partial.write(&BODY[..5]).unwrap();
        drop(partial);
        assert!(!path.exists());

        let mut partial = PartialFile::resume(&path).unwrap();
        assert_eq!(partial.len(), 5);
        partial.write(&BODY[5..]).unwrap();
        let record = partial.finish(&expect(13, &sha(BODY)), "here").unwrap();
        assert_eq!(record.sha256, sha(BODY));
        assert_eq!(fs::read(&path).unwrap(), BODY);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn wrong_files_are_deleted_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        let html: &[u8] = b"<html>";
        for (body, expect, part) in [
            (BODY, expect(14, &sha(BODY)), "expected 14 bytes, got 13"),
            (BODY, expect(13, &"0".repeat(64)), "expected sha256 0000"),
            (html, Expect::default(), "not a GGUF file"),
        ] {
            let mut partial = PartialFile::create(&path).unwrap();
            partial.write(body).unwrap();
            let error = partial.finish(&expect, "here").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        // Every write to /dev/full fails as on a full disk.
        std::os::unix::fs::symlink("/dev/full", dir.path().join("m.gguf.partial")).unwrap();
        let mut partial = PartialFile::open(&path).unwrap();
        let error = partial.write(BODY).unwrap_err();
        assert!(error.is_local());
        let text = error.to_string();
        assert!(
            text.starts_with("no space left for") && text.contains("m.gguf.partial"),
            "{text}"
        );
        assert!(text.contains("are free") && !text.contains('\n'), "{text}");
    }
}
