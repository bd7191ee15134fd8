//! How products are summed, to the bit: compiled code of every level that runs here against the tile interpreter, which executes
//! what each mode is defined as. Numbers are of all sizes, so that another order of a sum, or another rounding, shows.

use crate::{compiled, front};

use std::collections::{BTreeMap, BTreeSet};

use attnc::ir::Module;
use attnc::ir::interp::Limits;
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::WeightFormat;
use attnc::tile::{self, Cpu, DotMode, Feature, Op, PlanVariant};

fn module(source: &str) -> Module {
    let module = front::module("modes.attn", source, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{source}"));
    compiled::optimised(module, &passes::Options::default())
}

/// Numbers from 2^-12 to 1 of either sign; every ninety-seventh is a special one.
fn numbers(elem: Elem, shape: &[usize], seed: u64, special: &[f64]) -> Tensor {
    let mut random = Random::new(seed);
    let number = |i: usize| match special.get(i / 97 % special.len().max(1)) {
        Some(x) if i % 97 == 41 => *x,
        _ => {
            let size = 2f64.powi(-i32::try_from(random.below(12)).unwrap());
            size * (random.below(1 << 24) as f64 / f64::from(1 << 23) - 1.0)
        }
    };
    let values: Vec<f64> = (0..shape.iter().product()).map(number).collect();
    Tensor::from_floats(elem, shape.to_vec(), &values).unwrap()
}

/// The modes of a module's products.
fn modes(tiles: &tile::Module) -> BTreeSet<&'static str> {
    let of = |op: &Op| if let Op::Dot { mode } = op { mode.map(DotMode::name) } else { None };
    tiles.kernels.iter().flat_map(|k| k.body.insts()).filter_map(|(_, _, d)| of(&d.op)).collect()
}

/// Runs a model of one weight both ways at a level; the modes of its products.
fn same_bits(
    what: &str,
    (source, format): (&str, WeightFormat),
    level: Cpu,
    (weight, x): (&Tensor, &Tensor),
) -> BTreeSet<&'static str> {
    let module = module(source);
    let params = BTreeMap::from([("w".to_string(), weight.clone())]);
    let tiles = compiled::scheduled_with(&module, level, format);
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load_tiles(level, &module, &tiles, &params, folder.path());
    let called = model.session().unwrap().call(0, std::slice::from_ref(x)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let symbols = BTreeMap::from([("S".to_string(), i64::try_from(x.shape()[0]).unwrap())]);
    let args = std::slice::from_ref(x);
    let (variant, limits) = (PlanVariant::Plain, Limits::default());
    let call = tile::interp::Call { plan: "forward", variant, symbols: &symbols, args, params: &params, limits };
    let verified = tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{what}: {e}"));
    let interpreted = tile::interp::run(verified, &call).unwrap_or_else(|e| panic!("{what}: {e}"));
    compiled::same_bits(&format!("{what}, {}", level.name()), &interpreted.results[0], &called[0]);
    modes(&tiles)
}

/// `f32` by weights in every format: chains of products and sums, or of FMAs, or groups where the processor sums bytes.
#[test]
fn products_of_floats() {
    let special = [f64::NAN, 0.0, f64::INFINITY, 1e-40, 1e30, -0.0];
    for (i, (k, n)) in [(70, 33), (96, 64), (1100, 40), (2080, 16), (33, 1)].into_iter().enumerate() {
        let source = format!(
            "model M<K = {k}, N = {n}> {{\n    w: f32[K, N]\n    pub fn forward(x: f32[S, K]) -> f32[S, N] {{ x @ w }}\n}}"
        );
        for format in WeightFormat::ALL {
            let weight = numbers(Elem::F32, &[k, n], 3, &[]);
            for (rows, special) in [(1, &special[..]), (5, &[]), (23, &special)] {
                let x = numbers(Elem::F32, &[rows, k], 7 + i as u64, special);
                for level in compiled::levels_for(format) {
                    let what = format!("{rows} x {k} x {n}, {format:?}");
                    let found = same_bits(&what, (&source, format), level, (&weight, &x));
                    let whole = matches!(format, WeightFormat::Int8 | WeightFormat::Int4) && level.sums_bytes();
                    let halves = format == WeightFormat::Bf16 && level.has(Feature::Bf16);
                    let expected = match n {
                        1 => "chain",
                        _ if level == Cpu::PORTABLE => "chain",
                        _ if halves && level.has(Feature::Amx) => "tiles",
                        _ if halves && k % 2 == 0 => "pairs",
                        // Less than a vector of columns.
                        16 if whole && level.lanes() == 16 => "fma",
                        _ if whole => "groups",
                        _ => "fma",
                    };
                    assert_eq!(found.into_iter().collect::<Vec<_>>(), [expected], "{what}, {}", level.name());
                }
            }
        }
    }
}

/// `bf16` by `bf16`: in pairs or tiles where the processor has them, subnormal factors among them.
#[test]
fn products_of_pairs() {
    let special = [1e-39, f64::INFINITY, -1e-39, 1e38, 3e-38, -2e-38];
    for (k, n) in [(34, 33), (66, 32), (130, 7), (1100, 20)] {
        let source = format!(
            "model M<K = {k}, N = {n}> {{\n    w: bf16[K, N]\n    pub fn forward(x: bf16[S, K]) -> bf16[S, N] {{ x @ w }}\n}}"
        );
        let weight = numbers(Elem::BF16, &[k, n], 3, &special);
        for (rows, special) in [(1, &special[..]), (5, &[]), (40, &special)] {
            let x = numbers(Elem::BF16, &[rows, k], 7, special);
            for level in compiled::bf16_levels() {
                let what = format!("{rows} x {k} x {n} of bf16");
                let found = same_bits(&what, (&source, WeightFormat::F32), level, (&weight, &x));
                let expected = match level {
                    Cpu::PORTABLE => "chain",
                    Cpu::AVX512_BF16 => "pairs",
                    Cpu::AMX => "tiles",
                    _ => "fma",
                };
                assert_eq!(found.into_iter().collect::<Vec<_>>(), [expected], "{what}, {}", level.name());
            }
        }
    }
}
