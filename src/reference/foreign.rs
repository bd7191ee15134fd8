//! Reference entries for names of other libraries, from the type checker's table of suggestions.
//!
//! In: the checker's table. Out: an entry for each name, and rows for the document.

use super::{Entry, Passage};
use crate::types::{Rule, rules};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let mut of: BTreeMap<&'static str, Vec<&'static Rule>> = BTreeMap::new();
    for rule in rules() {
        rule.names.iter().for_each(|name| of.entry(name).or_default().push(rule));
    }
    of.into_iter().map(|(name, rules)| entry(name, &rules)).collect()
});

/// One entry for each name.
pub(super) fn entries() -> &'static [Entry] {
    &ENTRIES
}

/// The call as written in the other library, and in attn; `None` if the rule only has prose.
fn forms(name: &str, rule: &Rule) -> Option<(String, String)> {
    let library = rule.library.map_or(String::new(), |library| format!("{library}."));
    let there = if rule.is_example { rule.call.to_string() } else { format!("{library}{name}{}", rule.call) };
    (!rule.form.is_empty()).then(|| (there, rule.form.to_string()))
}

fn entry(name: &str, rules: &[&'static Rule]) -> Entry {
    let mut helps: Vec<&str> = Vec::new();
    for help in rules.iter().flat_map(|rule| &rule.helps) {
        if !helps.contains(help) {
            helps.push(help);
        }
    }
    let mut parts = vec![Passage::Text("A name of other libraries.".to_string())];
    parts.extend(helps.into_iter().map(|help| Passage::Text(sentence(help))));
    Entry {
        names: vec![name.to_string()],
        forms: rules
            .iter()
            .filter_map(|rule| forms(name, rule))
            .map(|(there, here)| format!("{there}  =>  {here}"))
            .collect(),
        parts,
        ..Entry::default()
    }
}

/// A suggestion as a sentence.
fn sentence(help: &str) -> String {
    let mut chars = help.chars();
    let first = chars.next().map_or(String::new(), |c| c.to_uppercase().to_string());
    first + chars.as_str() + "."
}

/// The rules as rows of a table: foreign names, and their counterparts in attn.
pub(super) fn rows() -> Vec<(String, String)> {
    let row = |rule: &Rule| {
        let first = rule.names.first().copied().unwrap_or_default();
        let (there, here) = match forms(first, rule) {
            Some((there, here)) => (format!("`{there}`"), format!("`{here}`")),
            None => (format!("`{first}`"), rule.helps.first().map_or(String::new(), |help| (*help).to_string())),
        };
        let others: String =
            rule.names.iter().skip(usize::from(!rule.is_example)).map(|name| format!(", `{name}`")).collect();
        (there + &others, here)
    };
    rules().iter().map(row).collect()
}
