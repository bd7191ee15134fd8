//! Index values of a body as polynomials, and the facts that hold in each block.
//!
//! In: a well-formed body, block by block, each after its dominators. Out: for each value of type
//! `index` its polynomial, and for each block the facts that hold in it: conditions of dominating
//! branches, and passed `check_index` operations.
//!
//! An induction variable, a block argument that every path around the loop increases by the same
//! constant, is its initial value plus that constant times a new atom. Any other value is an atom
//! without bounds.
//!
//! Polynomials are exact, while the machine computes modulo 2^64. Sums and products agree modulo
//! 2^64, so a result that is proved to be small is correct; comparisons and divisions require that
//! their operands fit ([`Prover::fits`]). Expressions over dimensions do: calls check the ones that
//! might not ([`crate::tile::fits`]). The counter of a loop does if each iteration tests it.

use cranelift_entity::SecondaryMap;

use crate::cfg::Cfg;
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::prove::{Atom, AtomPoly as Poly, Bounds, Prover, product};
use crate::shape::{Dim, Sizes};
use crate::tile::{Block, Body, Extent, Inst, InstData, Op, Terminator, Type, Value};

/// Maximum value of a loop counter.
const MAX_COUNTER: i128 = 1 << 62;
/// Maximum step of a loop counter.
const MAX_STEP: i128 = 1 << 20;
/// Limit on operations between a counter and its next value.
const MAX_CHAIN: u32 = 16;
/// Limit on operations of a condition, or of a bound, that are examined.
const MAX_TREE: u32 = 64;

/// The iteration number of a loop.
struct Counter {
    header: Block,
    turns: Atom,
    /// Atoms below this number are loop-invariant.
    before: Atom,
}

/// Facts known so far about a body's indices.
pub(super) struct Flow<'a> {
    pub(super) body: &'a Body,
    pub(super) cfg: Cfg<Block>,
    pub(super) prover: Prover,
    forms: SecondaryMap<Value, Option<Poly>>,
    facts: SecondaryMap<Block, Vec<Poly>>,
    /// Counters of loops.
    counters: Vec<Counter>,
    /// Dimensions bound in the body, and the blocks that bind them.
    lengths: Vec<(Dim, Block)>,
}

impl<'a> Flow<'a> {
    /// Starts with a body, its symbols, and expressions that are non-negative in all runs. `others`
    /// are dimensions that the body does not mention.
    pub(super) fn new<'d>(
        body: &'a Body,
        symbols: &[String],
        known: &[Dim],
        sizes: Sizes,
        others: impl IntoIterator<Item = &'d Dim>,
    ) -> Flow<'a> {
        let mut prover = Prover::new(symbols, sizes);
        prover.assume_dimensions(known);
        // Rounded terms are numbered before indices: they are loop-invariant, and indices are
        // eliminated first.
        others.into_iter().for_each(|d| _ = prover.dim(d));
        for (_, _, data) in body.insts() {
            data.op.dims().into_iter().for_each(|d| _ = prover.dim(d));
            if let Some(Type::Buffer(ty)) = data.result.map(|v| body.ty(v)) {
                ty.shape.iter().chain(&ty.strides).for_each(|d| _ = prover.dim(d));
            }
        }
        let lengths = body.insts().filter_map(|(b, _, d)| match &d.op {
            Op::Length { name, .. } => Some((Dim::symbol(name), b)),
            _ => None,
        });
        Flow {
            body,
            cfg: body.cfg(),
            prover,
            forms: SecondaryMap::new(),
            facts: SecondaryMap::new(),
            counters: Vec::new(),
            lengths: lengths.collect(),
        }
    }

    /// Assumes, from now on, that a polynomial is non-negative.
    pub(super) fn assume(&mut self, form: Option<Poly>, at: Block) {
        self.facts[at].extend(form.map(Poly::tightened));
    }

    /// Does a polynomial depend on a dimension that may have another value in each iteration of the
    /// loop with this header?
    fn changes(&mut self, p: &Poly, header: Block) -> bool {
        for n in 0..self.lengths.len() {
            let (name, block) = self.lengths[n].clone();
            let Some(form) = self.prover.dim(&name).filter(|_| self.cfg.dominates(header, block)) else { continue };
            if self.prover.has_atom_of(p, &form) {
                return true;
            }
        }
        false
    }

    /// Records the polynomial of a value.
    pub(super) fn set(&mut self, v: Value, form: Poly) {
        self.forms[v] = Some(form);
    }

    /// A new atom without bounds.
    pub(super) fn anything(&mut self) -> Poly {
        self.prover.fresh(Bounds::default())
    }

    /// The polynomial of an index; a new atom if nothing is known about it.
    pub(super) fn form(&mut self, v: Value) -> Poly {
        match &self.forms[v] {
            Some(p) => p.clone(),
            None => {
                let p = self.anything();
                self.forms[v] = Some(p.clone());
                p
            }
        }
    }

    /// An extent as a polynomial.
    pub(super) fn extent(&mut self, e: Extent) -> Poly {
        match e {
            Extent::Static(n) => Poly::int(i128::from(n)),
            Extent::Bounded { value, .. } => self.form(value),
        }
    }

    /// Is `p >= 0` at the end of the examined part of a block, assuming `also`?
    pub(super) fn proves(&mut self, p: Option<Poly>, at: Block, also: &[Poly]) -> bool {
        let Some(p) = p else { return false };
        let facts = also.iter().chain(&self.facts[at]);
        self.prover.proves(&p, facts)
    }

    /// Enters a block: its facts and its arguments.
    pub(super) fn enter(&mut self, b: Block) {
        let mut facts = self.cfg.immediate_dominator(b).map(|up| self.facts[up].clone()).unwrap_or_default();
        let from: Vec<Block> = self.cfg.predecessors(b).iter().copied().filter(|p| self.cfg.is_reachable(*p)).collect();
        if let [p] = from.as_slice()
            && let Terminator::BrIf { condition, then, otherwise } = &self.body.block(*p).terminator
            && then.block != otherwise.block
        {
            self.condition(*condition, then.block == b, &mut facts, &mut MAX_TREE.clone());
        }
        self.facts[b] = facts;
        let before = self.prover.next();
        for (n, v) in self.body.block(b).args.iter().enumerate() {
            if *self.body.ty(*v) == Type::Index {
                let form = self.argument(b, n, *v, &from, before);
                self.forms[*v] = Some(form);
            }
        }
    }

    /// Adds the consequences of a condition being true, or false.
    fn condition(&mut self, v: Value, truth: bool, facts: &mut Vec<Poly>, looks: &mut u32) {
        let Some(left) = looks.checked_sub(1) else { return };
        *looks = left;
        let Some(InstData { op, operands, .. }) = self.body.def_inst(v) else { return };
        let &[a, ref rest @ ..] = operands.as_slice() else { return };
        match (op, rest) {
            (Op::Compare(op), [b]) if *self.body.ty(a) == Type::Index => {
                let (a, b) = (self.form(a), self.form(*b));
                if self.prover.fits(&a) && self.prover.fits(&b) {
                    compared(*op, truth, &a, &b, facts);
                }
            }
            (Op::Binary(BinaryOp::And), [b]) if truth => {
                self.condition(a, true, facts, looks);
                self.condition(*b, true, facts, looks);
            }
            (Op::Binary(BinaryOp::Or), [b]) if !truth => {
                self.condition(a, false, facts, looks);
                self.condition(*b, false, facts, looks);
            }
            (Op::Unary(UnaryOp::Not), []) => self.condition(a, !truth, facts, looks),
            _ => {}
        }
    }

    /// Processes the end of a block. The loop of a header iterates while its condition holds,
    /// `rest - c * turns >= 0`, so it held in the previous iteration, unless this is the first.
    pub(super) fn leave(&mut self, b: Block) {
        let Terminator::BrIf { condition, then, otherwise } = &self.body.block(b).terminator else { return };
        let own: Vec<(Atom, Atom)> =
            self.counters.iter().filter(|c| c.header == b).map(|c| (c.turns, c.before)).collect();
        // The body of the loop is the target from which every back edge comes.
        let back = |to: Block| {
            let mut jumps = self.cfg.predecessors(b).iter().filter(|p| self.cfg.dominates(b, **p));
            let is_alone = to == b || self.cfg.predecessors(to) == [b];
            is_alone && jumps.all(|p| if to == b { *p == b } else { self.cfg.dominates(to, *p) })
        };
        let round = match (own.is_empty(), back(then.block), back(otherwise.block)) {
            (false, true, false) => true,
            (false, false, true) => false,
            _ => return,
        };
        // If the counter itself is compared, facts in the loop imply as much.
        let compared = self.body.def_inst(*condition).map(|d| d.operands.as_slice()).unwrap_or_default();
        if compared.iter().any(|v| self.body.block(b).args.contains(v)) {
            return;
        }
        let mut facts = Vec::new();
        self.condition(*condition, round, &mut facts, &mut MAX_TREE.clone());
        for (turns, before) in own {
            for fact in &facts {
                let Some((c, rest)) = fact.split(&turns) else { continue };
                let Some(c) = c.as_int().filter(|c| *c < 0).and_then(i128::checked_neg) else { continue };
                if let Some(limit) = rest.add(&Poly::int(c))
                    && self.prover.is_older(&rest, before)
                    && !self.changes(&rest, b)
                {
                    self.prover.limit(turns, c, limit);
                }
            }
        }
    }

    /// Looks ahead in a block that is a loop by itself: facts about its counters that hold at its
    /// end hold from its start. Skips blocks with checks, whose facts would be assumed too early.
    pub(super) fn foresee(&mut self, b: Block) {
        let data = self.body.block(b);
        let goes_round = data.terminator.targets().iter().any(|c| c.block == b);
        let checks = |i: &Inst| matches!(self.body.inst(*i).op, Op::CheckIndex { .. });
        if goes_round && !data.insts.iter().any(checks) {
            data.insts.iter().for_each(|i| self.instruction(*i, b));
            self.leave(b);
        }
    }

    /// The polynomial of a block argument.
    fn argument(&mut self, b: Block, n: usize, v: Value, from: &[Block], before: Atom) -> Poly {
        let (mut starts, mut steps) = (Vec::new(), Vec::new());
        for p in from {
            let calls = self.body.block(*p).terminator.targets();
            let given: Vec<Value> =
                calls.iter().filter(|c| c.block == b).filter_map(|c| c.args.get(n).copied()).collect();
            for x in given {
                if !self.cfg.dominates(b, *p) {
                    let start = self.form(x);
                    if !starts.contains(&start) {
                        starts.push(start);
                    }
                } else {
                    match self.step(x, v, MAX_CHAIN) {
                        Some(step) => steps.push(step),
                        None => return self.anything(),
                    }
                }
            }
        }
        // Without back edges it is one of the passed values.
        let start = match starts.as_slice() {
            [one] => one.clone(),
            [] => return self.anything(),
            _ => {
                if !starts.iter().all(|p| self.prover.fits(p)) {
                    return self.anything();
                }
                self.prover.fresh(Bounds { one_of: starts, ..Bounds::default() })
            }
        };
        steps.retain(|s| *s != 0);
        steps.sort_unstable();
        steps.dedup();
        match steps.as_slice() {
            [] => start,
            [step] if step.abs() <= MAX_STEP && self.prover.fits(&start) => {
                let most = self.rounds(b, v, (*step, *step), from, &start);
                let turns = self.prover.atom(Bounds { natural: true, most: Some(most), ..Bounds::default() });
                let form = Poly::variable(turns);
                self.counters.push(Counter { header: b, turns, before });
                match start.combine(1, &form, *step) {
                    Some(p) => p,
                    None => self.anything(),
                }
            }
            [low, .., high] if *low > 0 && *high <= MAX_STEP && self.prover.fits(&start) => {
                let most = self.rounds(b, v, (*low, *high), from, &start).saturating_mul(*high);
                let more = self.prover.fresh(Bounds { natural: true, most: Some(most), ..Bounds::default() });
                match start.add(&more) {
                    Some(p) => p,
                    None => self.anything(),
                }
            }
            _ => self.anything(),
        }
    }

    /// Upper bound on the iterations of a loop in which `v` changes by a step in the range `steps`:
    /// if each path around the loop compares `v`, or `v` plus a constant, with a limit, `v` exceeds
    /// the limit by at most a step, and does not wrap.
    fn rounds(&mut self, header: Block, v: Value, steps: (i128, i128), from: &[Block], start: &Poly) -> i128 {
        let mut most = self.prover.most(start);
        let back = from.iter().filter(|p| self.cfg.dominates(header, **p)).copied().collect::<Vec<Block>>();
        for p in back {
            let tests = self.tests(header, p);
            let limits = tests.into_iter().filter_map(|(test, truth)| self.tested(test, truth, v, steps.1 > 0));
            let Some(limit) = limits.collect::<Vec<i128>>().into_iter().min() else { return i128::MAX };
            most = most.max(limit);
        }
        let most = most.saturating_add(steps.1.abs());
        // Counting up from at least 0 it reaches the limit; otherwise it may cross 0.
        let way = if steps.0 > 0 && self.prover.plain(start) { most } else { most.saturating_mul(2) };
        if most > MAX_COUNTER { i128::MAX } else { way / steps.0.abs().max(1) + 1 }
    }

    /// The conditions on the way from a loop's header to a back edge, and their truth values there.
    fn tests(&self, header: Block, from: Block) -> Vec<(Value, bool)> {
        let (mut out, mut to, mut at) = (Vec::new(), header, Some(from));
        while let Some(b) = at {
            let only = to == header || self.cfg.predecessors(to) == [b];
            if let (true, Terminator::BrIf { condition, then, otherwise }) = (only, &self.body.block(b).terminator)
                && then.block != otherwise.block
            {
                out.push((*condition, then.block == to));
            }
            to = b;
            at = self.cfg.immediate_dominator(b).filter(|_| b != header);
        }
        out
    }

    /// A bound on the magnitude of `v` that follows from a condition, if it compares `v`, or `v`
    /// plus a constant, with something known to be small.
    fn tested(&mut self, condition: Value, truth: bool, v: Value, below: bool) -> Option<i128> {
        let InstData { op, operands, .. } = self.body.def_inst(condition)?;
        let (Op::Compare(op), &[a, b]) = (op, operands.as_slice()) else { return None };
        let less = match (op, truth) {
            (CmpOp::Lt | CmpOp::Le, true) | (CmpOp::Gt | CmpOp::Ge, false) => true,
            (CmpOp::Gt | CmpOp::Ge, true) | (CmpOp::Lt | CmpOp::Le, false) => false,
            (CmpOp::Eq | CmpOp::Ne, _) => return None,
        };
        let (counter, limit) = if less == below { (a, b) } else { (b, a) };
        let beyond = self.step(counter, v, MAX_CHAIN)?;
        self.most_of_value(limit, &mut MAX_TREE.clone())?.checked_add(beyond.checked_abs()?)
    }

    /// A bound on the magnitude of a value, wherever it is computed without wrapping.
    fn most_of_value(&mut self, v: Value, looks: &mut u32) -> Option<i128> {
        *looks = looks.checked_sub(1)?;
        if let Some(form) = self.forms[v].clone() {
            return self.prover.fits(&form).then(|| self.prover.most(&form).min(MAX_COUNTER + 1));
        }
        let InstData { op, operands, .. } = self.body.def_inst(v)?;
        let found = match (op, operands.as_slice()) {
            (Op::Const(n), _) if *self.body.ty(v) == Type::Index => i128::from(n.as_i64()).abs(),
            (Op::DimValue(d), _) => {
                let form = self.prover.computed(d)?;
                self.prover.most(&form).min(i128::from(i64::MAX))
            }
            (Op::Binary(op), [a, b]) => {
                let (a, b) = (self.most_of_value(*a, looks)?, self.most_of_value(*b, looks)?);
                match op {
                    BinaryOp::Add | BinaryOp::Sub => a.checked_add(b)?,
                    BinaryOp::Mul => a.checked_mul(b)?,
                    BinaryOp::Min | BinaryOp::Max => a.max(b),
                    _ => return None,
                }
            }
            _ => return None,
        };
        (found <= MAX_COUNTER).then_some(found)
    }

    /// The difference between a value and `v`, if it is a constant.
    fn step(&self, x: Value, v: Value, depth: u32) -> Option<i128> {
        if x == v {
            return Some(0);
        }
        let InstData { op, operands, .. } = self.body.def_inst(x)?;
        let (&[a, b], true) = (operands.as_slice(), depth > 0) else { return None };
        let number = |v: Value| match self.body.def_inst(v).map(|d| &d.op) {
            Some(Op::Const(n)) => Some(i128::from(n.as_i64())),
            Some(Op::DimValue(d)) => d.as_const().map(i128::from),
            _ => None,
        };
        match op {
            Op::Binary(BinaryOp::Add) => match (number(a), number(b)) {
                (_, Some(n)) => self.step(a, v, depth - 1)?.checked_add(n),
                (Some(n), _) => self.step(b, v, depth - 1)?.checked_add(n),
                _ => None,
            },
            Op::Binary(BinaryOp::Sub) => self.step(a, v, depth - 1)?.checked_sub(number(b)?),
            _ => None,
        }
    }

    /// Processes an instruction: the index it defines, and the facts after it.
    pub(super) fn instruction(&mut self, i: Inst, at: Block) {
        let data = self.body.inst(i);
        let Some(v) = data.result.filter(|v| *self.body.ty(*v) == Type::Index) else { return };
        let form = match (&data.op, data.operands.as_slice()) {
            (Op::Const(n), _) => Poly::int(i128::from(n.as_i64())),
            (Op::DimValue(d), _) => match self.prover.computed(d) {
                Some(p) => p,
                None => self.anything(),
            },
            (Op::Binary(op), [a, b]) => {
                let (a, b) = (self.form(*a), self.form(*b));
                match self.binary(*op, &a, &b, at) {
                    Some(p) => p,
                    None => self.anything(),
                }
            }
            (Op::Select, [_, a, b]) => {
                let one_of = vec![self.form(*a), self.form(*b)];
                if one_of.iter().all(|p| self.prover.fits(p)) {
                    self.prover.fresh(Bounds { one_of, ..Bounds::default() })
                } else {
                    self.anything()
                }
            }
            (Op::CheckIndex { .. }, [a, b]) => {
                let (index, bound) = (self.form(*a), self.form(*b));
                self.checked(index, &bound, at)
            }
            _ => self.anything(),
        };
        self.forms[v] = Some(form);
    }

    /// An index that is in `0..bound` from now on.
    fn checked(&mut self, index: Poly, bound: &Poly, at: Block) -> Poly {
        let last = bound.sub(&Poly::int(1)).filter(|_| self.prover.fits(bound));
        let exact = self.prover.fits(&index);
        if exact {
            self.facts[at].push(index.clone().tightened());
            self.facts[at].extend(last.as_ref().and_then(|l| l.sub(&index)).map(Poly::tightened));
        }
        if let Some(n) = index.as_int() {
            return Poly::int(n);
        }
        let upper = last.into_iter().map(|l| (1, l)).collect();
        let one_of = if exact { vec![index] } else { Vec::new() };
        self.prover.fresh(Bounds { natural: true, upper, one_of, ..Bounds::default() })
    }

    fn binary(&mut self, op: BinaryOp, a: &Poly, b: &Poly, at: Block) -> Option<Poly> {
        match op {
            BinaryOp::Add => return a.add(b),
            BinaryOp::Sub => return a.sub(b),
            BinaryOp::Mul => return product(a, b),
            _ => {}
        }
        if !self.prover.fits(a) || !self.prover.fits(b) {
            return None;
        }
        let both = || vec![a.clone(), b.clone()];
        let bounds = || vec![(1, a.clone()), (1, b.clone())];
        Some(match op {
            BinaryOp::Min | BinaryOp::Max => {
                if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
                    return Some(Poly::int(if op == BinaryOp::Min { x.min(y) } else { x.max(y) }));
                }
                let mut natural = |p: &Poly| self.proves(Some(p.clone()), at, &[]);
                let natural = if op == BinaryOp::Min { natural(a) && natural(b) } else { natural(a) || natural(b) };
                let (lower, upper) = if op == BinaryOp::Min { (Vec::new(), bounds()) } else { (bounds(), Vec::new()) };
                self.prover.fresh(Bounds { natural, lower, upper, one_of: both(), ..Bounds::default() })
            }
            BinaryOp::Div => self.quotient(a, b, at)?,
            BinaryOp::Rem => match b.as_int() {
                Some(n) => a.combine(1, &self.quotient(a, b, at)?, n.checked_neg()?)?,
                None if self.proves(b.sub(&Poly::int(1)), at, &[]) => {
                    let upper = vec![(1, b.sub(&Poly::int(1))?)];
                    self.prover.fresh(Bounds { natural: true, upper, ..Bounds::default() })
                }
                None => return None,
            },
            _ => return None,
        })
    }

    /// `floor(p / 2)`
    pub(super) fn halved(&mut self, p: &Poly, at: Block) -> Option<Poly> {
        self.quotient(p, &Poly::int(2), at)
    }

    /// `floor(a / b)`
    fn quotient(&mut self, a: &Poly, b: &Poly, at: Block) -> Option<Poly> {
        let natural = self.proves(Some(a.clone()), at, &[]);
        let Some(n) = b.as_int() else {
            // At least 1 times the quotient is at most the dividend.
            let positive = natural && self.proves(b.sub(&Poly::int(1)), at, &[]);
            let upper = vec![(1, a.clone())];
            return positive.then(|| self.prover.fresh(Bounds { natural, upper, ..Bounds::default() }));
        };
        if n < 1 {
            return None;
        }
        if let Some(exact) = a.divided(n) {
            return Some(exact);
        }
        let lower = vec![(n, a.sub(&Poly::int(n - 1))?)];
        Some(self.prover.fresh(Bounds { natural, lower, upper: vec![(n, a.clone())], ..Bounds::default() }))
    }
}

/// Expresses a comparison as non-negative polynomials.
fn compared(op: CmpOp, truth: bool, a: &Poly, b: &Poly, facts: &mut Vec<Poly>) {
    // The larger one, the smaller one, and the minimum difference.
    let mut say = |large: &Poly, small: &Poly, by: i128| {
        facts.extend(large.sub(small).and_then(|d| d.sub(&Poly::int(by))).map(Poly::tightened));
    };
    match (op, truth) {
        (CmpOp::Lt, true) | (CmpOp::Ge, false) => say(b, a, 1),
        (CmpOp::Le, true) | (CmpOp::Gt, false) => say(b, a, 0),
        (CmpOp::Gt, true) | (CmpOp::Le, false) => say(a, b, 1),
        (CmpOp::Ge, true) | (CmpOp::Lt, false) => say(a, b, 0),
        (CmpOp::Eq, true) | (CmpOp::Ne, false) => {
            say(a, b, 0);
            say(b, a, 0);
        }
        (CmpOp::Eq, false) | (CmpOp::Ne, true) => {}
    }
}
