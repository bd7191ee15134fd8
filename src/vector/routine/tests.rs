//! Hand-written routines: their text, their results, errors.

use std::collections::BTreeSet;

use super::interp::{Memory, Pointer, RuntimeValue, run};
use super::legalise::{drop_prefetches, part_narrow_accesses, split_accesses};
use super::op::Class;
use super::{Op, Routine, text, verify};
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::ssa::Effects;
use crate::table::Family;

/// Memory with bounds checks.
struct Bytes(Vec<u8>);

impl Bytes {
    fn range(&self, p: Pointer, n: usize) -> Result<std::ops::Range<usize>, String> {
        let start = usize::try_from(p.at).map_err(|_| format!("byte {}", p.at))?;
        let end = start.checked_add(n).filter(|end| *end <= self.0.len() && p.storage == 0);
        end.map(|end| start..end).ok_or_else(|| format!("byte {start}"))
    }
}

impl Memory for Bytes {
    fn read(&self, from: Pointer, bytes: &mut [u8]) -> Result<(), String> {
        bytes.copy_from_slice(&self.0[self.range(from, bytes.len())?]);
        Ok(())
    }

    fn write(&mut self, to: Pointer, bytes: &[u8]) -> Result<(), String> {
        let range = self.range(to, bytes.len())?;
        self.0[range].copy_from_slice(bytes);
        Ok(())
    }
}

/// Parses and verifies the only routine of a source, and checks that it round-trips.
fn routine(source: &str) -> Routine {
    let parsed = text::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}")).remove(0).routine;
    let printed = text::print(&parsed);
    let again = text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}")).remove(0).routine;
    assert_eq!(text::print(&again), printed);
    verify(&parsed).unwrap_or_else(|e| panic!("{e:?}\n{printed}"));
    parsed
}

/// A routine of one block on memory at address 0, with four lanes and FMA.
fn four(lines: &str) -> Routine {
    routine(&format!(
        "run @t(%p \"memory\": address, %n: index, %s: f32) lanes(4) features(fma, round) {{\n^bb0:\n{lines}\n  return\n}}"
    ))
}

fn execute(routine: &Routine, n: i64, s: f32, memory: &mut Bytes) -> Result<(), String> {
    let args = [
        RuntimeValue::Address(Pointer { storage: 0, at: 0 }),
        RuntimeValue::Index(n),
        RuntimeValue::Lanes(vec![u64::from(s.to_bits())]),
    ];
    run(routine, &args, memory, &mut 100_000)
}

/// Memory as 32-bit words after running a routine of one block on these words.
fn after(lines: &str, n: i64, s: f32, words: &[u32]) -> Vec<u32> {
    let mut memory = Bytes(words.iter().flat_map(|w| w.to_le_bytes()).collect());
    execute(&four(lines), n, s, &mut memory).unwrap_or_else(|e| panic!("{e}\n{lines}"));
    memory.0.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes"))).collect()
}

/// The result of an operation on two vectors, `%x` at 0 and `%y` at 16, of a type.
fn result(ty: &str, operation: &str, x: [u32; 4], y: [u32; 4]) -> Vec<u32> {
    let lines = format!("  %x = load %p, elem={ty} : {ty}x4\n  %y = load %p + 16, elem={ty} : {ty}x4\n{operation}\n");
    after(&lines, 0, 0.0, &[x, y, [0; 4]].concat())[8..].to_vec()
}

fn floats(x: [f32; 4]) -> [u32; 4] {
    x.map(f32::to_bits)
}

const NAN: f32 = f32::NAN;

/// Every operation and every kind of line, in canonical form.
const ALL: &str = include_str!("all.vir");

#[test]
fn every_operation_is_shown_and_reads_back() {
    let all = routine(ALL);
    assert_eq!(text::print(&all), ALL);
    let words: BTreeSet<&str> = ALL.split_whitespace().collect();
    let alike =
        |name: &str| UnaryOp::named(name).is_some() || BinaryOp::named(name).is_some() || CmpOp::named(name).is_some();
    for row in Op::table().iter().filter(|row| !alike(row.name)) {
        assert!(words.contains(row.name), "`{}` is not in src/vector/routine/all.vir", row.name);
    }
    // Exactly the operations of class `Memory` have effects.
    for (_, _, inst) in all.body.insts() {
        let row = inst.op.info();
        let is_access = inst.op.access().is_some() || matches!(inst.op, Op::Prefetch(_));
        assert_eq!(is_access, row.class == Class::Memory, "{}", row.name);
        assert_eq!(is_access, row.effects != Effects::NONE, "{}", row.name);
        assert_eq!(inst.op.place().is_some(), row.operands.contains(&"address*"), "{}", row.name);
    }
}

#[test]
fn lanes_are_computed_one_by_one() {
    let of = |op: &str| format!("  %z = {op} %x, %y : f32x4\n  store %p + 32, %z, elem=f32");
    let (x, y) = (floats([1.0, -2.5, NAN, 8.0]), floats([3.0, 4.0, 1.0, -0.5]));
    let as_floats = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect::<Vec<_>>();
    assert_eq!(as_floats(result("f32", &of("sub"), x, y))[..2], [-2.0, -6.5]);
    // `max` propagates NaN; `max_or_second` returns its second operand.
    let largest = as_floats(result("f32", &of("max"), x, y));
    assert!(largest[2].is_nan() && largest[0] == 3.0 && largest[3] == 8.0);
    assert_eq!(as_floats(result("f32", &of("max_or_second"), x, y)), [3.0, 4.0, 1.0, 8.0]);
    assert_eq!(as_floats(result("f32", &of("min_or_second"), x, y)), [1.0, -2.5, 1.0, -0.5]);
    let chosen = "  %c = lt %x, %y : boolx4\n  %z = select %c, %x, %y : f32x4\n  store %p + 32, %z, elem=f32";
    assert_eq!(as_floats(result("f32", chosen, x, y)), [1.0, -2.5, 1.0, -0.5]);
    let bits =
        |op: &str| format!("  %c = {op} %x, %y : boolx4\n  %z = mask_bits %c : i32x4\n  store %p + 32, %z, elem=i32");
    let (all, none) = (u32::MAX, 0);
    assert_eq!(result("f32", &bits("unordered"), x, y), [none, none, all, none]);
    assert_eq!(result("f32", &bits("beats"), x, y), [none, none, all, all]);
    assert_eq!(result("f32", &bits("beats"), y, x), [all, all, none, none]);
    assert_eq!(result("i32", &bits("ge"), [1, 2, u32::MAX, 0], [1, 3, 0, 0]), [all, none, none, all]);
    let whole = "  %z = div %x, %y : i32x4\n  store %p + 32, %z, elem=i32";
    let minus = |n: i32| n.cast_unsigned();
    assert_eq!(result("i32", whole, [7, minus(-7), 7, 5], [2, 2, minus(-2), 0]), [3, minus(-4), minus(-4), 0]);
    let cast = "  %z = cast %x : i32x4\n  store %p + 32, %z, elem=i32";
    assert_eq!(result("f32", cast, floats([-1.9, NAN, 3e9, 2.5]), [0; 4]), [minus(-1), 0, 0x7fff_ffff, 2]);
    let narrow = "  %z = narrow %x, elem=bf16 : f32x4\n  store %p + 32, %z, elem=f32";
    let third = result("f32", narrow, floats([1.0 / 3.0; 4]), [0; 4]);
    assert_eq!(third, [0x3eab_0000; 4]);
}

#[test]
fn elementary_functions_are_near() {
    let of = |op: &str| format!("  %z = {op} %x : f32x4\n  store %p + 32, %z, elem=f32");
    let xs = [0.5f32, -1.25, 3.0, 0.0];
    for (name, f) in [("exp", f64::exp as fn(f64) -> f64), ("tanh", f64::tanh), ("sqrt", f64::sqrt)] {
        for (got, x) in result("f32", &of(name), floats(xs), [0; 4]).into_iter().zip(xs) {
            let (got, want) = (f64::from(f32::from_bits(got)), f(f64::from(x)));
            assert!(got.is_nan() && want.is_nan() || (got - want).abs() <= 1e-6 * want.abs().max(1e-3), "{name} {x}");
        }
    }
}

#[test]
fn lanes_are_reduced_in_halves() {
    let of = |op: &str| format!("  %z = {op} %x : f32\n  store %p + 32, %z, elem=f32");
    // (1e8 + -1e8) + (1 + 1): from left to right it would be 1.
    let sum = result("f32", &of("reduce_sum"), floats([1e8, 1.0, -1e8, 1.0]), [0; 4]);
    assert_eq!(f32::from_bits(sum[0]), 2.0);
    let most = result("f32", &of("reduce_max"), floats([1.0, NAN, 3.0, 2.0]), [0; 4]);
    assert!(f32::from_bits(most[0]).is_nan());
    let all = "  %z = reduce_all %x : i32\n  store %p + 32, %z, elem=i32";
    assert_eq!(result("i32", all, [7, 3, 15, 6], [0; 4])[0], 2);
    let turned =
        "  %a = exchange %x, distance=2 : i32x4\n  %z = exchange %a, distance=1 : i32x4\n  store %p + 32, %z, elem=i32";
    assert_eq!(result("i32", turned, [1, 2, 3, 4], [0; 4]), [4, 3, 2, 1]);
    let numbers = "  %a = lanes : i32x4\n  %b = splat %n : i32x4\n  %z = add %a, %b : i32x4\n  store %p, %z, elem=i32";
    assert_eq!(after(numbers, 10, 0.0, &[0; 4]), [10, 11, 12, 13]);
}

#[test]
fn memory_is_read_under_masks_and_apart() {
    let copy = "  %m = lanes_below %n : boolx4\n  %x = load %p, elem=i32, mask=%m : i32x4\n  store %p + 16, %x, elem=i32, mask=%m";
    assert_eq!(after(copy, 3, 0.0, &[1, 2, 3, 4, 9, 9, 9, 9])[4..], [1, 2, 3, 9]);
    // Nothing outside of the mask is accessed.
    let mut short = Bytes(vec![0; 28]);
    assert!(execute(&four(copy), 3, 0.0, &mut short).is_ok());
    assert!(execute(&four(copy), 4, 0.0, &mut short).is_err());
    let apart =
        "  %d = const 8 : index\n  %x = load_apart %p, %d, elem=i32, count=%n : i32x4\n  store %p + 32, %x, elem=i32";
    assert_eq!(after(apart, 3, 0.0, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9])[8..], [1, 3, 5, 0]);
    let spread = "  %x = splat %s : f32x4\n  store %p + 2*%n - 2, %x, elem=bf16";
    assert_eq!(after(spread, 1, 1.5, &[0; 3]), [0x3fc0_3fc0, 0x3fc0_3fc0, 0]);
    let bytes = "  %x = load %p, elem=bool : boolx4\n  %y = not %x : boolx4\n  store %p, %y, elem=bool";
    assert_eq!(after(bytes, 0, 0.0, &[0x0001_0200]), [0x0100_0001]);
}

/// Adds numbers up in a loop.
const LOOP: &str = "run @sum(%p: address, %n: index, %s: f32) lanes(4) {\n\
    ^start:\n  %zero = const 0 : index\n  %one = const 1 : index\n  br ^top(%zero, %s)\n\
    ^top(%i: index, %a: f32):\n  %x = load %p + 4*%i, elem=f32 : f32\n  %b = add %a, %x : f32\n\
    \x20 %j = add %i, %one : index\n  %more = lt %j, %n : bool\n  br_if %more, ^top(%j, %b), ^end\n\
    ^end:\n  store %p, %b, elem=f32\n  return\n}\n";

#[test]
fn loops_carry_values() {
    let mut memory = Bytes([1.0f32, 2.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect());
    execute(&routine(LOOP), 3, 0.5, &mut memory).expect("a sum");
    assert_eq!(memory.0[..4], 7.5f32.to_le_bytes());
    // One more element is out of bounds; and an endless loop is stopped.
    assert!(execute(&routine(LOOP), 4, 0.5, &mut memory).is_err());
    let endless = LOOP.replace("%j = add %i, %one", "%j = mul %i, %one");
    let error = execute(&routine(&endless), 3, 0.0, &mut memory).expect_err("an endless loop");
    assert!(error.contains("limit"), "{error}");
}

#[test]
fn narrow_accesses_are_parted() {
    let lines = "  %m = lanes_below %n : boolx4\n  %x = load %p + 2*%n, elem=bf16, mask=%m : f32x4\n  \
        %y = load %p, elem=f16 : f32x4\n  store %p + 16, %x, elem=bf16, mask=%m\n  store %p + 24, %y, elem=f16\n  store %p + 4, %z, elem=i8";
    let lines = format!("  %z = const 7 : i32x4\n{lines}");
    let whole = four(&lines);
    let mut parted = whole.clone();
    part_narrow_accesses(&mut parted, |_, _| {});
    verify(&parted).unwrap_or_else(|e| panic!("{e:?}\n{}", text::print(&parted)));
    // Full vectors of f16 are kept; the others become strided accesses, with the mask's count.
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/vector"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!("narrow_accesses", format!("{}->\n{}", text::print(&whole), text::print(&parted)));
    });
    for n in 0..=4 {
        let start = || Bytes((0..40).map(|n| n * 7 + 1).collect());
        let (mut a, mut b) = (start(), start());
        assert_eq!(execute(&whole, n, 0.0, &mut a), execute(&parted, n, 0.0, &mut b));
        assert_eq!(a.0, b.0);
    }
}

/// Splits the accesses of a routine; returns both texts.
fn split(whole: &Routine) -> String {
    let mut split = whole.clone();
    drop_prefetches(&mut split);
    split_accesses(&mut split, |_, _| {});
    verify(&split).unwrap_or_else(|e| panic!("{e:?}\n{}", text::print(&split)));
    for (_, _, inst) in split.body.insts() {
        let partial = matches!(inst.op, Op::Load { masked: true, .. } | Op::Store { masked: true, .. });
        let apart = matches!(inst.op, Op::LoadApart(_) | Op::StoreApart(_) | Op::Prefetch(_));
        assert!(!partial && !apart, "{}", text::print(&split));
    }
    for n in 1..=4 {
        let start = || Bytes((0..120).map(|n: u8| n.wrapping_mul(7) & 0x3f).collect());
        let (mut a, mut b) = (start(), start());
        assert_eq!(execute(whole, n, 0.0, &mut a), execute(&split, n, 0.0, &mut b));
        assert_eq!(a.0, b.0, "{n} of\n{}", text::print(&split));
    }
    format!("{}->\n{}", text::print(whole), text::print(&split))
}

/// Clamped counts of one block are not reused in a block that it does not dominate.
#[test]
fn blocks_beside_each_other_share_a_count() {
    split(&routine(
        "run @t(%p: address, %n: index, %s: f32) lanes(4) {\n^bb0:\n  %m = lanes_below %n : boolx4\n  %x = splat %s : f32x4\n  \
         %two = const 2 : index\n  %few = lt %n, %two : bool\n  br_if %few, ^low, ^high\n^low:\n  store %p, %x, elem=f32, mask=%m\n  br ^end\n\
         ^high:\n  store %p + 16, %x, elem=f32, mask=%m\n  br ^end\n^end:\n  store %p + 32, %x, elem=f32, mask=%m\n  return\n}",
    ));
}

#[test]
fn partial_accesses_are_split() {
    let dynamic = "  %m = lanes_below %n : boolx4\n  %i = const 2 : index\n  %eight = const 8 : index\n  \
        %x = load %p + 4*%i + 4, elem=f32, mask=%m : f32x4\n  %y = load %p + 6, elem=bf16, mask=%m : f32x4\n  \
        %z = load_apart %p, %eight, elem=i32, count=%n : i32x4\n  %t = load %p + 3, elem=bool, mask=%m : boolx4\n  \
        %u = not %t : boolx4\n  store %p + 40, %x, elem=f32\n  store %p + 2*%i + 60, %y, elem=f16, mask=%m\n  \
        store_apart %p, %n, %z, elem=i8, count=%n\n  store %p + 4*%n + 80, %u, elem=bool\n  store %p + 100, %u, elem=bool, mask=%m\n";
    let fixed = "  %two = const 2 : index\n  %m = lanes_below %two : boolx4\n  %far = const 12 : index\n  \
        %x = load %p + 8, elem=f32, mask=%m : f32x4\n  %y = load_apart %p, %far, elem=f16 : f32x4\n  \
        %z = load %p + 4, elem=bool, mask=%m : boolx4\n  store %p + 40, %y, elem=f32, mask=%m\n  prefetch %p + 64\n  \
        store_apart %p, %far, %x, elem=f32, count=%two\n  store_apart %p, %n, %y, elem=bf16\n  store %p + 60, %z, elem=bool\n";
    let mut shown = String::new();
    for lines in [dynamic, fixed] {
        shown += &split(&four(lines));
    }
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/vector"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!("split_accesses", shown);
    });
}

#[test]
fn lanes_are_taken_out_and_put_together() {
    let turned = "  %a = extract %x, lane=0 : i32\n  %b = extract %x, lane=3 : i32\n  %z = build %b, %a, %a, %b : i32x4\n  \
        store %p + 32, %z, elem=i32";
    assert_eq!(result("i32", turned, [1, 2, 3, 4], [0; 4]), [4, 1, 1, 4]);
    let least =
        "  %two = const 2 : index\n  %k = min %n, %two : index\n  %z = splat %k : i32x4\n  store %p, %z, elem=i32";
    assert_eq!(after(least, 7, 0.0, &[0; 4]), [2; 4]);
    assert_eq!(after(least, -7, 0.0, &[0; 4]), [(-7_i32).cast_unsigned(); 4]);
    // With one lane, a vector is a scalar.
    let single = "run @one(%p: address, %n: index, %s: f32) lanes(1) {\n^bb0:\n  %x = load %p + 8, elem=i64 : i64\n  \
        %y = splat %n : i64\n  %z = pow %x, %y : i64\n  store %p, %z, elem=i64\n  return\n}";
    let mut memory = Bytes([0_i64, 3].iter().flat_map(|n| n.to_le_bytes()).collect());
    execute(&routine(single), 30, 0.0, &mut memory).expect("a power");
    assert_eq!(memory.0[..8], 205_891_132_094_649_i64.to_le_bytes());
}

#[test]
fn wrong_texts_are_refused() {
    let with =
        |line: &str| format!("run @t(%p: address, %n: index, %s: f32) lanes(4) {{\n^bb0:\n  {line}\n  return\n}}");
    for (line, message) in [
        ("%x = load %n, elem=f32 : f32x4", "takes a place"),
        ("%x = load %p, elem=f32 : i32x4", "gives lanes of f32"),
        ("%x = load %p, elem=f32 : f32x8", "there is no type f32x8 here"),
        ("%x = load %p, elem=f32 : f32x3", "there is no type f32x3 here"),
        ("%x = splat %p : f32x4", "does not take (address)"),
        ("%x = add %p, %p : address", "does not take (address, address)"),
        ("%x = not %s : f32", "does not take (f32)"),
        ("%x = exchange %s, distance=1 : f32", "does not take (f32)"),
        ("%x = extract %s, lane=1 : f32", "does not take (f32)"),
        ("%x = build %s, %s : f32x4", "gives 4 lanes and takes 2 scalars"),
        ("%x = build %s, %n : f32x4", "does not take (f32, index)"),
        ("store %p, %n, elem=bf16", "does not take (address, index)"),
        ("%x = add %n, %n : f32", "gives index"),
        ("%x = load %p, elem=i32, mask=%s : i32x4", "does not take (address, f32)"),
        // Mismatched lane counts: mask and selected values, two operands, operand and result.
        (
            "%b = lt %n, %n : bool\n  %x = splat %s : f32x4\n  %y = select %b, %x, %x : f32x4",
            "does not take (bool, f32x4, f32x4)",
        ),
        (
            "%b = lanes_below %n : boolx4\n  %x = splat %s : f32x4\n  %y = select %b, %s, %x : f32x4",
            "does not take (boolx4, f32, f32x4)",
        ),
        (
            "%b = lanes_below %n : boolx4\n  %x = splat %s : f32x4\n  %y = select %b, %x, %s : f32x4",
            "does not take (boolx4, f32x4, f32)",
        ),
        ("%b = lanes_below %n : boolx4\n  %y = select %b, %s, %s : f32", "does not take (boolx4, f32, f32)"),
        ("%b = lt %n, %n : bool\n  %x = load %p, elem=f32, mask=%b : f32x4", "has 4 lanes and a mask of 1"),
        (
            "%b = lt %n, %n : bool\n  %x = splat %s : f32x4\n  store %p, %x, elem=f32, mask=%b",
            "does not take (address, f32x4, bool)",
        ),
        ("%x = splat %s : f32x4\n  %y = lt %x, %s : boolx4", "does not take (f32x4, f32)"),
        ("%x = splat %s : f32x4\n  %y = mul %x, %s : f32x4", "does not take (f32x4, f32)"),
        ("%x = splat %s : f32x4\n  %y = unordered %x, %s : boolx4", "does not take (f32x4, f32)"),
        ("%x = cast %s : i32x4", "gives 1 lanes"),
    ] {
        let parsed = text::parse(&with(line)).unwrap_or_else(|e| panic!("{e}\n{line}")).remove(0);
        let errors = verify(&parsed.routine).expect_err(line);
        assert!(errors.iter().any(|(_, e)| e.contains(message)), "{line}: {errors:?}");
    }
    for (line, message) in [
        ("%x = load %p + 3*%n, elem=f32 : f32x4", "multiplied by 1, 2, 4 or 8"),
        ("%x = load %p + %n, elem=f32 : f32x4", "expected a number"),
        ("%x = load %q, elem=f32 : f32x4", "%q is not defined"),
        ("%x = frobnicate %n : index", "no operation `frobnicate`"),
        ("%x = const 1.5 : i32x4", "a number of the declared type"),
        ("%x = const 3000000000 : i32x4", "a number of the declared type"),
        ("%x = add %n, %n, mask=%n : index", "`add` has no attribute `mask`"),
        ("%x = narow %s, elem=bf16 : f32", "did you mean `narrow`?"),
        ("%x = narrow %s : f32", "`narrow` needs `elem`"),
        ("%x = load : f32", "a place is"),
        ("%x = const : f32", "a constant is"),
        ("%x = load %p, elem=f32, mask=1 : f32x4", "expected a value (`%name`)"),
        ("%n = const 1 : index", "already defined"),
        ("br ^nowhere", "^nowhere is not a block"),
        ("%x = load %p, elem=f32 : tile", "a type is"),
    ] {
        let source = with(line).replace(if line.starts_with("br") { "\n  return" } else { "\0" }, "");
        let error = text::parse(&source).expect_err(line).to_string();
        assert!(error.contains(message), "{line}: {error}");
    }
    let unsure = text::parse(&LOOP.replace("br_if %more", "br_if %b")).expect("a text").remove(0).routine;
    let errors = verify(&unsure).expect_err("a condition that is a number");
    assert!(errors.iter().any(|(_, e)| e.contains("the condition is f32, not bool")), "{errors:?}");
    // A definition that does not dominate a use, and a block with two terminators.
    let jumped =
        LOOP.replace("store %p, %b, elem=f32", "store %p, %s, elem=f32").replace("br ^top(%zero, %s)", "br ^end");
    assert!(verify(&text::parse(&jumped).expect("a text").remove(0).routine).is_ok());
    let hidden = LOOP.replace("br ^top(%zero, %s)", "br ^end");
    assert!(verify(&text::parse(&hidden).expect("a text").remove(0).routine).is_err());
    assert!(text::parse(&LOOP.replace("  return\n", "  return\n  return\n")).is_err());
    let lanes = LOOP.replace("lanes(4)", "lanes(5)");
    assert!(verify(&text::parse(&lanes).expect("a text").remove(0).routine).is_err());
}
