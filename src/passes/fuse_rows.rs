//! fuse-rows: fuses a norm, or a softmax with the operations around it, into one kernel that reads
//! each row once.
//!
//! ```text
//! func @f(%0 "x": f32[S, 768], %1 "weight": f32[768]) -> (f32[S, 768]) {
//! ^bb0:
//!   %2 = mul %0, %0                       : f32[S, 768]
//!   %3 = reduce_mean %2, axes=[1], keep=true : f32[S, 1]
//!   %4 = add %3, 1e-6                     : f32[S, 1]
//!   %5 = rsqrt %4                         : f32[S, 1]
//!   %6 = mul %0, %5                       : f32[S, 768]
//!   %7 = mul %6, %1                       : f32[S, 768]
//!   return %7
//! }
//! ->
//! func @f(%0 "x": f32[S, 768], %1 "weight": f32[768]) -> (f32[S, 768]) {
//! ^bb0:
//!   %2 = fused rows(%3 = %0, %4 = %1)     : f32[S, 768] {
//!     %5 = mul %3, %3                     : f32[S, 768]
//!     %6 = reduce_mean %5, axes=[1], keep=true : f32[S, 1]
//!     %7 = add %6, 1e-6                   : f32[S, 1]
//!     %8 = rsqrt %7                       : f32[S, 1]
//!     %9 = mul %3, %8                     : f32[S, 768]
//!     %10 = mul %9, %4                    : f32[S, 768]
//!     yield %10
//!   }
//!   return %2
//! }
//! ```
//!
//! # Conditions
//!
//! * `axis`: reductions and softmaxes are over the last axis alone, with the axis kept
//!   (`canonicalise-reduce`).
//! * `shape`: all reduce rows of the same shape `[.., N]`; elementwise operations are on `[.., N]`,
//!   or on `[.., 1]`, one number per row. Smaller values stay outside and are broadcast as
//!   operands, except their casts, which cost nothing at a load.
//! * `uses`: one result leaves the region; all others are used only inside.
//! * All are in one block; at most 48 operations and 16 operands (`size`).
//!
//! It is exact: the operations are the same, and a reduction sums its row in the same order. A
//! kernel that centres rows by a mean that it computes itself is more accurate than two kernels,
//! between which the mean is rounded; `lowering::tile::means` states the bounds of both.
//!
//! # Limits
//!
//! Only constants and counters are duplicated. A region never contains a matmul. A lone softmax
//! stays as it is.

use super::outline::{Index, Scene, first_loc, names, outline_all, rows_of};
use super::rewrite::remove_unused;
use super::{Changed, Condition, Context};
use crate::ir::{Function, FusionKind, Inst, Op};
use crate::scalar::ReduceKind;
use crate::shape::Dim;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut fused = 0;
    let mut index = Index::new(f);
    for block in f.layout.clone() {
        fused += outline_all(f, &mut index, block, FusionKind::Rows, rows, |f, members| {
            ctx.done(f, first_loc(f, members), format!("one kernel: {}", names(f, members)));
        });
    }
    for (_, i, d) in f.insts().collect::<Vec<_>>() {
        if let Some(text) = other_axis(f, i) {
            ctx.missed(f, d.loc, Condition::Axis, text, Vec::new());
        }
    }
    if fused > 0 {
        // Constants and counters that were copied into the regions.
        remove_unused(f);
    }
    ctx.count("regions made", fused);
    Changed::from(fused > 0)
}

/// The shape of a region's rows: its leading dimensions, and the row length once a member
/// determines it.
struct Space {
    lead: Vec<Dim>,
    length: Option<Dim>,
}

impl Space {
    /// Is this the shape of whole rows, or of one number per row? The first whole row sets the
    /// length.
    fn admits(&mut self, shape: &[Dim]) -> bool {
        let Some((last, lead)) = shape.split_last() else { return false };
        if lead != self.lead.as_slice() {
            return false;
        }
        last.as_const() == Some(1) || self.length.as_ref() == Some(last)
    }

    /// The shape of whole rows, once their length is known.
    fn whole(&self) -> Option<Vec<Dim>> {
        let length = self.length.as_ref()?;
        Some(self.lead.iter().chain([length]).cloned().collect())
    }

    fn learn(&mut self, length: &Dim) -> bool {
        match &self.length {
            Some(n) => n == length,
            None => {
                self.length = Some(length.clone());
                true
            }
        }
    }
}

/// The members of the region whose last instruction is `root`; only `root` if there is no region.
fn rows(scene: &Scene, root: Inst) -> Vec<Inst> {
    let Some((lead, last)) = scene.result(root).and_then(rows_of) else { return Vec::new() };
    let length = (last.as_const() != Some(1)).then(|| last.clone());
    let mut space = Space { lead: lead.to_vec(), length };
    if !joins(scene, root, &mut space) {
        return Vec::new();
    }
    let members = scene.grow_up(root, |scene, i| joins(scene, i, &mut space));
    let reduces = members.iter().any(|i| !scene.is_elementwise(*i));
    if reduces && members.len() > 1 { members } else { Vec::new() }
}

/// Can an instruction be part of the region?
fn joins(scene: &Scene, i: Inst, space: &mut Space) -> bool {
    let f = scene.f;
    let d = f.inst(i);
    let operand = d.operands.first().and_then(|v| f.tensor(*v));
    match (&d.op, operand) {
        (Op::Softmax { axis } | Op::LogSoftmax { axis }, Some(x)) => {
            let Some((lead, n)) = rows_of(x) else { return false };
            axis + 1 == x.rank() && lead == space.lead.as_slice() && space.learn(n)
        }
        (Op::Reduce { kind, axes, keep: true }, Some(x)) => {
            let Some((lead, n)) = rows_of(x) else { return false };
            let last_axis = axes.as_slice() == [x.rank() - 1];
            last_axis && *kind != ReduceKind::ArgMax && lead == space.lead.as_slice() && space.learn(n)
        }
        _ if scene.is_elementwise(i) && scene.result(i).is_some_and(|t| space.admits(&t.shape)) => true,
        _ => space.whole().is_some_and(|shape| scene.is_cast_to(i, &shape)),
    }
}

/// The reason, for a remark, if the axis keeps a softmax or reduction out of a region.
fn other_axis(f: &Function, i: Inst) -> Option<String> {
    let d = f.inst(i);
    let rank = d.operands.first().and_then(|v| f.tensor(*v))?.rank();
    let (what, axes) = match &d.op {
        Op::Softmax { axis } => ("softmax", vec![*axis]),
        Op::LogSoftmax { axis } => ("log_softmax", vec![*axis]),
        Op::Reduce { axes, .. } => (d.op.info().name, axes.clone()),
        _ => return None,
    };
    (axes != [rank.checked_sub(1)?])
        .then(|| format!("`{what}` is over {axes:?} of {rank} axes, not over only the last"))
}
