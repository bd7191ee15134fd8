//! Fields of layers: parameters with their shapes, sub-layers with their generics, and their names
//! in weights files.
//!
//! In: fields of the AST. Out: typed fields, over the generics of their layer.

use super::generics::{generic_args, show_generics};
use super::items::{Items, LayerItem, not_available, unknown_attribute};
use super::signatures::{Rest, elem_named, tensor_type};
use super::typed::{Constant, Field, FieldType, Generic, GenericKind, Instance, LayerKind};
use crate::diagnostics::codes::{dimensions, parameters};
use crate::diagnostics::{Diagnostic, Diagnostics, NameKind};
use crate::source::Span;
use crate::syntax::ast::{self, ExprKind, Ident, TypeKind};
use std::collections::BTreeMap;

pub(super) fn fields_of_layer(items: &mut Items<'_>, id: usize, diagnostics: &mut Diagnostics) {
    let Some(layer) = items.layers.get(id) else { return };
    let mut fields = Vec::with_capacity(layer.ast.fields.len());
    // Names in the weights file, and names of states, which are not in it.
    let (mut stored, mut kept): (BTreeMap<String, Span>, BTreeMap<String, Span>) = Default::default();
    for field in &layer.ast.fields {
        let stored_name = stored_name(field, diagnostics);
        if layer.ast.list.is_none() {
            diagnostics.refer(field.name.span, field.name.span, NameKind::Field);
        }
        if field.is_state {
            if let Some(init) = field.init.as_ref().filter(|init| !is_zero(init)) {
                diagnostics.push(
                    not_available("a state with an initial value other than zero", init.span)
                        .help("start with zeros, and set it in an entry point"),
                );
            }
        } else if let Some(init) = &field.init {
            diagnostics.push(
                Diagnostic::error(
                    parameters::PARAMETER_INIT,
                    format!("the parameter `{}` has a value", field.name.name),
                )
                .at(init.span, "the value of a parameter comes from the weights file"),
            );
        }
        let of_rule = layer.kind == LayerKind::Rule;
        let ty = match field.ty.kind {
            // Of the shape of each parameter.
            TypeKind::Tensor { .. } if of_rule => {
                tensor_type(&field.ty, &layer.scope, Rest::Anywhere, diagnostics).map(FieldType::Param)
            }
            _ => field_type(items, layer, &field.ty, diagnostics),
        };
        if field.is_state {
            fields.push(match ty {
                Some(FieldType::Param(tensor)) => {
                    if let Some(first) = kept.insert(stored_name.clone(), field.span)
                        && layer.field(&field.name.name) == Some(fields.len())
                    {
                        let message = format!("two states have the name `{stored_name}`");
                        diagnostics.push(
                            Diagnostic::error(parameters::SAME_NAME, message)
                                .at(field.span, "the same name again")
                                .also(first, "the first one"),
                        );
                    }
                    Some(Field {
                        name: field.name.name.clone(),
                        docs: field.docs.clone(),
                        stored_name,
                        ty: FieldType::State(tensor),
                        span: field.span,
                    })
                }
                Some(_) => {
                    diagnostics.push(
                        Diagnostic::error(parameters::FIELD_TYPE, "a state is a tensor")
                            .at(field.ty.span, "not the type of a tensor"),
                    );
                    None
                }
                None => None,
            });
            continue;
        }
        let first = stored.get(&stored_name).copied();
        match first {
            Some(first) if layer.field(&field.name.name) == Some(fields.len()) => diagnostics.push(
                Diagnostic::error(
                    parameters::SAME_NAME,
                    format!("two fields have the name `{stored_name}` in the weights file"),
                )
                .at(field.span, "the same name again")
                .also(first, "the first one"),
            ),
            Some(_) => {}
            None => {
                stored.insert(stored_name.clone(), field.span);
            }
        }
        fields.push(ty.map(|ty| Field {
            name: field.name.name.clone(),
            docs: field.docs.clone(),
            stored_name,
            ty,
            span: field.span,
        }));
    }
    if let Some(layer) = items.layers.get_mut(id) {
        layer.fields = fields;
    }
}

/// Is a state's initial value written as zero?
fn is_zero(value: &ast::Expr) -> bool {
    match &value.kind {
        ExprKind::Int(n) => *n == 0,
        ExprKind::Float(x) => *x == 0.0,
        ExprKind::Bool(b) => !b,
        _ => false,
    }
}

pub(super) fn stored_name(field: &ast::Field, diagnostics: &mut Diagnostics) -> String {
    let mut name = field.name.name.clone();
    for attribute in &field.attributes {
        if attribute.name.name != "name" {
            diagnostics.push(unknown_attribute(&attribute.name, true));
            continue;
        }
        match attribute.value.as_ref().map(|value| &value.kind) {
            Some(ExprKind::Str(text)) if !text.is_empty() => name = text.clone(),
            Some(ExprKind::Error) => {}
            _ => diagnostics.push(
                Diagnostic::error(parameters::NAME_VALUE, "`#[name]` needs a string")
                    .at(attribute.span, "write `#[name = \"..\"]`"),
            ),
        }
    }
    name
}

pub(super) fn field_type(
    items: &Items<'_>,
    layer: &LayerItem<'_>,
    ty: &ast::Type,
    diagnostics: &mut Diagnostics,
) -> Option<FieldType> {
    match &ty.kind {
        TypeKind::Tensor { .. } | TypeKind::Generic { .. } => {
            tensor_type(ty, &layer.scope, Rest::Parameter, diagnostics).map(FieldType::Param)
        }
        TypeKind::Named { .. } if elem_named(ty, &layer.scope, diagnostics).is_some() => {
            tensor_type(ty, &layer.scope, Rest::Parameter, diagnostics).map(FieldType::Param)
        }
        TypeKind::Named { path, generics } => {
            instance(items, layer, path, generics, ty.span, diagnostics).map(FieldType::Layer)
        }
        TypeKind::Array { element, length } => {
            let length = layer.scope.dim(length, diagnostics);
            match &element.kind {
                TypeKind::Named { path, generics } => {
                    let instance = instance(items, layer, path, generics, element.span, diagnostics);
                    Some(FieldType::Array(instance?, length?))
                }
                TypeKind::Error => None,
                _ => {
                    diagnostics.push(
                        Diagnostic::error(parameters::FIELD_TYPE, "arrays can only contain layers")
                            .at(element.span, "not a layer")
                            .help("use one tensor with one more axis"),
                    );
                    None
                }
            }
        }
        TypeKind::Tuple(_) => {
            diagnostics.push(
                Diagnostic::error(parameters::FIELD_TYPE, "a state cannot be a tuple").at(ty.span, "expected a tensor"),
            );
            None
        }
        TypeKind::Error => None,
    }
}

/// Resolves a layer with its generics, as the type of a field.
pub(super) fn instance(
    items: &Items<'_>,
    holder: &LayerItem<'_>,
    path: &[Ident],
    args: &[ast::GenericArg],
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Option<Instance> {
    let id = items.find_layer(holder.module, path, diagnostics)?;
    let target = items.layer(id);
    let name = &target.ast.name.name;
    let constants: Vec<&Generic> =
        holder.generics.iter().filter(|generic| matches!(generic.kind, GenericKind::Const { .. })).collect();
    let bound = generic_args(name, &target.generics, args, span, &holder.scope, &constants, diagnostics)?;
    let id = items.instance(id, &bound.elems);
    let mut instance = Instance { layer: id, dims: bound.dims, constants: bound.constants };
    let mut fine = true;
    for generic in &target.generics {
        if instance.dims.contains_key(&generic.name) || instance.constants.contains_key(&generic.name) {
            continue;
        }
        match &generic.kind {
            GenericKind::Dim { default: Some(dim) } => {
                let dim = dim.substitute(&|s| instance.dims.get(s).cloned()).unwrap_or_else(|| dim.clone());
                instance.dims.insert(generic.name.clone(), dim);
            }
            GenericKind::Const { default: Some(value), .. } => {
                instance.constants.insert(generic.name.clone(), Constant::Literal(*value));
            }
            GenericKind::Elem(_) => {}
            GenericKind::Dim { default: None } | GenericKind::Const { default: None, .. } => fine = false,
        }
    }
    if !fine {
        let missing: Vec<String> = target
            .generics
            .iter()
            .filter(|g| !instance.dims.contains_key(&g.name) && !instance.constants.contains_key(&g.name))
            .filter(|g| !matches!(g.kind, GenericKind::Elem(_)))
            .map(|g| format!("`{}`", g.name))
            .collect();
        diagnostics.push(
            Diagnostic::error(dimensions::GENERIC_COUNT, format!("`{name}` is missing {}", missing.join(" and ")))
                .at(span, format!("`{name}` is `{}`", show_generics(name, &target.generics)))
                .also(target.ast.name.span, "declared here"),
        );
        return None;
    }
    Some(instance)
}
