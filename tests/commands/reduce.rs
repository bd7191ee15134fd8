//! Does `attnc reduce` leave little, and is it still interesting?

use std::path::Path;
use std::process::Command;

/// Exit code, stdout and stderr.
fn attnc(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let own = Path::new(env!("CARGO_BIN_EXE_attnc")).parent().expect("attnc lies in a folder").to_path_buf();
    let mut folders = vec![own];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(folders).expect("folders");
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    let output = command.args(args).current_dir(folder).env("PATH", path).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn place(files: &[(&str, &str)]) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(place.path().join(name), text).expect("a file");
    }
    place
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A program of about a hundred lines, with this expression in the middle of it.
fn program(planted: &str) -> String {
    let mut text = String::from("use std.nn\n\n");
    for n in 0..6 {
        text += &format!(
            "/// Layer {n}.\nlayer Mix{n}<D, F> {{\n    up: Linear<D, F>\n    down: Linear<F, D> // back\n    scale: f32[D]\n\n    \
             fn forward(x: f32[.., D]) -> f32[.., D] {{\n        let h = gelu(up(x))\n        let y = down(h)\n        \
             y * scale + x\n    }}\n}}\n\n"
        );
    }
    text += &format!(
        "fn score(q: f32[S, D], k: f32[T, D]) -> f32[S, T] {{\n    let s = q @ k.T\n    let p = {planted}\n    \
         softmax(s / sqrt(D) + p)\n}}\n\n"
    );
    text += "model Net<D = 8, F = 16> {\n";
    for n in 0..6 {
        text += &format!("    m{n}: Mix{n}<D, F>\n");
    }
    text += "\n    pub fn forward(x: f32[S, D]) -> f32[S, D] {\n        var y = x\n";
    for n in 0..6 {
        text += &format!("        y = m{n}(y)\n");
    }
    text += "        for i in 0..3 {\n            y = y * 0.5 + x\n        }\n        score(y, x) @ x\n    }\n}\n";
    text
}

/// Words and signs of a text.
fn words(text: &str) -> usize {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).count()
}

#[test]
fn an_error_is_left_with_what_it_needs() {
    let text = program("q @ k");
    assert!(text.lines().count() >= 95, "{}", text.lines().count());
    let place = place(&[("big.attn", &text)]);
    let folder = place.path();
    let (_, _, shown) = attnc(folder, &["check", "big.attn", "--error-format", "json"]);
    let code = ["E0301", "E0302", "E0303"].into_iter().find(|code| shown.contains(code)).expect("an error of shapes");
    let mut results = Vec::new();
    for jobs in ["1", "3"] {
        let out = format!("small{jobs}.attn");
        let (status, _, err) = attnc(folder, &["reduce", "big.attn", "--error", code, "--jobs", jobs, "-o", &out]);
        assert_eq!(status, 0, "{err}");
        results.push(read(folder, &out));
        let (status, _, shown) = attnc(folder, &["check", &out]);
        assert!(status == 1 && shown.contains(code), "{shown}");
        assert_eq!(shown.matches("error[").count(), shown.matches(code).count(), "{shown}");
    }
    assert_eq!(results[0], results[1]);
    assert!(results[0].lines().count() <= 4 && words(&results[0]) <= 20, "{}", results[0]);
    assert_eq!(read(folder, "big.attn"), text);
}

#[test]
fn a_command_decides() {
    let place = place(&[("big.attn", &program("q @ k.T"))]);
    let folder = place.path();
    let command = "attnc {} --dim D=4 --emit ir=- | grep -q gelu";
    let (status, out, err) = attnc(folder, &["reduce", "big.attn", "--", "sh", "-c", command]);
    assert_eq!(status, 0, "{err}");
    assert!(err.contains("reduced: "), "{err}");
    assert!(out.contains("gelu") && out.lines().count() <= 8, "{out}");
    std::fs::write(folder.join("small.attn"), &out).expect("a file");
    let (status, ir, err) = attnc(folder, &["small.attn", "--dim", "D=4", "--emit", "ir=-"]);
    assert!(status == 0 && ir.contains("gelu"), "{ir}{err}");
    // Its style is that of `attnc fmt`.
    assert_eq!(attnc(folder, &["fmt", "--check", "small.attn"]).0, 0, "{out}");
}

/// The operations of the functions of graph IR.
fn operations(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("  %") || line.starts_with("  tap ")).count()
}

/// The fault: another program has `sin` for `tanh`.
#[test]
fn a_wrong_number_in_graph_ir_is_left_with_few_operations() {
    let place = place(&[("big.attn", &program("q @ k.T").replace("gelu(up(x))", "tanh(up(x))"))]);
    let folder = place.path();
    assert_eq!(attnc(folder, &["big.attn", "-O0", "--emit", "ir=big.air"]).0, 0);
    let big = read(folder, "big.air");
    assert!(operations(&big) > 60, "{big}");
    let command =
        "sed 's/ tanh / sin /' {} > {}.air; attnc compare {} {}.air -O0 --size S=3 --backend interp; test $? = 1";
    let args = ["reduce", "big.air", "-o", "small.air", "--timeout", "60", "--", "sh", "-c", command];
    let (status, _, err) = attnc(folder, &args);
    assert_eq!(status, 0, "{err}");
    let small = read(folder, "small.air");
    assert!(operations(&small) <= 10 && small.contains(" tanh "), "{small}");
    assert_eq!(attnc(folder, &["check", "small.air"]).0, 0, "{small}");
    assert_eq!(read(folder, "big.air"), big);
}

/// The fault: bits differ, because passes may change rounding.
#[test]
fn a_difference_is_kept_without_a_script() {
    let text = "model M {\n    pub fn f(q: f32[S, 5], k: f32[S, 5], v: f32[S, 5]) -> f32[S, 5] {\n        \
                let w = softmax(q @ k.T / sqrt(5.0))\n        tanh(w @ v + 1.0) * q\n    }\n}\n";
    let place = place(&[("big.attn", text)]);
    let folder = place.path();
    assert_eq!(attnc(folder, &["big.attn", "-O0", "--emit", "ir=big.air"]).0, 0);
    let line = "--compare --size S=64 --bound 0 --backend tile --with -O0 --backend interp";
    let compare: Vec<&str> = line.split(' ').collect();
    let before = operations(&read(folder, "big.air"));
    let args = [&["reduce", "big.air", "-o", "small.air", "--timeout", "60"][..], &compare].concat();
    let (status, _, err) = attnc(folder, &args);
    assert_eq!(status, 0, "{err}");
    let small = read(folder, "small.air");
    assert!(operations(&small) <= 6 && operations(&small) < before, "{small}");
    assert_eq!(attnc(folder, &[&["compare", "small.air"][..], &compare[1..]].concat()).0, 1, "{small}");
}

#[test]
fn tile_ir_is_left_with_what_a_command_looks_for() {
    let text = "model M {\n    pub fn f(x: f32[S, 5], y: f32[5, 5]) -> f32[S, 5] {\n        softmax(tanh(x @ y) + 1.0) @ y\n    }\n    \
                pub fn g(x: f32[S]) -> f32[S] {\n        x + 1.0\n    }\n}\n";
    let place = place(&[("big.attn", text)]);
    let folder = place.path();
    assert_eq!(attnc(folder, &["big.attn", "-O0", "--emit", "tile=big.tir"]).0, 0);
    let (status, _, err) =
        attnc(folder, &["reduce", "big.tir", "-o", "small.tir", "--", "grep", "-q", "= tanh ", "{}"]);
    assert_eq!(status, 0, "{err}");
    let small = read(folder, "small.tir");
    assert!(small.matches("kernel @").count() == 1 && small.matches("plan @").count() == 1, "{small}");
    assert!(small.lines().count() <= 30 && small.contains("= tanh "), "{small}");
    assert_eq!(attnc(folder, &["check", "small.tir"]).0, 0, "{small}");
}

#[test]
fn a_program_with_syntax_errors_becomes_smaller_too() {
    let place = place(&[("big.attn", &program("q @ ) k"))]);
    let folder = place.path();
    let (status, out, err) = attnc(folder, &["reduce", "big.attn", "--error", "E0106"]);
    assert_eq!(status, 0, "{err}");
    assert!(words(&out) <= 10, "{out}");
}

#[test]
fn what_cannot_be_reduced_is_refused() {
    let place =
        place(&[("a.attn", "model M {\n    pub fn f(x: f32[S]) -> f32[S] {\n        x\n    }\n}\n"), ("e.attn", "")]);
    let folder = place.path();
    for (args, status, why) in [
        (&["a.attn"][..], 2, "what is interesting?"),
        (&["a.attn", "--", "true"], 2, "no `{}`"),
        (&["a.attn", "--", "false", "{}"], 2, "not interesting as it is"),
        (&["a.attn", "--", "no-such-command", "{}"], 2, "not interesting as it is"),
        (&["a.attn", "--timeout", "0.2", "--", "sh", "-c", "sleep 9; cat {}"], 2, "not interesting as it is"),
        (&["a.attn", "--error", "E0301"], 2, "no diagnostic E0301"),
        (&["a.attn", "--compare", "--size", "S=3"], 2, "finds no difference"),
        (&["a.attn", "-o", "a.attn", "--", "cat", "{}"], 2, "would overwrite an input"),
        (&["missing.attn", "--", "cat", "{}"], 3, "cannot read"),
    ] {
        let (code, _, err) = attnc(folder, &[&["reduce"][..], args].concat());
        assert!(code == status && err.contains(why), "{args:?}: {code} {err}");
    }
    // Nothing at all is small, and interesting to a command that accepts everything.
    for file in ["a.attn", "e.attn"] {
        let (code, out, err) = attnc(folder, &["reduce", file, "--", "cat", "{}"]);
        assert_eq!((code, out.trim()), (0, ""), "{err}");
    }
}
