//! The text form of routines: [`print`] writes one, [`parse`] reads a file of them.
//!
//! The syntax is that of [`crate::irtext`]. Values without a name are numbered in the order of the
//! text. Definitions precede uses in the text; blocks may be in any order.
//!
//! ```text
//! run @f.0(%0 "scratch": address, %1 "n": index) lanes(8) features(fma, round) {
//! ^bb0:
//!   %2 = const 0.5                            : f32x8
//!   %3 = lanes_below %1                       : boolx8
//!   %4 = load %0 + 2*%1 + 64, elem=bf16, mask=%3 : f32x8
//!   %5 = reduce_sum %4                        : f32
//!   %6 = ge %1, %1                            : bool
//!   br_if %6, ^bb1(%1), ^bb2
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cranelift_entity::SecondaryMap;

use super::{AddressMode, Body, Op, Routine, Terminator, Type};
use crate::diagnostics::codes::ir as codes;
use crate::irtext::{self, BinaryKind, Expr, ExprKind, Line, Phrase, Statement, TextError, TextSpan};
use crate::irtext::{float32_text, quoted, read};
use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::source::Loc;
use crate::ssa::verify::ErrorLocation;
use crate::ssa::{Block, BlockCall, Inst, Value};
use crate::table::{self, Attributes, CodedError};
use crate::vector::Features;

type Read<T> = Result<T, TextError>;

/// The column at which a type's colon stands, after a space.
const TYPE_COLUMN: usize = 45;

/// The table's name for the operands of an [`AddressMode`].
const PLACE: &str = "address*";

const PLACE_FORM: &str = "a place is `%address + 4*%index + 64`";

/// The names of values and blocks.
struct Names<'a> {
    body: &'a Body,
    values: SecondaryMap<Value, u32>,
    blocks: SecondaryMap<Block, u32>,
}

impl Names<'_> {
    fn assign(routine: &Routine) -> Names<'_> {
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

    /// Prints an addressing mode; returns the remaining operands.
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

    /// Prints an operation: operands, attributes and optional operands, in the order of its row.
    fn operation(&self, op: &Op, operands: &[Value]) -> String {
        let row = op.info();
        let mut phrases: Vec<String> = literal(op).into_iter().collect();
        let mut optional = Vec::new();
        let mut rest = operands;
        for name in row.operands {
            let count = if name.ends_with('*') { rest.len() } else { rest.len().min(1) };
            if let Some(place) = op.place().filter(|_| *name == PLACE) {
                let (text, after) = self.place(place, rest);
                phrases.push(text);
                rest = after;
            } else {
                let (own, after) = rest.split_at(count);
                match name.strip_suffix('?') {
                    Some(name) => optional.extend(own.iter().map(|v| format!("{name}={}", self.value(*v)))),
                    None => phrases.extend(own.iter().map(|v| self.value(*v))),
                }
                rest = after;
            }
        }
        phrases.extend(rest.iter().map(|v| self.value(*v)));
        phrases.extend(op.attributes().unwrap_or_default().into_iter().map(|(name, value)| format!("{name}={value}")));
        phrases.extend(optional);
        format!("{} {}", row.name, phrases.join(", ")).trim_end().to_string()
    }
}

/// The literal before the operands.
fn literal(op: &Op) -> Option<String> {
    let Op::Const(value) = op else { return None };
    Some(match value {
        Scalar::Float(x) => float32_text(*x as f32),
        Scalar::Int(_) | Scalar::Bool(_) => value.as_i64().to_string(),
    })
}

/// Prints a routine.
pub fn print(routine: &Routine) -> String {
    print_with(routine, |_| None)
}

/// Prints a routine, with a comment after each instruction that has one.
pub fn print_with(routine: &Routine, comment: impl Fn(Option<Inst>) -> Option<String>) -> String {
    let names = Names::assign(routine);
    let behind = |i| comment(i).map_or(String::new(), |text| format!("  // {text}"));
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
                    write!(out, "{line:TYPE_COLUMN$} : {}", body.ty(v))
                }
                None => write!(out, "  {text}"),
            };
            let _ = writeln!(out, "{}", behind(Some(*i)));
        }
        let _ = match &data.terminator {
            Terminator::Br(call) => write!(out, "  br {}", names.call(call)),
            Terminator::BrIf { condition, then, otherwise } => {
                let condition = names.value(*condition);
                write!(out, "  br_if {condition}, {}, {}", names.call(then), names.call(otherwise))
            }
            Terminator::Return(_) => write!(out, "  return"),
            Terminator::Roles(roles) => match *roles {},
        };
        let _ = writeln!(out, "{}", behind(None));
    }
    out += "}\n";
    out
}

/// Prints several routines.
pub fn print_all<'a>(routines: impl IntoIterator<Item = &'a Routine>) -> String {
    routines.into_iter().map(print).collect::<Vec<_>>().join("\n")
}

/// A parsed routine.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The routine, not verified.
    pub routine: Routine,
    /// Positions in the text, for errors of the verifier.
    pub places: Vec<(ErrorLocation, TextSpan)>,
}

/// Parses a file of routines. Declared types are not checked; the verifier does that.
///
/// # Errors
/// The first error, with its position.
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

struct Parser {
    routine: Routine,
    places: Vec<(ErrorLocation, TextSpan)>,
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
    p.places.push((ErrorLocation::Head, call.place));
    for e in clauses {
        p.clause(e)?;
    }
    for phrase in params {
        p.param(phrase)?;
    }
    for line in lines {
        let Line::Block(b) = line else { continue };
        let block = p.routine.body.add_block();
        p.places.push((ErrorLocation::Block(block), b.place));
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
                    p.places.push((ErrorLocation::Terminator(block), s.place));
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

    /// `%base + 4*%index + 64`: the addressing mode, and its operands.
    fn place(&self, e: &Expr) -> Read<(AddressMode, Vec<Value>)> {
        let ExprKind::Chain(first, rest) = &e.kind else { return Ok((AddressMode::HERE, vec![self.value(e)?])) };
        let mut place = AddressMode::HERE;
        let mut operands = vec![self.value(first)?];
        let mut rest = rest.as_slice();
        if let [(BinaryKind::Add, Expr { kind: ExprKind::Chain(scale, index), .. }), more @ ..] = rest {
            let [(BinaryKind::Mul, index)] = index.as_slice() else { return fail(e.place, PLACE_FORM) };
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
            _ => return fail(e.place, PLACE_FORM),
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
        let (op, operands) = self.operation(s, declared).map_err(|(_, e)| e)?;
        let body = &mut self.routine.body;
        let inst: Inst = body.make_inst(op, operands, declared, Loc::default());
        body.block_mut(block).insts.push(inst);
        self.places.push((ErrorLocation::Inst(inst), s.place));
        match (s.results.first(), self.routine.body.inst(inst).result) {
            (Some(e), Some(v)) => self.define(e, v),
            _ => Ok(()),
        }
    }

    /// The operation of a statement, and its operands.
    fn operation(&self, s: &Statement, declared: Option<Type>) -> Result<(Op, Vec<Value>), CodedError> {
        let form = |r: Read<_>| r.map_err(|e| (codes::FORM, e));
        let table = Op::table();
        let Some(row) = table.iter().find(|row| row.name == s.head) else {
            return Err(table::unknown(&s.head, s.place, &table));
        };
        let mut attributes = Attributes::new(s)?;
        let mut given = s.args.iter().filter(|p| read::named(p).is_none());
        let mut operands = Vec::new();
        let mut place = AddressMode::HERE;
        if row.operands.first() == Some(&PLACE) {
            let Some(p) = given.next() else { return Err((codes::FORM, TextError::new(s.place, PLACE_FORM))) };
            (place, operands) = read::single(p).and_then(|e| self.place(e)).map_err(|e| (codes::FORM, e))?;
        }
        let literal = if row.name == "const" { given.next() } else { None };
        for p in given {
            operands.push(form(read::single(p).and_then(|e| self.value(e)))?);
        }
        let mut masked = false;
        for name in row.operands.iter().filter_map(|name| name.strip_suffix('?')) {
            if let Some(e) = attributes.find(name)? {
                operands.push(form(self.value(e))?);
                masked = true;
            }
        }
        let op = match (Op::read(row.name, &mut attributes)?, row.name) {
            (Some(op), _) => op,
            (None, "address") => Op::Address(place),
            (None, "prefetch") => Op::Prefetch(place),
            (None, "load") => Op::Load { elem: attributes.take("elem", None)?, place, masked },
            (None, "store") => Op::Store { elem: attributes.take("elem", None)?, place, masked },
            // `const`
            (None, _) => match literal {
                Some(p) => {
                    let value = read::single(p).and_then(|e| constant(e, declared));
                    Op::Const(value.map_err(|e| (codes::FORM, e))?)
                }
                None => return Err((codes::FORM, TextError::new(s.place, "a constant is `const 0.5`"))),
            },
        };
        attributes.finish()?;
        Ok((op, operands))
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
            None => fail(e.place, format!("^{name} is not a block")),
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
