//! The `attnc` command: arguments in, exit code out. A panic is reported as a bug in attnc; running
//! out of memory is an error of the environment.

mod memory;

use attnc::cli::{Command, CommandLine};
use attnc::driver::{self, CommandError};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    memory::exit_when_it_is_used_up(CommandError::Environment.exit_code());
    attnc::files::clean_up_on_signals();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or(String::new(), |place| format!(" at {place}"));
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic");
        let command: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let message = format!(
            "error: internal error: {text}\n  = note: this is a bug in attnc{place}\n  = note: the command was: {}\n",
            command.join(" ")
        );
        let _ = std::io::stderr().lock().write_all(message.as_bytes());
    }));
    let code = std::panic::catch_unwind(|| attnc::stack::with_large_stack(run));
    ExitCode::from(code.unwrap_or(CommandError::Bug.exit_code()))
}

fn run() -> u8 {
    let line = match CommandLine::read(std::env::args_os()) {
        Ok(line) => line,
        Err(message) => {
            // Help goes to stdout and is not an error; neither is a closed pipe.
            let _ = message.print();
            return if message.use_stderr() { CommandError::CommandLine.exit_code() } else { 0 };
        }
    };
    let result = match line.command {
        Command::Compile(options) => driver::compile(&options),
        Command::Check(options) => driver::check(&options),
        Command::Fmt(options) => driver::fmt(&options),
        Command::Fix(options) => driver::fix(&options),
        Command::Lsp { .. } => driver::lsp(),
        Command::Run(options) => driver::run(&options),
        Command::Compare(options) => driver::compare(&options),
        Command::Reduce(options) => driver::reduce(&options),
        Command::Bench(options) => driver::bench(&options),
        Command::Generate(options) => driver::generate(&options),
        Command::Chat(options) => driver::chat(&options),
        Command::Embed(options) => driver::embed(&options),
        Command::Train(options) => driver::train(&options),
        Command::Opt(options) => driver::opt(&options),
        Command::Explain(options) => driver::explain(&options),
        Command::Ref(options) => driver::reference(&options),
        Command::List(options) => driver::list(&options),
        Command::Ops(options) => driver::ops(&options),
        Command::Learn(options) => driver::learn(&options),
        Command::Play(options) => driver::play(&options),
        Command::Completions(options) => driver::completions(&options),
        Command::Std(options) => driver::standard_library(&options),
        Command::Function(options) => driver::function(&options),
        Command::Import(options) => driver::import(&options),
    };
    match result {
        Ok(()) => 0,
        Err(failure) => failure.exit_code(),
    }
}
