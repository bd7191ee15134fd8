//! Compares costs with numbers computed by hand, and with the interpreter's counts.

use std::collections::BTreeMap;

use super::{Cost, Launch, Setting, kernel, plan, plan_in};
use crate::ir::{self, interp::Limits};
use crate::tensor::Tensor;
use crate::tile::verify::VerifiedModule;
use crate::tile::{self, Cpu, Module, Origin, PlanVariant, interp};

const ROWS: &str = r#"module "test.attn"
param "h.*.w"[3]                            : f32[8, 8]

kernel @rows.0(%x: in f32[S, 8], %w: in f32[8, 8], %y: out f32[S, 8], %n: index) symbols(S) grid(%i: ceil(S, 4)) {
^bb0:
  %four = const 4                           : index
  %at = mul %i, %four                       : index
  %all = dim S                              : index
  %rest = sub %all, %at                     : index
  %m = min %rest, %four                     : index
  %zero = const 0                           : index
  %t = load %x[%at, %zero], rows=0, cols=1  : tile f32[%m<=4, 8]
  %high = reduce_max %t, axis=1             : tile f32[%m<=4, 1]
  %d = sub %t, %high                        : tile f32[%m<=4, 8]
  %none = const 0.0                         : f32
  %acc0 = full %none                        : tile f32[%m<=4, 8]
  br ^steps(%zero, %acc0)
^steps(%k: index, %acc: tile f32[%m<=4, 8]):
  %more = lt %k, %n                         : bool
  br_if %more, ^step, ^done
^step:
  %b = load %w[%zero, %zero], rows=0, cols=1 : tile f32[8, 8]
  %acc1 = dot %d, %b, %acc                  : tile f32[%m<=4, 8]
  %one = const 1                            : index
  %k1 = add %k, %one                        : index
  br ^steps(%k1, %acc1)
^done:
  store %y[%at, %zero], %acc, rows=0, cols=1
  return
}

plan @forward symbols(S) slots(32*S) {
^bb0:
  %0 = arg 0                                : buf f32[S, 8]
  %1 = out 0                                : buf f32[S, 8]
  %2 = slot 0                               : buf f32[S, 8]
  %3 = const 0                              : index
  %4 = const 1                              : index
  %5 = const 3                              : index
  br ^layers(%3)
^layers(%6: index):
  %7 = param "h.*.w"[%6]                    : buf f32[8, 8]
  launch @rows.0(%0, %7, %2, %4)
  %8 = add %6, %4                           : index
  %9 = lt %8, %5                            : bool
  br_if %9, ^layers(%8), ^last
^last:
  launch @rows.0(%2, %7, %1, %5)
  return
}
"#;

fn parse(text: &str) -> Module {
    let module = tile::text::parse(text, Default::default()).unwrap().module;
    tile::verify::verify(&module).unwrap();
    module
}

fn symbols(given: &[(&str, i64)]) -> BTreeMap<String, i64> {
    given.iter().map(|(name, n)| (name.to_string(), *n)).collect()
}

/// Rows of 8: a maximum (8 each), a difference (8), `n` products with an 8 x 8 matrix (2 * 8 * 8
/// each).
#[test]
fn a_kernel_costs_what_a_hand_works_out() {
    let module = parse(ROWS);
    let k = &module.kernels[0];
    for s in [0, 1, 4, 10, 67] {
        for n in [0, 1, 3] {
            let cost = kernel(k, &symbols(&[("S", s)]), &[n]).unwrap();
            let rows = s.unsigned_abs();
            let panel = if n > 0 && s > 0 { 8 * 8 * 4 } else { 0 };
            let flops = rows * (8 + 8 + n.unsigned_abs() * 2 * 8 * 8);
            assert_eq!(
                cost,
                Cost { flops, read: rows * 32 + panel, written: rows * 32, exact: true, uncounted: false },
                "{s} rows, {n} products"
            );
        }
    }
    assert!(kernel(k, &symbols(&[]), &[1]).unwrap_err().contains("the dimension S has no value"));
}

/// A plan for a GPU has the cost of its kernels before scheduling; if that is too long to evaluate,
/// it is marked.
#[test]
fn plans_of_gpus_cost_what_they_did_before_they_were_scheduled() {
    let origins = BTreeMap::from([("rows.0".to_string(), Origin::Whole("before".to_string()))]);
    let module = Module { origins, ..parse(ROWS) };
    let of = |work: &Module, s: i64| {
        let sizes = symbols(&[("S", s)]);
        let setting = Setting { work: Some(work), ..Setting::default() };
        plan_in(&module, "forward", PlanVariant::Plain, &sizes, &setting).unwrap()
    };
    let usual = plan(&module, "forward", PlanVariant::Plain, &symbols(&[("S", 10)])).unwrap();
    // Kernels that only the schedule introduces are evaluated themselves.
    assert_eq!(of(&Module { kernels: Vec::new(), ..module.clone() }, 10), usual);
    // Grid points are those after scheduling, work is from before it.
    let work = parse(&ROWS.replace(
        "  %none = const",
        "  %e = mul %d, %d                           : tile f32[%m<=4, 8]\n  %none = const",
    ));
    // A kernel of the same name, kind, parameters and location is another one.
    let mut work = work;
    assert_eq!(of(&work, 10), usual);
    work.kernels[0].name = "before".to_string();
    for (with, without) in of(&work, 10).launches.iter().zip(&usual.launches) {
        assert_eq!((with.points, with.cost.flops), (without.points, without.cost.flops + 10 * 8));
    }
    // Tiles of rows are alike, but for the last one.
    let s = 1u64 << 40;
    for (n, launch) in of(&work, s.cast_signed()).launches.iter().enumerate() {
        let products = if n < 3 { 1 } else { 3 };
        let flops = s * (8 + 8 + 8 + products * 128);
        let cost = Cost { flops, read: 32 * s + 256, written: 32 * s, exact: true, uncounted: false };
        assert_eq!((launch.points, launch.cost), (1 << 38, cost));
    }
    // Here they are not, as far as is known.
    let odd = ROWS.replacen("  %zero = const 0 ", "  %odd = rem %i, %four : index\n  %zero = const 0 ", 1);
    let (module, mut work) = (Module { origins: module.origins, ..parse(&odd) }, parse(&odd));
    work.kernels[0].name = "before".to_string();
    let setting = Setting { work: Some(&work), ..Setting::default() };
    let done = plan_in(&module, "forward", PlanVariant::Plain, &symbols(&[("S", s.cast_signed())]), &setting).unwrap();
    for launch in done.launches {
        let cost = Cost { flops: 0, read: 32 * s + 256, written: 32 * s, exact: false, uncounted: true };
        assert_eq!((launch.points, launch.cost), (1 << 38, cost));
    }
}

/// 4-bit integers count half a byte, plus a row of scales per group; panels count in full.
#[test]
fn numbers_with_scales_are_read_in_their_bytes() {
    let text = |bits: i64| {
        let steps = 8 / bits;
        let rows = 40 / steps;
        format!(
            "module \"narrow\"

kernel @k(%x: in f32[S, 40], %w: in i8[2, {rows}, 8], %s: in f32[2, 2, 8], %y: out f32[S, 13]) symbols(S) grid(%m: ceil(S, 4), %p: ceil(13, 8)) {{
^bb0:
  %zero = const 0                           : index
  %none = const 0.0                         : f32
  %four = const 4                           : index
  %eight = const 8                          : index
  %r = mul %m, %four                        : index
  %n = dim S                                : index
  %rest = sub %n, %r                        : index
  %rows = min %rest, %four                  : index
  %c = mul %p, %eight                       : index
  %all = const 13                           : index
  %right = sub %all, %c                     : index
  %cols = min %right, %eight                : index
  %a = load %x[%r, %zero], rows=0, cols=1   : tile f32[%rows<=4, 40]
  %b = load_scaled %w[%p, %zero, %zero], %s, bits={bits} : tile f32[40, %cols<=8]
  %sums = dot %a, %b, %none                 : tile f32[%rows<=4, %cols<=8]
  store %y[%r, %c], %sums, rows=0, cols=1
  return
}}
"
        )
    };
    for bits in [8, 4] {
        let module = parse(&text(bits));
        for s in [0, 1, 4, 7] {
            let cost = kernel(&module.kernels[0], &symbols(&[("S", s)]), &[]).unwrap();
            let rows = s.unsigned_abs();
            let panels = if s > 0 { 16 * 40 * bits.unsigned_abs() / 8 + 16 * 2 * 4 } else { 0 };
            let flops = rows * 13 * 40 * 2;
            let read = rows * 40 * 4 + panels;
            assert_eq!(
                cost,
                Cost { flops, read, written: rows * 13 * 4, exact: true, uncounted: false },
                "{s} rows, {bits} bits"
            );
        }
    }
}

#[test]
fn a_plan_lists_its_launches_in_order() {
    let module = parse(ROWS);
    let done = plan(&module, "forward", PlanVariant::Plain, &symbols(&[("S", 10)])).unwrap();
    let launch = |site, products: u64| {
        let flops = 10 * (8 + 8 + products * 128);
        let cost = Cost { flops, read: 320 + 256, written: 320, exact: true, uncounted: false };
        Launch { site, kernel: "rows.0".into(), points: 3, cost, weights: 256 }
    };
    assert_eq!(done.launches, [launch(0, 1), launch(0, 1), launch(0, 1), launch(1, 3)]);
    assert!(plan(&module, "backward", PlanVariant::Plain, &symbols(&[])).unwrap_err().contains("no plan `backward`"));
}

const GRAPH: &str = r#"module "test.attn"
func @forward(%0 "x": f32[S, 40], %1 "t": i32[S], %2 "e": f32[9, 40]) -> (f32[S, 40]) {
^bb0:
  %3 = gather %2, %1, axis=0            : f32[S, 40]
  %4 = add %0, %3                       : f32[S, 40]
  %5 = reduce_mean %4, axes=[1], keep=true : f32[S, 1]
  %6 = sub %4, %5                       : f32[S, 40]
  %7 = transpose %6, perm=[1, 0]        : f32[40, S]
  %8 = matmul %0, %7                    : f32[S, S]
  %9 = softmax %8, axis=1               : f32[S, S]
  %10 = matmul %9, %6                   : f32[S, 40]
  %11 = attention %6, %10, %0, scale=0.125, mask=[causal] : f32[S, 40]
  %12 = gelu %11                        : f32[S, 40]
  return %12
}
"#;

fn tiles(source: &str) -> VerifiedModule {
    let graph = ir::text::parse(source, Default::default()).unwrap().module;
    crate::lowering::tile::lower(ir::verify(&graph).unwrap()).unwrap()
}

/// The evaluation agrees with the interpreter's counts, before and after scheduling.
#[test]
fn the_walk_counts_what_the_interpreter_does() {
    for level in Cpu::NAMED {
        let mut module = tiles(GRAPH);
        for state in ["unscheduled", "scheduled"] {
            for s in [1, 3, 33, 70, 129] {
                let n = usize::try_from(s).unwrap();
                let floats = |shape: Vec<usize>| {
                    let count = shape.iter().product();
                    Tensor::from_f32(shape, &(0..count).map(|i| (i % 7) as f32 / 8.0).collect::<Vec<_>>()).unwrap()
                };
                let tokens: Vec<i64> = (0..s).map(|i| i % 9).collect();
                let tokens = Tensor::from_ints(crate::shape::Elem::I32, vec![n], &tokens).unwrap();
                let dims = symbols(&[("S", s)]);
                let call = interp::Call {
                    plan: "forward",
                    variant: PlanVariant::Plain,
                    symbols: &dims,
                    args: &[floats(vec![n, 40]), tokens, floats(vec![9, 40])],
                    params: &ir::interp::NoParams,
                    limits: Limits::default(),
                };
                let outcome = interp::run(tile::verify::verify(&module).unwrap(), &call).unwrap();
                let walked = plan(&module, "forward", PlanVariant::Plain, &dims).unwrap();
                let flops: u64 = walked.launches.iter().map(|l| l.cost.flops).sum();
                assert_eq!(flops, outcome.flops, "{state} for {}, S = {s}", level.name());
                // The tokens are indices below nine.
                assert_eq!(walked.bounds, BTreeMap::from([(1, 9)]), "{state}");
            }
            module = tile::schedule(&module, level, &tile::WeightChoice::default()).unwrap();
        }
    }
}

/// Points that stand for others count as much as all of them do one by one.
#[test]
fn a_few_points_count_as_much_as_all() {
    let mut modules = vec![parse(ROWS), (*tiles(GRAPH)).clone()];
    for level in [Cpu::PORTABLE, Cpu::AVX512] {
        modules.push((*tile::schedule(&tiles(GRAPH), level, &tile::WeightChoice::default()).unwrap()).clone());
    }
    let (mut few, mut all) = (0, 0);
    for k in modules.iter().flat_map(|m| &m.kernels) {
        for s in [0, 1, 63, 64, 65, 130, 257, 400] {
            let count = |regular| {
                let (mut left, dims) = (1 << 30, symbols(&[("S", s)]));
                let done = super::kernel::walk_by(k, &dims, &[2], &mut left, regular).unwrap();
                (done.cost(&[]), done.points, done.bounds, (1 << 30) - left)
            };
            let quick = count(super::axes::regular(k));
            let slow = count(vec![false; k.grid.len()]);
            assert_eq!((quick.0, quick.1, quick.2), (slow.0, slow.1, slow.2), "{}, S = {s}", k.name);
            (few, all) = (few + quick.3, all + slow.3);
        }
    }
    assert!(few < all / 2, "{few} of {all}");
}

/// However a matmul is tiled, it has the same operations, and its operands are moved once.
#[test]
fn a_product_has_its_operations() {
    let source = r#"module "test.attn"
func @forward(%0 "x": f32[S, 96], %1 "y": f32[96, N]) -> (f32[S, N]) {
^bb0:
  %2 = matmul %0, %1                    : f32[S, N]
  return %2
}
"#;
    let module = tiles(source);
    for (s, n) in [(1, 1), (32, 64), (100, 33), (129, 300)] {
        let done = plan(&module, "forward", PlanVariant::Plain, &symbols(&[("S", s), ("N", n)])).unwrap();
        let flops: u64 = done.launches.iter().map(|l| l.cost.flops).sum();
        assert_eq!(flops, (2 * s * n * 96).unsigned_abs());
        let written = done.launches.last().unwrap().cost.written;
        assert_eq!(written, (4 * s * n).unsigned_abs());
        let read: u64 = done.launches.iter().map(|l| l.cost.read).sum();
        assert!(read >= (4 * 96 * (s + n)).unsigned_abs(), "{read}");
        assert!(done.launches.iter().all(|l| l.cost.exact));
    }
}

/// A plan that reads one more row than a counter says; `others` are launched before.
fn counting(others: &str) -> Module {
    parse(&format!(
        r#"module "test.attn"
state "past"                                : i32[]
site "test.attn:1:1: N is {{0}}"

kernel @next.0(%a: in i32[], %b: out i32[]) {{
^bb0:
  %one = const 1                            : i32
  %t = load %a                              : tile i32[1, 1]
  %u = add %t, %one                         : tile i32[1, 1]
  store %b, %u
  return
}}

kernel @whole.0(%a: in f32[], %b: out i32[]) {{
^bb0:
  %t = load %a                              : tile f32[1, 1]
  %u = cast %t                              : tile i32[1, 1]
  store %b, %u
  return
}}

kernel @first.0(%a: in i32[], %b: out i32[2]) {{
^bb0:
  %zero = const 0                           : index
  %t = load %a                              : tile i32[1, 1]
  store %b[%zero], %t
  return
}}

kernel @copy.0(%a: in f32[N, 8], %b: out f32[N, 8]) symbols(N) grid(%i: N) {{
^bb0:
  %zero = const 0                           : index
  %t = load %a[%i, %zero], cols=1           : tile f32[1, 8]
  store %b[%i, %zero], %t, cols=1
  return
}}

plan @step slots(8, 2048) {{
^bb0:
  %x = arg 0                                : buf f32[]
  %keys = arg 1                             : buf f32[64, 8]
  %past = state "past"                      : buf i32[]
  %two = slot 0                             : buf i32[2]
  %n = view %two, offset=1                  : buf i32[]
  %other = view %two                        : buf i32[]
  launch @next.0(%past, %n)
{others}  %n1 = load_scalar %n                      : i32
  %n2 = cast %n1                            : index
  %room = const 65                          : index
  %n3 = check_index %n2, %room, site=0      : index
  length %n3, name="N", most=64
  %some = view %keys                        : buf f32[N, 8] strides[8, 1]
  %to = slot 1                              : buf f32[N, 8]
  launch @copy.0(%some, %to)
  return
}}
"#
    ))
}

#[test]
fn states_say_how_much_is_read() {
    let of = |others: &str, past: i64| {
        let states = BTreeMap::from([("past".to_string(), past)]);
        let setting = Setting { states, ..Setting::default() };
        let done = plan_in(&counting(others), "step", PlanVariant::Plain, &symbols(&[]), &setting)?;
        let Cost { read, written, exact, .. } = done.launches.last().expect("a launch").cost;
        assert_eq!(read, written);
        Ok::<_, String>((read / 32, exact))
    };
    for past in [-1, 0, 7, 63] {
        assert_eq!(of("", past), Ok(((past + 1).unsigned_abs(), true)));
    }
    for past in [-2, 64, i64::from(i32::MAX)] {
        assert!(of("", past).unwrap_err().contains("is at most 64"), "{past}");
    }
    // Kernels that read another's output, write beside it, might write to it, read unwritten
    // memory, or write data to it.
    for (others, rows) in [
        ("  launch @next.0(%n, %n)\n", (10, true)),
        ("  launch @next.0(%n, %other)\n", (9, true)),
        ("  launch @first.0(%past, %two)\n", (9, true)),
        ("  launch @next.0(%other, %n)\n", (64, false)),
        ("  launch @next.0(%n, %past)\n  launch @next.0(%past, %n)\n", (11, true)),
        ("  launch @whole.0(%x, %n)\n", (64, false)),
        ("  launch @whole.0(%x, %n)\n  launch @next.0(%n, %n)\n", (64, false)),
        ("  launch @whole.0(%x, %past)\n", (9, true)),
        ("  launch @whole.0(%x, %past)\n  launch @next.0(%past, %n)\n", (64, false)),
    ] {
        assert_eq!(of(others, 8), Ok(rows), "{others}");
    }
    // As in the first call of a session.
    let done = plan(&counting(""), "step", PlanVariant::Plain, &symbols(&[])).unwrap();
    assert_eq!(done.launches.last().unwrap().cost.read, 32);
}
