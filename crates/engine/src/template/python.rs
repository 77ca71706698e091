//! What templates use of Python, jinja2 and Hugging Face's tags that the engine does not have.

use std::borrow::Cow;

use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use regex::Regex;

/// `source` without the `generation` tags, which mark the model's own words for training and print what they hold.
pub(super) fn without_generation_tags(source: &str) -> Cow<'_, str> {
    let tag = Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}");
    tag.expect("a test uses the pattern")
        .replace_all(source, |tag: &regex::Captures| {
            let word = if tag.get(2).is_some() {
                "endif"
            } else {
                "if true"
            };
            format!("{{%{} {word} {}%}}", &tag[1], &tag[3])
        })
}

/// The test `is sequence`: in jinja2 all that has a length and elements is one, strings, mappings and what is not defined too.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq
            | ValueKind::Map
            | ValueKind::String
            | ValueKind::Bytes
            | ValueKind::Undefined
    )
}

/// Methods of Python's strings, lists and dicts.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    match name {
        "rsplit" => {
            let (separator, most, kwargs): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let most = match most {
                Some(most) => Some(most),
                None => kwargs.get("maxsplit")?,
            };
            kwargs.assert_all_used()?;
            // Negative is without limit, as in Python.
            let most = most.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
            rsplit(state, text, separator, most)
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn rsplit(state: &State, text: &str, separator: Option<&str>, most: usize) -> Result<Value, Error> {
    if separator == Some("") {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "rsplit: the separator is empty",
        ));
    }
    let mut parts: Vec<Value> = Vec::new();
    let mut rest = text;
    loop {
        if separator.is_none() {
            rest = rest.trim_end();
        }
        let border = match separator {
            Some(separator) => rest.rfind(separator).map(|at| (at, separator.len())),
            None => rest
                .char_indices()
                .rfind(|(_, c)| c.is_whitespace())
                .map(|(at, c)| (at, c.len_utf8())),
        };
        match border.filter(|_| parts.len() < most) {
            Some((at, n)) => {
                state.consume_fuel(1 + (rest.len() - at) as u64 / 64)?;
                parts.push(rest[at + n..].into());
                rest = &rest[..at];
            }
            None => break,
        }
    }
    if separator.is_some() || !rest.is_empty() {
        parts.push(rest.into());
    }
    parts.reverse();
    Ok(parts.into())
}

#[cfg(test)]
mod tests {
    use super::super::ChatTemplate;

    fn render(source: &str) -> String {
        ChatTemplate::new(source)
            .unwrap()
            .render(&serde_json::json!({ "l": [1], "d": {}, "n": 1 }))
            .unwrap()
    }

    // Expected texts are those of Python's jinja2.
    #[test]
    fn methods() {
        for (source, wanted) in [
            ("'aXbXc'.rsplit('X', 1)", "['aXb', 'c']"),
            ("'aXbXc'.rsplit('X', maxsplit=1)", "['aXb', 'c']"),
            ("'aXbXc'.rsplit('X')", "['a', 'b', 'c']"),
            ("'aXbXc'.rsplit('X', -1)", "['a', 'b', 'c']"),
            ("'aXb'.rsplit('X', 0)", "['aXb']"),
            ("''.rsplit('X')", "['']"),
            ("' a  b c '.rsplit()", "['a', 'b', 'c']"),
            ("' a  b c '.rsplit(none, 1)", "[' a  b', 'c']"),
            ("'  '.rsplit()", "[]"),
            ("'<a>'.removeprefix('<').removesuffix('>')", "a"),
            ("'a'.removeprefix('b').upper()", "A"),
        ] {
            assert_eq!(render(&format!("{{{{ {source} }}}}")), wanted, "{source}");
        }
        assert!(
            ChatTemplate::new("{{ 'a'.rsplit('') }}")
                .unwrap()
                .render(&serde_json::Value::Null)
                .is_err()
        );
    }

    #[test]
    fn sequences() {
        let source = "{{ l is sequence }}{{ d is sequence }}{{ 'a' is sequence }}{{ n is sequence }}{{ none is sequence }}{{ x is sequence }}";
        assert_eq!(render(source), "TrueTrueTrueFalseFalseTrue");
    }

    #[test]
    fn generation_tags_print_what_they_hold() {
        let source = "a  {%- generation -%}  b{% if n %}c{% endif %}\n{%- endgeneration %}\nd{% generation %}e{%endgeneration%}";
        assert_eq!(render(source), "abcde");
    }
}
