//! Snapshots of passes: the text before, the text after, and the remarks, in one file of `snapshots/passes`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use attnc::diagnostics::render_all;
use attnc::ir::text;
use attnc::passes::{self, Collected, Float, OptError, Options, Pass};
use attnc::source::SourceMap;

/// The canonical text of a module written by hand: functions without the head line.
pub(crate) fn canonical(source: &str) -> String {
    let whole = format!("module \"test.attn\"\n{source}");
    let mut sources = SourceMap::new();
    let file = sources.add("test.air", whole.as_str());
    match text::parse(&whole, file) {
        Ok(parsed) => text::print(&parsed.module),
        Err(d) => panic!("{}", render_all(&d, &sources, false)),
    }
}

/// Runs passes over a text; the text after them, and everything else they said.
pub(crate) fn run(text: &str, passes: Option<&[Pass]>, options: &Options) -> (String, String) {
    let mut sources = SourceMap::new();
    let file = sources.add("test.air", text);
    let mut sink = Collected::default();
    match passes::optimise_text(text, file, passes, options, &mut sink) {
        Ok((after, _)) => (after, sink.text),
        Err(OptError::Text(d)) => panic!("{}", render_all(&d, &sources, false)),
        Err(OptError::Pass(e)) => panic!("{e}\nbefore:\n{}", e.before),
    }
}

/// What a snapshot shows.
pub(crate) fn before_and_after(source: &str, names: &str, float: Float) -> String {
    let passes = passes::parse_pass_list(names).expect("names of passes");
    let options = Options { float, remarks: true, ..Options::default() };
    let before = canonical(source);
    let (after, remarks) = run(&before, Some(&passes), &options);
    let (again, _) = run(&after, Some(&passes), &options);
    assert_eq!(after, again, "{names}: a second run changes something");
    let remarks = if remarks.is_empty() { String::new() } else { format!("\n{remarks}") };
    let after = if after == before { "unchanged\n".to_string() } else { after };
    format!("// attnc opt --passes {names} --float {float}\n{before}\n----------\n{after}{remarks}")
}

/// Asserts the snapshot `snapshots/passes/NAME.snap`.
macro_rules! pass_snapshot {
    ($name:expr, $passes:expr, $float:expr, $source:expr) => {
        insta::with_settings!({
            snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/passes"),
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!($name, $crate::passes::before_and_after($source, $passes, $float));
        });
    };
}
