//! `ounce version`: what this build is and what it chose on this machine.

use std::process::ExitCode;

use ounce_kernels::{Isa, default_threads};
use serde_json::json;

use crate::receipt::COMMIT;
use crate::{Outcome, out};

/// Prints the version and its commit, the instruction set chosen on this machine and the default number of threads
#[derive(clap::Args)]
pub struct Args {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Outcome {
    let (version, isa, threads) = (env!("CARGO_PKG_VERSION"), Isa::choose()?, default_threads());
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    if args.json {
        out::json(
            &json!({ "version": version, "commit": COMMIT, "target": target, "isa": isa.to_string(), "threads": threads }),
        )?;
    } else {
        out::line(format_args!(
            "ounce {version} ({target}, {isa}, {threads} threads, commit {COMMIT})"
        ))?;
    }
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}
