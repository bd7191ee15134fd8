//! The text form of vector IR: [`print`] writes a function, [`parse`] reads a file of them.
//!
//! The syntax is that of [`crate::irtext`]: a function is a statement with its instructions in
//! braces, one a line.
//!
//! ```text
//! func @exp(%x: f32) -> f32 error(2, ulp) requires(fma) {
//!   %c = const 89.0                             : f32
//!   %y = min %c, %x                             : f32
//!   %p = polynomial %y, [1.0, 0.5]              : f32
//!   return %p
//! }
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Bound, Features, Function, Inst, Op, Type, Value, verify};
use crate::irtext::{self, Expr, ExprKind, Line, Phrase, Statement, TextError, TextSpan, float32_text, read};
use crate::table;

type Read<T> = Result<T, TextError>;

/// The column at which a type's colon stands, after a space.
const TYPE_COLUMN: usize = 45;

/// A function as text.
pub fn print(f: &Function) -> String {
    let params: Vec<String> = f.params.iter().map(|(name, ty)| format!("%{name}: {ty}")).collect();
    let mut out = format!("func @{}({}) -> {}", f.name, params.join(", "), f.result_type);
    if let Some(bound) = f.bound {
        let number = irtext::float_text;
        out += &match bound {
            Bound::Ulp(n) => format!(" error({}, ulp)", number(n)),
            Bound::UlpOr(n, absolute) => format!(" error({}, ulp, {})", number(n), number(absolute)),
            Bound::RelativeOr(part, absolute) => format!(" error({}, relative, {})", number(part), number(absolute)),
        };
    }
    let features = f.requires.names();
    if !features.is_empty() {
        let _ = write!(out, " requires({})", features.join(", "));
    }
    out += " {\n";
    for inst in &f.insts {
        let line = format!("  %{} = {}", inst.name, operation(f, inst));
        let _ = writeln!(out, "{line:TYPE_COLUMN$} : {}", inst.ty);
    }
    let _ = write!(out, "  return %{}\n}}\n", f.name_of(f.result));
    out
}

fn operation(f: &Function, inst: &Inst) -> String {
    let operands: Vec<String> = inst.operands.iter().map(|v| format!("%{}", f.name_of(*v))).collect();
    let operands = operands.join(", ");
    match &inst.op {
        Op::Const(bits) if inst.ty == Type::F32 => format!("const {}", float32_text(f32::from_bits(*bits))),
        Op::Const(bits) => format!("const {}", bits.cast_signed()),
        Op::Polynomial(coefficients) => {
            let list: Vec<String> = coefficients.iter().map(|c| float32_text(*c)).collect();
            format!("polynomial {operands}, [{}]", list.join(", "))
        }
        Op::Call(name) => format!("call @{name}({operands})"),
        op => format!("{} {operands}", op.info().name),
    }
}

/// Parses a file of functions. Types are checked, but not that callees exist.
///
/// # Errors
/// The first error, with its position.
pub fn parse(source: &str) -> Read<Vec<Function>> {
    irtext::parse(source)?
        .iter()
        .map(|line| match line {
            Line::Statement(s) => function(s),
            Line::Block(b) => fail(b.place, "a function has no blocks"),
        })
        .collect()
}

fn fail<T>(place: TextSpan, message: impl Into<String>) -> Read<T> {
    Err(TextError::new(place, message))
}

fn only(list: &[Phrase], place: TextSpan) -> Read<&Phrase> {
    match list {
        [p] => Ok(p),
        _ => fail(place, "one thing belongs here"),
    }
}

fn ty(e: &Expr) -> Read<Type> {
    Type::from_name(read::word(e)?).map_or_else(|| fail(e.place, "a type is `f32`, `i32` or `mask`"), Ok)
}

fn function(s: &Statement) -> Read<Function> {
    if s.head != "func" || !s.results.is_empty() || !s.types.is_empty() {
        return fail(s.place, "a function is `func @name(%parameter: type) -> type { .. }`");
    }
    let ExprKind::Call(name, args) = &read::single(only(&s.args, s.place)?)?.kind else {
        return fail(s.place, "a function's head is `@name(%parameter: type)`");
    };
    let ExprKind::Global(name) = &name.kind else { return fail(name.place, "a function's name begins with `@`") };
    let mut names = BTreeMap::new();
    let mut params = Vec::new();
    for p in args {
        let ([v], [t]) = (p.terms.as_slice(), p.types.as_slice()) else {
            return fail(p.place, "a parameter is `%name: type`");
        };
        // Such names are reserved for `expand`.
        if read::value(v)?.bytes().all(|b| b.is_ascii_digit()) {
            return fail(v.place, "a parameter's name must not be a number");
        }
        define(&mut names, read::value(v)?, v.place)?;
        params.push((read::value(v)?.to_string(), ty(t)?));
    }
    let out = only(&s.outs, s.place)?;
    let Some((result_type, clauses)) = out.terms.split_first() else { return fail(out.place, "a type belongs here") };
    let mut f = Function {
        name: name.clone(),
        params,
        result_type: ty(result_type)?,
        bound: None,
        requires: Features::PLAIN,
        insts: Vec::new(),
        result: Value::from_index(0),
    };
    for e in clauses {
        clause(e, &mut f)?;
    }
    let lines = s.body.as_deref().unwrap_or_default();
    let Some((last, lines)) = lines.split_last() else { return fail(s.place, "a function ends with `return`") };
    for line in lines {
        let s = match line {
            Line::Statement(s) => s,
            Line::Block(b) => return fail(b.place, "a function has no blocks"),
        };
        let (name, op, operands, ty) = instruction(s, &names)?;
        define(&mut names, &name, s.place)?;
        f.push(op, operands, ty, name);
        verify::last(&f).or_else(|message| fail(s.place, message))?;
    }
    match last {
        Line::Statement(s) if s.head == "return" && s.results.is_empty() => {
            f.result = value(read::single(only(&s.args, s.place)?)?, &names)?;
            verify::returned(&f).or_else(|message| fail(s.place, message))?;
        }
        _ => return fail(s.place, "a function ends with `return %value`"),
    }
    Ok(f)
}

fn define(names: &mut BTreeMap<String, Value>, name: &str, place: TextSpan) -> Read<()> {
    let v = Value::from_index(names.len());
    match names.insert(name.to_string(), v) {
        None => Ok(()),
        Some(_) => fail(place, format!("%{name} is already defined")),
    }
}

fn value(e: &Expr, names: &BTreeMap<String, Value>) -> Read<Value> {
    let name = read::value(e)?;
    names.get(name).copied().map_or_else(|| fail(e.place, format!("%{name} is not defined before this line")), Ok)
}

fn values(list: &[Phrase], names: &BTreeMap<String, Value>) -> Read<Vec<Value>> {
    list.iter().map(|p| value(read::single(p)?, names)).collect()
}

/// `error(2, ulp)`, `error(4, ulp, 1e-42)`, `error(1e-6, relative, 2e-7)`, `requires(fma)`
fn clause(e: &Expr, f: &mut Function) -> Read<()> {
    let ExprKind::Call(name, args) = &e.kind else {
        return fail(e.place, "`error(..)` or `requires(..)` belongs here");
    };
    let args = args.iter().map(read::single).collect::<Read<Vec<&Expr>>>()?;
    match (read::word(name)?, args.as_slice()) {
        ("error", _) if f.bound.is_some() => return fail(e.place, "the error is stated twice"),
        ("error", [n, unit, rest @ ..]) => {
            let n = number(n)?;
            f.bound = Some(match (read::word(unit)?, rest) {
                ("ulp", []) => Bound::Ulp(n),
                ("ulp", [absolute]) => Bound::UlpOr(n, number(absolute)?),
                ("relative", [absolute]) => Bound::RelativeOr(n, number(absolute)?),
                _ => return fail(e.place, "an error is `(2, ulp)`, `(2, ulp, 1e-42)` or `(1e-6, relative, 2e-7)`"),
            });
        }
        ("requires", features) => {
            for e in features {
                if !f.requires.add(read::word(e)?) {
                    return fail(e.place, "a feature is `fma`, `round` or `scale`");
                }
            }
        }
        _ => return fail(e.place, "`error(..)` or `requires(..)` belongs here"),
    }
    Ok(())
}

/// An `f64` of an error bound: finite and not negative.
fn number(e: &Expr) -> Read<f64> {
    match read::literal(e) {
        Some(read::Literal::Float(x)) if x.is_finite() && x >= 0.0 => Ok(x),
        Some(read::Literal::Int(n)) if n >= 0 => Ok(n as f64),
        _ => fail(e.place, "a number that is finite and is not negative belongs here"),
    }
}

/// An `f32` constant, with any number of digits.
fn float(e: &Expr) -> Read<f32> {
    match read::literal(e) {
        Some(read::Literal::Float(x)) if x.is_finite() && (x as f32).is_infinite() => {
            fail(e.place, "the number is beyond f32")
        }
        Some(read::Literal::Float(x)) => Ok(x as f32),
        _ => fail(e.place, "a number with a point belongs here"),
    }
}

fn instruction(s: &Statement, names: &BTreeMap<String, Value>) -> Read<(String, Op, Vec<Value>, Type)> {
    let [result] = s.results.as_slice() else { return fail(s.place, "an instruction has one result, `%name = ..`") };
    if !s.outs.is_empty() || s.body.is_some() || s.loc.is_some() {
        return fail(s.place, "an instruction is `%name = operation operands : type`");
    }
    let name = read::value(result)?.to_string();
    let ty = ty(read::single(only(&s.types, s.place)?)?)?;
    let (op, operands) = match (s.head.as_str(), s.args.as_slice()) {
        ("const", [n]) => {
            let n = read::single(n)?;
            let bits = match ty {
                Type::F32 => float(n)?.to_bits(),
                Type::I32 => read::integer::<i32>(n)?.cast_unsigned(),
                Type::Mask => return fail(n.place, "a constant is `f32` or `i32`"),
            };
            (Op::Const(bits), Vec::new())
        }
        ("polynomial", [x, list]) => {
            let list = read::single(list)?;
            let ExprKind::List(items) = &list.kind else { return fail(list.place, "coefficients are `[1.0, 0.5]`") };
            let items = items.iter().map(|p| float(read::single(p)?)).collect::<Read<Vec<f32>>>()?;
            (Op::Polynomial(items), vec![value(read::single(x)?, names)?])
        }
        ("call", [f]) => match &read::single(f)?.kind {
            ExprKind::Call(f, args) => match &f.kind {
                ExprKind::Global(f) => (Op::Call(f.clone()), values(args, names)?),
                _ => return fail(f.place, "a function's name begins with `@`"),
            },
            _ => return fail(s.place, "a call is `call @name(%value)`"),
        },
        (head, args) => match Op::plain(head) {
            Some(op) => (op, values(args, names)?),
            None => return Err(table::unknown(head, s.place, &Op::table()).1),
        },
    };
    Ok((name, op, operands, ty))
}
