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

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing: it can go on.
    No,
    /// Lanes of its warp that must come here too.
    Together(u32),
    /// A named barrier.
    Barrier(u8),
    /// The cluster's barrier.
    Cluster,
    /// It polls: until anything happens that others can see, counted from this event on.
    Poll(u64),
}

/// Lanes that stand at the same place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) pc: u32,
    pub(super) mask: u32,
    pub(super) wait: Wait,
}

/// Ordered accesses of a thread that a fence gives a meaning.
#[derive(Clone, Debug, Default)]
pub(super) struct Fenced {
    /// What the thread knew at its last fence: relaxed writes pass that on.
    pub(super) release: Option<Know>,
    /// What relaxed reads have met: a fence learns it.
    pub(super) acquire: Vec<(u32, Rc<Know>)>,
}

/// A poll: what was read there last, and how many effects the warp had had then.
pub(super) type Polls = HashMap<u32, (u64, u64)>;

/// Up to 32 threads.
#[derive(Default)]
pub(super) struct Warp {
    pub(super) number: u32,
    /// Lanes that exist, and those that have not ended.
    pub(super) full: u32,
    pub(super) live: u32,
    pub(super) regs: Vec<u64>,
    pub(super) preds: Vec<u32>,
    /// For each register the lanes in which it has a value.
    pub(super) known: Vec<u32>,
    pub(super) groups: Vec<Group>,
    pub(super) epoch: u32,
    pub(super) know: Vec<Rc<Know>>,
    pub(super) fences: BTreeMap<u32, Fenced>,
    pub(super) polls: Polls,
    /// Writes and other effects, counted: a poll with none since the last is idle.
    pub(super) effects: u64,
    pub(super) copies: Copies,
    pub(super) products: Products,
}

/// A block.
pub(super) struct Block {
    pub(super) number: u32,
    pub(super) at: [u32; 3],
    /// Its number in its cluster.
    pub(super) rank: u32,
    pub(super) shared: Region,
    pub(super) warps: Vec<Warp>,
    pub(super) barriers: [Barrier; 16],
    pub(super) mbarriers: BTreeMap<u32, Mbarrier>,
    /// How many mbarriers it has had.
    pub(super) made: u32,
    pub(super) pending: Vec<Pending>,
    pub(super) sequences: Vec<Sequence>,
}

/// Places of memory that ordered accesses have written, with what their threads knew.
pub(super) type Messages = HashMap<(u32, u64), (u32, Rc<Know>)>;

/// How many blocks run at the same time.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// At most.
    pub(super) most: usize,
    /// From the start on.
    pub(super) at_once: usize,
}

/// A launch.
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
    /// Blocks under way; one that is executing is out.
    pub(super) blocks: Vec<Option<Box<Block>>>,
    /// For clusters under way, by the number of their first block, what their barrier has.
    pub(super) clusters: BTreeMap<u32, ClusterBarrier>,
    pub(super) started: u64,
    pub(super) held: Held,
    /// What others can see, counted.
    pub(super) events: u64,
    /// How often polls were repeated though nothing had happened, and the event that this made.
    pub(super) nudged: (u32, u64),
    pub(super) messages: Messages,
    pub(super) spare: Vec<Warp>,
}

impl Block {
    /// Threads, as a multiple of 32.
    pub(super) fn agents(&self) -> u32 {
        self.warps.len() as u32 * 32
    }
    /// The agent of a warp's products.
    pub(super) fn products_agent(&self, warp: u32) -> u32 {
        self.agents() + warp
    }
    /// The agent of an mbarrier, by its number: the copies that complete there.
    pub(super) fn mbarrier_agent(&self, number: u32) -> u32 {
        self.agents() + 32 + number % 256
    }
    /// The agent of a thread's copies to shared memory.
    pub(super) fn copies_agent(&self, thread: u32) -> u32 {
        self.agents() + 288 + thread
    }
    /// The agent of what a thread's copies of boxes read.
    pub(super) fn bulk_reads_agent(&self, thread: u32) -> u32 {
        2 * self.agents() + 288 + thread
    }
    /// The agent of what a thread's copies of boxes write.
    pub(super) fn bulk_writes_agent(&self, thread: u32) -> u32 {
        3 * self.agents() + 288 + thread
    }
    /// An agent in words.
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
    /// A predicate of all lanes gets what they have asked for.
    pub(super) fn answer(&mut self, register: u32, holds: bool) {
        let n = register as usize;
        if let (Some(to), Some(known)) = (self.preds.get_mut(n), self.known.get_mut(n)) {
            *to = if holds { self.full } else { 0 };
            *known |= self.full;
        }
    }

    /// The thread of a lane, by its number in the block.
    pub(super) fn thread(&self, lane: u32) -> u32 {
        self.number * 32 + lane
    }

    /// The label of what a lane does now.
    pub(super) fn label(&self, block: u32, lane: u32) -> Label {
        Label { block, agent: self.thread(lane), epoch: self.epoch }
    }

    /// The group that goes next.
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

    /// Groups that have come to the same place become one.
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

    /// Lets the lanes that wait for something go on.
    pub(super) fn release(&mut self, wait: Wait) {
        for g in self.groups.iter_mut().filter(|g| g.wait == wait) {
            g.wait = Wait::No;
        }
        self.merge();
    }
}

/// What an instruction does to its group.
pub(super) enum Flow {
    /// On to the next instruction.
    Next,
    /// The lanes of the mask go there.
    Jump(u32),
    /// The lanes of the mask end.
    Exit,
    /// On to the next instruction, after a wait.
    NextAfter(Wait),
    /// The same instruction again, after a wait.
    Again(Wait),
}

/// An instruction in execution.
pub(super) struct Ctx<'r, 'a> {
    pub(super) run: &'r mut Run<'a>,
    pub(super) b: &'r mut Block,
    pub(super) w: &'r mut Warp,
    pub(super) inst: &'a Inst,
    pub(super) pc: u32,
    /// The lanes that execute it.
    pub(super) mask: u32,
}

impl Run<'_> {
    /// The block of a rank in the cluster of another.
    pub(super) fn mate(&mut self, b: &Block, rank: u32) -> Option<&mut Block> {
        let number = b.number - b.rank + rank;
        self.blocks.iter_mut().flatten().map(|b| &mut **b).find(|o| o.number == number)
    }

    /// Is this the order in which effects come as late as is legal?
    pub(super) fn is_late(&self) -> bool {
        self.mode.order == Order::Latest
    }
}

/// The address of a byte of shared memory.
pub(super) fn shared_address(at: usize) -> u64 {
    at as u64 + u64::from(SHARED_BASE)
}

impl Ctx<'_, '_> {
    /// Something happens that others can see.
    pub(super) fn event(&mut self) {
        self.run.events += 1;
        self.w.effects += 1;
    }

    /// The threads of the warp that execute this arrive somewhere with all that they did; what they do next is later.
    pub(super) fn arrive(&mut self, gather: &mut Gather) {
        for lane in lanes(self.mask) {
            if let Some(know) = self.w.know.get(lane as usize) {
                gather.arrive(know, self.w.number * 32 + lane, self.w.epoch);
            }
        }
        self.w.epoch += 1;
    }
}

/// What a conflict means, in words.
pub(super) fn conflict(b: &Block, c: Conflict, write: bool, is_async: bool, lane: u32, address: u64) -> Box<Problem> {
    let who = if c.other.block == b.number {
        b.agent_name(c.other.agent)
    } else {
        format!("thread {} of block {}", c.other.agent, c.other.block)
    };
    let (did, does) = (if c.was_write { "wrote" } else { "reads" }, if write { "writes" } else { "reads" });
    let (fault, message) = if c.needs_fence {
        let side = "the asynchronous proxy";
        (Fault::MissingProxyFence, format!("{side} {does} what {who} wrote without `fence.proxy.async` between"))
    } else {
        let here = if is_async { "an asynchronous copy or product of this thread" } else { "this thread" };
        (Fault::Race, format!("{who} {did} this byte, {here} {does} it, and nothing orders one before the other"))
    };
    Box::new(Problem { fault, lane: Some(lane), address: Some(address), message })
}
