//! From a header to a model that is loaded as its plan says, or to a refusal before a weight is touched.

use std::sync::Arc;

use ounce_engine::memory::{Residency, alloc, limit_data, prefer_us_for_oom};
use ounce_engine::model::ModelSpec;
use ounce_engine::plan::{Device, Fit, Open, Verdict, choose};
use ounce_engine::{Model, Plan, SessionParams};

use crate::out;
use crate::progress::Progress;

type Failure = Box<dyn std::error::Error>;

/// The flags of a plan that are not about the context.
#[derive(clap::Args, Clone, Debug)]
pub struct MemoryArgs {
    /// Cap on the memory the process commits, for example 256M.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub heap_cap: Option<u64>,
    /// Memory to leave free [default: 6 % of the pool, 64 MB (at most a quarter) to 1 GB].
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub headroom: Option<u64>,
    /// Locks the weights in memory: no page of them is ever read twice (ulimit -l must allow it).
    #[arg(long)]
    pub mlock: bool,
    /// Copies the weights into memory past the page cache (O_DIRECT), in place of mapping the file.
    #[arg(long, conflicts_with = "mlock")]
    pub direct: bool,
}

impl MemoryArgs {
    /// How the weights are held.
    pub fn residency(&self) -> Residency {
        match (self.mlock, self.direct) {
            (true, _) => Residency::Locked,
            (_, true) => Residency::Direct,
            _ => Residency::Mapped,
        }
    }
}

/// The flags of verbs that load.
#[derive(clap::Args, Clone, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Reads the weights into the page cache before the first token.
    #[arg(long, conflicts_with = "direct")]
    prefetch: bool,
    /// Limits this process to its plan and headroom (RLIMIT_DATA): what goes beyond is an error of ours.
    #[arg(long)]
    strict_memory: bool,
    /// Loads what the plan refuses, and starts when memory is critically short.
    #[arg(long)]
    pub force: bool,
}

/// A refusal by the plan; the program ends with the code of `ounce plan` for it.
#[derive(Debug)]
pub struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// A plan that was accepted.
pub struct Accepted {
    pub plan: Plan,
    pub fit: Fit,
    /// What it was held against.
    pub device: Device,
    /// Whether the context was not asked for.
    pub chosen: bool,
}

/// Plans `params` on this machine, with what is `open` chosen.
///
/// # Errors
/// The parameters do not suit the model; or [`Refused`]: the plan does not fit and is not forced.
pub fn accept(
    spec: &ModelSpec,
    params: SessionParams,
    open: Open,
    args: &LoadArgs,
) -> Result<Accepted, Failure> {
    let memory = &args.memory;
    let device = Device::here(memory.heap_cap);
    let params = SessionParams {
        residency: memory.residency(),
        ..params
    };
    let params = choose(spec, &params, open, &device, memory.headroom)?;
    let plan = Plan::new(spec, params)?;
    let fit = Fit::new(spec, &plan, &device, memory.headroom);
    match &fit.verdict {
        Verdict::Fits => {}
        Verdict::Streams { missing, per_token } => out::note(format_args!(
            "{} of the weights have no room: up to {} are read from storage a token",
            out::bytes(*missing),
            out::bytes(*per_token)
        )),
        Verdict::DoesNotFit { over, limit } if args.force => out::note(format_args!(
            "the plan is {} larger than {limit} leaves; loading all the same (--force)",
            out::bytes(*over)
        )),
        Verdict::DoesNotFit { over, limit } => {
            let path = spec.file.path().display();
            let more = out::bytes(*over);
            let proposals: Vec<String> = Fit::proposals(spec, &plan, &device, memory.headroom)
                .iter()
                .take(3)
                .map(|p| {
                    let saves = out::bytes(p.saves);
                    match p.verdict {
                        Verdict::Streams { .. } => {
                            format!("{} (saves {saves}, streams weights)", p.flags)
                        }
                        _ => format!("{} (saves {saves})", p.flags),
                    }
                })
                .collect();
            let remedy = match proposals.as_slice() {
                [] => "no context, cache type or chunk fits; a smaller model would".to_owned(),
                some => format!("what fits: {}", some.join(", or ")),
            };
            return Err(Box::new(Refused(format!(
                "{path}: at -c {} it takes {more} more than {limit} leaves; {remedy}; see: ounce plan; --force loads it all the same",
                plan.params.n_ctx
            ))));
        }
    }
    Ok(Accepted {
        plan,
        fit,
        device,
        chosen: open.n_ctx,
    })
}

/// Loads what was accepted: limits, residency, tokenizer.
///
/// # Errors
/// The limit, the lock or the copy is refused; see [`Model::load`].
pub fn load(
    mut spec: ModelSpec,
    accepted: &Accepted,
    args: &LoadArgs,
) -> Result<Arc<Model>, Failure> {
    // A refusal by the kernel changes nothing that the user asked for.
    let _ = prefer_us_for_oom();
    if args.strict_memory {
        limit_data(accepted.fit.heap)?;
    }
    let mut progress = Progress::new();
    let label = match accepted.plan.params.residency {
        Residency::Mapped => "reading",
        Residency::Locked => "locking",
        Residency::Direct => "copying",
    };
    let mut show = |done, total| progress.bytes(label, done, total);
    if args.prefetch {
        spec.file.prefetch(&mut show)?;
    }
    spec.hold(accepted.plan.params.residency, &mut show)?;
    drop(progress);
    let model = Arc::new(Model::load(spec)?);
    alloc::settle();
    if accepted.fit.verdict == Verdict::Fits {
        model.spec.will_need();
    }
    Ok(model)
}

/// A number of bytes, with K, M or G for powers of 1024.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a number of bytes; write 256M or 2G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err(wrong()),
    };
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    n.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_bytes("256M"), Ok(256 << 20));
        assert_eq!(parse_bytes("2gb"), Ok(2 << 30));
        assert_eq!(parse_bytes("17"), Ok(17));
        for bad in ["", "M", "-1", "1T5", "99999999999G"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
