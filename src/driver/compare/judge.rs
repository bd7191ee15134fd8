//! Judges two tensors: how far apart are they, in units of the error bound?
//!
//! In: the tensors of both sides, and the same values in `f64` with running error bounds
//! ([`Bounded`]) where a side has graph IR. Out: how many elements differ, and which differs most.
//!
//! The bound of an element is the sum of the errors that either side may have; where only one has a
//! finite bound it counts twice. An element without a bound on the side that is nearer to the
//! program as written (the *reference*) may be anything. Integers must be equal.

use crate::ir::interp::bounded::Bounded;
use crate::ir::interp::{Array, Data};
use crate::tensor::Tensor;

/// The unit of values of which neither side has a bound, as a share of the largest magnitude.
const SHARE: f64 = 1.0 / 65536.0;

/// An element that differs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Element {
    /// Its index.
    pub(super) index: Vec<usize>,
    /// The number on each side.
    pub(super) numbers: [f64; 2],
    /// The bound.
    pub(super) bound: f64,
    /// The distance in units of the bound.
    pub(super) units: f64,
    /// The number that the IR of each side means, in `f64`, and whether it admits the number.
    pub(super) meant: [Option<(f64, bool)>; 2],
}

/// How two tensors compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// The number of elements.
    pub(super) elements: usize,
    /// How many differ.
    pub(super) differ: usize,
    /// How many have no bound, though they are not equal, and the first of them.
    pub(super) open: usize,
    pub(super) first_open: Option<(Vec<usize>, [f64; 2])>,
    /// The largest distance of elements that agree.
    pub(super) near: f64,
    /// The first that differs.
    pub(super) first: Option<Element>,
    /// The one that differs most.
    pub(super) worst: Option<Element>,
    /// The shapes, if they are not the same.
    pub(super) shapes: Option<[Vec<usize>; 2]>,
}

impl Verdict {
    pub(super) fn is_same(&self) -> bool {
        self.differ == 0 && self.shapes.is_none()
    }
}

/// The bounds of a value on one side.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    pub(super) array: &'a Array<Bounded>,
    /// Has rounding decided a comparison before?
    pub(super) doubtful: bool,
}

/// Compares two tensors. `bounds` of both sides; `reference`: which side is nearer to the program;
/// `most`: how many bounds apart numbers may be, 0 for equal bits.
pub(super) fn judge(tensors: [&Tensor; 2], bounds: [Option<Bounds<'_>>; 2], reference: usize, most: f64) -> Verdict {
    let [one, two] = tensors;
    let count = |t: &Tensor| t.shape().iter().product::<usize>();
    if count(one) != count(two) {
        let shapes = Some([one.shape().to_vec(), two.shape().to_vec()]);
        return Verdict { elements: count(one), shapes, ..Verdict::default() };
    }
    let mut verdict = Verdict { elements: count(one), ..Verdict::default() };
    let is_float = one.elem().is_float() && two.elem().is_float();
    let (xs, ys) = (one.to_f64(), two.to_f64());
    let whole = if is_float { (Vec::new(), Vec::new()) } else { (one.to_i64(), two.to_i64()) };
    let largest = xs.iter().chain(&ys).filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    for (at, (x, y)) in xs.iter().zip(&ys).enumerate() {
        let equal = match is_float {
            true => x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()),
            false => whole.0.get(at) == whole.1.get(at),
        };
        if equal || (x == y && most > 0.0) {
            continue;
        }
        let own = bounds.map(|b| b.and_then(|b| element(b, at)));
        let bound = match is_float {
            true => unit(own[reference], own[1 - reference], largest * SHARE),
            false if own.iter().flatten().any(|b| b.error.is_infinite()) => f64::INFINITY,
            false => 0.0,
        };
        let far = (x - y).abs();
        let units = match () {
            () if bound.is_infinite() && most > 0.0 => {
                verdict.open += 1;
                verdict.first_open.get_or_insert_with(|| (index(at, one.shape()), [*x, *y]));
                continue;
            }
            () if far.is_nan() => f64::INFINITY,
            () if far <= bound * most => {
                verdict.near = verdict.near.max(far / bound);
                continue;
            }
            () => far / bound,
        };
        verdict.differ += 1;
        let meant = [(own[0], x), (own[1], y)].map(|(own, x)| own.map(|own| (own.value, own.admits(*x, 1.0))));
        let worse = verdict.worst.as_ref().is_none_or(|worst| units > worst.units);
        if worse || verdict.first.is_none() {
            let found = Element { index: index(at, one.shape()), numbers: [*x, *y], bound, units, meant };
            verdict.first.get_or_insert_with(|| found.clone());
            if worse {
                verdict.worst = Some(found);
            }
        }
    }
    verdict
}

/// The bound of an element by its bound on the reference and on the other side.
fn unit(reference: Option<Bounded>, other: Option<Bounded>, without: f64) -> f64 {
    match (reference, other) {
        (Some(own), Some(other)) if other.error.is_finite() => own.error + other.error,
        (Some(own), _) => 2.0 * own.error,
        (None, Some(other)) => 2.0 * other.error,
        (None, None) => without,
    }
}

/// The bounded value of an element.
pub(super) fn element(bounds: Bounds<'_>, at: usize) -> Option<Bounded> {
    let mut found = match &bounds.array.data {
        Data::Float(list) => *list.get(at)?,
        Data::Int(list) => Bounded::exact(*list.get(at)? as f64),
        Data::Bool(list) => Bounded::exact(f64::from(u8::from(*list.get(at)?))),
    };
    if bounds.doubtful || found.error.is_nan() {
        found.error = f64::INFINITY;
    }
    Some(found)
}

/// The index of an element in a shape.
pub(super) fn index(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, n) in index.iter_mut().zip(shape).rev() {
        (*i, at) = (at % (*n).max(1), at / (*n).max(1));
    }
    index
}
