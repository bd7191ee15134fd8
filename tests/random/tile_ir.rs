//! Does the schedule keep every bit of every kernel? Products are compared as chains; `dot_modes` tests their other modes.
//! Kernels are random: loads along any axes, broadcasting, reductions, transpositions, products, loops that carry tiles, extents
//! bounded at run time. Each is verified, printed,
//! read back, and run unscheduled and scheduled. Those in which every machine computes the same bits are compiled too.

use crate::{compiled, gen_plan, gen_tile, seeds};

use std::collections::BTreeMap;

use attnc::codegen::{cpu, descriptor};
use attnc::ir::interp::Limits;
use attnc::ir::{ArgDecl, EntryDecl, ResultDecl};
use attnc::lowering::vector::execute::Routines;
use attnc::random::Random;
use attnc::runtime::link;
use attnc::runtime::load::CompiledModel;
use attnc::shape::{Dim, TensorType};
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::tile::interp::{Argument, run_kernel, run_kernel_by};
use attnc::tile::{
    Cpu, DotMode, Kernel, Module, Op, ParamMode, PlanBuilder, PlanOp, PlanVariant, State, Type, WeightChoice, interp,
    schedule_kernel, text, verify,
};
use gen_plan::Planned;
use gen_tile::{BUFFERS, SITES, buffer, contents, make, sizes};

/// How many kernels are made; fewer without optimisation, where all of it is slow.
const KERNELS: u64 = if cfg!(debug_assertions) { 400 } else { 1000 };
/// How many are compiled, for the levels of this processor in turn.
const COMPILED: u64 = if cfg!(debug_assertions) { 48 } else { 1000 };

fn sites() -> Vec<String> {
    SITES.map(String::from).to_vec()
}

fn verified(kernel: &Kernel, what: &str) -> String {
    let kernels = vec![kernel.clone()];
    let module = Module { name: "random".into(), sites: sites(), kernels, ..Module::default() };
    if let Err(e) = verify::verify(&module) {
        panic!("{what}:\n{e}");
    }
    let printed = text::print(&module);
    let mut sources = SourceMap::new();
    let file = sources.add("random.tir", printed.as_str());
    match text::parse(&printed, file) {
        Ok(p) => assert_eq!(text::print(&p.module), printed),
        Err(d) => panic!("{what}: {}", attnc::diagnostics::render_all(&d, &sources, false)),
    }
    printed
}

#[test]
fn the_schedule_keeps_every_bit_but_for_modes() {
    for seed in seeds(KERNELS) {
        let open = make("random", &mut Random::new(seed), false);
        let before = verified(&open, &format!("kernel {seed}, unscheduled"));
        let level = Cpu::NAMED[(seed % 3) as usize];
        let mut scheduled = open.clone();
        if let Err(e) = schedule_kernel(&mut scheduled, level) {
            panic!("kernel {seed}: {e}\n{before}");
        }
        assert_eq!(scheduled.state, State::Cpu(level));
        // The schedule chooses how products are summed; any may be a chain.
        for inst in scheduled.body.insts().map(|(_, i, _)| i).collect::<Vec<_>>() {
            if let Op::Dot { mode } = &mut scheduled.body.inst_mut(inst).op {
                assert!(mode.is_some(), "kernel {seed}");
                *mode = Some(DotMode::Chain);
            }
        }
        let after = verified(&scheduled, &format!("kernel {seed}, scheduled"));
        for symbols in sizes() {
            let mut a: Vec<Argument> =
                contents(&mut Random::new(seed), &symbols).into_iter().map(Argument::Buffer).collect();
            let mut b = a.clone();
            run_kernel(&open, &symbols, &mut a, Limits::default()).unwrap_or_else(|e| panic!("{seed}: {e}\n{before}"));
            run_kernel(&scheduled, &symbols, &mut b, Limits::default())
                .unwrap_or_else(|e| panic!("{seed}: {e}\n{before}\n{after}"));
            assert!(a == b, "kernel {seed} at {symbols:?} gives other bits when scheduled\n{before}\n{after}");
        }
    }
}

/// Do the runs of scheduled kernels mean in vector IR what they mean in tile IR? Those in which every machine computes the
/// same bits, for 4, 8 and 16 lanes, without what each CPU lacks.
#[test]
fn vector_ir_computes_what_tile_ir_does() {
    let levels = [Cpu::PORTABLE, Cpu::AVX2, Cpu::AVX512];
    let mut compared = 0;
    for seed in seeds(KERNELS) {
        let mut kernel = make("random", &mut Random::new(seed), true);
        let level = levels[(seed % 3) as usize];
        schedule_kernel(&mut kernel, level).unwrap_or_else(|e| panic!("kernel {seed}: {e}"));
        let Some(routines) = Routines::lower(&kernel, level).unwrap_or_else(|e| panic!("kernel {seed}: {e}")) else {
            continue;
        };
        compared += 1;
        for symbols in sizes() {
            let given = contents(&mut Random::new(seed), &symbols);
            let mut a: Vec<Argument> = given.into_iter().map(Argument::Buffer).collect();
            let mut b = a.clone();
            let shown = || text::print_kernel(&kernel, &[]);
            run_kernel(&kernel, &symbols, &mut a, Limits::default()).unwrap_or_else(|e| panic!("{seed}: {e}"));
            run_kernel_by(&kernel, &symbols, &mut b, Limits::default(), &routines)
                .unwrap_or_else(|e| panic!("kernel {seed}, {}: {e}\n{}", level.name(), shown()));
            for (a, b) in a.iter().zip(&b) {
                let (Argument::Buffer(a), Argument::Buffer(b)) = (a, b) else { continue };
                let same = a == b || same_floats(a, b);
                assert!(same, "kernel {seed}, {}, at {symbols:?} gives other bits\n{}", level.name(), shown());
            }
        }
    }
    let count = seeds(KERNELS).count();
    assert!(compared * 10 > count * 9, "{compared} of {count} kernels have vector IR");
}

/// Are the same floats there, but for what a NaN holds?
fn same_floats(a: &[u8], b: &[u8]) -> bool {
    let is_same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
    floats(a).iter().zip(&floats(b)).all(is_same)
}

/// A module with an entry point for each kernel.
fn with_entries(kernels: Vec<Kernel>) -> Module {
    let mut module = Module { name: "random".into(), sites: sites(), ..Module::default() };
    for k in kernels {
        let mut entry = EntryDecl { name: k.name.clone(), ..EntryDecl::default() };
        let symbols = ["C", "K", "R"].map(String::from).to_vec();
        let mut plan = PlanBuilder::new(&k.name, PlanVariant::Plain, symbols, Vec::new());
        let mut given = Vec::new();
        for (i, (elem, shape, mode)) in BUFFERS.iter().enumerate() {
            let shape_of: Vec<Dim> = shape.iter().map(|s| Dim::symbol(s)).collect();
            let (ty, batch) = (TensorType::new(*elem, shape_of), false);
            let op = if *mode == ParamMode::In {
                entry.args.push(ArgDecl { name: format!("a{i}"), ty, batch });
                Op::Plan(PlanOp::Arg(entry.args.len() as u32 - 1))
            } else {
                entry.results.push(ResultDecl { ty, batch });
                Op::Plan(PlanOp::Out(entry.results.len() as u32 - 1))
            };
            given.push(plan.value(op, Vec::new(), Type::Buffer(buffer(*elem, shape))));
        }
        plan.launch(&k.name, given);
        module.entries.push(entry);
        module.plans.push(plan.finish());
        module.kernels.push(k);
    }
    module
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn compiled_kernels_compute_what_the_interpreter_does() {
    let levels = compiled::levels();
    for (level, first) in levels.iter().zip(0..) {
        let seeds: Vec<u64> = seeds(COMPILED).skip(first).step_by(levels.len()).collect();
        // A library of moderate size at a time.
        for some in seeds.chunks(50) {
            compute_what_the_interpreter_does(*level, some);
        }
    }
}

fn compute_what_the_interpreter_does(level: Cpu, seeds: &[u64]) {
    let open: Vec<Kernel> = seeds.iter().map(|seed| make(&format!("k{seed}"), &mut Random::new(*seed), true)).collect();
    let mut module = with_entries(open.clone());
    for k in &mut module.kernels {
        schedule_kernel(k, level).unwrap_or_else(|e| panic!("{}: {e}", k.name));
    }
    verify::verify(&module).unwrap_or_else(|e| panic!("{e}"));
    let target = cpu::Arch::host().triple().to_string();
    let model = descriptor::describe(&module.interface(), "Random", "", &target).unwrap();
    let tier = compiled::tier(level, &module);
    let compiled = compiled::compile(&[tier], &model);
    let folder = tempfile::tempdir().unwrap();
    let so = folder.path().join("model.so");
    link::link(&compiled.objects(), &so).unwrap_or_else(|e| panic!("{e}"));
    // SAFETY: linked just above.
    let model = unsafe { CompiledModel::open(&so, None, 1) }.unwrap_or_else(|e| panic!("{e}"));
    let mut session = model.session().unwrap();
    let dims = |shape: &[&str], symbols: &BTreeMap<String, i64>| -> Vec<usize> {
        shape.iter().map(|s| usize::try_from(symbols[*s]).unwrap()).collect()
    };
    for (k, seed) in open.iter().zip(seeds) {
        for symbols in sizes() {
            let bytes = contents(&mut Random::new(*seed), &symbols);
            let inputs = BUFFERS.iter().zip(&bytes).filter(|((_, _, mode), _)| *mode == ParamMode::In);
            let args: Vec<Tensor> = inputs
                .map(|((elem, shape, _), b)| Tensor::new(*elem, dims(shape, &symbols), b.clone()).unwrap())
                .collect();
            let got = session.call(model.entry(&k.name).unwrap(), &args).unwrap_or_else(|e| panic!("{}: {e}", k.name));
            // Elements that the kernel does not write are unchanged: starting from different contents, they differ.
            let run = |fill: Option<u8>| {
                let mut given: Vec<Argument> = bytes.iter().cloned().map(Argument::Buffer).collect();
                for ((_, _, mode), a) in BUFFERS.iter().zip(&mut given) {
                    if let (ParamMode::Out, Argument::Buffer(b), Some(x)) = (mode, a, fill) {
                        b.fill(x);
                    }
                }
                run_kernel(k, &symbols, &mut given, Limits::default()).unwrap_or_else(|e| panic!("{}: {e}", k.name));
                let outs = given.into_iter().zip(&BUFFERS).filter(|(_, (_, _, mode))| *mode == ParamMode::Out);
                outs.map(|(a, _)| if let Argument::Buffer(b) = a { floats(&b) } else { Vec::new() }).collect::<Vec<_>>()
            };
            let (want, other) = (run(Some(0x11)), run(Some(0x22)));
            for (n, (g, (w, o))) in got.iter().zip(want.iter().zip(&other)).enumerate() {
                for (i, (g, (w, o))) in g.to_f32().iter().zip(w.iter().zip(o)).enumerate() {
                    let written = w.to_bits() == o.to_bits();
                    let same = g == w || (g.is_nan() && w.is_nan());
                    assert!(
                        !written || same,
                        "{} ({}) at {symbols:?}: result {n}, element {i}: {g}, not {w}",
                        k.name,
                        level.name()
                    );
                }
            }
        }
    }
}

/// Plans in a module.
const GROUP: u64 = 25;

/// The sizes of the calls of a plan's session.
fn sizes_of(planned: &Planned) -> Vec<BTreeMap<String, i64>> {
    let known = |arg: usize, axis: usize| planned.entry.args[arg].ty.shape[axis].as_const();
    match (known(0, 0), known(0, 1), known(4, 1)) {
        (Some(r), Some(c), Some(k)) => {
            let sizes: BTreeMap<String, i64> = [("R", r), ("C", c), ("K", k)].map(|(s, n)| (s.to_string(), n)).into();
            vec![sizes; 3]
        }
        _ => sizes(),
    }
}

/// The arguments of a call.
fn arguments(planned: &Planned, sizes: &BTreeMap<String, i64>, seed: u64) -> Vec<Tensor> {
    let bytes = contents(&mut Random::new(seed), sizes);
    let tensor = |((elem, shape, _), bytes): (&(attnc::shape::Elem, &[&str], ParamMode), Vec<u8>)| {
        let shape = shape.iter().map(|s| usize::try_from(sizes[*s]).unwrap()).collect();
        Tensor::new(*elem, shape, bytes).unwrap()
    };
    BUFFERS.iter().zip(bytes).take(planned.entry.args.len()).map(tensor).collect()
}

/// What a session gives by the interpreter.
fn interpreted(module: verify::Verified<'_>, planned: &Planned) -> Vec<Vec<Tensor>> {
    let mut states = interp::States::default();
    let call = |(n, sizes): (usize, BTreeMap<String, i64>)| {
        let symbols = sizes.iter().filter(|(name, _)| planned.plan.symbols.contains(name));
        let symbols = symbols.map(|(name, n)| (name.clone(), *n)).collect();
        let args = arguments(planned, &sizes, n as u64);
        let call = interp::Call {
            plan: &planned.entry.name,
            variant: PlanVariant::Plain,
            symbols: &symbols,
            args: &args,
            params: &attnc::ir::interp::NoParams,
            limits: Limits::default(),
        };
        let given = interp::run_in(module, &call, &mut states);
        given.unwrap_or_else(|e| panic!("{} at {sizes:?}: {e}\n{}", planned.entry.name, text::print(&module))).results
    };
    sizes_of(planned).into_iter().enumerate().map(call).collect()
}

/// A plan as text, with its kernels.
fn shown(planned: &Planned) -> String {
    let module = Module {
        name: "random".into(),
        sites: sites(),
        entries: vec![planned.entry.clone()],
        plans: vec![planned.plan.clone()],
        kernels: planned.kernels.clone(),
        states: planned.states.clone(),
        ..Module::default()
    };
    text::print(&module)
}

/// Plans mean the same scheduled and compiled, to the bit: loops, branches, slots, states, lengths, views.
#[test]
fn plans_are_kept_and_compiled_to_the_bit() {
    // A plan has some kernels; there are a quarter as many.
    let kernels = seeds(KERNELS);
    let seeds = kernels.start..kernels.start + (kernels.end - kernels.start).div_ceil(4);
    let levels = compiled::levels();
    for first in seeds.clone().step_by(GROUP as usize) {
        let plans: Vec<Planned> = (first..seeds.end.min(first + GROUP)).map(gen_plan::make).collect();
        let mut module = Module { name: "random".into(), sites: sites(), ..Module::default() };
        for p in &plans {
            module.entries.push(p.entry.clone());
            module.plans.push(p.plan.clone());
            module.kernels.extend(p.kernels.iter().cloned());
            module.states.extend(p.states.iter().cloned());
        }
        let printed = text::print(&module);
        let read = text::parse(&printed, SourceMap::new().add("random.tir", printed.as_str()));
        let read = read.unwrap_or_else(|d| panic!("{:?}\n{printed}", d.sorted())).module;
        assert_eq!(text::print(&read), printed);
        let open = verify::VerifiedModule::new(module).unwrap_or_else(|e| panic!("plans from {first}:\n{e}"));
        let level = levels[usize::try_from(first / GROUP).unwrap() % levels.len()];
        let scheduled = attnc::tile::schedule(&open, level, &WeightChoice::default()).unwrap_or_else(|e| panic!("{e}"));
        let target = cpu::Arch::host().triple().to_string();
        let model = descriptor::describe(&scheduled.interface(), "Random", "", &target).unwrap();
        let made = compiled::compile(&[cpu::Tier { level, module: scheduled.verified(), gpu: None }], &model);
        let folder = tempfile::tempdir().unwrap();
        let so = folder.path().join("model.so");
        link::link(&made.objects(), &so).unwrap_or_else(|e| panic!("{e}"));
        // SAFETY: linked just above.
        let model = unsafe { CompiledModel::open(&so, None, 1) }.unwrap_or_else(|e| panic!("{e}"));
        for planned in &plans {
            let want = interpreted(open.verified(), planned);
            let mut session = model.session().unwrap();
            let entry = model.entry(&planned.entry.name).unwrap();
            let calls = sizes_of(planned).into_iter().enumerate();
            let run = |(n, sizes): (usize, BTreeMap<String, i64>)| {
                session
                    .call(entry, &arguments(planned, &sizes, n as u64))
                    .unwrap_or_else(|e| panic!("{}: {e}", planned.entry.name))
            };
            let got: Vec<Vec<Tensor>> = calls.map(run).collect();
            for (how, given) in
                [("scheduled", interpreted(scheduled.verified(), planned)), (level.name().as_str(), got)]
            {
                for (n, (want, given)) in want.iter().zip(&given).enumerate() {
                    for (want, given) in want.iter().zip(given) {
                        if let Some(difference) = compiled::other_bits(want, given) {
                            panic!("{}, {how}, call {n}: {difference}\n{}", planned.entry.name, shown(planned));
                        }
                    }
                }
            }
        }
    }
}
