//! What the commands show of kernels for GPUs: remarks, schedules.

use std::path::Path;
use std::process::Command;

/// Exit code, stdout and stderr, in a folder.
fn attnc(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    let output = command.current_dir(folder).args(args).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A folder with a program.
fn folder(program: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("m.attn"), program).expect("written");
    folder
}

const PRODUCTS: &str = "\
model M {
    pub fn forward(x: bf16[S, 64], w: bf16[64, 32], v: f32[32, 16]) -> f32[S, 16] { exp(cast<f32>(x @ w) @ v) }
}
";

#[test]
fn remarks_tell_which_form_each_kernel_took() {
    let folder = folder(PRODUCTS);
    for (gpu, form) in
        [("sm_80", "tensor cores by mma.sync, tiles by cp.async"), ("sm_90a", "tensor cores by wgmma, tiles by TMA")]
    {
        let (code, _, stderr) =
            attnc(folder.path(), &["m.attn", "--target", "cuda", "--gpu", gpu, "--emit", "ptx=/dev/null", "--remarks"]);
        assert_eq!(code, 0, "{stderr}");
        let line = |kernel: &str| {
            let at = format!("@{kernel} at {gpu}: ");
            stderr
                .lines()
                .find(|l| l.starts_with("remark: m.attn:2:") && l.contains(&at))
                .unwrap_or_else(|| panic!("{stderr}"))
        };
        assert!(line("matmul.0").contains(form), "{stderr}");
        let strict = stderr.lines().find(|l| l.contains("not on tensor cores")).unwrap_or_else(|| panic!("{stderr}"));
        assert!(strict.contains("operands of f32") && strict.contains("products of f32 stay exact"), "{stderr}");
    }
    // A library tells it of each of its variants.
    let (code, _, stderr) =
        attnc(folder.path(), &["m.attn", "--target", "cuda", "--cubins", "never", "-o", "m.so", "--remarks"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("@matmul.0 at sm_90a: ") && stderr.contains("@matmul.0 at sm_80: "), "{stderr}");
    let (_, _, quiet) = attnc(folder.path(), &["m.attn", "--target", "cuda", "--emit", "ptx=/dev/null"]);
    assert_eq!(quiet, "");
}

/// The schedule gives attentions other numbers: what is told of one is not what became of another.
#[test]
fn remarks_of_several_attentions_are_their_own() {
    let of = |n: usize, elem: &str, width: usize| {
        let arguments =
            format!("q{n}: {elem}[2, S, {width}], k{n}: {elem}[2, T, {width}], v{n}: {elem}[2, T, {width}]");
        let line = format!("        let x{n} = softmax(q{n} @ k{n}.T / sqrt({width})) @ v{n}\n");
        (arguments, format!("{elem}[2, S, {width}]"), line)
    };
    for bf16_is_first in [false, true] {
        let (exact, short) = (("f32", 48), ("bf16", 64));
        let order = if bf16_is_first { [short, exact] } else { [exact, short] };
        let [a, b] = [of(0, order[0].0, order[0].1), of(1, order[1].0, order[1].1)];
        let (head, body) = (format!("{}, {}) -> ({}, {})", a.0, b.0, a.1, b.1), format!("{}{}", a.2, b.2));
        let folder = folder(&format!("model M {{\n    pub fn forward({head} {{\n{body}        (x0, x1)\n    }}\n}}\n"));
        let args = ["m.attn", "--target", "cuda", "--gpu", "sm_80", "--emit", "ptx=/dev/null", "--remarks"];
        let (code, _, stderr) = attnc(folder.path(), &args);
        assert_eq!(code, 0, "{stderr}");
        let line = |at: usize| {
            let is_form = |l: &&str| l.starts_with(&format!("remark: m.attn:{at}:")) && l.contains(" at sm_80: ");
            stderr.lines().find(is_form).unwrap_or_else(|| panic!("{stderr}"))
        };
        let (short, exact) = if bf16_is_first { (line(3), line(4)) } else { (line(4), line(3)) };
        assert!(short.contains("tensor cores by mma.sync") && !short.contains("not on tensor cores"), "{stderr}");
        assert!(exact.contains("not on tensor cores: operands of f32"), "{stderr}");
    }
}

#[test]
fn reasons_are_those_of_the_program() {
    // Rows of 66 bytes; a number of steps that only a call knows; two rows.
    let cases = [
        ("x: bf16[S, 33], w: bf16[33, 64]", "bf16[S, 64]", "are not a multiple of 16 bytes apart"),
        (
            "x: bf16[64, 8 * K], w: bf16[8 * K, 64]",
            "bf16[64, 64]",
            "the number of its steps, 8*K, is known only at run time",
        ),
        ("x: bf16[2, 64], w: bf16[64, 64]", "bf16[2, 64]", "it has 2 rows and 64 columns"),
        // Rounded to `tf32`, its types are not the reason.
        ("x: f32[2, 64], w: f32[64, 64]", "f32[2, 64]", "it has 2 rows and 64 columns"),
    ];
    for (parameters, result, reason) in cases {
        let folder = folder(&format!("model M {{\n    pub fn forward({parameters}) -> {result} {{ x @ w }}\n}}\n"));
        let (code, _, stderr) = attnc(
            folder.path(),
            &["m.attn", "--target", "cuda", "--matmul-precision", "tf32", "--emit", "ptx=/dev/null", "--remarks"],
        );
        assert!(code == 0 && stderr.contains(reason), "{parameters}: {stderr}");
    }
}

#[test]
fn a_schedule_is_drawn() {
    let folder = folder(PRODUCTS);
    let run = |more: &[&str]| {
        let args = ["run", "m.attn", "--random", "--size", "S=70", "--backend", "ptx-sim", "--gpu", "sm_90a"];
        attnc(folder.path(), &[&args, more].concat())
    };
    let (code, stdout, stderr) = run(&["--schedule", "s.svg", "--kernel", "matmul.0"]);
    assert!(code == 0 && stdout.starts_with("result: f32[70, 16]"), "{stderr}");
    let svg = std::fs::read_to_string(folder.path().join("s.svg")).expect("a picture");
    for part in
        ["<svg ", "matmul_0: block ", "consumer 4, cycles ", "tensor cores, cycles ", ": being filled", "</svg>"]
    {
        assert!(svg.contains(part), "{part}");
    }
    // As text, of the longest launch; nothing else goes to stdout then.
    let (code, stdout, stderr) = run(&["--schedule", "-"]);
    assert!(code == 0 && stdout.contains(" cycles of a simple model of sm_90a, not measured"), "{stderr}");
    assert!(!stdout.contains("result:"), "{stdout}");
    let (code, _, stderr) = run(&["--schedule", "-", "--kernel", "matmul.7"]);
    assert!(code != 0 && stderr.contains("matmul.7"), "{stderr}");
    let (code, _, stderr) = attnc(folder.path(), &["run", "m.attn", "--random", "--schedule", "-"]);
    assert!(code != 0 && stderr.contains("add `--backend ptx-sim`"), "{stderr}");
}
