//! The conditions of simplify, fold-constants, cse, dce, licm and simplify-cfg, one by one.

use attnc::ir::interp::Real;
use attnc::ir::{Function, Loc, Op, Scalar, Type};
use attnc::passes::Float;
use attnc::scalar::{BinaryOp, CmpOp, UnaryOp, round_to};
use attnc::shape::{Dim, Elem, TensorType};

use crate::values::{becomes, function, keeps, stays};

const STRICT: Float = Float::Strict;
const X: &str = "f32[S, 4]";
const N: &str = "i32[S]";
const B: &str = "bool[S]";

/// One operation on `%0` becomes nothing but these.
fn one(args: &str, result: &str, lines: &str, left: &str) {
    becomes("simplify,dce", STRICT, &function(args, result, lines), left);
}

fn not_one(args: &str, result: &str, lines: &str) {
    // The symbol must come from somewhere.
    let args = if args.contains('S') { args.to_string() } else { format!("{args} | f32[S]") };
    stays("simplify,dce", STRICT, &function(&args, result, lines));
}

#[test]
fn neutral_numbers_on_their_side() {
    for (op, number) in [
        ("mul", "1.0"),
        ("div", "1.0"),
        ("add", "-0.0"),
        ("sub", "0.0"),
        ("pow", "1.0"),
        ("max", "-inf"),
        ("min", "inf"),
    ] {
        one(X, X, &format!("  %8 = exp %0 : {X}\n  %9 = {op} %8, {number} : {X}"), "exp");
    }
    for (op, number) in [("mul", "1.0"), ("add", "-0.0"), ("max", "-inf"), ("min", "inf")] {
        one(X, X, &format!("  %8 = exp %0 : {X}\n  %9 = {op} {number}, %8 : {X}"), "exp");
    }
    for (op, number) in [("div", "1.0"), ("sub", "0.0"), ("pow", "1.0"), ("sub", "-0.0")] {
        not_one(X, X, &format!("  %9 = {op} {number}, %0 : {X}"));
    }
    for (op, number) in [
        ("add", "0.0"),
        ("sub", "-0.0"),
        ("mul", "0.0"),
        ("mul", "2.0"),
        ("max", "0.0"),
        ("max", "-1e30"),
        ("max", "inf"),
        ("min", "0.0"),
        ("min", "1e30"),
        ("min", "-inf"),
        ("pow", "0.0"),
        ("pow", "3.0"),
        ("pow", "-1.0"),
    ] {
        not_one(X, X, &format!("  %9 = {op} %0, {number} : {X}"));
    }
}

#[test]
fn integers_and_truth_values() {
    for (op, number) in [("mul", 1), ("add", 0), ("sub", 0), ("div", 1)] {
        one(N, N, &format!("  %8 = neg %0 : {N}\n  %9 = {op} %8, i32({number}) : {N}"), "neg");
    }
    for (op, number) in [("mul", 1), ("add", 0)] {
        one(N, N, &format!("  %8 = neg %0 : {N}\n  %9 = {op} i32({number}), %8 : {N}"), "neg");
    }
    for (op, number) in [("sub", 0), ("div", 1), ("div", 0), ("sub", 1)] {
        not_one(N, N, &format!("  %9 = {op} i32({number}), %0 : {N}"));
    }
    for (op, number) in [("mul", 2), ("add", 1), ("sub", 1), ("div", 2), ("div", -1), ("max", 0), ("min", 0)] {
        not_one(N, N, &format!("  %9 = {op} %0, i32({number}) : {N}"));
    }
    one(N, N, &format!("  %9 = mul %0, i32(0) : {N}"), "const");
    one(N, N, &format!("  %9 = mul i32(0), %0 : {N}"), "const");
    one(N, N, &format!("  %9 = sub %0, %0 : {N}"), "const");
    for (op, truth, left) in
        [("and", true, "not"), ("and", false, "const"), ("or", false, "not"), ("or", true, "const")]
    {
        one(B, B, &format!("  %8 = not %0 : {B}\n  %9 = {op} %8, {truth} : {B}"), left);
        one(B, B, &format!("  %8 = not %0 : {B}\n  %9 = {op} {truth}, %8 : {B}"), left);
    }
    for (op, same) in [("and", "not"), ("or", "not")] {
        one(B, B, &format!("  %8 = not %0 : {B}\n  %9 = {op} %8, %8 : {B}"), same);
    }
    for op in ["eq", "ne", "lt", "le", "gt", "ge"] {
        one(N, B, &format!("  %9 = {op} %0, %0 : {B}"), "const");
        not_one("f32[S]", B, &format!("  %9 = {op} %0, %0 : {B}"));
        not_one("i32[S] | i32[S]", B, &format!("  %9 = {op} %0, %1 : {B}"));
    }
    for op in ["max", "min"] {
        one(X, X, &format!("  %8 = exp %0 : {X}\n  %9 = {op} %8, %8 : {X}"), "exp");
        not_one("f32[S] | f32[S]", "f32[S]", &format!("  %9 = {op} %0, %1 : f32[S]"));
    }
    for op in ["add", "sub", "mul", "div"] {
        not_one(X, X, &format!("  %9 = {op} %0, %0 : {X}"));
    }
}

#[test]
fn functions_of_themselves() {
    for (first, then, left) in [
        ("neg", "neg", "exp"),
        ("abs", "abs", "exp abs"),
        ("relu", "relu", "exp relu"),
        ("floor", "floor", "exp floor"),
        ("neg", "abs", "exp abs"),
        ("abs", "neg", "exp abs neg"),
        ("relu", "abs", "exp relu abs"),
        ("neg", "relu", "exp neg relu"),
        ("neg", "floor", "exp neg floor"),
        ("floor", "neg", "exp floor neg"),
        ("exp", "exp", "exp exp exp"),
        ("tanh", "tanh", "exp tanh tanh"),
    ] {
        let lines = format!("  %7 = exp %0 : {X}\n  %8 = {first} %7 : {X}\n  %9 = {then} %8 : {X}");
        one(X, X, &lines, left);
    }
    // With numbers of either sign.
    one(X, X, &format!("  %8 = neg %0 : {X}\n  %9 = abs %8 : {X}"), "abs");
    one(B, B, &format!("  %7 = and %0, %0 : {B}\n  %8 = not %7 : {B}\n  %9 = not %8 : {B}"), "");
    keeps("simplify,dce", STRICT, &function(N, N, "  %8 = abs %0 : i32[S]\n  %9 = relu %8 : i32[S]"));
}

#[test]
fn divisions_by_powers_of_two() {
    for (elem, c) in [("f32", "0.5"), ("f32", "-4.0"), ("f32", "1.1754944e-38"), ("bf16", "64.0"), ("f16", "1024.0")] {
        let c = if elem == "f32" { c.to_string() } else { format!("{elem}({c})") };
        one(&format!("{elem}[S]"), &format!("{elem}[S]"), &format!("  %9 = div %0, {c} : {elem}[S]"), "mul");
    }
    // Neither a number that is not a power of two, nor one whose inverse is subnormal in its type.
    for (elem, c) in [
        ("f32", "3.0"),
        ("f32", "0.75"),
        ("f32", "1.7014118e38"),
        ("f32", "0.0"),
        ("f32", "inf"),
        ("f32", "1e-45"),
        ("f16", "32768.0"),
        ("f16", "6e-8"),
        ("bf16", "12.0"),
    ] {
        let c = if elem == "f32" { c.to_string() } else { format!("{elem}({c})") };
        not_one(&format!("{elem}[S]"), &format!("{elem}[S]"), &format!("  %9 = div %0, {c} : {elem}[S]"));
        not_one(&format!("{elem}[S]"), &format!("{elem}[S]"), &format!("  %9 = div {c}, %0 : {elem}[S]"));
    }
    one(X, X, &format!("  %9 = pow %0, 2.0 : {X}"), "mul");
    one(X, X, &format!("  %9 = mul %0, -1.0 : {X}"), "neg");
}

#[test]
fn selections() {
    let two = "bool[S] | i32[S] | i32[S]";
    one(two, N, &format!("  %7 = neg %1 : {N}\n  %8 = abs %2 : {N}\n  %9 = where true, %7, %8 : {N}"), "neg");
    one(two, N, &format!("  %7 = neg %1 : {N}\n  %8 = abs %2 : {N}\n  %9 = where false, %7, %8 : {N}"), "abs");
    one(two, N, &format!("  %7 = neg %1 : {N}\n  %9 = where %0, %7, %7 : {N}"), "neg");
    one(B, B, &format!("  %8 = not %0 : {B}\n  %9 = where %8, true, false : {B}"), "not");
    not_one(B, B, &format!("  %9 = where %0, false, true : {B}"));
    not_one(B, N, &format!("  %9 = where %0, i32(1), i32(0) : {N}"));
    not_one(two, N, &format!("  %9 = where %0, %1, %2 : {N}"));
}

#[test]
fn casts_there_and_back() {
    let elems = ["f32", "bf16", "f16", "i8", "i32", "i64", "bool"];
    // Which types hold all values of another.
    let holds = |wide: &str, narrow: &str| match narrow {
        "bool" => wide != "bool",
        "bf16" | "f16" => wide == "f32",
        "i8" => matches!(wide, "i32" | "i64" | "f32" | "bf16" | "f16"),
        "i32" => wide == "i64",
        _ => false,
    };
    for narrow in elems {
        for wide in elems {
            let (args, ty) = (format!("{narrow}[S]"), format!("{narrow}[S]"));
            let lines = format!("  %8 = cast %0 : {wide}[S]\n  %9 = cast %8 : {narrow}[S]");
            if wide == narrow || holds(wide, narrow) {
                one(&args, &ty, &lines, "");
            } else {
                not_one(&args, &ty, &lines);
            }
        }
    }
    // Back to another type than the first.
    not_one("bf16[S]", "f16[S]", "  %8 = cast %0 : f32[S]\n  %9 = cast %8 : f16[S]");
}

#[test]
fn movement_in_chains() {
    let three = "f32[S, T, 4]";
    // Two permutations that do not commute.
    let lines =
        "  %8 = transpose %0, perm=[1, 2, 0] : f32[T, 4, S]\n  %9 = transpose %8, perm=[0, 2, 1] : f32[T, S, 4]";
    one(three, "f32[T, S, 4]", lines, "transpose");
    let lines = "  %7 = transpose %0, perm=[1, 2, 0] : f32[T, 4, S]\n  %8 = transpose %7, perm=[1, 2, 0] : f32[4, S, T]\n\
                 \n  %9 = transpose %8, perm=[1, 2, 0] : f32[S, T, 4]";
    one(three, three, lines, "");
    not_one(three, "f32[T, S, 4]", "  %9 = transpose %0, perm=[1, 0, 2] : f32[T, S, 4]");
    one(three, "f32[4*S*T]", "  %8 = reshape %0 : f32[S, 4*T]\n  %9 = reshape %8 : f32[4*S*T]", "reshape");
    one(three, three, "  %8 = reshape %0 : f32[S, 4*T]\n  %9 = reshape %8 : f32[S, T, 4]", "");
    one(
        "f32[1, 4] | f32[S]",
        "f32[S, 5, 4]",
        "  %8 = broadcast %0 : f32[5, 4]\n  %9 = broadcast %8 : f32[S, 5, 4]",
        "broadcast",
    );
    // Axes added before those of the broadcast value, and removed; not one between them.
    let source = "f32[S, 1] | f32[T]";
    let first = "  %8 = broadcast %0 : f32[T, S, 4]\n";
    one(source, "f32[1, T, 1, S, 4]", &format!("{first}  %9 = reshape %8 : f32[1, T, 1, S, 4]"), "broadcast");
    one(source, "f32[S, 4]", "  %8 = broadcast %0 : f32[1, S, 4]\n  %9 = reshape %8 : f32[S, 4]", "broadcast");
    not_one(source, "f32[T, S, 1, 4]", &format!("{first}  %9 = reshape %8 : f32[T, S, 1, 4]"));
    not_one(source, "f32[S, T, 4]", &format!("{first}  %9 = reshape %8 : f32[S, T, 4]"));
    // A counter of an axis that is there afterwards, and of one that is not.
    let counter =
        |axis: usize, from: &str, to: &str| format!("  %8 = iota axis={axis} : {from}\n  %9 = reshape %8 : {to}");
    for (axis, from, to) in [
        (0, "i32[2, 6]", "i32[3, 4]"),
        (1, "i32[2, 6]", "i32[6, 2]"),
        (0, "i32[2, 6]", "i32[2, 3, 2]"),
        (1, "i32[6, 2, 2]", "i32[6, 4]"),
        (0, "i32[4, S]", "i32[S, 4]"),
    ] {
        not_one("f32[S]", to, &counter(axis, from, to));
    }
    for (axis, from, to) in
        [(0, "i32[2, 6]", "i32[2, 1, 6]"), (1, "i32[2, 6]", "i32[1, 2, 6, 1]"), (2, "i32[1, S, 4]", "i32[S, 4]")]
    {
        one("f32[S]", to, &counter(axis, from, to), "iota");
    }
    let twelve = "f32[12, 9] | f32[S]";
    let cut = |a: (usize, i64, i64), b: (usize, i64, i64), shapes: [&str; 2]| {
        format!(
            "  %8 = slice %0, axis={}, start={}, stop={} : f32{}\n  %9 = slice %8, axis={}, start={}, stop={} : f32{}",
            a.0, a.1, a.2, shapes[0], b.0, b.1, b.2, shapes[1]
        )
    };
    one(twelve, "f32[3, 9]", &cut((0, 3, 10), (0, 2, 5), ["[7, 9]", "[3, 9]"]), "slice");
    one(twelve, "f32[12, 2]", &cut((1, 4, 9), (1, 0, 2), ["[12, 5]", "[12, 2]"]), "slice");
    not_one(twelve, "f32[7, 2]", &cut((0, 3, 10), (1, 1, 3), ["[7, 9]", "[7, 2]"]));
    // Extents that are not known: either may be out of range when the program runs.
    not_one("f32[S, 9]", "f32[1, 9]", &cut((0, 0, 2), (0, 1, 2), ["[2, 9]", "[1, 9]"]));
    one(
        "f32[S, 9]",
        "f32[S, 9]",
        "  %8 = exp %0 : f32[S, 9]\n  %9 = slice %8, axis=0, start=0, stop=S : f32[S, 9]",
        "exp",
    );
    not_one("f32[S, 9]", "f32[S, 4]", "  %9 = slice %0, axis=1, start=0, stop=4 : f32[S, 4]");
    not_one("f32[S, 9]", "f32[S, 4]", "  %9 = slice %0, axis=1, start=5, stop=9 : f32[S, 4]");
    one(X, X, &format!("  %8 = exp %0 : {X}\n  %9 = pad %8, 1.0, axis=0, low=0, high=0 : {X}"), "exp");
    not_one(X, "f32[S+1, 4]", "  %9 = pad %0, 1.0, axis=0, low=0, high=1 : f32[S+1, 4]");
    not_one(X, "f32[S+2, 4]", "  %9 = pad %0, 1.0, axis=0, low=2, high=0 : f32[S+2, 4]");
    one(X, X, &format!("  %8 = exp %0 : {X}\n  %9 = concat %8, axis=1 : {X}"), "exp");
    not_one(X, "f32[S, 8]", "  %9 = concat %0, %0, axis=1 : f32[S, 8]");
}

#[test]
fn operands_that_broadcast_by_themselves() {
    one("f32[S, 4] | f32[4]", X, &format!("  %8 = broadcast %1 : {X}\n  %9 = sub %8, %0 : {X}"), "sub");
    one("f32[S, 4] | f32[4]", X, "  %8 = reshape %1 : f32[1, 4]\n  %9 = sub %8, %0 : f32[S, 4]", "sub");
    one(
        "bool[1, 4] | f32[S, 4]",
        X,
        &format!("  %7 = broadcast %0 : bool[S, 4]\n  %9 = where %7, %1, 0.5 : {X}"),
        "where",
    );
    // Either may be taken as it was, but not both.
    one(
        "f32[4] | f32[4] | f32[S]",
        X,
        &format!("  %7 = broadcast %0 : {X}\n  %8 = broadcast %1 : {X}\n  %9 = sub %7, %8 : {X}"),
        "broadcast sub",
    );
    // The shape comes from the broadcast operand alone.
    not_one("f32[4] | f32[4] | f32[S]", X, &format!("  %8 = broadcast %0 : {X}\n  %9 = add %8, %1 : {X}"));
    // Axes of other extents, and axes behind.
    not_one(
        "f32[4, 4] | f32[16] | f32[S]",
        "f32[4, 4]",
        "  %8 = reshape %1 : f32[4, 4]\n  %9 = add %8, %0 : f32[4, 4]",
    );
    not_one("f32[S, S] | f32[S]", "f32[S, S]", "  %8 = reshape %1 : f32[S, 1]\n  %9 = add %8, %0 : f32[S, S]");
}

/// What is folded is a number of its type, also where the literals of a program are not: `0.1` is none of `bf16`.
#[test]
fn folded_numbers_are_numbers_of_their_type() {
    let folded = |op: Op, literals: &[f64], elem: Elem, result: Elem| -> Scalar {
        let mut f = Function::new("f");
        let entry = f.entry();
        let operands = literals.iter().map(|x| f.push_const(entry, Scalar::Float(*x), elem, Loc::default())).collect();
        let ty = Type::Tensor(TensorType::scalar(result));
        let v = f.push(entry, op, operands, Some(ty), Loc::default()).expect("a result");
        f.terminate(entry, attnc::ir::Terminator::Return(vec![v]));
        let pass = attnc::passes::find_pass("fold-constants").expect("a pass");
        let mut ctx = attnc::passes::Context::new(STRICT);
        assert_eq!((pass.run)(&mut f, &mut ctx), attnc::passes::Changed::Yes);
        f.as_const(v).expect("a literal")
    };
    let numbers = [0.1, 0.30001, 1.0, 1.0009, 100.3, 65519.9, 3.0e-8, 1e-5];
    for elem in [Elem::F32, Elem::BF16, Elem::F16] {
        for x in numbers {
            let a = f32::literal(x, elem);
            for op in [UnaryOp::Neg, UnaryOp::Exp2, UnaryOp::Sqrt, UnaryOp::Tanh] {
                let want = round_to(elem, f64::from(op.eval_f32(a)));
                assert_eq!(folded(Op::Unary(op), &[x], elem, elem), Scalar::Float(want), "{op} {x} {elem}");
            }
            for to in [Elem::F32, Elem::BF16, Elem::F16] {
                let found = folded(Op::Cast { elem: to }, &[x], elem, to);
                assert_eq!(found, Scalar::Float(round_to(to, f64::from(a))), "{x} {elem} {to}");
            }
            for y in numbers {
                let b = f32::literal(y, elem);
                for op in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div] {
                    let want = round_to(elem, f64::from(op.eval_f32(a, b)));
                    assert_eq!(folded(Op::Binary(op), &[x, y], elem, elem), Scalar::Float(want), "{x} {op} {y} {elem}");
                }
                for op in [CmpOp::Eq, CmpOp::Lt, CmpOp::Le, CmpOp::Ne] {
                    let found = folded(Op::Compare(op), &[x, y], elem, Elem::Bool);
                    assert_eq!(found, Scalar::Bool(op.eval(a, b)), "{x} {op} {y} {elem}");
                }
            }
        }
        for n in [3, 257, 2049, 16_777_217] {
            let found = folded(Op::DimValue(Dim::from(n)), &[], elem, elem);
            assert_eq!(found, Scalar::Float(round_to(elem, n as f64)), "{n} {elem}");
        }
    }
}

/// A literal operation folds to a literal, whose value the interpreter compares.
fn folds(result: &str, lines: &str) {
    becomes(
        "fold-constants,dce",
        STRICT,
        &function("f32[S]", result, lines),
        if result.contains("[]") { "" } else { "const" },
    );
}

fn does_not_fold(result: &str, lines: &str) {
    stays("fold-constants", STRICT, &function("f32[S]", result, lines));
}

#[test]
fn literals_of_every_type() {
    // Each is between two numbers of its type, so that rounding late or not at all gives another result.
    for elem in ["f32", "bf16", "f16"] {
        let n = |x: &str| if elem == "f32" { x.to_string() } else { format!("{elem}({x})") };
        for op in ["add", "sub", "mul", "div", "rem", "pow", "max", "min"] {
            for (a, b) in
                [("1.0", "0.0009765"), ("0.1", "0.3"), ("100.0", "0.7"), ("3.3", "7.7"), ("65504.0", "65504.0")]
            {
                let lines = format!("  %9 = {op} {}, {} : {elem}[]", n(a), n(b));
                folds(&format!("{elem}[]"), &lines);
            }
        }
        for op in
            ["exp", "log", "sqrt", "rsqrt", "sin", "tanh", "erf", "sigmoid", "gelu", "silu", "floor", "neg", "abs"]
        {
            for a in ["0.1", "1.7", "3.3", "0.0"] {
                folds(&format!("{elem}[]"), &format!("  %9 = {op} {} : {elem}[]", n(a)));
            }
        }
        for op in ["eq", "ne", "lt", "le", "gt", "ge"] {
            for (a, b) in [("0.1", "0.10001"), ("1.0", "1.0"), ("2.0", "1.0"), ("1.0", "2.0"), ("100.0", "100.2")] {
                folds("bool[]", &format!("  %9 = {op} {}, {} : bool[]", n(a), n(b)));
            }
        }
        for to in ["f32", "bf16", "f16", "i8", "i32", "i64", "bool"].iter().filter(|to| **to != elem) {
            for a in ["0.1", "3.9", "-3.9", "300.7", "65519.0", "1e-9", "0.0", "1e30", "-1e30"] {
                folds(&format!("{to}[]"), &format!("  %9 = cast {} : {to}[]", n(a)));
            }
        }
    }
    for (elem, values) in [("i8", [100, 27, -128, 127]), ("i32", [2_000_000_000, 7, -2_147_483_648, 2_147_483_647])] {
        for op in ["add", "sub", "mul", "div", "rem", "max", "min"] {
            for a in values {
                for b in [values[0], -3, 0, 2] {
                    folds(&format!("{elem}[]"), &format!("  %9 = {op} {elem}({a}), {elem}({b}) : {elem}[]"));
                }
            }
        }
        for op in ["neg", "abs", "relu"] {
            for a in values {
                folds(&format!("{elem}[]"), &format!("  %9 = {op} {elem}({a}) : {elem}[]"));
            }
        }
        for to in ["f32", "bf16", "f16", "i8", "i32", "i64", "bool"].iter().filter(|to| **to != elem) {
            for a in values {
                folds(&format!("{to}[]"), &format!("  %9 = cast {elem}({a}) : {to}[]"));
            }
        }
    }
    for (op, truth) in [("and", true), ("and", false), ("or", true), ("or", false)] {
        folds("bool[]", &format!("  %9 = {op} false, {truth} : bool[]"));
        folds("bool[]", &format!("  %9 = {op} true, {truth} : bool[]"));
    }
    folds("bool[]", "  %9 = not true : bool[]");
    folds("i32[]", "  %9 = where true, i32(1), i32(2) : i32[]");
    folds("i32[]", "  %9 = where false, i32(1), i32(2) : i32[]");
    folds("bf16[]", "  %9 = dim 257 : bf16[]");
    folds("f16[]", "  %9 = dim 2049 : f16[]");
    folds("i8[]", "  %9 = dim 3 : i8[]");
}

#[test]
fn literals_of_every_shape() {
    folds("f32[2, S]", "  %8 = const 0.5 : f32[S]\n  %9 = broadcast %8 : f32[2, S]");
    folds("f32[S, 1]", "  %8 = const 0.5 : f32[S]\n  %9 = reshape %8 : f32[S, 1]");
    folds("f32[4, S]", "  %8 = const 0.5 : f32[S, 4]\n  %9 = transpose %8, perm=[1, 0] : f32[4, S]");
    folds("f32[2]", "  %8 = const 0.5 : f32[4]\n  %9 = slice %8, axis=0, start=1, stop=3 : f32[2]");
    folds("f32[7]", "  %8 = const 0.5 : f32[4]\n  %9 = pad %8, 0.5, axis=0, low=1, high=2 : f32[7]");
    folds("f32[S+4]", "  %7 = const 0.5 : f32[S]\n  %8 = const 0.5 : f32[4]\n  %9 = concat %7, %8, axis=0 : f32[S+4]");
    does_not_fold("f32[7]", "  %8 = const 0.5 : f32[4]\n  %9 = pad %8, 0.25, axis=0, low=1, high=2 : f32[7]");
    does_not_fold(
        "f32[8]",
        "  %7 = const 0.5 : f32[4]\n  %8 = const 0.25 : f32[4]\n  %9 = concat %7, %8, axis=0 : f32[8]",
    );
    // Indices that may be out of range at run time: an error must remain an error.
    for (lines, result) in [
        ("  %8 = const 0.5 : f32[S]\n  %9 = slice %8, axis=0, start=0, stop=3 : f32[3]", "f32[3]"),
        ("  %8 = const 0.5 : f32[4]\n  %9 = slice %8, axis=0, start=0, stop=S : f32[S]", "f32[S]"),
        ("  %8 = const 0.5 : f32[4]\n  %9 = slice %8, axis=0, start=S-2, stop=4 : f32[-S+6]", "f32[-S+6]"),
        ("  %8 = const 0.5 : f32[4]\n  %9 = pad %8, 0.5, axis=0, low=S-2, high=0 : f32[S+2]", "f32[S+2]"),
    ] {
        does_not_fold(result, lines);
    }
    does_not_fold("i32[4]", "  %8 = iota axis=0 : i32[4]\n  %9 = add %8, i32(1) : i32[4]");
    does_not_fold("f32[]", "  %8 = const 0.5 : f32[4]\n  %9 = reduce_sum %8, axes=[0] : f32[]");
    does_not_fold("f32[]", "  %9 = dim S : f32[]");
}

/// A counter along an axis of one element is 0, however often it is repeated: what is taken from it is no diagonal.
#[test]
fn a_repeated_zero_counts_nothing() {
    let pass = "gather-diagonals";
    let args = "f32[7, 2] | f32[S] | f32[T]";
    let source = |rows: &str| {
        function(
            args,
            "f32[S, T, 2]",
            &format!(
                "  %3 = iota axis=0 : i32[{rows}]\n  %4 = broadcast %3 : i32[S, T]\n  %5 = iota axis=1 : i32[S, T]\n  %6 = sub %4, %5 : i32[S, T]\n  \
                 %7 = abs %6 : i32[S, T]\n  %8 = gather %0, %7, axis=0 : f32[S, T, 2]"
            ),
        )
    };
    stays(pass, STRICT, &source("1, T"));
    stays(pass, STRICT, &source("1, 1"));
    let made = "iota dim sub sub abs iota ne dim lt and where transpose gather windows transpose";
    crate::values::leaves(pass, STRICT, &source("S, 1"), made);
    keeps(pass, STRICT, &source("S, 1"));
}
