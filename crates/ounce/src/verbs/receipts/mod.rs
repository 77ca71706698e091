//! `ounce receipts`: the records of plans and measurements, read back.

mod list;
mod markdown;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use ounce_engine::receipt::{Difference, Receipt, ReceiptError, diff, find};
use serde_json::{Value, json};

use crate::receipt::default_folder;
use crate::{Outcome, out};

/// Lists, shows and compares the records that plan, measure and bench keep
///
/// A record is named by its path, by `last`, or by what its file name or its content_sha256 begins with.
/// docs/receipts.md describes every field.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Lists the records, the oldest first
    List {
        /// A folder of records [default: receipts, beside the pulled models].
        folder: Option<PathBuf>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows all of a record
    Show {
        /// The record.
        record: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows every value that differs between two records, with the ratio of numbers
    Diff {
        /// The record to compare with.
        a: String,
        /// The record that is compared.
        b: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Prints records as a Markdown table, for a README or an issue
    Markdown {
        /// The records [default: all].
        records: Vec<String>,
    },
}

pub fn run(args: Args) -> Outcome {
    match args.action {
        Action::List { folder, json } => list::run(folder, json)?,
        Action::Show { record, json } => {
            let receipt = read(&record)?;
            match json {
                true => out::text(&receipt.to_json())?,
                false => report::print(receipt.document())?,
            }
        }
        Action::Diff { a, b, json } => compare(&read(&a)?, &read(&b)?, json)?,
        Action::Markdown { records } => markdown::run(&records)?,
    }
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The record that is meant, if it is as it was written.
fn read(reference: &str) -> Result<Receipt, Box<dyn std::error::Error>> {
    Ok(Receipt::read(&find(&default_folder()?, reference)?)?)
}

/// The records in the default folder, which may be missing.
fn all(folder: &std::path::Path) -> Result<ounce_engine::receipt::Listing, ReceiptError> {
    match ounce_engine::receipt::list(folder) {
        Err(ReceiptError::NotFound(_)) => Ok(Default::default()),
        other => other,
    }
}

fn compare(a: &Receipt, b: &Receipt, json: bool) -> Result<(), out::StdoutError> {
    let found = diff(a, b);
    if json {
        let item =
            |d: &Difference| json!({ "path": d.path, "a": d.a, "b": d.b, "ratio": d.ratio() });
        return out::json(&found.iter().map(item).collect());
    }
    if found.is_empty() {
        out::note("no differences");
        return Ok(());
    }
    let rows = found.iter().map(|d| {
        let key = d.path.rsplit('.').next().unwrap_or_default();
        let text = |v: &Option<Value>| match v {
            Some(v) => report::text(key, v),
            None => "-".to_owned(),
        };
        let ratio = d.ratio().map_or_else(String::new, |r| format!("x {r:.3}"));
        [out::plain(&d.path), text(&d.a), text(&d.b), ratio]
    });
    columns(rows.collect())
}

/// Prints rows with their columns aligned.
fn columns<const N: usize>(rows: Vec<[String; N]>) -> Result<(), out::StdoutError> {
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let cells = row.iter().zip(widths);
        let line: Vec<String> = cells.map(|(cell, w)| format!("{cell:<w$}")).collect();
        out::line(line.join("  ").trim_end())?;
    }
    Ok(())
}
