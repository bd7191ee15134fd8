//! Are weights packed as they should be: which, where, once, and does everything still compute the same?

use crate::{compiled, front, gen_source};

use std::collections::BTreeMap;

use crate::bounded::Bounded;
use attnc::ir::interp;
use attnc::ir::{Module, verify};
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::WeightFormat;
use attnc::tile::{self, Cpu, Op, PlanOp, PlanVariant};

pub(super) fn module(source: &str) -> Module {
    let module = front::module("packing.attn", source, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    compiled::optimised(module, &passes::Options::default())
}

/// `x @ W` with `W` written in the language, and what its layer declares.
pub(super) fn product(params: &str, weight: &str, dims: &str) -> String {
    format!("model M<{dims}> {{\n    w: {params}\n    pub fn forward(x: f32[S, K]) -> f32[S, N] {{ x @ {weight} }}\n}}")
}

/// Every value of an argument of some rows is a small number, so that sums are exact and one wrong element shows.
pub(super) fn argument(rows: usize, cols: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * cols).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    Tensor::from_f32(vec![rows, cols], &values).unwrap()
}

/// The same, but each group of 32 steps has a 127, so that products that round their left operand get integers.
fn whole_argument(rows: usize, cols: usize) -> Tensor {
    let values = argument(rows, cols).to_f32().into_iter().enumerate();
    let values: Vec<f32> = values.map(|(i, x)| if (i % cols).is_multiple_of(32) { 127.0 } else { x }).collect();
    Tensor::from_f32(vec![rows, cols], &values).unwrap()
}

pub(super) type Params = BTreeMap<String, Tensor>;

/// Compares the compiled code of every level, and the tile interpreter, with the graph interpreter.
fn compute_the_same(what: &str, module: &Module, cols: usize, rows: &[usize]) {
    let params = gen_source::inputs::parameters(module, 5);
    compute_as(what, module, (WeightFormat::F32, &params), &params, cols, rows);
}

/// The same, with weights in a format; the graph interpreter has those that they then stand for.
pub(super) fn compute_as(
    what: &str,
    module: &Module,
    (format, given): (WeightFormat, &Params),
    params: &Params,
    cols: usize,
    rows: &[usize],
) {
    compute_like(what, (module, &compiled::levels_for(format)), (format, given), (module, params), cols, rows);
}

/// The same at some levels, as another module computes it.
pub(super) fn compute_like(
    what: &str,
    (module, levels): (&Module, &[Cpu]),
    (format, given): (WeightFormat, &Params),
    (reference, params): (&Module, &Params),
    cols: usize,
    rows: &[usize],
) {
    for level in levels.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let tiles = compiled::scheduled_with(module, level, format);
        let model = compiled::load_tiles(level, module, &tiles, given, folder.path());
        let mut session = model.session().unwrap();
        let verified = tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{what}: {e}"));
        for rows in rows {
            let whole = matches!(format, WeightFormat::Int8 | WeightFormat::Int4);
            let args = [if whole { whole_argument(*rows, cols) } else { argument(*rows, cols) }];
            let call = interp::Call { function: "forward", args: &args, params, limits: interp::Limits::default() };
            let expected = interp::run::<Bounded>(verify(reference).unwrap(), &call).unwrap_or_else(|e| panic!("{e}"));
            let symbols = BTreeMap::from([("S".to_string(), i64::try_from(*rows).unwrap())]);
            let run = tile::interp::Call {
                plan: "forward",
                variant: PlanVariant::Plain,
                symbols: &symbols,
                args: &args,
                params: given,
                limits: interp::Limits::default(),
            };
            let interpreted = tile::interp::run(verified, &run).unwrap_or_else(|e| panic!("{what}: {e}"));
            let called = session.call(0, &args).unwrap_or_else(|e| panic!("{what}: {e}"));
            let what = format!("{what}, {rows} rows, {}", level.name());
            compiled::agree(&what, &expected.results[0], &interpreted.results[0]);
            compiled::agree(&what, &expected.results[0], &called[0]);
        }
    }
}

/// The packed buffers of the plan that computes, by their offset.
pub(super) fn packed(tiles: &tile::Module) -> Vec<(u64, String)> {
    let plan = tiles.plans.iter().find(|p| p.variant == PlanVariant::Plain).unwrap();
    let mut out = Vec::new();
    for (_, _, data) in plan.body.insts() {
        if let Op::Plan(PlanOp::Packed { offset }) = data.op {
            out.push((offset, plan.body.ty(data.result.unwrap()).to_string()));
        }
    }
    out
}

/// Row-major, transposed and sliced weights, of sizes that fill panels and sizes that do not.
#[test]
fn weights_of_every_form_are_packed() {
    for (k, n) in [(1, 2), (3, 7), (64, 32), (65, 33), (300, 31), (5, 100), (600, 16)] {
        let dims = format!("K = {k}, N = {n}");
        let (k3, n2) = (k + 3, n + 2);
        for (params, weight) in [
            ("f32[K, N]".to_string(), "w"),
            ("f32[N, K]".to_string(), "w.T"),
            (format!("f32[{k3}, N]"), "w[1..K + 1]"),
            (format!("f32[{n2}, K]"), "w[2..N + 2].T"),
        ] {
            let what = format!("{weight} of {params}, K {k}, N {n}");
            let module = module(&product(&params, weight, &dims));
            assert_eq!(packed(&compiled::scheduled(&module, Cpu::PORTABLE)).len(), 1, "{what}");
            compute_the_same(&what, &module, k, &[0, 1, 5, 37]);
        }
    }
}

/// What is not worth it, or has no elements.
#[test]
fn some_weights_are_read_as_they_lie() {
    for (k, n) in [(64, 1), (0, 8), (8, 0)] {
        let module = module(&product("f32[K, N]", "w", &format!("K = {k}, N = {n}")));
        let tiles = compiled::scheduled(&module, Cpu::AVX512);
        assert!(packed(&tiles).is_empty() && tiles.packed == 0, "{k} x {n}");
        assert!(tiles.plans.iter().all(|p| p.variant != PlanVariant::Prepare), "{k} x {n}");
        compute_the_same(&format!("{k} x {n}"), &module, k, &[0, 1, 9]);
    }
}

/// Three layers of two weights, of `width` by `width`.
pub(super) fn three_layers(width: usize) -> Module {
    three_layers_of(width, "x")
}

/// The same, multiplying what is made of `x` by the weights.
pub(super) fn three_layers_of(width: usize, left: &str) -> Module {
    module(&format!(
        "layer Mix<D> {{
    a: f32[D, D]
    b: f32[D, D]
    fn forward(x: f32[S, D]) -> f32[S, D] {{ {left} @ a + {left} @ b.T }}
}}
model M<D = {width}, L = 3> {{
    h: [Mix<D>; L]
    pub fn forward(x: f32[S, D]) -> f32[S, D] {{
        var y = x
        for layer in h {{ y = layer(y) * 0.125 }}
        y
    }}
}}"
    ))
}

/// An array of layers is packed for all layers, and a loop picks its own.
#[test]
fn layers_are_packed_together() {
    let module = three_layers(20);
    let tiles = compiled::scheduled(&module, Cpu::AVX512);
    let whole = "buf f32[3, 1, 20, 32]".to_string();
    assert_eq!(packed(&tiles), [(0, whole.clone()), (3 * 20 * 32 * 4, whole)]);
    assert_eq!(tiles.packed, 2 * 3 * 20 * 32 * 4);
    compute_the_same("layers", &module, 20, &[1, 4]);
}

/// Heads have panels of their own; what is the same for all of a batch is packed once.
#[test]
fn batches_of_weights_have_panels_of_their_own() {
    let source = "model M<K = 9, N = 17, H = 3> {
    w: f32[H, K, N]
    v: f32[N, 2]
    pub fn forward(x: f32[S, K]) -> f32[H, S, 2] { (x @ w) @ v }
}";
    let module = module(source);
    let tiles = compiled::scheduled(&module, Cpu::PORTABLE);
    let types: Vec<String> = packed(&tiles).into_iter().map(|(_, ty)| ty).collect();
    assert_eq!(types, ["buf f32[3, 3, 9, 8]", "buf f32[1, 17, 8]"]);
    compute_the_same("heads", &module, 9, &[1, 6]);
}

/// The same window of the same weight, used twice, lies in the packed area once; other windows of it lie beside.
#[test]
fn the_same_is_packed_once() {
    let source = "model M<K = 40> {
    w: f32[K, K]
    pub fn forward(x: f32[S, K]) -> f32[S, K] {
        let y = tanh(x @ w) @ w
        tap y
        y @ w.T + (x[.., 0..32] @ w[0..32] + x[.., 8..40] @ w[8..40])
    }
}";
    let module = module(source);
    let tiles = compiled::scheduled(&module, Cpu::AVX2);
    let mut offsets: Vec<u64> = packed(&tiles).into_iter().map(|(offset, _)| offset).collect();
    offsets.sort_unstable();
    let (whole, part) = (3 * 40 * 16 * 4, 3 * 32 * 16 * 4);
    assert_eq!(offsets.len(), 4, "{offsets:?}");
    assert_eq!(tiles.packed, 2 * whole + 2 * part, "the variant with taps has the same weights");
    compute_the_same("twice", &module, 40, &[2, 3]);
}

/// What is computed is packed by a launch before a product that goes through it more than once, whatever its sizes turn out
/// to be.
#[test]
fn computed_operands_are_packed_by_a_launch() {
    for (operand, product, launches) in [
        ("f32[K, N]", "x @ y", 1),
        ("f32[N, K]", "x @ y.T", 1),
        ("f32[2, K, N]", "x @ y", 1),
        ("f32[2, N, K]", "(x + 1) @ rearrange(y, \"b n k -> b k n\")", 1),
        ("f32[N, K]", "x[0..3] @ y.T", 0),
    ] {
        let rows = if launches == 0 { "3" } else { "S" };
        let shape = if operand.starts_with("f32[2") { format!("2, {rows}, N") } else { format!("{rows}, N") };
        let source = format!(
            "model M {{\n pub fn forward(x: f32[S, K], y: {operand}) -> f32[{shape}] where 3 <= S {{ {product} }}\n}}"
        );
        let module = module(&source);
        for level in compiled::levels() {
            let tiles = compiled::scheduled(&module, level);
            assert_eq!(tiles.kernels.iter().filter(|k| k.name.starts_with("pack.")).count(), launches, "{product}");
            let verified = tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{product}: {e}"));
            let folder = tempfile::tempdir().unwrap();
            let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
            let mut session = model.session().unwrap();
            for (s, k, n) in [(3, 1, 1), (5, 0, 4), (4, 3, 0), (3, 16, 32), (300, 7, 33), (3, 300, 65), (270, 5, 8)] {
                let batch: &[usize] = if operand.starts_with("f32[2") { &[2] } else { &[] };
                let last = if operand.contains("N, K") { [n, k] } else { [k, n] };
                let shape: Vec<usize> = batch.iter().chain(&last).copied().collect();
                let count: usize = shape.iter().product();
                let y = Tensor::from_f32(shape, &argument(count, 1).to_f32()).unwrap();
                let args = [argument(s, k), y];
                let limits = interp::Limits::default;
                let params = BTreeMap::new();
                let call = interp::Call { function: "forward", args: &args, params: &params, limits: limits() };
                let expected =
                    interp::run::<Bounded>(verify(&module).unwrap(), &call).unwrap_or_else(|e| panic!("{e}"));
                let number = |n: usize| i64::try_from(n).unwrap();
                let symbols = [("S", s), ("K", k), ("N", n)].map(|(name, n)| (name.to_string(), number(n))).into();
                let run = tile::interp::Call {
                    plan: "forward",
                    variant: PlanVariant::Plain,
                    symbols: &symbols,
                    args: &args,
                    params: &params,
                    limits: limits(),
                };
                let what = format!("{product}, {}, S {s}, K {k}, N {n}", level.name());
                let interpreted = tile::interp::run(verified, &run).unwrap_or_else(|e| panic!("{what}: {e}"));
                compiled::agree(&what, &expected.results[0], &interpreted.results[0]);
                compiled::agree(
                    &what,
                    &expected.results[0],
                    &session.call(0, &args).unwrap_or_else(|e| panic!("{what}: {e}"))[0],
                );
            }
        }
    }
}

/// A model's packed weights are its sessions', whichever comes first and last.
#[test]
fn sessions_share_packed_weights() {
    let module = module(&product("f32[N, K]", "w.T", "K = 33, N = 50"));
    let params = gen_source::inputs::parameters(&module, 1);
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(&module, &params, folder.path());
    let x = argument(3, 33);
    let want = model.session().unwrap().call(0, std::slice::from_ref(&x)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut session = model.session().unwrap();
                for _ in 0..5 {
                    assert_eq!(session.call(0, std::slice::from_ref(&x)).unwrap(), want);
                }
            });
        }
    });
}

/// Broken modules with a packed area: each wrong in one way, and the verifier's word for it.
#[test]
fn wrong_packed_areas_are_refused() {
    let right = r#"module "packed"
param "w"                                   : f32[4, 8]
packed 128

kernel @copy(%from: in f32[4, 8], %to: out f32[4, 8]) {
^bb0:
  %0 = const 0                              : index
  %1 = load %from[%0, %0], rows=0, cols=1   : tile f32[4, 8]
  store %to[%0, %0], %1, rows=0, cols=1
  return
}

plan @weights prepare {
^bb0:
  %0 = param "w"                            : buf f32[4, 8]
  %1 = packed 0                             : buf f32[4, 8]
  launch @copy(%0, %1)
  return
}

plan @forward {
^bb0:
  %0 = packed 0                             : buf f32[4, 8]
  %1 = out 0                                : buf f32[4, 8]
  launch @copy(%0, %1)
  return
}
"#;
    let check = |text: &str| -> Result<(), String> {
        let mut sources = attnc::source::SourceMap::new();
        let file = sources.add("packed.tir", text);
        let parsed = tile::text::parse(text, file)
            .map_err(|d| attnc::diagnostics::render_all(&d, &sources, false))
            .unwrap_or_else(|e| panic!("{e}"));
        tile::verify::verify(&parsed.module).map(|_| ()).map_err(|e| e.to_string())?;
        assert_eq!(tile::text::print(&parsed.module), text);
        Ok(())
    };
    check(right).unwrap_or_else(|e| panic!("{e}"));
    let prepare = &right[right.find("plan @weights").unwrap()..right.find("plan @forward").unwrap()];
    for (from, to, message) in [
        ("packed 128", "packed 64", "ends at byte 128 of 64 bytes of the packed area"),
        ("packed 128\n", "", "others have none"),
        (prepare, "", "has one plan that prepares it"),
        (prepare, &(prepare.to_string() + &prepare.replace("@weights", "@again")), "has one plan that prepares it"),
        ("packed 0 ", "packed 16 ", "aligned to 64 bytes"),
        (
            "%1 = packed 0                             : buf f32[4, 8]",
            "%1 = packed 0 : buf f32[4, 8] strides[-8, 1]",
            "that are known",
        ),
        (
            "launch @copy(%0, %1)\n  return\n}\n\nplan @f",
            "launch @copy(%1, %0)\n  return\n}\n\nplan @f",
            "read elsewhere",
        ),
        (
            "%1 = out 0                                : buf f32[4, 8]",
            "%1 = packed 0 : buf f32[4, 8]",
            "read here alone",
        ),
        (
            "%0 = param \"w\"                            : buf",
            "%0 = arg 0 : buf",
            "arg: does not stand in a plan that prepares",
        ),
        ("plan @weights prepare {", "plan @weights prepare slots(64) {", "has no dimensions, taps or slots"),
    ] {
        assert!(right.contains(from), "the text has no {from:?}");
        let wrong = right.replacen(from, to, 1);
        match check(&wrong) {
            Ok(()) => panic!("accepted, though: {message}\n{wrong}"),
            Err(text) => assert!(text.contains(message), "wanted: {message}\n{text}"),
        }
    }
}

/// Right operands that are arguments: of a tall product they are packed just before it, of a low one they are not.
#[test]
fn what_many_rows_are_multiplied_by_is_packed_first() {
    for (m, k, n, packs) in
        [(256, 3, 33, true), (600, 40, 2, true), (257, 20, 64, true), (255, 3, 33, false), (256, 3, 1, false)]
    {
        for (shape, right) in [("f32[K, N]", "b"), ("f32[N, K]", "b.T"), ("f32[2, K, N]", "b")] {
            let batch = if shape.contains("[2") { "2, " } else { "" };
            let source = format!(
                "model P<M = {m}, K = {k}, N = {n}> {{\n    pub fn forward(a: f32[{batch}M, K], b: {shape}) -> f32[{batch}M, N] {{ a @ {right} }}\n}}"
            );
            let module = module(&source);
            let what = format!("{m} x {k} x {n}, {right} of {shape}");
            let tiles = compiled::scheduled(&module, Cpu::PORTABLE);
            assert_eq!(tiles.kernels.iter().any(|k| k.name.starts_with("pack")), packs, "{what}");
            let entry = &module.functions[0];
            let args: Vec<Tensor> = entry
                .block(entry.entry())
                .args
                .iter()
                .map(|v| {
                    let shape: Vec<usize> = entry
                        .tensor(*v)
                        .unwrap()
                        .shape
                        .iter()
                        .map(|d| usize::try_from(d.as_const().unwrap()).unwrap())
                        .collect();
                    let rows = shape.iter().rev().skip(1).product();
                    let flat = argument(rows, *shape.last().unwrap()).to_f64();
                    Tensor::from_f32(shape, &flat.iter().map(|x| *x as f32).collect::<Vec<_>>()).unwrap()
                })
                .collect();
            let (a, b) = (args[0].to_f64(), args[1].to_f64());
            let batches = if batch.is_empty() { 1 } else { 2 };
            let mut want = Vec::new();
            for p in 0..batches {
                for i in 0..m {
                    for j in 0..n {
                        let y = |s| if right == "b.T" { b[j * k + s] } else { b[(p * k + s) * n + j] };
                        want.push((0..k).map(|s| a[(p * m + i) * k + s] * y(s)).sum::<f64>());
                    }
                }
            }
            for level in compiled::levels() {
                let folder = tempfile::tempdir().unwrap();
                let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
                let got = model.session().unwrap().call(0, &args).unwrap_or_else(|e| panic!("{what}: {e}"));
                // Sums of small integers are exact.
                assert_eq!(got[0].to_f64(), want, "{what}, {}", level.name());
            }
        }
    }
}

/// Weights that are `bf16` are packed as they are, whatever the format of others.
#[test]
fn bf16_weights_are_packed_as_they_are() {
    let source = "model M<K = 70, N = 33> {
    w: bf16[K, N]
    v: bf16[N, K]
    pub fn forward(x: f32[S, K]) -> bf16[S, N] { cast<bf16>(x) @ w + cast<bf16>(x) @ v.T }
}";
    let module = module(source);
    for format in [WeightFormat::F32, WeightFormat::Bf16] {
        let tiles = compiled::scheduled_with(&module, Cpu::AVX512, format);
        let types: Vec<String> = packed(&tiles).into_iter().map(|(_, ty)| ty).collect();
        assert_eq!(types, ["buf bf16[2, 70, 32]", "buf bf16[2, 70, 32]"]);
        let params = gen_source::inputs::parameters(&module, 2);
        assert!(params.values().all(|t| t.elem() == Elem::BF16));
        compute_as("bf16", &module, (format, &params), &params, 70, &[1, 3, 20]);
    }
}

/// The largest float comes back finite from its integer and scale.
#[test]
fn the_largest_weights_stay_finite() {
    let module = module(&product("f32[K, N]", "w", "K = 64, N = 32"));
    let params = BTreeMap::from([("w".to_string(), Tensor::from_f32(vec![64, 32], &[f32::MAX; 64 * 32]).unwrap())]);
    let mut x = [0.0; 128];
    x[64] = 0.5;
    let x = Tensor::from_f32(vec![2, 64], &x).unwrap();
    for format in [WeightFormat::Int8, WeightFormat::Int4] {
        for level in compiled::levels_for(format) {
            let folder = tempfile::tempdir().unwrap();
            let tiles = compiled::scheduled_with(&module, level, format);
            let model = compiled::load_tiles(level, &module, &tiles, &params, folder.path());
            let got = model.session().unwrap().call(0, std::slice::from_ref(&x)).unwrap().remove(0).to_f64();
            for (i, y) in got.into_iter().enumerate() {
                let want = if i < 32 { 0.0 } else { 0.5 * f64::from(f32::MAX) };
                assert!(
                    (y - want).abs() <= 0.01 * want,
                    "{format:?}, {}: element {i} is {y}, not {want}",
                    level.name()
                );
            }
        }
    }
}

/// A weight of two products is packed twice where one of them takes its steps in pairs: the other's rows are not dense.
#[test]
fn a_weight_may_be_needed_in_pairs_and_step_by_step() {
    let source = "model M<K = 64, N = 32> {
    w: bf16[K, N]
    z: bf16[K, 5]
    pub fn forward(x: f32[S, K]) -> f32[S, N] { cast<f32>(cast<bf16>(x) @ w) + sum(cast<f32>(z.T @ w), axis = 0) }
}";
    let module = module(source);
    let params = gen_source::inputs::parameters(&module, 2);
    let twice = ["buf bf16[1, 32, 32, 2]", "buf bf16[1, 64, 32]"];
    for (level, types) in [(Cpu::AVX512, &twice[1..]), (Cpu::AVX512_BF16, &twice)] {
        let area = packed(&compiled::scheduled(&module, level));
        let mut found: Vec<&str> = area.iter().map(|(_, ty)| ty.as_str()).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, types, "{}", level.name());
        let places: std::collections::BTreeSet<u64> = area.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(places.len(), types.len(), "{}", level.name());
    }
    let levels = compiled::levels_for(WeightFormat::Bf16);
    let given = (WeightFormat::F32, &params);
    compute_like("both", (&module, &levels), given, (&module, &params), 64, &[1, 3, 20]);
}
