//! The allocation checker: proves for one function that its register allocation is correct,
//! independently of the allocator.
//!
//! In: the function over virtual registers and the one over physical ones. Out: an error, if there
//! is one. The allocated code is executed symbolically: the state of each location (a register, a
//! frame slot) is the set of virtual registers whose values it holds on every path. An instruction
//! of the original function must read each operand from a location that holds it; a move, load or
//! store of the allocator copies what its source holds. Where paths meet, sets are intersected.
//! This is the checker of Cranelift's allocator (regalloc2, `src/checker.rs`; "Cranelift, Part 4: A
//! New Register Allocator", C. Fallin 2022).
//!
//! Also checked: only copies and constants are omitted; tied operands share a register; `rdi`,
//! `rbp`, `rsp` and the function's own frame slots are not written; all callee-saved registers that
//! are written are saved.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::copied;
use super::{Allocated, GENERAL, SAVED, constants};
use crate::codegen::cpu::wide::machine::{
    Base, BlockData, Class, Constant, Function, Inst, Mem, Op, Operand, Physical, Reg, Target, Terminator,
};

/// Where a value can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Location {
    Register(Physical),
    /// A byte offset in the frame.
    Slot(i32),
    Pool(u32),
}

/// The virtual registers whose values each location holds.
type State = BTreeMap<Location, BTreeSet<Reg>>;

struct Checker<'a> {
    function: &'a Function,
    allocated: &'a Function<Physical>,
    /// The constants that registers hold.
    constants: Vec<Option<u32>>,
    /// State at the start of each block; `None` if not reached yet.
    starts: Vec<Option<State>>,
    /// Worklist of blocks to process again.
    open: Vec<usize>,
}

/// Checks an allocation.
///
/// # Errors
/// The first violation, with its block.
pub(in super::super) fn check(function: &Function, allocated: &Allocated) -> Result<(), String> {
    let blocks = allocated.function.blocks.len();
    if blocks < function.blocks.len() || allocated.from.len() != blocks {
        return Err("blocks are missing".into());
    }
    let mut c = Checker {
        function,
        allocated: &allocated.function,
        constants: constants(function),
        starts: vec![None; blocks],
        open: vec![0],
    };
    c.starts[0] = Some(State::new());
    while let Some(b) = c.open.pop() {
        c.block(b, &allocated.from[b]).map_err(|complaint| format!("^bb{b}: {complaint}"))?;
    }
    let written = allocated.function.blocks.iter().flat_map(|b| &b.insts).filter_map(|i| i.dst);
    for p in written {
        let usable = match p.class {
            Class::Vector => u32::from(p.number) < function.width.registers(),
            Class::Mask => (1..8).contains(&p.number) && function.wide(),
            Class::General => GENERAL.contains(&p.number),
        };
        let kept = p.class == Class::General && SAVED.contains(&p.number) && !allocated.saved.contains(&p.number);
        if !usable || kept {
            return Err(format!("{p:?} must not be written"));
        }
    }
    Ok(())
}

impl Checker<'_> {
    /// Executes a block symbolically.
    fn block(&mut self, b: usize, from: &[Option<u32>]) -> Result<(), String> {
        let Some(mut state) = self.starts[b].clone() else { return Ok(()) };
        let allocated: &BlockData<Physical> = &self.allocated.blocks[b];
        // Blocks from split edges contain only moves.
        let block = self.function.blocks.get(b);
        let insts = block.map_or(&[][..], |b| &b.insts);
        let mut next = 0;
        for (inst, from) in allocated.insts.iter().zip(from) {
            match from {
                None => self.carry(&mut state, inst)?,
                Some(n) => {
                    let n = *n as usize;
                    let left_out = insts.get(next..n).ok_or("instructions are out of order")?;
                    left_out.iter().try_for_each(|i| self.leave_out(&mut state, i))?;
                    self.instruction(&mut state, insts.get(n).ok_or("there is no such instruction")?, inst)
                        .map_err(|complaint| format!("instruction {n}: {complaint}"))?;
                    next = n + 1;
                }
            }
        }
        insts[next..].iter().try_for_each(|i| self.leave_out(&mut state, i))?;
        self.terminator(state, block.map(|b| &b.end), &allocated.end)
    }

    /// The location of a memory operand.
    fn place_of(&self, m: &Mem<Physical>) -> Result<Location, String> {
        match (m.base, m.index) {
            (Base::Frame, None) if m.offset >= self.function.frame && m.offset < self.allocated.frame => {
                Ok(Location::Slot(m.offset))
            }
            (Base::Pool(n), None) => Ok(Location::Pool(n)),
            _ => Err(format!("{m:?} is not a location of the allocator")),
        }
    }

    /// Checks that a location holds the value of `r`.
    fn holds(&self, state: &State, place: Location, r: Reg) -> Result<(), String> {
        let held = match place {
            Location::Pool(n) => self.constants[r.index()] == Some(n),
            Location::Register(p) if p.class != self.function.class(r) => false,
            place => state.get(&place).is_some_and(|set| set.contains(&r)),
        };
        if held { Ok(()) } else { Err(format!("{place:?} holds {:?}, not {r:?}", state.get(&place))) }
    }

    /// An inserted move, load or store: copies the state of its source.
    fn carry(&self, state: &mut State, inst: &Inst<Physical>) -> Result<(), String> {
        if inst.mask.is_some() || inst.tied.is_some() {
            return Err(format!("{inst:?} is not a move"));
        }
        let (to, class, from) = match (inst.op, inst.dst, inst.srcs.as_slice()) {
            (Op::Copy | Op::MaskCopy | Op::Mov, Some(to), [Operand::Reg(from)]) => {
                (Location::Register(to), from.class, Location::Register(*from))
            }
            (Op::Load | Op::Spread | Op::MaskCopy | Op::Mov, Some(to), [Operand::Mem(from)]) => {
                let from = self.place_of(from)?;
                if matches!(from, Location::Pool(_)) != (inst.op == Op::Spread) {
                    return Err(format!("{inst:?} reads a location without a value"));
                }
                (Location::Register(to), self.carried(inst.op)?, from)
            }
            (Op::Store | Op::MaskSpill | Op::Spill, None, [Operand::Mem(to), Operand::Reg(from)]) => {
                (self.place_of(to)?, from.class, Location::Register(*from))
            }
            _ => return Err(format!("{inst:?} is not a move")),
        };
        if self.carried(inst.op)? != class || matches!(to, Location::Register(p) if p.class != class) {
            return Err(format!("{inst:?} has registers of another class"));
        }
        let values = match from {
            Location::Pool(n) => self.constant(n)?,
            from => state.get(&from).cloned().unwrap_or_default(),
        };
        state.insert(to, values);
        Ok(())
    }

    /// The class of the registers that a move, load or store carries.
    fn carried(&self, op: Op) -> Result<Class, String> {
        let (takes, gives) = op.signature();
        let wide = self.function.wide();
        let class = gives.class(wide).or_else(|| takes.iter().find_map(|kind| kind.class(wide)));
        class.ok_or_else(|| format!("{op:?} carries nothing"))
    }

    /// The virtual registers that are constant `n`.
    fn constant(&self, n: u32) -> Result<BTreeSet<Reg>, String> {
        if !matches!(self.function.pool.get(n as usize), Some(Constant::Same(_))) {
            return Err("that constant is not the same in all lanes".into());
        }
        let all = (0u32..).map(Reg).zip(&self.constants);
        Ok(all.filter_map(|(r, c)| (*c == Some(n)).then_some(r)).collect())
    }

    /// An omitted instruction: allowed if its result is available elsewhere.
    fn leave_out(&self, state: &mut State, inst: &Inst) -> Result<(), String> {
        let dst = inst.dst.ok_or_else(|| format!("{inst:?} was omitted"))?;
        state.values_mut().for_each(|set| _ = set.remove(&dst));
        match copied(inst) {
            Some((_, from)) => {
                for set in state.values_mut().filter(|set| set.contains(&from)) {
                    set.insert(dst);
                }
                Ok(())
            }
            // It can be read from the pool.
            None if self.constants[dst.index()].is_some() => Ok(()),
            None => Err(format!("{inst:?} was omitted")),
        }
    }

    /// Checks that an operand is read from a location that holds it.
    fn operand(&self, state: &State, virt: &Operand, phys: &Operand<Physical>) -> Result<(), String> {
        match (virt, phys) {
            (Operand::Reg(r), Operand::Reg(p)) => self.holds(state, Location::Register(*p), *r),
            (Operand::Reg(r), Operand::Mem(m)) => self.holds(state, self.place_of(m)?, *r),
            (Operand::Imm(a), Operand::Imm(b)) if a == b => Ok(()),
            (Operand::Mem(a), Operand::Mem(b)) if a.offset == b.offset => {
                match (a.base, b.base) {
                    (Base::Reg(r), Base::Reg(p)) => self.holds(state, Location::Register(p), r)?,
                    (Base::Words, Base::Words) | (Base::Frame, Base::Frame) => {}
                    (Base::Pool(m), Base::Pool(n)) if m == n => {}
                    _ => return Err(format!("{b:?} is not {a:?}")),
                }
                match (a.index, b.index) {
                    (None, None) => Ok(()),
                    (Some((r, s)), Some((p, t))) if s == t => self.holds(state, Location::Register(p), r),
                    _ => Err(format!("{b:?} is not {a:?}")),
                }
            }
            _ => Err(format!("{phys:?} is not {virt:?}")),
        }
    }

    fn operands(&self, state: &State, virt: &[Operand], phys: &[Operand<Physical>]) -> Result<(), String> {
        if virt.len() != phys.len() {
            return Err("the number of operands differs".into());
        }
        virt.iter().zip(phys).try_for_each(|(v, p)| self.operand(state, v, p))
    }

    /// Checks what an instruction reads, not its result.
    fn reads(&self, state: &State, virt: &Inst, phys: &Inst<Physical>) -> Result<(), String> {
        let in_memory =
            |n: usize| matches!((virt.srcs.get(n), phys.srcs.get(n)), (Some(Operand::Reg(_)), Some(Operand::Mem(_))));
        let folded = (0..virt.srcs.len()).any(in_memory);
        let loads = match phys.srcs.first() {
            Some(Operand::Mem(m)) => phys.op == if matches!(m.base, Base::Pool(_)) { Op::Spread } else { Op::Load },
            _ => false,
        };
        let same = if folded { virt.op == phys.op && virt.op.folds() } else { virt.op == phys.op };
        if !(same || folded && virt.op == Op::Copy && loads) {
            return Err(format!("{:?} has become {:?}", virt.op, phys.op));
        }
        if folded && (0..virt.srcs.len().saturating_sub(1)).any(in_memory) && virt.op != Op::Copy {
            return Err("only the last operand may be in memory".into());
        }
        let mut result = self.operands(state, &virt.srcs, &phys.srcs);
        if let (true, true, [a, b]) = (result.is_err(), virt.op.commutes(), virt.srcs.as_slice()) {
            result = self.operands(state, &[*b, *a], &phys.srcs);
        }
        result?;
        match (virt.mask, phys.mask) {
            (None, None) => Ok(()),
            (Some((r, zero)), Some((p, other))) if zero == other => self.holds(state, Location::Register(p), r),
            _ => Err("the mask differs".into()),
        }
    }

    fn instruction(&self, state: &mut State, virt: &Inst, phys: &Inst<Physical>) -> Result<(), String> {
        self.reads(state, virt, phys)?;
        match (virt.tied, phys.tied) {
            (None, None) => {}
            (Some(r), Some(p)) if phys.dst == Some(p) => self.holds(state, Location::Register(p), r)?,
            _ => return Err("the tied operand is not in the register of the result".into()),
        }
        let (dst, p) = match (virt.dst, phys.dst) {
            (None, None) => return Ok(()),
            (Some(dst), Some(p)) if p.class == self.function.class(dst) => (dst, p),
            _ => return Err("the result is of another class".into()),
        };
        let mut values = match (copied(virt), phys.srcs.as_slice()) {
            (Some(_), [Operand::Reg(from)]) => state.get(&Location::Register(*from)).cloned().unwrap_or_default(),
            _ => BTreeSet::new(),
        };
        state.values_mut().for_each(|set| _ = set.remove(&dst));
        values.insert(dst);
        state.insert(Location::Register(p), values);
        Ok(())
    }

    fn terminator(
        &mut self,
        state: State,
        virt: Option<&Terminator>,
        phys: &Terminator<Physical>,
    ) -> Result<(), String> {
        if let (Some(virt), Some(phys)) = (virt.and_then(Terminator::compare), phys.compare()) {
            self.reads(&state, virt, phys)?;
        }
        match (virt, phys) {
            (Some(Terminator::Return), Terminator::Return) => Ok(()),
            (Some(Terminator::Jump(v)), Terminator::Jump(p)) => self.edge(&state, v, p),
            (Some(Terminator::Branch { when, targets, .. }), Terminator::Branch { when: w, targets: others, .. })
                if when == w =>
            {
                targets.iter().zip(others).try_for_each(|(v, p)| self.edge(&state, v, p))
            }
            // The jump of a split edge.
            (None, Terminator::Jump(p)) => {
                self.arrive(p.block.as_u32() as usize, state);
                Ok(())
            }
            _ => Err("the terminator differs".into()),
        }
    }

    /// Checks an edge: each parameter takes the location of its argument.
    fn edge(&mut self, state: &State, virt: &Target, phys: &Target<Physical>) -> Result<(), String> {
        let to = virt.block.as_u32() as usize;
        let params = &self.function.blocks[to].params;
        let mut there = State::new();
        for (place, held) in state {
            let mut values: BTreeSet<Reg> = held.iter().filter(|r| !params.contains(r)).copied().collect();
            values.extend(params.iter().zip(&virt.args).filter_map(|(p, a)| held.contains(a).then_some(*p)));
            there.insert(*place, values);
        }
        // Constants are always in the pool.
        let place = phys.block.as_u32() as usize;
        if place != to {
            let between = self.allocated.blocks.get(place).filter(|_| place >= self.function.blocks.len());
            match between.map(|b| &b.end) {
                Some(Terminator::Jump(t)) if t.block == virt.block => {}
                _ => return Err(format!("jumps to ^bb{place} instead of ^bb{to}")),
            }
        }
        self.arrive(place, there);
        Ok(())
    }

    /// Merges a state into the start of a block.
    fn arrive(&mut self, b: usize, state: State) {
        let met = match &self.starts[b] {
            None => state,
            Some(old) => {
                let both = old.iter().filter_map(|(place, values)| {
                    let common: BTreeSet<Reg> = values.intersection(state.get(place)?).copied().collect();
                    (!common.is_empty()).then_some((*place, common))
                });
                let met: State = both.collect();
                let plain = |s: &State| s.iter().filter(|(_, v)| !v.is_empty()).count();
                if plain(old) == met.len() && old.iter().all(|(p, v)| v.is_empty() || met.get(p) == Some(v)) {
                    return;
                }
                met
            }
        };
        self.starts[b] = Some(met);
        self.open.push(b);
    }
}
