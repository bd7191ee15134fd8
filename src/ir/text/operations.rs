//! Parsing of operations with their operands and attributes.
//!
//! In: a statement's phrases. Out: an [`Op`] and its operands. The table of operations drives most
//! of it; this file has the operations with a syntax of their own. `parse` reads the structure
//! around them.

use super::operand::{Site, fail, fit, form};
use crate::diagnostics::codes::ir as codes;
use crate::ir::{MaskKind, Op, Scalar, Type, Value};
use crate::irtext::{CompareKind, Expr, ExprKind, Statement, TextSpan, read};
use crate::shape::Elem;
use crate::table::{self, Attributes, CodedError};

fn elem_of(ty: Option<&Type>, place: TextSpan) -> Result<Elem, CodedError> {
    match ty {
        Some(Type::Tensor(t)) => Ok(t.elem),
        Some(Type::Index) | None => fail(codes::FORM, place, "the result must be a tensor"),
    }
}

/// `"name"` or `"name"[%i, %j]`
fn named(site: &mut Site<'_>, e: &Expr) -> Result<(String, Vec<Value>), CodedError> {
    match &e.kind {
        ExprKind::Index(name, indices) => {
            let indices = indices
                .iter()
                .map(|p| form(read::single(p)).and_then(|e| site.operand(e)))
                .collect::<Result<Vec<Value>, CodedError>>()?;
            Ok((form(read::text(name))?.to_string(), indices))
        }
        _ => Ok((form(read::text(e))?.to_string(), Vec::new())),
    }
}

/// The operation of a statement and its operands. `ty` is the declared type of the result.
pub(super) fn operation(site: &mut Site<'_>, s: &Statement, ty: Option<&Type>) -> Result<(Op, Vec<Value>), CodedError> {
    let mut attributes = Attributes::new(s)?;
    let positional = s.args.iter().filter(|p| read::named(p).is_none());
    let operands = positional.map(|p| form(read::single(p))).collect::<Result<Vec<&Expr>, CodedError>>()?;
    let made = match Op::read(&s.head, &mut attributes)? {
        Some(op) => (op, values(site, &operands)?),
        None => own(site, s, &operands, &mut attributes, ty)?,
    };
    attributes.finish()?;
    Ok(made)
}

fn values(site: &mut Site<'_>, operands: &[&Expr]) -> Result<Vec<Value>, CodedError> {
    operands.iter().map(|e| site.operand(e)).collect()
}

/// Parses an operation with a syntax of its own.
fn own(
    site: &mut Site<'_>,
    s: &Statement,
    operands: &[&Expr],
    attributes: &mut Attributes<'_>,
    ty: Option<&Type>,
) -> Result<(Op, Vec<Value>), CodedError> {
    let one = || match operands {
        [e] => Ok(*e),
        _ => fail(codes::FORM, s.place, format!("`{}` takes one phrase here", s.head)),
    };
    match s.head.as_str() {
        "const" => {
            let scalar = match ty {
                Some(Type::Index) => Scalar::Int(form(read::integer(one()?))?),
                ty => fit(one()?, elem_of(ty, s.place)?)?,
            };
            Ok((Op::Const(scalar), Vec::new()))
        }
        "dim" => Ok((Op::DimValue(form(read::dim(one()?))?), Vec::new())),
        "param" => {
            let (name, indices) = named(site, one()?)?;
            Ok((Op::Param { name }, indices))
        }
        "state" => Ok((Op::State { name: form(read::text(one()?))?.to_string() }, Vec::new())),
        "set_state" => match operands {
            [x, name] => {
                let x = site.operand(x)?;
                Ok((Op::SetState { name: form(read::text(name))?.to_string() }, vec![x]))
            }
            _ => fail(codes::FORM, s.place, "a state is set by `set_state %value, \"name\"`"),
        },
        "cast" => Ok((Op::Cast { elem: elem_of(ty, s.place)? }, values(site, operands)?)),
        "tap" => match operands {
            [x, name] => tap(site, x, name),
            _ => fail(codes::FORM, s.place, "a tap is `tap %value, \"name\"[%index < extent]`"),
        },
        "grad" => match operands {
            [loss, Expr { kind: ExprKind::Str(of), .. }] => {
                Ok((Op::Grad { of: of.to_string() }, vec![site.operand(loss)?]))
            }
            [loss, x] => Ok((Op::Grad { of: String::new() }, values(site, &[loss, x])?)),
            [loss, x, of] => Ok((Op::Grad { of: form(read::text(of))?.to_string() }, values(site, &[loss, x])?)),
            _ => fail(codes::FORM, s.place, "a gradient is `grad %loss, %value` or `grad %loss, \"parameter\"`"),
        },
        "attention" => attention(site, s, operands, attributes),
        name => Err(table::unknown(name, s.place, &Op::table())),
    }
}

/// `tap %value, "name"[%i < 12, %t < S]`
fn tap(site: &mut Site<'_>, x: &Expr, name: &Expr) -> Result<(Op, Vec<Value>), CodedError> {
    let mut operands = vec![site.operand(x)?];
    let (name, indices) = match &name.kind {
        ExprKind::Index(name, indices) => (form(read::text(name))?, indices.as_slice()),
        _ => (form(read::text(name))?, &[][..]),
    };
    let mut extents = Vec::new();
    for p in indices {
        let e = form(read::single(p))?;
        let ExprKind::Compare(CompareKind::Lt, index, extent) = &e.kind else {
            return fail(codes::FORM, e.place, "the index of a tap is `%index < extent`");
        };
        operands.push(site.operand(index)?);
        extents.push(form(read::dim(extent))?);
    }
    Ok((Op::Tap { name: name.to_string(), extents }, operands))
}

/// `attention %q, %k, %v, scale=0.125, mask=[cap(50.0), causal, add(%m), keep(%c, -inf), sink(%s)]`
fn attention(
    site: &mut Site<'_>,
    s: &Statement,
    operands: &[&Expr],
    attributes: &mut Attributes<'_>,
) -> Result<(Op, Vec<Value>), CodedError> {
    if operands.len() != 3 {
        return fail(codes::FORM, s.place, "`attention` takes queries, keys and values");
    }
    let mut operands = values(site, operands)?;
    operands.push(site.operand(attributes.need("scale")?)?);
    let mut masks = Vec::new();
    let items = match attributes.find("mask")? {
        None => &[][..],
        Some(Expr { kind: ExprKind::List(items), .. }) => items,
        Some(e) => return fail(codes::FORM, e.place, "the value of `mask` is a list in square brackets"),
    };
    for item in items {
        let e = form(read::single(item))?;
        let (name, args) = match &e.kind {
            ExprKind::Call(name, args) => (form(read::word(name))?, args.as_slice()),
            _ => (form(read::word(e))?, &[][..]),
        };
        let Some(kind) = MaskKind::from_name(name) else {
            return fail(codes::UNKNOWN_NAME, e.place, format!("there is no kind of mask `{name}`"));
        };
        if args.len() != kind.operands() {
            return fail(codes::FORM, e.place, format!("the mask `{name}` has {} operands", kind.operands()));
        }
        for arg in args {
            operands.push(form(read::single(arg)).and_then(|e| site.operand(e))?);
        }
        masks.push(kind);
    }
    Ok((Op::Attention { masks }, operands))
}
