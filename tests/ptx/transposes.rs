//! Elementwise work that reads or writes memory along both axes of its tiles: what it moves, in sectors, and what it gives.

use std::collections::BTreeMap;

use attnc::codegen::ptx;
use attnc::ir::interp::Limits;
use attnc::ptx::sim::{Mode, Module as Loaded, Stats};
use attnc::ptx::text::print;
use attnc::shape::Elem;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::tile::interp::{Argument, run_kernel};
use attnc::tile::{self, GpuArch};

use crate::runs::{compiled, launch};
use crate::tensor_cores::{for_gpu, forms};
use crate::traffic::{call, sectors};
use crate::{fragments, ptxas, readable};

/// A tensor of integers, which every type holds exactly.
fn of_values(elem: Elem, shape: &[usize], values: Vec<i64>) -> Tensor {
    if elem.is_float() {
        let floats: Vec<f64> = values.iter().map(|x| *x as f64).collect();
        return Tensor::from_floats(elem, shape.to_vec(), &floats).expect("floats");
    }
    Tensor::from_ints(elem, shape.to_vec(), &values).expect("integers")
}

/// Small integers in an order that says nothing.
fn tensor(elem: Elem, shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>();
    of_values(elem, shape, (0..n).map(|i| (i * 7919 % 97) as i64 - 48).collect())
}

fn values(x: &Tensor) -> Vec<f64> {
    if x.elem().is_float() { x.to_f64() } else { x.to_i64().iter().map(|n| *n as f64).collect() }
}

/// The elements of a tensor with its axes in another order, row-major.
fn permuted(x: &Tensor, order: &[usize]) -> Vec<f64> {
    let (shape, all) = (x.shape(), values(x));
    let extents: Vec<usize> = order.iter().map(|axis| shape[*axis]).collect();
    let stride = |axis: usize| shape[axis + 1..].iter().product::<usize>();
    let element = |n: usize| {
        let (mut rest, mut at) = (n, 0);
        for (extent, axis) in extents.iter().zip(order).rev() {
            at += rest % extent * stride(*axis);
            rest /= extent;
        }
        all[at]
    };
    (0..all.len()).map(element).collect()
}

/// The sectors of tensors that are read or written once.
fn least(all: &[&Tensor]) -> u64 {
    all.iter().map(|x| sectors(x.shape().iter().product(), x.elem())).sum()
}

/// Calls a program, compares its results with `expected`, and says what it moved, and the sectors of its arguments and results.
fn moved(source: &str, args: &[Tensor], expected: &[Vec<f64>]) -> (Stats, u64, String) {
    let (results, stats, text) = call(source, args);
    assert_eq!(results.len(), expected.len(), "{source}");
    for (found, expected) in results.iter().zip(expected) {
        assert_eq!(values(found), *expected, "{source}");
    }
    let all: Vec<&Tensor> = args.iter().chain(&results).collect();
    (stats, least(&all), text)
}

/// Programs that permute axes and nothing else: the pattern, the order of the axes, the shape.
const PERMUTED: [(&str, &[usize], &[usize]); 5] = [
    ("r c -> c r", &[1, 0], &[256, 384]),
    ("r c -> c r", &[1, 0], &[32, 64]),
    ("b s h d -> b h d s", &[0, 2, 3, 1], &[2, 32, 3, 64]),
    ("a b c -> c b a", &[2, 1, 0], &[32, 3, 64]),
    ("a b c -> c a b", &[2, 0, 1], &[4, 24, 32]),
];

/// The type of a tensor in a program, its extents known or named.
fn ty(elem: Elem, shape: &[usize], names: &[&str], known: bool) -> String {
    let extents: Vec<String> =
        shape.iter().zip(names).map(|(n, name)| if known { n.to_string() } else { name.to_uppercase() }).collect();
    format!("{}[{}]", elem.name(), extents.join(", "))
}

/// A program that permutes the axes of a tensor.
fn program(elem: Elem, pattern: &str, order: &[usize], shape: &[usize], known: bool) -> String {
    let names: Vec<&str> = pattern.split(" -> ").next().expect("names").split(' ').collect();
    let (new_shape, new_names): (Vec<usize>, Vec<&str>) = order.iter().map(|n| (shape[*n], names[*n])).unzip();
    let (from, to) = (ty(elem, shape, &names, known), ty(elem, &new_shape, &new_names, known));
    format!("fn f(x: {from}) -> {to} {{ rearrange(x, \"{pattern}\") }}")
}

#[test]
fn whole_sectors_are_read_and_written_along_other_axes() {
    for elem in [Elem::F32, Elem::BF16, Elem::I8, Elem::I64] {
        for (pattern, order, shape) in PERMUTED {
            for known in [true, false] {
                let x = tensor(elem, shape);
                let source = program(elem, pattern, order, shape, known);
                let (stats, least, text) = moved(&source, std::slice::from_ref(&x), &[permuted(&x, order)]);
                // Four elements of 8 bytes are two accesses, each to half of every sector.
                let least = if elem == Elem::I64 && known { 2 * least } else { least };
                assert!(10 * stats.global_sectors <= 11 * least, "{source}: {least} sectors, {stats:?}");
                assert!(text.contains("bar.sync"), "{source}");
                assert!(stats.bank_conflicts == 0 || elem == Elem::I64, "{source}: {stats:?}");
            }
        }
    }
}

/// Of an axis of odd length each row, or column, begins anywhere in a sector: of the 32 elements that a warp takes, the bytes lie in a sector
/// more than they fill. Of elements of one byte these are two for one.
#[test]
fn odd_rows_and_columns_take_a_sector_more() {
    for (elem, most) in [(Elem::F32, 13), (Elem::BF16, 15), (Elem::I8, 21)] {
        for shape in [[255, 383], [321, 383]] {
            for known in [true, false] {
                let x = tensor(elem, &shape);
                let source = program(elem, "r c -> c r", &[1, 0], &shape, known);
                let (stats, least, _) = moved(&source, std::slice::from_ref(&x), &[permuted(&x, &[1, 0])]);
                assert!(10 * stats.global_sectors <= most * least, "{source}: {least} sectors, {stats:?}");
                assert_eq!(stats.bank_conflicts, 0, "{source}: {stats:?}");
            }
        }
    }
}

/// Narrow elements have tiles of 64 rows and columns where these are enough blocks: a warp still goes along 32 of either.
#[test]
fn large_tiles_of_narrow_elements_have_no_bank_conflicts() {
    for (elem, shape, blocks) in
        [(Elem::BF16, [768, 832], 156), (Elem::BF16, [704, 832], 572), (Elem::I8, [768, 832], 156)]
    {
        let x = tensor(elem, &shape);
        let source = program(elem, "r c -> c r", &[1, 0], &shape, true);
        let (stats, least, _) = moved(&source, std::slice::from_ref(&x), &[permuted(&x, &[1, 0])]);
        assert_eq!((stats.global_sectors, stats.bank_conflicts), (least, 0), "{source}");
        assert_eq!(stats.blocks, blocks, "{source}");
    }
}

/// A program with what it is called with, the results that are expected, and how many sectors are moved besides the arguments and results.
struct Case {
    source: String,
    args: Vec<Tensor>,
    expected: Vec<Vec<f64>>,
    more: u64,
}

fn cases(elem: Elem) -> Vec<Case> {
    let (rows, cols) = (64, 96);
    let [x, z, w] = [[rows, cols]; 3].map(|shape| tensor(elem, &shape));
    let (y, v) = (tensor(elem, &[cols, rows]), tensor(elem, &[cols]));
    // Operands differ.
    let z = of_values(elem, z.shape(), values(&z).into_iter().rev().map(|x| x as i64).collect());
    let (turned, also, dense, scale) = (permuted(&x, &[1, 0]), permuted(&z, &[1, 0]), values(&y), values(&v));
    // Squares are rounded in `bf16`.
    let column = v.clone().reshaped(vec![cols, 1]).expect("a column");
    let square = values(&of_values(elem, &[cols], scale.iter().map(|x| (x * x) as i64).collect()));
    let t = elem.name();
    let each = |f: &dyn Fn(usize) -> f64| (0..rows * cols).map(f).collect::<Vec<f64>>();
    let case = |source: String, args: &[&Tensor], expected: Vec<Vec<f64>>, more: u64| Case {
        source,
        args: args.iter().map(|x| (*x).clone()).collect(),
        expected,
        more,
    };
    let both = format!("x: {t}[R, C], y: {t}[C, R]");
    let window: Vec<f64> = (0..cols * (rows + 32))
        .map(|i| (i / (rows + 32), i % (rows + 32)))
        .map(|(c, r)| if r < rows { turned[c * rows + r] } else { dense[c * rows + r - rows] })
        .collect();
    vec![
        case(format!("fn f({both}) -> {t}[C, R] {{ x.T - y }}"), &[&x, &y], vec![each(&|i| turned[i] - dense[i])], 0),
        // Some operands lie along the other axis, some have one axis.
        case(
            format!(
                "fn f({both}, z: {t}[R, C], v: {t}[C]) -> {t}[C, R] {{ maximum(maximum(x.T, y), maximum(z.T, rearrange(v, \"c -> c 1\"))) }}"
            ),
            &[&x, &y, &z, &v],
            vec![each(&|i| turned[i].max(dense[i]).max(also[i]).max(scale[i / rows]))],
            // An element for each row of a tile, by all its neighbours.
            1 << 12,
        ),
        // Columns of one element lie along rows, and are read once for many elements.
        case(
            format!(
                "fn f(x: {t}[R, C], v: {t}[C, 1], w: {t}[C, 1]) -> {t}[C, R] {{ maximum(maximum(x.T, v), w * v) }}"
            ),
            &[&x, &column, &column],
            vec![each(&|i| turned[i].max(scale[i / rows]).max(square[i / rows]))],
            1 << 12,
        ),
        // Only the result lies along its axis.
        case(
            format!(
                "fn f(x: {t}[R, C], z: {t}[R, C], w: {t}[R, C]) -> {t}[C, R] {{ maximum(maximum(x.T, z.T), w.T) }}"
            ),
            &[&x, &z, &w],
            vec![each(&|i| turned[i].max(also[i]))],
            0,
        ),
        // A result of another type.
        case(
            format!("fn f(x: {t}[R, C]) -> f32[C, R] {{ cast<f32>(x.T) * 2.0 }}"),
            &[&x],
            vec![each(&|i| 2.0 * turned[i])],
            0,
        ),
        // A part of a result.
        case(
            format!("fn f(x: {t}[64, 96], y: {t}[96, 64]) -> {t}[96, 96] {{ concat(x.T, y[.., 0..32], axis = -1) }}"),
            &[&x, &y],
            vec![window],
            0,
        ),
        // Two results, which lie along different axes.
        case(
            format!("fn f({both}) -> ({t}[C, R], {t}[R, C]) {{\n let s = x.T - y\n (relu(s), relu(-s).T) }}"),
            &[&x, &y],
            vec![
                each(&|i| (turned[i] - dense[i]).max(0.0)),
                each(&|i| (dense[i % cols * rows + i / cols] - values(&x)[i]).max(0.0)),
            ],
            least(&[&x, &y]),
        ),
    ]
}

#[test]
fn each_operand_is_read_and_each_result_written_where_it_lies() {
    for elem in [Elem::F32, Elem::BF16] {
        for Case { source, args, expected, more } in cases(elem) {
            let (stats, least, text) = moved(&source, &args, &expected);
            assert!(10 * stats.global_sectors <= 11 * (least + more), "{source}: {least} sectors, {stats:?}\n{text}");
            assert_eq!(stats.bank_conflicts, 0, "{source}: {stats:?}");
            assert!(text.contains("bar.sync"), "{source}");
        }
    }
}

/// A part of a result, which is written over what was there.
#[test]
fn a_window_is_written_along_its_own_axis() {
    let (x, y) = (tensor(Elem::F32, &[64, 96]), tensor(Elem::F32, &[96, 128]));
    let source = "fn f(x: f32[64, 96], y: f32[96, 128]) -> f32[96, 128] {
        var out = y
        out[.., 32..96] = x.T
        out
    }";
    let (turned, mut expected) = (permuted(&x, &[1, 0]), values(&y));
    for (c, row) in turned.chunks(64).enumerate() {
        expected[c * 128 + 32..c * 128 + 96].copy_from_slice(row);
    }
    let (stats, _, _) = moved(source, &[x.clone(), y], &[expected]);
    // The variable is a copy of `y`, the result one of the variable, and the window is read once and written once.
    let copied = 4 * sectors(96 * 128, Elem::F32);
    assert_eq!((stats.global_sectors, stats.bank_conflicts), (copied + 2 * sectors(64 * 96, Elem::F32), 0));
}

/// Axes without elements, of one, of few, and of what is no multiple of anything.
#[test]
fn every_extent_gives_the_same_elements() {
    for (rows, cols) in [(0, 5), (5, 0), (1, 70), (70, 1), (2, 300), (300, 7), (8, 8), (9, 33), (31, 65), (100, 48)] {
        for elem in [Elem::F32, Elem::I8, Elem::BF16] {
            for known in [true, false] {
                let x = tensor(elem, &[rows, cols]);
                let source = program(elem, "r c -> c r", &[1, 0], &[rows, cols], known);
                moved(&source, std::slice::from_ref(&x), &[permuted(&x, &[1, 0])]);
            }
        }
    }
}

/// A model of one function.
fn model(source: &str) -> String {
    format!("model Turned {{ pub {source} }}")
}

#[test]
fn remarks_tell_why_tiles_are_turned_or_not() {
    let both = "memory is accessed along rows and along columns";
    let divided = |warps: &str| format!("elements are divided among the threads of {warps} warps");
    let turned = |warps: &str, size: &str| {
        format!("{}; a tile of {size} elements is turned in shared memory, since {both}", divided(warps))
    };
    let as_they_lie = |why: &str| format!("{}; {both}; no tiles are turned in shared memory: {why}", divided("8"));
    let operands = |ty: &str, names: &str| names.chars().map(|c| format!("{c}: {ty}")).collect::<Vec<_>>().join(", ");
    let sum = |t: &str, names: &str| names.chars().map(|c| format!("{c}{t}")).collect::<Vec<_>>().join(" + ");
    let many = |n: usize| {
        let (there, here) = (&"abcdef"[..n], &"mnopqr"[..n]);
        let (of, like) = (operands("i64[S, T]", there), operands("i64[T, S]", here));
        format!("fn f({of}, {like}) -> i64[T, S] {{ {} + {} }}", sum(".T", there), sum("", here))
    };
    let two = format!("{}; 2 tiles of 32 by 32 elements are turned in shared memory, since {both}", divided("8"));
    for (source, wanted) in [
        ("fn f(x: f32[256, 384]) -> f32[384, 256] { x.T }", turned("8", "32 by 32")),
        ("fn f(x: bf16[B, 256, 384]) -> bf16[B, 384, 256] { x.T }", turned("8", "32 by 32")),
        ("fn f(x: bf16[8, 256, 384]) -> bf16[8, 384, 256] { x.T }", turned("8", "64 by 64")),
        ("fn f(x: f32[S, 12], y: f32[12, S]) -> f32[12, S] { x.T + y }", turned("4", "12 by 32")),
        ("fn f(x: f32[S, 8]) -> f32[8, S] { x.T }", turned("2", "8 by 32")),
        ("fn f(x: f32[S, 7]) -> f32[7, S] { x.T }", as_they_lie("an axis has only 7 elements")),
        (&many(2), two),
        (&many(6), as_they_lie("6 tiles do not fit")),
        ("fn f(x: f32[S, T]) -> f32[S, T] { relu(x) }", divided("8")),
    ] {
        assert_eq!(forms(&model(source)), [wanted], "{source}");
    }
}

/// A result over an operand, numbers of rows and columns, and tiles that were all full: what the schedule makes of it, in the interpreter
/// and in both orders of the simulator.
#[test]
fn results_may_lie_over_operands() {
    let source = r#"module "turned"

kernel @turned(%x: in f32[S, 40] strides[1, S], %y: inout f32[S, 40]) symbols(S) grid(%i: ceil(S, 16), %j: ceil(40, 40)) {
^bb0:
  %sixteen = const 16 : index
  %forty = const 40 : index
  %row = mul %i, %sixteen : index
  %s = dim S : index
  %left = sub %s, %row : index
  %rows = min %left, %sixteen : index
  %col = mul %j, %forty : index
  %b = load %y[%row, %col], rows=0, cols=1 : tile f32[%rows<=16, 40]
  %e = exp %b : tile f32[%rows<=16, 40]
  %a = load %x[%row, %col], rows=0, cols=1 : tile f32[%rows<=16, 40]
  %m = iota %row, axis=0 : tile i32[%rows<=16, 1]
  %n = iota %col, axis=1 : tile i32[1, 40]
  %at = add %m, %n : tile i32[%rows<=16, 40]
  %number = cast %at : tile f32[%rows<=16, 40]
  %c = sub %a, %b : tile f32[%rows<=16, 40]
  %d = mul %c, %number : tile f32[%rows<=16, 40]
  %f = max %d, %e : tile f32[%rows<=16, 40]
  store %y[%row, %col], %f, rows=0, cols=1
  return
}
"#;
    let file = SourceMap::new().add("turned.tir", source);
    let open = tile::text::parse(source, file).unwrap_or_else(|d| panic!("{:?}", d.sorted())).module.kernels;
    let (scheduled, text, infos) = compiled(open.clone(), GpuArch::Sm80);
    let shown = tile::text::print_kernel(&scheduled.kernels[0], &[]);
    assert_eq!((shown.matches("padded").count(), shown.matches("  run (").count()), (1, 2), "{shown}");
    // What was stored is not loaded before that.
    let again = source.replace(
        "  return",
        "  %g = load %y[%row, %col], rows=0, cols=1 : tile f32[%rows<=16, 40]\n  store %y[%row, %col], %g, rows=0, cols=1\n  return",
    );
    let file = SourceMap::new().add("again.tir", again.as_str());
    let again = tile::text::parse(&again, file).unwrap_or_else(|d| panic!("{:?}", d.sorted())).module.kernels;
    assert!(!tile::text::print_kernel(&compiled(again, GpuArch::Sm80).0.kernels[0], &[]).contains("padded"));
    let loaded = Loaded::load(&text).unwrap_or_else(|e| panic!("{e}"));
    for rows in [70, 33, 1, 0] {
        let symbols = BTreeMap::from([("S".to_string(), rows)]);
        let n = 40 * rows as usize;
        let bytes = |x: Tensor| x.bytes().to_vec();
        let buffers =
            [tensor(Elem::F32, &[n]), of_values(Elem::F32, &[n], (0..n).map(|i| (i % 11) as i64).collect())].map(bytes);
        let mut given = buffers.clone().map(Argument::Buffer);
        run_kernel(&open[0], &symbols, &mut given, Limits::default()).unwrap_or_else(|e| panic!("{e}"));
        let Argument::Buffer(expected) = &given[1] else { panic!("a buffer") };
        let floats = |bytes: &[u8]| {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<f32>>()
        };
        for mode in [Mode::EAGER, Mode::LATEST.seeded(3)] {
            let (out, _) =
                launch(&loaded, &infos[0], &symbols, &buffers, mode).unwrap_or_else(|e| panic!("{e}\n{text}"));
            for (x, y) in floats(&out[1]).iter().zip(floats(expected)) {
                assert!((x - y).abs() <= 1e-5 * (1.0 + y.abs()), "{x} {y}");
            }
        }
    }
}

/// What the schedule says and what becomes of it, as texts; the first reads back.
#[test]
fn tiles_and_threads_of_a_transpose() {
    let source = model("fn f(x: bf16[R, 256], y: bf16[256, R]) -> bf16[256, R] { x.T + y }");
    let tiles = for_gpu(&source, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
    let text = tile::text::print(&tiles);
    let file = SourceMap::new().add("turned.tir", text.as_str());
    let again = tile::text::parse(&text, file).unwrap_or_else(|d| panic!("{:?}", d.sorted()));
    assert_eq!(
        tile::text::print(&tile::verify::VerifiedModule::new(again.module).unwrap_or_else(|e| panic!("{e}"))),
        text
    );
    readable::assert_readable("transpose_tiles", &text);
    let (module, _) = ptx::compile(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
    readable::assert_readable("transpose", &print(&module));
}

#[test]
fn transposes_are_assembled_without_spills() {
    ptxas::with("transposes", |ptxas| {
        for source in cases(Elem::BF16).iter().map(|case| case.source.as_str()).chain([
            "fn f(x: i8[B, 256, 384]) -> i8[B, 384, 256] { x.T }",
            "fn f(x: bf16[8, 256, 384]) -> bf16[8, 384, 256] { x.T }",
            "fn f(x: f32[A, B, C]) -> f32[C, B, A] { rearrange(x, \"a b c -> c b a\") }",
        ]) {
            for (arch, processor) in [(GpuArch::Sm80, "sm_80"), (GpuArch::Sm80, "sm_100"), (GpuArch::Sm90a, "sm_90a")] {
                let tiles = for_gpu(&model(source), arch).unwrap_or_else(|e| panic!("{e}"));
                let (module, _) = ptx::compile(&tiles, arch).unwrap_or_else(|e| panic!("{e}"));
                fragments::assembles(ptxas, &module, processor).unwrap_or_else(|e| panic!("{source}: {e}"));
            }
        }
    });
}
