//! Dimension expressions and `where` clauses: from syntax to [`Dim`] and [`Fact`].
//!
//! In: expressions that stand where a dimension is meant, and the names in scope there. Out: canonical dimensions, with
//! every division proved by a fact. A dimension that cannot be had is reported once and then missing (`None`), which
//! everything built on it takes as "say no more".

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostics::codes::{dimensions as codes, names};
use crate::diagnostics::{Diagnostic, Diagnostics, did_you_mean};
use crate::shape::{Dim, Fact, Facts, Relation};
use crate::source::Span;
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Ident, UnaryOp};

/// Where a dimension got its meaning.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The place where it is named first.
    pub(super) span: Span,
    /// Its value, if it is a generic with a default.
    pub(super) value: Option<i64>,
    /// What to say beside the place.
    pub(super) text: String,
    /// Is it bound by the arguments of a call? Else it is a generic.
    pub(super) from_argument: bool,
}

/// The dimension names known at one place of a program, and the facts about them.
#[derive(Clone, Debug, Default)]
pub(super) struct DimScope {
    /// Every dimension by name.
    pub(super) names: BTreeMap<String, Origin>,
    /// Generic constants, which are not dimensions.
    pub(super) constants: Vec<String>,
    /// What is known about them.
    pub(super) facts: Facts,
    /// Names that a fact `N == ..` replaces: each is written as the other side in every shape.
    pub(super) aliases: BTreeMap<Arc<str>, Dim>,
}

impl DimScope {
    /// The dimension with names replaced by what facts say they equal.
    pub(super) fn canonical(&self, dim: Dim) -> Dim {
        if self.aliases.is_empty() {
            return dim;
        }
        dim.substitute(&|name| self.aliases.get(name).cloned()).unwrap_or(dim)
    }

    /// Learns a fact.
    pub(super) fn assume(&mut self, fact: Fact) {
        if fact.relation == Relation::Eq {
            let free_of = |dim: &Dim, name: &str| dim.symbols().iter().all(|s| &**s != name);
            let (left, right) = (self.canonical(fact.left.clone()), self.canonical(fact.right.clone()));
            let sides = [(&right, &left), (&left, &right)];
            // A dimension of the arguments gives way to a generic; else the one that stands later to the earlier one.
            let of_argument = |name: &str| self.names.get(name).is_some_and(|origin| origin.from_argument);
            let candidates = || {
                sides
                    .iter()
                    .filter_map(|(from, to)| from.as_symbol().filter(|name| free_of(to, name)).map(|name| (name, *to)))
            };
            let chosen = candidates().find(|(name, _)| of_argument(name)).or_else(|| candidates().next());
            let alias = chosen.map(|(name, dim)| (Arc::<str>::from(name), dim.clone()));
            if let Some((name, dim)) = alias {
                let replaced: Vec<(Arc<str>, Dim)> = self
                    .aliases
                    .iter()
                    .map(|(key, old)| {
                        let new = old.substitute(&|s| (*s == *name).then(|| dim.clone()));
                        (key.clone(), new.unwrap_or_else(|| old.clone()))
                    })
                    .collect();
                self.aliases.extend(replaced);
                self.aliases.insert(name, dim);
            }
        }
        self.facts.known.push(fact);
    }

    /// `D (768)`, `S (symbolic)`, `D/H (64)`: a dimension as messages show it.
    pub(super) fn describe(&self, dim: &Dim) -> String {
        if dim.is_const() {
            return dim.to_string();
        }
        match dim.eval(&|name| self.names.get(name).and_then(|origin| origin.value)) {
            Ok(value) => format!("{dim} ({value})"),
            Err(_) if dim.as_symbol().is_some_and(|name| self.names.get(name).is_some_and(|o| o.from_argument)) => {
                format!("{dim} (symbolic)")
            }
            Err(_) => dim.to_string(),
        }
    }

    /// Two dimensions that are not the same, in words.
    pub(super) fn differ(&self, a: &Dim, b: &Dim) -> String {
        let value = |dim: &Dim| dim.eval(&|name| self.names.get(name).and_then(|origin| origin.value)).ok();
        match (value(a), value(b)) {
            (Some(x), Some(y)) if x == y && a.is_const() != b.is_const() => {
                let (name, number) = if a.is_const() { (b, a) } else { (a, b) };
                format!("{name} is {number} only by default, and may be bound to another number")
            }
            (Some(x), Some(y)) if x == y => format!("{a} and {b} are both {x}, but only by default"),
            _ => format!("{} is not {}", self.describe(a), self.describe(b)),
        }
    }

    /// Adds a label for each name in `dims` at the place where it got its meaning, each place once, three at most.
    pub(super) fn label_origins<'a>(
        &self,
        mut diagnostic: Diagnostic,
        dims: impl IntoIterator<Item = &'a Dim>,
    ) -> Diagnostic {
        let mut seen: Vec<Span> = diagnostic.primary.iter().map(|label| label.span).collect();
        let mut left = 3;
        for dim in dims {
            for name in dim.symbols() {
                if let Some(origin) = self.names.get(&*name)
                    && !seen.contains(&origin.span)
                    && left > 0
                {
                    seen.push(origin.span);
                    left -= 1;
                    diagnostic = diagnostic.also(origin.span, origin.text.clone());
                }
            }
        }
        diagnostic
    }

    /// Every known name, for suggestions.
    pub(super) fn known(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// The message for a name that is no dimension here.
    pub(super) fn unknown(&self, name: &Ident) -> Diagnostic {
        let mut diagnostic = if self.constants.contains(&name.name) {
            Diagnostic::error(codes::NOT_A_DIMENSION, format!("`{}` is a constant, not a dimension", name.name))
                .at(name.span, "expected a dimension")
        } else {
            Diagnostic::error(names::UNKNOWN_DIMENSION, format!("there is no dimension `{}` here", name.name))
                .at(name.span, "not found")
        };
        if let Some(near) = did_you_mean(&name.name, self.known()) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        } else if !self.names.is_empty() {
            let list: Vec<String> = self.known().map(|name| format!("`{name}`")).collect();
            diagnostic = diagnostic.note(format!("the dimensions in scope are {}", list.join(", ")));
        }
        diagnostic
    }

    /// Reads a dimension expression.
    pub(super) fn dim(&self, expr: &Expr, diagnostics: &mut Diagnostics) -> Option<Dim> {
        self.dim_with(expr, &|_| None, diagnostics)
    }

    /// Reads a dimension expression in which other names may stand for dimensions too.
    pub(super) fn dim_with(
        &self,
        expr: &Expr,
        locals: &dyn Fn(&str) -> Option<Dim>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Dim> {
        let dim = match &expr.kind {
            ExprKind::Int(n) => match i64::try_from(*n) {
                Ok(n) => Dim::from(n),
                Err(_) => {
                    diagnostics.push(
                        Diagnostic::error(codes::NOT_A_DIMENSION, "the number is too large for a dimension")
                            .at(expr.span, "dimensions are at most 2^63 - 1"),
                    );
                    return None;
                }
            },
            ExprKind::Name(name) if self.names.contains_key(&name.name) => Dim::symbol(&name.name),
            ExprKind::Name(name) => match locals(&name.name) {
                Some(dim) => dim,
                None => {
                    diagnostics.push(self.unknown(name));
                    return None;
                }
            },
            ExprKind::Unary { op: UnaryOp::Neg, operand, .. } => self.dim_with(operand, locals, diagnostics)?.neg(),
            ExprKind::Unary { op: UnaryOp::Plus, operand, .. } => self.dim_with(operand, locals, diagnostics)?,
            ExprKind::Binary { op, op_span, left, right } => {
                let a = self.dim_with(left, locals, diagnostics);
                let b = self.dim_with(right, locals, diagnostics);
                let (a, b) = (a?, b?);
                match op {
                    BinaryOp::Add => a.add(&b),
                    BinaryOp::Sub => a.sub(&b),
                    BinaryOp::Mul => a.mul(&b),
                    BinaryOp::Div => self.divide(&a, &b, expr.span, *op_span, diagnostics)?,
                    _ => {
                        diagnostics.push(not_a_dimension(expr).note("dimension expressions use `+ - * /`"));
                        return None;
                    }
                }
            }
            ExprKind::Error => return None,
            _ => {
                diagnostics.push(not_a_dimension(expr));
                return None;
            }
        };
        let dim = self.canonical(dim);
        if dim.is_too_long() {
            diagnostics.push(too_long(expr.span));
            return None;
        }
        Some(dim)
    }

    /// `a / b`, if it is an integer by the facts.
    pub(super) fn divide(
        &self,
        a: &Dim,
        b: &Dim,
        span: Span,
        op_span: Span,
        diagnostics: &mut Diagnostics,
    ) -> Option<Dim> {
        if b.terms().next().is_none() {
            diagnostics.push(
                Diagnostic::error(codes::DIVISION_BY_ZERO, format!("`{a} / {b}` divides by zero")).at(op_span, ""),
            );
            return None;
        }
        if self.facts.divides(a, b) {
            return a.div(b);
        }
        let constant = a.is_const() && b.is_const();
        let (what, why) = if constant {
            ("is not an integer", "the division leaves a remainder")
        } else {
            ("may not be an integer", "it is not known that the division is exact")
        };
        let message = format!("`{}` {what}", quotient(a, b));
        let diagnostic = Diagnostic::error(codes::NOT_DIVISIBLE, message).at(span, why);
        let diagnostic = if constant {
            diagnostic.help(format!("for a float, write `{a}.0 / {b}`"))
        } else {
            diagnostic.help(format!("state it: `where {} == 0`", remainder(a, b)))
        };
        diagnostics.push(self.label_origins(diagnostic, [a, b]));
        None
    }

    /// Reads one condition of a `where` clause. One that cannot be read is reported and omitted.
    pub(super) fn fact(&self, clause: &Expr, out: &mut Vec<(Fact, Span)>, diagnostics: &mut Diagnostics) {
        let ExprKind::Binary { op, left, right, .. } = &clause.kind else {
            if clause.kind != ExprKind::Error {
                diagnostics.push(bad_clause(clause.span));
            }
            return;
        };
        if !op.is_comparison() {
            diagnostics.push(bad_clause(clause.span));
            return;
        }
        // `a % b == 0`
        for (side, zero) in [(left, right), (right, left)] {
            let ExprKind::Binary { op: BinaryOp::Rem, left: a, right: b, .. } = &side.kind else { continue };
            if *op != BinaryOp::Eq || zero.kind != ExprKind::Int(0) {
                diagnostics.push(bad_clause(clause.span));
                return;
            }
            let (a, b) = (self.dim(a, diagnostics), self.dim(b, diagnostics));
            if let (Some(left), Some(right)) = (a, b) {
                out.push((Fact { left, relation: Relation::Divisible, right }, clause.span));
            }
            return;
        }
        let (a, b) = (self.dim(left, diagnostics), self.dim(right, diagnostics));
        let (Some(a), Some(b)) = (a, b) else { return };
        let (left, relation, right) = match op {
            BinaryOp::Eq => (a, Relation::Eq, b),
            BinaryOp::Ne => (a, Relation::Ne, b),
            BinaryOp::Le => (a, Relation::Le, b),
            BinaryOp::Lt => (a, Relation::Lt, b),
            BinaryOp::Ge => (b, Relation::Le, a),
            _ => (b, Relation::Lt, a),
        };
        out.push((Fact { left, relation, right }, clause.span));
    }

    /// Is the fact certain here (`Some(true)`), impossible (`Some(false)`), or to be decided later?
    pub(super) fn decide(&self, fact: &Fact) -> Option<bool> {
        if let Some(decided) = fact.decide() {
            return Some(decided);
        }
        let (left, right) = (self.canonical(fact.left.clone()), self.canonical(fact.right.clone()));
        let plus_one = |dim: &Dim| dim.add(&Dim::one());
        let stated = self.facts.known.iter().any(|known| known == fact);
        let proved = stated
            || match fact.relation {
                Relation::Eq => left == right,
                Relation::Ne => {
                    self.facts.at_most(&plus_one(&left), &right) || self.facts.at_most(&plus_one(&right), &left)
                }
                Relation::Le => self.facts.at_most(&left, &right),
                Relation::Lt => self.facts.at_most(&plus_one(&left), &right),
                Relation::Divisible => self.facts.divides(&left, &right),
            };
        if proved {
            return Some(true);
        }
        let refuted = match fact.relation {
            Relation::Eq => {
                self.facts.at_most(&plus_one(&left), &right) || self.facts.at_most(&plus_one(&right), &left)
            }
            Relation::Ne => left == right,
            Relation::Le => self.facts.at_most(&plus_one(&right), &left),
            Relation::Lt => self.facts.at_most(&right, &left),
            Relation::Divisible => false,
        };
        refuted.then_some(false)
    }
}

/// `D / H`, with parentheses where they are needed.
fn quotient(a: &Dim, b: &Dim) -> String {
    format!("{} / {}", grouped(a), grouped(b))
}

/// `D % H`, with parentheses where they are needed.
pub(super) fn remainder(a: &Dim, b: &Dim) -> String {
    format!("{} % {}", grouped(a), grouped(b))
}

fn grouped(dim: &Dim) -> String {
    let text = dim.to_string();
    if text.chars().all(|c| c.is_alphanumeric() || c == '_') { text } else { format!("({text})") }
}

/// A fact as an author writes it.
pub(super) fn show_fact(fact: &Fact) -> String {
    match fact.relation {
        Relation::Divisible => format!("{} == 0", remainder(&fact.left, &fact.right)),
        Relation::Eq | Relation::Ne | Relation::Le | Relation::Lt => fact.to_string(),
    }
}

fn not_a_dimension(expr: &Expr) -> Diagnostic {
    let what = match &expr.kind {
        ExprKind::Float(_) | ExprKind::Inf => "a float is not a dimension",
        ExprKind::Call { .. } => "a call is not a dimension",
        _ => "this is not a dimension",
    };
    Diagnostic::error(codes::NOT_A_DIMENSION, what).at(expr.span, "expected a name, an integer, or a formula of these")
}

/// The message for a formula that is not kept.
pub(super) fn too_long(span: Span) -> Diagnostic {
    Diagnostic::error(codes::TOO_LONG, "the dimension formula is too long").at(span, "too long when multiplied out")
}

fn bad_clause(span: Span) -> Diagnostic {
    Diagnostic::error(codes::WHERE_FORM, "a `where` clause compares dimensions")
        .at(span, "not a comparison")
        .help("write `D % H == 0`, or two dimension expressions with `==`, `!=`, `<`, `<=`, `>` or `>=` between them")
}
