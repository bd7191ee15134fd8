//! Loads, stores and atomic operations of threads.

use std::rc::Rc;

use super::atomics::atomic;
use super::clock::{Know, Label};
use super::code::Arg;
use super::lanes::{V, bank_conflicts, lanes, sign, zero};
use super::report::{Check, Fault, at_address};
use super::shadow::{Access, Reach};
use super::state::{Ctx, Flow, Wait, conflict, shared_address};
use crate::ptx::Op;
use crate::ptx::words::{Atomic, Ordering, Scope, Space, Type};

/// An access of a warp.
#[derive(Clone, Copy)]
struct WarpAccess {
    space: Space,
    ty: Type,
    count: u32,
    reach: Reach,
    order: Ordering,
    read_only: bool,
}

impl WarpAccess {
    fn plain(space: Space, ty: Type, count: u32) -> WarpAccess {
        WarpAccess { space, ty, count, reach: Reach::Plain, order: Ordering::Relaxed, read_only: false }
    }

    fn ordered(space: Space, ty: Type, order: Ordering, scope: Scope) -> WarpAccess {
        WarpAccess { order, reach: Reach::among(scope), ..WarpAccess::plain(space, ty, 1) }
    }

    fn bytes(self) -> u32 {
        self.ty.bytes() * self.count
    }

    fn acquires(self) -> bool {
        matches!(self.order, Ordering::Acquire | Ordering::AcquireRelease)
    }

    fn releases(self) -> bool {
        matches!(self.order, Ordering::Release | Ordering::AcquireRelease)
    }
}

impl Ctx<'_, '_> {
    /// Checks and records an access of a thread to shared memory; returns its offset.
    pub(super) fn shared_access(&mut self, lane: u32, address: u64, n: u32, write: bool) -> Check<usize> {
        self.shared_ordered(lane, address, n, n, write, Reach::Plain)
    }

    fn shared_ordered(
        &mut self,
        lane: u32,
        address: u64,
        n: u32,
        align: u32,
        write: bool,
        reach: Reach,
    ) -> Check<usize> {
        let at = self.shared_at(lane, address, n, align)?;
        if !self.b.mbarriers.is_empty() {
            let before = self.b.mbarriers.range(..(address as u32).saturating_add(n)).next_back();
            if before.is_some_and(|(m, _)| u64::from(*m) + 8 > address) && !matches!(self.inst.op, Op::BarrierInit {}) {
                return at_address(Fault::MbarrierMisuse, lane, address, "this is an mbarrier, not data");
            }
        }
        let label = self.w.label(self.b.number, lane);
        let access = Access {
            label,
            know: &self.w.know[lane as usize],
            reach,
            is_async: false,
            thread: label.agent,
            own: self.b.number,
        };
        match self.b.shared.shadow.note(at, n as usize, write, &access) {
            Ok(()) => Ok(at),
            Err(c) => Err(conflict(self.b, c, write, false, lane, shared_address(c.at))),
        }
    }

    fn global_access(&mut self, lane: u32, address: u64, kind: WarpAccess, write: bool) -> Check<()> {
        let n = kind.bytes();
        if !address.is_multiple_of(u64::from(n)) {
            return at_address(
                Fault::Misaligned,
                lane,
                address,
                format!("{n} bytes of global memory, not aligned to {n}"),
            );
        }
        let Some((region, at)) = self.run.global.at(address, n as usize) else {
            let near = self.run.global.nearest(address);
            return at_address(Fault::OutOfBounds, lane, address, format!("{n} bytes outside of all buffers: {near}"));
        };
        if kind.read_only && region.shadow.is_written(at, n as usize) {
            let message = "this launch writes these bytes, and the read-only path does not see it";
            return at_address(Fault::Race, lane, address, message);
        }
        let label = self.w.label(self.b.number, lane);
        let know = &self.w.know[lane as usize];
        let access =
            Access { label, know, reach: kind.reach, is_async: false, thread: label.agent, own: self.b.number };
        match region.shadow.note(at, n as usize, write, &access) {
            Ok(()) => Ok(()),
            Err(c) => {
                let address = address - at as u64 + c.at as u64;
                Err(conflict(self.b, c, write, false, lane, address))
            }
        }
    }

    /// Counts a warp's access.
    fn count(&mut self, at: &V, kind: WarpAccess) {
        let bytes = u64::from(kind.bytes());
        if kind.space == Space::Global {
            let mut sectors = [u64::MAX; 32];
            for lane in lanes(self.mask) {
                sectors[lane as usize] = at[lane as usize] / 32;
            }
            sectors.sort_unstable();
            let distinct = sectors.windows(2).filter(|w| w[0] != w[1] && w[0] != u64::MAX).count() as u64;
            let last = u64::from(sectors[31] != u64::MAX);
            self.run.stats.global_accesses += 1;
            self.run.stats.global_sectors += (distinct + last) * bytes.div_ceil(32);
        } else {
            self.run.stats.shared_accesses += 1;
            self.run.stats.bank_conflicts += bank_conflicts(at, self.mask, bytes);
        }
    }

    /// Loads, stores, atomic operations.
    pub(super) fn memory(&mut self, op: Op) -> Check<Flow> {
        match op {
            Op::Ld { vector, ty, .. } => self.load(WarpAccess::plain(Space::Global, ty, vector.count())),
            Op::LdReadOnly { vector, ty, .. } => {
                self.load(WarpAccess { read_only: true, ..WarpAccess::plain(Space::Global, ty, vector.count()) })
            }
            Op::LdShared { vector, ty } => self.load(WarpAccess::plain(Space::Shared, ty, vector.count())),
            Op::LdOrdered { order, scope, space, ty } => self.load(WarpAccess::ordered(space, ty, order, scope)),
            Op::St { vector, ty, .. } => self.store(WarpAccess::plain(Space::Global, ty, vector.count())),
            Op::StShared { vector, ty } => self.store(WarpAccess::plain(Space::Shared, ty, vector.count())),
            Op::StOrdered { order, scope, space, ty } => self.store(WarpAccess::ordered(space, ty, order, scope)),
            Op::Atom { order, scope, space, op, ty } => {
                self.update(WarpAccess::ordered(space, ty, order, scope), Some(op), true)
            }
            Op::Red { order, scope, space, op, ty } => {
                self.update(WarpAccess::ordered(space, ty, order, scope), Some(op), false)
            }
            Op::Cas { order, scope, space, ty } => {
                self.update(WarpAccess::ordered(space, ty, order, scope), None, true)
            }
            _ => Ok(Flow::Next),
        }
    }

    /// Reads checked bits; uninitialised memory is a fault.
    fn read(&mut self, lane: u32, address: u64, kind: WarpAccess, n: u32) -> Check<u64> {
        let (space, bytes) = (kind.space, n as usize);
        let found = match space {
            Space::Shared => {
                let at = self.shared_at(lane, address, n, 1)?;
                self.b.shared.is_known(at, bytes).then(|| self.b.shared.load(at, bytes)).flatten()
            }
            _ => {
                let place = self.run.global.at(address, bytes);
                place.and_then(|(region, at)| region.is_known(at, bytes).then(|| region.load(at, bytes)).flatten())
            }
        };
        match found {
            Some(v) => Ok(v),
            None => at_address(Fault::Uninitialised, lane, address, format!("{n} bytes of uninitialised memory")),
        }
    }

    fn write(&mut self, address: u64, space: Space, n: u32, value: u64) {
        if space == Space::Shared {
            let at = address as usize - super::code::SHARED_BASE as usize;
            self.b.shared.store(at, n as usize, value);
        } else if let Some((region, at)) = self.run.global.at(address, n as usize) {
            region.store(at, n as usize, value);
        }
    }

    fn check(&mut self, lane: u32, address: u64, kind: WarpAccess, write: bool) -> Check<()> {
        if kind.space == Space::Shared {
            let n = kind.bytes();
            self.shared_ordered(lane, address, n, n, write, kind.reach).map(|_| ())
        } else {
            self.global_access(lane, address, kind, write)
        }
    }

    fn load(&mut self, kind: WarpAccess) -> Check<Flow> {
        let at = self.addresses(1)?;
        self.count(&at, kind);
        let n = kind.ty.bytes();
        let mut d = [[0u64; 32]; 4];
        let mut seen = 0u64;
        for lane in lanes(self.mask) {
            let i = lane as usize;
            self.check(lane, at[i], kind, false)?;
            for part in 0..kind.count {
                let v = self.read(lane, at[i] + u64::from(part * n), kind, n)?;
                let signed = kind.ty.is_signed() && kind.ty.bits() < 64;
                d[part as usize][i] = if signed { sign(v, kind.ty.bits()) as u64 } else { v };
            }
            if kind.reach > Reach::Plain {
                self.meet(lane, at[i], kind);
                seen = seen.rotate_left(7) ^ d[0][i].wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at[i];
            }
        }
        let inst = self.inst;
        match inst.args.first() {
            Some(Arg::Regs(regs)) => {
                for (r, d) in regs.iter().zip(&d) {
                    self.set_register(*r, d);
                }
            }
            _ => self.set(0, &d[0]),
        }
        if kind.reach > Reach::Plain && self.polls_in_vain(seen) {
            return Ok(Flow::NextAfter(Wait::Poll(self.run.events)));
        }
        Ok(Flow::Next)
    }

    fn store(&mut self, kind: WarpAccess) -> Check<Flow> {
        let at = self.addresses(0)?;
        self.count(&at, kind);
        let inst = self.inst;
        let mut parts = [[0u64; 32]; 4];
        match inst.args.get(1) {
            Some(Arg::Regs(regs)) => {
                for (part, r) in parts.iter_mut().zip(regs) {
                    *part = self.register(*r, self.mask)?;
                }
            }
            _ => parts[0] = self.value(1)?,
        }
        let n = kind.ty.bytes();
        for lane in lanes(self.mask) {
            let i = lane as usize;
            self.check(lane, at[i], kind, true)?;
            for part in 0..kind.count {
                self.write(at[i] + u64::from(part * n), kind.space, n, parts[part as usize][i]);
            }
            if kind.reach > Reach::Plain {
                self.publish(lane, at[i], kind, false);
            }
        }
        self.w.effects += 1;
        if kind.reach > Reach::Plain {
            self.w.epoch += 1;
            self.run.events += 1;
        }
        Ok(Flow::Next)
    }

    fn update(&mut self, kind: WarpAccess, op: Option<Atomic>, gives: bool) -> Check<Flow> {
        let first = usize::from(gives);
        let at = self.addresses(first)?;
        self.count(&at, kind);
        let b = self.value(first + 1)?;
        let c = if op.is_none() { self.value(first + 2)? } else { b };
        let n = kind.ty.bytes();
        let mut d = [0; 32];
        let (mut changed, mut seen) = (false, 1u64);
        for lane in lanes(self.mask) {
            let i = lane as usize;
            self.check(lane, at[i], kind, true)?;
            let old = self.read(lane, at[i], kind, n)?;
            d[i] = old;
            let new = match op {
                None if old == zero(b[i], kind.ty.bits()) => c[i],
                None => old,
                Some(op) => atomic(op, kind.ty, old, b[i]),
            };
            let new = zero(new, kind.ty.bits());
            changed |= new != old;
            seen = seen.rotate_left(7) ^ old.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at[i];
            self.write(at[i], kind.space, n, new);
            self.meet(lane, at[i], kind);
            self.publish(lane, at[i], kind, true);
        }
        self.w.epoch += 1;
        if changed {
            self.event();
        }
        if gives {
            self.set(0, &d);
            if !changed && self.polls_in_vain(seen) {
                return Ok(Flow::NextAfter(Wait::Poll(self.run.events)));
            }
        }
        Ok(Flow::Next)
    }

    fn key(&self, address: u64, space: Space) -> (u32, u64) {
        (if space == Space::Shared { self.b.number + 1 } else { 0 }, address)
    }

    /// An ordered read: acquires the writer's knowledge, now or at the next fence.
    fn meet(&mut self, lane: u32, address: u64, kind: WarpAccess) {
        let Some((block, message)) = self.run.messages.get(&self.key(address, kind.space)).cloned() else { return };
        let own = self.b.number;
        if kind.acquires() {
            if let Some(know) = self.w.know.get_mut(lane as usize) {
                let mut new = Know::clone(know);
                new.learn_from(own, block, &message);
                *know = Rc::new(new);
            }
            return;
        }
        let met = &mut self.w.fences.entry(lane).or_default().acquire;
        if !met.last().is_some_and(|(_, last)| Rc::ptr_eq(last, &message)) {
            met.push((block, message));
        }
    }

    /// An ordered write: releases the thread's knowledge, or its knowledge at the last fence.
    fn publish(&mut self, lane: u32, address: u64, kind: WarpAccess, is_update: bool) {
        let key = self.key(address, kind.space);
        let own = self.b.number;
        let mut message = if kind.releases() {
            let mut know = Know::clone(&self.w.know[lane as usize]);
            know.add(self.w.thread(lane), self.w.epoch);
            Some(know)
        } else {
            self.w.fences.get(&lane).and_then(|f| f.release.clone())
        };
        // An update continues the release sequence of the write before it.
        if is_update && let Some((block, before)) = self.run.messages.get(&key) {
            match &mut message {
                Some(message) => message.learn_from(own, *block, before),
                None => return,
            }
        }
        match message {
            Some(message) => {
                self.run.messages.insert(key, (own, Rc::new(message)));
            }
            None => {
                self.run.messages.remove(&key);
            }
        }
    }

    /// The label of an access by an agent of a lane.
    pub(super) fn agent_label(&self, agent: u32, epoch: u32) -> Label {
        Label { block: self.b.number, agent, epoch }
    }
}
