//! Records onto disk: whole or not at all, and never over something else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use super::{Receipt, ReceiptError};

/// Characters of a model's name that go into a file name.
const NAME_LEN: usize = 80;

impl Receipt {
    /// Writes the record to `dest`, or under [`Receipt::file_name`] into it if it is a folder or ends in a separator; such
    /// a folder is made. Returns where it is. The file appears whole or not at all.
    ///
    /// # Errors
    /// The place cannot be written, is full, or is taken by a file that is not a record.
    pub fn save(&self, dest: &Path) -> Result<PathBuf, ReceiptError> {
        let text = dest.to_string_lossy();
        let path = if dest.is_dir() || text.ends_with(['/', MAIN_SEPARATOR]) {
            fs::create_dir_all(dest).map_err(|e| ReceiptError::io("create", dest, e))?;
            dest.join(self.file_name())
        } else {
            dest.to_owned()
        };
        // A slip of the hand must not cost a model.
        if path.symlink_metadata().is_ok() && Receipt::read_unverified(&path).is_err() {
            return Err(ReceiptError::Occupied(path));
        }
        write_whole(&path, self.to_json().as_bytes())
            .map_err(|e| ReceiptError::io("write", &path, e))?;
        Ok(path)
    }

    /// `TIME-KIND-MODEL-HASH.json`, made of characters that every file system and shell takes; names sort by time.
    pub fn file_name(&self) -> String {
        let plain = |c: char| match c {
            c if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') => c,
            _ => '_',
        };
        let time = self.created().chars().filter(char::is_ascii_alphanumeric);
        let time: String = time.take(NAME_LEN).collect();
        let model = self.model();
        let model = model.strip_suffix(".gguf").unwrap_or(model);
        let model: String = model.chars().map(plain).take(NAME_LEN).collect();
        let kind: String = self.kind().chars().map(plain).take(NAME_LEN).collect();
        let hash: String = self.content_sha256().chars().map(plain).take(8).collect();
        format!("{time}-{kind}-{model}-{hash}.json")
    }
}

/// Removes the file unless it got its name.
struct Unfinished<'a>(&'a Path);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // Gone already, if it has been renamed.
        let _ = fs::remove_file(self.0);
    }
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)?;
    let unfinished = Unfinished(&temporary);
    fill(&mut file, bytes)?;
    fs::rename(&temporary, path)?;
    drop(unfinished);
    // So that the name survives a crash. Windows cannot open a folder as a file, and journals renames itself.
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn fill(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told_in_one_line() {
        // Every write to /dev/full fails as on a full disk.
        let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = fill(&mut full, b"{}").unwrap_err();
        let text = ReceiptError::io("write", Path::new("r.json"), error).to_string();
        assert!(
            text.starts_with("no space left for the receipt r.json; "),
            "{text}"
        );
    }

    #[test]
    fn what_fails_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let taken = dir.path().join("taken");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("x"), "x").unwrap();
        // A file cannot be renamed to a folder that is not empty.
        write_whole(&taken, b"{}").unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        write_whole(&dir.path().join("r.json"), b"{}").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        write_whole(&dir.path().join("none/r.json"), b"{}").unwrap_err();
    }
}
