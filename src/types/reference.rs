//! The operations of the language with a line about each, for `attnc list ops`.
//!
//! In: the table of calls (`builtins`). Out: names, arguments, and what is computed. Nothing is checked by it.

use super::builtins::{self, Builtin};

/// An operation as a reader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// How it is written, with its arguments; those in brackets may be left out.
    pub form: String,
    /// What it gives.
    pub summary: &'static str,
}

/// Operators.
const OPERATORS: &[(&str, &str)] = &[
    ("a @ b", "matrix product over the last two axes, leading axes broadcast"),
    ("a + b, a - b, a * b, a / b, a % b", "for each element, broadcast"),
    ("a == b, a != b, a < b, a <= b, a > b, a >= b", "a comparison of each element, broadcast"),
    ("a and b, a or b, not a", "of truth values, for each element"),
    ("x.T", "the last two axes exchanged"),
    ("x[i]", "one element of the first axis, or, by integers, rows of a table"),
];

/// What each call gives.
const CALLS: &[(&str, &str)] = &[
    ("abs", "the absolute value of each element"),
    ("exp", "e to the power of each element"),
    ("log", "the natural logarithm of each element"),
    ("sqrt", "the square root of each element"),
    ("rsqrt", "1 / sqrt(x) for each element"),
    ("sin", "the sine of each element"),
    ("cos", "the cosine of each element"),
    ("tanh", "the hyperbolic tangent of each element"),
    ("erf", "the error function of each element"),
    ("sigmoid", "1 / (1 + exp(-x)) for each element"),
    ("relu", "maximum(x, 0) for each element"),
    ("gelu", "x * Phi(x) for each element, by erf"),
    ("gelu_tanh", "the approximation of gelu by tanh"),
    ("silu", "x * sigmoid(x) for each element"),
    ("floor", "the greatest integer that is not above each element"),
    ("pow", "x to the power of y, for each element"),
    ("maximum", "the greater of two, for each element"),
    ("minimum", "the lesser of two, for each element"),
    ("sum", "the sum over an axis, the last if left out"),
    ("mean", "the mean over an axis, the last if left out"),
    ("max", "the greatest element along an axis, the last if left out"),
    ("min", "the least element along an axis, the last if left out"),
    ("any", "is one true, along an axis, the last if left out"),
    ("all", "are all true, along an axis, the last if left out"),
    ("argmax", "where the greatest element of an axis is, the first of equals"),
    ("softmax", "exp(x - max) / sum over an axis, the last if left out"),
    ("log_softmax", "the logarithm of the softmax"),
    ("where", "a where the condition holds, else b, broadcast"),
    ("rearrange", "axes split, merged and permuted by a pattern: \"s (h d) -> h s d\""),
    ("einsum", "products and sums by a pattern: \"s d, t d -> s t\""),
    ("concat", "tensors one after another along an axis"),
    ("split", "equal parts of an axis, as a tuple"),
    ("unbind", "the elements of an axis, the first if left out, as a tuple"),
    ("pad", "elements added before and after, along an axis"),
    ("cast", "another element type: cast<f32>(x)"),
    ("iota", "0, 1, 2, .. below n"),
    ("full", "a tensor of one value: full<f32>(0, [S, D])"),
    ("one_hot", "1 at the place i of n, else 0"),
    ("causal", "does query i see key j: j <= i + kv_len - q_len"),
];

/// All operations: operators first, then calls in the order of their table.
pub fn operations() -> Vec<Operation> {
    let operators = OPERATORS.iter().map(|(form, summary)| Operation { form: (*form).to_string(), summary });
    let calls = builtins::names().filter_map(|name| {
        let (_, builtin, arguments, optional) = builtins::find(name)?;
        if *builtin == Builtin::Later {
            return None;
        }
        let summary = CALLS.iter().find(|(known, _)| *known == name).map_or("", |(_, summary)| summary);
        Some(Operation { form: form(name, *builtin, arguments, *optional), summary })
    });
    operators.chain(calls).collect()
}

fn form(name: &str, builtin: Builtin, arguments: &[&str], optional: usize) -> String {
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
        assert_eq!(all.len(), OPERATORS.len() + CALLS.len(), "a summary is of a call that is there");
        let forms: Vec<&str> = all.iter().map(|operation| operation.form.as_str()).collect();
        for form in ["softmax(x[, axis])", "concat(a, b, ..[, axis])", "cast<type>(x)", "pow(x, y)"] {
            assert!(forms.contains(&form), "{form}: {forms:?}");
        }
    }
}
