//! `x[..]`: elements, slices and gathers.
//!
//! In: a tensor and one entry for each axis that is named. Out: the typed index and its shape. Bounds are proved by the
//! facts, refuted, or become conditions that are decided when the dimensions are bound or on entry to the call.

use super::axes::{Axis, Shape};
use super::body::Body;
use super::expr::axes_of;
use super::items::not_available;
use super::layer_refs::LayerRef;
use super::typed::{Entry, ExprKind, Tensor};
use super::values::{Ty, TypedExpr, dim_expr};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::{names, parameters, shapes};
use crate::shape::{Dim, Elem, Fact, Relation};
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    /// `base[indices]`
    pub(super) fn index(&mut self, base: &ast::Expr, indices: &[ast::Index], span: Span) -> TypedExpr {
        match self.layer_ref(base) {
            Some(LayerRef::Layer(..)) => {
                self.diagnostics.push(
                    Diagnostic::error(names::NOT_A_VALUE, "one layer cannot be indexed")
                        .at(base.span, "not an array of layers"),
                );
                return TypedExpr::error(span);
            }
            Some(LayerRef::Array { .. }) => {
                self.diagnostics.push(
                    Diagnostic::error(parameters::LAYER_ARRAY, "a layer is not a tensor")
                        .at(span, "call it, or use one of its fields"),
                );
                return TypedExpr::error(span);
            }
            Some(LayerRef::Wrong) => return TypedExpr::error(span),
            None => {}
        }
        if let Some(value) = self.shape_entry(base, indices, span) {
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
        let Some(places) = self.index_places(&tensor, base.span, indices, span) else { return TypedExpr::error(span) };
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
            return TypedExpr::error(span);
        }
        let axes: Vec<Axis> = axes.into_iter().flatten().collect();
        if axes.iter().filter(|axis| **axis == Axis::Rest).count() > 1 {
            self.diagnostics.push(
                Diagnostic::error(shapes::REST, "both the tensor and the indices have `..`")
                    .at(gathered.unwrap_or(span), "")
                    .also(base.span, tensor.to_string())
                    .note("a shape may have only one `..`"),
            );
            return TypedExpr::error(span);
        }
        let kind = ExprKind::Index { base: Box::new(value.expr), entries };
        TypedExpr::tensor(kind, tensor.elem, Shape { axes }, span)
    }

    /// Which axis each entry is for, `..` omitted.
    fn index_places(&mut self, tensor: &Tensor, base: Span, indices: &[ast::Index], span: Span) -> Option<Vec<usize>> {
        let is_rest = |index: &ast::Index| matches!(index, ast::Index::Rest(_));
        let named = indices.iter().filter(|index| !is_rest(index)).count();
        let front = indices.iter().position(is_rest).unwrap_or(indices.len());
        if let Some(second) = indices.iter().filter(|index| is_rest(index)).nth(1) {
            self.diagnostics.push(
                Diagnostic::error(shapes::INDEX_COUNT, "`..` occurs twice in the index")
                    .at(second.span(), "the second one"),
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
                }
                self.diagnostics.push(diagnostic);
                None
            }
        }
    }

    /// One entry, for an axis of the given length; the axes that take its place.
    fn entry(&mut self, index: &ast::Index, length: &Dim) -> Option<(Entry, Vec<Axis>)> {
        match index {
            ast::Index::Rest(_) => None,
            ast::Index::Range { start, end, span } => self.slice(start.as_ref(), end.as_ref(), *span, length),
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
        let start = match start {
            None => Some(Dim::zero()),
            Some(start) => self.slice_end(start),
        };
        let end = match end {
            None => Some(length.clone()),
            Some(end) => self.slice_end(end),
        };
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
        let scope = self.scope;
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

    fn slice_end(&mut self, expr: &ast::Expr) -> Option<Dim> {
        let value = self.expr(expr);
        match &value.ty {
            Ty::Tensor(Tensor { elem: Elem::I32 | Elem::I64, shape }) if shape.is_scalar() => {
                self.diagnostics.push(not_available("a slice whose ends are computed", expr.span));
                None
            }
            _ => self.dim_of(&value),
        }
    }
}
