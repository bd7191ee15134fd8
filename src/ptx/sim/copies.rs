//! Asynchronous copies: `cp.async`, tensor copies, bulk copies.
//!
//! When a copy is issued, its reads and writes are recorded at once, as accesses of a separate
//! agent, so accesses to these bytes without a wait are detected. The bytes themselves move at
//! once, or as late as is legal.

use std::rc::Rc;

use super::atomics::atomic;
use super::clock::{Know, Label};
use super::code::{Arg, PARAM_BASE, SHARED_BASE};
use super::lanes::lanes;
use super::report::{Check, Fault, Problem, Report, at_address, at_lane, problem};
use super::rounding::nan;
use super::shadow::{Access, Reach};
use super::state::{Block, Ctx, Flow, Run, conflict, shared_address};
use super::tensor_map::{BYTES, TensorMap};
use super::transfers::{CopySegment, Groups, Pending, Small, split};
use crate::ptx::Op;
use crate::ptx::words::{Atomic, Hint, Multicast, Read, Type};

impl CopySegment {
    /// Moves the bytes from global to shared memory.
    fn load(&self, run: &mut Run<'_>, b: &mut Block) {
        let n = self.bytes as usize;
        match self.global {
            None => {
                let word = self.fill.to_le_bytes();
                let data: Vec<u8> = word.iter().copied().cycle().take(n).collect();
                b.shared.fill(self.shared, &data);
            }
            Some(address) => {
                let Some((region, at)) = run.global.at(address, n) else { return };
                let (Some(bytes), Some(known)) = (region.bytes.get(at..at + n), region.known.get(at..at + n)) else {
                    return;
                };
                // Uninitialised bytes remain uninitialised.
                if let Some(to) = b.shared.bytes.get_mut(self.shared..self.shared + n) {
                    to.copy_from_slice(bytes);
                }
                if let Some(to) = b.shared.known.get_mut(self.shared..self.shared + n) {
                    to.copy_from_slice(known);
                }
            }
        }
    }
}

impl Small {
    fn take(&mut self, b: &Block) {
        if self.taken.is_none() {
            let read = |p: &CopySegment| b.shared.load(p.shared, p.bytes as usize).unwrap_or(0);
            self.taken = Some(self.parts.iter().map(read).collect());
        }
    }

    fn put(&mut self, run: &mut Run<'_>, b: &Block) {
        self.take(b);
        for (part, value) in self.parts.iter().zip(self.taken.iter().flatten()) {
            let n = part.bytes as usize;
            let Some((region, at)) = part.global.and_then(|address| run.global.at(address, n)) else { continue };
            let value = match self.adds {
                Some(ty) => atomic(Atomic::Add, ty, region.load(at, n).unwrap_or(0), *value),
                None => *value,
            };
            region.store(at, n, value);
        }
    }
}

impl Run<'_> {
    /// Completes any one pending copy. False if no copy is pending.
    pub(super) fn complete_one(&mut self) -> Result<bool, Box<Report>> {
        let with: Vec<usize> = (0..self.blocks.len())
            .filter(|n| self.blocks.get(*n).and_then(Option::as_ref).is_some_and(|b| !b.pending.is_empty()))
            .collect();
        if with.is_empty() {
            return Ok(false);
        }
        let n = self.random.pick(&with);
        let Some(mut b) = self.blocks.get_mut(n).and_then(Option::take) else { return Ok(false) };
        let which = self.random.below(b.pending.len());
        let pending = b.pending.swap_remove(which);
        let landed = self.land(&mut b, &pending);
        let result = landed.map_err(|p| self.report(&b, pending.warp, None, pending.pc, *p));
        if let Some(slot) = self.blocks.get_mut(n) {
            *slot = Some(b);
        }
        result.map(|()| true)
    }

    /// Completes the copies that arrive by a cycle; returns whether there were any.
    pub(super) fn complete_until(&mut self, now: u64) -> Result<bool, Box<Report>> {
        let mut any = false;
        for n in 0..self.blocks.len() {
            let Some(mut b) = self.blocks.get_mut(n).and_then(Option::take) else { continue };
            let (landed, rest) = std::mem::take(&mut b.pending).into_iter().partition(|p: &Pending| p.due <= now);
            b.pending = rest;
            any |= !landed.is_empty();
            for pending in landed {
                let landed = self.land(&mut b, &pending);
                landed.map_err(|p| self.report(&b, pending.warp, None, pending.pc, *p))?;
            }
            if let Some(slot) = self.blocks.get_mut(n) {
                *slot = Some(b);
            }
        }
        Ok(any)
    }

    /// Completes a copy.
    fn land(&mut self, b: &mut Block, p: &Pending) -> Check<()> {
        for part in &p.parts {
            part.load(self, b);
        }
        self.stats.copied_bytes += u64::from(p.bytes);
        if b.complete_bytes(p.at.1, p.bytes, p.epoch)? {
            self.events += 1;
        }
        Ok(())
    }

    /// A problem with unfinished work when a block ends, with the warp.
    pub(super) fn unfinished(&self, b: &Block) -> Option<(u32, Problem)> {
        let fault = |message: &str| Problem {
            fault: Fault::MissingWait,
            lane: None,
            address: None,
            message: message.to_string(),
        };
        if let Some(p) = b.pending.first() {
            return Some((p.warp, fault("the block ends while a copy into its shared memory is pending")));
        }
        if let Some(n) = b.sequences.iter().position(|s| !s.is_even()) {
            let message = "warps of this warpgroup have executed more wgmma than others".to_string();
            return Some((n as u32 * 4, Problem { fault: Fault::Divergence, lane: None, address: None, message }));
        }
        for w in &b.warps {
            let under_way = |g: &Groups| !g.open.is_empty() || g.closed.iter().any(|group| !group.is_empty());
            if w.copies.loads.values().any(under_way) {
                return Some((w.number, fault("the thread ends while its `cp.async` copies are pending")));
            }
            let unread = |g: &Groups| !g.open.is_empty() || g.closed.iter().flatten().any(|s| s.taken.is_none());
            if w.copies.stores.values().any(unread) {
                let message = "the block ends while copies from its shared memory are pending; wait with `cp.async.bulk.wait_group.read`";
                return Some((w.number, fault(message)));
            }
        }
        None
    }

    /// Completes stores whose sources were read but that were not waited for.
    pub(super) fn finish_stores(&mut self, b: &mut Block) {
        let mut warps = std::mem::take(&mut b.warps);
        for w in &mut warps {
            for groups in w.copies.stores.values_mut() {
                for s in groups.closed.iter_mut().flatten() {
                    s.put(self, b);
                }
            }
        }
        b.warps = warps;
    }
}

/// Records a copy's access to shared memory of a block.
fn note_shared(b: &mut Block, part: &CopySegment, write: bool, lane: u32, access: &Access<'_>) -> Check<()> {
    let noted = b.shared.shadow.note(part.shared, part.bytes as usize, write, access);
    noted.map_err(|c| conflict(b, c, write, true, lane, shared_address(c.at)))
}

/// How a copy accesses global memory.
struct GlobalAccess {
    write: bool,
    label: Label,
    is_async: bool,
    reach: Reach,
}

impl Ctx<'_, '_> {
    pub(super) fn copy(&mut self, op: Op) -> Check<Flow> {
        match op {
            Op::CpAsync { .. } | Op::CpAsyncGlobal { .. } => self.cp_async(),
            Op::CpCommit {} => self.commit(true),
            Op::CpWait {} => self.wait_loads(self.immediate(0) as usize),
            Op::CpWaitAll {} => {
                self.commit(true)?;
                self.wait_loads(0)
            }
            Op::BoxLoad { multicast, hint, .. } => self.box_load(multicast, hint),
            Op::BoxStore { .. } => self.box_store(false),
            Op::BoxAdd { .. } => self.box_store(true),
            Op::BulkLoad {} => self.bulk_load(),
            Op::BulkStore {} => self.bulk_store(),
            Op::BulkCommit {} => self.commit(false),
            Op::BulkWait { read } => self.wait_stores(self.immediate(0) as usize, read == Read::Source),
            _ => Ok(Flow::Next),
        }
    }

    /// Records a copy's accesses to global memory, part by part.
    fn note_global(&mut self, lane: u32, part: &CopySegment, how: &GlobalAccess) -> Check<()> {
        let Some(address) = part.global else { return Ok(()) };
        let n = part.bytes;
        let Some((region, at)) = self.run.global.at(address, n as usize) else {
            let near = self.run.global.nearest(address);
            return at_address(
                Fault::OutOfBounds,
                lane,
                address,
                format!("the copy accesses {n} bytes outside of all buffers: {near}"),
            );
        };
        let know = &self.w.know[lane as usize];
        let thread = self.w.number * 32 + lane;
        let GlobalAccess { write, label, is_async, reach } = *how;
        let access = Access { label, know, reach, is_async, thread, own: self.b.number };
        match region.shadow.note(at, n as usize, write, &access) {
            Ok(()) => Ok(()),
            Err(c) => Err(conflict(self.b, c, write, true, lane, address - at as u64 + c.at as u64)),
        }
    }

    fn cp_async(&mut self) -> Check<Flow> {
        let (to, from) = (self.addresses(0)?, self.addresses(1)?);
        let size = self.immediate(2) as u32;
        let used = if self.inst.args.len() > 3 { self.value(3)? } else { [u64::from(size); 32] };
        for lane in lanes(self.mask) {
            let i = lane as usize;
            let shared = self.shared_at(lane, to[i], size, size)?;
            let used = used[i] as u32;
            if used > size {
                return at_lane(Fault::BadOperand, lane, format!("{used} bytes to read; {size} are copied"));
            }
            if !from[i].is_multiple_of(u64::from(size)) {
                return at_address(
                    Fault::Misaligned,
                    lane,
                    from[i],
                    format!("{size} bytes of global memory, not aligned to {size}"),
                );
            }
            let mut parts = Vec::new();
            if used > 0 {
                parts.push(CopySegment { shared, global: Some(from[i]), bytes: used, fill: 0 });
            }
            if used < size {
                parts.push(CopySegment { shared: shared + used as usize, global: None, bytes: size - used, fill: 0 });
            }
            let thread = self.w.thread(lane);
            let epoch = self.w.copies.loads.entry(lane).or_default().count + 1;
            let label = self.agent_label(self.b.copies_agent(thread), epoch);
            for part in &parts {
                let read = GlobalAccess { write: false, label, is_async: false, reach: Reach::Plain };
                self.note_global(lane, part, &read)?;
                let know = &self.w.know[i];
                let access = Access { label, know, reach: Reach::Plain, is_async: false, thread, own: self.b.number };
                note_shared(self.b, part, true, lane, &access)?;
            }
            self.run.stats.copied_bytes += u64::from(size);
            let late = self.run.is_late();
            if !late {
                for part in &parts {
                    part.load(self.run, self.b);
                }
            }
            let parts = if late { parts } else { Vec::new() };
            if let Some(groups) = self.w.copies.loads.get_mut(&lane) {
                groups.open.push(Small { parts, taken: None, adds: None });
            }
        }
        self.w.effects += 1;
        Ok(Flow::Next)
    }

    fn commit(&mut self, loads: bool) -> Check<Flow> {
        for lane in lanes(self.mask) {
            let all = if loads { &mut self.w.copies.loads } else { &mut self.w.copies.stores };
            let groups = all.entry(lane).or_default();
            let open = std::mem::take(&mut groups.open);
            groups.closed.push_back(open);
            groups.count += 1;
        }
        Ok(Flow::Next)
    }

    fn learn_own(&mut self, lane: u32, agents: &[u32], epoch: u32) {
        if let Some(know) = self.w.know.get_mut(lane as usize) {
            let mut new = Know::clone(know);
            agents.iter().for_each(|agent| new.add(*agent, epoch));
            *know = Rc::new(new);
        }
    }

    fn wait_loads(&mut self, most: usize) -> Check<Flow> {
        for lane in lanes(self.mask) {
            let thread = self.w.thread(lane);
            let Some(groups) = self.w.copies.loads.get_mut(&lane) else { continue };
            let mut done = Vec::new();
            while groups.closed.len() > most {
                done.extend(groups.closed.pop_front().unwrap_or_default());
            }
            let epoch = groups.count - groups.closed.len() as u32;
            for small in done {
                for part in &small.parts {
                    part.load(self.run, self.b);
                }
            }
            let agent = self.b.copies_agent(thread);
            if epoch > 0 && !self.w.know[lane as usize].has(agent, epoch) {
                self.learn_own(lane, &[agent], epoch);
            }
        }
        Ok(Flow::Next)
    }

    fn wait_stores(&mut self, most: usize, only_read: bool) -> Check<Flow> {
        for lane in lanes(self.mask) {
            let thread = self.w.thread(lane);
            let Some(mut groups) = self.w.copies.stores.remove(&lane) else { continue };
            let count = groups.closed.len();
            for small in groups.closed.iter_mut().take(count.saturating_sub(most)).flatten() {
                small.take(self.b);
            }
            let epoch = groups.count.saturating_sub(most as u32);
            let (reads, writes) = (self.b.bulk_reads_agent(thread), self.b.bulk_writes_agent(thread));
            if only_read {
                self.learn_own(lane, &[reads], epoch);
            } else {
                while groups.closed.len() > most {
                    for mut small in groups.closed.pop_front().unwrap_or_default() {
                        small.put(self.run, self.b);
                    }
                }
                self.learn_own(lane, &[reads, writes], epoch);
            }
            self.w.copies.stores.insert(lane, groups);
        }
        Ok(Flow::Next)
    }

    /// The tensor map of a copy, and its coordinates.
    fn map(&mut self, n: usize, lane: u32) -> Check<(TensorMap, Vec<i32>)> {
        let inst = self.inst;
        let Some(Arg::Tensor(map, at)) = inst.args.get(n) else {
            return problem(Fault::BadOperand, "expected a tensor map");
        };
        let address = self.register(*map, self.mask)?[lane as usize];
        let mut place = Vec::new();
        for r in at {
            place.push(self.register(*r, self.mask)?[lane as usize] as u32 as i32);
        }
        if !address.is_multiple_of(64) {
            return at_address(Fault::Misaligned, lane, address, "a tensor map must be aligned to 64");
        }
        let param = address.checked_sub(PARAM_BASE).and_then(|at| usize::try_from(at).ok());
        let bytes = param.and_then(|at| self.run.params.get(at..at + BYTES).map(<[u8]>::to_vec));
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => match self.run.global.at(address, BYTES) {
                Some((region, at)) => region.bytes.get(at..at + BYTES).map(<[u8]>::to_vec).unwrap_or_default(),
                None => {
                    let message = "no tensor map at this address: neither a parameter's generic address (`cvta.param`) nor a buffer";
                    return at_address(Fault::OutOfBounds, lane, address, message);
                }
            },
        };
        let map = TensorMap::decode(&bytes).or_else(|e| at_address(Fault::BadOperand, lane, address, e))?;
        if map.extents.len() != place.len() {
            return at_lane(
                Fault::BadOperand,
                lane,
                format!("{} coordinates; the map has {} axes", place.len(), map.extents.len()),
            );
        }
        Ok((map, place))
    }

    /// Splits a box into parts of at most 8 bytes that are contiguous in both memories.
    fn parts(map: &TensorMap, place: &[i32], shared: u32) -> Vec<CopySegment> {
        let size = map.elem.bytes();
        let fill = if map.fill_nan { nan(map.elem) } else { 0 };
        let fill = (0..8 / size).fold(0, |all, n| all | fill << (8 * size * n));
        let mut parts: Vec<CopySegment> = Vec::new();
        for (n, global) in map.elements(place).into_iter().enumerate() {
            let linear = u64::from(shared) + n as u64 * u64::from(size);
            let at = map.swizzle.apply(linear) as usize - SHARED_BASE as usize;
            if let Some(last) = parts.last_mut()
                && last.bytes + size <= 8
                && last.shared + last.bytes as usize == at
                && last.shared.is_multiple_of(8)
                && match (last.global, global) {
                    (None, None) => true,
                    (Some(a), Some(b)) => a + u64::from(last.bytes) == b,
                    _ => false,
                }
            {
                last.bytes += size;
                continue;
            }
            parts.push(CopySegment { shared: at, global, bytes: size, fill });
        }
        parts
    }

    fn box_load(&mut self, multicast: Multicast, _hint: Hint) -> Check<Flow> {
        let (to, at) = (self.addresses(0)?, self.addresses(2)?);
        let targets = if multicast == Multicast::Many { Some(self.value(3)?) } else { None };
        for lane in lanes(self.mask) {
            let i = lane as usize;
            let (map, place) = self.map(1, lane)?;
            let bytes = map.box_bytes();
            let (shared, mbarrier) = (self.own_shared(lane, to[i])?, self.own_shared(lane, at[i])?);
            self.shared_at(lane, u64::from(shared), bytes, 128)?;
            let parts = Self::parts(&map, &place, shared);
            self.issue(lane, &parts, mbarrier, bytes, targets.map(|t| t[i] as u16))?;
        }
        Ok(Flow::Next)
    }

    fn bulk_load(&mut self) -> Check<Flow> {
        let (to, from, bytes, at) = (self.addresses(0)?, self.addresses(1)?, self.value(2)?, self.addresses(3)?);
        for lane in lanes(self.mask) {
            let i = lane as usize;
            let (shared, mbarrier) = (self.own_shared(lane, to[i])?, self.own_shared(lane, at[i])?);
            let parts = self.line(lane, shared, from[i], bytes[i])?;
            self.issue(lane, &parts, mbarrier, bytes[i] as u32, None)?;
        }
        Ok(Flow::Next)
    }

    /// The parts of a bulk copy, checked.
    fn line(&self, lane: u32, shared: u32, global: u64, bytes: u64) -> Check<Vec<CopySegment>> {
        if !bytes.is_multiple_of(16) || bytes == 0 || bytes >= 1 << 20 {
            return at_lane(Fault::BadOperand, lane, format!("{bytes} bytes; a bulk copy moves a multiple of 16"));
        }
        if !global.is_multiple_of(16) {
            return at_address(Fault::Misaligned, lane, global, "a bulk copy must be aligned to 16");
        }
        let at = self.shared_at(lane, u64::from(shared), bytes as u32, 16)?;
        let part =
            |n: u64| CopySegment { shared: at + 8 * n as usize, global: Some(global + 8 * n), bytes: 8, fill: 0 };
        Ok((0..bytes / 8).map(part).collect())
    }

    /// Checks that an address is in the block's own shared memory.
    fn own_shared(&self, lane: u32, address: u64) -> Check<u32> {
        match split(address) {
            (None, local) => Ok(local),
            (Some(rank), local) if rank == self.b.rank => Ok(local),
            (Some(rank), _) => at_address(
                Fault::BadOperand,
                lane,
                address,
                format!("it is in block {rank} of the cluster; only multicast goes there"),
            ),
        }
    }

    /// Issues a copy to shared memory, of this block or of the cluster's blocks in a mask.
    fn issue(
        &mut self,
        lane: u32,
        parts: &[CopySegment],
        mbarrier: u32,
        bytes: u32,
        targets: Option<u16>,
    ) -> Check<()> {
        let own = self.b.rank;
        let size: u32 = self.run.cluster.iter().product();
        let targets = targets.unwrap_or(1 << own);
        if u32::from(targets) >> size != 0 || targets == 0 {
            return at_lane(Fault::BadOperand, lane, format!("blocks {targets:#x} of a cluster of {size}"));
        }
        let thread = self.w.thread(lane);
        let know = Rc::clone(&self.w.know[lane as usize]);
        let (pc, warp, number, late) = (self.pc, self.w.number, self.b.number, self.run.is_late());
        for rank in lanes(u32::from(targets)) {
            if rank == own {
                let at = self.mbarrier_of_copy(lane, u64::from(mbarrier))?;
                let Some(m) = self.b.mbarriers.get(&at) else { continue };
                let (agent, epoch) = (self.b.mbarrier_agent(m.number), m.epoch());
                let label = self.agent_label(agent, epoch);
                for part in parts {
                    self.note_global(
                        lane,
                        part,
                        &GlobalAccess { write: false, label, is_async: true, reach: Reach::Plain },
                    )?;
                    let access =
                        Access { label, know: &know, reach: Reach::Plain, is_async: true, thread, own: number };
                    note_shared(self.b, part, true, lane, &access)?;
                }
                let p = Pending { parts: parts.to_vec(), at: (number, at), epoch, bytes, pc, warp, due: 0 };
                if late {
                    self.b.pending.push(p);
                } else {
                    self.run.land(self.b, &p)?;
                }
                continue;
            }
            // Takes the block out of the launch, so that both can be borrowed mutably.
            let first = self.b.number - own;
            let place = self.run.blocks.iter().position(|b| b.as_ref().is_some_and(|b| b.number == first + rank));
            let Some(place) = place else {
                return at_lane(Fault::BadOperand, lane, "a block of the cluster has ended");
            };
            let Some(mut mate) = self.run.blocks.get_mut(place).and_then(Option::take) else { continue };
            let result =
                issue_to(self.run, &mut mate, (lane, thread, number), &know, parts, (mbarrier, bytes, pc, warp, late));
            if let Some(slot) = self.run.blocks.get_mut(place) {
                *slot = Some(mate);
            }
            result?;
        }
        self.w.effects += 1;
        Ok(())
    }

    fn box_store(&mut self, adds: bool) -> Check<Flow> {
        let from = self.addresses(1)?;
        for lane in lanes(self.mask) {
            let i = lane as usize;
            let (map, place) = self.map(0, lane)?;
            let shared = self.own_shared(lane, from[i])?;
            self.shared_at(lane, u64::from(shared), map.box_bytes(), 128)?;
            let mut parts = Self::parts(&map, &place, shared);
            if adds {
                // Elements are added one by one.
                let size = map.elem.bytes();
                let split = |p: CopySegment| {
                    (0..p.bytes / size).map(move |n| CopySegment {
                        shared: p.shared + (n * size) as usize,
                        global: p.global.map(|a| a + u64::from(n * size)),
                        bytes: size,
                        fill: 0,
                    })
                };
                parts = parts.into_iter().flat_map(split).collect();
            }
            // Elements outside are not written.
            parts.retain(|p| p.global.is_some());
            self.issue_store(lane, parts, adds.then_some(map.elem))?;
        }
        Ok(Flow::Next)
    }

    fn bulk_store(&mut self) -> Check<Flow> {
        let (to, from, bytes) = (self.addresses(0)?, self.addresses(1)?, self.value(2)?);
        for lane in lanes(self.mask) {
            let i = lane as usize;
            let shared = self.own_shared(lane, from[i])?;
            let parts = self.line(lane, shared, to[i], bytes[i])?;
            self.issue_store(lane, parts, None)?;
        }
        Ok(Flow::Next)
    }

    fn issue_store(&mut self, lane: u32, parts: Vec<CopySegment>, adds: Option<Type>) -> Check<()> {
        let thread = self.w.thread(lane);
        let epoch = self.w.copies.stores.entry(lane).or_default().count + 1;
        let (reads, writes) = (self.b.bulk_reads_agent(thread), self.b.bulk_writes_agent(thread));
        let (reads, writes) = (self.agent_label(reads, epoch), self.agent_label(writes, epoch));
        for part in &parts {
            if !self.b.shared.is_known(part.shared, part.bytes as usize) {
                return at_address(
                    Fault::Uninitialised,
                    lane,
                    shared_address(part.shared),
                    "the copy reads uninitialised shared memory",
                );
            }
            let know = &self.w.know[lane as usize];
            let access = Access { label: reads, know, reach: Reach::Plain, is_async: true, thread, own: self.b.number };
            note_shared(self.b, part, false, lane, &access)?;
            // Additions are atomic, so they do not race with other atomic updates.
            let reach = if adds.is_some() { Reach::Grid } else { Reach::Plain };
            self.note_global(lane, part, &GlobalAccess { write: true, label: writes, is_async: true, reach })?;
        }
        self.run.stats.copied_bytes += parts.iter().map(|p| u64::from(p.bytes)).sum::<u64>();
        let mut small = Small { parts, taken: None, adds };
        if !self.run.is_late() {
            small.put(self.run, self.b);
            small.parts.clear();
            small.taken = None;
        }
        if let Some(groups) = self.w.copies.stores.get_mut(&lane) {
            groups.open.push(small);
        }
        self.w.effects += 1;
        Ok(())
    }
}

/// Issues a copy for a thread of another block of the cluster.
fn issue_to(
    run: &mut Run<'_>,
    mate: &mut Block,
    (lane, thread, own): (u32, u32, u32),
    know: &Know,
    parts: &[CopySegment],
    (mbarrier, bytes, pc, warp, late): (u32, u32, u32, u32, bool),
) -> Check<()> {
    let Some(m) = mate.mbarriers.get(&mbarrier) else {
        let message = "no mbarrier was initialised here in the other block";
        return at_address(Fault::MbarrierMisuse, lane, u64::from(mbarrier), message);
    };
    let (agent, epoch) = (mate.mbarrier_agent(m.number), m.epoch());
    let label = Label { block: mate.number, agent, epoch };
    for part in parts {
        let access = Access { label, know, reach: Reach::Plain, is_async: true, thread, own };
        note_shared(mate, part, true, lane, &access)?;
    }
    let p = Pending { parts: parts.to_vec(), at: (mate.number, mbarrier), epoch, bytes, pc, warp, due: 0 };
    if late {
        mate.pending.push(p);
        return Ok(());
    }
    run.land(mate, &p)
}
