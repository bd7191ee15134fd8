//! The preconditions of entries.

use super::*;
use crate::ir::text::parse;
use crate::shape::Elem;

fn needs(text: &str) -> Vec<String> {
    let module = parse(&format!("module \"m\"\n{text}"), Default::default()).unwrap().module;
    entry_checks(&module, "f").iter().map(|(fact, _)| fact.to_string()).collect()
}

#[test]
fn what_is_not_stated_is_checked() {
    let body = |line: &str, ty: &str| {
        needs(&format!("func @f(%0 \"x\": f32[S, T, 4]) -> ({ty}) {{\n^bb0:\n  %1 = {line} : {ty}\n  return %1\n}}"))
    };
    for (line, ty, wanted) in [
        ("exp %0", "f32[S, T, 4]", vec![]),
        ("slice %0, axis=0, start=5, stop=8", "f32[3, T, 4]", vec!["8 <= S"]),
        ("slice %0, axis=0, start=0, stop=S-1", "f32[S-1, T, 4]", vec!["0 <= S-1"]),
        ("slice %0, axis=0, start=T, stop=S", "f32[S-T, T, 4]", vec!["T <= S", "16*S*T-16*T*T <= 9223372036854775807"]),
        ("slice %0, axis=0, start=S-5, stop=S", "f32[5, T, 4]", vec!["0 <= S-5"]),
        ("pad %0, 0.0, axis=0, low=S-5, high=0", "f32[2*S-5, T, 4]", vec!["0 <= S-5"]),
        ("reshape %0", "f32[S, 2, T/2, 4]", vec!["(T) % (2) == 0"]),
        ("const 0.0", "f32[S-T]", vec!["0 <= S-T"]),
        ("const 0.0", "f32[S, S]", vec!["4*S*S <= 9223372036854775807"]),
        ("const 0.0", "f32[S, T, 400000]", vec!["1600000*S*T <= 9223372036854775807"]),
        ("const 0.0", "f32[S, T, 4000]", vec![]),
        ("const 0.0", "f32[S+T]", vec![]),
        ("const false", "bool[S, S+T]", vec!["4*S*T+4*S*S <= 9223372036854775807"]),
        ("windows %0, axis=0, stride=4", "f32[3, 3, T, 4]", vec!["11 <= S"]),
        ("argsort %0, axis=0, first=7", "i32[7, T, 4]", vec!["7 <= S"]),
        ("dim S*S*S", "i64[]", vec!["S*S*S <= 9223372036854775807"]),
        ("dim S/T", "f32[]", vec!["(S) % (T) == 0"]),
    ] {
        assert_eq!(body(line, ty), wanted, "{line}");
    }
}

/// A size that depends on a set dimension is bounded on entry by its upper bound, ignoring negative
/// terms.
#[test]
fn what_names_a_length_fits_on_entry() {
    let found = needs(
        "func @f(%0 \"x\": f32[S, 0], %1 \"y\": f32[T, 0], %2 \"n\": i64[]) -> (i64[]) {\n  \
         where 3*N*T <= S\n^bb0:\n  length %2, name=\"N\", most=S*T\n  %3 = dim S-N*T : i64[]\n  return %3\n}",
    );
    for wanted in ["S*T+1", "3*S*T*T", "S+3*S*T*T+1", "S+S*T*T"] {
        let bound = Dim::from(i64::MAX);
        let is_it = |text: &String| {
            let (left, right) = text.split_once(" <= ").unwrap();
            let mut terms = [left, wanted].map(|side| side.split('+').collect::<Vec<&str>>());
            terms.iter_mut().for_each(|terms| terms.sort_unstable());
            terms[0] == terms[1] && right == bound.to_string()
        };
        assert!(found.iter().any(is_it), "{wanted}: {found:?}");
    }
}

#[test]
fn what_is_stated_is_enough() {
    let sliced = |facts: &str| {
        needs(&format!(
            "func @f(%0 \"x\": f32[S], %1 \"y\": f32[T]) -> (f32[U]) {{\n{facts}^bb0:\n  \
             %2 = slice %0, axis=0, start=0, stop=T : f32[T]\n  return %2\n}}"
        ))
    };
    assert_eq!(sliced(""), ["T <= S"]);
    for known in ["T <= S", "T < S", "S == T", "S >= T+1", "2*T <= S"] {
        assert_eq!(sliced(&format!("  where {known}\n")).len(), 1, "{known}");
    }
    // Implied by two facts together.
    let facts = "  where T <= 16\n  where S >= 16\n";
    assert_eq!(sliced(facts), ["T <= 16", "16 <= S"]);
    assert_eq!(sliced("  where T <= 16\n  where S >= 15\n"), ["T <= 16", "15 <= S", "T <= S"]);
}

#[test]
fn variants_are_checked_together() {
    let variant = |word: &str, line: &str| {
        format!("func @f(%0 \"x\": f32[S]) -> (f32[S]) {{\n{word}^bb0:\n  {line}\n  return %0\n}}\n")
    };
    let tap = variant("  tapped\n", "tap %0, \"x\"\n  %1 = slice %0, axis=0, start=0, stop=3 : f32[3]");
    assert_eq!(needs(&format!("{}{tap}", variant("", "%1 = exp %0 : f32[S]"))), ["3 <= S"]);
}

#[test]
fn what_was_needed_is_kept() {
    let text = "module \"m\"\nfunc @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  \
                %1 = slice %0, axis=0, start=0, stop=3 : f32[3]\n  return %0\n}";
    let mut f = parse(text, Default::default()).unwrap().module.functions.remove(0);
    let before = requirements(&f);
    keep(&mut f, before.clone());
    assert!(f.checks.is_empty());
    f.remove_insts(|_, d| matches!(d.op, Op::Slice { .. }));
    keep(&mut f, before);
    assert_eq!(f.checks.len(), 1);
    assert!(requirements(&f).is_empty());
}

#[test]
fn numbers_beyond_machines_are_refused() {
    let tensor = |shape: Vec<Dim>| Type::Tensor(TensorType::new(Elem::F32, shape));
    let (s, huge) = (Dim::symbol("S"), Dim::from(1 << 61));
    let refused =
        |op: Op, operands: &[&Type], result: Vec<Dim>| too_large(&op, operands, Some(&tensor(result))).is_some();
    let zero = Op::Const(crate::ir::Scalar::Float(0.0));
    assert!(!refused(zero.clone(), &[], vec![s.clone(), Dim::from(1 << 40)]));
    assert!(refused(zero.clone(), &[], vec![s.clone(), Dim::from(1 << 41)]));
    assert!(refused(zero.clone(), &[], vec![s.mul(&Dim::from(1 << 60)), Dim::from(4)]));
    assert!(refused(zero.clone(), &[], vec![Dim::zero(), Dim::from(1 << 41)]));
    assert!(refused(zero, &[], vec![s.clone(); 65]));
    let x = tensor(vec![s.clone(), Dim::from(8)]);
    let slice = Op::Slice { axis: 0, start: huge.clone(), stop: huge.clone() };
    assert!(refused(slice, &[&x], vec![Dim::zero(), Dim::from(8)]));
    let pad = Op::Pad { axis: 0, low: huge.clone(), high: huge.neg() };
    assert!(refused(pad, &[&x], vec![s.clone(), Dim::from(8)]));
    assert!(too_large(&Op::DimValue(s.mul(&huge).mul(&Dim::from(8))), &[], None).is_some());
}
