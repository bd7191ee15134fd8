//! From a function to a plan: storage for values, views for data movement, a launch for each
//! region.
//!
//! In: a function in which every computing instruction is a region (`prepare`). Out: a
//! [`Plan`](tile::Plan) and its kernels, which are added to the module.
//!
//! Where values are stored:
//!
//! * arguments, parameters, results and taps are in the caller's buffers, row-major;
//! * the result of a region gets a slot of its own (liveness decides later which slots share
//!   memory), or is written directly to the function's result;
//! * the operands of a `concat` are computed in place where possible (`concats`);
//! * movement is a view of its operand. Where a reshape would need a copy, the layout of the
//!   producer is changed instead: a region whose result is only transposed and then reshaped is
//!   stored in the transposed order;
//! * a tensor that is a block argument has a slot, into which each jump copies (loop-carried values
//!   are mostly computed there, without a copy);
//! * the result of an update has a slot, into which its target is copied; mostly it shares the
//!   target's slot, and nothing is copied.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]

mod checks;
mod concats;
mod jumps;
mod parameters;
mod storage;
mod taps;
mod together;

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::region::{Operand, buffer_type};
use super::{Call, Shared, attention, chain, gather, map, matmul, rows, scan};
use crate::ir::requirements::{length_checks, lengths};
use crate::ir::{self, Cfg, Function, FusionKind, Op, Terminator, Use, Value};
use crate::shape::{Dim, Fact, TensorType};
use crate::tile::{self, PlanBuilder, PlanVariant, View};
use parameters::Join;
use storage::Storage;
use taps::ForTaps;
use together::{HeldRegion, Stacked};

/// Lowers a function: adds its plan and kernels to `out`. Kernels that `shared` already has are
/// reused.
///
/// # Errors
/// An unknown instruction pattern, which is a bug in attnc.
pub(super) fn lower(f: &Function, shared: &mut Shared, out: &mut tile::Module) -> Result<(), String> {
    let variant = if f.tapped { PlanVariant::Tapped } else { PlanVariant::Plain };
    let taps = ir::tap_patterns(f);
    let for_taps = ForTaps::analyse(f);
    let states: Vec<&str> = out.states.iter().map(|s| s.name.as_str()).collect();
    let cfg = f.cfg();
    let storage = Storage::analyse(f, &cfg, for_taps.as_ref(), &states);
    let beside = |d: &ir::InstData| for_taps.as_ref().is_some_and(|t| d.result.is_some_and(|v| t.has(f, v)));
    let pairs = together::pairs(f, &cfg, beside);
    let stacked = together::stacked(f, &cfg, &pairs, beside);
    let first_root = f.value_count() + states.len();
    let mut lowering = Lowering {
        f,
        cfg,
        at: f.entry(),
        uses: f.uses(),
        builder: PlanBuilder::new(&f.name, variant, ir::run_time_dims(f), taps),
        shared,
        out,
        places: SecondaryMap::new(),
        roots: SecondaryMap::new(),
        indices: SecondaryMap::new(),
        blocks: SecondaryMap::new(),
        returned: returned(f),
        packed: BTreeMap::new(),
        joins: BTreeMap::new(),
        next_root: u32::try_from(first_root).unwrap_or(u32::MAX),
        entry: tile::Block::from_u32(0),
        for_taps,
        storage,
        most: lengths(f).into_iter().map(|l| (l.name.to_string(), l.most.clone())).collect(),
        checks: length_checks(f),
        pairs,
        held: None,
        stacked,
        waiting: None,
        concats: BTreeMap::new(),
        parts: BTreeSet::new(),
    };
    lowering.run()?;
    let plan = lowering.builder.finish();
    out.plans.push(plan);
    Ok(())
}

struct Lowering<'a> {
    f: &'a Function,
    cfg: Cfg,
    at: ir::Block,
    uses: SecondaryMap<Value, Vec<Use>>,
    builder: PlanBuilder,
    shared: &'a mut Shared,
    out: &'a mut tile::Module,
    /// The view of each tensor that is stored.
    places: SecondaryMap<Value, Option<View>>,
    /// The buffer of each view root. Roots are values, or numbers above the last value for storage
    /// introduced here.
    roots: SecondaryMap<Value, Option<tile::Value>>,
    indices: SecondaryMap<Value, Option<tile::Value>>,
    blocks: SecondaryMap<ir::Block, Option<tile::Block>>,
    /// The function result that a value becomes; `None` if it becomes several.
    returned: BTreeMap<Value, Option<u32>>,
    /// Root of each packed parameter, by offset in the packed area.
    packed: BTreeMap<u64, Value>,
    /// Concatenated parameters, by the root of the view of the concat.
    joins: BTreeMap<Value, Join>,
    next_root: u32,
    entry: tile::Block,
    /// Instructions that are only computed for a requested tap.
    for_taps: Option<ForTaps>,
    storage: Storage,
    /// Upper bounds of the dimensions that get their values at run time.
    most: BTreeMap<String, Dim>,
    /// Checks to emit where such a dimension gets its value.
    checks: BTreeMap<ir::Inst, Vec<(Fact, ir::Loc)>>,
    /// Regions to compute with the next one, by their results.
    pairs: BTreeMap<Value, Value>,
    /// A region held back, waiting for its partner.
    held: Option<HeldRegion>,
    /// Regions whose result is assigned at an index next, and whether that is its only use.
    stacked: BTreeMap<Value, bool>,
    /// A region waiting for the assignment.
    waiting: Option<Stacked>,
    /// Views of concat results that are already partly written.
    concats: BTreeMap<Value, View>,
    /// Elementwise results that were written as parts of a concat.
    parts: BTreeSet<Value>,
}

/// The function result of each returned value; empty if there are several returns.
fn returned(f: &Function) -> BTreeMap<Value, Option<u32>> {
    let mut ends = f.layout.iter().filter_map(|b| match &f.block(*b).terminator {
        Terminator::Return(vs) => Some(vs),
        Terminator::Br(_) | Terminator::BrIf { .. } => None,
        Terminator::Roles(never) => match *never {},
    });
    let mut results = BTreeMap::new();
    if let (Some(only), None) = (ends.next(), ends.next()) {
        for (i, v) in only.iter().enumerate() {
            results.entry(*v).and_modify(|result| *result = None).or_insert(u32::try_from(i).ok());
        }
    }
    results
}

/// The operand for a value that need not be in memory: a literal or a dimension.
fn literal_of(f: &Function, v: Value) -> Option<Operand> {
    let op = &f.definition(v)?.1.op;
    if let Op::Const(s) = op {
        return Some(Operand::Literal(*s));
    }
    if let Op::DimValue(d) = op { Some(Operand::Dim(d.clone())) } else { None }
}

impl Lowering<'_> {
    fn run(&mut self) -> Result<(), String> {
        self.entry = self.builder.current();
        for block in &self.f.layout {
            let data = self.f.block(*block);
            if *block == self.f.entry() {
                self.blocks[*block] = Some(self.entry);
                for (i, v) in data.args.iter().enumerate() {
                    let view = View::whole(*v, self.tensor(*v)?);
                    let op = tile::Op::Plan(tile::PlanOp::Arg(u32::try_from(i).unwrap_or(u32::MAX)));
                    let buffer = self.builder.value(op, Vec::new(), tile::Type::Buffer(buffer_type(&view)));
                    self.roots[*v] = Some(buffer);
                    self.places[*v] = Some(view);
                }
                continue;
            }
            let mut types = Vec::new();
            for v in &data.args {
                match self.f.ty(*v) {
                    ir::Type::Index => types.push(tile::Type::Index),
                    ir::Type::Tensor(ty) => {
                        let view = self.own_slot(*v, ty);
                        self.places[*v] = Some(view);
                    }
                }
            }
            let (b, args) = self.builder.new_block(types);
            self.blocks[*block] = Some(b);
            let indices = data.args.iter().filter(|v| *self.f.ty(**v) == ir::Type::Index);
            for (v, a) in indices.zip(args) {
                self.indices[*v] = Some(a);
            }
        }
        // Reverse postorder: definitions come before uses.
        for block in self.f.reverse_postorder() {
            self.builder.switch_to(self.blocks[block].ok_or("a block without a counterpart")?);
            self.at = block;
            let mut last = ir::Loc::default();
            for inst in &self.f.block(block).insts {
                let data = self.f.inst(*inst);
                if self.is_for_taps(data) {
                    continue;
                }
                // Constants have no location in the text form of the graph IR, so they have none
                // here.
                let known = !matches!(data.op, Op::Const(_));
                if known {
                    last = data.loc;
                }
                self.builder.at(if known { last } else { ir::Loc::default() });
                if let Op::Length { name, most } = &data.op {
                    self.length(*inst, data, name, most)?;
                    continue;
                }
                self.instruction(data)?;
            }
            self.builder.at(last);
            self.terminator(&self.f.block(block).terminator)?;
        }
        Ok(())
    }

    fn tensor(&self, v: Value) -> Result<&TensorType, String> {
        self.f.tensor(v).ok_or_else(|| format!("{v} is not a tensor"))
    }

    fn fresh_root(&mut self) -> Value {
        let v = Value::from_u32(self.next_root);
        self.next_root = self.next_root.saturating_add(1);
        v
    }

    /// Emits code in the entry block, which dominates everything.
    fn in_entry<T>(&mut self, f: impl FnOnce(&mut PlanBuilder) -> T) -> T {
        let here = self.builder.current();
        self.builder.switch_to(self.entry);
        let out = f(&mut self.builder);
        self.builder.switch_to(here);
        out
    }

    /// Allocates an arena slot for `root`; `view` is a permutation of row-major order.
    fn add_slot(&mut self, root: Value, view: &View) {
        let size = i64::try_from(view.elem.size()).unwrap_or(8);
        let bytes = Dim::product(&view.shape).mul(&Dim::from(size));
        self.add_room(root, bytes, buffer_type(view));
    }

    /// Allocates an arena slot of `bytes`. If the size depends on a dimension that is only known
    /// later, the slot has its maximum size, and the buffer is a view of it.
    fn add_room(&mut self, root: Value, bytes: Dim, ty: tile::BufferType) {
        let most = bytes.at_most(&|name| self.most.get(name).cloned());
        // The type may name such a dimension even where there are no elements.
        let mut named = ty.shape.iter().chain(&ty.strides).flat_map(Dim::symbols);
        let is_known = named.all(|name| !self.most.contains_key(&*name));
        let ty = if is_known { ty } else { tile::flat(ty.elem, &most) };
        self.roots[root] = Some(self.in_entry(|b| b.slot(most, ty)));
    }

    /// The whole slot of a value, its own or the one that it shares.
    fn own_slot(&mut self, v: Value, ty: &TensorType) -> View {
        let view = View::whole(self.storage.home(v).unwrap_or(v), ty);
        // States are not slots.
        let state = storage::state_of(self.f, view.root).and_then(|at| self.out.states.get(at));
        if let Some(Ok(view)) = state.map(|s| s.name.clone()).map(|name| self.state(&name)) {
            return view;
        }
        if self.roots[view.root].is_none() {
            self.add_slot(view.root, &view);
        }
        view
    }

    /// The whole memory of a state.
    fn state(&mut self, name: &str) -> Result<View, String> {
        let at = self.out.states.iter().position(|s| s.name == name).ok_or_else(|| format!("no state {name}"))?;
        let view = View::whole(storage::cell(self.f, at), &self.out.states[at].ty);
        if self.roots[view.root].is_none() {
            let (op, ty) = (tile::Op::Plan(tile::PlanOp::State { name: name.to_string() }), buffer_type(&view));
            self.roots[view.root] = Some(self.in_entry(|b| b.value(op, Vec::new(), tile::Type::Buffer(ty))));
        }
        Ok(view)
    }

    /// A plan buffer for a view: the root's buffer if it is the same view, else a `view` of it.
    fn buffer(&mut self, view: &View) -> Result<tile::Value, String> {
        let joined = self.joined_in_memory(view)?;
        let view = joined.as_ref().unwrap_or(view);
        let root = self.roots[view.root].ok_or_else(|| format!("{} is not in memory", view.root))?;
        let ty = buffer_type(view);
        let same = self.builder.ty(root).buffer() == Some(&ty);
        if same && view.offset == Dim::zero() && view.dynamic.is_empty() {
            return Ok(root);
        }
        let mut dynamic = Vec::new();
        for (v, stride) in &view.dynamic {
            dynamic.push((self.index(*v)?, stride.clone()));
        }
        Ok(self.builder.view(root, view.offset.clone(), &dynamic, ty))
    }

    fn index(&mut self, v: Value) -> Result<tile::Value, String> {
        if let Some(x) = self.indices[v] {
            return Ok(x);
        }
        match literal_of(self.f, v) {
            Some(Operand::Literal(s)) => Ok(self.builder.index(s.as_i64())),
            Some(Operand::Dim(d)) => Ok(self.builder.dim(&d)),
            _ => Err(format!("the index {v} was not computed")),
        }
    }

    fn launch(&mut self, call: Call) -> Result<(), String> {
        let mut operands = Vec::new();
        for v in &call.buffers {
            operands.push(self.buffer(v)?);
        }
        let name = self.shared.kernels.add(call.kernel);
        self.builder.launch(&name, operands);
        Ok(())
    }

    /// The view of a tensor, which is materialised if it is not in memory.
    fn view(&mut self, v: Value) -> Result<View, String> {
        if let Some(view) = &self.places[v] {
            return Ok(view.clone());
        }
        let root = self.fresh_root();
        let view = View::whole(root, self.tensor(v)?);
        self.add_slot(root, &view);
        self.fill(v, &view)?;
        // Not cached: this block need not dominate the next use.
        Ok(view)
    }

    /// Materialises a constant, a dimension or a counter with a kernel without operands.
    fn fill(&mut self, v: Value, to: &View) -> Result<(), String> {
        let (_, data) = self.f.definition(v).ok_or_else(|| format!("{v} is not in memory"))?;
        let mut body = Function::new("");
        let entry = body.entry();
        let made = body
            .push(entry, data.op.clone(), Vec::new(), Some(self.f.ty(v).clone()), data.loc)
            .ok_or("a source without a result")?;
        body.terminate(entry, Terminator::Return(vec![made]));
        let call = map::map("fill", &body, &[], to)?;
        self.launch(call)
    }

    /// Stores a tensor in `to`: materialises it there, or copies it.
    fn put(&mut self, name: &str, v: Value, to: &View) -> Result<(), String> {
        match self.places[v].clone() {
            None => self.fill(v, to),
            Some(from) => {
                let call = map::copy(name, &from, to);
                self.launch(call)
            }
        }
    }

    /// Copies a view to a row-major slot of its own.
    fn copied(&mut self, from: &View) -> Result<View, String> {
        let root = self.fresh_root();
        let to = View::whole(root, &TensorType::new(from.elem, from.shape.clone()));
        self.add_slot(root, &to);
        let call = map::copy("copy", from, &to);
        self.launch(call)?;
        Ok(to)
    }

    /// The view to which a region writes its result. Follows the value through transposes and
    /// reshapes that are its only use: if the chain ends in a function result, or in a reshape that
    /// strides could not express, the end of the chain is laid out row-major, and the value is a
    /// view of it.
    fn destination(&mut self, v: Value) -> Result<View, String> {
        let ty = self.tensor(v)?.clone();
        if self.storage.home(v).is_some() {
            return Ok(self.own_slot(v, &ty));
        }
        let plain = View::whole(v, &ty);
        let mut chain: Vec<(&ir::InstData, Value)> = Vec::new();
        let mut forward = Some(plain.clone());
        let mut end = v;
        let mut wanted = self.result_slot(v);
        while wanted.is_none() {
            let uses = self.leading_uses(end);
            let [Use::Operand(inst, _)] = uses.as_slice() else { break };
            let data = self.f.inst(*inst);
            let (Some(result), true) = (data.result, matches!(data.op, Op::Transpose { .. } | Op::Reshape)) else {
                break;
            };
            chain.push((data, end));
            end = result;
            wanted = self.result_slot(end);
            forward = forward.and_then(|w| self.moved(&w, data).ok().flatten());
            if forward.is_none() {
                break;
            }
        }
        if wanted.is_none() && forward.is_some() {
            self.add_slot(v, &plain);
            return Ok(plain);
        }
        // From the end back to the value.
        let root = self.fresh_root();
        let whole = View::whole(root, self.tensor(end)?);
        let mut back = Some(whole.clone());
        for (data, before) in chain.iter().rev() {
            back = if let Op::Transpose { perm } = &data.op {
                back.map(|w| {
                    let mut inverse = vec![0; perm.len()];
                    perm.iter().enumerate().for_each(|(i, p)| inverse[*p] = i);
                    w.transpose(&inverse)
                })
            } else if data.op == Op::Reshape {
                let shape = &self.tensor(*before)?.shape;
                back.and_then(|w| w.reshape(shape))
            } else {
                None
            };
        }
        let Some(view) = back else {
            self.add_slot(v, &plain);
            return Ok(plain);
        };
        match wanted {
            Some(number) => {
                let ty = buffer_type(&whole);
                let out = self.in_entry(|b| {
                    b.value(tile::Op::Plan(tile::PlanOp::Out(number)), Vec::new(), tile::Type::Buffer(ty))
                });
                self.roots[root] = Some(out);
            }
            None => self.add_slot(root, &whole),
        }
        for (data, before) in &chain {
            if let Some(result) = data.result {
                // Each value of the chain is a view of the end, which is row-major.
                let from = if *before == v { view.clone() } else { self.places[*before].clone().ok_or("no place")? };
                let there = if result == end { Some(whole.clone()) } else { self.moved(&from, data)? };
                self.places[result] = there;
            }
        }
        Ok(view)
    }

    /// The function result that a value becomes, if exactly one.
    fn result_slot(&self, v: Value) -> Option<u32> {
        self.returned.get(&v).copied().flatten()
    }

    /// A movement operation as a view of its operand; `None` if strides cannot express it.
    fn moved(&self, from: &View, data: &ir::InstData) -> Result<Option<View>, String> {
        let ty = data.result.map(|v| self.tensor(v)).transpose()?;
        Ok(match (&data.op, ty) {
            (Op::Transpose { perm }, _) => Some(from.transpose(perm)),
            (Op::Reshape, Some(ty)) => from.reshape(&ty.shape),
            (Op::Broadcast, Some(ty)) => Some(from.broadcast(&ty.shape)),
            (Op::Slice { axis, start, stop }, _) => Some(from.slice(*axis, start, stop)),
            (Op::Windows { axis, stride }, Some(ty)) => Some(from.windows(*axis, *stride, &ty.shape)),
            _ => return Err(format!("{} is not movement", data.op)),
        })
    }

    fn instruction(&mut self, data: &ir::InstData) -> Result<(), String> {
        let operand = |i: usize| data.operands.get(i).copied().ok_or("an operand is missing");
        match &data.op {
            // Materialised only on demand.
            Op::Const(_) | Op::DimValue(_) | Op::Iota { .. } | Op::Causal => Ok(()),
            Op::Param { name } => {
                let v = data.result.ok_or("a parameter without a result")?;
                let view = View::whole(v, self.tensor(v)?);
                let counts = ir::param_named(&self.out.params, name).map_or(&[][..], |p| &p.counts);
                let counts: Vec<Dim> = counts.iter().map(|n| Dim::from(i64::try_from(*n).unwrap_or(0))).collect();
                let indices = self.indices_within(data, &data.operands, &counts)?;
                let op = tile::Op::Plan(tile::PlanOp::Param { name: name.clone() });
                let buffer = self.builder.value(op, indices, tile::Type::Buffer(buffer_type(&view)));
                self.roots[v] = Some(buffer);
                self.places[v] = Some(view);
                Ok(())
            }
            Op::Binary(op) => {
                let v = data.result.ok_or("an operation without a result")?;
                let (a, b) = (self.index(operand(0)?)?, self.index(operand(1)?)?);
                self.indices[v] = Some(self.builder.index_binary(*op, a, b));
                Ok(())
            }
            Op::Compare(op) => {
                let v = data.result.ok_or("an operation without a result")?;
                let (a, b) = (self.index(operand(0)?)?, self.index(operand(1)?)?);
                self.indices[v] = Some(self.builder.compare_scalars(*op, a, b));
                Ok(())
            }
            // The readers of a widened parameter load it as it is stored.
            Op::Cast { .. } => {
                let v = data.result.ok_or("a cast without a result")?;
                self.places[v] = Some(self.view(operand(0)?)?);
                Ok(())
            }
            Op::Transpose { .. } | Op::Reshape | Op::Broadcast | Op::Slice { .. } | Op::Windows { .. } => {
                let v = data.result.ok_or("a movement without a result")?;
                if self.places[v].is_some() {
                    return Ok(());
                }
                let from = self.view(operand(0)?)?;
                let view = match self.moved(&from, data)? {
                    Some(view) => view,
                    None => {
                        let copy = self.copied(&from)?;
                        self.moved(&copy, data)?.ok_or("a reshape of row-major storage failed")?
                    }
                };
                self.places[v] = Some(view);
                Ok(())
            }
            Op::Index { axis } => self.select(data, *axis),
            Op::State { name } => {
                let v = data.result.ok_or("a state without a result")?;
                let (ty, kept) = (self.tensor(v)?.clone(), self.state(name)?);
                let to = self.own_slot(v, &ty);
                if to != kept {
                    self.launch(map::copy("state", &kept, &to))?;
                }
                self.places[v] = Some(to);
                Ok(())
            }
            Op::SetState { name } => {
                let (v, to) = (operand(0)?, self.state(name)?);
                let from = self.places[v].clone();
                if from.as_ref() == Some(&to) {
                    return Ok(());
                }
                match from.filter(|from| from.root == to.root) {
                    Some(from) => {
                        let from = self.copied(&from)?;
                        self.launch(map::copy("state", &from, &to))
                    }
                    None => self.put("state", v, &to),
                }
            }
            Op::Extract { axes } => {
                let v = data.result.ok_or("a window without a result")?;
                let (from, ty) = (self.view(operand(0)?)?, self.tensor(v)?.clone());
                let indices = data.operands.get(1..).unwrap_or_default();
                self.places[v] = Some(self.window(&from, &ty, (axes, indices), data.loc)?);
                Ok(())
            }
            Op::Update { axes } => self.update(data, axes),
            Op::Gather { axis, batch } => {
                let v = data.result.ok_or("a gather without a result")?;
                let (table, at) = (self.view(operand(0)?)?, self.view(operand(1)?)?);
                let to = self.destination(v)?;
                let site = self.index_site(data.loc);
                self.launch(gather::gather("gather", &table, &at, (*axis, *batch), &to, site))?;
                self.places[v] = Some(to);
                Ok(())
            }
            Op::Scatter { axis, add } => {
                let v = data.result.ok_or("a scatter without a result")?;
                let (at, value) = (self.view(operand(1)?)?, self.view(operand(2)?)?);
                let to = self.destination(v)?;
                self.put("scatter", operand(0)?, &to)?;
                let site = self.index_site(data.loc);
                self.launch(gather::scatter("scatter", &at, &value, *axis, *add, &to, site))?;
                self.places[v] = Some(to);
                Ok(())
            }
            Op::Cumsum { axis } => {
                let v = data.result.ok_or("a running sum without a result")?;
                let from = self.view(operand(0)?)?;
                let to = self.destination(v)?;
                if !scan::has_lanes(&from, *axis) {
                    let extent = from.shape.get(*axis).cloned().unwrap_or_default();
                    let text = format!(
                        "on a CPU, {extent} elements are added one by one, without vectors: there is no other axis"
                    );
                    self.remark(data.loc, text);
                }
                self.launch(scan::cumsum("cumsum", &from, *axis, &to).ok_or("running sums of other shapes")?)?;
                self.places[v] = Some(to);
                Ok(())
            }
            Op::Argsort { axis, descending, first } => self.argsort(data, *axis, *descending, first),
            Op::Concat { axis } => self.concat(data, *axis),
            Op::Pad { axis, low, high } => {
                let v = data.result.ok_or("a pad without a result")?;
                let (from, value) = (self.view(operand(0)?)?, self.view(operand(1)?)?);
                let to = self.destination(v)?;
                let extent = from.shape.get(*axis).cloned().ok_or("an axis is missing")?;
                let inner = low.add(&extent);
                for (start, stop) in [(Dim::zero(), low.clone()), (inner.clone(), inner.add(high))] {
                    let part = to.slice(*axis, &start, &stop);
                    let call = map::copy("pad", &value.broadcast(&part.shape), &part);
                    self.launch(call)?;
                }
                let call = map::copy("pad", &from, &to.slice(*axis, low, &inner));
                self.launch(call)?;
                self.places[v] = Some(to);
                Ok(())
            }
            Op::Fused { kind, body } => self.region(data, *kind, body),
            Op::Tap { name, extents } => self.tap(data, name, extents),
            Op::Unary(_)
            | Op::Length { .. }
            | Op::Where
            | Op::Reduce { .. }
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. }
            | Op::Matmul
            | Op::Grad { .. }
            | Op::Stop
            | Op::Attention { .. } => Err(format!("{} is outside of a region", data.op)),
        }
    }

    fn region(&mut self, data: &ir::InstData, kind: FusionKind, body: &Function) -> Result<(), String> {
        let v = data.result.ok_or("a region without a result")?;
        // Operands that a contraction reads tile by tile must be in memory, even literals.
        let streamed: Vec<Value> = body
            .insts()
            .filter(|(_, _, d)| matches!(d.op, Op::Attention { .. } | Op::Matmul))
            .flat_map(|(_, _, d)| d.operands.iter().take(3))
            .copied()
            .collect();
        let mut operands = Vec::new();
        for (x, arg) in data.operands.iter().zip(&body.block(body.entry()).args) {
            operands.push(match literal_of(self.f, *x) {
                Some(o) if kind != FusionKind::Matmul && !streamed.contains(arg) => o,
                _ => Operand::View(self.view(*x)?),
            });
        }
        self.check_argmax(body)?;
        let to = match self.part_of_concat(v, kind)? {
            Some(part) => part,
            None => self.destination(v)?,
        };
        let call = match kind {
            FusionKind::Map => {
                let operands = data.operands.iter().copied().zip(operands).collect();
                self.elementwise(v, body, operands, &to)?;
                self.places[v] = Some(to);
                return Ok(());
            }
            FusionKind::Rows => rows::rows("rows", body, &operands, &to)?,
            FusionKind::Matmul => matmul::matmul("matmul", body, &operands, &to)?,
            FusionKind::Attention => attention::attention("attention", body, &operands, &to)?,
            FusionKind::Chain => chain::chain("chain", body, &operands, &to)?,
        };
        self.launch(call)?;
        self.places[v] = Some(to);
        Ok(())
    }
}
