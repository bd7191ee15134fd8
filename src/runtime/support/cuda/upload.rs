//! What a model has on its GPU: the loaded code, the weights, and what is packed of them.
//!
//! In: weights that were read and checked on the host. Out: the tables that plans index, of addresses in the GPU's memory. Weights are
//! copied once, into one allocation; `call.rs` packs them with the variant's own kernels.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::device::Gpu;
use super::memory::{DeviceBuffer, OwnStream, Queue, aligned};
use super::module::Module;
use crate::abi::ModelDesc;
use crate::abi::cuda::CudaDesc;
use crate::bind;
use crate::error::{Result, fail, push};
use crate::weights::Weights;

const TABLES: &str = "the tables of weights";

/// A model on a GPU.
pub(crate) struct Loaded {
    pub(crate) module: Module,
    /// For each family of parameters the addresses of its tensors.
    _tables: Vec<Vec<*const u8>>,
    /// Where each of the tables lies.
    roots: Vec<*const *const u8>,
    _weights: Option<DeviceBuffer>,
    /// What the variant's own kernels packed of the weights.
    pub(crate) packed: Option<DeviceBuffer>,
    /// Last, so that the context lives longest.
    pub(crate) gpu: Arc<Gpu>,
}

// SAFETY: the tables point to each other and into the GPU's memory, and nobody writes them.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Loads code and weights; nothing is packed yet.
    pub(crate) fn new(
        gpu: Arc<Gpu>,
        model: &'static ModelDesc,
        cuda: &'static CudaDesc,
        weights: &Weights,
    ) -> Result<Loaded> {
        let _entered = gpu.enter()?;
        let module = Module::load(&gpu, cuda)?;
        let stream = OwnStream::new(&gpu)?;
        let queue = Queue { gpu: &gpu, stream: stream.get() };
        let none = bind::Bound { lead: Vec::new(), dims: Vec::new() };
        let mut sizes = Vec::new();
        let mut total = 0u64;
        for (p, tensors) in model.params.get().iter().zip(weights.tables()) {
            let size = bind::bytes(&none.shape(false, p.dims.get())?, p.elem)?;
            total = total.saturating_add(aligned(size).saturating_mul(tensors.len() as u64));
            push(&mut sizes, size, TABLES)?;
        }
        let memory = if total > 0 { Some(DeviceBuffer::new(&gpu, total, "the weights")?) } else { None };
        let (mut tables, mut roots) = (Vec::new(), Vec::new());
        let mut at = memory.as_ref().map_or(super::memory::ALIGN, DeviceBuffer::address);
        for (size, tensors) in sizes.iter().zip(weights.tables()) {
            let mut table = Vec::new();
            for tensor in tensors {
                // SAFETY: the tensor has as many bytes, and there is room for all of them.
                unsafe { queue.copy_in(at, *tensor, *size, "the weights")? };
                push(&mut table, core::ptr::without_provenance(at as usize), TABLES)?;
                at += aligned(*size);
            }
            push(&mut roots, table.as_ptr(), TABLES)?;
            push(&mut tables, table, TABLES)?;
        }
        queue.wait("the weights")?;
        Ok(Loaded { module, _tables: tables, roots, _weights: memory, packed: None, gpu: gpu.clone() })
    }

    /// What plans get: a pointer to each family's table.
    pub(crate) fn roots(&self) -> *const *const *const u8 {
        self.roots.as_ptr()
    }

    /// Where packed weights are; null where there are none.
    pub(crate) fn packed(&self) -> *mut u8 {
        let at = self.packed.as_ref().map_or(0, DeviceBuffer::address);
        core::ptr::without_provenance_mut(at as usize)
    }

    /// The number of its device.
    pub(crate) fn ordinal(&self) -> i32 {
        self.gpu.ordinal
    }
}

/// The name of a device for users: `cuda:0`.
pub(crate) fn name_of(gpu: &Gpu) -> alloc::string::String {
    alloc::format!("cuda:{}", gpu.ordinal)
}

/// A session of a model that has no GPU was asked for something that only a GPU has.
pub(crate) fn no_gpu<T>() -> Result<T> {
    fail!(Call, "the model runs on the CPU")
}
