//! Barrier placement: before an operation that reads memory written by other threads since the last
//! barrier, or overwrites memory that they accessed.
//!
//! In: a kernel with runs, and whether each warp owns its rows. Out: for each operation at block
//! level, whether a barrier precedes it, and its scope. Must not know: the mapping of elements to
//! threads; an element may belong to any thread, or to any thread of the row's warp.
//!
//! If warps own rows, a row belongs to one warp in every tile. But in two overlapping tiles, rows
//! are at different addresses unless both tiles have the same start and pitch; otherwise the block
//! needs a barrier.
//!
//! The state of a point is the set of accesses since the last barrier, on some path to it: a
//! forward data-flow analysis. A block starts with the union of its predecessors' states. Barriers
//! depend on the states, so states only grow until a fixed point is reached; then every state
//! covers its predecessors' states.

use std::collections::{BTreeMap, BTreeSet};

use crate::tile::{Block, Body, Inst, Kernel, Op, ParamMode, Space, TileType, Value};

/// Scope of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meeting {
    /// The threads of a warp, which owns its rows.
    Warp,
    /// All threads of the block.
    Block,
}

/// Accessed memory: a byte range of shared memory with its row pitch, or a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MemoryRange {
    Shared { start: u64, end: u64, pitch: u64 },
    Buffer(Value),
}

impl MemoryRange {
    /// The memory of a tile, if it is in shared memory.
    pub(super) fn from_tile(t: &TileType) -> Option<MemoryRange> {
        let Space::L1(offset, _) = t.space else { return None };
        let (start, rows) = (u64::from(offset), t.rows.capacity().max(0).unsigned_abs());
        let pitch = u64::from(t.pitch());
        Some(MemoryRange::Shared { start, end: start + pitch * rows, pitch })
    }

    fn meets(self, other: MemoryRange) -> bool {
        match (self, other) {
            (MemoryRange::Shared { start: a, end: b, .. }, MemoryRange::Shared { start: c, end: d, .. }) => {
                a < d && c < b
            }
            (MemoryRange::Buffer(a), MemoryRange::Buffer(b)) => a == b,
            (MemoryRange::Shared { .. }, MemoryRange::Buffer(_))
            | (MemoryRange::Buffer(_), MemoryRange::Shared { .. }) => false,
        }
    }

    /// The barrier needed between conflicting accesses to two ranges, if any.
    pub(super) fn meeting(self, other: MemoryRange, rows_by_warp: bool) -> Option<Meeting> {
        let who = if rows_by_warp && self == other { Meeting::Warp } else { Meeting::Block };
        self.meets(other).then_some(who)
    }
}

/// Accesses since the last barrier.
#[derive(Clone, Debug, Default, PartialEq)]
struct Accesses {
    reads: BTreeSet<MemoryRange>,
    writes: BTreeSet<MemoryRange>,
}

impl Accesses {
    /// The barrier needed between two sets of accesses, if any.
    fn conflict(&self, next: &Accesses, rows_by_warp: bool) -> Option<Meeting> {
        let most = |a: &BTreeSet<MemoryRange>, b: &BTreeSet<MemoryRange>| {
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

/// State at a point.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pending {
    /// Since the last barrier of the block.
    block: Accesses,
    /// Since the last barrier of the warp.
    warp: Accesses,
}

impl Pending {
    fn add(&mut self, other: &Pending) {
        self.block.add(&other.block);
        self.warp.add(&other.warp);
    }
}

/// Barriers of a kernel.
pub(super) struct Hazards {
    rows_by_warp: bool,
    effects: BTreeMap<Inst, Accesses>,
    starts: BTreeMap<Block, Pending>,
    now: Pending,
}

impl Hazards {
    /// Computes the accesses of each operation, and the state at the start of each block.
    pub(super) fn analyse(kernel: &Kernel, rows_by_warp: bool) -> Hazards {
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

    /// Moves to the start of a block.
    pub(super) fn start(&mut self, block: Block) {
        self.now = self.starts.get(&block).cloned().unwrap_or_default();
    }

    /// Moves past an operation; returns the barrier needed before it, if any.
    pub(super) fn before(&mut self, inst: Inst) -> Option<Meeting> {
        let own = self.effects.get(&inst)?;
        // A warp barrier does not order accesses for the rest of the block.
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

/// Accesses of an operation at block level; for a run, the tiles that it reads from and leaves in
/// shared memory.
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
            // A matmul reads its windows.
            let window = body.def_inst(*v).filter(|d| matches!(d.op, Op::Window { .. }));
            out.reads.extend(
                window
                    .and_then(|d| d.operands.first())
                    .filter(|b| written.contains(b))
                    .map(|b| MemoryRange::Buffer(*b)),
            );
        }
        let buffer = data.operands.first().filter(|b| written.contains(b)).map(|b| MemoryRange::Buffer(*b));
        match data.op {
            Op::Load { .. } | Op::LoadScalar => out.reads.extend(buffer),
            Op::Store { .. } => out.writes.extend(buffer),
            _ => {}
        }
    }
    out
}

/// The bytes of a tile in shared memory, if it is there.
fn shared(body: &Body, v: Value) -> Option<MemoryRange> {
    body.ty(v).tile().and_then(MemoryRange::from_tile)
}
