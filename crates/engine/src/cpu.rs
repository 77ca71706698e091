//! The CPU backend: runs the ops of a graph over the rows of a chunk.

use std::ops::Range;

use ounce_kernels::ops::{self, ActBuf, AttnScratch, LinearOut};
use ounce_kernels::{Cpu, quant};

use crate::cache::KvCache;
use crate::model::Model;
use crate::model::graph::{Moe, Op, State, V};
use crate::model::slab::SlabLayout;

/// What one pass works on.
pub struct Pass<'a> {
    /// The model whose graph is run.
    pub model: &'a Model,
    /// Offsets into `slab`.
    pub layout: &'a SlabLayout,
    /// Values.
    pub slab: &'a mut [f32],
    /// Keys and values.
    pub kv: &'a mut KvCache,
    /// Recurrent states, one after another.
    pub states: &'a mut [f32],
    /// Start of each state.
    pub state_offsets: &'a [usize],
    /// Ids of the chunk; read by the embedding.
    pub tokens: &'a [u32],
    /// Position of the first token.
    pub pos0: usize,
    /// First row of the hidden state that the head takes.
    pub first_output: usize,
    /// Rows.
    pub n: usize,
}

impl Pass<'_> {
    fn range(&self, v: V) -> Range<usize> {
        let start = self.layout.offsets[v.0];
        start..start + self.model.spec.graph.widths[v.0] * self.n
    }

    /// The rows of several values at once; the layout never overlaps values of one op.
    fn values<const N: usize>(&mut self, vs: [V; N]) -> [&mut [f32]; N] {
        let ranges = vs.map(|v| self.range(v));
        self.slab
            .get_disjoint_mut(ranges)
            .expect("values of one op do not overlap")
    }

    fn state(&self, s: State) -> Range<usize> {
        let start = self.state_offsets[s.0];
        start..start + self.model.spec.graph.states[s.0]
    }
}

/// Threads and scratch, allocated once.
pub struct CpuBackend {
    cpu: Cpu,
    acts: ActBuf,
    attn: AttnScratch,
}

impl CpuBackend {
    /// A backend on `cpu` with the scratch that the plan sized.
    pub fn new(cpu: Cpu, acts: ActBuf, attn: AttnScratch) -> CpuBackend {
        CpuBackend { cpu, acts, attn }
    }

    /// Runs the ops in order.
    pub fn run(&mut self, ops: &[Op], pass: &mut Pass<'_>) {
        for op in ops {
            self.step(op, pass);
        }
    }

    fn step(&mut self, op: &Op, p: &mut Pass<'_>) {
        let cpu = &self.cpu;
        let (model, n) = (p.model, p.n);
        let file = &model.spec.file;
        match op {
            Op::Embed { table, scale, y } => {
                let (table, tokens) = (file.mat(table), p.tokens);
                let [y] = p.values([*y]);
                for (row, &id) in y.chunks_exact_mut(table.cols).zip(tokens) {
                    quant::dequantize_row(table.ty, table.row(id as usize), row);
                }
                if *scale != 1.0 {
                    ops::scale(cpu, y, *scale);
                }
            }
            Op::RmsNorm { x, w, eps, y } => {
                let [x, y] = p.values([*x, *y]);
                ops::rms_norm(cpu, x, file.vec(w), *eps, y);
            }
            Op::RmsNormInPlace { x, w, eps } => {
                let [x] = p.values([*x]);
                ops::rms_norm_inplace(cpu, x, file.vec(w), *eps);
            }
            Op::Linear { x, outs } => self.linear(*x, outs, p),
            Op::RopeAngles { freqs, y } => {
                let f = &model.spec.graph.freqs[freqs.0];
                let pos0 = p.pos0;
                let [y] = p.values([*y]);
                let angles = ops::Angles {
                    theta_scale: f.theta_scale,
                    divisors: &f.divisors,
                    mscale: f.mscale,
                };
                ops::rope_angles(cpu, angles, pos0, n, y);
            }
            Op::Rope {
                x,
                n_head,
                head_dim,
                kind,
                angles,
            } => {
                let [x, angles] = p.values([*x, *angles]);
                ops::rope(cpu, x, n, *n_head, *head_dim, *kind, angles);
            }
            Op::Attention {
                q,
                k,
                v,
                y,
                n_head,
                kv,
                scale,
            } => {
                let spec = model.spec.graph.kv[kv.0];
                let pos0 = p.pos0;
                let ranges = [*q, *k, *v, *y].map(|v| p.range(v));
                let [q, k, v, y] = p
                    .slab
                    .get_disjoint_mut(ranges)
                    .expect("values of one op do not overlap");
                let (type_k, type_v) = p.kv.types();
                let [k_rows, v_rows] = p.kv.rows_mut(*kv, pos0, n);
                ops::kv_store(cpu, type_k, spec.head_dim_k, k, k_rows);
                ops::kv_store(cpu, type_v, spec.head_dim_v, v, v_rows);
                let [k, v] = p.kv.rows(*kv, pos0, n);
                let attention = ops::Attention {
                    q,
                    n_tokens: n,
                    n_head: *n_head,
                    n_head_kv: spec.n_head_kv,
                    dk: spec.head_dim_k,
                    dv: spec.head_dim_v,
                    k,
                    v,
                    pos0,
                    window: spec.window,
                    scale: *scale,
                };
                ops::attention(cpu, &attention, &mut self.attn, y);
                p.kv.commit(*kv, pos0, n);
            }
            Op::SplitHeads { x, head_dim, a, b } => {
                let [x, a, b] = p.values([*x, *a, *b]);
                let heads = a
                    .chunks_exact_mut(*head_dim)
                    .zip(b.chunks_exact_mut(*head_dim));
                for (x, (a, b)) in x.chunks_exact(2 * head_dim).zip(heads) {
                    a.copy_from_slice(&x[..*head_dim]);
                    b.copy_from_slice(&x[*head_dim..]);
                }
            }
            Op::SiluMul { gate, up } => {
                let [gate, up] = p.values([*gate, *up]);
                ops::silu_mul(cpu, gate, up);
            }
            Op::GeluMul { gate, up } => {
                let [gate, up] = p.values([*gate, *up]);
                ops::gelu_mul(cpu, gate, up);
            }
            Op::SigmoidMul { x, gate } => {
                let [x, gate] = p.values([*x, *gate]);
                ops::sigmoid_mul(cpu, x, gate);
            }
            Op::Add { x, y } => {
                let [x, y] = p.values([*x, *y]);
                ops::add(cpu, x, y);
            }
            Op::Moe { x, moe, y } => self.moe(*x, moe, *y, p),
            Op::CausalConv {
                x,
                w,
                kernel,
                state,
                y,
            } => {
                let state = p.state(*state);
                let ranges = [*x, *y].map(|v| p.range(v));
                let [x, y] = p
                    .slab
                    .get_disjoint_mut(ranges)
                    .expect("values of one op do not overlap");
                ops::causal_conv1d_silu(cpu, x, file.vec(w), *kernel, &mut p.states[state], y);
            }
            Op::DeltaGates { alpha, beta, dt, a } => {
                let [alpha, beta] = p.values([*alpha, *beta]);
                ops::delta_net_gates(cpu, alpha, beta, file.vec(dt), file.vec(a));
            }
            Op::DeltaNet {
                qkv,
                g,
                beta,
                net,
                state,
                y,
            } => {
                let state = p.state(*state);
                let ranges = [*qkv, *g, *beta, *y].map(|v| p.range(v));
                let [qkv, g, beta, y] = p
                    .slab
                    .get_disjoint_mut(ranges)
                    .expect("values of one op do not overlap");
                let args = ops::GatedDeltaNet {
                    qkv,
                    g,
                    beta,
                    n_tokens: n,
                    nk: net.n_head_k,
                    nv: net.n_head_v,
                    d: net.head_dim,
                    eps: net.eps,
                };
                ops::gated_delta_net(cpu, &args, &mut p.states[state], y);
            }
            Op::GatedNorm { x, z, w, eps } => {
                let [x, z] = p.values([*x, *z]);
                ops::gated_norm(cpu, x, z, file.vec(w), *eps);
            }
            Op::TakeRows { x, y } => {
                let width = model.spec.graph.widths[x.0];
                let from = p.layout.offsets[x.0] + p.first_output * width;
                let to = p.layout.offsets[y.0];
                p.slab.copy_within(from..from + n * width, to);
            }
        }
    }

    fn linear(&mut self, x: V, outs: &[crate::model::graph::Output], p: &mut Pass<'_>) {
        /// No architecture feeds more matrices from one input; the graph builder's arrays are of known size.
        const MAX: usize = 4;
        let (file, n) = (&p.model.spec.file, p.n);
        for group in outs.chunks(MAX) {
            let mut ranges: [Range<usize>; MAX + 1] = std::array::from_fn(|_| 0..0);
            ranges[0] = p.range(x);
            for (range, out) in ranges[1..].iter_mut().zip(group) {
                *range = p.range(out.y);
            }
            let [x, ys @ ..] = p
                .slab
                .get_disjoint_mut(ranges)
                .expect("values of one op do not overlap");
            let mut i = 0;
            let mut outs = ys.map(|y| {
                let out = &group[i.min(group.len() - 1)];
                i += 1;
                LinearOut {
                    w: file.mat(&out.w),
                    bias: out.bias.as_ref().map(|b| file.vec(b)),
                    y,
                }
            });
            ops::linear(&self.cpu, &mut self.acts, x, n, &mut outs[..group.len()]);
        }
    }

    /// Each token's experts are chosen, then each expert runs once over the tokens that chose it.
    fn moe(&mut self, x: V, moe: &Moe, y: V, p: &mut Pass<'_>) {
        let (cpu, acts, file, n) = (&self.cpu, &mut self.acts, &p.model.spec.file, p.n);
        let n_embd = p.model.spec.graph.widths[x.0];
        let [x, y, scores, chosen, xs, g, u, ys] =
            p.values([x, y, moe.scores, moe.chosen, moe.xs, moe.g, moe.u, moe.ys]);
        ops::linear(
            cpu,
            acts,
            x,
            n,
            &mut [LinearOut {
                w: file.mat(&moe.router),
                bias: None,
                y: scores,
            }],
        );
        for (scores, chosen) in scores
            .chunks_exact_mut(moe.n_expert)
            .zip(chosen.chunks_exact_mut(2 * moe.n_used))
        {
            choose_experts(scores, chosen);
        }
        y.fill(0.0);
        for e in 0..moe.n_expert {
            // (token, weight) of those that chose this expert; ids are small integers, exact in f32.
            let mine = || {
                chosen
                    .chunks_exact(2 * moe.n_used)
                    .enumerate()
                    .filter_map(move |(t, c)| {
                        c.chunks_exact(2)
                            .find(|c| c[0] == e as f32)
                            .map(|c| (t, c[1]))
                    })
            };
            let mut m = 0;
            for (t, _) in mine() {
                xs[m * n_embd..][..n_embd].copy_from_slice(&x[t * n_embd..][..n_embd]);
                m += 1;
            }
            if m == 0 {
                continue;
            }
            let [gate, up, down] =
                [moe.gate, moe.up, moe.down].map(|w| file.mat(&w.expert(e, moe.n_expert)));
            let (g, u, ys) = (
                &mut g[..m * moe.n_ff],
                &mut u[..m * moe.n_ff],
                &mut ys[..m * n_embd],
            );
            let mut outs = [
                LinearOut {
                    w: gate,
                    bias: None,
                    y: g,
                },
                LinearOut {
                    w: up,
                    bias: None,
                    y: u,
                },
            ];
            ops::linear(cpu, acts, &xs[..m * n_embd], m, &mut outs);
            ops::silu_mul(cpu, g, u);
            ops::linear(
                cpu,
                acts,
                g,
                m,
                &mut [LinearOut {
                    w: down,
                    bias: None,
                    y: ys,
                }],
            );
            for ((t, weight), row) in mine().zip(ys.chunks_exact(n_embd)) {
                for (y, r) in y[t * n_embd..][..n_embd].iter_mut().zip(row) {
                    *y += weight * r;
                }
            }
        }
    }
}

/// Softmax over all experts, the best `chosen.len() / 2` of them, their weights renormalised to sum 1.
/// Writes pairs (expert, weight); destroys `scores`.
fn choose_experts(scores: &mut [f32], chosen: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|s| *s = (*s - max).exp());
    let mut sum = 0.0;
    for pair in chosen.chunks_exact_mut(2) {
        let mut best = 0;
        for e in 1..scores.len() {
            if scores[e] > scores[best] {
                best = e;
            }
        }
        pair.copy_from_slice(&[best as f32, scores[best]]);
        sum += scores[best];
        scores[best] = -1.0;
    }
    chosen.chunks_exact_mut(2).for_each(|pair| pair[1] /= sum);
}

#[cfg(test)]
mod tests {
    use super::choose_experts;

    #[test]
    fn experts_are_the_best_and_their_weights_sum_to_one() {
        let mut scores = [0.0, 2.0, -1.0, 1.0];
        let mut chosen = [0.0; 4];
        choose_experts(&mut scores, &mut chosen);
        assert_eq!((chosen[0], chosen[2]), (1.0, 3.0));
        let (e2, e1) = (2f32.exp(), 1f32.exp());
        assert!(
            (chosen[1] - e2 / (e1 + e2)).abs() < 1e-6 && (chosen[1] + chosen[3] - 1.0).abs() < 1e-6
        );
    }
}
