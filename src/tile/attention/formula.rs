//! Generates the operands of an attention's scores: literals, buffers, formulas over positions.
//!
//! In: a formula of a description. Out: its operations for a tile of scores, in the layout that the
//! kernel uses. This must not know which keys a formula hides.

use crate::shape::Elem;
use crate::tile::description::{Formula, Node};
use crate::tile::{KernelBuilder, Value};

impl Formula {
    /// Generates it as a scalar; `None` if it has to be computed for each score.
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

    /// Generates it for a tile. `position` generates the positions along an axis, `load` the
    /// elements of a buffer that has the axes of the scores.
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
        for (node, loc) in self.located() {
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
