//! Tells the binary which commit it is built from; `unknown` where there is no git or no repository of ours.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new("../..");
    let mut sources = vec![root.join("Cargo.toml"), root.join("Cargo.lock")];
    let crates = std::fs::read_dir("..").into_iter().flatten().flatten();
    for folder in crates.map(|entry| entry.path()) {
        sources.extend([folder.join("Cargo.toml"), folder.join("src")]);
    }
    sources.push(PathBuf::from("build.rs"));
    sources.retain(|path| path.exists());
    sources.extend(git_files());
    for path in &sources {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let commit = commit().unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=OUNCE_COMMIT={commit}");
}

/// The commit, with `-dirty` where what is built differs from it.
fn commit() -> Option<String> {
    // A source archive unpacked inside another repository is not that repository's commit.
    if git(&["rev-parse", "--show-prefix"])? != "crates/ounce/" {
        return None;
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&[
        "--no-optional-locks",
        "status",
        "--porcelain",
        "--",
        "../*/src/*",
        "../*/Cargo.toml",
        "../../Cargo.toml",
        "../../Cargo.lock",
        "build.rs",
    ])?;
    Some(match changed.is_empty() {
        true => commit,
        false => format!("{commit}-dirty"),
    })
}

/// The files that change when another commit is checked out or made, in a worktree too.
fn git_files() -> Vec<PathBuf> {
    let path = |name: &str| git(&["rev-parse", "--git-path", name]).map(PathBuf::from);
    let mut files: Vec<PathBuf> = ["HEAD", "packed-refs"]
        .into_iter()
        .filter_map(path)
        .collect();
    files.retain(|file| file.exists());
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    if let Some(file) = branch.and_then(|branch| path(&branch)) {
        // A branch that is packed has no file of its own until it moves: then its folder changes.
        files.extend(file.ancestors().find(|f| f.exists()).map(Path::to_owned));
    }
    files
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output
        .status
        .success()
        .then(|| text.trim_end_matches(['\n', '\r']).to_owned())
}
