//! What holds of plans: launches, slots, taps and parameters refer to what is there.

use super::Sink;
use crate::tile::text::At;
use crate::tile::{BufferType, Module, Op, Plan, Type};

/// Checks a plan whose body is in order.
pub(super) fn check(module: &Module, plan: &Plan, sink: &mut Sink) {
    for i in plan.body.insts() {
        let data = plan.body.inst(i);
        let mut error = |message: String| sink.error(At::Inst(i), message);
        match &data.op {
            Op::Launch { kernel } => {
                let Some(k) = module.kernels.iter().find(|k| k.name == *kernel) else {
                    error(format!("launches @{kernel}, which is no kernel of the module"));
                    continue;
                };
                if k.params.len() != data.operands.len() {
                    error(format!("@{kernel} takes {} operands, not {}", k.params.len(), data.operands.len()));
                    continue;
                }
                for (n, (p, v)) in k.params.iter().zip(&data.operands).enumerate() {
                    let (wanted, given) = (k.body.ty(p.value), plan.body.ty(*v));
                    if wanted != given {
                        error(format!("operand {n} of @{kernel} is {given}, and the kernel takes {wanted}"));
                    }
                }
                for s in k.symbols.iter().filter(|s| !plan.symbols.contains(s)) {
                    error(format!("@{kernel} uses the dimension {s}, which the plan has not"));
                }
            }
            Op::Slot(n) if *n as usize >= plan.slots.len() => error(format!("the plan has no slot {n}")),
            Op::Tap { name } if !plan.taps.contains(name) => error(format!("the plan has no tap \"{name}\"")),
            Op::Param { name } => match module.params.iter().find(|p| p.name == *name) {
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
            _ => {}
        }
    }
    for s in &plan.slots {
        for name in s.bytes.symbols() {
            if !plan.symbols.iter().any(|t| **t == *name) {
                sink.error(At::Head, format!("the dimension {name} is none of the symbols"));
            }
        }
    }
}
