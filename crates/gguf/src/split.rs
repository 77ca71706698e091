//! Models split over several files, `NAME-00001-of-0000N.gguf`, as `llama-gguf-split` writes them.

use crate::{Error, Header, Metadata};

/// More parts than any published model has, and few enough to open.
const MAX_PARTS: u64 = 256;

/// File names of all parts of the model that the file `name` belongs to, in order; just `name` for a model in one file.
///
/// # Errors
/// The metadata says that the model is split but the file is not named as a part.
pub fn part_names(name: &str, metadata: &Metadata) -> Result<Vec<String>, Error> {
    let count = metadata.u64("split.count")?.unwrap_or(1);
    if count <= 1 {
        return Ok(vec![name.to_owned()]);
    }
    if count > MAX_PARTS {
        return Err(Error::Split(format!(
            "split.count is {count}; at most {MAX_PARTS} are supported"
        )));
    }
    let no = metadata.u64("split.no")?.unwrap_or(0);
    let suffix = |no: u64| format!("-{no:05}-of-{count:05}.gguf");
    let Some(stem) = name.strip_suffix(&suffix(no.saturating_add(1))) else {
        return Err(Error::Split(format!(
            "this is part {} of {count}, so its name must end in {}; rename it back",
            no.saturating_add(1),
            suffix(no.saturating_add(1))
        )));
    };
    Ok((1..=count)
        .map(|no| format!("{stem}{}", suffix(no)))
        .collect())
}

/// One header for all parts: the first one's metadata, everyone's tensors with the part they are in.
///
/// # Errors
/// Parts missing, out of order, of other models, or with a tensor twice.
pub fn merge(parts: Vec<Header>) -> Result<Header, Error> {
    let count = parts.len() as u64;
    let mut merged: Option<Header> = None;
    for (i, part) in parts.into_iter().enumerate() {
        let says = |key: &str| part.metadata.u64(key);
        if says("split.count")?.unwrap_or(1) != count {
            return Err(Error::Split(format!(
                "part {} says that there are {:?} parts, not {count}",
                i + 1,
                says("split.count")?.unwrap_or(1)
            )));
        }
        if says("split.no")?.unwrap_or(0) != i as u64 {
            return Err(Error::Split(format!(
                "part {} says that it is part {}",
                i + 1,
                says("split.no")?.unwrap_or(0).saturating_add(1)
            )));
        }
        let Some(whole) = &mut merged else {
            merged = Some(part);
            continue;
        };
        for mut tensor in part.tensors {
            tensor.file = i as u16;
            if whole
                .index
                .insert(tensor.name.clone(), whole.tensors.len())
                .is_some()
            {
                return Err(Error::DuplicateTensor(tensor.name));
            }
            whole.tensors.push(tensor);
        }
    }
    let whole = merged.ok_or_else(|| Error::Split("no parts".into()))?;
    if let Some(n) = whole.metadata.u64("split.tensors.count")?
        && n != whole.tensors.len() as u64
    {
        return Err(Error::Split(format!(
            "the first part speaks of {n} tensors, the parts hold {}",
            whole.tensors.len()
        )));
    }
    Ok(whole)
}
