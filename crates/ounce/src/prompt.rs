//! From a conversation to prompt tokens: the model's template, another one, or the text as it is.

use std::path::Path;
use std::sync::Arc;

use ounce_engine::template::ChatTemplate;
use ounce_engine::{EngineError, Model};
use serde_json::{Map, Value, json};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    role: &'static str,
    content: String,
}

impl Turn {
    /// The system's.
    pub fn system(content: &str) -> Turn {
        Turn {
            role: "system",
            content: content.to_owned(),
        }
    }

    /// The user's.
    pub fn user(content: &str) -> Turn {
        Turn {
            role: "user",
            content: content.to_owned(),
        }
    }

    /// The model's.
    pub fn assistant(content: &str) -> Turn {
        Turn {
            role: "assistant",
            content: content.to_owned(),
        }
    }
}

enum Style {
    /// A chat template.
    Template(ChatTemplate),
    /// The user asked for the text as it is.
    Raw,
    /// The model has no template.
    Plain,
}

/// Writes prompts for one model.
pub struct Prompter {
    model: Arc<Model>,
    style: Style,
    kwargs: Map<String, Value>,
}

impl Prompter {
    /// The prompt as it is.
    pub fn raw(model: Arc<Model>) -> Prompter {
        Prompter {
            model,
            style: Style::Raw,
            kwargs: Map::new(),
        }
    }

    /// With `template` (a file or the text itself), or the model's own.
    pub fn new(
        model: Arc<Model>,
        template: Option<&str>,
        kwargs: Map<String, Value>,
    ) -> Result<Prompter, EngineError> {
        let source = match template {
            // A template always has a brace; a path hardly ever.
            Some(text) if text.contains('{') => Some(text.to_owned()),
            Some(path) => Some(
                std::fs::read_to_string(path).map_err(|e| EngineError::open(Path::new(path), e))?,
            ),
            None => model.template.clone(),
        };
        let style = match source {
            Some(source) => Style::Template(ChatTemplate::new(&source)?),
            None => Style::Plain,
        };
        Ok(Prompter {
            model,
            style,
            kwargs,
        })
    }

    /// What the user should know before the first answer.
    pub fn note(&self) -> Option<&'static str> {
        matches!(self.style, Style::Plain)
            .then_some("the model has no chat template: the prompt is completed as it is")
    }

    /// The prompt for the next answer, begin-of-sequence token included where the model wants one.
    pub fn tokens(&self, turns: &[Turn]) -> Result<Vec<u32>, EngineError> {
        let tokenizer = &self.model.tokenizer;
        let text = match &self.style {
            Style::Template(template) => template.render(&self.vars(turns))?,
            Style::Raw | Style::Plain => turns
                .iter()
                .map(|t| t.content.as_str())
                .collect::<Vec<_>>()
                .join("\n"),
        };
        let mut tokens = tokenizer.encode(&text, true);
        // Many templates write the token themselves; the model was trained with one.
        if let Some(bos) = tokenizer
            .bos()
            .filter(|bos| tokenizer.add_bos() && tokens.first() != Some(bos))
        {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }

    fn vars(&self, turns: &[Turn]) -> Value {
        let tokenizer = &self.model.tokenizer;
        let special = |id: Option<u32>| {
            id.map(|id| String::from_utf8_lossy(&tokenizer.token_bytes(id, true)).into_owned())
                .unwrap_or_default()
        };
        let messages: Vec<Value> = turns
            .iter()
            .map(|t| json!({ "role": t.role, "content": t.content }))
            .collect();
        let mut vars = Map::new();
        vars.insert("messages".into(), json!(messages));
        vars.insert("add_generation_prompt".into(), json!(true));
        vars.insert("bos_token".into(), json!(special(tokenizer.bos())));
        vars.insert("eos_token".into(), json!(special(tokenizer.eos())));
        vars.extend(self.kwargs.clone());
        Value::Object(vars)
    }
}
