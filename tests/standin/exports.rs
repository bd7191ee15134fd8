//! The driver's functions, as `cuda.h` declares them.
//!
//! Each checks what the driver checks of its arguments. A pointer that must not be null and is, is an invalid value; what a caller
//! promises beyond that is promised here too.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use attnc::ptx::Swizzle;
use attnc::ptx::sim::tensor_map::TensorMap;
use attnc::ptx::sim::{Mode, Module};
use attnc::ptx::{Type, Version};

use crate::state::{
    CURRENT, Code, Function, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_PTX, INVALID_VALUE,
    NO_BINARY_FOR_GPU, NO_DEVICE, NOT_FOUND, NOT_INITIALIZED, NOT_READY, OUT_OF_MEMORY, Queued, State, TEXTS,
    UNSUPPORTED_PTX_VERSION, Work, lock,
};

/// Bytes of its second cache.
const SECOND_CACHE: i32 = 1 << 20;
/// The most shared memory of a block, without asking for more.
const USUAL_SHARED: u32 = 48 << 10;
/// The code of a result.
pub(crate) fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(0)
}

/// Writes a result.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by the contract above.
    unsafe { to.write(value) };
    Ok(())
}

/// How many objects there are that somebody must free: contexts, buffers, modules, streams, events.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_live() -> u64 {
    lock().live()
}

/// How many launches there were.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_launches() -> u64 {
    lock().launches
}

/// How many of the launches were cooperative.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_together() -> u64 {
    lock().together
}

/// How many graphs were made.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_made() -> u64 {
    lock().graphs_made
}

/// How many graphs were launched.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_graphs() -> u64 {
    lock().graph_launches
}

/// How often a launch of a graph was changed.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_updates() -> u64 {
    lock().updates
}

/// How often the host waited for a stream.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_waits() -> u64 {
    lock().waits
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> Code {
    let mut s = lock();
    if flags != 0 {
        return INVALID_VALUE;
    }
    if s.settings.init != 0 {
        return s.settings.init;
    }
    if s.settings.devices == 0 {
        return NO_DEVICE;
    }
    s.started = true;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> Code {
    // SAFETY: as the caller promises.
    code(unsafe { give(version, lock().settings.driver) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: Code, text: *mut *const c_char) -> Code {
    let found = TEXTS.iter().find(|(code, _, _)| *code == error);
    // SAFETY: as the caller promises.
    code(unsafe { found.map_or(Err(INVALID_VALUE), |(_, name, _)| give(text, name.as_ptr())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: Code, text: *mut *const c_char) -> Code {
    let found = TEXTS.iter().find(|(code, _, _)| *code == error);
    // SAFETY: as the caller promises.
    code(unsafe { found.map_or(Err(INVALID_VALUE), |(_, _, why)| give(text, why.as_ptr())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> Code {
    let s = lock();
    // SAFETY: as the caller promises.
    if s.started { code(unsafe { give(count, s.settings.devices) }) } else { NOT_INITIALIZED }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut i32, ordinal: i32) -> Code {
    let s = lock();
    if !s.started {
        return NOT_INITIALIZED;
    }
    if !(0..s.settings.devices).contains(&ordinal) {
        return INVALID_DEVICE;
    }
    // SAFETY: as the caller promises.
    code(unsafe { give(device, ordinal) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) -> Code {
    if name.is_null() || length < 1 || !(0..lock().settings.devices).contains(&device) {
        return INVALID_VALUE;
    }
    let text = c"Stand-in GPU".to_bytes_with_nul();
    let fits = text.len().min(length as usize);
    // SAFETY: `name` has room for `length` bytes, by the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, fits);
        name.add(fits - 1).write(0);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) -> Code {
    let s = lock();
    if !(0..s.settings.devices).contains(&device) {
        return INVALID_DEVICE;
    }
    let found = match attribute {
        16 => s.settings.multiprocessors,
        38 => SECOND_CACHE,
        75 => i32::from(s.settings.capability / 10),
        76 => i32::from(s.settings.capability % 10),
        97 => s.settings.most_shared() as i32,
        _ => return INVALID_VALUE,
    };
    // SAFETY: as the caller promises.
    code(unsafe { give(value, found) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) -> Code {
    let mut s = lock();
    if !s.started {
        return NOT_INITIALIZED;
    }
    if !(0..s.settings.devices).contains(&device) {
        return INVALID_DEVICE;
    }
    // A context takes some.
    if s.settings.memory == 0 {
        return OUT_OF_MEMORY;
    }
    *s.retained.entry(device).or_default() += 1;
    // SAFETY: as the caller promises.
    code(unsafe { give(context, State::context(device)) })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Code {
    match lock().retained.get_mut(&device) {
        Some(n) if *n > 0 => {
            *n -= 1;
            0
        }
        _ => INVALID_CONTEXT,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: u64) -> Code {
    if !lock().has_context(context) {
        return INVALID_CONTEXT;
    }
    CURRENT.with_borrow_mut(|all| all.push(context));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut u64) -> Code {
    match CURRENT.with_borrow_mut(Vec::pop) {
        // SAFETY: as the caller promises.
        Some(was) => code(unsafe { give(context, was) }),
        None => INVALID_CONTEXT,
    }
}

/// The option of `cuModuleLoadDataEx` that says where errors are written.
const ERROR_LOG: i32 = 5;
/// And how many bytes there are.
const ERROR_LOG_SIZE: i32 = 6;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut u64,
    image: *const c_char,
    count: u32,
    options: *const i32,
    values: *const *mut c_void,
) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    if image.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: an ELF image begins with more than four bytes, a text ends in a NUL.
    let bytes = unsafe { CStr::from_ptr(image) }.to_bytes();
    if bytes.starts_with(b"\x7fELF") {
        return s.settings.cubin;
    }
    let option = |wanted: i32| {
        let at = (0..count as usize).find(|i| {
            // SAFETY: there are as many options as said.
            unsafe { *options.add(*i) == wanted }
        })?;
        // SAFETY: and as many values.
        Some(unsafe { *values.add(at) })
    };
    let log = |text: &str| {
        let (Some(to), Some(size)) = (option(ERROR_LOG), option(ERROR_LOG_SIZE)) else { return };
        let fits = text.len().min((size as usize).saturating_sub(1));
        // SAFETY: the buffer has as many bytes as the option says.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), fits);
            to.cast::<u8>().add(fits).write(0);
        }
    };
    let loaded = match std::str::from_utf8(bytes).map_err(|e| e.to_string()).and_then(Module::load) {
        Ok(loaded) if !s.settings.reject => loaded,
        Ok(_) => {
            log("ptxas application ptx input, line 1; error   : the stand-in takes no PTX");
            return INVALID_PTX;
        }
        Err(why) => {
            log(&why);
            return INVALID_PTX;
        }
    };
    let target = loaded.target();
    let runs = if target.alone { s.settings.capability == target.sm } else { s.settings.capability >= target.sm };
    if !runs {
        return NO_BINARY_FOR_GPU;
    }
    // CUDA 11.x takes PTX 7.x, 12.x takes 8.x, 13.x takes 9.x.
    let (major, minor) = (s.settings.driver / 1000 - 4, s.settings.driver % 1000 / 10);
    if version_of(bytes) > Some(Version(major as u8, minor as u8)) {
        log("ptxas application ptx input, line 1; fatal   : Unsupported .version");
        return UNSUPPORTED_PTX_VERSION;
    }
    let name = s.name();
    s.modules.insert(name, Arc::new(loaded));
    // SAFETY: as the caller promises.
    code(unsafe { give(module, name) })
}

/// The `.version` of a text.
fn version_of(text: &[u8]) -> Option<Version> {
    let text = std::str::from_utf8(text).ok()?;
    let (major, minor) = text.lines().find_map(|line| line.strip_prefix(".version "))?.split_once('.')?;
    Some(Version(major.trim().parse().ok()?, minor.trim().parse().ok()?))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: u64) -> Code {
    let mut s = lock();
    let done = s.ready().and_then(|()| s.finish_all());
    s.functions.retain(|_, f| f.module != module);
    if s.modules.remove(&module).is_none() { INVALID_HANDLE } else { code(done) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    let Some(found) = s.modules.get(&module).filter(|_| !name.is_null()) else { return INVALID_HANDLE };
    // SAFETY: a C string, by the caller's promise.
    let text = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    if found.params(&text).is_none() {
        return NOT_FOUND;
    }
    let own = found.static_shared(&text).unwrap_or(0);
    let made = s.name();
    s.functions.insert(made, Function { module, name: text, own, dynamic: USUAL_SHARED.saturating_sub(own) });
    // SAFETY: as the caller promises.
    code(unsafe { give(function, made) })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: u64, attribute: i32, value: i32) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    let (value, most) = (u32::try_from(value).unwrap_or(u32::MAX), s.settings.most_shared());
    match s.functions.get_mut(&function) {
        None => INVALID_HANDLE,
        Some(f) if attribute != 8 || value.saturating_add(f.own) > most => INVALID_VALUE,
        Some(f) => {
            f.dynamic = value;
            0
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut i32,
    function: u64,
    threads: i32,
    shared: usize,
) -> Code {
    let s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    let Some(f) = s.functions.get(&function) else { return INVALID_HANDLE };
    let bytes = u32::try_from(shared).unwrap_or(u32::MAX);
    // None runs that has more shared memory than was asked for.
    let fits = u32::from(bytes <= f.dynamic).cast_signed();
    let threads = u32::try_from(threads).unwrap_or(0);
    let number = s.settings.per_multiprocessor(threads, bytes.saturating_add(f.own));
    // SAFETY: as the caller promises.
    code(unsafe { give(blocks, fits * number) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    if bytes == 0 {
        return INVALID_VALUE;
    }
    if s.device.allocated().1.saturating_add(bytes as u64) > s.settings.memory {
        return OUT_OF_MEMORY;
    }
    let made = s.device.alloc(bytes);
    s.buffers.insert(made, bytes as u64);
    // SAFETY: as the caller promises.
    code(unsafe { give(address, made) })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> Code {
    let mut s = lock();
    // Freeing waits for everything.
    let done = s.ready().and_then(|()| s.finish_all());
    s.buffers.remove(&address);
    if s.device.free(address).is_err() { INVALID_VALUE } else { code(done) }
}

/// Puts work on a stream of this thread's context.
fn queue(stream: u64, work: Work) -> Code {
    let mut s = lock();
    code(s.ready().and_then(|()| s.queue(stream, work)))
}

/// The same with a copy, which is refused if it is its turn.
fn copy(stream: u64, work: Work) -> Code {
    let mut s = lock();
    if s.refuses_copy(stream) {
        return INVALID_VALUE;
    }
    code(s.ready().and_then(|()| s.queue(stream, work)))
}

/// The copy of this number from now on is refused, from 1; 0 for none.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_refuse_copy(number: u64) {
    lock().refuse_copy = number;
}

/// How much waits on a stream.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_queued(stream: u64) -> u64 {
    lock().streams.get(&stream).map_or(0, |work| work.len() as u64)
}

/// How many copies to the host were still on their way when more was queued behind a copy that was refused.
#[unsafe(no_mangle)]
extern "C" fn attnc_standin_left() -> u64 {
    lock().left
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) -> Code {
    // As late as from memory that the host has pinned, or at once.
    if lock().settings.mode.order == Mode::LATEST.order {
        return copy(stream, Work::CopyLate { to, from: from.expose_provenance(), bytes });
    }
    // SAFETY: the caller has as many bytes there.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
    copy(stream, Work::CopyIn { to, bytes })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) -> Code {
    copy(stream, Work::CopyOut { to: to.expose_provenance(), from, bytes })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> Code {
    copy(stream, Work::Copy { to, from, bytes })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(at: u64, value: u8, bytes: usize, stream: u64) -> Code {
    queue(stream, Work::Fill { at, value, bytes })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(stream: *mut u64, flags: u32) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    if flags > 1 {
        return INVALID_VALUE;
    }
    let name = s.name();
    s.streams.insert(name, Vec::new());
    // SAFETY: as the caller promises.
    code(unsafe { give(stream, name) })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: u64) -> Code {
    let mut s = lock();
    let done = s.ready().and_then(|()| s.finish(stream));
    if stream < 3 || s.streams.remove(&stream).is_none() { INVALID_HANDLE } else { code(done) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: u64) -> Code {
    let mut s = lock();
    s.waits += 1;
    code(s.ready().and_then(|()| s.finish(stream)))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> Code {
    let mut s = lock();
    code(s.ready().and_then(|()| s.finish_all()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut u64, _flags: u32) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    if s.events.len() >= s.settings.events {
        return OUT_OF_MEMORY;
    }
    let name = s.name();
    s.events.insert(name, None);
    // SAFETY: as the caller promises.
    code(unsafe { give(event, name) })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: u64) -> Code {
    if lock().events.remove(&event).is_none() { INVALID_HANDLE } else { 0 }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: u64, stream: u64) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    if !s.streams.contains_key(&stream) {
        return INVALID_HANDLE;
    }
    s.events.get_mut(&event).map_or(INVALID_HANDLE, |on| {
        *on = Some(stream);
        0
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: u64) -> Code {
    let mut s = lock();
    match s.events.get(&event).copied() {
        None => INVALID_HANDLE,
        Some(None) => 0,
        Some(Some(stream)) => code(s.ready().and_then(|()| s.finish(stream))),
    }
}

/// Between any two events is a millisecond: time does not pass here. What is still on its way has no time.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, from: u64, to: u64) -> Code {
    let s = lock();
    let waits = |stream: &u64| s.streams.get(stream).is_some_and(|work| !work.is_empty());
    match (s.events.get(&from), s.events.get(&to)) {
        (Some(Some(a)), Some(Some(b))) if waits(a) || waits(b) => NOT_READY,
        // SAFETY: as the caller promises.
        (Some(Some(_)), Some(Some(_))) => code(unsafe { give(milliseconds, 1.0) }),
        _ => INVALID_HANDLE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: u64,
    params: *const *const u8,
    extra: *const c_void,
) -> Code {
    let mut s = lock();
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    // SAFETY: as the caller promises.
    let made = unsafe { launch_of(&s, &KernelNode { function, grid, block, shared, params, extra }) };
    code(made.and_then(|launch| s.launch(stream, vec![launch])))
}

/// `CUDA_KERNEL_NODE_PARAMS`, in its first version.
#[repr(C)]
pub(crate) struct KernelNode {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: *const *const u8,
    extra: *const c_void,
}

/// What a launch is told, if it is one.
///
/// # Safety
/// There is a pointer for each parameter of the kernel, to as many bytes as it has.
pub(crate) unsafe fn launch_of(s: &State, node: &KernelNode) -> Result<Queued, Code> {
    s.ready()?;
    let &KernelNode { function, grid, block, shared, params, extra } = node;
    let f = s.functions.get(&function).ok_or(INVALID_HANDLE)?;
    let module = s.modules.get(&f.module).cloned().ok_or(INVALID_HANDLE)?;
    let within = |sizes: [u32; 3], most: [u32; 3]| sizes.iter().zip(most).all(|(n, most)| (1..=most).contains(n));
    let threads = block.iter().fold(1u64, |n, b| n * u64::from(*b));
    let fits = within(grid, [i32::MAX as u32, 65535, 65535]) && within(block, [1024, 1024, 64]) && threads <= 1024;
    // More shared memory than usual must have been asked for.
    if !fits || !extra.is_null() || shared > f.dynamic {
        return Err(INVALID_VALUE);
    }
    let types = module.params(&f.name).unwrap_or_default();
    if params.is_null() && !types.is_empty() {
        return Err(INVALID_VALUE);
    }
    let own = f.own;
    let values = types.iter().enumerate().map(|(i, ty)| {
        // SAFETY: by the contract above.
        unsafe { std::slice::from_raw_parts(*params.add(i), ty.bytes() as usize) }.to_vec()
    });
    let (params, kernel) = (values.collect(), f.name.clone());
    Ok(Queued { module, kernel, grid, block, shared, own, params, cooperative: false, number: 0 })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchCooperativeKernel(
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: u64,
    params: *const *const u8,
) -> Code {
    let mut s = lock();
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    // SAFETY: as the caller promises.
    let made = unsafe { launch_of(&s, &KernelNode { function, grid, block, shared, params, extra: std::ptr::null() }) };
    code(made.and_then(|launch| s.launch(stream, vec![Queued { cooperative: true, ..launch }])))
}

/// Element types by their numbers.
const ELEMS: [Type; 10] =
    [Type::U8, Type::U16, Type::U32, Type::S32, Type::U64, Type::S64, Type::F16, Type::F32, Type::F64, Type::Bf16];

#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u8; 128],
    elem: i32,
    rank: u32,
    address: u64,
    extents: *const u64,
    strides: *const u64,
    window: *const u32,
    steps: *const u32,
    interleave: i32,
    swizzle: i32,
    promotion: i32,
    fill: i32,
) -> Code {
    let s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    // Processors before Hopper have none.
    if s.settings.capability < 90 || !(0..=3).contains(&promotion) {
        return INVALID_VALUE;
    }
    // It is not said that a map may be of no memory.
    let buffer = s.buffers.range(..=address).next_back();
    if buffer.is_none_or(|(start, bytes)| address - start >= *bytes) {
        eprintln!("stand-in driver: a tensor map of no memory, at {address:#x}");
        return INVALID_VALUE;
    }
    let rank = rank as usize;
    let number = |n: i32| usize::try_from(n).unwrap_or(usize::MAX);
    let (Some(elem), Some(swizzle)) = (ELEMS.get(number(elem)), Swizzle::ALL.get(number(swizzle))) else {
        return INVALID_VALUE;
    };
    if !(1..=5).contains(&rank) || interleave != 0 || !(map as usize).is_multiple_of(64) {
        return INVALID_VALUE;
    }
    // SAFETY: as many numbers as axes, strides one less.
    let made = unsafe {
        TensorMap {
            address,
            elem: *elem,
            extents: std::slice::from_raw_parts(extents, rank).to_vec(),
            strides: std::slice::from_raw_parts(strides, rank - 1).to_vec(),
            window: std::slice::from_raw_parts(window, rank).to_vec(),
            steps: std::slice::from_raw_parts(steps, rank).to_vec(),
            swizzle: *swizzle,
            fill_nan: fill != 0,
        }
    };
    // It is not said that a stride may be 0.
    if made.strides.contains(&0) {
        eprintln!("stand-in driver: a tensor map with a stride of 0");
        return INVALID_VALUE;
    }
    if let Err(why) = made.check() {
        eprintln!("stand-in driver: a tensor map of {why}");
        return INVALID_VALUE;
    }
    // SAFETY: as the caller promises.
    code(unsafe { give(map, made.encode()) })
}
