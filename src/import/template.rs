//! Templates of programs.
//!
//! In the text of a template, `$name` or `${name}` is substituted by a word; a line that begins
//! with `?flag ` is kept only if the flag is set, one with `?!flag ` only if it is not. A line
//! `?flag` alone is a conditional empty line.

use std::collections::BTreeMap;

/// A template with its substitutions.
pub(super) struct Template<'t> {
    text: &'t str,
    words: BTreeMap<&'static str, String>,
    flags: BTreeMap<&'static str, bool>,
}

impl<'t> Template<'t> {
    /// No words and flags yet.
    pub(super) fn new(text: &'t str) -> Template<'t> {
        Template { text, words: BTreeMap::new(), flags: BTreeMap::new() }
    }

    /// Sets the word for `$name`.
    pub(super) fn word(mut self, name: &'static str, value: impl ToString) -> Template<'t> {
        self.words.insert(name, value.to_string());
        self
    }

    /// Sets a flag.
    pub(super) fn flag(mut self, name: &'static str, holds: bool) -> Template<'t> {
        self.flags.insert(name, holds);
        self
    }

    /// Expands the template.
    ///
    /// # Panics
    /// If a word or flag in the template is not set, which is a bug in the family's code; its test
    /// expands every line.
    pub(super) fn program(&self) -> String {
        let mut program = String::new();
        for line in self.text.lines() {
            let Some(line) = self.kept(line) else { continue };
            let mut rest = line;
            while let Some((before, after)) = rest.split_once('$') {
                let (name, after) = match after.strip_prefix('{').and_then(|after| after.split_once('}')) {
                    Some(braced) => braced,
                    None => {
                        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                        after.split_at(end)
                    }
                };
                let word = self.words.get(name).unwrap_or_else(|| panic!("a template's `${name}` has no value"));
                program.push_str(before);
                program.push_str(word);
                rest = after;
            }
            program.push_str(rest);
            program.push('\n');
        }
        program
    }

    /// The line without its conditions, if they hold.
    fn kept<'l>(&self, mut line: &'l str) -> Option<&'l str> {
        while let Some(condition) = line.strip_prefix('?') {
            let (name, rest) = condition.split_once(' ').unwrap_or((condition, ""));
            let (wanted, name) = name.strip_prefix('!').map_or((true, name), |name| (false, name));
            let holds = self.flags.get(name).unwrap_or_else(|| panic!("a template's `?{name}` is not decided"));
            if *holds != wanted {
                return None;
            }
            line = rest;
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_lines() {
        let text = "a $x-$long_name.${x}y\n?yes   kept $x\n?no dropped\n?!no ?yes both\n?yes\nend $x";
        let template = Template::new(text).word("x", 3).word("long_name", "w").flag("yes", true).flag("no", false);
        assert_eq!(template.program(), "a 3-w.3y\n  kept 3\nboth\n\nend 3\n");
    }
}
