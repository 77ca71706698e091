//! `ounce plan`: verdicts, proposals that hold when pasted, and nothing read but the header.

use ounce_gguf::TensorType;
use ounce_gguf::write::Writer;
use serde_json::{Value, json};

use crate::harness::{Said, model, ounce, real, scratch, sparse};
use crate::synthetic::{llama, qwen35};

fn parsed(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
}

fn plan(path: &str, flags: &str) -> (Option<i32>, Value) {
    let mut args = vec!["plan", path, "--json"];
    args.extend(flags.split_whitespace());
    let said = ounce(&args);
    (said.code, parsed(&said))
}

/// 0.8B, 2B and 4B on a Jetson with at least 8k context; a request beyond it is refused, and each proposal holds.
#[test]
fn qwen35_on_an_orin() {
    for (name, dims) in [
        ("qwen35-0.8b.gguf", [1024, 24, 8, 2, 3584, 16]),
        ("qwen35-2b.gguf", [2048, 24, 8, 2, 6144, 16]),
        ("qwen35-4b.gguf", [2560, 32, 16, 4, 9216, 32]),
    ] {
        let path = qwen35(name, dims, true);
        let (code, fits) = plan(&path, "--profile orin-8gb");
        assert_eq!(code, Some(0), "{name}: {fits:#}");
        assert!(fits["n_ctx"].as_u64().unwrap() >= 8192, "{name}: {fits:#}");
        let (code, _) = plan(&path, "--profile orin-8gb -c 8192");
        assert_eq!(code, Some(0), "{name}");
        let (code, refused) = plan(&path, "--profile orin-8gb -c 262144 -ctk f32 -ctv f32");
        assert_eq!(code, Some(3), "{name}: {refused:#}");
        proposals_hold(&path, "orin-8gb", &refused);
    }
}

/// 9B has room on a Jetson, with 8k of context; with 32k its weights are streamed, and with all of its context in f32 it is
/// refused.
#[test]
fn qwen35_9b_on_an_orin() {
    let path = qwen35("qwen35-9b.gguf", [4096, 32, 16, 4, 12_288, 32], false);
    // No context leaves a quarter free; the smallest there is would be of little use all the same.
    let (code, chosen) = plan(&path, "--profile orin-8gb");
    assert_eq!((code, &chosen["n_ctx"]), (Some(0), &json!(4096)));
    let said = ounce(&["plan", &path, "--profile", "orin-8gb"]).ok().out;
    assert!(said.contains("none fits comfortably"), "{said}");
    let (code, fits) = plan(&path, "--profile orin-8gb -c 8192");
    assert_eq!((code, &fits["verdict"]), (Some(0), &json!("fits")));
    let (code, streams) = plan(&path, "--profile orin-8gb -c 32768");
    assert_eq!((code, &streams["verdict"]), (Some(2), &json!("streams")));
    let (code, refused) = plan(&path, "--profile orin-8gb -c 262144 -ctk f32 -ctv f32");
    assert_eq!(
        (code, &refused["verdict"]),
        (Some(3), &json!("does_not_fit"))
    );
    proposals_hold(&path, "orin-8gb", &refused);
}

/// At least two settings are proposed, those that stream nothing first, and each, when pasted, saves what it says and gets
/// the verdict it says.
fn proposals_hold(path: &str, profile: &str, asked: &Value) {
    let proposals = asked["proposals"].as_array().unwrap();
    assert!(proposals.len() >= 2, "{path}: {asked:#}");
    proposals
        .iter()
        .for_each(|p| holds(path, profile, asked, p));
    let fits = |p: &Value| p["verdict"] == "fits";
    assert!(proposals.is_sorted_by_key(|p| !fits(p)), "{asked:#}");
}

fn holds(path: &str, profile: &str, asked: &Value, proposal: &Value) {
    let held = |json: &Value| {
        let sections = json["sections"].as_array().unwrap().iter();
        let held = sections.filter(|s| s["pool"] == "heap" || s["behaviour"] == "locked");
        held.map(|s| s["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let flags = proposal["flags"].as_str().unwrap();
    let (code, again) = plan(path, &format!("--profile {profile} {flags}"));
    assert_eq!(again["verdict"], proposal["verdict"], "{flags}: {again:#}");
    assert_ne!(code, Some(3), "{flags}: {again:#}");
    let saves = proposal["saves_bytes"].as_u64().unwrap();
    assert!(saves > 0, "{path}: {flags}");
    // What the process holds before it plans is measured anew by each run.
    let differs = (held(asked) - held(&again)).abs_diff(saves);
    assert!(differs < 4 << 20, "{path}: {flags}: {differs}");
}

/// Nearly full, streamed, locked, copied, many sequences: what would serve better is proposed, and nothing where all is well.
#[test]
fn each_verdict_has_its_proposals() {
    let path = qwen35(
        "qwen35-proposals.gguf",
        [4096, 32, 16, 4, 12_288, 32],
        false,
    );
    let orin = |flags: &str| plan(&path, &format!("--profile orin-8gb {flags}")).1;
    for (flags, verdict) in [
        ("-c 32768", "streams"),
        ("-c 32768 --mlock", "does_not_fit"),
        ("-c 1024 -np 64 --direct", "does_not_fit"),
        ("-c 262144", "does_not_fit"),
    ] {
        let asked = orin(flags);
        assert_eq!(asked["verdict"], verdict, "{flags}: {asked:#}");
        proposals_hold(&path, "orin-8gb", &asked);
        let first = &asked["proposals"][0];
        assert_eq!(first["verdict"], "fits", "{flags}: {asked:#}");
    }
    let full = orin("-c 8192");
    assert_eq!(full["verdict"], "fits");
    let proposals = full["proposals"].as_array().unwrap();
    assert_eq!(proposals.len(), 1, "{full:#}");
    let flags = proposals[0]["flags"].as_str().unwrap();
    assert!(flags.contains("-c 8192 -ctk tq4 -ctv tq4"), "{flags}");
    holds(&path, "orin-8gb", &full, &proposals[0]);
    // There is nothing smaller.
    let tq4 = orin("-c 8192 -ctk tq4 -ctv tq4");
    assert_eq!(tq4["proposals"], json!([]), "{tq4:#}");
    let (_, roomy) = plan(&path, "--profile pi-8gb -c 512 --heap-cap 8G");
    assert_eq!(
        (&roomy["verdict"], &roomy["proposals"]),
        (&json!("fits"), &json!([]))
    );
    let said = ounce(&["plan", &path, "--profile", "orin-8gb", "-c", "8192"]).ok();
    assert!(
        said.out
            .contains("% of memory available on orin-8gb is filled"),
        "{}",
        said.out
    );
    // No setting makes weights smaller.
    let (code, refused) = plan(&path, "--profile orin-8gb -c 512 --heap-cap 20M");
    assert_eq!((code, &refused["proposals"]), (Some(3), &json!([])));
}

/// Where one kind of change is all there is, its next step is proposed too.
#[test]
fn two_proposals_where_two_exist() {
    let path = qwen35("qwen35-two.gguf", [4096, 32, 16, 4, 12_288, 32], false);
    let flags = "-c 32768 -ub 32 -ctk tq4 -ctv tq4";
    let (code, refused) = plan(
        &path,
        &format!("--profile orin-8gb --heap-cap 300M {flags}"),
    );
    assert_eq!(code, Some(3), "{refused:#}");
    proposals_hold(&path, "orin-8gb --heap-cap 300M", &refused);
}

/// A plan takes less than 50 ms on a warm file (about 5 here): the best of five runs of the binary, starting it included.
#[test]
fn a_plan_takes_less_than_50_ms() {
    if cfg!(debug_assertions) {
        eprintln!("not run: not a release build");
        return;
    }
    let mut paths = vec![qwen35(
        "qwen35-timed.gguf",
        [4096, 32, 16, 4, 12_288, 32],
        false,
    )];
    paths.extend(real("SmolLM2-135M-Instruct.Q4_1.gguf"));
    paths.extend(real("gemma-3-270m-q4_k_m.gguf"));
    for path in paths {
        for flags in ["", "--heap-cap 20M"] {
            let run = || {
                let start = std::time::Instant::now();
                plan(&path, flags);
                start.elapsed()
            };
            let best = (0..5).map(|_| run()).min().unwrap();
            assert!(best.as_millis() < 50, "{path} {flags}: {best:?}");
        }
    }
}

/// A type without a kernel is no slow path: the plan fails and names it, with what it is and what it would be unpacked, here
/// and on any other device.
#[test]
fn tensors_that_no_kernel_reads_are_named_and_priced() {
    let path = llama("iq2_xxs.gguf", TensorType::IQ2_XXS);
    for flags in ["-c 512", "-c 512 --profile pi-8gb"] {
        let (code, json) = plan(&path, flags);
        assert_eq!((code, &json["verdict"]), (Some(3), &json!("no_kernel")));
        let named = json["without_kernel"].as_array().unwrap();
        assert_eq!(named.len(), 6, "{json:#}");
        for t in named {
            assert!(t["name"].as_str().unwrap().contains(".ffn_"), "{t}");
            assert_eq!(t["type"], "IQ2_XXS");
            assert_eq!(t["bytes"], 1024 * 2048 / 256 * 66);
            assert_eq!(t["unpacked_bytes"], 4 * 1024 * 2048);
        }
        let mut args = vec!["plan", &path];
        args.extend(flags.split_whitespace());
        let said = ounce(&args);
        assert_eq!(said.code, Some(3));
        let verdict = said.out.lines().last().unwrap();
        for part in [
            "does not run",
            named[0]["name"].as_str().unwrap(),
            "IQ2_XXS, 541 kB",
            "8.4 MB if it were unpacked",
            "5 more (2.7 MB; 42 MB unpacked)",
        ] {
            assert!(verdict.contains(part), "{part}: {verdict}");
        }
    }
    // Where it would not fit either, both are said.
    let args = ["plan", &path, "-c", "512", "--heap-cap", "2M"];
    let said = ounce(&args);
    assert_eq!(said.code, Some(3));
    let at = |part: &str| said.out.find(part).unwrap_or_else(|| panic!("{said:?}"));
    assert!(at("does not run") < at("does not fit"));
    let read = llama("q4_k.gguf", TensorType::Q4_K);
    let (code, json) = plan(&read, "-c 512 --profile pi-8gb");
    assert_eq!((code, &json["without_kernel"]), (Some(0), &json!([])));
}

#[test]
fn tensors_are_listed_by_their_names() {
    let path = llama("listed.gguf", TensorType::Q6_K);
    let said = ounce(&["plan", &path, "--list", "blk.1.ffn_*", "--json"]).ok();
    let listed = parsed(&said);
    let shown = parsed(&ounce(&["show", &path, "--json"]).ok());
    let of_layer = |t: &&Value| t["name"].as_str().unwrap().starts_with("blk.1.ffn_");
    let wanted: Vec<&Value> = shown["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .filter(of_layer)
        .collect();
    assert_eq!(wanted.len(), 4);
    assert_eq!(listed["tensors"], json!(wanted));
    let bytes = wanted
        .iter()
        .map(|t| t["bytes"].as_u64().unwrap())
        .sum::<u64>();
    assert_eq!(listed["bytes"], bytes);
    let text = ounce(&["plan", &path, "--list", "*.ffn_down.weight"])
        .ok()
        .out;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for part in ["blk.0.ffn_down.weight", "Q6_K", "2048 x 1024", "1.7 MB"] {
        assert!(lines[0].contains(part), "{part}: {text}");
    }
    assert!(lines[2].contains("2 tensors, 3.4 MB"), "{text}");
    // Of a file that no plan can be made of, too.
    let odd = Writer::new()
        .str("general.architecture", "odd")
        .tensor("a", &[8], TensorType::F32);
    let odd_path = scratch("plan").join("odd.gguf");
    sparse(&odd_path, &odd);
    ounce(&["plan", &odd_path.display().to_string(), "--list", "?"]).ok();
    ounce(&["plan", &path, "--list", "lm_head*"]).error(&[
        "listed.gguf",
        "lm_head*",
        "token_embd.weight",
    ]);
    ounce(&["plan", &path, "--list", "[a"]).fails(64, &["[a"]);
}

#[test]
fn output_that_is_no_terminal_has_no_colours() {
    let mut command = crate::harness::command(&["plan", &model("llama.f32.gguf"), "-c", "64"]);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
    let said = crate::harness::run_with(command, b"").ok();
    assert!(
        said.out.contains("fits") && !said.out.contains('\u{1b}'),
        "{:?}",
        said.out
    );
}

#[test]
fn weights_larger_than_memory_are_streamed() {
    let path = qwen35("large.gguf", [4096, 48, 16, 4, 12_288, 32], true);
    let (code, streams) = plan(&path, "--profile mobile-2gb -c 512 -ub 64");
    assert_eq!(code, Some(2), "{streams:#}");
    assert_eq!(streams["verdict"], "streams");
    assert!(streams["streamed_bytes_per_token"].as_u64().unwrap() > 1 << 30);
}

/// On this machine the rate of storage is measured where weights stream, and only there; where the file system does not let
/// it be measured, nothing is said of it.
#[test]
fn storage_is_measured_where_weights_stream() {
    let path = qwen35("qwen35-rate.gguf", [4096, 32, 16, 4, 12_288, 32], false);
    let (_, here) = plan(&path, "-c 512");
    let available = here["device"]["memory_bytes"].as_u64().unwrap();
    // 3 GB are left for weights of 4.9 GB.
    let Some(headroom) = available.checked_sub(3 << 30) else {
        eprintln!("not run: less than 3 GB of memory are available");
        return;
    };
    let flags = format!("-c 512 --headroom {headroom}");
    let (code, streams) = plan(&path, &flags);
    assert_eq!(code, Some(2), "{streams:#}");
    let mut args = vec!["plan", &path];
    args.extend(flags.split_whitespace());
    let text = ounce(&args).out;
    let line = text.lines().find(|l| l.contains("streamed from storage"));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    match streams["storage_bytes_per_second"].as_f64() {
        Some(rate) => {
            let per_token = streams["streamed_bytes_per_token"].as_f64().unwrap();
            let tokens = streams["streamed_tokens_per_second"].as_f64().unwrap();
            assert!(
                (tokens / (rate / per_token) - 1.0).abs() < 1e-6,
                "{streams:#}"
            );
            assert!(line.contains("tokens/s at the "), "{line}");
        }
        None => {
            assert_eq!(streams["streamed_tokens_per_second"], Value::Null);
            assert!(!line.contains("tokens/s"), "{line}");
        }
    }
    let (code, fits) = plan(&model("llama.f32.gguf"), "-c 64");
    assert_eq!(
        (code, &fits["storage_bytes_per_second"]),
        (Some(0), &Value::Null)
    );
    for flags in ["-c 512 --profile mobile-2gb", "-c 512 --profile pi-8gb"] {
        let (_, other) = plan(&path, flags);
        assert_eq!(other["storage_bytes_per_second"], Value::Null, "{other:#}");
    }
}

#[test]
fn slots_multiply_and_caps_bound() {
    let path = model("llama.f32.gguf");
    let kv = |json: &Value| {
        let sections = json["sections"].as_array().unwrap();
        let kv = sections.iter().find(|s| s["name"] == "KV cache").unwrap();
        kv["bytes"].as_u64().unwrap()
    };
    let (_, one) = plan(&path, "-c 1024");
    let (_, four) = plan(&path, "-c 1024 -np 4");
    assert_eq!(4 * kv(&one), kv(&four));
    let (code, capped) = plan(&path, "-c 1024 --heap-cap 12M");
    assert_eq!(capped["device"]["heap_limit"], "heap cap");
    assert_eq!(capped["headroom_bytes"], 3 << 20);
    assert_eq!(code, Some(if capped["over_bytes"] == 0 { 0 } else { 3 }));
    let text = ounce(&["plan", &path, "-c", "1024"]).ok().out;
    for word in ["KV cache", "forward slab", "headroom", "fits"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn flags_that_make_no_sense() {
    let path = model("llama.f32.gguf");
    ounce(&["plan", &path, "--profile", "pdp-11"]).error(&["pdp-11", "orin-8gb"]);
    ounce(&["plan", &path, "--device", "cuda"]).fails(64, &["cuda", "cpu"]);
    let (code, json) = plan(&path, "--device cpu -c 64");
    assert_eq!((code, &json["device"]["backend"]), (Some(0), &json!("cpu")));
    ounce(&["plan", &path, "--heap-cap", "lots"]).fails(64, &["lots"]);
    ounce(&["plan", &path, "-np", "0"]).fails(64, &["0"]);
    ounce(&["plan", "/no/such.gguf"]).error(&["/no/such.gguf"]);
}
