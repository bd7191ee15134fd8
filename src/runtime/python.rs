//! `model.py`: the wrapper that calls a `model.so` from Python, with ctypes and NumPy alone.
//!
//! In: the descriptor. Out: the module's text: `wrapper.py`, which is the same for every model, and after it the model's
//! entry points as methods. It must not need the library to be loaded to be read.

use std::collections::BTreeSet;

use super::abi::{ABI_VERSION, FUNCTIONS};
use super::descriptor::{Entry, ModelDescriptor, Tensor};

/// The part that is the same for every model.
const WRAPPER: &str = include_str!("wrapper.py");

/// Words that Python keeps for itself, and names that our own classes use: an `_` is put behind them.
const TAKEN: [&str; 43] = [
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "self",
    "taps",
    "session",
    "reset",
    "info",
    "unused_weights",
    "converted_weights",
    "close",
];

/// The text of `model.py`.
pub fn python(model: &ModelDescriptor) -> String {
    let mut out = format!("{}\n\n", docstring("", &title(model)));
    out += "# Made by attnc. The first part is the same for every model; the model's own part is at the end.\n\n";
    out += WRAPPER;
    out += &format!("\n\n# The model.\n\n_ABI_VERSION = {ABI_VERSION}\n\n");
    out += "# The functions of the library, in their order.\n_TABLE = [\n";
    for name in FUNCTIONS {
        out += &format!("    \"{name}\",\n");
    }
    out += "]\n\n# Signature, types and names of the arguments, types of the results.\n_ENTRIES = [\n";
    for e in &model.entries {
        let types = |t: &[Tensor]| t.iter().map(|t| format!("\"{}\"", t.elem)).collect::<Vec<_>>().join(", ");
        let named = |t: &Tensor| format!("(\"{}\", {})", t.elem, quoted(&format!("{}: argument `{}`", e.name, t.name)));
        let args = e.args.iter().map(named).collect::<Vec<_>>().join(", ");
        out += &format!("    ({}, [{args}], [{}]),\n", quoted(&e.signature), types(&e.results));
    }
    out += "]\n\n\nclass _Entries:\n";
    if model.entries.is_empty() {
        out += "    pass\n";
    }
    let mut names = BTreeSet::new();
    for (i, e) in model.entries.iter().enumerate() {
        let mut name = identifier(&e.name, "entry");
        while !names.insert(name.clone()) {
            name.push('_');
        }
        out += &method(&name, i, e);
    }
    out += "\n\nclass Session(_Entries, _Session):\n";
    out += "    \"\"\"A session of a model, from Model.session().\"\"\"\n";
    out += "\n\nclass Model(_Entries, _Model):\n";
    out += &format!("{}\n", docstring("    ", &class_doc(model)));
    out
}

fn title(model: &ModelDescriptor) -> String {
    let mut text = format!("{}: the Python side of a model that attnc compiled.", model.name);
    if !model.doc.trim().is_empty() {
        text += &format!("\n\n{}", model.doc.trim());
    }
    text
}

fn class_doc(model: &ModelDescriptor) -> String {
    let mut text = title(model);
    text +=
        "\n\nModel(path=None, weights=None, threads=None): `path` is the library, by default the one beside this file;";
    text +=
        "\n`weights` a safetensors file, `threads` a number, by default what ATTNC_THREADS says or one for each core.";
    text += "\nClose it with close(), or use it in a `with` statement.";
    let params = model.params.iter().map(|p| {
        let dims = p.dims.iter().map(|d| d.text.as_str()).collect::<Vec<_>>().join(", ");
        format!("\n    {}: {}[{dims}]", p.pattern, p.elem)
    });
    let params: String = params.collect();
    if !params.is_empty() {
        text += &format!("\n\nWeights:\n{params}");
    }
    text
}

fn method(called: &str, index: usize, e: &Entry) -> String {
    let mut names: Vec<String> = Vec::new();
    for a in &e.args {
        let mut name = identifier(&a.name, "arg");
        while names.contains(&name) {
            name.push('_');
        }
        names.push(name);
    }
    let mut doc = e.signature.clone();
    if !e.doc.trim().is_empty() {
        doc += &format!("\n\n{}", e.doc.trim());
    }
    if !e.taps.is_empty() {
        doc += "\n\n`taps` is a list of names, `*` standing for anything; the result is then (result, Taps), a dict:\n";
        for t in &e.taps {
            doc += &format!("\n    {}", t.pattern);
        }
    }
    let parameters = names.iter().map(|n| format!("{n}, ")).collect::<String>();
    let tuple = if let [one] = names.as_slice() { format!("{one},") } else { names.join(", ") };
    format!(
        "    def {called}(self, {parameters}*, taps=None):\n{}\n        return self._call({index}, ({tuple}), taps)\n\n",
        docstring("        ", &doc),
    )
}

/// A name that Python takes: the program's, with an `_` behind where it is taken, and for characters that it has not. Names that
/// begin with an `_` mean something to Python, or are our own: those get `before` in front.
fn identifier(name: &str, before: &str) -> String {
    let mut out: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if out.is_empty() || out.starts_with(|c: char| c.is_ascii_digit() || c == '_') {
        let apart = if out.starts_with('_') { "" } else { "_" };
        out.insert_str(0, &format!("{before}{apart}"));
    }
    if TAKEN.contains(&out.as_str()) {
        out.push('_');
    }
    out
}

/// A string literal on one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            c if c.is_control() => out += &format!("\\x{:02x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A docstring; nothing in `text` can end it.
fn docstring(indent: &str, text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\0', "");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut out = format!("{indent}\"\"\"");
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push('\n');
            if !line.is_empty() {
                out += indent;
            }
        }
        out += line;
    }
    if lines.len() > 1 {
        out += &format!("\n{indent}");
    }
    out + "\"\"\""
}
