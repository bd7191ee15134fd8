//! Is every CLIF text compiled or refused, whatever it asks of Cranelift, and never a panic or an abort?

use std::process::Command;

use attnc::codegen::cpu::{Arch, clif};
use attnc::random::Random;
use cranelift_codegen::ir::Opcode;

/// Compiles a text for a machine: the assembly, or what is wrong with the text.
fn compile(text: &str, arch: Arch) -> Result<String, String> {
    let functions = clif::read(text, arch).map_err(|error| error.message)?;
    clif::assembly(&functions, arch, false)
}

/// Compiles for both machines; how many succeeded. What is refused has its reason.
fn both(text: &str) -> usize {
    let read = clif::read(text, Arch::X86);
    if let Err(error) = read {
        assert!(!error.message.is_empty(), "{text}");
        return 0;
    }
    let results = [Arch::X86, Arch::Aarch64].map(|arch| compile(text, arch));
    for result in &results {
        assert!(result.as_ref().err().is_none_or(|why| !why.is_empty()), "{text}");
    }
    results.iter().filter(|result| result.is_ok()).count()
}

const TYPES: [&str; 16] = [
    "i8", "i16", "i32", "i64", "i128", "f16", "f32", "f64", "f128", "i8x16", "i16x8", "i32x4", "i64x2", "f32x4",
    "f64x2", "i32x8",
];

/// Every opcode with every type, in each form that an instruction can have.
#[test]
fn every_instruction_is_compiled_or_refused() {
    let mut compiled = 0;
    for opcode in Opcode::all() {
        let op = opcode.to_string();
        for ty in TYPES {
            let lines = [
                format!("v9 = {op} v0"),
                format!("v9 = {op} v0, v1"),
                format!("v9 = {op} v0, v1, v0"),
                format!("v9 = {op}.{ty} v0"),
                format!("v9 = {op}.{ty} v2"),
                format!("v9 = {op}.i8 v0"),
                format!("v9 = {op}.i64 v0"),
                format!("v9 = {op}.i128 v0"),
                format!("v9 = {op}.f16 v0"),
                format!("v9 = {op}.f128 v0"),
                format!("v9 = {op}.{ty} 1"),
                format!("v9 = {op}.{ty} 0x1.0"),
                format!("v9 = {op} 0x1.0"),
                format!("v9 = {op} v0, 1"),
                format!("v9 = {op} v0, 255"),
                format!("v9 = {op} v0, v2"),
                format!("v9 = {op} v0, v1, 3"),
                format!("v9 = {op} slt v0, v1"),
                format!("v9 = {op} eq v0, v1"),
                format!("v9 = {op} v2, v0, v1"),
                format!("v9, v8 = {op} v0, v1"),
                format!("v9, v8 = {op} v0"),
                format!("v9 = {op}.{ty} v2+8"),
                format!("v9 = {op}.{ty} aligned v2"),
                format!("v9 = {op}.{ty} big v2"),
                format!("{op} v0, v2"),
                format!("{op} v0, v2+2147483647"),
                format!("v9 = {op}.{ty} add v2, v0"),
                format!("v9 = {op}.{ty} v2, v0, v1"),
                format!("{op} v2, user1"),
                format!("{op} user1"),
                op.to_string(),
                format!("v9 = {op}.{ty}"),
                format!("v9 = {op}.{ty} ss0"),
                format!("{op} v0, ss0"),
                format!("v9 = {op}.i64 fn0"),
                format!("v9 = {op} fn0(v0)"),
                format!("{op} v0"),
            ];
            for line in lines {
                let text = format!(
                    "function %f({ty}, {ty}, i64) -> {ty} {{\n    ss0 = explicit_slot 16\n    sig0 = ({ty}) -> {ty}\n    fn0 = %g sig0\n\
                     block0(v0: {ty}, v1: {ty}, v2: i64):\n    {line}\n    return v0\n}}\n"
                );
                compiled += both(&text);
            }
        }
    }
    assert!(compiled > 2000, "only {compiled} were compiled");
}

/// What a function says of itself.
#[test]
fn every_signature_is_compiled_or_refused() {
    let mut compiled = 0;
    let conventions = [
        "",
        "fast",
        "system_v",
        "windows_fastcall",
        "apple_aarch64",
        "probestack",
        "winch",
        "tail",
        "preserve_all",
        "patchable",
    ];
    for convention in conventions {
        for ty in TYPES {
            for (arg, result) in [
                (ty.to_string(), ty.to_string()),
                (format!("{ty} vmctx"), String::new()),
                (format!("{ty} sret"), String::new()),
                (format!("{ty} uext"), format!("{ty} sext")),
                (format!("{ty} sarg(64)"), String::new()),
                ([ty; 40].join(", "), [ty; 12].join(", ")),
            ] {
                let count = arg.split(", ").count();
                let args: Vec<String> = (0..count).map(|i| format!("v{i}: {ty}")).collect();
                let returned = vec!["v0"; result.split(", ").filter(|word| !word.is_empty()).count()].join(", ");
                let arrow = if result.is_empty() { String::new() } else { format!(" -> {result}") };
                let text = format!(
                    "function %f({arg}){arrow} {convention} {{\nblock0({}):\n    return {returned}\n}}\n",
                    args.join(", ")
                );
                compiled += both(&text);
            }
        }
    }
    assert!(compiled > 300, "only {compiled} were compiled");
    for text in [
        "function %f() {\n}\n",
        "function %f() {\nblock0:\n}\n",
        "function %f() {\nblock0:\n    return\nblock0:\n    return\n}\n",
        "function %f() {\n    ss0 = explicit_slot 4294967295\nblock0:\n    v0 = stack_addr.i64 ss0\n    return\n}\n",
        "function %f() {\n    ss0 = explicit_slot 4, align = 2147483648\nblock0:\n    v0 = stack_addr.i64 ss0\n    return\n}\n",
        "function %f() -> i64 {\n    gv0 = vmctx\n    gv1 = load.i64 notrap aligned gv0+0\nblock0:\n    v0 = global_value.i64 gv1\n    return v0\n}\n",
        "function %f() -> i64 {\n    gv0 = load.i64 notrap aligned gv0+0\nblock0:\n    v0 = global_value.i64 gv0\n    return v0\n}\n",
        "function %f(i32) {\nblock0(v0: i32):\n    br_table v0, block1, [block1, block0]\nblock1:\n    return\n}\n",
        "function %f() {\nblock0:\n    jump block9\n}\n",
        "function %f() -> i64 {\nblock0:\n    v1 -> v2\n    v2 -> v1\n    return v1\n}\n",
    ] {
        both(text);
    }
}

/// A number is what a table is made for, up to it; a text with large ones is refused before.
#[test]
fn large_numbers_are_refused_by_name() {
    for (line, word) in [
        ("block4000000000:", "block4000000000"),
        ("block0:\n    v4000000000 = iconst.i64 1", "v4000000000"),
        ("    ss4000000000 = explicit_slot 8\nblock0:", "ss4000000000"),
        ("    gv4000000000 = vmctx\nblock0:", "gv4000000000"),
        ("    sig4000000000 = ()\nblock0:", "sig4000000000"),
        ("    fn4000000000 = %g()\nblock0:", "fn4000000000"),
        ("    const4000000000 = 0x00\nblock0:", "const4000000000"),
        ("block99999999999999999999999:", "block99999999999999999999999"),
    ] {
        let text = format!("function %f() {{\n{line}\n    return\n}}\n");
        let error = clif::read(&text, Arch::X86).expect_err("a text that no memory has room for");
        assert!(error.message.starts_with(&format!("`{word}`: ")), "{}", error.message);
        assert_eq!(text.lines().nth(error.line - 1).map(|line| line.contains(word)), Some(true), "{}", error.line);
    }
    // Also if each function needs only a part of it.
    let many = "function %f() {\nblock1000000:\n    return\n}\n".repeat(1000);
    assert!(clif::read(&many, Arch::X86).is_err_and(|error| error.line < 30));
    // Numbers that are not entities may be anything.
    let text = "; block4000000000\nfunction u0:4000000000() -> i64 {\nblock0:\n    v0 = iconst.i64 4000000000\n    return v0\n}\n";
    assert!(compile(text, Arch::X86).is_ok());
}

/// A dump in which words are removed, repeated, exchanged or replaced.
#[test]
fn mutated_dumps_are_compiled_or_refused() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/03_masks.attn");
    let output = Command::new(env!("CARGO_BIN_EXE_attnc")).args([program, "--emit", "clif=-"]).output().expect("attnc");
    let dump = String::from_utf8(output.stdout).expect("a dump");
    // The smallest functions, so that there can be many mutations.
    let mut functions: Vec<&str> = dump.split("\n}\n").filter(|text| text.contains("function ")).collect();
    functions.sort_by_key(|text| text.len());
    let mut random = Random::new(7);
    let (mut refused, mut count) = (0, 0);
    for function in functions.iter().take(6) {
        let text = format!("{function}\n}}\n");
        let words: Vec<&str> = text.split_inclusive([' ', ',', '(', ')', '\n', '.']).collect();
        for _ in 0..150 {
            let mut words = words.clone();
            for _ in 0..=random.below(2) {
                let (i, j) = (random.below(words.len()), random.below(words.len()));
                match random.below(4) {
                    0 => drop(words.remove(i)),
                    1 => words.insert(i, words[j]),
                    2 => words.swap(i, j),
                    _ => {
                        let odd = [
                            "i128 ",
                            "f16 ",
                            "0 ",
                            "-1 ",
                            "v0 ",
                            "block1 ",
                            "i8x16 ",
                            "9223372036854775807 ",
                            "return\n",
                        ];
                        words[i] = random.pick(&odd);
                    }
                }
            }
            count += 1;
            refused += usize::from(compile(&words.concat(), Arch::X86).is_err());
        }
    }
    assert!(refused > count / 2, "{refused} of {count}");
}

/// The command says what the machine's code generator said, as an error in the text.
#[test]
fn a_panic_of_cranelift_is_an_error_of_the_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.clif");
    for (text, place) in [
        ("function %f() {\n}\n", "m.clif:1"),
        ("function %f(f16) -> f16 apple_aarch64 {\nblock0(v0: f16):\n    v1 = ceil v0\n    return v1\n}\n", ""),
        ("function %f(i128) -> i128 {\nblock0(v0: i128):\n    v1 = udiv v0, v0\n    return v1\n}\n", ""),
        ("function %f() {\nblock4000000000:\n    return\n}\n", "m.clif:2"),
    ] {
        std::fs::write(&path, text).expect("a file");
        let output =
            Command::new(env!("CARGO_BIN_EXE_attnc")).arg(&path).args(["--emit", "asm=-"]).output().expect("attnc");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}{err}");
        assert!(err.starts_with("error[E0720]") && err.contains(place), "{text}{err}");
        assert!(!err.contains("internal error") && !err.contains("panicked"), "{err}");
    }
}
