//! `ounce receipts markdown`.

use ounce_engine::receipt::{Flaw, Receipt, ReceiptError};
use serde_json::Value;

use super::{all, read};
use crate::out::{self, plain};
use crate::receipt::default_folder;

/// A column: its head, and what a record has for it.
type Column = (&'static str, fn(&Receipt) -> Option<String>);

const COLUMNS: [Column; 10] = [
    ("Model", |r| Some(r.model().to_owned())),
    ("Kind", |r| Some(r.kind().to_owned())),
    ("Device", device),
    ("Memory", |r| {
        bytes(r, &["plan", "device", "total_bytes"])
            .or_else(|| bytes(r, &["device", "memory_total_bytes"]))
    }),
    ("Context", |r| {
        r.get(&["plan", "n_ctx"])?.as_u64().map(|n| n.to_string())
    }),
    ("Weights", |r| bytes(r, &["file", "bytes"])),
    ("Committed, planned", |r| {
        bytes(r, &["plan", "heap_needed_bytes"])
    }),
    ("Decode ms, median (p95)", |r| {
        let of = |field| r.get(&["distributions", "decode_ms", field])?.as_f64();
        Some(format!("{:.1} ({:.1})", of("median")?, of("p95")?))
    }),
    ("Verdict", |r| r.verdict().map(|v| v.replace('_', " "))),
    ("Ounce", |r| {
        let of = |field| r.get(&["ran", field]).and_then(Value::as_str);
        Some(format!("{} ({})", of("version")?, of("commit")?))
    }),
];

pub fn run(records: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let mut receipts = Vec::new();
    for reference in records {
        receipts.push(read(reference)?);
    }
    if records.is_empty() {
        let folder = default_folder()?;
        let listing = all(&folder)?;
        for skipped in &listing.skipped {
            out::note(format_args!("skipped: {}", plain(&skipped.to_string())));
        }
        for e in listing.entries {
            if !e.receipt.is_intact() {
                let (path, flaw) = (e.path, Flaw::Edited);
                return Err(ReceiptError::Flawed { path, flaw }.into());
            }
            receipts.push(e.receipt);
        }
        if receipts.is_empty() {
            return Err(ReceiptError::Empty(folder).into());
        }
    }
    row(COLUMNS.iter().map(|c| c.0.to_owned()))?;
    row(COLUMNS.iter().map(|_| "---".to_owned()))?;
    for r in &receipts {
        row(COLUMNS.iter().map(|c| (c.1)(r).unwrap_or_default()))?;
    }
    Ok(())
}

fn row(cells: impl Iterator<Item = String>) -> Result<(), out::StdoutError> {
    let cells: Vec<String> = cells.map(|c| cell(&c)).collect();
    out::line(format_args!("| {} |", cells.join(" | ")))
}

/// A text that stays in its cell.
fn cell(text: &str) -> String {
    plain(text)
        .replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}

/// The profile, or else what this machine's board or CPU is called.
fn device(r: &Receipt) -> Option<String> {
    let of = |field| r.get(&["device", field]).and_then(Value::as_str);
    let name = match of("planned_for") {
        Some(profile) if profile != "this machine" => profile,
        _ => of("board").or_else(|| of("cpu")).or_else(|| of("isa"))?,
    };
    Some(name.to_owned())
}

fn bytes(r: &Receipt, path: &[&str]) -> Option<String> {
    r.get(path)?.as_u64().map(out::bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn cells_end_where_they_should() {
        assert_eq!(
            super::cell("<a|b\\c\n\u{1b}[31m"),
            "&lt;a\\|b\\\\c\u{fffd}\u{fffd}[31m"
        );
    }
}
