//! From graph IR to tile IR: each instruction or fused region that computes becomes a kernel, the function becomes a plan
//! that launches them, and movement becomes strided views.
//!
//! In: verified graph IR after the passes. Out: unscheduled tile IR. Decided here: which values need storage and where
//! it lies (`views`, `storage`), and each kernel's loops over tiles. Not decided here: what a tile becomes on a machine.

mod prepare;
mod views;
