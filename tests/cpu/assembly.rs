//! Is the assembly that is shown what is in the object, and does the line table lead back to the program?
//!
//! The bytes that are shown are compared with the object's, function by function; where there is an assembler, it makes
//! them again from the text. Places in comments and in line tables are looked up in the program.

#![cfg(target_arch = "x86_64")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SymbolKind};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

/// All kinds of elements, of leaves and of instructions.
const MIXED: &str = "model Mixed {
    w: bf16[96, 64]
    pub fn forward(x: bf16[S, 96], k: bf16[T, 64], v: bf16[T, 64], i: i32[S], y: f32[S, 96]) -> (f32[S, 64], i32[S], f32[S, 96]) {
        let q = x @ w
        let a = softmax(q @ k.T / 8.0) @ v
        (cast<f32>(a), argmax(y, axis = 1) + i, pow(sin(y), 2.5) + log(abs(y)) + tanh(y) + erf(y))
    }
}
";

fn attnc(folder: &Path, args: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).current_dir(folder).output().expect("attnc starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.is_empty(), "attnc {}: {err}", args.join(" "));
    String::from_utf8(output.stdout).expect("text")
}

/// A folder with `p.attn`.
fn folder(program: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("p.attn"), program).expect("a program");
    folder
}

fn example(name: &str) -> String {
    std::fs::read_to_string(format!("{EXAMPLES}/{name}.attn")).expect("an example")
}

/// What stands in the place of a distance to another function.
const DISTANCE: [u8; 4] = *b"\xef\xbe\xad\x7e";

/// A function of an object: its bytes, and by their places the functions that it refers to, with what is added.
type Function = (Vec<u8>, BTreeMap<u64, (String, i64)>);

/// The functions of an object; distances to functions of its own are found where there is no relocation for them.
fn functions(bytes: &[u8], known: &BTreeMap<String, Function>) -> BTreeMap<String, Function> {
    let file = object::File::parse(bytes).expect("an object");
    let section = file.section_by_name(".text").expect("code");
    let data = section.data().expect("code");
    let own: Vec<_> =
        file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_definition() && s.size() > 0).collect();
    let starts: BTreeMap<u64, String> =
        own.iter().map(|s| (s.address(), s.name().expect("a name").to_string())).collect();
    let mut out = BTreeMap::new();
    for s in &own {
        let (start, end) = (s.address(), s.address() + s.size());
        let mut code = data[start as usize..end as usize].to_vec();
        let mut targets = BTreeMap::new();
        for (at, r) in section.relocations().filter(|(at, _)| (start..end).contains(at)) {
            let RelocationTarget::Symbol(n) = r.target() else { panic!("a relocation of no symbol") };
            let target = file.symbol_by_index(n).expect("a symbol");
            let (mut name, mut addend) = (target.name().expect("a name").to_string(), r.addend());
            if target.kind() == SymbolKind::Section {
                name = starts[&u64::try_from(addend + 4).expect("a place")].clone();
                addend = -4;
            }
            targets.insert(at - start, (name, addend));
        }
        let name = s.name().expect("a name").to_string();
        for (at, (_, addend)) in known.get(&name).map_or(&BTreeMap::new(), |f| &f.1) {
            if !targets.contains_key(at) {
                let place = *at as usize;
                let distance = i32::from_le_bytes(code[place..place + 4].try_into().expect("four bytes"));
                let target = (start + at) as i64 - addend + i64::from(distance);
                let target = starts.get(&u64::try_from(target).expect("a place")).expect("a function is meant");
                targets.insert(*at, (target.clone(), *addend));
            }
        }
        for at in targets.keys() {
            code[*at as usize..*at as usize + 4].copy_from_slice(&DISTANCE);
        }
        out.insert(name, (code, targets));
    }
    out
}

/// The program's object and assembly for some level.
fn compiled(folder: &Path, options: &[&str]) -> (Vec<u8>, String) {
    attnc(folder, &[&["p.attn", "--emit", "obj=p.o,asm=p.s"], options].concat());
    let read = |name: &str| std::fs::read(folder.join(name)).expect("an output");
    (read("p.o"), String::from_utf8(read("p.s")).expect("text"))
}

fn has_assembler() -> bool {
    Command::new("as").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Assembles a text and compares every function in it with the object's.
fn assembles_again(program: &str, options: &[&str]) {
    let folder = folder(program);
    let (object, _) = compiled(folder.path(), options);
    let mut command = Command::new("as");
    let command = command.args(["-mrelax-relocations=no", "-o", "again.o", "p.s"]).current_dir(folder.path());
    let done = command.output().expect("as starts");
    assert!(done.status.success(), "{options:?}: {}", String::from_utf8_lossy(&done.stderr));
    let own = functions(&object, &BTreeMap::new());
    let again = functions(&std::fs::read(folder.path().join("again.o")).expect("an object"), &own);
    assert!(again.len() > 1, "{options:?}");
    for (name, made) in &again {
        assert!(own.get(name) == Some(made), "{options:?}: {name} is another");
    }
}

/// What the assembler makes of the text is what is in the object: same bytes, same references.
#[test]
fn texts_assemble_to_the_bytes_of_the_object() {
    if !has_assembler() {
        println!("not assembled: there is no assembler here");
        return;
    }
    let all = std::env::var_os("ATTNC_ALL_EXAMPLES").is_some();
    let examples: &[&str] = if all {
        &[
            "01_linear",
            "02_self_attention",
            "03_masks",
            "04_multi_head_attention",
            "05_cross_attention",
            "06_encoder_layer",
            "07_encoder",
            "08_gpt2",
            "09_minilm",
            "10_positions",
            "11_norms",
            "12_losses",
            "13_recurrent",
            "14_seq2seq",
            "15_encoder_decoder",
            "16_bert",
            "17_linformer",
            "18_windows",
            "19_llama",
            "20_t5",
            "21_bart",
            "22_vit",
            "23_swin",
            "24_gemma",
            "25_mamba",
            "26_mixture",
            "27_bleu",
            "28_whisper",
        ]
    } else {
        &["03_masks", "06_encoder_layer"]
    };
    for name in examples {
        for level in ["portable", "avx2", "avx512"] {
            assembles_again(&example(name), &["--cpu", level]);
        }
    }
    let layer = example("06_encoder_layer");
    for (level, pack) in [("portable", "bf16"), ("portable", "int4"), ("avx2vnni", "int8"), ("avx512", "int4")] {
        assembles_again(&layer, &["--cpu", level, "--pack", pack]);
    }
    for level in ["portable", "avx2", "avx512bf16", "amx"] {
        assembles_again(MIXED, &["--cpu", level]);
    }
}

/// The lines of each function of a text.
fn by_function(text: &str) -> BTreeMap<String, Vec<&str>> {
    let mut out: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut now = None;
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|name| !name.starts_with(".L") && !name.starts_with(' ')) {
            now = Some(name.to_string());
        } else if line.starts_with("    .size ") {
            now = None;
        } else if let Some(name) = &now {
            out.entry(name.clone()).or_default().push(line);
        }
    }
    out
}

/// Without an assembler: addresses are those of the object and the bytes of instructions are those at these addresses; every
/// label that is named stands somewhere, once.
#[test]
fn addresses_bytes_and_labels_are_those_of_the_object() {
    let folder = folder(MIXED);
    for level in ["portable", "avx2", "amx"] {
        let (object, text) = compiled(folder.path(), &["--cpu", level, "--asm-bytes"]);
        assert!(text.starts_with(&format!("# attnc p.attn --cpu {level} --asm-bytes --emit asm\n")), "{text:.99}");
        let file = object::File::parse(object.as_slice()).expect("an object");
        let code = file.section_by_name(".text").expect("code").data().expect("code");
        let symbols: BTreeMap<&str, u64> = file.symbols().filter_map(|s| Some((s.name().ok()?, s.address()))).collect();
        let shown = by_function(&text);
        assert!(shown.len() > 5, "{level}");
        for (name, lines) in &shown {
            let mut next = symbols[name.as_str()];
            let (mut named, mut placed) = (BTreeSet::new(), BTreeSet::new());
            for line in lines {
                if let Some(label) = line.strip_suffix(':') {
                    assert!(placed.insert(label.to_string()), "{label} stands twice");
                    continue;
                }
                let Some((margin, text)) = line.trim().strip_prefix("/*").and_then(|l| l.split_once("*/")) else {
                    assert!(line.starts_with("  # "), "{line}");
                    continue;
                };
                let (address, bytes) = margin.split_once(':').expect("an address");
                let address = u64::from_str_radix(address.trim(), 16).expect("an address");
                let bytes: Vec<u8> =
                    bytes.split_whitespace().map(|b| u8::from_str_radix(b, 16).expect("a byte")).collect();
                if bytes.is_empty() {
                    assert!(text.trim().starts_with('.'), "{line}");
                    next = 0;
                } else {
                    // Instructions follow each other without a gap.
                    assert!(next == 0 || address == next, "{line}: not {next:x}");
                    assert_eq!(
                        code.get(address as usize..address as usize + bytes.len()),
                        Some(bytes.as_slice()),
                        "{line}"
                    );
                    next = address + bytes.len() as u64;
                }
                let operand = text.split('#').next().unwrap_or_default();
                let words = operand.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'));
                named.extend(words.filter(|w| w.starts_with(".L")).map(str::to_string));
            }
            assert_eq!(named, placed, "{name}");
        }
    }
}

/// Before the code of each operation stand its place in the program and its text, in leaves of our own too.
#[test]
fn code_is_shown_with_the_operation_that_it_comes_from() {
    let program = "model M {\n    w: f32[64, 64]\n    pub fn forward(x: f32[S, 64], z: f32[S, 64]) -> f32[S, 64] {\n        \
                   let y = x @ w\n        let e = exp(y)\n        e * z + sqrt(z)\n    }\n}\n";
    let folder = folder(program);
    for level in ["portable", "avx2", "avx512"] {
        let text = attnc(folder.path(), &["p.attn", "--cpu", level, "--emit", "asm=-"]);
        for (place, operation, instruction) in [
            ("p.attn:4:", " = dot %", if level == "portable" { "mulps" } else { "vfmadd231ps" }),
            ("p.attn:5:", " = exp %", if level == "portable" { "mulps" } else { "vfmadd213ps" }),
            ("p.attn:6:", " = sqrt %", if level == "portable" { "sqrtps" } else { "vsqrtps" }),
            ("p.attn:6:", " = add %", if level == "portable" { "addps" } else { "vaddps" }),
        ] {
            // The instruction stands between a comment of this operation and the next one.
            let mut under = false;
            let found = text.lines().any(|line| {
                if line.starts_with("  # ") && !line.starts_with("  #   ") {
                    under = line.contains(place) && line.contains(operation);
                }
                under && line.contains(&format!(" {instruction} "))
            });
            assert!(found, "{level}: {place} {operation} {instruction}\n{text}");
        }
    }
}

/// `--kernel` shows one kernel or plan, with the leaves that it calls, in each of the dumps.
#[test]
fn one_kernel_is_shown_alone() {
    let folder = folder(&example("06_encoder_layer"));
    let attnc = |args: &[&str]| attnc(folder.path(), &[&["p.attn"], args].concat());
    let tile = attnc(&["--emit", "tile=-"]);
    let names: Vec<&str> = tile.lines().filter_map(|l| l.strip_prefix("kernel @")?.split('(').next()).collect();
    assert!(names.contains(&"attention.0") && names.len() > 3, "{names:?}");
    let one = attnc(&["--kernel", "attention.0", "--emit", "tile=-"]);
    let (first, kernel) = one.split_once('\n').expect("lines");
    assert_eq!(first, "// attnc p.attn --kernel attention.0 --emit tile");
    assert!(kernel.starts_with("kernel @attention.0(") && tile.contains(kernel), "{one}");
    let clif = attnc(&["--kernel", "attention.0", "--emit", "clif=-"]);
    assert_eq!(clif.matches("\nfunction ").count(), 1, "{clif}");
    assert!(clif.contains("\n; portable.kernel.attention.0\n"), "{clif}");
    let whole = attnc(&["--cpu", "avx2", "--emit", "asm=-"]);
    let asm = attnc(&["--cpu", "avx2", "--kernel", "attention.0", "--emit", "asm=-"]);
    let (all, some) = (by_function(&whole), by_function(&asm));
    let others: Vec<&String> = some.keys().filter(|name| !name.starts_with("leaf.")).collect();
    assert_eq!(others, ["avx2.kernel.attention.0"], "{asm}");
    assert!(some.len() > 3 && some.len() < all.len() && some.keys().all(|name| all.contains_key(name)));
    let leaves = |text: &str| text.lines().filter(|l| l.starts_with("leaf @")).map(str::to_string).collect::<Vec<_>>();
    let mir = leaves(&attnc(&["--cpu", "avx2", "--kernel", "attention.0", "--emit", "mir=-"]));
    let all = leaves(&attnc(&["--cpu", "avx2", "--emit", "mir=-"]));
    assert!(mir.len() > 3 && mir.len() < all.len() && mir.iter().all(|leaf| all.contains(leaf)), "{mir:?}");
    let plan = attnc(&["--kernel", "post_norm", "--emit", "tile=-"]);
    assert!(plan.contains("\nplan @post_norm ") && !plan.contains("kernel @"), "{plan}");
    // The same of CLIF that was written before.
    self::attnc(folder.path(), &["p.attn", "--emit", "clif=p.clif"]);
    let again = self::attnc(folder.path(), &["p.clif", "--kernel", "attention.0", "--emit", "clif=-"]);
    assert_eq!(again.matches("\nfunction ").count(), 1, "{again}");

    for (args, message) in [
        (
            &["--kernel", "atention.0", "--emit", "asm=-"][..],
            "there is no kernel or plan `atention.0`; did you mean `attention.0`?",
        ),
        (
            &["--kernel", "attention.0", "--emit", "ir=-"],
            "`--kernel` needs one of `--emit tile`, `vector`, `clif`, `mir`, `asm`, `ptx` and `sass`",
        ),
        (&["--asm-bytes", "--emit", "clif=-"], "`--asm-bytes` needs `--emit asm`"),
        (&["--mir-registers", "--emit", "asm=-"], "`--mir-registers` needs `--emit mir`"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
        let output = command.arg("p.attn").args(args).current_dir(folder.path()).output().expect("attnc starts");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(message), "{args:?}: {err}");
    }
}

/// The code of a leaf over virtual registers and over those of the machine, at both widths; where there are no leaves, it says so.
#[test]
fn leaves_are_shown_over_registers() {
    let program = "model M {\n    pub fn forward(x: f32[S, 24], y: f32[S, 24]) -> f32[S, 24] {\n        \
                   sqrt(x) * y + 0.5\n    }\n}\n";
    let folder = folder(program);
    let of = |cpu: &str| attnc(folder.path(), &["p.attn", "--cpu", cpu, "--mir-registers", "--emit", "mir=-"]);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/lowering"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("leaves", format!("{program}----------\n{}{}", of("avx2"), of("avx512"))));
    assert!(of("portable").ends_with("\n// no leaf functions: `--cpu avx2` and those above have some\n"));
    attnc(folder.path(), &["p.attn", "--emit", "clif=p.clif"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    let command = command.args(["p.clif", "--emit", "mir=-"]).current_dir(folder.path());
    let output = command.output().expect("attnc starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && err.contains("`--emit mir` needs a model"), "{err}");
}

/// Attention whose parts stand on lines of their own, from the fourth on: scores, scale, cap, mask, sink, softmax, values.
const PARTS: &str = "model M {
    sinks: f32[2]
    pub fn forward(q: f32[2, S, 32], k: f32[2, T, 32], v: f32[2, T, 32]) -> f32[2, S, 32] {
        let products = q @ k.T
        let scaled = products / 5.5
        let capped = 30.0 * tanh(scaled)
        let masked = where(causal(S, T), capped, -inf)
        let joined = concat(masked, full<f32>(0, [2, S, 1]) + rearrange(sinks, \"h -> h 1 1\"), axis = -1)
        let weights = softmax(joined)
        weights[.., 0..T] @ v
    }
}
";

/// What attention became of knows which part of it is what: in the graph IR, in tiles, in assembly and in line tables.
#[test]
fn parts_of_attention_keep_their_places() {
    let folder = folder(PARTS);
    let path = folder.path();
    let ir = attnc(path, &["p.attn", "--emit", "ir=-"]);
    let parts = " loc(10:9, scores 4:24, scale 5:22, cap 6:29, causal 7:22, sink 8:22, softmax 9:23)\n";
    assert!(ir.contains(parts), "{ir}");
    std::fs::write(path.join("p.air"), &ir).expect("a text");
    let tiles = |program: &str| {
        let text = attnc(path, &[program, "--emit", "tile=-"]);
        text.split_once('\n').map(|(_, rest)| rest.to_string()).expect("lines")
    };
    assert_eq!(tiles("p.air"), tiles("p.attn"));
    // Tiles of queries, and one query alone.
    for (kernel, product) in [("attention.0", "dot"), ("attention.1", "reduce_sum")] {
        let tile = attnc(path, &["p.attn", "--cpu", "avx2", "--kernel", kernel, "--emit", "tile=-"]);
        let is_there = |line: usize, operation: &str| {
            tile.lines().any(|l| l.contains(&format!(" = {operation} ")) && l.contains(&format!(" loc({line}:")))
        };
        for (line, operation) in [
            (4, product),
            (5, "mul"),
            (6, "tanh"),
            (6, "mul"),
            (8, "load"),
            (9, "reduce_max"),
            (9, "exp2"),
            (9, "reduce_sum"),
            (9, "div"),
            (10, product),
        ] {
            assert!(is_there(line, operation), "{kernel}: {operation} of line {line}\n{tile}");
        }
        assert!(!is_there(10, "exp2") && !is_there(4, "tanh"), "{tile}");
        // A single query sees all keys that it visits.
        assert_eq!(is_there(7, "select"), product == "dot", "{tile}");
    }
    for level in ["portable", "avx2", "avx512"] {
        let text = attnc(path, &["p.attn", "--cpu", level, "--kernel", "attention.0", "--emit", "asm=-"]);
        let comments: Vec<&str> = text.lines().filter(|l| l.starts_with("  # ")).collect();
        for (line, operation) in [(4, "dot"), (6, "tanh"), (7, "select"), (9, "exp2"), (10, "dot")] {
            let found = comments
                .iter()
                .any(|l| l.contains(&format!("p.attn:{line}:")) && l.contains(&format!(" = {operation} %")));
            assert!(found, "{level}: {operation} of line {line}\n{text}");
        }
    }
    attnc(path, &["p.attn", "-g", "--emit", "obj=lines.o"]);
    let bytes = std::fs::read(path.join("lines.o")).expect("an object");
    let file = object::File::parse(bytes.as_slice()).expect("an object");
    let kernel = file.symbols().find(|s| s.name() == Ok("portable.kernel.attention.0")).expect("a kernel");
    let inside = kernel.address()..kernel.address() + kernel.size();
    let found: BTreeSet<u64> = rows(&bytes)
        .into_iter()
        .filter(|(at, _)| inside.contains(at))
        .filter_map(|(_, place)| Some(place?.1))
        .collect();
    assert!((4..=10).all(|line| found.contains(&line)), "{found:?}");
}

/// A row of a line table: address, file, line; no file where a sequence ends.
type Row = (u64, Option<(String, u64)>);

/// The rows of the line tables of an ELF file, by an independent reader; relocations of objects are applied to it.
fn rows(bytes: &[u8]) -> Vec<Row> {
    let file = object::File::parse(bytes).expect("an ELF file");
    let load = |id: gimli::SectionId| -> Result<Vec<u8>, gimli::Error> {
        let Some(section) = file.section_by_name(id.name()) else { return Ok(Vec::new()) };
        let mut data = section.data().expect("bytes").to_vec();
        for (at, r) in section.relocations() {
            let RelocationTarget::Symbol(n) = r.target() else { panic!("a relocation of no symbol") };
            let value = file.symbol_by_index(n).expect("a symbol").address().wrapping_add_signed(r.addend());
            let (at, size) = (at as usize, usize::from(r.size() / 8));
            data[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        Ok(data)
    };
    let sections = gimli::DwarfSections::load(load).expect("sections");
    let dwarf = sections.borrow(|data| gimli::EndianSlice::new(data, gimli::LittleEndian));
    let mut out = Vec::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next().expect("a unit") {
        let unit = dwarf.unit(header).expect("a unit");
        let program = unit.line_program.clone().expect("a table");
        let mut rows = program.rows();
        while let Some((header, row)) = rows.next_row().expect("a row") {
            let place = (!row.end_sequence()).then(|| {
                let name = row.file(header).expect("a file").path_name();
                let name = dwarf.attr_string(&unit, name).expect("a name").to_string_lossy().into_owned();
                (name, row.line().map_or(0, std::num::NonZero::get))
            });
            out.push((row.address(), place));
        }
    }
    out
}

/// With `-g` the object and the library say which line code comes from; the code is the same, and no path is in either.
#[test]
fn line_tables_lead_back_to_the_program() {
    let program = "use std.nn\n\nmodel M {\n    norm: LayerNorm<64>\n    w: f32[64, 64]\n    pub fn forward(x: f32[S, 64], z: f32[S, 64]) -> f32[S, 64] {\n        \
                   let y = x @ w\n        exp(y) * z\n    }\n    pub fn other(x: f32[S, 64]) -> f32[S, 64] {\n        norm(x)\n    }\n}\n";
    let folder = folder(program);
    let path = folder.path();
    attnc(path, &["p.attn", "--emit", "obj=plain.o"]);
    attnc(path, &["p.attn", "-g", "--emit", "obj=lines.o"]);
    let read = |name: &str| std::fs::read(path.join(name)).expect("an output");
    let (plain, lines) = (read("plain.o"), read("lines.o"));
    let text = |bytes: &[u8]| {
        let file = object::File::parse(bytes).expect("an object");
        file.section_by_name(".text").expect("code").data().expect("code").to_vec()
    };
    assert!(text(&plain) == text(&lines), "-g changes code");
    assert!(object::File::parse(plain.as_slice()).expect("an object").section_by_name(".debug_line").is_none());

    let file = object::File::parse(lines.as_slice()).expect("an object");
    let rows = rows(&lines);
    let line_of = |symbol: &str| -> BTreeSet<(String, u64)> {
        let s = file.symbols().find(|s| s.name() == Ok(symbol)).unwrap_or_else(|| panic!("{symbol}"));
        let inside = s.address()..s.address() + s.size();
        rows.iter().filter(|(at, _)| inside.contains(at)).filter_map(|(_, place)| place.clone()).collect()
    };
    let place = |file: &str, line: u64| (file.to_string(), line);
    // Every function has lines, each of which exists; a kernel has those of the operations fused into it.
    let source: Vec<&str> = program.lines().collect();
    for s in file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_definition()) {
        for (name, line) in line_of(s.name().expect("a name")) {
            assert!(
                name == "nn.attn" || (name == "p.attn" && source.len() as u64 >= line && line > 0),
                "{name}:{line}"
            );
        }
    }
    let product = line_of("portable.kernel.matmul.0");
    assert!(product.contains(&place("p.attn", 7)) && product.contains(&place("p.attn", 8)), "{product:?}");
    let norm = line_of("portable.kernel.rows.0");
    assert!(!norm.is_empty() && norm.iter().all(|(name, _)| name == "nn.attn"), "{norm:?}");
    // Leaves of our own have lines too.
    let leaf = file.symbols().filter_map(|s| s.name().ok()).find(|name| name.starts_with("leaf.dot.avx2."));
    assert_eq!(line_of(leaf.expect("a leaf")), BTreeSet::from([place("p.attn", 7)]));
    let here = path.to_string_lossy().into_owned();
    let holds = |bytes: &[u8], what: &str| bytes.windows(what.len()).any(|w| w == what.as_bytes());
    assert!(!holds(&lines, &here) && holds(&lines, "p.attn"));

    attnc(path, &["p.attn", "-g", "-o", "lines.so"]);
    attnc(path, &["p.attn", "-o", "plain.so"]);
    let library = self::rows(&read("lines.so"));
    let own =
        library.iter().filter(|(_, place)| place.as_ref().is_some_and(|(name, line)| name == "p.attn" && *line == 7));
    assert!(own.count() > 1 && !holds(&read("lines.so"), &here));
    assert!(self::rows(&read("plain.so")).is_empty());
    // The same input gives the same bytes.
    attnc(path, &["p.attn", "-g", "--emit", "obj=again.o"]);
    assert!(read("again.o") == lines);
}
