//! `attnc reduce`: makes a program smaller as long as it stays interesting.
//!
//! In: a program (`.attn`, `.air`, `.tir`, or any other text), and what makes it interesting: a
//! command that exits with 0, a diagnostic, or a comparison that finds a difference. Out: a smaller
//! program of which the same holds. The input is not changed.
//!
//! ```text
//! smaller  the changes that make a program smaller:
//!          of its syntax tree                                   (program)
//!          of the operations of an IR                           (operations)
//!          of lines and words, if it has syntax errors          (lines)
//! search   which of them leave it interesting: large groups
//!          first, then each alone, until none does              (search)
//! test     is a program interesting?                            (test)
//! ```
//!
//! As in delta debugging (Zeller & Hildebrandt 2002, "Simplifying and Isolating Failure-Inducing
//! Input") and in C-Reduce, a change need not keep the meaning; the test decides. The result
//! depends on nothing but the program and the test: with several jobs the first of the interesting
//! changes is made, as with one.

mod lines;
mod operations;
mod program;
mod search;
mod test;

use super::outputs::Source;
use super::session::{CommandError, Session, command_line_error, show, tell};
use crate::cli::ReduceOptions;
use crate::files;
use std::io::IsTerminal as _;
use std::path::Path;
use test::Test;

/// A change of a program: its text after the change.
pub(super) type Candidate = Option<String>;

/// A kind of changes.
pub(super) trait Changes: Sync {
    /// The name, for the progress line.
    fn name(&self) -> &'static str;
    /// The number of changes of a program.
    fn count(&self, text: &str) -> usize;
    /// The program after `n` changes from number `first`; none if that is not a program.
    fn make(&self, text: &str, first: usize, n: usize) -> Candidate;
}

/// `attnc reduce FILE -- COMMAND {}`
pub fn reduce(options: &ReduceOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let result = reduce_in(&mut session, options);
    session.finish(result)
}

fn reduce_in(s: &mut Session, options: &ReduceOptions) -> Result<(), CommandError> {
    let file = s.read(&options.file)?;
    let text = s.text(file);
    let source = Source::detect(&options.file, &text);
    let output = options.output.as_deref().unwrap_or(Path::new("-"));
    s.claim(output)?;
    let test = Test::new(s, options, source, &text)?;
    let jobs = options.jobs.map_or_else(crate::threads::all, |n| usize::try_from(n).unwrap_or(1)).max(1);
    let kinds: Vec<Box<dyn Changes>> = match source {
        Source::Program if program::reads(&text) => program::kinds(),
        Source::Graph if operations::reads_graph(&text) => operations::graph_kinds(),
        Source::Tile if operations::reads_tiles(&text) => operations::tile_kinds(),
        _ => lines::kinds(source),
    };
    let shown = std::io::stderr().is_terminal();
    let mut last = 0;
    let mut progress = |state: &search::State<'_>| {
        if shown || state.tests >= last + 200 {
            last = state.tests;
            let (lines, tests, kind) = (state.text.lines().count(), state.tests, state.kind);
            let line = format!("reduce: {lines} lines, {} bytes after {tests} tests ({kind})", state.text.len());
            tell(&if shown { format!("\r\x1b[K{line}") } else { line + "\n" });
        }
        // The best program so far is not lost.
        if output != Path::new("-") && state.found {
            let _ = files::write(output, state.text.as_bytes(), false);
        }
    };
    let (small, tests) = search::search(&text, &kinds, jobs, &|text| test.is_interesting(text), &mut progress);
    if shown {
        tell("\r\x1b[K");
    }
    s.say(&format!("{tests} tests"));
    let size = |text: &str| format!("{} lines, {} bytes", text.lines().count(), text.len());
    tell(&format!("reduced: {} to {}, {tests} tests\n", size(&text), size(&small)));
    if output == Path::new("-") { show(&small) } else { s.write_now(output, small.as_bytes()) }
}

/// The error of a test that the program itself fails.
pub(super) fn not_interesting(why: &str) -> CommandError {
    command_line_error(&format!("the program is not interesting as it is: {why}"))
}
