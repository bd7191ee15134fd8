//! A side of a comparison: a program, and how it is run.
//!
//! In: the options of the side. Out: its graph IR after the passes, or its tile IR, and the values
//! that are compared. Nothing is called here.

use super::values::{self, Values};
use crate::cli::{Backend, CompareOptions, FloatMode};
use crate::driver::arguments::Work;
use crate::driver::call::read_graph;
use crate::driver::levels::Levels;
use crate::driver::outputs::Source;
use crate::driver::passes::pass_options;
use crate::driver::session::{CommandError, Session};
use crate::driver::stages;
use crate::ir;
use crate::runtime::descriptor::ModelDescriptor;
use crate::source::FileId;
use crate::tile::verify::VerifiedModule;
use clap::ValueEnum;
use std::collections::BTreeMap;

/// The program of a side.
pub(super) enum Program {
    /// Graph IR.
    Graph {
        /// Before the passes, and after them once it is prepared.
        module: ir::Module,
        /// The same, with all values as taps.
        watched: ir::Module,
    },
    /// Tile IR.
    Tile(VerifiedModule),
}

/// A side of a comparison.
pub(super) struct Side {
    pub(super) options: CompareOptions,
    /// Its file and options, for a reader.
    pub(super) label: String,
    pub(super) program: Program,
    /// Before the passes; both sides may have it in common.
    written: Option<ir::Module>,
    /// The values of each entry point.
    pub(super) values: BTreeMap<String, Values>,
}

impl Side {
    /// Reads a side; `first` is the other one, if that was read before.
    pub(super) fn read(s: &mut Session, options: &CompareOptions, first: Option<&Side>) -> Result<Side, CommandError> {
        let same = first.filter(|f| f.options.file == options.file && f.options.program == options.program);
        if let Some(module) = same.and_then(|f| f.written.clone()) {
            return Ok(Side::of_graph(options, module));
        }
        if options.file.extension().is_some_and(|ending| ending == "tir") {
            s.stage("read");
            let file: FileId = s.read(&options.file)?;
            if matches!(Source::detect(&options.file, &s.text(file)), Source::Tile) {
                let tiles = stages::tile_text(s, file)?;
                let values = values::launches(&tiles);
                let label = label(options, Backend::Tile, true);
                let program = Program::Tile(tiles);
                return Ok(Side { options: options.clone(), label, program, written: None, values });
            }
        }
        let module = read_graph(s, &options.file, &options.program, "compare")?;
        Ok(Side::of_graph(options, module))
    }

    /// A side with this graph.
    pub(super) fn of_graph(options: &CompareOptions, module: ir::Module) -> Side {
        let program = Program::Graph { module: module.clone(), watched: ir::Module::default() };
        let label = label(options, Backend::Cpu, false);
        Side { options: options.clone(), label, program, written: Some(module), values: BTreeMap::new() }
    }

    /// Runs the passes, and makes all values taps.
    pub(super) fn prepare(&mut self, s: &mut Session) -> Result<(), CommandError> {
        if let Program::Graph { module, .. } = &mut self.program {
            s.stage("passes");
            let pass_options = pass_options(&self.options.target, &self.options.passes)?;
            stages::optimise(s, module, &pass_options, &self.options.passes)?;
        }
        self.watch();
        Ok(())
    }

    /// Makes all values of a graph taps.
    pub(super) fn watch(&mut self) {
        if let Program::Graph { module, watched } = &mut self.program {
            (*watched, self.values) = values::watch(module);
        }
    }

    /// The graph after the passes, if there is one.
    pub(super) fn graph(&self) -> Option<&ir::Module> {
        match &self.program {
            Program::Graph { module, .. } => Some(module),
            Program::Tile(_) => None,
        }
    }

    /// Its program before the passes.
    pub(super) fn work(&self) -> Work<'_> {
        match &self.program {
            Program::Graph { module, .. } => Work::Graph(module),
            Program::Tile(tiles) => Work::Tile(tiles),
        }
    }

    /// Its model.
    pub(super) fn describe(&self, s: &mut Session) -> Result<ModelDescriptor, CommandError> {
        match &self.program {
            Program::Graph { module, .. } => stages::describe(s, &module.interface(), &module.model, &module.doc),
            Program::Tile(tiles) => stages::describe(s, &tiles.interface(), &tiles.model, &tiles.doc),
        }
    }

    /// The back end that runs it.
    pub(super) fn backend(&self) -> Backend {
        let usual = if self.graph().is_some() { Backend::Cpu } else { Backend::Tile };
        self.options.backend.unwrap_or(usual)
    }

    /// The targets of its code.
    pub(super) fn levels(&self) -> Result<Levels, CommandError> {
        let levels = Levels::from_options(&self.options.target);
        match self.graph() {
            Some(graph) => levels.keeping(&self.options.target, graph),
            None => Ok(levels),
        }
    }

    /// Do both read the same program, so that values keep their numbers?
    pub(super) fn has_origin_of(&self, other: &Side) -> bool {
        self.options.file == other.options.file && self.options.program == other.options.program
    }

    /// The file of a location, as it was read.
    pub(super) fn source_name(&self) -> &str {
        match &self.program {
            Program::Graph { module, .. } => &module.name,
            Program::Tile(tiles) => &tiles.name,
        }
    }
}

/// The file and the options of a side.
fn label(options: &CompareOptions, usual: Backend, is_tile: bool) -> String {
    let mut text = options.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut add = |flag: &str, value: String| text += &format!(" {flag}{value}");
    let backend = options.backend.unwrap_or(usual);
    if !is_tile {
        add("-O", options.target.level.to_string());
    }
    add("--backend ", backend.to_possible_value().map(|v| v.get_name().to_string()).unwrap_or_default());
    if let Some(cpu) = options.target.cpu {
        add("--cpu ", cpu.name().to_string());
    }
    if options.target.float != FloatMode::Contract {
        let value = options.target.float.to_possible_value();
        add("--float ", value.map(|v| v.get_name().to_string()).unwrap_or_default());
    }
    if options.target.pack != crate::cli::WeightPacking::F32 {
        add("--pack ", options.target.pack.name().to_string());
    }
    if let Some(threads) = options.threads {
        add("--threads ", threads.to_string());
    }
    if let Some(limit) = options.passes.bisect_limit {
        add("--bisect-limit ", limit.to_string());
    }
    if let Some(pass) = &options.passes.stop_after {
        add("--stop-after ", pass.clone());
    }
    text
}
