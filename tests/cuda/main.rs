//! Does a library for GPUs do what its callers were promised? Asked with the stand-in driver, so no GPU takes part: the real `.so`, its
//! runtime, its kernels as the simulator of PTX executes them.
//!
//! With `ATTNC_TEST_GPU=1` the tests in `examples`, `states` and `random` use the GPU of this machine instead. All others are about what the
//! stand-in can be made to do. `tests/live/gpu.sh` runs them so.

mod bench;
use attnc::ir::interp::bounded;
mod calls;
mod compared;
#[path = "../common/compiled.rs"]
mod compiled;
mod cubins;
mod errors;
mod examples;
#[path = "../common/front.rs"]
mod front;
#[path = "../common/gen_source/mod.rs"]
mod gen_source;
#[path = "../common/grouped.rs"]
mod grouped;
#[path = "../common/meant.rs"]
mod meant;
mod random;
mod standin;
mod states;
mod strided;
