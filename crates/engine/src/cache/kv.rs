//! The key/value cache: rows of heads by position, reserved for `n_ctx`, committed by use.
//!
//! A layer with a sliding window keeps only its window, as a ring; the rows of the chunk being processed lie in a
//! stage that all such layers share, and move into the ring when the layer's attention is done.

use ounce_kernels::ops::{KvRows, KvType};

use crate::EngineError;
use crate::memory::Region;
use crate::model::graph::{Graph, Kv};
use crate::plan::name;

/// Each layer's K and V start on a page of their own, so that a short context commits few of them.
const PAGE: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct LayerLayout {
    k: usize,
    v: usize,
    k_row: usize,
    v_row: usize,
    n_slots: usize,
    is_ring: bool,
}

/// Offsets and sizes of the cache of one sequence.
#[derive(Clone, Debug)]
pub struct KvLayout {
    type_k: KvType,
    type_v: KvType,
    layers: Vec<LayerLayout>,
    cache_len: usize,
    stage_k: usize,
    stage_len: usize,
}

impl KvLayout {
    /// Lays out the cache for `n_ctx` positions and chunks of `n_ubatch`.
    ///
    /// # Errors
    /// A cache type whose blocks do not divide a head.
    pub fn new(
        graph: &Graph,
        n_ctx: usize,
        n_ubatch: usize,
        type_k: KvType,
        type_v: KvType,
    ) -> Result<KvLayout, EngineError> {
        let mut layout = KvLayout {
            type_k,
            type_v,
            layers: Vec::new(),
            cache_len: 0,
            stage_k: 0,
            stage_len: 0,
        };
        let mut stage_v = 0;
        for spec in &graph.kv {
            for (ty, head_dim) in [(type_k, spec.head_dim_k), (type_v, spec.head_dim_v)] {
                if head_dim % ty.block_len() != 0 {
                    return Err(EngineError::KvType {
                        ty: ty.to_string(),
                        block: ty.block_len(),
                        head_dim,
                    });
                }
            }
            let n_slots = spec.window.unwrap_or(n_ctx).min(n_ctx);
            let is_ring = n_slots < n_ctx;
            let k_row = type_k.row_bytes(spec.n_head_kv * spec.head_dim_k);
            let v_row = type_v.row_bytes(spec.n_head_kv * spec.head_dim_v);
            let k = layout.cache_len;
            let v = k + (k_row * n_slots).next_multiple_of(PAGE);
            layout.cache_len = v + (v_row * n_slots).next_multiple_of(PAGE);
            layout.layers.push(LayerLayout {
                k,
                v,
                k_row,
                v_row,
                n_slots,
                is_ring,
            });
            if is_ring {
                layout.stage_k = layout
                    .stage_k
                    .max((k_row * n_ubatch).next_multiple_of(PAGE));
                stage_v = stage_v.max(v_row * n_ubatch);
            }
        }
        layout.stage_len = if stage_v == 0 {
            0
        } else {
            layout.stage_k + stage_v
        };
        Ok(layout)
    }

    /// Bytes reserved for the context.
    pub fn cache_bytes(&self) -> usize {
        self.cache_len
    }

    /// Bytes of the stage that windowed layers share.
    pub fn stage_bytes(&self) -> usize {
        self.stage_len
    }
}

/// The cache of one sequence.
pub struct KvCache {
    layout: KvLayout,
    cache: Region,
    stage: Region,
}

impl KvCache {
    /// Reserves what `layout` says; nothing is committed yet.
    ///
    /// # Errors
    /// The kernel refuses the address space.
    pub fn new(layout: KvLayout) -> Result<KvCache, EngineError> {
        let cache = Region::reserve(name::KV_CACHE, layout.cache_len)?;
        let stage = Region::reserve(name::KV_STAGE, layout.stage_len)?;
        Ok(KvCache {
            layout,
            cache,
            stage,
        })
    }

    /// Types of K and V.
    pub fn types(&self) -> (KvType, KvType) {
        (self.layout.type_k, self.layout.type_v)
    }

    /// Cache and stage.
    pub fn regions(&self) -> [&Region; 2] {
        [&self.cache, &self.stage]
    }

    /// Gives every page back.
    pub fn release(&mut self) {
        self.cache.release();
        self.stage.release();
    }

    /// Gives back the pages of rows that a sequence of `n_past` positions does not have, and those of the stage, which is
    /// idle between passes.
    pub fn trim(&mut self, n_past: usize) {
        self.stage.release();
        for l in &self.layout.layers {
            for (start, row_bytes) in [(l.k, l.k_row), (l.v, l.v_row)] {
                let used = n_past.min(l.n_slots) * row_bytes;
                // Up to the next tensor, which starts on a page of its own.
                let end = (l.n_slots * row_bytes).next_multiple_of(PAGE);
                self.cache.release_within(start + used..start + end);
            }
        }
    }

    /// Whether rows older than `n` of a sequence of `n_past` are all still there, so that it can go back to `n`.
    pub fn can_rewind(&self, n_past: usize) -> bool {
        self.layout
            .layers
            .iter()
            .all(|l| !l.is_ring || n_past <= l.n_slots)
    }

    /// Where K and V rows of positions `pos0..pos0 + n` are to be written.
    pub fn rows_mut(&mut self, kv: Kv, pos0: usize, n: usize) -> [&mut [u8]; 2] {
        let l = self.layout.layers[kv.0];
        let (bytes, k, v) = if l.is_ring {
            (self.stage.bytes_mut(), 0, self.layout.stage_k)
        } else {
            (
                self.cache.bytes_mut(),
                l.k + pos0 * l.k_row,
                l.v + pos0 * l.v_row,
            )
        };
        bytes
            .get_disjoint_mut([k..k + n * l.k_row, v..v + n * l.v_row])
            .expect("K lies before V")
    }

    /// The rows that positions up to `pos0 + n` attend to, those of `pos0..` just written by [`KvCache::rows_mut`].
    pub fn rows(&self, kv: Kv, pos0: usize, n: usize) -> [KvRows<'_>; 2] {
        let l = self.layout.layers[kv.0];
        let rows = |ty, start: usize, row_bytes: usize, stage: usize| {
            let past = &self.cache.bytes()[start..start + l.n_slots * row_bytes];
            if l.is_ring {
                let fresh = &self.stage.bytes()[stage..stage + n * row_bytes];
                KvRows {
                    ty,
                    past,
                    n_slots: l.n_slots,
                    n_past: pos0,
                    fresh,
                    n_fresh: n,
                    row_bytes,
                }
            } else {
                KvRows {
                    ty,
                    past,
                    n_slots: l.n_slots,
                    n_past: pos0 + n,
                    fresh: &[],
                    n_fresh: 0,
                    row_bytes,
                }
            }
        };
        [
            rows(self.layout.type_k, l.k, l.k_row, 0),
            rows(self.layout.type_v, l.v, l.v_row, self.layout.stage_k),
        ]
    }

    /// Moves the staged rows of a windowed layer into its ring, after its attention.
    pub fn commit(&mut self, kv: Kv, pos0: usize, n: usize) {
        let l = self.layout.layers[kv.0];
        if !l.is_ring {
            return;
        }
        let (cache, stage) = (self.cache.bytes_mut(), self.stage.bytes());
        for (start, row_bytes, staged) in [(l.k, l.k_row, 0), (l.v, l.v_row, self.layout.stage_k)] {
            for i in n.saturating_sub(l.n_slots)..n {
                let to = start + (pos0 + i) % l.n_slots * row_bytes;
                let from = staged + i * row_bytes;
                cache[to..to + row_bytes].copy_from_slice(&stage[from..from + row_bytes]);
            }
        }
    }
}
