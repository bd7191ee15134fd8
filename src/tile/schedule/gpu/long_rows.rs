//! split-rows: if there are few long rows, separate blocks reduce parts of each.
//!
//! In: an unscheduled module. Out: the same, in which a launch of a kernel that goes through its
//! rows in chunks becomes several, where that pays: for each reducing loop over chunks, one launch
//! that reduces each part of a row, and one that combines the partial results and does the rest of
//! the work, on as many blocks if that is a loop too.
//!
//! ```text
//! fn f(x: f32[1000000]) -> f32 { max(x) }
//! ...
//!   %15 = add %5, %10 : index
//!   br ^bb1(%15, %14)
//! ...
//!   launch @rows.0(%0, %2)
//! ->
//! kernel @rows_part.0(%0: in f32[1000000], %1: out f32[123]) grid(%2: 123) {
//! ...
//!   %6 = const 503808 : index
//! ...
//!   %17 = add %8, %6 : index
//!   br ^bb1(%17, %16)
//! ...
//!   launch @rows_part.0(%0, %2)
//!   launch @combine_rows.0(%3, %2)
//! ```
//!
//! Each of the 123 parts reads a chunk of 4096 elements, then the chunk 123 chunks further on.
//!
//! A softmax becomes three: partial maxima; partial sums, using the combined maximum; elements,
//! using the combined maximum and sum. To avoid further launches, each block combines the partial
//! results it needs itself: that is one access per lane.
//!
//! [`super::parts`] determines from the IR what loops combine, and how; partial results are
//! combined in the same way. A compensated float sum yields sum plus compensation for each part,
//! rounded once; so the error of the whole is that of a chunk, plus some ten roundings in the sum
//! over at most [`ENOUGH_BLOCKS`] parts, and two more. The index of a maximum is the least index
//! among the parts with the greatest maximum, or with NaN if that is the maximum.
//!
//! # Cost
//!
//! By the arithmetic of [`super::few_rows`], a GPU saturates its memory bandwidth if
//! [`ENOUGH_BLOCKS`] blocks have a chunk of [`CHUNK`] elements in flight each, and is
//! proportionally slower with fewer. Another launch takes as long as reading [`LAUNCH_BYTES`]
//! bytes, and waits for the partial results as long as for a chunk. A row of 1,000,000 elements is
//! 245 consecutive chunks in one block, or 2 in each of 123. So the number of parts depends on the
//! number of rows and their length. If the length is only known in a call, there are [`PARTS`], in
//! calls where that pays; if the number of rows is, calls with few rows are split. So a kernel may
//! exist in both versions.
//!
//! Limits: it does not split rows that are a single tile, nor kernels with more code around their
//! loops than lowering makes.

use std::collections::BTreeSet;
use std::fmt;

use cranelift_entity::SecondaryMap;

use super::super::plans::{LaunchPosition, value_before};
use super::super::step::{Changed, Log};
use super::cost;
use super::in_steps::{self, Operand, Steps, When, have_slots, writes_elsewhere};
use super::parts::{Combination, combinations};
use super::tiles::{Along, Axes};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar};
use crate::shape::{Dim, Elem};
use crate::source::Loc;
use crate::ssa::remove_dead;
use crate::tile::machine::{BYTES_IN_FLIGHT, ENOUGH_BLOCKS, LAUNCH_BYTES};
use crate::tile::{
    Block, BlockCall, Body, BufferType, Extent, GridAxis, Kernel, KernelBuilder, Machine, Module, Op, Param, ParamMode,
    State, Terminator, TileType, Type, Value, row_major, simplify,
};

/// Number of parts of a row whose length is only known in a call.
const PARTS: i64 = 128;
/// If both number and length of rows are only known in a call: split if there are at most this many
/// times the known part of the rows.
const FEW_ROWS: i64 = 16;

/// Applies the rewrite; returns the names of the new kernels.
///
/// # Errors
/// As [`in_steps::replace`].
pub(in super::super) fn run(module: &mut Module, _: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    in_steps::replace(module, |module, kernel| {
        let divided = LongRows::find(kernel).filter(|_| writes_elsewhere(module, kernel))?;
        let steps = divided.steps().filter(|steps| have_slots(module, &kernel.name, &steps.slots))?;
        log.note(&kernel.name, &divided.division.to_string());
        Some(steps)
    })
}

/// How rows are split.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Division {
    /// In which calls.
    when: When,
    /// Elements per row.
    row: Dim,
    parts: i64,
    launches: usize,
}

impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Division { when, row, parts, launches } = self;
        write!(f, "rows of {row} elements are divided among {parts} blocks each, in {launches} launches")?;
        let from = when.from.iter().map(|(d, n)| format!("{d} is at least {n}"));
        let conditions: Vec<String> =
            from.chain(when.below.iter().map(|(d, n)| format!("{d} is less than {n}"))).collect();
        if conditions.is_empty() { Ok(()) } else { write!(f, ", where {}", conditions.join(" and ")) }
    }
}

/// A loop over the chunks of a row.
struct Pass {
    head: Block,
    inside: Block,
    done: Block,
    counter: Value,
    /// End of the loop.
    end: Dim,
    /// Elements per chunk.
    step: i64,
    /// The side of tiles that goes along the row.
    side: usize,
    /// How chunks are combined; empty if their elements are stored.
    combined: Vec<Combination>,
}

/// Partial results for one loop-carried value.
struct Slot {
    /// Number of the loop.
    pass: usize,
    acc: Value,
    ty: BufferType,
}

/// A kernel whose rows are split.
struct LongRows {
    kernel: Kernel,
    passes: Vec<Pass>,
    /// The side of tiles along which rows go: 1, or 0 where tiles are turned.
    side: usize,
    /// The grid axis along which tiles have their other side.
    rows: Option<usize>,
    /// Position of a point's tiles along each grid axis.
    places: Vec<Value>,
    division: Division,
}

impl LongRows {
    fn find(kernel: &Kernel) -> Option<LongRows> {
        if kernel.state != State::Unscheduled || kernel.params.iter().any(|p| p.mode == ParamMode::InOut) {
            return None;
        }
        let mut kernel = kernel.clone();
        let mut axes = Axes::find(&kernel)?;
        cost::take_long_rows(&mut kernel, &mut axes);
        let passes = passes(&kernel, &axes)?;
        let accumulator = passes.iter().flat_map(|p| &p.combined).next()?.acc();
        let side = passes.first()?.side;
        let (rows, places) = places(&kernel, &axes, accumulator, 1 - side)?;
        let division = divide(&kernel, &passes)?;
        let is_one = passes.iter().all(|p| p.side == side);
        is_one.then_some(LongRows { kernel, passes, side, rows, places, division })
    }

    /// The partial results, in order of the slots.
    fn slots(&self) -> Vec<Slot> {
        let extents = self.kernel.grid.iter().map(|g| g.extent.clone());
        let shape: Vec<Dim> = extents.chain([self.division.parts.into()]).collect();
        let slot = |pass: usize, c: &Combination| {
            let elem = self.kernel.body.ty(c.acc()).elem()?;
            let ty = BufferType { elem, strides: row_major(&shape), shape: shape.clone() };
            let is_given = !matches!(c, Combination::Lost { .. });
            is_given.then_some(Slot { pass, acc: c.acc(), ty })
        };
        let all = self.passes.iter().enumerate().flat_map(|(n, p)| p.combined.iter().map(move |c| (n, c)));
        all.filter_map(|(n, c)| slot(n, c)).collect()
    }

    /// The replacement kernels, and the slots of partial results between them.
    fn steps(&self) -> Option<Steps> {
        let slots = self.slots();
        let kernels =
            (0..self.division.launches).map(|stage| self.kernel(stage, &slots)).collect::<Option<Vec<_>>>()?;
        let when = self.division.when.clone();
        Some(Steps { when, slots: slots.into_iter().map(|slot| slot.ty).collect(), kernels })
    }

    /// One of the kernels: the results of loops before number `stage` are combined from all parts,
    /// and that loop is split, if it exists.
    fn kernel(&self, stage: usize, slots: &[Slot]) -> Option<(Kernel, Vec<Operand>)> {
        let (before, pass) = (self.passes.get(..stage)?, self.passes.get(stage));
        let reduces = pass.is_some_and(|p| !p.combined.is_empty());
        let mut made =
            Kernel { name: if reduces { "rows_part" } else { "combine_rows" }.into(), ..self.kernel.clone() };
        let own = (0..made.params.len()).map(Operand::Own);
        let mut making = Making { operands: own.collect(), here: made.body.entry(), made: &mut made, of: self, slots };
        for (n, pass) in before.iter().enumerate() {
            making.combine(n, pass)?;
        }
        if let Some(pass) = pass {
            let part = making.divide(pass)?;
            if reduces {
                making.store(stage, pass, part)?;
            }
        }
        let mut operands = std::mem::take(&mut making.operands);
        simplify(&mut made.body);
        remove_dead(&mut made.body);
        let uses = made.body.uses();
        let mut used = made.params.iter().map(|p| !uses[p.value].is_empty()).collect::<Vec<_>>().into_iter();
        operands.retain(|_| used.next().unwrap_or_default());
        made.params.retain(|p| !uses[p.value].is_empty());
        made.find_symbols();
        Some((made, operands))
    }
}

/// A kernel under construction.
struct Making<'a> {
    made: &'a mut Kernel,
    of: &'a LongRows,
    slots: &'a [Slot],
    /// The operands of its launch, one per parameter.
    operands: Vec<Operand>,
    /// The block before the next loop.
    here: Block,
}

impl Making<'_> {
    /// Appends an instruction to the block before the next loop.
    fn push(&mut self, op: Op, operands: Vec<Value>, ty: Type) -> Option<Value> {
        self.made.body.push(self.here, op, operands, Some(ty), Loc::default())
    }

    fn number(&mut self, n: &Dim) -> Option<Value> {
        let op = n.as_const().map_or_else(|| Op::DimValue(n.clone()), |n| Op::Const(Scalar::Int(n)));
        self.push(op, Vec::new(), Type::Index)
    }

    /// The parameter of a slot.
    fn parameter(&mut self, n: usize, mode: ParamMode) -> Option<Value> {
        let ty = self.slots.get(n)?.ty.clone();
        let value = self.made.body.add_param(Type::Buffer(ty));
        self.made.params.push(Param::new(value, mode));
        self.operands.push(Operand::Slot(n));
        Some(value)
    }

    /// The slots of a loop, with their numbers.
    fn slots_of(&self, pass: usize) -> impl Iterator<Item = (usize, &'_ Slot)> {
        self.slots.iter().enumerate().filter(move |(_, slot)| slot.pass == pass)
    }

    /// The axes of a slot along the rows and columns of a tile: `along` is the one along which rows
    /// go.
    fn axes_of(&self, tile: Value, along: Option<usize>) -> (Option<usize>, Option<usize>) {
        let has_rows = self.made.body.ty(tile).tile().is_some_and(|t| !t.extent(1 - self.of.side).is_one());
        let other = self.of.rows.filter(|_| has_rows);
        if self.of.side == 1 { (other, along) } else { (along, other) }
    }

    /// Replaces the chunks of a loop by the partial results: it becomes a single iteration.
    fn combine(&mut self, number: usize, pass: &Pass) -> Option<()> {
        let parts = self.of.division.parts;
        let all = Extent::Static(parts);
        let zero = self.number(&Dim::zero())?;
        let numbers: Vec<(usize, Value)> = self.slots_of(number).map(|(n, slot)| (n, slot.acc)).collect();
        let mut loaded: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
        for (n, acc) in numbers {
            let from = self.parameter(n, ParamMode::In)?;
            let t = self.made.body.ty(acc).tile()?.clone();
            let ty = tile_along(&t, t.elem, self.of.side, all);
            let (rows, cols) = self.axes_of(acc, Some(self.of.places.len()));
            let op = Op::Load { rows, cols };
            let operands = [&[from], self.of.places.as_slice(), &[zero]].concat();
            loaded[acc] = self.push(op, operands, ty);
        }
        let body = &mut self.made.body;
        for c in &pass.combined {
            if let Combination::Part { acc, part, .. } = c {
                *reduced(body, *part)? = loaded[*acc]?;
            }
        }
        let mut by: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
        for c in &pass.combined {
            if let Combination::Place { acc, best, found } = c {
                let (inst, data) = body.definition(*found)?;
                let before = LaunchPosition { block: pass.inside, inst, loc: data.loc, out: None };
                let all = [*reduced(body, *best)?, loaded[*acc]?];
                by[*found] = Some(first_place(body, before, *best, all, self.of.side)?);
            }
        }
        body.replace_uses(&by);
        let args = body.block(pass.head).args.clone();
        let Terminator::Br(into) = body.block(self.here).terminator.clone() else { return None };
        let given = |to: &[Value]| {
            let mut by = SecondaryMap::new();
            args.iter().zip(to).for_each(|(arg, v)| by[*arg] = Some(*v));
            by
        };
        body.replace_uses_in(&[pass.head, pass.inside], &given(&into.args));
        let Terminator::Br(back) = body.block(pass.inside).terminator.clone() else { return None };
        body.replace_uses(&given(&back.args));
        let blocks = [pass.head, pass.inside, pass.done];
        for block in blocks {
            let insts = std::mem::take(&mut body.block_mut(block).insts);
            body.block_mut(self.here).insts.extend(insts);
        }
        let end = body.block(pass.done).terminator.clone();
        body.terminate(self.here, end);
        body.layout.retain(|b| !blocks.contains(b));
        Some(())
    }

    /// Restricts a loop to a part of the row: every `parts`-th chunk. Returns the number of the
    /// part.
    fn divide(&mut self, pass: &Pass) -> Option<Value> {
        let parts = self.of.division.parts;
        let part = self.made.body.add_param(Type::Index);
        self.made.grid.push(GridAxis { value: part, extent: parts.into(), step: 1 });
        let [chunk, all] = [pass.step, pass.step.saturating_mul(parts)].map(Dim::from);
        let (chunk, all) = (self.number(&chunk)?, self.number(&all)?);
        let start = self.push(Op::Binary(BinaryOp::Mul), vec![part, chunk], Type::Index)?;
        let body = &mut self.made.body;
        let counter = body.block(pass.head).args.iter().position(|v| *v == pass.counter)?;
        let Terminator::Br(back) = &body.block(pass.inside).terminator else { return None };
        let (next, _) = body.definition(*back.args.get(counter)?)?;
        *body.inst_mut(next).operands.get_mut(1)? = all;
        let mut end = body.block(self.here).terminator.clone();
        *end.targets_mut().first_mut()?.args.get_mut(counter)? = start;
        body.terminate(self.here, end);
        Some(part)
    }

    /// Stores the partial result of a row, in place of everything that follows.
    fn store(&mut self, number: usize, pass: &Pass, part: Value) -> Option<()> {
        let kept = self.here;
        self.here = pass.done;
        self.made.body.block_mut(pass.done).insts.clear();
        let slots: Vec<(usize, Value)> = self.slots_of(number).map(|(n, slot)| (n, slot.acc)).collect();
        for (n, acc) in slots {
            let lost = pass.combined.iter().find_map(|c| match c {
                Combination::Lost { acc: lost, sum } if *sum == acc => Some(*lost),
                _ => None,
            });
            let given = match lost {
                Some(lost) => self.total(acc, lost)?,
                None => acc,
            };
            let to = self.parameter(n, ParamMode::Out)?;
            let operands = [&[to], self.of.places.as_slice(), &[part, given]].concat();
            let (rows, cols) = self.axes_of(acc, None);
            let op = Op::Store { rows, cols };
            self.made.body.push(self.here, op, operands, None, Loc::default());
        }
        let body = &mut self.made.body;
        body.terminate(pass.done, Terminator::Return(Vec::new()));
        body.layout.retain(|b| [kept, pass.head, pass.inside, pass.done].contains(b));
        Some(())
    }

    /// A sum plus its compensation, which is ignored if the sum is infinite (and the compensation
    /// NaN).
    fn total(&mut self, sum: Value, lost: Value) -> Option<Value> {
        let ty = self.made.body.ty(sum).clone();
        let t = ty.tile()?.clone();
        let both = self.push(Op::Binary(BinaryOp::Add), vec![sum, lost], ty.clone())?;
        let truth = Type::Tile(KernelBuilder::tile_type(Elem::Bool, t.rows, t.cols));
        let known = self.push(Op::Compare(CmpOp::Eq), vec![lost, lost], truth)?;
        self.push(Op::Select, vec![known, both, sum], ty)
    }
}

/// The type of a tile with another extent along a side.
fn tile_along(t: &TileType, elem: Elem, side: usize, along: Extent) -> Type {
    let (rows, cols) = if side == 1 { (t.rows, along) } else { (along, t.cols) };
    Type::Tile(KernelBuilder::tile_type(elem, rows, cols))
}

/// The operand of a reduction.
fn reduced(body: &mut Body, part: Value) -> Option<&mut Value> {
    let (inst, _) = body.definition(part)?;
    body.inst_mut(inst).operands.first_mut()
}

/// The least index, per row, of the greatest elements, or of NaN if that is the maximum.
fn first_place(
    body: &mut Body,
    before: LaunchPosition,
    most: Value,
    [elements, places]: [Value; 2],
    side: usize,
) -> Option<Value> {
    let t = body.ty(places).tile()?.clone();
    let ty = |elem: Elem, along: Extent| tile_along(&t, elem, side, along);
    let whole = t.extent(side);
    let (one, all) = (ty(Elem::Bool, Extent::Static(1)), ty(Elem::Bool, whole));
    let mut push = |op: Op, operands: Vec<Value>, ty: &Type| value_before(body, before, op, operands, ty.clone());
    let equal = push(Op::Compare(CmpOp::Eq), vec![elements, most], &all);
    let nan = push(Op::Compare(CmpOp::Ne), vec![elements, elements], &all);
    let is_nan = push(Op::Compare(CmpOp::Ne), vec![most, most], &one);
    let both = push(Op::Binary(BinaryOp::And), vec![nan, is_nan], &all);
    let is_there = push(Op::Binary(BinaryOp::Or), vec![equal, both], &all);
    let beyond = push(Op::Const(Scalar::Int(i32::MAX.into())), Vec::new(), &Type::Scalar(t.elem));
    let chosen = push(Op::Select, vec![is_there, places, beyond], &ty(t.elem, whole));
    let first = Op::Reduce { kind: ReduceKind::Min, axis: side };
    Some(push(first, vec![chosen], &ty(t.elem, Extent::Static(1))))
}

/// The loops of a kernel, if it consists of consecutive loops: all but the last reduce, and the
/// last one reduces or stores.
fn passes(kernel: &Kernel, axes: &Axes) -> Option<Vec<Pass>> {
    let body = &kernel.body;
    let mut passes: Vec<Pass> = Vec::new();
    let mut block = body.entry();
    while let Terminator::Br(into) = &body.block(block).terminator {
        if stores(body, block) || passes.last().is_some_and(|p| p.combined.is_empty()) {
            return None;
        }
        let pass = pass(body, axes, into)?;
        block = pass.done;
        passes.push(pass);
    }
    let is_end = matches!(&body.block(block).terminator, Terminator::Return(_));
    let last_stores = passes.last()?.combined.is_empty();
    let all = body.layout.len() == 1 + 3 * passes.len();
    (is_end && all && stores(body, block) != last_stores).then_some(passes)
}

/// The loop that a block jumps to.
fn pass(body: &Body, axes: &Axes, into: &BlockCall) -> Option<Pass> {
    let head = into.block;
    let Terminator::BrIf { condition, then, otherwise } = &body.block(head).terminator else { return None };
    let (inside, done) = (then.block, otherwise.block);
    let Terminator::Br(back) = &body.block(inside).terminator else { return None };
    let args = &body.block(head).args;
    let axis = axes.0.iter().find(|a| a.along == Along::Loop && a.side.is_some() && args.contains(&a.start))?;
    let combined = combinations(body, &axis.nodes, Some(axis.start))?;
    let is_alone = back.block == head && then.args.is_empty() && otherwise.args.is_empty() && !stores(body, head);
    // A nonzero initial value would be in the sum of each part.
    let initial = |v: Value| args.iter().position(|arg| *arg == v).and_then(|n| into.args.get(n));
    let begins_well = |c: &Combination| match c {
        Combination::Part { acc, kind: ReduceKind::Sum, .. } | Combination::Lost { acc, .. } => {
            initial(*acc).is_some_and(|v| is_zero(body, *v))
        }
        Combination::Part { .. } | Combination::Place { .. } => true,
    };
    let parts: Vec<Value> = combined.iter().filter_map(Combination::part).collect();
    let are_apart = parts.iter().collect::<BTreeSet<_>>().len() == parts.len();
    let fits = is_alone && combined.is_empty() == stores(body, inside) && combined.iter().all(begins_well) && are_apart;
    let end = match &body.def_inst(*body.def_inst(*condition)?.operands.get(1)?)?.op {
        Op::Const(s) => s.as_i64().into(),
        Op::DimValue(d) => d.clone(),
        _ => return None,
    };
    let side = axis.side?;
    fits.then_some(Pass { head, inside, done, counter: axis.start, end, step: axis.step, side, combined })
}

fn stores(body: &Body, block: Block) -> bool {
    body.block(block).insts.iter().any(|i| matches!(body.inst(*i).op, Op::Store { .. }))
}

/// Is it a tile of zeros?
fn is_zero(body: &Body, v: Value) -> bool {
    let filled = body.def_inst(v).filter(|d| d.op == Op::Full);
    let x = filled.and_then(|d| d.operands.first()).and_then(|x| body.def_inst(*x));
    x.is_some_and(|d| match d.op {
        Op::Const(Scalar::Float(x)) => x == 0.0,
        Op::Const(Scalar::Int(n)) => n == 0,
        _ => false,
    })
}

/// The grid axis along which tiles, including an accumulator, have this side; and the position of a
/// point's tiles along each axis.
fn places(kernel: &Kernel, axes: &Axes, accumulator: Value, side: usize) -> Option<(Option<usize>, Vec<Value>)> {
    let has_rows = kernel.body.ty(accumulator).tile().is_some_and(|t| !t.extent(side).is_one());
    let (mut rows, mut places) = (None, Vec::new());
    for (n, g) in kernel.grid.iter().enumerate() {
        // Tiles with a single row have no axis for it.
        let axis = axes.0.iter().find(|a| a.along == Along::Grid(n) && a.side == Some(side));
        match axis {
            Some(axis) if has_rows && rows.is_none() && axis.nodes.contains(&(accumulator, side)) => {
                rows = Some(n);
                places.push(axis.start);
            }
            Some(axis) if g.step == 1 => places.push(axis.start),
            None if g.step == 1 => places.push(g.value),
            _ => return None,
        }
    }
    (rows.is_some() == has_rows).then_some((rows, places))
}

/// Chooses the number of parts for a kernel's rows, if splitting pays.
fn divide(kernel: &Kernel, passes: &[Pass]) -> Option<Division> {
    let chunk = passes.iter().map(|p| p.step).max()?;
    let row = &passes.first()?.end;
    if passes.iter().any(|p| p.end != *row || p.step != chunk) {
        return None;
    }
    let reductions = passes.iter().filter(|p| !p.combined.is_empty()).count();
    let passes = i64::try_from(passes.len()).ok()?;
    let work = Work { passes, reductions: i64::try_from(reductions).ok()? };
    // Known number of row blocks, and the symbolic factor.
    let (mut known, mut count, mut step) = (1_i64, Dim::one(), 1_i64);
    for g in &kernel.grid {
        let step_of = g.step.max(1);
        match g.extent.as_const() {
            Some(n) => known = known.saturating_mul((n + step_of - 1) / step_of),
            None => (count, step) = (count.mul(&g.extent), step.saturating_mul(step_of)),
        }
    }
    let of = |when: When, parts: i64| Division { when, row: row.clone(), parts, launches: reductions + 1 };
    let is_known = count.is_const();
    let Some(length) = row.as_const() else {
        // If longer rows also mean more rows, there are never few long ones.
        if count.symbols().iter().any(|s| row.symbols().contains(s)) {
            return None;
        }
        let below = (!is_known).then(|| (count, FEW_ROWS.saturating_mul(step)));
        let rows = if is_known { known } else { known.saturating_mul(FEW_ROWS) };
        let least = work.least_chunks(rows)?.saturating_mul(chunk);
        return Some(of(When { below, from: Some((row.clone(), least)) }, PARTS));
    };
    let chunks = length.saturating_add(chunk - 1) / chunk;
    let parts = work.parts(known, chunks)?;
    let below = match is_known {
        true => None,
        false => Some((count, work.most_rows(known, chunks, parts)?.saturating_mul(step))),
    };
    Some(of(When { below, from: None }, parts))
}

/// The work of a kernel per row: its loops, and how many of them reduce.
#[derive(Clone, Copy)]
struct Work {
    passes: i64,
    reductions: i64,
}

impl Work {
    /// Time for `rows` row blocks of `chunks` chunks each, as bytes that could be read in it.
    fn time(self, rows: i64, chunks: i64, parts: i64) -> i64 {
        let read =
            |blocks: i64, chunks: i64| chunks.saturating_mul(BYTES_IN_FLIGHT).saturating_mul(blocks.max(ENOUGH_BLOCKS));
        let all =
            read(rows.saturating_mul(parts.min(chunks)), (chunks + parts - 1) / parts).saturating_mul(self.passes);
        if parts == 1 {
            return all;
        }
        let combined = LAUNCH_BYTES.saturating_add(read(rows, 1));
        all.saturating_add(combined.saturating_mul(self.reductions))
    }

    /// The model is rough: a gain of less than a fifth does not count.
    fn pays(self, rows: i64, chunks: i64, parts: i64) -> bool {
        let time = |parts: i64| self.time(rows, chunks, parts);
        time(parts).saturating_mul(5) <= time(1).saturating_mul(4)
    }

    /// The number of parts with the least time, if that pays.
    fn parts(self, rows: i64, chunks: i64) -> Option<i64> {
        let best = (2..=ENOUGH_BLOCKS.min(chunks)).min_by_key(|parts| self.time(rows, chunks, *parts));
        best.filter(|parts| self.pays(rows, chunks, *parts))
    }

    /// The least number of chunks for which [`PARTS`] parts pay.
    fn least_chunks(self, rows: i64) -> Option<i64> {
        (2..=PARTS).find(|chunks| self.pays(rows, *chunks, PARTS))
    }

    /// The number of rows, as a multiple of `rows`, from which splitting does not pay.
    fn most_rows(self, rows: i64, chunks: i64, parts: i64) -> Option<i64> {
        (2..=ENOUGH_BLOCKS).find(|n| !self.pays(rows.saturating_mul(*n), chunks, parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_divided_where_that_pays_for_launches() {
        let sum = Work { passes: 1, reductions: 1 };
        let softmax = Work { passes: 3, reductions: 2 };
        // Of a million elements, of a vocabulary, of a few chunks.
        assert_eq!([245, 13, 4].map(|chunks| sum.parts(1, chunks)), [Some(123), Some(13), None]);
        assert_eq!([245, 13, 4].map(|chunks| softmax.parts(1, chunks)), [Some(123), Some(13), None]);
        // With more rows there are fewer parts, until there are enough blocks without splitting.
        assert_eq!([1, 10, 100, 1000].map(|rows| sum.parts(rows, 245)), [Some(123), Some(35), Some(5), None]);
        assert_eq!([1, 100, 144].map(|rows| sum.least_chunks(rows)), [Some(7), Some(37), None]);
        assert_eq!([sum.most_rows(1, 245, 123), softmax.most_rows(1, 13, 13)], [Some(113), Some(87)]);
    }
}
