//! Readers for common parts of IR text: dimensions, facts, tensor types, literals, names.

use super::syntax::{BinaryKind, CompareKind, Expr, ExprKind, Phrase};
use super::{TextError, TextSpan};
use crate::shape::{Dim, Elem, Fact, Relation, TensorType};

type Read<T> = Result<T, TextError>;

/// The maximum number of terms of a dimension, so that products of sums stay small.
const MAX_TERMS: usize = 128;

fn err<T>(place: TextSpan, message: impl Into<String>) -> Read<T> {
    Err(TextError::new(place, message))
}

/// The only term of a phrase that has neither type nor value.
pub fn single(p: &Phrase) -> Read<&Expr> {
    match p.terms.as_slice() {
        [x] if p.types.is_empty() && p.value.is_empty() => Ok(x),
        _ => err(p.place, "expected one term"),
    }
}

/// `name = value`: the name and the value's terms. `None` if the phrase has no `=`.
pub fn named(p: &Phrase) -> Option<(&str, &[Expr])> {
    match p.terms.as_slice() {
        [Expr { kind: ExprKind::Word(name), .. }] if !p.value.is_empty() => Some((name, &p.value)),
        _ => None,
    }
}

/// Reads a name without a sigil.
pub fn word(e: &Expr) -> Read<&str> {
    match &e.kind {
        ExprKind::Word(s) => Ok(s),
        _ => err(e.place, "expected a name"),
    }
}

/// Reads a string, escapes resolved.
pub fn text(e: &Expr) -> Read<&str> {
    match &e.kind {
        ExprKind::Str(s) => Ok(s),
        _ => err(e.place, "expected a string"),
    }
}

/// The name of a value, without the `%`.
pub fn value(e: &Expr) -> Read<&str> {
    match &e.kind {
        ExprKind::Value(s) => Ok(s),
        _ => err(e.place, "expected a value (`%name`)"),
    }
}

/// An integer, possibly negative, that fits the type.
pub fn integer<T: TryFrom<i128>>(e: &Expr) -> Read<T> {
    let n = match &e.kind {
        ExprKind::Int(n) => *n,
        ExprKind::Neg(x) => match x.kind {
            ExprKind::Int(n) => n.saturating_neg(),
            _ => return err(e.place, "expected a number"),
        },
        _ => return err(e.place, "expected a number"),
    };
    T::try_from(n).or_else(|_| err(e.place, "the number is out of range"))
}

/// A literal element: `1`, `-0.5`, `inf`, `-inf`, `nan`, `true`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal {
    /// A number without a point or an exponent.
    Int(i64),
    /// A number with a point or an exponent, `inf` or `nan`.
    Float(f64),
    /// `true` or `false`
    Bool(bool),
}

/// Reads a literal; `None` for another term.
pub fn literal(e: &Expr) -> Option<Literal> {
    match &e.kind {
        ExprKind::Int(_) => integer(e).ok().map(Literal::Int),
        ExprKind::Float(x) => Some(Literal::Float(*x)),
        ExprKind::Word(w) => match w.as_str() {
            "inf" => Some(Literal::Float(f64::INFINITY)),
            "nan" => Some(Literal::Float(f64::NAN)),
            "true" => Some(Literal::Bool(true)),
            "false" => Some(Literal::Bool(false)),
            _ => None,
        },
        // Read with its sign, because the minimum integer cannot be negated.
        ExprKind::Neg(x) if matches!(x.kind, ExprKind::Int(_)) => integer(e).ok().map(Literal::Int),
        ExprKind::Neg(x) => match literal(x)? {
            Literal::Float(x) => Some(Literal::Float(-x)),
            Literal::Int(_) | Literal::Bool(_) => None,
        },
        _ => None,
    }
}

/// A dimension: integers and names with `+ - * / %`, `floor_div`, `ceil_div`, `min` and `max`.
pub fn dim(e: &Expr) -> Read<Dim> {
    let d = match &e.kind {
        ExprKind::Int(_) => Dim::from(integer::<i64>(e)?),
        ExprKind::Word(name) if !name.contains('.') => Dim::symbol(name),
        ExprKind::Neg(x) => dim(x)?.neg(),
        ExprKind::Paren(items) => match items.as_slice() {
            [p] => dim(single(p)?)?,
            _ => return err(e.place, "expected a dimension"),
        },
        ExprKind::Chain(first, rest) => {
            let mut out = dim(first)?;
            for (op, x) in rest {
                let d = dim(x)?;
                if out.terms().len().saturating_mul(d.terms().len()) > MAX_TERMS {
                    return err(e.place, "the dimension is too large an expression");
                }
                out = match op {
                    BinaryKind::Add => out.add(&d),
                    BinaryKind::Sub => out.sub(&d),
                    BinaryKind::Mul => out.mul(&d),
                    BinaryKind::Div => match out.div(&d) {
                        Some(q) => q,
                        None => return err(x.place, "division by zero"),
                    },
                    BinaryKind::Rem => match out.rem(&d) {
                        Some(rest) => rest,
                        None => return err(x.place, "the divisor must be at least 1"),
                    },
                };
            }
            out
        }
        ExprKind::Call(name, args) => {
            let ExprKind::Word(name) = &name.kind else { return err(e.place, "expected a dimension") };
            let args = dims(args)?;
            let ((Some(a), Some(b)), rest) = ((args.first(), args.get(1)), args.get(2..).unwrap_or_default()) else {
                return err(e.place, "expected two dimensions in the parentheses");
            };
            let found = match (name.as_str(), rest) {
                ("floor_div", []) => a.floor_div(b),
                ("ceil_div", []) => a.ceil_div(b),
                ("min", rest) => Some(rest.iter().fold(a.min_with(b), |d, x| d.min_with(x))),
                ("max", rest) => Some(rest.iter().fold(a.max_with(b), |d, x| d.max_with(x))),
                _ => return err(e.place, format!("`{name}` is not a function of dimensions")),
            };
            match found {
                Some(d) => d,
                None => return err(e.place, "the divisor must be at least 1"),
            }
        }
        _ => return err(e.place, "expected a dimension"),
    };
    Ok(d)
}

/// The dimensions of a list.
pub fn dims(items: &[Phrase]) -> Read<Vec<Dim>> {
    items.iter().map(|p| dim(single(p)?)).collect()
}

/// Reads the name of an element type.
pub fn elem(e: &Expr) -> Read<Elem> {
    match &e.kind {
        ExprKind::Word(w) => match Elem::from_name(w) {
            Some(t) => Ok(t),
            None => err(e.place, format!("`{w}` is not an element type")),
        },
        _ => err(e.place, "expected an element type"),
    }
}

/// A tensor type: `f32[S, 768]`.
pub fn tensor_type(e: &Expr) -> Read<TensorType> {
    match &e.kind {
        ExprKind::Index(name, shape) => Ok(TensorType::new(elem(name)?, dims(shape)?)),
        _ => err(e.place, "expected a tensor type (`f32[2, 3]`)"),
    }
}

/// A fact: `a == b`, `a != b`, `a <= b`, `a < b`, `(a) % (b) == 0`, as [`Fact`] prints it.
pub fn fact(e: &Expr) -> Read<Fact> {
    let ExprKind::Compare(op, a, b) = &e.kind else {
        return err(e.place, "expected a comparison");
    };
    if let (CompareKind::Eq, ExprKind::Chain(x, rest), ExprKind::Int(0)) = (op, &a.kind, &b.kind)
        && let [(BinaryKind::Rem, y)] = rest.as_slice()
    {
        return Ok(Fact { left: dim(x)?, relation: Relation::Divisible, right: dim(y)? });
    }
    let (a, b) = (dim(a)?, dim(b)?);
    let (left, relation, right) = match op {
        CompareKind::Eq => (a, Relation::Eq, b),
        CompareKind::Ne => (a, Relation::Ne, b),
        CompareKind::Le => (a, Relation::Le, b),
        CompareKind::Lt => (a, Relation::Lt, b),
        CompareKind::Ge => (b, Relation::Le, a),
        CompareKind::Gt => (b, Relation::Lt, a),
    };
    Ok(Fact { left, relation, right })
}

#[cfg(test)]
mod tests {
    use super::super::{Line, parse, syntax::Statement};
    use super::*;

    fn statement(text: &str) -> Statement {
        match parse(text).unwrap().remove(0) {
            Line::Statement(s) => *s,
            Line::Block(_) => panic!("a block"),
        }
    }

    #[test]
    fn reads_both_levels() {
        let text = "module \"gpt2.attn\" files[\"std/nn.attn\"] {\n\
            param \"h.*.w\"[12] : f32[768]\n\
            func @forward(%0 \"tokens\": i32[S]) -> (\"out\": f32[S, 768]) symbols(S) where(S <= 1024) {\n\
            ^bb0:\n  %1 = mul %2, -0.125 : f32[12, S]  loc(\"std/nn.attn\":12:5)\n\
              %4 = fused \"matmul\"(%a = %2, %b = %1) : f32[S, 64] loc(1:2) {\n    yield %0 // nothing\n  }\n\
              br_if %7, ^bb1(%5, 0), ^bb2\n}\n}\n\
            %5, %6 = run (%r<=64, 64), axes=[1, _] : tile f32[%r<=64, 64] @l1(0), f32";
        let lines = parse(text).unwrap();
        assert_eq!(lines.len(), 2);
        let Line::Statement(module) = &lines[0] else { panic!() };
        assert_eq!(module.head, "module");
        assert_eq!(module.body.as_ref().unwrap().len(), 2);
        let Line::Statement(run) = &lines[1] else { panic!() };
        assert_eq!((run.results.len(), run.args.len(), run.types.len()), (2, 2, 2));
        assert_eq!(run.types[0].terms.len(), 3);
        assert_eq!((run.place.line, run.place.column), (12, 1));
    }

    #[test]
    fn dimensions_read_back() {
        for text in [
            "3*D",
            "D/H",
            "S+1",
            "(S+1)/2",
            "S-1",
            "-3",
            "D/(2*H)",
            "S*S",
            "0",
            "((S)/(D+H))",
            "floor_div(S, 2)",
            "ceil_div(S, P)",
            "(S % 2)+1",
            "D*min(S, T, U)",
            "D*max(S, T+1)",
        ] {
            let s = statement(&format!("x a={text}"));
            let (_, v) = named(&s.args[0]).unwrap();
            assert_eq!(dim(&v[0]).unwrap().to_string(), text);
        }
        let s = statement("x (S <= 4, (D) % (H) == 0)");
        let ExprKind::Paren(items) = &s.args[0].terms[0].kind else { panic!() };
        assert_eq!(fact(&items[0].terms[0]).unwrap().to_string(), "S <= 4");
        assert_eq!(fact(&items[1].terms[0]).unwrap().to_string(), "(D) % (H) == 0");
    }

    #[test]
    fn bad_texts_give_errors() {
        for text in [
            "%",
            "x (",
            "x )",
            "x \"abc",
            "x 1e999",
            "x : : y",
            "^b",
            "x = y",
            "%1 = ",
            "a }",
            "x loc(1)",
            "x loc(1:2, 3:4)",
            "x loc(1:2, part)",
            "x loc(1:2, part 3:4,)",
            "x \"\\q\"",
            "x \"a\\u{0}\"",
            "x \"a\0b\"",
            "x - - 1",
            "x 99999999999999999999999999999999999999999",
            "é",
            "x a=b=c",
            "\0",
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.place.line == 1 && e.place.column >= 1, "{text}: {e}");
        }
        let deep = "(".repeat(10_000);
        assert!(parse(&format!("x {deep}")).unwrap_err().message.contains("nested"));
        let long = format!("x a={}1", "1+".repeat(100_000));
        assert!(parse(&long).is_ok());
        let many = format!("x a={}1", "(A+B)*".repeat(2_000));
        let s = statement(&many);
        assert!(dim(&named(&s.args[0]).unwrap().1[0]).is_err());
    }

    #[test]
    fn strings_and_floats_read_back() {
        for text in ["a\"b\\c\nd\u{7}é", ""] {
            let s = statement(&format!("x {}", super::super::quoted(text)));
            assert_eq!(super::text(&s.args[0].terms[0]).unwrap(), text);
        }
        for x in [0.125, 1e-5, 1e300, -0.0, f64::INFINITY, f64::NEG_INFINITY, 0.1, 3.0, f64::MIN_POSITIVE] {
            let s = statement(&format!("x a={}", super::super::float_text(x)));
            match literal(&named(&s.args[0]).unwrap().1[0]) {
                Some(Literal::Float(y)) => assert_eq!(x.to_bits(), y.to_bits()),
                other => panic!("{x}: {other:?}"),
            }
        }
    }
}
