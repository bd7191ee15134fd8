//! Can a tile IR text that was written by hand leave its buffers? Each text here tries to, by arithmetic that wraps: its forms are
//! right as numbers, and wrong modulo 2^64. The verifier refuses it, or every call does, interpreted and compiled.

use std::collections::BTreeMap;

use attnc::codegen::cpu::{self, EmitOptions};
use attnc::codegen::descriptor;
use attnc::ir::interp::Limits;
use attnc::runtime::link;
use attnc::runtime::load::CompiledModel;
use attnc::shape::Elem;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::tile::interp::{Call, run};
use attnc::tile::{self, PlanVariant, text, verify};

use crate::compiled::{generator, levels, tier};

fn parse(source: &str) -> tile::Module {
    let mut sources = SourceMap::new();
    let file = sources.add("hostile.tir", source);
    match text::parse(source, file) {
        Ok(parsed) => parsed.module,
        Err(d) => panic!("cannot be read: {}\n{source}", attnc::diagnostics::render_all(&d, &sources, false)),
    }
}

/// What becomes of a text and calls of it.
#[derive(Debug, PartialEq)]
enum Outcome {
    Refused(String),
    /// What the interpreter and compiled code say.
    Errors(String, String),
    Results(Vec<f64>),
}

/// Verifies a text, interprets a call of `@f` and calls the compiled library.
fn outcome(source: &str, symbols: &[(&str, i64)], args: &[Tensor]) -> Outcome {
    let module = parse(source);
    let verified = match verify::verify(&module) {
        Ok(verified) => verified,
        Err(e) => return Outcome::Refused(e.to_string()),
    };
    let symbols: BTreeMap<String, i64> = symbols.iter().map(|(s, n)| (s.to_string(), *n)).collect();
    let params = BTreeMap::new();
    let limits = Limits { work: 1_000_000, ..Limits::default() };
    let call = Call { plan: "f", variant: PlanVariant::Plain, symbols: &symbols, args, params: &params, limits };
    let interpreted = run(verified, &call);
    let host = cpu::Arch::host().triple().to_string();
    let model = descriptor::describe(&module.interface(), "Test", "", &host).unwrap();
    let tiers = [tier(levels()[0], &module)];
    let code = attnc::codegen::compile(generator(), &tiers, &model, EmitOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let so = folder.path().join("model.so");
    link::link(&code.objects(), &so).unwrap();
    // SAFETY: linked just above.
    let compiled = unsafe { CompiledModel::open(&so, None, 1) }.unwrap();
    let mut session = compiled.session().unwrap();
    let called = session.call(compiled.entry("f").unwrap(), args);
    match (interpreted, called) {
        (Ok(x), Ok(y)) => {
            assert_eq!(x.results[0].to_f64(), y[0].to_f64(), "{source}");
            Outcome::Results(y[0].to_f64())
        }
        (Err(x), Err(y)) => {
            assert!(!x.internal, "the interpreter found a bug: {x}\n{source}");
            Outcome::Errors(x.to_string(), y.to_string())
        }
        (x, y) => panic!("{x:?} interpreted, {y:?} compiled:\n{source}"),
    }
}

/// A text that copies one number out of `x`, an argument of `S` elements; the second argument has `T` rows without elements.
/// `plan` makes of `%0`, all of `x`, the one number `%9`; `facts` are what the entry states.
fn one_number(facts: &[&str], plan: &str) -> String {
    let facts: String = facts.iter().map(|f| format!("  where {f}\n")).collect();
    format!(
        "module \"w\"\nmodel \"W\"\nsite \"{{0}} of {{1}}\"\n\n\
         entry @f(\"x\": f32[S], \"y\": f32[T, 0]) -> (f32[1]) {{\n{facts}}}\n\n\
         kernel @copy(%0: in f32[1], %1: out f32[1]) cpu(portable) scratch(0) {{\n^bb0:\n  %2 = const 0 : index\n  \
         run (1, 1) {{\n    %3 = load %0[%2], cols=0 : tile f32[1, 1] @reg\n    store %1[%2], %3, cols=0\n  }}\n  return\n}}\n\n\
         plan @f symbols(S, T) {{\n^bb0:\n  %0 = arg 0 : buf f32[S]\n  %1 = out 0 : buf f32[1]\n{plan}  \
         launch @copy(%9, %1)\n  return\n}}\n"
    )
}

fn rows(s: usize, t: usize) -> [Tensor; 2] {
    let x: Vec<f32> = (0..s).map(|i| i as f32).collect();
    [Tensor::from_f32(vec![s], &x).unwrap(), Tensor::from_f32(vec![t, 0], &[]).unwrap()]
}

/// Is a text refused, or its call?
fn is_stopped(what: &str, source: &str, s: usize, t: usize) {
    match outcome(source, &[("S", s as i64), ("T", t as i64)], &rows(s, t)) {
        Outcome::Refused(_) | Outcome::Errors(..) => {}
        Outcome::Results(x) => panic!("{what}: gives {x:?}\n{source}"),
    }
}

/// Does a text give the number at a place?
fn gives(what: &str, source: &str, (s, t): (usize, usize), at: usize) {
    let found = outcome(source, &[("S", s as i64), ("T", t as i64)], &rows(s, t));
    assert_eq!(found, Outcome::Results(vec![at as f64]), "{what}\n{source}");
}

const AT_T: &str = "  %9 = view %0, offset=T : buf f32[1]\n";

/// `check_index` of a form that wraps says nothing of its symbols.
#[test]
fn checks_of_forms_that_wrap() {
    let check = |index: &str, bound: &str| {
        let lines = format!(
            "  %5 = dim {index} : index\n  %6 = dim {bound} : index\n  %7 = check_index %5, %6, site=0 : index\n{AT_T}"
        );
        one_number(&[], &lines)
    };
    gives("a check", &check("T", "S"), (4, 3), 3);
    is_stopped("a check", &check("T", "S"), 4, 4);
    for (index, bound) in [
        ("4611686018427387904*T", "S"),
        ("2305843009213693952*T", "S"),
        ("8388608*T+8388608*T", "S"),
        ("16777216*T*T", "S"),
        ("T*T*T*T", "S"),
        // Below 0 and back.
        ("T", "S-9223372036854775807*T"),
        ("T", "S-T*T*T*T"),
        ("T", "S+4611686018427387904*T"),
        // Inside of what rounds.
        ("T", "S+floor_div(16777216*T*T, 3)"),
        ("T", "S+floor_div(T*T*T*T+5, T*T*T*T+1)"),
        ("min(T, 16777216*T*T)", "S"),
        ("T", "max(S, 8388608*T*T)"),
    ] {
        is_stopped(index, &check(index, bound), 4, 1 << 40);
    }
}

/// The same computed step by step, where no form is beyond 64 bits by itself.
#[test]
fn indices_that_wrap() {
    let index = |lines: &str| {
        let check = "  %7 = check_index %5, %6, site=0 : index\n";
        one_number(&[], &format!("  %2 = dim T : index\n  %6 = dim S : index\n{lines}{check}{AT_T}"))
    };
    let two = "  %3 = const 16777216 : index\n";
    gives("an index", &index("  %3 = const 1 : index\n  %5 = mul %2, %3 : index\n"), (4, 3), 3);
    for lines in [
        format!("{two}  %5 = mul %2, %3 : index\n"),
        format!("{two}  %4 = mul %2, %2 : index\n  %5 = mul %4, %2 : index\n"),
        format!("{two}  %4 = mul %2, %3 : index\n  %8 = add %4, %4 : index\n  %5 = sub %8, %4 : index\n"),
        "  %3 = const 9223372036854775807 : index\n  %4 = add %3, %2 : index\n  %5 = sub %4, %3 : index\n  %8 = max %4, %2 : index\n"
            .to_string(),
        "  %3 = const 9223372036854775807 : index\n  %4 = add %3, %2 : index\n  %5 = min %4, %2 : index\n".to_string(),
        format!("{two}  %4 = mul %2, %3 : index\n  %5 = div %4, %3 : index\n"),
    ] {
        is_stopped(&lines, &index(&lines), 4, 1 << 40);
    }
}

/// A branch on a comparison that wraps says nothing either.
#[test]
fn branches_that_wrap() {
    let branch = |lines: &str| {
        one_number(
            &[],
            &format!(
                "  %2 = dim T : index\n  %6 = dim S : index\n{lines}  %8 = lt %5, %6 : bool\n  br_if %8, ^bb1, ^bb2\n^bb1:\n{AT_T}  \
                 launch @copy(%9, %1)\n  return\n^bb2:\n  %10 = const 0 : index\n  %11 = check_index %10, %10, site=0 : index\n  \
                 %9 = view %0 : buf f32[1]\n"
            ),
        )
        .replace("%9 = view %0 :", "%12 = view %0 :")
        .replacen("launch @copy(%9, %1)\n  return\n}", "launch @copy(%12, %1)\n  return\n}", 1)
    };
    let times = |n: i64| branch(&format!("  %3 = const {n} : index\n  %5 = mul %2, %3 : index\n"));
    gives("a branch", &times(1), (4, 3), 3);
    is_stopped("not taken", &times(1), 4, 4);
    for n in [1 << 24, 1 << 40, 1 << 62, -(1 << 24), i64::MIN] {
        is_stopped("a branch", &times(n), 4, 1 << 40);
    }
}

/// Facts that the entry states are evaluated with every step checked, and so are extents, strides and offsets.
#[test]
fn forms_of_plans_that_wrap() {
    for (facts, lines) in [
        // Bytes of slots, and what lies in them.
        (&["16777216*T*T < S"][..], AT_T.to_string()),
        (&["4611686018427387904*T <= S", "T < S"], AT_T.to_string()),
        (
            &[],
            "  %2 = view %0 : buf f32[S-16777216*T*T]\n  %3 = dim S-16777216*T*T : index\n  %4 = dim T : index\n  \
             %5 = check_index %4, %3, site=0 : index\n  %9 = view %0, offset=T : buf f32[1]\n"
                .to_string(),
        ),
        (&["1 <= S"], "  %2 = view %0, offset=16777216*T*T : buf f32[0]\n  %9 = view %2, offset=S-S+T : buf f32[1]\n".to_string()),
        (
            &["1 <= S"],
            "  %2 = dim floor_div(16777216*T*T, 16777216*T+1) : index\n  %3 = dim S : index\n  \
             %4 = check_index %2, %3, site=0 : index\n  %9 = view %0, offset=floor_div(16777216*T*T, 16777216*T+1) : buf f32[1]\n"
                .to_string(),
        ),
    ] {
        is_stopped(&lines, &one_number(facts, &lines), 4, 1 << 40);
    }
}

/// A product of quotients is no integer because twice it is.
#[test]
fn quotients_that_are_no_integers() {
    // `2*S/T` is 3 at S = 3, T = 2, so `2*S/T - 4` is -1.
    for (facts, offset) in
        [(&["(2*S) % (T) == 0", "3 <= 2*S/T", "1 <= S"][..], "2*S/T-4"), (&["(2*S) % (T) == 0", "1 <= S"], "T-S")]
    {
        is_stopped(offset, &one_number(facts, &format!("  %9 = view %0, offset={offset} : buf f32[1]\n")), 3, 2);
    }
    let half = "  %2 = dim 2*S/T : index\n  %3 = const 2 : index\n  %4 = div %2, %3 : index\n  %5 = mul %4, %3 : index\n  \
                %6 = sub %2, %5 : index\n  %7 = const 1 : index\n  %8 = sub %7, %6 : index\n  %10 = dim S-1 : index\n  \
                %11 = mul %8, %10 : index\n";
    let source =
        one_number(&["(2*S) % (T) == 0", "1 <= S"], &format!("{half}  %9 = view %0[%6], strides=[S] : buf f32[1]\n"));
    is_stopped("a quotient that is rounded", &source, 3, 2);
}

/// What is divided may wrap though the quotient does not.
#[test]
fn numerators_that_wrap() {
    for (form, divisor, times) in [("T*T/4", 4, 4), ("T*T/2", 2, 4), ("T*T/6+T*T/3", 6, 8)] {
        let facts = [format!("(T*T) % ({divisor}) == 0"), "1 <= T".to_string()];
        let lines = format!(
            "  %2 = dim {form} : index\n  %3 = dim T : index\n  %4 = mul %3, %3 : index\n  %5 = const {times} : index\n  \
             %6 = mul %4, %5 : index\n  %8 = dim S : index\n  %7 = check_index %6, %8, site=0 : index\n{AT_T}"
        );
        let facts: Vec<&str> = facts.iter().map(String::as_str).collect();
        is_stopped(form, &one_number(&facts, &lines), 4, 1 << 31);
    }
}

/// A text with a loop whose counter goes by `step` from `start`, and goes on where it stands in `test` to `S`; in the loop one number
/// is copied from the counter on.
fn counted(start: &str, step: &str, test: &str) -> String {
    format!(
        "module \"w\"\nmodel \"W\"\nsite \"{{0}} of {{1}}\"\n\nentry @f(\"x\": f32[S], \"y\": f32[T, 0]) -> (f32[1]) {{\n}}\n\n\
         kernel @copy(%0: in f32[S], %1: out f32[1]) symbols(S, T) cpu(portable) scratch(0) {{\n^bb0:\n  %2 = const 0 : index\n  \
         %4 = dim S : index\n  %5 = dim {start} : index\n  %6 = const {step} : index\n  br ^bb1(%5)\n^bb1(%7: index):\n  \
         {test}\n  br_if %8, ^bb2, ^bb3\n^bb2:\n  run (1, 1) {{\n    %3 = load %0[%7], cols=0 : tile f32[1, 1] @reg\n    \
         store %1[%2], %3, cols=0\n  }}\n  %9 = add %7, %6 : index\n  br ^bb1(%9)\n^bb3:\n  return\n}}\n\n\
         plan @f symbols(S, T) {{\n^bb0:\n  %0 = arg 0 : buf f32[S]\n  %1 = out 0 : buf f32[1]\n  \
         launch @copy(%0, %1)\n  return\n}}\n"
    )
}

/// The counter of a loop is what it is as a number where each round tests it.
#[test]
fn counters_that_wrap() {
    let below = "%8 = lt %7, %4 : bool";
    gives("a loop", &counted("0", "1", below), (4, 1), 3);
    gives("a loop by two", &counted("1", "2", below), (5, 1), 3);
    for (start, step, test) in [
        ("0", "-1", below),
        ("0", "1", "%8 = le %7, %4 : bool"),
        ("0", "1048576", "%10 = const 5 : index\n  %8 = ne %7, %10 : bool"),
        ("0", "1048576", "%8 = ne %7, %4 : bool"),
        ("0", "1048576", "%10 = const 1048576 : index\n  %11 = mul %7, %10 : index\n  %8 = lt %11, %4 : bool"),
        ("0", "1", "%10 = const 9223372036854775807 : index\n  %11 = add %7, %10 : index\n  %8 = lt %11, %4 : bool"),
        ("16777216*T*T", "1", below),
        ("T", "1", "%10 = const 16777216 : index\n  %11 = mul %7, %10 : index\n  %8 = lt %11, %4 : bool"),
    ] {
        is_stopped(test, &counted(start, step, test), 4, 1 << 40);
    }
}

/// A kernel over a grid whose points wrap.
#[test]
fn grids_that_wrap() {
    let grid = |extent: &str, place: &str| {
        format!(
            "module \"w\"\nmodel \"W\"\n\nentry @f(\"x\": f32[S], \"y\": f32[T, 0]) -> (f32[1]) {{\n  where 1 <= S\n}}\n\n\
             kernel @copy(%0: in f32[S], %1: out f32[1]) symbols(S, T) grid(%2: {extent}) cpu(portable) scratch(0) {{\n^bb0:\n  \
             %4 = const 0 : index\n  {place}\n  run (1, 1) {{\n    %3 = load %0[%5], cols=0 : tile f32[1, 1] @reg\n    \
             store %1[%4], %3, cols=0\n  }}\n  return\n}}\n\nplan @f symbols(S, T) {{\n^bb0:\n  %0 = arg 0 : buf f32[S]\n  \
             %1 = out 0 : buf f32[1]\n  launch @copy(%0, %1)\n  return\n}}\n"
        )
    };
    gives("a grid", &grid("S", "%5 = dim S-1 : index"), (4, 1), 3);
    for (extent, place) in [
        ("ceil(S, 9223372036854775807)", "%5 = mul %2, %2 : index"),
        ("S+16777216*T*T", "%5 = dim 0 : index"),
        ("S", "%6 = dim T : index\n  %7 = mul %6, %6 : index\n  %5 = min %7, %2 : index"),
    ] {
        is_stopped(extent, &grid(extent, place), 4, 1 << 40);
    }
}

/// What is checked of a length says nothing of what stands before it, nor of what does not name it.
#[test]
fn lengths_that_are_checked_too_late() {
    let length = |before: &str, after: &str, size: &str| {
        format!(
            "module \"w\"\nmodel \"W\"\nsite \"{{0}} of {{1}}\"\n\nentry @f(\"x\": f32[S], \"n\": i64[]) -> (f32[1]) {{\n  where 4 <= S\n}}\n\n\
             kernel @copy(%0: in f32[1], %1: out f32[1]) cpu(portable) scratch(0) {{\n^bb0:\n  %2 = const 0 : index\n  \
             run (1, 1) {{\n    %3 = load %0[%2], cols=0 : tile f32[1, 1] @reg\n    store %1[%2], %3, cols=0\n  }}\n  return\n}}\n\n\
             plan @f symbols(S) {{\n^bb0:\n  %0 = arg 0 : buf f32[S]\n  %1 = out 0 : buf f32[1]\n  %2 = arg 1 : buf i64[]\n  \
             %3 = load_scalar %2[] : i64\n  %4 = cast %3 : index\n  %5 = dim S+1 : index\n  {before}%6 = check_index %4, %5, site=0 : index\n  \
             length %6, name=\"N\", most=S\n  %10 = const 0 : index\n  %11 = const 1 : index\n  {after}  \
             %9 = view %0, offset={size} : buf f32[1]\n  launch @copy(%9, %1)\n  return\n}}\n"
        )
    };
    let divides = "%12 = dim S : index\n  %13 = dim 2*N : index\n  %14 = check_index %10, %13, site=0 : index\n  \
                   %15 = rem %12, %13 : index\n  %16 = check_index %15, %11, site=0 : index\n";
    let call = |source: &str, s: usize, n: i64| {
        let x: Vec<f32> = (0..s).map(|i| i as f32).collect();
        let args = [Tensor::from_f32(vec![s], &x).unwrap(), Tensor::from_ints(Elem::I64, vec![], &[n]).unwrap()];
        outcome(source, &[("S", s as i64)], &args)
    };
    let right = length("", divides, "S/(2*N)");
    assert_eq!(call(&right, 8, 2), Outcome::Results(vec![2.0]));
    assert!(matches!(call(&right, 8, 3), Outcome::Errors(..)));
    assert!(matches!(call(&right, 8, 0), Outcome::Errors(..)));
    for (before, after, size) in [
        // Half of what need not be even.
        ("%7 = dim S/2 : index\n  ", divides, "0"),
        // The check does not stand yet.
        ("", &*format!("%17 = dim S/(2*N) : index\n  {divides}"), "0"),
        // By 0 nothing is left.
        (
            "",
            "%12 = dim S : index\n  %13 = dim N : index\n  %15 = rem %12, %13 : index\n  %16 = check_index %15, %11, site=0 : index\n",
            "S/N",
        ),
    ] {
        let found = call(&length(before, after, size), 8, 0);
        assert!(matches!(&found, Outcome::Refused(e) if e.contains("is an integer")), "{found:?}");
    }
}
