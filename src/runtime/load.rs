//! Loads a `model.so` into this process and calls it, for `attnc run --backend cpu` and the tests.
//!
//! In: the path of a `.so` that attnc made, weights, [`Tensor`]s. Out: results, taps, or the
//! runtime's error message. Only functions of the C interface are used, as in any other program.

mod states;

pub use states::State;

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::Library;

use super::abi::{self, ABI_VERSION, LIBRARY_SYMBOL};
use super::dlpack::{CPU, DLDataType, DLDevice, DLTensor, code};
use crate::shape::Elem;
use crate::tensor::Tensor;

/// Why loading or a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The runtime's status (`support/error.rs`); -1 if the `.so` itself is invalid.
    pub status: i32,
    /// Message for users.
    pub text: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// Was the call interrupted through [`Session::end_when`]?
    pub fn is_interrupt(&self) -> bool {
        self.status == 9
    }

    /// Is it about a GPU that is missing, does not support the code, or failed?
    pub fn is_about_device(&self) -> bool {
        [10, 11].contains(&self.status)
    }

    /// Is it about a weights file that cannot be read or does not match the model?
    pub fn is_about_weights(&self) -> bool {
        [3, 4].contains(&self.status)
    }

    /// Is it about the shapes of arguments, or about an index or length computed at run time?
    pub fn is_out_of_bounds(&self) -> bool {
        [2, 6].contains(&self.status)
    }
}

fn error(status: i32, text: impl Into<String>) -> LoadError {
    LoadError { status, text: text.into() }
}

/// Declares the functions that are used, with their names in the table.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// Addresses of functions.
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl Functions {
            /// # Safety
            /// The table must belong to a `model.so` of this ABI version.
            unsafe fn from_table(table: &abi::Functions) -> Result<Functions, LoadError> {
                let address = |name: &str| {
                    let at = abi::FUNCTIONS.iter().position(|known| name.strip_prefix("attnc_") == Some(known));
                    let found = at.and_then(|at| table.functions.get(at)).copied();
                    found.ok_or_else(|| error(-1, format!("the library has no function {name}")))
                };
                // SAFETY: the signatures match the support library.
                unsafe {
                    Ok(Functions {
                        $($name: std::mem::transmute::<*const (), unsafe extern "C" fn($($arg),*) $(-> $result)?>(
                            address(stringify!($name))?
                        ),)*
                    })
                }
            }
        }
    };
}

functions! {
    attnc_info: fn() -> *const c_char;
    attnc_entry_count: fn() -> u64;
    attnc_entry_index: fn(*const c_char) -> i64;
    attnc_entry_name: fn(u64) -> *const c_char;
    attnc_entry_signature: fn(u64) -> *const c_char;
    attnc_argument_count: fn(u64) -> u64;
    attnc_argument_name: fn(u64, u64) -> *const c_char;
    attnc_result_count: fn(u64) -> u64;
    attnc_result_type: fn(u64, u64) -> *const c_char;
    attnc_model_open_on: fn(*const c_char, *const c_char, i32, *mut *mut c_void) -> i32;
    attnc_model_device: fn(*const c_void) -> *const c_char;
    attnc_model_device_note: fn(*const c_void) -> *const c_char;
    attnc_model_close: fn(*mut c_void);
    attnc_model_copy_error: fn(*const c_void, *mut c_char, u64) -> u64;
    attnc_model_variant: fn(*const c_void) -> *const c_char;
    attnc_unused_weight_count: fn(*const c_void) -> u64;
    attnc_unused_weight: fn(*const c_void, u64) -> *const c_char;
    attnc_converted_weight_count: fn(*const c_void) -> u64;
    attnc_converted_weight: fn(*const c_void, u64) -> *const c_char;
    attnc_session_open: fn(*const c_void, *mut *mut c_void) -> i32;
    attnc_session_close: fn(*mut c_void);
    attnc_session_reset: fn(*mut c_void) -> i32;
    attnc_session_poll: fn(*mut c_void, Option<unsafe extern "C" fn(*mut c_void) -> i32>, *mut c_void) -> i32;
    attnc_session_copy_error: fn(*const c_void, *mut c_char, u64) -> u64;
    attnc_session_profile: fn(*mut c_void, i32) -> i32;
    attnc_launch_count: fn(*const c_void) -> u64;
    attnc_launch_nanoseconds: fn(*const c_void, u64) -> i64;
    attnc_launch_points: fn(*const c_void, u64) -> i64;
    attnc_result_shape: fn(*mut c_void, u64, u64, *const *mut DLTensor, u64, *mut i64, u64, *mut i32) -> i32;
    attnc_call: fn(*mut c_void, u64, u64, *const *mut DLTensor, u64, *const *mut DLTensor) -> i32;
    attnc_call_taps: fn(
        *mut c_void, u64, u64, *const *mut DLTensor, u64, *const *mut DLTensor, u64, *const *const c_char, *mut *mut c_void
    ) -> i32;
    attnc_taps_count: fn(*const c_void) -> u64;
    attnc_taps_name: fn(*const c_void, u64) -> *const c_char;
    attnc_taps_tensor: fn(*const c_void, u64) -> *const DLTensor;
    attnc_taps_written: fn(*const c_void, u64) -> i64;
    attnc_taps_close: fn(*mut c_void);
    attnc_state_count: fn() -> u64;
    attnc_state_index: fn(*const c_char) -> i64;
    attnc_state_name: fn(u64) -> *const c_char;
    attnc_state_type: fn(u64) -> *const c_char;
    attnc_state_shape: fn(u64, *mut i64, u64, *mut i32) -> i32;
    attnc_session_state: fn(*mut c_void, u64, *mut c_void, u64) -> i32;
    attnc_session_set_state: fn(*mut c_void, u64, *const c_void, u64) -> i32;
}

/// A `model.so` that is loaded and open.
pub struct CompiledModel {
    handle: *mut c_void,
    functions: Functions,
    /// Declared last, so that it is unloaded last.
    _library: Library,
}

// SAFETY: the runtime's model handle may be used by any thread.
unsafe impl Send for CompiledModel {}
// SAFETY: and by several concurrently.
unsafe impl Sync for CompiledModel {}

/// Maximum rank in shape queries.
const MAX_RANK: usize = 64;

impl CompiledModel {
    /// Loads `so` and opens its model with `weights`. 0 `threads` means one per core.
    ///
    /// # Errors
    /// A file that is not a `model.so` of this version, or weights that do not match.
    ///
    /// # Safety
    /// Loading a shared object executes code in it; `so` must have been made by attnc.
    pub unsafe fn open(so: &Path, weights: Option<&Path>, threads: i32) -> Result<CompiledModel, LoadError> {
        // SAFETY: as the caller promises.
        unsafe { CompiledModel::open_on(so, weights, threads, None) }
    }

    /// The same on a device: `cpu`, `cuda`, `cuda:N` or `auto`; the library's own choice if absent.
    ///
    /// # Errors
    /// As [`CompiledModel::open`], or a device that cannot be used.
    ///
    /// # Safety
    /// As [`CompiledModel::open`].
    pub unsafe fn open_on(
        so: &Path,
        weights: Option<&Path>,
        threads: i32,
        device: Option<&str>,
    ) -> Result<CompiledModel, LoadError> {
        // A bare file name would be searched for in the system's library folders.
        let so = std::path::absolute(so).map_err(|e| error(-1, format!("{}: {e}", so.display())))?;
        // SAFETY: as the caller promises.
        let library = unsafe { Library::new(&so) }.map_err(|e| error(-1, format!("{}: {e}", so.display())))?;
        // SAFETY: a function without arguments, if it exists; its result lives as long as the
        // library.
        let table = unsafe {
            let give = library.get::<unsafe extern "C" fn() -> *const abi::Functions>(LIBRARY_SYMBOL.as_bytes());
            give.ok().and_then(|give| give().as_ref())
        };
        let table = match table {
            Some(table) if table.abi_version == ABI_VERSION => table,
            Some(other) => {
                let message = format!("{} has ABI {}, this attnc has {ABI_VERSION}", so.display(), other.abi_version);
                return Err(error(-1, message));
            }
            None => return Err(error(-1, format!("{} is not a model compiled by attnc", so.display()))),
        };
        // SAFETY: the version determines the functions of the table.
        let functions = unsafe { Functions::from_table(table)? };
        let weights = match weights {
            None => None,
            Some(w) => Some(
                CString::new(w.as_os_str().as_bytes()).map_err(|_| error(-1, "the path of the weights has a NUL"))?,
            ),
        };
        let device = match device.map(CString::new) {
            None => None,
            Some(Ok(device)) => Some(device),
            Some(Err(_)) => return Err(error(-1, "the device's name has a NUL")),
        };
        let mut handle = null_mut();
        let text_of = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        // SAFETY: C strings or null, and an out pointer for the handle.
        let status =
            unsafe { (functions.attnc_model_open_on)(text_of(&device), text_of(&weights), threads, &mut handle) };
        let model = CompiledModel { handle, functions, _library: library };
        if status != 0 {
            // SAFETY: the handle is live until `model` is dropped.
            let text = unsafe { copied(model.functions.attnc_model_copy_error, model.handle) };
            return Err(error(status, text));
        }
        Ok(model)
    }

    /// The human-readable summary in the `.so`.
    pub fn info(&self) -> String {
        // SAFETY: gives a string of the `.so`.
        unsafe { text((self.functions.attnc_info)()) }
    }

    /// Names of the entry points.
    pub fn entries(&self) -> Vec<String> {
        // SAFETY: indices below the count; a string of the `.so`.
        unsafe {
            (0..(self.functions.attnc_entry_count)()).map(|i| text((self.functions.attnc_entry_name)(i))).collect()
        }
    }

    /// Index of an entry point.
    ///
    /// # Errors
    /// There is no entry point of this name.
    pub fn entry(&self, name: &str) -> Result<u64, LoadError> {
        let wanted = CString::new(name).map_err(|_| error(1, "an entry point's name has a NUL"))?;
        // SAFETY: a C string.
        let index = unsafe { (self.functions.attnc_entry_index)(wanted.as_ptr()) };
        u64::try_from(index).map_err(|_| {
            error(1, format!("no entry point `{name}`; the entry points are {}", self.entries().join(", ")))
        })
    }

    /// Signature of an entry point, as in the source.
    pub fn signature(&self, entry: u64) -> String {
        // SAFETY: gives a string of the `.so`, or null.
        unsafe { text((self.functions.attnc_entry_signature)(entry)) }
    }

    /// Names of an entry point's arguments.
    pub fn arguments(&self, entry: u64) -> Vec<String> {
        // SAFETY: indices below the count; a string of the `.so`.
        unsafe {
            let count = (self.functions.attnc_argument_count)(entry);
            (0..count).map(|i| text((self.functions.attnc_argument_name)(entry, i))).collect()
        }
    }

    /// Name of the variant in use.
    pub fn variant(&self) -> String {
        // SAFETY: a live handle; a string of the `.so`.
        unsafe { text((self.functions.attnc_model_variant)(self.handle)) }
    }

    /// The device in use: `cpu`, `cuda:0`.
    pub fn device(&self) -> String {
        // SAFETY: a live handle; a string of the model.
        unsafe { text((self.functions.attnc_model_device)(self.handle)) }
    }

    /// Why the CPU is used although a GPU was an option; empty otherwise.
    pub fn device_note(&self) -> String {
        // SAFETY: as above.
        unsafe { text((self.functions.attnc_model_device_note)(self.handle)) }
    }

    /// Tensors in the weights file that the model does not use.
    pub fn unused_weights(&self) -> Vec<String> {
        // SAFETY: a live handle, indices below the count; the strings live as long as the model.
        unsafe {
            let count = (self.functions.attnc_unused_weight_count)(self.handle);
            (0..count).map(|i| text((self.functions.attnc_unused_weight)(self.handle, i))).collect()
        }
    }

    /// Tensors that were converted to `f32` from `bf16` or `f16` in the weights file.
    pub fn converted_weights(&self) -> Vec<String> {
        // SAFETY: as above.
        unsafe {
            let count = (self.functions.attnc_converted_weight_count)(self.handle);
            (0..count).map(|i| text((self.functions.attnc_converted_weight)(self.handle, i))).collect()
        }
    }

    /// A new session.
    ///
    /// # Errors
    /// Out of memory for its states.
    pub fn session(&self) -> Result<Session<'_>, LoadError> {
        let mut handle = null_mut();
        // SAFETY: a live handle, and an out pointer for the new one.
        let status = unsafe { (self.functions.attnc_session_open)(self.handle, &mut handle) };
        if status != 0 {
            // SAFETY: a live handle.
            return Err(error(status, unsafe { copied(self.functions.attnc_model_copy_error, self.handle) }));
        }
        Ok(Session { model: self, handle, written: Vec::new() })
    }
}

impl Drop for CompiledModel {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and its sessions borrow `self`.
        unsafe { (self.functions.attnc_model_close)(self.handle) };
    }
}

/// # Safety
/// `t` is null or a C string.
unsafe fn text(t: *const c_char) -> String {
    if t.is_null() {
        return String::new();
    }
    // SAFETY: by the contract above.
    unsafe { CStr::from_ptr(t) }.to_string_lossy().into_owned()
}

/// # Safety
/// `f` must be one of the functions that copy an error message, `handle` a handle of its type.
unsafe fn copied(f: unsafe extern "C" fn(*const c_void, *mut c_char, u64) -> u64, handle: *const c_void) -> String {
    // SAFETY: a null buffer asks for the length; the second has space for it and the NUL.
    unsafe {
        let mut bytes = vec![0u8; f(handle, null_mut(), 0) as usize + 1];
        f(handle, bytes.as_mut_ptr().cast(), bytes.len() as u64);
        bytes.pop();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The DLPack type of an element type.
fn dl_type(e: Elem) -> DLDataType {
    let kind = match e {
        Elem::F32 | Elem::F16 => code::FLOAT,
        Elem::BF16 => code::BFLOAT,
        Elem::I8 | Elem::I32 | Elem::I64 => code::INT,
        Elem::Bool => code::BOOL,
    };
    DLDataType { code: kind, bits: (e.size() * 8) as u8, lanes: 1 }
}

/// A [`DLTensor`] over memory of the caller.
struct Borrowed {
    tensor: DLTensor,
    _shape: Box<[i64]>,
}

impl Borrowed {
    fn new(elem: Elem, shape: &[usize], data: *mut u8) -> Borrowed {
        let mut shape: Box<[i64]> = shape.iter().map(|d| i64::try_from(*d).unwrap_or(i64::MAX)).collect();
        let tensor = DLTensor {
            data: data.cast(),
            device: DLDevice { device_type: CPU, device_id: 0 },
            ndim: i32::try_from(shape.len()).unwrap_or(i32::MAX),
            dtype: dl_type(elem),
            shape: shape.as_mut_ptr(),
            strides: null_mut(),
            byte_offset: 0,
        };
        Borrowed { tensor, _shape: shape }
    }

    /// An argument, which the library only reads.
    fn argument(t: &Tensor) -> Borrowed {
        Borrowed::new(t.elem(), t.shape(), t.bytes().as_ptr().cast_mut())
    }
}

/// Memory for a result, before it is a [`Tensor`].
struct Room {
    elem: Elem,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Room {
    fn new(elem: Elem, shape: &[i64]) -> Option<Room> {
        let shape: Vec<usize> = shape.iter().map(|d| usize::try_from(*d).ok()).collect::<Option<_>>()?;
        let size = usize::try_from(elem.size()).ok()?;
        let count = if shape.contains(&0) { 0 } else { shape.iter().try_fold(size, |n, d| n.checked_mul(*d))? };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(count).ok()?;
        bytes.resize(count, 0);
        Some(Room { elem, shape, bytes })
    }

    fn filled(self) -> Option<Tensor> {
        Tensor::new(self.elem, self.shape, self.bytes)
    }
}

fn pointers(tensors: &mut [Borrowed]) -> Vec<*mut DLTensor> {
    tensors.iter_mut().map(|t| &raw mut t.tensor).collect()
}

/// Taps by path, in program order.
pub type Taps = Vec<(String, Tensor)>;

/// A session of an open model.
pub struct Session<'m> {
    model: &'m CompiledModel,
    handle: *mut c_void,
    /// See [`Session::written`].
    written: Vec<(String, u64)>,
}

// SAFETY: a session may be used by any thread, one call at a time, which `&mut self` and the
// runtime's lock ensure.
unsafe impl Send for Session<'_> {}

impl Session<'_> {
    fn error(&self, status: i32) -> LoadError {
        // SAFETY: a live handle.
        error(status, unsafe { copied(self.model.functions.attnc_session_copy_error, self.handle) })
    }

    /// Zeroes all states of the session, as is required after a failed call that sets states.
    ///
    /// # Errors
    /// None in practice.
    pub fn reset(&mut self) -> Result<(), LoadError> {
        // SAFETY: a live handle.
        match unsafe { (self.model.functions.attnc_session_reset)(self.handle) } {
            0 => Ok(()),
            status => Err(self.error(status)),
        }
    }

    /// Interrupts calls with an error soon after `stop` becomes true.
    ///
    /// # Errors
    /// None in practice.
    pub fn end_when(&mut self, stop: &'static AtomicBool) -> Result<(), LoadError> {
        unsafe extern "C" fn ask(stop: *mut c_void) -> i32 {
            // SAFETY: `end_when` passed a reference of static lifetime, which is only read.
            i32::from(unsafe { &*stop.cast::<AtomicBool>().cast_const() }.load(Ordering::Relaxed))
        }
        let context = std::ptr::from_ref(stop).cast_mut().cast();
        // SAFETY: a live handle; `ask` may be called with `context` at any time.
        match unsafe { (self.model.functions.attnc_session_poll)(self.handle, Some(ask), context) } {
            0 => Ok(()),
            status => Err(self.error(status)),
        }
    }

    /// Switches the timing of kernel launches on or off, from the next call on.
    ///
    /// # Errors
    /// None in practice.
    pub fn profile(&mut self, on: bool) -> Result<(), LoadError> {
        // SAFETY: a live handle.
        match unsafe { (self.model.functions.attnc_session_profile)(self.handle, i32::from(on)) } {
            0 => Ok(()),
            status => Err(self.error(status)),
        }
    }

    /// The launches of the last call in order, if timed: grid points and nanoseconds.
    pub fn launches(&self) -> Vec<(i64, i64)> {
        let f = &self.model.functions;
        // SAFETY: a live handle; any index is answered.
        unsafe {
            (0..(f.attnc_launch_count)(self.handle))
                .map(|i| ((f.attnc_launch_points)(self.handle, i), (f.attnc_launch_nanoseconds)(self.handle, i)))
                .collect()
        }
    }

    /// Calls an entry point.
    ///
    /// # Errors
    /// Invalid arguments, or a failure while running.
    pub fn call(&mut self, entry: u64, args: &[Tensor]) -> Result<Vec<Tensor>, LoadError> {
        Ok(self.call_with_taps(entry, args, &[])?.0)
    }

    /// Calls an entry point and requests the taps that match `globs`.
    ///
    /// # Errors
    /// As [`Session::call`]; a glob that matches no tap.
    pub fn call_with_taps(
        &mut self,
        entry: u64,
        args: &[Tensor],
        globs: &[&str],
    ) -> Result<(Vec<Tensor>, Taps), LoadError> {
        let mut args: Vec<Borrowed> = args.iter().map(Borrowed::argument).collect();
        let args = pointers(&mut args);
        let mut results = self.make_results(entry, &args)?;
        let mut borrowed: Vec<Borrowed> =
            results.iter_mut().map(|r| Borrowed::new(r.elem, &r.shape, r.bytes.as_mut_ptr())).collect();
        let outs = pointers(&mut borrowed);
        let globs: Vec<CString> = globs
            .iter()
            .map(|g| CString::new(*g).map_err(|_| error(1, "a tap's name has a NUL")))
            .collect::<Result<_, _>>()?;
        let glob_pointers: Vec<*const c_char> = globs.iter().map(|g| g.as_ptr()).collect();
        let mut taps = null_mut();
        let f = &self.model.functions;
        // SAFETY: lists of live tensors and strings with their counts.
        let status = unsafe {
            (f.attnc_call_taps)(
                self.handle,
                entry,
                args.len() as u64,
                args.as_ptr(),
                outs.len() as u64,
                outs.as_ptr(),
                glob_pointers.len() as u64,
                glob_pointers.as_ptr(),
                &mut taps,
            )
        };
        if status != 0 {
            return Err(self.error(status));
        }
        // SAFETY: taps of this call or null; closed after their last use.
        let (found, written) = unsafe {
            let name = |i| text((f.attnc_taps_name)(taps, i));
            let count = (f.attnc_taps_count)(taps);
            let found = (0..count).filter_map(|i| Some((name(i), owned((f.attnc_taps_tensor)(taps, i))?))).collect();
            let steps = |i| u64::try_from((f.attnc_taps_written)(taps, i)).unwrap_or(0);
            let written = (0..count).map(|i| (name(i), steps(i))).collect();
            (f.attnc_taps_close)(taps);
            (found, written)
        };
        self.written = written;
        let results: Option<Vec<Tensor>> = results.into_iter().map(Room::filled).collect();
        Ok((results.ok_or_else(|| error(8, "the results do not match their types"))?, found))
    }

    /// For each tap of the last call with taps, the number of iterations of loops over time that
    /// wrote it: 0 if the call did not reach it; outside of loops, 1.
    pub fn written(&self) -> &[(String, u64)] {
        &self.written
    }

    /// Prepares repeated calls of an entry point with the same arguments and the same result
    /// buffers.
    ///
    /// # Errors
    /// Invalid arguments.
    pub fn repeat<'s>(&'s mut self, entry: u64, args: &'s [Tensor]) -> Result<Repeated<'s>, LoadError> {
        let mut borrowed: Vec<Borrowed> = args.iter().map(Borrowed::argument).collect();
        let args = pointers(&mut borrowed);
        let mut results = self.make_results(entry, &args)?;
        borrowed.extend(results.iter_mut().map(|r| Borrowed::new(r.elem, &r.shape, r.bytes.as_mut_ptr())));
        let (count, mut tensors) = (args.len(), pointers(&mut borrowed));
        let outs = tensors.split_off(count);
        Ok(Repeated { session: self, entry, args: tensors, outs, _borrowed: borrowed, _results: results })
    }

    /// Allocates the results.
    fn make_results(&self, entry: u64, args: &[*mut DLTensor]) -> Result<Vec<Room>, LoadError> {
        let f = &self.model.functions;
        // SAFETY: takes any index.
        let count = unsafe { (f.attnc_result_count)(entry) };
        let mut results = Vec::new();
        for i in 0..count {
            let mut shape = [0i64; MAX_RANK];
            let mut rank = 0;
            // SAFETY: live tensors; space for `capacity` axes.
            let status = unsafe {
                let (capacity, n) = (shape.len() as u64, args.len() as u64);
                (f.attnc_result_shape)(self.handle, entry, n, args.as_ptr(), i, shape.as_mut_ptr(), capacity, &mut rank)
            };
            if status != 0 {
                return Err(self.error(status));
            }
            // SAFETY: a string of the `.so`.
            let elem = Elem::from_name(&unsafe { text((f.attnc_result_type)(entry, i)) });
            let shape = shape.get(..usize::try_from(rank).unwrap_or(0)).unwrap_or_default();
            match elem.and_then(|e| Room::new(e, shape)) {
                Some(t) => results.push(t),
                None => return Err(error(5, "out of memory for the results")),
            }
        }
        Ok(results)
    }
}

/// A call that is repeated.
pub struct Repeated<'s> {
    session: &'s Session<'s>,
    entry: u64,
    args: Vec<*mut DLTensor>,
    outs: Vec<*mut DLTensor>,
    /// Referents of the pointers.
    _borrowed: Vec<Borrowed>,
    _results: Vec<Room>,
}

impl Repeated<'_> {
    /// Calls again.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn call(&mut self) -> Result<(), LoadError> {
        self.enter(self.entry, &self.args, &self.outs)
    }

    /// Calls another entry point of the session, without arguments and results.
    ///
    /// # Errors
    /// As [`Session::call`].
    pub fn call_between(&mut self, entry: u64) -> Result<(), LoadError> {
        self.enter(entry, &[], &[])
    }

    fn enter(&self, entry: u64, args: &[*mut DLTensor], outs: &[*mut DLTensor]) -> Result<(), LoadError> {
        // SAFETY: a live handle; lists of tensors that live as long as `self`, with their counts.
        let status = unsafe {
            let f = &self.session.model.functions;
            let (arg_count, out_count) = (args.len() as u64, outs.len() as u64);
            (f.attnc_call)(self.session.handle, entry, arg_count, args.as_ptr(), out_count, outs.as_ptr())
        };
        if status == 0 { Ok(()) } else { Err(self.session.error(status)) }
    }

    /// [`Session::launches`].
    pub fn launches(&self) -> Vec<(i64, i64)> {
        self.session.launches()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: a live handle, not used again.
        unsafe { (self.model.functions.attnc_session_close)(self.handle) };
    }
}

/// Copies a contiguous tensor of the runtime.
///
/// # Safety
/// `t` must be null or such a tensor.
unsafe fn owned(t: *const DLTensor) -> Option<Tensor> {
    // SAFETY: by the contract above.
    let t = unsafe { t.as_ref() }?;
    let elem = Elem::ALL.into_iter().find(|e| dl_type(*e) == t.dtype)?;
    // SAFETY: the runtime's tensors have `ndim` extents.
    let shape = unsafe { std::slice::from_raw_parts(t.shape, usize::try_from(t.ndim).ok()?) };
    let mut copy = Room::new(elem, shape)?;
    // SAFETY: contiguous, and as large as its shape says.
    unsafe { std::ptr::copy_nonoverlapping(t.data.cast::<u8>(), copy.bytes.as_mut_ptr(), copy.bytes.len()) };
    copy.filled()
}
