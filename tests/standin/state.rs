//! What the driver keeps: contexts, memory, modules, streams with what is queued on them, events.
//!
//! One lock is around all of it. An object's name is a number that no other object has or had.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use attnc::ptx::sim::{Device, Fault, Launch, Module};

use crate::settings::Settings;

/// `CUresult`, where it is not 0.
pub(crate) type Code = i32;

pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const NOT_INITIALIZED: Code = 3;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_DEVICE: Code = 101;
pub(crate) const INVALID_IMAGE: Code = 200;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const NO_BINARY_FOR_GPU: Code = 209;
pub(crate) const INVALID_PTX: Code = 218;
pub(crate) const UNSUPPORTED_PTX_VERSION: Code = 222;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const ILLEGAL_ADDRESS: Code = 700;
pub(crate) const LAUNCH_OUT_OF_RESOURCES: Code = 701;
pub(crate) const MISALIGNED_ADDRESS: Code = 716;
pub(crate) const LAUNCH_FAILED: Code = 719;
pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: Code = 720;

/// Names of codes, and what they mean.
pub(crate) const TEXTS: [(Code, &std::ffi::CStr, &std::ffi::CStr); 20] = [
    (0, c"CUDA_SUCCESS", c"no error"),
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (NO_DEVICE, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_IMAGE, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (NO_BINARY_FOR_GPU, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device"),
    (INVALID_PTX, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
    (
        UNSUPPORTED_PTX_VERSION,
        c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        c"the provided PTX was compiled with an unsupported toolchain.",
    ),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (NOT_READY, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (ILLEGAL_ADDRESS, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (LAUNCH_OUT_OF_RESOURCES, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch"),
    (MISALIGNED_ADDRESS, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (
        COOPERATIVE_LAUNCH_TOO_LARGE,
        c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        c"too many blocks in cooperative launch",
    ),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
];

/// A device's primary context is called by this number and the device's own.
const CONTEXT: u64 = 0xc0_0000;

/// What waits on a stream.
pub(crate) enum Work {
    /// To the device; the host's bytes were taken at once, as they are from pageable memory.
    CopyIn { to: u64, bytes: Vec<u8> },
    /// To the device; the host's bytes are taken when it happens.
    CopyLate { to: u64, from: usize, bytes: usize },
    /// To the host.
    CopyOut { to: usize, from: u64, bytes: usize },
    /// Within the device.
    Copy { to: u64, from: u64, bytes: usize },
    /// Bytes of one value.
    Fill { at: u64, value: u8, bytes: usize },
    /// A kernel.
    Launch(Box<Queued>),
}

/// A launch that waits.
#[derive(Clone)]
pub(crate) struct Queued {
    pub(crate) module: Arc<Module>,
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    /// Shared memory that the kernel declares.
    pub(crate) own: u32,
    pub(crate) params: Vec<Vec<u8>>,
    /// Do all blocks run at the same time?
    pub(crate) cooperative: bool,
    /// Its number among all launches, from 1; 0 before it is one.
    pub(crate) number: u64,
}

/// Launches, each after some others: by its name, the names of these and what is launched.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: BTreeMap<u64, (Vec<u64>, Queued)>,
}

impl Graph {
    /// The launches in an order that the graph allows; of those that could be next, the one that was added last.
    pub(crate) fn in_some_order(&self) -> Vec<Queued> {
        let mut left = self.nodes.clone();
        let mut out = Vec::new();
        while let Some(next) = left.iter().rev().find(|(_, n)| n.0.iter().all(|b| !left.contains_key(b))).map(|n| *n.0)
        {
            out.extend(left.remove(&next).map(|n| n.1));
        }
        out
    }
}

/// A function of a module.
pub(crate) struct Function {
    pub(crate) module: u64,
    pub(crate) name: String,
    /// Shared memory that it declares.
    pub(crate) own: u32,
    /// Shared memory that a launch may add.
    pub(crate) dynamic: u32,
}

/// All of it.
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) started: bool,
    pub(crate) device: Device,
    /// Where its memory is given out, and how many bytes.
    pub(crate) buffers: BTreeMap<u64, u64>,
    /// How often each device's primary context is retained.
    pub(crate) retained: BTreeMap<i32, u64>,
    pub(crate) modules: BTreeMap<u64, Arc<Module>>,
    pub(crate) functions: BTreeMap<u64, Function>,
    pub(crate) streams: BTreeMap<u64, Vec<Work>>,
    /// Events, with the stream that each was last recorded on.
    pub(crate) events: BTreeMap<u64, Option<u64>>,
    pub(crate) graphs: BTreeMap<u64, Graph>,
    /// What can be launched of graphs.
    pub(crate) executables: BTreeMap<u64, Graph>,
    /// The code that all calls give from now on, if it is not 0.
    pub(crate) broken: Code,
    pub(crate) launches: u64,
    pub(crate) together: u64,
    pub(crate) graphs_made: u64,
    pub(crate) graph_launches: u64,
    pub(crate) updates: u64,
    pub(crate) waits: u64,
    /// The copy that is refused, counted from the next one on.
    pub(crate) refuse_copy: u64,
    /// The stream of a copy that was refused, until it is waited for.
    refused: Option<u64>,
    /// Copies to the host that were on their way when more was queued after that.
    pub(crate) left: u64,
    next: u64,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| {
    Mutex::new(State {
        settings: Settings::read(),
        started: false,
        device: Device::new(),
        buffers: BTreeMap::new(),
        retained: BTreeMap::new(),
        modules: BTreeMap::new(),
        functions: BTreeMap::new(),
        // The legacy default stream, and that of each thread.
        streams: (0..3).map(|n| (n, Vec::new())).collect(),
        events: BTreeMap::new(),
        broken: 0,
        graphs: BTreeMap::new(),
        executables: BTreeMap::new(),
        launches: 0,
        together: 0,
        graphs_made: 0,
        graph_launches: 0,
        updates: 0,
        waits: 0,
        refuse_copy: 0,
        refused: None,
        left: 0,
        next: 0x1000,
    })
});

thread_local! {
    /// The contexts of this thread, the current one last.
    pub(crate) static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The state, for this thread alone.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// A name for an object.
    pub(crate) fn name(&mut self) -> u64 {
        self.next += 16;
        self.next
    }

    /// The name of a device's primary context.
    pub(crate) fn context(device: i32) -> u64 {
        CONTEXT + u64::from(device.unsigned_abs())
    }

    /// Is there a context of this name?
    pub(crate) fn has_context(&self, context: u64) -> bool {
        self.retained.iter().any(|(d, n)| *n > 0 && State::context(*d) == context)
    }

    /// May this thread call what needs a context?
    pub(crate) fn ready(&self) -> Result<(), Code> {
        if !self.started {
            return Err(NOT_INITIALIZED);
        }
        let current = CURRENT.with_borrow(|all| all.last().copied());
        if !current.is_some_and(|c| self.has_context(c)) {
            return Err(INVALID_CONTEXT);
        }
        if self.broken != 0 { Err(self.broken) } else { Ok(()) }
    }

    /// Puts work on a stream.
    pub(crate) fn queue(&mut self, stream: u64, work: Work) -> Result<(), Code> {
        if self.refused.take_if(|refused| *refused == stream).is_some() {
            let waiting = self.streams.get(&stream).into_iter().flatten();
            self.left += waiting.filter(|work| matches!(work, Work::CopyOut { .. })).count() as u64;
        }
        self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?.push(work);
        Ok(())
    }

    /// Is a copy on a stream the one that is refused?
    pub(crate) fn refuses_copy(&mut self, stream: u64) -> bool {
        let refuses = self.refuse_copy == 1;
        self.refuse_copy = self.refuse_copy.saturating_sub(1);
        if refuses {
            self.refused = Some(stream);
        }
        refuses
    }

    /// Puts launches on a stream, all or none.
    pub(crate) fn launch(&mut self, stream: u64, launches: Vec<Queued>) -> Result<(), Code> {
        let blocks = |q: &Queued| q.grid.iter().map(|n| *n as usize).product::<usize>();
        let too_large = |q: &Queued| q.cooperative && blocks(q) > self.settings.held(q);
        if launches.iter().any(too_large) {
            return Err(COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        let first = self.launches + 1;
        self.launches += launches.len() as u64;
        self.together += launches.iter().filter(|q| q.cooperative).count() as u64;
        if self.settings.refuse.is_some_and(|n| (first..=self.launches).contains(&n)) {
            return Err(LAUNCH_OUT_OF_RESOURCES);
        }
        (first..)
            .zip(launches)
            .try_for_each(|(number, launch)| self.queue(stream, Work::Launch(Box::new(Queued { number, ..launch }))))
    }

    /// Does what waits on a stream.
    pub(crate) fn finish(&mut self, stream: u64) -> Result<(), Code> {
        let waiting = std::mem::take(self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?);
        self.refused.take_if(|refused| *refused == stream);
        for work in waiting {
            if let Err(code) = self.work(work) {
                self.broken = code;
                return Err(code);
            }
        }
        Ok(())
    }

    /// Does what waits on all streams.
    pub(crate) fn finish_all(&mut self) -> Result<(), Code> {
        let all: Vec<u64> = self.streams.keys().copied().collect();
        all.into_iter().try_for_each(|stream| self.finish(stream))
    }

    fn work(&mut self, work: Work) -> Result<(), Code> {
        let outside = |message: String| {
            eprintln!("stand-in driver: {message}");
            ILLEGAL_ADDRESS
        };
        match work {
            Work::CopyIn { to, bytes } => self.device.write(to, &bytes).map_err(outside),
            Work::CopyLate { to, from, bytes } => {
                let from = std::ptr::with_exposed_provenance::<u8>(from);
                // SAFETY: whoever queued the copy keeps this memory until the stream has been waited for.
                let bytes = unsafe { std::slice::from_raw_parts(from, bytes) };
                self.device.write(to, bytes).map_err(outside)
            }
            Work::Copy { to, from, bytes } => self.device.copy(to, from, bytes).map_err(outside),
            Work::Fill { at, value, bytes } => self.device.write(at, &vec![value; bytes]).map_err(outside),
            Work::CopyOut { to, from, bytes } => {
                let data = self.device.read(from, bytes).map_err(outside)?;
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
                // SAFETY: whoever queued the copy keeps this memory until the stream has been waited for.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
                Ok(())
            }
            Work::Launch(q) => self.run(&q),
        }
    }

    fn run(&mut self, q: &Queued) -> Result<(), Code> {
        if self.settings.crash == Some(q.number) {
            return Err(self.settings.code);
        }
        let params: Vec<&[u8]> = q.params.iter().map(Vec::as_slice).collect();
        let launch = Launch {
            kernel: &q.kernel,
            grid: q.grid,
            block: q.block,
            cluster: None,
            shared_bytes: q.shared,
            cooperative: q.cooperative,
            params: &params,
        };
        self.device.hold(self.settings.held(q));
        match self.device.launch(&q.module, &launch, self.settings.mode) {
            Ok(_) => Ok(()),
            Err(report) => {
                eprintln!("stand-in driver: {report}");
                Err(match report.fault {
                    Fault::OutOfBounds => ILLEGAL_ADDRESS,
                    Fault::Misaligned => MISALIGNED_ADDRESS,
                    _ => LAUNCH_FAILED,
                })
            }
        }
    }

    /// How many objects there are that somebody must free.
    pub(crate) fn live(&self) -> u64 {
        let contexts: u64 = self.retained.values().sum();
        let others = self.device.allocated().0 + self.modules.len() + self.streams.len() - 3 + self.events.len();
        contexts + (others + self.graphs.len() + self.executables.len()) as u64
    }
}
