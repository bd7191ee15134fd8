//! Serialises a variant's GPU part: the rows of `abi_cuda.rs`, which follow the rows of the
//! variant.
//!
//! In: a [`Cuda`]. Out: its rows in the descriptor, or an error if it is inconsistent.

use super::cuda::{Cuda, Kernel};
use super::descriptor::{Row, Writer};

/// Words per row; `abi_cuda.rs` asserts the same sizes.
mod words {
    pub(super) const CUDA: u64 = 9;
    pub(super) const CUBIN: u64 = 3;
    pub(super) const KERNEL: u64 = 14;
    pub(super) const GRID_AXIS: u64 = 2;
    pub(super) const MAP: u64 = 5;
    pub(super) const MAP_AXIS: u64 = 6;
}

impl Writer {
    /// The table of a variant's GPU part, with one row or none.
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
        self.word(r, k.blocks as u64);
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
