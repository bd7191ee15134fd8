//! Products of `f32` whose operands may be rounded to `tf32`: what the tensor cores give is what the rounded operands give, which this file
//! rounds by itself.

use std::collections::BTreeMap;

use attnc::codegen::ptx::compile;
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::simulated::Simulated;
use attnc::tensor::Tensor;
use attnc::threads;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{GpuArch, ScheduleOptions};

use crate::packed::{called, scheduled, simulated};
use crate::ptxas;

/// A product of `[S, steps]` and `[steps, cols]`, the latter as it is or transposed, with a row and a residual added or not.
#[derive(Clone, Copy, Debug)]
struct Case {
    steps: usize,
    cols: usize,
    transposed: bool,
    adds: bool,
}

/// More steps than a stage and fewer, tiles of the result that are full and not.
const CASES: [Case; 4] = [
    Case { steps: 72, cols: 136, transposed: false, adds: false },
    Case { steps: 100, cols: 68, transposed: true, adds: true },
    Case { steps: 4, cols: 72, transposed: false, adds: true },
    Case { steps: 16, cols: 8, transposed: true, adds: false },
];

impl Case {
    fn scheduled(self, arch: GpuArch, tf32: bool) -> VerifiedModule {
        let Case { steps, cols, transposed, adds } = self;
        let (shape, right) =
            if transposed { (format!("{cols}, {steps}"), "w.T") } else { (format!("{steps}, {cols}"), "w") };
        let more = if adds { " + b + r" } else { "" };
        let source = format!(
            "model Test {{\n    pub fn forward(x: f32[S, {steps}], w: f32[{shape}], b: f32[{cols}], r: f32[S, {cols}]) -> f32[S, {cols}] {{\n        x @ {right}{more}\n    }}\n}}\n"
        );
        let options = ScheduleOptions { tf32, ..ScheduleOptions::default() };
        scheduled(&source, arch, &options).unwrap_or_else(|e| panic!("{self:?}: {e}"))
    }

    fn compare(self, tiles: &VerifiedModule, simulated: &Simulated, rows: usize) -> Result<(), String> {
        let Case { steps, cols, transposed, adds } = self;
        let mut random = Random::new(11);
        let mut tensor = |shape: [usize; 2]| {
            // All bits of the fraction are used.
            let values: Vec<f64> =
                (0..shape[0] * shape[1]).map(|_| f64::from(random.below(1 << 24) as f32 / 8_388_608.0 - 1.0)).collect();
            let shape = if shape[0] == 0 { vec![shape[1]] } else { shape.to_vec() };
            let values = if shape.len() == 1 { vec![0.5; shape[0]] } else { values };
            Tensor::from_floats(Elem::F32, shape, &values).expect("a tensor")
        };
        let w = if transposed { [cols, steps] } else { [steps, cols] };
        let args = [tensor([rows, steps]), tensor(w), tensor([0, cols]), tensor([rows, cols])];
        let got = called(tiles, simulated, (&args, &BTreeMap::new()), rows)?;
        let [x, w, b, r] = [0, 1, 2, 3].map(|n: usize| args[n].to_f64());
        for (n, got) in got.iter().enumerate() {
            let (row, col) = (n / cols, n % cols);
            let w_at = |k: usize| if transposed { w[col * steps + k] } else { w[k * cols + col] };
            let terms = (0..steps).map(|k| tf32(x[row * steps + k]) * tf32(w_at(k)));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let want = if adds { sum + b[col] + r[n] } else { sum };
            let bound = (size + 2.0) * (steps + 2) as f64 * 2f64.powi(-23);
            if (got - want).abs() > bound || got.is_nan() {
                return Err(format!("row {row}, column {col}: {got}, not {want} within {bound}"));
            }
        }
        Ok(())
    }
}

/// The nearest number of 11 significant bits; ties go away from zero.
fn tf32(x: f64) -> f64 {
    if x == 0.0 {
        return x;
    }
    let unit = 2f64.powi(x.abs().log2().floor() as i32 - 10);
    (x.abs() / unit + 0.5).floor() * unit * x.signum()
}

#[test]
fn products_are_those_of_rounded_operands() {
    let all: Vec<(Case, GpuArch)> = CASES.into_iter().flat_map(|c| GpuArch::ALL.map(|arch| (c, arch))).collect();
    let done = threads::each(all, threads::all(), |(case, arch)| {
        let tiles = case.scheduled(arch, true);
        let text = print(&compile(&tiles, arch)?.0);
        if !text.contains("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32") {
            return Err(format!("{case:?} has no tensor cores"));
        }
        let simulated = simulated(&text, &tiles, arch)?;
        // None, fewer than a tile, more than one.
        let rows: &[usize] = if case.adds { &[0, 3] } else { &[67] };
        rows.iter().try_for_each(|rows| {
            case.compare(&tiles, &simulated, *rows).map_err(|e| format!("{case:?} {}: {e}", arch.name()))
        })
    });
    let wrong: Vec<String> = done.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn without_leave_nothing_is_rounded() {
    for arch in GpuArch::ALL {
        let tiles = CASES[0].scheduled(arch, false);
        assert!(tiles.kernels.iter().all(attnc::tile::Kernel::works_in_runs));
    }
}

#[test]
fn faults_of_operands_are_seen() {
    let case = CASES[0];
    let arch = GpuArch::Sm80;
    let tiles = case.scheduled(arch, true);
    let text = print(&compile(&tiles, arch).expect("PTX").0);
    // Cut off instead of rounded; the other half of a step; no wait for a copy.
    for (words, by) in [("cvt.rna.tf32.f32", "mov.b32"), (", %step, 4;", ", %step, 0;"), ("bar.sync 0;", "")] {
        let changed = text.replace(words, by);
        assert!(changed != text, "no line has `{words}`");
        let given = simulated(&changed, &tiles, arch).and_then(|s| case.compare(&tiles, &s, 67));
        assert!(given.is_err(), "`{words}` is not noticed");
    }
}

#[test]
fn kernels_of_tf32_are_assembled_without_spills() {
    ptxas::with("kernels of tf32", |ptxas| {
        for case in &CASES[..2] {
            // Many rows have the largest tiles.
            for arch in GpuArch::ALL {
                let (module, _) = compile(&case.scheduled(arch, true), arch).expect("PTX");
                crate::fragments::assembles(ptxas, &module, arch.name()).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    });
}
