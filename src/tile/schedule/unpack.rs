//! Kernels that convert quantised weights to 16-bit floats, for matmuls with so large a number of
//! rows that `wgmma` with a matrix pays (for fewer rows, `tensor_cores` reads the packed weights).
//!
//! In: quantised panels and their scales (`quantise`). Out: the kernel, and the row-major matrix
//! `[batch.., K, N]` that it writes, whose row stride is a multiple of 16 bytes.
//!
//! ```text
//! grid (batch.., P, ceil(K, 32))
//!   w = integer * scale, rounded to 16 bits
//! ```
//!
//! Such a matmul is compute bound: the matrix is written and read once more for each, 5 bytes per
//! element, where tensor cores are 15 times as fast as `f32` units. The error of its elements is
//! `2^-9` (`bf16`) or `2^-12` (`f16`) of their magnitude, in addition to the error of packing. It
//! must not know which matmuls read it.

use super::packing::Panels;
use super::quantise::groups;
use crate::scalar::{BinaryOp, CmpOp, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::tile::{GROUP, Kernel, KernelBuilder, ParamMode, Value, View, row_major};

/// Number of 16-bit elements in 16 bytes.
const CHUNK: i64 = 8;

/// A kernel that unpacks panels.
pub(super) struct Unpacked {
    /// The kernel; its parameters are the integers, the scales, the matrix.
    pub(super) kernel: Kernel,
    /// The matrix as the kernel writes it, with the given root.
    pub(super) written: View,
    /// The same as a matmul reads it.
    pub(super) matrix: View,
    /// Its size in bytes.
    pub(super) bytes: Dim,
}

/// Unpacks panels of this width, without repeated axes, into a matrix of `k` by `n` elements of a
/// type; `None` if the panels are not quantised.
pub(super) fn unpack(panels: &Panels, [k, n]: [i64; 2], elem: Elem, root: Value) -> Option<Unpacked> {
    let (scales, bits) = panels.scales.as_ref()?;
    let numbers = &panels.numbers;
    let (lead, [count, _, columns]) = numbers.shape.split_last_chunk::<3>()?;
    let (rank, columns) = (lead.len(), columns.as_const()?);
    // Bytes with two integers write two rows each, of which the last may be in excess.
    let each = i64::from(8 / bits);
    let bytes = (k + each - 1) / each;
    let far = (n + CHUNK - 1) / CHUNK * CHUNK;
    let room: Vec<Dim> = lead.iter().cloned().chain([bytes, each, far].map(Dim::from)).collect();
    let strides = row_major(&room);
    let all = Dim::product(&room).mul(&Dim::from(i64::try_from(elem.size()).ok()?));
    let of_lead = strides.get(..rank)?.to_vec();
    let view = |shape: &[i64], own: &[i64]| View {
        root,
        elem,
        offset: Dim::zero(),
        dynamic: Vec::new(),
        shape: lead.iter().cloned().chain(shape.iter().map(|n| Dim::from(*n))).collect(),
        strides: of_lead.iter().cloned().chain(own.iter().map(|n| Dim::from(*n))).collect(),
    };
    let written = view(&[bytes, each, n], &[each * far, far, 1]);
    let matrix = view(&[k, n], &[far, 1]);

    let mut kb = KernelBuilder::new(if each == 2 { "unpack_int4" } else { "unpack_int8" });
    let from = kb.buffer(numbers.buffer_type(), ParamMode::In);
    let of_scales = kb.buffer(scales.buffer_type(), ParamMode::In);
    let to = kb.buffer(written.buffer_type(), ParamMode::Out);
    let points: Vec<Value> = lead.iter().map(|d| kb.grid_axis(d, 1)).collect();
    let panel = kb.grid_axis(count, 1);
    let group = kb.grid_axis(&Dim::from(groups(k)), 1);
    let size = i64::from(GROUP) / each;
    let (row, column) = (kb.times(group, size), kb.times(panel, columns));
    let height = kb.extent_at(&Dim::from(bytes), row, size);
    let cols = kb.extent_at(&Dim::from(n), column, columns);
    let zero = kb.index(0);
    let along = (Some(rank + 1), Some(rank + 2));
    let at = [points.as_slice(), &[panel, row, zero]].concat();
    let number = kb.load(from, &at, along, height, cols);
    let number = kb.cast(number, Elem::F32);
    let at = [points.as_slice(), &[panel, group, zero]].concat();
    let scale = kb.load(of_scales, &at, along, crate::tile::Extent::Static(1), cols);
    let mut steps = vec![number];
    if each == 2 {
        // The high half with its sign, and the low half.
        let literal = |kb: &mut KernelBuilder, x: f64| kb.scalar(Scalar::Float(x), Elem::F32);
        let (sixteenth, sixteen, most) = (literal(&mut kb, 0.0625), literal(&mut kb, 16.0), literal(&mut kb, 7.0));
        let high = kb.binary(BinaryOp::Mul, number, sixteenth);
        let high = kb.unary(UnaryOp::Floor, high);
        let rest = kb.binary(BinaryOp::Mul, high, sixteen);
        let low = kb.binary(BinaryOp::Sub, number, rest);
        let wraps = kb.compare(CmpOp::Gt, low, most);
        let wrapped = kb.binary(BinaryOp::Sub, low, sixteen);
        steps = vec![kb.select(wraps, wrapped, low), high];
    }
    for (n, number) in (0..each).zip(steps) {
        let x = kb.binary(BinaryOp::Mul, number, scale);
        let x = kb.narrow(x, elem);
        let step = kb.index(n);
        let at = [points.as_slice(), &[row, step, column]].concat();
        kb.store(to, &at, (Some(rank), Some(rank + 2)), x);
    }
    Some(Unpacked { kernel: kb.finish(), written, matrix, bytes: all })
}
