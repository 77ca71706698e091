//! `run`: the generated text alone on stdout, the same text for the same seed, stops and limits.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::harness::{command, model, ounce, run_with, scratch};

/// Few tokens of a random model, which never says anything sensible.
fn say(args: &[&str]) -> String {
    let path = model("llama.f32.gguf");
    let mut all = vec!["run", &path, "-p", "Hello", "-n", "12", "--ignore-eos"];
    all.extend(args);
    ounce(&all).ok().out
}

#[test]
fn greedy_and_seeded_texts_repeat() {
    assert_eq!(say(&["--temp", "0"]), say(&["--temp", "0", "--seed", "9"]));
    assert_eq!(say(&["--seed", "5"]), say(&["--seed", "5"]));
    let texts: Vec<String> = (1..5)
        .map(|s| {
            say(&[
                "--seed",
                &s.to_string(),
                "--top-k",
                "0",
                "--top-p",
                "1",
                "--min-p",
                "0",
            ])
        })
        .collect();
    assert!(texts.iter().any(|t| *t != texts[0]), "{texts:?}");
    // Neither threads nor chunks change what a seed says.
    assert_eq!(
        say(&["--seed", "5", "-t", "1"]),
        say(&["--seed", "5", "-t", "3"])
    );
    assert_eq!(
        say(&["--temp", "0", "-ub", "2"]),
        say(&["--temp", "0", "-b", "64"])
    );
}

#[test]
fn every_architecture_and_cache_type_runs() {
    for arch in ["llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "qwen35"] {
        let path = model(&format!("{arch}.f32.gguf"));
        for cache in ["f16", "f32", "bf16"] {
            ounce(&[
                "run", &path, "-p", "Hello", "-n", "4", "-ctk", cache, "-ctv", cache, "-c", "64",
            ])
            .ok();
        }
    }
    for arch in ["llama", "qwen35"] {
        for cache in ["q8_0", "q4_0", "tq4"] {
            ounce(&[
                "run",
                &model(&format!("{arch}.Q4_K_M.gguf")),
                "-p",
                "Hello",
                "-n",
                "4",
                "-ctk",
                cache,
                "-ctv",
                cache,
            ])
            .ok();
        }
    }
}

#[test]
fn json_carries_the_text_and_the_figures() {
    let path = model("llama.f32.gguf");
    let said = ounce(&[
        "run",
        &path,
        "-p",
        "Hello",
        "-n",
        "5",
        "--ignore-eos",
        "--temp",
        "0",
        "--json",
        "--verbose",
    ])
    .ok();
    let json: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["generated_tokens"], 5);
    assert_eq!(json["stop_reason"], "length");
    assert!(json["prompt_tokens"].as_u64().unwrap() > 1);
    let plain = ounce(&[
        "run",
        &path,
        "-p",
        "Hello",
        "-n",
        "5",
        "--ignore-eos",
        "--temp",
        "0",
    ])
    .ok()
    .out;
    assert_eq!(
        json["text"].as_str().unwrap(),
        plain.strip_suffix('\n').unwrap()
    );
    for word in ["tokens/s", "first token", "KV cache", "weights"] {
        assert!(said.err.contains(word), "{word}: {}", said.err);
    }
}

#[test]
fn the_prompt_comes_from_words_flags_or_standard_input() {
    let path = model("llama.f32.gguf");
    let tail = ["-n", "6", "--temp", "0", "--ignore-eos"];
    let run = |args: &[&str], stdin: &str| {
        let args: Vec<&str> = ["run"].iter().chain(args).chain(&tail).copied().collect();
        run_with(command(&args), stdin.as_bytes()).ok().out
    };
    let flag = run(&[&path, "-p", "Hi there"], "");
    assert_eq!(run(&[&path, "Hi there"], ""), flag);
    assert_eq!(run(&[&path, "Hi", "there"], ""), flag);
    assert_eq!(run(&["-m", &path, "Hi there"], ""), flag);
    assert_eq!(run(&[&path], "Hi there"), flag);
    assert_eq!(
        run(&[&path, "there"], "Hi"),
        run(&[&path, "-p", "Hi\nthere"], "")
    );
    assert_ne!(run(&[&path, "--raw", "Hi there"], ""), flag);
    assert_ne!(run(&[&path, "--system", "Be brief.", "Hi there"], ""), flag);
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_eq!(
        run(&[&path, "--template", template, "Hi there"], ""),
        run(&[&path, "--raw", "Hi there"], "")
    );
    run_with(command(&["run", &path]), b"").error(&["no prompt"]);
}

#[test]
fn stop_strings_end_the_text_and_are_left_out() {
    let whole = say(&["--temp", "0"]);
    let text = whole.trim_end_matches('\n');
    let middle = text.char_indices().nth(text.chars().count() / 2).unwrap().0;
    let stop: String = text[middle..].chars().take(2).collect();
    assert_eq!(
        say(&["--temp", "0", "--stop", &stop]).trim_end_matches('\n'),
        &text[..text.find(&stop).unwrap()]
    );
}

#[test]
fn a_full_context_ends_the_text_or_shifts() {
    let path = model("llama.f32.gguf");
    let base = [
        "run",
        &path,
        "-p",
        "Hello",
        "--raw",
        "-c",
        "16",
        "--ignore-eos",
        "--temp",
        "0",
        "--json",
    ];
    let full: Value = serde_json::from_str(&ounce(&base).ok().out).unwrap();
    assert_eq!(full["stop_reason"], "context_full");
    for arch in ["llama", "gemma3", "qwen35"] {
        let path = model(&format!("{arch}.f32.gguf"));
        let mut args = base.to_vec();
        args[1] = &path;
        args.extend(["--context-shift", "--keep", "2", "-n", "40"]);
        let shifted: Value = serde_json::from_str(&ounce(&args).ok().out).unwrap();
        assert_eq!(
            (&shifted["stop_reason"], &shifted["generated_tokens"]),
            (&"length".into(), &40.into()),
            "{arch}"
        );
    }
}

/// A run that goes on for seconds, with its output read up to the first words.
fn endless(model: &str) -> (Child, BufReader<ChildStdout>) {
    let args = ["run", model, "-p", "Hello", "--ignore-eos", "-c", "32768"];
    let mut child = command(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut some = Vec::new();
    out.read_until(b' ', &mut some).unwrap();
    (child, out)
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (child, out) = endless(&model("llama.f32.gguf"));
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(141),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Ctrl-C ends the answer with what there is, and says so by the exit code.
#[test]
#[cfg(unix)]
fn ctrl_c_stops_the_answer() {
    let (mut child, mut out) = endless(&model("llama.f32.gguf"));
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    std::io::copy(&mut out, &mut std::io::sink()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A model file that changes under the mapping is one line and an exit code, not a signal.
#[test]
#[cfg(target_os = "linux")]
fn a_file_that_changes_ends_the_run_cleanly() {
    type Change = fn(&std::path::Path);
    let changes: [(&str, Change); 3] = [
        ("shrinks", |p| cut(p, 4096)),
        ("shrinks-a-little", |p| {
            cut(p, p.metadata().unwrap().len() - 1);
        }),
        ("is-overwritten", |p| {
            std::fs::copy(model("qwen2.f32.gguf"), p).unwrap();
        }),
    ];
    for (name, change) in changes {
        let path = scratch(name).join("model.gguf");
        std::fs::copy(model("llama.f32.gguf"), &path).unwrap();
        let (child, mut out) = endless(&path.display().to_string());
        change(&path);
        std::io::copy(&mut out, &mut std::io::sink()).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{name}: {err}");
        let lines: Vec<&str> = err.lines().filter(|l| l.contains("error")).collect();
        assert_eq!(lines.len(), 1, "{name}: {err}");
        assert!(
            lines[0].contains("model.gguf: the file shrank, was overwritten"),
            "{name}: {err}"
        );
    }
}

fn cut(path: &std::path::Path, len: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

/// A SIGBUS that has nothing to do with a model keeps its default effect.
#[test]
#[cfg(target_os = "linux")]
fn a_sigbus_from_outside_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    let (mut child, mut out) = endless(&model("llama.f32.gguf"));
    let killed = std::process::Command::new("kill")
        .args(["-BUS", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    std::io::copy(&mut out, &mut std::io::sink()).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(7));
}
