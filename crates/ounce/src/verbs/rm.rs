//! `ounce rm`: a pulled model off this machine.

use std::process::ExitCode;

use ounce_store::{ModelRef, Store};

use crate::{Outcome, out};

/// Removes pulled models; ollama's own are left alone
#[derive(clap::Args)]
pub struct Args {
    /// Names as `ounce list` shows them.
    #[arg(required = true)]
    models: Vec<String>,
}

pub fn run(args: Args) -> Outcome {
    let store = Store::open()?;
    for model in &args.models {
        let reference: ModelRef = model.parse()?;
        store.remove(&reference)?;
        out::note(format_args!("removed {model}"));
    }
    Ok(ExitCode::SUCCESS)
}
