//! Files the user names by path.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::StoreError;
use crate::quant::split_counter;
use crate::store::{Owner, Resolved};

/// The file at `path`, with its sisters if it is one of a split model.
pub(crate) fn resolve(path: &Path) -> Result<Resolved, StoreError> {
    let about = fs::metadata(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => StoreError::NoSuchFile {
            path: path.to_owned(),
            hint: hint(path),
        },
        _ => StoreError::io("read", path, e),
    })?;
    if about.is_dir() {
        return Err(StoreError::IsFolder {
            path: path.to_owned(),
        });
    }
    let paths = sisters(path)?;
    Ok(Resolved {
        name: path.display().to_string(),
        paths,
        owner: Owner::User,
        ollama: None,
        licence: None,
    })
}

/// `user/model` looks like a path; the user may have meant a registry.
fn hint(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = !text.starts_with(['/', '.', '~']) && !text.to_ascii_lowercase().ends_with(".gguf");
    if plain && text.matches('/').count() == 1 {
        format!("; for a model write hf.co/{text} (Hugging Face) or {text}:latest (ollama)")
    } else {
        String::new()
    }
}

fn sisters(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let stem = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .and_then(split_counter);
    let Some((name, _, count)) = stem else {
        return Ok(vec![path.to_owned()]);
    };
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let mut paths = Vec::new();
    for part in 1..=count {
        let sister = path.with_file_name(format!("{name}-{part:05}-of-{count:05}.{extension}"));
        if !sister.is_file() {
            return Err(StoreError::MissingPart {
                path: sister,
                count,
            });
        }
        paths.push(sister);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_folders_and_split_models() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("m.gguf"), b"x").unwrap();
        assert_eq!(resolve(&at("m.gguf")).unwrap().paths, [at("m.gguf")]);
        assert!(matches!(
            resolve(dir.path()),
            Err(StoreError::IsFolder { .. })
        ));
        assert!(matches!(
            resolve(&at("n.gguf")),
            Err(StoreError::NoSuchFile { .. })
        ));

        let parts = [
            "s-00001-of-00003.gguf",
            "s-00002-of-00003.gguf",
            "s-00003-of-00003.gguf",
        ];
        for part in &parts[..2] {
            fs::write(at(part), b"x").unwrap();
        }
        let error = resolve(&at(parts[0])).unwrap_err().to_string();
        assert!(
            error.contains(parts[2]) && error.contains("3 files"),
            "{error}"
        );
        fs::write(at(parts[2]), b"x").unwrap();
        assert_eq!(resolve(&at(parts[1])).unwrap().paths, parts.map(at));
    }

    #[test]
    fn a_missing_file_that_may_be_a_model_gets_advice() {
        let error = resolve(Path::new("no-user/no-model"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("hf.co/no-user/no-model"), "{error}");
        assert!(
            !resolve(Path::new("./no/such.gguf"))
                .unwrap_err()
                .to_string()
                .contains("hf.co")
        );
    }
}
