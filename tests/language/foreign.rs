//! `foreign.txt`: spellings of other libraries, and what the advice makes of each.
//!
//! The advice is carried out: the program that results is the one in the table, checks without a word, and computes what the
//! spelling computes in Python.

use super::habits::tell;
use super::semantics::call;
use attnc::diagnostics::{Diagnostics, json};
use attnc::reference;
use attnc::shape::Elem;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::{syntax, types};

const TABLE: &str = include_str!("foreign.txt");

/// Spellings that need real help, and how many of them may go without.
const LEAST: usize = 300;

struct Row {
    spelling: &'static str,
    advice: &'static str,
    ty: &'static str,
    checksum: Option<f64>,
}

fn rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with("//"));
    let row = |line: &'static str| {
        let parts: Vec<&str> = line.split(" :: ").collect();
        let ty = parts.get(2).copied().filter(|ty| !ty.is_empty()).unwrap_or("f32[S, D]");
        Row { spelling: parts[0], advice: parts[1], ty, checksum: parts.get(3).map(|text| text.parse().unwrap()) }
    };
    lines.map(row).collect()
}

const ARGUMENTS: [(&str, &str, &[usize]); 15] = [
    ("x", "f32[S, D]", &[4, 6]),
    ("y", "f32[S, D]", &[4, 6]),
    ("w", "f32[D, D]", &[6, 6]),
    ("v", "f32[D]", &[6]),
    ("a", "f32[B, S, D]", &[2, 4, 6]),
    ("i", "i32[S]", &[4]),
    ("j", "i64[S, 2]", &[4, 2]),
    ("m", "bool[S, D]", &[4, 6]),
    ("q", "f32[B, H, S, E]", &[2, 2, 4, 3]),
    ("k", "f32[B, H, S, E]", &[2, 2, 4, 3]),
    ("u", "f32[B, H, S, E]", &[2, 2, 4, 3]),
    ("img", "f32[B, C, P, Q]", &[2, 4, 2, 3]),
    ("vis", "bool[S, S]", &[4, 4]),
    ("bias", "f32[S, S]", &[4, 4]),
    ("n", "f32[S]", &[4]),
];

/// The argument at a place: the numbers that `foreign.py` gives it.
fn argument(at: usize) -> Tensor {
    let (name, ty, shape) = ARGUMENTS[at];
    let seed = [1, 2, 3, 4, 5, 0, 0, 6, 7, 8, 9, 10, 11, 12, 13][at];
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|n| ((n * 37 + 11 * seed) % 23) as f32 / 8.0 - 11.0 / 8.0).collect();
    let bools = |least: f32| -> Vec<i64> { values.iter().map(|x| i64::from(*x > least)).collect() };
    match name {
        "i" => Tensor::from_ints(Elem::I32, shape.to_vec(), &[2, 0, 3, 1]).unwrap(),
        "j" => Tensor::from_ints(Elem::I64, shape.to_vec(), &[1, 0, 5, 2, 3, 3, 0, 4]).unwrap(),
        "m" => Tensor::from_ints(Elem::Bool, shape.to_vec(), &bools(0.0)).unwrap(),
        "vis" => Tensor::from_ints(Elem::Bool, shape.to_vec(), &bools(-1.0)).unwrap(),
        _ => {
            assert!(ty.starts_with("f32"));
            Tensor::from_f32(shape.to_vec(), &values).unwrap()
        }
    }
}

fn program(expr: &str, ty: &str) -> String {
    let list: Vec<String> = ARGUMENTS.iter().map(|(name, ty, _)| format!("{name}: {ty}")).collect();
    let facts = "D % H == 0, D % 2 == 0, S % 2 == 0, S >= 3, D >= 4";
    format!(
        "model M<H = 2> {{\n    pub fn f({}) -> {ty} where {facts} {{\n        {expr}\n    }}\n}}\n",
        list.join(", ")
    )
}

fn checksum(results: &[Tensor]) -> (f64, f64) {
    let of = |x: &Tensor| {
        let terms: Vec<f64> = x.to_f64().iter().enumerate().map(|(n, x)| x * (n % 7 + 1) as f64).collect();
        (terms.iter().sum::<f64>(), terms.iter().map(|x| x.abs()).sum::<f64>())
    };
    results.iter().map(of).fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y))
}

/// The text with the replacements that the messages have as JSON.
fn by_json(text: &str) -> String {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let id = sources.add("foreign.attn", text);
    let file = syntax::parse(id, text, &mut diagnostics);
    types::check(&file, &mut sources, &mut diagnostics);
    let mut changes: Vec<(usize, usize, String)> = Vec::new();
    for line in json::render_all(&diagnostics, &sources).lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        for child in value["children"].as_array().unwrap() {
            for span in child["spans"].as_array().unwrap() {
                assert_eq!(child["level"], "help");
                assert_eq!(span["suggestion_applicability"], "MachineApplicable", "{line}");
                let at = |field: &str| span[field].as_u64().unwrap() as usize;
                let new = span["suggested_replacement"].as_str().unwrap().to_string();
                changes.push((at("byte_start"), at("byte_end"), new));
            }
        }
    }
    changes.sort();
    let mut out = text.to_string();
    for (start, end, new) in changes.into_iter().rev() {
        out.replace_range(start..end, &new);
    }
    out
}

/// What is wrong with a row; nothing, if its advice is right.
fn wrong(row: &Row) -> Option<String> {
    let text = program(row.spelling, row.ty);
    let told = tell(&text);
    if let Some(words) = row.advice.strip_prefix("~ ") {
        let one = told.errors == 1 && told.changed == text;
        return (!one || !told.shown.contains(words)).then(|| format!("{} errors, {}", told.errors, told.shown));
    }
    let changed = told.changed.lines().nth(2).unwrap_or_default().trim().to_string();
    if told.errors == 0 || changed != row.advice {
        return Some(format!("becomes {changed}\n{}", told.shown));
    }
    let again = tell(&told.changed);
    if !again.shown.is_empty() {
        return Some(again.shown);
    }
    if told.errors == 1 && by_json(&text) != told.changed {
        return Some(format!("by JSON it becomes {}", by_json(&text)));
    }
    let wanted = row.checksum?;
    let args: Vec<Tensor> = (0..ARGUMENTS.len()).map(argument).collect();
    match call(&told.changed, "f", &args, &[]) {
        Err(message) => Some(message),
        Ok(run) => {
            let (sum, size) = checksum(&run.results);
            ((sum - wanted).abs() > 2e-5 * (1.0 + size)).then(|| format!("Python gives {wanted}, this {sum}"))
        }
    }
}

#[test]
fn each_spelling_gets_the_advice_of_the_table() {
    let rows = rows();
    let faults: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{} => {}\n  {}\n", row.spelling, row.advice, wrong(row)?)))
        .collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), rows.len(), faults.concat());
    let values = rows.iter().filter(|row| row.checksum.is_some()).count();
    assert!(rows.len() >= LEAST && values >= 220, "{} rows, {values} with values", rows.len());
}

/// Functions that are called in the table are known to `attnc ref`.
#[test]
fn the_reference_knows_the_functions_of_the_table() {
    let mut unknown = Vec::new();
    for row in rows() {
        let words = row.spelling.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '('));
        for name in words.filter_map(|word| word.strip_suffix('(')) {
            let is_name = name.starts_with(|c: char| c.is_alphabetic()) && !matches!(name, "set" | "add");
            if is_name && !name.contains('(') && reference::find(name).is_empty() {
                unknown.push(name);
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// A model with one more field, and a layer for it.
fn with_field(field: &str) -> String {
    format!(
        "use std.nn\nlayer Block<D> {{\n    fn forward(x: f32[S, D]) -> f32[S, D] {{ x }}\n}}\nmodel M<D = 4, L = 2> {{\n    \
         {field}\n    pub fn f(x: f32[S, D]) -> f32[S, D] {{ x }}\n}}\n"
    )
}

#[test]
fn fields_of_other_libraries() {
    for (field, advice) in [
        ("param w: f32[D, D]", "w: f32[D, D]"),
        ("let w: f32[D]", "w: f32[D]"),
        ("w = nn.Parameter(torch.zeros(D, D))", "w: f32[D, D]"),
        ("w = nn.Parameter(torch.randn(4 * D))", "w: f32[4 * D]"),
        ("proj = nn.Linear(D, 4 * D)", "proj: Linear<D, 4 * D>"),
        ("proj: nn.Linear(D, D)", "proj: Linear<D, D>"),
        ("blocks = nn.ModuleList([Block(D) for _ in range(L)])", "blocks: [Block<D>; L]"),
    ] {
        let told = tell(&with_field(field));
        assert_eq!((told.errors, &told.changed), (1, &with_field(advice)), "{field}\n{}", told.shown);
        let again = tell(&told.changed);
        assert_eq!(again.shown, "", "{field}");
    }
    for (field, words) in [
        ("drop: Dropout<D>", "models are compiled for inference"),
        ("drop: nn.Dropout(0.1)", "models are compiled for inference"),
        ("conv: Conv1d<D, D>", "there is no such layer"),
        ("conv = nn.Conv2d(D, D, 3)", "there is no such layer"),
        ("norm: BatchNorm1d<D>", "a scale and a shift for each channel"),
        ("rnn: LSTM<D, D>", "are one step"),
        ("fc: Dense<D>", "`Linear<I, O>` of `std.nn`"),
        ("act: LeakyReLU<D>", "call a function"),
        ("enc: TransformerEncoder<D>", "TransformerEncoderLayer<D, H, F>"),
    ] {
        let text = with_field(field);
        let told = tell(&text);
        let shown = &told.shown;
        assert!(told.errors >= 1 && shown.contains(words) && !shown.contains("did you mean"), "{field}\n{shown}");
        assert_eq!(told.changed, text, "{field}");
    }
}
