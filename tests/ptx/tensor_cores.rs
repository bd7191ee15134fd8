//! Products and attention of 16-bit floats get tensor cores: what the schedule makes of them is verified, assembled, run on the simulator
//! in both orders of effects, and gives what the graph's interpreter gives in `f64`.

use std::collections::{BTreeMap, BTreeSet};

use attnc::codegen::ptx::info::Grid;
use attnc::codegen::ptx::{KernelInfo, compile};
use attnc::ir::{self, interp};
use attnc::lowering::tile::lower;
use attnc::observe::{Collected, Watch};
use attnc::passes;
use attnc::ptx::sim::{Mode, Stats};
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::simulated::Simulated;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::threads;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, GpuArch, Machine, PlanVariant, ScheduleOptions, State};

use crate::fragments::assembles;
use crate::{fragments, front, ptxas};

/// A program of one kernel.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) source: String,
    /// Values of its dimensions, for each run.
    pub(crate) sizes: Vec<Vec<(&'static str, i64)>>,
}

impl Program {
    /// One of a single function.
    pub(crate) fn new(
        name: &str,
        arguments: &str,
        result: &str,
        body: &str,
        sizes: &[&[(&'static str, i64)]],
    ) -> Program {
        let source =
            format!("model Test {{\n    pub fn forward({arguments}) -> {result} {{\n        {body}\n    }}\n}}\n");
        Program { name: name.to_string(), source, sizes: sizes.iter().map(|s| s.to_vec()).collect() }
    }
}

/// Programs that fit tensor cores: widths of heads with and without zeros beside them, more queries than keys and fewer, masks,
/// operands in both orders, an odd number of tiles of steps, columns that fill no tile, epilogues.
fn programs() -> Vec<Program> {
    let mut all = Vec::new();
    let mut add = |name: &str, arguments: &str, result: &str, body: &str, sizes: &[&[(&'static str, i64)]]| {
        all.push(Program::new(name, arguments, result, body, sizes));
    };
    for d in [32, 64, 80, 128, 256] {
        let operands = format!("q: bf16[H, S, {d}], k: bf16[H, T, {d}], v: bf16[H, T, {d}]");
        let body = format!("softmax(q @ k.T / sqrt({d})) @ v");
        let sizes: &[&[(&str, i64)]] = match d {
            64 => &[&[("H", 2), ("S", 65), ("T", 130)], &[("H", 1), ("S", 3), ("T", 0)]],
            _ => &[&[("H", 1), ("S", 9), ("T", 90)]],
        };
        add(&format!("attention_{d}"), &operands, &format!("bf16[H, S, {d}]"), &body, sizes);
    }
    let operands = "q: f16[H, S, 64], k: f16[H, T, 64], v: f16[H, T, 64]";
    let causal = "softmax(where(causal(S, T), q @ k.T / sqrt(64), -inf)) @ v";
    let sizes: &[&[(&str, i64)]] = &[&[("H", 1), ("S", 70), ("T", 5)], &[("H", 1), ("S", 66), ("T", 290)]];
    add("causal", operands, "f16[H, S, 64]", causal, sizes);
    let added = "softmax(q @ k.T / sqrt(64) + m) @ v";
    let sizes: &[&[(&str, i64)]] = &[&[("H", 2), ("S", 5), ("T", 67)]];
    add("added", &format!("{operands}, m: f16[S, T]"), "f16[H, S, 64]", added, sizes);
    let grouped = "softmax(where(i - j < 20, q @ k.T / sqrt(64), -inf)) @ v";
    let positions = "let i = rearrange(iota(S), \"s -> s 1\")\n        let j = iota(T)\n        ";
    add("window", operands, "f16[H, S, 64]", &format!("{positions}{grouped}"), sizes);
    let sizes: &[&[(&str, i64)]] = &[&[("H", 1), ("S", 150), ("T", 280)]];
    for (name, more, mask) in [
        ("sliding", "", "i + (T - S) - j <= 40 and causal(S, T)"),
        ("big_bird", "", "abs(i - j) <= 20 or i < 1 or j < 2"),
        ("no_key", "", "j > i + 1000"),
        ("prefix", ", n: i32", "j <= i or j / 140 < n"),
        ("packed", ", a: i32[S], b: i32[T]", "rearrange(a, \"s -> s 1\") + i / 64 == b + j / 64"),
        (
            "floats",
            ", a: f32[S], b: f32[T]",
            "rearrange(a, \"s -> s 1\") > cast<f32>(j) / 64 - 2 and b > cast<f32>(i) / 32 - 3",
        ),
    ] {
        let body = format!("{positions}softmax(where({mask}, q @ k.T / sqrt(64), -inf)) @ v");
        add(name, &format!("{operands}{more}"), "f16[H, S, 64]", &body, sizes);
    }
    let capped = "softmax(where(abs(i - j) < 50, 30 * tanh(q @ k.T / 240) - rearrange(a, \"h -> h 1 1\") * cast<f16>(abs(i - j)) * 0.01, -inf)) @ v";
    add(
        "alibi",
        &format!("{operands}, a: f16[H]"),
        "f16[H, S, 64]",
        &format!("{positions}{capped}"),
        &[&[("H", 1), ("S", 30), ("T", 200)]],
    );
    let masked = "softmax(where(m, q @ k.T / sqrt(64), -inf)) @ v";
    add("masked", &format!("{operands}, m: bool[S, T]"), "f16[H, S, 64]", masked, sizes);
    add("capped", operands, "f16[H, S, 64]", "softmax(30 * tanh(q @ k.T / sqrt(64) / 30)) @ v", sizes);
    let one = "q: f16[2, 1, 64], k: f16[2, T, 64], v: f16[2, T, 64]";
    let sizes: &[&[(&str, i64)]] = &[&[("T", 700)], &[("T", 1)], &[("T", 0)]];
    add("decode", one, "f16[2, 1, 64]", "softmax(q @ k.T / sqrt(64)) @ v", sizes);
    let behind = "let m = q @ k.T / sqrt(64)\n        softmax(concat(m, full<f16>(0, [2, 1, 1]) + rearrange(a, \"h -> h 1 1\"), axis = -1))[.., 0..T] @ v";
    add("decode_sink", &format!("{one}, a: f16[2]"), "f16[2, 1, 64]", behind, &[&[("T", 300)], &[("T", 0)]]);
    // Heads that share keys and values: of one query and several they are rows of a tile; of more, and many, they are not.
    let of_groups = "q: f16[2, 4, S, 64], k: f16[2, 1, T, 64], v: f16[2, 1, T, 64]";
    let sizes: &[&[(&str, i64)]] =
        &[&[("S", 1), ("T", 300)], &[("S", 3), ("T", 130)], &[("S", 5), ("T", 200)], &[("S", 20), ("T", 70)]];
    add("groups_of_heads", of_groups, "f16[2, 4, S, 64]", causal, sizes);
    let sizes: &[&[(&str, i64)]] = &[&[("S", 1), ("T", 150)], &[("S", 2), ("T", 1)], &[("S", 1), ("T", 0)]];
    let biased = "softmax(q @ k.T / 8 + b) @ v";
    add("biased_heads", &format!("{of_groups}, b: f16[4, 1, T]"), "f16[2, 4, S, 64]", biased, sizes);
    // An axis of one head has whatever stride: here that of one element, which is no multiple of 16 bytes.
    let heads = |name: &str| format!("rearrange({name}, \"s (d h) -> h s d\", h=1)");
    let (q, k, v) = (heads("q"), heads("k"), heads("v"));
    let of_one_head = format!("rearrange(softmax({q} @ {k}.T / 8) @ {v}, \"h s d -> s (d h)\")");
    let rows = "q: bf16[S, 64], k: bf16[T, 64], v: bf16[T, 64]";
    add("one_head", rows, "bf16[S, 64]", &of_one_head, &[&[("S", 65), ("T", 130)], &[("S", 3), ("T", 0)]]);
    let row = "q: bf16[1, 64], k: bf16[T, 64], v: bf16[T, 64]";
    add("one_head_of_one_query", row, "bf16[1, 64]", &of_one_head, &[&[("T", 300)]]);
    let own = "softmax(where(rearrange(ids, \"s -> s 1\") == ids, q @ k.T / sqrt(64), -inf)) @ v";
    let of_ids = "q: f16[H, S, 64], k: f16[H, S, 64], v: f16[H, S, 64], ids: i32[S]";
    add("documents", of_ids, "f16[H, S, 64]", own, &[&[("H", 1), ("S", 67)]]);
    add("batch", "x: bf16[B, M, 64], w: bf16[B, 64, 72]", "bf16[B, M, 72]", "x @ w", &[&[("B", 2), ("M", 17)]]);
    // Also several tiles for each block of Hopper's, with an odd number of steps each.
    let sizes: &[&[(&str, i64)]] = &[&[("M", 66)], &[("M", 700)], &[("M", 0)]];
    add("product", "x: bf16[M, 160], w: bf16[160, 200]", "bf16[M, 200]", "x @ w", sizes);
    let sizes: &[&[(&str, i64)]] = &[&[("M", 66)]];
    // Rows of tiles in two groups, the second one smaller.
    add("groups", "x: bf16[M, 16], w: bf16[16, 72]", "bf16[M, 72]", "x @ w", &[&[("M", 1157)]]);
    // Pairs of f32 are stored by 8 bytes.
    add("widened", "x: bf16[M, 64], w: bf16[64, 72]", "f32[M, 72]", "cast<f32>(x @ w)", sizes);
    add("transposed", "x: bf16[M, 160], w: bf16[72, 160]", "bf16[M, 72]", "x @ w.T", sizes);
    let operands = "x: f16[M, 96], w: f16[96, 72], b: f16[72], y: f16[M, 72]";
    add("epilogue", operands, "f16[M, 72]", "tanh(x @ w / 16 + b) + y", sizes);
    all
}

/// The graph of a program.
fn graph(source: &str) -> ir::Module {
    front::module("test.attn", source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"))
}

/// A program before its schedule.
pub(crate) fn lowered(source: &str) -> Result<VerifiedModule, String> {
    let mut module = graph(source);
    passes::optimise(&mut module, &passes::Options::default(), &mut Collected::default()).map_err(|e| e.to_string())?;
    lower(ir::verify(&module).map_err(|e| e.to_string())?).map_err(|e| e.to_string())
}

/// A program, scheduled for a GPU.
pub(crate) fn for_gpu(source: &str, arch: GpuArch) -> Result<VerifiedModule, String> {
    tile::schedule_for_gpu(&lowered(source)?, arch).map_err(|e| e.to_string())
}

/// The remarks on a program's kernels and loops.
pub(crate) fn remarks(source: &str, arch: GpuArch) -> Vec<String> {
    let tiles = lowered(source).unwrap_or_else(|e| panic!("{e}"));
    let (machine, mut out) = (Machine::from(arch), Collected::default());
    let made = tile::schedule_for(&tiles, &machine, &ScheduleOptions::default(), &Watch::default(), &mut out);
    made.unwrap_or_else(|e| panic!("{e}")).1.into_iter().map(|remark| remark.text).collect()
}

/// What remarks tell of its kernels.
pub(crate) fn forms(source: &str) -> Vec<String> {
    let form = |text: &String| text.split_once(" at sm_80: ").map(|(_, form)| form.to_string());
    remarks(source, GpuArch::Sm80).iter().filter_map(form).collect()
}

/// Does a kernel combine what parts of keys give?
fn combines(kernel: &tile::Kernel) -> bool {
    kernel.name.starts_with("combine_parts.")
}

/// A program for a GPU; all its kernels have fragments, but for those that combine parts.
fn scheduled(program: &Program, arch: GpuArch) -> VerifiedModule {
    let tiles = for_gpu(&program.source, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    let of_fragments = |k: &tile::Kernel| matches!(k.state, State::Gpu { .. }) && (!k.works_in_runs() || combines(k));
    assert!(tiles.kernels.iter().all(of_fragments), "{}:\n{}", program.name, tile::text::print(&tiles));
    tiles
}

#[test]
fn programs_for_tensor_cores_are_assembled_without_spills() {
    ptxas::with("kernels of tensor cores", |ptxas| {
        // Others differ from these in what is done to scores alone.
        let mut programs = programs();
        programs.retain(|p| {
            let alike =
                ["attention_32", "added", "masked", "packed", "no_key", "prefix", "floats", "alibi", "batch", "groups"];
            !alike.contains(&p.name.as_str())
        });
        let said = threads::each(cases(&programs), threads::all(), |(program, arch)| {
            let tiles = scheduled(program, arch);
            let (mut module, _) = compile(&tiles, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
            module.kernels[0].name = format!("{}_{}", program.name, arch.name());
            assembles(ptxas, &module, arch.name())
        });
        let wrong: Vec<String> = said.into_iter().filter_map(Result::err).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// What a GPU does beside elementwise work, by name.
fn operations(kernel: &tile::Kernel) -> BTreeSet<&'static str> {
    let ops = kernel.body.insts().map(|(_, _, d)| &d.op);
    ops.filter(|op| op.info().class == tile::AllowedIn::GpuKernel).map(|op| op.info().name).collect()
}

/// The witnesses, written by hand, are the yardstick: for their problems the schedule's kernels do the same things.
#[test]
fn the_schedule_makes_what_the_witnesses_are_made_of() {
    for (name, arch, witness) in
        [("attention_64", GpuArch::Sm80, fragments::SM80), ("attention_128", GpuArch::Sm90a, fragments::SM90A)]
    {
        let mut sources = SourceMap::new();
        let file = sources.add("witness.tir", witness);
        let witness = tile::text::parse(witness, file).expect("a witness").module;
        let program = programs().into_iter().find(|p| p.name == name).expect("a program");
        let tiles = scheduled(&program, arch);
        // The first kernel is that of many queries.
        let (made, written) = (&tiles.kernels[0], &witness.kernels[0]);
        assert_eq!(operations(made), operations(written), "{name}");
        assert_eq!((made.state, made.scratch), (written.state, written.scratch), "{name}");
    }
}

/// Is a result what was wanted?
pub(crate) type Near = fn(f64, f64) -> bool;

/// What a result may be off by: attention's weights and each result are rounded to 16 bits.
pub(crate) fn is_near(got: f64, want: f64) -> bool {
    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= 0.016 * (1.0 + want.abs())
}

/// Each program with each kind of GPU.
pub(crate) fn cases(programs: &[Program]) -> Vec<(&Program, GpuArch)> {
    programs.iter().flat_map(|p| GpuArch::ALL.map(|arch| (p, arch))).collect()
}

#[test]
fn programs_for_tensor_cores_give_what_the_interpreter_gives() {
    let only = std::env::var("ATTNC_PROGRAM").ok();
    let mut programs = programs();
    programs.retain(|p| only.as_ref().is_none_or(|only| *only == p.name));
    threads::each(cases(&programs), threads::all(), |(program, arch)| {
        gives_what_the_interpreter_gives(program, &scheduled(program, arch), arch, is_near);
    });
}

/// Runs a program at all its sizes.
pub(crate) fn gives_what_the_interpreter_gives(program: &Program, tiles: &VerifiedModule, arch: GpuArch, near: Near) {
    let (module, infos) = compile(tiles, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    for sizes in &program.sizes {
        let compared = compare(program, tiles, (&print(&module), &infos), sizes, near);
        compared.unwrap_or_else(|e| panic!("{} {} {sizes:?}: {e}", program.name, arch.name()));
    }
}

/// Runs a PTX text of a program, in both orders of effects, and compares what it gives; what the launches did.
pub(crate) fn compare(
    program: &Program,
    tiles: &VerifiedModule,
    (text, infos): (&str, &[KernelInfo]),
    sizes: &[(&'static str, i64)],
    near: Near,
) -> Result<Stats, String> {
    let module = graph(&program.source);
    let graph = ir::verify(&module).map_err(|e| e.to_string())?;
    let symbols: BTreeMap<String, i64> = sizes.iter().map(|(s, n)| ((*s).to_string(), *n)).collect();
    let mut random = Random::new(7);
    let mut tensor = |ty: &attnc::shape::TensorType| {
        let extent = |d: &attnc::shape::Dim| d.eval(&|s| symbols.get(s).copied()).expect("a size");
        let shape: Vec<usize> = ty.shape.iter().map(|d| extent(d) as usize).collect();
        let count = shape.iter().product();
        if !ty.elem.is_float() {
            let values: Vec<i64> = (0..count).map(|_| random.below(2) as i64).collect();
            return Tensor::from_ints(ty.elem, shape, &values).expect("a tensor");
        }
        let values: Vec<f64> = (0..count).map(|_| random.below(4001) as f64 / 1000.0 - 2.0).collect();
        Tensor::from_floats(ty.elem, shape, &values).expect("a tensor")
    };
    let args: Vec<Tensor> = module.functions[0].args.iter().map(|a| tensor(&a.ty)).collect();
    let params: BTreeMap<String, Tensor> = BTreeMap::new();
    let limits = ir::interp::Limits::default();
    let call = interp::Call { function: "forward", args: &args, params: &params, limits };
    let wanted = interp::run_tapped::<f64>(graph, &call).map_err(|e| e.to_string())?;
    let interp::Data::Float(wanted) = &wanted.results[0].data else { return Err("no floats".into()) };
    let (result, stats) = on_simulator(tiles, (text, infos), &symbols, &args)?;
    let got = result.to_f64();
    if got.len() != wanted.len() {
        return Err(format!("{} elements, not {}", got.len(), wanted.len()));
    }
    match got.iter().zip(wanted).position(|(got, want)| !near(*got, *want)) {
        Some(n) => Err(format!("element {n} is {}, not {}", got[n], wanted[n])),
        None => Ok(stats),
    }
}

/// The result of a call on the simulator, in both orders of effects, and what the launches did.
pub(crate) fn on_simulator(
    tiles: &VerifiedModule,
    (text, infos): (&str, &[KernelInfo]),
    symbols: &BTreeMap<String, i64>,
    args: &[Tensor],
) -> Result<(Tensor, Stats), String> {
    let simulated = Simulated::new(text, infos.to_vec(), &[Mode::EAGER, Mode::LATEST.seeded(1)])?;
    let call = tile::interp::Call {
        plan: "forward",
        variant: PlanVariant::Plain,
        symbols,
        args,
        params: &BTreeMap::new(),
        limits: tile::interp::Limits::default(),
    };
    let verified = tile::verify::verify(tiles).map_err(|e| e.to_string())?;
    let done = tile::interp::run_on(verified, &call, &mut Default::default(), &simulated).map_err(|e| e.to_string())?;
    let result = done.results.into_iter().next().ok_or("no result")?;
    Ok((result, simulated.stats()))
}

/// A mask, and whether it keeps a pair of `S` by `T`.
type Keeps = (&'static str, fn(i64, i64, [i64; 2]) -> bool);

/// Tiles that a mask hides are not visited: products are counted, and pairs of which a tile keeps any.
#[test]
fn tiles_that_masks_hide_are_not_visited() {
    let masks: [Keeps; 3] = [
        ("sliding", |i, j, [s, t]| i + t - s - j <= 40 && j <= i + t - s),
        ("big_bird", |i, j, _| (i - j).abs() <= 20 || i < 1 || j < 2),
        ("no_key", |i, j, _| j > i + 1000),
    ];
    let programs = programs();
    let (s, t) = (130, 270);
    let counted = |name: &str, arch: GpuArch| {
        let program = programs.iter().find(|p| p.name == name).expect("a program");
        let tiles = scheduled(program, arch);
        let (module, infos) = compile(&tiles, arch).expect("PTX");
        let sizes = [("H", 1), ("S", s), ("T", t)];
        let stats = compare(program, &tiles, (&print(&module), &infos), &sizes, is_near)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        i64::try_from(stats.matrix_products).expect("a count")
    };
    for (arch, rows, keys) in [(GpuArch::Sm80, 64, 64), (GpuArch::Sm90a, 128, 128)] {
        let tiles = |keeps: &dyn Fn(i64, i64) -> bool| {
            let all = (0..s).step_by(rows).flat_map(|i| (0..t).step_by(keys).map(move |j| (i, j)));
            let any = |(i, j): &(i64, i64)| {
                let of_tile = |x: i64, size: usize, end: i64| x..end.min(x + size as i64);
                of_tile(*i, rows, s).any(|i| of_tile(*j, keys, t).any(|j| keeps(i, j)))
            };
            all.filter(any).count() as i64
        };
        let (of_all, all) = (counted("attention_64", arch), tiles(&|_, _| true));
        for (name, keeps) in masks {
            let visited = tiles(&|i, j| keeps(i, j, [s, t]));
            assert!(visited < all, "{name} hides no tile");
            assert_eq!(counted(name, arch) * all, of_all * visited, "{name}, {}", arch.name());
        }
    }
}

/// A call of few queries has kernels whose keys are divided among blocks; one of as many queries as keys has none.
#[test]
fn keys_of_few_queries_are_divided() {
    let kinds = |name: &str, arch: GpuArch| -> Vec<String> {
        let program = programs().into_iter().find(|p| p.name == name).expect("a program");
        let tiles = scheduled(&program, arch);
        let kind = |k: &tile::Kernel| k.name.split('.').next().unwrap_or_default().to_string();
        tiles.kernels.iter().map(kind).collect()
    };
    for arch in GpuArch::ALL {
        assert_eq!(kinds("attention_64", arch), ["attention", "attention_part", "combine_parts"]);
        assert_eq!(kinds("decode", arch), ["attention_part", "combine_parts"]);
        let of_groups = ["attention", "attention_part", "combine_parts", "attention_part"];
        assert_eq!(kinds("groups_of_heads", arch), of_groups);
        assert_eq!(kinds("documents", arch), ["attention"]);
    }
}

/// Which attention takes tensor cores: that of 16-bit floats whose heads have a known width of whole chunks of 16 bytes, up to 256.
#[test]
fn attention_of_16_bit_floats_takes_tensor_cores() {
    let widths = ["8", "32", "40", "64", "80", "96", "128", "192", "256"].map(|d| (d, true));
    let others = ["4", "36", "100", "264", "D"].map(|d| (d, false));
    for elem in ["bf16", "f16", "f32"] {
        for (d, fits) in widths.into_iter().chain(others) {
            let source = format!(
                "model Test {{\n    pub fn forward(q: {elem}[H, S, {d}], k: {elem}[H, T, {d}], v: {elem}[H, T, {d}]) -> {elem}[H, S, {d}] {{\n        \
                 softmax(q @ k.T / 8.0) @ v\n    }}\n}}\n"
            );
            for arch in GpuArch::ALL {
                let tiles = for_gpu(&source, arch).unwrap_or_else(|e| panic!("{elem}, {d}: {e}"));
                let takes = tiles.kernels.iter().all(|k| !k.works_in_runs() || combines(k));
                assert_eq!(takes, fits && elem != "f32", "{elem}, {d}, {}", arch.name());
            }
        }
    }
}

/// The blocks of a causal attention begin with the last queries, which see most keys; those of others as they come.
#[test]
fn the_longest_blocks_go_first() {
    for arch in GpuArch::ALL {
        for (name, reversed) in [("causal", true), ("attention_64", false), ("big_bird", false)] {
            let program = programs().into_iter().find(|p| p.name == name).expect("a program");
            let tiles = scheduled(&program, arch);
            let kernel = tiles.kernels.iter().find(|k| k.name.starts_with("attention.")).expect("an attention");
            let body = &kernel.body;
            let point = kernel.grid.last().expect("an axis of queries").value;
            // The point counts from the number of the last one down.
            let counts_down = |d: &tile::InstData| match (&d.op, d.operands.as_slice()) {
                (tile::Op::Binary(attnc::scalar::BinaryOp::Sub), [last, of]) if *of == point => {
                    matches!(body.def_inst(*last).map(|d| &d.op), Some(tile::Op::DimValue(_)))
                }
                _ => false,
            };
            assert_eq!(body.insts().any(|(_, _, d)| counts_down(d)), reversed, "{name}, {}", arch.name());
        }
    }
}

/// Faults of kernels, each a change of every line of the PTX that has some words: they go, or become others.
const FAULTS: &[(&str, GpuArch, &str, Option<&str>)] = &[
    (PLAIN, GpuArch::Sm80, "cp.async.wait_group 1;", Some("cp.async.wait_group 3;")),
    (PLAIN, GpuArch::Sm80, "bar.sync 0;", None),
    (PLAIN, GpuArch::Sm80, "cp.async.commit_group;", None),
    (PLAIN, GpuArch::Sm80, ", 2, 31,", Some(", 1, 31,")),
    (PLAIN, GpuArch::Sm80, ".x4.trans", Some(".x4")),
    (PLAIN, GpuArch::Sm90a, "wgmma.fence.sync.aligned;", None),
    (PLAIN, GpuArch::Sm90a, "wgmma.wait_group.sync.aligned 0;", None),
    (PLAIN, GpuArch::Sm90a, "wgmma.wait_group.sync.aligned 1;", None),
    (PLAIN, GpuArch::Sm90a, "wgmma.commit_group.sync.aligned;", None),
    (PLAIN, GpuArch::Sm90a, "], 16384;", Some("], 8192;")),
    (PLAIN, GpuArch::Sm90a, "bar.arrive 1, 256;", None),
    (PLAIN, GpuArch::Sm90a, "mbarrier.arrive.shared.b64", None),
    (PLAIN, GpuArch::Sm90a, "mbarrier.init.shared.b64", None),
    // A tile is left out that is not hidden, and one is taken as it is that the mask crosses.
    ("sliding", GpuArch::Sm80, ", 40;", Some(", 4;")),
    ("sliding", GpuArch::Sm80, ", 40;", Some(", 400;")),
    ("sliding", GpuArch::Sm90a, ", 40;", Some(", 4;")),
    ("sliding", GpuArch::Sm90a, ", 40;", Some(", 400;")),
    // Blocks that do each tile, or forget how far their rings have come.
    (SEVERAL, GpuArch::Sm90a, "%nctaid.x", Some("1")),
    (SEVERAL, GpuArch::Sm90a, ", 3;", Some(", 2;")),
];
const PLAIN: &str = "attention_64";
const SEVERAL: &str = "product";

#[test]
fn faults_of_kernels_for_tensor_cores_are_seen() {
    let programs = programs();
    let of = |name: &str| {
        let program = programs.iter().find(|p| p.name == name).expect("a program");
        let sizes = match name {
            PLAIN => vec![("H", 1), ("S", 17), ("T", 300)],
            SEVERAL => vec![("M", 700)],
            _ => vec![("H", 1), ("S", 70), ("T", 280)],
        };
        (program, sizes)
    };
    for (name, arch) in [PLAIN, SEVERAL, "sliding"].into_iter().flat_map(|name| GpuArch::ALL.map(|arch| (name, arch))) {
        let (program, sizes) = of(name);
        let tiles = scheduled(program, arch);
        let (module, infos) = compile(&tiles, arch).expect("PTX");
        compare(program, &tiles, (&print(&module), &infos), &sizes, is_near)
            .unwrap_or_else(|e| panic!("without a fault: {e}"));
    }
    let seen = threads::each(FAULTS, threads::all(), |(name, arch, words, by)| {
        let (program, sizes) = of(name);
        let tiles = scheduled(program, *arch);
        let (module, infos) = compile(&tiles, *arch).expect("PTX");
        let text = print(&module);
        assert!(text.contains(words), "no line has `{words}`");
        let changed: Vec<String> = match by {
            Some(by) => text.lines().map(|l| l.replace(words, by)).collect(),
            None => text.lines().filter(|l| !l.contains(words)).map(str::to_string).collect(),
        };
        let compared = compare(program, &tiles, (&(changed.join("\n") + "\n"), &infos), &sizes, is_near);
        compared.is_err().then_some(()).ok_or_else(|| format!("{} without `{words}` is not noticed", arch.name()))
    });
    let missed: Vec<String> = seen.into_iter().filter_map(Result::err).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The largest products on Hopper: four steps of 64 x 256 for each of two consumers, all in registers.
#[test]
fn large_products_on_hopper_have_the_shape_of_the_fastest() {
    ptxas::with("a large product for sm_90a", |ptxas| {
        let source = "model Test {\n    pub fn forward(x: bf16[4096, 4096], w: bf16[4096, 4096]) -> bf16[4096, 4096] {\n        x @ w\n    }\n}\n";
        let tiles = for_gpu(source, GpuArch::Sm90a).unwrap_or_else(|e| panic!("{e}"));
        let (module, infos) = compile(&tiles, GpuArch::Sm90a).unwrap_or_else(|e| panic!("{e}"));
        // As many blocks as run at a time go through the 512 tiles.
        assert_eq!(infos[0].grid, Grid::Persistent(vec![(512.into(), 1)]));
        // Four stages of 128 x 64 and 64 x 256, and their barriers; a panel of 64 columns at a time.
        assert_eq!((infos[0].threads, infos[0].dynamic_shared), ([384, 1, 1], 4 * 48 * 1024 + 12 * 16));
        assembles(ptxas, &module, "sm_90a").unwrap_or_else(|e| panic!("{e}"));
        let Some(code) = ptxas::disassemble(ptxas, &print(&module), "sm_90a") else { return };
        let count = |word: &str| code.iter().filter(|line| line.contains(word)).count();
        assert_eq!(count("HGMMA.64x256x16.F32.BF16"), 2 * 4);
        assert_eq!((count("UTMALDG"), count("STL"), count("LDL")), (6, 0, 0));
    });
}
