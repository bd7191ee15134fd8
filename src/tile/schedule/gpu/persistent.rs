//! fuse-loops: turns loops of plans into one persistent kernel each.
//!
//! A recurrent network makes a few small launches per step of a sequence, one after another. On a
//! GPU each costs some microseconds, or one or two in a graph, mostly more than its work. One
//! kernel can do the whole loop, with grid barriers (`grid_barrier`) between dependent launches:
//!
//! ```text
//! fn f(x: f32[S, 8], w: f32[8, 8]) -> f32[1, 8] {
//!     var h = full<f32>(0, [1, 8])
//!     for t in 0..S {
//!         h = tanh(h @ w + x[t])
//!     }
//!     h
//! }
//! ...
//! ^bb1(%6: index):
//!   %7 = dim S : index
//!   %8 = lt %6, %7 : bool
//!   br_if %8, ^bb2, ^bb3
//! ^bb2:
//! ...
//!   launch @matmul.0(%10, %1, %11, %12)
//! ...
//!   launch @result.0(%15, %16)
//!   br ^bb1(%14)
//! ->
//! ^bb1(%6: index):
//!   %7 = dim S : index
//!   %8 = lt %6, %7 : bool
//!   br_if %8, ^bb2, ^bb3
//! ^bb2:
//! ...
//!   grid_barrier
//!   launch @matmul.0(%10, %3, %11, %12)
//! ...
//!   grid_barrier
//!   launch @result.0(%15, %16)
//!   br ^bb1(%14)
//! ...
//!   launch @loop.0(%2, %0, %5, %1)
//! ```
//!
//! It is launched with at most as many blocks as run concurrently, each of which executes all of
//! the control flow. Offsets that depend on the loop step are computed in the kernel. A number that
//! a step reads from memory is read in the kernel too, by every block, after a barrier: on the host
//! each such read would wait for the GPU.
//!
//! In: a scheduled module. Out: the same with such kernels in place of loops, and for other loops
//! the reason. It must not know how barriers are implemented, nor how many blocks there are.
//!
//! # Conditions
//!
//! The loop counts up to a bound by a constant step, so that it terminates, and its header is its
//! only exit. It launches kernels that work in runs, at most [`MAX_LAUNCHES`] instructions, each
//! with at most [`cost::MAX_POINTS`] points as far as known: with more, launches are a small part
//! of the time, and a separate kernel has the registers and shared memory that it needs, not the
//! maximum of all. Apart from launches it computes only indices and scalars, and none of its values
//! is used after it. Taps stay on the host, where the call's requests are known; so do parameters
//! of layers indexed by the loop, whose addresses are there.
//!
//! Whether two buffers alias is determined from their views. Barriers are placed by a forward
//! data-flow analysis: the state at a point is the set of reads and writes since the last barrier
//! on some path to it.
//!
//! A call cannot be interrupted within such a loop. Therefore a loop without a counter stays on the
//! host.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::super::step::{Changed, Log};
use super::cost;
use crate::cfg::Loop;
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::Dim;
use crate::source::Loc;
use crate::tile::alignment::{CHUNK, begins_at_multiple};
use crate::tile::machine::MAX_WARPS;
use crate::tile::verify::recheck;
use crate::tile::{
    Block, BlockCall, Body, GpuArch, GpuOp, GridAxis, Inst, InstData, Kernel, Machine, Module, Op, Param, ParamMode,
    Plan, PlanOp, PlanVariant, State, Terminator, Type, Value, View,
};

/// Limit on launches in a loop: the kernel contains the code of each.
const MAX_LAUNCHES: usize = 32;
/// Limit on buffers, indices and dimensions passed to a kernel; the runtime supports 256 words.
const MAX_WORDS: usize = 200;

/// A loop of a plan that stays on the host: its location, and why.
type HostLoop = (Loc, String);

/// Turns all suitable loops into kernels, outermost first, if these are proved to be in bounds.
pub(in super::super) fn run(module: &mut Module, machine: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    let (mut changed, Some(gpu)) = (Changed::new(), machine.gpu()) else { return Ok(Changed::new()) };
    for n in 0..module.plans.len() {
        let mut refused: BTreeSet<Block> = BTreeSet::new();
        let mut remarks: Vec<HostLoop> = Vec::new();
        let rest = loop {
            let (header, made) = match next(module, n, gpu.arch, &refused) {
                Ok(found) => found,
                Err(rest) => break rest,
            };
            let mut tried = module.clone();
            let (loc, count) = (made.loc, made.kernel.launched().count());
            let name = made.put(&mut tried, n);
            let names = BTreeSet::from([name.clone()]);
            match recheck(&tried, &names) {
                Err(_) => _ = refused.insert(header),
                Ok(()) => {
                    (*module, changed) = (tried, &changed | &names);
                    let s = if count == 1 { "" } else { "es" };
                    remarks.push((loc, format!("one launch, @{name}, for {count} launch{s} a step")));
                }
            }
        };
        let on_host = |(loc, why)| (loc, format!("launches by the host in each step; {why}"));
        remarks.extend(rest.into_iter().map(on_host));
        remarks.sort_by_key(|(loc, _)| (loc.file, loc.line, loc.column));
        if let Some(plan) = module.plans.get(n).filter(|p| p.variant == PlanVariant::Plain) {
            remarks.iter().for_each(|(loc, text)| log.on_loop(&plan.name, *loc, text));
        }
    }
    Ok(changed)
}

/// The outermost suitable loop of a plan that was not refused; otherwise the outermost loops, which
/// stay on the host.
fn next(
    module: &Module,
    n: usize,
    arch: GpuArch,
    refused: &BTreeSet<Block>,
) -> Result<(Block, Outlined), Vec<HostLoop>> {
    let (mut on_host, mut inside) = (Vec::new(), BTreeSet::new());
    let Some(plan) = module.plans.get(n) else { return Err(on_host) };
    for l in candidates(plan) {
        let why = match Maker::new(module, plan, &l, arch).make() {
            Ok(made) if !refused.contains(&l.header) => return Ok((l.header, made)),
            Ok(_) => "its accesses are not proved to stay in their buffers there".to_string(),
            Err(why) => why,
        };
        if !inside.contains(&l.header) {
            on_host.push((place(&plan.body, &l), why));
        }
        inside.extend(l.blocks);
    }
    Err(on_host)
}

/// The loops of a plan with launches, outer ones first.
fn candidates(plan: &Plan) -> Vec<Loop<Block>> {
    if plan.variant == PlanVariant::Prepare {
        return Vec::new();
    }
    let launches = |b: &Block| plan.body.block(*b).insts.iter().any(|i| is_launch(&plan.body, *i));
    plan.body.cfg().loops().into_iter().rev().filter(|l| l.blocks.iter().any(launches)).collect()
}

/// Is it a constant or a dimension, which can be recomputed anywhere?
fn is_known(data: &InstData) -> bool {
    matches!(data.op, Op::Const(_) | Op::DimValue(_))
}

fn is_launch(body: &Body, i: Inst) -> bool {
    matches!(body.inst(i).op, Op::Plan(PlanOp::Launch { .. }))
}

/// Source location of a loop: of the comparison in its header.
fn place(body: &Body, l: &Loop<Block>) -> Loc {
    body.block(l.header).insts.last().map(|i| body.inst(*i).loc).unwrap_or_default()
}

/// A loop outlined to a kernel.
struct Outlined {
    kernel: Kernel,
    /// The preheader, and the header.
    before: Block,
    header: Block,
    blocks: BTreeSet<Block>,
    /// The jump to the exit.
    after: BlockCall,
    /// Operands of the kernel.
    given: Vec<LoopOperand>,
    /// Constants of the loop that are used after it.
    kept: Vec<Value>,
    loc: Loc,
}

/// An operand of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopOperand {
    /// A value defined before the loop.
    Before(Value),
    /// Memory defined in each iteration, although it is loop-invariant.
    Root(Inst),
}

impl Outlined {
    /// Replaces the loop; returns the name of the kernel.
    fn put(mut self, module: &mut Module, n: usize) -> String {
        let mut number = 0;
        while module.kernels.iter().any(|k| k.name == format!("loop.{number}")) {
            number += 1;
        }
        self.kernel.name = format!("loop.{number}");
        let name = self.kernel.name.clone();
        if let Some(plan) = module.plans.get_mut(n) {
            let body = &mut plan.body;
            let operands = self.given.iter().filter_map(|given| match given {
                LoopOperand::Before(v) => Some(*v),
                LoopOperand::Root(i) => again(body, self.before, *i),
            });
            let operands: Vec<Value> = operands.collect();
            body.push(self.before, Op::Plan(PlanOp::Launch { kernel: name.clone() }), operands, None, self.loc);
            let mut by = SecondaryMap::new();
            for old in &self.kept {
                let made = body.definition(*old).map(|(i, _)| i).and_then(|i| again(body, self.before, i));
                by[*old] = made;
            }
            let inside = |call: &BlockCall| call.block == self.header;
            for call in body.block_mut(self.before).terminator.targets_mut().into_iter().filter(|c| inside(c)) {
                *call = self.after.clone();
            }
            body.layout.retain(|b| !self.blocks.contains(b));
            body.replace_uses(&by);
        }
        module.kernels.push(self.kernel);
        name
    }
}

/// Duplicates an instruction at the end of a block.
fn again(body: &mut Body, at: Block, i: Inst) -> Option<Value> {
    let data = body.inst(i).clone();
    let mut operands = Vec::new();
    for v in &data.operands {
        let (i, _) = body.definition(*v)?;
        operands.push(again(body, at, i)?);
    }
    let ty = data.result.map(|v| body.ty(v).clone());
    body.push(at, data.op, operands, ty, data.loc)
}

/// The memory that a buffer of a plan refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Memory {
    Argument(u32),
    Result(u32),
    Slot(u32),
    State(String),
    Parameter(String),
    Packed,
}

/// The memory of a buffer; `None` for taps.
pub(super) fn memory(body: &Body, buffer: Value) -> Option<Memory> {
    let root = View::trace(body, buffer)?.root;
    match &body.def_inst(root)?.op {
        Op::Plan(PlanOp::Arg(n)) => Some(Memory::Argument(*n)),
        Op::Plan(PlanOp::Out(n)) => Some(Memory::Result(*n)),
        Op::Plan(PlanOp::Slot(n)) => Some(Memory::Slot(*n)),
        Op::Plan(PlanOp::State { name }) => Some(Memory::State(name.clone())),
        Op::Plan(PlanOp::Param { name }) => Some(Memory::Parameter(name.clone())),
        Op::Plan(PlanOp::Packed { .. }) => Some(Memory::Packed),
        _ => None,
    }
}

/// Outlines a loop.
struct Maker<'a> {
    module: &'a Module,
    plan: &'a Plan,
    arch: GpuArch,
    of: &'a Loop<Block>,
    /// The loop's blocks, in order.
    order: Vec<Block>,
    body: Body,
    params: Vec<Param>,
    memories: Vec<Memory>,
    given: Vec<LoopOperand>,
    values: SecondaryMap<Value, Option<Value>>,
    blocks: BTreeMap<Block, Block>,
}

type Converted<T> = Result<T, String>;

impl<'a> Maker<'a> {
    fn new(module: &'a Module, plan: &'a Plan, of: &'a Loop<Block>, arch: GpuArch) -> Maker<'a> {
        let order = plan.body.reverse_postorder().into_iter().filter(|b| of.blocks.contains(b)).collect();
        Maker {
            module,
            plan,
            arch,
            of,
            order,
            body: Body::new(),
            params: Vec::new(),
            memories: Vec::new(),
            given: Vec::new(),
            values: SecondaryMap::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// The kernel, or the reason why it cannot be made.
    fn make(mut self) -> Converted<Outlined> {
        let body = &self.plan.body;
        let cfg = body.cfg();
        let inside = |b: &Block| self.of.blocks.contains(b);
        let outside: Vec<Block> = cfg.predecessors(self.of.header).iter().copied().filter(|b| !inside(b)).collect();
        let [before] = outside.as_slice() else { return Err("it is entered from several places".to_string()) };
        let Terminator::Br(entered) = &body.block(*before).terminator else {
            return Err("it is entered under a condition".to_string());
        };
        for b in &self.order {
            let leaves = body.block(*b).terminator.targets().iter().any(|c| !inside(&c.block));
            if leaves && *b != self.of.header || matches!(body.block(*b).terminator, Terminator::Return(_)) {
                return Err("it is left from inside of a step".to_string());
            }
        }
        for l in cfg.loops().iter().filter(|l| l.blocks.is_subset(&self.of.blocks)) {
            self.counts(l)?;
        }
        let kernels = self.launched()?;
        let exits = body.block(self.of.header).terminator.targets().into_iter().filter(|c| !inside(&c.block));
        let [after] = exits.collect::<Vec<_>>()[..] else { return Err("it has no end".to_string()) };
        let kept = self.kept(after)?;

        let entry = self.body.entry();
        let done = self.body.add_block();
        for b in &self.order {
            let new = self.body.add_block();
            self.blocks.insert(*b, new);
            for v in &body.block(*b).args {
                if *body.ty(*v) != Type::Index {
                    return Err("a block of it takes something else than indices".to_string());
                }
                let arg = self.body.add_block_arg(new, Type::Index);
                self.values[*v] = Some(arg);
            }
        }
        for b in self.order.clone() {
            let new = self.blocks.get(&b).copied().unwrap_or(entry);
            for i in &body.block(b).insts {
                self.instruction(*i, new)?;
            }
            let mut terminator = body.block(b).terminator.clone();
            for call in terminator.targets_mut() {
                *call = match self.blocks.get(&call.block) {
                    Some(block) => BlockCall { block: *block, args: self.all(&call.args)? },
                    None => BlockCall { block: done, args: Vec::new() },
                };
            }
            if let Terminator::BrIf { condition, .. } = &mut terminator {
                *condition = self.value(*condition)?;
            }
            self.body.terminate(new, terminator);
        }
        let args = self.all(&entered.args)?;
        let header = self.blocks.get(&self.of.header).copied().unwrap_or(entry);
        self.body.terminate(entry, Terminator::Br(BlockCall { block: header, args }));
        // The exit comes last.
        self.body.layout.retain(|b| *b != done);
        self.body.layout.push(done);

        let (loc, after, before) = (place(body, self.of), after.clone(), *before);
        let (header, blocks) = (self.of.header, self.of.blocks.clone());
        let given = self.given.clone();
        let kernel = self.finish(&kernels)?;
        if kernel.params.len() + kernel.symbols.len() > MAX_WORDS {
            return Err(format!("it works on more than {MAX_WORDS} buffers"));
        }
        Ok(Outlined { kernel, before, header, blocks, after, given, kept, loc })
    }

    /// Does a loop count up to a loop-invariant bound?
    fn counts(&self, l: &Loop<Block>) -> Converted<()> {
        let body = &self.plan.body;
        let no = || Err("data decides how many steps it has".to_string());
        let Terminator::BrIf { condition, then, .. } = &body.block(l.header).terminator else { return no() };
        let Some(compare) = body.def_inst(*condition) else { return no() };
        let (Op::Compare(CmpOp::Lt), [count, bound]) = (&compare.op, compare.operands.as_slice()) else { return no() };
        let stays = |v: Value| match body.definition(v) {
            Some((_, data)) if is_known(data) => true,
            Some((i, _)) => !l.blocks.iter().any(|b| body.block(*b).insts.contains(&i)),
            None => !l.blocks.iter().any(|b| body.block(*b).args.contains(&v)),
        };
        let Some(place) = body.block(l.header).args.iter().position(|v| v == count) else { return no() };
        if !l.blocks.contains(&then.block) || !stays(*bound) {
            return no();
        }
        for b in &l.blocks {
            for call in body.block(*b).terminator.targets().into_iter().filter(|c| c.block == l.header) {
                let next = call.args.get(place).and_then(|v| body.def_inst(*v));
                let adds = next.is_some_and(|d| {
                    let step = d.operands.get(1).and_then(|v| body.def_inst(*v));
                    d.op == Op::Binary(BinaryOp::Add)
                        && d.operands.first() == Some(count)
                        && step.is_some_and(|d| matches!(&d.op, Op::Const(n) if n.as_i64() > 0))
                });
                if !adds {
                    return no();
                }
            }
        }
        Ok(())
    }

    /// The distinct kernels that it launches, if all can be launched from a kernel.
    fn launched(&self) -> Converted<Vec<&'a Kernel>> {
        let body = &self.plan.body;
        let mut kernels: Vec<&Kernel> = Vec::new();
        let mut count = 0;
        for i in self.order.iter().flat_map(|b| &body.block(*b).insts) {
            let Op::Plan(PlanOp::Launch { kernel }) = &body.inst(*i).op else { continue };
            count += 1;
            let Some(k) = self.module.kernels.iter().find(|k| k.name == *kernel) else {
                return Err(format!("there is no kernel @{kernel}"));
            };
            if k.is_persistent() {
                return Err(format!("@{kernel} is a loop already"));
            }
            if !k.works_in_runs() || k.body.insts().any(|(_, _, d)| d.op == Op::Gpu(GpuOp::Blocks)) {
                return Err(format!("@{kernel} runs on tensor cores, or divides its points itself"));
            }
            let points = cost::points(k);
            if points > cost::MAX_POINTS {
                let most = cost::MAX_POINTS;
                return Err(format!(
                    "@{kernel} has {points} points, more than the {most} up to which launches weigh most"
                ));
            }
            if !kernels.iter().any(|own| own.name == k.name) {
                kernels.push(k);
            }
        }
        match count {
            0 => Err("it launches nothing".to_string()),
            n if n > MAX_LAUNCHES => Err(format!("a step has {n} launches, more than {MAX_LAUNCHES}")),
            _ => Ok(kernels),
        }
    }

    /// Values of the loop that are used after it: constants and dimensions, which can be
    /// recomputed.
    fn kept(&self, after: &BlockCall) -> Converted<Vec<Value>> {
        let body = &self.plan.body;
        let mut own: BTreeSet<Value> = BTreeSet::new();
        for b in &self.order {
            own.extend(&body.block(*b).args);
            own.extend(body.block(*b).insts.iter().filter_map(|i| body.inst(*i).result));
        }
        let mut used: BTreeSet<Value> = after.args.iter().copied().filter(|v| own.contains(v)).collect();
        if !used.is_empty() {
            return Err("what a step computes is used after it".to_string());
        }
        for b in body.layout.iter().filter(|b| !self.of.blocks.contains(b)) {
            for i in &body.block(*b).insts {
                body.for_each_use(*i, |v| used.extend(own.get(&v)));
            }
            used.extend(body.block(*b).terminator.values().iter().filter(|v| own.contains(v)));
        }
        for v in &used {
            if !body.def_inst(*v).is_some_and(is_known) {
                return Err("what a step computes is used after it".to_string());
            }
        }
        Ok(used.into_iter().collect())
    }

    fn all(&mut self, values: &[Value]) -> Converted<Vec<Value>> {
        values.iter().map(|v| self.value(*v)).collect()
    }

    /// The kernel's counterpart of a value of the plan.
    fn value(&mut self, v: Value) -> Converted<Value> {
        if let Some(made) = self.values[v] {
            return Ok(made);
        }
        let body = &self.plan.body;
        let ty = body.ty(v).clone();
        let made = match (&ty, body.definition(v)) {
            (Type::Index, Some((_, data))) if is_known(data) => {
                let entry = self.body.entry();
                let (op, loc) = (data.op.clone(), data.loc);
                self.body.push(entry, op, Vec::new(), Some(ty), loc).unwrap_or(v)
            }
            (Type::Index, _) => self.param(LoopOperand::Before(v), ty, false),
            (Type::Buffer(_), _) => self.buffer(v, LoopOperand::Before(v))?,
            _ => return Err("it uses a number that was read before it".to_string()),
        };
        self.values[v] = Some(made);
        Ok(made)
    }

    fn param(&mut self, given: LoopOperand, ty: Type, aligned: bool) -> Value {
        let value = self.body.add_param(ty);
        self.params.push(Param { aligned, ..Param::new(value, ParamMode::In) });
        self.given.push(given);
        value
    }

    /// A buffer parameter of the kernel.
    fn buffer(&mut self, v: Value, given: LoopOperand) -> Converted<Value> {
        let body = &self.plan.body;
        let Some(memory) = memory(body, v) else {
            return Err("it fills a tap, which a call may not ask for".to_string());
        };
        let ty = body.ty(v).clone();
        let aligned = begins_at_multiple(body, &[], v, CHUNK);
        let made = self.param(given, ty, aligned);
        self.memories.resize(self.params.len().saturating_sub(1), Memory::Packed);
        self.memories.push(memory);
        Ok(made)
    }

    fn instruction(&mut self, i: Inst, to: Block) -> Converted<()> {
        let body = &self.plan.body;
        let data = body.inst(i);
        match &data.op {
            Op::Plan(
                PlanOp::Arg(_)
                | PlanOp::Out(_)
                | PlanOp::State { .. }
                | PlanOp::Slot(_)
                | PlanOp::Packed { .. }
                | PlanOp::Param { .. },
            ) => {
                let Some(v) = data.result else { return Ok(()) };
                if !data.operands.iter().all(|v| body.def_inst(*v).is_some_and(is_known)) {
                    return Err("each step has other parameters".to_string());
                }
                // Identical views of the same memory are passed once.
                let same = |given: &LoopOperand| match given {
                    LoopOperand::Root(other) => {
                        let other = body.inst(*other);
                        let types = other.result.map(|o| body.ty(o) == body.ty(v));
                        other.op == data.op && other.operands == data.operands && types == Some(true)
                    }
                    LoopOperand::Before(_) => false,
                };
                self.values[v] = match self.given.iter().position(same).and_then(|n| self.params.get(n)) {
                    Some(p) => Some(p.value),
                    None => Some(self.buffer(v, LoopOperand::Root(i))?),
                };
                return Ok(());
            }
            Op::Plan(PlanOp::Tap { .. }) => return Err("it fills a tap, which a call may not ask for".to_string()),
            Op::Length { .. } => return Err("a dimension has its value in it".to_string()),
            op if op.stands_beside_launches() => {}
            op => return Err(format!("{} is not done there", op.info().name)),
        }
        let operands = self.all(&data.operands)?;
        let ty = data.result.map(|v| body.ty(v).clone());
        let made = self.body.push(to, data.op.clone(), operands, ty, data.loc);
        if let Some(v) = data.result {
            self.values[v] = made;
        }
        Ok(())
    }

    /// Completes the kernel with parameter modes, barriers and sizes.
    fn finish(mut self, kernels: &[&Kernel]) -> Converted<Kernel> {
        self.memories.resize(self.params.len(), Memory::Packed);
        let memory_of: BTreeMap<Value, Memory> =
            self.params.iter().map(|p| p.value).zip(self.memories.iter().cloned()).collect();
        let mut effects: BTreeMap<Inst, Accesses> = BTreeMap::new();
        for (_, i, data) in self.body.insts() {
            let of = |v: &Value| memory_of.get(&View::trace(&self.body, *v)?.root).cloned();
            let mut own = Accesses::default();
            match &data.op {
                Op::Plan(PlanOp::Launch { kernel }) => {
                    let params = kernels.iter().find(|k| k.name == *kernel).map_or(&[][..], |k| &k.params);
                    for (p, v) in params.iter().zip(&data.operands) {
                        let Some(memory) = of(v) else { continue };
                        if p.mode != ParamMode::Out {
                            own.reads.insert(memory.clone());
                        }
                        if p.mode != ParamMode::In {
                            own.writes.insert(memory);
                        }
                    }
                }
                Op::LoadScalar => own.reads.extend(data.operands.first().and_then(of)),
                _ => continue,
            }
            effects.insert(i, own);
        }
        let mut all = Accesses::default();
        effects.values().for_each(|own| all.add(own));
        for p in &mut self.params {
            let Some(memory) = memory_of.get(&p.value).filter(|_| self.body.ty(p.value).buffer().is_some()) else {
                continue;
            };
            p.mode = match (all.reads.contains(memory), all.writes.contains(memory)) {
                (_, false) => ParamMode::In,
                (true, true) => ParamMode::InOut,
                (false, true) => ParamMode::Out,
            };
        }
        barriers(&mut self.body, &effects);

        let mut points = Dim::one();
        let (mut warps, mut scratch) = (1, 0);
        for k in kernels {
            let mut own = Dim::one();
            for g in &k.grid {
                let count = g.extent.ceil_div(&Dim::from(g.step.max(1)));
                own = own.mul(&count.ok_or("an axis of a grid has no count")?);
            }
            points = points.max_with(&own);
            if let State::Gpu { warps: own, .. } = k.state {
                // Larger blocks, of split matmuls, would leave few registers to all others.
                warps = warps.max(own.min(u32::try_from(MAX_WARPS).unwrap_or(1)));
            }
            scratch = scratch.max(k.scratch);
        }
        let value = self.body.add_param(Type::Index);
        let mut kernel = Kernel {
            name: String::new(),
            symbols: Vec::new(),
            params: self.params,
            grid: vec![GridAxis { value, extent: points, step: 1 }],
            scratch,
            state: State::Gpu { arch: self.arch, warps },
            compute: None,
            tiled: None,
            body: self.body,
        };
        kernel.find_symbols();
        kernel.symbols.extend(kernels.iter().flat_map(|k| k.symbols.iter().cloned()));
        kernel.symbols.sort();
        kernel.symbols.dedup();
        Ok(kernel)
    }
}

/// Sets of reads and writes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Accesses {
    reads: BTreeSet<Memory>,
    writes: BTreeSet<Memory>,
}

impl Accesses {
    fn add(&mut self, other: &Accesses) {
        self.reads.extend(other.reads.iter().cloned());
        self.writes.extend(other.writes.iter().cloned());
    }

    /// Must these accesses be ordered before `next`?
    fn orders(&self, next: &Accesses) -> bool {
        let meet = |a: &BTreeSet<Memory>, b: &BTreeSet<Memory>| !a.is_disjoint(b);
        meet(&self.writes, &next.reads) || meet(&self.writes, &next.writes) || meet(&self.reads, &next.writes)
    }
}

/// Places barriers before accesses that depend on earlier ones by other blocks. Iterates over the
/// pending accesses at the start of each block until a fixed point.
fn barriers(body: &mut Body, effects: &BTreeMap<Inst, Accesses>) {
    let mut starts: BTreeMap<Block, Accesses> = BTreeMap::new();
    let found = loop {
        let (mut changed, mut found) = (false, Vec::new());
        for b in &body.layout {
            let mut pending = starts.get(b).cloned().unwrap_or_default();
            for i in &body.block(*b).insts {
                let Some(own) = effects.get(i) else { continue };
                if pending.orders(own) {
                    found.push((*b, *i));
                    pending = Accesses::default();
                }
                pending.add(own);
            }
            for call in body.block(*b).terminator.targets() {
                let start = starts.entry(call.block).or_default();
                let before = start.clone();
                start.add(&pending);
                changed |= *start != before;
            }
        }
        if !changed {
            break found;
        }
    };
    for (b, i) in found {
        let barrier = body.make_inst(Op::Gpu(GpuOp::GridBarrier), Vec::new(), None, body.inst(i).loc);
        body.insert_before(b, i, barrier);
    }
}
