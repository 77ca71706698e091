//! The header: magic, version, metadata, tensor infos.

use std::collections::HashMap;

use crate::cursor::Cursor;
use crate::metadata::read_value;
use crate::{Error, Metadata, TensorType};

/// Bytes a metadata entry takes at least: key length, value type, a value of one byte.
const MIN_ENTRY: u64 = 8 + 4 + 1;
/// Bytes a tensor info takes at least: name length, dimension count, one dimension, type, offset.
const MIN_TENSOR_INFO: u64 = 8 + 4 + 8 + 4 + 8;
/// Longest key the specification allows.
const MAX_KEY: usize = 65_535;
/// Longest tensor name ggml holds, without the terminator.
const MAX_NAME: usize = 63;
/// What general.alignment is when it is not there.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Largest alignment that is believed.
const MAX_ALIGNMENT: u64 = 65_536;

/// What the header of a file says; of a split model, what the headers of all files say.
#[derive(Clone, Debug)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// Keys and values.
    pub metadata: Metadata,
    /// Tensors, in the order of the file.
    pub tensors: Vec<TensorInfo>,
    /// Alignment of tensor data.
    pub alignment: u64,
    /// Bytes of the header: where the tensor infos end.
    pub header_len: u64,
    /// Where tensor data starts.
    pub data_offset: u64,
    /// Bytes of the file.
    pub file_len: u64,
    pub(crate) index: HashMap<String, usize>,
}

/// Where a tensor lies and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name.
    pub name: String,
    /// Elements in each dimension, the contiguous one first (ggml's `ne`).
    pub dims: Vec<u64>,
    /// Element type.
    pub ty: TensorType,
    /// Where its data starts in its file.
    pub offset: u64,
    /// Bytes of its data.
    pub n_bytes: u64,
    /// Which file of a split model it is in; 0 if there is one.
    pub file: u16,
}

impl TensorInfo {
    /// Elements in all; the product was checked at parse.
    pub fn n_elements(&self) -> u64 {
        self.dims.iter().product()
    }
}

impl Header {
    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }
}

/// Parses the header of the file whose bytes these are. Only the header is read.
///
/// # Errors
/// Anything that is not a sound GGUF v2 or v3; see [`Error`].
pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
    let mut c = Cursor::new(bytes, 0);
    let version = read_magic(&mut c, bytes)?;
    let n_tensors = c.count(MIN_TENSOR_INFO, &|| "the number of tensors".into())?;
    let n_entries = c.count(MIN_ENTRY, &|| "the number of metadata entries".into())?;
    let mut metadata = Metadata::default();
    for i in 0..n_entries {
        let key = read_key(&mut c, i)?;
        let value = read_value(&mut c, &key)?;
        metadata
            .insert(key.clone(), value)
            .ok_or(Error::DuplicateKey(key))?;
    }
    let alignment = alignment(&metadata)?;
    let mut tensors = Vec::new();
    let mut index = HashMap::new();
    for i in 0..n_tensors {
        let info = read_tensor_info(&mut c, i, alignment)?;
        if index.insert(info.name.clone(), tensors.len()).is_some() {
            return Err(Error::DuplicateTensor(info.name));
        }
        tensors.push(info);
    }
    let header_len = c.at();
    let data_offset = header_len.next_multiple_of(alignment);
    let file_len = bytes.len() as u64;
    place(&mut tensors, data_offset, file_len)?;
    crate::vocab::check_vocab(&metadata)?;
    Ok(Header {
        version,
        metadata,
        tensors,
        alignment,
        header_len,
        data_offset,
        file_len,
        index,
    })
}

fn read_magic(c: &mut Cursor<'_>, bytes: &[u8]) -> Result<u32, Error> {
    if bytes.is_empty() {
        return Err(Error::Empty);
    }
    if !bytes.starts_with(b"GGUF") {
        let start = &bytes[..bytes.len().min(4)];
        // A safetensors file starts with the length of its JSON header, then a brace.
        let hint = match start {
            b"PK\x03\x04" => "; it is a zip archive, perhaps a wheel or a PyTorch checkpoint",
            b"<!DO" | b"<htm" | b"<HTM" => "; it is a web page, so the download went wrong",
            b"vers" => "; it is a Git LFS pointer: fetch the file itself",
            b"ggml" | b"lmgg" | b"tjgg" | b"fmgg" | b"algg" => {
                "; it is of a format before GGUF: convert the model again"
            }
            b"FUGG" => "; it is a big-endian GGUF: convert it to little-endian",
            _ if bytes.get(8) == Some(&b'{') => {
                "; it looks like safetensors: convert it to GGUF first"
            }
            _ => "",
        };
        return Err(Error::NotGguf {
            found: format!("\"{}\"", start.escape_ascii()),
            hint,
        });
    }
    c.take(4, &|| "the magic".into())?;
    let version = c.u32(&|| "the version".into())?;
    match version {
        2 | 3 => Ok(version),
        v if v & 0xffff == 0 && v != 0 => Err(Error::BigEndian(v)),
        v => Err(Error::Version(v)),
    }
}

fn read_key(c: &mut Cursor<'_>, i: u64) -> Result<String, Error> {
    let what = || format!("the key of metadata entry {i}");
    let at = c.at();
    let bytes = c.string(&what)?;
    if bytes.is_empty() {
        return Err(Error::BadKey { at, found: "empty" });
    }
    if bytes.len() > MAX_KEY {
        return Err(Error::BadKey {
            at,
            found: "longer than 65535 bytes",
        });
    }
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| Error::NotUtf8 { at, what: what() })
}

fn alignment(metadata: &Metadata) -> Result<u64, Error> {
    let alignment = metadata
        .u64("general.alignment")?
        .unwrap_or(DEFAULT_ALIGNMENT);
    // The specification asks for a multiple of 8; it is also what lets f32 vectors be used where they lie.
    if !alignment.is_power_of_two() || !(8..=MAX_ALIGNMENT).contains(&alignment) {
        return Err(Error::Alignment(alignment));
    }
    Ok(alignment)
}

fn read_tensor_info(c: &mut Cursor<'_>, i: u64, alignment: u64) -> Result<TensorInfo, Error> {
    let what = || format!("the info of tensor {i}");
    let at = c.at();
    let name = c.string(&what)?;
    if name.is_empty() || name.len() > MAX_NAME {
        let found = if name.is_empty() {
            "empty".to_owned()
        } else {
            format!("{} bytes long; at most {MAX_NAME} are allowed", name.len())
        };
        return Err(Error::BadTensorName { at, found });
    }
    let name = std::str::from_utf8(name)
        .map_err(|_| Error::NotUtf8 { at, what: what() })?
        .to_owned();
    let n = c.u32(&what)?;
    if !(1..=4).contains(&n) {
        return Err(Error::DimensionCount { name, n });
    }
    let mut dims = Vec::with_capacity(n as usize);
    for _ in 0..n {
        dims.push(c.u64(&what)?);
    }
    let id = c.u32(&what)?;
    let offset = c.u64(&what)?;
    let ty = TensorType::from_id(id).ok_or_else(|| Error::UnknownType {
        name: name.clone(),
        id,
    })?;
    // i64 is ggml's own limit and leaves room for the products below.
    let elements = dims
        .iter()
        .try_fold(1u64, |n, &d| if d == 0 { None } else { n.checked_mul(d) });
    let Some(elements) = elements.filter(|&n| n <= i64::MAX as u64) else {
        return Err(Error::Dimensions { name, dims });
    };
    let block = ty.block_len() as u64;
    if dims[0] % block != 0 {
        return Err(Error::Block {
            name,
            cols: dims[0],
            ty,
            block,
        });
    }
    let Some(n_bytes) = ty.row_bytes(elements) else {
        return Err(Error::Dimensions { name, dims });
    };
    if offset % alignment != 0 {
        return Err(Error::TensorAlignment {
            name,
            offset,
            alignment,
        });
    }
    Ok(TensorInfo {
        name,
        dims,
        ty,
        offset,
        n_bytes,
        file: 0,
    })
}

/// Turns offsets within the data into offsets within the file; refuses what ends past it or overlaps.
fn place(tensors: &mut [TensorInfo], data_offset: u64, file_len: u64) -> Result<(), Error> {
    for t in tensors.iter_mut() {
        let end = data_offset
            .checked_add(t.offset)
            .and_then(|o| o.checked_add(t.n_bytes));
        match end {
            Some(end) if end <= file_len => t.offset += data_offset,
            _ => {
                let end = end.map_or_else(|| "past 2^64".to_owned(), |e| e.to_string());
                return Err(Error::TruncatedData {
                    name: t.name.clone(),
                    end,
                    file_len,
                });
            }
        }
    }
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_unstable_by_key(|&i| tensors[i].offset);
    for pair in order.windows(2) {
        let (a, b) = (&tensors[pair[0]], &tensors[pair[1]]);
        if a.offset + a.n_bytes > b.offset {
            return Err(Error::Overlap {
                first: a.name.clone(),
                second: b.name.clone(),
            });
        }
    }
    Ok(())
}
