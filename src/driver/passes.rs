//! Passes on the command line: options, dumps, and reports of broken passes.
//!
//! In: the options of `compile` and `opt`. Out: options for [`crate::passes`], and transformed IR.
//! A pass that breaks the module is a bug in attnc: the IR before it is saved, with the command
//! that reproduces it.

use super::dumps::Dumps;
use super::outputs::agrees;
use super::session::{CommandError, Session, command_line_error, message};
use crate::cli::{EmitKind, FloatMode, OptOptions, PassOptions, PrintChanged, TargetOptions};
use crate::diagnostics::Severity;
use crate::files;
use crate::passes::{
    self, Float, Level, OptError, Options, PassError, Select, Watch, find_pass, optimise_text, parse_pass_list,
};
use crate::tile::find_step;
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
        let Err(near) = find_step(name) else { continue };
        let message = |text: String| match near {
            // A pass may be nearer.
            Some(near) if !text.contains("did you mean") => {
                format!("there is no pass `{name}`; did you mean `{near}`?")
            }
            _ => text,
        };
        find_pass(name).map_err(|text| command_line_error(&message(text)))?;
    }
    Ok(Options {
        level: Level::from_digit(target.level).unwrap_or_default(),
        float: match target.float {
            FloatMode::Strict => Float::Strict,
            FloatMode::Contract => Float::Contract,
            FloatMode::Fast => Float::Fast,
        },
        watch: Watch {
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
            dump_files: options.dump_dir.is_some(),
            record: false,
        },
        stats: options.stats,
        remarks: options.remarks,
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
