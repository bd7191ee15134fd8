//! canonicalise-row: what is done to a product of one row is done before the row becomes a vector.
//!
//! ```text
//! func @f(%0 "x": f32[64], %1 "w": f32[64, 32], %2 "b": f32[32]) -> (f32[32]) {
//! ^bb0:
//!   %3 = reshape %0                       : f32[1, 64]
//!   %4 = matmul %3, %1                    : f32[1, 32]
//!   %5 = reshape %4                       : f32[32]
//!   %6 = add %5, %2                       : f32[32]
//!   %7 = tanh %6                          : f32[32]
//!   return %7
//! }
//! ->
//! func @f(%0 "x": f32[64], %1 "w": f32[64, 32], %2 "b": f32[32]) -> (f32[32]) {
//! ^bb0:
//!   %3 = reshape %0                       : f32[1, 64]
//!   %4 = matmul %3, %1                    : f32[1, 32]
//!   %5 = add %4, %2                       : f32[1, 32]
//!   %6 = tanh %5                          : f32[1, 32]
//!   %7 = reshape %6                       : f32[32]
//!   return %7
//! }
//! ```
//!
//! The language multiplies vectors, `x[t] @ w + b`; a `matmul` has rows. Between the product and its bias then stands a `reshape`,
//! which would keep the bias out of the product's kernel (`fuse-epilogue`).
//!
//! # Conditions
//!
//! * The operation is elementwise, its result has the shape of the vector, and what the vector was made of has that shape with axes
//!   of 1 in front: a product, or elementwise work on one.
//! * Other operands that were made so of the same shape are taken without their `reshape` too. All others stay as they are; they
//!   are broadcast to the longer shape as to the shorter one, which agree from the last axis on.
//!
//! It is exact: the operations are the same on each element.
//!
//! # What it does not do
//!
//! Axes of 1 behind or between others (`f32[32, 1]` as `f32[32]`: a matrix by a vector) stay: the other operands would need axes
//! too.

use cranelift_entity::SecondaryMap;

use super::rewrite::{Cursor, become_op, made_by, remove_unused};
use super::{Changed, Context};
use crate::ir::{Block, Class, Function, Inst, Op, Value};
use crate::shape::{Dim, TensorType};

/// Runs the pass.
pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut changed = 0;
    // Products, and elementwise work on them.
    let mut products: SecondaryMap<Value, bool> = SecondaryMap::new();
    for (block, inst) in f.insts().map(|(b, i, _)| (b, i)).collect::<Vec<_>>() {
        // A rule's error means that the rewrite does not fit; the program stays.
        if let Ok(Some(row)) = rewrite(f, block, inst, &products) {
            products[row] = true;
            changed += 1;
            continue;
        }
        let d = f.inst(inst);
        let Some(v) = d.result else { continue };
        let elementwise = d.op.info().class == Class::Elementwise;
        let same = |x: &Value| products[*x] && shape(f, *x) == shape(f, v);
        products[v] = d.op == Op::Matmul || (elementwise && d.operands.iter().any(same));
    }
    if changed > 0 {
        remove_unused(f);
    }
    ctx.count("operations on rows", changed);
    Changed::from(changed > 0)
}

fn shape(f: &Function, v: Value) -> Option<&[Dim]> {
    f.tensor(v).map(|t| t.shape.as_slice())
}

/// Does an operation before the `reshape` of an operand; the new result, if it is one of these.
fn rewrite(
    f: &mut Function,
    block: Block,
    inst: Inst,
    products: &SecondaryMap<Value, bool>,
) -> Result<Option<Value>, String> {
    let d = f.inst(inst).clone();
    let result = d.result.and_then(|v| f.tensor(v)).cloned();
    let (Class::Elementwise, Some(result)) = (d.op.info().class, result) else { return Ok(None) };
    // What an operand was before axes of 1 were dropped in front.
    let longer = |v: Value| -> Option<(Value, &[Dim])> {
        let (_, Op::Reshape, [x]) = made_by(f, v)? else { return None };
        let (from, to) = (shape(f, *x)?, shape(f, v)?);
        let ones = from.strip_suffix(to).filter(|ones| !ones.is_empty())?;
        let fits = to == result.shape.as_slice() && ones.iter().all(|d| d.as_const() == Some(1));
        fits.then_some((*x, from))
    };
    let Some(from) = d.operands.iter().find_map(|v| longer(*v).filter(|(x, _)| products[*x])) else { return Ok(None) };
    let from = from.1.to_vec();
    let row = |v: &Value| longer(*v).filter(|(_, shape)| *shape == from).map_or(*v, |(x, _)| x);
    let operands: Vec<Value> = d.operands.iter().map(row).collect();
    let declared = matches!(d.op, Op::Cast { .. }).then(|| TensorType::new(result.elem, from.clone()));
    let new = Cursor::before(f, block, inst).insert_as(f, d.op, operands, declared)?;
    if shape(f, new) != Some(from.as_slice()) {
        return Err("a rule gives another shape".into());
    }
    become_op(f, inst, Op::Reshape, vec![new]);
    Ok(Some(new))
}
