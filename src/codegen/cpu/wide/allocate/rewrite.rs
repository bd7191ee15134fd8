//! Rewrites the code to physical registers, with spills and the remaining moves.
//!
//! In: a function and a location for each bundle. Out: its instructions with these locations. A
//! spilled operand is folded into the instruction if it accepts a memory operand, else loaded into
//! a reserved register (carrier) before the instruction; a spilled result is stored after it. The
//! arguments of a jump are moved to the parameters by a parallel move: at the end of the block that
//! jumps, if that is its only successor; else at the beginning of the target, if that is its only
//! predecessor; else the edge is split.

use super::coalesce::Bundles;
use super::scan::copied;
use super::{
    Allocated, Assignment, Base, Class, Function, Inst, Mem, Op, Operand, Physical, Reg, Registers, SAVED, Step,
};
use crate::codegen::cpu::wide::machine::{Block, BlockData, Target, Terminator};
use crate::tile;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    Register(Physical),
    Memory(Mem<Physical>),
}

/// Instructions, each with its original index.
type Code = Vec<(Inst<Physical>, Option<u32>)>;

struct Rewrite<'a> {
    registers: &'a Registers,
    bundles: &'a Bundles,
    carriers: &'a [Vec<u8>; 3],
    /// Location of each bundle.
    places: Vec<Option<Location>>,
    /// Frame size in bytes.
    frame: i32,
    /// Code of the current block.
    out: Code,
    /// The tile operation of the current instruction.
    origin: Option<tile::Inst>,
    /// Carriers in use by the current instruction, with the register that each holds.
    carried: Vec<(Reg, Physical)>,
}

/// Rewrites a function.
pub(super) fn rewrite(
    function: &Function,
    blocks: &[Vec<Step>],
    registers: &Registers,
    bundles: &Bundles,
    assignment: &Assignment,
) -> Option<Allocated> {
    let physical = |(r, n): (usize, &Option<u8>)| {
        n.map(|number| Location::Register(Physical { class: registers.classes[r], number }))
    };
    let mut r = Rewrite {
        registers,
        bundles,
        carriers: &assignment.carriers,
        places: assignment.numbers.iter().enumerate().map(physical).collect(),
        frame: function.frame,
        out: Vec::new(),
        origin: None,
        carried: Vec::new(),
    };
    for bundle in &assignment.spilled {
        let place = match registers.constants[bundle.index()] {
            Some(n) => Mem::pool(n),
            None => r.room(),
        };
        r.places[bundle.index()] = Some(Location::Memory(place));
    }
    let mut predecessors = vec![0; function.blocks.len()];
    for target in function.blocks.iter().flat_map(|b| b.end.targets()) {
        predecessors[target.block.as_u32() as usize] += 1;
    }
    let mut made: Vec<(Code, Terminator<Physical>)> = Vec::new();
    // Moves at the start of blocks, and blocks of split edges.
    let mut first: Vec<Code> = vec![Vec::new(); function.blocks.len()];
    let mut between: Vec<(Code, Terminator<Physical>)> = Vec::new();
    for (block, steps) in function.blocks.iter().zip(blocks) {
        for step in steps {
            r.step(step)?;
        }
        let go = |block: Block| Target { block, args: Vec::new() };
        let end = match &block.end {
            Terminator::Return => Terminator::Return,
            Terminator::Jump(t) => {
                r.origin = None;
                r.moves(function, t)?;
                Terminator::Jump(go(t.block))
            }
            Terminator::Branch { compare, when, targets } => {
                let compare = r.instruction(compare.clone())?;
                r.origin = None;
                let before = std::mem::take(&mut r.out);
                let mut ways = Vec::new();
                for t in targets {
                    r.moves(function, t)?;
                    let moves = std::mem::take(&mut r.out);
                    let to = t.block.as_u32() as usize;
                    ways.push(if moves.is_empty() {
                        go(t.block)
                    } else if predecessors[to] == 1 {
                        first[to] = moves;
                        go(t.block)
                    } else {
                        between.push((moves, Terminator::Jump(go(t.block))));
                        let n = function.blocks.len() + between.len() - 1;
                        go(Block::from_u32(u32::try_from(n).ok()?))
                    });
                }
                r.out = before;
                let targets = ways.try_into().ok()?;
                Terminator::Branch { compare, when: *when, targets }
            }
        };
        made.push((std::mem::take(&mut r.out), end));
    }
    for ((code, _), moves) in made.iter_mut().zip(first) {
        code.splice(0..0, moves);
    }
    made.append(&mut between);
    let frame = r.frame;
    Some(finish(function, made, frame))
}

fn finish(function: &Function, made: Vec<(Code, Terminator<Physical>)>, frame: i32) -> Allocated {
    #[cfg(test)]
    let from = made.iter().map(|(code, _)| code.iter().map(|(_, n)| *n).collect()).collect();
    let block = |(code, end): (Code, _)| BlockData {
        params: Vec::new(),
        insts: code.into_iter().map(|(inst, _)| inst).collect(),
        end,
    };
    let blocks = made.into_iter().map(block).collect();
    let function = Function { width: function.width, blocks, classes: Vec::new(), pool: function.pool.clone(), frame };
    let written = |n: &u8| {
        let mut all = function.blocks.iter().flat_map(|b| &b.insts).filter_map(|i| i.dst);
        all.any(|d| d == Physical { class: Class::General, number: *n })
    };
    let saved = SAVED.into_iter().filter(written).collect();
    Allocated {
        function,
        saved,
        #[cfg(test)]
        from,
    }
}

impl Rewrite<'_> {
    /// Appends an inserted instruction.
    fn push(&mut self, inst: Inst<Physical>) {
        self.out.push((Inst { origin: self.origin, ..inst }, None));
    }

    fn room(&mut self) -> Mem<Physical> {
        let at = self.frame;
        self.frame += 64;
        Mem::frame(at)
    }

    fn place(&self, r: Reg) -> Option<Location> {
        self.places[self.bundles.representative(r).index()]
    }

    fn class(&self, r: Reg) -> Class {
        self.registers.classes[r.index()]
    }

    /// The memory location of an operand, if it is spilled.
    fn memory(&self, o: Option<&Operand>) -> Option<Mem<Physical>> {
        match (o, o.and_then(|o| o.regs().next()).and_then(|r| self.place(r))) {
            (Some(Operand::Reg(_)), Some(Location::Memory(m))) => Some(m),
            _ => None,
        }
    }

    /// Emits an instruction with its reloads and spills.
    fn step(&mut self, step: &Step) -> Option<()> {
        let inst = &step.inst;
        if let Some((to, from)) = copied(inst)
            && self.place(to) == self.place(from)
        {
            return Some(());
        }
        let dst = match inst.dst {
            // A constant in the pool needs no code.
            Some(d) if matches!(self.place(d)?, Location::Memory(Mem { base: Base::Pool(_), .. })) => return Some(()),
            dst => dst,
        };
        let mut done = self.instruction(inst.clone())?;
        let Some(d) = dst else {
            self.out.push((done, step.from));
            return Some(());
        };
        let place = match self.place(d)? {
            Location::Register(p) => {
                done.dst = Some(p);
                done.tied = inst.tied.map(|_| p);
                self.out.push((done, step.from));
                return Some(());
            }
            Location::Memory(m) => m,
        };
        let class = self.class(d);
        let through = match self.carried.iter().find(|(r, _)| *r == d) {
            Some((_, c)) => *c,
            // A source's carrier can be reused: sources are read before the result is written.
            None => match self.carrier(d) {
                Some(c) => c,
                None => self.carried.iter().find(|(_, c)| c.class == class)?.1,
            },
        };
        done.dst = Some(through);
        done.tied = inst.tied.map(|_| through);
        self.out.push((done, step.from));
        self.push(store(class, place, through));
        Some(())
    }

    /// Replaces operands by their locations; spilled ones are folded or loaded before.
    fn instruction(&mut self, mut inst: Inst) -> Option<Inst<Physical>> {
        self.carried.clear();
        self.origin = inst.origin;
        if inst.op.commutes()
            && self.memory(inst.srcs.first()).is_some()
            && self.memory(inst.srcs.get(1)).is_none()
            && matches!(inst.srcs.get(1), Some(Operand::Reg(_)))
        {
            inst.srcs.swap(0, 1);
        }
        let last = inst.srcs.len().saturating_sub(1);
        let mut folded = None;
        let mut op = inst.op;
        if let Some(place) = self.memory(inst.srcs.get(last)) {
            if op.folds() {
                folded = Some(place);
            } else if op == Op::Copy && last == 0 {
                op = load_of(Class::Vector, place);
                folded = Some(place);
            }
        }
        let mut srcs = Vec::with_capacity(inst.srcs.len());
        for (n, src) in inst.srcs.iter().enumerate() {
            srcs.push(match (folded.filter(|_| n == last), src) {
                (Some(place), _) => Operand::Mem(place),
                (None, Operand::Reg(r)) => Operand::Reg(self.fetch(*r)?),
                (None, Operand::Mem(m)) => {
                    let base = match m.base {
                        Base::Reg(r) => Base::Reg(self.fetch(r)?),
                        Base::Words => Base::Words,
                        Base::Frame => Base::Frame,
                        Base::Pool(n) => Base::Pool(n),
                    };
                    let index = match m.index {
                        Some((r, scale)) => Some((self.fetch(r)?, scale)),
                        None => None,
                    };
                    Operand::Mem(Mem { base, index, offset: m.offset })
                }
                (None, Operand::Imm(i)) => Operand::Imm(*i),
            });
        }
        let mask = match inst.mask {
            Some((r, zero)) => Some((self.fetch(r)?, zero)),
            None => None,
        };
        if let Some(r) = inst.tied {
            self.fetch(r)?;
        }
        Some(Inst { op, dst: None, tied: None, srcs, mask, origin: inst.origin })
    }

    /// Claims a free carrier for `r`.
    fn carrier(&mut self, r: Reg) -> Option<Physical> {
        let class = self.class(r);
        let used = self.carried.iter().filter(|(_, c)| c.class == class).count();
        let number = *self.carriers[class as usize].iter().rev().nth(used)?;
        let c = Physical { class, number };
        self.carried.push((r, c));
        Some(c)
    }

    /// The physical register of a value, loaded into a carrier if spilled.
    fn fetch(&mut self, r: Reg) -> Option<Physical> {
        let place = match self.place(r)? {
            Location::Register(p) => return Some(p),
            Location::Memory(m) => m,
        };
        if let Some((_, c)) = self.carried.iter().find(|(carried, _)| *carried == r) {
            return Some(*c);
        }
        let c = self.carrier(r)?;
        self.push(load(c, place));
        Some(c)
    }

    /// Emits the parallel move of a jump's arguments to parameters.
    fn moves(&mut self, function: &Function, target: &Target) -> Option<()> {
        let params = &function.blocks.get(target.block.as_u32() as usize)?.params;
        let mut open = Vec::new();
        for (param, arg) in params.iter().zip(&target.args) {
            let (to, from) = (self.place(*param)?, self.place(*arg)?);
            if to != from {
                open.push((self.class(*param), to, from));
            }
        }
        while !open.is_empty() {
            let is_read = |to: &Location| open.iter().any(|(_, _, from)| from == to);
            match open.iter().position(|(_, to, _)| !is_read(to)) {
                Some(n) => {
                    let (class, to, from) = open.swap_remove(n);
                    self.move_(class, to, from)?;
                }
                None => {
                    // The remaining moves form cycles: break one by saving a value.
                    let (class, to, _) = *open.first()?;
                    let aside = Location::Memory(self.room());
                    self.move_(class, aside, to)?;
                    open.iter_mut().filter(|(_, _, from)| *from == to).for_each(|(_, _, from)| *from = aside);
                }
            }
        }
        Some(())
    }

    fn move_(&mut self, class: Class, to: Location, from: Location) -> Option<()> {
        let code = match (to, from) {
            (Location::Register(to), Location::Register(from)) => {
                vec![plain(class.copy(), Some(to), vec![Operand::Reg(from)])]
            }
            (Location::Register(to), Location::Memory(from)) => vec![load(to, from)],
            (Location::Memory(to), Location::Register(from)) => vec![store(class, to, from)],
            (Location::Memory(to), Location::Memory(from)) => {
                let number = *self.carriers[class as usize].last()?;
                let c = Physical { class, number };
                vec![load(c, from), store(class, to, c)]
            }
        };
        code.into_iter().for_each(|i| self.push(i));
        Some(())
    }
}

fn plain(op: Op, dst: Option<Physical>, srcs: Vec<Operand<Physical>>) -> Inst<Physical> {
    Inst { op, dst, tied: None, srcs, mask: None, origin: None }
}

fn load(to: Physical, from: Mem<Physical>) -> Inst<Physical> {
    plain(load_of(to.class, from), Some(to), vec![Operand::Mem(from)])
}

fn store(class: Class, to: Mem<Physical>, from: Physical) -> Inst<Physical> {
    let op = match class {
        Class::Vector => Op::Store,
        Class::Mask => Op::MaskSpill,
        Class::General => Op::Spill,
    };
    plain(op, None, vec![Operand::Mem(to), Operand::Reg(from)])
}

/// The instruction that reloads a spilled register.
fn load_of<R>(class: Class, place: Mem<R>) -> Op {
    match (class, place.base) {
        (Class::Vector, Base::Pool(_)) => Op::Spread,
        (Class::Vector, _) => Op::Load,
        (Class::Mask, _) => Op::MaskCopy,
        (Class::General, _) => Op::Mov,
    }
}
