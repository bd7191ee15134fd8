//! Rounds left operands of matmuls to `bf16`, if the weights are packed as `bf16` (`--pack bf16`).
//!
//! A machine with dot products of `bf16` pairs executes them at least twice as fast as `f32`; then
//! both operands have to be `bf16`. The weights were rounded when they were packed. The other
//! operand is rounded here, once, into a slot that the matmul reads in place.
//!
//! ```text
//! grid (batch.., ceil(M, 8), ceil(K, 512))
//!   %x = load %a[batch.., i, k] : tile f32[8, 512];  store %halves[batch.., i, k], %x as bf16
//! ```
//!
//! # Error
//!
//! Rounding is to nearest, ties to even, to 8 significant bits: it adds an error of at most the sum
//! of `2^-8 |a w|` over k to an element, as much as the rounded weights do. Sums stay in `f32`.
//! Each row is rounded by itself, so its bits do not depend on the number of rows.
//!
//! In: the left operand of a matmul. Out: whether to round it, the kernel that does so, and the
//! view that it writes. It must not know how matmuls read it.

use crate::shape::{Dim, Elem, TensorType};
use crate::tile::{BufferType, Kernel, KernelBuilder, Machine, ParamMode, Value, View, tile_size};

use super::packing::{with_repeats, without_repeats};
use super::pairs;

/// Rows and columns rounded at a time.
const TILE: [i64; 2] = [8, 512];

/// Should a matmul of these operands, where `b` is packed as `bf16`, read `a` rounded? It is then
/// read in pairs.
pub(super) fn are_wanted(machine: &Machine, a: &BufferType, b: &BufferType) -> bool {
    let as_halves = |ty: &BufferType| BufferType { elem: Elem::BF16, ..ty.clone() };
    // Once rounded, its k axis is contiguous.
    let strides = crate::tile::row_major(&a.shape);
    let a = (a.elem == Elem::F32).then(|| BufferType { strides, ..as_halves(a) });
    a.is_some_and(|a| pairs::are_wanted(machine, &a, &as_halves(b)))
}

/// The kernel that rounds an operand, and its operands; the view that it writes has the root
/// `root`.
pub(super) struct Rounded {
    pub(super) kernel: Kernel,
    pub(super) source: View,
    /// The whole slot, as the launch writes it.
    pub(super) whole: View,
    /// The operand, including axes along which it repeats.
    pub(super) operand: View,
    /// Its size in bytes.
    pub(super) bytes: Dim,
}

/// Rounds an operand `[batch.., M, K]` into a slot with the root `root`; `None` for a lower rank.
pub(super) fn round(from: &View, root: Value) -> Option<Rounded> {
    let (source, kept) = without_repeats(from);
    let rank = source.shape.len();
    let (lead, inner) = source.shape.split_last_chunk::<2>()?;
    let whole = View::whole(root, &TensorType::new(Elem::BF16, source.shape.clone()));

    let mut kb = KernelBuilder::new("round_left");
    let buffer = kb.buffer(source.buffer_type(), ParamMode::In);
    let to = kb.buffer(whole.buffer_type(), ParamMode::Out);
    let mut place: Vec<Value> = lead.iter().map(|d| kb.grid_axis(d, 1)).collect();
    let steps = [0, 1].map(|i| tile_size(&inner[i], TILE[i]));
    let points = [0, 1].map(|i| kb.grid_axis(&inner[i], steps[i]));
    let starts = [0, 1].map(|i| kb.times(points[i], steps[i]));
    let [rows, cols] = [0, 1].map(|i| kb.extent_at(&inner[i], starts[i], steps[i]));
    place.extend(starts);
    let along = (Some(rank - 2), Some(rank - 1));
    let tile = kb.load(buffer, &place, along, rows, cols);
    let tile = kb.narrow(tile, Elem::BF16);
    kb.store(to, &place, along, tile);

    let (shape, strides) = with_repeats(from, &kept, &whole.shape, &whole.strides);
    let operand = View { shape, strides, ..whole.clone() };
    let bytes = Dim::product(&source.shape).mul(&Dim::from(2));
    Some(Rounded { kernel: kb.finish(), source, whole, operand, bytes })
}
