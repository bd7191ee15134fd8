//! Blocks, jumps, roles.
//!
//! In: the control flow of a kernel. Out: labels and branches. Block arguments become moves before
//! a jump. Each role has its own code, even where several roles begin at one block: the arguments
//! that a role passes are then constants, which resolves barrier numbers. Elementwise work is
//! handed to `elements` a stretch at a time.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{
    Code, Group, NAMED_BARRIERS, Number, ROLE_BARRIERS, ValueLocation, int, moved_type, register_type, word,
};
use crate::ptx::words::{Compare, MaxReg};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as W};
use crate::tile::{Block, BlockCall, GpuOp, Inst, InstData, Op, Role, Terminator, Type, Value};

/// Initial registers per thread of a kernel with roles: ptxas's choice for a block of this many
/// threads.
fn launch_registers(threads: i64) -> i64 {
    (65_536 / threads.max(1) / 8 * 8).min(248)
}

impl Code<'_> {
    pub(super) fn whole(&mut self) -> Result<(), String> {
        self.head()?;
        let entry = self.body.entry();
        self.blocks(entry, &[])
    }

    /// Compiles the blocks reachable from `first`, whose arguments are `given`.
    fn blocks(&mut self, first: Block, given: &[Number]) -> Result<(), String> {
        let mut reached = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(b) = open.pop() {
            let terminator = &self.body.block(b).terminator;
            // Roles have their own blocks.
            let targets = if matches!(terminator, Terminator::Roles(_)) { Vec::new() } else { terminator.targets() };
            open.extend(targets.into_iter().map(|c| c.block).filter(|b| reached.insert(*b)));
        }
        let mut order = vec![first];
        order.extend(self.body.layout.iter().copied().filter(|b| *b != first && reached.contains(b)));
        let mut labels: BTreeMap<Block, String> = BTreeMap::new();
        for b in &order {
            let label = self.label("b");
            labels.insert(*b, label);
            let is_first = *b == first;
            for (n, v) in self.body.block(*b).args.clone().into_iter().enumerate() {
                match given.get(n).filter(|_| is_first) {
                    Some(number) => drop(self.held.insert(v, ValueLocation::Number(*number))),
                    None => self.argument(v)?,
                }
            }
        }
        for (n, b) in order.iter().enumerate() {
            if *b != first {
                self.e.kernel.label(labels.get(b).cloned().unwrap_or_default());
            }
            self.block(*b)?;
            let next = order.get(n + 1).copied();
            self.terminator(*b, next, &labels)?;
        }
        Ok(())
    }

    /// Allocates registers for a block argument.
    fn argument(&mut self, v: Value) -> Result<(), String> {
        let name = self.name(v);
        let ty = self.body.ty(v).clone();
        let held = match &ty {
            Type::Index => ValueLocation::Number(Number::Reg(self.reg(&name, RegType::B64))),
            Type::Scalar(elem) => ValueLocation::Scalar(self.reg(&name, register_type(*elem))),
            Type::Tile(t) if matches!(t.space, crate::tile::Space::Fragment(_)) => {
                let (count, is_operand) = self.registers_of(t)?;
                let ty = if is_operand { RegType::B32 } else { register_type(t.elem) };
                let list = (0..count).map(|_| self.reg(&name, ty)).collect();
                if is_operand { ValueLocation::Operand(list) } else { ValueLocation::Elements(list) }
            }
            Type::Tile(_) | Type::Slot(_) | Type::Group(..) | Type::Pending(..) => {
                let of_products =
                    matches!(ty, Type::Group(crate::tile::Queue::Mma, _) | Type::Pending(crate::tile::Queue::Mma, _));
                if of_products {
                    return Err("an asynchronous matmul cannot be an argument of a block".into());
                }
                let at = self.reg(&name, RegType::B32);
                ValueLocation::Shared(super::code::Shared { at, barriers: None })
            }
            Type::Buffer(_) | Type::Ring { .. } => return Err("a buffer cannot be an argument of a block".into()),
        };
        self.held.insert(v, held);
        Ok(())
    }

    /// A block without its terminator.
    fn block(&mut self, b: Block) -> Result<(), String> {
        let insts = self.body.block(b).insts.clone();
        let mut n = 0;
        while let Some(inst) = insts.get(n).copied() {
            let rest = insts.get(n..).unwrap_or_default();
            let work = rest.iter().take_while(|i| self.is_element_work(**i)).count();
            let count = work.max(self.stored_stretch(rest));
            if count > 0 {
                self.stretch(rest.get(..count).unwrap_or_default())?;
                n += count;
                continue;
            }
            let data = self.body.inst(inst).clone();
            self.instruction(inst, &data)?;
            n += 1;
        }
        Ok(())
    }

    /// Compiles an operation that is not elementwise work on fragments.
    pub(super) fn instruction(&mut self, inst: Inst, data: &InstData) -> Result<(), String> {
        if self.simple(inst, data)? {
            return Ok(());
        }
        self.note(inst);
        match &data.op {
            Op::Reduce { .. } => self.reduce(data),
            Op::Gpu(op) => self.gpu(inst, data, op),
            other => Err(format!("{} is not supported in a kernel of fragments", other.info().name)),
        }
    }

    /// An operation on shared memory, fragments or barriers.
    fn gpu(&mut self, inst: Inst, data: &InstData, op: &GpuOp) -> Result<(), String> {
        match op {
            GpuOp::SharedSlot { offset } => self.shared_slot(data, *offset),
            GpuOp::CopyAsync { rows, cols, panels } => self.copy_async(data, [*rows, *cols], *panels),
            GpuOp::Commit => self.commit(data),
            GpuOp::Wait { pending } => self.wait(inst, data, *pending),
            GpuOp::Release => self.release(data),
            GpuOp::Barrier => {
                self.push(P::BarSync {}, [int(0)]);
                Ok(())
            }
            GpuOp::LoadFragment => self.load_fragment(inst, data),
            GpuOp::Pack => self.pack(data),
            GpuOp::Mma => self.mma(data),
            GpuOp::MmaScaled { bits } => self.mma_scaled(data, *bits),
            GpuOp::ConvertLayout => self.convert_layout(data),
            GpuOp::Ring { offset, barriers, .. } => self.ring(data, *offset, *barriers),
            GpuOp::RingAcquire => self.ring_acquire(data),
            GpuOp::TmaLoad { rows, cols } => self.tma_load(data, [*rows, *cols]),
            GpuOp::RingWait => self.ring_wait(data),
            GpuOp::RingRelease => self.ring_release(data),
            GpuOp::WgmmaFence => {
                self.push(P::WgmmaFence {}, []);
                Ok(())
            }
            GpuOp::Wgmma { trans_b } => self.wgmma(inst, data, *trans_b),
            GpuOp::NamedBarrier { threads, wait } => self.named_barrier(data, *threads, *wait),
            GpuOp::Blocks | GpuOp::GridBarrier => Err(format!("{} is not supported in a kernel of fragments", data.op)),
        }
    }

    /// Compiles a terminator; `next` is the block whose code follows.
    fn terminator(&mut self, b: Block, next: Option<Block>, labels: &BTreeMap<Block, String>) -> Result<(), String> {
        let label = |b: Block| labels.get(&b).cloned().ok_or("a jump to a block outside of the role");
        match self.body.block(b).terminator.clone() {
            Terminator::Return(_) => self.push(P::Ret {}, []),
            Terminator::Br(call) => {
                self.hand_over(&call)?;
                if Some(call.block) != next {
                    self.push(P::BraUniform {}, [Operand::Label(label(call.block)?)]);
                }
            }
            Terminator::BrIf { condition, then, otherwise } => {
                let p = self.scalar(condition)?;
                if then.args.is_empty() && otherwise.args.is_empty() {
                    // Branch to the target that does not follow.
                    if Some(then.block) == next {
                        self.e.kernel.push_if(p, true, P::BraUniform {}, [Operand::Label(label(otherwise.block)?)]);
                    } else {
                        self.e.kernel.push_if(p, false, P::BraUniform {}, [Operand::Label(label(then.block)?)]);
                        if Some(otherwise.block) != next {
                            self.push(P::BraUniform {}, [Operand::Label(label(otherwise.block)?)]);
                        }
                    }
                } else {
                    let other = self.label("else");
                    self.e.kernel.push_if(p, true, P::BraUniform {}, [Operand::Label(other.clone())]);
                    self.hand_over(&then)?;
                    self.push(P::BraUniform {}, [Operand::Label(label(then.block)?)]);
                    self.e.kernel.label(other);
                    self.hand_over(&otherwise)?;
                    if Some(otherwise.block) != next {
                        self.push(P::BraUniform {}, [Operand::Label(label(otherwise.block)?)]);
                    }
                }
            }
            Terminator::Roles(roles) => self.roles(&roles)?,
        }
        Ok(())
    }

    /// Passes arguments to a block, as a parallel move.
    fn hand_over(&mut self, call: &BlockCall) -> Result<(), String> {
        let args = self.body.block(call.block).args.clone();
        let mut moves: Vec<(Reg, Operand, W)> = Vec::new();
        for (from, to) in call.args.iter().zip(&args) {
            let name = self.name(*to);
            let missing = || format!("{from} has no registers");
            match (self.held.get(from).cloned().ok_or_else(missing)?, self.held.get(to).cloned().ok_or_else(missing)?) {
                (ValueLocation::Number(x), ValueLocation::Number(Number::Reg(r))) => {
                    moves.push((r, self.operand(x), W::B64))
                }
                (ValueLocation::Number(x), ValueLocation::Number(y)) if x == y => {}
                (ValueLocation::Scalar(x), ValueLocation::Scalar(r)) => {
                    let ty = self.body.ty(*to).elem().map_or(W::B32, moved_type);
                    moves.push((r, word(x), ty));
                }
                (ValueLocation::Elements(x), ValueLocation::Elements(y)) if x.len() == y.len() => {
                    let ty = self.body.ty(*to).elem().map_or(W::B32, moved_type);
                    moves.extend(x.iter().zip(y).map(|(x, y)| (y, word(*x), ty)));
                }
                (ValueLocation::Operand(x), ValueLocation::Operand(y)) if x.len() == y.len() => {
                    moves.extend(x.iter().zip(y).map(|(x, y)| (y, word(*x), W::B32)));
                }
                (ValueLocation::Shared(x), ValueLocation::Shared(y)) => moves.push((y.at, word(x.at), W::B32)),
                _ => return Err(format!("{name} cannot be passed to a block")),
            }
        }
        moves.retain(|(to, from, _)| *from != word(*to));
        // A source that an earlier move overwrites is saved in a temporary register.
        let mut written: BTreeSet<Reg> = BTreeSet::new();
        let mut saved: BTreeMap<Reg, (Reg, W)> = BTreeMap::new();
        for (to, from, ty) in &moves {
            if let Operand::Reg(r) = from
                && written.contains(r)
                && !saved.contains_key(r)
            {
                let copy = self.reg("kept", RegType::for_type(*ty));
                saved.insert(*r, (copy, *ty));
            }
            written.insert(*to);
        }
        for (r, (copy, ty)) in &saved {
            self.push(P::Mov { ty: *ty }, [word(*copy), word(*r)]);
        }
        for (to, from, ty) in moves {
            let from = match from {
                Operand::Reg(r) => word(saved.get(&r).map_or(r, |(copy, _)| *copy)),
                other => other,
            };
            self.push(P::Mov { ty }, [word(to), from]);
        }
        Ok(())
    }

    /// Splits the warps: each role branches to its own code.
    fn roles(&mut self, roles: &[Role]) -> Result<(), String> {
        self.begin_barriers()?;
        let all = self.group.clone();
        let warps: i64 = roles.iter().map(|r| i64::from(r.warps)).sum();
        let launch = launch_registers(warps * 32);
        let mut starts = Vec::new();
        let mut first = 0;
        for (n, role) in roles.iter().enumerate() {
            let label = self.label(&format!("role_{}_", identifier(&role.name)));
            starts.push((first, label.clone()));
            first += i64::from(role.warps) * 32;
            if n + 1 < roles.len() {
                let here = self.compare32("role", Compare::Lt, all.thread, first);
                self.e.kernel.push_if(here, false, P::BraUniform {}, [Operand::Label(label)]);
            }
        }
        // The last role's code follows; the others have labels.
        let order = (0..roles.len()).rev();
        for n in order {
            let (Some(role), Some((first, label))) = (roles.get(n), starts.get(n).cloned()) else { continue };
            let before = self.held.clone();
            self.e.kernel.label(label);
            self.e.kernel.comment(&format!("\"{}\", {} warps", role.name, role.warps));
            let barrier = ROLE_BARRIERS + i64::try_from(n).unwrap_or(ROLE_BARRIERS);
            if barrier >= NAMED_BARRIERS {
                return Err(format!(
                    "{} roles, but at most {} are supported",
                    roles.len(),
                    NAMED_BARRIERS - ROLE_BARRIERS
                ));
            }
            self.group = Group { warps: i64::from(role.warps), barrier, prefix: format!("r{n}_"), ..all.clone() };
            let registers = i64::from(role.registers);
            let action = if registers < launch { MaxReg::Decrease } else { MaxReg::Increase };
            self.push(P::SetMaxReg { action }, [int(registers)]);
            if self.is_for_one_thread(role.target.block) {
                self.group.is_single = true;
                let others = self.compare32("others", Compare::Ne, all.thread, first);
                self.e.kernel.push_if(others, false, P::Ret {}, []);
            } else {
                self.threads(first)?;
            }
            let mut given = Vec::new();
            for v in &role.target.args {
                given.push(self.index(*v)?);
            }
            self.blocks(role.target.block, &given)?;
            self.held = before;
            self.group = all.clone();
        }
        Ok(())
    }

    /// Do the blocks reachable from `first` use no fragments, so that a single thread can execute
    /// them?
    fn is_for_one_thread(&self, first: Block) -> bool {
        let mut reached = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(b) = open.pop() {
            let data = self.body.block(b);
            let simple = data.insts.iter().all(|i| {
                let d = self.body.inst(*i);
                let makes = d.result.map(|v| self.body.ty(v));
                matches!(d.op, Op::Gpu(GpuOp::RingAcquire | GpuOp::TmaLoad { .. }))
                    || matches!(makes, Some(Type::Index | Type::Scalar(_)))
            });
            if !simple {
                return false;
            }
            open.extend(data.terminator.targets().into_iter().map(|c| c.block).filter(|b| reached.insert(*b)));
        }
        true
    }
}

fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
