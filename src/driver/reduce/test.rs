//! Is a program interesting?
//!
//! In: the options, and candidates. Out: whether the command exits with 0, the program has the
//! diagnostic, or `attnc compare` finds that values differ. A command that takes too long is ended,
//! with all that it started, and its program is not interesting.

use super::super::outputs::Source;
use super::super::session::{CommandError, Session, command_line_error};
use super::super::{check_file, stages};
use super::not_interesting;
use crate::cli::{ProgramOptions, ReduceOptions};
use crate::diagnostics::Severity;
use crate::files::Folder;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The property that makes a program interesting.
enum Wanted {
    /// The command exits with 0.
    Command(Vec<OsString>),
    /// It has an error or a warning of this code, and no errors of codes that it did not have.
    Diagnostic(String),
    /// `attnc compare` finds that values differ; whether a side fails.
    Compare(Vec<OsString>, bool),
}

/// A test of programs.
pub(super) struct Test {
    wanted: Wanted,
    /// Candidates are files with the name of the program, each in a folder of its own.
    folder: Folder,
    name: PathBuf,
    number: AtomicU64,
    limit: Duration,
    /// Codes of the errors of the program.
    errors: BTreeSet<String>,
    messages: crate::cli::MessageOptions,
}

impl Test {
    /// The test of the options; the program itself must pass it.
    pub(super) fn new(
        s: &mut Session,
        options: &ReduceOptions,
        source: Source,
        text: &str,
    ) -> Result<Test, CommandError> {
        let wanted = match (&options.error, options.compare.as_slice(), options.command.as_slice()) {
            (Some(code), [], []) => Wanted::Diagnostic(code.to_uppercase()),
            (None, [_, ..], []) => Wanted::Compare(options.compare.iter().map(OsString::from).collect(), false),
            (None, [], [_, ..]) => {
                let has_place = |arg: &OsString| arg.to_str().is_some_and(|arg| arg.contains("{}"));
                if !options.command.iter().any(has_place) {
                    return Err(command_line_error("the command has no `{}`, which becomes the path of a candidate"));
                }
                Wanted::Command(options.command.clone())
            }
            _ => {
                return Err(command_line_error(
                    "what is interesting? Give one of `--error CODE`, `--compare OPTIONS`, or `-- COMMAND {}`",
                ));
            }
        };
        let ending = match source {
            Source::Program => "attn",
            Source::Graph => "air",
            Source::Tile => "tir",
            Source::Vector => "vir",
            Source::Clif => "clif",
        };
        let own = options.file.file_name().filter(|_| options.file != Path::new("-")).map(PathBuf::from);
        let mut test = Test {
            wanted,
            folder: stages::temporary(s)?,
            name: own.unwrap_or_else(|| PathBuf::from(format!("program.{ending}"))),
            number: AtomicU64::new(0),
            limit: Duration::from_secs_f64(options.timeout),
            errors: BTreeSet::new(),
            messages: options.messages.clone(),
        };
        test.errors = test.codes(text).0;
        match &test.wanted {
            Wanted::Command(_) if !test.is_interesting(text) => {
                Err(not_interesting("the command does not exit with 0 within the time limit (`--timeout`)"))
            }
            Wanted::Diagnostic(code) if !test.is_interesting(text) => {
                Err(not_interesting(&format!("it has no diagnostic {code}")))
            }
            Wanted::Compare(words, _) => match test.compared(text, words) {
                Some(failed) => Ok(Test { wanted: Wanted::Compare(words.clone(), failed), ..test }),
                None => Err(not_interesting("`attnc compare` finds no difference within the time limit (`--timeout`)")),
            },
            Wanted::Command(_) | Wanted::Diagnostic(_) => Ok(test),
        }
    }

    /// Is a program interesting?
    pub(super) fn is_interesting(&self, text: &str) -> bool {
        match &self.wanted {
            Wanted::Diagnostic(code) => {
                let (errors, all) = self.codes(text);
                all.contains(code) && errors.is_subset(&self.errors)
            }
            Wanted::Command(_) | Wanted::Compare(..) if self.errors.is_empty() && !self.codes(text).0.is_empty() => {
                false
            }
            Wanted::Command(words) => {
                let run = |path: &Path| {
                    let path = path.to_string_lossy();
                    let with = |word: &OsString| match word.to_str() {
                        Some(word) => OsString::from(word.replace("{}", &path)),
                        None => word.clone(),
                    };
                    self.output(&words.iter().map(with).collect::<Vec<_>>()).is_some_and(|(code, _)| code == 0)
                };
                self.with_file(text, run).unwrap_or(false)
            }
            Wanted::Compare(words, failed) => self.compared(text, words) == Some(*failed),
        }
    }

    /// The codes of the errors of a program, and of all its diagnostics. A program on which the
    /// check panics has a code of its own.
    fn codes(&self, text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
        let check = || {
            crate::stack::with_large_stack(|| {
                let mut s = Session::new(&self.messages);
                let file = s.sources.add(self.name.display().to_string(), text);
                // The result is in the diagnostics.
                let _ = check_file(&mut s, file, &self.name, &ProgramOptions::default());
                let of = |errors: bool| {
                    let wanted = s.diagnostics.iter().filter(|d| !errors || d.severity == Severity::Error);
                    wanted.map(|d| d.code.to_string()).collect()
                };
                (of(true), of(false))
            })
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or_else(|_| {
            let all = BTreeSet::from(["panic".to_string()]);
            (all.clone(), all)
        })
    }

    /// Does `attnc compare` find a difference, and does a side fail?
    fn compared(&self, text: &str, words: &[OsString]) -> Option<bool> {
        let own = std::env::current_exe().ok()?;
        let compared = self.with_file(text, |path| {
            let head = [own.into_os_string(), "compare".into(), path.into(), "--json".into()];
            self.output(&head.into_iter().chain(words.iter().cloned()).collect::<Vec<_>>())
        })?;
        let (1, json) = compared? else { return None };
        let report: Json = serde_json::from_slice(&json).ok()?;
        let failed = report.get("failed")?.as_array()?.iter().any(|error| !error.is_null());
        Some(failed)
    }

    /// Calls `f` with the path of a file with this text.
    fn with_file<T>(&self, text: &str, f: impl FnOnce(&Path) -> T) -> Option<T> {
        let folder = self.folder.path().join(self.number.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&folder).ok()?;
        let path = folder.join(&self.name);
        let done = std::fs::write(&path, text).ok().map(|()| f(&path));
        let _ = std::fs::remove_dir_all(&folder);
        done
    }

    /// The exit code of a command, and the start of its stdout; `None` if it does not start, is
    /// ended by a signal or takes too long.
    fn output(&self, words: &[OsString]) -> Option<(i32, Vec<u8>)> {
        let (program, args) = words.split_first()?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().ok()?;
        let mut out = child.stdout.take()?;
        // Reads on, so that the command never waits for a reader.
        let (done, bytes) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = out.by_ref().take(1 << 22).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut out, &mut std::io::sink());
            let _ = done.send(bytes);
        });
        let start = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if start.elapsed() < self.limit => std::thread::sleep(Duration::from_millis(2)),
                _ => break None,
            }
        };
        // The processes that it started must not outlive it, or hold its stdout.
        if let Ok(group) = i32::try_from(child.id()) {
            // SAFETY: sends a signal to the group of a child that was just started.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = child.wait();
        // A process that has left the group may still hold it.
        let bytes = bytes.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        Some((status?.code()?, bytes))
    }
}
