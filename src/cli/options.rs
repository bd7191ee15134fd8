//! The options of each command, as clap reads them.
//!
//! In: what the user typed, by clap. Out: plain structures that the driver reads. What a value may be stands in
//! [`super::values`].

use super::values::{
    Backend, CodeBackend, Colour, CpuTier, Emit, FloatMode, Input, Listed, MessageFormat, Named, PrintChanged, Target,
    WeightPacking, level, seconds,
};
use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

/// `attnc model.attn -o model.so`
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Output")]
pub struct CompileOptions {
    /// The program: `.attn`, or the text of a later stage (`.air`, `.tir`, `.vir`, `.clif`); `-` is stdin
    #[arg(help_heading = "Arguments")]
    pub file: PathBuf,
    /// Where the output goes, with the ending of its kind; several kinds go beside it. `-` is stdout
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// What to write: tokens, ast, types, ir, dot, tile, vector, clif, asm, obj, so, header, python; `=-` is stdout
    #[arg(long, value_name = "KIND[=PATH],..", value_delimiter = ',')]
    pub emit: Vec<Emit>,
    /// What makes the machine code of the kernels
    #[arg(long, value_enum, default_value_t = CodeBackend::Cranelift, help_heading = "Target")]
    pub backend: CodeBackend,
    /// Show one kernel or plan alone in `tile`, `vector`, `clif` and `asm`, by its name in the tile IR (`attention.0`)
    #[arg(long, value_name = "NAME", help_heading = "Passes, looking inside")]
    pub kernel: Option<String>,
    /// Show the bytes of each instruction in `asm`
    #[arg(long, help_heading = "Passes, looking inside")]
    pub asm_bytes: bool,
    /// Put DWARF line tables into the object and the library: debuggers and profilers then show lines of the program
    #[arg(short = 'g', help_heading = "Target")]
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
#[command(next_help_heading = "Call")]
pub struct RunOptions {
    /// The program, or IR text; `-` is stdin
    #[arg(help_heading = "Arguments")]
    pub file: PathBuf,
    /// The parameters' values, a safetensors file
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// An argument: a NumPy file, or the value itself: `n=3`, `x=[[1, 2], [3, 4]]`
    #[arg(long, value_name = "NAME=VALUE")]
    pub input: Vec<Named<Input>>,
    /// Draw arguments that are not given at random, and weights if none are; the same seed draws the same
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub random: Option<u64>,
    /// The value of a run-time dimension for `--random`; `batch=N` for leading axes, 1 if left out
    #[arg(long, value_name = "NAME=N", value_delimiter = ',', requires = "random")]
    pub size: Vec<Named<u64>>,
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
#[command(next_help_heading = "Measurement")]
pub struct BenchOptions {
    /// The program, or IR text; `-` is stdin
    #[arg(help_heading = "Arguments")]
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
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Also write what was measured as JSON; `-` is stdout, in place of the table
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Also draw it as a roofline picture, an SVG; `-` is stdout, in place of the table
    #[arg(long, value_name = "PATH")]
    pub svg: Option<PathBuf>,
    /// What makes the machine code of the kernels
    #[arg(long, value_enum, default_value_t = CodeBackend::Cranelift, help_heading = "Target")]
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
#[command(next_help_heading = "Output")]
pub struct OptOptions {
    /// IR text; `-` is stdin
    #[arg(help_heading = "Arguments")]
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
    /// The code: E0301, e301 or 301; all codes with their titles are listed if left out
    pub code: Option<String>,
}

/// `attnc std nn`
#[derive(Args, Debug, Clone)]
pub struct StdOptions {
    /// The module, such as `nn` or `std.nn`; the names of all if left out
    pub module: Option<String>,
}

/// `attnc function exp --cpu avx512`
#[derive(Args, Debug, Clone)]
pub struct FunctionOptions {
    /// The function, such as `exp`; `attnc list functions` has all
    pub name: String,
    /// Show the straight-line code that leaf functions for these processors compute, instead of the source with all its versions
    #[arg(long, value_name = "SET")]
    pub cpu: Option<CpuTier>,
}

/// What a program leaves open.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Program")]
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
#[command(next_help_heading = "Target")]
pub struct TargetOptions {
    /// The machine that runs the program
    #[arg(long, value_enum, default_value_t = Target::Cpu)]
    pub target: Target,
    /// The best instruction set that gets code of its own; all if left out
    ///
    /// The lower ones are put in too, and the best that the processor has runs, but avx512bf16 on Intel's only with
    /// `ATTNC_CPU=avx512bf16`. Those for bf16 are put in where the program multiplies bf16 by bf16, avx2vnni where weights
    /// are integers (`--pack`). Dumps (`tile`, `vector`, `clif`, `asm`) show this instruction set, `portable` if left out. `native` is
    /// the best that this machine has.
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub cpu: Option<CpuTier>,
    /// What weights of matmuls are kept as when they are packed at load
    ///
    /// Fewer bytes make products with few rows faster, and results less exact, by how much `run` tells, for the results and,
    /// with `--weights`, for each parameter; sums stay in f32. The interpreter takes weights as they are.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = WeightPacking::F32)]
    pub pack: WeightPacking,
    /// Parameters that `--pack` leaves as they are (`"*.gate.*"`); may be given several times
    ///
    /// A pattern is compared with the whole name that a parameter has in the weights file, with `*` in place of the index of
    /// a layer: `h.*.attn.c_attn.weight`. A `*` of the pattern stands for any text, dots and that `*` among it; everything
    /// else for itself. The layers of an array are packed alike. A pattern that fits no parameter is an error.
    #[arg(long, value_name = "PATTERN", requires = "pack")]
    pub keep: Vec<String>,
    /// How much to optimise. 0: no pass, a kernel for each operation. 1: what is dead, double or constant goes, and
    /// elementwise work is fused; every bit is that of 0. 2: attention is found and fused, too
    #[arg(short = 'O', value_name = "LEVEL", default_value_t = 2, value_parser = level)]
    pub level: u8,
    /// Which changes of rounding are allowed
    #[arg(long, value_enum, default_value_t = FloatMode::Contract)]
    pub float: FloatMode,
}

/// What is shown of the passes, and which of them run.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Passes, looking inside")]
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
#[command(next_help_heading = "Messages")]
pub struct MessageOptions {
    /// How messages are written on stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = MessageFormat::Human, alias = "message-format")]
    pub error_format: MessageFormat,
    /// Colour in messages
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Colour::Auto)]
    pub color: Colour,
    /// Tell on stderr what is done: code for which instruction sets, files that are written
    #[arg(short, long)]
    pub verbose: bool,
}

/// `attnc list passes`
#[derive(Args, Debug, Clone)]
pub struct ListOptions {
    /// What to list; what can be listed if left out
    #[arg(value_enum)]
    pub what: Option<Listed>,
}

/// `attnc completions bash`
#[derive(Args, Debug, Clone)]
pub struct CompletionsOptions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}
