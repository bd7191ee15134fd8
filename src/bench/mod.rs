//! What `attnc bench` shows: how fast each kernel of a call is, beside what the machine can do.
//!
//! In: measured times and counted costs of launches ([`Report`]), and the machine's [`Ceilings`], which are measured here
//! too. Out: a table, JSON, a picture. Nothing is compiled, called, read or written here.

mod ceilings;
mod data;
mod machine;
mod picture;
mod table;

pub use ceilings::{Ceilings, measure};
pub use data::{tensor, write_weights};
pub use picture::picture;
pub use table::{json, table};

/// A launch of a plan: one place in it, which a loop over layers comes to again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Name of the kernel.
    pub kernel: String,
    /// Launches in a call.
    pub launches: usize,
    /// Seconds that they take together, the median of the calls.
    pub seconds: f64,
    /// Floating-point operations that they do together.
    pub flops: u64,
    /// Bytes that they must move at least, together.
    pub bytes: u64,
    /// Are these two exact? Else data decides, and they are the most it can be.
    pub exact: bool,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Name of the entry point.
    pub entry: String,
    /// The run-time dimensions.
    pub sizes: Vec<(String, i64)>,
    /// The variant of the code that ran.
    pub variant: String,
    /// Calls that were timed.
    pub calls: usize,
    /// Seconds of a call, the median.
    pub seconds: f64,
    /// The launches, in the order of the plan.
    pub sites: Vec<Site>,
    /// What the machine can do.
    pub ceilings: Ceilings,
}

/// Which ceiling is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Multiply-adds.
    Compute,
    /// Memory.
    Memory,
}

impl Bound {
    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
        }
    }
}

/// How fast some work was done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Floating-point operations a second.
    pub flops: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// The first as a part of its ceiling.
    pub of_flops: f64,
    /// The second as a part of its ceiling; more than 1 where the bytes come from a cache.
    pub of_bandwidth: f64,
    /// The ceiling that would be reached first.
    pub bound: Bound,
}

impl Report {
    /// How fast work was done that took so long.
    pub fn rates(&self, flops: u64, bytes: u64, seconds: f64) -> Rates {
        let seconds = seconds.max(1e-9);
        let (done, moved) = (flops as f64 / seconds, bytes as f64 / seconds);
        let of_flops = done / self.ceilings.flops.max(1.0);
        let of_bandwidth = moved / self.ceilings.bandwidth.max(1.0);
        let bound = if of_flops > of_bandwidth { Bound::Compute } else { Bound::Memory };
        Rates { flops: done, bandwidth: moved, of_flops, of_bandwidth, bound }
    }

    /// All launches as one.
    pub fn all(&self) -> Site {
        let sum = |f: &dyn Fn(&Site) -> u64| self.sites.iter().map(f).fold(0, u64::saturating_add);
        Site {
            kernel: "all kernels".to_string(),
            launches: self.sites.iter().map(|s| s.launches).sum(),
            seconds: self.sites.iter().map(|s| s.seconds).sum(),
            flops: sum(&|s| s.flops),
            bytes: sum(&|s| s.bytes),
            exact: self.sites.iter().all(|s| s.exact),
        }
    }
}

#[cfg(test)]
pub(crate) fn example() -> Report {
    let site = |kernel: &str, launches, seconds, flops, bytes, exact| Site {
        kernel: kernel.to_string(),
        launches,
        seconds,
        flops,
        bytes,
        exact,
    };
    Report {
        model: "Example".to_string(),
        entry: "forward".to_string(),
        sizes: vec![("S".to_string(), 128), ("batch".to_string(), 1)],
        variant: "portable".to_string(),
        calls: 9,
        seconds: 0.0101,
        sites: vec![
            site("rows.0", 12, 0.001, 4_000_000, 8_000_000, true),
            site("matmul.1", 12, 0.008, 3_200_000_000, 20_000_000, true),
            site("gather.2", 1, 0.000_5, 0, 400_000, false),
        ],
        ceilings: Ceilings { threads: 2, flops: 480e9, bandwidth: 46e9, vectors: "512-bit FMA", buffer: 440_401_920 },
    }
}
