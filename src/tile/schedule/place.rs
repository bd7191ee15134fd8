//! place: groups the operations of each kernel into loop nests, and gives each tile its memory.
//!
//! ```text
//! kernel @rows.0(%0: in f32[4, 8], %1: out f32[4, 8]) {
//! ^bb0:
//!   %2 = const 0                            : index
//!   %3 = load %0[%2, %2], rows=0, cols=1    : tile f32[4, 8]
//!   %4 = reduce_max %3, axis=1              : tile f32[4, 1]
//!   %5 = sub %3, %4                         : tile f32[4, 8]
//!   store %1[%2, %2], %5, rows=0, cols=1
//!   return
//! }
//! ->
//! kernel @rows.0(%0: in f32[4, 8], %1: out f32[4, 8]) cpu(avx512) scratch(64) {
//! ^bb0:
//!   %2 = const 0                            : index
//!   run (4, 8) {
//!     %3 = load %0[%2, %2], rows=0, cols=1  : tile f32[4, 8] @reg
//!     %4 = reduce_max %3, axis=1            : tile f32[4, 1] @l1(0)
//!   }
//!   run (4, 8) {
//!     %5 = load %0[%2, %2], rows=0, cols=1  : tile f32[4, 8] @reg
//!     %6 = sub %5, %4                       : tile f32[4, 8] @reg
//!     store %1[%2, %2], %6, rows=0, cols=1
//!   }
//!   return
//! }
//! ```
//!
//! * **Group.** The tile operations of a block go into `run` regions. An operation joins the first
//!   run with its own iteration space (rows x columns) in which its operands are available; a
//!   reduction's result is available after its run, and a run reduces along one axis only.
//!   Recomputing loads, fills and counters costs no more than a detour through scratch, so each run
//!   that uses one has its own copy; work on these alone that is used once moves to its use.
//!   `dot`, `transpose` and `pair_rows` stand alone.
//! * **Place.** A tile that is used only in its own run is in registers. The operands and results
//!   of operations that stand alone, the results of reductions, block arguments and tiles used by
//!   later runs are in scratch (on a GPU, the shared memory of a block).
//! * **Share.** Tiles in scratch with disjoint live ranges share memory: first where that saves a
//!   copy (a block argument and the value passed for it; the accumulator and the result of a
//!   `dot`; an operand and a result of the same shape in one run), then any, first fit. Each jump
//!   passes copies; copies that share memory with their source are removed.
//! * A matmul without a mode gets the one that needs nothing. On a GPU, the parameters for which
//!   all launches pass buffers aligned to 16 bytes are marked, and a block gets as many warps as
//!   its largest operation needs (`gpu::cost`), unless `size-tiles` chose a number.
//!
//! # Limits
//!
//! It rejects tiles passed over a conditional jump. A kernel that needs more shared memory than a
//! block of the GPU has is an error: the steps before choose tiles that fit.

mod group;

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::gpu::{cost, limits};
use super::modes;
use super::runs::{Event, tile};
use super::sharing::{Sharing, insts_of, step_back};
use super::sources::{sources, stored};
use super::step::{Changed, Log, unscheduled};
use crate::source::Loc;
use crate::tile::{
    Block, Body, Inst, InstData, Kernel, Machine, Module, Op, Pitch, Processor, Space, State, Terminator, TileType,
    Tiled, Type, Value,
};

/// Places every kernel; it is then scheduled.
pub(super) fn run(module: &mut Module, machine: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    if machine.gpu().is_some() {
        limits::mark_aligned(module);
    }
    for kernel in unscheduled(module) {
        place(kernel, machine).map_err(|e| format!("kernel @{} has no schedule: {e}", kernel.name))?;
        if let Some(gpu) = machine.gpu() {
            limits::fits(kernel, gpu)?;
            let packed = if kernel.loads_scaled() { ", which read packed weights" } else { "" };
            if let State::Gpu { warps, .. } = kernel.state {
                let s = if warps == 1 { "" } else { "s" };
                let form = format!("elements are divided among the threads of {warps} warp{s}{packed}");
                log.form(&kernel.name, &form);
            }
        }
    }
    Ok(Changed::new())
}

/// Places one kernel.
pub(super) fn place(kernel: &mut Kernel, machine: &Machine) -> Result<(), String> {
    let tiled = kernel.tiled.take().unwrap_or_default();
    kernel.scratch = group_and_place(&mut kernel.body, &tiled)?;
    modes::complete(kernel, machine);
    kernel.compute = None;
    kernel.state = match machine.processor {
        Processor::Cpu(cpu) => State::Cpu(cpu),
        Processor::Gpu(gpu) => {
            State::Gpu { arch: gpu.arch, warps: tiled.warps.unwrap_or_else(|| cost::warps(kernel, gpu)) }
        }
    };
    Ok(())
}

/// Decides which operations share a run, where each tile lives, and which tiles share memory.
/// Returns the bytes of scratch.
pub(super) fn group_and_place(body: &mut Body, tiled: &Tiled) -> Result<u64, String> {
    mark_windows(body);
    let copies = copy_arguments(body)?;
    let sources = sources(body, tiled);
    let (apart, event_of, events) = (tiled.apart.clone(), SecondaryMap::new(), BTreeMap::new());
    let mut s = Scheduler { body, copies, sources, apart, event_of, events };
    for block in s.body.layout.clone() {
        s.group(block)?;
    }
    s.place()
}

/// Gives the operands that matmuls read in place their space.
fn mark_windows(body: &mut Body) {
    let in_place = |(_, _, d): (_, _, &InstData)| d.result.filter(|_| d.op.is_read_in_place());
    for v in body.insts().filter_map(in_place).collect::<Vec<_>>() {
        if let Type::Tile(t) = body.ty(v).clone() {
            body.set_ty(v, Type::Tile(TileType { space: Space::Window, ..t }));
        }
    }
}

struct Scheduler<'a> {
    body: &'a mut Body,
    /// The copies passed by jumps. They are at the end of their blocks, where the tiles whose
    /// memory they overwrite are no longer read.
    copies: BTreeSet<Inst>,
    /// Operations that are copied into each run that uses them.
    sources: BTreeSet<Inst>,
    /// [`Tiled::apart`].
    apart: BTreeSet<Inst>,
    /// The event of its block that defines a value.
    event_of: SecondaryMap<Value, Option<(Block, usize)>>,
    events: BTreeMap<Block, Vec<Event>>,
}

/// Makes each jump pass copies of its tiles; returns the copies.
fn copy_arguments(body: &mut Body) -> Result<BTreeSet<Inst>, String> {
    let mut copies = BTreeSet::new();
    for block in body.layout.clone() {
        let mut terminator = body.block(block).terminator.clone();
        match &mut terminator {
            Terminator::Return(_) | Terminator::Roles(_) => {}
            Terminator::BrIf { then, otherwise, .. } => {
                if then.args.iter().chain(&otherwise.args).any(|v| tile(body, *v).is_some()) {
                    return Err("a conditional jump with tiles as arguments".into());
                }
            }
            Terminator::Br(call) => {
                let targets = body.block(call.block).args.clone();
                for (v, target) in call.args.iter_mut().zip(&targets) {
                    if tile(body, *v).is_none() || v == target {
                        continue;
                    }
                    let ty = body.ty(*v).clone();
                    let loc = body.def_inst(*v).map_or(Loc::default(), |d| d.loc);
                    let copy = body.make_inst(Op::Copy, vec![*v], Some(ty), loc);
                    body.block_mut(block).insts.push(copy);
                    copies.insert(copy);
                    *v = body.inst(copy).result.ok_or("a copy without a result")?;
                }
            }
        }
        body.block_mut(block).terminator = terminator;
    }
    Ok(copies)
}

impl Scheduler<'_> {
    /// Decides where tiles live and rebuilds the blocks. Returns the bytes of scratch.
    fn place(&mut self) -> Result<u64, String> {
        let in_scratch = self.in_scratch();
        self.pad(&in_scratch);
        let steps = self.steps(&in_scratch);
        let (offsets, bytes) = Sharing::new(self.body, &self.events, &in_scratch, &steps).assign()?;
        for (v, t) in self.all_tiles() {
            let space = match (offsets.get(&v), t.space) {
                (Some(o), Space::L1(_, pitch)) => Space::L1(*o, pitch),
                (Some(o), _) => Space::L1(*o, Pitch::Aligned),
                (None, Space::Window) => Space::Window,
                (None, _) => Space::Reg,
            };
            self.body.set_ty(v, Type::Tile(TileType { space, ..t }));
        }
        self.drop_copies_in_place();
        for (block, events) in std::mem::take(&mut self.events) {
            let mut insts = Vec::new();
            for e in events {
                match e {
                    Event::Single(i) => insts.push(i),
                    Event::Run { insts: inner, .. } if inner.is_empty() => {}
                    Event::Run { shape: (rows, cols), insts: inner, .. } => {
                        let loc = inner.first().map_or(Loc::default(), |i| self.body.inst(*i).loc);
                        let op = Op::Run { rows, cols, insts: inner };
                        insts.push(self.body.make_inst(op, Vec::new(), None, loc));
                    }
                }
            }
            self.body.block_mut(block).insts = insts;
        }
        Ok(bytes)
    }

    /// Pads the rows of scratch tiles in [`Tiled::apart`], before their offsets are assigned.
    fn pad(&mut self, in_scratch: &BTreeSet<Value>) {
        for i in self.apart.clone() {
            let v = self.body.inst(i).result.or(stored(self.body, i)).filter(|v| in_scratch.contains(v));
            if let Some((v, t)) = v.and_then(|v| Some((v, tile(self.body, v)?.clone()))) {
                self.body.set_ty(v, Type::Tile(TileType { space: Space::L1(0, Pitch::Padded), ..t }));
            }
        }
    }

    /// Removes copies that share their operand's memory: the jump passes the operand itself.
    fn drop_copies_in_place(&mut self) {
        let mut same: BTreeMap<Value, Value> = BTreeMap::new();
        for i in &self.copies {
            let d = self.body.inst(*i);
            if let (Some(v), [o]) = (d.result, d.operands.as_slice())
                && self.body.ty(v) == self.body.ty(*o)
                && tile(self.body, v).is_some_and(|t| matches!(t.space, Space::L1(..)))
            {
                same.insert(v, *o);
            }
        }
        for events in self.events.values_mut() {
            for e in events {
                if let Event::Run { insts, .. } = e {
                    insts.retain(|i| self.body.inst(*i).result.is_none_or(|v| !same.contains_key(&v)));
                }
            }
        }
        for block in self.body.layout.clone() {
            if let Terminator::Br(call) = &mut self.body.block_mut(block).terminator {
                for v in &mut call.args {
                    *v = same.get(v).copied().unwrap_or(*v);
                }
            }
        }
    }

    /// Every tile that is still used.
    fn all_tiles(&self) -> Vec<(Value, TileType)> {
        let mut out = Vec::new();
        for block in &self.body.layout {
            for v in &self.body.block(*block).args {
                out.extend(tile(self.body, *v).map(|t| (*v, t.clone())));
            }
            for e in self.events.get(block).map(Vec::as_slice).unwrap_or_default() {
                for i in insts_of(e) {
                    let result = self.body.inst(*i).result;
                    out.extend(result.and_then(|v| tile(self.body, v).map(|t| (v, t.clone()))));
                }
            }
        }
        out
    }

    /// The tiles that cannot stay in registers of one run.
    fn in_scratch(&self) -> BTreeSet<Value> {
        let mut out = BTreeSet::new();
        let mut home: BTreeMap<Value, (Block, usize)> = BTreeMap::new();
        let movable = |v: &&Value| tile(self.body, **v).is_some_and(|t| t.space != Space::Window);
        for block in &self.body.layout {
            out.extend(self.body.block(*block).args.iter().filter(movable));
            for (n, e) in self.events.get(block).map(Vec::as_slice).unwrap_or_default().iter().enumerate() {
                for i in insts_of(e) {
                    let d = self.body.inst(*i);
                    if let Some(v) = d.result.filter(|v| movable(&v)) {
                        home.insert(v, (*block, n));
                        if matches!(
                            d.op,
                            Op::Dot { .. } | Op::Element | Op::Transpose | Op::PairRows | Op::Reduce { .. }
                        ) {
                            out.insert(v);
                        }
                    }
                    for v in d.operands.iter().filter(movable) {
                        if matches!(e, Event::Single(_)) || home.get(v) != Some(&(*block, n)) {
                            out.insert(*v);
                        }
                    }
                }
            }
            if let Terminator::Br(call) = &self.body.block(*block).terminator {
                out.extend(call.args.iter().filter(movable));
            }
        }
        out
    }

    /// The scratch tiles that are live at the end of each block.
    fn steps(&self, in_scratch: &BTreeSet<Value>) -> BTreeMap<Block, BTreeSet<Value>> {
        let mut live_in: BTreeMap<Block, BTreeSet<Value>> = BTreeMap::new();
        let mut live_out: BTreeMap<Block, BTreeSet<Value>> = BTreeMap::new();
        let mut changed = true;
        while changed {
            changed = false;
            for block in self.body.layout.iter().rev() {
                let mut live = BTreeSet::new();
                for target in self.body.block(*block).terminator.targets() {
                    live.extend(live_in.get(&target.block).into_iter().flatten().copied());
                }
                live_out.insert(*block, live.clone());
                if let Terminator::Br(call) = &self.body.block(*block).terminator {
                    live.extend(call.args.iter().filter(|v| in_scratch.contains(v)));
                }
                for e in self.events.get(block).map(Vec::as_slice).unwrap_or_default().iter().rev() {
                    step_back(self.body, e, in_scratch, &mut live);
                }
                for v in &self.body.block(*block).args {
                    live.remove(v);
                }
                if live_in.get(block) != Some(&live) {
                    live_in.insert(*block, live);
                    changed = true;
                }
            }
        }
        live_out
    }
}
