//! Operands: values by name, and literals.
//!
//! In: an expression in the position of an operand, the names of its function. Out: a value; a
//! literal becomes an instruction, once per block.

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostics::Code;
use crate::diagnostics::codes::ir as codes;
use crate::ir::{Block, Function, Inst, Loc, Op, Scalar, Type, Value};
use crate::irtext::{Expr, ExprKind, TextError, TextSpan, read};
use crate::scalar::round_to;
use crate::shape::{Elem, TensorType};
use crate::table::CodedError;

/// A semantic error in well-formed text.
pub(super) fn fail<T>(code: Code, place: TextSpan, message: impl Into<String>) -> Result<T, CodedError> {
    Err((code, TextError::new(place, message)))
}

/// A follow-up of an error that was reported already; it is not shown.
pub(super) fn reported<T>(place: TextSpan) -> Result<T, CodedError> {
    fail(codes::UNKNOWN_NAME, place, "")
}

/// Makes an error of the shared readers a syntax error.
pub(super) fn form<T>(r: Result<T, TextError>) -> Result<T, CodedError> {
    r.map_err(|e| (codes::FORM, e))
}

/// The instruction created for each literal operand of a block.
pub(super) type Literals = BTreeMap<(u8, u64, Option<Elem>), Value>;

/// Names of one function or region.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) values: BTreeMap<String, Value>,
    pub(super) blocks: BTreeMap<String, Block>,
    /// Values whose definition is invalid, which was reported.
    pub(super) broken: BTreeSet<String>,
    pub(super) fused: Option<Inst>,
}

/// The context of an operand: the function being built, the block, and its literals so far.
pub(super) struct Site<'a> {
    pub(super) f: &'a mut Function,
    pub(super) scope: &'a Scope,
    pub(super) block: Block,
    pub(super) literals: &'a mut Literals,
}

impl Site<'_> {
    /// Reads a value, or a literal, for which an instruction is created.
    pub(super) fn operand(&mut self, e: &Expr) -> Result<Value, CodedError> {
        if let ExprKind::Value(name) = &e.kind {
            return match self.scope.values.get(name) {
                Some(v) => Ok(*v),
                None if self.scope.broken.contains(name) => reported(e.place),
                None => fail(codes::UNKNOWN_NAME, e.place, format!("there is no value `%{name}`")),
            };
        }
        let (scalar, elem) = literal(e)?;
        let key = match scalar {
            Scalar::Float(x) => (0, x.to_bits(), elem),
            Scalar::Int(n) => (1, n.cast_unsigned(), elem),
            Scalar::Bool(b) => (2, u64::from(b), elem),
        };
        if let Some(v) = self.literals.get(&key) {
            return Ok(*v);
        }
        let ty = elem.map_or(Type::Index, |e| Type::Tensor(TensorType::scalar(e)));
        let Some(v) = self.f.push(self.block, Op::Const(scalar), Vec::new(), Some(ty), Loc::default()) else {
            return fail(codes::FORM, e.place, "a literal has a value");
        };
        self.literals.insert(key, v);
        Ok(v)
    }
}

/// Reads a literal operand and its element type; `None` for an index.
fn literal(e: &Expr) -> Result<(Scalar, Option<Elem>), CodedError> {
    if let ExprKind::Call(name, args) = &e.kind {
        let elem = form(read::elem(name))?;
        let [arg] = args.as_slice() else {
            return fail(codes::FORM, e.place, "expected one literal in the parentheses");
        };
        let arg = form(read::single(arg))?;
        return Ok((fit(arg, elem)?, Some(elem)));
    }
    match read::literal(e) {
        Some(read::Literal::Int(n)) => Ok((Scalar::Int(n), None)),
        Some(read::Literal::Float(_)) => Ok((fit(e, Elem::F32)?, Some(Elem::F32))),
        Some(read::Literal::Bool(b)) => Ok((Scalar::Bool(b), Some(Elem::Bool))),
        None => fail(codes::FORM, e.place, "expected a value or a literal"),
    }
}

/// Reads a literal of this element type, rounded to it.
pub(super) fn fit(e: &Expr, elem: Elem) -> Result<Scalar, CodedError> {
    let wrong = || fail(codes::LITERAL, e.place, format!("the literal is not a valid {elem}"));
    let Some(x) = read::literal(e) else {
        return fail(codes::FORM, e.place, "expected a literal");
    };
    match (x, elem) {
        (read::Literal::Float(x), Elem::F32 | Elem::BF16 | Elem::F16) => Ok(Scalar::Float(round_to(elem, x))),
        (read::Literal::Int(n), Elem::F32 | Elem::BF16 | Elem::F16) => Ok(Scalar::Float(round_to(elem, n as f64))),
        (read::Literal::Bool(b), Elem::Bool) => Ok(Scalar::Bool(b)),
        (read::Literal::Int(n), Elem::I64) => Ok(Scalar::Int(n)),
        (read::Literal::Int(n), Elem::I32) if i32::try_from(n).is_ok() => Ok(Scalar::Int(n)),
        (read::Literal::Int(n), Elem::I8) if i8::try_from(n).is_ok() => Ok(Scalar::Int(n)),
        (read::Literal::Int(_) | read::Literal::Float(_) | read::Literal::Bool(_), _) => wrong(),
    }
}
