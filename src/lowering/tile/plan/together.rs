//! Fusion of two consecutive elementwise regions into a kernel that writes both results.
//!
//! ```text
//! %c = fused map(%f, %old, %i, %g)        // keep * old + into * draft
//! %h = fused map(%o, %c)                  // out * tanh(%c), and %c is carried on
//! ```
//!
//! In: a function in which every computing instruction is a region. Out: the pairs to compute
//! together, and the combined region. A graph region has one result, so a step of an LSTM has two
//! regions: both the new hidden state and the next step use the new cell. In one kernel the cell
//! stays in registers. This is done only in loops over time, where a step may do as little work as
//! a launch costs.
//!
//! Elsewhere two regions are combined if the operands of one are a subset of the other's, so that
//! each is read once:
//!
//! ```text
//! %a = fused map(%x, %cos, %y, %sin)      // x cos - y sin
//! %b = fused map(%y, %cos, %x, %sin)      // y cos + x sin
//! ```
//!
//! The loop may also stack the state, `out[t] = h`. The kernel that computes it also writes the
//! stacked copy, which saves a launch. A value that is used for nothing else, such as a new row of
//! a key cache, is written there only:
//!
//! ```text
//! %h = fused map(..)
//! %next = update %out, %h, %t
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::super::region::Operand;
use super::super::{Call, map};
use super::Lowering;
use crate::ir::{Cfg, Function, FusionKind, InstData, Loc, Loop, Op, Terminator, Value};
use crate::shape::Dim;
use crate::tile::View;

/// The most buffers of a kernel for two regions.
const MAX_BUFFERS: usize = 16;

/// In a loop of at most this many iterations, a copy per iteration does not matter.
const FEW: i64 = 8;

/// A region held back to be computed with the next one.
pub(super) struct HeldRegion {
    v: Value,
    body: Function,
    operands: Vec<(Value, Operand)>,
    to: View,
}

/// A region whose launch is delayed until its last result is assigned at an index, so that its
/// kernel can write there directly.
pub(super) struct Stacked {
    v: Value,
    /// The result is written there and nowhere else.
    only: bool,
    body: Function,
    operands: Vec<Operand>,
    outs: Vec<View>,
}

/// Loops over time: no parameter is indexed in them (as in loops over layers), and they are not
/// known to end after a few iterations.
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

/// Is the instruction a source, movement or an index, so that it launches no kernel?
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

/// Do two tensors have the same shape up to axes of extent 1?
fn differ_in_axes_of_one(f: &Function, a: Value, b: Value) -> bool {
    let axes =
        |v: Value| -> Option<Vec<&Dim>> { Some(f.tensor(v)?.shape.iter().filter(|d| **d != Dim::one()).collect()) };
    axes(a).is_some_and(|shape| axes(b) == Some(shape))
}

/// Regions whose result (possibly with additional axes of extent 1) is next assigned at an index:
/// only sources, movement and indices, none of which reads it, come between. In loops over time
/// they write it to both places if it has other uses; elsewhere it must have none, and they write
/// it only there (`true`). `pairs`: the regions computed with the next one. `beside`: instructions
/// that are lowered elsewhere.
pub(super) fn stacked(
    f: &Function,
    cfg: &Cfg,
    pairs: &BTreeMap<Value, Value>,
    beside: impl Fn(&InstData) -> bool,
) -> BTreeMap<Value, bool> {
    let uses = f.uses();
    let over_time = loops_over_time(f, cfg);
    let mut found = BTreeMap::new();
    for block in &f.layout {
        let in_time = over_time.iter().any(|l| l.blocks.contains(block));
        // The region's result, its latest alias, and whether it has had only one use.
        let mut open: Option<(Value, Value, bool)> = None;
        for d in f.block(*block).insts.iter().map(|i| f.inst(*i)).filter(|d| !beside(d)) {
            let reads = open.is_some_and(|(v, now, _)| d.operands.contains(&v) || d.operands.contains(&now));
            open = match (&d.op, d.operands.as_slice(), d.result, open) {
                (Op::Fused { kind: FusionKind::Map, .. }, _, Some(v), _) if !pairs.contains_key(&v) => {
                    Some((v, v, uses[v].len() == 1))
                }
                (Op::Reshape, [from], Some(to), Some((v, now, only)))
                    if *from == now && differ_in_axes_of_one(f, now, to) =>
                {
                    Some((v, to, only && uses[to].len() == 1))
                }
                (Op::Update { .. }, [target, value, ..], _, Some((v, now, only)))
                    if now == *value && target != value && (in_time || only) =>
                {
                    found.insert(v, only && !in_time);
                    None
                }
                (op, _, _, open) if !reads && launches_nothing(op) => open,
                _ => None,
            };
        }
    }
    found
}

/// Regions computed together with a later one, by their results. Between the two, only sources,
/// movement and indices occur, and no launch reads the first. `beside`: instructions that are
/// lowered elsewhere.
pub(super) fn pairs(f: &Function, cfg: &Cfg, beside: impl Fn(&InstData) -> bool) -> BTreeMap<Value, Value> {
    let over_time = loops_over_time(f, cfg);
    let shape = |v: Value| f.tensor(v).map(|t| t.shape.as_slice());
    let mut found = BTreeMap::new();
    for block in &f.layout {
        let in_time = over_time.iter().any(|l| l.blocks.contains(block));
        let mut open: Option<(Value, &[Value])> = None;
        for d in f.block(*block).insts.iter().map(|i| f.inst(*i)).filter(|d| !beside(d)) {
            let reads = open.is_some_and(|(v, _)| d.operands.contains(&v));
            open = match (&d.op, d.result, open) {
                (Op::Fused { kind: FusionKind::Map, .. }, Some(v), Some((first, operands)))
                    if shape(first) == shape(v)
                        && operands.len() + d.operands.len() < MAX_BUFFERS
                        && (if in_time { reads } else { read_the_same(operands, &d.operands) }) =>
                {
                    found.insert(first, v);
                    None
                }
                (Op::Fused { kind: FusionKind::Map, .. }, Some(v), _) => Some((v, d.operands.as_slice())),
                (op, _, open) if !reads && launches_nothing(op) => open,
                _ => None,
            };
        }
    }
    found
}

/// Is one region's operand list a non-empty subset of the other's?
fn read_the_same(a: &[Value], b: &[Value]) -> bool {
    let [a, b]: [BTreeSet<&Value>; 2] = [a, b].map(|list| list.iter().collect());
    !a.is_empty() && !b.is_empty() && (a.is_subset(&b) || b.is_subset(&a))
}

impl Lowering<'_> {
    /// Launches an elementwise region, or holds it back for the next one.
    pub(super) fn elementwise(
        &mut self,
        v: Value,
        body: &Function,
        operands: Vec<(Value, Operand)>,
        to: &View,
    ) -> Result<(), String> {
        if self.pairs.contains_key(&v) && self.held.is_none() {
            self.held = Some(HeldRegion { v, body: body.clone(), operands, to: to.clone() });
            return Ok(());
        }
        let mut held = self.held.take();
        if let Some(first) = held.take_if(|first| self.pairs.get(&first.v) == Some(&v)) {
            // Two parts of a concat are disjoint.
            let are_parts = self.parts.contains(&v) && self.parts.contains(&first.v);
            if first.can_go_with(&operands, to, are_parts) {
                let (body, operands) = first.with(body, &operands)?;
                return self.map(body, operands, vec![first.to, to.clone()], v);
            }
            self.launch(first.alone()?)?;
        }
        let operands: Vec<Operand> = operands.into_iter().map(|(_, o)| o).collect();
        self.map(body.clone(), operands, vec![to.clone()], v)
    }

    /// Launches a region, or delays it until its last result, `v`, is assigned.
    fn map(&mut self, body: Function, operands: Vec<Operand>, outs: Vec<View>, v: Value) -> Result<(), String> {
        let Some(only) = self.stacked.get(&v).copied() else {
            return self.launch(map::map_over("map", &body, &operands, &outs)?);
        };
        self.waiting = Some(Stacked { v, only, body, operands, outs });
        Ok(())
    }

    /// Launches the delayed region at the assignment of its result; returns whether its kernel also
    /// writes the assigned `window`.
    pub(super) fn write_too(&mut self, window: Option<&View>, here: Loc) -> Result<bool, String> {
        let Some(mut region) = self.waiting.take() else { return Ok(false) };
        let window = window.and_then(|w| region.as_output(w)).filter(|w| !region.only || has_long_rows(w));
        let is_written = window.is_some();
        if let Some(window) = window {
            if region.only {
                region.outs.pop();
            } else {
                region.repeat_result()?;
            }
            region.outs.push(window);
        }
        self.builder.at(self.f.definition(region.v).map(|(_, d)| d.loc).unwrap_or_default());
        self.launch(region.call()?)?;
        self.builder.at(here);
        Ok(is_written)
    }
}

/// Shortest contiguous row that is worth vector stores.
const FEWEST: i64 = 16;

/// Is the view written as fast as memory of its own: long contiguous rows, or a single element?
pub(super) fn has_long_rows(window: &View) -> bool {
    let mut axes = window.shape.iter().zip(&window.strides).filter(|(d, _)| **d != Dim::one());
    axes.next_back().is_none_or(|(d, stride)| *stride == Dim::one() && d.as_const().is_none_or(|n| n >= FEWEST))
}

impl Stacked {
    fn call(&self) -> Result<Call, String> {
        map::map_over("map", &self.body, &self.operands, &self.outs)
    }

    /// Adds `window` as another output, in the shape of the others, if its memory is disjoint from
    /// all other operands and outputs.
    fn as_output(&self, window: &View) -> Option<View> {
        let mut known = self.operands.iter().filter_map(Operand::view).chain(&self.outs);
        let fits = self.operands.len() + self.outs.len() < MAX_BUFFERS && known.all(|v| v.root != window.root);
        let out = self.outs.last().filter(|out| fits && out.elem == window.elem)?;
        window.reshape(&out.shape)
    }

    /// Duplicates the last result.
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

impl HeldRegion {
    fn alone(&self) -> Result<Call, String> {
        let operands: Vec<Operand> = self.operands.iter().map(|(_, o)| o.clone()).collect();
        map::map_over("map", &self.body, &operands, std::slice::from_ref(&self.to))
    }

    /// May the next region be computed element by element with this one? Any element that either
    /// reads from a slot they write must be the element being written. `are_apart`: they are known
    /// to write different elements.
    fn can_go_with(&self, next: &[(Value, Operand)], to: &View, are_apart: bool) -> bool {
        let views = |list: &[(Value, Operand)]| -> Vec<View> {
            list.iter().filter(|(v, _)| *v != self.v).filter_map(|(_, o)| o.view().cloned()).collect()
        };
        let (own, next) = (views(&self.operands), views(next));
        (are_apart || self.to.root != to.root)
            && next.iter().all(|v| v.root != self.to.root)
            && own.iter().chain(&next).all(|v| v.root != to.root || v == to)
    }

    /// The combined region and its operands.
    fn with(&self, next: &Function, operands: &[(Value, Operand)]) -> Result<(Function, Vec<Operand>), String> {
        let mut body = Function::new("");
        let entry = body.entry();
        let (mut read, mut results) = (Vec::new(), Vec::new());
        // Values of the function that have a counterpart in the new region.
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
