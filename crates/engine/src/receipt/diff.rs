//! Where two records differ.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::Receipt;

/// A value that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Keys from the top, joined by dots; of a list of named things, the name in brackets: `plan.sections[weights].bytes`.
    pub path: String,
    /// In the first record; `None` where it is absent.
    pub a: Option<Value>,
    /// In the second.
    pub b: Option<Value>,
}

impl Difference {
    /// The second over the first, where both are numbers and that means something.
    pub fn ratio(&self) -> Option<f64> {
        let number = |v: &Option<Value>| v.as_ref().and_then(Value::as_f64);
        let (a, b) = (number(&self.a)?, number(&self.b)?);
        Some(b / a).filter(|r| r.is_finite())
    }
}

/// Every value that differs, in the order of the first record. What differs by nature is left out: when a record was made,
/// and its hash.
pub fn diff(a: &Receipt, b: &Receipt) -> Vec<Difference> {
    let mut found = Vec::new();
    let whole = |r: &Receipt| {
        let mut document = r.document().clone();
        document.shift_remove("created");
        document.shift_remove("content_sha256");
        document
    };
    objects("", &whole(a), &whole(b), &mut found);
    found
}

fn objects(path: &str, a: &Map<String, Value>, b: &Map<String, Value>, out: &mut Vec<Difference>) {
    let of_b_alone = b.keys().filter(|key| !a.contains_key(*key));
    for key in a.keys().chain(of_b_alone) {
        let path = match path {
            "" => key.clone(),
            _ => format!("{path}.{key}"),
        };
        values(path, a.get(key), b.get(key), out);
    }
}

fn values(path: String, a: Option<&Value>, b: Option<&Value>, out: &mut Vec<Difference>) {
    let none = Map::new();
    match (a, b) {
        _ if is_same(a, b) => {}
        (Some(Value::Object(a)), Some(Value::Object(b))) => objects(&path, a, b, out),
        (Some(Value::Object(a)), None) if !a.is_empty() => objects(&path, a, &none, out),
        (None, Some(Value::Object(b))) if !b.is_empty() => objects(&path, &none, b, out),
        _ => match (named(a), named(b)) {
            (Some(a), Some(b)) if !(a.is_empty() && b.is_empty()) => {
                let of_a: HashMap<_, _> = a.iter().copied().collect();
                let of_b: HashMap<_, _> = b.iter().copied().collect();
                let of_b_alone = b.iter().filter(|(name, _)| !of_a.contains_key(name));
                for (name, _) in a.iter().chain(of_b_alone) {
                    let path = format!("{path}[{name}]");
                    let (a, b) = (of_a.get(name).copied(), of_b.get(name).copied());
                    values(path, a, b, out);
                }
            }
            _ => out.push(Difference {
                path,
                a: a.cloned(),
                b: b.cloned(),
            }),
        },
    }
}

/// 1 and 1.0 are one number.
fn is_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::Number(x)), Some(Value::Number(y))) if x.is_f64() != y.is_f64() => {
            x.as_f64() == y.as_f64()
        }
        _ => a == b,
    }
}

/// A list whose elements are objects, each with a name of its own; an absent list has none.
fn named(list: Option<&Value>) -> Option<Vec<(&str, &Value)>> {
    let Some(list) = list else {
        return Some(Vec::new());
    };
    let mut found: Vec<(&str, &Value)> = Vec::new();
    let mut names = HashSet::new();
    for item in list.as_array()? {
        let name = item.get("name")?.as_str()?;
        if !names.insert(name) {
            return None;
        }
        found.push((name, item));
    }
    Some(found)
}
