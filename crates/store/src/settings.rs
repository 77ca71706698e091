//! Where things are, read once from the environment.

use std::path::PathBuf;
use std::time::Duration;

use crate::StoreError;
use crate::proxy::Proxies;

/// Everything the store takes from its environment. Tests build their own.
#[derive(Clone)]
pub struct Settings {
    /// Folder of the store: `$OUNCE_HOME`, else `$XDG_DATA_HOME/ounce`, else
    /// `~/.local/share/ounce`.
    pub home: PathBuf,
    /// Base address of Hugging Face: `$HF_ENDPOINT`. No slash at the end.
    pub hf_endpoint: String,
    /// `$HF_TOKEN`; sent to `hf_endpoint` and nowhere else.
    pub hf_token: Option<String>,
    /// Cache folders of Hugging Face's own tools, read only.
    pub hf_caches: Vec<PathBuf>,
    /// Base address of the ollama registry: `$OUNCE_OLLAMA_REGISTRY`. No slash at the end.
    pub ollama_registry: String,
    /// ollama's own model folders, read only.
    pub ollama_stores: Vec<PathBuf>,
    /// `$OUNCE_PIP`: the pip command, if not one of the usual ones.
    pub pip: Option<String>,
    /// `$SSL_CERT_FILE`: PEM file of trusted certificates, in place of the built-in ones.
    pub ca_file: Option<PathBuf>,
    /// Proxy variables.
    pub proxies: Proxies,
    /// Limit for making a connection.
    pub connect_timeout: Duration,
    /// Limit for silence on an open connection.
    pub idle_timeout: Duration,
    /// Attempts in a row that may fail without a byte of progress.
    pub attempts: u32,
    /// Wait after the first failed attempt; doubled after each further one.
    pub retry_delay: Duration,
}

/// The token stays out of logs.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Settings of this process.
    ///
    /// # Errors
    /// [`StoreError::BadSetting`] for a variable that cannot be used, or when there is
    /// no home folder.
    pub fn from_env() -> Result<Self, StoreError> {
        Self::from_vars(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// As [`Settings::from_env`], with the variables read through `get`.
    ///
    /// # Errors
    /// See [`Settings::from_env`].
    pub fn from_vars(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, StoreError> {
        let dir = |name: &str| get(name).map(PathBuf::from);
        let user = dir("HOME").or_else(|| dir("USERPROFILE"));
        let in_home = |rest: &str| user.as_ref().map(|home| home.join(rest));

        let home = dir("OUNCE_HOME")
            .or_else(|| dir("XDG_DATA_HOME").map(|data| data.join("ounce")))
            .or_else(|| in_home(".local/share/ounce"))
            .ok_or_else(|| StoreError::BadSetting {
                variable: "HOME",
                value: String::new(),
                reason: "no place for models; set OUNCE_HOME to a folder".into(),
            })?;

        let hf_cache = dir("HF_HUB_CACHE")
            .or_else(|| dir("HF_HOME").map(|hf| hf.join("hub")))
            .or_else(|| dir("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
            .or_else(|| in_home(".cache/huggingface/hub"));

        let mut ollama_stores: Vec<PathBuf> = Vec::new();
        let usual = [
            in_home(".ollama/models"),
            Some("/usr/share/ollama/.ollama/models".into()),
        ];
        for store in std::iter::once(dir("OLLAMA_MODELS")).chain(usual).flatten() {
            if !ollama_stores.contains(&store) {
                ollama_stores.push(store);
            }
        }

        Ok(Self {
            home,
            hf_endpoint: base_url(get, "HF_ENDPOINT", "https://huggingface.co")?,
            hf_token: get("HF_TOKEN").map(|token| token.trim().to_owned()),
            hf_caches: hf_cache.into_iter().collect(),
            ollama_registry: base_url(get, "OUNCE_OLLAMA_REGISTRY", "https://registry.ollama.ai")?,
            ollama_stores,
            pip: get("OUNCE_PIP"),
            ca_file: dir("SSL_CERT_FILE"),
            proxies: Proxies::from_vars(get),
            connect_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(60),
            attempts: 5,
            retry_delay: Duration::from_secs(1),
        })
    }
}

fn base_url(
    get: &dyn Fn(&str) -> Option<String>,
    variable: &'static str,
    default: &str,
) -> Result<String, StoreError> {
    let value = get(variable).unwrap_or_else(|| default.to_owned());
    let base = value.trim().trim_end_matches('/').to_owned();
    if base.starts_with("https://") || base.starts_with("http://") {
        return Ok(base);
    }
    let reason = format!("an address such as {default} is wanted");
    Err(StoreError::BadSetting {
        variable,
        value,
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> Result<Settings, StoreError> {
        Settings::from_vars(&|name| {
            vars.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn folders_follow_the_variables_in_order() {
        let home = |vars: &[(&str, &str)]| settings(vars).unwrap().home;
        let vars = [
            ("HOME", "/u"),
            ("XDG_DATA_HOME", "/x"),
            ("OUNCE_HOME", "/o"),
        ];
        assert_eq!(home(&vars), PathBuf::from("/o"));
        assert_eq!(home(&vars[..2]), PathBuf::from("/x/ounce"));
        assert_eq!(home(&vars[..1]), PathBuf::from("/u/.local/share/ounce"));
        let error = settings(&[]).unwrap_err().to_string();
        assert!(error.contains("OUNCE_HOME"), "{error}");
    }

    #[test]
    fn addresses_are_checked() {
        let ok = settings(&[("HOME", "/u"), ("HF_ENDPOINT", "https://mirror.example/")]).unwrap();
        assert_eq!(ok.hf_endpoint, "https://mirror.example");
        assert_eq!(ok.ollama_registry, "https://registry.ollama.ai");
        let error = settings(&[("HOME", "/u"), ("HF_ENDPOINT", "mirror")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("HF_ENDPOINT") && error.contains("mirror"),
            "{error}"
        );
    }

    #[test]
    fn the_token_is_not_in_the_debug_text() {
        let secret = settings(&[("HOME", "/u"), ("HF_TOKEN", "hf_secret")]).unwrap();
        assert_eq!(secret.hf_token.as_deref(), Some("hf_secret"));
        assert!(!format!("{secret:?}").contains("hf_secret"));
    }
}
