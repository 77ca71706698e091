//! The hyperparameters that every architecture shares, from the metadata keys `<arch>.*`.

use ounce_gguf::{Metadata, Value};

use super::file::ModelFile;
use crate::EngineError;

/// Upper bound of any single dimension: far above real models, low enough that products of two fit in 64 bits.
const MAX_DIM: u32 = 1 << 24;
/// Upper bound of the number of layers.
const MAX_LAYERS: u32 = 1024;

/// Dimensions and constants of a model.
#[derive(Clone, Debug)]
pub struct Hparams {
    /// Architecture name, the prefix of the keys.
    pub arch: String,
    /// Entries of the vocabulary: rows of `token_embd.weight`.
    pub n_vocab: usize,
    /// Context length the model was trained for.
    pub n_ctx_train: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Layers run by the main pass (blocks for multi-token prediction not counted).
    pub n_layer: usize,
    /// Query heads.
    pub n_head: usize,
    /// Key/value heads.
    pub n_head_kv: usize,
    /// Width of a query/key head.
    pub head_dim_k: usize,
    /// Width of a value head.
    pub head_dim_v: usize,
    /// Width of the feed-forward layer.
    pub n_ff: usize,
    /// Epsilon of every RMS norm.
    pub rms_eps: f32,
    /// Leading dimensions of a head that rope rotates.
    pub n_rot: usize,
}

/// Typed look-ups of `<arch>.<key>`, with errors that name the key.
pub struct Keys<'a> {
    metadata: &'a Metadata,
    arch: String,
}

impl<'a> Keys<'a> {
    /// The keys of the file's own architecture.
    ///
    /// # Errors
    /// `general.architecture` is missing or not a string.
    pub fn new(file: &'a ModelFile) -> Result<Keys<'a>, EngineError> {
        let metadata = &file.header().metadata;
        Ok(Keys {
            arch: metadata.required_str("general.architecture")?.to_owned(),
            metadata,
        })
    }

    /// The architecture's name.
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// The full key.
    pub fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    /// An error about a key.
    pub fn bad(&self, key: &str, why: impl Into<String>) -> EngineError {
        EngineError::Hparam {
            key: self.key(key),
            why: why.into(),
        }
    }

    /// An integer in `1..=max`.
    ///
    /// # Errors
    /// Missing, not an integer, out of range.
    pub fn count(&self, key: &str, max: u32) -> Result<usize, EngineError> {
        let n = self.metadata.required_u32(&self.key(key))?;
        if n == 0 || n > max {
            return Err(self.bad(key, format!("{n} is out of range 1..={max}")));
        }
        Ok(n as usize)
    }

    /// As [`Keys::count`] with a value for when the key is missing.
    ///
    /// # Errors
    /// Not an integer, out of range.
    pub fn count_or(&self, key: &str, max: u32, default: usize) -> Result<usize, EngineError> {
        if self.metadata.get(&self.key(key)).is_none() {
            Ok(default)
        } else {
            self.count(key, max)
        }
    }

    /// An integer that may be zero.
    ///
    /// # Errors
    /// Not an integer.
    pub fn u32_or(&self, key: &str, default: u32) -> Result<u32, EngineError> {
        Ok(self.metadata.u32(&self.key(key))?.unwrap_or(default))
    }

    /// A finite number, or `default` when missing.
    ///
    /// # Errors
    /// Not a number, not finite.
    pub fn f32_or(&self, key: &str, default: f32) -> Result<f32, EngineError> {
        let x = self.metadata.f32(&self.key(key))?.unwrap_or(default);
        if !x.is_finite() {
            return Err(self.bad(key, format!("{x} is not finite")));
        }
        Ok(x)
    }

    /// A string, if there.
    ///
    /// # Errors
    /// Not a string.
    pub fn str(&self, key: &str) -> Result<Option<&'a str>, EngineError> {
        Ok(self.metadata.str(&self.key(key))?)
    }

    /// The raw value, if there.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.metadata.get(&self.key(key))
    }
}

impl Hparams {
    /// Reads and checks the common keys.
    ///
    /// # Errors
    /// A key is missing, of the wrong type, out of range, or contradicts another.
    pub fn load(file: &ModelFile) -> Result<Hparams, EngineError> {
        let keys = Keys::new(file)?;
        let n_vocab = match file.header().tensor("token_embd.weight") {
            Some(t) if t.dims.len() == 2 && t.dims[1] <= u64::from(MAX_DIM) => t.dims[1] as usize,
            Some(t) => {
                return Err(EngineError::TensorShape {
                    name: t.name.clone(),
                    found: t.dims.clone(),
                    wanted: vec![0, 0],
                });
            }
            None => {
                return Err(EngineError::MissingTensor {
                    name: "token_embd.weight".into(),
                });
            }
        };
        let n_embd = keys.count("embedding_length", MAX_DIM)?;
        let n_block = keys.count("block_count", MAX_LAYERS)?;
        let n_nextn = keys.u32_or("nextn_predict_layers", 0)? as usize;
        if n_nextn >= n_block {
            return Err(keys.bad(
                "nextn_predict_layers",
                format!("{n_nextn} leaves no layer of {n_block}"),
            ));
        }
        let n_head = uniform(&keys, file, "attention.head_count")?;
        let n_head_kv = match keys.value("attention.head_count_kv") {
            None => n_head,
            Some(_) => uniform(&keys, file, "attention.head_count_kv")?,
        };
        if n_head % n_head_kv != 0 {
            return Err(keys.bad(
                "attention.head_count_kv",
                format!("{n_head_kv} does not divide the {n_head} heads"),
            ));
        }
        let head_dim = |key| match keys.value(key) {
            Some(_) => keys.count(key, 4096),
            None if n_embd % n_head == 0 => Ok(n_embd / n_head),
            None => Err(keys.bad(
                key,
                format!("missing, and {n_head} heads do not divide {n_embd}"),
            )),
        };
        let head_dim_k = head_dim("attention.key_length")?;
        let head_dim_v = head_dim("attention.value_length")?;
        let n_rot = keys.count_or("rope.dimension_count", 4096, head_dim_k)?;
        if n_rot > head_dim_k || n_rot % 2 != 0 {
            return Err(keys.bad(
                "rope.dimension_count",
                format!("{n_rot} is odd or larger than a head of {head_dim_k}"),
            ));
        }
        let rms_eps = keys
            .f32_or("attention.layer_norm_rms_epsilon", f32::NAN)
            .map_err(|_| {
                keys.bad(
                    "attention.layer_norm_rms_epsilon",
                    "missing or not a number",
                )
            })?;
        Ok(Hparams {
            n_vocab,
            n_ctx_train: keys.count("context_length", i32::MAX as u32)?,
            n_embd,
            n_layer: n_block - n_nextn,
            n_head,
            n_head_kv,
            head_dim_k,
            head_dim_v,
            n_ff: keys.count_or("feed_forward_length", MAX_DIM, 0)?,
            rms_eps,
            n_rot,
            arch: keys.arch,
        })
    }
}

/// A head count: one number, or an array of equal ones (zeros, which mark layers without attention, aside).
fn uniform(keys: &Keys<'_>, file: &ModelFile, key: &str) -> Result<usize, EngineError> {
    let Some(Value::Array(array)) = keys.value(key) else {
        return keys.count(key, 65_536);
    };
    let mut found = 0;
    for n in array.u32s(file.bytes())? {
        if n != 0 && found != 0 && n != found {
            return Err(keys.bad(
                key,
                "differs from layer to layer, which this architecture does not support",
            ));
        }
        found = found.max(n);
    }
    if found == 0 || found > 65_536 {
        return Err(keys.bad(key, format!("{found} is out of range")));
    }
    Ok(found as usize)
}
