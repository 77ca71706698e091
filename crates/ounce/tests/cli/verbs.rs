//! The smaller verbs.

use serde_json::{Value, json};

use crate::harness::{command, data, model, ounce, run_with, scratch};

#[test]
fn version_and_completions() {
    let text = ounce(&["version"]).ok().out;
    assert!(
        text.starts_with("ounce ") && text.contains("threads"),
        "{text}"
    );
    let json: Value = serde_json::from_str(&ounce(&["version", "--json"]).ok().out).unwrap();
    assert!(json["threads"].as_u64().unwrap() >= 1);
    let commit = json["commit"].as_str().unwrap();
    assert!(text.contains(commit), "{text}");
    let (hex, _) = commit.split_once('-').unwrap_or((commit, ""));
    let is_hash = hex.len() >= 12 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(commit == "unknown" || is_hash, "{commit}");
    let mut forced = command(&["version", "--json"]);
    forced.env("OUNCE_ISA", "scalar");
    let json: Value = serde_json::from_str(&run_with(forced, b"").ok().out).unwrap();
    assert_eq!(json["isa"], "scalar");
    assert!(ounce(&["completions", "bash"]).ok().out.contains("ounce"));
}

#[test]
fn every_verb_has_help_that_says_what_it_does() {
    let help = ounce(&["--help"]).ok().out;
    for verb in [
        "run",
        "plan",
        "receipts",
        "pull",
        "list",
        "rm",
        "show",
        "tokenize",
        "template",
        "logits",
        "completions",
        "version",
    ] {
        assert!(
            help.contains(&format!("  {verb} ")),
            "{verb} is not in --help"
        );
        assert!(
            ounce(&[verb, "--help"])
                .ok()
                .out
                .lines()
                .next()
                .unwrap()
                .len()
                > 20,
            "{verb} --help"
        );
    }
    assert!(help.contains("Examples:") && help.contains("Exit codes:"));
}

#[test]
fn tokenize_in_its_forms() {
    let path = model("llama.f32.gguf");
    let json: Value = serde_json::from_str(
        &ounce(&["tokenize", &path, "Hi <|im_end|>", "--special", "--json"])
            .ok()
            .out,
    )
    .unwrap();
    assert_eq!(
        json["pieces"].as_array().unwrap().last().unwrap(),
        "<|im_end|>"
    );
    assert_eq!(*json["ids"].as_array().unwrap().last().unwrap(), 514);
    let lines = run_with(
        command(&["tokenize", &path, "--jsonl"]),
        "\"a\"\n\"\"\n\"é\\n\"\n".as_bytes(),
    )
    .ok()
    .out;
    let lines: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[1], json!([]));
    run_with(command(&["tokenize", &path, "--jsonl"]), b"not json\n")
        .error(&["line 1", "JSON string"]);
    assert!(
        run_with(command(&["tokenize", &path]), b"piped")
            .ok()
            .out
            .lines()
            .count()
            > 0
    );
}

#[test]
fn template_in_its_forms() {
    let path = model("llama.f32.gguf");
    assert!(
        ounce(&["template", &path])
            .ok()
            .out
            .contains("{% for m in messages %}")
    );
    let vars =
        json!({ "messages": [{ "role": "user", "content": "Hi" }], "add_generation_prompt": true });
    let said = run_with(
        command(&["template", &path, "--jsonl"]),
        format!("{vars}\n").as_bytes(),
    )
    .ok()
    .out;
    assert_eq!(
        said,
        format!(
            "{}\n",
            json!({ "text": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" })
        )
    );
    let file = data("templates/google-gemma-2-2b-it.jinja");
    let system = json!({ "messages": [{ "role": "system", "content": "x" }] });
    let said = run_with(
        command(&["template", &file, "--jsonl"]),
        format!("{system}\n").as_bytes(),
    )
    .ok()
    .out;
    assert!(
        serde_json::from_str::<Value>(&said).unwrap()["error"]
            .as_str()
            .unwrap()
            .contains("System role"),
        "{said}"
    );
    run_with(command(&["template", &file, "--jsonl"]), b"[1]\n").error(&["line 1", "object"]);
}

/// The logits of the goldens, through the binary, whatever the chunk.
#[test]
fn logits_are_those_of_the_reference() {
    let out = scratch("logits").join("x.npy").display().to_string();
    let want = std::fs::read(data("golden/qwen35.npy")).unwrap();
    for chunk in [None, Some("1"), Some("7")] {
        let (model, tokens) = (model("qwen35.f32.gguf"), data("golden/tokens.json"));
        let mut args = vec![
            "logits", &model, "--tokens", &tokens, "--out", &out, "-ctk", "f32", "-ctv", "f32",
        ];
        args.extend(chunk.iter().flat_map(|n| ["--chunk", n]));
        ounce(&args).ok();
        let got = std::fs::read(&out).unwrap();
        assert_eq!(got.len(), want.len());
        let floats = |b: &[u8]| -> Vec<f32> {
            b[128..]
                .chunks_exact(4)
                .map(|x| f32::from_le_bytes(x.try_into().unwrap()))
                .collect()
        };
        assert!(String::from_utf8_lossy(&got[..128]).contains("'shape': (40, 515)"));
        let error: f64 = floats(&got)
            .iter()
            .zip(floats(&want))
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum();
        assert!(error < 1e-4, "chunk {chunk:?}: {error}");
    }
}

#[test]
fn logits_refuse_bad_input() {
    let folder = scratch("bad-logits");
    let out = folder.join("x.npy").display().to_string();
    let tokens = |text: &str| {
        let path = folder.join("tokens.json");
        std::fs::write(&path, text).unwrap();
        ounce(&[
            "logits",
            &model("llama.f32.gguf"),
            "--tokens",
            &path.display().to_string(),
            "--out",
            &out,
        ])
    };
    tokens("[1, 99999]").error(&["99999", "515"]);
    tokens("{").error(&["tokens.json", "JSON list"]);
    tokens("[]").error(&["empty"]);
    assert!(!std::path::Path::new(&out).exists());
    assert!(!std::path::Path::new(&format!("{out}.partial")).exists());
    // No space left, as the device that is always full says it.
    if cfg!(target_os = "linux") {
        let tokens = data("golden/tokens.json");
        let full = folder.join("full.npy.partial");
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        let out = folder.join("full.npy").display().to_string();
        ounce(&[
            "logits",
            &model("llama.f32.gguf"),
            "--tokens",
            &tokens,
            "--out",
            &out,
        ])
        .error(&["full.npy", "No space left"]);
        assert!(!std::path::Path::new(&out).exists());
    }
}

#[test]
fn list_and_rm_of_an_empty_store() {
    let mut list = command(&["list", "--json"]);
    let home = scratch("empty-store");
    list.env("OUNCE_HOME", &home)
        .env("OLLAMA_MODELS", home.join("none"));
    assert_eq!(
        serde_json::from_str::<Value>(&run_with(list, b"").ok().out).unwrap(),
        json!([])
    );
    ounce(&["rm", "no-such-model"]).error(&["no-such-model", "ounce list"]);
}

/// The template's thread takes its stack from what the limits leave; a hostile template still cannot overflow it.
#[test]
#[cfg(target_os = "linux")]
fn templates_under_memory_limits() {
    let under = |limit: &str, source: &str| {
        let file = scratch("template-limits").join("t.jinja");
        std::fs::write(&file, source).unwrap();
        let ounce = command(&["template", &file.display().to_string(), "--jsonl"]);
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"])
            .arg(ounce.get_program())
            .args(ounce.get_args());
        for (key, value) in ounce.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        run_with(command, br#"{"messages":[{"role":"user","content":"Hi"}]}"#)
            .ok()
            .out
    };
    let nested = format!("{}ns.x{}", "[".repeat(60), "]".repeat(60));
    let deep = format!(
        "{{% set ns = namespace(x=1) %}}{{% for i in range(2000) %}}{{% set ns.x = {nested} %}}{{% endfor %}}{{{{ ns.x }}}}"
    );
    for limit in ["-d 98304", "-d 24576", "-v 262144"] {
        let text = under(limit, "{% for m in messages %}{{ m.content }}{% endfor %}");
        assert_eq!(text.trim(), r#"{"text":"Hi"}"#, "{limit}");
        let text = under(limit, &deep);
        assert!(text.contains("more time or memory"), "{limit}: {text:.100}");
    }
}
