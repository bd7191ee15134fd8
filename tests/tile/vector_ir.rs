//! Vector IR as a dump and as a text: what is shown of the runs of a kernel, that it is read back, and what is wrong with a
//! text.

use std::path::Path;
use std::process::Command;

use attnc::random::Random;
use attnc::shape::Elem;
use attnc::vector::routine::interp::{Memory, Pointer, RuntimeValue, run};
use attnc::vector::routine::{Type, text, verify};

/// Rows with a sum, a maximum, a function, elements of 16 bits, and columns that are not full vectors.
const PROGRAM: &str = "/// Rows of 20: softmax, rounded.
model Rows<S> {
    pub fn forward(x: f32[S, 20], y: bf16[S, 20]) -> bf16[S, 20] {
        cast<bf16>(softmax(x, axis=-1) + cast<f32>(y))
    }
}
";

/// Exit code, stdout and stderr, in a folder.
fn attnc(folder: &Path, args: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).current_dir(folder).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// The dump of the program's only kernel with a reduction, for an instruction set.
fn dump(folder: &Path, cpu: &str) -> String {
    std::fs::write(folder.join("rows.attn"), PROGRAM).expect("a program");
    let (code, out, err) = attnc(folder, &["rows.attn", "--cpu", cpu, "--kernel", "rows.0", "--emit", "vector=-"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out
}

#[test]
fn runs_are_shown_for_each_instruction_set() {
    let folder = tempfile::tempdir().expect("a folder");
    for cpu in ["portable", "avx2", "avx512"] {
        insta::with_settings!({
            snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/vector"),
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!(format!("rows_{cpu}"), dump(folder.path(), cpu));
        });
    }
}

#[test]
fn a_dump_is_read_back_and_a_kernel_found_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for cpu in ["portable", "avx2", "avx512"] {
        let whole = dump(folder.path(), cpu);
        std::fs::write(folder.path().join("rows.vir"), &whole).expect("a dump");
        let routines = |text: &str| text.lines().filter(|l| !l.starts_with("//")).collect::<Vec<_>>().join("\n");
        for more in [&[][..], &["--kernel", "rows.0"]] {
            let (code, out, err) = attnc(folder.path(), &[&["rows.vir", "--emit", "vector=-"], more].concat());
            assert_eq!((code, err.as_str()), (0, ""));
            assert_eq!(routines(&out).trim_start(), routines(&whole).trim_start());
        }
        assert_eq!(attnc(folder.path(), &["check", "rows.vir"]).0, 0);
    }
    for (args, message) in [
        (&["rows.vir", "--kernel", "rows.1", "--emit", "vector=-"][..], "did you mean `rows.0`?"),
        (&["rows.vir", "--emit", "asm=-"], "`--emit asm` needs the kernels around the runs"),
        (&["rows.vir", "--emit", "tile=-"], "`--emit tile` is an earlier stage than the input, `vector`"),
        (&["run", "rows.vir"], "takes .attn and .air files"),
    ] {
        let (code, _, err) = attnc(folder.path(), args);
        assert!(code == 2 && err.contains(message), "{args:?}: {err}");
    }
}

#[test]
fn what_is_wrong_with_a_text_is_shown_at_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = dump(folder.path(), "avx512");
    for (from, to, code, message) in [
        ("reduce_sum", "reduce_sun", "E0702", "there is no operation `reduce_sun`"),
        ("= exp ", "= exp %0, ", "E0710", "`exp` takes 1 operand, has 2"),
        ("lanes(16)", "lanes(17)", "E0710", "a vector of 17 lanes"),
        ("  return\n", "  return\n}}\n", "E0701", "unexpected"),
    ] {
        assert!(good.contains(from), "{from}: {good}");
        std::fs::write(folder.path().join("bad.vir"), good.replacen(from, to, 1)).expect("a text");
        let (exit, _, err) = attnc(folder.path(), &["check", "bad.vir"]);
        assert_eq!(exit, 1, "{err}");
        assert!(err.contains(&format!("error[{code}]")) && err.contains(message), "{from}: {err}");
        assert!(err.contains("bad.vir:"), "{from}: {err}");
    }
}

/// A few bytes for each storage.
struct Small(Vec<u8>);

impl Small {
    fn place(&self, p: Pointer, n: usize) -> Result<std::ops::Range<usize>, String> {
        let start = usize::try_from(p.at).map_err(|_| "before the start")?;
        let end = start.checked_add(n).filter(|end| *end <= self.0.len()).ok_or("behind the end")?;
        Ok(start..end)
    }
}

impl Memory for Small {
    fn read(&self, from: Pointer, bytes: &mut [u8]) -> Result<(), String> {
        bytes.copy_from_slice(&self.0[self.place(from, bytes.len())?]);
        Ok(())
    }

    fn write(&mut self, to: Pointer, bytes: &[u8]) -> Result<(), String> {
        let place = self.place(to, bytes.len())?;
        self.0[place].copy_from_slice(bytes);
        Ok(())
    }
}

/// Texts with words exchanged, left out and doubled: each is refused, or runs to an end.
#[test]
fn no_text_does_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = dump(folder.path(), "avx2");
    // The last run has narrow elements, masks and a loop.
    let start = good.rfind("run @").expect("a run");
    let words: Vec<&str> = good[start..].split_inclusive([' ', '\n', ',']).collect();
    let (mut read, mut right, mut ended) = (0, 0, 0);
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut changed = words.clone();
        for _ in 0..=random.below(3) {
            let (at, other) = (random.below(changed.len()), random.below(words.len()));
            match random.below(4) {
                0 => changed[at] = words[other],
                1 => changed.insert(at, words[other]),
                2 => _ = changed.remove(at),
                _ => changed[at] = ["0 ", "-1, ", "9223372036854775807\n", "64 ", "%0, ", "i64x8\n"][other % 6],
            }
        }
        let Ok(parsed) = text::parse(&changed.concat()) else { continue };
        read += 1;
        for p in parsed {
            if verify(&p.routine).is_err() {
                continue;
            }
            right += 1;
            let printed = text::print(&p.routine);
            assert_eq!(text::print(&text::parse(&printed).expect("what is printed")[0].routine), printed);
            let args: Vec<RuntimeValue> = p
                .routine
                .params
                .iter()
                .map(|(v, _)| match p.routine.body.ty(*v) {
                    Type::Address => RuntimeValue::Address(Pointer { storage: 0, at: 64 }),
                    Type::Index => RuntimeValue::Index(2),
                    Type::Lanes(elem, _) => RuntimeValue::Lanes(vec![u64::from(*elem == Elem::Bool)]),
                })
                .collect();
            ended += usize::from(run(&p.routine, &args, &mut Small(vec![0; 1 << 12]), &mut 10_000).is_ok());
        }
    }
    assert!(read > 300 && right > 50 && ended > 10, "{read} are read, {right} are right, {ended} come to an end");
}
