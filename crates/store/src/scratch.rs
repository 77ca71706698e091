//! Temporary folders inside the store, so that they are on its disk. One that a crash
//! left behind is removed the next time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::StoreError;

/// A folder that is deleted with everything in it when this is dropped.
pub(crate) struct Scratch {
    path: PathBuf,
    lock: PathBuf,
    /// Held as long as the folder is in use; the system lets go of it in a crash.
    _held: File,
}

impl Scratch {
    /// A new folder below `home/tmp`.
    pub(crate) fn create(home: &Path) -> Result<Self, StoreError> {
        let parent = home.join("tmp");
        fs::create_dir_all(&parent).map_err(|e| StoreError::io("create", &parent, e))?;
        // One process at a time looks for what is left over and takes a name.
        let gate = open_locked(&parent.join("gate.lock"), true)?;
        remove_stale(&parent);
        for number in 0..10_000 {
            let name = format!("{}-{number}", std::process::id());
            let path = parent.join(&name);
            let lock = parent.join(format!("{name}.lock"));
            if path.exists() || lock.exists() {
                continue;
            }
            let held = open_locked(&lock, true)?;
            fs::create_dir(&path).map_err(|e| StoreError::io("create", &path, e))?;
            drop(gate);
            return Ok(Self {
                path,
                lock,
                _held: held,
            });
        }
        Err(StoreError::Busy {
            name: parent.display().to_string(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes everything in the folder.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        let io = |action| move |e| StoreError::io(action, &self.path, e);
        fs::remove_dir_all(&self.path).map_err(io("delete"))?;
        fs::create_dir(&self.path).map_err(io("create"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be deleted now is deleted as stale next time.
        let _ = fs::remove_dir_all(&self.path);
        let _ = fs::remove_file(&self.lock);
    }
}

/// Opens a lock file and locks it; without `wait`, fails with `Busy` if it is taken.
pub(crate) fn open_locked(path: &Path, wait: bool) -> Result<File, StoreError> {
    let io = |e| StoreError::io("lock", path, e);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|e| StoreError::io("create", path, e))?;
    if wait {
        file.lock().map_err(io)?;
        return Ok(file);
    }
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(StoreError::Busy {
            name: path.display().to_string(),
        }),
        Err(fs::TryLockError::Error(e)) => Err(io(e)),
    }
}

fn remove_stale(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for lock in entries.flatten().map(|entry| entry.path()) {
        let folder = lock.with_extension("");
        let is_lock = lock.extension().is_some_and(|ext| ext == "lock");
        if is_lock && !lock.ends_with("gate.lock") && open_locked(&lock, false).is_ok() {
            let _ = fs::remove_dir_all(&folder);
            let _ = fs::remove_file(&lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_go_away_also_after_a_crash() {
        let home = tempfile::tempdir().unwrap();
        let tmp = home.path().join("tmp");
        fs::create_dir_all(tmp.join("99-0")).unwrap();
        fs::write(tmp.join("99-0/big.whl"), b"x").unwrap();
        fs::write(tmp.join("99-0.lock"), b"").unwrap();

        let first = Scratch::create(home.path()).unwrap();
        assert!(!tmp.join("99-0").exists());
        fs::write(first.path().join("f"), b"x").unwrap();
        let second = Scratch::create(home.path()).unwrap();
        assert!(first.path().join("f").exists(), "a folder in use stays");
        assert_ne!(first.path(), second.path());
        first.clear().unwrap();
        assert!(!first.path().join("f").exists());
        drop((first, second));
        let left: Vec<_> = fs::read_dir(&tmp)
            .unwrap()
            .flatten()
            .map(|e| e.file_name())
            .collect();
        assert_eq!(left, ["gate.lock"]);
    }
}
