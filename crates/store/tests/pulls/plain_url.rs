//! `https://…` references: resuming, restarting, and servers that misbehave.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ounce_store::{Event, Owner, Pull};
use proptest::prelude::*;

use crate::bench::{Bench, model_bytes, notes, sha256};
use crate::fake_web::{FakeWeb, Reply};

#[test]
fn a_file_is_pulled_once_and_then_found() {
    let body = model_bytes(300_000, 1);
    let served = body.clone();
    let web = FakeWeb::start(move |seen| Reply::file(seen, &served, "\"a\""));
    let bench = Bench::new();
    let url = web.url("/dir/tiny.gguf?download=true");
    assert!(
        bench
            .resolve(&url, Pull::Never)
            .0
            .unwrap_err()
            .to_string()
            .contains("ounce pull")
    );

    let (result, events) = bench.resolve(&url, Pull::IfMissing);
    let model = result.unwrap();
    assert_eq!(
        (model.name.as_str(), model.owner),
        (url.as_str(), Owner::Ounce)
    );
    assert_eq!(fs::read(&model.paths[0]).unwrap(), body);
    assert_eq!(model.paths[0].file_name().unwrap(), "tiny.gguf");
    assert_eq!(bench.files().len(), 2, "{:?}", bench.files());
    let last = Event::Progress {
        done: 300_000,
        total: Some(300_000),
    };
    assert!(events.contains(&last), "{events:?}");
    assert_eq!(
        events.last(),
        Some(&Event::Finish {
            file: "tiny.gguf".into(),
            size: 300_000
        })
    );

    assert_eq!(bench.resolve(&url, Pull::Never).0.unwrap(), model);
    assert_eq!(web.seen().len(), 1);
    let listed = bench.store().list().unwrap();
    assert_eq!(
        (listed.len(), listed[0].size, listed[0].complete),
        (1, 300_000, true)
    );
    let record = fs::read_to_string(listed[0].location.join("model.json")).unwrap();
    assert!(record.contains(&sha256(&body)), "{record}");
}

#[test]
fn a_broken_connection_is_resumed_where_it_broke() {
    let body = model_bytes(400_000, 2);
    let (served, count) = (body.clone(), AtomicUsize::new(0));
    let web = FakeWeb::start(move |seen| {
        let reply = Reply::file(seen, &served, "\"a\"");
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            reply.cut(150_000)
        } else {
            reply
        }
    });
    let bench = Bench::new();
    let (result, events) = bench.resolve(&web.url("/m.gguf"), Pull::IfMissing);
    assert_eq!(fs::read(&result.unwrap().paths[0]).unwrap(), body);
    let second = &web.seen()[1];
    assert_eq!(second.header("range"), Some("bytes=150000-"));
    assert_eq!(second.header("if-range"), Some("\"a\""));
    assert!(
        notes(&events).contains("broke at 150000 bytes"),
        "{}",
        notes(&events)
    );
}

#[test]
fn an_interrupted_pull_leaves_a_partial_file_for_the_next() {
    let body = model_bytes(200_000, 3);
    let (served, count) = (body.clone(), AtomicUsize::new(0));
    let web = FakeWeb::start(move |seen| {
        let reply = Reply::file(seen, &served, "\"a\"");
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            reply.cut(70_000)
        } else {
            reply
        }
    });
    let mut bench = Bench::new();
    bench.settings.attempts = 1;
    let url = web.url("/m.gguf");
    let error = bench.error(&url);
    assert!(error.contains("broke at 70000 of 200000 bytes"), "{error}");
    assert!(error.contains("run the same command again"), "{error}");
    let files = bench.files();
    assert!(
        files.iter().any(|name| name.ends_with("m.gguf.partial")),
        "{files:?}"
    );
    assert!(
        !files.iter().any(|name| name.ends_with("m.gguf")),
        "{files:?}"
    );
    let listed = bench.store().list().unwrap();
    assert!(
        !listed[0].complete && listed[0].size >= 70_000,
        "{listed:?}"
    );

    let (result, events) = bench.resolve(&url, Pull::IfMissing);
    assert_eq!(fs::read(&result.unwrap().paths[0]).unwrap(), body);
    assert_eq!(web.seen()[1].header("range"), Some("bytes=70000-"));
    assert!(notes(&events).contains("resuming m.gguf at 70000 bytes"));
    assert_eq!(bench.files().len(), 2, "{:?}", bench.files());
}

/// Serves a file whose first transfer is cut, and the rest as `later` says.
fn after_a_cut(
    first: Vec<u8>,
    later: impl Fn(&crate::fake_web::Seen) -> Reply + Send + Sync + 'static,
) -> FakeWeb {
    let count = AtomicUsize::new(0);
    FakeWeb::start(move |seen| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::file(seen, &first, "\"a\"").cut(50_000),
        _ => later(seen),
    })
}

#[test]
fn a_server_that_ignores_ranges_starts_over() {
    let body = model_bytes(120_000, 4);
    let whole = body.clone();
    let web = after_a_cut(body.clone(), move |_| {
        Reply::new(200, &whole).with("etag", "\"a\"")
    });
    let bench = Bench::new();
    let (result, events) = bench.resolve(&web.url("/m.gguf"), Pull::IfMissing);
    assert_eq!(fs::read(&result.unwrap().paths[0]).unwrap(), body);
    assert!(
        notes(&events).contains("starting over"),
        "{}",
        notes(&events)
    );
}

#[test]
fn a_file_that_changed_meanwhile_is_not_spliced() {
    let (old, new) = (model_bytes(120_000, 5), model_bytes(130_000, 6));
    let now = new.clone();
    let web = after_a_cut(old, move |seen| Reply::file(seen, &now, "\"b\""));
    let bench = Bench::new();
    let model = bench.get(&web.url("/m.gguf"));
    assert_eq!(fs::read(&model.paths[0]).unwrap(), new);
}

#[test]
fn a_wrong_or_refused_range_starts_over() {
    let body = model_bytes(120_000, 7);
    for status in [416, 206] {
        let whole = body.clone();
        let web = after_a_cut(body.clone(), move |seen| match seen.header("range") {
            Some(_) => Reply::new(status, b"oops").with("content-range", "bytes 7-10/120000"),
            None => Reply::new(200, &whole),
        });
        let bench = Bench::new();
        let model = bench.get(&web.url("/m.gguf"));
        assert_eq!(fs::read(&model.paths[0]).unwrap(), body, "{status}");
    }
}

#[test]
fn a_file_without_a_tag_is_never_resumed_blindly() {
    let (old, new) = (model_bytes(120_000, 8), model_bytes(120_000, 9));
    let count = AtomicUsize::new(0);
    let now = new.clone();
    let web = FakeWeb::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::new(200, &old).cut(50_000),
        _ => Reply::new(200, &now),
    });
    let mut bench = Bench::new();
    bench.settings.attempts = 1;
    bench.error(&web.url("/m.gguf"));
    let model = bench.get(&web.url("/m.gguf"));
    assert_eq!(web.seen()[1].header("range"), None);
    assert_eq!(fs::read(&model.paths[0]).unwrap(), new);
}

#[test]
fn a_web_page_is_not_taken_for_a_model() {
    let web = FakeWeb::start(|_| Reply::new(200, b"<!doctype html><title>Sign in"));
    let bench = Bench::new();
    let error = bench.error(&web.url("/m.gguf"));
    assert!(
        error.contains("m.gguf is not a GGUF file") && error.contains("<!doctype"),
        "{error}"
    );
    assert_eq!(bench.files(), [""; 0]);
    assert!(bench.store().list().unwrap().is_empty());
}

#[test]
fn statuses_say_what_to_do_and_leave_nothing() {
    for (status, part, tries) in [
        (404, "does not exist", 1),
        (401, "HF_TOKEN", 1),
        (403, "licence", 1),
        (400, "HTTP 400", 1),
        (429, "limits requests", 3),
        (503, "try again later", 3),
    ] {
        let web = FakeWeb::start(move |_| Reply::new(status, b"no").with("retry-after", "0"));
        let bench = Bench::new();
        let error = bench.error(&web.url("/secret.gguf?signature=abc"));
        assert!(error.contains(part), "{status}: {error}");
        assert!(
            error.contains("127.0.0.1") && !error.contains("signature"),
            "{error}"
        );
        assert_eq!(web.seen().len(), tries, "{status}");
        assert_eq!(bench.files(), [""; 0], "{status}");
    }
}

#[test]
fn a_server_error_that_passes_is_survived() {
    let body = model_bytes(1000, 10);
    let (served, count) = (body.clone(), AtomicUsize::new(0));
    let web = FakeWeb::start(move |seen| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::new(502, b""),
        _ => Reply::file(seen, &served, "\"a\""),
    });
    let bench = Bench::new();
    let model = bench.get(&web.url("/m.gguf"));
    assert_eq!(fs::read(&model.paths[0]).unwrap(), body);
}

#[test]
fn silence_ends_in_an_error_and_not_in_waiting() {
    let web = FakeWeb::start(|_| Reply {
        stall: Duration::from_secs(20),
        ..Reply::new(200, &model_bytes(50_000, 11)).cut(10_000)
    });
    let mut bench = Bench::new();
    bench.settings.idle_timeout = Duration::from_millis(200);
    bench.settings.attempts = 1;
    let start = Instant::now();
    let error = bench.error(&web.url("/m.gguf"));
    assert!(error.contains("broke at 10000 of 50000"), "{error}");
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn no_network_is_told_at_once() {
    let bench = Bench::new();
    let error = bench.error("http://127.0.0.1:9/m.gguf");
    assert!(error.starts_with("cannot reach 127.0.0.1:"), "{error}");
    assert!(error.contains("HTTPS_PROXY"), "{error}");
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn a_proxy_is_used_and_named() {
    let body = model_bytes(1000, 12);
    let served = body.clone();
    let proxy = FakeWeb::start(move |seen| Reply::file(seen, &served, "\"a\""));
    let mut bench = Bench::new();
    bench.settings.proxies.http = Some(proxy.base.clone());
    // The proxy answers for a host that does not exist.
    let model = bench.get("http://no-such-host.invalid/m.gguf");
    assert_eq!(fs::read(&model.paths[0]).unwrap(), body);
    let connect = proxy.seen()[0].header("connect").map(str::to_owned);
    assert_eq!(connect.as_deref(), Some("no-such-host.invalid:80"));

    bench.settings.proxies.http = Some("127.0.0.1:9".into());
    let error = bench.error("http://no-such-host.invalid/n.gguf");
    assert!(
        error.contains("no-such-host.invalid through proxy 127.0.0.1"),
        "{error}"
    );
}

#[test]
fn redirects_are_followed_but_not_for_ever() {
    let body = model_bytes(1000, 13);
    let served = body.clone();
    let web = FakeWeb::start(move |seen| match seen.path.as_str() {
        "/loop.gguf" => Reply::redirect("/loop.gguf"),
        "/a/m.gguf" => Reply::redirect("b.gguf"),
        "/a/b.gguf" => Reply::redirect("/c.gguf"),
        _ => Reply::file(seen, &served, "\"a\""),
    });
    let bench = Bench::new();
    let model = bench.get(&web.url("/a/m.gguf"));
    assert_eq!(model.paths[0].file_name().unwrap(), "m.gguf");
    let error = bench.error(&web.url("/loop.gguf"));
    assert!(error.contains("more than 10 redirects"), "{error}");
}

#[test]
fn a_file_larger_than_the_disk_is_refused_before_it_starts() {
    let web =
        FakeWeb::start(|_| Reply::new(200, b"GGUF").with("content-length", "1152921504606846976"));
    let bench = Bench::new();
    let error = bench.error(&web.url("/m.gguf"));
    assert!(error.starts_with("no space left for"), "{error}");
    assert!(
        error.contains("1152921504606846976 bytes are needed"),
        "{error}"
    );
    assert_eq!(bench.files(), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// However often and wherever the connection breaks, the file comes out whole.
    #[test]
    fn any_breaks_give_the_same_file(cuts in prop::collection::vec(0usize..40_000, 0..5), ranges in any::<bool>()) {
        let body = model_bytes(60_000, 14);
        let (served, count) = (body.clone(), AtomicUsize::new(0));
        let breaks = cuts.clone();
        let web = FakeWeb::start(move |seen| {
            let reply = match ranges {
                true => Reply::file(seen, &served, "\"a\""),
                false => Reply::new(200, &served).with("etag", "\"a\""),
            };
            match breaks.get(count.fetch_add(1, Ordering::SeqCst)) {
                Some(&cut) => reply.cut(cut),
                None => reply,
            }
        });
        let mut bench = Bench::new();
        bench.settings.attempts = 6;
        let model = bench.get(&web.url("/m.gguf"));
        prop_assert_eq!(fs::read(&model.paths[0]).unwrap(), body);
        prop_assert_eq!(bench.files().len(), 2);
    }
}
