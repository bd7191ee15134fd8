//! fuse-chain: a matmul of a formula over the results of other matmuls becomes one kernel, which
//! computes the formula tile by tile: the gradient of attention.
//!
//! ```text
//! func @f(%0 "q": f32[S, 64], %1 "k": f32[64, S], %2 "g": f32[S, 64]) -> (f32[S, 64]) {
//! ^bb0:
//!   %3 = matmul %0, %1                    : f32[S, S]
//!   %4 = tanh %3                          : f32[S, S]
//!   %5 = transpose %4, perm=[1, 0]        : f32[S, S]
//!   %6 = matmul %5, %2                    : f32[S, 64]
//!   return %6
//! }
//! ->
//! func @f(%0 "q": f32[S, 64], %1 "k": f32[64, S], %2 "g": f32[S, 64]) -> (f32[S, 64]) {
//! ^bb0:
//!   %3 = fused chain(%4 = %0, %5 = %1, %6 = %2) : f32[S, 64] {
//!     %7 = matmul %4, %5                  : f32[S, S]
//!     %8 = tanh %7                        : f32[S, S]
//!     %9 = transpose %8, perm=[1, 0]      : f32[S, S]
//!     %10 = matmul %9, %6                 : f32[S, 64]
//!     yield %10
//!   }
//!   return %3
//! }
//! ```
//!
//! # Attention backward
//!
//! With the scores `s = q @ k.T` after scale and masks, the weights `p = softmax(s)`, and the
//! gradient `do` of the output, `differentiate` writes
//!
//! ```text
//! dv = p.T @ do     dp = do @ v.T     ds = p * (dp - d)     dq = ds @ k     dk = ds.T @ q
//! ```
//!
//! where `d` has one number for each row (`rules`). `p` and `ds` are formulas over tiles of the
//! scores and of `dp`, so `dv`, `dq` and `dk` are three chains, each of which computes the tiles
//! again (Dao et al. 2022, arXiv:2205.14135, algorithm 4). Nothing here knows of attention: a mask,
//! a bias, a cap or dropout is a part of the formula.
//!
//! A softmax in a formula becomes `exp(s - m) * c` with the maximum `m` of each row and the inverse
//! `c` of its sum, two chains that end with a reduction. (One number for both, `m + log(sum)`,
//! would lose the sum where all scores are -1e9.) In a row that is all `-inf`, `m` and `c` are 0,
//! so the weights are 0, as the softmax has them.
//!
//! # Conditions
//!
//! All are proved, or a remark names the one that fails.
//!
//! * `chain`: the formula is made of matmuls, of elementwise operations and softmaxes over the last
//!   axis, all of the same shape, in one block. Smaller values and views are operands. The formula
//!   is transposed, or the right operand, or has several matmuls: any other is attention
//!   (`fuse-attention`), or a product that is stored only once.
//! * `uses`: no tensor of that shape is used otherwise. A forward attention may share them: it is
//!   fused too, and computes its own.
//! * `size`: the matmuls contract at most 256 elements, a constant number, and the result is at
//!   most 256 wide; there are at most three of them. The axis that is summed over is longer than
//!   four times what a matmul contracts, or not constant. So computing an element again costs less
//!   than reading it from memory.
//! * A matrix that is a parameter stays a matmul of its own, whose operand is packed.
//! * `float`: not under `strict`, because blocks are summed.
//!
//! # Error
//!
//! The operations are the program's own, in `f32` between the rounding of each to its type, except
//! that a weight is multiplied by an inverse instead of divided: one more rounding, `2^-24`. Sums
//! of T terms add at most `(C + T / C) 2^-24` times the sum of magnitudes, with blocks of C.
//!
//! # Limits
//!
//! `dk` and `dv` are two kernels, and `m` and `c` are computed again in the backward pass.

use std::collections::BTreeSet;

use super::outline::{Index, MAX_OPERANDS, MAX_OPERATIONS, Scene, names, outline};
use super::rewrite::{Cursor, made_by, remove_unused, swap_last};
use super::{Changed, Condition, Context, Float};
use crate::ir::chain::{Chain, WIDEST, is_reduced};
use crate::ir::{Block, Class, Function, FusionKind, Inst, Loc, Op, Scalar, Use, Value};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem};

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    if ctx.float == Float::Strict {
        return Changed::from(false);
    }
    let (mut fused, mut opened) = (0, false);
    let mut index = Index::new(f);
    for block in f.layout.clone() {
        let insts = index.enter(f, block);
        let (mut chains, stored) = Search::new(Scene::new(f, &index), &insts, Vec::new()).run();
        for (value, user) in stored {
            let loc = f.definition(value).map(|(_, d)| d.loc).unwrap_or_default();
            let text = format!("{} is used by other operations, so it is stored", f.ty(value));
            ctx.missed(f, loc, Condition::Uses, text, vec![(user, "used here".to_string())]);
        }
        // An error of a rule means that the rewrite does not fit.
        let Ok(reductions) = open_softmaxes(f, block, &chains) else { continue };
        if !reductions.is_empty() {
            opened = true;
            index = Index::new(f);
            let insts = index.enter(f, block);
            (chains, _) = Search::new(Scene::new(f, &index), &insts, reductions).run();
        }
        for chain in &chains {
            fused += usize::from(fuse(f, ctx, &mut index, chain));
        }
    }
    if fused > 0 {
        remove_unused(f);
    }
    ctx.count("chains fused", fused);
    Changed::from(fused > 0 || opened)
}

/// A root, and the operations of its formula, in order.
struct Candidate {
    root: Inst,
    members: Vec<Inst>,
}

fn fuse(f: &mut Function, ctx: &mut Context, index: &mut Index, chain: &Candidate) -> bool {
    let members = [chain.members.as_slice(), &[chain.root]].concat();
    if !Scene::new(f, index).fits(&members) {
        let text = format!("more than {MAX_OPERATIONS} operations, or {MAX_OPERANDS} operands");
        ctx.missed(f, f.inst(chain.root).loc, Condition::Size, text, Vec::new());
        return false;
    }
    let before = f.inst(chain.root).clone();
    let text = format!("one kernel, whose tiles are not stored: {}", names(f, &members));
    let is_matmul = |i: &&Inst| f.inst(**i).op == Op::Matmul;
    let kept: Vec<Value> = members.iter().filter(is_matmul).flat_map(|i| f.inst(*i).operands.clone()).collect();
    outline(f, index, &members, FusionKind::Chain, &kept);
    let read = match &f.inst(chain.root).op {
        Op::Fused { body, .. } => Chain::read(body).err(),
        _ => Some("not a region".to_string()),
    };
    let loc = before.loc;
    match read {
        None => ctx.done(f, loc, text),
        Some(why) => {
            *f.inst_mut(chain.root) = before;
            ctx.missed(f, loc, Condition::Chain, why, Vec::new());
            return false;
        }
    }
    true
}

/// A value that is stored, and the location of a use that needs it.
type Stored = (Value, Loc);

/// The chains of a block.
struct Search<'a> {
    scene: Scene<'a>,
    /// The instructions of the block.
    insts: &'a [Inst],
    /// Reductions of the softmaxes that chains contain.
    reductions: Vec<Inst>,
    chains: Vec<Candidate>,
    /// Formulas of forward attention.
    attentions: Vec<Candidate>,
    /// Values that operations outside of chains use.
    stored: Vec<Stored>,
}

impl<'a> Search<'a> {
    fn new(scene: Scene<'a>, insts: &'a [Inst], reductions: Vec<Inst>) -> Search<'a> {
        Search { scene, insts, reductions, chains: Vec::new(), attentions: Vec::new(), stored: Vec::new() }
    }

    /// Finds chains, until what they compute is used by chains alone, or stored.
    fn run(mut self) -> (Vec<Candidate>, Vec<Stored>) {
        loop {
            self.chains.clear();
            self.attentions.clear();
            for i in self.insts {
                self.look(*i);
            }
            let all = || self.chains.iter().chain(&self.attentions);
            let inside: BTreeSet<Inst> = all().flat_map(|c| c.members.iter().copied().chain([c.root])).collect();
            let escapes = |v: Value| {
                self.scene.uses(v).iter().find_map(|u| match u {
                    Use::Operand(i, _) if inside.contains(i) => None,
                    Use::Operand(i, _) => Some((v, self.scene.f.inst(*i).loc)),
                    Use::Terminator(_) => Some((v, Loc::default())),
                })
            };
            let members: BTreeSet<Inst> = self.chains.iter().flat_map(|c| c.members.iter().copied()).collect();
            let results = members.iter().filter_map(|i| self.scene.f.inst(*i).result);
            let more: Vec<_> = results.filter_map(escapes).filter(|(v, _)| !self.is_stored(*v)).collect();
            if more.is_empty() {
                return (self.chains, self.stored);
            }
            self.stored.extend(more);
        }
    }

    fn is_stored(&self, v: Value) -> bool {
        self.stored.iter().any(|(s, _)| *s == v)
    }

    /// The chain, or the attention, that ends with an instruction.
    fn look(&mut self, root: Inst) {
        let f = self.scene.f;
        let d = f.inst(root);
        match (&d.op, d.operands.as_slice()) {
            (Op::Matmul, [a, b]) => {
                for (side, is_left) in [(*a, true), (*b, false)] {
                    let turned = made_by(f, side).filter(|(i, op, _)| {
                        self.is_here(*i) && matches!(op, Op::Transpose { perm } if *perm == swap_last(perm.len()))
                    });
                    let formula = turned.and_then(|(_, _, x)| x.first().copied()).unwrap_or(side);
                    let Some((members, matmuls)) = self.formula(formula) else { continue };
                    let sums_over_rows = is_left == turned.is_some();
                    let members = members.into_iter().chain(turned.map(|(i, ..)| i)).collect();
                    let found = Candidate { root, members };
                    if sums_over_rows || matmuls > 1 {
                        self.chains.push(found);
                    } else if self.is_softmax(formula) {
                        self.attentions.push(found);
                    }
                    return;
                }
            }
            (Op::Reduce { kind, axes, keep: true }, [x]) if is_reduced(*kind) => {
                let is_last = f.tensor(*x).is_some_and(|t| axes.as_slice() == [t.rank() - 1]);
                if let Some((members, matmuls)) = self.formula(*x).filter(|_| is_last)
                    && (matmuls > 1 || self.reductions.contains(&root))
                {
                    self.chains.push(Candidate { root, members });
                }
            }
            _ => {}
        }
    }

    fn is_here(&self, i: Inst) -> bool {
        self.scene.position(i).is_some()
    }

    /// Is it a softmax, perhaps cast?
    fn is_softmax(&self, v: Value) -> bool {
        match made_by(self.scene.f, v) {
            Some((_, Op::Softmax { .. }, _)) => true,
            Some((_, Op::Cast { .. }, [x])) => self.is_softmax(*x),
            _ => false,
        }
    }

    /// The operations that compute a formula, in order, and the number of matmuls among them.
    fn formula(&self, v: Value) -> Option<(Vec<Inst>, usize)> {
        let f = self.scene.f;
        let space = &f.tensor(v)?.shape;
        let (mut found, mut work) = (BTreeSet::new(), vec![v]);
        let mut matmuls = 0;
        while let Some(v) = work.pop() {
            let Some((i, op, operands)) = made_by(f, v) else { continue };
            let is_whole = f.tensor(v).is_some_and(|t| t.shape == *space);
            if found.contains(&i) || !is_whole || self.is_stored(v) || !self.is_here(i) {
                continue;
            }
            let joins = match op {
                Op::Matmul if self.is_cheap(operands, space) => {
                    matmuls += 1;
                    found.insert(i);
                    continue;
                }
                Op::Softmax { axis } => axis + 1 == space.len(),
                op => op.info().class == Class::Elementwise,
            };
            if joins {
                found.insert(i);
                work.extend(operands);
            }
        }
        let mut members: Vec<Inst> = found.into_iter().collect();
        members.sort_by_key(|i| self.scene.position(*i));
        (matmuls > 0).then_some((members, matmuls))
    }

    /// Does computing an element of a product again cost less than reading it?
    fn is_cheap(&self, operands: &[Value], space: &[Dim]) -> bool {
        let f = self.scene.f;
        let steps = operands.first().and_then(|a| f.tensor(*a)?.shape.last()?.as_const());
        let Some(steps) = steps.filter(|n| (1..=WIDEST).contains(n)) else { return false };
        let is_long = |d: &Dim| d.as_const().is_none_or(|n| n > 4 * steps);
        let floats = |v: &Value| f.tensor(*v).is_some_and(|t| t.elem.is_float());
        let last = space.get(space.len().saturating_sub(2)..).unwrap_or_default();
        last.iter().all(is_long) && operands.iter().all(floats) && !operands.iter().any(|v| is_parameter(f, *v))
    }
}

/// Is a value a parameter or a state of the model, or a view of one?
fn is_parameter(f: &Function, mut v: Value) -> bool {
    while let Some((_, op, operands)) = made_by(f, v) {
        match (op, operands.first()) {
            (Op::Param { .. } | Op::State { .. }, _) => return true,
            (op, Some(x)) if op.info().class == Class::Movement => v = *x,
            _ => return false,
        }
    }
    false
}

/// Replaces the softmaxes that chains read by `exp(s - m) * c`, for the chains alone. Returns the
/// reductions.
fn open_softmaxes(f: &mut Function, block: Block, chains: &[Candidate]) -> Result<Vec<Inst>, String> {
    let users: BTreeSet<Inst> = chains.iter().flat_map(|c| c.members.iter().copied().chain([c.root])).collect();
    let softmaxes: BTreeSet<Inst> =
        users.iter().filter(|i| matches!(f.inst(**i).op, Op::Softmax { .. })).copied().collect();
    let mut reductions = Vec::new();
    for i in softmaxes {
        let d = f.inst(i).clone();
        let (Op::Softmax { axis }, Some(y), [x]) = (&d.op, d.result, d.operands.as_slice()) else { continue };
        let elem = f.tensor(y).map_or(Elem::F32, |t| t.elem);
        let at = Cursor::before(f, block, i);
        let as_type = |f: &mut Function, v: Value, elem: Elem| match f.tensor(v).cloned() {
            Some(t) if t.elem != elem => at.insert_as(f, Op::Cast { elem }, vec![v], Some(t.with_elem(elem))),
            _ => Ok(v),
        };
        let over = |kind| Op::Reduce { kind, axes: vec![*axis], keep: true };
        let number = |f: &mut Function, x: f64| at.constant(f, Scalar::Float(x), Elem::F32);
        let (bottom, zero, one) = (number(f, f64::NEG_INFINITY)?, number(f, 0.0)?, number(f, 1.0)?);
        let scores = as_type(f, *x, Elem::F32)?;
        let greatest = at.insert(f, over(ReduceKind::Max), vec![scores])?;
        let hidden = at.insert(f, Op::Compare(CmpOp::Eq), vec![greatest, bottom])?;
        let m = at.insert(f, Op::Where, vec![hidden, zero, greatest])?;
        let below = at.insert(f, Op::Binary(BinaryOp::Sub), vec![scores, m])?;
        let powers = at.insert(f, Op::Unary(UnaryOp::Exp), vec![below])?;
        let sum = at.insert(f, over(ReduceKind::Sum), vec![powers])?;
        let inverse = at.insert(f, Op::Binary(BinaryOp::Div), vec![one, sum])?;
        let c = at.insert(f, Op::Where, vec![hidden, zero, inverse])?;
        let weights = at.insert(f, Op::Binary(BinaryOp::Mul), vec![powers, c])?;
        let weights = as_type(f, weights, elem)?;
        reductions.extend([greatest, sum].iter().filter_map(|v| f.definition(*v).map(|(i, _)| i)));
        for user in &users {
            for v in &mut f.inst_mut(*user).operands {
                if *v == y {
                    *v = weights;
                }
            }
        }
    }
    if !reductions.is_empty() {
        // A softmax that only chains read is not a use of the scores.
        remove_unused(f);
    }
    Ok(reductions)
}
