//! The printer of the text form.
//!
//! In: any module, even an invalid one (the verifier shows it with its errors). Out: the text, and
//! the line of each thing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cranelift_entity::SecondaryMap;

use super::computes;
use super::forms::literal;
use crate::irtext::quoted;
use crate::shape::Dim;
use crate::source::Loc;
pub use crate::ssa::verify::ErrorLocation;
use crate::tile::{
    Block, BlockCall, Body, BufferType, Compute, Extent, Inst, Kernel, KernelOrPlan, Module, Op, ParamMode, Plan,
    PlanOp, PlanVariant, Space, State, Terminator, TileType, Type, Value, row_major,
};

/// Columns at which types and locations start, if the line is shorter. They are fixed, so that a
/// changed line does not affect others.
const TYPE_COLUMN: usize = 44;
const LOC_COLUMN: usize = 88;

/// The part of a module that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The module itself.
    Module,
    /// A kernel, by number.
    Kernel(usize),
    /// A plan, by number.
    Plan(usize),
}

/// A thing in a module that an error can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The part of the module that it belongs to.
    pub owner: Owner,
    /// The thing.
    pub at: ErrorLocation,
}

/// A text with the line of each thing in it.
pub type Printed = crate::irtext::Printed<Anchor>;

/// Prints a module.
pub fn print(module: &Module) -> String {
    print_with_anchors(module).text
}

/// Prints a module; returns the line of each thing in it too.
pub fn print_with_anchors(module: &Module) -> Printed {
    let mut p = Printer::new(&module.files);
    p.text(&format!("module {}", quoted(&module.name)));
    p.end(ErrorLocation::Head, Loc::default());
    for file in &module.files {
        p.text(&format!("file {}", quoted(file)));
        p.newline();
    }
    for (word, text) in [("model", &module.model), ("doc", &module.doc)] {
        if !text.is_empty() {
            p.text(&format!("{word} {}", quoted(text)));
            p.newline();
        }
    }
    for param in &module.params {
        p.text(&format!("param {}", quoted(&param.name)));
        if !param.counts.is_empty() {
            p.text(&format!("[{}]", list(&param.counts)));
        }
        p.ty(&param.ty.to_string());
        p.newline();
    }
    for state in &module.states {
        p.text(&format!("state {}", quoted(&state.name)));
        p.ty(&state.ty.to_string());
        p.newline();
    }
    for site in &module.sites {
        p.text(&format!("site {}", quoted(site)));
        p.newline();
    }
    if let Some(step) = &module.scheduled {
        p.text(&format!("scheduled {}", quoted(step)));
        p.newline();
    }
    if module.packed > 0 {
        p.text(&format!("packed {}", module.packed));
        p.newline();
    }
    for e in &module.entries {
        p.newline();
        for (line, loc) in super::entries::lines(e) {
            p.text(&line);
            p.place(loc);
            p.newline();
        }
    }
    for (i, k) in module.kernels.iter().enumerate() {
        p.newline();
        p.owner = Owner::Kernel(i);
        p.kernel(k);
    }
    for (i, plan) in module.plans.iter().enumerate() {
        p.newline();
        p.owner = Owner::Plan(i);
        p.plan(plan);
    }
    p.out
}

/// Prints one kernel; `files` are the module's.
pub fn print_kernel(kernel: &Kernel, files: &[String]) -> String {
    let mut p = Printer::new(files);
    p.kernel(kernel);
    p.out.text
}

/// Prints one plan; `files` are the module's.
pub fn print_plan(plan: &Plan, files: &[String]) -> String {
    let mut p = Printer::new(files);
    p.plan(plan);
    p.out.text
}

/// Prints one kernel or plan of a module; empty if it does not exist.
pub fn print_part(module: &Module, part: KernelOrPlan) -> String {
    match part {
        KernelOrPlan::Kernel(n) => module.kernels.get(n).map(|k| print_kernel(k, &module.files)),
        KernelOrPlan::Plan(n) => module.plans.get(n).map(|p| print_plan(p, &module.files)),
    }
    .unwrap_or_default()
}

/// Each instruction of a kernel in one line, without its location, with names as in the kernel's
/// text; for a run, only its header.
pub(crate) fn lines_of_kernel(kernel: &Kernel) -> BTreeMap<Inst, String> {
    let mut p = Printer::new(&[]);
    p.kernel(kernel);
    lines_of(&p.out)
}

/// The names of a kernel's values in its text, without `%`.
pub(crate) fn names_of_kernel(kernel: &Kernel) -> SecondaryMap<Value, String> {
    let mut names = Names::of_parameters(kernel);
    names.give_all(&kernel.body);
    names.values
}

/// The first line of a kernel's text.
pub(crate) fn head_of_kernel(kernel: &Kernel) -> String {
    let text = print_kernel(kernel, &[]);
    text.lines().next().unwrap_or_default().trim_end_matches(" {").to_string()
}

/// Each instruction of a plan in one line, as in [`lines_of_kernel`].
pub(crate) fn lines_of_plan(plan: &Plan) -> BTreeMap<Inst, String> {
    let mut p = Printer::new(&[]);
    p.plan(plan);
    lines_of(&p.out)
}

fn lines_of(printed: &Printed) -> BTreeMap<Inst, String> {
    let lines: Vec<&str> = printed.text.lines().collect();
    let shown = |line: usize| {
        let line = lines.get(line).copied().unwrap_or_default();
        let text = line.rsplit_once(" loc(").map_or(line, |(text, _)| text).trim_end_matches(" {");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let insts = printed.lines.iter().filter_map(|(anchor, line)| match anchor.at {
        ErrorLocation::Inst(inst) => Some((inst, shown(*line))),
        ErrorLocation::Head | ErrorLocation::Block(_) | ErrorLocation::Terminator(_) => None,
    });
    insts.collect()
}

/// Replaces value numbers in a message by the names in the text.
pub(crate) fn with_names(message: &str, owner: Owner, module: &Module) -> String {
    let mut names;
    match owner {
        Owner::Module => return message.to_string(),
        Owner::Kernel(i) => {
            let Some(k) = module.kernels.get(i) else { return message.to_string() };
            names = Names::of_parameters(k);
            names.give_all(&k.body);
        }
        Owner::Plan(i) => {
            let Some(p) = module.plans.get(i) else { return message.to_string() };
            names = Names::default();
            names.give_all(&p.body);
        }
    }
    let mut parts = message.split('%');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match part.get(..digits).and_then(|d| d.parse::<u32>().ok()) {
            Some(n) => {
                out += &names.value(Value::from_u32(n));
                out += part.get(digits..).unwrap_or_default();
            }
            None => {
                out.push('%');
                out += part;
            }
        }
    }
    out
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Is this a valid name after `%` or `^`, rather than a number?
pub(super) fn is_name(s: &str) -> bool {
    s.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') && !s.bytes().all(|c| c.is_ascii_digit())
}

/// Names of values and blocks, in textual order.
#[derive(Default)]
struct Names {
    values: SecondaryMap<Value, String>,
    blocks: SecondaryMap<Block, String>,
    taken: BTreeSet<String>,
    next: u32,
}

impl Names {
    fn of_parameters(k: &Kernel) -> Names {
        let mut names = Names::default();
        for v in k.params.iter().map(|p| p.value).chain(k.grid.iter().map(|g| g.value)) {
            if k.body.has_value(v) {
                names.give(&k.body, v);
            }
        }
        names
    }

    /// Names everything that the blocks define. Types may refer to values of later blocks.
    fn give_all(&mut self, body: &Body) {
        for b in &body.layout {
            for v in &body.block(*b).args {
                self.give(body, *v);
            }
            for i in &body.block(*b).insts {
                self.give_result(body, *i);
                if let Op::Run { insts, .. } = &body.inst(*i).op {
                    // A run must not contain runs; in an invalid body this would recurse endlessly.
                    insts.iter().for_each(|i| self.give_result(body, *i));
                }
            }
        }
    }

    fn give_result(&mut self, body: &Body, i: Inst) {
        if let Some(v) = body.inst(i).result {
            self.give(body, v);
        }
    }

    fn give(&mut self, body: &Body, v: Value) {
        let wish = body.name(v);
        let mut name = wish.to_string();
        if !is_name(wish) {
            name = self.next.to_string();
            self.next += 1;
        } else {
            let mut n = 1;
            while self.taken.contains(&name) {
                n += 1;
                name = format!("{wish}_{n}");
            }
            self.taken.insert(name.clone());
        }
        self.values[v] = name;
    }

    fn value(&self, v: Value) -> String {
        let name = &self.values[v];
        // A value of another body, or one without a definition, which only an invalid body has.
        if name.is_empty() { format!("%unknown{}", v.as_u32()) } else { format!("%{name}") }
    }

    fn values(&self, vs: &[Value]) -> String {
        vs.iter().map(|v| self.value(*v)).collect::<Vec<_>>().join(", ")
    }

    fn extent(&self, e: Extent) -> String {
        match e {
            Extent::Static(n) => n.to_string(),
            Extent::Bounded { value, max } => format!("{}<={max}", self.value(value)),
        }
    }

    fn tile(&self, t: &TileType) -> String {
        format!("tile {}[{}, {}]{}", t.elem, self.extent(t.rows), self.extent(t.cols), space(t.space))
    }

    fn ty(&self, ty: &Type) -> String {
        match ty {
            Type::Index => "index".to_string(),
            Type::Scalar(e) => e.to_string(),
            Type::Tile(t) => self.tile(t),
            Type::Buffer(b) => b.to_string(),
            Type::Slot(t) => format!("slot {}", self.tile(t)),
            Type::Pending(q, t) => format!("pending({}) {}", q.name(), self.tile(t)),
            Type::Group(q, t) => format!("group({}) {}", q.name(), self.tile(t)),
            Type::Ring { stages, tile } => format!("ring({stages}) {}", self.tile(tile)),
        }
    }

    fn call(&self, c: &BlockCall) -> String {
        let name = &self.blocks[c.block];
        let name = if name.is_empty() { "unknown" } else { name };
        if c.args.is_empty() { format!("^{name}") } else { format!("^{name}({})", self.values(&c.args)) }
    }
}

fn space(s: Space) -> String {
    s.to_string()
}

struct Printer<'a> {
    out: Printed,
    line: usize,
    files: &'a [String],
    owner: Owner,
}

impl Printer<'_> {
    fn new(files: &[String]) -> Printer<'_> {
        Printer { out: Printed::default(), line: 0, files, owner: Owner::Module }
    }

    fn text(&mut self, s: &str) {
        self.out.text += s;
    }

    fn newline(&mut self) {
        self.out.text.push('\n');
        self.line += 1;
    }

    /// Ends a line about something, with its location.
    fn end(&mut self, at: ErrorLocation, loc: Loc) {
        self.mark(at);
        self.place(loc);
        self.newline();
    }

    fn mark(&mut self, at: ErrorLocation) {
        self.out.lines.push((Anchor { owner: self.owner, at }, self.line));
    }

    /// Pads with spaces up to a column, at least one.
    fn pad(&mut self, column: usize) {
        let text = &mut self.out.text;
        let start = text.rfind('\n').map_or(0, |i| i + 1);
        let width = text.get(start..).map_or(0, |line| line.chars().count());
        for _ in width..column.max(width + 1) {
            text.push(' ');
        }
    }

    fn ty(&mut self, ty: &str) {
        self.pad(TYPE_COLUMN);
        let _ = write!(self.out.text, ": {ty}");
    }

    fn place(&mut self, loc: Loc) {
        if loc.line == 0 {
            return;
        }
        self.pad(LOC_COLUMN);
        self.text("loc(");
        if let Some(file) = (loc.file as usize).checked_sub(1) {
            let name = quoted(self.files.get(file).map_or("?", String::as_str));
            self.text(&name);
            self.text(":");
        }
        let _ = write!(self.out.text, "{}:{})", loc.line, loc.column);
    }

    fn kernel(&mut self, k: &Kernel) {
        let names = Names::of_parameters(k);
        let params: Vec<String> = k
            .params
            .iter()
            .map(|p| match k.body.ty(p.value) {
                Type::Buffer(b) => {
                    let mode = match p.mode {
                        ParamMode::In => "in",
                        ParamMode::Out => "out",
                        ParamMode::InOut => "inout",
                    };
                    let aligned = if p.aligned { " aligned" } else { "" };
                    format!("{}: {mode} {}{aligned}", names.value(p.value), buffer(b))
                }
                ty => format!("{}: {}", names.value(p.value), names.ty(ty)),
            })
            .collect();
        self.text(&format!("kernel @{}({})", k.name, params.join(", ")));
        self.symbols(&k.symbols);
        if !k.grid.is_empty() {
            let axes: Vec<String> = k
                .grid
                .iter()
                .map(|g| match g.step {
                    1 => format!("{}: {}", names.value(g.value), g.extent),
                    step => format!("{}: ceil({}, {step})", names.value(g.value), g.extent),
                })
                .collect();
            self.text(&format!(" grid({})", axes.join(", ")));
        }
        if let Some(compute) = &k.compute {
            self.text(&format!(" computes({})", computes::clause(compute)));
        }
        match k.state {
            State::Unscheduled => self.tiled(k),
            State::Cpu(cpu) => {
                let name = if cpu.is_named() { cpu.name() } else { quoted(&cpu.name()) };
                self.text(&format!(" cpu({name}) scratch({})", k.scratch));
            }
            State::Gpu { arch, warps } => {
                self.text(&format!(" gpu({}, {warps}) scratch({})", arch.name(), k.scratch));
            }
        }
        self.body(&k.body, names, k.compute.as_ref());
    }

    /// Decisions about an unscheduled kernel. Instructions are numbered in their order.
    fn tiled(&mut self, k: &Kernel) {
        let Some(tiled) = &k.tiled else { return };
        let mut parts: Vec<String> = tiled.warps.iter().map(|n| format!("warps({n})")).collect();
        parts.extend(tiled.loads_once.then(|| "once".to_string()));
        let numbers: Vec<String> = k
            .body
            .insts()
            .enumerate()
            .filter(|(_, (_, i, _))| tiled.apart.contains(i))
            .map(|(n, _)| n.to_string())
            .collect();
        parts.extend((!numbers.is_empty()).then(|| format!("apart({})", numbers.join(", "))));
        self.text(&format!(" tiled({})", parts.join(", ")));
    }

    fn symbols(&mut self, symbols: &[String]) {
        if !symbols.is_empty() {
            self.text(&format!(" symbols({})", symbols.join(", ")));
        }
    }

    fn plan(&mut self, plan: &Plan) {
        self.text(&format!("plan @{}", plan.name));
        match plan.variant {
            PlanVariant::Plain => {}
            PlanVariant::Tapped => self.text(" tapped"),
            PlanVariant::Prepare => self.text(" prepare"),
        }
        self.symbols(&plan.symbols);
        if !plan.taps.is_empty() {
            let taps: Vec<String> = plan.taps.iter().map(|t| quoted(t)).collect();
            self.text(&format!(" taps({})", taps.join(", ")));
        }
        if !plan.slots.is_empty() {
            let slots: Vec<&Dim> = plan.slots.iter().map(|s| &s.bytes).collect();
            self.text(&format!(" slots({})", list(&slots)));
        }
        self.body(&plan.body, Names::default(), None);
    }

    fn body(&mut self, body: &Body, mut names: Names, compute: Option<&Compute>) {
        self.text(" {");
        self.end(ErrorLocation::Head, Loc::default());
        for (line, elem, loc) in compute.map(computes::lines).unwrap_or_default() {
            self.text(&format!("  {line}"));
            if let Some(elem) = elem {
                self.ty(elem.name());
            }
            self.place(loc);
            self.newline();
        }
        let mut taken = BTreeSet::new();
        for (i, b) in body.layout.iter().enumerate() {
            let wish = &body.block(*b).name;
            let name = if is_name(wish) && !taken.contains(wish) { wish.clone() } else { format!("bb{i}") };
            taken.insert(name.clone());
            names.blocks[*b] = name;
        }
        names.give_all(body);
        for b in &body.layout {
            let data = body.block(*b);
            let head = format!("^{}", names.blocks[*b]);
            self.text(&head);
            if !data.args.is_empty() {
                let args: Vec<String> =
                    data.args.iter().map(|v| format!("{}: {}", names.value(*v), names.ty(body.ty(*v)))).collect();
                self.text(&format!("({})", args.join(", ")));
            }
            self.text(":");
            self.end(ErrorLocation::Block(*b), Loc::default());
            for i in &data.insts {
                self.inst(body, *i, &names, 1);
            }
            self.text("  ");
            let t = match &data.terminator {
                Terminator::Br(c) => format!("br {}", names.call(c)),
                Terminator::BrIf { condition, then, otherwise } => {
                    format!("br_if {}, {}, {}", names.value(*condition), names.call(then), names.call(otherwise))
                }
                Terminator::Return(_) => "return".to_string(),
                Terminator::Roles(roles) => {
                    let roles: Vec<String> = roles
                        .iter()
                        .map(|r| {
                            let name = quoted(&r.name);
                            format!("{name} warps({}) registers({}) {}", r.warps, r.registers, names.call(&r.target))
                        })
                        .collect();
                    format!("roles {}", roles.join(", "))
                }
            };
            self.text(&t);
            self.end(ErrorLocation::Terminator(*b), Loc::default());
        }
        self.text("}");
        self.newline();
    }

    fn inst(&mut self, body: &Body, i: Inst, names: &Names, depth: usize) {
        let data = body.inst(i);
        for _ in 0..depth {
            self.text("  ");
        }
        if let Op::Run { rows, cols, insts } = &data.op {
            self.text(&format!("run ({}, {})", names.extent(*rows), names.extent(*cols)));
            self.place(data.loc);
            self.text(" {");
            self.mark(ErrorLocation::Inst(i));
            self.newline();
            if depth < 2 {
                for i in insts {
                    self.inst(body, *i, names, depth + 1);
                }
            }
            for _ in 0..depth {
                self.text("  ");
            }
            self.text("}");
            self.newline();
            return;
        }
        if let Some(v) = data.result {
            self.text(&format!("{} = ", names.value(v)));
        }
        self.text(data.op.info().name);
        let mut parts: Vec<String> = literal(&data.op, data.result.map(|v| body.ty(v))).into_iter().collect();
        match (&data.op, data.op.accessed()) {
            (Op::Plan(PlanOp::Param { .. }), _) if !data.operands.is_empty() => {
                parts.iter_mut().for_each(|p| *p += &format!("[{}]", names.values(&data.operands)));
            }
            (Op::Plan(PlanOp::Launch { .. }), _) => {
                parts.iter_mut().for_each(|p| *p += &format!("({})", names.values(&data.operands)));
            }
            (op, Some(at)) => {
                let after = op.info().operands.len().saturating_sub(at + 2);
                let end = data.operands.len().saturating_sub(after).max(at.min(data.operands.len()));
                let (front, last) = data.operands.split_at(end);
                for (k, v) in front.iter().enumerate() {
                    match k.checked_sub(at) {
                        Some(0) if front.len() > at + 1 => {
                            parts.push(format!("{}[{}]", names.value(*v), names.values(&front[at + 1..])));
                        }
                        Some(1..) => {}
                        _ => parts.push(names.value(*v)),
                    }
                }
                parts.extend(last.iter().map(|v| names.value(*v)));
            }
            (_, None) => parts.extend(data.operands.iter().map(|v| names.value(*v))),
        }
        parts.extend(data.op.attributes().unwrap_or_default().into_iter().map(|(k, v)| format!("{k}={v}")));
        if !parts.is_empty() {
            self.text(" ");
            self.text(&parts.join(", "));
        }
        if let Some(v) = data.result {
            let ty = names.ty(body.ty(v));
            self.ty(&ty);
        }
        self.end(ErrorLocation::Inst(i), data.loc);
    }
}

/// A buffer type without its first keyword.
fn buffer(b: &BufferType) -> String {
    let strides =
        if b.strides == row_major(&b.shape) { String::new() } else { format!(" strides[{}]", list(&b.strides)) };
    format!("{}[{}]{strides}", b.elem, list(&b.shape))
}
