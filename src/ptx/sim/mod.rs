//! A simulator of GPUs: executes the text of PTX modules, and reports what is wrong with them.
//!
//! In: a text, buffers, launches. Out: what the buffers hold then, and counts; or a [`Report`], which names the kernel, the line
//! of its text, the thread and the address. What this must not know: tiles, plans, who made the text.
//!
//! Effects that hardware may delay (copies to shared memory, products of warpgroups) happen at once or as late as is legal,
//! whichever a launch asks for, and a seed says which warps go first. Correct kernels give the same results for all of these.
//! What is reported: accesses out of bounds or misaligned, registers and bytes without a value, races (by vector clocks,
//! so that they are found though no order made them harmful), missing fences between threads and the asynchronous proxy,
//! missing fences and waits of products, lanes that do not execute together what they must, deadlocks, barriers and mbarriers
//! that are misused. Bank conflicts are counted.
//!
//! Limits: generic addresses are not followed; exact sums of products are rounded once, where hardware rounds in its own
//! way; approximations (`ex2.approx`) are the nearest number; `f64` is
//! rounded in another direction than to nearest only where nothing is below 2^-330 or above 2^330; time passes in pictures of a
//! schedule alone ([`Device::timeline`]), by a simple model.
//!
//! | file | what it is about |
//! |---|---|
//! | `code` | modules, decoded |
//! | `state` | blocks, warps, groups of lanes; an instruction in execution |
//! | `machine` | which warps go next, what is stuck |
//! | `execute`, `operands` | one instruction: guard, operands, control, exchange between lanes |
//! | `integer`, `float`, `convert`, `rounding` | arithmetic |
//! | `access`, `atomics`, `memory` | loads and stores |
//! | `shadow`, `clock` | who did what before whom |
//! | `barriers`, `arrivals` | named barriers, mbarriers, clusters |
//! | `copies`, `transfers`, `tensor_map` | asynchronous copies |
//! | `matrix`, `fragments` | products of warps |
//! | `wgmma`, `products` | products of warpgroups |
//! | `timing`, `timeline` | a launch in time, for pictures of its schedule |
//!
//! What it assumes of hardware, code generation assumes too, so agreement of the two shows nothing. This is what stands elsewhere (CUTLASS is
//! that of August 2026; layouts were compared element by element):
//!
//! | assumption | CUTLASS, or what is named |
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
//! Nowhere is it said how rows of a box lie that are shorter than the swizzle: a map with such rows is refused.

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
pub use report::{Fault, Place, Report, Stats};
pub use timeline::{Activity, Flight, Interval, Span, Stage, Timeline};

/// A module that is loaded.
#[derive(Debug)]
pub struct Module {
    kernels: Vec<code::Code>,
    types: Vec<Vec<ParamType>>,
    target: Target,
}

impl Module {
    /// Reads a text and verifies it.
    ///
    /// # Errors
    /// What is wrong with it, as an assembler's log: a line for each fault.
    pub fn load(ptx: &str) -> Result<Module, String> {
        let module = text::parse(ptx).map_err(|e| e.to_string())?;
        verify(&module).map_err(|errors| errors.iter().map(|e| format!("{e}\n")).collect::<String>())?;
        let types = module.kernels.iter().map(|k| k.params.iter().map(|p| p.ty).collect()).collect();
        Ok(Module { kernels: code::decode(&module), types, target: module.target })
    }

    /// The processor that it is for.
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
    /// Its name.
    pub kernel: &'a str,
    /// Blocks along the three axes.
    pub grid: [u32; 3],
    /// Threads of a block along the three axes.
    pub block: [u32; 3],
    /// Blocks of a cluster, where the launch says it; a kernel may say it itself.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of shared memory beyond what the kernel declares.
    pub shared_bytes: u32,
    /// Do all blocks run at the same time, from the start on? If the device does not hold so many, nothing is launched.
    pub cooperative: bool,
    /// The bytes of each parameter.
    pub params: &'a [&'a [u8]],
}

/// A device: global memory, and what runs on it.
pub struct Device {
    global: memory::Global,
    /// Blocks that it runs at the same time.
    holds: usize,
}

/// Blocks that a device runs at the same time, if nothing else is said.
const HELD: usize = 264;

impl Default for Device {
    fn default() -> Self {
        Device::new()
    }
}

/// Why a range of memory cannot be read or written.
fn outside(address: u64, bytes: usize) -> String {
    format!("{bytes} bytes at {address:#x} are in no buffer")
}

impl Device {
    /// A device without buffers.
    pub fn new() -> Device {
        Device { global: memory::Global::new(), holds: HELD }
    }

    /// Says how many blocks it runs at the same time, one at least. Of others that wait for one of these, none starts before it ends.
    pub fn hold(&mut self, blocks: usize) {
        self.holds = blocks.max(1);
    }

    /// A buffer of so many bytes, at a multiple of 4096; its bytes have no values. Buffers are apart from each other, and no
    /// address is given twice.
    pub fn alloc(&mut self, bytes: usize) -> u64 {
        self.global.alloc(bytes)
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// An address where none begins.
    pub fn free(&mut self, address: u64) -> Result<(), String> {
        if self.global.free(address) { Ok(()) } else { Err(format!("no buffer begins at {address:#x}")) }
    }

    /// How many buffers there are, and how many bytes they have.
    pub fn allocated(&self) -> (usize, u64) {
        (self.global.count(), self.global.bytes())
    }

    /// Writes bytes to a buffer.
    ///
    /// # Errors
    /// A range that is in no buffer.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<(), String> {
        let (region, at) = self.global.at(address, data.len()).ok_or_else(|| outside(address, data.len()))?;
        region.fill(at, data);
        Ok(())
    }

    /// Writes bytes of which some have no value.
    ///
    /// # Errors
    /// A range that is in no buffer.
    pub fn write_known(&mut self, address: u64, data: &[u8], written: &[bool]) -> Result<(), String> {
        let (region, at) = self.global.at(address, data.len()).ok_or_else(|| outside(address, data.len()))?;
        region.fill(at, data);
        for (known, written) in region.known.iter_mut().skip(at).zip(written) {
            *known = u8::from(*written);
        }
        Ok(())
    }

    /// Reads bytes of a buffer; those without values are 0.
    ///
    /// # Errors
    /// A range that is in no buffer.
    pub fn read(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>, String> {
        let (region, at) = self.global.at(address, bytes).ok_or_else(|| outside(address, bytes))?;
        Ok(region.bytes.get(at..at + bytes).map(<[u8]>::to_vec).unwrap_or_default())
    }

    /// Which bytes of a range have values.
    ///
    /// # Errors
    /// A range that is in no buffer.
    pub fn written(&mut self, address: u64, bytes: usize) -> Result<Vec<bool>, String> {
        let (region, at) = self.global.at(address, bytes).ok_or_else(|| outside(address, bytes))?;
        Ok(region.known.get(at..at + bytes).unwrap_or_default().iter().map(|k| *k == 1).collect())
    }

    /// Copies bytes within global memory, with what has no values.
    ///
    /// # Errors
    /// Ranges that are in no buffer.
    pub fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<(), String> {
        let data = self.read(from, bytes)?;
        let written = self.written(from, bytes)?;
        self.write_known(to, &data, &written)
    }

    /// Runs a kernel.
    ///
    /// # Errors
    /// What is wrong with the launch or the kernel. Buffers may have been written to.
    pub fn launch(&mut self, module: &Module, launch: &Launch<'_>, mode: Mode) -> Result<Stats, Box<Report>> {
        self.begin(module, launch, mode)?.all()
    }

    /// Runs a kernel, and tells what a block did over time, by its number: the schedule, in cycles of a simple model of a
    /// multiprocessor. They are not what hardware takes. Effects come when the model says; which warps go first, it says too.
    ///
    /// # Errors
    /// As those of [`Device::launch`].
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

    /// A launch that is to be run.
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
            return Err(refused(format!("there is no such kernel; there are {}", names.join(", "))));
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
        let held = state::Held { most: self.holds, at_once: if launch.cooperative { blocks as usize } else { 0 } };
        Ok(state::Run::new(code, &mut self.global, mode, shape, launch.shared_bytes, params, held))
    }
}
