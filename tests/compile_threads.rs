//! Does compiling give the same object and the same texts on any number of threads?

use attnc::ir::interp::bounded;
#[path = "common/compiled.rs"]
mod compiled;
#[path = "common/front.rs"]
mod front;

use std::num::NonZero;

use attnc::codegen::{self, Generator, cpu, descriptor};
use attnc::passes;

/// Products with parameters and without, attention, runs with and without calls of libm; the same kernel twice, and kernels
/// that levels share.
const PROGRAM: &str = "
model Work {
    w: f32[96, 80]
    v: f32[80, 96]

    pub fn forward(x: f32[S, 96]) -> f32[S, 96] {
        let z = gelu(x @ w)
        let a = softmax(where(causal(S, S), z @ z.T / 9.0, -inf)) @ z
        let s = sin(a) + log(1.0 + a * a)
        s @ v + x
    }

    pub fn other(x: f32[S, 96], i: i32[T]) -> f32[T, 80] {
        gelu(x @ w)[i]
    }
}
";

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let module = front::module("work.attn", PROGRAM, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"));
    let module = compiled::optimised(module, &passes::Options::default());
    let levels = cpu::levels().iter().map(|level| (*level, compiled::scheduled(&module, *level)));
    let tiles: Vec<_> = levels.collect();
    let tiers: Vec<_> = tiles.iter().map(|(level, module)| compiled::tier(*level, module)).collect();
    let model = descriptor::describe(&module.interface(), "Work", "", &cpu::Arch::host().triple().to_string()).unwrap();
    let made = |threads| {
        let wanted =
            cpu::EmitOptions { clif: true, asm: true, threads: NonZero::new(threads), ..cpu::EmitOptions::default() };
        codegen::compile(Generator::Cranelift, &tiers, &model, wanted).unwrap_or_else(|e| panic!("{e}"))
    };
    let alone = made(1);
    assert!(alone.clif.contains("portable.kernel.") && alone.asm.contains("portable.plan.forward"));
    assert!(cpu::levels().len() == 1 || alone.asm.contains("leaf.dot.avx512"));
    // Without a number, as many as the machine has.
    for threads in [0, 2, 3, 64] {
        let together = made(threads);
        assert!(together.object == alone.object, "{threads} threads give another object");
        assert_eq!(together.clif, alone.clif, "{threads} threads");
        assert_eq!(together.asm, alone.asm, "{threads} threads");
    }
}
