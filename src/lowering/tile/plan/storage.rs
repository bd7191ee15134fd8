//! Slot sharing: which values of a function share a slot, so that updates are done in place.
//!
//! In: a function in which every computing instruction is a region. Out: for some values, the value
//! whose slot they share. Without `update`, states and loops there is nothing to share.
//!
//! ```text
//! ^bb1(%i: index, %out: f32[S, D]):
//!   ..
//!   %new = update %out, %row, %i, axes=[0]      // in the slot of %out, which is not read after this
//!   br ^bb1(%j, %new)                           // where it has to be already
//! ```
//!
//! Candidates are block arguments, results of updates, and results of regions that are updated or
//! passed to a block. Two of them may share a slot if neither is live where the other is defined. A
//! candidate is live while it may still be read, itself or through a view: the result of
//! `transpose` and the like aliases its slot, and operands that only a tap needs are read at the
//! tap. A kernel must not write memory that it reads, so the operands of a region count as live
//! where its result is written. An update copies its value to a temporary if that lies in the slot
//! that it writes, so the value does not count.
//!
//! A loop-carried value is computed where the next iteration reads it, if possible: the copy would
//! be a launch in each iteration, which takes as long as a small step does. To this end, in a loop
//! over time, an elementwise region may overwrite an operand element by element: `c = keep * c +
//! ..`.
//!
//! The memory of a state is one more candidate: it is written where the state is set, and live
//! until the state is read or the function ends. If the values lie in its memory, neither reading
//! nor setting a state copies.
//!
//! This is the coalescing problem of out-of-SSA translation; see Boissinot and others 2009,
//! "Revisiting out-of-SSA translation for correctness, code quality and efficiency".

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::taps::ForTaps;
use super::together::loops_over_time;
use crate::ir::{Block, Cfg, Function, FusionKind, InstData, Loop, Op, Terminator, Value};

/// Numbers of candidates.
type Set = BTreeSet<usize>;

/// Maps a value to the value whose slot it shares.
#[derive(Default)]
pub(super) struct Storage {
    homes: BTreeMap<Value, Value>,
}

impl Storage {
    pub(super) fn analyse(f: &Function, cfg: &Cfg, for_taps: Option<&ForTaps>, states: &[&str]) -> Storage {
        let is_update = |d: &InstData| matches!(d.op, Op::Update { .. });
        let is_state = |d: &InstData| matches!(d.op, Op::State { .. } | Op::SetState { .. });
        let loops = cfg.loops();
        if loops.is_empty() && !f.insts().any(|(_, _, d)| is_update(d) || is_state(d)) {
            return Storage::default();
        }
        let live = Liveness::analyse(f, for_taps, states, &loops_over_time(f, cfg));
        let mut classes = Classes::new(&live, f);
        for (_, _, d) in f.insts() {
            if let Some((at, v)) = state_access(d, states) {
                classes.merge(cell(f, at), v);
            }
        }
        for (_, _, d) in f.insts().filter(|(_, _, d)| is_update(d)) {
            if let (Some(target), Some(result)) = (d.operands.first(), d.result) {
                classes.merge(*target, result);
            }
        }
        // First jumps that bring an updated value to its update, then other loop back edges, then
        // jumps into loops. Each merge may enable others.
        for step in 0..3 {
            let mut joined = true;
            while joined {
                joined = false;
                for b in &f.layout {
                    for call in f.block(*b).terminator.targets() {
                        let is_wanted = |l: &Loop| step == 2 || step == 1 && l.blocks.contains(b);
                        let carried = loops.iter().any(|l| l.header == call.block && is_wanted(l));
                        for (v, arg) in call.args.iter().zip(&f.block(call.block).args) {
                            if carried || [*v, *arg].iter().any(|v| classes.has_update(*v)) {
                                joined |= classes.merge(*v, *arg);
                            }
                        }
                    }
                }
            }
        }
        Storage { homes: classes.homes() }
    }

    /// The value whose slot `v` shares, if any.
    pub(super) fn home(&self, v: Value) -> Option<Value> {
        self.homes.get(&v).copied()
    }
}

/// The pseudo-value that stands for the memory of a state.
pub(super) fn cell(f: &Function, state: usize) -> Value {
    Value::from_u32(u32::try_from(f.value_count() + state).unwrap_or(u32::MAX))
}

/// Inverse of [`cell`].
pub(super) fn state_of(f: &Function, v: Value) -> Option<usize> {
    (v.as_u32() as usize).checked_sub(f.value_count())
}

/// The state that an instruction reads or writes, and the value read or written.
fn state_access(d: &InstData, states: &[&str]) -> Option<(usize, Value)> {
    let (name, v) = if let Op::State { name } = &d.op {
        (name, d.result?)
    } else if let Op::SetState { name } = &d.op {
        (name, *d.operands.first()?)
    } else {
        return None;
    };
    Some((states.iter().position(|s| s == name)?, v))
}

/// Liveness at the definitions of the candidates.
struct Liveness {
    candidates: Vec<Value>,
    number: SecondaryMap<Value, Option<usize>>,
    /// For each candidate, the others that are live right after its definition, or read by the
    /// defining instruction.
    at_definition: Vec<Set>,
}

/// Does the result alias the first operand?
fn is_view(op: &Op) -> bool {
    matches!(
        op,
        Op::Reshape
            | Op::Transpose { .. }
            | Op::Broadcast
            | Op::Slice { .. }
            | Op::Windows { .. }
            | Op::Index { .. }
            | Op::Extract { .. }
    )
}

/// Does the operation define a slot of its own?
fn is_written(op: &Op) -> bool {
    matches!(
        op,
        Op::Fused { .. }
            | Op::Gather { .. }
            | Op::Scatter { .. }
            | Op::Cumsum { .. }
            | Op::Argsort { .. }
            | Op::Concat { .. }
            | Op::Pad { .. }
    )
}

impl Liveness {
    fn analyse(f: &Function, for_taps: Option<&ForTaps>, states: &[&str], loops: &[Loop]) -> Liveness {
        let only_taps = |v: Value| for_taps.is_some_and(|t| t.has(f, v));
        let mut candidates = Vec::new();
        let mut number: SecondaryMap<Value, Option<usize>> = SecondaryMap::new();
        let mut wanted: BTreeSet<Value> = BTreeSet::new();
        for b in &f.layout {
            for call in f.block(*b).terminator.targets() {
                wanted.extend(&call.args);
            }
            for i in &f.block(*b).insts {
                let d = f.inst(*i);
                if let (Op::Update { .. } | Op::SetState { .. }, Some(target)) = (&d.op, d.operands.first()) {
                    wanted.insert(*target);
                }
            }
        }
        for at in 0..states.len() {
            number[cell(f, at)] = Some(candidates.len());
            candidates.push(cell(f, at));
        }
        let order = f.reverse_postorder();
        for b in &order {
            let args = f.block(*b).args.iter().copied().filter(|_| *b != f.entry());
            let results = f.block(*b).insts.iter().filter_map(|i| {
                let d = f.inst(*i);
                let v = d.result.filter(|v| !only_taps(*v))?;
                let fits =
                    matches!(d.op, Op::Update { .. } | Op::State { .. }) || (is_written(&d.op) && wanted.contains(&v));
                fits.then_some(v)
            });
            for v in args.chain(results).filter(|v| f.tensor(*v).is_some()) {
                number[v] = Some(candidates.len());
                candidates.push(v);
            }
        }
        // The candidates whose slots a value may alias: itself, or the operands that it is a view
        // of.
        let mut owners: SecondaryMap<Value, Set> = SecondaryMap::new();
        for v in &candidates {
            owners[*v].extend(number[*v]);
        }
        for b in &order {
            for i in &f.block(*b).insts {
                let d = f.inst(*i);
                let Some(v) = d.result.filter(|v| number[*v].is_none()) else { continue };
                let of = if only_taps(v) { d.operands.as_slice() } else { d.operands.get(..1).unwrap_or_default() };
                if only_taps(v) || is_view(&d.op) {
                    owners[v] = of.iter().flat_map(|x| owners[*x].iter().copied()).collect();
                }
            }
        }
        let mut out = Liveness { at_definition: vec![Set::new(); candidates.len()], candidates, number };
        out.walk(f, &order, &owners, states, loops);
        out
    }

    /// Live-out set of a block, including the operands of its terminator.
    fn at_end(f: &Function, b: Block, owners: &SecondaryMap<Value, Set>, before: &BTreeMap<Block, Set>) -> Set {
        let mut live = Set::new();
        let t = &f.block(b).terminator;
        for call in t.targets() {
            live.extend(before.get(&call.block).into_iter().flatten());
            call.args.iter().for_each(|v| live.extend(&owners[*v]));
        }
        match t {
            Terminator::BrIf { condition, .. } => live.extend(&owners[*condition]),
            Terminator::Return(vs) => vs.iter().for_each(|v| live.extend(&owners[*v])),
            Terminator::Br(_) => {}
            Terminator::Roles(never) => match *never {},
        }
        live
    }

    /// May the result overwrite a candidate that the instruction reads? An elementwise region may,
    /// element by element, if the operand is the whole candidate.
    fn may_be_over(&self, f: &Function, d: &InstData, read: usize, owners: &SecondaryMap<Value, Set>) -> bool {
        let elementwise = matches!(d.op, Op::Fused { kind: FusionKind::Map, .. });
        let same = |v: &Value| *v == self.candidates[read] && d.result.is_some_and(|r| f.ty(r) == f.ty(*v));
        elementwise && d.operands.iter().all(|v| !owners[*v].contains(&read) || same(v))
    }

    fn walk(
        &mut self,
        f: &Function,
        order: &[Block],
        owners: &SecondaryMap<Value, Set>,
        states: &[&str],
        loops: &[Loop],
    ) {
        // The next call reads all states.
        let kept: Set = (0..states.len()).collect();
        // Live-in sets, without the block's arguments.
        let mut before: BTreeMap<Block, Set> = BTreeMap::new();
        let mut changed = true;
        while changed {
            changed = false;
            for b in order.iter().rev() {
                let mut live = Liveness::at_end(f, *b, owners, &before);
                if matches!(f.block(*b).terminator, Terminator::Return(_)) {
                    live.extend(&kept);
                }
                for i in f.block(*b).insts.iter().rev() {
                    let d = f.inst(*i);
                    // A value that was read from a state, or is stored to one, equals its memory:
                    // they do not interfere.
                    let access = state_access(d, states);
                    if let (Op::SetState { .. }, Some((cell, v))) = (&d.op, access) {
                        live.remove(&cell);
                        let others = live.iter().filter(|m| **m != cell && self.number[v] != Some(**m));
                        self.at_definition[cell].extend(others);
                    }
                    if let Some(n) = d.result.and_then(|v| self.number[v]) {
                        live.remove(&n);
                        if let Some((cell, _)) = access {
                            let others = live.iter().filter(|m| **m != n && **m != cell);
                            self.at_definition[n].extend(others);
                            live.insert(cell);
                            continue;
                        }
                        self.at_definition[n].extend(live.iter().filter(|m| **m != n));
                        if is_written(&d.op) {
                            let in_time = loops.iter().any(|l| l.blocks.contains(b));
                            let apart = |m: &usize| *m != n && !(in_time && self.may_be_over(f, d, *m, owners));
                            let read: Set =
                                d.operands.iter().flat_map(|v| &owners[*v]).copied().filter(apart).collect();
                            self.at_definition[n].extend(read);
                        }
                    }
                    d.operands.iter().for_each(|v| live.extend(&owners[*v]));
                }
                let args: Set = f.block(*b).args.iter().filter_map(|v| self.number[*v]).collect();
                for n in &args {
                    let others = live.union(&args).filter(|m| *m != n);
                    self.at_definition[*n].extend(others);
                }
                live.retain(|m| !args.contains(m));
                if before.get(b) != Some(&live) {
                    before.insert(*b, live);
                    changed = true;
                }
            }
        }
    }
}

/// Union-find classes of candidates that share a slot.
struct Classes<'a> {
    live: &'a Liveness,
    f: &'a Function,
    class: Vec<usize>,
    members: Vec<Set>,
}

impl<'a> Classes<'a> {
    fn new(live: &'a Liveness, f: &'a Function) -> Classes<'a> {
        let count = live.candidates.len();
        Classes { live, f, class: (0..count).collect(), members: (0..count).map(|n| Set::from([n])).collect() }
    }

    fn class_of(&self, v: Value) -> Option<usize> {
        self.live.number[v].map(|n| self.class[n])
    }

    fn has_update(&self, v: Value) -> bool {
        let is_update = |n: &usize| {
            let v = self.live.candidates[*n];
            state_of(self.f, v).is_some() || self.f.def_inst(v).is_some_and(|d| matches!(d.op, Op::Update { .. }))
        };
        self.class_of(v).is_some_and(|c| self.members[c].iter().any(is_update))
    }

    /// Merges the classes of two values if no two members interfere.
    fn merge(&mut self, a: Value, b: Value) -> bool {
        let (Some(x), Some(y)) = (self.class_of(a), self.class_of(b)) else { return false };
        let is_cell = |v| state_of(self.f, v).is_some();
        if x == y || (!is_cell(a) && !is_cell(b) && self.f.ty(a) != self.f.ty(b)) {
            return false;
        }
        let at = &self.live.at_definition;
        let apart = self.members[x].iter().all(|n| self.members[y].is_disjoint(&at[*n]))
            && self.members[y].iter().all(|n| self.members[x].is_disjoint(&at[*n]));
        if apart {
            let moved = std::mem::take(&mut self.members[y]);
            moved.iter().for_each(|n| self.class[*n] = x);
            self.members[x].extend(moved);
        }
        apart
    }

    fn homes(&self) -> BTreeMap<Value, Value> {
        let mut homes = BTreeMap::new();
        for members in self.members.iter().filter(|m| m.len() > 1) {
            if let Some(first) = members.first() {
                let home = self.live.candidates[*first];
                homes.extend(members.iter().map(|n| (self.live.candidates[*n], home)));
            }
        }
        homes
    }
}
