//! Reads the text form of a stage into lines with their locations and origins.
//!
//! In: a dump. Out: its lines, with `loc(..)` and the comments that name an origin turned into
//! data, and its parts. The head of a kernel, and its lines without a location of their own, get
//! that of the launches of the kernel.

use super::lines::{Line, Text};
use super::{Location, Record};
use std::collections::BTreeMap;

/// The levels of a record, in the order of the pipeline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Format {
    /// Graph IR; its steps are passes.
    Graph,
    /// Tile IR before the schedule.
    Tile,
    /// Tile IR of one target, after the schedule.
    Scheduled,
    /// Vector IR.
    Vector,
    /// Virtual-register code of the leaf functions.
    Mir,
    /// Assembly.
    Asm,
    /// PTX.
    Ptx,
}

impl Format {
    /// The name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Format::Graph => "graph",
            Format::Tile => "tile",
            Format::Scheduled => "scheduled",
            Format::Vector => "vector",
            Format::Mir => "mir",
            Format::Asm => "asm",
            Format::Ptx => "ptx",
        }
    }

    /// The name for a reader.
    pub(super) fn title(self) -> &'static str {
        match self {
            Format::Graph => "Graph IR",
            Format::Tile => "Tile IR",
            Format::Scheduled => "Scheduled tile IR",
            Format::Vector => "Vector IR",
            Format::Mir => "Virtual registers",
            Format::Asm => "Assembly",
            Format::Ptx => "PTX",
        }
    }

    /// Is it code that names the tile operation of its instructions in comments?
    fn is_code(self) -> bool {
        matches!(self, Format::Mir | Format::Asm | Format::Ptx)
    }
}

/// A text taken apart.
pub(super) struct Read {
    pub(super) lines: Vec<Line>,
    pub(super) parts: Vec<(String, usize)>,
}

pub(super) fn read(record: &Record, format: Format, text: &str) -> Read {
    match format.is_code() {
        true => code(record, format, text),
        false => ir(record, format, text),
    }
}

/// A dump of an IR.
fn ir(record: &Record, format: Format, text: &str) -> Read {
    let mut read = Read { lines: Vec::new(), parts: Vec::new() };
    // Locations of launches, by kernel.
    let mut launches: BTreeMap<String, Vec<Location>> = BTreeMap::new();
    // The head says how far a schedule got, which the name of the step says too.
    for written in text.lines().filter(|line| !line.starts_with("scheduled \"")) {
        let (text, at) = without_location(record, written);
        if let Some(name) = head(&text) {
            read.parts.push((name, read.lines.len()));
        } else if text == "  tapped"
            && format == Format::Graph
            && let Some((name, _)) = read.parts.last_mut()
        {
            name.push_str(" tapped");
        }
        let launched = text.trim_start().strip_prefix("launch @").and_then(|rest| rest.split('(').next());
        if let (Some(kernel), false) = (launched, at.is_empty()) {
            let known = launches.entry(format!("kernel {kernel}")).or_default();
            known.extend(at.iter().filter(|place| !known.contains(place)).copied().collect::<Vec<_>>());
        }
        // In vector IR, a comment before an instruction has the line that it was made from.
        let origin =
            text.rsplit_once("  // of ").and_then(|(line, of)| Some((line.trim_end().to_string(), of.parse().ok()?)));
        let (text, of) = origin.map_or((text, None), |(text, of)| (text, Some(of)));
        read.lines.push(Line { text, at, of });
    }
    let mut ends = read.parts.iter().skip(1).map(|(_, start)| *start).chain([read.lines.len()]);
    for (name, start) in &read.parts {
        let end = ends.next().unwrap_or(*start);
        let Some(places) = launches.get(name) else { continue };
        for line in &mut read.lines[*start..end] {
            if line.at.is_empty() && (is_instruction(&line.text) || head(&line.text).is_some()) {
                line.at.clone_from(places);
            }
        }
    }
    read
}

/// Is it an operation of an IR, rather than a head, a label or a bracket?
pub(super) fn is_instruction(line: &str) -> bool {
    let text = line.trim_start();
    text.len() < line.len() && !text.is_empty() && !text.starts_with('}') && !text.starts_with("doc ")
}

/// The name of the part that begins with this line.
fn head(line: &str) -> Option<String> {
    let (kind, rest) = line.split_once(" @")?;
    let name = rest.split(['(', ' ']).next()?;
    match kind {
        "func" => Some(format!("func {name}")),
        "kernel" | "entry" => Some(format!("{kind} {name}")),
        // Plans of an entry point differ in a word after the name.
        "plan" => match rest.split(' ').nth(1) {
            Some(word) if word.starts_with("tapped") || word.starts_with("prepare") => {
                Some(format!("plan {name} {word}"))
            }
            _ => Some(format!("plan {name}")),
        },
        "run" => Some(format!("kernel {}", name.rsplit_once('.').map_or(name, |(kernel, _)| kernel))),
        _ => None,
    }
}

/// A line without its `loc(..)`, and the locations in that.
fn without_location(record: &Record, line: &str) -> (String, Vec<Location>) {
    let mut quoted = false;
    let starts = line.char_indices().find(|(at, c)| {
        quoted ^= *c == '"' && !line[..*at].ends_with('\\');
        !quoted && line[*at..].starts_with(" loc(")
    });
    let Some((start, _)) = starts else { return (line.trim_end().to_string(), Vec::new()) };
    let (inside, after) = line[start + 5..].split_once(')').unwrap_or((&line[start + 5..], ""));
    let own = record.files.first().map_or("", |f| f.name.as_str());
    let place = |text: &str| {
        let point = text.trim().rsplit(' ').next()?;
        let (rest, column) = point.rsplit_once(':')?;
        let (file, number) = rest.rsplit_once(':').unwrap_or(("", rest));
        let file = if file.is_empty() { own } else { file.trim_matches('"') };
        record.place(file, number.parse().ok()?, column.parse().ok()?)
    };
    let mut at: Vec<Location> = Vec::new();
    for found in inside.split(", ").filter_map(place) {
        if !at.contains(&found) {
            at.push(found);
        }
    }
    ((line[..start].trim_end().to_string() + after).trim_end().to_string(), at)
}

/// A location at the start of a line, and the rest.
pub(super) fn leading_place<'t>(record: &Record, line: &'t str) -> (Option<Location>, &'t str) {
    let mut fields = line.splitn(4, ':');
    if let (Some(file), Some(number), Some(column), Some(rest)) =
        (fields.next(), fields.next(), fields.next(), fields.next())
        && let (Ok(number), Ok(column)) = (number.parse(), column.split(' ').next().unwrap_or("").parse())
    {
        return (record.place(file, number, column), rest.trim_start());
    }
    (None, line)
}

/// Code, whose comments name the tile operations.
fn code(record: &Record, format: Format, text: &str) -> Read {
    let mut read = Read { lines: Vec::new(), parts: Vec::new() };
    let tiles = record.last(Format::Scheduled).map(|text| &record.texts[text]);
    let mut origins = Origins::default();
    let mut of = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let comment = trimmed.strip_prefix("// ").or(trimmed.strip_prefix("# "));
        if let Some(name) = part_of_code(trimmed, comment, &read) {
            origins = tiles.map(|tiles| Origins::read(record, tiles, &name)).unwrap_or_default();
            of = origins.head();
            read.parts.push((name, read.lines.len()));
            // A leaf function names its caller after its label, which belongs to it too.
            if format == Format::Asm && comment.is_some() {
                let label = read.lines.len().saturating_sub(1);
                read.parts.last_mut().into_iter().for_each(|(_, start)| *start = label);
            }
        }
        if let Some(comment) = comment {
            match origins.find(record, comment) {
                Some(found) => of = Some(found),
                None if comment == "control flow" => of = origins.head(),
                None => read.lines.push(Line { text: line.trim_end().to_string(), ..Line::default() }),
            }
            continue;
        }
        // The offset of an instruction is left out: it differs between equal lines.
        let shown = match trimmed.strip_prefix("/*").and_then(|rest| rest.split_once("*/  ")) {
            Some((_, instruction)) => format!("    {instruction}"),
            None => line.trim_end().to_string(),
        };
        let is_code = shown.starts_with(' ') && !trimmed.starts_with('.');
        read.lines.push(Line { text: shown, at: Vec::new(), of: of.filter(|_| is_code) });
    }
    read
}

/// The kernel or plan whose code begins with this line.
fn part_of_code(line: &str, comment: Option<&str>, read: &Read) -> Option<String> {
    let named = |full: &str| {
        let (_, rest) = full.split_once('.')?;
        let (kind, name) = rest.split_once('.')?;
        ["kernel", "plan"].contains(&kind).then(|| format!("{kind} {name}"))
    };
    let found = match comment {
        Some(text) => match text.strip_prefix("called by ") {
            Some(callers) => named(callers.split(',').next()?.trim()),
            None => text.strip_prefix("kernel @").and_then(|rest| Some(format!("kernel {}", rest.split('(').next()?))),
        },
        None => line.strip_suffix(':').filter(|_| !line.starts_with('.')).and_then(named),
    };
    found.filter(|name| comment.is_some() || read.parts.last().is_none_or(|(last, _)| last != name))
}

/// The operations of a kernel, by their text.
#[derive(Default)]
struct Origins(BTreeMap<String, usize>);

impl Origins {
    fn read(record: &Record, tiles: &Text, part: &str) -> Origins {
        let mut known = BTreeMap::new();
        for (n, id) in tiles.part(part).iter().enumerate() {
            known.entry(normal(&record.lines.get(*id).text)).or_insert(n);
        }
        Origins(known)
    }

    /// The line of the head, to which the loops over the grid belong, and the entry and the exit.
    fn head(&self) -> Option<usize> {
        (!self.0.is_empty()).then_some(0)
    }

    /// The line of the operation that a comment shows, with a location before or after it.
    fn find(&self, record: &Record, comment: &str) -> Option<usize> {
        let comment = comment.trim_start_matches(['|', ' ']);
        let (_, plain) = match comment.split_once("  ") {
            Some((before, rest)) if leading_place(record, &format!("{before}:")).0.is_some() => ("", rest),
            Some((rest, _)) => ("", rest),
            None => ("", comment),
        };
        self.0.get(&normal(plain)).copied()
    }
}

/// A line with single blanks, and without the bracket that opens a region.
fn normal(line: &str) -> String {
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    words.strip_suffix(" {").map(str::to_string).unwrap_or(words)
}
