//! The rules of ARCHITECTURE.md that a machine can check.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Crates of this workspace that a manifest names as ordinary dependencies.
fn depends_on(krate: &str) -> Vec<String> {
    let manifest = read(&format!("crates/{krate}/Cargo.toml"));
    let section = manifest.split("[dependencies]").nth(1).unwrap_or("");
    let section = section.split("\n[").next().unwrap();
    let names = section
        .lines()
        .filter_map(|l| l.trim().strip_prefix("ounce-"));
    names
        .map(|l| l.split(['.', ' ', '=']).next().unwrap().to_owned())
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    for (krate, allowed) in [
        ("gguf", &[][..]),
        ("kernels", &["gguf"][..]),
        ("engine", &["gguf", "kernels"][..]),
        ("store", &["gguf"][..]),
        ("ounce", &["gguf", "kernels", "engine", "store"][..]),
    ] {
        for found in depends_on(krate) {
            assert!(
                allowed.contains(&found.as_str()),
                "{krate} must not depend on {found}"
            );
        }
    }
    assert!(
        !depends_on("engine").is_empty(),
        "the manifests are not read as they are written"
    );
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn unsafe_lives_where_the_map_says() {
    let mut files = Vec::new();
    for krate in ["gguf", "kernels", "engine", "store", "ounce"] {
        sources(&root().join("crates").join(krate).join("src"), &mut files);
    }
    assert!(files.len() > 40);
    for file in files {
        let path = file.display().to_string();
        let allowed = path.contains("/kernels/src/") || path.contains("/engine/src/memory/");
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.lines().map(|l| l.split("//").next().unwrap());
        let has = code.into_iter().any(|l| {
            l.contains("unsafe {") || l.contains("unsafe fn") || l.contains("unsafe impl")
        });
        assert!(allowed || !has, "{path} holds unsafe code");
    }
    for krate in ["gguf", "store"] {
        assert!(
            read(&format!("crates/{krate}/src/lib.rs")).contains("#![forbid(unsafe_code)]"),
            "{krate}"
        );
    }
    assert!(read("crates/ounce/src/main.rs").contains("#![forbid(unsafe_code)]"));
}

#[test]
fn every_architecture_is_in_the_readme() {
    let table = read("crates/engine/src/model/arch/mod.rs");
    let readme = read("README.md");
    let archs: Vec<&str> = table
        .lines()
        .filter_map(|l| l.trim().strip_prefix("(\"")?.split('"').next())
        .collect();
    assert!(archs.len() >= 6);
    for arch in archs {
        assert!(
            readme.contains(&format!("`{arch}`")),
            "{arch} is not in the README's table"
        );
    }
}
