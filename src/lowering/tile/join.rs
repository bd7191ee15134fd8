//! Concatenated parameters, row-major in the packed area.
//!
//! In: views of parameters, and the axis along which they are concatenated. Out: their layout in
//! the packed area, and the plan that fills it, one copy per view (and per layer, for arrays of
//! layers). So a concat of parameters alone is done when a model is opened, not in each call.

use super::{Shared, map};
use crate::ir::{Loc, ParamDecl, Value};
use crate::shape::{Dim, TensorType};
use crate::tile::packed_area::{Area, launch_for_each};
use crate::tile::{self, BufferType, PlanBuilder, PlanVariant, View, row_major};

/// A parameter's name and a view of it; the view's root is ignored.
type Source = (String, View);

/// Layout of the packed area.
#[derive(Default)]
pub(super) struct PackedArea {
    joined: Vec<Joined>,
    pub(super) bytes: u64,
}

/// A part of the packed area.
pub(super) struct PackedTensor {
    /// Start in the packed area, in bytes.
    pub(super) offset: u64,
    /// The whole buffer: `[layers.., shape..]`.
    pub(super) whole: BufferType,
    /// Shape of one layer's tensor.
    pub(super) shape: Vec<Dim>,
    /// Its strides.
    pub(super) strides: Vec<Dim>,
}

/// Are two lists of views equal?
fn same(one: &[Source], other: &[Source]) -> bool {
    let alike = |((a, v), (b, w)): (&Source, &Source)| {
        a == b && v.elem == w.elem && v.offset == w.offset && v.shape == w.shape && v.strides == w.strides
    };
    one.len() == other.len() && one.iter().zip(other).all(alike)
}

/// Concatenated views.
struct Joined {
    parts: Vec<Source>,
    /// Lengths of the arrays of layers around the parameters.
    counts: Vec<i64>,
    axis: usize,
    /// Start in the packed area, in bytes.
    offset: u64,
    /// Shape of the concatenated tensor of one layer.
    shape: Vec<Dim>,
    /// The concatenation.
    loc: Loc,
}

impl PackedArea {
    /// Reserves space for views concatenated along an axis; `None` if the size is not a constant,
    /// or is 0. The views agree in all other axes.
    pub(super) fn join(&mut self, windows: &[(&ParamDecl, View)], axis: usize, loc: Loc) -> Option<PackedTensor> {
        let (param, first) = windows.first()?;
        let counts = param.counts.iter().map(|n| i64::try_from(*n).ok()).collect::<Option<Vec<i64>>>()?;
        let mut shape = first.shape.clone();
        *shape.get_mut(axis)? = Dim::zero();
        let mut parts = Vec::new();
        for (p, window) in windows {
            let known = |list: &[Dim]| list.iter().all(|d| d.as_const().is_some_and(|n| n >= 0));
            let fixed = window.dynamic.is_empty() && window.offset.as_const().is_some();
            if !fixed || !known(&window.shape) || !known(&window.strides) || p.counts != param.counts {
                return None;
            }
            *shape.get_mut(axis)? = shape.get(axis)?.add(window.shape.get(axis)?);
            parts.push((p.name.clone(), window.clone()));
        }
        let all: Vec<Dim> = counts.iter().copied().map(Dim::from).chain(shape.iter().cloned()).collect();
        let size = i64::try_from(first.elem.size()).ok()?;
        let bytes = all.iter().try_fold(size, |bytes, n| bytes.checked_mul(n.as_const()?)).filter(|n| *n > 0)?;
        let known = self.joined.iter().find(|j| j.axis == axis && same(&j.parts, &parts)).map(|j| j.offset);
        let offset = known.unwrap_or(self.bytes);
        let end = offset.checked_add(u64::try_from(bytes).ok()?)?.checked_next_multiple_of(64)?;
        let whole = BufferType { elem: first.elem, strides: row_major(&all), shape: all };
        let strides = row_major(&shape);
        if known.is_none() {
            self.joined.push(Joined { parts, counts, axis, offset, shape: shape.clone(), loc });
            self.bytes = end;
        }
        Some(PackedTensor { offset, whole, shape, strides })
    }
}

/// Adds the plan that fills the packed area, if it is not empty.
///
/// # Errors
/// An undeclared parameter, which is a bug in attnc.
pub(super) fn finish(shared: &mut Shared, out: &mut tile::Module) -> Result<(), String> {
    let area = std::mem::take(&mut shared.area);
    if area.joined.is_empty() {
        return Ok(());
    }
    out.packed = area.bytes;
    let mut b = PlanBuilder::new("weights", PlanVariant::Prepare, Vec::new(), Vec::new());
    for j in &area.joined {
        b.at(j.loc);
        let mut start = Dim::zero();
        for (name, from) in &j.parts {
            let mut from = from.clone();
            from.root = Value::from_u32(0);
            let whole = View::whole(from.root, &TensorType::new(from.elem, j.shape.clone()));
            let stop = start.add(from.shape.get(j.axis).ok_or("an axis is missing")?);
            let to = whole.slice(j.axis, &start, &stop);
            let call = map::copy("join", &from, &to);
            let [from, to] = call.buffers.as_slice() else { return Err("a copy must have two operands".into()) };
            let area = Area { offset: j.offset, whole: j.shape.clone(), start: to.offset.clone(), part: to.clone() };
            let sources = std::slice::from_ref(from);
            let kernel = shared.kernels.add(call.kernel);
            launch_for_each(&mut b, &out.params, (name, &j.counts), &kernel, sources, vec![area])?;
            start = stop;
        }
    }
    out.plans.push(b.finish());
    Ok(())
}
