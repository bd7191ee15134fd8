//! `attnc ref`: the language reference, or an entry of it; `attnc explain`: an error code, or an
//! entry of the reference.
//!
//! In: a name or a code. Out: text on stdout.

use super::session::{CommandError, columns, command_line_error, show};
use crate::cli::{ExplainOptions, RefOptions};
use crate::diagnostics::{codes, did_you_mean};
use crate::reference;
use std::fmt::Write as _;

/// `attnc ref [NAME]`
pub fn reference(options: &RefOptions) -> Result<(), CommandError> {
    if options.document {
        return show(&reference::document());
    }
    let Some(name) = &options.name else {
        let parts = reference::sections().iter().map(|section| {
            let row = |entry: &reference::Entry| (entry.title().to_string(), entry.summary());
            format!("{}:\n\n{}", section.title, columns(&section.entries.iter().map(row).collect::<Vec<_>>()))
        });
        let others = "Names of other libraries: `attnc ref NAME` shows what is written here (`attnc ref unsqueeze`).\n"
            .to_string();
        return show(&parts.chain([others]).collect::<Vec<_>>().join("\n"));
    };
    match entries(name) {
        Some(text) => show(&text),
        None => {
            let hint = did_you_mean(name, reference::names().chain(reference::foreign_names()));
            let hint = hint.map_or("; `attnc ref` lists all".to_string(), |near| format!("; did you mean `{near}`?"));
            Err(command_line_error(&format!("the language reference has no `{name}`{hint}")))
        }
    }
}

/// The entries of a name as text, if there are any.
fn entries(name: &str) -> Option<String> {
    let found = reference::find(name);
    let texts: Vec<String> = found.into_iter().map(reference::Entry::text).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// `attnc explain CODE`, `attnc explain NAME`
pub fn explain(options: &ExplainOptions) -> Result<(), CommandError> {
    let mut text = String::new();
    let Some(code) = &options.code else {
        for entry in codes::all() {
            let _ = writeln!(text, "{}  {}", entry.code, entry.title);
        }
        return show(&text);
    };
    // `e301` and `301` are E0301.
    let digits = code.trim_start_matches(['E', 'e']);
    let is_number = !digits.is_empty() && digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit());
    let code = &if is_number { format!("E{digits:0>4}") } else { code.clone() };
    let Some(entry) = codes::find(code) else {
        if let Some(text) = entries(code) {
            return show(&text);
        }
        let known = codes::all().map(|entry| entry.code.as_str());
        let known = known.chain(reference::names().filter(|_| !is_number));
        let hint = match did_you_mean(code, known) {
            Some(near) => format!("; did you mean {near}?"),
            None => "; `attnc explain` lists all codes, `attnc ref` all entries".to_string(),
        };
        let message = format!("there is no code `{code}`, and no entry of the language reference{hint}");
        return Err(command_line_error(&message));
    };
    let _ = writeln!(text, "{}: {}\n\n{}", entry.code, entry.title, entry.rule);
    if let Some(example) = entry.example {
        for (title, program) in [("This fails:", example.failing), ("Corrected:", example.fixed)] {
            let _ = writeln!(text, "\n{title}\n");
            for line in program.lines() {
                let _ = writeln!(text, "{}", format!("    {line}").trim_end());
            }
        }
    }
    let stated: Vec<&str> = reference::of_code(entry.code.as_str()).into_iter().map(reference::Entry::title).collect();
    if let Some(first) = stated.first() {
        let quoted = if first.contains([' ', '<', '>', '*']) { format!("\"{first}\"") } else { (*first).to_string() };
        let all = stated.iter().map(|title| format!("`{title}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "\nThe language reference has it under {all}: `attnc ref {quoted}`");
    }
    show(&text)
}
