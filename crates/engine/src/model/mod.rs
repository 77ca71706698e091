//! A model: its file, its hyperparameters, its forward pass, its tokenizer and template.

pub mod arch;
pub mod file;
pub mod graph;
pub mod hparams;
pub mod rope;
pub mod slab;

use std::path::Path;

use crate::EngineError;
use crate::tokenizer::Tokenizer;
use file::ModelFile;
use graph::Graph;
use hparams::Hparams;

/// Everything that is read once and shared by all sessions. The weights stay in the file mapping.
pub struct Model {
    /// The mapped file(s).
    pub file: ModelFile,
    /// Dimensions and constants.
    pub hparams: Hparams,
    /// The forward pass.
    pub graph: Graph,
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// Source of the chat template, if the file carries one.
    pub template: Option<String>,
}

impl Model {
    /// Maps the file(s), reads the header, builds the forward pass, and refuses what cannot be run.
    ///
    /// # Errors
    /// Each with the file, key or tensor it is about; see [`EngineError`].
    pub fn open(path: &Path) -> Result<Model, EngineError> {
        let file = ModelFile::open(path)?;
        let arch = file
            .header()
            .metadata
            .required_str("general.architecture")
            .map_err(|e| in_file(path, e.into()))?;
        let build = arch::find(arch).map_err(|e| in_file(path, e))?;
        let hparams = Hparams::load(&file).map_err(|e| in_file(path, e))?;
        let graph = build(&file, &hparams).map_err(|e| in_file(path, e))?;
        let tokenizer = Tokenizer::from_gguf(file.header(), file.bytes())
            .map_err(|e| in_file(path, e.into()))?;
        let template = file
            .header()
            .metadata
            .str("tokenizer.chat_template")
            .map_err(|e| in_file(path, e.into()))?
            .map(str::to_owned);
        Ok(Model {
            file,
            hparams,
            graph,
            tokenizer,
            template,
        })
    }
}

fn in_file(path: &Path, source: EngineError) -> EngineError {
    EngineError::InFile {
        path: path.to_owned(),
        source: Box::new(source),
    }
}
