//! Is a tile IR text that the verifier accepts safe to run? What lowering makes of a small GPT-2 is accepted; each of many
//! edits by hand, which would read or write where nothing may be read or written, is refused by the name of the access; and of
//! thousands of edits at random none that is accepted leaves its buffers in the interpreter, which checks each access.

use crate::front;

use std::collections::BTreeMap;
use std::process::Command;

use attnc::ir::interp::Limits;
use attnc::lowering::tile::lower;
use attnc::passes::{Collected, Options, optimise};
use attnc::random::Random;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::tile::interp::{Call, run};
use attnc::tile::{self, Cpu, Module, PlanVariant, WeightFormat, text, verify};

/// GPT-2 of some width as a text, without places.
fn gpt2(layers: i64, width: i64, heads: i64, words: i64, weights: WeightFormat) -> String {
    let source = include_str!("../../examples/08_gpt2.attn");
    printed(source, &[("L", layers), ("D", width), ("H", heads), ("V", words)], weights)
}

/// The text of a program, without places.
fn printed(source: &str, dims: &[(&str, i64)], weights: WeightFormat) -> String {
    let mut graph = front::module("bounds.attn", source, &front::options(dims)).unwrap();
    optimise(&mut graph, &Options::default(), &mut Collected::default()).unwrap();
    let tiles = lower(attnc::ir::verify(&graph).unwrap()).unwrap();
    let tiles = tile::schedule(&tiles, Cpu::PORTABLE, &weights.into()).unwrap();
    without_places(&text::print(&tiles))
}

/// The text with its places left out where a line has one.
fn without_places(printed: &str) -> String {
    let mut out = String::new();
    for line in printed.lines() {
        match (line.split_once(" loc("), line.ends_with('{')) {
            (Some((code, _)), true) => out += &format!("{} {{\n", code.trim_end()),
            (Some((code, _)), false) => out += &format!("{}\n", code.trim_end()),
            (None, _) => out += &format!("{line}\n"),
        }
    }
    out
}

/// The module of a text, or `None` where it is none.
fn parse(source: &str) -> Option<Module> {
    let mut sources = SourceMap::new();
    let file = sources.add("bounds.tir", source);
    text::parse(source, file).ok().map(|p| p.module)
}

/// What the verifier says of a text that can be read.
fn complaint(source: &str) -> Option<String> {
    let mut sources = SourceMap::new();
    let file = sources.add("bounds.tir", source);
    let module = match text::parse(source, file) {
        Ok(parsed) => parsed.module,
        Err(d) => panic!("cannot be read: {}\n{source}", attnc::diagnostics::render_all(&d, &sources, false)),
    };
    verify::verify(&module).err().map(|e| e.to_string())
}

/// A part of a text, from the line that begins so; what stands there, what shall; and the complaint.
type Edit = (&'static str, &'static str, &'static str, &'static str);

const EDITS: &[Edit] = &[
    // Indices out of data.
    ("kernel @gather.0", "%10 = check_index %9, %6, site=0", "%10 = add %9, %7", "load: %0 may be read"),
    ("kernel @gather.0", "check_index %9, %6", "check_index %9, %3", "index %10 of axis 0 of %0 may be beyond 96"),
    ("kernel @gather.0", "%6 = const 96 ", "%6 = const 97 ", "index %10 of axis 0 of %0 may be beyond 96"),
    (
        "kernel @gather.0",
        "load_scalar %1[%3]",
        "load_scalar %1[%6]",
        "load_scalar: index %6 of axis 0 of %1 may be beyond S",
    ),
    ("kernel @gather.0", "store %2[%3, %7]", "store %2[%10, %7]", "store: index %10 of axis 0 of %2 may be beyond S"),
    (
        "kernel @gather.0",
        "store %2[%3, %7]",
        "store %2[%3, %6]",
        "store: what begins at %6 of axis 1 of %2 may end beyond 64",
    ),
    ("kernel @gather.0", "%0: in f32[96, 64]", "%0: in f32[95, 64]", "may be beyond 95"),
    // Grids and steps.
    ("kernel @gather.0", "grid(%3: S,", "grid(%3: S+1,", "load_scalar: index %3 of axis 0 of %1 may be beyond S"),
    ("kernel @gather.0", "grid(%3: S,", "grid(%3: S-1,", "the extent S-1 of the grid may be negative"),
    ("kernel @gather.0", "grid(%3: S,", "grid(%3: -5,", "the extent -5 of the grid may be negative"),
    ("kernel @gather.0", "%4: ceil(64, 64)", "%4: ceil(65, 64)", "may end beyond 64"),
    ("kernel @map.0", "ceil(64*S, 256)", "ceil(64*S, 255)", "the extent %8 may be below 0"),
    ("kernel @map.0", "ceil(64*S, 256)", "ceil(65*S, 256)", "the extent %8 may be below 0"),
    ("kernel @map.0", "ceil(64*S, 256)", "ceil(64*S, 0)", "steps of 0"),
    // Bounds of extents.
    ("kernel @map.0", "%8 = min %7, %4 ", "%8 = max %7, %4 ", "the extent %8 may be above 256"),
    ("kernel @map.0", "%8 = min %7, %4 ", "%8 = min %7, %5 ", "the extent %8 may be above 256"),
    (
        "kernel @map.0",
        "%7 = sub %5, %6 ",
        "%7 = add %5, %6 ",
        "load: what begins at %6 of axis 0 of %0 may end beyond 64*S",
    ),
    ("kernel @map.0", "%7 = sub %5, %6 ", "%7 = sub %6, %5 ", "the extent %8 may be below 0"),
    (
        "kernel @map.0",
        "%5 = dim 64*S ",
        "%5 = dim 65*S ",
        "load: what begins at %6 of axis 0 of %0 may end beyond 64*S",
    ),
    // `S` is at most 1024, and the square of a point is inside then; `64*S` times a point is not.
    ("kernel @map.0", "%6 = mul %3, %4 ", "%6 = mul %3, %5 ", "may"),
    ("kernel @map.0", "store %2[%6]", "store %2[%4]", "store: what begins at %4 of axis 0 of %2 may end beyond 64*S"),
    (
        "kernel @rows.0",
        "%7 = const 0 ",
        "%7 = const -1 ",
        "may be read or written before its start: index %7 of axis 1",
    ),
    ("kernel @rows.0", "%7 = const 0 ", "%7 = const 1 ", "what begins at %7 of axis 1 of %0 may end beyond 64"),
    ("kernel @rows.0", "%0: in f32[S, 64]", "%0: in f32[S, 63]", "may end beyond 63"),
    ("kernel @rows.0", "%3: out f32[S, 64]", "%3: out f32[S-1, 64]", "may end beyond S-1"),
    (
        "kernel @matmul.0",
        "window %1[%4, %9, %9]",
        "window %1[%5, %9, %9]",
        "window: index %5 of axis 0 of %1 may be beyond 12",
    ),
    ("kernel @matmul.0", "%4: ceil(96, 8)", "%4: ceil(96, 7)", "may be beyond 12"),
    (
        "kernel @matmul.0",
        "%1: in f32[12, 64, 8]",
        "%1: in f32[11, 64, 8]",
        "window: index %4 of axis 0 of %1 may be beyond 11",
    ),
    // Loops.
    (
        "kernel @attention.0",
        "%36 = lt %32, %25",
        "%36 = le %32, %25",
        "window: what begins at %32 of axis 1 of %1 may end beyond S",
    ),
    (
        "kernel @attention.0",
        "%53 = add %32, %15 ",
        "%53 = add %32, %14 ",
        "window: what begins at %32 of axis 1 of %1 may end beyond S",
    ),
    ("kernel @attention.0", "%53 = add %32, %15 ", "%53 = sub %32, %15 ", "before its start: index %32 of axis 1"),
    (
        "kernel @attention.0",
        "br ^bb1(%11,",
        "%start = const -256 : index\n  br ^bb1(%start,",
        "before its start: index %32 of axis 1",
    ),
    (
        "kernel @attention.0",
        "%23 = add %16, %14 ",
        "%23 = add %16, %15 ",
        "window: what begins at %32 of axis 1 of %1 may end beyond S",
    ),
    ("kernel @attention.0", "%55 = min %8, %54 ", "%55 = add %8, %54 ", "may end beyond S"),
    (
        "kernel @attention.0",
        "%61 = sub %55, %56 ",
        "%61 = add %55, %56 ",
        "window: what begins at %56 of axis 1 of %1 may end beyond S",
    ),
    (
        "kernel @attention.0",
        "%24 = div %23, %15 ",
        "%24 = add %23, %15 ",
        "window: what begins at %32 of axis 1 of %1 may end beyond S",
    ),
    ("kernel @attention.0", "br_if %60, ^bb5, ^bb6", "br_if %60, ^bb6, ^bb5", "the extent %62 may be below 0"),
    // Panels, whose type is smaller than the memory that they take.
    ("kernel @pack.0", "%3: ceil(S, 8)", "%3: S", "may be"),
    ("kernel @pack.0", "%9 = mul %4, %5 ", "%9 = add %4, %5 ", "may end beyond 16"),
    ("plan @forward tapped", "256*S+1792", "256*S+1791", "launch: @pack.0 may access operand 1"),
    // Buffers of plans.
    (
        "plan @forward symbols",
        "slots(256*S,",
        "slots(4,",
        "may access operand 2, %8, beyond the 4 bytes that it is part of",
    ),
    ("plan @forward symbols", "slots(256*S,", "slots(-384*S,", "the -384*S bytes of slot 0 may be negative"),
    ("plan @forward symbols", "slots(256*S,", "slots(256*S-1,", "the 256*S-1 bytes of slot 0 may be negative"),
    ("plan @forward symbols", "%1 = slot 0 ", "%1 = slot 9 ", "the plan has no slot 9"),
    (
        "plan @forward symbols",
        "%6 = view %4  ",
        "%6 = view %4, offset=100000000 ",
        "may access operand 0, %6, beyond the 1024*S-400000000 bytes",
    ),
    (
        "plan @forward symbols",
        "%6 = view %4  ",
        "%6 = view %4, offset=-1 ",
        "view: %6 may begin before what it is part of",
    ),
    (
        "plan @forward symbols",
        "%6 = view %4                              : buf f32[64*S]",
        "%6 = view %4 : buf f32[64*S] strides[2]",
        "and the kernel takes",
    ),
    (
        "plan @forward symbols",
        "view %14, offset=64 ",
        "view %14, offset=129 ",
        "may access operand 0, %41, beyond the 768*S-516 bytes",
    ),
    (
        "plan @forward symbols",
        "view %15[%24], strides=[12288]",
        "view %15[%24], strides=[100000]",
        "view: %32 may end beyond",
    ),
    (
        "plan @forward symbols",
        "view %15[%24], strides=[12288]",
        "view %15[%24], strides=[-12288]",
        "view: %32 may begin before",
    ),
    ("plan @forward symbols", "%25 = const 3 ", "%25 = const 4 ", "param: index %24 may be outside of 3"),
    ("plan @forward symbols", "%9 = const 0 ", "%9 = const -1 ", "param: index %24 may be outside of 3"),
    ("plan @forward symbols", "%64 = const 1 ", "%64 = const -1 ", "param: index %24 may be outside of 3"),
    ("plan @forward symbols", "buf f32[3, 24, 64, 8]", "buf f32[99, 24, 64, 8]", "of the packed area"),
    ("entry @forward", "  where S <= 1024\n", "", "view: %7 may end beyond what it is part of"),
    ("entry @forward", "  where S <= 1024\n", "  where S <= 1025\n", "view: %7 may end beyond what it is part of"),
    ("packed ", "packed 614400", "packed 18446744073709551615", "the packed area has 18446744073709551615 bytes"),
    ("packed ", "packed 614400", "packed 614336", "of the packed area"),
    // Stores.
    ("plan @forward symbols", "launch @gather.0(%3, %0, %4)", "launch @gather.0(%3, %0, %3)", "and the kernel takes"),
    (
        "plan @forward symbols",
        "launch @map.0(%6, %7, %8)",
        "launch @map.0(%6, %8, %7)",
        "launch: operand 2, %7, is a parameter of the model, and @map.0 writes it",
    ),
    ("plan @forward symbols", "%8 = view %1  ", "%8 = view %0  ", "element types"),
    (
        "plan @forward symbols",
        "launch @matmul.0(%10, %12, %11)",
        "launch @matmul.0(%11, %12, %10)",
        "and the kernel takes",
    ),
    ("kernel @map.0", "%1: in f32[64*S], %2: out f32[64*S]", "%1: out f32[64*S], %2: in f32[64*S]", "a buffer that is"),
    ("plan @weights", "launch @pack.1(%2, %0)", "launch @pack.1(%2, %2)", "and the kernel takes"),
    // Divisors.
    ("kernel @map.0", "%5 = dim 64*S ", "%5 = dim S/2 ", "nothing says that S/2 is an integer"),
    ("plan @forward symbols", "slots(256*S,", "slots(256*S+S/3,", "is an integer"),
];

/// A product of weights and values, and edits of the loop over its blocks of steps.
const PRODUCT: &str = "model P {\n    pub fn forward(p: f32[H, S, S], v: f32[H, S, 16]) -> f32[H, S, 16] { p @ v }\n}";
const STEPS: &[Edit] = &[
    ("kernel @matmul.0", "%21 = lt %20, %7", "%21 = lt %17, %7", "may"),
    (
        "kernel @matmul.0",
        "br ^bb1(%20,",
        "%next = add %20, %8 : index\n  br ^bb1(%next,",
        "the extent %26 may be below 0",
    ),
];

fn edited(source: &str, (section, from, to, _): &Edit) -> String {
    let start = source.find(section).unwrap_or_else(|| panic!("the text has no {section}"));
    let (before, after) = source.split_at(start);
    let end = after.get(1..).and_then(|rest| rest.find("\n}\n")).map_or(after.len(), |n| n + 4);
    let (part, rest) = after.split_at(end);
    assert!(part.contains(from), "{section} has no {from:?}:\n{part}");
    format!("{before}{}{rest}", part.replacen(from, to, 1))
}

#[test]
fn edits_by_hand_are_refused_by_name() {
    let source = gpt2(3, 64, 4, 96, WeightFormat::F32);
    let product = printed(PRODUCT, &[], WeightFormat::F32);
    assert_eq!((complaint(&source), complaint(&product)), (None, None));
    assert!(EDITS.len() >= 45);
    let mut wrong = Vec::new();
    for (source, edit) in EDITS.iter().map(|e| (&source, e)).chain(STEPS.iter().map(|e| (&product, e))) {
        match complaint(&edited(source, edit)) {
            Some(e) if e.contains(edit.3) => {}
            Some(e) => {
                let errors: Vec<&str> = e.lines().filter(|l| l.contains("error")).collect();
                wrong.push(format!("{edit:?}: {errors:#?}"));
            }
            None => wrong.push(format!("{edit:?} is accepted")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A kernel that writes its second operand, and what a plan gives it.
fn written(operand: &str) -> String {
    format!(
        "module \"w\"\nmodel \"W\"\nparam \"p\" : f32[8]\n\nentry @forward(\"x\": f32[8]) -> (f32[8]) {{\n}}\n\n\
         kernel @copy(%0: in f32[8], %1: out f32[8]) cpu(portable) scratch(0) {{\n^bb0:\n  %2 = const 0 : index\n  \
         run (1, 8) {{\n    %3 = load %0[%2], cols=0 : tile f32[1, 8] @reg\n    store %1[%2], %3, cols=0\n  }}\n  return\n}}\n\n\
         plan @forward {{\n^bb0:\n  %0 = arg 0 : buf f32[8]\n  %1 = out 0 : buf f32[8]\n  %2 = param \"p\" : buf f32[8]\n  \
         launch @copy(%0, %1)\n  launch @copy(%1, {operand})\n  return\n}}\n"
    )
}

#[test]
fn arguments_and_parameters_are_not_written() {
    assert_eq!(complaint(&written("%1")), None);
    assert!(
        complaint(&written("%0")).unwrap().contains("operand 1, %0, is an argument of the caller, and @copy writes it")
    );
    assert!(
        complaint(&written("%2")).unwrap().contains("operand 1, %2, is a parameter of the model, and @copy writes it")
    );
}

/// A plan that reads eight numbers of an argument of `S`.
fn sliced(check: &str) -> String {
    written("%1")
        .replace("\"x\": f32[8]", "\"x\": f32[S]")
        .replace("plan @forward {", "plan @forward symbols(S) {")
        .replace("site", "")
        .replace("param \"p\" : f32[8]\n", "param \"p\" : f32[8]\nsite \"{0} of {1}\"\n")
        .replace(
            "  %0 = arg 0 : buf f32[8]\n",
            &format!("  %9 = arg 0 : buf f32[S]\n{check}  %0 = view %9 : buf f32[8]\n"),
        )
}

#[test]
fn what_a_plan_checks_is_known_and_reported() {
    assert!(complaint(&sliced("")).unwrap().contains("may end beyond what it is part of"));
    let source = sliced("  %7 = const 7 : index\n  %8 = dim S : index\n  %6 = check_index %7, %8, site=0 : index\n");
    assert_eq!(complaint(&source), None);
    let module = parse(&source).unwrap();
    for (size, fits) in [(9, true), (8, true), (7, false), (0, false)] {
        let x = Tensor::from_f32(vec![size], &vec![1.0; size]).unwrap();
        let params: BTreeMap<String, Tensor> =
            [("p".to_string(), Tensor::from_f32(vec![8], &[0.0; 8]).unwrap())].into();
        let call = Call {
            plan: "forward",
            variant: PlanVariant::Plain,
            symbols: &[("S".to_string(), size as i64)].into(),
            args: &[x],
            params: &params,
            limits: Limits::default(),
        };
        let got = run(verify::verify(&module).unwrap(), &call);
        match got {
            Ok(_) => assert!(fits, "{size}"),
            Err(e) => assert!(!fits && !e.internal && e.message.contains(&format!("7 of {size}")), "{size}: {e}"),
        }
    }
}

/// Values for all parameters.
fn parameters(module: &Module) -> BTreeMap<String, Tensor> {
    let mut out = BTreeMap::new();
    for p in &module.params {
        let shape: Vec<usize> = p.ty.shape.iter().filter_map(|d| usize::try_from(d.as_const()?).ok()).collect();
        let n: usize = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|i| (i % 7) as f32 * 0.125 - 0.25).collect();
        let tensor = Tensor::from_f32(shape, &values).unwrap();
        for i in 0..p.counts.iter().product::<u64>() {
            out.insert(p.name.replacen('*', &i.to_string(), 1), tensor.clone());
        }
    }
    out
}

/// A text in which one number or one operand of a kernel or plan is another.
fn mutate(source: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = source.lines().map(String::from).collect();
    let first = lines.iter().position(|l| l.starts_with("kernel")).unwrap_or(0);
    loop {
        let at = first + random.below(lines.len() - first);
        let mut words: Vec<String> = Vec::new();
        for c in lines[at].chars() {
            let word = |c: char| c.is_alphanumeric() || matches!(c, '%' | '_' | '.');
            match words.last_mut() {
                Some(last) if word(c) && last.chars().next_back().is_some_and(word) => last.push(c),
                _ => words.push(c.to_string()),
            }
        }
        let can = |w: &String| {
            w.parse::<i64>().is_ok() || w.starts_with('%') || ["min", "max", "lt", "S"].contains(&w.as_str())
        };
        let places: Vec<usize> = (0..words.len()).filter(|i| can(&words[*i])).collect();
        if places.is_empty() {
            continue;
        }
        let place = random.pick(&places);
        let old = words[place].clone();
        let new = if let Ok(n) = old.parse::<i64>() {
            random.pick(&[n + 1, n - 1, n * 2, n / 2, 0, 1, -n, 1 << 40]).to_string()
        } else if let Some(n) = old.strip_prefix('%').and_then(|n| n.parse::<i64>().ok()) {
            format!("%{}", (n + random.pick(&[-3, -2, -1, 1, 2])).max(0))
        } else {
            match old.as_str() {
                "min" => "max".to_string(),
                "max" => "min".to_string(),
                "lt" => random.pick(&["le", "ge", "ne"]).to_string(),
                _ => random.pick(&["S*S", "(S+1)", "(S-1)", "1", "64"]).to_string(),
            }
        };
        if new != old {
            words[place] = new;
            lines[at] = words.concat();
            return lines.iter().flat_map(|l| [l, "\n"]).collect();
        }
    }
}

#[test]
fn what_is_accepted_stays_in_its_buffers() {
    let count = std::env::var("ATTNC_MUTANTS").ok().and_then(|n| n.parse::<usize>().ok()).unwrap_or(600);
    let texts = [WeightFormat::F32, WeightFormat::Int4].map(|w| gpt2(2, 16, 2, 12, w));
    let params = parameters(&parse(&texts[0]).unwrap());
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..count {
        let text = mutate(&texts[seed % 2], &mut Random::new(seed as u64));
        let Some(module) = parse(&text) else { continue };
        let Ok(verified) = verify::verify(&module) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        let size = [0usize, 1, 2, 9][seed / 2 % 4];
        let tokens: Vec<i64> = (0..size).map(|i| (i * 5 % 12) as i64).collect();
        let tokens = Tensor::from_ints(attnc::shape::Elem::I32, vec![size], &tokens).unwrap();
        for variant in [PlanVariant::Plain, PlanVariant::Tapped] {
            let call = Call {
                plan: "forward",
                variant,
                symbols: &[("S".to_string(), size as i64)].into(),
                args: std::slice::from_ref(&tokens),
                params: &params,
                limits: Limits { work: 3_000_000, ..Limits::default() },
            };
            if let Err(e) = run(verified, &call) {
                let outside = ["is outside of", "an extent is", "no such", "a negative extent", "divides by zero"];
                let changed: Vec<(&str, &str)> =
                    texts[seed % 2].lines().zip(text.lines()).filter(|(a, b)| a != b).collect();
                assert!(!outside.iter().any(|o| e.message.contains(o)), "seed {seed}, S = {size}: {e}\n{changed:#?}");
            }
        }
    }
    assert!(accepted >= count / 20 && refused >= count / 4, "{accepted} accepted, {refused} refused");
}

/// What is no text for this compiler's code is an error of the text, not of the compiler.
#[test]
fn texts_without_code_are_no_bugs() {
    let folder = tempfile::tempdir().unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    let out = folder.path().join("out.o");
    for name in ["attention_sm80", "attention_sm90a"] {
        let path = format!("{root}/tests/witnesses/{name}.tir");
        let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
        let output = command.args([path.as_str(), "--emit", "obj", "-o"]).arg(&out).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {err}");
        assert!(err.contains("code generation does not support this"), "{name}: {err}");
    }
    // Taps that no plan fills.
    let source = gpt2(2, 16, 2, 12, WeightFormat::F32);
    let start = source.find("plan @forward tapped").unwrap();
    let end = start + source[start..].find("\n}\n").unwrap() + 3;
    let text = format!("{}{}", &source[..start], &source[end..]);
    assert!(complaint(&text).unwrap().contains("has taps, and no plan that fills them"));
}

/// A plan whose only slot has this many bytes, under these facts.
fn slot_of(facts: &str, bytes: &str, lines: &str) -> String {
    let facts: String = facts.split(", ").filter(|f| !f.is_empty()).map(|f| format!("  where {f}\n")).collect();
    written("%1")
        .replace(
            "entry @forward(\"x\": f32[8]) -> (f32[8]) {\n",
            &format!("entry @forward(\"x\": f32[8], \"y\": f32[S, T]) -> (f32[8]) {{\n{facts}"),
        )
        .replace("plan @forward {", &format!("plan @forward symbols(S, T) slots({bytes}) {{"))
        .replace("  launch @copy(%0, %1)\n", &format!("{lines}  launch @copy(%0, %1)\n"))
}

/// What facts say of products, differences and quotients, and what they do not.
#[test]
fn facts_prove_what_they_say() {
    for (facts, bytes, holds) in [
        ("", "4*S*T", true),
        ("", "S*T-S", false),
        ("1 <= T", "S*T-S", true),
        ("1 <= S", "S*S-2*S+1", true),
        ("2 <= S", "S*S-3*S+2", true),
        ("1 <= S", "S*T-2*S-T+2", false),
        ("2 <= T", "S*T-2*S-T+2", false),
        ("1 <= S, 2 <= T", "S*T-2*S-T+2", true),
        ("T < S", "S-T-1", true),
        ("T < S", "S-T-2", false),
        ("T <= S", "S-T", true),
        ("T <= S", "S-T-1", false),
        ("T <= S", "S*S-2*S*T+T*T", true),
        ("1 <= S", "S*((S-T)/(T+1))-((S-T)/(T+1))", false),
        ("(S) % (2) == 0", "S/2", true),
        ("(S) % (2) == 0", "S/2-1", false),
    ] {
        let found = complaint(&slot_of(facts, bytes, "")).unwrap_or_default();
        assert_eq!(!found.contains("bytes of slot 0 may be negative"), holds, "{bytes} where {facts}: {found}");
    }
}

/// Arguments lie in order; numbers are read where they are.
#[test]
fn what_a_plan_reads_is_there() {
    assert_eq!(complaint(&slot_of("", "32", "")), None);
    let turned = complaint(&slot_of("", "32", "  %20 = arg 0 : buf f32[8] strides[2]\n"));
    assert!(turned.as_deref().unwrap_or_default().contains("the whole of it lies in order"), "{turned:?}");
    let read = |bytes: &str| {
        slot_of("", bytes, "  %20 = slot 0 : buf i32[8]\n  %21 = const 1 : index\n  %22 = load_scalar %20[%21] : i32\n")
    };
    assert_eq!(complaint(&read("32")), None);
    let beyond = complaint(&read("8"));
    assert!(beyond.as_deref().unwrap_or_default().contains("may end beyond what it is part of"), "{beyond:?}");
}

/// Quantised weights are read from the beginning of a group on, which has a scale.
#[test]
fn groups_of_quantised_weights_are_read_whole() {
    let source = gpt2(2, 64, 4, 96, WeightFormat::Int8);
    assert_eq!(complaint(&source), None);
    let line = source.lines().find(|l| l.contains("load_scaled")).expect("quantised weights");
    let (before, inside) = line.split_once("load_scaled ").expect("its operands");
    let (buffer, rest) = inside.split_once('[').expect("indices");
    let (indices, after) = rest.split_once(']').expect("indices");
    let mut indices: Vec<&str> = indices.split(", ").collect();
    let at = indices.len() - 2;
    indices[at] = "%9999";
    let edited = format!("  %9999 = const 1 : index\n{before}load_scaled {buffer}[{}]{after}", indices.join(", "));
    let found = complaint(&source.replacen(line, &edited, 1)).unwrap_or_default();
    assert!(found.contains("may be inside of a group of"), "{edited}\n{found}");
}

/// Rules of kernels and plans, one by one, on a small text: what is edited, to what, and what is said.
#[test]
fn rules_of_small_texts() {
    let text = "module \"w\"\nmodel \"W\"\nparam \"p\" : f32[8]\npacked 64\n\nentry @forward(\"x\": f32[8]) -> (f32[8]) {\n}\n\n\
        kernel @copy(%0: in f32[8], %1: out f32[8]) cpu(portable) scratch(0) {\n^bb0:\n  %2 = const 0 : index\n  \
        run (1, 8) {\n    %3 = load %0[%2], cols=0 : tile f32[1, 8] @reg\n    store %1[%2], %3, cols=0\n  }\n  return\n}\n\n\
        kernel @turns(%0: in f32[8], %1: out f32[8]) {\n^bb0:\n  %2 = const 0 : index\n  %3 = load %0[%2], cols=0 : tile f32[1, 8]\n  \
        %7 = reduce_sum %3, axis=1 : tile f32[1, 1]\n  br ^bb1(%2, %3)\n\
        ^bb1(%4: index, %5: tile f32[1, 8]):\n  %6 = add %5, %7 : tile f32[1, 8]\n  store %1[%2], %6, cols=0\n  return\n}\n\n\
        plan @weights prepare {\n^bb0:\n  %0 = param \"p\" : buf f32[8]\n  %1 = packed 0 : buf f32[8]\n  launch @copy(%0, %1)\n  return\n}\n\n\
        plan @forward slots(32) {\n^bb0:\n  %0 = arg 0 : buf f32[8]\n  %1 = out 0 : buf f32[8]\n  %2 = packed 0 : buf f32[8]\n  \
        %3 = slot 0 : buf f32[8]\n  launch @copy(%2, %3)\n  launch @copy(%0, %1)\n  return\n}\n";
    assert_eq!(complaint(text), None);
    for (from, to, said) in [
        ("%2 = packed 0 : buf f32[8]\n", "%2 = packed 40 : buf f32[8]\n", "a packed buffer is aligned to 64 bytes"),
        (
            "%2 = packed 0 : buf f32[8]\n",
            "%2 = packed 64 : buf f32[8]\n",
            "ends at byte 96 of 64 bytes of the packed area",
        ),
        ("%3 = slot 0", "%3 = slot 1", "the plan has no slot 1"),
        ("launch @copy(%2, %3)", "launch @copy(%3, %2)", "is in the packed area, which is read here alone"),
        (
            "  launch @copy(%0, %1)\n  return\n}\n\nplan @f",
            "  launch @copy(%1, %1)\n  return\n}\n\nplan @f",
            "is in the packed area, which is written here",
        ),
        ("br ^bb1(%2, %3)", "br ^bb1(%2, %7)", "argument 2 of the target is"),
        ("br ^bb1(%2, %3)", "br ^bb1(%3, %2)", "argument 1 of the target is"),
        (
            "index\n  %3 = load %0[%2], cols=0 : tile f32[1, 8]\n  %7",
            "index\n  %8 = dim U : index\n  %3 = load %0[%2], cols=0 : tile f32[1, 8]\n  %7",
            "U is not one of the symbols",
        ),
        ("br ^bb1(%2, %3)", "br ^bb1(%2)", "the target has 2 arguments, the jump gives 1"),
    ] {
        assert!(text.contains(from), "{from}");
        let found = complaint(&text.replacen(from, to, 1)).unwrap_or_default();
        assert!(found.contains(said), "{to}: {said:?} is not in\n{found}");
    }
    // Tiles have from 1 to 2^20 elements along each axis.
    let wide = |n: i64| {
        format!(
            "module \"w\"\n\nkernel @k(%0: in f32[{n}], %1: out f32[{n}]) {{\n^bb0:\n  %2 = const 0 : index\n  \
             %3 = load %0[%2], cols=0 : tile f32[1, {n}]\n  store %1[%2], %3, cols=0\n  return\n}}\n"
        )
    };
    for (n, fits) in [(1, true), (1 << 20, true), ((1 << 20) + 1, false), (0, false)] {
        let found = complaint(&wide(n)).unwrap_or_default();
        assert_eq!(!found.contains("is not between 1 and 2^20"), fits, "{n}: {found}");
    }
}

/// A product that is at least 0 says nothing of one factor where the other may be 0.
#[test]
fn facts_say_nothing_of_factors_that_may_be_zero() {
    let text = |fact: &str, shape: &str, at: &str| {
        format!(
            "module \"m\"\n\nentry @f(\"x\": f32[{shape}], \"y\": f32[K], \"z\": f32[S]) -> (f32[1]) {{\n  where {fact}\n}}\n\n\
             kernel @k(%0: in f32[K*T+T], %1: out f32[1]) symbols(K, S, T) cpu(portable) scratch(0) {{\n^bb0:\n  \
             %2 = dim {at} : index\n  %4 = const 0 : index\n  run (1, 1) {{\n    %3 = load %0[%2] : tile f32[1, 1] @reg\n    \
             store %1[%4], %3\n  }}\n  return\n}}\n\nplan @f symbols(K, S, T) {{\n^bb0:\n  %0 = arg 0 : buf f32[{shape}]\n  \
             %1 = out 0 : buf f32[1]\n  %2 = view %0 : buf f32[K*T+T]\n  launch @k(%2, %1)\n  return\n}}\n"
        )
    };
    assert_eq!(complaint(&text("1 <= T", "T, K+1", "K")), None);
    let found = complaint(&text("S <= S*T", "T, K+1", "K")).unwrap_or_default();
    assert!(found.contains("load"), "{found}");
}

/// A length of at least 3 and at most `S` says nothing of `S` where it has no value: an element behind the end of a slot is written before.
#[test]
fn lengths_say_nothing_where_they_have_no_value() {
    let text = |before: &str, after: &str| {
        format!(
            "module \"m\"\nmodel \"M\"\nsite \"{{0}} of {{1}}\"\n\nentry @f(\"x\": f32[S], \"n\": i32[]) -> (f32[1]) {{\n}}\n\n\
             kernel @third(%0: out f32[3]) cpu(portable) scratch(0) {{\n^bb0:\n  %1 = const 0.0 : f32\n  %2 = const 2 : index\n  \
             run (1, 1) {{\n    %3 = full %1 : tile f32[1, 1] @reg\n    store %0[%2], %3\n  }}\n  return\n}}\n\n\
             kernel @of_length(%0: out f32[N]) symbols(N) cpu(portable) scratch(0) {{\n^bb0:\n  %1 = const 0.0 : f32\n  %2 = const 2 : index\n  \
             run (1, 1) {{\n    %3 = full %1 : tile f32[1, 1] @reg\n    store %0[%2], %3\n  }}\n  return\n}}\n\n\
             plan @f symbols(S) slots(4*S) {{\n^bb0:\n  %0 = arg 1 : buf i32[]\n  %1 = load_scalar %0 : i32\n  %2 = cast %1 : index\n  \
             %3 = dim S+1 : index\n  %4 = slot 0 : buf f32[3]\n{before}  %5 = check_index %2, %3, site=0 : index\n  \
             length %5, name=\"N\", most=S\n  %6 = const 2 : index\n  %7 = dim N : index\n  %8 = check_index %6, %7, site=0 : index\n\
             {after}  return\n}}\n"
        )
    };
    let of_length = "  %9 = slot 0 : buf f32[N]\n  launch @of_length(%9)\n";
    assert_eq!(complaint(&text("", of_length)), None);
    let beyond = complaint(&text("  launch @third(%4)\n", of_length)).unwrap_or_default();
    assert!(beyond.contains("@third may access operand 0, %4, beyond the 4*S bytes"), "{beyond}");
}

/// Squared 31 times and 32 times a number is not the same, though both powers are beyond 2^31: their difference is no index.
#[test]
fn powers_beyond_all_numbers_are_not_equal() {
    let text = |squared: usize, less: usize| {
        let square = |n: usize| format!("  %{} = mul %{}, %{} : index\n", n + 11, n + 10, n + 10);
        let squares: String = (0..squared.max(less)).map(square).collect();
        format!(
            "module \"m\"\n\nentry @f(\"x\": f32[8], \"y\": f32[S]) -> (f32[1]) {{\n}}\n\n\
             kernel @k(%0: in f32[8], %1: out f32[1]) symbols(S) cpu(portable) scratch(0) {{\n^bb0:\n  %10 = dim S : index\n{squares}  \
             %2 = mul %{last}, %{last} : index\n  %3 = sub %2, %{less} : index\n  %4 = const 0 : index\n  run (1, 1) {{\n    \
             %5 = load %0[%3] : tile f32[1, 1] @reg\n    store %1[%4], %5\n  }}\n  return\n}}\n\nplan @f symbols(S) {{\n^bb0:\n  \
             %0 = arg 0 : buf f32[8]\n  %1 = out 0 : buf f32[1]\n  launch @k(%0, %1)\n  return\n}}\n",
            last = 10 + squared,
            less = 10 + less,
        )
    };
    assert_eq!(complaint(&text(4, 5)), None);
    for less in [31, 32] {
        let found = complaint(&text(33, less)).unwrap_or_default();
        assert!(found.contains("load: %0 may be read"), "{less}: {found}");
    }
}
