//! `hf.co/user/repo[:QUANT]` against a fake hub and a fake content host.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use ounce_store::{Owner, Pull};
use serde_json::{Value, json};

use crate::bench::{Bench, model_bytes, notes, sha256};
use crate::fake_web::{FakeWeb, Reply};

fn entry(path: &str, body: &[u8]) -> Value {
    let lfs = json!({"oid": sha256(body), "size": body.len(), "pointerSize": 134});
    json!({"type": "file", "path": path, "size": body.len(), "oid": "0", "lfs": lfs})
}

const TREE: &str = "/api/models/u/r/tree/main?recursive=true";

/// A hub with these files, all in one listing.
fn hub(files: &[(&str, Vec<u8>)]) -> FakeWeb {
    let mut listing: Vec<Value> = files.iter().map(|(path, body)| entry(path, body)).collect();
    listing.push(json!({"type": "directory", "path": "folder", "oid": "0", "size": 0}));
    let files: Vec<(String, Vec<u8>)> = files
        .iter()
        .map(|(path, body)| (format!("/u/r/resolve/main/{path}"), body.clone()))
        .collect();
    FakeWeb::start(move |seen| {
        if seen.path == TREE {
            return Reply::json(&Value::Array(listing.clone()));
        }
        match files.iter().find(|(path, _)| *path == seen.path) {
            Some((_, body)) => Reply::file(seen, body, "\"tag\""),
            None => Reply::new(404, b""),
        }
    })
}

#[test]
fn the_usual_quantisation_is_chosen_and_remembered() {
    let (small, big) = (model_bytes(5000, 1), model_bytes(9000, 2));
    let web = hub(&[
        ("m-Q8_0.gguf", big.clone()),
        ("m-Q4_K_M.gguf", small.clone()),
    ]);
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    let model = bench.get("hf.co/u/r");
    assert_eq!(model.name, "hf.co/u/r:Q4_K_M");
    assert_eq!(fs::read(&model.paths[0]).unwrap(), small);

    let requests = web.seen().len();
    for same in ["hf:u/r", "hf.co/u/r:Q4_K_M", "https://huggingface.co/u/r"] {
        assert_eq!(bench.resolve(same, Pull::Never).0.unwrap(), model, "{same}");
    }
    assert_eq!(web.seen().len(), requests);
    assert_eq!(
        fs::read(&bench.get("hf.co/u/r:q8_0").paths[0]).unwrap(),
        big
    );

    let (again, events) = bench.resolve("hf.co/u/r", Pull::Update);
    assert_eq!(again.unwrap(), model);
    assert!(notes(&events).contains("up to date"), "{}", notes(&events));
    assert_eq!(bench.store().list().unwrap().len(), 2);
}

#[test]
fn an_update_replaces_the_file() {
    let (old, new) = (model_bytes(5000, 3), model_bytes(6000, 4));
    let mut bench = Bench::new();
    let first = hub(&[("m-Q4_0.gguf", old)]);
    bench.settings.hf_endpoint = first.base.clone();
    bench.get("hf.co/u/r");
    let second = hub(&[("m-new-Q4_0.gguf", new.clone())]);
    bench.settings.hf_endpoint = second.base.clone();
    let model = bench.resolve("hf.co/u/r", Pull::Update).0.unwrap();
    assert_eq!(fs::read(&model.paths[0]).unwrap(), new);
    assert_eq!(
        bench.files(),
        [
            "hf.co+u+r@Q4_0/m-new-Q4_0.gguf",
            "hf.co+u+r@Q4_0/model.json"
        ]
    );
}

#[test]
fn the_token_stays_with_the_hub() {
    let body = model_bytes(5000, 5);
    let served = body.clone();
    let content = FakeWeb::start(move |seen| Reply::file(seen, &served, "\"cdn\""));
    let elsewhere = content.url("/blob?signature=x");
    let listing = json!([entry("m-Q4_0.gguf", &body)]);
    let web = FakeWeb::start(move |seen| match seen.path.as_str() {
        TREE => Reply::json(&listing),
        "/u/r/resolve/main/m-Q4_0.gguf" => Reply::redirect("/moved"),
        _ => Reply::redirect(&elsewhere),
    });
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    bench.settings.hf_token = Some("hf_secret".into());
    let model = bench.get("hf.co/u/r");
    assert_eq!(fs::read(&model.paths[0]).unwrap(), body);
    assert_eq!(web.seen().len(), 3);
    for seen in web.seen() {
        assert_eq!(
            seen.header("authorization"),
            Some("Bearer hf_secret"),
            "{}",
            seen.path
        );
    }
    assert_eq!(content.seen().len(), 1);
    assert_eq!(content.seen()[0].header("authorization"), None);

    // A plain address on another host does not get it either.
    bench.get(&content.url("/other.gguf"));
    assert_eq!(content.seen()[1].header("authorization"), None);
}

#[test]
fn a_wrong_hash_is_named_and_nothing_is_left() {
    let (stated, sent) = (model_bytes(5000, 6), model_bytes(5000, 7));
    let (listing, served) = (json!([entry("m-Q4_0.gguf", &stated)]), sent.clone());
    let web = FakeWeb::start(move |seen| match seen.path.as_str() {
        TREE => Reply::json(&listing),
        _ => Reply::file(seen, &served, "\"t\""),
    });
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    let error = bench.error("hf.co/u/r");
    assert!(
        error.contains(&sha256(&stated)) && error.contains(&sha256(&sent)),
        "{error}"
    );
    assert_eq!(bench.files(), [""; 0]);
    assert!(bench.resolve("hf.co/u/r", Pull::Never).0.is_err());
}

#[test]
fn a_wrong_size_is_noticed_before_the_transfer() {
    let listing = json!([entry("m-Q4_0.gguf", &model_bytes(5000, 8))]);
    let web = FakeWeb::start(move |seen| match seen.path.as_str() {
        TREE => Reply::json(&listing),
        _ => Reply::new(200, &model_bytes(4000, 8)),
    });
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    let error = bench.error("hf.co/u/r");
    assert!(error.contains("expected 5000 bytes, got 4000"), "{error}");
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn a_rotten_partial_file_is_started_over() {
    let body = model_bytes(50_000, 9);
    let (listing, served) = (json!([entry("m-Q4_0.gguf", &body)]), body.clone());
    let count = AtomicUsize::new(0);
    let web = FakeWeb::start(move |seen| match seen.path.as_str() {
        TREE => Reply::json(&listing),
        _ if count.fetch_add(1, Ordering::SeqCst) == 0 => {
            Reply::file(seen, &model_bytes(50_000, 10), "\"t\"").cut(20_000)
        }
        _ => Reply::file(seen, &served, "\"t\""),
    });
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    let (result, events) = bench.resolve("hf.co/u/r", Pull::IfMissing);
    assert_eq!(fs::read(&result.unwrap().paths[0]).unwrap(), body);
    assert!(
        notes(&events).contains("wrong hash; starting over"),
        "{}",
        notes(&events)
    );
}

#[test]
fn a_split_model_comes_whole() {
    let parts: Vec<Vec<u8>> = (0..3)
        .map(|i| model_bytes(3000 + i, 20 + i as u64))
        .collect();
    let name = |i: usize| format!("Q4_K_M/m-Q4_K_M-0000{}-of-00003.gguf", i + 1);
    let names: Vec<String> = (0..3).map(name).collect();
    let files: Vec<(&str, Vec<u8>)> = names
        .iter()
        .map(String::as_str)
        .zip(parts.clone())
        .rev()
        .collect();
    let web = hub(&files);
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    let model = bench.get("hf.co/u/r:Q4_K_M");
    let read: Vec<Vec<u8>> = model
        .paths
        .iter()
        .map(|path| fs::read(path).unwrap())
        .collect();
    assert_eq!(read, parts);
    fs::remove_file(&model.paths[1]).unwrap();
    let error = bench
        .resolve("hf.co/u/r:Q4_K_M", Pull::Never)
        .0
        .unwrap_err()
        .to_string();
    assert!(error.contains("not on this machine"), "{error}");
    assert_eq!(bench.get("hf.co/u/r:Q4_K_M"), model);
}

#[test]
fn what_the_repository_has_is_listed_when_the_wish_is_not_there() {
    let web = hub(&[
        ("m-Q8_0.gguf", model_bytes(100, 1)),
        ("m-F16.gguf", model_bytes(100, 2)),
    ]);
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    let error = bench.error("hf.co/u/r:Q2_K");
    assert!(
        error.contains("hf.co/u/r has no Q2_K; it has: Q8_0, F16"),
        "{error}"
    );
    let error = bench.error("hf.co/u/unknown");
    assert!(error.contains("u/unknown does not exist"), "{error}");
}

#[test]
fn long_listings_are_followed_page_by_page() {
    let body = model_bytes(4000, 11);
    let (second, served) = (json!([entry("m-Q4_0.gguf", &body)]), body.clone());
    let web = FakeWeb::start(move |seen| match seen.path.as_str() {
        TREE => Reply::json(&json!([{"type": "file", "path": "README.md", "size": 1, "oid": "0"}]))
            .with("link", "</api/models/u/r/tree/main?cursor=2>; rel=\"next\""),
        "/api/models/u/r/tree/main?cursor=2" => Reply::json(&second),
        _ => Reply::file(seen, &served, "\"t\""),
    });
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    assert_eq!(fs::read(&bench.get("hf.co/u/r").paths[0]).unwrap(), body);
}

#[test]
fn a_closed_repository_says_how_to_open_it() {
    let web = FakeWeb::start(|_| Reply::new(401, b""));
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    let error = bench.error("hf.co/u/r");
    assert!(
        error.contains("set HF_TOKEN") && error.contains("licence"),
        "{error}"
    );
    bench.settings.hf_token = Some("wrong".into());
    let error = bench.error("hf.co/u/r");
    assert!(error.contains("the token in HF_TOKEN"), "{error}");
}

#[test]
fn answers_that_are_no_listing_are_refused() {
    for body in [&b"<html>"[..], b"{}", b"", b"[{\"type\":1}]"] {
        let web = FakeWeb::start(move |_| Reply::new(200, body));
        let mut bench = Bench::new();
        bench.settings.hf_endpoint = web.base.clone();
        let error = bench.error("hf.co/u/r");
        assert!(error.contains("an answer that cannot be used"), "{error}");
    }
}

#[test]
fn the_hash_in_the_hubs_header_is_checked_for_plain_addresses() {
    let (stated, sent) = (model_bytes(5000, 12), model_bytes(5000, 13));
    let hash = sha256(&stated);
    let web = FakeWeb::start(move |seen| {
        Reply::file(seen, &sent, "\"t\"").with("x-linked-etag", &format!("\"{hash}\""))
    });
    let mut bench = Bench::new();
    bench.settings.hf_endpoint = web.base.clone();
    let error = bench.error(&web.url("/u/r/resolve/main/m.gguf"));
    assert!(error.contains(&sha256(&stated)), "{error}");
}

#[test]
fn the_cache_of_other_tools_is_used_in_place() {
    let bench = Bench::new();
    let model = bench.dir.path().join("hub/models--u--r");
    let snapshot = model.join("snapshots/abc123");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(model.join("refs")).unwrap();
    fs::write(model.join("refs/main"), "abc123\n").unwrap();
    fs::write(snapshot.join("m-Q4_0.gguf"), model_bytes(100, 1)).unwrap();

    let (found, events) = bench.resolve("hf.co/u/r", Pull::Never);
    let found = found.unwrap();
    assert_eq!(found.owner, Owner::HuggingFace);
    assert_eq!(found.paths, [snapshot.join("m-Q4_0.gguf")]);
    assert!(notes(&events).contains("in place from the Hugging Face cache"));
    assert!(bench.resolve("hf.co/u/r:Q8_0", Pull::Never).0.is_err());
    assert!(
        !bench.settings.home.exists(),
        "nothing is copied or created"
    );
}
