//! `attnc list` and `attnc completions`: what can be named on the command line and in programs.
//!
//! In: the tables that the compiler itself reads. Out: text on stdout, a line for each entry.

use super::call::show;
use super::function;
use super::session::{Failure, stdout_failed};
use super::stages::native;
use crate::cli::{CommandLine, CompletionsOptions, CpuTier, EmitKind, ListOptions, Listed};
use crate::codegen::cpu::machine_operations;
use crate::diagnostics::codes;
use crate::ir::{Function, FusionKind, Op, OpInfo, Scalar};
use crate::passes::PASSES;
use crate::runtime::descriptor::features_of;
use crate::runtime::processor::can_run;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::types::{self, modules};
use clap::ValueEnum;
use std::io::{self, Write};

/// `attnc list WHAT`
pub fn list(options: &ListOptions) -> Result<(), Failure> {
    let rows = match options.what {
        None => Listed::ALL.into_iter().map(|what| help_of(&what)).collect(),
        Some(Listed::Ops) => {
            types::operations().into_iter().map(|op| (op.form, op.summary.to_string())).collect::<Vec<_>>()
        }
        Some(Listed::Ir) => graph_operations()
            .into_iter()
            .map(|op| {
                (format!("{} {}", op.name, op.operands.join(", ")).trim_end().to_string(), op.summary.to_string())
            })
            .collect(),
        Some(Listed::Vector) => function::operations(),
        Some(Listed::Mir) => {
            machine_operations().into_iter().map(|(form, meaning)| (form, meaning.to_string())).collect()
        }
        Some(Listed::Functions) => function::functions(),
        Some(Listed::Passes) => PASSES.iter().map(|pass| (pass.name.to_string(), pass.summary.to_string())).collect(),
        Some(Listed::Emit) => EmitKind::ALL
            .into_iter()
            .map(|kind| (format!("{} (.{})", kind.name(), kind.extension()), kind.summary().to_string()))
            .collect(),
        Some(Listed::Cpus) => cpus(),
        Some(Listed::Codes) => codes::all().map(|entry| (entry.code.to_string(), entry.title.to_string())).collect(),
        Some(Listed::Modules) => {
            modules::MODULES.iter().map(|module| (module.path.to_string(), first_line(module.text))).collect()
        }
    };
    show(&table(&rows))
}

/// The table of the graph IR's operations, each with some attributes, for the table has none.
fn graph_operations() -> Vec<OpInfo> {
    let zero = Dim::zero;
    let first = [
        Op::Const(Scalar::Int(0)),
        Op::DimValue(zero()),
        Op::Iota { axis: 0 },
        Op::Causal,
        Op::Param { name: String::new() },
    ];
    let elementwise = UnaryOp::ALL.iter().map(|op| Op::Unary(*op));
    let elementwise = elementwise.chain(BinaryOp::ALL.iter().map(|op| Op::Binary(*op)));
    let elementwise = elementwise.chain(CmpOp::ALL.iter().map(|op| Op::Compare(*op)));
    let moving = [
        Op::Where,
        Op::Cast { elem: Elem::F32 },
        Op::Reshape,
        Op::Transpose { perm: Vec::new() },
        Op::Broadcast,
        Op::Slice { axis: 0, start: zero(), stop: zero() },
        Op::Index { axis: 0 },
        Op::Concat { axis: 0 },
        Op::Pad { axis: 0, low: zero(), high: zero() },
        Op::Gather { axis: 0 },
    ];
    let reductions = ReduceKind::ALL.iter().map(|kind| Op::Reduce { kind: *kind, axes: Vec::new(), keep: false });
    let last = [
        Op::Softmax { axis: 0 },
        Op::LogSoftmax { axis: 0 },
        Op::Matmul,
        Op::Attention { masks: Vec::new() },
        Op::Fused { kind: FusionKind::Map, body: Box::new(Function::new("")) },
        Op::Tap { name: String::new(), extents: Vec::new() },
    ];
    first.into_iter().chain(elementwise).chain(moving).chain(reductions).chain(last).map(|op| op.info()).collect()
}

/// The first line of a module's own comment.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches('/').trim().to_string()
}

/// A value of an option and its help.
fn help_of(value: &impl ValueEnum) -> (String, String) {
    let value = value.to_possible_value();
    let help = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string).unwrap_or_default();
    (value.map(|value| value.get_name().to_string()).unwrap_or_default(), help)
}

/// Instruction sets, each with what this machine makes of it.
fn cpus() -> Vec<(String, String)> {
    let row = |tier: &CpuTier| {
        let (name, help) = help_of(tier);
        let here = match tier {
            CpuTier::Native => format!("; here it is {}", native().name()),
            _ if features_of(&name).is_some_and(can_run) => "; this machine has it".to_string(),
            _ => String::new(),
        };
        (name, help + &here)
    };
    CpuTier::value_variants().iter().map(row).collect()
}

/// Two columns; the second begins at the same place unless a first one is very wide.
fn table(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(first, _)| first.chars().count()).max().unwrap_or(0).min(48);
    rows.iter().map(|(first, second)| format!("{first:width$}  {second}\n")).collect()
}

/// `attnc completions SHELL`
pub fn completions(options: &CompletionsOptions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut CommandLine::whole(), "attnc", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script).and_then(|()| out.flush()).map_err(|error| stdout_failed(&error))
}
