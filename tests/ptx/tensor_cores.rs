//! Products and attention of 16-bit floats get tensor cores: what the schedule makes of them is verified, assembled, run on the simulator
//! in both orders of effects, and gives what the graph's interpreter gives in `f64`.

use std::collections::{BTreeMap, BTreeSet};

use attnc::codegen::ptx::{KernelInfo, compile};
use attnc::ir::{self, interp};
use attnc::lowering::tile::lower;
use attnc::passes::{self, Collected};
use attnc::ptx::sim::Mode;
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::simulated::Simulated;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::threads;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, GpuArch, PlanVariant, State};

use crate::fragments::assembles;
use crate::{fragments, front, ptxas};

/// A program of one kernel.
struct Program {
    name: String,
    source: String,
    /// Values of its dimensions, for each run.
    sizes: Vec<Vec<(&'static str, i64)>>,
}

/// Programs that fit tensor cores: widths of heads with and without zeros beside them, more queries than keys and fewer, masks,
/// operands in both orders, an odd number of tiles of steps, columns that fill no tile, epilogues.
fn programs() -> Vec<Program> {
    let mut all = Vec::new();
    let mut add = |name: &str, arguments: &str, result: &str, body: &str, sizes: &[&[(&'static str, i64)]]| {
        let source =
            format!("model Test {{\n    pub fn forward({arguments}) -> {result} {{\n        {body}\n    }}\n}}\n");
        let sizes = sizes.iter().map(|s| s.to_vec()).collect();
        all.push(Program { name: name.to_string(), source, sizes });
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
    let masked = "softmax(where(m, q @ k.T / sqrt(64), -inf)) @ v";
    add("masked", &format!("{operands}, m: bool[S, T]"), "f16[H, S, 64]", masked, sizes);
    add("capped", operands, "f16[H, S, 64]", "softmax(30 * tanh(q @ k.T / sqrt(64) / 30)) @ v", sizes);
    let own = "softmax(where(rearrange(ids, \"s -> s 1\") == ids, q @ k.T / sqrt(64), -inf)) @ v";
    let of_ids = "q: f16[H, S, 64], k: f16[H, S, 64], v: f16[H, S, 64], ids: i32[S]";
    add("documents", of_ids, "f16[H, S, 64]", own, &[&[("H", 1), ("S", 67)]]);
    add("batch", "x: bf16[B, M, 64], w: bf16[B, 64, 72]", "bf16[B, M, 72]", "x @ w", &[&[("B", 2), ("M", 17)]]);
    let sizes: &[&[(&str, i64)]] = &[&[("M", 66)]];
    add("product", "x: bf16[M, 160], w: bf16[160, 200]", "bf16[M, 200]", "x @ w", sizes);
    // Rows of tiles in two groups, the second one smaller.
    add("groups", "x: bf16[M, 16], w: bf16[16, 72]", "bf16[M, 72]", "x @ w", &[&[("M", 1157)]]);
    add("transposed", "x: bf16[M, 160], w: bf16[72, 160]", "bf16[M, 72]", "x @ w.T", sizes);
    let operands = "x: f16[M, 96], w: f16[96, 72], b: f16[72], y: f16[M, 72]";
    add("epilogue", operands, "f16[M, 72]", "tanh(x @ w / 16 + b) + y", sizes);
    all
}

/// The graph of a program.
fn graph(source: &str) -> ir::Module {
    front::module("test.attn", source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"))
}

/// A program, scheduled for a GPU.
pub(crate) fn for_gpu(source: &str, arch: GpuArch) -> Result<VerifiedModule, String> {
    let mut module = graph(source);
    passes::optimise(&mut module, &passes::Options::default(), &mut Collected::default()).map_err(|e| e.to_string())?;
    let tiles = lower(ir::verify(&module).map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    tile::schedule_for_gpu(&tiles, arch).map_err(|e| e.to_string())
}

/// A program for a GPU; all its kernels have fragments.
fn scheduled(program: &Program, arch: GpuArch) -> VerifiedModule {
    let tiles = for_gpu(&program.source, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    let of_fragments = |k: &tile::Kernel| matches!(k.state, State::Gpu { .. }) && !k.works_in_runs();
    assert!(tiles.kernels.iter().all(of_fragments), "{}:\n{}", program.name, tile::text::print(&tiles));
    tiles
}

#[test]
fn programs_for_tensor_cores_are_assembled_without_spills() {
    ptxas::with("kernels of tensor cores", |ptxas| {
        // Others differ from these in what is done to scores alone.
        let mut programs = programs();
        programs.retain(|p| {
            !["attention_32", "added", "masked", "documents", "batch", "groups"].contains(&p.name.as_str())
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
fn operations(module: &tile::Module) -> BTreeSet<&'static str> {
    let ops = module.kernels.iter().flat_map(|k| k.body.insts()).map(|(_, _, d)| &d.op);
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
        assert_eq!(operations(&tiles), operations(&witness), "{name}");
        let (made, written) = (&tiles.kernels[0], &witness.kernels[0]);
        assert_eq!((made.state, made.scratch), (written.state, written.scratch), "{name}");
    }
}

/// What a result may be off by: attention's weights and each result are rounded to 16 bits.
fn is_near(got: f64, want: f64) -> bool {
    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= 0.016 * (1.0 + want.abs())
}

/// Each program with each kind of GPU.
fn cases(programs: &[Program]) -> Vec<(&Program, GpuArch)> {
    programs.iter().flat_map(|p| GpuArch::ALL.map(|arch| (p, arch))).collect()
}

#[test]
fn programs_for_tensor_cores_give_what_the_interpreter_gives() {
    let only = std::env::var("ATTNC_PROGRAM").ok();
    let mut programs = programs();
    programs.retain(|p| only.as_ref().is_none_or(|only| *only == p.name));
    threads::each(cases(&programs), threads::all(), |(program, arch)| gives_what_the_interpreter_gives(program, arch));
}

/// Runs a program at all its sizes.
fn gives_what_the_interpreter_gives(program: &Program, arch: GpuArch) {
    let tiles = scheduled(program, arch);
    let (module, infos) = compile(&tiles, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    for sizes in &program.sizes {
        let compared = compare(program, &tiles, (&print(&module), &infos), sizes);
        compared.unwrap_or_else(|e| panic!("{} {} {sizes:?}: {e}", program.name, arch.name()));
    }
}

/// Runs a PTX text of a program, in both orders of effects, and compares what it gives.
fn compare(
    program: &Program,
    tiles: &VerifiedModule,
    (text, infos): (&str, &[KernelInfo]),
    sizes: &[(&'static str, i64)],
) -> Result<(), String> {
    let module = graph(&program.source);
    let graph = ir::verify(&module).map_err(|e| e.to_string())?;
    let simulated = Simulated::new(text, infos.to_vec(), &[Mode::EAGER, Mode::LATEST.seeded(1)])?;
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
    let call = tile::interp::Call {
        plan: "forward",
        variant: PlanVariant::Plain,
        symbols: &symbols,
        args: &args,
        params: &params,
        limits: tile::interp::Limits::default(),
    };
    let verified = tile::verify::verify(tiles).map_err(|e| e.to_string())?;
    let done = tile::interp::run_on(verified, &call, &mut BTreeMap::new(), &simulated).map_err(|e| e.to_string())?;
    let got = done.results[0].to_f64();
    if got.len() != wanted.len() {
        return Err(format!("{} elements, not {}", got.len(), wanted.len()));
    }
    match got.iter().zip(wanted).position(|(got, want)| !is_near(*got, *want)) {
        Some(n) => Err(format!("element {n} is {}, not {}", got[n], wanted[n])),
        None => Ok(()),
    }
}

/// Faults of kernels, each a change of every line of the PTX that has some words: they go, or become others.
const FAULTS: &[(GpuArch, &str, Option<&str>)] = &[
    (GpuArch::Sm80, "cp.async.wait_group 1;", Some("cp.async.wait_group 3;")),
    (GpuArch::Sm80, "bar.sync 0;", None),
    (GpuArch::Sm80, "cp.async.commit_group;", None),
    (GpuArch::Sm80, ", 2, 31,", Some(", 1, 31,")),
    (GpuArch::Sm80, ".x4.trans", Some(".x4")),
    (GpuArch::Sm90a, "wgmma.fence.sync.aligned;", None),
    (GpuArch::Sm90a, "wgmma.wait_group.sync.aligned 0;", None),
    (GpuArch::Sm90a, "wgmma.wait_group.sync.aligned 1;", None),
    (GpuArch::Sm90a, "wgmma.commit_group.sync.aligned;", None),
    (GpuArch::Sm90a, "], 16384;", Some("], 8192;")),
    (GpuArch::Sm90a, "bar.arrive 1, 256;", None),
    (GpuArch::Sm90a, "mbarrier.arrive.shared.b64", None),
    (GpuArch::Sm90a, "mbarrier.init.shared.b64", None),
];

#[test]
fn faults_of_kernels_for_tensor_cores_are_seen() {
    let program = programs().into_iter().find(|p| p.name == "attention_64").expect("a program");
    let sizes = [("H", 1), ("S", 3), ("T", 300)];
    for arch in GpuArch::ALL {
        let tiles = scheduled(&program, arch);
        let (module, infos) = compile(&tiles, arch).expect("PTX");
        compare(&program, &tiles, (&print(&module), &infos), &sizes).unwrap_or_else(|e| panic!("without a fault: {e}"));
    }
    let seen = threads::each(FAULTS, threads::all(), |(arch, words, by)| {
        let tiles = scheduled(&program, *arch);
        let (module, infos) = compile(&tiles, *arch).expect("PTX");
        let text = print(&module);
        assert!(text.contains(words), "no line has `{words}`");
        let changed: Vec<String> = match by {
            Some(by) => text.lines().map(|l| l.replace(words, by)).collect(),
            None => text.lines().filter(|l| !l.contains(words)).map(str::to_string).collect(),
        };
        let compared = compare(&program, &tiles, (&(changed.join("\n") + "\n"), &infos), &sizes);
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
        // Four stages of 128 x 64 and 64 x 256, and their barriers; a panel of 64 columns at a time.
        assert_eq!((infos[0].threads, infos[0].dynamic_shared), ([384, 1, 1], 4 * 48 * 1024 + 12 * 16));
        assembles(ptxas, &module, "sm_90a").unwrap_or_else(|e| panic!("{e}"));
        let Some(code) = ptxas::disassemble(ptxas, &print(&module), "sm_90a") else { return };
        let count = |word: &str| code.iter().filter(|line| line.contains(word)).count();
        assert_eq!(count("HGMMA.64x256x16.F32.BF16"), 2 * 4);
        assert_eq!((count("UTMALDG"), count("STL"), count("LDL")), (6, 0, 0));
    });
}
