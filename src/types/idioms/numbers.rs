//! Axes, lengths and element types in foreign calls, and their spelling in attn.
//!
//! In: expressions and types. Out: axis numbers, names for patterns, text.

use super::super::axes::Shape;
use super::super::typed::Tensor;
use crate::shape::{Dim, Elem};
use crate::syntax::ast::{self, ExprKind};

/// Names of axes in patterns.
pub(super) const LETTERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The number of axes of a tensor, if it is known and small enough for a pattern.
pub(super) fn rank(tensor: Option<&Tensor>) -> Option<usize> {
    let shape: &Shape = &tensor?.shape;
    (shape.rest().is_none() && shape.rank() <= LETTERS.len()).then(|| shape.rank())
}

/// The numbers of all axes, as the argument `axis`.
pub(in super::super) fn all_axes(tensor: &Tensor) -> Option<String> {
    let axes: Vec<String> = (0..rank(Some(tensor)).filter(|rank| *rank > 0)?).map(|axis| axis.to_string()).collect();
    Some(if axes.len() == 1 { axes.concat() } else { format!("[{}]", axes.join(", ")) })
}

/// The value of an integer literal.
pub(super) fn number(expr: &ast::Expr) -> Option<i64> {
    match &expr.kind {
        ExprKind::Int(n) => i64::try_from(*n).ok(),
        ExprKind::Unary { op: ast::UnaryOp::Neg, operand, .. } => number(operand).map(|n| -n),
        _ => None,
    }
}

/// The index of an axis given by a literal.
pub(super) fn axis_number(expr: &ast::Expr, rank: usize) -> Option<usize> {
    let (number, rank) = (number(expr)?, i64::try_from(rank).ok()?);
    let index = if number < 0 { number + rank } else { number };
    (0..rank).contains(&index).then_some(index as usize)
}

/// A length as an operand.
pub(super) fn piece(dim: &Dim) -> Option<String> {
    let text = dim.to_string();
    let one_piece = text.chars().all(|c| c.is_alphanumeric() || c == '_');
    Some(if one_piece { text } else { format!("({text})") })
}

/// The element type that `torch.float16`, `np.float32` or `"float32"` refers to.
pub(super) fn elem_of(expr: &ast::Expr) -> Option<Elem> {
    let name = match &expr.kind {
        ExprKind::Name(name) => name.name.as_str(),
        ExprKind::Field { name, .. } => name.name.as_str(),
        ExprKind::Str(text) => text.as_str(),
        _ => return None,
    };
    Some(match name {
        "int" | "int32" => Elem::I32,
        "long" | "int64" => Elem::I64,
        "int8" => Elem::I8,
        "float" | "float32" | "double" | "float64" => Elem::F32,
        "half" | "float16" => Elem::F16,
        "bfloat16" => Elem::BF16,
        "bool" | "bool_" => Elem::Bool,
        other => return Elem::from_name(other),
    })
}
