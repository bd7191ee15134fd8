//! What must hold of a function: operands exist before they are used and have the types of the table, shifts are by
//! constants, the result has the declared type.
//!
//! In: a function. Out: nothing, or an error message.

use super::{Function, Inst, Op, Type, Value};

/// Checks a function.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(f: &Function) -> Result<(), String> {
    for (at, inst) in f.insts.iter().enumerate() {
        check(f, at, inst)?;
    }
    returned(f)
}

/// Checks the instruction that was added last.
pub(super) fn last(f: &Function) -> Result<(), String> {
    match f.insts.split_last() {
        Some((inst, before)) => check(f, before.len(), inst),
        None => Ok(()),
    }
}

/// Checks what is returned.
pub(super) fn returned(f: &Function) -> Result<(), String> {
    match f.ty(f.result) {
        Some(ty) if ty == f.result_type => Ok(()),
        Some(ty) => Err(format!("%{} is {ty}, and @{} gives {}", f.name_of(f.result), f.name, f.result_type)),
        None => Err("what is returned does not exist".to_string()),
    }
}

fn check(f: &Function, at: usize, inst: &Inst) -> Result<(), String> {
    let name = inst.op.name();
    let types = inst.operands.iter().map(|v| {
        let is_before = v.index() < f.params.len() + at;
        f.ty(*v).filter(|_| is_before).ok_or_else(|| format!("{name}: an operand does not stand before it"))
    });
    let types = types.collect::<Result<Vec<Type>, String>>()?;
    if let Some(signature) = inst.op.signature() {
        if types != signature.operands {
            let list = |types: &[Type]| types.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "{name} takes ({}), and its operands are ({})",
                list(signature.operands),
                list(&types)
            ));
        }
        if inst.ty != signature.result {
            return Err(format!("{name} gives {}, not {}", signature.result, inst.ty));
        }
    }
    if !f.requires.include(inst.op.needs()) {
        return Err(format!("{name} needs `requires({})`", inst.op.needs().names().join(", ")));
    }
    match &inst.op {
        Op::Const(_) if !inst.operands.is_empty() => Err("a constant has no operands".to_string()),
        Op::Const(_) if inst.ty == Type::Mask => Err("a constant is f32 or i32".to_string()),
        Op::Polynomial(coefficients) if coefficients.is_empty() => Err("a polynomial has a coefficient".to_string()),
        Op::ShiftLeft | Op::ShiftSigned | Op::ShiftRight => match inst.operands.get(1).and_then(|v| shift(f, *v)) {
            Some(_) => Ok(()),
            None => Err(format!("{name}: the number of bits is a constant from 0 to 31")),
        },
        _ => Ok(()),
    }
}

/// The number of bits of a shift: a constant.
pub fn shift(f: &Function, v: Value) -> Option<u8> {
    let inst = f.insts.get(v.index().checked_sub(f.params.len())?)?;
    match inst.op {
        Op::Const(bits @ 0..32) => u8::try_from(bits).ok(),
        _ => None,
    }
}
