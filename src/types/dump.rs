//! The typed program as text, for `--emit types`: every declaration, every expression with its
//! inferred type.
//!
//! In: a checked program. Out: one line for each declaration, statement and operation, with
//! operands indented below it and the type after a colon. The output is deterministic, and for
//! human readers: it cannot be parsed.

use std::fmt::Write;

use super::typed::{
    Block, Bound, Call, Condition, Constant, Element, Entry, Expr, ExprKind, Field, FieldType, Function, Generic,
    GenericKind, Instance, LayerId, LayerPath, LocalId, Order, Pattern, Program, Stmt, StmtKind,
};
use super::values::show_scalar;
use crate::shape::Dim;
use crate::source::{FileId, Span};

/// The declarations of one file of a program.
pub fn dump(program: &Program, file: FileId) -> String {
    dumped(program, file).text
}

/// The expressions of one file: range, operation, type.
pub fn expressions(program: &Program, file: FileId) -> Vec<(Span, String, String)> {
    dumped(program, file).expressions
}

fn dumped(program: &Program, file: FileId) -> Dump<'_> {
    let mut dump = Dump { program, function: None, text: String::new(), depth: 0, expressions: Vec::new() };
    for (id, layer) in (0..).map(LayerId).zip(&program.layers) {
        if layer.span.file == file {
            dump.layer(id);
        }
    }
    for function in program.functions.iter().filter(|f| f.owner.is_none() && f.span.file == file) {
        dump.function(function);
    }
    dump
}

struct Dump<'a> {
    program: &'a Program,
    function: Option<&'a Function>,
    text: String,
    depth: usize,
    /// Each with its operation and type.
    expressions: Vec<(Span, String, String)>,
}

impl<'a> Dump<'a> {
    fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.text.push_str("  ");
        }
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn nested(&mut self, run: impl FnOnce(&mut Dump<'a>)) {
        self.depth += 1;
        run(self);
        self.depth -= 1;
    }

    fn layer(&mut self, id: LayerId) {
        let layer = self.program.layer(id);
        let keyword = layer.kind.keyword();
        let conditions = where_clauses(&layer.conditions);
        self.line(&format!("{keyword} {}{}{conditions} {{", layer.name, generics(&layer.generics)));
        self.nested(|dump| {
            for field in &layer.fields {
                dump.field(field);
            }
            for function in &layer.functions {
                dump.function(dump.program.function(*function));
            }
        });
        self.line("}");
    }

    fn field(&mut self, field: &Field) {
        let ty = match &field.ty {
            FieldType::Param(tensor) => tensor.to_string(),
            FieldType::State(tensor) => format!("state {tensor}"),
            FieldType::Layer(instance) => self.instance(instance),
            FieldType::Array(instance, length) => format!("[{}; {length}]", self.instance(instance)),
        };
        let stored =
            if field.stored_name == field.name { String::new() } else { format!(" = \"{}\"", field.stored_name) };
        self.line(&format!("{}: {ty}{stored}", field.name));
    }

    fn instance(&self, instance: &Instance) -> String {
        let layer = self.program.layer(instance.layer);
        let args: Vec<String> = layer
            .generics
            .iter()
            .map(|generic| match (instance.dims.get(&generic.name), instance.constants.get(&generic.name)) {
                (Some(dim), _) => dim.to_string(),
                (None, Some(constant)) => format!("{} = {}", generic.name, show_constant(constant)),
                (None, None) => match generic.kind {
                    GenericKind::Elem(elem) => elem.to_string(),
                    GenericKind::Dim { .. } | GenericKind::Const { .. } => generic.name.clone(),
                },
            })
            .collect();
        if args.is_empty() { layer.name.clone() } else { format!("{}<{}>", layer.name, args.join(", ")) }
    }

    fn function(&mut self, function: &'a Function) {
        self.function = Some(function);
        let params: Vec<String> = function
            .params
            .iter()
            .map(|param| function.local(param.local))
            .map(|local| format!("{}: {}", local.name, local.ty))
            .collect();
        let entry = if function.is_entry { "pub " } else { "" };
        let result = match &function.result {
            super::typed::Type::Tuple(parts) if parts.is_empty() => String::new(),
            ty => format!(" -> {ty}"),
        };
        let head = format!(
            "{entry}fn {}{}({}){result}{}",
            function.name,
            generics(&function.generics),
            params.join(", "),
            where_clauses(&function.conditions)
        );
        self.line(&format!("{head} {{"));
        self.nested(|dump| dump.block(&function.body));
        self.line("}");
        self.function = None;
    }

    fn block(&mut self, block: &Block) {
        for stmt in &block.statements {
            self.statement(stmt);
        }
        if let Some(value) = &block.value {
            self.expr(value, "");
        }
    }

    fn name(&self, id: LocalId) -> String {
        match self.function.and_then(|function| function.locals.get(id.0 as usize)) {
            Some(local) if !local.name.is_empty() => local.name.clone(),
            _ => format!("#{}", id.0),
        }
    }

    fn names(&self, ids: &[LocalId]) -> String {
        let names: Vec<String> = ids.iter().map(|id| self.name(*id)).collect();
        if names.is_empty() { String::new() } else { format!(" carrying {}", names.join(", ")) }
    }

    fn pattern(&self, pattern: &Pattern) -> String {
        match pattern {
            Pattern::Local(id) => self.name(*id),
            Pattern::Ignore => "_".to_string(),
            Pattern::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| self.pattern(part)).collect();
                format!("({})", parts.join(", "))
            }
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Set { pattern, value } => {
                let pattern = self.pattern(pattern);
                self.expr(value, &format!("{pattern} = "));
            }
            StmtKind::SetState { field, value } => {
                let name = self.path(&LayerPath::default(), Some(*field));
                self.expr(value, &format!("state {name} = "));
            }
            StmtKind::Length { name, value, most } => self.expr(value, &format!("dim {name} <= {most} = ")),
            StmtKind::Tap { local } => {
                let name = self.name(*local);
                self.line(&format!("tap {name}"));
            }
            StmtKind::For { counter, start, end, carried, body, over_layers } => {
                let show = |dump: &Dump<'_>, bound: &Bound| match bound {
                    Bound::Dim(dim) => dim.to_string(),
                    Bound::Value(expr) => dump.head(expr),
                };
                let (start, end) = (show(self, start), show(self, end));
                let layers = if *over_layers { " over layers" } else { "" };
                let head = format!("for {} in {start}..{end}{layers}{} {{", self.name(*counter), self.names(carried));
                self.line(&head);
                self.nested(|dump| dump.block(body));
                self.line("}");
            }
            StmtKind::While { condition, carried, body } => {
                let head = format!("while{} {{", self.names(carried));
                self.line(&head);
                self.nested(|dump| dump.expr(condition, "condition "));
                self.line("} do {");
                self.nested(|dump| dump.block(body));
                self.line("}");
            }
            StmtKind::Break => self.line("break"),
            StmtKind::If { condition, then, otherwise, carried } => self.if_(condition, then, otherwise, carried, ""),
            StmtKind::Expr(expr) => self.expr(expr, ""),
        }
    }

    fn if_(&mut self, condition: &Expr, then: &Block, otherwise: &Block, carried: &[LocalId], ty: &str) {
        let head = format!("if{}{ty} {{", self.names(carried));
        self.line(&head);
        self.nested(|dump| dump.expr(condition, "condition "));
        self.line("} then {");
        self.nested(|dump| dump.block(then));
        self.line("} else {");
        self.nested(|dump| dump.block(otherwise));
        self.line("}");
    }

    /// Prints an operation on a line, with its operands below.
    fn expr(&mut self, expr: &Expr, before: &str) {
        if let ExprKind::If { condition, then, otherwise, carried } = &expr.kind {
            if !before.is_empty() {
                self.line(before);
            }
            self.if_(condition, then, otherwise, carried, &format!(" : {}", expr.ty));
            return;
        }
        let head = self.head(expr);
        self.expressions.push((expr.span, head.clone(), expr.ty.to_string()));
        self.line(&format!("{before}{head} : {}", expr.ty));
        self.nested(|dump| dump.operands(expr));
    }

    fn operands(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Const(_)
            | ExprKind::Dim(_)
            | ExprKind::Generic(_)
            | ExprKind::Local(_)
            | ExprKind::Param { .. }
            | ExprKind::Iota(_)
            | ExprKind::Causal(..)
            | ExprKind::If { .. } => {}
            ExprKind::Unary(_, x)
            | ExprKind::Cast(x)
            | ExprKind::Transpose(x)
            | ExprKind::Rearrange { x, .. }
            | ExprKind::Split { x, .. }
            | ExprKind::Unbind { x, .. }
            | ExprKind::Full(x)
            | ExprKind::OneHot(x, _)
            | ExprKind::Reduce { x, .. }
            | ExprKind::Stop(x)
            | ExprKind::Counters(x)
            | ExprKind::Along(_, x, _) => self.expr(x, ""),
            ExprKind::Train(at) => {
                if let Some(train) = self.function.and_then(|f| f.trains.get(*at)) {
                    self.expr(&train.loss, "");
                    for (name, value) in [("clip", &train.clip), ("clip_value", &train.clip_value)] {
                        if let Some(value) = value {
                            self.expr(value, &format!("{name} = "));
                        }
                    }
                    for arm in &train.arms {
                        let rule = arm.rule.map_or("Fixed", |(layer, _)| self.program.layer(layer).name.as_str());
                        self.line(&format!("{:?}: {rule}", arm.pattern));
                        self.nested(|dump| arm.args.iter().for_each(|arg| dump.expr(arg, "")));
                    }
                }
            }
            ExprKind::Grad { loss, of, .. } => {
                self.expr(loss, "");
                self.expr(of, "of ");
            }
            ExprKind::Ordered { x, .. } | ExprKind::Windows { x, .. } | ExprKind::Every { x, .. } => self.expr(x, ""),
            ExprKind::TakeAlong { x, at, .. } => {
                self.expr(x, "");
                self.expr(at, "at ");
            }
            ExprKind::Scatter { x, at, value, .. } => {
                self.expr(x, "");
                self.expr(at, "at ");
                self.expr(value, "with ");
            }
            ExprKind::Binary(_, a, b) | ExprKind::Compare(_, a, b) | ExprKind::Matmul(a, b) => {
                self.expr(a, "");
                self.expr(b, "");
            }
            ExprKind::Where(c, a, b) => {
                for operand in [c, a, b] {
                    self.expr(operand, "");
                }
            }
            ExprKind::Pad { x, value, .. } => {
                self.expr(x, "");
                self.expr(value, "");
            }
            ExprKind::Einsum(_, operands) | ExprKind::Concat(operands, _) | ExprKind::Tuple(operands) => {
                operands.iter().for_each(|operand| self.expr(operand, ""));
            }
            ExprKind::Index { base, entries } => {
                self.expr(base, "");
                self.entries(entries);
            }
            ExprKind::Update { base, entries, value } => {
                self.expr(base, "");
                self.entries(entries);
                self.expr(value, "with ");
            }
            ExprKind::Call(call) => call.args.iter().for_each(|arg| self.expr(arg, "")),
            ExprKind::Block(block) => self.block(block),
        }
    }

    fn entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            match entry {
                Entry::At(index) => self.expr(index, "at "),
                Entry::Window(start, _) => self.expr(start, "from "),
                Entry::Gather(index) => self.expr(index, "gather "),
                Entry::All | Entry::Range(..) => {}
            }
        }
    }

    /// The description of an operation, without its operands.
    fn head(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Const(value) => show_scalar(*value),
            ExprKind::Dim(dim) => format!("dim {dim}"),
            ExprKind::Generic(name) => format!("constant {name}"),
            ExprKind::Local(id) => self.name(*id),
            ExprKind::Param { path, field } => format!("param {}", self.path(path, Some(*field))),
            ExprKind::Unary(op, _) => op.name().to_string(),
            ExprKind::Binary(op, ..) => op.name().to_string(),
            ExprKind::Compare(op, ..) => op.name().to_string(),
            ExprKind::Where(..) => "where".to_string(),
            ExprKind::Cast(_) => "cast".to_string(),
            ExprKind::Matmul(..) => "matmul".to_string(),
            ExprKind::Transpose(_) => "transpose".to_string(),
            ExprKind::Einsum(pattern, _) => {
                let side = |side: &super::pattern::Side| {
                    side.iter().map(super::pattern::Item::to_string).collect::<Vec<_>>().join(" ")
                };
                let inputs: Vec<String> = pattern.inputs.iter().map(side).collect();
                format!("einsum \"{} -> {}\"", inputs.join(", "), side(&pattern.output))
            }
            ExprKind::Rearrange { pattern, sizes, .. } => {
                let side = |side: &super::pattern::Side| {
                    side.iter().map(super::pattern::Item::to_string).collect::<Vec<_>>().join(" ")
                };
                let mut head = format!("rearrange \"{} -> {}\"", side(&pattern.left), side(&pattern.right));
                for (name, dim) in sizes {
                    let _ = write!(head, " {name}={dim}");
                }
                head
            }
            ExprKind::Concat(_, axis) => format!("concat axis={axis}"),
            ExprKind::Split { axis, parts, .. } => format!("split axis={axis} parts={parts}"),
            ExprKind::Unbind { axis, .. } => format!("unbind axis={axis}"),
            ExprKind::Pad { axis, low, high, .. } => format!("pad axis={axis} low={low} high={high}"),
            ExprKind::Index { entries, .. } | ExprKind::Update { entries, .. } => {
                let name = if matches!(expr.kind, ExprKind::Update { .. }) { "update" } else { "index" };
                let entries: Vec<String> = entries
                    .iter()
                    .map(|entry| match entry {
                        Entry::All => ":".to_string(),
                        Entry::Range(start, stop) => format!("{start}..{stop}"),
                        Entry::Window(_, length) => format!("from +{length}"),
                        Entry::At(_) => "at".to_string(),
                        Entry::Gather(_) => "gather".to_string(),
                    })
                    .collect();
                format!("{name} [{}]", entries.join(", "))
            }
            ExprKind::Iota(n) => format!("iota {n}"),
            ExprKind::Full(_) => "full".to_string(),
            ExprKind::OneHot(_, n) => format!("one_hot {n}"),
            ExprKind::Grad { .. } => "grad".to_string(),
            ExprKind::Train(_) => "train".to_string(),
            ExprKind::Stop(_) => "stop".to_string(),
            ExprKind::Counters(_) => "counters".to_string(),
            ExprKind::Causal(q, k) => format!("causal {q}, {k}"),
            ExprKind::Reduce { kind, axes, keep, .. } => {
                let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
                let keep = if *keep { " keep" } else { "" };
                format!("{} axis={}{keep}", kind.name(), axes.join(","))
            }
            ExprKind::Along(op, _, axis) => format!("{op} axis={axis}"),
            ExprKind::Ordered { order, axis, descending, first, .. } => {
                let name = match order {
                    Order::Values => "sort",
                    Order::Places => "argsort",
                    Order::Both => "top_k",
                };
                let descending = if *descending { " descending" } else { "" };
                format!("{name} axis={axis} first={first}{descending}")
            }
            ExprKind::Windows { axis, stride, .. } => format!("windows axis={axis} stride={stride}"),
            ExprKind::Every { axis, step, .. } => format!("every axis={axis} step={step}"),
            ExprKind::TakeAlong { axis, .. } => format!("take_along axis={axis}"),
            ExprKind::Scatter { axis, add, .. } => {
                format!("{} axis={axis}", if *add { "scatter_add" } else { "scatter" })
            }
            ExprKind::Call(call) => self.call(call),
            ExprKind::Tuple(_) => "tuple".to_string(),
            ExprKind::If { .. } => "if".to_string(),
            ExprKind::Block(_) => "block".to_string(),
        }
    }

    fn call(&self, call: &Call) -> String {
        let function = self.program.function(call.function);
        let mut head = match &call.receiver {
            None => format!("call {}", function.name),
            Some(path) if path.steps.is_empty() => format!("call {}", function.name),
            Some(path) => format!("call {}.{}", self.path(path, None), function.name),
        };
        let bind = |name: &String, dim: &Dim| format!(" {name}={dim}");
        for (name, dim) in &call.dims {
            head.push_str(&bind(name, dim));
        }
        for (name, constant) in &call.constants {
            let _ = write!(head, " {name}={}", show_constant(constant));
        }
        if function.params.iter().any(|param| match &function.local(param.local).ty {
            super::typed::Type::Tensor(tensor) => tensor.shape.rest().is_some(),
            super::typed::Type::Tuple(_) => false,
        }) {
            let axes: Vec<String> = call.rest.iter().map(super::axes::Axis::to_string).collect();
            let _ = write!(head, " ..=[{}]", axes.join(", "));
        }
        head
    }

    /// `blocks[#3].attn.weight`
    fn path(&self, path: &LayerPath, field: Option<usize>) -> String {
        let mut layer = self.function.and_then(|function| function.owner);
        let mut names: Vec<String> = Vec::new();
        for step in &path.steps {
            let found = layer.and_then(|id| self.program.layer(id).fields.get(step.field));
            let mut name = found.map_or_else(String::new, |field| field.name.clone());
            match &step.element {
                None => {}
                Some(Element::At(dim)) => {
                    let _ = write!(name, "[{dim}]");
                }
                Some(Element::Counter { counter, factor, offset }) => {
                    let shown = self.name(*counter);
                    let shown = if *factor == 1 { shown } else { format!("{factor} * {shown}") };
                    let _ = match *offset == Dim::zero() {
                        true => write!(name, "[{shown}]"),
                        false => write!(name, "[{shown} + {offset}]"),
                    };
                }
            }
            names.push(name);
            layer = match found.map(|field| &field.ty) {
                Some(FieldType::Layer(instance) | FieldType::Array(instance, _)) => Some(instance.layer),
                Some(FieldType::Param(_) | FieldType::State(_)) | None => None,
            };
        }
        if let Some(field) = field
            && let Some(found) = layer.and_then(|id| self.program.layer(id).fields.get(field))
        {
            names.push(found.name.clone());
        }
        names.join(".")
    }
}

fn generics(generics: &[Generic]) -> String {
    if generics.is_empty() {
        return String::new();
    }
    let list: Vec<String> = generics
        .iter()
        .map(|generic| match &generic.kind {
            GenericKind::Dim { default: None } => generic.name.clone(),
            GenericKind::Dim { default: Some(dim) } => format!("{} = {dim}", generic.name),
            GenericKind::Const { elem, default: None } => format!("{}: {elem}", generic.name),
            GenericKind::Const { elem, default: Some(value) } => {
                format!("{}: {elem} = {}", generic.name, show_scalar(*value))
            }
            GenericKind::Elem(elem) => format!("{} = {elem}", generic.name),
        })
        .collect();
    format!("<{}>", list.join(", "))
}

fn where_clauses(conditions: &[Condition]) -> String {
    if conditions.is_empty() {
        return String::new();
    }
    let list: Vec<String> = conditions.iter().map(|condition| condition.fact.as_written()).collect();
    format!(" where {}", list.join(", "))
}

fn show_constant(constant: &Constant) -> String {
    match constant {
        Constant::Literal(value) => show_scalar(*value),
        Constant::Generic(name) => name.clone(),
    }
}
