//! Dimensions and facts about them: what is equal, what divides, what is at most what; and their values against plain numbers.

use attnc::shape::{Dim, DimError, Fact, Facts, Relation, broadcast};

fn s(name: &str) -> Dim {
    Dim::symbol(name)
}

fn n(value: i64) -> Dim {
    Dim::from(value)
}

/// Values of S, T and H.
fn at(d: &Dim, values: [i64; 3]) -> Result<i64, DimError> {
    d.eval(&|name| ["S", "T", "H"].iter().position(|k| *k == name).map(|i| values[i]))
}

#[test]
fn arithmetic_is_that_of_numbers() {
    let terms = [s("S"), s("T"), s("H"), n(3), n(-1), s("S").mul(&s("T")), s("S").sub(&s("T"))];
    for a in &terms {
        for b in &terms {
            for values in [[2, 3, 4], [7, 1, 2], [5, 5, 5], [0, 2, 1]] {
                let (x, y) = (at(a, values).expect("a value"), at(b, values).expect("a value"));
                assert_eq!(at(&a.add(b), values), Ok(x + y), "{a} + {b}");
                assert_eq!(at(&a.sub(b), values), Ok(x - y), "{a} - {b}");
                assert_eq!(at(&a.mul(b), values), Ok(x * y), "{a} * {b}");
                if y != 0 && x % y == 0 {
                    assert_eq!(a.div(b).map(|q| at(&q, values)), Some(Ok(x / y)), "{a} / {b} at {values:?}");
                }
            }
            assert_eq!(a.add(b).sub(b), *a);
            // Divided by a sum it may stay a quotient, with the same value.
            if b.terms().len() == 1 {
                assert_eq!(a.mul(b).div(b).as_ref(), Some(a), "{a} * {b} / {b}");
            }
        }
    }
    assert_eq!(s("S").sub(&s("S")), Dim::zero());
    assert_ne!(s("S").add(&s("T")).mul(&n(2)).div(&s("S").sub(&s("T"))), Some(n(2)));
    let half = s("S").div(&n(2)).expect("no zero");
    assert_eq!([at(&half, [6, 0, 0]), at(&half, [7, 0, 0])], [Ok(3), Err(DimError::NotWhole)]);
    assert_eq!(n(1).div(&n(2)).expect("no zero").as_const(), None);
    assert_eq!(n(4).div(&n(2)).expect("no zero").as_const(), Some(2));
    let mixed = s("S").div(&n(2)).expect("no zero").add(&s("T").div(&n(3)).expect("no zero"));
    assert_eq!(at(&mixed, [4, 9, 0]), Ok(5));
    assert_eq!(mixed.to_string(), "(3*S+2*T)/6");
    assert_eq!(s("S").add(&s("S").mul(&s("T"))).add(&n(2)).to_string(), "S*T+S+2");
    let below = s("S").div(&s("T").mul(&s("H"))).expect("no zero");
    assert_eq!((at(&below, [24, 3, 4]), at(&below.mul(&below), [24, 3, 4])), (Ok(2), Ok(4)));
}

#[test]
fn what_is_linear_and_what_cannot_be_negative() {
    let line = s("S").mul(&n(2)).sub(&n(3));
    assert_eq!(line.as_linear(), Some(("S", 2, -3)));
    for d in
        [s("S").mul(&n(2)).add(&s("T")), s("S").mul(&s("S")), s("S").mul(&s("T")), s("S").div(&n(2)).expect("no zero")]
    {
        assert_eq!(d.as_linear(), None, "{d}");
    }
    for d in [s("S"), n(0), s("S").mul(&s("T")).add(&n(1))] {
        assert!(d.is_provably_nonnegative(), "{d}");
    }
    for d in [s("S").sub(&n(1)), n(-1), s("S").sub(&s("T")), n(0).sub(&s("S"))] {
        assert!(!d.is_provably_nonnegative(), "{d}");
    }
}

fn fact(left: Dim, relation: Relation, right: Dim) -> Fact {
    Fact { left, relation, right }
}

#[test]
fn facts_of_numbers() {
    use Relation::{Divisible, Eq, Le, Lt, Ne};
    for (a, b, holds) in [
        (2, 3, [false, true, true, true, false]),
        (3, 3, [true, false, true, false, true]),
        (6, 3, [false, true, false, false, true]),
    ] {
        for (relation, wanted) in [Eq, Ne, Le, Lt, Divisible].into_iter().zip(holds) {
            assert_eq!(fact(n(a), relation, n(b)).decide(), Some(wanted), "{a} {relation:?} {b}");
        }
    }
    assert_eq!(fact(n(3), Divisible, n(0)).decide(), Some(false));
    assert_eq!(fact(n(0), Divisible, n(0)).decide(), Some(false));
    assert_eq!(fact(s("S"), Eq, n(0)).decide(), None);
    let none = Facts::default();
    assert!(!none.divides(&n(6), &n(4)) && !none.divides(&s("S"), &s("T").add(&n(1))));
    assert!(none.divides(&n(6), &n(3)) && !none.divides(&n(7), &n(3)) && !none.divides(&n(7), &n(0)));
}

#[test]
fn what_follows_from_facts() {
    use Relation::{Divisible, Le, Lt, Ne};
    let (d, h) = (s("D"), s("H"));
    let knows = |f: Fact| Facts { known: vec![f] };
    let divided = knows(fact(d.clone(), Divisible, h.clone()));
    assert!(divided.divides(&d, &h) && divided.divides(&d.mul(&s("S")), &h) && divided.divides(&d.add(&h), &h));
    assert!(!divided.divides(&d.add(&n(1)), &h) && !divided.divides(&d, &h.mul(&n(2))) && !divided.divides(&d, &n(2)));
    assert!(!divided.divides(&h, &d) && !divided.divides(&s("S"), &h));
    for relation in [Le, Lt, Ne] {
        assert!(!knows(fact(d.clone(), relation, h.clone())).divides(&d, &h), "{relation:?}");
    }
    for (relation, proves) in [(Le, true), (Lt, true), (Ne, false), (Divisible, false)] {
        let facts = knows(fact(d.clone(), relation, h.clone()));
        assert_eq!((facts.at_most(&d, &h), facts.at_most(&h, &d)), (proves, false), "{relation:?}");
    }
    assert!(Facts::default().at_most(&d, &d) && !Facts::default().at_most(&d, &h));
}

#[test]
fn shapes_broadcast_by_equal_extents_and_ones() {
    let (one, a, b) = (n(1), s("S"), s("T"));
    assert_eq!(broadcast(&[a.clone(), one.clone()], std::slice::from_ref(&b)), Ok(vec![a.clone(), b.clone()]));
    assert_eq!(broadcast(std::slice::from_ref(&one), &[a.clone(), n(4)]), Ok(vec![a.clone(), n(4)]));
    assert_eq!(broadcast(&[one.clone(), n(3)], &[n(2), n(3)]), Ok(vec![n(2), n(3)]));
    assert_eq!(broadcast(&[n(2), one.clone()], &[one, n(3)]), Ok(vec![n(2), n(3)]));
    for (x, y) in [(a.clone(), b.clone()), (a, n(4)), (n(2), n(3)), (b, n(0))] {
        assert!(broadcast(std::slice::from_ref(&x), std::slice::from_ref(&y)).is_err(), "{x} {y}");
    }
}
