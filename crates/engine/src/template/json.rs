//! The `tojson` filter, which writes as Python's `json.dumps` does: models were trained on its spaces.

use std::fmt::Write;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::MAX_OUTPUT;

/// Deepest nesting that is written.
const MAX_DEPTH: usize = 100;

/// `value | tojson(indent, sort_keys, ensure_ascii, separators)`. Nothing is escaped for HTML.
pub(super) fn tojson(state: &State, value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "separators are two strings",
            ));
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        out: String::new(),
        indent: indent.map(|n| n.min(64)),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        item,
        key,
        charged: 0,
        state,
    };
    kwargs.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(Value::from_safe_string(writer.out))
}

struct Writer<'a> {
    out: String,
    indent: Option<usize>,
    sort_keys: bool,
    ascii: bool,
    item: String,
    key: String,
    /// Bytes of `out` that were paid for.
    charged: usize,
    state: &'a State<'a, 'a>,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                "nested too deeply for JSON",
            ));
        }
        self.charge()?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.list('[', ']', value.try_iter()?.map(|item| (None, item)), depth)?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                let pairs = keys.into_iter().map(|key| {
                    let item = value.get_item(&key).unwrap_or_default();
                    (Some(key), item)
                });
                self.list('{', '}', pairs, depth)?;
            }
            kind => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("{kind} has no form in JSON"),
                ));
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        open: char,
        close: char,
        items: impl Iterator<Item = (Option<Value>, Value)>,
        depth: usize,
    ) -> Result<(), Error> {
        self.out.push(open);
        let mut empty = true;
        for (key, item) in items {
            if !std::mem::replace(&mut empty, false) {
                self.out.push_str(&self.item);
            }
            self.new_line(depth + 1);
            if let Some(key) = key {
                // Python writes numbers, booleans and None as keys in quotes.
                match key.as_str() {
                    Some(key) => self.string(key),
                    None => {
                        self.out.push('"');
                        self.value(&key, depth + 1)?;
                        self.out.push('"');
                    }
                }
                self.out.push_str(&self.key);
            }
            self.value(&item, depth + 1)?;
        }
        if !empty {
            self.new_line(depth);
        }
        self.out.push(close);
        self.charge()
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
        } else {
            self.out.push_str(&float(f64::try_from(value.clone())?));
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !c.is_ascii()) || (self.ascii && c == '\u{7f}') => {
                    self.escape(c)
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(self.out, "\\u{unit:04x}");
        }
    }

    /// Pays for what was written: a small value can hold the same large one many times over.
    fn charge(&mut self) -> Result<(), Error> {
        let n = self.out.len() - self.charged;
        if n >= 1024 {
            self.charged = self.out.len();
            self.state.consume_fuel(n as u64 / 64)?;
        }
        if self.out.len() > MAX_OUTPUT {
            return Err(ErrorKind::OutOfFuel.into());
        }
        Ok(())
    }
}

/// As Python's `repr` writes it.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let text = format!("{x:?}");
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent
                .strip_prefix('-')
                .map_or(('+', exponent), |n| ('-', n));
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_writes_them() {
        for (x, text) in [
            (21.5, "21.5"),
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float(x), text);
        }
    }

    fn render(source: &str) -> String {
        let vars = serde_json::json!({ "x": { "b": [1, 2.5, null, true], "a": "é\u{1f600}<\"\n\u{1}>", "c": {}, "d": [] } });
        super::super::ChatTemplate::new(source)
            .unwrap()
            .render(&vars)
            .unwrap()
    }

    // Expected texts are what Python's json.dumps writes with the same arguments.
    #[test]
    fn spaces_order_and_escapes() {
        assert_eq!(
            render("{{ x | tojson }}"),
            r#"{"b": [1, 2.5, null, true], "a": "é😀<\"\n\u0001>", "c": {}, "d": []}"#
        );
        assert_eq!(
            render("{{ x | tojson(sort_keys=true, ensure_ascii=true) }}"),
            r#"{"a": "\u00e9\ud83d\ude00<\"\n\u0001>", "b": [1, 2.5, null, true], "c": {}, "d": []}"#
        );
        assert_eq!(
            render("{{ x.b | tojson(separators=[',', ':']) }}"),
            "[1,2.5,null,true]"
        );
        assert_eq!(
            render("{{ {1: 2, none: 3, 2.5: 4, false: 5} | tojson }}"),
            r#"{"1": 2, "null": 3, "2.5": 4, "false": 5}"#
        );
    }

    #[test]
    fn indented() {
        assert_eq!(
            render("{{ {'a': [1, {}], 'b': []} | tojson(indent=2) }}"),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}"
        );
    }
}
