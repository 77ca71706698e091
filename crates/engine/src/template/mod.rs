//! Chat templates: a model's own Jinja text turns a conversation into a prompt.
//!
//! Templates come with models and are not trusted: a render has a budget of steps and memory, and a longest text.
//! They are written for Python's jinja2 as Hugging Face sets it up; what differs from minijinja is added here.

mod clock;
mod filters;
mod json;
mod python;
mod stack;

use std::io::{self, Write};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};

pub use clock::DateTime;
use stack::Limits;

/// Longest prompt in bytes, well above any context.
const MAX_OUTPUT: usize = 16 << 20;

/// Longest time that compiling or rendering may take; either takes milliseconds. The engine's budget does not cover
/// comparing values that hold each other many times over.
const TIME: Duration = Duration::from_secs(5);

const NAME: &str = "chat template";

/// Errors of this module; `Display` is one line for the user.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum TemplateError {
    #[error(
        "the chat template has {0} bytes; at most {1} are supported; try another one with --template, or --raw, or lift a memory limit (ulimit -d, ulimit -v)"
    )]
    SourceTooLong(usize, usize),
    #[error(
        "the chat template cannot be read, line {line}: {what}; try another one with --template, or --raw"
    )]
    Syntax { line: usize, what: String },
    #[error("the chat template refuses this conversation: {0}")]
    Raised(String),
    #[error(
        "the chat template failed in line {line}: {what}; try another one with --template, or --raw"
    )]
    Failed { line: usize, what: String },
    #[error(
        "the chat template needs more time or memory than a prompt can; try another one with --template, or --raw, or lift a memory limit (ulimit -d, ulimit -v)"
    )]
    Budget,
    #[error(
        "cannot start a thread for the chat template: {0}; lift the limit on memory or threads (ulimit -d, -v, -u)"
    )]
    Thread(#[from] io::Error),
}

/// What `raise_exception` was called with, to be told from errors in the template.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

/// A compiled chat template.
pub struct ChatTemplate {
    env: Arc<Environment<'static>>,
    stack: usize,
}

impl ChatTemplate {
    /// Compiles a template; `strftime_now` tells the time of the system, in UTC.
    ///
    /// # Errors
    /// Not a Jinja template, or of absurd length.
    pub fn new(source: &str) -> Result<ChatTemplate, TemplateError> {
        ChatTemplate::with_clock(source, DateTime::now)
    }

    /// Compiles a template for which it is `clock` o'clock.
    ///
    /// # Errors
    /// As [`ChatTemplate::new`].
    pub fn with_clock(
        source: &str,
        clock: impl Fn() -> DateTime + Send + Sync + 'static,
    ) -> Result<ChatTemplate, TemplateError> {
        ChatTemplate::within(Limits::now(), source, clock)
    }

    fn within(
        limits: Limits,
        source: &str,
        clock: impl Fn() -> DateTime + Send + Sync + 'static,
    ) -> Result<ChatTemplate, TemplateError> {
        if source.len() > limits.source {
            return Err(TemplateError::SourceTooLong(source.len(), limits.source));
        }
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        env.set_syntax(syntax.map_err(told)?);
        env.set_fuel(Some(limits.fuel));
        env.set_unknown_method_callback(python::method);
        env.add_test("sequence", python::is_sequence);
        env.add_filter("tojson", json::tojson);
        env.add_filter("join", filters::join);
        env.add_filter("string", filters::string);
        env.add_function(
            "raise_exception",
            |message: String| -> Result<Value, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, message.clone())
                    .with_source(Raised(message)))
            },
        );
        env.add_function("strftime_now", move |format: &str| clock().format(format));
        let source = python::without_generation_tags(source).into_owned();
        let env = apart(limits.stack, move || {
            env.add_template_owned(NAME, source)
                .map(|()| env)
                .map_err(told)
        })?;
        Ok(ChatTemplate {
            env: Arc::new(env),
            stack: limits.stack,
        })
    }

    /// The prompt for these variables: an object with `messages`, `add_generation_prompt`, `bos_token` and what else the
    /// template asks for.
    ///
    /// # Errors
    /// The template refuses the conversation, fails, or goes on for too long.
    pub fn render(&self, vars: &serde_json::Value) -> Result<String, TemplateError> {
        let (env, vars) = (Arc::clone(&self.env), Value::from(Serde(vars)));
        apart(self.stack, move || {
            let mut out = Limited(Vec::new());
            env.get_template(NAME)
                .and_then(|t| t.render_captured_to(vars, &mut out).map(drop))
                .map_err(told)?;
            String::from_utf8(out.0).map_err(|e| TemplateError::Failed {
                line: 0,
                what: e.to_string(),
            })
        })
    }
}

/// Does `work` on a thread of its own, with `stack` bytes and [`TIME`] for it. A thread cannot be ended from outside: one
/// that is out of time goes on until its fuel or the process ends, and nobody waits for it.
fn apart<T: Send + 'static>(
    stack: usize,
    work: impl FnOnce() -> Result<T, TemplateError> + Send + 'static,
) -> Result<T, TemplateError> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(NAME.to_owned())
        .stack_size(stack)
        .spawn(move || {
            // Nobody listens when the time was over.
            let _ = sender.send(work());
        })?;
    match receiver.recv_timeout(TIME) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(TemplateError::Budget),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(TemplateError::Budget),
        },
    }
}

/// Takes up to [`MAX_OUTPUT`] bytes.
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The engine's error as one of ours, in one line.
fn told(error: Error) -> TemplateError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(e) = source {
        if let Some(Raised(message)) = e.downcast_ref() {
            return TemplateError::Raised(one_line(message));
        }
        if e.downcast_ref::<Error>()
            .is_some_and(|e| matches!(e.kind(), ErrorKind::OutOfFuel | ErrorKind::WriteFailure))
        {
            return TemplateError::Budget;
        }
        source = e.source();
    }
    let what = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    let (line, what) = (error.line().unwrap_or(0), one_line(&what));
    match error.kind() {
        ErrorKind::SyntaxError | ErrorKind::BadEscape => TemplateError::Syntax { line, what },
        _ => TemplateError::Failed { line, what },
    }
}

/// What a template says may span lines and hold anything; an error is one line of printable characters.
fn one_line(text: &str) -> String {
    text.split(char::is_control)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(500)
        .collect()
}

/// The variables of a conversation of (role, content), with `extra` ones, an object, over them.
pub fn messages_to_vars(
    messages: &[(&str, &str)],
    bos: &str,
    eos: &str,
    add_generation_prompt: bool,
    extra: &serde_json::Map<String, serde_json::Value>,
) -> serde_json::Value {
    let messages: Vec<_> = messages
        .iter()
        .map(|(role, content)| serde_json::json!({ "role": role, "content": content }))
        .collect();
    let mut vars = serde_json::Map::new();
    vars.insert("messages".into(), messages.into());
    vars.insert("add_generation_prompt".into(), add_generation_prompt.into());
    vars.insert("bos_token".into(), bos.into());
    vars.insert("eos_token".into(), eos.into());
    vars.extend(extra.clone());
    vars.into()
}
