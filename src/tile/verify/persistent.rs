//! Checks of GPU kernels that launch others: a single launch that replaces many, with grid barriers
//! between them.
//!
//! Its blocks all execute the same control flow, indices and scalars. Only the points of the
//! launched kernels are distributed among them. So that all blocks reach the same barriers, nothing
//! here may depend on the block: the grid says how many blocks have work, and its index is not
//! used. Missing barriers between dependent launches are not detected, as races are not; the PTX
//! simulator reports them.

use super::Sink;
use super::plan;
use crate::tile::text::ErrorLocation;
use crate::tile::{GpuArch, GpuOp, Kernel, Module, Op, PlanOp, State, Type};

/// Rule 30.
pub(super) fn check(module: &Module, k: &Kernel, (arch, warps): (GpuArch, u32), sink: &mut Sink) {
    let body = &k.body;
    super::gpu::block_of_runs(warps, sink);
    let index = match k.grid.as_slice() {
        [axis] if axis.step == 1 => Some(axis.value),
        _ => {
            sink.error(ErrorLocation::Head, "the grid of a kernel that launches others is one axis in steps of 1");
            None
        }
    };
    for b in &body.layout {
        if body.block(*b).args.iter().any(|v| *body.ty(*v) != Type::Index) {
            sink.error(ErrorLocation::Block(*b), "blocks of a kernel that launches others take indices");
        }
        if body.block(*b).terminator.values().iter().any(|v| Some(*v) == index) {
            sink.error(
                ErrorLocation::Terminator(*b),
                "which block this is must not matter in a kernel that launches others",
            );
        }
    }
    for (_, i, data) in body.insts() {
        let mut error = |message: String| sink.error(ErrorLocation::Inst(i), message);
        if data.operands.iter().any(|v| Some(*v) == index) {
            error("which block this is must not matter in a kernel that launches others".to_string());
        }
        match &data.op {
            Op::Plan(PlanOp::Launch { kernel }) => {
                let has_dim = |s: &str| k.symbols.iter().any(|own| own == s);
                plan::launch(module, body, &k.params, has_dim, (kernel, &data.operands))
                    .into_iter()
                    .for_each(&mut error);
                let Some(launched) = module.kernels.iter().find(|k| k.name == *kernel) else { continue };
                let fits = match launched.state {
                    State::Gpu { arch: own, warps: own_warps } => own == arch && own_warps <= warps,
                    State::Unscheduled | State::Cpu(_) => false,
                };
                let counts = launched.body.insts().any(|(_, _, d)| d.op == Op::Gpu(GpuOp::Blocks));
                if counts {
                    error(format!("@{kernel} divides its points among blocks itself"));
                }
                if !fits || !launched.works_in_runs() {
                    error(format!("@{kernel} does not work in runs on {} by at most {warps} warps", arch.name()));
                }
                if launched.scratch > k.scratch {
                    error(format!("@{kernel} needs {} bytes of scratch; there are {}", launched.scratch, k.scratch));
                }
            }
            op if op.stands_beside_launches() => {
                if data.result.is_some_and(|v| body.ty(v).any_tile().is_some()) {
                    error(format!("{}: a kernel that launches others has no tiles", data.op.info().name));
                }
            }
            _ => {
                error(format!("{}: does not stand in a kernel that launches others", data.op.info().name));
            }
        }
    }
}
