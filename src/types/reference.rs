//! The operations of the language with a summary of each, for `attnc list ops`.
//!
//! In: the tables of scalar operations and of calls (`builtins`). Out: names, arguments and
//! summaries. The checker does not use it.

use super::builtins::{self, Builtin, Row};
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::table::Family;

/// An operation in the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its syntax with arguments; optional ones in brackets.
    pub form: String,
    /// Its result, in one line.
    pub summary: String,
    /// The name of a call; `None` for operators.
    pub name: Option<&'static str>,
    /// The names of its arguments, except variadic ones.
    pub arguments: &'static [&'static str],
    /// The number of optional arguments, which come last.
    pub optional: usize,
}

/// Operations that are written with symbols and are not elementwise.
const FORMS: &[(&str, &str)] = &[
    ("a @ b", "matrix product over the last two axes, leading axes broadcast"),
    ("x.T", "the last two axes swapped"),
    ("x[i]", "one slice of the first axis; with a tensor of integers, a gather"),
];

/// All operations: operators first, then calls in the order of their table. Operands of elementwise
/// operations broadcast.
pub fn operations() -> Vec<Operation> {
    let operation = |form: String, summary: &str| Operation {
        form,
        summary: summary.to_string(),
        name: None,
        arguments: &[],
        optional: 0,
    };
    let forms = FORMS.iter().map(|(form, summary)| operation((*form).to_string(), summary));
    let unary = UnaryOp::ALL.iter().filter_map(|op| {
        let symbol = op.symbol()?;
        // `not` is a word, not a symbol.
        let gap = if symbol.ends_with(char::is_alphabetic) { " " } else { "" };
        Some(operation(format!("{symbol}{gap}x"), op.meaning()))
    });
    let binary = BinaryOp::ALL.iter().filter_map(|op| Some(operation(format!("a {} b", op.symbol()?), op.meaning())));
    let comparisons = CmpOp::ALL.iter().map(|op| operation(format!("a {} b", op.symbol()), op.meaning()));
    let calls = builtins::all().map(|row| {
        let summary = match row.builtin {
            Builtin::Reduce(_) | Builtin::Along(_) => format!("{}; the last axis by default", row.summary),
            _ => row.summary.to_string(),
        };
        Operation { form: form(row), summary, name: Some(row.name), arguments: row.params, optional: row.optional }
    });
    forms.chain(unary).chain(binary).chain(comparisons).chain(calls).collect()
}

fn form(row: &Row) -> String {
    let Row { name, builtin, params: arguments, optional, .. } = *row;
    let needed = arguments.len().saturating_sub(optional);
    let before: &[&str] = if builtin == Builtin::Concat { &["a", "b", ".."] } else { &[] };
    let after: &[&str] = if builtin == Builtin::Einsum { &["a", "b", ".."] } else { &[] };
    let given = arguments.iter().take(needed);
    let words: Vec<&str> = before.iter().chain(given).chain(after).copied().collect();
    let rest: Vec<&str> = arguments.iter().skip(needed).copied().collect();
    let generic = if matches!(builtin, Builtin::Cast | Builtin::Full) { "<type>" } else { "" };
    let rest = match rest.as_slice() {
        [] => String::new(),
        rest => format!("[, {}]", rest.join(", ")),
    };
    format!("{name}{generic}({}{rest})", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_says_what_it_gives() {
        let all = operations();
        for operation in &all {
            assert!(!operation.summary.is_empty(), "{} has no summary", operation.form);
        }
        let forms: Vec<&str> = all.iter().map(|operation| operation.form.as_str()).collect();
        for form in ["softmax(x[, axis])", "concat(a, b, ..[, axis])", "cast<type>(x)", "pow(x, y)"] {
            assert!(forms.contains(&form), "{form}: {forms:?}");
        }
    }
}
