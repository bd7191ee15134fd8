//! The parser: text to module.
//!
//! In: text. Out: the module, with the source span of each part, or all errors. Declared types are
//! not checked here; the verifier does, and its errors are shown at these spans.

use super::operand::{Literals, Scope, Site, fail, form};
use super::operations;
use super::print::{Anchor, PrintedPart};
use crate::diagnostics::codes::ir as codes;
use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::ir::{
    ArgDecl, Block, BlockCall, Function, FusionKind, Inst, Loc, Module, Op, ParamDecl, ResultDecl, StateDecl,
    Terminator, Type, Value,
};
use crate::irtext::{self, Expr, ExprKind, Line, LocText, Phrase, Statement, TextError, TextSpan, read};
use crate::source::{FileId, Span};
use crate::table::CodedError;

/// A parsed module.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// Not verified yet.
    pub module: Module,
    /// The span of each part of the module.
    pub places: Vec<(Anchor, Span)>,
}

/// Parses a text; spans in diagnostics refer to `file`.
///
/// # Errors
/// All errors in the text.
pub fn parse(text: &str, file: FileId) -> Result<Parsed, Diagnostics> {
    let mut p = Parser { file, out: Parsed::default(), errors: Diagnostics::new(), function: None };
    match irtext::parse(text) {
        Ok(lines) => p.module(&lines),
        Err(e) => p.error(codes::SYNTAX, e),
    }
    if p.errors.has_errors() { Err(p.errors) } else { Ok(p.out) }
}

struct Parser {
    file: FileId,
    out: Parsed,
    errors: Diagnostics,
    function: Option<usize>,
}

impl Parser {
    fn error(&mut self, code: Code, e: TextError) {
        let mut d = Diagnostic::error(code, e.message).at(self.span(e.place), "");
        if !e.expected.is_empty() {
            d = d.help(format!("expected {}", e.expected.join(", ")));
        }
        self.errors.push(d);
    }

    /// Returns the value, or records the error.
    fn keep<T>(&mut self, r: Result<T, CodedError>) -> Option<T> {
        let complain = |(code, e): CodedError| {
            if !e.message.is_empty() {
                self.error(code, e);
            }
        };
        r.map_err(complain).ok()
    }

    fn span(&self, p: TextSpan) -> Span {
        Span::new(self.file, p.start, p.end)
    }

    fn mark(&mut self, fused: Option<Inst>, at: PrintedPart, place: TextSpan) {
        let anchor = Anchor { function: self.function, fused, at };
        let span = self.span(place);
        self.out.places.push((anchor, span));
    }

    fn loc(&mut self, s: &Statement) -> Loc {
        s.loc.as_ref().map_or_else(Loc::default, |loc| self.point(loc, s.place))
    }

    fn point(&mut self, loc: &LocText, place: TextSpan) -> Loc {
        let file = match &loc.file {
            None => Some(0),
            Some(name) => self.out.module.files.iter().position(|f| f == name).map(|i| i + 1),
        };
        match file.and_then(|n| u32::try_from(n).ok()) {
            Some(file) => Loc { file, line: loc.line, column: loc.column, ..Loc::default() },
            None => {
                let e = TextError::new(place, "the location is in a file that the module does not list");
                self.error(codes::UNKNOWN_NAME, e);
                Loc::default()
            }
        }
    }

    /// The locations of the operations that an operation was fused from; the text names some of
    /// them, in order.
    fn parts(&mut self, s: &Statement, steps: &[&str]) -> Result<Vec<Loc>, CodedError> {
        let named = s.loc.as_ref().map_or(&[][..], |loc| loc.parts.as_slice());
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let mut parts = vec![Loc::default(); steps.len()];
        let mut next = 0;
        for (name, loc) in named {
            let Some(found) = steps.iter().skip(next).position(|step| step == name) else {
                return fail(
                    codes::FORM,
                    s.place,
                    format!("`{}` has no part `{name}`, or not in this position", s.head),
                );
            };
            parts[next + found] = self.point(loc, s.place);
            next += found + 1;
        }
        Ok(parts)
    }

    fn module(&mut self, lines: &[Line]) {
        let mut named = false;
        for line in lines {
            let s = match line {
                Line::Statement(s) => s,
                Line::Block(b) => {
                    self.error(codes::STRUCTURE, TextError::new(b.place, "a block is outside of a function"));
                    continue;
                }
            };
            let result = match s.head.as_str() {
                "module" if named => fail(codes::STRUCTURE, s.place, "there is one `module` line"),
                "module" => {
                    named = true;
                    self.mark(None, PrintedPart::Head, s.place);
                    one_string(s).map(|name| self.out.module.name = name)
                }
                "file" => one_string(s).map(|name| self.out.module.files.push(name)),
                "model" => one_string(s).map(|name| self.out.module.model = name),
                "doc" => one_string(s).map(|text| self.out.module.doc = text),
                "param" => self.param(s),
                "state" => self.state(s),
                "func" => {
                    self.function = Some(self.out.module.functions.len());
                    let r = self.func(s);
                    self.function = None;
                    r
                }
                other => fail(codes::UNKNOWN_NAME, s.place, format!("`{other}` is not a statement of a module")),
            };
            self.keep(result);
        }
    }

    fn param(&mut self, s: &Statement) -> Result<(), CodedError> {
        let e = form(one(&s.args, s.place).and_then(read::single))?;
        let (name, counts) = match &e.kind {
            ExprKind::Index(name, counts) => (form(read::text(name))?, counts.as_slice()),
            _ => (form(read::text(e))?, &[][..]),
        };
        let counts = counts
            .iter()
            .map(|c| form(read::single(c).and_then(read::integer::<u64>)))
            .collect::<Result<Vec<u64>, CodedError>>()?;
        let ty = form(one(&s.types, s.place).and_then(read::single).and_then(read::tensor_type))?;
        self.mark(None, PrintedPart::Param(self.out.module.params.len()), s.place);
        self.out.module.params.push(ParamDecl { name: name.to_string(), counts, ty });
        Ok(())
    }

    fn state(&mut self, s: &Statement) -> Result<(), CodedError> {
        let e = form(one(&s.args, s.place).and_then(read::single))?;
        let name = form(read::text(e))?.to_string();
        let ty = form(one(&s.types, s.place).and_then(read::single).and_then(read::tensor_type))?;
        self.out.module.states.push(StateDecl { name, ty });
        Ok(())
    }

    fn func(&mut self, s: &Statement) -> Result<(), CodedError> {
        let head = form(one(&s.args, s.place).and_then(read::single))?;
        let ExprKind::Call(name, args) = &head.kind else {
            return fail(codes::FORM, head.place, "a function's head is `@name(arguments)`");
        };
        let ExprKind::Global(name) = &name.kind else {
            return fail(codes::FORM, name.place, "a function's name begins with `@`");
        };
        let mut f = Function::new(name);
        let mut scope = Scope::default();
        let entry = f.entry();
        for arg in args {
            let (value, decl) = form(argument(arg))?;
            let v = f.add_block_arg(entry, Type::Tensor(decl.ty.clone()));
            self.define(&mut scope, value, v)?;
            f.args.push(decl);
        }
        let outs = match one(&s.outs, s.place).and_then(read::single).map(|e| &e.kind) {
            Ok(ExprKind::Paren(outs)) => outs,
            _ => return fail(codes::FORM, s.place, "the results `-> (types)` are missing"),
        };
        for out in outs {
            f.results.push(form(result(out))?);
        }
        let place = TextSpan { end: head.place.end, ..s.place };
        self.mark(None, PrintedPart::Head, place);
        let Some(body) = &s.body else {
            return fail(codes::STRUCTURE, s.place, "the function has no body");
        };
        let header = body.iter().take_while(|l| matches!(l, Line::Statement(_))).count();
        let (header, rest) = body.split_at(header);
        for line in header {
            if let Line::Statement(s) = line {
                let r = self.header(&mut f, s);
                self.keep(r);
            }
        }
        self.blocks(&mut f, &mut scope, rest, s.place);
        self.out.module.functions.push(f);
        Ok(())
    }

    fn header(&mut self, f: &mut Function, s: &Statement) -> Result<(), CodedError> {
        match s.head.as_str() {
            "doc" => {
                if !f.doc.is_empty() {
                    f.doc.push('\n');
                }
                f.doc += &one_string(s)?;
            }
            "where" => {
                let fact = form(one(&s.args, s.place).and_then(read::single).and_then(read::fact))?;
                let loc = self.loc(s);
                self.mark(None, PrintedPart::Check(f.checks.len()), s.place);
                f.checks.push((fact, loc));
            }
            "tapped" => f.tapped = true,
            other => {
                let message = format!("`{other}` is before the first block; only `doc`, `where` and `tapped` may");
                return fail(codes::STRUCTURE, s.place, message);
            }
        }
        Ok(())
    }

    fn define(&mut self, scope: &mut Scope, e: &Expr, v: Value) -> Result<(), CodedError> {
        let name = form(read::value(e))?;
        if scope.values.insert(name.to_string(), v).is_some() {
            return fail(codes::DEFINED_TWICE, e.place, format!("`%{name}` is defined twice"));
        }
        Ok(())
    }

    /// Parses the blocks of a function: first all names are defined, then all lines are read, so
    /// that a block may use values defined later in the text.
    fn blocks(&mut self, f: &mut Function, scope: &mut Scope, lines: &[Line], place: TextSpan) {
        let mut current: Option<Block> = None;
        let mut insts: Vec<Option<Inst>> = Vec::new();
        for line in lines {
            match line {
                Line::Block(b) => {
                    let block = if current.is_none() { f.entry() } else { f.add_block() };
                    if current.is_none() && !b.args.is_empty() {
                        let e = TextError::new(b.place, "the first block's arguments are the function's");
                        self.error(codes::STRUCTURE, e);
                    } else {
                        for arg in &b.args {
                            let r = self.block_argument(f, scope, block, arg);
                            self.keep(r);
                        }
                    }
                    current = Some(block);
                    self.mark(None, PrintedPart::Block(block), b.place);
                    if scope.blocks.insert(b.name.clone(), block).is_some() {
                        let e = TextError::new(b.place, format!("`^{}` is defined twice", b.name));
                        self.error(codes::DEFINED_TWICE, e);
                    }
                    insts.push(None);
                }
                Line::Statement(s) => {
                    insts.push(self.declared(f, scope, s));
                }
            }
        }
        if current.is_none() {
            self.error(codes::STRUCTURE, TextError::new(place, "the function has no block"));
            return;
        }
        let mut block = f.entry();
        let mut ended = true;
        let mut last = place;
        let mut literals = Literals::new();
        for (line, inst) in lines.iter().zip(insts) {
            match line {
                Line::Block(b) => {
                    if !ended {
                        self.error(
                            codes::STRUCTURE,
                            TextError::new(last, "the block does not end in a jump or return"),
                        );
                    }
                    block = scope.blocks.get(&b.name).copied().unwrap_or(block);
                    literals.clear();
                    (ended, last) = (false, b.place);
                }
                Line::Statement(s) => {
                    if ended {
                        let e = TextError::new(s.place, "nothing may follow a jump or return in its block");
                        self.error(codes::STRUCTURE, e);
                        continue;
                    }
                    ended = is_terminator(s);
                    last = s.place;
                    let mut site = Site { f: &mut *f, scope, block, literals: &mut literals };
                    let r = self.statement(&mut site, s, inst);
                    self.keep(r);
                }
            }
        }
        if !ended {
            self.error(codes::STRUCTURE, TextError::new(last, "the block does not end in a jump or return"));
        }
    }

    fn block_argument(
        &mut self,
        f: &mut Function,
        scope: &mut Scope,
        b: Block,
        arg: &Phrase,
    ) -> Result<(), CodedError> {
        let (name, ty) = match (arg.terms.as_slice(), arg.types.as_slice()) {
            ([name], [ty]) if arg.value.is_empty() => (name, form(value_type(ty))?),
            _ => return fail(codes::FORM, arg.place, "a block's argument is `%name: type`"),
        };
        let v = f.add_block_arg(b, ty);
        self.define(scope, name, v)
    }

    /// Creates the instruction of a statement; an invalid declaration is reported once.
    fn declared(&mut self, f: &mut Function, scope: &mut Scope, s: &Statement) -> Option<Inst> {
        let r = self.declare(f, scope, s);
        if r.is_err() {
            scope.broken.extend(s.results.iter().filter_map(|e| read::value(e).ok()).map(str::to_string));
        }
        self.keep(r).flatten()
    }

    /// Creates the instruction of a statement so that its result can be used; its operation is
    /// parsed later.
    fn declare(&mut self, f: &mut Function, scope: &mut Scope, s: &Statement) -> Result<Option<Inst>, CodedError> {
        if is_terminator(s) {
            return Ok(None);
        }
        let ty = match (s.results.as_slice(), s.types.as_slice()) {
            ([], []) => None,
            ([_], [ty]) => Some(form(read::single(ty).and_then(value_type))?),
            ([_], []) => return fail(codes::FORM, s.place, "a result needs its type: `%name = operation : type`"),
            ([], _) => return fail(codes::FORM, s.place, "a type without a result"),
            _ => return fail(codes::FORM, s.place, "an operation has one result at most"),
        };
        let loc = self.loc(s);
        let inst = f.make_inst(Op::Causal, Vec::new(), ty, loc);
        if let (Some(name), Some(v)) = (s.results.first(), f.inst(inst).result) {
            self.define(scope, name, v)?;
        }
        Ok(Some(inst))
    }

    fn statement(&mut self, site: &mut Site<'_>, s: &Statement, inst: Option<Inst>) -> Result<(), CodedError> {
        if is_terminator(s) {
            self.mark(site.scope.fused, PrintedPart::Terminator(site.block), s.place);
            let t = terminator(site, s)?;
            site.f.terminate(site.block, t);
            return Ok(());
        }
        // There is no instruction if its declaration was invalid, which was reported.
        let Some(inst) = inst else { return Ok(()) };
        self.mark(site.scope.fused, PrintedPart::Inst(inst), s.place);
        let (op, operands) = if s.head == "fused" {
            if site.scope.fused.is_some() {
                return fail(codes::STRUCTURE, s.place, "a fused region cannot contain another");
            }
            self.fused(site, s, inst)?
        } else {
            if s.body.is_some() {
                return fail(codes::STRUCTURE, s.place, format!("`{}` has no body", s.head));
            }
            let ty = site.f.inst(inst).result.map(|v| site.f.ty(v).clone());
            let made = operations::operation(site, s, ty.as_ref())?;
            (made.0.rounded(ty.as_ref()), made.1)
        };
        if site.f.inst(inst).result.is_none() && !op.has_effect() {
            return fail(codes::FORM, s.place, format!("the result of `{}` has no name", s.head));
        }
        let data = site.f.inst_mut(inst);
        (data.op, data.operands) = (op, operands);
        data.parts = self.parts(s, &data.op.steps())?;
        site.f.block_mut(site.block).insts.push(inst);
        Ok(())
    }

    /// `fused KIND(%a = %7, ...) : type { ... yield %x }`
    fn fused(&mut self, site: &mut Site<'_>, s: &Statement, inst: Inst) -> Result<(Op, Vec<Value>), CodedError> {
        let head = form(one(&s.args, s.place).and_then(read::single))?;
        let ExprKind::Call(kind, args) = &head.kind else {
            return fail(codes::FORM, head.place, "a region's head is `fused KIND(%name = operand, ...)`");
        };
        let name = form(read::word(kind))?;
        let Some(kind) = FusionKind::from_name(name) else {
            return fail(codes::UNKNOWN_NAME, kind.place, format!("there is no kind of region `{name}`"));
        };
        let mut body = Function::new("");
        let entry = body.entry();
        let mut scope = Scope { fused: Some(inst), ..Scope::default() };
        let mut operands = Vec::new();
        for arg in args {
            let ([name], [operand], []) = (arg.terms.as_slice(), arg.value.as_slice(), arg.types.as_slice()) else {
                return fail(codes::FORM, arg.place, "a region's argument is `%name = operand`");
            };
            let v = site.operand(operand)?;
            operands.push(v);
            let arg = body.add_block_arg(entry, site.f.ty(v).clone());
            self.define(&mut scope, name, arg)?;
        }
        let lines = s.body.as_deref().unwrap_or_default();
        let mut insts = Vec::new();
        for line in lines {
            match line {
                Line::Statement(s) => {
                    insts.push(self.declared(&mut body, &mut scope, s));
                }
                Line::Block(b) => return fail(codes::STRUCTURE, b.place, "a region is one block, without a label"),
            }
        }
        let mut literals = Literals::new();
        let mut ended = false;
        for (line, inst) in lines.iter().zip(insts) {
            let Line::Statement(s) = line else { continue };
            if ended {
                return fail(codes::STRUCTURE, s.place, "nothing may follow `yield`");
            }
            ended = is_terminator(s);
            let mut inner = Site { f: &mut body, scope: &scope, block: entry, literals: &mut literals };
            let r = self.statement(&mut inner, s, inst);
            self.keep(r);
        }
        if !ended {
            return fail(codes::STRUCTURE, head.place, "the region does not end in `yield`");
        }
        Ok((Op::Fused { kind, body: Box::new(body) }, operands))
    }
}

fn one(phrases: &[Phrase], place: TextSpan) -> Result<&Phrase, TextError> {
    match phrases {
        [p] => Ok(p),
        _ => Err(TextError::new(place, "expected one phrase")),
    }
}

fn one_string(s: &Statement) -> Result<String, CodedError> {
    form(one(&s.args, s.place).and_then(read::single).and_then(read::text).map(str::to_string))
}

fn value_type(e: &Expr) -> Result<Type, TextError> {
    match &e.kind {
        ExprKind::Word(w) if w == "index" => Ok(Type::Index),
        _ => read::tensor_type(e).map(Type::Tensor),
    }
}

/// `%0 "name" batch: type`
fn argument(p: &Phrase) -> Result<(&Expr, ArgDecl), TextError> {
    let (value, name, batch) = match p.terms.as_slice() {
        [value, name] => (value, name, false),
        [value, name, batch] if read::word(batch) == Ok("batch") => (value, name, true),
        _ => return Err(TextError::new(p.place, "an argument is `%0 \"name\": type`, with `batch` after the name")),
    };
    let [ty] = p.types.as_slice() else {
        return Err(TextError::new(p.place, "the argument's type is missing"));
    };
    Ok((value, ArgDecl { name: read::text(name)?.to_string(), ty: read::tensor_type(ty)?, batch }))
}

/// `type` or `batch type`
fn result(p: &Phrase) -> Result<ResultDecl, TextError> {
    match p.terms.as_slice() {
        [ty] => Ok(ResultDecl { ty: read::tensor_type(ty)?, batch: false }),
        [batch, ty] if read::word(batch) == Ok("batch") => Ok(ResultDecl { ty: read::tensor_type(ty)?, batch: true }),
        _ => Err(TextError::new(p.place, "a result is `type` or `batch type`")),
    }
}

fn is_terminator(s: &Statement) -> bool {
    matches!(s.head.as_str(), "br" | "br_if" | "return" | "yield")
}

fn terminator(site: &mut Site<'_>, s: &Statement) -> Result<Terminator, CodedError> {
    let terms = s.args.iter().map(|p| form(read::single(p))).collect::<Result<Vec<&Expr>, CodedError>>()?;
    match (s.head.as_str(), terms.as_slice()) {
        ("br", [target]) => Ok(Terminator::Br(call(site, target)?)),
        ("br_if", [condition, then, otherwise]) => Ok(Terminator::BrIf {
            condition: site.operand(condition)?,
            then: call(site, then)?,
            otherwise: call(site, otherwise)?,
        }),
        ("return" | "yield", values) => {
            if (s.head == "yield") != site.scope.fused.is_some() {
                return fail(codes::STRUCTURE, s.place, "a function ends in `return`, a region in `yield`");
            }
            Ok(Terminator::Return(values.iter().map(|e| site.operand(e)).collect::<Result<Vec<Value>, CodedError>>()?))
        }
        _ => fail(codes::FORM, s.place, "a jump is `br ^block(values)` or `br_if %condition, ^block, ^block`"),
    }
}

fn call(site: &mut Site<'_>, e: &Expr) -> Result<BlockCall, CodedError> {
    let (name, args) = match &e.kind {
        ExprKind::Label(name) => (name, &[][..]),
        ExprKind::Call(label, args) => match &label.kind {
            ExprKind::Label(name) => (name, args.as_slice()),
            _ => return fail(codes::FORM, e.place, "expected a block (`^name`)"),
        },
        _ => return fail(codes::FORM, e.place, "expected a block (`^name`)"),
    };
    let Some(block) = site.scope.blocks.get(name).copied() else {
        return fail(codes::UNKNOWN_NAME, e.place, format!("there is no block `^{name}`"));
    };
    let args = args
        .iter()
        .map(|p| form(read::single(p)).and_then(|e| site.operand(e)))
        .collect::<Result<Vec<Value>, CodedError>>()?;
    Ok(BlockCall { block, args })
}
