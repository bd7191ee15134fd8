//! Matmuls on tensor cores.
//!
//! In: an unscheduled kernel of one matmul with constant K and an elementwise epilogue (found by
//! `schedule/products.rs`). Out: the same with fragments. With `mma.sync`, a loop over tiles along
//! K copies the next tiles while it multiplies the current one:
//!
//! ```text
//! grid (points.., ceil(M, rows), ceil(N, cols))
//!   copies of the first stages - 1 tiles of A and B start
//!   for each tile of steps:
//!     wait for the oldest tiles;  start to copy those stages - 1 further;  acc += A tile @ B tile
//!   epilogue;  store
//! ```
//!
//! If B is quantised panels, its integers and scales are copied as packed, and the sums are
//! converted to the layout of all others after the loop.
//!
//! The epilogue is the kernel's own, on the accumulator's fragments; it may be any elementwise
//! work. Tiles are padded with zeros beyond the operands, and not stored beyond the result.

use super::super::products::MatmulParts;
use super::build::{self, Along, KAxis, SharedTile};
use super::sizes::ProductTile;
use super::{CoreKernels, Reason, remarks};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::{Dim, Elem};
use crate::tile::epilogue::ResultTile;
use crate::tile::machine::INTEGER_PANEL;
use crate::tile::matmul::{self, LEFT, RIGHT};
use crate::tile::{
    AxisRole, BufferType, Extent, Fragment, GROUP, Gpu, GpuArch, Kernel, KernelBuilder, MAX_EXTENT, Op, Position, Value,
};

/// Minimum numbers of rows and columns.
const FEW_ROWS: i64 = 9;
const FEW_COLS: i64 = 8;
/// Minimum rows for tiles in a matmul with quantised weights, if the number of rows is only known
/// at run time: with fewer, each row reads all weights.
const ROWS_OF_TILES: i64 = 2;
/// Rows of the smallest tile.
const MEDIUM_ROWS: i64 = 64;
/// Alignment for the longest rows of shared memory.
const SHARED_ALIGN: u32 = 1024;
/// The reason for a matmul whose epilogue cannot be computed on other tiles.
const NO_EPILOGUE: &str = "its epilogue is not elementwise, or reads or writes an operand of the matmul";

/// A matmul with its operands as shared memory tiles.
pub(super) struct MatmulTiles<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) product: MatmulParts,
    pub(super) tile: ProductTile,
    /// K.
    pub(super) steps: i64,
    /// A tile of A, and one of B in its layout in memory.
    pub(super) left: SharedTile,
    pub(super) right: SharedTile,
    /// The axis of B in memory along which k goes.
    pub(super) right_k: KAxis,
    /// If B is quantised panels: their scales, which follow it among the parameters.
    integers: Option<Scales>,
}

/// B as quantised panels, packed before all calls.
pub(in super::super) struct Integers {
    /// `[points.., P, K, NR]` of `i8`; with 4 bits, K halved.
    pub(in super::super) numbers: BufferType,
    /// `[points.., P, ceil(K / 32), NR]`.
    pub(in super::super) scales: BufferType,
    pub(in super::super) bits: u8,
    /// The points of the grid that are axes of the panels.
    pub(in super::super) points: Vec<usize>,
}

/// Scales of a quantised operand in a kernel.
struct Scales {
    /// B and the scales as buffers.
    of: Integers,
    /// A tile of scales.
    tile: SharedTile,
}

/// Source of a copy: the buffer, the indices, and the axes.
struct Source {
    buffer: Value,
    at: Vec<Value>,
    along: Along,
}

/// Position of a tile in the new kernel.
#[derive(Clone)]
pub(super) struct TilePosition {
    pub(super) points: Vec<Value>,
    pub(super) row: Value,
    pub(super) col: Value,
    pub(super) left: Value,
    pub(super) right: Value,
}

/// The tensor core kernels of a matmul. If its number of rows is only known at run time, there is
/// one with small tiles, and one with large tiles unless these are the same. `tf32`: `f32` operands
/// may be rounded to that.
pub(super) fn made(
    kernel: &Kernel,
    gpu: &Gpu,
    tf32: bool,
    aligned: &dyn Fn(usize) -> bool,
) -> Result<CoreKernels, Reason> {
    let mut tiles = MatmulTiles::find(kernel, gpu, tf32, aligned)?;
    let small = tiles.kernel(gpu).ok_or(NO_EPILOGUE)?;
    Ok(CoreKernels { kernel: small, many_rows: tiles.many_rows(gpu), keys: None, divided: None })
}

/// Can tensor cores multiply these rows by quantised panels with this many columns?
pub(in super::super) fn takes_integers(left: &BufferType, rows: &Dim, cols: &Dim) -> Result<(), Reason> {
    super::check_types(&[left], false)?;
    if !build::has_rows_of_chunks(left, left.shape.len().saturating_sub(1)) {
        return Err(remarks::not_apart(left));
    }
    check_extents(rows, cols)
}

/// Checks numbers of rows and columns: a matmul with few rows is bound by memory bandwidth.
fn check_extents(rows: &Dim, cols: &Dim) -> Result<(), Reason> {
    if rows.as_const().is_some_and(|n| n < FEW_ROWS) || cols.as_const().is_some_and(|n| n < FEW_COLS) {
        return Err(format!("it has {rows} rows and {cols} columns, and needs {FEW_ROWS} and {FEW_COLS}"));
    }
    Ok(())
}

/// The number of k steps of a matmul with this left operand.
fn steps(left: &BufferType) -> Result<i64, Reason> {
    let k = left.shape.last().cloned().unwrap_or_default();
    matmul::whole_steps(&k).ok_or_else(|| match k.as_const() {
        Some(k) => format!("its number of steps, {k}, is not between 1 and {MAX_EXTENT}"),
        None => format!("the number of its steps, {k}, is known only at run time"),
    })
}

/// The variants of a matmul with quantised weights: a kernel for each minimum number of rows, in
/// order. Fewer rows than the first minimum are not handled here.
pub(in super::super) fn by_integers(
    kernel: &Kernel,
    arch: GpuArch,
    rows: &Dim,
    integers: impl Fn() -> Integers,
) -> Result<Vec<(i64, Kernel)>, Reason> {
    let gpu = Gpu::for_arch(arch);
    let sizes = Gpu::for_arch(GpuArch::Sm80);
    let of = |rows: &Dim| {
        let tiles = MatmulTiles::of_integers(kernel, integers(), &sizes, rows)?;
        tiles.with_copies(&gpu).ok_or_else(|| NO_EPILOGUE.to_string())
    };
    let choices = match rows.as_const() {
        Some(_) => vec![(FEW_ROWS, rows.clone())],
        None => vec![(ROWS_OF_TILES, Dim::from(MEDIUM_ROWS)), (MEDIUM_ROWS + 1, rows.clone())],
    };
    choices.into_iter().map(|(least, rows)| Ok((least, of(&rows)?))).collect()
}

/// Minimum number of rows for which a matmul with quantised weights first converts them to a
/// matrix.
pub(in super::super) fn unpacked_rows(arch: GpuArch) -> Option<i64> {
    Gpu::for_arch(arch).unpacked_rows()
}

impl<'a> MatmulTiles<'a> {
    fn find(
        kernel: &'a Kernel,
        gpu: &Gpu,
        tf32: bool,
        aligned: &dyn Fn(usize) -> bool,
    ) -> Result<MatmulTiles<'a>, Reason> {
        let (product, [a, b]) = parts(kernel)?;
        super::check_types(&[a, b], tf32)?;
        let rank = kernel.grid.len();
        let right_k = if b.is_dense(rank - 1) { KAxis::Rows } else { KAxis::Cols };
        let dense = if right_k == KAxis::Cols { rank - 2 } else { rank - 1 };
        super::check_chunks(kernel, LEFT, rank - 1, aligned)?;
        super::check_chunks(kernel, RIGHT, dense, aligned)?;
        let steps = steps(a)?;
        let [.., rows, cols] = kernel.grid.as_slice() else { return Err(NO_EPILOGUE.to_string()) };
        check_extents(&rows.extent, &cols.extent)?;
        let rows = rows.extent.as_const().unwrap_or(1);
        let tile = tile_of(kernel, gpu, a.elem, rows);
        let (left, right) = operand_tiles(a.elem, &tile, right_k);
        Ok(MatmulTiles { kernel, product, tile, steps, left, right, right_k, integers: None })
    }

    /// The kernel with large tiles of a matmul whose number of rows is only known at run time: that
    /// number (of all points), its minimum for this kernel, and the kernel. `None` if there is a
    /// single tile for all numbers of rows.
    fn many_rows(&mut self, gpu: &Gpu) -> Option<(Dim, i64, Kernel)> {
        let shape: Vec<Dim> = self.kernel.grid.iter().map(|g| g.extent.clone()).collect();
        let (points, [rows, cols]) = shape.split_last_chunk::<2>()?;
        let tile = tile_of(self.kernel, gpu, self.left.elem, i64::MAX);
        if rows.as_const().is_some() || tile == self.tile {
            return None;
        }
        self.tile = tile;
        (self.left, self.right) = operand_tiles(self.left.elem, &tile, self.right_k);
        let least = sizes_of(gpu, self.left.elem).least_rows(&tile, points, cols);
        // Points whose number is not known have as many rows each.
        let unknown = points.iter().filter(|d| d.as_const().is_none());
        Some((unknown.fold(rows.clone(), |n, d| n.mul(d)), least, self.kernel(gpu)?))
    }

    fn kernel(&self, gpu: &Gpu) -> Option<Kernel> {
        match gpu.arch {
            // `wgmma` would truncate `f32`, and does not support a right operand whose k axis is
            // along its rows.
            GpuArch::Sm90a if self.left.elem != Elem::F32 => self.with_rings(gpu),
            GpuArch::Sm80 | GpuArch::Sm90a => self.with_copies(gpu),
        }
    }

    /// The same for a matmul with quantised weights and this number of rows.
    fn of_integers(kernel: &'a Kernel, of: Integers, gpu: &Gpu, rows: &Dim) -> Result<MatmulTiles<'a>, Reason> {
        let (product, [a, _]) = parts(kernel)?;
        let steps = steps(a)?;
        let [points @ .., _, cols] = kernel.grid.as_slice() else { return Err(NO_EPILOGUE.to_string()) };
        let points: Vec<Dim> = points.iter().map(|g| g.extent.clone()).collect();
        if of.numbers.shape.last().and_then(Dim::as_const) != Some(INTEGER_PANEL) {
            return Err(format!("panels have other than {INTEGER_PANEL} columns"));
        }
        let tile = gpu.product_by_integers(&points, [rows, &cols.extent], of.bits, loads(kernel) > 2);
        let left = SharedTile { elem: a.elem, rows: tile.rows, cols: tile.steps };
        let right = SharedTile { elem: Elem::I8, rows: tile.steps * i64::from(of.bits) / 8, cols: tile.cols };
        let scales = SharedTile { elem: Elem::F32, rows: tile.steps / i64::from(GROUP), cols: tile.cols };
        let integers = Some(Scales { of, tile: scales });
        Ok(MatmulTiles { kernel, product, tile, steps, left, right, right_k: KAxis::Rows, integers })
    }

    /// The parameter of the new kernel for one of the old kernel: scales follow integers.
    fn param(&self, kb: &KernelBuilder, n: usize) -> Option<Value> {
        kb.param(n + usize::from(self.integers.is_some() && n > RIGHT))
    }

    /// A kernel with the same parameters and a grid of the new tiles, which blocks process in
    /// groups of `group` rows of tiles (1: grid order).
    pub(super) fn begin(&self, group: i64) -> Option<(KernelBuilder, TilePosition)> {
        let mut kb = self.with_buffers()?;
        let (points, [rows, cols]) = self.kernel.grid.split_last_chunk::<2>()?;
        let points = points.iter().map(|g| kb.grid_axis(&g.extent, g.step)).collect();
        let row = kb.grid_axis(&rows.extent, self.tile.rows);
        let col = kb.grid_axis(&cols.extent, self.tile.cols);
        let place = self.place(&mut kb, points, [row, col], group)?;
        Some((kb, place))
    }

    /// An empty kernel with the same buffers.
    pub(super) fn with_buffers(&self) -> Option<KernelBuilder> {
        let mut kb = KernelBuilder::new(&self.kernel.name);
        for (n, p) in self.kernel.params.iter().enumerate() {
            match self.integers.as_ref().filter(|_| n == RIGHT) {
                Some(Scales { of, .. }) => {
                    kb.buffer(of.numbers.clone(), p.mode);
                    kb.buffer(of.scales.clone(), p.mode);
                }
                None => {
                    kb.buffer(self.kernel.body.ty(p.value).buffer()?.clone(), p.mode);
                }
            }
        }
        Some(kb)
    }

    /// The number of tiles along rows and columns.
    fn counts(&self) -> Option<[Dim; 2]> {
        let (_, [rows, cols]) = self.kernel.grid.split_last_chunk::<2>()?;
        let count = |d: &Dim, size: i64| d.ceil_div(&Dim::from(size));
        Some([count(&rows.extent, self.tile.rows)?, count(&cols.extent, self.tile.cols)?])
    }

    /// The total number of tiles.
    pub(super) fn all_tiles(&self) -> Option<Dim> {
        let [rows, cols] = self.counts()?;
        Some(rows.mul(&cols))
    }

    /// The position of a tile by its number.
    pub(super) fn place_of(&self, kb: &mut KernelBuilder, number: Value, group: i64) -> Option<TilePosition> {
        let [_, cols] = self.counts()?;
        let cols = kb.dim(&cols);
        let row = kb.index_binary(BinaryOp::Div, number, cols);
        let col = kb.index_binary(BinaryOp::Rem, number, cols);
        self.place(kb, Vec::new(), [row, col], group)
    }

    /// The position of the tile in a row and a column of tiles, in groups of rows.
    fn place(
        &self,
        kb: &mut KernelBuilder,
        points: Vec<Value>,
        [row, col]: [Value; 2],
        group: i64,
    ) -> Option<TilePosition> {
        let [row, col] = if group > 1 { in_groups(kb, [row, col], self.counts()?, group) } else { [row, col] };
        let row = kb.times(row, self.tile.rows);
        let col = kb.times(col, self.tile.cols);
        let (left, right) = (self.param(kb, LEFT)?, self.param(kb, RIGHT)?);
        Some(TilePosition { points, row, col, left, right })
    }

    /// Start indices of the tiles of A and B at k index `step`, and the axes along which their rows
    /// and columns go.
    pub(super) fn starts(&self, place: &TilePosition, step: Value) -> [(Vec<Value>, (usize, usize)); 2] {
        let n = self.kernel.grid.len();
        let left = [place.points.as_slice(), &[place.row, step]].concat();
        let right = [place.points.as_slice(), &[step, place.col]].concat();
        let axes = if self.right_k == KAxis::Cols { (n - 1, n - 2) } else { (n - 2, n - 1) };
        [(left, (n - 2, n - 1)), (right, axes)]
    }

    /// The tiles of a stage.
    fn tiles(&self) -> Vec<&SharedTile> {
        [&self.left, &self.right].into_iter().chain(self.integers.as_ref().map(|s| &s.tile)).collect()
    }

    /// The sources of a stage's copies at k index `step`.
    fn sources(&self, kb: &mut KernelBuilder, place: &TilePosition, step: Value) -> Option<Vec<Source>> {
        let [(at_left, along_left), (at_right, along_right)] = self.starts(place, step);
        let left = Source { buffer: place.left, at: at_left, along: along_left.into() };
        let Some(Scales { of, .. }) = &self.integers else {
            return Some(vec![left, Source { buffer: place.right, at: at_right, along: along_right.into() }]);
        };
        let points: Vec<Value> = of.points.iter().map(|n| place.points.get(*n).copied()).collect::<Option<_>>()?;
        let (rank, zero) = (points.len(), kb.index(0));
        let along = Along { rows: rank + 1, cols: rank + 2, panels: Some(rank) };
        let mut divided = |by: i64, x: Value| {
            let by = kb.index(by);
            kb.index_binary(BinaryOp::Div, x, by)
        };
        let panel = divided(INTEGER_PANEL, place.col);
        let (row, group) = (divided(i64::from(8 / of.bits), step), divided(i64::from(GROUP), step));
        let at = |row: Value| [points.as_slice(), &[panel, row, zero]].concat();
        let scales = self.param(kb, RIGHT).and(kb.param(RIGHT + 1))?;
        Some(vec![
            left,
            Source { buffer: place.right, at: at(row), along },
            Source { buffer: scales, at: at(group), along },
        ])
    }

    /// The kernel for `mma.sync`.
    fn with_copies(&self, gpu: &Gpu) -> Option<Kernel> {
        let (mut kb, place) = self.begin(1)?;
        let loc = self.dot_loc();
        kb.at(loc);
        let (stages, tile) = (self.tile.stages, self.tile);
        let tiles = self.tiles();
        let stage: i64 = tiles.iter().map(|t| room(t)).sum();
        let slot = |kb: &mut KernelBuilder, n: i64, number: usize| -> Option<Value> {
            let before: i64 = tiles.iter().take(number).map(|t| room(t)).sum();
            Some(build::slot(kb, tiles.get(number)?, n * stage + before))
        };
        let zero = kb.index(0);
        // Groups of copies in the order in which they are waited for, A before B, then the free
        // slots.
        let sums = match self.integers {
            Some(_) => build::zeros_in_quads(&mut kb, tile.rows, tile.cols),
            None => build::zeros(&mut kb, tile.rows, tile.cols),
        };
        let mut carried = vec![zero, sums];
        let mut groups = Vec::new();
        for n in 0..stages - 1 {
            let step = kb.index(n * tile.steps);
            for (number, from) in self.sources(&mut kb, &place, step)?.into_iter().enumerate() {
                let room = slot(&mut kb, n, number)?;
                groups.push(build::copy(&mut kb, tiles.get(number)?, room, from.buffer, &from.at, from.along));
            }
        }
        carried.extend(groups);
        for number in 0..tiles.len() {
            carried.push(slot(&mut kb, stages - 1, number)?);
        }

        let (head, args) = kb.new_block(carried.iter().map(|v| kb.ty(*v).clone()).collect());
        let (inner, _) = kb.new_block(Vec::new());
        let (done, _) = kb.new_block(Vec::new());
        kb.br(head, &carried);
        kb.switch_to(head);
        let (step, sums) = (*args.first()?, *args.get(1)?);
        let (in_flight, free) = args.get(2..)?.split_at_checked(args.len() - 2 - tiles.len())?;
        let end = kb.index(self.steps);
        let more = kb.compare_scalars(CmpOp::Lt, step, end);
        kb.br_if(more, (inner, &[]), (done, &[]));

        kb.switch_to(inner);
        let mut there = Vec::new();
        let mut pending = u32::try_from(in_flight.len()).ok()?;
        for (t, group) in tiles.iter().zip(in_flight) {
            pending -= 1;
            there.push(build::wait(&mut kb, t, *group, pending));
        }
        let ahead = kb.plus(step, (stages - 1) * tile.steps);
        let mut next_groups = Vec::new();
        for ((from, t), room) in self.sources(&mut kb, &place, ahead)?.into_iter().zip(&tiles).zip(free) {
            next_groups.push(build::copy(&mut kb, t, *room, from.buffer, &from.at, from.along));
        }
        let fa = build::fragment(&mut kb, &self.left, *there.first()?, Fragment::A);
        let more = match (&self.integers, there.as_slice()) {
            (Some(Scales { of, .. }), [_, numbers, scales]) => {
                build::mma_scaled(&mut kb, fa, [*numbers, *scales], sums, of.bits)
            }
            (_, rest) => {
                let layout = if self.right_k == KAxis::Cols { Fragment::BT } else { Fragment::B };
                let fb = build::fragment(&mut kb, &self.right, *rest.get(1)?, layout);
                build::mma(&mut kb, fa, fb, sums)
            }
        };
        let rooms: Vec<Value> = tiles.iter().zip(&there).map(|(t, tile)| build::release(&mut kb, t, *tile)).collect();
        let next = kb.plus(step, tile.steps);
        let mut then = vec![next, more];
        then.extend(in_flight.iter().skip(tiles.len()));
        then.extend(next_groups.into_iter().chain(rooms));
        kb.br(head, &then);

        kb.switch_to(done);
        for (n, (group, t)) in in_flight.iter().zip(tiles.iter().cycle()).enumerate() {
            build::wait(&mut kb, t, *group, u32::try_from(in_flight.len() - 1 - n).ok()?);
        }
        let sums = if self.integers.is_some() { build::convert_layout(&mut kb, sums)? } else { sums };
        self.epilogue(&mut kb, &place, sums, [tile.rows, tile.cols])?;
        let warps = u32::try_from(tile.warps).ok()?;
        build::spread(kb.finish(), gpu.arch, warps, stages * stage)
    }

    pub(super) fn dot_loc(&self) -> crate::source::Loc {
        matmul::dot(self.kernel).map(|d| d.loc).unwrap_or_default()
    }

    /// The kernel's epilogue, on an accumulator with a tile's extents.
    pub(super) fn epilogue(
        &self,
        kb: &mut KernelBuilder,
        place: &TilePosition,
        result: Value,
        [rows, cols]: [i64; 2],
    ) -> Option<()> {
        let mut axes: Vec<(AxisRole, Value)> = place.points.iter().map(|p| (AxisRole::Point, *p)).collect();
        axes.extend([(AxisRole::Rows, place.row), (AxisRole::Cols, place.col)]);
        let at = Position { axes, rows: Extent::Static(rows), cols: Extent::Static(cols) };
        self.product
            .epilogue
            .copy_with(self.kernel, kb, &ResultTile { result, at }, |kb, n| self.param(kb, n))
            .map(drop)
    }
}

/// The tile of a block, in groups of rows of tiles: within a group, column by column, each from top
/// to bottom. So concurrent blocks cover a few rows and a few columns, whose operands fit the L2
/// cache.
///
/// ```text
/// 0 2 4 6      groups of 2 of 3 rows of 4 tiles: the block of each
/// 1 3 5 7
/// 8 9 10 11
/// ```
fn in_groups(kb: &mut KernelBuilder, [row, col]: [Value; 2], counts: [Dim; 2], group: i64) -> [Value; 2] {
    let [rows, cols] = counts.map(|n| kb.dim(&n));
    let most = kb.index(group);
    let above = kb.index_binary(BinaryOp::Rem, row, most);
    let first = kb.index_binary(BinaryOp::Sub, row, above);
    let left = kb.index_binary(BinaryOp::Sub, rows, first);
    let height = kb.index_binary(BinaryOp::Min, left, most);
    let before = kb.index_binary(BinaryOp::Mul, above, cols);
    let number = kb.index_binary(BinaryOp::Add, before, col);
    let down = kb.index_binary(BinaryOp::Rem, number, height);
    let across = kb.index_binary(BinaryOp::Div, number, height);
    [kb.index_binary(BinaryOp::Add, first, down), across]
}

/// A kernel's matmul and the types of its operands.
fn parts(kernel: &Kernel) -> Result<(MatmulParts, [&BufferType; 2]), Reason> {
    let product = MatmulParts::find(kernel).ok_or(NO_EPILOGUE)?;
    let operands = product.operands(kernel).ok_or(NO_EPILOGUE)?;
    Ok((product, operands))
}

/// The GPU by whose numbers tiles are chosen: `f32` uses `mma.sync` on all.
fn sizes_of(gpu: &Gpu, elem: Elem) -> Gpu {
    if elem == Elem::F32 { Gpu::for_arch(GpuArch::Sm80) } else { *gpu }
}

/// The tile of a matmul of these operands with this number of rows.
fn tile_of(kernel: &Kernel, gpu: &Gpu, elem: Elem, rows: i64) -> ProductTile {
    let shape: Vec<Dim> = kernel.grid.iter().map(|g| g.extent.clone()).collect();
    let (points, cols) = (shape.get(..shape.len().saturating_sub(2)), shape.last().cloned().unwrap_or_default());
    let bytes = i64::try_from(elem.size()).unwrap_or(2);
    sizes_of(gpu, elem).product(points.unwrap_or_default(), [&rows.into(), &cols], bytes, loads(kernel) > 2)
}

/// The tiles of A and B in shared memory.
fn operand_tiles(elem: Elem, tile: &ProductTile, right_k: KAxis) -> (SharedTile, SharedTile) {
    let left = SharedTile { elem, rows: tile.rows, cols: tile.steps };
    let right = match right_k {
        KAxis::Cols => SharedTile { elem, rows: tile.cols, cols: tile.steps },
        KAxis::Rows => SharedTile { elem, rows: tile.steps, cols: tile.cols },
    };
    (left, right)
}

/// Number of tiles that a kernel loads.
fn loads(kernel: &Kernel) -> usize {
    kernel.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Load { .. })).count()
}

/// Bytes of a stage's tile, including alignment of the next one.
fn room(t: &SharedTile) -> i64 {
    let aligned = i64::from(SHARED_ALIGN);
    (t.bytes() + aligned - 1) / aligned * aligned
}
