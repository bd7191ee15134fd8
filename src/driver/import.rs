//! `attnc import DIR`: converts a checkpoint of the Hugging Face hub to a program; `attnc import
//! model.gguf`: the same for a GGUF file of llama.cpp.
//!
//! In: a folder with `config.json`, optionally `generation_config.json`, and safetensors files; or
//! a GGUF file. Out: the program of [`crate::import`], checked against the checkpoint: each of its
//! parameters must have a tensor of that name and shape.

use super::session::{CommandError, Session, command_line_error, message, reason};
use super::stages;
use crate::cli::{ImportOptions, ProgramOptions};
use crate::diagnostics::codes::{driver as codes, weights};
use crate::diagnostics::{Diagnostic, Severity};
use crate::import::{self, Config, Modules, Names, Refusal, gguf};
use crate::runtime::weights::{WeightsFile, members};
use crate::types;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The weights of a checkpoint: one file, or an index of several.
const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// `attnc import DIR -o model.attn`
pub fn import(options: &ImportOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let result = import_in(&mut session, options);
    session.finish(result)
}

fn import_in(s: &mut Session, options: &ImportOptions) -> Result<(), CommandError> {
    let given = options.folder.as_path();
    // A file in the folder stands for the folder.
    let is_of_folder = ["config.json", WHOLE, INDEX].iter().any(|name| given.file_name() == Some(OsStr::new(name)));
    let folder = given.parent().filter(|_| is_of_folder && given.is_file()).unwrap_or(given);
    if folder.is_file() {
        return gguf(s, options);
    }
    if let Some(name) = given.to_str().filter(|name| is_on_the_hub(name) && !given.exists()) {
        let message = format!("`{name}` is not a folder, and attnc downloads nothing");
        let local = name.rsplit('/').next().unwrap_or(name);
        let help = format!(
            "fetch the model `{name}` first: `hf download {name} --local-dir {local}`, then `attnc import {local}`"
        );
        return Err(s.fail(Diagnostic::error(codes::UNREADABLE, message).help(help)));
    }
    let stdout = PathBuf::from("-");
    let output = options.output.as_ref().unwrap_or(&stdout);
    let config_path = folder.join("config.json");
    let file = s.read(&config_path)?;
    let (weights, tensors) = checkpoint(s, folder)?;
    s.claim(output)?;
    let text = s.text(file);
    let mut config = Config::parse(&text, &options.ignore).map_err(|refusal| refused(s, &config_path, refusal))?;
    let writing = folder.join("generation_config.json");
    if writing.exists() {
        let file = s.read(&writing)?;
        let text = s.text(file);
        config.writes_by(&text).map_err(|refusal| refused(s, &writing, refusal))?;
    }
    let modules = folder.join("modules.json");
    if modules.exists() {
        let file = s.read(&modules)?;
        let text = s.text(file);
        if let Some(made) = Modules::parse(&text).map_err(|refusal| refused(s, &modules, refusal))? {
            let path = folder.join(&made.pooling).join("config.json");
            let file = s.read(&path)?;
            let text = s.text(file);
            config.pools_by(made.pooled_by(&text).map_err(|refusal| refused(s, &path, refusal))?);
        }
    }
    let program = program(s, &config, &tensors, [folder, &config_path, &weights, output])?;
    s.write(output, program.as_bytes())
}

/// Could this be the name of a model on the hub, `owner/name`, where no folder `owner` is?
fn is_on_the_hub(name: &str) -> bool {
    let letters = |part: &str| {
        part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            && !part.starts_with('.')
            && !part.is_empty()
    };
    let is_file = |name: &str| [".gguf", ".json", ".safetensors"].iter().any(|end| name.ends_with(end));
    name.split_once('/')
        .is_some_and(|(owner, model)| letters(owner) && letters(model) && !is_file(model) && !Path::new(owner).exists())
}

/// A GGUF file: writes the program, and the tensors as a safetensors file beside it.
fn gguf(s: &mut Session, options: &ImportOptions) -> Result<(), CommandError> {
    let path = &options.folder;
    let Some(output) = options.output.as_ref().filter(|output| **output != Path::new("-")) else {
        let message = "a GGUF file becomes a program and a safetensors file beside it; say where: `-o model.attn`";
        return Err(command_line_error(message));
    };
    s.reads(path);
    let unreadable = |s: &mut Session, error: &std::io::Error| {
        let message = format!("cannot read `{}`: {}", path.display(), reason(error));
        s.fail(Diagnostic::error(codes::UNREADABLE, message))
    };
    let file = std::fs::File::open(path).map_err(|error| unreadable(s, &error))?;
    // SAFETY: the file is not changed while attnc reads it, as with all weights.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| unreadable(s, &error))?;
    let read = gguf::read(&bytes).and_then(|file| gguf::model(file, &options.ignore));
    let model = read.map_err(|refusal| refused(s, path, refusal))?;
    let weights = output.with_extension("safetensors");
    s.claim(output)?;
    s.claim(&weights)?;
    // The user did not name this file, so it may be an unrelated checkpoint.
    if weights.exists() {
        let message = format!("its tensors would overwrite `{}`", weights.display());
        let help = "write to another place by `-o`, or remove that file first".to_owned();
        return Err(refused(s, path, Refusal { message, help: Some(help) }));
    }
    let tensors = model.shapes().map(|(name, shape)| (name.to_owned(), shape)).collect();
    let program = program(s, &model.config, &tensors, [path, path, &weights, output])?;
    s.write_by(&weights, &|out| model.write(out), false)?;
    s.write(output, program.as_bytes())?;
    let (kinds, here, there) = model.expanded();
    if !kinds.is_empty() {
        let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} in {kind}")).collect();
        let (weights, kinds) = (weights.display(), kinds.join(", "));
        let text = format!("`{weights}` has the quantised tensors ({kinds}) as f32, exactly");
        let sizes = format!("{:.1} MB became {:.1} MB", here as f64 / 1e6, there as f64 / 1e6);
        message(Severity::Note, &text, &[sizes]);
    }
    Ok(())
}

fn refused(s: &mut Session, about: &Path, refusal: Refusal) -> CommandError {
    let message = format!("cannot import `{}`: {}", about.display(), refusal.message);
    let diagnostic = Diagnostic::error(codes::NOT_IMPORTED, message);
    s.fail(refusal.help.into_iter().fold(diagnostic, Diagnostic::help))
}

/// Shapes of the tensors of a checkpoint, by name.
type Shapes = BTreeMap<String, Vec<u64>>;

/// The program of a configuration, checked against the tensors. The paths refer to
/// the checkpoint, its configuration, its weights, and the program.
fn program(
    s: &mut Session,
    config: &Config,
    tensors: &Shapes,
    [checkpoint, config_path, weights, output]: [&Path; 4],
) -> Result<String, CommandError> {
    let of: Names = tensors.keys().cloned().collect();
    let made = import::import(config, &of).map_err(|refusal| refused(s, config_path, refusal))?;
    let shown = output
        .file_name()
        .filter(|_| output != Path::new("-"))
        .map_or("model.attn".to_owned(), |name| in_a_comment(Path::new(name)));
    let head = format!(
        "// {} as a program: made by `attnc import` of {}.\n// It runs with that checkpoint as it is:\n//\n//     attnc run {shown} --weights {} ...\n\n",
        made.model,
        in_a_comment(config_path),
        in_a_comment(weights),
    );
    let program = format!("{head}{}", made.text);
    if let Some(refusal) = unlike(s, &program, tensors, &made.model)? {
        return Err(refused(s, checkpoint, refusal));
    }
    Ok(program)
}

/// Escapes a path for a single-line comment.
fn in_a_comment(path: &Path) -> String {
    path.display().to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The weights of a folder, and the shapes of their tensors.
fn checkpoint(s: &mut Session, folder: &Path) -> Result<(PathBuf, Shapes), CommandError> {
    let (whole, index) = (folder.join(WHOLE), folder.join(INDEX));
    let Some(path) = [whole, index].into_iter().find(|path| path.exists()) else {
        let message = format!("`{}` has neither `{WHOLE}` nor `{INDEX}`", folder.display());
        let help = "other formats of weights (`pytorch_model.bin`) are programs of their own; save the model with \
                    `save_pretrained(..., safe_serialization=True)`";
        return Err(s.fail(Diagnostic::error(codes::NOT_IMPORTED, message).help(help)));
    };
    let files = WeightsFile::open(&path).map_err(|text| s.fail(Diagnostic::error(weights::WEIGHTS, text)))?;
    s.reads(&path);
    Ok((path, files.shapes()))
}

/// Checks the parameters of the program against the checkpoint: tensors that are missing or have
/// another shape.
fn unlike(s: &mut Session, program: &str, tensors: &Shapes, model: &str) -> Result<Option<Refusal>, CommandError> {
    let file = s.sources.add("the imported program", program);
    let tree = stages::parse(s, file);
    let typed = types::check(&tree, &mut s.sources, &mut s.diagnostics);
    s.stop_on_errors()?;
    let module = stages::lower(s, &typed, &ProgramOptions::default())?;
    // If an array has more layers than the checkpoint has tensors, one of the first few is missing.
    let enough = tensors.len() as u64 + 1;
    let needed = module.params.iter().flat_map(|param| {
        let counts: Vec<u64> = param.counts.iter().map(|count| (*count).min(enough)).collect();
        members(&param.name, &counts).into_iter().map(move |name| (name, &param.ty))
    });
    let (mut missing, mut others) = (Vec::new(), Vec::new());
    for (name, ty) in needed {
        let Some(shape) = tensors.get(&name) else {
            missing.push(name);
            continue;
        };
        let wanted = ty.shape.iter().map(|extent| extent.as_const().and_then(|extent| u64::try_from(extent).ok()));
        if !wanted.eq(shape.iter().copied().map(Some)) {
            others.push((name, shape, ty));
        }
    }
    let more = |count: usize| if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
    if let Some(first) = missing.first() {
        let message = format!("the checkpoint has no tensor `{first}`{}, which a {model} needs", more(missing.len()));
        return Ok(Some(Refusal { message, help: None }));
    }
    Ok(others.first().map(|(name, shape, ty)| {
        let more = match others.len() {
            1 => String::new(),
            2 => ", and of another one too".to_owned(),
            count => format!(", and of {} others too", count - 1),
        };
        let message = format!("the tensor `{name}` has the shape {shape:?}, and by the configuration it is {ty}{more}");
        let help =
            "the configuration must be that of these weights; look at its sizes (layers, width, heads, vocabulary)";
        Refusal { message, help: Some(help.to_owned()) }
    }))
}
