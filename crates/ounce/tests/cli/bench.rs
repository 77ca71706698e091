//! `ounce bench`: llama-bench's tests and forms of output, a peer in turn, receipts; nothing here is judged by time.

use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{model, ounce, scratch};

const QUICK: [&str; 9] = [
    "-p",
    "8,16",
    "-n",
    "4",
    "-d",
    "0,8",
    "-r",
    "2",
    "--no-receipt",
];

fn bench(more: &[&str]) -> crate::harness::Said {
    let model = model("llama.Q4_K_M.gguf");
    let args = [&["bench", model.as_str()], &QUICK[..], more].concat();
    ounce(&args)
}

/// A program that answers as llama-bench does, or fails.
#[cfg(unix)]
fn peer(name: &str, body: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = scratch("bench").join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn every_test_is_run_at_every_depth() {
    let records: Value = serde_json::from_str(&bench(&["--json"]).ok().out).unwrap();
    let tests: Vec<_> = records
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            assert_eq!(r["samples_ns"].as_array().unwrap().len(), 2);
            let of = |key: &str| r[key].as_f64().unwrap();
            assert!(of("avg_ts") > 0.0 && of("limit_ts") > 0.0 && of("of_limit") > 0.0);
            let n = of("n_prompt") + of("n_gen");
            for (ns, ts) in r["samples_ns"]
                .as_array()
                .unwrap()
                .iter()
                .zip(r["samples_ts"].as_array().unwrap())
            {
                let rate = n * 1e9 / ns.as_f64().unwrap();
                assert!((ts.as_f64().unwrap() / rate - 1.0).abs() < 1e-6);
            }
            (of("n_prompt"), of("n_gen"), of("n_depth"))
        })
        .collect();
    assert_eq!(
        tests,
        [
            (8.0, 0.0, 0.0),
            (16.0, 0.0, 0.0),
            (0.0, 4.0, 0.0),
            (8.0, 0.0, 8.0),
            (16.0, 0.0, 8.0),
            (0.0, 4.0, 8.0),
        ]
    );
}

#[test]
fn forms_of_output() {
    let lines = bench(&["-o", "jsonl"]).ok().out;
    let records: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(records.len(), 6);
    let csv = bench(&["-o", "csv"]).ok().out;
    let rows: Vec<Vec<&str>> = csv.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), 7, "{csv}");
    assert!(rows.iter().all(|r| r.len() == rows[0].len()), "{csv}");
    let at = rows[0].iter().position(|name| *name == "n_prompt").unwrap();
    assert_eq!((rows[1][at], rows[2][at]), ("8", "16"));
    let table = bench(&["-ctk", "q8_0"]).ok().out;
    for word in [" test |", "pp16 |", "tg4 @ d8 |", "q8_0/f16", "limits: "] {
        assert!(table.contains(word), "{word:?} is not in {table}");
    }
}

#[test]
#[cfg(unix)]
fn a_peer_runs_the_same_tests_in_turn() {
    let seen = scratch("bench-peer").join("arguments");
    let body = format!(
        "echo \"$@\" >> {}; echo noise; echo '{{\"avg_ts\": 12.5}}'",
        seen.display()
    );
    let peer = peer("good", &body).display().to_string();
    let said = bench(&["--json", "--peer", &peer, "-t", "1"]).ok();
    let records: Value = serde_json::from_str(&said.out).unwrap();
    for r in records.as_array().unwrap() {
        assert_eq!(r["peer_samples_ts"], serde_json::json!([12.5, 12.5]));
        let (ratio, median) = (
            r["ratio_median"].as_f64().unwrap(),
            r["median_ts"].as_f64().unwrap(),
        );
        assert!((ratio * 12.5 / median - 1.0).abs() < 1e-6, "{r:#}");
    }
    let seen = std::fs::read_to_string(seen).unwrap();
    assert_eq!(seen.lines().count(), 12);
    for (line, part) in [
        (0, "-p 8 -n 0 -d 0"),
        (5, "-p 0 -n 4 -d 0"),
        (11, "-p 0 -n 4 -d 8"),
    ] {
        let line = seen.lines().nth(line).unwrap();
        assert!(line.ends_with(part) && line.contains("-t 1 "), "{line}");
    }
    let table = bench(&["--peer", &peer]).ok().out;
    assert!(
        table.contains("peer t/s") && table.contains("12.50 ± 0.00"),
        "{table}"
    );
}

#[test]
#[cfg(unix)]
fn a_peer_that_fails_is_told() {
    let failing = peer("failing", "echo 'no such model' >&2; exit 3")
        .display()
        .to_string();
    bench(&["--peer", &failing]).error(&["failing", "no such model"]);
    let mute = peer("mute", "echo hello").display().to_string();
    bench(&["--peer", &mute]).error(&["mute", "avg_ts"]);
    bench(&["--peer", "/nowhere/llama-bench"]).error(&["/nowhere/llama-bench"]);
}

#[test]
fn a_receipt_names_every_test() {
    let path = scratch("bench-receipt")
        .join("r.json")
        .display()
        .to_string();
    let model = model("llama.Q4_K_M.gguf");
    ounce(&[
        "bench",
        &model,
        "-p",
        "8",
        "-n",
        "2",
        "-r",
        "2",
        "--receipt",
        &path,
    ])
    .ok();
    let receipt: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(receipt["kind"], "bench");
    for test in ["pp8 tokens_per_second", "tg2 tokens_per_second"] {
        assert_eq!(receipt["distributions"][test]["n"], 2, "{receipt:#}");
    }
    assert!(receipt["actual"]["read_bytes_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(receipt["actual"]["tests"].as_array().unwrap().len(), 2);
    ounce(&["receipts", "show", &path]).ok();
}

#[test]
fn what_cannot_be_timed_is_told() {
    let model = model("llama.Q4_K_M.gguf");
    ounce(&["bench", &model, "-p", "0", "-n", "0"]).error(&["nothing to time", "-p"]);
    ounce(&["bench", &model, "-r", "0"]).fails(64, &["-r"]);
    ounce(&["bench", &model, "-p", "x"]).fails(64, &["-p"]);
    ounce(&["bench", &model, "-o", "xml"]).fails(64, &["xml"]);
    ounce(&[
        "bench",
        &model,
        "-p",
        "16",
        "-n",
        "0",
        "-c",
        "8",
        "--no-receipt",
    ])
    .error(&["16 tokens", "context holds 8", "-c"]);
    ounce(&["bench", "./missing.gguf"]).error(&["missing.gguf"]);
}
