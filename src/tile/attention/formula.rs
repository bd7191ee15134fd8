//! Operands of an attention's scores: literals, buffers, and formulas over the positions of queries
//! and keys.
//!
//! In: the operations that compute a mask or a bias in a graph, or the lines of a kernel's
//! description. Out: a list of operations that can be written for any tile of scores, in whatever
//! layout the kernel has them. What this must not know: which keys a formula hides.

use crate::scalar::{Scalar, round_to};
use crate::shape::{Dim, Elem};
use crate::source::Loc;
use crate::tile::{KernelBuilder, Op, Value, computed};

/// One operation of a formula.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum Node {
    /// The position along an axis of the scores: of a batch or head, a query (the axis before the
    /// last) or a key (the last).
    Position(usize, Elem),
    /// A parameter of the kernel, by its number: over the axes of the scores, or of a single
    /// element.
    Buffer(usize),
    /// A literal of a type.
    Literal(Scalar, Elem),
    /// The value of a dimension, as that type.
    Dim(Dim, Elem),
    /// An operation on earlier nodes, whose elements are of this type in computation.
    Each(Op, Vec<usize>, Elem),
}

impl Node {
    /// A literal, rounded to the type in which it is computed, as the text shows it.
    pub(crate) fn literal(x: Scalar, elem: Elem) -> Node {
        let x = match x {
            Scalar::Float(x) => Scalar::Float(round_to(computed(elem), x)),
            Scalar::Int(_) | Scalar::Bool(_) => x,
        };
        Node::Literal(x, elem)
    }
}

/// A formula: its operations, each after its operands and in order of first use; the last one is
/// the result. A buffer or a literal is a formula of one node.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(crate) struct Formula {
    nodes: Vec<(Node, Loc)>,
}

impl From<Node> for Formula {
    fn from(node: Node) -> Formula {
        Formula { nodes: vec![(node, Loc::default())] }
    }
}

impl Formula {
    /// Adds an operation; its number.
    pub(crate) fn add(&mut self, node: Node, loc: Loc) -> usize {
        self.nodes.push((node, loc));
        self.nodes.len() - 1
    }

    /// Adds an operation on earlier ones.
    pub(crate) fn each(&mut self, op: Op, operands: Vec<usize>, elem: Elem, loc: Loc) -> usize {
        self.add(Node::Each(op, operands, elem), loc)
    }

    /// Adds the rounding to a narrower type, if it is one.
    pub(crate) fn narrow(&mut self, x: usize, elem: Elem, loc: Loc) -> usize {
        match elem {
            Elem::BF16 | Elem::F16 => self.each(Op::Narrow { elem }, vec![x], Elem::F32, loc),
            Elem::I8 => self.each(Op::Narrow { elem }, vec![x], Elem::I32, loc),
            Elem::F32 | Elem::I32 | Elem::I64 | Elem::Bool => x,
        }
    }

    /// The operations, in order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().map(|(node, _)| node)
    }

    /// The operations with their locations.
    pub(crate) fn located(&self) -> &[(Node, Loc)] {
        &self.nodes
    }

    /// The only node, where nothing is computed: a buffer, a literal or a dimension.
    pub(crate) fn leaf(&self) -> Option<&Node> {
        match self.nodes.as_slice() {
            [(node @ (Node::Buffer(_) | Node::Literal(..) | Node::Dim(..)), _)] => Some(node),
            _ => None,
        }
    }

    /// The literal that it is, with its type.
    pub(crate) fn literal(&self) -> Option<(Scalar, Elem)> {
        match self.leaf()? {
            Node::Literal(x, elem) => Some((*x, *elem)),
            Node::Position(..) | Node::Buffer(_) | Node::Dim(..) | Node::Each(..) => None,
        }
    }

    /// The parameters of the kernel that it reads.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = usize> {
        self.nodes().filter_map(|node| match node {
            Node::Buffer(n) => Some(*n),
            Node::Literal(..) | Node::Dim(..) | Node::Position(..) | Node::Each(..) => None,
        })
    }

    /// Writes it as a scalar; `None` where it is computed for each score.
    pub(crate) fn scalar(&self, kb: &mut KernelBuilder) -> Option<Value> {
        match self.leaf()? {
            Node::Buffer(n) => {
                let buffer = kb.param(*n)?;
                Some(kb.load_scalar(buffer, &[]))
            }
            Node::Literal(x, elem) => Some(kb.literal(*x, *elem)),
            Node::Dim(d, elem) => Some(kb.dim_literal(d, *elem)),
            Node::Position(..) | Node::Each(..) => None,
        }
    }

    /// Writes it for a tile; `position` writes the position along an axis, `load` what is read of a
    /// buffer over the axes of the scores.
    pub(crate) fn write(
        &self,
        kb: &mut KernelBuilder,
        position: impl Fn(&mut KernelBuilder, usize, Elem) -> Option<Value>,
        load: impl Fn(&mut KernelBuilder, Value) -> Option<Value>,
    ) -> Option<Value> {
        let leaf = |kb: &mut KernelBuilder, node: &Node| match node {
            Node::Position(axis, elem) => position(kb, *axis, *elem),
            Node::Buffer(n) => {
                let buffer = kb.param(*n)?;
                let is_scalar = kb.ty(buffer).buffer()?.shape.is_empty();
                if is_scalar { Some(kb.load_scalar(buffer, &[])) } else { load(kb, buffer) }
            }
            Node::Literal(x, elem) => Some(kb.literal(*x, *elem)),
            Node::Dim(d, elem) => Some(kb.dim_literal(d, *elem)),
            Node::Each(..) => None,
        };
        if let Some(node) = self.leaf() {
            return leaf(kb, node);
        }
        let mut made: Vec<Value> = Vec::new();
        for (node, loc) in &self.nodes {
            let value = kb.placed(*loc, |kb| match node {
                Node::Each(op, operands, elem) => {
                    let operands = operands.iter().map(|n| made.get(*n).copied()).collect::<Option<Vec<Value>>>()?;
                    Some(kb.each(op.clone(), operands, *elem))
                }
                Node::Position(..) | Node::Buffer(_) | Node::Literal(..) | Node::Dim(..) => leaf(kb, node),
            });
            made.push(value?);
        }
        made.last().copied()
    }
}
