//! Hugging Face: the files of a repository, and those already in its tools' cache.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::hash::is_sha256;
use crate::http::{Http, Request, Token};
use crate::partial::Expect;
use crate::{Settings, StoreError, quant, url};

/// Pages of a listing that are followed; a page holds up to 1000 files.
const MAX_PAGES: usize = 20;

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubFile {
    pub path: String,
    pub url: String,
    pub expect: Expect,
}

/// The model files of a repository that match a reference.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HubModel {
    /// The quantisation chosen, where its name tells.
    pub label: Option<String>,
    pub files: Vec<HubFile>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
    size: Option<u64>,
}

/// The token of the user, for the hub alone.
pub(crate) fn token(settings: &Settings) -> Option<Token> {
    let secret = settings
        .hf_token
        .clone()
        .filter(|secret| !secret.is_empty())?;
    Some(Token {
        origin: url::origin(&settings.hf_endpoint).to_owned(),
        secret,
    })
}

/// Looks up what to fetch for `hf.co/repo[:quant]`.
pub(crate) fn find(
    http: &Http,
    settings: &Settings,
    repo: &str,
    quant: Option<&str>,
) -> Result<HubModel, StoreError> {
    let base = &settings.hf_endpoint;
    let entries = list(http, settings, repo)?;
    let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
    let group = quant::pick(&paths, quant).map_err(|found| StoreError::NoGguf {
        place: format!("hf.co/{repo}"),
        wanted: quant
            .unwrap_or("GGUF model to choose by itself; name one as :QUANT")
            .to_owned(),
        found,
    })?;
    let file = |index: usize| {
        let entry: &Entry = &entries[index];
        let lfs = entry.lfs.as_ref();
        HubFile {
            path: entry.path.clone(),
            url: format!("{base}/{repo}/resolve/main/{}", escape(&entry.path)),
            expect: Expect {
                size: lfs.and_then(|lfs| lfs.size).or(entry.size),
                sha256: lfs.map(|lfs| lfs.oid.clone()).filter(|oid| is_sha256(oid)),
            },
        }
    };
    let files = group.files().map(file).collect();
    Ok(HubModel {
        label: group.label,
        files,
    })
}

fn list(http: &Http, settings: &Settings, repo: &str) -> Result<Vec<Entry>, StoreError> {
    let token = token(settings);
    let first = format!(
        "{}/api/models/{repo}/tree/main?recursive=true",
        settings.hf_endpoint
    );
    let mut next = Some(first);
    let mut entries = Vec::new();
    for _ in 0..MAX_PAGES {
        let Some(page) = next.take() else { break };
        let request = Request {
            url: &page,
            token: token.as_ref(),
            ..Request::default()
        };
        let (more, following): (Vec<Entry>, _) = http.get_json(&request).map_err(|e| match e {
            StoreError::Unknown { place, .. } => StoreError::Unknown {
                what: repo.to_owned(),
                place,
                hint: String::new(),
            },
            other => other,
        })?;
        entries.extend(more.into_iter().filter(|entry| entry.kind == "file"));
        next = following.map(|location| url::join(&page, &location));
    }
    Ok(entries)
}

/// Percent-encodes what may not stand in a URL path.
fn escape(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// Files of the repository in a cache of Hugging Face's own tools, if the model that
/// `quant` asks for is there as a whole. `size` further narrows a model in one file.
pub(crate) fn find_cached(
    settings: &Settings,
    repo: &str,
    quant: Option<&str>,
    size: Option<u64>,
) -> Option<Vec<PathBuf>> {
    let folder = format!("models--{}", repo.replace('/', "--"));
    settings
        .hf_caches
        .iter()
        .map(|cache| cache.join(&folder))
        .find_map(|model| {
            let current = fs::read_to_string(model.join("refs/main")).unwrap_or_default();
            let snapshots = model.join("snapshots");
            let mut revisions = folders(&snapshots);
            // The revision that `main` points to comes first.
            revisions.sort_by_key(|path| !path.ends_with(current.trim()));
            revisions.iter().find_map(|snapshot| {
                let paths = files_below(snapshot);
                let names: Vec<&str> = paths.iter().map(String::as_str).collect();
                let group = quant::pick(&names, quant).ok()?;
                let files: Vec<PathBuf> = group.files().map(|i| snapshot.join(names[i])).collect();
                let fits = |path: &PathBuf| {
                    fs::metadata(path)
                        .is_ok_and(|m| m.is_file() && size.is_none_or(|size| size == m.len()))
                };
                files.iter().all(fits).then_some(files)
            })
        })
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// Relative paths of the files in a snapshot and its direct subfolders.
fn files_below(snapshot: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for folder in std::iter::once(snapshot.to_owned()).chain(folders(snapshot)) {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for path in entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
        {
            if let Some(name) = path.strip_prefix(snapshot).ok().and_then(Path::to_str) {
                names.push(name.replace('\\', "/"));
            }
        }
    }
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped() {
        assert_eq!(escape("a b/c#d?.gguf"), "a%20b/c%23d%3F.gguf");
    }
}
