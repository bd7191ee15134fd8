//! hoist-reads: numbers that a plan reads, once before its loop instead of in each step.
//!
//! In: the plans of a module whose slots do not share memory yet. Out: the same plans, in which the
//! host reads a number before the loop if no step writes it, and reads equal numbers once.
//!
//! ```text
//! state keys: f32[4, 8]
//! state past: i32
//! fn f(x: f32[8]) -> f32[4, 8] {
//!     for i in 0..3 {
//!         keys[past] = x + keys[i]
//!     }
//!     keys
//! }
//! ...
//! ^bb2:
//!   %8 = const 4 : index
//!   %9 = check_index %5, %8, site=0 : index
//!   %10 = load_scalar %2 : i32
//!   %11 = cast %10 : index
//! ...
//! ->
//! ...
//!   %5 = load_scalar %2 : i32
//!   br ^bb1(%3)
//! ...
//! ^bb2:
//!   %9 = const 4 : index
//!   %10 = check_index %6, %9, site=0 : index
//!   %11 = cast %5 : index
//! ...
//! ```
//!
//! For each number the host waits until the kernels before it have ended, which takes longer than a
//! small kernel. It also ends a CUDA graph: kernels between two reads are launched one by one. A
//! decoder with 16 layers and a cache, whose length each layer reads three times, has 2 reads per
//! token instead of 48.
//!
//! # Conditions
//!
//! * the number is at a constant offset in an argument, a parameter, a state or a slot; in a slot,
//!   only if a kernel that writes it is always launched before the loop;
//! * no kernel launched in the loop writes to that memory;
//! * the loop has a single entry.
//!
//! Work that depends on the number, such as the check of an index, stays where it is, so errors are
//! reported in the same order.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;

use super::super::step::{Changed, Log};
use super::persistent::{Memory, memory};
use crate::cfg::{Cfg, Loop};
use crate::tile::{Block, Body, Inst, Kernel, Machine, Module, Op, ParamMode, Plan, PlanOp, Terminator, Value, View};

/// Hoists the reads of all plans.
pub(in super::super) fn run(module: &mut Module, _: &Machine, _: &mut Log<'_>) -> Result<Changed, String> {
    for plan in &mut module.plans {
        let mut reads = Reads { cfg: plan.body.cfg(), plan, kernels: &module.kernels };
        reads.hoist();
        reads.join();
    }
    Ok(Changed::new())
}

/// A plan, whose blocks and jumps do not change.
struct Reads<'a> {
    plan: &'a mut Plan,
    kernels: &'a [Kernel],
    cfg: Cfg<Block>,
}

impl Reads<'_> {
    /// The memory that an instruction writes; `None` if it is not a launch.
    fn written(&self, inst: Inst) -> Option<BTreeSet<Memory>> {
        let data = self.plan.body.inst(inst);
        let Op::Plan(PlanOp::Launch { kernel: name }) = &data.op else { return None };
        let kernel = self.kernels.iter().find(|k| k.name == *name)?;
        let written = kernel.params.iter().zip(&data.operands).filter(|(p, _)| p.mode != ParamMode::In);
        Some(written.filter_map(|(_, v)| memory(&self.plan.body, *v)).collect())
    }

    fn writes(&self, block: Block, to: &Memory) -> bool {
        let insts = &self.plan.body.block(block).insts;
        insts.iter().any(|i| self.written(*i).is_some_and(|all| all.contains(to)))
    }

    /// Moves reads before the outermost loops that do not write what is read.
    fn hoist(&mut self) {
        let mut loops = self.cfg.loops();
        loops.sort_by_key(|l| std::cmp::Reverse(l.blocks.len()));
        for l in loops {
            let Some(before) = self.preheader(&l) else { continue };
            for block in self.plan.body.layout.clone().into_iter().filter(|b| l.blocks.contains(b)) {
                for inst in self.plan.body.block(block).insts.clone() {
                    if let Some(mut moved) = self.invariant(inst, &l, before) {
                        moved.push(inst);
                        for i in moved {
                            self.plan.body.block_mut(block).insts.retain(|other| *other != i);
                            self.plan.body.block_mut(before).insts.push(i);
                        }
                    }
                }
            }
        }
    }

    /// The preheader of a loop: the only predecessor outside, if it jumps unconditionally.
    fn preheader(&self, l: &Loop<Block>) -> Option<Block> {
        let mut outside = self.cfg.predecessors(l.header).iter().copied().filter(|b| !l.blocks.contains(b));
        let before = outside.next().filter(|_| outside.next().is_none())?;
        matches!(self.plan.body.block(before).terminator, Terminator::Br(_)).then_some(before)
    }

    /// If an instruction reads a loop-invariant number: the view that is moved with it, if any.
    fn invariant(&self, inst: Inst, l: &Loop<Block>, before: Block) -> Option<Vec<Inst>> {
        let body = &self.plan.body;
        let (from, view) = read(body, inst)?;
        let is_written_before = || {
            let blocks = body.layout.iter().filter(|b| self.cfg.dominates(**b, before));
            blocks.into_iter().any(|b| self.writes(*b, &from))
        };
        if matches!(from, Memory::Slot(_) | Memory::Result(_)) && !is_written_before()
            || l.blocks.iter().any(|b| self.writes(*b, &from))
        {
            return None;
        }
        let home = |v: Value| body.block_of(body.definition(v)?.0);
        let is_before = |v: Value| home(v).is_some_and(|b| self.cfg.dominates(b, before));
        let buffer = *body.inst(inst).operands.first()?;
        if is_before(buffer) {
            return Some(Vec::new());
        }
        let (made, data) = body.definition(buffer)?;
        let of_root = data.operands.first() == Some(&view.root);
        (of_root && is_before(view.root) && body.block_of(made) == body.block_of(inst)).then(|| vec![made])
    }

    /// Do two views refer to the same element? Layers of one parameter differ in the operands of
    /// their roots.
    fn is_same(&self, a: &View, b: &View) -> bool {
        let root = |v: &View| self.plan.body.def_inst(v.root).map(|d| (&d.op, &d.operands));
        root(a) == root(b) && (&a.offset, a.elem) == (&b.offset, b.elem)
    }

    /// Within a block, reuses an earlier read of the same element, unless it is written in between.
    fn join(&mut self) {
        let mut by: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
        for block in self.plan.body.layout.clone() {
            let mut known: Vec<(Memory, View, Value)> = Vec::new();
            for inst in self.plan.body.block(block).insts.clone() {
                if let Some(written) = self.written(inst) {
                    known.retain(|(memory, ..)| !written.contains(memory));
                }
                let (Some((memory, view)), Some(v)) = (read(&self.plan.body, inst), self.plan.body.inst(inst).result)
                else {
                    continue;
                };
                match known.iter().find(|(_, w, _)| self.is_same(w, &view)) {
                    Some((.., first)) => {
                        by[v] = Some(*first);
                        self.plan.body.block_mut(block).insts.retain(|other| *other != inst);
                    }
                    None => known.push((memory, view, v)),
                }
            }
        }
        self.plan.body.replace_uses(&by);
    }
}

/// The memory and the view of a number at a constant offset that an instruction reads.
fn read(body: &Body, inst: Inst) -> Option<(Memory, View)> {
    let data = body.inst(inst);
    let [buffer] = *data.operands.as_slice() else { return None };
    let view = View::trace(body, buffer).filter(|v| v.dynamic.is_empty() && v.offset.as_const().is_some())?;
    (data.op == Op::LoadScalar).then_some((memory(body, buffer)?, view))
}
