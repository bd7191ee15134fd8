//! Functions of the interface that call an entry point, or compute the shapes of its results.
//!
//! In: lists of the caller's tensors, as DLPack or as bare pointers. Out: a status; results in the
//! caller's tensors or in tensors allocated by the runtime. `arguments.rs` and `bind.rs` check the
//! tensors.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::{c_char, c_void};
use core::ptr::{null, null_mut};

use crate::abi::{EntryDesc, NO_ENTRY, PlanDesc};
use crate::api::with_session;
use crate::arguments::{self, Arguments};
use crate::bind::{self, Bound};
use crate::call;
use crate::cuda::copier::TensorLocation;
use crate::cuda::device::Gpu;
use crate::cuda::memory::DeviceBuffer;
use crate::cuda::upload::no_gpu;
use crate::desc::model;
use crate::dlpack::{CPU, CUDA, DLDevice, DLManagedTensor, DLTensor, View, type_of};
use crate::error::{Error, Result, fail};
use crate::handle::{Opened, Session};
use crate::request::{Call, Data, Memory, Poll};
use crate::sys::{Buffer, try_box};
use crate::taps::{self, Taps};

const ON_CPU: DLDevice = DLDevice { device_type: CPU, device_id: 0 };

impl<'a> Data<'a> {
    /// A call without taps.
    fn without_taps(args: &'a Arguments<'a>, outs: &'a [*mut u8], outs_at: &'a [TensorLocation<'a>]) -> Data<'a> {
        Data { args: &args.data, outs, taps: &[], tap_bytes: &[], args_at: &args.at, outs_at }
    }
}

/// The entry point of this index, and its code.
fn entry_of(opened: &Opened, index: u64) -> Result<(&'static EntryDesc, &'static PlanDesc)> {
    if index == NO_ENTRY {
        fail!(Call, "this session belongs to {}, but the function called is of another model", model().name.get());
    }
    let at = usize::try_from(index).unwrap_or(usize::MAX);
    match model().entries.get().get(at).zip(opened.variant.entries.get().get(at)) {
        Some(found) => Ok(found),
        None => fail!(Call, "{} has no entry point {index}", model().name.get()),
    }
}

/// The shape that a result will have for these arguments: writes `*ndim` axes to `shape`, which has
/// space for `capacity`. Only the shapes and types of the arguments are used, not their data.
///
/// # Safety
/// As [`attnc_call`]; `shape` is null or has space for `capacity` numbers, `ndim` is null or
/// writable.
pub(crate) unsafe extern "C" fn attnc_result_shape(
    session: *mut Session,
    entry: u64,
    arg_count: u64,
    args: *const *mut DLTensor,
    result: u64,
    shape: *mut i64,
    capacity: u64,
    ndim: *mut i32,
) -> i32 {
    let query = |opened: &Opened, _: &mut Memory| {
        let (entry, _) = entry_of(opened, entry)?;
        // SAFETY: by the contract above.
        let bound = unsafe {
            let args = arguments::list(args, arg_count, entry.args.get().len(), "arguments", entry)?;
            arguments::bind(entry, args, opened.gpu())?.1
        };
        // SAFETY: by the contract above.
        unsafe { give_shape(entry, &bound, result, shape, capacity, ndim) }
    };
    // SAFETY: by the contract above.
    unsafe { with_session(session, query) }
}

/// # Safety
/// `shape` is null or has space for `capacity` numbers, `ndim` is null or writable.
unsafe fn give_shape(
    entry: &EntryDesc,
    bound: &Bound,
    result: u64,
    shape: *mut i64,
    capacity: u64,
    ndim: *mut i32,
) -> Result<()> {
    let Some(t) = usize::try_from(result).ok().and_then(|i| entry.results.get().get(i)) else {
        fail!(Call, "{} has no result {result}", entry.name.get())
    };
    let found = bound.shape(t.batch != 0, t.dims.get())?;
    bind::bytes(&found, t.elem)?;
    if ndim.is_null() {
        fail!(Call, "the pointer for the number of axes is null");
    }
    // SAFETY: by the contract above.
    unsafe { *ndim = found.len() as i32 };
    if found.len() as u64 > capacity || (shape.is_null() && !found.is_empty()) {
        fail!(Call, "result {result} of {} has {} axes, but the capacity is {capacity}", entry.name.get(), found.len());
    }
    if !found.is_empty() {
        // SAFETY: by the contract above.
        unsafe { core::ptr::copy_nonoverlapping(found.as_ptr(), shape, found.len()) };
    }
    Ok(())
}

/// Calls an entry point; results are written to the caller's tensors (contiguous or not).
///
/// # Safety
/// `session` is null or live; each list has as many pointers as its count, each null or a tensor
/// that correctly describes its shape, strides and memory.
pub(crate) unsafe extern "C" fn attnc_call(
    session: *mut Session,
    entry: u64,
    arg_count: u64,
    args: *const *mut DLTensor,
    result_count: u64,
    results: *const *mut DLTensor,
) -> i32 {
    // SAFETY: by the contract above.
    unsafe { attnc_call_taps(session, entry, arg_count, args, result_count, results, 0, null(), null_mut()) }
}

/// [`attnc_call`] that also returns the taps matching one of the patterns: `*out` receives a
/// handle, to be closed by [`attnc_taps_close`](crate::api::attnc_taps_close), or null if none was
/// requested.
///
/// # Safety
/// As [`attnc_call`]; `taps` is null or has `tap_count` pointers, each null or a C string; `out` is
/// null or writable.
pub(crate) unsafe extern "C" fn attnc_call_taps(
    session: *mut Session,
    entry: u64,
    arg_count: u64,
    args: *const *mut DLTensor,
    result_count: u64,
    results: *const *mut DLTensor,
    tap_count: u64,
    taps: *const *const c_char,
    out: *mut *mut Taps,
) -> i32 {
    let given = CallParams { entry, arg_count, args, result_count, results, tap_count, taps, out };
    // SAFETY: by the contract above.
    unsafe { call_taps(session, &given, None) }
}

/// The parameters of [`attnc_call_taps`].
pub(crate) struct CallParams {
    pub(crate) entry: u64,
    pub(crate) arg_count: u64,
    pub(crate) args: *const *mut DLTensor,
    pub(crate) result_count: u64,
    pub(crate) results: *const *mut DLTensor,
    pub(crate) tap_count: u64,
    pub(crate) taps: *const *const c_char,
    pub(crate) out: *mut *mut Taps,
}

/// A call that asks `poll`, or else the session's callback, whether to continue.
///
/// # Safety
/// As [`attnc_call_taps`].
pub(crate) unsafe fn call_taps(session: *mut Session, given: &CallParams, poll: Option<Poll>) -> i32 {
    let call = |opened: &Opened, memory: &mut Memory| {
        let (entry, plan) = entry_of(opened, given.entry)?;
        let name = entry.name.get();
        // SAFETY: by the contract above.
        unsafe {
            if !given.out.is_null() {
                *given.out = null_mut();
            }
            if given.tap_count > 0 && given.out.is_null() {
                fail!(Call, "{name}: the pointer for the taps is null");
            }
            let args = arguments::list(given.args, given.arg_count, entry.args.get().len(), "arguments", entry)?;
            let results =
                arguments::list(given.results, given.result_count, entry.results.get().len(), "results", entry)?;
            let (views, bound) = arguments::bind(entry, args, opened.gpu())?;
            let args = arguments::arguments(entry, &views)?;
            let results = arguments::results(entry, &bound, results, &args, opened.gpu())?;
            let wanted = match given.tap_count {
                0 => None,
                count => Some(taps::want(entry, &bound, given.taps, count)?),
            };
            let data = Data {
                taps: wanted.as_ref().map_or(&[], |w| w.data.as_slice()),
                tap_bytes: wanted.as_ref().map_or(&[], |w| w.bytes.as_slice()),
                ..Data::without_taps(&args, &results.data, &results.at)
            };
            run(opened, memory, entry, plan, &bound, data, poll)?;
            results.deliver();
            if let Some(wanted) = wanted {
                *given.out = taps::collect(entry, &bound, wanted)?;
            }
            memory.changing.end();
        }
        Ok(())
    };
    // SAFETY: by the contract above.
    unsafe { with_session(session, call) }
}

fn run(
    opened: &Opened,
    memory: &mut Memory,
    entry: &EntryDesc,
    plan: &PlanDesc,
    bound: &Bound,
    data: Data<'_>,
    poll: Option<Poll>,
) -> Result<()> {
    let call = Call {
        model: model(),
        variant: opened.variant,
        entry,
        plan,
        weights: &opened.weights,
        packed: &opened.packed,
        cuda: opened.cuda.as_ref(),
        in_order: opened.in_order,
        pool: &opened.pool,
        bound,
        data,
        poll,
    };
    call::run(&call, memory)
}

/// Calls an entry point; the runtime allocates the results. Each has a deleter, which must be
/// called before this `.so` is unloaded. Any thread may call it, even after the session is closed.
///
/// # Safety
/// As [`attnc_call`]; `results` has space for `result_count` pointers.
pub(crate) unsafe extern "C" fn attnc_call_owned(
    session: *mut Session,
    entry: u64,
    arg_count: u64,
    args: *const *mut DLTensor,
    result_count: u64,
    results: *mut *mut DLManagedTensor,
) -> i32 {
    // SAFETY: by the contract above.
    unsafe { call_owned(session, entry, arg_count, args, result_count, results, false) }
}

/// Like [`attnc_call_owned`], with results in the memory of the device that the model runs on.
///
/// # Safety
/// As [`attnc_call_owned`].
pub(crate) unsafe extern "C" fn attnc_call_on_device(
    session: *mut Session,
    entry: u64,
    arg_count: u64,
    args: *const *mut DLTensor,
    result_count: u64,
    results: *mut *mut DLManagedTensor,
) -> i32 {
    // SAFETY: by the contract above.
    unsafe { call_owned(session, entry, arg_count, args, result_count, results, true) }
}

/// Copies a contiguous tensor from the memory of the GPU that the model runs on.
///
/// # Safety
/// `session` is null or live; `tensor` is null or correctly describes its shape, strides and
/// memory; `to` is null or has space for its elements.
pub(crate) unsafe extern "C" fn attnc_copy_to_host(
    session: *mut Session,
    tensor: *const DLTensor,
    to: *mut c_void,
) -> i32 {
    let copy = |opened: &Opened, memory: &mut Memory| {
        let Some(own) = &memory.cuda else { return no_gpu() };
        // SAFETY: by the contract above.
        let view = unsafe { View::new(tensor, "the tensor", opened.gpu())? };
        let size = u64::from(view.dtype.bits).div_ceil(8).saturating_mul(u64::from(view.dtype.lanes));
        if !view.on_device || !view.is_contiguous() {
            fail!(Tensor, "the tensor is not on the GPU, or not contiguous");
        }
        if to.is_null() {
            fail!(Call, "the pointer for the elements is null");
        }
        // SAFETY: by the contract above.
        unsafe { own.copy_to_host(view.data as u64, to.cast(), view.count.saturating_mul(size), "the tensor") }
    };
    // SAFETY: by the contract above.
    unsafe { with_session(session, copy) }
}

/// # Safety
/// As [`attnc_call_owned`].
unsafe fn call_owned(
    session: *mut Session,
    entry: u64,
    arg_count: u64,
    args: *const *mut DLTensor,
    result_count: u64,
    results: *mut *mut DLManagedTensor,
    on_device: bool,
) -> i32 {
    let call = |opened: &Opened, memory: &mut Memory| {
        let (entry, plan) = entry_of(opened, entry)?;
        let gpu = opened.cuda.as_ref().map(|c| &c.gpu).filter(|_| on_device);
        // SAFETY: by the contract above.
        unsafe {
            let args = arguments::list(args, arg_count, entry.args.get().len(), "arguments", entry)?;
            let places =
                arguments::list(results.cast_const(), result_count, entry.results.get().len(), "results", entry)?.len();
            let (views, bound) = arguments::bind(entry, args, opened.gpu())?;
            let args = arguments::arguments(entry, &views)?;
            let mut made = Vec::new();
            for t in entry.results.get() {
                made.push(Owned::new(bound.shape(t.batch != 0, t.dims.get())?, t.elem, gpu)?);
            }
            let outs: Vec<*mut u8> = made.iter().map(|m| m.data.pointer()).collect();
            let at: Vec<TensorLocation<'_>> = outs
                .iter()
                .map(|_| if gpu.is_some() { TensorLocation::Device } else { TensorLocation::Host })
                .collect();
            let data = Data::without_taps(&args, &outs, &at);
            run(opened, memory, entry, plan, &bound, data, None)?;
            let mut given: Vec<Gift> = Vec::new();
            for m in made.into_iter().take(places) {
                given.push(Gift(m.give_away()?));
            }
            for (i, m) in given.into_iter().enumerate() {
                *results.add(i) = m.keep();
            }
            memory.changing.end();
        }
        Ok(())
    };
    // SAFETY: by the contract above.
    unsafe { with_session(session, call) }
}

/// A result allocated by the runtime.
struct Owned {
    shape: Vec<i64>,
    elem: u64,
    data: ResultMemory,
    device: DLDevice,
}

/// Memory of a result.
enum ResultMemory {
    Host(Buffer),
    Device(DeviceBuffer),
}

impl ResultMemory {
    fn pointer(&self) -> *mut u8 {
        match self {
            ResultMemory::Host(b) => b.pointer(),
            ResultMemory::Device(b) => core::ptr::without_provenance_mut(b.address() as usize),
        }
    }
}

/// The owner of a result that was returned to the caller.
struct Manager {
    tensor: DLManagedTensor,
    _shape: Box<[i64]>,
    _data: ResultMemory,
}

impl Owned {
    fn new(shape: Vec<i64>, elem: u64, gpu: Option<&Arc<Gpu>>) -> Result<Owned> {
        let bytes = bind::bytes(&shape, elem)?;
        if let Some(gpu) = gpu {
            let _entered = gpu.enter()?;
            let device = DLDevice { device_type: CUDA, device_id: gpu.ordinal };
            return Ok(Owned {
                shape,
                elem,
                data: ResultMemory::Device(DeviceBuffer::for_result(gpu, bytes)?),
                device,
            });
        }
        match Buffer::new(bytes) {
            Some(data) => Ok(Owned { shape, elem, data: ResultMemory::Host(data), device: ON_CPU }),
            None => Err(Error::memory(bytes, "a result")),
        }
    }

    fn give_away(self) -> Result<*mut DLManagedTensor> {
        let mut shape = self.shape.into_boxed_slice();
        let dl_tensor = DLTensor {
            data: self.data.pointer().cast::<c_void>(),
            device: self.device,
            ndim: shape.len() as i32,
            dtype: type_of(self.elem),
            shape: shape.as_mut_ptr(),
            strides: null_mut(),
            byte_offset: 0,
        };
        let tensor = DLManagedTensor { dl_tensor, manager_ctx: null_mut(), deleter: Some(delete) };
        let Some(manager) = try_box(Manager { tensor, _shape: shape, _data: self.data }) else {
            return Err(Error::memory(size_of::<Manager>() as u64, "a result"));
        };
        let manager = Box::into_raw(manager);
        // SAFETY: the manager was just allocated; it points to itself so that the deleter finds it.
        unsafe {
            (*manager).tensor.manager_ctx = manager.cast();
            Ok(&raw mut (*manager).tensor)
        }
    }
}

/// A result to be returned to the caller; frees it if the call fails.
struct Gift(*mut DLManagedTensor);

impl Gift {
    fn keep(self) -> *mut DLManagedTensor {
        let tensor = self.0;
        core::mem::forget(self);
        tensor
    }
}

impl Drop for Gift {
    fn drop(&mut self) {
        // SAFETY: a result that was not returned.
        unsafe { delete(self.0) };
    }
}

/// The deleter of returned results.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensor) {
    // SAFETY: DLPack calls a deleter once, with the tensor that it belongs to.
    unsafe {
        if let Some(t) = tensor.as_ref() {
            drop(Box::from_raw(t.manager_ctx.cast::<Manager>()));
        }
    }
}

/// Calls an entry point with bare pointers: `dims` are the values of its run-time dimensions in the
/// order of `attnc_dimension_name` (the batch `..` is one leading axis); every tensor is
/// contiguous, of the declared type, with the shape that follows from the dimensions. The typed
/// wrappers of `model.h` use this.
///
/// # Safety
/// The lists have as many entries as their counts; the memory of each tensor has the size that
/// follows from the dimensions.
pub(crate) unsafe extern "C" fn attnc_call_raw(
    session: *mut Session,
    entry: u64,
    dim_count: u64,
    dims: *const i64,
    arg_count: u64,
    args: *const *const c_void,
    result_count: u64,
    results: *const *mut c_void,
) -> i32 {
    let call = |opened: &Opened, memory: &mut Memory| {
        let (entry, plan) = entry_of(opened, entry)?;
        // SAFETY: by the contract above.
        unsafe {
            let bound = bind_raw(entry, dim_count, dims)?;
            let args = arguments::list(args.cast(), arg_count, entry.args.get().len(), "arguments", entry)?;
            let results = arguments::list(results, result_count, entry.results.get().len(), "results", entry)?;
            // Make tensors so that the same checks apply: null pointers, alignment, truth values,
            // overlapping results.
            let mut arg_tensors = Vec::new();
            for (t, data) in entry.args.get().iter().zip(args) {
                arg_tensors.push(RawTensor::new(bound.shape(t.batch != 0, t.dims.get())?, t.elem, *data));
            }
            let mut result_tensors = Vec::new();
            for (t, data) in entry.results.get().iter().zip(results) {
                result_tensors.push(RawTensor::new(bound.shape(t.batch != 0, t.dims.get())?, t.elem, *data));
            }
            let arg_list: Vec<*mut DLTensor> = arg_tensors.iter_mut().map(|t| &raw mut t.tensor).collect();
            let result_list: Vec<*mut DLTensor> = result_tensors.iter_mut().map(|t| &raw mut t.tensor).collect();
            let (views, _) = arguments::bind(entry, &arg_list, opened.gpu())?;
            let args = arguments::arguments(entry, &views)?;
            let results = arguments::results(entry, &bound, &result_list, &args, opened.gpu())?;
            let data = Data::without_taps(&args, &results.data, &results.at);
            run(opened, memory, entry, plan, &bound, data, None)?;
            results.deliver();
            memory.changing.end();
        }
        Ok(())
    };
    // SAFETY: by the contract above.
    unsafe { with_session(session, call) }
}

/// # Safety
/// `dims` is null or has `count` numbers.
unsafe fn bind_raw(entry: &EntryDesc, count: u64, dims: *const i64) -> Result<Bound> {
    let expected = entry.symbols.get().len();
    if count != expected as u64 {
        fail!(Call, "{} has {expected} run-time dimensions, found {count}", entry.name.get());
    }
    if dims.is_null() && expected > 0 {
        fail!(Call, "{}: the list of dimensions is a null pointer", entry.name.get());
    }
    // SAFETY: by the contract above.
    let dims = if expected == 0 { &[] } else { unsafe { core::slice::from_raw_parts(dims, expected) } };
    bind::bind_values(entry, dims)
}

/// A tensor made from a bare pointer.
struct RawTensor {
    tensor: DLTensor,
    _shape: Box<[i64]>,
}

impl RawTensor {
    fn new(shape: Vec<i64>, elem: u64, data: *mut c_void) -> RawTensor {
        let mut shape = shape.into_boxed_slice();
        let tensor = DLTensor {
            data,
            device: ON_CPU,
            ndim: shape.len() as i32,
            dtype: type_of(elem),
            shape: shape.as_mut_ptr(),
            strides: null_mut(),
            byte_offset: 0,
        };
        RawTensor { tensor, _shape: shape }
    }
}

/// The shape of a result for these run-time dimensions; see [`attnc_call_raw`] and
/// [`attnc_result_shape`].
///
/// # Safety
/// As [`attnc_call_raw`] and [`attnc_result_shape`].
pub(crate) unsafe extern "C" fn attnc_result_shape_raw(
    session: *mut Session,
    entry: u64,
    dim_count: u64,
    dims: *const i64,
    result: u64,
    shape: *mut i64,
    capacity: u64,
    ndim: *mut i32,
) -> i32 {
    let query = |opened: &Opened, _: &mut Memory| {
        let (entry, _) = entry_of(opened, entry)?;
        // SAFETY: by the contract above.
        unsafe {
            let bound = bind_raw(entry, dim_count, dims)?;
            give_shape(entry, &bound, result, shape, capacity, ndim)
        }
    };
    // SAFETY: by the contract above.
    unsafe { with_session(session, query) }
}
