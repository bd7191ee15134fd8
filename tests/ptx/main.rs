//! Tests of the PTX module: texts, the verifier, and what NVIDIA's assembler says.

mod assembled;
mod fragments;
mod generate;
mod ptxas;
mod sim;
mod texts;
mod verifier;
