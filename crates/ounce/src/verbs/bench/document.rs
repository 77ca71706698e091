//! Timings as JSON, with the field names of llama-bench where it has them.

use ounce_engine::bench::Test;
use ounce_engine::receipt::Distribution;
use serde_json::{Value, json};

use super::{Row, Timed};
use crate::verbs::plan::report::CPU;

/// A record a test.
pub fn records(timed: &Timed<'_>) -> Vec<Value> {
    timed.rows.iter().map(|row| record(timed, row)).collect()
}

/// What a receipt holds: the ceilings, and the records.
pub fn actual(timed: &Timed<'_>, records: &[Value]) -> Value {
    json!({
        "read_bytes_per_second": timed.ceilings.read_bytes_per_second,
        "int8_macs_per_second": timed.ceilings.int8_macs_per_second,
        "tests": records,
    })
}

fn record(timed: &Timed<'_>, row: &Row) -> Value {
    let spec = &timed.session.model().spec;
    let p = &timed.session.plan().params;
    let file = spec.file.path().file_name().unwrap_or_default();
    let n = row.test.n_tokens();
    let (n_prompt, n_gen) = match row.test {
        Test::Prompt { .. } => (n, 0),
        Test::Generation { .. } => (0, n),
    };
    let rates = row.rates();
    let ns: Vec<u128> = row.runs.iter().map(std::time::Duration::as_nanos).collect();
    let ns_f64: Vec<f64> = ns.iter().map(|&n| n as f64).collect();
    let median = Distribution::of(&rates).map(|d| d.median);
    let ratio = Distribution::of(&row.ratios());
    json!({
        "model_filename": file.to_string_lossy(),
        "model_size": spec.file.n_bytes(),
        "model_n_params": n_params(timed),
        "backends": CPU,
        "isa": p.isa.name(),
        "n_threads": p.n_threads,
        "n_ubatch": p.n_ubatch,
        "type_k": p.type_k.name(),
        "type_v": p.type_v.name(),
        "n_prompt": n_prompt,
        "n_gen": n_gen,
        "n_depth": row.test.depth(),
        "avg_ns": mean(&ns_f64),
        "stddev_ns": deviation(&ns_f64),
        "avg_ts": mean(&rates),
        "stddev_ts": deviation(&rates),
        "median_ts": median,
        "limit_ts": row.limit,
        "of_limit": median.map(|m| m / row.limit),
        "samples_ns": ns.iter().map(|&n| n as u64).collect::<Vec<u64>>(),
        "samples_ts": rates,
        "peer_samples_ts": row.peer,
        "ratio_median": ratio.map(|d| d.median),
        "ratio_min": ratio.map(|d| d.min),
        "ratio_max": ratio.map(|d| d.max),
    })
}

/// Elements of all tensors.
pub fn n_params(timed: &Timed<'_>) -> u64 {
    let tensors = &timed.session.model().spec.file.header().tensors;
    tensors
        .iter()
        .map(|t| t.n_elements())
        .fold(0, u64::saturating_add)
}

/// Arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Standard deviation of a sample; 0 of fewer than two values.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (squares / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_of_a_sample() {
        assert_eq!(
            (mean(&[1.0, 3.0]), deviation(&[1.0, 3.0])),
            (2.0, 2f64.sqrt())
        );
        assert_eq!((mean(&[5.0]), deviation(&[5.0])), (5.0, 0.0));
        assert_eq!((mean(&[]), deviation(&[])), (0.0, 0.0));
    }
}
