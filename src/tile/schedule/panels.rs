//! pack-panels: chooses packed panels for right-hand matmul operands, packs them, and gives matmuls
//! tiles as wide as a panel.
//!
//! In: an unscheduled module, whose matmuls read buffers directly, and a machine's parameters. Out:
//! the same module with the machine's tile sizes (`products`), in which
//!
//! * a matmul with a parameter, or with a concatenation of several (`joined`), reads panels of the
//!   packed area, which the preparing plan fills (`packing`, and `quantise` for integer formats);
//! * a matmul with any other operand reads panels that a launch before it packs, unless it has few
//!   rows, which the plan finds out in a call if it must;
//! * a matmul in a loop whose iterations all read the same packed panels computes several of them
//!   in each grid point (`jam`);
//! * panels have k indices in pairs if the machine has dot products of `bf16` pairs, and both
//!   operands are `bf16` (`pairs`), or the right one is packed as `bf16` and the left one is
//!   rounded to it (`halves`).
//!
//! ```text
//! w: f32[64, 64]
//! fn f(x: f32[S, 64]) -> f32[S, 64] { x @ w }
//! ...
//!   %1 = param "w" : buf f32[64, 64]
//! ->
//!   %2 = packed 0 : buf f32[2, 64, 32]
//!   launch @matmul.0(%0, %2, %1)
//! ...
//!   launch @pack.0(%1, %0)
//! ```
//!
//! A matmul with concatenated parameters is split by columns, if a parameter does not end at a
//! panel boundary, or if their formats differ: a launch for each, with its columns of the result. A
//! kernel that counts its columns is not split; it packs the row-major matrix in each call. (No
//! pass makes such a `concat`: merge-matmuls joins only parameters that fill panels.)
//!
//! A machine whose matmuls read operands directly (a GPU) has panels only for parameters in a
//! narrower format. A matmul with many rows of 16-bit floats and integer weights uses tensor cores,
//! which read the packed integers (`tensor_cores`), or, with enough rows, a 16-bit matrix that a
//! preceding launch makes of them (`unpack`). If the number of rows is only known in a call, each
//! plan chooses at run time.
//!
//! Modules that are already packed are unchanged: if the preparing plan does anything but
//! concatenate parameters, there is no other packed area.

mod integers;

use std::collections::{BTreeMap, BTreeSet};

use integers::ByIntegers;

use super::formats::{WeightChoice, WeightFormat};
use super::halves;
use super::jam::{self, jam_panels};
use super::joined::{self, Joined};
use super::packing::{self, Chosen, Left, PackedPanels, Packing, Panels};
use super::pairs;
use super::plans::{
    Choice, LaunchPosition, Variant, buffer, choose_by_count, in_entry, new_slot, put_back, slot_type, value_before,
};
use super::products::{LEAST_ROWS, Loops, MatmulParts, tile_rows};
use super::step::{Changed, Log, Replacements};
use super::tensor_cores::{self, Reason};
use crate::cfg::Loop;
use crate::interface::{ParamDecl, param_named};
use crate::shape::{Dim, Elem};
use crate::tile::matmul::{LEFT, RIGHT};
use crate::tile::{
    Block, BufferType, Inst, InstData, Kernel, Kernels, Machine, Module, Op, Plan, PlanOp, PlanVariant, Type, Value,
    ValueDef, View, row_major, simplify,
};

/// Chooses and packs panels. A GPU has panels only for weights in a narrower format.
pub(super) fn run(module: &mut Module, machine: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    if machine.reads_in_place && log.options.weights.format == WeightFormat::F32 {
        return Ok(Changed::new());
    }
    let Chosen { changed, made, refused, notes, .. } = choose(module, machine, &log.options.weights)?;
    refused.iter().for_each(|(kernel, why)| log.note(kernel, &format!("not on tensor cores: {why}")));
    notes.iter().for_each(|(kernel, note)| log.note(kernel, note));
    log.replaced(&made);
    Ok(changed)
}

/// Chooses and packs panels.
///
/// # Errors
/// A kernel that the verifier rejects, which is a bug in attnc.
pub(super) fn choose(module: &mut Module, machine: &Machine, weights: &WeightChoice) -> Result<Chosen, String> {
    let products: BTreeMap<String, MatmulParts> =
        module.kernels.iter().filter_map(|k| Some((k.name.clone(), MatmulParts::find(k)?))).collect();
    let joined = joined::find(module);
    let mut packing = Packing::new(machine.panel, !machine.reads_in_place, weights.clone());
    let (made, refused, notes) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    if products.is_empty() {
        return Ok(Chosen { packing, changed: Changed::new(), made, refused, notes });
    }
    let old = std::mem::take(&mut module.kernels);
    let launched: BTreeSet<String> = module.plans.iter().flat_map(|p| p.reached(&old)).map(str::to_string).collect();
    let other = |p: &&Plan| p.variant != PlanVariant::Prepare;
    let called: BTreeSet<&str> = module.plans.iter().filter(other).flat_map(Plan::launched).collect();
    let copies: BTreeSet<String> = joined.iter().flatten().flat_map(Joined::kernels).map(str::to_string).collect();
    let copies: BTreeSet<String> = copies.into_iter().filter(|name| !called.contains(name.as_str())).collect();
    // A changed kernel gets a number of its own.
    let renamed = |k: &&Kernel| products.contains_key(&k.name) && launched.contains(&k.name);
    let taken = old.iter().filter(|k| !renamed(k)).map(|k| k.name.clone()).collect();
    let mut new = New { machine, params: &module.params, old: &old, products: &products, joined, made, refused, notes };
    let mut kernels = Kernels::beside(taken);
    for plan in module.plans.iter_mut().filter(|p| p.variant != PlanVariant::Prepare) {
        let (packed, placed, added) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let (new, kernels, packing) = (&mut new, &mut kernels, &mut packing);
        let loops = plan.body.cfg().loops();
        let mut walk = Walk { new, kernels, packing, packed, placed, added, plan, loops, choices: Vec::new() };
        walk.run()?;
        for choice in walk.choices {
            choose_by_count(plan, choice)?;
        }
        simplify(&mut plan.body);
    }
    let New { made, joined, refused, notes, .. } = new;
    if let Some(joined) = &joined {
        let plan = packing::prepare(&packing, joined, (&module.params, &old), &mut kernels)?;
        module.plans.retain(|p| p.variant != PlanVariant::Prepare);
        module.packed = packing.bytes;
        module.plans.extend(plan.map(|mut plan| {
            simplify(&mut plan.body);
            plan
        }));
    }
    // In the order of the kernels they were made from; the kernels of the preparing plan are last.
    let (mut ordered, mut changed) = (Kernels::default(), BTreeSet::new());
    for k in &old {
        if let Some(names) = made.get(&k.name) {
            let of = |name: &String| kernels.list.iter().find(|k| k.name == *name);
            names.iter().filter_map(of).for_each(|k| drop(ordered.keep(k)));
        } else if let Some(product) = products.get(&k.name) {
            // It is not launched.
            let mut k = k.clone();
            if !machine.reads_in_place {
                k = product.with_tile(&k, product.loops(&k), machine)?;
                simplify(&mut k.body);
            }
            changed.insert(ordered.keep(&k));
        } else if !copies.contains(&k.name) {
            ordered.keep(k);
        }
    }
    kernels.list.iter().for_each(|k| drop(ordered.keep(k)));
    changed.extend(kernels.list.into_iter().map(|k| k.name));
    module.kernels = ordered.list;
    Ok(Chosen { packing, changed, made, refused, notes })
}

/// State shared by all plans of a module.
struct New<'a> {
    machine: &'a Machine,
    params: &'a [ParamDecl],
    old: &'a [Kernel],
    products: &'a BTreeMap<String, MatmulParts>,
    /// Contents of the packed area; `None` if they are not recognised, and stay unchanged.
    joined: Option<Vec<Joined>>,
    /// The names of the kernels made from each kernel, in order.
    made: Replacements,
    /// Kernels with quantised weights that do not use tensor cores, and why.
    refused: BTreeMap<String, Reason>,
    /// Remarks on kernels.
    notes: BTreeSet<(String, String)>,
}

/// The views of parameters that form a matrix, by columns, and the common indices of their layer.
type ColumnParts<'p> = (Vec<(&'p ParamDecl, View)>, Vec<Value>);

/// A plan whose launches are being rewritten.
struct Walk<'a, 'b> {
    new: &'a mut New<'b>,
    kernels: &'a mut Kernels,
    packing: &'a mut Packing,
    /// The buffer of each part of the packed area.
    packed: BTreeMap<u64, Value>,
    /// Buffers of row-major concatenations that already have their new offsets.
    placed: BTreeSet<Value>,
    /// Instructions added to the entry block.
    added: BTreeSet<Inst>,
    plan: &'a mut Plan,
    /// Its loops, inner ones first.
    loops: Vec<Loop<Block>>,
    /// Launches that are replaced by a choice between several, depending on the number of rows in a
    /// call.
    choices: Vec<Choice>,
}

/// A launch: its kernel and its operands.
type LaunchOf = (String, Vec<Value>);

/// A range of a matmul's columns, with the view that provides them.
struct Piece {
    start: Dim,
    window: View,
}

impl Walk<'_, '_> {
    fn run(&mut self) -> Result<(), String> {
        for block in self.plan.body.reverse_postorder() {
            for inst in self.plan.body.block(block).insts.clone() {
                let data = self.plan.body.inst(inst);
                let name = match &data.op {
                    Op::Plan(PlanOp::Launch { kernel }) => kernel.clone(),
                    Op::Plan(PlanOp::View { .. }) => continue,
                    _ => {
                        self.place_joined(&data.operands.clone())?;
                        continue;
                    }
                };
                if self.new.products.contains_key(&name) {
                    self.product(block, inst, &name)?;
                } else {
                    self.place_joined(&data.operands.clone())?;
                }
            }
        }
        Ok(())
    }

    /// Reserves space for the concatenations that some buffers refer to.
    fn place_joined(&mut self, buffers: &[Value]) -> Result<(), String> {
        let Some(joined) = &self.new.joined else { return Ok(()) };
        for v in buffers {
            let Some(view) = View::trace(&self.plan.body, *v) else { continue };
            let Some((inst, data)) = self.plan.body.definition(view.root) else { continue };
            let Op::Plan(PlanOp::Packed { offset }) = data.op else { continue };
            if self.packed.values().any(|p| *p == view.root) || !self.placed.insert(view.root) {
                continue;
            }
            let number =
                joined.iter().position(|j| j.offset == offset).ok_or("a part of the packed area is not filled")?;
            let bytes = joined.get(number).and_then(Joined::bytes).ok_or("a part of the packed area is too large")?;
            let offset = self.packing.join(number, bytes).ok_or("the packed area is too large")?;
            self.plan.body.inst_mut(inst).op = Op::Plan(PlanOp::Packed { offset });
        }
        Ok(())
    }

    /// Rewrites a launch of a matmul: its panels, and its kernel.
    fn product(&mut self, block: Block, inst: Inst, name: &str) -> Result<(), String> {
        let data = self.plan.body.inst(inst).clone();
        let old = self.new.old;
        let kernel = old.iter().find(|k| k.name == name).ok_or("a launch of no kernel")?;
        let product = self.new.products.get(name).ok_or("a launch of a kernel that is not a product")?;
        let [a, _] = product.operands(kernel).ok_or("a product without operands")?;
        let operand = *data.operands.get(RIGHT).ok_or("a product without its right operand")?;
        let window = View::trace(&self.plan.body, operand).ok_or("a product whose right operand is not a buffer")?;
        let at = LaunchPosition { block, inst, loc: data.loc, out: data.operands.last().copied() };
        let mut own = self.take_views(block, inst);
        let pieces = self.cut(product, kernel, &window, at);
        let sliced = pieces.is_some();
        let pieces = pieces.unwrap_or_else(|| vec![Piece { start: Dim::zero(), window }]);
        let count = pieces.len();
        for (number, piece) in pieces.into_iter().enumerate() {
            let columns = piece.window.shape.last().cloned().unwrap_or_default();
            let with_columns = if sliced { product.with_columns(kernel) } else { None }.unwrap_or_default();
            let mut loops = product.loops(kernel);
            loops.narrow(&columns, &with_columns);
            let narrowed = if sliced { product.with(kernel, loops.clone())? } else { kernel.clone() };
            let right_type = piece.window.buffer_type();
            let left = match self.new.machine {
                machine if pairs::are_wanted(machine, a, &right_type) => Left::Pairs,
                machine if halves::are_wanted(machine, a, &right_type) => Left::Rounded,
                _ => Left::AsItIs,
            };
            let (at_once, abreast) =
                self.panels_at_once(product, (kernel, &loops), &piece.window, block).unwrap_or((1, 1));
            let row_count = product.row_count(kernel);
            let (panels, pack) = self.panels(&piece.window, (&row_count, left, abreast), at, name)?.unzip();
            // Packs if there are enough rows, which may be known only in a call. Pairs are packed
            // for any number.
            let (pack, unpacked) = match pack.flatten() {
                Some(pack) if row_count.as_const().is_none() && left != Left::Pairs => {
                    (Some(pack), Some(loops.clone()))
                }
                Some((kernel, operands)) => {
                    self.launch(at, &kernel, &operands);
                    (None, None)
                }
                None => (None, None),
            };
            if !self.new.machine.reads_in_place {
                self.new.notes.insert((name.to_string(), packing::remark(panels.as_ref(), at_once)));
            }
            // Tensor cores, if there may be many rows on a GPU.
            let gpu = self.new.machine.gpu().filter(|_| panels.as_ref().is_some_and(|p| p.scales.is_some()));
            let cores = gpu.and_then(|gpu| {
                let fits = tensor_cores::takes_integers(a, &row_count, &columns);
                fits.map_err(|why| self.refuse(name, why)).is_ok().then_some(gpu.arch)
            });
            let in_pairs = panels.as_ref().is_some_and(|p| p.in_pairs);
            let mut rounded = None;
            if in_pairs && left == Left::Rounded {
                let (operand, ty) = self.rounded(&data, at, name)?;
                rounded = Some(operand);
                loops.types.splice(LEFT..=LEFT, [ty]);
            }
            let rows = match (self.new.machine.reads_in_place, &panels) {
                (false, _) => Some(tile_rows(a.shape.last().unwrap_or(&Dim::zero()), in_pairs)),
                // One row per point, if their number is only known at run time and may be large.
                (true, Some(_)) if cores.is_some() && row_count.as_const().is_none() => Some(1),
                (true, Some(_)) => Some(LEAST_ROWS),
                (true, None) => None,
            };
            loops.matmul.tile = rows.map_or(loops.matmul.tile, |rows| [rows, self.new.machine.panel]);
            if let Some(panels) = &panels {
                let (panels, points) = panels.without_repeats();
                loops.read_panels(&panels, points);
            }
            let mut made = if rows.is_some() { product.with(kernel, loops.clone())? } else { narrowed.clone() };
            // The operands, with their views in order.
            let body = &mut self.plan.body;
            let mut operands = Vec::new();
            for (i, v) in data.operands.iter().enumerate() {
                match &panels {
                    Some(panels) if i == RIGHT => {
                        let (panels, _) = panels.without_repeats();
                        operands.push(buffer(body, at, &panels.numbers));
                        if let Some((scales, _)) = &panels.scales {
                            operands.push(buffer(body, at, scales));
                        }
                    }
                    None if i == RIGHT && sliced => operands.push(buffer(body, at, &piece.window)),
                    _ if i == LEFT && rounded.is_some() => operands.extend(rounded),
                    _ if with_columns.contains(&i) => {
                        let whole = View::trace(body, *v).ok_or("a product whose operand is not a buffer")?;
                        let last = whole.shape.len().saturating_sub(1);
                        let part = whole.slice(last, &piece.start, &piece.start.add(&columns));
                        operands.push(buffer(body, at, &part));
                    }
                    _ => {
                        put_back(body, at, &mut own, *v);
                        operands.push(*v);
                    }
                }
            }
            // The others are used later, or not at all.
            while let Some(v) = own.first().and_then(|view| body.inst(*view).result) {
                put_back(body, at, &mut own, v);
            }
            self.place_joined(&operands)?;
            if at_once > 1 && panels.as_ref().is_some_and(Panels::is_plain) {
                simplify(&mut made.body);
                jam_panels(&mut made, at_once, self.new.machine.few_rows);
                made.compute = None;
                simplify(&mut made.body);
                made.find_symbols();
            }
            let mut variants = Vec::new();
            if let (Some(panels), Some(arch)) = (&panels, cores) {
                let of = ByIntegers { kernel: &narrowed, rows: &row_count, panels };
                variants = self.by_integers(&of, &operands, &piece.window, (arch, at))?.unwrap_or_else(|why| {
                    self.refuse(name, why);
                    Vec::new()
                });
                if variants.is_empty() {
                    loops.matmul.tile = [LEAST_ROWS, self.new.machine.panel];
                    made = product.with(kernel, loops)?;
                }
            }
            if let (Some(pack), Some(mut few)) = (pack, unpacked) {
                few.matmul.tile = [tile_rows(a.shape.last().unwrap_or(&Dim::zero()), false), self.new.machine.panel];
                let few = product.with(kernel, few)?;
                let packed = self.kernels.add_again(std::mem::replace(&mut made, few));
                let right = buffer(&mut self.plan.body, at, &piece.window);
                let unpacked = operands.iter().enumerate().map(|(i, v)| if i == RIGHT { right } else { *v }).collect();
                let launches = vec![pack, (packed, std::mem::replace(&mut operands, unpacked))];
                variants.push(Variant { least: packing::MANY_ROWS, launches });
            }
            // The choice may be known at compile time.
            let known = row_count.as_const();
            let chosen = variants.iter().rposition(|v| known.is_some_and(|rows| rows >= v.least));
            let launches = match chosen {
                Some(n) => variants.swap_remove(n).launches,
                None => {
                    let made = self.kernels.add_again(made);
                    vec![(made, operands)]
                }
            };
            variants.retain(|_| known.is_none());
            let of_variants = variants.iter().flat_map(|v| &v.launches).chain(&launches);
            of_variants.map(|(kernel, _)| kernel.clone()).collect::<Vec<_>>().iter().for_each(|k| self.note(name, k));
            let last = number + 1 == count;
            let Some(((kernel, operands), before)) = launches.split_last() else { continue };
            for (kernel, operands) in before {
                self.launch(at, kernel, operands);
            }
            let own = if last {
                let launch = self.plan.body.inst_mut(inst);
                (launch.op, launch.operands) = (Op::Plan(PlanOp::Launch { kernel: kernel.clone() }), operands.clone());
                inst
            } else {
                self.launch(at, kernel, operands)
            };
            if !variants.is_empty() {
                self.choices.push(Choice { launch: own, count: row_count, variants });
            }
        }
        Ok(())
    }

    /// Inserts a launch before the one being rewritten.
    fn launch(&mut self, at: LaunchPosition, kernel: &str, operands: &[Value]) -> Inst {
        let op = Op::Plan(PlanOp::Launch { kernel: kernel.to_string() });
        let launch = self.plan.body.make_inst(op, operands.to_vec(), None, at.loc);
        self.plan.body.insert_before(at.block, at.inst, launch);
        launch
    }

    /// The number of panels that a grid point of a matmul should compute, and the number to
    /// interleave: several if the launch reads the same ones in all iterations of the innermost
    /// enclosing loop.
    fn panels_at_once(
        &self,
        product: &MatmulParts,
        (kernel, loops): (&Kernel, &Loops),
        window: &View,
        block: Block,
    ) -> Option<(i64, i64)> {
        let machine = self.new.machine;
        let (_, layers) = self.columns(window)?;
        let innermost = self.loops.iter().find(|l| l.blocks.contains(&block))?;
        let body = &self.plan.body;
        let made_there = |v: &Value| match body.def(*v) {
            ValueDef::Param => false,
            ValueDef::Arg(b, _) => innermost.blocks.contains(&b),
            ValueDef::Result(i) => innermost.blocks.iter().any(|b| body.block(*b).insts.contains(&i)),
        };
        if machine.reads_in_place || window.elem != Elem::F32 || layers.iter().any(made_there) {
            return None;
        }
        let [.., steps, columns] = window.shape.as_slice() else { return None };
        let size = [steps.as_const()?, columns.as_const()?];
        let tiled = product.with_tile(kernel, loops.clone(), machine).ok()?;
        let count = jam::panels_at_once(&tiled, size, machine)?;
        Some((count, jam::abreast(count, size)))
    }

    /// Removes the views right before a launch, its own, from their block.
    fn take_views(&mut self, block: Block, launch: Inst) -> Vec<Inst> {
        let body = &mut self.plan.body;
        let list = &body.block(block).insts;
        let end = list.iter().position(|i| *i == launch).unwrap_or(list.len());
        let is_view = |i: &&Inst| matches!(body.inst(**i).op, Op::Plan(PlanOp::View { .. }));
        let count = list.iter().take(end).rev().take_while(is_view).count();
        body.block_mut(block).insts.drain(end - count..end).collect()
    }

    /// Records why a matmul with quantised weights does not use tensor cores.
    fn refuse(&mut self, kernel: &str, why: Reason) {
        self.new.refused.entry(kernel.to_string()).or_insert(why);
    }

    /// Records that `new` was made from `old`.
    fn note(&mut self, old: &str, new: &str) {
        let names = self.new.made.entry(old.to_string()).or_default();
        if !names.iter().any(|n| n == new) {
            names.push(new.to_string());
        }
    }

    /// The right operand of a matmul with this number of rows as packed panels: a parameter is
    /// packed before all calls, with interleaved panels if possible, any other operand just before,
    /// by the launch that is returned too, unless there are few rows.
    fn panels(
        &mut self,
        window: &View,
        (rows, left, abreast): (&Dim, Left, i64),
        at: LaunchPosition,
        kernel: &str,
    ) -> Result<Option<(Panels, Option<LaunchOf>)>, String> {
        if let Some(panels) = self.parameter_panels(window, left, abreast, at) {
            return Ok(Some((panels, None)));
        }
        let pairs = left == Left::Pairs;
        let few = self.new.machine.reads_in_place || rows.as_const().is_some_and(|n| n < packing::MANY_ROWS);
        let root = Value::from_u32(0);
        let Some(packed) = packing::now(self.new.machine.panel, window, root, pairs)?.filter(|_| !few) else {
            return Ok(None);
        };
        let number = new_slot(self.plan, &packed.bytes, at, 0);
        let ty = slot_type(self.plan, &packed.bytes, &packed.whole.buffer_type());
        let slot = in_entry(self.plan, &mut self.added, Op::Plan(PlanOp::Slot(number)), ty, at);
        let mut operands = Vec::new();
        for source in &packed.sources {
            operands.push(buffer(&mut self.plan.body, at, source));
        }
        operands.push(buffer(&mut self.plan.body, at, &View { root: slot, ..packed.whole.clone() }));
        self.place_joined(&operands)?;
        let name = self.kernels.add(packed.kernel);
        self.note(kernel, &name);
        let numbers = View { root: slot, ..packed.panels };
        Ok(Some((Panels { numbers, scales: None, in_pairs: pairs, abreast: 1 }, Some((name, operands)))))
    }

    /// A launch that rounds the left operand of a matmul to `bf16`; returns the buffer and its
    /// type.
    fn rounded(&mut self, launch: &InstData, at: LaunchPosition, kernel: &str) -> Result<(Value, BufferType), String> {
        let operand = launch.operands.get(LEFT).ok_or("a product without its left operand")?;
        let from = View::trace(&self.plan.body, *operand).ok_or("a product whose operand is not a buffer")?;
        let rounded = halves::round(&from, Value::from_u32(0)).ok_or("a left operand of fewer than two axes")?;
        let number = new_slot(self.plan, &rounded.bytes, at, 0);
        let ty = slot_type(self.plan, &rounded.bytes, &rounded.whole.buffer_type());
        let slot = in_entry(self.plan, &mut self.added, Op::Plan(PlanOp::Slot(number)), ty, at);
        let body = &mut self.plan.body;
        let operands = [&rounded.source, &View { root: slot, ..rounded.whole }].map(|v| buffer(body, at, v)).to_vec();
        self.place_joined(&operands)?;
        let name = self.kernels.add(rounded.kernel);
        self.note(kernel, &name);
        let body = &mut self.plan.body;
        let launch = body.make_inst(Op::Plan(PlanOp::Launch { kernel: name }), operands, None, at.loc);
        body.insert_before(at.block, at.inst, launch);
        let operand = View { root: slot, ..rounded.operand };
        Ok((buffer(body, at, &operand), operand.buffer_type()))
    }

    /// The views of parameters that form a matrix, by columns, and their common layer.
    fn columns(&self, window: &View) -> Option<ColumnParts<'_>> {
        let joined = self.new.joined.as_ref()?;
        let data = self.plan.body.def_inst(window.root)?;
        match &data.op {
            Op::Plan(PlanOp::Param { name }) => {
                let param = param_named(self.new.params, name)?;
                Some((vec![(param, window.clone())], data.operands.clone()))
            }
            Op::Plan(PlanOp::Packed { offset }) if !self.placed.contains(&window.root) => {
                let joined = joined.iter().find(|j| j.offset == *offset)?;
                self.joined_columns(joined, window)
            }
            // It already has its new offset, which identifies it.
            Op::Plan(PlanOp::Packed { offset }) => {
                let place = self.packing.joined.iter().find(|j| j.offset == *offset)?;
                self.joined_columns(joined.get(place.number)?, window)
            }
            _ => None,
        }
    }

    fn joined_columns(&self, joined: &Joined, window: &View) -> Option<ColumnParts<'_>> {
        let (layers, strides): (Vec<Value>, Vec<Dim>) = window.dynamic.iter().cloned().unzip();
        // The axes that are not repeated.
        let lead = window.shape.len().checked_sub(2)?;
        let repeats = window.strides.get(..lead)?.iter().all(|s| *s == Dim::zero());
        let (shape, own) = (window.shape.get(lead..)?, window.strides.get(lead..)?);
        let whole = joined.window(window.root, window.elem);
        if !repeats || whole.shape.len() != 2 || window.offset != Dim::zero() || strides != joined.layer_strides() {
            return None;
        }
        let transposed = whole.transpose(&[1, 0]);
        let lies = |v: &View| v.shape == shape && v.strides == own;
        let is_transposed = match joined.axis {
            1 if lies(&whole) => false,
            0 if lies(&transposed) => true,
            _ => return None,
        };
        let mut windows = Vec::new();
        for (name, part) in &joined.parts {
            let part = if is_transposed { part.transpose(&[1, 0]) } else { part.clone() };
            let mut shape = window.shape.clone();
            if let (Some(n), Some(own)) = (shape.last_mut(), part.shape.last()) {
                *n = own.clone();
            }
            windows.push((param_named(self.new.params, name)?, part.broadcast(&shape)));
        }
        Some((windows, layers))
    }

    /// The column ranges of a matmul whose parameters' panels cannot be adjacent; `None` if it is
    /// not split.
    fn cut(&mut self, product: &MatmulParts, kernel: &Kernel, window: &View, at: LaunchPosition) -> Option<Vec<Piece>> {
        let (windows, layers) = self.columns(window)?;
        let ((_, first), panel) = (windows.split_last()?, self.new.machine.panel);
        let width = |v: &View| v.shape.last().and_then(Dim::as_const);
        let mut formats = windows.iter().map(|(p, _)| self.packing.choice.format_of(&p.name));
        let format = formats.next();
        // Parameters in their own format have separate panels.
        let alike = formats.all(|other| Some(other) == format);
        let aligned = first.iter().all(|(_, w)| width(w).is_some_and(|n| n % panel == 0));
        if aligned && alike {
            return None;
        }
        product.with_columns(kernel)?;
        let windows: Vec<(ParamDecl, View)> = windows.into_iter().map(|(p, v)| (p.clone(), v)).collect();
        let (mut pieces, mut start) = (Vec::new(), Dim::zero());
        for (param, part) in windows {
            let next = start.add(part.shape.last()?);
            let ty = BufferType { elem: param.ty.elem, strides: row_major(&param.ty.shape), shape: param.ty.shape };
            let op = Op::Plan(PlanOp::Param { name: param.name });
            let body = &mut self.plan.body;
            let root = value_before(body, at, op, layers.clone(), Type::Buffer(ty));
            pieces.push(Piece { start, window: View { root, ..part } });
            start = next;
        }
        Some(pieces)
    }

    /// A view of a parameter, or of several, as panels of the packed area.
    fn parameter_panels(&mut self, window: &View, left: Left, abreast: i64, at: LaunchPosition) -> Option<Panels> {
        let (windows, layers) = self.columns(window)?;
        let windows: Vec<(ParamDecl, View)> = windows.into_iter().map(|(p, v)| (p.clone(), v)).collect();
        let windows: Vec<(&ParamDecl, View)> = windows.iter().map(|(p, v)| (p, v.clone())).collect();
        let place = self.packing.place(&windows, left, abreast, at.loc)?;
        let numbers = self.packed_view(place.panels, &layers, at);
        let scales = place.scales.map(|(part, bits)| (self.packed_view(part, &layers, at), bits));
        Some(Panels { numbers, scales, in_pairs: place.in_pairs, abreast: place.abreast })
    }

    /// A view of a part of the packed area, for one layer.
    fn packed_view(&mut self, part: PackedPanels, layers: &[Value], at: LaunchPosition) -> View {
        let known = self.packed.get(&part.offset).copied();
        let root = known.unwrap_or_else(|| {
            let root = in_entry(
                self.plan,
                &mut self.added,
                Op::Plan(PlanOp::Packed { offset: part.offset }),
                part.whole.clone(),
                at,
            );
            self.packed.insert(part.offset, root);
            root
        });
        let (elem, offset) = (part.whole.elem, Dim::zero());
        let dynamic = layers.iter().copied().zip(part.whole.strides).collect();
        View { root, elem, offset, dynamic, shape: part.shape, strides: part.strides }
    }
}
