//! Checks of kernels that work in runs, for a CPU or a GPU: memory spaces of tiles, runs, and that
//! live scratch tiles are not overwritten.

use std::collections::{BTreeMap, BTreeSet};

use super::Sink;
use crate::scalar::Scalar;
use crate::shape::{Dim, Elem};
use crate::tile::text::ErrorLocation;
use crate::tile::{
    Block, Body, Cpu, DotMode, Extent, Inst, InstData, Kernel, Op, Pitch, Space, State, TileType, Value,
};

const ONE: Extent = Extent::Static(1);

/// Rule 10.
pub(super) fn unscheduled(k: &Kernel, sink: &mut Sink) {
    let body = &k.body;
    for b in &body.layout {
        for v in &body.block(*b).args {
            if body.ty(*v).any_tile().is_some_and(|t| t.space != Space::Any) {
                sink.error(ErrorLocation::Block(*b), "a tile of an unscheduled kernel has no space");
            }
        }
    }
    for (_, i, data) in body.insts() {
        if let Some(v) = data.result
            && body.ty(v).any_tile().is_some_and(|t| t.space != Space::Any)
        {
            sink.error(ErrorLocation::Inst(i), "a tile of an unscheduled kernel has no space");
        }
    }
    right_operands(body, sink);
}

/// Rule 16: operands that are widened on use may only be the right operand of `dot`, or the left
/// one with pairs of k indices.
fn right_operands(body: &Body, sink: &mut Sink) {
    let is_window = |d: &InstData| {
        let buffer = d.operands.first().and_then(|b| body.ty(*b).buffer());
        matches!(d.op, Op::Window { .. }) && buffer.is_some_and(|b| b.elem == Elem::BF16)
    };
    let is_narrow = |v: &Value| {
        let is_panel = |d: &InstData| matches!(d.op, Op::LoadScaled { .. } | Op::LoadPairs | Op::PairRows);
        body.def_inst(*v).is_some_and(|d| is_panel(d) || is_window(d))
    };
    let mut wrong = |at: ErrorLocation| sink.error(at, "what is narrow in place is the right operand of `dot` alone");
    for (_, i, data) in body.insts() {
        let defined = |n: usize| data.operands.get(n).and_then(|v| body.def_inst(*v));
        let is_dot = matches!(data.op, Op::Dot { .. });
        let in_pairs = is_dot && defined(1).is_some_and(|d| matches!(d.op, Op::LoadPairs | Op::PairRows));
        let allowed = |n: usize| match n {
            0 => in_pairs && defined(0).is_some_and(is_window),
            1 => is_dot,
            _ => false,
        };
        let others = data.operands.iter().enumerate().filter(|(n, _)| !allowed(*n));
        if others.map(|(_, v)| v).any(is_narrow) {
            wrong(ErrorLocation::Inst(i));
        }
    }
    for b in &body.layout {
        if body.block(*b).terminator.values().iter().any(is_narrow) {
            wrong(ErrorLocation::Terminator(*b));
        }
    }
}

/// Rules 11 to 16.
pub(super) fn scheduled(k: &Kernel, level: Cpu, sink: &mut Sink) {
    let before = sink.list.len();
    let mut c = Checker { k, body: &k.body, level: Some(level), sink };
    c.places();
    if c.sink.list.len() == before {
        c.overlaps();
    }
    right_operands(&k.body, sink);
}

/// The same for a GPU kernel: its scratch is the shared memory of a block.
pub(super) fn scheduled_in_blocks(k: &Kernel, sink: &mut Sink) {
    let before = sink.list.len();
    let mut c = Checker { k, body: &k.body, level: None, sink };
    c.places();
    if c.sink.list.len() == before {
        c.overlaps();
    }
}

struct Checker<'a, 's> {
    k: &'a Kernel,
    body: &'a Body,
    /// The CPU; `None` for a GPU.
    level: Option<Cpu>,
    sink: &'s mut Sink,
}

/// Byte range of a tile in scratch, if it is there.
fn range(t: &TileType) -> Option<(u64, u64)> {
    match t.space {
        Space::L1(offset, _) => {
            let rows = t.rows.capacity().max(0).unsigned_abs();
            let start = u64::from(offset);
            Some((start, start.saturating_add(u64::from(t.pitch()).saturating_mul(rows))))
        }
        Space::Any | Space::Reg | Space::Window | Space::Shared { .. } | Space::Fragment(_) => None,
    }
}

/// Restriction on tiles with padded rows.
const RUNS_ALONE: &str = "a tile with padded rows is made and read by runs alone";

fn is_padded(t: &TileType) -> bool {
    matches!(t.space, Space::L1(_, Pitch::Padded))
}

fn meet(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Checker<'_, '_> {
    fn tile(&self, v: Value) -> Option<&TileType> {
        self.body.ty(v).tile()
    }

    fn places(&mut self) {
        for b in &self.body.layout {
            for v in &self.body.block(*b).args {
                if let Some(t) = self.tile(*v).cloned() {
                    match t.space {
                        Space::L1(..) if is_padded(&t) => self.sink.error(ErrorLocation::Block(*b), RUNS_ALONE),
                        Space::L1(..) => self.in_scratch(ErrorLocation::Block(*b), &t),
                        _ => self.sink.error(ErrorLocation::Block(*b), "an argument of a block is in scratch"),
                    }
                }
            }
            for i in &self.body.block(*b).insts {
                if let Op::Run { rows, cols, insts } = &self.body.inst(*i).op {
                    for k in insts {
                        self.in_run(*k, *rows, *cols);
                    }
                    self.one_axis(*i, insts);
                } else {
                    self.between_runs(*i);
                }
            }
        }
    }

    /// A run reduces along a single axis.
    fn one_axis(&mut self, run: Inst, insts: &[Inst]) {
        let axes = insts.iter().filter_map(|k| match self.body.inst(*k).op {
            Op::Reduce { axis, .. } => Some(axis),
            _ => None,
        });
        if axes.collect::<BTreeSet<_>>().len() > 1 {
            self.sink.error(ErrorLocation::Inst(run), "run: reduces along both axes");
        }
    }

    fn in_scratch(&mut self, at: ErrorLocation, t: &TileType) {
        if self.level.is_some() && is_padded(t) {
            self.sink.error(at, "a tile with padded rows in a kernel that is scheduled for a CPU");
        }
        let Some((start, end)) = range(t) else { return };
        if end > self.k.scratch {
            self.sink.error(at, format!("the tile ends at byte {end} of {} bytes of scratch", self.k.scratch));
        }
        if start % 64 != 0 {
            self.sink.error(at, "a tile in scratch is not aligned to 64 bytes");
        }
    }

    #[warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]
    fn between_runs(&mut self, i: Inst) {
        let data = self.body.inst(i);
        let name = data.op.info().name;
        if self.level.is_none() && matches!(data.op, Op::LoadPairs | Op::PairRows) {
            return self
                .sink
                .error(ErrorLocation::Inst(i), format!("{name}: does not stand in a kernel scheduled for a GPU"));
        }
        if data.operands.iter().chain(&data.result).filter_map(|v| self.tile(*v)).any(is_padded) {
            self.sink.error(ErrorLocation::Inst(i), format!("{name}: {RUNS_ALONE}"));
        }
        let space = |c: &Self, n: usize| data.operands.get(n).and_then(|v| c.tile(*v)).map(|t| t.space);
        let result = data.result.and_then(|v| self.tile(v)).cloned();
        match &data.op {
            Op::Dot { mode } => {
                self.mode(i, *mode);
                if !(0..2).all(|n| matches!(space(self, n), Some(Space::L1(..) | Space::Window))) {
                    self.sink.error(ErrorLocation::Inst(i), "dot: its operands are in scratch or windows");
                }
                match result {
                    // An accumulator without a space is a scalar.
                    Some(t) if matches!((t.space, space(self, 2)), (Space::L1(..), Some(Space::L1(..)) | None)) => {
                        self.in_scratch(ErrorLocation::Inst(i), &t);
                    }
                    _ => self.sink.error(ErrorLocation::Inst(i), "dot: accumulator and result are in scratch"),
                }
                self.right_in_place(i);
            }
            Op::Element if !matches!(space(self, 0), Some(Space::L1(..))) => {
                self.sink.error(ErrorLocation::Inst(i), "element: the tile is in scratch");
            }
            Op::Element => {}
            Op::Transpose | Op::PairRows => match result {
                Some(t) if matches!((t.space, space(self, 0)), (Space::L1(..), Some(Space::L1(..)))) => {
                    self.in_scratch(ErrorLocation::Inst(i), &t);
                }
                _ => self.sink.error(ErrorLocation::Inst(i), format!("{name}: operand and result are in scratch")),
            },
            Op::LoadScaled { .. } | Op::LoadPairs => {
                if result.is_none_or(|t| t.space != Space::Window) {
                    self.sink.error(ErrorLocation::Inst(i), format!("{name}: the tile is `@window`"));
                }
                let mode =
                    |v: Option<&Value>| v.and_then(|b| self.k.params.iter().find(|p| p.value == *b)).map(|p| p.mode);
                let scales = if data.op == Op::LoadPairs { data.operands.first() } else { data.operands.last() };
                let both = [mode(data.operands.first()), mode(scales)];
                if both.iter().any(|m| *m != Some(crate::tile::ParamMode::In)) {
                    self.sink.error(ErrorLocation::Inst(i), format!("{name}: the buffers are `in`"));
                }
            }
            Op::Window { rows, cols } => {
                if result.as_ref().is_none_or(|t| t.space != Space::Window) {
                    self.sink.error(ErrorLocation::Inst(i), "window: the tile is `@window`");
                }
                let buffer = data.operands.first().and_then(|b| self.body.ty(*b).buffer());
                // Matmuls on a GPU convert operands to their computation type; those on a CPU only
                // `bf16`.
                if let (Some(b), Some(t), Some(_)) = (buffer, &result, self.level)
                    && b.elem != t.elem
                    && b.elem != Elem::BF16
                {
                    let message = format!("window: element types {} and {} differ", b.elem, t.elem);
                    self.sink.error(ErrorLocation::Inst(i), message);
                }
                let strides = buffer.map(|b| &b.strides);
                let dense = |axis: &Option<usize>| {
                    axis.and_then(|a| strides.and_then(|s| s.get(a))).is_some_and(|d| d.as_const() == Some(1))
                };
                if self.level.is_some() && !dense(rows) && !dense(cols) {
                    self.sink.error(ErrorLocation::Inst(i), "window: neighbours along one axis lie side by side");
                }
                // By rule 9, a buffer with mode `in` is not written.
                let mode = data.operands.first().and_then(|b| self.k.params.iter().find(|p| p.value == *b));
                if mode.is_none_or(|p| p.mode != crate::tile::ParamMode::In) {
                    self.sink.error(ErrorLocation::Inst(i), "window: the buffer is `in`");
                }
            }
            Op::Store { .. } => self.sink.error(ErrorLocation::Inst(i), "store: work on elements stands in a run"),
            // Indices and scalars may occur anywhere. Operations of GPUs and of plans were rejected
            // before.
            Op::Const(_)
            | Op::DimValue(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast
            | Op::Narrow { .. }
            | Op::LoadScalar
            | Op::CheckIndex { .. }
            | Op::Length { .. }
            | Op::Load { .. }
            | Op::Full
            | Op::Copy
            | Op::Iota { .. }
            | Op::Reduce { .. }
            | Op::Run { .. }
            | Op::Gpu(_)
            | Op::Plan(_) => {
                if result.is_some() {
                    self.sink.error(ErrorLocation::Inst(i), format!("{name}: work on elements stands in a run"));
                }
            }
        }
    }

    /// Rule 16: a matmul's right operand in place is read in full vectors, within the buffer's
    /// columns.
    fn right_in_place(&mut self, i: Inst) {
        let Some(level) = self.level else { return };
        let right = self.body.inst(i).operands.get(1).and_then(|v| self.body.def_inst(*v));
        let Some(InstData { op, operands, result: Some(v), .. }) = right else { return };
        let ([from, indices @ ..], Some(t)) = (operands.as_slice(), self.tile(*v)) else { return };
        let Some(buffer) = self.body.ty(*from).buffer() else { return };
        // The axes on which it begins at 0; its columns must be along the first of them.
        let rank = buffer.shape.len();
        let axes = match op {
            Op::LoadPairs => rank.saturating_sub(2)..rank,
            Op::LoadScaled { .. } => rank.saturating_sub(1)..rank,
            Op::Window { cols: Some(axis), .. } => *axis..axis.saturating_add(1),
            _ => return,
        };
        let is_zero = |v: &Value| self.body.def_inst(*v).is_some_and(|d| d.op == Op::Const(Scalar::Int(0)));
        let starts = indices.get(axes.clone()).is_some_and(|all| all.iter().all(is_zero));
        let dense = buffer.is_dense(axes.start) || *op == Op::LoadPairs;
        let lanes = i64::from(level.lanes() * 4 / t.element_bytes()).max(1);
        let vectors = t.cols.capacity().saturating_add(lanes - 1).div_euclid(lanes);
        let columns = buffer.shape.get(axes.start).and_then(Dim::as_const);
        let whole = columns.is_some_and(|n| n >= vectors.saturating_mul(lanes));
        if !(t.cols.is_one() || starts && dense && whole) {
            let message = format!("dot: columns in place start rows of whole vectors of {lanes} lanes, side by side");
            self.sink.error(ErrorLocation::Inst(i), message);
        }
    }

    /// Rule 13: the mode of a matmul.
    fn mode(&mut self, i: Inst, mode: Option<DotMode>) {
        let Some(mode) = mode else {
            return self.sink.error(ErrorLocation::Inst(i), "dot: a scheduled product has a mode");
        };
        let dot = self.body.inst(i);
        let warps = if let State::Gpu { warps, .. } = self.k.state { warps } else { 1 };
        let checked = match self.level {
            Some(level) => mode.check(self.body, dot, level),
            None => mode.check_for_gpu(self.body, dot, warps),
        };
        if let Err(why) = checked {
            self.sink.error(ErrorLocation::Inst(i), format!("dot: mode `{}`: {why}", mode.name()));
        }
    }

    #[warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]
    fn in_run(&mut self, i: Inst, rows: Extent, cols: Extent) {
        let data = self.body.inst(i);
        let name = data.op.info().name;
        match &data.op {
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast
            | Op::Narrow { .. }
            | Op::Load { .. }
            | Op::Full
            | Op::Copy
            | Op::Iota { .. } => {}
            Op::Store { .. } | Op::Reduce { .. } => {
                let x = if matches!(data.op, Op::Store { .. }) { data.operands.last() } else { data.operands.first() };
                if let Some(t) = x.and_then(|v| self.tile(*v))
                    && (t.rows, t.cols) != (rows, cols)
                {
                    self.sink.error(ErrorLocation::Inst(i), format!("{name}: its operand has the extents of the run"));
                }
            }
            Op::Const(_)
            | Op::DimValue(_)
            | Op::LoadScalar
            | Op::CheckIndex { .. }
            | Op::Length { .. }
            | Op::Element
            | Op::Transpose
            | Op::LoadScaled { .. }
            | Op::LoadPairs
            | Op::PairRows
            | Op::Dot { .. }
            | Op::Run { .. }
            | Op::Window { .. }
            | Op::Gpu(_)
            | Op::Plan(_) => {
                self.sink.error(ErrorLocation::Inst(i), format!("{name}: does not stand in a run"));
                return;
            }
        }
        let tiles = data.operands.iter().chain(&data.result).filter_map(|v| self.tile(*v).cloned());
        for t in tiles.collect::<Vec<_>>() {
            if (t.rows != rows && t.rows != ONE) || (t.cols != cols && t.cols != ONE) {
                self.sink.error(ErrorLocation::Inst(i), format!("{name}: {t} has other extents than the run"));
            }
        }
        let Some(v) = data.result else { return };
        match self.tile(v).cloned() {
            Some(t) => match t.space {
                Space::L1(..) => self.in_scratch(ErrorLocation::Inst(i), &t),
                Space::Reg if !matches!(data.op, Op::Reduce { .. }) => {}
                Space::Reg | Space::Any | Space::Window | Space::Shared { .. } | Space::Fragment(_) => {
                    self.sink.error(ErrorLocation::Inst(i), format!("{name}: the result is in no space of a run"))
                }
            },
            None => self.sink.error(ErrorLocation::Inst(i), format!("{name}: scalars are computed between runs")),
        }
    }

    /// Rule 14: liveness of scratch tiles, backwards through each block.
    fn overlaps(&mut self) {
        let live_out = live_at_ends(self.body);
        for b in &self.body.layout {
            let data = self.body.block(*b);
            let mut live = live_out.get(b).cloned().unwrap_or_default();
            live.extend(data.terminator.values().iter().filter(|v| self.tile(**v).and_then(range).is_some()));
            for i in data.insts.iter().rev() {
                let (made, read) = effects(self.body, *i);
                for (at, v) in &made {
                    let others = live.iter().chain(made.iter().map(|(_, w)| w));
                    for w in others.filter(|w| *w != v).copied().collect::<BTreeSet<_>>() {
                        if self.clash(*v, w) {
                            self.sink
                                .error(ErrorLocation::Inst(*at), format!("{v} overwrites {w}, which is still needed"));
                        }
                    }
                    for o in read.iter().filter(|o| !live.contains(o)) {
                        if self.clash(*v, *o) && !self.in_place(*at, *v, *o) {
                            self.sink.error(ErrorLocation::Inst(*at), format!("{v} overwrites {o} while it is read"));
                        }
                    }
                }
                for (_, v) in &made {
                    live.remove(v);
                }
                live.extend(read);
            }
            // At the start of a block, arguments are live together with everything else.
            let args: Vec<Value> =
                data.args.iter().filter(|v| self.tile(**v).and_then(range).is_some()).copied().collect();
            for (n, a) in args.iter().enumerate() {
                for w in live.iter().filter(|w| !args.contains(w)).chain(args.get(n + 1..).unwrap_or_default()) {
                    if self.clash(*a, *w) {
                        self.sink.error(ErrorLocation::Block(*b), format!("{a} overlaps {w}"));
                    }
                }
            }
        }
    }

    fn clash(&self, a: Value, b: Value) -> bool {
        match (self.tile(a).and_then(range), self.tile(b).and_then(range)) {
            (Some(a), Some(b)) => meet(a, b),
            _ => false,
        }
    }

    /// May an operation write `v` over its operand `o`?
    fn in_place(&self, at: Inst, v: Value, o: Value) -> bool {
        let (Some(a), Some(b)) = (self.tile(v), self.tile(o)) else { return false };
        let data = self.body.inst(at);
        let place = a.space == b.space && a.cols == b.cols && a.element_bytes() == b.element_bytes();
        let same = place && a.rows == b.rows;
        match data.op {
            // Only the accumulator is read at the position where the result is written.
            Op::Dot { .. } => {
                same && data.operands.get(2) == Some(&o) && data.operands.iter().filter(|x| **x == o).count() == 1
            }
            // Written after the row, or the column, has been read.
            Op::Reduce { .. } => same,
            Op::Element | Op::Transpose => false,
            // A pair is written after its rows have been read, over rows that were read before.
            Op::PairRows => place,
            // At each position of the iteration space, everything is read before anything is
            // written.
            _ => same && self.run_of(at) == Some((a.rows, a.cols)),
        }
    }

    /// The extents of the run that contains an instruction.
    fn run_of(&self, i: Inst) -> Option<(Extent, Extent)> {
        let mut all = self.body.layout.iter().flat_map(|b| &self.body.block(*b).insts);
        all.find_map(|k| match &self.body.inst(*k).op {
            Op::Run { rows, cols, insts } if insts.contains(&i) => Some((*rows, *cols)),
            _ => None,
        })
    }
}

/// The scratch tiles that an instruction writes, each with the writing instruction, and the earlier
/// scratch tiles that it reads.
fn effects(body: &Body, i: Inst) -> (Vec<(Inst, Value)>, BTreeSet<Value>) {
    let in_scratch = |v: &Value| body.ty(*v).tile().and_then(range).is_some();
    let mut made = Vec::new();
    let mut read = BTreeSet::new();
    let mut one = |i: Inst| {
        let data = body.inst(i);
        read.extend(data.operands.iter().filter(|v| in_scratch(v)).copied());
        made.extend(data.result.filter(in_scratch).map(|v| (i, v)));
    };
    match &body.inst(i).op {
        Op::Run { insts, .. } => insts.iter().for_each(|k| one(*k)),
        _ => one(i),
    }
    read.retain(|v| !made.iter().any(|(_, w)| w == v));
    (made, read)
}

/// The scratch tiles that are live after each block, without jump arguments.
fn live_at_ends(body: &Body) -> BTreeMap<Block, BTreeSet<Value>> {
    let in_scratch = |v: &Value| body.ty(*v).tile().and_then(range).is_some();
    let mut live_in: BTreeMap<Block, BTreeSet<Value>> = BTreeMap::new();
    let mut live_out: BTreeMap<Block, BTreeSet<Value>> = BTreeMap::new();
    loop {
        let mut changed = false;
        for b in body.layout.iter().rev() {
            let data = body.block(*b);
            let out: BTreeSet<Value> = data
                .terminator
                .targets()
                .iter()
                .flat_map(|c| live_in.get(&c.block).into_iter().flatten().copied())
                .collect();
            let mut live = out.clone();
            live.extend(data.terminator.values().iter().filter(|v| in_scratch(v)));
            for i in data.insts.iter().rev() {
                let (made, read) = effects(body, *i);
                made.iter().for_each(|(_, v)| {
                    live.remove(v);
                });
                live.extend(read);
            }
            data.args.iter().for_each(|v| {
                live.remove(v);
            });
            live_out.insert(*b, out);
            if live_in.get(b) != Some(&live) {
                live_in.insert(*b, live);
                changed = true;
            }
        }
        if !changed {
            return live_out;
        }
    }
}
