//! Launches of a plan on the GPU simulator: `attnc run --backend ptx-sim`, and the tests of GPU
//! kernels.
//!
//! In: the PTX text of a module's kernels and their launch info; then launches, one by one, from
//! the tile IR's interpreter. Out: the kernels' results in the plan's storage. Only the buffers of
//! the current launch are on the device, so that accesses to anything else are detected, as are
//! reads of bytes that were never written. Must not know: schedules, how PTX is generated.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

pub mod schedule;

use crate::codegen::ptx::info::{Grid, KernelInfo, ParamInfo, TensorMapInfo};
use crate::ptx::Type;
use crate::ptx::sim::{self, Device, Launch, Mode, Stats, Timeline, tensor_map};
use crate::shape::{Dim, Elem};
use crate::tile::interp::{LaunchArgument, LaunchError, LaunchMemory, Launches};

/// Blocks of a persistent kernel: few, so that each processes several points.
const PERSISTENT: i64 = 3;
/// Bytes of the fault report: site, index, bound, padding, and the counters of grid barriers.
const FAULT_BYTES: usize = 48;

/// The kernels of a module on a simulated device.
pub struct Simulated {
    module: sim::Module,
    infos: Vec<KernelInfo>,
    modes: Vec<Mode>,
    stats: RefCell<Stats>,
    watch: Option<Watch>,
}

/// The kernel whose schedule is recorded, by its name in the tile IR (`None`: all kernels), and its
/// longest launch so far.
struct Watch {
    kernel: Option<String>,
    longest: RefCell<Option<(String, Timeline)>>,
}

type Fails<T> = Result<T, LaunchError>;

fn failed<T>(why: impl Into<String>) -> Fails<T> {
    Err(LaunchError::Failed(why.into()))
}

impl Simulated {
    /// Loads PTX text. Each launch is executed in each of the modes, which must produce the same
    /// bytes.
    ///
    /// # Errors
    /// Syntax or verification errors.
    pub fn new(text: &str, infos: Vec<KernelInfo>, modes: &[Mode]) -> Result<Simulated, String> {
        let module = sim::Module::load(text)?;
        Ok(Simulated { module, infos, modes: modes.to_vec(), stats: RefCell::default(), watch: None })
    }

    /// Also runs the launches of a kernel (by its name in the tile IR; `None`: all kernels) in the
    /// timing model.
    #[must_use]
    pub fn watching(self, kernel: Option<String>) -> Simulated {
        Simulated { watch: Some(Watch { kernel, longest: RefCell::default() }), ..self }
    }

    /// Timeline of a block in the middle of the longest recorded launch, with the kernel's name in
    /// the tile IR.
    pub fn longest(&self) -> Option<(String, Timeline)> {
        self.watch.as_ref().and_then(|watch| watch.longest.borrow().clone())
    }

    /// Total counts of all launches so far.
    pub fn stats(&self) -> Stats {
        *self.stats.borrow()
    }
}

/// Device buffers of a launch; freed when it ends.
struct Buffers {
    device: Device,
    /// Device address of each storage.
    of: BTreeMap<usize, u64>,
}

impl Buffers {
    /// The address of a byte of a storage, which is copied to the device at its first use.
    fn address(&mut self, storage: usize, start: i64, memory: &LaunchMemory<'_>) -> Fails<u64> {
        let base = match self.of.get(&storage) {
            Some(base) => *base,
            None => {
                let Some((bytes, written)) = memory.bytes(storage) else { return failed("no such storage") };
                let base = self.device.alloc(bytes.len());
                self.device.write_known(base, bytes, written).map_err(LaunchError::Failed)?;
                self.of.insert(storage, base);
                base
            }
        };
        Ok(base.wrapping_add_signed(start))
    }
}

fn value(d: &Dim, symbols: &BTreeMap<String, i64>) -> Fails<i64> {
    match d.eval(&|name| symbols.get(name).copied()) {
        Ok(n) => Ok(n),
        Err(_) => failed(format!("the dimension {d} has no value")),
    }
}

/// Blocks along the three axes.
fn blocks(grid: &Grid, symbols: &BTreeMap<String, i64>) -> Fails<[u32; 3]> {
    let points = |axes: &[(Dim, i64)]| -> Fails<i64> {
        let mut n = 1i64;
        for (extent, step) in axes {
            let extent = value(extent, symbols)?.max(0);
            n = n.saturating_mul((extent + step.max(&1) - 1) / step.max(&1));
        }
        Ok(n)
    };
    let all = match grid {
        Grid::Axes(axes) => [points(axes)?, 1, 1],
        Grid::Persistent(axes) | Grid::Meeting(axes) => [points(axes)?.min(PERSISTENT), 1, 1],
        Grid::Extents(extents) => {
            let [x, y, z] = extents;
            [value(x, symbols)?, value(y, symbols)?, value(z, symbols)?]
        }
    };
    match all.map(u32::try_from) {
        [Ok(x), Ok(y), Ok(z)] => Ok([x, y, z]),
        _ => failed(format!("a grid of {all:?} blocks")),
    }
}

fn elem_type(elem: Elem) -> Type {
    match elem {
        Elem::F32 => Type::F32,
        Elem::BF16 => Type::Bf16,
        Elem::F16 => Type::F16,
        Elem::I8 | Elem::Bool => Type::U8,
        Elem::I32 => Type::S32,
        Elem::I64 => Type::S64,
    }
}

/// The bytes of a tensor map.
fn encoded(info: &TensorMapInfo, address: u64, symbols: &BTreeMap<String, i64>) -> Fails<Vec<u8>> {
    let all = |dims: &[Dim]| -> Fails<Vec<u64>> {
        dims.iter().map(|d| Ok(u64::try_from(value(d, symbols)?).unwrap_or(0))).collect()
    };
    let map = tensor_map::TensorMap {
        address,
        elem: elem_type(info.elem),
        extents: all(&info.extents)?,
        strides: all(&info.byte_strides)?,
        window: info.boxes.clone(),
        steps: info.element_strides.clone(),
        swizzle: info.swizzle,
        fill_nan: false,
    };
    map.check().map_err(|why| LaunchError::Failed(format!("a tensor map: {why}")))?;
    Ok(map.encode().to_vec())
}

/// Results of a launch: for each storage that it may have written, its bytes and which of them are
/// initialised.
type Left = BTreeMap<usize, (Vec<u8>, Vec<bool>)>;

/// How a launch is executed.
#[derive(Clone, Copy, Debug)]
enum How {
    /// In an order of effects, without a timing model.
    Order(Mode),
    /// In the timing model, recording a timeline.
    InTime,
}

impl Simulated {
    /// Keeps a timeline if it is the longest.
    fn keep(&self, kernel: &str, timeline: Option<Timeline>) {
        let (Some(watch), Some(timeline)) = (&self.watch, timeline) else { return };
        let mut longest = watch.longest.borrow_mut();
        if longest.as_ref().is_none_or(|(_, other)| other.cycles() < timeline.cycles()) {
            *longest = Some((kernel.to_string(), timeline));
        }
    }

    /// Executes a launch once.
    fn once(
        &self,
        info: &KernelInfo,
        symbols: &BTreeMap<String, i64>,
        args: &[LaunchArgument],
        memory: &LaunchMemory<'_>,
        how: How,
    ) -> Fails<Left> {
        let grid = blocks(&info.grid, symbols)?;
        let mut left = Left::new();
        if grid.contains(&0) {
            return Ok(left);
        }
        let mut buffers = Buffers { device: Device::new(), of: BTreeMap::new() };
        let mut params: Vec<Vec<u8>> = Vec::new();
        for name in &info.symbols {
            let Some(n) = symbols.get(name) else { return failed(format!("the dimension {name} has no value")) };
            params.push(n.to_le_bytes().to_vec());
        }
        let mut addresses = Vec::new();
        let mut written = BTreeSet::new();
        for (arg, param) in args.iter().zip(&info.params) {
            let word = match (*arg, param) {
                (LaunchArgument::Index(n), ParamInfo::Index) => n as u64,
                (LaunchArgument::Buffer { storage, start }, ParamInfo::Buffer { written: is_written, .. }) => {
                    if *is_written {
                        written.insert(storage);
                    }
                    buffers.address(storage, start, memory)?
                }
                _ => return failed("an operand's kind differs from the kernel's parameter"),
            };
            addresses.push(word);
            params.push(word.to_le_bytes().to_vec());
        }
        let fault = buffers.device.alloc(FAULT_BYTES);
        buffers.device.write(fault, &[0; FAULT_BYTES]).map_err(LaunchError::Failed)?;
        params.push(fault.to_le_bytes().to_vec());
        for map in &info.tensor_maps {
            let Some(address) = addresses.get(map.param) else { return failed("a tensor map without a buffer") };
            params.push(encoded(map, *address, symbols)?);
        }
        let params: Vec<&[u8]> = params.iter().map(Vec::as_slice).collect();
        let launch = Launch {
            kernel: &info.name,
            grid,
            block: info.threads,
            cluster: info.cluster,
            shared_bytes: info.dynamic_shared,
            cooperative: matches!(info.grid, Grid::Meeting(_)),
            params: &params,
        };
        let stats = match how {
            How::Order(mode) => buffers.device.launch(&self.module, &launch, mode),
            How::InTime => {
                let blocks: u32 = grid.iter().product();
                let done = buffers.device.timeline(&self.module, &launch, blocks / 2);
                done.map(|(stats, timeline)| {
                    self.keep(&info.kernel, timeline);
                    stats
                })
            }
        };
        let stats = stats.map_err(|report| LaunchError::Failed(report.to_string()))?;
        self.stats.borrow_mut().add(&stats);
        let said = buffers.device.read(fault, FAULT_BYTES).map_err(LaunchError::Failed)?;
        let word = |n: usize| said.iter().skip(8 * n).take(8).rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
        if (word(4), word(5)) != (0, 0) {
            return failed(format!(
                "the next launch would find {} arrivals and {} blocks that ended",
                word(4),
                word(5)
            ));
        }
        if let Some(site) = word(0).checked_sub(1) {
            return Err(LaunchError::Check { site, index: word(1) as i64, bound: word(2) as i64 });
        }
        for storage in written {
            let bytes = memory.bytes(storage).map_or(0, |(bytes, _)| bytes.len());
            let base = buffers.of.get(&storage).copied().unwrap_or(0);
            let data = buffers.device.read(base, bytes).map_err(LaunchError::Failed)?;
            let known = buffers.device.written(base, bytes).map_err(LaunchError::Failed)?;
            left.insert(storage, (data, known));
        }
        Ok(left)
    }
}

impl Launches for Simulated {
    fn launch(
        &self,
        kernel: &str,
        symbols: &BTreeMap<String, i64>,
        args: &[LaunchArgument],
        memory: &mut LaunchMemory<'_>,
    ) -> Fails<()> {
        let Some(info) = self.infos.iter().find(|info| info.kernel == kernel) else {
            return failed("it was not compiled");
        };
        if args.len() != info.params.len() {
            return failed(format!("{} operands; the kernel takes {}", args.len(), info.params.len()));
        }
        let mut first: Option<Left> = None;
        let is_watched = self.watch.as_ref().is_some_and(|w| w.kernel.as_ref().is_none_or(|name| name == kernel));
        let orders = self.modes.iter().map(|mode| How::Order(*mode));
        for mode in orders.chain(is_watched.then_some(How::InTime)) {
            let left = self.once(info, symbols, args, memory, mode)?;
            match &first {
                None => first = Some(left),
                Some(first) if *first != left => {
                    return failed(format!("the result depends on the order of effects ({mode:?})"));
                }
                Some(_) => {}
            }
        }
        for (storage, (data, known)) in first.unwrap_or_default() {
            memory.replace(storage, &data, &known);
        }
        Ok(())
    }
}
