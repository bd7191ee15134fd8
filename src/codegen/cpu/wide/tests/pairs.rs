//! The `bf16` matmul leaves against Intel's definition of their instructions, bit for bit, and
//! against `f64`.

use half::bf16;

use super::super::amx::{TilesShape, tiles};
use super::super::dot::{Ahead, DotShape, Right, dot};
use super::super::testing::{Executable, decodes, has, listing};
use super::emulator::{Counts, Emulator};
use crate::tile::Cpu;

/// A matmul of `rows` x `inner` by 16 columns for each vector, and the memory around it.
struct Case {
    rows: usize,
    inner: usize,
    vectors: usize,
    /// Row stride of `a` in elements; the padding is NaN.
    a_stride: usize,
    a: Vec<bf16>,
    /// `[pairs, columns, 2]`.
    b: Vec<bf16>,
    acc_row: usize,
    acc: Vec<f32>,
}

fn number(n: i32) -> bf16 {
    let x = n.wrapping_mul(1_103_515_245).wrapping_add(12_345) >> 8 & 0xffff;
    bf16::from_f32((f32::from(u16::try_from(x).unwrap_or(0)) - 32_768.0) / 20_000.0)
}

impl Case {
    fn new(rows: usize, inner: usize, vectors: usize) -> Case {
        let (columns, a_stride, acc_row) = (16 * vectors, inner + 3, 16 * vectors + 16);
        let index = |n: usize| i32::try_from(n).expect("a small number");
        let a = (0..rows * a_stride).map(|n| match n % a_stride {
            k if k < inner => number(index(n)),
            _ => bf16::NAN,
        });
        let b = (0..inner.div_ceil(2) * columns * 2).map(|n| match n / (2 * columns) * 2 + n % 2 {
            k if k < inner => number(7 * index(n) + 3),
            _ => bf16::ZERO,
        });
        let acc = (0..rows * acc_row).map(|n| number(3 * index(n) + 1).to_f32());
        Case { rows, inner, vectors, a_stride, a: a.collect(), b: b.collect(), acc_row, acc: acc.collect() }
    }

    fn left(&self, i: usize, k: usize) -> f32 {
        self.a[i * self.a_stride + k].to_f32()
    }

    fn right(&self, k: usize, j: usize) -> f32 {
        self.b[(k / 2 * 16 * self.vectors + j) * 2 + k % 2].to_f32()
    }

    /// The expected memory, given each element as a function of row, column and initial value.
    fn expected(&self, zero: bool, sum: impl Fn(usize, usize, f32) -> f32) -> Vec<f32> {
        let mut out = self.acc.clone();
        for i in 0..self.rows {
            for j in 0..16 * self.vectors {
                let x = &mut out[i * self.acc_row + j];
                *x = sum(i, j, if zero { 0.0 } else { *x });
            }
        }
        out
    }

    fn words(&self, acc: &mut [f32], steps: usize, in_order: u64) -> [u64; 9] {
        let (a, b, stride) = (self.a.as_ptr() as u64, self.b.as_ptr() as u64, 2 * self.a_stride as u64);
        [a, stride, b, acc.as_mut_ptr() as u64, self.rows as u64, steps as u64, 0, 0, in_order]
    }

    fn compare(&self, got: &[f32], want: &[f32], zero: bool, what: &str) {
        let what = format!("{what}: {} x {} x {} vectors", self.rows, self.inner, self.vectors);
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(got), bits(want), "{what}");
        // Within the error bound of any order of summation.
        let unit = f64::from(f32::EPSILON) / 2.0;
        let n = (self.inner + self.inner.div_ceil(32) + 2) as f64;
        let exact = self.expected(zero, |_, _, x| x);
        for i in 0..self.rows {
            for j in 0..16 * self.vectors {
                let at = i * self.acc_row + j;
                let products = (0..self.inner).map(|k| f64::from(self.left(i, k)) * f64::from(self.right(k, j)));
                let (sum, size) =
                    products.fold((f64::from(exact[at]), f64::from(exact[at]).abs()), |(s, m), p| (s + p, m + p.abs()));
                assert!((f64::from(got[at]) - sum).abs() <= 1.01 * n * unit * size, "{what}: {} and {sum}", got[at]);
            }
        }
    }
}

/// Addresses of the operands in the emulator: aligned to a line, as in a library.
const PLACES: [u64; 4] = [0x1000, 0x10_0000, 0x20_0000, 0x30_0000];

/// Generates the AMX leaf for a layout.
fn code_of(case: &Case, zero: bool) -> Vec<u8> {
    let bytes = |n: usize| i32::try_from(n).expect("a small number");
    let (b_pitch, vectors) = (bytes(64 * case.vectors), bytes(case.vectors));
    let shape = TilesShape { b_pitch, acc_pitch: bytes(4 * case.acc_row), vectors, zero };
    let (code, comments) = tiles(shape, true).expect("it can be encoded");
    assert!(listing(&code, &comments).contains("tdpbf16ps tmm0,tmm4,tmm6"));
    decodes(Cpu::AMX, &code);
    code
}

/// Executes the code in the emulator; returns the accumulator and the counts.
fn emulated(case: &Case, code: &[u8]) -> (Vec<f32>, Counts) {
    let [words, a, b, acc] = PLACES;
    let short = |v: &[bf16]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let given = [a, 2 * case.a_stride as u64, b, acc, case.rows as u64, case.inner as u64];
    let mut emulator = Emulator::new(vec![
        (words, given.into_iter().flat_map(u64::to_le_bytes).collect()),
        (a, short(&case.a)),
        (b, short(&case.b)),
        (acc, case.acc.iter().flat_map(|x| x.to_le_bytes()).collect()),
    ]);
    emulator.call(code, words);
    let got = emulator.region(acc).chunks(4).map(|x| f32::from_le_bytes(x.try_into().expect("four bytes")));
    (got.collect(), emulator.counts)
}

/// Checks the AMX leaf in the emulator, and on this machine if it has AMX.
fn tiles_compute(case: &Case, zero: bool) {
    let code = code_of(case, zero);
    let (rows, inner) = (case.rows, case.inner);
    let want = case.expected(zero, |i, j, start| {
        start
            + (0..inner).step_by(32).fold(0.0, |sum, first| {
                let chain = |odd: usize| {
                    let all = (first + odd..inner.min(first + 32)).step_by(2);
                    all.fold(0.0, |x: f32, k| case.left(i, k).mul_add(case.right(k, j), x))
                };
                sum + (chain(0) + chain(1))
            })
    });
    case.compare(&emulated(case, &code).0, &want, zero, "emulated tiles");
    if has(Cpu::AMX) {
        let leaf = Executable::new(Cpu::AMX, &code).expect("tiles");
        let mut got = case.acc.clone();
        // SAFETY: the buffers have the sizes and strides of the arguments.
        unsafe { leaf.call(&case.words(&mut got, inner, 0)) };
        case.compare(&got, &want, zero, &format!("tiles, {rows} rows"));
    }
}

#[test]
fn products_of_tiles() {
    let sizes = [1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 70];
    let steps = [0, 1, 2, 3, 30, 31, 32, 33, 34, 64, 95, 160];
    for (vectors, zero) in [(1, false), (1, true), (2, false), (2, true)] {
        for (n, rows) in sizes.into_iter().enumerate() {
            for inner in steps.into_iter().skip(n % 2).step_by(2) {
                tiles_compute(&Case::new(rows, inner, vectors), zero);
            }
        }
    }
    // More steps than a block, for few and for many bands of rows.
    for (rows, inner) in [(16, 300), (32, 513), (33, 256), (33, 257), (64, 288), (65, 512), (81, 545)] {
        for zero in [false, true] {
            tiles_compute(&Case::new(rows, inner, 2), zero);
        }
    }
}

/// Counts tile loads: at most one for each tile product, apart from sums, and `b` rarely comes from
/// L2.
#[test]
fn tiles_that_are_loaded() {
    let case = Case { a_stride: 768, ..Case::new(256, 768, 2) };
    let (got, counts) = emulated(&case, &code_of(&case, true));
    assert_eq!(got.len(), case.acc.len());
    // 16 bands by two vectors by 24 times 32 steps; sums are reloaded twice and stored three times.
    let (products, sums) = (16 * 2 * 24, 16 * 2);
    assert_eq!(counts.products, products);
    assert_eq!((counts.loads, counts.stores), (products + 2 * sums, 3 * sums));
    // Misses: lines of `a` once, of sums twice, of `b` once.
    let (of_a, of_b, of_sums) = (256 * 24, 768, 256 * 2 * 2);
    let expected = of_a + of_b + of_sums;
    assert!(counts.far_lines <= expected + expected / 8, "{counts:?}, at best {expected} lines");
}

#[test]
fn products_of_pairs() {
    for (vectors, filled) in [(1, false), (2, true), (2, false)] {
        for (rows, inner) in [(0, 2), (1, 2), (3, 4), (14, 6), (15, 8), (31, 34), (40, 96)] {
            let case = Case::new(rows, inner, vectors);
            let bytes = |n: usize| i32::try_from(n).expect("a small number");
            let shape = DotShape {
                inner_dense: true,
                b_pitch: bytes(64 * vectors),
                acc_pitch: bytes(4 * case.acc_row),
                vectors: bytes(vectors),
                right: Right::Pairs,
                groups: false,
                filled,
                ahead: Ahead::Panel,
                result: 0,
                direct: false,
            };
            let (code, comments) = dot(Cpu::AVX512_BF16.width(), shape, true).expect("it can be encoded");
            assert!(listing(&code, &comments).contains("vdpbf16ps"));
            let Some(leaf) = Executable::new(Cpu::AVX512_BF16, &code) else { return };
            // The odd step of a pair is added first.
            let want = case.expected(filled, |i, j, start| {
                start
                    + (0..inner).step_by(2).fold(0.0, |sum, k| {
                        let sum = case.left(i, k + 1).mul_add(case.right(k + 1, j), sum);
                        case.left(i, k).mul_add(case.right(k, j), sum)
                    })
            });
            for in_order in [0, 1, 2] {
                let mut got = case.acc.clone();
                // SAFETY: the buffers have the sizes and strides of the arguments.
                unsafe { leaf.call(&case.words(&mut got, inner / 2, in_order)) };
                case.compare(&got, &want, filled, "pairs");
            }
        }
    }
}
