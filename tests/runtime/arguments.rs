//! Calls by hand, through the functions of the C interface: every wrong call is a status and a text, and none crashes.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use attnc::runtime::abi::{FUNCTIONS, Functions, LIBRARY_PREFIX, LIBRARY_SYMBOL};
use attnc::runtime::dlpack::{CPU, DLDataType, DLDevice, DLManagedTensor, DLTensor, code};
use libloading::{Library, Symbol};

use crate::toy;

const WRONG_CALL: i32 = 1;
const WRONG_TENSOR: i32 = 2;
const NO_MEMORY: i32 = 5;

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // SAFETY: the toy is linked from our own objects.
    LIBRARY.get_or_init(|| unsafe { Library::new(toy::so()) }.expect("the toy loads"))
}

/// The library's table.
fn table() -> &'static Functions {
    // SAFETY: every library of attnc has this function, and its table lives as long as the library.
    unsafe {
        let give: Symbol<'_, unsafe extern "C" fn() -> *const Functions> =
            library().get(LIBRARY_SYMBOL.as_bytes()).expect("the way into the library");
        &*give()
    }
}

fn function<T: Copy>(name: &str) -> T {
    let at = FUNCTIONS.iter().position(|known| name.strip_prefix("attnc_") == Some(known)).expect(name);
    assert_eq!(size_of::<T>(), size_of::<*const ()>());
    // SAFETY: each caller names the type that the support library declares.
    unsafe { std::mem::transmute_copy(&table().functions[at]) }
}

type Call = unsafe extern "C" fn(*mut c_void, u64, u64, *const *mut DLTensor, u64, *const *mut DLTensor) -> i32;

/// An open session.
struct Session(*mut c_void);

impl Session {
    fn open() -> Session {
        let open: unsafe extern "C" fn(*const c_char, i32, *mut *mut c_void) -> i32 = function("attnc_model_open");
        let session: unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> i32 = function("attnc_session_open");
        let close: unsafe extern "C" fn(*mut c_void) = function("attnc_model_close");
        let path = CString::new(toy::weights().as_os_str().as_bytes()).unwrap();
        let (mut model, mut handle) = (null_mut(), null_mut());
        // SAFETY: live pointers; the session keeps the model.
        unsafe {
            assert_eq!(open(path.as_ptr(), 0, &mut model), 0);
            assert_eq!(session(model, &mut handle), 0);
            close(model);
        }
        Session(handle)
    }

    fn text(&self) -> String {
        let error: unsafe extern "C" fn(*const c_void) -> *const c_char = function("attnc_session_error");
        // SAFETY: a live session; its text is valid until the next call.
        unsafe { CStr::from_ptr(error(self.0)) }.to_str().unwrap().to_owned()
    }

    fn call(&self, entry: u64, args: &[*mut DLTensor], results: &[*mut DLTensor]) -> (i32, String) {
        let call: Call = function("attnc_call");
        // SAFETY: lists with their counts.
        let status =
            unsafe { call(self.0, entry, args.len() as u64, args.as_ptr(), results.len() as u64, results.as_ptr()) };
        (status, self.text())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let close: unsafe extern "C" fn(*mut c_void) = function("attnc_session_close");
        // SAFETY: a live session, not used again.
        unsafe { close(self.0) };
    }
}

/// A tensor with its own shape, strides and memory.
struct Made {
    tensor: DLTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    data: Vec<f32>,
}

impl Made {
    fn new(shape: &[i64]) -> Box<Made> {
        let count = shape.iter().product::<i64>().max(0) as usize;
        let tensor = DLTensor {
            data: null_mut(),
            device: DLDevice { device_type: CPU, device_id: 0 },
            ndim: shape.len() as i32,
            dtype: DLDataType { code: code::FLOAT, bits: 32, lanes: 1 },
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        };
        let data = (0..count).map(|i| i as f32).collect();
        let mut made = Box::new(Made { tensor, shape: shape.to_vec(), strides: Vec::new(), data });
        made.tensor.shape = made.shape.as_mut_ptr();
        made.tensor.data = made.data.as_mut_ptr().cast();
        made
    }

    fn strides(mut self: Box<Made>, strides: &[i64]) -> Box<Made> {
        self.strides = strides.to_vec();
        self.tensor.strides = self.strides.as_mut_ptr();
        self
    }

    fn at(&mut self) -> *mut DLTensor {
        &raw mut self.tensor
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let session = Session::open();
    let big = i64::MAX;
    type Change = fn(&mut DLTensor);
    let cases: Vec<(Vec<i64>, Change, i32, &str)> = vec![
        (vec![2, 4], |t| t.data = null_mut(), WRONG_CALL, "argument `x` has elements and a null pointer for its data"),
        (vec![2, 4], |t| t.shape = null_mut(), WRONG_CALL, "has 2 axes and a null pointer for its shape"),
        (vec![2, 4], |t| t.ndim = -1, WRONG_TENSOR, "has -1 axes; 0 to 64 are possible"),
        (vec![2, 4], |t| t.ndim = i32::MAX, WRONG_TENSOR, "has 2147483647 axes"),
        (vec![2, 4], |t| t.ndim = 0, WRONG_TENSOR, "has 0 axes (shape [])"),
        (vec![2, -4], |_| {}, WRONG_TENSOR, "axis 1 has a negative extent"),
        (vec![2, i64::MIN], |_| {}, WRONG_TENSOR, "axis 1 has a negative extent"),
        (vec![2, 4], |t| t.device.device_type = 2, WRONG_TENSOR, "is on cuda:0, but the model runs on the CPU"),
        (vec![2, 4], |t| t.device.device_type = 10, WRONG_TENSOR, "not in the CPU's memory (DLPack device type 10)"),
        (vec![2, 4], |t| t.dtype.lanes = 4, WRONG_TENSOR, "expected f32, found f32 x 4 lanes"),
        (vec![2, 4], |t| t.dtype.lanes = 0, WRONG_TENSOR, "expected f32, found f32 x 0 lanes"),
        (vec![2, 4], |t| t.dtype.bits = 64, WRONG_TENSOR, "expected f32, found f64"),
        (vec![2, 4], |t| t.dtype.bits = 0, WRONG_TENSOR, "expected f32, found f0"),
        (vec![2, 4], |t| t.dtype.code = code::COMPLEX, WRONG_TENSOR, "expected f32, found complex32"),
        (vec![2, 4], |t| t.dtype.code = 200, WRONG_TENSOR, "expected f32, found type code 200 of 32 bits"),
        (vec![2, 4], |t| t.byte_offset = u64::MAX, WRONG_TENSOR, "its byte offset is too large"),
        (vec![0, big, big, 3, 4], |_| {}, WRONG_TENSOR, "is too large"),
        (vec![0, 1 << 20, 9, 3, 4], |_| {}, 0, ""),
        (vec![0, 1 << 20, 9, 3, 5], |_| {}, WRONG_TENSOR, "expected D, which is 4"),
    ];
    for (shape, change, status, text) in cases {
        let clean: Vec<i64> = shape.clone();
        let mut x = Made::new(&if clean.iter().any(|d| d.unsigned_abs() > 100) { vec![0] } else { clean });
        x.shape = shape.clone();
        x.tensor.shape = x.shape.as_mut_ptr();
        x.tensor.ndim = shape.len() as i32;
        let mut y = Made::new(&[0]);
        y.shape = if status == 0 { shape.clone() } else { vec![2, 4] };
        y.data = vec![0.0; 8];
        (y.tensor.data, y.tensor.shape, y.tensor.ndim) =
            (y.data.as_mut_ptr().cast(), y.shape.as_mut_ptr(), y.shape.len() as i32);
        change(&mut x.tensor);
        let (got, said) = session.call(0, &[x.at()], &[y.at()]);
        assert_eq!(got, status, "{shape:?}: {said}");
        assert!(status == 0 || said.contains(text), "{said:?} does not say {text:?}");
    }
    // The product of huge axes does not wrap to a small one.
    let mut x = Made::new(&[0]);
    x.shape = vec![1 << 32, 1 << 32, 4];
    (x.tensor.shape, x.tensor.ndim) = (x.shape.as_mut_ptr(), 3);
    let (status, said) = session.call(0, &[x.at()], &[x.at()]);
    assert_eq!((status, said.as_str()), (WRONG_TENSOR, "scale: argument `x` has more elements than memory can hold"));
    // And a batch of large axes, of which one is 0, is 0.
    let mut x = Made::new(&[0]);
    x.shape = vec![1 << 20, 2, 0, 0, 4];
    (x.tensor.shape, x.tensor.ndim) = (x.shape.as_mut_ptr(), 5);
    assert_eq!(session.call(0, &[x.at()], &[x.at()]).0, 0);
}

#[test]
fn wrong_counts_and_null_lists_are_errors() {
    let session = Session::open();
    let (mut x, mut y) = (Made::new(&[2, 4]), Made::new(&[2, 4]));
    let (a, b) = (x.at(), y.at());
    for (got, status, text) in [
        (session.call(99, &[a], &[b]), WRONG_CALL, "Toy has no entry point 99"),
        (
            session.call(u64::MAX, &[a], &[b]),
            WRONG_CALL,
            "this session belongs to Toy, but the function called is of another model",
        ),
        (session.call(0, &[], &[b]), WRONG_CALL, "scale has 1 arguments, found 0"),
        (session.call(0, &[a, a], &[b]), WRONG_CALL, "scale has 1 arguments, found 2"),
        (session.call(0, &[a], &[]), WRONG_CALL, "scale has 1 results, found 0"),
        (session.call(0, &[null_mut()], &[b]), WRONG_CALL, "scale: argument `x` is a null pointer"),
        (session.call(0, &[a], &[null_mut()]), WRONG_CALL, "scale: result `result` is a null pointer"),
    ] {
        assert_eq!((got.0, got.1.as_str()), (status, text));
    }
    let call: Call = function("attnc_call");
    // SAFETY: null pointers are what is tested.
    unsafe {
        assert_eq!(call(session.0, 0, 1, null(), 1, null()), WRONG_CALL);
        assert_eq!(session.text(), "scale: the list of arguments is a null pointer");
        assert_eq!(call(session.0, 0, u64::MAX, &a, 1, &b), WRONG_CALL);
        assert_eq!(call(null_mut(), 0, 1, &a, 1, &b), WRONG_CALL);
    }
    // The session goes on as if nothing had happened.
    assert_eq!(session.call(0, &[a], &[b]).0, 0);
}

/// Every exported function takes null pointers and indices that are not there.
#[test]
fn null_handles_do_nothing() {
    type Address = *mut c_void;
    // SAFETY: null pointers are what is tested; every function takes its arguments in registers or on the stack of the
    // caller, so that more of them than it has do no harm.
    unsafe {
        for name in FUNCTIONS.map(|name| format!("attnc_{name}")) {
            // What is called with Python's lock held.
            if name == "attnc_python_call" {
                continue;
            }
            let f: unsafe extern "C" fn(Address, u64, u64, Address, u64, Address, u64, Address, Address) -> u64 =
                function(&name);
            f(null_mut(), 0, 0, null_mut(), 0, null_mut(), 0, null_mut(), null_mut());
            // Where they take only indices: one out of range.
            let indexed =
                ["variant_name", "entry", "dimension", "argument", "result_type", "result_count", "tap_", "parameter"];
            if name != "attnc_entry_index" && indexed.iter().any(|i| name.contains(i)) {
                f(
                    null_mut::<u8>().wrapping_sub(1).cast(),
                    u64::MAX,
                    0,
                    null_mut(),
                    0,
                    null_mut(),
                    0,
                    null_mut(),
                    null_mut(),
                );
                f(null_mut(), u64::MAX, 0, null_mut(), 0, null_mut(), 0, null_mut(), null_mut());
            }
        }
        let name: unsafe extern "C" fn(u64, u64) -> *const c_char = function("attnc_argument_name");
        assert!(name(99, 0).is_null() && name(0, 99).is_null() && !name(0, 0).is_null());
        let error: unsafe extern "C" fn(*const c_void) -> *const c_char = function("attnc_model_error");
        assert_eq!(CStr::from_ptr(error(null())), c"not a model handle");
        let open: unsafe extern "C" fn(*const c_char, i32, *mut Address) -> i32 = function("attnc_model_open");
        assert_eq!(open(null(), -1, &mut null_mut()), WRONG_CALL);
    }
}

#[test]
fn strides_of_any_kind() {
    let session = Session::open();
    let expect = |picked: &[f32]| toy::scaled(picked).0;
    // Transposed, backwards, one row repeated, every third row.
    let cases: [(&[i64], &[i64], usize); 5] = [
        (&[3, 4], &[1, 3], 0),
        (&[3, 4], &[-4, -1], 11),
        (&[3, 4], &[0, 1], 2),
        (&[2, 2, 4], &[0, 6, 3], 0),
        (&[1, 4], &[i64::MAX, 1], 0),
    ];
    for (shape, strides, start) in cases {
        let mut x = Made::new(&[24]);
        x.shape = shape.to_vec();
        (x.tensor.shape, x.tensor.ndim) = (x.shape.as_mut_ptr(), shape.len() as i32);
        x.tensor.byte_offset = 4 * start as u64;
        let mut x = x.strides(strides);
        let mut picked = vec![start as i64];
        for (d, s) in shape.iter().zip(strides) {
            picked = picked.iter().flat_map(|p| (0..*d).map(move |i| p + i * if *d > 1 { *s } else { 0 })).collect();
        }
        let picked: Vec<f32> = picked.iter().map(|i| *i as f32).collect();
        let mut y = Made::new(shape);
        assert_eq!(session.call(0, &[x.at()], &[y.at()]).0, 0, "{}", session.text());
        assert_eq!(y.data, expect(&picked), "{shape:?} {strides:?}");
    }
    for strides in [[i64::MAX, 1], [i64::MIN, 1], [i64::MAX / 4, i64::MAX / 4], [-(1 << 60), 1]] {
        let (mut x, mut y) = (Made::new(&[3, 4]).strides(&strides), Made::new(&[3, 4]));
        let (status, said) = session.call(0, &[x.at()], &[y.at()]);
        assert_eq!((status, said.as_str()), (WRONG_TENSOR, "scale: argument `x`: its strides lead out of memory"));
    }
}

#[test]
fn badly_aligned_memory_is_copied() {
    let session = Session::open();
    for shift in 1..4u64 {
        let (mut x, mut y) = (Made::new(&[12]), Made::new(&[12]));
        let values: Vec<f32> = (0..8).map(|i| i as f32).collect();
        for (t, full) in [(&mut x, true), (&mut y, false)] {
            t.shape = vec![2, 4];
            (t.tensor.shape, t.tensor.ndim, t.tensor.byte_offset) = (t.shape.as_mut_ptr(), 2, shift);
            if full {
                let to = t.data.as_mut_ptr().cast::<u8>().wrapping_add(shift as usize);
                // SAFETY: 12 floats have room for 8 and a shift.
                unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), to, 32) };
            }
        }
        assert_eq!(session.call(0, &[x.at()], &[y.at()]).0, 0, "{}", session.text());
        let bytes: Vec<u8> = y.data.iter().flat_map(|v| v.to_le_bytes()).skip(shift as usize).take(32).collect();
        let got: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(got, toy::scaled(&values).0);
    }
}

#[test]
fn results_are_checked_and_may_lie_over_arguments() {
    let session = Session::open();
    let mut x = Made::new(&[2, 4]);
    for (shape, text) in [
        (&[2, 5][..], "scale: result `result` has shape [2, 5], expected [2, 4]"),
        (&[8], "scale: result `result` has shape [8], expected [2, 4]"),
    ] {
        let mut y = Made::new(shape);
        assert_eq!(session.call(0, &[x.at()], &[y.at()]), (WRONG_TENSOR, text.to_owned()));
    }
    let mut y = Made::new(&[2, 4]);
    y.tensor.dtype = DLDataType { code: code::INT, bits: 32, lanes: 1 };
    let said = session.call(0, &[x.at()], &[y.at()]).1;
    assert_eq!(said, "scale: result `result`: expected f32, found i32");
    // Shifted over the argument: what is read must not have been written.
    let mut both = Made::new(&[16]);
    let given: Vec<f32> = both.data[..8].to_vec();
    let mut shape = [2i64, 4];
    let mut whole = |offset: u64| {
        let mut t = DLTensor { byte_offset: offset, ndim: 2, shape: shape.as_mut_ptr(), ..copy(&both.tensor) };
        t.data = both.data.as_mut_ptr().cast();
        t
    };
    let (mut from, mut to) = (whole(0), whole(8));
    assert_eq!(session.call(0, &[&raw mut from], &[&raw mut to]).0, 0, "{}", session.text());
    assert_eq!(both.data[2..10], toy::scaled(&given).0);
    // Two results in the same memory.
    let (mut a, mut b) = (Made::new(&[3]), Made::new(&[7]));
    let mut one = Made::new(&[16]);
    let tensors = [(vec![3i64], code::FLOAT, 32), (vec![4], code::INT, 64), (vec![], code::BOOL, 8)];
    let mut results: Vec<(Vec<i64>, DLTensor)> = tensors
        .into_iter()
        .map(|(shape, code, bits)| {
            (shape, DLTensor { dtype: DLDataType { code, bits, lanes: 1 }, ..copy(&one.tensor) })
        })
        .collect();
    for (shape, t) in &mut results {
        (t.shape, t.ndim, t.data) = (shape.as_mut_ptr(), shape.len() as i32, one.data.as_mut_ptr().cast());
    }
    let list: Vec<*mut DLTensor> = results.iter_mut().map(|(_, t)| &raw mut *t).collect();
    let said = session.call(2, &[a.at(), b.at()], &list);
    assert_eq!(said, (WRONG_CALL, "pair: result `result.1` shares memory with another result".to_owned()));
}

fn copy(t: &DLTensor) -> DLTensor {
    DLTensor { ..*t }
}

type Raw =
    unsafe extern "C" fn(*mut c_void, u64, u64, *const i64, u64, *const *const c_void, u64, *const *mut c_void) -> i32;

/// Two results that both lie badly come back both.
#[test]
fn several_results_that_lie_badly() {
    let session = Session::open();
    let (mut x, mut y) = (Made::new(&[3]), Made::new(&[7]));
    let mut bytes = [0u8; 96];
    let mut shapes = [vec![3i64], vec![4], vec![]];
    let kinds = [(code::FLOAT, 32, 1u64), (code::INT, 64, 33), (code::BOOL, 8, 80)];
    let mut results: Vec<DLTensor> = shapes
        .iter_mut()
        .zip(kinds)
        .map(|(shape, (code, bits, byte_offset))| {
            let dtype = DLDataType { code, bits, lanes: 1 };
            let (ndim, shape, data) = (shape.len() as i32, shape.as_mut_ptr(), bytes.as_mut_ptr().cast());
            DLTensor { data, dtype, ndim, shape, byte_offset, ..copy(&x.tensor) }
        })
        .collect();
    let list: Vec<*mut DLTensor> = results.iter_mut().map(|r| &raw mut *r).collect();
    assert_eq!(session.call(2, &[x.at(), y.at()], &list).0, 0, "{}", session.text());
    let floats: Vec<f32> = bytes[1..13].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let whole: Vec<i64> = bytes[33..65].as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect();
    assert_eq!((floats, whole, bytes[80]), (vec![0.0, 2.0, 4.0], vec![0, 1, 2, 3], 0));
}

/// An axis of one element may have any stride, which says nothing of the axes around it; and vectors are no elements.
#[test]
fn strides_of_single_elements_and_vectors() {
    let session = Session::open();
    for (strides, picked) in [
        ([4i64, 9, 1], [0usize, 1, 2, 3, 4, 5, 6, 7]),
        ([8, 8, 1], [0, 1, 2, 3, 8, 9, 10, 11]),
        ([12, 3, 1], [0, 1, 2, 3, 12, 13, 14, 15]),
        ([0, 0, 1], [0, 1, 2, 3, 0, 1, 2, 3]),
        ([8, 1, 2], [0, 2, 4, 6, 8, 10, 12, 14]),
    ] {
        let mut x = Made::new(&[24]);
        x.shape = vec![2, 1, 4];
        (x.tensor.shape, x.tensor.ndim) = (x.shape.as_mut_ptr(), 3);
        let (mut x, mut y) = (x.strides(&strides), Made::new(&[2, 1, 4]));
        assert_eq!(session.call(0, &[x.at()], &[y.at()]).0, 0, "{}", session.text());
        let picked: Vec<f32> = picked.iter().map(|i| *i as f32).collect();
        assert_eq!(y.data, toy::scaled(&picked).0, "{strides:?}");
    }
    let (mut tokens, mut y) = (Made::new(&[2]), Made::new(&[2, 4]));
    tokens.data.fill(0.0);
    tokens.tensor.dtype = DLDataType { code: code::INT, bits: 32, lanes: 1 };
    assert_eq!(session.call(1, &[tokens.at()], &[y.at()]).0, 0, "{}", session.text());
    tokens.shape[0] = 1;
    for (bits, lanes) in [(64, 2), (32, 2), (64, 0)] {
        tokens.tensor.dtype = DLDataType { code: code::INT, bits, lanes };
        assert_ne!(session.call(1, &[tokens.at()], &[y.at()]).0, 0, "{bits} {lanes}");
    }
}

type RawShape = unsafe extern "C" fn(*mut c_void, u64, u64, *const i64, u64, *mut i64, u64, *mut i32) -> i32;

/// Calls with bare pointers go through the same checks.
#[test]
fn raw_calls() {
    let session = Session::open();
    let raw = function::<Raw>("attnc_call_raw");
    let call = |entry: u64, dims: &[i64], args: &[*const c_void], results: &[*mut c_void]| {
        let (counts, lists) = ((args.len() as u64, results.len() as u64), (args.as_ptr(), results.as_ptr()));
        // SAFETY: lists with their counts.
        unsafe { raw(session.0, entry, dims.len() as u64, dims.as_ptr(), counts.0, lists.0, counts.1, lists.1) }
    };
    let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let expected = toy::scaled(&x[..8]).0;
    let mut memory = [0f32; 16];
    let (from, to) = (x.as_ptr().cast::<c_void>(), memory.as_mut_ptr().cast::<c_void>());
    // A batch, and rows.
    for dims in [[1, 2], [2, 1]] {
        memory.fill(0.0);
        assert_eq!(call(0, &dims, &[from], &[to]), 0, "{}", session.text());
        assert_eq!(memory[..8], expected);
    }
    // Badly aligned on either side, and a result that lies over its argument.
    let mut bytes = [0u8; 80];
    for shift in [1usize, 2, 3] {
        for (i, v) in x[..8].iter().enumerate() {
            bytes[shift + 4 * i..shift + 4 * i + 4].copy_from_slice(&v.to_le_bytes());
        }
        let from = bytes[shift..].as_ptr().cast();
        let to = bytes[40 + shift..].as_mut_ptr().cast();
        assert_eq!(call(0, &[1, 2], &[from], &[to]), 0, "{}", session.text());
        let got: Vec<f32> =
            bytes[40 + shift..72 + shift].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(got, expected);
    }
    memory[..8].copy_from_slice(&x[..8]);
    let start = memory.as_mut_ptr();
    let (from_start, to_second) = (start.cast_const().cast(), start.wrapping_add(2).cast());
    assert_eq!(call(0, &[2, 1], &[from_start], &[to_second]), 0, "{}", session.text());
    assert_eq!(memory[2..10], expected);
    // Errors.
    let big = 1 << 40;
    for (entry, dims, args, results) in [
        (0, &[1][..], 1, 1),
        (0, &[1, 2, 3], 1, 1),
        (0, &[], 1, 1),
        (0, &[-1, 2], 1, 1),
        (0, &[1, -2], 1, 1),
        (0, &[i64::MIN, 2], 1, 1),
        (0, &[big, big], 1, 1),
        (0, &[i64::MAX, 1], 1, 1),
        (0, &[1, 2], 0, 1),
        (0, &[1, 2], 2, 1),
        (0, &[1, 2], 1, 0),
        (2, &[101], 2, 3),
        (99, &[1], 1, 1),
    ] {
        let (args, results) = (vec![from; args], vec![to; results]);
        assert_ne!(call(entry, dims, &args, &results), 0, "{entry} {dims:?} {}", args.len());
    }
    assert_ne!(call(0, &[1, 2], &[null()], &[to]), 0);
    assert_ne!(call(0, &[1, 2], &[from], &[null_mut()]), 0);
    // SAFETY: a null pointer is what is tested.
    assert_ne!(unsafe { raw(session.0, 0, 2, null(), 1, &from, 1, &to) }, 0);
    assert_eq!(call(0, &[0, 5], &[null()], &[null_mut()]), 0, "{}", session.text());
    // The shapes of results are asked for with the same checks.
    let shape_of = function::<RawShape>("attnc_result_shape_raw");
    let (mut shape, mut rank) = ([0i64; 4], 0);
    for (entry, dims, ok) in [(2u64, 100i64, true), (2, 101, false), (2, -1, false)] {
        // SAFETY: a list with its count, and room for four numbers.
        let status = unsafe { shape_of(session.0, entry, 1, &dims, 0, shape.as_mut_ptr(), 4, &mut rank) };
        assert_eq!((status == 0, if ok { shape[0] } else { dims }), (ok, dims), "{}", session.text());
    }
    // SAFETY: as above, with room for one number of two.
    let status = unsafe { shape_of(session.0, 0, 2, [1i64, 2].as_ptr(), 0, shape.as_mut_ptr(), 1, &mut rank) };
    assert_ne!(status, 0);
    // Leading axes whose product is 0 in the end: the others must fit all the same.
    let mut x = Made::new(&[0]);
    x.shape = vec![i64::MAX, 2, 0, 1, 3, 4];
    (x.tensor.shape, x.tensor.ndim) = (x.shape.as_mut_ptr(), 6);
    assert_eq!(session.call(0, &[x.at()], &[x.at()]).0, WRONG_TENSOR, "{}", session.text());
    assert!(session.text().ends_with("is too large"), "{}", session.text());
    x.shape = vec![1 << 20, 2, 0, 1, 3, 4];
    x.tensor.shape = x.shape.as_mut_ptr();
    assert_eq!(session.call(0, &[x.at()], &[x.at()]).0, 0, "{}", session.text());
}

/// A result that begins before an argument, behind its beginning, at its last element, or right behind it.
#[test]
fn results_that_meet_arguments_anywhere() {
    let session = Session::open();
    for (from, to) in [(8i64, 0i64), (8, 4), (0, 4), (0, 7), (0, 8), (8, 8), (8, 15), (8, 1)] {
        let mut both = Made::new(&[32]);
        let given: Vec<f32> = both.data[from as usize..from as usize + 8].to_vec();
        let mut shape = [2i64, 4];
        let data = both.data.as_mut_ptr().cast();
        let mut at = |offset: i64| {
            let byte_offset = 4 * offset.unsigned_abs();
            DLTensor { byte_offset, ndim: 2, shape: shape.as_mut_ptr(), data, ..copy(&both.tensor) }
        };
        let (mut x, mut y) = (at(from), at(to));
        assert_eq!(session.call(0, &[&raw mut x], &[&raw mut y]).0, 0, "{}", session.text());
        assert_eq!(both.data[to as usize..to as usize + 8], toy::scaled(&given).0, "{from} {to}");
    }
}

/// Results with strides, and two of them that do not lie one after another.
#[test]
fn results_with_strides() {
    let session = Session::open();
    let x: Vec<f32> = (0..8).map(|i| i as f32).collect();
    let expected = toy::scaled(&x).0;
    for (strides, start) in [([4i64, 1], 0i64), ([1, 2], 0), ([8, 2], 1), ([-4, -1], 7), ([5, 1], 0), ([1, 3], 2)] {
        let (mut from, mut to) = (Made::new(&[2, 4]), Made::new(&[24]));
        to.data.fill(-1.0);
        to.shape = vec![2, 4];
        (to.tensor.shape, to.tensor.ndim) = (to.shape.as_mut_ptr(), 2);
        to.tensor.byte_offset = 4 * start.unsigned_abs();
        let mut to = to.strides(&strides);
        assert_eq!(session.call(0, &[from.at()], &[to.at()]).0, 0, "{}", session.text());
        let mut wanted = vec![-1.0; 24];
        for (i, y) in expected.iter().enumerate() {
            let (row, column) = (i as i64 / 4, i as i64 % 4);
            wanted[(start + row * strides[0] + column * strides[1]) as usize] = *y;
        }
        assert_eq!(to.data, wanted, "{strides:?}");
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let session = Session::open();
    let owned: unsafe extern "C" fn(
        *mut c_void,
        u64,
        u64,
        *const *mut DLTensor,
        u64,
        *mut *mut DLManagedTensor,
    ) -> i32 = function("attnc_call_owned");
    // One number, broadcast to very many: it can be read, but there is no memory for the result.
    let mut x = Made::new(&[4]);
    x.shape = vec![1 << 42, 4];
    (x.tensor.shape, x.tensor.ndim) = (x.shape.as_mut_ptr(), 2);
    let mut x = x.strides(&[0, 1]);
    let mut made = null_mut();
    // SAFETY: a tensor whose memory is as it says.
    let status = unsafe { owned(session.0, 0, 1, &x.at(), 1, &mut made) };
    assert_eq!(status, NO_MEMORY, "{}", session.text());
    assert_eq!(session.text(), "out of memory: 70368744177664 bytes for a copy of scale: argument `x`");
}

#[test]
fn truth_values_are_0_or_1_inside() {
    let session = Session::open();
    let mut data: Vec<Vec<u8>> = vec![vec![0; 6], vec![0; 6], vec![0; 3], vec![0; 24], vec![0, 7, 255]];
    let kinds = [(code::BFLOAT, 16), (code::FLOAT, 16), (code::INT, 8), (code::INT, 64), (code::UINT, 8)];
    let mut shape = [3i64];
    let mut tensors: Vec<DLTensor> = Vec::new();
    for (d, (code, bits)) in data.iter_mut().zip(kinds) {
        let device = DLDevice { device_type: CPU, device_id: 0 };
        let dtype = DLDataType { code, bits, lanes: 1 };
        let (data, shape) = (d.as_mut_ptr().cast(), shape.as_mut_ptr());
        tensors.push(DLTensor { data, device, ndim: 1, dtype, shape, strides: null_mut(), byte_offset: 0 });
    }
    let mut results: Vec<DLTensor> = tensors.iter().map(copy).collect();
    let mut out = [9u8; 32 * 5];
    for (i, r) in results.iter_mut().enumerate() {
        r.data = out[32 * i..].as_mut_ptr().cast();
    }
    let args: Vec<*mut DLTensor> = tensors.iter_mut().map(|t| &raw mut *t).collect();
    let outs: Vec<*mut DLTensor> = results.iter_mut().map(|t| &raw mut *t).collect();
    assert_eq!(session.call(3, &args, &outs).0, 0, "{}", session.text());
    assert_eq!(out[128..132], [0, 1, 1, 9]);
    assert_eq!(data[4], [0, 7, 255]);
}

/// Names that the toy's `.so` defines for others.
fn exported() -> Vec<String> {
    symbols(true)
}

fn symbols(defined: bool) -> Vec<String> {
    let done = std::process::Command::new("nm")
        .args(["-D", if defined { "--defined-only" } else { "--undefined-only" }])
        .arg(toy::so())
        .output();
    let Ok(done) = done else {
        eprintln!("no nm: not checked");
        return Vec::new();
    };
    let text = String::from_utf8(done.stdout).unwrap();
    text.lines()
        .filter_map(|l| l.split_whitespace().last())
        .map(|n| n.split('@').next().unwrap_or(n).to_owned())
        .collect()
}

/// The names by which others reach the library: one that is the same in all, for `dlsym`, and one that no other has.
#[test]
fn nothing_else_goes_in_or_out() {
    let own = format!("{LIBRARY_PREFIX}{}", toy::descriptor().symbol());
    let mut names = exported();
    names.sort();
    assert_eq!(names, [LIBRARY_SYMBOL.to_owned(), own]);
    // All from libc, libm, libpthread and libdl: linking with -z defs has found them there.
    let needed = symbols(false);
    for name in &needed {
        assert!(!name.starts_with("_R") && !name.starts_with("_ZN") && !name.contains("unwind"), "{name} is undefined");
    }
    let libraries = std::process::Command::new("readelf").arg("-d").arg(toy::so()).output();
    let Ok(libraries) = libraries else { return };
    let text = String::from_utf8(libraries.stdout).unwrap();
    for line in text.lines().filter(|l| l.contains("(NEEDED)")) {
        let allowed = ["libc.so", "libm.so", "libpthread.so", "libdl.so"];
        assert!(allowed.iter().any(|a| line.contains(a)), "{line}");
    }
}

#[test]
fn the_header_declares_what_is_exported() {
    let header = attnc::runtime::header::header(&toy::descriptor());
    for name in exported() {
        assert!(header.contains(&name), "{name} is not in the header");
    }
}
