//! Tests of the PTX module: texts, the verifier, and what NVIDIA's assembler says.

mod assembled;
mod by_hand;
mod elements;
mod fragments;
#[path = "../common/front.rs"]
mod front;
mod generate;
mod ptxas;
mod runs;
mod sim;
mod tensor_cores;
mod texts;
mod verifier;

#[path = "../common/gen_tile.rs"]
mod gen_tile;
