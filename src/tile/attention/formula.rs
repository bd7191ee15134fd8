//! Masks and biases that are computed: formulas over the positions of queries and keys.
//!
//! In: the operations that compute a mask, of a graph or of a kernel. Out: a list of operations that can be written for any tile of
//! scores, in whatever layout the kernel has them. What this must not know: which keys a formula hides.

use std::collections::BTreeMap;

use super::Source;
use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::source::Loc;
use crate::tile::{Kernel, KernelBuilder, Op, Type, Value};

/// The most operations of a formula that is found in a kernel.
const MOST_NODES: usize = 256;

/// What an operation of a formula is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// The position along an axis of the scores: of a batch or head, a query (the axis before the last) or a key (the last).
    Position(usize, Elem),
    /// What is read at that position, or the same everywhere.
    Read(Source),
    /// An operation on earlier ones, whose elements are of this type in computation.
    Each(Op, Vec<usize>, Elem),
}

/// A formula: its operations, each after its operands and in order of first use; the last one is the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Formula {
    nodes: Vec<(Node, Loc)>,
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

    /// The parameters of the kernel that it reads.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = usize> {
        self.nodes().filter_map(|node| match node {
            Node::Read(Source::Buffer(n)) => Some(*n),
            Node::Read(_) | Node::Position(..) | Node::Each(..) => None,
        })
    }

    /// Writes it for a tile; `leaf` gives positions and what is read.
    pub(crate) fn write(
        &self,
        kb: &mut KernelBuilder,
        mut leaf: impl FnMut(&mut KernelBuilder, &Node) -> Option<Value>,
    ) -> Option<Value> {
        let mut made: Vec<Value> = Vec::new();
        for (node, loc) in &self.nodes {
            let value = kb.placed(*loc, |kb| match node {
                Node::Each(op, operands, elem) => {
                    let operands = operands.iter().map(|n| made.get(*n).copied()).collect::<Option<Vec<Value>>>()?;
                    Some(kb.each(op.clone(), operands, *elem))
                }
                Node::Position(..) | Node::Read(_) => leaf(kb, node),
            });
            made.push(value?);
        }
        made.last().copied()
    }

    /// The formula by which a kernel computes a tile: `row` and `key` are the positions of its first query and of its key, and
    /// `source` finds what is read; `None` where the tile is not computed by a formula.
    pub(super) fn read(
        kernel: &Kernel,
        (row, key): (Value, Value),
        result: Value,
        source: impl Fn(Value) -> Option<Source>,
    ) -> Option<Formula> {
        let mut reader = Reader { kernel, row, key, source, numbers: BTreeMap::new(), formula: Formula::default() };
        reader.number(result, MOST_NODES)?;
        Some(reader.formula)
    }
}

struct Reader<'a, S> {
    kernel: &'a Kernel,
    row: Value,
    key: Value,
    source: S,
    /// The operations so far, by their values.
    numbers: BTreeMap<Value, usize>,
    formula: Formula,
}

impl<S: Fn(Value) -> Option<Source>> Reader<'_, S> {
    fn number(&mut self, v: Value, depth: usize) -> Option<usize> {
        if let Some(n) = self.numbers.get(&v) {
            return Some(*n);
        }
        let depth = depth.checked_sub(1)?;
        if self.formula.nodes.len() >= MOST_NODES {
            return None;
        }
        let body = &self.kernel.body;
        let data = body.def_inst(v)?;
        let elem = body.ty(v).elem()?;
        let rank = self.kernel.grid.len();
        let first = data.operands.first().copied();
        let node = match &data.op {
            Op::Iota { axis: 0 } if first == Some(self.row) => Node::Position(rank.checked_sub(2)?, elem),
            Op::Iota { axis: 1 } if first == Some(self.key) => Node::Position(rank.checked_sub(1)?, elem),
            Op::Cast if first.is_some_and(|x| *body.ty(x) == Type::Index) => {
                Node::Position(self.kernel.grid.iter().position(|g| Some(g.value) == first)?, elem)
            }
            Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast => {
                Node::Each(data.op.clone(), self.operands(&data.operands, depth)?, elem)
            }
            Op::Narrow { .. } => match (self.source)(v) {
                Some(source @ (Source::Literal(..) | Source::Dim(..))) => Node::Read(source),
                _ => Node::Each(data.op.clone(), self.operands(&data.operands, depth)?, elem),
            },
            _ => Node::Read((self.source)(v)?),
        };
        let n = self.formula.add(node, data.loc);
        self.numbers.insert(v, n);
        Some(n)
    }

    fn operands(&mut self, list: &[Value], depth: usize) -> Option<Vec<usize>> {
        list.iter().map(|v| self.number(*v, depth)).collect()
    }
}

/// A literal of a formula.
pub(crate) fn literal(x: Scalar, elem: Elem) -> Node {
    Node::Read(Source::Literal(x, elem))
}
