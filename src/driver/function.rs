//! `attnc function`, and `attnc list functions`: the source of elementary functions in vector IR,
//! and their code for one instruction set.
//!
//! In: the library of functions and an instruction set. Out: text on stdout.

use super::levels::level;
use super::session::{CommandError, command_line_error, show};
use crate::cli::FunctionOptions;
use crate::codegen::cpu::math::features;
use crate::diagnostics::did_you_mean;
use crate::irtext::float_text;
use crate::vector::{Bound, Features, Type, expand, library, text};

/// `attnc function NAME [--cpu SET]`
pub fn function(options: &FunctionOptions) -> Result<(), CommandError> {
    let name = options.name.as_str();
    let Some(source) = library::source(name) else {
        let hint = did_you_mean(name, library::names()).map(|near| format!("; did you mean `{near}`?"));
        let hint = hint.unwrap_or_else(|| "; `attnc list functions` lists all".to_string());
        return Err(command_line_error(&format!("there is no function `{name}`{hint}")));
    };
    match options.cpu {
        None => show(source),
        Some(cpu) => {
            let expanded =
                expand::expanded(name, features(level(cpu).width())).map_err(|message| command_line_error(&message))?;
            show(&text::print(&expanded.function))
        }
    }
}

/// Elementary functions, each with its error bound.
pub(super) fn functions() -> Vec<(String, String)> {
    let bound = |name: &str| {
        let f = library::version(name, Features::PLAIN).ok();
        match f.and_then(|f| f.bound) {
            None if f.is_some_and(|f| f.result_type == Type::I32) => "exact".to_string(),
            Some(Bound::Ulp(0.0)) => "exact".to_string(),
            Some(Bound::Ulp(n)) => format!("error at most {} ulp", float_text(n)),
            Some(Bound::UlpOr(n, absolute)) => {
                format!("error at most {} ulp or {}", float_text(n), float_text(absolute))
            }
            Some(Bound::RelativeOr(part, absolute)) => {
                format!("error at most {} of the result or {}", float_text(part), float_text(absolute))
            }
            None => String::new(),
        }
    };
    library::names().map(|name| (name.to_string(), bound(name))).collect()
}
