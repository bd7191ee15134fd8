//! Descriptions of kernels, as data.
//!
//! A description specifies an unscheduled kernel's function; `tile::compute` expands it into loops.
//! This must not depend on kernels or on how they are generated.

use super::{Op, computed};
use crate::scalar::{Scalar, round_to};
use crate::shape::{Dim, Elem};
use crate::source::Loc;

/// The description of an unscheduled kernel: what it computes.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Compute {
    /// Copies the first buffer to the second.
    Copy,
    /// Writes the running sums of the first buffer along an axis to the second.
    Scan {
        /// The axis of the first buffer, from 0.
        axis: usize,
    },
    /// Sorts the first buffer along its last axis and writes the indices of the first elements to
    /// the last buffer. A buffer between them is scratch memory for a merge sort.
    Sort {
        /// Do greater elements come first?
        descending: bool,
        /// The error site of an index out of bounds, which would be a bug in attnc.
        site: u32,
    },
    /// The matmul of the first two buffers, with an elementwise epilogue.
    Matmul(Matmul),
    /// Attention with queries, keys and values in the first three buffers, and an elementwise
    /// epilogue.
    Attention(Box<Attention>),
}

/// The description of a matmul. Its operands are the first two parameters of its kernel,
/// `[points.., M, K]` and `[points.., K, N]`, and the result is the last, `[points.., M, N]`.
/// Lowering knows whether it is plain; the steps of the schedule choose the rest.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Matmul {
    /// Is the result only stored, perhaps after rounding?
    pub plain: bool,
    /// Maximum rows and columns of a tile of the result.
    pub tile: [i64; 2],
    /// Number of k indices that are summed at a time; `None`: as many as lowering chose.
    pub block: Option<i64>,
    /// The right operand in panels as wide as a tile; `None`: a matrix.
    pub panels: Option<PanelOperand>,
}

impl Matmul {
    /// Rows and columns of a tile of an unscheduled matmul.
    pub const TILE: [i64; 2] = [64, 64];

    /// The matmul of two matrices, in tiles that do not depend on a machine.
    pub fn new(plain: bool) -> Matmul {
        Matmul { plain, tile: Matmul::TILE, block: None, panels: None }
    }
}

/// A right operand in panels: the columns of a tile are contiguous.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct PanelOperand {
    /// The leading axes of the grid that the panels have too: along others they repeat.
    pub points: Vec<usize>,
    /// The order of their elements.
    pub layout: PanelLayout,
}

/// The order of elements in panels of NR columns, after the axes of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PanelLayout {
    /// `[P, K, NR]`.
    Single,
    /// `[P / n, K, n, NR]`: n panels are interleaved.
    Interleaved(i64),
    /// `[P, ceil(K / 2), NR, 2]`: pairs of k indices.
    Pairs,
    /// `[P, K * bits / 8, NR]`, quantised; the next parameter has the scales of groups of k
    /// indices.
    Scaled {
        /// Bits of an integer.
        bits: u8,
    },
}

/// One operation on the scores.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum ScoreOp {
    /// Masks the keys after a query's own; the last query sees all keys.
    Causal,
    /// Adds a bias.
    Add(Formula),
    /// Replaces scores by `fill` where they are not kept.
    Keep {
        /// True where scores are kept.
        kept: Formula,
        /// The score where they are not.
        fill: Formula,
    },
    /// Soft cap: `tanh` of the score, times the cap.
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
    /// The matmul of queries and keys.
    pub(crate) scores: Loc,
    pub(crate) scale: Loc,
    pub(crate) sink: Loc,
    pub(crate) softmax: Loc,
    /// The matmul with the values, also used for operations without a location of their own.
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
    /// Attention sink: one more score in each row, which has no value vector.
    pub(crate) sink: Option<Formula>,
}

/// One operation of a formula.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum Node {
    /// The position along an axis of the scores: of a batch or head, a query (the axis before the
    /// last) or a key (the last).
    Position(usize, Elem),
    /// A parameter of the kernel, by its index: it has the axes of the scores, or a single element.
    Buffer(usize),
    /// A literal of a type.
    Literal(Scalar, Elem),
    /// The value of a dimension, converted to this type.
    Dim(Dim, Elem),
    /// An elementwise operation on earlier nodes, computed in this type.
    Each(Op, Vec<usize>, Elem),
}

impl Node {
    /// A literal, rounded to its computation type as in the IR text.
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
    /// Adds an operation and returns its index.
    pub(crate) fn add(&mut self, node: Node, loc: Loc) -> usize {
        self.nodes.push((node, loc));
        self.nodes.len() - 1
    }

    /// Adds an elementwise operation on earlier nodes and returns its index.
    pub(crate) fn each(&mut self, op: Op, operands: Vec<usize>, elem: Elem, loc: Loc) -> usize {
        self.add(Node::Each(op, operands, elem), loc)
    }

    /// Adds the rounding to `elem`, if that is narrower than its computation type.
    pub(crate) fn narrow(&mut self, x: usize, elem: Elem, loc: Loc) -> usize {
        match elem {
            Elem::BF16 | Elem::F16 => self.each(Op::Narrow { elem }, vec![x], Elem::F32, loc),
            Elem::I8 => self.each(Op::Narrow { elem }, vec![x], Elem::I32, loc),
            Elem::F32 | Elem::I32 | Elem::I64 | Elem::Bool => x,
        }
    }

    /// The operations, operands first.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().map(|(node, _)| node)
    }

    /// The operations with their locations.
    pub(crate) fn located(&self) -> &[(Node, Loc)] {
        &self.nodes
    }

    /// The only node, if it is a buffer, a literal or a dimension, so that nothing is computed.
    pub(crate) fn leaf(&self) -> Option<&Node> {
        match self.nodes.as_slice() {
            [(node @ (Node::Buffer(_) | Node::Literal(..) | Node::Dim(..)), _)] => Some(node),
            _ => None,
        }
    }

    /// The literal and its type, if the formula is a literal.
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
