//! Products and attention of 16-bit floats get tensor cores: what the schedule makes of them is verified, assembled, run on the simulator
//! in both orders of effects, and gives what the graph's interpreter gives in `f64`.

use std::collections::{BTreeMap, BTreeSet};

use attnc::codegen::ptx::compile;
use attnc::ir::{self, interp};
use attnc::lowering::tile::lower;
use attnc::passes::{self, Collected};
use attnc::ptx::Module;
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
    let sizes: &[&[(&str, i64)]] = &[&[("M", 66)]];
    add("product", "x: bf16[M, 160], w: bf16[160, 200]", "bf16[M, 200]", "x @ w", sizes);
    add("transposed", "x: bf16[M, 160], w: bf16[72, 160]", "bf16[M, 72]", "x @ w.T", sizes);
    let operands = "x: f16[M, 96], w: f16[96, 72], b: f16[72], y: f16[M, 72]";
    add("epilogue", operands, "f16[M, 72]", "tanh(x @ w / 16 + b) + y", sizes);
    all
}

/// The graph of a program.
fn graph(source: &str) -> ir::Module {
    front::module("test.attn", source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"))
}

/// A program for a GPU; all its kernels have fragments.
fn scheduled(program: &Program, arch: GpuArch) -> VerifiedModule {
    let mut module = graph(&program.source);
    passes::optimise(&mut module, &passes::Options::default(), &mut Collected::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let graph = ir::verify(&module).unwrap_or_else(|e| panic!("{e}"));
    let tiles = lower(graph).unwrap_or_else(|e| panic!("{e}"));
    let tiles = tile::schedule_for_gpu(&tiles, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    let of_fragments = |k: &tile::Kernel| matches!(k.state, State::Gpu { .. }) && !k.works_in_runs();
    assert!(tiles.kernels.iter().all(of_fragments), "{}:\n{}", program.name, tile::text::print(&tiles));
    tiles
}

/// Its PTX.
fn compiled(program: &Program, tiles: &VerifiedModule, arch: GpuArch) -> (Module, Simulated) {
    let (module, infos) = compile(tiles, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    let modes = [Mode::EAGER, Mode::LATEST.seeded(1)];
    let simulated = Simulated::new(&print(&module), infos, &modes).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    (module, simulated)
}

#[test]
fn programs_for_tensor_cores_are_assembled_without_spills() {
    ptxas::with("kernels of tensor cores", |ptxas| {
        let programs = programs();
        let said = threads::each(cases(&programs), threads::all(), |(program, arch)| {
            let tiles = scheduled(program, arch);
            let (mut module, _) = compiled(program, &tiles, arch);
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
    let module = graph(&program.source);
    let graph = ir::verify(&module).unwrap_or_else(|e| panic!("{e}"));
    let function = &module.functions[0];
    let tiles = scheduled(program, arch);
    let (_, simulated) = compiled(program, &tiles, arch);
    let tiles = tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{e}"));
    for sizes in &program.sizes {
        let name = format!("{} {} {sizes:?}", program.name, arch.name());
        let symbols: BTreeMap<String, i64> = sizes.iter().map(|(s, n)| ((*s).to_string(), *n)).collect();
        let mut random = Random::new(7);
        let mut tensor = |ty: &attnc::shape::TensorType| {
            let extent = |d: &attnc::shape::Dim| d.eval(&|s| symbols.get(s).copied()).expect("a size");
            let shape: Vec<usize> = ty.shape.iter().map(|d| extent(d) as usize).collect();
            let count = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|_| random.below(4001) as f64 / 1000.0 - 2.0).collect();
            Tensor::from_floats(ty.elem, shape, &values).expect("a tensor")
        };
        let args: Vec<Tensor> = function.args.iter().map(|a| tensor(&a.ty)).collect();
        let params: BTreeMap<String, Tensor> = BTreeMap::new();
        let limits = ir::interp::Limits::default();
        let call = interp::Call { function: "forward", args: &args, params: &params, limits };
        let wanted = interp::run_tapped::<f64>(graph, &call).unwrap_or_else(|e| panic!("{name}: {e}"));
        let interp::Data::Float(wanted) = &wanted.results[0].data else { panic!("{name}: no floats") };
        let call = tile::interp::Call {
            plan: "forward",
            variant: PlanVariant::Plain,
            symbols: &symbols,
            args: &args,
            params: &params,
            limits: tile::interp::Limits::default(),
        };
        let done = tile::interp::run_on(tiles, &call, &mut BTreeMap::new(), &simulated);
        let got = done.unwrap_or_else(|e| panic!("{name}: {e}")).results[0].to_f64();
        assert_eq!(got.len(), wanted.len(), "{name}");
        for (n, (got, want)) in got.iter().zip(wanted).enumerate() {
            assert!(is_near(*got, *want), "{name}: element {n} is {got}, not {want}");
        }
    }
}
