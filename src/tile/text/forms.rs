//! Forms that several statements share: clauses, names, operations with a literal.

use std::collections::BTreeMap;

use crate::diagnostics::Code;
use crate::diagnostics::codes::ir as codes;
use crate::interface::{ParamDecl, StateDecl};
use crate::irtext::{Expr, ExprKind, Phrase, Statement, TextError, TextSpan, float_text, float32_text, quoted, read};
use crate::scalar::Scalar;
use crate::shape::Elem;
pub(super) use crate::table::CodedError;
use crate::tile::{Op, Type, Value};

pub(super) type Read<T> = Result<T, CodedError>;

/// An error.
pub(super) fn fail<T>(code: Code, place: TextSpan, message: impl Into<String>) -> Read<T> {
    Err((code, TextError::new(place, message)))
}

/// An error of the shared readers is one about form.
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
            None => fail(codes::UNKNOWN_NAME, e.place, format!("%{name} is no value of this body")),
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

/// The only phrase of a list.
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

/// What stands where other operations have their first operand: a literal, a number, a name.
pub(super) fn literal(op: &Op, ty: Option<&Type>) -> Option<String> {
    match op {
        Op::Const(Scalar::Float(x)) => Some(match ty {
            Some(Type::Scalar(Elem::F32)) => float32_text(*x as f32),
            _ => float_text(*x),
        }),
        Op::Const(Scalar::Int(n)) => Some(n.to_string()),
        Op::Const(Scalar::Bool(b)) => Some(b.to_string()),
        Op::DimValue(d) => Some(d.to_string()),
        Op::Arg(n) | Op::Out(n) | Op::Slot(n) => Some(n.to_string()),
        Op::Packed { offset } => Some(offset.to_string()),
        Op::Tap { name } | Op::Param { name } | Op::State { name } => Some(quoted(name)),
        Op::Launch { kernel } => Some(format!("@{kernel}")),
        _ => None,
    }
}

/// An operation whose first phrase is no operand.
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
        "arg" => Op::Arg(form(read::integer(e))?),
        "out" => Op::Out(form(read::integer(e))?),
        "slot" => Op::Slot(form(read::integer(e))?),
        "packed" => Op::Packed { offset: form(read::integer(e))? },
        "tap" => Op::Tap { name: form(read::text(e))?.to_string() },
        "state" => Op::State { name: form(read::text(e))?.to_string() },
        "param" => match &e.kind {
            ExprKind::Index(name, indices) => {
                values(indices, names, operands)?;
                Op::Param { name: form(read::text(name))?.to_string() }
            }
            _ => Op::Param { name: form(read::text(e))?.to_string() },
        },
        _ => match &e.kind {
            ExprKind::Call(name, args) => {
                values(args, names, operands)?;
                Op::Launch { kernel: global(name)? }
            }
            _ => return fail(codes::FORM, e.place, "`@kernel(operands)` belongs here"),
        },
    })
}

/// The first term of a kernel's or plan's head, and its clauses.
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

/// `state "k" : f32[12, 64]`
pub(super) fn state(s: &Statement) -> Read<StateDecl> {
    let name = form(read::text(only(&s.args, s.place)?))?.to_string();
    match s.types.as_slice() {
        [p] => Ok(StateDecl { name, ty: form(read::tensor_type(form(read::single(p))?))? }),
        _ => fail(codes::FORM, s.place, "a state has a type: `state \"name\" : f32[768]`"),
    }
}

/// `param "h.*.w"[12] : f32[768]`
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
