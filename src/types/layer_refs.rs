//! Expressions that refer to a layer or an array of layers.
//!
//! In: names, fields and indices of the AST. Out: the path to the layer from the function's own
//! layer, and its generics over the names in scope.

use super::body::{Body, Named};
use super::items::not_available;
use super::typed::{Constant, Element, Expr, ExprKind, FieldType, GenericKind, Instance, LayerPath, LocalId, Step};
use super::values::Ty;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::shapes;
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::{Dim, Fact, Relation};
use crate::source::Span;
use crate::syntax::ast;
use std::collections::BTreeMap;

/// A reference to layers.
#[derive(Clone, Debug)]
pub(super) enum LayerRef {
    /// One layer, with its generics over the names in scope.
    Layer(Instance, LayerPath),
    /// An array of layers: a field of the layer at the path.
    Array {
        /// The type of each element.
        instance: Instance,
        /// The layer that contains the array.
        path: LayerPath,
        /// Index of its field.
        field: usize,
        /// The number of elements.
        length: Dim,
    },
    /// Invalid, which was reported.
    Wrong,
}

impl Body<'_> {
    /// The layer or array of layers that an expression refers to; `None` if it is something else.
    pub(super) fn layer_ref(&mut self, expr: &ast::Expr) -> Option<LayerRef> {
        match &expr.kind {
            ast::ExprKind::Name(name) => self.layer_ref_of_name(name),
            ast::ExprKind::Field { base, name } => match self.layer_ref(base)? {
                LayerRef::Layer(instance, path) => {
                    if let Some(index) = self.items.layer(instance.layer).field(&name.name) {
                        self.refer_field(name, instance.layer, index);
                    }
                    self.member_layer_ref(&instance, &path, &name.name)
                }
                LayerRef::Array { .. } => None,
                LayerRef::Wrong => Some(LayerRef::Wrong),
            },
            ast::ExprKind::Index { base, indices } => match self.layer_ref(base)? {
                LayerRef::Array { instance, path, field, length } => {
                    Some(self.element(instance, path, field, &length, indices, expr.span))
                }
                LayerRef::Layer(instance, path) if self.list_of(&instance).is_some() => {
                    Some(self.part_at(&instance, &path, indices, expr.span))
                }
                LayerRef::Layer(..) => None,
                LayerRef::Wrong => Some(LayerRef::Wrong),
            },
            _ => None,
        }
    }

    pub(super) fn layer_ref_of_name(&mut self, name: &ast::Ident) -> Option<LayerRef> {
        match self.resolve(name) {
            Some(Named::Layer(instance, path)) => return Some(LayerRef::Layer(instance, path)),
            Some(Named::Error) => return Some(LayerRef::Wrong),
            Some(Named::Local { .. } | Named::Dim(_)) => return None,
            None => {}
        }
        let owner = self.owner?;
        let layer = self.items.layer(owner);
        let index = layer.field(&name.name)?;
        self.refer_field(name, owner, index);
        let Some(Some(field)) = layer.fields.get(index) else { return Some(LayerRef::Wrong) };
        match &field.ty {
            FieldType::Param(_) | FieldType::State(_) => None,
            FieldType::Layer(instance) => {
                let path = LayerPath { steps: vec![Step { field: index, element: None }] };
                Some(LayerRef::Layer(instance.clone(), path))
            }
            FieldType::Array(instance, length) => Some(LayerRef::Array {
                instance: instance.clone(),
                path: LayerPath::default(),
                field: index,
                length: length.clone(),
            }),
        }
    }

    /// A sub-layer of the layer at a path.
    pub(super) fn member_layer_ref(&mut self, holder: &Instance, path: &LayerPath, name: &str) -> Option<LayerRef> {
        let layer = self.items.layer(holder.layer);
        let index = layer.field(name)?;
        let Some(Some(field)) = layer.fields.get(index) else { return Some(LayerRef::Wrong) };
        match &field.ty {
            FieldType::Param(_) | FieldType::State(_) => None,
            FieldType::Layer(instance) => {
                let mut path = path.clone();
                path.steps.push(Step { field: index, element: None });
                Some(LayerRef::Layer(compose(holder, instance), path))
            }
            FieldType::Array(instance, length) => Some(LayerRef::Array {
                instance: compose(holder, instance),
                path: path.clone(),
                field: index,
                length: within(holder, length),
            }),
        }
    }

    pub(super) fn element(
        &mut self,
        instance: Instance,
        mut path: LayerPath,
        field: usize,
        length: &Dim,
        indices: &[ast::Index],
        span: Span,
    ) -> LayerRef {
        let [ast::Index::Expr(index)] = indices else {
            self.diagnostics.push(
                Diagnostic::error(shapes::INDEX_COUNT, "an array of layers takes one index")
                    .at(span, "expected one number"),
            );
            return LayerRef::Wrong;
        };
        let value = self.expr(index);
        match &value.ty {
            Ty::Dim(at) => {
                self.in_range(at, length, index.span);
                path.steps.push(Step { field, element: Some(Element::At(at.clone())) });
                LayerRef::Layer(instance, path)
            }
            Ty::Error => LayerRef::Wrong,
            _ => {
                if let Some(Linear { counter: Some(counter), factor, offset }) = self.linear(&value.expr)
                    && let Some(ends) = self.counters.get(&counter).cloned()
                {
                    let Some((start, end)) = ends else { return LayerRef::Wrong };
                    self.counter_in_range((&start, &end), (factor, &offset), length, index.span);
                    path.steps.push(Step { field, element: Some(Element::Counter { counter, factor, offset }) });
                    return LayerRef::Layer(instance, path);
                }
                self.diagnostics.push(
                    not_available("an array of layers indexed by a computed number", index.span)
                        .note("the index is a dimension, or the counter of a loop whose ends are dimensions, times a constant, plus a dimension: `blocks[2*i + 1]`")
                        .help("iterate over the array with `for block in blocks`, or `for (i, block) in enumerate(blocks)`"),
                );
                LayerRef::Wrong
            }
        }
    }

    /// An index as a constant times a loop counter plus a dimension, if it has that form.
    fn linear(&self, index: &Expr) -> Option<Linear> {
        let alone = |offset: Dim| Some(Linear { counter: None, factor: 0, offset });
        match &index.kind {
            ExprKind::Local(local) if self.counters.contains_key(local) => {
                Some(Linear { counter: Some(*local), factor: 1, offset: Dim::zero() })
            }
            ExprKind::Dim(dim) => alone(dim.clone()),
            ExprKind::Const(Scalar::Int(n)) => alone(Dim::from(*n)),
            ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let (a, b) = (self.linear(a)?, self.linear(b)?);
                let (sign, offset) = match op {
                    BinaryOp::Add => (1, a.offset.add(&b.offset)),
                    _ => (-1, a.offset.sub(&b.offset)),
                };
                let counter = match (a.counter, b.counter) {
                    (Some(a), Some(b)) if a != b => return None,
                    (a, b) => a.or(b),
                };
                Some(Linear { counter, factor: a.factor.checked_add(b.factor.checked_mul(sign)?)?, offset })
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                let (a, b) = (self.linear(a)?, self.linear(b)?);
                let (x, n) = match (a.counter, b.counter) {
                    (_, None) => (a, b.offset),
                    (None, _) => (b, a.offset),
                    (Some(_), Some(_)) => return None,
                };
                if x.counter.is_none() {
                    return alone(x.offset.mul(&n));
                }
                let factor = x.factor.checked_mul(n.as_const()?)?;
                Some(Linear { counter: x.counter, factor, offset: x.offset.mul(&n) })
            }
            _ => None,
        }
    }

    /// Requires that `factor * i + offset` is a valid index for all values `i` of a loop counter.
    fn counter_in_range(
        &mut self,
        (start, end): (&Dim, &Dim),
        (factor, offset): (i64, &Dim),
        length: &Dim,
        span: Span,
    ) {
        let at = |i: &Dim| Dim::from(factor).mul(i).add(offset);
        let last = end.sub(&Dim::one());
        let (low, high) = if factor < 0 { (at(&last), at(start)) } else { (at(start), at(&last)) };
        for (left, right) in [(&Dim::zero(), &low), (&high.add(&Dim::one()), length)] {
            let fact = Fact { left: left.clone(), relation: Relation::Le, right: right.clone() };
            let out = || {
                Diagnostic::error(shapes::OUT_OF_RANGE, "the counter leaves the array of layers")
                    .at(span, format!("it runs over {start}..{end}, but there are {length} layers"))
            };
            if self.scope.decide(&fact) == Some(false) {
                self.diagnostics.push(out());
                return;
            }
            self.require(fact, span, &out);
        }
    }

    /// Requires `0 <= at < length`.
    pub(super) fn in_range(&mut self, at: &Dim, length: &Dim, span: Span) {
        let refuted = |at: &Dim| {
            let diagnostic = Diagnostic::error(shapes::OUT_OF_RANGE, format!("the index {at} is out of range"))
                .at(span, format!("the axis has length {length}"));
            if at.as_const().is_some_and(|n| n < 0) {
                let place = from_end(length, at);
                diagnostic.help(format!("write `{place}` to count from the end")).fix(span, place)
            } else {
                diagnostic
            }
        };
        let low = Fact { left: Dim::zero(), relation: Relation::Le, right: at.clone() };
        if self.scope.decide(&low) == Some(false) {
            self.diagnostics.push(refuted(at));
            return;
        }
        self.require(low, span, &|| refuted(at));
        let high = Fact { left: at.add(&Dim::one()), relation: Relation::Le, right: length.clone() };
        self.require(high, span, &|| refuted(at));
    }

    /// The function's own layer, as an instance of itself.
    pub(super) fn own_instance(&self) -> Option<(Instance, LayerPath)> {
        let owner = self.owner?;
        let mut instance = Instance { layer: owner, dims: BTreeMap::new(), constants: BTreeMap::new() };
        for generic in &self.items.layer(owner).generics {
            match generic.kind {
                GenericKind::Dim { .. } => {
                    instance.dims.insert(generic.name.clone(), Dim::symbol(&generic.name));
                }
                GenericKind::Const { .. } => {
                    instance.constants.insert(generic.name.clone(), Constant::Generic(generic.name.clone()));
                }
                GenericKind::Elem(_) => {}
            }
        }
        Some((instance, LayerPath::default()))
    }
}

/// `factor * counter + offset`; the factor is 0 without a counter.
struct Linear {
    counter: Option<LocalId>,
    factor: i64,
    offset: Dim,
}

/// A negative index in terms of the length: `S - 1`.
pub(super) fn from_end(length: &Dim, at: &Dim) -> String {
    length.add(at).to_string()
}

/// Substitutes the generics of a layer by the dimensions of its instance.
pub(super) fn within(holder: &Instance, dim: &Dim) -> Dim {
    dim.substitute(&|name| holder.dims.get(name).cloned()).unwrap_or_else(|| dim.clone())
}

/// The instance of a sub-layer, over the names in scope of its holder's instance.
pub(super) fn compose(holder: &Instance, inner: &Instance) -> Instance {
    let constant = |value: &Constant| match value {
        Constant::Literal(_) => value.clone(),
        Constant::Generic(name) => holder.constants.get(name).unwrap_or(value).clone(),
    };
    Instance {
        layer: inner.layer,
        dims: inner.dims.iter().map(|(name, dim)| (name.clone(), within(holder, dim))).collect(),
        constants: inner.constants.iter().map(|(name, value)| (name.clone(), constant(value))).collect(),
    }
}
