//! Floats: rounding, comparisons, conversions and approximations, against exact numbers.

use attnc::random::Random;

use super::arithmetic::apply;

/// Floats of all kinds: zeros, subnormals, infinities, NaN, numbers that are near each other and far apart.
fn rows(seed: u64, n: usize) -> Vec<[u64; 4]> {
    let mut random = Random::new(seed);
    let edges = [
        0x0000_0000,
        0x8000_0000,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x3f80_0000,
        0xbf80_0000,
        0x7f7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0001,
    ];
    (0..n)
        .map(|_| {
            std::array::from_fn(|_| {
                if random.chance(20) {
                    random.pick(&edges)
                } else if random.chance(60) {
                    // Between 2^-12 and 2^12, so that sums and products are exact in `f64`.
                    (random.word() & 0x807f_ffff) | (115 + random.word() % 24) << 23
                } else {
                    random.word() & 0xffff_ffff
                }
            })
        })
        .collect()
}

fn f(bits: u64) -> f64 {
    f64::from(f32::from_bits(bits as u32))
}

/// Is a float the one that an exact number rounds to in a direction?
fn is_rounded(found: u64, exact: f64, direction: &str) -> bool {
    let x = f32::from_bits(found as u32);
    let (below, above) = (f64::from(x.next_down()), f64::from(x.next_up()));
    match direction {
        "rn" => (f64::from(x) - exact).abs() <= (below - exact).abs().min((above - exact).abs()),
        "rz" => {
            f64::from(x).abs() <= exact.abs()
                && f64::from(if exact < 0.0 { x.next_down() } else { x.next_up() }).abs() > exact.abs()
        }
        "rm" => f64::from(x) <= exact && above > exact,
        _ => f64::from(x) >= exact && below < exact,
    }
}

#[test]
fn sums_and_products_are_rounded_in_each_direction() {
    type Model = fn(f64, f64, f64) -> f64;
    let models: &[(&str, usize, Model)] = &[
        ("add", 2, |a, b, _| a + b),
        ("sub", 2, |a, b, _| a - b),
        ("mul", 2, |a, b, _| a * b),
        ("div", 2, |a, b, _| a / b),
        ("sqrt", 1, |a, _, _| a.sqrt()),
    ];
    let mut checked = 0;
    for (name, count, model) in models {
        for direction in ["rn", "rz", "rm", "rp"] {
            let rows = rows(1, 512);
            let found = apply("sm_80", &format!("{name}.{direction}.f32"), "f32", &vec!["f32"; *count], &rows);
            for (row, found) in rows.iter().zip(found) {
                let exact = model(f(row[0]), f(row[1]), f(row[2]));
                let moderate = |v: u64| (115..139).contains(&(v >> 23 & 0xff));
                if exact.is_nan() {
                    assert_eq!(found, 0x7fff_ffff, "{name}.{direction} {row:x?}");
                } else if row.iter().take(*count).all(|v| moderate(*v)) && exact != 0.0 {
                    assert!(is_rounded(found, exact, direction), "{name}.{direction} {row:x?}: {found:x}, {exact:e}");
                    checked += 1;
                } else if direction == "rn" {
                    // What the host's processor computes.
                    let [a, b, ..] = row.map(|v| f32::from_bits(v as u32));
                    let host = match *name {
                        "add" => a + b,
                        "sub" => a - b,
                        "mul" => a * b,
                        "div" => a / b,
                        _ => a.sqrt(),
                    };
                    assert_eq!(found, u64::from(host.to_bits()), "{name} {row:x?}");
                }
            }
        }
    }
    assert!(checked > 1000, "{checked}");
}

/// `fma` is rounded once: of numbers whose product is exact in `f64`, and whose sum with the third is too.
#[test]
fn fused_products_are_rounded_once() {
    let mut random = Random::new(2);
    // 11 bits each: products of 22 bits, sums within 53.
    let short = |random: &mut Random| (random.word() & 0x807f_e000) | (120 + random.word() % 12) << 23;
    let rows: Vec<[u64; 4]> =
        (0..512).map(|_| [short(&mut random), short(&mut random), short(&mut random), 0]).collect();
    for direction in ["rn", "rz", "rm", "rp"] {
        let found = apply("sm_80", &format!("fma.{direction}.f32"), "f32", &["f32"; 3], &rows);
        for (row, found) in rows.iter().zip(found) {
            let exact = f(row[0]) * f(row[1]) + f(row[2]);
            assert!(exact == 0.0 || is_rounded(found, exact, direction), "fma.{direction} {row:x?}: {found:x}");
        }
    }
    // A product that is rounded before the addition gives another number.
    let one = [0x3f80_0001, 0x3f80_0001, 0xbf80_0002, 0];
    assert_eq!(apply("sm_80", "fma.rn.f32", "f32", &["f32"; 3], &[one]), [0x2880_0000]);
}

#[test]
fn subnormals_are_flushed_where_that_is_said() {
    let rows = [[1, 0x3f80_0000, 0, 0], [0x0080_0000, 0x3f00_0000, 0, 0], [0x8000_0001, 0x8000_0001, 0, 0]];
    assert_eq!(apply("sm_80", "mul.rn.ftz.f32", "f32", &["f32"; 2], &rows), [0, 0, 0]);
    assert_eq!(apply("sm_80", "mul.rn.f32", "f32", &["f32"; 2], &rows), [1, 0x0040_0000, 0]);
    assert_eq!(apply("sm_80", "add.rn.ftz.f32", "f32", &["f32"; 2], &rows), [0x3f80_0000, 0x3f00_0000, 0x8000_0000]);
    assert_eq!(
        apply(
            "sm_80",
            "add.rn.sat.f32",
            "f32",
            &["f32"; 2],
            &[[0x4000_0000, 0x3f80_0000, 0, 0], [0x7fc0_0000, 0, 0, 0], [0xbf80_0000, 0, 0, 0]]
        ),
        [0x3f80_0000, 0, 0]
    );
}

#[test]
fn the_lesser_and_greater_have_their_rules() {
    let (nan, one, zero, minus) = (0x7fc0_1234, 0x3f80_0000, 0, 0x8000_0000);
    let rows = [[nan, one, 0, 0], [one, nan, 0, 0], [zero, minus, 0, 0], [minus, zero, 0, 0], [nan, nan, 0, 0]];
    assert_eq!(apply("sm_80", "min.f32", "f32", &["f32"; 2], &rows), [one, one, minus, minus, 0x7fff_ffff]);
    assert_eq!(apply("sm_80", "max.f32", "f32", &["f32"; 2], &rows), [one, one, zero, zero, 0x7fff_ffff]);
    assert_eq!(
        apply("sm_80", "max.NaN.f32", "f32", &["f32"; 2], &rows),
        [0x7fff_ffff, 0x7fff_ffff, zero, zero, 0x7fff_ffff]
    );
}

/// The nearest `bf16` by its definition: of the upper half and its neighbour the nearer, the even one among equals.
fn brain(bits: u32) -> u64 {
    let x = f32::from_bits(bits);
    if x.is_nan() {
        return 0x7fff;
    }
    if x.is_infinite() {
        return u64::from(bits >> 16);
    }
    let (low, high) = (bits & 0xffff_0000, (bits & 0xffff_0000).wrapping_add(0x1_0000));
    let wide = |bits: u32| {
        if bits & 0x7fff_ffff == 0x7f80_0000 {
            f64::from(x).signum() * 2f64.powi(128)
        } else {
            f64::from(f32::from_bits(bits))
        }
    };
    let (down, up) = ((f64::from(x) - wide(low)).abs(), (wide(high) - f64::from(x)).abs());
    let pick = if down < up || down == up && low >> 16 & 1 == 0 { low } else { high };
    u64::from(pick >> 16)
}

#[test]
fn narrow_floats_are_the_nearest() {
    let rows = rows(3, 512);
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.rn.bf16.f32", "b16", &["f32"], &rows)) {
        assert_eq!(found, brain(row[0] as u32), "{:x}", row[0]);
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.rn.bf16x2.f32", "b32", &["f32", "f32"], &rows)) {
        assert_eq!(found, brain(row[0] as u32) << 16 | brain(row[1] as u32), "{row:x?}");
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.rn.f16.f32", "b16", &["f32"], &rows)) {
        let x = f32::from_bits(row[0] as u32);
        let wanted = if x.is_nan() { 0x7fff } else { u64::from(half::f16::from_f32(x).to_bits()) };
        assert_eq!(found, wanted, "{:x}", row[0]);
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.f32.bf16", "f32", &["b16"], &rows)) {
        let x = f32::from_bits((row[0] as u32 & 0xffff) << 16);
        assert_eq!(found, if x.is_nan() { 0x7fff_ffff } else { u64::from(x.to_bits()) });
    }
    // Sums of `f16` are rounded once: the exact one has 53 bits.
    for (row, found) in rows.iter().zip(apply("sm_80", "add.rn.f16", "b16", &["b16", "b16"], &rows)) {
        let [a, b] = [row[0], row[1]].map(|v| half::f16::from_bits(v as u16).to_f64());
        let sum = a + b;
        if sum.is_finite() && sum.abs() < 60000.0 {
            let found = half::f16::from_bits(found as u16);
            let gap = |n: half::f16| (n.to_f64() - sum).abs();
            let near = [found.to_bits().wrapping_add(1), found.to_bits().wrapping_sub(1)].map(half::f16::from_bits);
            assert!(near.iter().all(|n| n.is_nan() || gap(found) <= gap(*n)), "{a} + {b} = {found}");
        }
    }
}

#[test]
fn integers_and_floats_are_converted() {
    let rows = rows(4, 512);
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.rzi.s32.f32", "b32", &["f32"], &rows)) {
        // Rust's `as` is the same: toward zero, within the range, NaN to 0.
        assert_eq!(found, u64::from(f32::from_bits(row[0] as u32) as i32 as u32), "{:x}", row[0]);
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.rni.s64.f32", "b64", &["f32"], &rows)) {
        let x = f32::from_bits(row[0] as u32);
        let wanted = if x.is_nan() { 1 << 63 } else { x.round_ties_even() as i64 as u64 };
        assert_eq!(found, wanted, "{:x}", row[0]);
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.rn.f32.s64", "f32", &["b64"], &rows)) {
        assert_eq!(found, u64::from((row[0] as i64 as f32).to_bits()));
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.rn.f32.u32", "f32", &["b32"], &rows)) {
        assert_eq!(found, u64::from((row[0] as u32 as f32).to_bits()));
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.sat.s8.s32", "b32", &["b32"], &rows)) {
        assert_eq!(found, u64::from((row[0] as i32).clamp(-128, 127) as u32));
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.s64.s8", "b64", &["b32"], &rows)) {
        assert_eq!(found, i64::from(row[0] as i8) as u64);
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.rmi.f32.f32", "f32", &["f32"], &rows)) {
        let x = f32::from_bits(row[0] as u32);
        assert_eq!(found, if x.is_nan() { 0x7fff_ffff } else { u64::from(x.floor().to_bits()) });
    }
    for (row, found) in rows.iter().zip(apply("sm_80", "cvt.rna.tf32.f32", "b32", &["f32"], &rows)) {
        let x = f(row[0]);
        if x.is_finite() && x.abs() > 1e-30 && x.abs() < 1e30 {
            let off = (f(found) - x).abs() / x.abs();
            assert!(found & 0x1fff == 0 && off <= 2f64.powi(-11), "{:x} {found:x}", row[0]);
        }
    }
}

#[test]
fn approximations_are_within_their_bounds() {
    type Function = fn(f64) -> f64;
    let rows = rows(5, 512);
    let models: &[(&str, Function, f64)] = &[
        ("ex2.approx.f32", f64::exp2, 22.0),
        ("lg2.approx.f32", f64::log2, 22.0),
        ("rcp.approx.f32", |x| 1.0 / x, 22.0),
        ("rsqrt.approx.f32", |x| 1.0 / x.sqrt(), 22.0),
        ("sqrt.approx.f32", f64::sqrt, 22.0),
        ("tanh.approx.f32", f64::tanh, 11.0),
    ];
    for (name, model, bits) in models {
        for (row, found) in rows.iter().zip(apply("sm_80", name, "f32", &["f32"], &rows)) {
            let (exact, found) = (model(f(row[0])), f(found));
            if exact.abs() < 1e38 && exact.abs() > 1e-37 {
                assert!(
                    (found - exact).abs() <= exact.abs() * 2f64.powf(-bits),
                    "{name} {:x}: {found}, {exact}",
                    row[0]
                );
            } else if exact.is_nan() {
                assert!(found.is_nan(), "{name} {:x}", row[0]);
            }
        }
    }
}
