//! Analysis: is a kernel's result, apart from rounding, independent of the size and number of tiles
//! along an axis?
//!
//! In: a kernel, the tiles of an axis, and the loop along it, if there is one. Out: how the kernel
//! combines the partial results of tiles ([`combinations`]), if it does nothing else with them. It
//! must not know machines or sizes.
//!
//! The partial result of a tile along the axis depends on the tile, so it may only be combined with
//! earlier partial results:
//!
//! ```text
//! ^head(%j: index, %acc: tile ..):              max of max, sum of sums, and of or: the operation of the reduction
//!   %part = reduce_max %x, axis=1
//!   %next = max %acc, %part
//! ```
//!
//! A sum may have a compensation in a second value (`tile::scan::two_sum`), and a maximum its
//! index. Other loop-carried values must be passed on unchanged. The start of the next iteration
//! must have no other uses, and a store in the loop must be of elements along the axis: otherwise,
//! the result of the last tile would remain.
//!
//! Not accepted: other equivalent patterns, such as online softmax, and matmuls that sum along the
//! axis.

use std::collections::BTreeSet;

use crate::scalar::{BinaryOp, CmpOp, ReduceKind};
use crate::tile::{Block, Body, Inst, Op, Terminator, Value, ValueDef};

/// How a loop-carried value `acc` is combined with the partial result of a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Combination {
    /// With `part`, the partial result: by the operation of `kind`, or as the maximum of a
    /// [`Combination::Place`].
    Part {
        /// Loop-carried value.
        acc: Value,
        /// Partial result.
        part: Value,
        /// Kind of the reduction.
        kind: ReduceKind,
    },
    /// The compensation of `sum`.
    Lost {
        /// Loop-carried value.
        acc: Value,
        /// The sum.
        sum: Value,
    },
    /// The index of the maximum: `found` is the index of the tile's maximum, `best`.
    Place {
        /// Loop-carried value.
        acc: Value,
        /// The tile's maximum.
        best: Value,
        /// Its index among all elements.
        found: Value,
    },
}

impl Combination {
    /// The loop-carried value.
    pub(super) fn acc(&self) -> Value {
        match self {
            Combination::Part { acc, .. } | Combination::Lost { acc, .. } | Combination::Place { acc, .. } => *acc,
        }
    }

    /// The partial result, if it is combined directly.
    pub(super) fn part(&self) -> Option<Value> {
        match self {
            Combination::Part { part, .. } => Some(*part),
            Combination::Lost { .. } | Combination::Place { .. } => None,
        }
    }
}

/// Is the result independent of the tile size along an axis? `nodes`: the tiles along the axis,
/// each with the side along it; `counter`: the start of the current tile, if there is a loop along
/// the axis.
pub(super) fn are_independent_of_size(body: &Body, nodes: &[(Value, usize)], counter: Option<Value>) -> bool {
    combinations(body, nodes, counter).is_some()
}

/// How partial results along an axis are combined; see the head of this file. `None` if they have
/// any other use.
pub(super) fn combinations(body: &Body, nodes: &[(Value, usize)], counter: Option<Value>) -> Option<Vec<Combination>> {
    let along = |v: Value, side: usize| nodes.contains(&(v, side));
    let is_product_along = |op: &Op, operands: &[Value]| match (op, operands) {
        (Op::Dot { .. }, [a, b, ..]) => along(*a, 1) || along(*b, 0),
        _ => false,
    };
    if body.insts().any(|(_, _, d)| is_product_along(&d.op, &d.operands)) {
        return None;
    }
    let results = body.insts().filter_map(|(_, _, d)| d.result);
    let parts: Vec<Value> = results.filter(|v| reduced(body, nodes, *v).is_some()).collect();
    let Some(counter) = counter else { return parts.is_empty().then(Vec::new) };
    let over = Loop::find(body, counter)?;
    let mut found = Combined::default();
    for (acc, next) in &over.carried {
        let pair = (*acc, *next);
        if acc != next && !found.sum(body, nodes, &over, pair) && !found.choice(body, nodes, &over, pair) {
            return None;
        }
    }
    // Combined values must not be used elsewhere in the loop.
    let made = found.steps.iter().filter_map(|i| body.inst(*i).result);
    let hidden: BTreeSet<Value> = parts.iter().copied().chain(made).chain(found.accumulators.iter().copied()).collect();
    let is_told = |i: &Inst| !found.steps.contains(i) && body.inst(*i).operands.iter().any(|v| hidden.contains(v));
    let stores_elsewhere = |i: &Inst| match (&body.inst(*i).op, body.inst(*i).operands.last()) {
        (Op::Store { .. }, Some(tile)) => !along(*tile, 0) && !along(*tile, 1),
        _ => false,
    };
    let is_alone = over.inside.iter().all(|block| {
        let insts = &body.block(*block).insts;
        let is_passed = *block != over.back && over.passes_inside(body, *block).any(|v| hidden.contains(&v));
        !is_passed && !insts.iter().any(|i| is_told(i) || stores_elsewhere(i))
    });
    is_alone.then_some(found.all)
}

/// The kind of reduction along the axis that defines a value.
fn reduced(body: &Body, nodes: &[(Value, usize)], v: Value) -> Option<ReduceKind> {
    let data = body.def_inst(v)?;
    match (&data.op, data.operands.first()) {
        (Op::Reduce { kind, axis }, Some(of)) if nodes.contains(&(*of, *axis)) => Some(*kind),
        _ => None,
    }
}

/// A loop with a single back edge.
struct Loop {
    counter: Value,
    inside: BTreeSet<Block>,
    /// The block with the back edge.
    back: Block,
    /// Loop-carried values, at the start of an iteration and as passed to the next, without the
    /// counter.
    carried: Vec<(Value, Value)>,
}

impl Loop {
    fn find(body: &Body, counter: Value) -> Option<Loop> {
        let ValueDef::Arg(head, n) = body.def(counter) else { return None };
        let Terminator::BrIf { then, otherwise, .. } = &body.block(head).terminator else { return None };
        let reached = |from: Block| {
            let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
            while let Some(block) = open.pop() {
                let next = body.block(block).terminator.targets().into_iter().map(|call| call.block);
                open.extend(next.filter(|b| *b != head && seen.insert(*b)));
            }
            seen
        };
        let (mut inside, after) = (reached(then.block), reached(otherwise.block));
        if !inside.is_disjoint(&after) {
            return None;
        }
        let back = |block: &&Block| body.block(**block).terminator.targets().iter().any(|call| call.block == head);
        let mut ways = inside.iter().filter(back);
        let (back, None) = (*ways.next()?, ways.next()) else { return None };
        let Terminator::Br(call) = &body.block(back).terminator else { return None };
        let pairs = body.block(head).args.iter().copied().zip(call.args.iter().copied()).enumerate();
        let carried = pairs.filter(|(i, _)| *i != n).map(|(_, pair)| pair).collect();
        inside.insert(head);
        Some(Loop { counter, inside, back, carried })
    }

    /// The condition of a block, and the arguments it passes to other blocks of the loop.
    fn passes_inside(&self, body: &Body, block: Block) -> impl Iterator<Item = Value> {
        let end = &body.block(block).terminator;
        let condition = if let Terminator::BrIf { condition, .. } = end { Some(*condition) } else { None };
        let calls = end.targets().into_iter().filter(|call| self.inside.contains(&call.block));
        condition.into_iter().chain(calls.flat_map(|call| call.args.iter().copied()))
    }

    /// The next value of a loop-carried value.
    fn next(&self, acc: Value) -> Option<Value> {
        self.carried.iter().find(|(a, _)| *a == acc).map(|(_, next)| *next)
    }

    fn is_carried(&self, v: Value) -> bool {
        self.carried.iter().any(|(acc, _)| *acc == v)
    }
}

/// Combinations found so far.
#[derive(Default)]
struct Combined {
    accumulators: BTreeSet<Value>,
    steps: BTreeSet<Inst>,
    all: Vec<Combination>,
}

/// The operands of a value, if it is defined by `op`.
fn operands<const N: usize>(body: &Body, v: Value, op: &Op) -> Option<[Value; N]> {
    body.def_inst(v).filter(|d| d.op == *op).and_then(|d| d.operands.as_slice().try_into().ok())
}

fn binary(body: &Body, v: Value, op: BinaryOp) -> Option<[Value; 2]> {
    operands(body, v, &Op::Binary(op))
}

impl Combined {
    fn accept(&mut self, body: &Body, accumulators: &[Value], made: &[Value]) {
        self.accumulators.extend(accumulators);
        self.steps.extend(made.iter().filter_map(|v| body.definition(*v)).map(|(i, _)| i));
    }

    /// Recognises `op(acc, part)`, or the compensation of a sum.
    fn sum(&mut self, body: &Body, nodes: &[(Value, usize)], over: &Loop, (acc, next): (Value, Value)) -> bool {
        let Some(Op::Binary(op)) = body.def_inst(next).map(|d| d.op.clone()) else { return false };
        let Some([a, b]) = binary(body, next, op) else { return false };
        let part = if a == acc { b } else { a };
        if (a == acc) == (b == acc) {
            return false;
        }
        let kind = reduced(body, nodes, part);
        if let Some(kind) = kind.filter(|kind| *kind != ReduceKind::Mean && kind.combination() == Some(op)) {
            self.all.push(Combination::Part { acc, part, kind });
            self.accept(body, &[acc], &[next]);
            return true;
        }
        // lost + ((sum - of_a') + (part - of_b)), for the sum of the same iteration.
        let lost = || {
            let [of_sum, of_part] = binary(body, part, BinaryOp::Add)?;
            let [sum, of_a] = binary(body, of_sum, BinaryOp::Sub)?;
            let [added, of_b] = binary(body, of_part, BinaryOp::Sub)?;
            let [both, again] = binary(body, of_a, BinaryOp::Sub)?;
            let is_rest = binary(body, of_b, BinaryOp::Sub) == Some([both, sum]) && again == of_b;
            let is_sum = over.next(sum) == Some(both) && binary(body, both, BinaryOp::Add) == Some([sum, added]);
            let is_part = reduced(body, nodes, added) == Some(ReduceKind::Sum);
            let fits = op == BinaryOp::Add && is_rest && is_sum && is_part;
            fits.then_some((sum, [of_sum, of_part, of_a, of_b]))
        };
        let Some((sum, made)) = lost() else { return false };
        self.all.push(Combination::Lost { acc, sum });
        self.accept(body, &[acc], &made);
        self.accept(body, &[], &[part, next]);
        true
    }

    /// Recognises a maximum with its index: replaced by a greater element, or by the first NaN.
    fn choice(&mut self, body: &Body, nodes: &[(Value, usize)], over: &Loop, (acc, next): (Value, Value)) -> bool {
        let along = |op: &Op| if let Op::Reduce { axis, .. } = op { Some(*axis) } else { None };
        let found = || {
            let [better, new, old] = operands(body, next, &Op::Select)?;
            let [greater, first_nan] = binary(body, better, BinaryOp::Or)?;
            let [best, most] = operands(body, greater, &Op::Compare(CmpOp::Gt))?;
            let [nan, number] = binary(body, first_nan, BinaryOp::And)?;
            let is_first = operands(body, nan, &Op::Compare(CmpOp::Ne)) == Some([best, best])
                && operands(body, number, &Op::Compare(CmpOp::Eq)) == Some([most, most]);
            let is_best = reduced(body, nodes, best) == Some(ReduceKind::Max) && over.is_carried(most);
            let goes_on = over.next(most).and_then(|v| operands(body, v, &Op::Select)) == Some([better, best, most]);
            if old != acc || !is_first || !is_best || !goes_on {
                return None;
            }
            let mut made = vec![better, greater, first_nan, nan, number, next];
            if (new, old) != (best, most) {
                let [at, start] = binary(body, new, BinaryOp::Add)?;
                let [number] = operands(body, start, &Op::Cast)?;
                if reduced(body, nodes, at) != Some(ReduceKind::ArgMax) || number != over.counter {
                    return None;
                }
                // Index and maximum are of the same elements.
                let of = |v: Value| body.def_inst(v).map(|d| (d.operands.clone(), along(&d.op)));
                if of(at) != of(best) {
                    return None;
                }
                made.push(new);
                return Some((Combination::Place { acc, best, found: new }, made));
            }
            Some((Combination::Part { acc, part: best, kind: ReduceKind::Max }, made))
        };
        let Some((combination, made)) = found() else { return false };
        self.all.push(combination);
        self.accept(body, &[acc], &made);
        true
    }
}
