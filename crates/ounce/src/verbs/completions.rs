//! `ounce completions`: shell completion scripts.

use std::process::ExitCode;

use clap::CommandFactory;

use crate::{Cli, Outcome, out};

/// Prints a completion script, for example: ounce completions bash > /etc/bash_completion.d/ounce
#[derive(clap::Args)]
pub struct Args {
    /// The shell.
    shell: clap_complete::Shell,
}

pub fn run(args: Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ounce", &mut script);
    out::text(&String::from_utf8_lossy(&script))?;
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}
