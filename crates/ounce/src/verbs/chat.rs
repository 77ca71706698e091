//! The chat that `ounce run MODEL` opens on a terminal.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ounce_engine::{GenerateParams, Sampler, Session, StopReason, generate};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::prompt::{Prompter, Turn};
use crate::verbs::run::report;
use crate::{Outcome, out};

const HELP: &str = "\
/clear   forget the conversation      /bye, /exit, Ctrl-D   leave
\"\"\"      begin and end several lines  Ctrl-C   stop the answer";

/// A conversation with all it needs.
pub struct Chat {
    pub session: Session,
    pub sampler: Sampler,
    pub prompter: Prompter,
    pub params: GenerateParams,
    pub cancel: Arc<AtomicBool>,
    pub system: Option<String>,
    pub verbose: bool,
}

pub fn run(mut chat: Chat) -> Outcome {
    let mut editor = DefaultEditor::new()?;
    let history = history_file();
    if let Some(path) = &history {
        // The first chat has none.
        let _ = editor.load_history(path);
    }
    out::note("/help lists the commands");
    if let Some(note) = chat.prompter.note() {
        out::note(note);
    }
    let first: Vec<Turn> = chat.system.iter().map(|s| Turn::system(s)).collect();
    let mut turns = first.clone();
    while let Some(input) = read(&mut editor)? {
        match input.trim() {
            "" => continue,
            "/bye" | "/exit" | "/quit" => break,
            "/help" | "/?" => out::note(HELP),
            "/clear" => {
                turns = first.clone();
                chat.session.reset();
                out::note("forgotten");
            }
            command
                if command.starts_with('/')
                    && !command.contains(' ')
                    && !command[1..].contains('/') =>
            {
                out::note(format_args!(
                    "unknown command {command}; /help lists the commands"
                ));
            }
            _ => answer(&mut chat, &mut turns, &input)?,
        }
    }
    if let Some(path) = &history
        && let Err(e) = save(&mut editor, path)
    {
        out::note(format_args!(
            "{}: the history was not saved: {e}",
            path.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(
    chat: &mut Chat,
    turns: &mut Vec<Turn>,
    input: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    turns.push(Turn::user(input));
    let tokens = chat.prompter.tokens(turns)?;
    chat.cancel.store(false, Ordering::Relaxed);
    let mut text = String::new();
    let mut failed = None;
    let generation = generate(
        &mut chat.session,
        &mut chat.sampler,
        &tokens,
        &chat.params,
        &chat.cancel,
        &mut |piece| {
            text.push_str(piece);
            match out::text_now(piece) {
                Ok(()) => ControlFlow::Continue(()),
                Err(e) => {
                    failed = Some(e);
                    ControlFlow::Break(())
                }
            }
        },
    );
    chat.cancel.store(false, Ordering::Relaxed);
    if let Some(e) = failed {
        return Err(e.into());
    }
    let generation = match generation {
        Ok(generation) => generation,
        // No further question can be answered.
        Err(e) if e.is_file_changed() => return Err(e.into()),
        // The conversation has outgrown the context: the question is taken back, the program stays.
        Err(e) => {
            turns.pop();
            out::error(&e);
            return Ok(());
        }
    };
    out::line("")?;
    if generation.stop == StopReason::Cancelled {
        out::note("stopped");
    }
    report(&generation, chat.verbose);
    turns.push(Turn::assistant(&text));
    Ok(())
}

/// A line, or several between `"""`; `None` at the end of input.
fn read(editor: &mut DefaultEditor) -> Result<Option<String>, ReadlineError> {
    let mut lines: Vec<String> = Vec::new();
    loop {
        match editor.readline(if lines.is_empty() { ">>> " } else { "... " }) {
            Ok(line) => lines.push(line),
            // Ctrl-C drops what is being typed.
            Err(ReadlineError::Interrupted) => lines.clear(),
            Err(ReadlineError::Eof) => return Ok(None),
            Err(e) => return Err(e),
        }
        let text = lines.join("\n");
        let input = match text.trim_start().strip_prefix("\"\"\"") {
            None => Some(text.as_str()),
            Some(rest) => rest.trim_end().strip_suffix("\"\"\""),
        };
        if let Some(input) = input {
            let input = input.to_owned();
            editor.add_history_entry(&text)?;
            return Ok(Some(input));
        }
    }
}

fn history_file() -> Option<PathBuf> {
    let home = std::env::var_os("OUNCE_HOME").map(PathBuf::from);
    Some(
        home.or_else(|| Some(std::env::home_dir()?.join(".local/share/ounce")))?
            .join("history"),
    )
}

fn save(editor: &mut DefaultEditor, path: &std::path::Path) -> Result<(), ReadlineError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    editor.save_history(path)
}
