//! Handwritten runs, one for each loop structure, at odd sizes.

use super::{check, floats};
use crate::tile::interp::Argument;

/// Test values: small integers, and every seventh a special value.
fn numbers(n: usize) -> Argument {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-40, 3.5, 2_147_483_648.0];
    floats((0..n).map(|i| if i % 7 == 3 { special[i / 7 % 7] } else { (i * 37 % 23) as f32 - 11.0 }))
}

fn whole(n: usize) -> Argument {
    floats((0..n).map(|i| (i * 37 % 23) as f32 - 11.0))
}

const SIZES: [i64; 9] = [0, 1, 3, 15, 16, 17, 31, 33, 100];

/// A kernel that normalises rows: maxima and sums along columns, then a pass over values in
/// scratch.
fn rows_and_sums(rows: &str, cols: &str) -> String {
    format!(
        r#"module "m"

kernel @k(%x: in f32[101, 103], %y: out f32[101, 103], %z: out f32[101], %r: index, %c: index, %zero: index) cpu(avx512) scratch(106496) {{
^bb0:
  %two = const 2.0 : f32
  run ({rows}, {cols}) {{
    %t = load %x[%zero, %zero], rows=0, cols=1 : tile f32[{rows}, {cols}] @l1(0)
    %d = mul %t, %two : tile f32[{rows}, {cols}] @l1(51200)
    %a = reduce_sum %t, axis=1 : tile f32[{rows}, 1] @l1(102400)
    %h = reduce_max %d, axis=1 : tile f32[{rows}, 1] @l1(103424)
  }}
  run ({rows}, {cols}) {{
    %e = sub %d, %h : tile f32[{rows}, {cols}] @l1(51200)
    %f = mul %e, %a : tile f32[{rows}, {cols}] @reg
    store %y[%zero, %zero], %f, rows=0, cols=1
    %n = reduce_min %e, axis=1 : tile f32[{rows}, 1] @l1(103424)
  }}
  run ({rows}, 1) {{
    %p = mul %n, %two : tile f32[{rows}, 1] @l1(103424)
    %q = sub %p, %a : tile f32[{rows}, 1] @reg
    store %z[%zero], %q, rows=0
  }}
  return
}}
"#
    )
}

#[test]
fn rows_are_reduced() {
    for r in SIZES {
        for c in SIZES {
            let args = |x| {
                vec![x, numbers(101 * 103), numbers(101), Argument::Index(r), Argument::Index(c), Argument::Index(0)]
            };
            check(&rows_and_sums("%r<=100", "%c<=100"), &[], &args(whole(101 * 103)));
            if r > 0 && c > 0 {
                check(&rows_and_sums(&r.to_string(), &c.to_string()), &[], &args(whole(101 * 103)));
            }
        }
    }
}

/// Minimum and maximum propagate NaN from any position.
#[test]
fn nan_stays() {
    let source = rows_and_sums("%r<=100", "%c<=100").replace("reduce_sum", "reduce_min");
    for c in SIZES {
        let args = [
            numbers(101 * 103),
            numbers(101 * 103),
            numbers(101),
            Argument::Index(100),
            Argument::Index(c),
            Argument::Index(0),
        ];
        check(&source, &[], &args);
    }
}

/// Reductions over rows: accumulators stay in registers.
#[test]
fn columns_are_reduced() {
    let source = r#"module "m"

kernel @k(%x: in f32[101, 103], %y: out f32[103], %z: out f32[103], %r: index, %c: index, %zero: index) cpu(avx512) scratch(1024) {
^bb0:
  run (%r<=100, %c<=100) {
    %t = load %x[%zero, %zero], rows=0, cols=1 : tile f32[%r<=100, %c<=100] @reg
    %a = reduce_sum %t, axis=0 : tile f32[1, %c<=100] @l1(0)
    %h = reduce_max %t, axis=0 : tile f32[1, %c<=100] @l1(512)
  }
  run (1, %c<=100) {
    store %y[%zero], %a, cols=0
    store %z[%zero], %h, cols=0
  }
  return
}
"#;
    for r in SIZES {
        for c in SIZES {
            let args = [
                whole(101 * 103),
                numbers(103),
                numbers(103),
                Argument::Index(r),
                Argument::Index(c),
                Argument::Index(0),
            ];
            check(source, &[], &args);
        }
    }
}

/// Values rounded to or loaded from `bf16` are stored without another rounding.
#[test]
fn bf16_is_rounded_once() {
    let text = r#"module "m"

kernel @k(%x: in f32[5, 40], %w: in bf16[5, 40], %y: out bf16[5, 40], %z: out bf16[5, 40], %zero: index) cpu(avx512) scratch(0) {
^bb0:
  run (5, 40) {
    %a = load %x[%zero, %zero], rows=0, cols=1 : tile f32[5, 40] @reg
    %b = load %w[%zero, %zero], rows=0, cols=1 : tile f32[5, 40] @reg
    %c = add %a, %b : tile f32[5, 40] @reg
    %d = narrow %c, elem=bf16 : tile f32[5, 40] @reg
    store %y[%zero, %zero], %d, rows=0, cols=1
    store %z[%zero, %zero], %b, rows=0, cols=1
  }
  return
}
"#;
    let short = (0..200).flat_map(|i| half::bf16::from_f32(0.37 * (i * 37 % 23) as f32 - 4.0).to_le_bytes());
    let short = Argument::Buffer(short.collect());
    let empty = || Argument::Buffer(vec![0; 400]);
    check(text, &[], &[numbers(200), short, empty(), empty(), Argument::Index(0)]);
    // Ties, range limits, infinities, NaN and signed zeros.
    let edges =
        [0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x7f7f_8000, 0x7f7f_7fff, 0x7f80_0000, 0x7fc1_2345, 0x7f80_0001]
            .into_iter()
            .flat_map(|bits| [bits, bits | 0x8000_0000])
            .chain([0x8000_0000, 0x0000_ffff, 0x007f_ffff]);
    let edges: Vec<f32> = edges.cycle().take(200).map(f32::from_bits).collect();
    let zeros = || Argument::Buffer(vec![0; 400]);
    check(text, &[], &[floats(edges), zeros(), empty(), empty(), Argument::Index(0)]);
    // With another use, the rounded value is computed separately.
    let used = text.replace(
        "store %z[%zero, %zero], %b",
        "%e = mul %d, %d : tile f32[5, 40] @reg\n    store %z[%zero, %zero], %e",
    );
    check(&used, &[], &[numbers(200), zeros(), empty(), empty(), Argument::Index(0)]);
}

/// Argmax: the first of equal maxima, and the first NaN if there is one; along columns and along
/// rows.
#[test]
fn places_of_maxima() {
    let along_columns = r#"module "m"

kernel @k(%x: in f32[101, 103], %i: in i32[101, 103], %y: out i32[101], %z: out i32[101], %r: index, %c: index, %zero: index) cpu(avx512) scratch(1024) {
^bb0:
  run (%r<=100, %c<=100) {
    %t = load %x[%zero, %zero], rows=0, cols=1 : tile f32[%r<=100, %c<=100] @reg
    %n = load %i[%zero, %zero], rows=0, cols=1 : tile i32[%r<=100, %c<=100] @reg
    %a = argmax %t, axis=1 : tile i32[%r<=100, 1] @l1(0)
    %b = argmax %n, axis=1 : tile i32[%r<=100, 1] @l1(512)
  }
  run (%r<=100, 1) {
    store %y[%zero], %a, rows=0
    store %z[%zero], %b, rows=0
  }
  return
}
"#;
    let along_rows = r#"module "m"

kernel @k(%x: in f32[101, 103], %i: in i32[101, 103], %y: out i32[103], %z: out i32[103], %r: index, %c: index, %zero: index) cpu(avx512) scratch(1024) {
^bb0:
  run (%r<=100, %c<=100) {
    %t = load %x[%zero, %zero], rows=0, cols=1 : tile f32[%r<=100, %c<=100] @reg
    %n = load %i[%zero, %zero], rows=0, cols=1 : tile i32[%r<=100, %c<=100] @reg
    %a = argmax %t, axis=0 : tile i32[1, %c<=100] @l1(0)
    %b = argmax %n, axis=0 : tile i32[1, %c<=100] @l1(512)
  }
  run (1, %c<=100) {
    store %y[%zero], %a, cols=0
    store %z[%zero], %b, cols=0
  }
  return
}
"#;
    let ints = |f: &dyn Fn(usize) -> i32| Argument::Buffer((0..101 * 103).flat_map(|n| f(n).to_le_bytes()).collect());
    let least = ints(&|_| i32::MIN);
    let mixed = ints(&|n| if n % 5 == 0 { i32::MIN } else { (n * 7919 % 11) as i32 - 9 });
    let bottom = floats((0..101 * 103).map(|_| f32::NEG_INFINITY));
    let late = floats((0..101 * 103).map(|n| if n % 103 == 70 || n / 103 == 60 { -1.0 } else { f32::NEG_INFINITY }));
    for (x, i) in [(whole(101 * 103), &mixed), (numbers(101 * 103), &mixed), (bottom, &least), (late, &mixed)] {
        for r in SIZES.into_iter().filter(|n| *n > 0) {
            for c in SIZES.into_iter().filter(|n| *n > 0) {
                let [y, z] = [(); 2].map(|()| ints(&|_| -7));
                let args = [x.clone(), i.clone(), y, z, Argument::Index(r), Argument::Index(c), Argument::Index(0)];
                check(along_columns, &[], &args);
                let known = along_columns.replace("%c<=100", &c.to_string()).replace("%r<=100", &r.to_string());
                check(&known, &[], &args);
                check(along_rows, &[], &args);
            }
        }
    }
}
