//! The model's programs for generation: logits of whole sequences, and of rows that follow cached ones.
//!
//! A row's logits have the same bits in both, however many rows are computed together: no sum runs over
//! rows, products are [`Op::Linear`], and attention's blocks of keys are counted from position 0.
//!
//! Both read the matrices made ready: in the type of the operands, and transposed, so that a single row's
//! product reads memory as it lies. [`CharGpt::ready_program`] makes them once.

use super::char_gpt::{CharGpt, Means, norm};
use crate::dtype::DType;
use crate::graph::{Graph, NodeId, Program, Tx, Type};
use crate::ops::Op;
use crate::passes::autocast::{Policy, autocast};
use std::cell::RefCell;
use std::collections::HashMap;

impl CharGpt {
    /// Name of the state that holds a block's cache, [block, 3 * n_embd] in the policy's low type.
    pub fn cache(layer: usize) -> String {
        format!("cache.{layer}")
    }

    /// Name of the state that holds a matrix made ready for generation: the weight `[n, k]` as `[k, n]` in
    /// the policy's low type.
    pub fn ready(weight: &str) -> String {
        format!("ready.{weight}")
    }

    /// The program that makes the matrices ready; run once after the weights are written.
    pub fn ready_program(&self, policy: &Policy) -> Program {
        let graph = Graph::new();
        let updates = {
            let g = &graph;
            let w = self.declare(g, policy);
            let matrices = self.weights().into_iter().filter(|x| is_product(&x.name));
            let each = matrices.map(|x| {
                let state = declare_ready(g, w[&x.name], &x.name, policy);
                let Op::State(index) = state.node().op else {
                    unreachable!("declared as a state")
                };
                let low = state.ty().dtype;
                (index, w[&x.name].permute(&[1, 0]).cast(low).id)
            });
            each.collect()
        };
        Program {
            graph,
            outputs: vec![],
            updates,
        }
    }

    /// The program of the logits of whole sequences: inputs `idx` and `at` (each position's number, from 0
    /// in each sequence), both u32[batch * length]; output `logits` f32[batch * length, vocab].
    pub fn logits_program(&self, batch: usize, length: usize, policy: &Policy) -> Program {
        let (n, c, heads) = (batch * length, self.n_embd, self.n_head as u32);
        let graph = Graph::new();
        let logits = {
            let w = self.declare(&graph, policy);
            let logits = self.rows(&graph, &w, policy, n, &|_, qkv, _| {
                qkv.reshape(&[batch, length, 3 * c])
                    .op(Op::Attention(heads), &[])
                    .reshape(&[n, c])
            });
            let id = autocast(&graph, policy, &[logits.id])[0];
            graph.tx(id).f32().id
        };
        Program {
            graph,
            outputs: vec![("logits".into(), logits)],
            updates: vec![],
        }
    }

    /// The program of the logits of `rows` positions that follow cached ones: inputs `idx` and `at` (their
    /// positions, ascending by one), both u32[rows]; output `logits` f32[rows, vocab]. The rows go into the
    /// caches. Those at positions past the block are not kept, and their logits have no meaning.
    pub fn follow_program(&self, rows: usize, policy: &Policy) -> Program {
        let graph = Graph::new();
        let (outputs, updates) = {
            let g = &graph;
            let w = self.declare(g, policy);
            let kept: RefCell<Vec<(u32, Tx)>> = RefCell::default();
            let logits = self.rows(g, &w, policy, rows, &|layer, qkv, at| {
                let low = policy.low_at("attention", &format!("blocks.{layer}.attn"));
                let ty = Type::new(&[self.block, 3 * self.n_embd], low);
                let cache = g.state(&CharGpt::cache(layer), ty);
                let Op::State(index) = cache.node().op else {
                    unreachable!("declared as a state")
                };
                let (ty, qkv) = (qkv.ty(), narrowed(qkv, low));
                kept.borrow_mut()
                    .push((index, cache.op(Op::PutRows, &[qkv, at])));
                qkv.op(Op::AttentionCached(self.n_head as u32), &[cache, at])
                    .cast(ty.dtype)
            });
            let kept = kept.into_inner();
            let wanted: Vec<_> = std::iter::once(logits.id)
                .chain(kept.iter().map(|k| k.1.id))
                .collect();
            let ids = autocast(g, policy, &wanted);
            let states = kept.iter().map(|k| k.0);
            (
                vec![("logits".into(), g.tx(ids[0]).f32().id)],
                states.zip(ids[1..].iter().copied()).collect(),
            )
        };
        Program {
            graph,
            outputs,
            updates,
        }
    }

    /// (idx[n], at[n]) -> logits [n, v], given how a block's rows of q, k, v become those of its attention:
    /// (number of the block, qkv[n, 3c], at) -> [n, c].
    fn rows<'g>(
        &self,
        g: &'g Graph,
        w: &HashMap<String, Tx<'g>>,
        policy: &Policy,
        n: usize,
        attend: &dyn Fn(usize, Tx<'g>, Tx<'g>) -> Tx<'g>,
    ) -> Tx<'g> {
        let matrices = self.weights().into_iter().filter(|x| is_product(&x.name));
        let ready: HashMap<NodeId, Tx> = matrices
            .map(|x| (w[&x.name].id, declare_ready(g, w[&x.name], &x.name, policy)))
            .collect();
        let product = |x: Tx<'g>, w: Tx<'g>| {
            let ready = ready[&w.id];
            let y = narrowed(x, ready.ty().dtype).op(Op::Linear, &[ready]);
            y.cast(x.ty().dtype)
        };
        let idx = g.input("idx", Type::new(&[n], DType::U32));
        let at = g.input("at", Type::new(&[n], DType::U32));
        let mut x = g.scope("embed", || {
            w["tok.weight"].op(Op::Gather, &[idx]) + w["pos.weight"].op(Op::Gather, &[at])
        });
        let means = Means {
            product: &product,
            attend: &|layer, qkv| attend(layer, qkv, at),
        };
        for i in 0..self.n_layer {
            x = g.scope(&format!("blocks.{i}"), || self.block(g, w, i, x, &means));
        }
        let x = norm(g, "ln_f", x, w["ln_f.weight"]);
        g.scope("head", || product(x, w["tok.weight"]))
    }
}

/// A value in a type of operands; of one that was widened from it, what it was.
fn narrowed<'g>(x: Tx<'g>, low: DType) -> Tx<'g> {
    let node = x.node();
    match node.op {
        Op::Cast(DType::F32) if x.src(0).ty().dtype == low => x.src(0),
        _ => x.cast(low),
    }
}

/// Whether a weight is an operand of a product.
fn is_product(name: &str) -> bool {
    !name.contains("ln") && name != "pos.weight"
}

fn declare_ready<'g>(g: &'g Graph, w: Tx<'g>, name: &str, policy: &Policy) -> Tx<'g> {
    let dims = w.shape().dims();
    // The token table is the head's matrix.
    let place = match name {
        "tok.weight" => "head",
        other => other.trim_end_matches(".weight"),
    };
    let low = policy.low_at("matmul", place);
    g.state(&CharGpt::ready(name), Type::new(&[dims[1], dims[0]], low))
}
