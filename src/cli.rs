//! The command line: what the user typed, turned into the options of [`crate::driver`].
//!
//! In: the arguments. Out: a [`Command`], or clap's message. Nothing is read, written or compiled here.

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Ahead-of-time compiler for attention graphs.
#[derive(Parser, Debug)]
#[command(name = "attnc", version, about, arg_required_else_help = true, subcommand_required = true)]
#[command(override_usage = "attnc [OPTIONS] <FILE>\n       attnc <COMMAND> ..")]
#[command(after_help = "Without a command, FILE is compiled: `attnc model.attn -o model.so`.\n\
    Exit codes: 0 done, 1 the program is wrong, 2 the command line is wrong, 3 the surroundings, 101 a bug of attnc.")]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl CommandLine {
    /// Reads a command line, the program's name first. `compile` may be left out, so it is put in where the
    /// first argument is no command.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<CommandLine, clap::Error> {
        let mut args: Vec<OsString> = args.into_iter().collect();
        let own = CommandLine::command();
        let is_own = |arg: &OsString| {
            let arg = arg.to_str().unwrap_or("");
            ["help", "-h", "--help", "-V", "--version"].contains(&arg) || own.find_subcommand(arg).is_some()
        };
        if args.get(1).is_some_and(|first| !is_own(first)) {
            args.insert(1, "compile".into());
        }
        CommandLine::try_parse_from(args)
    }
}

/// What attnc can do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Compile a program (the command may be left out)
    Compile(CompileOptions),
    /// Report all errors of a program, and write nothing
    Check(CheckOptions),
    /// Compile a program in memory and call an entry point
    Run(RunOptions),
    /// Time each kernel of an entry point, beside what the machine can do
    Bench(BenchOptions),
    /// Run passes over IR text (`.air`)
    Opt(OptOptions),
    /// Tell the rule behind a diagnostic's code, with a failing and a mended program
    Explain(ExplainOptions),
    /// Show a module of the standard library, which is written in the language itself
    Std(StdOptions),
}

/// `attnc model.attn -o model.so`
#[derive(Args, Debug, Clone)]
pub struct CompileOptions {
    /// The program: `.attn`, or the text of a later stage (`.air`, `.tir`); `-` is stdin
    pub file: PathBuf,
    /// Where the output goes; with several kinds of output, the others go beside it. `-` is stdout
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// What to write: tokens, ast, types, ir, tile, clif, asm, obj, so, header, python, dot; `=-` is stdout
    #[arg(long, value_name = "KIND[=PATH],..", value_delimiter = ',')]
    pub emit: Vec<Emit>,
    /// What makes the machine code of the kernels
    #[arg(long, value_enum, default_value_t = CodeBackend::Cranelift)]
    pub backend: CodeBackend,
    /// Show one kernel or plan alone in `tile`, `clif` and `asm`, by its name in the tile IR (`attention.0`)
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Show the bytes of each instruction in `asm`
    #[arg(long)]
    pub asm_bytes: bool,
    /// Put DWARF line tables into the object and the library: debuggers and profilers then show lines of the program
    #[arg(short = 'g')]
    pub debug_lines: bool,
    /// What the program's dimensions are bound to, and which model is meant.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// What code is made for.
    #[command(flatten)]
    pub target: TargetOptions,
    /// What is shown of the passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// How messages look.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc check model.attn`
#[derive(Args, Debug, Clone)]
pub struct CheckOptions {
    /// The program; `-` is stdin
    pub file: PathBuf,
    /// Bound dimensions, entry.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// How messages look.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc run model.attn --input x=a.npy`
#[derive(Args, Debug, Clone)]
pub struct RunOptions {
    /// The program, or IR text; `-` is stdin
    pub file: PathBuf,
    /// The parameters' values, a safetensors file
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// An argument's value, a NumPy file; once for each argument
    #[arg(long, value_name = "NAME=FILE")]
    pub input: Vec<Named<PathBuf>>,
    /// The function to call, where the model has several
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Also give the tapped values whose paths fit (`h.*.attn.weights`)
    #[arg(long, value_name = "PATH")]
    pub tap: Vec<String>,
    /// Write results as NumPy files into this folder, or the only result to this `.npy` file, instead of a summary
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// What runs the program
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub backend: Backend,
    /// Worker threads; all processors if left out
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Bound dimensions, entry.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// What code is made for.
    #[command(flatten)]
    pub target: TargetOptions,
    /// What is shown of the passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// How messages look.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc bench model.attn --size S=128`
#[derive(Args, Debug, Clone)]
pub struct BenchOptions {
    /// The program, or IR text; `-` is stdin
    pub file: PathBuf,
    /// The value of a run-time dimension in the calls; `batch=N` for leading axes, 1 if left out
    #[arg(long, value_name = "NAME=N", value_delimiter = ',')]
    pub size: Vec<Named<u64>>,
    /// The parameters' values, a safetensors file; random if left out
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// The function to call, where the model has several
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Worker threads; all processors if left out
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// How long to call; five calls are made in any case
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    pub seconds: f64,
    /// Also write what was measured as JSON; `-` is stdout, in place of the table
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Also draw it as a roofline picture, an SVG; `-` is stdout, in place of the table
    #[arg(long, value_name = "PATH")]
    pub svg: Option<PathBuf>,
    /// What makes the machine code of the kernels
    #[arg(long, value_enum, default_value_t = CodeBackend::Cranelift)]
    pub backend: CodeBackend,
    /// Bound dimensions, entry.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// What code is made for.
    #[command(flatten)]
    pub target: TargetOptions,
    /// What is shown of the passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// How messages look.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc opt file.air --passes cse,fuse-attention`
#[derive(Args, Debug, Clone)]
pub struct OptOptions {
    /// IR text; `-` is stdin
    pub file: PathBuf,
    /// The passes to run, in this order; `""` runs none; the whole pipeline if left out
    #[arg(long = "passes", value_name = "PASS,..", value_delimiter = ',')]
    pub pipeline: Option<Vec<String>>,
    /// Where the result goes; stdout if left out
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// What code is made for.
    #[command(flatten)]
    pub target: TargetOptions,
    /// What is shown of the passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// How messages look.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc explain E0301`
#[derive(Args, Debug, Clone)]
pub struct ExplainOptions {
    /// The code, such as E0301; all codes with their titles are listed if left out
    pub code: Option<String>,
}

/// `attnc std nn`
#[derive(Args, Debug, Clone)]
pub struct StdOptions {
    /// The module, such as `nn` or `std.nn`; the names of all if left out
    pub module: Option<String>,
}

/// What a program leaves open.
#[derive(Args, Debug, Clone, Default)]
pub struct ProgramOptions {
    /// Bind a dimension to a number
    #[arg(long = "dim", value_name = "NAME=N", value_delimiter = ',')]
    pub dims: Vec<Named<u64>>,
    /// The model to compile, where the file has several
    #[arg(long, value_name = "MODEL")]
    pub entry: Option<String>,
}

/// What code is made for.
#[derive(Args, Debug, Clone)]
pub struct TargetOptions {
    /// The machine that runs the program
    #[arg(long, value_enum, default_value_t = Target::Cpu)]
    pub target: Target,
    /// The best level of processors that gets code of its own; all levels if left out. Each lower one is put in too, and
    /// the best that the processor has runs, but avx512bf16 on Intel's only with `ATTNC_CPU=avx512bf16`. Those for bf16 are
    /// put in where the program multiplies bf16 by bf16, avx2vnni where weights are whole numbers (`--pack`). Dumps (`tile`, `clif`, `asm`) show this level, `portable` if left out
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub cpu: Option<CpuTier>,
    /// What weights of matmuls are kept as when they are packed at load: fewer bytes make products of few rows faster, and
    /// results less exact, by how much `run` tells; computation stays in f32. The interpreter takes them as they are
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = WeightPacking::F32)]
    pub pack: WeightPacking,
    /// How much to optimise, 0 to 3
    #[arg(short = 'O', value_name = "LEVEL", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub level: u8,
    /// Which changes of rounding are allowed
    #[arg(long, value_enum, default_value_t = FloatMode::Contract)]
    pub float: FloatMode,
}

/// What is shown of the passes, and which of them run.
#[derive(Args, Debug, Clone, Default)]
pub struct PassOptions {
    /// Print the IR before a pass, or before `all`, to stderr
    #[arg(long, value_name = "PASS")]
    pub print_before: Vec<String>,
    /// Print the IR after a pass, or after `all`, to stderr
    #[arg(long, value_name = "PASS")]
    pub print_after: Vec<String>,
    /// Print the IR after each pass that changed it, whole or as a difference
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "whole")]
    pub print_changed: Option<PrintChanged>,
    /// Verify the IR after each pass (`false` to turn it off)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub verify_each: Option<bool>,
    /// Tell how long each stage and pass took
    #[arg(long)]
    pub time_passes: bool,
    /// Tell how often each pass did what
    #[arg(long)]
    pub stats: bool,
    /// Tell which fusions were done, and why others were not
    #[arg(long)]
    pub remarks: bool,
    /// Write the IR after each pass into this folder
    #[arg(long, value_name = "DIR")]
    pub dump_dir: Option<PathBuf>,
    /// Run no pass after this one
    #[arg(long, value_name = "PASS")]
    pub stop_after: Option<String>,
    /// Make only the first N changes, to find the one that is wrong
    #[arg(long, value_name = "N")]
    pub bisect_limit: Option<u64>,
}

impl PassOptions {
    /// Whether the verifier runs after each pass: it does, unless turned off.
    pub fn verifies_each(&self) -> bool {
        self.verify_each.unwrap_or(true)
    }
}

/// How messages look.
#[derive(Args, Debug, Clone)]
pub struct MessageOptions {
    /// Colour in messages
    #[arg(long, value_enum, default_value_t = Colour::Auto)]
    pub color: Colour,
}

/// Something to write, with an optional path of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Emit {
    /// What.
    pub kind: EmitKind,
    /// Where, as in `ir=model.air`.
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
        let kind = EmitKind::ALL.into_iter().find(|known| known.name() == kind);
        let names = || EmitKind::ALL.map(EmitKind::name).join(", ");
        Ok(Emit { kind: kind.ok_or_else(|| format!("known are {}", names()))?, path })
    }
}

/// The kinds of output, in the order of the way through the compiler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EmitKind {
    /// The tokens as the grammar reads them.
    Tokens,
    /// The syntax tree.
    Ast,
    /// The typed tree.
    Types,
    /// The graph IR after the pipeline.
    Ir,
    /// The graph IR as a picture for Graphviz.
    Dot,
    /// The tile IR.
    Tile,
    /// Cranelift's IR.
    Clif,
    /// Machine code as text.
    Asm,
    /// The object file before linking.
    Obj,
    /// The shared library.
    So,
    /// The C header.
    Header,
    /// The Python wrapper.
    Python,
}

impl EmitKind {
    /// Every kind, in the order of the way through the compiler.
    pub const ALL: [EmitKind; 12] = [
        EmitKind::Tokens,
        EmitKind::Ast,
        EmitKind::Types,
        EmitKind::Ir,
        EmitKind::Dot,
        EmitKind::Tile,
        EmitKind::Clif,
        EmitKind::Asm,
        EmitKind::Obj,
        EmitKind::So,
        EmitKind::Header,
        EmitKind::Python,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EmitKind::Tokens => "tokens",
            EmitKind::Ast => "ast",
            EmitKind::Types => "types",
            EmitKind::Ir => "ir",
            EmitKind::Tile => "tile",
            EmitKind::Clif => "clif",
            EmitKind::Asm => "asm",
            EmitKind::Obj => "obj",
            EmitKind::So => "so",
            EmitKind::Header => "header",
            EmitKind::Python => "python",
            EmitKind::Dot => "dot",
        }
    }

    /// The ending of its files.
    pub fn extension(self) -> &'static str {
        match self {
            EmitKind::Tokens => "tokens",
            EmitKind::Ast => "ast",
            EmitKind::Types => "types",
            EmitKind::Ir => "air",
            EmitKind::Tile => "tir",
            EmitKind::Clif => "clif",
            EmitKind::Asm => "s",
            EmitKind::Obj => "o",
            EmitKind::So => "so",
            EmitKind::Header => "h",
            EmitKind::Python => "py",
            EmitKind::Dot => "dot",
        }
    }

    /// True for kinds that a terminal can show.
    pub fn is_text(self) -> bool {
        !matches!(self, EmitKind::Obj | EmitKind::So)
    }
}

/// `NAME=VALUE`.
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
        let (name, value) = text.split_once('=').ok_or("the form is NAME=VALUE")?;
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

/// The machines that programs are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Target {
    /// The processor
    Cpu,
}

/// What runs a program under `attnc run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Backend {
    /// The graph IR's interpreter
    Interp,
    /// Compiled code
    Cpu,
    /// Code compiled through LLVM; only if attnc is built with it (cargo feature `llvm`)
    Llvm,
}

/// What makes the machine code of kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CodeBackend {
    /// Cranelift, and leaf functions of attnc's own
    Cranelift,
    /// LLVM; only if attnc is built with it (cargo feature `llvm`)
    Llvm,
}

/// Levels of processors, by what they have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CpuTier {
    /// Every processor of the architecture
    Portable,
    /// x86-64 with AVX2 and FMA
    Avx2,
    /// The same, with its sums of products of bytes (AVX-VNNI)
    Avx2vnni,
    /// x86-64 with AVX-512
    Avx512,
    /// The same, with its products of bf16
    Avx512bf16,
    /// x86-64 with AVX-512 and tiles of bf16 (AMX)
    Amx,
    /// aarch64, whose vectors are NEON's; on other machines as an object or text only
    Neon,
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
        }
    }
}

/// What packed weights are kept as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WeightPacking {
    /// As they are
    F32,
    /// The nearest bf16
    Bf16,
    /// Whole numbers of 8 bits, a scale for each 32
    Int8,
    /// Whole numbers of 4 bits, a scale for each 32
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

/// Which changes of rounding are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FloatMode {
    /// None
    Strict,
    /// Fused multiply-add, reassociation inside one reduction, and the named rewrites of attention and norms
    Contract,
    /// Whatever is true of real numbers
    Fast,
}

/// Forms of `--print-changed`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn compiling_needs_no_word() {
        let line = ["attnc", "m.attn", "-O3", "--emit", "ir=-,so", "--dim", "S=128,T=4"];
        let line = CommandLine::read(line.map(OsString::from)).map(|line| line.command);
        let Ok(Command::Compile(options)) = line else { panic!("not a compilation") };
        assert_eq!(options.target.level, 3);
        assert_eq!(options.emit.len(), 2);
        assert_eq!(options.emit[0].kind, EmitKind::Ir);
        assert_eq!(options.program.dims[1], Named { name: "T".to_string(), value: 4 });
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for line in [
            &["attnc", "m.attn", "-O4"][..],
            &["attnc", "m.attn", "--dim", "S"],
            &["attnc", "m.attn", "--dim", "S=-1"],
            &["attnc", "m.attn", "--emit", "wasm"],
            &["attnc", "m.attn", "--emit", "ir="],
            &["attnc", "check"],
            &["attnc", "m.attn", "n.attn"],
        ] {
            assert!(CommandLine::read(line.iter().map(OsString::from)).is_err(), "{line:?}");
        }
    }
}
