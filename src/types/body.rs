//! Bodies of functions: blocks, statements, variables and their scopes.
//!
//! In: a function with a known signature. Out: its typed body, the calls it makes, and its
//! conditions. Each function is checked once, for all values of its dimensions. An error is
//! reported once; its consequences are not.

use super::dims::DimScope;
use super::items::{FunctionItem, Items};
use super::misfit::type_misfit;
use super::typed::{
    Block, Condition, FunctionId, Instance, LayerId, LayerPath, Local, LocalId, Param, Stmt, StmtKind, Train, Type,
};
use super::values::{Ty, TypedExpr};
use crate::diagnostics::codes::{names, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics, NameKind, Severity};
use crate::shape::Dim;
use crate::source::{SourceMap, Span};
use crate::syntax::ast;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A name in scope.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub(super) what: Named,
    pub(super) span: Span,
    /// Should an unused binding be reported?
    pub(super) warn: bool,
    pub(super) used: bool,
}

impl Binding {
    /// Is the name the result of an error, such as an unknown name?
    pub(super) fn is_wrong(&self) -> bool {
        matches!(self.what, Named::Error)
    }
}

/// The meaning of a name in scope.
#[derive(Clone, Debug)]
pub(super) enum Named {
    Local {
        /// Index among the variables of the function.
        id: LocalId,
        /// Its type; open for a literal bound by `let`.
        ty: Ty,
        /// May it be assigned?
        is_var: bool,
    },
    /// A dimension bound by `let`.
    Dim(Dim),
    /// The loop variable of a loop over layers.
    Layer(Instance, LayerPath),
    /// An invalid declaration, which was reported.
    Error,
}

/// A call, kept for the checks that follow once all functions are checked.
#[derive(Clone, Debug)]
pub(super) struct MadeCall {
    pub(super) function: FunctionId,
    /// The callee's dimensions, including the dimensions of its layer.
    pub(super) dims: BTreeMap<String, Dim>,
    pub(super) span: Span,
}

/// The result of checking a body; empty for a function that is not checked because nothing calls
/// it.
#[derive(Default)]
pub(super) struct Checked {
    pub(super) params: Vec<Param>,
    pub(super) locals: Vec<Local>,
    pub(super) body: Block,
    pub(super) conditions: Vec<Condition>,
    pub(super) calls: Vec<MadeCall>,
    pub(super) lengths: Vec<String>,
    pub(super) trains: Vec<Train>,
}

/// The state while a body is checked.
pub(super) struct Body<'a> {
    pub(super) items: &'a Items<'a>,
    pub(super) sources: &'a SourceMap,
    pub(super) diagnostics: &'a mut Diagnostics,
    pub(super) scope: Rc<DimScope>,
    pub(super) owner: Option<LayerId>,
    pub(super) module: usize,
    pub(super) id: FunctionId,
    pub(super) frames: Vec<BTreeMap<String, Binding>>,
    pub(super) locals: Vec<Local>,
    pub(super) conditions: Vec<Condition>,
    pub(super) calls: Vec<MadeCall>,
    /// For each enclosing loop and branch: the number of variables before it, and which of them it
    /// assigns.
    pub(super) regions: Vec<(usize, BTreeSet<LocalId>)>,
    pub(super) taps: BTreeMap<String, Span>,
    /// The dimensions set by `let dim` in the body so far, whether or not they are in scope here.
    pub(super) lengths: Vec<String>,
    /// For each enclosing loop, innermost last: has a `break` of it been seen?
    pub(super) loops: Vec<bool>,
    /// The number of times that bodies of loops over layers of different types were checked.
    pub(super) bodies: usize,
    /// Counters of loops whose bounds are dimensions, with these bounds; `None` if they are
    /// invalid, which was reported.
    pub(super) counters: BTreeMap<LocalId, Option<(Dim, Dim)>>,
    /// Each `train` so far.
    pub(super) trains: Vec<Train>,
    /// Is this a trial check of a suggestion, not part of the program?
    pub(super) aside: bool,
    /// The parts of the file with syntax errors.
    unread: Vec<Span>,
}

/// Checks the body of a function.
pub(super) fn check(items: &Items<'_>, id: FunctionId, sources: &SourceMap, diagnostics: &mut Diagnostics) -> Checked {
    let item = items.function(id);
    let file = item.ast.span.file;
    let unread = diagnostics.iter().filter(|d| d.severity == Severity::Error && d.code.is_unread());
    let unread = unread.filter_map(|d| d.primary.as_ref().map(|label| label.span)).filter(|span| span.file == file);
    let unread: Vec<Span> = unread.collect();
    let mut body = Body {
        items,
        sources,
        diagnostics,
        scope: Rc::new(item.scope.clone()),
        owner: item.owner,
        module: item.module,
        id,
        frames: vec![BTreeMap::new()],
        locals: Vec::new(),
        conditions: Vec::new(),
        calls: Vec::new(),
        regions: Vec::new(),
        taps: BTreeMap::new(),
        lengths: Vec::new(),
        loops: Vec::new(),
        bodies: 0,
        counters: BTreeMap::new(),
        trains: Vec::new(),
        aside: false,
        unread,
    };
    let mut params = Vec::new();
    for (param, tensor) in item.ast.params.iter().zip(&item.params) {
        let ty = tensor.clone().map_or(Ty::Error, Ty::Tensor);
        let local = body.declare(&param.name, ty, false, false);
        params.push(Param { local, docs: param.docs.clone() });
    }
    let block = body.function_block(item);
    let Body { locals, conditions, calls, lengths, trains, .. } = body;
    Checked { params, locals, body: block, conditions, calls, lengths, trains }
}

impl<'a> Body<'a> {
    pub(super) fn function_block(&mut self, item: &FunctionItem<'_>) -> Block {
        let ast = &item.ast.body;
        self.frames.push(BTreeMap::new());
        let statements = self.statements(&ast.statements);
        let value = ast.value.as_deref().map(|value| self.tail(value));
        self.pop_frame();
        let Some(wanted) = &item.result else { return Block { statements, value: None } };
        let nothing = *wanted == Type::Tuple(Vec::new());
        let declared = item.ast.result.as_ref().map_or(item.ast.name.span, |ty| ty.span);
        match value {
            Some(value) if value.ty == Ty::Tuple(Vec::new()) || value.ty.is_error() => {
                if !value.ty.is_error() && !nothing {
                    self.diagnostics.push(
                        Diagnostic::error(shapes::NO_VALUE, "the function has no value")
                            .at(value.span(), "this has no value")
                            .also(declared, format!("{} is declared here", Ty::from_type(wanted))),
                    );
                }
                let mut statements = statements;
                if nothing && !value.ty.is_error() {
                    statements.push(Stmt { span: value.span(), kind: StmtKind::Expr(value.expr) });
                }
                Block { statements, value: None }
            }
            Some(value) if nothing => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::RESULT, "the function has a value but declares none")
                        .at(value.span(), format!("{}", value.ty))
                        .also(item.ast.name.span, "no `->` and type after its arguments")
                        .help(format!(
                            "declare it: `-> {}`",
                            value.ty.settled().as_ref().map_or(Ty::Error, Ty::from_type)
                        )),
                );
                Block { statements, value: None }
            }
            Some(value) => {
                let expr = self.fit(value, wanted, &|ty, span, scope| {
                    result_misfit(ty, wanted, span, declared, &item.ast.name.name, scope)
                });
                Block { statements, value: expr.map(Box::new) }
            }
            None if nothing => Block { statements, value: None },
            None => {
                if !self.is_unread(ast) {
                    let end = Span::new(ast.span.file, ast.span.end.saturating_sub(1), ast.span.end);
                    self.diagnostics.push(
                        Diagnostic::error(shapes::NO_VALUE, format!("`{}` has no value", item.ast.name.name))
                            .at(end, "the last expression before this would be the value")
                            .also(declared, format!("{} is declared here", Ty::from_type(wanted))),
                    );
                }
                Block { statements, value: None }
            }
        }
    }

    /// The last expression of a block: an `if` without `else` is a statement there.
    pub(super) fn tail(&mut self, value: &ast::Expr) -> TypedExpr {
        self.expr_or_statement(value)
    }

    /// Checks a block in a scope of its own.
    pub(super) fn block(&mut self, block: &ast::Block) -> (Block, Ty) {
        self.frames.push(BTreeMap::new());
        let (scope, lengths) = (self.scope.clone(), self.lengths.len());
        let mut statements = self.statements(&block.statements);
        if let (Some(value), Some(last)) = (&block.value, statements.last().filter(|last| last.kind.breaks())) {
            self.unreached(value.span, last.span);
        }
        let value = block.value.as_deref().map(|value| self.tail(value)).map(|value| self.leaving(value, lengths));
        self.scope = scope;
        self.pop_frame();
        match value {
            None if self.is_unread(block) => (Block { statements, value: None }, Ty::Error),
            None => (Block { statements, value: None }, Ty::Tuple(Vec::new())),
            Some(value) if value.ty == Ty::Tuple(Vec::new()) => {
                statements.push(Stmt { span: value.span(), kind: StmtKind::Expr(value.expr) });
                (Block { statements, value: None }, Ty::Tuple(Vec::new()))
            }
            Some(value) => (Block { statements, value: Some(Box::new(value.expr)) }, value.ty),
        }
    }

    /// Does the end of a block have a syntax error, so that its value may be missing for that
    /// reason?
    fn is_unread(&self, block: &ast::Block) -> bool {
        let inside =
            |span: Span| span.file == block.span.file && block.span.start <= span.start && span.start <= block.span.end;
        match block.statements.last() {
            Some(last) => last.kind == ast::StmtKind::Error,
            // A block that is nested too deeply is left empty by the parser.
            None => self
                .diagnostics
                .iter()
                .any(|d| d.severity == Severity::Error && d.primary.as_ref().is_some_and(|label| inside(label.span))),
        }
    }

    pub(super) fn pop_frame(&mut self) {
        for (name, binding) in self.frames.pop().unwrap_or_default() {
            self.warn_unused(&name, &binding);
        }
    }

    pub(super) fn warn_unused(&mut self, name: &str, binding: &Binding) {
        if !binding.used && binding.warn && !name.starts_with('_') && !self.has_unread_parts() {
            self.diagnostics.push(
                Diagnostic::warning(names::UNUSED, format!("`{name}` is never used"))
                    .at(binding.span, "not used after this")
                    .help(format!("if this is intended, call it `_{name}`")),
            );
        }
    }

    /// Does the function have parts with syntax errors? Then variables that seem unused may be used
    /// there.
    fn has_unread_parts(&self) -> bool {
        let whole = self.items.function(self.id).ast.span;
        self.unread.iter().any(|span| whole.start <= span.start && span.start <= whole.end)
    }

    /// Was a name declared in a part of the file with syntax errors?
    pub(super) fn is_lost(&self, name: &ast::Ident) -> bool {
        // After many messages nobody reads on, and each search takes time.
        if self.unread.is_empty() || self.aside || self.diagnostics.iter().nth(200).is_some() {
            return false;
        }
        let text = self.sources.get(name.span.file).map_or("", |file| file.text());
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let declares = |at: usize| {
            let before = text.get(..at).unwrap_or_default().trim_end();
            let after = text.get(at + name.name.len()..).unwrap_or_default();
            let whole = !text.get(..at).unwrap_or_default().ends_with(is_word) && !after.starts_with(is_word);
            whole && (["fn", "def", "layer", "model", "class"].iter().any(|word| before.ends_with(word)))
        };
        text.match_indices(name.name.as_str()).any(|(at, _)| declares(at))
    }

    /// Declares an unknown name as an error, so that it is reported only once.
    pub(super) fn poison_name(&mut self, name: &ast::Ident) {
        if self.aside {
            return;
        }
        let binding = Binding { what: Named::Error, span: Span::default(), warn: false, used: true };
        if let Some(frame) = self.frames.first_mut() {
            frame.entry(name.name.clone()).or_insert(binding);
        }
    }

    /// Declares the names in a statement with a syntax error as errors.
    pub(super) fn poison_words(&mut self, span: Span) {
        let text = self.sources.text(span).to_string();
        for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
            if word.starts_with(|c: char| c.is_alphabetic() || c == '_') && self.lookup(word).is_none() {
                self.poison_name(&ast::Ident { name: word.to_string(), span });
            }
        }
    }

    /// Declares a variable in the innermost scope.
    pub(super) fn declare(&mut self, name: &ast::Ident, ty: Ty, is_var: bool, warn: bool) -> LocalId {
        let id = LocalId(self.locals.len() as u32);
        let settled = ty.settled().unwrap_or(Type::Tuple(Vec::new()));
        self.locals.push(Local { name: name.name.clone(), ty: settled, is_assigned: false, span: name.span });
        let what = if ty.is_error() { Named::Error } else { Named::Local { id, ty, is_var } };
        self.bind(&name.name, what, name.span, warn);
        id
    }

    pub(super) fn bind(&mut self, name: &str, what: Named, span: Span, warn: bool) {
        let warn = warn && !matches!(what, Named::Error);
        let kind = self.kind(&what, self.frames.len());
        self.diagnostics.refer(span, span, kind);
        let binding = Binding { what, span, warn, used: false };
        if let Some(frame) = self.frames.last_mut()
            && let Some(old) = frame.insert(name.to_string(), binding)
        {
            self.warn_unused(name, &old);
        }
    }

    /// The meaning of a name in scope; marks it as used.
    pub(super) fn lookup(&mut self, name: &str) -> Option<Named> {
        let binding = self.frames.iter_mut().rev().find_map(|frame| frame.get_mut(name))?;
        binding.used = true;
        Some(binding.what.clone())
    }

    /// The meaning of a name in scope, which is used here.
    pub(super) fn resolve(&mut self, name: &ast::Ident) -> Option<Named> {
        let what = self.lookup(&name.name)?;
        self.refer_binding(name);
        Some(what)
    }

    /// Records that a name refers to a binding.
    pub(super) fn refer_binding(&mut self, name: &ast::Ident) {
        let mut frames = self.frames.iter().enumerate().rev();
        let found = frames.find_map(|(depth, frame)| Some((frame.get(&name.name)?, depth + 1)));
        if let Some((binding, depth)) = found {
            let (declared, kind) = (binding.span, self.kind(&binding.what, depth));
            self.diagnostics.refer(name.span, declared, kind);
        }
    }

    /// Records that a name refers to a field of a layer.
    pub(super) fn refer_field(&mut self, name: &ast::Ident, layer: LayerId, field: usize) {
        if let Some(field) = self.items.layer(layer).ast.fields.get(field) {
            self.diagnostics.refer(name.span, field.name.span, NameKind::Field);
        }
    }

    /// The kind of a name in one of the nested scopes, of which the first has the arguments.
    fn kind(&self, what: &Named, depth: usize) -> NameKind {
        match what {
            Named::Dim(dim) if dim.as_symbol().is_some() => NameKind::Generic,
            _ if depth == 1 => NameKind::Parameter,
            Named::Dim(_) | Named::Local { .. } | Named::Layer(..) | Named::Error => NameKind::Variable,
        }
    }

    /// Runs `run`, and returns the outer variables that it assigns.
    pub(super) fn region<T>(&mut self, run: impl FnOnce(&mut Body<'a>) -> T) -> (T, Vec<LocalId>) {
        self.regions.push((self.locals.len(), BTreeSet::new()));
        let result = run(self);
        let (_, assigned) = self.regions.pop().unwrap_or_default();
        (result, assigned.into_iter().collect())
    }
}

pub(super) fn result_misfit(
    ty: &Ty,
    wanted: &Type,
    span: Span,
    declared: Span,
    name: &str,
    scope: &DimScope,
) -> Diagnostic {
    type_misfit(
        Diagnostic::error(shapes::RESULT, format!("`{name}`: expected {wanted}, found {ty}"))
            .at(span, ty.to_string())
            .also(declared, format!("declared as {wanted} here")),
        ty,
        &Ty::from_type(wanted),
        scope,
    )
}
