//! `ounce run`: text from a model, once or as a chat.

use std::io::{IsTerminal, Read};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ounce_engine::memory::probe;
use ounce_engine::model::ModelSpec;
use ounce_engine::{
    GenerateParams, Generation, SampleParams, Sampler, Session, StopReason, generate,
};
use serde_json::{Map, Value, json};

use crate::admit::{LoadArgs, accept, load};
use crate::model::{ContextArgs, resolve_file};
use crate::prompt::{Prompter, Turn};
use crate::verbs::chat;
use crate::{Outcome, exit, out};

/// The model when none is named.
const DEFAULT_MODEL: &str = "smollm2";

/// Generates text: one answer, or a chat when there is neither a prompt nor piped input
///
/// The generated text alone goes to standard output. `ounce run "some words"` asks the default model (smollm2);
/// a first word without spaces is a model.
#[derive(clap::Args)]
#[command(override_usage = "ounce run [OPTIONS] [MODEL] [PROMPT]...")]
pub struct Args {
    /// Path or name of the model, then the prompt.
    #[arg(value_name = "MODEL, PROMPT")]
    words: Vec<String>,
    /// The model; all words are then the prompt.
    #[arg(short = 'm', long)]
    model: Option<String>,
    /// The prompt; all words are then the model.
    #[arg(short = 'p', long)]
    prompt: Option<String>,
    /// System message; short form -sys.
    #[arg(long)]
    system: Option<String>,
    /// Jinja chat template in place of the model's own: a file, or the template itself.
    #[arg(long, value_name = "FILE|JINJA")]
    template: Option<String>,
    /// More variables for the template, as a JSON object, for example {"enable_thinking":false}.
    #[arg(long, value_name = "JSON", value_parser = parse_object)]
    chat_template_kwargs: Option<Map<String, Value>>,
    /// The prompt goes to the model as it is, without template or system message.
    #[arg(long, conflicts_with_all = ["system", "template", "chat_template_kwargs"])]
    raw: bool,
    /// Tokens generated at most; -1 goes on to the end of the answer or of the context.
    #[arg(short = 'n', long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    predict: i64,
    /// Stops at this text; may be given several times.
    #[arg(short = 'r', long, alias = "reverse-prompt", value_name = "TEXT")]
    stop: Vec<String>,
    /// Goes on past the end-of-generation token.
    #[arg(long)]
    ignore_eos: bool,
    /// When the context is full, drops the older half and goes on.
    #[arg(long)]
    context_shift: bool,
    /// Tokens at the start that --context-shift keeps.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    keep: usize,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// One JSON object with the text and the figures, in place of the text.
    #[arg(long)]
    json: bool,
    /// The plan before, tokens/s and time to first token after, on standard error.
    #[arg(short = 'v', long)]
    verbose: bool,
}

/// Flags of the sampler; what is not given follows the model's own metadata, then llama.cpp's defaults.
#[derive(clap::Args)]
struct SamplingArgs {
    /// 0 is greedy [default: the model's, or 0.8].
    #[arg(
        long,
        alias = "temperature",
        value_name = "T",
        allow_negative_numbers = true
    )]
    temp: Option<f32>,
    /// 0 keeps all [default: the model's, or 40].
    #[arg(long, value_name = "K", allow_negative_numbers = true, value_parser = clap::value_parser!(u32))]
    top_k: Option<u32>,
    /// 1 keeps all [default: the model's, or 0.95].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// 0 keeps all [default: the model's, or 0.05].
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// 1 keeps all [default: 1].
    #[arg(
        long,
        alias = "typical",
        value_name = "P",
        allow_negative_numbers = true
    )]
    typical_p: Option<f32>,
    /// 1 is off [default: the model's, or 1].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,
    /// Tokens that penalties look back on [default: the model's, or 64].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    repeat_last_n: Option<u32>,
    /// [default: 0].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// [default: 0].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Adds to a token's logit, for example 15043+1 or 15043-1; may be given several times.
    #[arg(short = 'l', long, value_name = "ID±X", value_parser = parse_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Same seed, same text; -1 draws one.
    #[arg(short = 's', long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    seed: i64,
}

impl SamplingArgs {
    fn params(&self, mut p: SampleParams) -> SampleParams {
        let floats = [
            (self.temp, &mut p.temperature),
            (self.top_p, &mut p.top_p),
            (self.min_p, &mut p.min_p),
            (self.typical_p, &mut p.typical_p),
            (self.repeat_penalty, &mut p.repeat_penalty),
            (self.frequency_penalty, &mut p.frequency_penalty),
            (self.presence_penalty, &mut p.presence_penalty),
        ];
        for (given, field) in floats {
            *field = given.unwrap_or(*field);
        }
        p.top_k = self.top_k.map_or(p.top_k, |k| k as usize);
        p.repeat_last_n = self.repeat_last_n.map_or(p.repeat_last_n, |n| n as usize);
        p.logit_bias = self.logit_bias.clone();
        p.seed = u64::try_from(self.seed).unwrap_or_else(|_| random_seed());
        p
    }
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hash maps from the system's randomness.
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
        >> 32
}

fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|e| format!("not a JSON object: {e}"))
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let at = text
        .find(['+', '-'])
        .ok_or("write a token id, + or -, and a number: 15043+1")?;
    let id = text[..at]
        .parse()
        .map_err(|_| format!("{:?} is not a token id", &text[..at]))?;
    let bias: f32 = text[at..]
        .parse()
        .map_err(|_| format!("{:?} is not a number", &text[at..]))?;
    if bias.is_nan() {
        Err("the bias is not a number".into())
    } else {
        Ok((id, bias))
    }
}

/// What the words on the command line and standard input mean.
struct Request {
    model: String,
    prompt: Option<String>,
}

fn request(args: &Args) -> Result<Request, String> {
    let (model, rest) = match (&args.model, &args.prompt, args.words.as_slice()) {
        (Some(model), _, words) => (model.clone(), words),
        (None, Some(_), [model]) => (model.clone(), &[][..]),
        (None, Some(_), []) | (None, None, []) => (DEFAULT_MODEL.to_owned(), &[][..]),
        (None, Some(_), [_, more, ..]) => {
            return Err(format!(
                "both -p and a prompt ({more:?}) are given; give one"
            ));
        }
        // A text with spaces that is not a file cannot be a model.
        (None, None, [text])
            if text.contains(char::is_whitespace) && !std::path::Path::new(text).exists() =>
        {
            (DEFAULT_MODEL.to_owned(), std::slice::from_ref(text))
        }
        (None, None, [model, rest @ ..]) => (model.clone(), rest),
    };
    if args.prompt.is_some() && !rest.is_empty() {
        return Err(format!(
            "both -p and a prompt ({:?}) are given; give one",
            rest[0]
        ));
    }
    let given = args
        .prompt
        .clone()
        .or_else(|| (!rest.is_empty()).then(|| rest.join(" ")));
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(Request {
            model,
            prompt: given,
        });
    }
    // Piped text comes first, as with ollama: `cat report.txt | ounce run MODEL "Summarise this."`
    let mut piped = String::new();
    stdin
        .lock()
        .read_to_string(&mut piped)
        .map_err(|e| format!("standard input: {e}"))?;
    let prompt = match given {
        Some(given) if piped.trim().is_empty() => given,
        Some(given) => format!("{piped}\n{given}"),
        None if piped.trim().is_empty() => {
            return Err("no prompt: give one as an argument, with -p, or on standard input".into());
        }
        None => piped,
    };
    Ok(Request {
        model,
        prompt: Some(prompt),
    })
}

pub fn run(args: Args) -> Outcome {
    let request = request(&args)?;
    if args.json && request.prompt.is_none() {
        return Err(
            "--json needs a prompt: give one as an argument, with -p, or on standard input".into(),
        );
    }
    let spec = ModelSpec::open(&resolve_file(&request.model)?)?;
    let accepted = accept(
        &spec,
        args.context.params()?,
        args.context.open(),
        &args.load,
    )?;
    let model = load(spec, &accepted, &args.load)?;
    if let Some(note) = model.tokenizer.note() {
        out::note(note);
    }
    let sampling = args
        .sampling
        .params(SampleParams::for_model(&model.spec.file.header().metadata)?);
    let sampler = Sampler::new(sampling, model.spec.hparams.n_vocab)?;
    let session = Session::from_plan(Arc::clone(&model), accepted.plan)?;
    // After the session: the template's stack is a share of what the plan leaves.
    let prompter = if args.raw {
        Prompter::raw(Arc::clone(&model))
    } else {
        Prompter::new(
            Arc::clone(&model),
            args.template.as_deref(),
            args.chat_template_kwargs.clone().unwrap_or_default(),
        )?
    };
    if args.verbose {
        print_plan(&session);
    }
    let params = GenerateParams {
        n_predict: usize::try_from(args.predict).ok(),
        stop: args.stop.clone(),
        ignore_eos: args.ignore_eos,
        context_shift: args.context_shift,
        n_keep: args.keep,
        ignore_pressure: args.load.force,
        on_note: Some(out::note_amid_text),
    };
    let cancel = interruptible()?;
    match request.prompt {
        Some(prompt) => once(
            session, sampler, &prompter, &prompt, &params, &cancel, &args,
        ),
        None => chat::run(chat::Chat {
            session,
            sampler,
            prompter,
            params,
            cancel,
            system: args.system,
            verbose: args.verbose,
        }),
    }
}

fn once(
    mut session: Session,
    mut sampler: Sampler,
    prompter: &Prompter,
    prompt: &str,
    params: &GenerateParams,
    cancel: &AtomicBool,
    args: &Args,
) -> Outcome {
    if let Some(note) = prompter.note() {
        out::note(note);
    }
    let mut turns: Vec<Turn> = args.system.iter().map(|s| Turn::system(s)).collect();
    turns.push(Turn::user(prompt));
    let tokens = prompter.tokens(&turns)?;
    let mut text = String::new();
    let mut failed = None;
    let generation = generate(
        &mut session,
        &mut sampler,
        &tokens,
        params,
        cancel,
        &mut |piece| {
            if args.json {
                text.push_str(piece);
                return ControlFlow::Continue(());
            }
            match out::text_now(piece) {
                Ok(()) => ControlFlow::Continue(()),
                Err(e) => {
                    failed = Some(e);
                    ControlFlow::Break(())
                }
            }
        },
    )?;
    if let Some(e) = failed {
        return Err(e.into());
    }
    if args.json {
        out::json(&document(&session, &generation, &text))?;
    } else {
        out::line("")?;
    }
    out::flush()?;
    report(&generation, args.verbose);
    let interrupted = generation.stop == StopReason::Cancelled;
    Ok(if interrupted {
        ExitCode::from(exit::INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    })
}

/// The first Ctrl-C raises the flag; a second one, while it is still raised, ends the program.
pub fn interruptible() -> Result<Arc<AtomicBool>, std::io::Error> {
    let cancel = Arc::new(AtomicBool::new(false));
    let signal = signal_hook::consts::SIGINT;
    signal_hook::flag::register_conditional_shutdown(
        signal,
        i32::from(exit::INTERRUPTED),
        Arc::clone(&cancel),
    )?;
    signal_hook::flag::register(signal, Arc::clone(&cancel))?;
    Ok(cancel)
}

/// What the user should know about how an answer ended, and the figures if wanted.
pub fn report(g: &Generation, verbose: bool) {
    if g.stop == StopReason::ContextFull {
        out::note("the context is full; a larger -c or --context-shift lets the answer go on");
    }
    if !verbose {
        return;
    }
    out::note(format_args!(
        "prompt    {:>6} tokens  {:>9.1} tokens/s  ({} of them cached)",
        g.n_prompt,
        g.prefill_rate(),
        g.n_cached
    ));
    out::note(format_args!(
        "decode    {:>6} tokens  {:>9.1} tokens/s",
        g.n_generated,
        g.decode_rate()
    ));
    out::note(format_args!(
        "first token after {:.3} s, ended by {}",
        g.first_token.as_secs_f64(),
        g.stop.name()
    ));
    if let Some(r) = probe::resident() {
        out::note(format_args!(
            "resident  {} anonymous, {} mapped, peak {}",
            out::bytes(r.anon),
            out::bytes(r.file),
            out::bytes(r.peak)
        ));
    }
}

fn print_plan(session: &Session) {
    let p = &session.plan().params;
    out::note(format_args!(
        "context {} tokens, chunks of {}, {} threads, cache {}/{}",
        p.n_ctx, p.n_ubatch, p.n_threads, p.type_k, p.type_v
    ));
    for s in session.plan().sections() {
        out::note(format_args!(
            "  {:<22} {:>8}  {}",
            s.name,
            out::bytes(s.bytes),
            s.kind.name()
        ));
    }
}

fn document(session: &Session, g: &Generation, text: &str) -> Value {
    let resident = probe::resident();
    json!({
        "model": session.model().spec.file.path().display().to_string(),
        "text": text,
        "stop_reason": g.stop.name(),
        "n_ctx": session.n_ctx(),
        "prompt_tokens": g.n_prompt,
        "generated_tokens": g.n_generated,
        "prefill_tokens_per_second": g.prefill_rate(),
        "decode_tokens_per_second": g.decode_rate(),
        "time_to_first_token_seconds": g.first_token.as_secs_f64(),
        "resident_anonymous_bytes": resident.map(|r| r.anon),
        "resident_mapped_bytes": resident.map(|r| r.file),
        "peak_resident_bytes": resident.map(|r| r.peak),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_parse() {
        assert_eq!(parse_bias("15043+1").unwrap(), (15043, 1.0));
        assert_eq!(parse_bias("7-inf").unwrap(), (7, f32::NEG_INFINITY));
        for bad in ["7", "x+1", "7+x", "+1", "7+nan"] {
            assert!(parse_bias(bad).is_err(), "{bad}");
        }
    }
}
