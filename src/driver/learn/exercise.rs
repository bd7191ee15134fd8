//! An exercise: the folder of `docs/book/exercises` with its `task.txt`.
//!
//! ```text
//! title: A line for the list
//! chapter: 4
//! file: scores.attn
//!
//! The task, in paragraphs.
//!
//! hint: A text of one or more lines,
//!   of which all but the first are indented.
//! judge: the condition, as a sentence
//!   $ attnc check scores.attn
//!   prints: text
//! ```
//!
//! The learner changes `file`; an exercise about attnc itself has `source: src/..` instead, a path
//! in its source, and a patch `start.patch` that prepares it. After the command of a judgement
//! follow the conditions that its output must meet; without any, it must succeed.
//! [`Condition`] has their forms. It must not know how they are tested.

include!(concat!(env!("OUT_DIR"), "/exercises.rs"));

/// An exercise.
pub(super) struct Exercise {
    /// The name of its folder: `04-scores`.
    pub(super) name: &'static str,
    /// A line for the list.
    pub(super) title: &'static str,
    /// The chapter of the course.
    pub(super) chapter: &'static str,
    /// The learner's file, in the exercise's folder.
    pub(super) file: &'static str,
    /// The learner's file in attnc's source, if the exercise is about it.
    pub(super) source: Option<&'static str>,
    /// All files of its folder, with their texts.
    pub(super) files: &'static [(&'static str, &'static str)],
    /// The paragraphs of the task.
    pub(super) task: String,
    /// In order.
    pub(super) hints: Vec<String>,
    /// The conditions, in order.
    pub(super) judgements: Vec<Judgement>,
}

/// A command and the conditions on its output.
pub(super) struct Judgement {
    /// A sentence that is true if the conditions hold.
    pub(super) title: &'static str,
    /// Its arguments, beginning with `attnc`.
    pub(super) command: &'static str,
    /// The conditions; without `Fails`, the command must succeed.
    pub(super) conditions: Vec<Condition>,
}

/// A condition on the output of a command, stdout and stderr together.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Condition {
    /// `prints: text`: a line has the text.
    Prints(&'static str),
    /// `lacks: text`: no line has it.
    Lacks(&'static str),
    /// `at most 3: text`: at most 3 lines have it.
    AtMost(usize, &'static str),
    /// `exactly 3: text`: 3 lines have it.
    Exactly(usize, &'static str),
    /// `fails: E0301`: the command fails, and a line has the text.
    Fails(&'static str),
    /// `numbers: 0.5, 1`: the elements of all results, with an error of at most 1e-4, absolute or
    /// relative.
    Numbers(Vec<f64>),
}

impl Condition {
    /// Parses a condition; `None` if it has none of the forms.
    fn parse(line: &'static str) -> Option<Condition> {
        let (kind, text) = line.split_once(": ")?;
        match kind.split(' ').collect::<Vec<_>>().as_slice() {
            ["prints"] => Some(Condition::Prints(text)),
            ["lacks"] => Some(Condition::Lacks(text)),
            ["at", "most", n] => Some(Condition::AtMost(n.parse().ok()?, text)),
            ["exactly", n] => Some(Condition::Exactly(n.parse().ok()?, text)),
            ["fails"] => Some(Condition::Fails(text)),
            ["numbers"] => {
                let numbers: Result<Vec<f64>, _> = text.split(',').map(|n| n.trim().parse()).collect();
                Some(Condition::Numbers(numbers.ok()?))
            }
            _ => None,
        }
    }
}

/// All exercises, in the order of their names. Lines without a meaning are left out; a test of this
/// file rejects them.
pub(super) fn exercises() -> Vec<Exercise> {
    FILES.iter().map(|(name, files)| parse(name, files, &mut |_| {})).collect()
}

/// Parses an exercise; calls `wrong` with each line that has no meaning.
fn parse(name: &'static str, files: &'static [(&'static str, &'static str)], wrong: &mut dyn FnMut(&str)) -> Exercise {
    let text = files.iter().find(|(file, _)| *file == "task.txt").map_or("", |(_, text)| *text);
    let mut e = Exercise {
        name,
        title: "",
        chapter: "",
        file: "",
        source: None,
        files,
        task: String::new(),
        hints: Vec::new(),
        judgements: Vec::new(),
    };
    for line in text.lines() {
        let indented = line.strip_prefix("  ");
        let ends = !e.hints.is_empty() || !e.judgements.is_empty();
        match (line.split_once(": "), indented) {
            (Some(("title", text)), _) => e.title = text,
            (Some(("chapter", text)), _) => e.chapter = text,
            (Some(("file", text)), _) => e.file = text,
            (Some(("source", text)), _) => e.source = Some(text),
            (Some(("hint", text)), _) => e.hints.push(text.to_string()),
            (Some(("judge", title)), _) => {
                e.judgements.push(Judgement { title, command: "", conditions: Vec::new() });
            }
            (_, Some(inner)) if !e.judgements.is_empty() => {
                let Some(judgement) = e.judgements.last_mut() else { continue };
                match (inner.strip_prefix("$ "), Condition::parse(inner)) {
                    (Some(command), _) => judgement.command = command,
                    (None, Some(condition)) => judgement.conditions.push(condition),
                    (None, None) => wrong(line),
                }
            }
            (_, Some(inner)) if ends => {
                if let Some(hint) = e.hints.last_mut() {
                    *hint += &format!("\n  {inner}");
                }
            }
            _ if ends && !line.is_empty() => wrong(line),
            _ => e.task += &format!("{line}\n"),
        }
    }
    e
}

impl Exercise {
    /// The task, as shown before its judgement.
    pub(super) fn task(&self, file: &std::path::Path) -> String {
        let title = format!("{}: {}", self.name, self.title);
        let under = "=".repeat(title.chars().count());
        format!("{title}\n{under}\nChapter {}. The file: {}\n\n{}\n\n", self.chapter, file.display(), self.task.trim())
    }

    /// The first `n` hints.
    pub(super) fn hints(&self, n: usize) -> String {
        let mut text: String = self.hints.iter().take(n).map(|hint| format!("{hint}\n")).collect();
        match self.hints.len().saturating_sub(n) {
            0 if self.hints.is_empty() => text += "This exercise has no hints.\n",
            0 => {}
            _ => text += &format!("`--hint={}` shows one more.\n", n + 1),
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exercise_is_complete() {
        assert!(FILES.len() >= 3);
        for (i, (name, files)) in FILES.iter().enumerate() {
            let e = parse(name, files, &mut |line| panic!("{name}: `{line}` has no meaning"));
            assert!(name.starts_with(&format!("{:02}-", i + 1)), "{name}: they are numbered from 1");
            assert!(!e.title.is_empty() && !e.chapter.is_empty() && e.task.len() > 40 && !e.hints.is_empty(), "{name}");
            let start = if e.source.is_some() { "start.patch" } else { e.file };
            assert!(files.iter().any(|(file, _)| *file == start), "{name} has no {start}");
            assert!(!e.judgements.is_empty(), "{name}");
            for judgement in &e.judgements {
                assert!(judgement.command.starts_with("attnc "), "{name}: {}", judgement.title);
            }
        }
    }

    #[test]
    fn conditions_are_parsed() {
        assert_eq!(Condition::parse("prints: a: b"), Some(Condition::Prints("a: b")));
        assert_eq!(Condition::parse("at most 3: launch"), Some(Condition::AtMost(3, "launch")));
        assert_eq!(Condition::parse("numbers: 1, -2.5e3"), Some(Condition::Numbers(vec![1.0, -2500.0])));
        for wrong in ["numbers: 1, b", "at most x: a", "at least 3: a", "prints:a", ""] {
            assert_eq!(Condition::parse(wrong), None, "{wrong}");
        }
    }
}
