//! Counts the assignments to a name in a body.
//!
//! In: a block of the AST, and a name. Out: the number of its assignments; an assignment in a loop
//! that also reads the name there counts twice, because it is repeated.

use crate::syntax::ast::{Arg, Block, Expr, ExprKind, Index, Iterable, Stmt, StmtKind};

/// The number of assignments to a name in a block and in the blocks inside it.
pub(super) fn times(block: &Block, name: &str) -> usize {
    let statements: usize = block.statements.iter().map(|stmt| of_stmt(stmt, name)).sum();
    statements + block.value.as_deref().map_or(0, |value| of_expr(value, name))
}

fn of_stmt(stmt: &Stmt, name: &str) -> usize {
    match &stmt.kind {
        StmtKind::Assign { target, value } => usize::from(reads(target, name)) + of_expr(value, name),
        StmtKind::Let { value, .. } | StmtKind::Var { value, .. } | StmtKind::Length { value, .. } => {
            of_expr(value, name)
        }
        StmtKind::For { body, iterable, .. } => {
            let outside = match iterable {
                Iterable::Range { start, end } => of_expr(start, name) + of_expr(end, name),
                Iterable::Expr(expr) => of_expr(expr, name),
            };
            outside + in_loop(body, name)
        }
        StmtKind::While { condition, body } => of_expr(condition, name) + in_loop(body, name),
        StmtKind::Expr(expr) => of_expr(expr, name),
        StmtKind::Tap { .. } | StmtKind::Reset { .. } | StmtKind::Break | StmtKind::Error => 0,
    }
}

/// A variable that a loop assigns from its own previous value is assigned more than once.
fn in_loop(body: &Block, name: &str) -> usize {
    let feeds_itself = body.statements.iter().any(|stmt| match &stmt.kind {
        StmtKind::Assign { target, value } => reads(target, name) && reads(value, name),
        _ => false,
    });
    times(body, name) + usize::from(feeds_itself)
}

fn of_expr(expr: &Expr, name: &str) -> usize {
    match &expr.kind {
        ExprKind::Block(block) => times(block, name),
        ExprKind::If { then, otherwise, .. } => {
            times(then, name) + otherwise.as_deref().map_or(0, |otherwise| of_expr(otherwise, name))
        }
        _ => 0,
    }
}

/// Does an expression consist only of literals, operators, names that satisfy `name`, and calls of
/// functions that satisfy `function`?
pub(super) fn reads_only(expr: &Expr, name: &impl Fn(&str) -> bool, function: &impl Fn(&str) -> bool) -> bool {
    let reads_only = |part: &Expr| reads_only(part, name, function);
    match &expr.kind {
        ExprKind::Call { callee, args, .. } => match &callee.kind {
            ExprKind::Name(called) => function(&called.name) && args.iter().all(|arg| reads_only(&arg.value)),
            _ => false,
        },
        ExprKind::Name(other) => name(&other.name),
        ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_) => true,
        ExprKind::Unary { operand, .. } => reads_only(operand),
        ExprKind::Binary { left, right, .. } => reads_only(left) && reads_only(right),
        _ => false,
    }
}

/// Does an expression mention the name, outside of blocks?
pub(super) fn reads(expr: &Expr, name: &str) -> bool {
    let any = |parts: &[Expr]| parts.iter().any(|part| reads(part, name));
    match &expr.kind {
        ExprKind::Name(other) => other.name == name,
        ExprKind::Tuple(parts) | ExprKind::List(parts) => any(parts),
        ExprKind::Unary { operand, .. } => reads(operand, name),
        ExprKind::Binary { left, right, .. } => reads(left, name) || reads(right, name),
        ExprKind::Call { callee, args, .. } => {
            reads(callee, name) || args.iter().any(|Arg { value, .. }| reads(value, name))
        }
        ExprKind::Field { base, .. } => reads(base, name),
        ExprKind::Index { base, indices } => {
            let index = |index: &Index| match index {
                Index::Rest(_) => false,
                Index::Expr(expr) => reads(expr, name),
                Index::Range { start, end, step, .. } => {
                    [start, end, step].into_iter().flatten().any(|part| reads(part, name))
                }
            };
            reads(base, name) || indices.iter().any(index)
        }
        _ => false,
    }
}
