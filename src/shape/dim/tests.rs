//! Dimensions: canonical form, limits, printing and evaluation.

use super::*;

fn s(n: &str) -> Dim {
    Dim::symbol(n)
}

#[test]
fn equal_forms() {
    assert_eq!(s("S").add(&s("S")), s("S").mul(&Dim::from(2)));
    let q = s("D").div(&s("H")).unwrap();
    assert_eq!(s("H").mul(&q), s("D"));
    assert_ne!(s("D"), s("S"));
    let sum = s("A").add(&s("B"));
    assert_eq!(sum.mul(&s("K")).div(&sum).unwrap(), s("K"));
}

#[test]
fn forms_stay_short() {
    let sum = |i: usize| s(&format!("A{i}")).add(&s(&format!("B{i}")));
    let product = (0..100).fold(Dim::one(), |a, i| a.mul(&sum(i)));
    assert!(product.is_too_long());
    assert!(product.add(&Dim::one()).is_too_long());
    let squares = (0..100).fold(s("A"), |a, _| a.mul(&a));
    assert!(squares.is_too_long());
    let quotients = (0..100).fold(s("A"), |a, _| a.div(&a.add(&Dim::one())).unwrap());
    assert!(quotients.is_too_long());
    assert!(!sum(0).mul(&sum(1)).mul(&sum(2)).is_too_long());
}

#[test]
fn prints_as_written() {
    let one = Dim::one();
    for (d, text) in [
        (s("D").mul(&Dim::from(3)), "3*D"),
        (s("D").div(&s("H")).unwrap(), "D/H"),
        (s("S").add(&one), "S+1"),
        (s("S").add(&one).div(&Dim::from(2)).unwrap(), "(S+1)/2"),
        (s("S").sub(&one), "S-1"),
        (Dim::from(-3), "-3"),
        (s("D").div(&s("H").mul(&Dim::from(2))).unwrap(), "D/(2*H)"),
        (s("S").mul(&s("S")), "S*S"),
        (Dim::zero(), "0"),
    ] {
        assert_eq!(d.to_string(), text);
    }
}

#[test]
fn evaluates() {
    let d = s("S").add(&Dim::one()).div(&Dim::from(2)).unwrap();
    let at = |v: i64| d.eval(&|_| Some(v));
    assert_eq!(at(5), Ok(3));
    assert_eq!(at(4), Err(DimError::NotWhole));
    assert_eq!(s("S").div(&s("T")).unwrap().eval(&|_| Some(0)), Err(DimError::DivisionByZero));
    assert_eq!(d.eval(&|_| None), Err(DimError::Unbound(Arc::from("S"))));
    assert_eq!(s("S").mul(&s("S")).eval(&|_| Some(i64::MAX)), Err(DimError::Overflow));
    // A step beyond 64 bits is rejected, whatever comes after it.
    let eighth = (0..8).fold(Dim::one(), |d, _| d.mul(&s("S")));
    assert_eq!(eighth.eval(&|_| Some(256)), Err(DimError::Overflow));
    assert_eq!(eighth.sub(&s("T")).eval(&|_| Some(255)), Err(DimError::Overflow));
    assert_eq!(eighth.eval(&|_| Some(200)), Ok(200_i64.pow(8)));
}

#[test]
fn magnitudes_add_up() {
    let d = s("S").mul(&Dim::from(3)).sub(&Dim::from(5));
    assert_eq!((d.magnitude(), Dim::zero().magnitude(), s("S").magnitude()), (8, 0, 1));
    let doubled = (0..62).fold(s("S"), |d, _| d.add(&d));
    assert_eq!(doubled.magnitude(), 1 << 62);
    assert_eq!(doubled.div(&s("T").add(&Dim::one())).unwrap().magnitude(), 1 << 62);
}

#[test]
fn linear_forms() {
    let d = s("S").mul(&Dim::from(2)).add(&Dim::from(3));
    assert_eq!(d.as_linear(), Some(("S", 2, 3)));
    assert_eq!(s("S").mul(&s("T")).as_linear(), None);
    assert_eq!(Dim::from(3).as_linear(), None);
}
