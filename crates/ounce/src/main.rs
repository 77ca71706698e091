//! The `ounce` binary: one file a verb, no logic of its own.
#![forbid(unsafe_code)]

mod admit;
mod args;
mod model;
mod out;
mod progress;
mod prompt;
mod receipt;
mod verbs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Counts what the sections of a plan really take on the heap.
#[global_allocator]
static ALLOC: ounce_engine::memory::alloc::CountingAlloc =
    ounce_engine::memory::alloc::CountingAlloc;

/// Exit codes, as `--help` lists them.
mod exit {
    /// Something failed; one line on stderr says what.
    pub const ERROR: u8 = 1;
    /// The plan fits with weights streamed from storage.
    pub const STREAMS: u8 = 2;
    /// The plan does not fit.
    pub const DOES_NOT_FIT: u8 = 3;
    /// Wrong usage (`EX_USAGE`).
    pub const USAGE: u8 = 64;
    /// The system refused memory (`EX_OSERR`).
    pub const NO_MEMORY: u8 = ounce_engine::memory::alloc::EXIT_NO_MEMORY as u8;
    /// A model file changed, or its storage failed, while it was in use.
    pub const FILE_CHANGED: u8 = ounce_engine::memory::EXIT_FILE_CHANGED as u8;
    /// A write to a closed pipe, as a process killed by SIGPIPE would report it.
    pub const BROKEN_PIPE: u8 = 141;
    /// Stopped by Ctrl-C.
    pub const INTERRUPTED: u8 = 130;
}

const EXAMPLES: &str = "\
Examples:
  ounce run \"Why is the sky blue?\"             the default model, pulled on first use
  ounce run smollm2 \"Why is the sky blue?\"     a model by name
  ounce run ./model.gguf                       an interactive chat
  cat report.txt | ounce run qwen3.5:0.8b \"Summarise this.\"
  ounce show ./model.gguf --json               what a file holds
  ounce plan ./model.gguf --profile vm-2gb     what it would cost, and whether it fits
  ounce measure ./model.gguf -c 512            what it does cost, beside the plan
  ounce bench ./model.gguf                     how fast it is, beside what the machine could do
  ounce receipts list                          what was measured, as records

Exit codes:
  0 done   1 failed, with one line on stderr   2 (plan) weights are streamed   3 the plan does not fit
  64 wrong usage   71 out of memory   74 a model file changed while in use
  130 stopped by Ctrl-C   141 the reader of stdout went away

Environment:
  OUNCE_HOME  where pulled models and receipts are kept     OUNCE_ISA  scalar, avx2, avx512 or neon
  HF_ENDPOINT, HF_TOKEN, HTTPS_PROXY, NO_PROXY, OLLAMA_MODELS  as their owners define them";

/// Runs language models on machines with little memory, weights read in place from the file.
#[derive(Parser)]
#[command(name = "ounce", version, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Run(Box<verbs::run::Args>),
    Plan(verbs::plan::Args),
    Measure(Box<verbs::measure::Args>),
    Bench(Box<verbs::bench::Args>),
    Receipts(verbs::receipts::Args),
    Pull(verbs::pull::Args),
    List(verbs::list::Args),
    Rm(verbs::rm::Args),
    Show(verbs::show::Args),
    Tokenize(verbs::tokenize::Args),
    Template(verbs::template::Args),
    Logits(verbs::logits::Args),
    Completions(verbs::completions::Args),
    Version(verbs::version::Args),
}

/// What a verb returns: the exit code of success, or the line of its failure.
type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(args::expand(std::env::args_os())) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    let outcome = match cli.verb {
        Verb::Run(a) => verbs::run::run(*a),
        Verb::Plan(a) => verbs::plan::run(a),
        Verb::Measure(a) => verbs::measure::run(*a),
        Verb::Bench(a) => verbs::bench::run(*a),
        Verb::Receipts(a) => verbs::receipts::run(a),
        Verb::Pull(a) => verbs::pull::run(a),
        Verb::List(a) => verbs::list::run(a),
        Verb::Rm(a) => verbs::rm::run(a),
        Verb::Show(a) => verbs::show::run(a),
        Verb::Tokenize(a) => verbs::tokenize::run(a),
        Verb::Template(a) => verbs::template::run(a),
        Verb::Logits(a) => verbs::logits::run(a),
        Verb::Completions(a) => verbs::completions::run(a),
        Verb::Version(a) => verbs::version::run(a),
    };
    outcome.unwrap_or_else(|e| {
        if out::is_broken_pipe(e.as_ref()) {
            return ExitCode::from(exit::BROKEN_PIPE);
        }
        out::error(e.as_ref());
        let engine = e.downcast_ref::<ounce_engine::EngineError>();
        ExitCode::from(match engine {
            Some(e) if e.is_file_changed() => exit::FILE_CHANGED,
            Some(e) if e.is_no_memory() => exit::NO_MEMORY,
            None if e.is::<admit::Refused>() => exit::DOES_NOT_FIT,
            _ => exit::ERROR,
        })
    })
}
