//! The report of `attnc bench`: the speed of each kernel of a call, relative to the machine's
//! ceilings.
//!
//! In: measured times and counted costs of launches ([`Report`]), and the machine's [`Ceilings`],
//! which are also measured here, for a CPU and for a GPU (`gpu`). Out: a table, JSON, a roofline
//! plot. Models are not compiled or called here, and no files are read or written.

mod ceilings;
mod data;
pub mod gpu;
mod machine;
mod picture;
mod products;
mod table;

pub use ceilings::{Ceilings, Memory, measure};
pub use data::{tensor, write_weights};
pub use picture::picture;
pub use table::{json, table};

/// The operand types and instructions of a kernel's matmuls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Products {
    /// FMAs of `f32`, and anything not listed below.
    Floats,
    /// Dot products of `bf16` pairs (`vdpbf16ps`).
    Pairs,
    /// Tiles of `bf16` (`tdpbf16ps`, AMX).
    Tiles,
    /// Dot products of bytes (`vpdpbusd`, VNNI).
    Bytes,
    /// Tiles of `f32` rounded to `tf32`, on a GPU (`mma`).
    Tf32TensorCores,
    /// Tiles of 16-bit floats on a GPU (`mma`, `wgmma`).
    TensorCores,
}

impl Products {
    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Products::Floats => "FMA",
            Products::Pairs => "bf16 pairs",
            Products::Tiles => "AMX tiles",
            Products::Bytes => "VNNI bytes",
            Products::Tf32TensorCores => "tf32 tensor cores",
            Products::TensorCores => "tensor cores",
        }
    }
}

/// A launch site of a plan, which a loop over layers executes repeatedly.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Name of the kernel.
    pub kernel: String,
    /// File and line of the source it comes from; empty if unknown.
    pub source: String,
    /// The kind of instructions that compute its matmuls.
    pub products: Products,
    /// Number of launches per call.
    pub launches: usize,
    /// Total time of the launches in seconds, the median over calls.
    pub seconds: f64,
    /// Total floating-point operations of the launches.
    pub flops: u64,
    /// Total bytes that the launches must move at least.
    pub bytes: u64,
    /// Part of `bytes` that is parameters.
    pub weights: u64,
    /// Are `flops` and `bytes` exact? Otherwise they depend on data, and are upper bounds.
    pub exact: bool,
    /// Operations were not counted; `flops` is 0.
    pub uncounted: bool,
}

/// The measurements of an entry point.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// Name of the entry point.
    pub entry: String,
    /// Values of the run-time dimensions.
    pub sizes: Vec<(String, i64)>,
    /// Name of the variant that ran.
    pub variant: String,
    /// Number of timed calls.
    pub calls: usize,
    /// Median duration of a call in seconds.
    pub seconds: f64,
    /// The launch sites, in plan order.
    pub sites: Vec<Site>,
    /// The machine's ceilings.
    pub ceilings: Ceilings,
    /// The GPU, if it ran on one.
    pub gpu: Option<Device>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The driver's name for it.
    pub name: String,
    /// A simulated GPU, whose times are meaningless.
    pub simulated: bool,
}

/// The ceiling that limits a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Multiply-adds.
    Compute,
    /// Memory, or the cache that may hold its data.
    Memory,
}

impl Bound {
    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
        }
    }
}

/// Rates of some work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Floating-point operations per second.
    pub flops: f64,
    /// Bytes per second.
    pub bandwidth: f64,
    /// `flops` relative to its ceiling.
    pub of_flops: f64,
    /// `bandwidth` relative to its ceiling.
    pub of_bandwidth: f64,
    /// The nearer ceiling.
    pub bound: Bound,
    /// The farthest memory that must supply its bytes: `L2`, `memory`.
    pub memory: &'static str,
    /// The larger of the two rates relative to the ceiling as measured: above 1 if that ceiling is
    /// too low.
    pub of_measured: f64,
}

/// A median round below this part of the best one indicates a busy machine.
const STEADY: f64 = 0.8;
/// A kernel above this multiple of a measured ceiling indicates that the ceiling is too low.
const ABOVE: f64 = 1.1;

impl Report {
    /// The threads or multiprocessors: `1 thread`, `132 multiprocessors`.
    pub(super) fn workers(&self) -> String {
        let what = if self.gpu.is_some() { "multiprocessor" } else { "thread" };
        let n = self.ceilings.workers;
        format!("{n} {what}{}", if n == 1 { "" } else { "s" })
    }

    /// The rates of a launch site relative to its own ceilings: operations relative to the fastest
    /// multiplication that its kernel uses, bytes relative to the bandwidth of the memories that
    /// may hold them. For activations these are the caches that hold everything one launch
    /// accesses; for parameters, which other launches evict in between, the caches that hold
    /// everything a call accesses. A rate above a measured ceiling replaces that ceiling.
    pub fn rates(&self, site: &Site) -> Rates {
        let seconds = site.seconds.max(1e-9);
        let (done, moved) = (site.flops as f64 / seconds, site.bytes as f64 / seconds);
        let launches = u64::try_from(site.launches).unwrap_or(1).max(1);
        let call = self.sites.iter().map(|s| s.bytes).fold(0, u64::saturating_add);
        let near = self.ceilings.memory_of(site.bytes / launches);
        let far = self.ceilings.memory_of(if site.weights > 0 { call } else { site.bytes / launches });
        let weights = site.weights.min(site.bytes) as f64;
        let least = weights / far.bandwidth.max(1.0) + (site.bytes as f64 - weights) / near.bandwidth.max(1.0);
        let of = |rate: f64, ceiling: f64| rate / ceiling.max(1.0);
        let of_flops = of(done, self.ceilings.products(site.products));
        let of_bandwidth = of(moved, if least > 0.0 { site.bytes as f64 / least } else { near.bandwidth });
        let of_measured = of_flops.max(of_bandwidth);
        let (of_flops, of_bandwidth) = (of_flops.min(1.0), of_bandwidth.min(1.0));
        let bound = if of_flops > of_bandwidth { Bound::Compute } else { Bound::Memory };
        Rates { flops: done, bandwidth: moved, of_flops, of_bandwidth, bound, memory: far.name, of_measured }
    }

    /// Reasons why the ceilings may be too low, in sentences.
    pub fn warnings(&self) -> Vec<String> {
        let mut found = Vec::new();
        let steadiness = self.ceilings.steadiness;
        if steadiness < STEADY {
            found.push(format!(
                "the machine was busy while its ceilings were measured (the median round reached {:.0} % of the best)",
                steadiness * 100.0
            ));
        }
        let above = |s: &&Site| self.rates(s).of_measured > ABOVE;
        let mut names: Vec<&str> = self.sites.iter().filter(above).map(|s| s.kernel.as_str()).collect();
        names.dedup();
        if !names.is_empty() {
            found.push(format!("faster than the ceilings that were measured: {}", names.join(", ")));
        }
        found
    }

    /// The sum of all launch sites.
    pub fn all(&self) -> Site {
        let sum = |f: &dyn Fn(&Site) -> u64| self.sites.iter().map(f).fold(0, u64::saturating_add);
        Site {
            kernel: "all kernels".to_string(),
            source: String::new(),
            products: self.sites.iter().map(|s| s.products).max().unwrap_or(Products::Floats),
            launches: self.sites.iter().map(|s| s.launches).sum(),
            seconds: self.sites.iter().map(|s| s.seconds).sum(),
            flops: sum(&|s| s.flops),
            bytes: sum(&|s| s.bytes),
            weights: sum(&|s| s.weights),
            exact: self.sites.iter().all(|s| s.exact),
            uncounted: self.sites.iter().any(|s| s.uncounted),
        }
    }
}

/// Explains a kernel that has no source line, by the first part of its name.
pub(crate) fn explained(kernel: &str) -> Option<&'static str> {
    Some(match kernel.split('.').next()? {
        "carry" => "copies a value that a loop hands to its next iteration, where it cannot be computed in place",
        "result" => "copies a result that is computed elsewhere to where the caller wants it",
        "heads" => "copies keys and values so that each head's rows lie one behind the other",
        "copy" => "copies a value whose elements are wanted in another order",
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) fn example() -> Report {
    let site = |kernel: &str, line: u32, launches, seconds, flops, bytes, exact| Site {
        kernel: kernel.to_string(),
        source: if line > 0 { format!("example.attn:{line}") } else { String::new() },
        products: if kernel == "matmul.1" { Products::Tiles } else { Products::Floats },
        launches,
        seconds,
        flops,
        bytes,
        weights: if kernel == "matmul.1" { 18_000_000 } else { 0 },
        exact,
        uncounted: false,
    };
    let memory = |name, bytes, bandwidth| Memory { name, bytes, bandwidth };
    Report {
        model: "Example".to_string(),
        entry: "forward".to_string(),
        sizes: vec![("S".to_string(), 128), ("batch".to_string(), 1)],
        variant: "portable".to_string(),
        calls: 9,
        seconds: 0.0101,
        sites: vec![
            site("rows.0", 7, 12, 0.001, 4_000_000, 8_000_000, true),
            site("matmul.1", 9, 12, 0.008, 3_200_000_000, 20_000_000, true),
            site("gather.2", 12, 1, 0.000_5, 0, 400_000, false),
            site("carry.0", 0, 1, 0.000_1, 0, 12_000_000, true),
        ],
        ceilings: Ceilings {
            workers: 2,
            products: vec![(Products::Floats, 480e9), (Products::Tiles, 2400e9)],
            vectors: "512-bit FMA",
            memories: vec![
                memory("L1", 98_304, 800e9),
                memory("L2", 4_194_304, 200e9),
                memory("memory", u64::MAX, 46e9),
            ],
            buffer: 440_401_920,
            steadiness: 0.97,
        },
        gpu: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_launch_has_the_ceilings_of_what_it_uses() {
        let report = example();
        let rates = |n: usize| report.rates(&report.sites[n]);
        // 666,667 bytes per launch fit L2, which provides 200 GB/s.
        let rows = rates(0);
        assert!((rows.of_bandwidth - 8e9 / 200e9).abs() < 1e-6 && rows.memory == "L2", "{rows:?}");
        assert!((rows.of_flops - 4e9 / 480e9).abs() < 1e-6, "{rows:?}");
        // 400 GFLOP/s of the peak of tiles; parameters come from memory, the rest from L2.
        let product = rates(1);
        assert!((product.of_flops - 400e9 / 2400e9).abs() < 1e-6, "{product:?}");
        let least = 18e6 / 46e9 + 2e6 / 200e9;
        assert!((product.of_bandwidth - least / 0.008).abs() < 1e-6 && product.memory == "memory", "{product:?}");
        // 120 GB/s from memory, whose ceiling was measured as 46: that measurement was too low.
        let copied = rates(3);
        assert!((copied.of_bandwidth - 1.0).abs() < 1e-9, "{copied:?}");
        assert!((copied.of_measured - 120.0 / 46.0).abs() < 1e-6, "{copied:?}");
        assert_eq!(report.warnings(), ["faster than the ceilings that were measured: carry.0"]);
        let mut busy = example();
        busy.sites.truncate(3);
        assert!(busy.warnings().is_empty());
        busy.ceilings.steadiness = 0.5;
        assert!(busy.warnings()[0].contains("busy") && busy.warnings()[0].contains("50 %"), "{:?}", busy.warnings());
        for site in report.sites.iter().chain([&report.all()]) {
            let r = report.rates(site);
            assert!((0.0..=1.0).contains(&r.of_flops) && (0.0..=1.0).contains(&r.of_bandwidth), "{site:?} {r:?}");
        }
    }
}
