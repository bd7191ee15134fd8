//! The passes that make a program smaller: each essay's example is what the pass does, and more of what it does not.

#[path = "common/passes.rs"]
mod passes;

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
        #[test]
        fn $test() {
            let (before, after) = example(include_str!(concat!("../src/passes/", $file, ".rs")));
            let (before, after) = (passes::canonical(&before), passes::canonical(&after));
            let list = attnc::passes::parse_pass_list(concat!($pass, $cleanup)).expect("names of passes");
            let (found, _) = passes::run(&before, Some(&list), &Default::default());
            assert_eq!(found, after);
            pass_snapshot!(
                $pass,
                concat!($pass, $cleanup),
                attnc::passes::Float::Strict,
                &before[before.find('\n').unwrap_or(0)..]
            );
        }
    };
}

essay!(dce, "dce", "dce", "");
essay!(cse, "cse", "cse", "");
essay!(licm, "licm", "licm", "");
essay!(simplify, "simplify", "simplify", ",dce");
essay!(fold_constants, "fold_constants", "fold-constants", ",dce");
essay!(simplify_cfg, "simplify_cfg", "simplify-cfg", "");
