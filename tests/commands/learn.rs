//! Are the exercises of the course as they should be? Each fails as it starts, and passes with its solution.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/book");

/// `attnc learn` in a folder: exit code, and all that it printed.
fn learn(folder: &Path, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    let output = command.arg("learn").args(args).current_dir(folder).output().expect("attnc starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text)
}

fn entries(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new(BOOK).join(folder)).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

/// The value of a line of an exercise's `task.txt`.
fn field(exercise: &Path, key: &str) -> Option<String> {
    let task = std::fs::read_to_string(exercise.join("task.txt")).expect("a task");
    task.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": ").map(String::from))
}

#[test]
fn exercises_fail_as_they_start_and_pass_when_solved() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, said) = learn(folder.path(), &["--start", "."]);
    assert_eq!(code, 0, "{said}");
    let exercises = entries("exercises");
    let names = |paths: &[PathBuf]| paths.iter().map(|path| name(path)).collect::<Vec<_>>();
    assert_eq!(names(&exercises), names(&entries("solutions")), "each exercise has a solution");
    let own: Vec<&PathBuf> = exercises.iter().filter(|path| field(path, "source").is_none()).collect();
    let solve = |exercise: &Path| {
        let (name, file) = (name(exercise), field(exercise, "file").expect("a file"));
        let (code, said) = learn(folder.path(), &[&name]);
        assert_eq!(code, 1, "{name} does not fail as it starts: {said}");
        assert!(said.contains("  failed: ") && !said.contains("internal error"), "{name}: {said}");
        let ending = Path::new(&file).extension().expect("an ending").to_string_lossy().into_owned();
        let solution = Path::new(BOOK).join("solutions").join(format!("{name}.{ending}"));
        std::fs::copy(&solution, folder.path().join(&name).join(&file)).expect("a solution");
        let (code, said) = learn(folder.path(), &[&name]);
        assert!(code == 0 && said.contains(&format!("{name} has passed.")), "{name} does not pass: {said}");
    };
    // Each in turn is judged alone; `progress.txt` is the only file that they share.
    for exercise in &own {
        solve(exercise);
    }
    let (code, list) = learn(folder.path(), &[]);
    assert!(code == 0 && list.contains(&format!("\n{} of {} passed", own.len(), exercises.len())), "{list}");
    // Files that exist are the learner's.
    let (code, said) = learn(folder.path(), &["--start", "."]);
    assert!(code == 0 && said.contains("files existed and were kept"), "{said}");
    assert_eq!(learn(folder.path(), &["1"]).0, 0);
}

#[test]
fn hints_and_mistakes() {
    let folder = tempfile::tempdir().expect("a folder");
    for (args, code, text) in [
        (&["1", "--hint"][..], 0, "`--hint=2` shows one more"),
        (&["1", "--hint=9"], 0, "attnc ref softmax"),
        (&["1"], 2, "attnc learn --start DIR"),
        (&["01-wieghts"], 2, "did you mean `01-weights`?"),
        (&["99"], 2, "there is no exercise `99`"),
        (&["1", "--start", "."], 2, "cannot be used with"),
        (&[], 0, "\n0 of "),
    ] {
        let (exit, said) = learn(folder.path(), args);
        assert!(exit == code && said.contains(text), "{args:?}: {exit} {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing was written");
}

/// With `--watch` each change is judged, and the next exercise follows.
#[test]
fn a_watched_exercise_is_judged_at_each_change() {
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(learn(folder.path(), &["--start", "."]).0, 0);
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    command.args(["learn", "--watch"]).current_dir(folder.path()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("attnc starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let mut until = |text: &str| {
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.contains(text)) {
            said.push(lines.next().expect("attnc runs").expect("text"));
        }
        said.join("\n")
    };
    assert!(until("waiting until").contains("01-weights: Attention weights"));
    let file = folder.path().join("01-weights/weights.attn");
    std::fs::write(&file, "model M { pub fn forward(x: f32[S]) -> f32[S] { y } }\n").expect("the file");
    assert!(until("waiting until").contains("there is no `y` here"));
    std::fs::copy(Path::new(BOOK).join("solutions/01-weights.attn"), &file).expect("the file");
    assert!(until("waiting until").contains("01-weights has passed."));
    child.kill().expect("attnc runs");
    child.wait().expect("attnc ends");
    assert!(learn(folder.path(), &[]).1.contains("\n1 of "));
}

/// The patches of exercises about attnc itself apply to the source, each alone and all together, and so do their solutions.
/// Whether they fail and pass as they should takes builds: `tests/live/check_exercises.sh`.
#[test]
fn patches_apply() {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("no git: patches of exercises are not applied");
        return;
    }
    let exercises: Vec<PathBuf> =
        entries("exercises").into_iter().filter(|path| field(path, "source").is_some()).collect();
    assert!(exercises.len() >= 5);
    let patches = |exercise: &Path| {
        let solution = Path::new(BOOK).join("solutions").join(format!("{}.patch", name(exercise)));
        [exercise.join("start.patch"), solution]
    };
    let alone = exercises.iter().map(|exercise| patches(exercise).to_vec());
    let together = exercises.iter().flat_map(|exercise| patches(exercise)).collect();
    for patches in alone.chain([together]) {
        let folder = tempfile::tempdir().expect("a folder");
        for patch in &patches {
            let text = std::fs::read_to_string(patch).expect("a patch");
            for path in text.lines().filter_map(|line| line.strip_prefix("--- a/")) {
                let (from, to) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(path), folder.path().join(path));
                std::fs::create_dir_all(to.parent().expect("a file has a folder")).expect("a folder");
                // A file that the start of an exercise made is not in the source.
                if from.is_file() && !to.is_file() {
                    std::fs::copy(from, to).expect("a copy");
                }
            }
            let output = Command::new("git").arg("apply").arg(patch).current_dir(folder.path()).output().expect("git");
            assert!(output.status.success(), "{}: {}", patch.display(), String::from_utf8_lossy(&output.stderr));
        }
    }
}
