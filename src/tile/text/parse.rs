//! The parser of the text form.
//!
//! In: a text. Out: the module, with the span of each part, or all errors found. Declared types are
//! accepted as written; the verifier checks them, and reports its errors at these spans.
//!
//! A body is processed twice: first every block, value and instruction gets its number, then the
//! lines are parsed. So a line may refer to later ones; the verifier checks dominance.

use std::collections::BTreeMap;

use super::computes::{read_attention, read_clause, read_tiled};
use super::entries;
use super::forms::{
    CodedError, Names, Read, call, fail, form, global, header, literal_operation, only, param, state, values, words,
};
use super::print::{Anchor, ErrorLocation, Owner, is_name};
use super::types;
use crate::diagnostics::codes::ir as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::irtext::{
    self, Block as BlockLine, Expr, ExprKind, Line, LocText, Phrase, Statement, TextError, TextSpan, read,
};
use crate::source::{FileId, Loc, Span};
use crate::table::{self, Attributes};
use crate::tile::{
    Block, BlockCall, Body, Cpu, GpuArch, GpuOp, GridAxis, Inst, Kernel, Module, Op, Param, ParamMode, Plan,
    PlanVariant, Role, SlotData, State, Terminator, Type, Value,
};

/// Result of parsing.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The module.
    pub module: Module,
    /// The span of each thing in the text.
    pub places: Vec<(Anchor, Span)>,
}

/// Parses a text; `file` is used in the locations of diagnostics.
///
/// # Errors
/// All errors in the text.
pub fn parse(text: &str, file: FileId) -> Result<Parsed, Diagnostics> {
    let mut p = Parser { file, out: Parsed::default(), errors: Diagnostics::new(), owner: Owner::Module };
    match irtext::parse(text) {
        Ok(lines) => p.module(&lines),
        Err(e) => p.error((codes::SYNTAX, e)),
    }
    if p.errors.has_errors() { Err(p.errors) } else { Ok(p.out) }
}

/// The name and arguments of an instruction's results.
struct Item<'a> {
    inst: Inst,
    statement: &'a Statement,
}

/// A body whose blocks and values have been numbered.
struct Skeleton<'a> {
    body: Body,
    names: Names,
    blocks: BTreeMap<&'a str, Block>,
    items: Vec<Item<'a>>,
    terminators: Vec<(Block, &'a Statement)>,
    args: Vec<(Value, &'a Phrase)>,
}

struct Parser {
    file: FileId,
    out: Parsed,
    errors: Diagnostics,
    owner: Owner,
}

impl Parser {
    fn span(&self, place: TextSpan) -> Span {
        Span::new(self.file, place.start, place.end)
    }

    fn error(&mut self, (code, e): CodedError) {
        let mut d = Diagnostic::error(code, e.message).at(self.span(e.place), "");
        if !e.expected.is_empty() {
            d = d.note(format!("expected {}", e.expected.join(", ")));
        }
        self.errors.push(d);
    }

    fn keep<T>(&mut self, r: Read<T>) -> Option<T> {
        r.map_err(|e| self.error(e)).ok()
    }

    fn mark(&mut self, at: ErrorLocation, place: TextSpan) {
        let span = self.span(place);
        self.out.places.push((Anchor { owner: self.owner, at }, span));
    }

    /// The location of a statement without its body.
    fn head_place(s: &Statement) -> TextSpan {
        match (&s.body, s.args.last()) {
            (Some(_), Some(p)) => TextSpan { end: p.place.end, ..s.place },
            (Some(_), None) => TextSpan { end: s.place.start, ..s.place },
            (None, _) => s.place,
        }
    }

    fn module(&mut self, lines: &[Line]) {
        let mut seen = false;
        for line in lines {
            let s = match line {
                Line::Statement(s) => s,
                Line::Block(b) => {
                    let e = TextError::new(b.place, "a block stands in a kernel or plan");
                    self.error((codes::STRUCTURE, e));
                    continue;
                }
            };
            self.owner = Owner::Module;
            let r = match s.head.as_str() {
                "module" if !seen => {
                    seen = true;
                    self.mark(ErrorLocation::Head, Parser::head_place(s));
                    self.name_line(s).map(|name| self.out.module.name = name)
                }
                "file" => self.name_line(s).map(|name| self.out.module.files.push(name)),
                "model" => self.name_line(s).map(|name| self.out.module.model = name),
                "doc" => self.name_line(s).map(|text| self.out.module.doc = text),
                "entry" => {
                    entries::entry(s, &|s| self.loc(s.loc.as_ref(), s.place)).map(|e| self.out.module.entries.push(e))
                }
                "site" => self.name_line(s).map(|text| self.out.module.sites.push(text)),
                "scheduled" => self.name_line(s).map(|step| self.out.module.scheduled = Some(step)),
                "packed" => only(&s.args, s.place)
                    .and_then(|e| form(read::integer(e)))
                    .map(|bytes| self.out.module.packed = bytes),
                "param" => param(s).map(|p| self.out.module.params.push(p)),
                "state" => state(s).map(|decl| self.out.module.states.push(decl)),
                "kernel" => {
                    self.owner = Owner::Kernel(self.out.module.kernels.len());
                    self.mark(ErrorLocation::Head, Parser::head_place(s));
                    self.kernel(s).map(|k| self.out.module.kernels.push(k))
                }
                "plan" => {
                    self.owner = Owner::Plan(self.out.module.plans.len());
                    self.mark(ErrorLocation::Head, Parser::head_place(s));
                    self.plan(s).map(|p| self.out.module.plans.push(p))
                }
                other => {
                    let message = format!(
                        "`{other}` does not stand here: a module has `file`, `model`, `doc`, `param`, `state`, `site`, `packed`, `scheduled`, `entry`, `kernel`, `plan`"
                    );
                    fail(codes::STRUCTURE, Parser::head_place(s), message)
                }
            };
            self.keep(r);
        }
        if !seen {
            let e = TextError::new(
                TextSpan { line: 1, column: 1, ..TextSpan::default() },
                "a text begins with `module \"name\"`",
            );
            self.error((codes::STRUCTURE, e));
        }
    }

    fn name_line(&self, s: &Statement) -> Read<String> {
        let e = only(&s.args, s.place)?;
        form(read::text(e)).map(str::to_string)
    }

    fn kernel(&mut self, s: &Statement) -> Read<Kernel> {
        let (head, clauses) = header(s)?;
        let ExprKind::Call(name, params) = &head.kind else {
            return fail(codes::FORM, head.place, "`@name(parameters)` belongs here");
        };
        let mut k = Kernel {
            name: global(name)?,
            symbols: Vec::new(),
            params: Vec::new(),
            grid: Vec::new(),
            scratch: 0,
            state: State::Unscheduled,
            compute: None,
            tiled: None,
            body: Body::default(),
        };
        let mut body = Body::default();
        let mut names = Names::default();
        let mut waiting = Vec::new();
        let mut tiled = None;
        // How many lines before the first block describe what it computes.
        let mut described = 0;
        for p in params {
            let value = self.define(&mut body, &mut names, p)?;
            waiting.push((value, p));
        }
        for c in clauses {
            let Some((name, args)) = call(c) else {
                return fail(codes::FORM, c.place, "a clause such as `grid(..)` belongs here");
            };
            match name {
                "symbols" => k.symbols = words(args)?,
                "grid" => {
                    for p in args {
                        let value = self.define(&mut body, &mut names, p)?;
                        let [e] = p.types.as_slice() else {
                            return fail(codes::FORM, p.place, "`%index: extent` belongs here");
                        };
                        let (extent, step) = match call(e) {
                            Some(("ceil", [a, b])) => {
                                (form(read::dim(form(read::single(a))?))?, form(read::integer(form(read::single(b))?))?)
                            }
                            _ => (form(read::dim(e))?, 1),
                        };
                        k.grid.push(GridAxis { value, extent, step });
                    }
                }
                "cpu" => {
                    let e = only(args, c.place)?;
                    // A CPU without a name is written as a string with its features.
                    let word = form(read::word(e).or_else(|complaint| read::text(e).map_err(|_| complaint)))?;
                    let Some(cpu) = Cpu::from_name(word) else {
                        return fail(codes::UNKNOWN_NAME, e.place, format!("`{word}` is not a kind of CPU"));
                    };
                    k.state = State::Cpu(cpu);
                }
                "gpu" => {
                    let [a, w] = args else { return fail(codes::FORM, c.place, "`gpu(arch, warps)` belongs here") };
                    let e = form(read::single(a))?;
                    let word = form(read::word(e))?;
                    let Some(arch) = GpuArch::ALL.into_iter().find(|l| l.name() == word) else {
                        return fail(codes::UNKNOWN_NAME, e.place, format!("`{word}` is not a kind of GPU"));
                    };
                    k.state = State::Gpu { arch, warps: form(read::integer(form(read::single(w))?))? };
                }
                "computes" => {
                    k.compute = match read_clause(args, c.place)? {
                        Some(compute) => Some(compute),
                        None => {
                            let lines = s.body.iter().flatten().map_while(|line| match line {
                                Line::Statement(s) => Some(&**s),
                                Line::Block(_) => None,
                            });
                            described = lines.clone().count();
                            Some(read_attention(lines, c.place, |s| self.loc(s.loc.as_ref(), s.place))?)
                        }
                    };
                }
                "tiled" => tiled = Some((c, args)),
                "scratch" => k.scratch = form(read::integer(only(args, c.place)?))?,
                other => return fail(codes::UNKNOWN_NAME, c.place, format!("`{other}` is not a clause of a kernel")),
            }
        }
        // Buffers may use any symbols; types of parameters refer to no values.
        for (value, p) in waiting {
            let (mode, ty, aligned) = types::parameter(p)?;
            body.set_ty(value, ty);
            k.params.push(Param { aligned, ..Param::new(value, mode.unwrap_or(ParamMode::In)) });
        }
        k.body = self.body(s, body, names, described);
        k.tiled = tiled.map(|(c, args)| read_tiled(c, args, &k.body)).transpose()?;
        Ok(k)
    }

    fn plan(&mut self, s: &Statement) -> Read<Plan> {
        let (head, clauses) = header(s)?;
        let mut plan = Plan {
            name: global(head)?,
            variant: PlanVariant::Plain,
            symbols: Vec::new(),
            taps: Vec::new(),
            slots: Vec::new(),
            body: Body::default(),
        };
        for c in clauses {
            match (&c.kind, call(c)) {
                (ExprKind::Word(w), _) if w == "tapped" => plan.variant = PlanVariant::Tapped,
                (ExprKind::Word(w), _) if w == "prepare" => plan.variant = PlanVariant::Prepare,
                (_, Some(("symbols", args))) => plan.symbols = words(args)?,
                (_, Some(("taps", args))) => {
                    for p in args {
                        plan.taps.push(form(read::text(form(read::single(p))?))?.to_string());
                    }
                }
                (_, Some(("slots", args))) => {
                    plan.slots = form(read::dims(args))?.into_iter().map(|bytes| SlotData { bytes }).collect();
                }
                _ => return fail(codes::FORM, c.place, "a clause of a plan (`symbols(..)`, `slots(..)`) belongs here"),
            }
        }
        plan.body = self.body(s, Body::default(), Names::default(), 0);
        Ok(plan)
    }

    /// Defines a value in a list; its type is parsed later.
    fn define(&mut self, body: &mut Body, names: &mut Names, p: &Phrase) -> Read<Value> {
        let [e] = p.terms.as_slice() else { return fail(codes::FORM, p.place, "`%name: type` belongs here") };
        let v = body.add_param(Type::Index);
        self.call_it(body, names, e, v)?;
        Ok(v)
    }

    fn call_it(&mut self, body: &mut Body, names: &mut Names, e: &Expr, v: Value) -> Read<()> {
        let name = form(read::value(e))?;
        if is_name(name) {
            body.set_name(v, name);
        }
        if names.0.insert(name.to_string(), v).is_some() {
            return fail(codes::DEFINED_TWICE, e.place, format!("%{name} is defined twice"));
        }
        Ok(())
    }

    /// The body in a statement's braces, without the first lines.
    fn body(&mut self, s: &Statement, body: Body, names: Names, without: usize) -> Body {
        let Some(lines) = &s.body else {
            self.error((codes::STRUCTURE, TextError::new(s.place, "blocks in braces belong here")));
            return body;
        };
        let mut k = Skeleton {
            body,
            names,
            blocks: BTreeMap::new(),
            items: Vec::new(),
            terminators: Vec::new(),
            args: Vec::new(),
        };
        self.skeleton(lines.get(without..).unwrap_or_default(), &mut k);
        for (v, p) in std::mem::take(&mut k.args) {
            if let Some(ty) = self.keep(types::ty(&p.types, p.place, &k.names)) {
                k.body.set_ty(v, ty);
            }
        }
        for item in std::mem::take(&mut k.items) {
            let r = self.instruction(&item, &mut k);
            self.keep(r);
        }
        for (block, s) in std::mem::take(&mut k.terminators) {
            let r = terminator(s, &k);
            if let Some(t) = self.keep(r) {
                k.body.terminate(block, t);
            }
        }
        k.body
    }

    /// Numbers blocks, instructions and values.
    fn skeleton<'a>(&mut self, lines: &'a [Line], k: &mut Skeleton<'a>) {
        let mut current: Option<(Block, bool)> = None;
        for line in lines {
            match line {
                Line::Block(b) => {
                    self.ended(current, b.place);
                    current = Some((self.block(b, k), false));
                }
                Line::Statement(s) => {
                    let Some((block, done)) = &mut current else {
                        self.error((codes::STRUCTURE, TextError::new(s.place, "a line outside of a block")));
                        continue;
                    };
                    if *done {
                        let e = TextError::new(s.place, "the block has ended: a label belongs here");
                        self.error((codes::STRUCTURE, e));
                        continue;
                    }
                    if matches!(s.head.as_str(), "br" | "br_if" | "return" | "roles") {
                        *done = true;
                        let block = *block;
                        self.mark(ErrorLocation::Terminator(block), s.place);
                        k.terminators.push((block, s));
                    } else {
                        let block = *block;
                        if let Some(inst) = self.number(s, k) {
                            k.body.block_mut(block).insts.push(inst);
                        }
                    }
                }
            }
        }
        let end = lines.last().map_or(TextSpan::default(), |l| match l {
            Line::Statement(s) => s.place,
            Line::Block(b) => b.place,
        });
        self.ended(current, end);
    }

    fn ended(&mut self, current: Option<(Block, bool)>, place: TextSpan) {
        if let Some((_, false)) = current {
            let e = TextError::new(place, "the block before ends in `br`, `br_if`, `return` or `roles`");
            self.error((codes::STRUCTURE, e));
        }
    }

    fn block<'a>(&mut self, b: &'a BlockLine, k: &mut Skeleton<'a>) -> Block {
        let block = k.body.add_block();
        self.mark(ErrorLocation::Block(block), b.place);
        if k.blocks.insert(&b.name, block).is_some() {
            let e = TextError::new(b.place, format!("^{} is defined twice", b.name));
            self.error((codes::DEFINED_TWICE, e));
        }
        // `bb1` is the default name of a block.
        if b.name != format!("bb{}", k.body.layout.len() - 1) {
            k.body.block_mut(block).name = b.name.clone();
        }
        for p in &b.args {
            let v = k.body.add_block_arg(block, Type::Index);
            let r = match p.terms.as_slice() {
                [e] => self.call_it(&mut k.body, &mut k.names, e, v),
                _ => fail(codes::FORM, p.place, "`%name: type` belongs here"),
            };
            self.keep(r);
            k.args.push((v, p));
        }
        block
    }

    /// Numbers an instruction, its result, and the contents of its braces.
    fn number<'a>(&mut self, s: &'a Statement, k: &mut Skeleton<'a>) -> Option<Inst> {
        if s.results.len() > 1 {
            self.error((codes::FORM, TextError::new(s.place, "an operation has one result at most")));
            return None;
        }
        let ty = s.results.first().map(|_| Type::Index);
        let inst = k.body.make_inst(Op::Gpu(GpuOp::Barrier), Vec::new(), ty, Loc::default());
        self.mark(ErrorLocation::Inst(inst), Parser::head_place(s));
        if let (Some(e), Some(v)) = (s.results.first(), k.body.inst(inst).result) {
            let r = self.call_it(&mut k.body, &mut k.names, e, v);
            self.keep(r);
        }
        k.items.push(Item { inst, statement: s });
        match (&s.body, s.head.as_str()) {
            (None, "run") => {
                self.error((codes::STRUCTURE, TextError::new(s.place, "a run has its operations in braces")));
                return None;
            }
            (None, _) => {}
            (Some(lines), "run") => {
                let mut insts = Vec::new();
                for line in lines {
                    match line {
                        Line::Statement(inner) if inner.body.is_none() => insts.extend(self.number(inner, k)),
                        Line::Statement(inner) => {
                            let e = TextError::new(inner.place, "a run holds no other braces");
                            self.error((codes::STRUCTURE, e));
                        }
                        Line::Block(b) => {
                            self.error((codes::STRUCTURE, TextError::new(b.place, "a run holds no blocks")));
                        }
                    }
                }
                let none = crate::tile::Extent::Static(1);
                k.body.inst_mut(inst).op = Op::Run { rows: none, cols: none, insts };
            }
            (Some(_), _) => {
                self.error((codes::STRUCTURE, TextError::new(s.place, "only a run has braces")));
                return None;
            }
        }
        Some(inst)
    }

    fn loc(&self, loc: Option<&LocText>, place: TextSpan) -> Read<Loc> {
        let Some(l) = loc else { return Ok(Loc::default()) };
        if !l.parts.is_empty() {
            return fail(codes::FORM, place, "the place of an operation on tiles has no parts");
        }
        let file = match &l.file {
            None => 0,
            Some(name) => match self.out.module.files.iter().position(|f| f == name) {
                Some(i) => u32::try_from(i + 1).unwrap_or(u32::MAX),
                None => {
                    return fail(codes::UNKNOWN_NAME, place, format!("the module does not list the file \"{name}\""));
                }
            },
        };
        Ok(Loc { file, line: l.line, column: l.column, ..Loc::default() })
    }

    fn instruction(&mut self, item: &Item<'_>, k: &mut Skeleton<'_>) -> Read<()> {
        let s = item.statement;
        let loc = self.loc(s.loc.as_ref(), s.place)?;
        k.body.inst_mut(item.inst).loc = loc;
        if !s.outs.is_empty() {
            return fail(codes::FORM, s.place, "`->` does not belong here");
        }
        let result = k.body.inst(item.inst).result;
        let ty = match (result, s.types.as_slice()) {
            (None, []) => None,
            (Some(_), [p]) if p.value.is_empty() => Some(types::ty(&p.terms, p.place, &k.names)?),
            (None, _) => return fail(codes::FORM, s.place, "a type without a result"),
            (Some(_), _) => return fail(codes::FORM, s.place, "a result has one type: `%x = .. : type`"),
        };
        if let (Some(v), Some(ty)) = (result, &ty) {
            k.body.set_ty(v, ty.clone());
        }
        let place = Parser::head_place(s);
        let mut positional = s.args.iter().filter(|p| read::named(p).is_none());
        let mut attributes = Attributes::new(s)?;
        let mut operands = Vec::new();
        let op = match s.head.as_str() {
            "run" => {
                let [Phrase { terms, .. }] = s.args.as_slice() else {
                    return fail(codes::FORM, place, "`run (rows, columns)` belongs here");
                };
                let [Expr { kind: ExprKind::Paren(items), .. }] = terms.as_slice() else {
                    return fail(codes::FORM, place, "`run (rows, columns)` belongs here");
                };
                let [r, c] = items.as_slice() else {
                    return fail(codes::FORM, place, "a run has rows and columns");
                };
                positional.next();
                let rows = types::extent(form(read::single(r))?, &k.names)?;
                let cols = types::extent(form(read::single(c))?, &k.names)?;
                let insts = match &k.body.inst(item.inst).op {
                    Op::Run { insts, .. } => insts.clone(),
                    _ => Vec::new(),
                };
                Op::Run { rows, cols, insts }
            }
            "const" | "dim" | "arg" | "out" | "slot" | "packed" | "tap" | "param" | "state" | "launch" => {
                let Some(p) = positional.next() else {
                    return fail(codes::FORM, place, "a literal or name is missing");
                };
                literal_operation(&s.head, form(read::single(p))?, ty.as_ref(), &k.names, &mut operands)?
            }
            head => match Op::read(head, &mut attributes)? {
                Some(op) => op,
                None => return Err(table::unknown(head, place, &Op::table())),
            },
        };
        attributes.finish()?;
        for p in positional {
            if !p.types.is_empty() {
                return fail(codes::FORM, p.place, "an operand has no type");
            }
            for e in &p.terms {
                match &e.kind {
                    ExprKind::Index(base, indices) => {
                        operands.push(k.names.value(base)?);
                        values(indices, &k.names, &mut operands)?;
                    }
                    _ => operands.push(k.names.value(e)?),
                }
            }
        }
        let data = k.body.inst_mut(item.inst);
        data.op = op;
        data.operands = operands;
        Ok(())
    }
}

fn terminator(s: &Statement, k: &Skeleton<'_>) -> Read<Terminator> {
    if !s.results.is_empty() || !s.types.is_empty() || s.body.is_some() || !s.outs.is_empty() || s.loc.is_some() {
        return fail(codes::FORM, s.place, format!("`{}` has targets and values alone", s.head));
    }
    let single = |p: &Phrase| jump(form(read::single(p))?, k);
    match (s.head.as_str(), s.args.as_slice()) {
        ("return", []) => Ok(Terminator::Return(Vec::new())),
        ("br", [t]) => Ok(Terminator::Br(single(t)?)),
        ("br_if", [c, a, b]) => Ok(Terminator::BrIf {
            condition: k.names.value(form(read::single(c))?)?,
            then: single(a)?,
            otherwise: single(b)?,
        }),
        ("roles", args @ [_, ..]) => args.iter().map(|p| role(p, k)).collect::<Read<_>>().map(Terminator::Roles),
        (head, _) => fail(codes::FORM, s.place, format!("`{head}` has another number of targets")),
    }
}

fn role(p: &Phrase, k: &Skeleton<'_>) -> Read<Role> {
    let number = |e: &Expr, wanted: &str| match call(e) {
        Some((name, args)) if name == wanted => form(read::integer(only(args, e.place)?)),
        _ => fail(codes::FORM, e.place, format!("`{wanted}(number)` belongs here")),
    };
    match p.terms.as_slice() {
        [name, warps, registers, target] if p.value.is_empty() => Ok(Role {
            name: form(read::text(name))?.to_string(),
            warps: number(warps, "warps")?,
            registers: number(registers, "registers")?,
            target: jump(target, k)?,
        }),
        _ => fail(codes::FORM, p.place, "`\"name\" warps(4) registers(24) ^block` belongs here"),
    }
}

fn jump(e: &Expr, k: &Skeleton<'_>) -> Read<BlockCall> {
    let (label, args): (&Expr, &[Phrase]) = match &e.kind {
        ExprKind::Call(label, args) => (label, args),
        _ => (e, &[]),
    };
    let ExprKind::Label(name) = &label.kind else {
        return fail(codes::FORM, e.place, "a block (`^name`) belongs here");
    };
    let Some(block) = k.blocks.get(name.as_str()) else {
        return fail(codes::UNKNOWN_NAME, e.place, format!("there is no block ^{name}"));
    };
    let mut out = Vec::new();
    values(args, &k.names, &mut out)?;
    Ok(BlockCall { block: *block, args: out })
}
