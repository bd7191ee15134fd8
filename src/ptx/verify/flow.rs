//! Are registers written before they are read, on all ways?
//!
//! A forward analysis over the control flow. Its state: the registers that are written for certain, and for each predicate those
//! that are written if it holds, and if it does not. So `@%p ld %x` followed by `@%p add %x` is fine, and so is a value that
//! both `@%p` and `@!%p` write. A branch under a predicate tells both of its ways what it is. Writing a predicate forgets what
//! hung on it.

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

    fn has(&self, r: Reg) -> bool {
        self.0.get(r.0 as usize / 64).is_some_and(|word| word >> (r.0 % 64) & 1 == 1)
    }

    fn keep(&mut self, other: &Set) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a &= b;
        }
    }

    fn join(&mut self, other: &Set) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }
}

/// What is written at a place.
#[derive(Clone, PartialEq, Eq)]
struct State {
    always: Set,
    /// What is written where a predicate has a value, at least `always`.
    when: BTreeMap<Guard, Set>,
}

impl State {
    fn under(&self, g: Guard) -> &Set {
        self.when.get(&g).unwrap_or(&self.always)
    }

    fn has(&self, r: Reg, guard: Option<Guard>) -> bool {
        self.always.has(r) || guard.is_some_and(|g| self.under(g).has(r))
    }

    /// A predicate is known from here on: the other value does not occur.
    fn learn(&mut self, known: Guard) {
        let here = self.under(known).clone();
        self.always.join(&here);
        for set in self.when.values_mut() {
            set.join(&here);
        }
        self.when.insert(Guard { negated: !known.negated, ..known }, Set(vec![u64::MAX; self.always.0.len()]));
    }

    fn define(&mut self, r: Reg, guard: Option<Guard>) {
        // It may be a predicate: what hung on it is forgotten.
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

    /// What holds on both ways.
    fn meet(&mut self, other: &State) {
        let keys: Vec<Guard> = self.when.keys().chain(other.when.keys()).copied().collect();
        let mut when = BTreeMap::new();
        for g in keys {
            let mut set = self.under(g).clone();
            set.keep(other.under(g));
            when.insert(g, set);
        }
        self.always.keep(&other.always);
        self.when = when;
    }
}

pub(super) fn check(kernel: &Kernel, faults: &mut Vec<Fault>) {
    let labels: HashMap<&str, usize> = kernel
        .body
        .iter()
        .enumerate()
        .filter_map(|(n, line)| match line {
            Line::Label(name) => Some((name.as_str(), n)),
            Line::Inst(_) | Line::Comment(_) => None,
        })
        .collect();
    // States are kept where lines begin that a branch reaches, or that follow one.
    let entry = State { always: Set::new(kernel.registers.len(), false), when: BTreeMap::new() };
    let mut states: HashMap<usize, State> = HashMap::from([(0, entry)]);
    let mut open = vec![0];
    while let Some(start) = open.pop() {
        let Some(mut state) = states.get(&start).cloned() else { continue };
        let mut reach = |to: usize, state: &State| {
            let changed = match states.get_mut(&to) {
                None => {
                    states.insert(to, state.clone());
                    true
                }
                Some(old) => {
                    let before = old.clone();
                    old.meet(state);
                    *old != before
                }
            };
            if changed {
                open.push(to);
            }
        };
        walk(kernel, &labels, start, &mut state, &mut reach, &mut |_, _, _| {});
    }
    let mut starts: Vec<usize> = states.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        let Some(mut state) = states.get(&start).cloned() else { continue };
        walk(kernel, &labels, start, &mut state, &mut |_, _| {}, &mut |at, inst, state| {
            let (uses, _) = inst.uses_and_defs();
            if let Some(r) = uses.iter().find(|r| !state.has(**r, inst.guard)) {
                let name = kernel.reg(*r).map_or("", |r| &r.name);
                let on = if kernel.insts().any(|(_, i)| i.uses_and_defs().1.contains(r)) {
                    "is not written on every way to here; write it before the branch, or on both sides"
                } else {
                    "is never written; write it first"
                };
                faults.push((Some(at), format!("`{name}` {on}")));
            }
        });
    }
    faults.sort_by_key(|(at, _)| *at);
    faults.dedup();
}

/// Follows the lines from a start to the next label or branch. Says which line control reaches with which state, and shows each
/// instruction with the state before it.
fn walk(
    kernel: &Kernel,
    labels: &HashMap<&str, usize>,
    start: usize,
    state: &mut State,
    reach: &mut impl FnMut(usize, &State),
    each: &mut impl FnMut(usize, &Inst, &State),
) {
    for (at, line) in kernel.body.iter().enumerate().skip(start) {
        let inst = match line {
            Line::Comment(_) => continue,
            Line::Label(_) if at == start => continue,
            Line::Label(_) => return reach(at, state),
            Line::Inst(inst) => inst,
        };
        each(at, inst, state);
        if inst.op.ends() {
            let to = inst.operands.iter().find_map(|o| match o {
                Operand::Label(name) => labels.get(name.as_str()).copied(),
                _ => None,
            });
            if let (Op::Bra {} | Op::BraUniform {}, Some(to)) = (inst.op, to) {
                let mut there = state.clone();
                if let Some(g) = inst.guard {
                    there.learn(g);
                }
                reach(to, &there);
            }
            if let Some(g) = inst.guard {
                state.learn(Guard { negated: !g.negated, ..g });
                reach(at + 1, state);
            }
            return;
        }
        for r in inst.uses_and_defs().1 {
            state.define(r, inst.guard);
        }
    }
}
