//! The weights of attention: softmaxes that a matmul averages values with.
//!
//! In: a function. Out: which softmaxes and scores these are, and for each row of weights, the sum
//! that its gradient needs. It does not know how attention is fused.
//!
//! The gradient of a softmax `p` needs `sum(dp * p)` along each row. Where `p` is used once, in `o
//! = p @ v`, with `dp = do @ v.T`, that is `sum(do * o)`: as long as a row of the values instead of
//! one of the weights (Dao et al. 2022, arXiv:2205.14135, section 3.1 and appendix B.2).

use std::collections::{BTreeMap, BTreeSet};

use super::Res;
use super::emit::Emitter;
use crate::ir::{Class, Function, Inst, Op, Use, Value};
use crate::scalar::BinaryOp;
use crate::shape::Elem;

/// The weights of a function.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// Each softmax, by the matmul that alone uses it.
    averaged: BTreeMap<Inst, Value>,
    /// The sums of rows, by the softmax.
    sums: BTreeMap<Value, Value>,
    /// The matmuls whose results are scores.
    scores: BTreeSet<Inst>,
}

impl Weights {
    pub(super) fn of_attention(f: &Function) -> Weights {
        let uses = f.uses();
        let mut found = Weights::default();
        for (block, i, d) in f.insts() {
            let (Op::Softmax { axis }, Some(y), Some(x)) = (&d.op, d.result, d.operands.first()) else { continue };
            // A tap is not a use: with one, the gradient is computed as without.
            let is_tap = |u: &&Use| matches!(u, Use::Operand(i, _) if matches!(f.inst(*i).op, Op::Tap { .. }));
            let users: Vec<&Use> = uses[y].iter().filter(|u| !is_tap(u)).collect();
            let [Use::Operand(user, 0)] = users.as_slice() else { continue };
            let shape = |v: Option<Value>| v.and_then(|v| f.tensor(v)).map(|t| t.shape.clone()).unwrap_or_default();
            let (own, of_user) = (shape(Some(y)), shape(f.inst(*user).result));
            let is_product = f.inst(*user).op == Op::Matmul && f.block_of(*user) == Some(block);
            if axis + 1 != own.len()
                || !is_product
                || own.split_last().map(|s| s.1) != of_user.split_last().map(|s| s.1)
            {
                continue;
            }
            found.averaged.insert(*user, y);
            found.trace(f, *x, i);
        }
        found
    }

    /// Notes the matmuls that the scores are computed from by elementwise operations.
    fn trace(&mut self, f: &Function, scores: Value, softmax: Inst) {
        let (mut work, mut seen) = (vec![scores], BTreeSet::from([softmax]));
        while let Some(v) = work.pop() {
            let Some((i, d)) = f.definition(v) else { continue };
            if !seen.insert(i) {
                continue;
            }
            match d.op.info().class {
                Class::Elementwise => work.extend(&d.operands),
                _ if d.op == Op::Matmul => _ = self.scores.insert(i),
                _ => {}
            }
        }
    }

    /// Are the results of a matmul scores? They are computed again rather than kept: there are more
    /// of them than of queries and keys.
    pub(super) fn are_scores(&self, i: Inst) -> bool {
        self.scores.contains(&i)
    }

    /// Computes the sums of the rows of weights, before the gradient of the matmul that uses them.
    pub(super) fn sum_rows(&mut self, e: &mut Emitter<'_>, matmul: Inst, result: Value, gradient: Value) -> Res<()> {
        let Some(weights) = self.averaged.get(&matmul) else { return Ok(()) };
        let (y, g) = (e.cast(result, Elem::F32)?, e.cast(gradient, Elem::F32)?);
        let product = e.binary(BinaryOp::Mul, g, y)?;
        let last = e.ty(product)?.rank() - 1;
        let sums = e.sum(product, vec![last], true)?;
        self.sums.insert(*weights, sums);
        Ok(())
    }

    /// The sums of the rows of a softmax.
    pub(super) fn take_sums(&mut self, softmax: Value) -> Option<Value> {
        self.sums.remove(&softmax)
    }
}
