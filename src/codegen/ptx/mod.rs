//! Code for NVIDIA's GPUs: kernels of scheduled tile IR as PTX.

pub mod fragments;
