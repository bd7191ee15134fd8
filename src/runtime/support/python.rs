//! `import model` where `model.so` and `model.py` lie side by side.
//!
//! Python takes a `.so` for an extension module and prefers it to the `.py` of the same name. So the library is one: the
//! linker gives it `PyInit_<stem>` as a second name of [`attnc_python_init`] (`link.rs`), and the module that Python
//! gets is the wrapper, `model.py`, loaded from its place beside the library.
//!
//! Nothing here needs Python: its C functions are looked up in the process that is importing, and no other calls this.
//! Only what is the same in every CPython since 3.5 is used; it must not know what the wrapper does.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Object = *mut c_void;

/// What is run in place of a module's code, with `spec` from the import system; it leaves `module`.
const LOAD_WRAPPER: &CStr = c"
from importlib.util import module_from_spec, spec_from_file_location
place = spec_from_file_location(spec.name, spec.origin[:-3] + '.py')
module = module_from_spec(place)
place.loader.exec_module(module)
";

/// CPython's `PyModuleDef` (PEP 489), its head included.
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

// SAFETY: Python alone touches the definition, under its own lock.
unsafe impl<T> Sync for Shared<T> {}

/// `Py_mod_create`: the function below makes the module; then the end of the list.
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

/// One of Python's functions, or null where there is none of this name.
fn python(name: &CStr) -> *mut c_void {
    // SAFETY: a null library means all that the process has loaded.
    unsafe { dlsym(null_mut(), name.as_ptr()) }
}

/// What Python calls first, as `PyInit_<stem>`: hands over the definition.
#[unsafe(no_mangle)]
pub extern "C" fn attnc_python_init() -> Object {
    let init = python(c"PyModuleDef_Init");
    if init.is_null() {
        return null_mut();
    }
    // SAFETY: `PyObject *PyModuleDef_Init(PyModuleDef *)`, and the definition lives as long as the library.
    unsafe { transmute::<*mut c_void, extern "C" fn(*mut ModuleDef) -> Object>(init)(DEFINITION.0.get()) }
}

/// Makes the module: runs the wrapper beside the library. Null with Python's exception set where that fails.
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
    // SAFETY: these are the signatures of Python's documented functions; Python's lock is held by the import.
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
