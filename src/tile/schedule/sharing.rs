//! Assigns scratch offsets to tiles; tiles may share memory.
//!
//! In: the events of each block, the tiles that need scratch, and the live-out sets of blocks. Out:
//! an offset for each tile. Tiles that are live at the same time never overlap; a result overlaps
//! an operand of its event only if the event can write in place: over the accumulator of a `dot`,
//! over the operand of a `pair_rows`, or over an operand of the same shape in a run. It must not
//! know why a tile needs scratch.

use std::collections::{BTreeMap, BTreeSet};

use super::runs::{Event, tile};
use crate::tile::{Block, Body, Inst, Op, Terminator, TileType, Value};

/// The instructions of an event.
pub(super) fn insts_of(e: &Event) -> &[Inst] {
    match e {
        Event::Single(i) => std::slice::from_ref(i),
        Event::Run { insts, .. } => insts,
    }
}

/// Updates the live set backwards over an event.
pub(super) fn step_back(body: &Body, e: &Event, in_scratch: &BTreeSet<Value>, live: &mut BTreeSet<Value>) {
    for i in insts_of(e) {
        if let Some(v) = body.inst(*i).result {
            live.remove(&v);
        }
    }
    for i in insts_of(e) {
        let made_here = |v: &Value| insts_of(e).iter().any(|k| body.inst(*k).result == Some(*v));
        live.extend(body.inst(*i).operands.iter().filter(|v| in_scratch.contains(v) && !made_here(v)));
    }
}

/// State of the assignment.
pub(super) struct Sharing<'a> {
    body: &'a Body,
    values: Vec<Value>,
    /// Pairs that must not share memory.
    conflicts: BTreeSet<(Value, Value)>,
    /// Pairs whose sharing saves a copy, best first.
    wishes: Vec<(Value, Value)>,
    /// Pairs of a block argument and a value passed for it, which must share memory.
    jumps: Vec<(Value, Value)>,
    /// The class of each value; members share memory.
    class: BTreeMap<Value, usize>,
    /// The values of each class.
    members: Vec<Vec<Value>>,
}

impl<'a> Sharing<'a> {
    /// Collects the constraints.
    pub(super) fn new(
        body: &'a Body,
        events: &BTreeMap<Block, Vec<Event>>,
        in_scratch: &BTreeSet<Value>,
        live_out: &BTreeMap<Block, BTreeSet<Value>>,
    ) -> Sharing<'a> {
        let mut s = Sharing {
            body,
            values: in_scratch.iter().copied().collect(),
            conflicts: BTreeSet::new(),
            wishes: Vec::new(),
            jumps: Vec::new(),
            class: in_scratch.iter().enumerate().map(|(i, v)| (*v, i)).collect(),
            members: in_scratch.iter().map(|v| vec![*v]).collect(),
        };
        for block in &body.layout {
            let mut live: BTreeSet<Value> = live_out.get(block).cloned().unwrap_or_default();
            if let Terminator::Br(call) = &body.block(*block).terminator {
                let args = &body.block(call.block).args;
                let given: Vec<(Value, Value)> =
                    call.args.iter().zip(args).filter(|(v, _)| in_scratch.contains(v)).map(|(v, a)| (*v, *a)).collect();
                for (v, a) in &given {
                    // The argument is written while the others and all live values are still in
                    // scratch.
                    for other in given.iter().map(|(w, _)| *w).chain(live.iter().copied()) {
                        if other != *v {
                            s.conflict(*a, other);
                        }
                    }
                    if v != a {
                        s.jumps.push((*v, *a));
                    }
                }
                live.extend(given.iter().map(|(v, _)| *v));
            }
            for e in events.get(block).map(Vec::as_slice).unwrap_or_default().iter().rev() {
                s.event(e, in_scratch, &live);
                step_back(body, e, in_scratch, &mut live);
            }
            let args: Vec<Value> = body.block(*block).args.iter().filter(|v| in_scratch.contains(v)).copied().collect();
            for a in &args {
                for other in live.iter().chain(&args).filter(|o| *o != a) {
                    s.conflict(*a, *other);
                }
            }
        }
        s
    }

    fn conflict(&mut self, a: Value, b: Value) {
        self.conflicts.insert((a.min(b), a.max(b)));
    }

    fn event(&mut self, e: &Event, in_scratch: &BTreeSet<Value>, live_after: &BTreeSet<Value>) {
        let made: Vec<Value> =
            insts_of(e).iter().filter_map(|i| self.body.inst(*i).result).filter(|v| in_scratch.contains(v)).collect();
        let read: BTreeSet<Value> = insts_of(e)
            .iter()
            .flat_map(|i| self.body.inst(*i).operands.iter().copied())
            .filter(|v| in_scratch.contains(v) && !made.contains(v))
            .collect();
        for v in &made {
            for other in live_after.iter().chain(&made).filter(|o| *o != v) {
                self.conflict(*v, *other);
            }
            for o in &read {
                // Interleaved pairs of rows take half of the operand's memory, however many they
                // are.
                let in_pairs = matches!(e, Event::Single(i) if self.body.inst(*i).op == Op::PairRows);
                let same = match (tile(self.body, *v), tile(self.body, *o)) {
                    (Some(a), Some(b)) => {
                        let sizes = |t: &TileType| (t.cols, t.element_bytes(), t.pitch());
                        (in_pairs || a.rows == b.rows) && sizes(a) == sizes(b)
                    }
                    _ => false,
                };
                let in_place = match e {
                    Event::Single(_) if in_pairs => true,
                    // Only the accumulator is read at the position where the result is written.
                    Event::Single(i) => {
                        self.body.inst(*i).operands.get(2) == Some(o) && {
                            let d = self.body.inst(*i);
                            d.operands.get(..2).is_some_and(|ab| !ab.contains(o))
                        }
                    }
                    // Every element is read before its memory is written; a reduction is written
                    // after everything is read.
                    Event::Run { .. } => true,
                };
                if same && in_place && !live_after.contains(o) {
                    self.wishes.push((*v, *o));
                } else {
                    self.conflict(*v, *o);
                }
            }
        }
    }

    /// Merges the classes of two values, if no members conflict.
    fn join(&mut self, a: Value, b: Value) -> bool {
        let (Some(x), Some(y)) = (self.class.get(&a).copied(), self.class.get(&b).copied()) else { return false };
        if x == y {
            return true;
        }
        let (own, others) = (&self.members[x], &self.members[y]);
        if own.iter().any(|v| others.iter().any(|w| self.conflicts.contains(&((*v).min(*w), (*v).max(*w))))) {
            return false;
        }
        let others = std::mem::take(&mut self.members[y]);
        self.class.extend(others.iter().map(|v| (*v, x)));
        self.members[x].extend(others);
        true
    }

    /// The offset of each value, and the total bytes of scratch.
    pub(super) fn assign(mut self) -> Result<(BTreeMap<Value, u32>, u64), String> {
        for (v, a) in self.jumps.clone() {
            if !self.join(v, a) {
                return Err("a jump's argument and what it is given are live together".into());
            }
        }
        for (v, o) in self.wishes.clone() {
            self.join(v, o);
        }
        // First fit over classes, in order of their first value.
        let mut classes: Vec<Vec<Value>> = Vec::new();
        for v in &self.values {
            match classes.iter_mut().find(|c| c.first().and_then(|w| self.class.get(w)) == self.class.get(v)) {
                Some(c) => c.push(*v),
                None => classes.push(vec![*v]),
            }
        }
        let bytes =
            |c: &[Value]| c.iter().filter_map(|v| tile(self.body, *v)).map(TileType::scratch_bytes).max().unwrap_or(0);
        let mut placed: Vec<(u64, u64, &[Value])> = Vec::new();
        let mut total = 0;
        for c in &classes {
            let size = bytes(c);
            let clashes = |other: &[Value]| {
                c.iter().any(|v| other.iter().any(|w| self.conflicts.contains(&((*v).min(*w), (*v).max(*w)))))
            };
            let mut taken: Vec<(u64, u64)> =
                placed.iter().filter(|(_, _, o)| clashes(o)).map(|(at, n, _)| (*at, *at + *n)).collect();
            taken.sort_unstable();
            let mut at = 0;
            for (from, to) in taken {
                if at + size <= from {
                    break;
                }
                at = at.max(to);
            }
            placed.push((at, size, c));
            total = total.max(at + size);
        }
        let mut offsets = BTreeMap::new();
        for (at, _, c) in &placed {
            let at = u32::try_from(*at).map_err(|_| "the tiles need more than 4 GiB of scratch")?;
            offsets.extend(c.iter().map(|v| (*v, at)));
        }
        Ok((offsets, total))
    }
}
