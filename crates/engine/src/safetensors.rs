//! Headers of safetensors files, for the weight of a model that is not converted yet. Format: a length of 8 bytes, so much
//! JSON, then the tensors (<https://github.com/huggingface/safetensors#format>).

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};

/// Longest header that is read, as in the reference implementation.
const LONGEST: u64 = 100_000_000;

/// What can be wrong with a file or a folder; `Display` is the one line a user sees.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum SafetensorsError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: no .safetensors file is in this folder; name a folder of a model, or a .gguf file", .0.display())]
    None(PathBuf),
    #[error("{}: {what}: the file is damaged, download it again", path.display())]
    Damaged { path: PathBuf, what: String },
}

/// One tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Name, as the model's authors give it.
    pub name: String,
    /// Element type, as the file spells it.
    pub dtype: String,
    /// Dimensions, the outermost first.
    pub shape: Vec<u64>,
    /// Bytes.
    pub n_bytes: u64,
}

impl Tensor {
    /// Elements.
    pub fn n_elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether this is a matrix of integers: packed weights of a model that is quantised already (GPTQ, AWQ, bitsandbytes),
    /// of whose elements nobody can tell how many weights they hold. Integers of 64 bits are positions, not weights.
    pub fn is_packed(&self) -> bool {
        let packs = matches!(
            self.dtype.as_str(),
            "I32" | "U32" | "I16" | "U16" | "I8" | "U8"
        );
        self.shape.len() >= 2 && packs
    }

    /// Bytes after a conversion to blocks of 32 or 256 with `bits` a weight, as llama.cpp's quantizer does it: matrices
    /// of at least two dimensions whose rows hold whole blocks; the rest as f32.
    pub fn bytes_as(&self, bits: f64, block: u64) -> u64 {
        let row = self.shape.last().copied().unwrap_or(1);
        if self.shape.len() >= 2 && row % block == 0 {
            (self.n_elements() as f64 * bits / 8.0) as u64
        } else {
            self.n_elements().saturating_mul(4)
        }
    }
}

/// Bits of an element.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F64" | "I64" | "U64" | "C64" => 64,
        "F32" | "I32" | "U32" => 32,
        "F16" | "BF16" | "I16" | "U16" => 16,
        "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" | "I8" | "U8"
        | "BOOL" => 8,
        "F6_E2M3" | "F6_E3M2" => 6,
        "F4" => 4,
        _ => return None,
    })
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The entries in the order of the file; a map would forget the first of two with one name.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Entries, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Entries;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut all = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        all.push((key, map.next_value()?));
                    }
                }
                Ok(Entries(all))
            }
        }
        from.deserialize_map(Each)
    }
}

/// The tensors of a header (its JSON alone) before `data_len` bytes of tensors.
///
/// # Errors
/// Not such JSON, a type that is not known, a shape that does not give the tensor's bytes, or tensors that overlap or leave
/// bytes to nobody. The text says which.
pub fn parse(json: &[u8], data_len: u64) -> Result<Vec<Tensor>, String> {
    let Entries(entries) = serde_json::from_slice(json)
        .map_err(|e| format!("the header is not what it should be: {e}"))?;
    let mut names = BTreeSet::new();
    let mut spans = Vec::with_capacity(entries.len());
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in &entries {
        if !names.insert(name.as_str()) {
            return Err(format!("tensor {name:?} is there twice"));
        }
        let bits = bits(&entry.dtype)
            .ok_or_else(|| format!("tensor {name:?} has the unknown type {:?}", entry.dtype))?;
        let [start, end] = entry.data_offsets;
        let n_bits = entry.shape.iter().try_fold(bits, |n, &d| n.checked_mul(d));
        let n_bytes = n_bits.filter(|n| n % 8 == 0).map(|n| n / 8);
        if n_bytes.is_none() || n_bytes != end.checked_sub(start) {
            return Err(format!(
                "tensor {name:?} of type {} and shape {:?} cannot lie at bytes {start} to {end}",
                entry.dtype, entry.shape
            ));
        }
        spans.push((start, end, name));
        tensors.push(Tensor {
            name: name.clone(),
            dtype: entry.dtype.clone(),
            shape: entry.shape.clone(),
            n_bytes: end - start,
        });
    }
    spans.sort_unstable();
    let mut at = 0;
    for (start, end, name) in spans {
        if start != at {
            return Err(format!(
                "tensor {name:?} starts at byte {start} and not at {at}"
            ));
        }
        at = end;
    }
    if at != data_len {
        return Err(format!(
            "the tensors take {at} bytes and the file has {data_len} for them"
        ));
    }
    Ok(tensors)
}

/// Reads the header of one file, and no more of it.
///
/// # Errors
/// See [`parse`]; the file is missing, unreadable, or shorter than its header says.
pub fn read(path: &Path) -> Result<Vec<Tensor>, SafetensorsError> {
    let io = |source| SafetensorsError::Io {
        path: path.to_owned(),
        source,
    };
    let damaged = |what| SafetensorsError::Damaged {
        path: path.to_owned(),
        what,
    };
    let mut file = open(path).map_err(io)?;
    let len = file.metadata().map_err(io)?.len();
    let mut prefix = [0; 8];
    if len < 8 {
        return Err(damaged(format!("{len} bytes hold no header")));
    }
    file.read_exact(&mut prefix).map_err(io)?;
    let n = u64::from_le_bytes(prefix);
    let data_len = match (len - 8).checked_sub(n) {
        Some(data_len) if n <= LONGEST => data_len,
        _ => return Err(damaged(format!("a header of {n} bytes in a file of {len}"))),
    };
    let mut json = vec![0; n as usize];
    file.read_exact(&mut json).map_err(io)?;
    parse(&json, data_len).map_err(damaged)
}

/// Opens a regular file; opening anything else may wait for ever.
fn open(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(path)
}

/// The tensors of all files of a folder: those that `model.safetensors.index.json` names, or else every `.safetensors`.
/// With them the number of files.
///
/// # Errors
/// There is none, one is missing, or see [`read`].
pub fn read_folder(folder: &Path) -> Result<(usize, Vec<Tensor>), SafetensorsError> {
    let files = files(folder)?;
    let mut tensors = Vec::new();
    for name in &files {
        tensors.extend(read(&folder.join(name))?);
    }
    Ok((files.len(), tensors))
}

#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

fn files(folder: &Path) -> Result<BTreeSet<String>, SafetensorsError> {
    let index = folder.join("model.safetensors.index.json");
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| SafetensorsError::Io { path, source }
    };
    let damaged = |what| SafetensorsError::Damaged {
        path: index.clone(),
        what,
    };
    let names: BTreeSet<String> = match open(&index) {
        Ok(file) => {
            let mut text = String::new();
            file.take(LONGEST)
                .read_to_string(&mut text)
                .map_err(fail(&index))?;
            let map: Index = serde_json::from_str(&text)
                .map_err(|e| damaged(format!("not the index of a model: {e}")))?;
            map.weight_map.into_values().collect()
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let mut names = BTreeSet::new();
            for entry in std::fs::read_dir(folder).map_err(fail(folder))? {
                let name = entry.map_err(fail(folder))?.file_name();
                let name = name.to_string_lossy();
                if name.ends_with(".safetensors") {
                    names.insert(name.into_owned());
                }
            }
            names
        }
        Err(e) => return Err(fail(&index)(e)),
    };
    // A name that leads out of the folder is nobody's honest index.
    if let Some(name) = names
        .iter()
        .find(|n| Path::new(n).components().count() != 1 || n.contains(".."))
    {
        return Err(damaged(format!(
            "it names {name:?}, which is no file of this folder"
        )));
    }
    match names.is_empty() {
        true => Err(SafetensorsError::None(folder.to_owned())),
        false => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_read_in_any_order() {
        let json = br#"{"__metadata__":{"format":"pt"},
            "b":{"dtype":"BF16","shape":[2,32],"data_offsets":[8,136]},
            "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
            "empty":{"dtype":"F16","shape":[0,7],"data_offsets":[136,136]}}"#;
        let all = parse(json, 136).unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].name.as_str(), all[0].n_bytes), ("b", 128));
        assert_eq!(all[0].bytes_as(8.5, 32), 68);
        let packed = |dtype: &str, shape: &[u64]| {
            let (dtype, shape) = (dtype.to_owned(), shape.to_vec());
            let tensor = Tensor {
                dtype,
                shape,
                ..all[0].clone()
            };
            tensor.is_packed()
        };
        assert!(packed("I32", &[2, 32]) && packed("U8", &[2, 32]));
        assert!(!packed("I32", &[32]) && !packed("I64", &[1, 512]) && !packed("BF16", &[2, 32]));
        assert_eq!(all[1].bytes_as(8.5, 32), 8);
        assert_eq!(all[0].bytes_as(4.85, 256), 256);
    }

    #[test]
    fn lies_are_told() {
        let t = |dtype: &str, shape: &str, at: &str| {
            format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{at}}}"#)
        };
        let one = |entry: String| format!(r#"{{"a":{entry}}}"#);
        for (json, len, part) in [
            (one(t("F32", "[2]", "[0,8]")), 9, "has 9"),
            (one(t("F32", "[2]", "[1,9]")), 9, "byte 1"),
            (one(t("F32", "[2]", "[8,0]")), 8, "cannot lie"),
            (one(t("F32", "[3]", "[0,8]")), 8, "cannot lie"),
            (one(t("F4", "[3]", "[0,1]")), 1, "cannot lie"),
            (one(t("Q4_K", "[2]", "[0,8]")), 8, "Q4_K"),
            (
                one(t("F64", "[4294967296,4294967296]", "[0,0]")),
                0,
                "cannot lie",
            ),
            (one(t("F32", "[-1]", "[0,8]")), 8, "not what it should be"),
            (
                format!(
                    r#"{{"a":{},"b":{}}}"#,
                    t("U8", "[4]", "[0,4]"),
                    t("U8", "[4]", "[2,6]")
                ),
                6,
                "byte 2",
            ),
            (
                format!(
                    r#"{{"a":{},"a":{}}}"#,
                    t("U8", "[4]", "[0,4]"),
                    t("U8", "[4]", "[4,8]")
                ),
                8,
                "twice",
            ),
            ("[]".into(), 0, "not what it should be"),
            ("{\"a\":".into(), 0, "not what it should be"),
        ] {
            let text = parse(json.as_bytes(), len).unwrap_err();
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(json in ".{0,200}", len in proptest::num::u64::ANY) {
            let _ = parse(json.as_bytes(), len);
        }

        #[test]
        fn what_is_parsed_fills_the_file(shapes in proptest::collection::vec(0u64..9, 1..9)) {
            let mut at = 0;
            let mut parts = Vec::new();
            for (i, n) in shapes.iter().enumerate() {
                parts.push(format!(
                    r#""t{i}":{{"dtype":"I16","shape":[{n}],"data_offsets":[{at},{}]}}"#,
                    at + 2 * n
                ));
                at += 2 * n;
            }
            let json = format!("{{{}}}", parts.join(","));
            let all = parse(json.as_bytes(), at).unwrap();
            proptest::prop_assert_eq!(all.iter().map(|t| t.n_bytes).sum::<u64>(), at);
        }
    }
}
