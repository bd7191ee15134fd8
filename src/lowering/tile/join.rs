//! Parameters that stand one after another (`concat`), row-major in the packed area.
//!
//! In: windows of parameters, and the axis along which they follow each other. Out: where all of them lie, and the plan that
//! puts them there, a copy for each window; of arrays of layers, for each layer. So what a program puts together from
//! parameters alone is put together when a model is opened, not in each call.

use super::{Shared, map};
use crate::ir::{ParamDecl, Value};
use crate::shape::{Dim, TensorType};
use crate::tile::packed_area::{Area, launch_for_each};
use crate::tile::{self, BufferType, PlanBuilder, PlanVariant, View, row_major};

/// A window of a parameter, its root meaning nothing.
type Source = (String, View);

/// What the packed area holds.
#[derive(Default)]
pub(super) struct PackedArea {
    joined: Vec<Joined>,
    pub(super) bytes: u64,
}

/// A part of the packed area.
pub(super) struct Part {
    /// Start in the packed area, in bytes.
    pub(super) offset: u64,
    /// Everything that lies there: `[layers.., shape..]`.
    pub(super) whole: BufferType,
    /// That of one layer.
    pub(super) shape: Vec<Dim>,
    /// Its strides.
    pub(super) strides: Vec<Dim>,
}

/// Are these the same windows?
fn same(one: &[Source], other: &[Source]) -> bool {
    let alike = |((a, v), (b, w)): (&Source, &Source)| {
        a == b && v.elem == w.elem && v.offset == w.offset && v.shape == w.shape && v.strides == w.strides
    };
    one.len() == other.len() && one.iter().zip(other).all(alike)
}

/// Windows that lie one after another.
struct Joined {
    /// The parameters' names and the windows.
    parts: Vec<Source>,
    /// How many tensors each parameter has.
    counts: Vec<i64>,
    axis: usize,
    /// Start in the packed area, in bytes.
    offset: u64,
    /// What one tensor of each parameter gives.
    shape: Vec<Dim>,
}

impl PackedArea {
    /// Makes space for windows one after another along an axis; `None` where that is known at run time only, or where there is
    /// nothing to put there. The windows are of one shape except for that axis.
    pub(super) fn join(&mut self, windows: &[(&ParamDecl, View)], axis: usize) -> Option<Part> {
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
            self.joined.push(Joined { parts, counts, axis, offset, shape: shape.clone() });
            self.bytes = end;
        }
        Some(Part { offset, whole, shape, strides })
    }
}

/// Adds the plan that puts parameters one after another; nothing where none are.
///
/// # Errors
/// A parameter that is not declared, a bug in attnc.
pub(super) fn finish(shared: &mut Shared, out: &mut tile::Module) -> Result<(), String> {
    let area = std::mem::take(&mut shared.area);
    if area.joined.is_empty() {
        return Ok(());
    }
    out.packed = area.bytes;
    let mut b = PlanBuilder::new("weights", PlanVariant::Prepare, Vec::new(), Vec::new());
    for j in &area.joined {
        let mut start = Dim::zero();
        for (name, from) in &j.parts {
            let mut from = from.clone();
            from.root = Value::from_u32(0);
            let whole = View::whole(from.root, &TensorType::new(from.elem, j.shape.clone()));
            let stop = start.add(from.shape.get(j.axis).ok_or("an axis is missing")?);
            let to = whole.slice(j.axis, &start, &stop);
            let call = map::copy("join", &from, &to);
            let [from, to] = call.buffers.as_slice() else { return Err("a copy has two operands".into()) };
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
