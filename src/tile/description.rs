//! Descriptions of kernels, as data.
//!
//! What lives here: what an unscheduled kernel computes, without the loops that are expanded from it
//! (`tile::compute`). What this must not know: kernels, and how anything is written.

use super::{Op, computed};
use crate::scalar::{Scalar, round_to};
use crate::shape::{Dim, Elem};
use crate::source::Loc;

/// The description of an unscheduled kernel: what it computes.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Compute {
    /// The elements of the first buffer, into the second.
    Copy,
    /// Running sums of the first buffer along an axis, into the second.
    Scan {
        /// The axis.
        axis: usize,
    },
    /// The order of the elements along the last axis of the first buffer: the indices of the first
    /// ones, into the last buffer. A buffer between them is scratch memory, for a merge sort.
    Sort {
        /// Do greater elements come first?
        descending: bool,
        /// The message of an index that is out of bounds, a bug in attnc.
        site: u32,
    },
    /// The product of the first two buffers, with elementwise work on its result.
    Matmul {
        /// Is it stored as it is, or rounded?
        plain: bool,
    },
    /// Attention of the first three buffers, with elementwise work on its result.
    Attention(Box<Attention>),
}

/// One operation on the scores.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum ScoreOp {
    /// Queries see no later keys: the last query sees all.
    Causal,
    /// Something is added.
    Add(Formula),
    /// Where it is not kept, a score is the fill.
    Keep {
        /// Where scores are kept.
        kept: Formula,
        /// The score elsewhere.
        fill: Formula,
    },
    /// `tanh`, times the cap.
    Cap(Formula),
}

/// An operation on the scores, with its location in the source.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct Step {
    pub(crate) op: ScoreOp,
    pub(crate) loc: Loc,
}

/// Source locations of the parts of an attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Hash)]
pub(crate) struct Locations {
    /// The product of queries and keys.
    pub(crate) scores: Loc,
    pub(crate) scale: Loc,
    pub(crate) sink: Loc,
    pub(crate) softmax: Loc,
    /// The product with the values. Also the location of every operation that has no other.
    pub(crate) values: Loc,
}

/// The description of an attention. Its queries, keys and values are the first three parameters of
/// its kernel, `[batch.., S, D]`, `[batch.., T, D]` and `[batch.., T, E]`.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Attention {
    pub(crate) locations: Locations,
    /// The factor of the scores.
    pub(crate) scale: Formula,
    /// Operations on the scaled scores, in order.
    pub(crate) steps: Vec<Step>,
    /// One more score in each row, which has no value.
    pub(crate) sink: Option<Formula>,
}

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
}
