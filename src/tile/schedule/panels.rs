//! How the right operands of products lie: the step of the schedule that chooses panels, packs what is to lie in them, and
//! gives products tiles as wide as a panel.
//!
//! In: an unscheduled module, whose products read buffers as they lie, and a machine's numbers. Out: the same module with
//! tiles of the machine's sizes (`products`), in which
//!
//! * a product by a parameter, or by several one after another (`joined`), reads panels of the packed area, and the plan that
//!   prepares fills them (`packing`, and `quantise` where weights are kept as integers);
//! * a product by anything else reads panels that a launch before it packs, unless it is known to have few rows;
//! * a product in a loop whose iterations all read the same packed panels computes several of them in each grid point (`jam`);
//! * panels have their steps in pairs where the machine multiplies pairs of `bf16` steps, and both operands are `bf16`
//!   (`pairs`), or the right one is packed so and the left one is rounded to it (`halves`).
//!
//! ```text
//!   %1 = param "w"         : buf f32[768, 2304]            %1 = packed 0     : buf f32[72, 768, 32]
//!   launch @matmul.0(%x, %1, %y)                     ->    launch @matmul.0(%x, %1, %y)
//!                                                          ... and in the plan that prepares:
//!                                                            launch @pack.0(param "w", packed 0)
//! ```
//!
//! A product by parameters one after another, where one's end is not a panel's end, or one is kept as it is and others are
//! not, is cut: a launch for each, with its columns of the result. One that counts its columns is not cut; it packs the row-major matrix
//! in each call. (No pass makes such a `concat`: merge-matmuls joins only what fills panels.)
//!
//! A machine whose products read operands where they lie (a GPU) has panels of those parameters alone that are kept in fewer bytes. A product of
//! many rows of 16-bit floats by integers goes to tensor cores, which take them as they are packed (`tensor_cores`), or of so many rows that
//! it pays from a matrix that a launch before makes of them (`unpack`). How many rows there are may be known in the call alone: then each plan
//! has a choice.
//!
//! What is packed already stays: a module whose plan that prepares does anything but lay parameters one after another gets no
//! other packed area.

use std::collections::{BTreeMap, BTreeSet};

use super::formats::WeightChoice;
use super::halves;
use super::jam::{self, jam_panels};
use super::joined::{self, Joined};
use super::packing::{self, Left, Packing, Panels, Part};
use super::pairs;
use super::plans::{
    At, Choice, Variant, buffer, choose_by_count, in_entry, new_slot, put_back, slot_type, value_before,
};
use super::products::{LEAST_ROWS, Product, tile_rows};
use super::tensor_cores;
use super::unpack::unpack;
use crate::cfg::Loop;
use crate::interface::{ParamDecl, param_named};
use crate::shape::{Dim, Elem};
use crate::tile::alignment::{CHUNK, begins_at_multiple, needed};
use crate::tile::{
    Block, BufferType, GpuArch, Inst, InstData, Kernel, Kernels, Module, Op, Param, Plan, PlanVariant, Target, Type,
    Value, ValueDef, View, flat, row_major, simplify,
};

/// Chooses panels, and packs what lies in them; what is packed, and the names of the kernels that are not as they were.
///
/// # Errors
/// A form that the verifier refuses, a bug in attnc.
pub(super) fn choose(
    module: &mut Module,
    target: &Target,
    weights: &WeightChoice,
) -> Result<(Packing, BTreeSet<String>), String> {
    let products: BTreeMap<String, Product> =
        module.kernels.iter().filter_map(|k| Some((k.name.clone(), Product::of(k)?))).collect();
    let joined = joined::find(module);
    let mut packing = Packing::new(target.columns, !target.reads_in_place, weights.clone());
    if products.is_empty() {
        return Ok((packing, BTreeSet::new()));
    }
    let old = std::mem::take(&mut module.kernels);
    let launched: BTreeSet<String> = module.plans.iter().flat_map(|p| p.reached(&old)).map(str::to_string).collect();
    let other = |p: &&Plan| p.variant != PlanVariant::Prepare;
    let called: BTreeSet<&str> = module.plans.iter().filter(other).flat_map(Plan::launched).collect();
    let copies: BTreeSet<String> = joined.iter().flatten().flat_map(Joined::kernels).map(str::to_string).collect();
    let copies: BTreeSet<String> = copies.into_iter().filter(|name| !called.contains(name.as_str())).collect();
    // A value that is made again gets a number of its own.
    let renamed =
        |k: &&Kernel| products.contains_key(&k.name) && launched.contains(&k.name) || copies.contains(&k.name);
    let taken = old.iter().filter(|k| !renamed(k)).map(|k| k.name.clone()).collect();
    let mut new = New { target, params: &module.params, old: &old, products: &products, joined, made: BTreeMap::new() };
    let mut kernels = Kernels::beside(taken);
    for plan in module.plans.iter_mut().filter(|p| p.variant != PlanVariant::Prepare) {
        let (packed, placed) = (BTreeMap::new(), BTreeSet::new());
        let (new, kernels, packing) = (&mut new, &mut kernels, &mut packing);
        let loops = plan.body.cfg().loops();
        let added = BTreeSet::new();
        let mut walk = Walk { new, kernels, packing, packed, placed, added, plan, loops, choices: Vec::new() };
        walk.run()?;
        let choices = walk.choices;
        for choice in choices {
            choose_by_count(plan, choice)?;
        }
        simplify(&mut plan.body);
    }
    let New { made, joined, .. } = new;
    if let Some(joined) = &joined {
        let plan = packing::prepare(&packing, joined, (&module.params, &old), &mut kernels)?;
        module.plans.retain(|p| p.variant != PlanVariant::Prepare);
        module.packed = packing.bytes;
        module.plans.extend(plan.map(|mut plan| {
            simplify(&mut plan.body);
            plan
        }));
    }
    // In the order of what they were made of, then those of the plan that prepares.
    let (mut ordered, mut changed) = (Kernels::default(), BTreeSet::new());
    for k in &old {
        if let Some(names) = made.get(&k.name) {
            let of = |name: &String| kernels.list.iter().find(|k| k.name == *name);
            names.iter().filter_map(of).for_each(|k| drop(ordered.keep(k)));
        } else if let Some(product) = products.get(&k.name) {
            // Nothing launches it.
            let mut k = k.clone();
            let steps = product.operands(&k).and_then(|[a, _]| a.shape.last().cloned()).unwrap_or_default();
            if !target.reads_in_place {
                product.retile(&mut k, tile_rows(&steps, false), target.columns);
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
    Ok((packing, changed))
}

/// What all plans of a module share.
struct New<'a> {
    target: &'a Target,
    params: &'a [ParamDecl],
    old: &'a [Kernel],
    products: &'a BTreeMap<String, Product>,
    /// What the packed area held; none where it is something else, and stays.
    joined: Option<Vec<Joined>>,
    /// The names of what was made of each kernel, in order.
    made: BTreeMap<String, Vec<String>>,
}

/// The kind of GPU whose tensor cores multiply by integers in a product of so many rows and columns, if they do.
fn tensor_cores_of(target: &Target, left: &BufferType, rows: &Dim, cols: &Dim) -> Option<GpuArch> {
    let fits = matches!(left.elem, Elem::BF16 | Elem::F16)
        && tensor_cores::is_left_operand(left)
        && rows.as_const().is_none_or(|n| n >= tensor_cores::FEW_ROWS)
        && cols.as_const().is_none_or(|n| n >= tensor_cores::FEW_COLS);
    target.gpu.filter(|_| fits)
}

/// The windows of parameters that a matrix is made of, columns after columns, and the indices of the layer that all are of.
type ColumnParts<'p> = (Vec<(&'p ParamDecl, View)>, Vec<Value>);

/// A plan whose launches are gone through.
struct Walk<'a, 'b> {
    new: &'a mut New<'b>,
    kernels: &'a mut Kernels,
    packing: &'a mut Packing,
    /// The buffer of each part of the packed area.
    packed: BTreeMap<u64, Value>,
    /// The buffers of what is read as it lies that have their new places.
    placed: BTreeSet<Value>,
    /// What was put into the entry block.
    added: BTreeSet<Inst>,
    plan: &'a mut Plan,
    /// Its loops, inner ones first.
    loops: Vec<Loop<Block>>,
    /// Launches that one of several takes the place of, by the number of rows in a call.
    choices: Vec<Choice>,
}

/// A launch: its kernel and its operands.
type LaunchOf = (String, Vec<Value>);

/// A product by integers: its kernel as it is with a matrix, which of its operands are integers, how many rows it has.
struct ByIntegers<'a> {
    kernel: &'a Kernel,
    left: usize,
    right: usize,
    rows: &'a Dim,
    panels: &'a Panels,
}

/// Columns of a product with the window that gives them.
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
                    Op::Launch { kernel } => kernel.clone(),
                    Op::View { .. } => continue,
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

    /// Makes room for what some buffers have of the packed area, as it lies.
    fn place_joined(&mut self, buffers: &[Value]) -> Result<(), String> {
        let Some(joined) = &self.new.joined else { return Ok(()) };
        for v in buffers {
            let Some(view) = View::of(&self.plan.body, *v) else { continue };
            let Some((inst, data)) = self.plan.body.definition(view.root) else { continue };
            let Op::Packed { offset } = data.op else { continue };
            if self.packed.values().any(|p| *p == view.root) || !self.placed.insert(view.root) {
                continue;
            }
            let number =
                joined.iter().position(|j| j.offset == offset).ok_or("a part of the packed area is not filled")?;
            let bytes = joined.get(number).and_then(Joined::bytes).ok_or("a part of the packed area is too large")?;
            let offset = self.packing.join(number, bytes).ok_or("the packed area is too large")?;
            self.plan.body.inst_mut(inst).op = Op::Packed { offset };
        }
        Ok(())
    }

    /// A launch of a product: its panels, and its kernel.
    fn product(&mut self, block: Block, inst: Inst, name: &str) -> Result<(), String> {
        let data = self.plan.body.inst(inst).clone();
        let old = self.new.old;
        let kernel = old.iter().find(|k| k.name == name).ok_or("a launch of no kernel")?;
        let product = self.new.products.get(name).ok_or("a product that is none")?;
        let (right, [a, _]) = (product.right, product.operands(kernel).ok_or("a product without operands")?);
        let operand = *data.operands.get(right).ok_or("a product without its right operand")?;
        let window = View::of(&self.plan.body, operand).ok_or("a product by something that is no buffer")?;
        let at = At { block, inst, loc: data.loc, out: data.operands.last().copied() };
        let mut own = self.take_views(block, inst);
        let pieces = self.cut(product, kernel, &window, at);
        let sliced = pieces.is_some();
        let pieces = pieces.unwrap_or_else(|| vec![Piece { start: Dim::zero(), window }]);
        let count = pieces.len();
        for (number, piece) in pieces.into_iter().enumerate() {
            let mut made = kernel.clone();
            let columns = piece.window.shape.last().cloned().unwrap_or_default();
            let with_columns = if sliced { product.with_columns(kernel) } else { None }.unwrap_or_default();
            product.narrow(&mut made, &columns, &with_columns);
            let right_type = piece.window.buffer_type();
            let left = match self.new.target {
                target if pairs::are_wanted(target, a, &right_type) => Left::Pairs,
                target if halves::are_wanted(target, a, &right_type) => Left::Rounded,
                _ => Left::AsItIs,
            };
            let (at_once, abreast) = self.panels_at_once(product, &made, &piece.window, block).unwrap_or((1, 1));
            let row_count = product.row_count(kernel);
            let panels = self.panels(&piece.window, (&row_count, left, abreast), at, name)?;
            // Many rows on a GPU, if they may be that.
            let cores = tensor_cores_of(self.new.target, a, &row_count, &columns);
            let cores = cores.filter(|_| panels.as_ref().is_some_and(|p| p.scales.is_some()));
            let narrowed = cores.map(|arch| (arch, made.clone()));
            let in_pairs = panels.as_ref().is_some_and(|p| p.in_pairs);
            let rounded = if in_pairs && left == Left::Rounded {
                self.rounded(product, &mut made, &data, at, name)?
            } else {
                None
            };
            let steps = a.shape.last().cloned().unwrap_or_default();
            match (self.new.target.reads_in_place, &panels) {
                (false, _) => product.retile(&mut made, tile_rows(&steps, in_pairs), self.new.target.columns),
                // A row of its own for each point, if they are counted at run time and may be many.
                (true, Some(_)) if cores.is_some() && row_count.as_const().is_none() => {
                    product.retile(&mut made, 1, self.new.target.columns);
                }
                (true, Some(_)) => product.retile(&mut made, LEAST_ROWS, self.new.target.columns),
                (true, None) => {}
            }
            // The operands, with their views in order.
            let body = &mut self.plan.body;
            let mut operands = Vec::new();
            for (i, v) in data.operands.iter().enumerate() {
                match &panels {
                    Some(panels) if i == right => {
                        let (panels, points) = panels.without_repeats();
                        product.read_panels(&mut made, &panels, &points);
                        operands.push(buffer(body, at, &panels.numbers));
                        if let Some((scales, _)) = &panels.scales {
                            operands.push(buffer(body, at, scales));
                        }
                    }
                    None if i == right && sliced => operands.push(buffer(body, at, &piece.window)),
                    _ if i == product.left && rounded.is_some() => operands.extend(rounded),
                    _ if with_columns.contains(&i) => {
                        let whole = View::of(body, *v).ok_or("a product of something that is no buffer")?;
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
            // The others are used by what follows, or not at all.
            while let Some(v) = own.first().and_then(|view| body.inst(*view).result) {
                put_back(body, at, &mut own, v);
            }
            self.place_joined(&operands)?;
            if at_once > 1 && panels.as_ref().is_some_and(Panels::is_plain) {
                jam_panels(&mut made, at_once, self.new.target.few_rows);
                simplify(&mut made.body);
            }
            made.find_symbols();
            let mut variants = Vec::new();
            if let (Some(panels), Some((arch, narrowed))) = (&panels, &narrowed) {
                let of = ByIntegers { kernel: narrowed, left: product.left, right, rows: &row_count, panels };
                variants = self.by_integers(&of, &operands, &piece.window, (*arch, at))?;
                if variants.is_empty() {
                    made = narrowed.clone();
                    product.retile(&mut made, LEAST_ROWS, self.new.target.columns);
                    let (panels, points) = panels.without_repeats();
                    product.read_panels(&mut made, &panels, &points);
                    made.find_symbols();
                }
            }
            // Which one it is may be known already.
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
            let mut launch = |kernel: &String, operands: &Vec<Value>| {
                let op = Op::Launch { kernel: kernel.clone() };
                let launch = self.plan.body.make_inst(op, operands.clone(), None, data.loc);
                self.plan.body.insert_before(block, inst, launch);
                launch
            };
            for (kernel, operands) in before {
                launch(kernel, operands);
            }
            let own = if last {
                let launch = self.plan.body.inst_mut(inst);
                (launch.op, launch.operands) = (Op::Launch { kernel: kernel.clone() }, operands.clone());
                inst
            } else {
                launch(kernel, operands)
            };
            if !variants.is_empty() {
                self.choices.push(Choice { launch: own, count: row_count, variants });
            }
        }
        Ok(())
    }

    /// The ways on tensor cores to compute a product by integers, for numbers of rows from one on, in order; `operands`: those of its
    /// launch, scales after numbers.
    fn by_integers(
        &mut self,
        product: &ByIntegers<'_>,
        operands: &[Value],
        window: &View,
        (arch, at): (GpuArch, At),
    ) -> Result<Vec<Variant>, String> {
        let ByIntegers { kernel, left, right, rows, panels } = product;
        let (own, points) = panels.without_repeats();
        let Some((scales, bits)) = &own.scales else { return Ok(Vec::new()) };
        let integers = || tensor_cores::Integers {
            numbers: own.numbers.buffer_type(),
            scales: scales.buffer_type(),
            bits: *bits,
            points: points.clone(),
        };
        let body = &self.plan.body;
        let fits = |k: &Kernel| {
            let aligned = |(p, v): (&Param, &Value)| begins_at_multiple(body, &[], *v, needed(k, p.value));
            k.params.len() == operands.len() && k.params.iter().zip(operands).all(aligned)
        };
        let mut made = tensor_cores::by_integers(kernel, arch, rows, integers);
        made.retain(|(_, k)| fits(k));
        let least = tensor_cores::unpacked_rows(arch).filter(|least| rows.as_const().is_none_or(|n| n >= *least));
        let least = least.filter(|_| !made.is_empty());
        if rows.as_const().is_some() && least.is_some() {
            made.clear();
        }
        let mut variants: Vec<Variant> = Vec::new();
        let is_aligned = |n: usize| operands.get(n).is_some_and(|v| begins_at_multiple(body, &[], *v, CHUNK));
        for (least, kernel) in made {
            let mut kernel = tensor_cores::reads_in_pairs(kernel, &is_aligned);
            kernel.find_symbols();
            let kernel = self.kernels.add_again(kernel);
            variants.push(Variant { least, launches: vec![(kernel, operands.to_vec())] });
        }
        let elem = kernel.params.get(*left).and_then(|p| kernel.body.ty(p.value).buffer()).map(|b| b.elem);
        if let (Some(least), Some(elem)) = (least, elem) {
            let mut kernel: Kernel = (*kernel).clone();
            let Some((unpack, matrix)) = self.unpacked(panels, window, elem, at)? else { return Ok(variants) };
            if let Some(p) = kernel.params.get(*right).map(|p| p.value) {
                kernel.body.set_ty(p, Type::Buffer(matrix.buffer_type()));
            }
            kernel.find_symbols();
            let matrix = buffer(&mut self.plan.body, at, &matrix);
            let mut others = operands.to_vec();
            others.splice(*right..right + 2, [matrix]);
            let kernel = self.kernels.add_again(kernel);
            variants.push(Variant { least, launches: vec![unpack, (kernel, others)] });
        }
        Ok(variants)
    }

    /// A launch that makes a matrix of 16-bit floats of a product's panels; the matrix as the product's right operand.
    fn unpacked(
        &mut self,
        panels: &Panels,
        window: &View,
        elem: Elem,
        at: At,
    ) -> Result<Option<(LaunchOf, View)>, String> {
        let Some([k, n]) = window.shape.last_chunk::<2>() else { return Ok(None) };
        let (Some(k), Some(n)) = (k.as_const(), n.as_const()) else { return Ok(None) };
        let (own, points) = panels.without_repeats();
        let Some(made) = unpack(&own, [k, n], elem, Value::from_u32(0)) else { return Ok(None) };
        let number = new_slot(self.plan, &made.bytes, at, 0);
        let ty = slot_type(self.plan, &made.bytes, &flat(elem, &made.bytes));
        let slot = in_entry(self.plan, &mut self.added, Op::Slot(number), ty, at);
        let body = &mut self.plan.body;
        let mut operands = vec![buffer(body, at, &own.numbers)];
        if let Some((scales, _)) = &own.scales {
            operands.push(buffer(body, at, scales));
        }
        operands.push(buffer(body, at, &View { root: slot, ..made.written }));
        let name = self.kernels.add(made.kernel);
        // The axes along which it repeats again.
        let (mut shape, mut strides) = (made.matrix.shape.clone(), made.matrix.strides.clone());
        for (i, d) in window.shape.iter().enumerate().take(window.shape.len() - 2).filter(|(i, _)| !points.contains(i))
        {
            shape.insert(i, d.clone());
            strides.insert(i, Dim::zero());
        }
        Ok(Some(((name, operands), View { root: slot, shape, strides, ..made.matrix })))
    }

    /// How many panels of a window of parameters a grid point of a product should compute, and how many should lie abreast: several where
    /// the launch reads the same ones in all iterations of the innermost loop around it.
    fn panels_at_once(&self, product: &Product, kernel: &Kernel, window: &View, block: Block) -> Option<(i64, i64)> {
        let target = self.new.target;
        let (_, layers) = self.columns(window)?;
        let innermost = self.loops.iter().find(|l| l.blocks.contains(&block))?;
        let body = &self.plan.body;
        let made_there = |v: &Value| match body.def(*v) {
            ValueDef::Param => false,
            ValueDef::Arg(b, _) => innermost.blocks.contains(&b),
            ValueDef::Result(i) => innermost.blocks.iter().any(|b| body.block(*b).insts.contains(&i)),
        };
        if target.reads_in_place || window.elem != Elem::F32 || layers.iter().any(made_there) {
            return None;
        }
        let [.., steps, columns] = window.shape.as_slice() else { return None };
        let size = [steps.as_const()?, columns.as_const()?];
        let mut tiled = kernel.clone();
        product.retile(&mut tiled, tile_rows(steps, false), target.columns);
        let count = jam::panels_at_once(&tiled, size, target)?;
        Some((count, jam::abreast(count, size)))
    }

    /// Takes the views right before a launch, its own, out of their block.
    fn take_views(&mut self, block: Block, launch: Inst) -> Vec<Inst> {
        let body = &mut self.plan.body;
        let list = &body.block(block).insts;
        let end = list.iter().position(|i| *i == launch).unwrap_or(list.len());
        let is_view = |i: &&Inst| matches!(body.inst(**i).op, Op::View { .. });
        let count = list.iter().take(end).rev().take_while(is_view).count();
        body.block_mut(block).insts.drain(end - count..end).collect()
    }

    /// Remembers what was made of a kernel.
    fn note(&mut self, old: &str, new: &str) {
        let names = self.new.made.entry(old.to_string()).or_default();
        if !names.iter().any(|n| n == new) {
            names.push(new.to_string());
        }
    }

    /// The right operand of a product of so many rows as packed panels: a parameter is packed before all calls, so many panels
    /// abreast if that can be, anything else now, unless there are few rows.
    fn panels(
        &mut self,
        window: &View,
        (rows, left, abreast): (&Dim, Left, i64),
        at: At,
        kernel: &str,
    ) -> Result<Option<Panels>, String> {
        if let Some(panels) = self.parameter_panels(window, left, abreast, at) {
            return Ok(Some(panels));
        }
        let pairs = left == Left::Pairs;
        let few = self.new.target.reads_in_place || rows.as_const().is_some_and(|n| n < packing::MANY_ROWS);
        let root = Value::from_u32(0);
        let Some(packed) = packing::now(self.new.target.columns, window, root, pairs)?.filter(|_| !few) else {
            return Ok(None);
        };
        let number = new_slot(self.plan, &packed.bytes, at, 0);
        let ty = slot_type(self.plan, &packed.bytes, &packed.whole.buffer_type());
        let slot = in_entry(self.plan, &mut self.added, Op::Slot(number), ty, at);
        let mut operands = Vec::new();
        for source in &packed.sources {
            operands.push(buffer(&mut self.plan.body, at, source));
        }
        operands.push(buffer(&mut self.plan.body, at, &View { root: slot, ..packed.whole.clone() }));
        self.place_joined(&operands)?;
        let name = self.kernels.add(packed.kernel);
        self.note(kernel, &name);
        let launch = self.plan.body.make_inst(Op::Launch { kernel: name }, operands, None, at.loc);
        self.plan.body.insert_before(at.block, at.inst, launch);
        let numbers = View { root: slot, ..packed.panels };
        Ok(Some(Panels { numbers, scales: None, in_pairs: pairs, abreast: 1 }))
    }

    /// A launch before a product that rounds its left operand to `bf16`, which the kernel reads from now on; the buffer of it.
    fn rounded(
        &mut self,
        product: &Product,
        made: &mut Kernel,
        launch: &InstData,
        at: At,
        kernel: &str,
    ) -> Result<Option<Value>, String> {
        let operand = launch.operands.get(product.left).ok_or("a product without its left operand")?;
        let from = View::of(&self.plan.body, *operand).ok_or("a product of something that is no buffer")?;
        let rounded = halves::round(&from, Value::from_u32(0)).ok_or("a left operand of fewer than two axes")?;
        let number = new_slot(self.plan, &rounded.bytes, at, 0);
        let ty = slot_type(self.plan, &rounded.bytes, &rounded.whole.buffer_type());
        let slot = in_entry(self.plan, &mut self.added, Op::Slot(number), ty, at);
        let body = &mut self.plan.body;
        let operands = [&rounded.source, &View { root: slot, ..rounded.whole }].map(|v| buffer(body, at, v)).to_vec();
        self.place_joined(&operands)?;
        let name = self.kernels.add(rounded.kernel);
        self.note(kernel, &name);
        let op = Op::Launch { kernel: name };
        let body = &mut self.plan.body;
        let launch = body.make_inst(op, operands, None, at.loc);
        body.insert_before(at.block, at.inst, launch);
        let operand = View { root: slot, ..rounded.operand };
        if let Some(p) = made.params.get(product.left).map(|p| p.value) {
            made.body.set_ty(p, Type::Buffer(operand.buffer_type()));
        }
        Ok(Some(buffer(body, at, &operand)))
    }

    /// The windows of parameters, columns after columns, that a matrix is made of, and the layer that all are of.
    fn columns(&self, window: &View) -> Option<ColumnParts<'_>> {
        let joined = self.new.joined.as_ref()?;
        let data = self.plan.body.def_inst(window.root)?;
        match &data.op {
            Op::Param { name } => {
                let param = param_named(self.new.params, name)?;
                Some((vec![(param, window.clone())], data.operands.clone()))
            }
            Op::Packed { offset } if !self.placed.contains(&window.root) => {
                let joined = joined.iter().find(|j| j.offset == *offset)?;
                self.joined_columns(joined, window)
            }
            // It has its new place already, which says which it was.
            Op::Packed { offset } => {
                let place = self.packing.joined.iter().find(|j| j.offset == *offset)?;
                self.joined_columns(joined.get(place.number)?, window)
            }
            _ => None,
        }
    }

    fn joined_columns(&self, joined: &Joined, window: &View) -> Option<ColumnParts<'_>> {
        let (layers, strides): (Vec<Value>, Vec<Dim>) = window.dynamic.iter().cloned().unzip();
        // The axes that are not repeats.
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

    /// The pieces of a product by parameters whose panels cannot follow each other; none where it stays whole.
    fn cut(&mut self, product: &Product, kernel: &Kernel, window: &View, at: At) -> Option<Vec<Piece>> {
        let (windows, layers) = self.columns(window)?;
        let ((_, first), panel) = (windows.split_last()?, self.new.target.columns);
        let width = |v: &View| v.shape.last().and_then(Dim::as_const);
        let mut formats = windows.iter().map(|(p, _)| self.packing.choice.of(&p.name));
        let format = formats.next();
        // Those that stay as they are have panels of their own.
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
            let op = Op::Param { name: param.name };
            let body = &mut self.plan.body;
            let root = value_before(body, at, op, layers.clone(), Type::Buffer(ty));
            pieces.push(Piece { start, window: View { root, ..part } });
            start = next;
        }
        Some(pieces)
    }

    /// A window of a parameter, or of several, as panels of the packed area.
    fn parameter_panels(&mut self, window: &View, left: Left, abreast: i64, at: At) -> Option<Panels> {
        let (windows, layers) = self.columns(window)?;
        let windows: Vec<(ParamDecl, View)> = windows.into_iter().map(|(p, v)| (p.clone(), v)).collect();
        let windows: Vec<(&ParamDecl, View)> = windows.iter().map(|(p, v)| (p, v.clone())).collect();
        let place = self.packing.place(&windows, left, abreast)?;
        let numbers = self.packed_view(place.panels, &layers, at);
        let scales = place.scales.map(|(part, bits)| (self.packed_view(part, &layers, at), bits));
        Some(Panels { numbers, scales, in_pairs: place.in_pairs, abreast: place.abreast })
    }

    /// A part of the packed area, of a layer.
    fn packed_view(&mut self, part: Part, layers: &[Value], at: At) -> View {
        let known = self.packed.get(&part.offset).copied();
        let root = known.unwrap_or_else(|| {
            let root = in_entry(self.plan, &mut self.added, Op::Packed { offset: part.offset }, part.whole.clone(), at);
            self.packed.insert(part.offset, root);
            root
        });
        let (elem, offset) = (part.whole.elem, Dim::zero());
        let dynamic = layers.iter().copied().zip(part.whole.strides).collect();
        View { root, elem, offset, dynamic, shape: part.shape, strides: part.strides }
    }
}
