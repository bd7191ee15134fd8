//! Tensors of a call: arguments that are not in the form that generated code requires (row-major,
//! contiguous, aligned, of the declared type) are copied; results likewise.

use alloc::string::String;
use alloc::vec::Vec;

use crate::abi::{EntryDesc, TensorDesc, elem};
use crate::bind::{self, Bound};
use crate::cuda::copier::{Detour, TensorLocation, is_direct};
use crate::desc::{elem_name, elem_size};
use crate::dlpack::{Conversion, DLTensor, View, conversion, type_of};
use crate::error::{Error, List, Result, fail};
use crate::sys::Buffer;

/// An address range, half open.
type Span = (usize, usize);

/// The arguments of a call as passed to generated code.
pub(crate) struct Arguments<'a> {
    pub(crate) data: Vec<*const u8>,
    /// In which memory each of them is.
    pub(crate) at: Vec<TensorLocation<'a>>,
    /// The callers' memory that is read during the call; `device_spans` is the part on the GPU.
    spans: Vec<Span>,
    device_spans: Vec<Span>,
    _copies: Vec<Buffer>,
}

/// Checks the length of a caller's list and makes a slice of it.
///
/// # Safety
/// `list` is null or has `count` pointers.
pub(crate) unsafe fn list<'a, T>(
    list: *const *mut T,
    count: u64,
    expected: usize,
    what: &str,
    entry: &EntryDesc,
) -> Result<&'a [*mut T]> {
    if count != expected as u64 {
        fail!(Call, "{} has {expected} {what}, found {count}", entry.name.get());
    }
    if expected == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        fail!(Call, "{}: the list of {what} is a null pointer", entry.name.get());
    }
    // SAFETY: by the contract above.
    Ok(unsafe { core::slice::from_raw_parts(list, expected) })
}

fn called(entry: &EntryDesc, what: &str, t: &TensorDesc) -> String {
    alloc::format!("{}: {what} `{}`", entry.name.get(), t.name.get())
}

/// Checks arguments and binds the run-time dimensions.
///
/// # Safety
/// Each pointer is null or a tensor whose shape and strides fit its `ndim`.
pub(crate) unsafe fn bind<'a>(
    entry: &EntryDesc,
    args: &[*mut DLTensor],
    gpu: Option<i32>,
) -> Result<(Vec<View<'a>>, Bound)> {
    let mut views = Vec::new();
    for (t, arg) in entry.args.get().iter().zip(args) {
        let name = called(entry, "argument", t);
        // SAFETY: by the contract above.
        let view = unsafe { View::new(*arg, &name, gpu)? };
        if conversion(t.elem, view.dtype).is_none() {
            fail!(Tensor, "{name}: expected {}, found {}", elem_name(t.elem), view.dtype);
        }
        views.push(view);
    }
    let shapes: Vec<&[i64]> = views.iter().map(|v| v.shape).collect();
    let bound = bind::bind(entry, &shapes)?;
    Ok((views, bound))
}

/// Converts the arguments to what generated code requires. Tensors on the GPU stay there; if
/// kernels cannot read them directly, the call copies them on the GPU.
///
/// # Safety
/// The tensors' memory is readable as their shapes and strides say, and stays so during the call.
pub(crate) unsafe fn arguments<'a>(entry: &EntryDesc, views: &[View<'a>]) -> Result<Arguments<'a>> {
    let mut out = Arguments {
        data: Vec::new(),
        at: Vec::new(),
        spans: Vec::new(),
        device_spans: Vec::new(),
        _copies: Vec::new(),
    };
    for (t, v) in entry.args.get().iter().zip(views) {
        let name = called(entry, "argument", t);
        let Some(how) = conversion(t.elem, v.dtype) else { fail!(Internal, "{name} was not checked") };
        let given = u64::from(v.dtype.bits / 8);
        let wanted = elem_size(t.elem);
        let span = v.span(given, &name)?;
        if v.count == 0 {
            // Nothing is read, but generated code must not receive a null pointer.
            out.data.push(core::ptr::without_provenance(64));
            out.at.push(if v.on_device { TensorLocation::Device } else { TensorLocation::Host });
            continue;
        }
        let is_aligned = |v: &View<'_>| (v.data as u64).checked_rem(given) == Some(0);
        // Truth values of this type are always 0 or 1.
        let same = how == Conversion::Same || (how == Conversion::Truth && v.dtype == type_of(t.elem));
        if v.on_device {
            out.data.push(v.data);
            if same && is_direct(v) {
                out.device_spans.push(span);
                out.at.push(TensorLocation::Device);
            } else {
                let how = if same { Conversion::Same } else { how };
                out.at.push(TensorLocation::Detour(Detour { view: *v, size: given, how }));
            }
            continue;
        }
        out.at.push(TensorLocation::Host);
        let mut data = v.data.cast_const();
        if !(is_aligned(v) && v.is_contiguous()) {
            let copy = buffer(v.count, given, &name)?;
            // SAFETY: the span is checked, the copy has space for all elements.
            unsafe { v.copy_to(given, copy.pointer()) };
            data = copy.pointer();
            out._copies.push(copy);
        } else {
            out.spans.push(span);
        }
        // SAFETY: `data` has `count` contiguous aligned elements of the given type.
        if let Some(converted) = unsafe { convert(how, data, v.count, wanted, &name)? } {
            data = converted.pointer();
            out._copies.push(converted);
        }
        out.data.push(data);
    }
    Ok(out)
}

fn buffer(count: u64, size: u64, name: &str) -> Result<Buffer> {
    let bytes = count.saturating_mul(size);
    match Buffer::new(bytes) {
        Some(b) => Ok(b),
        None => Err(Error::memory(bytes, &alloc::format!("a copy of {name}"))),
    }
}

/// Converts elements to the declared type; `None` if no conversion is needed.
///
/// # Safety
/// `data` has `count` aligned elements of the source type of `how`.
unsafe fn convert(how: Conversion, data: *const u8, count: u64, size: u64, name: &str) -> Result<Option<Buffer>> {
    let n = count as usize;
    match how {
        Conversion::Same => Ok(None),
        Conversion::Truth => {
            // SAFETY: by the contract above.
            let bytes = unsafe { core::slice::from_raw_parts(data, n) };
            if bytes.iter().all(|b| *b <= 1) {
                return Ok(None);
            }
            let copy = buffer(count, size, name)?;
            for (i, b) in bytes.iter().enumerate() {
                // SAFETY: the copy has `n` bytes.
                unsafe { *copy.pointer().add(i) = u8::from(*b != 0) };
            }
            Ok(Some(copy))
        }
        Conversion::Narrow => {
            // SAFETY: by the contract above.
            let values = unsafe { core::slice::from_raw_parts(data.cast::<i64>(), n) };
            let copy = buffer(count, size, name)?;
            for (i, v) in values.iter().enumerate() {
                let Ok(narrow) = i32::try_from(*v) else {
                    fail!(Range, "{name}: element {i} is {v}, which is not an i32");
                };
                // SAFETY: the copy has `n` aligned elements.
                unsafe { *copy.pointer().cast::<i32>().add(i) = narrow };
            }
            Ok(Some(copy))
        }
        Conversion::Widen => {
            // SAFETY: by the contract above.
            let values = unsafe { core::slice::from_raw_parts(data.cast::<i32>(), n) };
            let copy = buffer(count, size, name)?;
            for (i, v) in values.iter().enumerate() {
                // SAFETY: the copy has `n` aligned elements.
                unsafe { *copy.pointer().cast::<i64>().add(i) = i64::from(*v) };
            }
            Ok(Some(copy))
        }
    }
}

/// The caller's tensors for results, and the addresses that generated code writes to.
pub(crate) struct Results<'a> {
    pub(crate) data: Vec<*mut u8>,
    /// In which memory each of them is.
    pub(crate) at: Vec<TensorLocation<'a>>,
    /// Results that are computed in a temporary and then copied out: the tensor, its element size,
    /// the temporary.
    detours: Vec<(View<'a>, u64, Buffer)>,
}

/// Checks the caller's tensors for the results.
///
/// # Safety
/// Each pointer is null or a tensor whose memory is writable as described by its shape and strides.
pub(crate) unsafe fn results<'a>(
    entry: &EntryDesc,
    bound: &Bound,
    tensors: &[*mut DLTensor],
    args: &Arguments<'_>,
    gpu: Option<i32>,
) -> Result<Results<'a>> {
    let mut out = Results { data: Vec::new(), at: Vec::new(), detours: Vec::new() };
    let (mut host_spans, mut device_spans): (Vec<Span>, Vec<Span>) = (Vec::new(), Vec::new());
    for (t, tensor) in entry.results.get().iter().zip(tensors) {
        let name = called(entry, "result", t);
        // SAFETY: by the contract above.
        let view: View<'a> = unsafe { View::new(*tensor, &name, gpu)? };
        let byte = t.elem == elem::BOOL && conversion(t.elem, view.dtype).is_some();
        if view.dtype != type_of(t.elem) && !byte {
            fail!(Tensor, "{name}: expected {}, found {}", elem_name(t.elem), view.dtype);
        }
        let shape = bound.shape(t.batch != 0, t.dims.get())?;
        if view.shape != shape {
            fail!(Tensor, "{name} has shape {}, expected {}", List(view.shape), List(&shape));
        }
        let size = elem_size(t.elem);
        let span = view.span(size, &name)?;
        if view.count == 0 {
            out.at.push(if view.on_device { TensorLocation::Device } else { TensorLocation::Host });
            out.data.push(core::ptr::without_provenance_mut(64));
            continue;
        }
        let meets = |others: &[Span]| others.iter().any(|o| span.0 < o.1 && o.0 < span.1);
        let spans = if view.on_device { &mut device_spans } else { &mut host_spans };
        if meets(spans) {
            fail!(Call, "{name} shares memory with another result");
        }
        spans.push(span);
        let aligned = (view.data as u64).checked_rem(size) == Some(0);
        if view.on_device {
            // Arguments must not be overwritten before everything is computed.
            let direct = is_direct(&view) && !meets(&args.device_spans);
            let detour = Detour { view, size, how: Conversion::Same };
            out.at.push(if direct { TensorLocation::Device } else { TensorLocation::Detour(detour) });
            out.data.push(view.data);
            continue;
        }
        out.at.push(TensorLocation::Host);
        if aligned && view.is_contiguous() && !meets(&args.spans) {
            out.data.push(view.data);
            continue;
        }
        let detour = buffer(view.count, size, &name)?;
        out.data.push(detour.pointer());
        out.detours.push((view, size, detour));
    }
    Ok(out)
}

impl Results<'_> {
    /// Copies results from temporaries to the caller's tensors.
    ///
    /// # Safety
    /// The tensors have not changed since they were checked.
    pub(crate) unsafe fn deliver(&self) {
        for (view, size, from) in &self.detours {
            // SAFETY: the span was checked, and the buffer has as many elements.
            unsafe { view.copy_from(*size, from.pointer()) };
        }
    }
}
