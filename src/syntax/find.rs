//! Finds what is written at a location: expressions by where they begin and by their operation, and
//! the statements around them.
//!
//! In: a syntax tree. Out: its expressions, with the functions that contain them. Operations have
//! the names that the IRs give them.

use super::ast::*;
use crate::source::Span;

/// An expression in its surroundings.
#[derive(Clone, Copy)]
pub struct Occurrence<'t> {
    /// The expression.
    pub expr: &'t Expr,
    /// The range of the function that contains it.
    pub function: Span,
    /// Is it an operand of an operator, so that operators in it may need parentheses?
    pub is_operand: bool,
}

/// The expressions, statements and variables of a file's functions.
#[derive(Default)]
pub struct Finder<'t> {
    function: Span,
    exprs: Vec<Occurrence<'t>>,
    /// Each with the range of its block.
    statements: Vec<(&'t Stmt, Span)>,
    /// Each declaration and assignment of a variable, with its function.
    bound: Vec<(&'t str, Span)>,
}

impl<'t> Finder<'t> {
    /// The contents of a file.
    pub fn new(tree: &'t File) -> Finder<'t> {
        let mut finder = Finder::default();
        for item in &tree.items {
            match item {
                Item::Use(_) => {}
                Item::Function(f) => finder.function(f),
                Item::Layer(layer) => layer.functions.iter().for_each(|f| finder.function(f)),
            }
        }
        finder
    }

    /// The expressions that begin at an offset and are an operation of this name, outermost first.
    pub fn at(&self, offset: u32, op: &str) -> impl Iterator<Item = Occurrence<'t>> {
        self.exprs.iter().filter(move |found| found.expr.span.start == offset && is_operation(found.expr, op)).copied()
    }

    /// The innermost statement that contains an offset, and the range of its block.
    pub fn statement(&self, offset: u32) -> Option<(&'t Stmt, Span)> {
        let around = self.statements.iter().filter(|(s, _)| s.span.start <= offset && offset < s.span.end);
        around.copied().min_by_key(|(s, _)| s.span.end - s.span.start)
    }

    /// How often a function declares or assigns a variable.
    pub fn bindings(&self, function: Span, name: &str) -> usize {
        self.bound.iter().filter(|(known, owner)| *known == name && *owner == function).count()
    }

    fn function(&mut self, f: &'t Function) {
        self.function = f.span;
        self.bound.extend(f.params.iter().map(|param| (param.name.name.as_str(), f.span)));
        self.block(&f.body);
    }

    fn block(&mut self, block: &'t Block) {
        for stmt in &block.statements {
            self.statements.push((stmt, block.span));
            match &stmt.kind {
                StmtKind::Let { pattern, value, .. } | StmtKind::Var { pattern, value, .. } => {
                    self.pattern(pattern);
                    self.expr(value, false);
                }
                StmtKind::Length { name, value, .. } => {
                    self.bound.push((&name.name, self.function));
                    self.expr(value, false);
                }
                StmtKind::Assign { target, value } => {
                    self.assigned(target);
                    self.expr(target, true);
                    self.expr(value, false);
                }
                StmtKind::For { pattern, iterable, body } => {
                    self.pattern(pattern);
                    match iterable {
                        Iterable::Range { start, end } => [start, end].into_iter().for_each(|e| self.expr(e, true)),
                        Iterable::Expr(expr) => self.expr(expr, true),
                    }
                    self.block(body);
                }
                StmtKind::While { condition, body } => {
                    self.expr(condition, true);
                    self.block(body);
                }
                StmtKind::Expr(expr) => self.expr(expr, false),
                StmtKind::Tap { .. } | StmtKind::Reset { .. } | StmtKind::Break | StmtKind::Error => {}
            }
        }
        if let Some(value) = &block.value {
            self.expr(value, false);
        }
    }

    fn pattern(&mut self, pattern: &'t Pattern) {
        match pattern {
            Pattern::Name(name) => self.bound.push((&name.name, self.function)),
            Pattern::Ignore(_) => {}
            Pattern::Tuple { parts, .. } => parts.iter().for_each(|part| self.pattern(part)),
        }
    }

    fn assigned(&mut self, target: &'t Expr) {
        match &target.kind {
            ExprKind::Name(name) => self.bound.push((&name.name, self.function)),
            ExprKind::Tuple(parts) => parts.iter().for_each(|part| self.assigned(part)),
            ExprKind::Index { base, .. } => self.assigned(base),
            _ => {}
        }
    }

    fn expr(&mut self, expr: &'t Expr, is_operand: bool) {
        self.exprs.push(Occurrence { expr, function: self.function, is_operand });
        match &expr.kind {
            ExprKind::Tuple(list) | ExprKind::List(list) => list.iter().for_each(|e| self.expr(e, false)),
            ExprKind::Unary { operand, .. } => self.expr(operand, true),
            ExprKind::Binary { left, right, .. } => [left, right].into_iter().for_each(|e| self.expr(e, true)),
            ExprKind::Call { callee, args, .. } => {
                self.expr(callee, true);
                args.iter().for_each(|arg| self.expr(&arg.value, false));
            }
            ExprKind::Field { base, .. } => self.expr(base, true),
            ExprKind::Index { base, indices } => {
                self.expr(base, true);
                for index in indices {
                    match index {
                        Index::Rest(_) => {}
                        Index::Expr(expr) => self.expr(expr, false),
                        Index::Range { start, end, step, .. } => {
                            [start, end, step].into_iter().flatten().for_each(|e| self.expr(e, true));
                        }
                    }
                }
            }
            ExprKind::If { condition, then, otherwise } => {
                self.expr(condition, true);
                self.block(then);
                otherwise.iter().for_each(|e| self.expr(e, true));
            }
            ExprKind::Block(block) => self.block(block),
            ExprKind::Train(train) => self.expr(&train.loss, true),
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Bool(_)
            | ExprKind::Inf
            | ExprKind::Str(_)
            | ExprKind::Name(_)
            | ExprKind::Error => {}
        }
    }
}

/// Is an expression written as this operation?
fn is_operation(expr: &Expr, op: &str) -> bool {
    match &expr.kind {
        ExprKind::Binary { op: written, .. } => match written {
            BinaryOp::Mul => op == "mul",
            BinaryOp::Div => op == "div",
            BinaryOp::MatMul => op == "matmul",
            BinaryOp::Add => op == "add",
            BinaryOp::Sub => op == "sub",
            _ => false,
        },
        ExprKind::Field { name, .. } => op == "transpose" && name.name == "T",
        ExprKind::Index { .. } => op == "index",
        ExprKind::Call { callee, .. } => matches!(&callee.kind, ExprKind::Name(name) if name.name == op),
        _ => false,
    }
}

/// An operand of an operation, in the order of the IRs.
pub fn operand(expr: &Expr, n: usize) -> Option<&Expr> {
    match &expr.kind {
        ExprKind::Binary { left, right, .. } => [left, right].get(n).map(|e| &***e),
        ExprKind::Field { base, .. } => Some(&**base).filter(|_| n == 0),
        ExprKind::Index { base, indices } => match (n, indices.as_slice()) {
            (0, _) => Some(base),
            (1, [Index::Expr(index)]) => Some(index),
            _ => None,
        },
        ExprKind::Call { args, .. } => args.get(n).filter(|arg| arg.name.is_none()).map(|arg| &arg.value),
        _ => None,
    }
}

/// Can an expression be an operand of every operator without parentheses?
pub fn is_atom(expr: &Expr) -> bool {
    matches!(
        expr.kind,
        ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Name(_)
            | ExprKind::Call { .. }
            | ExprKind::Field { .. }
            | ExprKind::Index { .. }
            | ExprKind::Tuple(_)
    )
}
