//! Constant propagation through small integer buffers of a plan, such as the counters of a session,
//! so that cache lengths are known.
//!
//! In: the states with their values; the launches of a plan, one after another. Out: known bytes.
//! Small integer kernels are executed; the outputs of other kernels become unknown. It must not
//! know the control flow of plans.

use std::collections::BTreeMap;

use super::dim;
use super::kernel::AbstractValue;
use crate::interp::Limits;
use crate::shape::{Dim, Elem, TensorType};
use crate::tile::interp::{Argument, Element, run_small_kernel};
use crate::tile::{BufferType, Kernel, Op, ParamMode, Plan, PlanOp, Type};

/// Limit on the bytes accessed by a launch that is executed: lengths depend on a few integers.
const MAX_EXECUTED_BYTES: i64 = 1024;

/// Is a state of this type a counter: a few integers, of constant number?
pub fn is_count(ty: &TensorType) -> bool {
    let (size, count) = (i64::try_from(ty.elem.size()).unwrap_or(i64::MAX), Dim::product(&ty.shape).as_const());
    ty.elem.is_int() && count.and_then(|n| n.checked_mul(size)).is_some_and(|bytes| bytes <= MAX_EXECUTED_BYTES)
}

/// Memory of a buffer in a plan: passed to the call, or its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Root {
    Arg(u32),
    Weights(String),
    Other(String),
}

impl Root {
    /// The memory that an operation refers to, identified by the operation's text and its indices.
    pub(super) fn from_op(op: &Op, indices: &[AbstractValue]) -> Root {
        let what = || format!("{op:?} {indices:?}");
        match op {
            Op::Plan(PlanOp::Arg(n)) => Root::Arg(*n),
            Op::Plan(PlanOp::Param { .. } | PlanOp::Packed { .. }) => Root::Weights(what()),
            _ => Root::Other(what()),
        }
    }
}

/// Where a buffer of a plan starts, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BufferStart {
    pub(super) root: Root,
    pub(super) element: i64,
}

/// An operand of a launch.
pub(super) enum Operand<'a> {
    Index(AbstractValue),
    Buffer(&'a BufferStart),
    Nothing,
}

/// Known bytes, by memory and offset.
#[derive(Default)]
pub(super) struct Contents(BTreeMap<Root, BTreeMap<i64, u8>>);

impl Contents {
    /// Initial contents: states of a few integers, all elements of which are the state's given
    /// value, or 0.
    pub(super) fn begin(plan: &Plan, states: &BTreeMap<String, i64>) -> Contents {
        let mut contents = Contents::default();
        for (_, _, data) in plan.body.insts() {
            let (Op::Plan(PlanOp::State { name }), Some(ty)) =
                (&data.op, data.result.and_then(|v| plan.body.ty(v).buffer()))
            else {
                continue;
            };
            let Some(bytes) = span(ty, &BTreeMap::new()).filter(|n| *n <= MAX_EXECUTED_BYTES && ty.elem.is_int())
            else {
                continue;
            };
            let value = Element::Int(states.get(name).copied().unwrap_or(0));
            let (value, size) = value.to_bytes(ty.elem);
            let all = value.iter().take(size).copied().cycle();
            contents.0.insert(Root::from_op(&data.op, &[]), (0..bytes).zip(all).collect());
        }
        contents
    }

    /// The first element of a buffer, if it is a known integer.
    pub(super) fn first(&self, place: &BufferStart, elem: Elem) -> Option<i64> {
        let size = i64::try_from(elem.size()).ok().filter(|_| !elem.is_float())?;
        let bytes = self.bytes(place, elem, size)?;
        Some(Element::from_bytes(elem, &bytes).int())
    }

    /// `count` elements starting at a position.
    fn bytes(&self, place: &BufferStart, elem: Elem, count: i64) -> Option<Vec<u8>> {
        let known = self.0.get(&place.root)?;
        let start = place.element.checked_mul(i64::try_from(elem.size()).ok()?)?;
        (start..start.checked_add(count)?).map(|at| known.get(&at).copied()).collect()
    }

    /// Updates the contents for a launch: executes it if it writes a few integers and all its
    /// inputs are known; else its outputs become unknown.
    pub(super) fn launch(&mut self, k: &Kernel, operands: &[Operand<'_>], symbols: &BTreeMap<String, i64>) {
        let written = self.written(k, operands, symbols);
        // Memory that is not known to be disjoint may be overwritten.
        for (p, operand) in k.params.iter().zip(operands) {
            match operand {
                Operand::Buffer(place) if p.mode != ParamMode::In && written.is_none() => {
                    self.0.remove(&place.root);
                }
                Operand::Nothing if p.mode != ParamMode::In => self.0.clear(),
                _ => {}
            }
        }
        for (root, at, byte) in written.unwrap_or_default() {
            self.0.entry(root).or_default().insert(at, byte);
        }
    }

    /// The bytes that a launch writes, with their positions.
    fn written(
        &self,
        k: &Kernel,
        operands: &[Operand<'_>],
        symbols: &BTreeMap<String, i64>,
    ) -> Option<Vec<(Root, i64, u8)>> {
        let writes_floats = |p: &crate::tile::Param| {
            p.mode != ParamMode::In && k.body.ty(p.value).buffer().is_some_and(|ty| ty.elem.is_float())
        };
        if k.is_persistent() || k.params.iter().any(writes_floats) {
            return None;
        }
        let mut args = Vec::new();
        let mut left = MAX_EXECUTED_BYTES;
        for (p, operand) in k.params.iter().zip(operands) {
            args.push(match (operand, k.body.ty(p.value)) {
                (Operand::Index(AbstractValue::Number(n)), Type::Index) => Argument::Index(*n),
                (Operand::Buffer(place), Type::Buffer(ty)) => {
                    let count = span(ty, symbols)?;
                    left = left.checked_sub(count).filter(|n| *n >= 0)?;
                    Argument::Buffer(match p.mode {
                        ParamMode::Out => vec![0; usize::try_from(count).ok()?],
                        _ => self.bytes(place, ty.elem, count)?,
                    })
                }
                _ => return None,
            });
        }
        let limits = Limits { work: 1 << 16, ..Limits::default() };
        let flags = run_small_kernel(k, symbols, &mut args, limits).ok()?;
        let mut all = Vec::new();
        let mut flags = flags.into_iter();
        for ((p, operand), arg) in k.params.iter().zip(operands).zip(args) {
            let (Operand::Buffer(place), Argument::Buffer(bytes)) = (operand, arg) else { continue };
            let is_written = flags.next()?;
            let size = i64::try_from(k.body.ty(p.value).buffer()?.elem.size()).ok()?;
            let start = place.element.checked_mul(size)?;
            if p.mode != ParamMode::In {
                let bytes = (start..).zip(bytes).zip(is_written).filter(|(_, written)| *written);
                all.extend(bytes.map(|((at, byte), _)| (place.root.clone(), at, byte)));
            }
        }
        Some(all)
    }
}

/// Bytes from the first to the end of the last element of a buffer; `None` if strides are negative.
fn span(ty: &BufferType, symbols: &BTreeMap<String, i64>) -> Option<i64> {
    let mut last = 0i64;
    for (n, stride) in ty.shape.iter().zip(&ty.strides) {
        let (n, stride) = (dim(n, symbols).ok()?, dim(stride, symbols).ok()?);
        if n <= 0 {
            return Some(0);
        }
        last = last.checked_add((n - 1).checked_mul(stride).filter(|n| *n >= 0)?)?;
    }
    last.checked_add(1)?.checked_mul(i64::try_from(ty.elem.size()).ok()?)
}
