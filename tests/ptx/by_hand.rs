//! Tile IR for GPUs that somebody wrote by hand, or changed: what its kernels must not assume is refused, and what they may be given
//! they treat as the language of tiles says.

use std::collections::BTreeMap;

use attnc::codegen::ptx;
use attnc::ptx::sim::{Mode, Module as Loaded};
use attnc::ptx::text::print;
use attnc::shape::Elem;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{GpuArch, Module, schedule_for_gpu, text};

use crate::runs::launch;
use crate::tensor_cores::{for_gpu, on_simulator};

/// The tile IR of a program of one expression.
fn tiles(arguments: &str, result: &str, body: &str, arch: GpuArch) -> String {
    let source = format!("model Test {{\n    pub fn forward({arguments}) -> {result} {{\n        {body}\n    }}\n}}\n");
    text::print(&for_gpu(&source, arch).unwrap_or_else(|e| panic!("{e}")))
}

fn product(arch: GpuArch) -> String {
    tiles("x: f16[64, 64], w: f16[64, 32]", "f16[64, 32]", "x @ w", arch)
}

/// The text with changes, each of a part that it has.
fn changed(source: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(source.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "no `{from}` in\n{text}");
        text.replace(from, to)
    })
}

fn verified(source: &str) -> Result<VerifiedModule, String> {
    let mut sources = SourceMap::new();
    let file = sources.add("by_hand.tir", source);
    let parsed = text::parse(source, file);
    let module = parsed.unwrap_or_else(|d| panic!("{}", attnc::diagnostics::render_all(&d, &sources, false))).module;
    VerifiedModule::new(module).map_err(|e| e.to_string())
}

#[test]
fn blocks_that_work_in_runs_have_a_power_of_2_of_warps() {
    let text = tiles("x: f32[S, 8]", "f32[S, 8]", "x + 1.0", GpuArch::Sm80);
    let head = text.lines().find_map(|l| l.split_once("gpu(sm_80, ")).expect("a kernel for a GPU").1;
    let own = format!("gpu(sm_80, {})", head.split(')').next().expect("a number"));
    assert!(text.contains(" run "), "{text}");
    for warps in [1, 2, 4, 8, 16, 32] {
        verified(&changed(&text, &[(&own, &format!("gpu(sm_80, {warps})"))])).unwrap_or_else(|e| panic!("{e}"));
    }
    for (warps, wrong) in [(3, "1, 2, 4, 8, 16 or 32 warps, not 3"), (12, "not 12"), (0, "not 0"), (64, "not 64")] {
        let e = verified(&changed(&text, &[(&own, &format!("gpu(sm_80, {warps})"))])).expect_err("refused");
        assert!(e.contains(wrong), "{e}");
    }
}

/// Sums of rows, in tiles of 512 columns.
const SUMS: &str = r#"module "sums"

kernel @rows.0(%x: in f32[S, 8000], %y: out f32[S, 1] strides[1, 0]) symbols(S) grid(%g: ceil(S, 8)) {
^bb0:
  %eight = const 8                          : index
  %n = dim S                                : index
  %none = const 0.0                         : f32
  %zero = const 0                           : index
  %end = const 8000                         : index
  %r = mul %g, %eight                       : index
  %left = sub %n, %r                        : index
  %rows = min %left, %eight                 : index
  %start = full %none                       : tile f32[%rows<=8, 1]
  br ^head(%zero, %start)
^head(%j: index, %sum: tile f32[%rows<=8, 1]):
  %more = lt %j, %end                       : bool
  br_if %more, ^step, ^done
^step:
  %most = const 512                         : index
  %rest = sub %end, %j                      : index
  %cols = min %rest, %most                  : index
  %t = load %x[%r, %j], rows=0, cols=1      : tile f32[%rows<=8, %cols<=512]
  %s = reduce_sum %t, axis=1                : tile f32[%rows<=8, 1]
  %both = add %sum, %s                      : tile f32[%rows<=8, 1]
  %next = add %j, %most                     : index
  br ^head(%next, %both)
^done:
  store %y[%r, %zero], %sum, rows=0
  return
}
"#;

/// Tiles have other sizes only where these cover the same elements, and where nothing else depends on them.
#[test]
fn tiles_are_resized_where_loops_and_grids_end_with_them() {
    let steps = |text: &str| {
        let scheduled = schedule_for_gpu(&verified(text).unwrap_or_else(|e| panic!("{e}")), GpuArch::Sm80);
        let kernel = scheduled.unwrap_or_else(|e| panic!("{e}")).kernels[0].clone();
        let text = text::print(&Module { name: "sums".into(), kernels: vec![kernel.clone()], ..Module::default() });
        (kernel.grid[0].step, text.contains("<=512]"))
    };
    // As the lowering writes it.
    let (rows, as_before) = steps(SUMS);
    assert!(rows != 8 && !as_before, "{rows}");
    let less = "%most = const 512                         : index";
    let loops: [&[(&str, &str)]; 9] = [
        // It ends elsewhere.
        &[("lt %j, %end ", "lt %j, %until "), ("%zero = ", "%until = const 300 : index\n  %zero = ")],
        // Its last tile is one of no columns.
        &[("lt %j, %end ", "le %j, %end ")],
        // Another comparison.
        &[("%s = red", "%odd = eq %j, %end : bool\n  %s = red")],
        // Numbers of tiles, of columns.
        &[(
            "%s = reduce_sum %t, axis=1                : tile f32[%rows<=8, 1]",
            "%a = reduce_sum %t, axis=1 : tile f32[%rows<=8, 1]\n  %i = cast %j : i32\n  %f = cast %i : f32\n  %b = full %f : tile f32[%rows<=8, 1]\n  %s = add %a, %b : tile f32[%rows<=8, 1]",
        )],
        &[(less, "%most = const 512 : index\n  %i = sub %end, %j : index\n  %f = cast %i : i32")],
        &[(
            "%s = reduce_sum %t, axis=1                : tile f32[%rows<=8, 1]",
            "%a = reduce_sum %t, axis=1 : tile f32[%rows<=8, 1]\n  %f = const 1.0 : f32\n  %b = full %f : tile f32[%rows<=8, 1]\n  %s = add %a, %b : tile f32[%rows<=8, 1]",
        )],
        // A sum of maxima; what a sum so far is besides.
        &[("reduce_sum", "reduce_max")],
        &[("add %sum, %s  ", "add %sum, %sum")],
        // What the last tile gives.
        &[("%next = add", "store %y[%r, %zero], %s, rows=0\n  %next = add")],
    ];
    for changes in loops {
        let (_, as_before) = steps(&changed(SUMS, changes));
        assert!(as_before, "{changes:?}");
    }
    // Other reductions, in any order, and the largest element.
    for changes in [
        &[("add %sum, %s ", "add %s, %sum ")][..],
        &[("reduce_sum", "reduce_max"), ("add %sum, %s ", "max %sum, %s ")],
        &[("reduce_sum", "reduce_min"), ("add %sum, %s ", "min %sum, %s ")],
    ] {
        let (_, as_before) = steps(&changed(SUMS, changes));
        assert!(!as_before, "{changes:?}");
    }
    // A grid of other rows than the tiles know of.
    assert_eq!(
        steps(&changed(
            SUMS,
            &[
                ("%n = dim S ", "%n = const 8 "),
                ("f32[S, ", "f32[64, "),
                ("symbols(S) grid(%g: ceil(S, 8))", "grid(%g: ceil(6, 8))")
            ]
        ))
        .0,
        8
    );
}

#[test]
fn launches_give_kernels_of_fragments_what_begins_at_a_chunk() {
    for arch in GpuArch::ALL {
        let text = product(arch);
        verified(&text).unwrap_or_else(|e| panic!("{e}"));
        let argument = |offset: &str| {
            let arg = format!(
                "%9 = arg 0 : buf f16[66, 64]\n  %0 = view %9, offset={offset} : buf f16[64, 64]\n  %1 = arg 1"
            );
            let lines = text.lines().filter(|l| !l.trim_start().starts_with("%0 = arg 0"));
            let text: String = lines.flat_map(|l| [l, "\n"]).collect();
            verified(&changed(&text, &[("\"x\": f16[64, 64]", "\"x\": f16[66, 64]"), ("%1 = arg 1", &arg)]))
        };
        argument("64").unwrap_or_else(|e| panic!("{e}"));
        argument("8").unwrap_or_else(|e| panic!("{e}"));
        for offset in ["1", "4", "65"] {
            let e = argument(offset).expect_err("refused");
            assert!(
                e.contains("operand 0 of @matmul.0 begins at a multiple of 16 bytes, which is not certain here"),
                "{e}"
            );
        }
        let result = |offset: &str| {
            let out =
                format!("%9 = out 0 : buf f16[66, 32]\n  %2 = view %9, offset={offset} : buf f16[64, 32]\n  launch");
            let lines = text.lines().filter(|l| !l.trim_start().starts_with("%2 = out 0"));
            let text: String = lines.flat_map(|l| [l, "\n"]).collect();
            verified(&changed(&text, &[("-> (f16[64, 32])", "-> (f16[66, 32])"), ("launch", &out)]))
        };
        result("2").unwrap_or_else(|e| panic!("{e}"));
        let e = result("1").expect_err("refused");
        assert!(e.contains("operand 2 of @matmul.0 begins at a multiple of 4 bytes, which is not certain here"), "{e}");
    }
}

/// Small integers as `f16`: sums of their products are exact.
fn halves(count: usize, seed: usize) -> (Vec<f32>, Vec<u8>) {
    let values: Vec<f32> = (0..count).map(|i| ((i * 7 + i / 5 + seed) % 5) as f32 - 2.0).collect();
    let bytes = values.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
    (values, bytes)
}

/// What a kernel leaves in its last buffer, in two orders of all that may happen.
fn made_by(text: &str, given: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let module = verified(text).unwrap_or_else(|e| panic!("{e}"));
    let (ptx, infos) = ptx::compile(&module, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
    let loaded = Loaded::load(&print(&ptx)).unwrap_or_else(|e| panic!("{e}"));
    let run = |mode| launch(&loaded, &infos[0], &BTreeMap::new(), given, mode).unwrap_or_else(|e| panic!("{e}"));
    [Mode::EAGER, Mode::LATEST.seeded(1)].into_iter().filter_map(|mode| run(mode).0.pop()).collect()
}

/// Columns begin at 1, which is 2 times a number, and one more: no two of them are stored together.
#[test]
fn what_begins_at_an_odd_column_is_stored_one_by_one() {
    let text = product(GpuArch::Sm80);
    let store = text.lines().find(|l| l.contains("store ")).expect("a store");
    let column = store.split([',', ']']).nth(1).expect("a column").trim();
    let made = text.lines().find(|l| l.trim_start().starts_with(&format!("{column} = mul"))).expect("its number");
    let point = made.split(['=', ',']).nth(1).and_then(|text| text.split("mul").nth(1)).expect("a point").trim();
    let odd = format!(
        "  %two = const 2 : index\n  %even = mul {point}, %two : index\n  %one = const 1 : index\n  %odd = add %even, %one : index\n{}",
        store.replacen(column, "%odd", 1)
    );
    let ((x, x_bytes), (w, w_bytes)) = (halves(64 * 64, 1), halves(64 * 32, 3));
    let before = vec![0x11; 64 * 32 * 2];
    for out in made_by(&changed(&text, &[(store, &odd)]), &[x_bytes, w_bytes, before]) {
        for (n, pair) in out.chunks(2).enumerate() {
            let (i, j) = (n / 32, n % 32);
            let want = (j > 0).then(|| (0..64).map(|k| x[i * 64 + k] * w[k * 32 + j - 1]).sum::<f32>());
            let got = half::f16::from_le_bytes([pair[0], pair[1]]).to_f32();
            assert!(want.map_or(pair == [0x11; 2], |want| got == want), "[{i}, {j}]: {got}, not {want:?}");
        }
    }
}

/// Warps with rows of their own meet alone for `%b` and its sum. Rows of `%c` lie elsewhere than those of `%a`, so for it the block meets:
/// another warp may still read `%a`.
const MET: &str = r#"module "met"

kernel @k(%x: in f32[4, 64], %y: out f32[4, 32]) grid(%g: 1) gpu(sm_80, 4) scratch(2176) {
^bb0:
  %zero = const 0                           : index
  run (4, 64) {
    %a = load %x[%zero, %zero], rows=0, cols=1 : tile f32[4, 64] @l1(0)
  }
  run (4, 64) {
    %b = mul %a, %a                         : tile f32[4, 64] @l1(1024)
  }
  run (4, 64) {
    %s = reduce_sum %b, axis=1              : tile f32[4, 1] @l1(2048)
  }
  run (4, 32) {
    %c = load %x[%zero, %zero], rows=0, cols=1 : tile f32[4, 32] @l1(0)
  }
  run (4, 32) {
    %d = add %c, %s                         : tile f32[4, 32] @reg
    store %y[%zero, %zero], %d, rows=0, cols=1
  }
  return
}
"#;

#[test]
fn a_block_meets_though_its_warps_have_met() {
    let module = verified(MET).unwrap_or_else(|e| panic!("{e}"));
    let text = print(&ptx::compile(&module, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}")).0);
    let meets = |what: &str| text.lines().filter(|l| l.trim_start().starts_with(what)).count();
    // Before the product, the sum and what is added to it; before `%c`.
    assert_eq!((meets("bar.warp.sync"), meets("bar.sync") + meets("barrier.sync")), (3, 1), "{text}");
    let x: Vec<f32> = (0..4 * 64).map(|i| ((i * 7 + i / 5) % 5) as f32 - 2.0).collect();
    let bytes = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let row = |i: usize| x[i * 64..i * 64 + 64].iter().map(|x| x * x).sum::<f32>();
    let want: Vec<u8> = (0..4 * 32).flat_map(|n| (x[n / 32 * 64 + n % 32] + row(n / 32)).to_le_bytes()).collect();
    for out in made_by(MET, &[bytes, vec![0; 4 * 32 * 4]]) {
        assert_eq!(out, want);
    }
}

/// Steps begin at -32, so the first are outside: they count as zeros. The result begins at row -32, so its first rows are not written.
#[test]
fn what_begins_before_a_buffer_is_left_out() {
    let text = product(GpuArch::Sm80);
    let first = text.lines().find_map(|l| l.split_once("copy_async")).expect("a copy").1;
    let start = first.split([',', '[', ']']).nth(3).expect("a column").trim();
    let given =
        text.lines().find(|l| l.trim_start().starts_with(&format!("{start} = const 0"))).expect("the first step");
    let store = text.lines().find(|l| l.contains("store ")).expect("a store");
    let row = store.split(['[', ',']).nth(1).expect("a row");
    let text = changed(
        &text,
        &[
            (given, &given.replace("const 0 ", "const -32 ")),
            (store, &store.replacen(&format!("[{row},"), &format!("[{start},"), 1)),
        ],
    );
    let ((x, x_bytes), (w, w_bytes)) = (halves(64 * 64, 1), halves(64 * 32, 3));
    let before = vec![0x11; 64 * 32 * 2];
    for out in made_by(&text, &[x_bytes, w_bytes, before.clone()]) {
        let got = |i: usize, j: usize| half::f16::from_le_bytes([out[(i * 32 + j) * 2], out[(i * 32 + j) * 2 + 1]]);
        for i in 0..32 {
            for j in 0..32 {
                let want: f32 = (32..64).map(|k| x[(i + 32) * 64 + k] * w[k * 32 + j]).sum();
                assert_eq!(got(i, j).to_f32(), want, "[{i}, {j}]");
            }
        }
        assert_eq!(out[32 * 32 * 2..], before[32 * 32 * 2..]);
    }
}

/// A gather of single elements, as the lowering writes it: a point takes 256 of them, one after another.
const TAKEN: &str = r#"module "taken"
site "index {0} is out of range for an axis of {1}"

kernel @gather.0(%x: in f32[B, N], %at: in i32[B, M], %y: out f32[B, M]) symbols(B, M, N) grid(%b: B, %g: ceil(M, 256)) {
^bb0:
  %one = const 1                            : index
  %c = const 256                            : index
  %m = dim M                                : index
  %start = mul %g, %c                       : index
  %rest = sub %m, %start                    : index
  %n = min %rest, %c                        : index
  %end = add %start, %n                     : index
  br ^head(%start)
^head(%i: index):
  %more = lt %i, %end                       : bool
  br_if %more, ^step, ^done
^step:
  %all = dim N                              : index
  %k = load_scalar %at[%b, %i]              : i32
  %index = cast %k                          : index
  %checked = check_index %index, %all, site=0 : index
  %e = load %x[%b, %checked]                : tile f32[1, 1]
  store %y[%b, %i], %e
  %next = add %i, %one                      : index
  br ^head(%next)
^done:
  return
}

plan @forward symbols(B, M, N) {
^bb0:
  %0 = arg 0                                : buf f32[B, N]
  %1 = arg 1                                : buf i32[B, M]
  %2 = out 0                                : buf f32[B, M]
  launch @gather.0(%0, %1, %2)
  return
}
"#;

/// Elements that a point takes one after another become points of their own, but only where nothing goes from one to the next, and where
/// the loop is what the axis says.
#[test]
fn elements_one_after_another_become_points() {
    let scheduled = |text: &str| {
        let module = verified(text).unwrap_or_else(|e| panic!("{e}"));
        schedule_for_gpu(&module, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"))
    };
    let step = |text: &str| scheduled(text).kernels[0].grid[1].step;
    assert_eq!(step(TAKEN), 1);
    let whole = [("symbols(B, M, N)", "symbols(B, N)"), ("[B, M]", "[B, 512]"), ("ceil(M, 256)", "ceil(512, 256)")];
    let whole = changed(TAKEN, &whole);
    let short = [
        ("  %m = dim M                                : index\n", ""),
        ("  %rest = sub %m, %start                    : index\n", ""),
        ("  %n = min %rest, %c                        : index\n", ""),
        ("add %start, %n", "add %start, %c"),
    ];
    assert_eq!(step(&changed(&whole, &short)), 1);
    let others: [&[(&str, &str)]; 6] = [
        // The number is something else besides; so are the start and the end.
        &[("%checked = check", "%odd = lt %one, %c : bool\n  %checked = check")],
        &[("%checked = check", "%odd = lt %start, %one : bool\n  %checked = check")],
        &[("%checked = check", "%odd = lt %one, %end : bool\n  %checked = check")],
        // Every other element; up to and with the end, where there is one more.
        &[("%next = add %i, %one", "%two = const 2 : index\n  %next = add %i, %two")],
        // What is written is not the element's own.
        &[("store %y[%b, %i]", "store %y[%b, %start]")],
        // What is written is read.
        &[("%y: out f32", "%y: inout f32"), ("store %y", "%old = load %y[%b, %i] : tile f32[1, 1]\n  store %y")],
    ];
    for changes in others {
        assert_eq!(step(&changed(TAKEN, changes)), 256, "{changes:?}");
    }
    assert_eq!(step(&changed(&changed(&whole, &short), &[("store %y[%b, %i]", "store %y[%b, %one]")])), 256);
    // What it computes, also beyond 256 and beyond a whole number of those.
    let tiles = scheduled(TAKEN);
    let (module, infos) = ptx::compile(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
    for (b, n, m) in [(2usize, 7usize, 300usize), (1, 1, 1), (3, 5, 0)] {
        let symbols = BTreeMap::from([("B", b), ("N", n), ("M", m)].map(|(s, v)| (s.to_string(), v as i64)));
        let x: Vec<f64> = (0..b * n).map(|v| v as f64).collect();
        let at: Vec<i64> = (0..b * m).map(|v| ((v * v + v / 3) % n) as i64).collect();
        let wanted: Vec<f64> = (0..b * m).map(|v| (v / m * n) as f64 + at[v] as f64).collect();
        let args = [
            Tensor::from_floats(Elem::F32, vec![b, n], &x).expect("a tensor"),
            Tensor::from_ints(Elem::I32, vec![b, m], &at).expect("a tensor"),
        ];
        let got = on_simulator(&tiles, (&print(&module), &infos), &symbols, &args).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(got.0.to_f64(), wanted, "{b} {n} {m}");
    }
}
