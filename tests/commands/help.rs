//! Does the command say what it can do, and what was meant, to people and to programs?

use std::process::Command;

use attnc::cli::EmitKind;
use attnc::passes::PASSES;
use attnc::vector::{self, library};
use serde_json::Value;

/// Exit code, stdout and stderr.
fn attnc(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/02_self_attention.attn");

/// The part of a help text under a heading.
fn section<'h>(help: &'h str, heading: &str) -> &'h str {
    let (_, rest) = help.split_once(&format!("\n{heading}:\n")).unwrap_or_else(|| panic!("no {heading}: {help}"));
    rest.split("\n\n").take_while(|part| part.starts_with(' ')).last().map_or("", |last| {
        let end = last.as_ptr() as usize - rest.as_ptr() as usize + last.len();
        &rest[..end]
    })
}

#[test]
fn help_shows_the_options_of_compiling_in_groups() {
    for ask in [&["--help"][..], &["-h"], &["help"]] {
        let (code, help, err) = attnc(ask);
        assert_eq!((code, err.as_str()), (0, ""), "{ask:?}");
        assert!(help.starts_with("An educational ahead-of-time compiler for attention graphs\n"), "{help}");
        for (heading, options) in [
            ("Commands", &["check", "run", "generate", "bench", "list", "ops", "function", "completions"][..]),
            ("Arguments", &["<FILE>"]),
            ("Output", &["-o, --output", "--emit"]),
            ("Program", &["--dim", "--entry"]),
            ("Target", &["--cpu", "--pack", "--keep", "-O <LEVEL>", "--float", "--backend"]),
            ("Passes and dumps", &["--remarks", "--print-changed", "--dump-dir"]),
            ("Messages", &["--error-format", "--color", "-v, --verbose"]),
        ] {
            let part = section(&help, heading);
            for option in options {
                assert!(part.contains(option), "{ask:?}: {option} is not under {heading}: {help}");
            }
        }
        // The help of each level of -O.
        for level in ["0: no passes", "1: removes dead", "2: also finds"] {
            let words: Vec<&str> = help.split_whitespace().collect();
            assert!(words.join(" ").contains(level), "{level}: {help}");
        }
    }
    let (code, out, err) = attnc(&[]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("--emit"), "{err}");
}

#[test]
fn what_was_meant_is_suggested() {
    for (args, code, text) in [
        (&["chek", EXAMPLE][..], 2, "did you mean `check`?"),
        (&["chek"], 3, "there is a command `check`"),
        (&["Check", EXAMPLE], 2, "did you mean `check`?"),
        (&["--color", "never", "check", EXAMPLE], 2, "`attnc check ..`"),
        (&[EXAMPLE, "--emit", "assm"], 2, "did you mean `asm`?"),
        (&[EXAMPLE, "--emti", "asm"], 2, "--emit"),
        (&[EXAMPLE, "-O3"], 2, "the highest level is -O2"),
        (&[EXAMPLE, "-Ofast"], 2, "the levels are 0, 1 and 2"),
        (&["list", "pases"], 2, "passes"),
        (&[EXAMPLE, "--dim", "D=4", "--dim", "D=5"], 2, "`--dim D` is given twice"),
        (&[EXAMPLE, "--dim", "D=4,D=4"], 2, "`--dim D` is given twice"),
        (&["check", EXAMPLE, "--dim", "D=4,D=4"], 2, "`--dim D` is given twice"),
        (&["bench", EXAMPLE, "--size", "S=4,S=4"], 2, "`--size S` is given twice"),
        (&["bench", EXAMPLE, "--size", "S=4", "--seconds", "nan"], 2, "from 0 to"),
        (&["bench", EXAMPLE, "--size", "S=4", "--seconds=-1"], 2, "from 0 to"),
        (&["bench", EXAMPLE, "--size", "S=4", "--seconds", "inf"], 2, "from 0 to"),
    ] {
        let (exit, out, err) = attnc(args);
        assert_eq!((exit, out.as_str()), (code, ""), "{args:?}: {err}");
        assert!(err.starts_with("error") && err.contains(text), "{args:?}: {err}");
    }
}

/// `-O2` finds attention, `-O1` does not, `-O0` leaves even constants as they are.
#[test]
fn the_levels_do_what_help_says() {
    let graph = |level: &str| attnc(&[EXAMPLE, level, "--emit", "ir=-"]).1;
    let [none, one, two] = ["-O0", "-O1", "-O2"].map(graph);
    assert!(two.contains(" = attention ") && !one.contains(" = attention "), "{two}");
    assert!(none.contains(" = sqrt ") && !one.contains(" = sqrt ") && one.contains("fused"), "{none}{one}");
}

/// The language and each IR say what an operation is; a name that none has is compared with all.
#[test]
fn operations_are_explained_at_each_level() {
    let shown = |args: &[&str]| {
        let (code, out, err) = attnc(&[&["ops"], args].concat());
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        out
    };
    let softplus = shown(&["softplus"]);
    for form in ["softplus(x) (language)\n", "softplus x (graph IR)\n", "softplus x (tile IR)\n"] {
        assert!(softplus.contains(form), "{form}: {softplus}");
    }
    let check = shown(&["--ir", "tile", "check_index"]);
    assert!(check.starts_with("check_index index, bound, site=number (tile IR)\n"), "{check}");
    assert!(check.contains("effects     writes, may fail\n"), "{check}");
    let all = shown(&[]);
    let headings: Vec<&str> = all.lines().filter(|line| line.ends_with(':')).collect();
    assert_eq!(headings, ["language:", "graph IR:", "tile IR:", "vector IR:"]);
    let vector = shown(&["--ir", "vector"]);
    for form in ["load address.., elem=element type, [mask=value] ", "reduce_sum x ", "add(a: f32, b: f32) -> f32 "] {
        assert!(vector.lines().any(|line| line.starts_with(form)), "{form}: {vector}");
    }
    assert!(!vector.contains("reduce_mean") && !vector.contains("\nargmax "), "{vector}");
    let floor = shown(&["--ir", "vector", "floor"]);
    let parts = [
        "floor x (vector IR)\n",
        "floor(a: f32) -> f32 (vector IR)\n",
        "class       lane by lane\n",
        "needs       round\n",
    ];
    assert!(parts.iter().all(|part| floor.contains(part)), "{floor}");
    assert!(shown(&["store"]).contains("effects     writes\n"));
    let (code, out, err) = attnc(&["ops", "sofmtax"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("did you mean `softmax`?"), "{err}");
}

#[test]
fn everything_that_can_be_named_is_listed() {
    let list = |what: &str| {
        let (code, out, err) = attnc(&["list", what]);
        assert_eq!((code, err.as_str()), (0, ""), "{what}");
        for line in out.lines() {
            assert!(
                line.split_once("  ").is_some_and(|(name, text)| !name.is_empty() && !text.trim().is_empty()),
                "{line}"
            );
        }
        out.lines().map(String::from).collect::<Vec<_>>()
    };
    let has = |lines: &[String], start: &str| lines.iter().any(|line| line.starts_with(start));
    let (code, all, _) = attnc(&["list"]);
    assert_eq!(code, 0);
    for line in all.lines() {
        let name = line.split_whitespace().next().expect("a name");
        assert!(!list(name).is_empty(), "{name}");
    }
    let passes = list("passes");
    assert_eq!(passes.len(), PASSES.len());
    assert!(PASSES.iter().all(|pass| has(&passes, pass.name)));
    let kinds = list("emit");
    assert!(EmitKind::ALL.iter().all(|kind| has(&kinds, kind.name())), "{kinds:?}");
    let ops = list("ops");
    for op in ["a @ b", "softmax(x[, axis])", "where(condition, a, b)", "cast<type>(x)", "relu(x)"] {
        assert!(has(&ops, op), "{op}: {ops:?}");
    }
    let ir = list("ir");
    for op in
        ["matmul a, b ", "attention q, k, v, scale, mask.. ", "reduce_sum x, axes=axes, [keep=", "exp x ", "lt a, b "]
    {
        assert!(has(&ir, op), "{op}: {ir:?}");
    }
    let tile = list("tile");
    for op in
        ["store buffer, index.., tile, [rows=axis], [cols=axis]", "dot a, b, acc", "barrier", "argmax x, axis=axis"]
    {
        assert!(has(&tile, op), "{op}: {tile:?}");
    }
    let vector = list("vector");
    for op in [
        "fma(a: f32, b: f32, c: f32) -> f32 ",
        "select(a: mask, b: f32, c: f32) -> f32 ",
        "polynomial ",
        "load_apart start, step, elem=",
    ] {
        assert!(has(&vector, op), "{op}: {vector:?}");
    }
    assert!(has(&list("mir"), "fma tied, vector, vector -> vector "));
    assert!(has(&list("functions"), "exp "));
    let cpus = list("cpus");
    assert!(has(&cpus, "portable") && has(&cpus, "native"), "{cpus:?}");
    assert!(has(&list("codes"), "E0301") && has(&list("modules"), "std.nn"));
}

#[test]
fn functions_are_shown_as_written_and_as_a_machine_computes_them() {
    for name in library::names() {
        let (code, text, err) = attnc(&["function", name]);
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        assert_eq!(Some(text.as_str()), library::source(name));
    }
    let straight = |cpu: &str| {
        let (code, text, err) = attnc(&["function", "exp", "--cpu", cpu]);
        assert_eq!((code, err.as_str()), (0, ""), "{cpu}");
        let [f] = &vector::text::parse(&text).expect("vector IR")[..] else { panic!("{cpu}: {text}") };
        (f.insts.iter().map(|inst| inst.op.name()).collect::<Vec<_>>(), f.clone())
    };
    let (plain, f) = straight("portable");
    assert!(!plain.contains(&"fma") && !plain.contains(&"call") && !plain.contains(&"polynomial"), "{plain:?}");
    // e, to two units in the last place.
    let e = f32::from_bits(vector::interp::eval(&f, &[1f32.to_bits()]).expect("a function"));
    assert!((e - std::f32::consts::E).abs() <= 2.0 * 2f32.powi(-22), "{e}");
    assert!(straight("avx2").0.contains(&"nearest") && straight("avx512").0.contains(&"scale"));
    let (code, out, err) = attnc(&["function", "exq"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("there is no function `exq`; did you mean `exp`?"), "{err}");
}

#[test]
fn codes_are_explained_however_they_are_written() {
    let expected = attnc(&["explain", "E0301"]);
    assert_eq!((expected.0, expected.2.as_str()), (0, ""));
    for code in ["e0301", "e301", "E301", "301", "0301"] {
        assert_eq!(attnc(&["explain", code]), expected, "{code}");
    }
    for code in ["E9999", "0", "E", "x301", "99999999"] {
        let (exit, _, err) = attnc(&["explain", code]);
        assert_eq!(exit, 2, "{code}");
        assert!(err.contains("there is no code"), "{err}");
        assert!(err.contains("; did you mean ") || err.contains("; `attnc explain` lists all codes"), "{err}");
    }
}

#[test]
fn versions_and_shells() {
    let (code, short, _) = attnc(&["-V"]);
    assert_eq!((code, short.as_str()), (0, concat!("attnc ", env!("CARGO_PKG_VERSION"), "\n")));
    for ask in ["--version", "-v", "--verbose", "-vV"] {
        let (code, long, err) = attnc(&[ask]);
        assert_eq!((code, err.as_str()), (0, ""), "{ask}");
        assert!(long.starts_with(short.trim_end()) && long.contains("host: ") && long.contains("Cranelift"), "{long}");
    }
    for (shell, text) in [("bash", "complete -F"), ("zsh", "#compdef attnc"), ("fish", "complete -c attnc")] {
        let (code, out, err) = attnc(&["completions", shell]);
        assert_eq!((code, err.as_str()), (0, ""), "{shell}");
        for word in [text, "emit", "print-changed", "bench", "completions"] {
            assert!(out.contains(word), "{shell}: {word}");
        }
    }
    // The shell itself accepts it, and completes a command with it.
    let (_, script, _) = attnc(&["completions", "bash"]);
    let ask =
        format!("{script}\nCOMP_WORDS=(attnc ch); COMP_CWORD=1; _attnc attnc ch attnc; echo \"${{COMPREPLY[@]}}\"");
    if let Ok(output) = Command::new("bash").args(["-c", &ask]).output() {
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            "check chat",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let (_, fish, _) = attnc(&["completions", "fish"]);
    let offers = |option: &str, value: &str| fish.lines().any(|line| line.contains(option) && line.contains(value));
    assert!(EmitKind::ALL.iter().all(|kind| offers("-l emit", kind.name())));
    for (command, value) in [("explain", "E0301"), ("ref", "softmax"), ("ref", "unsqueeze"), ("ref", "nn.Linear")] {
        assert!(offers(&format!("subcommand {command}\""), value), "{command} {value}");
        for shell in ["bash", "zsh"] {
            assert!(attnc(&["completions", shell]).1.contains(value), "{shell}: {value}");
        }
    }
    let (_, help, _) = attnc(&["--help"]);
    let line = help.lines().find(|line| line.contains("What to write: ")).unwrap_or_default();
    assert!(EmitKind::ALL.iter().all(|kind| line.contains(&format!(" {}", kind.name()))), "{line}");
}

/// The objects on stderr, a line each.
fn objects(args: &[&str]) -> (i32, Vec<Value>) {
    let (code, _, err) = attnc(args);
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    (code, err.lines().map(parse).collect())
}

#[test]
fn diagnostics_are_json_in_the_form_of_rustc() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.attn").to_string_lossy().into_owned();
    let text = "// é\nmodel M<D> {\n    pub fn f(q: f32[S, D], k: f32[T, D]) -> f32[S, T] {\n        q @ k\n    }\n}\n";
    std::fs::write(&path, text).expect("a program");
    let (code, found) = objects(&["check", &path, "--error-format", "json"]);
    let (_, _, human) = attnc(&["check", &path]);
    assert_eq!((code, found.len()), (1, 1), "{found:?}");
    let one = &found[0];
    assert_eq!(one["$message_type"], "diagnostic");
    assert_eq!(one["level"], "error");
    assert_eq!(one["code"]["code"], "E0301");
    assert!(one["code"]["explanation"].as_str().is_some_and(|text| !text.is_empty()));
    assert_eq!(one["rendered"].as_str(), Some(human.as_str()));
    assert!(human.starts_with(&format!("error[E0301]: {}", one["message"].as_str().expect("a message"))));
    let spans = one["spans"].as_array().expect("spans");
    let primary: Vec<&Value> = spans.iter().filter(|span| span["is_primary"] == true).collect();
    assert_eq!(primary.len(), 1);
    let at = text.find("@ k").expect("the operator") as u64;
    let fields = ["byte_start", "byte_end", "line_start", "line_end", "column_start", "column_end"];
    assert_eq!(fields.map(|field| primary[0][field].as_u64()), [at, at + 1, 4, 4, 11, 12].map(Some));
    assert_eq!(primary[0]["file_name"], path.as_str());
    assert_eq!(primary[0]["text"][0]["text"], "        q @ k");
    assert!(spans.iter().any(|span| span["label"].is_string()));
    assert!(one["children"].as_array().expect("children").iter().any(|child| child["level"] == "help"));

    // Diagnostics without a place are objects, too, and so are errors in the command line.
    for (args, code) in [
        (&["check", "/nowhere/at/all.attn"][..], 3),
        (&["run", EXAMPLE, "--input", "z=1"], 2),
        (&[EXAMPLE, "-o", "out.s"], 2),
    ] {
        let (exit, found) = objects(&[args, &["--error-format=json"]].concat());
        assert_eq!((exit, found.len()), (code, 1), "{args:?}: {found:?}");
        assert_eq!(found[0]["spans"], Value::Array(Vec::new()));
        assert!(found[0]["message"].as_str().is_some_and(|text| !text.is_empty()));
    }
    // The name that cargo has for it.
    assert_eq!(objects(&["check", &path, "--message-format", "json"]).1, found);
    assert_eq!(objects(&["check", EXAMPLE, "--error-format", "json"]), (0, Vec::new()));
}

#[test]
fn verbose_tells_what_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.so").to_string_lossy().into_owned();
    let (code, out, err) = attnc(&[EXAMPLE, "-v", "-o", &path, "--cpu", "portable"]);
    assert_eq!((code, out.as_str()), (0, ""));
    let size = std::fs::metadata(&path).expect("the library").len();
    assert!(err.contains("code for portable\n") && err.contains(&format!("wrote `{path}`, {size} bytes")), "{err}");
}

/// `native` is the best of this machine, by its own name, so that a dump's first line says the same elsewhere.
#[test]
fn native_is_an_instruction_set_by_name() {
    let (code, dump, err) = attnc(&[EXAMPLE, "--cpu", "native", "--emit", "tile=-"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let first = dump.lines().next().expect("a line");
    let (_, cpus, _) = attnc(&["list", "cpus"]);
    let row = cpus.lines().find(|line| line.starts_with("native")).expect("native");
    let (_, name) = row.split_once("here: ").expect("what it is");
    assert_eq!(first, format!("// attnc 02_self_attention.attn --cpu {name} --emit tile"));
    assert_eq!(attnc(&[EXAMPLE, "--cpu", name, "--emit", "tile=-"]).1, dump);
}

/// A library from tile IR has one instruction set, and it is told which it lacks, unless no others are asked for.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_library_from_tile_ir_tells_what_it_lacks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (tile, so) = (path("m.tir"), path("m.so"));
    for (level, lacks) in [(&[][..], "`avx512`, `avx2`"), (&["--cpu", "avx2"], "`avx512`, `portable`")] {
        assert_eq!(attnc(&[&[EXAMPLE, "--emit", &format!("tile={tile}")], level].concat()).0, 0);
        let (code, _, err) = attnc(&[&tile, "-o", &so]);
        assert_eq!(code, 0, "{err}");
        assert!(err.starts_with("note[E0007]: ") && err.contains(&format!("but not for {lacks}\n")), "{err}");
        assert_eq!(attnc(&[&tile, "--emit", "clif=-"]).2, "", "what is no library lacks nothing");
    }
    assert_eq!(attnc(&[EXAMPLE, "--emit", &format!("tile={tile}")]).0, 0);
    assert_eq!(attnc(&[&tile, "--cpu", "portable", "-o", &so]), (0, String::new(), String::new()));
    let (_, found) = objects(&[&tile, "-o", &so, "--error-format", "json"]);
    assert_eq!(found[0]["level"], "note");
}

/// The language reference: an entry by any of its names, all of them by title, the whole as a document.
#[test]
fn the_reference_is_shown_by_name() {
    let softmax = attnc(&["ref", "softmax"]);
    assert_eq!((softmax.0, softmax.2.as_str()), (0, ""));
    for part in
        ["softmax(x, axis = -1)\n", "takes     floats: f32, bf16, f16\n", "This is E0304", "see also  log_softmax"]
    {
        assert!(softmax.1.contains(part), "{part}: {}", softmax.1);
    }
    assert_eq!(attnc(&["explain", "softmax"]), softmax);
    for name in ["@", "-", "let dim", "..", "nn.Linear", "Linear", "std.nn", "%", "E_half"] {
        let (code, out, err) = attnc(&["ref", name]);
        assert_eq!(code, if name == "E_half" { 2 } else { 0 }, "{name}: {out}{err}");
    }
    let (code, out, err) = attnc(&["ref", "sofmtax"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("did you mean `softmax`?"), "{err}");
    let (_, all, _) = attnc(&["ref"]);
    for line in ["Statements:", "Module std.decode:"] {
        assert!(all.lines().any(|other| other == line), "{all}");
    }
    assert!(all.lines().any(|line| line.starts_with("let dim ") && line.ends_with("let dim N = value where N <= C")));
    let (_, document, _) = attnc(&["ref", "--document"]);
    assert!(document.starts_with("# The attn language\n") && document.contains("\n### `nn.Linear`, `Linear`"));
    let (_, code, _) = attnc(&["explain", "E0301"]);
    assert!(code.ends_with("The language reference has it under `@`: `attnc ref @`\n"), "{code}");
}
