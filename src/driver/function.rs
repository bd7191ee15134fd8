//! `attnc function`, and what `attnc list` says of vector IR: elementary functions as they are written, and as a machine computes
//! them.
//!
//! In: the library of functions and a level of processors. Out: text on stdout.

use super::call::show;
use super::session::{Failure, command_line_error};
use super::stages::native;
use crate::cli::{CpuTier, FunctionOptions};
use crate::diagnostics::did_you_mean;
use crate::irtext::float_text;
use crate::tile::Width;
use crate::vector::{Bound, Features, Op, expand, library, text};

/// `attnc function NAME [--cpu SET]`
pub fn function(options: &FunctionOptions) -> Result<(), Failure> {
    let name = options.name.as_str();
    let Some(source) = library::source(name) else {
        let hint = did_you_mean(name, library::names()).map(|near| format!("; did you mean `{near}`?"));
        let hint = hint.unwrap_or_else(|| "; `attnc list functions` has all".to_string());
        return Err(command_line_error(&format!("there is no function `{name}`{hint}")));
    };
    match options.cpu {
        None => show(source),
        Some(cpu) => {
            let expanded = expand::expand(name, features(cpu)).map_err(|message| command_line_error(&message))?;
            show(&text::print(&expanded))
        }
    }
}

/// What the processors of a level have of what functions ask for.
fn features(cpu: CpuTier) -> Features {
    match cpu {
        CpuTier::Portable | CpuTier::Neon => Features::PLAIN,
        CpuTier::Avx2 | CpuTier::Avx2vnni => Features::AVX2,
        CpuTier::Avx512 | CpuTier::Avx512bf16 | CpuTier::Amx => Features::AVX512,
        CpuTier::Native => match native().width() {
            Width::V128 => Features::PLAIN,
            Width::V256 => Features::AVX2,
            Width::V512 => Features::AVX512,
        },
    }
}

/// Operations, each with its types and meaning.
pub(super) fn operations() -> Vec<(String, String)> {
    let attributed = [Op::Const(0), Op::Polynomial(Vec::new()), Op::Call(String::new())];
    let form = |op: &Op| match op.signature() {
        Some(signature) => {
            let operands: Vec<&str> = signature.operands.iter().map(|ty| ty.name()).collect();
            format!("{} ({}) -> {}", op.name(), operands.join(", "), signature.result)
        }
        None => op.name().to_string(),
    };
    Op::PLAIN.iter().chain(&attributed).map(|op| (form(op), op.meaning().to_string())).collect()
}

/// Elementary functions, each with the error that it states.
pub(super) fn functions() -> Vec<(String, String)> {
    let bound = |name: &str| {
        let bound = library::version(name, Features::PLAIN).ok().and_then(|f| f.bound);
        match bound {
            Some(Bound::Ulp(0.0)) => "exact".to_string(),
            Some(Bound::Ulp(n)) => format!("off by at most {} ulp", float_text(n)),
            Some(Bound::UlpOr(n, absolute)) => {
                format!("off by at most {} ulp or {}", float_text(n), float_text(absolute))
            }
            Some(Bound::RelativeOr(part, absolute)) => {
                format!("off by at most {} of the result or {}", float_text(part), float_text(absolute))
            }
            None => String::new(),
        }
    };
    library::names().map(|name| (name.to_string(), bound(name))).collect()
}
