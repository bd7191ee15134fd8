//! Products that read their operands in place: of every pair of types that are computed in the same one, on either side.

use std::collections::BTreeMap;

use attnc::ptx::sim::{Mode, Module as Loaded};
use attnc::shape::Elem;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::tile::{GpuArch, Kernel, text};

use crate::runs::{compiled, launch};

const ROWS: usize = 11;
const STEPS: usize = 20;
const COLS: usize = 3;

/// A product of tiles of `computed`, loaded from buffers of other types.
fn product(name: &str, left: Elem, right: Elem, computed: Elem) -> Kernel {
    let none = if computed == Elem::F32 { "0.0" } else { "0" };
    let source = format!(
        r#"module "windows"

kernel @{name}(%x: in {left}[S, {STEPS}], %w: in {right}[{STEPS}, {COLS}], %y: out {computed}[S, {COLS}]) symbols(S) grid(%i: ceil(S, 8)) {{
^bb0:
  %zero = const 0 : index
  %none = const {none} : {computed}
  %eight = const 8 : index
  %at = mul %i, %eight : index
  %s = dim S : index
  %left = sub %s, %at : index
  %rows = min %left, %eight : index
  %a = load %x[%at, %zero], rows=0, cols=1 : tile {computed}[%rows<=8, {STEPS}]
  %b = load %w[%zero, %zero], rows=0, cols=1 : tile {computed}[{STEPS}, {COLS}]
  %c = dot %a, %b, %none : tile {computed}[%rows<=8, {COLS}]
  store %y[%at, %zero], %c, rows=0, cols=1
  return
}}
"#
    );
    let mut sources = SourceMap::new();
    let file = sources.add("windows.tir", source.as_str());
    let parsed = text::parse(&source, file)
        .unwrap_or_else(|d| panic!("{}", attnc::diagnostics::render_all(&d, &sources, false)));
    parsed.module.kernels.into_iter().next().expect("a kernel")
}

/// The bytes of integers in a type that holds them exactly.
fn bytes(elem: Elem, shape: [usize; 2], values: &[i64]) -> Vec<u8> {
    let floats: Vec<f64> = values.iter().map(|n| *n as f64).collect();
    let tensor = Tensor::from_floats(elem, shape.to_vec(), &floats);
    let tensor = tensor.or_else(|| Tensor::from_ints(elem, shape.to_vec(), values));
    tensor.expect("numbers of the type").bytes().to_vec()
}

#[test]
fn products_read_every_type_in_place() {
    let alike = [
        (Elem::F32, &[Elem::F32, Elem::BF16, Elem::F16][..]),
        (Elem::I32, &[Elem::I32, Elem::I8]),
        (Elem::I64, &[Elem::I64]),
    ];
    let mut cases = Vec::new();
    for (computed, elems) in alike {
        cases.extend(elems.iter().flat_map(|a| elems.iter().map(move |b| (*a, *b, computed))));
    }
    // Integers, whose products and sums are exact in each type.
    let x: Vec<i64> = (0..ROWS * STEPS).map(|n| (n * 37 % 253) as i64 - 126).collect();
    let w: Vec<i64> = (0..STEPS * COLS).map(|n| (n * 53 % 251) as i64 - 125).collect();
    let sum = |n: usize| (0..STEPS).map(|k| x[n / COLS * STEPS + k] * w[k * COLS + n % COLS]).sum();
    let y: Vec<i64> = (0..ROWS * COLS).map(sum).collect();
    let symbols = BTreeMap::from([("S".to_string(), ROWS as i64)]);
    for arch in GpuArch::ALL {
        let name = |n: usize| format!("product.{n}");
        let kernels = cases.iter().enumerate().map(|(n, (a, b, c))| product(&name(n), *a, *b, *c)).collect();
        let (scheduled, text_of, infos) = compiled(kernels, arch);
        let loaded = Loaded::load(&text_of).unwrap_or_else(|e| panic!("{e}"));
        for ((a, b, computed), (kernel, info)) in cases.iter().zip(scheduled.kernels.iter().zip(&infos)) {
            let printed = text::print_kernel(kernel, &[]);
            assert_eq!(printed.matches("= window ").count(), 2, "copied first: {printed}");
            let buffers = [
                bytes(*a, [ROWS, STEPS], &x),
                bytes(*b, [STEPS, COLS], &w),
                bytes(*computed, [ROWS, COLS], &vec![-1; ROWS * COLS]),
            ];
            for mode in [Mode::EAGER, Mode::LATEST.seeded(1)] {
                let (got, _) =
                    launch(&loaded, info, &symbols, &buffers, mode).unwrap_or_else(|e| panic!("{e}: {printed}"));
                assert_eq!(got[2], bytes(*computed, [ROWS, COLS], &y), "{a} @ {b} on {}: {printed}", arch.name());
            }
        }
    }
}
