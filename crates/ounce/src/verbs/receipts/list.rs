//! `ounce receipts list`.

use std::path::PathBuf;

use ounce_engine::receipt::{Entry, list};
use serde_json::json;

use super::{all, columns};
use crate::out::{self, plain};
use crate::receipt::default_folder;

pub fn run(folder: Option<PathBuf>, json: bool) -> Result<(), Box<dyn std::error::Error>> {
    let listing = match &folder {
        Some(folder) => list(folder)?,
        None => all(&default_folder()?)?,
    };
    for skipped in &listing.skipped {
        out::note(format_args!("skipped: {}", plain(&skipped.to_string())));
    }
    let entries: Vec<(Entry, bool)> = listing
        .entries
        .into_iter()
        .map(|e| {
            let intact = e.receipt.is_intact();
            (e, intact)
        })
        .collect();
    for (e, _) in entries.iter().filter(|(_, intact)| !intact) {
        out::note(format_args!(
            "warning: {} was edited by hand",
            plain(&e.path.display().to_string())
        ));
    }
    if json {
        let item = |(e, intact): &(Entry, bool)| {
            json!({
                "path": e.path.display().to_string(),
                "created": e.receipt.created(),
                "kind": e.receipt.kind(),
                "model": e.receipt.model(),
                "planned_for": e.receipt.get(&["device", "planned_for"]),
                "verdict": e.receipt.verdict(),
                "content_sha256": e.receipt.content_sha256(),
                "intact": intact,
            })
        };
        return Ok(out::json(&entries.iter().map(item).collect())?);
    }
    if entries.is_empty() {
        out::note("no receipts yet; ounce plan MODEL --receipt writes one");
        return Ok(());
    }
    let head = ["CREATED", "KIND", "MODEL", "DEVICE", "VERDICT", "SHA256"].map(str::to_owned);
    let row = |(e, intact): &(Entry, bool)| {
        let r = &e.receipt;
        let device = r.get(&["device", "planned_for"]).and_then(|v| v.as_str());
        let mut verdict = plain(r.verdict().unwrap_or("-"));
        if !intact {
            verdict += " (edited)";
        }
        [
            // To the second.
            plain(r.created()).chars().take(19).collect(),
            plain(r.kind()),
            plain(r.model()),
            plain(device.unwrap_or("-")),
            verdict,
            plain(r.content_sha256()).chars().take(8).collect(),
        ]
    };
    Ok(columns(
        [head].into_iter().chain(entries.iter().map(row)).collect(),
    )?)
}
