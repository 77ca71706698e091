//! `ounce measure`: what a model really costs, beside what was planned.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use ounce_engine::measure::{
    Before, Load, MeasureParams, Measurement, SectionActual, TOLERANCE, measure, svg,
};
use ounce_engine::memory::Faults;
use ounce_engine::memory::probe::Resident;
use ounce_engine::model::ModelSpec;
use ounce_engine::{EngineError, Session};
use serde_json::{Value, json};

use crate::admit::{LoadArgs, accept, load};
use crate::model::{ContextArgs, resolve_file};
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
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Outcome {
    let path = resolve_file(&args.model)?;
    let steps = MeasureParams {
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
    let model = load(spec, &accepted, &args.load)?;
    let loaded = Load::since(&before, &model);
    let mut session = Session::from_plan(Arc::clone(&model), accepted.plan)?;
    let Some(m) = measure(&mut session, steps, &cancel)? else {
        out::note("stopped before the measurement was whole");
        return Ok(ExitCode::from(exit::INTERRUPTED));
    };
    if let Some(file) = &args.plot {
        plot(file, &svg(&m, &title(&session)))?;
    }
    if args.json {
        out::json(&document(&session, &loaded, &m))?;
    } else {
        print_load(&session, &loaded)?;
        print_steps(&m)?;
        print_sections(&m)?;
    }
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}

fn title(session: &Session) -> String {
    let p = &session.plan().params;
    let file = session.model().spec.file.path().file_name();
    format!(
        "{}, context {}, cache {}/{}, {} threads, {}",
        file.unwrap_or_default().to_string_lossy(),
        p.n_ctx,
        p.type_k,
        p.type_v,
        p.n_threads,
        p.isa
    )
}

fn plot(path: &std::path::Path, svg: &str) -> Result<(), EngineError> {
    let fail = |e| EngineError::open(path, e);
    let mut file = std::fs::File::create(path).map_err(fail)?;
    file.write_all(svg.as_bytes()).map_err(fail)
}

fn print_load(session: &Session, load: &Load) -> Result<(), out::StdoutError> {
    out::line(title(session))?;
    let rss = |r: Option<Resident>| r.map_or("?".to_owned(), |r| out::bytes(r.total()));
    out::line(format_args!(
        "load      {:.0} ms, {} tensors, {} materialised, resident {} before and {} after, {}",
        load.wall.as_secs_f64() * 1e3,
        load.n_tensors,
        load.materialised.map_or("?".to_owned(), out::bytes),
        rss(load.before),
        rss(load.after),
        faults(load.faults)
    ))
}

fn faults(f: Option<Faults>) -> String {
    f.map_or("faults not counted".to_owned(), |f| {
        format!("{} major and {} minor faults", f.major, f.minor)
    })
}

fn print_steps(m: &Measurement) -> Result<(), out::StdoutError> {
    let seconds = m.prefill.as_secs_f64();
    out::line(format_args!(
        "prefill   {} tokens in {:.0} ms, {:.1} tokens/s, {}",
        m.n_prompt,
        seconds * 1e3,
        m.n_prompt as f64 / seconds,
        faults(m.prefill_faults)
    ))?;
    out::line("step        ms   anonymous        file   major   minor  allocations")?;
    let number = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
    for (i, s) in m.steps.iter().enumerate() {
        out::line(format_args!(
            "{:>4}{}{:>9.2}  {:>10}  {:>10}  {:>6}  {:>6}  {:>11}",
            i + 1,
            if i < m.n_warmup { "w" } else { " " },
            s.wall.as_secs_f64() * 1e3,
            s.rss.map_or("?".to_owned(), |r| out::bytes(r.anon)),
            s.rss.map_or("?".to_owned(), |r| out::bytes(r.file)),
            number(s.faults.map(|f| f.major)),
            number(s.faults.map(|f| f.minor)),
            number(s.allocations.map(|n| n as u64)),
        ))?;
    }
    let ms = milliseconds(m);
    let joules = m.joules_per_token();
    out::line(format_args!(
        "steady    median {:.2} ms a token ({:.1} tokens/s), from {:.2} to {:.2}; {} allocations, {} major faults{}",
        median(&ms),
        1e3 / median(&ms),
        ms.first().copied().unwrap_or(0.0),
        ms.last().copied().unwrap_or(0.0),
        number(m.allocations().map(|n| n as u64)),
        number(m.major_faults()),
        joules.map_or(String::new(), |j| format!("; {j:.3} J a token")),
    ))
}

/// Times of the steady state, ascending.
fn milliseconds(m: &Measurement) -> Vec<f64> {
    let mut ms: Vec<f64> = m
        .steady()
        .iter()
        .map(|s| s.wall.as_secs_f64() * 1e3)
        .collect();
    ms.sort_by(f64::total_cmp);
    ms
}

/// Of values that ascend.
fn median(values: &[f64]) -> f64 {
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print_sections(m: &Measurement) -> Result<(), out::StdoutError> {
    out::line("section                    plan    actual    drift")?;
    for s in m.held.sections.iter().filter(|s| !is_empty(s)) {
        out::line(format_args!(
            "  {:<22} {:>8}  {:>8}  {:>7}{}",
            s.section.name,
            out::bytes(s.section.bytes),
            s.actual.map_or("?".to_owned(), out::bytes),
            s.drift()
                .map_or("?".to_owned(), |d| format!("{:+.1} %", d * 1e2)),
            match s.is_kept() {
                Some(false) => "  off by more than 10 %",
                _ => "",
            }
        ))?;
    }
    let held = &m.held;
    let resident = held.resident.map(|r| r.total());
    out::line(format_args!(
        "  {:<22} {:>8}  {:>8}  peak {}",
        "resident in all",
        out::bytes(held.planned),
        resident.map_or("?".to_owned(), out::bytes),
        held.resident.map_or("?".to_owned(), |r| out::bytes(r.peak)),
    ))?;
    out::line(match held.is_kept() {
        Some(true) => "the plan was kept",
        Some(false) => "the plan was not kept",
        None => "the plan was not checked: /proc/self/smaps or status cannot be read here",
    })
}

fn is_empty(s: &SectionActual) -> bool {
    s.section.bytes == 0 && s.actual.is_none_or(|n| n == 0)
}

fn document(session: &Session, load: &Load, m: &Measurement) -> Value {
    let p = &session.plan().params;
    let resident = |r: Option<Resident>| {
        r.map(|r| json!({ "anonymous_bytes": r.anon, "file_bytes": r.file, "peak_bytes": r.peak }))
    };
    let faults = |f: Option<Faults>| {
        f.map(|f| json!({ "major": f.major, "minor": f.minor, "read_bytes": f.read }))
    };
    let steps: Vec<Value> = m
        .steps
        .iter()
        .map(|s| {
            json!({
                "ms": s.wall.as_secs_f64() * 1e3,
                "anonymous_bytes": s.rss.map(|r| r.anon),
                "file_bytes": s.rss.map(|r| r.file),
                "major_faults": s.faults.map(|f| f.major),
                "minor_faults": s.faults.map(|f| f.minor),
                "allocations": s.allocations,
                "joules": s.joules,
            })
        })
        .collect();
    let sections: Vec<Value> = m
        .held
        .sections
        .iter()
        .map(|s| {
            json!({
                "name": s.section.name,
                "behaviour": s.section.kind.name(),
                "plan_bytes": s.section.bytes,
                "actual_bytes": s.actual,
                "drift": s.drift(),
                "kept": s.is_kept(),
            })
        })
        .collect();
    let ms = milliseconds(m);
    json!({
        "n_ctx": p.n_ctx,
        "n_ubatch": p.n_ubatch,
        "n_threads": p.n_threads,
        "type_k": p.type_k.name(),
        "type_v": p.type_v.name(),
        "isa": p.isa.to_string(),
        "residency": p.residency.name(),
        "load": {
            "ms": load.wall.as_secs_f64() * 1e3,
            "tensors": load.n_tensors,
            "materialised_bytes": load.materialised,
            "resident_before": resident(load.before),
            "resident_after": resident(load.after),
            "faults": faults(load.faults),
        },
        "prefill": {
            "tokens": m.n_prompt,
            "ms": m.prefill.as_secs_f64() * 1e3,
            "faults": faults(m.prefill_faults),
        },
        "warmup": m.n_warmup,
        "steps": steps,
        "steady": {
            "ms_median": median(&ms),
            "ms_min": ms.first(),
            "ms_max": ms.last(),
            "allocations": m.allocations(),
            "major_faults": m.major_faults(),
            "joules_per_token": m.joules_per_token(),
        },
        "sections": sections,
        "planned_bytes": m.held.planned,
        "resident": resident(m.held.resident),
        "tolerance": TOLERANCE,
        "kept": m.held.is_kept(),
    })
}
