//! Scheduling of a launch: which blocks and warps execute next; deadlock detection.
//!
//! Lanes of a warp at the same program counter form a group, which executes an instruction
//! together. The group with the lowest program counter executes first, so that lanes reconverge
//! where branches join. A group that polls memory, or waits for lanes or a barrier, yields. The
//! next warp, and the length of its turn, are random.
//!
//! Blocks run one or a few at a time; when none can continue, another one starts, up to the
//! device's capacity. So a kernel whose blocks wait for each other works as long as they fit, as on
//! hardware; otherwise a deadlock is reported. In a cooperative launch all blocks run from the
//! start, in turns of random length.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::arrivals::{Barrier, ClusterBarrier};
use super::clock::Know;
use super::code::Code;
use super::memory::{Global, Region};
use super::mode::Mode;
use super::products::Sequence;
use super::report::{Fault, Problem, Report, Stats, ThreadCoordinates};
use super::state::{Block, Ctx, Flow, Group, Residency, Run, Wait, Warp};
use crate::random::Random;

/// Number of retries of polling groups without any event, before a deadlock is reported.
const MAX_NUDGES: u32 = 256;

impl<'a> Run<'a> {
    pub(super) fn new(
        code: &'a Code,
        global: &'a mut Global,
        mode: Mode,
        shape: ([u32; 3], [u32; 3], [u32; 3]),
        dynamic_shared: u32,
        params: Vec<u8>,
        held: Residency,
    ) -> Run<'a> {
        let (grid, extents, cluster) = shape;
        Run {
            code,
            global,
            mode,
            random: Random::new(mode.seed ^ 0x5eed),
            stats: Stats::default(),
            grid,
            extents,
            dynamic_shared,
            params,
            cluster,
            blocks: Vec::new(),
            clusters: BTreeMap::new(),
            started: 0,
            held,
            events: 1,
            nudged: (0, 0),
            messages: HashMap::new(),
            spare: Vec::new(),
        }
    }

    fn cluster_size(&self) -> u64 {
        self.cluster.iter().map(|n| u64::from(*n)).product()
    }

    fn total(&self) -> u64 {
        self.grid.iter().map(|n| u64::from(*n)).product()
    }

    pub(super) fn all(mut self) -> Result<Stats, Box<Report>> {
        let window = (1 + self.random.below(3)).min(self.held.most).max(self.held.at_once);
        loop {
            while self.blocks.len() < window && self.start() {}
            if self.blocks.is_empty() {
                return Ok(self.stats);
            }
            if self.pass()? {
                continue;
            }
            // No warp can continue: complete a copy, or start another block.
            if self.complete_one()? || self.another() {
                continue;
            }
            if !self.nudge() {
                return Err(self.stuck());
            }
        }
    }

    /// Starts another block beside the waiting ones, if the device has capacity.
    pub(super) fn another(&mut self) -> bool {
        self.blocks.len() < self.held.most && self.start()
    }

    /// Lets polling groups retry, for loops with a limited number of attempts. False after too many
    /// retries.
    pub(super) fn nudge(&mut self) -> bool {
        if self.events != self.nudged.1 {
            self.nudged.0 = 0;
        }
        self.events += 1;
        self.nudged = (self.nudged.0 + 1, self.events);
        self.nudged.0 <= MAX_NUDGES
    }

    /// Starts the blocks of the next cluster. False if all have been started.
    pub(super) fn start(&mut self) -> bool {
        let total = self.total();
        if self.started >= total {
            return false;
        }
        let [cx, cy, _] = self.cluster.map(u64::from);
        let size = self.cluster_size();
        let across = [0, 1, 2].map(|i| u64::from(self.grid[i]) / u64::from(self.cluster[i].max(1)));
        let cluster = self.started / size;
        let first = [
            cluster % across[0] * u64::from(self.cluster[0]),
            cluster / across[0] % across[1] * u64::from(self.cluster[1]),
            cluster / (across[0] * across[1]) * u64::from(self.cluster[2]),
        ];
        for rank in 0..size {
            let at = [first[0] + rank % cx, first[1] + rank / cx % cy, first[2] + rank / (cx * cy)].map(|n| n as u32);
            let block = self.block((self.started + rank) as u32, at, rank as u32);
            self.blocks.push(Some(Box::new(block)));
        }
        if size > 1 {
            self.clusters.insert(self.started as u32, ClusterBarrier::default());
        }
        self.started += size;
        true
    }

    fn block(&mut self, number: u32, at: [u32; 3], rank: u32) -> Block {
        let threads: u32 = self.extents.iter().product();
        let count = threads.div_ceil(32);
        let registers = self.code.widths.len();
        let know = Rc::new(Know::default());
        let warps = (0..count).map(|number| {
            let lanes = (threads - number * 32).min(32);
            let full = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
            let mut w = self.spare.pop().unwrap_or_default();
            let (mut regs, mut preds, mut known) = (w.regs, w.preds, w.known);
            regs.resize(registers * 32, 0);
            preds.resize(registers, 0);
            known.clear();
            known.resize(registers, 0);
            w = Warp { number, full, live: full, regs, preds, known, epoch: 1, ..Warp::default() };
            w.groups.push(Group { pc: 0, mask: full, wait: Wait::No });
            w.know = vec![Rc::clone(&know); 32];
            w.products.start(self.code);
            w
        });
        let warps: Vec<Warp> = warps.collect();
        let shared = Region::new((self.code.static_shared + self.dynamic_shared) as usize);
        self.stats.blocks += 1;
        Block {
            number,
            at,
            rank,
            shared,
            sequences: (0..count.div_ceil(4)).map(|_| Sequence::default()).collect(),
            warps,
            barriers: std::array::from_fn(|_| Barrier::default()),
            mbarriers: BTreeMap::new(),
            made: 0,
            pending: Vec::new(),
        }
    }

    /// Lets every warp run for a while; returns whether any could.
    fn pass(&mut self) -> Result<bool, Box<Report>> {
        let mut any = false;
        let from = self.random.below(self.blocks.len());
        for n in 0..self.blocks.len() {
            let n = (from + n) % self.blocks.len();
            let Some(mut b) = self.blocks.get_mut(n).and_then(Option::take) else { continue };
            let from = self.random.below(b.warps.len());
            for i in 0..b.warps.len() {
                let i = (from + i) % b.warps.len();
                any |= self.slice(&mut b, i)?;
            }
            if let Some(slot) = self.blocks.get_mut(n) {
                *slot = Some(b);
            }
        }
        Ok(any | self.retire()?)
    }

    /// Retires blocks whose threads have ended. Blocks of a cluster retire together, since others
    /// may still access their memory.
    pub(super) fn retire(&mut self) -> Result<bool, Box<Report>> {
        let mut any = false;
        let ended = |b: &Option<Box<Block>>| b.as_ref().is_some_and(|b| b.warps.iter().all(|w| w.live == 0));
        let size = self.cluster_size() as usize;
        let mut n = 0;
        while n + size <= self.blocks.len() {
            if self.blocks.get(n..n + size).is_some_and(|cluster| cluster.iter().all(ended)) {
                any = true;
                for b in self.blocks.drain(n..n + size).flatten().collect::<Vec<_>>() {
                    self.clusters.remove(&b.number);
                    self.end(*b)?;
                }
            } else {
                n += size;
            }
        }
        Ok(any)
    }

    /// Retires a block.
    fn end(&mut self, mut b: Block) -> Result<(), Box<Report>> {
        if let Some((warp, p)) = self.unfinished(&b) {
            return Err(self.report(&b, warp, None, u32::MAX, p));
        }
        self.finish_stores(&mut b);
        self.messages.retain(|(block, _), _| *block != b.number + 1);
        self.spare.append(&mut b.warps);
        Ok(())
    }

    /// Lets a warp execute up to a random number of instructions; returns whether it could.
    fn slice(&mut self, b: &mut Block, n: usize) -> Result<bool, Box<Report>> {
        let Some(slot) = b.warps.get_mut(n) else { return Ok(false) };
        if slot.live == 0 || slot.pick(self.events).is_none() {
            return Ok(false);
        }
        let mut w = std::mem::take(slot);
        // Its slot keeps the number and groups visible to others while it is taken out.
        slot.number = w.number;
        let steps = 1 + self.random.below(64);
        let mut any = false;
        for _ in 0..steps {
            let Some(group) = w.pick(self.events) else { break };
            any = true;
            if let Err((pc, p)) = self.step(b, &mut w, group) {
                let report = self.report(b, w.number, Some(&w), pc, *p);
                return Err(report);
            }
        }
        if let Some(slot) = b.warps.get_mut(n) {
            *slot = w;
        }
        Ok(any)
    }

    /// Executes one instruction of a group.
    pub(super) fn step(&mut self, b: &mut Block, w: &mut Warp, n: usize) -> Result<(), (u32, Box<Problem>)> {
        let Some(group) = w.groups.get(n).copied() else { return Ok(()) };
        let code = self.code;
        let Some(inst) = code.insts.get(group.pc as usize) else { return Ok(()) };
        self.stats.warp_instructions += 1;
        if self.stats.warp_instructions > self.mode.limit {
            let message = format!("more than {} instructions", self.mode.limit);
            let p = Problem { fault: Fault::Limit, lane: Some(group.mask.trailing_zeros()), address: None, message };
            return Err((group.pc, Box::new(p)));
        }
        let mut ctx = Ctx { run: self, b, w, inst, pc: group.pc, mask: group.mask };
        let flow = ctx.execute(group.mask).map_err(|p| (group.pc, p))?;
        let mask = ctx.mask;
        let count = u64::from(mask.count_ones());
        self.stats.thread_instructions += count;
        let Some(g) = w.groups.get_mut(n) else { return Ok(()) };
        match flow {
            Flow::Next => {
                g.pc += 1;
                g.wait = Wait::No;
            }
            Flow::NextAfter(wait) => {
                g.pc += 1;
                g.wait = wait;
            }
            Flow::Again(wait) => g.wait = wait,
            Flow::Jump(to) => {
                let stay = g.mask & !mask;
                g.wait = Wait::No;
                if stay == 0 {
                    g.pc = to;
                } else {
                    g.mask = stay;
                    g.pc += 1;
                    w.groups.push(Group { pc: to, mask, wait: Wait::No });
                }
            }
            Flow::Exit => {
                w.live &= !mask;
                g.mask &= !mask;
                g.pc += 1;
                g.wait = Wait::No;
                if g.mask == 0 {
                    w.groups.remove(n);
                }
            }
        }
        if w.groups.len() > 1 {
            w.merge();
        }
        Ok(())
    }

    /// Turns a problem into a report; `w` is the warp while it is taken out of its block.
    pub(super) fn report(&self, b: &Block, warp: u32, w: Option<&Warp>, pc: u32, p: Problem) -> Box<Report> {
        let lane = p.lane.or_else(|| {
            let w = w.or_else(|| b.warps.get(warp as usize))?;
            w.groups.iter().find(|g| g.pc == pc).map(|g| g.mask.trailing_zeros())
        });
        let thread = warp * 32 + lane.unwrap_or(0);
        let [x, y, _] = self.extents;
        let thread = [thread % x, thread / x % y, thread / (x * y)];
        let (line, shown) = self.code.lines.get(pc as usize).cloned().unwrap_or_default();
        Box::new(Report {
            fault: p.fault,
            kernel: self.code.name.clone(),
            line,
            shown,
            place: Some(ThreadCoordinates { block: b.at, thread }),
            address: p.address,
            message: p.message,
        })
    }

    /// Reports a deadlock: no thread can continue, and nothing is pending.
    pub(super) fn stuck(&self) -> Box<Report> {
        let mut waiting = Vec::new();
        for b in self.blocks.iter().flatten() {
            for w in &b.warps {
                for g in &w.groups {
                    let need = if let Wait::Together(need) = g.wait { need } else { 0 };
                    let missing = need & w.live & !g.mask;
                    // Polling lanes would arrive here too once their poll succeeds.
                    let polls = w.groups.iter().any(|o| o.mask & missing != 0 && matches!(o.wait, Wait::Poll(_)));
                    if missing != 0 && !polls {
                        let others: Vec<String> = w
                            .groups
                            .iter()
                            .filter(|o| o.mask & missing != 0)
                            .map(|o| {
                                let (line, shown) = self.code.lines.get(o.pc as usize).cloned().unwrap_or_default();
                                format!("lanes {:#x} are at line {line}: `{shown}`", o.mask)
                            })
                            .collect();
                        let message = format!(
                            "lanes {:#x} of the warp are here, it needs {:#x} too; {}",
                            g.mask,
                            missing,
                            others.join(", ")
                        );
                        let p = Problem { fault: Fault::Divergence, lane: None, address: None, message };
                        return self.report(b, w.number, None, g.pc, p);
                    }
                    waiting.push((b, w, g));
                }
            }
        }
        let polling = waiting.iter().find(|(_, _, g)| matches!(g.wait, Wait::Poll(_)));
        let Some((b, w, g)) = polling.or(waiting.first()) else {
            let message = "nothing is left to do".to_string();
            let line = (0, String::new());
            return Box::new(Report {
                fault: Fault::Deadlock,
                kernel: self.code.name.clone(),
                line: line.0,
                shown: line.1,
                place: None,
                address: None,
                message,
            });
        };
        let mut places: BTreeMap<u32, (u32, String)> = BTreeMap::new();
        for (b, _, g) in &waiting {
            let entry = places.entry(g.pc).or_insert_with(|| (0, self.waits_for(b, g)));
            entry.0 += g.mask.count_ones();
        }
        let parts: Vec<String> = places
            .iter()
            .take(6)
            .map(|(pc, (threads, what))| {
                let line = self.code.lines.get(*pc as usize).map_or(0, |l| l.0);
                format!("{threads} threads at line {line} {what}")
            })
            .collect();
        let message = format!("deadlock: {}", parts.join("; "));
        self.report(b, w.number, None, g.pc, Problem { fault: Fault::Deadlock, lane: None, address: None, message })
    }

    fn waits_for(&self, b: &Block, g: &Group) -> String {
        match g.wait {
            Wait::Barrier(n) => {
                let bar = b.barriers.get(usize::from(n));
                let (arrived, of) = bar.map_or((0, 0), |bar| (bar.arrived, bar.expected));
                format!("wait at barrier {n}, where {arrived} of {of} threads have arrived")
            }
            Wait::Cluster => "wait for the cluster".to_string(),
            Wait::Together(_) => "wait for other lanes of their warps".to_string(),
            _ => {
                let open: Vec<String> = b
                    .mbarriers
                    .iter()
                    .filter(|(_, m)| m.pending > 0 || m.bytes != 0)
                    .take(8)
                    .map(|(at, m)| {
                        format!("{at:#x} lacks {} arrivals and {} bytes in phase {}", m.pending, m.bytes, m.phase)
                    })
                    .collect();
                if open.is_empty() {
                    "poll memory that does not change".to_string()
                } else {
                    format!("poll memory that does not change (mbarriers: {})", open.join(", "))
                }
            }
        }
    }
}
