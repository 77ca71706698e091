//! The flags about receipts, and what every receipt says of this program.

use std::path::{Path, PathBuf};

use ounce_engine::receipt::{Ran, Receipt, ReceiptError};
use ounce_store::{Store, StoreError};

use crate::out;

/// Commit this binary was built from, with `-dirty` where its sources differed from it; `unknown` where there was no git.
pub const COMMIT: &str = env!("OUNCE_COMMIT");

/// Whether and where a receipt is kept.
#[derive(clap::Args, Clone, Debug)]
pub struct ReceiptArgs {
    // With `=` alone: otherwise `--receipt model.gguf` would take the model for the place.
    /// Keeps a record of this, by default among those that `ounce receipts list` shows. PATH is a file, or a folder
    /// (there already, or ending in /) in which the record gets a name; it follows an `=`.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    receipt: Option<Option<PathBuf>>,
}

impl ReceiptArgs {
    /// Where the receipt goes, if one was asked for.
    ///
    /// # Errors
    /// There is no place for a store.
    pub fn place(&self) -> Result<Option<PathBuf>, StoreError> {
        match &self.receipt {
            None => Ok(None),
            Some(Some(path)) => Ok(Some(path.clone())),
            Some(None) => default_folder().map(Some),
        }
    }
}

/// Where a receipt is kept by verbs that always write one.
#[derive(clap::Args, Clone, Debug)]
pub struct KeepArgs {
    /// Keeps the record there, not among those that `ounce receipts list` shows. PATH is a file, or a folder (there
    /// already, or ending in /) in which the record gets a name.
    #[arg(long, value_name = "PATH", conflicts_with = "no_receipt")]
    receipt: Option<PathBuf>,
    /// Keeps no record.
    #[arg(long)]
    no_receipt: bool,
}

impl KeepArgs {
    /// Where the receipt goes; `None` where none is wanted.
    ///
    /// # Errors
    /// There is no place for a store.
    pub fn place(&self) -> Result<Option<PathBuf>, StoreError> {
        match &self.receipt {
            _ if self.no_receipt => Ok(None),
            Some(path) => Ok(Some(path.clone())),
            None => default_folder().map(Some),
        }
    }
}

/// The folder of receipts beside the models, ending in a separator so that it is made when it is missing.
///
/// # Errors
/// There is no place for a store.
pub fn default_folder() -> Result<PathBuf, StoreError> {
    Ok(Store::open()?.receipts().join(""))
}

/// What runs, for the record.
pub fn ran() -> Ran {
    Ran {
        arguments: std::env::args_os()
            .skip(1)
            .map(|a| a.to_string_lossy().into_owned())
            .collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: COMMIT.to_owned(),
    }
}

/// Writes the receipt and says where it is.
///
/// # Errors
/// See [`Receipt::save`].
pub fn save(receipt: &Receipt, place: &Path) -> Result<(), ReceiptError> {
    let path = receipt.save(place)?;
    out::note(format_args!("receipt: {}", path.display()));
    Ok(())
}
