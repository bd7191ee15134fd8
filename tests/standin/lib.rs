//! A stand-in for NVIDIA's driver: the functions of `libcuda.so.1` that a `model.so` calls, on top of the simulator of PTX.
//!
//! `ATTNC_CUDA_LIB` names this library to a `model.so`. What that queues on a stream happens as late as is legal: when the stream, or an
//! event on it, is waited for, or memory is freed. So a copy that nobody waits for leaves a result unwritten. Wrong calls are answered as
//! the driver answers them, where it checks; a kernel in which the simulator finds a fault breaks the context, and the report goes to
//! standard error.
//!
//! `ATTNC_STANDIN` is a list of words, separated by commas, of what is to be different: see [`settings`]. `attnc_standin_live` counts what
//! is allocated, so that a test sees what was not freed.

mod exports;
mod graphs;
mod settings;
mod state;
