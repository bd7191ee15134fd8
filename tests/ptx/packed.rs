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
use attnc::tile::{self, GpuArch, GpuOptions, PlanVariant, WeightFormat, interp};

use crate::{front, ptxas};

/// Steps that share a scale.
const GROUP: usize = 32;

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
        scheduled(&source, arch, &GpuOptions { weights: format.into(), ..GpuOptions::default() })
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
            // Results of 16 bits are rounded, and weights that many rows of them are multiplied by.
            let is_half = self.elem != Elem::F32;
            let is_unpacked = is_half && self.rows.is_none() && self.format != WeightFormat::F32;
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
    let done = interp::run_on(verified, &call, &mut BTreeMap::new(), simulated).map_err(|e| e.to_string())?;
    Ok(done.results[0].to_f64())
}

/// A program, scheduled for a GPU.
pub(crate) fn scheduled(source: &str, arch: GpuArch, options: &GpuOptions) -> Result<VerifiedModule, String> {
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
            for elem in [Elem::F32, Elem::BF16] {
                // What is `bf16` already is read where it lies.
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
            let fits = case.elem == Elem::BF16 && case.steps % 8 == 0 && case.cols >= 8;
            let product = tiles.kernels.iter().find(|k| k.name.starts_with("matmul"));
            assert_eq!(product.is_some_and(|k| !k.works_in_runs()), fits, "{case:?}");
            let text = print(&compile(&tiles, arch)?.0);
            let simulated = simulated(&text, &tiles, arch)?;
            let rows: &[usize] = if case.steps == 33 { &[0, 1, 66] } else { &[3] };
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
            let case = Case { elem: Elem::BF16, rows: None, steps: 96, cols: 72, transposed: false, format };
            for arch in GpuArch::ALL {
                let tiles = case.scheduled(arch).expect("a schedule");
                let (module, _) = compile(&tiles, arch).expect("PTX");
                crate::fragments::assembles(ptxas, &module, arch.name()).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    });
}
