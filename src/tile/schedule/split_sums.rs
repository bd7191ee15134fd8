//! split-sums: a matmul with large K becomes a loop over blocks of k, whose sums are added.
//!
//! ```text
//! kernel @matmul.0(%0: in f32[4, 2048], %1: in f32[1, 2048, 32], %2: out f32[4, 32]) {
//! ^bb0:
//!   %3 = const 0                                : index
//!   %4 = const 0.0                              : f32
//!   %5 = full %4                                : tile f32[4, 32]
//!   %6 = load %0[%3, %3], rows=0, cols=1       : tile f32[4, 2048]
//!   %7 = load %1[%3, %3, %3], rows=1, cols=2   : tile f32[2048, 32]
//!   %8 = dot %6, %7, %5                     : tile f32[4, 32]
//!   store %2[%3, %3], %8, rows=0, cols=1
//!   return
//! }
//! ->
//! kernel @matmul.0(%0: in f32[4, 2048], %1: in f32[1, 2048, 32], %2: out f32[4, 32]) {
//! ^bb0:
//!   %3 = const 0                                : index
//!   %4 = const 0.0                              : f32
//!   %5 = full %4                                : tile f32[4, 32]
//!   br ^bb1(%3, %5)
//! ^bb1(%6: index, %7: tile f32[4, 32]):
//!   %8 = const 2048                             : index
//!   %9 = const 256                              : index
//!   %10 = add %6, %9                            : index
//!   %11 = lt %10, %8                            : bool
//!   br_if %11, ^bb2, ^bb3
//! ^bb2:
//!   %12 = load %0[%3, %6], rows=0, cols=1       : tile f32[4, 256]
//!   %13 = load %1[%3, %6, %3], rows=1, cols=2   : tile f32[256, 32]
//!   %14 = dot %12, %13, %7                      : tile f32[4, 32]
//!   br ^bb1(%10, %14)
//! ^bb3:
//!   %15 = load %0[%3, %6], rows=0, cols=1       : tile f32[4, 256]
//!   %16 = load %1[%3, %6, %3], rows=1, cols=2   : tile f32[256, 32]
//!   %17 = dot %15, %16, %7                      : tile f32[4, 32]
//!   store %2[%3, %3], %17, rows=0, cols=1
//!   return
//! }
//! ```
//!
//! It takes an unscheduled kernel of one block with one matmul of constant K, as made by
//! `lowering::tile::matmul` (which makes a loop itself if K is not a constant), and accumulates in
//! a tile filled with a constant.
//!
//! The length of a block is
//!
//! * 256: a panel of 32 columns then takes 32 KiB, which stays in an L1 cache of 48 KiB from one
//!   register tile of rows to the next. Each partial sum costs a register tile of 14 rows some 50
//!   cycles of some 3,600. Up to 1024 are one chain: 256 for these, too, were no faster;
//! * 1024 for integers that are summed exactly in groups of 32: a chain of 32 sums;
//! * 2048 for `bf16` tiles, which add 32 k indices at a time: a chain of 64 sums of two of 16.
//!
//! If the result is stored directly, or rounded, as above, the last block comes after the loop,
//! next to the store, so that the sums need not go through scratch. A block of k is a part of the
//! kernel's original accesses, so it stays in bounds.
//!
//! It must not know where tiles live, nor the modes of matmuls.

use cranelift_entity::SecondaryMap;

use super::step::{Changed, Log, unscheduled};
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::Dim;
use crate::tile::{
    Body, Cpu, Extent, Feature, GROUP, Inst, Kernel, KernelBuilder, Machine, Module, Op, TileType, Type, Value,
    ValueDef, simplify,
};

const CHAIN: i64 = 256;
const ONE_CHAIN: i64 = 1024;
const OF_GROUPS: i64 = 1024;
const OF_TILES: i64 = 2048;

// A block must begin at a group of integers, and at a pair.
const _: () =
    assert!(CHAIN % GROUP as i64 == 0 && OF_GROUPS % GROUP as i64 == 0 && CHAIN % 2 == 0 && OF_TILES % 2 == 0);

/// Puts the matmuls of all kernels into loops where K is too large; they are the changed kernels.
pub(super) fn run(module: &mut Module, machine: &Machine, _: &mut Log<'_>) -> Result<Changed, String> {
    let Some(cpu) = machine.cpu() else { return Ok(Changed::new()) };
    Ok(unscheduled(module).filter_map(|k| split(k, cpu).then(|| k.name.clone())).collect())
}

/// Puts a kernel's matmul into a loop over blocks of k, if K is too large; returns whether it was.
pub(super) fn split(kernel: &mut Kernel, cpu: Cpu) -> bool {
    let Some(product) = SplitMatmul::find(&kernel.body, cpu) else { return false };
    *kernel = product.rebuild(kernel);
    simplify(&mut kernel.body);
    true
}

/// A matmul to be put into a loop.
struct SplitMatmul {
    /// The instructions before it, including its accumulator and constants, and those after it.
    before: Vec<Inst>,
    after: Vec<Inst>,
    dot: Inst,
    left: Load,
    right: Load,
    acc: Value,
    /// K, and the length of a block.
    steps: i64,
    block: i64,
}

/// The load of an operand: the position of its k index among the operands, and the number of k
/// indices per unit of it.
struct Load {
    inst: Inst,
    place: usize,
    per_index: i64,
}

/// The load that defines an operand of a matmul, starting at k index 0.
fn load(body: &Body, v: Value, is_left: bool) -> Option<Load> {
    let ValueDef::Result(inst) = body.def(v) else { return None };
    let data = body.inst(inst);
    // Axes from the end, without the operands after the indices.
    let axis = |n: usize| data.operands.len().checked_sub(n);
    let (place, per_index) = match data.op {
        Op::Load { cols: Some(axis), .. } if is_left => (1 + axis, 1),
        Op::Load { rows: Some(axis), .. } if !is_left => (1 + axis, 1),
        Op::LoadScaled { bits } if !is_left => (axis(3)?, i64::from(8 / bits.clamp(1, 8))),
        Op::LoadPairs if !is_left => (axis(3)?, 2),
        _ => return None,
    };
    let first = body.def_inst(*data.operands.get(place)?)?;
    (first.op == Op::Const(Scalar::Int(0))).then_some(Load { inst, place, per_index })
}

impl SplitMatmul {
    /// The matmul of a kernel, if K exceeds a block.
    fn find(body: &Body, cpu: Cpu) -> Option<SplitMatmul> {
        let [block] = body.layout.as_slice() else { return None };
        let insts = &body.block(*block).insts;
        let is_dot = |i: &Inst| matches!(body.inst(*i).op, Op::Dot { .. });
        let at = insts.iter().position(is_dot)?;
        let dot = insts[at];
        let [a, b, acc] = body.inst(dot).operands.as_slice() else { return None };
        let (left, right) = (load(body, *a, true)?, load(body, *b, false)?);
        let Extent::Static(steps) = body.ty(*a).tile()?.cols else { return None };
        let block = match body.inst(right.inst).op {
            Op::LoadPairs if cpu.has(Feature::Amx) => OF_TILES,
            Op::LoadScaled { .. } if cpu.sums_bytes() => OF_GROUPS,
            _ if steps <= ONE_CHAIN => ONE_CHAIN,
            _ => CHAIN,
        };
        let ValueDef::Result(filled) = body.def(*acc) else { return None };
        let from = insts.iter().position(|i| *i == filled)?;
        let (before, own, after) = (insts.get(..=from)?, insts.get(from + 1..at)?, insts.get(at + 1..)?);
        // Between accumulator and matmul there must be only its operands, without other uses, and
        // constants.
        let (loads, constants): (Vec<Inst>, Vec<Inst>) = own.iter().partition(|i| [left.inst, right.inst].contains(i));
        let used_later = |i: &Inst| body.inst(*i).operands.iter().any(|v| [a, b].contains(&v));
        let is_alone = loads.len() == 2
            && constants.iter().all(|i| matches!(body.inst(*i).op, Op::Const(_)))
            && !after.iter().any(|i| is_dot(i) || used_later(i));
        let fits = body.inst(filled).op == Op::Full && is_alone && steps > block;
        let (before, after, acc) = ([before, &constants].concat(), after.to_vec(), *acc);
        fits.then_some(SplitMatmul { before, after, dot, left, right, acc, steps, block })
    }

    /// The kernel with the matmul in a loop.
    fn rebuild(&self, old: &Kernel) -> Kernel {
        let mut kb = KernelBuilder::new(&old.name);
        let mut copies = Copies { old: &old.body, now: SecondaryMap::new() };
        for p in &old.params {
            copies.now[p.value] = Some(match old.body.ty(p.value) {
                Type::Buffer(ty) => kb.buffer(ty.clone(), p.mode),
                _ => kb.index_param(),
            });
        }
        for axis in &old.grid {
            copies.now[axis.value] = Some(kb.grid_axis(&axis.extent, axis.step));
        }
        self.before.iter().for_each(|i| copies.inst(&mut kb, *i));
        let dot = old.body.inst(self.dot);
        kb.at(dot.loc);
        let op = |i: &Inst| &old.body.inst(*i).op;
        let is_stored = match self.after.as_slice() {
            [rest @ .., last] => {
                matches!(op(last), Op::Store { .. }) && rest.iter().all(|i| matches!(op(i), Op::Narrow { .. }))
            }
            [] => false,
        };
        let (steps, acc) = (Dim::from(self.steps), copies.copy_of(self.acc));
        let sum = kb.summed(&steps, self.block, is_stored, acc, |kb, k, steps, acc| {
            let a = copies.part(kb, &self.left, k, |t| t.cols = steps);
            let b = copies.part(kb, &self.right, k, |t| t.rows = steps);
            kb.dot(a, b, acc)
        });
        if let Some(result) = dot.result {
            copies.now[result] = Some(sum);
        }
        self.after.iter().for_each(|i| copies.inst(&mut kb, *i));
        let mut new = Kernel { symbols: old.symbols.clone(), ..kb.finish() };
        for (v, now) in copies.now.iter() {
            if let Some(now) = now {
                new.body.set_name(*now, old.body.name(v));
            }
        }
        new
    }
}

/// Maps values of the old body to the new one.
struct Copies<'a> {
    old: &'a Body,
    now: SecondaryMap<Value, Option<Value>>,
}

impl Copies<'_> {
    fn copy_of(&self, v: Value) -> Value {
        self.now[v].unwrap_or(v)
    }

    fn ty(&self, v: Value) -> Type {
        let mut ty = self.old.ty(v).clone();
        if let Type::Tile(t) = &mut ty {
            [&mut t.rows, &mut t.cols].into_iter().filter_map(Extent::bound_mut).for_each(|v| *v = self.copy_of(*v));
        }
        ty
    }

    /// Appends a copy of an instruction.
    fn inst(&mut self, kb: &mut KernelBuilder, i: Inst) {
        let data = self.old.inst(i);
        kb.at(data.loc);
        let operands = data.operands.iter().map(|v| self.copy_of(*v)).collect();
        let made = kb.push(data.op.clone(), operands, data.result.map(|v| self.ty(v)));
        if let Some(v) = data.result {
            self.now[v] = made;
        }
    }

    /// Appends the load of an operand starting at k index `k`.
    fn part(&self, kb: &mut KernelBuilder, load: &Load, k: Value, part: impl FnOnce(&mut TileType)) -> Value {
        let data = self.old.inst(load.inst);
        let index = match data.op {
            Op::Load { .. } => k,
            _ => {
                let steps = kb.index(load.per_index);
                kb.index_binary(BinaryOp::Div, k, steps)
            }
        };
        let operands = data.operands.iter().enumerate();
        let operands = operands.map(|(n, v)| if n == load.place { index } else { self.copy_of(*v) }).collect();
        let mut ty = data.result.map_or(Type::Index, |v| self.ty(v));
        if let Type::Tile(t) = &mut ty {
            part(t);
        }
        kb.value(data.op.clone(), operands, ty)
    }
}
