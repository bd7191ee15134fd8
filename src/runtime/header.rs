//! `model.h`: what a C or C++ program needs to call a `model.so`, in one file.
//!
//! In: the descriptor. Out: the header's text: DLPack's structs and the runtime's functions (`runtime.h`, the same for
//! every model), the symbol of the model's library, and a typed inline function for each entry point, with its shapes in a comment. It is C89 but for
//! `<stdint.h>`, and C++.

use std::collections::BTreeSet;

use super::abi::{LIBRARY_PREFIX, LIBRARY_SYMBOL};
use super::descriptor::{DimText, Entry, ModelDescriptor, Tensor};
use crate::shape::Elem;

/// The part that is the same for every model.
const RUNTIME: &str = include_str!("runtime.h");

/// Words of C and C++, and names that the wrappers use: an `_` is put behind them.
const TAKEN: [&str; 75] = [
    "alignas",
    "alignof",
    "and",
    "asm",
    "auto",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "constexpr",
    "continue",
    "default",
    "delete",
    "do",
    "double",
    "dynamic_cast",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "operator",
    "or",
    "private",
    "protected",
    "public",
    "register",
    "requires",
    "restrict",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "while",
    "xor",
    "session",
    "dims",
    "args",
    "results",
    "errno",
    "unix",
];

/// The text of `model.h`.
pub fn header(model: &ModelDescriptor) -> String {
    let prefix = snake_case(&model.name);
    let upper = prefix.to_ascii_uppercase();
    let mut out = comment(
        "",
        &format!("{}: the C side of a model that attnc compiled. Made by attnc.\n\n{}", model.name, model.doc),
    );
    let guard = format!("ATTNC_MODEL_{upper}_{:016X}_H", model.id);
    out += &format!("#ifndef {guard}\n#define {guard}\n\n");
    out += &format!(
        "#ifdef ATTNC_MODEL_{upper}_H\n#error \"two models are called {prefix}: rename one, or use each in a file of its \
         own\"\n#endif\n#define ATTNC_MODEL_{upper}_H\n\n{RUNTIME}\n"
    );
    out += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
    out += &library(&model.symbol(), &prefix, &upper, model.id);
    let parameters: Vec<String> =
        model.params.iter().map(|p| format!("    {}: {}", p.pattern, type_text(p.elem, false, &p.dims))).collect();
    if !parameters.is_empty() {
        out += &comment("", &format!("Tensors that the weights file must have:\n\n{}", parameters.join("\n")));
        out.push('\n');
    }
    let mut names = BTreeSet::from(["library".to_owned(), "model_open".to_owned()]);
    for (i, e) in model.entries.iter().enumerate() {
        let mut name = word(&e.name);
        while names.contains(&name) || names.contains(&format!("{name}_dlpack")) {
            name.push('_');
        }
        names.extend([name.clone(), format!("{name}_dlpack")]);
        out += &entry(&prefix, &upper, &name, i, e);
    }
    out += "#ifdef __cplusplus\n}\n#endif\n\n";
    out += &format!("#endif /* {guard} */\n");
    out
}

/// The way into the model's library: its symbol, and the functions of the interface that need no handle.
fn library(symbol: &str, prefix: &str, upper: &str, id: u64) -> String {
    let function = format!("{LIBRARY_PREFIX}{symbol}");
    let mut out = comment(
        "",
        &format!(
            "The functions of this model's library, by a name that no other has. A program that loads the library by \
             itself\ngets the same from the function {LIBRARY_SYMBOL} in it: dlsym(library, \"{LIBRARY_SYMBOL}\")."
        ),
    );
    out += &format!("const attnc_functions *{function}(void);\n#define ATTNC_ID_{upper} {}\n\n", u64_of(id));
    out += &format!(
        "#ifndef ATTNC_LIBRARY\n#define ATTNC_LIBRARY {function}()\n#define ATTNC_ANY_LIBRARY {function}()\n#else\n\
         #undef ATTNC_LIBRARY\n#define ATTNC_LIBRARY several_models_are_included_say_NAME_library_or_NAME_model_open\n\
         #endif\n\n"
    );
    out += &format!(
        "ATTNC_INLINE const attnc_functions *{prefix}_library(void)\n{{\n    return {function}();\n}}\n\n\
         /* attnc_model_open of this model, where the headers of several are included. */\n\
         ATTNC_INLINE int32_t {prefix}_model_open(const char *weights, int32_t threads, attnc_model **model)\n{{\n    \
         return {function}()->model_open(weights, threads, model);\n}}\n\n"
    );
    out
}

/// A number of 64 bits in C89.
fn u64_of(n: u64) -> String {
    format!("ATTNC_U64({:#010x}u, {:#010x}u)", n >> 32, n & 0xffff_ffff)
}

fn type_text(elem: Elem, batch: bool, dims: &[DimText]) -> String {
    let dims = batch.then_some("..").into_iter().chain(dims.iter().map(|d| d.text.as_str()));
    format!("{elem}[{}]", dims.collect::<Vec<_>>().join(", "))
}

fn entry(prefix: &str, upper: &str, called: &str, index: usize, e: &Entry) -> String {
    let name = format!("{prefix}_{called}");
    let index_name = format!("{upper}_{}", called.to_ascii_uppercase());
    // A session of another model is refused.
    let own = format!("attnc_entry_of(session, ATTNC_ID_{upper}, {index_name})");
    let mut names: Vec<String> = Vec::new();
    let mut fresh = |wanted: &str| {
        let mut name = identifier(wanted);
        while names.contains(&name) {
            name.push('_');
        }
        names.push(name.clone());
        name
    };
    let args: Vec<String> = e.args.iter().map(|t| fresh(&t.name)).collect();
    let results: Vec<String> = e.results.iter().map(|t| fresh(&t.name.replace('.', "_"))).collect();
    let dims: Vec<String> = e
        .symbols
        .iter()
        .enumerate()
        .map(|(i, s)| if e.batch_symbol == Some(i) { fresh("batch") } else { fresh(&s.text) })
        .collect();
    let list = |tensors: &[Tensor], names: &[String]| -> String {
        let lines =
            tensors.iter().zip(names).map(|(t, n)| format!("\n    {n}: {}", type_text(t.elem, t.batch, &t.dims)));
        lines.collect()
    };
    let mut doc = e.signature.clone();
    if !e.doc.trim().is_empty() {
        doc += &format!("\n\n{}", e.doc.trim());
    }
    if !dims.is_empty() {
        let meanings = e.symbols.iter().enumerate().zip(&dims).map(|((i, s), d)| match e.batch_symbol {
            Some(b) if b == i => format!("{d} (the product of the axes of `..`)"),
            _ if s.text == *d => d.clone(),
            _ => format!("{d} (`{}`)", s.text),
        });
        doc += &format!("\n\nDimensions: {}.", meanings.collect::<Vec<_>>().join(", "));
    }
    if !args.is_empty() {
        doc += &format!("\nArguments, contiguous:{}", list(&e.args, &args));
    }
    doc += &format!("\nResults, contiguous, written:{}", list(&e.results, &results));
    if !e.taps.is_empty() {
        let taps: String =
            e.taps.iter().map(|t| format!("\n    {}: {}", t.pattern, type_text(t.elem, t.batch, &t.dims))).collect();
        doc += &format!("\nTaps, by attnc_call_taps:{taps}");
    }
    doc += "\n\nReturns ATTNC_OK, or a status whose text is attnc_session_error(session).";
    let mut out = format!("#define {index_name} {index}\n\n{}", comment("", &doc));
    let parameters = ["attnc_session *session".to_owned()]
        .into_iter()
        .chain(dims.iter().map(|d| format!("int64_t {d}")))
        .chain(e.args.iter().zip(&args).map(|(t, n)| format!("const {} *{n}", c_type(t.elem))))
        .chain(e.results.iter().zip(&results).map(|(t, n)| format!("{} *{n}", c_type(t.elem))));
    out += &format!("ATTNC_INLINE int32_t {name}({})\n{{\n", parameters.collect::<Vec<_>>().join(", "));
    let lists = [("int64_t dims", &dims), ("const void *args", &args), ("void *results", &results)];
    for (declared, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
        out += &format!("    {declared}[{}];\n", names.len());
    }
    for ((_, names), list) in lists.iter().zip(["dims", "args", "results"]) {
        for (i, n) in names.iter().enumerate() {
            out += &format!("    {list}[{i}] = {n};\n");
        }
    }
    let passed = lists.iter().zip(["dims", "args", "results"]).map(|((_, names), list)| {
        if names.is_empty() { "0, 0".to_owned() } else { format!("{}, {list}", names.len()) }
    });
    out += &format!("    return attnc_call_raw(session, {own}, {});\n}}\n\n", passed.collect::<Vec<_>>().join(", "));
    out += &dlpack_entry(&name, &own, &args, &results);
    out
}

/// The same entry point with DLPack tensors.
fn dlpack_entry(name: &str, own: &str, args: &[String], results: &[String]) -> String {
    let mut out = comment("", &format!("{name} with DLPack tensors of any strides; the results are the caller's."));
    let parameters = args.iter().chain(results).map(|n| format!(", DLTensor *{n}")).collect::<String>();
    out += &format!("ATTNC_INLINE int32_t {name}_dlpack(attnc_session *session{parameters})\n{{\n");
    for (names, list) in [(args, "args"), (results, "results")] {
        if !names.is_empty() {
            out += &format!("    DLTensor *{list}[{}];\n", names.len());
        }
    }
    for (names, list) in [(args, "args"), (results, "results")] {
        for (i, n) in names.iter().enumerate() {
            out += &format!("    {list}[{i}] = {n};\n");
        }
    }
    let passed = [(args, "args"), (results, "results")]
        .map(|(names, list)| if names.is_empty() { "0, 0".to_owned() } else { format!("{}, {list}", names.len()) });
    out += &format!("    return attnc_call(session, {own}, {});\n}}\n\n", passed.join(", "));
    out
}

fn c_type(elem: Elem) -> &'static str {
    match elem {
        Elem::F32 => "float",
        // Their bits: C89 has no such types.
        Elem::BF16 | Elem::F16 => "uint16_t",
        Elem::I8 => "int8_t",
        Elem::I32 => "int32_t",
        Elem::I64 => "int64_t",
        Elem::Bool => "uint8_t",
    }
}

/// The letters, digits and `_` of a name; `_` for all else.
fn word(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

/// A name that C and C++ take.
fn identifier(name: &str) -> String {
    let mut out = word(name);
    if out.is_empty() || out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, 'n');
    }
    if TAKEN.contains(&out.as_str()) {
        out.push('_');
    }
    out
}

/// `MiniLm` as `mini_lm`: the prefix of a model's functions.
pub(super) fn snake_case(name: &str) -> String {
    let mut out = String::new();
    let mut before = '_';
    for c in word(name).chars() {
        if c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
        before = c;
    }
    if out.is_empty() || out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert_str(0, "model");
    }
    out
}

/// A block comment; nothing in `text` can end it.
fn comment(indent: &str, text: &str) -> String {
    let text = text.trim().replace("*/", "* /").replace("/*", "/ *");
    let lines: Vec<&str> = text.lines().map(|l| l.trim_end().trim_end_matches('\\')).collect();
    if let [line] = lines.as_slice() {
        return format!("{indent}/* {line} */\n");
    }
    let body: String = lines.iter().map(|l| format!("{indent} * {l}").trim_end().to_owned() + "\n").collect();
    format!("{indent}/*\n{body}{indent} */\n")
}

#[cfg(test)]
mod tests {
    use super::RUNTIME;
    use crate::runtime::abi::{FUNCTIONS, mark};

    #[test]
    fn the_table_is_declared_in_its_order() {
        let table = RUNTIME.split("struct attnc_functions {").nth(1).and_then(|rest| rest.split("};").next()).unwrap();
        let members: Vec<&str> = table
            .lines()
            .filter_map(|line| line.split_once("(*")?.1.split_once(")("))
            .map(|(name, _)| name)
            .filter(|name| *name != "poll")
            .collect();
        assert_eq!(members, FUNCTIONS);
        // And each can be called by its name, but for that which is Python's.
        for name in FUNCTIONS.iter().filter(|name| **name != "python_call") {
            assert!(RUNTIME.contains(&format!("attnc_{name}(")), "{name}");
        }
        for (name, mark) in [("MODEL", mark::MODEL), ("SESSION", mark::SESSION), ("TAPS", mark::TAPS)] {
            let spelled = super::u64_of(mark);
            assert!(RUNTIME.contains(&format!("#define ATTNC_{name}_MARK {spelled}\n")), "{name}: {spelled}");
        }
    }
}
