//! Does compiled code compute what the program means? Random programs of the language, beside the interpreter with running error bounds.

use crate::{compiled, meant, seeds};

/// Programs in CI.
const PROGRAMS: u64 = if cfg!(debug_assertions) { 60 } else { 1040 };

/// A quarter of the programs, since tests run beside each other.
fn quarter(part: u64) -> std::ops::Range<u64> {
    let all = seeds(PROGRAMS);
    let count = all.end - all.start;
    all.start + part * count / 4..all.start + (part + 1) * count / 4
}

#[test]
fn random_programs_compute_what_they_mean_1() {
    compute_what_they_mean(quarter(0));
}

#[test]
fn random_programs_compute_what_they_mean_2() {
    compute_what_they_mean(quarter(1));
}

#[test]
fn random_programs_compute_what_they_mean_3() {
    compute_what_they_mean(quarter(2));
}

#[test]
fn random_programs_compute_what_they_mean_4() {
    compute_what_they_mean(quarter(3));
}

/// The levels alternate.
fn compute_what_they_mean(seeds: std::ops::Range<u64>) {
    let levels = compiled::levels();
    meant::compute_what_they_mean(seeds, &|group| {
        let level = levels[usize::try_from(group).unwrap() % levels.len()];
        let load = move |module: &_, params: &_, folder: &_| compiled::load_at(level, module, params, folder);
        (level.name(), Box::new(load))
    });
}
