//! The end of a plan: what the host reads, and the new values of states, in place where a kernel can.

use super::Lower;
use crate::graph::{Graph, Node, NodeId, Program};
use crate::kernels::cache::PUT_ROWS;
use crate::ops::{self, AdamPart, Op, optim};
use crate::plan::{BufId, Class};

/// Whether the new value of a state is written over the old one by its own kernel, with no copy.
pub(super) fn in_place(g: &Graph, state: u32, id: NodeId) -> bool {
    let node = g.node(id);
    match node.op {
        Op::AdamW(_) | Op::AdamWLow(..) | Op::Digest => true,
        Op::PutRows => g.node(node.src[0]).op == Op::State(state),
        _ => false,
    }
}

impl Lower<'_> {
    pub(super) fn outputs(&mut self, p: &Program) {
        for (name, id) in &p.outputs {
            let from = self.buf(*id);
            let b = &mut self.plan.bufs[from.0 as usize];
            if b.class == Class::Temp {
                (b.class, b.name) = (Class::Output, name.clone());
            } else {
                let to = self.new_buf(self.g.ty(*id), Class::Output, name.clone());
                self.copy_to_buf(from, to, name);
            }
        }
    }

    pub(super) fn updates(&mut self, p: &Program) {
        let states = self.g.states();
        // Values that are themselves states are saved first, so that updates may swap states.
        let mut writes = Vec::new();
        let mut digests = Vec::new();
        for &(s, id) in &p.updates {
            let node = self.g.node(id);
            match node.op {
                Op::Digest => digests.push(node),
                Op::AdamW(AdamPart::W) | Op::AdamWLow(_, AdamPart::W) => {
                    self.adamw_in_place(p, &node)
                }
                Op::AdamW(_) | Op::AdamWLow(..) => {}
                Op::PutRows if in_place(self.g, s, id) => self.put_rows_in_place(&node),
                _ => {
                    let mut from = self.buf(id);
                    if self.plan.buf(from).class == Class::State {
                        let saved = self.scratch(node.ty, "update");
                        self.copy_to_buf(from, saved, "update");
                        from = saved;
                    }
                    writes.push((from, s));
                }
            }
        }
        for (from, s) in writes {
            let leaf = &states[s as usize];
            let to = self.state_buf(&leaf.name, leaf.ty);
            self.copy_to_buf(from, to, &leaf.name);
        }
        // Of the states as they are now.
        digests.iter().for_each(|node| self.digest_in_place(node));
    }

    fn digest_in_place(&mut self, node: &Node) {
        let here = |&id: &NodeId| match self.g.node(id) {
            // The optimizer has left its result in the state's own buffer.
            Node {
                op: Op::AdamW(part) | Op::AdamWLow(_, part),
                src,
                ..
            } => src[part as usize],
            _ => id,
        };
        let tensors: Vec<NodeId> = node.src[1..].iter().map(here).collect();
        let bufs: Vec<BufId> = tensors.iter().map(|&id| self.buf(id)).collect();
        let out = self.buf(node.src[0]);
        ops::digest::steps(self, &tensors, &bufs, out);
    }

    fn put_rows_in_place(&mut self, node: &Node) {
        let [cache, x, at] = node.src[..] else {
            panic!("rows go into a cache at positions")
        };
        let p = ops::cache::put_params(self.ty(x), self.ty(cache));
        let reads = [self.buf(x), self.buf(at)];
        let to = self.buf(cache);
        let label = self.plan.buf(to).name.clone();
        self.step(&PUT_ROWS, p, &reads, &[to], &label);
    }

    fn adamw_in_place(&mut self, p: &Program, node: &Node) {
        let u = optim::update(&node.op, node.ty.shape.elems()).expect("an update");
        for (part, &state) in u.parts.iter().zip(&node.src) {
            let expected = self.g.add(part.clone(), &node.src);
            let Op::State(i) = self.g.node(state).op else {
                panic!("AdamW updates states only")
            };
            assert!(
                p.updates.contains(&(i, expected)),
                "AdamW's results update their own states"
            );
        }
        let (states, others) = node.src.split_at(u.parts.len());
        let reads: Vec<BufId> = others.iter().map(|&s| self.buf(s)).collect();
        let writes: Vec<BufId> = states.iter().map(|&s| self.buf(s)).collect();
        let label = self.plan.buf(writes[0]).name.clone();
        self.origin.op = ops::def(&node.op).name.to_string();
        self.step(u.kernel, u.params, &reads, &writes, &label);
    }
}
