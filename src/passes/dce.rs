//! dce: dead code elimination: removes operations and block arguments that nothing needs.
//!
//! ```text
//! func @f(%0 "x": f32[S]) -> (f32[S]) {
//! ^bb0:
//!   %1 = exp %0                           : f32[S]
//!   br ^bb1(0, %0, %1)
//! ^bb1(%2: index, %3: f32[S], %4: f32[S]):
//!   %5 = lt %2, 3                         : bool[]
//!   br_if %5, ^bb2, ^bb3
//! ^bb2:
//!   %6 = add %4, %3                       : f32[S]
//!   %7 = mul %3, 0.5                      : f32[S]
//!   %8 = add %2, 1                        : index
//!   br ^bb1(%8, %7, %6)
//! ^bb3:
//!   return %3
//! }
//! ->
//! func @f(%0 "x": f32[S]) -> (f32[S]) {
//! ^bb0:
//!   br ^bb1(0, %0)
//! ^bb1(%1: index, %2: f32[S]):
//!   %3 = lt %1, 3                         : bool[]
//!   br_if %3, ^bb2, ^bb3
//! ^bb2:
//!   %4 = mul %2, 0.5                      : f32[S]
//!   %5 = add %1, 1                        : index
//!   br ^bb1(%5, %4)
//! ^bb3:
//!   return %2
//! }
//! ```
//!
//! # Conditions
//!
//! The roots are operations with an effect (taps), branch conditions and returned values. A needed
//! operation needs its operands; a needed block argument needs the values that all jumps to the
//! block pass for it. Everything else is removed, including arguments that only feed themselves
//! around a loop. It is exact. An index out of range is an error only if its result is needed.
//!
//! # Limits
//!
//! A loop whose results are not needed stays, because its termination is not proved. The entry's
//! arguments stay: they are the function's signature. Fused regions are not searched: the passes
//! that build them leave nothing unused.

use super::{Changed, Context};
use crate::ir::Function;
use crate::ssa;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let (instructions, arguments) = ssa::remove_dead(&mut **f);
    ctx.count("instructions removed", instructions);
    ctx.count("block arguments removed", arguments);
    Changed::from(instructions + arguments > 0)
}
