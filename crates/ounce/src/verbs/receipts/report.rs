//! A record as people read it: keys indented, sizes in units, small objects on one line.

use serde_json::{Map, Number, Value};

use crate::out::{self, plain};

/// The widest line that holds a whole object or list.
const LINE: usize = 100;

/// Prints every field.
pub fn print(document: &Map<String, Value>) -> Result<(), out::StdoutError> {
    document
        .iter()
        .try_for_each(|(key, value)| field(key, value, 0))
}

fn field(key: &str, value: &Value, indent: usize) -> Result<(), out::StdoutError> {
    let name = plain(key);
    let line = text(key, value);
    let is_nested = matches!(value, Value::Object(_) | Value::Array(_));
    if !is_nested || (is_flat(value) && indent + name.len() + 2 + line.len() <= LINE) {
        return out::line(format_args!("{:indent$}{name}: {line}", ""));
    }
    out::line(format_args!("{:indent$}{name}:", ""))?;
    match value {
        Value::Object(map) => map
            .iter()
            .try_for_each(|(key, value)| field(key, value, indent + 2)),
        Value::Array(items) => items.iter().try_for_each(|item| {
            out::line(format_args!("{:1$}- {2}", "", indent + 2, text(key, item)))
        }),
        _ => Ok(()),
    }
}

/// Whether nothing in it is nested.
fn is_flat(value: &Value) -> bool {
    let is_plain = |v: &Value| !matches!(v, Value::Object(_) | Value::Array(_));
    match value {
        Value::Object(map) => map.values().all(is_plain),
        Value::Array(items) => items.iter().all(is_plain),
        _ => true,
    }
}

/// A value on one line; `key` says what a number counts.
pub fn text(key: &str, value: &Value) -> String {
    match value {
        Value::String(s) => plain(s),
        Value::Number(n) => number(key, n),
        Value::Null => "-".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|v| text(key, v)).collect();
            items.join(" ")
        }
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{} {}", plain(k), text(k, v)))
                .collect();
            fields.join(", ")
        }
    }
}

fn number(key: &str, n: &Number) -> String {
    let is_size = key.split('_').any(|word| word == "bytes");
    match n.as_u64() {
        // Short enough to be given in full, as the size of a page should be.
        Some(bytes) if is_size && bytes < 10_000 => format!("{bytes} B"),
        Some(bytes) if is_size => out::bytes(bytes),
        _ if n.is_f64() => format!("{:.3}", n.as_f64().unwrap_or(f64::NAN)),
        _ => n.to_string(),
    }
}
