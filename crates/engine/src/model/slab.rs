//! Where each value lies in the forward slab: values whose lives do not overlap share bytes.

use super::graph::Graph;

/// Every value starts on a cache line.
const ALIGN: usize = 16;

/// Offsets of the values of a graph, for chunks of up to `n_ubatch` rows.
pub struct SlabLayout {
    /// Start of each value, in floats.
    pub offsets: Vec<usize>,
    /// Floats in all.
    pub len: usize,
}

impl SlabLayout {
    /// First-fit over the values in the order they are born.
    pub fn new(graph: &Graph, n_ubatch: usize, n_outputs: usize) -> SlabLayout {
        let n_values = graph.widths.len();
        let mut birth = vec![usize::MAX; n_values];
        let mut death = vec![0; n_values];
        let mut rows = vec![n_ubatch; n_values];
        let ops = || graph.body.iter().chain(&graph.head);
        for (t, op) in ops().enumerate() {
            op.values(&mut |v| {
                birth[v.0] = birth[v.0].min(t);
                death[v.0] = t;
                // Values that only the head touches hold only the rows whose logits are wanted.
                if birth[v.0] >= graph.body.len() {
                    rows[v.0] = n_outputs;
                }
            });
        }
        // The head may run several times over the same hidden rows, and the caller reads the logits after it.
        for v in graph.hidden.iter().chain(&graph.logits) {
            death[v.0] = usize::MAX;
        }
        let mut order: Vec<usize> = (0..n_values).filter(|&v| birth[v] != usize::MAX).collect();
        order.sort_by_key(|&v| birth[v]);
        let mut offsets = vec![0; n_values];
        let mut live: Vec<(usize, usize, usize)> = Vec::new(); // (offset, len, death), by offset
        let mut total = 0;
        for v in order {
            live.retain(|&(_, _, end)| end >= birth[v]);
            let len = (graph.widths[v] * rows[v]).next_multiple_of(ALIGN);
            let mut at = 0;
            let mut place = 0;
            for &(offset, n, _) in &live {
                if at + len <= offset {
                    break;
                }
                at = at.max(offset + n);
                place += 1;
            }
            live.insert(place, (at, len, death[v]));
            offsets[v] = at;
            total = total.max(at + len);
        }
        SlabLayout {
            offsets,
            len: total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::graph::{Op, V};

    /// `n` values in a chain `v[i+1] += v[i]`, of the given widths.
    fn chain(widths: &[usize]) -> Graph {
        let body = (1..widths.len())
            .map(|i| Op::Add {
                x: V(i),
                y: V(i - 1),
            })
            .collect();
        Graph {
            body,
            widths: widths.to_vec(),
            ..Graph::default()
        }
    }

    fn overlap(layout: &SlabLayout, graph: &Graph, op: &Op, n: usize) -> bool {
        let mut spans = Vec::new();
        op.values(&mut |v| spans.push((layout.offsets[v.0], graph.widths[v.0] * n)));
        (0..spans.len()).any(|a| {
            (0..a).any(|b| {
                spans[a].0 < spans[b].0 + spans[b].1 && spans[b].0 < spans[a].0 + spans[a].1
            })
        })
    }

    proptest::proptest! {
        #[test]
        fn values_of_one_op_never_overlap(widths in proptest::collection::vec(1usize..50, 2..40), n in 1usize..9) {
            let graph = chain(&widths);
            let layout = SlabLayout::new(&graph, n, 1);
            for op in &graph.body {
                proptest::prop_assert!(!overlap(&layout, &graph, op, n));
            }
        }
    }

    #[test]
    fn dead_values_are_reused() {
        let layout = SlabLayout::new(&chain(&[64; 100]), 1, 1);
        assert!(layout.len <= 3 * 64, "{}", layout.len);
    }
}
