//! Each pass's essay opens with an example; it is what the pass does. Here too: more of what the passes that make a
//! program smaller do and do not.

use crate::passes;

/// The example of a pass's essay: the functions before and after `->`.
fn example(file: &str) -> (String, String) {
    let text: Vec<&str> =
        file.lines().map_while(|l| l.strip_prefix("//!")).map(|l| l.strip_prefix(' ').unwrap_or(l)).collect();
    let start = text.iter().position(|l| *l == "```text").expect("an example") + 1;
    let middle = text.iter().position(|l| *l == "->").expect("an arrow");
    let end = start + text[start..].iter().position(|l| *l == "```").expect("an end");
    (text[start..middle].join("\n"), text[middle + 1..end].join("\n"))
}

/// The example does what it says; the snapshot shows it.
macro_rules! essay {
    ($test:ident, $file:literal, $pass:literal, $cleanup:literal) => {
        essay!($test, $file, $pass, $cleanup, attnc::passes::Float::Strict);
    };
    ($test:ident, $file:literal, $pass:literal, $cleanup:literal, $float:expr) => {
        #[test]
        fn $test() {
            let (before, after) = example(include_str!(concat!("../../src/passes/", $file, ".rs")));
            let (before, after) = (passes::canonical(&before), passes::canonical(&after));
            let list = attnc::passes::parse_pass_list(concat!($pass, $cleanup)).expect("names of passes");
            let (found, _) = passes::run(&before, Some(&list), &Default::default());
            assert_eq!(found, after);
            pass_snapshot!($pass, concat!($pass, $cleanup), $float, &before[before.find('\n').unwrap_or(0)..]);
        }
    };
}

essay!(differentiate, "differentiate/mod", "differentiate", "");
essay!(dce, "dce", "dce", "");
essay!(cse, "cse", "cse", "");
essay!(licm, "licm", "licm", "");
essay!(simplify, "simplify", "simplify", ",dce");
essay!(fold_constants, "fold_constants", "fold-constants", ",dce");
essay!(simplify_cfg, "simplify_cfg", "simplify-cfg", "");
essay!(separate_taps, "separate_taps", "separate-taps", "");
essay!(canonicalise_heads, "canonicalise_heads", "canonicalise-heads", "");
essay!(canonicalise_transpose, "canonicalise_transpose", "canonicalise-transpose", "");
essay!(canonicalise_softmax, "canonicalise_softmax", "canonicalise-softmax", "");
essay!(canonicalise_mask, "canonicalise_mask", "canonicalise-mask", "");
essay!(canonicalise_cast, "canonicalise_cast", "canonicalise-cast", "", attnc::passes::Float::Contract);
essay!(canonicalise_scale, "canonicalise_scale", "canonicalise-scale", "", attnc::passes::Float::Contract);
essay!(fuse_attention, "fuse_attention", "fuse-attention", "", attnc::passes::Float::Contract);
essay!(fuse_chain, "fuse_chain", "fuse-chain", "", attnc::passes::Float::Contract);
essay!(canonicalise_reduce, "canonicalise_reduce", "canonicalise-reduce", "");
essay!(canonicalise_row, "canonicalise_row", "canonicalise-row", "");
essay!(hoist_products, "hoist_products", "hoist-products", "");
essay!(merge_matmuls, "merge_matmuls", "merge-matmuls", "");
essay!(gather_diagonals, "gather_diagonals", "gather-diagonals", "");
essay!(fuse_mask, "fuse_mask", "fuse-mask", "");
essay!(fuse_epilogue, "fuse_epilogue", "fuse-epilogue", "");
essay!(fuse_rows, "fuse_rows", "fuse-rows", "");
essay!(fuse_map, "fuse_map", "fuse-map", "");

/// Every pass of the registry has an essay with an example, and so a snapshot of its name.
#[test]
fn every_pass_has_its_essay() {
    for pass in attnc::passes::PASSES {
        let snapshot = format!("{}/snapshots/passes/{}.snap", env!("CARGO_MANIFEST_DIR"), pass.name);
        assert!(std::path::Path::new(&snapshot).is_file(), "{}", pass.name);
    }
}
