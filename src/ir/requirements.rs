//! The preconditions of a function on the dimensions of a call: no extent is negative or
//! fractional, every slice and padding is within its axis, and every size fits 64 bits.
//!
//! In: a function. Out: the facts that its `where` lines do not already imply, each with the source
//! location of the instruction that requires it. [`entry_checks`] combines both; the interpreter
//! and compiled models check them on entry ([`super::entries`]). So no IR text, whatever its
//! origin, has an access out of range that depends only on dimensions; accesses that depend on a
//! loop counter or an element are checked where they are executed.
//!
//! # Requirements
//!
//! * of every tensor, and of the scores of an attention: each extent is an integer and not
//!   negative, and the bytes fit an `i64` ([`MAX_BYTES`]; an element counts as at least
//!   [`LEAST_SIZE`] bytes, its size in computation);
//! * of `slice`: `0 <= start`, `start <= stop`, `stop <=` the axis; of `pad`: `0 <= low`, `0 <=
//!   high`; of `argsort`: `0 <= first`, `first <=` the axis; of `windows`: all lie within the axis;
//! * of a dimension that is used as a number: it is an integer and fits an `i64`.
//!
//! # Proofs
//!
//! A symbol is at least 0, an argument's extents match its type, and its size is at most
//! 2^[`ADDRESS_BITS`] bytes (zeros counted as ones), which every entry checks. A fact follows from
//! its sides alone, from one known fact, or from the sum of two; the bound of a size, from the size
//! of an argument. Each call checks the facts that cannot be proved.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::{Block, Function, Inst, InstData, Loc, Module, Op, Type, Value};
use crate::shape::{ADDRESS_BITS, Dim, Fact, Factor, Facts, Relation, Sizes, TensorType};

/// The maximum number of elements of a tensor, as far as constant extents determine it.
pub const MAX_ELEMENTS: i128 = 1 << 40;
/// The maximum number of bytes of a tensor.
const MAX_BYTES: i64 = i64::MAX;
/// The minimum number of bytes that an element counts as.
const LEAST_SIZE: i64 = 4;
/// A multiple of an argument's size, up to this factor, is known to fit: `2^ADDRESS_BITS` times it
/// does.
const MAX_TIMES: i128 = MAX_BYTES as i128 >> ADDRESS_BITS;
/// The maximum number of known facts whose pairwise sums are tried.
const MAX_PAIRED: usize = 16;

/// The facts that a function requires and does not state, each with the location of the instruction
/// that requires it.
pub fn requirements(f: &Function) -> Vec<(Fact, Loc)> {
    let mut found = Requirements::stated(f);
    found.function(f);
    found.missing
}

/// All preconditions of a call of an entry point: the facts that its variants state, then those
/// that they require beyond that. Facts about dimensions set in the function are excluded
/// ([`length_checks`]).
pub fn entry_checks(module: &Module, name: &str) -> Vec<(Fact, Loc)> {
    let variants = || module.functions.iter().filter(|f| f.name == name);
    let later: Vec<&str> = variants().flat_map(|f| lengths(f).into_iter().map(|l| l.name)).collect();
    let mut out: Vec<(Fact, Loc)> = Vec::new();
    for (fact, loc) in variants().flat_map(|f| f.checks.clone()).chain(variants().flat_map(requirements)) {
        if !fact.names_any(&later) && !out.iter().any(|(known, _)| *known == fact) {
            out.push((fact, loc));
        }
    }
    out
}

/// A dimension that an [`Op::Length`] sets.
#[derive(Clone, Copy, Debug)]
pub struct Length<'f> {
    /// Its name in types and attributes.
    pub name: &'f str,
    /// Its upper bound.
    pub most: &'f Dim,
    /// The instruction that sets it.
    pub inst: Inst,
    /// The block of that instruction.
    pub block: Block,
}

/// The dimensions that a function sets, in reverse postorder.
pub fn lengths(f: &Function) -> Vec<Length<'_>> {
    let mut out = Vec::new();
    let is_length = |d: &InstData| matches!(d.op, Op::Length { .. });
    if !f.insts().any(|(_, _, d)| is_length(d)) {
        return out;
    }
    for block in f.reverse_postorder() {
        for inst in &f.block(block).insts {
            if let Op::Length { name, most } = &f.inst(*inst).op {
                out.push(Length { name, most, inst: *inst, block });
            }
        }
    }
    out
}

/// The facts to check after each `length`: facts that mention its dimension, and none that
/// is set later.
pub fn length_checks(f: &Function) -> BTreeMap<Inst, Vec<(Fact, Loc)>> {
    let lengths = lengths(f);
    let mut out: BTreeMap<Inst, Vec<(Fact, Loc)>> = BTreeMap::new();
    if lengths.is_empty() {
        return out;
    }
    for (fact, loc) in f.checks.iter().cloned().chain(requirements(f)) {
        if let Some(last) = lengths.iter().rev().find(|l| fact.names_any(&[l.name])) {
            let most = Fact { left: Dim::symbol(last.name), relation: Relation::Le, right: last.most.clone() };
            let checks = out.entry(last.inst).or_default();
            // The operation itself checks its bound.
            if fact != most && !checks.iter().any(|(known, _)| *known == fact) {
                checks.push((fact, loc));
            }
        }
    }
    out
}

/// Sizes that depend on a dimension set in the function and have no upper bound: they may overflow
/// 64 bits, and the entry cannot check it.
pub fn without_most(f: &Function) -> Vec<(Dim, Loc)> {
    let own: Vec<&str> = lengths(f).into_iter().map(|l| l.name).collect();
    if own.is_empty() {
        return Vec::new();
    }
    let beyond = requirements(f).into_iter().filter(|(fact, _)| fact.is_fit() && fact.names_any(&own));
    beyond.map(|(fact, loc)| (fact.left, loc)).collect()
}

/// Adds to a function's checks the facts that it required before a change, and neither states nor
/// requires any more: a pass may remove an operation, but not its preconditions on the call.
///
/// Returns the facts that the function requires now, if they imply all of the earlier ones.
pub fn keep(f: &mut Function, before: Vec<(Fact, Loc)>) -> Option<Vec<(Fact, Loc)>> {
    let mut now = Requirements::stated(f);
    now.function(f);
    let needed = std::mem::take(&mut now.missing);
    // A dimension that is no longer set on any path has no requirements.
    let known: BTreeSet<Arc<str>> = f.args.iter().flat_map(|a| a.ty.shape.iter().flat_map(Dim::symbols)).collect();
    let lengths: Vec<Arc<str>> = lengths(f).into_iter().map(|l| l.name.into()).collect();
    let is_known = |fact: &Fact| {
        let mut symbols = [&fact.left, &fact.right].into_iter().flat_map(Dim::symbols);
        symbols.all(|s| known.contains(&s) || lengths.contains(&s))
    };
    for (fact, loc) in before.into_iter().filter(|(fact, _)| is_known(fact)) {
        now.need(fact, loc);
    }
    let mut lost = now.missing;
    let same = lost.is_empty().then_some(needed);
    f.checks.retain(|(fact, _)| is_known(fact));
    f.checks.append(&mut lost);
    same
}

/// Does a tensor of this shape exceed every machine, whatever the call?
pub fn is_too_large(shape: &[Dim]) -> bool {
    let known = shape.iter().map(|d| d.magnitude().max(1)).fold(1, i128::saturating_mul);
    known > MAX_ELEMENTS || shape.iter().any(Dim::is_too_long) || Dim::product(shape).is_too_long()
}

/// A message if a tensor, or the part of one that an operation accesses, exceeds every machine
/// whatever the call.
pub fn too_large(op: &Op, operands: &[&Type], result: Option<&Type>) -> Option<String> {
    let of = |shape: &[Dim]| is_too_large(shape).then(|| format!("a tensor of shape [{}] is too large", list(shape)));
    let tensor = |at: usize| operands.get(at).and_then(|t| t.tensor());
    let reached = match op {
        // The extent that the axis would require.
        Op::Slice { axis, start, stop } => tensor(0).and_then(|x| {
            let with = |d: &Dim| {
                let mut shape = x.shape.clone();
                *shape.get_mut(*axis)? = d.clone();
                of(&shape)
            };
            with(start).or_else(|| with(stop))
        }),
        Op::Pad { axis, low, high } => tensor(0).and_then(|x| {
            let mut shape = x.shape.clone();
            let extent = shape.get_mut(*axis)?;
            // Not their signed sum, in which a negative number would compensate a large one.
            *extent = Dim::from(i64::try_from(low.magnitude().saturating_add(high.magnitude())).unwrap_or(i64::MAX));
            of(&shape)
        }),
        Op::Argsort { axis, first, .. } => tensor(0).and_then(|x| {
            let mut shape = x.shape.clone();
            *shape.get_mut(*axis)? = first.clone();
            of(&shape)
        }),
        Op::Tap { extents, .. } => {
            tensor(0).and_then(|x| of(&extents.iter().chain(&x.shape).cloned().collect::<Vec<Dim>>()))
        }
        Op::Attention { .. } => scores(operands).and_then(|t| of(&t.shape)),
        Op::DimValue(d) if d.magnitude() > i128::from(i64::MAX) || d.is_too_long() => {
            Some(format!("the dimension {d} is too large"))
        }
        Op::Length { name, most } if !most.has_successor() => Some(format!("{name} can be {most}, which is too large")),
        _ => None,
    };
    reached.or_else(|| result.and_then(Type::tensor).and_then(|t| of(&t.shape)))
}

fn list(shape: &[Dim]) -> String {
    shape.iter().map(Dim::to_string).collect::<Vec<String>>().join(", ")
}

/// The type of the scores of an attention with these operands.
fn scores(operands: &[&Type]) -> Option<TensorType> {
    let tensor = |at: usize| operands.get(at).and_then(|t| t.tensor());
    let (q, k) = (tensor(0)?, tensor(1)?);
    let lead =
        crate::shape::broadcast(q.shape.get(..q.rank().checked_sub(2)?)?, k.shape.get(..k.rank().checked_sub(2)?)?);
    let mut shape = lead.ok()?;
    shape.push(q.shape.get(q.rank() - 2)?.clone());
    shape.push(k.shape.get(k.rank() - 2)?.clone());
    Some(TensorType::new(q.elem, shape))
}

/// The known facts, and the required facts that they do not imply.
struct Requirements<'f> {
    facts: Facts,
    /// Dimensions that are known to be non-negative.
    not_negative: Vec<Dim>,
    /// Bounds of sizes from the arguments.
    sizes: Sizes,
    missing: Vec<(Fact, Loc)>,
    /// Shapes that were handled already, with the bytes of an element: many tensors share few
    /// shapes.
    seen: HashSet<(i64, &'f [Dim])>,
    /// Upper bounds of the dimensions that the function sets.
    most: BTreeMap<&'f str, &'f Dim>,
}

impl<'f> Requirements<'f> {
    /// The facts that a function states, and the facts that every entry checks for its arguments.
    fn stated(f: &'f Function) -> Requirements<'f> {
        let mut r = Requirements {
            facts: Facts::default(),
            not_negative: Vec::new(),
            sizes: Sizes::default(),
            missing: Vec::new(),
            seen: HashSet::new(),
            most: BTreeMap::new(),
        };
        for a in &f.args {
            for d in &a.ty.shape {
                r.learn(Fact { left: Dim::zero(), relation: Relation::Le, right: d.clone() });
                for (a, b) in quotients(d) {
                    r.learn(Fact { left: a, relation: Relation::Divisible, right: b });
                }
                for (_, b) in rounded(d) {
                    r.learn(Fact { left: Dim::one(), relation: Relation::Le, right: b });
                }
            }
            r.sizes.argument(&a.ty);
        }
        for (fact, _) in &f.checks {
            r.learn(fact.clone());
        }
        for Length { name, most, .. } in lengths(f) {
            r.most.insert(name, most);
            r.learn(Fact { left: Dim::symbol(name), relation: Relation::Le, right: most.clone() });
        }
        r
    }

    fn learn(&mut self, fact: Fact) {
        let slack = fact.right.sub(&fact.left);
        match fact.relation {
            Relation::Le if fact.is_fit() => {}
            Relation::Le => self.not_negative.push(slack),
            Relation::Lt => self.not_negative.push(slack.sub(&Dim::one())),
            Relation::Eq => {
                self.not_negative.push(slack.neg());
                self.not_negative.push(slack);
            }
            Relation::Ne | Relation::Divisible => {}
        }
        self.not_negative.retain(|d| !d.is_provably_nonnegative());
        self.facts.known.push(fact);
    }

    fn function(&mut self, f: &'f Function) {
        for (fact, loc) in &f.checks {
            self.checked_fits(fact, *loc);
        }
        for b in &f.layout {
            for v in &f.block(*b).args {
                self.value(f, *v, Loc::default());
            }
            for i in &f.block(*b).insts {
                self.instruction(f, f.inst(*i));
            }
        }
    }

    fn value(&mut self, f: &'f Function, v: Value, loc: Loc) {
        if let Some(t) = f.tensor(v) {
            let size = bytes_of_element(t);
            // A tensor with constant extents requires nothing.
            let elements =
                t.shape.iter().map(Dim::as_const).try_fold(size, |n, d| n.checked_mul(d.filter(|d| *d >= 0)?));
            if elements.is_none() && self.seen.insert((size, t.shape.as_slice())) {
                self.tensor(t, loc);
            }
        }
    }

    #[warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]
    fn instruction(&mut self, f: &'f Function, inst: &'f InstData) {
        let loc = inst.loc;
        let operand = |at: usize| inst.operands.get(at).and_then(|v| f.tensor(*v));
        match &inst.op {
            Op::Slice { axis, start, stop } => {
                let extent = operand(0).and_then(|t| t.shape.get(*axis)).cloned().unwrap_or_default();
                self.at_most(&Dim::zero(), start, loc);
                self.at_most(start, stop, loc);
                self.at_most(stop, &extent, loc);
            }
            Op::Pad { axis: _, low, high } => {
                self.at_most(&Dim::zero(), low, loc);
                self.at_most(&Dim::zero(), high, loc);
            }
            Op::Windows { axis, stride } => {
                let result = inst.result.and_then(|v| f.tensor(v)).map_or(&[][..], |t| t.shape.as_slice());
                let extent = operand(0).and_then(|t| t.shape.get(*axis)).cloned().unwrap_or_default();
                if let [count, length, ..] = result.get(*axis..).unwrap_or_default() {
                    self.at_most(&Dim::zero(), count, loc);
                    self.at_most(&super::rules::reach(count, length, *stride), &extent, loc);
                }
            }
            Op::Argsort { axis, descending: _, first } => {
                let extent = operand(0).and_then(|t| t.shape.get(*axis)).cloned().unwrap_or_default();
                self.at_most(&Dim::zero(), first, loc);
                self.at_most(first, &extent, loc);
            }
            Op::DimValue(d) => {
                self.whole(d, loc);
                self.fits(d, loc);
            }
            Op::Length { name: _, most } => {
                self.at_most(&Dim::zero(), most, loc);
                // The value is compared with the successor of the bound.
                self.fits(&most.add(&Dim::one()), loc);
            }
            Op::Tap { name: _, extents } => {
                if let Some(t) = operand(0) {
                    self.tensor(&TensorType::new(t.elem, [extents.clone(), t.shape.clone()].concat()), loc);
                }
            }
            Op::Attention { .. } => {
                let types: Vec<&Type> = inst.operands.iter().map(|v| f.ty(*v)).collect();
                if let Some(t) = scores(&types) {
                    self.tensor(&t, loc);
                }
            }
            Op::Fused { kind: _, body } => self.function(body),
            Op::Const(_)
            | Op::Iota { .. }
            | Op::Causal
            | Op::Param { .. }
            | Op::State { .. }
            | Op::SetState { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Where
            | Op::Cast { .. }
            | Op::Reshape
            | Op::Transpose { .. }
            | Op::Broadcast
            | Op::Index { .. }
            // Checked at run time, because a loop may never reach them.
            | Op::Extract { .. }
            | Op::Update { .. }
            | Op::Concat { .. }
            | Op::Gather { .. }
            | Op::Scatter { .. }
            | Op::Cumsum { .. }
            | Op::Grad { .. }
            | Op::Stop
            | Op::Reduce { .. }
            | Op::Softmax { .. }
            | Op::LogSoftmax { .. }
            | Op::Matmul => {}
        }
        if let Some(v) = inst.result {
            self.value(f, v, loc);
        }
    }

    fn tensor(&mut self, t: &TensorType, loc: Loc) {
        for d in &t.shape {
            self.at_most(&Dim::zero(), d, loc);
        }
        // Empty tensors have requirements on their extents too: `at_most` handles the
        // extents that mention a set dimension.
        self.fits(&t.count().mul(&Dim::from(bytes_of_element(t))), loc);
    }

    /// Requires that both are integers, and `a <= b`.
    fn at_most(&mut self, a: &Dim, b: &Dim, loc: Loc) {
        for d in [a, b] {
            self.whole(d, loc);
            if self.names_length(d) {
                self.fits(d, loc);
            }
        }
        self.need(Fact { left: a.clone(), relation: Relation::Le, right: b.clone() }, loc);
    }

    /// Requires that its quotients are exact, and that divisors of rounded quotients are at least
    /// 1.
    fn whole(&mut self, d: &Dim, loc: Loc) {
        for (a, b) in quotients(d) {
            // The dividend is computed too.
            self.fits(&a, loc);
            self.need(Fact { left: a, relation: Relation::Divisible, right: b }, loc);
        }
        for (a, b) in rounded(d) {
            self.fits(&a, loc);
            self.need(Fact { left: Dim::one(), relation: Relation::Le, right: b }, loc);
        }
    }

    /// Requires that it can be computed in 64 bits: the dividend of a quotient, each side of a
    /// difference. For a dimension set later, the entry requires it for the upper bound, since no
    /// check follows where it is computed.
    fn fits(&mut self, d: &Dim, loc: Loc) {
        if !self.names_length(d) {
            self.need(Fact::fits(d.as_quotient().0), loc);
            return;
        }
        let largest = d.size_at_most(&|name| self.most.get(name).map(|most| (*most).clone()));
        let beyond = Fact::fits(d.clone());
        if !largest.is_too_long() && largest.magnitude() <= i128::from(i64::MAX) {
            self.need(Fact::fits(largest), loc);
        } else if !self.missing.iter().any(|(known, _)| *known == beyond) {
            self.missing.push((beyond, loc));
        }
    }

    fn names_length(&self, d: &Dim) -> bool {
        !self.most.is_empty() && d.symbols().iter().any(|name| self.most.contains_key(&**name))
    }

    /// Requires that the check of a fact after a `length` does not overflow.
    fn checked_fits(&mut self, fact: &Fact, loc: Loc) {
        if !self.names_length(&fact.left) && !self.names_length(&fact.right) {
            return;
        }
        let mut forms = vec![fact.left.clone(), fact.right.clone()];
        let slack = fact.right.sub(&fact.left);
        match fact.relation {
            Relation::Le if fact.is_fit() => {}
            Relation::Le => forms.push(slack.add(&Dim::one())),
            Relation::Lt | Relation::Eq => forms.push(slack),
            Relation::Ne | Relation::Divisible => {}
        }
        forms.iter().for_each(|d| self.fits(d, loc));
    }

    fn need(&mut self, fact: Fact, loc: Loc) {
        if !self.implied(&fact) {
            self.checked_fits(&fact, loc);
            self.learn(fact.clone());
            self.missing.push((fact, loc));
        }
    }

    fn implied(&self, fact: &Fact) -> bool {
        if fact.decide() == Some(true) || self.facts.known.contains(fact) {
            return true;
        }
        if self.most.is_empty() {
            return self.follows(fact);
        }
        // A check after a `length` says nothing about earlier instructions. A fact that mentions
        // the dimension is only required after it is set.
        let later: Vec<&str> = self.most.keys().copied().filter(|name| !fact.names_any(&[name])).collect();
        let symbol = |d: &Dim| d.symbols().iter().any(|s| later.contains(&&**s));
        let known = self.facts.known.iter().filter(|known| !known.names_any(&later)).cloned().collect();
        let not_negative = self.not_negative.iter().filter(|d| !symbol(d)).cloned().collect();
        let (facts, sizes) = (Facts { known }, self.sizes.clone());
        let (missing, seen, most) = (Vec::new(), HashSet::new(), BTreeMap::new());
        Requirements { facts, not_negative, sizes, missing, seen, most }.follows(fact)
    }

    fn follows(&self, fact: &Fact) -> bool {
        match fact.relation {
            Relation::Le if fact.is_fit() => self.fit_is_known(&fact.left),
            Relation::Le => {
                let slack = fact.right.sub(&fact.left);
                self.is_not_negative(&slack) || has_opaque(&slack) && self.facts.at_most(&fact.left, &fact.right)
            }
            Relation::Divisible => self.facts.divides(&fact.left, &fact.right),
            Relation::Eq | Relation::Ne | Relation::Lt => false,
        }
    }

    fn is_not_negative(&self, d: &Dim) -> bool {
        let beyond = |d: &Dim, known: &Dim| d.sub(known).is_provably_nonnegative();
        let paired = || {
            let few = self.not_negative.iter().take(MAX_PAIRED);
            few.clone().any(|a| {
                let rest = d.sub(a);
                few.clone().any(|b| beyond(&rest, b))
            })
        };
        d.is_provably_nonnegative() || self.not_negative.iter().any(|known| beyond(d, known)) || paired()
    }

    /// Does the fact follow from the arguments' sizes, or from a known size that it is a part of?
    fn fit_is_known(&self, size: &Dim) -> bool {
        let times = |c: i128| c.saturating_abs() / size.denominator() + i128::from(c % size.denominator() != 0);
        let mut terms = size.terms().iter().map(|(m, c)| self.sizes.times_an_argument(m, times(*c)));
        let total = terms.try_fold(0_i128, |sum, n| Some(sum.saturating_add(n?)));
        if total.is_some_and(|n| n <= MAX_TIMES) {
            return true;
        }
        let sizes = self.facts.known.iter().filter(|fact| fact.is_fit());
        let part = |known: &Dim| known.div(size).and_then(|times| times.as_const()).is_some_and(|n| n >= 1);
        sizes.into_iter().any(|fact| part(&fact.left))
    }
}

/// The number of bytes that an element counts as.
fn bytes_of_element(t: &TensorType) -> i64 {
    i64::try_from(t.elem.size()).unwrap_or(LEAST_SIZE).max(LEAST_SIZE)
}

/// Dividend and divisor of each division in a dimension.
fn quotients(d: &Dim) -> Vec<(Dim, Dim)> {
    let mut out = Vec::new();
    for factor in d.factors() {
        out.extend(factor.inner().into_iter().flat_map(quotients));
        if let Factor::Quotient(a, b) = factor {
            out.push(((**a).clone(), (**b).clone()));
        }
    }
    let (numerator, divisor) = d.as_quotient();
    if divisor != Dim::one() {
        out.push((numerator, divisor));
    }
    out
}

/// Dividend and divisor of each rounded division in a dimension.
fn rounded(d: &Dim) -> Vec<(Dim, Dim)> {
    let mut out = Vec::new();
    for factor in d.factors() {
        out.extend(factor.inner().into_iter().flat_map(rounded));
        if let Factor::Floor(a, b) = factor {
            out.push(((**a).clone(), (**b).clone()));
        }
    }
    out
}

/// Is a factor a rounded quotient, a `min` or a `max`?
fn has_opaque(d: &Dim) -> bool {
    d.factors().any(|f| matches!(f, Factor::Floor(..) | Factor::Min(_) | Factor::Max(_)))
}

#[cfg(test)]
mod tests;
