//! What a plan reads of the packed area: panels of weights, and parameters that a program puts one after another.
//!
//! In: windows of parameters, and `concat`s of them. Out: views of the packed area. A `concat` of parameters is nothing at
//! first but a view with a root of its own. A product by it takes panels of the windows: all of them together, or, where one
//! window's end is not a panel's end or one is kept as it is and others are not, window by window, each launch writing its own columns of the result. Whatever else
//! reads it finds it row-major in the packed area.
//!
//! One exception: a product whose kernel cannot be cut into windows, because it reads the left or the right operand elsewhere too
//! (`x * (x @ w)`) or counts along an axis, takes no panels where a window ends inside one: it packs the row-major matrix in each
//! call. No pass makes such a `concat`: merge-matmuls joins only what fills panels.

use super::super::packing::{Panels, Part};
use super::super::region::{Operand, counts_along_axes};
use super::super::views::View;
use super::Lowering;
use crate::ir::{Function, Op, ParamDecl, Use, Value, param_named};
use crate::shape::{Dim, TensorType};

/// Windows of parameters, one after another along an axis.
#[derive(Clone)]
pub(super) struct Join {
    axis: usize,
    parts: Vec<View>,
}

impl Lowering<'_> {
    /// The parameter in whose storage a window lies, with its indices.
    fn parameter(&self, window: &View) -> Option<(&str, &[Value])> {
        // Numbers after the last value are roots of our own.
        let is_value = usize::try_from(window.root.as_u32()).is_ok_and(|n| n < self.f.value_count());
        let (_, data) = is_value.then(|| self.f.definition(window.root)).flatten()?;
        let Op::Param { name } = &data.op else { return None };
        Some((name, &data.operands))
    }

    /// The declarations of the parameters in which windows lie, and their indices, which are the same for all.
    fn parameters(&self, windows: &[View]) -> Option<(Vec<ParamDecl>, Vec<Value>)> {
        let (_, indices) = self.parameter(windows.first()?)?;
        let mut params = Vec::new();
        for window in windows {
            let (name, own) = self.parameter(window)?;
            params.push(param_named(&self.out.params, name).filter(|_| own == indices)?.clone());
        }
        Some((params, indices.to_vec()))
    }

    /// A concat of windows of parameters as a view with a root of its own, if their places are known before all calls and it
    /// is not what the function gives back.
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
        self.joins.insert(root, Join { axis, parts });
        Some(View::whole(root, ty))
    }

    /// The windows of parameters, columns after columns, that a matrix is made of.
    fn columns(&self, window: &View) -> Option<Vec<View>> {
        let Some(join) = self.joins.get(&window.root) else { return Some(vec![window.clone()]) };
        // The axes that are not repeats.
        let rank = window.shape.len();
        let lead = rank.checked_sub(2)?;
        let repeats = window.strides.get(..lead)?.iter().all(|s| *s == Dim::zero());
        let (shape, strides) = (window.shape.get(lead..)?, window.strides.get(lead..)?);
        let elem = window.elem;
        let mut extents: Vec<Dim> = join.parts.first()?.shape.clone();
        let along = join.parts.iter().filter_map(|p| p.shape.get(join.axis));
        *extents.get_mut(join.axis)? = along.fold(Dim::zero(), |sum, d| sum.add(d));
        if !repeats || extents.len() != 2 || window.offset != Dim::zero() || !window.dynamic.is_empty() {
            return None;
        }
        let whole = View::whole(window.root, &TensorType::new(elem, extents));
        let turned = whole.transpose(&[1, 0]);
        let lies = |v: &View| v.shape == shape && v.strides == strides;
        let parts: Vec<View> = match join.axis {
            1 if lies(&whole) => join.parts.clone(),
            0 if lies(&turned) => join.parts.iter().map(|p| p.transpose(&[1, 0])).collect(),
            _ => return None,
        };
        let repeated = |p: &View| {
            let mut shape = window.shape.clone();
            if let (Some(n), Some(own)) = (shape.last_mut(), p.shape.last()) {
                *n = own.clone();
            }
            p.broadcast(&shape)
        };
        Some(parts.iter().map(repeated).collect())
    }

    /// A window of a parameter, or of several, as panels of the packed area.
    pub(super) fn parameter_panels(&mut self, window: &View, pairs: bool) -> Option<Panels> {
        let windows = self.columns(window)?;
        let (params, indices) = self.parameters(&windows)?;
        let windows: Vec<(&ParamDecl, View)> = params.iter().zip(windows).collect();
        let place = self.shared.packing.place(&windows, pairs)?;
        let numbers = self.packed_view(place.panels, &indices);
        let scales = place.scales.map(|(part, bits)| (self.packed_view(part, &indices), bits));
        Some(Panels { numbers, scales, in_pairs: place.in_pairs })
    }

    /// A part of the packed area at the indices of a parameter.
    fn packed_view(&mut self, part: Part, indices: &[Value]) -> View {
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

    /// The same window of the packed area, if it is one of joined parameters.
    pub(super) fn joined_in_memory(&mut self, window: &View) -> Result<Option<View>, String> {
        let Some(Join { axis, parts }) = self.joins.get(&window.root).cloned() else { return Ok(None) };
        let lost = "joined parameters without a place";
        let (params, indices) = self.parameters(&parts).ok_or(lost)?;
        let windows: Vec<(&ParamDecl, View)> = params.iter().zip(parts).collect();
        let part = self.shared.packing.join(&windows, axis).ok_or(lost)?;
        let base = self.packed_view(part, &indices);
        let dynamic = [base.dynamic, window.dynamic.clone()].concat();
        Ok(Some(View { root: base.root, dynamic, ..window.clone() }))
    }

    /// The launches of a product: one, or, where its right operand is joined of windows whose panels cannot follow each
    /// other, one for each window, with its columns of what else there is.
    pub(super) fn pieces(&self, body: &Function, operands: Vec<Operand>, to: &View) -> Vec<(Vec<Operand>, View)> {
        match self.cut(body, &operands, to) {
            Some(pieces) => pieces,
            None => vec![(operands, to.clone())],
        }
    }

    fn cut(&self, body: &Function, operands: &[Operand], to: &View) -> Option<Vec<(Vec<Operand>, View)>> {
        let (_, _, product) = body.insts().find(|(_, _, d)| d.op == Op::Matmul)?;
        let [left, right] = product.operands.as_slice() else { return None };
        let argument = |v: &Value| body.block(body.entry()).args.iter().position(|x| x == v);
        let (left, right) = (argument(left)?, argument(right)?);
        let windows = self.columns(operands.get(right)?.view()?)?;
        let width = |v: &View| v.shape.last().and_then(Dim::as_const);
        let panel = self.target.columns;
        let (_, first) = windows.split_last()?;
        // Those that stay as they are have panels of their own.
        let mut formats =
            windows.iter().filter_map(|w| self.parameter(w)).map(|(name, _)| self.shared.packing.choice.of(name));
        let format = formats.next();
        let alike = formats.all(|other| Some(other) == format);
        // The operands of the product, where something else reads them too, stay whole.
        let uses = body.uses();
        let alone = [left, right].iter().all(|i| {
            let arg = body.block(body.entry()).args.get(*i);
            arg.is_some_and(|v| matches!(uses[*v].as_slice(), [Use::Operand(..)]))
        });
        let aligned = first.iter().all(|w| width(w).is_some_and(|n| n % panel == 0));
        if aligned && alike || counts_along_axes(body) || !alone {
            return None;
        }
        let all = to.shape.last()?;
        let last = to.shape.len().checked_sub(1)?;
        let (mut pieces, mut start) = (Vec::new(), Dim::zero());
        for window in windows {
            let stop = start.add(window.shape.last()?);
            let own = |(i, o): (usize, &Operand)| match o {
                _ if i == right => Operand::View(window.clone()),
                Operand::View(v) if i != left && v.shape.last() == Some(all) => {
                    Operand::View(v.slice(v.shape.len() - 1, &start, &stop))
                }
                Operand::View(_) | Operand::Literal(_) | Operand::Dim(_) => o.clone(),
            };
            let operands: Vec<Operand> = operands.iter().enumerate().map(own).collect();
            pieces.push((operands, to.slice(last, &start, &stop)));
            start = stop;
        }
        Some(pieces)
    }
}
