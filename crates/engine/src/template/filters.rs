//! The `join` and `string` filters, which pay for their text as it grows. The engine's own are charged when they are done,
//! and a small value can hold the same large one many times over.

use std::fmt::Write;

use minijinja::{Error, ErrorKind, State, Value};

use super::MAX_OUTPUT;

/// `value | join(joiner)`; of a string, its characters.
pub(super) fn join(
    state: &State,
    value: &Value,
    joiner: Option<&str>,
    attribute: Option<&str>,
    kwargs: minijinja::value::Kwargs,
) -> Result<Value, Error> {
    let attribute = match attribute {
        Some(name) => Some(name),
        None => kwargs.get("attribute")?,
    };
    kwargs.assert_all_used()?;
    let mut text = Text {
        out: String::new(),
        state,
    };
    let mut first = true;
    let mut add = |item: &Value| {
        if !std::mem::replace(&mut first, false) {
            text.push(joiner.unwrap_or_default())?;
        }
        text.value(item)
    };
    match (value.as_str(), attribute) {
        (Some(chars), None) => chars.chars().try_for_each(|c| add(&Value::from(c)))?,
        (_, None) => value.try_iter()?.try_for_each(|item| add(&item))?,
        (_, Some(name)) => value
            .try_iter()?
            .try_for_each(|item| add(&item.get_attr(name)?))?,
    }
    Ok(Value::from(text.out))
}

/// `value | string`.
pub(super) fn string(state: &State, value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() {
        return Ok(value.clone());
    }
    let mut text = Text {
        out: String::new(),
        state,
    };
    text.value(value)?;
    Ok(Value::from(text.out))
}

/// A text that may grow to [`MAX_OUTPUT`] bytes.
struct Text<'a> {
    out: String,
    state: &'a State<'a, 'a>,
}

impl Text<'_> {
    fn push(&mut self, text: &str) -> Result<(), Error> {
        self.state.consume_fuel(1 + text.len() as u64 / 64)?;
        self.write_str(text)
            .map_err(|_| ErrorKind::OutOfFuel.into())
    }

    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.as_str() {
            Some(text) => self.push(text),
            None => write!(self, "{value}").map_err(|_| ErrorKind::OutOfFuel.into()),
        }
    }
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.out.len() + text.len() > MAX_OUTPUT {
            return Err(std::fmt::Error);
        }
        self.out.push_str(text);
        Ok(())
    }
}
