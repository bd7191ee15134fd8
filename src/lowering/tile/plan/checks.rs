//! What a plan checks before it goes on: that an argmax has something to choose from, and, where a graph's text says too
//! little of its dimensions, that no extent is negative, that slices end in what they are of, and that indices are in range.
//!
//! In: a function, and the index of a parameter or tap. Out: `check_index` in the plan, which reports what is wrong as an error
//! of the call. Programs say what they need of their dimensions, so of these checks they have the first alone.

use super::Lowering;
use crate::ir::{self, Function, Op, Type, Value};
use crate::scalar::ReduceKind;
use crate::shape::Dim;
use crate::tile;

impl Lowering<'_> {
    /// The argmax of an empty axis is an error of the call.
    pub(super) fn check_argmax(&mut self, body: &Function) -> Result<(), String> {
        for (_, _, d) in body.insts() {
            let Op::Reduce { kind: ReduceKind::ArgMax, axes, .. } = &d.op else { continue };
            let x = d.operands.first().and_then(|v| body.tensor(*v)).ok_or("argmax of no tensor")?;
            let extent = axes.first().and_then(|a| x.shape.get(*a)).cloned().unwrap_or_default();
            if extent.as_const().is_some_and(|n| n > 0) {
                continue;
            }
            let text = format!("{}: argmax of an empty axis", self.place_text(d.loc));
            let site = self.site(text);
            let (zero, bound) = (self.builder.index(0), self.builder.dim(&extent));
            self.builder.check_index(zero, bound, site);
        }
        Ok(())
    }

    /// An index, in range from here on where it is to be checked.
    pub(super) fn checked(&mut self, v: Value, extent: &Dim, loc: ir::Loc) -> Result<tile::Value, String> {
        let index = self.index(v)?;
        if !self.careful {
            return Ok(index);
        }
        let text = format!("{}: index {{0}} is out of range for an axis of {{1}}", self.place_text(loc));
        let site = self.site(text);
        let bound = self.builder.dim(extent);
        Ok(self.builder.check_index(index, bound, site))
    }

    /// Checks that what the function computes has no negative extents, and that slices and paddings are as long as they say.
    pub(super) fn check_dimensions(&mut self) {
        let mut wanted: Vec<(Dim, ir::Loc)> = Vec::new();
        needs(self.f, &mut wanted);
        for (d, loc) in wanted {
            let text = format!("{}: the extent {d} is negative", self.place_text(loc));
            let site = self.site(text);
            let (zero, bound) = (self.builder.index(0), self.builder.dim(&d.add(&Dim::one())));
            self.builder.check_index(zero, bound, site);
        }
    }
}

/// Dimensions that must not be negative, each once, those left out that are not by their form.
fn needs(f: &Function, out: &mut Vec<(Dim, ir::Loc)>) {
    for (_, _, d) in f.insts() {
        let mut need = |dim: Dim| {
            if !dim.is_provably_nonnegative() && out.iter().all(|(o, _)| *o != dim) {
                out.push((dim, d.loc));
            }
        };
        if let Some(Type::Tensor(t)) = d.result.map(|v| f.ty(v)) {
            t.shape.iter().cloned().for_each(&mut need);
        }
        match &d.op {
            Op::Slice { axis, start, stop } => {
                let from = d.operands.first().and_then(|v| f.tensor(*v)).and_then(|t| t.shape.get(*axis));
                need(start.clone());
                if let Some(extent) = from {
                    need(extent.sub(stop));
                }
            }
            Op::Pad { low, high, .. } => [low, high].into_iter().cloned().for_each(need),
            Op::Fused { body, .. } => needs(body, out),
            _ => {}
        }
    }
}
