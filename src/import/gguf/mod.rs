//! GGUF files of the llama.cpp family: what `attnc import model.gguf` reads.
//!
//! In: the bytes of a file, which is untrusted. Out: the configuration that the same model has on the Hugging Face hub, from which the
//! program is made like that of any other checkpoint; and its tensors, with the names and layouts that they have there, written as a
//! safetensors file. `F32`, `F16` and `BF16` stay as they are; `Q8_0` and `Q4_0` become `f32`, exactly. A program is then
//! compiled with `--pack int8` or `int4` to have integers again. Tensors in other quantised types are refused, with the name of the type.
//!
//! * `read`: the format; every count and offset is checked against the file before it is used.
//! * `model`: metadata to a configuration, names to names, and what llama.cpp's converter did to the rows.
//! * `write`: the safetensors file, a tensor at a time.

mod model;
mod read;
mod write;

pub use model::{Model, model};
pub use read::{File, read};
