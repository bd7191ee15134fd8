//! Entries as text for a terminal, and all of them as a document in Markdown.
//!
//! In: entries. Out: text, or Markdown.

use super::{ElementTypes, Entry, Passage, sections};
use crate::diagnostics::codes;
use std::fmt::Write as _;

/// The preamble of the document.
const PREFACE: &str = "# The attn language

Every function, operator, statement and kind of fact, and the standard library by signature. `attnc ref NAME` prints an entry.

This document is made by `attnc ref --document` from `src/reference/language.txt` and the texts of the standard library. A test
compiles its programs, compares it with the compiler's tables, and checks that it is up to date.
";

impl Entry {
    /// The properties of an entry, one per line: label and value.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let takes = self.takes.as_ref().map(|word| {
            let names = |set: ElementTypes| set.types.iter().map(|elem| elem.name()).collect::<Vec<_>>().join(", ");
            let set = ElementTypes::find(word).filter(|set| set.types.len() > 1);
            ("takes", set.map_or(word.clone(), |set| format!("{word}: {}", names(set))))
        });
        takes.into_iter().chain(self.facts.iter().cloned()).collect()
    }

    /// A one-line summary: its forms, or its first sentence.
    pub fn summary(&self) -> String {
        if !self.forms.is_empty() {
            return self.forms.join("; ");
        }
        let first = self.parts.iter().find_map(|part| match part {
            Passage::Text(text) => Some(first_sentence(text).replace('\n', " ")),
            Passage::Program(_) | Passage::Failing { .. } => None,
        });
        first.unwrap_or_default().trim_end_matches(':').to_string()
    }

    /// The whole entry, for a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.title());
        if !self.forms.is_empty() {
            out += "\n";
        }
        self.forms.iter().for_each(|form| out += &format!("    {form}\n"));
        let rows = self.rows();
        if !rows.is_empty() {
            out += "\n";
        }
        rows.iter().for_each(|(word, what)| out += &format!("{word:<8}  {what}\n"));
        for part in &self.parts {
            match part {
                Passage::Text(text) => {
                    let _ = writeln!(out, "\n{text}");
                }
                Passage::Program(program) => out += &format!("\n{}", indented(program)),
                Passage::Failing { code, program } => {
                    let _ = write!(out, "\nThis is {code}, {}:\n\n{}", title_of(code), indented(program));
                }
            }
        }
        if !self.codes.is_empty() {
            let _ = writeln!(out, "\ncodes     {} (`attnc explain {}`)", self.codes.join(", "), self.codes[0]);
        }
        if !self.see.is_empty() {
            let _ = writeln!(out, "{}see also  {}", if self.codes.is_empty() { "\n" } else { "" }, self.see.join(", "));
        }
        out
    }

    /// The whole entry in Markdown.
    fn markdown(&self) -> String {
        let mut out = format!("### {}\n", self.names_shown());
        if !self.forms.is_empty() {
            let _ = write!(out, "\n```text\n{}\n```\n", self.forms.join("\n"));
        }
        let mut rows = self.rows();
        if !self.codes.is_empty() {
            let shown = self.codes.iter().map(|code| format!("{code} ({})", title_of(code)));
            rows.push(("codes", shown.collect::<Vec<_>>().join("; ")));
        }
        if !self.see.is_empty() {
            rows.push(("see also", self.see.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")));
        }
        if !rows.is_empty() {
            out += "\n";
        }
        for (word, what) in &rows {
            let is_code = *word == "formula";
            let _ = writeln!(out, "* {word}: {}", if is_code { format!("`{what}`") } else { what.clone() });
        }
        for part in &self.parts {
            let _ = match part {
                Passage::Text(text) => write!(out, "\n{text}\n"),
                Passage::Program(program) => write!(out, "\n```attn\n{program}\n```\n"),
                Passage::Failing { code, program } => {
                    write!(out, "\nThis is {code}, {}:\n\n```attn\n{program}\n```\n", title_of(code))
                }
            };
        }
        out
    }

    /// Its names, for a heading.
    fn names_shown(&self) -> String {
        self.names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}

/// The text up to the end of its first sentence, or to a colon; full stops in code, parentheses,
/// numbers and names do not count.
fn first_sentence(text: &str) -> &str {
    let (mut depth, mut in_code) = (0_usize, false);
    for (at, c) in text.char_indices() {
        match c {
            '`' => in_code = !in_code,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '.' | ':' if !in_code && depth == 0 => {
                let (sentence, rest) = text.split_at(at + 1);
                if rest.chars().next().is_none_or(char::is_whitespace) {
                    return sentence;
                }
            }
            _ => {}
        }
    }
    text
}

fn title_of(code: &str) -> &'static str {
    codes::find(code).map_or("", |entry| entry.title)
}

fn indented(program: &str) -> String {
    program.lines().map(|line| format!("    {line}").trim_end().to_string() + "\n").collect()
}

/// The whole reference in Markdown.
pub fn document() -> String {
    let mut out = PREFACE.to_string();
    for section in sections() {
        let _ = write!(out, "\n## {}\n", section.title);
        if !section.introduction.is_empty() {
            let _ = write!(out, "\n{}\n", section.introduction);
        }
        for entry in &section.entries {
            let _ = write!(out, "\n{}", entry.markdown());
        }
    }
    out += "\n## Names of other libraries\n\nWhat PyTorch, NumPy, JAX and Keras call otherwise, and what is written here. The type checker \
            suggests the same, in the operands of the program.\n\n| there | here |\n|---|---|\n";
    for (there, here) in super::foreign::rows() {
        let _ = writeln!(out, "| {} | {} |", there.replace('|', "\\|"), here.replace('|', "\\|"));
    }
    out
}
