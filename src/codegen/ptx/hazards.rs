//! Where the threads of a block must meet: before an operation that reads what other threads wrote since they last met, or that
//! overwrites what others read or wrote.
//!
//! In: a kernel that works in runs, and whether each warp has rows of its own. Out: for each operation between runs, whether a barrier stands
//! before it, and who meets there. What it must not know: which thread does what; every element may be anyone's, or any of the row's warp.
//!
//! Where warps have rows of their own, a row is one warp's in every tile. But rows of two tiles that share bytes lie elsewhere, unless both
//! tiles begin at the same place and have the same pitch: there the warps meet.
//!
//! The state of a point is what was read and written since the last barrier, on some way to it: a forward data-flow analysis. A
//! block starts with what its predecessors end with. Where barriers stand depends on the states, so these only grow until nothing
//! changes; then every state covers what its predecessors leave behind.

use std::collections::{BTreeMap, BTreeSet};

use crate::tile::{Block, Body, Inst, Kernel, Op, ParamMode, Space, TileType, Value};

/// Who meets at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meeting {
    /// The threads of a warp, which has rows of its own.
    Warp,
    /// All threads of the block.
    Block,
}

/// Memory that is accessed: bytes of shared memory and how many of them a row has, or a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Shared { start: u64, end: u64, pitch: u64 },
    Buffer(Value),
}

impl Place {
    /// Where a tile in shared memory lies.
    pub(super) fn of(t: &TileType) -> Option<Place> {
        let Space::L1(offset, _) = t.space else { return None };
        let (start, rows) = (u64::from(offset), t.rows.capacity().max(0).unsigned_abs());
        let pitch = u64::from(t.pitch());
        Some(Place::Shared { start, end: start + pitch * rows, pitch })
    }

    fn meets(self, other: Place) -> bool {
        match (self, other) {
            (Place::Shared { start: a, end: b, .. }, Place::Shared { start: c, end: d, .. }) => a < d && c < b,
            (Place::Buffer(a), Place::Buffer(b)) => a == b,
            (Place::Shared { .. }, Place::Buffer(_)) | (Place::Buffer(_), Place::Shared { .. }) => false,
        }
    }

    /// Who must meet between accesses to two places, if anyone must.
    pub(super) fn meeting(self, other: Place, rows_by_warp: bool) -> Option<Meeting> {
        let who = if rows_by_warp && self == other { Meeting::Warp } else { Meeting::Block };
        self.meets(other).then_some(who)
    }
}

/// What was accessed since the last barrier.
#[derive(Clone, Debug, Default, PartialEq)]
struct Accesses {
    reads: BTreeSet<Place>,
    writes: BTreeSet<Place>,
}

impl Accesses {
    /// Who must meet between these and those?
    fn conflict(&self, next: &Accesses, rows_by_warp: bool) -> Option<Meeting> {
        let most = |a: &BTreeSet<Place>, b: &BTreeSet<Place>| {
            a.iter().flat_map(|x| b.iter().filter_map(|y| x.meeting(*y, rows_by_warp))).max()
        };
        let pairs = [(&self.writes, &next.reads), (&self.writes, &next.writes), (&self.reads, &next.writes)];
        pairs.into_iter().filter_map(|(a, b)| most(a, b)).max()
    }

    fn add(&mut self, other: &Accesses) {
        self.reads.extend(&other.reads);
        self.writes.extend(&other.writes);
    }
}

/// What was accessed at a point.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pending {
    /// Since the block met.
    block: Accesses,
    /// Since the threads of the warp met.
    warp: Accesses,
}

impl Pending {
    fn add(&mut self, other: &Pending) {
        self.block.add(&other.block);
        self.warp.add(&other.warp);
    }
}

/// Where barriers stand in a kernel.
pub(super) struct Hazards {
    rows_by_warp: bool,
    effects: BTreeMap<Inst, Accesses>,
    starts: BTreeMap<Block, Pending>,
    now: Pending,
}

impl Hazards {
    /// Finds out what each operation accesses, and what is pending at the beginning of each block.
    pub(super) fn of(kernel: &Kernel, rows_by_warp: bool) -> Hazards {
        let body = &kernel.body;
        let written: BTreeSet<Value> =
            kernel.params.iter().filter(|p| p.mode != ParamMode::In).map(|p| p.value).collect();
        let mut effects = BTreeMap::new();
        for block in &body.layout {
            for inst in &body.block(*block).insts {
                effects.insert(*inst, accesses(body, *inst, &written));
            }
        }
        let mut hazards = Hazards { rows_by_warp, effects, starts: BTreeMap::new(), now: Pending::default() };
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

    /// Goes past an operation: who meets before it?
    pub(super) fn before(&mut self, inst: Inst) -> Option<Meeting> {
        let own = self.effects.get(&inst)?;
        // What a warp alone met for still counts for the block.
        let block = self.now.block.conflict(own, self.rows_by_warp).filter(|who| *who == Meeting::Block);
        let who = block.or(self.now.warp.conflict(own, self.rows_by_warp));
        match who {
            Some(Meeting::Block) => self.now = Pending::default(),
            Some(Meeting::Warp) => self.now.warp = Accesses::default(),
            None => {}
        }
        self.now.block.add(own);
        self.now.warp.add(own);
        who
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
    body.ty(v).tile().and_then(Place::of)
}
