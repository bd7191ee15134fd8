//! `attnc list` and `attnc completions`: names that are valid on the command line and in programs.
//!
//! In: the compiler's own tables. Out: text on stdout, one line per entry.

use super::function;
use super::levels::native;
use super::ops;
use super::session::{CommandError, columns, show, stdout_failed};
use crate::cli::{CommandLine, CompletionsOptions, CpuTier, EmitKind, ListOptions, Listed, OpsLevel};
use crate::codegen::cpu::machine_operations;
use crate::diagnostics::codes;
use crate::passes::PASSES;
use crate::reference;
use crate::runtime::descriptor::features_of;
use crate::runtime::processor::can_run;
use crate::tile::{CPU_STEPS, GPU_STEPS, Step};
use crate::types::modules;
use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// `attnc list WHAT`
pub fn list(options: &ListOptions) -> Result<(), CommandError> {
    let rows = match options.what {
        None => Listed::ALL.into_iter().map(|what| help_of(&what)).collect(),
        Some(Listed::Ops) => ops::listed(OpsLevel::Language),
        Some(Listed::Ir) => ops::listed(OpsLevel::Graph),
        Some(Listed::Tile) => ops::listed(OpsLevel::Tile),
        Some(Listed::Vector) => ops::listed(OpsLevel::Vector),
        Some(Listed::Mir) => {
            machine_operations().into_iter().map(|(form, meaning)| (form, meaning.to_string())).collect()
        }
        Some(Listed::Functions) => function::functions(),
        Some(Listed::Passes) => PASSES.iter().map(|pass| (pass.name.to_string(), pass.summary.to_string())).collect(),
        Some(Listed::Steps) => steps(),
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
    show(&columns(&rows))
}

/// The steps of the schedule, with the machines that have them.
fn steps() -> Vec<(String, String)> {
    let has = |table: &[Step], step: &Step| table.iter().any(|s| s.name == step.name);
    let only_gpus = GPU_STEPS.iter().filter(|step| !has(CPU_STEPS, step));
    let row = |step: &Step| {
        let of = match (has(CPU_STEPS, step), has(GPU_STEPS, step)) {
            (true, true) => "",
            (true, false) => " (CPU)",
            (false, _) => " (GPU)",
        };
        (step.name.to_string(), format!("{}{of}", step.summary))
    };
    CPU_STEPS.iter().chain(only_gpus).map(row).collect()
}

/// The first line of a module's head comment.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches('/').trim().to_string()
}

/// Name and help of an option's value.
fn help_of(value: &impl ValueEnum) -> (String, String) {
    let value = value.to_possible_value();
    let help = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string).unwrap_or_default();
    (value.map(|value| value.get_name().to_string()).unwrap_or_default(), help)
}

/// Instruction sets, and whether this machine supports them.
fn cpus() -> Vec<(String, String)> {
    let row = |tier: &CpuTier| {
        let (name, help) = help_of(tier);
        let here = match tier {
            CpuTier::Native => format!("; here: {}", native().name()),
            _ if features_of(&name).is_some_and(can_run) => "; supported by this machine".to_string(),
            _ => String::new(),
        };
        (name, help + &here)
    };
    CpuTier::value_variants().iter().map(row).collect()
}

/// `attnc completions SHELL`
pub fn completions(options: &CompletionsOptions) -> Result<(), CommandError> {
    let values = |list: Vec<&'static str>| PossibleValuesParser::new(list);
    // The distinct names that are single words for a shell.
    let is_word = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let names: BTreeSet<&'static str> = reference::names().chain(reference::foreign_names()).filter(is_word).collect();
    let names: Vec<&'static str> = names.into_iter().collect();
    let codes: Vec<&'static str> = codes::all().map(|entry| entry.code.as_str()).collect();
    // clap's fish script does not complete positional arguments.
    let fish = [("explain", codes.join(" ")), ("ref", names.join(" "))];
    let fish = fish.map(|(command, words)| {
        format!("complete -c attnc -n \"__fish_attnc_using_subcommand {command}\" -f -a \"{words}\"\n")
    });
    let kinds = || values(EmitKind::ALL.map(EmitKind::name).to_vec());
    let mut command = CommandLine::whole()
        .mut_arg("emit", |arg| arg.value_parser(kinds()))
        .mut_subcommand("compile", |command| command.mut_arg("emit", |arg| arg.value_parser(kinds())))
        .mut_subcommand("explain", |command| command.mut_arg("code", |arg| arg.value_parser(values(codes))))
        .mut_subcommand("ref", |command| command.mut_arg("name", |arg| arg.value_parser(values(names))));
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "attnc", &mut script);
    if options.shell == Shell::Fish {
        fish.iter().for_each(|line| script.extend_from_slice(line.as_bytes()));
    }
    let mut out = io::stdout().lock();
    out.write_all(&script).and_then(|()| out.flush()).map_err(|error| stdout_failed(&error))
}
