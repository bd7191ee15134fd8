//! The text form of routines: [`print`] writes one, [`parse`] reads a file of them.
//!
//! The syntax is that of [`crate::irtext`]. Values without a name are numbered in the order of the text. A value is used
//! below the line that makes it; a block may be anywhere.
//!
//! ```text
//! run @f.0(%0 "scratch": address, %1 "n": index) lanes(8) features(fma, round) {
//! ^bb0:
//!   %2 = const 0.5                            : f32x8
//!   %3 = lanes_below %1                       : boolx8
//!   %4 = load bf16, %0 + 2*%1 + 64, mask=%3   : f32x8
//!   %5 = reduce_sum %4                        : f32
//!   %6 = ge %1, %1                            : bool
//!   br_if %6, ^bb1(%1), ^bb2
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cranelift_entity::SecondaryMap;

use super::{AddressMode, Body, Op, Routine, Terminator, Type};
use crate::irtext::{self, BinaryKind, Expr, ExprKind, Line, Phrase, Statement, TextError, TextSpan};
use crate::irtext::{float32_text, quoted, read};
use crate::scalar::Scalar;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::Elem;
use crate::source::Loc;
use crate::ssa::verify::At;
use crate::ssa::{Block, BlockCall, Inst, Value};
use crate::vector::Features;

type Read<T> = Result<T, TextError>;

/// The column at which types stand.
const TYPE_COLUMN: usize = 46;

/// The names of values and blocks.
struct Names<'a> {
    body: &'a Body,
    values: SecondaryMap<Value, u32>,
    blocks: SecondaryMap<Block, u32>,
}

impl Names<'_> {
    fn of(routine: &Routine) -> Names<'_> {
        let body = &routine.body;
        let mut names = Names { body, values: SecondaryMap::new(), blocks: SecondaryMap::new() };
        let params = routine.params.iter().map(|(v, _)| *v);
        let made = body.layout.iter().flat_map(|b| {
            let results = body.block(*b).insts.iter().filter_map(|i| body.inst(*i).result);
            body.block(*b).args.iter().copied().chain(results)
        });
        for (n, v) in (0..).zip(params.chain(made)) {
            names.values[v] = n;
        }
        for (n, b) in (0..).zip(&body.layout) {
            names.blocks[*b] = n;
        }
        names
    }

    fn value(&self, v: Value) -> String {
        format!("%{}", self.values[v])
    }

    fn list(&self, vs: &[Value]) -> String {
        vs.iter().map(|v| self.value(*v)).collect::<Vec<_>>().join(", ")
    }

    fn typed(&self, v: Value) -> String {
        format!("{}: {}", self.value(v), self.body.ty(v))
    }

    fn call(&self, call: &BlockCall) -> String {
        let block = self.blocks[call.block];
        if call.args.is_empty() { format!("^bb{block}") } else { format!("^bb{block}({})", self.list(&call.args)) }
    }

    /// A place, and the operands that are left.
    fn place<'a>(&self, place: AddressMode, operands: &'a [Value]) -> (String, &'a [Value]) {
        let (of_place, rest) = operands.split_at(place.operands().min(operands.len()));
        let mut text = of_place.first().map_or(String::new(), |v| self.value(*v));
        if let Some(index) = of_place.get(1) {
            let _ = write!(text, " + {}*{}", place.scale, self.value(*index));
        }
        match place.offset {
            0 => {}
            n if n < 0 => {
                let _ = write!(text, " - {}", n.unsigned_abs());
            }
            n => {
                let _ = write!(text, " + {n}");
            }
        }
        (text, rest)
    }

    fn operation(&self, op: &Op, operands: &[Value]) -> String {
        let name = op.name();
        match op {
            Op::Const(Scalar::Float(x)) => format!("{name} {}", float32_text(*x as f32)),
            Op::Const(s) => format!("{name} {}", s.as_i64()),
            Op::Lanes => name.to_string(),
            Op::Narrow(elem) => format!("{name} {elem}, {}", self.list(operands)),
            Op::Extract(lane) => format!("{name} {}, {lane}", self.list(operands)),
            Op::Exchange(distance) => format!("{name} {}, {distance}", self.list(operands)),
            Op::Address(place) | Op::Prefetch(place) => format!("{name} {}", self.place(*place, operands).0),
            Op::Load { elem, place, .. } => {
                let (place, rest) = self.place(*place, operands);
                format!("{name} {elem}, {place}{}", self.named("mask", rest.first()))
            }
            Op::Store { elem, place, .. } => {
                let (place, rest) = self.place(*place, operands);
                let x = self.list(rest.get(..1).unwrap_or_default());
                format!("{name} {elem}, {place}, {x}{}", self.named("mask", rest.get(1)))
            }
            Op::LoadApart(elem) => {
                let plain = self.list(operands.get(..2).unwrap_or(operands));
                format!("{name} {elem}, {plain}{}", self.named("count", operands.get(2)))
            }
            Op::StoreApart(elem) => {
                let plain = self.list(operands.get(..3).unwrap_or(operands));
                format!("{name} {elem}, {plain}{}", self.named("count", operands.get(3)))
            }
            _ => format!("{name} {}", self.list(operands)),
        }
    }

    fn named(&self, name: &str, v: Option<&Value>) -> String {
        v.map_or(String::new(), |v| format!(", {name}={}", self.value(*v)))
    }
}

/// A routine as text.
pub fn print(routine: &Routine) -> String {
    let names = Names::of(routine);
    let body = &routine.body;
    let param = |(v, label): &(Value, String)| match label.as_str() {
        "" => names.typed(*v),
        label => format!("{} {}: {}", names.value(*v), quoted(label), body.ty(*v)),
    };
    let params: Vec<String> = routine.params.iter().map(param).collect();
    let mut out = format!("run @{}({}) lanes({})", routine.name, params.join(", "), routine.lanes);
    let features = routine.features.names();
    if !features.is_empty() {
        let _ = write!(out, " features({})", features.join(", "));
    }
    out += " {\n";
    for b in &body.layout {
        let data = body.block(*b);
        let args: Vec<String> = data.args.iter().map(|v| names.typed(*v)).collect();
        let args = if args.is_empty() { String::new() } else { format!("({})", args.join(", ")) };
        let _ = writeln!(out, "^bb{}{args}:", names.blocks[*b]);
        for i in &data.insts {
            let inst = body.inst(*i);
            let text = names.operation(&inst.op, &inst.operands);
            let _ = match inst.result {
                Some(v) => {
                    let line = format!("  {} = {text}", names.value(v));
                    writeln!(out, "{line:TYPE_COLUMN$}: {}", body.ty(v))
                }
                None => writeln!(out, "  {text}"),
            };
        }
        let _ = match &data.terminator {
            Terminator::Br(call) => writeln!(out, "  br {}", names.call(call)),
            Terminator::BrIf { condition, then, otherwise } => {
                let condition = names.value(*condition);
                writeln!(out, "  br_if {condition}, {}, {}", names.call(then), names.call(otherwise))
            }
            Terminator::Return(_) => writeln!(out, "  return"),
            Terminator::Roles(roles) => match *roles {},
        };
    }
    out += "}\n";
    out
}

/// Several routines as text.
pub fn print_all<'a>(routines: impl IntoIterator<Item = &'a Routine>) -> String {
    routines.into_iter().map(print).collect::<Vec<_>>().join("\n")
}

/// A routine that was read.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The routine.
    pub routine: Routine,
    /// What is where in the text.
    pub places: Vec<(At, TextSpan)>,
}

/// Reads a file of routines. Types are taken as they are written; whether they are right is for the verifier to say.
///
/// # Errors
/// The first line that is wrong, with its place.
pub fn parse(source: &str) -> Read<Vec<Parsed>> {
    irtext::parse(source)?
        .iter()
        .map(|line| match line {
            Line::Statement(s) => routine(s),
            Line::Block(b) => fail(b.place, "a block stands in a routine"),
        })
        .collect()
}

fn fail<T>(place: TextSpan, message: impl Into<String>) -> Read<T> {
    Err(TextError::new(place, message))
}

fn ty(e: &Expr) -> Read<Type> {
    let name = read::word(e)?;
    let lanes = || {
        let (elem, lanes) = name.split_once('x').unwrap_or((name, "1"));
        Some(Type::Lanes(Elem::from_name(elem)?, lanes.parse().ok()?))
    };
    let found = match name {
        "index" => Some(Type::Index),
        "address" => Some(Type::Address),
        _ => lanes(),
    };
    found.map_or_else(|| fail(e.place, "a type is `index`, `address`, `f32` or `f32x16`"), Ok)
}

fn elem(e: &Expr) -> Read<Elem> {
    read::elem(e)
}

struct Parser {
    routine: Routine,
    places: Vec<(At, TextSpan)>,
    values: BTreeMap<String, Value>,
    blocks: BTreeMap<String, Block>,
}

fn routine(s: &Statement) -> Read<Parsed> {
    const FORM: &str = "a routine is `run @name(%parameter: type) lanes(16) { .. }`";
    let lines = match &s.body {
        Some(lines) if s.head == "run" && s.results.is_empty() && s.types.is_empty() && s.outs.is_empty() => lines,
        _ => return fail(s.place, FORM),
    };
    let [head] = s.args.as_slice() else { return fail(s.place, FORM) };
    let Some((call, clauses)) = head.terms.split_first().filter(|_| head.value.is_empty()) else {
        return fail(s.place, FORM);
    };
    let (ExprKind::Call(name, params), true) = (&call.kind, s.loc.is_none()) else { return fail(call.place, FORM) };
    let ExprKind::Global(name) = &name.kind else { return fail(name.place, "a routine's name begins with `@`") };
    let empty =
        Routine { name: name.clone(), lanes: 0, features: Features::PLAIN, params: Vec::new(), body: Body::default() };
    let mut p = Parser { routine: empty, places: Vec::new(), values: BTreeMap::new(), blocks: BTreeMap::new() };
    p.places.push((At::Head, call.place));
    for e in clauses {
        p.clause(e)?;
    }
    for phrase in params {
        p.param(phrase)?;
    }
    for line in lines {
        let Line::Block(b) = line else { continue };
        let block = p.routine.body.add_block();
        p.places.push((At::Block(block), b.place));
        if p.blocks.insert(b.name.clone(), block).is_some() {
            return fail(b.place, format!("^{} is defined twice", b.name));
        }
    }
    let mut now: Option<Block> = None;
    for line in lines {
        match (line, now) {
            (Line::Block(b), None) => {
                let block = p.blocks.get(&b.name).copied();
                for phrase in &b.args {
                    let (e, ty) = typed(phrase)?;
                    let Some(block) = block else { continue };
                    let v = p.routine.body.add_block_arg(block, ty);
                    p.define(e, v)?;
                }
                now = block;
            }
            (Line::Block(b), Some(_)) => {
                return fail(b.place, "the block before ends in `br`, `br_if` or `return`");
            }
            (Line::Statement(s), None) => return fail(s.place, "a line outside of a block"),
            (Line::Statement(s), Some(block)) => match s.head.as_str() {
                "br" | "br_if" | "return" => {
                    let end = p.terminator(s)?;
                    p.routine.body.terminate(block, end);
                    p.places.push((At::Terminator(block), s.place));
                    now = None;
                }
                _ => p.instruction(s, block)?,
            },
        }
    }
    match now {
        Some(_) => fail(s.place, "the last block ends in `br`, `br_if` or `return`"),
        None => Ok(Parsed { routine: p.routine, places: p.places }),
    }
}

/// `%name: type`
fn typed(p: &Phrase) -> Read<(&Expr, Type)> {
    match (p.terms.as_slice(), p.types.as_slice()) {
        ([v], [t]) => Ok((v, ty(t)?)),
        _ => fail(p.place, "`%name: type` belongs here"),
    }
}

/// The operations whose operands are values alone.
fn plain(name: &str) -> Option<Op> {
    let own = [
        Op::Select,
        Op::Cast,
        Op::BitAnd,
        Op::BitOr,
        Op::MaxOrSecond,
        Op::MinOrSecond,
        Op::Unordered,
        Op::Beats,
        Op::Splat,
        Op::LanesBelow,
        Op::MaskBits,
        Op::MaskOfBits,
        Op::First,
        Op::Build,
    ];
    let kinds = [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::All, ReduceKind::Any];
    own.into_iter()
        .chain(kinds.into_iter().map(Op::Reduce))
        .find(|op| op.name() == name)
        .or_else(|| UnaryOp::from_name(name).map(Op::Unary))
        .or_else(|| BinaryOp::from_name(name).map(Op::Binary))
        .or_else(|| CmpOp::from_name(name).map(Op::Compare))
}

impl Parser {
    fn define(&mut self, e: &Expr, v: Value) -> Read<()> {
        let name = read::value(e)?;
        match self.values.insert(name.to_string(), v) {
            None => Ok(()),
            Some(_) => fail(e.place, format!("%{name} is already defined")),
        }
    }

    fn value(&self, e: &Expr) -> Read<Value> {
        let name = read::value(e)?;
        let found = self.values.get(name).copied();
        found.map_or_else(|| fail(e.place, format!("%{name} is not defined before this line")), Ok)
    }

    fn values(&self, list: &[Phrase]) -> Read<Vec<Value>> {
        list.iter().map(|p| self.value(read::single(p)?)).collect()
    }

    /// `lanes(16)`, `features(fma)`
    fn clause(&mut self, e: &Expr) -> Read<()> {
        const FORM: &str = "`lanes(16)` or `features(fma, round, scale)` belongs here";
        let ExprKind::Call(name, args) = &e.kind else { return fail(e.place, FORM) };
        match (read::word(name)?, args.as_slice()) {
            ("lanes", [n]) => self.routine.lanes = read::integer(read::single(n)?)?,
            ("features", features) => {
                for p in features {
                    let e = read::single(p)?;
                    if !self.routine.features.add(read::word(e)?) {
                        return fail(e.place, "a feature is `fma`, `round` or `scale`");
                    }
                }
            }
            _ => return fail(e.place, FORM),
        }
        Ok(())
    }

    /// `%name "label": type`
    fn param(&mut self, p: &Phrase) -> Read<()> {
        let (v, label, t) = match (p.terms.as_slice(), p.types.as_slice()) {
            ([v], [t]) => (v, String::new(), ty(t)?),
            ([v, label], [t]) => (v, read::text(label)?.to_string(), ty(t)?),
            _ => return fail(p.place, "a parameter is `%name \"what it is\": type`"),
        };
        let value = self.routine.body.add_param(t);
        self.routine.params.push((value, label));
        self.define(v, value)
    }

    /// `%base + 4*%index + 64`: the place, and its operands.
    fn place(&self, e: &Expr) -> Read<(AddressMode, Vec<Value>)> {
        const FORM: &str = "a place is `%address + 4*%index + 64`";
        let ExprKind::Chain(first, rest) = &e.kind else { return Ok((AddressMode::HERE, vec![self.value(e)?])) };
        let mut place = AddressMode::HERE;
        let mut operands = vec![self.value(first)?];
        let mut rest = rest.as_slice();
        if let [(BinaryKind::Add, Expr { kind: ExprKind::Chain(scale, index), .. }), more @ ..] = rest {
            let [(BinaryKind::Mul, index)] = index.as_slice() else { return fail(e.place, FORM) };
            place.scale = read::integer(scale)?;
            if !matches!(place.scale, 1 | 2 | 4 | 8) {
                return fail(scale.place, "an index is multiplied by 1, 2, 4 or 8");
            }
            operands.push(self.value(index)?);
            rest = more;
        }
        match rest {
            [] => {}
            [(op @ (BinaryKind::Add | BinaryKind::Sub), n)] => {
                let bytes: i64 = read::integer(n)?;
                let bytes = if *op == BinaryKind::Sub { bytes.saturating_neg() } else { bytes };
                place.offset = i32::try_from(bytes).or_else(|_| fail(n.place, "the number is out of range"))?;
            }
            _ => return fail(e.place, FORM),
        }
        Ok((place, operands))
    }

    fn instruction(&mut self, s: &Statement, block: Block) -> Read<()> {
        if !s.outs.is_empty() || s.body.is_some() || s.loc.is_some() || s.results.len() > 1 {
            return fail(s.place, "an instruction is `%name = operation operands : type`");
        }
        let declared = match (s.results.as_slice(), s.types.as_slice()) {
            ([_], [p]) => Some(ty(read::single(p)?)?),
            ([], []) => None,
            _ => return fail(s.place, "a result has one type: `%x = .. : type`"),
        };
        let (named, args): (Vec<&Phrase>, Vec<&Phrase>) = s.args.iter().partition(|p| read::named(p).is_some());
        let args: Vec<&Expr> = args.into_iter().map(read::single).collect::<Read<_>>()?;
        // `mask=%m` or `count=%n`, whichever belongs to the operation.
        let optional = |name: &str| match named.as_slice() {
            [] => Ok(None),
            [p] => match read::named(p) {
                Some((n, [e])) if n == name => Ok(Some(self.value(e)?)),
                _ => fail(p.place, format!("`{name}=%value` belongs here")),
            },
            [_, p, ..] => fail(p.place, "one thing with a name belongs here"),
        };
        let (op, operands) = match (s.head.as_str(), args.as_slice()) {
            ("const", [n]) => (Op::Const(constant(n, declared)?), Vec::new()),
            ("lanes", []) => (Op::Lanes, Vec::new()),
            ("narrow", [e, x]) => (Op::Narrow(elem(e)?), vec![self.value(x)?]),
            ("exchange", [x, distance]) => (Op::Exchange(read::integer(distance)?), vec![self.value(x)?]),
            ("extract", [x, lane]) => (Op::Extract(read::integer(lane)?), vec![self.value(x)?]),
            ("address", [at]) => {
                let (place, operands) = self.place(at)?;
                (Op::Address(place), operands)
            }
            ("prefetch", [at]) => {
                let (place, operands) = self.place(at)?;
                (Op::Prefetch(place), operands)
            }
            ("load", [e, at]) => {
                let (place, mut operands) = self.place(at)?;
                let mask = optional("mask")?;
                operands.extend(mask);
                (Op::Load { elem: elem(e)?, place, masked: mask.is_some() }, operands)
            }
            ("store", [e, at, x]) => {
                let (place, mut operands) = self.place(at)?;
                let mask = optional("mask")?;
                operands.push(self.value(x)?);
                operands.extend(mask);
                (Op::Store { elem: elem(e)?, place, masked: mask.is_some() }, operands)
            }
            ("load_apart", [e, start, step]) => {
                let mut operands = vec![self.value(start)?, self.value(step)?];
                operands.extend(optional("count")?);
                (Op::LoadApart(elem(e)?), operands)
            }
            ("store_apart", [e, start, step, x]) => {
                let mut operands = vec![self.value(start)?, self.value(step)?, self.value(x)?];
                operands.extend(optional("count")?);
                (Op::StoreApart(elem(e)?), operands)
            }
            (head, args) => match plain(head) {
                Some(op) => (op, args.iter().map(|e| self.value(e)).collect::<Read<_>>()?),
                None => return fail(s.place, format!("there is no operation `{head}` of this form")),
            },
        };
        let takes_names = matches!(op, Op::Load { .. } | Op::Store { .. } | Op::LoadApart(_) | Op::StoreApart(_));
        if let (Some(p), false) = (named.first(), takes_names) {
            return fail(p.place, format!("`{}` has nothing with a name", s.head));
        }
        let body = &mut self.routine.body;
        let inst: Inst = body.make_inst(op, operands, declared, Loc::default());
        body.block_mut(block).insts.push(inst);
        self.places.push((At::Inst(inst), s.place));
        match (s.results.first(), self.routine.body.inst(inst).result) {
            (Some(e), Some(v)) => self.define(e, v),
            _ => Ok(()),
        }
    }

    fn call(&self, p: &Phrase) -> Read<BlockCall> {
        let e = read::single(p)?;
        let (label, args): (&Expr, &[Phrase]) = match &e.kind {
            ExprKind::Call(label, args) => (label, args),
            _ => (e, &[]),
        };
        let ExprKind::Label(name) = &label.kind else { return fail(e.place, "a block (`^name`) belongs here") };
        match self.blocks.get(name) {
            Some(block) => Ok(BlockCall { block: *block, args: self.values(args)? }),
            None => fail(e.place, format!("^{name} is no block")),
        }
    }

    fn terminator(&self, s: &Statement) -> Read<Terminator> {
        if !s.results.is_empty() || !s.types.is_empty() || s.body.is_some() || !s.outs.is_empty() || s.loc.is_some() {
            return fail(s.place, format!("`{}` has targets and values alone", s.head));
        }
        match (s.head.as_str(), s.args.as_slice()) {
            ("return", []) => Ok(Terminator::Return(Vec::new())),
            ("br", [to]) => Ok(Terminator::Br(self.call(to)?)),
            ("br_if", [c, then, otherwise]) => Ok(Terminator::BrIf {
                condition: self.value(read::single(c)?)?,
                then: self.call(then)?,
                otherwise: self.call(otherwise)?,
            }),
            _ => fail(s.place, format!("`{}` has another number of targets", s.head)),
        }
    }
}

/// A number of the declared type.
fn constant(e: &Expr, declared: Option<Type>) -> Read<Scalar> {
    match (read::literal(e), declared) {
        (Some(read::Literal::Float(x)), Some(Type::Lanes(Elem::F32, _)))
            if x.is_infinite() || (x as f32).is_finite() =>
        {
            Ok(Scalar::Float(f64::from(x as f32)))
        }
        (Some(read::Literal::Float(x)), Some(Type::Lanes(Elem::F32, _))) if x.is_nan() => Ok(Scalar::Float(x)),
        (Some(read::Literal::Int(n)), Some(Type::Lanes(Elem::I32, _))) if i32::try_from(n).is_ok() => {
            Ok(Scalar::Int(n))
        }
        (Some(read::Literal::Int(n)), Some(Type::Lanes(Elem::I64, _) | Type::Index)) => Ok(Scalar::Int(n)),
        _ => fail(e.place, "a number of the declared type belongs here"),
    }
}
