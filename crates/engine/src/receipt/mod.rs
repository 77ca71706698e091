//! Receipts: what was planned or measured, on what, from which file, as one JSON record that others can repeat.
//!
//! `docs/receipts.md` describes every field. A record names no person and no machine: the device is its parts and sizes,
//! paths are reduced to file names. Its last field is a hash of all others, so that a record that was edited by hand is
//! told from one that was written; it proves nothing about who wrote it.

mod arguments;
mod builder;
mod canonical;
mod diff;
mod distribution;
mod error;
mod fingerprint;
mod folder;
mod model_file;
mod read;
mod save;

pub use builder::{Kind, Ran, ReceiptBuilder};
pub use diff::{Difference, diff};
pub use distribution::Distribution;
pub use error::{Flaw, ReceiptError};
pub use fingerprint::{CpuPart, Fingerprint, MemoryLimit};
pub use folder::{Entry, Listing, find, list};

use serde_json::{Map, Value};

/// What the field `schema` of every receipt says.
pub const SCHEMA: &str = "ounce.receipt";
/// The version of the schema that this build writes, and the newest it reads.
pub const VERSION: u64 = 1;

/// A record, whole and of a version this build knows; [`Receipt::is_intact`] says whether its hash holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    document: Map<String, Value>,
}

impl Receipt {
    /// All fields, in the order in which they were written.
    pub fn document(&self) -> &Map<String, Value> {
        &self.document
    }

    /// The value at a path of keys.
    pub fn get(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter()
            .try_fold(self.document.get(*first)?, |value, key| value.get(key))
    }

    /// `plan`, `measure` or `bench`.
    pub fn kind(&self) -> &str {
        self.text(&["kind"])
    }

    /// When it was made: RFC 3339, UTC, to the millisecond.
    pub fn created(&self) -> &str {
        self.text(&["created"])
    }

    /// File name of the model.
    pub fn model(&self) -> &str {
        self.text(&["file", "name"])
    }

    /// The hash it carries.
    pub fn content_sha256(&self) -> &str {
        self.text(&[canonical::HASH_FIELD])
    }

    /// The name of its verdict, where it has one.
    pub fn verdict(&self) -> Option<&str> {
        self.get(&["verdict", "name"])?.as_str()
    }

    /// Whether its values give the hash it carries.
    pub fn is_intact(&self) -> bool {
        self.content_sha256() == canonical::hash(&self.document)
    }

    /// The record as it is written to a file: indented, with a line feed at its end.
    pub fn to_json(&self) -> String {
        // A value cannot fail to be written to a string.
        serde_json::to_string_pretty(&self.document).unwrap_or_default() + "\n"
    }

    /// A field that [`Receipt::parse`] has seen.
    fn text(&self, path: &[&str]) -> &str {
        self.get(path).and_then(Value::as_str).unwrap_or_default()
    }
}
