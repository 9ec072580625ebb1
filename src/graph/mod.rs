//! The static graph: hash-consed nodes with shapes and types.
//!
//! A node is pure: the same operation on the same sources is the same node. Sources always have smaller
//! ids than their users, so ascending id is a topological order. The graph only ever grows; passes build
//! new nodes and return new outputs.

mod build;
pub mod check;
pub mod eval;
pub mod print;

pub use build::Tx;

use crate::dtype::DType;
use crate::ops::{self, Op};
use crate::shape::Shape;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

/// A node's index in its graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// Shape and element type of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Type {
    /// Extents.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl Type {
    /// A type from extents and element type.
    pub fn new(dims: &[usize], dtype: DType) -> Type {
        Type {
            shape: Shape::new(dims),
            dtype,
        }
    }

    /// An f32 type.
    pub fn f32(dims: &[usize]) -> Type {
        Type::new(dims, DType::F32)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{}", self.dtype.name(), self.shape)
    }
}

/// Operand ids.
pub type Srcs = SmallVec<[NodeId; 3]>;

/// The part of a training step that a node belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Phase {
    /// From inputs and weights to the loss.
    #[default]
    Forward,
    /// Gradients of it.
    Backward,
    /// What is made of the gradients.
    Update,
}

impl Phase {
    /// Its name in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Update => "update",
        }
    }
}

/// One operation on its sources.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// From what.
    pub src: Srcs,
    /// Type of the result.
    pub ty: Type,
}

/// A leaf: a tensor that outlives a run (weights, moments) or is written before each run (inputs).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// Unique name; weights use PyTorch's.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

#[derive(Default)]
struct Inner {
    nodes: Vec<Node>,
    labels: Vec<u32>,
    phases: Vec<Phase>,
    index: HashMap<Node, NodeId>,
    states: Vec<Leaf>,
    inputs: Vec<Leaf>,
    scopes: Vec<String>,
    scope: u32,
    phase: Phase,
}

/// A graph under construction or finished. Interior mutability keeps model code free of `&mut`.
pub struct Graph {
    inner: RefCell<Inner>,
}

impl Default for Graph {
    fn default() -> Self {
        Self::new()
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        let inner = Inner {
            scopes: vec![String::new()],
            ..Inner::default()
        };
        Graph {
            inner: RefCell::new(inner),
        }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.inner.borrow().nodes.len()
    }

    /// Whether there is no node yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of a node.
    pub fn node(&self, id: NodeId) -> Node {
        self.inner.borrow().nodes[id.0 as usize].clone()
    }

    /// A node's type.
    pub fn ty(&self, id: NodeId) -> Type {
        self.inner.borrow().nodes[id.0 as usize].ty
    }

    /// The tensors that outlive a run, by [`Op::State`] index.
    pub fn states(&self) -> Vec<Leaf> {
        self.inner.borrow().states.clone()
    }

    /// The tensors written before a run, by [`Op::Input`] index.
    pub fn inputs(&self) -> Vec<Leaf> {
        self.inner.borrow().inputs.clone()
    }

    /// Adds a node, or finds the equal one.
    ///
    /// # Errors
    /// The operation's own shape and type rule.
    pub fn try_add(&self, op: Op, src: &[NodeId]) -> Result<NodeId, String> {
        let types: Vec<Type> = src.iter().map(|&s| self.ty(s)).collect();
        let ty = match op {
            Op::State(i) => self.inner.borrow().states[i as usize].ty,
            Op::Input(i) => self.inner.borrow().inputs[i as usize].ty,
            _ => {
                let def = ops::def(&op);
                (def.infer)(&op, &types).map_err(|e| {
                    let list = types
                        .iter()
                        .map(|t| t.to_string())
                        .collect::<Vec<_>>()
                        .join(", ");
                    format!("{}({list}): {e}", def.name)
                })?
            }
        };
        let node = Node {
            op,
            src: Srcs::from_slice(src),
            ty,
        };
        let mut g = self.inner.borrow_mut();
        if let Some(&id) = g.index.get(&node) {
            return Ok(id);
        }
        let id = NodeId(g.nodes.len() as u32);
        let (scope, phase) = (g.scope, g.phase);
        g.nodes.push(node.clone());
        g.labels.push(scope);
        g.phases.push(phase);
        g.index.insert(node, id);
        Ok(id)
    }

    /// Adds a node that is right by construction.
    ///
    /// # Panics
    /// When it is not: a fault in model or pass code, never in user input.
    pub fn add(&self, op: Op, src: &[NodeId]) -> NodeId {
        match self.try_add(op, src) {
            Ok(id) => id,
            Err(e) => panic!("graph: {e}"),
        }
    }

    /// Declares a tensor that outlives a run.
    pub fn state(&self, name: &str, ty: Type) -> Tx<'_> {
        let i = {
            let mut g = self.inner.borrow_mut();
            assert!(
                g.states.iter().all(|s| s.name != name),
                "state {name} declared twice"
            );
            g.states.push(Leaf {
                name: name.into(),
                ty,
            });
            g.states.len() - 1
        };
        self.tx(self.add(Op::State(i as u32), &[]))
    }

    /// Declares a tensor that is written before each run.
    pub fn input(&self, name: &str, ty: Type) -> Tx<'_> {
        let i = {
            let mut g = self.inner.borrow_mut();
            assert!(
                g.inputs.iter().all(|s| s.name != name),
                "input {name} declared twice"
            );
            g.inputs.push(Leaf {
                name: name.into(),
                ty,
            });
            g.inputs.len() - 1
        };
        self.tx(self.add(Op::Input(i as u32), &[]))
    }

    /// A constant of one element.
    pub fn constant(&self, value: f32, dtype: DType) -> Tx<'_> {
        self.tx(self.add(Op::Const(value.to_bits(), dtype), &[]))
    }

    /// A handle on a node for writing expressions.
    pub fn tx(&self, id: NodeId) -> Tx<'_> {
        Tx { g: self, id }
    }

    /// Names the nodes that `body` makes (`blocks.0.attn`), for printing and for error messages. The
    /// first name wins when a node is found again.
    pub fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        let before = {
            let mut g = self.inner.borrow_mut();
            let before = g.scope;
            let parent = g.scopes[before as usize].clone();
            let full = if parent.is_empty() {
                name.to_string()
            } else {
                format!("{parent}.{name}")
            };
            g.scopes.push(full);
            g.scope = (g.scopes.len() - 1) as u32;
            before
        };
        let out = body();
        self.inner.borrow_mut().scope = before;
        out
    }

    /// The scope in which a node was made.
    pub fn label(&self, id: NodeId) -> String {
        let g = self.inner.borrow();
        g.scopes[g.labels[id.0 as usize] as usize].clone()
    }

    /// The part of a training step in which a node was made.
    pub fn phase_of(&self, id: NodeId) -> Phase {
        self.inner.borrow().phases[id.0 as usize]
    }

    /// Runs `body` with new nodes in a part of the training step. Like a scope's name, the first one that
    /// a node is made in stays.
    pub fn phase<R>(&self, phase: Phase, body: impl FnOnce() -> R) -> R {
        let before = std::mem::replace(&mut self.inner.borrow_mut().phase, phase);
        let out = body();
        self.inner.borrow_mut().phase = before;
        out
    }

    /// Runs `body` with new nodes labelled as `like` is, in the same part of the step (gradients inherit
    /// the name of their primal).
    pub fn labelled_as<R>(&self, like: NodeId, body: impl FnOnce() -> R) -> R {
        let before = {
            let mut g = self.inner.borrow_mut();
            let (label, phase) = (g.labels[like.0 as usize], g.phases[like.0 as usize]);
            (
                std::mem::replace(&mut g.scope, label),
                std::mem::replace(&mut g.phase, phase),
            )
        };
        let out = body();
        let mut g = self.inner.borrow_mut();
        (g.scope, g.phase) = before;
        out
    }

    /// The nodes that `outputs` need, in ascending (topological) order.
    pub fn live(&self, outputs: &[NodeId]) -> Vec<NodeId> {
        let g = self.inner.borrow();
        let mut seen = vec![false; g.nodes.len()];
        let mut stack: Vec<NodeId> = outputs.to_vec();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut seen[id.0 as usize], true) {
                stack.extend(g.nodes[id.0 as usize].src.iter());
            }
        }
        (0..g.nodes.len())
            .filter(|&i| seen[i])
            .map(|i| NodeId(i as u32))
            .collect()
    }
}

/// What a compiled program computes: named results, and new values for states.
pub struct Program {
    /// The graph.
    pub graph: Graph,
    /// Results that the host reads, by name.
    pub outputs: Vec<(String, NodeId)>,
    /// New values of states, by state index. All old values are read before any is replaced.
    pub updates: Vec<(u32, NodeId)>,
}

impl Program {
    /// All nodes whose values are wanted.
    pub fn roots(&self) -> Vec<NodeId> {
        self.outputs
            .iter()
            .map(|o| o.1)
            .chain(self.updates.iter().map(|u| u.1))
            .collect()
    }
}
