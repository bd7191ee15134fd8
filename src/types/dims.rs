//! Dimension expressions and `where` clauses: from syntax to [`Dim`] and [`Fact`].
//!
//! In: expressions that are expected to be dimensions, and the names in scope. Out: canonical
//! dimensions, with every division proved by a fact. An invalid dimension is reported once and then
//! missing (`None`), which suppresses further errors.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostics::codes::{dimensions as codes, names, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics, NameKind, did_you_mean};
use crate::shape::{Dim, Elem, Fact, Facts, Relation};
use crate::source::Span;
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Ident, UnaryOp};

/// Where a dimension was declared or bound.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The location where it is first mentioned.
    pub(super) span: Span,
    /// Its value, if it is a generic with a default.
    pub(super) value: Option<i64>,
    /// The text next to the location.
    pub(super) text: String,
    /// Is it bound by the arguments of a call? Else it is a generic.
    pub(super) from_argument: bool,
}

/// The dimensions in scope at one point of a program, and the facts about them.
#[derive(Clone, Debug, Default)]
pub(super) struct DimScope {
    /// Every dimension by name.
    pub(super) names: BTreeMap<String, Origin>,
    /// Generic constants, which are not dimensions.
    pub(super) constants: Vec<String>,
    /// Generic element types, with the type that each stands for.
    pub(super) elems: BTreeMap<String, Elem>,
    /// The names of all generics in their declarations.
    pub(super) declared: BTreeMap<String, Span>,
    /// The facts in force.
    pub(super) facts: Facts,
    /// Names that an equality `N == ..` eliminates: every shape contains the other side instead.
    pub(super) aliases: BTreeMap<Arc<str>, Dim>,
}

impl DimScope {
    /// Replaces names that equalities eliminate.
    pub(super) fn canonical(&self, dim: Dim) -> Dim {
        if self.aliases.is_empty() {
            return dim;
        }
        dim.substitute(&|name| self.aliases.get(name).cloned()).unwrap_or(dim)
    }

    /// Which of the names are eliminated by equalities, and their replacements.
    pub(super) fn equal<'a>(&self, names: impl Iterator<Item = &'a str>) -> BTreeMap<String, Dim> {
        names.filter_map(|name| Some((name.to_string(), self.aliases.get(name)?.clone()))).collect()
    }

    /// Replaces names that equalities eliminate in a fact.
    fn canonical_fact(&self, fact: &Fact) -> Fact {
        if self.aliases.is_empty() {
            return fact.clone();
        }
        fact.substitute(&|name| self.aliases.get(name).cloned()).unwrap_or_else(|| fact.clone())
    }

    /// Adds a fact. An equality eliminates a name everywhere, including in known facts; returns the
    /// conditions on its replacement.
    pub(super) fn assume(&mut self, fact: &Fact) -> Vec<Fact> {
        let fact = self.canonical_fact(fact);
        let mut implied = Vec::new();
        if let Some((name, dim)) = self.solved(&fact) {
            let with = |d: &Dim| d.substitute(&|s| (*s == *name).then(|| dim.clone())).unwrap_or_else(|| d.clone());
            self.aliases.values_mut().for_each(|old| *old = with(old));
            for known in &mut self.facts.known {
                (known.left, known.right) = (with(&known.left), with(&known.right));
            }
            // The name is a non-negative integer, so its replacement must be one too.
            let (whole, divisor) = dim.as_quotient();
            if divisor != Dim::one() {
                implied.push(Fact { left: whole, relation: Relation::Divisible, right: divisor });
            }
            if !dim.is_provably_nonnegative() {
                implied.push(Fact { left: Dim::zero(), relation: Relation::Le, right: dim.clone() });
            }
            self.facts.known.extend(implied.clone());
            self.aliases.insert(name, dim);
        } else {
            self.facts.known.push(fact);
        }
        implied
    }

    /// The name that an equality determines, and its value: `A` is `3*B/2` if `2*A == 3*B`.
    ///
    /// Prefers a name that stands alone, then one with a numeric coefficient, then one in a
    /// product; among equals, a name bound by arguments over a generic, and the name that was
    /// mentioned later.
    fn solved(&self, fact: &Fact) -> Option<(Arc<str>, Dim)> {
        if fact.relation != Relation::Eq {
            return None;
        }
        let of_argument = |name: &str| self.names.get(name).is_some_and(|origin| origin.from_argument);
        let free_of = |dim: &Dim, name: &str| dim.symbols().iter().all(|s| &**s != name);
        // As written: `A == B` eliminates the name on the right, unless only the one on the left is
        // bound by an argument.
        let sides = [(&fact.right, &fact.left), (&fact.left, &fact.right)];
        let alone = || {
            let names = sides.iter().filter_map(|(from, to)| Some((from.as_symbol()?, *to)));
            names.filter(|(name, to)| free_of(to, name))
        };
        if let Some((name, dim)) = alone().find(|(name, _)| of_argument(name)).or_else(|| alone().next()) {
            return Some((name.into(), dim.clone()));
        }
        let difference = fact.left.sub(&fact.right);
        let mut found = Vec::new();
        for name in difference.symbols() {
            let Some((factor, rest)) = difference.linear_in(&name) else { continue };
            let Some(dim) = rest.neg().div(&factor).filter(|dim| free_of(dim, &name) && !dim.is_too_long()) else {
                continue;
            };
            let rank = match factor.as_const() {
                Some(1 | -1) => 0,
                Some(_) => 1,
                None => 2,
            };
            let place = self.names.get(&*name).map_or(0, |origin| origin.span.start);
            found.push(((rank, !of_argument(&name), std::cmp::Reverse(place)), name, dim));
        }
        found.into_iter().min_by(|(a, ..), (b, ..)| a.cmp(b)).map(|(_, name, dim)| (name, dim))
    }

    /// `D (768)`, `S (symbolic)`, `D/H (64)`: the description of a dimension in messages.
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

    /// Describes two dimensions that differ.
    pub(super) fn differ(&self, a: &Dim, b: &Dim) -> String {
        self.by_default(a, b).unwrap_or_else(|| format!("{} is not {}", self.describe(a), self.describe(b)))
    }

    /// Explains in a message about two differing dimensions why their values are equal, if they
    /// are.
    pub(super) fn differing(&self, diagnostic: Diagnostic, a: &Dim, b: &Dim) -> Diagnostic {
        match self.by_default(a, b) {
            Some(why) => diagnostic.note(why),
            None => diagnostic,
        }
    }

    /// Why two dimensions with the same value differ.
    fn by_default(&self, a: &Dim, b: &Dim) -> Option<String> {
        let value = |dim: &Dim| dim.eval(&|name| self.names.get(name).and_then(|origin| origin.value)).ok();
        let (x, y) = (value(a)?, value(b)?);
        if x != y {
            return None;
        }
        if a.is_const() == b.is_const() {
            return Some(format!("{a} and {b} are both {x}, but only by default"));
        }
        let (name, number) = if a.is_const() { (b, a) } else { (a, b) };
        Some(format!("{name} is {number} only by default, and may be bound to another number"))
    }

    /// Adds a label at the origin of each name in `dims`, without duplicates, at most three.
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

    /// The generic element type that an expression refers to.
    pub(super) fn elem_of(&self, expr: &Expr) -> Option<Elem> {
        match &expr.kind {
            ExprKind::Name(name) => self.elems.get(&name.name).copied(),
            _ => None,
        }
    }

    /// Records that a name refers to a dimension or generic in scope, if it does.
    pub(super) fn refer(&self, name: &Ident, diagnostics: &mut Diagnostics) {
        let declared = self.declared.get(&name.name).copied();
        if let Some(declared) = declared.or_else(|| Some(self.names.get(&name.name)?.span)) {
            diagnostics.refer(name.span, declared, NameKind::Generic);
        }
    }

    /// The message for a name that is not an element type here.
    pub(super) fn unknown_elem(&self, name: &Ident) -> Diagnostic {
        let message = format!("there is no element type `{}` here", name.name);
        let diagnostic = Diagnostic::error(names::UNKNOWN_ELEM, message).at(name.span, "not found");
        let known = self.elems.keys().map(String::as_str).chain(Elem::ALL.map(Elem::name));
        match did_you_mean(&name.name, known) {
            Some(near) => diagnostic.near(name.span, near),
            None if self.elems.is_empty() => {
                diagnostic.help("the layer may have one: `layer Linear<I, O, E = f32>` with `weight: E[O, I]`")
            }
            None => {
                let list: Vec<String> = self.elems.keys().map(|name| format!("`{name}`")).collect();
                diagnostic.note(format!("the generic element types in scope are {}", list.join(", ")))
            }
        }
    }

    /// The message for a name that is not a dimension here.
    pub(super) fn unknown(&self, name: &Ident) -> Diagnostic {
        let mut diagnostic = if self.constants.contains(&name.name) {
            Diagnostic::error(codes::NOT_A_DIMENSION, format!("`{}` is a constant, not a dimension", name.name))
                .at(name.span, "expected a dimension")
        } else if self.elems.contains_key(&name.name) {
            Diagnostic::error(codes::NOT_A_DIMENSION, format!("`{}` is an element type, not a dimension", name.name))
                .at(name.span, "expected a dimension")
        } else {
            Diagnostic::error(names::UNKNOWN_DIMENSION, format!("there is no dimension `{}` here", name.name))
                .at(name.span, "not found")
        };
        if let Some(near) = did_you_mean(&name.name, self.known()) {
            diagnostic = diagnostic.near(name.span, near);
        } else if !self.names.is_empty() {
            let list: Vec<String> = self.known().map(|name| format!("`{name}`")).collect();
            diagnostic = diagnostic.note(format!("the dimensions in scope are {}", list.join(", ")));
        }
        diagnostic
    }

    /// Converts a dimension expression.
    pub(super) fn dim(&self, expr: &Expr, diagnostics: &mut Diagnostics) -> Option<Dim> {
        self.dim_with(expr, &|_| None, diagnostics)
    }

    /// Converts a dimension expression that may contain additional names of dimensions.
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
            ExprKind::Name(name) if self.names.contains_key(&name.name) => {
                self.refer(name, diagnostics);
                Dim::symbol(&name.name)
            }
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
                    BinaryOp::Rem => self.rounded("%", &a, &b, *op_span, diagnostics)?,
                    _ => {
                        diagnostics.push(not_a_dimension(expr).note("dimension expressions use `+ - * / %`"));
                        return None;
                    }
                }
            }
            ExprKind::Call { callee, generics, args }
                if generics.is_empty() && callee_name(callee).is_some_and(|name| FUNCTIONS.contains(&name)) =>
            {
                let what = callee_name(callee).unwrap_or_default();
                let given: Vec<Option<Dim>> =
                    args.iter().map(|arg| self.dim_with(&arg.value, locals, diagnostics)).collect();
                let given = given.into_iter().collect::<Option<Vec<Dim>>>()?;
                self.function(what, &given, expr.span, diagnostics)?
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

    /// `floor_div(a, b)`, `ceil_div(a, b)`, `min(a, b, ..)`, `max(a, b, ..)`
    pub(super) fn function(&self, what: &str, given: &[Dim], span: Span, diagnostics: &mut Diagnostics) -> Option<Dim> {
        match (what, given) {
            ("floor_div" | "ceil_div", [a, b]) => self.rounded(what, a, b, span, diagnostics),
            ("min" | "max", [first, rest @ ..]) if !rest.is_empty() => {
                let join = |a: Dim, b: &Dim| if what == "min" { a.min_with(b) } else { a.max_with(b) };
                Some(rest.iter().fold(first.clone(), join))
            }
            _ => {
                let takes = if matches!(what, "min" | "max") { "two dimensions or more" } else { "two dimensions" };
                diagnostics.push(
                    Diagnostic::error(shapes::ARGUMENT_COUNT, format!("`{what}` takes {takes}, found {}", given.len()))
                        .at(span, format!("write `{what}(S, 2)`")),
                );
                None
            }
        }
    }

    /// A rounded division, or its remainder. A divisor that is not a number is checked on entry to
    /// be at least 1.
    pub(super) fn rounded(
        &self,
        what: &str,
        a: &Dim,
        b: &Dim,
        span: Span,
        diagnostics: &mut Diagnostics,
    ) -> Option<Dim> {
        let found = match what {
            "floor_div" => a.floor_div(b),
            "ceil_div" => a.ceil_div(b),
            _ => a.rem(b),
        };
        if found.is_none() {
            let shown =
                if what == "%" { format!("{} % {}", grouped(a), grouped(b)) } else { format!("{what}({a}, {b})") };
            diagnostics.push(
                Diagnostic::error(codes::DIVISION_BY_ZERO, format!("the divisor of `{shown}` is not positive"))
                    .at(span, "the divisor must be at least 1"),
            );
        }
        found
    }

    /// Adds advice for a division `a / b` that is not known to be exact.
    pub(super) fn help_divide(&self, diagnostic: Diagnostic, a: &Dim, b: &Dim) -> Diagnostic {
        let fact = Fact { left: a.clone(), relation: Relation::Divisible, right: b.clone() };
        if self.facts.never_divides(a, b) {
            return diagnostic.note("this division always leaves a remainder");
        }
        let mut with = self.facts.clone();
        with.known.push(fact.clone());
        if with.are_contradictory() {
            return diagnostic.note("this division always leaves a remainder");
        }
        let text = fact.as_written();
        let names = a.symbols().into_iter().chain(b.symbols());
        let last = names.filter_map(|name| self.names.get(&*name)).map(|origin| origin.span).max();
        let diagnostic = diagnostic.help(format!("state it: `where {text}`"));
        Diagnostic { missing: last.map(|last| (text, last)), ..diagnostic }
    }

    /// `a / b`, if the facts prove it to be an integer.
    pub(super) fn divide(
        &self,
        a: &Dim,
        b: &Dim,
        span: Span,
        op_span: Span,
        diagnostics: &mut Diagnostics,
    ) -> Option<Dim> {
        if *b == Dim::zero() {
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
            self.help_divide(diagnostic, a, b).help(format!("or round: `floor_div({a}, {b})`, `ceil_div({a}, {b})`"))
        };
        diagnostics.push(self.label_origins(diagnostic, [a, b]));
        None
    }

    /// Converts one condition of a `where` clause. An invalid one is reported and omitted.
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
        // `a % b == r`
        for (side, rest) in [(left, right), (right, left)] {
            let ExprKind::Binary { op: BinaryOp::Rem, op_span, left: a, right: b } = &side.kind else { continue };
            if *op != BinaryOp::Eq {
                break;
            }
            let given = [a, b, rest].map(|side| self.dim(side, diagnostics));
            let [Some(a), Some(b), Some(rest)] = given else { return };
            if rest == Dim::zero() {
                out.push((Fact { left: a, relation: Relation::Divisible, right: b }, clause.span));
                return;
            }
            if self.rounded("%", &a, &b, *op_span, diagnostics).is_none() {
                return;
            }
            // The remainder is at least 0 and less than the divisor.
            let (zero, limits) = (Dim::zero(), b.sub(&rest).sub(&Dim::one()));
            if !limits.is_provably_nonnegative() {
                out.push((Fact { left: rest.clone(), relation: Relation::Lt, right: b.clone() }, clause.span));
            }
            if !rest.is_provably_nonnegative() {
                out.push((Fact { left: zero, relation: Relation::Le, right: rest.clone() }, clause.span));
            }
            out.push((Fact { left: a.sub(&rest), relation: Relation::Divisible, right: b }, clause.span));
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

    /// Is the fact certain here (`Some(true)`), impossible (`Some(false)`), or undecided?
    pub(super) fn decide(&self, fact: &Fact) -> Option<bool> {
        if let Some(decided) = fact.decide() {
            return Some(decided);
        }
        let fact = &self.canonical_fact(fact);
        if let Some(decided) = fact.decide() {
            return Some(decided);
        }
        // Two dimensions that are too long are not known to be equal, even if they look alike.
        if fact.is_too_long() {
            return None;
        }
        let (left, right) = (fact.left.clone(), fact.right.clone());
        let plus_one = |dim: &Dim| dim.add(&Dim::one());
        let stated = self.facts.known.iter().any(|known| known == fact);
        let proved = stated
            || match fact.relation {
                Relation::Eq => left == right || self.facts.at_most(&left, &right) && self.facts.at_most(&right, &left),
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
            Relation::Divisible => self.facts.never_divides(&left, &right),
        };
        refuted.then_some(false)
    }
}

/// `D / H`, with parentheses as needed.
fn quotient(a: &Dim, b: &Dim) -> String {
    format!("{} / {}", grouped(a), grouped(b))
}

fn grouped(dim: &Dim) -> String {
    let text = dim.to_string();
    if text.chars().all(|c| c.is_alphanumeric() || c == '_') { text } else { format!("({text})") }
}

/// The functions of dimensions.
pub(super) const FUNCTIONS: [&str; 4] = ["floor_div", "ceil_div", "min", "max"];

/// The bare name of the callee.
fn callee_name(callee: &Expr) -> Option<&str> {
    match &callee.kind {
        ExprKind::Name(name) => Some(&name.name),
        _ => None,
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

/// The message for a formula beyond the limits.
pub(super) fn too_long(span: Span) -> Diagnostic {
    Diagnostic::error(codes::TOO_LONG, "the dimension formula is too long").at(span, "too long when multiplied out")
}

fn bad_clause(span: Span) -> Diagnostic {
    Diagnostic::error(codes::WHERE_FORM, "a `where` clause compares dimensions")
        .at(span, "not a comparison")
        .help("write `D % H == 0`, `D % 2 == 1`, or two dimension expressions with `==`, `!=`, `<`, `<=`, `>` or `>=` between them")
}
