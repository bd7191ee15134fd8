//! Products by weights that are kept in fewer bytes (`--pack`): the numbers and scales are those that this file finds by itself, and so are the
//! results.

use std::collections::BTreeMap;

use attnc::codegen::ptx::compile;
use attnc::ir;
use attnc::lowering::tile::lower;
use attnc::passes::{self, Collected};
use attnc::ptx::sim::Mode;
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::simulated::Simulated;
use attnc::tensor::Tensor;
use attnc::threads;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, GpuArch, PlanVariant, ScheduleOptions, WeightFormat, interp};

use crate::{front, ptxas};

/// Steps that share a scale.
const GROUP: usize = 32;
/// Rows from which on weights may be rounded to 16 bits before they are multiplied.
const UNPACKED: usize = 1024;

/// A product of activations and a weight of some type, as it is or transposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) elem: Elem,
    /// How many rows, if the program says it.
    pub(crate) rows: Option<usize>,
    pub(crate) steps: usize,
    pub(crate) cols: usize,
    pub(crate) transposed: bool,
    pub(crate) format: WeightFormat,
}

impl Case {
    /// Its kernels for a GPU.
    pub(crate) fn scheduled(self, arch: GpuArch) -> Result<VerifiedModule, String> {
        let Case { elem, rows, steps, cols, transposed, format } = self;
        let rows = rows.map_or("S".to_string(), |n| n.to_string());
        let (shape, right) =
            if transposed { (format!("{cols}, {steps}"), "w.T") } else { (format!("{steps}, {cols}"), "w") };
        let source = format!(
            "model Test {{\n    w: {elem}[{shape}]\n    pub fn forward(x: {elem}[{rows}, {steps}]) -> {elem}[{rows}, {cols}] {{\n        x @ {right}\n    }}\n}}\n"
        );
        scheduled(&source, arch, &ScheduleOptions { weights: format.into(), ..ScheduleOptions::default() })
    }

    /// Numbers of its type, the same each time: of row after row.
    fn numbers(self, shape: [usize; 2], seed: u64) -> Tensor {
        let mut random = Random::new(seed);
        let count = shape[0] * shape[1];
        let values: Vec<f64> = (0..count).map(|_| random.below(4001) as f64 / 1000.0 - 2.0).collect();
        Tensor::from_floats(self.elem, shape.to_vec(), &values).expect("a tensor")
    }

    /// The weight that products are by, `[steps, cols]`.
    fn kept(self, w: &[f64]) -> Vec<f64> {
        let (steps, cols) = (self.steps, self.cols);
        let at = |k: usize, n: usize| if self.transposed { w[n * steps + k] } else { w[k * cols + n] };
        let mut out = vec![0.0; steps * cols];
        for n in 0..cols {
            for first in (0..steps).step_by(GROUP) {
                let group = first..steps.min(first + GROUP);
                let most = match self.format {
                    WeightFormat::Int8 => 127.0,
                    WeightFormat::Int4 => 7.0,
                    WeightFormat::Bf16 => {
                        group.for_each(|k| out[k * cols + n] = bf16(at(k, n)));
                        continue;
                    }
                    WeightFormat::F32 => {
                        group.for_each(|k| out[k * cols + n] = at(k, n));
                        continue;
                    }
                };
                let scale = group.clone().map(|k| at(k, n).abs() as f32).fold(0.0, f32::max) / most;
                for k in group {
                    let number = (at(k, n) as f32 / scale + 0.5).floor().clamp(-most, most);
                    out[k * cols + n] = f64::from(number * scale);
                }
            }
        }
        out
    }

    /// Compares what a text of its kernels gives for so many rows.
    pub(crate) fn compare(self, tiles: &VerifiedModule, simulated: &Simulated, rows: usize) -> Result<(), String> {
        let (steps, cols) = (self.steps, self.cols);
        let x = self.numbers([rows, steps], 1);
        let w = self.numbers(if self.transposed { [cols, steps] } else { [steps, cols] }, 2);
        let params = BTreeMap::from([("w".to_string(), w.clone())]);
        let got = called(tiles, simulated, (std::slice::from_ref(&x), &params), rows)?;
        let (x, w) = (x.to_f64(), self.kept(&w.to_f64()));
        for (n, got) in got.iter().enumerate() {
            let (row, col) = (n / cols, n % cols);
            let terms = (0..steps).map(|k| x[row * steps + k] * w[k * cols + col]);
            let (want, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            // Results of 16 bits are rounded, and weights that a matrix is made of, of so many rows that this pays.
            let is_half = self.elem != Elem::F32;
            let is_unpacked = is_half && rows >= UNPACKED;
            let rounded = if is_half { want.abs() / 256.0 } else { 0.0 } + if is_unpacked { size / 500.0 } else { 0.0 };
            let bound = rounded + size * (steps + 2) as f64 * 2f64.powi(-23);
            if got.is_nan() || (got - want).abs() > bound {
                return Err(format!("row {row}, column {col}: {got}, not {want} within {bound}"));
            }
        }
        Ok(())
    }
}

/// The result of a call on the simulator; the program's dimension `S` is the number of rows.
pub(crate) fn called(
    tiles: &VerifiedModule,
    simulated: &Simulated,
    (args, params): (&[Tensor], &BTreeMap<String, Tensor>),
    rows: usize,
) -> Result<Vec<f64>, String> {
    let call = interp::Call {
        plan: "forward",
        variant: PlanVariant::Plain,
        symbols: &BTreeMap::from([("S".to_string(), rows as i64)]),
        args,
        params,
        limits: interp::Limits::default(),
    };
    let verified = tile::verify::verify(tiles).map_err(|e| e.to_string())?;
    let done = interp::run_on(verified, &call, &mut Default::default(), simulated).map_err(|e| e.to_string())?;
    Ok(done.results[0].to_f64())
}

/// A program, scheduled for a GPU.
pub(crate) fn scheduled(source: &str, arch: GpuArch, options: &ScheduleOptions) -> Result<VerifiedModule, String> {
    let mut module = front::module("test.attn", source, &front::options(&[]))?;
    passes::optimise(&mut module, &passes::Options::default(), &mut Collected::default()).map_err(|e| e.to_string())?;
    let tiles = lower(ir::verify(&module).map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    tile::schedule_for_gpu_with(&tiles, arch, options)
}

/// The nearest `bf16`.
fn bf16(x: f64) -> f64 {
    let bits = (x as f32).to_bits();
    let up = 0x7fff + (bits >> 16 & 1);
    f64::from(f32::from_bits((bits + up) & 0xffff_0000))
}

/// Groups that are full and not, odd steps, columns that fill a panel and not, weights of both types.
fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (n, (steps, cols)) in [(72, 100), (33, 65), (1, 3), (64, 64), (96, 72), (40, 2)].into_iter().enumerate() {
        for format in [WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4] {
            for elem in [Elem::F32, Elem::BF16, Elem::F16] {
                // What has 16 bits already is read where it lies.
                if format != WeightFormat::Bf16 || elem == Elem::F32 {
                    all.push(Case { elem, rows: None, steps, cols, transposed: n % 2 == 1, format });
                }
            }
        }
    }
    all
}

pub(crate) fn simulated(text: &str, tiles: &VerifiedModule, arch: GpuArch) -> Result<Simulated, String> {
    let (_, infos) = compile(tiles, arch)?;
    Simulated::new(text, infos, &[Mode::EAGER, Mode::LATEST.seeded(1)])
}

#[test]
fn products_by_packed_weights_are_those_of_their_numbers() {
    let all: Vec<(Case, GpuArch)> = cases().into_iter().zip(GpuArch::ALL.into_iter().cycle()).collect();
    let done = threads::each(all, threads::all(), |(case, arch)| {
        let one = || {
            let tiles = case.scheduled(arch)?;
            assert!(tiles.packed > 0, "{case:?} is not packed");
            // Rows of 16-bit activations that are made of chunks of 16 bytes, of columns that are worth it, go to tensor cores.
            let fits = case.elem != Elem::F32 && case.steps % 8 == 0 && case.cols >= 8;
            let products = tiles.kernels.iter().filter(|k| k.name.starts_with("matmul"));
            let (in_runs, on_cores): (Vec<_>, Vec<_>) = products.partition(|k| k.works_in_runs());
            assert_eq!((in_runs.len(), !on_cores.is_empty()), (1, fits), "{case:?}");
            let text = print(&compile(&tiles, arch)?.0);
            let simulated = simulated(&text, &tiles, arch)?;
            // One row, a tile of few, and one of many.
            let rows: &[usize] = match (fits, case.steps) {
                (true, 72) => &[0, 1, 2, 33, 65, 130],
                (true, _) => &[1, 3, 66],
                (false, 33) => &[0, 1, 66],
                (false, _) => &[3],
            };
            rows.iter().try_for_each(|rows| case.compare(&tiles, &simulated, *rows))
        };
        one().map_err(|why: String| format!("{case:?} {}: {why}", arch.name()))
    });
    let wrong: Vec<String> = done.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A change of the PTX that makes other numbers of the weight is seen: groups of 16 steps, the halves of a byte exchanged.
#[test]
fn faults_in_numbers_and_scales_are_seen() {
    let arch = GpuArch::Sm80;
    for (format, words, by) in [
        (WeightFormat::Int8, "shr.u32 %group", (", 5;", ", 4;")),
        (WeightFormat::Int4, "sub.s32 %shift", (" 28,", " 24,")),
        (WeightFormat::Int4, "shr.s32 %half", (", 28;", ", 27;")),
    ] {
        let case = Case { elem: Elem::F32, rows: None, steps: 72, cols: 100, transposed: false, format };
        let tiles = case.scheduled(arch).expect("a schedule");
        let text = print(&compile(&tiles, arch).expect("PTX").0);
        let change = |line: &str| if line.contains(words) { line.replace(by.0, by.1) } else { line.to_string() };
        let changed: Vec<String> = text.lines().map(change).collect();
        let changed = changed.join("\n") + "\n";
        assert!(changed != text, "no line has `{words}`");
        let given = simulated(&changed, &tiles, arch).and_then(|s| case.compare(&tiles, &s, 5));
        assert!(given.is_err(), "{format:?}: `{words}` is not noticed");
    }
}

#[test]
fn kernels_of_packed_weights_are_assembled() {
    ptxas::with("kernels of packed weights", |ptxas| {
        for format in [WeightFormat::Int8, WeightFormat::Int4] {
            for (elem, cols) in [(Elem::BF16, 72), (Elem::BF16, 4096), (Elem::F16, 4096)] {
                let case = Case { elem, rows: None, steps: 96, cols, transposed: false, format };
                for (arch, processor) in
                    [(GpuArch::Sm80, "sm_80"), (GpuArch::Sm80, "sm_100"), (GpuArch::Sm90a, "sm_90a")]
                {
                    let tiles = case.scheduled(arch).expect("a schedule");
                    let (module, _) = compile(&tiles, arch).expect("PTX");
                    crate::fragments::assembles(ptxas, &module, processor).unwrap_or_else(|e| panic!("{e}"));
                }
            }
        }
    });
}

/// Heads with weights of their own and without, work on the result, parameters of layers, numbers of rows that are known: they are those of the
/// interpreter on the same integers.
#[test]
fn products_by_integers_on_tensor_cores() {
    // A tile of 16 rows and two, one whose rows are no multiple of 16; what pays to be a matrix first.
    let known: Vec<Case> = [(9, 8), (16, 40), (33, 72), (200, 64), (1024, 64)]
        .into_iter()
        .zip([WeightFormat::Int8, WeightFormat::Int4].into_iter().cycle())
        .map(|((rows, steps), format)| Case {
            elem: Elem::BF16,
            rows: Some(rows),
            steps,
            cols: if rows < UNPACKED { 136 } else { 40 },
            transposed: true,
            format,
        })
        .collect();
    let all: Vec<(Case, GpuArch)> = known.into_iter().flat_map(|case| GpuArch::ALL.map(|arch| (case, arch))).collect();
    let done = threads::each(all, threads::all(), |(case, arch)| {
        let one = || {
            let tiles = case.scheduled(arch)?;
            let products: Vec<_> = tiles.kernels.iter().filter(|k| k.name.starts_with("matmul")).collect();
            let in_runs = products.iter().any(|k| k.works_in_runs());
            assert_eq!((products.len(), in_runs), (1, false), "{case:?} {}", arch.name());
            let by_integers = products.iter().any(|k| k.loads_scaled());
            let pays = arch == GpuArch::Sm90a && case.rows.is_some_and(|n| n >= UNPACKED);
            assert_eq!(by_integers, !pays, "{case:?} {}", arch.name());
            let text = print(&compile(&tiles, arch)?.0);
            case.compare(&tiles, &simulated(&text, &tiles, arch)?, case.rows.unwrap_or(1))
        };
        one().map_err(|why: String| format!("{case:?} {}: {why}", arch.name()))
    });
    let wrong: Vec<String> = done.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A program whose product by integers has points, a bias, weights of an array of layers.
const LAYERS: &str = "layer Layer {
    w: bf16[2, 64, 72]
    b: bf16[72]
    fn forward(x: bf16[2, S, 64], y: bf16[2, S, 72]) -> bf16[2, S, 72] {
        tanh(x @ w / 16 + b) + y
    }
}

model Test {
    layers: [Layer; 2]
    pub fn forward(x: bf16[2, S, 64], y: bf16[2, S, 72]) -> bf16[2, S, 72] {
        layers[1](x, layers[0](x, y))
    }
}
";

/// Integers times a power of two, the greatest of them in each group: packing keeps such weights as they are.
fn kept_as_they_are(shape: [usize; 3], most: i64, unit: f64, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    let of = |k: usize, random: &mut Random| match k % GROUP {
        0 => most,
        _ => random.below(2 * most as usize + 1) as i64 - most,
    };
    let all = (0..shape[0]).flat_map(|_| (0..shape[1]).flat_map(move |k| (0..shape[2]).map(move |_| k)));
    all.map(|k| of(k, &mut random) as f64 * unit).collect()
}

#[test]
fn products_by_integers_have_points_layers_and_work_on_their_results() {
    let (rows, steps, cols) = (21, 64, 72);
    for (format, most, unit) in [(WeightFormat::Int4, 7, 0.125), (WeightFormat::Int8, 127, 1.0 / 64.0)] {
        let numbers = |count: usize, seed: u64| -> Vec<f64> {
            let mut random = Random::new(seed);
            (0..count).map(|_| random.below(257) as f64 / 64.0 - 2.0).collect()
        };
        let (x, y) = (numbers(2 * rows * steps, 1), numbers(2 * rows * cols, 2));
        let (mut params, mut want) = (BTreeMap::new(), y.clone());
        for layer in 0..2 {
            let (w, b) = (kept_as_they_are([2, steps, cols], most, unit, 3 + layer), numbers(cols, 5 + layer));
            for (n, want) in want.iter_mut().enumerate() {
                let (point, row, col) = (n / cols / rows, n / cols % rows, n % cols);
                let at = |k: usize| (x[(point * rows + row) * steps + k], w[(point * steps + k) * cols + col]);
                let sum: f64 = (0..steps).map(at).map(|(x, w)| x * w).sum();
                *want += (sum / 16.0 + b[col]).tanh();
            }
            let tensor = |shape: &[usize], values: &[f64]| {
                Tensor::from_floats(Elem::BF16, shape.to_vec(), values).expect("a tensor")
            };
            params.insert(format!("layers.{layer}.w"), tensor(&[2, steps, cols], &w));
            params.insert(format!("layers.{layer}.b"), tensor(&[cols], &b));
        }
        let args = [(&x, steps), (&y, cols)]
            .map(|(x, n)| Tensor::from_floats(Elem::BF16, vec![2, rows, n], x).expect("a tensor"));
        for arch in GpuArch::ALL {
            let options = ScheduleOptions { weights: format.into(), ..ScheduleOptions::default() };
            let tiles = scheduled(LAYERS, arch, &options).unwrap_or_else(|e| panic!("{e}"));
            let text = print(&compile(&tiles, arch).expect("PTX").0);
            let simulated = simulated(&text, &tiles, arch).unwrap_or_else(|e| panic!("{e}"));
            let got = called(&tiles, &simulated, (&args, &params), rows).unwrap_or_else(|e| panic!("{e}"));
            for (n, (got, want)) in got.iter().zip(&want).enumerate() {
                assert!((got - want).abs() <= 0.03, "{format:?} {} element {n}: {got}, not {want}", arch.name());
            }
        }
    }
}
