//! Matmul leaves against explicit FMA chains: every instruction set, layout, height and kind of
//! right operand.

use super::super::dot::{Ahead, DotShape, Right, dot};
use super::super::dot_group::{GroupShape, dot_group, most_rows};
use super::super::testing::{Executable, listing};
use crate::tile::Cpu;

fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(x >> 16).unwrap_or(0)) / 65_536.0 - 0.5
    };
    (0..n).map(|_| next()).collect()
}

/// Arguments of a matmul leaf: `a` and its row stride in elements, `b`, the accumulator, rows and
/// inner extent. The sums start with 0, there are no scales, and the first prefetch order is used.
fn words<B>((a, stride): (&[f32], usize), b: &[B], acc: &mut [f32], (rows, inner): (usize, usize)) -> [u64; 14] {
    let mut words = [0; 14];
    words[..6].copy_from_slice(&[
        a.as_ptr() as u64,
        4 * stride as u64,
        b.as_ptr() as u64,
        acc.as_mut_ptr() as u64,
        rows as u64,
        inner as u64,
    ]);
    words
}

/// Indices of further arguments: scales, initial value of the sums, prefetch order, result.
const SCALES: usize = 6;
const FIRST: usize = 7;
const WAY: usize = 8;
const RESULT: usize = 9;
/// Address and stride of the rows that are prefetched.
const ROWS: usize = 12;

/// Runs the leaf on `rows` x `inner` by `cols`, and compares each element with its FMA chain, bit
/// for bit: from a constant, or from 0 with the previous contents added last. Memory around the
/// accumulator must not change.
fn check(level: Cpu, inner_dense: bool, filled: bool, vectors: usize, rows: usize, inner: usize) {
    let stride = if inner_dense { inner + 5 } else { rows + 3 };
    check_with_stride(level, (inner_dense, stride), filled, vectors, rows, inner);
}

/// The same, with the stride of the left operand in elements.
fn check_with_stride(
    level: Cpu,
    (inner_dense, stride): (bool, usize),
    filled: bool,
    vectors: usize,
    rows: usize,
    inner: usize,
) {
    let lanes = usize::try_from(level.lanes()).expect("a small number");
    let cols = vectors * lanes;
    let (b_row, acc_row, guard) = (cols + lanes, cols + 3, 64);
    let bytes = |n: usize| i32::try_from(4 * n).expect("a small number");
    let shape = |ahead| DotShape {
        inner_dense,
        b_pitch: bytes(b_row),
        acc_pitch: bytes(acc_row),
        vectors: i32::try_from(vectors).expect("a small number"),
        right: Right::F32,
        groups: false,
        filled,
        ahead,
        // Some receive the address of the result.
        result: if filled { 2 } else { 0 },
        direct: false,
    };
    let leaf = |ahead| {
        let (code, comments) = dot(level.width(), shape(ahead), true).expect("it can be encoded");
        assert!(listing(&code, &comments).contains("vfmadd231ps"));
        Executable::new(level, &code)
    };
    let leaves = [Ahead::Panel, Ahead::Rows, Ahead::Nothing].map(leaf);
    let a = numbers(if inner_dense { rows * stride } else { inner * stride }, 1);
    let b = numbers(inner * b_row, 2);
    let start = numbers(rows * acc_row + 2 * guard, 3);
    let mut want = start.clone();
    for r in 0..rows {
        for c in 0..cols {
            let left = |k: usize| if inner_dense { a[r * stride + k] } else { a[k * stride + r] };
            let chain = |first| (0..inner).fold(first, |sum, k| left(k).mul_add(b[k * b_row + c], sum));
            let element = &mut want[guard + r * acc_row + c];
            *element = if filled { chain(0.75) } else { *element + chain(0.0) };
        }
    }
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for (leaf, in_order) in leaves.iter().flatten().flat_map(|leaf| [0, 1, 2].map(|n| (leaf, n))) {
        let mut acc = start.clone();
        let mut words = words((&a, stride), &b, &mut acc[guard..], (rows, inner));
        (words[FIRST], words[WAY]) = (u64::from(0.75f32.to_bits()), in_order);
        (words[RESULT], words[RESULT + 1]) = (words[3], 4 * acc_row as u64);
        // Only prefetched, so any address will do.
        (words[ROWS], words[ROWS + 1]) = (u64::MAX - 100, 4096);
        // SAFETY: the buffers have the sizes and strides of the arguments.
        unsafe { leaf.call(&words) };
        let what = format!("{} {inner_dense} {rows} x {inner} x {cols}, {in_order}", level.name());
        assert_eq!(bits(&acc), bits(&want), "{what}");
    }
}

#[test]
fn products_are_chains_of_fmas() {
    for level in [Cpu::AVX512, Cpu::AVX2] {
        for inner_dense in [true, false] {
            for vectors in 1..=5 {
                // Some of these exceed the prefetch window.
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
    for level in [Cpu::AVX512, Cpu::AVX2] {
        for rows in 1..=30 {
            check(level, true, false, 2, rows, 6);
            check(level, false, true, 2, rows, 6);
        }
    }
}

/// Register tiles have fewer rows if the row stride of the left operand is a multiple of a page.
#[test]
fn rows_a_page_apart() {
    for level in [Cpu::AVX512, Cpu::AVX2] {
        for rows in [1, 10, 11, 12, 14, 15, 22, 23, 30] {
            check_with_stride(level, (true, 1024), true, 2, rows, 9);
            check_with_stride(level, (true, 2048), false, 1, rows, 70);
        }
    }
}

/// Prefetching and tile heights do not change results, so this checks the code.
#[test]
fn what_is_fetched_ahead() {
    let text_of = |level: Cpu, inner_dense, result, ahead| {
        let (b_pitch, right) = (4 * 32, Right::F32);
        let shape = DotShape {
            inner_dense,
            b_pitch,
            acc_pitch: b_pitch,
            vectors: 2,
            right,
            groups: false,
            filled: true,
            ahead,
            result,
            direct: false,
        };
        let (code, comments) = dot(level.width(), shape, true).expect("it can be encoded");
        listing(&code, &comments)
    };
    let count = |text: &str, what: &str| text.matches(what).count();
    for (level, heights) in [(Cpu::AVX512, 14), (Cpu::AVX2, 6)] {
        for result in [0, 1, 2] {
            // Every line of every row of a register tile, before the inner loop.
            let text = text_of(level, true, result, Ahead::Panel);
            let lines = usize::try_from(result).expect("a small number");
            let rows = heights * (heights + 1) / 2;
            assert_eq!(count(&text, "prefetchw [rdx]"), rows * lines.min(1), "{}", level.name());
            assert_eq!(count(&text, "prefetchw [rdx+40h]"), rows * lines.saturating_sub(1), "{}", level.name());
            for tile in text.split(" rows x ").skip(1).filter(|tile| tile.contains("prefetchw")) {
                let last = tile.rfind("prefetchw").expect("there is one");
                assert!(tile.find("fmadd").is_none_or(|first| last < first), "{}", level.name());
            }
            // Two lines of the next panel in each height's loop.
            assert_eq!(count(&text, "prefetcht1 [rbx"), 2 * heights, "{}", level.name());
        }
        // Two rows of what is copied next in each height's loop, of 128 or 64 bytes.
        let rows = text_of(level, true, 0, Ahead::Rows);
        let lines = if level == Cpu::AVX512 { 2 } else { 1 };
        assert_eq!(count(&rows, "prefetcht1 [rbx"), 2 * lines * heights, "{}", level.name());
        assert_eq!(count(&rows, "add rbx,[rsp-38h]"), 2 * heights, "{}", level.name());
        let near = text_of(level, true, 0, Ahead::Nothing);
        assert_eq!(count(&near, "prefetch"), 0, "{}", level.name());
        // Page-multiple strides are checked at run time if a tile may have more rows than the cache
        // has ways.
        let pages = |text: &str| count(text, "test r11,0FFFh") + count(text, "cmove rcx,rdx");
        assert_eq!(pages(&near), if level == Cpu::AVX512 { 2 } else { 0 }, "{}", level.name());
        assert_eq!(pages(&text_of(level, false, 0, Ahead::Nothing)), 0, "{}", level.name());
        // Few rows: non-temporal, four pages in turn, or in order.
        let few = text_of(level, true, 2, Ahead::Panel);
        let (passing, rest) =
            few.split_once("memory at several pages at once").expect("all prefetch orders are present");
        let (pages, order) =
            rest.split_once("memory in the order of addresses").expect("all prefetch orders are present");
        assert!(passing.contains("memory past the caches"));
        assert!(passing.contains("prefetchnta [rbp") && !passing.contains("prefetcht0"), "{}", level.name());
        assert_eq!(count(rest, "prefetchnta"), 0, "{}", level.name());
        assert!(pages.contains("prefetcht0 [rcx+r9") && !pages.contains("prefetcht0 [rbp"), "{}", level.name());
        assert!(order.contains("prefetcht0 [rbp") && !order.contains("prefetcht0 [rcx+r9"), "{}", level.name());
    }
}

/// Elements of a right operand in memory, and their values.
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

/// A row times a column of integers with scales, the row quantised in groups of 32 steps; integers
/// are multiplied by `part`.
fn rounded(row: &[f32], part: f32, column: impl Fn(usize) -> (f32, f32)) -> f32 {
    row.chunks(32).enumerate().fold(0.0, |acc, (g, group)| {
        let most = group.iter().fold(1e-30f32, |m, x| m.max(x.abs()));
        let factor = 127.0 / most;
        let sum: f32 = group
            .iter()
            .enumerate()
            .map(|(i, x)| {
                let (value, scale) = column(32 * g + i);
                (x.mul_add(factor, 128.0).round_ties_even() - 128.0) * (value / scale).round() * part
            })
            .sum();
        sum.mul_add(most * (1.0 / (127.0 * part)) * column(32 * g).1, acc)
    })
}

#[test]
fn narrow_operands_are_widened_where_they_are_loaded() {
    for level in [Cpu::AVX512, Cpu::AVX2, Cpu::AVX2_VNNI] {
        let all = [(Right::F32, 4), (Right::Bf16, 2), (Right::Bytes, 1), (Right::Nibbles, 1)];
        for (right, size) in all.into_iter().filter(|(right, _)| level != Cpu::AVX2_VNNI || right.scaled()) {
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
                (2, 1, 768),
                (2, 2, 32),
                (2, 3, 1024),
                (2, 17, 96),
                (1, 3, 64),
                (2, 100, 32),
            ] {
                let cols = vectors * usize::try_from(level.lanes()).expect("a small number");
                let number = |n: usize| i32::try_from(n).expect("a small number");
                let shape = DotShape {
                    inner_dense: true,
                    b_pitch: number(size * cols),
                    acc_pitch: number(4 * cols),
                    vectors: number(vectors),
                    right,
                    groups: right.scaled() && level.sums_bytes(),
                    filled: false,
                    ahead: Ahead::Panel,
                    result: 0,
                    direct: false,
                };
                let (code, comments) = dot(level.width(), shape, true).expect("it can be encoded");
                assert_eq!(
                    listing(&code, &comments).contains("vpdpbusd"),
                    level.sums_bytes() && right.scaled() && vectors == 2
                );
                let Some(leaf) = Executable::new(level, &code) else { continue };
                let a = numbers(rows * inner, 4);
                let scales = numbers(inner.div_ceil(32) * cols, 5);
                let (bytes, values) = narrow(right, inner, cols, &scales);
                let start = numbers(rows * cols, 6);
                let whole = level.sums_bytes() && right.scaled();
                let want: Vec<f32> = (0..rows * cols)
                    .map(|i| {
                        let (r, c) = (i / cols, i % cols);
                        let row = &a[r * inner..(r + 1) * inner];
                        if whole && vectors == 2 && inner % 32 == 0 {
                            let part = if right == Right::Bytes { 1.0 } else { 16.0 };
                            let column = |k| (values[k * cols + c], scales[k / 32 * cols + c]);
                            return start[i] + rounded(row, part, column);
                        }
                        let chain = |sum: f32, (k, x): (usize, &f32)| x.mul_add(values[k * cols + c], sum);
                        start[i] + row.iter().enumerate().fold(0.0, chain)
                    })
                    .collect();
                for in_order in [0, 1, 2] {
                    let mut acc = start.clone();
                    let mut words = words((&a, inner), &bytes, &mut acc, (rows, inner));
                    (words[SCALES], words[WAY]) = (scales.as_ptr() as u64, in_order);
                    // SAFETY: the buffers have the sizes and strides of the arguments.
                    unsafe { leaf.call(&words) };
                    assert_eq!(acc, want, "{} {right:?} {rows} x {inner} x {cols}, {in_order}", level.name());
                }
            }
        }
    }
}

/// Groups of zeros, of numbers with few bits, and a NaN or an infinity, which makes its row NaN and
/// no other.
#[test]
fn rounded_groups_of_every_kind() {
    for level in [Cpu::AVX512, Cpu::AVX2_VNNI] {
        for right in [Right::Bytes, Right::Nibbles] {
            rounded_groups(level, right);
        }
    }
}

fn rounded_groups(level: Cpu, right: Right) {
    let (rows, inner) = (5, 64);
    let cols = 2 * usize::try_from(level.lanes()).expect("a small number");
    let bytes_of_row = if right == Right::Bytes { cols } else { cols / 2 };
    let b_pitch = i32::try_from(cols).expect("a small number");
    let shape = DotShape {
        inner_dense: true,
        b_pitch,
        acc_pitch: 4 * b_pitch,
        vectors: 2,
        right,
        groups: true,
        filled: true,
        ahead: Ahead::Panel,
        result: 0,
        direct: false,
    };
    let (code, _) = dot(level.width(), shape, false).expect("it can be encoded");
    let Some(leaf) = Executable::new(level, &code) else { return };
    let mut a = numbers(rows * inner, 8);
    a[..32].fill(0.0);
    a[inner..2 * inner].iter_mut().for_each(|x| *x *= 1e-44);
    a[2 * inner + 40] = f32::NAN;
    a[3 * inner + 1] = f32::NEG_INFINITY;
    let b = vec![0x11u8; inner * bytes_of_row];
    let scales = vec![0.5f32; 2 * cols];
    let mut acc = vec![0.0f32; rows * cols];
    let (start, number) = (3.0f32, if right == Right::Bytes { 17.0 } else { 1.0 });
    let mut words = words((&a, inner), &b, &mut acc, (rows, inner));
    (words[SCALES], words[FIRST]) = (scales.as_ptr() as u64, u64::from(start.to_bits()));
    // SAFETY: the buffers have the sizes and strides of the arguments.
    unsafe { leaf.call(&words) };
    for (r, sums) in acc.chunks(cols).enumerate() {
        let exact: f32 = a[r * inner..][..inner].iter().sum::<f32>() * 0.5 * number + start;
        // The error per step is at most half of 1/127 of the largest magnitude.
        let off = 64.0 * 0.5 / 254.0 * 0.5 * number;
        for sum in sums {
            match r {
                2 | 3 => assert!(sum.is_nan(), "{right:?}, row {r}: {sum}"),
                1 => assert_eq!(*sum, start, "{right:?}"),
                _ => assert!((sum - exact).abs() < off, "{right:?}, row {r}: {sum}, not {exact}"),
            }
        }
    }
}

/// Sums stored directly to the result: all rows and the masked columns, for all register tiles and
/// parts of the leaf; the accumulator and the memory around the result do not change.
#[test]
fn sums_go_to_the_result() {
    let level = Cpu::AVX512;
    for (rows, inner, columns, filled, far) in [
        (0, 5, 32, true, true),
        (1, 0, 32, false, true),
        (1, 0, 9, true, false),
        (1, 70, 31, false, true),
        (13, 8, 16, true, true),
        (14, 33, 1, false, false),
        (15, 7, 17, false, true),
        (64, 65, 32, false, true),
        (64, 64, 29, true, false),
        (3, 128, 0, false, true),
    ] {
        let what = format!("{rows} x {inner} x {columns}, filled {filled}, far {far}");
        let (cols, pitch, guard) = (32, 37, 40);
        let shape = DotShape {
            inner_dense: true,
            b_pitch: 128,
            acc_pitch: 128,
            vectors: 2,
            right: Right::F32,
            groups: false,
            filled,
            ahead: if far { Ahead::Panel } else { Ahead::Nothing },
            result: if far { 2 } else { 0 },
            direct: true,
        };
        let (code, _) = dot(level.width(), shape, false).expect("it can be encoded");
        let Some(leaf) = Executable::new(level, &code) else { return };
        let (a, b, acc) = (numbers(rows * inner, 11), numbers(inner * cols, 12), numbers(rows * cols, 13));
        let start = numbers(rows * pitch + 2 * guard, 14);
        let mut want = start.clone();
        for (r, c) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
            let chain = |first| (0..inner).fold(first, |sum, k| a[r * inner + k].mul_add(b[k * cols + c], sum));
            want[guard + r * pitch + c] = if filled { chain(0.25) } else { acc[r * cols + c] + chain(0.0) };
        }
        for in_order in [0, 1, 2] {
            let (mut scratch, mut result) = (acc.clone(), start.clone());
            let mut words = words((&a, inner), &b, &mut scratch, (rows, inner));
            (words[FIRST], words[WAY]) = (u64::from(0.25f32.to_bits()), in_order);
            let place = result[guard..].as_mut_ptr() as u64;
            words[RESULT..ROWS].copy_from_slice(&[place, 4 * pitch as u64, (1 << columns) - 1]);
            // SAFETY: the operands have these extents.
            unsafe { leaf.call(&words) };
            assert!(result.iter().zip(&want).all(|(x, y)| x.to_bits() == y.to_bits()), "{what}");
            assert_eq!(scratch, acc, "{what}");
        }
    }
}

/// Each element of a grouped matmul equals its FMA chain, bit for bit; memory between the sums does
/// not change, and with more rows than there is code for nothing is written.
#[test]
fn panels_side_by_side() {
    for level in [Cpu::AVX512, Cpu::AVX2] {
        for (panels, vectors) in [(2, 2), (3, 2), (4, 2), (4, 1)] {
            for (rows, inner) in [(1, 0), (1, 1), (1, 4), (1, 7), (1, 256), (2, 3), (2, 65), (3, 5)] {
                panels_at_once(level, (panels, vectors), (rows, inner));
            }
        }
    }
}

fn panels_at_once(level: Cpu, (panels, vectors): (usize, usize), (rows, inner): (usize, usize)) {
    let small = |n: usize| i32::try_from(n).expect("a small number");
    let cols = vectors * usize::try_from(level.lanes()).expect("a small number");
    let (b_row, acc_row, stride, guard) = (cols + 16, cols + 3, inner + 5, 64);
    let shape = GroupShape {
        panels: small(panels),
        vectors: small(vectors),
        b_pitch: small(4 * b_row),
        acc_pitch: small(4 * acc_row),
    };
    let (code, comments) = dot_group(level.width(), shape, true).expect("it can be encoded");
    assert!(listing(&code, &comments).contains("vfmadd231ps"));
    let Some(leaf) = Executable::new(level, &code) else { return };
    let a = numbers(rows * stride, 1);
    // Panels and sums in another order in memory than in the arguments.
    let b: Vec<Vec<f32>> = (0..panels).map(|p| numbers(inner * b_row, 7 + u32::try_from(p).expect("small"))).collect();
    let size = rows * acc_row + guard;
    let start = numbers(panels * size + guard, 3);
    let place = |p: usize| guard + (panels - 1 - p) * size;
    let mut want = start.clone();
    if small(rows) <= most_rows(level.width()) {
        for (p, panel) in b.iter().enumerate() {
            for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
                let chain = (0..inner).fold(0.75, |sum, k| a[r * stride + k].mul_add(panel[k * b_row + c], sum));
                want[place(p) + r * acc_row + c] = chain;
            }
        }
    }
    let mut got = start;
    let mut words = vec![a.as_ptr() as u64, 4 * stride as u64, inner as u64, rows as u64];
    words.push(u64::from(0.75f32.to_bits()));
    words.extend(b.iter().map(|panel| panel.as_ptr() as u64));
    let sums = got.as_mut_ptr();
    words.extend((0..panels).map(|p| sums.wrapping_add(place(p)) as u64));
    // SAFETY: the buffers have the sizes and strides of the arguments.
    unsafe { leaf.call(&words) };
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&got), bits(&want), "{} {panels} x {vectors}, {rows} x {inner}", level.name());
}
