//! Proves that accesses stay in their buffers, for all values of the dimensions.
//!
//! In: a module whose kernels and plans are otherwise well formed. Out: errors for what is not
//! proved. Parts: indices as polynomials, with facts from control flow (`flow`), and the
//! inequalities to prove for kernels and plans (`kernel`, `plan`). The prover is
//! [`shape::prove`](crate::shape::prove).
//!
//! Assumptions about dimensions: each is non-negative; so is every extent of an entry point's
//! arguments and results; expressions that code evaluates fit 64 bits, which calls check if it is
//! not known ([`fits`]); the entry point's conditions hold; and so do the `check_index` operations
//! of a plan before its first launch. A kernel is checked once for each set of facts of the plans
//! that launch it, and without facts if none does. An extent with a divisor counts as exact only if
//! the conditions, or earlier checks, make it an integer.

mod flow;
mod kernel;
mod plan;

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::Sink;
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Fact, Factor, Facts, Relation, Sizes};
use crate::tile::fits;
use crate::tile::text::ErrorLocation;
use crate::tile::{Block, Body, Kernel, Module, Op, Plan, PlanOp, PlanVariant, Type, Value};

/// Facts about the dimensions in each plan of a module, computed on first use.
pub(super) struct Plans<'a> {
    module: &'a Module,
    list: Vec<OnceCell<InPlan<'a>>>,
}

/// Facts in the kernels that a plan launches.
struct InPlan<'a> {
    launched: BTreeSet<&'a str>,
    known: PlanFacts,
}

impl<'a> Plans<'a> {
    pub(super) fn new(module: &'a Module) -> Plans<'a> {
        Plans { module, list: module.plans.iter().map(|_| OnceCell::new()).collect() }
    }

    /// The facts of each plan.
    fn iter(&self) -> impl Iterator<Item = &InPlan<'a>> {
        self.module.plans.iter().zip(&self.list).map(|(p, cell)| {
            cell.get_or_init(|| {
                let mut known = known(self.module, p);
                checked_later(p, &mut known);
                InPlan { launched: p.reached(&self.module.kernels), known }
            })
        })
    }
}

/// Checks a plan.
pub(super) fn plan(module: &Module, p: &Plan, sink: &mut Sink) {
    let mut known = known(module, p);
    for d in &known.beyond {
        sink.error(
            ErrorLocation::Head,
            format!("no call can tell whether {d} fits 64 bits, for lengths that it names are too large"),
        );
    }
    let forms = known.forms.clone();
    checked_later(p, &mut known);
    let slots = p.slots.iter().map(|s| &s.bytes).collect::<Vec<_>>();
    whole(&p.body, &slots, &known.facts, &known.divisions, sink);
    // For a dimension bound at run time, facts depend on the position in the plan.
    plan::check(module, p, &forms, &known, sink);
}

/// Checks a kernel.
pub(super) fn kernel(plans: &Plans<'_>, k: &Kernel, sink: &mut Sink) {
    let mut seen: Vec<(&PlanFacts, Sizes)> = Vec::new();
    for InPlan { launched, known } in plans.iter() {
        if !launched.contains(k.name.as_str()) {
            continue;
        }
        let sizes = known.sizes.only(&k.symbols);
        let is_new = |(s, own): &(&PlanFacts, Sizes)| {
            s.forms != known.forms
                || s.facts.known != known.facts.known
                || s.divisions != known.divisions
                || *own != sizes
        };
        if seen.iter().all(is_new) {
            seen.push((known, sizes));
        }
    }
    // A kernel that no plan launches must be correct for all dimensions.
    let nothing = PlanFacts::default();
    if seen.is_empty() {
        seen.push((&nothing, fits::of_kernel(k)));
    }
    for (known, sizes) in seen {
        let before = sink.list.len();
        let mut facts = known.facts.clone();
        let own = |d: &Dim| d.symbols().iter().all(|s| k.symbols.iter().any(|own| **own == **s));
        let divisions = known.divisions.iter().map(|d| &d.fact).filter(|f| own(&f.left) && own(&f.right));
        facts.known.extend(divisions.cloned());
        whole(&k.body, &k.grid.iter().map(|g| &g.extent).collect::<Vec<_>>(), &facts, &[], sink);
        match k.is_persistent() {
            true => plan::persistent(plans.module, k, known, &sizes, sink),
            false => kernel::check(k, &known.forms, &sizes, sink),
        }
        if sink.list.len() != before {
            return;
        }
    }
}

/// Facts about a plan's dimensions.
#[derive(Default)]
struct PlanFacts {
    /// Non-negative expressions.
    forms: Vec<Dim>,
    /// The conditions.
    facts: Facts,
    /// Divisibility checks where a dimension is bound.
    divisions: Vec<Division>,
    /// Bounds on dimensions.
    sizes: Sizes,
    /// Expressions for which calls cannot check whether they fit.
    beyond: Vec<Dim>,
}

/// A plan's check that a division has no remainder.
#[derive(PartialEq)]
struct Division {
    fact: Fact,
    /// It holds after this position of the block.
    block: Block,
    place: usize,
}

fn known(module: &Module, p: &Plan) -> PlanFacts {
    let fits::Checked { sizes, beyond, .. } = fits::of_plan(module, &p.name);
    let mut known = PlanFacts { forms: checked_first(&p.body), sizes, beyond, ..PlanFacts::default() };
    let entry = module.entries.iter().find(|e| e.name == p.name && p.variant != PlanVariant::Prepare);
    let Some(e) = entry else { return known };
    let extents = e.args.iter().map(|a| &a.ty).chain(e.results.iter().map(|r| &r.ty)).flat_map(|t| &t.shape);
    for d in extents.filter(|d| !d.is_provably_nonnegative()) {
        if !known.forms.contains(d) {
            known.forms.push(d.clone());
        }
    }
    known.facts.known = e.checks.iter().map(|(fact, _)| fact.clone()).collect();
    known.forms.extend(known.facts.known.iter().flat_map(Fact::nonnegative));
    known
}

/// Checks of a plan on dimensions before its first launch, as non-negative expressions.
fn checked_first(body: &Body) -> Vec<Dim> {
    let mut forms = Vec::new();
    for i in &body.block(body.entry()).insts {
        let data = body.inst(*i);
        match (&data.op, data.operands.as_slice()) {
            // Expressions with such a dimension are handled where it is bound.
            (Op::Plan(PlanOp::Launch { .. }) | Op::Length { .. }, _) => break,
            (Op::CheckIndex { .. }, [index, bound]) => {
                if let (Some(index), Some(bound)) = (number(body, *index), number(body, *bound)) {
                    forms.extend([bound.sub(&index).sub(&Dim::one()), index]);
                }
            }
            _ => {}
        }
    }
    forms
}

/// Checks of a plan on dimensions where they are bound, before the next launch: expressions with
/// such a dimension then hold wherever they occur.
fn checked_later(p: &Plan, known: &mut PlanFacts) {
    let body = &p.body;
    if p.lengths().next().is_none() {
        return;
    }
    for block in &body.layout {
        // Dimensions bound since the last launch.
        let mut fresh: Vec<&str> = Vec::new();
        // Expressions checked to be at least 1.
        let mut positive: Vec<Dim> = Vec::new();
        for (place, i) in body.block(*block).insts.iter().enumerate() {
            let data = body.inst(*i);
            match (&data.op, data.operands.as_slice()) {
                (Op::Length { name, most }, _) => {
                    fresh.push(name);
                    known.forms.push(most.sub(&Dim::symbol(name)));
                }
                (Op::Plan(PlanOp::Launch { .. }), _) => fresh.clear(),
                (Op::CheckIndex { .. }, [index, bound]) => {
                    let names_one = |d: &Dim| d.symbols().iter().any(|s| fresh.contains(&&**s));
                    if let (Some(a), Some(b)) = (number(body, *index), number(body, *bound)) {
                        if a == Dim::zero() {
                            positive.push(b.clone());
                        }
                        let forms = [b.sub(&a).sub(&Dim::one()), a];
                        known.forms.extend(forms.into_iter().filter(&names_one));
                    }
                    // The remainder is less than 1. A division by 0 would have no remainder.
                    if let (Some((Op::Binary(BinaryOp::Rem), [a, b])), Some(1)) = (
                        body.def_inst(*index).map(|d| (&d.op, d.operands.as_slice())),
                        number(body, *bound).and_then(|d| d.as_const()),
                    ) && let (Some(left), Some(right)) = (number(body, *a), number(body, *b))
                        && (names_one(&left) || names_one(&right))
                        && (positive.contains(&right) || right.as_const().is_some_and(|n| n > 0))
                    {
                        let fact = Fact { left, relation: Relation::Divisible, right };
                        known.divisions.push(Division { fact, block: *block, place });
                    }
                }
                _ => {}
            }
        }
    }
}

/// An index that is a constant or a dimension.
fn number(body: &Body, v: Value) -> Option<Dim> {
    match body.def_inst(v).map(|d| &d.op) {
        Some(Op::Const(n)) => Some(Dim::from(n.as_i64())),
        Some(Op::DimValue(d)) => Some(d.clone()),
        _ => None,
    }
}

/// Dimensions must be integers: one with a divisor is exact by the conditions, or by an earlier
/// check of a division.
fn whole(body: &Body, others: &[&Dim], facts: &Facts, divisions: &[Division], sink: &mut Sink) {
    let mut check = |at: ErrorLocation, d: &Dim, facts: &Facts| {
        if !exact(d, facts) {
            sink.error(at, format!("nothing says that {d} is an integer"));
        }
    };
    others.iter().for_each(|d| check(ErrorLocation::Head, d, facts));
    let cfg = (!divisions.is_empty()).then(|| body.cfg());
    for b in &body.layout {
        let before = |d: &&Division| d.block != *b && cfg.as_ref().is_some_and(|cfg| cfg.dominates(d.block, *b));
        let mut facts = facts.clone();
        facts.known.extend(divisions.iter().filter(before).map(|d| d.fact.clone()));
        for (place, outer) in body.block(*b).insts.iter().enumerate() {
            let here = divisions.iter().filter(|d| d.block == *b && d.place + 1 == place);
            facts.known.extend(here.map(|d| d.fact.clone()));
            for i in body.with_inner(*outer) {
                let data = body.inst(i);
                match &data.op {
                    Op::DimValue(d) => check(ErrorLocation::Inst(i), d, &facts),
                    Op::Plan(PlanOp::View { offset, strides }) => {
                        std::iter::once(offset).chain(strides).for_each(|d| check(ErrorLocation::Inst(i), d, &facts));
                    }
                    _ => {}
                }
                if let Some(Type::Buffer(ty)) = data.result.map(|v| body.ty(v)) {
                    ty.shape.iter().chain(&ty.strides).for_each(|d| check(ErrorLocation::Inst(i), d, &facts));
                }
            }
        }
    }
}

/// Is a dimension exact, including the operands of rounded quotients in it?
fn exact(d: &Dim, facts: &Facts) -> bool {
    let rounds = |f: &&Factor| !matches!(f, Factor::Quotient(..));
    let mut inside = d.factors().filter(rounds).flat_map(Factor::inner);
    if !inside.all(|d| exact(d, facts)) {
        return false;
    }
    let (_, divisor) = d.as_quotient();
    d.is_polynomial() || facts.divides(&d.mul(&divisor), &divisor)
}
