//! What the machine is like that the stand-in plays: `ATTNC_STANDIN`.

use crate::state::{Code, INVALID_IMAGE, LAUNCH_FAILED, Queued};
use attnc::ptx::sim::Mode;

/// The machine.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `devices=N`: how many GPUs there are.
    pub(crate) devices: i32,
    /// `driver=N`: what `cuDriverGetVersion` tells.
    pub(crate) driver: i32,
    /// `capability=N`: ten times the major number, and the minor one.
    pub(crate) capability: u16,
    /// `multiprocessors=N`
    pub(crate) multiprocessors: i32,
    /// `memory=N`: bytes of memory.
    pub(crate) memory: u64,
    /// `cubin=N`: what it says of machine code, none of which it can run.
    pub(crate) cubin: Code,
    /// `reject`: the compiler takes no PTX.
    pub(crate) reject: bool,
    /// `refuse=N`: the launch of this number, from 1, is refused.
    pub(crate) refuse: Option<u64>,
    /// `crash=N`: the launch of this number breaks the context when it runs.
    pub(crate) crash: Option<u64>,
    /// `code=N`: what that is called.
    pub(crate) code: Code,
    /// `init=N`: what the driver says when it starts.
    pub(crate) init: Code,
    /// `events=N`: how many events there may be at the same time.
    pub(crate) events: usize,
    /// `no-graphs`: it makes no graphs.
    pub(crate) no_graphs: bool,
    /// `latest`, `seed=N`: how kernels are executed.
    pub(crate) mode: Mode,
}

/// Shared memory of each block that the system keeps for itself.
const RESERVED: u32 = 1 << 10;

impl Settings {
    /// The most shared memory that a block may have ("Technical Specifications per Compute Capability").
    pub(crate) fn most_shared(&self) -> u32 {
        match self.capability {
            ..80 => 64 << 10,
            80 | 87 => 163 << 10,
            86 | 89 | 120.. => 99 << 10,
            _ => 227 << 10,
        }
    }

    /// Blocks of so many threads and bytes of shared memory that a multiprocessor runs at the same time.
    pub(crate) fn per_multiprocessor(&self, threads: u32, shared: u32) -> i32 {
        let all = self.most_shared() + RESERVED;
        (2048 / threads.max(32)).min(all / shared.saturating_add(RESERVED)).cast_signed()
    }

    /// Blocks of a launch that the GPU runs at the same time.
    pub(crate) fn held(&self, q: &Queued) -> usize {
        let threads = q.block.iter().product::<u32>();
        let number = self.per_multiprocessor(threads, q.own.saturating_add(q.shared));
        usize::try_from(number * self.multiprocessors).unwrap_or(0)
    }

    /// Those of the environment.
    pub(crate) fn read() -> Settings {
        let mut s = Settings {
            devices: 1,
            driver: 13000,
            capability: 90,
            multiprocessors: 4,
            memory: 1 << 30,
            cubin: INVALID_IMAGE,
            reject: false,
            refuse: None,
            crash: None,
            code: LAUNCH_FAILED,
            init: 0,
            events: usize::MAX,
            no_graphs: false,
            mode: Mode::EAGER,
        };
        let text = std::env::var("ATTNC_STANDIN").unwrap_or_default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, "0"));
            let number: u64 = value.parse().unwrap_or_else(|_| panic!("ATTNC_STANDIN: {word}"));
            let small = || i32::try_from(number).unwrap_or(i32::MAX);
            match name {
                "devices" => s.devices = small(),
                "driver" => s.driver = small(),
                "capability" => s.capability = u16::try_from(number).unwrap_or(u16::MAX),
                "multiprocessors" => s.multiprocessors = small(),
                "memory" => s.memory = number,
                "cubin" => s.cubin = Code::try_from(number).unwrap_or(INVALID_IMAGE),
                "reject" => s.reject = true,
                "refuse" => s.refuse = Some(number),
                "crash" => s.crash = Some(number),
                "code" => s.code = small(),
                "init" => s.init = small(),
                "events" => s.events = usize::try_from(number).unwrap_or(usize::MAX),
                "no-graphs" => s.no_graphs = true,
                "latest" => s.mode = Mode { order: Mode::LATEST.order, ..s.mode },
                "seed" => s.mode = s.mode.seeded(number),
                _ => panic!("ATTNC_STANDIN: {word}"),
            }
        }
        s
    }
}
