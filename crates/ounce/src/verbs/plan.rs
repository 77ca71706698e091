//! `ounce plan`: what a model will cost on a device, and whether it fits; from the header alone.

use std::process::ExitCode;

use ounce_engine::model::ModelSpec;
use ounce_engine::plan::{Device, Fit, Proposal, Verdict, choose};
use ounce_engine::receipt::{Fingerprint, Kind, Receipt};
use ounce_engine::{Plan, SessionParams};
use serde_json::{Value, json};

use crate::admit::MemoryArgs;
use crate::model::{ContextArgs, resolve_file};
use crate::receipt::{self, ReceiptArgs};
use crate::{Outcome, exit, out};

/// Plans what a model costs on a device and whether it fits; reads the header, never the weights
///
/// Exit code 0: fits. 2: fits, with weights streamed from storage. 3: does not fit.
#[derive(clap::Args)]
pub struct Args {
    /// Path or name of the model.
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
    #[command(flatten)]
    receipt: ReceiptArgs,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Outcome {
    let spec = ModelSpec::open(&resolve_file(&args.model)?)?;
    let device = match &args.profile {
        Some(name) => Device::profile(name, args.memory.heap_cap)?,
        None => Device::here(args.memory.heap_cap, spec.file.n_bytes()),
    };
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
    let chosen = open.n_ctx;
    let plan = Plan::new(&spec, params)?;
    let fit = Fit::new(&spec, &plan, &device, args.memory.headroom);
    let no_kernel = spec.without_kernel();
    let proposals = Fit::proposals(&spec, &plan, &device, args.memory.headroom);
    let no_kernel: Vec<String> = no_kernel
        .iter()
        .map(|t| format!("{} ({})", t.name, t.ty.name()))
        .collect();
    let document = document(&plan, &fit, &device, &proposals, &no_kernel, chosen);
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
        table(&plan, &fit, &device, chosen)?;
        verdict(&fit, &device, &proposals, &no_kernel)?;
    }
    out::flush()?;
    Ok(ExitCode::from(match fit.verdict {
        _ if !no_kernel.is_empty() => exit::DOES_NOT_FIT,
        Verdict::Fits => 0,
        Verdict::Streams { .. } => exit::STREAMS,
        Verdict::DoesNotFit { .. } => exit::DOES_NOT_FIT,
    }))
}

fn table(plan: &Plan, fit: &Fit, device: &Device, chosen: bool) -> Result<(), out::StdoutError> {
    let p = &plan.params;
    out::line(format_args!(
        "context {}{}, cache {}/{}, chunks of {}, {} threads, {} slot{}, on {}",
        p.n_ctx,
        if chosen {
            " (the largest that fits comfortably)"
        } else {
            ""
        },
        p.type_k,
        p.type_v,
        p.n_ubatch,
        p.n_threads,
        p.n_slots,
        if p.n_slots == 1 { "" } else { "s" },
        device.name
    ))?;
    for s in plan.sections().iter().filter(|s| s.bytes > 0) {
        let kind = s.kind.name();
        out::line(format_args!(
            "  {:<22} {:>8}  {kind}",
            s.name,
            out::bytes(s.bytes)
        ))?;
    }
    out::line(format_args!(
        "  {:<22} {:>8}  left free",
        "headroom",
        out::bytes(fit.headroom)
    ))?;
    for (name, used, pool) in [
        ("committed", fit.heap, &device.heap),
        ("with weights", fit.memory, &device.memory),
    ] {
        out::line(format_args!(
            "  {name:<22} {:>8}  {} of {}  ({})",
            out::bytes(used),
            bar(used, pool.bytes),
            out::bytes(pool.bytes),
            pool.limit
        ))?;
    }
    Ok(())
}

/// Twenty cells, filled as far as the pool is.
fn bar(used: u64, pool: u64) -> String {
    let cells = (u128::from(used) * 20 / u128::from(pool.max(1))).min(20) as usize;
    format!("[{}{}]", "#".repeat(cells), ".".repeat(20 - cells))
}

fn verdict(
    fit: &Fit,
    device: &Device,
    proposals: &[Proposal],
    no_kernel: &[String],
) -> Result<(), out::StdoutError> {
    if !no_kernel.is_empty() {
        out::line(format_args!(
            "does not run: no kernel reads {}; re-quantise the file, for example to Q4_K_M",
            no_kernel.join(", ")
        ))?;
    }
    match &fit.verdict {
        Verdict::Fits => out::line("fits")?,
        Verdict::Streams { missing, per_token } => out::line(format_args!(
            "fits, with pages streamed from storage: {} of weights have no room, up to {} are read a token",
            out::bytes(*missing),
            out::bytes(*per_token)
        ))?,
        Verdict::DoesNotFit { over, limit } => out::line(format_args!(
            "does not fit: {} more than {limit} leaves",
            out::bytes(*over),
        ))?,
    }
    let lead = match (&fit.verdict, proposals) {
        (Verdict::DoesNotFit { .. }, []) => {
            return out::line("  no context, cache type or chunk fits; a smaller model would");
        }
        (_, []) => return Ok(()),
        (Verdict::Fits, _) => match fit.tight(device) {
            Some((pool, percent)) => {
                format!("  {percent} % of {} are filled; less with:", pool.limit)
            }
            None => "  less with:".to_owned(),
        },
        (Verdict::Streams { .. }, _) => "  nothing is streamed with:".to_owned(),
        (Verdict::DoesNotFit { .. }, _) => "  what does:".to_owned(),
    };
    out::line(lead)?;
    for p in proposals {
        out::line(format_args!(
            "  {:<52} saves {:>6}  {}",
            p.flags,
            out::bytes(p.saves),
            p.verdict.name()
        ))?;
    }
    Ok(())
}

/// The plan as `--json` prints it and as receipts hold it.
pub fn document(
    plan: &Plan,
    fit: &Fit,
    device: &Device,
    proposals: &[Proposal],
    no_kernel: &[String],
    chosen: bool,
) -> Value {
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
    let name = if no_kernel.is_empty() {
        fit.verdict.name()
    } else {
        "no_kernel"
    };
    let proposals: Vec<Value> = proposals
        .iter()
        .map(|p| json!({ "flags": p.flags, "saves_bytes": p.saves, "verdict": p.verdict.name() }))
        .collect();
    json!({
        "device": {
            "name": device.name,
            "total_bytes": device.total,
            "heap_bytes": device.heap.bytes,
            "heap_limit": device.heap.limit,
            "memory_bytes": device.memory.bytes,
            "memory_limit": device.memory.limit,
            "swap_free_bytes": device.swap_free,
            "zram_bytes": device.zram,
        },
        "n_ctx": p.n_ctx,
        "n_ctx_chosen": chosen,
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
        "over_bytes": over,
        "proposals": proposals,
        "without_kernel": no_kernel,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_end_at_full() {
        assert_eq!(bar(1, 2), "[##########..........]");
        assert_eq!(bar(u64::MAX, 1), "[####################]");
        assert_eq!(bar(1, 0), "[####################]");
    }
}
