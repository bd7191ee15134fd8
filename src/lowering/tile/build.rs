//! Construction of graph IR instructions during lowering.
//!
//! In: an operation and its operands. Out: the instruction, typed by the operation's type rule,
//! appended to a list. Errors are bugs in attnc, returned as messages.

use crate::ir::{Function, Inst, InstData, Loc, Op, Type, Value};
use crate::shape::TensorType;

pub(super) fn operand(data: &InstData, i: usize) -> Result<Value, String> {
    data.operands.get(i).copied().ok_or_else(|| format!("{} has no operand {i}", data.op))
}

pub(super) fn tensor(f: &Function, v: Value) -> Result<TensorType, String> {
    f.tensor(v).cloned().ok_or_else(|| format!("{v} is not a tensor"))
}

/// Makes an instruction; its type follows from the operation's rule.
pub(super) fn emit(
    f: &mut Function,
    op: Op,
    operands: Vec<Value>,
    declared: Option<Type>,
    loc: Loc,
    out: &mut Vec<Inst>,
) -> Result<Value, String> {
    let types: Vec<&Type> = operands.iter().map(|v| f.ty(*v)).collect();
    let ty = crate::ir::result_type(&op, &types, declared.as_ref())?;
    let inst = f.make_inst(op, operands, ty, loc);
    out.push(inst);
    f.inst(inst).result.ok_or_else(|| "an instruction without a result".to_string())
}
