//! Dumps of passes and of the steps of the schedule: to stderr, and to the folder of `--dump-dir`.
//!
//! In: texts from the pipelines. Out: files, claimed in the session. It must not know any IR.

use super::session::{CommandError, Session, reason};
use crate::cli::PassOptions;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::driver as codes;
use crate::observe::{Collected, Counts, Sink};
use crate::record::Format;
use std::io::{self, Write};
use std::path::Path;

/// Dumps and reports of the passes: printed on stderr, and collected for `--dump-dir`.
pub struct Dumps<'a> {
    folder: Option<&'a Path>,
    files: Collected,
}

impl<'a> Dumps<'a> {
    /// Dumps for these options.
    pub fn new(options: &'a PassOptions) -> Dumps<'a> {
        Dumps { folder: options.dump_dir.as_deref(), files: Collected::default() }
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

    fn counts(&mut self) -> &mut Counts {
        &mut self.files.counts
    }
}

/// Prints the dumps of a schedule, and records its steps.
pub(super) fn print_steps(session: &mut Session, files: Collected) -> Result<(), CommandError> {
    if let Some(record) = session.record.as_deref_mut() {
        files.steps.iter().for_each(|(name, text)| record.step(Format::Scheduled, name, text));
    }
    let _ = io::stderr().lock().write_all(files.text.as_bytes());
    let folder = session.observed.folder.clone();
    Dumps { folder: folder.as_deref(), files }.finish(session)
}
