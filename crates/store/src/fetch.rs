//! Carrying out a plan: lock, fetch, verify, record.

use std::fs;
use std::path::{Path, PathBuf};

use crate::download::{Download, download};
use crate::event::{Event, Events};
use crate::http::{Http, Token};
use crate::ollama::OllamaExtras;
use crate::partial::Expect;
use crate::record::{FileRecord, RECORD_FILE, Record, now};
use crate::shelf::Shelf;
use crate::source::{Plan, WantedFile, Work};
use crate::{Settings, StoreError, space, wheels};

/// Does the work of `plan` unless its result is already there. Returns the folder of the
/// model and its record.
pub(crate) fn fetch(
    http: &Http,
    settings: &Settings,
    plan: &Plan,
    licence: Option<&str>,
    events: Events,
) -> Result<(PathBuf, Record), StoreError> {
    let shelf = Shelf::new(&settings.home);
    let folder = shelf.folder(&plan.name);
    fs::create_dir_all(&folder).map_err(|e| StoreError::io("create", &folder, e))?;
    let _lock = shelf.lock(&plan.name, events)?;
    // A removal between the two lines above may have taken the folder.
    fs::create_dir_all(&folder).map_err(|e| StoreError::io("create", &folder, e))?;

    let before = Record::load(&folder).filter(|record| record.is_intact(&folder));
    if let Some(record) = before.as_ref().filter(|record| is_current(record, plan)) {
        let mut record = record.clone();
        events(Event::Note(format!("{} is up to date", record.name)));
        add_alias(&mut record, plan, &folder)?;
        return Ok((folder, record));
    }
    let mut record = Record::begin(&plan.name, &plan.source);
    if before.is_none() {
        record.save(&folder)?;
    }
    let (files, extras) = match work(http, settings, plan, &folder, events) {
        Ok(result) => result,
        Err(error) => {
            if before.is_none() {
                remove_if_empty(&folder)?;
            }
            return Err(error);
        }
    };
    record.files = files;
    record.ollama = extras;
    record.licence = licence.map(str::to_owned);
    record.aliases = before.map(|before| before.aliases).unwrap_or_default();
    record.pulled = now();
    record.complete = true;
    add_alias(&mut record, plan, &folder)?;
    record.save(&folder)?;
    remove_others(&folder, &record)?;
    Ok((folder, record))
}

fn work(
    http: &Http,
    settings: &Settings,
    plan: &Plan,
    folder: &Path,
    events: Events,
) -> Result<(Vec<FileRecord>, Option<OllamaExtras>), StoreError> {
    match &plan.work {
        Work::Files {
            files,
            token,
            extras,
        } => {
            let files = fetch_files(http, settings, files, token.as_ref(), folder, events)?;
            Ok((files, extras.clone()))
        }
        Work::Wheels { packages, expect } => {
            let files = wheels::fetch(settings, packages, expect, folder, events)?;
            Ok((files, None))
        }
    }
}

fn add_alias(record: &mut Record, plan: &Plan, folder: &Path) -> Result<(), StoreError> {
    if let Some(alias) = plan.alias.as_ref().filter(|alias| !record.is_called(alias)) {
        record.aliases.push(alias.clone());
        return record.save(folder);
    }
    Ok(())
}

/// Whether the recorded files are what the plan would fetch. Where the source states no
/// hash, having them from that source is enough.
fn is_current(record: &Record, plan: &Plan) -> bool {
    let wanted: Vec<&Expect> = match &plan.work {
        Work::Files { files, .. } => files.iter().map(|file| &file.expect).collect(),
        Work::Wheels { expect, .. } => vec![expect],
    };
    if wanted.iter().any(|expect| expect.sha256.is_none()) {
        return record.source == plan.source;
    }
    wanted.len() == record.files.len()
        && wanted
            .iter()
            .zip(&record.files)
            .all(|(w, have)| w.sha256.as_ref() == Some(&have.sha256))
}

fn fetch_files(
    http: &Http,
    settings: &Settings,
    files: &[WantedFile],
    token: Option<&Token>,
    folder: &Path,
    events: Events,
) -> Result<Vec<FileRecord>, StoreError> {
    // Sizes that are known are checked for all files before the first one starts.
    let missing = |wanted: &WantedFile| {
        let path = folder.join(format!("{}.partial", wanted.file));
        let have = fs::metadata(path).map_or(0, |about| about.len());
        wanted.expect.size.unwrap_or(0).saturating_sub(have)
    };
    space::require(
        folder,
        files.iter().map(missing).fold(0, u64::saturating_add),
    )?;
    files
        .iter()
        .map(|wanted| {
            let final_path = folder.join(&wanted.file);
            let job = Download {
                url: &wanted.url,
                token,
                trust_linked: wanted.url.starts_with(&settings.hf_endpoint),
                final_path: &final_path,
                expect: wanted.expect.clone(),
            };
            download(http, settings, &job, events)
        })
        .collect()
}

/// Deletes what earlier attempts and an earlier version of the model left behind.
fn remove_others(folder: &Path, record: &Record) -> Result<(), StoreError> {
    let entries = fs::read_dir(folder).map_err(|e| StoreError::io("read", folder, e))?;
    for path in entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
    {
        let keep = |name: &str| path.ends_with(name);
        if !keep(RECORD_FILE) && !record.files.iter().any(|file| keep(&file.file)) {
            fs::remove_file(&path).map_err(|e| StoreError::io("delete", &path, e))?;
        }
    }
    Ok(())
}

/// Deletes the folder of a pull that failed and left nothing to resume.
fn remove_if_empty(folder: &Path) -> Result<(), StoreError> {
    let io = |e| StoreError::io("read", folder, e);
    let entries = fs::read_dir(folder).map_err(io)?;
    let is_model = |path: &PathBuf| {
        let empty = fs::metadata(path).is_ok_and(|about| about.len() == 0);
        !path.ends_with(RECORD_FILE) && path.extension().is_none_or(|e| e != "json") && !empty
    };
    if entries.flatten().any(|entry| is_model(&entry.path())) {
        return Ok(());
    }
    fs::remove_dir_all(folder).map_err(|e| StoreError::io("delete", folder, e))
}
