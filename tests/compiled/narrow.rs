//! Weights in fewer bytes: do products compute with the numbers that they stand for, and how far are results off?

use crate::{compiled, gen_source};

use std::collections::BTreeSet;

use attnc::ir::Module;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::{Cpu, Feature, WeightChoice, WeightFormat};

use super::packing::{argument, compute_as, compute_like, module, packed, product, three_layers, three_layers_of};

/// The scales of a matrix whose steps go along an axis, from `first` on, `k` of them, and what its elements become. Written
/// after the words of the language's description, one column after another.
fn kept(format: WeightFormat, t: &Tensor, axis: usize, (first, k): (usize, usize)) -> (Tensor, Vec<f64>) {
    let (shape, mut values) = (t.shape().to_vec(), t.to_f32());
    let (columns, pitch) = (shape[1 - axis], shape[1]);
    let place = |step: usize, column: usize| if axis == 0 { step * pitch + column } else { column * pitch + step };
    let most = match format {
        WeightFormat::Int8 => 127.0,
        WeightFormat::Int4 => 7.0,
        WeightFormat::Bf16 => {
            let all: Vec<f32> = values.iter().map(|x| half::bf16::from_f32(*x).to_f32()).collect();
            return (Tensor::from_f32(shape, &all).unwrap(), Vec::new());
        }
        WeightFormat::F32 => return (t.clone(), Vec::new()),
    };
    let mut scales = vec![0.0; k * columns];
    for column in 0..columns {
        for group in (0..k).step_by(32) {
            let steps = group..k.min(group + 32);
            let own: Vec<usize> = steps.clone().map(|step| place(first + step, column)).collect();
            let largest = own.iter().fold(0.0f32, |m, at| m.max(values[*at].abs()));
            let scale = largest / most;
            for (at, step) in own.into_iter().zip(steps) {
                let q = if scale == 0.0 { 0.0 } else { (values[at] / scale + 0.5).floor().clamp(-most, most) };
                // A number times its scale, exactly, and then the nearest f32.
                values[at] = (f64::from(q) * f64::from(scale)) as f32;
                scales[step * columns + column] = f64::from(scale);
            }
        }
    }
    (Tensor::from_f32(shape, &values).unwrap(), scales)
}

/// Formats of fewer bytes.
const NARROW: [WeightFormat; 3] = [WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4];

/// Weights in fewer bytes: every level computes with exactly the numbers that they then stand for.
#[test]
fn narrow_weights_stand_for_the_nearest_numbers() {
    let sizes = [(1, 2), (2, 9), (3, 7), (33, 33), (65, 70), (96, 18), (64, 32), (300, 31), (32, 1), (1056, 3)];
    for (i, (k, n)) in sizes.into_iter().enumerate() {
        let dims = format!("K = {k}, N = {n}");
        let (k3, n2) = (k + 3, n + 2);
        let forms = [
            ("f32[K, N]".to_string(), "w", 0, 0),
            ("f32[N, K]".to_string(), "w.T", 1, 0),
            (format!("f32[{k3}, N]"), "w[1..K + 1]", 0, 1),
            (format!("f32[{n2}, K]"), "w[2..N + 2].T", 1, 0),
        ];
        // Each form once with a small size and once with a large one.
        for (params, weight, axis, first) in forms.into_iter().skip(i % 4).take(1) {
            let module = module(&product(&params, weight, &dims));
            let given = gen_source::inputs::parameters(&module, 7);
            for format in NARROW {
                let what = format!("{format:?}: {weight} of {params}, K {k}, N {n}");
                let tiles = compiled::scheduled_with(&module, Cpu::AVX2, format);
                let parts = if format == WeightFormat::Bf16 { 1 } else { 2 };
                assert_eq!(packed(&tiles).len(), if n == 1 { 0 } else { parts }, "{what}");
                if n == 1 {
                    compute_as(&what, &module, (format, &given), &given, k, &[0, 1, 17]);
                    continue;
                }
                let as_kept = |t: &Tensor| kept(format, t, axis, (first, k)).0;
                let stands_for = given.iter().map(|(name, t)| (name.clone(), as_kept(t))).collect();
                compute_as(&what, &module, (format, &given), &stands_for, k, &[0, 1, 2, 3, 17]);
            }
        }
    }
}

/// The same at sizes that nobody chose, and at each number of rows that has code of its own.
#[test]
fn narrow_weights_of_any_size() {
    let mut random = Random::new(17);
    let mut below = |n: usize| random.below(n);
    for format in NARROW {
        for groups in [false, true] {
            let (k, n) = if groups { (32 * (1 + below(6)), 2 + below(70)) } else { (1 + below(190), 2 + below(70)) };
            let (weight, params, axis) = if below(2) == 0 { ("w", "f32[K, N]", 0) } else { ("w.T", "f32[N, K]", 1) };
            let module = module(&product(params, weight, &format!("K = {k}, N = {n}")));
            let given = gen_source::inputs::parameters(&module, 13);
            let as_kept = |t: &Tensor| kept(format, t, axis, (0, k)).0;
            let stands_for = given.iter().map(|(name, t)| (name.clone(), as_kept(t))).collect();
            let rows: Vec<usize> = (0..=17).filter(|r| *r < 6 || below(3) == 0).collect();
            let what = format!("{format:?}: {weight}, K {k}, N {n}");
            compute_as(&what, &module, (format, &given), &stands_for, k, &rows);
        }
    }
}

/// The result is off by at most half a scale for each weight, times what it is multiplied by; and where the steps are whole
/// groups, by what rounding that to 255 numbers does.
#[test]
fn narrow_weights_err_by_half_a_scale() {
    for k in [100, 96] {
        err_by_half_a_scale(k);
    }
}

fn err_by_half_a_scale(k: usize) {
    let (n, rows) = (40, 6);
    let module = module(&product("f32[K, N]", "w", &format!("K = {k}, N = {n}")));
    let mut params = gen_source::inputs::parameters(&module, 3);
    let mut values = params["w"].to_f32();
    // Columns of zeros, of numbers with few bits, and of large numbers.
    values.iter_mut().skip(1).step_by(n).for_each(|x| *x = 0.0);
    values.iter_mut().skip(2).step_by(n).for_each(|x| *x *= 1e-43);
    values.iter_mut().skip(3).step_by(n).for_each(|x| *x *= 1e30);
    params.insert("w".into(), Tensor::from_f32(vec![k, n], &values).unwrap());
    let x = argument(rows, k);
    let xs = x.to_f64();
    for format in NARROW.into_iter().filter(|f| *f != WeightFormat::Bf16) {
        let (_, scales) = kept(format, &params["w"], 0, (0, k));
        for level in compiled::levels_for(format) {
            let folder = tempfile::tempdir().unwrap();
            let tiles = compiled::scheduled_with(&module, level, format);
            let model = compiled::load_tiles(level, &module, &tiles, &params, folder.path());
            let got = model.session().unwrap().call(0, std::slice::from_ref(&x)).unwrap()[0].to_f64();
            let mut worst = 0.0f64;
            for i in 0..rows {
                for j in 0..n {
                    let (mut exact, mut bound) = (0.0, 0.0);
                    for s in 0..k {
                        let (a, w, scale) = (xs[i * k + s], f64::from(values[s * n + j]), scales[s * n + j]);
                        exact += a * w;
                        // Also rounded: the scale (which may have few bits) and the sums.
                        bound += a.abs() * (scale / 2.0 + 127.0 * 1.5e-45 + w.abs() * 1e-5);
                        if level.sums_bytes() && k.is_multiple_of(32) {
                            let group = &xs[i * k + s / 32 * 32..][..32];
                            let unit = group.iter().fold(0.0f64, |m, a| m.max(a.abs())) / 127.0;
                            bound += unit / 2.0 * (w.abs() + scale / 2.0) * 1.001;
                        }
                    }
                    let error = (got[i * n + j] - exact).abs();
                    assert!(error <= bound, "{format:?}, {}: {i}, {j}: {error:e} > {bound:e}", level.name());
                    worst = worst.max(if bound > 0.0 { error / bound } else { 0.0 });
                }
            }
            assert!(worst > 0.01, "{format:?}, {}: the weights were not rounded", level.name());
        }
    }
}

/// Where pairs of `bf16` are multiplied, what weights that are packed so are multiplied by is rounded too: a result is off by at most
/// what both roundings cost, and a row by itself has the same bits as among others. Weights that are kept lose nothing.
#[test]
fn what_bf16_weights_are_multiplied_by_is_rounded_too() {
    let (n, rows) = (37, 21);
    let format = WeightFormat::Bf16;
    for k in [2, 34, 96, 530, 1100, 33] {
        let module = module(&product("f32[K, N]", "w", &format!("K = {k}, N = {n}")));
        let params = gen_source::inputs::parameters(&module, 5);
        let w = params["w"].to_f64();
        let values: Vec<f32> =
            (0..rows * k).map(|i| ((i * 7919 % 1009) as f32 / 504.0 - 1.0) / (1 + i % 5) as f32).collect();
        let x = Tensor::from_f32(vec![rows, k], &values).unwrap();
        // Each element, and the sum of the magnitudes of its products.
        let element = |i: usize| {
            let steps = (0..k).map(|s| f64::from(values[i / n * k + s]) * w[s * n + i % n]);
            steps.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()))
        };
        let want: Vec<(f64, f64)> = (0..rows * n).map(element).collect();
        for level in compiled::levels_for(format) {
            let what = format!("K {k}, {}", level.name());
            let folder = tempfile::tempdir().unwrap();
            let tiles = compiled::scheduled_with(&module, level, format);
            let in_pairs = level.has(Feature::Bf16) && (k % 2 == 0 || level.has(Feature::Amx));
            assert_eq!(tiles.kernels.iter().any(|k| k.name.starts_with("round_left")), in_pairs, "{what}");
            let model = compiled::load_tiles(level, &module, &tiles, &params, folder.path());
            let mut session = model.session().unwrap();
            let got = session.call(0, std::slice::from_ref(&x)).unwrap().remove(0);
            let of_rows = got.to_f64();
            let mut worst = 0.0f64;
            for (i, (got, (exact, size))) in of_rows.iter().zip(&want).enumerate() {
                let error = (got - exact).abs();
                // Half a unit of the last of 8 bits for the weight, as much for the other where that is rounded; and the sums.
                let units = if in_pairs { 2.0 } else { 1.0 };
                let bound = size * (units / 256.0 + units / 256.0 / 256.0 + k as f64 * 1.2e-7);
                assert!(error <= bound, "{what}: {i}: {error:e} > {bound:e}");
                worst = worst.max(error / bound);
            }
            assert!(worst > 0.02, "{what}: nothing was rounded");
            for row in [0, rows - 1] {
                let alone = Tensor::from_f32(vec![1, k], &values[row * k..][..k]).unwrap();
                let alone = session.call(0, &[alone]).unwrap().remove(0).to_f64();
                assert_eq!(alone, of_rows[row * n..][..n], "{what}: row {row}");
            }
            let kept = WeightChoice { format, kept: BTreeSet::from(["w".to_string()]) };
            let tiles = compiled::scheduled_with(&module, level, kept);
            let folder = tempfile::tempdir().unwrap();
            let model = compiled::load_tiles(level, &module, &tiles, &params, folder.path());
            let got = model.session().unwrap().call(0, std::slice::from_ref(&x)).unwrap().remove(0).to_f64();
            for (i, (got, (exact, size))) in got.iter().zip(&want).enumerate() {
                assert!((got - exact).abs() <= size * k as f64 * 1.2e-7, "{what}: {i} is kept");
            }
        }
    }
}

/// The back ends give the same bits, whatever is rounded on the way: of any size, of few rows and of many, with a NaN, an
/// infinity, zeros and tiny numbers among them.
#[cfg(feature = "llvm")]
#[test]
fn both_back_ends_give_the_same_bits() {
    use attnc::codegen::Generator;
    for (i, (k, n)) in [(1, 2), (33, 33), (64, 40), (96, 17), (100, 70), (300, 31), (1056, 3)].into_iter().enumerate() {
        let (weight, params) = if i % 2 == 0 { ("w", "f32[K, N]") } else { ("w.T", "f32[N, K]") };
        let module = module(&product(params, weight, &format!("K = {k}, N = {n}")));
        let given = gen_source::inputs::parameters(&module, 7);
        let argument = |rows: usize| {
            let size = |at: usize| 10f32.powi(i32::try_from(at / 7 % 9).unwrap() - 4);
            let mut values: Vec<f32> =
                (0..rows * k).map(|at| ((at * 7919 % 1009) as f32 / 504.0 - 1.0) * size(at)).collect();
            let mut row = |r: usize, change: &dyn Fn(&mut [f32])| {
                if let Some(row) = values.chunks_mut(k).nth(r) {
                    change(row);
                }
            };
            row(2, &|row| row[k / 2] = f32::NAN);
            row(3, &|row| row[k - 1] = f32::NEG_INFINITY);
            row(4, &|row| row.fill(0.0));
            row(5, &|row| row.iter_mut().for_each(|x| *x *= 1e-36));
            Tensor::from_f32(vec![rows, k], &values).unwrap()
        };
        for format in NARROW {
            // LLVM makes no code for products in the tiles of AMX.
            for level in compiled::levels_for(format).into_iter().filter(|level| *level != Cpu::AMX) {
                let tiles = compiled::scheduled_with(&module, level, format);
                let results = [Generator::Cranelift, Generator::Llvm].map(|generator| {
                    let folder = tempfile::tempdir().unwrap();
                    let model = compiled::load_made_by(generator, level, &module, &tiles, &given, folder.path());
                    let mut session = model.session().unwrap();
                    [0, 1, 2, 3, 7, 37].map(|rows| {
                        let got = session.call(0, &[argument(rows)]).unwrap_or_else(|e| panic!("{e}")).remove(0);
                        let bits = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
                        got.to_f32().into_iter().map(bits).collect::<Vec<_>>()
                    })
                });
                let [one, other] = results;
                assert_eq!(one, other, "{format:?}: {weight}, K {k}, N {n}, {}", level.name());
            }
        }
    }
}

/// A table that is gathered from and multiplied by: the rows are taken as they are, the product has the packed one.
#[test]
fn a_tied_table_is_packed_for_its_product_alone() {
    let source = |own: &str, head: &str| {
        format!(
            "model M<V = 70, D = 64> {{
    table: f32[V, D]
    {own}
    pub fn forward(tokens: i32[S]) -> f32[S, V] {{ table[tokens] @ {head}.T }}
}}"
        )
    };
    let (tied, untied) = (module(&source("", "table")), module(&source("head: f32[V, D]", "head")));
    let mut params = gen_source::inputs::parameters(&tied, 9);
    let table = params["table"].clone();
    let tokens = Tensor::from_ints(Elem::I32, vec![5], &[3, 69, 0, 3, 31]).unwrap();
    let call = |module: &Module, format, level| {
        let folder = tempfile::tempdir().unwrap();
        let tiles = compiled::scheduled_with(module, level, format);
        let model = compiled::load_tiles(level, module, &tiles, &params, folder.path());
        model.session().unwrap().call(0, std::slice::from_ref(&tokens)).unwrap().remove(0)
    };
    let both = NARROW
        .into_iter()
        .flat_map(|format| compiled::levels_for(format).into_iter().map(move |level| (format, level)));
    let results: Vec<_> = both.map(|(format, level)| (format, level, call(&tied, format, level))).collect();
    params.insert("head".into(), table);
    for (format, level, got) in results {
        let folder = tempfile::tempdir().unwrap();
        let tiles = compiled::scheduled_with(&untied, level, format);
        let model = compiled::load_tiles(level, &untied, &tiles, &params, folder.path());
        let want = model.session().unwrap().call(0, std::slice::from_ref(&tokens)).unwrap().remove(0);
        assert_eq!(got, want, "{format:?}, {}", level.name());
    }
}

/// Layers have panels and scales of their own.
#[test]
fn layers_of_narrow_weights() {
    let module = three_layers(70);
    let given = gen_source::inputs::parameters(&module, 11);
    for format in NARROW {
        let as_kept = |(name, t): (&String, &Tensor)| {
            (name.clone(), kept(format, t, usize::from(name.ends_with('b')), (0, 70)).0)
        };
        let stands_for = given.iter().map(as_kept).collect();
        let what = format!("layers, {format:?}");
        let (rounding, exact): (Vec<Cpu>, Vec<Cpu>) = compiled::levels_for(format)
            .into_iter()
            .partition(|level| format == WeightFormat::Bf16 && level.has(Feature::Bf16));
        compute_like(&what, (&module, &exact), (format, &given), (&module, &stands_for), 70, &[1, 4]);
        let rounded = three_layers_of(70, "cast<f32>(cast<bf16>(x))");
        compute_like(&what, (&module, &rounding), (format, &given), (&rounded, &stands_for), 70, &[1, 4]);
    }
    let tiles = compiled::scheduled_with(&module, Cpu::AVX512, WeightFormat::Int4);
    let types: Vec<String> = packed(&tiles).into_iter().map(|(_, ty)| ty).collect();
    let (numbers, scales) = ("buf i8[3, 3, 35, 32]".to_string(), "buf f32[3, 3, 3, 32]".to_string());
    assert_eq!(types, [numbers.clone(), scales.clone(), numbers, scales]);
}
