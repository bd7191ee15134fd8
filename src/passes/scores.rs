//! Matches attention: from a softmax down to `q @ k.T`, and up to `weights @ v`.
//!
//! In: a function and one of its softmaxes. Out: a [`Site`], the whole chain, for which every
//! condition of the fusion is proved except canonical form (one scale, next to the matmul; masks
//! that keep); or a [`Mismatch`] that names the condition that fails and its location. The
//! canonicalising passes bring sites to canonical form, `fuse-attention` fuses them. Nothing is
//! rewritten here.
//!
//! ```text
//! q @ k.T        the matmul of a site
//!   * c  / c     steps: scales (by one number), masks (where with one fill; what is added or subtracted), `tanh`,
//!   where + -           casts to f32, in any order, each the only user of the one before
//!   concat       a sink: a column more, before or after the scores
//! softmax        over the last axis
//!   slice        without the sink's column; casts to any type of floats before and after it
//!   @ v          the matmul that ends it
//! ```

use cranelift_entity::SecondaryMap;

use super::rewrite::{Uses, is_scalar, made_by, remove_unused};
use super::{Changed, Condition, Context, Edit};
use crate::ir::{Block, Function, Inst, Loc, Op, Use, Value};
use crate::scalar::{BinaryOp, UnaryOp};
use crate::shape::{Dim, Elem};

/// The maximum number of operations in a chain: a longer chain is not attention, and the search
/// must end soon.
const LONGEST_CHAIN: usize = 32;

/// The effect of one operation on the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Multiplies or divides by one number.
    Scale { by: Value, divide: bool },
    /// Keeps the score where `condition` equals `keep`, else substitutes the fill.
    Select { condition: Value, fill: Value, keep: bool },
    /// Adds or subtracts a mask.
    Add { mask: Value, subtract: bool },
    /// The hyperbolic tangent, part of a soft cap.
    Tanh,
    /// Converts to `f32`.
    Widen,
}

#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) block: Block,
    /// `q @ k.T`
    pub(super) scores: Inst,
    /// From the matmul up to the softmax: instruction, its operand that holds the scores, and
    /// effect.
    pub(super) steps: Vec<(Inst, Value, Step)>,
    /// The sink, if any, and the number of steps before it is joined.
    pub(super) sink: Option<(Sink, usize)>,
    pub(super) softmax: Inst,
    /// `weights @ v`
    pub(super) output: Inst,
}

/// An additional column of the scores, which takes part in the softmax and is dropped after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sink {
    /// The `concat` or `pad`.
    pub(super) join: Inst,
    /// The column, or the number that all its elements equal.
    pub(super) logit: Value,
}

/// The path from the softmax to the matmul that ends it.
struct Ending {
    output: Inst,
    /// Casts and slices in between.
    between: Vec<Inst>,
}

/// The reason why a softmax is not part of an attention that can be fused.
#[derive(Clone, Debug)]
pub(super) struct Mismatch {
    pub(super) condition: Condition,
    /// The location where the condition fails.
    pub(super) loc: Loc,
    pub(super) message: String,
    pub(super) notes: Vec<(Loc, String)>,
    /// Edits of the program after which it may hold.
    pub(super) edits: Vec<Edit>,
}

impl Mismatch {
    pub(super) fn new(condition: Condition, loc: Loc, message: impl Into<String>) -> Mismatch {
        Mismatch { condition, loc, message: message.into(), notes: Vec::new(), edits: Vec::new() }
    }

    fn with(self, edits: Vec<Edit>) -> Mismatch {
        Mismatch { edits, ..self }
    }
}

/// All softmaxes whose results reach a matmul, in order, each with the attention around it or the
/// reason why it does not match.
pub(super) fn sites(f: &Function) -> Vec<(Inst, Result<Site, Mismatch>)> {
    let finder = Finder::new(f);
    let softmaxes = f.insts().filter(|(_, _, d)| matches!(d.op, Op::Softmax { .. }));
    softmaxes.filter_map(|(_, i, _)| Some((i, finder.site(i)?))).collect()
}

/// The maximum number of rewrites at one site, each of which brings it closer to canonical form.
/// Guards against bugs.
const MAX_REWRITES: usize = 256;

/// Applies `rewrite` to every attention of a function until it makes no more changes; it makes one
/// rewrite at a time and returns its name. Sites share no instruction (each result in a site has a
/// single use), so a rewrite of one site does not invalidate the others.
pub(super) fn rewrite_sites(
    f: &mut Function,
    ctx: &mut Context,
    rewrite: impl Fn(&mut Function, &Site, &mut Context) -> Result<Option<&'static str>, String>,
) -> Changed {
    let mut changed = Changed::No;
    for _ in 0..MAX_REWRITES {
        let mut again = false;
        for site in sites(f).into_iter().filter_map(|(_, found)| found.ok()) {
            // An error of a rule means that the rewrite does not fit; the function is left
            // unchanged.
            if let Ok(Some(name)) = rewrite(f, &site, ctx) {
                ctx.count(name, 1);
                again = true;
            }
        }
        if !again {
            break;
        }
        remove_unused(f);
        changed = Changed::Yes;
    }
    changed
}

/// Precomputed uses and blocks, for all searches in a function.
struct Finder<'a> {
    f: &'a Function,
    uses: Uses,
    blocks: SecondaryMap<Inst, Option<Block>>,
}

impl<'a> Finder<'a> {
    fn new(f: &'a Function) -> Finder<'a> {
        let mut blocks: SecondaryMap<Inst, Option<Block>> = SecondaryMap::new();
        for (b, i, _) in f.insts() {
            blocks[i] = Some(b);
        }
        Finder { f, uses: f.uses(), blocks }
    }

    /// The attention around a softmax; `None` if the result of the softmax does not reach a matmul,
    /// so that nobody would call it attention.
    fn site(&self, softmax: Inst) -> Option<Result<Site, Mismatch>> {
        let weights = self.f.inst(softmax).result?;
        let ending = self.matmul_of(weights)?;
        Some(ending.and_then(|ending| self.below_softmax(softmax, &ending)))
    }

    fn loc(&self, i: Inst) -> Loc {
        self.f.inst(i).loc
    }

    /// The matmul whose left operand is the weights, or the reason why they have another use.
    fn matmul_of(&self, mut weights: Value) -> Option<Result<Ending, Mismatch>> {
        let mut between = Vec::new();
        loop {
            match self.after(weights)? {
                Ok(user) if self.f.inst(user).op == Op::Matmul => return Some(Ok(Ending { output: user, between })),
                Ok(user) => {
                    between.push(user);
                    weights = self.f.inst(user).result?;
                }
                Err(failure) => return Some(Err(failure)),
            }
        }
    }

    /// The user of the weights: the matmul whose left operand they are, or a step in between that
    /// leaves them weights.
    fn after(&self, weights: Value) -> Option<Result<Inst, Mismatch>> {
        let f = self.f;
        let users: Vec<Use> = self.uses[weights].clone();
        let matmul = users.iter().find_map(|u| match u {
            Use::Operand(i, 0) if f.inst(*i).op == Op::Matmul => Some(*i),
            _ => None,
        });
        let name = match made_by(f, weights) {
            Some((_, Op::Softmax { .. }, _)) | None => "the softmax's result".to_string(),
            Some((_, op, _)) => format!("the result of `{op}`"),
        };
        if let Some(output) = matmul {
            return Some(self.used_once(weights, &name).map(|()| output));
        }
        // A right operand, or a step between the softmax and a matmul: patterns that an author may
        // believe to be attention.
        let (between, at) = users.iter().find_map(|u| match u {
            Use::Operand(i, at) if self.leads_to_matmul(*i) => Some((*i, *at)),
            Use::Operand(..) | Use::Terminator(_) => None,
        })?;
        if let Err(failure) = self.used_once(weights, &name) {
            return Some(Err(failure));
        }
        let d = f.inst(between);
        let last = f.tensor(weights).map_or(0, |t| t.rank()).checked_sub(1);
        match d.op {
            Op::Cast { elem } if elem.is_float() => return Some(Ok(between)),
            Op::Slice { axis, .. } if Some(axis) == last => return Some(Ok(between)),
            _ => {}
        }
        if d.op == Op::Matmul && at == 1 {
            let text = "the weights are the right operand of the matmul; they must be the left one";
            return Some(Err(Mismatch::new(Condition::Transposition, d.loc, text)));
        }
        let condition = match d.op {
            Op::Cast { .. } => Condition::Types,
            Op::Transpose { .. } => Condition::Transposition,
            _ => Condition::Chain,
        };
        let text = format!("`{}` stands between the softmax and the matmul", d.op);
        Some(Err(Mismatch::new(condition, d.loc, text).with(self.scaled_later(between, weights))))
    }

    /// `(w * c) @ v` to `(w @ v) * c`, if the factor is one number; simplifications may have
    /// exchanged the operands of a multiplication.
    fn scaled_later(&self, scaled: Inst, weights: Value) -> Vec<Edit> {
        let d = self.f.inst(scaled);
        let sign = match d.op {
            Op::Binary(BinaryOp::Mul) => '*',
            Op::Binary(BinaryOp::Div) => '/',
            _ => return Vec::new(),
        };
        let is_number = d.operands.iter().all(|v| *v == weights || is_scalar(self.f, *v));
        let [Use::Operand(matmul, 0)] = d.result.map_or(&[][..], |v| &self.uses[v]) else { return Vec::new() };
        let order = |weights: usize| {
            let operands = [(scaled, weights), (*matmul, 1), (scaled, 1 - weights)];
            Edit::replace(self.f, *matmul, format!("({{0}} @ {{1}}) {sign} {{2}}"), &operands)
        };
        if is_number && self.f.inst(*matmul).op == Op::Matmul { vec![order(0), order(1)] } else { Vec::new() }
    }

    /// Is this a matmul, or the start of a chain that ends as the left operand of one?
    fn leads_to_matmul(&self, i: Inst) -> bool {
        let f = self.f;
        if f.inst(i).op == Op::Matmul {
            return true;
        }
        let mut step = i;
        for _ in 0..LONGEST_CHAIN {
            let d = f.inst(step);
            let elementwise = matches!(d.op, Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast { .. });
            let moves = matches!(d.op, Op::Transpose { .. } | Op::Reshape | Op::Broadcast | Op::Slice { .. });
            let Some(v) = d.result.filter(|_| elementwise || moves) else { return false };
            let is_left = |u: &Use| matches!(u, Use::Operand(i, 0) if f.inst(*i).op == Op::Matmul);
            match self.uses[v].as_slice() {
                users if users.iter().any(is_left) => return true,
                [Use::Operand(next, _)] => step = *next,
                _ => return false,
            }
        }
        false
    }

    /// A value that the fused kernel never stores must have no other use.
    fn used_once(&self, v: Value, what: &str) -> Result<(), Mismatch> {
        let users = &self.uses[v];
        if users.len() == 1 {
            return Ok(());
        }
        let f = self.f;
        let loc = f.definition(v).map(|(_, d)| d.loc).unwrap_or_default();
        let message = format!("{what} is used {} times; the fused kernel does not store it", users.len());
        let mut failure = Mismatch::new(Condition::Uses, loc, message);
        for user in users {
            let (loc, text) = match user {
                Use::Operand(i, _) => {
                    failure.edits.extend(self.without_tap(*i));
                    (self.loc(*i), format!("used here by `{}`", f.inst(*i).op))
                }
                Use::Terminator(_) => (Loc::default(), "used by the end of its block".to_string()),
            };
            failure.notes.push((loc, text));
        }
        Err(failure)
    }

    /// Removes the tap that an operation is for, if it is for nothing else.
    fn without_tap(&self, i: Inst) -> Option<Edit> {
        let mut i = i;
        for _ in 0..LONGEST_CHAIN {
            let d = self.f.inst(i);
            if matches!(d.op, Op::Tap { .. }) {
                return Some(Edit::Remove(d.loc));
            }
            let [Use::Operand(user, _)] = self.uses[d.result?].as_slice() else { return None };
            i = *user;
        }
        None
    }

    fn below_softmax(&self, softmax: Inst, ending: &Ending) -> Result<Site, Mismatch> {
        let f = self.f;
        let d = f.inst(softmax);
        let block = self.blocks[softmax];
        let (Some(block), Op::Softmax { axis }, [x], Some(weights)) = (block, &d.op, d.operands.as_slice(), d.result)
        else {
            return Err(Mismatch::new(Condition::Chain, d.loc, "the softmax is not in a block"));
        };
        let output = ending.output;
        if let Some(i) = ending.between.iter().chain([&output]).find(|i| self.blocks[**i] != Some(block)) {
            return Err(Mismatch::new(Condition::Block, self.loc(*i), "the softmax is in another block"));
        }
        let rank = f.tensor(weights).map_or(0, |t| t.rank());
        if axis + 1 != rank {
            let text = format!("the softmax is over axis {axis} of {rank}, not over the last, the keys");
            let edit = Edit::replace(f, softmax, "softmax({=0})", &[(softmax, 0)]);
            return Err(Mismatch::new(Condition::Axis, d.loc, text).with(vec![edit]));
        }
        let kept = self.kept(ending)?;
        let (mut steps, mut sink) = (Vec::new(), None);
        let mut v = *x;
        let scores = loop {
            let (i, op, operands) = self.link(v, block, d.loc)?;
            let loc = self.loc(i);
            if *op == Op::Matmul {
                break i;
            }
            if let (None, Some(kept)) = (&sink, &kept)
                && let Some(joined) = self.joined(i, kept)
            {
                let (below, found) = joined?;
                sink = Some((found, steps.len()));
                v = below;
                continue;
            }
            if steps.len() >= LONGEST_CHAIN {
                return Err(Mismatch::new(Condition::Chain, loc, "too many operations before the softmax"));
            }
            let (below, step) = self.step(i, op, operands)?;
            self.keeps_shape(v, below, loc)?;
            steps.push((i, below, step));
            v = below;
        };
        steps.reverse();
        let sink = sink.map(|(sink, above)| (sink, steps.len() - above));
        let joined = sink.map_or(steps.len(), |(_, below)| below);
        if let Some((i, ..)) = steps.iter().skip(joined).find(|(_, _, step)| *step != Step::Widen) {
            let text = format!("`{}` stands between the sink and the softmax", f.inst(*i).op);
            return Err(Mismatch::new(Condition::Chain, self.loc(*i), text));
        }
        if let (None, Some(kept)) = (&sink, &kept) {
            let text = "the weights are sliced, but no column was joined to the scores";
            return Err(Mismatch::new(Condition::Chain, kept.loc, text));
        }
        let site = Site { block, scores, steps, sink, softmax, output };
        self.types(&site)?;
        Ok(site)
    }

    /// The columns of the weights that are multiplied by values, if not all.
    fn kept(&self, ending: &Ending) -> Result<Option<Kept<'a>>, Mismatch> {
        let mut kept = None;
        for i in &ending.between {
            let d = self.f.inst(*i);
            let Op::Slice { start, stop, .. } = &d.op else { continue };
            if kept.is_some() {
                return Err(Mismatch::new(Condition::Chain, d.loc, "the weights are sliced twice"));
            }
            kept = Some(Kept { start, stop, loc: d.loc });
        }
        Ok(kept)
    }

    /// The scores and the sink joined by a `concat` or `pad` along the keys, if `kept` drops
    /// exactly the sink; `None` for another operation.
    fn joined(&self, i: Inst, kept: &Kept<'_>) -> Option<Result<(Value, Sink), Mismatch>> {
        let d = self.f.inst(i);
        let last = self.shape_of(d.result).len().checked_sub(1)?;
        let columns = |v: Value| self.shape_of(Some(v)).get(last).cloned().unwrap_or_default();
        let one = |n: &Dim| n.as_const() == Some(1);
        // The kept columns if the scores come first, and if they come after one column.
        let is_first = |scores: Value| *kept.start == Dim::zero() && *kept.stop == columns(scores);
        let is_after = |scores: Value| *kept.start == Dim::one() && *kept.stop == columns(scores).add(&Dim::one());
        let found = match (&d.op, d.operands.as_slice()) {
            (Op::Concat { axis }, [a, b]) if *axis == last => {
                if is_first(*a) && one(&columns(*b)) {
                    Some((*a, *b))
                } else if is_after(*b) && one(&columns(*a)) {
                    Some((*b, *a))
                } else {
                    None
                }
            }
            (Op::Pad { axis, low, high }, [x, value]) if *axis == last => match (low.as_const(), high.as_const()) {
                (Some(0), Some(1)) if is_first(*x) => Some((*x, *value)),
                (Some(1), Some(0)) if is_after(*x) => Some((*x, *value)),
                _ => None,
            },
            (Op::Concat { axis } | Op::Pad { axis, .. }, _) if *axis == last => None,
            _ => return None,
        };
        Some(match found {
            Some((scores, logit)) => Ok((scores, Sink { join: i, logit })),
            None => {
                let text = "the weights do not drop exactly one of the columns joined to the scores";
                Err(Mismatch::new(Condition::Shape, kept.loc, text))
            }
        })
    }

    /// The operation that computes the scores at one point of the chain.
    fn link(&self, v: Value, block: Block, loc: Loc) -> Result<(Inst, &'a Op, &'a [Value]), Mismatch> {
        let Some((i, op, operands)) = made_by(self.f, v) else {
            return Err(Mismatch::new(Condition::Chain, loc, "the scores are an argument, not the result of a matmul"));
        };
        self.used_once(v, &format!("the result of `{op}`"))?;
        if self.blocks[i] != Some(block) {
            let text = format!("`{op}` is in another block than the softmax");
            return Err(Mismatch::new(Condition::Block, self.loc(i), text));
        }
        Ok((i, op, operands))
    }

    /// The effect of an operation on the scores, and which operand they are.
    fn step(&self, i: Inst, op: &Op, operands: &[Value]) -> Result<(Value, Step), Mismatch> {
        let f = self.f;
        let loc = self.loc(i);
        let fail = |condition, text: String| Err(Mismatch::new(condition, loc, text).with(self.edits(i)));
        match (op, operands) {
            (Op::Binary(BinaryOp::Mul), [a, b]) => match (is_scalar(f, *a), is_scalar(f, *b)) {
                (_, true) => Ok((*a, Step::Scale { by: *b, divide: false })),
                (true, false) => Ok((*b, Step::Scale { by: *a, divide: false })),
                (false, false) => fail(
                    Condition::Scale,
                    "the scores are multiplied by a tensor, which is neither a scale (one number) nor a mask (where, +)"
                        .to_string(),
                ),
            },
            (Op::Binary(BinaryOp::Div), [a, b]) => match is_scalar(f, *b) {
                true => Ok((*a, Step::Scale { by: *b, divide: true })),
                false => fail(Condition::Scale, "the scores are divided by a tensor, not by one number".to_string()),
            },
            (Op::Binary(BinaryOp::Add), [a, b]) => Ok(match self.scores_are_left(i, *a, *b) {
                true => (*a, Step::Add { mask: *b, subtract: false }),
                false => (*b, Step::Add { mask: *a, subtract: false }),
            }),
            (Op::Binary(BinaryOp::Sub), [a, b]) => match self.scores_are_left(i, *a, *b) {
                true => Ok((*a, Step::Add { mask: *b, subtract: true })),
                false => fail(Condition::Chain, "the scores are subtracted from something".to_string()),
            },
            (Op::Where, [c, a, b]) => match (is_scalar(f, *a), is_scalar(f, *b)) {
                (false, true) => Ok((*a, Step::Select { condition: *c, fill: *b, keep: true })),
                (true, false) => Ok((*b, Step::Select { condition: *c, fill: *a, keep: false })),
                (true, true) => fail(Condition::Chain, "both sides of the mask are numbers, not scores".to_string()),
                // `where(s > 0, s, 0.01 * s)`
                (false, false) if made_by(f, *c).is_some_and(|(_, _, own)| own.contains(a) || own.contains(b)) => {
                    let text = "the condition of `where` depends on the scores: that is a function of them, not a mask";
                    fail(Condition::Chain, text.to_string())
                }
                (false, false) => {
                    fail(Condition::Mask, "hidden scores are replaced by a tensor, not by one number".to_string())
                }
            },
            (Op::Unary(UnaryOp::Tanh), [x]) => Ok((*x, Step::Tanh)),
            (Op::Cast { elem: Elem::F32 }, [x]) if f.tensor(*x).is_some_and(|t| t.elem.is_float()) => {
                Ok((*x, Step::Widen))
            }
            (Op::Cast { elem }, _) => {
                fail(Condition::Types, format!("the scores are cast to {elem} between the matmul and the softmax"))
            }
            (Op::Concat { axis } | Op::Pad { axis, .. }, [x, ..]) if f.tensor(*x).is_some_and(|t| t.rank() == axis + 1) => {
                let text = "a column is joined to the scores and not dropped from the weights";
                fail(Condition::Shape, text.to_string())
            }
            (Op::Transpose { .. }, _) => {
                fail(Condition::Transposition, "the scores are transposed before the softmax".to_string())
            }
            (Op::Reshape | Op::Broadcast, _) => {
                fail(Condition::Shape, format!("`{op}` changes the shape of the scores before the softmax"))
            }
            _ => fail(Condition::Chain, format!("`{op}` stands where `q @ k.T` with scales and masks is required")),
        }
    }

    /// Edits after which an operation would be a step, or would not stand among the scores.
    fn edits(&self, i: Inst) -> Vec<Edit> {
        let f = self.f;
        let d = f.inst(i);
        let made = |at: usize| d.operands.get(at).and_then(|v| made_by(f, *v)).map(|(i, op, _)| (i, op));
        let product = |at: usize| made(at).filter(|(_, op)| **op == Op::Matmul).map(|(i, _)| i);
        match &d.op {
            // A factor for each query is one of the queries.
            Op::Binary(op @ (BinaryOp::Mul | BinaryOp::Div)) => {
                let sign = if *op == BinaryOp::Mul { '*' } else { '/' };
                let is_for_queries = |at: usize| {
                    let shape = d.operands.get(at).map(|v| self.shape_of(Some(*v)));
                    shape.and_then(|s| s.last()).is_some_and(|n| n.as_const() == Some(1))
                };
                let sides = [(0, 1), (1, 0)].into_iter().take(if *op == BinaryOp::Mul { 2 } else { 1 });
                let edit = |(scores, factor): (usize, usize)| {
                    let m = product(scores).filter(|_| is_for_queries(factor))?;
                    let with = format!("({{0}} {sign} {{1}}) @ {{2}}");
                    Some(Edit::replace(f, i, with, &[(m, 0), (i, factor), (m, 1)]))
                };
                sides.filter_map(edit).collect()
            }
            // The cast after the softmax, or none.
            Op::Cast { elem } => {
                let user = match d.result.map_or(&[][..], |v| &self.uses[v]) {
                    [Use::Operand(user, _)] if matches!(f.inst(*user).op, Op::Softmax { .. }) => Some(*user),
                    _ => None,
                };
                let later =
                    user.map(|user| Edit::replace(f, user, format!("cast<{elem}>(softmax({{=0}}))"), &[(i, 0)]));
                later.into_iter().chain([Edit::replace(f, i, "{0}", &[(i, 0)])]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Are the scores the left operand of a sum: the operand that a chain connects to a matmul, the
    /// left one if both are?
    fn scores_are_left(&self, i: Inst, left: Value, right: Value) -> bool {
        let shape = self.shape_of(self.f.inst(i).result);
        let fits = |v: Value| self.shape_of(Some(v)) == shape && !is_scalar(self.f, v);
        match (fits(left), fits(right)) {
            (true, false) => true,
            (false, true) => false,
            (false, false) => true,
            (true, true) => self.comes_from_matmul(left) || !self.comes_from_matmul(right),
        }
    }

    fn comes_from_matmul(&self, v: Value) -> bool {
        let mut work = vec![v];
        for _ in 0..2 * LONGEST_CHAIN {
            let Some(v) = work.pop() else { return false };
            match made_by(self.f, v) {
                Some((_, Op::Matmul, _)) => return true,
                Some((_, Op::Binary(_) | Op::Where | Op::Unary(UnaryOp::Tanh) | Op::Cast { .. }, operands)) => {
                    work.extend(operands.iter().rev());
                }
                _ => {}
            }
        }
        false
    }

    fn shape_of(&self, v: Option<Value>) -> &[Dim] {
        v.and_then(|v| self.f.tensor(v)).map_or(&[], |t| t.shape.as_slice())
    }

    /// A mask must not broadcast the scores to a larger shape.
    fn keeps_shape(&self, above: Value, below: Value, loc: Loc) -> Result<(), Mismatch> {
        if self.shape_of(Some(above)) == self.shape_of(Some(below)) {
            return Ok(());
        }
        let show = |v: Value| self.f.ty(v).to_string();
        let text = format!("the mask broadcasts the scores from {} to {}", show(below), show(above));
        Err(Mismatch::new(Condition::Mask, loc, text))
    }

    /// All float types are allowed; casts between them are separate steps.
    fn types(&self, site: &Site) -> Result<(), Mismatch> {
        let is_float = |v: &Value| self.f.tensor(*v).is_some_and(|t| t.elem.is_float());
        let (first, last) = (self.f.inst(site.scores), self.f.inst(site.output));
        match first.operands.iter().chain(&last.operands).all(is_float) {
            true => Ok(()),
            false => Err(Mismatch::new(Condition::Types, first.loc, "the two matmuls are not of floats")),
        }
    }
}

/// A slice of the weights.
struct Kept<'a> {
    start: &'a Dim,
    stop: &'a Dim,
    loc: Loc,
}
