//! `ounce template`: a chat template, rendered.

use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;

use ounce_engine::EngineError;
use ounce_engine::model::file::ModelFile;
use ounce_engine::template::ChatTemplate;
use serde_json::{Value, json};

use crate::model::resolve_file;
use crate::{Outcome, out};

/// Prints or renders the chat template of a model or of a .jinja file
///
/// Example: echo '{"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":true}' | ounce template model.gguf --jsonl
#[derive(clap::Args)]
pub struct Args {
    /// Path or name of a model, or path of a .jinja file.
    source: String,
    /// Each line of standard input is a JSON object of variables, each line of output {"text":…} or {"error":…}.
    #[arg(long)]
    jsonl: bool,
}

pub fn run(args: Args) -> Outcome {
    let source = source(&args.source)?;
    if !args.jsonl {
        out::text(&source)?;
        out::flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let template = ChatTemplate::new(&source).map_err(|e| format!("{}: {e}", args.source))?;
    for (i, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.map_err(|e| format!("standard input, line {}: {e}", i + 1))?;
        let vars: Value = serde_json::from_str(&line)
            .map_err(|e| format!("standard input, line {}: not JSON: {e}", i + 1))?;
        if !vars.is_object() {
            return Err(format!("standard input, line {}: not a JSON object", i + 1).into());
        }
        out::line(match template.render(&vars) {
            Ok(text) => json!({ "text": text }),
            Err(e) => json!({ "error": e.to_string() }),
        })?;
    }
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}

fn source(from: &str) -> Result<String, Box<dyn std::error::Error>> {
    let path = Path::new(from);
    if path
        .extension()
        .is_some_and(|e| e == "jinja" || e == "j2" || e == "txt")
    {
        return Ok(std::fs::read_to_string(path).map_err(|e| EngineError::open(path, e))?);
    }
    let file = ModelFile::open(&resolve_file(from)?)?;
    let template = file.header().metadata.str("tokenizer.chat_template")?;
    Ok(template
        .ok_or_else(|| format!("{}: the model has no chat template", file.path().display()))?
        .to_owned())
}
