//! Types of option values: output formats, instruction sets, names with numbers.
//!
//! In: an argument of the command line. Out: its value, or an error message.

use crate::diagnostics::did_you_mean;
use crate::shape::Elem;
use clap::ValueEnum;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// An output format with an optional path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Emit {
    /// The format.
    pub kind: EmitKind,
    /// The path in `ir=model.air`.
    pub path: Option<PathBuf>,
}

impl FromStr for Emit {
    type Err = String;

    fn from_str(text: &str) -> Result<Emit, String> {
        let (kind, path) = match text.split_once('=') {
            Some((_, "")) => return Err("a path must follow `=`".to_string()),
            Some((kind, path)) => (kind, Some(PathBuf::from(path))),
            None => (text, None),
        };
        let found = EmitKind::ALL.into_iter().find(|known| known.name() == kind);
        let unknown = || match did_you_mean(kind, EmitKind::ALL.map(EmitKind::name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known formats are {}", EmitKind::ALL.map(EmitKind::name).join(", ")),
        };
        Ok(Emit { kind: found.ok_or_else(unknown)?, path })
    }
}

/// The output formats, in the order of the pipeline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EmitKind {
    /// The tokens, as the parser receives them.
    Tokens,
    /// The syntax tree.
    Ast,
    /// The typed tree.
    Types,
    /// The graph IR after the pipeline.
    Ir,
    /// The graph IR as a Graphviz graph.
    Dot,
    /// The tile IR.
    Tile,
    /// The vector IR.
    Vector,
    /// Cranelift's IR.
    Clif,
    /// Virtual-register code of the leaf functions of runs.
    Mir,
    /// Machine code as text.
    Asm,
    /// PTX, for GPUs.
    Ptx,
    /// Machine code for GPUs as text.
    Sass,
    /// The object file before linking.
    Obj,
    /// The shared library.
    So,
    /// The C header.
    Header,
    /// The Python wrapper.
    Python,
    /// All stages as data.
    Record,
    /// The same as a page to look at.
    Html,
}

impl EmitKind {
    /// All formats, in the order of the pipeline.
    pub const ALL: [EmitKind; 18] = [
        EmitKind::Tokens,
        EmitKind::Ast,
        EmitKind::Types,
        EmitKind::Ir,
        EmitKind::Dot,
        EmitKind::Tile,
        EmitKind::Vector,
        EmitKind::Clif,
        EmitKind::Mir,
        EmitKind::Asm,
        EmitKind::Ptx,
        EmitKind::Sass,
        EmitKind::Obj,
        EmitKind::So,
        EmitKind::Header,
        EmitKind::Python,
        EmitKind::Record,
        EmitKind::Html,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EmitKind::Tokens => "tokens",
            EmitKind::Ast => "ast",
            EmitKind::Types => "types",
            EmitKind::Ir => "ir",
            EmitKind::Tile => "tile",
            EmitKind::Vector => "vector",
            EmitKind::Clif => "clif",
            EmitKind::Mir => "mir",
            EmitKind::Asm => "asm",
            EmitKind::Ptx => "ptx",
            EmitKind::Sass => "sass",
            EmitKind::Obj => "obj",
            EmitKind::So => "so",
            EmitKind::Header => "header",
            EmitKind::Python => "python",
            EmitKind::Record => "record",
            EmitKind::Html => "html",
            EmitKind::Dot => "dot",
        }
    }

    /// The extension of its files.
    pub fn extension(self) -> &'static str {
        match self {
            EmitKind::Tokens => "tokens",
            EmitKind::Ast => "ast",
            EmitKind::Types => "types",
            EmitKind::Ir => "air",
            EmitKind::Tile => "tir",
            EmitKind::Vector => "vir",
            EmitKind::Clif => "clif",
            EmitKind::Mir => "mir",
            EmitKind::Asm => "s",
            EmitKind::Ptx => "ptx",
            EmitKind::Sass => "sass",
            EmitKind::Obj => "o",
            EmitKind::So => "so",
            EmitKind::Header => "h",
            EmitKind::Python => "py",
            EmitKind::Record => "json",
            EmitKind::Html => "html",
            EmitKind::Dot => "dot",
        }
    }

    /// The format whose files have this extension.
    pub fn of_extension(ending: &str) -> Option<EmitKind> {
        let ending = if ending == "S" || ending == "asm" { "s" } else { ending };
        EmitKind::ALL.into_iter().find(|kind| kind.extension() == ending)
    }

    /// Its name with an article, for messages.
    pub fn noun(self) -> &'static str {
        match self {
            EmitKind::Tokens => "a list of tokens",
            EmitKind::Ast => "a syntax tree",
            EmitKind::Types => "a typed tree",
            EmitKind::Ir => "graph IR",
            EmitKind::Dot => "a Graphviz graph",
            EmitKind::Tile => "tile IR",
            EmitKind::Vector => "vector IR",
            EmitKind::Clif => "Cranelift IR",
            EmitKind::Mir => "virtual-register code",
            EmitKind::Asm => "assembly",
            EmitKind::Ptx => "PTX",
            EmitKind::Sass => "machine code for GPUs",
            EmitKind::Obj => "an object file",
            EmitKind::So => "a shared library",
            EmitKind::Header => "a C header",
            EmitKind::Python => "a Python wrapper",
            EmitKind::Record => "a record of the compilation",
            EmitKind::Html => "a report",
        }
    }

    /// One line about it, for `attnc list emit`.
    pub fn summary(self) -> &'static str {
        match self {
            EmitKind::Tokens => "the tokens as the grammar reads them",
            EmitKind::Ast => "the syntax tree",
            EmitKind::Types => "the typed tree, with the shape of every expression",
            EmitKind::Ir => "graph IR after the passes; can be compiled again",
            EmitKind::Dot => "graph IR as a Graphviz graph",
            EmitKind::Tile => "tile IR for one instruction set: kernels and plans; can be compiled again",
            EmitKind::Vector => "vector IR for one instruction set: what each run of a kernel does, vector by vector",
            EmitKind::Clif => "Cranelift IR for one instruction set",
            EmitKind::Mir => "virtual-register code of the leaf functions of runs for one instruction set",
            EmitKind::Asm => "assembly for one instruction set",
            EmitKind::Ptx => "PTX of the kernels for one kind of GPU (`--target cuda`)",
            EmitKind::Sass => "machine code for one kind of GPU as text; needs NVIDIA's `ptxas` and `nvdisasm`",
            EmitKind::Obj => "the object file before linking",
            EmitKind::So => "the shared library",
            EmitKind::Header => "the C header",
            EmitKind::Python => "the Python wrapper",
            EmitKind::Record => "every stage as JSON, with the relation between their lines",
            EmitKind::Html => "every stage as one page for a browser: click a value to see it at all levels",
        }
    }
}

/// A `NAME=VALUE` argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named<T> {
    /// Before `=`.
    pub name: String,
    /// After `=`.
    pub value: T,
}

impl<T: FromStr<Err: fmt::Display>> FromStr for Named<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Named<T>, String> {
        let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
        let (name, value) = (name.trim(), value.trim());
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            return Err(format!("`{name}` is not a name"));
        }
        let value = value.parse().map_err(|error| format!("`{value}`: {error}"))?;
        Ok(Named { name: name.to_string(), value })
    }
}

/// `PATH=N`: a state of a model, by its path (with `*` for each array of layers), and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateValue {
    /// Path of the state.
    pub name: String,
    /// Its value.
    pub value: i64,
}

impl FromStr for StateValue {
    type Err = String;

    fn from_str(text: &str) -> Result<StateValue, String> {
        let (name, value) = text.split_once('=').ok_or("expected NAME=N")?;
        let (name, value) = (name.trim().to_string(), value.trim());
        let value = value.parse().map_err(|error| format!("`{value}`: {error}"))?;
        Ok(StateValue { name, value })
    }
}

/// The value that `--dim` binds to a generic of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding {
    /// A number of elements.
    Number(u64),
    /// An element type.
    Element(Elem),
}

impl FromStr for Binding {
    type Err = String;

    fn from_str(text: &str) -> Result<Binding, String> {
        if let Some(elem) = Elem::from_name(text) {
            return Ok(Binding::Element(elem));
        }
        if text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let near = did_you_mean(text, Elem::ALL.map(Elem::name));
            let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(format!("expected a number or an element type{hint}"));
        }
        text.parse().map(Binding::Number).map_err(|error: std::num::ParseIntError| error.to_string())
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Binding::Number(n) => n.fmt(f),
            Binding::Element(elem) => elem.fmt(f),
        }
    }
}

/// The value of an `attnc run --input`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A NumPy file.
    File(PathBuf),
    /// The value itself: `3`, `true`, `[[1, 2], [3, 4]]`.
    Literal(String),
}

impl FromStr for Input {
    type Err = std::convert::Infallible;

    /// Brackets and numbers start a literal; a file with such a name can be given as `./3`.
    fn from_str(text: &str) -> Result<Input, Self::Err> {
        let is_literal = text.starts_with('[') || matches!(text, "true" | "false") || text.parse::<f64>().is_ok();
        Ok(if is_literal { Input::Literal(text.to_string()) } else { Input::File(PathBuf::from(text)) })
    }
}

/// Optimisation level of `-O`.
pub(super) fn level(text: &str) -> Result<u8, String> {
    match text.parse::<u8>() {
        Ok(level @ 0..=2) => Ok(level),
        Ok(_) => Err("the highest level is -O2".to_string()),
        Err(_) => Err("the levels are 0, 1 and 2".to_string()),
    }
}

/// A duration in seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds")?;
    match (0.0..=1e6).contains(&seconds) {
        true => Ok(seconds),
        false => Err("the seconds must be from 0 to 1000000".to_string()),
    }
}

/// A finite number that is at least 0.
pub(super) fn at_least_zero(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number")?;
    match number {
        f64::INFINITY => Err("the number must be finite".to_string()),
        0.0.. => Ok(number),
        _ => Err("the number must be 0 or more".to_string()),
    }
}

/// A number from 0 to 1.
pub(super) fn probability(text: &str) -> Result<f64, String> {
    match at_least_zero(text) {
        Ok(number) if number > 1.0 => Err("a probability is from 0 to 1".to_string()),
        other => other,
    }
}

/// A finite number above 0.
pub(super) fn above_zero(text: &str) -> Result<f64, String> {
    match at_least_zero(text) {
        Ok(0.0) => Err("the number must be above 0".to_string()),
        other => other,
    }
}

/// Where generated text ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Before this string.
    Text(String),
    /// Before the token of this number.
    Token(u32),
}

impl FromStr for Stop {
    type Err = String;

    fn from_str(text: &str) -> Result<Stop, String> {
        let given = text.strip_prefix("text:").unwrap_or(text);
        match text.parse() {
            Ok(token) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(Stop::Token(token)),
            _ if given.is_empty() => Err("an empty text is everywhere".to_string()),
            Err(_) if text.bytes().all(|b| b.is_ascii_digit()) => {
                Err(format!("the numbers of tokens are at most {}; to stop before a text, use `text:{text}`", u32::MAX))
            }
            _ => Ok(Stop::Text(given.to_string())),
        }
    }
}

/// Hardware that programs are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Target {
    /// The processor
    Cpu,
    /// An NVIDIA GPU
    Cuda,
}

/// Whether a library contains GPU machine code in addition to PTX.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Cubins {
    /// If `ptxas` is found
    Auto,
    /// Always; it is an error if `ptxas` is not found
    Always,
    /// Never; the driver compiles the PTX when a model is opened
    Never,
}

/// GPU architectures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Gpu {
    /// Ampere; the code runs on every later GPU too
    #[value(name = "sm_80")]
    Sm80,
    /// Hopper only
    #[value(name = "sm_90a")]
    Sm90a,
}

/// How `attnc run` runs a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Backend {
    /// The graph IR's interpreter
    Interp,
    /// The tile IR's interpreter; it runs the kernels for `--cpu`, `portable` if omitted
    Tile,
    /// Compiled code
    Cpu,
    /// Code compiled through LLVM; only if attnc is built with it (cargo feature `llvm`)
    Llvm,
    /// PTX for `--gpu`, on a simulator that reports races, missing fences and waits, and accesses
    /// out of bounds
    PtxSim,
}

/// The code generator for kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CodeBackend {
    /// Cranelift and attnc's own leaf functions
    Cranelift,
    /// LLVM; only if attnc is built with it (cargo feature `llvm`)
    Llvm,
}

/// Instruction sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CpuTier {
    /// Every processor of the architecture
    Portable,
    /// x86-64 with AVX2 and FMA
    Avx2,
    /// The same with byte dot products (AVX-VNNI)
    Avx2vnni,
    /// x86-64 with AVX-512
    Avx512,
    /// The same with bf16 dot products
    Avx512bf16,
    /// x86-64 with AVX-512 and bf16 tiles (AMX)
    Amx,
    /// aarch64 with NEON; on other machines, objects and dumps only
    Neon,
    /// The best instruction set of this machine
    Native,
}

impl CpuTier {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CpuTier::Portable => "portable",
            CpuTier::Avx2 => "avx2",
            CpuTier::Avx2vnni => "avx2vnni",
            CpuTier::Avx512 => "avx512",
            CpuTier::Avx512bf16 => "avx512bf16",
            CpuTier::Amx => "amx",
            CpuTier::Neon => "neon",
            CpuTier::Native => "native",
        }
    }
}

/// Formats of packed weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WeightPacking {
    /// Their declared type
    F32,
    /// Rounded to bf16
    Bf16,
    /// 8-bit integers with a scale for each 32
    Int8,
    /// 4-bit integers with a scale for each 32
    Int4,
}

impl WeightPacking {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            WeightPacking::F32 => "f32",
            WeightPacking::Bf16 => "bf16",
            WeightPacking::Int8 => "int8",
            WeightPacking::Int4 => "int4",
        }
    }
}

/// Precision of `f32` matmuls on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MatmulPrecision {
    /// Products in f32, accumulated with fused multiply-adds
    F32,
    /// Operands rounded to 11 significant bits, on tensor cores
    Tf32,
}

/// Permitted changes in rounding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FloatMode {
    /// None
    Strict,
    /// Fused multiply-add, reassociation within one reduction, and the documented rewrites of
    /// attention and norms
    Contract,
    /// Every identity of real arithmetic
    Fast,
}

/// Formats of `--print-changed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PrintChanged {
    /// The whole IR
    Whole,
    /// The lines that differ
    Diff,
}

/// When messages are coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Colour {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How messages are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MessageFormat {
    /// For people, with the lines of the program
    Human,
    /// A JSON object on each line, in the form of rustc's `--error-format=json`
    Json,
}

/// The language, or an IR, whose operations `attnc ops` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OpsLevel {
    /// The language
    Language,
    /// Graph IR: operations on tensors
    Graph,
    /// Tile IR: operations on tiles, in kernels and plans
    Tile,
    /// Vector IR: operations on the lanes of a vector
    Vector,
}

impl OpsLevel {
    /// All of them, from the language down.
    pub const ALL: [OpsLevel; 4] = [OpsLevel::Language, OpsLevel::Graph, OpsLevel::Tile, OpsLevel::Vector];

    /// Its name in a heading.
    pub fn title(self) -> &'static str {
        match self {
            OpsLevel::Language => "language",
            OpsLevel::Graph => "graph IR",
            OpsLevel::Tile => "tile IR",
            OpsLevel::Vector => "vector IR",
        }
    }
}

/// Things that `attnc list` can list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Listed {
    /// Operations of the language
    Ops,
    /// Operations of the graph IR
    Ir,
    /// Operations of the tile IR
    Tile,
    /// Operations of the vector IR
    Vector,
    /// Operations of virtual-register code, which the leaf functions of runs are made of
    Mir,
    /// Elementary functions, written in vector IR, with their error bounds
    Functions,
    /// Passes, in the order in which the pipeline runs them
    Passes,
    /// Steps of the schedule, after the passes, in the order in which they run
    Steps,
    /// Output formats
    Emit,
    /// Instruction sets, and which of them this machine supports
    Cpus,
    /// Error and warning codes
    Codes,
    /// Modules of the standard library
    Modules,
}

impl Listed {
    /// Everything that can be listed.
    pub const ALL: [Listed; 12] = [
        Listed::Ops,
        Listed::Ir,
        Listed::Tile,
        Listed::Vector,
        Listed::Mir,
        Listed::Functions,
        Listed::Passes,
        Listed::Steps,
        Listed::Emit,
        Listed::Cpus,
        Listed::Codes,
        Listed::Modules,
    ];
}
