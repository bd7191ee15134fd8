//! Code generation: scheduled tile IR in, machine code out. Makes no decision that the tile IR could carry.

pub mod cpu;
pub mod descriptor;
