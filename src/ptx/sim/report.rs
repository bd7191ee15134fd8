//! Results of a launch: counts, or a fault report.

use std::fmt;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The launch does not fit the kernel: threads, parameters, shared memory.
    Launch,
    /// An access outside of every buffer, of shared memory, of a parameter or of a tensor's map.
    OutOfBounds,
    /// An address that violates the alignment of the access.
    Misaligned,
    /// A read of an uninitialised register or memory.
    Uninitialised,
    /// Two unordered accesses to the same bytes, at least one of them a write.
    Race,
    /// A write by threads that the asynchronous proxy reads without a proxy fence in between.
    MissingProxyFence,
    /// A register of a `wgmma` that was accessed since the last `wgmma.fence`.
    MissingWgmmaFence,
    /// An access to a register of a pending `wgmma`.
    MissingWait,
    /// Lanes diverge at an instruction that all lanes of a warp, or of its mask, must execute
    /// together.
    Divergence,
    /// No thread can continue.
    Deadlock,
    /// A named barrier with other counts than before, or a warp that arrives at it twice.
    BarrierMisuse,
    /// An mbarrier that was not initialised, is initialised twice, or is accessed as data.
    MbarrierMisuse,
    /// More arrivals or bytes than an mbarrier expects.
    OverArrival,
    /// An invalid descriptor, swizzle, tensor map or operand.
    BadOperand,
    /// The kernel executed `trap`.
    Trap,
    /// The instruction limit was exceeded.
    Limit,
}

impl Fault {
    /// A short name, as reports print it.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::Launch => "launch",
            Fault::OutOfBounds => "out of bounds",
            Fault::Misaligned => "misaligned address",
            Fault::Uninitialised => "uninitialised read",
            Fault::Race => "race",
            Fault::MissingProxyFence => "missing proxy fence",
            Fault::MissingWgmmaFence => "missing wgmma.fence",
            Fault::MissingWait => "missing wait",
            Fault::Divergence => "divergence",
            Fault::Deadlock => "deadlock",
            Fault::BarrierMisuse => "barrier misuse",
            Fault::MbarrierMisuse => "mbarrier misuse",
            Fault::OverArrival => "over-arrival",
            Fault::BadOperand => "bad operand",
            Fault::Trap => "trap",
            Fault::Limit => "instruction limit",
        }
    }
}

/// Coordinates of a thread in a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCoordinates {
    /// Coordinates of its block.
    pub block: [u32; 3],
    /// Coordinates of the thread in its block.
    pub thread: [u32; 3],
}

impl fmt::Display for ThreadCoordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bx, by, bz] = self.block;
        let [x, y, z] = self.thread;
        write!(f, "block ({bx}, {by}, {bz}), thread ({x}, {y}, {z})")
    }
}

/// A fault, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The kind of fault.
    pub fault: Fault,
    /// Name of the kernel.
    pub kernel: String,
    /// The line of the module's printed text, from 1; 0 if no instruction is to blame.
    pub line: usize,
    /// The text of the instruction.
    pub shown: String,
    /// A thread that executes it, if there is one.
    pub place: Option<ThreadCoordinates>,
    /// The address involved, if any.
    pub address: Option<u64>,
    /// A sentence that describes the fault.
    pub message: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: kernel `{}`", self.fault.name(), self.kernel)?;
        if self.line > 0 {
            write!(f, ", line {}: `{}`", self.line, self.shown)?;
        }
        if let Some(place) = self.place {
            write!(f, ", {place}")?;
        }
        if let Some(address) = self.address {
            write!(f, ", address {address:#x}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Report {}

/// A fault without location: instructions only know the lane.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) fault: Fault,
    pub(super) lane: Option<u32>,
    pub(super) address: Option<u64>,
    pub(super) message: String,
}

pub(super) type Check<T> = Result<T, Box<Problem>>;

/// A problem without a lane.
pub(super) fn problem<T>(fault: Fault, message: impl Into<String>) -> Check<T> {
    Err(Box::new(Problem { fault, lane: None, address: None, message: message.into() }))
}

/// A problem of a lane.
pub(super) fn at_lane<T>(fault: Fault, lane: u32, message: impl Into<String>) -> Check<T> {
    Err(Box::new(Problem { fault, lane: Some(lane), address: None, message: message.into() }))
}

/// A problem of a lane at an address.
pub(super) fn at_address<T>(fault: Fault, lane: u32, address: u64, message: impl Into<String>) -> Check<T> {
    Err(Box::new(Problem { fault, lane: Some(lane), address: Some(address), message: message.into() }))
}

/// Counts of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that ran.
    pub blocks: u64,
    /// Instructions, each counted once for the lanes of a warp that execute it together.
    pub warp_instructions: u64,
    /// Instructions, counted for each lane.
    pub thread_instructions: u64,
    /// Accesses to global memory by a warp.
    pub global_accesses: u64,
    /// Sectors of 32 bytes in global memory that warps accessed.
    pub global_sectors: u64,
    /// Accesses to shared memory by a warp.
    pub shared_accesses: u64,
    /// Extra passes due to bank conflicts.
    pub bank_conflicts: u64,
    /// Multiply-adds by `mma` and `wgmma`.
    pub matrix_products: u64,
    /// Bytes that asynchronous copies moved.
    pub copied_bytes: u64,
}

impl Stats {
    /// The difference to earlier counts.
    pub(super) fn since(&self, before: &Stats) -> Stats {
        Stats {
            blocks: self.blocks - before.blocks,
            warp_instructions: self.warp_instructions - before.warp_instructions,
            thread_instructions: self.thread_instructions - before.thread_instructions,
            global_accesses: self.global_accesses - before.global_accesses,
            global_sectors: self.global_sectors - before.global_sectors,
            shared_accesses: self.shared_accesses - before.shared_accesses,
            bank_conflicts: self.bank_conflicts - before.bank_conflicts,
            matrix_products: self.matrix_products - before.matrix_products,
            copied_bytes: self.copied_bytes - before.copied_bytes,
        }
    }

    /// Adds the counts of another launch.
    pub fn add(&mut self, other: &Stats) {
        self.blocks += other.blocks;
        self.warp_instructions += other.warp_instructions;
        self.thread_instructions += other.thread_instructions;
        self.global_accesses += other.global_accesses;
        self.global_sectors += other.global_sectors;
        self.shared_accesses += other.shared_accesses;
        self.bank_conflicts += other.bank_conflicts;
        self.matrix_products += other.matrix_products;
        self.copied_bytes += other.copied_bytes;
    }
}
