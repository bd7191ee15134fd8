//! Concatenated parameters, which a plan reads from the packed area.
//!
//! In: `concat`s of views of parameters. Out: views of the packed area. Such a `concat` is at first
//! only a view with a root of its own. Its readers find it row-major in the packed area, which is
//! filled once, before all calls. (The schedule lets matmuls read panels of the separate parameters
//! instead.)

use super::super::join::PackedTensor;
use super::Lowering;
use crate::ir::{Loc, Op, ParamDecl, Use, Value, param_named};
use crate::shape::Dim;
use crate::tile::View;

/// Views of parameters, concatenated along an axis.
#[derive(Clone)]
pub(super) struct Join {
    axis: usize,
    parts: Vec<View>,
    loc: Loc,
}

impl Lowering<'_> {
    /// The parameter that a view refers to, with its indices.
    fn parameter(&self, window: &View) -> Option<(&str, &[Value])> {
        // Roots numbered above the function's values are introduced by the lowering.
        let is_value = usize::try_from(window.root.as_u32()).is_ok_and(|n| n < self.f.value_count());
        let (_, data) = is_value.then(|| self.f.definition(window.root)).flatten()?;
        let Op::Param { name } = &data.op else { return None };
        Some((name, &data.operands))
    }

    /// Declarations of the parameters that the views refer to, and their indices, which must all be
    /// equal.
    fn parameters(&self, windows: &[View]) -> Option<(Vec<ParamDecl>, Vec<Value>)> {
        let (_, indices) = self.parameter(windows.first()?)?;
        let mut params = Vec::new();
        for window in windows {
            let (name, own) = self.parameter(window)?;
            params.push(param_named(&self.out.params, name).filter(|_| own == indices)?.clone());
        }
        Some((params, indices.to_vec()))
    }

    /// A concat of views of parameters as a view with a root of its own, if their offsets are
    /// constants and the concat is not a result of the function.
    pub(super) fn join(&mut self, v: Value, operands: &[Value], axis: usize) -> Option<View> {
        let parts = operands.iter().map(|x| self.places[*x].clone()).collect::<Option<Vec<View>>>()?;
        let (params, _) = self.parameters(&parts)?;
        let fixed = |view: &View| {
            let positive = view.shape.iter().all(|d| d.as_const().is_some_and(|n| n > 0));
            let known = view.strides.iter().chain([&view.offset]).all(|d| d.as_const().is_some_and(|n| n >= 0));
            view.dynamic.is_empty() && positive && known
        };
        let alike = params.iter().all(|p| p.counts == params[0].counts && !p.counts.contains(&0));
        let leaves = self.uses[v].iter().any(|u| matches!(u, Use::Terminator(_)));
        if !alike || leaves || !parts.iter().all(fixed) {
            return None;
        }
        let ty = self.f.tensor(v)?;
        let root = self.fresh_root();
        let loc = self.f.definition(v).map(|(_, d)| d.loc).unwrap_or_default();
        self.joins.insert(root, Join { axis, parts, loc });
        Some(View::whole(root, ty))
    }

    /// A part of the packed area, at the indices of a parameter.
    fn packed_view(&mut self, part: PackedTensor, indices: &[Value]) -> View {
        let known = self.packed.get(&part.offset).copied();
        let root = known.unwrap_or_else(|| {
            let root = self.fresh_root();
            self.roots[root] = Some(self.in_entry(|b| b.packed(part.offset, part.whole.clone())));
            self.packed.insert(part.offset, root);
            root
        });
        let (elem, offset) = (part.whole.elem, Dim::zero());
        let dynamic = indices.iter().copied().zip(part.whole.strides).collect();
        View { root, elem, offset, dynamic, shape: part.shape, strides: part.strides }
    }

    /// The corresponding view of the packed area, if the root is a concat of parameters.
    pub(super) fn joined_in_memory(&mut self, window: &View) -> Result<Option<View>, String> {
        let Some(Join { axis, parts, loc }) = self.joins.get(&window.root).cloned() else { return Ok(None) };
        let lost = "joined parameters without a place";
        let (params, indices) = self.parameters(&parts).ok_or(lost)?;
        let windows: Vec<(&ParamDecl, View)> = params.iter().zip(parts).collect();
        let part = self.shared.area.join(&windows, axis, loc).ok_or(lost)?;
        let base = self.packed_view(part, &indices);
        let dynamic = [base.dynamic, window.dynamic.clone()].concat();
        Ok(Some(View { root: base.root, dynamic, ..window.clone() }))
    }
}
