//! Executes one instruction of a group of lanes: guard, operands, effect.

use std::rc::Rc;

use super::clock::{Know, raise};
use super::code::{Arg, PARAM_BASE, Together};
use super::lanes::{lanes, sign, zero};
use super::report::{Check, Fault, at_lane, problem};
use super::state::{Ctx, Flow, Wait};
use super::transfers::remote;
use super::{convert, float, integer};
use crate::ptx::Op;
use crate::ptx::words::{Redux, Shuffle, Type, Vote};

impl Ctx<'_, '_> {
    /// Executes the instruction for the lanes of a group; `mask` is then the set of lanes whose
    /// guard is true.
    pub(super) fn execute(&mut self, group: u32) -> Check<Flow> {
        if let Some((reg, negated)) = self.inst.guard {
            let holds = self.predicate_of(reg)?;
            self.mask &= if negated { !holds } else { holds };
            if self.mask == 0 {
                return Ok(Flow::Next);
            }
        }
        if let Some(wait) = self.together(group)? {
            return Ok(Flow::Again(wait));
        }
        if !self.inst.touched.is_empty() {
            self.touch()?;
        }
        self.dispatch()
    }

    /// Checks convergence; returns what the group must wait for, if lanes are missing.
    fn together(&mut self, group: u32) -> Check<Option<Wait>> {
        let need = match self.inst.together {
            Together::No => return Ok(None),
            Together::Warp => {
                let is_barrier = matches!(self.inst.op, Op::BarSync {} | Op::BarArrive {} | Op::BarAny {});
                let ended = self.w.full & !self.w.live;
                if ended != 0 && !is_barrier {
                    return at_lane(
                        Fault::Divergence,
                        ended.trailing_zeros(),
                        "this lane has ended, and all lanes of the warp must execute this",
                    );
                }
                self.w.live
            }
            Together::Mask(n) => {
                let masks = self.value(n as usize)?;
                let need = masks[self.mask.trailing_zeros() as usize & 31] as u32;
                if let Some(lane) = lanes(self.mask).find(|lane| masks[*lane as usize] as u32 != need) {
                    return at_lane(Fault::Divergence, lane, "lanes that execute this together have different masks");
                }
                if let Some(lane) = lanes(self.mask & !need).next() {
                    return at_lane(
                        Fault::Divergence,
                        lane,
                        format!("this lane executes it and is not in its mask {need:#x}"),
                    );
                }
                let need = need & self.w.full;
                if let Some(lane) = lanes(need & !self.w.live).next() {
                    return at_lane(
                        Fault::Divergence,
                        lane,
                        format!("this lane is in the mask {need:#x} and has ended"),
                    );
                }
                need
            }
        };
        if need & !group != 0 {
            return Ok(Some(Wait::Together(need)));
        }
        match lanes(need & !self.mask).next() {
            Some(lane) => at_lane(
                Fault::Divergence,
                lane,
                "this lane's predicate is false, but all lanes must execute this together",
            ),
            None => Ok(None),
        }
    }

    fn dispatch(&mut self) -> Check<Flow> {
        let op = self.inst.op;
        match op {
            Op::Mov { ty: Type::Pred } => {
                let p = self.predicate(1)?;
                self.set_predicate(0, p);
            }
            Op::And { ty: Type::Pred } => self.logic(|a, b| a & b)?,
            Op::Or { ty: Type::Pred } => self.logic(|a, b| a | b)?,
            Op::Xor { ty: Type::Pred } => self.logic(|a, b| a ^ b)?,
            Op::Not { ty: Type::Pred } => {
                let p = self.predicate(1)?;
                self.set_predicate(0, !p);
            }
            Op::SetP { compare, ftz, ty } => {
                let (a, b) = (self.value(1)?, self.value(2)?);
                let all = (0..32).filter(|i| float::compares(compare, ftz, ty, a[*i], b[*i]));
                let p = all.fold(0, |p, i| p | 1 << i);
                self.set_predicate(0, p);
            }
            Op::TestFloat { property, ty } => {
                let a = self.value(1)?;
                let p = (0..32).filter(|i| float::is_kind(property, ty, a[*i])).fold(0, |p, i| p | 1 << i);
                self.set_predicate(0, p);
            }
            Op::SelP { .. } => {
                let p = self.predicate(3)?;
                // Only the selected operand must have a value.
                let (a, b) = (self.value_of(1, self.mask & p)?, self.value_of(2, self.mask & !p)?);
                let d = std::array::from_fn(|i| if p >> i & 1 == 1 { a[i] } else { b[i] });
                self.set(0, &d);
            }
            Op::Pack { ty } => {
                let Some(Arg::Regs(parts)) = self.inst.args.get(1) else { return Ok(Flow::Next) };
                let (low, high) = (self.register(parts[0], self.mask)?, self.register(parts[1], self.mask)?);
                let half = ty.bits() / 2;
                let d = std::array::from_fn(|i| high[i] << half | zero(low[i], half));
                self.set(0, &d);
            }
            Op::Unpack { ty } => {
                let a = self.value(1)?;
                let half = ty.bits() / 2;
                if let Some(Arg::Regs(parts)) = self.inst.args.first() {
                    self.set_register(parts[0], &a);
                    self.set_register(parts[1], &a.map(|a| a >> half));
                }
            }
            Op::CvtaToGlobal {} => {
                let a = self.value(1)?;
                self.set(0, &a);
            }
            Op::CvtaParam {} => {
                let a = self.value(1)?;
                self.set(0, &a.map(|a| a.wrapping_add(PARAM_BASE)));
            }
            Op::PrefetchGlobal { .. } | Op::PrefetchTensorMap {} | Op::GridWait {} | Op::GridLaunch {} => {}
            Op::CreatePolicyFirst {} | Op::CreatePolicyLast {} => self.set(0, &[1; 32]),
            Op::SetMaxReg { .. } => {}
            Op::Bra {} | Op::BraUniform {} => {
                let Some(Arg::Label(to)) = self.inst.args.first() else { return Ok(Flow::Next) };
                return Ok(Flow::Jump(*to));
            }
            Op::Ret {} | Op::Exit {} => {
                if self.w.live & !self.mask == 0 {
                    self.w.live = 0;
                    self.run.left(self.b, self.w);
                }
                return Ok(Flow::Exit);
            }
            Op::Trap {} => return problem(Fault::Trap, "the kernel executed `trap`"),
            Op::BarSync {} => return self.bar_of(true),
            Op::BarArrive {} => return self.bar_of(false),
            Op::BarAny {} => return self.bar_any(),
            Op::BarWarp {} => return self.bar_warp(),
            Op::Fence { .. } => self.fence(),
            Op::Shfl { mode } => self.shuffle(mode, false)?,
            Op::ShflPred { mode } => self.shuffle(mode, true)?,
            Op::Vote { vote } => {
                let p = self.predicate(1)? & self.mask;
                let answer = match vote {
                    Vote::All => p == self.mask,
                    Vote::Any => p != 0,
                    Vote::Uniform => p == 0 || p == self.mask,
                };
                self.set_predicate(0, if answer { u32::MAX } else { 0 });
            }
            Op::Ballot {} => {
                let p = self.predicate(1)? & self.mask;
                self.set(0, &[u64::from(p); 32]);
            }
            Op::ActiveMask {} => {
                let mask = self.mask;
                self.set(0, &[u64::from(mask); 32]);
            }
            Op::Redux { op, ty } => self.redux(op, ty)?,
            Op::Elect {} => {
                let leader = self.mask.trailing_zeros();
                if let Some(Arg::Pair(d, p)) = self.inst.args.first() {
                    if let Some(d) = d {
                        self.set_register(*d, &[u64::from(leader); 32]);
                    }
                    if let Some(p) = p {
                        self.set_predicate_register(*p, 1 << leader);
                    }
                }
            }
            Op::LdParam { ty } => self.load_param(ty)?,
            Op::Ld { .. }
            | Op::LdReadOnly { .. }
            | Op::LdShared { .. }
            | Op::LdOrdered { .. }
            | Op::St { .. }
            | Op::StShared { .. }
            | Op::StOrdered { .. }
            | Op::Atom { .. }
            | Op::Cas { .. }
            | Op::Red { .. } => return self.memory(op),
            Op::CpAsync { .. }
            | Op::CpAsyncGlobal { .. }
            | Op::CpCommit {}
            | Op::CpWait {}
            | Op::CpWaitAll {}
            | Op::BoxLoad { .. }
            | Op::BoxStore { .. }
            | Op::BoxAdd { .. }
            | Op::BulkLoad {}
            | Op::BulkStore {}
            | Op::BulkCommit {}
            | Op::BulkWait { .. } => return self.copy(op),
            Op::LdMatrix { .. } | Op::StMatrix { .. } | Op::Mma { .. } => return self.matrix(op),
            Op::WgmmaFence {}
            | Op::WgmmaCommit {}
            | Op::WgmmaWait {}
            | Op::Wgmma { .. }
            | Op::WgmmaRegisters { .. } => return self.wgmma(op),
            Op::BarrierInit {} => return self.mbarrier_init(),
            Op::BarrierInvalidate {} => return self.mbarrier_inval(),
            Op::BarrierArrive {} => return self.mbarrier_arrive(1, None, true, true),
            Op::BarrierArriveExpect {} => return self.mbarrier_arrive(1, Some(2), true, true),
            Op::BarrierExpect {} => return self.mbarrier_arrive(0, Some(1), false, false),
            Op::BarrierArriveRemote {} => return self.mbarrier_arrive_remote(),
            Op::BarrierTryWait {} | Op::BarrierTestWait {} => return self.mbarrier_wait(),
            Op::FenceBarrierInit {} => self.show_mbarriers(),
            Op::FenceProxy {} | Op::FenceProxyShared { .. } => self.fence_proxy(),
            Op::ClusterArrive {} => return self.cluster_arrive(),
            Op::ClusterWait {} => return self.cluster_wait(),
            Op::MapShared {} => {
                let (a, rank) = (self.value(1)?, self.value(2)?);
                let size: u32 = self.run.cluster.iter().product();
                for lane in lanes(self.mask) {
                    if rank[lane as usize] >= u64::from(size) {
                        return at_lane(
                            Fault::BadOperand,
                            lane,
                            format!("block {} of a cluster of {size}", rank[lane as usize]),
                        );
                    }
                }
                self.set(0, &std::array::from_fn(|i| remote(a[i] as u32, rank[i] as u32)));
            }
            _ => return self.pure(op),
        }
        Ok(Flow::Next)
    }

    /// An instruction whose result depends on its operands alone.
    fn pure(&mut self, op: Op) -> Check<Flow> {
        let mut x = [[0; 32]; 4];
        for (n, x) in x.iter_mut().enumerate().take(self.inst.args.len() - 1) {
            *x = self.value(n + 1)?;
        }
        let mut d = [0; 32];
        if integer::eval(op, &x, &mut d) || float::eval(op, &x, &mut d) || convert::eval(op, &x, &mut d) {
            self.set(0, &d);
            return Ok(Flow::Next);
        }
        problem(Fault::BadOperand, format!("`{}` is not supported by the simulator", op.text()))
    }

    fn logic(&mut self, f: impl Fn(u32, u32) -> u32) -> Check<()> {
        let (a, b) = (self.predicate(1)?, self.predicate(2)?);
        self.set_predicate(0, f(a, b));
        Ok(())
    }

    fn bar_of(&mut self, waits: bool) -> Check<Flow> {
        let id = self.immediate(0) as u8;
        let count = self.inst.args.get(1).map(|_| self.immediate(1) as u32);
        self.bar(id, count, waits, None)
    }

    fn bar_any(&mut self) -> Check<Flow> {
        let (id, count) = (self.immediate(1) as u8, self.immediate(2) as u32);
        let holds = self.predicate(3)? & self.mask != 0;
        self.bar(id, Some(count), true, Some(holds))
    }

    /// A fence: later relaxed writes release the current knowledge, and earlier relaxed reads
    /// acquire.
    fn fence(&mut self) {
        let epoch = self.w.epoch;
        let own = self.b.number;
        for lane in lanes(self.mask) {
            let thread = self.w.thread(lane);
            let fenced = self.w.fences.entry(lane).or_default();
            let Some(know) = self.w.know.get_mut(lane as usize) else { continue };
            if !fenced.acquire.is_empty() {
                let mut new = Know::clone(know);
                for (block, message) in fenced.acquire.drain(..) {
                    new.learn_from(own, block, &message);
                }
                *know = Rc::new(new);
            }
            let mut release = Know::clone(know);
            release.add(thread, epoch);
            fenced.release = Some(release);
        }
        self.w.epoch += 1;
    }

    fn fence_proxy(&mut self) {
        let epoch = self.w.epoch;
        let mut last: Option<(Rc<Know>, Know)> = None;
        for lane in lanes(self.mask) {
            let thread = self.w.thread(lane);
            let Some(know) = self.w.know.get_mut(lane as usize) else { continue };
            let mut new = Know::clone(know);
            // Lanes with the same knowledge share it, apart from their own accesses.
            if let Some((before, after)) = &last
                && Rc::ptr_eq(before, know)
            {
                new.fenced = Rc::clone(&after.fenced);
                raise(Rc::make_mut(&mut new.fenced), thread, epoch);
            } else {
                new.fence(thread, epoch);
            }
            last = Some((Rc::clone(know), new.clone()));
            *know = Rc::new(new);
        }
        self.w.epoch += 1;
        self.show_mbarriers();
    }

    /// `shfl.sync`
    fn shuffle(&mut self, mode: Shuffle, pair: bool) -> Check<()> {
        let (a, b, c) = (self.value(1)?, self.value(2)?, self.value(3)?);
        let (mut d, mut valid) = (a, 0u32);
        for lane in lanes(self.mask) {
            let i = lane as usize;
            let (by, clamp) = (b[i] as u32 & 31, c[i] as u32 & 31);
            let segment = c[i] as u32 >> 8 & 31;
            let most = lane & segment | clamp & !segment;
            let least = lane & segment;
            let (from, ok) = match mode {
                Shuffle::Up => (lane.wrapping_sub(by), lane as i32 - by as i32 >= most as i32),
                Shuffle::Down => (lane + by, lane + by <= most),
                Shuffle::Butterfly => (lane ^ by, lane ^ by <= most),
                Shuffle::Index => {
                    let from = least | by & !segment;
                    (from, from <= most)
                }
            };
            let from = if ok { from & 31 } else { lane };
            if self.mask >> from & 1 == 0 {
                return at_lane(
                    Fault::Divergence,
                    lane,
                    format!("it takes the value of lane {from}, which does not take part"),
                );
            }
            d[i] = a[from as usize];
            valid |= u32::from(ok) << lane;
        }
        match self.inst.args.first() {
            Some(Arg::Pair(first, second)) if pair => {
                if let Some(first) = first {
                    self.set_register(*first, &d);
                }
                if let Some(second) = second {
                    self.set_predicate_register(*second, valid);
                }
            }
            _ => self.set(0, &d),
        }
        Ok(())
    }

    fn redux(&mut self, op: Redux, ty: Type) -> Check<()> {
        let a = self.value(1)?;
        let all = lanes(self.mask).map(|lane| a[lane as usize] as u32);
        let signed = |v: u32| v as i32;
        let d = match (op, ty) {
            (Redux::Add, _) => all.fold(0u32, u32::wrapping_add),
            (Redux::And, _) => all.fold(u32::MAX, |x, y| x & y),
            (Redux::Or, _) => all.fold(0, |x, y| x | y),
            (Redux::Xor, _) => all.fold(0, |x, y| x ^ y),
            (Redux::Min, Type::S32) => all.map(signed).min().unwrap_or(0) as u32,
            (Redux::Max, Type::S32) => all.map(signed).max().unwrap_or(0) as u32,
            (Redux::Min, _) => all.min().unwrap_or(0),
            (Redux::Max, _) => all.max().unwrap_or(0),
        };
        self.set(0, &[u64::from(d); 32]);
        Ok(())
    }

    fn load_param(&mut self, ty: Type) -> Check<()> {
        let Some(Arg::At(_, at)) = self.inst.args.get(1) else { return Ok(()) };
        let (at, n) = (*at as usize, ty.bytes() as usize);
        let Some(bytes) = self.run.params.get(at..at + n) else {
            return problem(Fault::OutOfBounds, "the address is past the end of the parameters");
        };
        let v = bytes.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
        let v = if ty.is_signed() { sign(v, ty.bits()) as u64 } else { v };
        self.set(0, &[v; 32]);
        Ok(())
    }
}
