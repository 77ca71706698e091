//! The ops an architecture may use, and the list of them that one forward pass is.
//!
//! An architecture file builds the list once, at load, from named tensors; a backend runs it for every chunk of
//! tokens. The list is data: the planner sizes memory from it and the backend allocates what the planner sized.

use ounce_kernels::ops::RopeKind;

use super::file::{MatRef, VecRef};
use super::rope::RopeFreqs;

/// A value: rows of floats in the forward slab, one row a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V(pub(crate) usize);

/// A set of rope frequencies of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freqs(pub(crate) usize);

/// A layer's key/value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kv(pub(crate) usize);

/// A layer's fixed recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub(crate) usize);

/// What a layer caches for each position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSpec {
    /// Key/value heads.
    pub n_head_kv: usize,
    /// Width of a key head.
    pub head_dim_k: usize,
    /// Width of a value head.
    pub head_dim_v: usize,
    /// Positions a query can see, itself included; `None` sees all.
    pub window: Option<usize>,
}

/// One matrix of a [`Op::Linear`].
#[derive(Clone, Debug)]
pub struct Output {
    /// Weights.
    pub w: MatRef,
    /// Added to each row.
    pub bias: Option<VecRef>,
    /// Receives `x · wᵀ + bias`.
    pub y: V,
}

/// The tensors of a mixture-of-experts layer.
#[derive(Clone, Debug)]
pub struct Moe {
    /// Experts.
    pub n_expert: usize,
    /// Experts a token uses.
    pub n_used: usize,
    /// Width of an expert.
    pub n_ff: usize,
    /// Router, `n_expert` rows.
    pub router: MatRef,
    /// Stacked gate matrices.
    pub gate: MatRef,
    /// Stacked up matrices.
    pub up: MatRef,
    /// Stacked down matrices.
    pub down: MatRef,
    /// Scratch: router scores `[n_expert]`.
    pub scores: V,
    /// Scratch: chosen experts with their weights `[2 * n_used]`.
    pub chosen: V,
    /// Scratch: the rows of one expert, gathered.
    pub xs: V,
    /// Scratch: gate activations.
    pub g: V,
    /// Scratch: up activations.
    pub u: V,
    /// Scratch: outputs of one expert.
    pub ys: V,
}

/// The tensors and dimensions of a gated delta net step (Yang et al., arXiv 2412.06464).
#[derive(Clone, Copy, Debug)]
pub struct DeltaNet {
    /// Key heads.
    pub n_head_k: usize,
    /// Value heads; value head `j` reads key head `j mod n_head_k`.
    pub n_head_v: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Epsilon of the L2 norm of q and k.
    pub eps: f32,
}

/// One operation over all rows of a chunk.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the fields are named as in the formulas
pub enum Op {
    /// `y = table[token] * scale`, dequantising one row a token.
    Embed { table: MatRef, scale: f32, y: V },
    /// `y = x / rms(x) * w` over groups of `w.len`.
    RmsNorm { x: V, w: VecRef, eps: f32, y: V },
    /// As `RmsNorm`, in place.
    RmsNormInPlace { x: V, w: VecRef, eps: f32 },
    /// Matrices that read the same input, which is quantised once for all.
    Linear { x: V, outs: Vec<Output> },
    /// cos and sin of every position of the chunk.
    RopeAngles { freqs: Freqs, y: V },
    /// Rotates the heads of `x` in place.
    Rope {
        x: V,
        n_head: usize,
        head_dim: usize,
        kind: RopeKind,
        angles: V,
    },
    /// Stores k and v of the chunk, then causal attention over all that is stored.
    Attention {
        q: V,
        k: V,
        v: V,
        y: V,
        n_head: usize,
        kv: Kv,
        scale: f32,
    },
    /// Splits rows of `[head][2][head_dim]` into two values of `[head][head_dim]`.
    SplitHeads { x: V, head_dim: usize, a: V, b: V },
    /// `gate = silu(gate) * up`.
    SiluMul { gate: V, up: V },
    /// `gate = gelu(gate) * up` (tanh form).
    GeluMul { gate: V, up: V },
    /// `x = x * sigmoid(gate)`.
    SigmoidMul { x: V, gate: V },
    /// `x = x + y`.
    Add { x: V, y: V },
    /// Mixture of experts: softmax over all, top k, renormalised.
    Moe { x: V, moe: Box<Moe>, y: V },
    /// Depthwise causal convolution over the rows, then SiLU.
    CausalConv {
        x: V,
        w: VecRef,
        kernel: usize,
        state: State,
        y: V,
    },
    /// `alpha = ssm_a * softplus(alpha + dt)`, `beta = sigmoid(beta)`.
    DeltaGates {
        alpha: V,
        beta: V,
        dt: VecRef,
        a: VecRef,
    },
    /// The gated delta rule over the rows.
    DeltaNet {
        qkv: V,
        g: V,
        beta: V,
        net: DeltaNet,
        state: State,
        y: V,
    },
    /// `x = rms(x) * w * silu(z)` per head of `w.len`.
    GatedNorm { x: V, z: V, w: VecRef, eps: f32 },
    /// Copies the rows whose logits are wanted.
    TakeRows { x: V, y: V },
}

impl Op {
    /// Calls `f` with every value the op touches.
    pub fn values(&self, f: &mut dyn FnMut(V)) {
        use Op::*;
        let mut all = |vs: &[V]| vs.iter().copied().for_each(&mut *f);
        match self {
            Embed { y, .. } | RopeAngles { y, .. } => all(&[*y]),
            RmsNorm { x, y, .. } | TakeRows { x, y } | CausalConv { x, y, .. } | Add { x, y } => {
                all(&[*x, *y])
            }
            RmsNormInPlace { x, .. } => all(&[*x]),
            Linear { x, outs } => {
                all(&[*x]);
                outs.iter().for_each(|o| all(&[o.y]));
            }
            Rope { x, angles, .. } => all(&[*x, *angles]),
            Attention { q, k, v, y, .. } => all(&[*q, *k, *v, *y]),
            SplitHeads { x, a, b, .. } => all(&[*x, *a, *b]),
            SiluMul { gate, up } | GeluMul { gate, up } => all(&[*gate, *up]),
            SigmoidMul { x, gate } => all(&[*x, *gate]),
            Moe { x, moe, y } => {
                all(&[*x, *y, moe.scores, moe.chosen, moe.xs, moe.g, moe.u, moe.ys])
            }
            DeltaGates { alpha, beta, .. } => all(&[*alpha, *beta]),
            DeltaNet {
                qkv, g, beta, y, ..
            } => all(&[*qkv, *g, *beta, *y]),
            GatedNorm { x, z, .. } => all(&[*x, *z]),
        }
    }
}

/// A forward pass: `body` over every token of a chunk, `head` over the rows whose logits are wanted.
#[derive(Default)]
pub struct Graph {
    /// Ops over all tokens.
    pub body: Vec<Op>,
    /// Ops over the wanted rows, ending in `logits`.
    pub head: Vec<Op>,
    /// Floats a row of each value, by index.
    pub widths: Vec<usize>,
    /// Caches, by index.
    pub kv: Vec<KvSpec>,
    /// Floats of each recurrent state, by index.
    pub states: Vec<usize>,
    /// Rope frequencies, by index.
    pub freqs: Vec<RopeFreqs>,
    /// The hidden rows that `head` reads.
    pub hidden: Option<V>,
    /// The result.
    pub logits: Option<V>,
}

impl Graph {
    fn value(&mut self, width: usize) -> V {
        self.widths.push(width);
        V(self.widths.len() - 1)
    }

    /// Floats a row of `v`.
    pub fn width(&self, v: V) -> usize {
        self.widths[v.0]
    }

    /// Starts the pass: one embedding row a token.
    pub fn embed(&mut self, table: MatRef, scale: f32) -> V {
        let y = self.value(table.cols);
        self.body.push(Op::Embed { table, scale, y });
        y
    }

    /// See [`Op::RmsNorm`].
    pub fn rms_norm(&mut self, x: V, w: VecRef, eps: f32) -> V {
        let y = self.value(self.width(x));
        self.body.push(Op::RmsNorm { x, w, eps, y });
        y
    }

    /// See [`Op::RmsNormInPlace`].
    pub fn rms_norm_in_place(&mut self, x: V, w: VecRef, eps: f32) {
        self.body.push(Op::RmsNormInPlace { x, w, eps });
    }

    /// `[x·wᵀ + bias]` for each of the matrices; see [`Op::Linear`].
    pub fn linear<const N: usize>(&mut self, x: V, mats: [(MatRef, Option<VecRef>); N]) -> [V; N] {
        let mut outs = Vec::with_capacity(N);
        let ys = mats.map(|(w, bias)| {
            let y = self.value(w.rows);
            outs.push(Output { w, bias, y });
            y
        });
        self.body.push(Op::Linear { x, outs });
        ys
    }

    /// cos and sin for a set of frequencies, once a pass.
    pub fn rope_angles(&mut self, freqs: RopeFreqs) -> V {
        let y = self.value(2 * freqs.divisors.len());
        self.freqs.push(freqs);
        self.body.push(Op::RopeAngles {
            freqs: Freqs(self.freqs.len() - 1),
            y,
        });
        y
    }

    /// See [`Op::Rope`].
    pub fn rope(&mut self, x: V, head_dim: usize, kind: RopeKind, angles: V) {
        let n_head = self.width(x) / head_dim;
        self.body.push(Op::Rope {
            x,
            n_head,
            head_dim,
            kind,
            angles,
        });
    }

    /// See [`Op::Attention`]; makes the layer's cache.
    pub fn attention(&mut self, [q, k, v]: [V; 3], spec: KvSpec, scale: f32) -> V {
        let n_head = self.width(q) / spec.head_dim_k;
        self.kv.push(spec);
        let y = self.value(n_head * spec.head_dim_v);
        self.body.push(Op::Attention {
            q,
            k,
            v,
            y,
            n_head,
            kv: Kv(self.kv.len() - 1),
            scale,
        });
        y
    }

    /// See [`Op::SplitHeads`].
    pub fn split_heads(&mut self, x: V, head_dim: usize) -> [V; 2] {
        let half = self.width(x) / 2;
        let (a, b) = (self.value(half), self.value(half));
        self.body.push(Op::SplitHeads { x, head_dim, a, b });
        [a, b]
    }

    /// See [`Op::SiluMul`].
    pub fn silu_mul(&mut self, gate: V, up: V) {
        self.body.push(Op::SiluMul { gate, up });
    }

    /// See [`Op::GeluMul`].
    pub fn gelu_mul(&mut self, gate: V, up: V) {
        self.body.push(Op::GeluMul { gate, up });
    }

    /// See [`Op::SigmoidMul`].
    pub fn sigmoid_mul(&mut self, x: V, gate: V) {
        self.body.push(Op::SigmoidMul { x, gate });
    }

    /// See [`Op::Add`].
    pub fn add(&mut self, x: V, y: V) {
        self.body.push(Op::Add { x, y });
    }

    /// See [`Op::Moe`]; `experts` are the stacked gate, up and down matrices.
    pub fn moe(&mut self, x: V, router: MatRef, [gate, up, down]: [MatRef; 3], n_used: usize) -> V {
        let n_expert = router.rows;
        let n_ff = gate.rows / n_expert;
        let n_embd = self.width(x);
        let moe = Moe {
            n_expert,
            n_used,
            n_ff,
            router,
            gate,
            up,
            down,
            scores: self.value(n_expert),
            chosen: self.value(2 * n_used),
            xs: self.value(n_embd),
            g: self.value(n_ff),
            u: self.value(n_ff),
            ys: self.value(n_embd),
        };
        let y = self.value(n_embd);
        self.body.push(Op::Moe {
            x,
            moe: Box::new(moe),
            y,
        });
        y
    }

    /// See [`Op::CausalConv`]; makes the layer's state of the last `kernel - 1` rows.
    pub fn causal_conv(&mut self, x: V, w: VecRef, kernel: usize) -> V {
        let width = self.width(x);
        self.states.push((kernel - 1) * width);
        let y = self.value(width);
        self.body.push(Op::CausalConv {
            x,
            w,
            kernel,
            state: State(self.states.len() - 1),
            y,
        });
        y
    }

    /// See [`Op::DeltaGates`].
    pub fn delta_gates(&mut self, alpha: V, beta: V, dt: VecRef, a: VecRef) {
        self.body.push(Op::DeltaGates { alpha, beta, dt, a });
    }

    /// See [`Op::DeltaNet`]; makes the layer's state of one matrix a value head.
    pub fn delta_net(&mut self, qkv: V, g: V, beta: V, net: DeltaNet) -> V {
        self.states.push(net.n_head_v * net.head_dim * net.head_dim);
        let y = self.value(net.n_head_v * net.head_dim);
        self.body.push(Op::DeltaNet {
            qkv,
            g,
            beta,
            net,
            state: State(self.states.len() - 1),
            y,
        });
        y
    }

    /// See [`Op::GatedNorm`].
    pub fn gated_norm(&mut self, x: V, z: V, w: VecRef, eps: f32) {
        self.body.push(Op::GatedNorm { x, z, w, eps });
    }

    /// Ends the pass: final norm and output matrix over the wanted rows of `x`.
    pub fn output(&mut self, x: V, norm: VecRef, eps: f32, head: MatRef) {
        let width = self.width(x);
        let (rows, h, logits) = (self.value(width), self.value(width), self.value(head.rows));
        self.head = vec![
            Op::TakeRows { x, y: rows },
            Op::RmsNorm {
                x: rows,
                w: norm,
                eps,
                y: h,
            },
            Op::Linear {
                x: h,
                outs: vec![Output {
                    w: head,
                    bias: None,
                    y: logits,
                }],
            },
        ];
        self.hidden = Some(x);
        self.logits = Some(logits);
    }
}
