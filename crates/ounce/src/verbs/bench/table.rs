//! Timings as tables.

use ounce_engine::receipt::Distribution;
use serde_json::Value;

use super::Timed;
use super::document::{deviation, mean, n_params};
use crate::out::{self, StdoutError};
use crate::verbs::plan::report::CPU;

/// llama-bench's table with the share of the machine's ceiling, and the peer beside it.
pub fn markdown(timed: &Timed<'_>) -> Result<(), StdoutError> {
    let spec = &timed.session.model().spec;
    let p = &timed.session.plan().params;
    let file = spec.file.path().file_name().unwrap_or_default();
    let has_peer = timed.rows.iter().any(|r| !r.peer.is_empty());
    let mut heads = vec!["model", "size", "params", "backend", "threads"];
    let caches = p.type_k != p.type_v || p.type_k.name() != "f16";
    if caches {
        heads.push("cache");
    }
    heads.extend(["test", "t/s", "limit", "of it"]);
    if has_peer {
        heads.extend(["peer t/s", "ratio", "from - to"]);
    }
    let mut rows = Vec::new();
    for row in &timed.rows {
        let rates = row.rates();
        let middle = Distribution::of(&rates).map_or(f64::NAN, |d| d.median);
        let mut cells = vec![
            out::plain(&file.to_string_lossy()),
            out::bytes(spec.file.n_bytes()),
            count(n_params(timed)),
            format!("{CPU} {}", p.isa),
            p.n_threads.to_string(),
        ];
        if caches {
            cells.push(format!("{}/{}", p.type_k, p.type_v));
        }
        cells.extend([
            row.test.to_string(),
            format!("{:.2} ± {:.2}", mean(&rates), deviation(&rates)),
            format!("{:.1}", row.limit),
            format!("{:.0} %", middle / row.limit * 100.0),
        ]);
        if let Some(ratio) = Distribution::of(&row.ratios()) {
            cells.extend([
                format!("{:.2} ± {:.2}", mean(&row.peer), deviation(&row.peer)),
                format!("{:.2}", ratio.median),
                format!("{:.2} - {:.2}", ratio.min, ratio.max),
            ]);
        }
        rows.push(cells);
    }
    let width = |i: usize| {
        let cells = rows.iter().map(|r| r[i].chars().count());
        cells.fold(heads[i].len(), usize::max)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(i, (c, &w))| {
                if i == 0 {
                    format!("{c:<w$}")
                } else {
                    format!("{c:>w$}")
                }
            })
            .collect();
        out::line(format_args!("| {} |", cells.join(" | ")))
    };
    line(&heads.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>())?;
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(i, &w)| {
            if i == 0 {
                "-".repeat(w)
            } else {
                format!("{}:", "-".repeat(w - 1))
            }
        })
        .collect();
    line(&rule)?;
    rows.iter().try_for_each(|cells| line(cells))?;
    out::line("")?;
    out::line(format_args!(
        "limits: weights and cache are read at {:.1} GB/s, int8 products at {:.0} G/s, measured in this run",
        timed.ceilings.read_bytes_per_second / 1e9,
        timed.ceilings.int8_macs_per_second / 1e9,
    ))
}

/// A line of names, then of values; lists are left to JSON.
pub fn csv(records: &[Value]) -> Result<(), StdoutError> {
    let Some(Value::Object(first)) = records.first() else {
        return Ok(());
    };
    let names: Vec<&String> = first
        .iter()
        .filter(|(_, v)| !v.is_array())
        .map(|(k, _)| k)
        .collect();
    out::line(
        names
            .iter()
            .map(|n| n.as_str())
            .collect::<Vec<_>>()
            .join(","),
    )?;
    for r in records {
        let cells: Vec<String> = names.iter().map(|&name| cell(&r[name])).collect();
        out::line(cells.join(","))?;
    }
    Ok(())
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(s) => format!("\"{}\"", s.replace('"', "\"\"")),
        other => other.to_string(),
    }
}

/// 134515008 is "134.52 M".
fn count(n: u64) -> String {
    match n as f64 {
        n if n >= 1e9 => format!("{:.2} B", n / 1e9),
        n => format!("{:.2} M", n / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_counts() {
        assert_eq!(count(134_515_008), "134.52 M");
        assert_eq!(count(1_540_000_000), "1.54 B");
        assert_eq!(cell(&Value::from("a\"b")), "\"a\"\"b\"");
        assert_eq!(cell(&Value::Null), "");
    }
}
