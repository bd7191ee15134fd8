//! The state of a launch: blocks, warps, groups of lanes, and an instruction in execution.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::arrivals::{Barrier, ClusterBarrier, Mbarrier};
use super::clock::{Gather, Know, Label};
use super::code::{Code, Inst, SHARED_BASE};
use super::lanes::lanes;
use super::memory::{Global, Region};
use super::mode::{Mode, Order};
use super::products::{Products, Sequence};
use super::report::{Fault, Problem, Stats};
use super::shadow::Conflict;
use super::transfers::{Copies, Pending};
use crate::random::Random;

/// The condition that a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing: it can execute.
    No,
    /// Lanes of its warp that must arrive here too.
    Together(u32),
    Barrier(u8),
    Cluster,
    /// A poll: any visible event after this one.
    Poll(u64),
}

/// Lanes with the same program counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) pc: u32,
    pub(super) mask: u32,
    pub(super) wait: Wait,
}

/// State for fences with relaxed accesses of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Fenced {
    /// Knowledge at the thread's last fence, released by relaxed writes.
    pub(super) release: Option<Know>,
    /// Messages seen by relaxed reads, acquired by the next fence.
    pub(super) acquire: Vec<(u32, Rc<Know>)>,
}

/// Polls by program counter: last value read, and the warp's effect count at that time.
pub(super) type Polls = HashMap<u32, (u64, u64)>;

/// Up to 32 threads.
#[derive(Default)]
pub(super) struct Warp {
    pub(super) number: u32,
    /// Existing lanes, and lanes that have not ended.
    pub(super) full: u32,
    pub(super) live: u32,
    pub(super) regs: Vec<u64>,
    pub(super) preds: Vec<u32>,
    /// For each register the lanes in which it is initialised.
    pub(super) known: Vec<u32>,
    pub(super) groups: Vec<Group>,
    pub(super) epoch: u32,
    pub(super) know: Vec<Rc<Know>>,
    pub(super) fences: BTreeMap<u32, Fenced>,
    pub(super) polls: Polls,
    /// Count of writes and other effects: a poll without any since the last is idle.
    pub(super) effects: u64,
    pub(super) copies: Copies,
    pub(super) products: Products,
}

pub(super) struct Block {
    pub(super) number: u32,
    pub(super) at: [u32; 3],
    /// Rank in its cluster.
    pub(super) rank: u32,
    pub(super) shared: Region,
    pub(super) warps: Vec<Warp>,
    pub(super) barriers: [Barrier; 16],
    pub(super) mbarriers: BTreeMap<u32, Mbarrier>,
    /// Number of mbarriers initialised so far.
    pub(super) made: u32,
    pub(super) pending: Vec<Pending>,
    pub(super) sequences: Vec<Sequence>,
}

/// Messages of ordered writes: by location, the writer's knowledge.
pub(super) type Messages = HashMap<(u32, u64), (u32, Rc<Know>)>;

/// Number of concurrent blocks.
#[derive(Clone, Copy)]
pub(super) struct Residency {
    pub(super) most: usize,
    /// Blocks that run from the start.
    pub(super) at_once: usize,
}

pub(super) struct Run<'a> {
    pub(super) code: &'a Code,
    pub(super) global: &'a mut Global,
    pub(super) mode: Mode,
    pub(super) random: Random,
    pub(super) stats: Stats,
    pub(super) grid: [u32; 3],
    pub(super) extents: [u32; 3],
    pub(super) dynamic_shared: u32,
    pub(super) params: Vec<u8>,
    pub(super) cluster: [u32; 3],
    /// Running blocks; the executing one is taken out.
    pub(super) blocks: Vec<Option<Box<Block>>>,
    /// Barriers of running clusters, by the index of their first block.
    pub(super) clusters: BTreeMap<u32, ClusterBarrier>,
    pub(super) started: u64,
    pub(super) held: Residency,
    /// Count of visible events.
    pub(super) events: u64,
    /// Retries of polls without an event, and the event count at that time.
    pub(super) nudged: (u32, u64),
    pub(super) messages: Messages,
    pub(super) spare: Vec<Warp>,
}

impl Block {
    /// Number of thread agents: threads, rounded up to 32.
    pub(super) fn agents(&self) -> u32 {
        self.warps.len() as u32 * 32
    }
    /// The agent of a warp's `wgmma`.
    pub(super) fn products_agent(&self, warp: u32) -> u32 {
        self.agents() + warp
    }
    /// The agent of the copies that complete at an mbarrier.
    pub(super) fn mbarrier_agent(&self, number: u32) -> u32 {
        self.agents() + 32 + number % 256
    }
    /// The agent of a thread's copies to shared memory.
    pub(super) fn copies_agent(&self, thread: u32) -> u32 {
        self.agents() + 288 + thread
    }
    /// The agent of reads by a thread's bulk copies.
    pub(super) fn bulk_reads_agent(&self, thread: u32) -> u32 {
        2 * self.agents() + 288 + thread
    }
    /// The agent of writes by a thread's bulk copies.
    pub(super) fn bulk_writes_agent(&self, thread: u32) -> u32 {
        3 * self.agents() + 288 + thread
    }
    /// Description of an agent for messages.
    pub(super) fn agent_name(&self, agent: u32) -> String {
        let n = self.agents();
        match agent {
            _ if agent < n => format!("thread {agent}"),
            _ if agent < n + 32 => format!("a wgmma of warp {}", agent - n),
            _ if agent < n + 288 => {
                let number = agent - n - 32;
                let found = self.mbarriers.iter().find(|(_, m)| m.number == number);
                let at = found.map_or(String::new(), |(at, _)| format!(" at {at:#x}"));
                format!("a copy that completes at the mbarrier{at}")
            }
            _ if agent < 2 * n + 288 => format!("a cp.async of thread {}", agent - n - 288),
            _ => format!("a bulk copy of thread {}", (agent - 288) % n),
        }
    }
}

impl Warp {
    /// Sets a predicate in all lanes to the result of `bar.red`.
    pub(super) fn answer(&mut self, register: u32, holds: bool) {
        let n = register as usize;
        if let (Some(to), Some(known)) = (self.preds.get_mut(n), self.known.get_mut(n)) {
            *to = if holds { self.full } else { 0 };
            *known |= self.full;
        }
    }

    /// Index in the block of a lane's thread.
    pub(super) fn thread(&self, lane: u32) -> u32 {
        self.number * 32 + lane
    }

    /// The label of a lane's current access.
    pub(super) fn label(&self, block: u32, lane: u32) -> Label {
        Label { block, agent: self.thread(lane), epoch: self.epoch }
    }

    /// The group to execute next.
    pub(super) fn pick(&self, events: u64) -> Option<usize> {
        let can_go = |g: &Group| match g.wait {
            Wait::No => true,
            Wait::Together(need) => need & self.live & !g.mask == 0,
            Wait::Poll(since) => since != events,
            Wait::Barrier(_) | Wait::Cluster => false,
        };
        let mut best: Option<usize> = None;
        for (n, g) in self.groups.iter().enumerate() {
            if can_go(g) && best.and_then(|b| self.groups.get(b)).is_none_or(|b| g.pc < b.pc) {
                best = Some(n);
            }
        }
        best
    }

    /// Merges groups with the same program counter.
    pub(super) fn merge(&mut self) {
        let mut n = 0;
        while n < self.groups.len() {
            let Some(g) = self.groups.get(n).copied() else { break };
            let meets = |o: &Group| o.pc == g.pc && matches!(o.wait, Wait::No | Wait::Together(_) | Wait::Poll(_));
            let others: Vec<usize> =
                (n + 1..self.groups.len()).filter(|i| self.groups.get(*i).is_some_and(meets)).collect();
            if meets(&g) && !others.is_empty() {
                for i in others.into_iter().rev() {
                    let other = self.groups.remove(i);
                    if let Some(g) = self.groups.get_mut(n) {
                        g.mask |= other.mask;
                        g.wait = Wait::No;
                    }
                }
            }
            n += 1;
        }
    }

    /// Releases groups that wait for `wait`.
    pub(super) fn release(&mut self, wait: Wait) {
        for g in self.groups.iter_mut().filter(|g| g.wait == wait) {
            g.wait = Wait::No;
        }
        self.merge();
    }
}

/// Control flow effect of an instruction.
pub(super) enum Flow {
    /// Continues with the next instruction.
    Next,
    /// The lanes of the mask jump.
    Jump(u32),
    /// The lanes of the mask end.
    Exit,
    /// Continues with the next instruction after a wait.
    NextAfter(Wait),
    /// Executes the same instruction again after a wait.
    Again(Wait),
}

/// An instruction in execution.
pub(super) struct Ctx<'r, 'a> {
    pub(super) run: &'r mut Run<'a>,
    pub(super) b: &'r mut Block,
    pub(super) w: &'r mut Warp,
    pub(super) inst: &'a Inst,
    pub(super) pc: u32,
    /// The executing lanes.
    pub(super) mask: u32,
}

impl Run<'_> {
    /// The block with a rank in the cluster of `b`.
    pub(super) fn mate(&mut self, b: &Block, rank: u32) -> Option<&mut Block> {
        let number = b.number - b.rank + rank;
        self.blocks.iter_mut().flatten().map(|b| &mut **b).find(|o| o.number == number)
    }

    /// Are effects delayed as long as is legal?
    pub(super) fn is_late(&self) -> bool {
        self.mode.order == Order::Latest
    }
}

/// The address of a byte of shared memory.
pub(super) fn shared_address(at: usize) -> u64 {
    at as u64 + u64::from(SHARED_BASE)
}

impl Ctx<'_, '_> {
    /// Records an event visible to others.
    pub(super) fn event(&mut self) {
        self.run.events += 1;
        self.w.effects += 1;
    }

    /// The executing threads arrive at a synchronisation point with their knowledge, and begin new
    /// epochs.
    pub(super) fn arrive(&mut self, gather: &mut Gather) {
        for lane in lanes(self.mask) {
            if let Some(know) = self.w.know.get(lane as usize) {
                gather.arrive(know, self.w.number * 32 + lane, self.w.epoch);
            }
        }
        self.w.epoch += 1;
    }
}

/// Describes a conflict.
pub(super) fn conflict(b: &Block, c: Conflict, write: bool, is_async: bool, lane: u32, address: u64) -> Box<Problem> {
    let who = if c.other.block == b.number {
        b.agent_name(c.other.agent)
    } else {
        format!("thread {} of block {}", c.other.agent, c.other.block)
    };
    let (did, does) = (if c.was_write { "wrote" } else { "reads" }, if write { "writes" } else { "reads" });
    let (fault, message) = if c.needs_fence {
        let side = "the asynchronous proxy";
        (Fault::MissingProxyFence, format!("{side} {does} what {who} wrote without `fence.proxy.async` in between"))
    } else {
        let here = if is_async { "an asynchronous copy or wgmma of this thread" } else { "this thread" };
        (Fault::Race, format!("{who} {did} this byte, {here} {does} it, and the accesses are not ordered"))
    };
    Box::new(Problem { fault, lane: Some(lane), address: Some(address), message })
}
