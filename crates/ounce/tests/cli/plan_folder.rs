//! `ounce plan` of a folder of safetensors: the weights alone, from headers that may lie.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{ounce, scratch};

fn entry(dtype: &str, shape: &[u64], [start, end]: [u64; 2]) -> Value {
    json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] })
}

/// A file of this header, with so many bytes of hole behind it.
fn write(path: &Path, header: &str, data_len: u64) {
    let mut file = File::create(path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + data_len).unwrap();
}

fn folder(name: &str) -> PathBuf {
    scratch(&format!("safetensors-{name}"))
}

/// A matrix of 4 GB in bf16 and a vector, in a file each.
fn large(name: &str, index: bool) -> PathBuf {
    let folder = folder(name);
    let matrix = json!({
        "__metadata__": { "format": "pt" },
        "embed.weight": entry("BF16", &[500_000, 4096], [0, 4_096_000_000]),
    });
    let vector = json!({ "norm.weight": entry("F32", &[4096], [0, 16_384]) });
    write(
        &folder.join("model-00001-of-00002.safetensors"),
        &matrix.to_string(),
        4_096_000_000,
    );
    write(
        &folder.join("model-00002-of-00002.safetensors"),
        &vector.to_string(),
        16_384,
    );
    if index {
        // Beside them lies a file that is not of the model.
        write(&folder.join("adapter.safetensors"), "no header", 0);
        let map = json!({ "weight_map": {
            "embed.weight": "model-00001-of-00002.safetensors",
            "norm.weight": "model-00002-of-00002.safetensors",
        }});
        std::fs::write(folder.join("model.safetensors.index.json"), map.to_string()).unwrap();
    }
    folder
}

/// Of what is quantised already only the size it has is known.
#[test]
fn packed_weights_are_planned_as_they_are() {
    let folder = folder("packed");
    let header = json!({
        "q_proj.qweight": entry("I32", &[512, 4096], [0, 8_388_608]),
        "q_proj.scales": entry("F16", &[32, 4096], [8_388_608, 8_650_752]),
    });
    write(
        &folder.join("model.safetensors"),
        &header.to_string(),
        8_650_752,
    );
    let folder = folder.display().to_string();
    let said = ounce(&["plan", &folder, "--profile", "pi-8gb", "--json"]).ok();
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(plan["quantised"], true);
    assert_eq!(plan["parameters"], Value::Null);
    let forms = plan["weights"].as_array().unwrap();
    assert_eq!(forms.len(), 1, "{forms:?}");
    assert_eq!(forms[0]["bytes"], 8_650_752);
    let table = ounce(&["plan", &folder]).ok().out;
    assert!(
        table.contains("quantised already") && !table.contains("Q4_K_M"),
        "{table}"
    );
}

#[test]
fn weights_are_planned_before_they_are_converted() {
    for (name, index) in [("plain", false), ("indexed", true)] {
        let path = large(name, index).display().to_string();
        let said = ounce(&["plan", &path, "--profile", "mobile-2gb", "--json"]);
        let json: Value =
            serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        assert_eq!(
            (json["files"].as_u64(), json["parameters"].as_u64()),
            (Some(2), Some(2_048_004_096))
        );
        let types = json["types"].as_array().unwrap();
        assert_eq!(
            (&types[0]["type"], types[0]["bytes"].as_u64()),
            (&json!("BF16"), Some(4_096_000_000))
        );
        let weights = json["weights"].as_array().unwrap();
        assert_eq!(weights[0]["bytes"], 4_096_016_384_u64);
        let q8 = weights.iter().find(|w| w["form"] == "Q8_0").unwrap();
        assert_eq!(q8["bytes"], 2_048_000_000_u64 / 32 * 34 + 16_384);
        assert!(weights.iter().all(|w| w["fits"] == false), "{json:#}");
        assert_eq!(said.code, Some(2), "1.2 GB have no room in 1 GB");
        let said = ounce(&["plan", &path, "--profile", "pi-8gb"]).ok();
        for part in [
            "2 safetensors files",
            "BF16",
            "as Q4_K_M, about",
            "1.2 GB",
            "GGUF",
        ] {
            assert!(said.out.contains(part), "{part}: {}", said.out);
        }
        let said = ounce(&["plan", &path, "--profile", "vm-2gb"]).ok();
        assert!(
            said.out.contains("does not fit") && said.out.contains("  fits"),
            "{}",
            said.out
        );
    }
}

#[test]
fn headers_that_lie_are_told() {
    let eight = entry("U8", &[8], [0, 8]);
    let both = |at: [u64; 2]| json!({ "a": eight, "b": entry("U8", &[4], at) }).to_string();
    for (name, header, data_len, words) in [
        ("short", json!({ "a": eight }).to_string(), 7, "7"),
        ("overlap", both([4, 8]), 8, "byte 4"),
        ("gap", both([9, 13]), 13, "byte 9"),
        (
            "twice",
            format!("{{\"a\":{eight},\"a\":{eight}}}"),
            8,
            "twice",
        ),
        (
            "type",
            json!({ "a": entry("Q4_K", &[8], [0, 8]) }).to_string(),
            8,
            "Q4_K",
        ),
        (
            "shape",
            json!({ "a": entry("U8", &[1 << 40, 1 << 40], [0, 8]) }).to_string(),
            8,
            "cannot lie",
        ),
        ("json", "{".to_owned(), 0, "header"),
    ] {
        let folder = folder(name);
        write(&folder.join("model.safetensors"), &header, data_len);
        ounce(&["plan", &folder.display().to_string()]).error(&["model.safetensors", words]);
    }
    for (name, bytes, words) in [
        ("empty", vec![], "0 bytes"),
        (
            "cut",
            vec![8, 0, 0, 0, 0, 0, 0, 0, b'{'],
            "header of 8 bytes",
        ),
        (
            "huge",
            [vec![0xff; 8], vec![b'{'; 50]].concat(),
            "header of 18446744073709551615 bytes",
        ),
    ] {
        let folder = folder(name);
        std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
        ounce(&["plan", &folder.display().to_string()]).error(&["model.safetensors", words]);
    }
    // Opening it would wait for a writer that never comes.
    let fifo = folder("fifo");
    let path = fifo.join("model.safetensors");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    ounce(&["plan", &fifo.display().to_string()]).error(&["model.safetensors", "regular file"]);
    // More than the reference implementation reads, though the file has it.
    let long = folder("long");
    let file = File::create(long.join("model.safetensors")).unwrap();
    (&file).write_all(&100_000_001_u64.to_le_bytes()).unwrap();
    file.set_len(200_000_000).unwrap();
    ounce(&["plan", &long.display().to_string()]).error(&["header of 100000001 bytes"]);
}

#[test]
fn folders_that_hold_no_model() {
    let empty = folder("none");
    ounce(&["plan", &empty.display().to_string()]).error(&["safetensors-none", ".safetensors"]);
    let index = folder("index");
    let at = index.join("model.safetensors.index.json");
    for (text, words) in [
        (
            r#"{"weight_map":{"a":"gone.safetensors"}}"#,
            "gone.safetensors",
        ),
        (
            r#"{"weight_map":{"a":"../../etc/passwd"}}"#,
            "no file of this folder",
        ),
        (r#"{"weight_map":[]}"#, "index"),
    ] {
        std::fs::write(&at, text).unwrap();
        ounce(&["plan", &index.display().to_string()]).error(&[words]);
    }
    let path = large("flags", false).display().to_string();
    ounce(&["plan", &path, "--list", "*"]).error(&["--list"]);
    ounce(&["plan", &path, "--receipt"]).error(&["--receipt"]);
    ounce(&["plan", &path, "--profile", "pdp-11"]).error(&["pdp-11"]);
}
