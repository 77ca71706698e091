//! Metadata: keys with scalars that are decoded at once and arrays that are decoded when they are needed.

use std::collections::HashMap;
use std::ops::Range;

use crate::Error;
use crate::cursor::Cursor;

macro_rules! value_kinds {
    ($($name:ident = $id:literal, $bytes:literal, $word:literal;)*) => {
        /// Kind of a metadata value. The discriminant is the id in the file.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum ValueKind { $($name = $id,)* }

        impl ValueKind {
            /// The kind with this id.
            pub fn from_id(id: u32) -> Option<ValueKind> {
                match id { $($id => Some(ValueKind::$name),)* _ => None }
            }

            /// Name as the specification spells it, in lower case.
            pub fn name(self) -> &'static str {
                match self { $(ValueKind::$name => $word,)* }
            }

            /// Bytes a value takes at least: all of it for scalars, the length prefix of a string.
            pub(crate) fn min_bytes(self) -> u64 {
                match self { $(ValueKind::$name => $bytes,)* }
            }
        }
    };
}

value_kinds! {
    U8 = 0, 1, "uint8";
    I8 = 1, 1, "int8";
    U16 = 2, 2, "uint16";
    I16 = 3, 2, "int16";
    U32 = 4, 4, "uint32";
    I32 = 5, 4, "int32";
    F32 = 6, 4, "float32";
    Bool = 7, 1, "bool";
    String = 8, 8, "string";
    Array = 9, 12, "array";
    U64 = 10, 8, "uint64";
    I64 = 11, 8, "int64";
    F64 = 12, 8, "float64";
}

impl std::fmt::Display for ValueKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A value of the metadata.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

impl Value {
    /// Kind of the value.
    pub fn kind(&self) -> ValueKind {
        match self {
            Value::U8(_) => ValueKind::U8,
            Value::I8(_) => ValueKind::I8,
            Value::U16(_) => ValueKind::U16,
            Value::I16(_) => ValueKind::I16,
            Value::U32(_) => ValueKind::U32,
            Value::I32(_) => ValueKind::I32,
            Value::U64(_) => ValueKind::U64,
            Value::I64(_) => ValueKind::I64,
            Value::F32(_) => ValueKind::F32,
            Value::F64(_) => ValueKind::F64,
            Value::Bool(_) => ValueKind::Bool,
            Value::String(_) => ValueKind::String,
            Value::Array(_) => ValueKind::Array,
        }
    }

    /// The integer, whatever its width, if it is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(x) => Some(x.into()),
            Value::U16(x) => Some(x.into()),
            Value::U32(x) => Some(x.into()),
            Value::U64(x) => Some(x),
            Value::I8(x) => x.try_into().ok(),
            Value::I16(x) => x.try_into().ok(),
            Value::I32(x) => x.try_into().ok(),
            Value::I64(x) => x.try_into().ok(),
            _ => None,
        }
    }
}

/// An array, as its place in the file. Its elements were checked when the header was parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Kind of the elements.
    pub kind: ValueKind,
    /// Elements.
    pub len: u64,
    /// Where they lie in the file.
    pub span: Range<u64>,
}

impl Array {
    fn bytes<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], Error> {
        let (start, end) = (self.span.start, self.span.end);
        bytes
            .get(start as usize..end as usize)
            .ok_or(Error::ArrayBytes { start, end })
    }

    fn wrong(&self, wanted: &'static str) -> Error {
        Error::ArrayKind {
            wanted,
            found: self.kind,
        }
    }

    /// The strings, from the bytes the header was parsed from. They need not be valid UTF-8.
    ///
    /// # Errors
    /// Not an array of strings, or not the same bytes.
    pub fn strings<'a>(&self, bytes: &'a [u8]) -> Result<Strings<'a>, Error> {
        if self.kind != ValueKind::String {
            return Err(self.wrong("strings"));
        }
        Ok(Strings {
            rest: self.bytes(bytes)?,
            left: self.len,
        })
    }

    /// The numbers of any integer kind, widened.
    ///
    /// # Errors
    /// Not an array of integers, or not the same bytes.
    pub fn i64s<'a>(&self, bytes: &'a [u8]) -> Result<impl Iterator<Item = i64> + use<'a>, Error> {
        let decode: fn(&[u8]) -> i64 = match self.kind {
            ValueKind::U8 | ValueKind::Bool => |b| b[0].into(),
            ValueKind::I8 => |b| (b[0] as i8).into(),
            ValueKind::U16 => |b| u16::from_le_bytes([b[0], b[1]]).into(),
            ValueKind::I16 => |b| i16::from_le_bytes([b[0], b[1]]).into(),
            ValueKind::U32 => |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
            ValueKind::I32 => |b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
            // A value past i64 has no use in metadata; it saturates rather than turn negative.
            ValueKind::U64 => |b| i64::try_from(u64_of(b)).unwrap_or(i64::MAX),
            ValueKind::I64 => |b| u64_of(b) as i64,
            _ => return Err(self.wrong("integers")),
        };
        Ok(self
            .bytes(bytes)?
            .chunks_exact(self.kind.min_bytes() as usize)
            .map(decode))
    }

    /// The integers as u32; those out of range become `u32::MAX`, which no valid id or dimension is.
    ///
    /// # Errors
    /// As [`Array::i64s`].
    pub fn u32s<'a>(&self, bytes: &'a [u8]) -> Result<impl Iterator<Item = u32> + use<'a>, Error> {
        Ok(self
            .i64s(bytes)?
            .map(|x| u32::try_from(x).unwrap_or(u32::MAX)))
    }

    /// The numbers of any kind as f64.
    ///
    /// # Errors
    /// Not an array of numbers, or not the same bytes.
    pub fn f64s<'a>(&self, bytes: &'a [u8]) -> Result<impl Iterator<Item = f64> + use<'a>, Error> {
        let decode: fn(&[u8]) -> f64 = match self.kind {
            ValueKind::F32 => |b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
            ValueKind::F64 => |b| f64::from_bits(u64_of(b)),
            _ => return Err(self.wrong("floating-point numbers")),
        };
        Ok(self
            .bytes(bytes)?
            .chunks_exact(self.kind.min_bytes() as usize)
            .map(decode))
    }

    /// The numbers as f32.
    ///
    /// # Errors
    /// As [`Array::f64s`].
    pub fn f32s<'a>(&self, bytes: &'a [u8]) -> Result<impl Iterator<Item = f32> + use<'a>, Error> {
        Ok(self.f64s(bytes)?.map(|x| x as f32))
    }

    /// The truth values; integers count as whether they are not zero.
    ///
    /// # Errors
    /// As [`Array::i64s`].
    pub fn bools<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<impl Iterator<Item = bool> + use<'a>, Error> {
        Ok(self.i64s(bytes)?.map(|x| x != 0))
    }
}

fn u64_of(b: &[u8]) -> u64 {
    let mut x = [0; 8];
    x.copy_from_slice(&b[..8]);
    u64::from_le_bytes(x)
}

/// Iterator over the strings of an array.
#[derive(Clone, Debug)]
pub struct Strings<'a> {
    rest: &'a [u8],
    left: u64,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        // Checked at parse; other bytes than those parsed end the iteration instead of a panic.
        let (len, rest) = self.rest.split_at_checked(8)?;
        let (string, rest) = rest.split_at_checked(usize::try_from(u64_of(len)).ok()?)?;
        self.rest = rest;
        Some(string)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.left).ok())
    }
}

/// Keys and values, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    /// `None` when the key is there already.
    pub(crate) fn insert(&mut self, key: String, value: Value) -> Option<()> {
        if self.index.insert(key.clone(), self.entries.len()).is_some() {
            return None;
        }
        self.entries.push((key, value));
        Some(())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// All entries, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        read(value).map(Some).ok_or_else(|| {
            let found = match value {
                Value::Array(a) => format!("an array of {}", a.kind),
                Value::String(_) => "a string".to_owned(),
                Value::F32(x) => format!("the number {x}"),
                Value::F64(x) => format!("the number {x}"),
                Value::I64(x) => format!("the integer {x}"),
                Value::I32(x) => format!("the integer {x}"),
                other => other.as_u64().map_or_else(
                    || format!("a {}", other.kind()),
                    |x| format!("the integer {x}"),
                ),
            };
            Error::KeyType {
                key: key.to_owned(),
                wanted,
                found,
            }
        })
    }

    /// A string.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn str(&self, key: &str) -> Result<Option<&str>, Error> {
        self.typed(key, "a string", |v| {
            if let Value::String(s) = v {
                Some(s.as_str())
            } else {
                None
            }
        })
    }

    /// An integer of any kind that fits.
    ///
    /// # Errors
    /// The key holds something else, or the integer is negative or too large.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, Error> {
        self.typed(key, "an integer from 0 to 4294967295", |v| {
            u32::try_from(v.as_u64()?).ok()
        })
    }

    /// An integer of any kind that is not negative.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, Error> {
        self.typed(key, "an integer of at least 0", Value::as_u64)
    }

    /// A number of any kind.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.typed(key, "a number", |v| match *v {
            Value::F32(x) => Some(x),
            Value::F64(x) => Some(x as f32),
            Value::I8(x) => Some(x.into()),
            Value::I16(x) => Some(x.into()),
            Value::I32(x) => Some(x as f32),
            Value::I64(x) => Some(x as f32),
            ref other => other.as_u64().map(|x| x as f32),
        })
    }

    /// A truth value.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", |v| {
            if let Value::Bool(b) = v {
                Some(*b)
            } else {
                None
            }
        })
    }

    /// An array.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn array(&self, key: &str) -> Result<Option<&Array>, Error> {
        self.typed(key, "an array", |v| {
            if let Value::Array(a) = v {
                Some(a)
            } else {
                None
            }
        })
    }

    /// As [`Metadata::str`], the key being needed.
    ///
    /// # Errors
    /// Missing too.
    pub fn required_str(&self, key: &str) -> Result<&str, Error> {
        self.str(key)?
            .ok_or_else(|| Error::MissingKey(key.to_owned()))
    }

    /// As [`Metadata::u32`], the key being needed.
    ///
    /// # Errors
    /// Missing too.
    pub fn required_u32(&self, key: &str) -> Result<u32, Error> {
        self.u32(key)?
            .ok_or_else(|| Error::MissingKey(key.to_owned()))
    }

    /// As [`Metadata::array`], the key being needed.
    ///
    /// # Errors
    /// Missing too.
    pub fn required_array(&self, key: &str) -> Result<&Array, Error> {
        self.array(key)?
            .ok_or_else(|| Error::MissingKey(key.to_owned()))
    }
}

/// Reads the value of `key`.
pub(crate) fn read_value(c: &mut Cursor<'_>, key: &str) -> Result<Value, Error> {
    let what = || format!("the value of \"{key}\"");
    let kind = read_kind(c, key)?;
    Ok(match kind {
        ValueKind::U8 => Value::U8(c.u8(&what)?),
        ValueKind::I8 => Value::I8(c.u8(&what)? as i8),
        ValueKind::U16 => Value::U16(c.u16(&what)?),
        ValueKind::I16 => Value::I16(c.u16(&what)? as i16),
        ValueKind::U32 => Value::U32(c.u32(&what)?),
        ValueKind::I32 => Value::I32(c.u32(&what)? as i32),
        ValueKind::U64 => Value::U64(c.u64(&what)?),
        ValueKind::I64 => Value::I64(c.u64(&what)? as i64),
        ValueKind::F32 => Value::F32(f32::from_bits(c.u32(&what)?)),
        ValueKind::F64 => Value::F64(f64::from_bits(c.u64(&what)?)),
        ValueKind::Bool => Value::Bool(check_bool(c.u8(&what)?, key)?),
        ValueKind::String => {
            let at = c.at();
            let bytes = c.string(&what)?;
            let text =
                std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8 { at, what: what() })?;
            Value::String(text.to_owned())
        }
        ValueKind::Array => Value::Array(read_array(c, key)?),
    })
}

fn read_kind(c: &mut Cursor<'_>, key: &str) -> Result<ValueKind, Error> {
    let id = c.u32(&|| format!("the value type of \"{key}\""))?;
    ValueKind::from_id(id).ok_or_else(|| Error::ValueType {
        key: key.to_owned(),
        id,
    })
}

fn check_bool(byte: u8, key: &str) -> Result<bool, Error> {
    if byte > 1 {
        Err(Error::Bool {
            key: key.to_owned(),
            found: byte,
        })
    } else {
        Ok(byte == 1)
    }
}

/// Walks over the elements once, checking each; nothing is allocated.
fn read_array(c: &mut Cursor<'_>, key: &str) -> Result<Array, Error> {
    let kind = read_kind(c, key)?;
    if kind == ValueKind::Array {
        return Err(Error::NestedArray(key.to_owned()));
    }
    let what = || format!("the array \"{key}\"");
    let len = c.count(kind.min_bytes(), &what)?;
    let start = c.at();
    match kind {
        ValueKind::String => {
            for _ in 0..len {
                c.string(&what)?;
            }
        }
        ValueKind::Bool => {
            for &byte in c.take(len, &what)? {
                check_bool(byte, key)?;
            }
        }
        _ => {
            // `count` has checked the product against the file.
            c.take(len * kind.min_bytes(), &what)?;
        }
    }
    Ok(Array {
        kind,
        len,
        span: start..c.at(),
    })
}
