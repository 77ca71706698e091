//! `ounce measure`: plan and actual agree, section by section, and the steady state asks for nothing.

use serde_json::Value;

use crate::harness::{Said, model, ounce, real, run_with, scratch};

fn measure(args: &[&str]) -> Value {
    let mut all = vec!["measure", "--json", "--no-receipt"];
    all.extend(args);
    actual(ounce(&all))
}

/// What was measured.
#[track_caller]
pub fn actual(said: Said) -> Value {
    let all: Result<Value, _> = serde_json::from_str(&said.ok().out);
    all.unwrap()["actual"].take()
}

/// Every section within its tolerance, the whole never above, nothing allocated and nothing read from storage.
#[track_caller]
pub fn kept(m: &Value) {
    for s in m["sections"].as_array().unwrap() {
        assert_eq!(s["kept"], true, "{s:#}");
    }
    let resident = &m["resident"];
    let peak = resident["peak_bytes"].as_u64().unwrap();
    assert!(peak <= m["planned_bytes"].as_u64().unwrap(), "{m:#}");
    assert_eq!(m["kept"], true, "{m:#}");
    assert_eq!(m["steady"]["allocations"], 0, "{m:#}");
    assert_eq!(m["steady"]["major_faults"], 0, "{m:#}");
}

/// Another build of the program has code of another size, for which the plan has no figures.
#[test]
fn real_models_keep_their_plans() {
    if cfg!(debug_assertions) {
        eprintln!("not run: not a release build");
        return;
    }
    for file in [
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "gemma-3-270m-q4_k_m.gguf",
    ] {
        let Some(path) = real(file) else { return };
        for ty in ["f16", "q8_0", "q4_0", "tq4"] {
            for ctx in ["512", "1024"] {
                let m = measure(&[&path, "-c", ctx, "-ctk", ty, "-ctv", ty]);
                kept(&m);
                assert_eq!(m["steps"].as_array().unwrap().len(), 20);
            }
        }
        for residency in ["--mlock", "--direct", "--prefetch", "--strict-memory"] {
            kept(&measure(&[&path, "-c", "512", residency]));
        }
        let fixed = measure(&[&path, "-c", "512", "--direct"]);
        let size = std::fs::metadata(&path).unwrap().len();
        let load = &fixed["load"];
        assert!(load["materialised_bytes"].as_u64().unwrap() >= size);
        let mapped = measure(&[&path, "-c", "512"]);
        let materialised = &mapped["load"]["materialised_bytes"];
        assert!(materialised.as_u64().unwrap() < 137_000, "{materialised}");
    }
}

/// Every architecture, whose tiny weights say nothing about the base: the other sections, and the steady state.
#[test]
fn every_architecture_allocates_what_it_planned() {
    for name in ["llama", "qwen2", "qwen3", "gemma3", "qwen3moe", "qwen35"] {
        let path = model(&format!("{name}.f32.gguf"));
        let m = measure(&[&path, "-c", "128"]);
        let of = |name: &str| {
            let all = m["sections"].as_array().unwrap();
            all.iter().find(|s| s["name"] == name).unwrap().clone()
        };
        for section in [
            "KV cache",
            "KV stage",
            "recurrent state",
            "quantised activations",
            "attention scratch",
            "sampler",
            "token buffers",
        ] {
            let s = of(section);
            // A region is whole pages.
            let (plan, actual) = (s["plan_bytes"].as_u64(), s["actual_bytes"].as_u64());
            assert_eq!(
                plan.unwrap().next_multiple_of(4096),
                actual.unwrap().next_multiple_of(4096),
                "{name}: {s:#}"
            );
        }
        assert_eq!(m["steady"]["allocations"], 0, "{name}");
        assert_eq!(m["steady"]["major_faults"], 0, "{name}");
    }
}

#[test]
fn tables_and_pictures_for_people() {
    let path = model("llama.f32.gguf");
    let svg = scratch("measure").join("steps.svg");
    let svg = svg.display().to_string();
    let said = ounce(&[
        "measure",
        &path,
        "-c",
        "64",
        "--steps",
        "3",
        "--warmup",
        "2",
        "--plot",
        &svg,
        "--no-receipt",
    ]);
    let text = said.ok().out;
    for part in [
        "device",
        "CPUs usable",
        "load",
        "prefill",
        "59 tokens",
        "2w",
        "steady",
        "KV cache",
        "drift",
        "the plan was",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"));
    assert_eq!(picture.matches("<polyline").count(), 3, "{picture}");
    assert!(!picture.contains("http://") || picture.matches("http").count() == 1);
    ounce(&["measure", &path, "-c", "20"]).error(&["larger than --steps", "20"]);
    ounce(&["measure", &path, "-c", "64", "--plot", "/no/such/x.svg"]).error(&["/no/such/x.svg"]);
    ounce(&["measure", &path, "--steps", "0"]).fails(64, &["0"]);
}

/// A process that may not read its accounts says so in place of figures.
#[test]
fn nothing_is_guessed_where_proc_is_not_there() {
    let path = model("llama.f32.gguf");
    let hidden = "mount -t tmpfs none /proc";
    let apart = |script: &str, args: &[&str]| {
        let mut unshared = std::process::Command::new("unshare");
        unshared.args(["-m", "sh", "-c", script]).args(args);
        unshared
    };
    if !apart(hidden, &[])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        eprintln!("not run: no mount namespace can be made here");
        return;
    }
    let script = format!("{hidden}; exec \"$0\" \"$@\"");
    let binary = env!("CARGO_BIN_EXE_ounce");
    let said = run_with(
        apart(
            &script,
            &[
                binary,
                "measure",
                &path,
                "-c",
                "64",
                "--json",
                "--no-receipt",
            ],
        ),
        b"",
    );
    let m = actual(said);
    assert_eq!(m["kept"], Value::Null, "{m:#}");
    assert_eq!(m["resident"], Value::Null);
    let kv = m["sections"].as_array().unwrap();
    assert!(
        kv.iter()
            .any(|s| s["actual_bytes"].is_null() && s["drift"].is_null())
    );
    // The allocator counts all the same.
    assert_eq!(m["steady"]["allocations"], 0);
}

/// A record is kept unless it is not wanted, with the plan, the measurement and the times of the steps.
#[test]
fn a_measurement_leaves_a_receipt() {
    let path = model("llama.f32.gguf");
    let folder = scratch("measured");
    let folder = folder.display().to_string();
    let small = ["-c", "64", "--steps", "3", "--warmup", "1", "--json"];
    let mut args = vec!["measure", &path, "--receipt", &folder];
    args.extend(small);
    let said = ounce(&args).ok();
    let printed: Value = serde_json::from_str(&said.out).unwrap();
    let file = said
        .err
        .trim()
        .strip_prefix("receipt: ")
        .unwrap()
        .to_owned();
    assert!(file.starts_with(&folder), "{file}");
    let shown = ounce(&["receipts", "show", &file, "--json"]).ok();
    let receipt: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(receipt["kind"], "measure");
    for part in ["device", "plan", "actual"] {
        assert_eq!(receipt[part], printed[part], "{part}");
    }
    let ms = &receipt["distributions"]["decode_ms"];
    assert_eq!(ms["n"], 3);
    assert_eq!(ms["median"], printed["actual"]["steady"]["ms_median"]);
    assert_eq!(receipt["verdict"]["name"], "fits");
    assert_eq!(receipt["verdict"]["kept"], printed["actual"]["kept"]);
    let table = ounce(&["receipts", "markdown", &file]).ok().out;
    assert!(table.contains(&format!("{:.1} (", ms["median"].as_f64().unwrap())));

    // Beside the models where nothing else is said.
    let home = scratch("measured-home");
    let mut args = vec!["measure", &path];
    args.extend(small);
    let mut command = crate::harness::command(&args);
    command.env("OUNCE_HOME", &home);
    let said = run_with(command, b"");
    assert!(said.ok().err.contains("receipt: "));
    assert_eq!(std::fs::read_dir(home.join("receipts")).unwrap().count(), 1);

    // A place that cannot be written is told after the figures, which are not lost.
    let mut args = vec!["measure", &path, "--receipt", "/no/such/folder/x.json"];
    args.extend(small);
    let said = ounce(&args);
    assert_eq!(said.code, Some(1));
    assert!(said.out.contains("\"actual\"") && said.err.contains("/no/such/folder"));
}
