//! Kernels for elementwise work: fused regions, copies, fills.
//!
//! A result may alias an operand ([`map_over`]) if both are the same view: each element is read by
//! the same point that then writes it, and the buffer is an in-out parameter of the kernel.
//!
//! ```text
//! grid (points.., ceil(rows, 16), ceil(cols, 256))
//!   load what the body reads, compute, store
//! ```

use super::Call;
use super::region::{Operand, Position, Region, buffer_type, counts_along_axes, merge_axes};
use crate::ir::{Function, Terminator};
use crate::shape::Dim;
use crate::tile::{self, ELEMENTWISE, KernelBuilder, ParamMode, View, rows_axis};

/// The kernel that computes a body of elementwise operations into `out`.
///
/// # Errors
/// A body that is not elementwise, a bug in attnc.
pub(super) fn map(name: &str, body: &Function, operands: &[Operand], out: &View) -> Result<Call, String> {
    kernel(name, body, operands, std::slice::from_ref(out), false)
}

/// The same for several results of one shape, each of which may alias an operand.
///
/// # Errors
/// A body that is not elementwise, a bug in attnc.
pub(super) fn map_over(name: &str, body: &Function, operands: &[Operand], outs: &[View]) -> Result<Call, String> {
    kernel(name, body, operands, outs, true)
}

fn kernel(name: &str, body: &Function, operands: &[Operand], outs: &[View], may_be_over: bool) -> Result<Call, String> {
    let mut shape = outs.first().ok_or("a region without a result")?.shape.clone();
    let mut views: Vec<Operand> = operands.to_vec();
    for o in &mut views {
        if let Operand::View(v) = o {
            *v = v.broadcast(&shape);
        }
    }
    let mut outs = outs.to_vec();
    let mut strides: Vec<Vec<Dim>> = outs.iter().map(|out| out.strides.clone()).collect();
    strides.extend(views.iter().filter_map(|o| o.view().map(|v| v.strides.clone())));
    let counts = counts_along_axes(body);
    let now = merge_axes(&mut shape, &mut strides, |_| counts);
    let rows = rows_axis(&shape, &strides);
    let mut merged = strides.into_iter();
    let mut place = |v: &mut View| {
        v.shape = shape.clone();
        v.strides = merged.next().unwrap_or_default();
    };
    outs.iter_mut().for_each(&mut place);
    for o in &mut views {
        if let Operand::View(v) = o {
            place(v);
        }
    }

    let mut kb = KernelBuilder::new(name);
    // The output that an operand aliases, if any.
    let place = |o: &Operand| o.view().filter(|_| may_be_over).and_then(|v| outs.iter().position(|out| out == v));
    let over: Vec<Option<usize>> = views.iter().map(place).collect();
    let mut region = Region::new(body, views, now);
    region.declare(&mut kb, |i| over.get(i).is_none_or(Option::is_none));
    let mut buffers = region.declared();
    let mut targets = Vec::new();
    for (k, out) in outs.iter().enumerate() {
        let mode = if over.contains(&Some(k)) { ParamMode::InOut } else { ParamMode::Out };
        targets.push(kb.buffer(buffer_type(out), mode));
    }
    for (i, k) in over.iter().enumerate() {
        if let Some(target) = k.and_then(|k| targets.get(k)) {
            region.bind(i, *target);
        }
    }
    let at = Position::with_rows(&mut kb, &shape, rows, ELEMENTWISE);
    let Terminator::Return(results) = &body.block(body.entry()).terminator else {
        return Err("a region does not return".into());
    };
    let mut env = super::region::Env::new();
    region.eval(&mut kb, &mut env, &at, results)?;
    for (result, target) in results.iter().zip(&targets) {
        let tile = env[*result].ok_or("the result was not evaluated")?;
        let tile = super::as_tile(&mut kb, tile, &at);
        kb.store(*target, &at.starts(), at.tile_axes(), tile);
    }
    buffers.extend(outs);
    Ok(Call { kernel: kb.finish(), buffers })
}

/// The kernel that copies one view into another of the same shape and type.
pub(super) fn copy(name: &str, from: &View, to: &View) -> Call {
    let (kernel, buffers) = tile::copy(name, from, to);
    Call { kernel, buffers: buffers.into() }
}
