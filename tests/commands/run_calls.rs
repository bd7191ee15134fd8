//! Does `attnc run --calls` make the calls of a file in one session, the same by every way of running?

use std::process::{Command, Stdio};

/// What may run a program.
const BACKENDS: &[&str] =
    if cfg!(feature = "llvm") { &["interp", "tile", "cpu", "llvm"] } else { &["interp", "tile", "cpu"] };

const PROGRAM: &str = "/// Rows that are kept.
model Memory<D = 3, C = 4> {
    state rows: f32[C, D]
    state past: i32

    /// The sum of all rows so far.
    pub fn add(x: f32[S, D]) -> f32[D] where S <= C {
        let dim N = past + S where S <= N, N <= C
        rows[past..past+S] = x
        past = past + S
        sum(rows[0..N], axis = 0)
    }
    pub fn scaled(x: f32[.., D], k: f32) -> (f32[.., D], i64) { (x * k + cast<f32>(past), cast<i64>(past)) }
    pub fn seen() -> i32 { past }
}
";

const CALLS: &str = "// Adds rows, then begins anew.
add(x = [[1, 2, 3]])
add(x = [[10, 20, 30], [100, 200, 300]])
scaled(x = [[[1, 2, 3], [4, 5, 6]]], k = 2)

reset
seen()
  add(x = [[7, 8, 9]],)   
";

const RESULTS: &str = "1.add.result: f32[3]
  [1.000000, 2.000000, 3.000000]
2.add.result: f32[3]
  [111.000000, 222.000000, 333.000000]
3.scaled.result.0: f32[1, 2, 3]
  0:
    [5.000000, 7.000000, 9.000000]
    [11.000000, 13.000000, 15.000000]
3.scaled.result.1: i64[]
  3
4.seen.result: i32[]
  0
5.add.result: f32[3]
  [7.000000, 8.000000, 9.000000]
";

/// A folder with the program and files of calls; `run` with arguments there, and what is given on stdin.
struct Place(tempfile::TempDir);

impl Place {
    fn new(files: &[(&str, &str)]) -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("m.attn", PROGRAM)].iter().chain(files) {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        Place(folder)
    }

    /// Exit code, stdout and stderr.
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
        command.args(["run", "m.attn"]).args(args).current_dir(self.0.path()).stdin(Stdio::null());
        let output = command.output().expect("attnc starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn calls_share_the_states_of_a_session() {
    let place = Place::new(&[("calls.txt", CALLS)]);
    for backend in BACKENDS {
        let given = place.run(&["--calls", "calls.txt", "--backend", backend]);
        assert_eq!(given, (0, RESULTS.to_string(), String::new()), "{backend}");
    }
    let (code, _, err) = place.run(&["--calls", "calls.txt", "--output", "out"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let mut files: Vec<String> = std::fs::read_dir(place.0.path().join("out"))
        .expect("results")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(files.len(), 6);
    assert_eq!(files[2], "3.scaled.result.0.npy");
}

/// A single call by the interpreter of tile IR is named as by the others.
#[test]
fn tile_ir_runs_alone_too() {
    let place = Place::new(&[]);
    let args = ["--function", "scaled", "--input", "x=[[1, 2, 3]]", "--input", "k=2"];
    let [first, others @ ..] = BACKENDS else { panic!("there are back ends") };
    let given = |backend: &str| place.run(&[&args[..], &["--backend", backend]].concat());
    let expected = given(first);
    assert!(expected.1.starts_with("result.0: f32[1, 3]\n"), "{expected:?}");
    for backend in others {
        assert_eq!(given(backend), expected, "{backend}");
    }
    let (code, _, err) = place.run(&[&args[..], &["--backend", "tile", "--tap", "x"]].concat());
    assert_eq!(code, 2);
    assert!(err.contains("`--backend tile` has no taps"), "{err}");
}

/// The first call that fails ends the sequence, with its place.
#[test]
fn wrong_calls_are_told_with_their_place() {
    let full = "add(x = [[1, 2, 3], [1, 2, 3], [1, 2, 3]])\n\nadd(x = [[1, 2, 3], [4, 5, 6]])\nseen()\n";
    let place = Place::new(&[
        ("full.txt", full),
        ("unknown.txt", "seen()\nad(x = 1)\n"),
        ("missing.txt", "add()\n"),
        ("argument.txt", "seen(x = 1)\n"),
        ("shape.txt", "add(x = [1, 2, 3])\n"),
        ("text.txt", "seen()\nadd(x = [1\n"),
        ("literal.txt", "seen()\n\nscaled(x = [1, 2, 3], k = [many])\n"),
        ("empty.txt", "// nothing\n"),
        ("calls.txt", CALLS),
    ]);
    for backend in BACKENDS {
        for (file, code, why) in [
            ("full.txt", 1, "call 2, `add` in line 3: "),
            ("unknown.txt", 2, "unknown.txt:2: there is no entry point `ad`"),
            ("missing.txt", 2, "missing.txt:1: the argument `x: f32[S, 3]` is missing; give `x = FILE.npy`"),
            ("argument.txt", 2, "argument.txt:1: `seen` has no argument `x`"),
            ("literal.txt", 2, "literal.txt:3: `k = [many]`: expected f32, found `many`"),
            ("shape.txt", 1, "call 1, `add` in line 1: "),
            ("text.txt", 2, "text.txt:2: expected `reset` or a call"),
            ("empty.txt", 2, "empty.txt: there are no calls"),
            ("absent.txt", 3, "E0001"),
        ] {
            let (exit, out, err) = place.run(&["--calls", file, "--backend", backend]);
            assert_eq!((exit, out.as_str()), (code, ""), "{backend} {file}: {err}");
            let fits = err.contains(why) && !err.contains("internal error") && !err.contains("--input");
            assert!(fits, "{backend} {file}: {err}");
        }
    }
    for other in [&["--function", "seen"][..], &["--input", "x=3"], &["--tap", "x"]] {
        let (code, _, err) = place.run(&[&["--calls", "calls.txt"], other].concat());
        assert_eq!(code, 2, "{err}");
    }
}

/// What a call does not give is random: the same by every way, another in each call; sizes are for the entry points that have them.
#[test]
fn missing_arguments_may_be_random() {
    let place = Place::new(&[("calls.txt", "scaled(k = 1)\nadd()\nreset\nadd()\nadd()\n")]);
    let given = |backend: &str| place.run(&["--calls", "calls.txt", "--random", "--size", "S=2", "--backend", backend]);
    let expected = given("interp");
    assert_eq!((expected.0, expected.2.as_str()), (0, ""));
    let sums: Vec<&str> = expected.1.lines().filter(|line| line.starts_with("  [")).collect();
    assert!(sums.len() == 4 && sums[1] != sums[2], "{}", expected.1);
    for backend in BACKENDS {
        assert_eq!(given(backend), expected, "{backend}");
    }
}
