//! The steps of the schedule: their tables, and that a dump between two of them reads back and is scheduled on to the same end.

use std::collections::BTreeSet;

use attnc::observe::{Collected, Watch};
use attnc::passes::{self, Options, PASSES, Select, find_pass};
use attnc::source::SourceMap;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{
    self, CPU_STEPS, Cpu, GPU_STEPS, GpuArch, Machine, ScheduleOptions, State, WeightFormat, schedule_for, steps_of,
    text,
};
use attnc::{ir, lowering};

use crate::front;

/// A module scheduled as far as a step.
pub(crate) fn until(module: &VerifiedModule, machine: &Machine, step: &str) -> VerifiedModule {
    let watch = Watch { stop_after: Some(step.to_string()), ..Watch::default() };
    let made = schedule_for(module, machine, &ScheduleOptions::default(), &watch, &mut Collected::default());
    made.unwrap_or_else(|e| panic!("{step}: {e}")).0
}

/// Verified tile IR from its text.
fn read(source: &str) -> VerifiedModule {
    let mut sources = SourceMap::new();
    let file = sources.add("test.tir", source);
    let parsed = text::parse(source, file);
    let parsed = parsed.unwrap_or_else(|d| panic!("{}\n{source}", attnc::diagnostics::render_all(&d, &sources, false)));
    VerifiedModule::new(parsed.module).unwrap_or_else(|e| panic!("{e}"))
}

/// An example after the passes and lowering.
fn example(name: &str) -> VerifiedModule {
    let path = format!("{}/examples/{name}.attn", env!("CARGO_MANIFEST_DIR"));
    lowered(name, &std::fs::read_to_string(path).unwrap())
}

/// A program after the passes and lowering.
fn lowered(name: &str, source: &str) -> VerifiedModule {
    let mut module = front::module(name, source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"));
    passes::optimise(&mut module, &Options::default(), &mut Collected::default()).unwrap_or_else(|e| panic!("{e}"));
    lowering::tile::lower(ir::verify(&module).unwrap_or_else(|e| panic!("{e}"))).unwrap_or_else(|e| panic!("{e}"))
}

/// Examples with a matmul of one row, attention of few queries, masks, sorting, running sums, and loops.
const EXAMPLES: [&str; 5] = ["02_self_attention", "06_encoder_layer", "18_windows", "25_mamba", "31_beam"];

fn machines() -> Vec<Machine> {
    let cpus = [Cpu::PORTABLE, Cpu::AMX].map(Machine::from);
    cpus.into_iter().chain(GpuArch::ALL.map(Machine::from)).collect()
}

#[test]
fn steps_have_names_of_their_own() {
    for table in [CPU_STEPS, GPU_STEPS] {
        let names: BTreeSet<&str> = table.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), table.len());
        assert!(table.iter().all(|step| find_pass(step.name).is_err() && !step.summary.is_empty()));
        assert!(table.iter().any(|step| step.required));
    }
    for of_cpu in CPU_STEPS {
        let of_gpu = GPU_STEPS.iter().find(|step| step.name == of_cpu.name);
        assert!(of_gpu.is_none_or(|step| step.summary == of_cpu.summary), "{}", of_cpu.name);
        assert!(tile::find_step(of_cpu.name).is_ok());
    }
    assert_eq!(tile::find_step("pack-panel").err(), Some(Some("pack-panels")));
    assert!(!PASSES.is_empty());
}

/// The text after each step, read back and scheduled, ends as the module itself does; and each step run alone on the text before it gives
/// the text after it. Any other step alone leaves a valid module too, or says why it cannot.
#[test]
fn schedules_go_on_from_the_text_of_any_step() {
    let formats = [WeightFormat::F32, WeightFormat::Int8];
    let mut count = 0;
    for (name, (n, machine)) in
        EXAMPLES.iter().flat_map(|name| machines().into_iter().enumerate().map(move |m| (*name, m)))
    {
        let module = example(name);
        let options = ScheduleOptions { weights: formats[n % 2].into(), ..ScheduleOptions::default() };
        let watch = Watch { print_after: Select::All, dump_files: true, ..Watch::default() };
        let mut dumps = Collected::default();
        let (whole, _) =
            schedule_for(&module, &machine, &options, &watch, &mut dumps).unwrap_or_else(|e| panic!("{name}: {e}"));
        let end = text::print(&whole);
        assert_eq!(dumps.files.len(), steps_of(&machine).len());
        let mut before = String::new();
        let alone = |module: &VerifiedModule, step: &tile::Step| {
            let (watch, mut out) = (Watch::default(), Collected::default());
            tile::run_steps(module, &machine, std::slice::from_ref(step), &options, &watch, &mut out)
        };
        let mut last = module.clone();
        for ((_, dump), step) in dumps.files.iter().zip(steps_of(&machine)) {
            if name == EXAMPLES[0] || name == EXAMPLES[2] {
                let (at, made) = (format!("{name}, {}: {} alone", machine.name(), step.name), alone(&last, step));
                let wanted = if step.name == steps_of(&machine).last().unwrap().name { &end } else { dump };
                assert!(text::print(&made.unwrap_or_else(|e| panic!("{at}: {e}")).0) == *wanted, "{at}");
                last = read(dump);
            }
            if name == EXAMPLES[0] {
                steps_of(&machine).iter().for_each(|step| drop(alone(&last, step)));
            }
            let mark = format!("scheduled \"{}\"\n", step.name);
            assert!(dump.contains(&mark), "{dump}");
            // From the same text, the same follows.
            let kernels = dump.replacen(&mark, "", 1);
            if kernels == before {
                continue;
            }
            before = kernels;
            count += 1;
            let again = read(dump);
            assert_eq!(text::print(&again), *dump, "{name}, {}: {}", machine.name(), step.name);
            let made = schedule_for(&again, &machine, &options, &Watch::default(), &mut Collected::default());
            let made =
                text::print(&made.unwrap_or_else(|e| panic!("{name}, {}, from {}: {e}", machine.name(), step.name)).0);
            if made != end {
                let lines = similar::TextDiff::from_lines(&end, &made);
                let diff = lines.unified_diff().context_radius(2).to_string();
                panic!("{name}, {}, from {}:\n{diff}", machine.name(), step.name);
            }
        }
    }
    assert!(count >= 80, "{count} texts");
}

/// Without any step that is not required there is still a schedule, and each limit has one.
#[test]
fn any_limit_leaves_a_schedule() {
    let module = example("06_encoder_layer");
    for machine in machines() {
        let count = steps_of(&machine).iter().filter(|step| !step.required).count() as u64;
        let mut ends = BTreeSet::new();
        for limit in 0..=count {
            let watch = Watch { bisect_limit: Some(limit), ..Watch::default() };
            let mut said = Collected::default();
            let made = schedule_for(&module, &machine, &ScheduleOptions::default(), &watch, &mut said);
            let (made, _) = made.unwrap_or_else(|e| panic!("{}, {limit}: {e}", machine.name()));
            assert!(made.kernels.iter().all(|k| k.state != State::Unscheduled));
            assert_eq!(said.text.matches("bisect: running step").count() as u64, limit, "{}", said.text);
            assert_eq!(said.counts.runs, count);
            ends.insert(text::print(&made));
        }
        assert!(ends.len() >= 4, "{}: {} schedules", machine.name(), ends.len());
        let whole = until(&module, &machine, "no such step");
        assert!(ends.contains(&text::print(&whole)));
    }
}

/// The lines before and after `->` in the head of a step's file.
fn essay(file: &str) -> [Vec<&str>; 2] {
    let head = file.lines().map_while(|l| l.strip_prefix("//!")).map(|l| l.strip_prefix(' ').unwrap_or(l));
    let example: Vec<&str> = head.skip_while(|l| *l != "```text").skip(1).take_while(|l| *l != "```").collect();
    let middle = example.iter().position(|l| *l == "->").expect("an arrow");
    [example[..middle].to_vec(), example[middle + 1..].to_vec()]
}

/// A line of IR without its location, with single spaces.
fn plain(line: &str) -> String {
    let place = line.find(" loc(").filter(|_| line.ends_with(')'));
    line[..place.unwrap_or(line.len())].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Does the text have these lines, in this order, with any others where there is `...`?
fn shows(name: &str, shown: &[&str], text: &str) {
    let text: Vec<String> = text.lines().map(plain).collect();
    let mut rest = text.as_slice();
    for part in shown.split(|line| *line == "...").filter(|part| !part.is_empty()) {
        let part: Vec<String> = part.iter().map(|line| plain(line)).collect();
        let at = rest.windows(part.len()).position(|lines| lines == part);
        let at = at.unwrap_or_else(|| panic!("{name}: no {part:#?} in\n{}", rest.join("\n")));
        rest = &rest[at + part.len()..];
    }
}

/// What the head of a step's file shows is what the step does: of a module, whose second run does nothing, or of what a program has become
/// when its turn comes. Each step has an example.
#[test]
fn essays_are_true() {
    let (cpu, gpu) = (Machine::from(Cpu::AVX512), Machine::from(GpuArch::Sm80));
    let essays = [
        ("expand-attention", cpu, include_str!("../../src/tile/schedule/attention/expand.rs")),
        ("pack-panels", cpu, include_str!("../../src/tile/schedule/panels.rs")),
        ("split-sums", cpu, include_str!("../../src/tile/schedule/split_sums.rs")),
        ("read-in-place", cpu, include_str!("../../src/tile/schedule/windows.rs")),
        ("choose-modes", cpu, include_str!("../../src/tile/schedule/modes.rs")),
        ("place", cpu, include_str!("../../src/tile/schedule/place.rs")),
        ("use-tensor-cores", gpu, include_str!("../../src/tile/schedule/tensor_cores/mod.rs")),
        ("select-candidates", gpu, include_str!("../../src/tile/schedule/gpu/candidates.rs")),
        ("count-ranks", gpu, include_str!("../../src/tile/schedule/gpu/ranks.rs")),
        ("split-scans", gpu, include_str!("../../src/tile/schedule/gpu/scans.rs")),
        ("split-matmuls", gpu, include_str!("../../src/tile/schedule/gpu/divided.rs")),
        ("split-rows", gpu, include_str!("../../src/tile/schedule/gpu/long_rows.rs")),
        ("size-tiles", gpu, include_str!("../../src/tile/schedule/gpu/mod.rs")),
        ("hoist-reads", gpu, include_str!("../../src/tile/schedule/gpu/reads.rs")),
        ("share-slots", gpu, include_str!("../../src/tile/arena.rs")),
        ("fuse-loops", gpu, include_str!("../../src/tile/schedule/gpu/persistent.rs")),
    ];
    let has_essay = |step: &&tile::Step| essays.iter().any(|(name, ..)| *name == step.name);
    assert!(CPU_STEPS.iter().chain(GPU_STEPS).all(|step| has_essay(&step)));
    for (name, machine, file) in essays {
        let options = ScheduleOptions::default();
        let [before, after] = essay(file);
        if let Some(program) = before.iter().position(|line| *line == "...") {
            let source = before[..program].join("\n").replace("fn f(", "pub fn f(");
            let watch = Watch { dump_files: true, ..Watch::default() };
            let (module, mut dumps) =
                (lowered("essay.attn", &format!("model Test {{\n{source}\n}}\n")), Collected::default());
            schedule_for(&module, &machine, &options, &watch, &mut dumps).unwrap_or_else(|e| panic!("{name}: {e}"));
            let texts = [text::print(&module)].into_iter().chain(dumps.files.into_iter().map(|(_, text)| text));
            let texts: Vec<String> = texts.collect();
            let step = steps_of(&machine).iter().position(|step| step.name == name).expect("a step");
            shows(name, &before[program..], &texts[step]);
            shows(name, &after, &texts[step + 1]);
            continue;
        }
        let run = |text: &str| {
            let steps = tile::steps_named(&[name.to_string()], &machine).expect("a step");
            let (watch, mut out) = (Watch::default(), Collected::default());
            let made = tile::run_steps(&read(text), &machine, &steps, &options, &watch, &mut out);
            let made = text::print(&made.unwrap_or_else(|e| panic!("{name}: {e}")).0);
            made.replacen(&format!("scheduled \"{name}\"\n"), "", 1)
        };
        let [before, after] = [before, after].map(|lines| format!("module \"test.attn\"\n\n{}\n", lines.join("\n")));
        let made = run(&before);
        assert_eq!(made, text::print(&read(&after)), "{name}");
        assert_eq!(run(&made), made, "{name} again");
    }
}

/// A decoder's plan reads the length of its cache once, not in each layer; what a step changes is read in each.
#[test]
fn numbers_are_read_before_loops_that_do_not_write_them() {
    let changed = "model Test {
    state keys: f32[4, 8]
    state past: i32
    pub fn read(x: f32[8]) -> f32[4, 8] {
        for i in 0..3 {
            keys[past] = x + keys[i]
            past = past + 1
        }
        keys
    }
}
";
    // Layers of one parameter.
    let two = "layer L { at: i32 }
model Test {
    ls: [L; 2]
    pub fn read(x: f32[8]) -> f32 { x[ls[0].at] + x[ls[1].at] + x[ls[0].at] }
}
";
    let decoder = include_str!("../cuda/decoder.attn");
    for (source, expected) in [(decoder, (0, 2)), (changed, (1, 0)), (two, (0, 2))] {
        let module = lowered("test.attn", source);
        let made = until(&module, &Machine::from(GpuArch::Sm80), "share-slots");
        let plan = made.plans.iter().find(|p| p.name == "read").expect("a plan");
        let inside: std::collections::BTreeSet<_> =
            plan.body.cfg().loops().into_iter().flat_map(|l| l.blocks).collect();
        let reads = plan.body.insts().filter(|(_, _, d)| d.op.info().name == "load_scalar");
        let (within, before): (Vec<_>, Vec<_>) = reads.partition(|(block, ..)| inside.contains(block));
        assert_eq!((within.len(), before.len()), expected, "{}", text::print(&made));
    }
}
