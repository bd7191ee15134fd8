//! Spaces around operators.
//!
//! In: a chain of operators, and where it stands. Out: whether it is written without spaces. It
//! knows no layouts.

use crate::syntax::ast::{BinaryOp, Expr, ExprKind};

/// Where an expression stands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Context {
    /// In a statement or an argument.
    Value,
    /// In `f32[..]` or `Linear<..>`.
    Shape,
    /// In `x[..]`.
    Index,
}

pub(super) fn precedence(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem | BinaryOp::MatMul => 4,
        BinaryOp::Add | BinaryOp::Sub => 3,
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => 2,
        BinaryOp::And => 1,
        BinaryOp::Or => 0,
    }
}

/// Is an operator chain written without spaces? In shapes and indices if its operands are names
/// and numbers (`f32[3*D]`, `x[past..past+S]`, but `x[2*D - 1]`), elsewhere if it is a product of
/// dimensions and numbers (`iota(G*W)`).
pub(super) fn is_tight(operands: &[(BinaryOp, &Expr)], first: &Expr, context: Context) -> bool {
    let all = |test: &dyn Fn(&Expr) -> bool| test(first) && operands.iter().all(|(_, operand)| test(operand));
    let is_atom = |e: &Expr| match &e.kind {
        ExprKind::Name(name) => name.span == e.span,
        ExprKind::Int(_) => true,
        _ => false,
    };
    let is_dimension = |e: &Expr| match &e.kind {
        ExprKind::Name(name) => name.name.starts_with(|c: char| c.is_ascii_uppercase()),
        _ => true,
    };
    let is_arithmetic = operands.iter().all(|(op, _)| precedence(*op) >= 3 && *op != BinaryOp::MatMul);
    let is_product = operands.iter().all(|(op, _)| *op == BinaryOp::Mul);
    is_arithmetic && all(&is_atom) && (context != Context::Value || is_product && all(&is_dimension))
}
