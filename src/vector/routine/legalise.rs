//! Legalisation: operations that a machine does not support well are replaced, before a back end prints a routine.
//!
//! In: a routine, and which machine it is for. Out: the routine with other instructions that do the same.
//!
//! ```text
//!   %5 = lanes_below %4                         : boolx8
//!   %6 = load bf16, %0 + 2*%1, mask=%5          : f32x8
//! ->
//!   %5 = lanes_below %4                         : boolx8
//!   %6 = address %0 + 2*%1                      : address
//!   %7 = load_apart bf16, %6, %2, count=%4      : f32x8       // %2 = const 2
//! ```

use super::{Body, Op, Routine, Type};
use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::ssa::{Inst, Value};

/// Accesses of 8 and 16 bits that need a mask, or a vector of narrow elements to be stored, become accesses of one element
/// after another: AVX2 has neither such masks nor instructions that narrow (except for `f16`). The mask must be made by
/// `lanes_below`; one that is not is left, and no back end of such a machine takes it. `made`: called with each new instruction and the
/// one that it replaces.
pub fn part_narrow_accesses(routine: &mut Routine, mut made: impl FnMut(Inst, Inst)) {
    for b in routine.body.layout.clone() {
        for i in routine.body.block(b).insts.clone() {
            let data = routine.body.inst(i);
            let (elem, place, masked, is_store) = match data.op {
                Op::Load { elem, place, masked } => (elem, place, masked, false),
                Op::Store { elem, place, masked } => (elem, place, masked, true),
                _ => continue,
            };
            let operands = data.operands.clone();
            let (of_place, rest) = operands.split_at(place.operands().min(operands.len()));
            let lanes = rest.first().filter(|_| is_store).or(data.result.as_ref());
            let is_vector = lanes.is_some_and(|v| matches!(routine.body.ty(*v), Type::Lanes(_, n) if *n > 1));
            let unfit = elem.size() < 4 && is_vector && (masked || is_store && elem != Elem::F16);
            let count = rest.last().filter(|_| masked).and_then(|mask| count_of(&routine.body, *mask));
            if !unfit || masked && count.is_none() {
                continue;
            }
            let size = i64::try_from(elem.size()).unwrap_or(1);
            let step = insert(routine, b, i, Op::Const(Scalar::Int(size)), Vec::new(), Type::Index, &mut made);
            let start = insert(routine, b, i, Op::Address(place), of_place.to_vec(), Type::Address, &mut made);
            let mut operands: Vec<Value> = start.into_iter().chain(step).collect();
            operands.extend(rest.first().filter(|_| is_store));
            operands.extend(count);
            let data = routine.body.inst_mut(i);
            data.op = if is_store { Op::StoreApart(elem) } else { Op::LoadApart(elem) };
            data.operands = operands;
        }
    }
}

/// How many lanes a mask has, where an index says so.
fn count_of(body: &Body, mask: Value) -> Option<Value> {
    let data = body.def_inst(mask)?;
    data.operands.first().copied().filter(|_| data.op == Op::LanesBelow)
}

/// An instruction before another one.
fn insert(
    routine: &mut Routine,
    block: crate::ssa::Block,
    before: Inst,
    op: Op,
    operands: Vec<Value>,
    ty: Type,
    made: &mut impl FnMut(Inst, Inst),
) -> Option<Value> {
    let loc = routine.body.inst(before).loc;
    let inst = routine.body.make_inst(op, operands, Some(ty), loc);
    routine.body.insert_before(block, before, inst);
    made(inst, before);
    routine.body.inst(inst).result
}
