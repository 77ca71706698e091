//! `plan --receipt` and `receipts`: kept, read back, compared, and told when something is wrong with them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Said, command, model, ounce, run_with, scratch};

/// Runs with a store of its own.
fn at(home: &Path, args: &[&str]) -> Said {
    let mut command = command(args);
    command.env("OUNCE_HOME", home);
    run_with(command, b"")
}

/// An empty store.
fn store(name: &str) -> PathBuf {
    let home = scratch("receipts").join(name);
    let _ = std::fs::remove_dir_all(&home);
    home
}

/// The path that a run said it wrote.
fn written(said: &Said) -> PathBuf {
    let line = said.err.lines().find_map(|l| l.strip_prefix("receipt: "));
    PathBuf::from(line.unwrap_or_else(|| panic!("{said:?}")))
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn keys(value: &Value) -> Vec<&str> {
    let keys = value.as_object().unwrap().keys();
    keys.map(String::as_str).collect()
}

fn leaves<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => out.push(text),
        Value::Array(items) => items.iter().for_each(|v| leaves(v, out)),
        Value::Object(map) => map.values().for_each(|v| leaves(v, out)),
        _ => {}
    }
}

#[test]
fn a_plan_is_kept_where_it_was_asked_for() {
    let home = store("places");
    let path = model("llama.f32.gguf");
    let plain = at(&home, &["plan", &path, "-c", "64"]).ok();
    assert!(!home.exists(), "nothing is kept unasked");

    // The model is the model, before the flag and after it.
    for args in [
        ["plan", &path, "--receipt", "-c", "64"],
        ["plan", "-c", "64", "--receipt", &path],
    ] {
        let said = at(&home, &args).ok();
        // Not the figures: the runtime base is measured anew by each process.
        let first = |text: &str| text.lines().next().map(str::to_owned);
        assert_eq!(first(&said.out), first(&plain.out));
        assert_eq!(
            written(&said).parent(),
            Some(home.join("receipts").as_path())
        );
    }
    assert_eq!(files(&home.join("receipts")).len(), 2);

    let file = scratch("receipts").join("mine.json");
    let said = at(
        &home,
        &["plan", &format!("--receipt={}", file.display()), &path],
    )
    .ok();
    assert_eq!(written(&said), file);
    let folder = scratch("receipts").join("made/here/");
    let said = at(
        &home,
        &["plan", &path, &format!("--receipt={}", folder.display())],
    )
    .ok();
    assert_eq!(files(&folder).len(), 1);
    assert!(written(&said).starts_with(&folder));

    let refused = at(&home, &["plan", &path, "--receipt", "-c", "1048576"]);
    refused.error(&["1048576"]);
    let short = [
        "plan",
        &path,
        "-c",
        "64",
        "--heap-cap",
        "1M",
        "--receipt",
        "--json",
    ];
    let said = at(&home, &short);
    assert_eq!(said.code, Some(3));
    let shown = json(&at(&home, &["receipts", "show", "last", "--json"]).ok().out);
    assert_eq!(shown["verdict"]["name"], "does_not_fit");
    assert_eq!(shown["plan"], json(&said.out));
}

#[test]
fn a_record_names_no_person_and_no_folder() {
    let home = store("anna-at-home");
    let folder = home.join("annas models");
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("tiny.gguf");
    std::fs::copy(model("llama.f32.gguf"), &path).unwrap();
    let path = path.display().to_string();
    let place = format!("--receipt={}/r.json", folder.display());
    let mut command = command(&["plan", &path, &place, "-c", "64"]);
    command
        .env("OUNCE_HOME", &home)
        .env("HOME", &home)
        .env("USER", "annasuser")
        .env("HOSTNAME", "annashost");
    let said = run_with(command, b"").ok();
    let text = std::fs::read_to_string(written(&said)).unwrap();
    assert!(!text.contains("anna"), "{text}");
    let record = json(&text);
    let mut texts = Vec::new();
    leaves(&record, &mut texts);
    for text in texts {
        let is_path = text.split([' ', '=']).any(|word| word.starts_with('/'));
        assert!(!is_path, "{text:?}");
    }
    let arguments = ["plan", "tiny.gguf", "--receipt=r.json", "-c", "64"];
    assert_eq!(record["ran"]["arguments"], Value::from_iter(arguments));
}

/// The sections and their fields are those that docs/receipts.md describes, and no others.
#[test]
fn the_schema_is_the_documented_one() {
    let home = store("schema");
    let path = model("qwen35.Q4_K_M.gguf");
    at(&home, &["plan", &path, "--receipt", "-c", "64"]).ok();
    let record = json(&at(&home, &["receipts", "show", "last", "--json"]).ok().out);
    let sections = [
        "schema",
        "version",
        "kind",
        "created",
        "ran",
        "device",
        "file",
        "plan",
        "verdict",
        "content_sha256",
    ];
    assert_eq!(keys(&record), sections);
    let doc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/receipts.md");
    let doc = std::fs::read_to_string(doc).unwrap();
    for section in ["ran", "device", "file", "verdict", "plan"] {
        for key in keys(&record[section]) {
            let documented = doc
                .lines()
                .any(|l| l.starts_with(&format!("| `{section}.{key}`")));
            assert!(documented, "{section}.{key} is not in docs/receipts.md");
        }
    }
    let device = [
        "memory_total_bytes",
        "page_size_bytes",
        "isa",
        "planned_for",
        "limits",
    ];
    for key in device {
        assert!(record["device"].get(key).is_some(), "{key}");
    }
    let file = &record["file"];
    assert_eq!(file["bytes"], std::fs::metadata(&path).unwrap().len());
    assert_eq!(file["architecture"], "qwen35");
    let types = file["tensor_types"].as_object().unwrap();
    assert!(types.len() > 1 && types["F32"]["tensors"].as_u64().unwrap() > 0);
    assert_eq!(record["ran"]["arch"], std::env::consts::ARCH);
    let version = json(&ounce(&["version", "--json"]).ok().out);
    assert_eq!(record["ran"]["commit"], version["commit"]);
}

#[test]
fn records_are_listed_shown_compared_and_tabled() {
    let home = store("verbs");
    let path = model("llama.f32.gguf");
    at(&home, &["receipts", "list"]).ok();
    at(&home, &["receipts", "show", "last"]).error(&["ounce plan MODEL --receipt"]);
    at(&home, &["receipts", "markdown"]).error(&["no receipts"]);

    let a = written(&at(&home, &["plan", &path, "-c", "64", "--receipt"]).ok());
    let b = written(
        &at(
            &home,
            &[
                "plan",
                &path,
                "-c",
                "128",
                "--receipt",
                "--profile",
                "vm-2gb",
            ],
        )
        .ok(),
    );
    let list = json(&at(&home, &["receipts", "list", "--json"]).ok().out);
    let paths: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, [a.display().to_string(), b.display().to_string()]);
    assert_eq!(
        (&list[1]["planned_for"], &list[1]["intact"]),
        (&"vm-2gb".into(), &true.into())
    );
    let text = at(&home, &["receipts", "list"]).ok().out;
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.contains("llama.f32.gguf") && text.contains("vm-2gb"),
        "{text}"
    );
    let elsewhere = store("verbs-elsewhere");
    let folder = home.join("receipts").display().to_string();
    assert_eq!(
        at(&elsewhere, &["receipts", "list", &folder]).ok().out,
        text
    );
    at(&elsewhere, &["receipts", "list", "/no/such"]).error(&["/no/such"]);

    // By path, by name, by hash, by time.
    let hash = list[1]["content_sha256"].as_str().unwrap();
    let name = b.file_name().unwrap().to_str().unwrap();
    let path_of_b = b.display().to_string();
    let shown = at(&home, &["receipts", "show", "last"]).ok().out;
    for word in [
        "kind: plan",
        "vm-2gb",
        "KV cache",
        "llama",
        "n_ctx: 128",
        hash,
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    for reference in [path_of_b.as_str(), name, &hash[..12]] {
        assert_eq!(at(&home, &["receipts", "show", reference]).ok().out, shown);
    }
    let raw = at(&home, &["receipts", "show", "last", "--json"]).ok().out;
    assert_eq!(raw, std::fs::read_to_string(&b).unwrap());
    at(&home, &["receipts", "show", "zzz"]).error(&["zzz", "receipts list"]);
    at(&home, &["receipts", "show", "20"]).error(&["2 receipts", "write more"]);
    at(&home, &["receipts", "show", "/no/such.json"]).error(&["/no/such.json"]);

    let path_of_a = a.display().to_string();
    let diff = json(
        &at(&home, &["receipts", "diff", &path_of_a, "last", "--json"])
            .ok()
            .out,
    );
    let of = |path: &str| {
        diff.as_array()
            .unwrap()
            .iter()
            .find(|d| d["path"] == path)
            .cloned()
    };
    let n_ctx = of("plan.n_ctx").unwrap();
    assert_eq!(
        (&n_ctx["a"], &n_ctx["b"], &n_ctx["ratio"]),
        (&64.into(), &128.into(), &2.0.into())
    );
    assert!(of("plan.sections[KV cache].bytes").is_some());
    assert!(of("created").is_none() && of("content_sha256").is_none() && of("file.name").is_none());
    let text = at(&home, &["receipts", "diff", &path_of_a, "last"])
        .ok()
        .out;
    let line = text.lines().find(|l| l.starts_with("plan.n_ctx ")).unwrap();
    assert!(line.ends_with("x 2.000"), "{line}");
    let same = at(&home, &["receipts", "diff", "last", &hash[..12]]).ok();
    assert_eq!(
        (same.out.as_str(), same.err.as_str()),
        ("", "no differences\n")
    );

    let table = at(&home, &["receipts", "markdown"]).ok().out;
    let cells: Vec<_> = table.lines().map(|l| l.matches('|').count()).collect();
    assert_eq!(cells, [11; 4], "{table}");
    let one = at(&home, &["receipts", "markdown", "last"]).ok().out;
    assert_eq!(one.lines().count(), 3, "{one}");
    assert!(
        one.contains("| llama.f32.gguf | plan | vm-2gb | 2.1 GB | 128 |"),
        "{one}"
    );
}

#[test]
fn edited_damaged_and_foreign_files_are_told() {
    let home = store("bad");
    let path = model("llama.f32.gguf");
    let good = written(&at(&home, &["plan", &path, "-c", "64", "--receipt"]).ok());
    let folder = good.parent().unwrap();
    let text = std::fs::read_to_string(&good).unwrap();

    // Another layout is no edit.
    let compact = folder.join("compact.json");
    std::fs::write(&compact, json(&text).to_string()).unwrap();
    let compact = compact.display().to_string();
    at(&home, &["receipts", "show", &compact]).ok();

    let edited = folder.join("edited.json");
    let change = text.replace("\"n_ctx\": 64", "\"n_ctx\": 65");
    assert_ne!(change, text);
    std::fs::write(&edited, change).unwrap();
    std::fs::write(folder.join("damaged.json"), &text[..text.len() / 2]).unwrap();
    std::fs::write(folder.join("deep.json"), "[".repeat(1 << 20)).unwrap();
    std::fs::write(folder.join("notes.txt"), "mine").unwrap();
    std::fs::write(
        folder.join("new.json"),
        text.replace("\"version\": 1,", "\"version\": 7,"),
    )
    .unwrap();

    let said = at(&home, &["receipts", "list", "--json"]).ok();
    let list = json(&said.out);
    let intact = |name: &str| {
        let found = list
            .as_array()
            .unwrap()
            .iter()
            .find(|r| r["path"].as_str().unwrap().ends_with(name));
        found.map(|r| r["intact"].as_bool().unwrap())
    };
    assert_eq!(
        (intact("edited.json"), intact("compact.json")),
        (Some(false), Some(true))
    );
    assert_eq!(list.as_array().unwrap().len(), 3);
    for (start, name, word) in [
        ("skipped: ", "damaged.json", "not a receipt"),
        ("skipped: ", "deep.json", "not a receipt"),
        ("skipped: ", "notes.txt", "not a receipt"),
        ("skipped: ", "new.json", "version 7"),
        ("warning: ", "edited.json", "edited by hand"),
    ] {
        let is_it = |l: &&str| l.starts_with(start) && l.contains(name) && l.contains(word);
        assert_eq!(
            said.err.lines().filter(is_it).count(),
            1,
            "{name}: {}",
            said.err
        );
    }
    assert_eq!(said.err.lines().count(), 5, "{}", said.err);
    assert!(
        at(&home, &["receipts", "list"])
            .ok()
            .out
            .contains("fits (edited)")
    );

    let edited = edited.display().to_string();
    at(&home, &["receipts", "show", &edited]).error(&["edited.json", "edited by hand"]);
    at(&home, &["receipts", "diff", &edited, &compact]).error(&["edited by hand"]);
    at(&home, &["receipts", "diff", &compact, &edited]).error(&["edited by hand"]);
    at(&home, &["receipts", "markdown", &edited]).error(&["edited by hand"]);
    let table = at(&home, &["receipts", "markdown"]);
    table.fails(1, &["error: ", "edited.json", "edited by hand"]);
    at(&home, &["receipts", "show", "new"]).error(&["\"new\""]);
    let new = folder.join("new.json").display().to_string();
    at(&home, &["receipts", "show", &new]).error(&["version 7", "newer ounce"]);
    at(&home, &["receipts", "show", &path]).error(&["not a receipt"]);
}

#[test]
fn a_place_that_cannot_be_written_is_one_line_and_leaves_nothing() {
    let home = store("places-bad");
    let path = model("llama.f32.gguf");
    let plan = |place: &str| {
        at(
            &home,
            &["plan", &path, "-c", "64", &format!("--receipt={place}")],
        )
    };
    std::fs::create_dir_all(&home).unwrap();
    let file = home.join("file");
    std::fs::write(&file, "x").unwrap();
    plan(&format!("{}/", file.display())).error(&["cannot create", "file"]);
    plan(&format!("{}/r.json", file.display())).error(&["cannot write", "r.json"]);
    plan(&format!("{}/none/r.json", home.display())).error(&["cannot write", "r.json"]);
    plan(&file.display().to_string()).error(&["is there already", "file"]);
    let copy = home.join("m.gguf");
    std::fs::copy(&path, &copy).unwrap();
    plan(&copy.display().to_string()).error(&["m.gguf", "not a receipt"]);
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&path).unwrap());
    plan("").fails(64, &["--receipt"]);

    // The store itself is a file.
    let said = at(&file, &["plan", &path, "-c", "64", "--receipt"]);
    said.error(&["receipts"]);
    assert_eq!(files(&home), ["file", "m.gguf"]);
}

/// A write that fails half-way, as on a full disk: the shell lets files grow to 512 or 1024 bytes.
#[cfg(target_os = "linux")]
#[test]
fn a_write_that_fails_leaves_nothing() {
    let folder = store("half");
    std::fs::create_dir_all(&folder).unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_ounce"))
        .args(["plan", &model("llama.f32.gguf"), "-c", "64"])
        .arg(format!("--receipt={}/", folder.display()))
        .env("OUNCE_HOME", &folder);
    run_with(shell, b"").error(&["cannot write", ".json"]);
    assert_eq!(files(&folder), [""; 0]);
}
