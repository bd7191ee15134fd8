//! Lists of layers of different types: `(Linear<D, F>, GELU)` and `Sequential<Linear<D, F>, GELU>`.
//!
//! In: the syntax trees of all files. Out: the same trees, in which each list that is the type of a
//! field is declared as a layer of its own at the end of its file. Its fields are named `0`, `1`,
//! ..., so that weights have PyTorch's paths (`net.0.weight`); it has the generics and `where`
//! clauses of the layer that contains the field. Calls, indexing and iteration of such layers are
//! implemented here too. Nothing after the type checker knows of lists.

use super::body::{Body, Named};
use super::items::not_available;
use super::layer_refs::{LayerRef, compose};
use super::modules::SEQUENTIAL;
use super::typed::{
    Block, Expr, ExprKind, FieldType, Instance, LayerPath, Local, LocalId, Pattern, Step, Stmt, StmtKind,
};
use super::values::{Ty, TypedExpr};
use crate::diagnostics::codes::{dimensions, entries, parameters, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::shape::Dim;
use crate::source::Span;
use crate::syntax::ast::{
    self, ExprKind as Written, Field, GenericArg, GenericParam, GenericValue, Ident, Item, LayerKind, LayerList, Type,
    TypeKind,
};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of iterations of loops over lists in a function, nested loops multiplied:
/// each iteration is checked separately.
const MAX_BODIES: usize = 4096;

/// Declares layers for the lists of layers in the types of fields.
pub(super) fn declare(files: &mut [(Option<&'static str>, ast::File)], diagnostics: &mut Diagnostics) {
    for (_, file) in files {
        let mut named = BTreeSet::new();
        let mut uses_nn = false;
        for item in &file.items {
            match item {
                Item::Layer(layer) => {
                    named.insert(layer.name.name.clone());
                }
                Item::Use(item) => {
                    let path: Vec<&str> = item.path.iter().map(|part| part.name.as_str()).collect();
                    uses_nn |= path.join(".") == SEQUENTIAL.0;
                }
                Item::Function(_) => {}
            }
        }
        let is_own = named.contains(SEQUENTIAL.1);
        let mut made = Vec::new();
        for item in &mut file.items {
            let Item::Layer(layer) = item else { continue };
            let head = Head { generics: &layer.generics, clauses: &layer.where_clauses };
            for field in layer.fields.iter_mut().filter(|field| !field.is_state) {
                let name = format!("{}.{}", layer.name.name, field.name.name);
                let mut lists = Lists { head: &head, uses_nn, is_own, named: &mut named, made: &mut made, diagnostics };
                lists.ty(&mut field.ty, name);
            }
        }
        file.items.extend(made.into_iter().map(Item::Layer));
    }
}

/// The parts of the containing layer that a list inherits.
struct Head<'a> {
    generics: &'a [GenericParam],
    clauses: &'a [ast::Expr],
}

struct Lists<'a> {
    head: &'a Head<'a>,
    uses_nn: bool,
    /// Does the file declare a layer named `Sequential` itself?
    is_own: bool,
    named: &'a mut BTreeSet<String>,
    made: &'a mut Vec<ast::Layer>,
    diagnostics: &'a mut Diagnostics,
}

impl Lists<'_> {
    /// Replaces the lists in a type. `name` is the name of the layer.
    fn ty(&mut self, ty: &mut Type, name: String) {
        let span = ty.span;
        let (list, parts) = match &mut ty.kind {
            TypeKind::Array { element, .. } => return self.ty(element, name),
            TypeKind::Tuple(parts) => (LayerList::Tuple, std::mem::take(parts)),
            TypeKind::Named { path, generics } if self.is_sequential(path) => match self.parts(generics, span) {
                Some(parts) => (LayerList::Sequential, parts),
                None => {
                    ty.kind = TypeKind::Error;
                    return;
                }
            },
            TypeKind::Named { .. } | TypeKind::Tensor { .. } | TypeKind::Generic { .. } | TypeKind::Error => return,
        };
        ty.kind = match self.layer(list, parts, name, span) {
            Some(name) => TypeKind::Named { path: vec![Ident { name, span }], generics: self.own_generics(span) },
            None => TypeKind::Error,
        };
    }

    /// Is it `Sequential`, `nn.Sequential` or `std.nn.Sequential` of the library?
    fn is_sequential(&self, path: &[Ident]) -> bool {
        let written: Vec<&str> = path.iter().map(|part| part.name.as_str()).collect();
        match written.as_slice() {
            [name] => *name == SEQUENTIAL.1 && self.uses_nn && !self.is_own,
            ["nn", name] | ["std", "nn", name] => *name == SEQUENTIAL.1 && self.uses_nn,
            _ => false,
        }
    }

    /// The layers in `Sequential<..>`. `None` if one is not a layer, which was reported.
    fn parts(&mut self, generics: &mut Vec<GenericArg>, span: Span) -> Option<Vec<Type>> {
        if generics.is_empty() {
            self.diagnostics.push(
                Diagnostic::error(dimensions::GENERIC_COUNT, "`Sequential` has no layers")
                    .at(span, "expected its layers in the order of their application")
                    .help("for instance `Sequential<Linear<D, F>, GELU, Linear<F, D>>`"),
            );
            return None;
        }
        let mut parts = Vec::with_capacity(generics.len());
        let mut fine = true;
        for arg in std::mem::take(generics) {
            let span = arg.span;
            let ty = match (arg.name, arg.value) {
                (None, GenericValue::Layer(ty)) => Some(ty),
                (None, GenericValue::Expr(expr)) => path_of(&expr).map(|path| {
                    let kind = TypeKind::Named { path, generics: Vec::new() };
                    Type { kind, span: expr.span, depth: expr.depth }
                }),
                _ => None,
            };
            if ty.is_none() {
                self.diagnostics.push(
                    Diagnostic::error(dimensions::GENERIC_KIND, "`Sequential` takes layers")
                        .at(span, "not a layer")
                        .help("for instance `Sequential<Linear<D, F>, GELU, Linear<F, D>>`"),
                );
                fine = false;
            }
            parts.extend(ty);
        }
        fine.then_some(parts)
    }

    /// Declares the layer for a list, and returns its name.
    fn layer(&mut self, list: LayerList, parts: Vec<Type>, name: String, span: Span) -> Option<String> {
        // A second field with this name is reported elsewhere.
        if !self.named.insert(name.clone()) {
            return None;
        }
        let mut fields = Vec::with_capacity(parts.len());
        for (number, mut ty) in parts.into_iter().enumerate() {
            let span = ty.span;
            if matches!(ty.kind, TypeKind::Tensor { .. } | TypeKind::Generic { .. }) {
                self.diagnostics.push(
                    Diagnostic::error(parameters::FIELD_TYPE, "a tuple can only contain layers")
                        .at(span, "not a layer")
                        .help("make each tensor a field of its own"),
                );
                ty.kind = TypeKind::Error;
            }
            self.ty(&mut ty, format!("{name}.{number}"));
            let name = Ident { name: number.to_string(), span };
            fields.push(Field {
                docs: String::new(),
                attributes: Vec::new(),
                is_state: false,
                name,
                ty,
                init: None,
                span,
            });
        }
        self.made.push(ast::Layer {
            kind: LayerKind::Layer,
            list: Some(list),
            docs: String::new(),
            attributes: Vec::new(),
            name: Ident { name: name.clone(), span },
            generics: self.head.generics.to_vec(),
            where_clauses: self.head.clauses.to_vec(),
            fields,
            functions: Vec::new(),
            span,
        });
        Some(name)
    }

    /// `<D, H, E>`: passes each generic on.
    fn own_generics(&self, span: Span) -> Vec<GenericArg> {
        let mut seen = BTreeSet::new();
        let own = self.head.generics.iter().filter(|generic| seen.insert(generic.name.name.as_str()));
        own.map(|generic| {
            let name = Ident { name: generic.name.name.clone(), span };
            let value = ast::Expr { kind: Written::Name(name.clone()), span, depth: 1 };
            GenericArg { name: Some(name), value: GenericValue::Expr(value), span }
        })
        .collect()
    }
}

/// The path of a name, or of names separated by dots.
fn path_of(expr: &ast::Expr) -> Option<Vec<Ident>> {
    match &expr.kind {
        Written::Name(name) => Some(vec![name.clone()]),
        Written::Field { base, name } => {
            let mut path = path_of(base)?;
            path.push(name.clone());
            Some(path)
        }
        _ => None,
    }
}

/// A layer of a list: instance, path, and source.
type ListedLayer = (Instance, LayerPath, String);

impl Body<'_> {
    /// Is a layer a list of layers?
    pub(super) fn list_of(&self, instance: &Instance) -> Option<LayerList> {
        self.items.layer(instance.layer).ast.list
    }

    /// The layers of a list; `None` if one of them is invalid, which was reported.
    fn parts_of(&self, instance: &Instance, path: &LayerPath, shown: &str) -> Option<Vec<ListedLayer>> {
        let fields = self.items.layer(instance.layer).fields.iter().enumerate();
        let each = |(index, field): (usize, &Option<super::typed::Field>)| {
            let Some(super::typed::Field { ty: FieldType::Layer(inner), .. }) = field else { return None };
            let mut path = path.clone();
            path.steps.push(Step { field: index, element: None });
            Some((compose(instance, inner), path, format!("{shown}.{index}")))
        };
        fields.map(each).collect()
    }

    /// `net(x)` of a `Sequential`: passes the arguments to its first layer, and each value to the
    /// next layer.
    pub(super) fn call_sequential(
        &mut self,
        span: Span,
        callee: Span,
        (instance, path): (Instance, LayerPath),
        args: &[ast::Arg],
    ) -> TypedExpr {
        let shown = self.written(callee);
        // A nested `Sequential` stands for its layers.
        let mut open = vec![(instance, path, shown)];
        let mut parts: Vec<ListedLayer> = Vec::new();
        while let Some((instance, path, shown)) = open.pop() {
            if self.list_of(&instance) != Some(LayerList::Sequential) {
                parts.push((instance, path, shown));
                continue;
            }
            match self.parts_of(&instance, &path, &shown) {
                Some(inner) => open.extend(inner.into_iter().rev()),
                None => {
                    self.arguments_alone(args);
                    return TypedExpr::error(span);
                }
            }
        }
        let mut statements = Vec::new();
        let mut value: Option<(TypedExpr, String)> = None;
        for (instance, path, shown) in parts {
            let Some(function) = self.items.method(instance.layer, "forward") else {
                return self.no_forward(&instance, callee, args);
            };
            let before = self.diagnostics.iter().count();
            let receiver = Some((instance.clone(), path));
            let made = match value.take() {
                None => self.call_function(span, callee, function, receiver, &[], args),
                Some((last, of)) => {
                    let Some(ty) = last.ty.settled() else { return TypedExpr::error(span) };
                    let local = LocalId(self.locals.len() as u32);
                    self.locals.push(Local { name: String::new(), ty: ty.clone(), is_assigned: false, span: callee });
                    let set = StmtKind::Set { pattern: Pattern::Local(local), value: last.expr };
                    statements.push(Stmt { kind: set, span });
                    let expr = Expr { kind: ExprKind::Local(local), ty: ty.clone(), span: callee };
                    self.call_with(span, (&of, &shown), function, receiver, TypedExpr { ty: Ty::from_type(&ty), expr })
                }
            };
            if made.ty.is_error() {
                let name = &self.items.layer(instance.layer).ast.name.name;
                self.diagnostics.note_after(before, &format!("`{shown}` is the layer `{name}`"));
                return TypedExpr::error(span);
            }
            value = Some((made, shown));
        }
        let Some((TypedExpr { ty, expr }, _)) = value else { return TypedExpr::error(span) };
        let settled = expr.ty.clone();
        let block = Block { statements, value: Some(Box::new(expr)) };
        TypedExpr { ty, expr: Expr { kind: ExprKind::Block(block), ty: settled, span } }
    }

    /// `net[1]` of a list: its layers have different types, so the index must be a literal.
    pub(super) fn part_at(
        &mut self,
        instance: &Instance,
        path: &LayerPath,
        indices: &[ast::Index],
        span: Span,
    ) -> LayerRef {
        let count = self.items.layer(instance.layer).fields.len();
        let known = match indices {
            [ast::Index::Expr(index)] => {
                let value = self.expr(index);
                match &value.ty {
                    Ty::Error => return LayerRef::Wrong,
                    Ty::Dim(at) => at.as_const().map(|at| (at, index.span)),
                    _ => None,
                }
            }
            _ => None,
        };
        let Some((at, place)) = known else {
            self.diagnostics.push(
                Diagnostic::error(shapes::INDEX_TYPE, "a layer of a tuple is chosen by a literal")
                    .at(span, "the layers may be of different types")
                    .help("iterate over them with `for layer in ..`, or make an array of layers of one type: `[Block<D>; L]`"),
            );
            return LayerRef::Wrong;
        };
        if at < 0 {
            self.in_range(&Dim::from(at), &Dim::from(count as i64), place);
            return LayerRef::Wrong;
        }
        match self.member_layer_ref(instance, path, &at.to_string()) {
            Some(found) => found,
            None => {
                self.in_range(&Dim::from(at), &Dim::from(count as i64), place);
                LayerRef::Wrong
            }
        }
    }

    /// `for layer in net` over a list of layers: the body is checked for each layer.
    pub(super) fn for_parts(
        &mut self,
        (instance, path): (Instance, LayerPath),
        (pattern, counted): (&ast::Pattern, bool),
        expr: &ast::Expr,
        body: &ast::Block,
    ) -> Option<StmtKind> {
        let shown = self.written(expr.span);
        let parts = self.parts_of(&instance, &path, &shown)?;
        let mut statements = Vec::with_capacity(parts.len());
        let (first_taps, mut taps) = (self.taps.clone(), BTreeMap::new());
        for (number, (instance, path, shown)) in parts.into_iter().enumerate() {
            self.bodies += 1;
            if self.bodies > MAX_BODIES {
                // Nested loops: all of them end here, with one message.
                if self.bodies == MAX_BODIES + 1 {
                    let message =
                        format!("loops over layers of different types have more than {MAX_BODIES} iterations in all");
                    self.diagnostics.push(
                        Diagnostic::error(entries::PROGRAM_SIZE, message)
                            .at(expr.span, "each iteration is compiled by itself")
                            .help(
                                "layers that are alike belong in an array of layers: a loop over it is compiled once",
                            ),
                    );
                }
                self.taps = taps;
                return None;
            }
            let before = self.diagnostics.iter().count();
            self.taps.clone_from(&first_taps);
            self.frames.push(BTreeMap::new());
            let of_layer = match pattern {
                ast::Pattern::Tuple { parts, .. } if counted => match parts.as_slice() {
                    [of_number, of_layer] => {
                        if let ast::Pattern::Name(name) = of_number {
                            self.bind(&name.name, Named::Dim(Dim::from(number as i64)), name.span, false);
                        }
                        of_layer
                    }
                    _ => pattern,
                },
                _ => pattern,
            };
            match of_layer {
                ast::Pattern::Ignore(_) => {}
                ast::Pattern::Name(name) if counted != std::ptr::eq(of_layer, pattern) => {
                    self.bind(&name.name, Named::Layer(instance, path), name.span, false);
                }
                _ => {
                    let expected = if counted { "expected two names" } else { "expected one name" };
                    self.diagnostics.push(
                        Diagnostic::error(shapes::PARTS, "a loop over layers has one layer in each iteration")
                            .at(pattern.span(), expected),
                    );
                    self.poison(pattern);
                }
            }
            self.loops.push(false);
            let (block, ty) = self.block(body);
            let has_break = self.loops.pop() == Some(true);
            let block = self.without_value(block, &ty);
            self.frames.pop();
            taps.append(&mut self.taps);
            if has_break {
                self.diagnostics.push(
                    not_available("`break` in a loop over layers of different types", body.span)
                        .help("use `if` instead"),
                );
            }
            let fails = self.diagnostics.iter().skip(before).any(|d| d.severity == crate::diagnostics::Severity::Error);
            if fails {
                if self.bodies > MAX_BODIES {
                    self.taps = taps;
                    return None;
                }
                self.diagnostics
                    .note_after(before, &format!("the body is checked for each layer; this is for `{shown}`"));
                self.taps = taps;
                return None;
            }
            if number > 0 {
                // Warnings about the body are the same for each layer.
                self.diagnostics.forget_after(before);
            }
            let empty = super::typed::Type::Tuple(Vec::new());
            let block = Expr { kind: ExprKind::Block(block), ty: empty, span: body.span };
            statements.push(Stmt { kind: StmtKind::Expr(block), span: body.span });
        }
        self.taps = taps;
        let block = Block { statements, value: None };
        let empty = super::typed::Type::Tuple(Vec::new());
        Some(StmtKind::Expr(Expr { kind: ExprKind::Block(block), ty: empty, span: body.span }))
    }
}
