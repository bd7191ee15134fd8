//! A call on a GPU: copies in, runs the plan, copies out, waits, and reports errors found by
//! kernels.
//!
//! In: the tensors of a call, each in host memory or already on the GPU. Out: results in the
//! caller's tensors. Launches are queued and not waited for individually, and many of them form one
//! graph (`graphs.rs`). When the plan reads GPU memory, the host waits (`read`), unless it reads an
//! argument that came from the host.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::transmute;
use core::ptr::null_mut;

use super::copier::{self, Copier, Detour, TensorLocation};
use super::device::Gpu;
use super::driver::{Address, TensorMap};
use super::graphs::{self, Graphs};
use super::memory::{DeviceBuffer, OwnStream, Queue, aligned};
use super::module;
use super::session::{Session, Timer};
use super::tape::{MAX_MAPS, Tape};
use super::tensor_map;
use super::upload::Loaded;
use crate::abi::cuda::{CudaDesc, MAX_WORDS, fault};
use crate::abi::{EntryDesc, Launch, ModelDesc, Plan, PlanContext, TensorDesc, VariantDesc};
use crate::bind::{self, Bound};
use crate::desc::elem_size;
use crate::error::{Error, Result, fail};
use crate::expr::eval;
use crate::float_mode::DefaultMode;
use crate::pool::Report;
use crate::profile::Launched;
use crate::request::{Call, Memory, Polling, report, site_error};
use crate::weights::Weights;

/// Limit on blocks along the first axis of a grid.
const MAX_BLOCKS: i64 = i32::MAX as i64;
/// Limit along the other axes.
const MAX_ACROSS: i64 = 65535;

/// The target of a plan's launches.
pub(crate) struct On<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) queue: Queue<'a>,
    /// Memory for kernels' error reports.
    pub(crate) fault: Address,
    /// Wait after each launch.
    pub(crate) each: bool,
}

/// An argument of which the host has a copy.
#[derive(Clone, Copy)]
struct Mirror {
    device: Address,
    bytes: u64,
    host: *const u8,
}

/// A result to copy to the caller at the end.
struct Out<'a> {
    device: Address,
    bytes: u64,
    to: To<'a>,
}

/// Its destination.
enum To<'a> {
    Host(*mut u8),
    Device(&'a Copier, &'a Detour<'a>),
}

/// Site numbers for reports that an argument's element does not fit its type; the plan's sites are
/// far below.
const ARGUMENT_SITES: u64 = 1 << 63;

/// State behind a plan's context.
#[repr(C)]
struct Running<'a> {
    /// Must be first, because reporting code accesses only this.
    report: Report,
    on: &'a On<'a>,
    mirrors: &'a [Mirror],
    /// Launches not yet queued.
    tape: &'a mut Tape,
    /// Queues the tape as graphs; if absent, each launch is queued at once.
    graphs: Option<&'a mut Graphs>,
    error: Option<Error>,
    polling: Option<Polling>,
    interrupted: bool,
    timing: Option<(&'a mut Vec<Launched>, &'a Timer)>,
}

/// Allocates pieces of the staging memory, as offsets.
#[derive(Default)]
struct Pieces(u64);

impl Pieces {
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.0;
        self.0 = self.0.saturating_add(aligned(bytes.max(1)));
        at
    }
}

fn pointer(at: Address) -> *mut u8 {
    core::ptr::without_provenance_mut(at as usize)
}

/// Size in bytes of each tensor in this call.
fn sizes(tensors: &[TensorDesc], bound: &Bound) -> Result<Vec<u64>> {
    tensors.iter().map(|t| bind::bytes(&bound.shape(t.batch != 0, t.dims.get())?, t.elem)).collect()
}

/// Runs the entry's plan.
pub(crate) fn run(call: &Call<'_>, loaded: &Loaded, memory: &mut Memory) -> Result<()> {
    let Some(session) = &mut memory.cuda else { fail!(Internal, "a session without its GPU") };
    let _entered = loaded.gpu.enter()?;
    let data = &call.data;
    let tapped = !data.taps.is_empty();
    let (plan, arena) =
        if tapped { (call.plan.tapped, call.plan.tapped_arena) } else { (call.plan.plan, call.plan.arena) };
    let Some(plan) = plan else {
        fail!(Internal, "{} has no code in variant {}", call.entry.name.get(), call.variant.name.get())
    };
    let arena = u64::try_from(eval(&arena, &call.bound.dims)?).unwrap_or(0);
    let name = call.entry.name.get();
    let in_call = |e| named(name, e);
    let arena = DeviceBuffer::reserve(&mut session.arena, &loaded.gpu, arena, "intermediate results");
    let arena = arena.map_err(in_call)?;

    // Tensors that are not on the GPU, or that kernels cannot access directly, get a piece of the
    // staging memory.
    let (arg_bytes, out_bytes) =
        (sizes(call.entry.args.get(), call.bound)?, sizes(call.entry.results.get(), call.bound)?);
    let mut pieces = Pieces::default();
    let mut place = |at: Option<&TensorLocation<'_>>, data: *const u8, bytes: u64| match at {
        // Empty tensors may have any address, and not everything accepts an empty range at address
        // 0: they get a piece too.
        Some(TensorLocation::Device) if bytes > 0 => Err(data as u64),
        _ => Ok(pieces.take(bytes)),
    };
    let args = data.args.iter().zip(&arg_bytes).enumerate();
    let arg_places: Vec<_> = args.map(|(i, (p, bytes))| place(data.args_at.get(i), *p, *bytes)).collect();
    let outs = data.outs.iter().zip(&out_bytes).enumerate();
    let out_places: Vec<_> = outs.map(|(i, (p, bytes))| place(data.outs_at.get(i), *p, *bytes)).collect();
    // Requests of taps are read by the plan itself, on the host, and stay there; so do null
    // pointers.
    let tap_places: Vec<_> = (data.taps.iter().enumerate())
        .map(|(i, p)| match data.tap_bytes.get(i) {
            Some(bytes) if !p.is_null() => place(None, *p, *bytes),
            _ => Err(*p as u64),
        })
        .collect();
    let copier = &Copier::from_module(&loaded.module);
    // The copies before conversion run one after another, so they share their temporary memory.
    let spare =
        data.args_at.iter().map(|at| if let TensorLocation::Detour(d) = at { d.spare() } else { 0 }).max().unwrap_or(0);
    let spare = pieces.take(spare);
    let staging = DeviceBuffer::reserve(&mut session.staging, &loaded.gpu, pieces.0, "arguments and results");
    let staging = staging.map_err(in_call)?;
    let address = |place: &core::result::Result<u64, u64>| match place {
        Ok(offset) => staging + offset,
        Err(own) => *own,
    };
    memory.changing.begin(call.entry)?;
    let queue = Queue { gpu: &loaded.gpu, stream: session.stream() };
    let fault = session.fault.address();
    let mut queued = || -> Result<()> {
        let (mut args, mut mirrors) = (Vec::new(), Vec::new());
        for (i, ((place, host), bytes)) in arg_places.iter().zip(data.args).zip(&arg_bytes).enumerate() {
            let device = address(place);
            if let Some(TensorLocation::Detour(tensor)) = data.args_at.get(i) {
                let report = copier::Report { fault, site: ARGUMENT_SITES + i as u64 + 1 };
                let size = call.entry.args.get().get(i).map_or(1, |t| elem_size(t.elem));
                // SAFETY: the argument's memory is valid and unchanged during the call; its piece
                // is large enough.
                let done = unsafe { copier.gather(queue, tensor, size, device, staging + spare, report) };
                done.map_err(in_call)?;
            } else if place.is_ok() {
                // SAFETY: the argument has as many bytes, which do not change during the call; so
                // has its piece.
                unsafe { queue.copy_in(device, *host, *bytes, "an argument").map_err(in_call)? };
                mirrors.push(Mirror { device, bytes: *bytes, host: *host });
            }
            args.push(pointer(device).cast_const());
        }
        let (mut outs, mut copies) = (Vec::new(), Vec::new());
        for (i, ((place, host), bytes)) in out_places.iter().zip(data.outs).zip(&out_bytes).enumerate() {
            let (device, bytes) = (address(place), *bytes);
            if let Some(TensorLocation::Detour(tensor)) = data.outs_at.get(i) {
                copies.push(Out { device, bytes, to: To::Device(copier, tensor) });
            } else if place.is_ok() {
                copies.push(Out { device, bytes, to: To::Host(*host) });
            }
            outs.push(pointer(device));
        }
        let mut taps = Vec::new();
        for (i, (place, host)) in tap_places.iter().zip(data.taps).enumerate() {
            let device = address(place);
            if place.is_ok() {
                let bytes = data.tap_bytes.get(i).copied().unwrap_or(0);
                // A call need not reach every tap.
                // SAFETY: its piece has as many bytes.
                unsafe { queue.clear(device, bytes, "a tap").map_err(in_call)? };
                copies.push(Out { device, bytes, to: To::Host(*host) });
            }
            taps.push(pointer(device));
        }
        let context = PlanContext {
            dims: call.bound.dims.as_ptr(),
            args: args.as_ptr(),
            outs: outs.as_ptr(),
            taps: taps.as_ptr(),
            arena: pointer(arena),
            states: session.state_data.as_ptr(),
            ..context(loaded, loaded.packed())
        };
        let mut launched = memory.profile.begin();
        if launched.is_some() && session.timer.is_none() {
            session.timer = Some(Session::new_timer(&loaded.gpu)?);
        }
        let timing = launched.take().zip(session.timer.as_ref());
        let on = On { loaded, queue, fault, each: session.each };
        let polling = call.poll.or(memory.poll).map(Polling::new);
        session.tape.clear();
        let extras = Extras {
            mirrors: &mirrors,
            copies: &copies,
            polling,
            graphs: Some(&mut session.graphs).filter(|g| g.are_used() && timing.is_none()),
            timing,
        };
        // SAFETY: a plan of this model, with the memory that it says it needs.
        unsafe { execute(plan, context, &on, &mut session.tape, call.model, name, Some(call.entry), extras) }
    };
    let done = queued();
    if done.is_err() {
        let _ = session.clear_fault();
        // Queued work may still access the caller's memory, and the stream, which may be the
        // caller's too, must be left idle. An error of a broken context has already been reported.
        let _ = queue.wait("the call");
    }
    done
}

/// Optional features of running a plan.
#[derive(Default)]
struct Extras<'a> {
    mirrors: &'a [Mirror],
    copies: &'a [Out<'a>],
    polling: Option<Polling>,
    graphs: Option<&'a mut Graphs>,
    timing: Option<(&'a mut Vec<Launched>, &'a Timer)>,
}

/// A context with the common fields; fields specific to a call are null.
fn context(loaded: &Loaded, packed: *mut u8) -> PlanContext {
    // SAFETY: the same signature except for the kernel, which the plan passes as a number.
    let launch = unsafe { transmute::<LaunchByNumber, Launch>(launch) };
    PlanContext {
        dims: core::ptr::null(),
        args: core::ptr::null(),
        outs: core::ptr::null(),
        params: loaded.roots(),
        taps: core::ptr::null(),
        arena: null_mut(),
        scratch: null_mut(),
        packed,
        states: core::ptr::null(),
        launch: Some(launch),
        fail: Some(report),
        failed: 0,
        in_order: 0,
        read: Some(read),
        runtime: null_mut(),
    }
}

/// Loads a model's code and weights, packs the weights with the variant's own kernels, and waits.
pub(crate) fn load(
    gpu: Arc<Gpu>,
    model: &'static ModelDesc,
    variant: &'static VariantDesc,
    cuda: &'static CudaDesc,
    weights: &Weights,
) -> Result<Loaded> {
    let _entered = gpu.enter()?;
    let mut loaded = Loaded::new(gpu.clone(), model, cuda, weights)?;
    let Some(plan) = variant.prepare else { return Ok(loaded) };
    let stream = OwnStream::new(&gpu)?;
    let queue = Queue { gpu: &gpu, stream: stream.get() };
    let packed = DeviceBuffer::new(&gpu, variant.packed_bytes, "packed weights")?;
    let fault = DeviceBuffer::new(&gpu, fault::BYTES, "the error report")?;
    // SAFETY: the buffer has this size.
    unsafe { queue.clear(fault.address(), fault::BYTES, "the error report")? };
    let context = context(&loaded, pointer(packed.address()));
    loaded.packed = Some(packed);
    let on = On { loaded: &loaded, queue, fault: fault.address(), each: false };
    // SAFETY: a plan of this model with the memory that it requires, including the packed weights.
    unsafe { execute(plan, context, &on, &mut Tape::default(), model, "packing weights", None, Extras::default())? };
    Ok(loaded)
}

/// Runs a plan, copies out its results, waits, and converts reports to an error.
///
/// # Safety
/// The context has the memory that the plan needs.
#[expect(clippy::too_many_arguments, reason = "each is one thing that only this function puts together")]
unsafe fn execute(
    plan: Plan,
    mut context: PlanContext,
    on: &On<'_>,
    tape: &mut Tape,
    model: &ModelDesc,
    name: &str,
    entry: Option<&EntryDesc>,
    extras: Extras<'_>,
) -> Result<()> {
    let Extras { mirrors, copies, polling, graphs, timing } = extras;
    let mut running =
        Running { report: Report::NONE, on, mirrors, tape, graphs, error: None, polling, interrupted: false, timing };
    context.runtime = (&raw mut running).cast();
    let mode = DefaultMode::enter();
    // SAFETY: by the contract above.
    let status = unsafe { plan(&mut context) };
    drop(mode);
    let mut words = [0u64; fault::WORDS];
    let mut send = || -> Result<()> {
        if running.error.is_none() && status == 0 {
            // SAFETY: launches of this plan.
            unsafe { running.flush()? };
            for out in copies {
                // SAFETY: both ends have as many bytes; the stream is waited for below.
                unsafe {
                    match out.to {
                        To::Host(host) => on.queue.copy_out(host, out.device, out.bytes, "a result")?,
                        To::Device(copier, tensor) => copier.scatter(on.queue, tensor, out.device)?,
                    }
                }
            }
        }
        Ok(())
    };
    let sent = send();
    // SAFETY: `words` has this size; waited for below.
    let report = unsafe { on.queue.copy_out(words.as_mut_ptr().cast(), on.fault, fault::BYTES, "the error report") };
    // Even after a failure, work queued earlier may still access the caller's memory.
    let waited = on.queue.wait("the call");
    let finished = sent.and(report).and(waited);
    if let Some(e) = running.error {
        return Err(named(name, e));
    }
    finished.map_err(|e| named(name, e))?;
    if words[fault::SITE] != 0 {
        let (site, index) = (words[fault::SITE].wrapping_sub(1), words[fault::INDEX]);
        let value = words[fault::BOUND].cast_signed();
        if let Some(n) = site.checked_sub(ARGUMENT_SITES) {
            let argument = entry.and_then(|e| e.args.get().get(usize::try_from(n).ok()?));
            let argument = argument.map_or("", |t| t.name.get());
            fail!(Range, "{name}: argument `{argument}`: element {index} is {value}, which is not an i32");
        }
        return Err(site_error(model, name, site, &[index.cast_signed(), value, 0]));
    }
    let Report { site, values, .. } = running.report;
    if let Ok(site) = u64::try_from(site) {
        return Err(site_error(model, name, site, &values));
    }
    if running.interrupted {
        fail!(Interrupted, "{name}: interrupted");
    }
    if status != 0 || context.failed != 0 {
        fail!(Internal, "{name}: the compiled code failed without reporting an error");
    }
    Ok(())
}

fn named(name: &str, e: Error) -> Error {
    Error { status: e.status, text: alloc::format!("{name}: {}", e.text) }
}

/// [`Launch`] with a kernel number in place of its address.
type LaunchByNumber = unsafe extern "C" fn(*mut PlanContext, u64, *const u64, i64, i64, *const u8, i64) -> i32;

/// [`Launch`] on a GPU.
unsafe extern "C" fn launch(
    ctx: *mut PlanContext,
    kernel: u64,
    args: *const u64,
    total: i64,
    bytes: i64,
    _: *const u8,
    _: i64,
) -> i32 {
    // SAFETY: the plan passes the context that it received, and the number of one of its kernels
    // with matching arguments.
    unsafe {
        let running = &mut *(*ctx).runtime.cast::<Running<'_>>();
        if let Some(polling) = &mut running.polling
            && polling.ends(bytes)
        {
            running.interrupted = true;
            (*ctx).failed = 1;
        }
        // A launch with null arguments only polls.
        if !args.is_null()
            && (*ctx).failed == 0
            && let Err(e) = running.launch(kernel, args, total)
        {
            running.error = Some(e);
            (*ctx).failed = 1;
        }
        i32::from((*ctx).failed != 0)
    }
}

impl Running<'_> {
    /// # Safety
    /// The arguments match the kernel of this number.
    unsafe fn launch(&mut self, number: u64, args: *const u64, total: i64) -> Result<()> {
        let Some(kernel) = self.on.loaded.module.kernel(number) else { fail!(Internal, "there is no kernel {number}") };
        let stream = self.on.queue.stream;
        if let Some((_, timer)) = &self.timing {
            timer.start(stream)?;
        }
        if total > 0 {
            // SAFETY: by the contract above.
            unsafe {
                self.record(number, kernel, args, total)?;
                if self.graphs.is_none() || self.tape.len() >= graphs::MAX_GRAPH_LAUNCHES {
                    self.flush()?;
                }
            }
        }
        if let Some((launched, timer)) = &mut self.timing {
            let time = timer.stop(stream)?;
            // If there is no memory to record a launch, it is omitted.
            if launched.try_reserve(1).is_ok() {
                launched.push(Launched { points: total.max(0), time });
            }
        }
        Ok(())
    }

    /// Queues the recorded launches.
    ///
    /// # Safety
    /// As [`Running::launch`].
    unsafe fn flush(&mut self) -> Result<()> {
        let (queue, loaded) = (self.on.queue, self.on.loaded);
        // SAFETY: by the contract above.
        unsafe {
            match &mut self.graphs {
                Some(graphs) => graphs.launch(self.tape, &loaded.gpu, &loaded.module, queue),
                None => {
                    let done = self.tape.launch(&loaded.module, queue, self.on.each);
                    self.tape.clear();
                    done
                }
            }
        }
    }

    /// Records a launch on the tape.
    ///
    /// # Safety
    /// As [`Running::launch`].
    unsafe fn record(&mut self, number: u64, loaded: module::Loaded, args: *const u64, total: i64) -> Result<()> {
        let gpu = self.on.queue.gpu;
        let kernel = loaded.desc;
        let name = kernel.name.get();
        let (symbols, count) = (kernel.symbols as usize, (kernel.symbols + kernel.params) as usize);
        // SAFETY: by the contract above; `Module::load` has checked the number of words.
        let words: &[u64] = if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(args, count) } };
        let mut numbers = [0i64; MAX_WORDS];
        for (n, word) in numbers.iter_mut().zip(words.iter().take(symbols)) {
            *n = word.cast_signed();
        }
        let dims = numbers.get(..symbols).unwrap_or(&[]);
        let mut grid = [total.min(loaded.at_once), 1, 1];
        let axes = kernel.grid.get();
        for (n, axis) in grid.iter_mut().zip(axes) {
            *n = eval(&axis.extent, dims)?;
        }
        if axes.iter().zip(grid).any(|(_, n)| n == 0) {
            return Ok(());
        }
        let [blocks, height, depth] = grid;
        // Persistent blocks count points in 32 bits.
        let points = if axes.is_empty() { total } else { blocks };
        let fits = [blocks, points].iter().all(|n| (1..=MAX_BLOCKS).contains(n))
            && [height, depth].iter().all(|n| (1..=MAX_ACROSS).contains(n));
        if !fits {
            fail!(Gpu, "kernel {name}: a grid of {blocks} x {height} x {depth} blocks is more than the GPU runs");
        }
        let grid = [blocks as u32, height as u32, depth as u32];
        let mut maps = [TensorMap([0; 128]); MAX_MAPS];
        let wanted = kernel.tensor_maps.get();
        if wanted.len() > MAX_MAPS {
            fail!(Internal, "kernel {name} has {} tensor maps", wanted.len());
        }
        for (map, desc) in maps.iter_mut().zip(wanted) {
            let buffer = words.get(symbols.saturating_add(desc.param as usize)).copied().unwrap_or(0);
            *map = tensor_map::encode(gpu, desc, dims, buffer)
                .map_err(|e| Error { status: e.status, text: alloc::format!("kernel {name}: {}", e.text) })?;
        }
        self.tape.push(number, grid, words, self.on.fault, maps.get(..wanted.len()).unwrap_or(&[]))
    }

    /// # Safety
    /// `from` has `bytes` bytes in GPU memory, `to` in host memory.
    unsafe fn read(&mut self, from: Address, bytes: u64, to: *mut u8) -> Result<bool> {
        let inside = |m: &&Mirror| from >= m.device && from - m.device + bytes <= m.bytes;
        if let Some(m) = self.mirrors.iter().find(inside) {
            // SAFETY: within the argument.
            unsafe { core::ptr::copy_nonoverlapping(m.host.add((from - m.device) as usize), to, bytes as usize) };
            return Ok(true);
        }
        // SAFETY: by the contract above.
        unsafe { self.flush()? };
        let mut site = 0u64;
        // SAFETY: by the contract above; both are waited for.
        let copies = unsafe {
            [
                self.on.queue.copy_out(to, from, bytes, "a number that the plan reads"),
                self.on.queue.copy_out((&raw mut site).cast(), self.on.fault, 8, "the error report"),
            ]
        };
        // Wait even if one copy was rejected: the other writes to memory of the plan or of this
        // function.
        let waited = self.on.queue.wait("the kernels before a number that the plan reads");
        copies.into_iter().chain([waited]).collect::<Result<()>>()?;
        // A value read after an error may be garbage.
        Ok(site == 0)
    }
}

/// [`crate::abi::cuda::Read`].
unsafe extern "C" fn read(ctx: *mut PlanContext, from: *const u8, bytes: i64, to: *mut u8) -> i32 {
    // SAFETY: the plan passes the context that it received, and an element of one of its buffers.
    unsafe {
        let running = &mut *(*ctx).runtime.cast::<Running<'_>>();
        if (*ctx).failed == 0 {
            match running.read(from as u64, bytes.max(0).unsigned_abs(), to) {
                Ok(true) => {}
                Ok(false) => (*ctx).failed = 1,
                Err(e) => {
                    running.error = Some(e);
                    (*ctx).failed = 1;
                }
            }
        }
        i32::from((*ctx).failed != 0)
    }
}
