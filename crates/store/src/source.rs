//! A place a model can be pulled from, and what has to be done to have it.

use std::fmt;

use crate::http::{Http, Token};
use crate::named::{NamedSource, Pin};
use crate::ollama::{self, Layer, OllamaExtras};
use crate::partial::Expect;
use crate::{ModelRef, Settings, StoreError, huggingface, url};

/// A place with everything needed to ask it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Packages as pip understands them: `name` or `name==version`.
    Pypi(Vec<String>),
    HuggingFace {
        repo: String,
        quant: Option<String>,
    },
    Ollama {
        namespace: String,
        name: String,
        tag: String,
    },
    Url(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pypi(packages) => write!(f, "pypi:{}", packages.join(" + ")),
            Self::HuggingFace { repo, quant: None } => write!(f, "hf.co/{repo}"),
            Self::HuggingFace {
                repo,
                quant: Some(quant),
            } => write!(f, "hf.co/{repo}:{quant}"),
            Self::Ollama {
                namespace,
                name,
                tag,
            } => {
                write!(
                    f,
                    "{}/{namespace}/{name}:{tag}",
                    crate::reference::OLLAMA_HOST
                )
            }
            Self::Url(url) => f.write_str(url),
        }
    }
}

impl From<&NamedSource> for Source {
    fn from(named: &NamedSource) -> Self {
        match *named {
            NamedSource::Pypi(packages) => {
                Self::Pypi(packages.iter().map(|&package| package.to_owned()).collect())
            }
            NamedSource::HuggingFace { repo, file } => Self::HuggingFace {
                repo: repo.to_owned(),
                quant: Some(file.to_owned()),
            },
            NamedSource::Ollama { name, tag } => Self::Ollama {
                namespace: crate::reference::OLLAMA_LIBRARY.to_owned(),
                name: name.to_owned(),
                tag: tag.to_owned(),
            },
        }
    }
}

impl Source {
    /// The one source that a reference spells out; `None` for paths.
    pub(crate) fn of(reference: &ModelRef) -> Option<Self> {
        Some(match reference.clone() {
            ModelRef::Path(_) => return None,
            ModelRef::Word { name, tag } => Self::Ollama {
                namespace: crate::reference::OLLAMA_LIBRARY.to_owned(),
                name,
                tag: tag.unwrap_or_else(|| "latest".to_owned()),
            },
            ModelRef::HuggingFace { repo, quant } => Self::HuggingFace { repo, quant },
            ModelRef::Ollama {
                namespace,
                name,
                tag,
            } => Self::Ollama {
                namespace,
                name,
                tag,
            },
            ModelRef::Url(url) => Self::Url(url),
            ModelRef::Pypi { package, version } => Self::Pypi(vec![match version {
                Some(version) => format!("{package}=={version}"),
                None => package,
            }]),
        })
    }
}

/// One file to fetch over HTTP.
#[derive(Debug)]
pub(crate) struct WantedFile {
    pub url: String,
    /// Name on disk.
    pub file: String,
    pub expect: Expect,
}

/// What has to be fetched.
pub(crate) enum Work {
    Files {
        files: Vec<WantedFile>,
        token: Option<Token>,
        extras: Option<OllamaExtras>,
    },
    Wheels {
        packages: Vec<String>,
        expect: Expect,
    },
}

/// The work for one source, and the name under which its result is kept.
pub(crate) struct Plan {
    pub name: String,
    /// A further name that leads here from now on.
    pub alias: Option<String>,
    pub source: String,
    pub work: Work,
}

/// Asks the source what there is to fetch for the model called `name`.
pub(crate) fn plan(
    http: &Http,
    settings: &Settings,
    source: &Source,
    name: &str,
    pin: Option<Pin>,
) -> Result<Plan, StoreError> {
    let pinned = Expect {
        size: pin.map(|pin| pin.size),
        sha256: pin.map(|pin| pin.sha256.to_owned()),
    };
    let mut plan_name = name.to_owned();
    let work = match source {
        Source::Pypi(packages) => Work::Wheels {
            packages: packages.clone(),
            expect: pinned,
        },
        Source::Url(address) => Work::Files {
            files: vec![WantedFile {
                url: address.clone(),
                file: safe_file_name(url::file_name(address)),
                expect: pinned,
            }],
            token: huggingface::token(settings)
                .filter(|token| token.origin == url::origin(address)),
            extras: None,
        },
        Source::HuggingFace {
            repo,
            quant: Some(file),
        } if pin.is_some() => Work::Files {
            // With the hash known there is nothing to look up.
            files: vec![WantedFile {
                url: format!("{}/{repo}/resolve/main/{file}", settings.hf_endpoint),
                file: safe_file_name(file),
                expect: pinned,
            }],
            token: huggingface::token(settings),
            extras: None,
        },
        Source::HuggingFace { repo, quant } => {
            let model = huggingface::find(http, settings, repo, quant.as_deref())?;
            // Only a name the user spelt as a repository follows the choice made here.
            if name.starts_with("hf.co/") {
                plan_name = hub_name(repo, quant.as_deref(), model.label.as_deref());
            }
            let files = model.files.into_iter().map(|file| WantedFile {
                file: safe_file_name(&file.path),
                url: file.url,
                expect: file.expect,
            });
            let token = huggingface::token(settings);
            Work::Files {
                files: files.collect(),
                token,
                extras: None,
            }
        }
        Source::Ollama {
            namespace,
            name: model,
            tag,
        } => {
            let (manifest, layer) = ollama::fetch_manifest(http, settings, namespace, model, tag)?;
            let address = |layer: &Layer| ollama::blob_url(settings, namespace, model, layer);
            let extras =
                manifest.extras(|layer| ollama::fetch_text(http, &address(layer)).map(Some))?;
            let files = vec![WantedFile {
                url: address(&layer),
                file: safe_file_name(&format!("{model}-{tag}.gguf")),
                expect: Expect {
                    size: Some(layer.size),
                    sha256: layer.sha256().map(str::to_owned),
                },
            }];
            Work::Files {
                files,
                token: None,
                extras: Some(extras),
            }
        }
    };
    let alias = (plan_name != name).then(|| name.to_owned());
    Ok(Plan {
        name: plan_name,
        alias,
        source: source.to_string(),
        work,
    })
}

/// A chosen quantisation becomes part of the name; a file the user named stays as named.
fn hub_name(repo: &str, quant: Option<&str>, label: Option<&str>) -> String {
    let suffix = match (quant, label) {
        (Some(quant), Some(label)) if quant.eq_ignore_ascii_case(label) => Some(label),
        (Some(quant), _) => Some(quant),
        (None, label) => label,
    };
    match suffix {
        Some(suffix) => format!("hf.co/{repo}:{suffix}"),
        None => format!("hf.co/{repo}"),
    }
}

/// The last segment of a path with only plain characters, ending in `.gguf`.
pub(crate) fn safe_file_name(path: &str) -> String {
    let last = path.rsplit(['/', '\\']).next().unwrap_or("");
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.+".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = last.chars().map(plain).collect();
    let mut stem = name.trim_start_matches('.');
    if stem.to_ascii_lowercase().ends_with(".gguf") {
        stem = &stem[..stem.len() - ".gguf".len()];
    }
    // Leaves room for `.partial.json` in a file name of 255 bytes.
    let stem = if stem.is_empty() {
        "model"
    } else {
        &stem[..stem.len().min(200)]
    };
    format!("{stem}.gguf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_plain() {
        for (given, wanted) in [
            ("a/b/M-Q4_0.gguf", "M-Q4_0.gguf"),
            ("x.GGUF", "x.gguf"),
            ("", "model.gguf"),
            ("..", "model.gguf"),
            ("..\\evil name.gguf", "evil_name.gguf"),
            ("blob", "blob.gguf"),
        ] {
            assert_eq!(safe_file_name(given), wanted, "{given}");
        }
        assert_eq!(safe_file_name(&"x".repeat(999)).len(), 205);
    }

    #[test]
    fn names_of_hub_models() {
        assert_eq!(hub_name("u/r", None, Some("Q4_K_M")), "hf.co/u/r:Q4_K_M");
        assert_eq!(
            hub_name("u/r", Some("q8_0"), Some("Q8_0")),
            "hf.co/u/r:Q8_0"
        );
        assert_eq!(
            hub_name("u/r", Some("a-Q8_0.gguf"), Some("Q8_0")),
            "hf.co/u/r:a-Q8_0.gguf"
        );
        assert_eq!(hub_name("u/r", None, None), "hf.co/u/r");
    }
}
