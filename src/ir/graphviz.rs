//! A module as a graph in the DOT language of Graphviz.
//!
//! In: a module. Out: input for `dot -Tsvg`: a frame for each entry point, a frame for each block
//! in it, a node for each argument and for each line of the module's text, coloured by the class of
//! its operation. Solid edges lead from values to their uses, and from the operands of a jump to
//! the block arguments that they become; dashed edges are jumps, and end at the frame of their
//! block. For an entry point with taps, the variant without taps is drawn. The output is
//! deterministic.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::text::{PrintedPart, print_with_anchors};
use super::{Block, Class, Function, Inst, Module, Terminator, Value, ValueDef};

/// The maximum number of characters of a line that a node shows.
const WIDTH: usize = 64;

/// Fill colour of an operation's node.
fn colour(class: Class) -> &'static str {
    match class {
        Class::Source => "gray93",
        Class::Elementwise => "lightblue1",
        Class::Movement => "thistle1",
        Class::Contraction => "peachpuff",
        Class::Effect => "mistyrose2",
        Class::Fused => "darkseagreen1",
    }
}

/// Is this the variant of its entry point that is drawn: the only one, or the one without taps?
fn is_drawn(module: &Module, f: &Function) -> bool {
    !f.tapped || !module.functions.iter().any(|other| other.name == f.name && !other.tapped)
}

/// The module in the DOT language.
pub fn dot(module: &Module) -> String {
    let printed = print_with_anchors(module);
    let lines: Vec<&str> = printed.text.lines().collect();
    let mut out = String::from(
        "digraph module {\n  node [shape=box, fontname=monospace];\n  graph [fontname=monospace];\n  compound=true;\n",
    );
    let drawn = || module.functions.iter().enumerate().filter(|(_, f)| is_drawn(module, f));
    let classes: BTreeMap<&str, &str> = drawn()
        .flat_map(|(_, f)| f.layout.iter().flat_map(|b| &f.block(*b).insts).map(|i| f.inst(*i).op.info().class))
        .map(|class| (class.text(), colour(class)))
        .collect();
    for (n, (text, colour)) in classes.into_iter().enumerate() {
        let _ = writeln!(out, "  c{n} [shape=plaintext, style=filled, fillcolor={colour}, label={}];", label(&[text]));
    }
    for (n, f) in drawn() {
        let mut head = "";
        let mut nodes = Nodes { function: n, insts: BTreeMap::new(), heads: BTreeMap::new(), ends: BTreeMap::new() };
        for (anchor, line) in printed.lines.iter().filter(|(a, _)| a.function == Some(n) && a.fused.is_none()) {
            match anchor.at {
                PrintedPart::Block(b) => drop(nodes.heads.insert(b, *line)),
                PrintedPart::Inst(i) => drop(nodes.insts.insert(i, *line)),
                PrintedPart::Terminator(b) => drop(nodes.ends.insert(b, *line)),
                PrintedPart::Head => head = lines.get(*line).map_or("", |l| l.trim_end_matches(" {")),
                PrintedPart::Param(_) | PrintedPart::Check(_) => {}
            }
        }
        let _ = writeln!(out, "  subgraph cluster_f{n} {{\n    label={};", label(&[head]));
        for (k, b) in f.layout.iter().enumerate() {
            let line = nodes.heads.get(b).and_then(|line| lines.get(*line)).copied().unwrap_or_default();
            let name = line.trim_end_matches(':').split('(').next().unwrap_or_default();
            let _ = writeln!(out, "    subgraph cluster_f{n}_b{k} {{\n      style=dotted; label={};", label(&[name]));
            // The first block has the arguments of the function.
            let args = arguments(if k == 0 { head } else { line });
            for (place, arg) in args.iter().enumerate().take(f.block(*b).args.len()) {
                if let Some(node) = nodes.argument(*b, place) {
                    let _ = writeln!(out, "      {node} [shape=ellipse, label={}];", label(&[arg]));
                }
            }
            for i in &f.block(*b).insts {
                let Some(line) = nodes.insts.get(i) else { continue };
                let colour = colour(f.inst(*i).op.info().class);
                let text = label(&shown(&lines, *line));
                let _ = writeln!(out, "      n{line} [style=filled, fillcolor={colour}, label={text}];");
            }
            if let Some(line) = nodes.ends.get(b) {
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

/// Maps blocks and instructions to the lines after which their nodes are named.
struct Nodes {
    function: usize,
    insts: BTreeMap<Inst, usize>,
    heads: BTreeMap<Block, usize>,
    ends: BTreeMap<Block, usize>,
}

impl Nodes {
    /// The name of a block argument's node.
    fn argument(&self, b: Block, place: usize) -> Option<String> {
        self.heads.get(&b).map(|line| format!("n{line}_{place}"))
    }

    /// The name of a value's node. Literals have no line, so no node.
    fn value(&self, f: &Function, v: Value) -> Option<String> {
        match f.def(v) {
            ValueDef::Result(i) => self.insts.get(&i).map(|line| format!("n{line}")),
            ValueDef::Arg(b, place) => self.argument(b, place),
            ValueDef::Param => None,
        }
    }

    /// The name of a block's first node, which jumps lead to.
    fn first(&self, f: &Function, b: Block) -> Option<String> {
        let data = f.block(b);
        let arg = if data.args.is_empty() { None } else { self.argument(b, 0) };
        let inst = data.insts.iter().find_map(|i| self.insts.get(i)).or(self.ends.get(&b));
        arg.or_else(|| inst.map(|line| format!("n{line}")))
    }
}

fn edges(out: &mut String, f: &Function, nodes: &Nodes) {
    for b in &f.layout {
        for i in &f.block(*b).insts {
            let Some(to) = nodes.insts.get(i) else { continue };
            for from in f.inst(*i).operands.iter().filter_map(|v| nodes.value(f, *v)) {
                let _ = writeln!(out, "    {from} -> n{to};");
            }
        }
        let Some(end) = nodes.ends.get(b) else { continue };
        let terminator = &f.block(*b).terminator;
        let used: &[Value] = match terminator {
            Terminator::Return(values) => values,
            Terminator::BrIf { condition, .. } => std::slice::from_ref(condition),
            Terminator::Br(_) => &[],
            Terminator::Roles(never) => match *never {},
        };
        for from in used.iter().filter_map(|v| nodes.value(f, *v)) {
            let _ = writeln!(out, "    {from} -> n{end};");
        }
        for c in terminator.targets() {
            for (place, v) in c.args.iter().enumerate() {
                if let (Some(from), Some(to)) = (nodes.value(f, *v), nodes.argument(c.block, place)) {
                    let _ = writeln!(out, "    {from} -> {to};");
                }
            }
            let Some(to) = nodes.first(f, c.block) else { continue };
            // An edge to the frame that contains its tail cannot end at the frame.
            let frame = f.layout.iter().position(|other| *other == c.block).filter(|_| c.block != *b);
            let frame = frame.map_or(String::new(), |k| format!(", lhead=cluster_f{}_b{k}", nodes.function));
            let _ = writeln!(out, "    n{end} -> {to} [style=dashed{frame}];");
        }
    }
}

/// The comma-separated contents of the first parentheses of a line.
fn arguments(line: &str) -> Vec<&str> {
    let Some((_, inside)) = line.split_once('(') else { return Vec::new() };
    let (mut out, mut depth, mut start, mut quoted, mut escaped) = (Vec::new(), 0usize, 0, false, false);
    for (at, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' => depth += 1,
            ')' if depth == 0 => {
                out.push(&inside[start..at]);
                return out;
            }
            ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    out
}

/// A line without its source location; all lines of a fused region.
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
    fn arguments_are_nodes_and_edges_go_from_value_to_value() {
        let source = "module \"m\"\nfunc @f(%0 \"a, (b\": f32[S, 4], %1 \"y\": f32[S, 4]) -> (f32[S, 4]) {\n^bb0:\n  \
            br ^bb1(0, %1)\n^bb1(%2: index, %3: f32[S, 4]):\n  %4 = lt %2, 3 : bool[]\n  br_if %4, ^bb2, ^bb3\n^bb2:\n  \
            %5 = add %0, %3 : f32[S, 4]\n  %6 = add %2, 1 : index\n  br ^bb1(%6, %5)\n^bb3:\n  return %3\n}";
        let module = parse(source, Default::default()).unwrap().module;
        let text = dot(&module);
        // The only node whose label begins with `what`.
        let node = |what: &str| {
            let of = |line: &str| line.trim().split_once(" [").map(|(name, rest)| (name.to_string(), rest.to_string()));
            let mut found = text.lines().filter_map(of).filter(|(_, rest)| rest.contains(&format!("label=\"{what}")));
            let (name, _) = found.next().unwrap_or_else(|| panic!("{what} in\n{text}"));
            assert!(found.next().is_none(), "{what} twice in\n{text}");
            name
        };
        let has = |from: &str, to: &str| text.contains(&format!("    {} -> {};\n", node(from), node(to)));
        for (from, to) in [
            ("%0 \\\"a, (b\\\": f32", "%5 = add"),
            ("%3: f32", "%5 = add"),
            ("%1 \\\"y\\\": f32", "%3: f32"),
            ("%5 = add", "%3: f32"),
            ("%2: index", "%4 = lt"),
            ("%2: index", "%6 = add"),
            ("%6 = add", "%2: index"),
            ("%4 = lt", "br_if"),
            ("%3: f32", "return"),
        ] {
            assert!(has(from, to), "{from} -> {to} in\n{text}");
        }
        // Solid edges: the expected number, and none from a block.
        let edges = text.lines().filter(|line| line.starts_with("    n") && line.contains(" -> "));
        assert_eq!(edges.filter(|line| !line.contains("style=dashed")).count(), 9, "{text}");
        let jumps = text.lines().filter(|line| line.contains("style=dashed"));
        assert!(jumps.clone().count() == 4 && jumps.clone().all(|line| line.contains("lhead=cluster_f0_b")), "{text}");
    }

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
