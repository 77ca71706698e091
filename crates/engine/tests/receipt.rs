//! Records: their hash by a rule of its own, edits and layouts, places, folders, differences.

use std::path::Path;

use ounce_engine::model::ModelSpec;
use ounce_engine::receipt::{
    Fingerprint, Flaw, Kind, Ran, Receipt, ReceiptError, diff, find, list,
};
use ounce_kernels::Isa;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A record whose hash Python computed, by the lines in `docs/receipts.md`.
const FIXED: &str = r#"{
  "version": 1, "schema": "ounce.receipt", "kind": "measure", "created": "2026-01-02T03:04:05.678Z",
  "ran": { "version": "0.1.0", "arguments": ["measure", "m\u00e9.gguf"], "commit": "unknown" },
  "device": { "cpu": "A \"B\" \\ \u0001", "limits": [], "isa": "avx2" },
  "file": { "name": "m\u00e9.gguf", "bytes": 18446744073709551615 },
  "distributions": { "decode_ms": { "unit": "ms", "n": 3, "min": 1.0, "median": 33.25, "p95": 1e-7, "max": 1e300 } },
  "verdict": { "name": "fits", "over": null, "ok": true, "drift": -0.1 },
  "content_sha256": "HASH"
}"#;

const HASH: &str = "e2e4b01ee08c99a3c3f711c7bc2ad42028c62216e06a6e7f52b34aa2606436b0";

fn fixed() -> String {
    FIXED.replace("HASH", HASH)
}

#[test]
fn the_hash_is_the_one_python_computes() {
    let receipt = Receipt::parse(fixed().as_bytes()).unwrap();
    assert!(receipt.is_intact(), "{}", receipt.to_json());
    for (from, to) in [
        ("33.25", "33.26"),
        ("true", "false"),
        ("\"over\": null, ", ""),
        ("615", "614"),
        ("1.0,", "1.5,"),
    ] {
        let edited = fixed().replace(from, to);
        assert_ne!(edited, fixed());
        let receipt = Receipt::parse(edited.as_bytes()).unwrap();
        assert!(!receipt.is_intact(), "{from} -> {to}");
    }
}

fn spec() -> ModelSpec {
    let path = "../../tests/data/golden/llama.f32.gguf";
    ModelSpec::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn record(plan: Value) -> Receipt {
    let ran = Ran {
        arguments: vec!["plan".into(), "/home/anna/m.gguf".into()],
        version: "0".into(),
        commit: "unknown".into(),
    };
    let device = Fingerprint::here("this machine", Isa::Scalar);
    Receipt::builder(Kind::Plan, &ran, &spec(), &device)
        .unwrap()
        .plan(plan)
        .verdict(json!({ "name": "fits" }))
        .distribution("decode_ms", "ms", &[3.0, 1.0, 2.5])
        .distribution("prefill_ms", "ms", &[])
        .seal()
}

#[test]
fn a_record_holds_what_was_given_and_no_folder() {
    let r = record(json!({ "n_ctx": 512, "note": "see /home/anna/x y/z.txt" }));
    assert!(r.is_intact());
    assert_eq!(
        (r.kind(), r.model(), r.verdict()),
        ("plan", "llama.f32.gguf", Some("fits"))
    );
    assert_eq!(
        r.get(&["ran", "arguments"]),
        Some(&json!(["plan", "m.gguf"]))
    );
    assert_eq!(r.get(&["plan", "note"]), Some(&json!("see z.txt")));
    assert_eq!(
        r.get(&["distributions"]),
        Some(
            &json!({ "decode_ms": { "unit": "ms", "n": 3, "min": 1.0, "median": 2.5, "p95": 3.0, "max": 3.0 } })
        )
    );
    assert_eq!(r.get(&["file", "architecture"]), Some(&json!("llama")));
    assert_eq!(r.get(&["actual"]), None);
    assert_eq!(
        r.document().keys().next_back().map(String::as_str),
        Some("content_sha256")
    );
    // sha256sum of the bytes before the first tensor.
    assert_eq!(
        r.get(&["file", "header_sha256"]),
        Some(&json!(
            "4955df330fc89398137d3cc4b9b20c87d25d583ca02215c40c242dd0adccb053"
        ))
    );
}

#[test]
fn saved_records_read_back_and_nothing_else_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let r = record(json!({ "x": 0.1 }));
    let named = r.save(dir.path()).unwrap();
    assert_eq!(named, dir.path().join(r.file_name()));
    let made = r
        .save(Path::new(&format!("{}/a/b/", dir.path().display())))
        .unwrap();
    assert!(made.starts_with(dir.path().join("a/b")));
    let file = dir.path().join("r.json");
    assert_eq!(r.save(&file).unwrap(), file);
    assert_eq!(
        r.save(&file).unwrap(),
        file,
        "a record gives way to a record"
    );
    for path in [&named, &made, &file] {
        assert_eq!(Receipt::read(path).unwrap(), r);
    }
    let model = dir.path().join("m.gguf");
    std::fs::write(&model, "GGUF").unwrap();
    let error = r.save(&model).unwrap_err();
    assert!(matches!(error, ReceiptError::Occupied(_)), "{error}");
    assert_eq!(std::fs::read(&model).unwrap(), b"GGUF");
    for bad in [model.join("r.json"), dir.path().join("none/r.json")] {
        let text = r.save(&bad).unwrap_err().to_string();
        assert!(
            text.contains("r.json") && !text.contains('\n'),
            "{bad:?}: {text}"
        );
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn names_of_files_are_plain() {
    let text = fixed().replace("m\\u00e9.gguf\", \"bytes", "../m é$.gguf\", \"bytes");
    let name = Receipt::parse(text.as_bytes()).unwrap().file_name();
    let want = format!("20260102T030405678Z-measure-.._m___-{}.json", &HASH[..8]);
    assert_eq!(name, want);
}

#[test]
fn what_is_no_record_says_why() {
    let deep = "[".repeat(100_000);
    for (text, word) in [
        ("", "EOF"),
        ("[]", "no JSON object"),
        ("{}", "schema"),
        ("{\"schema\": \"ounce.receipt\"}", "no version"),
        (
            "{\"schema\": \"ounce.receipt\", \"version\": 1}",
            "\"kind\"",
        ),
        (deep.as_str(), "recursion"),
    ] {
        match Receipt::parse(text.as_bytes()) {
            Err(Flaw::NotAReceipt(why)) => assert!(why.contains(word), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let newer = fixed().replace("\"version\": 1,", "\"version\": 2,");
    assert_eq!(Receipt::parse(newer.as_bytes()), Err(Flaw::Newer(2)));

    let dir = tempfile::tempdir().unwrap();
    let large = dir.path().join("large.json");
    let file = std::fs::File::create(&large).unwrap();
    file.set_len(1 << 40).unwrap();
    let text = Receipt::read(&large).unwrap_err().to_string();
    assert!(text.contains("16 MiB"), "{text}");
    let text = Receipt::read(dir.path()).unwrap_err().to_string();
    assert!(text.contains("not a regular file"), "{text}");
    let edited = dir.path().join("edited.json");
    std::fs::write(&edited, fixed().replace("33.25", "3.25")).unwrap();
    let text = Receipt::read(&edited).unwrap_err().to_string();
    assert!(
        text.contains("edited.json: edited by hand") && !text.contains('\n'),
        "{text}"
    );
}

#[test]
fn a_folder_and_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, created: &str| {
        let text = fixed().replace("2026-01-02T03:04:05.678Z", created);
        std::fs::write(dir.path().join(name), text).unwrap();
    };
    at("b-new.json", "2026-02-01T00:00:00.000Z");
    at("a-new.json", "2026-03-01T00:00:00.000Z");
    at("old.json", "2026-01-01T00:00:00.000Z");
    std::fs::write(dir.path().join("notes.txt"), "hello").unwrap();
    std::fs::write(dir.path().join(".half.tmp"), "{").unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let listing = list(dir.path()).unwrap();
    let names: Vec<_> = listing
        .entries
        .iter()
        .map(|e| e.path.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(names, ["old.json", "b-new.json", "a-new.json"]);
    assert_eq!(listing.skipped.len(), 1);
    assert!(listing.skipped[0].to_string().contains("notes.txt"));

    let path =
        |reference: &str| find(dir.path(), reference).map(|p| p.file_name().unwrap().to_owned());
    assert_eq!(path("last").unwrap(), "a-new.json");
    assert_eq!(path("b").unwrap(), "b-new.json");
    assert_eq!(path("./x/y.json").unwrap(), "y.json");
    let text = |reference: &str| path(reference).unwrap_err().to_string();
    assert!(text("zz").contains("zz") && text("").contains("begins with"));
    assert!(text(&HASH[..4]).starts_with("3 receipts"));
    let none = dir.path().join("none");
    assert!(matches!(list(&none), Err(ReceiptError::NotFound(_))));
    let text = find(&none, "last").unwrap_err().to_string();
    assert!(text.contains("ounce plan MODEL --receipt"), "{text}");
}

/// Long lists of named things come from outside, too; by pairs this would take a minute and more.
#[test]
fn long_lists_are_compared_by_name() {
    let list = |from: u64| {
        let items = (from..from + 200_000).map(|i| json!({ "name": i.to_string(), "n": i }));
        record(json!({ "list": items.collect::<Vec<_>>() }))
    };
    let (a, b) = (list(0), list(10));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(diff(&a, &b).len()));
    let found = receiver.recv_timeout(std::time::Duration::from_secs(20));
    assert_eq!(found, Ok(2 * 2 * 10));
}

#[test]
fn differences_are_named_and_have_ratios() {
    let sections =
        |kv: u64| json!([{ "name": "weights", "bytes": 5 }, { "name": "kv", "bytes": kv }]);
    let a = record(
        json!({ "n_ctx": 512, "sections": sections(100), "one": 1, "list": [1, 2], "gone": [] }),
    );
    let b = record(
        json!({ "n_ctx": 512, "sections": sections(150), "one": 1.0, "list": [1, 3], "new": {} }),
    );
    let found = diff(&a, &b);
    let lines: Vec<_> = found
        .iter()
        .map(|d| (d.path.as_str(), d.a.clone(), d.b.clone(), d.ratio()))
        .collect();
    assert_eq!(
        lines,
        [
            (
                "plan.sections[kv].bytes",
                Some(json!(100)),
                Some(json!(150)),
                Some(1.5)
            ),
            ("plan.list", Some(json!([1, 2])), Some(json!([1, 3])), None),
            ("plan.gone", Some(json!([])), None, None),
            ("plan.new", None, Some(json!({})), None),
        ]
    );
    assert_eq!(diff(&a, &a), []);
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-1e6..1e6f64).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ]
}

fn tree() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((".{0,6}", inner), 0..5)
                .prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

fn leaves<'a>(value: &'a mut Value, out: &mut Vec<&'a mut Value>) {
    let is_leaf = match &*value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => true,
    };
    match value {
        leaf if is_leaf => out.push(leaf),
        Value::Array(items) => items.iter_mut().for_each(|v| leaves(v, out)),
        Value::Object(map) => map.values_mut().for_each(|v| leaves(v, out)),
        _ => unreachable!(),
    }
}

fn reversed(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(reversed).collect(),
        Value::Object(map) => {
            let fields = map.iter().rev().map(|(k, v)| (k.clone(), reversed(v)));
            Value::Object(fields.collect())
        }
        leaf => leaf.clone(),
    }
}

/// Equal as the hash sees it: 1 and 1.0 are one value.
fn is_equal(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && b.is_number() && a.as_f64() == b.as_f64())
}

proptest! {
    #[test]
    fn any_edit_is_found_and_no_layout_is_one(plan in tree(), edit in leaf(), which: prop::sample::Index) {
        let receipt = record(plan.clone());
        prop_assert!(receipt.is_intact());
        let reread = Receipt::parse(receipt.to_json().as_bytes()).unwrap();
        prop_assert!(reread.is_intact(), "{}", receipt.to_json());
        let other = reversed(&Value::Object(receipt.document().clone()));
        for text in [format!("{other}"), format!("{other:#}")] {
            prop_assert!(Receipt::parse(text.as_bytes()).unwrap().is_intact());
        }

        let mut edited = Value::Object(receipt.document().clone());
        let mut all = Vec::new();
        for (_, value) in edited.as_object_mut().unwrap().iter_mut() {
            leaves(value, &mut all);
        }
        let at = which.index(all.len());
        prop_assume!(!is_equal(all[at], &edit));
        *all[at] = edit;
        // Where the edit leaves a record, its hash does not hold.
        if let Ok(edited) = Receipt::parse(edited.to_string().as_bytes()) {
            prop_assert!(!edited.is_intact());
            prop_assert!(!diff(&receipt, &edited).is_empty() || edited.created() != receipt.created()
                || edited.content_sha256() != receipt.content_sha256());
        }
    }

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..900usize) {
        let _ = Receipt::parse(&bytes);
        let text = fixed();
        if cut < text.len() {
            prop_assert!(Receipt::parse(&text.as_bytes()[..cut]).is_err());
        }
    }
}
