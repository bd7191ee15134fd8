//! Register allocation: linear scan (Poletto & Sarkar 1999) over live ranges that know loops.
//!
//! In: a function over virtual registers. Out: the same with a physical register for each, spills written out. A live
//! range goes from the first definition to the last use; a register that is set before a loop and used in it lives until
//! the loop's end. Where registers run out, the range that costs least per place is spilled whole: a constant to the
//! pool, from where its uses fold it as an operand, anything else to the frame. Results that nobody reads are left out.
//!
//! Only if something must be spilled are a few registers kept back to carry it.

use std::collections::BTreeMap;

use super::machine::{Base, Class, Inst, Item, Machine, Mem, Op, Operand, Reg};

/// General registers in the order in which they are handed out: those that a function may use freely come first. `rdi`
/// holds the words, `rbp` and `rsp` the frame.
const GENERAL: [u8; 13] = [0, 1, 2, 6, 8, 9, 10, 11, 3, 12, 13, 14, 15];
/// General registers that a function must give back as they were, `rbp` aside.
const SAVED: [u8; 5] = [3, 12, 13, 14, 15];
/// How many registers of a class carry spilled values.
const CARRIERS: usize = 3;

/// A function with its registers.
pub(super) struct Allocated {
    /// What it does.
    pub(super) items: Vec<Item>,
    /// Number of the physical register of each virtual one.
    pub(super) numbers: BTreeMap<Reg, u8>,
    /// General registers to save.
    pub(super) saved: Vec<u8>,
    /// Bytes of the frame, a multiple of 64.
    pub(super) frame: i32,
}

/// Where a register lives.
#[derive(Clone, Copy)]
struct Range {
    reg: Reg,
    class: Class,
    start: usize,
    end: usize,
    /// What a spill costs.
    weight: f64,
    /// The register that it is copied from.
    hint: Option<Reg>,
}

fn physical(class: Class, level_registers: u32) -> Vec<u8> {
    match class {
        Class::Vector => (0..u8::try_from(level_registers).unwrap_or(16)).collect(),
        Class::Mask => (1..8).collect(),
        Class::General => GENERAL.to_vec(),
    }
}

/// Gives every register a place; `None` if that cannot be done.
pub(super) fn allocate(machine: &mut Machine) -> Option<Allocated> {
    let mut items = std::mem::take(&mut machine.prelude);
    items.append(&mut machine.items);
    let items = without_dead(items, machine.classes.len());
    let ranges = ranges(machine, &items);
    let mut numbers = BTreeMap::new();
    let mut spilled = Vec::new();
    let mut carriers = BTreeMap::new();
    for class in [Class::Vector, Class::Mask, Class::General] {
        let mine: Vec<Range> = ranges.iter().filter(|r| r.class == class).copied().collect();
        let all = physical(class, machine.width.registers());
        let (mut given, mut left) = scan(&mine, &all);
        if !left.is_empty() {
            let (free, kept) = all.split_at(all.len() - CARRIERS);
            (given, left) = scan(&mine, free);
            carriers.insert(class, kept.to_vec());
        }
        numbers.extend(given);
        spilled.extend(left);
    }
    let mut spills = Spills { machine, spilled: BTreeMap::new(), carriers, numbers, out: Vec::new() };
    for r in spilled {
        let place = match spills.machine.constants.get(&r) {
            Some(n) => Mem { base: Base::Pool(*n), index: None, offset: 0 },
            None => Mem::frame(spills.machine.room(64)),
        };
        spills.spilled.insert(r, place);
    }
    for item in items {
        match item {
            Item::Inst(inst) => spills.rewrite(inst)?,
            other => spills.out.push(other),
        }
    }
    let Spills { numbers, out, .. } = spills;
    let classes = &machine.classes;
    let general =
        |n: &u8| numbers.iter().any(|(r, m)| m == n && classes.get(r.0 as usize).is_some_and(|c| *c == Class::General));
    let saved = SAVED.into_iter().filter(general).collect();
    Some(Allocated { items: out, numbers, saved, frame: machine.frame })
}

/// Leaves out instructions whose results nobody reads, of a function with so many registers.
fn without_dead(mut items: Vec<Item>, registers: usize) -> Vec<Item> {
    loop {
        let mut read = vec![false; registers];
        for item in &items {
            let Item::Inst(inst) = item else { continue };
            for r in inst.reads().filter(|r| Some(*r) != inst.dst) {
                read[r.0 as usize] = true;
            }
        }
        let before = items.len();
        items.retain(|item| match item {
            Item::Inst(Inst { dst: Some(d), .. }) => read[d.0 as usize],
            _ => true,
        });
        if items.len() == before {
            return items;
        }
    }
}

/// The live range of each register, in order of their starts.
fn ranges(machine: &Machine, items: &[Item]) -> Vec<Range> {
    let mut found: Vec<Option<Range>> = vec![None; machine.classes.len()];
    let mut open = Vec::new();
    let mut loops = Vec::new();
    // What only says whose code it is makes nothing longer.
    for (n, item) in items.iter().filter(|item| !matches!(item, Item::From(_))).enumerate() {
        match item {
            Item::Begin => open.push(2 * n),
            Item::End => loops.extend(open.pop().map(|start| (start, 2 * n))),
            Item::Inst(inst) => {
                let weight = 8f64.powi(i32::try_from(open.len()).unwrap_or(0));
                let mut touch = |r: Reg, at: usize, weight: f64| {
                    let class = machine.class(r);
                    let new = Range { reg: r, class, start: at, end: at, weight: 0.0, hint: None };
                    let range = found[r.0 as usize].get_or_insert(new);
                    range.end = range.end.max(at);
                    range.weight += if machine.constants.contains_key(&r) { 0.4 * weight } else { weight };
                };
                inst.reads().for_each(|r| touch(r, 2 * n, weight));
                if let Some(d) = inst.dst {
                    touch(d, 2 * n + 1, 1.5 * weight);
                    if let (Op::Copy | Op::Mov | Op::MaskCopy, Some(Operand::Reg(from))) = (inst.op, inst.srcs.first())
                        && let Some(range) = &mut found[d.0 as usize]
                    {
                        range.hint = range.hint.or(Some(*from));
                    }
                }
            }
            Item::Label(_) | Item::Jump(..) | Item::From(_) => {}
        }
    }
    // Inner loops end first.
    for (start, end) in loops {
        for range in found.iter_mut().flatten() {
            if range.start < start && range.end > start && range.end < end {
                range.end = end;
            }
        }
    }
    let mut ranges: Vec<Range> = found.into_iter().flatten().collect();
    ranges.sort_by_key(|r| (r.start, r.reg));
    ranges
}

/// Registers for ranges of one class, and those that got none.
fn scan(ranges: &[Range], physical: &[u8]) -> (BTreeMap<Reg, u8>, Vec<Reg>) {
    let mut given: BTreeMap<Reg, u8> = BTreeMap::new();
    // The ranges that are live, with their registers.
    let mut active: Vec<(Range, u8)> = Vec::new();
    let mut spilled = Vec::new();
    let cost = |r: &Range| r.weight / (r.end - r.start + 8) as f64;
    for range in ranges {
        active.retain(|(a, _)| a.end >= range.start);
        let taken = active.iter().fold(0_u64, |set, (_, n)| set | 1 << n);
        let is_free = |n: &u8| taken >> n & 1 == 0;
        let hinted = range.hint.and_then(|h| given.get(&h)).copied().filter(is_free);
        if let Some(n) = hinted.or_else(|| physical.iter().copied().find(is_free)) {
            given.insert(range.reg, n);
            active.push((*range, n));
            continue;
        }
        let all = active.iter().enumerate();
        let cheapest = all.min_by(|(_, (a, _)), (_, (b, _))| cost(a).total_cmp(&cost(b)));
        match cheapest.map(|(i, (victim, n))| (i, *victim, *n)).filter(|(_, victim, _)| cost(victim) < cost(range)) {
            Some((i, victim, n)) => {
                active.swap_remove(i);
                given.remove(&victim.reg);
                given.insert(range.reg, n);
                active.push((*range, n));
                spilled.push(victim.reg);
            }
            None => spilled.push(range.reg),
        }
    }
    (given, spilled)
}

struct Spills<'m> {
    machine: &'m mut Machine,
    spilled: BTreeMap<Reg, Mem>,
    carriers: BTreeMap<Class, Vec<u8>>,
    numbers: BTreeMap<Reg, u8>,
    out: Vec<Item>,
}

impl Spills<'_> {
    fn rewrite(&mut self, mut inst: Inst) -> Option<()> {
        if inst.dst.is_some_and(|d| self.spilled.contains_key(&d) && self.machine.constants.contains_key(&d)) {
            return Some(());
        }
        let is_spilled =
            |s: &Spills<'_>, o: Option<&Operand>| matches!(o, Some(Operand::Reg(r)) if s.spilled.contains_key(r));
        if inst.op.commutes()
            && is_spilled(self, inst.srcs.first())
            && !is_spilled(self, inst.srcs.get(1))
            && matches!(inst.srcs.get(1), Some(Operand::Reg(_)))
        {
            inst.srcs.swap(0, 1);
        }
        let mut carried: BTreeMap<Reg, Reg> = BTreeMap::new();
        let mut free = self.carriers.clone();
        let last = inst.srcs.len().saturating_sub(1);
        if let Some(Operand::Reg(r)) = inst.srcs.get(last).copied()
            && let Some(place) = self.spilled.get(&r)
        {
            if inst.op.folds() {
                inst.srcs[last] = Operand::Mem(*place);
            } else if inst.op == Op::Copy && last == 0 {
                inst.op = load_of(Class::Vector, *place);
                inst.srcs = vec![Operand::Mem(*place)];
            }
        }
        for n in 0..inst.srcs.len() {
            inst.srcs[n] = match inst.srcs[n] {
                Operand::Reg(r) => Operand::Reg(self.fetch(r, &mut carried, &mut free)?),
                Operand::Mem(mut m) => {
                    if let Base::Reg(r) = m.base {
                        m.base = Base::Reg(self.fetch(r, &mut carried, &mut free)?);
                    }
                    if let Some((r, scale)) = m.index {
                        m.index = Some((self.fetch(r, &mut carried, &mut free)?, scale));
                    }
                    Operand::Mem(m)
                }
                Operand::Imm(i) => Operand::Imm(i),
            };
        }
        if let Some((r, zero)) = inst.mask {
            inst.mask = Some((self.fetch(r, &mut carried, &mut free)?, zero));
        }
        let Some(d) = inst.dst else {
            self.out.push(Item::Inst(inst));
            return Some(());
        };
        let Some(place) = self.spilled.get(&d).copied() else {
            self.out.push(Item::Inst(inst));
            return Some(());
        };
        let class = self.machine.class(d);
        let through = match carried.get(&d) {
            Some(c) => *c,
            None if inst.tied => self.fetch(d, &mut carried, &mut free)?,
            // A source's carrier will do: it is read when the result is written.
            None => match self.carrier(class, &mut free) {
                Some(c) => c,
                None => *carried.iter().find(|(r, _)| self.machine.class(**r) == class)?.1,
            },
        };
        inst.dst = Some(through);
        self.out.push(Item::Inst(inst));
        let op = match class {
            Class::Vector => Op::Store,
            Class::Mask => Op::MaskSpill,
            Class::General => Op::Spill,
        };
        let srcs = vec![place.into(), through.into()];
        self.out.push(Item::Inst(Inst { op, dst: None, tied: false, srcs, mask: None }));
        Some(())
    }

    fn carrier(&mut self, class: Class, free: &mut BTreeMap<Class, Vec<u8>>) -> Option<Reg> {
        let n = free.get_mut(&class)?.pop()?;
        let r = self.machine.reg(class);
        self.numbers.insert(r, n);
        Some(r)
    }

    /// The register itself, or one that carries its value.
    fn fetch(&mut self, r: Reg, carried: &mut BTreeMap<Reg, Reg>, free: &mut BTreeMap<Class, Vec<u8>>) -> Option<Reg> {
        let Some(place) = self.spilled.get(&r).copied() else { return Some(r) };
        if let Some(c) = carried.get(&r) {
            return Some(*c);
        }
        let class = self.machine.class(r);
        let c = self.carrier(class, free)?;
        let (op, srcs) = (load_of(class, place), vec![place.into()]);
        self.out.push(Item::Inst(Inst { op, dst: Some(c), tied: false, srcs, mask: None }));
        carried.insert(r, c);
        Some(c)
    }
}

/// How a register is filled from where it was spilled.
fn load_of(class: Class, place: Mem) -> Op {
    match (class, place.base) {
        (Class::Vector, Base::Pool(_)) => Op::Spread,
        (Class::Vector, _) => Op::Load,
        (Class::Mask, _) => Op::MaskCopy,
        (Class::General, _) => Op::Mov,
    }
}
