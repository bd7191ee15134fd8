//! Which expressions over dimensions (forms) are not known to fit 64 bits: calls evaluate them on entry, every step checked.
//!
//! In: a module. Out: for an entry point, the facts that each call checks beyond those that the module states ([`unstated`]), and
//! for proofs, what is known of sizes where that was done ([`of_plan`], [`of_kernel`]). Code computes forms modulo 2^64, so all
//! that is proved of them holds only because of these checks; they are derived from the module, not trusted to its text.
//!
//! Every form that code evaluates is considered: those of the plans with the entry's name, and of the kernels that these launch. If a
//! form counts elements, four times as much must fit, so that indices up to a tile beyond it fit too. If a form names a length, whose
//! value is known later, its largest size for any such value must fit. Most forms need no check: the bytes of an argument fit
//! 2^[`ADDRESS_BITS`](crate::shape::ADDRESS_BITS).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::{Body, BufferType, Kernel, Module, Op, Plan, PlanVariant, Type};
use crate::shape::{ADDRESS_BITS, Dim, Fact, Sizes};

/// A form that counts elements is multiplied by this before it is checked: bytes of an element, as for tensors of the graph.
const ELEMENT: i64 = 4;
const MOST: i128 = i64::MAX as i128;

/// A form that code evaluates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Form {
    /// What must fit; it names no length.
    size: Dim,
    /// The form.
    dim: Dim,
    /// How many times its size must fit.
    times: i64,
}

impl Form {
    /// `None` for a number, and for what no call can compute ([`is_computable`]).
    fn new(dim: &Dim, counts: bool, most: &BTreeMap<&str, &Dim>) -> Option<Form> {
        if dim.as_const().is_some() || !is_computable(dim) {
            return None;
        }
        let named = dim.symbols().iter().any(|name| most.contains_key(&**name));
        // What is divided must fit too, and is what the form alone does not say.
        let whole = numerator(dim);
        let size = if named { whole.size_at_most(&|name| most.get(name).map(|d| (*d).clone())) } else { whole };
        let more = size.mul(&Dim::from(ELEMENT));
        let times = if counts && is_computable(&more) { ELEMENT } else { 1 };
        Some(Form { size: if times == 1 { size } else { more }, dim: dim.clone(), times })
    }
}

/// What is divided when a form is computed: `T*T` of `T*T/4`.
fn numerator(dim: &Dim) -> Dim {
    dim.as_quotient().0
}

/// Can a call compute a form, with coefficients that fit?
pub(crate) fn is_computable(d: &Dim) -> bool {
    !d.is_too_long() && d.magnitude() <= MOST
}

/// What a call of an entry point checks beyond what the module states.
pub fn unstated(module: &Module, name: &str) -> Vec<Fact> {
    of_plan(module, name).unstated
}

/// What calls of the plans with a name check, and what follows from it.
pub(crate) struct Checked {
    /// What they check beyond what the module states.
    pub(crate) unstated: Vec<Fact>,
    /// What is known of sizes then.
    pub(crate) sizes: Sizes,
    /// Forms that no call can check: a length that they name could be too large.
    pub(crate) beyond: Vec<Dim>,
}

/// What calls of the plans with a name check.
pub(crate) fn of_plan(module: &Module, name: &str) -> Checked {
    let plans: Vec<&Plan> =
        module.plans.iter().filter(|p| p.name == name && p.variant != PlanVariant::Prepare).collect();
    let mut sizes = Sizes::default();
    if let Some(e) = module.entries.iter().find(|e| e.name == name) {
        e.args.iter().for_each(|a| sizes.argument(&a.ty));
        for (fact, _) in &e.checks {
            sizes.evaluated(&fact.left, MOST);
            sizes.evaluated(&fact.right, MOST);
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
    // The largest first: smaller ones often follow.
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
            sizes.evaluated(&f.size, MOST);
        }
        // The form itself where it names a length.
        sizes.evaluated(&f.dim, MOST / i128::from(f.times));
    }
    for p in &plans {
        for (name, most) in p.lengths() {
            sizes.symbol(name, sizes.of(most).min(MOST));
        }
    }
    Checked { unstated, sizes, beyond }
}

/// What is known of sizes in a kernel that no plan launches: it is run for dimensions of machines alone.
pub(crate) fn of_kernel(k: &Kernel) -> Sizes {
    let mut sizes = Sizes::default();
    k.symbols.iter().for_each(|s| sizes.symbol(s, 1 << ADDRESS_BITS));
    let mut dims = Evaluated::new();
    kernel(k, &mut dims);
    let forms: BTreeSet<Form> =
        dims.iter().filter_map(|(dim, counts)| Form::new(dim, *counts, &BTreeMap::new())).collect();
    forms.iter().for_each(|f| sizes.evaluated(&f.dim, MOST / i128::from(f.times)));
    sizes
}

/// Dimensions that code evaluates, each once (most are in many places), and whether they count elements.
type Evaluated<'a> = BTreeSet<(Cow<'a, Dim>, bool)>;

/// Those of a body.
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

/// Those of a buffer's type.
fn buffer<'a>(b: &'a BufferType, all: &mut Evaluated<'a>) {
    let dims = b.shape.iter().chain(&b.strides).filter(|d| d.as_const().is_none());
    all.extend(dims.map(|d| (Cow::Borrowed(d), true)));
}

/// Those of a kernel.
fn kernel<'a>(k: &'a Kernel, all: &mut Evaluated<'a>) {
    body(&k.body, all);
    for g in &k.grid {
        // Points are counted from the extent rounded up.
        all.insert((Cow::Owned(g.extent.add(&Dim::from(g.step.max(1) - 1))), true));
    }
    for p in &k.params {
        if let Type::Buffer(b) = k.body.ty(p.value) {
            buffer(b, all);
        }
    }
}
