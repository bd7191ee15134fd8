//! The table of names of other libraries, for the checker and `attnc ref`.
//!
//! In: `table.txt`. Out: its rules. A rule is a line, with advice in prose indented below it:
//!
//! ```text
//! relu6, ReLU6(x) => minimum(relu(x), 6)             names, arguments, and the call as it is written here
//! amax(x, dim?, keepdim?) => max(x, axis = dim, ..)  `dim?` may be omitted, and with it what the form has of it
//! elu(x, alpha = 1) => ..                            a default
//! gelu(x, approximate == "tanh") => gelu_tanh(x)     an argument that must be this
//! np.var(x) => ..                                    of one library alone
//! zeros(*shape) => full<f32>(0, [shape])             all other arguments
//! reshape, view: x.view(B, -1) => rearrange(..)      an example: what is written is made by `super::forms`
//! erfinv, lgamma                                     advice in words alone
//! ```
//!
//! In a replacement, `x.shape` and `x.elem` are the shape and element type of an argument, `x.axes`
//! all its axes, `x.first`, `x.second` and `x.length` the lengths of its first axis, its last axis
//! but one, and the axis that the call names (else the last).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::Call;
use crate::syntax::ast::{self, ExprKind};

/// An argument of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Param {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Needed,
    Optional,
    Default(&'static str),
    Exactly(&'static str),
    Rest,
}

/// A rule: foreign names and their replacement.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The library it applies to, if other libraries use the name for something else.
    pub library: Option<&'static str>,
    /// All names with this rule.
    pub names: Vec<&'static str>,
    /// The arguments in the other library.
    pub call: &'static str,
    params: Vec<Param>,
    /// The replacement in attn; empty if there is only advice.
    pub form: &'static str,
    /// Is the replacement an example, which `forms` or `moved` generates?
    pub is_example: bool,
    /// Advice in prose.
    pub helps: Vec<&'static str>,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let mut rules: Vec<Rule> = Vec::new();
    for line in include_str!("table.txt").lines().filter(|line| !line.is_empty() && !line.starts_with("//")) {
        match (line.strip_prefix("    "), rules.last_mut()) {
            (Some(help), Some(rule)) => rule.helps.push(help),
            _ => rules.push(rule(line)),
        }
    }
    rules
});

static PLACES: LazyLock<BTreeMap<&'static str, Vec<usize>>> = LazyLock::new(|| {
    let mut places: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
    for (at, rule) in RULES.iter().enumerate() {
        rule.names.iter().for_each(|name| places.entry(name).or_default().push(at));
    }
    places
});

/// In the order of the table.
pub fn rules() -> &'static [Rule] {
    &RULES
}

/// The rules for a name, in the order in which they are tried.
pub(super) fn of(name: &str) -> impl Iterator<Item = &'static Rule> {
    PLACES.get(name).into_iter().flatten().filter_map(|at| RULES.get(*at))
}

/// Advice for a field whose type is a layer of other libraries; empty if there is no such layer.
pub(in super::super) fn of_layer(name: &str) -> Vec<String> {
    let own = match name {
        "Dense" => Some("`Linear<I, O>` of `std.nn` is that layer"),
        "Embed" => Some("`Embedding<V, D>` of `std.nn` is that layer"),
        "LayerNormalization" => Some("`LayerNorm<D>` of `std.nn` is that layer"),
        "Flatten" | "Softmax" | "LogSoftmax" | "ELU" | "Softplus" | "Hardswish" | "LeakyReLU" | "ReLU6" | "PReLU" => {
            Some("an operation without parameters needs no field: call a function, `softmax(x)`")
        }
        _ => None,
    };
    let helps = of(name).flat_map(|rule| rule.helps.iter().copied());
    own.into_iter().chain(helps).map(String::from).collect()
}

fn rule(line: &'static str) -> Rule {
    let (head, form) = line.split_once(" => ").unwrap_or((line, ""));
    let is_example = head.split_once(": ").is_some_and(|(names, _)| !names.contains('('));
    let split = if is_example { head.split_once(": ") } else { head.find('(').map(|at| head.split_at(at)) };
    let (names, call) = split.unwrap_or((head, ""));
    let (library, names) = names.split_once('.').map_or((None, names), |(library, names)| (Some(library), names));
    let list = if is_example { "" } else { call.trim_start_matches('(').trim_end_matches(')') };
    let params = list.split(", ").filter(|param| !param.is_empty()).map(param).collect();
    Rule { library, names: names.split(", ").collect(), call, params, form, is_example, helps: Vec::new() }
}

fn param(text: &'static str) -> Param {
    if let Some((name, value)) = text.split_once(" == ") {
        return Param { name, kind: Kind::Exactly(value) };
    }
    if let Some((name, value)) = text.split_once(" = ") {
        return Param { name, kind: Kind::Default(value) };
    }
    match (text.strip_prefix('*'), text.strip_suffix('?')) {
        (Some(name), _) => Param { name, kind: Kind::Rest },
        (None, Some(name)) => Param { name, kind: Kind::Optional },
        (None, None) => Param { name: text, kind: Kind::Needed },
    }
}

/// Arguments that have no effect on the result.
pub(in super::super) const WITHOUT_EFFECT: &[&str] =
    &["inplace", "training", "device", "requires_grad", "memory_format", "name", "out", "copy", "non_blocking"];

/// Synonyms of an axis, and of a flag that keeps it, in various libraries.
pub(in super::super) const AXES: &[&str] = &["dim", "axis", "dims", "axes", "dimension"];
const FLAGS: &[&str] = &["keepdim", "keepdims", "keep_dims", "keep"];

/// Is an argument with this name meant for that parameter?
fn means(given: &str, param: &str, is_first: bool) -> bool {
    let both = |names: &[&str]| names.contains(&given) && names.contains(&param);
    given == param || both(AXES) || both(FLAGS) || is_first && matches!(given, "input" | "a" | "self" | "tensor")
}

/// The value substituted for a parameter.
enum Value<'e> {
    Given(&'e ast::Expr),
    Text(&'static str),
    Rest(String),
}

impl Rule {
    /// The replacement of a call by this rule; `None` if the arguments do not match.
    pub(super) fn write(&self, call: &Call<'_, '_>) -> Option<String> {
        if self.form.is_empty() || self.is_example {
            return None;
        }
        if self.library.is_some() && !self.is_of(call.library) {
            return None;
        }
        let values = self.values(call)?;
        let mut form = self.form.to_string();
        for param in &self.params {
            if param.kind == Kind::Optional && !values.contains_key(param.name) {
                form = without(&form, param.name);
            }
        }
        self.fill(&form, &values, call)
    }

    /// Is the rule for this library only? Libraries that adopted NumPy's names count as NumPy.
    pub(super) fn is_of(&self, library: Option<&str>) -> bool {
        match (self.library, library) {
            (Some("np"), Some(given)) => matches!(given, "np" | "numpy" | "jnp" | "jax" | "tf" | "mx"),
            (Some(own), Some(given)) => own == given,
            (None, _) | (_, None) => false,
        }
    }

    /// The values of the parameters; `None` if an argument has no parameter, or a required
    /// parameter no argument.
    fn values<'e>(&self, call: &Call<'e, '_>) -> Option<BTreeMap<&'static str, Value<'e>>> {
        let mut values = BTreeMap::new();
        let rest = self.params.iter().position(|param| param.kind == Kind::Rest);
        for (at, expr) in call.given.plain.iter().enumerate().take(rest.unwrap_or(usize::MAX)) {
            values.insert(self.params.get(at)?.name, Value::Given(expr));
        }
        if let Some((param, at)) = rest.and_then(|at| Some((self.params.get(at)?, at))) {
            let parts: Vec<String> = call.given.dims(at).into_iter().map(|part| call.text(part)).collect();
            (!parts.is_empty()).then(|| values.insert(param.name, Value::Rest(parts.join(", "))))?;
        }
        for (name, expr) in &call.given.named {
            let found = self.params.iter().enumerate().find(|(at, param)| means(name, param.name, *at == 0));
            match found {
                Some((_, param)) if values.contains_key(param.name) => return None,
                Some((_, param)) => {
                    values.insert(param.name, Value::Given(expr));
                }
                None if WITHOUT_EFFECT.contains(name) => {}
                None => return None,
            }
        }
        for param in &self.params {
            match (param.kind, values.get(param.name)) {
                (Kind::Exactly(wanted), Some(Value::Given(expr))) if call.text(expr) == wanted => {}
                (Kind::Exactly(_), _) | (Kind::Needed | Kind::Rest, None) => return None,
                (Kind::Default(value), None) => {
                    values.insert(param.name, Value::Text(value));
                }
                (Kind::Default(_) | Kind::Needed | Kind::Optional | Kind::Rest, _) => {}
            }
        }
        Some(values)
    }

    /// Substitutes the values of the parameters into the replacement.
    fn fill(&self, form: &str, values: &BTreeMap<&str, Value<'_>>, call: &Call<'_, '_>) -> Option<String> {
        let mut out = String::with_capacity(form.len() + 32);
        let mut rest = form;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '"' => rest.get(1..).and_then(|rest| rest.find('"')).map_or(rest.len(), |at| at + 2),
                c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                c => c.len_utf8(),
            };
            let (word, after) = rest.split_at_checked(length)?;
            rest = after;
            let is_name = after.starts_with(" = ") || after.starts_with('(');
            let Some(value) = values.get(word).filter(|_| !is_name) else {
                out.push_str(word);
                continue;
            };
            let fact = after.strip_prefix('.').and_then(|after| {
                let facts = ["shape", "elem", "axes", "length", "first", "second"];
                facts.into_iter().find(|fact| after.strip_prefix(fact).is_some_and(|rest| !rest.starts_with(is_word)))
            });
            if let Some(fact) = fact {
                rest = after.get(1 + fact.len()..)?;
                let place = self.params.iter().position(|param| param.name == word)?;
                out.push_str(&self.fact(fact, place, values, call)?);
                continue;
            }
            // An argument of a call is copied; an operand gets parentheses if it needs them.
            let begins = out.is_empty() || ["(", "[", "<", ", ", " = "].iter().any(|before| out.ends_with(before));
            let alone = begins && (after.is_empty() || after.starts_with([')', ',', ']', '>']));
            out.push_str(&self.value(word, value, alone, call)?);
        }
        Some(out)
    }

    fn value(&self, name: &str, value: &Value<'_>, alone: bool, call: &Call<'_, '_>) -> Option<String> {
        let expr = match value {
            Value::Text(text) => return Some((*text).to_string()),
            Value::Rest(text) => return Some(text.clone()),
            Value::Given(expr) => *expr,
        };
        if name == "dtype" {
            return super::numbers::elem_of(expr).map(|elem| elem.name().to_string());
        }
        let is_axis = AXES.contains(&name);
        if is_axis || FLAGS.contains(&name) || matches!(&expr.kind, ExprKind::Name(_)) {
            return Some(call.body.value_text(expr, is_axis));
        }
        Some(if alone { call.text(expr) } else { call.body.operand(expr) })
    }

    /// `x.shape`, `x.length`
    fn fact(
        &self,
        fact: &str,
        place: usize,
        values: &BTreeMap<&str, Value<'_>>,
        call: &Call<'_, '_>,
    ) -> Option<String> {
        let tensor = call.tensor(place)?;
        let axis = match fact {
            "elem" => return Some(tensor.elem.to_string()),
            "shape" => {
                let dims: Option<Vec<String>> =
                    tensor.shape.axes.iter().map(|axis| axis.dim().map(ToString::to_string)).collect();
                return dims.filter(|dims| !dims.is_empty()).map(|dims| dims.join(", "));
            }
            "axes" => return super::numbers::all_axes(tensor),
            "first" => 0,
            "second" => -2,
            _ => match values.iter().find(|(name, _)| AXES.contains(name)) {
                Some((_, Value::Given(expr))) => super::numbers::number(expr)?,
                _ => -1,
            },
        };
        super::numbers::piece(tensor.shape.dim(tensor.shape.axis(axis)?)?)
    }
}

/// Removes named arguments with this value: `max(x, axis = dim)` without `dim` is `max(x)`.
fn without(form: &str, param: &str) -> String {
    let mut out = form.to_string();
    let wanted = format!(" = {param}");
    let mut from = 0;
    while let Some(at) = out.get(from..).and_then(|rest| rest.find(&wanted)).map(|at| at + from) {
        let end = at + wanted.len();
        let ends = out.get(end..).is_none_or(|rest| rest.starts_with([',', ')']));
        match out.get(..at).and_then(|before| before.rfind(", ")).filter(|_| ends) {
            Some(start) => {
                out.replace_range(start..end, "");
                from = start;
            }
            None => from = end,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_table_is_read_as_it_was_meant() {
        for rule in rules() {
            assert!(!rule.names.is_empty() && rule.names.iter().all(|name| !name.is_empty()), "{rule:?}");
            let is_name = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
            assert!(rule.names.iter().all(is_name), "{rule:?}");
            assert!(!rule.form.is_empty() || !rule.helps.is_empty(), "{rule:?} has no advice");
            for param in &rule.params {
                assert!(is_name(&param.name), "{rule:?}");
                let is_condition = matches!(param.kind, Kind::Exactly(_)) || WITHOUT_EFFECT.contains(&param.name);
                let used = rule.form.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == param.name);
                assert!(used || is_condition || param.name == "p" || param.name == "dim", "{}: {rule:?}", param.name);
            }
        }
        assert_eq!(
            without("max(x, axis = dim, keep = keepdim) + f(y, axis = dim)", "dim"),
            "max(x, keep = keepdim) + f(y)"
        );
        assert_eq!(without("max(x, axis = dims)", "dim"), "max(x, axis = dims)");
    }
}
