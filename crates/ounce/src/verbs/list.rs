//! `ounce list`: the models on this machine.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ounce_store::{Listed, Owner, Store};
use serde_json::{Value, json};

use crate::{Outcome, out};

/// Lists the models on this machine, those of ollama's store included
#[derive(clap::Args)]
pub struct Args {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Outcome {
    let models = Store::open()?.list()?;
    if args.json {
        out::json(&Value::from_iter(models.iter().map(document)))?;
    } else if models.is_empty() {
        out::note("no models yet; ounce pull smollm2 fetches a small one");
    } else {
        let width = models
            .iter()
            .map(|m| m.name.chars().count())
            .max()
            .unwrap_or(0)
            .max(4);
        out::line(format_args!(
            "{:<width$}  {:>8}  {:<14}  {:<8}  WHERE",
            "NAME", "SIZE", "MODIFIED", "OF"
        ))?;
        for m in &models {
            let when = m.modified.map_or_else(|| "unknown".to_owned(), ago);
            let state = if m.complete {
                ""
            } else {
                "  (pull not finished: pull again to resume)"
            };
            let size = out::bytes(m.size);
            out::line(format_args!(
                "{:<width$}  {size:>8}  {when:<14}  {:<8}  {}{state}",
                m.name,
                owner(m.owner),
                m.location.display()
            ))?;
        }
    }
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}

fn owner(owner: Owner) -> &'static str {
    match owner {
        Owner::User => "user",
        Owner::Ounce => "ounce",
        Owner::Ollama => "ollama",
        Owner::HuggingFace => "hf cache",
    }
}

fn document(m: &Listed) -> Value {
    let modified = m
        .modified
        .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
        .map(|d| d.as_secs());
    json!({
        "name": m.name,
        "bytes": m.size,
        "modified_unix": modified,
        "owner": owner(m.owner),
        "path": m.location.display().to_string(),
        "complete": m.complete,
        "source": m.source,
        "licence": m.licence,
    })
}

/// As ollama puts it: "3 days ago".
fn ago(then: SystemTime) -> String {
    let seconds = SystemTime::now()
        .duration_since(then)
        .map_or(0, |d| d.as_secs());
    let (n, unit) = match seconds {
        0..60 => return "now".to_owned(),
        60..3600 => (seconds / 60, "minute"),
        3600..86_400 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{n} {unit}{} ago", if n == 1 { "" } else { "s" })
}
