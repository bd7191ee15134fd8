//! Tests of the PTX module: texts, the verifier, and what NVIDIA's assembler says.

mod assembled;
mod fragments;
#[path = "../common/front.rs"]
mod front;
#[path = "../common/gen_source/mod.rs"]
mod gen_source;
mod generate;
mod oracle;
mod ptxas;
mod sim;
mod texts;
mod verifier;
