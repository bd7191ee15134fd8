//! The parser of `language.txt`, whose syntax [`super`] describes.
//!
//! In: text. Out: sections and entries. Nothing is checked here: a malformed line becomes prose,
//! which `tests/language/reference.rs` reports.

use super::{Entry, Passage, Section};

pub(super) fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("# ") {
            let body = until_heading(&mut lines);
            let introduction = body.join("\n").trim().to_string();
            sections.push(Section { title: title.to_string(), introduction, entries: Vec::new() });
        } else if let (Some(names), Some(section)) = (line.strip_prefix("## "), sections.last_mut()) {
            section.entries.push(entry(names, &until_heading(&mut lines)));
        }
    }
    sections
}

/// The lines up to the next heading.
fn until_heading<'t>(lines: &mut std::iter::Peekable<std::str::Lines<'t>>) -> Vec<&'t str> {
    let mut body = Vec::new();
    while let Some(line) = lines.next_if(|line| !line.starts_with("# ") && !line.starts_with("## ")) {
        body.push(line);
    }
    body
}

fn entry(names: &str, body: &[&str]) -> Entry {
    let mut entry = Entry { names: list(names), ..Entry::default() };
    let head = body.iter().take_while(|line| !line.is_empty()).count();
    for line in &body[..head] {
        let (word, value) = line.split_once(": ").unwrap_or((line, ""));
        let value = value.to_string();
        match word {
            "form" => entry.forms.push(value),
            "takes" => entry.takes = Some(value),
            "gives" => entry.facts.push(("gives", value)),
            "formula" => entry.facts.push(("formula", value)),
            "codes" => entry.codes = value.split_whitespace().map(String::from).collect(),
            "see" => entry.see = list(&value),
            _ => entry.parts.push(Passage::Text((*line).to_string())),
        }
    }
    let mut rest = &body[head..];
    while let Some((line, after)) = rest.split_first() {
        rest = after;
        if line.is_empty() {
            continue;
        }
        let code = line.strip_prefix("fails ").and_then(|line| line.strip_suffix(':'));
        let is_program = code.is_some() || line.starts_with("    ");
        let ends = |line: &str| match is_program {
            true => !line.is_empty() && !line.starts_with("    "),
            false => line.is_empty(),
        };
        let length = rest.iter().take_while(|line| !ends(line)).count();
        let (own, after) = rest.split_at(length);
        rest = after;
        let lines = own.iter().map(|line| line.strip_prefix("    ").unwrap_or(line));
        let joined = |lines: Vec<&str>| lines.join("\n").trim_end().to_string();
        entry.parts.push(match code {
            Some(code) => Passage::Failing { code: code.to_string(), program: joined(lines.collect()) },
            None if is_program => Passage::Program(joined([line.trim_start()].into_iter().chain(lines).collect())),
            None => Passage::Text(joined([*line].into_iter().chain(own.iter().copied()).collect())),
        });
    }
    entry
}

/// Splits a comma-separated list of names.
fn list(text: &str) -> Vec<String> {
    text.split(", ").map(|name| name.trim().to_string()).filter(|name| !name.is_empty()).collect()
}
