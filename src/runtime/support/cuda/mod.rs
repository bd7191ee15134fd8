//! NVIDIA GPUs: a model whose kernels are PTX, run through the driver's interface.
//!
//! In: the GPU part of a variant (`../../abi_cuda.rs`), weights that were read and checked as for a CPU, calls whose tensors were
//! checked. Out: results, or an error that says what is missing. The driver is a library that is looked up when a model is
//! opened (`driver`), so a `model.so` loads on machines that have none.
//!
//! One device and its primary context, which PyTorch and others share, belong to a model (`device`), with the loaded module (`module`) and the
//! weights (`upload`). A session has a stream and memory that its calls use again (`session`); a call copies in, launches, copies
//! out and waits (`call`); what lies in the GPU's memory as kernels cannot read it is copied there
//! (`copier`, `strided`). Launches are put on a `tape`, and become `graphs` where they come again. Nothing here chooses an algorithm: what is launched is the plan's decision.

pub(crate) mod call;
pub(crate) mod choice;
pub(crate) mod copier;
pub(crate) mod device;
pub(crate) mod driver;
#[path = "../../cuda_functions.rs"]
mod functions;
pub(crate) mod graphs;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod session;
pub(crate) mod strided;
pub(crate) mod tape;
pub(crate) mod tensor_map;
pub(crate) mod upload;
