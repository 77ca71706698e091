//! What a forward pass reads of the file: which tensors, and how many bytes a step.

use super::file::{MatRef, VecRef};
use super::graph::{Graph, Op};

impl Graph {
    fn ops(&self) -> impl Iterator<Item = &Op> {
        self.body.iter().chain(&self.head)
    }

    /// Every matrix of the pass in the order of its use, the embedding table first.
    pub fn matrices(&self) -> impl Iterator<Item = MatRef> {
        self.ops().flat_map(|op| match op {
            Op::Embed { table, .. } => vec![*table],
            Op::Linear { outs, .. } => outs.iter().map(|o| o.w).collect(),
            Op::Moe { moe, .. } => vec![moe.router, moe.gate, moe.up, moe.down],
            _ => Vec::new(),
        })
    }

    /// Every vector of the pass in the order of its use.
    pub fn vectors(&self) -> impl Iterator<Item = VecRef> {
        self.ops().flat_map(|op| match op {
            Op::RmsNorm { w, .. }
            | Op::RmsNormInPlace { w, .. }
            | Op::CausalConv { w, .. }
            | Op::GatedNorm { w, .. } => vec![*w],
            Op::Linear { outs, .. } => outs.iter().filter_map(|o| o.bias).collect(),
            Op::DeltaGates { dt, a, .. } => vec![*dt, *a],
            _ => Vec::new(),
        })
    }

    /// Bytes of the file that passes read whole: every matrix and vector once, the embedding table only where a product
    /// reads it too, and no tensor that the pass does not use.
    pub fn read_bytes(&self) -> u64 {
        let mut matrices: Vec<MatRef> = Vec::new();
        for m in self.matrices().filter(|m| !self.is_table_only(m)) {
            if !matrices.contains(&m) {
                matrices.push(m);
            }
        }
        let vectors: usize = self.vectors().map(|v| 4 * v.len).sum();
        matrices.iter().map(|m| m.n_bytes() as u64).sum::<u64>() + vectors as u64
    }

    /// Bytes of weights that one decode step reads: every matrix once, the chosen experts of a layer, a row of the
    /// embedding table (which counts as nothing).
    pub fn step_bytes(&self) -> u64 {
        let of = |op: &Op| match op {
            Op::Linear { outs, .. } => outs.iter().map(|o| o.w.n_bytes() as u64).sum(),
            Op::Moe { moe, .. } => {
                let experts: u64 = [moe.gate, moe.up, moe.down]
                    .iter()
                    .map(|m| m.n_bytes() as u64)
                    .sum();
                moe.router.n_bytes() as u64 + experts / moe.n_expert as u64 * moe.n_used as u64
            }
            _ => 0,
        };
        self.ops().map(of).sum()
    }

    /// Multiply-adds of weights that a token takes in the body, and a row of logits in the head.
    pub fn step_macs(&self) -> [u64; 2] {
        let of = |op: &Op| match op {
            Op::Linear { outs, .. } => outs.iter().map(|o| (o.w.rows * o.w.cols) as u64).sum(),
            Op::Moe { moe, .. } => {
                let experts = [moe.gate, moe.up, moe.down].map(|m| (m.rows * m.cols) as u64);
                let chosen = experts.iter().sum::<u64>() / moe.n_expert as u64 * moe.n_used as u64;
                chosen + (moe.router.rows * moe.router.cols) as u64
            }
            _ => 0,
        };
        [&self.body, &self.head].map(|ops| ops.iter().map(of).sum())
    }

    /// Largest input width of any matrix: what the quantised activations of one row must hold.
    pub fn max_cols(&self) -> usize {
        let products = self.matrices().filter(|m| !self.is_table_only(m));
        products.map(|m| m.cols).max().unwrap_or(0)
    }

    /// The embedding table where no product reads it, so that a step touches one row of it a token.
    pub fn sparse_table(&self) -> Option<MatRef> {
        self.matrices().find(|m| self.is_table_only(m))
    }

    fn is_table_only(&self, m: &MatRef) -> bool {
        let of = |op: &Op| match op {
            Op::Embed { table, .. } => Some(*table),
            _ => None,
        };
        let is_product = |op: &Op| match op {
            Op::Linear { outs, .. } => outs.iter().any(|o| o.w == *m),
            _ => false,
        };
        self.body.iter().find_map(of) == Some(*m) && !self.ops().any(is_product)
    }
}
