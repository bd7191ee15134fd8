//! The values that are compared.
//!
//! In: a module after the passes. Out: for graph IR, the module with a tap after each operation;
//! for tile IR, the buffers that launches write; and the place, the type and the text of each. In
//! a loop with a counter the values of all iterations are stacked; in another one the last is
//! seen. Constants, parameters and the arguments of blocks are not watched.

use crate::ir::{self, Cfg, Function, Inst, Loc, Op, Terminator, Type, Value, bound_of_counter};
use crate::shape::{Dim, Elem};
use crate::tile::{self, ParamMode, PlanOp, PlanVariant};
use std::collections::{BTreeMap, BTreeSet};

/// A value that is compared.
pub(super) struct Watched {
    /// The path of its tap.
    pub(super) path: String,
    /// Its value in the function.
    pub(super) value: Option<Value>,
    /// Its location.
    pub(super) loc: Loc,
    /// The same, with the file.
    pub(super) place: String,
    /// The operation that makes it.
    pub(super) op: String,
    /// Its type, with the names of dimensions.
    pub(super) ty: String,
    /// Its element type and number of elements.
    pub(super) size: (Elem, Dim),
    /// Its line in the text form.
    pub(super) line: String,
    /// Its position in the text, after that of each loop around it; whether the loop is stacked.
    pub(super) order: Vec<(usize, bool)>,
}

impl Watched {
    /// Number of axes of stacked iterations.
    pub(super) fn stacked(&self) -> usize {
        self.order.iter().filter(|(_, stacked)| *stacked).count()
    }
}

/// The values of an entry point, in the order of the text.
#[derive(Default)]
pub(super) struct Values {
    pub(super) list: Vec<Watched>,
    /// The function that computes them; none in tile IR.
    pub(super) function: Option<Function>,
}

impl Values {
    /// The index of a value.
    pub(super) fn index(&self, v: Value) -> Option<usize> {
        self.list.iter().position(|w| w.value == Some(v))
    }

    /// The values that are returned, in order.
    pub(super) fn returned(&self) -> Vec<Value> {
        let Some(f) = &self.function else { return Vec::new() };
        let ends = f.layout.iter().map(|b| &f.block(*b).terminator);
        let found = ends.filter_map(|t| if let Terminator::Return(list) = t { Some(list.clone()) } else { None });
        found.into_iter().next().unwrap_or_default()
    }

    /// The values of taps and states, by name.
    pub(super) fn named(&self) -> BTreeMap<String, Value> {
        let Some(f) = &self.function else { return BTreeMap::new() };
        let mut named = BTreeMap::new();
        for (_, _, inst) in f.insts() {
            let name = match &inst.op {
                Op::Tap { name, .. } => name.clone(),
                Op::SetState { name } => format!("state {name}"),
                _ => continue,
            };
            if let Some(v) = inst.operands.first() {
                named.insert(name, *v);
            }
        }
        named
    }
}

/// The module with all values of its entry points as taps, and the values by entry point.
pub(super) fn watch(module: &ir::Module) -> (ir::Module, BTreeMap<String, Values>) {
    let printed = ir::text::print_with_anchors(module);
    let lines: Vec<&str> = printed.text.lines().collect();
    let mut text: BTreeMap<(usize, Inst), String> = BTreeMap::new();
    for (anchor, line) in &printed.lines {
        if let (Some(f), None, ir::text::PrintedPart::Inst(i)) = (anchor.function, anchor.fused, anchor.at) {
            text.insert((f, i), line_of(lines.get(*line).copied().unwrap_or_default()));
        }
    }
    let (mut watched, mut all) = (module.clone(), BTreeMap::new());
    watched.functions.retain(|f| !f.tapped);
    for plain in module.functions.iter().filter(|f| !f.tapped) {
        let at = module.functions.iter().position(|f| f.tapped && f.name == plain.name);
        let at = at.or_else(|| module.functions.iter().position(|f| f.name == plain.name)).unwrap_or(0);
        let Some(base) = module.functions.get(at) else { continue };
        let (function, list) = taps(module, base, &|i| text.get(&(at, i)).cloned().unwrap_or_default());
        watched.functions.push(function);
        all.insert(plain.name.clone(), Values { list, function: Some(base.clone()) });
    }
    if ir::verify(&watched).is_ok() { (watched, all) } else { (module.clone(), BTreeMap::new()) }
}

/// A location with its file; empty if it is unknown.
fn place(loc: Loc, own: &str, files: &[String]) -> String {
    if loc.line > 0 { loc.text(own, files) } else { String::new() }
}

/// A line without its location.
fn line_of(line: &str) -> String {
    let line = line.split(" loc(").next().unwrap_or(line);
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A function with a tap after each operation.
fn taps(module: &ir::Module, base: &Function, line: &dyn Fn(Inst) -> String) -> (Function, Vec<Watched>) {
    let mut f = base.clone();
    f.tapped = true;
    let (cfg, lengths) = (base.cfg(), base.lengths_in(&base.layout));
    let loops = cfg.loops();
    let mut starts = BTreeMap::new();
    let mut position = 0;
    for b in &base.layout {
        starts.insert(*b, position);
        position += base.block(*b).insts.len() + 1;
    }
    let (mut list, mut position) = (Vec::new(), 0);
    for b in &base.layout {
        position += 1;
        let mut around: Vec<&ir::Loop> = loops.iter().filter(|l| l.blocks.contains(b)).collect();
        around.sort_by_key(|l| starts.get(&l.header));
        let counters: Vec<Option<(Value, Dim)>> =
            around.iter().map(|l| counter(base, &cfg, l, *b).filter(|(_, n)| !mentions(n, &lengths))).collect();
        let headers = around.iter().map(|l| starts.get(&l.header).copied().unwrap_or(0));
        let order: Vec<(usize, bool)> = headers.zip(counters.iter().map(Option::is_some)).collect();
        let mut insts = Vec::new();
        for i in &base.block(*b).insts {
            insts.push(*i);
            position += 1;
            let data = base.inst(*i);
            let (Some(v), false) = (data.result, is_trivial(&data.op)) else { continue };
            let Type::Tensor(ty) = base.ty(v) else { continue };
            // A comparison of indices decides a branch, and is in no buffer.
            let of_indices =
                matches!(data.op, Op::Compare(_)) && data.operands.iter().any(|o| *base.ty(*o) == Type::Index);
            if of_indices || ty.shape.iter().any(|d| mentions(d, &lengths)) {
                continue;
            }
            let path = format!("%{}", v.as_u32());
            let (indices, extents): (Vec<Value>, Vec<Dim>) = counters.iter().flatten().cloned().unzip();
            let operands = std::iter::once(v).chain(indices).collect();
            insts.push(f.make_inst(Op::Tap { name: path.clone(), extents }, operands, None, data.loc));
            let op = match &data.op {
                Op::Fused { body, .. } => last_op(body),
                op => op.info().name,
            };
            let place = place(data.loc, &module.name, &module.files);
            let mut order = order.clone();
            order.push((position, false));
            let size = (ty.elem, product(&ty.shape));
            let (op, ty, line) = (op.to_string(), ty.to_string(), line(*i));
            list.push(Watched { path, value: Some(v), loc: data.loc, place, op, ty, size, line, order });
        }
        f.block_mut(*b).insts = insts;
    }
    (f, list)
}

/// The product of extents.
fn product(shape: &[Dim]) -> Dim {
    shape.iter().fold(Dim::one(), |n, d| n.mul(d))
}

fn mentions(d: &Dim, names: &BTreeSet<std::sync::Arc<str>>) -> bool {
    d.symbols().iter().any(|symbol| names.contains(symbol))
}

/// The operation that makes the result of a fused region.
fn last_op(body: &Function) -> &'static str {
    body.insts().filter(|(_, _, d)| d.result.is_some()).map(|(_, _, d)| d.op.info().name).last().unwrap_or("fused")
}

/// Is the result the same however a program is computed?
fn is_trivial(op: &Op) -> bool {
    matches!(op, Op::Const(_) | Op::Param { .. } | Op::DimValue(_) | Op::Iota { .. } | Op::Causal)
}

/// The counter of a loop, if it is in range in this block, and its bound.
fn counter(f: &Function, cfg: &Cfg, l: &ir::Loop, at: ir::Block) -> Option<(Value, Dim)> {
    let bound = |v: &Value| Some((*v, bound_of_counter(f, cfg, at, l.header, *v)?));
    f.block(l.header).args.iter().find_map(bound)
}

/// The buffers that the launches of each plan write.
pub(super) fn launches(module: &tile::Module) -> BTreeMap<String, Values> {
    let printed = tile::text::print_with_anchors(module);
    let lines: Vec<&str> = printed.text.lines().collect();
    let mut all = BTreeMap::new();
    for (n, plan) in module.plans.iter().enumerate().filter(|(_, p)| p.variant == PlanVariant::Plain) {
        let mut list = Vec::new();
        for (position, (_, i, data)) in plan.body.insts().enumerate() {
            let tile::Op::Plan(PlanOp::Launch { kernel }) = &data.op else { continue };
            let Some(k) = module.kernels.iter().find(|k| k.name == *kernel) else { continue };
            let anchor = printed.lines.iter().find(|(anchor, _)| {
                anchor.owner == tile::text::Owner::Plan(n) && anchor.at == tile::text::ErrorLocation::Inst(i)
            });
            let line = anchor.and_then(|(_, line)| lines.get(*line)).map_or(String::new(), |line| line_of(line));
            for (which, (param, v)) in k.params.iter().zip(&data.operands).enumerate() {
                let tile::Type::Buffer(ty) = plan.body.ty(*v) else { continue };
                if param.mode == ParamMode::In {
                    continue;
                }
                let shape: Vec<String> = ty.shape.iter().map(ToString::to_string).collect();
                let place = place(data.loc, &module.name, &module.files);
                list.push(Watched {
                    path: launch_path(i, which),
                    value: None,
                    loc: data.loc,
                    place,
                    op: kernel.clone(),
                    ty: format!("{}[{}]", ty.elem, shape.join(", ")),
                    size: (ty.elem, product(&ty.shape)),
                    line: line.clone(),
                    order: vec![(position, false)],
                });
            }
        }
        all.insert(plan.name.clone(), Values { list, function: None });
    }
    all
}

/// The name of what a launch writes.
pub(super) fn launch_path(launch: tile::Inst, which: usize) -> String {
    format!("%{launch}.{which}")
}
