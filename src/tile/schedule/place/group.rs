//! Groups the operations of a block into loop nests.
//!
//! In: a block, and the operations that each run duplicates. Out: its events in order: single
//! operations and runs. It must not know where tiles live.

use std::collections::BTreeMap;

use super::super::runs::{Event, Shape, run_shape, tile};
use super::Scheduler;
use crate::tile::{Block, Extent, Inst, Op, Value, ValueDef};

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
    pub(super) fn group(&mut self, block: Block) -> Result<(), String> {
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
