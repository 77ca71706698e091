//! A measurement as a JSON document.

use ounce_engine::Session;
use ounce_engine::measure::{Load, Measurement, TOLERANCE};
use ounce_engine::memory::Faults;
use ounce_engine::memory::probe::Resident;
use ounce_engine::receipt::Distribution;
use serde_json::{Value, json};

use super::milliseconds;

/// What was measured, as `--json` prints it and as receipts hold it.
pub fn document(session: &Session, load: &Load, m: &Measurement) -> Value {
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
    let ms = Distribution::of(&milliseconds(m));
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
            "ms_median": ms.map(|d| d.median),
            "ms_min": ms.map(|d| d.min),
            "ms_p95": ms.map(|d| d.p95),
            "ms_max": ms.map(|d| d.max),
            "allocations": m.allocations(),
            "major_faults": m.major_faults(),
            "joules_per_token": m.joules_per_token(),
            "energy_sensor": m.energy,
        },
        "sections": sections,
        "planned_bytes": m.held.planned,
        "resident": resident(m.held.resident),
        "tolerance": TOLERANCE,
        "kept": m.held.is_kept(),
    })
}
