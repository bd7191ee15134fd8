//! A program that is compiled in memory for one entry point, with its weights.
//!
//! In: the options of `attnc generate`, `chat` or `embed`. Out: its graph, to check the entry
//! point; then the opened model.

use super::super::arguments::{self, Work};
use super::super::call::read_graph;
use super::super::levels::Levels;
use super::super::load::{How, opened};
use super::super::passes::pass_options;
use super::super::running::{call_failed, converted, function, unused};
use super::super::session::{CommandError, Session, command_line_error};
use super::super::stages::{self, Tiers};
use super::super::stored::as_stored;
use crate::cli::ModelOptions;
use crate::ir::{Function, Module};
use crate::runtime::load::{CompiledModel, Session as Calls};
use std::sync::atomic::AtomicBool;

/// A program and the entry point to call.
pub(in crate::driver) struct Program {
    pub(in crate::driver) graph: Module,
    pub(in crate::driver) name: String,
    at: usize,
}

impl Program {
    /// Reads the program.
    pub(in crate::driver) fn read(
        s: &mut Session,
        options: &ModelOptions,
        command: &str,
        wanted: &str,
    ) -> Result<Program, CommandError> {
        pass_options(&options.target, &options.passes)?;
        let graph = read_graph(s, &options.file, &options.program, command)?;
        let (name, _) =
            function(Work::Graph(&graph).entries(), Some(wanted)).map_err(|why| command_line_error(&why))?;
        let at = graph.functions.iter().position(|f| f.name == name && !f.tapped).unwrap_or(0);
        let name = name.to_owned();
        Ok(Program { graph, name, at })
    }

    /// The entry point.
    pub(in crate::driver) fn function(&self) -> &Function {
        &self.graph.functions[self.at]
    }

    /// Compiles the entry point, and no other, and opens the model.
    pub(in crate::driver) fn opened(
        self,
        s: &mut Session,
        options: &ModelOptions,
    ) -> Result<CompiledModel, CommandError> {
        let Program { mut graph, name, .. } = self;
        if let Some(path) = &options.weights {
            as_stored(s, &mut graph, path)?;
        }
        graph.functions.retain(|f| f.name == name);
        s.stage("passes");
        stages::optimise(s, &mut graph, &pass_options(&options.target, &options.passes)?, &options.passes)?;
        let model = stages::describe(s, &graph.interface(), &graph.model, &graph.doc)?;
        if options.weights.is_none() && !model.params.is_empty() && options.random.is_none() {
            let message = format!("`{}` has parameters; use `--weights FILE`, or `--random` to see it run", model.name);
            return Err(command_line_error(&message));
        }
        let generator = stages::generator(options.backend);
        let levels =
            Levels::from_options(&options.target).for_graph(&graph, generator).keeping(&options.target, &graph)?;
        levels.run_here()?;
        let tiers = Tiers::for_library(s, &graph, &levels)?;
        let folder = stages::temporary(s)?;
        let (given, seed) = (options.weights.as_deref(), options.random.unwrap_or(1));
        let weights = arguments::weights_file(s, &model, given, seed, folder.path())?;
        let how = How { generator, remarks: options.passes.remarks, threads: options.threads };
        let loaded = opened(s, &tiers, &model, &how, weights.as_deref())?;
        unused(s, loaded.unused_weights());
        converted(&loaded.converted_weights());
        // Print messages before the text, not in the middle of it.
        s.report();
        Ok(loaded)
    }
}

/// An entry point of an opened model, and a session that ends its calls if `interrupted` is set.
pub(in crate::driver) fn calls<'m>(
    loaded: &'m CompiledModel,
    name: &str,
    s: &mut Session,
    interrupted: &'static AtomicBool,
) -> Result<(u64, Calls<'m>), CommandError> {
    let ready = loaded.entry(name).and_then(|entry| {
        let mut calls = loaded.session()?;
        calls.end_when(interrupted)?;
        Ok((entry, calls))
    });
    ready.map_err(|error| call_failed(s, &error.text))
}
