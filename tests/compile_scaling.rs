//! Does compile time grow no faster than the program?
//!
//! Programs of several kinds are compiled in three sizes, each twice the one before. What is compared is the number of
//! instructions that the compiler executes, as callgrind counts them, so that the answer does not depend on the machine: the
//! step from the second size to the third costs about twice the step from the first to the second, where it would be four
//! times with work that grows with the square. What every run costs is in neither step. Without valgrind it says that
//! nothing was counted. Nor does it grow with the sizes of a model: four GPT-2s are one program.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The most that a step may cost, in steps of half its size. 2 is linear, 4 the square; sorting and maps cost a little more than 2.
const MOST: f64 = 3.0;

/// Instructions of `attnc` with these arguments on a program, whose success is as expected.
fn instructions(folder: &Path, program: &str, args: &[&str], succeeds: bool) -> f64 {
    std::fs::write(folder.join("program.attn"), program).expect("a program");
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env!("CARGO_BIN_EXE_attnc"))
        .args(args)
        .current_dir(folder)
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.success(), succeeds, "{text}");
    let counted = text.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, n)| n.trim());
    counted.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("callgrind counted nothing: {text}"))
}

/// Can instructions be counted here?
fn counts() -> bool {
    let there = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !there {
        eprintln!("no valgrind: instructions are not counted");
    }
    there
}

/// Compiles programs of `n`, `2 n` and `4 n` parts.
fn grows_with_the_program(name: &str, n: usize, program: impl Fn(usize) -> String, args: &[&str], succeeds: bool) {
    if !counts() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let count = |n| instructions(folder.path(), &program(n), args, succeeds);
    let (small, middle, large) = (count(n), count(2 * n), count(4 * n));
    let growth = (large - middle) / (middle - small);
    assert!(
        growth < MOST,
        "{name}: {n}, {}, {} parts take {small:.2e}, {middle:.2e}, {large:.2e} instructions: the second step is {growth:.2} \
         times the first",
        2 * n,
        4 * n
    );
}

/// A line for each of `n` parts.
fn lines(n: usize, line: impl Fn(usize) -> String) -> String {
    (0..n).fold(String::new(), |mut text, i| {
        let _ = writeln!(text, "{}", line(i));
        text
    })
}

/// A model whose only function has these statements.
fn forward(statements: &str) -> String {
    format!("model M {{ pub fn forward(x: f32[S], c: bool) -> f32[S] {{\nvar y = x\n{statements}y }} }}\n")
}

const COMPILE: &[&str] = &["program.attn", "-o", "program.so"];
/// Code for two instruction sets instead of all: what grows with control flow does so in each of them.
const TWO_SETS: &[&str] = &["program.attn", "--cpu", "avx2", "-o", "program.so"];
const CHECK: &[&str] = &["check", "program.attn"];

#[test]
fn doc_comments() {
    let model = "model M { pub fn forward(x: f32[S]) -> f32[S] { x } }\n";
    grows_with_the_program("doc comments", 350, |n| lines(n, |i| format!("/// {i}")) + model, CHECK, true);
    // Documentation of nothing is a warning for each line.
    let lost = |n| model.to_string() + &lines(n, |i| format!("/// {i}"));
    grows_with_the_program("doc comments at the end", 350, lost, CHECK, true);
}

#[test]
fn statements_in_sequence() {
    let ifs = |n| forward(&lines(n, |i| format!("if c {{ y = y + {i}.5 }}")));
    grows_with_the_program("`if`", 8, ifs, TWO_SETS, true);
    let fors = |n| forward(&lines(n, |i| format!("for i in 0..3 {{ y = y + {i}.5 }}")));
    grows_with_the_program("`for`", 6, fors, TWO_SETS, true);
    let plain = |n| forward(&lines(n, |i| format!("y = exp(y) * {i}.5 + sum(y)")));
    grows_with_the_program("operations in one block", 12, plain, COMPILE, true);
}

#[test]
fn carried_variables() {
    let program = |n: usize| {
        let declared = lines(n, |i| format!("var v{i} = x"));
        let assigned = lines(n, |i| format!("v{i} = v{i} + v{}", (i + 1) % n));
        let sum = lines(n, |i| format!("y = y + v{i}"));
        forward(&format!("{declared}for i in 0..3 {{\n{assigned}}}\n{sum}"))
    };
    grows_with_the_program("variables carried by a loop", 5, program, TWO_SETS, true);
}

#[test]
fn entry_points_and_layers() {
    let entries = |n| {
        let functions = lines(n, |i| format!("pub fn f_{i}(x: f32[S]) -> f32[S] {{ x * {i}.5 }}"));
        format!("model M {{\n{functions}}}\n")
    };
    grows_with_the_program("entry points", 6, entries, TWO_SETS, true);
    // Each kind of layer has two of the kind before, so that `2 n` parts are one level more.
    let nested = |n: usize| {
        let levels = n.ilog2();
        let mut text = "layer L0<D> { w: f32[D]\n fn forward(x: f32[S, D]) -> f32[S, D] { x * w } }\n".to_string();
        for i in 1..=levels {
            let below = i - 1;
            let _ = writeln!(
                text,
                "layer L{i}<D> {{ a: L{below}<D>\n b: L{below}<D>\n fn forward(x: f32[S, D]) -> f32[S, D] {{ b(a(x)) }} }}"
            );
        }
        text + &format!("model M<D = 4> {{ l: L{levels}<D>\n pub fn forward(x: f32[S, D]) -> f32[S, D] {{ l(x) }} }}\n")
    };
    grows_with_the_program("layers that have two of the next kind", 16, nested, TWO_SETS, true);
}

#[test]
fn names_that_are_not_known() {
    let values = |n| forward(&lines(n, |i| format!("let a{i} = unknown{i}")));
    grows_with_the_program("values", 600, values, CHECK, false);
}

/// Small, medium, large and XL are one program at four `--dim`s. A layer is compiled once, so four times as many layers of twice
/// the width cost the compiler no more than a few choices of tiles; nor does their code. PTX for both kinds of GPUs costs no more
/// than code for a level of processors: both are made of the same graph, by the same steps.
#[test]
fn gpt2_in_four_sizes_and_for_gpus() {
    let program =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/08_gpt2.attn")).expect("GPT-2");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("program.attn"), &program).expect("a program");
    let sizes = ["L=12,D=768,H=12", "L=24,D=1024,H=16", "L=36,D=1280,H=20", "L=48,D=1600,H=25"];
    const AVX2: [&str; 4] = ["--target", "cpu", "--cpu", "avx2"];
    const GPUS: [&str; 4] = ["--target", "cuda", "--cubins", "never"];
    let args = |dims: &'static str, target: [&'static str; 4]| {
        [&["program.attn", "--dim", dims, "--emit", "obj", "-o", "program.o"][..], &target].concat()
    };
    let code: Vec<u64> = sizes
        .map(|dims| {
            let mut attnc = Command::new(env!("CARGO_BIN_EXE_attnc"));
            let out = attnc.args(args(dims, AVX2)).current_dir(folder.path()).output().expect("attnc runs");
            assert!(out.status.success(), "{dims}: {}", String::from_utf8_lossy(&out.stderr));
            std::fs::metadata(folder.path().join("program.o")).expect("an object").len()
        })
        .to_vec();
    assert!(code.iter().all(|bytes| *bytes as f64 <= 1.3 * code[0] as f64), "bytes of objects: {code:?}");
    if counts() {
        let count = |dims, target| instructions(folder.path(), &program, &args(dims, target), true);
        let [small, extra, gpu] = [(sizes[0], AVX2), (sizes[3], AVX2), (sizes[0], GPUS)].map(|(d, t)| count(d, t));
        assert!(extra <= 1.3 * small, "small takes {small:.3e} instructions, XL {extra:.3e}");
        assert!(gpu < 1.5 * small, "{gpu:.2e} instructions for GPUs, {small:.2e} for a level of processors");
    }
}
