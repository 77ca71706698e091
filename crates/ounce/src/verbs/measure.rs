//! `ounce measure`: what a model really costs, beside what was planned.

mod document;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ounce_engine::measure::{Before, Load, MeasureParams, Measurement, measure, svg};
use ounce_engine::model::ModelSpec;
use ounce_engine::plan::Verdict;
use ounce_engine::receipt::{Fingerprint, Kind, Receipt};
use ounce_engine::{EngineError, Session};
use serde_json::json;

use crate::admit::{Accepted, LoadArgs, accept, load};
use crate::model::{ContextArgs, resolve_file};
use crate::receipt::{self, KeepArgs};
use crate::verbs::plan::report::{CPU, Report};
use crate::verbs::run::interruptible;
use crate::{Outcome, exit, out};

/// Context when none is asked for.
const DEFAULT_CTX: usize = 512;

/// Measures what a model costs: load, every decode step, and plan against actual for each section
///
/// Fills the context: a prompt of -c less the steps, then the steps. The figures come from the kernel's accounts, the
/// allocator and the regions; none is taken from the plan. Nothing is judged by time.
#[derive(clap::Args)]
pub struct Args {
    /// Path or name of the model.
    model: String,
    #[command(flatten)]
    context: ContextArgs,
    /// Decode steps that are measured.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Decode steps before them.
    #[arg(long, value_name = "N", default_value_t = 4)]
    warmup: u32,
    /// Writes step time and resident memory as a picture.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    keep: KeepArgs,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Outcome {
    let path = resolve_file(&args.model)?;
    let steps = MeasureParams {
        streams: false,
        n_steps: args.steps as usize,
        n_warmup: args.warmup as usize,
    };
    let cancel = interruptible()?;
    let before = Before::load();
    let spec = ModelSpec::open(&path)?;
    let mut params = args.context.params()?;
    let mut open = args.context.open();
    if open.n_ctx {
        params.n_ctx = DEFAULT_CTX.min(spec.hparams.n_ctx_train);
        open.n_ctx = false;
    }
    // A chunk that no pass fills would be planned and never used.
    params.n_ubatch = params.n_ubatch.min(steps.n_prompt(params.n_ctx)?);
    let accepted = accept(&spec, params, open, &args.load)?;
    // Before a limit of our own (--strict-memory) counts as the device's.
    let fingerprint = Fingerprint::here(&accepted.device.name, accepted.plan.params.isa);
    let model = load(spec, &accepted, &args.load)?;
    let loaded = Load::since(&before, &model);
    let Accepted {
        plan,
        fit,
        device,
        chosen,
    } = accepted;
    let mut session = Session::from_plan(Arc::clone(&model), plan)?;
    let steps = MeasureParams {
        streams: matches!(fit.verdict, Verdict::Streams { .. }),
        ..steps
    };
    let Some(m) = measure(&mut session, steps, &cancel)? else {
        out::note("stopped before the measurement was whole");
        return Ok(ExitCode::from(exit::INTERRUPTED));
    };
    if let Some(file) = &args.plot {
        plot(file, &svg(&m, &table::title(&session)))?;
    }
    let plan = Report {
        plan: session.plan(),
        fit: &fit,
        device: &device,
        backend: CPU,
        proposals: &[],
        no_kernel: &[],
        chosen,
        storage: None,
    }
    .document();
    let actual = document::document(&session, &loaded, &m);
    if args.json {
        out::json(&json!({ "device": fingerprint, "plan": plan, "actual": actual }))?;
    } else {
        table::print(&session, &fingerprint, &loaded, &m)?;
    }
    out::flush()?;
    if let Some(place) = args.keep.place()? {
        let verdict = json!({ "name": fit.verdict.name(), "kept": m.held.is_kept() });
        let receipt = Receipt::builder(Kind::Measure, &receipt::ran(), &model.spec, &fingerprint)?
            .plan(plan)
            .actual(actual)
            .distribution("decode_ms", "ms", &milliseconds(&m))
            .verdict(verdict);
        receipt::save(&receipt.seal(), &place)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Times of the steps of the steady state.
fn milliseconds(m: &Measurement) -> Vec<f64> {
    let ms = m.steady().iter().map(|s| s.wall.as_secs_f64() * 1e3);
    ms.collect()
}

fn plot(path: &Path, svg: &str) -> Result<(), EngineError> {
    let fail = |e| EngineError::open(path, e);
    let mut file = std::fs::File::create(path).map_err(fail)?;
    file.write_all(svg.as_bytes()).map_err(fail)
}
