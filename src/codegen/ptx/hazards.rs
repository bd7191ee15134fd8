//! Where the threads of a block must meet: before an operation that reads what other threads wrote since they last met, or that
//! overwrites what others read or wrote.
//!
//! In: a kernel that works in runs. Out: for each operation between runs, whether a barrier stands before it. What it must not know: which
//! thread does what; every element may be anyone's.
//!
//! The state of a point is what was read and written since the last barrier, on some way to it: a forward data-flow analysis. A
//! block starts with what its predecessors end with. Where barriers stand depends on the states, so these only grow until nothing
//! changes; then every state covers what its predecessors leave behind.

use std::collections::{BTreeMap, BTreeSet};

use crate::tile::{Block, Body, Inst, Kernel, Op, ParamMode, Space, Value};

/// Memory that is accessed: bytes of shared memory, or a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Shared(u64, u64),
    Buffer(Value),
}

impl Place {
    fn meets(self, other: Place) -> bool {
        match (self, other) {
            (Place::Shared(a, b), Place::Shared(c, d)) => a < d && c < b,
            (Place::Buffer(a), Place::Buffer(b)) => a == b,
            (Place::Shared(..), Place::Buffer(_)) | (Place::Buffer(_), Place::Shared(..)) => false,
        }
    }
}

/// What was accessed since the last barrier.
#[derive(Clone, Debug, Default, PartialEq)]
struct Accesses {
    reads: BTreeSet<Place>,
    writes: BTreeSet<Place>,
}

impl Accesses {
    /// Must a barrier stand between these and those?
    fn conflict(&self, next: &Accesses) -> bool {
        let any = |a: &BTreeSet<Place>, b: &BTreeSet<Place>| a.iter().any(|x| b.iter().any(|y| x.meets(*y)));
        any(&self.writes, &next.reads) || any(&self.writes, &next.writes) || any(&self.reads, &next.writes)
    }

    fn add(&mut self, other: &Accesses) {
        self.reads.extend(&other.reads);
        self.writes.extend(&other.writes);
    }
}

/// Where barriers stand in a kernel.
pub(super) struct Hazards {
    effects: BTreeMap<Inst, Accesses>,
    starts: BTreeMap<Block, Accesses>,
    now: Accesses,
}

impl Hazards {
    /// Finds out what each operation accesses, and what is pending at the beginning of each block.
    pub(super) fn of(kernel: &Kernel) -> Hazards {
        let body = &kernel.body;
        let written: BTreeSet<Value> =
            kernel.params.iter().filter(|p| p.mode != ParamMode::In).map(|p| p.value).collect();
        let mut effects = BTreeMap::new();
        for block in &body.layout {
            for inst in &body.block(*block).insts {
                effects.insert(*inst, accesses(body, *inst, &written));
            }
        }
        let mut hazards = Hazards { effects, starts: BTreeMap::new(), now: Accesses::default() };
        loop {
            let mut changed = false;
            for block in &body.layout {
                hazards.start(*block);
                for inst in &body.block(*block).insts {
                    hazards.before(*inst);
                }
                let end = hazards.now.clone();
                for target in body.block(*block).terminator.targets() {
                    let start = hazards.starts.entry(target.block).or_default();
                    let before = start.clone();
                    start.add(&end);
                    changed |= *start != before;
                }
            }
            if !changed {
                return hazards;
            }
        }
    }

    /// Goes to the beginning of a block.
    pub(super) fn start(&mut self, block: Block) {
        self.now = self.starts.get(&block).cloned().unwrap_or_default();
    }

    /// Goes past an operation: does a barrier stand before it?
    pub(super) fn before(&mut self, inst: Inst) -> bool {
        let Some(own) = self.effects.get(&inst) else { return false };
        let meets = self.now.conflict(own);
        if meets {
            self.now = Accesses::default();
        }
        self.now.add(own);
        meets
    }
}

/// What an operation between runs accesses: of a run, what was there before it and what it leaves behind.
fn accesses(body: &Body, inst: Inst, written: &BTreeSet<Value>) -> Accesses {
    let mut out = Accesses::default();
    let insts = match &body.inst(inst).op {
        Op::Run { insts, .. } => insts.as_slice(),
        _ => std::slice::from_ref(&inst),
    };
    let made: BTreeSet<Value> = insts.iter().filter_map(|i| body.inst(*i).result).collect();
    for i in insts {
        let data = body.inst(*i);
        out.writes.extend(data.result.and_then(|v| shared(body, v)));
        for v in data.operands.iter().filter(|v| !made.contains(v)) {
            out.reads.extend(shared(body, *v));
            // A product reads windows where they are used.
            let window = body.def_inst(*v).filter(|d| matches!(d.op, Op::Window { .. }));
            out.reads.extend(
                window.and_then(|d| d.operands.first()).filter(|b| written.contains(b)).map(|b| Place::Buffer(*b)),
            );
        }
        let buffer = data.operands.first().filter(|b| written.contains(b)).map(|b| Place::Buffer(*b));
        match data.op {
            Op::Load { .. } | Op::LoadScalar => out.reads.extend(buffer),
            Op::Store { .. } => out.writes.extend(buffer),
            _ => {}
        }
    }
    out
}

/// The bytes of a tile in shared memory, if it is there.
fn shared(body: &Body, v: Value) -> Option<Place> {
    let t = body.ty(v).tile()?;
    let Space::L1(offset) = t.space else { return None };
    let (start, rows) = (u64::from(offset), t.rows.capacity().max(0).unsigned_abs());
    Some(Place::Shared(start, start + u64::from(t.pitch()) * rows))
}
