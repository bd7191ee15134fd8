//! Definite assignment: are registers written before they are read, on all paths?
//!
//! A forward data-flow analysis. Its state: the registers that are definitely written, and for each
//! predicate the registers that are written if it is true, and if it is false. So `@%p ld %x`
//! followed by `@%p add %x` is fine, and so is a value that both `@%p` and `@!%p` write. A branch
//! under a predicate determines its value on both edges. Writing a predicate discards the facts
//! that depend on it; so does the start of a block where the predicate is not live. This keeps the
//! states of kernels with hundreds of branches small.

use std::collections::{BTreeMap, HashMap};

use super::Fault;
use crate::ptx::{Guard, Inst, Kernel, Line, Op, Operand, Reg};

/// A set of registers.
#[derive(Clone, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn new(n: usize, full: bool) -> Set {
        Set(vec![if full { u64::MAX } else { 0 }; n.div_ceil(64)])
    }

    fn add(&mut self, r: Reg) {
        if let Some(word) = self.0.get_mut(r.0 as usize / 64) {
            *word |= 1 << (r.0 % 64);
        }
    }

    fn remove(&mut self, r: Reg) {
        if let Some(word) = self.0.get_mut(r.0 as usize / 64) {
            *word &= !(1 << (r.0 % 64));
        }
    }

    fn has(&self, r: Reg) -> bool {
        self.0.get(r.0 as usize / 64).is_some_and(|word| word >> (r.0 % 64) & 1 == 1)
    }

    /// Intersects; returns whether the set shrank.
    fn keep(&mut self, other: &Set) -> bool {
        let mut less = false;
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            less |= *a & !b != 0;
            *a &= b;
        }
        less
    }

    fn join(&mut self, other: &Set) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }
}

/// State at a point.
#[derive(Clone)]
struct State {
    always: Set,
    /// Registers written if a predicate has a value; a superset of `always`.
    when: BTreeMap<Guard, Set>,
}

impl State {
    fn under(&self, g: Guard) -> &Set {
        self.when.get(&g).unwrap_or(&self.always)
    }

    fn has(&self, r: Reg, guard: Option<Guard>) -> bool {
        self.always.has(r) || guard.is_some_and(|g| self.under(g).has(r))
    }

    /// Assumes the value of a predicate.
    fn learn(&mut self, known: Guard) {
        let here = self.under(known).clone();
        self.always.join(&here);
        for set in self.when.values_mut() {
            set.join(&here);
        }
        self.when.insert(Guard { negated: !known.negated, ..known }, Set(vec![u64::MAX; self.always.0.len()]));
    }

    fn define(&mut self, r: Reg, guard: Option<Guard>) {
        // If it is a predicate, discard facts that depend on it.
        for negated in [false, true] {
            self.when.remove(&Guard { reg: r, negated });
        }
        match guard {
            None => {
                self.always.add(r);
                self.when.values_mut().for_each(|set| set.add(r));
            }
            Some(g) => {
                let mut set = self.under(g).clone();
                set.add(r);
                let other = Guard { negated: !g.negated, ..g };
                if self.under(other).has(r) {
                    self.always.add(r);
                    self.when.values_mut().for_each(|set| set.add(r));
                }
                self.when.insert(g, set);
            }
        }
    }

    /// Joins the states of two paths, keeping facts about predicates in `asked`; returns whether
    /// facts were lost.
    fn meet(&mut self, other: &State, asked: &Set) -> bool {
        let mut less = false;
        for (g, set) in &mut self.when {
            less |= set.keep(other.under(*g));
        }
        for (g, set) in &other.when {
            if asked.has(g.reg) && !self.when.contains_key(g) {
                let mut both = self.always.clone();
                less |= both.keep(set);
                self.when.insert(*g, both);
            }
        }
        less | self.always.keep(&other.always)
    }
}

/// A kernel's instructions, prepared for the analysis.
struct Code<'a> {
    kernel: &'a Kernel,
    labels: HashMap<&'a str, usize>,
    /// The registers that each line reads and writes.
    regs: Vec<(Vec<Reg>, Vec<Reg>)>,
}

impl<'a> Code<'a> {
    fn new(kernel: &'a Kernel) -> Code<'a> {
        let label = |(n, line): (usize, &'a Line)| match line {
            Line::Label(name) => Some((name.as_str(), n)),
            Line::Inst(_) | Line::Comment(_) => None,
        };
        let regs = |line: &Line| match line {
            Line::Inst(inst) => inst.uses_and_defs(),
            Line::Label(_) | Line::Comment(_) => Default::default(),
        };
        Code {
            kernel,
            labels: kernel.body.iter().enumerate().filter_map(label).collect(),
            regs: kernel.body.iter().map(regs).collect(),
        }
    }

    /// The instructions from a start to the next label or branch, and how they end.
    fn block(&self, start: usize) -> (Vec<(usize, &'a Inst)>, End) {
        let mut insts = Vec::new();
        for (at, line) in self.kernel.body.iter().enumerate().skip(start) {
            let inst = match line {
                Line::Comment(_) => continue,
                Line::Label(_) if at == start => continue,
                Line::Label(_) => return (insts, End { to: None, guard: None, next: Some(at) }),
                Line::Inst(inst) => inst,
            };
            insts.push((at, inst));
            if inst.op.ends() {
                let label = inst.operands.iter().find_map(|o| match o {
                    Operand::Label(name) => self.labels.get(name.as_str()).copied(),
                    _ => None,
                });
                let to = label.filter(|_| matches!(inst.op, Op::Bra {} | Op::BraUniform {}));
                return (insts, End { to, guard: inst.guard, next: inst.guard.map(|_| at + 1) });
            }
        }
        (insts, End { to: None, guard: None, next: None })
    }

    fn defs(&self, at: usize) -> &[Reg] {
        self.regs.get(at).map_or(&[], |(_, defs)| defs)
    }
}

/// The end of a block.
struct End {
    /// The line that it branches to.
    to: Option<usize>,
    /// Guard of the branch.
    guard: Option<Guard>,
    /// The line that follows otherwise.
    next: Option<usize>,
}

/// A basic block.
struct Block<'a> {
    insts: Vec<(usize, &'a Inst)>,
    end: End,
    /// Live predicates: guards of later instructions before the predicate is written.
    asked: Set,
    /// State at its start; `None` until it is reached.
    state: Option<State>,
}

/// The reachable blocks, by their first lines.
fn blocks<'a>(code: &Code<'a>) -> BTreeMap<usize, Block<'a>> {
    let n = code.kernel.registers.len();
    let mut blocks = BTreeMap::new();
    let mut open = vec![0];
    while let Some(start) = open.pop() {
        if blocks.contains_key(&start) {
            continue;
        }
        let (insts, end) = code.block(start);
        open.extend(end.next.into_iter().chain(end.to));
        blocks.insert(start, Block { insts, end, asked: Set::new(n, false), state: None });
    }
    // Backward analysis to a fixed point, last block first.
    let starts: Vec<usize> = blocks.keys().rev().copied().collect();
    let mut again = true;
    while again {
        again = false;
        for start in &starts {
            let Some(block) = blocks.get(start) else { continue };
            let mut asked = Set::new(n, false);
            for to in block.end.to.into_iter().chain(block.end.next) {
                if let Some(to) = blocks.get(&to) {
                    asked.join(&to.asked);
                }
            }
            for (at, inst) in block.insts.iter().rev() {
                code.defs(*at).iter().for_each(|r| asked.remove(*r));
                inst.guard.iter().for_each(|g| asked.add(g.reg));
            }
            if let Some(block) = blocks.get_mut(start)
                && block.asked != asked
            {
                block.asked = asked;
                again = true;
            }
        }
    }
    blocks
}

pub(super) fn check(kernel: &Kernel, faults: &mut Vec<Fault>) {
    let code = Code::new(kernel);
    let mut blocks = blocks(&code);
    follow(kernel, &code, &mut blocks);
    tell(kernel, &code, blocks, faults);
}

/// Computes the state at the start of each block.
fn follow(kernel: &Kernel, code: &Code<'_>, blocks: &mut BTreeMap<usize, Block<'_>>) {
    let entry = State { always: Set::new(kernel.registers.len(), false), when: BTreeMap::new() };
    let mut open = Vec::new();
    reach(blocks, &mut open, 0, &entry);
    while let Some(start) = open.pop() {
        let Some(block) = blocks.get(&start) else { continue };
        let Some(mut state) = block.state.clone() else { continue };
        for (at, inst) in &block.insts {
            code.defs(*at).iter().for_each(|r| state.define(*r, inst.guard));
        }
        let End { to, guard, next } = block.end;
        if let Some(to) = to {
            let mut there = state.clone();
            guard.iter().for_each(|g| there.learn(*g));
            reach(blocks, &mut open, to, &there);
        }
        if let Some(next) = next {
            guard.iter().for_each(|g| state.learn(Guard { negated: !g.negated, ..*g }));
            reach(blocks, &mut open, next, &state);
        }
    }
}

/// Reports each read of a register that may not have been written.
fn tell(kernel: &Kernel, code: &Code<'_>, blocks: BTreeMap<usize, Block<'_>>, faults: &mut Vec<Fault>) {
    for block in blocks.into_values() {
        let Some(mut state) = block.state else { continue };
        for (at, inst) in block.insts {
            let Some((uses, defs)) = code.regs.get(at) else { continue };
            if let Some(r) = uses.iter().find(|r| !state.has(**r, inst.guard)) {
                let name = kernel.reg(*r).map_or("", |r| &r.name);
                let on = if code.regs.iter().any(|(_, defs)| defs.contains(r)) {
                    "is not written on every path to here; write it before the branch, or on both sides"
                } else {
                    "is never written; write it first"
                };
                faults.push((Some(at), format!("`{name}` {on}")));
            }
            defs.iter().for_each(|r| state.define(*r, inst.guard));
        }
    }
    faults.sort_by_key(|(at, _)| *at);
    faults.dedup();
}

/// Joins a state into the start of a block, and adds it to the worklist if facts were lost.
fn reach(blocks: &mut BTreeMap<usize, Block<'_>>, open: &mut Vec<usize>, start: usize, state: &State) {
    let Some(block) = blocks.get_mut(&start) else { return };
    let less = match &mut block.state {
        None => {
            let mut own = state.clone();
            own.when.retain(|g, _| block.asked.has(g.reg));
            block.state = Some(own);
            true
        }
        Some(own) => own.meet(state, &block.asked),
    };
    if less {
        open.push(start);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ptx::text::parse;
    use crate::random::Random;

    /// A random kernel: registers are written and read under predicates, with arbitrary branches.
    fn kernel(random: &mut Random) -> Kernel {
        let mut text = String::from(
            ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %a, %b, %c;\n.reg .pred %p, %q;\n",
        );
        let lines = 6 + random.below(12);
        for n in 0..lines {
            if random.chance(30) {
                text.push_str(&format!("l{n}:\n"));
            }
            let guards = ["", "", "", "@%p ", "@!%p ", "@%q ", "@!%q "];
            let guard = random.pick(&guards);
            let reg = |random: &mut Random| random.pick(&["%a", "%b", "%c"]);
            let line = match random.below(10) {
                0..4 => format!("{guard}mov.u32 {}, {n};", reg(random)),
                4..6 => format!("{guard}add.u32 {}, {}, 1;", reg(random), reg(random)),
                6 => format!("{guard}setp.eq.u32 {}, {n}, 3;", random.pick(&["%p", "%q"])),
                7 => format!("{guard}setp.eq.u32 {}, {}, 3;", random.pick(&["%p", "%q"]), reg(random)),
                _ => {
                    // Labels for the targets are inserted below.
                    let guard = if guard.is_empty() && random.chance(70) { "@%p " } else { guard };
                    format!("{guard}bra l{};", random.below(lines))
                }
            };
            text.push_str(&line);
            text.push('\n');
        }
        for n in 0..lines {
            if text.contains(&format!("bra l{n};")) && !text.contains(&format!("\nl{n}:\n")) {
                text.push_str(&format!("l{n}:\n"));
            }
        }
        text.push_str("ret;\n}\n");
        parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).kernels.remove(0)
    }

    fn faults(kernel: &Kernel, keeps_all: bool) -> Vec<Fault> {
        let code = Code::new(kernel);
        let mut blocks = blocks(&code);
        if keeps_all {
            blocks.values_mut().for_each(|b| b.asked = Set::new(kernel.registers.len(), true));
        }
        follow(kernel, &code, &mut blocks);
        let mut faults = Vec::new();
        tell(kernel, &code, blocks, &mut faults);
        faults
    }

    /// The first line that reads an uninitialised register, in an execution with random comparison
    /// results.
    fn read_too_early(kernel: &Kernel, random: &mut Random) -> Option<usize> {
        let code = Code::new(kernel);
        let (mut written, mut holds) = (BTreeSet::new(), BTreeMap::new());
        let mut at = 0;
        for _ in 0..200 {
            let Line::Inst(inst) = kernel.body.get(at)? else {
                at += 1;
                continue;
            };
            let (uses, defs) = inst.uses_and_defs();
            if let Some(g) = inst.guard {
                if !written.contains(&g.reg) {
                    return Some(at);
                }
                if holds.get(&g.reg) == Some(&g.negated) {
                    at += 1;
                    continue;
                }
            }
            if uses.iter().any(|r| !written.contains(r)) {
                return Some(at);
            }
            for r in defs {
                written.insert(r);
                holds.insert(r, random.chance(50));
            }
            at = match inst.operands.first() {
                Some(Operand::Label(name)) => *code.labels.get(name.as_str())?,
                _ if inst.op.ends() => return None,
                _ => at + 1,
            };
        }
        None
    }

    /// Discarding dead predicates does not change the result, and every uninitialised read of an
    /// execution is reported.
    #[test]
    fn what_is_forgotten_is_not_missed() {
        let mut random = Random::new(17);
        let (mut right, mut wrong, mut executed) = (0, 0, 0);
        for _ in 0..4000 {
            let kernel = kernel(&mut random);
            let pruned = faults(&kernel, false);
            assert_eq!(pruned, faults(&kernel, true), "{:#?}", kernel.body);
            let told: BTreeSet<usize> = pruned.iter().filter_map(|(at, _)| *at).collect();
            for _ in 0..4 {
                let early = read_too_early(&kernel, &mut random);
                assert!(early.is_none_or(|at| told.contains(&at)), "{early:?}, {told:?}: {:#?}", kernel.body);
                executed += usize::from(early.is_some());
            }
            *(if told.is_empty() { &mut right } else { &mut wrong }) += 1;
        }
        assert!(right > 50 && wrong > 1000 && executed > 1000, "{right}, {wrong}, {executed}");
    }
}
