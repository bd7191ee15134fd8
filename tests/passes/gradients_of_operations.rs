//! Gradients of each operation, in all positions, against the tape; and what is refused.

use attnc::ir::interp::NoParams;
use attnc::ir::{Module, text};
use attnc::random::Random;
use attnc::shape::{Dim, Elem, TensorType};
use attnc::tensor::Tensor;

use crate::gradients::compare;

/// Values of `S` and `T`: odd, equal, of one element, empty.
const SIZES: [(i64, i64); 5] = [(3, 5), (4, 4), (1, 2), (5, 1), (0, 3)];

fn parse(source: &str) -> Module {
    match text::parse(source, Default::default()) {
        Ok(parsed) => parsed.module,
        Err(d) => panic!("{source}\n{:?}", d.sorted()),
    }
}

/// A module of one function: from arguments of these types (apart by ` | `) the lines make `%y` of type `result`. The loss
/// is the sum of its products with random weights; the gradients with respect to all float arguments are the results.
fn program(args: &str, result: &str, lines: &str) -> String {
    let types: Vec<&str> = args.split(" | ").collect();
    let is_float = |t: &&&str| ["f32", "f16", "bf16"].iter().any(|e| t.starts_with(e));
    let floats: Vec<(usize, &&str)> = types.iter().enumerate().filter(|(_, t)| is_float(t)).collect();
    let inner = result.split_once('[').and_then(|(_, r)| r.strip_suffix(']')).unwrap_or_default();
    let rank = if inner.is_empty() { 0 } else { inner.split(", ").count() };
    let elem = result.split('[').next().unwrap_or_default();
    let args: Vec<String> = types.iter().enumerate().map(|(i, t)| format!("%{i} \"a{i}\": {t}")).collect();
    let axes: Vec<String> = (0..rank).map(|i| i.to_string()).collect();
    let mut out = format!("module \"m\"\nfunc @f({}, %w \"w\": {result}) -> (", args.join(", "));
    out += &floats.iter().map(|(_, t)| t.to_string()).collect::<Vec<_>>().join(", ");
    out += &format!(") {{\n^start:\n{}\n  %weighted = mul %y, %w : {result}\n", lines.trim_end());
    let loss = if rank == 0 {
        "%weighted".to_string()
    } else {
        out += &format!("  %loss = reduce_sum %weighted, axes=[{}] : {elem}[]\n", axes.join(", "));
        "%loss".to_string()
    };
    for (i, t) in &floats {
        out += &format!("  %g{i} = grad {loss}, %{i} : {t}\n");
    }
    out += &format!("  return {}\n}}\n", floats.iter().map(|(i, _)| format!("%g{i}")).collect::<Vec<_>>().join(", "));
    out
}

fn extents(ty: &TensorType, sizes: (i64, i64)) -> Vec<usize> {
    let of = |s: &str| Some(if s == "S" { sizes.0 } else { sizes.1 });
    ty.shape.iter().map(|d: &Dim| usize::try_from(d.eval(&of).expect("an extent")).expect("an extent")).collect()
}

/// Random arguments. Some elements are equal, so that extremes have ties; integers are small indices.
fn arguments(module: &Module, sizes: (i64, i64), random: &mut Random) -> Vec<Tensor> {
    let one = |random: &mut Random, ty: &TensorType| {
        let shape = extents(ty, sizes);
        let n: usize = shape.iter().product();
        if ty.elem.is_float() {
            let number = |random: &mut Random| (random.below(61) as f64 - 30.0) / 16.0;
            let values: Vec<f64> = (0..n).map(|_| number(random)).collect();
            return Tensor::from_floats(ty.elem, shape, &values).expect("a tensor");
        }
        let most = if ty.elem == Elem::Bool { 2 } else { 3 };
        let values: Vec<i64> = (0..n).map(|_| random.below(most) as i64).collect();
        Tensor::from_ints(ty.elem, shape, &values).expect("a tensor")
    };
    module.functions[0].args.iter().map(|a| one(random, &a.ty)).collect()
}

/// Compares a program at all sizes, each with several data. A call may fail, but not each.
fn agrees(name: &str, source: &str) -> Result<(), String> {
    let module = parse(source);
    let (mut random, mut ran) = (Random::new(name.len() as u64), 0);
    let mut failure = String::new();
    for sizes in SIZES {
        for _ in 0..2 {
            let args = arguments(&module, sizes, &mut random);
            match crate::gradients::meant(&module, &args, &NoParams) {
                Err(e) => failure = e,
                Ok(_) => {
                    compare(&module, &args, &NoParams).map_err(|e| format!("{name} at {sizes:?}: {e}"))?;
                    ran += 1;
                }
            }
        }
    }
    if ran >= 4 { Ok(()) } else { Err(format!("{name}: {ran} calls ran: {failure}\n{source}")) }
}

/// Name, arguments, result and lines of a program.
type Case = (&'static str, &'static str, &'static str, &'static str);

const CASES: &[Case] = &[
    ("used twice", "f32[S, 3]", "f32[S, 3]", "  %a = mul %0, %0 : f32[S, 3]\n  %y = add %a, %0 : f32[S, 3]"),
    ("broadcast by add", "f32[S, 1, 3] | f32[T, 1]", "f32[S, T, 3]", "  %y = add %0, %1 : f32[S, T, 3]"),
    ("broadcast by mul", "f32[3] | f32[S, T, 1]", "f32[S, T, 3]", "  %y = mul %0, %1 : f32[S, T, 3]"),
    ("a scalar", "f32[] | f32[S, T]", "f32[S, T]", "  %y = mul %0, %1 : f32[S, T]"),
    ("where", "f32[S, 1] | f32[T] | bool[S, T]", "f32[S, T]", "  %y = where %2, %0, %1 : f32[S, T]"),
    (
        "a hidden logarithm",
        "f32[S, T]",
        "f32[S, T]",
        "  %p = gt %0, 0.0 : bool[S, T]\n  %l = log %0 : f32[S, T]\n  %e = mul %0, %l : f32[S, T]\n  %y = where %p, %e, 0.0 : f32[S, T]",
    ),
    (
        "a hidden root",
        "f32[S, T]",
        "f32[S, T]",
        "  %p = gt %0, 0.0 : bool[S, T]\n  %l = sqrt %0 : f32[S, T]\n  %y = where %p, %l, 0.0 : f32[S, T]",
    ),
    ("casts", "f32[S]", "f32[S]", "  %a = cast %0 : bf16[S]\n  %y = cast %a : f32[S]"),
    (
        "integers between",
        "f32[S]",
        "f32[S]",
        "  %a = cast %0 : i32[S]\n  %b = cast %a : f32[S]\n  %y = mul %b, %0 : f32[S]",
    ),
    ("reshape", "f32[S, 6]", "f32[2 * S, 3]", "  %y = reshape %0 : f32[2 * S, 3]"),
    ("transpose", "f32[S, T, 2]", "f32[2, S, T]", "  %y = transpose %0, perm=[2, 0, 1] : f32[2, S, T]"),
    ("broadcast", "f32[S, 1]", "f32[T, S, 3]", "  %y = broadcast %0 : f32[T, S, 3]"),
    ("slice", "f32[T + 2, S]", "f32[T, S]", "  %y = slice %0, axis=0, start=1, stop=T + 1 : f32[T, S]"),
    ("windows", "f32[2, 7, S]", "f32[2, 3, 3, S]", "  %y = windows %0, axis=1, stride=2 : f32[2, 3, 3, S]"),
    ("overlapping windows", "f32[T + 2]", "f32[T, 3]", "  %y = windows %0, axis=0, stride=1 : f32[T, 3]"),
    ("windows backwards", "f32[T + 2, S]", "f32[T, 2, S]", "  %y = windows %0, axis=0, stride=-1 : f32[T, 2, S]"),
    ("index", "f32[S, 3, T] | i32[]", "f32[S, T]", "  %y = index %0, %1, axis=1 : f32[S, T]"),
    (
        "concat",
        "f32[S, 2] | f32[S, T] | f32[S, 1]",
        "f32[S, T + 3]",
        "  %y = concat %0, %1, %2, axis=1 : f32[S, T + 3]",
    ),
    ("concat of one", "f32[S, 2]", "f32[S, 4]", "  %y = concat %0, %0, axis=1 : f32[S, 4]"),
    ("pad", "f32[S, T] | f32[]", "f32[S, T + 3]", "  %y = pad %0, %1, axis=1, low=1, high=2 : f32[S, T + 3]"),
    ("gather", "f32[3, T] | i32[S]", "f32[S, T]", "  %y = gather %0, %1, axis=0 : f32[S, T]"),
    (
        "gather in the middle",
        "f32[2, 3, T] | i64[S, 2]",
        "f32[2, S, 2, T]",
        "  %y = gather %0, %1, axis=1 : f32[2, S, 2, T]",
    ),
    (
        "gather in parts",
        "f32[S, 3, 2] | i32[S, T]",
        "f32[S, T, 2]",
        "  %y = gather %0, %1, axis=1, batch=1 : f32[S, T, 2]",
    ),
    (
        "gather behind an axis",
        "f32[S, T, 3] | i32[S, 2]",
        "f32[S, T, 2]",
        "  %y = gather %0, %1, axis=2, batch=1 : f32[S, T, 2]",
    ),
    ("extract", "f32[5, T] | i32[]", "f32[2, T]", "  %y = extract %0, %1, axes=[0] : f32[2, T]"),
    ("update", "f32[S, 5] | f32[S, 2] | i32[]", "f32[S, 5]", "  %y = update %0, %1, %2, axes=[1] : f32[S, 5]"),
    ("scatter", "f32[3, T] | i32[S] | f32[S, T]", "f32[3, T]", "  %y = scatter %0, %1, %2, axis=0 : f32[3, T]"),
    (
        "scatter by add",
        "f32[T, 3] | i32[S] | f32[T, S]",
        "f32[T, 3]",
        "  %y = scatter %0, %1, %2, axis=1, add=true : f32[T, 3]",
    ),
    ("sum", "f32[S, T, 2]", "f32[T]", "  %y = reduce_sum %0, axes=[0, 2] : f32[T]"),
    ("sum, kept", "f32[S, T]", "f32[S, 1]", "  %y = reduce_sum %0, axes=[1], keep=true : f32[S, 1]"),
    ("mean", "f32[S, T]", "f32[S]", "  %y = reduce_mean %0, axes=[1] : f32[S]"),
    ("mean of all", "f32[S, T]", "f32[]", "  %y = reduce_mean %0, axes=[0, 1] : f32[]"),
    ("max", "f32[S, T]", "f32[S]", "  %y = reduce_max %0, axes=[1] : f32[S]"),
    ("min, kept", "f32[S, T, 2]", "f32[1, T, 1]", "  %y = reduce_min %0, axes=[0, 2], keep=true : f32[1, T, 1]"),
    ("max of equal ones", "f32[S]", "f32[]", "  %z = mul %0, 0.0 : f32[S]\n  %y = reduce_max %z, axes=[0] : f32[]"),
    ("softmax", "f32[S, T]", "f32[S, T]", "  %y = softmax %0, axis=1 : f32[S, T]"),
    ("softmax of columns", "f32[S, T]", "f32[S, T]", "  %y = softmax %0, axis=0 : f32[S, T]"),
    ("log_softmax", "f32[S, T]", "f32[S, T]", "  %y = log_softmax %0, axis=1 : f32[S, T]"),
    (
        "a masked softmax",
        "f32[S, T] | bool[S, T]",
        "f32[S, T]",
        "  %m = where %1, %0, -inf : f32[S, T]\n  %y = softmax %m, axis=1 : f32[S, T]",
    ),
    (
        "a masked log_softmax",
        "f32[S, T] | bool[S, 1]",
        "f32[S, T]",
        "  %m = where %1, %0, -inf : f32[S, T]\n  %l = log_softmax %m, axis=1 : f32[S, T]\n  %y = where %1, %l, 0.0 : f32[S, T]",
    ),
    ("cumsum", "f32[S, T]", "f32[S, T]", "  %y = cumsum %0, axis=1 : f32[S, T]"),
    ("cumsum of columns", "f32[S, T]", "f32[S, T]", "  %y = cumsum %0, axis=0 : f32[S, T]"),
    (
        "the greatest few",
        "f32[S, 5]",
        "f32[S, 2]",
        "  %i = argsort %0, axis=1, descending=true, first=2 : i32[S, 2]\n  %y = gather %0, %i, axis=1, batch=1 : f32[S, 2]",
    ),
    ("matmul", "f32[S, T] | f32[T, 3]", "f32[S, 3]", "  %y = matmul %0, %1 : f32[S, 3]"),
    ("one matrix for all", "f32[2, S, T] | f32[T, 3]", "f32[2, S, 3]", "  %y = matmul %0, %1 : f32[2, S, 3]"),
    ("one matrix on the left", "f32[3, T] | f32[2, T, S]", "f32[2, 3, S]", "  %y = matmul %0, %1 : f32[2, 3, S]"),
    ("broadcast matmul", "f32[2, 1, S, 3] | f32[T, 3, 2]", "f32[2, T, S, 2]", "  %y = matmul %0, %1 : f32[2, T, S, 2]"),
    ("a matrix by itself", "f32[3, 3]", "f32[3, 3]", "  %y = matmul %0, %0 : f32[3, 3]"),
    ("stop", "f32[S]", "f32[S]", "  %s = stop %0 : f32[S]\n  %y = mul %0, %s : f32[S]"),
    (
        "attention",
        "f32[2, S, 4] | f32[2, S, 4] | f32[2, S, 3]",
        "f32[2, S, 3]",
        "  %t = transpose %1, perm=[0, 2, 1] : f32[2, 4, S]\n  %s = matmul %0, %t : f32[2, S, S]\n  %h = mul %s, 0.5 : f32[2, S, S]\n  %c = causal : bool[S, S]\n  %m = where %c, %h, -inf : f32[2, S, S]\n  %p = softmax %m, axis=2 : f32[2, S, S]\n  %y = matmul %p, %2 : f32[2, S, 3]",
    ),
];

#[test]
fn operations_agree_with_the_tape() {
    let failures: Vec<String> = CASES
        .iter()
        .filter_map(|(name, args, result, lines)| agrees(name, &program(args, result, lines)).err())
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Functions of one element, and operations on two, at each broadcast.
#[test]
fn elementwise_operations_agree_with_the_tape() {
    let mut failures = Vec::new();
    for op in attnc::scalar::UnaryOp::ALL.iter().filter(|op| op.takes(Elem::F32)) {
        let lines = format!("  %a = {op} %0 : f32[S, T]\n  %y = add %a, %0 : f32[S, T]");
        failures.extend(agrees(op.name(), &program("f32[S, T]", "f32[S, T]", &lines)).err());
    }
    for op in attnc::scalar::BinaryOp::ALL.iter().filter(|op| op.takes(Elem::F32)) {
        for (a, b) in [("S, T", "S, T"), ("S, 1", "T"), ("", "S, T")] {
            let lines = format!("  %a = {op} %0, %1 : f32[S, T]\n  %y = add %a, %0 : f32[S, T]");
            let source = program(&format!("f32[{a}] | f32[{b}]"), "f32[S, T]", &lines);
            failures.extend(agrees(op.name(), &source).err());
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
