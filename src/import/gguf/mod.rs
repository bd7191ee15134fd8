//! GGUF files of the llama.cpp family, for `attnc import model.gguf`.
//!
//! In: the bytes of an untrusted file. Out: the configuration that the same model has on the
//! Hugging Face hub, from which the program is made as for any other checkpoint; and its tensors,
//! with their names and layouts on the hub, written as a safetensors file. `F32`, `F16` and `BF16`
//! are unchanged; `Q8_0` and `Q4_0` are converted to `f32`, exactly. Compiling the program with
//! `--pack int8` or `int4` recovers the integers. Tensors in other quantised types are rejected by
//! name.
//!
//! * `read`: parses the format; every count and offset is checked against the file before it is
//!   used.
//! * `model`: converts metadata to a configuration, and tensor names, and undoes the changes of
//!   llama.cpp's converter.
//! * `write`: writes the safetensors file, one tensor at a time.

mod model;
mod read;
mod write;

pub use model::{Model, model};
pub use read::{File, read};
