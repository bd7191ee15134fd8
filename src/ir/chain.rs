//! The structure of a `chain` region: a formula over the results of matmuls, of which one matmul or
//! one reduction is taken.
//!
//! In: the body of a region. Out: its parts, or the reason why it is not a chain. The verifier, the
//! pass that makes such regions and lowering read them here; how a chain is computed is lowering's.
//!
//! ```text
//! fused chain(%q, %k, %v) {
//!   %s = matmul %q, %k      : f32[S, T]       matmuls of arguments
//!   %p = exp %s             : f32[S, T]       elementwise operations: the formula
//!   %y = matmul %p, %v      : f32[S, 64]      the root
//!   yield %y
//! }
//! ```

use super::{Class, Function, Inst, Op, Terminator, Value, ValueDef};
use crate::scalar::ReduceKind;
use crate::shape::{Dim, broadcast};

/// The largest extent of the axes that a chain keeps whole: the ones that its matmuls contract, and
/// the width of its result.
pub const WIDEST: i64 = 256;

/// The last operation of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// A matmul with another operand, an argument.
    Matmul {
        /// The other operand.
        other: Value,
        /// Is the formula the left operand?
        is_left: bool,
    },
    /// A reduction along the last axis, which is kept with extent 1.
    Reduce(ReduceKind),
}

/// The most matmuls that a formula reads: a kernel has a tile of each.
pub const MOST_MATMULS: usize = 3;

/// The parts of a chain.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The matmuls that the formula reads.
    pub matmuls: Vec<Inst>,
    /// The tensor `[.., X, Y]` that is not stored.
    pub formula: Value,
    /// Does the result go along the last axis of the formula, and the sums along the one before?
    pub sums_over_rows: bool,
    /// The last operation.
    pub root: Root,
}

impl Chain {
    /// The parts of a region.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn read(body: &Function) -> Result<Chain, String> {
        let entry = body.block(body.entry());
        let Terminator::Return(results) = &entry.terminator else { return Err("a region returns".into()) };
        let root = results.first().and_then(|v| body.definition(*v));
        let (at, root) = root.ok_or("a chain ends with a matmul or a reduction")?;
        let is_argument = |v: Value| matches!(body.def(v), ValueDef::Arg(..));
        let (kind, formula, sums_over_rows) = match (&root.op, root.operands.as_slice()) {
            (Op::Matmul, [a, b]) => {
                let (f, other, is_left) = match (is_argument(*a), is_argument(*b)) {
                    (false, true) => (*a, *b, true),
                    (true, false) => (*b, *a, false),
                    _ => return Err("one operand of the last matmul is an argument, the other is computed".into()),
                };
                let turned = body.definition(f).filter(|(_, d)| matches!(d.op, Op::Transpose { .. }));
                let formula = turned.and_then(|(_, d)| d.operands.first().copied()).unwrap_or(f);
                (Root::Matmul { other, is_left }, formula, is_left == turned.is_some())
            }
            (Op::Reduce { kind, axes, keep: true }, [x]) if is_last(body, *x, axes) && is_reduced(*kind) => {
                (Root::Reduce(*kind), *x, false)
            }
            _ => return Err(format!("a chain cannot end with `{}`", root.op)),
        };
        if is_argument(formula) {
            return Err("a chain has a formula".into());
        }
        let space = body.tensor(formula).filter(|t| t.rank() >= 2).ok_or("a formula has two axes")?;
        let mut matmuls = Vec::new();
        for i in entry.insts.iter().filter(|i| **i != at) {
            let d = body.inst(*i);
            let shape = d.result.and_then(|v| body.tensor(v)).map(|t| t.shape.as_slice()).unwrap_or_default();
            match &d.op {
                Op::Matmul => {
                    if !d.operands.iter().all(|v| is_argument(*v)) || shape != space.shape {
                        return Err("matmuls before the last are of arguments, in the formula's shape".into());
                    }
                    matmuls.push(*i);
                }
                Op::Transpose { perm } => {
                    let swapped = match perm.split_last_chunk::<2>() {
                        Some((lead, [a, b])) => lead.is_sorted() && *a == *b + 1 && *b == lead.len(),
                        None => false,
                    };
                    let uses = |user: &super::InstData| user.operands.iter().any(|x| Some(*x) == d.result);
                    let users = || body.insts().filter(|(_, _, user)| uses(user)).map(|(_, i, _)| i);
                    if !swapped || !users().eq([at]) || d.operands != [formula] {
                        return Err("only the formula is transposed, for the last matmul".into());
                    }
                }
                op if op.info().class == Class::Elementwise || op.is_copied() => {
                    if broadcast(shape, &space.shape).ok().as_deref() != Some(space.shape.as_slice()) {
                        return Err(format!("`{op}` does not fit the formula's shape"));
                    }
                }
                op => return Err(format!("`{op}` is not part of a formula")),
            }
        }
        if matmuls.is_empty() || matmuls.len() > MOST_MATMULS {
            return Err(format!("a formula reads from 1 to {MOST_MATMULS} matmuls, not {}", matmuls.len()));
        }
        let chain = Chain { matmuls, formula, sums_over_rows, root: kind };
        chain.fits(body).map(|()| chain)
    }

    /// Do the extents and types of its matmuls permit one kernel?
    fn fits(&self, body: &Function) -> Result<(), String> {
        let shape = |v: Value| body.tensor(v).map(|t| t.shape.clone()).unwrap_or_default();
        let is_whole = |d: Option<&Dim>| d.and_then(Dim::as_const).is_some_and(|n| (1..=WIDEST).contains(&n));
        let (space, rank) = (shape(self.formula), shape(self.formula).len());
        let mut all = vec![self.formula];
        for i in &self.matmuls {
            let d = body.inst(*i);
            all.extend(&d.operands);
            if !is_whole(d.operands.first().map(|v| shape(*v)).unwrap_or_default().last()) {
                return Err(format!(
                    "a matmul contracts more than {WIDEST} elements, or a number that is not constant"
                ));
            }
        }
        if let Root::Matmul { other, is_left } = self.root {
            all.push(other);
            let of_other = shape(other);
            let width = if is_left { of_other.last() } else { of_other.get(of_other.len().wrapping_sub(2)) };
            if !is_whole(width) {
                return Err(format!("the result is wider than {WIDEST} elements, or its width is not constant"));
            }
            let lead = of_other.get(..of_other.len().saturating_sub(2)).unwrap_or_default();
            let own = &space[..rank - 2];
            if broadcast(lead, own).ok().as_deref() != Some(own) {
                return Err("the last matmul has the leading axes of the formula".into());
            }
        }
        if !all.iter().all(|v| body.tensor(*v).is_some_and(|t| t.elem.is_float())) {
            return Err("its matmuls are of floats".into());
        }
        Ok(())
    }
}

fn is_last(body: &Function, x: Value, axes: &[usize]) -> bool {
    matches!((axes, body.tensor(x)), ([axis], Some(t)) if axis + 1 == t.rank())
}

/// Can a chain end with this reduction?
pub fn is_reduced(kind: ReduceKind) -> bool {
    matches!(kind, ReduceKind::Sum | ReduceKind::Max)
}
