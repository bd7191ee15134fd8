//! Matmuls with quantised weights on a GPU: the variants that use tensor cores.
//!
//! In: a matmul's kernel and its panels of integers. Out: launches, with the minimum number of rows
//! of each. This must not know how rows are counted.

use super::super::packing::Panels;
use super::super::plans::{LaunchPosition, Variant, buffer, in_entry, new_slot, slot_type};
use super::super::tensor_cores::{self, Reason};
use super::super::unpack::unpack;
use super::{LaunchOf, Walk};
use crate::shape::{Dim, Elem};
use crate::tile::alignment::{CHUNK, begins_at_multiple};
use crate::tile::matmul::{LEFT, RIGHT};
use crate::tile::{GpuArch, Kernel, Op, PlanOp, Type, Value, View, flat};

/// A matmul with quantised weights: its kernel for a plain matrix, its quantised operand, its
/// number of rows.
pub(super) struct ByIntegers<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) rows: &'a Dim,
    pub(super) panels: &'a Panels,
}

impl Walk<'_, '_> {
    /// The tensor core variants of a matmul with quantised weights, in order of their minimum
    /// number of rows. `operands`: the operands of its launch, with scales after integers.
    pub(super) fn by_integers(
        &mut self,
        product: &ByIntegers<'_>,
        operands: &[Value],
        window: &View,
        (arch, at): (GpuArch, LaunchPosition),
    ) -> Result<Result<Vec<Variant>, Reason>, String> {
        let ByIntegers { kernel, rows, panels } = product;
        let (own, points) = panels.without_repeats();
        let Some((scales, bits)) = &own.scales else { return Ok(Ok(Vec::new())) };
        let integers = || tensor_cores::Integers {
            numbers: own.numbers.buffer_type(),
            scales: scales.buffer_type(),
            bits: *bits,
            points: points.clone(),
        };
        let body = &self.plan.body;
        let is_aligned = |n: usize, bytes| operands.get(n).is_some_and(|v| begins_at_multiple(body, &[], *v, bytes));
        let aligned = |k: &Kernel| tensor_cores::check_alignment(k, is_aligned);
        let made = tensor_cores::by_integers(kernel, arch, rows, integers);
        let mut made = match made.and_then(|made| made.iter().try_for_each(|(_, k)| aligned(k)).map(|()| made)) {
            Ok(made) => made,
            Err(why) => return Ok(Err(why)),
        };
        let least = tensor_cores::unpacked_rows(arch).filter(|least| rows.as_const().is_none_or(|n| n >= *least));
        let least = least.filter(|_| !made.is_empty());
        if rows.as_const().is_some() && least.is_some() {
            made.clear();
        }
        let mut variants: Vec<Variant> = Vec::new();
        for (least, kernel) in made {
            let mut kernel = tensor_cores::reads_in_pairs(kernel, &|n| is_aligned(n, CHUNK));
            kernel.find_symbols();
            let kernel = self.kernels.add_again(kernel);
            variants.push(Variant { least, launches: vec![(kernel, operands.to_vec())] });
        }
        let elem = kernel.buffer_type(LEFT).map(|b| b.elem);
        if let (Some(least), Some(elem)) = (least, elem) {
            let mut kernel: Kernel = (*kernel).clone();
            let Some((unpack, matrix)) = self.unpacked(panels, window, elem, at)? else { return Ok(Ok(variants)) };
            if let Some(p) = kernel.params.get(RIGHT).map(|p| p.value) {
                kernel.body.set_ty(p, Type::Buffer(matrix.buffer_type()));
            }
            kernel.find_symbols();
            let matrix = buffer(&mut self.plan.body, at, &matrix);
            let mut others = operands.to_vec();
            others.splice(RIGHT..RIGHT + 2, [matrix]);
            let kernel = self.kernels.add_again(kernel);
            variants.push(Variant { least, launches: vec![unpack, (kernel, others)] });
        }
        Ok(Ok(variants))
    }

    /// A launch that makes a 16-bit matrix of a matmul's panels; returns the matrix as the matmul's
    /// right operand.
    fn unpacked(
        &mut self,
        panels: &Panels,
        window: &View,
        elem: Elem,
        at: LaunchPosition,
    ) -> Result<Option<(LaunchOf, View)>, String> {
        let Some([k, n]) = window.shape.last_chunk::<2>() else { return Ok(None) };
        let (Some(k), Some(n)) = (k.as_const(), n.as_const()) else { return Ok(None) };
        let (own, points) = panels.without_repeats();
        let Some(made) = unpack(&own, [k, n], elem, Value::from_u32(0)) else { return Ok(None) };
        let number = new_slot(self.plan, &made.bytes, at, 0);
        let ty = slot_type(self.plan, &made.bytes, &flat(elem, &made.bytes));
        let slot = in_entry(self.plan, &mut self.added, Op::Plan(PlanOp::Slot(number)), ty, at);
        let body = &mut self.plan.body;
        let mut operands = vec![buffer(body, at, &own.numbers)];
        if let Some((scales, _)) = &own.scales {
            operands.push(buffer(body, at, scales));
        }
        operands.push(buffer(body, at, &View { root: slot, ..made.written }));
        let name = self.kernels.add(made.kernel);
        // Restores the repeated axes.
        let (mut shape, mut strides) = (made.matrix.shape.clone(), made.matrix.strides.clone());
        for (i, d) in window.shape.iter().enumerate().take(window.shape.len() - 2).filter(|(i, _)| !points.contains(i))
        {
            shape.insert(i, d.clone());
            strides.insert(i, Dim::zero());
        }
        Ok(Some(((name, operands), View { root: slot, shape, strides, ..made.matrix })))
    }
}
