//! Can a name be searched for? Names that say nothing alone may be defined only as often as
//! [`LIMITS`] says, so that a reader who looks one up does not find ten others.

use fancy_regex::Regex;

use crate::tidy::{files, read};

/// Names, the number of definitions that each may have in `src`, and what to write instead.
const LIMITS: &[(&str, usize, &str)] = &[
    ("fn of", 0, "`from_kernel`, `for_cpu`, `analyse`: what a value is made from, or what is done"),
    ("type At", 0, "`InsertPoint`, `ErrorLocation`, `MemoryOperand`: the position of what in what"),
    ("type Found", 0, "what was found"),
    ("type Given", 0, "`CallArgs`, `OperandTypes`: what is given"),
    ("type Held", 0, "`ValueLocation`: what is held where"),
    ("type Kind", 0, "the kind of what: `OperandKind`, `LeafKind`"),
    ("type Known", 0, "the facts, and about what: `PlanFacts`"),
    ("type Made", 0, "what was made: `CompiledFunction`"),
    ("type Part", 0, "the part of what: `CopySegment`, `TextPart`"),
    ("type Parts", 0, "the parts of what: `AttentionArgs`, `MatmulTiles`"),
    ("type Place", 0, "the position of what: `TilePosition`, `OperandMemory`"),
    ("type Product", 0, "`Matmul`, `DotOperands`: a product of what, on which level"),
    ("const DEEPEST", 0, "`MAX_DEPTH`"),
    ("const MANY", 0, "more than what: `MIN_ROWS`"),
    ("const MOST", 0, "the maximum of what: `MAX_LAUNCHES`"),
    ("const STEPS", 1, "steps of what: `MMA_STEPS`, `MAX_STEPS`"),
];

/// Where the source defines a name, which begins with `fn`, `const` or `type`; the last stands for
/// structs, enums and aliases.
fn definitions(name: &str) -> Vec<String> {
    let (kind, word) = name.split_once(' ').expect("a kind and a name");
    let kind = if kind == "type" { "(struct|enum|union|trait|type)" } else { kind };
    let definition =
        Regex::new(&format!(r"^\s*(pub(\([\w: ]+\))? )?(const |unsafe )*{kind} {word}\b")).expect("a pattern");
    let mut out = Vec::new();
    for path in files("src", &["rs"]) {
        let text = read(&path);
        let lines = text.lines().enumerate().filter(|(_, line)| definition.is_match(line).unwrap_or(false));
        // A register of a leaf's calling convention has the name of the argument in it.
        let lines = lines.filter(|(_, line)| !line.contains(": Register ="));
        out.extend(lines.map(|(n, _)| format!("{path}:{}", n + 1)));
    }
    out
}

#[test]
fn names_can_be_searched_for() {
    let mut wrong = Vec::new();
    for (name, most, advice) in LIMITS {
        let found = definitions(name);
        if found.len() > *most {
            wrong.push(format!("`{name}`, {} times, at most {most}: {advice}\n  {}", found.len(), found.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "names that cannot be searched for:\n{}", wrong.join("\n"));
}

#[test]
fn definitions_are_counted() {
    assert_eq!(definitions("type VerifiedModule").len(), 1);
    assert!(definitions("type Op").len() > 5, "each IR has one");
    assert!(definitions("fn new").len() > 50);
}
