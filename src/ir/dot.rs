//! A module as a picture: the DOT language of Graphviz.
//!
//! In: a module. Out: a text for `dot -Tsvg`: a frame for each function, a frame for each block in it, a node for each
//! line of the module's text. Solid arrows lead from values to their users, dashed ones are jumps. The same module gives
//! the same text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::text::{At, print_with_anchors};
use super::{Block, Function, Inst, Module, Value, ValueDef};

/// Characters of a line that a node shows.
const WIDTH: usize = 64;

/// The module in the DOT language.
pub fn dot(module: &Module) -> String {
    let printed = print_with_anchors(module);
    let lines: Vec<&str> = printed.text.lines().collect();
    let mut out = String::from("digraph module {\n  node [shape=box, fontname=monospace];\n  compound=true;\n");
    for (n, f) in module.functions.iter().enumerate() {
        let mut head = "";
        let mut nodes = Nodes { insts: BTreeMap::new(), heads: BTreeMap::new(), ends: BTreeMap::new() };
        for (anchor, line) in printed.lines.iter().filter(|(a, _)| a.function == Some(n) && a.fused.is_none()) {
            match anchor.at {
                At::Block(b) => drop(nodes.heads.insert(b, *line)),
                At::Inst(i) => drop(nodes.insts.insert(i, *line)),
                At::Terminator(b) => drop(nodes.ends.insert(b, *line)),
                At::Head => head = lines.get(*line).map_or("", |l| l.trim_end_matches(" {")),
                At::Param(_) | At::Check(_) => {}
            }
        }
        let _ = writeln!(out, "  subgraph cluster_f{n} {{\n    label={};", label(&[head]));
        for (k, b) in f.layout.iter().enumerate() {
            let _ = writeln!(out, "    subgraph cluster_f{n}_b{k} {{\n      style=dotted; label=\"\";");
            let at = nodes.heads.get(b).into_iter();
            let insts = f.block(*b).insts.iter().filter_map(|i| nodes.insts.get(i));
            for line in at.chain(insts).chain(nodes.ends.get(b)) {
                let _ = writeln!(out, "      n{line} [label={}];", label(&shown(&lines, *line)));
            }
            out += "    }\n";
        }
        edges(&mut out, f, &nodes);
        out += "  }\n";
    }
    out += "}\n";
    out
}

/// The line of each thing of a function.
struct Nodes {
    insts: BTreeMap<Inst, usize>,
    heads: BTreeMap<Block, usize>,
    ends: BTreeMap<Block, usize>,
}

fn edges(out: &mut String, f: &Function, nodes: &Nodes) {
    // Literals have no line, so no arrow.
    let origin = |v: Value| match f.def(v) {
        ValueDef::Result(i) => nodes.insts.get(&i),
        ValueDef::Arg(b, _) => nodes.heads.get(&b),
    };
    for b in &f.layout {
        for i in &f.block(*b).insts {
            let Some(to) = nodes.insts.get(i) else { continue };
            for from in f.inst(*i).operands.iter().filter_map(|v| origin(*v)) {
                let _ = writeln!(out, "    n{from} -> n{to};");
            }
        }
        let Some(end) = nodes.ends.get(b) else { continue };
        f.block(*b).terminator.for_each_value(|v| {
            if let Some(from) = origin(v) {
                let _ = writeln!(out, "    n{from} -> n{end};");
            }
        });
        for c in f.block(*b).terminator.targets() {
            if let Some(to) = nodes.heads.get(&c.block) {
                let _ = writeln!(out, "    n{end} -> n{to} [style=dashed];");
            }
        }
    }
}

/// A line without its place; of a fused region, all its lines.
fn shown<'a>(lines: &[&'a str], at: usize) -> Vec<&'a str> {
    let line = lines.get(at).copied().unwrap_or_default();
    let more = if line.ends_with('{') && !line.starts_with("func") {
        lines.iter().skip(at + 1).take_while(|l| l.starts_with("    ") || l.trim() == "}").count()
    } else {
        0
    };
    let whole = lines.get(at..=at + more).unwrap_or_default();
    let end = whole.iter().position(|l| l.trim() == "}").map_or(whole.len(), |e| e + 1);
    whole.iter().take(end).map(|l| l.split(" loc(").next().unwrap_or_default().trim_end()).collect()
}

/// Lines as a quoted label, left-aligned.
fn label(lines: &[&str]) -> String {
    let mut out = String::from("\"");
    for line in lines {
        let mut text: String = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.chars().count() > WIDTH {
            text = text.chars().take(WIDTH).collect::<String>() + "...";
        }
        for c in text.chars() {
            if matches!(c, '"' | '\\') {
                out.push('\\');
            }
            out.push(c);
        }
        out += "\\l";
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::text::parse;

    #[test]
    fn every_line_is_a_node() {
        let source = "module \"m\"\nfunc @f(%0 \"x\": f32[S, 4]) -> (f32[S, 4]) {\n^bb0:\n  br ^bb1(0, %0)\n\
            ^bb1(%1: index, %2: f32[S, 4]):\n  %3 = lt %1, 3 : bool[]\n  br_if %3, ^bb2, ^bb3\n^bb2:\n\
            \n  %4 = fused map(%5 = %2) : f32[S, 4] loc(3:4) {\n    %6 = exp %5 : f32[S, 4]\n    yield %6\n  }\n\
            \n  tap %4, \"a \\\"b\\\"\"\n  %7 = add %1, 1 : index\n  br ^bb1(%7, %4)\n^bb3:\n  return %2\n}";
        let module = parse(source, Default::default()).unwrap().module;
        insta::with_settings!({
            snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/ir"),
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!("dot", format!("{}----------\n{}", crate::ir::text::print(&module), dot(&module)));
        });
    }
}
