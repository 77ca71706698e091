//! `ounce logits`: every position's logits, for comparing engines.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ounce_engine::model::ModelSpec;
use ounce_engine::{EngineError, Session};

use crate::admit::{LoadArgs, accept, load};
use crate::model::{ContextArgs, resolve_file};
use crate::{Outcome, out};

/// Writes the logits of every position as a float32 .npy of shape [n_tokens, n_vocab]
///
/// Example: ounce logits model.gguf --tokens ids.json --out logits.npy --chunk 7
#[derive(clap::Args)]
pub struct Args {
    /// Path or name of the model.
    model: String,
    /// JSON file with a list of token ids; - reads standard input.
    #[arg(long, value_name = "IDS.json")]
    tokens: PathBuf,
    /// Where to write.
    #[arg(long, value_name = "X.npy")]
    out: PathBuf,
    /// Tokens fed at once; the result must not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    load: LoadArgs,
}

/// Rows of logits computed at once: few, for a row may be a megabyte.
const OUTPUTS: usize = 8;

pub fn run(args: Args) -> Outcome {
    let tokens = read_tokens(&args.tokens)?;
    let spec = ModelSpec::open(&resolve_file(&args.model)?)?;
    let mut params = args.context.params()?;
    let mut open = args.context.open();
    params.n_outputs = OUTPUTS;
    if open.n_ctx {
        params.n_ctx = tokens.len();
        open.n_ctx = false;
    }
    let accepted = accept(&spec, params, open, &args.load)?;
    let model = load(spec, &accepted, &args.load)?;
    let n_vocab = model.spec.hparams.n_vocab;
    let chunk = args
        .chunk
        .map_or(accepted.plan.params.n_ubatch, |n| n as usize);
    let mut session = Session::from_plan(model, accepted.plan)?;
    write_npy(&args.out, [tokens.len(), n_vocab], |file| {
        session.eval_all(&tokens, chunk, |row| {
            row.iter()
                .try_for_each(|x| file.write_all(&x.to_le_bytes()))
                .map_err(|e| EngineError::open(&args.out, e))
        })
    })?;
    out::note(format_args!(
        "{}: {} tokens, {} logits each",
        args.out.display(),
        tokens.len(),
        n_vocab
    ));
    Ok(ExitCode::SUCCESS)
}

fn read_tokens(path: &Path) -> Result<Vec<u32>, Box<dyn std::error::Error>> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    }
    .map_err(|e| EngineError::open(path, e))?;
    let tokens: Vec<u32> = serde_json::from_str(&text)
        .map_err(|e| format!("{}: not a JSON list of token ids: {e}", path.display()))?;
    if tokens.is_empty() {
        return Err(format!("{}: the list of token ids is empty", path.display()).into());
    }
    Ok(tokens)
}

/// A numpy array of format version 1.0, written beside its final name and renamed when whole.
fn write_npy(
    path: &Path,
    shape: [usize; 2],
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let fail = |e| EngineError::open(path, e);
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let whole = (|| {
        let mut file = BufWriter::new(File::create(&partial).map_err(fail)?);
        let mut header = format!(
            "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}",
            shape[0], shape[1]
        );
        // Magic, version and length take 10 bytes; data starts on a multiple of 64.
        let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
        header.push_str(&" ".repeat(padded - header.len() - 1));
        header.push('\n');
        file.write_all(b"\x93NUMPY\x01\x00").map_err(fail)?;
        file.write_all(&(padded as u16).to_le_bytes())
            .map_err(fail)?;
        file.write_all(header.as_bytes()).map_err(fail)?;
        fill(&mut file)?;
        file.flush().map_err(fail)?;
        std::fs::rename(&partial, path).map_err(fail)
    })();
    if whole.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    whole
}
