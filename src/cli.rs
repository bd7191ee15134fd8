//! The command line: what the user typed, turned into the options of [`crate::driver`].
//!
//! In: the arguments. Out: a [`Command`], or clap's message. Nothing is read, written or compiled here.

mod options;
mod values;

pub use options::{
    BenchOptions, CheckOptions, CompileOptions, ExplainOptions, MessageOptions, OptOptions, PassOptions,
    ProgramOptions, RunOptions, StdOptions, TargetOptions,
};
pub use values::{
    Backend, CodeBackend, Colour, CpuTier, Emit, EmitKind, FloatMode, Named, PrintChanged, Target, WeightPacking,
};

use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;

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
