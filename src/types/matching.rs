//! Matches arguments with a signature: infers the dimensions that a call binds, and its `..`.
//!
//! In: the shapes that a signature declares, over its own names, and the shapes of the arguments,
//! over the caller's. Out: a value for each name, over the caller's names, or the mismatch.
//! Equality is decided on symbols, never on the values that they happen to be bound to.

use std::collections::BTreeMap;

use crate::shape::{Dim, Fact, Facts, Relation};

use super::axes::{Axis, Misfit, Shape};

/// The dimensions that a call binds.
#[derive(Clone, Debug, Default)]
pub(super) struct Matching {
    /// Each name of the signature with its value, and the argument that determined it (`None`: the
    /// layer's generics).
    pub(super) dims: BTreeMap<String, (Dim, Option<usize>)>,
    /// The axes that `..` stands for.
    pub(super) rest: Option<Vec<Axis>>,
    /// The argument that last changed `..`.
    pub(super) rest_from: usize,
    /// Additional conditions, for names that were solved for.
    pub(super) conditions: Vec<Fact>,
    /// Pairs of dimensions that still contain an unknown name.
    deferred: Vec<Deferred>,
}

#[derive(Clone, Debug)]
struct Deferred {
    argument: usize,
    axis: usize,
    declared: Dim,
    given: Dim,
}

/// The reason why an argument does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The number of axes differs.
    Rank,
    /// A dimension differs: the required one, over the caller's names, and the given one.
    Dim {
        /// Index in the declared shape.
        axis: usize,
        /// The declared dimension, over the caller's names where known.
        wanted: Dim,
        /// The argument's dimension.
        given: Dim,
        /// Another argument that determined the name, if the declared dimension is a bare name.
        fixed_by: Option<usize>,
    },
    /// The leading dimensions of this argument and an earlier one do not broadcast.
    Lead(Misfit),
    /// A name cannot be solved for, because the facts do not prove a quotient to be an integer.
    NotWhole {
        /// Index in the declared shape.
        axis: usize,
        /// The dimension that is divided.
        dividend: Dim,
        /// The dimension that divides.
        divisor: Dim,
    },
    /// `..` of the argument is aligned with a dimension of the signature.
    Rest,
}

impl Matching {
    /// Starts with names that are known before any argument.
    pub(super) fn new(known: impl IntoIterator<Item = (String, Dim)>) -> Matching {
        let dims = known.into_iter().map(|(name, dim)| (name, (dim, None))).collect();
        Matching { dims, ..Matching::default() }
    }

    /// A matching with only the names known before an argument, and no `..`.
    pub(super) fn before(&self, argument: usize) -> Matching {
        let dims = self.dims.iter().filter(|(_, (_, by))| by.is_none_or(|by| by < argument));
        Matching { dims: dims.map(|(name, dim)| (name.clone(), dim.clone())).collect(), ..Matching::default() }
    }

    /// The dimension over the caller's names. An unknown name becomes one that no author can write,
    /// so that it is not confused with the caller's name of the same spelling.
    pub(super) fn apply(&self, dim: &Dim) -> Dim {
        dim.substitute(&|name| match self.dims.get(name) {
            Some((dim, _)) => Some(dim.clone()),
            None => Some(Dim::symbol(&open(name))),
        })
        .unwrap_or_else(|| dim.clone())
    }

    fn unknown(&self, dim: &Dim) -> Vec<String> {
        dim.symbols().iter().filter(|name| !self.dims.contains_key(&***name)).map(|name| name.to_string()).collect()
    }

    /// Matches one argument.
    ///
    /// # Errors
    /// The first mismatch.
    pub(super) fn argument(
        &mut self,
        index: usize,
        declared: &Shape,
        given: &Shape,
        facts: &Facts,
    ) -> Result<(), Unfit> {
        let (front, back) = match declared.rest() {
            None => {
                if given.rest().is_some() && given.rank() == declared.rank() {
                    return Err(Unfit::Rest);
                }
                if given.rank() != declared.rank() || given.rest().is_some() {
                    return Err(Unfit::Rank);
                }
                (declared.rank(), 0)
            }
            Some(at) => (at, declared.rank() - at - 1),
        };
        if given.rank() < front + back {
            return Err(Unfit::Rank);
        }
        let middle = given.rank() - back;
        let pairs = (0..front).map(|i| (i, i)).chain((0..back).map(|i| (declared.rank() - back + i, middle + i)));
        for (i, j) in pairs {
            let (Some(Axis::Dim(want)), Some(have)) = (declared.axes.get(i), given.axes.get(j)) else {
                return Err(Unfit::Rest);
            };
            match have {
                Axis::Rest => return Err(Unfit::Rest),
                Axis::Dim(have) => self.pair(index, i, want, have, facts)?,
            }
        }
        if declared.rest().is_some() {
            let lead = Shape { axes: given.axes.get(front..middle).unwrap_or_default().to_vec() };
            let joined = match &self.rest {
                None => lead,
                Some(rest) => {
                    let before = Shape { axes: rest.clone() };
                    before.broadcast(&lead).map_err(Unfit::Lead)?
                }
            };
            self.rest = Some(joined.axes);
            self.rest_from = index;
        }
        Ok(())
    }

    fn pair(&mut self, argument: usize, axis: usize, declared: &Dim, given: &Dim, facts: &Facts) -> Result<(), Unfit> {
        let unknown = self.unknown(declared);
        let wanted = self.apply(declared);
        let [name] = unknown.as_slice() else {
            if unknown.is_empty() {
                if wanted == *given {
                    return Ok(());
                }
                let fixed_by = declared.as_symbol().and_then(|name| self.dims.get(name)).and_then(|(_, by)| *by);
                return Err(Unfit::Dim { axis, wanted, given: given.clone(), fixed_by });
            }
            self.deferred.push(Deferred { argument, axis, declared: declared.clone(), given: given.clone() });
            return Ok(());
        };
        // `wanted` is `factor * name + constant`, or it cannot be solved yet.
        let unknown = open(name);
        let at = |n: i64| wanted.substitute(&|s| (s == unknown).then(|| Dim::from(n)));
        let Some((constant, one, two)) = at(0).zip(at(1)).zip(at(2)).map(|((a, b), c)| (a, b, c)) else {
            self.deferred.push(Deferred { argument, axis, declared: declared.clone(), given: given.clone() });
            return Ok(());
        };
        let factor = one.sub(&constant);
        if two.sub(&one) != factor || factor == Dim::zero() {
            self.deferred.push(Deferred { argument, axis, declared: declared.clone(), given: given.clone() });
            return Ok(());
        }
        let dividend = given.sub(&constant);
        if !facts.divides(&dividend, &factor) {
            return Err(Unfit::NotWhole { axis, dividend, divisor: factor });
        }
        let Some(solution) = dividend.div(&factor) else {
            return Err(Unfit::NotWhole { axis, dividend, divisor: factor });
        };
        if !solution.is_provably_nonnegative() {
            self.conditions.push(Fact { left: Dim::zero(), relation: Relation::Le, right: solution.clone() });
        }
        self.dims.insert(name.clone(), (solution, Some(argument)));
        Ok(())
    }

    /// Solves the deferred pairs, now that all arguments are known.
    ///
    /// # Errors
    /// The first mismatch, with its argument.
    pub(super) fn finish(&mut self, facts: &Facts) -> Result<(), (usize, Unfit)> {
        loop {
            let deferred = std::mem::take(&mut self.deferred);
            let before = deferred.len();
            for d in deferred {
                self.pair(d.argument, d.axis, &d.declared, &d.given, facts).map_err(|unfit| (d.argument, unfit))?;
            }
            if self.deferred.is_empty() || self.deferred.len() == before {
                return Ok(());
            }
        }
    }
}

/// The symbol of a name that is still unknown.
fn open(name: &str) -> String {
    format!("?{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Dim {
        text.parse::<i64>().map_or_else(|_| Dim::symbol(text), Dim::from)
    }

    #[test]
    fn binds_names_and_rest() {
        let facts = Facts::default();
        let mut m = Matching::new([("I".to_string(), d("D"))]);
        let declared = Shape { axes: vec![Axis::Rest, Axis::Dim(d("S")), Axis::Dim(d("I"))] };
        let given = Shape::from_dims([d("B"), d("H"), d("T"), d("D")]);
        assert_eq!(m.argument(0, &declared, &given, &facts), Ok(()));
        assert_eq!(m.dims["S"], (d("T"), Some(0)));
        assert_eq!(m.rest, Some(vec![Axis::Dim(d("B")), Axis::Dim(d("H"))]));
        // A shorter `..`: broadcast.
        assert_eq!(m.argument(1, &declared, &Shape::from_dims([d("H"), d("T"), d("D")]), &facts), Ok(()));
        assert!(matches!(
            m.argument(2, &declared, &Shape::from_dims([d("K"), d("T"), d("D")]), &facts),
            Err(Unfit::Lead(Misfit::Dims { .. }))
        ));
        assert!(matches!(
            m.argument(3, &declared, &Shape::from_dims([d("H"), d("Z"), d("D")]), &facts),
            Err(Unfit::Dim { fixed_by: Some(0), .. })
        ));
    }

    #[test]
    fn solves_linear_expressions() {
        let facts = Facts::default();
        let mut m = Matching::new([("H".to_string(), d("H"))]);
        let twice = d("N").mul(&d("2")).add(&d("1"));
        let declared = Shape::from_dims([twice, d("H").mul(&d("K"))]);
        let given = Shape::from_dims([d("S").mul(&d("4")).add(&d("1")), d("H").mul(&d("T"))]);
        assert_eq!(m.argument(0, &declared, &given, &facts), Ok(()));
        assert_eq!(m.dims["N"].0, d("S").mul(&d("2")));
        assert_eq!(m.dims["K"].0, d("T"));
        let mut m = Matching::default();
        let declared = Shape::from_dims([d("N").mul(&d("2"))]);
        assert!(matches!(m.argument(0, &declared, &Shape::from_dims([d("S")]), &facts), Err(Unfit::NotWhole { .. })));
    }

    #[test]
    fn later_arguments_help_earlier_ones() {
        let facts = Facts::default();
        let mut m = Matching::default();
        assert_eq!(
            m.argument(0, &Shape::from_dims([d("A").add(&d("B"))]), &Shape::from_dims([d("S").add(&d("T"))]), &facts),
            Ok(())
        );
        assert_eq!(m.argument(1, &Shape::from_dims([d("A")]), &Shape::from_dims([d("T")]), &facts), Ok(()));
        assert_eq!(m.finish(&facts), Ok(()));
        assert_eq!(m.dims["B"].0, d("S"));
    }
}
