//! Is what the command shows the same every time, and can it be taken up again?
//!
//! Every example is compiled from its program and from each of its dumps; what comes out must be the same bytes.

use crate::fixtures;

use std::path::Path;
use std::process::Command;

/// Runs attnc, which must succeed without a word, and gives stdout.
fn attnc(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).output().expect("attnc starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "attnc {}: {err}", args.join(" "));
    String::from_utf8(output.stdout).expect("text")
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The files of an output folder by name, without the first line of dumps (it names the file that was compiled).
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).expect("an output");
        let is_dump =
            ["air", "dot", "tir", "vir", "clif", "mir", "s"].iter().any(|ending| name.ends_with(&format!(".{ending}")));
        let skip = if is_dump { bytes.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1) } else { 0 };
        let mut content = bytes[skip..].to_vec();
        if name.ends_with(".vir") {
            // Comments about code in a dump are not part of the text.
            let text = String::from_utf8_lossy(&content).into_owned();
            let lines = text.lines().filter(|line| !line.starts_with("//"));
            content = lines.collect::<Vec<_>>().join("\n").trim().as_bytes().to_vec();
        }
        found.push((name, content));
    }
    found.sort();
    found
}

/// Assembly without comments.
fn code_alone(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let code = text.lines().map(|line| {
        let line = line.split_once("*/").map_or(line, |(_, code)| code);
        line.split_once('#').map_or(line, |(code, _)| code).trim().to_string()
    });
    code.filter(|line| !line.is_empty()).collect()
}

fn compare(what: &str, first: &[(String, Vec<u8>)], second: &[(String, Vec<u8>)]) {
    for (name, bytes) in second {
        let (_, expected) = first.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("{name}"));
        assert!(bytes == expected, "{what}: {name} is another");
    }
}

#[test]
fn the_same_comes_out_again_and_from_every_dump() {
    const LATER: &str = "tile,vector,clif,mir,asm,obj,so,header,python";
    // A text of tile IR has one level, so one level is compared.
    const LEVEL: [&str; 2] = ["--cpu", "portable"];
    let attnc = |args: &[&str]| self::attnc(&[args, &LEVEL].concat());
    for example in fixtures::EXAMPLES {
        let folder = tempfile::tempdir().expect("a folder");
        // Each in a folder of its own: no path may get into an output.
        let place = |name: &str| {
            let folder = folder.path().join(name);
            std::fs::create_dir_all(&folder).expect("a folder");
            (text(&folder.join("m")), folder)
        };
        let (out, first) = place("first");
        let program = text(&fixtures::program(example));
        let all = format!("tokens,ast,types,ir,dot,{LATER}");
        attnc(&[&program, "--emit", &all, "-o", &out]);
        let expected = contents(&first);

        let (out, again) = place("again");
        attnc(&[&program, "--emit", &all, "-o", &out]);
        compare("once more", &expected, &contents(&again));

        let (out, from) = place("from_graph");
        attnc(&[&text(&first.join("m.air")), "--emit", &format!("ir,dot,{LATER}"), "-o", &out]);
        compare(&format!("{example} from its graph IR"), &expected, &contents(&from));

        let (out, from) = place("from_tiles");
        attnc(&[&text(&first.join("m.tir")), "--emit", LATER, "-o", &out]);
        compare(&format!("{example} from its tile IR"), &expected, &contents(&from));

        let (out, from) = place("from_vector");
        attnc(&[&text(&first.join("m.vir")), "--emit", "vector", "-o", &format!("{out}.vir")]);
        compare(&format!("{example} from its vector IR"), &expected, &contents(&from));

        let (out, from) = place("from_clif");
        attnc(&[&text(&first.join("m.clif")), "--emit", "clif,asm", "-o", &out]);
        let made = contents(&from);
        let (assembly, others): (Vec<_>, Vec<_>) = made.into_iter().partition(|(name, _)| name.ends_with(".s"));
        compare(&format!("{example} from its CLIF"), &expected, &others);
        // The code is the same; CLIF knows neither addresses in the object nor what its code comes from.
        let whole = expected.iter().find(|(name, _)| name.ends_with(".s")).expect("assembly");
        let [again] = assembly.as_slice() else { panic!("one assembly of {example}") };
        assert!(code_alone(&whole.1) == code_alone(&again.1), "{example}: other code from its CLIF");
    }
}

/// The first line of a dump, run in the program's folder, makes the dump again.
#[test]
fn the_first_line_makes_the_dump_again() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let options: [&[&str]; 4] = [
        &[],
        &["--dim", "S=5", "-O1"],
        &["-O0", "--float", "strict"],
        &["--stop-after", "fuse-attention", "--entry", "SelfAttention", "--cpu", "avx2"],
    ];
    for more in options {
        for kind in ["ir", "dot", "tile", "vector", "clif", "mir", "asm"] {
            let program = format!("{examples}/02_self_attention.attn");
            let emit = format!("{kind}=-");
            let dump = attnc(&[&[program.as_str(), "--emit", &emit], more].concat());
            let first = dump.lines().next().expect("a dump has lines");
            let (_, command) = first.split_once(" attnc ").expect("a comment with a command");
            let args: Vec<&str> = command.split(' ').collect();
            let output = Command::new(env!("CARGO_BIN_EXE_attnc"))
                .args(&args)
                .args(["-o", "-"])
                .current_dir(examples)
                .output()
                .expect("attnc starts");
            assert_eq!(String::from_utf8_lossy(&output.stdout), dump, "{first}");
        }
    }
}

/// `--function` shows one entry point in `ir` and `dot`; a graph has each entry point once, without its taps.
#[test]
fn one_entry_point_is_shown() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/small.attn");
    let functions = |dump: &str, before: &str| -> Vec<String> {
        let rest = dump.lines().filter_map(|line| line.trim().strip_prefix(before));
        rest.map(|rest| rest.split(['(', ' ']).next().unwrap_or_default().to_string()).collect()
    };
    let module = attnc(&[program, "--emit", "ir=-"]);
    let all = functions(&module, "func @");
    let mut once = all.clone();
    once.dedup();
    assert!(once.len() < all.len() && once.len() > 3, "some have taps: {all:?}");
    assert_eq!(functions(&attnc(&[program, "--emit", "dot=-"]), "label=\"func @"), once);
    let shown = attnc(&[program, "--emit", "ir=-", "--function", "affine"]);
    assert_eq!(functions(&shown, "func @"), ["affine", "affine"]);
    let drawn = attnc(&[program, "--emit", "dot=-", "--function", "affine"]);
    assert_eq!(functions(&drawn, "label=\"func @"), ["affine"]);
    for (args, message) in [
        (
            ["--emit", "dot=-", "--function", "afine"],
            "there is no entry point `afine`; did you mean `affine`? (there are ",
        ),
        (["--emit", "tile=-", "--function", "affine"], "`--function` needs `--emit ir` or `dot`"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_attnc")).arg(program).args(args).output().expect("attnc runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(message), "{args:?}: {stderr}");
    }
}

/// Unscheduled kernels can be written by hand: a `.tir` file with one is scheduled and compiled.
#[test]
fn texts_without_a_model_compile_to_functions() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.clif");
    std::fs::write(&path, "function %f(i64) -> i64 {\nblock0(v0: i64):\n    v1 = iadd v0, v0\n    return v1\n}\n")
        .expect("a file");
    let again = attnc(&[&text(&path), "--emit", "clif=-"]);
    assert_eq!(again.lines().next(), Some("; attnc m.clif --emit clif"));
    assert!(again.contains("v1 = iadd v0, v0"), "{again}");
    let output = Command::new(env!("CARGO_BIN_EXE_attnc")).args([&text(&path), "-o", "x.so"]).output().expect("attnc");
    assert_eq!(output.status.code(), Some(2), "functions alone are no model");
    // Kernels call leaf functions of each instruction set with numbers of another type in their place.
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/02_self_attention.attn");
    for level in ["portable", "avx2", "avx512"] {
        attnc(&[program, "--cpu", level, "--emit", &format!("clif={}", text(&path))]);
        let again = attnc(&[&text(&path), "--emit", "clif=-"]);
        let functions = |text: &str| text.split_once('\n').map(|(_, rest)| rest.to_string());
        assert_eq!(functions(&again), functions(&std::fs::read_to_string(&path).expect("a text")), "{level}");
    }
}
