//! The hash of a record: over its values, whatever their order and layout in the file.
//!
//! The canonical form is what Python's `json.dumps(x, sort_keys=True, separators=(",", ":"), ensure_ascii=False)` gives,
//! in UTF-8, with whole floats below 2^53 as integers: programs that re-indent JSON write 1.0 as 1 and 1e-05 as 0.00001.

use std::fmt::Write;

use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

/// The field that holds the hash; it is not part of what is hashed.
pub(super) const HASH_FIELD: &str = "content_sha256";

/// SHA-256 of the canonical form of all fields but the hash itself, lower-case hexadecimal.
pub(super) fn hash(document: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_map(document, Some(HASH_FIELD), &mut text);
    hex(&Sha256::digest(text))
}

/// Bytes as lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Number(n) => write_number(n, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => write_map(map, None, out),
        Value::Null | Value::Bool(_) | Value::String(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

fn write_map(map: &Map<String, Value>, skipped: Option<&str>, out: &mut String) {
    let mut fields: Vec<(&String, &Value)> = map.iter().collect();
    // Strings are ordered by their bytes, which for UTF-8 is the order of code points.
    fields.sort_unstable_by_key(|(key, _)| *key);
    out.push('{');
    let kept = fields
        .into_iter()
        .filter(|(key, _)| skipped != Some(key.as_str()));
    for (i, (key, value)) in kept.enumerate() {
        if i > 0 {
            out.push(',');
        }
        let _ = write!(out, "{}:", Value::from(key.as_str()));
        write_value(value, out);
    }
    out.push('}');
}

fn write_number(n: &Number, out: &mut String) {
    let Some(x) = n.as_f64().filter(|_| n.is_f64()) else {
        let _ = write!(out, "{n}");
        return;
    };
    // Below 2^53 every whole number is a float of its own.
    if x.fract() == 0.0 && x.abs() < (1u64 << 53) as f64 {
        let _ = write!(out, "{}", x as i64);
        return;
    }
    // The fewest digits that read back as the same float, then Python's choice of notation.
    let text = format!("{x:e}");
    let parts = text.split_once('e');
    let (digits, exponent): (&str, i32) =
        parts.map_or((text.as_str(), 0), |(d, e)| (d, e.parse().unwrap_or(0)));
    let _ = match exponent {
        -4..16 => write!(out, "{x:?}"),
        16.. => write!(out, "{digits}e+{exponent:02}"),
        _ => write!(out, "{digits}e-{:02}", exponent.abs()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        let mut out = String::new();
        write_value(&serde_json::from_str(text).unwrap(), &mut out);
        out
    }

    // Expected texts are those of Python 3's `json.dumps`, with whole floats as integers.
    #[test]
    fn numbers_are_pythons() {
        for (text, want) in [
            ("0.1", "0.1"),
            ("1.0", "1"),
            ("-0.0", "0"),
            ("1E2", "100"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("9007199254740991.0", "9007199254740991"),
            ("9007199254740992.0", "9007199254740992.0"),
            ("1e16", "1e+16"),
            ("1.5e300", "1.5e+300"),
            ("0.0001", "0.0001"),
            ("0.00012345", "0.00012345"),
            ("0.00001", "1e-05"),
            ("-1.25e-7", "-1.25e-07"),
            ("5e-324", "5e-324"),
            ("33.123456789012345", "33.123456789012344"),
        ] {
            assert_eq!(canonical(text), want, "{text}");
        }
    }

    #[test]
    fn keys_are_sorted_and_strings_escaped() {
        assert_eq!(
            canonical(
                r#" { "b" : [1, {"z":null,"a":true}], "B": "\u00e9\u0001\u001f\u007f\/\"\\\n", "é": 1, "a": "x" } "#
            ),
            "{\"B\":\"é\\u0001\\u001f\u{7f}/\\\"\\\\\\n\",\"a\":\"x\",\"b\":[1,{\"a\":true,\"z\":null}],\"é\":1}"
        );
    }
}
