//! Targets that call compiled libraries: on memory that ends at a page which nobody may touch.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use attnc::codegen::cpu::{self, EmitOptions, Tier};
use attnc::codegen::{self, Generator, descriptor};
use attnc::passes;
use attnc::runtime::abi::{ABI_VERSION, FUNCTIONS, Functions, LIBRARY_SYMBOL};
use attnc::runtime::descriptor::features_of;
use attnc::runtime::dlpack::{CPU, DLDataType, DLDevice, DLManagedTensor, DLTensor, code};
use attnc::runtime::{link, processor};
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::{self, Cpu, WeightFormat};
use attnc::{ir, lowering};
use libloading::Library;

use super::texts;

/// A model with states, taps, loops, indices and all element types.
const MODEL: &str = include_str!("../../tests/cuda/small.attn");

/// A folder for the files of this process.
pub(super) fn scratch() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::Builder::new().prefix("attnc-fuzz").tempdir().expect("a folder").keep())
}

/// The best instruction set that this processor has.
fn best() -> Cpu {
    let runs = |level: &&Cpu| features_of(&level.name()).is_some_and(processor::can_run);
    *cpu::levels().iter().find(runs).unwrap_or(&Cpu::PORTABLE)
}

/// An open library and its table of functions.
struct Model {
    table: &'static Functions,
    /// Last, so that it is unloaded last.
    _library: Library,
}

impl Model {
    /// Compiles verified tile IR, links and loads it.
    fn compiled(module: &tile::Module, level: Cpu, path: &Path) -> Option<Model> {
        let verified = tile::verify::verify(module).ok()?;
        let host = cpu::Arch::host().triple().to_string();
        let model = descriptor::describe(&module.interface(), "Fuzz", "", &host).ok()?;
        let tiers = [Tier { level, module: verified, gpu: None }];
        let code = codegen::compile(Generator::Cranelift, &tiers, &model, EmitOptions::default()).ok()?;
        link::link(&code.objects(), path).expect("a linker");
        // SAFETY: linked just above.
        let library = unsafe { Library::new(path) }.expect("a library that loads");
        // SAFETY: the symbol has this type in every library that attnc makes; its table lives as long as the library.
        let table = unsafe {
            let give =
                library.get::<unsafe extern "C" fn() -> *const Functions>(LIBRARY_SYMBOL.as_bytes()).expect("a table");
            &*give()
        };
        assert_eq!(table.abi_version, ABI_VERSION);
        Some(Model { table, _library: library })
    }

    /// A function of the interface, of the type that `runtime.h` declares for this name.
    ///
    /// # Safety
    /// `F` is that type.
    unsafe fn function<F: Copy>(&self, name: &str) -> F {
        let at = FUNCTIONS.iter().position(|known| *known == name).expect("a function of the interface");
        assert_eq!(size_of::<F>(), size_of::<*const ()>());
        // SAFETY: as the caller promises; both are addresses.
        unsafe { std::mem::transmute_copy(&self.table.functions[at]) }
    }
}

/// Memory that ends right before a page which nobody may touch; another such page lies before its first.
struct Guarded {
    pages: *mut u8,
    length: usize,
    data: *mut u8,
}

const PAGE: usize = 4096;

impl Guarded {
    fn new(bytes: &[u8]) -> Guarded {
        let inner = bytes.len().div_ceil(PAGE) * PAGE;
        let length = inner + 2 * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages, of which the inner ones are made accessible; `bytes` fit them.
        unsafe {
            let pages = libc::mmap(null_mut(), length, libc::PROT_NONE, flags, -1, 0);
            assert!(pages != libc::MAP_FAILED, "no memory");
            let pages = pages.cast::<u8>();
            if inner > 0 {
                let status = libc::mprotect(pages.add(PAGE).cast(), inner, libc::PROT_READ | libc::PROT_WRITE);
                assert_eq!(status, 0, "no memory");
            }
            let data = pages.add(PAGE + inner - bytes.len());
            data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            Guarded { pages, length, data }
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the pages that `new` made; nobody uses them any more.
        unsafe { libc::munmap(self.pages.cast(), self.length) };
    }
}

/// A tensor in guarded memory, with the arrays that its description points to.
struct Argument {
    tensor: DLTensor,
    _shape: Vec<i64>,
    _strides: Option<Vec<i64>>,
    _data: Guarded,
}

impl Argument {
    fn new(dtype: DLDataType, mut shape: Vec<i64>, mut strides: Option<Vec<i64>>, data: &[u8]) -> Box<Argument> {
        let memory = Guarded::new(data);
        let tensor = DLTensor {
            data: memory.data.cast(),
            device: DLDevice { device_type: CPU, device_id: 0 },
            ndim: i32::try_from(shape.len()).unwrap_or(0),
            dtype,
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut().map_or(null_mut(), |strides| strides.as_mut_ptr()),
            byte_offset: 0,
        };
        Box::new(Argument { tensor, _shape: shape, _strides: strides, _data: memory })
    }

    fn of(tensor: &Tensor) -> Box<Argument> {
        let (code, bits) = kind(tensor.elem());
        let shape = tensor.shape().iter().map(|n| i64::try_from(*n).unwrap_or(0)).collect();
        Argument::new(DLDataType { code, bits, lanes: 1 }, shape, None, tensor.bytes())
    }
}

fn kind(elem: Elem) -> (u8, u8) {
    match elem {
        Elem::F32 => (code::FLOAT, 32),
        Elem::BF16 => (code::BFLOAT, 16),
        Elem::F16 => (code::FLOAT, 16),
        Elem::I8 => (code::INT, 8),
        Elem::I32 => (code::INT, 32),
        Elem::I64 => (code::INT, 64),
        Elem::Bool => (code::BOOL, 8),
    }
}

type Open = unsafe extern "C" fn(*const c_char, i32, *mut *mut c_void) -> i32;
type Close = unsafe extern "C" fn(*mut c_void);
type OpenSession = unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> i32;
type Reset = unsafe extern "C" fn(*mut c_void) -> i32;
type CopyError = unsafe extern "C" fn(*const c_void, *mut c_char, u64) -> u64;
type EntryIndex = unsafe extern "C" fn(*const c_char) -> i64;
type Count = unsafe extern "C" fn(u64) -> u64;
type ResultShape =
    unsafe extern "C" fn(*mut c_void, u64, u64, *const *mut DLTensor, u64, *mut i64, u64, *mut i32) -> i32;
type CallOwned =
    unsafe extern "C" fn(*mut c_void, u64, u64, *const *mut DLTensor, u64, *mut *mut DLManagedTensor) -> i32;
type CallTaps = unsafe extern "C" fn(
    *mut c_void,
    u64,
    u64,
    *const *mut DLTensor,
    u64,
    *const *mut DLTensor,
    u64,
    *const *const c_char,
    *mut *mut c_void,
) -> i32;

/// Compiles tile IR and calls its entry points with these arguments: each call must succeed or fail as it did before.
pub(super) fn called_alike(module: &tile::Module, calls: &BTreeMap<String, (Vec<Tensor>, bool)>) {
    let level =
        module.kernels.iter().find_map(|k| if let tile::State::Cpu(level) = k.state { Some(level) } else { None });
    let level = level.unwrap_or(Cpu::PORTABLE);
    if !features_of(&level.name()).is_some_and(processor::can_run) {
        return;
    }
    let path = scratch().join("called.so");
    let Some(model) = Model::compiled(module, level, &path) else { return };
    let session = Session::open(&model, null());
    for (name, (args, succeeds)) in calls {
        let args: Vec<Box<Argument>> = args.iter().map(Argument::of).collect();
        let status = session.call_owned(session.entry(name), &args);
        assert_eq!(
            status == 0,
            *succeeds,
            "`{name}` fails in one of interpreter and compiled code: {}",
            session.error()
        );
    }
}

/// A session of a model that is opened for it alone.
struct Session<'m> {
    model: &'m Model,
    handle: *mut c_void,
    session: *mut c_void,
}

impl<'m> Session<'m> {
    fn open(model: &'m Model, weights: *const c_char) -> Session<'m> {
        let (mut handle, mut session) = (null_mut(), null_mut());
        // SAFETY: the types are those of `runtime.h`; places for the handles.
        unsafe {
            if model.function::<Open>("model_open")(weights, 1, &mut handle) == 0 {
                model.function::<OpenSession>("session_open")(handle, &mut session);
            }
        }
        Session { model, handle, session }
    }

    fn entry(&self, name: &str) -> u64 {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: a C string.
        let index = unsafe { self.model.function::<EntryIndex>("entry_index")(name.as_ptr()) };
        u64::try_from(index).unwrap_or(u64::MAX)
    }

    fn error(&self) -> String {
        let mut buffer = [0u8; 512];
        // SAFETY: as many bytes as said; a null handle is answered too.
        unsafe {
            let copy = self.model.function::<CopyError>("session_copy_error");
            copy(self.session, buffer.as_mut_ptr().cast(), buffer.len() as u64);
        }
        String::from_utf8_lossy(&buffer).trim_end_matches('\0').to_string()
    }

    fn call_owned(&self, entry: u64, args: &[Box<Argument>]) -> i32 {
        let args: Vec<*mut DLTensor> = args.iter().map(|a| (&raw const a.tensor).cast_mut()).collect();
        // SAFETY: live tensors that describe memory of theirs; a place for each result, which its deleter releases.
        unsafe {
            let count = self.model.function::<Count>("result_count")(entry);
            let mut results = vec![null_mut::<DLManagedTensor>(); usize::try_from(count).unwrap_or(0)];
            let call = self.model.function::<CallOwned>("call_owned");
            let status =
                call(self.session, entry, args.len() as u64, args.as_ptr(), results.len() as u64, results.as_mut_ptr());
            for result in results.into_iter().filter(|result| status == 0 && !result.is_null()) {
                if let Some(deleter) = (*result).deleter {
                    deleter(result);
                }
            }
            status
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: handles that nobody uses any more, or null.
        unsafe {
            self.model.function::<Close>("session_close")(self.session);
            self.model.function::<Close>("model_close")(self.handle);
        }
    }
}

/// The fixed model, compiled once.
fn fixed() -> &'static Model {
    static MODEL_: OnceLock<Model> = OnceLock::new();
    MODEL_.get_or_init(|| {
        let mut module = texts::lowered(MODEL).expect("the model checks");
        passes::optimise(&mut module, &passes::Options::default(), &mut passes::Collected::default())
            .expect("the passes");
        let tiles = lowering::tile::lower(ir::verify(&module).expect("graph IR")).expect("tile IR");
        let tiles = tile::schedule(&tiles, best(), &WeightFormat::F32.into()).expect("a schedule");
        Model::compiled(&tiles.into_module(), best(), &scratch().join("fixed.so")).expect("a library")
    })
}

/// Opens the fixed model with a file of weights, which it may refuse.
pub(super) fn open_with(weights: &Path) {
    let path = CString::new(weights.as_os_str().as_encoded_bytes()).expect("a path without NUL");
    drop(Session::open(fixed(), path.as_ptr()));
}

/// The weights that the fixed model wants.
pub(super) fn fixed_weights() -> Vec<u8> {
    let tensor = |shape: [usize; 2]| -> (Vec<usize>, Vec<u8>) {
        let count = shape[0] * shape[1];
        (shape.to_vec(), (0..count).flat_map(|i| (i as f32 / 4.0 - 1.0).to_le_bytes()).collect())
    };
    let all = [("table", tensor([5, 4])), ("weight", tensor([4, 4]))];
    let views = all.iter().map(|(name, (shape, bytes))| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
        (*name, view.expect("a tensor"))
    });
    safetensors::serialize(views, None).expect("weights")
}

/// Bytes as decisions; zeros where they end.
struct Decisions<'d>(&'d [u8]);

impl Decisions<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// A number that is often one of 0 to `usual`, and sometimes anything.
    fn number(&mut self, usual: i64) -> i64 {
        match self.byte() {
            255 => i64::from_le_bytes(std::array::from_fn(|_| self.byte())),
            n => i64::from(n) % (usual + 1),
        }
    }
}

/// Calls of the C interface with tensors of any description, on guarded memory.
pub(super) fn interface(data: &[u8]) {
    static WEIGHTS: OnceLock<CString> = OnceLock::new();
    let weights = WEIGHTS.get_or_init(|| {
        let path = scratch().join("fixed.safetensors");
        std::fs::write(&path, fixed_weights()).expect("a file");
        CString::new(path.as_os_str().as_encoded_bytes()).expect("a path without NUL")
    });
    let model = fixed();
    let mut decisions = Decisions(data);
    let session = Session::open(model, weights.as_ptr());
    for _ in 0..16 {
        if decisions.0.is_empty() {
            break;
        }
        step(&session, &mut decisions);
    }
    session.error();
}

fn step(s: &Session<'_>, d: &mut Decisions<'_>) {
    let action = d.byte() % 4;
    let entry = d.number(12).cast_unsigned();
    if action == 0 {
        // SAFETY: a live handle.
        unsafe { s.model.function::<Reset>("session_reset")(s.session) };
        return;
    }
    let count = d.number(6).clamp(0, 8);
    let args: Vec<Box<Argument>> = (0..count).map(|_| argument(d)).collect();
    let pointers: Vec<*mut DLTensor> = args.iter().map(|a| (&raw const a.tensor).cast_mut()).collect();
    if action == 1 {
        s.call_owned(entry, &args);
        return;
    }
    let (mut shape, mut rank) = ([0i64; 4], 0);
    // SAFETY: live tensors that describe memory of theirs; as much space as said.
    unsafe {
        let query = s.model.function::<ResultShape>("result_shape");
        let (n, which) = (pointers.len() as u64, d.number(2).cast_unsigned());
        query(s.session, entry, n, pointers.as_ptr(), which, shape.as_mut_ptr(), shape.len() as u64, &mut rank);
    }
    let results: Vec<Box<Argument>> = (0..d.number(3).clamp(0, 4)).map(|_| argument(d)).collect();
    let outs: Vec<*mut DLTensor> = results.iter().map(|a| (&raw const a.tensor).cast_mut()).collect();
    let patterns = [c"*".as_ptr(), c"y".as_ptr(), c"[".as_ptr()];
    let mut taps = null_mut();
    // SAFETY: as above, and C strings.
    unsafe {
        let call = s.model.function::<CallTaps>("call_taps");
        let (n, m) = (pointers.len() as u64, outs.len() as u64);
        let wanted = d.number(3).clamp(0, 3).cast_unsigned();
        call(s.session, entry, n, pointers.as_ptr(), m, outs.as_ptr(), wanted, patterns.as_ptr(), &mut taps);
        s.model.function::<Close>("taps_close")(taps);
    }
}

/// A tensor of any type and shape over as much memory as it describes; over none where that is much.
fn argument(d: &mut Decisions<'_>) -> Box<Argument> {
    let elem = Elem::ALL[usize::from(d.byte()) % Elem::ALL.len()];
    let (mut code, mut bits) = kind(elem);
    if d.byte() == 255 {
        (code, bits) = (d.byte(), d.byte());
    }
    let lanes = if d.byte() == 255 { u16::from(d.byte()) } else { 1 };
    let rank = d.number(3).clamp(0, 70);
    let shape: Vec<i64> = (0..rank).map(|_| d.number(5)).collect();
    let strides = (d.byte() % 3 == 2).then(|| (0..rank).map(|_| d.number(20)).collect::<Vec<i64>>());
    let reach = |strides: &[i64]| {
        if shape.contains(&0) || shape.iter().chain(strides).any(|n| *n < 0) {
            return Some(0);
        }
        let last = |(n, s): (&i64, &i64)| (n - 1).checked_mul(*s);
        shape.iter().zip(strides).map(last).try_fold(1i64, |sum, n| sum.checked_add(n?))
    };
    let dense = shape.iter().try_fold(1i64, |n, extent| n.checked_mul((*extent).max(0)));
    let elements = strides.as_deref().map_or(dense, reach).filter(|n| *n <= 1 << 16).unwrap_or(0);
    let bytes = usize::try_from(elements).unwrap_or(0) * usize::from(bits).div_ceil(8) * usize::from(lanes.max(1));
    let fill = d.byte();
    let is_described = elements > 0 || shape.contains(&0);
    let data: Vec<u8> = (0..bytes).map(|i| if i % usize::from(bits.max(8) / 8) == 0 { fill % 5 } else { 0 }).collect();
    let mut argument = Argument::new(DLDataType { code, bits, lanes }, shape, strides, &data);
    if !is_described {
        argument.tensor.data = null_mut();
    }
    argument
}
