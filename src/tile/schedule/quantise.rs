//! Kernels that pack weights as integers with scales.
//!
//! In: a view of a parameter, `[batch.., K, N]`, and an integer width. Out: the kernel and its
//! operands: panels `[batch.., P, K, NR]` of `i8` and scales `[batch.., P, ceil(K / 32), NR]`. With
//! 4 bits a byte has two k indices, the first in its low half: panels `[batch.., P, ceil(K / 2),
//! NR]`.
//!
//! ```text
//! grid (batch.., P, ceil(K, 32))
//!   scale = min(max |w| / most, largest float s with s most finite);  number = floor(w / scale + 0.5), 0 if the scale is 0
//! ```
//!
//! The largest integer, `most`, is 127 or 7, so the error of a weight is at most half a scale.
//! 4-bit integers are packed from two views of the parameter, its even and its odd k indices: the
//! low halves are stored first, then the high ones are added.
//!
//! # Error
//!
//! With `s` the scale of a weight's group (`max |w| / most`) and `a` its factor, the error of an
//! element of a matmul is at most the sum of `|a| s / 2` over k, in addition to the rounding of
//! sums that every matmul has.
//!
//! Matmuls in the mode [`Groups`](crate::tile::DotMode::Groups) (AVX-512 with VNNI and VBMI, and
//! AVX-VNNI; CPUs with AVX-512 that lack VNNI or VBMI run the code for a lower instruction set)
//! quantise the left operand too: in each group to multiples of `t = max |a| / 127`, which adds at
//! most the sum of `t (|w| + s / 2) / 2`. Groups with a maximum below 1e-30 are treated as if it
//! were 1e-30. The sum over a group is then exact, and each group adds one rounding. Rows are
//! quantised independently: the bits do not depend on their number. With 4-bit weights this is a
//! twentieth of the existing error; with 8 bits both are similar. `attnc run --pack` reports the
//! total error of a call.

use crate::scalar::Scalar;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};
use crate::tile::{self, Extent, GROUP, Kernel, KernelBuilder, ParamMode, View, tile_size};

/// A kernel that packs a weight, with its operands.
pub(super) struct Quantised {
    /// The kernel; its parameters are the sources, the panels, the scales.
    pub(super) kernel: Kernel,
    /// Views of the parameter.
    pub(super) sources: Vec<View>,
    /// The panels it writes.
    pub(super) panels: View,
    /// The scales it writes.
    pub(super) scales: View,
}

/// Rows of a panel with `k` k indices.
pub(super) fn rows(bits: Option<u8>, k: i64) -> i64 {
    if bits == Some(4) { k.div_euclid(2) + k.rem_euclid(2) } else { k }
}

/// Number of groups of `k` k indices.
pub(super) fn groups(k: i64) -> i64 {
    let group = i64::from(GROUP);
    k.div_euclid(group) + i64::from(k.rem_euclid(group) != 0)
}

/// The largest scale with which the integer `most` is a finite `f32`.
fn largest_scale(most: f64) -> f64 {
    let nearest = f32::MAX / most as f32;
    f64::from(if (nearest * most as f32).is_finite() { nearest } else { nearest.next_down() })
}

/// The kernel for a view with constant extents of at least 1, into panels of this width.
///
/// # Errors
/// A view of another shape, which is a bug in attnc.
pub(super) fn quantise(columns: i64, from: &View, bits: u8) -> Result<Quantised, String> {
    let (lead, [k, n]) = from.shape.split_last_chunk::<2>().ok_or("a weight has two axes or more")?;
    let (Some(k), Some(width)) = (k.as_const(), n.as_const()) else { return Err("a weight of unknown extents".into()) };
    let (rank, halves) = (from.shape.len(), bits == 4);
    let (steps, most) = if halves { (2, 7.0) } else { (1, 127.0) };
    let count = width.saturating_add(columns - 1).div_euclid(columns);
    let panels = |elem: Elem, rows: i64| {
        let own = [count, rows, columns].map(Dim::from);
        View::whole(from.root, &TensorType::new(elem, [lead, &own].concat()))
    };
    let (panels, scales) = (panels(Elem::I8, rows(Some(bits), k)), panels(Elem::F32, groups(k)));
    let every_other = |first: i64| {
        let mut view = from.slice(rank - 2, &Dim::from(first), &Dim::from(k));
        if let (Some(extent), Some(stride)) = (view.shape.get_mut(rank - 2), view.strides.get_mut(rank - 2)) {
            *extent = Dim::from(rows(Some(4), k - first));
            *stride = stride.mul(&Dim::from(2));
        }
        view
    };
    let sources: Vec<View> = if halves { (0..k.min(2)).map(every_other).collect() } else { vec![from.clone()] };

    let mut kb = KernelBuilder::new(if halves { "pack_int4" } else { "pack_int8" });
    let buffers: Vec<tile::Value> = sources.iter().map(|v| kb.buffer(v.buffer_type(), ParamMode::In)).collect();
    let mode = if sources.len() > 1 { ParamMode::InOut } else { ParamMode::Out };
    let to = kb.buffer(panels.buffer_type(), mode);
    let to_scales = kb.buffer(scales.buffer_type(), ParamMode::Out);
    let points: Vec<tile::Value> = lead.iter().map(|d| kb.grid_axis(d, 1)).collect();
    let panel = kb.grid_axis(&Dim::from(count), 1);
    let group = kb.grid_axis(&Dim::from(groups(k)), 1);
    let size = i64::from(GROUP) / steps;
    let row = kb.times(group, size);
    let widest = tile_size(n, columns);
    let column = kb.times(panel, widest);
    let cols = kb.extent_at(n, column, widest);
    // The last group may have one odd k index less, or none.
    let mut heights = Vec::new();
    for view in &sources {
        let all = view.shape.get(rank - 2).and_then(Dim::as_const).unwrap_or(1);
        heights.push(match groups(k) {
            1 => Extent::Static(all),
            _ if k % i64::from(GROUP) == 0 => Extent::Static(size),
            _ => {
                let (end, max) = (kb.index(all), kb.index(size));
                let rest = kb.index_binary(BinaryOp::Sub, end, row);
                Extent::Bounded { value: kb.index_binary(BinaryOp::Min, rest, max), max: size }
            }
        });
    }
    let height = *heights.first().ok_or("a weight without steps")?;
    let (zero, one) = (kb.index(0), Extent::Static(1));
    let along = (Some(rank - 1), Some(rank));
    let place = [points.as_slice(), &[panel, row, zero]].concat();
    let scales_place = [points.as_slice(), &[panel, group, zero]].concat();
    if width % columns != 0 {
        // Zeros past the last column.
        let numbers = kb.full(Scalar::Int(0), Elem::I32, height, Extent::Static(columns));
        kb.store(to, &place, along, numbers);
        let zeros = kb.full(Scalar::Float(0.0), Elem::F32, one, Extent::Static(columns));
        kb.store(to_scales, &scales_place, along, zeros);
        let (next, _) = kb.new_block(Vec::new());
        kb.br(next, &[]);
        kb.switch_to(next);
    }
    let at = [points.as_slice(), &[row, column]].concat();
    let load = |kb: &mut KernelBuilder, i: usize| match (buffers.get(i), heights.get(i)) {
        (Some(b), Some(h)) => Some(kb.load(*b, &at, (Some(rank - 2), Some(rank - 1)), *h, cols)),
        _ => None,
    };
    let mut largest = None;
    for i in 0..sources.len() {
        let x = load(&mut kb, i).ok_or("a source is missing")?;
        let size = kb.unary(UnaryOp::Abs, x);
        let own = kb.reduce(ReduceKind::Max, 0, size);
        largest = Some(match largest {
            None => own,
            Some(other) => kb.binary(BinaryOp::Max, other, own),
        });
    }
    let limit = kb.scalar(Scalar::Float(most), Elem::F32);
    let largest = largest.ok_or("a weight without steps")?;
    let scale = kb.binary(BinaryOp::Div, largest, limit);
    // The scale of finite weights must have a finite product with `most`.
    let (top, infinite) =
        (kb.scalar(Scalar::Float(largest_scale(most)), Elem::F32), kb.scalar(Scalar::Float(f64::INFINITY), Elem::F32));
    let bounded = kb.binary(BinaryOp::Min, scale, top);
    let is_finite = kb.compare(CmpOp::Lt, largest, infinite);
    let scale = kb.select(is_finite, bounded, scale);
    kb.store(to_scales, &scales_place, along, scale);
    let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
    let whole = kb.scalar(Scalar::Float(1.0), Elem::F32);
    let is_zero = kb.compare(CmpOp::Eq, scale, nothing);
    let divisor = kb.select(is_zero, whole, scale);
    let half = kb.scalar(Scalar::Float(0.5), Elem::F32);
    let least = kb.scalar(Scalar::Float(-most), Elem::F32);
    let number = |kb: &mut KernelBuilder, x: tile::Value| {
        let x = kb.binary(BinaryOp::Div, x, divisor);
        let x = kb.binary(BinaryOp::Add, x, half);
        let x = kb.unary(UnaryOp::Floor, x);
        // Subnormal scales, which are rounded themselves, would yield larger integers.
        let x = kb.binary(BinaryOp::Min, x, limit);
        let x = kb.binary(BinaryOp::Max, x, least);
        kb.cast(x, Elem::I32)
    };
    let x = load(&mut kb, 0).ok_or("a source is missing")?;
    let first = number(&mut kb, x);
    if !halves {
        kb.store(to, &place, along, first);
        return Ok(Quantised { kernel: kb.finish(), sources, panels, scales });
    }
    let sixteen = kb.scalar(Scalar::Int(16), Elem::I32);
    let naught = kb.scalar(Scalar::Int(0), Elem::I32);
    let negative = kb.compare(CmpOp::Lt, first, naught);
    let wrapped = kb.binary(BinaryOp::Add, first, sixteen);
    let low = kb.select(negative, wrapped, first);
    kb.store(to, &place, along, low);
    if let Some(height) = heights.get(1).copied() {
        // In a block of its own, after the low halves.
        let (next, _) = kb.new_block(Vec::new());
        kb.br(next, &[]);
        kb.switch_to(next);
        let x = load(&mut kb, 1).ok_or("a source is missing")?;
        let second = number(&mut kb, x);
        let high = kb.binary(BinaryOp::Mul, second, sixteen);
        let low = kb.load(to, &place, along, height, cols);
        let both = kb.binary(BinaryOp::Add, low, high);
        kb.store(to, &place, along, both);
    }
    Ok(Quantised { kernel: kb.finish(), sources, panels, scales })
}
