//! The record of a compilation: every stage of one program as data, with the relation between the
//! lines of neighbouring stages and the source.
//!
//! In: plain data from the driver: sources, the text of each stage, remarks, costs. Out: one JSON
//! document, described in `docs/guide/record.md` and by `schema.json`. It must not know any stage:
//! it reads the text forms, whose syntax (`%5`, `loc(4:9)`, `@kernel`) all stages share.

mod lines;
mod plans;
#[cfg(test)]
mod tests;
mod text;

pub use lines::Line;
use lines::{Lines, Text};
pub use plans::{KernelCost, Plan};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
pub use text::Format;

/// Version of the format; it changes whenever a reader of the previous one would misread it.
pub const VERSION: u32 = 1;

/// A source text.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path as given, or `std/nn.attn`.
    pub name: String,
    /// Its contents.
    pub text: String,
}

/// A location: index of the file, line and column from 1.
pub type Location = (usize, u32, u32);

/// An expression of the typed program.
#[derive(Clone, Debug)]
pub struct Expression {
    /// Where it starts.
    pub start: Location,
    /// Line and column after its last character.
    pub end: (u32, u32),
    /// The operation.
    pub op: String,
    /// Its type with its shape.
    pub ty: String,
}

/// A change of a source text.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Where the replaced text starts.
    pub start: Location,
    /// Line and column after its last character.
    pub end: (u32, u32),
    /// The new text.
    pub text: String,
}

/// An edit of the program after which a missed rewrite is made: it was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    /// One line.
    pub title: String,
    /// Changes that do not overlap.
    pub changes: Vec<Change>,
}

/// A rewrite that a stage made, or the reason why it made none.
#[derive(Clone, Debug, PartialEq)]
pub struct Remark {
    /// The pass or the stage.
    pub pass: String,
    /// The location in the source, if it is known.
    pub at: Option<Location>,
    /// Name of the entry point; empty if it concerns a kernel.
    pub function: String,
    /// The condition that was not met, if the rewrite was not made.
    pub missed: Option<String>,
    /// One line.
    pub message: String,
    /// Related locations.
    pub notes: Vec<(Option<Location>, String)>,
    /// The smallest edit after which it is made, if one is known.
    pub edit: Option<Edit>,
}

/// One state of a level.
#[derive(Debug)]
struct Step {
    name: String,
    /// Is it the text of the step before?
    changed: bool,
    /// Index in the texts.
    text: usize,
    /// Indices of its remarks.
    remarks: Vec<usize>,
}

#[derive(Debug)]
struct Level {
    format: Format,
    steps: Vec<Step>,
}

/// All that is known of a compilation so far.
#[derive(Debug, Default)]
pub struct Record {
    /// The command without its outputs.
    pub command: String,
    /// The instruction set or GPU architecture of the code; empty if none was reached.
    pub target: String,
    /// The sources.
    pub files: Vec<File>,
    /// Diagnostics, in the format of `--error-format json`.
    pub diagnostics: Vec<Value>,
    /// Expressions of the typed program.
    pub expressions: Vec<Expression>,
    /// Plans with their memory and costs.
    pub plans: Vec<Plan>,
    /// Before and after the schedule: the operations of graph IR that kernels were launched for, as
    /// the kernel, the number of the function, and the number of the value.
    pub operations: BTreeMap<Format, BTreeSet<(String, usize, u32)>>,
    /// The measurements of `attnc bench`; null without them.
    pub measured: Value,
    /// The numbers of a run (`attnc run --record`); null without them.
    pub values: Value,
    remarks: Vec<Remark>,
    levels: Vec<Level>,
    lines: Lines,
    texts: Vec<Text>,
}

impl Record {
    /// The location in a file of this name (without directories).
    pub fn place(&self, file: &str, line: u32, column: u32) -> Option<Location> {
        let base = |f: &File| f.name.rsplit(['/', '\\']).next() == file.rsplit(['/', '\\']).next();
        let found = self.files.iter().position(base)?;
        (line > 0).then_some((found, line, column))
    }

    /// Adds a step to a level: its text, as the driver dumps it.
    pub fn step(&mut self, format: Format, name: &str, text: &str) {
        let text = self.text(format, text);
        self.push_text(format, name, text);
    }

    /// Adds the result of a level, unless its last step has this text.
    pub fn result(&mut self, format: Format, name: &str, text: &str) {
        let text = self.text(format, text);
        if self.last(format) != Some(text) {
            self.push_text(format, name, text);
        }
    }

    /// The index of a text, which an earlier step may have had too.
    fn text(&mut self, format: Format, text: &str) -> usize {
        let read = text::read(self, format, text);
        let ids: Vec<usize> = read.lines.into_iter().map(|line| self.lines.id(line)).collect();
        self.texts.iter().position(|text| text.ids == ids).unwrap_or_else(|| {
            self.texts.push(Text { ids, parts: read.parts });
            self.texts.len() - 1
        })
    }

    fn push_text(&mut self, format: Format, name: &str, text: usize) {
        let changed = self.last(format) != Some(text);
        self.push(format, Step { name: name.to_string(), changed, text, remarks: Vec::new() });
    }

    /// Adds a step that changed nothing.
    pub fn unchanged(&mut self, format: Format, name: &str) {
        if let Some(text) = self.last(format) {
            self.push(format, Step { name: name.to_string(), changed: false, text, remarks: Vec::new() });
        }
    }

    /// Adds a remark to the last step of a level.
    pub fn remark(&mut self, format: Format, remark: Remark) {
        self.remarks.push(remark);
        let id = self.remarks.len() - 1;
        if let Some(step) = self.levels.iter_mut().find(|l| l.format == format).and_then(|l| l.steps.last_mut()) {
            step.remarks.push(id);
        }
    }

    /// Adds an edit to the remarks that are like this one.
    pub fn propose(&mut self, like: &Remark, edit: &Edit) {
        self.remarks.iter_mut().filter(|r| *r == like).for_each(|r| r.edit = Some(edit.clone()));
    }

    /// Adds the remarks of a stage, given as lines `remark: file:line:column: message`.
    pub fn remark_lines(&mut self, format: Format, stage: &str, text: &str) {
        for line in text.lines() {
            let line = line.strip_prefix("remark: ").unwrap_or(line);
            let (at, message) = text::leading_place(self, line);
            let (pass, function) = (stage.to_string(), String::new());
            self.remark(
                format,
                Remark {
                    pass,
                    at,
                    function,
                    missed: None,
                    message: message.to_string(),
                    notes: Vec::new(),
                    edit: None,
                },
            );
        }
    }

    /// The last text of a level.
    fn last(&self, format: Format) -> Option<usize> {
        self.levels.iter().find(|l| l.format == format)?.steps.last().map(|s| s.text)
    }

    fn push(&mut self, format: Format, step: Step) {
        match self.levels.iter_mut().find(|l| l.format == format) {
            Some(level) => level.steps.push(step),
            None => {
                let at = self.levels.partition_point(|l| l.format < format);
                self.levels.insert(at, Level { format, steps: vec![step] });
            }
        }
    }

    /// The operations of each kernel by level and name: functions by name, values as in the texts.
    fn kernels(&self) -> Value {
        let graph = self.last(Format::Graph).map(|text| &self.texts[text].parts[..]).unwrap_or_default();
        let functions: Vec<&String> =
            graph.iter().map(|(name, _)| name).filter(|name| name.starts_with("func ")).collect();
        let mut levels = Map::new();
        for (format, operations) in &self.operations {
            let mut kernels: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
            for (kernel, function, value) in operations {
                let Some(function) = functions.get(*function) else { continue };
                kernels.entry(kernel).or_default().push(json!([function, format!("%{value}")]));
            }
            levels.insert(format.name().into(), json!(kernels));
        }
        Value::Object(levels)
    }

    /// The record as one JSON document, with a final newline.
    pub fn json(&self) -> String {
        let files: Vec<Value> = self.files.iter().map(|f| json!({"name": f.name, "text": f.text})).collect();
        let expressions: Vec<Value> = self
            .expressions
            .iter()
            .map(|e| json!([e.start.0, e.start.1, e.start.2, e.end.0, e.end.1, e.op, e.ty]))
            .collect();
        let levels: Vec<Value> = self.levels.iter().map(level).collect();
        let texts: Vec<Value> = self.texts.iter().map(Text::json).collect();
        let document = json!({
            "format": "attnc-record",
            "version": VERSION,
            "command": self.command,
            "target": self.target,
            "files": files,
            "diagnostics": self.diagnostics,
            "expressions": expressions,
            "remarks": self.remarks.iter().map(remark).collect::<Vec<_>>(),
            "levels": levels,
            "lines": self.lines.json(),
            "texts": texts,
            "kernels": self.kernels(),
            "measured": self.measured,
            "values": self.values,
            "plans": self.plans.iter().map(|p| p.json(self)).collect::<Vec<_>>(),
        });
        format!("{document}\n")
    }
}

fn level(level: &Level) -> Value {
    let steps: Vec<Value> = level
        .steps
        .iter()
        .map(|s| json!({"name": s.name, "changed": s.changed, "text": s.text, "remarks": s.remarks}))
        .collect();
    json!({"name": level.format.name(), "title": level.format.title(), "steps": steps})
}

fn remark(remark: &Remark) -> Value {
    let mut fields = Map::new();
    fields.insert("pass".into(), remark.pass.as_str().into());
    fields.insert("at".into(), json!(remark.at));
    fields.insert("function".into(), remark.function.as_str().into());
    fields.insert("missed".into(), json!(remark.missed));
    fields.insert("message".into(), remark.message.as_str().into());
    fields.insert("notes".into(), json!(remark.notes));
    let change = |c: &Change| json!([c.start.0, c.start.1, c.start.2, c.end.0, c.end.1, c.text]);
    let edit =
        |edit: &Edit| json!({"title": edit.title, "changes": edit.changes.iter().map(change).collect::<Vec<_>>()});
    fields.insert("edit".into(), json!(remark.edit.as_ref().map(edit)));
    Value::Object(fields)
}
