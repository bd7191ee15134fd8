//! Kernels that make 16-bit floats of packed integers, for products of so many rows that `wgmma` by a matrix pays (`tensor_cores` takes
//! fewer rows as they are packed).
//!
//! In: panels of integers and their scales (`quantise`). Out: the kernel, and the row-major matrix `[batch.., K, N]` that it writes, whose rows
//! are so far apart that each begins at a multiple of 16 bytes.
//!
//! ```text
//! grid (batch.., P, ceil(K, 32))
//!   w = number * scale, rounded to 16 bits
//! ```
//!
//! Such a product is bound by its multiplications: the matrix is written and read once more for each, 5 bytes an element where tensor cores are
//! 15 times as fast as what multiplies `f32`. An element of it is off by `2^-9` (`bf16`) or `2^-12` (`f16`) of its magnitude, besides what
//! packing costs. What this must not know: which products read it.

use super::packing::Panels;
use super::quantise::groups;
use crate::scalar::{BinaryOp, CmpOp, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::tile::{GROUP, Kernel, KernelBuilder, ParamMode, Value, View, row_major};

/// Elements of 16 bits in 16 bytes.
const CHUNK: i64 = 8;

/// What unpacks panels.
pub(super) struct Unpacked {
    /// The kernel; its parameters are the numbers, the scales, the matrix.
    pub(super) kernel: Kernel,
    /// The matrix as the kernel writes it, with the root that was given.
    pub(super) written: View,
    /// The same as a product reads it.
    pub(super) matrix: View,
    /// Bytes of it.
    pub(super) bytes: Dim,
}

/// Unpacks panels of so many columns, without axes that repeat, into a matrix of `k` by `n` elements of a type; `None` if the panels do not hold integers.
pub(super) fn unpack(panels: &Panels, [k, n]: [i64; 2], elem: Elem, root: Value) -> Option<Unpacked> {
    let (scales, bits) = panels.scales.as_ref()?;
    let numbers = &panels.numbers;
    let (lead, [count, _, columns]) = numbers.shape.split_last_chunk::<3>()?;
    let (rank, columns) = (lead.len(), columns.as_const()?);
    // Bytes with two steps write two rows each, of which the last may be one more than there are.
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
        // The upper half with its sign, and the lower one.
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
