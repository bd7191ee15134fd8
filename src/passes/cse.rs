//! cse: common subexpression elimination: merges operations that compute the same value.
//!
//! ```text
//! func @f(%0 "x": f32[S], %1 "y": f32[S], %2 "c": bool[]) -> (f32[S]) {
//! ^bb0:
//!   %3 = mul %0, %1                       : f32[S]
//!   %4 = exp %3                           : f32[S]
//!   br_if %2, ^bb1, ^bb2(%4)
//! ^bb1:
//!   %5 = mul %1, %0                       : f32[S]
//!   %6 = add %5, %4                       : f32[S]
//!   br ^bb2(%6)
//! ^bb2(%7: f32[S]):
//!   %8 = exp %3                           : f32[S]
//!   %9 = sub %7, %8                       : f32[S]
//!   return %9
//! }
//! ->
//! func @f(%0 "x": f32[S], %1 "y": f32[S], %2 "c": bool[]) -> (f32[S]) {
//! ^bb0:
//!   %3 = mul %0, %1                       : f32[S]
//!   %4 = exp %3                           : f32[S]
//!   br_if %2, ^bb1, ^bb2(%4)
//! ^bb1:
//!   %5 = add %3, %4                       : f32[S]
//!   br ^bb2(%5)
//! ^bb2(%6: f32[S]):
//!   %7 = sub %6, %4                       : f32[S]
//!   return %7
//! }
//! ```
//!
//! # Conditions
//!
//! Two instructions are equal if operation, attributes, operands and type are; the operands of a
//! commutative operation in either order. The earlier one is in a block that dominates the later
//! one's (or before it in the same block). Operations without an effect depend on nothing else:
//! parameters do not change during a call. An operation that only taps need is merged only with
//! other such operations: calls that do not request the tap do not compute it. It is exact.
//!
//! # Limits
//!
//! An expression computed on both branches is not moved before them (no partial redundancy
//! elimination). Taps stay, each with its own path. Fused regions are compared as a whole.
//! Constants are merged too, which the textual IR does not show if they are printed inline.

use super::separate_taps::apart;
use super::{Changed, Context};
use crate::ir::Function;
use crate::ssa;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let needed = apart(f);
    let merged = ssa::merge_common(&mut **f, |_, _, result| {
        Some(u8::from(needed.as_ref().is_some_and(|needed| !needed[result])))
    });
    ctx.count("instructions merged", merged);
    Changed::from(merged > 0)
}
