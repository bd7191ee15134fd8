//! Aligns the values of two sides.
//!
//! In: the values of an entry point on both sides. Out: pairs that should be equal, and how certain
//! that is. It must not know the numbers.

use super::values::{Values, Watched};
use crate::ir::{Function, Terminator, Value, ValueDef};
use std::collections::{BTreeMap, BTreeSet};

/// How it is known that two values are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Evidence {
    /// Both sides have the same operations.
    Structure,
    /// Both come from the same place in the source.
    Origin,
}

/// The pairs of inner values, as indices of the lists of both sides, in the order of the first.
pub(super) struct Pairs {
    pub(super) list: Vec<(usize, usize)>,
    pub(super) evidence: Evidence,
}

/// Aligns the values of an entry point. `origin`: both sides were read from the same program, so
/// values keep their numbers; `file`: locations are in the same file.
pub(super) fn align(one: &Values, two: &Values, origin: bool, file: bool) -> Pairs {
    let is_graph = one.function.is_some() == two.function.is_some();
    let shape = |values: &Values| values.list.iter().map(|w| (w.op.clone(), w.ty.clone())).collect::<Vec<_>>();
    if is_graph && shape(one) == shape(two) {
        return Pairs { list: (0..one.list.len()).map(|i| (i, i)).collect(), evidence: Evidence::Structure };
    }
    let mut found = Pairing { one, two, list: Vec::new(), left: BTreeSet::new(), right: BTreeSet::new() };
    if origin && is_graph {
        found.by(|w| w.value.map(|v| (v.as_u32(), w.ty.clone())));
    }
    let place = |w: &Watched| (w.loc.line > 0).then_some((w.loc.file, w.loc.line, w.loc.column));
    if file && is_graph {
        found.by(|w| Some((place(w)?, w.op.clone(), w.ty.clone())));
        found.by(|w| Some((place(w)?, w.ty.clone())));
    } else if file {
        // A launch may write a tensor as one axis.
        found.by(|w| Some((place(w)?, w.size.0.name(), w.size.1.to_string())));
    } else {
        found.in_order();
    }
    found.list.sort_unstable();
    Pairs { list: found.list, evidence: Evidence::Origin }
}

struct Pairing<'v> {
    one: &'v Values,
    two: &'v Values,
    list: Vec<(usize, usize)>,
    left: BTreeSet<usize>,
    right: BTreeSet<usize>,
}

impl Pairing<'_> {
    fn add(&mut self, pair: (usize, usize)) {
        self.left.insert(pair.0);
        self.right.insert(pair.1);
        self.list.push(pair);
    }

    /// Pairs values with equal keys, if both sides have as many of them.
    fn by<K: Ord>(&mut self, key: impl Fn(&Watched) -> Option<K>) {
        let mut groups: BTreeMap<K, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (i, w) in self.one.list.iter().enumerate().filter(|(i, _)| !self.left.contains(i)) {
            key(w).into_iter().for_each(|k| groups.entry(k).or_default().0.push(i));
        }
        for (i, w) in self.two.list.iter().enumerate().filter(|(i, _)| !self.right.contains(i)) {
            key(w).into_iter().for_each(|k| groups.entry(k).or_default().1.push(i));
        }
        for (left, right) in groups.into_values().filter(|(left, right)| left.len() == right.len()) {
            left.into_iter().zip(right).for_each(|pair| self.add(pair));
        }
    }

    /// Pairs the longest sequence of operations that both sides have in common.
    fn in_order(&mut self) {
        let keys = |values: &Values| values.list.iter().map(|w| format!("{} {}", w.op, w.ty)).collect::<Vec<_>>();
        let (one, two) = (keys(self.one), keys(self.two));
        for op in similar::capture_diff_slices(similar::Algorithm::Myers, &one, &two) {
            if let similar::DiffOp::Equal { old_index, new_index, len } = op {
                (0..len).for_each(|n| self.add((old_index + n, new_index + n)));
            }
        }
    }
}

/// The values on the way to values that are wrong: from these backwards, up to values that agree.
pub(super) fn on_the_way(f: &Function, wrong: &BTreeSet<Value>, agree: &BTreeSet<Value>) -> BTreeSet<Value> {
    let mut way = BTreeSet::new();
    let mut work: Vec<Value> = wrong.iter().copied().collect();
    let predecessors = f.predecessors();
    while let Some(v) = work.pop() {
        if (agree.contains(&v) && !wrong.contains(&v)) || !way.insert(v) {
            continue;
        }
        match f.def(v) {
            ValueDef::Param => {}
            ValueDef::Result(i) => work.extend(&f.inst(i).operands),
            ValueDef::Arg(block, at) => {
                for from in &predecessors[block] {
                    let end = &f.block(*from).terminator;
                    if let Terminator::BrIf { condition, .. } = end {
                        work.push(*condition);
                    }
                    let calls = end.targets().into_iter().filter(|c| c.block == block);
                    work.extend(calls.filter_map(|c| c.args.get(at)));
                }
            }
        }
    }
    way
}
