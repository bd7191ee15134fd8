//! Parameters that stand one after another: are they put together when a model is opened, and do products by them compute
//! what products by each compute, to the bit?

use crate::{compiled, front, gen_source};

use std::collections::BTreeMap;

use crate::bounded::Bounded;
use attnc::ir::interp;
use attnc::ir::{Module, verify};
use attnc::lowering::graph;
use attnc::passes::{Level, Options};
use attnc::tensor::Tensor;
use attnc::tile::{self, Cpu, Op, PlanOp, PlanVariant};
use attnc::tile::{WeightChoice, WeightFormat};

fn module(source: &str, level: Level) -> Module {
    let module = front::module("joined.attn", source, &graph::Options::default()).unwrap_or_else(|e| panic!("{e}"));
    compiled::optimised(module, &Options { level, ..Options::default() })
}

/// Numbers whose products have to be rounded.
fn argument(rows: usize, cols: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
    Tensor::from_f32(vec![rows, cols], &values).unwrap()
}

/// The results of a call, from the compiled code and from the tile interpreter, which agree to the bit at the portable level.
fn run(module: &Module, level: Cpu, weights: impl Into<WeightChoice>, x: &[Tensor]) -> Vec<(Vec<Tensor>, Vec<Tensor>)> {
    let params = gen_source::inputs::parameters(module, 5);
    let folder = tempfile::tempdir().unwrap();
    let tiles = compiled::scheduled_with(module, level, weights);
    let model = compiled::load_tiles(level, module, &tiles, &params, folder.path());
    let mut session = model.session().unwrap();
    let verified = tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{e}"));
    x.iter()
        .map(|x| {
            let args = std::slice::from_ref(x);
            let symbols = BTreeMap::from([("S".to_string(), i64::try_from(x.shape()[0]).unwrap())]);
            let call = tile::interp::Call {
                plan: "forward",
                variant: PlanVariant::Plain,
                symbols: &symbols,
                args,
                params: &params,
                limits: interp::Limits::default(),
            };
            let interpreted = tile::interp::run(verified, &call).unwrap_or_else(|e| panic!("{e}"));
            (session.call(0, args).unwrap_or_else(|e| panic!("{e}")), interpreted.results)
        })
        .collect()
}

/// Is every element of the result within the bound of what is expected?
fn is_right(what: &str, module: &Module, x: &Tensor, got: &[Tensor]) {
    let params = gen_source::inputs::parameters(module, 5);
    let call = interp::Call {
        function: "forward",
        args: std::slice::from_ref(x),
        params: &params,
        limits: interp::Limits::default(),
    };
    let expected = interp::run::<Bounded>(verify(module).unwrap(), &call).unwrap_or_else(|e| panic!("{e}"));
    for (want, got) in expected.results.iter().zip(got) {
        compiled::agree(what, want, got);
    }
}

/// Compares a program with one that says the same otherwise, at every level and in every format.
/// Bits are compared unless `alone`: a product of one column is summed in an order of its own.
fn compute_the_same(
    what: &str,
    (one, other): (&str, &str),
    cols: usize,
    rows: &[usize],
    (formats, alone): (&[WeightFormat], bool),
) {
    let (one, other) = (module(one, Level::O2), module(other, Level::O0));
    let xs: Vec<Tensor> = rows.iter().map(|r| argument(*r, cols)).collect();
    for level in compiled::levels() {
        // The contents of panels are the same for all levels.
        for format in formats.iter().filter(|f| **f == WeightFormat::F32 || level == compiled::levels()[0]) {
            let got = run(&one, level, *format, &xs);
            let want = run(&other, level, *format, &xs);
            for ((x, (got, interpreted)), (want, _)) in xs.iter().zip(&got).zip(&want) {
                let what = format!("{what}, {} rows, {format:?}, {}", x.shape()[0], level.name());
                assert!(got == want || alone, "{what}: other bits");
                if *format == WeightFormat::F32 {
                    is_right(&what, &one, x, got);
                    is_right(&what, &one, x, interpreted);
                }
            }
        }
    }
}

/// How often the plan of a call launches kernels of this kind, and how often it does in all.
fn launches(tiles: &tile::Module, kind: &str) -> (usize, usize) {
    let plan = tiles.plans.iter().find(|p| p.variant == PlanVariant::Plain).unwrap();
    let all = plan.body.insts().filter_map(|(_, _, d)| match &d.op {
        Op::Plan(PlanOp::Launch { kernel }) => Some(kernel.starts_with(kind)),
        _ => None,
    });
    let all: Vec<bool> = all.collect();
    (all.iter().filter(|is| **is).count(), all.len())
}

/// A product by parameters one after another, `forms` of them: `w` is what a part is, `W` its declaration.
fn source(dims: &str, parts: &[(String, usize, bool)], result: &str) -> String {
    let mut out = format!("model M<{dims}> {{\n");
    for (name, n, turned) in parts {
        let shape = if *turned { format!("{n}, K") } else { format!("K, {n}") };
        out += &format!("    {name}: f32[{shape}]\n    b_{name}: f32[{n}]\n");
    }
    let all: usize = parts.iter().map(|(_, n, _)| n).sum();
    out + &format!("    pub fn forward(x: f32[S, K]) -> f32[S, {all}] {{ {result} }}\n}}")
}

/// Widths that fill panels at every level, at some, and at none.
const WIDTHS: [&[usize]; 5] = [&[32, 64, 32], &[32, 1], &[16, 16, 16], &[33, 5, 2], &[8, 24]];

/// A concat of weights by hand, with a concat of biases after it: panels follow each other or not.
#[test]
fn concats_of_parameters_are_made_before_all_calls() {
    for (i, widths) in WIDTHS.into_iter().enumerate() {
        let k = [40, 3, 65][i % 3];
        let names = ["p", "q", "r"];
        let parts: Vec<(String, usize, bool)> = widths
            .iter()
            .zip(names)
            .enumerate()
            .map(|(j, (n, name))| (name.to_string(), *n, (i + j) % 3 == 0))
            .collect();
        let part = |(name, _, turned): &(String, usize, bool)| if *turned { format!("{name}.T") } else { name.clone() };
        let list = |f: &dyn Fn(&(String, usize, bool)) -> String| parts.iter().map(f).collect::<Vec<_>>().join(", ");
        let (weights, biases) = (list(&part), list(&|p| format!("b_{}", p.0)));
        let dims = format!("K = {k}");
        let one = source(&dims, &parts, &format!("relu(x @ concat({weights}, axis = 1) + concat({biases})) * 2.0"));
        let each = list(&|p| format!("relu(x @ {} + b_{}) * 2.0", part(p), p.0));
        let other = source(&dims, &parts, &format!("concat({each}, axis = 1)"));
        let all = WeightFormat::ALL;
        let few = if i == 0 { &all[..] } else { &[WeightFormat::F32] };
        compute_the_same(&format!("{widths:?}"), (&one, &other), k, &[0, 1, 7, 130], (few, widths.contains(&1)));

        let module = module(&one, Level::O2);
        for level in [Cpu::PORTABLE, Cpu::AVX2, Cpu::AVX512] {
            let tiles = compiled::scheduled(&module, level);
            let panel = i64::from(level.dot_cols());
            let fill = widths[..widths.len() - 1].iter().all(|n| *n as i64 % panel == 0);
            let want = if fill { 1 } else { widths.len() };
            assert_eq!(launches(&tiles, "matmul"), (want, want), "{widths:?}, {}", level.name());
        }
    }
}

/// The same one below the other, and turned as a whole.
#[test]
fn turned_concats_are_panels_too() {
    for (n, m) in [(64, 32), (32, 9), (9, 32)] {
        let part = |name: &str, n| (name.to_string(), n, true);
        let parts = [part("p", n), part("q", m)];
        let one = source("K = 20", &parts, "x @ concat(p, q).T");
        let other = source("K = 20", &parts, "concat(x @ p.T, x @ q.T, axis = 1)");
        compute_the_same(&format!("{n}, {m}"), (&one, &other), 20, &[1, 9], (&[WeightFormat::F32], false));
        let tiles = compiled::scheduled(&module(&one, Level::O2), Cpu::AVX512);
        assert_eq!(launches(&tiles, "matmul").1, if n % 32 == 0 { 1 } else { 2 });
    }
}

/// What else is done with joined parameters reads them as they are, and nothing is joined in a call.
#[test]
fn other_uses_read_them_row_by_row() {
    let parts = [("p".to_string(), 12, false), ("q".to_string(), 8, false)];
    let one = source("K = 5", &parts, "let w = concat(p, q, axis = 1)\n x @ w + sum(w, axis = 0) + w[2, 0..20]");
    let other = source(
        "K = 5",
        &parts,
        "concat(x @ p + sum(p, axis = 0) + p[2, 0..12], x @ q + sum(q, axis = 0) + q[2, 0..8], axis = 1)",
    );
    compute_the_same("sums", (&one, &other), 5, &[0, 1, 7], (&[WeightFormat::F32, WeightFormat::Bf16], false));
    let tiles = compiled::scheduled(&module(&one, Level::O2), Cpu::AVX512);
    assert_eq!(launches(&tiles, "concat").0, 0);
    // The function's result is computed in the caller's memory.
    let source = "model M {\n    p: f32[2, 3]\n    q: f32[2, 4]\n    pub fn forward(x: f32[S]) -> f32[2, 7] { concat(p, q, axis = 1) }\n}";
    let tiles = compiled::scheduled(&module(source, Level::O2), Cpu::AVX512);
    assert_eq!((launches(&tiles, "concat").0, tiles.packed), (2, 0));
}

/// Windows of one parameter that differ in one thing each: where they begin, how long they are, which way they lie. They are read
/// element by element, and by products.
#[test]
fn windows_of_one_parameter_are_told_apart() {
    let windows = [
        ("[0..8, 0..8]", "[24..32, 0..8]", 8),
        ("[8..16, 0..8]", "[16..24, 0..8]", 8),
        ("[8..17, 0..8]", "[16..23, 0..8]", 9),
        ("[8..16, 0..8].T", "[16..24, 0..8].T", 8),
    ];
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for (n, (a, b, rows)) in windows.into_iter().enumerate() {
        let (cut, end) = (n + rows, n + 16);
        let joined = format!("concat(p{a}, p{b}, axis = 0)");
        let product = format!("x[.., {n}..{end}] @ {joined}");
        let parts = format!("(x[.., {n}..{cut}] @ p{a} + x[.., {cut}..{end}] @ p{b})");
        let (weight, both) = (format!("{}.0", n + 1), format!("(sum(sum(exp(p{a}))) + sum(sum(exp(p{b}))))"));
        one.push(format!("sum({product}, axis = 1, keep = true) + sum(sum(exp({joined}))) * {weight}"));
        other.push(format!("sum({parts}, axis = 1, keep = true) + {both} * {weight}"));
    }
    let square = [("p".to_string(), 32, false)];
    let text = |terms: Vec<String>| source("K = 32", &square, &format!("x[.., 0..32] + {}", terms.join(" + ")));
    compute_the_same("windows", (&text(one), &text(other)), 32, &[1, 7], (&[WeightFormat::F32], true));
}

/// Layers of an array: each has its panels and biases, and a loop picks its own.
#[test]
fn layers_have_joined_weights_of_their_own() {
    for (a, b) in [(32, 64), (7, 5)] {
        let layer = |result: &str| {
            format!(
                "layer Mix<A, B> {{\n    p: f32[A + B, A]\n    q: f32[B, A + B]\n    u: f32[A]\n    v: f32[B]\n    \
                 fn forward(x: f32[S, A + B]) -> f32[S, A + B] {{ {result} }}\n}}\n\
                 model M {{\n    h: [Mix<{a}, {b}>; 3]\n    \
                 pub fn forward(x: f32[S, {d}]) -> f32[S, {d}] {{\n        var y = x\n        \
                 for layer in h {{ y = layer(y) * 0.125 }}\n        y\n    }}\n}}",
                d = a + b
            )
        };
        let one = layer("x @ concat(p, q.T, axis = 1) + concat(u, v)");
        let other = layer("concat(x @ p + u, x @ q.T + v, axis = 1)");
        compute_the_same(
            &format!("layers of {a} and {b}"),
            (&one, &other),
            a + b,
            &[0, 1, 5],
            (&WeightFormat::ALL[..if a == 32 { WeightFormat::ALL.len() } else { 1 }], false),
        );
    }
}

/// Queries, keys and values as an author writes them: one product in the end where they fill panels, with or without biases.
#[test]
fn projections_are_one_product() {
    for (i, (n, m, biased)) in [(32, 48, true), (32, 32, false), (5, 9, true), (16, 2, false)].into_iter().enumerate() {
        let names = [("q", n, i % 2 == 0), ("k", n, true), ("v", m, false)];
        let names = if i == 3 { &names[1..] } else { &names };
        let (mut fields, mut lets) = (String::new(), String::new());
        for (name, width, turned) in names {
            let (shape, weight) = if *turned { (format!("{width}, 20"), ".T") } else { (format!("20, {width}"), "") };
            fields += &format!("    w_{name}: f32[{shape}]\n    b_{name}: f32[{width}]\n");
            let bias = if biased { format!(" + b_{name}") } else { String::new() };
            lets += &format!("        let {name} = x @ w_{name}{weight}{bias}\n");
        }
        let mixed = if i == 3 { "(k @ k.T) @ v" } else { "(q @ k.T) @ v" };
        let back = format!("    o: f32[{m}, 20]\n");
        let source = format!(
            "layer Mix {{\n{fields}{back}    fn forward(x: f32[S, 20]) -> f32[S, 20] {{\n{lets}        ({mixed}) @ o\n    }}\n}}\n\
             model M {{\n    h: [Mix; 2]\n    pub fn forward(x: f32[S, 20]) -> f32[S, 20] {{\n        var y = x\n        \
             for layer in h {{ y = layer(y) * 0.01 }}\n        y\n    }}\n}}"
        );
        let list = WeightFormat::ALL;
        let few = if i == 0 { &list[..] } else { &list[..1] };
        compute_the_same(&format!("{n}, {m}, {biased}"), (&source, &source), 20, &[0, 1, 7], (few, false));
        let tiles = compiled::scheduled(&module(&source, Level::O2), Cpu::AVX512);
        // Three more products, two of which are launched in two ways: with keys or values packed, if there are many rows, or
        // not. Those of odd widths stay separate.
        let want = if n % 32 == 0 { 1 } else { names.len() } + 3 + 2;
        assert_eq!((launches(&tiles, "matmul").0, launches(&tiles, "concat").0), (want, 0), "{n}, {m}");
        assert_eq!(launches(&tiles, "map").0, 0, "biases stay in the product's kernel");
    }
}

/// What follows a product reads its columns of a merged one: rows of a softmax, sums, and a reshape that needs the rows without
/// gaps, which keeps its product apart.
#[test]
fn what_follows_reads_its_columns() {
    let source = |q: &str, k: &str, mixed: &str| {
        format!(
            "model M {{\n    a: f32[20, 32]\n    b: f32[20, 32]\n    c: f32[20, 64]\n    \
             pub fn forward(x: f32[S, 20]) -> f32[S, 32] {{\n        \
             let q = {q}\n        let k = {k}\n        let v = x @ c\n        {mixed}\n    }}\n}}"
        )
    };
    let one = source("softmax(x @ a)", "x @ b", "q * sum(k, axis = 0) + (v.T @ v)[0, 32..64]");
    compute_the_same("softmax", (&one, &one), 20, &[0, 1, 7, 130], (&[WeightFormat::F32], false));
    let tiles = compiled::scheduled(&module(&one, Level::O2), Cpu::AVX512);
    assert_eq!(launches(&tiles, "matmul").0, 2, "x @ a, x @ b and x @ c are one");

    let regrouped = source(
        "softmax(x @ a)",
        "rearrange(x @ b, \"s (g e) -> (s g) e\", g = 2)",
        "q * sum(k @ k.T, axis = 1, keep = true)[0..S] + (v.T @ v)[0, 32..64]",
    );
    compute_the_same("regrouped", (&regrouped, &regrouped), 20, &[0, 1, 7, 130], (&[WeightFormat::F32], false));
    let tiles = compiled::scheduled(&module(&regrouped, Level::O2), Cpu::AVX512);
    // k @ k.T is launched in two ways, for many and for few rows.
    assert_eq!((launches(&tiles, "matmul").0, launches(&tiles, "copy").0), (5, 0), "x @ b is alone, and is not copied");
}

/// Of parameters that lie one after another each is kept as is chosen for it: columns are, bit for bit, those of a program in
/// which all are kept so.
#[test]
fn joined_parameters_are_kept_each_in_its_way() {
    for (columns, ending) in [([32, 64, 32], ""), ([32, 5, 32], ""), ([64, 64, 64], " * 2.0")] {
        let [a, b, c] = columns;
        let text = format!(
            "model M {{\n    a: f32[40, {a}]\n    b: f32[40, {b}]\n    c: f32[40, {c}]\n    \
             pub fn forward(x: f32[S, 40]) -> f32[S, {n}] {{ (x @ concat(a, b, c, axis = 1)){ending} }}\n}}",
            n = a + b + c
        );
        let program = module(&text, Level::O2);
        let x = [argument(1, 40), argument(9, 40)];
        for format in [WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4] {
            for level in compiled::levels_for(format) {
                let exact = run(&program, level, WeightFormat::F32, &x);
                let packed = run(&program, level, format, &x);
                for names in [&["b"][..], &["a", "c"], &["a", "b", "c"]] {
                    let kept = names.iter().map(ToString::to_string).collect();
                    let mixed = run(&program, level, WeightChoice { format, kept }, &x);
                    for (call, (mixed, _)) in mixed.iter().enumerate() {
                        let bits = |of: &Tensor| of.to_f32().into_iter().map(f32::to_bits).collect::<Vec<u32>>();
                        let (mixed, exact, packed) =
                            (bits(&mixed[0]), bits(&exact[call].0[0]), bits(&packed[call].0[0]));
                        for (i, bits) in mixed.iter().enumerate() {
                            let column = i % (a + b + c);
                            let name = if column < a {
                                "a"
                            } else if column < a + b {
                                "b"
                            } else {
                                "c"
                            };
                            let wanted = if names.contains(&name) { exact[i] } else { packed[i] };
                            assert_eq!(*bits, wanted, "{columns:?}, {format:?} at {}, {names:?}, {i}", level.name());
                        }
                    }
                }
            }
        }
    }
}
