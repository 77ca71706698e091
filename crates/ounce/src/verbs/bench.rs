//! `ounce bench`: how fast a model runs here, beside what the machine could do and beside another engine.

mod document;
mod peer;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ounce_engine::Session;
use ounce_engine::bench::{self, Ceilings, Test};
use ounce_engine::model::ModelSpec;
use ounce_engine::receipt::{Fingerprint, Kind, Receipt};
use serde_json::json;

use crate::admit::{Accepted, LoadArgs, accept, load};
use crate::model::{ContextArgs, resolve_file};
use crate::receipt::{self, KeepArgs};
use crate::verbs::plan::report::{CPU, Report};
use crate::verbs::run::interruptible;
use crate::{Outcome, exit, out};

/// Times prompts and generations, as llama-bench does, beside the ceilings of this machine
///
/// Each test runs once to warm up, then -r times. The ceilings are measured in the same run: reading the weights with all
/// threads bounds a generation, multiplying bytes in registers bounds a prompt. With --peer, llama-bench runs the same
/// tests in turn with this one, and the ratio of each pair is taken. Nothing is judged by time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ounce bench ./model.gguf                            pp512 and tg128
  ounce bench ./model.gguf -p 16,128,512 -n 64 -d 0,4096 -r 5
  ounce bench ./model.gguf -n 64 --peer ~/llama.cpp/build/bin/llama-bench")]
pub struct Args {
    /// Path or name of the model.
    #[arg(required_unless_present = "model_flag", conflicts_with = "model_flag")]
    model: Option<String>,
    /// The model, as llama-bench has it.
    #[arg(short = 'm', long = "model", value_name = "MODEL", hide = true)]
    model_flag: Option<String>,
    /// Tokens of the prompts; 0 for none.
    #[arg(
        short = 'p',
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "512"
    )]
    n_prompt: Vec<u32>,
    /// Tokens of the generations; 0 for none.
    #[arg(
        short = 'n',
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "128"
    )]
    n_gen: Vec<u32>,
    /// Tokens that are in the cache before.
    #[arg(
        short = 'd',
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "0"
    )]
    n_depth: Vec<u32>,
    /// Times each test is run.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// How the result is written.
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "md")]
    output: Format,
    /// As JSON; the same as -o json.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// A llama-bench that runs the same tests in turn with this one.
    #[arg(long, value_name = "LLAMA_BENCH")]
    peer: Option<PathBuf>,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Forms of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table, in Markdown.
    Md,
    /// Lines of values, the first of names.
    Csv,
    /// One list.
    Json,
    /// An object a line.
    Jsonl,
}

/// A test and what came of it.
struct Row {
    test: Test,
    /// Tokens a second that the machine would allow.
    limit: f64,
    /// Each run.
    runs: Vec<Duration>,
    /// The peer's, tokens a second; as many as `runs` where there is a peer.
    peer: Vec<f64>,
}

impl Row {
    /// Tokens a second of each run.
    fn rates(&self) -> Vec<f64> {
        let n = self.test.n_tokens() as f64;
        self.runs.iter().map(|d| n / d.as_secs_f64()).collect()
    }

    /// How many times as fast as the peer, pair by pair.
    fn ratios(&self) -> Vec<f64> {
        let pairs = self.rates().into_iter().zip(&self.peer);
        pairs.map(|(ours, theirs)| ours / theirs).collect()
    }
}

/// Everything that was measured.
struct Timed<'a> {
    session: &'a Session,
    ceilings: Ceilings,
    rows: Vec<Row>,
}

pub fn run(args: Args) -> Outcome {
    let model = args.model.as_ref().or(args.model_flag.as_ref());
    let path = resolve_file(model.map_or("", String::as_str))?;
    let tests = tests(&args);
    let Some(n_ctx) = tests.iter().map(Test::n_ctx).max() else {
        return Err("nothing to time: give -p or -n a number above 0".into());
    };
    let cancel = interruptible()?;
    let spec = ModelSpec::open(&path)?;
    let mut params = args.context.params()?;
    let mut open = args.context.open();
    if open.n_ctx {
        params.n_ctx = n_ctx;
        open.n_ctx = false;
    }
    let accepted = accept(&spec, params, open, &args.load)?;
    // Before a limit of our own (--strict-memory) counts as the device's.
    let fingerprint = Fingerprint::here(&accepted.device.name, accepted.plan.params.isa);
    let model = load(spec, &accepted, &args.load)?;
    let Accepted {
        plan, fit, device, ..
    } = accepted;
    let mut session = Session::from_plan(Arc::clone(&model), plan)?;
    let peer = args
        .peer
        .as_ref()
        .map(|p| peer::Peer::new(p, &path, &session));
    let interrupted = || {
        out::note("stopped before every test was run");
        Ok(ExitCode::from(exit::INTERRUPTED))
    };
    let ceilings = Ceilings::measure(&session);
    let mut rows: Vec<Row> = Vec::new();
    for &test in &tests {
        // A first run touches pages and wakes threads.
        if bench::run(&mut session, test, &cancel)?.is_none() {
            return interrupted();
        }
        let limit = ceilings.limit(test, &session);
        let (mut runs, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..args.repetitions {
            let Some(time) = bench::run(&mut session, test, &cancel)? else {
                return interrupted();
            };
            runs.push(time);
            if let Some(peer) = &peer {
                theirs.push(peer.run(test)?);
            }
        }
        rows.push(Row {
            test,
            limit,
            runs,
            peer: theirs,
        });
    }
    let report = Timed {
        session: &session,
        ceilings,
        rows,
    };
    let records = document::records(&report);
    match (args.output, args.json) {
        (Format::Json, _) | (_, true) => out::json(&json!(records))?,
        (Format::Jsonl, _) => {
            for r in &records {
                out::line(r)?;
            }
        }
        (Format::Csv, _) => table::csv(&records)?,
        (Format::Md, _) => table::markdown(&report)?,
    }
    out::flush()?;
    if let Some(place) = args.keep.place()? {
        let plan = Report {
            plan: session.plan(),
            fit: &fit,
            device: &device,
            backend: CPU,
            proposals: &[],
            no_kernel: &[],
            chosen: false,
            storage: None,
        };
        let mut receipt =
            Receipt::builder(Kind::Bench, &receipt::ran(), &model.spec, &fingerprint)?
                .plan(plan.document())
                .actual(document::actual(&report, &records))
                .verdict(json!({ "name": fit.verdict.name() }));
        for row in &report.rows {
            let test = row.test.to_string();
            receipt =
                receipt.distribution(&format!("{test} tokens_per_second"), "1/s", &row.rates());
            receipt = receipt.distribution(&format!("{test} ratio"), "1", &row.ratios());
        }
        receipt::save(&receipt.seal(), &place)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// At each depth the prompts, then the generations.
fn tests(args: &Args) -> Vec<Test> {
    let of = |list: &[u32]| -> Vec<usize> {
        list.iter()
            .filter(|&&n| n > 0)
            .map(|&n| n as usize)
            .collect()
    };
    let mut tests = Vec::new();
    for &depth in &args.n_depth {
        let depth = depth as usize;
        let prompts = of(&args.n_prompt)
            .into_iter()
            .map(|n| Test::Prompt { n, depth });
        tests.extend(prompts);
        let generations = of(&args.n_gen)
            .into_iter()
            .map(|n| Test::Generation { n, depth });
        tests.extend(generations);
    }
    tests
}
