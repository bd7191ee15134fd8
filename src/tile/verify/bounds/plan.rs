//! Proves that the buffers of a plan are inside the memory they refer to, and that only writable
//! memory is written.
//!
//! In: a plan whose structure and types are checked, and facts about dimensions from its entry
//! point; or a kernel that launches others, which does the same with its parameters. Out: an error
//! for each buffer that is not proved to be inside of its argument, result, parameter, tap, slot or
//! packed area, for each slot whose size may be negative, for each launch that writes read-only
//! memory, and for each index that may be out of range. An empty buffer has no memory, so a buffer
//! is checked assuming that each extent is at least 1.

use cranelift_entity::SecondaryMap;

use super::PlanFacts;
use super::flow::Flow;
use super::kernel::{Room, stays_in, within};
use crate::interface::param_named;
use crate::shape::prove::{AtomPoly as Poly, product};
use crate::shape::{Dim, Sizes};
use crate::tile::text::ErrorLocation;
use crate::tile::verify::Sink;
use crate::tile::{
    Block, BufferType, Inst, InstData, Kernel, Module, Op, ParamMode, Plan, PlanOp, PlanVariant, TapPart, Type, Value,
    row_major,
};

/// The memory that a buffer is part of.
#[derive(Clone, Debug)]
struct SubBuffer {
    /// Byte offset of its first element in that memory.
    start: Poly,
    /// Size of that memory in bytes.
    bytes: Poly,
    /// Non-negative expressions if that many bytes exist.
    there: Vec<Poly>,
    /// Kind of memory.
    whole: Whole,
    /// The bytes after `start`, if that is a dimension.
    room: Option<Dim>,
    /// Does the type exceed the memory? Then kernels must be proved to stay in `room`.
    beyond: bool,
}

/// Kinds of memory in plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Argument,
    Parameter,
    Packed,
    /// A result, a slot, a state.
    Writable,
    /// A tap, or its flags: it exists in calls that request it; launches that use it are skipped in
    /// others.
    Tap,
    /// The requests of a tap.
    Asked,
}

/// Checks a plan under its facts.
///
/// `known` are facts that hold everywhere, `in_kernels` additional ones in kernels that mention a
/// dimension.
pub(super) fn check<'a>(
    module: &'a Module,
    plan: &'a Plan,
    known: &'a [Dim],
    in_kernels: &'a PlanFacts,
    sink: &mut Sink,
) {
    let symbols: Vec<String> =
        plan.symbols.iter().cloned().chain(plan.lengths().map(|(name, _)| name.to_string())).collect();
    let flow = Flow::new(&plan.body, &symbols, known, in_kernels.sizes.clone(), plan.slots.iter().map(|s| &s.bytes));
    let (stays, places) = (Vec::new(), SecondaryMap::new());
    let mut c = Checker { in_kernels, stays, module, plan: Some(plan), flow, sink, places };
    let entry = plan.body.entry();
    for (n, s) in plan.slots.iter().enumerate() {
        let bytes = c.flow.prover.dim(&s.bytes);
        if !c.flow.proves(bytes, entry, &[]) {
            c.sink.error(ErrorLocation::Head, format!("the {} bytes of slot {n} may be negative", s.bytes));
        }
    }
    c.walk();
}

/// Checks a kernel that launches others under one set of facts: its parameters are whole buffers,
/// as declared.
pub(super) fn persistent<'a>(
    module: &'a Module,
    k: &'a Kernel,
    in_kernels: &'a PlanFacts,
    sizes: &Sizes,
    sink: &mut Sink,
) {
    let types = k.params.iter().filter_map(|p| k.body.ty(p.value).buffer());
    let dims = types.flat_map(|ty| ty.shape.iter().chain(&ty.strides)).chain(k.grid.iter().map(|g| &g.extent));
    let flow = Flow::new(&k.body, &k.symbols, &in_kernels.forms, sizes.clone(), dims);
    let (stays, places) = (Vec::new(), SecondaryMap::new());
    let mut c = Checker { in_kernels, stays, module, plan: None, flow, sink, places };
    let entry = k.body.entry();
    for g in &k.grid {
        let extent = c.flow.prover.dim(&g.extent);
        if !c.flow.proves(extent, entry, &[]) {
            c.sink.error(ErrorLocation::Head, format!("the extent {} of the grid may be negative", g.extent));
        }
    }
    for p in &k.params {
        match k.body.ty(p.value) {
            Type::Buffer(_) => {
                // Views of it are checked to stay within its axes, wherever it is in memory.
                let whole = if p.mode == ParamMode::In { Whole::Argument } else { Whole::Writable };
                let (start, (bytes, there)) = (Poly::int(0), c.bytes(k.body.ty(p.value), entry));
                c.places[p.value] = Some(SubBuffer { start, bytes, there, whole, room: None, beyond: false });
            }
            _ => {
                let form = c.flow.anything();
                c.flow.set(p.value, form);
            }
        }
    }
    c.walk();
}

struct Checker<'a, 's> {
    in_kernels: &'a PlanFacts,
    /// Results for kernels already examined: the kernel, its parameter, the number of bytes.
    stays: Vec<(&'a str, usize, Dim)>,
    module: &'a Module,
    /// `None` for a kernel that launches others.
    plan: Option<&'a Plan>,
    flow: Flow<'a>,
    sink: &'s mut Sink,
    places: SecondaryMap<Value, Option<SubBuffer>>,
}

impl<'a> Checker<'a, '_> {
    fn walk(&mut self) {
        let body = self.flow.body;
        for b in body.reverse_postorder() {
            self.flow.enter(b);
            self.flow.foresee(b);
            for i in &body.block(b).insts {
                self.flow.instruction(*i, b);
                self.instruction(*i, b);
            }
            self.flow.leave(b);
        }
    }

    /// Bytes from the first element of a buffer to the end of its last one, and non-negative
    /// expressions if it is not empty; 0 bytes if its strides are not known to be non-negative.
    fn bytes(&mut self, ty: &Type, b: Block) -> (Poly, Vec<Poly>) {
        let none = (Poly::int(0), Vec::new());
        let Type::Buffer(ty) = ty else { return none };
        let size = i128::from(ty.elem.size());
        // In row-major order this is the product of the extents, even if one of these is 0.
        if ty.strides == row_major(&ty.shape) {
            let bytes = self.flow.prover.dim(&Dim::product(&ty.shape)).and_then(|n| n.scale(size));
            return (bytes.unwrap_or(Poly::int(0)), Vec::new());
        }
        let (mut end, mut there) = (Some(Poly::int(size)), Vec::new());
        for (extent, stride) in ty.shape.iter().zip(&ty.strides) {
            let steps = self.flow.prover.dim(extent).and_then(|n| n.sub(&Poly::int(1)));
            let stride = self.flow.prover.dim(stride);
            if !self.flow.proves(stride.clone(), b, &[]) {
                return none;
            }
            let way = steps.as_ref().and_then(|n| product(n, stride.as_ref()?)).and_then(|w| w.scale(size));
            end = end.and_then(|e| e.add(&way?));
            there.extend(steps);
        }
        end.map_or(none, |end| (end, there))
    }

    fn instruction(&mut self, i: Inst, b: Block) {
        let body = self.flow.body;
        let data = body.inst(i);
        match &data.op {
            Op::Plan(PlanOp::Launch { kernel }) => self.launch(kernel, data, i),
            Op::Length { name, most } => {
                let value = data.operands.first().map(|v| self.flow.form(*v));
                let limit = self.flow.prover.dim(most);
                let rest = value.as_ref().and_then(|v| limit.as_ref()?.sub(v));
                if !self.flow.proves(value, b, &[]) || !self.flow.proves(rest, b, &[]) {
                    self.sink.error(ErrorLocation::Inst(i), format!("length: {name} may be outside of 0 to {most}"));
                }
                let left = self.flow.prover.dim(&most.sub(&Dim::symbol(name)));
                self.flow.assume(left, b);
            }
            Op::LoadScalar => {
                if let Some((buffer, indices)) = data.operands.split_first() {
                    if self.places[*buffer].as_ref().is_none_or(|p| p.beyond) {
                        self.sink.error(
                            ErrorLocation::Inst(i),
                            format!("load_scalar: {buffer} may end beyond what it is part of"),
                        );
                    }
                    if self.places[*buffer].as_ref().is_some_and(|p| p.whole == Whole::Tap) {
                        let message = format!("load_scalar: {buffer} is of a tap, which a call may not ask for");
                        self.sink.error(ErrorLocation::Inst(i), message);
                    }
                    let lengths = vec![Poly::int(1); indices.len()];
                    within(&mut self.flow, self.sink, (i, b), *buffer, indices, &lengths, &[]);
                }
            }
            _ => {}
        }
        let Some(v) = data.result else { return };
        let Type::Buffer(ty) = body.ty(v) else { return };
        let Some(mut place) = self.place(data, ty, i, b) else { return };
        self.inside(&mut place, ty, v, i, b);
        self.places[v] = Some(place);
    }

    /// Start of a buffer, and the memory that it is in.
    fn place(&mut self, data: &InstData, ty: &'a BufferType, i: Inst, b: Block) -> Option<SubBuffer> {
        let size = i128::from(ty.elem.size());
        let whole = match &data.op {
            Op::Plan(PlanOp::View { offset, strides }) => {
                let (base, indices) = data.operands.split_first()?;
                let from = self.places[*base].clone()?;
                let mut elements = self.flow.prover.dim(offset);
                for (index, stride) in indices.iter().zip(strides) {
                    let index = self.flow.form(*index);
                    let stride = self.flow.prover.dim(stride);
                    let step = stride.and_then(|s| product(&index, &s));
                    elements = elements.and_then(|sum| sum.add(&step?));
                }
                let start = elements.and_then(|n| from.start.combine(1, &n, size));
                let start = start.unwrap_or_else(|| self.flow.anything());
                let moved = from.room.filter(|_| indices.is_empty());
                let room = moved.map(|r| r.sub(&offset.mul(&Dim::from(i64::try_from(size).unwrap_or(1)))));
                return Some(SubBuffer { start, room, beyond: false, ..from });
            }
            Op::Plan(PlanOp::Slot(n)) => {
                let slot = self.plan?.slots.get(usize::try_from(*n).ok()?)?;
                for extent in &ty.shape {
                    let form = self.flow.prover.dim(extent);
                    if !self.flow.proves(form, b, &[]) {
                        self.sink.error(ErrorLocation::Inst(i), format!("slot: the extent {extent} may be below 0"));
                    }
                }
                let bytes = self.flow.prover.dim(&slot.bytes).unwrap_or(Poly::int(0));
                let room = Some(slot.bytes.clone());
                let there = Vec::new();
                return Some(SubBuffer {
                    start: Poly::int(0),
                    bytes,
                    there,
                    whole: Whole::Writable,
                    room,
                    beyond: false,
                });
            }
            Op::Plan(PlanOp::Packed { offset }) => {
                let bytes = Poly::int(i128::from(self.module.packed));
                let start = Poly::int(i128::from(*offset));
                let (whole, there) = (Whole::Packed, Vec::new());
                return Some(SubBuffer { start, bytes, there, whole, room: None, beyond: false });
            }
            Op::Plan(PlanOp::Param { name }) => {
                let counts = param_named(&self.module.params, name).map(|p| p.counts.as_slice());
                for (v, count) in data.operands.iter().zip(counts.unwrap_or_default()) {
                    let index = self.flow.form(*v);
                    let rest = Poly::int(i128::from(*count) - 1).sub(&index);
                    if !self.flow.proves(Some(index), b, &[]) || !self.flow.proves(rest, b, &[]) {
                        self.sink.error(ErrorLocation::Inst(i), format!("param: index {v} may be outside of {count}"));
                    }
                }
                Whole::Parameter
            }
            Op::Plan(PlanOp::Arg(_)) => Whole::Argument,
            Op::Plan(PlanOp::Tap { name }) if TapPart::read(name).1 == TapPart::Asked => Whole::Asked,
            Op::Plan(PlanOp::Tap { .. }) => Whole::Tap,
            Op::Plan(PlanOp::Out(_) | PlanOp::State { .. }) => Whole::Writable,
            _ => return None,
        };
        // These are as large as their types say.
        if ty.strides != row_major(&ty.shape) {
            self.sink.error(ErrorLocation::Inst(i), format!("{}: the whole of it lies in order", data.op.info().name));
            return None;
        }
        let bytes = self.flow.prover.dim(&Dim::product(&ty.shape)).and_then(|n| n.scale(size));
        let bytes = bytes.unwrap_or(Poly::int(0));
        Some(SubBuffer { start: Poly::int(0), bytes, there: Vec::new(), whole, room: None, beyond: false })
    }

    /// Is a buffer inside its memory? For a view that may exceed the end of a slot, kernels are
    /// examined instead.
    fn inside(&mut self, place: &mut SubBuffer, ty: &BufferType, v: Value, i: Inst, b: Block) {
        let op = &self.flow.body.inst(i).op;
        if matches!(
            op,
            Op::Plan(
                PlanOp::Arg(_) | PlanOp::Out(_) | PlanOp::Tap { .. } | PlanOp::Param { .. } | PlanOp::State { .. }
            )
        ) {
            return;
        }
        let size = i128::from(ty.elem.size());
        let (mut low, mut high) = (Some(place.start.clone()), place.start.add(&Poly::int(size)));
        let mut present = Vec::new();
        for (extent, stride) in ty.shape.iter().zip(&ty.strides) {
            let steps = self.flow.prover.dim(extent).and_then(|n| n.sub(&Poly::int(1)));
            let stride = self.flow.prover.dim(stride);
            if stride.as_ref().and_then(Poly::as_int) != Some(0) {
                let way = steps.as_ref().and_then(|n| product(n, stride.as_ref()?));
                let way = way.and_then(|w| w.scale(size));
                if self.flow.proves(stride.clone(), b, &[]) {
                    high = high.and_then(|h| h.add(&way?));
                } else if self.flow.proves(stride.and_then(|s| s.scale(-1)), b, &[]) {
                    low = low.and_then(|l| l.add(&way?));
                } else {
                    low = None;
                }
            }
            if extent.as_const().is_none_or(|n| n < 1) {
                present.extend(steps.map(Poly::tightened));
            }
        }
        let name = op.info().name;
        if !self.flow.proves(low, b, &present) {
            self.sink.error(ErrorLocation::Inst(i), format!("{name}: {v} may begin before what it is part of"));
        }
        let rest = high.and_then(|h| place.bytes.sub(&h));
        let there = place.there.iter().all(|p| self.flow.proves(Some(p.clone()), b, &present));
        if there && self.flow.proves(rest, b, &present) {
            return;
        }
        place.beyond = true;
        if place.room.is_none() {
            self.sink.error(ErrorLocation::Inst(i), format!("{name}: {v} may end beyond what it is part of"));
        }
    }

    fn launch(&mut self, name: &str, data: &InstData, i: Inst) {
        let Some(k) = self.module.kernels.iter().find(|k| k.name == *name) else { return };
        for (n, (p, v)) in k.params.iter().zip(&data.operands).enumerate() {
            let Some(place) = &self.places[*v] else {
                if self.flow.body.ty(*v).buffer().is_some() {
                    self.sink.error(ErrorLocation::Inst(i), format!("launch: operand {n}, {v}, is nowhere"));
                }
                continue;
            };
            if let (true, Some(room)) = (place.beyond, place.room.clone()) {
                self.stays_in(k, n, &room, *v, i);
            }
            let (true, Some(place)) = (p.mode != ParamMode::In, &self.places[*v]) else { continue };
            let what = match place.whole {
                Whole::Argument => "an argument of the caller",
                Whole::Parameter => "a parameter of the model",
                Whole::Packed if self.plan.is_some_and(|p| p.variant != PlanVariant::Prepare) => "the packed area",
                Whole::Asked => "what a call asks for",
                Whole::Packed | Whole::Writable | Whole::Tap => continue,
            };
            self.sink
                .error(ErrorLocation::Inst(i), format!("launch: operand {n}, {v}, is {what}, and @{name} writes it"));
        }
    }

    /// Does a kernel stay within the available bytes of its parameter `n`?
    fn stays_in(&mut self, k: &'a Kernel, n: usize, room: &Dim, v: Value, i: Inst) {
        if self.stays.iter().any(|(name, m, bytes)| (*name, *m) == (k.name.as_str(), n) && bytes == room) {
            return;
        }
        let param = k.params.get(n).map_or(v, |p| p.value);
        let symbols = self.plan.map_or(&[][..], |plan| &plan.symbols);
        let known = Room { param, bytes: room, symbols };
        if stays_in(k, &self.in_kernels.forms, &self.in_kernels.sizes, &known) {
            self.stays.push((k.name.as_str(), n, room.clone()));
        } else {
            let message =
                format!("launch: @{} may access operand {n}, {v}, beyond the {room} bytes that it is part of", k.name);
            self.sink.error(ErrorLocation::Inst(i), message);
        }
    }
}
