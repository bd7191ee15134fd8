//! Tests of the PTX module: texts, the verifier, and what NVIDIA's assembler says.

mod assembled;
mod elements;
mod fragments;
mod generate;
mod ptxas;
mod runs;
mod sim;
mod texts;
mod verifier;

#[path = "../common/gen_tile.rs"]
mod gen_tile;
