//! The arguments of `attnc run` and `attnc compare`: NumPy files, literals, and random values.
//!
//! In: the options of a call, and the entry point. Out: a tensor for each argument, in order. A
//! file that cannot be read is an error of the environment; a literal that does not fit its type is
//! an error in the command line.

use super::session::{CommandError, Session, command_line_error, reason};
use super::stages::Tiers;
use crate::bench;
use crate::cli::{CallOptions, Input, Named};
use crate::diagnostics::codes::{driver as codes, weights};
use crate::diagnostics::{Diagnostic, did_you_mean};
use crate::interface::ArgDecl;
use crate::ir;
use crate::random::Random;
use crate::runtime::descriptor::{Entry, ModelDescriptor};
use crate::runtime::npy;
use crate::shape::Elem;
use crate::tensor::Tensor;
use crate::tile::{self, Cpu, PlanVariant, WeightChoice, cost};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// Maximum size of a NumPy file.
const MAX_INPUT: u64 = 16 << 30;
/// Maximum number of elements of a random argument.
const MAX_ELEMENTS: usize = 1 << 32;
/// Maximum nesting of brackets in a literal.
const MAX_DEPTH: usize = 16;

/// Where the arguments of a call were given, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said<'a> {
    /// By options of the command line: `--input x=3`.
    Options,
    /// In a line of a file of calls, `step(x = 3)`; the string is its location.
    Line(&'a str),
}

impl Said<'_> {
    /// Formats an argument with its value.
    fn argument(self, name: &str, value: &str) -> String {
        match self {
            Said::Options => format!("--input {name}={value}"),
            Said::Line(_) => format!("{name} = {value}"),
        }
    }

    /// Formats an error about it.
    pub(super) fn error(self, why: &str) -> CommandError {
        match self {
            Said::Options => command_line_error(why),
            Said::Line(place) => command_line_error(&format!("{place}: {why}")),
        }
    }
}

/// The given arguments, in declaration order; all must be given, unless the others are random.
pub(super) fn given(
    s: &mut Session,
    (name, declared): (&str, &[ArgDecl]),
    options: &CallOptions,
    said: Said<'_>,
) -> Result<Vec<Option<Tensor>>, CommandError> {
    for (i, input) in options.input.iter().enumerate() {
        if !declared.iter().any(|arg| arg.name == input.name) {
            let known = declared.iter().map(|arg| arg.name.as_str());
            let hint = match did_you_mean(&input.name, known.clone()) {
                Some(near) => format!("; did you mean `{near}`?"),
                None if declared.is_empty() => "; it takes none".to_string(),
                None => format!("; it takes {}", known.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
            };
            return Err(said.error(&format!("`{}` has no argument `{}`{hint}", name, input.name)));
        }
        if options.input.iter().take(i).any(|other| other.name == input.name) {
            return Err(said.error(&format!("`--input {}` is given twice", input.name)));
        }
    }
    let mut args = Vec::new();
    for arg in declared {
        args.push(match options.input.iter().find(|input| input.name == arg.name).map(|input| &input.value) {
            Some(Input::File(path)) => {
                s.reads(path);
                let read = read_npy(path);
                let read = read.map_err(|message| s.fail(Diagnostic::error(codes::UNREADABLE, message)))?;
                if !becomes(read.elem(), arg.ty.elem) {
                    s.diagnostics.push(other_type(&arg.name, arg.ty.elem, path, read.elem()));
                    return Err(CommandError::Program);
                }
                Some(read)
            }
            Some(Input::Literal(text)) => {
                let made = literal(text, arg.ty.elem);
                let shown = said.argument(&arg.name, text);
                Some(made.map_err(|why| said.error(&format!("`{shown}`: {why}")))?)
            }
            None if options.random.is_some() => None,
            None => {
                let axes = arg.ty.shape.iter().skip(usize::from(arg.batch)).map(ToString::to_string);
                let axes: Vec<String> = arg.batch.then(|| "..".to_string()).into_iter().chain(axes).collect();
                let ty = format!("{}[{}]", arg.ty.elem, axes.join(", "));
                let (name, shown) = (&arg.name, said.argument(&arg.name, "FILE.npy"));
                let message =
                    format!("the argument `{name}: {ty}` is missing; give `{shown}`, a literal, or `--random`");
                return Err(said.error(&message));
            }
        });
    }
    Ok(args)
}

/// Can an array of type `found` be converted to an argument of type `expected`? Integers can, if
/// their values fit.
fn becomes(found: Elem, expected: Elem) -> bool {
    found == expected || matches!((found, expected), (Elem::I32, Elem::I64) | (Elem::I64, Elem::I32))
}

/// The error for a file whose element type is not that of the argument.
fn other_type(name: &str, expected: Elem, path: &Path, found: Elem) -> Diagnostic {
    let message = format!("argument `{name}`: expected {expected}, found {found} in `{}`", path.display());
    let numpy = match expected {
        Elem::F32 => "np.float32",
        Elem::F16 => "np.float16",
        Elem::BF16 => "ml_dtypes.bfloat16",
        Elem::I8 => "np.int8",
        Elem::I32 => "np.int32",
        Elem::I64 => "np.int64",
        Elem::Bool => "bool",
    };
    Diagnostic::error(weights::CALL, message)
        .help(format!("convert the array before it is saved: `np.save(path, x.astype({numpy}))`"))
}

/// The error for weights that cannot be read or do not match the program.
pub(super) fn wrong_weights(message: String) -> Diagnostic {
    let matches = !message.contains("does not match");
    let error = Diagnostic::error(weights::WEIGHTS, message);
    if matches {
        error.help(
            "weights are a safetensors file, or the index of several (`model.safetensors.index.json`); `--random` takes random values \
             instead",
        )
    } else {
        error.help(
            "`#[name = \"..\"]` before a field gives its name in the file; `--emit header` lists all that are expected",
        )
    }
}

/// Requires the weights file to be a regular file, which can be mapped, and records it as an input.
pub(super) fn weights(s: &mut Session, path: &Path) -> Result<(), CommandError> {
    s.reads(path);
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let message = format!("cannot read weights file `{}`: it is not a regular file", path.display());
        return Err(s.fail(wrong_weights(message)));
    }
    Ok(())
}

fn read_npy(path: &Path) -> Result<Tensor, String> {
    let shown = path.display();
    let unreadable = |why: &str| format!("cannot read `{shown}`: {why}");
    let data = std::fs::metadata(path).map_err(|error| unreadable(&reason(&error)))?;
    if data.is_dir() {
        return Err(unreadable("it is a directory"));
    }
    // Devices are endless, and a pipe may have no writer.
    if !data.is_file() {
        return Err(unreadable("it is not a regular file"));
    }
    if data.len() > MAX_INPUT {
        return Err(unreadable("it is longer than 16 GiB"));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(&reason(&error)))?;
    npy::parse(&bytes).map_err(|why| unreadable(&why))
}

/// The program of a call, from which the bounds of indices are known.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    /// Graph IR.
    Graph(&'a ir::Module),
    /// Tile IR.
    Tile(&'a tile::Module),
}

impl<'a> Work<'a> {
    /// The names and the arguments of the entry points.
    pub(super) fn entries(self) -> Vec<(&'a str, &'a [ArgDecl])> {
        match self {
            Work::Graph(graph) => {
                let plain = graph.functions.iter().filter(|f| !f.tapped);
                plain.map(|f| (f.name.as_str(), f.args.as_slice())).collect()
            }
            Work::Tile(tiles) => tiles.entries.iter().map(|e| (e.name.as_str(), e.args.as_slice())).collect(),
        }
    }
}

/// All arguments: the given ones, and random ones for the rest.
pub(super) fn all(
    s: &mut Session,
    given: Vec<Option<Tensor>>,
    work: Work<'_>,
    model: &ModelDescriptor,
    name: &str,
    options: &CallOptions,
) -> Result<Vec<Tensor>, CommandError> {
    let Some(seed) = options.random else { return Ok(given.into_iter().flatten().collect()) };
    let Some(entry) = model.entries.iter().find(|entry| entry.name == name) else {
        return Err(command_line_error("the entry point was not found"));
    };
    let lead = lead(entry, &given);
    let sizes = sizes(entry, &given, lead.as_deref(), &options.size)?;
    let batch = entry.batch_symbol.and_then(|i| entry.symbols.get(i)).and_then(|batch| sizes.get(&batch.name));
    let lead = lead.unwrap_or_else(|| batch.and_then(|n| usize::try_from(*n).ok()).into_iter().collect());
    let drawn = |i: usize| given.get(i).is_none_or(Option::is_none);
    let has_integers = entry.args.iter().enumerate().any(|(i, arg)| drawn(i) && !arg.elem.is_float());
    let bounds = if has_integers { bounds(s, work, name, &sizes)? } else { BTreeMap::new() };

    let mut rng = Random::new(seed.wrapping_add(1));
    let mut args = Vec::new();
    for (i, (arg, value)) in entry.args.iter().zip(given).enumerate() {
        if let Some(value) = value {
            args.push(value);
            continue;
        }
        let dims = arg.dims.iter().map(|d| d.dim.eval(&|s| sizes.get(s).copied()).ok());
        let dims = dims.map(|n| n.and_then(|n| usize::try_from(n).ok()));
        let first = if arg.batch { lead.as_slice() } else { &[] };
        let shape: Option<Vec<usize>> = first.iter().copied().map(Some).chain(dims).collect();
        let is_small = |shape: &Vec<usize>| {
            shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).is_some_and(|n| n <= MAX_ELEMENTS)
        };
        let bound = u32::try_from(i).ok().and_then(|i| bounds.get(&i)).copied();
        match shape.filter(is_small).and_then(|shape| bench::tensor(&mut rng, arg.elem, &shape, bound)) {
            Some(tensor) => args.push(tensor),
            None => {
                let message = format!("the argument `{}` has an invalid or too large shape at these sizes", arg.name);
                return Err(command_line_error(&message));
            }
        }
    }
    Ok(args)
}

/// The leading axes of a call, if an argument with such axes is given.
fn lead(entry: &Entry, given: &[Option<Tensor>]) -> Option<Vec<usize>> {
    entry.args.iter().zip(given).filter(|(arg, _)| arg.batch).find_map(|(arg, value)| {
        let shape = value.as_ref()?.shape();
        shape.get(..shape.len().checked_sub(arg.dims.len())?).map(<[usize]>::to_vec)
    })
}

/// A value for each run-time dimension: from `--size`, or else from the given arguments; 1 for the
/// batch.
fn sizes(
    entry: &Entry,
    given: &[Option<Tensor>],
    lead: Option<&[usize]>,
    chosen: &[Named<u64>],
) -> Result<BTreeMap<String, i64>, CommandError> {
    let mut sizes = BTreeMap::new();
    for size in chosen {
        let known = || entry.symbols.iter().map(|symbol| symbol.name.as_str());
        if !known().any(|name| name == size.name) {
            let near = did_you_mean(&size.name, known());
            let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(command_line_error(&format!(
                "`{}` has no run-time dimension `{}`{hint} (compile-time dimensions are bound with `--dim`)",
                entry.name, size.name
            )));
        }
        sizes.insert(size.name.clone(), i64::try_from(size.value).unwrap_or(i64::MAX));
    }
    let mut missing = Vec::new();
    for (i, symbol) in entry.symbols.iter().enumerate() {
        if sizes.contains_key(&symbol.name) {
            continue;
        }
        let value = if entry.batch_symbol == Some(i) {
            let product = |lead: &[usize]| lead.iter().try_fold(1i64, |n, d| n.checked_mul(i64::try_from(*d).ok()?));
            lead.map_or(Some(1), product)
        } else {
            extent(entry, given, symbol.arg, symbol.axis)
                .and_then(|extent| extent.checked_sub(symbol.offset)?.checked_div(symbol.scale))
        };
        match value {
            Some(value) => drop(sizes.insert(symbol.name.clone(), value)),
            None => missing.push(symbol.name.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(sizes);
    }
    let names = missing.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let how = missing.iter().map(|name| format!("{name}=N")).collect::<Vec<_>>().join(",");
    Err(command_line_error(&format!(
        "random arguments of `{}` need values for {names}: use `--size {how}`",
        entry.name
    )))
}

/// The value of each run-time dimension of a call.
pub(super) fn symbols(entry: &Entry, args: &[Tensor]) -> Result<BTreeMap<String, i64>, CommandError> {
    let given: Vec<Option<Tensor>> = args.iter().cloned().map(Some).collect();
    sizes(entry, &given, lead(entry, &given).as_deref(), &[])
}

/// The extent of a given argument along an axis after the leading ones.
fn extent(entry: &Entry, given: &[Option<Tensor>], arg: usize, axis: usize) -> Option<i64> {
    let shape = given.get(arg)?.as_ref()?.shape();
    let lead = shape.len().checked_sub(entry.args.get(arg)?.dims.len())?;
    i64::try_from(*shape.get(lead + axis)?).ok()
}

/// Exclusive upper bounds of integer arguments that are used as indices, where known.
fn bounds(
    s: &mut Session,
    work: Work<'_>,
    name: &str,
    sizes: &BTreeMap<String, i64>,
) -> Result<BTreeMap<u32, i64>, CommandError> {
    let lowered;
    let tiles = match work {
        Work::Tile(tiles) => tiles,
        Work::Graph(graph) => {
            lowered = Tiers::lower(s, graph, &[Cpu::PORTABLE], &WeightChoice::default())?;
            let Some(tiles) = lowered.module(Cpu::PORTABLE) else { return Ok(BTreeMap::new()) };
            tiles
        }
    };
    Ok(cost::plan(tiles, name, PlanVariant::Plain, sizes).map(|walked| walked.bounds).unwrap_or_default())
}

/// Parses a literal: a number or truth value, or nested lists of them with equal lengths at each
/// depth.
fn literal(text: &str, elem: Elem) -> Result<Tensor, String> {
    let mut reader = Reader { rest: text.trim(), words: Vec::new() };
    let shape = reader.value(0)?;
    if !reader.rest.is_empty() {
        return Err(format!("unexpected `{}` after the value", reader.rest));
    }
    let made = if elem.is_float() {
        let float = |word: &&str| word.parse::<f64>().map_err(|_| format!("expected {elem}, found `{word}`"));
        let floats: Vec<f64> = reader.words.iter().map(float).collect::<Result<_, String>>()?;
        Tensor::from_floats(elem, shape, &floats)
    } else {
        let ints: Vec<i64> = reader.words.iter().map(|word| integer(word, elem)).collect::<Result<_, String>>()?;
        Tensor::from_ints(elem, shape, &ints)
    };
    made.ok_or_else(|| "this is not a tensor".to_string())
}

fn integer(word: &str, elem: Elem) -> Result<i64, String> {
    let value = match (elem, word) {
        (Elem::Bool, "true") => Some(1),
        (Elem::Bool, "false") => Some(0),
        _ => word.parse::<i64>().ok(),
    };
    let fits = |n: &i64| match elem {
        Elem::Bool => (0..=1).contains(n),
        Elem::I8 => i8::try_from(*n).is_ok(),
        Elem::I32 => i32::try_from(*n).is_ok(),
        Elem::I64 | Elem::F32 | Elem::F16 | Elem::BF16 => true,
    };
    value.filter(fits).ok_or_else(|| format!("expected {elem}, found `{word}`"))
}

/// Parser of literals; `words` are the elements in row-major order.
struct Reader<'a> {
    rest: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, sign: char) -> bool {
        let taken = self.rest.strip_prefix(sign);
        self.rest = taken.unwrap_or(self.rest).trim_start();
        taken.is_some()
    }

    /// Parses a value; returns its shape.
    fn value(&mut self, depth: usize) -> Result<Vec<usize>, String> {
        if !self.take('[') {
            let end = self.rest.find([',', ']', '[']).unwrap_or(self.rest.len());
            let (word, rest) = self.rest.split_at(end);
            self.rest = rest;
            let word = word.trim_end();
            return if word.is_empty() { Err("expected a number".to_string()) } else { Ok(self.push(word)) };
        }
        if depth == MAX_DEPTH {
            return Err("the brackets are nested too deeply".to_string());
        }
        let (mut count, mut shape) = (0, Vec::new());
        while !self.take(']') {
            let one = self.value(depth + 1)?;
            if count > 0 && one != shape {
                return Err("the lists have different lengths".to_string());
            }
            (count, shape) = (count + 1, one);
            if !self.take(',') && !self.rest.starts_with(']') {
                return Err("expected `]`".to_string());
            }
        }
        shape.insert(0, count);
        Ok(shape)
    }

    fn push(&mut self, word: &'a str) -> Vec<usize> {
        self.words.push(word);
        Vec::new()
    }
}

/// The given weights file, or a file with random weights; `None` for a model without parameters.
pub(super) fn weights_file(
    s: &mut Session,
    model: &ModelDescriptor,
    given: Option<&Path>,
    seed: u64,
    folder: &Path,
) -> Result<Option<PathBuf>, CommandError> {
    if given.is_some() || model.params.is_empty() {
        return Ok(given.map(Path::to_path_buf));
    }
    let path = folder.join("weights.safetensors");
    let write = || {
        let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(&path)?);
        bench::write_weights(&mut Random::new(seed), &model.params, &mut file)?;
        file.flush()
    };
    match write() {
        Ok(()) => Ok(Some(path)),
        Err(error) => {
            let message = format!("cannot write random weights to `{}`: {}", path.display(), reason(&error));
            Err(s.fail(Diagnostic::error(codes::UNWRITABLE, message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_tensors() {
        let of = |text: &str, elem| literal(text, elem).map(|t| (t.shape().to_vec(), t.to_f64()));
        let shaped = |shape: &[usize], values: &[f64]| Ok((shape.to_vec(), values.to_vec()));
        assert_eq!(of("3", Elem::I32), shaped(&[], &[3.0]));
        assert_eq!(of("[[1, 2], [3,4.5],]", Elem::F32), shaped(&[2, 2], &[1.0, 2.0, 3.0, 4.5]));
        assert_eq!(of("[-inf, 1e3]", Elem::BF16), shaped(&[2], &[f64::NEG_INFINITY, 1000.0]));
        assert_eq!(literal("[true, 0]", Elem::Bool).unwrap().to_i64(), [1, 0]);
        assert_eq!(of("[]", Elem::F32), shaped(&[0], &[]));
        assert_eq!(of("[[], []]", Elem::I64), shaped(&[2, 0], &[]));
        for (text, elem, why) in [
            ("2.5", Elem::I32, "expected i32, found `2.5`"),
            ("128", Elem::I8, "expected i8, found `128`"),
            ("2", Elem::Bool, "expected bool, found `2`"),
            ("[1, [2]]", Elem::F32, "different lengths"),
            ("[[1], [2, 3]]", Elem::F32, "different lengths"),
            ("[1, 2", Elem::F32, "expected `]`"),
            ("[1 2]", Elem::F32, "expected f32, found `1 2`"),
            ("[1,,2]", Elem::F32, "expected a number"),
            ("[1] [2]", Elem::F32, "unexpected `[2]`"),
            ("true", Elem::F32, "expected f32, found `true`"),
            (&"[".repeat(1000), Elem::F32, "too deeply"),
        ] {
            assert!(literal(text, elem).is_err_and(|told| told.contains(why)), "{text}");
        }
    }
}
