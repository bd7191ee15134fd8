//! A tensor of a fixture as the compiler's own.
//!
//! A test program takes it in by `#[path = "../common/host.rs"] mod host;`, beside `fixtures`.

use attnc::shape::Elem;
use attnc::tensor::Tensor;
use safetensors::tensor::Dtype;

use crate::fixtures;

/// The same elements.
pub(crate) fn host(tensor: &fixtures::Tensor) -> Tensor {
    let elem = match tensor.dtype {
        Dtype::F32 => Elem::F32,
        Dtype::I32 => Elem::I32,
        Dtype::I64 => Elem::I64,
        Dtype::BOOL => Elem::Bool,
        other => panic!("{other:?} in a fixture"),
    };
    Tensor::new(elem, tensor.shape.clone(), tensor.bytes.clone()).expect("a tensor")
}
