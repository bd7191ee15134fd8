//! `attnc run`, and on request a record or a report of the call.
//!
//! In: the options of a call. Out: what `call` prints and writes, then on request the record of the
//! compilation with the numbers of the call, and its page. The program is compiled once more for
//! them, with the same options.

use super::call;
use super::compare;
use super::outputs::Outputs;
use super::record;
use super::session::{CommandError, Session, command_line_error};
use crate::cli::{
    Backend, CodeBackend, CompileOptions, CpuTier, Cubins, Emit, EmitKind, RunOptions, Target, TargetOptions,
};
use crate::diagnostics::Diagnostics;
use serde_json::Value;

/// `attnc run FILE`
pub fn run(options: &RunOptions) -> Result<(), CommandError> {
    let called = call::run(options);
    let pages = [(EmitKind::Html, &options.html), (EmitKind::Record, &options.record)];
    let emit = pages.into_iter().filter_map(|(kind, path)| Some(Emit { kind, path: Some(path.clone()?) }));
    let emit: Vec<Emit> = emit.collect();
    if emit.is_empty() || !matches!(called, Ok(()) | Err(CommandError::Program)) {
        return called;
    }
    let values = match called {
        Ok(()) => compare::numbers(&mut Session::new(&options.messages), options).unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let mut session = Session::new(&options.messages);
    let done = written(&mut session, &of_record(options, emit), values);
    // The call has printed its messages; what is left are files that cannot be written.
    if matches!(done, Err(CommandError::Program)) || done.is_ok() {
        session.diagnostics = Diagnostics::new();
    }
    called.and(session.finish(done))
}

/// Compiles for a record, to which the numbers of a call are added. A program with errors has one.
fn written(s: &mut Session, options: &CompileOptions, values: Value) -> Result<(), CommandError> {
    let out = Outputs::from_options(options).map_err(|message| command_line_error(&message))?;
    let result = super::compile_in(s, options, &out);
    if let Some(record) = &mut s.record {
        record.values = values;
    }
    record::finish(s, &out.of_record(), result)
}

/// The options of the compilation.
fn of_record(options: &RunOptions, emit: Vec<Emit>) -> CompileOptions {
    CompileOptions {
        weights: None,
        file: options.file.clone(),
        output: None,
        emit,
        backend: if options.backend == Backend::Llvm { CodeBackend::Llvm } else { CodeBackend::Cranelift },
        cubins: Cubins::Auto,
        kernel: None,
        function: None,
        mir_registers: false,
        asm_bytes: false,
        debug_lines: false,
        program: options.program.clone(),
        target: shown(&options.target),
        passes: options.passes.unreported(),
        messages: options.messages.clone(),
    }
}

/// The instruction set of the code that ran, unless another is asked for.
fn shown(target: &TargetOptions) -> TargetOptions {
    let native = (!target.is_for(Target::Cuda)).then_some(CpuTier::Native);
    TargetOptions { cpu: target.cpu.or(native), ..target.clone() }
}
