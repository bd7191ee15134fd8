//! Asynchronous operations in flight at each point of a GPU kernel, along every path: a forward
//! data-flow analysis.
//!
//! The state of a point consists of the groups of asynchronous operations in flight, in order, the
//! slots and pending tiles still to be used, the shared memory tiles that must no longer be read,
//! and the registers not yet visible to `wgmma`. A block starts in the same state on every path to
//! it; a jump transfers the states of its operands to the block's arguments.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Sink;
use crate::tile::text::ErrorLocation;
use crate::tile::{Block, BlockCall, Body, GpuOp, Inst, InstData, Op, Queue, Space, Terminator, Type, Value};

#[derive(Clone, Default, PartialEq)]
struct State {
    /// Groups of copies in flight, oldest first.
    copies: Vec<Value>,
    /// Groups of matmuls in flight, oldest first.
    products: Vec<Value>,
    /// Slots, pending tiles and groups that are defined but not used.
    open: BTreeSet<Value>,
    /// Slots that belong to a ring.
    of_rings: BTreeSet<Value>,
    /// Tiles of rings that are not released.
    held: BTreeSet<Value>,
    /// Slots whose tiles some threads may still be reading.
    dirty: BTreeSet<Value>,
    /// Released tiles.
    gone: BTreeSet<Value>,
    /// Fragments written since the last fence.
    unseen: BTreeSet<Value>,
    /// Operands of matmuls in flight, by pending tile or group.
    reads: BTreeMap<Value, BTreeSet<Value>>,
}

/// Checks every path.
pub(super) fn check(body: &Body, sink: &mut Sink) {
    let mut begin: BTreeMap<Block, State> = BTreeMap::new();
    let mut work = vec![(body.entry(), State::default())];
    let mut wrong: BTreeSet<String> = BTreeSet::new();
    let mut rounds = 0;
    while let Some((block, state)) = work.pop() {
        rounds += 1;
        if rounds > 100_000 {
            sink.error(ErrorLocation::Head, "the paths of the kernel are too many to follow");
            return;
        }
        let known = begin.get(&block).cloned();
        let state = match &known {
            None => state,
            Some(known) => match known.join(&state) {
                Ok(s) if s == *known => continue,
                Ok(s) => s,
                Err(what) => {
                    if wrong.insert(format!("{block}{what}")) {
                        sink.error(
                            ErrorLocation::Block(block),
                            format!("{what} on one way to this block and not on another"),
                        );
                    }
                    continue;
                }
            },
        };
        begin.insert(block, state.clone());
        let mut s = state;
        let data = body.block(block);
        for i in &data.insts {
            if let Err(e) = s.step(body, *i) {
                if wrong.insert(format!("{i}{e}")) {
                    sink.error(ErrorLocation::Inst(*i), format!("{}: {e}", body.inst(*i).op.info().name));
                }
                return;
            }
        }
        if matches!(data.terminator, Terminator::Return(_))
            && let Err(e) = s.end(body)
        {
            if wrong.insert(format!("{block}{e}")) {
                sink.error(ErrorLocation::Terminator(block), e);
            }
            continue;
        }
        for call in data.terminator.targets() {
            match s.jump(body, call) {
                Ok(next) => work.push((call.block, next)),
                Err(e) => {
                    if wrong.insert(format!("{block}{e}")) {
                        sink.error(ErrorLocation::Terminator(block), e);
                    }
                }
            }
        }
    }
}

fn is_fragment(body: &Body, v: Value) -> bool {
    body.ty(v).tile().is_some_and(|t| matches!(t.space, Space::Fragment(_)))
}

fn is_shared(body: &Body, v: Value) -> bool {
    body.ty(v).tile().is_some_and(|t| matches!(t.space, Space::Shared { .. }))
}

impl State {
    /// The state of a block that is reached in either state.
    fn join(&self, o: &State) -> Result<State, &'static str> {
        if self.copies != o.copies || self.products != o.products {
            return Err("a group is under way");
        }
        if self.held != o.held {
            return Err("a tile of a ring is held");
        }
        let must = |s: &State| s.open.clone();
        if must(self) != must(o) {
            return Err("a slot or a pending tile is left");
        }
        let mut out = self.clone();
        out.of_rings.extend(&o.of_rings);
        out.dirty.extend(&o.dirty);
        out.gone.extend(&o.gone);
        out.unseen.extend(&o.unseen);
        for (k, v) in &o.reads {
            out.reads.entry(*k).or_default().extend(v);
        }
        Ok(out)
    }

    /// Consumes a slot, pending tile or group.
    fn take(&mut self, v: Value) -> Result<(), String> {
        if self.open.remove(&v) { Ok(()) } else { Err(format!("{v} was used already")) }
    }

    /// The groups in flight in a queue.
    fn queue(&mut self, q: Queue) -> &mut Vec<Value> {
        match q {
            Queue::Copy => &mut self.copies,
            Queue::Mma => &mut self.products,
        }
    }

    fn step(&mut self, body: &Body, i: Inst) -> Result<(), String> {
        let data = body.inst(i);
        for v in &data.operands {
            if is_shared(body, *v) && self.gone.contains(v) {
                return Err(format!("{v} was released and is read"));
            }
        }
        if let Op::Gpu(op) = &data.op {
            self.gpu(body, data, op)?;
        } else {
            self.unseen.extend(data.result.filter(|v| is_fragment(body, *v)));
        }
        // A block that runs again recomputes its values.
        if let Some(v) = data.result {
            self.gone.remove(&v);
        }
        Ok(())
    }

    fn gpu(&mut self, body: &Body, data: &InstData, op: &GpuOp) -> Result<(), String> {
        let operand = |n: usize| data.operands.get(n).copied().ok_or_else(|| "an operand is missing".to_string());
        match op {
            GpuOp::SharedSlot { .. } => self.open.extend(data.result),
            GpuOp::RingAcquire => {
                self.open.extend(data.result);
                self.of_rings.extend(data.result);
            }
            GpuOp::CopyAsync { .. } => {
                let slot = operand(0)?;
                self.take(slot)?;
                if self.of_rings.contains(&slot) {
                    return Err(format!("{slot} is of a ring, which `tma_load` fills"));
                }
                if self.dirty.remove(&slot) {
                    return Err(format!("{slot} may still be read: the block has not met since its release"));
                }
                self.open.extend(data.result);
            }
            GpuOp::TmaLoad { .. } => {
                let slot = operand(0)?;
                self.take(slot)?;
                if !self.of_rings.contains(&slot) {
                    return Err(format!("{slot} is of no ring"));
                }
            }
            GpuOp::Commit => {
                let pending = operand(0)?;
                self.take(pending)?;
                let reads = self.reads.remove(&pending);
                if let Some(group) = data.result {
                    self.open.insert(group);
                    if let Some(r) = reads {
                        self.reads.insert(group, r);
                    }
                    if let Type::Group(q, _) = body.ty(group) {
                        self.queue(*q).push(group);
                    }
                }
            }
            GpuOp::Wait { pending } => {
                let group = operand(0)?;
                self.take(group)?;
                let Type::Group(q, _) = body.ty(group) else { return Err("waits for no group".into()) };
                let queue = self.queue(*q);
                let later = queue.len().saturating_sub(1);
                if queue.first() != Some(&group) {
                    return Err(format!("{group} is not the oldest group that is under way"));
                }
                if later != *pending as usize {
                    return Err(format!("{later} later groups are under way, not {pending}"));
                }
                queue.remove(0);
                self.reads.remove(&group);
                if *q == Queue::Copy {
                    self.dirty.clear();
                }
            }
            GpuOp::Barrier => self.dirty.clear(),
            GpuOp::Release => {
                let tile = operand(0)?;
                self.not_read(tile)?;
                self.gone.insert(tile);
                self.open.extend(data.result);
                self.dirty.extend(data.result);
            }
            GpuOp::RingWait => self.held.extend(data.result),
            GpuOp::RingRelease => {
                let tile = operand(1)?;
                self.not_read(tile)?;
                self.gone.insert(tile);
                if !self.held.remove(&tile) {
                    return Err(format!("{tile} was released already"));
                }
            }
            GpuOp::WgmmaFence => self.unseen.clear(),
            GpuOp::Wgmma { .. } => {
                let mut reads: BTreeSet<Value> = BTreeSet::new();
                for n in 0..2 {
                    let v = operand(n)?;
                    if is_shared(body, v) {
                        reads.insert(v);
                    } else if self.unseen.contains(&v) {
                        return Err(format!("{v} was written since the last `wgmma_fence`"));
                    }
                }
                let acc = operand(2)?;
                if body.ty(acc).is_linear() {
                    self.take(acc)?;
                    reads.extend(self.reads.remove(&acc).unwrap_or_default());
                } else if self.unseen.contains(&acc) {
                    return Err(format!("{acc} was written since the last `wgmma_fence`"));
                }
                if let Some(v) = data.result {
                    self.open.insert(v);
                    self.reads.insert(v, reads);
                }
            }
            // These have no part in the protocols, but `wgmma` must not read fragments they write
            // without a fence.
            GpuOp::LoadFragment
            | GpuOp::Pack
            | GpuOp::Mma
            | GpuOp::MmaScaled { .. }
            | GpuOp::ConvertLayout
            | GpuOp::Ring { .. }
            | GpuOp::Blocks
            | GpuOp::NamedBarrier { .. }
            | GpuOp::GridBarrier => self.unseen.extend(data.result.filter(|v| is_fragment(body, *v))),
        }
        Ok(())
    }

    /// No matmul in flight may read the tile.
    fn not_read(&self, tile: Value) -> Result<(), String> {
        if self.reads.values().any(|r| r.contains(&tile)) {
            return Err(format!("a product that is under way reads {tile}"));
        }
        Ok(())
    }

    /// At a return nothing may be in flight.
    fn end(&self, body: &Body) -> Result<(), String> {
        if let Some(v) = self.open.iter().find(|v| !matches!(body.ty(**v), Type::Slot(_))) {
            return Err(format!("{v} is never waited for"));
        }
        if let Some(v) = self.held.iter().next() {
            return Err(format!("{v} is never released"));
        }
        Ok(())
    }

    /// The state at the target of a jump.
    fn jump(&self, body: &Body, call: &BlockCall) -> Result<State, String> {
        let args = &body.block(call.block).args;
        let mut out = self.clone();
        let mut renamed: BTreeMap<Value, Value> = BTreeMap::new();
        for (v, a) in call.args.iter().zip(args) {
            if body.ty(*v).is_linear() {
                out.take(*v)?;
                renamed.insert(*v, *a);
            }
            if is_shared(body, *v) && self.gone.contains(v) {
                return Err(format!("{v} was released and is handed over"));
            }
            if is_shared(body, *v) && self.held.contains(v) {
                return Err(format!("{v} is of a ring: it is released in the block that took it, or below"));
            }
        }
        let name = |v: &Value| renamed.get(v).copied().unwrap_or(*v);
        let names = |s: &BTreeSet<Value>| s.iter().map(name).collect::<BTreeSet<Value>>();
        out.copies = self.copies.iter().map(name).collect();
        out.products = self.products.iter().map(name).collect();
        out.of_rings = names(&self.of_rings);
        out.dirty = names(&out.dirty);
        out.reads = self.reads.iter().map(|(k, v)| (name(k), v.clone())).collect();
        for (v, a) in call.args.iter().zip(args) {
            if body.ty(*v).is_linear() {
                out.open.insert(*a);
            }
            out.gone.remove(a);
            if is_fragment(body, *v) && self.unseen.contains(v) {
                out.unseen.insert(*a);
            } else {
                out.unseen.remove(a);
            }
        }
        Ok(out)
    }
}
