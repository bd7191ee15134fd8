//! GGUF files of the llama.cpp family, for `attnc import model.gguf`.
//!
//! In: the bytes of an untrusted file. Out: the configuration that the same model has on the
//! Hugging Face hub, from which the program is made as for any other checkpoint; and its tensors,
//! with their names and layouts on the hub, written as a safetensors file. `F32`, `F16` and `BF16`
//! are unchanged; quantised types (`Q4_0`, `Q4_1`, `Q5_0`, `Q5_1`, `Q8_0`, `Q2_K` to `Q6_K`) are
//! converted to `f32`, to the bits that llama.cpp computes with. Compiling the program with `--pack
//! int8` recovers the integers of `Q8_0`. Tensors in other quantised types are rejected by name.
//!
//! * `read`: parses the format; every count and offset is checked against the file before it is
//!   used.
//! * `blocks`: the layouts of the quantised types.
//! * `model`: converts metadata to a configuration, and tensor names, and undoes the changes of
//!   llama.cpp's converter.
//! * `write`: writes the safetensors file, one row at a time.

mod blocks;
mod model;
mod read;
mod write;

pub use model::{Model, model};
pub use read::{File, read};
