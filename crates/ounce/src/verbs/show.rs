//! `ounce show`: what a model file holds, read from its header alone.

use std::collections::BTreeMap;
use std::process::ExitCode;

use ounce_engine::model::file::ModelFile;
use ounce_gguf::{Array, TensorInfo, TensorType, Value, ValueKind};
use serde_json::{Map, Value as Json, json};

use crate::model::resolve_file;
use crate::{Outcome, out};

/// Shows a model's parameters, metadata, tensors and template; reads the header only
#[derive(clap::Args)]
pub struct Args {
    /// Path or name of the model.
    model: String,
    /// The list of tensors too.
    #[arg(long)]
    tensors: bool,
    /// The chat template in full.
    #[arg(long)]
    template: bool,
    /// Everything, as JSON; arrays longer than 16 are given by kind and length.
    #[arg(long)]
    json: bool,
}

/// Longer arrays are described, not printed.
const SHOWN_ELEMENTS: u64 = 16;

pub fn run(args: Args) -> Outcome {
    let file = ModelFile::open(&resolve_file(&args.model)?)?;
    if args.json {
        out::json(&document(&file)?)?;
    } else {
        report(&file, &args)?;
    }
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Elements and bytes of each tensor type.
fn by_type(file: &ModelFile) -> BTreeMap<TensorType, (usize, u64, u64)> {
    let mut types = BTreeMap::new();
    for t in &file.header().tensors {
        let (n, elements, bytes) = types.entry(t.ty).or_insert((0, 0, 0));
        *n += 1;
        *elements += t.n_elements();
        *bytes += t.n_bytes;
    }
    types
}

fn parameters(file: &ModelFile) -> u64 {
    file.header().tensors.iter().map(|t| t.n_elements()).sum()
}

fn document(file: &ModelFile) -> Result<Json, ounce_gguf::Error> {
    let header = file.header();
    let mut metadata = Map::new();
    for (key, value) in header.metadata.iter() {
        metadata.insert(key.to_owned(), json_value(value, file.bytes())?);
    }
    let types: Vec<Json> = by_type(file)
        .iter()
        .map(|(ty, (tensors, elements, bytes))| json!({ "type": ty.name(), "tensors": tensors, "elements": elements, "bytes": bytes }))
        .collect();
    let tensors: Vec<Json> = header.tensors.iter().map(tensor_json).collect();
    let files: Vec<String> = file.paths().map(|p| p.display().to_string()).collect();
    Ok(json!({
        "files": files,
        "bytes": file.n_bytes(),
        "version": header.version,
        "alignment": header.alignment,
        "header_bytes": header.header_len,
        "parameters": parameters(file),
        "types": types,
        "metadata": metadata,
        "tensors": tensors,
    }))
}

/// A tensor as JSON; `offset` is that in its file, `file` the number of the part.
pub fn tensor_json(t: &TensorInfo) -> Json {
    json!({ "name": t.name, "type": t.ty.name(), "shape": t.dims, "offset": t.offset, "bytes": t.n_bytes, "file": t.file })
}

/// A tensor on a line.
pub fn tensor_line(t: &TensorInfo) -> Result<(), out::StdoutError> {
    let dims: Vec<String> = t.dims.iter().map(u64::to_string).collect();
    out::line(format_args!(
        "  {:<36} {:<8} {:<20} {:>9}  at {}{}",
        t.name,
        t.ty.name(),
        dims.join(" x "),
        out::bytes(t.n_bytes),
        t.offset,
        match t.file {
            0 => String::new(),
            n => format!(" of part {}", n + 1),
        }
    ))
}

fn json_value(value: &Value, bytes: &[u8]) -> Result<Json, ounce_gguf::Error> {
    Ok(match value {
        Value::U8(x) => json!(x),
        Value::I8(x) => json!(x),
        Value::U16(x) => json!(x),
        Value::I16(x) => json!(x),
        Value::U32(x) => json!(x),
        Value::I32(x) => json!(x),
        Value::U64(x) => json!(x),
        Value::I64(x) => json!(x),
        // As the file means it: 1e-6, not the 9.999999974752427e-7 that widening to f64 prints.
        Value::F32(x) => x
            .to_string()
            .parse::<f64>()
            .map_or(Json::Null, |x| json!(x)),
        Value::F64(x) => json!(x),
        Value::Bool(x) => json!(x),
        Value::String(x) => json!(x),
        Value::Array(a) if a.len > SHOWN_ELEMENTS => json!({ "kind": a.kind.name(), "len": a.len }),
        Value::Array(a) => elements(a, bytes)?,
    })
}

fn elements(a: &Array, bytes: &[u8]) -> Result<Json, ounce_gguf::Error> {
    Ok(match a.kind {
        ValueKind::String => a
            .strings(bytes)?
            .map(|s| json!(String::from_utf8_lossy(s)))
            .collect(),
        ValueKind::Bool => a.bools(bytes)?.map(|x| json!(x)).collect(),
        ValueKind::F32 | ValueKind::F64 => a.f64s(bytes)?.map(|x| json!(x)).collect(),
        _ => a.i64s(bytes)?.map(|x| json!(x)).collect(),
    })
}

fn report(file: &ModelFile, args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let header = file.header();
    let meta = &header.metadata;
    let arch = meta.str("general.architecture")?.unwrap_or("none");
    out::line("Model")?;
    let fact = |name: &str, value: String| out::line(format_args!("  {name:<20} {value}"));
    for path in file.paths() {
        fact("file", path.display().to_string())?;
    }
    fact("size", out::bytes(file.n_bytes()))?;
    fact("architecture", arch.to_owned())?;
    fact("parameters", count(parameters(file)))?;
    for (name, key) in [
        ("context length", "context_length"),
        ("embedding length", "embedding_length"),
        ("layers", "block_count"),
    ] {
        if let Some(n) = meta.u64(&format!("{arch}.{key}"))? {
            fact(name, n.to_string())?;
        }
    }
    out::line("\nTypes")?;
    for (ty, (tensors, elements, bytes)) in by_type(file) {
        out::line(format_args!(
            "  {:<8} {tensors:>5} tensors  {:>8} elements  {:>8}",
            ty.name(),
            count(elements),
            out::bytes(bytes)
        ))?;
    }
    out::line("\nMetadata")?;
    for (key, value) in meta.iter() {
        if key != "tokenizer.chat_template" {
            out::line(format_args!(
                "  {key:<44} {}",
                short(&json_value(value, file.bytes())?)
            ))?;
        }
    }
    if args.tensors {
        out::line("\nTensors")?;
        for t in &header.tensors {
            tensor_line(t)?;
        }
    }
    match meta.str("tokenizer.chat_template")? {
        Some(template) if args.template => out::line(format_args!("\nTemplate\n{template}"))?,
        Some(template) => out::line(format_args!(
            "\nTemplate\n  {} characters; --template prints it",
            template.chars().count()
        ))?,
        None => out::line("\nTemplate\n  none: prompts are completed as they are")?,
    }
    Ok(())
}

/// A value on one line of a terminal.
fn short(value: &Json) -> String {
    let text = match value {
        Json::String(s) => s.escape_debug().to_string(),
        Json::Object(o) => format!("{} x {}", o["len"], o["kind"].as_str().unwrap_or_default()),
        other => other.to_string(),
    };
    match text.char_indices().nth(100) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn count(n: u64) -> String {
    match n {
        1_000_000_000.. => format!("{:.2} B", n as f64 / 1e9),
        1_000_000.. => format!("{:.1} M", n as f64 / 1e6),
        1_000.. => format!("{:.1} k", n as f64 / 1e3),
        _ => n.to_string(),
    }
}
