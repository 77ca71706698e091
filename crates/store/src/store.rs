//! The verbs: resolve, pull, list, remove.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::event::{Event, Events};
use crate::http::Http;
use crate::named::{self, NamedModel};
use crate::ollama::{self, LocalModel, OllamaExtras};
use crate::record::Record;
use crate::reference::expand_home;
use crate::shelf::{Shelf, bytes_in};
use crate::source::{Source, plan};
use crate::{ModelRef, Settings, StoreError, fetch, huggingface, local};

/// When a model may be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// Not at all: use what is on this machine.
    Never,
    /// If it is not on this machine.
    IfMissing,
    /// Also if the source has other bytes by now. Models in another program's store are
    /// used as they are.
    Update,
}

/// Whose files they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A file the user named.
    User,
    /// This store.
    Ounce,
    /// ollama's store; used in place.
    Ollama,
    /// The cache of Hugging Face's tools; used in place.
    HuggingFace,
}

/// A model that is on this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// Canonical name, or the path as given.
    pub name: String,
    /// The GGUF files in loading order; more than one for a split model.
    pub paths: Vec<PathBuf>,
    /// Whose files they are.
    pub owner: Owner,
    /// What came with it, for a model of ollama.
    pub ollama: Option<OllamaExtras>,
    /// Licence, where known.
    pub licence: Option<String>,
}

/// A line of [`Store::list`].
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Name that [`Store::resolve`] understands.
    pub name: String,
    /// Bytes on disk.
    pub size: u64,
    /// When it was pulled or last changed.
    pub modified: Option<SystemTime>,
    /// Folder of a pulled model, file of a model in ollama's store.
    pub location: PathBuf,
    /// [`Owner::Ounce`] or [`Owner::Ollama`].
    pub owner: Owner,
    /// False for a pull that has not ended.
    pub complete: bool,
    /// Where it came from, where known.
    pub source: Option<String>,
    /// Licence, where known.
    pub licence: Option<String>,
}

/// The models on this machine.
#[derive(Debug)]
pub struct Store {
    settings: Settings,
}

impl Store {
    /// The store of this user. Creates nothing on disk.
    ///
    /// # Errors
    /// [`StoreError::BadSetting`], see [`Settings::from_env`].
    pub fn open() -> Result<Self, StoreError> {
        Settings::from_env().map(Self::with)
    }

    /// A store with settings of its own.
    pub fn with(settings: Settings) -> Self {
        Self { settings }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Folder of the receipts, beside the models; it may not exist yet.
    pub fn receipts(&self) -> PathBuf {
        self.settings.home.join("receipts")
    }

    /// Finds the files of a model, fetching them if `pull` allows it.
    ///
    /// A bare word is, in this order: a file of that name, a named model, a pulled model,
    /// a model in ollama's store, a model of the ollama registry.
    ///
    /// # Errors
    /// [`StoreError::NotPulled`] where `pull` is [`Pull::Never`] and it is needed; any
    /// other variant for what goes wrong on the way.
    pub fn resolve(
        &self,
        reference: &ModelRef,
        pull: Pull,
        events: Events,
    ) -> Result<Resolved, StoreError> {
        match reference {
            ModelRef::Path(path) => return local::resolve(&expand_home(path)),
            ModelRef::Word { .. } => {
                let path = PathBuf::from(reference.to_string());
                if path.is_file() {
                    return local::resolve(&path);
                }
            }
            _ => {}
        }
        let name = reference.canonical();
        let named = self.named(reference);
        let sources: Vec<Source> = match named {
            Some(model) => model.sources.iter().map(Source::from).collect(),
            None => Source::of(reference).into_iter().collect(),
        };

        let here = Shelf::new(&self.settings.home).find_intact(&name)?;
        match here {
            Some((folder, record)) if pull != Pull::Update => return Ok(pulled(&folder, record)),
            Some(_) => {}
            None => {
                if let Some(found) = self.in_place(&name, &sources, named, events) {
                    return Ok(found);
                }
            }
        }
        if pull == Pull::Never {
            return Err(StoreError::NotPulled { name });
        }
        self.fetch_first(&name, &sources, named, events)
    }

    /// Fetches a model, or the newer version its source has by now.
    ///
    /// # Errors
    /// See [`Store::resolve`].
    pub fn pull(&self, reference: &ModelRef, events: Events) -> Result<Resolved, StoreError> {
        self.resolve(reference, Pull::Update, events)
    }

    /// All models: pulled ones, unfinished pulls, and those in ollama's store.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the store cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let own = Shelf::new(&self.settings.home)
            .records()?
            .into_iter()
            .map(|(folder, record)| {
                let complete = record.is_intact(&folder);
                Listed {
                    size: if complete {
                        record.size()
                    } else {
                        bytes_in(&folder)
                    },
                    modified: Some(record.pulled_at()),
                    location: folder,
                    owner: Owner::Ounce,
                    complete,
                    name: record.name,
                    source: Some(record.source),
                    licence: record.licence,
                }
            });
        let ollamas = ollama::list_local(&self.settings)
            .into_iter()
            .map(|model| Listed {
                name: name_of(&model),
                size: model.size,
                modified: model.modified,
                location: model.blob,
                owner: Owner::Ollama,
                complete: true,
                source: None,
                licence: None,
            });
        Ok(own.chain(ollamas).collect())
    }

    /// Deletes a pulled model or an unfinished pull. Returns the bytes set free.
    ///
    /// # Errors
    /// [`StoreError::NoSuchModel`], [`StoreError::OllamaOwned`] or [`StoreError::NotOurs`]
    /// for what is not in the store, [`StoreError::Busy`] while it is being pulled.
    pub fn remove(&self, reference: &ModelRef) -> Result<u64, StoreError> {
        if let ModelRef::Path(path) = reference {
            local::resolve(&expand_home(path))?;
            return Err(StoreError::NotOurs { path: path.clone() });
        }
        let name = reference.canonical();
        let shelf = Shelf::new(&self.settings.home);
        let Some((folder, mut record)) = shelf.find(&name)? else {
            return Err(
                match Source::of(reference).and_then(|s| self.in_ollama(&s)) {
                    Some(model) => StoreError::OllamaOwned {
                        name: reference.to_string(),
                        ollama_name: model.name,
                    },
                    None => StoreError::NoSuchModel {
                        name: reference.to_string(),
                    },
                },
            );
        };
        let _lock = shelf.try_lock(&record.name)?;
        let size = bytes_in(&folder);
        // If the deletion stops half-way, what is left does not pass for a model.
        record.complete = false;
        record.save(&folder)?;
        fs::remove_dir_all(&folder).map_err(|e| StoreError::io("delete", &folder, e))?;
        Ok(size)
    }

    fn named(&self, reference: &ModelRef) -> Option<&'static NamedModel> {
        match reference {
            ModelRef::Word { .. } => named::find(&reference.to_string()),
            _ => None,
        }
    }

    /// Looks into the stores of other programs.
    fn in_place(
        &self,
        name: &str,
        sources: &[Source],
        named: Option<&NamedModel>,
        events: Events,
    ) -> Option<Resolved> {
        let pin = named.and_then(|model| model.pin);
        let found = sources.iter().find_map(|source| {
            if let Source::HuggingFace { repo, quant } = source {
                let size = pin.map(|pin| pin.size);
                let cached = huggingface::find_cached(&self.settings, repo, quant.as_deref(), size);
                if let Some(paths) = cached {
                    return Some((paths, Owner::HuggingFace, None));
                }
            }
            // Bytes that are pinned are not exchanged for ollama's version of the model.
            let model = self
                .in_ollama(source)
                .filter(|m| pin.is_none_or(|p| p.size == m.size))?;
            Some((vec![model.blob], Owner::Ollama, Some(model.extras)))
        });
        let Some((paths, owner, ollama)) = found else {
            let asks_ollama = sources.iter().any(|s| matches!(s, Source::Ollama { .. }));
            if let Some(store) = ollama::unreadable_store(&self.settings).filter(|_| asks_ollama) {
                let store = store.display();
                events(Event::Note(format!(
                    "ollama's store {store} cannot be read by this user; not looking there"
                )));
            }
            return None;
        };
        let whose = match owner {
            Owner::Ollama => "ollama's store",
            _ => "the Hugging Face cache",
        };
        let place = paths
            .first()
            .map(|path| path.display().to_string())
            .unwrap_or_default();
        events(Event::Note(format!(
            "using {name} in place from {whose}: {place}"
        )));
        let licence = named.map(|model| model.licence.to_owned());
        Some(Resolved {
            name: name.to_owned(),
            paths,
            owner,
            ollama,
            licence,
        })
    }

    fn in_ollama(&self, source: &Source) -> Option<LocalModel> {
        let find = |host: &str, namespace: &str, name: &str, tag: &str| {
            ollama::find_local(&self.settings, host, namespace, name, tag)
        };
        match source {
            Source::Ollama {
                namespace,
                name,
                tag,
            } => find(crate::reference::OLLAMA_HOST, namespace, name, tag),
            Source::HuggingFace { repo, quant } => {
                let (user, model) = repo.split_once('/')?;
                find("hf.co", user, model, quant.as_deref().unwrap_or("latest"))
            }
            _ => None,
        }
    }

    /// Tries the sources in order; one that fails gives way to the next.
    fn fetch_first(
        &self,
        name: &str,
        sources: &[Source],
        named: Option<&NamedModel>,
        events: Events,
    ) -> Result<Resolved, StoreError> {
        let http = Http::new(&self.settings)?;
        let pin = named.and_then(|model| model.pin);
        let licence = named.map(|model| model.licence);
        let mut failures: Vec<String> = Vec::new();
        let mut hint = "";
        for (i, source) in sources.iter().enumerate() {
            let attempt = plan(&http, &self.settings, source, name, pin)
                .and_then(|plan| fetch::fetch(&http, &self.settings, &plan, licence, events));
            match attempt {
                Ok((folder, record)) => return Ok(pulled(&folder, record)),
                Err(error) if sources.len() == 1 || error.is_local() => return Err(error),
                Err(error) => {
                    let failure = format!("{source}: {}", error.brief());
                    if let Some(next) = sources.get(i + 1) {
                        events(Event::Note(format!("{failure}; trying {next}")));
                    }
                    if matches!(error, StoreError::Unreachable { .. }) {
                        hint = " (check the connection or the proxy: HTTPS_PROXY, ALL_PROXY, NO_PROXY)";
                    }
                    failures.push(failure);
                }
            }
        }
        Err(StoreError::AllSourcesFailed {
            name: name.to_owned(),
            failures: failures.join(" | "),
            hint,
        })
    }
}

fn pulled(folder: &Path, record: Record) -> Resolved {
    Resolved {
        paths: record
            .files
            .iter()
            .map(|file| folder.join(&file.file))
            .collect(),
        name: record.name,
        owner: Owner::Ounce,
        ollama: record.ollama,
        licence: record.licence,
    }
}

/// The name under which a model in ollama's store can be referred to.
fn name_of(model: &LocalModel) -> String {
    let explicit = match model.name.contains('/') {
        true => model.name.clone(),
        false => format!("ollama:{}", model.name),
    };
    // A name that cannot be parsed is still worth listing.
    explicit
        .parse()
        .map_or(model.name.clone(), |reference: ModelRef| {
            reference.canonical()
        })
}
