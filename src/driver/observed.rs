//! The schedule as `--print-after` and the like observe it.
//!
//! In: the options of the passes, and the number of passes that ran. Out: a scheduled module, with
//! the dumps of one machine's steps. It must not know where dumps are written.

use crate::cli::PassOptions;
use crate::observe::{Collected, Counts, Watch};
use crate::tile::verify::VerifiedModule;
use crate::tile::{self, Machine, Remark, ScheduleError, ScheduleOptions};
use std::path::PathBuf;

/// Observes the schedule, whose steps are counted after the passes.
#[derive(Clone, Default)]
pub(super) struct Observed {
    watch: Watch,
    /// Does anyone read the remarks of the steps?
    remarks: bool,
    /// The counts of the passes.
    counts: Counts,
    /// The folder of `--dump-dir`.
    pub(super) folder: Option<PathBuf>,
    /// The name of the machine whose steps are printed: that of `--emit tile`. Without one, that of
    /// the best instruction set.
    pub(super) shown: Option<String>,
}

impl Observed {
    /// By the options; `record`: the steps are recorded too. The module is verified after each step
    /// if that is asked for, and otherwise after the last one.
    pub(super) fn new(
        asked: &PassOptions,
        watch: &Watch,
        record: bool,
        counts: Counts,
        shown: Option<String>,
    ) -> Observed {
        let watch = Watch { verify_each: asked.verify_each == Some(true), record, ..watch.clone() };
        Observed { remarks: asked.remarks || record, watch, counts, folder: asked.dump_dir.clone(), shown }
    }

    /// Schedules a module for a machine. `is_first`: its steps are printed if no other machine's
    /// are.
    pub(super) fn schedule(
        &self,
        tiles: &VerifiedModule,
        machine: &Machine,
        options: &ScheduleOptions,
        is_first: bool,
    ) -> (Result<(VerifiedModule, Vec<Remark>), ScheduleError>, Collected) {
        let is_shown = self.shown.as_ref().map_or(is_first, |name| *name == machine.name());
        let mut out = Collected { counts: self.counts, ..Collected::default() };
        let silent = self.watch.silent();
        let options = ScheduleOptions { remarks: self.remarks, ..options.clone() };
        let made = tile::schedule_for(tiles, machine, &options, if is_shown { &self.watch } else { &silent }, &mut out);
        (made, if is_shown { out } else { Collected::default() })
    }
}
