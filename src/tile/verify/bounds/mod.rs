//! Proves that accesses stay in their buffers, for all values of the dimensions.
//!
//! In: a module whose kernels and plans are otherwise well formed. Out: errors for what is not proved. The parts: indices as
//! polynomials and facts from control flow (`flow`), the inequalities to prove of kernels and plans (`kernel`, `plan`). The proofs
//! are found by [`shape::prove`](crate::shape::prove).
//!
//! What is known of the dimensions: each is at least 0; so is every extent of an entry point's arguments and results; the forms
//! that code evaluates fit 64 bits, which calls check where it is not known ([`fits`]); the entry point's conditions hold; and what
//! a plan checks by `check_index` before its first launch does. A kernel is checked once for each set of facts of the plans that
//! launch it, and without facts if none does. An extent with a divisor counts as exact only where the conditions, or checks that
//! stand before it, make it an integer.

mod flow;
mod kernel;
mod plan;

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::Sink;
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Fact, Factor, Facts, Relation, Sizes};
use crate::tile::fits;
use crate::tile::text::At;
use crate::tile::{Block, Body, Kernel, Module, Op, Plan, PlanOp, PlanVariant, Type, Value};

/// What is known of the dimensions in each plan of a module, found when it is first asked for.
pub(super) struct Plans<'a> {
    module: &'a Module,
    list: Vec<OnceCell<InPlan<'a>>>,
}

/// What is known in the kernels that a plan launches.
struct InPlan<'a> {
    launched: BTreeSet<&'a str>,
    known: Known,
}

impl<'a> Plans<'a> {
    /// Of this module.
    pub(super) fn new(module: &'a Module) -> Plans<'a> {
        Plans { module, list: module.plans.iter().map(|_| OnceCell::new()).collect() }
    }

    /// Each plan's.
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
            At::Head,
            format!("no call can tell whether {d} fits 64 bits, for lengths that it names are too large"),
        );
    }
    let forms = known.forms.clone();
    checked_later(p, &mut known);
    let slots = p.slots.iter().map(|s| &s.bytes).collect::<Vec<_>>();
    whole(&p.body, &slots, &known.facts, &known.divisions, sink);
    // Of a dimension that has its value later, what is known follows from where a plan is.
    plan::check(module, p, &forms, &known, sink);
}

/// Checks a kernel.
pub(super) fn kernel(plans: &Plans<'_>, k: &Kernel, sink: &mut Sink) {
    let mut seen: Vec<(&Known, Sizes)> = Vec::new();
    for InPlan { launched, known } in plans.iter() {
        if !launched.contains(k.name.as_str()) {
            continue;
        }
        let sizes = known.sizes.only(&k.symbols);
        let is_new = |(s, own): &(&Known, Sizes)| {
            s.forms != known.forms
                || s.facts.known != known.facts.known
                || s.divisions != known.divisions
                || *own != sizes
        };
        if seen.iter().all(is_new) {
            seen.push((known, sizes));
        }
    }
    // A kernel that no plan launches must be right for all dimensions.
    let nothing = Known::default();
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

/// What is known of a plan's dimensions.
#[derive(Default)]
struct Known {
    /// What is at least 0.
    forms: Vec<Dim>,
    /// The conditions.
    facts: Facts,
    /// What is checked where a dimension has its value.
    divisions: Vec<Division>,
    /// What dimensions are at most in size.
    sizes: Sizes,
    /// Forms of which calls cannot tell whether they fit.
    beyond: Vec<Dim>,
}

/// That a plan checks a division to leave nothing.
#[derive(PartialEq)]
struct Division {
    fact: Fact,
    /// Where: from the place after it on.
    block: Block,
    place: usize,
}

fn known(module: &Module, p: &Plan) -> Known {
    let fits::Checked { sizes, beyond, .. } = fits::of_plan(module, &p.name);
    let mut known = Known { forms: checked_first(&p.body), sizes, beyond, ..Known::default() };
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

/// What a plan checks of the dimensions before it launches anything, as forms that are at least 0.
fn checked_first(body: &Body) -> Vec<Dim> {
    let mut forms = Vec::new();
    for i in &body.block(body.entry()).insts {
        let data = body.inst(*i);
        match (&data.op, data.operands.as_slice()) {
            // What names such a dimension is for those who know it.
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

/// What a plan checks of dimensions where they have their values, before the next launch: what names them holds wherever they
/// are named.
fn checked_later(p: &Plan, known: &mut Known) {
    let body = &p.body;
    if p.lengths().next().is_none() {
        return;
    }
    for block in &body.layout {
        // Those that have had their values since the last launch.
        let mut fresh: Vec<&str> = Vec::new();
        // What was checked to be at least 1.
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
                    // What a division leaves is less than 1. By 0 it leaves nothing.
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

/// An index that is a number or a dimension.
fn number(body: &Body, v: Value) -> Option<Dim> {
    match body.def_inst(v).map(|d| &d.op) {
        Some(Op::Const(n)) => Some(Dim::from(n.as_i64())),
        Some(Op::DimValue(d)) => Some(d.clone()),
        _ => None,
    }
}

/// Dimensions are integers: one with a divisor is exact by the conditions, or by a division that was checked before.
fn whole(body: &Body, others: &[&Dim], facts: &Facts, divisions: &[Division], sink: &mut Sink) {
    let mut check = |at: At, d: &Dim, facts: &Facts| {
        if !exact(d, facts) {
            sink.error(at, format!("nothing says that {d} is an integer"));
        }
    };
    others.iter().for_each(|d| check(At::Head, d, facts));
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
                    Op::DimValue(d) => check(At::Inst(i), d, &facts),
                    Op::Plan(PlanOp::View { offset, strides }) => {
                        std::iter::once(offset).chain(strides).for_each(|d| check(At::Inst(i), d, &facts));
                    }
                    _ => {}
                }
                if let Some(Type::Buffer(ty)) = data.result.map(|v| body.ty(v)) {
                    ty.shape.iter().chain(&ty.strides).for_each(|d| check(At::Inst(i), d, &facts));
                }
            }
        }
    }
}

/// Is a dimension exact, with the sides of the rounded quotients in it?
fn exact(d: &Dim, facts: &Facts) -> bool {
    let rounds = |f: &&Factor| !matches!(f, Factor::Quotient(..));
    let mut inside = d.factors().filter(rounds).flat_map(Factor::inner);
    if !inside.all(|d| exact(d, facts)) {
        return false;
    }
    let (_, divisor) = d.as_quotient();
    d.is_polynomial() || facts.divides(&d.mul(&divisor), &divisor)
}
