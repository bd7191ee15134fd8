//! Proves that a kernel stays in its buffers, and its tiles in their extents.
//!
//! In: a kernel whose structure and types are checked, and facts about dimensions from its plans.
//! Out: an error for each access that is not proved to be in its buffer, for each extent that may
//! be negative or above its maximum, and for each grid axis that may be negative. An empty tile
//! accesses nothing, so an access is checked assuming that each extent is at least 1.

use std::collections::BTreeSet;

use super::flow::Flow;
use crate::shape::prove::{AtomPoly as Poly, Bounds, product};
use crate::shape::{Dim, Sizes};
use crate::tile::text::{ErrorLocation, Owner};
use crate::tile::verify::Sink;
use crate::tile::{Block, Extent, GROUP, Inst, Kernel, Op, Type, Value};

/// Checks a kernel under one set of facts.
pub(super) fn check(k: &Kernel, known: &[Dim], sizes: &Sizes, sink: &mut Sink) {
    walk(k, known, sizes, None, sink);
}

/// Is every access to a parameter within its first bytes, whatever extents its type has? Kernels
/// that it launches are not examined.
pub(super) fn stays_in(k: &Kernel, known: &[Dim], sizes: &Sizes, room: &Room<'_>) -> bool {
    let mut nothing = Sink { owner: Owner::Module, list: Vec::new() };
    !k.is_persistent() && walk(k, known, sizes, Some(room), &mut nothing)
}

/// The available bytes of a parameter.
pub(super) struct Room<'a> {
    pub(super) param: Value,
    pub(super) bytes: &'a Dim,
    /// Dimensions that have values whenever the kernel runs, in addition to its own: the plan's.
    pub(super) symbols: &'a [String],
}

fn walk(k: &Kernel, known: &[Dim], sizes: &Sizes, room: Option<&Room<'_>>, sink: &mut Sink) -> bool {
    let mut symbols = k.symbols.clone();
    symbols.extend(room.iter().flat_map(|r| r.symbols).filter(|s| !k.symbols.contains(s)).cloned());
    let types = k.params.iter().filter_map(|p| k.body.ty(p.value).buffer());
    let in_types = types.flat_map(|ty| ty.shape.iter().chain(&ty.strides));
    let dims = in_types.chain(k.grid.iter().map(|g| &g.extent)).chain(room.map(|r| r.bytes));
    let flow = Flow::new(&k.body, &symbols, known, sizes.clone(), dims);
    let mut c = Checker { flow, sink, extents: Vec::new(), room, stays: true };
    for p in &k.params {
        if *k.body.ty(p.value) == Type::Index {
            let form = c.flow.anything();
            c.flow.set(p.value, form);
        }
    }
    c.grid(k);
    for b in k.body.reverse_postorder() {
        c.block(b);
    }
    c.stays
}

struct Checker<'a, 's> {
    flow: Flow<'a>,
    sink: &'s mut Sink,
    /// Bounded extents already examined, and where.
    extents: Vec<(Value, i64, Block)>,
    /// If set, only accesses to this parameter are examined.
    room: Option<&'a Room<'a>>,
    /// All of them are within its bytes.
    stays: bool,
}

impl<'a> Checker<'a, '_> {
    fn grid(&mut self, k: &Kernel) {
        let entry = k.body.entry();
        let mut present = Vec::new();
        for g in &k.grid {
            let extent = self.flow.prover.dim(&g.extent);
            if self.room.is_none() && !self.flow.proves(extent.clone(), entry, &[]) {
                self.sink.error(ErrorLocation::Head, format!("the extent {} of the grid may be negative", g.extent));
            }
            // The last of `n` points of `step` begins inside the extent.
            let last = extent.and_then(|e| e.sub(&Poly::int(1)));
            // If there is a point, there is one along each axis.
            present.extend(last.clone().map(Poly::tightened));
            let upper = last.into_iter().map(|l| (i128::from(g.step), l)).collect();
            let form = self.flow.prover.fresh(Bounds { natural: true, upper, ..Bounds::default() });
            self.flow.set(g.value, form);
        }
        self.flow.prover.assume(present);
    }

    fn block(&mut self, b: Block) {
        self.flow.enter(b);
        self.flow.foresee(b);
        let body = self.flow.body;
        for v in &body.block(b).args {
            self.ty(*v, b, ErrorLocation::Block(b));
        }
        for i in &body.block(b).insts {
            self.instruction(*i, b);
            if let Op::Run { rows, cols, insts } = &body.inst(*i).op {
                self.bounded(*rows, b, ErrorLocation::Inst(*i));
                self.bounded(*cols, b, ErrorLocation::Inst(*i));
                for k in insts {
                    self.instruction(*k, b);
                }
            }
        }
        self.flow.leave(b);
    }

    fn instruction(&mut self, i: Inst, b: Block) {
        self.flow.instruction(i, b);
        let body = self.flow.body;
        let data = body.inst(i);
        if let Some(v) = data.result {
            self.ty(v, b, ErrorLocation::Inst(i));
        }
        let one = Extent::Static(1);
        let extents = |v: Option<&Value>| v.and_then(|v| body.ty(*v).tile()).map_or((one, one), |t| (t.rows, t.cols));
        let Some(at) = data.op.accessed() else { return };
        let Some(rank) = data.operands.get(at).and_then(|v| body.ty(*v).buffer()).map(|t| t.shape.len()) else {
            return;
        };
        // Number of elements along each axis, in units of the axis.
        let mut lengths = vec![Poly::int(1); rank];
        let mut present = Vec::new();
        let ((rows, cols), walked) = match &data.op {
            Op::Load { rows, cols } | Op::Window { rows, cols } => (extents(data.result.as_ref()), (*rows, *cols)),
            Op::Store { rows, cols } => (extents(data.operands.last()), (*rows, *cols)),
            Op::LoadScaled { .. } => (extents(data.result.as_ref()), (rank.checked_sub(2), rank.checked_sub(1))),
            Op::LoadPairs => (extents(data.result.as_ref()), (rank.checked_sub(3), rank.checked_sub(2))),
            Op::LoadScalar => ((one, one), (None, None)),
            // On a GPU, elements outside of the buffer's type are omitted, but the type may exceed
            // the available bytes.
            _ => {
                let buffer = data.operands.get(at).copied();
                self.stays &= self.room.is_none_or(|room| buffer != Some(room.param));
                return;
            }
        };
        for (e, axis) in [(rows, walked.0), (cols, walked.1)] {
            let form = self.flow.extent(e);
            if matches!(e, Extent::Bounded { .. }) {
                present.extend(form.sub(&Poly::int(1)).map(Poly::tightened));
            }
            let Some(slot) = axis.and_then(|a| lengths.get_mut(a)) else { continue };
            *slot = form;
        }
        // k indices of a panel in one row of the buffer.
        let packed = match data.op {
            Op::LoadScaled { bits: 4 } | Op::LoadPairs => 2,
            _ => 1,
        };
        if let (2, Some(slot)) = (packed, walked.0.and_then(|a| lengths.get_mut(a))) {
            let up = slot.add(&Poly::int(1));
            *slot = match up.and_then(|up| self.flow.halved(&up, b)) {
                Some(half) => half,
                None => self.flow.anything(),
            };
        }
        if let (Op::LoadPairs, Some(last)) = (&data.op, lengths.last_mut()) {
            *last = Poly::int(2);
        }
        let indices: Vec<Value> = data.operands.iter().skip(at + 1).take(rank).copied().collect();
        if let Op::LoadScaled { bits } = data.op
            && let Some(start) = rank.checked_sub(2).and_then(|a| indices.get(a))
        {
            let group = i128::from(GROUP) * i128::from(bits) / 8;
            if self.room.is_none() && self.flow.form(*start).divided(group).is_none() {
                self.sink
                    .error(ErrorLocation::Inst(i), format!("load_scaled: {start} may be inside of a group of {group}"));
            }
        }
        if let (Some(Room { param, bytes, .. }), Some(buffer)) = (self.room, data.operands.get(at)) {
            // Scales are read together with their integers.
            let beside = matches!(data.op, Op::LoadScaled { .. }) && data.operands.last() == Some(param);
            if beside || buffer == param && !self.stays_within(bytes, (*param, b), &indices, &lengths, &present) {
                self.stays = false;
            }
        } else if let Some(buffer) = data.operands.get(at) {
            within(&mut self.flow, self.sink, (i, b), *buffer, &indices, &lengths, &present);
        }
    }

    /// Is an access within the first bytes of a buffer?
    fn stays_within(
        &mut self,
        bytes: &Dim,
        (buffer, b): (Value, Block),
        indices: &[Value],
        lengths: &[Poly],
        present: &[Poly],
    ) -> bool {
        let Some(ty) = self.flow.body.ty(buffer).buffer() else { return false };
        let size = i128::from(ty.elem.size());
        let mut end = Some(Poly::int(1));
        let axes = ty.shape.iter().zip(&ty.strides);
        for ((extent, stride), (start, length)) in axes.zip(indices.iter().zip(lengths)) {
            let start = self.flow.form(*start);
            // A matmul reads whole rows in place.
            let last = match extent.as_const() {
                Some(n) if start.as_int() == Some(0) => Some(Poly::int(i128::from(n) - 1)),
                _ => start.add(length).and_then(|e| e.sub(&Poly::int(1))),
            };
            let stride = self.flow.prover.dim(stride);
            if !self.flow.proves(stride.clone(), b, &[]) {
                return false;
            }
            let way = last.and_then(|l| product(&l, &stride?));
            end = end.and_then(|e| e.add(&way?));
        }
        let room = self.flow.prover.dim(bytes);
        let rest = room.and_then(|r| r.combine(1, &end?, -size));
        self.flow.proves(rest, b, present)
    }

    /// Checks the extents of a tile.
    fn ty(&mut self, v: Value, b: Block, at: ErrorLocation) {
        if let Some(t) = self.flow.body.ty(v).tile() {
            let (rows, cols) = (t.rows, t.cols);
            self.bounded(rows, b, at);
            self.bounded(cols, b, at);
        }
    }

    fn bounded(&mut self, e: Extent, b: Block, at: ErrorLocation) {
        let Extent::Bounded { value, max } = e else { return };
        if self.room.is_some() {
            return;
        }
        let seen = |(v, m, from): &(Value, i64, Block)| (*v, *m) == (value, max) && self.flow.cfg.dominates(*from, b);
        if self.extents.iter().any(seen) {
            return;
        }
        self.extents.push((value, max, b));
        let form = self.flow.form(value);
        if !self.flow.proves(Some(form.clone()), b, &[]) {
            self.sink.error(at, format!("the extent {value} may be below 0"));
        }
        if !self.flow.proves(Poly::int(i128::from(max)).sub(&form), b, &[]) {
            self.sink.error(at, format!("the extent {value} may be above {max}"));
        }
    }
}

/// Is an access of `lengths` elements along each axis, starting at `indices`, inside its buffer?
pub(super) fn within(
    flow: &mut Flow<'_>,
    sink: &mut Sink,
    (i, b): (Inst, Block),
    buffer: Value,
    indices: &[Value],
    lengths: &[Poly],
    present: &[Poly],
) {
    let body = flow.body;
    let Some(ty) = body.ty(buffer).buffer() else { return };
    let name = body.inst(i).op.info().name;
    let mut done = BTreeSet::new();
    for (axis, ((start, length), extent)) in indices.iter().zip(lengths).zip(&ty.shape).enumerate() {
        let form = flow.form(*start);
        if done.insert(*start) && !flow.proves(Some(form.clone()), b, present) {
            let message =
                format!("{name}: {buffer} may be read or written before its start: index {start} of axis {axis}");
            sink.error(ErrorLocation::Inst(i), message);
            continue;
        }
        let end = form.add(length);
        let rest = flow.prover.dim(extent).and_then(|n| n.sub(&end?));
        if !flow.proves(rest, b, present) {
            let message = match length.as_int() {
                Some(1) => format!("{name}: index {start} of axis {axis} of {buffer} may be beyond {extent}"),
                _ => format!("{name}: what begins at {start} of axis {axis} of {buffer} may end beyond {extent}"),
            };
            sink.error(ErrorLocation::Inst(i), message);
        }
    }
}
