//! Judges the learner's file: runs the commands of an exercise and tests their output.
//!
//! In: an exercise, the folder with its files, attnc's source. Out: whether all conditions hold,
//! and a report for the learner. This attnc runs the commands, in the exercise's folder. For
//! exercises about attnc itself, `cargo` builds another one from the source.

use super::exercise::{Condition, Exercise, Judgement};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The maximum number of lines of a command's output in a report.
const SHOWN: usize = 20;

/// Relative and absolute error of numbers.
const TOLERANCE: f64 = 1e-4;

/// Tests the conditions of an exercise in their order, up to the first that does not hold.
pub(super) fn judge(exercise: &Exercise, folder: &Path, source: &Path) -> Result<(bool, String), String> {
    let mut report = String::new();
    for (i, judgement) in exercise.judgements.iter().enumerate() {
        let (succeeded, output) = run(exercise, judgement, folder, source)?;
        let Some(failure) = failure(judgement, succeeded, &output) else {
            let _ = writeln!(report, "  passed: {}", judgement.title);
            continue;
        };
        let _ = writeln!(report, "  failed: {}\n", judgement.title);
        let _ = writeln!(report, "    $ {}\n    {failure}", judgement.command);
        let lines: Vec<&str> = output.lines().collect();
        if !lines.is_empty() {
            report += "    It printed:\n";
        }
        for line in lines.iter().take(SHOWN) {
            let _ = writeln!(report, "      {line}");
        }
        if lines.len() > SHOWN {
            let _ = writeln!(report, "      ... and {} more lines", lines.len() - SHOWN);
        }
        match exercise.judgements.len() - i - 1 {
            0 => {}
            1 => report += "\n  1 more condition follows.\n",
            n => _ = writeln!(report, "\n  {n} more conditions follow."),
        }
        let _ = writeln!(report, "\nA hint: `attnc learn {} --hint`", exercise.name);
        return Ok((false, report));
    }
    let _ = writeln!(report, "\n{} has passed.\n", exercise.name);
    Ok((true, report))
}

/// Runs the command of a judgement; whether it succeeded, and all that it printed.
fn run(exercise: &Exercise, judgement: &Judgement, folder: &Path, source: &Path) -> Result<(bool, String), String> {
    let args = words(judgement.command);
    let mut command = match exercise.source {
        None => Command::new(std::env::current_exe().map_err(|error| format!("attnc does not find itself: {error}"))?),
        Some(_) => {
            let manifest = source.canonicalize().map_err(|error| format!("{}: {error}", source.display()))?;
            let mut cargo = Command::new("cargo");
            cargo.args(["run", "--quiet", "--profile", "quick", "--manifest-path"]);
            cargo.arg(manifest.join("Cargo.toml")).arg("--");
            cargo
        }
    };
    command.args(args.iter().skip(1)).current_dir(folder).stdin(std::process::Stdio::null());
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot run `{name}` in `{}`: {error}", folder.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.success(), text))
}

/// Splits a command at spaces; quotes keep them.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for c in command.chars() {
        match (c, words.last_mut()) {
            ('\'', _) => quoted = !quoted,
            (' ', _) if !quoted => words.push(String::new()),
            (_, Some(word)) => word.push(c),
            (_, None) => {}
        }
    }
    words
}

/// The condition that does not hold; `None` if all do.
fn failure(judgement: &Judgement, succeeded: bool, output: &str) -> Option<String> {
    let count = |text: &str| output.lines().filter(|line| line.contains(text)).count();
    let fails = judgement.conditions.iter().any(|condition| matches!(condition, Condition::Fails(_)));
    if succeeded == fails {
        let text = if fails { "should fail, and succeeds." } else { "should succeed, and fails." };
        return Some(text.to_string());
    }
    judgement.conditions.iter().find_map(|condition| match condition {
        Condition::Prints(text) => (count(text) == 0).then(|| format!("should print `{text}`.")),
        Condition::Fails(text) => (count(text) == 0).then(|| format!("should fail with `{text}`.")),
        Condition::Lacks(text) => (count(text) > 0).then(|| format!("should not print `{text}`.")),
        Condition::AtMost(n, text) => {
            let found = count(text);
            (found > *n).then(|| format!("should print at most {n} lines with `{text}`, and prints {found}."))
        }
        Condition::Exactly(n, text) => {
            let found = count(text);
            (found != *n).then(|| format!("should print {n} lines with `{text}`, and prints {found}."))
        }
        Condition::Numbers(expected) => {
            let found = numbers(output);
            let close = |a: &f64, b: &f64| (a - b).abs() <= TOLERANCE * b.abs().max(1.0);
            let same = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| close(a, b));
            let listed = expected.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
            (!same).then(|| format!("should have these elements: {listed}."))
        }
    })
}

/// The elements of all results: the numbers of the indented lines.
fn numbers(output: &str) -> Vec<f64> {
    let rows = output.lines().filter(|line| line.starts_with(' '));
    let parts = rows.flat_map(|row| row.split(|c: char| c.is_whitespace() || "[],".contains(c)));
    parts.filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_tested() {
        let judged = |conditions: Vec<Condition>, succeeded: bool| {
            let judgement = Judgement { title: "", command: "attnc", conditions };
            failure(&judgement, succeeded, "result: f32[2, 2]\n  [1.000000, -2.5]\n  [3e9, 4]\n").is_none()
        };
        assert!(judged(vec![], true) && !judged(vec![], false));
        assert!(judged(vec![Condition::Fails("result")], false) && !judged(vec![Condition::Fails("result")], true));
        assert!(!judged(vec![Condition::Fails("E0301")], false));
        assert!(judged(vec![Condition::Numbers(vec![1.0, -2.49999, 3e9, 4.0])], true));
        assert!(!judged(vec![Condition::Numbers(vec![1.0, -2.5, 3e9])], true));
        assert!(!judged(vec![Condition::Numbers(vec![1.0, -2.5, 3e9, 4.01])], true));
        assert!(!judged(vec![Condition::Exactly(2, "["), Condition::Lacks("x")], true));
        assert!(judged(vec![Condition::Exactly(3, "["), Condition::AtMost(1, "f32"), Condition::Prints("4]")], true));
        assert!(!judged(vec![Condition::AtMost(2, "[")], true) && !judged(vec![Condition::Lacks("f32")], true));
    }

    #[test]
    fn commands_are_split() {
        assert_eq!(words("attnc run 'a b' x='[1, 2]'"), ["attnc", "run", "a b", "x=[1, 2]"]);
    }
}
