//! The char-level GPT: pre-norm blocks, causal attention, exact GELU, tied head, no biases.

use crate::dtype::DType;
use crate::graph::{Graph, Program, Tx, Type};
use crate::kernels::histogram::BINS;
use crate::ops::Op;
use crate::passes::autocast::{Policy, autocast};
use crate::passes::scaling::{ScaledGrads, ScaledLoss, Scaling};
use std::collections::HashMap;

pub use super::weight::{DIGEST_STATE, Init, Weight};
use super::weight::{adamw, digest};

/// Epsilon of the norms, PyTorch's default.
pub const EPS: f32 = 1e-5;

/// The model's extents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CharGpt {
    /// Distinct characters.
    pub vocab: usize,
    /// Context length.
    pub block: usize,
    /// Blocks.
    pub n_layer: usize,
    /// Attention heads.
    pub n_head: usize,
    /// Width.
    pub n_embd: usize,
}

/// What a training program is built for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TrainOptions {
    /// Sequences a step.
    pub batch: usize,
    /// Largest norm of the gradient; 0: not clipped.
    pub clip: f32,
    /// Whether every gradient is an output.
    pub dump_grads: bool,
    /// Whether the magnitudes of every gradient are counted, by the input `edges`.
    pub histogram: bool,
    /// Whether weights and moments are digested after the update, into the state [`DIGEST_STATE`].
    pub digest: bool,
    /// Precision.
    pub policy: Policy,
    /// Loss scaling, of a policy that is `scaled`.
    pub scaling: Option<Scaling>,
    /// Micro-batches a step, each of `batch` sequences. With more than one, [`CharGpt::micro_program`]
    /// runs for each of them, then the training program for all.
    pub accumulate: usize,
}

/// How a block computes what training and generation do differently.
pub(super) struct Means<'a, 'g> {
    /// (x[n, k], w[m, k]) -> [n, m].
    pub product: &'a dyn Fn(Tx<'g>, Tx<'g>) -> Tx<'g>,
    /// (number of the block, qkv[n, 3c]) -> [n, c].
    pub attend: &'a dyn Fn(usize, Tx<'g>) -> Tx<'g>,
}

impl CharGpt {
    /// The weights, in PyTorch's order. The head is the token table.
    pub fn weights(&self) -> Vec<Weight> {
        let c = self.n_embd;
        let w = |name: String, dims: &[usize], init| Weight {
            name,
            dims: dims.to_vec(),
            init,
        };
        let mut out = vec![
            w("tok.weight".into(), &[self.vocab, c], Init::Normal),
            w("pos.weight".into(), &[self.block, c], Init::Normal),
        ];
        for i in 0..self.n_layer {
            let p = |part: &str| format!("blocks.{i}.{part}.weight");
            out.push(w(p("ln1"), &[c], Init::Ones));
            out.push(w(p("attn"), &[3 * c, c], Init::Normal));
            out.push(w(p("proj"), &[c, c], Init::Normal));
            out.push(w(p("ln2"), &[c], Init::Ones));
            out.push(w(p("fc"), &[4 * c, c], Init::Normal));
            out.push(w(p("fc_proj"), &[c, 4 * c], Init::Normal));
        }
        out.push(w("ln_f.weight".into(), &[c], Init::Ones));
        out
    }

    /// The names of the model's parts, as nodes bear them.
    pub fn places(&self) -> Vec<String> {
        let parts = ["ln1", "attn", "proj", "ln2", "fc", "fc_proj"];
        let block = |i: usize| parts.map(|p| format!("blocks.{i}.{p}"));
        let mut out = vec!["embed".to_string()];
        out.extend((0..self.n_layer).flat_map(block));
        out.extend(["ln_f", "head", "loss"].map(String::from));
        out
    }

    /// Number of parameters; the tied table counts once.
    pub fn parameters(&self) -> u128 {
        let [v, t, l, c] = [self.vocab, self.block, self.n_layer, self.n_embd].map(|x| x as u128);
        v * c + t * c + l * (12 * c * c + 2 * c) + c
    }

    /// Bytes that training surely needs (weights, gradients, moments, the activations that the backward
    /// pass reads), from the extents alone: told before a graph is built.
    pub fn least_bytes(&self, batch: usize) -> u128 {
        let [v, t, l, c] = [self.vocab, self.block, self.n_layer, self.n_embd].map(|x| x as u128);
        let n = batch as u128 * t;
        let activations = n * (l * 14 * c + 2 * v + 2 * c);
        4 * (4 * self.parameters() + activations)
    }

    /// Initial weights: a function of the seed, the weight's place and the element.
    pub fn initial(&self, seed: u64) -> Vec<(String, Vec<f32>)> {
        let each = self.weights().into_iter().enumerate();
        let each = each.map(|(i, w)| (w.name.clone(), w.draw(seed, i)));
        each.collect()
    }

    pub(super) fn declare<'g>(&self, g: &'g Graph, policy: &Policy) -> HashMap<String, Tx<'g>> {
        let state = |w: &Weight| g.state(&w.name, Type::new(&w.dims, policy.storage));
        self.weights()
            .iter()
            .map(|w| (w.name.clone(), state(w)))
            .collect()
    }

    /// (idx[b*t], target[b*t]) -> logits [b*t, v] and mean loss, a scalar. Shapes on the right are of the
    /// value on the left.
    /// The mean is over the tokens of `parts` such batches.
    fn forward<'g>(
        &self,
        g: &'g Graph,
        w: &HashMap<String, Tx<'g>>,
        batch: usize,
        parts: usize,
    ) -> (Tx<'g>, Tx<'g>) {
        let (b, t, c) = (batch, self.block, self.n_embd);
        let n = b * t;
        let idx = g.input("idx", Type::new(&[n], DType::U32));
        let target = g.input("target", Type::new(&[n], DType::U32));
        let mut x = g.scope("embed", || {
            let tok = w["tok.weight"].op(Op::Gather, &[idx]).reshape(&[b, t, c]); // [b,t,c]
            (tok + w["pos.weight"]).reshape(&[n, c]) // [n,c]
        });
        let means = Means {
            product: &|x, w| x.matmul(w, false, true),
            attend: &|_, qkv| {
                qkv.reshape(&[b, t, 3 * c])
                    .op(Op::Attention(self.n_head as u32), &[])
                    .reshape(&[n, c])
            },
        };
        for i in 0..self.n_layer {
            x = g.scope(&format!("blocks.{i}"), || self.block(g, w, i, x, &means));
        }
        let x = norm(g, "ln_f", x, w["ln_f.weight"]); // [n,c]
        let logits = g.scope("head", || x.matmul(w["tok.weight"], false, true)); // [n,v]
        let loss = g.scope("loss", || {
            let rows = logits.op(Op::Xent, &[target]); // [n]
            rows.sum_all() * rows.constant(1.0 / (n * parts) as f32)
        });
        (logits, loss)
    }

    /// One block: x[n, c] -> [n, c].
    pub(super) fn block<'g>(
        &self,
        g: &'g Graph,
        w: &HashMap<String, Tx<'g>>,
        i: usize,
        x: Tx<'g>,
        by: &Means<'_, 'g>,
    ) -> Tx<'g> {
        let weight = |part: &str| w[&format!("blocks.{i}.{part}.weight")];
        let h = norm(g, "ln1", x, weight("ln1")); // [n,c]
        let y = g.scope("attn", || {
            let qkv = (by.product)(h, weight("attn")); // [n,3c]
            (by.attend)(i, qkv) // [n,c]
        });
        let x = g.scope("proj", || x + (by.product)(y, weight("proj"))); // [n,c]
        let h = norm(g, "ln2", x, weight("ln2")); // [n,c]
        let h = g.scope("fc", || (by.product)(h, weight("fc")).gelu()); // [n,4c]
        g.scope("fc_proj", || x + (by.product)(h, weight("fc_proj"))) // [n,c]
    }

    /// The program of a training step. Inputs `idx`, `target` (where it is not accumulated), `hyper`; outputs `loss`, `grad_norm` and,
    /// on request, every gradient as `grad.<weight>`; updates weights and moments.
    ///
    /// # Errors
    /// An operation that cannot be differentiated.
    pub fn train_program(&self, o: &TrainOptions) -> Result<Program, String> {
        let graph = Graph::new();
        let (outputs, updates) = {
            let g = &graph;
            let w = self.declare(g, &o.policy);
            let weights: Vec<Tx> = self.weights().iter().map(|x| w[&x.name]).collect();
            let scaled = match o.accumulate {
                0 | 1 => self.scaled_grads(g, &w, o)?,
                _ => {
                    let names = self.weights();
                    let types = names.iter().zip(&weights);
                    let types: Vec<_> = types.map(|(x, w)| (x.name.as_str(), w.ty())).collect();
                    ScaledGrads::accumulated(g, &types, o.scaling)
                }
            };
            let loss = scaled.loss();
            let clipped = scaled.unscale(g).clip(g, o.clip);
            let edges = o
                .histogram
                .then(|| g.input("edges", Type::f32(&[BINS + 1])));
            let ready = clipped.step_or_skip(g, o.policy.rounding);
            let mut outputs = vec![
                ("loss".to_string(), loss.id),
                ("grad_norm".to_string(), ready.norm.id),
            ];
            if (o.scaling.is_some() || o.dump_grads) && o.clip != 0.0 {
                outputs.push(("clip_factor".into(), ready.factor.id));
            }
            let (mut updates, mut updated) = (ready.updates.clone(), Vec::new());
            let each = self
                .weights()
                .into_iter()
                .zip(weights.iter().zip(&ready.grads));
            for (tensor, (weight, (&w, &grad))) in each.enumerate() {
                let of = (tensor, &weight);
                for (index, new) in adamw(g, &o.policy, of, (w, grad), &ready) {
                    updates.push((index, new.id));
                    updated.push(new);
                }
                if let Some(edges) = edges {
                    let counts = grad.f32().op(Op::Histogram, &[edges]);
                    outputs.push((format!("histogram.{}", weight.name), counts.id));
                }
                if o.dump_grads {
                    outputs.push((format!("grad.{}", weight.name), grad.id));
                }
            }
            if o.digest {
                updates.push(digest(g, &updated));
            }
            (outputs, updates)
        };
        Ok(Program {
            graph,
            outputs,
            updates,
        })
    }

    /// Loss and gradients of a batch, or of one micro-batch.
    fn scaled_grads<'g>(
        &self,
        g: &'g Graph,
        w: &HashMap<String, Tx<'g>>,
        o: &TrainOptions,
    ) -> Result<ScaledGrads<'g>, String> {
        let weights: Vec<Tx> = self.weights().iter().map(|x| w[&x.name]).collect();
        let (_, loss) = self.forward(g, w, o.batch, o.accumulate.max(1));
        let loss = g.tx(autocast(g, &o.policy, &[loss.id])[0]);
        ScaledLoss::new(g, loss, o.scaling).backward(g, &weights)
    }

    /// The program of one micro-batch of a step with several: inputs `idx`, `target`, `goes_on` (0 for the
    /// first one, else 1); adds its part of the loss and of the gradients to states, in f32.
    ///
    /// # Errors
    /// An operation that cannot be differentiated.
    pub fn micro_program(&self, o: &TrainOptions) -> Result<Program, String> {
        let graph = Graph::new();
        let updates = {
            let w = self.declare(&graph, &o.policy);
            let names: Vec<String> = self.weights().into_iter().map(|x| x.name).collect();
            self.scaled_grads(&graph, &w, o)?.accumulate(&graph, &names)
        };
        Ok(Program {
            graph,
            outputs: vec![],
            updates,
        })
    }

    /// The program of an evaluation: inputs `idx`, `target`; output `loss`.
    pub fn eval_program(&self, batch: usize, policy: &Policy) -> Program {
        let mut p = self.compare_program(batch, policy);
        p.outputs.truncate(1);
        p
    }

    /// As [`CharGpt::eval_program`], with a second output `logits`, f32[batch * block, vocab].
    pub fn compare_program(&self, batch: usize, policy: &Policy) -> Program {
        let graph = Graph::new();
        let outputs = {
            let w = self.declare(&graph, policy);
            let (logits, loss) = self.forward(&graph, &w, batch, 1);
            let ids = autocast(&graph, policy, &[loss.id, logits.id]);
            let logits = graph.tx(ids[1]).f32().id;
            vec![("loss".into(), ids[0]), ("logits".into(), logits)]
        };
        Program {
            graph,
            outputs,
            updates: vec![],
        }
    }

    /// The program that digests all weights and moments into the state [`DIGEST_STATE`].
    pub fn digest_program(&self, policy: &Policy) -> Program {
        let graph = Graph::new();
        let update = {
            let mut tensors = Vec::new();
            for w in self.weights() {
                let ty = Type::new(&w.dims, policy.storage);
                let names = w.states(policy);
                tensors.extend(names.iter().map(|name| graph.state(name, ty)));
            }
            digest(&graph, &tensors)
        };
        Program {
            graph,
            outputs: vec![],
            updates: vec![update],
        }
    }
}

pub(super) fn norm<'g>(g: &'g Graph, name: &str, x: Tx<'g>, gain: Tx<'g>) -> Tx<'g> {
    g.scope(name, || x.op(Op::LayerNorm(EPS.to_bits()), &[gain]))
}
