//! Passes on the command line: options, dumps, and reports of broken passes.
//!
//! In: the options of `compile` and `opt`. Out: options for [`crate::passes`], and transformed IR.
//! A pass that breaks the module is a bug in attnc: the IR before it is saved, with the command
//! that reproduces it.

use super::outputs::agrees;
use super::record;
use super::session::{CommandError, Session, command_line_error, message, reason};
use crate::cli::{EmitKind, FloatMode, OptOptions, PassOptions, PrintChanged, TargetOptions};
use crate::diagnostics::codes::driver as codes;
use crate::diagnostics::{Diagnostic, Severity};
use crate::files;
use crate::passes::{
    self, Collected, Float, Level, OptError, Options, PassError, Select, Sink, Step, find_pass, optimise_text,
    parse_pass_list,
};
use crate::record::Record;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `attnc opt FILE`: reads graph IR, runs passes over it, and writes it again.
pub fn opt(options: &OptOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let result = opt_in(&mut session, options);
    session.finish(result)
}

fn opt_in(session: &mut Session, options: &OptOptions) -> Result<(), CommandError> {
    let list = options.pipeline.as_ref().map(|names| parse_pass_list(&names.join(",")));
    let list = list.transpose().map_err(|message| command_line_error(&message))?;
    let pass_options = pass_options(&options.target, &options.passes)?;
    let stdout = PathBuf::from("-");
    let output = options.output.as_ref().unwrap_or(&stdout);
    agrees(EmitKind::Ir, output, "-o ").map_err(|message| command_line_error(&message))?;
    let file = session.read(&options.file)?;
    session.claim(output)?;
    let text = session.text(file);
    let mut dumps = Dumps::new(&options.passes);
    let made = optimise_text(&text, file, list.as_deref(), &pass_options, &mut dumps);
    dumps.finish(session)?;
    match made {
        Ok((text, _)) => session.write(output, text.as_bytes()),
        Err(OptError::Text(diagnostics)) => {
            session.diagnostics.append(diagnostics);
            Err(CommandError::Program)
        }
        Err(OptError::Pass(error)) => Err(broken_pass(&error)),
    }
}

/// The options of the passes; an unknown pass is an error in the command line.
pub fn pass_options(target: &TargetOptions, options: &PassOptions) -> Result<Options, CommandError> {
    let select = |names: &[String]| Select::parse(&names.join(","));
    let (print_before, print_after) = (select(&options.print_before), select(&options.print_after));
    for name in print_before.names().iter().chain(print_after.names()).chain(&options.stop_after) {
        find_pass(name).map_err(|message| command_line_error(&message))?;
    }
    Ok(Options {
        level: Level::from_digit(target.level).unwrap_or_default(),
        float: match target.float {
            FloatMode::Strict => Float::Strict,
            FloatMode::Contract => Float::Contract,
            FloatMode::Fast => Float::Fast,
        },
        print_before,
        print_after,
        print_changed: match options.print_changed {
            None => passes::PrintChanged::No,
            Some(PrintChanged::Whole) => passes::PrintChanged::Whole,
            Some(PrintChanged::Diff) => passes::PrintChanged::Diff,
        },
        verify_each: options.verifies_each(),
        stop_after: options.stop_after.clone(),
        bisect_limit: options.bisect_limit,
        time_passes: options.time_passes,
        stats: options.stats,
        remarks: options.remarks,
        dump_files: options.dump_dir.is_some(),
    })
}

/// Reports a pass that broke the module, and saves its input.
pub fn broken_pass(error: &PassError) -> CommandError {
    let saved = format!("attnc-bug-{}.air", error.pass);
    let mut notes = vec!["this is a bug in attnc".to_string()];
    notes.push(match files::write(Path::new(&saved), error.before.as_bytes(), false) {
        Ok(()) => format!(
            "the IR before the pass is saved in `{saved}`; reproduce with\n          attnc opt {saved} --passes {}",
            error.pass
        ),
        Err(_) => format!("the IR before the pass:\n{}", error.before),
    });
    message(Severity::Error, &format!("internal error: {error}"), &notes);
    CommandError::Bug
}

/// Dumps and reports of the passes: printed on stderr, and collected for `--dump-dir`.
pub struct Dumps<'a> {
    folder: Option<&'a Path>,
    files: Collected,
    /// The record of the compilation, if it is an output.
    pub(super) record: Option<Box<Record>>,
}

impl<'a> Dumps<'a> {
    /// Dumps for these options.
    pub fn new(options: &'a PassOptions) -> Dumps<'a> {
        Dumps { folder: options.dump_dir.as_deref(), files: Collected::default(), record: None }
    }

    /// Writes the collected files.
    pub fn finish(self, session: &mut Session) -> Result<(), CommandError> {
        let Some(folder) = self.folder else { return Ok(()) };
        if let Err(error) = std::fs::create_dir_all(folder) {
            let message = format!("cannot create the directory `{}`: {}", folder.display(), reason(&error));
            return Err(session.fail(Diagnostic::error(codes::UNWRITABLE, message)));
        }
        for (name, text) in &self.files.files {
            let path = folder.join(name);
            session.claim(&path)?;
            session.write_now(&path, text.as_bytes())?;
        }
        Ok(())
    }
}

impl Sink for Dumps<'_> {
    fn text(&mut self, text: &str) {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    fn file(&mut self, name: &str, text: &str) {
        self.files.file(name, text);
    }

    fn step(&mut self, step: &Step<'_>) {
        self.record.iter_mut().for_each(|record| record::pass(record, step));
    }
}
