//! Products of `bf16` at every level, those with instructions for them among them: against the graph interpreter with its
//! error bounds, and the tile interpreter on the same kernels.

use crate::{compiled, front};

use std::collections::BTreeMap;

use crate::bounded::Bounded;
use attnc::codegen::cpu;
use attnc::ir::interp;
use attnc::ir::{Module, verify};
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::{self, Cpu, DotMode, Op, PlanVariant};

fn module(source: &str) -> Module {
    let module = front::module("bf16.attn", source, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{source}"));
    compiled::optimised(module, &passes::Options::default())
}

/// Numbers of all sizes from 2^-8 to 1, with either sign.
fn tensor(elem: Elem, shape: &[usize], seed: usize) -> Tensor {
    let number = |i: usize| {
        let n = (i + 1).wrapping_mul(2_654_435_761 + 2 * seed) >> 7;
        let size = (n % 509) as f32 / 256.0 - 1.0;
        size / (1 << (n / 509 % 8)) as f32
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(number).collect();
    match elem {
        Elem::BF16 => {
            let bytes = values.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
            Tensor::new(elem, shape.to_vec(), bytes).unwrap()
        }
        _ => Tensor::from_f32(shape.to_vec(), &values).unwrap(),
    }
}

/// Values of all parameters; those of an array of layers have a tensor for each.
fn parameters(module: &Module) -> BTreeMap<String, Tensor> {
    let mut out = BTreeMap::new();
    for (n, p) in module.params.iter().enumerate() {
        let shape: Vec<usize> = p.ty.shape.iter().map(|d| usize::try_from(d.as_const().unwrap()).unwrap()).collect();
        let count = p.counts.first().copied().unwrap_or(1);
        for i in 0..count {
            out.insert(
                p.name.replacen('*', &i.to_string(), 1),
                tensor(p.ty.elem, &shape, 100 * n + 7 * i as usize + 1),
            );
        }
    }
    out
}

/// Does a kernel of the module have products of pairs, with the left operand in place? Where there is one with weights that are
/// made into pairs, it is an attention's, all of whose products are such then: of queries and keys, and of weights and values, but
/// for three with values that are not finite, which it goes on to if its result is not.
fn has_pairs(tiles: &tile::Module) -> bool {
    let mut found = false;
    for k in &tiles.kernels {
        let made_by = |v: &tile::Value| k.body.def_inst(*v).map(|d| d.op.clone());
        let (mut all, mut pairs, mut of_rows) = (0, 0, 0);
        for (_, _, d) in k.body.insts() {
            let (Op::Dot { mode }, [a, b, _]) = (&d.op, d.operands.as_slice()) else { continue };
            let (a, b) = (made_by(a), made_by(b));
            all += 1;
            let is_of_pairs = matches!((&a, &b), (Some(Op::Window { .. }), Some(Op::LoadPairs | Op::PairRows)));
            assert_eq!(is_of_pairs, matches!(mode, Some(DotMode::Pairs | DotMode::Tiles)), "{}", k.name);
            pairs += usize::from(is_of_pairs);
            of_rows += usize::from(matches!(b, Some(Op::PairRows)));
        }
        if of_rows > 0 {
            assert!(all >= 2 && pairs == all && of_rows == all, "{}: {pairs} of {all} products in pairs", k.name);
        }
        found |= pairs > 0;
    }
    found
}

/// Compares compiled code and interpreted tiles of every level with the graph interpreter, for arguments of given shapes.
/// `pairs`: at which of the levels for `bf16` are there products of pairs?
/// Where a program computes nothing but products, compiled code and interpreted tiles give the same bits.
fn compute_the_same(what: &str, source: &str, calls: &[Vec<Tensor>], symbols: &[&str], pairs: &[Cpu]) {
    let is_exact = source.contains('@') && !["softmax", "gelu"].iter().any(|f| source.contains(f));
    let module = module(source);
    let params = parameters(&module);
    for level in Cpu::NAMED {
        let tiles = compiled::scheduled(&module, level);
        assert_eq!(has_pairs(&tiles), pairs.contains(&level), "{what}, {}", level.name());
        // Tiles have no code through LLVM.
        if level == Cpu::AMX && compiled::generator() == attnc::codegen::Generator::Llvm {
            continue;
        }
        // Levels that cannot run here are compiled too.
        if !compiled::bf16_levels().contains(&level) {
            let model = attnc::codegen::descriptor::describe(&module.interface(), "Test", "", "any").unwrap();
            compiled::compile(&[compiled::tier(level, &tiles)], &model);
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let model = compiled::load_tiles(level, &module, &tiles, &params, folder.path());
        let mut session = model.session().unwrap();
        let verified = tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{what}: {e}"));
        for args in calls {
            let call = interp::Call { function: "forward", args, params: &params, limits: interp::Limits::default() };
            let expected = interp::run::<Bounded>(verify(&module).unwrap(), &call).unwrap_or_else(|e| panic!("{e}"));
            let shapes: Vec<usize> = args.iter().flat_map(|a| a.shape().iter().copied().take(1)).collect();
            let bound = |(name, n): (&&str, usize)| (name.to_string(), i64::try_from(n).unwrap());
            let symbols: BTreeMap<String, i64> = symbols.iter().zip(shapes).map(bound).collect();
            let run = tile::interp::Call {
                plan: "forward",
                variant: PlanVariant::Plain,
                symbols: &symbols,
                args,
                params: &params,
                limits: interp::Limits::default(),
            };
            let interpreted = tile::interp::run(verified, &run).unwrap_or_else(|e| panic!("{what}: {e}"));
            let called = session.call(0, args).unwrap_or_else(|e| panic!("{what}: {e}"));
            let what = format!("{what}, {:?}, {}", args[0].shape(), level.name());
            compiled::agree(&format!("{what}, interpreted"), &expected.results[0], &interpreted.results[0]);
            compiled::agree(&what, &expected.results[0], &called[0]);
            if is_exact {
                compiled::same_bits(&what, &interpreted.results[0], &called[0]);
            }
        }
    }
}

const BOTH: [Cpu; 2] = [Cpu::AVX512_BF16, Cpu::AMX];
const TILES: [Cpu; 1] = [Cpu::AMX];

/// `f32` in and out, `bf16` between, weights of every form, sizes at the edges of tiles, panels and pairs.
#[test]
fn weights() {
    let sizes =
        [(2, 3, &BOTH[..]), (32, 16, &BOTH), (33, 40, &TILES), (66, 31, &BOTH), (1, 2, &TILES), (1100, 50, &BOTH)];
    for (k, n, pairs) in sizes {
        let (k3, n2) = (k + 3, n + 2);
        let forms = [
            ("bf16[K, N]".to_string(), "w"),
            ("bf16[N, K]".to_string(), "w.T"),
            (format!("bf16[{k3}, N]"), "w[1..K + 1]"),
            (format!("bf16[{n2}, K]"), "w[2..N + 2].T"),
        ];
        for (params, weight) in forms.into_iter().skip(if k > 100 { 1 } else { 0 }).take(if k > 100 { 1 } else { 4 }) {
            let source = format!(
                "model M<K = {k}, N = {n}> {{\n    w: {params}\n    b: f32[N]\n    pub fn forward(x: f32[S, K]) -> f32[S, N] {{\n        \
                 cast<f32>(cast<bf16>(x) @ {weight}) + b\n    }}\n}}"
            );
            let rows: &[usize] = if k > 100 { &[1, 40] } else { &[0, 1, 15, 17, 33, 70] };
            let calls: Vec<_> = rows.iter().map(|rows| vec![tensor(Elem::F32, &[*rows, k], 5)]).collect();
            compute_the_same(&format!("{weight} of {params}, K {k}, N {n}"), &source, &calls, &["S"], pairs);
        }
    }
}

/// Layers whose weights lie in an array, one product after the other, the second one's left operand made by the first.
#[test]
fn layers() {
    let source = "layer Two<D, F> {\n    up: bf16[F, D]\n    down: bf16[D, F]\n    fn forward(x: f32[S, D]) -> f32[S, D] {\n        \
                  let y = gelu_tanh(cast<f32>(cast<bf16>(x) @ up.T))\n        \
                  x + cast<f32>(cast<bf16>(y) @ down.T)\n    }\n}\n\
                  model M<L = 3, D = 48, F = 80> {\n    blocks: [Two<D, F>; L]\n    pub fn forward(x: f32[S, D]) -> f32[S, D] {\n        \
                  var y = x\n        for block in blocks { y = block(y) }\n        y\n    }\n}";
    let calls: Vec<_> = [1, 16, 45].iter().map(|rows| vec![tensor(Elem::F32, &[*rows, 48], 9)]).collect();
    compute_the_same("layers", source, &calls, &["S"], &BOTH);
}

/// `f32` by `bf16` weights that are widened: they are packed and gathered as they are stored, and no product rounds its left operand.
#[test]
fn widened_weights() {
    for (k, n) in [(2, 3), (32, 16), (33, 40), (66, 31), (1, 2)] {
        let (k3, n2) = (k + 3, n + 2);
        let forms = [
            ("bf16[K, N]".to_string(), "cast<f32>(w)"),
            ("bf16[N, K]".to_string(), "cast<f32>(w).T"),
            (format!("bf16[{k3}, N]"), "cast<f32>(w)[1..K + 1]"),
            (format!("bf16[{n2}, K]"), "cast<f32>(w[2..N + 2]).T"),
            ("bf16[N, K]".to_string(), "(cast<f32>(w) * 2.0).T"),
        ];
        for (params, weight) in forms {
            let source = format!(
                "model M<K = {k}, N = {n}> {{\n    w: {params}\n    b: bf16[N]\n    pub fn forward(x: f32[S, K]) -> f32[S, N] {{\n        \
                 x @ {weight} + cast<f32>(b)\n    }}\n}}"
            );
            let calls: Vec<_> = [0, 1, 15, 33].iter().map(|rows| vec![tensor(Elem::F32, &[*rows, k], 5)]).collect();
            compute_the_same(&format!("{weight} of {params}, K {k}, N {n}"), &source, &calls, &["S"], &[]);
        }
    }
    // One table for both ends, layers in an array, a norm.
    let source = "layer Two<D, F> {\n    up: bf16[F, D]\n    down: bf16[D, F]\n    fn forward(x: f32[S, D]) -> f32[S, D] {\n        \
                  x + maximum(x @ cast<f32>(up).T, 0.0) @ cast<f32>(down).T\n    }\n}\n\
                  model M<L = 3, V = 21, D = 24, F = 40> {\n    table: bf16[V, D]\n    scale: bf16[D]\n    blocks: [Two<D, F>; L]\n    \
                  pub fn forward(at: i32[S]) -> f32[S, V] {\n        var y = cast<f32>(table)[at] * cast<f32>(scale)\n        \
                  for block in blocks { y = block(y) }\n        y @ cast<f32>(table).T\n    }\n}";
    let tokens = |n: i64| {
        Tensor::from_ints(Elem::I32, vec![n as usize], &(0..n).map(|i| i * 8 % 21).collect::<Vec<i64>>()).unwrap()
    };
    let calls: Vec<_> = [1, 9].iter().map(|rows| vec![tokens(*rows)]).collect();
    compute_the_same("widened layers", source, &calls, &["S"], &[]);
}

/// Two arguments: the right one is packed by a launch where its rows may be many.
#[test]
fn arguments() {
    for (k, pairs) in [(6, &BOTH[..]), (35, &TILES)] {
        for (b, right) in [("bf16[T, K]", "b.T"), ("bf16[K, 37]", "b")] {
            let result = if right == "b" { "37" } else { "T" };
            let source = format!(
                "model M<K = {k}> {{\n    pub fn forward(a: bf16[S, K], b: {b}) -> bf16[S, {result}] {{ a @ {right} }}\n}}"
            );
            let symbols: &[&str] = if right == "b" { &["S"] } else { &["S", "T"] };
            let calls: Vec<_> = [(0, 1), (1, 5), (20, 32), (49, 70)]
                .iter()
                .map(|(s, t)| {
                    let shape = if right == "b" { [k, 37] } else { [*t, k] };
                    vec![tensor(Elem::BF16, &[*s, k], 3), tensor(Elem::BF16, &shape, 4)]
                })
                .collect();
            compute_the_same(&format!("{right}, K {k}"), &source, &calls, symbols, pairs);
        }
    }
    // Batches, and a right operand that repeats along them.
    for (b, right) in [("bf16[3, 21, 40]", "b.T"), ("bf16[40, 21]", "b")] {
        let source = format!(
            "model M {{\n    pub fn forward(a: bf16[3, S, 40], b: {b}) -> bf16[3, S, 21] {{ a @ {right} }}\n}}"
        );
        let shape: &[usize] = if right == "b" { &[40, 21] } else { &[3, 21, 40] };
        let calls = [vec![tensor(Elem::BF16, &[3, 18, 40], 3), tensor(Elem::BF16, shape, 4)]];
        let module = module(&source);
        // The symbol is the second axis here; the interpreted plan looks it up by name.
        let symbols = BTreeMap::from([("S".to_string(), 18)]);
        let params = BTreeMap::new();
        let call =
            interp::Call { function: "forward", args: &calls[0], params: &params, limits: interp::Limits::default() };
        let expected = interp::run::<Bounded>(verify(&module).unwrap(), &call).unwrap();
        for level in compiled::bf16_levels() {
            let tiles = compiled::scheduled(&module, level);
            let folder = tempfile::tempdir().unwrap();
            let model = compiled::load_tiles(level, &module, &tiles, &params, folder.path());
            let run = tile::interp::Call {
                plan: "forward",
                variant: PlanVariant::Plain,
                symbols: &symbols,
                args: &calls[0],
                params: &params,
                limits: interp::Limits::default(),
            };
            let interpreted = tile::interp::run(tile::verify::verify(&tiles).unwrap(), &run).unwrap();
            compiled::agree(
                &format!("{b}, {}, interpreted", level.name()),
                &expected.results[0],
                &interpreted.results[0],
            );
            let got = model.session().unwrap().call(0, &calls[0]).unwrap_or_else(|e| panic!("{e}"));
            compiled::agree(&format!("{b}, {}", level.name()), &expected.results[0], &got[0]);
        }
    }
}

const ATTENTION: &str = "model M {\n    pub fn forward(q: bf16[S, 22], k: bf16[T, 22], v: bf16[T, 7]) -> bf16[S, 7] {\n        \
                         softmax(where(causal(S, T), q @ k.T * 0.25, -inf)) @ v\n    }\n}";

/// Queries, keys and values.
fn attended(s: usize, t: usize) -> Vec<Tensor> {
    [([s, 22], 3), ([t, 22], 4), ([t, 7], 5)].map(|(shape, seed)| tensor(Elem::BF16, &shape, seed)).into()
}

/// Attention of many queries multiplies pairs where its heads are of an even width.
#[test]
fn attention() {
    let sizes = [(0, 3), (5, 3), (64, 0), (64, 1), (66, 33), (70, 257)];
    let calls = sizes.map(|(s, t)| attended(s, t));
    compute_the_same("attention", ATTENTION, &calls, &["S", "T"], &BOTH);
    let odd = ATTENTION.replace("22]", "21]");
    assert!(!has_pairs(&compiled::scheduled(&module(&odd), Cpu::AVX512_BF16)));
}

/// What attention in pairs is made of: values in panels of keys, turned; queries and weights as pairs of rows.
#[test]
fn kernels_of_attention_in_pairs() {
    let source =
        ATTENTION.replace("[S, ", "[96, ").replace("[T, ", "[300, ").replace("causal(S, T)", "causal(96, 300)");
    let tiles = compiled::scheduled(&module(&source), Cpu::AVX512_BF16);
    let kernels: String = tiles.kernels.iter().map(|k| tile::text::print_kernel(k, &[]) + "\n").collect();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/lowering"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("attention_in_pairs", format!("{source}\n----------\n{kernels}")));
}

/// A text may have pairs of rows at any level.
#[test]
fn pairs_of_rows_are_made_at_every_level() {
    let module = module(ATTENTION);
    let text = tile::text::print(&compiled::scheduled(&module, Cpu::AVX512_BF16));
    assert!(text.contains("pair_rows"), "{text}");
    let args = attended(65, 35);
    let none = BTreeMap::new();
    let call = interp::Call { function: "forward", args: &args, params: &none, limits: interp::Limits::default() };
    let expected = interp::run::<Bounded>(verify(&module).unwrap(), &call).unwrap();
    for level in compiled::levels() {
        // They are widened there.
        let source = text.replace("cpu(avx512bf16)", &format!("cpu({})", level.name()));
        let source = source.replace("mode=pairs", "mode=chain").replace("mode=fma", "mode=chain");
        let file = attnc::source::SourceMap::new().add("pairs.tir", source.as_str());
        let tiles = tile::text::parse(&source, file).unwrap_or_else(|e| panic!("{e:?}")).module;
        let folder = tempfile::tempdir().unwrap();
        let model = compiled::load_tiles(level, &module, &tiles, &none, folder.path());
        let got = model.session().unwrap().call(0, &args).unwrap_or_else(|e| panic!("{e}"));
        compiled::agree(&level.name(), &expected.results[0], &got[0]);
    }
}

/// Numbers of which every third is subnormal, every third so large that its products with these are not small, and all others
/// are around 1.
fn with_subnormals(shape: &[usize], seed: usize) -> Tensor {
    let number = |i: usize| {
        let n = (i + 1).wrapping_mul(2_654_435_761 + 2 * seed) >> 9;
        let size = 1.0 + (n % 61) as f64 / 64.0;
        (if n.is_multiple_of(2) { size } else { -size }) * [1e-39, 1e38, 1.0][n / 61 % 3]
    };
    let values: Vec<f64> = (0..shape.iter().product()).map(number).collect();
    Tensor::from_floats(Elem::BF16, shape.to_vec(), &values).unwrap()
}

/// At the levels for `bf16` a subnormal factor is 0, which costs a product with a large number as a whole.
#[test]
fn subnormal_factors() {
    // Two scores of 0.3 that are 0 there: the weights are a half and a quarter each, or a third.
    let source = "model M { pub fn forward(q: bf16[S, 2], k: bf16[T, 2], v: bf16[T, 2]) -> bf16[S, 2] {\n    \
                  softmax(q @ k.T) @ v\n} }";
    let filled = |rows: usize, first: usize, of: f64| {
        let values: Vec<f64> = (0..2 * rows).map(|i| if i < first { of } else { 0.0 }).collect();
        Tensor::from_floats(Elem::BF16, vec![rows, 2], &values).unwrap()
    };
    let large = [filled(64, 128, 1e-39), filled(3, 2, 3e38), filled(3, 2, 1.0)];
    // Values that are subnormal, with weights that are not.
    let small = [filled(64, 128, 0.5), filled(3, 2, 1.0), filled(3, 6, 1e-39)];
    compute_the_same("subnormal queries", source, &[large.to_vec(), small.to_vec()], &["S", "T"], &BOTH);

    let source = "model M { pub fn forward(a: bf16[S, 34], b: bf16[T, 34]) -> bf16[S, T] { a @ b.T } }";
    let calls = [(600, 3), (3, 40)].map(|(s, t)| vec![with_subnormals(&[s, 34], 3), with_subnormals(&[t, 34], 4)]);
    compute_the_same("subnormal factors", source, &calls, &["S", "T"], &BOTH);
}

/// Attention in pairs of numbers that are not finite, and of subnormal ones: what the bound says of each is found at every level.
#[test]
fn attention_of_special_numbers() {
    let special = |shape: [usize; 2], seed: usize, each: usize, x: f64| {
        let mut values = tensor(Elem::BF16, &shape, seed).to_f64();
        values.iter_mut().skip(each / 2).step_by(each).for_each(|v| *v = x);
        Tensor::from_floats(Elem::BF16, shape.to_vec(), &values).unwrap()
    };
    let mut calls = Vec::new();
    for (s, t) in [(5, 3), (64, 2), (66, 33), (70, 258)] {
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-39, -1e36] {
            // In some queries, keys and values; values are summed before the division, so larger ones may overflow.
            calls.push(vec![special([s, 22], 3, 97, x), special([t, 22], 4, 9999, 0.0), special([t, 7], 5, 9999, 0.0)]);
            calls.push(vec![special([s, 22], 3, 9999, 0.0), special([t, 22], 4, 61, x), special([t, 7], 5, 9999, 0.0)]);
            calls.push(vec![special([s, 22], 3, 9999, 0.0), special([t, 22], 4, 9999, 0.0), special([t, 7], 5, 19, x)]);
        }
    }
    let plain = ATTENTION.replace("where(causal(S, T), q @ k.T * 0.25, -inf)", "q @ k.T * 0.25");
    assert_ne!(plain, ATTENTION);
    for (what, source) in [("special, causal", ATTENTION), ("special", plain.as_str())] {
        compute_the_same(what, source, &calls, &["S", "T"], &BOTH);
        // The bound must say something of most elements, and of some that they are NaN.
        let module = module(source);
        let (mut certain, mut all, mut nan) = (0, 0, 0);
        for args in &calls {
            let params = BTreeMap::new();
            let call = interp::Call { function: "forward", args, params: &params, limits: interp::Limits::default() };
            let out = interp::run::<Bounded>(verify(&module).unwrap(), &call).unwrap();
            let interp::Data::Float(values) = &out.results[0].data else { panic!("floats") };
            for x in values {
                all += 1;
                certain += usize::from(x.error.is_finite());
                nan += usize::from(x.error.is_finite() && x.value.is_nan());
            }
        }
        assert!(2 * certain > all && nan > 0, "{what}: {certain} of {all}, {nan} NaN");
    }
}

/// Weights that are not 0 bring infinite values and NaN into each result of their column, whose sums these are, and no other.
#[test]
fn infinite_values_reach_their_columns() {
    let source = ATTENTION.replace("where(causal(S, T), q @ k.T * 0.25, -inf)", "q @ k.T * 0.25");
    let module = module(&source);
    let none = BTreeMap::new();
    for level in compiled::bf16_levels() {
        let folder = tempfile::tempdir().unwrap();
        let model = compiled::load_at(level, &module, &none, folder.path());
        let mut session = model.session().unwrap();
        for (s, t) in [(3, 5), (64, 2), (66, 33), (70, 300)] {
            let mut args = attended(s, t);
            let mut values = args[2].to_f64();
            let last = 7 * (t - 1);
            // Columns: infinite, infinite the other way, both, NaN; the others stay.
            for (at, x) in [
                (last, f64::INFINITY),
                (1, f64::NEG_INFINITY),
                (2, f64::INFINITY),
                (last + 2, f64::NEG_INFINITY),
                (last + 3, f64::NAN),
            ] {
                values[at] = x;
            }
            args[2] = Tensor::from_floats(Elem::BF16, vec![t, 7], &values).unwrap();
            let out = session.call(0, &args).unwrap_or_else(|e| panic!("{e}"))[0].to_f64();
            for row in out.chunks(7) {
                let what = format!("{}, {s} x {t}: {row:?}", level.name());
                assert_eq!(row[..2], [f64::INFINITY, f64::NEG_INFINITY], "{what}");
                assert!(row[2].is_nan() && row[3].is_nan(), "{what}");
                assert!(row[4..].iter().all(|x| x.abs() <= 1.0), "{what}");
            }
        }
    }
}

/// Operations on one element may lose subnormal numbers of `bf16`, and no others.
#[test]
fn subnormal_elements() {
    for (what, body) in [
        ("signs", "-x"),
        ("sizes", "abs(x)"),
        ("positive ones", "relu(x)"),
        ("the larger", "maximum(x, y)"),
        ("chosen", "where(x < y, x, y)"),
        ("sums", "x + y"),
        ("casts", "cast<bf16>(cast<f32>(x))"),
        ("moved", "x.T"),
    ] {
        let ty = if what == "moved" { "bf16[37, S]" } else { "bf16[S, 37]" };
        let source = format!("model M {{ pub fn forward(x: bf16[S, 37], y: bf16[S, 37]) -> {ty} {{ {body} }} }}");
        let args = vec![with_subnormals(&[9, 37], 1), with_subnormals(&[9, 37], 2)];
        compute_the_same(what, &source, &[args], &["S"], &[]);
    }
}

/// A level's listing has the leaves that its kernels share with lower levels.
#[test]
fn a_listing_has_all_leaves_of_its_level() {
    let module = module(
        "model M { pub fn forward(a: bf16[S, 64], b: bf16[64, 40], c: f32[S, 40]) -> f32[S, 40] {\n    \
         cast<f32>(a @ b) + softmax(c)\n} }",
    );
    let model = attnc::codegen::descriptor::describe(&module.interface(), "Test", "", "any").unwrap();
    let tiles = [Cpu::AMX, Cpu::AVX512].map(|level| (level, compiled::scheduled(&module, level)));
    let tiers = tiles.each_ref().map(|(level, module)| compiled::tier(*level, module));
    let wanted = cpu::EmitOptions { asm: true, level: Some(Cpu::AMX), ..cpu::EmitOptions::default() };
    let listing = cpu::compile(&tiers, &model, wanted).unwrap().asm;
    for text in ["leaf.dot.amx", "tdpbf16ps tmm0, tmm4, tmm6", "leaf.run.avx512", "  # bf16.attn:"] {
        assert!(listing.contains(text), "{text}: {listing}");
    }
    assert!(!listing.contains("leaf.dot.avx512"));
}

/// Steps that do not fit into one part are bounded in the last one; where their number is even, `vdpbf16ps` takes them all
/// the same. Where it is odd, as a text may have it, it is refused, and another mode is not.
#[test]
fn bounded_steps_go_in_pairs_only_where_they_are_even() {
    // With an epilogue, one product in a loop takes all steps.
    let source = "model M { pub fn forward(a: bf16[S, 2176], b: bf16[2176, 40]) -> bf16[S, 40] { abs(a @ b) } }";
    let module = module(source);
    let model = attnc::codegen::descriptor::describe(&module.interface(), "Test", "", "any").unwrap();
    let level = Cpu::AVX512_BF16;
    let text = tile::text::print(&compiled::scheduled(&module, level));
    for (steps, in_pairs) in [("2176", true), ("2175", false)] {
        let source = text.replace("= const 2176 ", &format!("= const {steps} "));
        assert_eq!(source == text, in_pairs, "the bound of the steps is a literal: {text}");
        let parsed = |source: &str| {
            let file = attnc::source::SourceMap::new().add("pairs.tir", source);
            tile::text::parse(source, file).unwrap_or_else(|e| panic!("{e:?}")).module
        };
        let mut tiles = parsed(&source);
        if !in_pairs {
            let refused = tile::verify::verify(&tiles).map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains("mode `pairs`: the number of steps must be even"), "{refused}");
            tiles = parsed(&source.replace("mode=pairs", "mode=chain"));
        }
        tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{e}"));
        let wanted = cpu::EmitOptions { asm: true, level: Some(level), ..cpu::EmitOptions::default() };
        let tier = compiled::tier(level, &tiles);
        let compiled = attnc::codegen::compile(compiled::generator(), &[tier], &model, wanted).unwrap();
        assert_eq!(compiled.asm.contains("vdpbf16ps"), in_pairs, "{steps} steps: {}", compiled.asm);
    }
}

/// A text may have kernels of several levels in one variant: each is made for its own.
#[test]
fn kernels_of_lower_levels_are_made_for_them() {
    let module = module("model M { pub fn forward(a: bf16[S, 64], b: bf16[64, 40]) -> bf16[S, 40] { a @ b } }");
    let model = attnc::codegen::descriptor::describe(&module.interface(), "Test", "", "any").unwrap();
    let tiles = compiled::scheduled(&module, Cpu::AVX512_BF16);
    let wanted = cpu::EmitOptions { asm: true, level: Some(Cpu::AMX), ..cpu::EmitOptions::default() };
    let tier = compiled::tier(Cpu::AMX, &tiles);
    let asm = attnc::codegen::compile(compiled::generator(), &[tier], &model, wanted).unwrap().asm;
    assert!(asm.contains("vdpbf16ps") && !asm.contains("tdpbf16ps"), "{asm}");
}
