//! The options of each command, in the form that clap parses.
//!
//! In: the command line, parsed by clap. Out: plain structs for the driver. The types of the values
//! are in [`super::values`].

use super::values::{
    Backend, Binding, CodeBackend, Colour, CpuTier, Cubins, Emit, FloatMode, Gpu, Input, Listed, MatmulPrecision,
    MessageFormat, Named, OpsLevel, PrintChanged, StateValue, Target, WeightPacking, at_least_zero, level, seconds,
};
use clap::Args;
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;

/// `attnc model.attn -o model.so`
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Output")]
pub struct CompileOptions {
    /// The program: `.attn`, or the dump of a later stage (`.air`, `.tir`, `.vir`, `.clif`); `-` is
    /// stdin
    #[arg(help_heading = "Arguments")]
    pub file: PathBuf,
    /// The output file, with the extension of its format; further formats are written next to it.
    /// `-` is stdout
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// What to write: tokens, ast, types, ir, dot, tile, vector, clif, mir, asm, ptx, sass, obj,
    /// so, header, python, record, html; `=-` is stdout
    #[arg(long, value_name = "KIND[=PATH],..", value_delimiter = ',')]
    pub emit: Vec<Emit>,
    /// A weights file: parameters that are `bf16` in it are declared so, instead of `f32`
    #[arg(long, value_name = "FILE", help_heading = "Program")]
    pub weights: Option<PathBuf>,
    /// Code generator for the kernels
    #[arg(long, value_enum, default_value_t = CodeBackend::Cranelift, help_heading = "Target")]
    pub backend: CodeBackend,
    /// Include GPU machine code made by NVIDIA's `ptxas`, in addition to PTX
    ///
    /// `ptxas` is taken from `ATTNC_PTXAS`, the folders of `PATH`, or `CUDA_HOME`. A model with
    /// machine code for its GPU is opened without the driver's compiler. The library's bytes then
    /// depend on that `ptxas`; `--remarks` reports which one was used.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Cubins::Auto, help_heading = "Target")]
    pub cubins: Cubins,
    /// Show only this kernel or plan in `tile`, `vector`, `clif`, `mir`, `asm`, `ptx` and `sass`,
    /// by its name in the tile IR (`attention.0`)
    #[arg(long, value_name = "NAME", help_heading = "Passes and dumps")]
    pub kernel: Option<String>,
    /// Show only this entry point in `ir` and `dot`
    #[arg(long, value_name = "NAME", help_heading = "Passes and dumps")]
    pub function: Option<String>,
    /// Also show leaf functions in `mir` after register allocation
    #[arg(long, help_heading = "Passes and dumps")]
    pub mir_registers: bool,
    /// Show the bytes of each instruction in `asm`
    #[arg(long, help_heading = "Passes and dumps")]
    pub asm_bytes: bool,
    /// Emit DWARF line tables, so that debuggers and profilers show lines of the program
    #[arg(short = 'g', help_heading = "Target")]
    pub debug_lines: bool,
    /// Bound dimensions, model.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// Target.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Dumps and limits of passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc check model.attn`
#[derive(Args, Debug, Clone)]
pub struct CheckOptions {
    /// The program; `-` is stdin
    pub file: PathBuf,
    /// Check again whenever the file changes, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// Bound dimensions, entry.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc fmt model.attn`
#[derive(Args, Debug, Clone)]
pub struct FmtOptions {
    /// Programs, or folders of them; `-` formats stdin to stdout
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Write nothing; show what would change, and fail if anything would
    #[arg(long)]
    pub check: bool,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc fix model.attn`
#[derive(Args, Debug, Clone)]
pub struct FixOptions {
    /// Programs; `-` fixes stdin to stdout
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Write nothing; show what would change, and fail if anything would
    #[arg(long)]
    pub check: bool,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// The calls of `run` and `compare`: functions and arguments.
#[derive(Args, Debug, Clone, PartialEq)]
#[command(next_help_heading = "Call")]
pub struct CallOptions {
    /// The weights: a safetensors file, or the index of several (`model.safetensors.index.json`)
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// An argument: a NumPy file, or the value itself: `n=3`, `x=[[1, 2], [3, 4]]`
    #[arg(long, value_name = "NAME=VALUE")]
    pub input: Vec<Named<Input>>,
    /// Use random values for missing arguments and weights; the same seed gives the same values
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub random: Option<u64>,
    /// The value of a run-time dimension for random arguments; `batch=N` for leading axes [default:
    /// 1]
    #[arg(long, value_name = "NAME=N", value_delimiter = ',')]
    pub size: Vec<Named<u64>>,
    /// The function to call, if the model has several
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Make the calls in this file, all in one session; `-` is stdin
    ///
    /// One call per line: `step(token = 3)`, `forward(x = x.npy, n = [1, 2])`; `reset` zeroes all
    /// states, and `//` starts a comment. Results are named by their call: `1.step.result`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["function", "input"])]
    pub calls: Option<PathBuf>,
}

/// `attnc compare model.attn --size S=5 --with -O0 --backend interp`
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Comparison")]
pub struct CompareOptions {
    /// The program: `.attn`, `.air`, or `.tir`
    #[arg(help_heading = "Arguments")]
    pub file: PathBuf,
    /// Another program that should compute the same; omitted, the same one
    #[arg(help_heading = "Arguments", value_name = "OTHER")]
    pub other_file: Option<PathBuf>,
    /// How the other side is computed: all words after it are options that replace those before
    /// (`--with -O1 --cpu avx2`) [default: as written, `-O0 --backend interp`]
    #[arg(long, value_name = "OPTIONS", num_args = 1.., allow_hyphen_values = true, conflicts_with = "each_pass")]
    pub with: Vec<String>,
    /// Compare the program before the passes with that after each, and name the first pass after
    /// which a value is wrong
    #[arg(long = "passes", conflicts_with = "other_file")]
    pub each_pass: bool,
    /// Show every value that differs, instead of the first
    #[arg(long)]
    pub all: bool,
    /// How many error bounds apart two numbers may be; 0: all bits must be the same
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = at_least_zero)]
    pub bound: f64,
    /// Write the result as JSON, to stdout or to a file
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// How to run the program; `tile` for `.tir` if omitted, or else `cpu`
    #[arg(long, value_enum, help_heading = "Call")]
    pub backend: Option<Backend>,
    /// Number of threads; one per processor if omitted
    #[arg(long, value_name = "N", help_heading = "Call")]
    pub threads: Option<u32>,
    /// The call; arguments that are not given are random.
    #[command(flatten)]
    pub call: CallOptions,
    /// Bound dimensions, entry.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// Target.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Dumps and limits of passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
    /// The options of the other side, from `with`.
    #[arg(skip)]
    pub other: Option<Box<CompareOptions>>,
}

/// `attnc reduce model.attn -- sh -c 'attnc {} 2>&1 | grep -q E0301'`
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Interesting")]
pub struct ReduceOptions {
    /// The program: `.attn`, `.air`, `.tir`; `-` is stdin
    #[arg(help_heading = "Arguments")]
    pub file: PathBuf,
    /// It is interesting if this command exits with 0; `{}` becomes the path of the program
    #[arg(last = true, value_name = "COMMAND", help_heading = "Arguments")]
    pub command: Vec<OsString>,
    /// It is interesting if it has this diagnostic, and no errors of kinds that it did not have
    #[arg(long, value_name = "CODE", conflicts_with_all = ["compare", "command"])]
    pub error: Option<String>,
    /// It is interesting if `attnc compare` with these options says that values differ; all words
    /// after it are options
    #[arg(long, value_name = "OPTIONS", num_args = 1.., allow_hyphen_values = true, conflicts_with = "command")]
    pub compare: Vec<String>,
    /// How long a command may run
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub timeout: f64,
    /// The smaller program, which appears as a whole; stdout if omitted
    #[arg(short, long, value_name = "PATH", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Number of tests at the same time, which does not affect the result; one per processor if
    /// omitted
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub jobs: Option<u32>,
    /// Messages.
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
    /// The call.
    #[command(flatten)]
    pub call: CallOptions,
    /// Also output the taps whose paths match (`h.*.attn.weights`)
    #[arg(long, value_name = "PATH", conflicts_with = "calls")]
    pub tap: Vec<String>,
    /// Write results as NumPy files into this folder, or the only result to this `.npy` file,
    /// instead of a summary
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Also write the report with the numbers of this call, a page for a browser: the range of each
    /// value of graph IR, and its distance from the value in f64
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// Also write the record with these numbers, which the report shows
    #[arg(long, value_name = "PATH")]
    pub record: Option<PathBuf>,
    /// How to run the program
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    pub backend: Backend,
    /// With `--backend ptx-sim`: draw a timeline of a kernel's block into this file, as SVG, or as
    /// text (`.txt`, `-`)
    ///
    /// Rows are warps, tensor cores, copies in flight, and shared memory; time is in cycles of a
    /// simple model of a multiprocessor, not measured. The block is one in the middle of the
    /// longest launch.
    #[arg(long, value_name = "FILE")]
    pub schedule: Option<PathBuf>,
    /// The kernel of `--schedule`, by its name in the tile IR (`attention.0`) [default: the longest
    /// launch of all]
    #[arg(long, value_name = "NAME", requires = "schedule")]
    pub kernel: Option<String>,
    /// Number of threads; one per processor if omitted
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Bound dimensions, entry.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// Target.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Dumps and limits of passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// Messages.
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
    /// The value of a run-time dimension in the calls; `batch=N` for leading axes [default: 1]
    #[arg(long, value_name = "NAME=N", value_delimiter = ',')]
    pub size: Vec<Named<u64>>,
    /// The value of an integer state when each call starts, such as the number of tokens in a cache
    /// [default: 0]
    #[arg(long, value_name = "NAME=N", value_delimiter = ',')]
    pub state: Vec<StateValue>,
    /// The weights: a safetensors file or the index of several; random if omitted
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// The function to call, if the model has several
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Number of threads; one per processor if omitted
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// How long to measure; at least five calls are made
    #[arg(long, value_name = "N", default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// Also write the measurements as JSON; `-` is stdout, instead of the table
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Also draw a roofline plot as SVG; `-` is stdout, instead of the table
    #[arg(long, value_name = "PATH")]
    pub svg: Option<PathBuf>,
    /// Also write the report with these measurements, a page for a browser
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
    /// Also write the record with these measurements, which the report shows
    #[arg(long, value_name = "PATH")]
    pub record: Option<PathBuf>,
    /// Code generator for the kernels
    #[arg(long, value_enum, default_value_t = CodeBackend::Cranelift, help_heading = "Target")]
    pub backend: CodeBackend,
    /// Bound dimensions, entry.
    #[command(flatten)]
    pub program: ProgramOptions,
    /// Target.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Dumps and limits of passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc opt file.air --passes cse,fuse-attention`, `attnc opt file.tir --passes place`
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Output")]
pub struct OptOptions {
    /// IR text; `-` is stdin
    #[arg(help_heading = "Arguments")]
    pub file: PathBuf,
    /// The passes to run, in this order, or on tile IR the steps of the schedule (`attnc list
    /// steps`); `""` runs none; the whole pipeline if omitted
    #[arg(long = "passes", value_name = "PASS,..", value_delimiter = ',')]
    pub pipeline: Option<Vec<String>>,
    /// The output file; stdout if omitted
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Target.
    #[command(flatten)]
    pub target: TargetOptions,
    /// Dumps and limits of passes.
    #[command(flatten)]
    pub passes: PassOptions,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc explain E0301`
#[derive(Args, Debug, Clone)]
pub struct ExplainOptions {
    /// The code: E0301, e301 or 301, or a name in the language reference; lists all codes with
    /// their titles if omitted
    pub code: Option<String>,
}

/// `attnc ref softmax`
#[derive(Args, Debug, Clone)]
pub struct RefOptions {
    /// The function, operator, statement or layer: `softmax`, `@`, `let dim`, `nn.Linear`; lists
    /// all if omitted
    #[arg(allow_hyphen_values = true)]
    pub name: Option<String>,
    /// Print the whole reference as a document in Markdown
    #[arg(long, conflicts_with = "name")]
    pub document: bool,
}

/// `attnc std nn`
#[derive(Args, Debug, Clone)]
pub struct StdOptions {
    /// The module, such as `nn` or `std.nn`; lists all modules if omitted
    pub module: Option<String>,
}

/// `attnc function exp --cpu avx512`
#[derive(Args, Debug, Clone)]
pub struct FunctionOptions {
    /// The function, such as `exp`; `attnc list functions` lists all
    pub name: String,
    /// Show the straight-line code of the leaf functions for this instruction set, instead of the
    /// source with all its versions
    #[arg(long, value_name = "SET")]
    pub cpu: Option<CpuTier>,
}

/// `attnc import bert-base-uncased -o bert.attn`
#[derive(Args, Debug, Clone)]
pub struct ImportOptions {
    /// The folder with `config.json` and `model.safetensors` (or `model.safetensors.index.json`),
    /// or a GGUF file
    pub folder: PathBuf,
    /// The program; stdout if omitted. The weights of a GGUF file are written beside it, as a
    /// safetensors file
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// A field of `config.json` that does not affect the results; may be repeated
    #[arg(long, value_name = "FIELD")]
    pub ignore: Vec<String>,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// Bindings of a program's open parameters.
#[derive(Args, Debug, Clone, Default, PartialEq)]
#[command(next_help_heading = "Program")]
pub struct ProgramOptions {
    /// Bind a dimension to a number (`D=64`), or an element type of the model to another one
    /// (`E=bf16`)
    #[arg(long = "dim", value_name = "NAME=VALUE", value_delimiter = ',')]
    pub dims: Vec<Named<Binding>>,
    /// The model to compile, if the file has several
    #[arg(long, value_name = "MODEL")]
    pub entry: Option<String>,
}

/// Target options.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Target")]
pub struct TargetOptions {
    /// The hardware to compile for; a library for both contains code for both
    #[arg(long, value_enum, value_delimiter = ',', default_value = "cpu")]
    pub target: Vec<Target>,
    /// The GPU architecture of dumps with `--target cuda`
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Gpu::Sm80)]
    pub gpu: Gpu,
    /// Cap the instruction set; code for all of them is included if omitted
    ///
    /// Code for the lower ones is included too, and the best one that the processor supports is
    /// used, except that avx512bf16 is used on Intel processors only with `ATTNC_CPU=avx512bf16`.
    /// The bf16 instruction sets are included if the program multiplies bf16 by bf16 or weights are
    /// packed as bf16, avx2vnni if weights are packed as integers (`--pack`). Dumps (`tile`,
    /// `vector`, `clif`, `mir`, `asm`) show this instruction set, `portable` if omitted. `native`
    /// is the best one of this machine.
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub cpu: Option<CpuTier>,
    /// The format of packed matmul weights
    ///
    /// Weights are packed when a model is opened. Narrower formats make matmuls with few rows
    /// faster and results less exact; `run` reports the error of the results and, with `--weights`,
    /// of each parameter. Sums stay in f32. On processors with bf16 or byte dot products, the other
    /// operand of such a matmul is rounded to bf16, or quantised to 8 bits, too. The interpreter
    /// uses the unpacked weights.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = WeightPacking::F32)]
    pub pack: WeightPacking,
    /// The precision of f32 matmuls on a GPU
    ///
    /// With tf32, they use tensor cores: operands are rounded to 11 significant bits, so the
    /// relative error of each product is at most 2^-10. Sums stay in f32. CPUs always compute in
    /// f32.
    #[arg(long, value_enum, value_name = "PRECISION", default_value_t = MatmulPrecision::F32)]
    pub matmul_precision: MatmulPrecision,
    /// Parameters that are excluded from `--pack` (`"*.gate.*"`); may be repeated
    ///
    /// A pattern must match the whole name of a parameter in the weights file, in which `*`
    /// replaces the index of a layer: `h.*.attn.c_attn.weight`. A `*` in the pattern matches any
    /// string, including dots and that `*`; everything else matches itself. All layers of an array
    /// are packed alike. A pattern that matches no parameter is an error.
    #[arg(long, value_name = "PATTERN", requires = "pack")]
    pub keep: Vec<String>,
    /// Optimisation level. 0: no passes, one kernel per operation. 1: removes dead, redundant and
    /// constant operations and fuses elementwise ones; results are bit-identical to 0. 2: also
    /// finds and fuses attention
    #[arg(short = 'O', value_name = "LEVEL", default_value_t = 2, value_parser = level)]
    pub level: u8,
    /// Which changes in rounding are allowed
    #[arg(long, value_enum, default_value_t = FloatMode::Contract)]
    pub float: FloatMode,
}

impl TargetOptions {
    /// Is this hardware among the targets?
    pub fn is_for(&self, target: Target) -> bool {
        self.target.contains(&target)
    }
}

/// Which passes run, and what is reported about them.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Passes and dumps")]
pub struct PassOptions {
    /// Print the IR before a pass or a step of the schedule, or before `all`, to stderr
    #[arg(long, value_name = "PASS")]
    pub print_before: Vec<String>,
    /// Print the IR after a pass or a step, or after `all`, to stderr
    #[arg(long, value_name = "PASS")]
    pub print_after: Vec<String>,
    /// Print the IR after each pass or step that changed it, in full or as a diff
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "whole")]
    pub print_changed: Option<PrintChanged>,
    /// Verify the IR after each pass and, if given, each step (`false` turns it off)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub verify_each: Option<bool>,
    /// Print the time that each stage, pass and step took
    #[arg(long)]
    pub time_passes: bool,
    /// Print counters of what each pass did
    #[arg(long)]
    pub stats: bool,
    /// Report which fusions were done, and why others were not
    #[arg(long)]
    pub remarks: bool,
    /// Write the IR after each pass and step into this folder
    #[arg(long, value_name = "DIR")]
    pub dump_dir: Option<PathBuf>,
    /// Stop after this pass, or after this step of the schedule
    #[arg(long, value_name = "PASS")]
    pub stop_after: Option<String>,
    /// Apply only the first N rewrites, to find a wrong one by bisection; steps of the schedule
    /// count too, except for those without which there is no code
    #[arg(long, value_name = "N")]
    pub bisect_limit: Option<u64>,
}

impl PassOptions {
    /// The same passes, without reports about them.
    pub fn unreported(&self) -> PassOptions {
        let (stop_after, bisect_limit) = (self.stop_after.clone(), self.bisect_limit);
        PassOptions { stop_after, bisect_limit, ..PassOptions::default() }
    }

    /// Whether the verifier runs after each pass; the default is yes.
    pub fn verifies_each(&self) -> bool {
        self.verify_each.unwrap_or(true)
    }
}

/// Format of messages.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Messages")]
pub struct MessageOptions {
    /// Format of messages on stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = MessageFormat::Human, alias = "message-format")]
    pub error_format: MessageFormat,
    /// When to colour messages
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Colour::Auto)]
    pub color: Colour,
    /// Report on stderr which instruction sets get code and which files are written
    #[arg(short, long)]
    pub verbose: bool,
}

/// `attnc list passes`
#[derive(Args, Debug, Clone)]
pub struct ListOptions {
    /// What to list; shows the possible values if omitted
    #[arg(value_enum)]
    pub what: Option<Listed>,
}

/// `attnc ops --ir graph softmax`
#[derive(Args, Debug, Clone)]
pub struct OpsOptions {
    /// The operation, such as `softmax`; a line for each if omitted
    pub name: Option<String>,
    /// Only the language, or one IR
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub ir: Option<OpsLevel>,
}

/// `attnc learn 3`
#[derive(Args, Debug, Clone)]
pub struct LearnOptions {
    /// The exercise, by number or name; a list of all if omitted
    pub exercise: Option<String>,
    /// Copy the exercises into this folder; files that exist stay as they are
    #[arg(long, value_name = "DIR", conflicts_with_all = ["exercise", "folder", "hint", "watch"])]
    pub start: Option<PathBuf>,
    /// The folder that the exercises were copied into
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// attnc's own source, for exercises that change it
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub source: PathBuf,
    /// Show the first N hints, and judge nothing
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub hint: Option<usize>,
    /// Judge again whenever the file changes, until it passes; without an exercise, all that are
    /// left, one after another
    #[arg(long)]
    pub watch: bool,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}

/// `attnc completions bash`
#[derive(Args, Debug, Clone)]
pub struct CompletionsOptions {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}
