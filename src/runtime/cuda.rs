//! What a variant for NVIDIA GPUs adds to the descriptor: PTX, and how its kernels are launched.
//!
//! In: values that `codegen` fills. Out: the rows of `abi_cuda.rs`, written behind those of the variant. It must not know
//! how the kernels were made.

use super::descriptor::{Row, Writer};
use super::expr::Expr;

/// The GPU part of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cuda {
    /// The lowest compute capability that it runs on, ten times the major number and the minor one.
    pub capability: u64,
    /// Does it run on that capability alone?
    pub only: bool,
    /// The lowest version of the driver that takes the PTX, as `cuDriverGetVersion` gives it.
    pub driver: u64,
    /// The PTX.
    pub ptx: String,
    /// The same as machine code, for some GPUs.
    pub cubins: Vec<Cubin>,
    /// Kernels, in the order that plans number them.
    pub kernels: Vec<Kernel>,
}

/// Machine code for one kind of GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// The compute capability that it was made for.
    pub capability: u64,
    /// The image.
    pub image: Vec<u8>,
}

/// How a kernel is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name in the PTX.
    pub name: String,
    /// How many run-time dimensions it is passed.
    pub symbols: usize,
    /// How many buffers and indices follow them.
    pub params: usize,
    /// Extents of a block.
    pub threads: [u32; 3],
    /// Blocks along each axis of the grid, over its dimensions; none: one for each point of the launch.
    pub grid: Vec<Expr>,
    /// Are there at most as many blocks as run at the same time?
    pub persistent: bool,
    /// Bytes of shared memory that it declares.
    pub static_shared: u32,
    /// Bytes of shared memory that a launch adds.
    pub dynamic_shared: u32,
    /// Its tensor maps.
    pub tensor_maps: Vec<TensorMap>,
}

/// A tensor map; numbers as `cuTensorMapEncodeTiled` takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Which of the kernel's buffers and indices it is of.
    pub param: usize,
    /// `CUtensorMapDataType`.
    pub elem: u64,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u64,
    /// Its axes, the fastest first.
    pub axes: Vec<Axis>,
}

/// An axis of a tensor map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Elements.
    pub extent: Expr,
    /// Bytes between neighbours; not looked at for the first axis.
    pub stride: Expr,
    /// Elements of a box.
    pub part: u32,
    /// Of how many elements one is taken.
    pub step: u32,
}

/// Words of each row; `abi_cuda.rs` asserts the same sizes.
mod words {
    pub(super) const CUDA: u64 = 9;
    pub(super) const CUBIN: u64 = 3;
    pub(super) const KERNEL: u64 = 14;
    pub(super) const GRID_AXIS: u64 = 2;
    pub(super) const MAP: u64 = 5;
    pub(super) const MAP_AXIS: u64 = 6;
}

impl Writer {
    /// The table of a variant's GPU part: one row, or none.
    pub(super) fn cuda(&mut self, row: &mut Row, cuda: Option<&Cuda>) -> Result<(), String> {
        let start = self.table(row, usize::from(cuda.is_some()), words::CUDA);
        let Some(cuda) = cuda else { return Ok(()) };
        let mut r = Row(start);
        self.word(&mut r, cuda.capability);
        self.word(&mut r, u64::from(cuda.only));
        self.word(&mut r, cuda.driver);
        self.str(&mut r, &cuda.ptx);
        let start = self.table(&mut r, cuda.cubins.len(), words::CUBIN);
        let mut row = Row(start);
        for c in &cuda.cubins {
            self.word(&mut row, c.capability);
            self.bytes(&mut row, &c.image);
        }
        let start = self.table(&mut r, cuda.kernels.len(), words::KERNEL);
        let mut row = Row(start);
        for k in &cuda.kernels {
            self.cuda_kernel(&mut row, k)?;
        }
        Ok(())
    }

    fn cuda_kernel(&mut self, r: &mut Row, k: &Kernel) -> Result<(), String> {
        let what = format!("kernel {}", k.name);
        self.str(r, &k.name);
        self.word(r, k.symbols as u64);
        self.word(r, k.params as u64);
        for n in k.threads {
            self.word(r, u64::from(n));
        }
        let start = self.table(r, k.grid.len(), words::GRID_AXIS);
        let mut row = Row(start);
        for axis in &k.grid {
            self.expr(&mut row, axis, k.symbols, &what)?;
        }
        self.word(r, u64::from(k.persistent));
        self.word(r, u64::from(k.static_shared));
        self.word(r, u64::from(k.dynamic_shared));
        let start = self.table(r, k.tensor_maps.len(), words::MAP);
        let mut row = Row(start);
        for m in &k.tensor_maps {
            if m.param >= k.params {
                return Err(format!("{what} has a tensor map of parameter {}, and {} parameters", m.param, k.params));
            }
            self.word(&mut row, m.param as u64);
            self.word(&mut row, m.elem);
            self.word(&mut row, m.swizzle);
            let start = self.table(&mut row, m.axes.len(), words::MAP_AXIS);
            let mut row = Row(start);
            for a in &m.axes {
                self.expr(&mut row, &a.extent, k.symbols, &what)?;
                self.expr(&mut row, &a.stride, k.symbols, &what)?;
                self.word(&mut row, u64::from(a.part));
                self.word(&mut row, u64::from(a.step));
            }
        }
        Ok(())
    }
}
