//! Changes of a program: removes or replaces parts of its syntax tree.
//!
//! In: the text of a program without syntax errors. Out: the text after some changes, in the style
//! of `attnc fmt`; none if it has syntax errors then. It must not know types: a change that leaves
//! no valid program is not interesting, and is not made.
//!
//! * `parts`: items, fields, functions, statements, conditions, comments
//! * `lists`: an entry of a list; a parameter of a function or a layer goes with its arguments
//! * `blocks`: a loop or a branch becomes its block
//! * `names`: a variable becomes the value that it is given
//! * `expressions`: an expression becomes one of the operations in it, an argument of the function,
//!   or a number
//! * `numbers`: a number becomes a smaller one

use super::lines::cut;
use super::{Candidate, Changes};
use crate::diagnostics::Diagnostics;
use crate::source::{FileId, Span};
use crate::syntax::ast::*;
use crate::syntax::token::Token;
use crate::{format, syntax};
use std::ops::Range;

/// The maximum number of operations in an expression that may replace it.
const MAX_INSIDE: usize = 24;

/// A change: ranges of the text, and what replaces them.
type Edit = Vec<(Range<usize>, String)>;

/// Is this a program without syntax errors?
pub(super) fn reads(text: &str) -> bool {
    tree(text).is_some()
}

fn tree(text: &str) -> Option<File> {
    let mut found = Diagnostics::new();
    let tree = syntax::parse(FileId(0), text, &mut found);
    (!found.has_errors()).then_some(tree)
}

/// The kinds of changes, in the order in which they are tried.
pub(super) fn kinds() -> Vec<Box<dyn Changes>> {
    let kind = |name, edits: fn(Edits) -> Vec<Edit>| Box::new(TreeEdits { name, edits }) as Box<dyn Changes>;
    vec![
        kind("parts", |e| e.parts),
        kind("blocks", |e| e.blocks),
        kind("lists", |e| e.lists),
        kind("names", |e| e.names),
        kind("expressions", |e| e.expressions),
        kind("numbers", |e| e.numbers),
    ]
}

struct TreeEdits {
    name: &'static str,
    edits: fn(Edits) -> Vec<Edit>,
}

impl TreeEdits {
    fn of_text(&self, text: &str) -> Vec<Edit> {
        tree(text).map(|tree| (self.edits)(Edits::of_file(text, &tree))).unwrap_or_default()
    }
}

impl Changes for TreeEdits {
    fn name(&self) -> &'static str {
        self.name
    }

    fn count(&self, text: &str) -> usize {
        self.of_text(text).len()
    }

    fn make(&self, text: &str, first: usize, n: usize) -> Candidate {
        let edits = self.of_text(text);
        let changed = cut(text, edits.get(first..first + n)?.iter().flatten().cloned().collect())?;
        format::format(FileId(0), &changed, &mut Diagnostics::new())
    }
}

/// A call, or a layer with its arguments in `<..>`.
struct Use {
    name: String,
    /// Name and place of each argument.
    args: Vec<(Option<String>, Span)>,
}

/// All changes of a program.
#[derive(Default)]
struct Edits {
    text: String,
    parts: Vec<Edit>,
    blocks: Vec<Edit>,
    lists: Vec<Edit>,
    names: Vec<Edit>,
    expressions: Vec<Edit>,
    numbers: Vec<Edit>,
    /// Names of the arguments of the function around.
    given: Vec<String>,
    /// The names in the function around.
    mentioned: Vec<(String, Span)>,
    /// Variables of the function around with their values: the statement, the name, the value.
    variables: Vec<(Span, String, Span)>,
    /// Parameters, by the name of their function or layer.
    params: Vec<(String, Vec<(String, Span)>)>,
    uses: Vec<Use>,
    /// Names of the fields of layers.
    fields: Vec<String>,
}

impl Edits {
    fn of_file(text: &str, file: &File) -> Edits {
        let mut e = Edits { text: text.to_string(), ..Edits::default() };
        for item in &file.items {
            e.part(item.span());
        }
        for item in &file.items {
            match item {
                Item::Use(_) => {}
                Item::Layer(layer) => e.layer(layer),
                Item::Function(function) => e.function(function),
            }
        }
        e.params();
        e.comments();
        e
    }

    fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or_default()
    }

    /// Removes a part, with its documentation and attributes, and its line if nothing else is on
    /// it.
    fn part(&mut self, span: Span) {
        let text = &self.text;
        let mut range = span.range();
        loop {
            let before = text.get(..range.start).unwrap_or_default();
            let line = before.rfind('\n').map_or(0, |at| at + 1);
            if !before.get(line..).is_some_and(|blank| blank.trim().is_empty()) || line == 0 {
                break;
            }
            let above = before[..line - 1].rfind('\n').map_or(0, |at| at + 1);
            let words = before[above..line].trim_start();
            if !words.starts_with("///") && !words.starts_with("#[") {
                break;
            }
            range.start = above + (before[above..line].len() - words.len());
        }
        let start = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
        let end = text[range.end..].find('\n').map_or(text.len(), |at| range.end + at + 1);
        let is_alone = text[start..range.start].trim().is_empty() && text[range.end..end].trim().is_empty();
        self.parts.push(vec![(if is_alone { start..end } else { range }, String::new())]);
    }

    /// The range of an entry of a list, with a comma; the only one goes with its brackets.
    fn entry(&self, list: &[Span], i: usize) -> Option<Range<usize>> {
        let own = list.get(i)?.range();
        if let Some(next) = list.get(i + 1) {
            return Some(own.start..next.range().start);
        }
        if let Some(last) = i.checked_sub(1).and_then(|i| list.get(i)) {
            return Some(last.range().end..own.end);
        }
        let (before, after) = (self.text.get(..own.start)?.trim_end(), self.text.get(own.end..)?);
        let rest = after.trim_start().trim_start_matches(',').trim_start();
        let is_bracketed =
            before.ends_with('<') && rest.starts_with('>') || before.ends_with('[') && rest.starts_with(']');
        if !is_bracketed {
            return Some(own);
        }
        Some(before.len() - 1..self.text.len() - rest.len() + 1)
    }

    /// Removes each entry of a list.
    fn list(&mut self, list: &[Span]) {
        for i in 0..list.len() {
            if let Some(range) = self.entry(list, i) {
                self.lists.push(vec![(range, String::new())]);
            }
        }
    }

    /// Removes each condition after `where`, the only one with the word.
    fn conditions(&mut self, conditions: &[Expr]) {
        let spans: Vec<Span> = conditions.iter().map(|c| c.span).collect();
        for (i, condition) in conditions.iter().enumerate() {
            if let Some(mut range) = self.entry(&spans, i) {
                let before = self.text.get(..range.start).unwrap_or_default();
                if spans.len() == 1 && before.trim_end().ends_with("where") {
                    range.start = before.trim_end().len() - "where".len();
                }
                self.parts.push(vec![(range, String::new())]);
            }
            self.expr(condition);
        }
    }

    fn layer(&mut self, layer: &Layer) {
        for field in &layer.fields {
            self.part(field.span);
        }
        for function in &layer.functions {
            self.part(function.span);
        }
        for attribute in layer.attributes.iter().chain(layer.fields.iter().flat_map(|f| &f.attributes)) {
            self.part(attribute.span);
        }
        self.generics(&layer.name.name, &layer.generics);
        self.conditions(&layer.where_clauses);
        for field in &layer.fields {
            self.fields.push(field.name.name.clone());
            self.ty(&field.ty);
            field.init.iter().for_each(|init| self.expr(init));
        }
        for function in &layer.functions {
            self.function(function);
        }
    }

    fn generics(&mut self, name: &str, generics: &[GenericParam]) {
        let list = generics.iter().map(|g| (g.name.name.clone(), g.span)).collect();
        self.params.push((name.to_string(), list));
        for generic in generics {
            generic.default.iter().for_each(|value| self.expr(value));
        }
    }

    fn function(&mut self, function: &Function) {
        for attribute in &function.attributes {
            self.part(attribute.span);
        }
        self.generics(&function.name.name, &function.generics);
        let params = function.params.iter().map(|p| (p.name.name.clone(), p.span)).collect();
        self.params.push((function.name.name.clone(), params));
        self.given = function.params.iter().map(|p| p.name.name.clone()).collect();
        for param in &function.params {
            self.ty(&param.ty);
            param.default.iter().for_each(|value| self.expr(value));
        }
        function.result.iter().for_each(|ty| self.ty(ty));
        self.conditions(&function.where_clauses);
        self.block(&function.body);
        let (mentioned, variables) = (std::mem::take(&mut self.mentioned), std::mem::take(&mut self.variables));
        for (statement, name, value) in variables {
            let by = format!("({})", self.slice(value));
            let later = |span: Span| span.start >= statement.end;
            let uses = mentioned.iter().filter(|(own, span)| *own == name && later(*span));
            let uses = uses.map(|(_, span)| (span.range(), by.clone()));
            self.names.push(std::iter::once((statement.range(), String::new())).chain(uses).collect());
        }
        self.given.clear();
    }

    fn block(&mut self, block: &Block) {
        for statement in &block.statements {
            self.part(statement.span);
        }
        if let Some(value) = &block.value {
            self.part(value.span);
        }
        for statement in &block.statements {
            self.statement(statement);
        }
        block.value.iter().for_each(|value| self.expr(value));
    }

    /// Replaces a part by the inside of a block.
    fn unwrap(&mut self, span: Span, block: &Block) {
        let inside = self.slice(block.span).trim();
        let inside = inside.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(inside).to_string();
        self.blocks.push(vec![(span.range(), inside)]);
    }

    fn statement(&mut self, statement: &Stmt) {
        match &statement.kind {
            StmtKind::Let { pattern, ty, value } | StmtKind::Var { pattern, ty, value } => {
                if let Pattern::Name(name) = pattern {
                    self.variables.push((statement.span, name.name.clone(), value.span));
                }
                ty.iter().for_each(|ty| self.ty(ty));
                self.expr(value);
            }
            StmtKind::Length { value, where_clauses, .. } => {
                self.expr(value);
                self.conditions(where_clauses);
            }
            StmtKind::Assign { target, value } => {
                if let ExprKind::Name(name) = &target.kind {
                    self.variables.push((statement.span, name.name.clone(), value.span));
                }
                self.expr(target);
                self.expr(value);
            }
            StmtKind::For { iterable, body, .. } => {
                self.unwrap(statement.span, body);
                match iterable {
                    Iterable::Range { start, end } => [start, end].into_iter().for_each(|e| self.expr(e)),
                    Iterable::Expr(list) => self.expr(list),
                }
                self.block(body);
            }
            StmtKind::While { condition, body } => {
                self.unwrap(statement.span, body);
                self.expr(condition);
                self.block(body);
            }
            StmtKind::Expr(value) => self.expr(value),
            StmtKind::Tap { .. } | StmtKind::Reset { .. } | StmtKind::Break | StmtKind::Error => {}
        }
    }

    fn ty(&mut self, ty: &Type) {
        match &ty.kind {
            TypeKind::Tensor { dims, .. } | TypeKind::Generic { dims, .. } => {
                let span = |d: &DimSpec| match d {
                    DimSpec::Rest(span) => *span,
                    DimSpec::Dim(value) => value.span,
                };
                self.list(&dims.iter().map(span).collect::<Vec<_>>());
                for dim in dims {
                    if let DimSpec::Dim(value) = dim {
                        self.expr(value);
                    }
                }
            }
            TypeKind::Named { path, generics } => {
                let name = path.last().map_or(String::new(), |last| last.name.clone());
                self.generic_args(name, generics);
            }
            TypeKind::Array { element, length } => {
                self.blocks.push(vec![(ty.span.range(), self.slice(element.span).to_string())]);
                self.ty(element);
                self.expr(length);
            }
            TypeKind::Tuple(parts) => {
                self.list(&parts.iter().map(|part| part.span).collect::<Vec<_>>());
                parts.iter().for_each(|part| self.ty(part));
            }
            TypeKind::Error => {}
        }
    }

    fn generic_args(&mut self, name: String, generics: &[GenericArg]) {
        self.list(&generics.iter().map(|arg| arg.span).collect::<Vec<_>>());
        let args = generics.iter().map(|arg| (arg.name.as_ref().map(|n| n.name.clone()), arg.span)).collect();
        self.uses.push(Use { name, args });
        for arg in generics {
            match &arg.value {
                GenericValue::Expr(value) => self.expr(value),
                GenericValue::Elem(_) => {}
                GenericValue::Layer(ty) => self.ty(ty),
            }
        }
    }

    fn expr(&mut self, e: &Expr) {
        let parts = parts_of(e);
        let inner: Vec<&Expr> = parts.iter().copied().chain(parts.iter().flat_map(|p| parts_of(p))).collect();
        for part in inner {
            let text = self.slice(part.span);
            let is_whole =
                text.starts_with('(') || !matches!(part.kind, ExprKind::Binary { .. } | ExprKind::Unary { .. });
            let by = if is_whole { text.to_string() } else { format!("({text})") };
            self.expressions.push(vec![(e.span.range(), by)]);
        }
        let text = self.slice(e.span).to_string();
        match &e.kind {
            ExprKind::Int(n) => {
                let smaller = [0, 1, 2, n / 2, n.saturating_sub(1)];
                let smaller = smaller.iter().enumerate().filter(|(i, m)| *m < n && !smaller[..*i].contains(m));
                self.numbers.extend(smaller.map(|(_, m)| vec![(e.span.range(), m.to_string())]));
            }
            ExprKind::Float(_) => {
                let simple = ["0.0", "1.0"].into_iter().filter(|simple| *simple != text);
                self.numbers.extend(simple.map(|simple| vec![(e.span.range(), simple.to_string())]));
            }
            ExprKind::Name(name) => self.mentioned.push((name.name.clone(), e.span)),
            _ => {
                let given = self.given.iter().map(String::as_str).chain(["0.0", "1", "true"]);
                self.expressions.extend(given.map(|by| vec![(e.span.range(), by.to_string())]));
                self.operations_in(e);
            }
        }
        if text.starts_with('(') && text.ends_with(')') && !matches!(e.kind, ExprKind::Tuple(_)) {
            self.expressions.push(vec![(e.span.range(), text[1..text.len() - 1].to_string())]);
        }
        match &e.kind {
            ExprKind::Tuple(list) | ExprKind::List(list) => {
                self.list(&list.iter().map(|part| part.span).collect::<Vec<_>>());
            }
            ExprKind::Call { callee, generics, args } => {
                let name = match &callee.kind {
                    ExprKind::Name(name) => name.name.clone(),
                    ExprKind::Field { name, .. } => name.name.clone(),
                    _ => String::new(),
                };
                self.generic_args(name.clone(), generics);
                self.list(&args.iter().map(|arg| arg.span).collect::<Vec<_>>());
                let args = args.iter().map(|arg| (arg.name.as_ref().map(|n| n.name.clone()), arg.span)).collect();
                self.uses.push(Use { name, args });
            }
            ExprKind::Index { indices, .. } => {
                self.list(&indices.iter().map(Index::span).collect::<Vec<_>>());
            }
            ExprKind::If { then, otherwise, .. } => {
                self.unwrap(e.span, then);
                if let Some(other) = otherwise {
                    match &other.kind {
                        ExprKind::Block(block) => self.unwrap(e.span, block),
                        _ => self.blocks.push(vec![(e.span.range(), self.slice(other.span).to_string())]),
                    }
                    self.blocks.push(vec![(then.span.range().end..other.span.range().end, String::new())]);
                }
                self.block(then);
            }
            ExprKind::Block(block) => {
                self.unwrap(e.span, block);
                self.block(block);
            }
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Bool(_)
            | ExprKind::Inf
            | ExprKind::Str(_)
            | ExprKind::Name(_)
            | ExprKind::Unary { .. }
            | ExprKind::Binary { .. }
            | ExprKind::Field { .. }
            | ExprKind::Error => {}
        }
        for part in parts {
            self.expr(part);
        }
    }

    /// Replaces an expression by one of the operations in it, with an argument of the function as
    /// each operand: `f(g(h(x)))` by `g(x)`.
    fn operations_in(&mut self, e: &Expr) {
        let (mut inside, mut level) = (Vec::new(), parts_of(e));
        while !level.is_empty() && inside.len() < MAX_INSIDE {
            inside.extend(level.iter().copied());
            level = level.into_iter().flat_map(parts_of).collect();
        }
        for part in std::iter::once(e).chain(inside) {
            let operands: Vec<Range<usize>> = parts_of(part).iter().map(|operand| operand.span.range()).collect();
            let whole = part.span.range();
            for given in self.given.iter().filter(|_| !operands.is_empty()) {
                let edits = operands.iter().map(|o| (o.start - whole.start..o.end - whole.start, given.clone()));
                if let Some(by) = cut(self.slice(part.span), edits.collect()) {
                    self.expressions.push(vec![(e.span.range(), by)]);
                }
            }
        }
    }

    /// Removes a parameter with the arguments for it.
    fn params(&mut self) {
        for (name, params) in std::mem::take(&mut self.params) {
            let spans: Vec<Span> = params.iter().map(|(_, span)| *span).collect();
            for (i, (param, _)) in params.iter().enumerate() {
                let Some(range) = self.entry(&spans, i) else { continue };
                let mut edit = vec![(range, String::new())];
                // A layer is called by the name of its field.
                let is_called = |u: &&Use| u.name == name || (name == "forward" && self.fields.contains(&u.name));
                for used in self.uses.iter().filter(is_called) {
                    let at = used.args.iter().position(|(own, _)| own.as_ref() == Some(param));
                    let at = at.or_else(|| used.args.get(i).filter(|(own, _)| own.is_none()).map(|_| i));
                    let spans: Vec<Span> = used.args.iter().map(|(_, span)| *span).collect();
                    edit.extend(at.and_then(|at| self.entry(&spans, at)).map(|range| (range, String::new())));
                }
                self.lists.push(edit);
            }
        }
    }

    /// Removes comments, and empty lines.
    fn comments(&mut self) {
        let tokens = syntax::tokens(FileId(0), &self.text, &mut Diagnostics::new());
        let docs = tokens.iter().filter(|t| matches!(t.token, Token::Doc(_))).map(|t| t.span);
        let docs: Vec<Span> = docs.collect();
        let (mut at, mut gaps) = (0, Vec::new());
        for range in tokens.iter().map(|t| t.span.range()).chain(std::iter::once(self.text.len()..self.text.len())) {
            gaps.push(at..range.start.max(at));
            at = at.max(range.end);
        }
        for gap in gaps {
            let mut start = gap.start;
            for line in self.text.get(gap).unwrap_or_default().split_inclusive('\n') {
                let comment = line.find("//").map(|at| start + at..start + line.trim_end().len());
                let blank = (line == "\n").then(|| start..start + 1);
                self.parts.extend(comment.or(blank).map(|range| vec![(range, String::new())]));
                start += line.len();
            }
        }
        docs.into_iter().for_each(|span| self.part(span));
    }
}

/// The expressions directly inside an expression; expressions in its blocks are not among them.
fn parts_of(e: &Expr) -> Vec<&Expr> {
    match &e.kind {
        ExprKind::Tuple(list) | ExprKind::List(list) => list.iter().collect(),
        ExprKind::Unary { operand, .. } => vec![operand.as_ref()],
        ExprKind::Binary { left, right, .. } => vec![left.as_ref(), right.as_ref()],
        ExprKind::Call { callee, args, .. } => {
            // The name of a function is not an expression of its own.
            let callee = Some(callee.as_ref()).filter(|callee| !matches!(callee.kind, ExprKind::Name(_)));
            args.iter().map(|arg| &arg.value).chain(callee).collect()
        }
        ExprKind::Field { base, .. } => vec![base.as_ref()],
        ExprKind::Index { base, indices } => {
            let of = |index| match index {
                &Index::Rest(_) => Vec::new(),
                Index::Expr(value) => vec![value],
                Index::Range { start, end, step, .. } => [start, end, step].into_iter().flatten().collect(),
            };
            std::iter::once(base.as_ref()).chain(indices.iter().flat_map(of)).collect()
        }
        ExprKind::If { condition, otherwise, .. } => {
            std::iter::once(condition.as_ref()).chain(otherwise.iter().map(AsRef::as_ref)).collect()
        }
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Bool(_)
        | ExprKind::Inf
        | ExprKind::Str(_)
        | ExprKind::Name(_)
        | ExprKind::Block(_)
        | ExprKind::Error => Vec::new(),
    }
}
