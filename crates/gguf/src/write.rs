//! A minimal writer, for tests and tools that need small or deliberately broken files.

use crate::{TensorType, Value, ValueKind};

/// Collects a header and writes it out.
#[derive(Clone, Debug)]
pub struct Writer {
    version: u32,
    n_entries: u64,
    entries: Vec<u8>,
    n_tensors: u64,
    infos: Vec<u8>,
    data_len: u64,
    alignment: u64,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

fn string(out: &mut Vec<u8>, s: &[u8]) {
    out.extend_from_slice(&(s.len() as u64).to_le_bytes());
    out.extend_from_slice(s);
}

impl Writer {
    /// An empty file of version 3 with the default alignment.
    pub fn new() -> Writer {
        Writer {
            version: 3,
            n_entries: 0,
            entries: Vec::new(),
            n_tensors: 0,
            infos: Vec::new(),
            data_len: 0,
            alignment: 32,
        }
    }

    /// Another version.
    pub fn version(mut self, version: u32) -> Writer {
        self.version = version;
        self
    }

    /// An entry as raw bytes of its value.
    pub fn raw(mut self, key: &str, kind: u32, value: &[u8]) -> Writer {
        self.n_entries += 1;
        string(&mut self.entries, key.as_bytes());
        self.entries.extend_from_slice(&kind.to_le_bytes());
        self.entries.extend_from_slice(value);
        self
    }

    /// An integer.
    pub fn u32(self, key: &str, value: u32) -> Writer {
        self.raw(key, ValueKind::U32 as u32, &value.to_le_bytes())
    }

    /// A number.
    pub fn f32(self, key: &str, value: f32) -> Writer {
        self.raw(key, ValueKind::F32 as u32, &value.to_le_bytes())
    }

    /// A truth value.
    pub fn bool(self, key: &str, value: bool) -> Writer {
        self.raw(key, ValueKind::Bool as u32, &[value.into()])
    }

    /// A string.
    pub fn str(self, key: &str, value: &str) -> Writer {
        let mut bytes = Vec::new();
        string(&mut bytes, value.as_bytes());
        self.raw(key, ValueKind::String as u32, &bytes)
    }

    /// `general.alignment`, which also governs where tensors are placed.
    pub fn alignment(mut self, value: u32) -> Writer {
        self.alignment = u64::from(value).max(1);
        self.u32("general.alignment", value)
    }

    /// An array of strings.
    pub fn strings(self, key: &str, values: &[&[u8]]) -> Writer {
        let mut bytes = array_head(ValueKind::String, values.len());
        values.iter().for_each(|s| string(&mut bytes, s));
        self.raw(key, ValueKind::Array as u32, &bytes)
    }

    /// An array of numbers.
    pub fn f32s(self, key: &str, values: &[f32]) -> Writer {
        let mut bytes = array_head(ValueKind::F32, values.len());
        values
            .iter()
            .for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
        self.raw(key, ValueKind::Array as u32, &bytes)
    }

    /// An array of integers.
    pub fn i32s(self, key: &str, values: &[i32]) -> Writer {
        let mut bytes = array_head(ValueKind::I32, values.len());
        values
            .iter()
            .for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
        self.raw(key, ValueKind::Array as u32, &bytes)
    }

    /// A value as another file holds it; `bytes` are that file's, for arrays.
    ///
    /// # Panics
    /// When `bytes` are not those that the value was parsed from.
    pub fn value(self, key: &str, value: &Value, bytes: &[u8]) -> Writer {
        let kind = value.kind() as u32;
        match value {
            Value::U8(x) => self.raw(key, kind, &[*x]),
            Value::I8(x) => self.raw(key, kind, &x.to_le_bytes()),
            Value::U16(x) => self.raw(key, kind, &x.to_le_bytes()),
            Value::I16(x) => self.raw(key, kind, &x.to_le_bytes()),
            Value::U32(x) => self.raw(key, kind, &x.to_le_bytes()),
            Value::I32(x) => self.raw(key, kind, &x.to_le_bytes()),
            Value::U64(x) => self.raw(key, kind, &x.to_le_bytes()),
            Value::I64(x) => self.raw(key, kind, &x.to_le_bytes()),
            Value::F32(x) => self.raw(key, kind, &x.to_le_bytes()),
            Value::F64(x) => self.raw(key, kind, &x.to_le_bytes()),
            Value::Bool(x) => self.bool(key, *x),
            Value::String(x) => self.str(key, x),
            Value::Array(a) => {
                let mut out = array_head(a.kind, a.len as usize);
                out.extend_from_slice(&bytes[a.span.start as usize..a.span.end as usize]);
                self.raw(key, kind, &out)
            }
        }
    }

    /// A tensor info as given.
    pub fn raw_tensor(mut self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Writer {
        self.n_tensors += 1;
        string(&mut self.infos, name.as_bytes());
        self.infos
            .extend_from_slice(&(dims.len() as u32).to_le_bytes());
        dims.iter()
            .for_each(|d| self.infos.extend_from_slice(&d.to_le_bytes()));
        self.infos.extend_from_slice(&ty.to_le_bytes());
        self.infos.extend_from_slice(&offset.to_le_bytes());
        self
    }

    /// A tensor, placed behind those before it.
    ///
    /// # Panics
    /// When the dimensions make no whole number of blocks.
    pub fn tensor(mut self, name: &str, dims: &[u64], ty: TensorType) -> Writer {
        let offset = self.data_len.next_multiple_of(self.alignment);
        let n_bytes = ty
            .row_bytes(dims.iter().product())
            .expect("a whole number of blocks");
        self.data_len = offset + n_bytes;
        self.raw_tensor(name, dims, ty as u32, offset)
    }

    /// The header, padded to where tensor data starts.
    pub fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.n_tensors.to_le_bytes());
        out.extend_from_slice(&self.n_entries.to_le_bytes());
        out.extend_from_slice(&self.entries);
        out.extend_from_slice(&self.infos);
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        out
    }

    /// Bytes of the tensor data.
    pub fn data_len(&self) -> u64 {
        self.data_len
    }

    /// The whole file, its data zero.
    pub fn file(&self) -> Vec<u8> {
        let mut out = self.header();
        out.resize(out.len() + self.data_len as usize, 0);
        out
    }
}

fn array_head(kind: ValueKind, len: usize) -> Vec<u8> {
    let mut bytes = (kind as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&(len as u64).to_le_bytes());
    bytes
}
