//! Pulls through the binary, from a hub that this test runs itself.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use crate::harness::{Said, command, model, run_with, scratch};

/// Serves one repository with one file; says that it has `size` bytes and this sha256.
fn hub(file: Vec<u8>, size: u64, sha256: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            while lines.next().is_some_and(|l| l.is_ok_and(|l| !l.is_empty())) {}
            let body = if request.contains("/api/models/") {
                let lfs = format!(r#"{{"oid":"{sha256}","size":{size},"pointerSize":134}}"#);
                format!(r#"[{{"type":"file","oid":"x","size":{size},"path":"m.Q4_K_M.gguf","lfs":{lfs}}}]"#).into_bytes()
            } else {
                file.clone()
            };
            // A client that has seen enough closes early.
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(&body);
        }
    });
    format!("http://{address}")
}

fn pull(home: &std::path::Path, hub: &str, args: &[&str]) -> Said {
    let mut c = command(args);
    c.env("OUNCE_HOME", home)
        .env("HF_ENDPOINT", hub)
        .env("NO_PROXY", "127.0.0.1");
    run_with(c, b"")
}

fn files(home: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![home.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                found.push(path.display().to_string())
            }
        }
    }
    found
}

/// sha256 of tests/data/golden/llama.f32.gguf.
const LLAMA: &str = "4b6df10bf72f856bc429a86775615a865653390e7e99506b60a27f60facca59c";

#[test]
fn a_model_is_pulled_listed_run_and_removed() {
    let file = std::fs::read(model("llama.f32.gguf")).unwrap();
    let (home, size) = (scratch("hub-good"), file.len() as u64);
    let hub = hub(file, size, LLAMA);
    let said = pull(&home, &hub, &["pull", "hf.co/u/r"]).ok();
    assert!(
        said.out.trim_end().ends_with(".gguf") && said.err.contains("hash verified"),
        "{said:?}"
    );
    let list = pull(&home, &hub, &["list", "--json"]).ok().out;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(
        (list[0]["bytes"].as_u64(), list[0]["complete"].as_bool()),
        (Some(size), Some(true))
    );
    // What was pulled is found without a network.
    let nowhere = "http://127.0.0.1:9";
    pull(
        &home,
        nowhere,
        &["run", "hf.co/u/r", "-p", "Hello", "-n", "2"],
    )
    .ok();
    pull(&home, nowhere, &["rm", "hf.co/u/r"]).ok();
    assert!(!files(&home).iter().any(|f| f.ends_with(".gguf")));
}

#[test]
fn a_wrong_hash_leaves_nothing_behind() {
    let file = std::fs::read(model("llama.f32.gguf")).unwrap();
    let (home, size) = (scratch("hub-bad"), file.len() as u64);
    let zeros = "0000000000000000000000000000000000000000000000000000000000000000";
    let hub = hub(file, size, zeros);
    pull(&home, &hub, &["pull", "hf.co/u/r"]).fails(1, &["wrong hash", zeros, LLAMA]);
    assert!(
        !files(&home).iter().any(|f| f.contains(".gguf")),
        "{:?}",
        files(&home)
    );
}

#[test]
fn a_file_larger_than_the_disk_is_refused_before_the_first_byte() {
    let home = scratch("hub-large");
    let hub = hub(Vec::new(), 1 << 60, LLAMA);
    pull(&home, &hub, &["pull", "hf.co/u/r"])
        .fails(1, &["no space left", &(1u64 << 60).to_string()]);
    assert!(!files(&home).iter().any(|f| f.ends_with(".gguf")));
}
