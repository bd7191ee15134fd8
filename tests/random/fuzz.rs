//! Do the fuzz targets stand mutated seeds? A short run without coverage; `fuzz/run.sh` is the long one, with libFuzzer.

use attnc::random::Random;

use crate::targets::{TARGETS, words};

/// Mutated inputs for each target.
const INPUTS: u64 = 60;

/// One to four edits of a seed.
fn mutate(seed: &[u8], words: &[String], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let (at, other) = (random.below(bytes.len() + 1), random.below(bytes.len() + 1));
        let length = random.below(32).min(bytes.len() - at.max(other));
        let piece = bytes[other..other + length].to_vec();
        match random.below(6) {
            0 => drop(bytes.drain(at..at + length)),
            1 => drop(bytes.splice(at..at, piece)),
            2 => drop(bytes.splice(at..at + length, piece)),
            3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            4 if !words.is_empty() => {
                // Another word or number in the place of one.
                let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                let start = (at..bytes.len()).find(|i| is_word(&bytes[*i])).unwrap_or(at);
                let end = start + bytes[start..].iter().take_while(|b| is_word(b)).count();
                drop(bytes.splice(start..end, words[random.below(words.len())].bytes()));
            }
            _ => drop(bytes.splice(at..at, [0, 255, b'0', b'-', b'"'].get(random.below(5)).copied())),
        }
    }
    bytes
}

/// Panics name the target and the seed; a signal ends the test.
#[test]
fn mutated_seeds_are_refused_or_right() {
    for target in &TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        let words: Vec<String> = words(&seeds).into_iter().collect();
        for seed in crate::seeds(INPUTS) {
            let mut random = Random::new(seed);
            let input = mutate(&seeds[random.below(seeds.len())], &words, &mut random);
            if std::panic::catch_unwind(|| (target.run)(&input)).is_err() {
                let path = std::env::temp_dir().join(format!("attnc-fuzz-{}-{seed}", target.name));
                std::fs::write(&path, &input).expect("a file");
                panic!("{}, seed {seed}: the input is {}", target.name, path.display());
            }
        }
    }
}
