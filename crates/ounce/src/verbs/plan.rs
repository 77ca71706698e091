//! `ounce plan`: what a model will cost on a device, and whether it fits; from the header alone.

mod folder;
mod list;
mod table;

use std::path::Path;
use std::process::ExitCode;

use glob::Pattern;
use ounce_engine::memory::read_rate;
use ounce_engine::model::ModelSpec;
use ounce_engine::model::file::ModelFile;
use ounce_engine::plan::{Device, Fit, ProfileError, Proposal, Verdict, choose};
use ounce_engine::receipt::{Fingerprint, Kind, Receipt};
use ounce_engine::{Plan, SessionParams};
use ounce_gguf::TensorInfo;
use ounce_store::ModelRef;
use serde_json::{Value, json};

use crate::admit::MemoryArgs;
use crate::model::{ContextArgs, resolve_file};
use crate::receipt::{self, ReceiptArgs};
use crate::{Outcome, exit, out};

/// The backend this build has.
const CPU: &str = "cpu";

/// Plans what a model costs on a device and whether it fits; reads the header, never the weights
///
/// Exit code 0: fits. 2: fits, with weights streamed from storage. 3: does not fit.
#[derive(clap::Args)]
pub struct Args {
    /// Path or name of the model, or a folder of safetensors: then of its weights alone.
    model: String,
    #[command(flatten)]
    context: ContextArgs,
    /// Sequences at once, each with a cache of its own; short form -np.
    #[arg(long, value_name = "SLOTS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    parallel: u32,
    #[command(flatten)]
    memory: MemoryArgs,
    /// A device that is not here: mobile-256m, mobile-2gb, orin-8gb, pi-8gb, vm-2gb.
    #[arg(long, value_name = "P")]
    profile: Option<String>,
    /// What computes: cpu is what this build has.
    #[arg(long, value_name = "D", default_value = CPU, value_parser = [CPU])]
    device: String,
    /// Lists the tensors whose names match instead: type, shape, bytes, place in the file; * stands for any text.
    #[arg(long, value_name = "GLOB", conflicts_with = "receipt")]
    list: Option<Pattern>,
    #[command(flatten)]
    receipt: ReceiptArgs,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The device to plan for; `mapped` are the bytes of the model's files.
    fn device(&self, mapped: u64) -> Result<Device, ProfileError> {
        match &self.profile {
            Some(name) => Device::profile(name, self.memory.heap_cap),
            None => Ok(Device::here(self.memory.heap_cap, mapped)),
        }
    }
}

/// A plan, and what a device makes of it.
struct Report<'a> {
    plan: &'a Plan,
    fit: &'a Fit,
    device: &'a Device,
    backend: &'a str,
    proposals: &'a [Proposal],
    /// Tensors of types that no kernel reads.
    no_kernel: &'a [&'a TensorInfo],
    /// Whether the context was not asked for.
    chosen: bool,
    /// What storage gives where weights stream from it.
    storage: Option<Storage>,
}

/// What storage gives a plan that streams.
#[derive(Clone, Copy)]
struct Storage {
    bytes_per_second: f64,
    /// If every byte of a step came from there.
    tokens_per_second: f64,
}

impl Storage {
    /// Measures it for a plan that streams, on the largest file of the model.
    fn measure(spec: &ModelSpec, fit: &Fit) -> Option<Storage> {
        let Verdict::Streams { per_token, .. } = fit.verdict else {
            return None;
        };
        let len = |path: &&Path| path.metadata().map_or(0, |m| m.len());
        let bytes_per_second = read_rate(spec.file.paths().max_by_key(len)?)?;
        Some(Storage {
            bytes_per_second,
            tokens_per_second: bytes_per_second / per_token.max(1) as f64,
        })
    }
}

/// Bytes a tensor would take if it were unpacked to F32, as an engine without a kernel for its type would hold it.
fn unpacked_bytes(t: &TensorInfo) -> u64 {
    t.n_elements().saturating_mul(4)
}

pub fn run(args: Args) -> Outcome {
    if let Ok(ModelRef::Path(path)) = args.model.parse()
        && path.is_dir()
    {
        if args.list.is_some() || args.receipt.place()?.is_some() {
            let path = path.display();
            return Err(format!(
                "{path}: a folder has no --list and no --receipt; name a .gguf file"
            )
            .into());
        }
        let device = args.device(0)?;
        return folder::run(&path, &device, args.memory.headroom, args.json);
    }
    let path = resolve_file(&args.model)?;
    if let Some(glob) = &args.list {
        return list::run(&ModelFile::open(&path)?, glob, args.json);
    }
    let spec = ModelSpec::open(&path)?;
    let device = args.device(spec.file.n_bytes())?;
    let mut params = SessionParams {
        n_slots: args.parallel as usize,
        residency: args.memory.residency(),
        ..args.context.params()?
    };
    if let (Some(n), false) = (device.n_threads, args.context.names_threads()) {
        params.n_threads = n;
    }
    let open = args.context.open();
    let params = choose(&spec, &params, open, &device, args.memory.headroom)?;
    let plan = Plan::new(&spec, params)?;
    let fit = Fit::new(&spec, &plan, &device, args.memory.headroom);
    let report = Report {
        plan: &plan,
        fit: &fit,
        device: &device,
        backend: &args.device,
        proposals: &Fit::proposals(&spec, &plan, &device, args.memory.headroom),
        no_kernel: &spec.without_kernel(),
        chosen: open.n_ctx,
        // Of a device that is not here nothing can be measured.
        storage: match args.profile {
            Some(_) => None,
            None => Storage::measure(&spec, &fit),
        },
    };
    let document = document(&report);
    if let Some(place) = args.receipt.place()? {
        let fingerprint = Fingerprint::here(&device.name, plan.params.isa);
        let receipt = Receipt::builder(Kind::Plan, &receipt::ran(), &spec, &fingerprint)?
            .plan(document.clone())
            .verdict(json!({ "name": document["verdict"] }));
        receipt::save(&receipt.seal(), &place)?;
    }
    if args.json {
        out::json(&document)?;
    } else {
        table::print(&report)?;
    }
    out::flush()?;
    Ok(ExitCode::from(match fit.verdict {
        _ if !report.no_kernel.is_empty() => exit::DOES_NOT_FIT,
        Verdict::Fits => 0,
        Verdict::Streams { .. } => exit::STREAMS,
        Verdict::DoesNotFit { .. } => exit::DOES_NOT_FIT,
    }))
}

/// The plan as `--json` prints it and as receipts hold it.
fn document(report: &Report) -> Value {
    let Report {
        plan, fit, device, ..
    } = report;
    let p = &plan.params;
    let sections: Vec<Value> = plan
        .sections()
        .iter()
        .map(|s| {
            let pool = if s.kind.is_own() { "heap" } else { "memory" };
            json!({ "name": s.name, "bytes": s.bytes, "pool": pool, "behaviour": s.kind.name() })
        })
        .collect();
    let (missing, per_token, over) = match fit.verdict {
        Verdict::Fits => (0, 0, 0),
        Verdict::Streams { missing, per_token } => (missing, per_token, 0),
        Verdict::DoesNotFit { over, .. } => (0, 0, over),
    };
    let no_kernel: Vec<Value> = report
        .no_kernel
        .iter()
        .map(|t| {
            json!({
                "name": t.name,
                "type": t.ty.name(),
                "bytes": t.n_bytes,
                "unpacked_bytes": unpacked_bytes(t),
            })
        })
        .collect();
    let name = if no_kernel.is_empty() {
        fit.verdict.name()
    } else {
        "no_kernel"
    };
    let proposals: Vec<Value> = report
        .proposals
        .iter()
        .map(|p| json!({ "flags": p.flags, "saves_bytes": p.saves, "verdict": p.verdict.name() }))
        .collect();
    json!({
        "device": {
            "name": device.name,
            "backend": report.backend,
            "total_bytes": device.total,
            "heap_bytes": device.heap.bytes,
            "heap_limit": device.heap.limit,
            "memory_bytes": device.memory.bytes,
            "memory_limit": device.memory.limit,
            "swap_free_bytes": device.swap_free,
            "zram_bytes": device.zram,
        },
        "n_ctx": p.n_ctx,
        "n_ctx_chosen": report.chosen,
        "n_ubatch": p.n_ubatch,
        "n_slots": p.n_slots,
        "n_threads": p.n_threads,
        "type_k": p.type_k.name(),
        "type_v": p.type_v.name(),
        "sections": sections,
        "headroom_bytes": fit.headroom,
        "heap_needed_bytes": fit.heap,
        "memory_needed_bytes": fit.memory,
        "verdict": name,
        "weights_without_room_bytes": missing,
        "streamed_bytes_per_token": per_token,
        "storage_bytes_per_second": report.storage.map(|s| s.bytes_per_second),
        "streamed_tokens_per_second": report.storage.map(|s| s.tokens_per_second),
        "over_bytes": over,
        "proposals": proposals,
        "without_kernel": no_kernel,
    })
}
