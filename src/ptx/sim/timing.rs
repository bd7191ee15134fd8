//! Timing model of a launch: a simple model of a multiprocessor's issue order.
//!
//! The model shows a schedule, it does not predict its duration: which warps wait, which copies are
//! in flight meanwhile, how stages of shared memory follow each other. A block is alone on its
//! multiprocessor, and blocks run one after another (in a cooperative launch all at once). Each of
//! four schedulers has every fourth warp, and issues one instruction per cycle, round-robin among
//! warps whose operands are ready. Each has a tensor core and a special function unit, which
//! process one instruction at a time. Loads of global memory and copies share one port. Caches,
//! replays, and the limits of register files and of other units are not modelled.

use std::collections::VecDeque;

use super::code::{Arg, Code, Inst};
use super::lanes::lanes;
use super::report::{Report, Stats};
use super::state::{Block, Run, Warp};
use super::timeline::{Activity, Fill, Flight, Interval, Span, Timeline, Watch, stages, united};
use crate::ptx::operand::Role;
use crate::ptx::{Op, Target};

/// Latency of a global load in cycles.
const GLOBAL: u64 = 500;
/// Bytes per cycle of a multiprocessor's port to global memory.
const GLOBAL_RATE: u64 = 32;
/// Latency of a shared load in cycles.
const SHARED: u64 = 30;
/// Bytes per cycle of shared memory.
const SHARED_RATE: u64 = 128;
/// Latency of arithmetic in cycles.
const ARITHMETIC: u64 = 4;
/// Cycles of a special function unit for a warp: four units compute 16 per cycle.
const FUNCTION: u64 = 8;
/// Latency of a matmul result after the issue cycles.
const PRODUCT: u64 = 16;

/// 16-bit multiply-adds of a tensor core per cycle.
fn product_rate(target: Target) -> u64 {
    if target.sm >= 90 { 512 } else { 256 }
}

/// A scheduler, with its units.
#[derive(Clone, Copy, Default)]
struct Scheduler {
    /// The warp that issued last.
    last: usize,
    /// Cycles at which its units are free.
    tensor: u64,
    functions: u64,
}

/// Asynchronous work of a warp: completion times of the open group and of committed groups.
#[derive(Clone, Default)]
struct Groups {
    open: u64,
    closed: VecDeque<u64>,
}

impl Groups {
    fn add(&mut self, done: u64) {
        self.open = self.open.max(done);
    }

    fn commit(&mut self) {
        self.closed.push_back(std::mem::take(&mut self.open));
    }

    /// Cycle at which all but the last `most` groups are complete.
    fn done(&self, most: u64) -> u64 {
        let count = self.closed.len().saturating_sub(most as usize);
        self.closed.iter().take(count).copied().max().unwrap_or(0)
    }
}

/// Timing state of a warp.
#[derive(Clone)]
struct Clock {
    /// The cycle after its last instruction, and its activity.
    free: u64,
    last: Activity,
    /// For each register the cycle at which its value is ready, and the activity that produces it.
    ready: Vec<(u64, Activity)>,
    copies: Groups,
    stores: Groups,
    products: Groups,
}

/// Timing state of a block.
struct Clocks {
    number: u32,
    warps: Vec<Clock>,
    schedulers: [Scheduler; 4],
    shared: u64,
}

/// The record of the observed block.
struct Record {
    began: u64,
    at: [u32; 3],
    shared_bytes: usize,
    warps: Vec<Vec<Span>>,
    tensor: [Vec<Interval>; 4],
    flights: Vec<Flight>,
    fills: Vec<Fill>,
}

/// Timing state of a launch.
pub(super) struct Timing {
    now: u64,
    /// Cycle at which the port to global memory is free.
    port: u64,
    target: Target,
    /// For each instruction the registers that it reads, and that it writes.
    operands: Vec<(Vec<u32>, Vec<u32>)>,
    blocks: Vec<Clocks>,
    watched: u32,
    record: Option<Record>,
}

/// The registers that an instruction reads, and that it writes.
fn operands(inst: &Inst) -> (Vec<u32>, Vec<u32>) {
    let (mut uses, mut defs): (Vec<u32>, Vec<u32>) = (inst.guard.iter().map(|(r, _)| *r).collect(), Vec::new());
    for (slot, arg) in inst.op.slots().iter().zip(&inst.args) {
        let regs: Vec<u32> = match arg {
            Arg::Reg(r) | Arg::At(Some(r), _) => vec![*r],
            Arg::Regs(list) => list.to_vec(),
            Arg::Pair(a, b) => a.iter().chain(b).copied().collect(),
            Arg::Tensor(map, at) => at.iter().chain([map]).copied().collect(),
            Arg::Imm(_) | Arg::Special(_) | Arg::At(None, _) | Arg::Label(_) | Arg::Sink => Vec::new(),
        };
        match slot.role {
            Role::Use => uses.extend(regs),
            Role::Def => defs.extend(regs),
            // A `wgmma` accumulator belongs to the tensor core until the wait.
            Role::Both => {}
        }
    }
    (uses, defs)
}

/// Bytes of shared memory that `lanes` lanes access.
fn shared_bytes(op: Op, lanes: u32) -> u64 {
    u64::from(match op {
        Op::LdMatrix { count, .. } | Op::StMatrix { count, .. } => 128 * count.count(),
        Op::LdShared { vector, ty } | Op::StShared { vector, ty } => lanes * vector.count() * ty.bytes(),
        _ => 8 * lanes,
    })
}

/// Multiply-adds of an instruction, in 16-bit equivalents.
fn weight(op: Op) -> u64 {
    match op {
        Op::Mma { kind } => u64::from(16 * 8 * kind.shape().k * kind.shape().a.bits()) / 16,
        // The depth is 32 bytes for all types.
        Op::Wgmma { columns, .. } | Op::WgmmaRegisters { columns, .. } => 16 * u64::from(columns.0) * 16,
        _ => 0,
    }
}

impl Timing {
    pub(super) fn new(code: &Code, target: Target, watched: u32) -> Timing {
        let operands = code.insts.iter().map(operands).collect();
        Timing { now: 0, port: 0, target, operands, blocks: Vec::new(), watched, record: None }
    }

    /// Adds clocks for new blocks and removes clocks of retired ones.
    fn meet(&mut self, blocks: &mut [Option<Box<Block>>]) {
        self.blocks.retain(|c| blocks.iter().flatten().any(|b| b.number == c.number));
        for b in blocks.iter_mut().flatten() {
            if self.blocks.iter().any(|c| c.number == b.number) {
                continue;
            }
            let registers = b.warps.first().map_or(0, |w| w.preds.len());
            let clock = Clock {
                free: self.now,
                last: Activity::Arithmetic,
                ready: vec![(0, Activity::Arithmetic); registers],
                copies: Groups::default(),
                stores: Groups::default(),
                products: Groups::default(),
            };
            self.blocks.push(Clocks {
                number: b.number,
                warps: vec![clock; b.warps.len()],
                schedulers: [Scheduler { tensor: self.now, functions: self.now, last: 0 }; 4],
                shared: self.now,
            });
            if b.number == self.watched && self.record.is_none() {
                b.shared.shadow.watch = Some(Box::default());
                self.record = Some(Record {
                    began: self.now,
                    at: b.at,
                    shared_bytes: b.shared.bytes.len(),
                    warps: vec![Vec::new(); b.warps.len()],
                    tensor: Default::default(),
                    flights: Vec::new(),
                    fills: Vec::new(),
                });
            }
        }
    }

    /// The earliest cycle at which a warp can issue an instruction, and the reason for waiting.
    fn earliest(&self, block: usize, warp: usize, pc: u32, inst: &Inst) -> (u64, Activity) {
        let Some(clocks) = self.blocks.get(block) else { return (self.now, Activity::Arithmetic) };
        let (Some(clock), Some(scheduler)) = (clocks.warps.get(warp), clocks.schedulers.get(warp % 4)) else {
            return (self.now, Activity::Arithmetic);
        };
        let mut at = (clock.free, clock.last);
        let mut wait = |until: u64, why: Activity| {
            if until > at.0 {
                at = (until, why);
            }
        };
        let uses = self.operands.get(pc as usize).map_or(&[][..], |(uses, _)| uses);
        for r in uses {
            let (ready, made_by) = clock.ready.get(*r as usize).copied().unwrap_or((0, Activity::Arithmetic));
            wait(ready, made_by);
        }
        let number = match inst.args.first() {
            Some(Arg::Imm(n)) => *n,
            _ => 0,
        };
        match inst.op {
            Op::CpWait {} => wait(clock.copies.done(number), Activity::CopyWait),
            Op::CpWaitAll {} => wait(clock.copies.done(0).max(clock.copies.open), Activity::CopyWait),
            Op::BulkWait { .. } => wait(clock.stores.done(number), Activity::CopyWait),
            Op::WgmmaWait {} => wait(clock.products.done(number), Activity::ProductWait),
            Op::Mma { .. } => wait(scheduler.tensor, Activity::Product),
            _ if Activity::from_op(inst.op) == Activity::Function => wait(scheduler.functions, Activity::Function),
            _ => {}
        }
        at
    }

    /// Sends bytes through the port to global memory; returns when the last ones arrive.
    fn pass(&mut self, bytes: u64) -> u64 {
        self.port = self.port.max(self.now) + bytes.div_ceil(GLOBAL_RATE);
        self.port + GLOBAL
    }

    /// Records an issued instruction: `did` is the change of counts; since `from` it waited for
    /// `why`.
    fn issued(
        &mut self,
        block: usize,
        w: &Warp,
        (pc, inst, mask): (u32, &Inst, u32),
        why: (u64, Activity),
        did: &Stats,
    ) {
        let now = self.now;
        let warp = w.number as usize;
        let what = Activity::from_op(inst.op);
        let is_watched = self.blocks.get(block).is_some_and(|c| c.number == self.watched);
        // Copies by threads, and stores.
        let mut arrives = 0;
        if did.copied_bytes > 0 || did.global_sectors > 0 {
            arrives = self.pass(did.copied_bytes + 32 * did.global_sectors);
        }
        let rate = product_rate(self.target);
        let Some(clocks) = self.blocks.get_mut(block) else { return };
        let (Some(clock), Some(scheduler)) = (clocks.warps.get_mut(warp), clocks.schedulers.get_mut(warp % 4)) else {
            return;
        };
        let mut done = now + ARITHMETIC;
        match inst.op {
            Op::CpAsync { .. } | Op::CpAsyncGlobal { .. } if did.copied_bytes > 0 => clock.copies.add(arrives),
            Op::BoxStore { .. } | Op::BoxAdd { .. } | Op::BulkStore {} if did.copied_bytes > 0 => {
                clock.stores.add(arrives);
            }
            Op::CpCommit {} | Op::CpWaitAll {} => clock.copies.commit(),
            Op::BulkCommit {} => clock.stores.commit(),
            Op::WgmmaCommit {} => clock.products.commit(),
            _ => {}
        }
        if did.matrix_products > 0 {
            let start = scheduler.tensor.max(now);
            scheduler.tensor = start + weight(inst.op).div_ceil(rate);
            done = scheduler.tensor + PRODUCT;
            if !matches!(inst.op, Op::Mma { .. }) {
                clock.products.add(done);
            }
            if is_watched && let Some(tensor) = self.record.as_mut().and_then(|r| r.tensor.get_mut(warp % 4)) {
                match tensor.last_mut() {
                    Some(last) if last.1 == start => last.1 = scheduler.tensor,
                    _ => tensor.push((start, scheduler.tensor)),
                }
            }
        }
        match what {
            Activity::Function => {
                scheduler.functions = now + FUNCTION;
                done = now + FUNCTION + ARITHMETIC;
            }
            Activity::Global => done = arrives.max(done),
            Activity::Shared => {
                let bytes = shared_bytes(inst.op, mask.count_ones());
                clocks.shared = clocks.shared.max(now) + bytes.div_ceil(SHARED_RATE) + did.bank_conflicts;
                done = clocks.shared + SHARED;
            }
            _ => {}
        }
        for r in self.operands.get(pc as usize).map_or(&[][..], |(_, defs)| defs) {
            if let Some(ready) = clock.ready.get_mut(*r as usize) {
                *ready = (done, what);
            }
        }
        let (since, last) = (clock.free, clock.last);
        clock.free = now + 1;
        clock.last = what;
        if !is_watched {
            return;
        }
        let Some(record) = &mut self.record else { return };
        if let Some(spans) = record.warps.get_mut(warp) {
            // It waited for `why`; if it was ready earlier, it was at a barrier, or others were
            // issued first.
            let until = why.0.min(now);
            add(spans, since, until, why.1);
            add(spans, since.max(until), now, if last.is_wait() { last } else { what });
            add(spans, now, now + 1, what);
        }
        if matches!(inst.op, Op::CpAsync { .. } | Op::CpAsyncGlobal { .. }) && did.copied_bytes > 0 {
            record.flights.push(Flight { time: (now, arrives), bytes: did.copied_bytes as u32 });
            for lane in lanes(mask) {
                let Some(groups) = w.copies.loads.get(&lane) else { continue };
                let Some(small) = groups.open.last() else { continue };
                for part in &small.parts {
                    let of = (u32::MAX, groups.count);
                    record.fills.push(Fill { at: part.shared, bytes: part.bytes as usize, of, time: (now, arrives) });
                }
            }
        }
    }

    /// Assigns arrival cycles to newly issued copies.
    fn send(&mut self, b: &mut Block) {
        for p in b.pending.iter_mut().filter(|p| p.due == 0) {
            p.due = self.pass(u64::from(p.bytes));
            let time = (self.now, p.due);
            if b.number != self.watched {
                continue;
            }
            let Some(record) = &mut self.record else { continue };
            record.flights.push(Flight { time, bytes: p.bytes });
            let first = p.parts.iter().map(|part| part.shared).min().unwrap_or(0);
            let of = (p.at.1, p.epoch);
            record.fills.push(Fill { at: first, bytes: p.bytes as usize, of, time });
        }
    }

    /// The timeline of the observed block.
    fn timeline(self, code: &Code, grid: [u32; 3], watch: &Watch, ended: u64) -> Option<Timeline> {
        let record = self.record?;
        let mut warps = record.warps;
        for spans in &mut warps {
            // A warp ends with its last instruction, and starts with its first.
            spans.retain(|s| s.from < s.to);
        }
        Some(Timeline {
            kernel: code.name.clone(),
            target: self.target.to_string(),
            block: record.at,
            grid,
            time: (record.began, ended),
            shared_bytes: record.shared_bytes,
            warps,
            tensor: record.tensor.map(united),
            flights: record.flights,
            stages: stages(watch, &record.fills, record.shared_bytes),
        })
    }
}

/// Adds a span, or extends the last one if it has the same activity.
fn add(spans: &mut Vec<Span>, from: u64, to: u64, what: Activity) {
    if from >= to {
        return;
    }
    match spans.last_mut() {
        Some(last) if last.what == what && last.to == from => last.to = to,
        _ => spans.push(Span { from, to, what }),
    }
}

/// Outcome of a cycle.
struct Cycle {
    /// Did any warp issue an instruction?
    issued: bool,
    /// If not: the earliest cycle at which one can.
    next: Option<u64>,
}

impl Run<'_> {
    /// Runs all blocks in the timing model, and observes one of them.
    pub(super) fn all_in_time(mut self, mut t: Timing) -> Result<(Stats, Option<Timeline>), Box<Report>> {
        let mut seen: Option<(Box<Watch>, u64)> = None;
        loop {
            while self.blocks.len() < self.held.at_once && self.start() {}
            if self.blocks.is_empty() && !self.start() {
                let (watch, ended) = seen.unwrap_or_default();
                return Ok((self.stats, t.timeline(self.code, self.grid, &watch, ended)));
            }
            t.meet(&mut self.blocks);
            let landed = self.complete_until(t.now)?;
            let cycle = self.cycle(&mut t)?;
            if let Some(b) = self.blocks.iter_mut().flatten().find(|b| b.number == t.watched)
                && b.warps.iter().all(|w| w.live == 0)
                && let Some(watch) = b.shared.shadow.watch.take()
            {
                seen = Some((watch, t.now + 1));
            }
            let ended = self.retire()?;
            if cycle.issued {
                t.now += 1;
                continue;
            }
            if landed || ended {
                continue;
            }
            // No warp can issue: advance to the next event.
            let due = self.blocks.iter().flatten().flat_map(|b| &b.pending).map(|p| p.due).min();
            if let Some(next) = due.into_iter().chain(cycle.next).min() {
                t.now = next.max(t.now + 1);
                continue;
            }
            if self.another() {
                continue;
            }
            if !self.nudge() {
                return Err(self.stuck());
            }
        }
    }

    /// Each scheduler of each block issues an instruction, if any of its warps can.
    fn cycle(&mut self, t: &mut Timing) -> Result<Cycle, Box<Report>> {
        let mut cycle = Cycle { issued: false, next: None };
        for n in 0..self.blocks.len() {
            let Some(number) = self.blocks.get(n).and_then(Option::as_ref).map(|b| b.number) else { continue };
            let Some(place) = t.blocks.iter().position(|c| c.number == number) else { continue };
            let Some(mut b) = self.blocks.get_mut(n).and_then(Option::take) else { continue };
            for s in 0..4 {
                self.issue_one(t, &mut b, place, s, &mut cycle)?;
            }
            t.send(&mut b);
            if let Some(slot) = self.blocks.get_mut(n) {
                *slot = Some(b);
            }
        }
        // Copies to other blocks of a cluster.
        for b in self.blocks.iter_mut().flatten() {
            t.send(b);
        }
        Ok(cycle)
    }

    /// A scheduler issues an instruction, if any of its warps can.
    fn issue_one(
        &mut self,
        t: &mut Timing,
        b: &mut Block,
        place: usize,
        s: usize,
        cycle: &mut Cycle,
    ) -> Result<(), Box<Report>> {
        let count = b.warps.len().saturating_sub(s).div_ceil(4);
        let last = t.blocks.get(place).and_then(|c| c.schedulers.get(s)).map_or(0, |s| s.last);
        for i in 1..=count {
            let i = (last + i) % count;
            let number = 4 * i + s;
            let Some(w) = b.warps.get(number) else { continue };
            let Some(g) = (w.live != 0).then(|| w.pick(self.events)).flatten() else { continue };
            let Some(group) = w.groups.get(g).copied() else { continue };
            let code = self.code;
            let Some(inst) = code.insts.get(group.pc as usize) else { continue };
            let why = t.earliest(place, number, group.pc, inst);
            if why.0 > t.now {
                cycle.next = Some(cycle.next.map_or(why.0, |next| next.min(why.0)));
                continue;
            }
            if let Some(watch) = &mut b.shared.shadow.watch {
                // A `wgmma` reads its operands until it is complete.
                let tensor = t.blocks.get(place).and_then(|c| c.schedulers.get(s)).map_or(0, |s| s.tensor);
                let is_async = matches!(inst.op, Op::Wgmma { .. } | Op::WgmmaRegisters { .. });
                let done = tensor.max(t.now) + weight(inst.op).div_ceil(product_rate(t.target));
                watch.now = if is_async { done } else { t.now };
            }
            let before = self.stats;
            let Some(slot) = b.warps.get_mut(number) else { continue };
            let mut w = std::mem::take(slot);
            // Its slot keeps the number visible to others while it is taken out.
            slot.number = w.number;
            let done = self.step(b, &mut w, g);
            if let Err((pc, p)) = done {
                return Err(self.report(b, w.number, Some(&w), pc, *p));
            }
            t.issued(place, &w, (group.pc, inst, group.mask), why, &self.stats.since(&before));
            if let Some(slot) = b.warps.get_mut(number) {
                *slot = w;
            }
            if let Some(s) = t.blocks.get_mut(place).and_then(|c| c.schedulers.get_mut(s)) {
                s.last = i;
            }
            cycle.issued = true;
            return Ok(());
        }
        Ok(())
    }
}
