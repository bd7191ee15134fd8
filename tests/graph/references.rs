//! Are the committed reference results whole, and are their weights made alike in Python and in Rust?
//!
//! The results stand in tests/fixtures, with the script that made them by PyTorch and NumPy. Other tests hold the
//! interpreter and the compiled code against them.

use crate::fixtures;

use fixtures::{EXAMPLES, SYSTEMS, bits, load, parameter};

/// The weights that Rust makes are those that Python made: the constants are prng.py's.
#[test]
fn the_generator_is_the_one_of_the_script() {
    let words: Vec<u64> = (0..3).map(|index| bits("h.0.ln_1.weight", index)).collect();
    assert_eq!(words, [0x55ae_98cf_25a4_738e, 0x5ec3_cebd_0dd8_febe, 0x1007_0b2f_07fd_465a]);
    let values: Vec<u32> = parameter("a.weight", &[2, 3]).to_f32().into_iter().map(f32::to_bits).collect();
    assert_eq!(values, [0x3eae_9fe4, 0xbf0a_aa4e, 0x3f4e_81c6, 0x3f74_5dfe, 0xbf69_fa12, 0xbf0b_135e]);
}

/// Every example has references, and each reference has an example.
#[test]
fn every_example_has_references() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut programs: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder of examples")
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".attn")?.to_owned()))
        .collect();
    programs.sort();
    let examples: Vec<&str> = EXAMPLES.into_iter().chain(SYSTEMS).collect();
    assert_eq!(programs, examples);
    for example in examples {
        let fixture = load(example);
        assert!(!fixture.cases.is_empty(), "{example}");
        assert_eq!(fixture.weights().len(), fixture.parameters.len(), "{example}");
    }
}
