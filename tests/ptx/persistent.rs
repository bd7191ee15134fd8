//! Loops as one persistent kernel: what they give for any number of steps, in one launch; what happens where an index is out of range; and
//! that the simulator misses whatever of a barrier of the grid is taken out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::bounded::Bounded;
use attnc::codegen::ptx;
use attnc::codegen::ptx::info::{Grid, KernelInfo, ParamInfo};
use attnc::ir::{self, interp};
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::ptx::sim::{Device, Fault, Launch, Mode, Module as Loaded};
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::shape::{Dim, Elem};
use attnc::simulated::Simulated;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::tile::interp::{LaunchArgument, LaunchError, LaunchMemory, Launches};
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, GpuArch, PlanVariant, text};

use crate::meant::differ;
use crate::{front, gen_source, ptxas, tensor_cores};

const PROGRAM: &str = "use std.nn

model Recurrent<I = 5, H = 20> {
    lower: LSTMCell<I, H>
    upper: LSTMCell<H, H>
    cell:  GRUCell<I, H>
    state heard: f32[1, H]

    pub fn lstm(x: f32[S, B, I]) -> f32[B, H] {
        var (h, c) = (full<f32>(0, [B, H]), full<f32>(0, [B, H]))
        for t in 0..S {
            let (a, b) = lower(x[t], h, c)
            h = a
            c = b
        }
        h
    }

    pub fn layers(x: f32[S, B, I]) -> (f32[B, H], f32[B, H]) {
        var (h1, c1) = (full<f32>(0, [B, H]), full<f32>(0, [B, H]))
        var (h2, c2) = (h1, c1)
        for t in 0..S {
            let (h, c) = lower(x[t], h1, c1)
            h1 = h
            c1 = c
            let (h, c) = upper(h1, h2, c2)
            h2 = h
            c2 = c
        }
        (h2, c1)
    }

    pub fn stacked(x: f32[S, B, I], start: f32[B, H]) -> f32[S, B, H] {
        var h = start
        var out = full<f32>(0, [S, B, H])
        for t in 0..S {
            h = cell(x[t], h)
            out[t] = h
        }
        out
    }

    /// A product of one row, whose steps are divided among the threads.
    pub fn known(x: f32[3, 1, I]) -> f32[1, H] {
        var h = full<f32>(0, [1, H])
        for t in 0..3 {
            h = cell(x[t], h)
        }
        h
    }

    /// What a session keeps.
    pub fn listen(x: f32[S, 1, I]) -> f32[1, H] {
        for t in 0..S {
            heard = cell(x[t], heard)
        }
        heard
    }

    /// Each step reads from memory which row it takes.
    pub fn gathered(x: f32[N, B, I], order: i32[S]) -> f32[B, H] {
        var h = full<f32>(0, [B, H])
        for t in 0..S {
            h = cell(x[order[t]], h)
        }
        h
    }

    /// Two loops, one after the other.
    pub fn both(x: f32[S, B, I]) -> f32[B, H] {
        var h = full<f32>(0, [B, H])
        for t in 0..S {
            h = cell(x[t], h)
        }
        var (g, c) = (h, h)
        for t in 0..S {
            let (a, b) = lower(x[t], g, c)
            g = a
            c = b
        }
        g
    }

    /// A loop in a loop.
    pub fn nested(x: f32[T, S, B, I]) -> f32[B, H] {
        var h = full<f32>(0, [B, H])
        for s in 0..T {
            for t in 0..S {
                h = cell(x[s][t], h)
            }
            h = h * 0.5
        }
        h
    }

    /// As long as data says: the host asks after each step.
    pub fn until(x: f32[H], limit: f32) -> f32[H] {
        var h = x
        while sum(h * h) > limit {
            h = tanh(h) * 0.5
        }
        h
    }
}
";

/// What a program is on the way to a GPU.
struct Program {
    source: ir::Module,
    graph: ir::Module,
    tiles: VerifiedModule,
    text: String,
    infos: Vec<KernelInfo>,
    params: BTreeMap<String, Tensor>,
}

impl Program {
    fn new(text: &str, dims: &[(&str, i64)], arch: GpuArch) -> Program {
        let options = if dims.is_empty() { Options::default() } else { front::options(dims) };
        let source = front::module("persistent.attn", text, &options).unwrap_or_else(|e| panic!("{e}"));
        let params = gen_source::inputs::parameters(&source, 3);
        let mut graph = source.clone();
        passes::optimise(&mut graph, &passes::Options::default(), &mut passes::Collected::default())
            .unwrap_or_else(|e| panic!("{e}"));
        let verified = ir::verify(&graph).unwrap_or_else(|e| panic!("{e}"));
        let tiles = attnc::lowering::tile::lower(verified).unwrap_or_else(|e| panic!("{e}"));
        let tiles = tile::schedule_for_gpu(&tiles, arch).unwrap_or_else(|e| panic!("{e}"));
        let (kernels, infos) = ptx::compile(&tiles, arch).unwrap_or_else(|e| panic!("{e}"));
        Program { text: print(&kernels), source, graph, tiles, infos, params }
    }

    /// Arguments of an entry point: floats up to 1, integers below `N`.
    fn args(&self, entry: &str, sizes: &[(&str, i64)]) -> Vec<Tensor> {
        let mut random = Random::new(5);
        let function = self.graph.functions.iter().find(|f| f.name == entry).expect("an entry point");
        let size = |name: &str| sizes.iter().find(|(n, _)| *n == name).map(|(_, n)| *n);
        let arg = |arg: &ir::ArgDecl| {
            let shape: Vec<usize> = arg.ty.shape.iter().map(|d| d.eval(&size).expect("a size") as usize).collect();
            let count: usize = shape.iter().product();
            if arg.ty.elem == Elem::I32 {
                let below = size("N").unwrap_or(1).unsigned_abs() as usize;
                let bytes = (0..count).flat_map(|_| (random.below(below) as i32).to_le_bytes()).collect();
                return Tensor::new(Elem::I32, shape, bytes).expect("a tensor");
            }
            let values: Vec<f32> = (0..count).map(|_| (random.unit() * 2.0 - 1.0) as f32).collect();
            Tensor::from_f32(shape, &values).expect("a tensor")
        };
        function.args.iter().map(arg).collect()
    }

    /// A call on the simulator, or by the interpreter of the scheduled kernels.
    fn call(
        &self,
        tiles: &VerifiedModule,
        by: Option<&dyn Launches>,
        entry: &str,
        args: &[Tensor],
        states: &mut tile::interp::States,
    ) -> Result<Vec<Tensor>, String> {
        let graph = ir::verify(&self.graph).map_err(|e| e.to_string())?;
        let entered = interp::admit(graph, entry, args).map_err(|e| e.to_string())?;
        let call = tile::interp::Call {
            plan: entry,
            variant: PlanVariant::Plain,
            symbols: &entered.symbols,
            args: &entered.args,
            params: &self.params,
            limits: tile::interp::Limits::default(),
        };
        let tiles = tile::verify::verify(tiles).map_err(|e| e.to_string())?;
        let done = match by {
            Some(by) => tile::interp::run_on(tiles, &call, states, by),
            None => tile::interp::run_in(tiles, &call, states),
        };
        Ok(entered.leave(done.map_err(|e| e.to_string())?.results))
    }
}

/// Counts launches, and hands them on.
struct Counting<'a> {
    by: &'a Simulated,
    kernels: RefCell<Vec<String>>,
}

impl Launches for Counting<'_> {
    fn launch(
        &self,
        kernel: &str,
        symbols: &BTreeMap<String, i64>,
        args: &[LaunchArgument],
        memory: &mut LaunchMemory<'_>,
    ) -> Result<(), LaunchError> {
        self.kernels.borrow_mut().push(kernel.to_string());
        self.by.launch(kernel, symbols, args, memory)
    }
}

/// Sizes of calls: no step, one, an odd number; a row, three.
const SIZES: [[(&str, i64); 4]; 4] = [
    [("S", 0), ("B", 3), ("N", 4), ("T", 2)],
    [("S", 1), ("B", 1), ("N", 1), ("T", 1)],
    [("S", 5), ("B", 3), ("N", 4), ("T", 2)],
    [("S", 3), ("B", 1), ("N", 2), ("T", 3)],
];

/// The entry points whose loops are kernels.
const LOOPS: [&str; 8] = ["lstm", "layers", "stacked", "known", "listen", "gathered", "both", "nested"];

#[test]
fn loops_give_what_the_program_means_in_one_launch() {
    for (arch, dims) in [(GpuArch::Sm80, [("I", 5), ("H", 20)]), (GpuArch::Sm90a, [("I", 8), ("H", 24)])] {
        let program = Program::new(PROGRAM, &dims, arch);
        // What the schedule made is verified again, with every proof, and so is its text.
        let printed = text::print(&program.tiles);
        let file = SourceMap::new().add("persistent.tile", printed.as_str());
        let parsed = text::parse(&printed, file).unwrap_or_else(|d| panic!("{:?}", d.sorted()));
        let again = VerifiedModule::new(parsed.module).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(printed, text::print(&again));
        let modes = [Mode::EAGER.seeded(1), Mode::LATEST.seeded(2)];
        let simulated = Simulated::new(&program.text, program.infos.clone(), &modes).unwrap_or_else(|e| panic!("{e}"));
        for entry in LOOPS {
            let mut counts = Vec::new();
            let (mut kept, mut kept_again) = (tile::interp::States::default(), tile::interp::States::default());
            let mut states = interp::States::<Bounded>::default();
            for sizes in SIZES {
                let args = program.args(entry, &sizes);
                let what = format!("{entry} at {sizes:?}, {}", arch.name());
                let limits = Default::default();
                let call = interp::Call { function: entry, args: &args, params: &program.params, limits };
                let source = ir::verify(&program.source).unwrap_or_else(|e| panic!("{e}"));
                let expected = interp::run_in(source, &call, &mut states).unwrap_or_else(|e| panic!("{what}: {e}"));
                let counting = Counting { by: &simulated, kernels: RefCell::default() };
                let got = program.call(&program.tiles, Some(&counting), entry, &args, &mut kept);
                let got = got.unwrap_or_else(|e| panic!("{what}: {e}"));
                differ(&expected, &got).unwrap_or_else(|e| panic!("{what}: {e}"));
                let interpreted = program.call(&again, None, entry, &args, &mut kept_again);
                let interpreted = interpreted.unwrap_or_else(|e| panic!("{what}, interpreted: {e}"));
                differ(&expected, &interpreted).unwrap_or_else(|e| panic!("{what}, interpreted: {e}"));
                counts.push(counting.kernels.into_inner());
            }
            let persistent = counts[2].iter().filter(|name| name.starts_with("loop.")).count();
            assert_eq!(persistent, if entry == "both" { 2 } else { 1 }, "{entry}: {:?}", counts[2]);
            assert!(counts.iter().all(|c| *c == counts[0]), "{entry}: launches depend on the steps: {counts:?}");
        }
    }
}

#[test]
fn remarks_say_which_loops_are_kernels_and_why_others_are_not() {
    let remarks = tensor_cores::remarks(PROGRAM, GpuArch::Sm80);
    let of = |entry: &str| {
        let start = format!("the loop of {entry} at sm_80: ");
        remarks.iter().filter_map(|r| r.strip_prefix(&start)).collect::<Vec<_>>()
    };
    for entry in LOOPS {
        let all = of(entry);
        assert_eq!(all.len(), if entry == "both" { 2 } else { 1 }, "{remarks:#?}");
        assert!(all.iter().all(|r| r.starts_with("one launch, @loop.")), "{remarks:#?}");
    }
    assert_eq!(of("until"), ["launches by the host in each step; data decides how many steps it has"]);
}

/// What a loop launches is in the loop's code; by itself it has code only where the host launches it too.
#[test]
fn what_only_loops_launch_has_no_code_of_its_own() {
    let program = Program::new(PROGRAM, &[], GpuArch::Sm80);
    let plans: BTreeSet<&str> = program.tiles.plans.iter().flat_map(tile::Plan::launched).collect();
    let inner = program.tiles.kernels.iter().flat_map(|k| k.launched());
    let inner: BTreeSet<&str> = inner.filter(|name| !plans.contains(name)).collect();
    assert!(!inner.is_empty());
    let compiled: Vec<&str> = program.infos.iter().map(|info| info.kernel.as_str()).collect();
    let wanted = program.tiles.kernels.iter().map(|k| k.name.as_str()).filter(|name| plans.contains(name));
    assert_eq!(compiled, wanted.collect::<Vec<_>>());
    assert!(compiled.iter().all(|name| !inner.contains(name)));
    let entries = program.text.lines().filter(|l| l.contains(".entry ")).count();
    assert_eq!(entries, compiled.len());
}

/// An index that a step reads is beyond its axis: reported as by the interpreter, and no block waits for ever.
#[test]
fn a_failed_check_ends_the_loop_in_all_blocks() {
    let program = Program::new(PROGRAM, &[("I", 8), ("H", 24)], GpuArch::Sm80);
    for seed in 0..3 {
        let modes = [Mode::EAGER.seeded(seed), Mode::LATEST.seeded(seed)];
        let simulated = Simulated::new(&program.text, program.infos.clone(), &modes).unwrap_or_else(|e| panic!("{e}"));
        let mut args = program.args("gathered", &SIZES[2]);
        let order: Vec<u8> = [1i32, 0, 9, 3, 2].iter().flat_map(|n| n.to_le_bytes()).collect();
        args[1] = Tensor::new(Elem::I32, vec![5], order).expect("a tensor");
        let call =
            |by: Option<&dyn Launches>| program.call(&program.tiles, by, "gathered", &args, &mut Default::default());
        let (got, wanted) = (call(Some(&simulated)).unwrap_err(), call(None).unwrap_err());
        let said = |e: &str| Some(e.split_once("index ")?.1.split_once(" (at")?.0.to_string());
        assert!(wanted.contains("9"), "{wanted}");
        assert_eq!(said(&got), said(&wanted), "{got} / {wanted}");
    }
    // Nobody goes on with the steps that are left: at the first of many, less is done than where all are.
    let executed = |first: i32| {
        let simulated = Simulated::new(&program.text, program.infos.clone(), &[Mode::EAGER]);
        let simulated = simulated.unwrap_or_else(|e| panic!("{e}"));
        let mut args = program.args("gathered", &[("S", 16), ("B", 3), ("N", 4), ("T", 1)]);
        let order = std::iter::once(first).chain([0; 15]).flat_map(i32::to_le_bytes).collect();
        args[1] = Tensor::new(Elem::I32, vec![16], order).expect("a tensor");
        let done = program.call(&program.tiles, Some(&simulated), "gathered", &args, &mut Default::default());
        let index = done.err().unwrap_or_default();
        assert_eq!(index.contains("index 9 is out of range"), first == 9, "{index}");
        simulated.stats().warp_instructions
    };
    let (all, few) = (executed(3), executed(9));
    assert!(few * 4 < all, "{few} of {all}");
}

/// A kernel that is launched from a loop checks an index too: only the block that has the point finds it out of range.
#[test]
fn a_failed_check_of_a_single_block_ends_the_loop_in_all_blocks() {
    let source = "model M<V = 30, H = 70> {
    table: f32[V, H]
    w:     f32[H, H]

    pub fn forward(tokens: i32[S, B], start: f32[B, H]) -> f32[B, H] {
        var h = start
        for t in 0..S {
            h = tanh(h @ w + table[tokens[t]])
        }
        h
    }
}
";
    let program = Program::new(source, &[], GpuArch::Sm80);
    assert!(program.tiles.kernels.iter().any(|k| k.is_persistent()), "{}", text::print(&program.tiles));
    let sizes = [("S", 4), ("B", 70), ("N", 30)];
    let good = program.args("forward", &sizes);
    for seed in 0..3 {
        let modes = [Mode::EAGER.seeded(seed), Mode::LATEST.seeded(seed)];
        let simulated = Simulated::new(&program.text, program.infos.clone(), &modes).unwrap_or_else(|e| panic!("{e}"));
        let call = |args: &[Tensor], by: Option<&dyn Launches>| {
            program.call(&program.tiles, by, "forward", args, &mut Default::default())
        };
        call(&good, Some(&simulated)).unwrap_or_else(|e| panic!("{e}"));
        let mut bad = good.clone();
        let mut tokens = good[0].bytes().to_vec();
        // Row 69 of step 2.
        tokens[4 * (2 * 70 + 69)..][..4].copy_from_slice(&31i32.to_le_bytes());
        bad[0] = Tensor::new(Elem::I32, vec![4, 70], tokens).expect("a tensor");
        let (got, wanted) = (call(&bad, Some(&simulated)).unwrap_err(), call(&bad, None).unwrap_err());
        let said = |e: &str| Some(e.split_once("index ")?.1.split_once(" (at")?.0.to_string());
        assert!(wanted.contains("31"), "{wanted}");
        assert_eq!(said(&got), said(&wanted), "{got} / {wanted}");
    }
    // The others leave at the next barrier: nobody reads the row that was not taken, and of many steps only the first is begun.
    let executed = |token: i32| {
        let simulated = Simulated::new(&program.text, program.infos.clone(), &[Mode::EAGER]);
        let simulated = simulated.unwrap_or_else(|e| panic!("{e}"));
        let mut args = program.args("forward", &[("S", 16), ("B", 3), ("N", 30)]);
        let tokens = [0, 1, token].into_iter().chain([0; 45]).flat_map(i32::to_le_bytes).collect();
        args[0] = Tensor::new(Elem::I32, vec![16, 3], tokens).expect("a tensor");
        let done = program.call(&program.tiles, Some(&simulated), "forward", &args, &mut Default::default());
        let index = done.err().unwrap_or_default();
        assert_eq!(index.contains("index 30 is out of range"), token == 30, "{index}");
        simulated.stats().warp_instructions
    };
    let (all, few) = (executed(29), executed(30));
    assert!(few * 4 < all, "{few} of {all}");
}

/// Two layers of a program whose grids have several blocks, run on the simulator with another text.
fn wounded(program: &Program, text: &str) -> Vec<Result<Vec<u8>, String>> {
    let args = program.args("layers", &[("S", 2), ("B", 2)]);
    let modes = [1, 2, 3, 4].map(|seed| if seed % 2 == 0 { Mode::LATEST } else { Mode::EAGER }.seeded(seed));
    let run = |mode: Mode| {
        let simulated = Simulated::new(text, program.infos.clone(), &[mode])?;
        let done = program.call(&program.tiles, Some(&simulated), "layers", &args, &mut Default::default())?;
        Ok(done.iter().flat_map(|x| x.bytes().to_vec()).collect())
    };
    modes.into_iter().map(run).collect()
}

/// The part of a text that is the kernel of a loop of so many launches.
fn of_loop(program: &Program, launches: usize) -> (usize, usize) {
    let found = program.tiles.kernels.iter().find(|k| k.launched().count() == launches).expect("such a loop");
    let info = program.infos.iter().find(|info| info.kernel == found.name).expect("its code");
    let start = program.text.find(&format!(".entry {}(", info.name)).expect("its text");
    let end = program.text[start..].find("\n}").expect("its end");
    (start, start + end)
}

/// Each instruction that makes a barrier of the grid is missed: without it, a report or another result.
#[test]
fn whatever_is_taken_out_of_a_barrier_of_the_grid_is_missed() {
    let program = Program::new(PROGRAM, &[("I", 4), ("H", 36)], GpuArch::Sm80);
    let wanted = wounded(&program, &program.text);
    assert!(wanted.iter().all(|w| w.is_ok() && *w == wanted[0]), "{wanted:?}");
    let (start, end) = of_loop(&program, 5);
    let (before, kernel, after) = (&program.text[..start], &program.text[start..end], &program.text[end..]);
    let with = |changed: &str| format!("{before}{changed}{after}");
    let noticed = |what: &str, changed: &str, fault: &str| {
        assert_ne!(kernel, changed, "{what} changes nothing");
        let got = wounded(&program, &with(changed));
        let said: Vec<&String> = got.iter().filter_map(|r| r.as_ref().err()).collect();
        assert!(got != wanted, "{what} is not noticed");
        assert!(said.iter().any(|e| e.contains(fault)), "{what}: {said:?}");
    };
    // Arrivals that release nothing, and waits that acquire nothing.
    noticed("no release", &kernel.replace("red.release.gpu", "red.relaxed.gpu"), "race");
    noticed("no acquire", &kernel.replace("ld.acquire.gpu", "ld.relaxed.gpu"), "race");
    // Within a block alone.
    noticed("another scope", &kernel.replace("red.release.gpu", "red.release.cta"), "race");
    // Barriers one by one: what waits, and what arrives.
    let lines: Vec<&str> = kernel.lines().collect();
    let without = |n: usize| {
        let kept: Vec<&str> = lines.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, l)| *l).collect();
        kept.join("\n")
    };
    let (mut waits, mut arrivals, mut unnoticed) = (0, 0, Vec::new());
    for (n, line) in lines.iter().enumerate() {
        let polls = n > 2 && lines[n - 2].contains("ld.acquire.gpu");
        if polls && line.contains("bra") {
            if wounded(&program, &with(&without(n))) == wanted {
                unnoticed.push(waits);
            }
            waits += 1;
        }
        if line.contains("red.release.gpu") {
            arrivals += 1;
            noticed(&format!("no arrival in line {n}"), &without(n), "deadlock");
        }
    }
    assert_eq!((waits, arrivals), (4, 4), "{kernel}");
    // Behind the third each block reads what it has itself written: both products have the same columns of the same grid.
    assert_eq!(unnoticed, [2]);
    // What a launch writes is read through the path that does not see it.
    let read =
        lines.iter().position(|l| l.contains("ld.global.f32") || l.contains("ld.global.v4.f32")).expect("a load");
    let stale: Vec<String> = lines
        .iter()
        .enumerate()
        .map(|(i, l)| {
            if i >= read {
                l.replace("ld.global.nc.", "ld.global.").replace("ld.global.", "ld.global.nc.")
            } else {
                l.to_string()
            }
        })
        .collect();
    noticed("stale loads", &stale.join("\n"), "read-only path");
    // The next launch finds what this one has counted.
    let resets: Vec<usize> = (0..lines.len()).filter(|n| lines[*n].contains("st.relaxed.gpu")).collect();
    assert_eq!(resets.len(), 2, "{kernel}");
    for n in resets {
        noticed("no reset", &without(n), "the next launch would find");
    }
}

/// Two launches without a barrier of the grid between them, of blocks of one warp and of four: both use the same shared memory.
const UNEQUAL: &str = r#"module "unequal"

kernel @few(%x: in f32[8, 64], %y: out f32[8, 64]) grid(%g: 1) gpu(sm_80, 1) scratch(2560) {
^bb0:
  %zero = const 0                           : index
  run (8, 64) {
    %t = load %x[%zero, %zero], rows=0, cols=1 : tile f32[8, 64] @l1(0)
    %sum = reduce_sum %t, axis=1            : tile f32[8, 1] @l1(2048)
  }
  run (8, 64) {
    %d = sub %t, %sum                       : tile f32[8, 64] @reg
    store %y[%zero, %zero], %d, rows=0, cols=1
  }
  return
}

kernel @many(%x: in f32[8, 64], %y: out f32[8, 64]) grid(%g: 1) gpu(sm_80, 4) scratch(2560) {
^bb0:
  %zero = const 0                           : index
  run (8, 64) {
    %t = load %x[%zero, %zero], rows=0, cols=1 : tile f32[8, 64] @l1(0)
    %sum = reduce_max %t, axis=1            : tile f32[8, 1] @l1(2048)
  }
  run (8, 64) {
    %d = sub %t, %sum                       : tile f32[8, 64] @reg
    store %y[%zero, %zero], %d, rows=0, cols=1
  }
  return
}

kernel @both(%x: in f32[8, 64], %y: out f32[8, 64], %z: out f32[8, 64]) grid(%g: 1) gpu(sm_80, 4) scratch(2560) {
^bb0:
  launch @few(%x, %y)
  launch @many(%x, %z)
  launch @few(%x, %y)
  return
}

plan @forward {
^bb0:
  %0 = arg 0                                : buf f32[8, 64]
  %1 = out 0                                : buf f32[8, 64]
  %2 = out 1                                : buf f32[8, 64]
  launch @both(%0, %1, %2)
  return
}
"#;

/// Warps that take no part in a launch do not begin with the next one while it goes on.
#[test]
fn launches_do_not_share_memory_at_the_same_time() {
    let file = SourceMap::new().add("unequal.tir", UNEQUAL);
    let parsed = text::parse(UNEQUAL, file).unwrap_or_else(|e| panic!("{e:?}"));
    let tiles = VerifiedModule::new(parsed.module).unwrap_or_else(|e| panic!("{e}"));
    let (kernels, infos) = ptx::compile(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
    let values: Vec<f32> = (0..512).map(|n| (n * n % 37) as f32).collect();
    let args = [Tensor::from_f32(vec![8, 64], &values).expect("a tensor")];
    let call = |by: Option<&dyn Launches>| {
        let call = tile::interp::Call {
            plan: "forward",
            variant: PlanVariant::Plain,
            symbols: &BTreeMap::new(),
            args: &args,
            params: &BTreeMap::new(),
            limits: tile::interp::Limits::default(),
        };
        let tiles = tile::verify::verify(&tiles).expect("verified");
        let states = &mut tile::interp::States::default();
        let done = match by {
            Some(by) => tile::interp::run_on(tiles, &call, states, by),
            None => tile::interp::run_in(tiles, &call, states),
        };
        done.map(|d| d.results).map_err(|e| e.to_string())
    };
    let wanted = call(None).unwrap_or_else(|e| panic!("{e}"));
    for seed in 0..4 {
        for mode in [Mode::EAGER, Mode::LATEST] {
            let by = Simulated::new(&print(&kernels), infos.clone(), &[mode.seeded(seed)]);
            let got = call(Some(&by.unwrap_or_else(|e| panic!("{e}"))));
            assert_eq!(got.as_ref(), Ok(&wanted), "seed {seed}");
        }
    }
}

/// A launch of the kernel of `lstm`, on a device that holds so many blocks.
fn launched(
    blocks: u32,
    holds: usize,
    cooperative: bool,
    launches: usize,
    text: &str,
) -> Result<Vec<u8>, (Fault, String)> {
    let program = Program::new(PROGRAM, &[("I", 8), ("H", 24)], GpuArch::Sm80);
    let text = if text.is_empty() { program.text.clone() } else { program.text.replace(text, "") };
    let loaded = Loaded::load(&text).unwrap_or_else(|e| panic!("{e}"));
    let kernel = program.tiles.kernels.iter().find(|k| k.launched().count() == 2 && k.name == "loop.0");
    let kernel = kernel.expect("the loop of `lstm`");
    let info = program.infos.iter().find(|info| info.kernel == kernel.name).expect("its code");
    assert!(matches!(info.grid, Grid::Meeting(_)));
    let symbols = BTreeMap::from([("S".to_string(), 3i64), ("B".to_string(), 3i64)]);
    let mut device = Device::new();
    device.hold(holds);
    let mut words: Vec<Vec<u8>> = info.symbols.iter().map(|s| symbols[s].to_le_bytes().to_vec()).collect();
    let mut written = Vec::new();
    let mut random = Random::new(1);
    for (p, param) in kernel.params.iter().zip(&info.params) {
        let ty = kernel.body.ty(p.value).buffer().expect("a buffer");
        let count = Dim::product(&ty.shape).eval(&|s| symbols.get(s).copied()).expect("a number") as usize;
        let at = device.alloc(4 * count);
        let values: Vec<u8> = (0..count).flat_map(|_| ((random.unit() - 0.5) as f32).to_le_bytes()).collect();
        device.write(at, &values).expect("in the buffer");
        words.push(at.to_le_bytes().to_vec());
        if matches!(param, ParamInfo::Buffer { written: true, .. }) {
            written.push((at, 4 * count));
        }
    }
    let fault = device.alloc(48);
    device.write(fault, &[0; 48]).expect("in the buffer");
    words.push(fault.to_le_bytes().to_vec());
    let params: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let (grid, block, shared_bytes) = ([blocks, 1, 1], info.threads, info.dynamic_shared);
    let launch = Launch { kernel: &info.name, grid, block, cluster: None, shared_bytes, cooperative, params: &params };
    for _ in 0..launches {
        device.launch(&loaded, &launch, Mode::EAGER.seeded(4)).map_err(|r| (r.fault, r.to_string()))?;
    }
    Ok(written.iter().flat_map(|(at, n)| device.read(*at, *n).expect("in the buffer")).collect())
}

/// Any number of blocks does the same, as long as all run at the same time; of more, those that run wait for those that do not.
#[test]
fn all_blocks_must_run_at_the_same_time() {
    let wanted = launched(1, 1, true, 2, "").unwrap_or_else(|e| panic!("{e:?}"));
    for blocks in [2, 3, 7, 40] {
        assert_eq!(launched(blocks, 40, true, 2, "").as_ref(), Ok(&wanted), "{blocks} blocks");
    }
    // Though nobody said so, they do.
    assert_eq!(launched(5, 5, false, 2, "").as_ref(), Ok(&wanted));
    let (fault, why) = launched(5, 4, false, 1, "").unwrap_err();
    assert_eq!(fault, Fault::Deadlock, "{why}");
    let (fault, why) = launched(5, 4, true, 1, "").unwrap_err();
    assert_eq!(fault, Fault::Launch, "{why}");
}

/// Loops are assembled for every kind of GPU, without spills.
#[test]
fn loops_are_assembled_without_spills() {
    ptxas::with("the assembling of loops", |ptxas| {
        for (arch, processors) in [(GpuArch::Sm80, &["sm_80", "sm_90a", "sm_100"][..]), (GpuArch::Sm90a, &["sm_90a"])] {
            let program = Program::new(PROGRAM, &[("I", 64), ("H", 256)], arch);
            for processor in processors {
                let said = ptxas::assemble(ptxas, &program.text, processor, &[]);
                let spills = said.text.lines().filter(|l| l.contains("spill"));
                let some = spills.filter(|l| !l.contains(" 0 bytes spill stores, 0 bytes spill loads")).count();
                assert!(said.ok && some == 0, "{processor}: {}", said.text);
            }
        }
    });
}
