//! `import model` with `model.so` and `model.py` in the same folder.
//!
//! Python treats a `.so` as an extension module and prefers it to a `.py` of the same name. So the
//! library is one: the linker adds `PyInit_<stem>` as an alias of [`attnc_python_init`]
//! (`link.rs`), and the resulting module is the wrapper `model.py`, loaded from the folder of the
//! library.
//!
//! Also calls from Python that a signal can interrupt: [`attnc_python_call`].
//!
//! Nothing here depends on libpython: its C functions are looked up in the importing process. Only
//! functions that are the same in every CPython since 3.5 are used; the contents of the wrapper
//! must not be known here.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::dlpack::{DLManagedTensor, DLTensor};
use crate::entry::{CallParams, call_taps};
use crate::handle::Session;
use crate::request::Poll;
use crate::sys::is_first_thread;
use crate::taps::Taps;

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Object = *mut c_void;

/// Executed in place of a module's code, with `spec` from the import system; defines `module`.
const LOAD_WRAPPER: &CStr = c"
import os, sys
from importlib.util import module_from_spec, spec_from_file_location
class Reload:
    'Where a module that was made below is reloaded, finds its wrapper; Python would find the library, and keep it as it is.'
    attnc = True
    @staticmethod
    def find_spec(name, path=None, target=None):
        wrapper = getattr(target, '__attnc_wrapper__', None)
        return spec_from_file_location(name, wrapper) if wrapper else None
if not any(getattr(finder, 'attnc', False) for finder in sys.meta_path):
    sys.meta_path.insert(0, Reload)
path = os.path.join(os.path.dirname(spec.origin), spec.name.rpartition('.')[2] + '.py')
if not os.path.isfile(path):
    raise ImportError('%s is a model compiled by attnc, but its Python wrapper %s is missing: generate it with `--emit python`'
                      % (spec.origin, path), name=spec.name, path=spec.origin)
place = spec_from_file_location(spec.name, path)
module = module_from_spec(place)
place.loader.exec_module(module)
module.__attnc_wrapper__ = path
";

/// CPython's `PyModuleDef` (PEP 489), including its head.
#[repr(C)]
struct ModuleDef {
    refcount: isize,
    kind: Object,
    init: *mut c_void,
    index: isize,
    copy: *mut c_void,
    name: *const c_char,
    doc: *const c_char,
    size: isize,
    methods: *mut c_void,
    slots: *const Slot,
    traverse: *mut c_void,
    clear: *mut c_void,
    free: *mut c_void,
}

/// CPython's `PyModuleDef_Slot`.
#[repr(C)]
struct Slot {
    id: c_int,
    value: *const c_void,
}

#[repr(transparent)]
struct Shared<T>(UnsafeCell<T>);

// SAFETY: only Python accesses the definition, under the GIL.
unsafe impl<T> Sync for Shared<T> {}

/// `Py_mod_create`, whose function makes the module, and the terminator.
static SLOTS: Shared<[Slot; 2]> =
    Shared(UnsafeCell::new([Slot { id: 1, value: create as *const c_void }, Slot { id: 0, value: null_mut() }]));

static DEFINITION: Shared<ModuleDef> = Shared(UnsafeCell::new(ModuleDef {
    refcount: 1,
    kind: null_mut(),
    init: null_mut(),
    index: 0,
    copy: null_mut(),
    name: c"attnc_model".as_ptr(),
    doc: null_mut(),
    size: 0,
    methods: null_mut(),
    slots: SLOTS.0.get().cast(),
    traverse: null_mut(),
    clear: null_mut(),
    free: null_mut(),
}));

/// One of Python's functions, or null if there is no function of this name.
fn python(name: &CStr) -> *mut c_void {
    // SAFETY: a null handle searches everything that the process has loaded.
    unsafe { dlsym(null_mut(), name.as_ptr()) }
}

/// The module's initialisation function `PyInit_<stem>`: returns the definition.
#[unsafe(no_mangle)]
pub extern "C" fn attnc_python_init() -> Object {
    let init = python(c"PyModuleDef_Init");
    if init.is_null() {
        return null_mut();
    }
    // SAFETY: `PyObject *PyModuleDef_Init(PyModuleDef *)`, and the definition lives as long as the
    // library.
    unsafe { transmute::<*mut c_void, extern "C" fn(*mut ModuleDef) -> Object>(init)(DEFINITION.0.get()) }
}

/// Makes the module: runs the wrapper beside the library. Returns null with a Python exception set
/// on failure.
extern "C" fn create(spec: Object, _: *mut ModuleDef) -> Object {
    const FILE_INPUT: c_int = 257;
    let functions = [
        python(c"PyDict_New"),
        python(c"PyDict_SetItemString"),
        python(c"PyRun_String"),
        python(c"PyDict_GetItemString"),
        python(c"Py_IncRef"),
        python(c"Py_DecRef"),
        python(c"PyEval_GetBuiltins"),
    ];
    if functions.iter().any(|function| function.is_null()) {
        return null_mut();
    }
    let [new, set, run, get, keep, release, builtins] = functions;
    // SAFETY: these are the signatures of Python's documented functions; the import holds the GIL.
    unsafe {
        let new = transmute::<*mut c_void, extern "C" fn() -> Object>(new);
        let set = transmute::<*mut c_void, extern "C" fn(Object, *const c_char, Object) -> c_int>(set);
        let run = transmute::<*mut c_void, extern "C" fn(*const c_char, c_int, Object, Object) -> Object>(run);
        let get = transmute::<*mut c_void, extern "C" fn(Object, *const c_char) -> Object>(get);
        let keep = transmute::<*mut c_void, extern "C" fn(Object)>(keep);
        let release = transmute::<*mut c_void, extern "C" fn(Object)>(release);
        let builtins = transmute::<*mut c_void, extern "C" fn() -> Object>(builtins);
        let names = new();
        if names.is_null() {
            return null_mut();
        }
        let mut module = null_mut();
        if set(names, c"spec".as_ptr(), spec) == 0 && set(names, c"__builtins__".as_ptr(), builtins()) == 0 {
            let done = run(LOAD_WRAPPER.as_ptr(), FILE_INPUT, names, names);
            if !done.is_null() {
                release(done);
                module = get(names, c"module".as_ptr());
                keep(module);
            }
        }
        release(names);
        module
    }
}

/// Python's functions needed during a call.
struct Interpreter {
    save: extern "C" fn() -> Object,
    restore: extern "C" fn(Object),
    check_signals: extern "C" fn() -> c_int,
    /// The thread state that `save` returned.
    thread: Object,
}

/// [`attnc_call_taps`](crate::entry::attnc_call_taps) for CPython: called with the GIL held, which
/// is released during the call. On the main thread, where Python runs signal handlers, they also
/// run during the call. If one raises an exception, the call ends with it set.
///
/// # Safety
/// As `attnc_call_taps`; the GIL is held.
pub(crate) unsafe extern "C" fn attnc_python_call(
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
    let (save, restore, check) = PYTHON.get();
    if save.is_null() || restore.is_null() || check.is_null() {
        // SAFETY: by the contract above.
        return unsafe { call_taps(session, &given, None) };
    }
    // SAFETY: these are the signatures of Python's documented functions; the GIL is held until
    // `save`, and again after `restore`.
    unsafe {
        let mut python = Interpreter {
            save: transmute::<*mut c_void, extern "C" fn() -> Object>(save),
            restore: transmute::<*mut c_void, extern "C" fn(Object)>(restore),
            check_signals: transmute::<*mut c_void, extern "C" fn() -> c_int>(check),
            thread: null_mut(),
        };
        python.thread = (python.save)();
        let poll = Poll { ask: run_handlers, context: (&raw mut python).cast() };
        let status = call_taps(session, &given, Some(poll));
        (python.restore)(python.thread);
        status
    }
}

/// Name of a DLPack capsule until its tensor is consumed.
const CAPSULE: &CStr = c"dltensor";

/// Wraps a result of [`attnc_call_on_device`](crate::entry::attnc_call_on_device) in a DLPack
/// capsule: the tensor is freed with the capsule, unless it was consumed before. Returns null, with
/// a Python exception set, if out of memory.
///
/// # Safety
/// `tensor` is such a result, and ownership passes to the capsule; the GIL is held.
pub(crate) unsafe extern "C" fn attnc_python_capsule(tensor: *mut DLManagedTensor) -> Object {
    let new = python(c"PyCapsule_New");
    if new.is_null() || tensor.is_null() {
        return null_mut();
    }
    type New = unsafe extern "C" fn(*mut c_void, *const c_char, unsafe extern "C" fn(Object)) -> Object;
    // SAFETY: the signature of Python's documented function.
    unsafe { transmute::<*mut c_void, New>(new)(tensor.cast(), CAPSULE.as_ptr(), free_capsule) }
}

/// Destructor of a capsule.
unsafe extern "C" fn free_capsule(capsule: Object) {
    let (is_valid, get) = (python(c"PyCapsule_IsValid"), python(c"PyCapsule_GetPointer"));
    if is_valid.is_null() || get.is_null() {
        return;
    }
    // SAFETY: the signatures of Python's documented functions; a capsule that still has its name
    // still owns its tensor.
    unsafe {
        let is_valid = transmute::<*mut c_void, unsafe extern "C" fn(Object, *const c_char) -> c_int>(is_valid);
        let get = transmute::<*mut c_void, unsafe extern "C" fn(Object, *const c_char) -> *mut c_void>(get);
        if is_valid(capsule, CAPSULE.as_ptr()) == 0 {
            return;
        }
        let tensor = get(capsule, CAPSULE.as_ptr()).cast::<DLManagedTensor>();
        if let Some(free) = tensor.as_ref().and_then(|t| t.deleter) {
            free(tensor);
        }
    }
}

/// Runs pending signal handlers; returns non-zero if one raised an exception.
unsafe extern "C" fn run_handlers(context: *mut c_void) -> i32 {
    if !is_first_thread() {
        return 0;
    }
    // SAFETY: the context of `attnc_python_call`, on its thread.
    unsafe {
        let python = context.cast::<Interpreter>();
        ((*python).restore)((*python).thread);
        let raised = ((*python).check_signals)();
        (*python).thread = ((*python).save)();
        raised
    }
}

/// Addresses of `PyEval_SaveThread`, `PyEval_RestoreThread` and `PyErr_CheckSignals`, looked up
/// once.
struct Found {
    looked: AtomicBool,
    addresses: [AtomicPtr<c_void>; 3],
}

static PYTHON: Found = Found {
    looked: AtomicBool::new(false),
    addresses: [AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut())],
};

impl Found {
    fn get(&self) -> (*mut c_void, *mut c_void, *mut c_void) {
        let [save, restore, check] = &self.addresses;
        if !self.looked.load(Ordering::Acquire) {
            save.store(python(c"PyEval_SaveThread"), Ordering::Relaxed);
            restore.store(python(c"PyEval_RestoreThread"), Ordering::Relaxed);
            check.store(python(c"PyErr_CheckSignals"), Ordering::Relaxed);
            self.looked.store(true, Ordering::Release);
        }
        (save.load(Ordering::Relaxed), restore.load(Ordering::Relaxed), check.load(Ordering::Relaxed))
    }
}
