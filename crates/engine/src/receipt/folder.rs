//! A folder of records: all of them, and one by what a user calls it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Receipt, ReceiptError};

/// A record and where it lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The file.
    pub path: PathBuf,
    /// What is in it, edited or not.
    pub receipt: Receipt,
}

/// What a folder holds.
#[derive(Debug, Default)]
pub struct Listing {
    /// The records, the oldest first.
    pub entries: Vec<Entry>,
    /// What is in the way: damaged records and other files.
    pub skipped: Vec<ReceiptError>,
}

/// Reads every file of a folder; folders in it and hidden files are passed over.
///
/// # Errors
/// The folder cannot be read.
pub fn list(folder: &Path) -> Result<Listing, ReceiptError> {
    let fail = |e| ReceiptError::io("read", folder, e);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && !entry.path().is_dir() {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    let mut listing = Listing::default();
    for path in paths {
        match Receipt::read_unverified(&path) {
            Ok(receipt) => listing.entries.push(Entry { path, receipt }),
            Err(e) => listing.skipped.push(e),
        }
    }
    // Stable: records of one moment stay in the order of their names.
    let by_time = |a: &Entry, b: &Entry| a.receipt.created().cmp(b.receipt.created());
    listing.entries.sort_by(by_time);
    Ok(listing)
}

/// The file that `reference` means: a path, `last` for the newest record in `folder`, or what the name or the hash of one
/// record in it begins with.
///
/// # Errors
/// None, or several; the folder cannot be read.
pub fn find(folder: &Path, reference: &str) -> Result<PathBuf, ReceiptError> {
    let path = Path::new(reference);
    if reference.contains('/') || path.is_file() {
        return Ok(path.to_owned());
    }
    let unknown = || ReceiptError::Unknown {
        reference: reference.to_owned(),
        folder: folder.to_owned(),
    };
    let mut entries = match list(folder) {
        Ok(listing) => listing.entries,
        Err(ReceiptError::NotFound(_)) => Vec::new(),
        Err(e) => return Err(e),
    };
    if reference == "last" {
        let last = entries.pop();
        return last
            .map(|e| e.path)
            .ok_or_else(|| ReceiptError::Empty(folder.to_owned()));
    }
    let is_meant = |e: &Entry| {
        let name = e.path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(reference) || e.receipt.content_sha256().starts_with(reference)
    };
    entries.retain(|e| !reference.is_empty() && is_meant(e));
    match entries.len() {
        0 => Err(unknown()),
        1 => Ok(entries.remove(0).path),
        n => Err(ReceiptError::Ambiguous {
            reference: reference.to_owned(),
            n,
        }),
    }
}
