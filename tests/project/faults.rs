//! Does every fault of `tests/faults/` still fit the source? What they are for, and how to run them, says `run.py` there:
//! `tests/faults/run.py` plants them all in a copy, and says which tests see which.

use std::collections::BTreeSet;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A fault, as its list gives it.
#[derive(Default)]
struct Fault {
    name: String,
    means: String,
    file: String,
    runs: Vec<String>,
    find: String,
    plant: String,
    equal: Option<String>,
}

fn words(list: &str) -> Vec<String> {
    list.split(',').map(|word| word.trim().to_string()).collect()
}

/// The faults of all lists, in the order of the files' names.
fn faults() -> Vec<Fault> {
    let folder = Path::new(ROOT).join("tests/faults");
    let mut lists: Vec<_> =
        std::fs::read_dir(folder).expect("the lists").map(|entry| entry.expect("an entry").path()).collect();
    lists.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    lists.sort();
    let mut out: Vec<Fault> = Vec::new();
    for list in lists {
        let text = std::fs::read_to_string(&list).expect("a list");
        let (mut file, mut runs) = (String::new(), Vec::new());
        for line in text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
            let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            let rest = rest.trim();
            match (line.starts_with(' '), word, out.last_mut()) {
                (false, "file", _) => file = rest.to_string(),
                (false, "runs", _) => runs = words(rest),
                (false, name, _) => out.push(Fault {
                    name: name.to_string(),
                    means: rest.to_string(),
                    file: file.clone(),
                    runs: runs.clone(),
                    ..Fault::default()
                }),
                (true, "find", Some(fault)) => fault.find = rest.to_string(),
                (true, "plant", Some(fault)) => fault.plant = rest.to_string(),
                (true, "runs", Some(fault)) => fault.runs = words(rest),
                (true, "equal", Some(fault)) => fault.equal = Some(rest.to_string()),
                _ => panic!("{}: what is `{line}`?", list.display()),
            }
        }
    }
    out
}

/// Text with any white space as one space.
fn even(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_fault_fits_in_one_place() {
    let mut wrong = Vec::new();
    for fault in faults() {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&fault.file)).unwrap_or_default();
        let found = even(&text).matches(&even(&fault.find.replace(['«', '»'], ""))).count();
        if found != 1 {
            wrong.push(format!("{}: `{}` stands {found} times in {}", fault.name, fault.find, fault.file));
        }
    }
    assert!(wrong.is_empty(), "the lists in tests/faults/ do not fit the source any more:\n{}", wrong.join("\n"));
}

#[test]
fn every_fault_is_whole() {
    let faults = faults();
    assert!(faults.len() >= 150, "{}", faults.len());
    let names: BTreeSet<&str> = faults.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names.len(), faults.len(), "two faults have one name");
    for f in &faults {
        let marks = f.find.matches('«').count() == 1 && f.find.matches('»').count() == 1;
        assert!(marks && !f.means.is_empty() && !f.plant.is_empty() && !f.runs.is_empty(), "{} is not whole", f.name);
        assert!(f.equal.as_deref().is_none_or(|why| why.len() > 15), "{} does not say why nobody can see it", f.name);
        for run in &f.runs {
            let target = run.split("::").next().unwrap_or_default();
            let file = [format!("tests/{target}.rs"), format!("tests/{target}/main.rs")];
            let is_there = target == "lib" || file.iter().any(|path| Path::new(ROOT).join(path).is_file());
            assert!(is_there, "{} is to be seen by `{target}`, which is no test", f.name);
        }
    }
}
