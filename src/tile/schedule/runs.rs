//! Runs, the loop nests that tile operations are grouped into: iteration spaces, and the events of
//! a block.
//!
//! In: operations. Out: the space in which each is computed. It must not know where tiles live.

use std::collections::BTreeMap;

use crate::tile::{Body, Extent, Inst, Op, TileType, Value};

/// Rows and columns.
pub(super) type Shape = (Extent, Extent);

/// An entry of a block's schedule, in order.
pub(super) enum Event {
    /// An operation on indices or scalars, a `dot`, `element`, `transpose`, `pair_rows`, `window`,
    /// `load_scaled` or `load_pairs`.
    Single(Inst),
    /// A loop nest; `reduces` is the axis of its reductions; `apart`: it contains only operations
    /// of [`Tiled::apart`].
    Run { shape: Shape, reduces: Option<usize>, apart: bool, insts: Vec<Inst>, clones: BTreeMap<Value, Value> },
}

pub(super) fn tile(body: &Body, v: Value) -> Option<&TileType> {
    body.ty(v).tile()
}

pub(super) fn is_elementwise(op: &Op) -> bool {
    matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast | Op::Narrow { .. } | Op::Copy)
}

pub(super) fn extents(body: &Body, v: Value) -> Option<Shape> {
    tile(body, v).map(|t| (t.rows, t.cols))
}

/// The iteration space of an operation in a run.
pub(super) fn run_shape(body: &Body, inst: Inst) -> Option<Shape> {
    let d = body.inst(inst);
    match &d.op {
        Op::Dot { .. } | Op::Element | Op::Transpose | Op::PairRows => None,
        Op::Window { .. } | Op::LoadScaled { .. } | Op::LoadPairs => None,
        Op::Store { .. } => d.operands.last().and_then(|v| extents(body, *v)),
        Op::Reduce { .. } => d.operands.first().and_then(|v| extents(body, *v)),
        _ => d.result.and_then(|v| extents(body, v)),
    }
}
