//! A model: what its header says, and with it the tokenizer and the chat template.

pub mod arch;
pub mod file;
pub mod graph;
pub mod hparams;
mod reads;
pub mod rope;
pub mod slab;

use std::path::Path;

use ounce_gguf::TensorInfo;

use crate::EngineError;
use crate::memory::{Residency, alloc, probe};
use crate::tokenizer::Tokenizer;
use file::ModelFile;
use graph::Graph;
use hparams::Hparams;

/// What the header alone says: enough to plan, and to run once a tokenizer is there or not needed.
pub struct ModelSpec {
    /// The mapped file(s).
    pub file: ModelFile,
    /// Dimensions and constants.
    pub hparams: Hparams,
    /// The forward pass.
    pub graph: Graph,
    read_bytes: u64,
    base_bytes: Option<u64>,
    heap_bytes: Option<usize>,
}

impl ModelSpec {
    /// Maps the file(s), reads the header and builds the forward pass; touches no weight.
    ///
    /// # Errors
    /// Each with the file, key or tensor it is about; see [`EngineError`]. A tensor without a kernel is none yet: see
    /// [`ModelSpec::without_kernel`].
    pub fn open(path: &Path) -> Result<ModelSpec, EngineError> {
        let base_bytes = probe::resident().map(|r| r.total());
        let (spec, heap_bytes) = alloc::grown_by(|| ModelSpec::read(path));
        let mut spec = spec?;
        spec.base_bytes = base_bytes;
        spec.heap_bytes = heap_bytes;
        Ok(spec)
    }

    fn read(path: &Path) -> Result<ModelSpec, EngineError> {
        let file = ModelFile::open(path)?;
        let arch = file
            .header()
            .metadata
            .required_str("general.architecture")
            .map_err(|e| in_file(path, e.into()))?;
        let build = arch::find(arch).map_err(|e| in_file(path, e))?;
        let hparams = Hparams::load(&file).map_err(|e| in_file(path, e))?;
        let graph = build(&file, &hparams).map_err(|e| in_file(path, e))?;
        Ok(ModelSpec {
            read_bytes: graph.read_bytes(),
            file,
            hparams,
            graph,
            base_bytes: None,
            heap_bytes: None,
        })
    }

    /// Bytes of the file that passes read whole; see [`Graph::read_bytes`].
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// What this process had in memory before the model was opened; `None` where the kernel does not say.
    pub fn base_bytes(&self) -> Option<u64> {
        self.base_bytes
    }

    /// Bytes that header and graph take on the heap, as the allocator counted them.
    pub fn heap_bytes(&self) -> Option<usize> {
        self.heap_bytes
    }

    /// Has the files held as `residency` says; before [`Model::load`]. `progress` gets the bytes done and those of all
    /// files, where that takes time.
    ///
    /// # Errors
    /// See [`Mapping::lock`](crate::memory::Mapping::lock) and [`Mapping::make_direct`](crate::memory::Mapping::make_direct).
    pub fn hold(
        &mut self,
        residency: Residency,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), EngineError> {
        match residency {
            Residency::Mapped => {
                if let Some(table) = self.graph.sparse_table() {
                    self.file.read_by_row(&table);
                }
                Ok(())
            }
            Residency::Locked => {
                self.file.prefetch(progress)?;
                self.file.lock()
            }
            Residency::Direct => self.file.make_direct(progress),
        }
    }

    /// Has the kernel read ahead what passes read whole.
    pub fn will_need(&self) {
        self.file.will_need(self.graph.sparse_table());
    }

    /// The matrices of the forward pass whose type no kernel reads, in the order of the pass.
    pub fn without_kernel(&self) -> Vec<&TensorInfo> {
        let mut found: Vec<&TensorInfo> = Vec::new();
        for m in self.graph.matrices() {
            if !ounce_kernels::quant::has_kernel(m.ty) {
                let t = self.file.tensor_of(&m);
                if !found.iter().any(|f| f.name == t.name) {
                    found.push(t);
                }
            }
        }
        found
    }
}

/// Everything that is read once and shared by all sessions. The weights stay in the file mapping.
pub struct Model {
    /// File, dimensions, forward pass.
    pub spec: ModelSpec,
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// Source of the chat template, if the file carries one.
    pub template: Option<String>,
    tokenizer_heap: Option<usize>,
}

impl Model {
    /// Maps the file(s), reads the header, builds the forward pass, and refuses what cannot be run.
    ///
    /// # Errors
    /// Each with the file, key or tensor it is about; see [`EngineError`].
    pub fn open(path: &Path) -> Result<Model, EngineError> {
        Model::load(ModelSpec::open(path)?)
    }

    /// Adds the tokenizer and the template to what the header said.
    ///
    /// # Errors
    /// A matrix without a kernel, a tokenizer that is unknown or inconsistent.
    pub fn load(spec: ModelSpec) -> Result<Model, EngineError> {
        let path = spec.file.path();
        if let Some(t) = spec.without_kernel().first() {
            let (name, ty) = (t.name.clone(), t.ty);
            return Err(in_file(path, EngineError::NoKernel { name, ty }));
        }
        let header = spec.file.header();
        let (tokenizer, tokenizer_heap) =
            alloc::grown_by(|| Tokenizer::from_gguf(header, spec.file.bytes()));
        spec.file.check()?;
        let tokenizer = tokenizer.map_err(|e| in_file(path, e.into()))?;
        let template = header
            .metadata
            .str("tokenizer.chat_template")
            .map_err(|e| in_file(path, e.into()))?
            .map(str::to_owned);
        spec.file.release_headers();
        Ok(Model {
            spec,
            tokenizer,
            template,
            tokenizer_heap,
        })
    }

    /// Bytes that the tokenizer takes on the heap, as the allocator counted them.
    pub fn tokenizer_heap(&self) -> Option<usize> {
        self.tokenizer_heap
    }
}

fn in_file(path: &Path, source: EngineError) -> EngineError {
    EngineError::InFile {
        path: path.to_owned(),
        source: Box::new(source),
    }
}
