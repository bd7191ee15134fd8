//! Passes on the command line: options, and reports of broken passes.
//!
//! In: the options of `compile` and `opt`. Out: options for [`crate::passes`].
//! A pass that breaks the module is a bug in attnc: the IR before it is saved, with the command
//! that reproduces it.

use super::session::{CommandError, command_line_error, message};
use crate::cli::{FloatMode, PassOptions, PrintChanged, TargetOptions};
use crate::diagnostics::Severity;
use crate::files;
use crate::passes::{self, Float, Level, Options, PassError, Select, Watch, find_pass};
use crate::tile::find_step;
use std::path::Path;

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
