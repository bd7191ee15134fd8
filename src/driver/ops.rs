//! `attnc ops`: the operation reference of the language and the three IRs.
//!
//! In: the compiler's own tables. Out: text on stdout: one line per operation, or everything about
//! the operations of one name.

use super::session::{CommandError, columns, command_line_error, show};
use crate::cli::{OpsLevel, OpsOptions};
use crate::diagnostics::did_you_mean;
use crate::table::{Gives, Row};
use crate::vector::{self, routine};
use crate::{ir, tile, types};

/// An operation of the language or an IR.
struct Entry {
    level: OpsLevel,
    name: String,
    form: String,
    meaning: String,
    /// Further facts: a keyword and its text.
    more: Vec<(&'static str, String)>,
}

/// `attnc ops [--ir LEVEL] [NAME]`
pub fn ops(options: &OpsOptions) -> Result<(), CommandError> {
    let levels = options.ir.map_or(OpsLevel::ALL.to_vec(), |level| vec![level]);
    let all: Vec<Entry> = levels.iter().flat_map(|level| entries(*level)).collect();
    let Some(name) = &options.name else {
        let part = |level: &OpsLevel| {
            let own = all.iter().filter(|e| e.level == *level);
            let rows = columns(&own.map(|e| (e.form.clone(), e.meaning.clone())).collect::<Vec<_>>());
            if levels.len() > 1 { format!("{}:\n\n{rows}", level.title()) } else { rows }
        };
        return show(&levels.iter().map(part).collect::<Vec<_>>().join("\n"));
    };
    let found: Vec<String> = all.iter().filter(|e| e.name == *name).map(described).collect();
    if found.is_empty() {
        let hint = did_you_mean(name, all.iter().map(|e| e.name.as_str()));
        let hint = hint.map_or("; `attnc ops` has all".to_string(), |near| format!("; did you mean `{near}`?"));
        return Err(command_line_error(&format!("there is no operation `{name}`{hint}")));
    }
    show(&found.join("\n"))
}

fn described(e: &Entry) -> String {
    let more: String = e.more.iter().map(|(word, what)| format!("  {word:<10}  {what}\n")).collect();
    format!("{} ({})\n  {}\n{more}", e.form, e.level.title(), e.meaning)
}

/// The operations of one level, with the facts in its table.
fn entries(level: OpsLevel) -> Vec<Entry> {
    match level {
        OpsLevel::Language => types::operations()
            .into_iter()
            .map(|op| {
                let name = op.form.split(['(', '<']).next().unwrap_or_default().to_string();
                Entry { level, name, form: op.form, meaning: op.summary, more: Vec::new() }
            })
            .collect(),
        OpsLevel::Graph => ir::Op::table().iter().map(|row| entry(level, row, "class", row.class.text())).collect(),
        OpsLevel::Tile => {
            tile::Op::table().iter().map(|row| entry(level, row, "allowed in", row.class.text())).collect()
        }
        OpsLevel::Vector => {
            let routines = routine::Op::table();
            let routines = routines.iter().map(|row| entry(level, row, "class", row.class.text()));
            let functions = vector::Op::table();
            routines.chain(functions.iter().map(function_entry)).collect()
        }
    }
}

/// An operation of elementary functions. Its operand types are fixed, and shown by its syntax.
fn function_entry(row: &Row<vector::op::Needs>) -> Entry {
    let needs = row.class.features().names().join(", ");
    let needs = if needs.is_empty() { "nothing".to_string() } else { needs };
    let mut e = entry(OpsLevel::Vector, row, "needs", "");
    e.more[0].1 = needs;
    e.more.insert(0, ("allowed in", "elementary functions (`functions/*.vec`)".to_string()));
    if let Some((operands, result)) = vector::Op::plain(row.name).and_then(|op| op.signature()) {
        let operands = row.operands.iter().zip(operands).map(|(name, ty)| format!("{name}: {ty}"));
        e.form = format!("{}({}) -> {result}", row.name, operands.collect::<Vec<_>>().join(", "));
    }
    e
}

fn entry<C>(level: OpsLevel, row: &Row<C>, word: &'static str, class: &'static str) -> Entry {
    let result = match row.gives {
        Gives::Declared => "its type is declared",
        Gives::Computed => "its type follows from operands and attributes",
        Gives::Nothing => "none",
    };
    Entry {
        level,
        name: row.name.to_string(),
        form: row.form(),
        meaning: row.meaning.to_string(),
        more: vec![
            (word, class.to_string()),
            ("result", result.to_string()),
            ("effects", row.effects.text().to_string()),
        ],
    }
}

/// The rows of `attnc list` for one level.
pub(super) fn listed(level: OpsLevel) -> Vec<(String, String)> {
    entries(level).into_iter().map(|e| (e.form, e.meaning)).collect()
}
