//! SHA-256 in the spelling that registries use.

use sha2::{Digest, Sha256};

/// Whether `text` is 64 lower-case hexadecimal digits.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The finished hash as lower-case hexadecimal.
pub(crate) fn hex(hasher: Sha256) -> String {
    use std::fmt::Write;
    hasher
        .finalize()
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_known_text() {
        // FIPS 180-2, example B.1.
        let mut hasher = Sha256::new();
        hasher.update(b"abc");
        let text = hex(hasher);
        assert_eq!(
            text,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(is_sha256(&text));
        assert!(!is_sha256(&text.to_uppercase()) && !is_sha256("abc"));
    }
}
