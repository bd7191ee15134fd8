//! Does a library for GPUs do what its callers were promised? Asked with the stand-in driver, so no GPU takes part: the real `.so`, its
//! runtime, its kernels as the simulator of PTX executes them.

mod bench;
mod calls;
mod cubins;
mod errors;
mod examples;
mod standin;
mod states;
mod strided;
