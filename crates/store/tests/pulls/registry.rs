//! ollama: its registry, and its store on this machine.

use std::fs;
use std::path::{Path, PathBuf};

use ounce_store::{ModelRef, Owner, Pull};
use serde_json::{Value, json};

use crate::bench::{Bench, model_bytes, notes, sha256};
use crate::fake_web::{FakeWeb, Reply};

const TEMPLATE: &[u8] = b"{{ .Prompt }}";
const PARAMS: &[u8] = br#"{"stop":["<end>"]}"#;

fn layer(kind: &str, body: &[u8]) -> Value {
    json!({
        "mediaType": format!("application/vnd.ollama.image.{kind}"),
        "digest": format!("sha256:{}", sha256(body)),
        "size": body.len(),
    })
}

fn manifest(model: &[u8]) -> Value {
    json!({
        "schemaVersion": 2,
        "layers": [
            layer("license", b"Apache"),
            layer("model", model),
            layer("template", TEMPLATE),
            layer("params", PARAMS),
        ],
    })
}

fn blobs(model: &[u8]) -> Vec<(String, Vec<u8>)> {
    [model, b"Apache", TEMPLATE, PARAMS]
        .map(|body| (sha256(body), body.to_vec()))
        .to_vec()
}

#[test]
fn a_model_comes_with_its_template_and_parameters() {
    let body = model_bytes(20_000, 1);
    let (document, blobs) = (manifest(&body), blobs(&body));
    let web = FakeWeb::start(move |seen| {
        if seen.path == "/v2/library/tiny/manifests/latest" {
            return Reply::json(&document);
        }
        // As in reality, blobs are on another path that the registry redirects to.
        if let Some(rest) = seen.path.strip_prefix("/v2/library/tiny/blobs/") {
            return Reply::redirect(&format!("/storage/{rest}"));
        }
        let found = blobs
            .iter()
            .find(|(hash, _)| seen.path == format!("/storage/sha256:{hash}"));
        found.map_or(Reply::new(404, b""), |(_, body)| {
            Reply::file(seen, body, "\"t\"")
        })
    });
    let mut bench = Bench::new();
    bench.settings.ollama_registry = web.base.clone();
    let model = bench.get("tiny");
    assert_eq!(
        (model.name.as_str(), model.owner),
        ("tiny:latest", Owner::Ounce)
    );
    assert_eq!(fs::read(&model.paths[0]).unwrap(), body);
    assert_eq!(model.paths[0].file_name().unwrap(), "tiny-latest.gguf");
    let extras = model.ollama.clone().unwrap();
    assert_eq!(extras.template.as_deref(), Some("{{ .Prompt }}"));
    assert_eq!(extras.params, Some(json!({"stop": ["<end>"]})));
    assert_eq!(extras.license.as_deref(), Some("Apache"));
    assert_eq!(extras.system, None);
    let accept = web.seen()[0].header("accept").unwrap().to_owned();
    assert!(accept.contains("manifest.v2+json"), "{accept}");
    for same in [
        "tiny:latest",
        "ollama:tiny",
        "registry.ollama.ai/library/tiny",
    ] {
        assert_eq!(bench.resolve(same, Pull::Never).0.unwrap(), model, "{same}");
    }
}

#[test]
fn names_the_registry_does_not_know_get_advice() {
    let web = FakeWeb::start(|_| Reply::new(404, b"{}"));
    let mut bench = Bench::new();
    bench.settings.ollama_registry = web.base.clone();
    let error = bench.error("smolm2");
    assert!(error.contains("smolm2:latest does not exist"), "{error}");
    assert!(error.contains("hf.co/user/repo"), "{error}");
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn manifests_without_a_usable_model_are_refused() {
    let evil = json!({
        "mediaType": "application/vnd.ollama.image.model",
        "digest": "sha256:../../../etc/passwd",
        "size": 4,
    });
    for (layers, part) in [
        (json!([layer("license", b"x")]), "it has: license"),
        (json!([evil]), "no GGUF layer"),
        (json!([]), "no GGUF layer"),
    ] {
        let web = FakeWeb::start(move |_| Reply::json(&json!({ "layers": layers })));
        let mut bench = Bench::new();
        bench.settings.ollama_registry = web.base.clone();
        let error = bench.error("tiny");
        assert!(error.contains(part), "{error}");
    }
}

/// Puts a model into a folder as ollama does. Returns the path of its blob.
fn install(store: &Path, name: &str, model: &[u8]) -> PathBuf {
    let path = store.join("manifests").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::create_dir_all(store.join("blobs")).unwrap();
    fs::write(path, manifest(model).to_string()).unwrap();
    for (hash, body) in blobs(model) {
        fs::write(store.join(format!("blobs/sha256-{hash}")), body).unwrap();
    }
    store.join(format!("blobs/sha256-{}", sha256(model)))
}

#[test]
fn a_model_in_ollamas_store_is_used_in_place_listed_and_left_alone() {
    let bench = Bench::new();
    let ollama = bench.dir.path().join("ollama");
    let own = install(
        &ollama,
        "registry.ollama.ai/library/llm/7b",
        &model_bytes(500, 2),
    );
    install(
        &ollama,
        "registry.ollama.ai/joe/llm/latest",
        &model_bytes(600, 3),
    );
    let hub = install(&ollama, "hf.co/u/r/Q4_0", &model_bytes(700, 4));

    let (found, events) = bench.resolve("llm:7b", Pull::Never);
    let found = found.unwrap();
    assert_eq!(
        (found.owner, &found.paths),
        (Owner::Ollama, &vec![own.clone()])
    );
    assert_eq!(
        found.ollama.unwrap().template.as_deref(),
        Some("{{ .Prompt }}")
    );
    assert!(notes(&events).contains("in place from ollama's store"));
    assert_eq!(
        bench
            .resolve("hf.co/u/r:Q4_0", Pull::Never)
            .0
            .unwrap()
            .paths,
        [hub]
    );
    assert_eq!(
        bench.resolve("llm:7b", Pull::Update).0.unwrap().owner,
        Owner::Ollama
    );

    let listed = bench.store().list().unwrap();
    let names: Vec<&str> = listed.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["hf.co/u/r:Q4_0", "joe/llm:latest", "llm:7b"]);
    for line in &listed {
        assert_eq!(line.owner, Owner::Ollama);
        let again = bench.resolve(&line.name, Pull::Never).0.unwrap();
        assert_eq!(again.paths[0], line.location, "{}", line.name);
    }

    let reference: ModelRef = "llm:7b".parse().unwrap();
    let error = bench.store().remove(&reference).unwrap_err().to_string();
    assert!(error.contains("ollama rm llm:7b"), "{error}");
    assert!(own.exists() && !bench.settings.home.exists());
}

#[test]
fn unfinished_and_broken_models_of_ollama_are_passed_over() {
    let bench = Bench::new();
    let ollama = bench.dir.path().join("ollama");
    let blob = install(
        &ollama,
        "registry.ollama.ai/library/half/1b",
        &model_bytes(500, 5),
    );
    fs::write(&blob, b"GGUF").unwrap();
    let bad = ollama.join("manifests/registry.ollama.ai/library/bad");
    fs::create_dir_all(&bad).unwrap();
    fs::write(bad.join("latest"), b"not json").unwrap();
    assert!(bench.store().list().unwrap().is_empty());
    for name in ["half:1b", "bad"] {
        let error = bench.resolve(name, Pull::Never).0.unwrap_err().to_string();
        assert!(error.contains("ounce pull"), "{error}");
    }
}
