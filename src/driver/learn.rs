//! `attnc learn`: the exercises of the course (`docs/book`), judged by the compiler.
//!
//! In: the exercises, embedded when attnc is built ([`exercise`]), and the learner's folder with
//! their copies. Out: tasks, hints and judgements ([`judge`]) on stdout, and in the folder
//! `progress.txt`, which names the exercises that passed, one on each line.

mod exercise;
mod judge;

use super::session::{CommandError, Session, command_line_error, environment_error, reason, show};
use super::state_of;
use crate::cli::LearnOptions;
use exercise::{Exercise, exercises};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The names of the exercises that passed, in the learner's folder.
const PROGRESS: &str = "progress.txt";

/// `attnc learn [EXERCISE]`
pub fn learn(options: &LearnOptions) -> Result<(), CommandError> {
    let all = exercises();
    let mut session = Session::new(&options.messages);
    if let Some(folder) = &options.start {
        let copied = copy(&mut session, &all, folder);
        return session.finish(copied);
    }
    let done = progress(&options.folder);
    let chosen = match &options.exercise {
        Some(name) => vec![find(&all, name)?],
        None if options.watch => all.iter().filter(|e| !done.iter().any(|name| name == e.name)).collect(),
        None => return show(&list(&all, &done)),
    };
    if chosen.is_empty() {
        return show("All exercises have passed.\n");
    }
    for exercise in chosen {
        match options.hint {
            Some(n) => return show(&exercise.hints(n)),
            None => solve(&mut session, options, exercise)?,
        }
    }
    Ok(())
}

/// Judges one exercise; with `--watch` at each change of the learner's file, until it passes.
fn solve(s: &mut Session, options: &LearnOptions, exercise: &Exercise) -> Result<(), CommandError> {
    let file = match &exercise.source {
        Some(path) => options.source.join(path),
        None => options.folder.join(exercise.name).join(exercise.file),
    };
    if exercise.source.is_some() && !options.source.join("src/driver").is_dir() {
        let text = "this exercise changes attnc itself: run it in a checkout of attnc, or give `--source DIR`";
        return Err(command_line_error(text));
    }
    if exercise.source.is_none() && !file.exists() && !options.watch {
        let text = format!(
            "there is no `{}`: `attnc learn --start DIR` copies the exercises into a folder; \
            run this there, or give `--folder DIR`",
            file.display()
        );
        return Err(command_line_error(&text));
    }
    show(&exercise.task(&file))?;
    loop {
        let seen = state_of(&file);
        let judged = judge::judge(exercise, &options.folder.join(exercise.name), &options.source);
        let (passed, report) = judged.map_err(|text| environment_error(&text))?;
        show(&report)?;
        if passed {
            let noted = note(s, &options.folder, exercise.name);
            return s.finish(noted);
        }
        if !options.watch {
            return Err(CommandError::Program);
        }
        show(&format!("waiting until `{}` changes (Ctrl-C ends)\n", file.display()))?;
        while state_of(&file) == seen {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// The exercise with a number or name.
fn find<'a>(all: &'a [Exercise], name: &str) -> Result<&'a Exercise, CommandError> {
    let number = |e: &Exercise| e.name.split('-').next().and_then(|n| n.parse::<usize>().ok());
    let wanted = name.parse::<usize>().ok();
    let found = all.iter().find(|e| e.name == name || wanted.is_some() && number(e) == wanted);
    found.ok_or_else(|| {
        let text = match crate::diagnostics::did_you_mean(name, all.iter().map(|e| e.name)) {
            Some(near) => format!("there is no exercise `{name}`; did you mean `{near}`?"),
            None => format!("there is no exercise `{name}`; they have the numbers 1 to {}", all.len()),
        };
        command_line_error(&text)
    })
}

/// The exercises for a page: those about attnc itself, which need its source, have no `text`.
pub(super) fn exercise_list() -> Value {
    let one = |e: Exercise| {
        let text = e.files.iter().find(|(name, _)| *name == e.file && e.source.is_none()).map(|(_, text)| text);
        json!({
            "name": e.name, "title": e.title, "chapter": e.chapter, "task": e.task.trim(), "hints": e.hints,
            "file": e.file, "text": text,
        })
    };
    exercises().into_iter().map(one).collect()
}

/// A line for each exercise, and how to begin.
fn list(all: &[Exercise], done: &[String]) -> String {
    let mut text = String::new();
    for exercise in all {
        let mark = if done.iter().any(|name| name == exercise.name) { "passed" } else { "" };
        let _ = writeln!(text, "{:26} {mark:7} chapter {:<3} {}", exercise.name, exercise.chapter, exercise.title);
    }
    let passed = all.iter().filter(|e| done.iter().any(|name| name == e.name)).count();
    let _ = writeln!(
        text,
        "\n{passed} of {} passed. `attnc learn --start DIR` copies the exercises into a folder;",
        all.len()
    );
    text += "there, `attnc learn 1` shows the first one and judges it, `attnc learn --watch` goes through all.\n";
    text
}

/// The names of the exercises that passed; none if there is no such file.
fn progress(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(PROGRESS)).unwrap_or_default();
    text.lines().map(|line| line.trim().to_string()).collect()
}

/// Adds an exercise to the list of passed ones.
fn note(s: &mut Session, folder: &Path, name: &str) -> Result<(), CommandError> {
    let mut done = progress(folder);
    if done.iter().any(|known| known == name) {
        return Ok(());
    }
    done.push(name.to_string());
    s.write(&folder.join(PROGRESS), (done.join("\n") + "\n").as_bytes())
}

/// Copies all exercises into a folder. A file that exists is the learner's, and stays.
fn copy(s: &mut Session, all: &[Exercise], folder: &Path) -> Result<(), CommandError> {
    let mut kept = 0;
    for exercise in all {
        let own = folder.join(exercise.name);
        std::fs::create_dir_all(&own).map_err(|error| {
            environment_error(&format!("cannot make the folder `{}`: {}", own.display(), reason(&error)))
        })?;
        for (name, text) in exercise.files {
            let path: PathBuf = own.join(name);
            if path.exists() {
                kept += 1;
            } else {
                s.write(&path, text.as_bytes())?;
            }
        }
    }
    let kept = if kept > 0 { format!(" {kept} files existed and were kept.") } else { String::new() };
    show(&format!("{} exercises are in `{}`.{kept} Go there, then: attnc learn 1\n", all.len(), folder.display()))
}
