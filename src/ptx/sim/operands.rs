//! Operands of an instruction in execution: registers of all lanes, addresses, special registers.

use super::code::{Arg, SHARED_BASE};
use super::lanes::{V, lanes};
use super::report::{Check, Fault, Problem, at_address, problem};
use super::state::Ctx;
use crate::ptx::Special;

impl Ctx<'_, '_> {
    /// An immediate operand.
    pub(super) fn immediate(&self, n: usize) -> u64 {
        match self.inst.args.get(n) {
            Some(Arg::Imm(v)) => *v,
            _ => 0,
        }
    }

    /// The values of an operand in the executing lanes.
    pub(super) fn value(&self, n: usize) -> Check<V> {
        self.value_of(n, self.mask)
    }

    /// The values of an operand in some lanes.
    pub(super) fn value_of(&self, n: usize, mask: u32) -> Check<V> {
        match self.inst.args.get(n) {
            Some(Arg::Reg(r)) => self.register(*r, mask),
            Some(Arg::Imm(v)) => Ok([*v; 32]),
            Some(Arg::Special(s)) => Ok(self.special(*s)),
            _ => problem(Fault::BadOperand, format!("operand {n} is not a value")),
        }
    }

    fn missing(&self, r: u32, lane: u32) -> Box<Problem> {
        let name = self.run.code.names.get(r as usize).cloned().unwrap_or_default();
        let message = format!("register `{name}` has no value");
        Box::new(Problem { fault: Fault::Uninitialised, lane: Some(lane), address: None, message })
    }

    /// The values of a register in some lanes.
    pub(super) fn register(&self, r: u32, mask: u32) -> Check<V> {
        let unknown = mask & !self.w.known.get(r as usize).copied().unwrap_or(0);
        if unknown != 0 {
            return Err(self.missing(r, unknown.trailing_zeros()));
        }
        if self.run.code.widths.get(r as usize) == Some(&1) {
            let p = self.w.preds.get(r as usize).copied().unwrap_or(0);
            return Ok(std::array::from_fn(|i| u64::from(p >> i & 1)));
        }
        let at = r as usize * 32;
        match self.w.regs.get(at..at + 32).and_then(|v| V::try_from(v).ok()) {
            Some(v) => Ok(v),
            None => Err(self.missing(r, 0)),
        }
    }

    pub(super) fn predicate_of(&self, r: u32) -> Check<u32> {
        let unknown = self.mask & !self.w.known.get(r as usize).copied().unwrap_or(0);
        if unknown != 0 {
            return Err(self.missing(r, unknown.trailing_zeros()));
        }
        Ok(self.w.preds.get(r as usize).copied().unwrap_or(0))
    }

    /// The lanes in which an operand is true.
    pub(super) fn predicate(&self, n: usize) -> Check<u32> {
        match self.inst.args.get(n) {
            Some(Arg::Reg(r)) => self.predicate_of(*r),
            Some(Arg::Imm(v)) => Ok(if *v == 0 { 0 } else { u32::MAX }),
            _ => problem(Fault::BadOperand, format!("operand {n} is not a predicate")),
        }
    }

    /// Writes a result in the executing lanes.
    pub(super) fn set(&mut self, n: usize, d: &V) {
        if let Some(Arg::Reg(r)) = self.inst.args.get(n) {
            self.set_register(*r, d);
        }
    }

    pub(super) fn set_register(&mut self, r: u32, d: &V) {
        let r = r as usize;
        let bits = self.run.code.widths.get(r).copied().unwrap_or(64);
        let keep = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        let Some(regs) = self.w.regs.get_mut(r * 32..r * 32 + 32) else { return };
        if self.mask == u32::MAX {
            for (to, from) in regs.iter_mut().zip(d) {
                *to = from & keep;
            }
        } else {
            for lane in lanes(self.mask) {
                regs[lane as usize] = d[lane as usize] & keep;
            }
        }
        if let Some(known) = self.w.known.get_mut(r) {
            *known |= self.mask;
        }
    }

    pub(super) fn set_predicate(&mut self, n: usize, p: u32) {
        if let Some(Arg::Reg(r)) = self.inst.args.get(n) {
            self.set_predicate_register(*r, p);
        }
    }

    pub(super) fn set_predicate_register(&mut self, r: u32, p: u32) {
        if let (Some(to), Some(known)) = (self.w.preds.get_mut(r as usize), self.w.known.get_mut(r as usize)) {
            *to = *to & !self.mask | p & self.mask;
            *known |= self.mask;
        }
    }

    /// The addresses of a memory operand in the executing lanes.
    pub(super) fn addresses(&self, n: usize) -> Check<V> {
        match self.inst.args.get(n) {
            Some(Arg::At(Some(r), offset)) => Ok(self.register(*r, self.mask)?.map(|a| a.wrapping_add_signed(*offset))),
            Some(Arg::At(None, at)) => Ok([*at as u64; 32]),
            _ => problem(Fault::BadOperand, format!("operand {n} is not an address")),
        }
    }

    /// Offset of an address in shared memory, checked for alignment and bounds.
    pub(super) fn shared_at(&self, lane: u32, address: u64, n: u32, align: u32) -> Check<usize> {
        if !address.is_multiple_of(u64::from(align)) {
            return at_address(
                Fault::Misaligned,
                lane,
                address,
                format!("{n} bytes of shared memory, not aligned to {align}"),
            );
        }
        let size = self.b.shared.bytes.len() as u64;
        match address.checked_sub(u64::from(SHARED_BASE)) {
            Some(at) if at + u64::from(n) <= size => Ok(at as usize),
            _ => {
                let at = address.wrapping_sub(u64::from(SHARED_BASE)) as i64;
                at_address(
                    Fault::OutOfBounds,
                    lane,
                    address,
                    format!("byte {at} of the block's {size} bytes of shared memory"),
                )
            }
        }
    }

    fn special(&self, s: Special) -> V {
        let axis = |all: [u32; 3], axis: u8| u64::from(all[usize::from(axis.min(2))]);
        let cluster = self.run.cluster;
        let lane_mask = |f: fn(u32) -> u32| std::array::from_fn(|i| u64::from(f(i as u32)));
        match s {
            Special::Tid(a) => {
                let [x, y, _] = self.run.extents;
                let first = self.w.number * 32;
                std::array::from_fn(|i| {
                    let t = first + i as u32;
                    axis([t % x, t / x % y, t / (x * y)], a)
                })
            }
            Special::Ntid(a) => [axis(self.run.extents, a); 32],
            Special::Ctaid(a) => [axis(self.b.at, a); 32],
            Special::Nctaid(a) => [axis(self.run.grid, a); 32],
            Special::Clusterid(a) => [axis([0, 1, 2].map(|i| self.b.at[i] / cluster[i].max(1)), a); 32],
            Special::Laneid => std::array::from_fn(|i| i as u64),
            Special::Warpid => [u64::from(self.w.number); 32],
            Special::LanemaskLt => lane_mask(|i| (1 << i) - 1),
            Special::LanemaskLe => lane_mask(|i| ((1u64 << (i + 1)) - 1) as u32),
            Special::LanemaskEq => lane_mask(|i| 1 << i),
            Special::LanemaskGe => lane_mask(|i| !((1 << i) - 1)),
            Special::LanemaskGt => lane_mask(|i| !(((1u64 << (i + 1)) - 1) as u32)),
            Special::DynamicSmemSize => [u64::from(self.run.dynamic_shared); 32],
            Special::ClusterCtarank => [u64::from(self.b.rank); 32],
            Special::ClusterNctarank => [cluster.iter().map(|n| u64::from(*n)).product(); 32],
            Special::Smid => [u64::from(self.b.number % 132); 32],
            Special::Clock64 => [self.run.stats.warp_instructions; 32],
        }
    }
}
