//! `einsum` as transposes, reshapes, and a matmul or a product.
//!
//! Operands are combined pairwise from the left. An axis that only one of the two has, and that is
//! not needed later, is summed immediately; axes of both that are needed later become batch axes;
//! the others are contracted.
//!
//! ```text
//! einsum("h s d, h t d -> h s t", q, k)   =>   matmul q, transpose(k, [0, 2, 1])
//! einsum("i, j -> i j", a, b)             =>   mul reshape(a, [I, 1]), reshape(b, [1, J])
//! ```

use super::Res;
use super::builder::Builder;
use crate::ir::{Op, Value};
use crate::scalar::{BinaryOp, ReduceKind};
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::types::pattern::{Atom, Einsum, Item, Side};

/// An axis: a name of the pattern, or one of the axes of `..` (counted from the last).
#[derive(Clone, PartialEq, Eq, Debug)]
enum Label {
    Rest(usize),
    Name(String),
}

/// A tensor with the label of each axis.
#[derive(Clone)]
struct Operand {
    value: Value,
    labels: Vec<Label>,
}

impl Builder<'_> {
    /// The value of an `einsum` with elements of `elem`.
    pub(super) fn einsum(&mut self, pattern: &Einsum, operands: Vec<Value>, elem: Elem, span: Span) -> Res<Value> {
        if pattern.inputs.len() != operands.len() || operands.is_empty() {
            return Err(self.bug(span, "einsum has not as many operands as its pattern"));
        }
        let mut rest = 0;
        let mut labelled = Vec::new();
        for (side, value) in pattern.inputs.iter().zip(operands) {
            let rank = self.tensor(value, span)?.rank();
            let own_rest = if side.contains(&Item::Rest) { (rank + 1).saturating_sub(side.len()) } else { 0 };
            rest = rest.max(own_rest);
            let labels = labels(side, own_rest);
            if labels.len() != rank {
                return Err(self.bug(span, "einsum has an operand of another rank than its pattern"));
            }
            labelled.push(Operand { value, labels });
        }
        let output = labels(&pattern.output, rest);
        let mut operands = labelled.into_iter();
        let Some(mut joined) = operands.next() else { return Err(self.bug(span, "einsum has no operands")) };
        let waiting: Vec<Operand> = operands.collect();
        for (i, right) in waiting.iter().enumerate() {
            let later = waiting.get(i + 1..).unwrap_or_default();
            let needed: Vec<Label> = output.iter().chain(later.iter().flat_map(|o| o.labels.iter())).cloned().collect();
            joined = self.join(joined, right.clone(), &needed, elem, span)?;
        }
        let joined = self.sum_others(joined, &[], &output, elem, span)?;
        let value = self.cast(joined.value, elem, span)?;
        let perm: Option<Vec<usize>> = output.iter().map(|l| joined.labels.iter().position(|o| o == l)).collect();
        match perm {
            Some(perm) if perm.len() == joined.labels.len() => self.transpose(value, perm, span),
            Some(_) | None => Err(self.bug(span, "einsum loses an axis")),
        }
    }

    /// Sums the axes that neither `other` nor the result needs.
    fn sum_others(&mut self, x: Operand, other: &[Label], needed: &[Label], elem: Elem, span: Span) -> Res<Operand> {
        let gone = |label: &Label| !other.contains(label) && !needed.contains(label);
        let axes: Vec<usize> = x.labels.iter().enumerate().filter(|(_, label)| gone(label)).map(|(i, _)| i).collect();
        if axes.is_empty() {
            return Ok(x);
        }
        let value = self.cast(x.value, elem, span)?;
        let value = self.emit(Op::Reduce { kind: ReduceKind::Sum, axes, keep: false }, vec![value], None, span)?;
        let labels = x.labels.into_iter().filter(|label| !gone(label)).collect();
        Ok(Operand { value, labels })
    }

    fn join(&mut self, a: Operand, b: Operand, needed: &[Label], elem: Elem, span: Span) -> Res<Operand> {
        let a = self.sum_others(a, &b.labels.clone(), needed, elem, span)?;
        let b = self.sum_others(b, &a.labels, needed, elem, span)?;
        let both: Vec<Label> = a.labels.iter().filter(|l| b.labels.contains(l)).cloned().collect();
        let (batch, contracted): (Vec<Label>, Vec<Label>) = both.into_iter().partition(|l| needed.contains(l));
        let only = |x: &Operand, y: &Operand| -> Vec<Label> {
            x.labels.iter().filter(|l| !y.labels.contains(l)).cloned().collect()
        };
        let (left, right) = (only(&a, &b), only(&b, &a));
        if contracted.is_empty() {
            let labels = batch.into_iter().chain(left).chain(right).collect();
            return self.product(a, b, labels, elem, span);
        }
        // Both as [batch.., rows, contracted] and [batch.., contracted, columns].
        let types = [self.tensor(a.value, span)?.elem, self.tensor(b.value, span)?.elem];
        let (mut av, mut bv) = (a.value, b.value);
        if types[0] != types[1] {
            (av, bv) = (self.cast(av, elem, span)?, self.cast(bv, elem, span)?);
        }
        let a = Operand { value: av, labels: a.labels };
        let b = Operand { value: bv, labels: b.labels };
        let (av, a_dims) = self.grouped(&a, [&batch, &left, &contracted], span)?;
        let (bv, b_dims) = self.grouped(&b, [&batch, &contracted, &right], span)?;
        let product = self.emit(Op::Matmul, vec![av, bv], None, span)?;
        let lead = self.tensor(product, span)?.shape.iter().take(batch.len()).cloned().collect::<Vec<_>>();
        let shape: Vec<Dim> = lead.into_iter().chain(a_dims[1].clone()).chain(b_dims[2].clone()).collect();
        let value = self.reshape(product, shape, span)?;
        let labels = batch.into_iter().chain(left).chain(right).collect();
        Ok(Operand { value, labels })
    }

    /// Transposes the axes into three groups and merges the last two groups to one axis each; also
    /// returns the extents of each group.
    fn grouped(&mut self, x: &Operand, groups: [&Vec<Label>; 3], span: Span) -> Res<(Value, [Vec<Dim>; 3])> {
        let shape = self.tensor(x.value, span)?.shape;
        let mut perm = Vec::new();
        let mut extents: [Vec<Dim>; 3] = Default::default();
        for (group, extents) in groups.into_iter().zip(&mut extents) {
            for label in group {
                let Some(at) = x.labels.iter().position(|l| l == label) else {
                    return Err(self.bug(span, "einsum misses an axis"));
                };
                perm.push(at);
                extents.extend(shape.get(at).cloned());
            }
        }
        let value = self.transpose(x.value, perm, span)?;
        let mut joined = extents[0].clone();
        joined.push(Dim::product(&extents[1]));
        joined.push(Dim::product(&extents[2]));
        Ok((self.reshape(value, joined, span)?, extents))
    }

    /// No contraction: an elementwise multiplication, with an axis of extent 1 for every label that
    /// an operand lacks.
    fn product(&mut self, a: Operand, b: Operand, labels: Vec<Label>, elem: Elem, span: Span) -> Res<Operand> {
        let mut values = Vec::new();
        for x in [a, b] {
            let value = self.cast(x.value, elem, span)?;
            let shape = self.tensor(value, span)?.shape;
            let places: Vec<Option<usize>> =
                labels.iter().map(|label| x.labels.iter().position(|l| l == label)).collect();
            let value = self.transpose(value, places.iter().flatten().copied().collect(), span)?;
            let shape =
                places.iter().map(|at| at.and_then(|at| shape.get(at).cloned()).unwrap_or(Dim::one())).collect();
            values.push(self.reshape(value, shape, span)?);
        }
        let value = self.emit(Op::Binary(BinaryOp::Mul), values, None, span)?;
        Ok(Operand { value, labels })
    }
}

fn labels(side: &Side, rest: usize) -> Vec<Label> {
    let mut out = Vec::new();
    for item in side {
        match item {
            Item::Rest => out.extend((0..rest).rev().map(Label::Rest)),
            Item::Axis(atoms) => out.extend(atoms.iter().filter_map(|atom| match atom {
                Atom::Name(name) => Some(Label::Name(name.clone())),
                Atom::One => None,
            })),
        }
    }
    out
}
