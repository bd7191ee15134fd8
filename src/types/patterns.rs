//! `rearrange` and `einsum`: matches their patterns with the shapes of their operands.
//!
//! In: a pattern as text and the operands. Out: the typed operation, with the length of every name
//! in the pattern. A length that is not given is the quotient of the axis by the others, which a
//! fact must prove to be an integer.

use std::collections::BTreeMap;

use super::axes::{Axis, Shape};
use super::body::Body;
use super::pattern::{self, Atom, Item};
use super::typed::{ExprKind, Tensor};
use super::values::TypedExpr;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::{names, shapes};
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    /// The string literal of a pattern.
    fn pattern_text<'e>(&mut self, expr: &'e ast::Expr) -> Option<&'e str> {
        match &expr.kind {
            ast::ExprKind::Str(text) => Some(text),
            ast::ExprKind::Error => None,
            _ => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::CONSTANT_ARGUMENT, "the pattern must be a string")
                        .at(expr.span, "write it in quotes"),
                );
                None
            }
        }
    }

    fn bad_pattern(&mut self, why: String, span: Span, reads: impl Fn(&str) -> bool) {
        let mut diagnostic = Diagnostic::error(shapes::PATTERN, format!("invalid pattern: {why}")).at(span, "");
        let shown = spaced(self.sources.text(span));
        let text = shown.trim_matches('"');
        if !self.sources.text(span).contains(' ') && reads(text) {
            diagnostic = diagnostic.help(format!("separate the names: write `{shown}`")).fix(span, shown);
        }
        self.diagnostics.push(diagnostic);
    }

    /// `rearrange(x, "s (n h d) -> n h s d", n = 3, h = H)`
    pub(super) fn rearrange(&mut self, params: &[&str], args: &[ast::Arg], span: Span) -> TypedExpr {
        let Some(slots) = self.slots("rearrange", params, 0, true, args, span) else { return TypedExpr::error(span) };
        let (Some(Some(x)), Some(Some(text))) = (slots.given.first(), slots.given.get(1)) else {
            return TypedExpr::error(span);
        };
        let x_span = x.value.span;
        let x = self.expr(&x.value);
        let pattern_span = text.value.span;
        let pattern = self.pattern_text(&text.value).map(pattern::rearrange);
        let mut sizes: BTreeMap<String, (Dim, Span)> = BTreeMap::new();
        let mut fine = true;
        for arg in &slots.extra {
            let Some(name) = &arg.name else { continue };
            let known = match &pattern {
                Some(Ok(pattern)) => pattern::names(&pattern.left).any(|other| other == name.name),
                _ => true,
            };
            if !known {
                self.diagnostics.push(
                    Diagnostic::error(names::UNKNOWN_ARGUMENT, format!("the pattern has no `{}`", name.name))
                        .at(name.span, "not a name in the pattern")
                        .also(pattern_span, "the pattern"),
                );
                fine = false;
            }
            match self.dim_arg(&arg.value) {
                Some(dim) => {
                    if let Some((_, first)) = sizes.insert(name.name.clone(), (dim, arg.span)) {
                        self.diagnostics.push(
                            Diagnostic::error(
                                shapes::ARGUMENT_COUNT,
                                format!("the length of `{}` is given twice", name.name),
                            )
                            .at(arg.span, "given again")
                            .also(first, "first given here"),
                        );
                        fine = false;
                    }
                }
                None => fine = false,
            }
        }
        let pattern = match pattern {
            Some(Ok(pattern)) => pattern,
            Some(Err(why)) => {
                self.bad_pattern(why, pattern_span, |text| pattern::rearrange(text).is_ok());
                return TypedExpr::error(span);
            }
            None => return TypedExpr::error(span),
        };
        if !fine || x.ty.is_error() {
            return TypedExpr::error(span);
        }
        let Some(tensor) = x.as_tensor().cloned() else {
            let shown = x.ty.to_string();
            self.not_a_tensor(&shown, x_span);
            return TypedExpr::error(span);
        };
        let place = PatternSite { tensor: &tensor, span: x_span, pattern: pattern_span };
        let Some((pairs, rest)) = self.align(&pattern.left, &place) else { return TypedExpr::error(span) };
        let mut known: BTreeMap<String, Dim> = BTreeMap::new();
        for (item, dim) in pairs {
            if !self.lengths(item, &dim, &sizes, &mut known, &place) {
                return TypedExpr::error(span);
            }
        }
        let mut axes = Vec::new();
        for item in &pattern.right {
            match item {
                Item::Rest => axes.extend(rest.iter().cloned()),
                Item::Axis(atoms) => {
                    let dim = atoms.iter().fold(Dim::one(), |product, atom| match atom {
                        Atom::One => product,
                        Atom::Name(name) => known.get(name).map_or(product.clone(), |dim| product.mul(dim)),
                    });
                    axes.push(Axis::Dim(self.scope.canonical(dim)));
                }
            }
        }
        let kind = ExprKind::Rearrange { x: Box::new(x.expr), pattern, sizes: known };
        TypedExpr::tensor(kind, tensor.elem, Shape { axes }, span)
    }

    /// Pairs the entries of a side with the axes of a tensor; returns the axes that `..` stands
    /// for.
    fn align<'p>(&mut self, side: &'p [Item], place: &PatternSite<'_>) -> Option<Aligned<'p>> {
        let axes = &place.tensor.shape.axes;
        let at = side.iter().position(|item| *item == Item::Rest);
        let (front, back) = match at {
            None => (side.len(), 0),
            Some(at) => (at, side.len() - at - 1),
        };
        let fits = if at.is_some() { axes.len() >= front + back } else { axes.len() == front };
        let middle = axes.len().saturating_sub(back);
        let mut pairs = Vec::new();
        let mut hidden = false;
        if fits {
            let numbers = (0..front).map(|i| (i, i)).chain((0..back).map(|i| (side.len() - back + i, middle + i)));
            for (i, j) in numbers {
                match (side.get(i), axes.get(j)) {
                    (Some(item), Some(Axis::Dim(dim))) => pairs.push((item, dim.clone())),
                    _ => hidden = true,
                }
            }
        }
        if !fits || hidden {
            let text: Vec<String> = side.iter().map(Item::to_string).collect();
            let message = format!("the pattern `{}` does not match {}", text.join(" "), place.tensor.shape);
            let mut diagnostic = Diagnostic::error(shapes::PATTERN_RANK, message)
                .at(place.pattern, format!("{} entries on the left", side.len()))
                .also(place.span, place.tensor.to_string());
            let letters: usize = side.iter().map(|item| item.to_string().chars().count()).sum();
            let is_compact = side.iter().all(|item| matches!(item, Item::Axis(_)));
            if is_compact && side.len() < axes.len() && letters == axes.len() {
                let written = self.written(place.pattern);
                let shown = spaced(&written);
                diagnostic = diagnostic.help(format!("separate the names: write `{shown}`")).fix(place.pattern, shown);
            } else if place.tensor.shape.rest().is_some() {
                diagnostic = diagnostic.help("the tensor's `..` needs a `..` at the same position in the pattern");
            } else if at.is_none() && axes.len() > front {
                diagnostic = diagnostic.help("`..` in the pattern stands for all remaining axes");
            }
            self.diagnostics.push(diagnostic);
            return None;
        }
        Some((pairs, axes.get(front..middle).unwrap_or_default().to_vec()))
    }

    /// Infers the lengths of the names in one entry, whose axis has length `dim`.
    fn lengths(
        &mut self,
        item: &Item,
        dim: &Dim,
        sizes: &BTreeMap<String, (Dim, Span)>,
        known: &mut BTreeMap<String, Dim>,
        place: &PatternSite<'_>,
    ) -> bool {
        let Item::Axis(atoms) = item else { return true };
        let mut product = Dim::one();
        let mut open = Vec::new();
        let mut given = Vec::new();
        for atom in atoms {
            let Atom::Name(name) = atom else { continue };
            match sizes.get(name) {
                Some((size, span)) => {
                    product = product.mul(size);
                    known.insert(name.clone(), size.clone());
                    given.push(*span);
                }
                None => open.push(name.clone()),
            }
        }
        let product = self.scope.canonical(product);
        let scope = self.scope.clone();
        match open.as_slice() {
            [] if product == *dim => true,
            [] => {
                let mut diagnostic = Diagnostic::error(
                    shapes::PATTERN_SIZE,
                    format!(
                        "`{item}` has length {}, but the axis has {}",
                        scope.describe(&product),
                        scope.describe(dim)
                    ),
                )
                .at(place.pattern, "")
                .also(place.span, place.tensor.to_string());
                for span in given {
                    diagnostic = diagnostic.also(span, "given here");
                }
                let diagnostic = scope.label_origins(scope.differing(diagnostic, &product, dim), [dim]);
                self.diagnostics.push(diagnostic);
                false
            }
            [name] => {
                let quotient = if product == Dim::one() { Some(dim.clone()) } else { dim.div(&product) };
                match quotient {
                    Some(quotient) if product == Dim::one() || scope.facts.divides(dim, &product) => {
                        known.insert(name.clone(), scope.canonical(quotient));
                        true
                    }
                    _ => {
                        let mut diagnostic = Diagnostic::error(
                            shapes::PATTERN_SIZE,
                            format!("`{item}`: {dim} may not be a multiple of {product}, so `{name}` has no length"),
                        )
                        .at(place.pattern, "")
                        .also(place.span, place.tensor.to_string());
                        for span in given {
                            diagnostic = diagnostic.also(span, "given here");
                        }
                        if !product.is_const() || !dim.is_const() {
                            diagnostic = scope.help_divide(diagnostic, dim, &product);
                        }
                        let diagnostic = scope.label_origins(diagnostic, [dim, &product]);
                        self.diagnostics.push(diagnostic);
                        false
                    }
                }
            }
            many => {
                let list: Vec<String> = many.iter().map(|name| format!("`{name}`")).collect();
                let first = many.first().map_or("", String::as_str);
                self.diagnostics.push(
                    Diagnostic::error(
                        shapes::PATTERN_SIZE,
                        format!("`{item}`: the lengths of {} are not known", list.join(" and ")),
                    )
                    .at(place.pattern, "")
                    .also(place.span, place.tensor.to_string())
                    .help(format!("pass all but one: `{first} = ..`")),
                );
                false
            }
        }
    }

    /// `einsum("h s d, h t d -> h s t", q, k)`
    pub(super) fn einsum(&mut self, args: &[ast::Arg], span: Span) -> TypedExpr {
        if let Some(arg) = args.iter().find(|arg| arg.name.is_some()) {
            let name = arg.name.as_ref().map_or("", |name| name.name.as_str());
            self.arguments_alone(args);
            self.diagnostics.push(
                Diagnostic::error(names::UNKNOWN_ARGUMENT, format!("`einsum` has no argument `{name}`"))
                    .at(arg.span, "it takes a pattern and tensors"),
            );
            return TypedExpr::error(span);
        }
        let Some((first, operands)) = args.split_first() else {
            self.diagnostics
                .push(Diagnostic::error(shapes::ARGUMENT_COUNT, "`einsum` needs a pattern and tensors").at(span, ""));
            return TypedExpr::error(span);
        };
        let pattern = self.pattern_text(&first.value).map(pattern::einsum);
        let values: Vec<TypedExpr> = operands.iter().map(|arg| self.expr(&arg.value)).collect();
        let pattern = match pattern {
            Some(Ok(pattern)) => pattern,
            Some(Err(why)) => {
                self.bad_pattern(why, first.value.span, |text| pattern::einsum(text).is_ok());
                return TypedExpr::error(span);
            }
            None => return TypedExpr::error(span),
        };
        if values.iter().any(|value| value.ty.is_error()) {
            return TypedExpr::error(span);
        }
        if values.len() != pattern.inputs.len() {
            let message = format!("the pattern has {} operands, found {}", pattern.inputs.len(), values.len());
            self.diagnostics.push(Diagnostic::error(shapes::EINSUM, message).at(first.value.span, "the pattern"));
            return TypedExpr::error(span);
        }
        let mut sizes: BTreeMap<&str, (Dim, Span)> = BTreeMap::new();
        let mut rest = Shape::scalar();
        let mut elem = None;
        for (side, value) in pattern.inputs.iter().zip(&values) {
            let Some(tensor) = value.as_tensor() else {
                let shown = value.ty.to_string();
                self.not_a_tensor(&shown, value.span());
                return TypedExpr::error(span);
            };
            match elem {
                None => elem = Some((tensor.elem, value.span())),
                Some((other, _)) if other == tensor.elem => {}
                Some((other, at)) => {
                    self.diagnostics.push(
                        Diagnostic::error(
                            shapes::ELEM_MISMATCH,
                            format!("`einsum` needs equal element types: {other} and {}", tensor.elem),
                        )
                        .at(value.span(), tensor.to_string())
                        .also(at, other.to_string()),
                    );
                    return TypedExpr::error(span);
                }
            }
            let place = PatternSite { tensor, span: value.span(), pattern: first.value.span };
            let Some((pairs, middle)) = self.align(side, &place) else { return TypedExpr::error(span) };
            for (item, dim) in pairs {
                let Item::Axis(atoms) = item else { continue };
                let Some(Atom::Name(name)) = atoms.first() else { continue };
                match sizes.get(name.as_str()) {
                    None => {
                        sizes.insert(name, (dim, value.span()));
                    }
                    Some((other, _)) if *other == dim => {}
                    Some((other, at)) => {
                        let diagnostic = Diagnostic::error(
                            shapes::EINSUM,
                            format!("`{name}` is {} and {}", self.scope.describe(other), self.scope.describe(&dim)),
                        )
                        .at(value.span(), tensor.to_string())
                        .also(*at, format!("`{name}` is {other} here"))
                        .note("in `einsum`, a name is the same dimension everywhere");
                        let diagnostic = self.scope.differing(diagnostic, other, &dim);
                        let diagnostic = self.scope.label_origins(diagnostic, [other, &dim]);
                        self.diagnostics.push(diagnostic);
                        return TypedExpr::error(span);
                    }
                }
            }
            rest = match rest.broadcast(&Shape { axes: middle }) {
                Ok(rest) => rest,
                Err(_) => {
                    self.diagnostics.push(
                        Diagnostic::error(shapes::REST, "the axes of `..` do not broadcast")
                            .at(value.span(), tensor.to_string()),
                    );
                    return TypedExpr::error(span);
                }
            };
        }
        let mut axes = Vec::new();
        for item in &pattern.output {
            match item {
                Item::Rest => axes.extend(rest.axes.iter().cloned()),
                Item::Axis(atoms) => {
                    if let Some(Atom::Name(name)) = atoms.first()
                        && let Some((dim, _)) = sizes.get(name.as_str())
                    {
                        axes.push(Axis::Dim(dim.clone()));
                    }
                }
            }
        }
        let Some((elem, _)) = elem else { return TypedExpr::error(span) };
        if elem == Elem::Bool {
            self.diagnostics.push(
                Diagnostic::error(shapes::ELEM_KIND, "`einsum` expects numbers, found `bool`")
                    .at(span, "")
                    .help("convert them: `cast<f32>(..)`"),
            );
            return TypedExpr::error(span);
        }
        let elem = if elem == Elem::I8 { Elem::I32 } else { elem };
        let kind = ExprKind::Einsum(pattern, values.into_iter().map(|value| value.expr).collect());
        TypedExpr::tensor(kind, elem, Shape { axes }, span)
    }
}

/// `"sd,de->se"` with spaces between its names: `"s d, d e -> s e"`.
pub(super) fn spaced(pattern: &str) -> String {
    let mut out = String::new();
    for c in pattern.chars().filter(|c| !c.is_whitespace()) {
        let last = out.chars().last();
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let apart = match (last, c) {
            (None, _) | (Some('"' | '(' | '-'), _) | (_, '"' | ')' | ',') | (Some('.'), '.') => false,
            (Some(last), c) => is_name(last) || is_name(c) || c == '-' || c == '(',
        };
        if apart {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// The entries of a side with the lengths of their axes, and the axes that `..` stands for.
type Aligned<'p> = (Vec<(&'p Item, Dim)>, Vec<Axis>);

/// A tensor and its pattern, with their locations.
struct PatternSite<'t> {
    tensor: &'t Tensor,
    span: Span,
    pattern: Span,
}
