//! Splits grid points that loop over elements serially, as gathers at single indices do: on a GPU
//! each element becomes a point.
//!
//! In: an unscheduled kernel. Out: the same, with a step of 1 along such a grid axis. A thread
//! would wait for each element in turn, where separate blocks wait concurrently.
//!
//! ```text
//! grid(%g: ceil(D, c))            %start = mul %g, c;  %rest = sub D, %start;  %n = min %rest, c;  %end = add %start, %n
//! br ^head(%start)                                     (or %end = add %start, c, if c divides D)
//! ^head(%i: index):               while lt %i, %end;  then add %i, 1;  no other loop-carried values
//!   store %y[.., %i, ..]          no two points write the same elements
//! ```
//!
//! If `c`, `%start` and `%end` have no other uses, the points go through the same elements for any
//! `c`.

use crate::scalar::{BinaryOp, CmpOp, Scalar};
use crate::ssa::Use;
use crate::tile::{Body, Inst, Kernel, Op, ParamMode, Terminator, Value};

/// Applies the rewrite to all suitable axes; returns whether there were any.
pub(super) fn one_each(kernel: &mut Kernel) -> bool {
    let found: Vec<(usize, Inst)> =
        (0..kernel.grid.len()).filter_map(|axis| Some((axis, step_of(kernel, axis)?))).collect();
    for (axis, step) in &found {
        kernel.body.inst_mut(*step).op = Op::Const(Scalar::Int(1));
        kernel.grid[*axis].step = 1;
    }
    !found.is_empty()
}

/// The other operand of a binary operation.
fn other(body: &Body, i: Inst, op: BinaryOp, one: Value) -> Option<Value> {
    let data = body.inst(i);
    match data.operands.as_slice() {
        [a, b] if data.op == Op::Binary(op) && *a == one => Some(*b),
        [a, b] if data.op == Op::Binary(op) && *b == one => Some(*a),
        _ => None,
    }
}

/// The constant `c` of a suitable axis.
fn step_of(kernel: &Kernel, axis: usize) -> Option<Inst> {
    let (g, body) = (kernel.grid.get(axis)?, &kernel.body);
    if g.step <= 1 || kernel.params.iter().any(|p| p.mode == ParamMode::InOut) {
        return None;
    }
    let uses = body.uses();
    let [Use::Operand(mul, _)] = *uses[g.value].as_slice() else { return None };
    let c = other(body, mul, BinaryOp::Mul, g.value)?;
    let (step, _) = body.definition(c).filter(|(_, d)| d.op == Op::Const(Scalar::Int(g.step)))?;
    let start = body.inst(mul).result?;
    // Uses of the start.
    let (mut known, mut entry, mut end, mut rest) = (vec![mul], None, None, None);
    for u in &uses[start] {
        match *u {
            Use::Terminator(b) if entry.is_none() => entry = Some(b),
            Use::Operand(i, 1) if body.inst(i).op == Op::Binary(BinaryOp::Sub) && rest.is_none() => rest = Some(i),
            Use::Operand(i, _) if end.is_none() => end = Some((i, other(body, i, BinaryOp::Add, start)?)),
            _ => return None,
        }
    }
    let (entry, (add, count)) = (entry?, end?);
    match rest {
        None if count == c => {}
        Some(rest) => {
            let all = body.def_inst(*body.inst(rest).operands.first()?)?;
            let is_all = matches!(&all.op, Op::DimValue(d) if *d == g.extent);
            let rest = body.inst(rest).result?;
            let (min, _) = body.definition(count)?;
            let alone = uses[rest].len() == 1 && uses[count].len() == 1;
            if !is_all || !alone || other(body, min, BinaryOp::Min, rest) != Some(c) {
                return None;
            }
            known.push(min);
        }
        None => return None,
    }
    known.push(add);
    if !uses[c].iter().all(|u| matches!(u, Use::Operand(i, _) if known.contains(i))) {
        return None;
    }
    // The loop.
    let Terminator::Br(into) = &body.block(entry).terminator else { return None };
    let ([i], [given]) = (body.block(into.block).args.as_slice(), into.args.as_slice()) else { return None };
    let [Use::Operand(compare, 1)] = *uses[body.inst(add).result?].as_slice() else { return None };
    let Terminator::BrIf { condition, .. } = &body.block(into.block).terminator else { return None };
    let compares = body.inst(compare);
    let goes_on = compares.op == Op::Compare(CmpOp::Lt)
        && compares.operands.first() == Some(i)
        && compares.result == Some(*condition);
    let jumps = body.layout.iter().flat_map(|b| body.block(*b).terminator.targets());
    let back: Vec<Value> =
        jumps.filter(|call| call.block == into.block).filter_map(|call| call.args.first().copied()).collect();
    let next = back.iter().copied().filter(|v| v != given).collect::<Vec<_>>();
    let ([next], true) = (next.as_slice(), back.len() == 2 && *given == start && goes_on) else { return None };
    let by = other(body, body.definition(*next)?.0, BinaryOp::Add, *i)?;
    let is_one = body.def_inst(by).is_some_and(|d| d.op == Op::Const(Scalar::Int(1)));
    let writes_own = body.insts().all(|(_, _, d)| !matches!(d.op, Op::Store { .. }) || d.operands.contains(i));
    (is_one && writes_own).then_some(step)
}
