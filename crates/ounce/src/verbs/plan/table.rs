//! A plan as a table for people.

use ounce_engine::plan::Verdict;
use ounce_gguf::TensorInfo;

use super::report::{Report, Storage, unpacked_bytes};
use crate::out::{self, StdoutError, Tone};

/// Share of a pool up to which its bar is green, in percent.
const ROOMY: u64 = 80;

/// Prints sections, pools, verdict, and settings that would serve better.
pub fn print(report: &Report) -> Result<(), StdoutError> {
    let Report {
        plan, fit, device, ..
    } = report;
    let p = &plan.params;
    let streams = matches!(fit.verdict, Verdict::Streams { .. });
    out::line(format_args!(
        "context {}{}, cache {}/{}, chunks of {}, {} threads, {} slot{}, on {}",
        p.n_ctx,
        match report.chosen {
            false => "",
            true if fit.is_comfortable(device, streams) => " (the largest that fits comfortably)",
            true => " (chosen; none fits comfortably)",
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
        row(s.name, s.bytes, s.kind.name())?;
    }
    row("headroom", fit.headroom, "left free")?;
    for (name, used, pool) in [
        ("committed", fit.heap, &device.heap),
        ("with weights", fit.memory, &device.memory),
    ] {
        let share = pool.known().map_or_else(String::new, |bytes| {
            let bar = out::painted(&bar(used, bytes), tone(used, bytes));
            format!("{bar} of {}  ", out::bytes(bytes))
        });
        row(name, used, &format!("{share}({})", pool.limit))?;
    }
    verdict(report)
}

fn row(name: &str, bytes: u64, what: &str) -> Result<(), StdoutError> {
    let bytes = out::bytes(bytes);
    out::line(format_args!("  {name:<22} {bytes:>8}  {what}"))
}

/// Twenty cells, filled as far as the pool is.
pub fn bar(used: u64, pool: u64) -> String {
    let cells = (percent(used, pool) / 5).min(20) as usize;
    format!("[{}{}]", "#".repeat(cells), ".".repeat(20 - cells))
}

fn tone(used: u64, pool: u64) -> Tone {
    match percent(used, pool) {
        ..=ROOMY => Tone::Good,
        _ if used <= pool => Tone::Fair,
        _ => Tone::Bad,
    }
}

fn percent(used: u64, pool: u64) -> u64 {
    let percent = u128::from(used) * 100 / u128::from(pool.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

fn verdict(report: &Report) -> Result<(), StdoutError> {
    let verdict = &report.fit.verdict;
    if let [first, others @ ..] = report.no_kernel {
        without_kernel(first, others)?;
        // That it would fit is no comfort; that it would not either is worth knowing.
        if !matches!(verdict, Verdict::DoesNotFit { .. }) {
            return Ok(());
        }
    }
    match verdict {
        Verdict::Fits => out::line(out::painted("fits", Tone::Good))?,
        Verdict::Streams { missing, per_token } => out::line(format_args!(
            "{}: {} of weights have no room, up to {} are read a token{}",
            out::painted("fits, with pages streamed from storage", Tone::Fair),
            out::bytes(*missing),
            out::bytes(*per_token),
            report.storage.map_or_else(String::new, at_rate)
        ))?,
        Verdict::DoesNotFit { over, limit } => out::line(format_args!(
            "{}: {} more than {limit} leaves",
            out::painted("does not fit", Tone::Bad),
            out::bytes(*over),
        ))?,
    }
    proposals(report)
}

/// What that means at the rate that was measured.
fn at_rate(storage: Storage) -> String {
    let tokens = match storage.tokens_per_second {
        t if t < 0.01 => "less than 0.01".to_owned(),
        t if t < 10.0 => format!("{t:.2}"),
        t => format!("{t:.0}"),
    };
    let rate = out::bytes(storage.bytes_per_second as u64);
    format!(": {tokens} tokens/s at the {rate}/s that storage gives")
}

/// The tensors that no kernel reads: the first by name, the others in sum.
fn without_kernel(first: &TensorInfo, others: &[&TensorInfo]) -> Result<(), StdoutError> {
    let sum = |of: fn(&TensorInfo) -> u64| {
        let bytes = others.iter().map(|t| of(t));
        out::bytes(bytes.fold(0, u64::saturating_add))
    };
    let more = match others.len() {
        0 => String::new(),
        n => format!(
            ", and {n} more ({}; {} unpacked)",
            sum(|t| t.n_bytes),
            sum(unpacked_bytes)
        ),
    };
    out::line(format_args!(
        "{}: no kernel reads {} ({}, {}; it would take {} if it were unpacked to F32){more}; re-quantise the file, for \
         example to Q4_K_M",
        out::painted("does not run", Tone::Bad),
        first.name,
        first.ty,
        out::bytes(first.n_bytes),
        out::bytes(unpacked_bytes(first)),
    ))
}

fn proposals(report: &Report) -> Result<(), StdoutError> {
    let Report { fit, proposals, .. } = report;
    let lead = match (&fit.verdict, proposals) {
        (Verdict::DoesNotFit { .. }, []) => {
            return out::line("  no context, cache type or chunk fits; a smaller model would");
        }
        (_, []) => return Ok(()),
        (Verdict::Fits, _) => match fit.tight(report.device) {
            Some((pool, percent)) => format!("{percent} % of {} is filled; less with:", pool.limit),
            None => "less with:".to_owned(),
        },
        (Verdict::Streams { .. }, _) => "nothing is streamed with:".to_owned(),
        (Verdict::DoesNotFit { .. }, _) => "what does:".to_owned(),
    };
    out::line(format_args!("  {lead}"))?;
    for p in *proposals {
        let saves = out::bytes(p.saves);
        let verdict = p.verdict.name();
        out::line(format_args!(
            "  {:<52} saves {saves:>6}  {verdict}",
            p.flags
        ))?;
    }
    Ok(())
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
