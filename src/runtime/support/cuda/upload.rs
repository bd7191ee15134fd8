//! A model on its GPU: the loaded code, the weights, and the packed weights.
//!
//! In: weights that were read and checked on the host. Out: tables of GPU addresses, which plans
//! index. Weights are copied once, into one allocation; `call.rs` packs them with the variant's own
//! kernels.

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
    /// Addresses of the tensors of each family of parameters.
    tables: Vec<Vec<*const u8>>,
    /// Address of each table.
    roots: Vec<*const *const u8>,
    _weights: Option<DeviceBuffer>,
    /// Packed by the variant's own kernels.
    pub(crate) packed: Option<DeviceBuffer>,
    /// Declared last, so that the context is released last.
    pub(crate) gpu: Arc<Gpu>,
}

// SAFETY: the tables point to each other and into GPU memory, and are never written.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Loads code and weights; does not pack yet.
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
                // SAFETY: the tensor has as many bytes, and the buffer has space for all of them.
                unsafe { queue.copy_in(at, *tensor, *size, "the weights")? };
                push(&mut table, core::ptr::without_provenance(at as usize), TABLES)?;
                at += aligned(*size);
            }
            push(&mut roots, table.as_ptr(), TABLES)?;
            push(&mut tables, table, TABLES)?;
        }
        queue.wait("the weights")?;
        Ok(Loaded { module, tables, roots, _weights: memory, packed: None, gpu: gpu.clone() })
    }

    /// Addresses of the tensors of each family.
    pub(crate) fn tables(&self) -> &[Vec<*const u8>] {
        &self.tables
    }

    /// The tables in the form that plans receive: a pointer to each family's table.
    pub(crate) fn roots(&self) -> *const *const *const u8 {
        self.roots.as_ptr()
    }

    /// Address of the packed weights, or null.
    pub(crate) fn packed(&self) -> *mut u8 {
        let at = self.packed.as_ref().map_or(0, DeviceBuffer::address);
        core::ptr::without_provenance_mut(at as usize)
    }

    /// Device number.
    pub(crate) fn ordinal(&self) -> i32 {
        self.gpu.ordinal
    }
}

/// User-visible name of a device: `cuda:0`.
pub(crate) fn name_of(gpu: &Gpu) -> alloc::string::String {
    alloc::format!("cuda:{}", gpu.ordinal)
}

/// The error for GPU functions called on a session that runs on the CPU.
pub(crate) fn no_gpu<T>() -> Result<T> {
    fail!(Call, "the model runs on the CPU")
}
