//! Checks of plans: launches, slots, taps and parameters refer to existing declarations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Sink;
use crate::interface::param_named;
use crate::shape::Dim;
use crate::tile::alignment::{begins_at_multiple, needed};
use crate::tile::fits::is_computable;
use crate::tile::text::{ErrorLocation, Owner};
use crate::tile::{
    Block, Body, BufferType, Module, Op, Param, ParamMode, Plan, PlanOp, PlanVariant, TapPart, Type, Value,
};

/// Maximum size of packed weights.
const MAX_PACKED: u64 = 1 << 48;

/// Checks a plan whose body is well formed.
#[warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]
pub(super) fn check(module: &Module, plan: &Plan, sink: &mut Sink) {
    for (_, i, data) in plan.body.insts() {
        let mut error = |message: String| sink.error(ErrorLocation::Inst(i), message);
        match &data.op {
            Op::Plan(PlanOp::Launch { kernel }) => {
                for message in launch(module, &plan.body, &[], |s| plan.has_dim(s), (kernel, &data.operands)) {
                    error(message);
                }
                let params = module.kernels.iter().find(|k| k.name == *kernel).map_or(&[][..], |k| &k.params);
                for (n, (p, v)) in params.iter().zip(&data.operands).enumerate() {
                    let prepares = plan.variant == PlanVariant::Prepare;
                    if is_packed(plan, *v) && (p.mode != ParamMode::In) != prepares {
                        let rule = if prepares { "written here, and read elsewhere" } else { "read here alone" };
                        error(format!("operand {n} of @{kernel} is in the packed area, which is {rule}"));
                    }
                }
            }
            Op::Plan(PlanOp::Packed { offset }) => {
                let ty = data.result.and_then(|v| plan.body.ty(v).buffer());
                let bytes = ty.and_then(span);
                match bytes.map(|bytes| offset.saturating_add(bytes)) {
                    None => error("a packed buffer has extents and strides that are known, none below 0".to_string()),
                    Some(end) if end > module.packed => {
                        error(format!("ends at byte {end} of {} bytes of the packed area", module.packed));
                    }
                    Some(_) => {}
                }
                if offset % 64 != 0 {
                    error("a packed buffer is aligned to 64 bytes".to_string());
                }
            }
            Op::Plan(PlanOp::Arg(_) | PlanOp::Out(_) | PlanOp::Tap { .. } | PlanOp::Slot(_) | PlanOp::State { .. })
                if plan.variant == PlanVariant::Prepare =>
            {
                error(format!("{}: does not stand in a plan that prepares", data.op.info().name));
            }
            Op::Plan(PlanOp::Slot(n)) if *n as usize >= plan.slots.len() => error(format!("the plan has no slot {n}")),
            Op::Plan(PlanOp::Tap { name }) if !plan.taps.iter().any(|tap| tap == TapPart::read(name).0) => {
                error(format!("the plan has no tap \"{name}\""))
            }
            Op::Plan(PlanOp::State { name }) => match module.states.iter().find(|s| s.name == *name) {
                None => error(format!("the module has no state \"{name}\"")),
                Some(s) => {
                    let (elem, shape) = (s.ty.elem, s.ty.shape.clone());
                    let whole = BufferType { elem, strides: crate::tile::row_major(&shape), shape };
                    if data.result.and_then(|v| plan.body.ty(v).buffer()) != Some(&whole) {
                        error(format!("the state is {whole}"));
                    }
                }
            },
            Op::Plan(PlanOp::Param { name }) => match param_named(&module.params, name) {
                None => error(format!("the module has no parameter \"{name}\"")),
                Some(p) => {
                    if p.counts.len() != data.operands.len() {
                        error(format!("the parameter \"{name}\" takes {} indices", p.counts.len()));
                    }
                    if let Some(Type::Buffer(b)) = data.result.map(|v| plan.body.ty(v)) {
                        let whole = BufferType {
                            elem: p.ty.elem,
                            shape: p.ty.shape.clone(),
                            strides: crate::tile::row_major(&p.ty.shape),
                        };
                        if *b != whole {
                            error(format!("the parameter is {whole}"));
                        }
                    }
                }
            },
            // Operations of kernels were rejected before; the others need no further checks.
            Op::Const(_)
            | Op::DimValue(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast
            | Op::Narrow { .. }
            | Op::LoadScalar
            | Op::CheckIndex { .. }
            | Op::Length { .. }
            | Op::Load { .. }
            | Op::Store { .. }
            | Op::Full
            | Op::Copy
            | Op::Iota { .. }
            | Op::Reduce { .. }
            | Op::Element
            | Op::Transpose
            | Op::LoadScaled { .. }
            | Op::LoadPairs
            | Op::PairRows
            | Op::Dot { .. }
            | Op::Run { .. }
            | Op::Window { .. }
            | Op::Gpu(_)
            | Op::Plan(PlanOp::Arg(_) | PlanOp::Out(_) | PlanOp::Tap { .. } | PlanOp::Slot(_) | PlanOp::View { .. }) => {
            }
        }
    }
    lengths(module, plan, sink);
    if plan.variant == PlanVariant::Prepare
        && !(plan.symbols.is_empty()
            && plan.taps.is_empty()
            && plan.slots.is_empty()
            && plan.lengths().next().is_none())
    {
        sink.error(ErrorLocation::Head, "a plan that prepares has no dimensions, taps or slots");
    }
    for s in &plan.slots {
        if !is_computable(&s.bytes) {
            sink.error(ErrorLocation::Head, format!("{} is computed from numbers beyond 64 bits", s.bytes));
        }
        for name in s.bytes.symbols() {
            if !plan.symbols.iter().any(|t| **t == *name) {
                sink.error(ErrorLocation::Head, format!("the dimension {name} is not one of the symbols"));
            }
        }
    }
}

/// Rule 21: does a launch pass what a kernel requires? `params` are the parameters of the launching
/// kernel, if there is one.
pub(super) fn launch(
    module: &Module,
    body: &Body,
    params: &[Param],
    has_dim: impl Fn(&str) -> bool,
    (kernel, operands): (&str, &[Value]),
) -> Vec<String> {
    let Some(k) = module.kernels.iter().find(|k| k.name == *kernel) else {
        return vec![format!("launches @{kernel}, which is not a kernel of the module")];
    };
    if k.params.len() != operands.len() {
        return vec![format!("@{kernel} takes {} operands, not {}", k.params.len(), operands.len())];
    }
    let mut errors = Vec::new();
    for (n, (p, v)) in k.params.iter().zip(operands).enumerate() {
        let (wanted, given) = (k.body.ty(p.value), body.ty(*v));
        if wanted != given {
            errors.push(format!("operand {n} of @{kernel} is {given}, and the kernel takes {wanted}"));
        }
        let bytes = needed(k, p.value);
        if wanted.buffer().is_some() && !begins_at_multiple(body, params, *v, bytes) {
            let what = "begins at a multiple of";
            errors.push(format!("operand {n} of @{kernel} {what} {bytes} bytes, which is not certain here"));
        }
    }
    let missing = k.symbols.iter().filter(|s| !has_dim(s));
    errors.extend(missing.map(|s| format!("@{kernel} uses the dimension {s}, which is not a symbol here")));
    errors
}

/// Rule 28: where dimensions are bound.
fn lengths(module: &Module, plan: &Plan, sink: &mut Sink) {
    if plan.lengths().next().is_none() {
        return;
    }
    let body = &plan.body;
    let cfg = body.cfg();
    let mut known: BTreeMap<&str, (Block, usize)> = BTreeMap::new();
    for b in &body.layout {
        for (at, i) in body.block(*b).insts.iter().enumerate() {
            let Op::Length { name, most } = &body.inst(*i).op else { continue };
            if plan.symbols.iter().any(|s| s == name) || known.insert(name, (*b, at)).is_some() {
                sink.error(ErrorLocation::Inst(*i), format!("the dimension {name} has a value already"));
            }
            if most.symbols().iter().any(|s| !plan.symbols.iter().any(|own| **own == **s)) {
                sink.error(ErrorLocation::Inst(*i), format!("{most} is not known on entry"));
            }
        }
    }
    for b in body.reverse_postorder() {
        for (at, i) in body.block(b).insts.iter().enumerate() {
            let data = body.inst(*i);
            let mut names: BTreeSet<Arc<str>> = data.op.dims().into_iter().flat_map(Dim::symbols).collect();
            if let Some(ty) = data.result.and_then(|v| body.ty(v).buffer()) {
                names.extend(ty.shape.iter().chain(&ty.strides).flat_map(Dim::symbols));
            }
            if let Op::Plan(PlanOp::Launch { kernel }) = &data.op {
                let of = module.kernels.iter().find(|k| k.name == *kernel);
                names.extend(of.into_iter().flat_map(|k| &k.symbols).map(|s| Arc::from(s.as_str())));
            }
            for name in names {
                let Some((block, place)) = known.get(&*name) else { continue };
                let is_known = if *block == b { *place < at } else { cfg.dominates(*block, b) };
                if !is_known {
                    sink.error(ErrorLocation::Inst(*i), format!("the dimension {name} has no value here"));
                }
            }
        }
    }
}

/// Rule 25: the packed area is as large as its contents.
pub(super) fn packed_area(module: &Module, sink: &mut Sink) {
    let ends = module.plans.iter().flat_map(|p| {
        p.body.insts().filter_map(|(_, _, d)| {
            let Op::Plan(PlanOp::Packed { offset }) = d.op else { return None };
            let ty = d.result.and_then(|v| p.body.ty(v).buffer());
            offset.checked_add(ty.and_then(span)?)
        })
    });
    let end = ends.max().unwrap_or(0);
    if module.packed > end.checked_next_multiple_of(64).unwrap_or(u64::MAX) || module.packed > MAX_PACKED {
        sink.owner = Owner::Module;
        sink.error(
            ErrorLocation::Head,
            format!("the packed area has {} bytes, and what lies in it ends at {end}", module.packed),
        );
    }
}

/// Is a buffer in the packed area, through views?
fn is_packed(plan: &Plan, mut v: Value) -> bool {
    // Each step goes to an earlier instruction of a well-formed body.
    while let Some(d) = plan.body.def_inst(v) {
        match (&d.op, d.operands.first()) {
            (Op::Plan(PlanOp::Packed { .. }), _) => return true,
            (Op::Plan(PlanOp::View { .. }), Some(base)) => v = *base,
            _ => return false,
        }
    }
    false
}

/// Bytes from a buffer's first element to the end of its last, if all is constant.
fn span(b: &BufferType) -> Option<u64> {
    let mut last = 0i64;
    for (d, s) in b.shape.iter().zip(&b.strides) {
        let (n, s) = (d.as_const()?, s.as_const().filter(|s| *s >= 0)?);
        if n == 0 {
            return Some(0);
        }
        last = last.checked_add((n - 1).checked_mul(s)?)?;
    }
    u64::try_from(last).ok()?.checked_add(1)?.checked_mul(b.elem.size())
}
