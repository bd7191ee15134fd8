//! Finds the parts of the packed area that hold concatenated parameters, as laid out by lowering
//! for a `concat` of parameters (`lowering::tile::join`).
//!
//! In: the preparing plan of an unscheduled module. Out: for each part of the packed area the views
//! of parameters that it is copied from, so that a matmul can have panels of the views themselves;
//! and, for other readers, the same copies to another offset. They are recognised by the launches'
//! operands: each copies a view of a parameter, of each layer of an array, to a view of one part. A
//! plan with any other launch is not recognised.

use crate::interface::{ParamDecl, param_named};
use crate::shape::{Dim, Elem};
use crate::source::Loc;
use crate::tile::packed_area::{Area, launch_for_each};
use crate::tile::{
    Body, BufferType, Compute, Kernel, Kernels, Module, Op, PlanBuilder, PlanOp, PlanVariant, Value, View, row_major,
};

/// A parameter's name and a view of it; the view's root is ignored.
pub(super) type Source = (String, View);

/// A copy of a parameter's view to a part of the packed area.
struct Copy {
    /// The copying kernel.
    kernel: String,
    /// The parameter, its view, and the view that is written.
    parameter: String,
    from: View,
    to: View,
    /// The concatenation.
    loc: Loc,
}

/// Concatenated parameters.
pub(super) struct Joined {
    /// Offset in bytes.
    pub(super) offset: u64,
    /// Number of tensors of each parameter.
    pub(super) counts: Vec<i64>,
    /// All layers, `[layers.., shape..]`, row-major.
    whole: BufferType,
    copies: Vec<Copy>,
    /// The views of one layer, in order, along this axis.
    pub(super) parts: Vec<Source>,
    pub(super) axis: usize,
}

/// A joined part that is read row-major: its number among the known ones, and its new offset.
pub(super) struct PlacedJoin {
    pub(super) number: usize,
    pub(super) offset: u64,
}

/// The concatenations done by the preparing plan; `None` if it does anything else.
pub(super) fn find(module: &Module) -> Option<Vec<Joined>> {
    let mut found: Vec<Joined> = Vec::new();
    let Some(plan) = module.plans.iter().find(|p| p.variant == PlanVariant::Prepare) else { return Some(found) };
    let body = &plan.body;
    for (_, _, data) in body.insts() {
        let Op::Plan(PlanOp::Launch { kernel }) = &data.op else { continue };
        let kernel = module.kernels.iter().find(|k| k.name == *kernel).filter(|k| copies(k))?;
        let [from, to] = data.operands.as_slice() else { return None };
        let (from, to) = (View::trace(body, *from)?, View::trace(body, *to)?);
        let (Op::Plan(PlanOp::Param { name }), layers) = made_by(body, from.root)? else { return None };
        let (Op::Plan(PlanOp::Packed { offset }), _) = made_by(body, to.root)? else { return None };
        let param = param_named(&module.params, name)?;
        let counts = param.counts.iter().map(|n| i64::try_from(*n).ok()).collect::<Option<Vec<i64>>>()?;
        let whole = body.ty(to.root).buffer()?.clone();
        // The loop counters must select the view of a layer on both sides alike, and cover all
        // layers.
        let strides = whole.strides.iter().cloned();
        let of_layer: Vec<(Value, Dim)> = layers.iter().copied().zip(strides).collect();
        let is_row_major = whole.strides == row_major(&whole.shape);
        let layered = whole.shape.iter().zip(&counts).all(|(d, n)| d.as_const() == Some(*n));
        if to.dynamic != of_layer || !from.dynamic.is_empty() || !is_row_major || !layered {
            return None;
        }
        let copy = Copy { kernel: kernel.name.clone(), parameter: name.clone(), from, to, loc: data.loc };
        match found.iter_mut().find(|j| j.offset == *offset) {
            Some(known) if known.whole == whole && known.counts == counts => known.copies.push(copy),
            Some(_) => return None,
            None => {
                let parts = Vec::new();
                found.push(Joined { offset: *offset, counts, whole, copies: vec![copy], parts, axis: 0 });
            }
        }
    }
    for joined in &mut found {
        let axes = 0..joined.shape().len();
        let (axis, parts) = axes.into_iter().find_map(|axis| Some((axis, joined.along(axis)?)))?;
        (joined.axis, joined.parts) = (axis, parts);
    }
    Some(found)
}

fn made_by(body: &Body, v: Value) -> Option<(&Op, &[Value])> {
    body.def_inst(v).map(|d| (&d.op, d.operands.as_slice()))
}

/// Does a kernel copy elements without converting them?
fn copies(kernel: &Kernel) -> bool {
    let elem = |n: usize| kernel.buffer_type(n).map(|b| b.elem);
    kernel.compute == Some(Compute::Copy) && elem(0) == elem(1)
}

impl Joined {
    /// Names of the copying kernels.
    pub(super) fn kernels(&self) -> impl Iterator<Item = &str> {
        self.copies.iter().map(|c| c.kernel.as_str())
    }

    /// Shape of one layer.
    fn shape(&self) -> &[Dim] {
        self.whole.shape.get(self.counts.len()..).unwrap_or_default()
    }

    /// The views in order, if they are adjacent along an axis and fill it.
    fn along(&self, axis: usize) -> Option<Vec<Source>> {
        let (shape, strides) = (self.shape(), row_major(self.shape()));
        let (all, step) = (shape.get(axis)?.as_const()?, strides.get(axis)?.as_const().filter(|n| *n > 0)?);
        let mut parts = Vec::new();
        let mut next = 0i64;
        for copy in &self.copies {
            // A view's length along the axis: copies merge axes, so it is derived from the number
            // of elements.
            let others = shape.iter().enumerate().filter(|(n, _)| *n != axis).map(|(_, d)| d);
            let (elements, others) = (Dim::product(&copy.to.shape).as_const()?, Dim::product(others).as_const()?);
            let extent = elements.checked_div(others).filter(|n| n.checked_mul(others) == Some(elements))?;
            let mut own = shape.to_vec();
            *own.get_mut(axis)? = Dim::from(extent);
            let to = copy.to.reshape(&own)?;
            let spread = |d: &Dim| d.as_const() == Some(1);
            let fits = to.strides.iter().zip(&strides).zip(&own).all(|((a, b), d)| a == b || spread(d));
            if !fits || to.offset.as_const() != next.checked_mul(step) {
                return None;
            }
            let mut from = copy.from.reshape(&own)?;
            from.root = Value::from_u32(0);
            parts.push((copy.parameter.clone(), from));
            next = next.checked_add(extent)?;
        }
        (next == all).then_some(parts)
    }

    /// All of one layer as a view of a root.
    pub(super) fn window(&self, root: Value, elem: Elem) -> View {
        let shape = self.shape().to_vec();
        View { root, elem, offset: Dim::zero(), dynamic: Vec::new(), strides: row_major(&shape), shape }
    }

    /// The strides of the layer axes.
    pub(super) fn layer_strides(&self) -> &[Dim] {
        self.whole.strides.get(..self.counts.len()).unwrap_or_default()
    }

    /// Its size in bytes.
    pub(super) fn bytes(&self) -> Option<u64> {
        let size = i64::try_from(self.whole.elem.size()).ok()?;
        let bytes = self.whole.shape.iter().try_fold(size, |bytes, n| bytes.checked_mul(n.as_const()?))?;
        u64::try_from(bytes).ok()
    }
}

impl PlacedJoin {
    /// Adds the copies to the preparing plan.
    ///
    /// # Errors
    /// An undeclared parameter, which is a bug in attnc.
    pub(super) fn copy(
        &self,
        known: &[Joined],
        params: &[ParamDecl],
        old: &[Kernel],
        kernels: &mut Kernels,
        b: &mut PlanBuilder,
    ) -> Result<(), String> {
        let joined = known.get(self.number).ok_or("a part of the packed area that is not known")?;
        for copy in &joined.copies {
            b.at(copy.loc);
            let kernel = old.iter().find(|k| k.name == copy.kernel).ok_or("a copy without its kernel")?;
            let kernel = kernels.keep(kernel);
            let area = Area {
                offset: self.offset,
                whole: joined.shape().to_vec(),
                start: copy.to.offset.clone(),
                part: View { dynamic: Vec::new(), ..copy.to.clone() },
            };
            let sources = std::slice::from_ref(&copy.from);
            launch_for_each(b, params, (&copy.parameter, &joined.counts), &kernel, sources, vec![area])?;
        }
        Ok(())
    }
}
