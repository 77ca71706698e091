//! The folder of pulled models: `models/<folder>/` with the files and their sidecar.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::StoreError;
use crate::event::{Event, Events};
use crate::record::{Record, folder_name};
use crate::scratch::open_locked;

pub(crate) struct Shelf<'a> {
    home: &'a Path,
}

impl<'a> Shelf<'a> {
    pub(crate) fn new(home: &'a Path) -> Self {
        Self { home }
    }

    /// The folder of the model called `name`, whether or not it exists.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.home.join("models").join(folder_name(name))
    }

    /// Every model with a sidecar, also those still being pulled.
    pub(crate) fn records(&self) -> Result<Vec<(PathBuf, Record)>, StoreError> {
        let models = self.home.join("models");
        let entries = match fs::read_dir(&models) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| StoreError::io("read", &models, e))?,
        };
        let mut records: Vec<(PathBuf, Record)> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter_map(|folder| Record::load(&folder).map(|record| (folder, record)))
            .collect();
        records.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        Ok(records)
    }

    /// The model called `name`, by its own name first, then by another name for it.
    pub(crate) fn find(&self, name: &str) -> Result<Option<(PathBuf, Record)>, StoreError> {
        let folder = self.folder(name);
        if let Some(record) = Record::load(&folder).filter(|record| record.name == name) {
            return Ok(Some((folder, record)));
        }
        Ok(self
            .records()?
            .into_iter()
            .find(|(_, record)| record.is_called(name)))
    }

    /// The model called `name` if all its files are in place.
    pub(crate) fn find_intact(&self, name: &str) -> Result<Option<(PathBuf, Record)>, StoreError> {
        Ok(self
            .find(name)?
            .filter(|(folder, record)| record.is_intact(folder)))
    }

    /// Takes the lock of a model, waiting for another process that pulls it.
    pub(crate) fn lock(&self, name: &str, events: Events) -> Result<File, StoreError> {
        match self.try_lock(name) {
            Err(StoreError::Busy { .. }) => {
                events(Event::Note(format!(
                    "another process is pulling {name}; waiting for it"
                )));
                open_locked(&self.lock_path(name)?, true)
            }
            other => other,
        }
    }

    /// Takes the lock of a model or fails with [`StoreError::Busy`].
    pub(crate) fn try_lock(&self, name: &str) -> Result<File, StoreError> {
        open_locked(&self.lock_path(name)?, false).map_err(|error| match error {
            StoreError::Busy { .. } => StoreError::Busy {
                name: name.to_owned(),
            },
            other => other,
        })
    }

    /// Lock files are outside the model's folder, so that removing a model does not pull
    /// the lock from under a process that waits for it.
    fn lock_path(&self, name: &str) -> Result<PathBuf, StoreError> {
        let locks = self.home.join("locks");
        fs::create_dir_all(&locks).map_err(|e| StoreError::io("create", &locks, e))?;
        Ok(locks.join(format!("{}.lock", folder_name(name))))
    }
}

/// Bytes of all files in a model's folder.
pub(crate) fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .map(|about| about.len())
        .sum()
}
