//! Packs right operands of matmuls in the order in which they are read: a view `[batch.., K, N]`
//! becomes panels `[batch.., P, K, NR]`, one for each NR columns (the width of the target's
//! register tile), the last one padded with zeros.
//!
//! In: views. Out: the layout of their panels, and the kernels that make them. There are two kinds:
//!
//! * parameters are packed once, when the model is opened: each has an offset in the packed area,
//!   and a plan of its own packs them all. A parameter of an array of layers is packed for all
//!   layers, `[layers.., batch.., P, K, NR]`. Identical packings for several matmuls are shared.
//!   Views of several parameters may be adjacent as the panels of one operand, if each but the last
//!   fills its panels;
//! * computed operands are packed by a launch before the matmul, into a slot. The number of columns
//!   may not be a constant then: the slot has space for `N + NR - 1`, and P is only bounded, by N.
//!
//! `f32` and `bf16` are packed, `bf16` unchanged, or in pairs of k indices for a matmul of `bf16`
//! only (`pairs`); `f32` (and on a GPU `f16`) may be packed in a narrower format
//! ([`WeightFormat`]), so that a matmul with few rows reads less; exceptions are chosen by name
//! ([`WeightChoice`]). Not packed are other types, which are converted to `f32` when copied, and
//! single columns, which are contiguous already.
//!
//! ```text
//! grid (batch.., ceil(K, 64), P)     if K is the dense axis: grid (batch.., P, ceil(K, 256))
//!   zeros where the panel is not full;  load 64 x NR (or 256, transposed);  store
//! ```
//!
//! Quantised panels are made by `quantise`; row-major concatenations of parameters are found by
//! `joined`.

use std::collections::{BTreeMap, BTreeSet};

use super::formats::{WeightChoice, WeightFormat};
use super::joined::{Joined, PlacedJoin, Source};
use super::pairs::{self, Pairs, padded_columns};
use super::quantise::{self, Quantised, quantise};
use super::step::{Changed, Replacements};
use crate::interface::ParamDecl;
use crate::scalar::{CmpOp, Scalar};
use crate::shape::{Dim, Elem, TensorType};
use crate::source::Loc;
use crate::tile::packed_area::{Area, launch_for_each};
use crate::tile::{
    self, BufferType, Extent, Kernel, KernelBuilder, Kernels, ParamMode, Plan, PlanBuilder, PlanVariant, Type, Value,
    View, tile_size,
};

/// k indices packed at a time: few, because each is on a page of its own.
const PACKED_STEPS: i64 = 64;
/// The same if K is the contiguous axis.
const PACKED_TRANSPOSED_STEPS: i64 = 256;

/// A matmul with fewer rows does not pack a computed right operand: packing reads and writes each
/// element once, at memory speed, after which each tile of rows reads it in order.
pub(super) const MANY_ROWS: i64 = 256;

/// Views of parameters, packed one after another.
pub(super) struct Weight {
    /// The parameters' names and views, `[batch.., K, N]`; `[K, N]` if there are several.
    pub(super) parts: Vec<Source>,
    /// Number of tensors of each.
    counts: Vec<i64>,
    /// Packed format.
    pub(super) format: WeightFormat,
    /// Are k indices in pairs?
    in_pairs: bool,
    /// Number of interleaved panels.
    abreast: i64,
    /// Offset of the panels in the packed area, in bytes.
    offset: u64,
    /// Offset of their scales, if they have any.
    scales: u64,
    /// The first matmul that reads them.
    loc: Loc,
}

/// The panels of a module.
pub(super) struct Chosen {
    pub(super) packing: Packing,
    pub(super) changed: Changed,
    pub(super) made: Replacements,
    /// Matmuls with quantised weights that do not use tensor cores, and why.
    pub(super) refused: BTreeMap<String, String>,
    /// Remarks on kernels.
    pub(super) notes: BTreeSet<(String, String)>,
}

/// Layout of a module's packed area.
pub(super) struct Packing {
    /// Columns per panel.
    columns: i64,
    /// Are weights packed even if their format is not narrower?
    keeps_bytes: bool,
    pub(super) choice: WeightChoice,
    pub(super) weights: Vec<Weight>,
    /// Concatenations that are read row-major.
    pub(super) joined: Vec<PlacedJoin>,
    pub(super) bytes: u64,
}

/// A part of the packed area: the panels of a weight, or their scales.
pub(super) struct PackedPanels {
    /// Offset in the packed area, in bytes.
    pub(super) offset: u64,
    /// The whole buffer: `[layers.., batch.., P, K, NR]`; `[.., P, ceil(K / 2), NR, 2]` with k
    /// indices in pairs, `[.., P / A, K, A, NR]` with A interleaved panels.
    pub(super) whole: BufferType,
    /// Shape for one layer, with the batch axes of the view: `[batch.., P, K, NR]`.
    pub(super) shape: Vec<Dim>,
    /// Its strides.
    pub(super) strides: Vec<Dim>,
}

/// The panels that the left operand of a matmul permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Single k indices only.
    AsItIs,
    /// It is `bf16`: `bf16` panels have k indices in pairs.
    Pairs,
    /// It is `f32` and could be rounded, so panels of weights that were rounded to `bf16` have k
    /// indices in pairs.
    Rounded,
}

/// Where a view is packed.
pub(super) struct PackedWindow {
    /// Its panels.
    pub(super) panels: PackedPanels,
    /// Their scales and integer width, if they are quantised.
    pub(super) scales: Option<(PackedPanels, u8)>,
    /// Are k indices in pairs?
    pub(super) in_pairs: bool,
    /// Number of interleaved panels.
    pub(super) abreast: i64,
}

/// Packed panels, as read by a kernel.
pub(super) struct Panels {
    /// `[batch.., P, K, NR]`; with 4 bits, `[batch.., P, ceil(K / 2), NR]`; in pairs, `[batch.., P,
    /// ceil(K / 2), NR, 2]`; with A interleaved, `[batch.., P / A, K, A, NR]`.
    pub(super) numbers: View,
    /// Scales, `[batch.., P, ceil(K / 32), NR]`, and integer width, of quantised panels.
    pub(super) scales: Option<(View, u8)>,
    /// Are k indices in pairs?
    pub(super) in_pairs: bool,
    /// Number of interleaved panels: k index 0 of all, then k index 1, and so on.
    pub(super) abreast: i64,
}

/// The remark on how a matmul reads its right operand, if its points compute this number of panels.
pub(super) fn remark(panels: Option<&Panels>, at_once: i64) -> String {
    let what = match panels {
        Some(Panels { scales: Some((_, bits)), .. }) => format!("panels of {bits}-bit integers"),
        Some(Panels { in_pairs: true, .. }) => "panels of pairs of `bf16`".to_string(),
        Some(_) => "panels".to_string(),
        None => "place".to_string(),
    };
    let together = if at_once > 1 { format!(", {at_once} at a time") } else { String::new() };
    format!("the right operand is read in {what}{together}")
}

impl Panels {
    /// Are they plain elements with single k indices?
    pub(super) fn is_plain(&self) -> bool {
        self.scales.is_none() && !self.in_pairs
    }

    /// Removes batch axes along which quantised panels repeat; returns the numbers of the remaining
    /// batch axes. (Quantised panels must have constant extents.)
    pub(super) fn without_repeats(&self) -> (Panels, Vec<usize>) {
        let mut points: Vec<usize> =
            (0..self.numbers.shape.len().saturating_sub(if self.in_pairs || self.abreast > 1 { 4 } else { 3 }))
                .collect();
        let mut numbers = self.numbers.clone();
        let mut scales = self.scales.clone();
        if let Some((scales, _)) = &mut scales {
            for i in (0..points.len()).rev().filter(|i| self.numbers.strides.get(*i) == Some(&Dim::zero())) {
                (numbers, *scales) = (numbers.select(i, &Dim::zero()), scales.select(i, &Dim::zero()));
                points.remove(i);
            }
        }
        (Panels { numbers, scales, ..*self }, points)
    }
}

impl Packing {
    /// An empty area with panels of this width. `keeps_bytes`: weights are packed even if their
    /// format is not narrower.
    pub(super) fn new(columns: i64, keeps_bytes: bool, choice: WeightChoice) -> Packing {
        Packing { columns, keeps_bytes, choice, weights: Vec::new(), joined: Vec::new(), bytes: 0 }
    }

    /// Reserves space for a concatenation that is read row-major; returns its offset. `None` if the
    /// area is full.
    pub(super) fn join(&mut self, number: usize, bytes: u64) -> Option<u64> {
        if let Some(known) = self.joined.iter().find(|j| j.number == number) {
            return Some(known.offset);
        }
        let offset = self.bytes;
        self.bytes = offset.checked_add(bytes)?.checked_next_multiple_of(64)?;
        self.joined.push(PlacedJoin { number, offset });
        Some(offset)
    }

    /// Reserves space for a view `[batch.., K, N]` of a parameter, or for several, `[K, N]` each,
    /// one after another; with k indices in pairs if both `left` and the panels can be `bf16`. Full
    /// `f32` panels are interleaved in groups (their number is the last argument), unless the view
    /// is already packed in another way. `None` if it is better read directly, or if its offset is
    /// not a constant. `loc` is the matmul.
    pub(super) fn place(
        &mut self,
        windows: &[(&ParamDecl, View)],
        left: Left,
        abreast: i64,
        loc: Loc,
    ) -> Option<PackedWindow> {
        let ((param, window), others) = windows.split_first()?;
        // With several, none must be rounded more than its own format permits.
        let kept = windows.iter().any(|(p, _)| self.choice.format_of(&p.name) == WeightFormat::F32);
        let format = match (window.elem, if kept { WeightFormat::F32 } else { self.choice.format }) {
            (Elem::F32, format) => format,
            (Elem::BF16, WeightFormat::F32) => WeightFormat::Bf16,
            (Elem::BF16, format) => format,
            // Code that converts `f16` anyway can convert integers too.
            (Elem::F16, format) if format.bits().is_some() && !self.keeps_bytes => format,
            _ => return None,
        };
        if format.elem() == window.elem && !self.keeps_bytes {
            return None;
        }
        let in_pairs = format == WeightFormat::Bf16
            && match left {
                Left::AsItIs => false,
                Left::Pairs => window.elem == Elem::BF16,
                // The operand is rounded only if the user requested rounded weights.
                Left::Rounded => !kept && self.choice.format == WeightFormat::Bf16,
            };
        let known = |list: &[Dim]| list.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
        let counts = param.counts.iter().map(|n| i64::try_from(*n).ok()).collect::<Option<Vec<i64>>>()?;
        let columns = self.columns;
        let (elem, (from, kept)) = (window.elem, without_repeats(window));
        let shape = known(&from.shape)?;
        let (lead, [k, n]) = shape.split_last_chunk::<2>()?;
        if (*n < 2 && others.is_empty()) || shape.iter().chain(&counts).any(|n| *n < 1) {
            return None;
        }
        // The panels of all views; each but the last must end at a panel boundary.
        let (mut parts, mut count, mut end) = (Vec::new(), 0i64, 0);
        for (p, window) in windows {
            let (from, _) = without_repeats(window);
            let shape = known(&from.shape)?;
            known(&from.strides)?;
            let alike =
                window.elem == elem && p.counts == param.counts && shape.split_last()?.1 == [lead, &[*k]].concat();
            if !window.dynamic.is_empty() || window.offset.as_const().is_none() || !alike || end != 0 {
                return None;
            }
            let n = *shape.last().filter(|n| **n > 0)?;
            end = n % columns;
            count = count.checked_add(n.checked_add(columns - 1)?.div_euclid(columns))?;
            parts.push((p.name.clone(), from));
        }
        if !others.is_empty() && !lead.is_empty() {
            return None;
        }
        let known = self.weights.iter().find(|w| w.in_pairs == in_pairs && same(&w.parts, &parts));
        let wider = abreast.max(1).checked_mul(columns)?;
        let width = |v: &View| v.shape.last().and_then(Dim::as_const);
        let fills = format == WeightFormat::F32 && parts.iter().all(|(_, v)| width(v).is_some_and(|n| n % wider == 0));
        let abreast = known.map_or(if fills { abreast.max(1) } else { 1 }, |w| w.abreast);
        let count = count / abreast;
        // A part for all layers, with the view's batch axes, including repeated ones.
        let part = |offset: u64, elem: Elem, rows: i64| -> Option<(PackedPanels, u64)> {
            let panels: &[i64] = match (in_pairs, abreast) {
                (true, _) => &[count, pairs::count_pairs(rows), columns, 2],
                (false, 1) => &[count, rows, columns],
                (false, n) => &[count, rows, n, columns],
            };
            let all: Vec<i64> = counts.iter().chain(lead).chain(panels).copied().collect();
            let size = i64::try_from(elem.size()).ok()?;
            let bytes = all.iter().try_fold(size, |bytes, n| bytes.checked_mul(*n))?;
            let end = offset.checked_add(u64::try_from(bytes).ok()?)?.checked_next_multiple_of(64)?;
            let all: Vec<Dim> = all.into_iter().map(Dim::from).collect();
            let whole = BufferType { elem, strides: tile::row_major(&all), shape: all };
            let own = |list: &[Dim]| list.get(counts.len()..).unwrap_or_default().to_vec();
            let (shape, strides) = with_repeats(window, &kept, &own(&whole.shape), &own(&whole.strides));
            Some((PackedPanels { offset, whole, shape, strides }, end))
        };
        let (panels, mut end) =
            part(known.map_or(self.bytes, |w| w.offset), format.elem(), quantise::rows(format.bits(), *k))?;
        let mut scales = None;
        if let Some(bits) = format.bits() {
            let (scaled, last) = part(known.map_or(end, |w| w.scales), Elem::F32, quantise::groups(*k))?;
            (scales, end) = (Some((scaled, bits)), last);
        }
        if known.is_none() {
            let (offset, scales) = (panels.offset, scales.as_ref().map_or(0, |(part, _)| part.offset));
            self.weights.push(Weight { parts, counts, format, in_pairs, abreast, offset, scales, loc });
            self.bytes = end;
        }
        Some(PackedWindow { panels, scales, in_pairs, abreast })
    }
}

/// Removes the batch axes along which a view repeats, so that nothing is packed twice; returns the
/// remaining axes.
pub(super) fn without_repeats(window: &View) -> (View, Vec<usize>) {
    let rank = window.shape.len();
    let repeats = |i: &usize| *i + 2 < rank && window.strides.get(*i).is_some_and(|s| *s == Dim::zero());
    let kept: Vec<usize> = (0..rank).filter(|i| !repeats(i)).collect();
    let pick = |list: &[Dim]| kept.iter().filter_map(|i| list.get(*i).cloned()).collect::<Vec<Dim>>();
    (View { shape: pick(&window.shape), strides: pick(&window.strides), ..window.clone() }, kept)
}

/// Shape and strides of a view's panels, with the repeated axes restored.
pub(super) fn with_repeats(window: &View, kept: &[usize], shape: &[Dim], strides: &[Dim]) -> (Vec<Dim>, Vec<Dim>) {
    let (mut shape, mut strides) = (shape.to_vec(), strides.to_vec());
    let lead = window.shape.len().saturating_sub(2);
    for (i, d) in window.shape.iter().enumerate().take(lead).filter(|(i, _)| !kept.contains(i)) {
        shape.insert(i, d.clone());
        strides.insert(i, Dim::zero());
    }
    (shape, strides)
}

/// A view packed by a launch.
pub(super) struct Packed {
    /// The launched kernel: it reads the sources and writes `whole`.
    pub(super) kernel: Kernel,
    /// The views that it reads.
    pub(super) sources: Vec<View>,
    /// The panels, `[batch.., P, K, NR]`, with the given root.
    pub(super) panels: View,
    /// The whole slot, as the launch writes it.
    pub(super) whole: View,
    /// Its size in bytes.
    pub(super) bytes: Dim,
}

/// Packs any view, with k indices in pairs or not, into panels of this width, in a slot with the
/// root `root`; `None` if it is better read directly.
///
/// # Errors
/// A view without K and N axes, which is a bug in attnc.
pub(super) fn now(columns: i64, window: &View, root: Value, in_pairs: bool) -> Result<Option<Packed>, String> {
    let [.., k, n] = window.shape.as_slice() else { return Ok(None) };
    if (window.elem != Elem::F32 && !in_pairs) || n.as_const() == Some(1) {
        return Ok(None);
    }
    let (from, kept) = without_repeats(window);
    // Rows of the panels, with 4 bytes per column.
    let (kernel, sources, mut whole, rows) = if in_pairs {
        let Pairs { kernel, sources, panels } = pairs::pack(columns, &from)?;
        let rows = panels.shape.iter().rev().nth(2).cloned().unwrap_or_default();
        (kernel, sources, panels, rows)
    } else {
        let (kernel, panels) = pack("pack", columns, &from, Elem::F32);
        (kernel, vec![from.clone()], panels, k.clone())
    };
    whole.root = root;
    let (shape, strides) = with_repeats(window, &kept, &whole.shape, &whole.strides);
    let panels = View { shape, strides, ..whole.clone() };
    let lead = from.shape.iter().take(from.shape.len().saturating_sub(2));
    let padded = padded_columns(n, columns);
    let bytes = Dim::product(lead).mul(&rows).mul(&padded).mul(&Dim::from(4));
    Ok(Some(Packed { kernel, sources, panels, whole, bytes }))
}

/// Packs a view `[batch.., K, N]` of `bf16` unchanged, into panels of this width, in a slot with
/// the root `root`.
pub(super) fn in_columns(name: &str, columns: i64, window: &View, root: Value) -> Packed {
    let (from, kept) = without_repeats(window);
    let (kernel, mut whole) = pack(name, columns, &from, Elem::BF16);
    whole.root = root;
    let (shape, strides) = with_repeats(window, &kept, &whole.shape, &whole.strides);
    let panels = View { shape, strides, ..whole.clone() };
    let last = |n: usize| from.shape.iter().rev().nth(n).cloned().unwrap_or_default();
    let lead = from.shape.iter().take(from.shape.len().saturating_sub(2));
    let bytes = Dim::product(lead).mul(&last(1)).mul(&padded_columns(&last(0), columns)).mul(&Dim::from(2));
    Packed { kernel, sources: vec![from], panels, whole, bytes }
}

/// Are two lists of views equal?
pub(super) fn same(one: &[Source], other: &[Source]) -> bool {
    let alike = |((a, v), (b, w)): (&Source, &Source)| {
        a == b && v.elem == w.elem && v.offset == w.offset && v.shape == w.shape && v.strides == w.strides
    };
    one.len() == other.len() && one.iter().zip(other).all(alike)
}

/// The plan that fills the packed area, whose kernels are added to the others; `None` if nothing is
/// packed.
///
/// # Errors
/// An undeclared parameter, which is a bug in attnc.
pub(super) fn prepare(
    packing: &Packing,
    known: &[Joined],
    (params, old): (&[ParamDecl], &[Kernel]),
    kernels: &mut Kernels,
) -> Result<Option<Plan>, String> {
    if packing.weights.is_empty() && packing.joined.is_empty() {
        return Ok(None);
    }
    let mut b = PlanBuilder::new("weights", PlanVariant::Prepare, Vec::new(), Vec::new());
    for w in &packing.weights {
        b.at(w.loc);
        let mut calls = Vec::new();
        for (name, from) in &w.parts {
            let mut window = from.clone();
            window.root = Value::from_u32(0);
            // The kernel's operands, and the offsets of the areas that it writes.
            calls.push((
                name,
                from.shape.len().saturating_sub(2),
                match w.format.bits() {
                    None if w.in_pairs => {
                        let Pairs { kernel, sources, panels } = pairs::pack(packing.columns, &window)?;
                        (kernel, sources, vec![(panels, w.offset)])
                    }
                    None => {
                        // Interleaved panels are filled like a single wider one.
                        let columns = packing.columns * w.abreast;
                        let (kernel, target) = pack("pack", columns, &window, w.format.elem());
                        (kernel, vec![window], vec![(target, w.offset)])
                    }
                    Some(bits) => {
                        let Quantised { kernel, sources, panels, scales } = quantise(packing.columns, &window, bits)?;
                        (kernel, sources, vec![(panels, w.offset), (scales, w.scales)])
                    }
                },
            ));
        }
        // Several views have no batch axes, so their panels are adjacent.
        let panels =
            |axis: usize, targets: &[(View, u64)]| targets.first().and_then(|(v, _)| v.shape.get(axis).cloned());
        let count = calls.iter().filter_map(|(_, axis, (_, _, targets))| panels(*axis, targets));
        let count = count.fold(Dim::zero(), |sum, n| sum.add(&n));
        let mut first = Dim::zero();
        for (name, axis, (kernel, sources, targets)) in calls {
            let kernel = kernels.add(kernel);
            let here = panels(axis, &targets).unwrap_or_default();
            let mut areas = Vec::new();
            for (part, offset) in targets {
                let mut whole = part.shape.clone();
                if let Some(n) = whole.get_mut(axis) {
                    *n = count.clone();
                }
                let start = part.strides.get(axis).map_or(Dim::zero(), |s| s.mul(&first));
                areas.push(Area { offset, whole, part, start });
            }
            launch_for_each(&mut b, params, (name, &w.counts), &kernel, &sources, areas)?;
            first = first.add(&here);
        }
    }
    for place in &packing.joined {
        place.copy(known, params, old, kernels, &mut b)?;
    }
    Ok(Some(b.finish()))
}

/// The kernel that copies a view `[batch.., K, N]` into panels of `elem`, and the view it writes:
/// `[batch.., P, K, NR]`.
fn pack(name: &str, columns: i64, from: &View, elem: Elem) -> (Kernel, View) {
    let (lead, [k, n]) = match from.shape.split_last_chunk::<2>() {
        Some((lead, pair)) => (lead, pair.clone()),
        None => (Default::default(), [Dim::one(), Dim::one()]),
    };
    let rank = from.shape.len();
    let full = n.as_const().is_some_and(|n| n % columns == 0);
    let panels = match n.as_const() {
        Some(n) => Dim::from(n.saturating_add(columns - 1).div_euclid(columns)),
        None => n.clone(),
    };
    let shape = [lead, &[panels.clone(), k.clone(), Dim::from(columns)]].concat();
    let mut target = View::whole(from.root, &TensorType::new(elem, shape));
    // The batch stride is the size of one element's memory, whatever P is.
    let mut stride = k.mul(&padded_columns(&n, columns));
    for (d, s) in lead.iter().zip(target.strides.iter_mut()).rev() {
        *s = stride.clone();
        stride = stride.mul(d);
    }

    let mut kb = KernelBuilder::new(name);
    let source = kb.buffer(from.buffer_type(), ParamMode::In);
    let buffer = kb.buffer(target.buffer_type(), ParamMode::Out);
    let points: Vec<Value> = lead.iter().map(|d| kb.grid_axis(d, 1)).collect();
    let is_dense = |axis: usize| from.strides.get(axis).and_then(Dim::as_const) == Some(1);
    let transposed = is_dense(rank - 2) && !is_dense(rank - 1);
    let most = tile_size(&n, columns);
    let step = tile_size(&k, if transposed { PACKED_TRANSPOSED_STEPS } else { PACKED_STEPS });
    // Consecutive points read consecutive memory.
    let (panel, point) = if transposed {
        let panel = kb.grid_axis(&n, most);
        (panel, kb.grid_axis(&k, step))
    } else {
        let point = kb.grid_axis(&k, step);
        (kb.grid_axis(&n, most), point)
    };
    let row = kb.times(point, step);
    let column = kb.times(panel, most);
    let (rows, cols) = (kb.extent_at(&k, row, step), kb.extent_at(&n, column, most));
    let zero = kb.index(0);
    let place = [points.as_slice(), &[panel, row, zero]].concat();
    let along = (Some(rank - 1), Some(rank));
    if !full {
        let filled = match cols {
            Extent::Static(n) => kb.index(n),
            Extent::Bounded { value, .. } => value,
        };
        let all = kb.index(columns);
        let partial = kb.compare_scalars(CmpOp::Lt, filled, all);
        let (clear, _) = kb.new_block(Vec::new());
        let (copy, _) = kb.new_block(Vec::new());
        kb.br_if(partial, (clear, &[]), (copy, &[]));
        kb.switch_to(clear);
        let zeros = kb.full(Scalar::Float(0.0), Elem::F32, rows, Extent::Static(columns));
        kb.store(buffer, &place, along, zeros);
        kb.br(copy, &[]);
        kb.switch_to(copy);
    }
    let at = [points.as_slice(), &[row, column]].concat();
    let tile = if transposed {
        let loaded = kb.load(source, &at, (Some(rank - 1), Some(rank - 2)), cols, rows);
        let ty = Type::Tile(KernelBuilder::tile_type(Elem::F32, rows, cols));
        kb.value(tile::Op::Transpose, vec![loaded], ty)
    } else {
        kb.load(source, &at, (Some(rank - 2), Some(rank - 1)), rows, cols)
    };
    let tile = if elem == from.elem { tile } else { kb.narrow(tile, elem) };
    kb.store(buffer, &place, along, tile);
    (kb.finish(), target)
}
