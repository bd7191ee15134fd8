//! Leaves of products against chains of sums written out: every level, layout, height and kind of right operand.

use super::super::dot::{DotShape, Right, dot};
use super::super::testing::Executable;
use crate::tile::CpuLevel;

fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(x >> 16).unwrap_or(0)) / 65_536.0 - 0.5
    };
    (0..n).map(|_| next()).collect()
}

/// Runs the leaf on `rows` x `inner` by `cols`, and compares each element with its chain of FMAs, bit for bit; what lies
/// around the accumulator stays as it is.
fn check(level: CpuLevel, inner_dense: bool, filled: bool, vectors: usize, rows: usize, inner: usize) {
    let lanes = usize::try_from(level.lanes()).expect("a small number");
    let cols = vectors * lanes;
    let (b_row, acc_row, guard) = (cols + lanes, cols + 3, 64);
    let stride = if inner_dense { inner + 5 } else { rows + 3 };
    let bytes = |n: usize| i32::try_from(4 * n).expect("a small number");
    let shape = DotShape {
        inner_dense,
        b_pitch: bytes(b_row),
        acc_pitch: bytes(acc_row),
        vectors: i32::try_from(vectors).expect("a small number"),
        right: Right::F32,
        filled,
        far: true,
    };
    let (code, listing) = dot(level, shape, true).expect("it can be encoded");
    assert!(listing.contains("vfmadd231ps"));
    let Some(leaf) = Executable::new(level, &code) else { return };
    let a = numbers(if inner_dense { rows * stride } else { inner * stride }, 1);
    let b = numbers(inner * b_row, 2);
    let start = numbers(rows * acc_row + 2 * guard, 3);
    let mut want = start.clone();
    for r in 0..rows {
        for c in 0..cols {
            let sum = &mut want[guard + r * acc_row + c];
            if filled {
                *sum = 0.75;
            }
            for k in 0..inner {
                let x = if inner_dense { a[r * stride + k] } else { a[k * stride + r] };
                *sum = x.mul_add(b[k * b_row + c], *sum);
            }
        }
    }
    let mut acc = start;
    let words = [
        a.as_ptr() as u64,
        4 * stride as u64,
        b.as_ptr() as u64,
        acc[guard..].as_mut_ptr() as u64,
        rows as u64,
        inner as u64,
        0,
        u64::from(0.75f32.to_bits()),
    ];
    // SAFETY: the buffers have the sizes and strides that the words say.
    unsafe { leaf.call(&words) };
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&acc), bits(&want), "{} {inner_dense} {rows} x {inner} x {cols}", level.name());
}

#[test]
fn products_are_chains_of_fmas() {
    for level in [CpuLevel::Avx512, CpuLevel::Avx2] {
        for inner_dense in [true, false] {
            for vectors in 1..=5 {
                // Some of these are longer than what is fetched at a time.
                for (rows, inner) in
                    [(0, 3), (1, 0), (1, 1), (2, 3), (3, 300), (7, 4), (13, 5), (14, 64), (15, 7), (40, 9)]
                {
                    check(level, inner_dense, false, vectors, rows, inner);
                    check(level, inner_dense, true, vectors, rows, inner);
                }
            }
        }
    }
}

#[test]
fn every_height_has_its_code() {
    for level in [CpuLevel::Avx512, CpuLevel::Avx2] {
        for rows in 1..=30 {
            check(level, true, false, 2, rows, 6);
            check(level, false, true, 2, rows, 6);
        }
    }
}

/// Elements of a right operand in memory, and what they are worth.
fn narrow(right: Right, inner: usize, cols: usize, scales: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for k in 0..inner {
        for c in 0..cols {
            let n = i8::try_from((k * cols + c) * 7919 % 251).map_or(-1, |n| n);
            let scale = scales[k / 32 * cols + c];
            match right {
                Right::F32 | Right::Pairs => {
                    bytes.extend((f32::from(n) * 0.37).to_le_bytes());
                    values.push(f32::from(n) * 0.37);
                }
                Right::Bf16 => {
                    let x = half::bf16::from_f32(f32::from(n) * 0.37);
                    bytes.extend(x.to_le_bytes());
                    values.push(x.to_f32());
                }
                Right::Bytes => {
                    bytes.push(n.cast_unsigned());
                    values.push(f32::from(n) * scale);
                }
                Right::Nibbles => {
                    let n = n.rem_euclid(16) - 8;
                    let half = n.cast_unsigned() & 15;
                    if k % 2 == 0 {
                        bytes.push(half);
                    } else {
                        bytes[k / 2 * cols + c] |= half << 4;
                    }
                    values.push(f32::from(n) * scale);
                }
            }
        }
    }
    (bytes, values)
}

#[test]
fn narrow_operands_are_widened_where_they_are_loaded() {
    for level in [CpuLevel::Avx512, CpuLevel::Avx2] {
        for (right, size) in [(Right::F32, 4), (Right::Bf16, 2), (Right::Bytes, 1), (Right::Nibbles, 1)] {
            for (vectors, rows, inner) in [
                (2, 1, 1),
                (2, 1, 2),
                (1, 1, 3),
                (2, 2, 5),
                (2, 5, 31),
                (1, 12, 32),
                (2, 13, 33),
                (2, 14, 64),
                (2, 25, 103),
            ] {
                let cols = vectors * usize::try_from(level.lanes()).expect("a small number");
                let number = |n: usize| i32::try_from(n).expect("a small number");
                let shape = DotShape {
                    inner_dense: true,
                    b_pitch: number(size * cols),
                    acc_pitch: number(4 * cols),
                    vectors: number(vectors),
                    right,
                    filled: false,
                    far: true,
                };
                let (code, _) = dot(level, shape, false).expect("it can be encoded");
                let Some(leaf) = Executable::new(level, &code) else { continue };
                let a = numbers(rows * inner, 4);
                let scales = numbers(inner.div_ceil(32) * cols, 5);
                let (bytes, values) = narrow(right, inner, cols, &scales);
                let mut acc = numbers(rows * cols, 6);
                let mut want = acc.clone();
                for r in 0..rows {
                    for c in 0..cols {
                        for k in 0..inner {
                            want[r * cols + c] = a[r * inner + k].mul_add(values[k * cols + c], want[r * cols + c]);
                        }
                    }
                }
                let words = [
                    a.as_ptr() as u64,
                    4 * inner as u64,
                    bytes.as_ptr() as u64,
                    acc.as_mut_ptr() as u64,
                    rows as u64,
                    inner as u64,
                    scales.as_ptr() as u64,
                ];
                // SAFETY: the buffers have the sizes and strides that the words say.
                unsafe { leaf.call(&words) };
                assert_eq!(acc, want, "{} {right:?} {rows} x {inner} x {cols}", level.name());
            }
        }
    }
}
