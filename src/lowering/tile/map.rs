//! Kernels of elementwise work: fused runs, copies, fills.
//!
//! ```text
//! grid (points.., ceil(rows, 16), ceil(cols, 256))
//!   load what the body reads, compute, store
//! ```

use super::region::{Operand, Position, Region, counts_along_axes, merge_axes};
use super::{Call, output_buffer};
use crate::ir::{Function, Terminator};
use crate::tile::{self, ELEMENTWISE, KernelBuilder, View};

/// The kernel that computes a body of elementwise operations into `out`.
///
/// # Errors
/// A body that is not elementwise, a bug in attnc.
pub(super) fn map(name: &str, body: &Function, operands: &[Operand], out: &View) -> Result<Call, String> {
    let mut shape = out.shape.clone();
    let mut views: Vec<Operand> = operands.to_vec();
    for o in &mut views {
        if let Operand::View(v) = o {
            *v = v.broadcast(&shape);
        }
    }
    let mut out = out.clone();
    let mut strides = vec![out.strides.clone()];
    strides.extend(views.iter().filter_map(|o| o.view().map(|v| v.strides.clone())));
    let counts = counts_along_axes(body);
    let now = merge_axes(&mut shape, &mut strides, |_| counts);
    let mut merged = strides.into_iter();
    let mut place = |v: &mut View| {
        v.shape = shape.clone();
        v.strides = merged.next().unwrap_or_default();
    };
    place(&mut out);
    for o in &mut views {
        if let Operand::View(v) = o {
            place(v);
        }
    }

    let mut kb = KernelBuilder::new(name);
    let mut region = Region::new(body, views, now);
    region.declare(&mut kb, |_| true);
    let target = output_buffer(&mut kb, &out);
    let at = Position::over(&mut kb, &shape, ELEMENTWISE);
    let Terminator::Return(results) = &body.block(body.entry()).terminator else {
        return Err("a region does not return".into());
    };
    let result = *results.first().ok_or("a region without a result")?;
    let mut env = super::region::Env::new();
    region.eval(&mut kb, &mut env, &at, &[result])?;
    let tile = env[result].ok_or("the result was not evaluated")?;
    let tile = super::as_tile(&mut kb, tile, &at);
    kb.store(target, &at.starts(), at.tile_axes(), tile);
    let mut buffers = region.declared();
    buffers.push(out);
    Ok(Call { kernel: kb.finish(), buffers })
}

/// The kernel that copies one view into another of the same shape and type.
pub(super) fn copy(name: &str, from: &View, to: &View) -> Call {
    let (kernel, buffers) = tile::copy(name, from, to);
    Call { kernel, buffers: buffers.into() }
}
