//! `ounce tokenize`: text to ids.

use std::io::BufRead;
use std::process::ExitCode;

use ounce_engine::model::file::ModelFile;
use ounce_engine::tokenizer::Tokenizer;
use serde_json::json;

use crate::model::resolve_file;
use crate::{Outcome, out};

/// Prints the token ids of a text, without a begin-of-sequence token
///
/// Example: ounce tokenize model.gguf "Hello world"
#[derive(clap::Args)]
pub struct Args {
    /// Path or name of the model.
    model: String,
    /// The text; standard input when left out.
    text: Option<String>,
    /// Parse special tokens such as <|im_start|> in the text.
    #[arg(long)]
    special: bool,
    /// Each line of standard input is a JSON string, each line of output a JSON array of ids.
    #[arg(long, conflicts_with = "text")]
    jsonl: bool,
    /// One JSON object with ids and pieces.
    #[arg(long, conflicts_with = "jsonl")]
    json: bool,
}

pub fn run(args: Args) -> Outcome {
    let file = ModelFile::open(&resolve_file(&args.model)?)?;
    let tokenizer = Tokenizer::from_gguf(file.header(), file.bytes())
        .map_err(|e| format!("{}: {e}", file.path().display()))?;
    if args.jsonl {
        for (i, line) in std::io::stdin().lock().lines().enumerate() {
            let line = line.map_err(|e| format!("standard input, line {}: {e}", i + 1))?;
            let text: String = serde_json::from_str(&line)
                .map_err(|e| format!("standard input, line {}: not a JSON string: {e}", i + 1))?;
            out::line(json!(tokenizer.encode(&text, args.special)))?;
        }
    } else {
        let text = match args.text {
            Some(text) => text,
            None => std::io::read_to_string(std::io::stdin())
                .map_err(|e| format!("standard input: {e}"))?,
        };
        let ids = tokenizer.encode(&text, args.special);
        let piece =
            |id: u32| String::from_utf8_lossy(&tokenizer.token_bytes(id, true)).into_owned();
        if args.json {
            let pieces: Vec<String> = ids.iter().map(|&id| piece(id)).collect();
            out::json(&json!({ "ids": ids, "pieces": pieces }))?;
        } else {
            for id in ids {
                out::line(format_args!("{id:>8}  {:?}", piece(id)))?;
            }
        }
    }
    out::flush()?;
    Ok(ExitCode::SUCCESS)
}
