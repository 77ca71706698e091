//! The lines of a plan.

/// Names of the sections, as plan and measurement print them.
pub mod name {
    /// Tensors that every pass reads.
    pub const WEIGHTS: &str = "weights";
    /// Rows of an embedding table that no product reads.
    pub const ROWS: &str = "embedding rows";
    /// Keys and values.
    pub const KV_CACHE: &str = "KV cache";
    /// Keys and values of the chunk, in models with a sliding window.
    pub const KV_STAGE: &str = "KV stage";
    /// States of layers without a KV cache.
    pub const STATE: &str = "recurrent state";
    /// Values of a pass.
    pub const SLAB: &str = "forward slab";
    /// Inputs of products as int8 blocks.
    pub const ACTS: &str = "quantised activations";
    /// Per thread.
    pub const ATTENTION: &str = "attention scratch";
    /// Candidates, history, grammar.
    pub const SAMPLER: &str = "sampler";
    /// Ids of the context.
    pub const TOKENS: &str = "token buffers";
    /// Vocabulary, merges, patterns.
    pub const TOKENIZER: &str = "tokenizer";
    /// What the file says about itself, and the forward pass made of it.
    pub const HEADER: &str = "header and graph";
    /// Code, libraries, stacks.
    pub const BASE: &str = "runtime base";
}

/// One line of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What it is.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// How the bytes behave.
    pub kind: Kind,
}

/// How the bytes of a section behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Clean file pages: resident while used, taken back by the kernel when it must.
    Mapped,
    /// The same, of which a session touches some: at most so many bytes.
    ByRow,
    /// File pages that stay in memory.
    Locked,
    /// Address space that costs memory as it is used.
    Reserved,
    /// Memory held from load to end.
    Committed,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mapped => "mapped",
            Kind::ByRow => "mapped, by row",
            Kind::Locked => "locked",
            Kind::Reserved => "reserved",
            Kind::Committed => "committed",
        }
    }

    /// Whether the bytes are the process's own: what a limit on its heap must allow.
    pub fn is_own(self) -> bool {
        matches!(self, Kind::Reserved | Kind::Committed)
    }

    /// Whether the kernel can take the bytes back when it needs memory.
    pub fn is_reclaimable(self) -> bool {
        matches!(self, Kind::Mapped | Kind::ByRow)
    }
}
