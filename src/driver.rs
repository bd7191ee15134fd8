//! The pipeline of the compiler: reads the program, runs the stages in order, writes the requested
//! outputs.
//!
//! In: the options of a command. Out: files, text on stdout, diagnostics on stderr, and a
//! [`CommandError`], which determines the exit code. [`compile`] is a straight line with one step
//! per stage. All I/O of the compiler happens here and in [`crate::runtime`]; the stages are pure
//! functions.

mod arguments;
mod bench;
mod bugs;
mod call;
mod calls;
mod chat;
mod compare;
mod cuda;
mod dumps;
mod edit;
mod edits;
mod embed;
mod function;
mod generate;
mod import;
mod keep;
mod learn;
mod levels;
mod list;
mod load;
mod nvidia;
mod observed;
mod ops;
mod opt;
mod outputs;
mod passes;
mod play;
mod record;
mod recorded;
mod reduce;
mod reference;
mod running;
mod session;
mod stages;
mod states;
mod stored;
mod train;
mod variants;

pub use bench::bench;
pub use calls::count_calls;
pub use chat::chat;
pub use compare::compare;
pub use dumps::Dumps;
pub use edit::{fix, fixed, fmt, lsp};
pub use embed::embed;
pub use function::function;
pub use generate::generate;
pub use import::import;
pub use learn::learn;
pub use list::{completions, list};
use observed::Observed;
pub use ops::ops;
pub use opt::opt;
pub use passes::{broken_pass, pass_options};
pub use play::play;
pub use recorded::run;
pub use reduce::reduce;
pub use reference::{explain, reference};
pub use session::{CommandError, MAX_SOURCE, Session, command_line_error, whole};
pub use train::train;

use crate::cli::{CheckOptions, CommandLine, CompileOptions, EmitKind, ProgramOptions, StdOptions, Target};
use crate::codegen::cpu::{Arch, Compiled, EmitOptions, clif};
use crate::diagnostics::did_you_mean;
use crate::observe::Counts;
use crate::record::Format;
use crate::runtime::descriptor::ModelDescriptor;
use crate::source::FileId;
use crate::tile::Cpu;
use crate::types::typed::{LayerKind, Program};
use crate::types::{self, modules};
use crate::vector::routine;
use crate::{ir, runtime, syntax, tile};
use levels::Levels;
use outputs::{Outputs, Source};
use session::show;
use stages::Tiers;
use std::path::Path;

/// `attnc FILE`: compiles and writes the requested outputs.
pub fn compile(options: &CompileOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let result = match Outputs::from_options(options) {
        Ok(out) => {
            let result = compile_in(&mut session, options, &out);
            record::finish(&mut session, &out.of_record(), result)
        }
        Err(message) => Err(command_line_error(&message)),
    };
    session.finish_timed(result, &options.passes)
}

fn compile_in(s: &mut Session, options: &CompileOptions, out: &Outputs) -> Result<(), CommandError> {
    s.stage("read");
    let file = s.read(&options.file).inspect_err(|_| meant_a_command(s, &options.file))?;
    let source = Source::detect(&options.file, &s.text(file));
    out.check(source).map_err(|message| command_line_error(&message))?;
    out.claim(s)?;
    record::begin(s, out);
    if options.target.is_for(Target::Cuda) {
        return cuda::compile(s, options, source, file, out);
    }
    if let Some(kind) = [EmitKind::Ptx, EmitKind::Sass].into_iter().find(|kind| out.has(*kind)) {
        return Err(command_line_error(&format!("`--emit {}` needs `--target cuda`", kind.name())));
    }
    let is_code = [EmitKind::Obj, EmitKind::So].into_iter().any(|kind| out.has(kind));

    // All instruction sets take the same path: a library has code for each, a dump shows one.
    let mut levels = Levels::from_options(&options.target);
    if out.has(EmitKind::So) {
        levels.run_here()?;
    }
    let (tiers, mut model) = match source {
        Source::Program | Source::Graph => {
            let Some(graph) = graph_ir(s, options, source, file, out)? else { return Ok(()) };
            let model = stages::describe(s, &graph.interface(), &graph.model, &graph.doc)?;
            levels = levels.for_graph(&graph, stages::generator(options.backend)).keeping(&options.target, &graph)?;
            s.observed.shown = Some(levels.shown.name());
            let wanted = if is_code { levels.all.as_slice() } else { std::slice::from_ref(&levels.shown) };
            (Tiers::lower(s, &graph, wanted, &levels.weights)?, model)
        }
        Source::Tile => {
            s.stage("parse");
            let tiles = stages::tile_text(s, file)?;
            observe_text(s, options)?;
            let model = stages::describe(s, &tiles.interface(), &tiles.model, &tiles.doc)?;
            let tiers = Tiers::given(s, tiles, levels.shown, &levels.weights)?;
            if is_code {
                stages::tell_what_lacks(s, &tiers, &levels, file);
            }
            (tiers, model)
        }
        Source::Vector => return vector_text(s, options, file, out),
        Source::Clif => return clif_text(s, options, file, out, levels.arch),
    };
    model.id = tiers.id(&model, &levels, stages::generator(options.backend));
    let only = stages::only(options.kernel.as_deref(), tiers.module(levels.shown))?;
    out.emit(s, EmitKind::Tile, |_| match (only, tiers.module(levels.shown)) {
        (Some(part), Some(module)) => tile::text::print_part(module, part),
        (None, Some(module)) => tile::text::print(module),
        (_, None) => String::new(),
    })?;
    out.emit(s, EmitKind::Vector, |_| match tiers.module(levels.shown) {
        Some(module) => stages::vector_ir(module, only, levels.shown),
        None => String::new(),
    })?;

    if let Some(module) = tiers.module(levels.shown) {
        let remarks = (tiers.lowering_remarks(), tiers.schedule_remarks().to_string());
        record::tiles(s, (tiers.unscheduled(), module), (&levels.shown.name(), false), (&remarks.0, &remarks.1));
        record::vectors(s, module, levels.shown);
    }

    // Machine code, and the library that contains it.
    library(s, out, &model, |s| {
        s.stage("generate code");
        s.say(&format!("code for {}", names(&tiers.levels())));
        let level = (source != Source::Tile).then_some(levels.shown);
        let wanted = EmitOptions {
            clif: out.has(EmitKind::Clif),
            mir: out.has(EmitKind::Mir) || record::is_asked(out),
            mir_registers: options.mir_registers,
            asm: out.has(EmitKind::Asm) || record::is_asked(out),
            asm_bytes: options.asm_bytes,
            debug_lines: options.debug_lines,
            remarks: options.passes.remarks,
            only,
            level,
            arch: levels.arch,
            ..EmitOptions::default()
        };
        stages::machine_code(s, stages::generator(options.backend), &tiers, &model, wanted)
    })
}

/// Tile IR as input has no passes; its steps are observed.
fn observe_text(s: &mut Session, options: &CompileOptions) -> Result<(), CommandError> {
    let watch = pass_options(&options.target, &options.passes)?.watch;
    s.observed = Observed::new(&options.passes, &watch, s.record.is_some(), Counts::default(), s.observed.shown.take());
    Ok(())
}

/// The outputs that involve machine code: its dumps, the object, the library, the wrappers. `make`
/// generates the code, if one of the outputs needs it.
fn library(
    s: &mut Session,
    out: &Outputs,
    model: &ModelDescriptor,
    make: impl FnOnce(&mut Session) -> Result<Compiled, CommandError>,
) -> Result<(), CommandError> {
    let kinds = [EmitKind::Clif, EmitKind::Mir, EmitKind::Asm, EmitKind::Obj, EmitKind::So];
    if kinds.into_iter().any(|kind| out.has(kind)) || record::is_asked(out) {
        let code = make(s)?;
        record::code(s, Format::Mir, &code.mir);
        record::code(s, Format::Asm, &code.asm);
        out.emit(s, EmitKind::Clif, |_| &code.clif)?;
        out.emit(s, EmitKind::Mir, |_| &code.mir)?;
        out.emit(s, EmitKind::Asm, |_| &code.asm)?;
        if out.has(EmitKind::Obj) {
            let object = stages::one_object(s, &code)?;
            out.emit(s, EmitKind::Obj, |_| &object)?;
        }
        if let Some(path) = out.path(EmitKind::So) {
            s.stage("link");
            stages::library(s, &code, path)?;
        }
    }
    s.stage("wrappers");
    out.emit(s, EmitKind::Header, |_| runtime::header::header(model))?;
    out.emit(s, EmitKind::Python, |_| runtime::python::python(model))
}

/// The names of instruction sets.
fn names(levels: &[Cpu]) -> String {
    levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", ")
}

/// Adds a hint to the error about a missing file if its name resembles a command.
fn meant_a_command(s: &mut Session, file: &Path) {
    let Some(name) = file.to_str().filter(|_| !file.exists()) else { return };
    let whole = CommandLine::whole();
    let commands = || whole.get_subcommands().map(clap::Command::get_name);
    if let Some(near) = did_you_mean(name, commands()) {
        s.help(&format!("there is a command `{near}`: `attnc {near} ..`"));
    }
}

/// The first half of the pipeline, from source to optimised graph IR; `None` if no later stage is
/// needed.
fn graph_ir(
    s: &mut Session,
    options: &CompileOptions,
    source: Source,
    file: FileId,
    out: &Outputs,
) -> Result<Option<ir::Module>, CommandError> {
    let pass_options = pass_options(&options.target, &options.passes)?;
    let mut graph = if source == Source::Graph {
        s.stage("parse");
        stages::graph_text(s, file)?
    } else {
        s.stage("lex");
        out.emit(s, EmitKind::Tokens, |s| stages::tokens(s, file))?;
        s.stage("parse");
        let mut tree = stages::parse(s, file);
        out.emit(s, EmitKind::Ast, |s| s.sources.get(file).map(|f| syntax::dump::ast(&tree, f)).unwrap_or_default())?;
        s.stage("check types");
        let program = stages::check(s, &mut tree, &options.program);
        s.stop_on_errors()?;
        record::typed(s, &program);
        out.emit(s, EmitKind::Types, |_| types::dump::dump(&program, file))?;
        if !out.go_beyond(EmitKind::Types) {
            return Ok(None);
        }
        s.stage("lower to graph IR");
        stages::lower(s, &program, &options.program)?
    };
    if let Some(path) = &options.weights {
        stored::as_stored(s, &mut graph, path)?;
    }

    // Rewrites the program to fewer and larger operations.
    s.stage("passes");
    let remarks = stages::optimise(s, &mut graph, &pass_options, &options.passes)?;
    if source == Source::Program && (s.record.is_some() || options.passes.remarks) {
        let found = edits::proposals(s, file, &options.program, &pass_options, &remarks);
        record::proposals(s, &graph, &remarks, &found);
        if options.passes.remarks {
            edits::tell_of(&graph, &remarks, &found);
        }
    }
    let shown = stages::only_function(options.function.as_deref(), &graph)?;
    out.emit(s, EmitKind::Ir, |_| ir::text::print(&shown))?;
    out.emit(s, EmitKind::Dot, |_| ir::dot(&shown))?;
    Ok(out.go_beyond(EmitKind::Dot).then_some(graph))
}

/// Vector IR as input: reprints it.
fn vector_text(s: &mut Session, options: &CompileOptions, file: FileId, out: &Outputs) -> Result<(), CommandError> {
    let later = EmitKind::ALL.into_iter().find(|kind| *kind > EmitKind::Vector && out.has(*kind));
    if let Some(kind) = later {
        let message = format!("`--emit {}` needs the kernels around the runs; .vir files have runs alone", kind.name());
        return Err(command_line_error(&message));
    }
    s.stage("parse");
    let mut routines = stages::vector_text(s, file)?;
    if let Some(name) = &options.kernel {
        stages::only_routines(&mut routines, name)?;
    }
    out.emit(s, EmitKind::Vector, |_| routine::text::print_all(&routines))
}

/// Cranelift IR as input: reprints or assembles it.
fn clif_text(
    s: &mut Session,
    options: &CompileOptions,
    file: FileId,
    out: &Outputs,
    arch: Arch,
) -> Result<(), CommandError> {
    const ALLOWED: [EmitKind; 2] = [EmitKind::Clif, EmitKind::Asm];
    if let Some(kind) = EmitKind::ALL.into_iter().find(|kind| !ALLOWED.contains(kind) && out.has(*kind)) {
        let message = format!("`--emit {}` needs a model; .clif files contain only functions", kind.name());
        return Err(command_line_error(&message));
    }
    s.stage("parse");
    let mut functions = stages::clif_text(s, file, arch)?;
    if let Some(name) = &options.kernel {
        stages::only_functions(&mut functions, name)?;
    }
    out.emit(s, EmitKind::Clif, |_| clif::print(&functions))?;
    s.stage("generate code");
    match out.has(EmitKind::Asm) {
        true => {
            let asm = stages::assemble(s, &functions, arch, options.asm_bytes)?;
            out.emit(s, EmitKind::Asm, |_| &asm)
        }
        false => Ok(()),
    }
}

/// `attnc check FILE`: reports all errors and warnings.
pub fn check(options: &CheckOptions) -> Result<(), CommandError> {
    if options.watch && options.file == Path::new("-") {
        return Err(command_line_error("`--watch` needs a file; stdin is read once"));
    }
    loop {
        let seen = state_of(&options.file);
        let mut session = Session::new(&options.messages);
        let result = check_in(&mut session, options);
        let result = session.finish(result);
        if !options.watch {
            return result;
        }
        let outcome = if result.is_ok() { "no errors" } else { "errors" };
        let waiting = format!("{outcome}; waiting until `{}` changes (Ctrl-C ends)\n", options.file.display());
        if !session::tell(&waiting) {
            return Err(CommandError::BrokenPipe);
        }
        while state_of(&options.file) == seen {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// When a file was changed, and its length; `None` if it cannot be read now.
fn state_of(path: &Path) -> Option<(std::time::SystemTime, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

fn check_in(s: &mut Session, options: &CheckOptions) -> Result<(), CommandError> {
    let file = s.read(&options.file)?;
    check_file(s, file, &options.file, &options.program)
}

/// Checks a text, of whatever language `path` and the text say; of a program, each of its models
/// too, with these bindings of dimensions.
pub fn check_file(s: &mut Session, file: FileId, path: &Path, bindings: &ProgramOptions) -> Result<(), CommandError> {
    match Source::detect(path, &s.text(file)) {
        Source::Program => {}
        Source::Graph => return stages::graph_text(s, file).map(|_| ()),
        Source::Tile => return stages::tile_text(s, file).map(|_| ()),
        Source::Vector => return stages::vector_text(s, file).map(|_| ()),
        Source::Clif => return stages::clif_text(s, file, Arch::host()).map(|_| ()),
    }
    let program = front_end(s, file, bindings);
    s.stop_on_errors()?;
    // Some errors are found only when a model is bound and lowered. A file without models is valid.
    let mut bindings = bindings.clone();
    let models = program.models().filter(|(_, layer)| layer.module.is_none() && layer.kind == LayerKind::Model);
    let names: Vec<String> = models.map(|(_, layer)| layer.name.clone()).collect();
    if bindings.entry.is_some() || names.len() == 1 {
        let module = stages::lower(s, &program, &bindings)?;
        return stages::check_gradients(s, module);
    }
    for name in names {
        bindings.entry = Some(name);
        let module = stages::lower(s, &program, &bindings)?;
        stages::check_gradients(s, module)?;
    }
    Ok(())
}

/// All checks of a program that do not depend on which model is compiled.
fn front_end(s: &mut Session, file: FileId, bindings: &ProgramOptions) -> Program {
    let mut tree = stages::parse(s, file);
    stages::check(s, &mut tree, bindings)
}

/// `attnc std MODULE`: prints a module of the standard library, or the names of all modules.
pub fn standard_library(options: &StdOptions) -> Result<(), CommandError> {
    let mut text = String::new();
    match &options.module {
        None => modules::MODULES.iter().for_each(|module| text += &format!("{}\n", module.path)),
        Some(name) => match modules::module(name) {
            Some(module) => text += module.text,
            None => {
                let known: Vec<&str> = modules::MODULES.iter().map(|module| module.path).collect();
                let message = format!("there is no module `{name}`; the modules are {}", known.join(", "));
                return Err(command_line_error(&message));
            }
        },
    }
    show(&text)
}
