//! ollama: its registry's manifests, and the models in its own store on this machine.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::hash::is_sha256;
use crate::http::{Http, Request};
use crate::reference::{OLLAMA_HOST, OLLAMA_LIBRARY};
use crate::{Settings, StoreError};

const MANIFEST_TYPE: &str = "application/vnd.docker.distribution.manifest.v2+json";
const LAYER_TYPE: &str = "application/vnd.ollama.image.";
/// Largest template, parameter set or licence that is read, in bytes.
const MAX_TEXT: u64 = 1 << 20;

/// What an ollama model carries beside its weights.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OllamaExtras {
    /// Chat template in Go's template language (not Jinja).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Sampling parameters, such as `{"stop":["<|im_end|>"],"temperature":0.7}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<serde_json::Value>,
    /// System prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Licence text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
}

/// A manifest, from the registry or from disk.
#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    layers: Vec<Layer>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Layer {
    media_type: String,
    digest: String,
    pub size: u64,
}

impl Layer {
    fn is(&self, kind: &str) -> bool {
        self.media_type.strip_prefix(LAYER_TYPE) == Some(kind)
    }

    /// SHA-256 of the blob; `None` for anything else, which must not reach a path.
    pub(crate) fn sha256(&self) -> Option<&str> {
        self.digest
            .strip_prefix("sha256:")
            .filter(|hash| is_sha256(hash))
    }
}

impl Manifest {
    /// The layer that is the GGUF file.
    pub(crate) fn model(&self) -> Option<&Layer> {
        self.layers
            .iter()
            .find(|layer| layer.is("model") && layer.sha256().is_some())
    }

    fn kinds(&self) -> String {
        let kinds: Vec<&str> = self
            .layers
            .iter()
            .take(20)
            .map(|l| {
                l.media_type
                    .strip_prefix(LAYER_TYPE)
                    .unwrap_or(&l.media_type)
            })
            .collect();
        kinds.join(", ")
    }

    /// Reads the small layers through `read`.
    pub(crate) fn extras(
        &self,
        mut read: impl FnMut(&Layer) -> Result<Option<Vec<u8>>, StoreError>,
    ) -> Result<OllamaExtras, StoreError> {
        let mut text = |kind: &str| -> Result<Option<String>, StoreError> {
            let small = |l: &&Layer| l.is(kind) && l.size <= MAX_TEXT && l.sha256().is_some();
            let Some(layer) = self.layers.iter().find(small) else {
                return Ok(None);
            };
            Ok(read(layer)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        Ok(OllamaExtras {
            template: text("template")?,
            params: text("params")?.and_then(|json| serde_json::from_str(&json).ok()),
            system: text("system")?,
            license: text("license")?,
        })
    }
}

/// The manifest of a model in the registry.
pub(crate) fn fetch_manifest(
    http: &Http,
    settings: &Settings,
    namespace: &str,
    name: &str,
    tag: &str,
) -> Result<(Manifest, Layer), StoreError> {
    let url = format!(
        "{}/v2/{namespace}/{name}/manifests/{tag}",
        settings.ollama_registry
    );
    let request = Request {
        url: &url,
        accept: Some(MANIFEST_TYPE),
        ..Request::default()
    };
    let shown = display_name(OLLAMA_HOST, namespace, name, tag);
    let (manifest, _): (Manifest, _) = http.get_json(&request).map_err(|error| match error {
        StoreError::Unknown { place, .. } => {
            let hint = ", or give a path, hf.co/user/repo or pypi:package".to_owned();
            StoreError::Unknown {
                what: format!("model {shown}"),
                place,
                hint,
            }
        }
        other => other,
    })?;
    match manifest.model().cloned() {
        Some(layer) => Ok((manifest, layer)),
        None => Err(StoreError::NoGguf {
            place: format!("{shown} in the ollama registry"),
            wanted: "GGUF layer".into(),
            found: manifest.kinds(),
        }),
    }
}

/// Address of a blob in the registry.
pub(crate) fn blob_url(settings: &Settings, namespace: &str, name: &str, layer: &Layer) -> String {
    format!(
        "{}/v2/{namespace}/{name}/blobs/{}",
        settings.ollama_registry, layer.digest
    )
}

/// Reads a small layer from the registry.
pub(crate) fn fetch_text(http: &Http, url: &str) -> Result<Vec<u8>, StoreError> {
    let mut answer = http.get(&Request {
        url,
        ..Request::default()
    })?;
    answer
        .response
        .body_mut()
        .with_config()
        .limit(MAX_TEXT)
        .read_to_vec()
        .map_err(|e| StoreError::BadAnswer {
            host: crate::url::host(url).into(),
            reason: e.to_string(),
        })
}

/// A model in ollama's store on this machine.
#[derive(Debug)]
pub(crate) struct LocalModel {
    /// As `ollama list` shows it.
    pub name: String,
    pub blob: PathBuf,
    pub size: u64,
    pub modified: Option<SystemTime>,
    pub extras: OllamaExtras,
}

/// Looks a model up in ollama's stores. `host` is a folder below `manifests`.
pub(crate) fn find_local(
    settings: &Settings,
    host: &str,
    namespace: &str,
    name: &str,
    tag: &str,
) -> Option<LocalModel> {
    settings.ollama_stores.iter().find_map(|store| {
        let manifest = store
            .join("manifests")
            .join(host)
            .join(namespace)
            .join(name)
            .join(tag);
        read_local(store, &manifest, display_name(host, namespace, name, tag))
    })
}

/// A store of ollama that is there but closed to this user, as that of a system service
/// often is.
pub(crate) fn unreadable_store(settings: &Settings) -> Option<&Path> {
    let closed = |store: &&PathBuf| {
        fs::read_dir(store.join("manifests"))
            .is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
    };
    settings
        .ollama_stores
        .iter()
        .find(closed)
        .map(PathBuf::as_path)
}

/// All models in ollama's stores that can be read.
pub(crate) fn list_local(settings: &Settings) -> Vec<LocalModel> {
    let mut models: Vec<LocalModel> = Vec::new();
    for store in &settings.ollama_stores {
        // manifests/HOST/NAMESPACE/NAME/TAG
        let mut paths = vec![store.join("manifests")];
        for _ in 0..4 {
            paths = paths.iter().flat_map(|path| children(path)).collect();
        }
        for path in paths {
            let parts: Vec<String> = path
                .iter()
                .rev()
                .take(4)
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            let [tag, name, namespace, host] = &parts[..] else {
                continue;
            };
            let shown = display_name(host, namespace, name, tag);
            if !models.iter().any(|model| model.name == shown) {
                models.extend(read_local(store, &path, shown));
            }
        }
    }
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models
}

fn read_local(store: &Path, manifest_path: &Path, name: String) -> Option<LocalModel> {
    let about = fs::metadata(manifest_path).ok()?;
    if !about.is_file() || about.len() > MAX_TEXT {
        return None;
    }
    let manifest: Manifest = serde_json::from_slice(&fs::read(manifest_path).ok()?).ok()?;
    let layer = manifest.model()?;
    let blob_path = |hash: &str| store.join("blobs").join(format!("sha256-{hash}"));
    let blob = blob_path(layer.sha256()?);
    // A blob of another size is one that ollama is still pulling.
    let size = fs::metadata(&blob)
        .ok()
        .filter(|m| m.is_file() && m.len() == layer.size)?
        .len();
    let text = |layer: &Layer| {
        let mut bytes = Vec::new();
        let file = File::open(blob_path(layer.sha256()?)).ok()?;
        file.take(MAX_TEXT)
            .read_to_end(&mut bytes)
            .ok()
            .map(|_| bytes)
    };
    let extras = manifest.extras(|layer| Ok(text(layer))).ok()?;
    Some(LocalModel {
        name,
        blob,
        size,
        modified: about.modified().ok(),
        extras,
    })
}

fn children(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

/// The name that ollama itself prints.
fn display_name(host: &str, namespace: &str, name: &str, tag: &str) -> String {
    match (host, namespace) {
        (OLLAMA_HOST, OLLAMA_LIBRARY) => format!("{name}:{tag}"),
        (OLLAMA_HOST, _) => format!("{namespace}/{name}:{tag}"),
        _ => format!("{host}/{namespace}/{name}:{tag}"),
    }
}
