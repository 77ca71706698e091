//! Free space on the disk that holds a path.

use std::path::Path;

use crate::StoreError;

/// Bytes available to this user where `path` is or would be, if the system tells.
pub(crate) fn free(path: &Path) -> Option<u64> {
    path.ancestors()
        .find(|p| p.exists())
        .and_then(|p| fs4::available_space(p).ok())
}

/// Fails when `need` bytes do not fit where `path` would be. A file system that does
/// not state its free space passes: the write itself will tell.
pub(crate) fn require(path: &Path, need: u64) -> Result<(), StoreError> {
    match free(path) {
        Some(free) if free < need => Err(StoreError::no_space(path, Some(need))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_need_is_refused_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not/yet/there.gguf");
        assert!(require(&path, 1).is_ok());
        let error = require(&path, u64::MAX).unwrap_err().to_string();
        assert!(
            error.contains("18446744073709551615 bytes are needed"),
            "{error}"
        );
        assert!(
            error.contains("there.gguf") && error.contains("free"),
            "{error}"
        );
    }
}
