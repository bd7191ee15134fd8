//! Arithmetic: each instruction on numbers at the edges and random ones, against models in wider arithmetic.

use attnc::random::Random;

use super::Case;
use attnc::ptx::sim::Mode;

/// The class of a register, and how a load of it is written.
fn class(ty: &str) -> (&'static str, &'static str) {
    match ty {
        "b16" => (".b16", "u16"),
        "b32" => (".b32", "b32"),
        "f32" => (".f32", "f32"),
        "f64" => (".f64", "f64"),
        _ => (".b64", "b64"),
    }
}

/// Applies an instruction to rows of operands.
pub(crate) fn apply(target: &str, opcode: &str, result: &str, operands: &[&str], rows: &[[u64; 4]]) -> Vec<u64> {
    apply_with(target, opcode, result, operands, "", rows)
}

/// The same with something written behind the operands.
fn apply_with(
    target: &str,
    opcode: &str,
    result: &str,
    operands: &[&str],
    behind: &str,
    rows: &[[u64; 4]],
) -> Vec<u64> {
    let mut declared = format!(".reg .b64 %at, %to, %all; .reg {} %res;", class(result).0);
    let mut body = String::from("mad.wide.u32 %at, %t, 32, %x;\nmad.wide.u32 %to, %t, 8, %y;\n");
    let names: Vec<String> = (0..operands.len()).map(|n| format!("%op{n}")).collect();
    for (n, ty) in operands.iter().enumerate() {
        let (class, load) = class(ty);
        declared.push_str(&format!(".reg {class} {};", names[n]));
        body.push_str(&format!("ld.global.{load} {}, [%at+{}];\n", names[n], 8 * n));
    }
    body.push_str(&format!("{opcode} %res, {}{behind};\n", names.join(", ")));
    // The whole register, so that what is above its type shows.
    body.push_str(match result {
        "b16" => "cvt.u64.u16 %all, %res;\n",
        "b32" => "cvt.u64.u32 %all, %res;\n",
        "f32" => "mov.b32 %r0, %res;\ncvt.u64.u32 %all, %r0;\n",
        _ => "mov.b64 %all, %res;\n",
    });
    body.push_str("st.global.u64 [%to], %all;");
    let threads = rows.len() as u32;
    let text = super::text(target, threads, &declared, &body);
    let x: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let mut case = Case::new(&text, threads, &x, 8 * rows.len());
    case.launch(1, 0, Mode::EAGER).unwrap_or_else(|r| panic!("{r}\n{text}"));
    let bytes = case.device.read(case.y, 8 * rows.len()).expect("in a buffer");
    bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()
}

/// Numbers at the edges of all widths, and random ones of all lengths.
fn integers(seed: u64, n: usize) -> Vec<[u64; 4]> {
    let mut random = Random::new(seed);
    let edges = [
        0,
        1,
        2,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 63,
        (1 << 63) - 1,
        u64::MAX,
    ];
    (0..n)
        .map(|_| {
            std::array::from_fn(
                |_| if random.chance(40) { random.pick(&edges) } else { random.word() >> random.below(64) },
            )
        })
        .collect()
}

fn bits_of(ty: &str) -> u32 {
    ty[1..].parse().expect("a width")
}

/// A value as its type has it.
fn value(v: u64, ty: &str) -> i128 {
    let bits = bits_of(ty);
    let v = i128::from(v) & ((1 << bits) - 1);
    if ty.starts_with('s') && v >> (bits - 1) == 1 { v - (1 << bits) } else { v }
}

fn cut(v: i128, ty: &str) -> u64 {
    (v & ((1 << bits_of(ty)) - 1)) as u64
}

type Model = fn(&str, [i128; 4]) -> Option<i128>;

fn is_valid_division(_: &str, [a, b, ..]: [i128; 4]) -> bool {
    b != 0 && !(b == -1 && a < 0)
}

#[test]
fn integers_are_those_of_wider_arithmetic() {
    let whole: Model = |_, [a, b, ..]| Some(a * b);
    let models: &[(&str, usize, &[&str], Model)] = &[
        ("add", 2, &["u16", "u32", "u64", "s16", "s32", "s64"], |_, [a, b, ..]| Some(a + b)),
        ("sub", 2, &["u16", "u32", "u64", "s16", "s32", "s64"], |_, [a, b, ..]| Some(a - b)),
        ("mul.lo", 2, &["u16", "u32", "s16", "s32", "s64"], |_, [a, b, ..]| Some(a.wrapping_mul(b))),
        ("mul.hi", 2, &["u16", "u32", "s16", "s32", "s64"], |ty, [a, b, ..]| Some((a * b) >> bits_of(ty))),
        ("mad.lo", 3, &["u16", "u32", "s16", "s32", "s64"], |_, [a, b, c, _]| Some((a * b).wrapping_add(c))),
        ("mad.hi", 3, &["u32", "s32", "s64"], |ty, [a, b, c, _]| Some(((a * b) >> bits_of(ty)) + c)),
        ("div", 2, &["u16", "u32", "u64", "s16", "s32", "s64"], |ty, x| is_valid_division(ty, x).then(|| x[0] / x[1])),
        ("rem", 2, &["u16", "u32", "u64", "s16", "s32", "s64"], |ty, x| is_valid_division(ty, x).then(|| x[0] % x[1])),
        ("abs", 1, &["s16", "s32", "s64"], |_, [a, ..]| Some(a.abs())),
        ("neg", 1, &["s16", "s32", "s64"], |_, [a, ..]| Some(-a)),
        ("min", 2, &["u16", "u32", "u64", "s16", "s32", "s64"], |_, [a, b, ..]| Some(a.min(b))),
        ("max", 2, &["u16", "u32", "u64", "s16", "s32", "s64"], |_, [a, b, ..]| Some(a.max(b))),
    ];
    for (name, count, types, model) in models {
        for ty in *types {
            let rows = integers(1, 256);
            let reg = format!("b{}", bits_of(ty));
            let found = apply("sm_80", &format!("{name}.{ty}"), &reg, &vec![reg.as_str(); *count], &rows);
            for (row, found) in rows.iter().zip(found) {
                if let Some(wanted) = model(ty, row.map(|v| value(v, ty))) {
                    assert_eq!(found, cut(wanted, ty), "{name}.{ty} {row:x?}");
                }
            }
        }
    }
    for (ty, wide) in [("u16", "b32"), ("s16", "b32"), ("u32", "b64"), ("s32", "b64")] {
        let rows = integers(2, 256);
        let reg = format!("b{}", bits_of(ty));
        let found = apply("sm_80", &format!("mul.wide.{ty}"), wide, &[&reg, &reg], &rows);
        let sums = apply("sm_80", &format!("mad.wide.{ty}"), wide, &[&reg, &reg, wide], &rows);
        for ((row, found), sum) in rows.iter().zip(found).zip(sums) {
            let product = whole(ty, row.map(|v| value(v, ty))).expect("a product");
            assert_eq!(found, cut(product, wide), "mul.wide.{ty} {row:x?}");
            assert_eq!(sum, cut(product + i128::from(row[2]), wide), "mad.wide.{ty} {row:x?}");
        }
    }
    let rows = integers(3, 256);
    for (name, model) in [("add.sat.s32", (|a, b| a + b) as fn(i128, i128) -> i128), ("sub.sat.s32", |a, b| a - b)] {
        for (row, found) in rows.iter().zip(apply("sm_80", name, "b32", &["b32", "b32"], &rows)) {
            let wanted =
                model(value(row[0], "s32"), value(row[1], "s32")).clamp(i128::from(i32::MIN), i128::from(i32::MAX));
            assert_eq!(found, cut(wanted, "s32"), "{name} {row:x?}");
        }
    }
}

#[test]
fn bits_are_those_of_their_definitions() {
    let rows = integers(4, 256);
    let each = |opcode: &str, result: &str, operands: &[&str], model: &dyn Fn([u64; 4]) -> u64| {
        for (row, found) in rows.iter().zip(apply("sm_80", opcode, result, operands, &rows)) {
            assert_eq!(found, model(*row), "{opcode} {row:x?}");
        }
    };
    let low = |v: u64| v as u32;
    each("and.b32", "b32", &["b32", "b32"], &|[a, b, ..]| u64::from(low(a) & low(b)));
    each("or.b64", "b64", &["b64", "b64"], &|[a, b, ..]| a | b);
    each("xor.b16", "b16", &["b16", "b16"], &|[a, b, ..]| (a ^ b) & 0xffff);
    each("not.b32", "b32", &["b32"], &|[a, ..]| u64::from(!low(a)));
    each("popc.b64", "b32", &["b64"], &|[a, ..]| (0..64).filter(|n| a >> n & 1 == 1).count() as u64);
    each("clz.b32", "b32", &["b32"], &|[a, ..]| (0..32).rev().take_while(|n| a >> n & 1 == 0).count() as u64);
    each("clz.b64", "b32", &["b64"], &|[a, ..]| (0..64).rev().take_while(|n| a >> n & 1 == 0).count() as u64);
    each("brev.b32", "b32", &["b32"], &|[a, ..]| (0..32).map(|n| (a >> n & 1) << (31 - n)).sum());
    each("shl.b32", "b32", &["b32", "b32"], &|[a, b, ..]| if low(b) > 31 { 0 } else { u64::from(low(a) << low(b)) });
    each("shr.u16", "b16", &["b16", "b32"], &|[a, b, ..]| if low(b) > 15 { 0 } else { (a & 0xffff) >> low(b) });
    each("shr.s64", "b64", &["b64", "b32"], &|[a, b, ..]| (a as i64 >> low(b).min(63)) as u64);
    each("shf.l.wrap.b32", "b32", &["b32", "b32", "b32"], &|[a, b, c, _]| {
        u64::from(((u64::from(low(b)) << 32 | u64::from(low(a))) << (c & 31) >> 32) as u32)
    });
    each("shf.r.clamp.b32", "b32", &["b32", "b32", "b32"], &|[a, b, c, _]| {
        u64::from(((u64::from(low(b)) << 32 | u64::from(low(a))) >> low(c).min(32)) as u32)
    });
    each("bfe.u32", "b32", &["b32", "b32", "b32"], &|[a, b, c, _]| {
        let (from, length) = (b & 0xff, c & 0xff);
        if from > 31 || length == 0 { 0 } else { u64::from(low(a)) >> from & ((1 << length.min(32)) - 1) }
    });
    each("bfe.s32", "b32", &["b32", "b32", "b32"], &|[a, b, c, _]| {
        let (from, length) = ((b & 0xff) as u32, (c & 0xff) as u32);
        if length == 0 {
            return 0;
        }
        // The bits are moved to the top, and back with their sign.
        let a = i64::from(low(a) as i32);
        let length = length.min(32);
        let moved = if from > 31 { (a >> 31) as i32 } else { ((a >> from) << (64 - length) >> (64 - length)) as i32 };
        u64::from(moved as u32)
    });
    each("bfi.b32", "b32", &["b32", "b32", "b32", "b32"], &|[a, b, c, d]| {
        let (from, length) = (c & 0xff, d & 0xff);
        let mask = if from > 31 { 0 } else { (((1u128 << length.min(64)) - 1) << from) as u32 };
        u64::from(low(b) & !mask | if from > 31 { 0 } else { ((u128::from(low(a)) << from) as u32) & mask })
    });
    each("prmt.b32", "b32", &["b32", "b32", "b32"], &|[a, b, c, _]| {
        let bytes = [low(a).to_le_bytes(), low(b).to_le_bytes()].concat();
        let pick = |n: u32| {
            let choice = (c >> (4 * n)) as usize & 15;
            let byte = bytes[choice & 7];
            if choice < 8 { byte } else { 0u8.wrapping_sub(byte >> 7) }
        };
        u64::from(u32::from_le_bytes([0, 1, 2, 3].map(pick)))
    });
    each("dp4a.s32.u32", "b32", &["b32", "b32", "b32"], &|[a, b, c, _]| {
        let sum: i32 = (0..4).map(|n| i32::from((a >> (8 * n)) as i8) * i32::from((b >> (8 * n)) as u8)).sum();
        u64::from((low(c) as i32).wrapping_add(sum) as u32)
    });
    for table in [0xe8u8, 0x96, 0xca, 0x01] {
        let rows = integers(5, 32);
        let found = apply_with("sm_80", "lop3.b32", "b32", &["b32", "b32", "b32"], &format!(", {table}"), &rows);
        for (row, found) in rows.iter().zip(found) {
            let wanted = (0..32).map(|n| {
                let index = (row[0] >> n & 1) << 2 | (row[1] >> n & 1) << 1 | row[2] >> n & 1;
                u64::from(table >> index & 1) << n
            });
            assert_eq!(found, wanted.sum::<u64>(), "lop3 {table:x} {row:x?}");
        }
    }
}
