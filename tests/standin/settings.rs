//! What the machine is like that the stand-in plays: `ATTNC_STANDIN`.

use crate::state::{Code, INVALID_IMAGE};
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
    /// `events=N`: how many events there may be at the same time.
    pub(crate) events: usize,
    /// `no-graphs`: it makes no graphs.
    pub(crate) no_graphs: bool,
    /// `latest`, `seed=N`: how kernels are executed.
    pub(crate) mode: Mode,
}

/// Blocks of so many threads that a multiprocessor runs at the same time.
pub(crate) fn per_multiprocessor(threads: i32) -> i32 {
    2048 / threads.max(32)
}

impl Settings {
    /// Blocks that the GPU runs at the same time.
    pub(crate) fn held(&self, block: [u32; 3]) -> usize {
        let threads = i32::try_from(block.iter().product::<u32>()).unwrap_or(i32::MAX);
        usize::try_from(per_multiprocessor(threads) * self.multiprocessors).unwrap_or(0)
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
