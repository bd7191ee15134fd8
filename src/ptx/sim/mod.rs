//! A GPU simulator: executes PTX text and reports faults.
//!
//! In: PTX text, buffers, launches. Out: the buffers' contents, and counts; or a [`Report`], which
//! names the kernel, the line of its text, the thread and the address. Must not know: tiles, plans,
//! where the text comes from.
//!
//! Effects that hardware may delay (copies to shared memory, `wgmma`) happen at once or as late as
//! is legal, as a launch requests, and a seed determines the order of warps. Correct kernels give
//! the same results in all modes. Reported are: accesses out of bounds or misaligned, uninitialised
//! registers and bytes, races (by vector clocks, so they are found even if the simulated order was
//! harmless), missing proxy fences, missing `wgmma` fences and waits, divergence where convergence
//! is required, deadlocks, misused barriers and mbarriers. Bank conflicts are counted.
//!
//! Limits: generic addresses are not supported; matmul sums are exact and rounded once, unlike
//! hardware; approximate instructions (`ex2.approx`) are correctly rounded; directed rounding of
//! `f64` requires magnitudes between 2^-330 and 2^330; time is modelled only for pictures of a
//! schedule ([`Device::timeline`]), by a simple model.
//!
//! | file | content |
//! |---|---|
//! | `code` | modules, decoded |
//! | `state` | blocks, warps, groups of lanes; an instruction in execution |
//! | `machine` | scheduling of warps, deadlocks |
//! | `execute`, `operands` | one instruction: guard, operands, control, exchange between lanes |
//! | `integer`, `float`, `convert`, `rounding` | arithmetic |
//! | `access`, `atomics`, `memory` | loads and stores |
//! | `shadow`, `clock` | race detection, happens-before |
//! | `barriers`, `arrivals` | named barriers, mbarriers, clusters |
//! | `copies`, `transfers`, `tensor_map` | asynchronous copies |
//! | `matrix`, `fragments` | warp matmuls (`mma.sync`) |
//! | `wgmma`, `products` | warpgroup matmuls (`wgmma`) |
//! | `timing`, `timeline` | a launch in time, for pictures of its schedule |
//!
//! Code generation makes the same assumptions about hardware as the simulator, so their agreement
//! proves nothing. Independent sources (CUTLASS of August 2026; layouts were compared element by
//! element):
//!
//! | assumption | CUTLASS, or the named source |
//! |---|---|
//! | fragments of `mma.m16n8k16`, `m16n8k8.tf32`, `m16n8k32.s8` | `include/cute/atom/mma_traits_sm80.hpp`, lines 78, 163, 264 |
//! | fragments of `wgmma`: D, A in registers | `include/cute/atom/mma_traits_sm90_gmma.hpp`, lines 434, 451 |
//! | fields of a descriptor, numbers of swizzles | `include/cute/arch/mma_sm90_desc.hpp`, lines 110 to 125 |
//! | leading and stride offsets, K-major and MN-major | `mma_traits_sm90_gmma.hpp`, lines 231 to 268 |
//! | swizzles: bits 4 to 6 change by bits 7 to 9 of the address | CUDA C++ Programming Guide, "TMA Swizzle", table of offsets |
//! | bytes for `src-size` below `cp-size` are 0 | `include/cute/arch/copy_sm80.hpp`, line 148 |
//! | `setmaxnreg` by all warps of a group of four | FlashAttention, `hopper/flash_fwd_kernel_sm90.h`, lines 309 and 361 |
//! | extents, strides, boxes and addresses of a map | `cuda.h`, at `cuTensorMapEncodeTiled` |
//!
//! The layout of box rows shorter than the swizzle is undocumented: a map with such rows is
//! rejected.

mod access;
mod arrivals;
mod atomics;
mod barriers;
mod clock;
mod code;
mod convert;
mod copies;
mod execute;
mod float;
mod fragments;
mod integer;
mod lanes;
mod machine;
mod matrix;
mod memory;
mod mode;
mod operands;
mod products;
mod report;
mod rounding;
mod shadow;
mod state;
pub mod tensor_map;
mod timeline;
mod timing;
mod transfers;
mod wgmma;

use crate::ptx::{ParamType, Target, text, verify};

pub use mode::{Mode, Order};
pub use report::{Fault, Report, Stats, ThreadCoordinates};
pub use timeline::{Activity, Flight, Interval, Span, Stage, Timeline};

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    kernels: Vec<code::Code>,
    types: Vec<Vec<ParamType>>,
    target: Target,
}

impl Module {
    /// Parses and verifies PTX text.
    ///
    /// # Errors
    /// Syntax or verification errors, one per line.
    pub fn load(ptx: &str) -> Result<Module, String> {
        let module = text::parse(ptx).map_err(|e| e.to_string())?;
        verify(&module).map_err(|errors| errors.iter().map(|e| format!("{e}\n")).collect::<String>())?;
        let types = module.kernels.iter().map(|k| k.params.iter().map(|p| p.ty).collect()).collect();
        Ok(Module { kernels: code::decode(&module), types, target: module.target })
    }

    /// The processor of `.target`.
    pub fn target(&self) -> Target {
        self.target
    }

    /// The names of its kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|k| k.name.as_str())
    }

    /// The parameters of a kernel, if there is one of this name.
    pub fn params(&self, kernel: &str) -> Option<&[ParamType]> {
        let n = self.kernels.iter().position(|k| k.name == kernel)?;
        self.types.get(n).map(Vec::as_slice)
    }

    /// Bytes of shared memory that a kernel declares.
    pub fn static_shared(&self, kernel: &str) -> Option<u32> {
        self.kernels.iter().find(|k| k.name == kernel).map(|k| k.static_shared)
    }
}

/// A launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Name of the kernel.
    pub kernel: &'a str,
    /// Blocks along the three axes.
    pub grid: [u32; 3],
    /// Threads of a block along the three axes.
    pub block: [u32; 3],
    /// Blocks of a cluster, if the launch sets it; a kernel may declare it itself.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Do all blocks run concurrently from the start? If they exceed the device's capacity, the
    /// launch fails.
    pub cooperative: bool,
    /// The bytes of each parameter.
    pub params: &'a [&'a [u8]],
}

/// A device: global memory and the launches on it.
pub struct Device {
    global: memory::Global,
    /// Capacity in concurrent blocks.
    holds: usize,
}

/// Default capacity in concurrent blocks.
const HELD: usize = 264;

impl Default for Device {
    fn default() -> Self {
        Device::new()
    }
}

/// The error for a range outside of all buffers.
fn outside(address: u64, bytes: usize) -> String {
    format!("{bytes} bytes at {address:#x} are outside of all buffers")
}

impl Device {
    /// A device without buffers.
    pub fn new() -> Device {
        Device { global: memory::Global::new(), holds: HELD }
    }

    /// Sets the capacity in concurrent blocks, at least one. Further blocks start only when one of
    /// these ends.
    pub fn hold(&mut self, blocks: usize) {
        self.holds = blocks.max(1);
    }

    /// Allocates an uninitialised buffer, aligned to 4096 bytes. There are gaps between buffers,
    /// and addresses are never reused.
    pub fn alloc(&mut self, bytes: usize) -> u64 {
        self.global.alloc(bytes)
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// An address at which no buffer begins.
    pub fn free(&mut self, address: u64) -> Result<(), String> {
        if self.global.free(address) { Ok(()) } else { Err(format!("no buffer begins at {address:#x}")) }
    }

    /// Number of buffers, and their total size in bytes.
    pub fn allocated(&self) -> (usize, u64) {
        (self.global.count(), self.global.bytes())
    }

    /// Writes bytes to a buffer.
    ///
    /// # Errors
    /// A range outside of all buffers.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<(), String> {
        let (region, at) = self.global.at(address, data.len()).ok_or_else(|| outside(address, data.len()))?;
        region.fill(at, data);
        Ok(())
    }

    /// Writes bytes, some of them uninitialised.
    ///
    /// # Errors
    /// A range outside of all buffers.
    pub fn write_known(&mut self, address: u64, data: &[u8], written: &[bool]) -> Result<(), String> {
        let (region, at) = self.global.at(address, data.len()).ok_or_else(|| outside(address, data.len()))?;
        region.fill(at, data);
        for (known, written) in region.known.iter_mut().skip(at).zip(written) {
            *known = u8::from(*written);
        }
        Ok(())
    }

    /// Reads bytes of a buffer; uninitialised ones are 0.
    ///
    /// # Errors
    /// A range outside of all buffers.
    pub fn read(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>, String> {
        let (region, at) = self.global.at(address, bytes).ok_or_else(|| outside(address, bytes))?;
        Ok(region.bytes.get(at..at + bytes).map(<[u8]>::to_vec).unwrap_or_default())
    }

    /// Which bytes of a range are initialised.
    ///
    /// # Errors
    /// A range outside of all buffers.
    pub fn written(&mut self, address: u64, bytes: usize) -> Result<Vec<bool>, String> {
        let (region, at) = self.global.at(address, bytes).ok_or_else(|| outside(address, bytes))?;
        Ok(region.known.get(at..at + bytes).unwrap_or_default().iter().map(|k| *k == 1).collect())
    }

    /// Copies bytes within global memory, including their initialised state.
    ///
    /// # Errors
    /// Ranges outside of all buffers.
    pub fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<(), String> {
        let data = self.read(from, bytes)?;
        let written = self.written(from, bytes)?;
        self.write_known(to, &data, &written)
    }

    /// Runs a kernel.
    ///
    /// # Errors
    /// A fault of the launch or the kernel. Buffers may have been modified.
    pub fn launch(&mut self, module: &Module, launch: &Launch<'_>, mode: Mode) -> Result<Stats, Box<Report>> {
        self.begin(module, launch, mode)?.all()
    }

    /// Runs a kernel and returns the timeline of one block: the schedule, in cycles of a simple
    /// model of a multiprocessor, which are not hardware cycles. The model also determines the
    /// order of effects and warps.
    ///
    /// # Errors
    /// As [`Device::launch`].
    pub fn timeline(
        &mut self,
        module: &Module,
        launch: &Launch<'_>,
        block: u32,
    ) -> Result<(Stats, Option<Timeline>), Box<Report>> {
        let run = self.begin(module, launch, Mode::LATEST)?;
        let timing = timing::Timing::new(run.code, module.target, block);
        run.all_in_time(timing)
    }

    /// Prepares a launch.
    fn begin<'a>(
        &'a mut self,
        module: &'a Module,
        launch: &Launch<'_>,
        mode: Mode,
    ) -> Result<state::Run<'a>, Box<Report>> {
        let refused = |message: String| {
            Box::new(Report {
                fault: Fault::Launch,
                kernel: launch.kernel.to_string(),
                line: 0,
                shown: String::new(),
                place: None,
                address: None,
                message,
            })
        };
        let Some(code) = module.kernels.iter().find(|k| k.name == launch.kernel) else {
            let names: Vec<&str> = module.kernels().collect();
            return Err(refused(format!("unknown kernel; the module has {}", names.join(", "))));
        };
        code::fits(code, launch.block, launch.shared_bytes, launch.params).map_err(&refused)?;
        let blocks = launch.grid.iter().fold(1u64, |n, e| n.saturating_mul(u64::from(*e)));
        if blocks == 0 || blocks > u64::from(u32::MAX) || launch.grid[1] > 65535 || launch.grid[2] > 65535 {
            return Err(refused(format!("a grid of {:?} blocks", launch.grid)));
        }
        if launch.cooperative && blocks > self.holds as u64 {
            let holds = self.holds;
            return Err(refused(format!(
                "a cooperative launch of {blocks} blocks; the device runs {holds} at the same time"
            )));
        }
        let cluster = match (code.cluster, launch.cluster) {
            (Some(own), Some(given)) if own != given => {
                return Err(refused(format!("clusters of {given:?} blocks; the kernel requires {own:?}")));
            }
            (own, given) => own.or(given).unwrap_or([1; 3]),
        };
        let size = cluster.iter().fold(1u64, |n, e| n.saturating_mul(u64::from(*e)));
        if !(1..=16).contains(&size) || launch.grid.iter().zip(&cluster).any(|(g, c)| !g.is_multiple_of(*c)) {
            return Err(refused(format!("clusters of {cluster:?} blocks in a grid of {:?}", launch.grid)));
        }
        let mut params = vec![0; code.param_bytes()];
        for (p, bytes) in code.params.iter().zip(launch.params) {
            let at = p.at as usize;
            if let Some(to) = params.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        }
        self.global.begin();
        let shape = (launch.grid, launch.block, cluster);
        let held = state::Residency { most: self.holds, at_once: if launch.cooperative { blocks as usize } else { 0 } };
        Ok(state::Run::new(code, &mut self.global, mode, shape, launch.shared_bytes, params, held))
    }
}
