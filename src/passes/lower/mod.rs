//! From graph to plan: every live node becomes kernel steps over buffers.
//!
//! Constants, reshapes and broadcasts make no step of their own: a pointwise user reads a constant from
//! its expression and a broadcast by (i / div) % len; a reshape is an alias. They are materialised only
//! for users that cannot read them so. Updates of states come last, in place, after every read.

mod updates;

use crate::dtype::DType;
use crate::graph::{Graph, Node, NodeId, Phase, Program, Type};
use crate::kernels::pointwise::{Expr, POINTWISE, params};
use crate::kernels::{KernelDef, Params, copy};
use crate::ops::{self, Numeric, Op};
use crate::plan::{Buf, BufId, Class, Origin, Plan, Step};
use std::collections::{HashMap, HashSet};
use updates::in_place;

/// How a pointwise kernel reads an operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operand {
    /// Element `(i / div) % len` of a buffer.
    Buf {
        /// The buffer.
        buf: BufId,
        /// Divisor of the output's index.
        div: usize,
        /// Elements that repeat.
        len: usize,
    },
    /// A constant, as bits.
    Const(u32),
}

impl Operand {
    /// Whether it needs a binding.
    pub fn is_buf(&self) -> bool {
        matches!(self, Operand::Buf { .. })
    }
}

/// The state of lowering, which operations' rules write through.
pub struct Lower<'g> {
    g: &'g Graph,
    plan: Plan,
    bufs: HashMap<NodeId, BufId>,
    /// What the steps to come belong to.
    origin: Origin,
}

/// Lowers a program. Slots are not assigned yet: each buffer has its own.
pub fn lower(name: &str, p: &Program) -> Plan {
    let plan = Plan {
        name: name.into(),
        ..Plan::default()
    };
    let mut lw = Lower {
        g: &p.graph,
        plan,
        bufs: HashMap::new(),
        origin: Origin::default(),
    };
    let live = p.graph.live(&p.roots());
    lw.leaves(&live);
    let done_in_place: HashSet<NodeId> = p
        .updates
        .iter()
        .filter(|&&(s, id)| in_place(&p.graph, s, id))
        .map(|u| u.1)
        .collect();
    for &id in &live {
        if !done_in_place.contains(&id) && !lw.bufs.contains_key(&id) {
            lw.lower(id);
        }
    }
    lw.origin = Origin {
        phase: Phase::Update,
        ..Origin::default()
    };
    lw.outputs(p);
    lw.updates(p);
    for (i, b) in lw.plan.bufs.iter_mut().enumerate() {
        b.slot = i;
    }
    lw.plan.slots = lw.plan.bufs.iter().map(|b| b.words()).collect();
    lw.plan
}

impl<'g> Lower<'g> {
    /// Lowers a node by its operation's rule.
    fn lower(&mut self, id: NodeId) {
        let node = self.g.node(id);
        let def = ops::def(&node.op);
        let own = Origin {
            op: def.name.to_string(),
            phase: self.g.phase_of(id),
            low: ops::numeric(&node.op) == Numeric::Low,
            shape: Some(node.ty.shape),
        };
        let before = std::mem::replace(&mut self.origin, own);
        (def.lower)(self, id);
        self.origin = before;
    }

    fn leaves(&mut self, live: &[NodeId]) {
        let (states, inputs) = (self.g.states(), self.g.inputs());
        for &id in live {
            let (leaf, class) = match self.g.node(id).op {
                Op::State(i) => (&states[i as usize], Class::State),
                Op::Input(i) => (&inputs[i as usize], Class::Input),
                _ => continue,
            };
            let buf = self.new_buf(leaf.ty, class, leaf.name.clone());
            self.bufs.insert(id, buf);
        }
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> Node {
        self.g.node(id)
    }

    /// A node's type.
    pub fn ty(&self, id: NodeId) -> Type {
        self.g.ty(id)
    }

    /// The scope of a node.
    pub fn label(&self, id: NodeId) -> String {
        self.g.label(id)
    }

    /// The buffer that holds a node's value, made if the node is one that is read in place.
    pub fn buf(&mut self, id: NodeId) -> BufId {
        if let Some(&b) = self.bufs.get(&id) {
            return b;
        }
        let node = self.g.node(id);
        let label = self.g.label(id);
        if let Some(bits) = self.constant_below(id) {
            let expr = Expr::constant(bits);
            self.pointwise(id, &[Operand::Const(bits)], expr);
            return self.bufs[&id];
        }
        match node.op {
            Op::Reshape(_) => {
                let from = self.buf(node.src[0]);
                let source = self.g.ty(node.src[0]).shape;
                // Narrow rows are padded to whole words: model code reshapes them only within rows.
                let even = source.row().is_multiple_of(2) && node.ty.shape.row().is_multiple_of(2);
                let same_rows =
                    even || source.row() == node.ty.shape.row() || !node.ty.dtype.packed();
                assert!(
                    same_rows,
                    "a packed tensor's rows cannot be reshaped in place"
                );
                self.bufs.insert(id, from);
                from
            }
            Op::Broadcast(to) => {
                let from = self.g.ty(node.src[0]).shape;
                let x = self.buf(node.src[0]);
                let (have, strides) = (from.padded(to.rank()), from.strides());
                let pad = to.rank() - from.rank();
                let by: Vec<usize> = (0..to.rank())
                    .map(|i| {
                        if i < pad || have[i] == 1 {
                            0
                        } else {
                            strides[i - pad]
                        }
                    })
                    .collect();
                self.copy(id, x, &to.dims(), &by);
                self.bufs[&id]
            }
            _ => panic!(
                "{id:?} ({}) {label} has not been lowered",
                ops::def(&node.op).name
            ),
        }
    }

    /// How a pointwise user reads a node of its own shape.
    pub fn operand(&mut self, id: NodeId) -> Operand {
        if let Some(bits) = self.constant_below(id) {
            return Operand::Const(bits);
        }
        let node = self.g.node(id);
        if let (Op::Broadcast(to), false) = (&node.op, self.bufs.contains_key(&id)) {
            let from = self.g.ty(node.src[0]).shape;
            if let Some((div, len)) = run(&from.padded(to.rank()), &to.dims()) {
                return Operand::Buf {
                    buf: self.buf(node.src[0]),
                    div,
                    len,
                };
            }
        }
        Operand::Buf {
            buf: self.buf(id),
            div: 1,
            len: node.ty.shape.elems(),
        }
    }

    /// The constant that a node repeats, if it does.
    fn constant_below(&self, id: NodeId) -> Option<u32> {
        let node = self.g.node(id);
        match node.op {
            Op::Const(bits, _) => Some(bits),
            Op::Reshape(_) | Op::Broadcast(_) => self.constant_below(node.src[0]),
            Op::Cast(to) => Some(
                to.round(f32::from_bits(self.constant_below(node.src[0])?))
                    .to_bits(),
            ),
            _ => None,
        }
    }

    /// A fresh output buffer for a node.
    pub fn out(&mut self, id: NodeId) -> BufId {
        let label = self.g.label(id);
        let buf = self.new_buf(self.g.ty(id), Class::Temp, label);
        self.bufs.insert(id, buf);
        buf
    }

    /// An f32 buffer for a node's value, whatever its type: for kernels that write f32 only.
    /// [`Lower::narrow`] ends what this begins.
    pub fn out_wide(&mut self, id: NodeId) -> BufId {
        let Type { shape, dtype } = self.ty(id);
        if !dtype.is_low() {
            return self.out(id);
        }
        self.scratch(
            Type {
                shape,
                dtype: DType::F32,
            },
            &self.label(id),
        )
    }

    /// Rounds a value from its wide buffer into the node's own, where the two differ.
    pub fn narrow(&mut self, id: NodeId, wide: BufId) {
        if self.ty(id).dtype.is_low() {
            let len = self.ty(id).shape.elems();
            let expr = Expr::convert(self.ty(id).dtype);
            self.pointwise(
                id,
                &[Operand::Buf {
                    buf: wide,
                    div: 1,
                    len,
                }],
                expr,
            );
        }
    }

    /// A buffer that belongs to no node.
    pub fn scratch(&mut self, ty: Type, label: &str) -> BufId {
        self.new_buf(ty, Class::Temp, label.to_string())
    }

    /// Words in a row of a node's value.
    pub fn words_per_row(&self, id: NodeId) -> usize {
        let ty = self.ty(id);
        if ty.dtype.packed() {
            ty.shape.row().div_ceil(2)
        } else {
            ty.shape.row()
        }
    }

    /// Whether a node has its buffer.
    pub fn has(&self, id: NodeId) -> bool {
        self.bufs.contains_key(&id)
    }

    /// The node of an operation on sources, made if it is not there.
    pub fn add(&self, op: Op, src: &[NodeId]) -> NodeId {
        self.g.add(op, src)
    }

    /// An output buffer for a node that the same kernel computes, whether or not it is wanted.
    pub fn sibling(&mut self, op: Op, src: &[NodeId]) -> BufId {
        let id = self.g.add(op, src);
        if self.bufs.contains_key(&id) {
            self.scratch(self.g.ty(id), &self.g.label(id))
        } else {
            self.out(id)
        }
    }

    /// The buffer of a node that is lowered now if it has not been.
    pub fn lowered(&mut self, op: Op, src: &[NodeId]) -> BufId {
        let id = self.g.add(op.clone(), src);
        if !self.bufs.contains_key(&id) {
            self.lower(id);
        }
        self.bufs[&id]
    }

    /// Appends a step.
    pub fn step(
        &mut self,
        kernel: &'static KernelDef,
        params: Params,
        reads: &[BufId],
        writes: &[BufId],
        label: &str,
    ) {
        let step = Step {
            kernel,
            params,
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            label: label.to_string(),
            origin: self.origin.clone(),
        };
        self.plan.steps.push(step);
    }

    /// Appends a pointwise step for a node. Constants among the operands stand in the expression.
    pub fn pointwise(&mut self, id: NodeId, operands: &[Operand], expr: Expr) {
        let (mut reads, mut access) = (Vec::new(), Vec::new());
        for o in operands {
            if let Operand::Buf { buf, div, len } = *o {
                reads.push(buf);
                access.push((div, len));
            }
        }
        let out = self.out(id);
        let label = self.label(id);
        self.step(
            &POINTWISE,
            params(self.ty(id).shape.elems(), &access, expr),
            &reads,
            &[out],
            &label,
        );
    }

    /// Appends a strided copy into a node's buffer. A narrow tensor is copied wide: its elements share
    /// words, which a copy cannot split.
    pub fn copy(&mut self, id: NodeId, mut x: BufId, dims: &[usize], strides: &[usize]) {
        let label = self.label(id);
        let from = self.plan.buf(x).ty;
        if from.dtype.is_low() {
            let wide = self.scratch(
                Type {
                    dtype: DType::F32,
                    ..from
                },
                &label,
            );
            let len = from.shape.elems();
            let p = params(len, &[(1, len)], Expr::convert(DType::F32));
            self.step(&POINTWISE, p, &[x], &[wide], &label);
            x = wide;
        }
        let out = self.out_wide(id);
        self.step(
            &copy::COPY,
            copy::params(dims, strides),
            &[x],
            &[out],
            &label,
        );
        self.narrow(id, out);
    }

    /// Appends a plain copy of a node's value into a buffer.
    pub fn copy_to(&mut self, from: NodeId, to: BufId, label: &str) {
        let from = self.buf(from);
        self.copy_to_buf(from, to, label);
    }

    fn copy_to_buf(&mut self, from: BufId, to: BufId, label: &str) {
        let words = self.plan.buf(from).words();
        self.step(
            &copy::COPY,
            copy::params(&[words], &[1]),
            &[from],
            &[to],
            label,
        );
    }

    fn state_buf(&mut self, name: &str, ty: Type) -> BufId {
        let found = self.plan.find(Class::State, name);
        found.unwrap_or_else(|| self.new_buf(ty, Class::State, name.to_string()))
    }

    fn new_buf(&mut self, ty: Type, class: Class, name: String) -> BufId {
        self.plan.bufs.push(Buf {
            name,
            ty,
            class,
            slot: 0,
        });
        BufId(self.plan.bufs.len() as u32 - 1)
    }
}

/// (div, len) such that broadcasting `from` to `to` reads element `(i / div) % len`; possible when the
/// axes that are not repeated stand together.
fn run(from: &[usize], to: &[usize]) -> Option<(usize, usize)> {
    let kept: Vec<usize> = (0..to.len()).filter(|&i| from[i] != 1).collect();
    let (Some(&first), Some(&last)) = (kept.first(), kept.last()) else {
        return Some((1, 1));
    };
    // Axes of extent 1 on both sides do not matter.
    let together = (first..=last).all(|i| from[i] == to[i]);
    together.then(|| {
        (
            to[last + 1..].iter().product::<usize>().max(1),
            from[first..=last].iter().product(),
        )
    })
}
