//! The printer: module to canonical text.
//!
//! In: any module, even an invalid one (which is shown with the verifier's errors). Out: the text,
//! and on request the line of each instruction.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cranelift_entity::SecondaryMap;

use crate::ir::{
    Block, BlockCall, Function, FusionKind, Inst, Loc, MaskKind, Module, Op, Scalar, Terminator, Type, Value,
};
use crate::irtext::quoted;
use crate::shape::{Elem, TensorType};
use crate::ssa;

/// Columns at which types and source locations start, if the line is shorter. They are fixed, so
/// that changing a line does not move others.
const TYPE_COLUMN: usize = 40;
const LOC_COLUMN: usize = 72;

/// The part of a module that a line prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrintedPart {
    /// The head of the module, or of a function.
    Head,
    /// Index of a module parameter.
    Param(usize),
    /// Index of a check of the function.
    Check(usize),
    /// The head of a block.
    Block(Block),
    /// An instruction that has a line of its own.
    Inst(Inst),
    /// The terminator of a block.
    Terminator(Block),
}

impl From<ssa::verify::ErrorLocation> for PrintedPart {
    fn from(at: ssa::verify::ErrorLocation) -> PrintedPart {
        match at {
            ssa::verify::ErrorLocation::Head => PrintedPart::Head,
            ssa::verify::ErrorLocation::Block(b) => PrintedPart::Block(b),
            ssa::verify::ErrorLocation::Inst(i) => PrintedPart::Inst(i),
            ssa::verify::ErrorLocation::Terminator(b) => PrintedPart::Terminator(b),
        }
    }
}

/// A part of a module to which an error can be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Index of the function; `None` for the module's own lines.
    pub function: Option<usize>,
    /// The fused instruction that contains it.
    pub fused: Option<Inst>,
    /// The part inside the function or region.
    pub at: PrintedPart,
}

/// Text, with the line number of each part.
pub type Printed = crate::irtext::Printed<Anchor>;

/// The canonical text of a module.
pub fn print(module: &Module) -> String {
    print_with_anchors(module).text
}

/// The text of a module, and the line number of each part.
pub fn print_with_anchors(module: &Module) -> Printed {
    printed(module, false)
}

/// Text in which a value has the same number after each pass: that of its entity. In fused regions
/// `%7.2` is value 2 of the region of `%7`.
pub fn print_with_entities(module: &Module) -> String {
    printed(module, true).text
}

fn printed(module: &Module, entities: bool) -> Printed {
    let mut p = Printer { out: Printed::default(), line: 0, files: &module.files, function: None, entities };
    p.out.text += "module ";
    p.out.text += &quoted(&module.name);
    p.end(None, PrintedPart::Head, Loc::default());
    for file in &module.files {
        p.out.text += "file ";
        p.out.text += &quoted(file);
        p.end_line();
    }
    for (word, text) in [("model ", &module.model), ("doc ", &module.doc)] {
        if !text.is_empty() {
            p.out.text += word;
            p.out.text += &quoted(text);
            p.end_line();
        }
    }
    for (i, param) in module.params.iter().enumerate() {
        p.out.text += "param ";
        p.out.text += &quoted(&param.name);
        if !param.counts.is_empty() {
            let counts: Vec<String> = param.counts.iter().map(u64::to_string).collect();
            let _ = write!(p.out.text, "[{}]", counts.join(", "));
        }
        p.ty(&param.ty);
        p.end(None, PrintedPart::Param(i), Loc::default());
    }
    for state in &module.states {
        p.out.text += "state ";
        p.out.text += &quoted(&state.name);
        p.ty(&state.ty);
        p.end_line();
    }
    for (i, f) in module.functions.iter().enumerate() {
        p.end_line();
        p.function = Some(i);
        p.function(f);
    }
    p.out
}

/// The text of one function; `files` is the module's file table.
pub fn print_function(f: &Function, files: &[String]) -> String {
    let mut p = Printer { out: Printed::default(), line: 0, files, function: Some(0), entities: false };
    p.function(f);
    p.out.text
}

/// A float with the fewest digits that parse back to it, at the precision of its element type.
fn float_text(x: f64, elem: Elem) -> String {
    match elem {
        _ if x.is_nan() => "nan".to_string(),
        Elem::BF16 => format!("{:?}", half::bf16::from_f32(x as f32).to_f32()),
        Elem::F16 => format!("{:?}", half::f16::from_f32(x as f32).to_f32()),
        Elem::F32 | Elem::I8 | Elem::I32 | Elem::I64 | Elem::Bool => format!("{:?}", x as f32),
    }
}

/// A literal, without its type.
fn literal_text(s: Scalar, elem: Option<Elem>) -> String {
    match s {
        Scalar::Float(x) => float_text(x, elem.unwrap_or(Elem::F32)),
        Scalar::Int(n) => n.to_string(),
        Scalar::Bool(b) => b.to_string(),
    }
}

/// Numbers of values and blocks in the text.
#[derive(Default)]
struct Names {
    values: SecondaryMap<Value, Option<u32>>,
    blocks: SecondaryMap<Block, Option<u32>>,
    /// Numbers inside fused regions, by their instruction.
    regions: BTreeMap<Inst, Names>,
    /// Precedes each number, if values are numbered by their entities.
    prefix: String,
}

impl Names {
    /// Assigns a number, starting at `next`, to every value that has a line. A definition may come
    /// after its use in the text, so numbering is a separate pass.
    fn new(f: &Function, next: &mut u32) -> Names {
        fn take(next: &mut u32) -> Option<u32> {
            *next += 1;
            Some(*next - 1)
        }
        let mut names = Names::default();
        for (at, b) in f.layout.iter().enumerate() {
            names.blocks[*b] = u32::try_from(at).ok();
            for v in &f.block(*b).args {
                names.values[*v] = take(next);
            }
            for i in &f.block(*b).insts {
                let inst = f.inst(*i);
                if let Some(v) = inst.result.filter(|_| !is_literal(f, *i)) {
                    names.values[v] = take(next);
                }
                if let Op::Fused { body, .. } = &inst.op {
                    names.regions.insert(*i, Names::new(body, next));
                }
            }
        }
        names
    }

    /// Numbers values by their entities.
    fn entities(f: &Function, prefix: String) -> Names {
        let mut names = Names::new(f, &mut 0);
        let known: Vec<Value> = names.values.keys().filter(|v| names.values[*v].is_some()).collect();
        known.into_iter().for_each(|v| names.values[v] = Some(v.as_u32()));
        for (inst, inner) in &mut names.regions {
            if let (Op::Fused { body, .. }, Some(v)) = (&f.inst(*inst).op, f.inst(*inst).result) {
                *inner = Names::entities(body, format!("{prefix}{}.", v.as_u32()));
            }
        }
        Names { prefix, ..names }
    }
}

/// Is the instruction a literal that is printed inline?
fn is_literal(f: &Function, i: Inst) -> bool {
    let inst = f.inst(i);
    matches!(inst.op, Op::Const(_)) && inst.result.is_some_and(|v| f.tensor(v).is_none_or(|t| t.rank() == 0))
}

struct Printer<'a> {
    out: Printed,
    line: usize,
    files: &'a [String],
    function: Option<usize>,
    /// Are values numbered by their entities?
    entities: bool,
}

impl Printer<'_> {
    fn end_line(&mut self) {
        self.out.text.push('\n');
        self.line += 1;
    }

    /// Ends the line of a part, with its source location.
    fn end(&mut self, fused: Option<Inst>, at: PrintedPart, loc: Loc) {
        self.end_of_several(fused, at, loc, &[]);
    }

    /// Like [`Printer::end`], with the locations of the operations that it was fused from.
    fn end_of_several(&mut self, fused: Option<Inst>, at: PrintedPart, loc: Loc, parts: &[(&str, Loc)]) {
        self.mark(fused, at);
        self.place(loc, parts, LOC_COLUMN);
        self.end_line();
    }

    fn mark(&mut self, fused: Option<Inst>, at: PrintedPart) {
        self.out.lines.push((Anchor { function: self.function, fused, at }, self.line));
    }

    /// Pads with blanks up to a column, at least one.
    fn pad(&mut self, column: usize) {
        let text = &mut self.out.text;
        let start = text.rfind('\n').map_or(0, |i| i + 1);
        let width = text.get(start..).map_or(0, |line| line.chars().count());
        for _ in width..column.max(width + 1) {
            text.push(' ');
        }
    }

    fn ty(&mut self, ty: &dyn std::fmt::Display) {
        self.pad(TYPE_COLUMN);
        let _ = write!(self.out.text, ": {ty}");
    }

    /// `loc(7:9, scores 3:17, softmax 4:9)`: a location, and the locations of its parts.
    fn place(&mut self, loc: Loc, parts: &[(&str, Loc)], column: usize) {
        if loc.line == 0 && parts.is_empty() {
            return;
        }
        self.pad(column);
        self.out.text += "loc(";
        self.point(loc);
        for (name, loc) in parts {
            let _ = write!(self.out.text, ", {name} ");
            self.point(*loc);
        }
        self.out.text.push(')');
    }

    /// A line and a column, with the file if it is not the module's own.
    fn point(&mut self, loc: Loc) {
        let text = &mut self.out.text;
        if let Some(file) = (loc.file as usize).checked_sub(1) {
            *text += &quoted(self.files.get(file).map_or("?", String::as_str));
            text.push(':');
        }
        let _ = write!(text, "{}:{}", loc.line, loc.column);
    }

    fn function(&mut self, f: &Function) {
        let names = if self.entities { Names::entities(f, String::new()) } else { Names::new(f, &mut 0) };
        self.header(f, &names);
        for (i, b) in f.layout.iter().enumerate() {
            let _ = write!(self.out.text, "^bb{i}");
            if i > 0 && !f.block(*b).args.is_empty() {
                let args: Vec<String> =
                    f.block(*b).args.iter().map(|v| format!("{}: {}", value(f, &names, *v), f.ty(*v))).collect();
                let _ = write!(self.out.text, "({})", args.join(", "));
            }
            self.out.text.push(':');
            self.end(None, PrintedPart::Block(*b), Loc::default());
            self.block(f, *b, &names, None);
        }
        self.out.text.push('}');
        self.end_line();
    }

    fn header(&mut self, f: &Function, names: &Names) {
        let text = &mut self.out.text;
        let _ = write!(text, "func @{}(", f.name);
        // In an invalid function the numbers may differ; print all.
        let entry = &f.block(f.entry()).args;
        for i in 0..entry.len().max(f.args.len()) {
            if i > 0 {
                *text += ", ";
            }
            *text += &entry.get(i).map_or("%?".to_string(), |v| value(f, names, *v));
            if let Some(arg) = f.args.get(i) {
                text.push(' ');
                *text += &quoted(&arg.name);
                if arg.batch {
                    *text += " batch";
                }
                let _ = write!(text, ": {}", arg.ty);
            }
        }
        *text += ") -> (";
        for (i, r) in f.results.iter().enumerate() {
            let _ = write!(text, "{}{}{}", if i > 0 { ", " } else { "" }, if r.batch { "batch " } else { "" }, r.ty);
        }
        *text += ") {";
        self.end(None, PrintedPart::Head, Loc::default());
        if !f.doc.is_empty() {
            for line in f.doc.split('\n') {
                self.out.text += "  doc ";
                self.out.text += &quoted(line);
                self.end_line();
            }
        }
        for (i, (fact, loc)) in f.checks.iter().enumerate() {
            let _ = write!(self.out.text, "  where {fact}");
            self.end(None, PrintedPart::Check(i), *loc);
        }
        if f.tapped {
            self.out.text += "  tapped";
            self.end_line();
        }
    }

    fn block(&mut self, f: &Function, b: Block, names: &Names, fused: Option<Inst>) {
        let indent = if fused.is_some() { "    " } else { "  " };
        for i in &f.block(b).insts {
            let inst = f.inst(*i);
            if is_literal(f, *i) {
                continue;
            }
            self.out.text += indent;
            if let Some(v) = inst.result {
                let _ = write!(self.out.text, "{} = ", value(f, names, v));
            }
            if let Op::Fused { kind, body } = &inst.op {
                self.fused(f, *i, *kind, body, names);
                continue;
            }
            self.out.text += &phrases(f, names, *i);
            if let Some(v) = inst.result {
                self.ty(f.ty(v));
            }
            let steps = inst.op.steps().into_iter().zip(inst.parts.iter().copied());
            let steps: Vec<(&str, Loc)> = steps.collect();
            // A step without a location is printed if a later step of the same name has one, which
            // would be taken for its own.
            let told = |n: usize| steps.iter().skip(n).any(|(name, loc)| *name == steps[n].0 && loc.line > 0);
            let parts: Vec<(&str, Loc)> = (0..steps.len()).filter(|n| told(*n)).map(|n| steps[n]).collect();
            self.end_of_several(fused, PrintedPart::Inst(*i), inst.loc, &parts);
        }
        self.out.text += indent;
        self.out.text += &terminator(f, names, &f.block(b).terminator, fused.is_some());
        self.end(fused, PrintedPart::Terminator(b), Loc::default());
    }

    fn fused(&mut self, f: &Function, i: Inst, kind: FusionKind, body: &Function, names: &Names) {
        let inst = f.inst(i);
        let none = Names::default();
        let inner = names.regions.get(&i).unwrap_or(&none);
        let args = &body.block(body.entry()).args;
        let mut bound = Vec::new();
        for k in 0..args.len().max(inst.operands.len()) {
            let name = args.get(k).map_or("%?".to_string(), |v| value(body, inner, *v));
            let operand = inst.operands.get(k).map_or("%?".to_string(), |v| value(f, names, *v));
            bound.push(format!("{name} = {operand}"));
        }
        let ty = inst.result.map_or(String::new(), |v| format!(" : {}", f.ty(v)));
        let _ = write!(self.out.text, "fused {}({}){ty}", kind.name(), bound.join(", "));
        self.mark(None, PrintedPart::Inst(i));
        self.place(inst.loc, &[], 0);
        self.out.text += " {";
        self.end_line();
        for b in &body.layout {
            // More than one block is an error that the verifier reports; print them all.
            self.block(body, *b, inner, Some(i));
        }
        self.out.text += "  }";
        self.end_line();
    }
}

/// A value as an operand: its number, or the literal.
fn value(f: &Function, names: &Names, v: Value) -> String {
    if let Some(n) = names.values[v] {
        return format!("%{}{n}", names.prefix);
    }
    match (f.as_const(v), f.ty(v)) {
        (Some(Scalar::Int(n)), Type::Index) => n.to_string(),
        (Some(s), Type::Tensor(t)) if t.rank() == 0 => {
            let text = literal_text(s, Some(t.elem));
            if matches!(t.elem, Elem::F32 | Elem::Bool) { text } else { format!("{}({text})", t.elem) }
        }
        _ => "%?".to_string(),
    }
}

fn call(f: &Function, names: &Names, c: &BlockCall) -> String {
    let block = names.blocks[c.block].map_or("^?".to_string(), |n| format!("^bb{n}"));
    if c.args.is_empty() { block } else { format!("{block}({})", values(f, names, &c.args)) }
}

fn values(f: &Function, names: &Names, vs: &[Value]) -> String {
    vs.iter().map(|v| value(f, names, *v)).collect::<Vec<_>>().join(", ")
}

fn terminator(f: &Function, names: &Names, t: &Terminator, in_region: bool) -> String {
    match t {
        Terminator::Br(c) => format!("br {}", call(f, names, c)),
        Terminator::BrIf { condition, then, otherwise } => {
            format!("br_if {}, {}, {}", value(f, names, *condition), call(f, names, then), call(f, names, otherwise))
        }
        Terminator::Return(vs) => {
            let word = if in_region { "yield" } else { "return" };
            if vs.is_empty() { word.to_string() } else { format!("{word} {}", values(f, names, vs)) }
        }
        Terminator::Roles(never) => match *never {},
    }
}

/// An operation with its operands and attributes.
fn phrases(f: &Function, names: &Names, i: Inst) -> String {
    let inst = f.inst(i);
    let vs = &inst.operands;
    let name = inst.op.info().name;
    let elem = inst.result.and_then(|v| f.tensor(v)).map(|t: &TensorType| t.elem);
    let mut words: Vec<String> = Vec::new();
    let all = |words: &mut Vec<String>| words.extend(vs.iter().map(|v| value(f, names, *v)));
    let named = |name: &str, indices: &[Value]| {
        let mut out = quoted(name);
        if !indices.is_empty() {
            let _ = write!(out, "[{}]", values(f, names, indices));
        }
        out
    };
    if let Some(attributes) = inst.op.attributes() {
        all(&mut words);
        words.extend(attributes.into_iter().map(|(key, text)| format!("{key}={text}")));
        return if words.is_empty() { name.to_string() } else { format!("{name} {}", words.join(", ")) };
    }
    // Operations with a syntax of their own; `Printer::fused` prints regions.
    match &inst.op {
        Op::Const(s) => words.push(literal_text(*s, elem)),
        Op::DimValue(d) => words.push(d.to_string()),
        Op::Param { name } => words.push(named(name, vs)),
        Op::State { name } => words.push(quoted(name)),
        Op::SetState { name } => {
            words.extend(vs.first().map(|v| value(f, names, *v)));
            words.push(quoted(name));
        }
        Op::Attention { masks } => attention(f, names, vs, masks, &mut words),
        Op::Grad { of } => {
            all(&mut words);
            words.extend((!of.is_empty()).then(|| quoted(of)));
        }
        Op::Tap { name, extents } => {
            words.extend(vs.first().map(|v| value(f, names, *v)));
            let indices: Vec<String> = vs.iter().skip(1).map(|v| value(f, names, *v)).collect();
            let bounded: Vec<String> = indices.iter().zip(extents).map(|(i, n)| format!("{i} < {n}")).collect();
            let list = if bounded.is_empty() { String::new() } else { format!("[{}]", bounded.join(", ")) };
            words.push(quoted(name) + &list);
        }
        _ => all(&mut words),
    }
    if words.is_empty() { name.to_string() } else { format!("{name} {}", words.join(", ")) }
}

/// `%q, %k, %v, scale=0.125, mask=[causal, add(%m), keep(%c, -inf)]`
fn attention(f: &Function, names: &Names, vs: &[Value], masks: &[MaskKind], words: &mut Vec<String>) {
    words.extend(vs.iter().take(3).map(|v| value(f, names, *v)));
    if let Some(scale) = vs.get(3) {
        words.push(format!("scale={}", value(f, names, *scale)));
    }
    let mut rest = vs.iter().skip(4);
    let mut texts = Vec::new();
    for mask in masks {
        let args: Vec<String> = rest.by_ref().take(mask.operands()).map(|v| value(f, names, *v)).collect();
        texts.push(if args.is_empty() {
            mask.name().to_string()
        } else {
            format!("{}({})", mask.name(), args.join(", "))
        });
    }
    if !texts.is_empty() {
        words.push(format!("mask=[{}]", texts.join(", ")));
    }
}
