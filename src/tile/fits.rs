//! Finds expressions over dimensions that are not known to fit 64 bits; calls evaluate them on
//! entry with checked arithmetic.
//!
//! In: a module. Out: for an entry point, the facts that each call checks beyond those in the
//! module ([`unstated`]), and for proofs, the resulting bounds on sizes ([`of_plan`],
//! [`of_kernel`]). Code computes expressions modulo 2^64, so proofs about them are valid only
//! because of these checks; they are derived from the module, not taken from its text.
//!
//! All expressions that code evaluates are considered, in the plans with the entry's name and in
//! the kernels that these launch. If an expression counts elements, four times its value must fit,
//! so that indices up to a tile beyond it fit too. If it depends on a dimension bound later, its
//! maximum over all values must fit. Most expressions need no check: the bytes of an argument fit
//! 2^[`ADDRESS_BITS`](crate::shape::ADDRESS_BITS).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::{Body, BufferType, Kernel, Module, Op, Plan, PlanVariant, Type};
use crate::shape::{ADDRESS_BITS, Dim, Fact, Sizes};

/// Factor for expressions that count elements: bytes per element, as for tensors of the graph.
const ELEMENT: i64 = 4;
const MAX_VALUE: i128 = i64::MAX as i128;

/// An expression that code evaluates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    /// The bound that must fit; it does not depend on dimensions bound later.
    size: Dim,
    /// The expression itself.
    dim: Dim,
    /// Factor by which `size` is multiplied in the check.
    times: i64,
}

impl Form {
    /// `None` for constants, and for expressions that no call can compute ([`is_computable`]).
    fn new(dim: &Dim, counts: bool, most: &BTreeMap<&str, &Dim>) -> Option<Form> {
        if dim.as_const().is_some() || !is_computable(dim) {
            return None;
        }
        let named = dim.symbols().iter().any(|name| most.contains_key(&**name));
        // The numerator must fit too, which the expression itself does not imply.
        let whole = numerator(dim);
        let size = if named { whole.size_at_most(&|name| most.get(name).map(|d| (*d).clone())) } else { whole };
        let more = size.mul(&Dim::from(ELEMENT));
        let times = if counts && is_computable(&more) { ELEMENT } else { 1 };
        Some(Form { size: if times == 1 { size } else { more }, dim: dim.clone(), times })
    }
}

/// The intermediate result before the final division: `T*T` of `T*T/4`.
fn numerator(dim: &Dim) -> Dim {
    dim.as_quotient().0
}

/// Can a call compute an expression, with coefficients that fit?
pub(crate) fn is_computable(d: &Dim) -> bool {
    !d.is_too_long() && d.magnitude() <= MAX_VALUE
}

/// The checks of an entry point's calls beyond those in the module.
pub fn unstated(module: &Module, name: &str) -> Vec<Fact> {
    of_plan(module, name).unstated
}

/// The checks of the plans with a name, and their consequences.
pub(crate) struct Checked {
    /// Checks beyond those in the module.
    pub(crate) unstated: Vec<Fact>,
    /// Resulting bounds on sizes.
    pub(crate) sizes: Sizes,
    /// Expressions that no call can check: a dimension bound later could make them too large.
    pub(crate) beyond: Vec<Dim>,
}

/// Computes the checks of the plans with a name.
pub(crate) fn of_plan(module: &Module, name: &str) -> Checked {
    let plans: Vec<&Plan> =
        module.plans.iter().filter(|p| p.name == name && p.variant != PlanVariant::Prepare).collect();
    let mut sizes = Sizes::default();
    if let Some(e) = module.entries.iter().find(|e| e.name == name) {
        e.args.iter().for_each(|a| sizes.argument(&a.ty));
        for (fact, _) in &e.checks {
            sizes.evaluated(&fact.left, MAX_VALUE);
            sizes.evaluated(&fact.right, MAX_VALUE);
        }
    }
    let mut forms = BTreeSet::new();
    for p in &plans {
        let mut dims = Evaluated::new();
        dims.extend(p.slots.iter().map(|s| (Cow::Borrowed(&s.bytes), false)));
        body(&p.body, &mut dims);
        for k in p.reached(&module.kernels).iter().filter_map(|name| module.kernels.iter().find(|k| k.name == **name)) {
            kernel(k, &mut dims);
        }
        let most: BTreeMap<&str, &Dim> = p.lengths().collect();
        forms.extend(dims.iter().filter_map(|(dim, counts)| Form::new(dim, *counts, &most)));
    }
    // Largest first: smaller ones often follow.
    let mut forms: Vec<Form> = forms.into_iter().collect();
    forms.sort_by_key(|f| std::cmp::Reverse(f.size.magnitude()));
    let (mut unstated, mut beyond) = (Vec::new(), Vec::new());
    for f in &forms {
        if !is_computable(&f.size) {
            beyond.push(f.dim.clone());
            continue;
        }
        if !sizes.fits(&f.size) {
            unstated.push(Fact::fits(f.size.clone()));
            sizes.evaluated(&f.size, MAX_VALUE);
        }
        // The expression itself, if it depends on a dimension bound later.
        sizes.evaluated(&f.dim, MAX_VALUE / i128::from(f.times));
    }
    for p in &plans {
        for (name, most) in p.lengths() {
            sizes.symbol(name, sizes.bound(most).min(MAX_VALUE));
        }
    }
    Checked { unstated, sizes, beyond }
}

/// Bounds on sizes in a kernel that no plan launches: it is only run with dimensions that machines
/// can have.
pub(crate) fn of_kernel(k: &Kernel) -> Sizes {
    let mut sizes = Sizes::default();
    k.symbols.iter().for_each(|s| sizes.symbol(s, 1 << ADDRESS_BITS));
    let mut dims = Evaluated::new();
    kernel(k, &mut dims);
    let forms: BTreeSet<Form> =
        dims.iter().filter_map(|(dim, counts)| Form::new(dim, *counts, &BTreeMap::new())).collect();
    forms.iter().for_each(|f| sizes.evaluated(&f.dim, MAX_VALUE / i128::from(f.times)));
    sizes
}

/// Expressions that code evaluates, without duplicates, and whether they count elements.
type Evaluated<'a> = BTreeSet<(Cow<'a, Dim>, bool)>;

/// Collects from a body.
fn body<'a>(body: &'a Body, all: &mut Evaluated<'a>) {
    for (_, _, data) in body.insts() {
        let ty = data.result.map(|v| body.ty(v));
        let counts = !matches!((&data.op, ty), (Op::DimValue(_), Some(Type::Scalar(_))));
        all.extend(data.op.dims().into_iter().filter(|d| d.as_const().is_none()).map(|d| (Cow::Borrowed(d), counts)));
        if let Some(Type::Buffer(b)) = ty {
            buffer(b, all);
        }
    }
}

/// Collects from a buffer's type.
fn buffer<'a>(b: &'a BufferType, all: &mut Evaluated<'a>) {
    let dims = b.shape.iter().chain(&b.strides).filter(|d| d.as_const().is_none());
    all.extend(dims.map(|d| (Cow::Borrowed(d), true)));
}

/// Collects from a kernel.
fn kernel<'a>(k: &'a Kernel, all: &mut Evaluated<'a>) {
    body(&k.body, all);
    for g in &k.grid {
        // The number of points is the extent divided by the step, rounded up.
        all.insert((Cow::Owned(g.extent.add(&Dim::from(g.step.max(1) - 1))), true));
    }
    for p in &k.params {
        if let Type::Buffer(b) = k.body.ty(p.value) {
            buffer(b, all);
        }
    }
}
