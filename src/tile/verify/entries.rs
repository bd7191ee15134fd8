//! Checks of entry points: each has its plan, with the declared arguments and results.

use std::collections::BTreeSet;

use super::Sink;
use crate::interface::{EntryDecl, TapDecl};
use crate::shape::{Elem, TensorType};
use crate::tile::text::ErrorLocation;
use crate::tile::{BufferType, Module, Op, Plan, PlanOp, PlanVariant, TapPart, Type, row_major};

/// Checks the declarations of a module that has any.
pub(super) fn module(module: &Module, sink: &mut Sink) {
    let mut names = BTreeSet::new();
    for e in &module.entries {
        if e.name.is_empty() || !names.insert(&e.name) {
            sink.error(ErrorLocation::Head, format!("the entry point's name `{}` is empty or duplicate", e.name));
        }
        if !module.plans.iter().any(|p| p.name == e.name && p.variant == PlanVariant::Plain) {
            sink.error(ErrorLocation::Head, format!("the entry point @{} has no plan", e.name));
        }
        let tapped = |p: &Plan| p.name == e.name && p.variant == PlanVariant::Tapped;
        if !e.taps.is_empty() && !module.plans.iter().any(tapped) {
            sink.error(
                ErrorLocation::Head,
                format!("the entry point @{} has taps, and no plan that fills them", e.name),
            );
        }
    }
}

/// Checks a plan, whose body is well formed, against its declaration.
pub(super) fn plan(e: &EntryDecl, plan: &Plan, sink: &mut Sink) {
    let dims = e.run_time_dims();
    if plan.symbols != dims {
        sink.error(ErrorLocation::Head, format!("the entry point's dimensions are {}", dims.join(", ")));
    }
    let taps: Vec<&str> = e.taps.iter().map(|t| t.name.as_str()).collect();
    if plan.variant == PlanVariant::Tapped && plan.taps != taps {
        sink.error(ErrorLocation::Head, format!("the entry point's taps are {taps:?}"));
    }
    if plan.variant == PlanVariant::Plain && !plan.taps.is_empty() {
        sink.error(ErrorLocation::Head, "a plan that is not `tapped` has taps");
    }
    for (_, i, data) in plan.body.insts() {
        let (what, n, declared) = match data.op {
            Op::Plan(PlanOp::Arg(n)) => ("argument", n, e.args.get(n as usize).map(|a| &a.ty)),
            Op::Plan(PlanOp::Out(n)) => ("result", n, e.results.get(n as usize).map(|r| &r.ty)),
            Op::Plan(PlanOp::Tap { ref name }) => {
                let (tap, part) = TapPart::read(name);
                let tap = e.taps.iter().find(|t| t.name == tap);
                let whole = tap.map(|t| buffer(&tap_type(t, part)));
                if let (Some(whole), Some(v)) = (whole, data.result)
                    && *plan.body.ty(v) != Type::Buffer(whole.clone())
                {
                    sink.error(ErrorLocation::Inst(i), format!("the tap is {whole}"));
                }
                continue;
            }
            _ => continue,
        };
        let Some(ty) = declared else {
            sink.error(ErrorLocation::Inst(i), format!("the entry point has no {what} {n}"));
            continue;
        };
        let whole = buffer(ty);
        if data.result.is_some_and(|v| *plan.body.ty(v) != Type::Buffer(whole.clone())) {
            sink.error(ErrorLocation::Inst(i), format!("the {what} is {whole}"));
        }
    }
}

/// The type of a tap's buffer: over the arrays of layers and loops, the value, or whether it was
/// written; over the arrays of layers, whether it is requested.
fn tap_type(t: &TapDecl, part: TapPart) -> TensorType {
    match part {
        TapPart::Data => TensorType::new(t.ty.elem, [t.extents.as_slice(), &t.ty.shape].concat()),
        TapPart::Written => TensorType::new(Elem::Bool, t.extents.clone()),
        TapPart::Asked => TensorType::new(Elem::Bool, t.arrays().to_vec()),
    }
}

fn buffer(ty: &TensorType) -> BufferType {
    BufferType { elem: ty.elem, shape: ty.shape.clone(), strides: row_major(&ty.shape) }
}
