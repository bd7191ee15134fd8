//! Expressions during type checking: the type, which may still be open for a literal, and the typed
//! expression.
//!
//! In: literals, dimensions and tensors. Out: typed expressions, once the element type is settled:
//! a literal or a dimension takes the type of the other operand, else `f32` or `i32`.

use std::fmt;

use super::axes::Shape;
use super::typed::{Expr, ExprKind, Tensor, Type};
use crate::scalar::{Scalar, round_to};
use crate::shape::{Dim, Elem};
use crate::source::Span;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ty {
    /// A tensor or a scalar.
    Tensor(Tensor),
    /// An integer computed from dimensions and literals; it has no element type yet.
    Dim(Dim),
    /// A float computed from literals and dimensions; it has no element type yet, and is computed
    /// as `f32`.
    Float,
    /// Several values; empty if there is no value.
    Tuple(Vec<Ty>),
    /// Invalid, which was reported.
    Error,
}

impl Ty {
    pub(super) fn scalar(elem: Elem) -> Ty {
        Ty::Tensor(Tensor { elem, shape: Shape::scalar() })
    }

    /// The type of a checked value.
    pub(super) fn from_type(ty: &Type) -> Ty {
        match ty {
            Type::Tensor(tensor) => Ty::Tensor(tensor.clone()),
            Type::Tuple(parts) => Ty::Tuple(parts.iter().map(Ty::from_type).collect()),
        }
    }

    /// The type with defaults applied: `i32` for integers, `f32` for floats. `None` for an error.
    pub(super) fn settled(&self) -> Option<Type> {
        match self {
            Ty::Tensor(tensor) => Some(Type::Tensor(tensor.clone())),
            Ty::Dim(_) => Some(Type::Tensor(Tensor { elem: Elem::I32, shape: Shape::scalar() })),
            Ty::Float => Some(Type::Tensor(Tensor { elem: Elem::F32, shape: Shape::scalar() })),
            Ty::Tuple(parts) => parts.iter().map(Ty::settled).collect::<Option<Vec<Type>>>().map(Type::Tuple),
            Ty::Error => None,
        }
    }

    /// Is any of its dimensions beyond the limits?
    pub(super) fn is_too_long(&self) -> bool {
        match self {
            Ty::Tensor(tensor) => tensor.shape.axes.iter().filter_map(super::axes::Axis::dim).any(Dim::is_too_long),
            Ty::Dim(dim) => dim.is_too_long(),
            Ty::Tuple(parts) => parts.iter().any(Ty::is_too_long),
            Ty::Float | Ty::Error => false,
        }
    }

    /// The number of tensors and numbers in it.
    pub(super) fn leaves(&self) -> usize {
        match self {
            Ty::Tuple(parts) => parts.iter().map(Ty::leaves).sum(),
            Ty::Tensor(_) | Ty::Dim(_) | Ty::Float | Ty::Error => 1,
        }
    }

    /// Is any part of it invalid?
    pub(super) fn is_error(&self) -> bool {
        match self {
            Ty::Error => true,
            Ty::Tuple(parts) => parts.iter().any(Ty::is_error),
            Ty::Tensor(_) | Ty::Dim(_) | Ty::Float => false,
        }
    }
}

/// The description in messages.
impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ty::Tensor(tensor) => write!(f, "{tensor}"),
            Ty::Dim(dim) if dim.is_const() => write!(f, "the number {dim}"),
            Ty::Dim(dim) => write!(f, "the dimension {dim}"),
            Ty::Float => f.write_str("a float"),
            Ty::Tuple(parts) if parts.is_empty() => f.write_str("no value"),
            Ty::Tuple(parts) => {
                let list: Vec<String> = parts.iter().map(Ty::to_string).collect();
                write!(f, "({})", list.join(", "))
            }
            Ty::Error => f.write_str("an error"),
        }
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shape.is_scalar() { write!(f, "{}", self.elem) } else { write!(f, "{}{}", self.elem, self.shape) }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(tensor) => write!(f, "{tensor}"),
            Type::Tuple(parts) => {
                let list: Vec<String> = parts.iter().map(Type::to_string).collect();
                write!(f, "({})", list.join(", "))
            }
        }
    }
}

/// An expression and its type.
#[derive(Clone, Debug)]
pub(super) struct TypedExpr {
    pub(super) ty: Ty,
    /// The typed expression. If the type is open, it uses the settled type; after an error it is a
    /// placeholder, which no program without errors contains.
    pub(super) expr: Expr,
}

impl TypedExpr {
    /// The placeholder for an invalid expression.
    pub(super) fn error(span: Span) -> TypedExpr {
        let ty = Type::Tuple(Vec::new());
        TypedExpr { ty: Ty::Error, expr: Expr { kind: ExprKind::Tuple(Vec::new()), ty, span } }
    }

    /// A value with a tensor type.
    pub(super) fn tensor(kind: ExprKind, elem: Elem, shape: Shape, span: Span) -> TypedExpr {
        let tensor = Tensor { elem, shape };
        TypedExpr { ty: Ty::Tensor(tensor.clone()), expr: Expr { kind, ty: Type::Tensor(tensor), span } }
    }

    /// A dimension or an integer.
    pub(super) fn dim(dim: Dim, span: Span) -> TypedExpr {
        let expr = dim_expr(&dim, Elem::I32, span);
        TypedExpr { ty: Ty::Dim(dim), expr }
    }

    /// A float of open type, computed as `f32`.
    pub(super) fn float(kind: ExprKind, span: Span) -> TypedExpr {
        TypedExpr { ty: Ty::Float, expr: Expr { kind, ty: scalar(Elem::F32), span } }
    }

    /// Range in the source.
    pub(super) fn span(&self) -> Span {
        self.expr.span
    }

    /// The tensor type, if it is settled.
    pub(super) fn as_tensor(&self) -> Option<&Tensor> {
        match &self.ty {
            Ty::Tensor(tensor) => Some(tensor),
            Ty::Dim(_) | Ty::Float | Ty::Tuple(_) | Ty::Error => None,
        }
    }
}

/// The type of a scalar.
pub(super) fn scalar(elem: Elem) -> Type {
    Type::Tensor(Tensor { elem, shape: Shape::scalar() })
}

/// A dimension as a scalar of a numeric type.
pub(super) fn dim_expr(dim: &Dim, elem: Elem, span: Span) -> Expr {
    let kind = match dim.as_const() {
        Some(n) if elem.is_float() => ExprKind::Const(Scalar::Float(n as f64)),
        Some(n) => ExprKind::Const(Scalar::Int(n)),
        None => ExprKind::Dim(dim.clone()),
    };
    Expr { kind, ty: scalar(elem), span }
}

/// Does a number fit an integer type?
pub(super) fn int_fits(n: i64, elem: Elem) -> bool {
    match elem {
        Elem::I8 => i8::try_from(n).is_ok(),
        Elem::I32 => i32::try_from(n).is_ok(),
        Elem::I64 | Elem::F32 | Elem::BF16 | Elem::F16 => true,
        Elem::Bool => false,
    }
}

/// Is it an integer beyond `i32`, the default type of integers?
pub(super) fn is_large(value: &TypedExpr) -> bool {
    matches!(&value.ty, Ty::Dim(dim) if dim.as_const().is_some_and(|n| !int_fits(n, Elem::I32)))
}

/// Does a finite number become infinite in a float type?
pub(super) fn overflows(x: f64, elem: Elem) -> bool {
    x.is_finite() && !round_to(elem, x).is_finite()
}

/// The message for a literal that is too large.
pub(super) fn too_large(value: Scalar, elem: Elem) -> String {
    let largest = match elem {
        Elem::F16 => "65504",
        Elem::BF16 => "3.39e38",
        _ => "3.4e38",
    };
    format!(
        "{} is too large for `{elem}`, whose largest number is {largest}; infinity is written `inf`",
        show_scalar(value)
    )
}

/// A literal in source syntax.
pub(super) fn show_scalar(value: Scalar) -> String {
    match value {
        Scalar::Int(n) => n.to_string(),
        Scalar::Bool(b) => b.to_string(),
        Scalar::Float(x) if x == f64::INFINITY => "inf".to_string(),
        Scalar::Float(x) if x == f64::NEG_INFINITY => "-inf".to_string(),
        Scalar::Float(x) if x != 0.0 && (x.abs() < 1e-3 || x.abs() >= 1e9) => format!("{x:e}"),
        Scalar::Float(x) => format!("{x:?}"),
    }
}

/// Coerces a value of open type to an element type, or returns the reason why it cannot. Tensors
/// are unchanged.
pub(super) fn coerce(value: TypedExpr, elem: Elem) -> Result<Expr, String> {
    let TypedExpr { ty, expr } = value;
    match ty {
        Ty::Dim(dim) => {
            if elem == Elem::Bool {
                return Err(format!("expected `bool`, found {}", Ty::Dim(dim)));
            }
            match dim.as_const() {
                Some(n) if !int_fits(n, elem) || overflows(n as f64, elem) => {
                    Err(format!("{n} is out of the range of `{elem}`"))
                }
                _ => Ok(dim_expr(&dim, elem, expr.span)),
            }
        }
        Ty::Float if !elem.is_float() => {
            let shown = match &expr.kind {
                ExprKind::Const(value) => show_scalar(*value),
                _ => "a float".to_string(),
            };
            Err(format!("expected `{elem}`, found {shown}"))
        }
        Ty::Float if matches!(expr.kind, ExprKind::Const(Scalar::Float(x)) if overflows(x, elem)) => match expr.kind {
            ExprKind::Const(value) => Err(too_large(value, elem)),
            _ => Err(String::new()),
        },
        Ty::Float if elem == Elem::F32 => Ok(expr),
        Ty::Float => {
            let span = expr.span;
            let kind = match expr.kind {
                ExprKind::Const(value) => ExprKind::Const(value),
                kind => ExprKind::Cast(Box::new(Expr { kind, ..expr })),
            };
            Ok(Expr { kind, ty: scalar(elem), span })
        }
        Ty::Tensor(_) | Ty::Tuple(_) | Ty::Error => Ok(expr),
    }
}
