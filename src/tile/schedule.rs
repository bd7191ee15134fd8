//! The schedule: chooses layouts of matmul operands, loop nests, and the memory of each tile.
//!
//! In: an unscheduled module. Out: the same module scheduled. For a GPU, steps 0 and 4 to 6 are the
//! same, the others are in `gpu`. Steps for a CPU, in order:
//!
//! 0. **Variants.** Attention, of which an unscheduled kernel defines only the algorithm, is
//!    computed by kernels for the machine, in the variant that fits the call (`attention`).
//! 1. **Panels.** Matmuls get panels for right operands, packed before all calls or just before,
//!    and tiles of the machine's sizes (`panels`); in loops over time they compute several panels
//!    at a time (`jam`).
//!
//! Then, for each kernel:
//!
//! 2. **Partial sums.** A matmul with large K becomes a loop over blocks of k, whose sums are added
//!    (`steps`).
//! 3. **Windows.** Operands that matmuls can read in place are not copied (`windows`), and
//!    accumulators with a constant initial value are not filled with it first.
//! 4. **Group.** The tile operations of a block go into `run` regions. An operation joins the first
//!    run with its own iteration space (rows x columns) in which its operands are available; a
//!    reduction's result is available after its run, and a run reduces along one axis only.
//!    Recomputing loads, fills and counters costs no more than a detour through scratch, so each
//!    run that uses one has its own copy; work on these alone that is used once moves to its use.
//!    `dot`, `transpose` and `pair_rows` stand alone.
//! 5. **Place.** A tile that is used only in its own run is in registers. The operands and results
//!    of operations that stand alone, the results of reductions, block arguments and tiles used by
//!    later runs are in scratch.
//! 6. **Share.** Tiles in scratch with disjoint live ranges share memory: first where that saves a
//!    copy (a block argument and the value passed for it; the accumulator and the result of a
//!    `dot`; an operand and a result of the same shape in one run), then any, first fit. Each jump
//!    passes copies; copies that share memory with their source are removed.
//!
//! 7. **Sum.** Each matmul gets the best mode that the CPU has and its operands permit
//!    ([`DotMode`]), which determines how its sums are rounded.
//!
//! Limits: it does not choose the rows and columns of tiles except for matmuls and attention
//! (lowering did), and rejects tiles passed over a conditional jump.

mod attention;
mod formats;
mod gpu;
mod halves;
mod jam;
mod joined;
mod losses;
mod packing;
mod pairs;
mod panels;
mod plans;
mod products;
mod quantise;
mod sharing;
mod sources;
mod steps;
mod tensor_cores;
mod unpack;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::verify::VerifiedModule;
use super::{
    Block, Body, Cpu, DotMode, Extent, Inst, InstData, Kernel, Op, Pitch, Space, State, Target, Terminator, TileType,
    Type, Value, ValueDef, share_slots,
};
use crate::source::Loc;
pub use attention::VisitedBlocks;
pub use formats::{WeightChoice, WeightFormat};
pub use gpu::{GpuForm, GpuLoop, GpuOptions, gpu_forms, gpu_loops, schedule_for_gpu, schedule_for_gpu_with};
pub use losses::{Loss, PackedWeight};
use sharing::{Sharing, insts_of, step_back};
use sources::{Grouping, sources, stored};
pub use tensor_cores::tensor_core_kernel;

/// Schedules a module for a CPU: layouts of matmul operands, kernels, and sharing of arena slots.
/// `weights` is the format of packed weights. Kernels that are already scheduled are unchanged.
///
/// # Errors
/// A message about what this schedule cannot express.
pub fn schedule(module: &VerifiedModule, level: Cpu, weights: &WeightChoice) -> Result<VerifiedModule, String> {
    let is_open = module.kernels.iter().any(|k| k.state == State::Unscheduled);
    let scheduled = module.clone().changed(|module| {
        // Kernels whose accesses have changed.
        let target = Target::from(level);
        let attentions = attention::expand(module, target, &BTreeMap::new())?;
        let (_, mut changed) = panels::choose(module, &target, weights)?;
        changed.extend(attentions);
        for kernel in &mut module.kernels {
            match schedule_in_steps(kernel, level) {
                Ok(false) => {}
                Ok(true) => drop(changed.insert(kernel.name.clone())),
                Err(e) => return Err(format!("kernel @{} has no schedule: {e}", kernel.name)),
            }
        }
        if is_open {
            module.plans.iter_mut().for_each(|plan| share_slots(plan, &module.kernels));
        }
        Ok(changed)
    });
    scheduled.map_err(|(_, complaint)| complaint)
}

/// Expands each attention of a module to its variants for a CPU, and nothing else: the first step
/// of [`schedule`]. The kernels stay unscheduled.
///
/// # Errors
/// A variant that cannot be made, which is a bug in attnc.
pub fn choose_forms(module: &VerifiedModule, level: Cpu) -> Result<VerifiedModule, String> {
    let chosen = module.clone().changed(|module| attention::expand(module, Target::from(level), &BTreeMap::new()));
    chosen.map_err(|(_, complaint)| complaint)
}

/// How many blocks of keys the attentions of an unscheduled module visit on a CPU, if their masks
/// are formulas over positions.
pub fn visited_blocks(module: &VerifiedModule, level: Cpu) -> Vec<VisitedBlocks> {
    attention::counts(module, Target::from(level))
}

/// The parameters that a schedule for a CPU would pack in a narrower format, sorted by name, each
/// with its packed part.
///
/// # Errors
/// As [`schedule`].
pub fn packed_weights(
    module: &VerifiedModule,
    level: Cpu,
    weights: &WeightChoice,
) -> Result<Vec<PackedWeight>, String> {
    let (packing, _) = panels::choose(&mut (**module).clone(), &Target::from(level), weights)?;
    Ok(losses::packed(&packing))
}

/// Schedules a kernel for a CPU without changing operand layouts or tile sizes. An already
/// scheduled kernel is unchanged.
///
/// # Errors
/// A message about what this schedule cannot express.
pub fn schedule_kernel(kernel: &mut Kernel, level: Cpu) -> Result<(), String> {
    schedule_in_steps(kernel, level).map(|_| ())
}

/// The same; returns whether a matmul was put into a loop.
fn schedule_in_steps(kernel: &mut Kernel, level: Cpu) -> Result<bool, String> {
    if kernel.state != State::Unscheduled {
        return Ok(false);
    }
    let split = steps::split(kernel, level);
    windows::make_windows(kernel, level);
    group_and_place(kernel, Grouping::default())?;
    choose_modes(&mut kernel.body, |body, dot| DotMode::best(body, dot, level));
    (kernel.state, kernel.compute) = (State::Cpu(level), None);
    Ok(split)
}

/// Steps 4 to 6: which operations share a run, where each tile lives, and which tiles share memory.
/// The same for every machine, except for `grouping`.
fn group_and_place(kernel: &mut Kernel, grouping: Grouping) -> Result<(), String> {
    start_with_scalars(&mut kernel.body);
    let copies = copy_arguments(&mut kernel.body)?;
    let sources = sources(&kernel.body, &grouping);
    let (body, event_of, events) = (&mut kernel.body, SecondaryMap::new(), BTreeMap::new());
    let mut s = Scheduler { body, copies, sources, apart: grouping.apart, event_of, events };
    for block in s.body.layout.clone() {
        s.group(block)?;
    }
    kernel.scratch = s.place()?;
    Ok(())
}

/// Sets the mode of each matmul, which depends on the memory of its tiles.
fn choose_modes(body: &mut Body, best: impl Fn(&Body, &InstData) -> DotMode) {
    for inst in body.insts().map(|(_, i, _)| i).collect::<Vec<_>>() {
        if let Op::Dot { .. } = body.inst(inst).op {
            let mode = best(body, body.inst(inst));
            body.inst_mut(inst).op = Op::Dot { mode: Some(mode) };
        }
    }
}

type Shape = (Extent, Extent);

/// An entry of a block's schedule, in order.
enum Event {
    /// An operation on indices or scalars, a `dot`, `element`, `transpose`, `pair_rows`, `window`,
    /// `load_scaled` or `load_pairs`.
    Single(Inst),
    /// A loop nest; `reduces` is the axis of its reductions; `apart`: it contains only operations
    /// of [`Grouping::apart`].
    Run { shape: Shape, reduces: Option<usize>, apart: bool, insts: Vec<Inst>, clones: BTreeMap<Value, Value> },
}

struct Scheduler<'a> {
    body: &'a mut Body,
    /// The copies passed by jumps. They are at the end of their blocks, where the tiles whose
    /// memory they overwrite are no longer read.
    copies: BTreeSet<Inst>,
    /// Operations that are copied into each run that uses them.
    sources: BTreeSet<Inst>,
    /// [`Grouping::apart`].
    apart: BTreeSet<Inst>,
    /// The event of its block that defines a value.
    event_of: SecondaryMap<Value, Option<(Block, usize)>>,
    events: BTreeMap<Block, Vec<Event>>,
}

fn tile(body: &Body, v: Value) -> Option<&TileType> {
    body.ty(v).tile()
}

/// Replaces an accumulator tile filled with a constant by the constant.
fn start_with_scalars(body: &mut Body) {
    for inst in body.insts().map(|(_, i, _)| i).collect::<Vec<_>>() {
        let data = body.inst(inst);
        let (Op::Dot { .. }, Some(acc)) = (&data.op, data.operands.get(2)) else { continue };
        let filled = body.def_inst(*acc).filter(|d| d.op == Op::Full).and_then(|d| d.operands.first().copied());
        if let (Some(x), Some(acc)) = (filled, body.inst_mut(inst).operands.get_mut(2)) {
            *acc = x;
        }
    }
}

fn is_elementwise(op: &Op) -> bool {
    matches!(op, Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast | Op::Narrow { .. } | Op::Copy)
}

fn extents(body: &Body, v: Value) -> Option<Shape> {
    tile(body, v).map(|t| (t.rows, t.cols))
}

/// The iteration space of an operation in a run.
fn run_shape(body: &Body, inst: Inst) -> Option<Shape> {
    let d = body.inst(inst);
    match &d.op {
        Op::Dot { .. } | Op::Element | Op::Transpose | Op::PairRows => None,
        Op::Window { .. } | Op::LoadScaled { .. } | Op::LoadPairs => None,
        Op::Store { .. } => d.operands.last().and_then(|v| extents(body, *v)),
        Op::Reduce { .. } => d.operands.first().and_then(|v| extents(body, *v)),
        _ => d.result.and_then(|v| extents(body, v)),
    }
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
    /// The iteration space of an operation; `None` if it stands alone.
    fn shape_of(&self, inst: Inst) -> Result<Option<Shape>, String> {
        let d = self.body.inst(inst);
        match &d.op {
            Op::Run { .. } => Err("a run in a kernel that is not scheduled".into()),
            Op::Dot { .. }
            | Op::Element
            | Op::Transpose
            | Op::Window { .. }
            | Op::LoadScaled { .. }
            | Op::LoadPairs
            | Op::PairRows
            | Op::Store { .. }
            | Op::Reduce { .. }
            | Op::Const(_)
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
            | Op::Iota { .. } => Ok(run_shape(self.body, inst)),
            Op::Plan(_) | Op::Gpu(_) => Err(format!("{} in a kernel that is not scheduled", d.op.info().name)),
        }
    }

    /// Groups a block's instructions into events.
    fn group(&mut self, block: Block) -> Result<(), String> {
        let mut events: Vec<Event> = Vec::new();
        let mut first_copy = None;
        // Constants come first, so that they do not separate operations of one loop nest.
        let mut insts = self.body.block(block).insts.clone();
        insts.sort_by_key(|i| !matches!(self.body.inst(*i).op, Op::Const(_) | Op::DimValue(_)));
        for inst in insts {
            let data = self.body.inst(inst).clone();
            match self.shape_of(inst)? {
                None => {
                    let operands = self.materialised(block, &mut events, &data.operands)?;
                    self.body.inst_mut(inst).operands = operands;
                    if let Some(v) = data.result {
                        self.event_of[v] = Some((block, events.len()));
                    }
                    events.push(Event::Single(inst));
                }
                // Sources are copied to their uses.
                Some(_) if self.sources.contains(&inst) => {}
                Some(shape) => {
                    let mut from = self.earliest(block, &events, shape, &data.operands);
                    if self.copies.contains(&inst) {
                        from = from.max(*first_copy.get_or_insert(events.len()));
                    }
                    let reduces = match data.op {
                        Op::Reduce { axis, .. } => Some(axis),
                        _ => None,
                    };
                    let at = run_from(&mut events, shape, reduces, self.apart.contains(&inst), from);
                    self.add(block, &mut events, at, inst)?;
                }
            }
        }
        self.events.insert(block, events);
        Ok(())
    }

    /// The source that defines a value, if it is one.
    fn source(&self, v: Value) -> Option<Inst> {
        match self.body.def(v) {
            ValueDef::Result(i) if self.sources.contains(&i) && tile(self.body, v).is_some() => Some(i),
            _ => None,
        }
    }

    /// The first event of a block after which (or, for a run of the same shape, in which) these
    /// values are available.
    fn earliest(&self, block: Block, events: &[Event], shape: Shape, values: &[Value]) -> usize {
        let mut first = 0;
        let mut all: Vec<Value> = values.to_vec();
        let bounds = |e: Extent| match e {
            Extent::Bounded { value, .. } => Some(value),
            Extent::Static(_) => None,
        };
        all.extend([bounds(shape.0), bounds(shape.1)].into_iter().flatten());
        let mut i = 0;
        while let Some(v) = all.get(i).copied() {
            i += 1;
            if let Some(source) = self.source(v) {
                // A source is recomputed from its own operands.
                all.extend(self.body.inst(source).operands.iter().copied());
                continue;
            }
            let Some((b, e)) = self.event_of[v] else { continue };
            if b != block {
                continue;
            }
            let reduced = self.body.def_inst(v).is_some_and(|d| matches!(d.op, Op::Reduce { .. }));
            let usable_inside = match events.get(e) {
                Some(Event::Run { shape: s, .. }) => *s == shape && !reduced,
                _ => false,
            };
            first = first.max(if usable_inside { e } else { e + 1 });
        }
        first
    }

    /// Adds an operation to a run, with copies of the sources that it uses.
    fn add(&mut self, block: Block, events: &mut [Event], at: usize, inst: Inst) -> Result<(), String> {
        let mut operands = self.body.inst(inst).operands.clone();
        for v in &mut operands {
            if let Some(source) = self.source(*v) {
                *v = self.local(block, events, at, *v, source)?;
            }
        }
        self.body.inst_mut(inst).operands = operands;
        if let Some(v) = self.body.inst(inst).result {
            self.event_of[v] = Some((block, at));
        }
        match events.get_mut(at) {
            Some(Event::Run { insts, .. }) => {
                insts.push(inst);
                Ok(())
            }
            _ => Err("a run is missing".into()),
        }
    }

    /// A run's own copy of a source.
    fn local(
        &mut self,
        block: Block,
        events: &mut [Event],
        at: usize,
        v: Value,
        source: Inst,
    ) -> Result<Value, String> {
        if let Some(Event::Run { clones, .. }) = events.get(at)
            && let Some(c) = clones.get(&v)
        {
            return Ok(*c);
        }
        let mut data = self.body.inst(source).clone();
        for operand in &mut data.operands {
            if let Some(inner) = self.source(*operand) {
                *operand = self.local(block, events, at, *operand, inner)?;
            }
        }
        let copy = self.body.make_inst(data.op, data.operands, Some(self.body.ty(v).clone()), data.loc);
        let result = self.body.inst(copy).result.ok_or("a source without a result")?;
        self.event_of[result] = Some((block, at));
        match events.get_mut(at) {
            Some(Event::Run { insts, clones, .. }) => {
                insts.push(copy);
                clones.insert(v, result);
                Ok(result)
            }
            _ => Err("a run is missing".into()),
        }
    }

    /// Replaces sources among the values by copies that a run writes to scratch.
    fn materialised(&mut self, block: Block, events: &mut Vec<Event>, values: &[Value]) -> Result<Vec<Value>, String> {
        let mut out = Vec::new();
        for v in values {
            out.push(match self.source(*v) {
                None => *v,
                Some(source) => {
                    let t = tile(self.body, *v).ok_or("a source that is not a tile")?;
                    let shape = (t.rows, t.cols);
                    let operands = self.body.inst(source).operands.clone();
                    let from = self.earliest(block, events, shape, &operands);
                    let at = run_from(events, shape, None, false, from);
                    self.local(block, events, at, *v, source)?
                }
            });
        }
        Ok(out)
    }

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

    /// Pads the rows of scratch tiles in [`Grouping::apart`], before their offsets are assigned.
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

/// The first suitable run starting at an event: of the same shape, not reducing along another axis
/// than `reduces`, with the same `apart`; or else a new run at the end.
fn run_from(events: &mut Vec<Event>, shape: Shape, reduces: Option<usize>, apart: bool, from: usize) -> usize {
    for (i, e) in events.iter_mut().enumerate().skip(from) {
        if let Event::Run { shape: s, reduces: already, apart: is_apart, .. } = e
            && (*s, *is_apart) == (shape, apart)
            && (reduces.is_none() || already.is_none() || *already == reduces)
        {
            *already = already.or(reduces);
            return i;
        }
    }
    events.push(Event::Run { shape, reduces, apart, insts: Vec::new(), clones: BTreeMap::new() });
    events.len() - 1
}
