//! The builder of the syntax tree, called by the grammar's actions.
//!
//! In: the parts that the parser has read. Out: nodes of [`super::ast`], none deeper than
//! [`MAX_DEPTH`], and the diagnostics that concern whole nodes: chained comparisons, invalid
//! assignment targets, escapes in strings, unused values.

use super::ast::*;
use super::token::Token;
use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics, MAX_KEPT};
use crate::shape::Elem;
use crate::source::{FileId, Span};
use lalrpop_util::ParseError;

/// A syntax error reported by LALRPOP.
pub type SyntaxError<'a> = ParseError<u32, Token<'a>, ()>;

/// Builds the nodes of one file.
pub struct Builder<'a> {
    file: FileId,
    /// Syntax errors that the grammar recovered from, in order of occurrence.
    pub errors: Vec<SyntaxError<'a>>,
    /// Errors found by the builder itself.
    pub diagnostics: Diagnostics,
}

/// A prefix of an item, field or function.
pub enum Meta {
    /// A doc comment's line, without slashes.
    Doc(String),
    /// The contents of `#[..]`.
    Attribute(Attribute),
}

/// A layer or model up to its `{`.
pub struct LayerHead {
    /// Byte offset of its start.
    pub start: u32,
    /// `layer`, `model` or `rule`.
    pub kind: LayerKind,
    /// As declared.
    pub name: Ident,
    /// `<..>`
    pub generics: Vec<GenericParam>,
    /// Conditions after `where`.
    pub where_clauses: Vec<Expr>,
}

/// A function up to its `{`.
pub struct FunctionHead {
    /// Byte offset of its start.
    pub start: u32,
    /// Is it preceded by `pub`?
    pub is_pub: bool,
    /// As declared.
    pub name: Ident,
    /// `<..>`
    pub generics: Vec<GenericParam>,
    /// `(..)`
    pub params: Vec<Param>,
    /// The type after `->`.
    pub result: Option<Type>,
    /// Conditions after `where`.
    pub where_clauses: Vec<Expr>,
}

/// An entry between the braces of a layer.
pub enum Member {
    /// A parameter, sub-layer or state.
    Field(Field),
    /// A function of the layer.
    Function(Function),
}

/// A list of statements that the grammar builds one at a time.
#[derive(Default)]
pub struct Statements {
    list: Vec<Stmt>,
}

impl Statements {
    /// A list of one statement.
    pub fn single(stmt: Stmt) -> Statements {
        Statements { list: vec![stmt] }
    }

    /// Appends a statement.
    pub fn and(mut self, stmt: Stmt) -> Statements {
        self.list.push(stmt);
        self
    }
}

impl<'a> Builder<'a> {
    /// A builder for the nodes of `file`.
    pub fn new(file: FileId) -> Builder<'a> {
        Builder { file, errors: Vec::new(), diagnostics: Diagnostics::new() }
    }

    /// The span `start..end`; for an empty node (a recovered error) `end` may be before `start`.
    pub fn span(&self, start: u32, end: u32) -> Span {
        Span::new(self.file, start, end.max(start))
    }

    /// Records a syntax error that the grammar recovered from.
    pub fn recover(&mut self, error: lalrpop_util::ErrorRecovery<u32, Token<'a>, ()>) {
        // Further errors are only counted, because each holds a list of expected tokens.
        if self.errors.len() < MAX_KEPT {
            self.errors.push(error.error);
        }
    }

    /// `use path`
    pub fn use_item(&mut self, meta: Vec<Meta>, start: u32, path: Vec<Ident>, end: u32) -> Item {
        let (_, attributes) = split_meta(meta);
        if let Some(attribute) = attributes.first() {
            self.diagnostics.push(
                Diagnostic::error(codes::UNEXPECTED, "`use` takes no attributes").at(attribute.span, "remove this"),
            );
        }
        Item::Use(Use { path, span: self.span(start, end) })
    }

    /// Builds a layer or model.
    pub fn layer(&mut self, meta: Vec<Meta>, head: LayerHead, members: Vec<Member>, end: u32) -> Item {
        let (docs, attributes) = split_meta(meta);
        let (mut fields, mut functions) = (Vec::new(), Vec::new());
        for member in members {
            match member {
                Member::Field(field) => fields.push(field),
                Member::Function(function) => functions.push(function),
            }
        }
        Item::Layer(Layer {
            kind: head.kind,
            list: None,
            docs,
            attributes,
            name: head.name,
            generics: head.generics,
            where_clauses: head.where_clauses,
            fields,
            functions,
            span: self.span(head.start, end),
        })
    }

    /// Builds a function.
    pub fn function(&mut self, meta: Vec<Meta>, head: FunctionHead, body: Block) -> Function {
        let (docs, attributes) = split_meta(meta);
        let span = self.span(head.start, body.span.end);
        Function {
            docs,
            attributes,
            is_pub: head.is_pub,
            name: head.name,
            generics: head.generics,
            params: head.params,
            result: head.result,
            where_clauses: head.where_clauses,
            body,
            span,
        }
    }

    /// Builds a field.
    pub fn field(
        &mut self,
        meta: Vec<Meta>,
        span: Span,
        is_state: bool,
        name: Ident,
        ty: Type,
        init: Option<Expr>,
    ) -> Field {
        let (docs, attributes) = split_meta(meta);
        Field { docs, attributes, is_state, name, ty, init, span }
    }

    /// Builds a parameter.
    pub fn param(&mut self, docs: Vec<&str>, name: Ident, ty: Type, default: Option<Expr>, span: Span) -> Param {
        let docs = split_meta(docs.into_iter().map(|line| Meta::Doc(line.to_string())).collect()).0;
        Param { docs, name, ty, default, span }
    }

    // Types.

    fn ty(&mut self, kind: TypeKind, span: Span, below: u16) -> Type {
        if below >= MAX_DEPTH {
            self.too_deep(span);
            return Type { kind: TypeKind::Error, span, depth: 1 };
        }
        Type { kind, span, depth: below + 1 }
    }

    /// `f32[..]`
    pub fn tensor_type(&mut self, start: u32, elem: Elem, dims: Option<Vec<DimSpec>>, end: u32) -> Type {
        let dims = dims.unwrap_or_default();
        let below = deepest_dim(&dims);
        self.ty(TypeKind::Tensor { elem, dims }, self.span(start, end), below)
    }

    /// `E[..]`
    pub fn generic_type(&mut self, start: u32, elem: Ident, dims: Vec<DimSpec>, end: u32) -> Type {
        let below = deepest_dim(&dims);
        self.ty(TypeKind::Generic { elem, dims }, self.span(start, end), below)
    }

    /// `Name<..>`
    pub fn named_type(&mut self, start: u32, path: Vec<Ident>, generics: Option<Vec<GenericArg>>, end: u32) -> Type {
        let generics = generics.unwrap_or_default();
        let below = deepest_generic(&generics);
        self.ty(TypeKind::Named { path, generics }, self.span(start, end), below)
    }

    /// `Name<..>` as a generic argument; `base` was parsed as an expression before `<`.
    pub fn layer_generic(&mut self, base: Expr, generics: Vec<GenericArg>, end: u32) -> GenericValue {
        let start = base.span.start;
        let mut path = Vec::new();
        let mut open = base;
        loop {
            match open.kind {
                ExprKind::Name(name) => {
                    path.push(name);
                    path.reverse();
                    return GenericValue::Layer(self.named_type(start, path, Some(generics), end));
                }
                ExprKind::Field { base, name } => {
                    path.push(name);
                    open = *base;
                }
                _ => {
                    let span = self.span(start, end);
                    self.diagnostics.push(
                        Diagnostic::error(codes::UNEXPECTED, "`<` cannot stand here")
                            .at(span, "expected a dimension, a constant, an element type or a layer"),
                    );
                    return GenericValue::Expr(Expr { kind: ExprKind::Error, span, depth: 1 });
                }
            }
        }
    }

    /// `net.0`
    pub fn part_access(&mut self, base: Expr, start: u32, number: u64, end: u32) -> Expr {
        let name = Ident { name: number.to_string(), span: self.span(start, end) };
        self.field_access(base, name)
    }

    /// `[T; n]`
    pub fn array_type(&mut self, start: u32, element: Type, length: Expr, end: u32) -> Type {
        let below = element.depth.max(length.depth);
        let kind = TypeKind::Array { element: Box::new(element), length: Box::new(length) };
        self.ty(kind, self.span(start, end), below)
    }

    /// `(A, B)`; a single type in parentheses is that type.
    pub fn tuple_type(&mut self, start: u32, mut parts: Vec<Type>, end: u32) -> Type {
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return only;
        }
        let below = parts.iter().map(|part| part.depth).max().unwrap_or(0);
        self.ty(TypeKind::Tuple(parts), self.span(start, end), below)
    }

    // Statements.

    /// Builds a statement.
    pub fn stmt(&mut self, start: u32, kind: StmtKind, end: u32) -> Stmt {
        Stmt { kind, span: self.span(start, end) }
    }

    /// `target = value`
    pub fn assign(&mut self, start: u32, target: Expr, value: Expr, end: u32) -> Stmt {
        if !is_target(&target) {
            self.diagnostics.push(
                Diagnostic::error(codes::BAD_TARGET, "this cannot be assigned to")
                    .at(target.span, "")
                    .help("assign to the name of a `var`, or to a tuple of such names; `==` compares"),
            );
            return self.stmt(start, StmtKind::Error, end);
        }
        self.stmt(start, StmtKind::Assign { target, value }, end)
    }

    /// A name in a pattern; `_` binds nothing.
    pub fn name_pattern(&mut self, name: Ident) -> Pattern {
        if name.name == "_" { Pattern::Ignore(name.span) } else { Pattern::Name(name) }
    }

    /// `{ .. }`
    pub fn block(&mut self, start: u32, statements: Statements, end: u32) -> Block {
        let span = self.span(start, end);
        let mut list = statements.list;
        let below = list.iter().map(depth_of_stmt).max().unwrap_or(0);
        if below >= MAX_DEPTH {
            self.too_deep(span);
            return Block { statements: Vec::new(), value: None, span, depth: 1 };
        }
        let value = match list.pop() {
            Some(Stmt { kind: StmtKind::Expr(expr), .. }) => Some(Box::new(expr)),
            Some(last) => {
                list.push(last);
                None
            }
            None => None,
        };
        for stmt in &list {
            self.check_used(stmt);
        }
        Block { statements: list, value, span, depth: below + 1 }
    }

    /// Reports an expression before the end of a block, whose value is unused, unless it has
    /// effects.
    fn check_used(&mut self, stmt: &Stmt) {
        let StmtKind::Expr(expr) = &stmt.kind else { return };
        if matches!(
            expr.kind,
            ExprKind::If { .. } | ExprKind::Block(_) | ExprKind::Call { .. } | ExprKind::Train(_) | ExprKind::Error
        ) {
            return;
        }
        let mut diagnostic = Diagnostic::error(codes::UNUSED_VALUE, "the value of this line is unused")
            .at(expr.span, "")
            .help("the value of a block is its last line; name other values with `let`");
        if let ExprKind::Unary { op: op @ (UnaryOp::Neg | UnaryOp::Plus), op_span, .. } = &expr.kind
            && op_span.start == expr.span.start
        {
            diagnostic = diagnostic.help(format!(
                "to continue the previous line, put `{}` at its end, or the whole expression in parentheses",
                op.symbol()
            ));
        }
        self.diagnostics.push(diagnostic);
    }

    // Expressions.

    fn expr(&mut self, kind: ExprKind, span: Span, below: u16) -> Expr {
        if below >= MAX_DEPTH {
            self.too_deep(span);
            return Expr { kind: ExprKind::Error, span, depth: 1 };
        }
        Expr { kind, span, depth: below + 1 }
    }

    fn too_deep(&mut self, span: Span) {
        let start = Span::new(span.file, span.start, span.start.saturating_add(1).min(span.end));
        self.diagnostics.push(
            Diagnostic::error(codes::TOO_DEEP, format!("nested more than {MAX_DEPTH} levels deep"))
                .at(start, "nested too deeply from this point")
                .help("give parts of the expression names with `let`"),
        );
    }

    /// An expression without subexpressions.
    pub fn leaf(&mut self, start: u32, kind: ExprKind, end: u32) -> Expr {
        Expr { kind, span: self.span(start, end), depth: 1 }
    }

    /// A name as an expression.
    pub fn name(&mut self, name: Ident) -> Expr {
        Expr { span: name.span, kind: ExprKind::Name(name), depth: 1 }
    }

    /// A string literal; resolves its escapes.
    pub fn string(&mut self, start: u32, written: &str, end: u32) -> Expr {
        let span = self.span(start, end);
        let mut text = String::with_capacity(written.len());
        let mut chars = written.char_indices();
        while let Some((at, c)) = chars.next() {
            if c != '\\' {
                text.push(c);
                continue;
            }
            match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, c @ ('\\' | '"'))) => text.push(c),
                other => {
                    let place = start + 1 + at as u32;
                    let length = 1 + other.map_or(0, |(_, c)| c.len_utf8() as u32);
                    self.diagnostics.push(
                        Diagnostic::error(codes::BAD_ESCAPE, "this escape is not known")
                            .at(self.span(place, place + length), "")
                            .help("known are `\\n`, `\\t`, `\\\\` and `\\\"`"),
                    );
                }
            }
        }
        Expr { kind: ExprKind::Str(text), span, depth: 1 }
    }

    /// `(a, b)`
    pub fn tuple(&mut self, start: u32, first: Expr, rest: Vec<Expr>, end: u32) -> Expr {
        let parts: Vec<Expr> = std::iter::once(first).chain(rest).collect();
        let below = deepest(&parts);
        self.expr(ExprKind::Tuple(parts), self.span(start, end), below)
    }

    /// `[a, b]`
    pub fn list(&mut self, start: u32, items: Vec<Expr>, end: u32) -> Expr {
        let below = deepest(&items);
        self.expr(ExprKind::List(items), self.span(start, end), below)
    }

    /// `-x`
    pub fn unary(&mut self, op: UnaryOp, start: u32, end: u32, operand: Expr) -> Expr {
        let op_span = self.span(start, end);
        let (span, below) = (op_span.to(operand.span), operand.depth);
        self.expr(ExprKind::Unary { op, op_span, operand: Box::new(operand) }, span, below)
    }

    /// `a + b`
    pub fn binary(&mut self, op: BinaryOp, left: Expr, start: u32, end: u32, right: Expr) -> Expr {
        let op_span = self.span(start, end);
        let (span, below) = (left.span.to(right.span), left.depth.max(right.depth));
        self.expr(ExprKind::Binary { op, op_span, left: Box::new(left), right: Box::new(right) }, span, below)
    }

    /// `a < b`
    pub fn compare(&mut self, left: Expr, (op, place): (BinaryOp, Span), right: Expr) -> Expr {
        self.binary(op, left, place.start, place.end, right)
    }

    /// `a < b < c`, which is reported.
    pub fn chain(&mut self, left: Expr, (op, place): (BinaryOp, Span), right: Expr) -> Expr {
        let span = left.span.to(right.span);
        if let ExprKind::Binary { op: first, op_span, .. } = left.kind {
            self.diagnostics.push(
                Diagnostic::error(codes::CHAINED_COMPARISON, "comparisons cannot be chained")
                    .at(place, "")
                    .also(op_span, "the first comparison")
                    .help(format!("write `a {} b and b {} c`", first.symbol(), op.symbol())),
            );
        }
        Expr { kind: ExprKind::Error, span, depth: 1 }
    }

    /// `f(..)`
    pub fn call(&mut self, callee: Expr, generics: Vec<GenericArg>, args: Vec<Arg>, end: u32) -> Expr {
        let span = self.span(callee.span.start, end);
        let args_below = args.iter().map(|arg| arg.value.depth).max().unwrap_or(0);
        let below = callee.depth.max(args_below).max(deepest_generic(&generics));
        let named = args.iter().position(|arg| arg.name.is_some()).unwrap_or(args.len());
        for arg in args.iter().skip(named).filter(|arg| arg.name.is_none()) {
            self.diagnostics.push(
                Diagnostic::error(codes::ARGUMENT_ORDER, "positional argument after a named argument")
                    .at(arg.span, "")
                    .also(args[named].span, "arguments after this one must be named"),
            );
        }
        self.expr(ExprKind::Call { callee: Box::new(callee), generics, args }, span, below)
    }

    /// `where(..)`, the function whose name is a keyword.
    pub fn where_call(&mut self, start: u32, name_end: u32, args: Vec<Arg>, end: u32) -> Expr {
        let name = Ident { name: "where".to_string(), span: self.span(start, name_end) };
        let callee = self.name(name);
        self.call(callee, Vec::new(), args, end)
    }

    /// `x[..]`
    pub fn index(&mut self, base: Expr, indices: Vec<Index>, end: u32) -> Expr {
        let span = self.span(base.span.start, end);
        let depths = indices.iter().map(|index| match index {
            Index::Rest(_) => 0,
            Index::Expr(expr) => expr.depth,
            Index::Range { start, end, step, .. } => {
                let depth = |expr: &Option<Expr>| expr.as_ref().map_or(0, |expr| expr.depth);
                depth(start).max(depth(end)).max(depth(step))
            }
        });
        let below = depths.max().unwrap_or(0).max(base.depth);
        self.expr(ExprKind::Index { base: Box::new(base), indices }, span, below)
    }

    /// `x.name`
    pub fn field_access(&mut self, base: Expr, name: Ident) -> Expr {
        let (span, below) = (base.span.to(name.span), base.depth);
        self.expr(ExprKind::Field { base: Box::new(base), name }, span, below)
    }

    /// `{ .. }` as a value.
    pub fn block_expr(&mut self, block: Block) -> Expr {
        let (span, below) = (block.span, block.depth);
        self.expr(ExprKind::Block(block), span, below)
    }

    /// `train loss, .. { .. }`
    pub fn train(&mut self, start: u32, loss: Expr, settings: Vec<Arg>, arms: Vec<Arm>, end: u32) -> Expr {
        let clauses = arms.iter().flat_map(|arm| &arm.where_clauses);
        let args = settings.iter().chain(arms.iter().flat_map(|arm| arm.args.iter().flatten()));
        let below = clauses.chain(args.map(|arg| &arg.value)).map(|expr| expr.depth).max().unwrap_or(0).max(loss.depth);
        self.expr(ExprKind::Train(Box::new(Train { loss, settings, arms })), self.span(start, end), below)
    }

    /// `"pattern" where rank == 2: Rule(..)`
    pub fn arm(
        &mut self,
        pattern: Expr,
        where_clauses: Vec<Expr>,
        rule: Vec<Ident>,
        args: Option<Vec<Arg>>,
        end: u32,
    ) -> Arm {
        let (span, pattern_span) = (self.span(pattern.span.start, end), pattern.span);
        let pattern = if let ExprKind::Str(text) = pattern.kind { text } else { String::new() };
        Arm { pattern, pattern_span, where_clauses, rule, args, span }
    }

    /// `if a {} else if b {} else {}`
    pub fn if_expr(&mut self, arms: Vec<(u32, Expr, Block)>, last: Option<Block>) -> Expr {
        let mut otherwise = last.map(|block| self.block_expr(block));
        let mut whole = None;
        for (start, condition, then) in arms.into_iter().rev() {
            let end = otherwise.as_ref().map_or(then.span.end, |expr| expr.span.end);
            let below = otherwise.as_ref().map_or(0, |expr| expr.depth).max(condition.depth).max(then.depth);
            let kind = ExprKind::If { condition: Box::new(condition), then, otherwise: otherwise.take().map(Box::new) };
            let expr = self.expr(kind, self.span(start, end), below);
            whole = Some(expr.span);
            otherwise = Some(expr);
        }
        otherwise.unwrap_or(Expr { kind: ExprKind::Error, span: whole.unwrap_or(self.span(0, 0)), depth: 1 })
    }
}

fn deepest(exprs: &[Expr]) -> u16 {
    exprs.iter().map(|expr| expr.depth).max().unwrap_or(0)
}

fn deepest_dim(dims: &[DimSpec]) -> u16 {
    let depths = dims.iter().map(|dim| match dim {
        DimSpec::Rest(_) => 0,
        DimSpec::Dim(expr) => expr.depth,
    });
    depths.max().unwrap_or(0)
}

fn deepest_generic(generics: &[GenericArg]) -> u16 {
    let depths = generics.iter().map(|generic| match &generic.value {
        GenericValue::Expr(expr) => expr.depth,
        GenericValue::Elem(_) => 0,
        GenericValue::Layer(ty) => ty.depth,
    });
    depths.max().unwrap_or(0)
}

fn depth_of_stmt(stmt: &Stmt) -> u16 {
    match &stmt.kind {
        StmtKind::Let { ty, value, .. } | StmtKind::Var { ty, value, .. } => {
            value.depth.max(ty.as_ref().map_or(0, |ty| ty.depth))
        }
        StmtKind::Length { value, where_clauses, .. } => {
            where_clauses.iter().fold(value.depth, |depth, clause| depth.max(clause.depth))
        }
        StmtKind::Assign { target, value } => target.depth.max(value.depth),
        StmtKind::For { iterable, body, .. } => {
            let iterable = match iterable {
                Iterable::Range { start, end } => start.depth.max(end.depth),
                Iterable::Expr(expr) => expr.depth,
            };
            iterable.max(body.depth)
        }
        StmtKind::While { condition, body } => condition.depth.max(body.depth),
        StmtKind::Expr(expr) => expr.depth,
        StmtKind::Tap { .. } | StmtKind::Reset { .. } | StmtKind::Break | StmtKind::Error => 0,
    }
}

fn is_target(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Name(_) | ExprKind::Error => true,
        ExprKind::Index { base, .. } => matches!(base.kind, ExprKind::Name(_) | ExprKind::Error),
        ExprKind::Tuple(parts) => parts.iter().all(is_target),
        _ => false,
    }
}

/// Separates docs (one leading space of each line removed, lines joined) and attributes.
fn split_meta(meta: Vec<Meta>) -> (String, Vec<Attribute>) {
    let (mut docs, mut attributes) = (Vec::new(), Vec::new());
    for part in meta {
        match part {
            Meta::Doc(line) => docs.push(line.strip_prefix(' ').unwrap_or(&line).trim_end().to_string()),
            Meta::Attribute(attribute) => attributes.push(attribute),
        }
    }
    (docs.join("\n"), attributes)
}
