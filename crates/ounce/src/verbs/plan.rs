//! `ounce plan`: what a model will cost on a device, and whether it fits; from the header alone.

mod folder;
mod list;
pub mod report;
mod table;

use std::process::ExitCode;

use glob::Pattern;
use ounce_engine::model::ModelSpec;
use ounce_engine::model::file::ModelFile;
use ounce_engine::plan::{Device, Fit, ProfileError, Verdict, choose};
use ounce_engine::receipt::{Fingerprint, Kind, Receipt};
use ounce_engine::{Plan, SessionParams};
use ounce_store::ModelRef;
use serde_json::json;

use crate::admit::MemoryArgs;
use crate::model::{ContextArgs, resolve_file};
use crate::receipt::{self, ReceiptArgs};
use crate::{Outcome, exit, out};
use report::{CPU, Report, Storage};

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
    /// The device to plan for; where it is this machine, the model's files are mapped before.
    fn device(&self) -> Result<Device, ProfileError> {
        match &self.profile {
            Some(name) => Device::profile(name, self.memory.heap_cap),
            None => Ok(Device::here(self.memory.heap_cap)),
        }
    }
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
        let device = args.device()?;
        return folder::run(&path, &device, args.memory.headroom, args.json);
    }
    let path = resolve_file(&args.model)?;
    if let Some(glob) = &args.list {
        return list::run(&ModelFile::open(&path)?, glob, args.json);
    }
    let spec = ModelSpec::open(&path)?;
    let device = args.device()?;
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
    let document = report.document();
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
