//! The command line: parses the arguments into options of [`crate::driver`].
//!
//! In: the arguments. Out: a [`Command`], or clap's message. Nothing is read, written or compiled
//! here.

mod options;
mod play;
mod texts;
mod train;
mod values;

pub use options::{
    BenchOptions, CallOptions, CheckOptions, CompareOptions, CompileOptions, CompletionsOptions, ExplainOptions,
    FixOptions, FmtOptions, FunctionOptions, ImportOptions, LearnOptions, ListOptions, MessageOptions, OpsOptions,
    OptOptions, PassOptions, ProgramOptions, ReduceOptions, RefOptions, RunOptions, StdOptions, TargetOptions,
};
pub use play::PlayOptions;
pub use texts::{ChatOptions, EmbedOptions, GenerateOptions, ModelOptions, WriteOptions};
pub use values::{
    Backend, Binding, CodeBackend, Colour, CpuTier, Cubins, Emit, EmitKind, FloatMode, Gpu, Input, Listed,
    MatmulPrecision, MessageFormat, Named, OpsLevel, PrintChanged, StateValue, Stop, Target, WeightPacking,
};

pub use train::{HeldOut, TokenFormat, TrainOptions};

use crate::diagnostics::did_you_mean;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// What `--version` prints after the name.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let llvm = if cfg!(feature = "llvm") { "Cranelift, LLVM" } else { "Cranelift (built without LLVM)" };
    let mut text = format!("{}\n", env!("CARGO_PKG_VERSION"));
    let _ = write!(text, "host: {}\ncode generators: {llvm}", target_lexicon::HOST);
    text
});

/// Ahead-of-time compiler for attention graphs.
#[derive(Parser, Debug)]
#[command(name = "attnc", version, about, arg_required_else_help = true, subcommand_required = true)]
#[command(long_version = VERSION.as_str())]
#[command(override_usage = "attnc [OPTIONS] <FILE>\n       attnc <COMMAND> ..")]
#[command(after_help = "Without a command, FILE is compiled: `attnc model.attn -o model.so`.\n\
    `attnc help COMMAND` shows the options of a command, `attnc list` the values that they take.\n\
    Exit codes: 0 success, 1 an error in the program, 2 in the command line, 3 in the environment (files, the linker,\n\
    memory), 101 a bug in attnc, 130 a command that writes or trains was interrupted.")]
pub struct CommandLine {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that need no command.
const OWN: [&str; 7] = ["help", "-h", "--help", "-V", "--version", "-v", "--verbose"];

impl CommandLine {
    /// Parses a command line, including the program's name. `compile` may be omitted; it is
    /// inserted if the first argument is not a command.
    ///
    /// # Errors
    /// Help, the version, or an error in the command line, as formatted by clap.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<CommandLine, clap::Error> {
        let mut args: Vec<OsString> = args.into_iter().collect();
        let words: Vec<&str> = args.iter().skip(1).map(|arg| arg.to_str().unwrap_or("")).collect();
        if let [] | ["help" | "-h" | "--help"] = words.as_slice() {
            let asked = words.first().map(|word| if *word == "-h" { "-h" } else { "--help" });
            let shown = CommandLine::whole().try_get_matches_from(["attnc"].into_iter().chain(asked));
            return Err(shown.err().unwrap_or_else(|| clap::Error::new(ErrorKind::DisplayHelp)));
        }
        if matches!(words.as_slice(), ["-v" | "--verbose"] | ["-v" | "--verbose", "-V" | "--version"] | ["-vV"]) {
            args = vec!["attnc".into(), "--version".into()];
            return CommandLine::try_parse_from(args);
        }
        let own = CommandLine::command();
        let names: Vec<&str> = own.get_subcommands().map(clap::Command::get_name).chain(["help"]).collect();
        let first = words.first().copied().unwrap_or_default();
        if OWN.contains(&first) && first != "-v" && first != "--verbose" || names.contains(&first) {
            return CommandLine::try_parse_from(&args)?.with_other_side(&args)?.checked();
        }
        let later = words.iter().skip(1).find(|word| names.contains(word)).copied();
        let wrong = match (did_you_mean(first, names.iter().copied()), later) {
            (Some(near), _) if words.len() > 1 => {
                Some(format!("there is no command `{first}`; did you mean `{near}`?"))
            }
            (_, Some(command)) if first.starts_with('-') => {
                Some(format!("the command comes before its options: `attnc {command} ..`"))
            }
            _ => None,
        };
        args.insert(1, "compile".into());
        let read = CommandLine::try_parse_from(args);
        match (read, wrong) {
            (Ok(line), _) => line.checked(),
            (Err(error), Some(wrong)) if error.kind() == ErrorKind::UnknownArgument => {
                Err(CommandLine::whole().error(ErrorKind::InvalidSubcommand, wrong))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// The definition with the options of `compile` also at the top level, where they are accepted
    /// too: for help and shell completions.
    pub fn whole() -> clap::Command {
        let own = CommandLine::command();
        let about = own.get_about().cloned().unwrap_or_default();
        CompileOptions::augment_args(own).about(about).subcommand_required(false)
    }

    /// Reads the words after `--with` of `compare` as options that replace those before it.
    fn with_other_side(mut self, args: &[OsString]) -> Result<CommandLine, clap::Error> {
        let Command::Compare(own) = &mut self.command else { return Ok(self) };
        if own.with.is_empty() {
            return Ok(self);
        }
        let with = |arg: &OsString| arg.to_str().is_some_and(|arg| arg == "--with" || arg.starts_with("--with="));
        let at = args.iter().position(with).unwrap_or(args.len());
        let after = if args.get(at).is_some_and(|arg| arg == "--with") { args.len() } else { at + 1 };
        let words = args[..at].iter().chain(args.get(after..).unwrap_or_default()).cloned();
        let words = words.chain(own.with.iter().map(OsString::from));
        let command = CommandLine::command().mut_subcommand("compare", |compare| compare.args_override_self(true));
        let found = command.try_get_matches_from(words).and_then(|found| CommandLine::from_arg_matches(&found))?;
        let Command::Compare(mut other) = found.command else { return Ok(self) };
        // A dimension that is bound again has its last value.
        let dims = std::mem::take(&mut other.program.dims);
        other.program.dims = dims
            .iter()
            .enumerate()
            .filter(|(i, d)| !dims[i + 1..].iter().any(|o| o.name == d.name))
            .map(|(_, d)| d.clone())
            .collect();
        if other.call != own.call {
            let text = "both sides have the same arguments: they come before `--with`";
            return Err(CommandLine::command().error(ErrorKind::ArgumentConflict, text));
        }
        own.other = Some(Box::new(other));
        Ok(self)
    }

    /// Checks that clap does not make: a name must get only one value.
    fn checked(self) -> Result<CommandLine, clap::Error> {
        let (program, size) = match &self.command {
            Command::Compile(options) => (Some(&options.program), [].as_slice()),
            Command::Check(options) => (Some(&options.program), [].as_slice()),
            Command::Run(options) => {
                if !options.call.size.is_empty() && options.call.random.is_none() {
                    let text = "`--size` is for random arguments: add `--random`";
                    return Err(CommandLine::command().error(ErrorKind::MissingRequiredArgument, text));
                }
                (Some(&options.program), options.call.size.as_slice())
            }
            Command::Compare(options) => (Some(&options.program), options.call.size.as_slice()),
            Command::Bench(options) => (Some(&options.program), options.size.as_slice()),
            Command::Generate(options) => (Some(&options.model.program), [].as_slice()),
            Command::Chat(options) => (Some(&options.model.program), [].as_slice()),
            Command::Embed(options) => (Some(&options.model.program), [].as_slice()),
            Command::Train(options) => (Some(&options.program), [].as_slice()),
            Command::Opt(_)
            | Command::Explain(_)
            | Command::Fmt(_)
            | Command::Fix(_)
            | Command::Std(_)
            | Command::Function(_)
            | Command::Import(_)
            | Command::Ops(_)
            | Command::Reduce(_)
            | Command::Ref(_)
            | Command::List(_)
            | Command::Lsp { .. }
            | Command::Learn(_)
            | Command::Play(_)
            | Command::Completions(_) => (None, [].as_slice()),
        };
        let dims = program.iter().flat_map(|program| &program.dims).map(|dim| &dim.name);
        let sizes = size.iter().map(|size| &size.name);
        for (flag, names) in [("dim", dims.collect::<Vec<_>>()), ("size", sizes.collect())] {
            if let Some((_, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
                let text = format!("`--{flag} {name}` is given twice");
                return Err(CommandLine::command().error(ErrorKind::ArgumentConflict, text));
            }
        }
        Ok(self)
    }
}

/// The commands of attnc.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Compile a program (the command may be omitted)
    Compile(CompileOptions),
    /// Report all errors in a program without compiling it
    Check(CheckOptions),
    /// Format programs: one style, without options
    Fmt(FmtOptions),
    /// Apply the fixes that the messages of `check` suggest
    Fix(FixOptions),
    /// Compile a program in memory and call an entry point
    Run(RunOptions),
    /// Write text with a model, token by token
    Generate(GenerateOptions),
    /// Talk with a model: each line of stdin is a message, each answer ends with a line
    Chat(ChatOptions),
    /// Turn each line of a text into a vector, by a sentence encoder
    Embed(EmbedOptions),
    /// Train a model: call an entry point that trains over a data set
    Train(TrainOptions),
    /// Find the first value that differs between two ways to compute a program
    Compare(CompareOptions),
    /// Make a program smaller as long as it stays interesting: an error, a wrong number
    Reduce(ReduceOptions),
    /// Time each kernel of an entry point and compare with the limits of the machine
    Bench(BenchOptions),
    /// Run passes on graph IR (`.air`), or steps of the schedule on tile IR (`.tir`)
    Opt(OptOptions),
    /// Explain an error code, with a failing and a corrected example
    Explain(ExplainOptions),
    /// Show the language reference, or one entry of it: a function, an operator, a statement, a
    /// layer
    Ref(RefOptions),
    /// List operations, passes, output formats, instruction sets, error codes
    List(ListOptions),
    /// Show the operations of the language and of the IRs, or all about one
    Ops(OpsOptions),
    /// Print a module of the standard library, which is written in the language itself
    Std(StdOptions),
    /// Print an elementary function (`exp`, `erf`) in vector IR, its source or its code for one
    /// instruction set
    Function(FunctionOptions),
    /// Write a program for a checkpoint of the Hugging Face hub (GPT-2, BERT, Llama, T5, ViT, ...)
    Import(ImportOptions),
    /// Serve an editor: the language server, over stdin and stdout
    Lsp {
        /// Changes nothing: many editors pass it
        #[arg(long, hide = true)]
        stdio: bool,
    },
    /// Exercises of the course (`docs/book`), judged by the compiler
    Learn(LearnOptions),
    /// Write, compile and run programs in a local page, beside the course
    Play(PlayOptions),
    /// Print a completion script for a shell
    Completions(CompletionsOptions),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
        CommandLine::whole().debug_assert();
    }

    #[test]
    fn compiling_needs_no_word() {
        let line = ["attnc", "m.attn", "-O1", "--emit", "ir=-,so", "--dim", "S=128,T=4"];
        let line = CommandLine::read(line.map(OsString::from)).map(|line| line.command);
        let Ok(Command::Compile(options)) = line else { panic!("not a compilation") };
        assert_eq!(options.target.level, 1);
        assert_eq!(options.emit.len(), 2);
        assert_eq!(options.emit[0].kind, EmitKind::Ir);
        assert_eq!(options.program.dims[1], Named { name: "T".to_string(), value: Binding::Number(4) });
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for line in [
            &["attnc", "m.attn", "-O3"][..],
            &["attnc", "m.attn", "--dim", "S=1", "--dim", "S=1"],
            &["attnc", "run", "m.attn", "--random", "--size", "S=1,S=2"],
            &["attnc", "run", "m.attn", "--size", "S=1"],
            &["attnc", "bench", "m.attn", "--seconds", "nan"],
            &["attnc", "bench", "m.attn", "--seconds", "-1"],
            &["attnc", "bench", "m.attn", "--seconds", "inf"],
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
