//! Timeline of a block: activity of warps, copies in flight, tensor cores, shared memory. Recorded
//! by `timing`.

use std::collections::{BTreeMap, BTreeSet};

use crate::ptx::Op;
use crate::ptx::words::Space;

/// Activity of a warp: work, or the reason for waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// Integers, floats, branches.
    Arithmetic,
    /// Powers, logarithms, roots: the special function units.
    Function,
    /// Loads and stores of global memory, and waiting for loads.
    Global,
    /// Loads and stores of shared memory.
    Shared,
    /// Issuing asynchronous copies.
    Copy,
    /// Matmuls: issuing them, and waiting for a tensor core or for a result of `mma.sync`.
    Product,
    /// Waiting at a barrier of the block or the cluster.
    Barrier,
    /// Waiting for a phase of an mbarrier.
    Mbarrier,
    /// Waiting for groups of copies.
    CopyWait,
    /// Waiting for groups of `wgmma`.
    ProductWait,
}

impl Activity {
    /// All activities, in the order of legends.
    pub const ALL: [Activity; 10] = [
        Activity::Arithmetic,
        Activity::Function,
        Activity::Global,
        Activity::Shared,
        Activity::Copy,
        Activity::Product,
        Activity::Barrier,
        Activity::Mbarrier,
        Activity::CopyWait,
        Activity::ProductWait,
    ];

    /// Text for legends.
    pub const fn name(self) -> &'static str {
        match self {
            Activity::Arithmetic => "arithmetic, branches",
            Activity::Function => "exp, log, roots",
            Activity::Global => "global memory",
            Activity::Shared => "shared memory",
            Activity::Copy => "issues copies",
            Activity::Product => "matrix products",
            Activity::Barrier => "waits at a barrier",
            Activity::Mbarrier => "waits at an mbarrier",
            Activity::CopyWait => "waits for copies",
            Activity::ProductWait => "waits for products",
        }
    }

    /// A letter; waits have lower-case ones.
    pub const fn letter(self) -> char {
        match self {
            Activity::Arithmetic => 'A',
            Activity::Function => 'F',
            Activity::Global => 'G',
            Activity::Shared => 'S',
            Activity::Copy => 'C',
            Activity::Product => 'P',
            Activity::Barrier => 'b',
            Activity::Mbarrier => 'm',
            Activity::CopyWait => 'c',
            Activity::ProductWait => 'p',
        }
    }

    /// Is it a wait?
    pub const fn is_wait(self) -> bool {
        matches!(self, Activity::Barrier | Activity::Mbarrier | Activity::CopyWait | Activity::ProductWait)
    }

    /// The activity of an instruction.
    pub(super) fn from_op(op: Op) -> Activity {
        match op {
            Op::Ld { .. } | Op::LdReadOnly { .. } | Op::St { .. } => Activity::Global,
            Op::LdShared { .. } | Op::StShared { .. } | Op::LdMatrix { .. } | Op::StMatrix { .. } => Activity::Shared,
            Op::LdOrdered { space, .. }
            | Op::StOrdered { space, .. }
            | Op::Atom { space, .. }
            | Op::Red { space, .. }
            | Op::Cas { space, .. } => {
                if space == Space::Shared {
                    Activity::Shared
                } else {
                    Activity::Global
                }
            }
            Op::CpAsync { .. }
            | Op::CpAsyncGlobal { .. }
            | Op::CpCommit {}
            | Op::BoxLoad { .. }
            | Op::BoxStore { .. }
            | Op::BoxAdd { .. }
            | Op::BulkLoad {}
            | Op::BulkStore {}
            | Op::BulkCommit {} => Activity::Copy,
            Op::CpWait {} | Op::CpWaitAll {} | Op::BulkWait { .. } => Activity::CopyWait,
            Op::Mma { .. } | Op::Wgmma { .. } | Op::WgmmaRegisters { .. } | Op::WgmmaFence {} | Op::WgmmaCommit {} => {
                Activity::Product
            }
            Op::WgmmaWait {} => Activity::ProductWait,
            Op::BarSync {}
            | Op::BarArrive {}
            | Op::BarAny {}
            | Op::BarWarp {}
            | Op::ClusterArrive {}
            | Op::ClusterWait {} => Activity::Barrier,
            Op::BarrierTryWait {} | Op::BarrierTestWait {} => Activity::Mbarrier,
            Op::RcpApprox { .. }
            | Op::SqrtApprox { .. }
            | Op::RsqrtApprox { .. }
            | Op::SinApprox { .. }
            | Op::CosApprox { .. }
            | Op::Lg2Approx { .. }
            | Op::Ex2Approx { .. }
            | Op::TanhApprox { .. } => Activity::Function,
            _ => Activity::Arithmetic,
        }
    }
}

/// A half-open interval of cycles.
pub type Interval = (u64, u64);

/// A time span of one activity of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First cycle.
    pub from: u64,
    /// One past the last cycle.
    pub to: u64,
    /// Activity of the warp.
    pub what: Activity,
}

/// A copy in flight from global to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// From the issue to the arrival.
    pub time: Interval,
    /// Size of the copy.
    pub bytes: u32,
}

/// A part of shared memory with uniform use: a stage of a ring, or the memory in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Byte range, half-open.
    pub bytes: (usize, usize),
    /// Times at which asynchronous copies fill it.
    pub fills: Vec<Interval>,
    /// Times at which it holds live data: from a write to the last read before the next write.
    pub holds: Vec<Interval>,
}

/// Timeline of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Name of the kernel.
    pub kernel: String,
    /// The processor of `.target`.
    pub target: String,
    /// Coordinates of the block in the grid.
    pub block: [u32; 3],
    /// Extents of the grid.
    pub grid: [u32; 3],
    /// Lifetime of the block, in cycles since the start of the launch.
    pub time: Interval,
    /// Bytes of its shared memory.
    pub shared_bytes: usize,
    /// For each warp its spans, without gaps.
    pub warps: Vec<Vec<Span>>,
    /// For each of the four tensor cores the busy intervals.
    pub tensor: [Vec<Interval>; 4],
    /// Copies to shared memory.
    pub flights: Vec<Flight>,
    /// Stages of shared memory, by address; unused parts are omitted.
    pub stages: Vec<Stage>,
}

impl Timeline {
    /// Cycles from the start of the block to its end.
    pub fn cycles(&self) -> u64 {
        self.time.1 - self.time.0
    }

    /// Average utilisation of the tensor cores, 0 to 1.
    pub fn tensor_share(&self) -> f64 {
        let busy: u64 = self.tensor.iter().flatten().map(|(from, to)| to - from).sum();
        busy as f64 / (4 * self.cycles()).max(1) as f64
    }

    /// Peak number of shared memory bytes that hold data or are being filled.
    pub fn most_used(&self) -> usize {
        let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
        for stage in &self.stages {
            let bytes = (stage.bytes.1 - stage.bytes.0) as i64;
            for (from, to) in united(stage.fills.iter().chain(&stage.holds).copied().collect()) {
                *changes.entry(from).or_default() += bytes;
                *changes.entry(to).or_default() -= bytes;
            }
        }
        let (mut most, mut now) = (0, 0);
        for change in changes.values() {
            now += change;
            most = most.max(now);
        }
        most as usize
    }
}

/// Sorts and merges intervals.
pub(super) fn united(mut all: Vec<Interval>) -> Vec<Interval> {
    all.sort_unstable();
    let mut out: Vec<Interval> = Vec::new();
    for (from, to) in all.into_iter().filter(|(from, to)| from < to) {
        match out.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

/// A recorded copy into shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// Id of its copy group, or of a phase of an mbarrier.
    pub(super) of: (u32, u32),
    pub(super) time: Interval,
}

/// Accesses of threads and `wgmma` to shared memory, by parts of equal size.
#[derive(Default)]
pub(super) struct Watch {
    pub(super) now: u64,
    /// For each part: cycle of an access, is it a write?
    pub(super) parts: Vec<Vec<(u64, bool)>>,
}

/// Bytes of a part.
pub(super) const PART: usize = 64;

impl Watch {
    pub(super) fn note(&mut self, at: usize, n: usize, write: bool) {
        for part in at / PART..(at + n).div_ceil(PART) {
            if self.parts.len() <= part {
                self.parts.resize(part + 1, Vec::new());
            }
            let Some(list) = self.parts.get_mut(part) else { continue };
            if list.last() != Some(&(self.now, write)) {
                list.push((self.now, write));
            }
        }
    }
}

/// Computes the stages of shared memory from recorded accesses.
pub(super) fn stages(watch: &Watch, fills: &[Fill], bytes: usize) -> Vec<Stage> {
    let count = bytes.div_ceil(PART);
    // Merge copies that are waited for together, from the first issue to the last arrival; then
    // collect the copies into each part.
    let mut times: BTreeMap<(u32, u32), Interval> = BTreeMap::new();
    let mut filled: Vec<BTreeSet<(u32, u32)>> = vec![BTreeSet::new(); count];
    for fill in fills {
        let time = times.entry(fill.of).or_insert(fill.time);
        *time = (time.0.min(fill.time.0), time.1.max(fill.time.1));
        for part in fill.at / PART..(fill.at + fill.bytes).div_ceil(PART) {
            if let Some(filled) = filled.get_mut(part) {
                filled.insert(fill.of);
            }
        }
    }
    let mut out: Vec<Stage> = Vec::new();
    let mut last: Option<(usize, BTreeSet<(u32, u32)>)> = None;
    for (part, of) in filled.into_iter().enumerate() {
        let accesses = watch.parts.get(part).map_or(&[][..], Vec::as_slice);
        if of.is_empty() && accesses.is_empty() {
            continue;
        }
        let fills: Vec<Interval> = of.iter().filter_map(|of| times.get(of).copied()).collect();
        let holds = held(accesses, fills.iter());
        let end = ((part + 1) * PART).min(bytes);
        let joins = last.as_ref().is_some_and(|(before, keys)| before + 1 == part && *keys == of);
        match out.last_mut() {
            Some(stage) if joins => {
                stage.bytes.1 = end;
                stage.fills.extend(fills);
                stage.holds.extend(holds);
            }
            _ => out.push(Stage { bytes: (part * PART, end), fills, holds }),
        }
        last = Some((part, of));
    }
    for stage in &mut out {
        stage.fills = united(std::mem::take(&mut stage.fills));
        stage.holds = united(std::mem::take(&mut stage.holds));
    }
    out
}

/// Intervals in which a part holds live data: from a write to the last read before another write.
/// Copies always bring new data.
fn held<'f>(accesses: &[(u64, bool)], fills: impl Iterator<Item = &'f Interval>) -> Vec<Interval> {
    // Reads precede arrivals of the same cycle: they read the old data.
    let arrivals = fills.map(|(_, to)| (*to, true, true));
    let mut all: Vec<(u64, bool, bool)> =
        accesses.iter().map(|(at, write)| (*at, *write, false)).chain(arrivals).collect();
    all.sort_unstable();
    let mut out: Vec<Interval> = Vec::new();
    let mut was_read = true;
    for (at, write, arrives) in all {
        match out.last_mut() {
            Some(last) if !(write && (was_read || arrives)) => last.1 = at + 1,
            _ => out.push((at, at + 1)),
        }
        was_read = !write;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_holds_data_from_a_write_to_its_last_read() {
        let accesses = [(5, true), (6, true), (10, false), (20, false), (31, true), (40, false)];
        assert_eq!(held(&accesses, [].iter()), [(5, 21), (31, 41)]);
        // An arriving copy is a write; data that is never read is held for one cycle.
        assert_eq!(held(&[(10, false)], [(0, 8), (11, 15)].iter()), [(8, 11), (15, 16)]);
    }

    #[test]
    fn parts_that_the_same_copies_fill_are_a_stage() {
        let fill = |at, of, time| Fill { at, bytes: 256, of: (0, of), time };
        let fills = [fill(0, 1, (0, 10)), fill(256, 2, (1, 12)), fill(0, 3, (20, 30))];
        let mut watch = Watch::default();
        for (now, at) in [(15, 0), (16, 192), (18, 256), (35, 64)] {
            watch.now = now;
            watch.note(at, 64, false);
        }
        watch.note(1024, 4, true);
        let stages = stages(&watch, &fills, 2048);
        let shown: Vec<_> = stages.iter().map(|s| (s.bytes, s.fills.len())).collect();
        assert_eq!(shown, [((0, 256), 2), ((256, 512), 1), ((1024, 1088), 0)]);
        assert_eq!(stages[0].holds, [(10, 17), (30, 36)]);
        assert_eq!(stages[1].holds, [(12, 19)]);
    }
}
