//! What the heads of statements mean: operations with their operands and attributes.
//!
//! In: a statement's phrases. Out: an [`Op`] and its operands. How statements hang together is `parse`'s business.

use std::collections::BTreeMap;

use super::parse::{Failure, Site, fail, fit, form};
use crate::diagnostics::codes::ir as codes;
use crate::diagnostics::did_you_mean;
use crate::ir::{MaskKind, Op, Scalar, Type, Value};
use crate::irtext::{CompareKind, Expr, ExprKind, Phrase, Place, Statement, read};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem};

/// A float rounded to an element type.
pub(super) fn round(x: f64, elem: Elem) -> Scalar {
    Scalar::Float(match elem {
        Elem::BF16 => half::bf16::from_f32(x as f32).to_f64(),
        Elem::F16 => half::f16::from_f32(x as f32).to_f64(),
        Elem::F32 => f64::from(x as f32),
        Elem::I8 | Elem::I32 | Elem::I64 | Elem::Bool => x,
    })
}

/// The phrases of a statement: operands in order, attributes by name. Each attribute must be asked for.
pub(super) struct Attributes<'a> {
    operands: Vec<&'a Expr>,
    named: BTreeMap<&'a str, (&'a [Expr], Place)>,
    place: Place,
    head: &'a str,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(s: &'a Statement) -> Result<Attributes<'a>, Failure> {
        let mut out = Attributes { operands: Vec::new(), named: BTreeMap::new(), place: s.place, head: &s.head };
        for p in &s.args {
            match read::named(p) {
                Some((name, value)) => {
                    if out.named.insert(name, (value, p.place)).is_some() {
                        return fail(codes::DEFINED_TWICE, p.place, format!("`{name}` is given twice"));
                    }
                }
                None => out.operands.push(form(read::single(p))?),
            }
        }
        Ok(out)
    }

    fn find(&mut self, name: &str) -> Result<Option<&'a Expr>, Failure> {
        match self.named.remove(name) {
            None => Ok(None),
            Some(([e], _)) => Ok(Some(e)),
            Some((_, place)) => fail(codes::FORM, place, format!("one term is the value of `{name}`")),
        }
    }

    fn get(&mut self, name: &str) -> Result<&'a Expr, Failure> {
        match self.find(name)? {
            Some(e) => Ok(e),
            None => fail(codes::ATTRIBUTE, self.place, format!("`{}` needs `{name}`", self.head)),
        }
    }

    fn one(&self) -> Result<&'a Expr, Failure> {
        match self.operands.as_slice() {
            [e] => Ok(e),
            _ => fail(codes::FORM, self.place, format!("`{}` takes one phrase here", self.head)),
        }
    }

    fn axis(&mut self) -> Result<usize, Failure> {
        let e = self.get("axis")?;
        form(read::integer(e))
    }

    fn dim(&mut self, name: &str) -> Result<Dim, Failure> {
        let e = self.get(name)?;
        form(read::dim(e))
    }

    fn items(&mut self, name: &str) -> Result<&'a [Phrase], Failure> {
        let e = self.get(name)?;
        match &e.kind {
            ExprKind::List(items) => Ok(items),
            _ => fail(codes::FORM, e.place, format!("the value of `{name}` is a list in square brackets")),
        }
    }

    fn axes(&mut self, name: &str) -> Result<Vec<usize>, Failure> {
        self.items(name)?.iter().map(|p| form(read::single(p).and_then(read::integer))).collect()
    }

    fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        match self.find(name)? {
            None => Ok(false),
            Some(e) => match read::literal(e) {
                Some(read::Literal::Bool(b)) => Ok(b),
                _ => fail(codes::FORM, e.place, format!("`{name}` is `true` or `false`")),
            },
        }
    }

    /// Complains about an attribute that nobody asked for.
    pub(super) fn finish(self) -> Result<(), Failure> {
        match self.named.iter().next() {
            None => Ok(()),
            Some((name, (_, place))) => {
                fail(codes::ATTRIBUTE, *place, format!("`{}` has no attribute `{name}`", self.head))
            }
        }
    }
}

fn elem_of(ty: Option<&Type>, place: Place) -> Result<Elem, Failure> {
    match ty {
        Some(Type::Tensor(t)) => Ok(t.elem),
        Some(Type::Index) | None => fail(codes::FORM, place, "the result must be a tensor"),
    }
}

/// `"name"` or `"name"[%i, %j]`
fn named(site: &mut Site<'_>, e: &Expr) -> Result<(String, Vec<Value>), Failure> {
    match &e.kind {
        ExprKind::Index(name, indices) => {
            let indices = indices
                .iter()
                .map(|p| form(read::single(p)).and_then(|e| site.operand(e)))
                .collect::<Result<Vec<Value>, Failure>>()?;
            Ok((form(read::text(name))?.to_string(), indices))
        }
        _ => Ok((form(read::text(e))?.to_string(), Vec::new())),
    }
}

/// The operation of a statement and its operands. `ty` is the type that is written for the result.
pub(super) fn operation(
    site: &mut Site<'_>,
    s: &Statement,
    a: &mut Attributes<'_>,
    ty: Option<&Type>,
) -> Result<(Op, Vec<Value>), Failure> {
    let op = match s.head.as_str() {
        "const" => {
            let e = a.one()?;
            let scalar = match ty {
                Some(Type::Index) => Scalar::Int(form(read::integer(e))?),
                ty => fit(e, elem_of(ty, s.place)?)?,
            };
            return Ok((Op::Const(scalar), Vec::new()));
        }
        "dim" => return Ok((Op::DimValue(form(read::dim(a.one()?))?), Vec::new())),
        "param" => {
            let (name, indices) = named(site, a.one()?)?;
            return Ok((Op::Param { name }, indices));
        }
        "tap" => {
            let [x, name] = a.operands.as_slice() else {
                return fail(codes::FORM, s.place, "a tap is `tap %value, \"name\"[%index < extent]`");
            };
            return tap(site, x, name);
        }
        "attention" => return attention(site, s, a),
        "iota" => Op::Iota { axis: a.axis()? },
        "causal" => Op::Causal,
        "where" => Op::Where,
        "cast" => Op::Cast { elem: elem_of(ty, s.place)? },
        "reshape" => Op::Reshape,
        "transpose" => Op::Transpose { perm: a.axes("perm")? },
        "broadcast" => Op::Broadcast,
        "slice" => Op::Slice { axis: a.axis()?, start: a.dim("start")?, stop: a.dim("stop")? },
        "index" => Op::Index { axis: a.axis()? },
        "concat" => Op::Concat { axis: a.axis()? },
        "pad" => Op::Pad { axis: a.axis()?, low: a.dim("low")?, high: a.dim("high")? },
        "gather" => Op::Gather { axis: a.axis()? },
        "softmax" => Op::Softmax { axis: a.axis()? },
        "log_softmax" => Op::LogSoftmax { axis: a.axis()? },
        "matmul" => Op::Matmul,
        name => {
            let reduction = ReduceKind::ALL.iter().find(|k| k.op_name() == name);
            if let Some(kind) = reduction {
                Op::Reduce { kind: *kind, axes: a.axes("axes")?, keep: a.flag("keep")? }
            } else if let Some(op) = UnaryOp::from_name(name) {
                Op::Unary(op)
            } else if let Some(op) = BinaryOp::from_name(name) {
                Op::Binary(op)
            } else if let Some(op) = CmpOp::from_name(name) {
                Op::Compare(op)
            } else {
                let hint = did_you_mean(name, names()).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                return fail(codes::UNKNOWN_NAME, s.place, format!("there is no operation `{name}`{hint}"));
            }
        }
    };
    let operands = a.operands.iter().map(|e| site.operand(e)).collect::<Result<Vec<Value>, Failure>>()?;
    Ok((op, operands))
}

/// `tap %value, "name"[%i < 12, %t < S]`
fn tap(site: &mut Site<'_>, x: &Expr, name: &Expr) -> Result<(Op, Vec<Value>), Failure> {
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

/// Every head that [`operation`] knows, for suggestions.
fn names() -> impl Iterator<Item = &'static str> {
    let plain = [
        "const",
        "dim",
        "param",
        "tap",
        "attention",
        "iota",
        "causal",
        "where",
        "cast",
        "reshape",
        "transpose",
        "broadcast",
        "slice",
        "index",
        "concat",
        "pad",
        "gather",
        "softmax",
        "log_softmax",
        "matmul",
        "fused",
    ];
    plain
        .into_iter()
        .chain(ReduceKind::ALL.iter().map(|k| k.op_name()))
        .chain(UnaryOp::ALL.iter().map(|o| o.name()))
        .chain(BinaryOp::ALL.iter().map(|o| o.name()))
        .chain(CmpOp::ALL.iter().map(|o| o.name()))
}

/// `attention %q, %k, %v, scale=0.125, mask=[cap(50.0), causal, add(%m), keep(%c, -inf), sink(%s)]`
fn attention(site: &mut Site<'_>, s: &Statement, a: &mut Attributes<'_>) -> Result<(Op, Vec<Value>), Failure> {
    if a.operands.len() != 3 {
        return fail(codes::FORM, s.place, "`attention` takes queries, keys and values");
    }
    let mut operands = a.operands.iter().map(|e| site.operand(e)).collect::<Result<Vec<Value>, Failure>>()?;
    let scale = a.get("scale")?;
    operands.push(site.operand(scale)?);
    let mut masks = Vec::new();
    let items = if a.named.contains_key("mask") { a.items("mask")? } else { &[] };
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
