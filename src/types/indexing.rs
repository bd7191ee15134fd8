//! `x[..]`: elements, slices and gathers.
//!
//! In: a tensor and one entry for each indexed axis. Out: the typed index and its shape. Bounds are
//! proved by the facts, refuted, or become conditions that are decided when the dimensions are
//! bound or on entry to the call.

use super::axes::{Axis, Shape};
use super::body::{Body, Named};
use super::items::not_available;
use super::layer_refs::LayerRef;
use super::misfit::axes_of;
use super::typed::{Entry, ExprKind, Tensor};
use super::values::{Ty, TypedExpr, dim_expr};
use crate::diagnostics::codes::{names, parameters, shapes, syntax};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::shape::{Dim, Elem, Fact, Relation};
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    /// `base[indices]`
    pub(super) fn index(&mut self, base: &ast::Expr, indices: &[ast::Index], span: Span) -> TypedExpr {
        match self.layer_ref(base) {
            Some(LayerRef::Layer(instance, path)) if self.list_of(&instance).is_some() => {
                if !matches!(self.part_at(&instance, &path, indices, span), LayerRef::Wrong) {
                    self.not_called(span);
                }
                return TypedExpr::error(span);
            }
            Some(LayerRef::Layer(..)) => {
                self.diagnostics.push(
                    Diagnostic::error(names::NOT_A_VALUE, "one layer cannot be indexed")
                        .at(base.span, "not an array of layers"),
                );
                return TypedExpr::error(span);
            }
            Some(LayerRef::Array { .. }) => {
                self.not_called(span);
                return TypedExpr::error(span);
            }
            Some(LayerRef::Wrong) => return TypedExpr::error(span),
            None => {}
        }
        if let Some(value) = self.shape_entry(base, indices, span) {
            return value;
        }
        if let Some(value) = self.added_axes(indices, span) {
            return value;
        }
        let value = self.expr(base);
        if value.ty.is_error() {
            return TypedExpr::error(span);
        }
        let Some(tensor) = value.as_tensor().cloned() else {
            let shown = value.ty.to_string();
            self.not_a_tensor(&shown, base.span);
            return TypedExpr::error(span);
        };
        let Some((entries, shape)) = self.entries(&tensor, base.span, indices, span) else {
            return TypedExpr::error(span);
        };
        let Some(steps) = self.steps(&tensor, base.span, indices, &entries) else { return TypedExpr::error(span) };
        let kind = ExprKind::Index { base: Box::new(value.expr), entries };
        let taken = TypedExpr::tensor(kind, tensor.elem, shape, span);
        steps.into_iter().fold(taken, |taken, (axis, step)| self.every_of(taken, axis, step))
    }

    /// Reports a layer where a tensor is required.
    fn not_called(&mut self, span: Span) {
        self.diagnostics.push(
            Diagnostic::error(parameters::LAYER_ARRAY, "a layer is not a tensor")
                .at(span, "call it, or use one of its fields"),
        );
    }

    /// The steps of slices, `x[a..b step k]`, by axis of the result.
    fn steps(
        &mut self,
        tensor: &Tensor,
        base: Span,
        indices: &[ast::Index],
        entries: &[Entry],
    ) -> Option<Vec<(usize, Dim)>> {
        if indices.iter().all(|index| index.step().is_none()) {
            return Some(Vec::new());
        }
        let places = self.index_places(tensor, base, indices, base)?;
        let mut steps = Vec::new();
        for (index, at) in indices.iter().filter(|index| !matches!(index, ast::Index::Rest(_))).zip(places) {
            let Some(step) = index.step() else { continue };
            let before = entries.iter().take(at).map(|entry| match entry {
                Entry::All | Entry::Range(..) | Entry::Window(..) => 1,
                Entry::At(_) => 0,
                Entry::Gather(indices) => match &indices.ty {
                    super::typed::Type::Tensor(indices) => indices.shape.axes.len(),
                    super::typed::Type::Tuple(_) => 1,
                },
            });
            let axis = before.sum();
            if matches!(step.kind, ast::ExprKind::Unary { op: ast::UnaryOp::Neg, .. }) {
                let length = tensor.shape.dim(at).cloned().unwrap_or_else(Dim::one);
                let first = length.sub(&Dim::one());
                self.diagnostics.push(
                    Diagnostic::error(syntax::SLICE, "a slice cannot run backwards")
                        .at(step.span, "must be at least 1")
                        .help(format!("use an index that counts down: `{first} - iota({length})`")),
                );
                return None;
            }
            steps.push((axis, self.distance("step", step)));
        }
        steps.into_iter().map(|(axis, step)| Some((axis, step?))).collect()
    }

    /// The entries for all axes of a tensor, and the shape of the result.
    pub(super) fn entries(
        &mut self,
        tensor: &Tensor,
        base: Span,
        indices: &[ast::Index],
        span: Span,
    ) -> Option<(Vec<Entry>, Shape)> {
        let places = self.index_places(tensor, base, indices, span)?;
        let mut entries: Vec<Entry> = tensor.shape.axes.iter().map(|_| Entry::All).collect();
        let mut axes: Vec<Vec<Axis>> = tensor.shape.axes.iter().map(|axis| vec![axis.clone()]).collect();
        let mut gathered: Option<Span> = None;
        let mut fine = true;
        for (index, at) in indices.iter().filter(|index| !matches!(index, ast::Index::Rest(_))).zip(places) {
            let Some(length) = tensor.shape.dim(at).cloned() else { continue };
            let Some((entry, taken)) = self.entry(index, &length) else {
                fine = false;
                continue;
            };
            if matches!(entry, Entry::Gather(_)) {
                if gathered.is_some() {
                    self.diagnostics.push(not_available("a second tensor of indices", index.span()));
                    fine = false;
                }
                gathered = Some(index.span());
            }
            if let (Some(slot), Some(axis)) = (entries.get_mut(at), axes.get_mut(at)) {
                *slot = entry;
                *axis = taken;
            }
        }
        if !fine {
            return None;
        }
        let axes: Vec<Axis> = axes.into_iter().flatten().collect();
        if axes.iter().filter(|axis| **axis == Axis::Rest).count() > 1 {
            self.diagnostics.push(
                Diagnostic::error(shapes::REST, "both the tensor and the indices have `..`")
                    .at(gathered.unwrap_or(span), "")
                    .also(base, tensor.to_string())
                    .note("a shape may have only one `..`"),
            );
            return None;
        }
        Some((entries, Shape { axes }))
    }

    /// The axis of each entry, `..` omitted.
    fn index_places(&mut self, tensor: &Tensor, base: Span, indices: &[ast::Index], span: Span) -> Option<Vec<usize>> {
        let is_rest = |index: &ast::Index| matches!(index, ast::Index::Rest(_));
        let named = indices.iter().filter(|index| !is_rest(index)).count();
        let front = indices.iter().position(is_rest).unwrap_or(indices.len());
        if let Some(second) = indices.iter().filter(|index| is_rest(index)).nth(1) {
            // If there is an entry for each axis, `..` is a whole axis.
            if indices.len() == tensor.shape.rank() && tensor.shape.rest().is_none() {
                return Some((0..indices.len()).filter(|at| !is_rest(&indices[*at])).collect());
            }
            let message = "`..` occurs twice in an index without an entry for each axis";
            self.diagnostics.push(
                Diagnostic::error(shapes::INDEX_COUNT, message)
                    .at(second.span(), "the second one")
                    .also(base, tensor.to_string()),
            );
            return None;
        }
        let back = named.saturating_sub(front);
        let len = tensor.shape.rank();
        let behind = len.checked_sub(back);
        let places: Option<Vec<usize>> =
            behind.filter(|behind| *behind >= front).map(|behind| (0..front).chain(behind..len).collect());
        let seen = |places: &Vec<usize>| {
            let rest = tensor.shape.rest();
            places.iter().all(|at| Some(*at) != rest)
                && !(0..front).any(|at| rest.is_some_and(|rest| rest <= at))
                && !(len - back..len).any(|at| rest.is_some_and(|rest| rest >= at))
        };
        match places {
            Some(places) if seen(&places) => Some(places),
            _ => {
                let mut diagnostic = Diagnostic::error(
                    shapes::INDEX_COUNT,
                    format!(
                        "{} for {tensor}, which has {}",
                        if named == 1 { "1 index".to_string() } else { format!("{named} indices") },
                        axes_of(tensor)
                    ),
                )
                .at(span, "")
                .also(base, tensor.to_string());
                if tensor.shape.rest().is_some() {
                    diagnostic = diagnostic.help("axes after `..` are indexed from the end: `x[.., 0]`");
                } else if let Some(pattern) = with_axes_of_one(len, indices) {
                    diagnostic = diagnostic.help(format!(
                        "there is no `None`; add an axis of length 1 with `rearrange(.., \"{pattern}\")`"
                    ));
                }
                self.diagnostics.push(diagnostic);
                None
            }
        }
    }

    /// One entry, for an axis of the given length; returns the axes that replace it.
    fn entry(&mut self, index: &ast::Index, length: &Dim) -> Option<(Entry, Vec<Axis>)> {
        match index {
            ast::Index::Rest(_) => None,
            ast::Index::Range { start, end, span, .. } => self.slice(start.as_ref(), end.as_ref(), *span, length),
            ast::Index::Expr(expr) => {
                let value = self.expr(expr);
                match value.ty.clone() {
                    Ty::Dim(at) => {
                        self.in_range(&at, length, expr.span);
                        Some((Entry::At(dim_expr(&at, Elem::I32, expr.span)), Vec::new()))
                    }
                    Ty::Tensor(Tensor { elem: Elem::I32 | Elem::I64, shape }) => {
                        if shape.is_scalar() {
                            return Some((Entry::At(value.expr), Vec::new()));
                        }
                        Some((Entry::Gather(value.expr), shape.axes))
                    }
                    Ty::Error => None,
                    ty => {
                        let mut diagnostic =
                            Diagnostic::error(shapes::INDEX_TYPE, format!("an index must be an integer, found {ty}"))
                                .at(expr.span, ty.to_string());
                        diagnostic = match &ty {
                            Ty::Tensor(Tensor { elem: Elem::Bool, .. }) => {
                                diagnostic.help("`where(mask, x, 0)` selects by a mask and keeps the shape")
                            }
                            Ty::Tensor(_) => diagnostic.help("convert it: `cast<i32>(..)`"),
                            _ => diagnostic,
                        };
                        self.diagnostics.push(diagnostic);
                        None
                    }
                }
            }
        }
    }

    fn slice(
        &mut self,
        start: Option<&ast::Expr>,
        end: Option<&ast::Expr>,
        span: Span,
        length: &Dim,
    ) -> Option<(Entry, Vec<Axis>)> {
        let (start_expr, end_expr) = (start, end);
        let start = start.map(|start| self.expr(start));
        let end = end.map(|end| self.expr(end));
        if [&start, &end].into_iter().flatten().any(is_integer) {
            let end = match (&end, end_expr) {
                (Some(end), Some(expr)) => self.slice_form(end, expr),
                _ => length.clone(),
            };
            return self.window(start.zip(start_expr), end, span, length);
        }
        let start = start.map_or(Some(Dim::zero()), |start| self.dim_of(&start));
        let end = end.map_or(Some(length.clone()), |end| self.dim_of(&end));
        let (start, end) = (start?, end?);
        for (dim, expr) in [(&start, start_expr), (&end, end_expr)] {
            if let (Some(n), Some(expr)) = (dim.as_const(), expr)
                && n < 0
            {
                let place = super::layer_refs::from_end(length, dim);
                self.diagnostics.push(
                    Diagnostic::error(
                        shapes::OUT_OF_RANGE,
                        "the bounds of a slice do not count from the end of the axis",
                    )
                    .at(expr.span, format!("the axis has length {length}"))
                    .help(format!("write `{place}`"))
                    .fix(expr.span, place),
                );
                return None;
            }
        }
        let scope = self.scope.clone();
        let out = |what: String| {
            let diagnostic =
                Diagnostic::error(shapes::OUT_OF_RANGE, what).at(span, format!("the axis has length {length}"));
            scope.label_origins(diagnostic, [&start, &end, length])
        };
        let facts = [
            (Dim::zero(), start.clone(), format!("the slice begins before the axis, at {start}")),
            (start.clone(), end.clone(), format!("the slice ends before it begins: {start}..{end}")),
            (end.clone(), length.clone(), format!("the slice {start}..{end} ends after the axis")),
        ];
        for (left, right, what) in facts {
            let fact = Fact { left, relation: Relation::Le, right };
            if scope.decide(&fact) == Some(false) {
                self.diagnostics.push(out(what));
                return None;
            }
            self.require(fact, span, &|| out(what.clone()));
        }
        let taken = scope.canonical(end.sub(&start));
        Some((Entry::Range(start, end), vec![Axis::Dim(taken)]))
    }

    /// `start..end` with computed ends, whose distance must be a known dimension.
    fn window(
        &mut self,
        start: Option<(TypedExpr, &ast::Expr)>,
        end: Dim,
        span: Span,
        length: &Dim,
    ) -> Option<(Entry, Vec<Axis>)> {
        let (first, start) = match start {
            Some((start, expr)) => (self.slice_form(&start, expr), start.expr),
            None => (Dim::zero(), dim_expr(&Dim::zero(), Elem::I32, span)),
        };
        let taken = self.scope.canonical(end.sub(&first));
        if taken.is_too_long() || taken.symbols().iter().any(|name| name.starts_with(OPAQUE)) {
            self.diagnostics.push(
                Diagnostic::error(shapes::SLICE_LENGTH, "the length of this slice is unknown until the program runs")
                    .at(span, format!("part of an axis of {length}"))
                    .help("begin and end must differ by a dimension: `x[i..i+P]`"),
            );
            return None;
        }
        let out = |what: String| {
            Diagnostic::error(shapes::OUT_OF_RANGE, what).at(span, format!("the axis has length {length}"))
        };
        let facts = [
            (Dim::zero(), taken.clone(), format!("the slice ends before it begins: it has {taken} elements")),
            (taken.clone(), length.clone(), format!("the slice has {taken} elements, more than the axis")),
        ];
        for (left, right, what) in facts {
            let fact = Fact { left, relation: Relation::Le, right };
            if self.scope.decide(&fact) == Some(false) {
                self.diagnostics.push(out(what));
                return None;
            }
            // A run-time check ensures that the axis is long enough: a loop over an empty axis
            // takes no window.
            if fact.right != *length {
                self.require(fact, span, &|| out(what.clone()));
            }
        }
        Some((Entry::Window(start, taken.clone()), vec![Axis::Dim(taken)]))
    }

    /// An end of a slice as a dimension expression, with opaque symbols for computed numbers: equal
    /// expressions have equal values there.
    fn slice_form(&self, value: &TypedExpr, expr: &ast::Expr) -> Dim {
        match &value.ty {
            Ty::Dim(dim) => dim.clone(),
            _ => self.form(expr),
        }
    }

    fn form(&self, expr: &ast::Expr) -> Dim {
        let opaque = |text: &str| Dim::symbol(&format!("{OPAQUE}{text}"));
        let parts = match &expr.kind {
            ast::ExprKind::Int(n) => return i64::try_from(*n).map_or_else(|_| opaque(&n.to_string()), Dim::from),
            ast::ExprKind::Name(name) => {
                let found = self.frames.iter().rev().find_map(|frame| frame.get(&name.name));
                return match found.map(|binding| &binding.what) {
                    Some(Named::Dim(dim)) => dim.clone(),
                    Some(Named::Local { id, .. }) => opaque(&id.0.to_string()),
                    Some(Named::Layer(..) | Named::Error) => opaque(&name.name),
                    None => {
                        let dim = self.scope.dim(expr, &mut Diagnostics::new());
                        dim.unwrap_or_else(|| opaque(&name.name))
                    }
                };
            }
            ast::ExprKind::Unary { op: ast::UnaryOp::Neg, operand, .. } => return self.form(operand).neg(),
            ast::ExprKind::Binary { op, left, right, .. } => match op {
                ast::BinaryOp::Add => Some((Dim::add as fn(&Dim, &Dim) -> Dim, left, right)),
                ast::BinaryOp::Sub => Some((Dim::sub as fn(&Dim, &Dim) -> Dim, left, right)),
                ast::BinaryOp::Mul => Some((Dim::mul as fn(&Dim, &Dim) -> Dim, left, right)),
                _ => None,
            },
            _ => None,
        };
        match parts {
            Some((op, left, right)) => op(&self.form(left), &self.form(right)),
            // Print the tree, so that whitespace and comments in the source do not matter.
            None => opaque(&crate::syntax::dump::expr(expr)),
        }
    }
}

/// The prefix of opaque symbols, which no dimension can have.
const OPAQUE: char = '%';

/// Is it a computed integer?
fn is_integer(value: &TypedExpr) -> bool {
    matches!(&value.ty, Ty::Tensor(Tensor { elem: Elem::I32 | Elem::I64, shape }) if shape.is_scalar())
}

/// The pattern equivalent to a NumPy index like `x[0.., None]` on a tensor of `rank` axes; `None`
/// for another index.
fn with_axes_of_one(rank: usize, indices: &[ast::Index]) -> Option<String> {
    let is_none = |expr: &ast::Expr| matches!(&expr.kind, ast::ExprKind::Name(name) if name.name == "None");
    let mut names = ('a'..='z').take(rank).map(String::from).collect::<Vec<_>>().into_iter();
    let all = names.as_slice().join(" ");
    let mut to: Vec<String> = Vec::new();
    for index in indices {
        to.push(match index {
            ast::Index::Expr(expr) if is_none(expr) => "1".into(),
            ast::Index::Range { start: None, end: None, .. } => names.next()?,
            ast::Index::Range { start: Some(start), end: None, .. } if start.kind == ast::ExprKind::Int(0) => {
                names.next()?
            }
            ast::Index::Rest(_) | ast::Index::Expr(_) | ast::Index::Range { .. } => return None,
        });
    }
    let has_one = to.iter().any(|name| name == "1");
    to.extend(names);
    has_one.then(|| format!("{all} -> {}", to.join(" ")))
}
