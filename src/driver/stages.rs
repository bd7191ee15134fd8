//! The stages as the driver runs them: each takes the output of the previous stage, and converts
//! errors to diagnostics or bug reports.
//!
//! In: a session, and the input of a stage. Out: its output, or a [`CommandError`] that was already
//! reported.

use super::bugs::{Saved, broken_schedule, bug};
use super::dumps::{Dumps, print_steps};
use super::levels::Levels;
use super::observed::Observed;
use super::passes::broken_pass;
use super::record;
use super::session::{CommandError, Session, command_line_error, reason};
use super::variants::{GpuTier, is_scheduled, kinds_of, no_code, remark_lines, variants};
use crate::cli::{Binding, CodeBackend, PassOptions, ProgramOptions};
use crate::codegen::cpu::{Arch, Compiled, EmitOptions, Tier, clif};
use crate::codegen::descriptor;
use crate::codegen::{self, Generator};
use crate::diagnostics::codes::{driver as codes, entries as entries_codes, ir as ir_codes, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics, Severity, did_you_mean};
use crate::files::Folder;
use crate::interface::{Interface, axes, tensors};
use crate::lowering::{self, graph};
use crate::observe::{Collected, Sink};
use crate::passes::{self, Level, Options, PassError, Remark, Step};
use crate::runtime::descriptor::{ModelDescriptor, id_of};
use crate::runtime::link;
use crate::shape::Elem;
use crate::source::{FileId, Span};
use crate::syntax::ast;
use crate::tile::Cpu;
use crate::tile::verify::VerifiedModule;
use crate::tile::{Machine, ScheduleOptions, WeightChoice};
use crate::types;
use crate::types::typed::Program;
use crate::vector::routine::{self, Routine};
use crate::{ir, irtext, syntax, threads, tile};
use std::borrow::Cow;
use std::io::{self, Write as _};
use std::path::Path;

/// A dump of the tokens. Lexical errors are reported by the parser, which lexes again.
pub(super) fn tokens(s: &Session, file: FileId) -> String {
    let mut unused = Diagnostics::new();
    let dump = |f: &crate::source::SourceFile| syntax::dump::tokens(&syntax::tokens(file, f.text(), &mut unused), f);
    s.sources.get(file).map(dump).unwrap_or_default()
}

/// The syntax tree; errors are recorded in the session.
pub(super) fn parse(s: &mut Session, file: FileId) -> ast::File {
    let text = s.text(file);
    syntax::parse(file, &text, &mut s.diagnostics)
}

/// Type checks a syntax tree, after binding the element types of the command line to the generics
/// of models.
pub(super) fn check(s: &mut Session, tree: &mut ast::File, bindings: &ProgramOptions) -> Program {
    for dim in &bindings.dims {
        if let Binding::Element(elem) = dim.value {
            bind_element(s, tree, bindings.entry.as_deref(), &dim.name, elem);
        }
    }
    types::check(tree, &mut s.sources, &mut s.diagnostics)
}

/// Binds an element type to a generic of the models, or of the model that is compiled.
fn bind_element(s: &mut Session, tree: &mut ast::File, entry: Option<&str>, name: &str, elem: Elem) {
    let (mut is_bound, mut others) = (false, Vec::new());
    for item in &mut tree.items {
        let ast::Item::Layer(layer) = item else { continue };
        let is_meant = layer.kind == ast::LayerKind::Model && entry.is_none_or(|entry| entry == layer.name.name);
        for generic in layer.generics.iter_mut().filter(|_| is_meant) {
            match &mut generic.elem {
                Some(bound) if generic.name.name == name => {
                    *bound = elem;
                    is_bound = true;
                }
                Some(_) => others.push(generic.name.name.clone()),
                None if generic.name.name == name => {
                    let message = format!("`{name}` of model `{}` is not an element type", layer.name.name);
                    let d = Diagnostic::error(entries_codes::UNKNOWN_BINDING, message)
                        .at(generic.span, "a dimension, or a constant");
                    return s.diagnostics.push(d.help(format!("bind it to a number: `--dim {name}=4`")));
                }
                None => {}
            }
        }
    }
    if is_bound {
        return;
    }
    let diagnostic =
        Diagnostic::error(entries_codes::UNKNOWN_BINDING, format!("no model has an element type `{name}`"));
    s.diagnostics.push(match did_you_mean(name, others.iter().map(String::as_str)) {
        Some(near) => diagnostic.help(format!("did you mean `--dim {near}={elem}`?")),
        None if others.is_empty() => {
            diagnostic.note("a generic of a model whose default is an element type is one: `model M<E = f32>`")
        }
        None => diagnostic.note(format!("its element types are {}", others.join(", "))),
    });
}

/// Graph IR of a checked program, verified.
pub(super) fn lower(s: &mut Session, program: &Program, bindings: &ProgramOptions) -> Result<ir::Module, CommandError> {
    let mut options = graph::Options { model: bindings.entry.clone(), ..graph::Options::default() };
    for dim in &bindings.dims {
        if let Binding::Number(n) = dim.value {
            options.dims.insert(dim.name.clone(), i64::try_from(n).unwrap_or(i64::MAX));
        }
    }
    let module = graph::lower(program, &s.sources, &options, &mut s.diagnostics).map_err(|failure| match failure {
        graph::LowerError::Reported => CommandError::Program,
        graph::LowerError::Bug(text) => bug("lowering to graph IR", &text, None),
    })?;
    s.stop_on_errors()?;
    if let Err(errors) = ir::verify(&module) {
        return Err(bug("lowering to graph IR", &errors.to_string(), None));
    }
    supported(s, &module.interface())?;
    Ok(module)
}

/// Graph IR from its text form, verified.
pub(super) fn graph_text(s: &mut Session, file: FileId) -> Result<ir::Module, CommandError> {
    let parsed = ir::text::parse(&s.text(file), file).map_err(|errors| {
        s.diagnostics.append(errors);
        CommandError::Program
    })?;
    if let Err(errors) = ir::verify(&parsed.module) {
        s.diagnostics.append(errors.diagnostics(&parsed.places));
        return Err(CommandError::Program);
    }
    Ok(parsed.module)
}

/// Tile IR from its text form, verified.
pub(super) fn tile_text(s: &mut Session, file: FileId) -> Result<VerifiedModule, CommandError> {
    let parsed = tile::text::parse(&s.text(file), file).map_err(|errors| {
        s.diagnostics.append(errors);
        CommandError::Program
    })?;
    VerifiedModule::new(parsed.module).map_err(|errors| {
        s.diagnostics.append(errors.diagnostics(&parsed.places));
        CommandError::Program
    })
}

/// The runs of a module's kernels, or of one kernel, as vector IR for a CPU.
pub(super) fn vector_ir(module: &tile::Module, only: Option<tile::KernelOrPlan>, cpu: Cpu) -> String {
    let mut parts = Vec::new();
    for (n, kernel) in module.kernels.iter().enumerate() {
        if only.is_some_and(|part| part != tile::KernelOrPlan::Kernel(n)) {
            continue;
        }
        for (i, run) in lowering::vector::runs(kernel, cpu) {
            parts.push(match run {
                Ok(mut lowered) => {
                    for (_, label) in &mut lowered.routine.params {
                        *label = tile::text::with_names(label, tile::text::Owner::Kernel(n), module);
                    }
                    routine::text::print(&lowered.routine)
                }
                Err(declined) => {
                    let place = kernel.body.inst(i).loc.text(&module.name, &module.files);
                    format!("// @{}: the run at {place} has no vector IR: {declined}\n", kernel.name)
                }
            });
        }
    }
    parts.join("\n")
}

/// Vector IR from its text form, verified.
pub(super) fn vector_text(s: &mut Session, file: FileId) -> Result<Vec<Routine>, CommandError> {
    let text = s.text(file);
    let span = |place: irtext::TextSpan| Span::new(file, place.start, place.end);
    let parsed = routine::text::parse(&text).map_err(|e| {
        let code = if irtext::parse(&text).is_err() { ir_codes::SYNTAX } else { ir_codes::FORM };
        s.diagnostics.push(Diagnostic::error(code, e.message).at(span(e.place), ""));
        CommandError::Program
    })?;
    for p in &parsed {
        for (at, message) in routine::verify(&p.routine).err().unwrap_or_default() {
            let place = p.places.iter().find(|(known, _)| *known == at).map(|(_, place)| *place);
            let d = Diagnostic::error(ir_codes::INVALID, message);
            s.diagnostics.push(place.map_or(d.clone(), |place| d.at(span(place), "")));
        }
    }
    s.stop_on_errors()?;
    Ok(parsed.into_iter().map(|p| p.routine).collect())
}

/// Keeps only the runs of one kernel.
pub(super) fn only_routines(routines: &mut Vec<Routine>, name: &str) -> Result<(), CommandError> {
    let kernel = |r: &Routine| r.name.rsplit_once('.').map_or(r.name.clone(), |(kernel, _)| kernel.to_string());
    let mut names: Vec<String> = routines.iter().map(kernel).collect();
    names.dedup();
    routines.retain(|r| kernel(r) == name);
    if routines.is_empty() { Err(no_kernel(name, &names)) } else { Ok(()) }
}

/// CLIF from its text form, verified.
pub(super) fn clif_text(s: &mut Session, file: FileId, arch: Arch) -> Result<Vec<clif::Named>, CommandError> {
    let text = s.text(file);
    clif::read(&text, arch).map_err(|error| {
        let before = text.split_inclusive('\n').take(error.line.saturating_sub(1)).map(str::len).sum::<usize>();
        let line = text.get(before..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let span = Span::new(file, place(before), place(before + line.len()));
        s.diagnostics.push(Diagnostic::error(ir_codes::CLIF, error.message).at(span, ""));
        CommandError::Program
    })
}

/// The kernel or plan of `--kernel`, if it was given.
pub(super) fn only(
    name: Option<&str>,
    module: Option<&tile::Module>,
) -> Result<Option<tile::KernelOrPlan>, CommandError> {
    let (Some(name), Some(module)) = (name, module) else { return Ok(None) };
    let names = || module.part_names();
    module.part(name).map(Some).ok_or_else(|| no_kernel(name, &names()))
}

/// The module reduced to one entry point, if a name is given.
pub(super) fn only_function<'m>(
    name: Option<&str>,
    module: &'m ir::Module,
) -> Result<Cow<'m, ir::Module>, CommandError> {
    let Some(name) = name else { return Ok(Cow::Borrowed(module)) };
    let mut only = module.clone();
    only.functions.retain(|f| f.name == name);
    if !only.functions.is_empty() {
        return Ok(Cow::Owned(only));
    }
    let mut names: Vec<&str> = module.functions.iter().map(|f| f.name.as_str()).collect();
    names.dedup();
    let hint = did_you_mean(name, names.iter().copied());
    let hint = hint.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    Err(command_line_error(&format!("there is no entry point `{name}`{hint} (there are {})", names.join(", "))))
}

/// Keeps only the functions of one kernel or plan; a function's name begins with the instruction
/// set.
pub(super) fn only_functions(functions: &mut Vec<clif::Named>, name: &str) -> Result<(), CommandError> {
    let short = |full: &str| {
        let rest = full.split_once('.').map_or(full, |(_, rest)| rest);
        rest.strip_prefix("kernel.").or(rest.strip_prefix("plan.")).unwrap_or(full).to_string()
    };
    let names: Vec<String> = functions.iter().map(|f| short(&f.name)).collect();
    functions.retain(|f| f.name == name || short(&f.name) == name);
    if functions.is_empty() { Err(no_kernel(name, &names)) } else { Ok(()) }
}

fn no_kernel(name: &str, names: &[String]) -> CommandError {
    let hint = did_you_mean(name, names.iter().map(String::as_str));
    let hint = hint.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    command_line_error(&format!("there is no kernel or plan `{name}`{hint} (there are {})", names.join(", ")))
}

/// The assembly of CLIF functions.
pub(super) fn assemble(
    s: &mut Session,
    functions: &[clif::Named],
    arch: Arch,
    bytes: bool,
) -> Result<String, CommandError> {
    clif::assembly(functions, arch, bytes).map_err(|message| {
        s.diagnostics.push(Diagnostic::error(ir_codes::CLIF, message));
        CommandError::Program
    })
}

/// Runs the passes, with the requested dumps.
pub(super) fn optimise(
    s: &mut Session,
    module: &mut ir::Module,
    options: &Options,
    asked: &PassOptions,
) -> Result<Vec<Remark>, CommandError> {
    optimise_seen(s, module, options, asked, &mut |_| {})
}

/// The remarks of the passes over a module, without dumps.
pub(super) fn silently(module: &mut ir::Module, options: &Options) -> Result<Vec<Remark>, PassError> {
    passes::optimise(module, options, &mut Collected::default())
}

/// The same; calls `seen` after each run of a pass.
pub(super) fn optimise_seen(
    s: &mut Session,
    module: &mut ir::Module,
    options: &Options,
    asked: &PassOptions,
    seen: &mut dyn FnMut(&Step<'_>),
) -> Result<Vec<Remark>, CommandError> {
    let mut dumps = Dumps::new(asked);
    s.record.iter_mut().for_each(|record| record::graph(record, "lowering", module));
    let mut each = |step: &Step<'_>| {
        seen(step);
        s.record.iter_mut().for_each(|record| record::pass(record, step));
    };
    let done = passes::optimise_observed(module, options, &mut dumps, &mut each);
    let shown = s.observed.shown.take();
    s.observed = Observed::new(asked, &options.watch, s.record.is_some(), *dumps.counts(), shown);
    dumps.finish(s)?;
    done.map_err(|error| failed(s, module, &error))
}

/// Reports the errors that a pass finds in a program: gradients that do not exist.
pub(super) fn check_gradients(s: &mut Session, mut module: ir::Module) -> Result<(), CommandError> {
    let options = Options { level: Level::O0, ..Options::default() };
    silently(&mut module, &options).map(|_| ()).map_err(|error| failed(s, &module, &error))
}

/// Reports what a pass refused in the program, or that the pass is broken.
fn failed(s: &mut Session, module: &ir::Module, error: &PassError) -> CommandError {
    if error.refused.is_empty() {
        return broken_pass(error);
    }
    for refusal in &error.refused {
        let mut diagnostic = Diagnostic::error(shapes::NO_GRADIENT, &refusal.message);
        match span_of(s, module, refusal.loc) {
            Some(span) => diagnostic = diagnostic.at(span, ""),
            None => diagnostic = diagnostic.note(format!("at {}", passes::place_of(refusal.loc, module))),
        }
        for (loc, text) in &refusal.notes {
            diagnostic = match span_of(s, module, *loc) {
                Some(span) => diagnostic.also(span, text.as_str()),
                None => diagnostic.note(format!("{}: {text}", passes::place_of(*loc, module))),
            };
        }
        s.diagnostics.push(diagnostic);
    }
    CommandError::Program
}

/// The place of an instruction in the sources, if they are at hand.
fn span_of(s: &Session, module: &ir::Module, loc: ir::Loc) -> Option<Span> {
    let name = loc.file_name(&module.name, &module.files);
    let (id, file) = s.sources.files().find(|(_, file)| file.base_name() == name)?;
    let start = file.offset(loc.line, loc.column)?;
    Some(Span::new(id, start, start))
}

/// Rejects models that exceed limits of the runtime.
fn supported(s: &mut Session, interface: &Interface<'_>) -> Result<(), CommandError> {
    tensors(interface.params).map(|_| ()).and_then(|()| axes(&interface.entries)).map_err(|message| {
        s.diagnostics.push(Diagnostic::error(entries_codes::PROGRAM_SIZE, message));
        CommandError::Program
    })
}

/// Makes the descriptor of a model for the runtime.
pub(super) fn describe(
    s: &mut Session,
    interface: &Interface<'_>,
    model: &str,
    doc: &str,
) -> Result<ModelDescriptor, CommandError> {
    supported(s, interface)?;
    // IR without a model name is named after its file.
    let name = if model.is_empty() { model_name(interface.file) } else { model.to_string() };
    descriptor::describe(interface, &name, doc, &Arch::host().triple().to_string()).map_err(|message| {
        s.diagnostics.push(Diagnostic::error(entries_codes::UNBOUND_GENERIC, message));
        CommandError::Program
    })
}

/// Converts a file name to a model name: `gpt2.attn` to `Gpt2`.
fn model_name(file: &str) -> String {
    let stem = file.split('.').next().unwrap_or_default();
    let words = stem.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    let name: String = words.map(capital).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("Model{name}") }
}

/// Maps `work` over the items, with at most one thread each; returns the results in order, or the
/// first error.
fn at_once<T: Send, U: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<U, CommandError> + Sync,
) -> Result<Vec<U>, CommandError> {
    let levels = items.len();
    threads::each(items, levels, work).into_iter().collect()
}

/// One scheduled module for each instruction set, in the same order.
pub(super) struct Tiers {
    list: Vec<(Cpu, VerifiedModule)>,
    /// Modules for GPUs.
    gpus: Vec<GpuTier>,
    /// The unscheduled module, if it is kept.
    unscheduled: Option<VerifiedModule>,
    /// They come from tile IR given by the user.
    is_text: bool,
    /// Remarks of lowering.
    remarks: Vec<String>,
    /// Remarks of the schedule for the best instruction set, as lines: they stand for all.
    steps: String,
}

impl Tiers {
    /// Lowers graph IR and schedules it for each instruction set; `weights` is the format of packed
    /// weights.
    pub(super) fn lower(
        s: &mut Session,
        graph: &ir::Module,
        levels: &[Cpu],
        weights: &WeightChoice,
    ) -> Result<Tiers, CommandError> {
        let (tiles, remarks) = tiles_of(s, graph)?;
        let tiers = Tiers::of_tiles(s, &tiles, levels, weights)?;
        Ok(Tiers { unscheduled: Some(tiles), remarks, ..tiers })
    }

    /// Lowers graph IR and schedules it for every target of a library.
    pub(super) fn for_library(s: &mut Session, graph: &ir::Module, levels: &Levels) -> Result<Tiers, CommandError> {
        let (tiles, remarks) = tiles_of(s, graph)?;
        let tiers = Tiers::of_tiles(s, &tiles, &levels.all, &levels.weights)?;
        let gpus = variants(s, &tiles, &levels.gpus, &levels.gpu_options(), false)?;
        Ok(Tiers { gpus, unscheduled: Some(tiles), remarks, ..tiers })
    }

    /// A given module whose kernels are scheduled for GPUs, or not scheduled yet.
    pub(super) fn given_for_gpus(
        s: &mut Session,
        tiles: &VerifiedModule,
        options: &ScheduleOptions,
    ) -> Result<Tiers, CommandError> {
        Ok(Tiers {
            list: Vec::new(),
            gpus: variants(s, tiles, &kinds_of(tiles), options, true)?,
            unscheduled: None,
            is_text: true,
            remarks: Vec::new(),
            steps: String::new(),
        })
    }

    fn of_tiles(
        s: &mut Session,
        tiles: &VerifiedModule,
        levels: &[Cpu],
        weights: &WeightChoice,
    ) -> Result<Tiers, CommandError> {
        s.stage("schedule");
        let observed = &s.observed;
        let made = at_once(levels.to_vec(), |level| {
            let is_first = Some(&level) == levels.first();
            let options = ScheduleOptions { weights: weights.clone(), ..ScheduleOptions::default() };
            let (made, out) = observed.schedule(tiles, &Machine::from(level), &options, is_first);
            Ok((level, made.map_err(|e| broken_schedule(tiles, &e, "--emit tile=-")), out))
        })?;
        let (mut tiers, mut steps) = (Vec::new(), String::new());
        for (level, made, out) in made {
            print_steps(s, out)?;
            let (made, remarks) = made?;
            if tiers.is_empty() {
                steps = remark_lines(tiles, &remarks);
            }
            tiers.push((level, made));
        }
        // Byte dot products need quantised weights.
        tiers.retain(|(level, m)| *level != Cpu::AVX2_VNNI || m.kernels.iter().any(tile::Kernel::loads_scaled));
        Ok(Tiers { list: tiers, gpus: Vec::new(), unscheduled: None, is_text: false, remarks: Vec::new(), steps })
    }

    /// A given module: its unscheduled kernels are scheduled for `level`. The resulting code needs
    /// a CPU that supports everything its kernels were scheduled for.
    pub(super) fn given(
        s: &mut Session,
        tiles: VerifiedModule,
        level: Cpu,
        weights: &WeightChoice,
    ) -> Result<Tiers, CommandError> {
        s.stage("schedule");
        let options = ScheduleOptions { weights: weights.clone(), ..ScheduleOptions::default() };
        let (scheduled, out) = s.observed.schedule(&tiles, &Machine::from(level), &options, true);
        print_steps(s, out)?;
        let unscheduled = tiles;
        let (tiles, remarks) = scheduled.map_err(|e| no_code(s, &e.to_string()))?;
        let steps = remark_lines(&unscheduled, &remarks);
        let of = |k: &tile::Kernel| match k.state {
            tile::State::Cpu(level) => Some(level),
            tile::State::Unscheduled | tile::State::Gpu { .. } => None,
        };
        let all = tiles.kernels.iter().filter_map(of).reduce(Cpu::with);
        let list = vec![(all.unwrap_or(level), tiles)];
        let (gpus, remarks) = (Vec::new(), Vec::new());
        Ok(Tiers { list, gpus, unscheduled: Some(unscheduled), is_text: true, remarks, steps })
    }

    /// A line for each remark of lowering.
    pub(super) fn lowering_remarks(&self) -> String {
        self.remarks.iter().map(|remark| format!("remark: {remark}\n")).collect()
    }

    /// The remarks of the schedule for the best instruction set, as lines.
    pub(super) fn schedule_remarks(&self) -> &str {
        &self.steps
    }

    /// The GPU variant of this name.
    pub(super) fn gpu(&self, name: &str) -> Option<&GpuTier> {
        self.gpus.iter().find(|tier| tier.kernels.name == name)
    }

    /// The unscheduled module.
    pub(super) fn unscheduled(&self) -> Option<&tile::Module> {
        self.unscheduled.as_deref()
    }

    /// The GPU variants.
    pub(super) fn gpus_mut(&mut self) -> &mut [GpuTier] {
        &mut self.gpus
    }

    /// The instruction sets, in the order of their modules.
    pub(super) fn levels(&self) -> Vec<Cpu> {
        self.list.iter().map(|(level, _)| *level).collect()
    }

    /// Distinguishes builds, see [`id_of`]. One CPU module stands for all: they are scheduled from
    /// the same kernels.
    pub(super) fn id(&self, model: &ModelDescriptor, levels: &Levels, generator: Generator) -> u64 {
        let modules = self.module(levels.shown).into_iter().chain(self.gpus.iter().map(|tier| &*tier.module));
        let programs: Vec<Vec<u8>> = modules.map(tile::encode::module).collect();
        id_of(model, &programs, &format!("{generator:?} {:?}", levels.all))
    }

    /// The module of an instruction set; otherwise the best one that it includes, or else
    /// the best of all.
    pub(super) fn module(&self, level: Cpu) -> Option<&tile::Module> {
        let own = self.list.iter().find(|(own, _)| level.includes(*own));
        own.or(self.list.first()).map(|(_, tiles)| &**tiles)
    }
}

/// A library compiled from tile IR has code for one instruction set, others for several: reports
/// which of the requested ones are missing.
pub(super) fn tell_what_lacks(s: &mut Session, tiers: &Tiers, levels: &Levels, file: FileId) {
    let own = tiers.levels();
    let always = [Cpu::AVX512, Cpu::AVX2, Cpu::PORTABLE];
    let lacking = always.iter().filter(|level| levels.all.contains(level) && !own.contains(level));
    let lacking: Vec<String> = lacking.map(|level| format!("`{}`", level.name())).collect();
    if lacking.is_empty() || levels.arch != Arch::host() || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let own = own.iter().map(|level| format!("`{}`", level.name())).collect::<Vec<_>>().join(", ");
    let message = format!(
        "tile IR is for one instruction set: the library will have code for {own}, but not for {}",
        lacking.join(", ")
    );
    let note = Diagnostic { severity: Severity::Note, ..Diagnostic::error(codes::ONE_LEVEL, message) };
    let span = Span::new(file, 0, 0);
    s.diagnostics
        .push(note.at(span, "").help("compile the program or its graph IR (`.air`) to have code for all of them"));
}

/// Unscheduled kernels and plans of graph IR, with remarks.
pub(super) fn tiles_of(s: &mut Session, graph: &ir::Module) -> Result<(VerifiedModule, Vec<String>), CommandError> {
    s.stage("lower to tile IR");
    lower_to_tiles(ir::verify(graph).map_err(|errors| bug("the passes", &errors.to_string(), None))?)
}

/// Unscheduled kernels and plans, with remarks.
fn lower_to_tiles(graph: ir::Verified<'_>) -> Result<(VerifiedModule, Vec<String>), CommandError> {
    lowering::tile::lower_with_remarks(graph).map_err(|complaint| {
        let text = ir::text::print(&graph);
        bug(
            "lowering to tile IR",
            &complaint,
            Some(&Saved { text: &text, ending: "air", arguments: "-O0 --emit tile=-" }),
        )
    })
}

/// The code generator of an option.
pub(super) fn generator(backend: CodeBackend) -> Generator {
    match backend {
        CodeBackend::Cranelift => Generator::Cranelift,
        CodeBackend::Llvm => Generator::Llvm,
    }
}

/// The object files with the code of every target; dumps show `shown`.
pub(super) fn machine_code(
    s: &mut Session,
    generator: Generator,
    tiers: &Tiers,
    model: &ModelDescriptor,
    wanted: EmitOptions,
) -> Result<Compiled, CommandError> {
    generator.available().map_err(command_line_error)?;
    tiers.list.iter().try_for_each(|(_, module)| is_scheduled(module))?;
    if generator == Generator::Llvm && wanted.arch != Arch::host() {
        return Err(command_line_error("`--backend llvm` supports only the architecture of this machine"));
    }
    if wanted.arch == Arch::Aarch64
        && let Some((level, _)) = tiers.list.iter().find(|(level, _)| *level != Cpu::PORTABLE)
    {
        let message = format!("kernels scheduled for {} cannot be compiled for aarch64", level.name());
        return Err(command_line_error(&message));
    }
    let gpu = |k: &&tile::Kernel| matches!(k.state, tile::State::Gpu { .. });
    if let Some(k) = tiers.list.iter().flat_map(|(_, m)| &m.kernels).find(gpu) {
        return Err(no_code(
            s,
            &format!("kernel @{} is scheduled for a GPU, but code is generated only for CPUs", k.name),
        ));
    }
    // The plans of a GPU variant are portable code.
    let plans = tiers.gpus.iter().map(|GpuTier { module, kernels, .. }| Tier {
        level: Cpu::PORTABLE,
        module: module.verified(),
        gpu: Some(kernels),
    });
    let levels = tiers.list.iter().map(|(level, module)| Tier { level: *level, module: module.verified(), gpu: None });
    let list: Vec<Tier<'_>> = plans.chain(levels).collect();
    let made = codegen::compile(generator, &list, model, wanted).map_err(|complaint| {
        if tiers.is_text {
            return no_code(s, &complaint);
        }
        let text = tiers.list.first().map(|(_, tiles)| tile::text::print(tiles)).unwrap_or_default();
        bug("code generation", &complaint, Some(&Saved { text: &text, ending: "tir", arguments: "--emit obj" }))
    })?;
    let modules = tiers.list.iter().map(|(_, module)| module).chain(tiers.gpus.iter().map(|tier| &tier.module));
    if let Some(module) = modules.take(usize::from(wanted.remarks)).next() {
        let all = [
            tiers.lowering_remarks(),
            tiers.steps.clone(),
            tiers.gpus.iter().map(|tier| tier.remarks.as_str()).collect(),
            made.remarks(&module.name, &module.files),
        ]
        .concat();
        let _ = io::stderr().lock().write_all(all.as_bytes());
    }
    Ok(made)
}

fn link_failed(s: &mut Session, error: &link::LinkError) -> CommandError {
    let code = match error {
        link::LinkError::NoLinker { .. } => codes::NO_LINKER,
        link::LinkError::File { .. } => codes::UNWRITABLE,
        link::LinkError::Failed { .. } => codes::LINKER_FAILED,
    };
    s.fail(Diagnostic::error(code, error.to_string()))
}

/// Combines the objects into one, which requires a linker only if there are several.
pub(super) fn one_object(s: &mut Session, code: &Compiled) -> Result<Vec<u8>, CommandError> {
    if code.others.is_empty() {
        return Ok(code.object.clone());
    }
    link::join(&code.objects()).map_err(|error| link_failed(s, &error))
}

/// Links the code with the support library into a shared object for any program, at `path`; `-` is
/// stdout.
pub(super) fn library(s: &mut Session, code: &Compiled, path: &Path) -> Result<(), CommandError> {
    let made = link::library(&code.objects(), if path == Path::new("-") { Path::new("model.so") } else { path });
    let bytes = made.map_err(|error| link_failed(s, &error))?;
    match path == Path::new("-") {
        true => s.write(path, &bytes),
        false => s.write_by(path, &|out| out.write_all(&bytes), true),
    }
}

/// Links the code into a shared object for this process alone.
pub(super) fn link(s: &mut Session, code: &Compiled, path: &Path) -> Result<(), CommandError> {
    link::link(&code.objects(), path).map_err(|error| link_failed(s, &error))
}

/// A temporary directory that is removed when the value is dropped.
pub(super) fn temporary(s: &mut Session) -> Result<Folder, CommandError> {
    Folder::new(None).map_err(|error| {
        let message = format!("cannot create a directory in `{}`: {}", std::env::temp_dir().display(), reason(&error));
        s.fail(Diagnostic::error(codes::UNWRITABLE, message))
    })
}
