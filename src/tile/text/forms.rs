//! Syntax shared by several statements: clauses, names, operations with a literal.

use std::collections::BTreeMap;

use crate::diagnostics::Code;
use crate::diagnostics::codes::ir as codes;
use crate::interface::{ParamDecl, StateDecl};
use crate::irtext::{Expr, ExprKind, Phrase, Statement, TextError, TextSpan, float_text, float32_text, quoted, read};
use crate::scalar::Scalar;
use crate::shape::Elem;
pub(super) use crate::table::CodedError;
use crate::tile::{Op, PlanOp, Type, Value};

pub(super) type Read<T> = Result<T, CodedError>;

pub(super) fn fail<T>(code: Code, place: TextSpan, message: impl Into<String>) -> Read<T> {
    Err((code, TextError::new(place, message)))
}

/// Converts errors of the shared parsers to syntax errors.
pub(super) fn form<T>(r: Result<T, TextError>) -> Read<T> {
    r.map_err(|e| (codes::FORM, e))
}

/// Values by name.
#[derive(Default)]
pub(super) struct Names(pub(super) BTreeMap<String, Value>);

impl Names {
    /// The value that a term names.
    pub(super) fn value(&self, e: &Expr) -> Read<Value> {
        let name = form(read::value(e))?;
        match self.0.get(name) {
            Some(v) => Ok(*v),
            None => fail(codes::UNKNOWN_NAME, e.place, format!("this body has no value %{name}")),
        }
    }
}

/// A call by a bare name: `grid(...)`.
pub(super) fn call(e: &Expr) -> Option<(&str, &[Phrase])> {
    match &e.kind {
        ExprKind::Call(f, args) => match &f.kind {
            ExprKind::Word(w) => Some((w, args)),
            _ => None,
        },
        _ => None,
    }
}

/// The single phrase of a list.
pub(super) fn only(args: &[Phrase], place: TextSpan) -> Read<&Expr> {
    match args {
        [p] => form(read::single(p)),
        _ => fail(codes::FORM, place, "one term belongs here"),
    }
}

pub(super) fn values(items: &[Phrase], names: &Names, out: &mut Vec<Value>) -> Read<()> {
    for p in items {
        out.push(names.value(form(read::single(p))?)?);
    }
    Ok(())
}

/// The attribute that is printed in the position of the first operand: a literal, a number, a name.
pub(super) fn literal(op: &Op, ty: Option<&Type>) -> Option<String> {
    match op {
        Op::Const(Scalar::Float(x)) => Some(match ty {
            Some(Type::Scalar(Elem::F32)) => float32_text(*x as f32),
            _ => float_text(*x),
        }),
        Op::Const(Scalar::Int(n)) => Some(n.to_string()),
        Op::Const(Scalar::Bool(b)) => Some(b.to_string()),
        Op::DimValue(d) => Some(d.to_string()),
        Op::Plan(PlanOp::Arg(n) | PlanOp::Out(n) | PlanOp::Slot(n)) => Some(n.to_string()),
        Op::Plan(PlanOp::Packed { offset }) => Some(offset.to_string()),
        Op::Plan(PlanOp::Tap { name } | PlanOp::Param { name } | PlanOp::State { name }) => Some(quoted(name)),
        Op::Plan(PlanOp::Launch { kernel }) => Some(format!("@{kernel}")),
        _ => None,
    }
}

/// An operation whose first phrase is not an operand.
pub(super) fn literal_operation(
    head: &str,
    e: &Expr,
    ty: Option<&Type>,
    names: &Names,
    operands: &mut Vec<Value>,
) -> Read<Op> {
    Ok(match head {
        "const" => {
            let float = matches!(ty, Some(Type::Scalar(Elem::F32)));
            match read::literal(e) {
                Some(read::Literal::Int(n)) if !float => Op::Const(Scalar::Int(n)),
                Some(read::Literal::Float(x)) if float => Op::Const(Scalar::Float(x)),
                Some(read::Literal::Bool(b)) if !float => Op::Const(Scalar::Bool(b)),
                Some(_) => return fail(codes::LITERAL, e.place, "the literal does not fit its type"),
                None => return fail(codes::FORM, e.place, "a literal belongs here"),
            }
        }
        "dim" => Op::DimValue(form(read::dim(e))?),
        "arg" => Op::Plan(PlanOp::Arg(form(read::integer(e))?)),
        "out" => Op::Plan(PlanOp::Out(form(read::integer(e))?)),
        "slot" => Op::Plan(PlanOp::Slot(form(read::integer(e))?)),
        "packed" => Op::Plan(PlanOp::Packed { offset: form(read::integer(e))? }),
        "tap" => Op::Plan(PlanOp::Tap { name: form(read::text(e))?.to_string() }),
        "state" => Op::Plan(PlanOp::State { name: form(read::text(e))?.to_string() }),
        "param" => match &e.kind {
            ExprKind::Index(name, indices) => {
                values(indices, names, operands)?;
                Op::Plan(PlanOp::Param { name: form(read::text(name))?.to_string() })
            }
            _ => Op::Plan(PlanOp::Param { name: form(read::text(e))?.to_string() }),
        },
        _ => match &e.kind {
            ExprKind::Call(name, args) => {
                values(args, names, operands)?;
                Op::Plan(PlanOp::Launch { kernel: global(name)? })
            }
            _ => return fail(codes::FORM, e.place, "`@kernel(operands)` belongs here"),
        },
    })
}

/// The first term of a kernel's or plan's header, and its clauses.
pub(super) fn header(s: &Statement) -> Read<(&Expr, &[Expr])> {
    if !s.results.is_empty() || !s.outs.is_empty() || !s.types.is_empty() || s.loc.is_some() {
        return fail(codes::FORM, s.place, "a head has a name and clauses alone");
    }
    match s.args.as_slice() {
        [Phrase { terms, types, value, .. }] if types.is_empty() && value.is_empty() => match terms.split_first() {
            Some(split) => Ok(split),
            None => fail(codes::FORM, s.place, "a name belongs here"),
        },
        _ => fail(codes::FORM, s.place, "a head has a name and clauses, without commas"),
    }
}

pub(super) fn global(e: &Expr) -> Read<String> {
    match &e.kind {
        ExprKind::Global(name) => Ok(name.clone()),
        _ => fail(codes::FORM, e.place, "a name (`@name`) belongs here"),
    }
}

pub(super) fn words(args: &[Phrase]) -> Read<Vec<String>> {
    args.iter().map(|p| form(read::word(form(read::single(p))?)).map(str::to_string)).collect()
}

/// Parses `state "k" : f32[12, 64]`.
pub(super) fn state(s: &Statement) -> Read<StateDecl> {
    let name = form(read::text(only(&s.args, s.place)?))?.to_string();
    match s.types.as_slice() {
        [p] => Ok(StateDecl { name, ty: form(read::tensor_type(form(read::single(p))?))? }),
        _ => fail(codes::FORM, s.place, "a state has a type: `state \"name\" : f32[768]`"),
    }
}

/// Parses `param "h.*.w"[12] : f32[768]`.
pub(super) fn param(s: &Statement) -> Read<ParamDecl> {
    let e = only(&s.args, s.place)?;
    let (name, counts) = match &e.kind {
        ExprKind::Index(name, counts) => {
            let counts = counts.iter().map(|p| form(read::integer(form(read::single(p))?))).collect::<Read<_>>()?;
            (form(read::text(name))?, counts)
        }
        _ => (form(read::text(e))?, Vec::new()),
    };
    match s.types.as_slice() {
        [p] => Ok(ParamDecl { name: name.to_string(), counts, ty: form(read::tensor_type(form(read::single(p))?))? }),
        _ => fail(codes::FORM, s.place, "a parameter has a type: `param \"name\" : f32[768]`"),
    }
}
