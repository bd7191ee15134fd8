//! Execution of barriers: named barriers of a block, mbarriers in shared memory, cluster barriers.

use std::rc::Rc;

use super::arrivals::{ClusterBarrier, Mbarrier};
use super::clock::{Gather, Know, Learner};
use super::code::Arg;
use super::lanes::lanes;
use super::report::{Check, Fault, at_address, at_lane, problem};
use super::state::{Block, Ctx, Flow, Run, Wait, Warp};
use super::transfers::split;

/// State of a poll after its first attempt.
const FIRST: (u64, u64) = (u64::MAX, u64::MAX);

impl Block {
    /// Counts completed bytes of a copy at an mbarrier; returns whether its phase completed.
    pub(super) fn complete_bytes(&mut self, at: u32, bytes: u32, epoch: u32) -> Check<bool> {
        let Some(agent) = self.mbarriers.get(&at).map(|m| self.mbarrier_agent(m.number)) else {
            return problem(
                Fault::MbarrierMisuse,
                format!("a copy completes at {at:#x}, where no mbarrier is any more"),
            );
        };
        let Some(m) = self.mbarriers.get_mut(&at) else { return Ok(false) };
        m.bytes -= i64::from(bytes);
        m.gather.complete(agent, epoch);
        if m.pending == 0 && m.bytes < 0 {
            let message =
                format!("the mbarrier at {at:#x} gets {} bytes more than its phase {} expects", -m.bytes, m.phase);
            return problem(Fault::OverArrival, message);
        }
        Ok(m.settle())
    }
}

impl Run<'_> {
    /// All threads of a warp have ended: barriers of the whole block no longer wait for them.
    pub(super) fn left(&mut self, b: &mut Block, w: &mut Warp) {
        let live = b.warps.iter().filter(|o| o.live != 0 && o.number != w.number).count() as u32 * 32;
        for n in 0..16 {
            if let Some(bar) = b.barriers.get_mut(n)
                && bar.expected > 0
                && bar.whole
            {
                bar.expected = live;
                if bar.arrived >= live {
                    complete(b, w, n as u8);
                    self.events += 1;
                }
            }
        }
        let first = b.number - b.rank;
        self.settle_cluster(first, b, w);
    }

    /// Completes the phase of a cluster's barrier if all live warps have arrived.
    fn settle_cluster(&mut self, first: u32, b: &mut Block, w: &mut Warp) {
        let Some(mut bar) = self.clusters.remove(&first) else { return };
        let size: u32 = self.cluster.iter().product();
        let arrived =
            |bar: &ClusterBarrier, block: u32, warp: &Warp| warp.live == 0 || bar.warps.contains(&(block, warp.number));
        let mates = self.blocks.iter().flatten().filter(|o| o.number >= first && o.number < first + size);
        let all =
            mates.flat_map(|o| o.warps.iter().map(|warp| (o.number, warp))).all(|(n, warp)| arrived(&bar, n, warp))
                && b.warps.iter().filter(|o| o.number != w.number).all(|o| arrived(&bar, b.number, o))
                && arrived(&bar, b.number, w);
        if all && !bar.warps.is_empty() {
            bar.phase += 1;
            bar.warps.clear();
            bar.done = std::mem::take(&mut bar.messages);
            for o in self.blocks.iter_mut().flatten().filter(|o| o.number >= first && o.number < first + size) {
                o.warps.iter_mut().for_each(|warp| warp.release(Wait::Cluster));
            }
            b.warps.iter_mut().for_each(|warp| warp.release(Wait::Cluster));
            w.release(Wait::Cluster);
            self.events += 1;
        }
        self.clusters.insert(first, bar);
    }
}

/// A named barrier is complete: its threads continue, with the joined knowledge of all.
fn complete(b: &mut Block, w: &mut Warp, id: u8) {
    let Some(bar) = b.barriers.get_mut(usize::from(id)) else { return };
    let know = Rc::new(bar.gather.take());
    bar.expected = 0;
    bar.arrived = 0;
    bar.warps.clear();
    let (asks, any) = (std::mem::take(&mut bar.asks), std::mem::take(&mut bar.any));
    let wait = Wait::Barrier(id);
    let own = w.number;
    let others = b.warps.iter_mut().filter(|o| o.number != own);
    for warp in others.chain(std::iter::once(w)) {
        for (number, register) in &asks {
            if *number == warp.number {
                warp.answer(*register, any);
            }
        }
        let waits: u32 = warp.groups.iter().filter(|g| g.wait == wait).map(|g| g.mask).sum();
        for lane in lanes(waits) {
            if let Some(known) = warp.know.get_mut(lane as usize) {
                *known = Rc::clone(&know);
            }
        }
        warp.release(wait);
    }
}

impl Ctx<'_, '_> {
    /// `bar.sync`, `bar.arrive` and `bar.red`; `holds` is this warp's predicate.
    pub(super) fn bar(&mut self, id: u8, count: Option<u32>, waits: bool, holds: Option<bool>) -> Check<Flow> {
        let live = self.b.warps.iter().filter(|o| o.live != 0 && o.number != self.w.number).count() as u32 * 32 + 32;
        let Some(bar) = self.b.barriers.get_mut(usize::from(id)) else {
            return problem(Fault::BadOperand, "barrier number out of range: 0 to 15");
        };
        let expected = count.unwrap_or(live);
        if bar.expected == 0 {
            bar.whole = count.is_none();
            bar.expected = expected;
        } else if bar.expected != expected || bar.whole != count.is_none() {
            let message = format!("barrier {id} expects {expected} threads here and {} elsewhere", bar.expected);
            return problem(Fault::BarrierMisuse, message);
        }
        if bar.warps.contains(&self.w.number) {
            return problem(
                Fault::BarrierMisuse,
                format!("this warp is at barrier {id} a second time before it is full"),
            );
        }
        if bar.asks.len() != holds.map_or(0, |_| bar.warps.len()) {
            let message = format!("some threads at barrier {id} execute `bar.red`, others do not");
            return problem(Fault::BarrierMisuse, message);
        }
        if let (Some(holds), Some(Arg::Reg(r))) = (holds, self.inst.args.first()) {
            bar.asks.push((self.w.number, *r));
            bar.any |= holds;
        }
        bar.warps.push(self.w.number);
        bar.arrived += 32;
        if bar.arrived > bar.expected {
            let message = format!("{} threads at barrier {id}, which waits for {}", bar.arrived, bar.expected);
            return problem(Fault::BarrierMisuse, message);
        }
        let is_full = bar.arrived == bar.expected;
        let mut gather = std::mem::take(&mut bar.gather);
        self.arrive(&mut gather);
        if let Some(bar) = self.b.barriers.get_mut(usize::from(id)) {
            bar.gather = gather;
        }
        self.w.effects += 1;
        if !is_full {
            return Ok(if waits { Flow::NextAfter(Wait::Barrier(id)) } else { Flow::Next });
        }
        if waits {
            // This warp waits too; `complete` releases it.
            for g in self.w.groups.iter_mut().filter(|g| g.pc == self.pc && g.mask & self.mask != 0) {
                g.wait = Wait::Barrier(id);
            }
        }
        complete(self.b, self.w, id);
        self.event();
        Ok(Flow::Next)
    }

    /// `bar.warp.sync`: joins the knowledge of the lanes.
    pub(super) fn bar_warp(&mut self) -> Check<Flow> {
        let mut gather = Gather::default();
        self.arrive(&mut gather);
        let know = Rc::new(gather.take());
        for lane in lanes(self.mask) {
            if let Some(known) = self.w.know.get_mut(lane as usize) {
                *known = Rc::clone(&know);
            }
        }
        Ok(Flow::Next)
    }

    /// The address of an mbarrier for each lane, checked.
    fn mbarrier(&self, lane: u32, at: u64) -> Check<u32> {
        let at32 = at as u32;
        if !at.is_multiple_of(8) {
            return at_address(Fault::Misaligned, lane, at, "an mbarrier must be aligned to 8");
        }
        let Some(m) = self.b.mbarriers.get(&at32) else {
            return at_address(Fault::MbarrierMisuse, lane, at, "no mbarrier was initialised here");
        };
        let know = self.w.know.get(lane as usize);
        if m.made_by.agent != self.w.thread(lane) && !know.is_some_and(|k| k.has_label(self.b.number, m.made_by)) {
            let message =
                format!("thread {} initialised the mbarrier, and nothing orders that before this", m.made_by.agent);
            return at_address(Fault::Race, lane, at, message);
        }
        Ok(at32)
    }

    /// The mbarrier of a copy that a lane issues; checks that it is visible to the asynchronous
    /// proxy.
    pub(super) fn mbarrier_of_copy(&self, lane: u32, at: u64) -> Check<u32> {
        let at32 = self.mbarrier(lane, at)?;
        if self.b.mbarriers.get(&at32).is_some_and(|m| !m.shown) {
            let message =
                "the mbarrier was initialised without a `fence.mbarrier_init` or `fence.proxy.async` after it";
            return at_address(Fault::MissingProxyFence, lane, at, message);
        }
        Ok(at32)
    }

    /// `mbarrier.init`
    pub(super) fn mbarrier_init(&mut self) -> Check<Flow> {
        let (at, count) = (self.addresses(0)?, self.value(1)?);
        for lane in lanes(self.mask) {
            let (at, count) = (at[lane as usize], count[lane as usize] as u32);
            self.shared_access(lane, at, 8, true)?;
            if self.b.mbarriers.contains_key(&(at as u32)) {
                return at_address(
                    Fault::MbarrierMisuse,
                    lane,
                    at,
                    "an mbarrier is here already; `mbarrier.inval` ends it",
                );
            }
            if !(1..1 << 20).contains(&count) {
                return at_address(
                    Fault::BadOperand,
                    lane,
                    at,
                    format!("{count} arrivals; an mbarrier expects 1 to 1048575"),
                );
            }
            let m = Mbarrier {
                number: self.b.made,
                count,
                pending: count,
                bytes: 0,
                phase: 0,
                gather: Gather::default(),
                done: Rc::default(),
                made_by: self.w.label(self.b.number, lane),
                shown: false,
            };
            self.b.made += 1;
            self.b.mbarriers.insert(at as u32, m);
        }
        self.event();
        Ok(Flow::Next)
    }

    /// `mbarrier.inval`
    pub(super) fn mbarrier_inval(&mut self) -> Check<Flow> {
        let at = self.addresses(0)?;
        for lane in lanes(self.mask) {
            let at32 = self.mbarrier(lane, at[lane as usize])?;
            if self.b.pending.iter().any(|p| p.mbarrier() == Some((self.b.number, at32))) {
                let message = "pending copies complete at this mbarrier";
                return at_address(Fault::MbarrierMisuse, lane, at[lane as usize], message);
            }
            self.b.mbarriers.remove(&at32);
        }
        self.w.effects += 1;
        Ok(Flow::Next)
    }

    /// Makes mbarriers initialised by the executing threads visible to the asynchronous proxy.
    pub(super) fn show_mbarriers(&mut self) {
        for m in self.b.mbarriers.values_mut() {
            let thread = m.made_by.agent;
            if thread / 32 == self.w.number && self.mask >> (thread % 32) & 1 == 1 {
                m.shown = true;
            }
        }
    }

    /// `mbarrier.arrive` and `expect_tx`: index of the address operand, expected bytes, does it
    /// arrive?
    pub(super) fn mbarrier_arrive(
        &mut self,
        address: usize,
        bytes: Option<usize>,
        arrives: bool,
        state: bool,
    ) -> Check<Flow> {
        let at = self.addresses(address)?;
        let bytes = bytes.map(|n| self.value(n)).transpose()?;
        let mut states = [0; 32];
        for lane in lanes(self.mask) {
            let i = lane as usize;
            let at32 = self.mbarrier(lane, at[i])?;
            let know = self.w.know.get(i).cloned().unwrap_or_default();
            let (thread, epoch) = (self.w.thread(lane), self.w.epoch);
            let Some(m) = self.b.mbarriers.get_mut(&at32) else { continue };
            states[i] = m.phase;
            let fault = |message| at_address(Fault::OverArrival, lane, at[i], message);
            if let Some(bytes) = &bytes {
                m.expect(bytes[i] as u32).or_else(fault)?;
            }
            if arrives {
                m.arrive().or_else(fault)?;
                m.gather.arrive(&know, thread, epoch);
            }
            if m.settle() {
                self.run.events += 1;
            }
        }
        self.w.epoch += 1;
        self.w.effects += 1;
        if state {
            self.set(0, &states);
        }
        Ok(Flow::Next)
    }

    /// `mbarrier.arrive` at any block of the cluster.
    pub(super) fn mbarrier_arrive_remote(&mut self) -> Check<Flow> {
        let at = self.addresses(1)?;
        for lane in lanes(self.mask) {
            let i = lane as usize;
            let (rank, local) = split(at[i]);
            let own = self.b.number;
            let know = self.w.know.get(i).cloned().unwrap_or_default();
            let (thread, epoch) = (self.w.thread(lane), self.w.epoch);
            let first = self.b.number - self.b.rank;
            if rank.is_none_or(|rank| first + rank == own) {
                let at32 = self.mbarrier(lane, u64::from(local))?;
                let Some(m) = self.b.mbarriers.get_mut(&at32) else { continue };
                m.arrive().or_else(|message| at_address(Fault::OverArrival, lane, at[i], message))?;
                m.gather.arrive(&know, thread, epoch);
                if m.settle() {
                    self.run.events += 1;
                }
                continue;
            }
            let mut message = Know::clone(&know);
            message.add(thread, epoch);
            let Some(mate) = self.run.mate(self.b, rank.unwrap_or(0)) else {
                return at_address(Fault::OutOfBounds, lane, at[i], "the cluster has no such block");
            };
            let number = mate.number;
            let Some(m) = mate.mbarriers.get_mut(&local) else {
                return at_address(Fault::MbarrierMisuse, lane, at[i], "no mbarrier was initialised here");
            };
            if !know.has_label(own, m.made_by) {
                let text = format!(
                    "thread {} of the other block initialised the mbarrier, and nothing orders that before this",
                    m.made_by.agent
                );
                return at_address(Fault::Race, lane, at[i], text);
            }
            m.arrive().or_else(|text| at_address(Fault::OverArrival, lane, at[i], text))?;
            m.gather.arrive_from(number, own, &message);
            if m.settle() {
                self.run.events += 1;
            }
        }
        self.w.epoch += 1;
        self.w.effects += 1;
        Ok(Flow::Next)
    }

    /// `mbarrier.try_wait` and `test_wait`: is the phase of a parity complete?
    pub(super) fn mbarrier_wait(&mut self) -> Check<Flow> {
        let (at, parity) = (self.addresses(1)?, self.value(2)?);
        // The first result is false, which is always legal: code that does not retry has not
        // waited.
        if !self.w.polls.contains_key(&self.pc) {
            for lane in lanes(self.mask) {
                self.mbarrier(lane, at[lane as usize])?;
            }
            self.w.polls.insert(self.pc, FIRST);
            self.set_predicate(0, 0);
            return Ok(Flow::Next);
        }
        let mut over = 0;
        let mut learner = Learner::default();
        for lane in lanes(self.mask) {
            let i = lane as usize;
            let at32 = self.mbarrier(lane, at[i])?;
            let Some(m) = self.b.mbarriers.get(&at32) else { continue };
            if parity[i] > 1 {
                return at_lane(Fault::BadOperand, lane, format!("parity {}; it must be 0 or 1", parity[i]));
            }
            if m.phase & 1 != parity[i] {
                over |= 1 << lane;
                if let Some(know) = self.w.know.get_mut(i) {
                    learner.learn(know, self.b.number, self.b.number, &m.done);
                }
            }
        }
        if over == 0 && self.polls_in_vain(0) {
            self.set_predicate(0, 0);
            return Ok(Flow::NextAfter(Wait::Poll(self.run.events)));
        }
        if over != 0 {
            self.w.effects += 1;
            self.w.polls.remove(&self.pc);
        }
        self.set_predicate(0, over);
        Ok(Flow::Next)
    }

    /// Did the warp read the same value as last time, with no effects in between? Then it is
    /// polling.
    pub(super) fn polls_in_vain(&mut self, value: u64) -> bool {
        let now = (value, self.w.effects);
        self.w.polls.insert(self.pc, now) == Some(now)
    }

    /// `barrier.cluster.arrive`
    pub(super) fn cluster_arrive(&mut self) -> Check<Flow> {
        let first = self.b.number - self.b.rank;
        let mut gather = Gather::default();
        self.arrive(&mut gather);
        let size: u32 = self.run.cluster.iter().product();
        if size == 1 {
            // A cluster of one block also has a barrier.
            self.run.clusters.entry(first).or_default();
        }
        let Some(bar) = self.run.clusters.get_mut(&first) else { return Ok(Flow::Next) };
        if bar.warps.contains(&(self.b.number, self.w.number)) {
            return problem(
                Fault::BarrierMisuse,
                "this warp arrives at the cluster's barrier a second time without a wait between",
            );
        }
        bar.warps.push((self.b.number, self.w.number));
        bar.messages.push((self.b.number, Rc::new(gather.take())));
        self.w.effects += 1;
        self.run.settle_cluster(first, self.b, self.w);
        Ok(Flow::Next)
    }

    /// `barrier.cluster.wait`
    pub(super) fn cluster_wait(&mut self) -> Check<Flow> {
        let first = self.b.number - self.b.rank;
        let Some(bar) = self.run.clusters.get(&first) else {
            return problem(Fault::BarrierMisuse, "no arrival at the cluster's barrier comes before this wait");
        };
        if bar.warps.contains(&(self.b.number, self.w.number)) {
            return Ok(Flow::Again(Wait::Cluster));
        }
        let done = bar.done.clone();
        let own = self.b.number;
        for (block, know) in done {
            let mut learner = Learner::default();
            for lane in lanes(self.mask) {
                if let Some(mine) = self.w.know.get_mut(lane as usize) {
                    learner.learn(mine, own, block, &know);
                }
            }
        }
        self.w.effects += 1;
        Ok(Flow::Next)
    }
}
