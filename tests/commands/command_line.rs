//! Does the command give the right exit code, and diagnostics on stderr alone, whatever it is given?

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

fn attnc(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    command.args(args).env_remove("NO_COLOR");
    command
}

fn run(args: &[&str]) -> Output {
    attnc(args).output().expect("attnc starts")
}

/// Exit code, stdout and stderr.
pub(crate) fn outcome(args: &[&str]) -> (i32, String, String) {
    let output = run(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/syntax/small.attn");

/// A file with the given bytes, in a folder that goes away with the returned guard.
pub(crate) fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("a temporary file");
    let path = path.to_string_lossy().into_owned();
    (folder, path)
}

#[test]
fn wrong_command_lines_are_exit_code_2() {
    for args in [
        &["--nonsense"][..],
        &["check"],
        &["explain", "E9999"],
        &[PROGRAM, "--emit", "wasm"],
        &[PROGRAM, "--emit", "ast,ast"],
        &[PROGRAM, "--emit", "tokens,ast", "-o", "-"],
        &[PROGRAM, "--emit", "tokens=x,ast=x"],
        &[PROGRAM, "--dim", "S=many"],
    ] {
        let (code, out, err) = outcome(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.starts_with("error: "), "{args:?}: {err}");
    }
}

#[test]
fn files_that_cannot_be_read_are_diagnosed() {
    let folder = env!("CARGO_MANIFEST_DIR");
    for (path, code, text) in [
        (folder, 3, "it is a directory"),
        ("/nowhere/at/all.attn", 3, "no such file"),
        (env!("CARGO_BIN_EXE_attnc"), 1, "is"),
    ] {
        for args in [&["check", path][..], &[path, "--emit", "ast=-"]] {
            let (exit, out, err) = outcome(args);
            assert_eq!((exit, out.as_str()), (code, ""), "{args:?}: {err}");
            assert!(err.starts_with("error[E00") && err.contains(text), "{err}");
        }
    }
}

#[test]
fn a_text_that_is_not_utf8_names_the_byte() {
    let (_folder, path) = file("a.attn", b"fn f() {}\n\xff\n");
    let (code, _, err) = outcome(&["check", &path]);
    assert_eq!(code, 1);
    assert!(err.contains("E0002") && err.contains("byte 0xff in line 2"), "{err}");
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    let (_folder, path) = file("a.attn", &vec![b' '; (4 << 20) + 1]);
    let (code, _, err) = outcome(&["check", &path]);
    assert_eq!(code, 1);
    assert!(err.contains("E0003"), "{err}");
}

#[test]
fn success_is_silent() {
    let (_folder, path) = file("a.attn", b"model M { pub fn f(x: f32[S]) -> f32[S] { x } }\n");
    assert_eq!(outcome(&["check", &path]), (0, String::new(), String::new()));
}

#[test]
fn errors_of_the_program_are_exit_code_1() {
    let (_folder, path) = file("a.attn", b"fn f(x: f32[S]) -> f32[S] { x + }\n");
    let (code, out, err) = outcome(&["check", &path]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("error[E0101]") && err.contains("a.attn:1:"), "{err}");
    assert!(!err.contains('\u{1b}'), "no colours where stderr is no terminal: {err}");
    let (_, _, coloured) = outcome(&["check", &path, "--color", "always"]);
    assert!(coloured.contains('\u{1b}'), "{coloured}");
}

#[test]
fn tokens_and_trees_go_where_they_are_sent() {
    let (code, out, err) = outcome(&[PROGRAM, "--emit", "ast=-"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("1:1     model Small\n"), "{out}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("out");
    let (code, out, _) = outcome(&[PROGRAM, "--emit", "tokens,ast", "-o", &output.to_string_lossy()]);
    assert_eq!((code, out.as_str()), (0, ""));
    for name in ["out.tokens", "out.ast"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
    let (code, _, err) = outcome(&[PROGRAM, "--emit", "ast", "-o", "/nowhere/at/all.ast"]);
    assert_eq!(code, 3);
    assert!(err.contains("E0004"), "{err}");
}

#[test]
fn programs_are_read_from_stdin() {
    let mut command = attnc(&["check", "-"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("attnc starts");
    child.stdin.take().expect("stdin is a pipe").write_all(b"fn f( {}\n").expect("attnc reads");
    let output = child.wait_with_output().expect("attnc ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("<stdin>:1:"));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for args in [&[PROGRAM, "--emit", "ast=-"][..], &["explain"], &["--help"], &["explain", "E0101"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = attnc(args).stdout(writer).stderr(Stdio::piped()).output().expect("attnc starts");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = attnc(&["check", "/nowhere/at/all"]).stderr(writer).status().expect("attnc starts");
    assert_eq!(status.code(), Some(3));
}

#[test]
fn explain_shows_the_rule_and_both_programs() {
    let (code, out, err) = outcome(&["explain", "e0105"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for part in ["E0105: ", "This fails:", "Corrected:", "    let y = exp("] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (_, all, _) = outcome(&["explain"]);
    assert!(all.lines().count() >= 25, "{all}");
}

#[test]
fn opt_runs_the_passes_it_is_told() {
    let text = "module \"a.attn\"\n\nfunc @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  %1 = exp %0                           : f32[S]\n  %2 = neg %1                           : f32[S]\n  return %2\n}\n";
    let (folder, path) = file("a.air", text.as_bytes());
    assert_eq!(outcome(&["opt", &path, "--passes", ""]), (0, text.to_string(), String::new()));
    let (code, out, err) = outcome(&["opt", &path, "--passes", "fuse-map", "--print-changed=diff", "--remarks"]);
    assert_eq!(code, 0);
    assert!(out.contains("fused map"), "{out}");
    assert!(err.starts_with("// -----// IR Dump After fuse-map //----- //\n") && err.contains("remark: "), "{err}");
    let dumps = folder.path().join("dumps");
    let list = ["opt", &path, "--passes", "fuse-rows,fuse-map", "--dump-dir", &dumps.to_string_lossy()];
    assert_eq!(outcome(&[&list[..], &["--stop-after", "fuse-rows"]].concat()).0, 0);
    assert!(dumps.join("01-fuse-rows.air").exists() && !dumps.join("02-fuse-map.air").exists());
    assert_eq!(outcome(&["opt", &path, "--passes", "fuse-mop"]).0, 2);
    assert_eq!(outcome(&["opt", &path, "--print-after", "fuse-mop"]).0, 2);
    let (_folder, broken) = file("b.air", b"func @f(\n");
    let (code, out, err) = outcome(&["opt", &broken]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("error[E07"), "{err}");
}

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/02_self_attention.attn");

/// What is shown of the passes goes to stderr, whatever is compiled.
#[test]
fn compiling_shows_its_passes() {
    let compile = |more: &[&str]| {
        let (code, out, err) = outcome(&[&[EXAMPLE, "--emit", "ir=-"], more].concat());
        assert_eq!(code, 0, "{more:?}: {err}");
        assert!(out.starts_with("// attnc 02_self_attention.attn"), "{out}");
        (out, err)
    };
    let (plain, err) = compile(&[]);
    assert_eq!(err, "");
    assert!(plain.contains(" = attention "), "{plain}");
    let (_, err) = compile(&["--print-before", "fuse-attention", "--print-after=fuse-attention"]);
    for when in ["Before", "After"] {
        assert!(err.contains(&format!("// -----// IR Dump {when} fuse-attention //----- //\nmodule ")), "{err}");
    }
    let (_, err) = compile(&["--remarks", "--stats", "--time-passes"]);
    for part in
        ["remark: 02_self_attention.attn:", "fuse-attention: attentions fused", "ms  parse", "ms  passes", "ms  total"]
    {
        assert!(err.contains(part), "{part}: {err}");
    }
    let (stopped, _) = compile(&["--stop-after", "simplify"]);
    assert!(!stopped.contains(" = attention "), "{stopped}");
    assert!(stopped.lines().next().is_some_and(|line| line.ends_with(" --stop-after simplify --emit ir")), "{stopped}");
    let (none, err) = compile(&["--bisect-limit", "0"]);
    assert!(none.contains(" = softmax ") && err.contains("bisect: not running pass (1)"), "{none}{err}");
    let (strict, _) = compile(&["--float", "strict"]);
    assert!(!strict.contains(" = attention "), "{strict}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    compile(&["--dump-dir", &folder.path().join("dumps").to_string_lossy(), "--verify-each=false"]);
    assert!(std::fs::read_dir(folder.path().join("dumps")).expect("the dumps").count() > 8);
}

/// Steps of the schedule are shown, counted and stopped at as passes are; a text that was stopped at goes on to the same end.
#[test]
fn steps_of_the_schedule_are_shown() {
    for target in [&["--cpu", "avx512"][..], &["--target", "cuda", "--gpu", "sm_80"]] {
        let compile =
            |file: &str, emit: &str, more: &[&str]| outcome(&[&[file, "--emit", emit], target, more].concat());
        let body = |text: &str| text.split_once('\n').map(|(_, rest)| rest.to_string()).unwrap_or_default();
        let (code, whole, err) = compile(EXAMPLE, "tile=-", &[]);
        assert_eq!((code, err.as_str()), (0, ""));
        let (_, same, err) =
            compile(EXAMPLE, "tile=-", &["--print-before", "place", "--print-after=expand-attention", "--time-passes"]);
        assert_eq!(whole, same);
        for part in [
            "IR Dump Before place //",
            "IR Dump After expand-attention //",
            "// time of the schedule for ",
            "ms   1 x  place",
        ] {
            assert!(err.contains(part), "{part}: {err}");
        }
        let (_, _, err) = compile(EXAMPLE, "tile=-", &["--bisect-limit", "100000"]);
        let (passes, steps) = (err.matches(" pass (").count(), err.matches(" step (").count());
        assert!(passes > 20 && steps >= 6, "{err}");
        assert!(err.contains(&format!("bisect: running step ({}) ", passes + 1)), "{err}");
        let (_, _, err) = compile(EXAMPLE, "tile=-", &["--bisect-limit", &passes.to_string()]);
        assert!(err.contains(&format!("bisect: not running step ({}) ", passes + 1)), "{err}");
        let (_, half, _) = compile(EXAMPLE, "tile=-", &["--stop-after", "read-in-place"]);
        assert!(half.contains(" = window ") && !half.contains(" scratch("), "{half}");
        let (_folder, path) = file("half.tir", half.as_bytes());
        let (code, end, err) = compile(&path, "tile=-", &[]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(body(&end), body(&whole));
        // The steps after it, told by name, and the rest of the schedule.
        for more in [&["--passes", "choose-modes,share-slots,place,fuse-loops"][..], &[]] {
            let more = if target.len() > 2 || more.is_empty() {
                more
            } else {
                &["--passes", "choose-modes,share-slots,place"]
            };
            let (code, end, err) = outcome(&[&["opt", &path][..], target, more].concat());
            assert_eq!((code, end, err.as_str()), (0, body(&whole), ""));
        }
        let (_, end, err) = outcome(&[&["opt", &path, "--passes", "", "--remarks"][..], target].concat());
        assert_eq!((end, err.as_str()), (body(&half), ""));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let dumps = folder.path().join("dumps");
        compile(EXAMPLE, "tile=-", &["--dump-dir", &dumps.to_string_lossy()]);
        let names: Vec<String> = std::fs::read_dir(dumps)
            .expect("dumps")
            .map(|e| e.expect("a dump").file_name().to_string_lossy().into())
            .collect();
        assert!(
            names.iter().any(|name| name.ends_with("-place.tir"))
                && names.iter().any(|name| name.ends_with("-cse.air"))
        );
    }
    let (code, _, err) = outcome(&[EXAMPLE, "--emit", "asm=-", "--stop-after", "pack-panels"]);
    assert!(code == 2 && err.contains("not scheduled to the end"), "{code}: {err}");
    let (code, _, err) = outcome(&[EXAMPLE, "--print-after", "pack-panel"]);
    assert!(code == 2 && err.contains("did you mean `pack-panels`?"), "{err}");
    let (_folder, path) = file("m.tir", b"module \"m.attn\"\n");
    for (step, near) in [("pack-panel", "; did you mean `pack-panels`?"), ("fuse-loops", "")] {
        let (code, _, err) = outcome(&["opt", &path, "--passes", step]);
        assert!(code == 2 && err.contains(&format!("portable has no step `{step}`{near}\n")), "{err}");
    }
    let (_, list, _) = outcome(&["list", "steps"]);
    assert!(list.contains("expand-attention") && list.contains("fuse-loops"), "{list}");
}

/// What is computed with narrower vectors than a processor has is told, with the operation and the instruction sets; nothing is
/// where all has a wide form.
#[test]
fn narrow_code_is_told() {
    let program =
        b"model M {\n    pub fn f(x: i64[S], y: f32[S], i: i32[S]) -> (i64[S], f32[S], i32[S], i32[]) {\n        \
        (x * x,\n        pow(sin(y), cos(y)) % 3.0,\n        i / (i % 7),\n        argmax(y))\n    }\n}\n";
    let (folder, path) = file("m.attn", program);
    let object = folder.path().join("m.o").to_string_lossy().into_owned();
    let (code, _, err) = outcome(&[&path, "--remarks", "--emit", "obj", "-o", &object]);
    assert_eq!(code, 0, "{err}");
    let told: Vec<&str> = err.lines().filter(|line| line.contains("128-bit vectors")).collect();
    if cfg!(not(target_arch = "x86_64")) {
        return assert!(told.is_empty(), "{err}");
    }
    let [line] = told.as_slice() else { panic!("{err}") };
    assert!(line.starts_with("remark: m.attn:3:") && line.ends_with("no wider code for `mul` of i64"), "{line}");
    assert!(line.contains("avx2.kernel.") && line.contains("avx512.kernel."), "{line}");
    let (_, _, err) = outcome(&[&path, "--remarks", "--cpu", "portable", "--emit", "obj", "-o", &object]);
    assert!(!err.contains("128-bit"), "{err}");
}

/// What the command line leaves open or gets wrong about a right program.
#[test]
fn bindings_are_checked_with_the_program() {
    let two = b"model A<D = 2> { pub fn f(x: f32[S, D]) -> f32[S, D] { x } }\n\
        model B<D = 3> where D > 2 { pub fn f(x: f32[S, D]) -> f32[S, D] { x } }\n";
    let (_folder, path) = file("two.attn", two);
    for (args, code, text) in [
        (&["--entry", "A"][..], 0, ""),
        (&["--entry", "B"], 0, ""),
        (&[], 1, "E0606"),
        (&["--entry", "C"], 1, "E0606"),
        (&["--entry", "B", "--dim", "D=1"], 1, "D > 2"),
        (&["--entry", "A", "--dim", "E=1"], 1, "E0607"),
        (&["--entry", "A", "--stop-after", "simplifi"], 2, "simplif"),
        (&["--entry", "A", "-O", "4"], 2, "the highest level is -O2"),
    ] {
        let (exit, out, err) = outcome(&[&[path.as_str(), "--emit", "obj=/dev/null"], args].concat());
        assert_eq!((exit, out.as_str()), (code, ""), "{args:?}: {err}");
        assert!(err.contains(text), "{args:?}: {err}");
    }
    // `check` looks at every model.
    assert_eq!(outcome(&["check", &path]), (0, String::new(), String::new()));
    assert_eq!(outcome(&["check", &path, "--entry", "B", "--dim", "D=1"]).0, 1);
    // And for gradients, which only a pass knows not to exist.
    let steps = b"model A { pub fn f(x: f32[S]) -> f32[S] { grad(sum(x), x) } }\n\
        model B { pub fn f(x: f32[S]) -> f32[S] { grad(sum(floor(x)), x) } }\n";
    let (_folder, path) = file("steps.attn", steps);
    assert_eq!(outcome(&["check", &path, "--entry", "A"]), (0, String::new(), String::new()));
    let (exit, _, err) = outcome(&["check", &path]);
    assert!(exit == 1 && err.contains("E0345") && err.contains("it stops at `floor`"), "{err}");
}

/// The element type of a model is bound like its dimensions, and what cannot be one is told.
#[test]
fn element_types_are_bound() {
    let text = b"use std.nn\nmodel M<D = 2, E = f32> {\n    up: Linear<D, D, E>\n    pub fn f(x: E[S, D]) -> E[S, D] { up(x) }\n}\n\
        model Other { pub fn f(x: f32[S]) -> f32[S] { x } }\n";
    let (_folder, path) = file("m.attn", text);
    let run = |more: &[&str]| outcome(&[&["run", &path, "--entry", "M", "--random", "--size", "S=1"], more].concat());
    for (dims, shown) in [("D=3", "f32[1, 3]"), ("E=bf16", "bf16[1, 2]"), ("E=f16,D=4", "f16[1, 4]")] {
        let (code, out, err) = run(&["--dim", dims]);
        assert!(code == 0 && out.starts_with(&format!("result: {shown}\n")), "{dims}: {out}{err}");
    }
    for (dims, code, told) in [
        ("E=bf61", 2, "did you mean `bf16`?"),
        ("E=3", 1, "`E` is an element type of model `M`, such as `bf16`, not a number"),
        ("D=bf16", 1, "`D` of model `M` is not an element type"),
        ("F=bf16", 1, "no model has an element type `F`"),
        ("E=bool", 1, "E0304"),
    ] {
        let (exit, out, err) = run(&["--dim", dims]);
        assert_eq!((exit, out.as_str()), (code, ""), "{dims}: {err}");
        assert!(err.contains(told) && !err.contains("internal error"), "{dims}: {err}");
    }
    // Of the models that are checked, those that have it.
    assert_eq!(outcome(&["check", &path, "--dim", "E=bf16"]), (0, String::new(), String::new()));
    assert_eq!(outcome(&["check", &path, "--dim", "E=bf16", "--entry", "Other"]).0, 1);
    // A dump says how it was made.
    let (code, out, err) = outcome(&[&path, "--entry", "M", "--dim", "E=bf16", "--emit", "ir=-"]);
    let first = out.lines().next().unwrap_or_default();
    assert!(code == 0 && first.contains(" --dim E=bf16") && out.contains("bf16[S, 2]"), "{out}{err}");
}

/// With `--watch` each change of the file is checked, also when the file was missing meanwhile, until a signal or until nobody
/// reads the messages any more.
#[test]
fn a_watched_file_is_checked_at_each_change() {
    const GOOD: &str = "fn f(x: f32) -> f32 { x }\n";
    for ends_by_signal in [true, false] {
        let (_folder, path) = file("a.attn", GOOD.as_bytes());
        let mut child = attnc(&["check", "--watch", &path]).stderr(Stdio::piped()).spawn().expect("attnc starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let mut until_it_waits = || {
            let mut said = Vec::new();
            loop {
                said.push(lines.next().expect("attnc runs").expect("text"));
                if said.last().is_some_and(|line| line.contains("waiting until")) {
                    return said.join("\n");
                }
            }
        };
        assert!(until_it_waits().starts_with("no errors; waiting until"));
        // Of the same length.
        std::fs::write(&path, GOOD.replace("{ x }", "{ y }")).expect("the file");
        let said = until_it_waits();
        assert!(said.contains("there is no `y` here") && said.contains("\nerrors; waiting until"), "{said}");
        std::fs::remove_file(&path).expect("the file");
        let said = until_it_waits();
        assert!(said.contains("cannot read"), "{said}");
        std::fs::write(&path, GOOD).expect("the file");
        assert!(until_it_waits().contains("no errors; waiting until"));
        if ends_by_signal {
            let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
            assert!(kill.expect("kill").success());
            assert_eq!(child.wait().expect("attnc ends").signal(), Some(15));
        } else {
            drop(lines);
            std::fs::write(&path, GOOD.replace('x', "z")).expect("the file");
            assert!(child.wait().expect("attnc ends").success());
        }
    }
}
