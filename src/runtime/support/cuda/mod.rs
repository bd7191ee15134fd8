//! NVIDIA GPUs: models whose kernels are PTX, run through the driver API.
//!
//! In: the GPU part of a variant (`../../abi_cuda.rs`), weights that were read and checked as for a
//! CPU, calls whose tensors were checked. Out: results, or an error. The driver library is looked
//! up when a model is opened (`driver`), so a `model.so` also loads on machines without one.
//!
//! A model uses one device and its primary context, which it shares with PyTorch and others
//! (`device`), and owns the loaded module (`module`) and the weights (`upload`). A session owns a
//! stream and memory that its calls reuse (`session`); memory of released results is kept for
//! later ones (`spare`). A call copies in, launches, copies out and waits (`call`); tensors in GPU
//! memory that kernels cannot access directly are copied there (`copier`, `strided`). Launches are
//! recorded on a `tape`, and become `graphs` if they recur. Nothing here chooses an algorithm: the
//! plan decides what is launched.

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
mod spare;
pub(crate) mod strided;
pub(crate) mod tape;
pub(crate) mod tensor_map;
pub(crate) mod upload;
