//! Two regions of elementwise work one after the other, in a loop over time: one kernel that writes both results.
//!
//! ```text
//! %c = fused map(%f, %old, %i, %g)        // keep * old + into * draft
//! %h = fused map(%o, %c)                  // out * tanh(%c), and %c is carried on
//! ```
//!
//! In: a function in which everything that computes is a region. Out: which of them are computed with the next one, and the region
//! that computes both. A region gives one value, so a step of an LSTM has two: the new cell is used by the new state and by
//! the next step. As one kernel the cell goes from register to register.
//!
//! The state is also what the loop stacks, `out[t] = h`. The kernel that computes it writes it there too, and nothing copies it:
//!
//! ```text
//! %h = fused map(..)
//! %next = update %out, %h, %t
//! ```
//!
//! Only in a loop over time, where the work of a step may be as little as a launch costs. In a loop over layers, in which each
//! iteration reads weights of its own, a launch is nothing beside that.

use std::collections::{BTreeMap, BTreeSet};

use super::super::region::Operand;
use super::super::{Call, map};
use super::Lowering;
use crate::ir::{Cfg, Function, FusionKind, InstData, Loc, Loop, Op, Terminator, Value};
use crate::shape::Dim;
use crate::tile::View;

/// The most tensors that a kernel of two regions reads and writes.
const MOST_BUFFERS: usize = 16;

/// A loop of so many iterations is over too soon for a copy in each to matter.
const FEW: i64 = 8;

/// A region that is computed together with the next one.
pub(super) struct Held {
    v: Value,
    body: Function,
    operands: Vec<(Value, Operand)>,
    to: View,
}

/// A region whose launch waits for the assignment of its last result at an index, so that it writes that itself.
pub(super) struct Stacked {
    v: Value,
    body: Function,
    operands: Vec<Operand>,
    outs: Vec<View>,
}

/// The loops that go over time: in which no parameter is chosen by an index, as in loops over layers, and which are not known to
/// end after a few iterations.
pub(super) fn loops_over_time(f: &Function, cfg: &Cfg) -> Vec<Loop> {
    let of_layers = |d: &InstData| matches!(d.op, Op::Param { .. }) && !d.operands.is_empty();
    let is_short = |l: &Loop| -> bool {
        let Terminator::BrIf { condition, .. } = &f.block(l.header).terminator else { return false };
        let bound = f.def_inst(*condition).filter(|d| matches!(d.op, Op::Compare(_))).and_then(|d| d.operands.get(1));
        bound.and_then(|v| f.as_const(*v)).is_some_and(|n| n.as_i64() <= FEW)
    };
    let mut loops = cfg.loops();
    loops.retain(|l| {
        let mut insts = l.blocks.iter().flat_map(|b| &f.block(*b).insts);
        !is_short(l) && !insts.any(|i| of_layers(f.inst(*i)))
    });
    loops
}

/// Is it a source, movement or an index, so that it launches nothing that something before it could have to wait for?
fn launches_nothing(op: &Op) -> bool {
    matches!(
        op,
        Op::Const(_)
            | Op::DimValue(_)
            | Op::Iota { .. }
            | Op::Causal
            | Op::Param { .. }
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Reshape
            | Op::Transpose { .. }
            | Op::Broadcast
            | Op::Slice { .. }
            | Op::Index { .. }
            | Op::Extract { .. }
    )
}

/// Have two tensors the same elements in the same order, but for axes of one element?
fn differ_in_axes_of_one(f: &Function, a: Value, b: Value) -> bool {
    let axes =
        |v: Value| -> Option<Vec<&Dim>> { Some(f.tensor(v)?.shape.iter().filter(|d| **d != Dim::one()).collect()) };
    axes(a).is_some_and(|shape| axes(b) == Some(shape))
}

/// The regions whose result, maybe with axes of one element more, is assigned at an index next: nothing but sources, movement and indices,
/// none of which reads it, stands between. `pairs`: the regions that are computed with the next one. `beside`: what is lowered elsewhere.
pub(super) fn stacked(
    f: &Function,
    cfg: &Cfg,
    pairs: &BTreeMap<Value, Value>,
    beside: impl Fn(&InstData) -> bool,
) -> BTreeSet<Value> {
    let mut found = BTreeSet::new();
    for block in loops_over_time(f, cfg).iter().flat_map(|l| &l.blocks) {
        // The result of a region, and what it is called since.
        let mut open: Option<(Value, Value)> = None;
        for d in f.block(*block).insts.iter().map(|i| f.inst(*i)).filter(|d| !beside(d)) {
            let reads = open.is_some_and(|(v, now)| d.operands.contains(&v) || d.operands.contains(&now));
            open = match (&d.op, d.operands.as_slice(), d.result, open) {
                (Op::Fused { kind: FusionKind::Map, .. }, _, Some(v), _) if !pairs.contains_key(&v) => Some((v, v)),
                (Op::Reshape, [from], Some(to), Some((v, now)))
                    if *from == now && differ_in_axes_of_one(f, now, to) =>
                {
                    Some((v, to))
                }
                (Op::Update { .. }, [target, value, ..], _, Some((v, now))) if now == *value && target != value => {
                    found.insert(v);
                    None
                }
                (op, _, _, open) if !reads && launches_nothing(op) => open,
                _ => None,
            };
        }
    }
    found
}

/// The regions that are computed with another one, by their results. Between the two nothing is launched that reads the
/// first, and nothing but sources, movement and indices stands. `beside`: what is lowered elsewhere.
pub(super) fn pairs(f: &Function, cfg: &Cfg, beside: impl Fn(&InstData) -> bool) -> BTreeMap<Value, Value> {
    let mut found = BTreeMap::new();
    for block in loops_over_time(f, cfg).iter().flat_map(|l| &l.blocks) {
        let mut open: Option<(Value, usize)> = None;
        for i in &f.block(*block).insts {
            let d = f.inst(*i);
            if beside(d) {
                continue;
            }
            let reads = open.is_some_and(|(v, _)| d.operands.contains(&v));
            match (&d.op, d.result) {
                (Op::Fused { kind: FusionKind::Map, .. }, Some(v)) => {
                    let shape = |v: Value| f.tensor(v).map(|t| t.shape.as_slice());
                    open = match open {
                        Some((first, operands))
                            if reads && shape(first) == shape(v) && operands + d.operands.len() < MOST_BUFFERS =>
                        {
                            found.insert(first, v);
                            None
                        }
                        _ => Some((v, d.operands.len())),
                    };
                }
                (op, _) if !reads && launches_nothing(op) => {}
                _ => open = None,
            }
        }
    }
    found
}

impl Lowering<'_> {
    /// Launches a region of elementwise work, or keeps it for the next one.
    pub(super) fn elementwise(
        &mut self,
        v: Value,
        body: &Function,
        operands: Vec<(Value, Operand)>,
        to: &View,
    ) -> Result<(), String> {
        if self.pairs.contains_key(&v) && self.held.is_none() {
            self.held = Some(Held { v, body: body.clone(), operands, to: to.clone() });
            return Ok(());
        }
        let mut held = self.held.take();
        if let Some(first) = held.take_if(|first| self.pairs.get(&first.v) == Some(&v)) {
            if first.can_go_with(&operands, to) {
                let (body, operands) = first.with(body, &operands)?;
                return self.map(Stacked { v, body, operands, outs: vec![first.to, to.clone()] });
            }
            self.launch(first.alone()?)?;
        }
        let operands: Vec<Operand> = operands.into_iter().map(|(_, o)| o).collect();
        self.map(Stacked { v, body: body.clone(), operands, outs: vec![to.clone()] })
    }

    /// Launches a region, or keeps it for the assignment of its result.
    fn map(&mut self, region: Stacked) -> Result<(), String> {
        if self.stacked.contains(&region.v) {
            self.waiting = Some(region);
            return Ok(());
        }
        self.launch(region.call()?)
    }

    /// Launches the region that waits for the assignment of its result, which stands at `here`; whether it writes the window that this is
    /// assigned to, too.
    pub(super) fn write_too(&mut self, window: Option<&View>, here: Loc) -> Result<bool, String> {
        let Some(mut region) = self.waiting.take() else { return Ok(false) };
        let window = window.and_then(|w| region.as_output(w));
        let is_written = window.is_some();
        if let Some(window) = window {
            region.outs.push(window);
            region.repeat_result()?;
        }
        self.builder.at(self.f.definition(region.v).map(|(_, d)| d.loc).unwrap_or_default());
        self.launch(region.call()?)?;
        self.builder.at(here);
        Ok(is_written)
    }
}

impl Stacked {
    fn call(&self) -> Result<Call, String> {
        map::map_over("map", &self.body, &self.operands, &self.outs)
    }

    /// A window as one more result, in the shape of the others, if it is in other memory than all that the region reads and writes.
    fn as_output(&self, window: &View) -> Option<View> {
        let mut known = self.operands.iter().filter_map(Operand::view).chain(&self.outs);
        let fits = self.operands.len() + self.outs.len() < MOST_BUFFERS && known.all(|v| v.root != window.root);
        let out = self.outs.last().filter(|out| fits && out.elem == window.elem)?;
        window.reshape(&out.shape)
    }

    /// Its last result twice.
    fn repeat_result(&mut self) -> Result<(), String> {
        let entry = self.body.entry();
        let Terminator::Return(results) = &self.body.block(entry).terminator else {
            return Err("a region does not return".into());
        };
        let results = results.iter().chain(results.last()).copied().collect();
        self.body.terminate(entry, Terminator::Return(results));
        Ok(())
    }
}

impl Held {
    fn alone(&self) -> Result<Call, String> {
        let operands: Vec<Operand> = self.operands.iter().map(|(_, o)| o.clone()).collect();
        map::map_over("map", &self.body, &operands, std::slice::from_ref(&self.to))
    }

    /// May the next region be computed element by element with this one? What either reads of the slots that they write has to be
    /// the element that is written.
    fn can_go_with(&self, next: &[(Value, Operand)], to: &View) -> bool {
        let views = |list: &[(Value, Operand)]| -> Vec<View> {
            list.iter().filter(|(v, _)| *v != self.v).filter_map(|(_, o)| o.view().cloned()).collect()
        };
        let (own, next) = (views(&self.operands), views(next));
        self.to.root != to.root
            && next.iter().all(|v| v.root != self.to.root)
            && own.iter().chain(&next).all(|v| v.root != to.root || v == to)
    }

    /// The region that computes both, and what it reads.
    fn with(&self, next: &Function, operands: &[(Value, Operand)]) -> Result<(Function, Vec<Operand>), String> {
        let mut body = Function::new("");
        let entry = body.entry();
        let (mut read, mut results) = (Vec::new(), Vec::new());
        // The values of the function in the new region.
        let mut known: BTreeMap<Value, Value> = BTreeMap::new();
        for (region, operands) in [(&self.body, self.operands.as_slice()), (next, operands)] {
            let block = region.block(region.entry());
            let mut inside: BTreeMap<Value, Value> = BTreeMap::new();
            for (arg, (v, operand)) in block.args.iter().zip(operands) {
                let here = *known.entry(*v).or_insert_with(|| {
                    read.push(operand.clone());
                    body.add_block_arg(entry, region.ty(*arg).clone())
                });
                inside.insert(*arg, here);
            }
            for i in &block.insts {
                let d = region.inst(*i);
                let operands = d.operands.iter().filter_map(|v| inside.get(v).copied()).collect();
                let made = body.push(entry, d.op.clone(), operands, d.result.map(|v| region.ty(v).clone()), d.loc);
                inside.extend(d.result.zip(made));
            }
            let Terminator::Return(values) = &block.terminator else { return Err("a region does not return".into()) };
            let result = values.first().and_then(|v| inside.get(v).copied()).ok_or("a region without a result")?;
            known.insert(self.v, result);
            results.push(result);
        }
        body.terminate(entry, Terminator::Return(results));
        Ok((body, read))
    }
}
