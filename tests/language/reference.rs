//! Is the language reference true and whole? Its programs are compiled, its entries compared with the compiler's own tables, and
//! `docs/language.md` with what it is made of.

use super::front;
use attnc::diagnostics::{Diagnostics, codes, render_all};
use attnc::passes::{self, Collected, Options};
use attnc::reference::{self, ElementTypes, Entry, Passage};
use attnc::shape::Elem;
use attnc::source::SourceMap;
use attnc::syntax::ast::{Function, Item};
use attnc::types::{self, Operation, dump, modules};
use attnc::{lowering, syntax};
use std::collections::BTreeSet;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What an entry must be added to.
const WHERE: &str = "src/reference/language.txt";

/// The codes that a program gives, what is said of it, and its typed form.
fn checked(program: &str) -> (Vec<&'static str>, String, String) {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let file = sources.add("example.attn", program);
    let tree = syntax::parse(file, program, &mut diagnostics);
    let typed = types::check(&tree, &mut sources, &mut diagnostics);
    let codes = diagnostics.iter().map(|diagnostic| diagnostic.code.as_str()).collect();
    (codes, render_all(&diagnostics, &sources, false), dump::dump(&typed, file))
}

/// A program, and for each of its functions a model whose entry point calls it.
fn with_model(program: &str) -> String {
    let mut diagnostics = Diagnostics::new();
    let mut sources = SourceMap::new();
    let tree = syntax::parse(sources.add("example.attn", program), program, &mut diagnostics);
    let functions = tree.items.iter().filter_map(|item| match item {
        Item::Function(function) => Some(function),
        Item::Layer(_) | Item::Use(_) => None,
    });
    let text = |from: u32, to: u32| program.get(from as usize..to as usize).unwrap_or_default();
    let entry = |f: &Function| {
        let params = f.params.iter().filter(|param| param.default.is_none());
        let declared: Vec<&str> = params.clone().map(|param| text(param.span.start, param.span.end)).collect();
        let given: Vec<&str> = params.map(|param| param.name.name.as_str()).collect();
        let result = f.result.as_ref().map_or("", |ty| text(ty.span.start, ty.span.end));
        let clauses: Vec<&str> = f.where_clauses.iter().map(|e| text(e.span.start, e.span.end)).collect();
        let clauses = if clauses.is_empty() { String::new() } else { format!(" where {}", clauses.join(", ")) };
        let (name, declared, given) = (f.name.name.clone(), declared.join(", "), given.join(", "));
        format!("model Calls_{name} {{ pub fn call_{name}({declared}) -> {result}{clauses} {{ {name}({given}) }} }}\n")
    };
    format!("{program}\n{}", functions.map(entry).collect::<String>())
}

fn models(program: &str) -> Vec<String> {
    let tree = syntax::parse(attnc::source::FileId(0), program, &mut Diagnostics::new());
    let models = tree.items.iter().filter_map(|item| match item {
        Item::Layer(layer) if layer.kind == syntax::ast::LayerKind::Model => Some(layer.name.name.clone()),
        Item::Layer(_) | Item::Function(_) | Item::Use(_) => None,
    });
    models.collect()
}

/// Every program compiles without a message, as far as kernels; every failing one gives its code.
#[test]
fn programs_compile_and_failing_ones_fail() {
    let mut wrong = String::new();
    for entry in reference::sections().iter().filter(|s| !s.title.starts_with("Module ")).flat_map(|s| &s.entries) {
        for part in &entry.parts {
            match part {
                Passage::Text(_) => {}
                Passage::Program(program) => {
                    let (_, said, _) = checked(program);
                    if !said.is_empty() {
                        wrong += &format!("{}: {program}\n{said}\n", entry.title());
                        continue;
                    }
                    let whole = with_model(program);
                    for model in models(&whole) {
                        let options = lowering::graph::Options { model: Some(model), dims: Default::default() };
                        match front::module("example.attn", &whole, &options) {
                            Ok(mut module) => {
                                let mut sink = Collected::default();
                                if let Err(error) = passes::optimise(&mut module, &Options::default(), &mut sink) {
                                    wrong += &format!("{}: {error}\n", entry.title());
                                }
                            }
                            Err(said) => wrong += &format!("{}: {whole}\n{said}\n", entry.title()),
                        }
                    }
                }
                Passage::Failing { code, program } => {
                    let (found, said, _) = checked(program);
                    if found.is_empty() || found.iter().any(|other| other != code) {
                        wrong += &format!("{}: {program}\ndoes not give {code} alone:\n{said}\n", entry.title());
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The entry of a function of the language.
fn call_entry(operation: &Operation) -> Option<&'static Entry> {
    reference::find(operation.name?).into_iter().find(|entry| entry.forms.iter().any(|form| form.contains('(')))
}

/// The arguments in a form: `softmax(x, axis = -1)` has `x` and `axis`, whose default is -1.
fn arguments(form: &str) -> Vec<(&str, Option<&str>)> {
    let inside = form.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or_default();
    let parts = inside.split(", ").filter(|part| !part.is_empty());
    parts.map(|part| part.split_once(" = ").map_or((part, None), |(name, value)| (name, Some(value)))).collect()
}

/// Every function has an entry, whose form has the arguments of the compiler's table.
#[test]
fn every_function_has_an_entry() {
    for operation in types::operations() {
        let Some(name) = operation.name else { continue };
        let entry = call_entry(&operation);
        let entry = entry.unwrap_or_else(|| panic!("the function `{name}` has no entry: add `## {name}` to {WHERE}"));
        let form = &entry.forms[0];
        let shown = arguments(form);
        // What may stand any number of times is not in the table, nor what is named by the pattern.
        let many = ["concat", "einsum"].contains(&name);
        let own = |argument: &str| !(argument.starts_with("..") || many && ["a", "b"].contains(&argument));
        let shown: Vec<_> =
            shown.into_iter().filter(|(argument, value)| own(argument) && *value != Some("length")).collect();
        let table: Vec<&str> = operation.arguments.to_vec();
        let names: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, table, "the arguments of `{name}` in {WHERE}");
        let optional = shown.iter().filter(|(_, value)| value.is_some()).count();
        assert_eq!(optional, operation.optional, "the defaults of `{name}` in {WHERE}: {form}");
        assert!(form.starts_with(name), "{form}");
    }
}

/// A call of a function with tensors of an element type, and what declares them.
fn call(operation: &Operation, elem: Elem, defaults: bool) -> Option<String> {
    let name = operation.name?;
    let form = &call_entry(operation)?.forms[0];
    let given = arguments(form).into_iter().filter_map(|(argument, value)| {
        Some(match (argument, value) {
            (argument, Some(value)) => return defaults.then(|| format!("{argument} = {value}")),
            ("x" | "y" | "a" | "b", None) => "x".to_string(),
            ("i", None) => "x".to_string(),
            ("condition", None) => "x".to_string(),
            ("loss", None) => "sum(x, axis = [0, 1, 2])".to_string(),
            ("at", None) => "at".to_string(),
            ("value", None) => "x[0]".to_string(),
            ("k" | "size" | "step", None) => "2".to_string(),
            ("n" | "q_len" | "kv_len", None) => "4".to_string(),
            ("pattern" | "shape" | "..", None) => return None,
            (other, None) => panic!("give `{other}` of `{name}` a value here"),
        })
    });
    let given: Vec<String> = given.collect();
    let call = match name {
        "einsum" => "einsum(\"a b c, d b c -> a d\", x, x)".to_string(),
        "rearrange" => "rearrange(x, \"a b c -> (b c) a\")".to_string(),
        "concat" if defaults => "concat(x, x, axis = 0)".to_string(),
        "concat" => "concat(x, x)".to_string(),
        "cast" => "cast<f32>(x)".to_string(),
        "full" => "full(1, [2, 3])".to_string(),
        _ => format!("{name}({})", given.join(", ")),
    };
    Some(format!(
        "fn f(x: {elem}[2, 4, 6], at: i64[2, 4, 6]) -> i64[2, 4, 6] {{\n    let _y = {call}\n    at\n}}\n",
        elem = elem.name()
    ))
}

/// The first argument has the element types that the entry says, and no others.
#[test]
fn functions_take_the_types_of_their_entries() {
    for operation in types::operations() {
        let Some(entry) = call_entry(&operation) else { continue };
        let Some(word) = &entry.takes else {
            let without = ["iota", "full", "causal", "floor_div", "ceil_div"];
            assert!(without.contains(&entry.title()), "{}: `takes` is missing in {WHERE}", entry.title());
            continue;
        };
        let set = ElementTypes::find(word)
            .unwrap_or_else(|| panic!("{}: `takes: {word}` is not a set of types", entry.title()));
        for elem in Elem::ALL {
            let program = call(&operation, elem, false).expect("a call");
            let (codes, said, _) = checked(&program);
            assert_eq!(codes.is_empty(), set.types.contains(&elem), "{}: {elem:?}\n{program}{said}", entry.title());
        }
    }
}

/// An argument that is omitted has the default that the form shows.
#[test]
fn defaults_are_those_of_the_entries() {
    let mut compared = 0;
    for operation in types::operations().into_iter().filter(|operation| operation.optional > 0) {
        let entry = call_entry(&operation).expect("an entry");
        let set = entry.takes.as_deref().and_then(ElementTypes::find).expect("a set of types");
        for elem in set.types.iter().filter(|elem| **elem != Elem::Bool || set.types.len() == 1) {
            let [without, with] = [false, true].map(|given| call(&operation, *elem, given).expect("a call"));
            let [(_, said, a), (_, said_with, b)] = [&without, &with].map(|program| checked(program));
            assert_eq!((said.as_str(), said_with.as_str()), ("", ""), "{with}");
            assert_eq!(a, b, "{without}{with}");
            compared += 1;
        }
    }
    assert!(compared > 60, "{compared}");
}

/// Operators, keywords, element types and relations of clauses.
#[test]
fn every_word_has_an_entry() {
    let tokens = std::fs::read_to_string(format!("{ROOT}/src/syntax/token.rs")).expect("the tokens");
    let reserved = tokens.split("#[token(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let reserved: BTreeSet<&str> = reserved.filter(|word| word.bytes().all(|b| b.is_ascii_alphanumeric())).collect();
    assert!(reserved.len() > 20, "{reserved:?}");
    // Keywords where they begin something, which the layout of lines finds.
    let soft = ["use", "layer", "model", "rule", "train", "state", "tap", "reset", "dim"];
    let operators = ["@", "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "..", ".T"];
    let relations = ["%", "==", "<=", ">=", "<", ">", "!="].map(|relation| format!("{relation} in where"));
    let words = reserved.iter().copied().chain(soft).chain(operators).chain(relations.iter().map(String::as_str));
    for word in words {
        assert!(!reference::find(word).is_empty(), "`{word}` has no entry: add it to the names of one in {WHERE}");
    }
    for operation in types::operations().into_iter().filter(|operation| operation.name.is_none()) {
        let symbol = operation.form.split(' ').find(|word| word.bytes().all(|b| b.is_ascii_punctuation()));
        let Some(symbol) = symbol else { continue };
        assert!(!reference::find(symbol).is_empty(), "the operator `{symbol}` has no entry in {WHERE}");
    }
}

/// Every layer and function of the standard library has an entry with its declaration.
#[test]
fn the_standard_library_is_shown_by_signature() {
    for module in modules::MODULES {
        let own = module.path.rsplit('.').next().expect("a name");
        for line in module.text.lines() {
            let name = ["layer ", "rule ", "fn "].into_iter().find_map(|word| line.strip_prefix(word));
            let Some(name) = name.and_then(|rest| rest.split(['<', '(', ' ']).next()) else { continue };
            for asked in [format!("{own}.{name}"), format!("std.{own}.{name}"), name.to_string()] {
                let found = reference::find(&asked);
                assert!(!found.is_empty(), "{asked}");
                let text = found.iter().map(|entry| entry.text()).collect::<String>();
                let head = line.split(" {").next().expect("a head");
                assert!(text.contains(head), "{asked}: {text}");
            }
            let entry = reference::find(&format!("{own}.{name}"))[0];
            assert!(
                matches!(&entry.parts[0], Passage::Text(text) if !text.is_empty()),
                "{own}.{name} has no doc comment"
            );
        }
    }
    let linear = reference::find("Linear")[0].text();
    for line in
        ["    layer Linear<I, O, E = f32> {", "        weight: E[O, I]", "        fn forward(x: E[.., I]) -> E[.., O]"]
    {
        assert!(linear.contains(line), "{linear}");
    }
}

/// Every code about a program's meaning is stated by an entry, and no entry names another.
#[test]
fn codes_and_entries_name_each_other() {
    for entry in reference::entries() {
        for code in &entry.codes {
            assert!(codes::find(code).is_some(), "{}: {code}", entry.title());
        }
        for other in &entry.see {
            assert!(!reference::find(other).is_empty(), "{}: there is no entry `{other}`", entry.title());
        }
        assert!(!entry.names.is_empty() && !entry.parts.is_empty(), "{}", entry.title());
        let heads = ["form:", "takes:", "gives:", "formula:", "codes:", "see:", "fails "];
        let is_head = |text: &str| text.lines().any(|line| heads.iter().any(|word| line.starts_with(word)));
        let stray = entry.parts.iter().any(|part| matches!(part, Passage::Text(text) if is_head(text)));
        assert!(!stray, "{}: a line of the head that the reference does not know", entry.title());
    }
    for code in codes::all().map(|entry| entry.code.as_str()).filter(|code| ("E0100".."E0700").contains(code)) {
        // What is no rule of one part of the language, or not of the language at all.
        let other = ["E0214", "E0607"];
        let stated = !reference::of_code(code).is_empty();
        assert_ne!(
            stated,
            other.contains(&code),
            "{code}: an entry of {WHERE} states its rule and names it in `codes:`"
        );
    }
}

/// No name of the language has two entries, but for what is both a function and a word.
#[test]
fn names_are_unique() {
    let mut seen = BTreeSet::new();
    for name in reference::names() {
        assert!(seen.insert(name) || name == "where", "two entries have the name `{name}`");
    }
}

/// A description in the list is a whole sentence: code, parentheses and names with points are not cut.
#[test]
fn summaries_are_whole() {
    for entry in reference::entries() {
        let summary = entry.summary();
        let count = |c: char| summary.chars().filter(|other| *other == c).count();
        assert!(!summary.is_empty() && count('`') % 2 == 0 && count('(') == count(')'), "{}: {summary}", entry.title());
    }
}

#[test]
fn the_document_is_up_to_date() {
    let path = format!("{ROOT}/docs/language.md");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let made = reference::document();
    let differ = committed.lines().zip(made.lines()).position(|(a, b)| a != b);
    assert!(
        committed == made,
        "docs/language.md differs from line {differ:?} on; `attnc ref --document > docs/language.md`"
    );
}
