//! Prints and parses descriptions of kernels: a clause of the head, and for an attention the lines
//! before its first block.
//!
//! ```text
//! kernel @cumsum.0(..) computes(scan, axis=1) {
//! kernel @matmul.0(..) computes(matmul, plain=true, tile(64, 32), panels(0), single) {
//! kernel @attention.0(..) computes(attention) {
//!   scores                                              loc(9:12)
//!   %m0 = const 0.125 : f32
//!   scale %m0                                           loc(9:5)
//!   %m1 = position 2 : i32                              loc(11:7)
//!   %m2 = buffer 3
//!   %m3 = lt %m1, %m2 : bool                            loc(11:7)
//!   %m4 = const -inf : f32
//!   keep %m3, %m4                                       loc(10:5)
//!   softmax                                             loc(12:5)
//!   values                                              loc(13:5)
//! ^bb0:
//! ```
//!
//! Operations on the scores are in the order of their application. Each operand is a formula: the
//! lines after the previous operand, the last of which is its result.

use std::collections::BTreeMap;

use super::forms::{Read, call, fail, form, literal, only};
use crate::diagnostics::codes::ir as codes;
use crate::irtext::{Expr, ExprKind, Phrase, Statement, TextSpan, read};
use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::source::Loc;
use crate::table::{self, Attributes};
use crate::tile::attention::{Attention, Formula, Locations, Node, ScoreOp, Step};
use crate::tile::description::{Matmul, PanelLayout, PanelOperand};
use crate::tile::{Body, Compute, MAX_EXTENT, Op, Tiled, Type};

/// The argument of `computes(..)` in a kernel's head.
pub(super) fn clause(compute: &Compute) -> String {
    match compute {
        Compute::Copy => "copy".to_string(),
        Compute::Scan { axis } => format!("scan, axis={axis}"),
        Compute::Sort { descending, site } => format!("sort, descending={descending}, site={site}"),
        Compute::Matmul(matmul) => matmul_clause(matmul),
        Compute::Attention(_) => "attention".to_string(),
    }
}

/// The description of a matmul: what lowering knows, then what was chosen for it.
fn matmul_clause(Matmul { plain, tile, block, panels }: &Matmul) -> String {
    let mut parts = vec![format!("matmul, plain={plain}")];
    parts.extend((*tile != Matmul::TILE).then(|| format!("tile({}, {})", tile[0], tile[1])));
    parts.extend(block.map(|n| format!("block({n})")));
    if let Some(PanelOperand { points, layout }) = panels {
        let points = points.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let (word, number) = match layout {
            PanelLayout::Single => ("single", None),
            PanelLayout::Interleaved(n) => ("interleaved", Some(*n)),
            PanelLayout::Pairs => ("pairs", None),
            PanelLayout::Scaled { bits } => ("bits", Some(i64::from(*bits))),
        };
        let number = number.map_or(String::new(), |n| format!("({n})"));
        parts.push(format!("panels({points}), {word}{number}"));
    }
    parts.join(", ")
}

/// Parses what was chosen for a matmul.
fn read_matmul(plain: bool, args: &[Phrase], place: TextSpan) -> Read<Matmul> {
    let mut matmul = Matmul::new(plain);
    let (mut points, mut layout) = (None, None);
    for p in args {
        let e = form(read::single(p))?;
        let numbers = |args: &[Phrase]| {
            args.iter().map(|p| form(read::integer::<i64>(form(read::single(p))?))).collect::<Read<Vec<i64>>>()
        };
        let (word, given) = match (&e.kind, call(e)) {
            (ExprKind::Word(word), _) => (word.as_str(), Vec::new()),
            (_, Some((word, args))) => (word, numbers(args)?),
            _ => ("", Vec::new()),
        };
        let fits = |n: i64| (1..=MAX_EXTENT).contains(&n);
        match (word, given.as_slice()) {
            ("tile", [rows, cols]) if fits(*rows) && fits(*cols) => matmul.tile = [*rows, *cols],
            ("block", [n]) if fits(*n) => matmul.block = Some(*n),
            ("panels", list) if list.iter().all(|n| *n >= 0) => {
                points = Some(list.iter().filter_map(|n| usize::try_from(*n).ok()).collect());
            }
            ("single", []) => layout = Some(PanelLayout::Single),
            ("interleaved", [n]) if fits(*n) => layout = Some(PanelLayout::Interleaved(*n)),
            ("pairs", []) => layout = Some(PanelLayout::Pairs),
            ("bits", [bits @ (4 | 8)]) => layout = Some(PanelLayout::Scaled { bits: if *bits == 4 { 4 } else { 8 } }),
            _ => return fail(codes::FORM, p.place, "this is nothing that is chosen for a matmul"),
        }
    }
    matmul.panels = match (points, layout) {
        (Some(points), Some(layout)) => Some(PanelOperand { points, layout }),
        (None, None) => None,
        _ => return fail(codes::FORM, place, "panels have points and a layout: `panels(0), single`"),
    };
    Ok(matmul)
}

/// The lines of a description in a kernel's braces: text, type and location.
pub(super) fn lines(compute: &Compute) -> Vec<(String, Option<Elem>, Loc)> {
    let Compute::Attention(attention) = compute else { return Vec::new() };
    let Attention { locations, scale, steps, sink } = &**attention;
    let mut out = Writer::default();
    out.location("scores", locations.scores);
    out.line("scale", &[scale], locations.scale);
    for step in steps {
        match &step.op {
            ScoreOp::Causal => out.line("causal", &[], step.loc),
            ScoreOp::Add(x) => out.line("add", &[x], step.loc),
            ScoreOp::Keep { kept, fill } => out.line("keep", &[kept, fill], step.loc),
            ScoreOp::Cap(x) => out.line("cap", &[x], step.loc),
        }
    }
    if let Some(sink) = sink {
        out.line("sink", &[sink], locations.sink);
    }
    out.location("softmax", locations.softmax);
    out.location("values", locations.values);
    out.lines
}

#[derive(Default)]
struct Writer {
    lines: Vec<(String, Option<Elem>, Loc)>,
    /// Number of lines with names (`%m0`, `%m1`, ..).
    named: usize,
}

impl Writer {
    fn location(&mut self, word: &str, loc: Loc) {
        if loc.line > 0 {
            self.lines.push((word.to_string(), None, loc));
        }
    }

    /// Prints the operands' lines, then the line itself.
    fn line(&mut self, word: &str, operands: &[&Formula], loc: Loc) {
        let names: Vec<String> = operands.iter().map(|x| self.formula(x)).collect();
        let line = format!("{word} {}", names.join(", "));
        self.lines.push((line.trim_end().to_string(), None, loc));
    }

    /// Prints the lines of a formula and returns the name of its result.
    fn formula(&mut self, formula: &Formula) -> String {
        let first = self.named;
        for (node, loc) in formula.located() {
            let (text, elem) = match node {
                Node::Position(axis, elem) => (format!("position {axis}"), Some(*elem)),
                Node::Buffer(n) => (format!("buffer {n}"), None),
                Node::Literal(x, elem) => {
                    let x = literal(&Op::Const(*x), Some(&Type::Scalar(*elem))).unwrap_or_default();
                    (format!("const {x}"), Some(*elem))
                }
                Node::Dim(d, elem) => (format!("dim {d}"), Some(*elem)),
                Node::Each(op, operands, elem) => {
                    let operands = operands.iter().map(|n| format!("%m{}", first + n));
                    let attributes = op.attributes().unwrap_or_default();
                    let attributes = attributes.into_iter().map(|(k, v)| format!("{k}={v}"));
                    let parts: Vec<String> = operands.chain(attributes).collect();
                    (format!("{} {}", op.info().name, parts.join(", ")), Some(*elem))
                }
            };
            self.lines.push((format!("%m{} = {text}", self.named), elem, *loc));
            self.named += 1;
        }
        format!("%m{}", self.named.saturating_sub(1))
    }
}

/// Parses a clause; `None` for an attention, whose description is in the lines that follow.
pub(super) fn read_clause(args: &[Phrase], place: TextSpan) -> Read<Option<Compute>> {
    let named = |n: usize, name: &str| match args.get(n).and_then(read::named) {
        Some((own, [value])) if own == name => Ok(value),
        _ => fail(codes::FORM, place, format!("`{name}=` is missing in a description")),
    };
    let truth = |n: usize, name: &str| match read::literal(named(n, name)?) {
        Some(read::Literal::Bool(b)) => Ok(b),
        _ => fail(codes::LITERAL, place, format!("`{name}` is `true` or `false`")),
    };
    let kind = match args.first() {
        Some(p) => form(read::word(form(read::single(p))?))?,
        None => "",
    };
    Ok(Some(match (kind, args.len()) {
        ("attention", 1) => return Ok(None),
        ("copy", 1) => Compute::Copy,
        ("scan", 2) => Compute::Scan { axis: form(read::integer(named(1, "axis")?))? },
        ("matmul", 2..) => Compute::Matmul(read_matmul(truth(1, "plain")?, args.get(2..).unwrap_or_default(), place)?),
        ("sort", 3) => {
            let descending = truth(1, "descending")?;
            Compute::Sort { descending, site: form(read::integer(named(2, "site")?))? }
        }
        _ => {
            let message =
                "`copy`, `scan, axis=`, `sort, descending=, site=`, `matmul, plain=` or `attention` belongs here";
            return fail(codes::FORM, place, message);
        }
    }))
}

/// Parses the lines of an attention's description; `loc` reads the location of a line.
pub(super) fn read_attention<'a>(
    lines: impl Iterator<Item = &'a Statement>,
    place: TextSpan,
    loc: impl Fn(&Statement) -> Read<Loc>,
) -> Read<Compute> {
    let mut reader = Reader::default();
    let (mut scale, mut sink, mut steps) = (None, None, Vec::new());
    let mut locations = Locations::default();
    for s in lines {
        let at = loc(s)?;
        if let [name] = s.results.as_slice() {
            reader.node(s, form(read::value(name))?, at)?;
            continue;
        }
        let op = match (s.head.as_str(), s.args.as_slice()) {
            ("scores", []) => {
                locations.scores = at;
                continue;
            }
            ("softmax", []) => {
                locations.softmax = at;
                continue;
            }
            ("values", []) => {
                locations.values = at;
                continue;
            }
            ("scale", [x]) => {
                (scale, locations.scale) = (Some(reader.operand(x)?), at);
                continue;
            }
            ("sink", [x]) => {
                (sink, locations.sink) = (Some(reader.operand(x)?), at);
                continue;
            }
            ("causal", []) => ScoreOp::Causal,
            ("add", [x]) => ScoreOp::Add(reader.operand(x)?),
            ("keep", [kept, fill]) => ScoreOp::Keep { kept: reader.operand(kept)?, fill: reader.operand(fill)? },
            ("cap", [x]) => ScoreOp::Cap(reader.operand(x)?),
            (head, _) => {
                return fail(codes::FORM, s.place, format!("`{head}` is not a line of an attention's description"));
            }
        };
        steps.push(Step { op, loc: at });
    }
    match scale {
        Some(scale) => Ok(Compute::Attention(Attention { locations, scale, steps, sink }.into())),
        None => fail(codes::FORM, place, "the description of an attention has no `scale`"),
    }
}

/// Reads formulas, line by line.
#[derive(Default)]
struct Reader {
    nodes: Vec<(Node, Loc)>,
    names: BTreeMap<String, usize>,
    /// Number of nodes of earlier operands.
    before: usize,
}

impl Reader {
    /// The index of a named node in the formula that is being parsed.
    fn number(&self, e: &Expr) -> Read<usize> {
        let name = form(read::value(e))?;
        match self.names.get(name).and_then(|n| n.checked_sub(self.before)) {
            Some(n) => Ok(n),
            None => fail(codes::UNKNOWN_NAME, e.place, format!("%{name} is not a line of this operand")),
        }
    }

    /// The formula whose result is the named line; the next operand begins after it.
    fn operand(&mut self, p: &Phrase) -> Read<Formula> {
        let end = self.before + self.number(form(read::single(p))?)? + 1;
        let mut formula = Formula::default();
        for (node, loc) in self.nodes.get(self.before..end).unwrap_or_default() {
            formula.add(node.clone(), *loc);
        }
        self.before = end;
        Ok(formula)
    }

    fn node(&mut self, s: &Statement, name: &str, loc: Loc) -> Read<()> {
        let elem = match s.types.as_slice() {
            [] => None,
            [p] => Some(form(read::elem(form(read::single(p))?))?),
            _ => return fail(codes::FORM, s.place, "a line has one element type"),
        };
        let typed = || match elem {
            Some(elem) => Ok(elem),
            None => fail(codes::FORM, s.place, "an element type is missing"),
        };
        let node = match s.head.as_str() {
            "position" => Node::Position(form(read::integer(only(&s.args, s.place)?))?, typed()?),
            "buffer" => Node::Buffer(form(read::integer(only(&s.args, s.place)?))?),
            "dim" => Node::Dim(form(read::dim(only(&s.args, s.place)?))?, typed()?),
            "const" => {
                let (e, elem) = (only(&s.args, s.place)?, typed()?);
                let x = match (read::literal(e), elem) {
                    (Some(read::Literal::Float(x)), elem) if elem.is_float() => Scalar::Float(x),
                    (Some(read::Literal::Bool(x)), Elem::Bool) => Scalar::Bool(x),
                    (Some(read::Literal::Int(x)), Elem::I8 | Elem::I32 | Elem::I64) => Scalar::Int(x),
                    _ => return fail(codes::LITERAL, e.place, "the literal does not fit its type"),
                };
                Node::literal(x, elem)
            }
            head => {
                let mut attributes = Attributes::new(s)?;
                let op = match Op::read(head, &mut attributes)? {
                    Some(
                        op
                        @ (Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast | Op::Narrow { .. }),
                    ) => op,
                    Some(_) => return fail(codes::FORM, s.place, format!("`{head}` is not elementwise")),
                    None => return Err(table::unknown(head, s.place, &Op::table())),
                };
                attributes.finish()?;
                let operands = s.args.iter().filter(|p| read::named(p).is_none());
                let operands = operands.map(|p| self.number(form(read::single(p))?)).collect::<Read<_>>()?;
                Node::Each(op, operands, typed()?)
            }
        };
        if self.names.insert(name.to_string(), self.nodes.len()).is_some() {
            return fail(codes::DEFINED_TWICE, s.place, format!("%{name} is defined twice"));
        }
        self.nodes.push((node, loc));
        Ok(())
    }
}

/// Reads a `tiled(..)` clause, whose instructions are numbered in their order.
pub(super) fn read_tiled(clause: &Expr, args: &[Phrase], body: &Body) -> Read<Tiled> {
    let mut tiled = Tiled::default();
    for p in args {
        let e = form(read::single(p))?;
        match (&e.kind, call(e)) {
            (ExprKind::Word(w), _) if w == "once" => tiled.loads_once = true,
            (_, Some(("warps", args))) => tiled.warps = Some(form(read::integer(only(args, e.place)?))?),
            (_, Some(("apart", args))) => {
                for p in args {
                    let n: usize = form(read::integer(form(read::single(p))?))?;
                    let Some((_, i, _)) = body.insts().nth(n) else {
                        return fail(codes::FORM, p.place, format!("the kernel has no instruction {n}"));
                    };
                    tiled.apart.insert(i);
                }
            }
            _ => return fail(codes::FORM, clause.place, "`tiled(warps(n), once, apart(n, ..))` belongs here"),
        }
    }
    Ok(tiled)
}
