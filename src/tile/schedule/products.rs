//! Matmul kernels: changes their tile sizes and right operands.
//!
//! In: an unscheduled kernel whose description says that it multiplies two matrices
//! (`tile::matmul`), with an elementwise epilogue. Out: the same with other tiles, with a subset of
//! its columns, or with another right operand.
//!
//! ```text
//! grid(%h: H, %i: ceil(M, 64), %j: ceil(N, 64))     ->  grid(%h: H, %i: ceil(M, 128), %j: ceil(N, 32))
//!   %c = mul %j, 64                                       %c = mul %j, 32
//!   %b = load %w[%h, %k, %c] : tile f32[512, 64]          %b = load %p[%h, %j, %k, 0] : tile f32[512, 32]
//! ```
//!
//! A tile is one panel wide: NR columns, the width of the machine's register tile. The sizes follow
//! from the caches in which operands should stay while they are reused:
//!
//! * the tile's rows of A, over all of K, are read once for each panel, by consecutive grid points,
//!   so they should stay in the L2 cache, beside the panels that stream through it: `ROWS` is 64,
//!   128 or 256, such that `ROWS x K` floats take at most 384 KiB, a fifth to a third of that cache
//!   (but never below 64 rows);
//! * a panel of B is read once for each register tile of rows, from the L2 cache: a register tile
//!   of 14 rows takes 14 cycles for a k index's 128 bytes. It comes from memory once per `ROWS`
//!   rows, half a byte to two bytes per cycle; while one panel is used, the leaf function
//!   prefetches the next one (`far`), otherwise every first register tile would wait for memory.
//!   The length of partial sums limits what is prefetched: 256 x 32 floats are 32 KiB;
//! * the accumulator goes to scratch and back once per partial sum, one cycle in some seventy;
//! * a panel that is not packed yet is copied once per `ROWS` rows: with 128 rows that is two
//!   cycles in a hundred, if it is cached. Parameters are packed before all calls, and operands of
//!   matmuls with many rows just before (`packing`).
//!
//! If matmuls use pairs of `bf16` k indices (`pairs`), the same bytes are twice the k indices.
//!
//! Each choice changes the description, by which the kernel is written again. This must not know
//! plans, nor the reasons for an operand's layout.

use super::packing::Panels;
use crate::shape::Dim;
use crate::tile::epilogue::Epilogue;
use crate::tile::matmul::{self, LEFT, RIGHT};
use crate::tile::{BufferType, Compute, Kernel, Machine, Matmul, Op, PanelLayout, PanelOperand, Param, ParamMode};

/// Minimum and maximum number of rows of a result tile.
pub(super) const LEAST_ROWS: i64 = 64;
const MAX_ROWS: i64 = 256;
/// Maximum number of elements of the left operand that a tile reads, over all of K.
const LEFT_ELEMENTS: i64 = 128 * 768;
/// Assumed K if it is not a constant.
const UNKNOWN_STEPS: i64 = 1024;
/// The same for a `bf16` matmul: twice as many bytes, because it processes k several times as fast,
/// and panels must come from memory correspondingly less often.
const LEFT_PAIRS: i64 = 4 * LEFT_ELEMENTS;

/// Rows of a result tile of a matmul with this K.
pub(super) fn tile_rows(k: &Dim, in_pairs: bool) -> i64 {
    let steps = k.as_const().unwrap_or(UNKNOWN_STEPS).max(1);
    let most = if in_pairs { LEFT_PAIRS } else { LEFT_ELEMENTS };
    let mut rows = MAX_ROWS;
    while rows > LEAST_ROWS && rows.saturating_mul(steps) > most {
        rows /= 2;
    }
    rows
}

/// A matmul whose kernel can be written with other tiles and operands.
pub(super) struct MatmulParts {
    pub(super) matmul: Matmul,
    /// The work on its result.
    pub(super) epilogue: Epilogue,
}

impl MatmulParts {
    /// The matmul of two matrices that a kernel's description states, if its epilogue is the same
    /// for other tiles.
    pub(super) fn find(kernel: &Kernel) -> Option<MatmulParts> {
        let Some(Compute::Matmul(matmul @ Matmul { panels: None, .. })) = &kernel.compute else { return None };
        let epilogue = matmul::epilogue(kernel)?;
        let is_read = |n: usize| kernel.params.get(n).is_some_and(|p| p.mode == ParamMode::In);
        let others = !epilogue.uses(kernel, &[LEFT, RIGHT]) && is_read(LEFT) && is_read(RIGHT);
        (others && epilogue.is_elementwise(kernel)).then(|| MatmulParts { matmul: matmul.clone(), epilogue })
    }

    /// The buffer types of the operands.
    pub(super) fn operands<'a>(&self, kernel: &'a Kernel) -> Option<[&'a BufferType; 2]> {
        Some([kernel.buffer_type(LEFT)?, kernel.buffer_type(RIGHT)?])
    }

    /// Total number of rows.
    pub(super) fn row_count(&self, kernel: &Kernel) -> Dim {
        kernel.grid.iter().nth_back(1).map(|g| g.extent.clone()).unwrap_or_default()
    }

    /// Parameters with columns along the tile's columns, if the kernel can be restricted to fewer
    /// columns: it must not count columns.
    pub(super) fn with_columns(&self, kernel: &Kernel) -> Option<Vec<usize>> {
        let body = &kernel.body;
        if body.insts().any(|(_, _, d)| matches!(d.op, Op::Iota { .. })) {
            return None;
        }
        let axis = kernel.grid.len().checked_sub(1)?;
        let has = |p: &Param| {
            body.insts().any(|(_, _, d)| match &d.op {
                Op::Load { cols, .. } | Op::Store { cols, .. } => {
                    d.operands.first() == Some(&p.value) && *cols == Some(axis)
                }
                _ => false,
            })
        };
        let all = kernel.params.iter().enumerate().filter(|(n, p)| *n != LEFT && has(p)).map(|(n, _)| n);
        let all = all.collect::<Vec<usize>>();
        let extent = kernel.grid.last().map(|g| &g.extent);
        let alike = all.iter().all(|i| kernel.buffer_type(*i).and_then(|ty| ty.shape.get(axis)) == extent);
        alike.then_some(all)
    }

    /// The loops of the kernel, to be changed.
    pub(super) fn loops(&self, kernel: &Kernel) -> Loops {
        Loops { matmul: self.matmul.clone(), types: kernel.buffer_types().unwrap_or_default() }
    }

    /// The kernel in the tiles of a machine, with its operands as they are.
    ///
    /// # Errors
    /// As [`MatmulParts::with`].
    pub(super) fn with_tile(&self, kernel: &Kernel, mut loops: Loops, machine: &Machine) -> Result<Kernel, String> {
        let steps = loops.types.get(LEFT).and_then(|a| a.shape.last().cloned()).unwrap_or_default();
        loops.matmul.tile = [tile_rows(&steps, false), machine.panel];
        self.with(kernel, loops)
    }

    /// The kernel with other loops.
    ///
    /// # Errors
    /// Parameters of another operation, which is a bug in attnc.
    pub(super) fn with(&self, kernel: &Kernel, Loops { matmul, types }: Loops) -> Result<Kernel, String> {
        matmul::rewrite(kernel, &self.epilogue, matmul, types).ok_or_else(|| "a matmul of other operands".to_string())
    }
}

/// The loops of a matmul: its description, and the types of its kernel's parameters.
#[derive(Clone)]
pub(super) struct Loops {
    pub(super) matmul: Matmul,
    pub(super) types: Vec<BufferType>,
}

impl Loops {
    /// Restricts these parameters to this number of columns.
    pub(super) fn narrow(&mut self, columns: &Dim, of: &[usize]) {
        for i in of {
            if let Some(n) = self.types.get_mut(*i).and_then(|ty| ty.shape.last_mut()) {
                *n = columns.clone();
            }
        }
    }

    /// Replaces the right operand by panels, whose leading axes are the grid axes in `points`.
    pub(super) fn read_panels(&mut self, panels: &Panels, points: Vec<usize>) {
        let layout = match &panels.scales {
            Some((_, bits)) => PanelLayout::Scaled { bits: *bits },
            None if panels.in_pairs => PanelLayout::Pairs,
            None if panels.abreast > 1 => PanelLayout::Interleaved(panels.abreast),
            None => PanelLayout::Single,
        };
        self.matmul.panels = Some(PanelOperand { points, layout });
        let scales = panels.scales.iter().map(|(scales, _)| scales.buffer_type());
        self.types.splice(RIGHT..=RIGHT, [panels.numbers.buffer_type()].into_iter().chain(scales));
    }
}
