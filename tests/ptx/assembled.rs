//! Does the assembler take what the table says is legal, from the version and processor on that it says, and nothing before?

use std::collections::BTreeMap;
use std::path::Path;

use attnc::ptx::text::{parse, print, printed};
use attnc::ptx::words::Columns;
use attnc::ptx::{Module, Op, Target, Version, verify};
use attnc::random::Random;

use crate::{generate, ptxas};

/// All opcodes; of the shapes of `wgmma`, which take long, some.
fn opcodes() -> Vec<Op> {
    let some = |columns: Columns| matches!(columns.0, 8 | 24 | 64 | 176 | 256);
    let all = Op::all().iter().copied();
    all.filter(|op| match op {
        Op::Wgmma { columns, .. } | Op::WgmmaRegisters { columns, .. } => some(*columns),
        _ => true,
    })
    .collect()
}

/// The version and processor that an opcode needs, and no more.
fn least(op: Op) -> (Version, Target) {
    let target = op.needs().least();
    (op.needs().version.max(target.version().expect("a known processor")), target)
}

/// One of each kind of instruction.
fn kinds(ops: &[Op]) -> Vec<Op> {
    let mut kinds: BTreeMap<(&str, Version, Target), Op> = BTreeMap::new();
    for op in ops {
        let (version, target) = least(*op);
        kinds.entry((op.meaning(), version, target)).or_insert(*op);
    }
    kinds.into_values().collect()
}

/// Assembles a module that the verifier accepts, and says what is refused.
fn refused(ptxas: &Path, module: &Module, processor: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Err(errors) = verify(module) {
        wrong.extend(errors.iter().map(|e| format!("verifier: {e}")));
    }
    let out = printed(module);
    let said = ptxas::assemble(ptxas, &out.text, processor, &["-O0"]);
    if !said.ok {
        let lines: Vec<&str> = out.text.lines().collect();
        for line in said.text.lines().filter(|l| l.contains("error") || l.contains("fatal")) {
            let number =
                line.split_once(", line ").and_then(|(_, r)| r.split(';').next()?.trim().parse::<usize>().ok());
            let shown = number.and_then(|n| lines.get(n - 1)).copied().unwrap_or_default();
            wrong.push(format!("{} {processor}: {line}: {}", module.version, shown.trim()));
        }
    }
    wrong
}

#[test]
fn every_opcode_is_assembled_by_the_least_that_it_needs() {
    ptxas::with("the assembling of every opcode", |ptxas| {
        let mut random = Random::new(1);
        let mut groups: BTreeMap<(Version, Target), Vec<Op>> = BTreeMap::new();
        for op in opcodes() {
            groups.entry(least(op)).or_default().push(op);
        }
        let mut wrong = Vec::new();
        for ((version, target), ops) in groups {
            for ops in ops.chunks(800) {
                let mut module = Module { version, target, ..Module::new() };
                for (n, ops) in ops.chunks(40).enumerate() {
                    let mut g = generate::start(&format!("kernel{n}"), 2, &mut random);
                    for op in ops {
                        g.add(*op, op.ends(), &mut random);
                    }
                    module.kernels.push(g.finish());
                }
                wrong.extend(refused(ptxas, &module, &target.to_string()));
            }
        }
        assert!(wrong.is_empty(), "{} are refused:\n{}", wrong.len(), wrong.join("\n"));
    });
}

/// The table does not ask for more than needed: with the version or the processor before, the assembler refuses.
#[test]
fn nothing_is_assembled_by_less_than_it_needs() {
    ptxas::with("the least versions and processors", |ptxas| {
        let mut random = Random::new(2);
        let mut wrong = Vec::new();
        for op in kinds(&opcodes()) {
            let (version, target) = least(op);
            let mut g = generate::start("kernel", 2, &mut random);
            g.add(op, op.ends(), &mut random);
            let mut module = Module { version, target, ..Module::new() };
            module.kernels.push(g.finish());
            assert_eq!(module.lowest(), (version, target), "{}", op.text());
            // The same version with the processor before, and the other way round, where that names the processor at all.
            let known = Target::KNOWN.iter().map(|(target, _)| *target);
            let before = known.filter(|t| *t < target).max();
            let versions = [(7, 0), (7, 1), (7, 4), (7, 7), (7, 8), (8, 0)].map(|(a, b)| Version(a, b));
            let older = versions.into_iter().filter(|v| *v < version).max();
            let older = older.filter(|v| target.version().is_some_and(|first| first <= *v));
            for (version, target) in before.map(|t| (version, t)).into_iter().chain(older.map(|v| (v, target))) {
                let module = Module { version, target, ..module.clone() };
                let errors = verify(&module).expect_err("more is needed");
                assert!(errors.iter().any(|e| e.message.contains("set `.")), "{errors:?}");
                if ptxas::assemble(ptxas, &print(&module), &target.to_string(), &["-O0"]).ok {
                    wrong.push(format!("{version} {target}: {}", op.text()));
                }
            }
        }
        assert!(wrong.is_empty(), "these are assembled by less than the table says:\n{}", wrong.join("\n"));
    });
}

/// One file runs on all later processors: what is for sm_80 is assembled for sm_90a and sm_100 as it is.
#[test]
fn random_modules_are_assembled() {
    ptxas::with("the assembling of random modules", |ptxas| {
        let mut wrong = Vec::new();
        let mut count = 0;
        for seed in 0..40 {
            let module = generate::module(seed);
            let target = module.target;
            let processors: &[&str] = match (target.sm, target.alone) {
                (_, true) => &["sm_90a"],
                (80, false) => &["sm_80", "sm_90a", "sm_100"],
                (_, false) => &["sm_90a", "sm_100"],
            };
            // Mixed generations have no processor.
            if let Err(errors) = verify(&module) {
                assert!(errors.iter().all(|e| e.message.contains("needs sm_")), "{seed}: {errors:?}");
                continue;
            }
            let back = parse(&print(&module)).expect("what is printed is read");
            for processor in processors {
                count += 1;
                wrong.extend(refused(ptxas, &back, processor).iter().map(|e| format!("{seed}: {e}")));
            }
        }
        assert!(count > 40, "{count}");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
