//! `attnc opt`: passes over graph IR, or steps of the schedule over tile IR.
//!
//! In: its options, and IR text. Out: the transformed text. It must not know any pass or step.

use super::cuda::arch;
use super::dumps::Dumps;
use super::levels::Levels;
use super::outputs::{Source, agrees};
use super::passes::{broken_pass, pass_options};
use super::session::{CommandError, Session, command_line_error, tell};
use super::stages::tile_text;
use super::variants::{no_code, remark_lines};
use crate::cli::{EmitKind, OptOptions, Target};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::shapes;
use crate::observe::Watch;
use crate::passes::{OptError, optimise_text, parse_pass_list};
use crate::source::FileId;
use crate::tile::{self, Machine, ScheduleOptions};
use std::path::PathBuf;

/// `attnc opt FILE`: reads graph IR or tile IR, runs passes or steps of the schedule over it, and
/// writes it again.
pub fn opt(options: &OptOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let result = opt_in(&mut session, options);
    session.finish(result)
}

fn opt_in(session: &mut Session, options: &OptOptions) -> Result<(), CommandError> {
    let pass_options = pass_options(&options.target, &options.passes)?;
    let stdout = PathBuf::from("-");
    let output = options.output.as_ref().unwrap_or(&stdout);
    let file = session.read(&options.file)?;
    let text = session.text(file);
    let is_tile = matches!(Source::detect(&options.file, &text), Source::Tile);
    let kind = if is_tile { EmitKind::Tile } else { EmitKind::Ir };
    agrees(kind, output, "-o ").map_err(|message| command_line_error(&message))?;
    session.claim(output)?;
    if is_tile {
        let text = opt_tiles(session, options, file, &pass_options.watch)?;
        return session.write(output, text.as_bytes());
    }
    let list = options.pipeline.as_ref().map(|names| parse_pass_list(&names.join(",")));
    let list = list.transpose().map_err(|message| command_line_error(&message))?;
    let mut dumps = Dumps::new(&options.passes);
    let made = optimise_text(&text, file, list.as_deref(), &pass_options, &mut dumps);
    dumps.finish(session)?;
    match made {
        Ok((text, _)) => session.write(output, text.as_bytes()),
        Err(OptError::Text(diagnostics)) => {
            session.diagnostics.append(diagnostics);
            Err(CommandError::Program)
        }
        Err(OptError::Pass(error)) if !error.refused.is_empty() => {
            for refusal in &error.refused {
                session.diagnostics.push(Diagnostic::error(shapes::NO_GRADIENT, &refusal.message));
            }
            Err(CommandError::Program)
        }
        Err(OptError::Pass(error)) => Err(broken_pass(&error)),
    }
}

/// The text of a tile IR module after steps of the schedule.
fn opt_tiles(session: &mut Session, options: &OptOptions, file: FileId, watch: &Watch) -> Result<String, CommandError> {
    let levels = Levels::from_options(&options.target);
    let machine = match options.target.is_for(Target::Cuda) {
        true => Machine::from(arch(options.target.gpu)),
        false => Machine::from(levels.shown),
    };
    let steps = options.pipeline.as_ref().map(|names| tile::steps_named(names, &machine));
    let steps = steps.transpose().map_err(|message| command_line_error(&message))?;
    let tiles = tile_text(session, file)?;
    let schedule = ScheduleOptions { remarks: options.passes.remarks, ..levels.gpu_options() };
    let mut dumps = Dumps::new(&options.passes);
    let made = match steps {
        Some(steps) => tile::run_steps(&tiles, &machine, &steps, &schedule, watch, &mut dumps),
        None => tile::schedule_for(&tiles, &machine, &schedule, watch, &mut dumps),
    };
    dumps.finish(session)?;
    let (made, remarks) = made.map_err(|error| no_code(session, &error.to_string()))?;
    if options.passes.remarks {
        tell(&remark_lines(&tiles, &remarks));
    }
    Ok(tile::text::print(&made))
}
