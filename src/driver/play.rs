//! `attnc play`: a local page to write, compile and run programs.
//!
//! In: a program, or a lesson of the course. Out: the address of the page on stdout; then it serves
//! until Ctrl-C. `--describe`, which the page's server calls, prints the interface of a program as
//! JSON instead, as far as the program has one.

use super::call::read_graph;
use super::learn::exercise_list;
use super::outputs::Source;
use super::session::{CommandError, Session, command_line_error, environment_error, reason, show};
use super::stages;
use crate::cli::{PlayOptions, ProgramOptions};
use crate::play::{self, Limits, Settings};
use crate::runtime::descriptor::{DimText, Entry, ModelDescriptor, Tensor};
use crate::types::typed::{GenericKind, Program};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// `attnc play [PROGRAM]`
pub fn play(options: &PlayOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    if options.describe {
        let result = describe(&mut session, options);
        return session.finish(result);
    }
    let start = match start(&mut session, options) {
        Ok(start) => start,
        Err(error) => return session.finish(Err(error)),
    };
    let attnc = std::env::current_exe().map_err(|e| environment_error(&format!("attnc does not find itself: {e}")))?;
    let limits = Limits { seconds: options.seconds, bytes: options.memory << 20 };
    let settings = Settings { attnc, start, exercises: exercise_list(), limits };
    let server = play::listen(options.port, settings)
        .map_err(|e| environment_error(&format!("cannot listen on port {}: {}", options.port, reason(&e))))?;
    let address = server.address();
    show(&format!("{address}\nOnly this machine can open this page. Ctrl-C ends.\n"))?;
    if !options.no_open {
        open(&address);
    }
    server.serve().map_err(|error| environment_error(&format!("cannot serve: {}", reason(&error))))
}

/// The file or lesson that the page opens first.
fn start(s: &mut Session, options: &PlayOptions) -> Result<Value, CommandError> {
    let Some(name) = &options.program else { return Ok(Value::Null) };
    if name.starts_with('#') {
        return Ok(json!({ "fragment": name }));
    }
    let path = Path::new(name);
    let exercises = exercise_list();
    let is_it = |e: &&Value| e["name"].as_str() == Some(name);
    if !path.exists() {
        if let Some(chapter) = play::chapter(name) {
            return Ok(json!({ "chapter": chapter }));
        }
        if let Some(exercise) = exercises.as_array().and_then(|all| all.iter().find(is_it)) {
            return Ok(json!({ "exercise": exercise["name"] }));
        }
        if !name.contains(['.', '/']) {
            return Err(command_line_error(&format!(
                "there is no file, chapter or exercise `{name}`; chapters have numbers, and `attnc learn` lists the exercises"
            )));
        }
    }
    let file = s.read(path)?;
    let text = s.text(file);
    let ending = match Source::detect(path, &text) {
        Source::Program => "attn",
        Source::Graph => "air",
        Source::Tile => "tir",
        Source::Vector => "vir",
        Source::Clif => return Err(command_line_error("the page has no editor for Cranelift IR")),
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let stem: String = stem.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let stem = stem.trim_start_matches('-');
    let stem = if stem.is_empty() { "program" } else { stem };
    Ok(json!({ "file": format!("{stem}.{ending}"), "text": text }))
}

/// Opens the page in the user's browser, if there is a desktop.
fn open(address: &str) {
    if ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some()) {
        let quiet = Command::new("xdg-open")
            .arg(address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // The address was printed.
        drop(quiet);
    }
}

/// Prints the interface of a program. Of one that cannot be lowered, such as one with unbound
/// dimensions, it has the models.
fn describe(s: &mut Session, options: &PlayOptions) -> Result<(), CommandError> {
    let path = Path::new(options.program.as_deref().unwrap_or("-"));
    let mut bindings = ProgramOptions { dims: options.dim.clone(), entry: options.entry.clone() };
    let file = s.read(path)?;
    let mut models = Vec::new();
    if Source::detect(path, &s.text(file)) == Source::Program {
        let program = super::front_end(s, file, &bindings);
        s.stop_on_errors()?;
        models = models_of(&program);
        if bindings.entry.is_none() {
            bindings.entry = models.first().and_then(|model| model["name"].as_str()).map(String::from);
        }
    }
    let model = bindings.entry.clone();
    // The messages come from the second reading.
    let mut second = Session::new(&options.messages);
    let described = read_graph(&mut second, path, &bindings, "play")
        .and_then(|graph| stages::describe(&mut second, &graph.interface(), &graph.model, &graph.doc));
    let sizes: BTreeMap<String, i64> =
        options.size.iter().map(|size| (size.name.clone(), i64::try_from(size.value).unwrap_or(i64::MAX))).collect();
    let entries = described.as_ref().map(|model| entries(model, &sizes)).unwrap_or_default();
    let has_params = described.as_ref().is_ok_and(|model| !model.params.is_empty());
    show(&json!({ "models": models, "model": model, "entries": entries, "parameters": has_params }).to_string())?;
    second.finish(described.map(|_| ()))
}

/// The models of a program with their generics.
fn models_of(program: &Program) -> Vec<Value> {
    let generics = |layer: &crate::types::typed::Layer| -> Vec<Value> {
        let one = |generic: &crate::types::typed::Generic| {
            let default = match &generic.kind {
                GenericKind::Dim { default } => default.as_ref().map(ToString::to_string),
                GenericKind::Elem(elem) => Some(elem.to_string()),
                GenericKind::Const { .. } => return None,
            };
            Some(json!({ "name": generic.name, "default": default }))
        };
        layer.generics.iter().filter_map(one).collect()
    };
    let models = program.models().filter(|(_, layer)| layer.module.is_none());
    models.map(|(_, layer)| json!({ "name": layer.name, "dims": generics(layer) })).collect()
}

/// The entry points of a model; shapes of arguments for these sizes, where they determine them.
fn entries(model: &ModelDescriptor, sizes: &BTreeMap<String, i64>) -> Vec<Value> {
    let entry = |entry: &Entry| {
        let value = |dim: &DimText| dim.dim.eval(&|symbol| sizes.get(symbol).copied()).ok();
        let batch = entry.batch_symbol.and_then(|i| entry.symbols.get(i)).map(|symbol| &symbol.name);
        let tensor = |tensor: &Tensor| {
            let lead = batch.filter(|_| tensor.batch).map(|name| sizes.get(name).copied().or(Some(1)));
            let shape: Option<Vec<i64>> = lead.into_iter().chain(tensor.dims.iter().map(value)).collect();
            let dims: Vec<&str> =
                tensor.batch.then_some("..").into_iter().chain(tensor.dims.iter().map(|d| d.text.as_str())).collect();
            json!({ "name": tensor.name, "elem": tensor.elem.name(), "dims": dims, "shape": shape })
        };
        json!({
            "name": entry.name,
            "doc": entry.doc,
            "signature": entry.signature,
            "symbols": entry.symbols.iter().map(|symbol| &symbol.name).collect::<Vec<_>>(),
            "args": entry.args.iter().map(tensor).collect::<Vec<_>>(),
        })
    };
    model.entries.iter().map(entry).collect()
}
