//! fuse-map: fuses a run of elementwise operations into one kernel.
//!
//! ```text
//! func @f(%0 "x": f32[S, 512], %1 "y": f32[S, 512]) -> (f32[S, 512]) {
//! ^bb0:
//!   %2 = sigmoid %0                       : f32[S, 512]
//!   %3 = mul %0, %2                       : f32[S, 512]
//!   %4 = mul %3, %1                       : f32[S, 512]
//!   return %4
//! }
//! ->
//! func @f(%0 "x": f32[S, 512], %1 "y": f32[S, 512]) -> (f32[S, 512]) {
//! ^bb0:
//!   %2 = fused map(%3 = %0, %4 = %1)      : f32[S, 512] {
//!     %5 = sigmoid %3                     : f32[S, 512]
//!     %6 = mul %3, %5                     : f32[S, 512]
//!     %7 = mul %6, %4                     : f32[S, 512]
//!     yield %7
//!   }
//!   return %2
//! }
//! ```
//!
//! # Conditions
//!
//! * The operations are elementwise, are in one block, and have results of the same shape. A
//!   smaller value that is broadcast stays outside, or it would be computed once per repetition;
//!   constants and counters (`iota`, `causal`) are copied inside.
//! * `uses`: one result leaves the region; all others are used only inside.
//! * At most 48 operations and 16 operands; the rest becomes another region.
//!
//! It is exact: the operations are the same, in the same order on each element.
//!
//! # Limits
//!
//! A single operation stays as it is, unless it uses a counter, which then is never stored. It runs
//! after the passes that find larger regions, on the operations that they leave.

use super::outline::{Index, Scene, first_loc, names, outline_all};
use super::rewrite::remove_unused;
use super::{Changed, Context};
use crate::ir::{Function, FusionKind, Inst, Op};

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut fused = 0;
    let mut index = Index::new(f);
    for block in f.layout.clone() {
        fused += outline_all(f, &mut index, block, FusionKind::Map, map, |f, members| {
            ctx.done(f, first_loc(f, members), format!("one kernel: {}", names(f, members)));
        });
    }
    if fused > 0 {
        // Constants and counters that were copied into the regions.
        remove_unused(f);
    }
    ctx.count("regions made", fused);
    Changed::from(fused > 0)
}

fn map(scene: &Scene, root: Inst) -> Vec<Inst> {
    let f = scene.f;
    let Some(shape) = scene.result(root).map(|t| t.shape.clone()) else { return Vec::new() };
    if !scene.is_elementwise(root) {
        return Vec::new();
    }
    let members = scene.grow_up(root, |scene, i| {
        scene.is_elementwise(i) && scene.result(i).is_some_and(|t| t.shape == shape) || scene.is_cast_to(i, &shape)
    });
    let counts = members.iter().flat_map(|i| &f.inst(*i).operands).any(|v| {
        f.definition(*v).is_some_and(|(_, d)| matches!(d.op, Op::Iota { .. } | Op::Causal) && f.tensor(*v).is_some())
    });
    if members.len() > 1 || counts { members } else { Vec::new() }
}
