//! Names of other libraries, and the equivalent code in attn.
//!
//! In: the name of a function and its arguments. Out: candidate expressions with the author's own
//! operands, of which `foreign` suggests the first that type-checks, and advice in prose.
//! `table.txt` has the names and most replacements; `forms` generates the others, which depend on
//! shapes.

mod forms;
mod moved;
mod numbers;
mod table;

use super::body::Body;
use super::typed::Tensor;
use super::values::Ty;
use crate::syntax::ast::{self, ExprKind};

pub(super) use numbers::all_axes;
pub(super) use table::{AXES, WITHOUT_EFFECT, of_layer};
pub use table::{Rule, rules};

/// Advice about a foreign function.
#[derive(Default)]
pub(super) struct Advice {
    /// Possible replacements of the call; the first that type-checks is used.
    pub(super) candidates: Vec<String>,
    /// Advice in prose.
    pub(super) helps: Vec<String>,
    /// Is the replacement a statement without a value?
    pub(super) silent: bool,
}

/// Names of libraries in Python programs.
pub(super) const LIBRARIES: &[&str] = &[
    "torch",
    "F",
    "np",
    "numpy",
    "jnp",
    "jax",
    "nn",
    "tf",
    "math",
    "mx",
    "einops",
    "functional",
    "lax",
    "keras",
    "layers",
    "optax",
    "scipy",
];

/// Submodules of libraries: `torch.nn.functional`, `jax.lax`.
pub(super) const PARTS: &[&str] = &[
    "nn",
    "functional",
    "linalg",
    "lax",
    "numpy",
    "math",
    "special",
    "random",
    "ops",
    "layers",
    "fft",
    "activations",
    "core",
];

/// Advice for `torch.name` if the name is unknown.
pub(super) fn library_help(name: &str) -> String {
    if name.starts_with(char::is_uppercase) {
        layer_help(name)
    } else {
        "call operations by name alone: `softmax(x)`; `attnc ref` lists them".to_string()
    }
}

/// Advice for a layer that is called like a function.
pub(super) fn layer_help(foreign: &str) -> String {
    let (field, layer) = match foreign {
        "Linear" | "Dense" => ("proj", "Linear<I, O>"),
        "LinearNoBias" => ("proj", "LinearNoBias<I, O>"),
        "Conv1D" => ("proj", "Conv1D<I, O>"),
        "Embedding" | "Embed" => ("table", "Embedding<V, D>"),
        "LayerNorm" | "LayerNormalization" | "layer_norm" => ("norm", "LayerNorm<D>"),
        "RMSNorm" | "rms_norm" => ("norm", "RMSNorm<D>"),
        "GroupNorm" => ("norm", "GroupNorm<C, G>"),
        "SelfAttention" => ("attn", "SelfAttention<D, H>"),
        "MultiHeadAttention" | "MultiheadAttention" => ("attn", "MultiHeadAttention<D, H>"),
        _ => {
            return format!(
                "a layer is a field, `name: {foreign}<D>`, and calling the field calls its `forward`: `name(x)`"
            );
        }
    };
    format!("make it a field, `{field}: {layer}` (with `use std.nn`), and call the field: `{field}(x)`")
}

/// Is it the name of a function of another library?
pub(super) fn is_known(name: &str) -> bool {
    table::rules_for(name).next().is_some()
}

/// Does a library use the name of an operation for something else?
pub(super) fn is_of(name: &str, library: Option<&str>) -> bool {
    table::rules_for(name).any(|rule| rule.is_of(library))
}

/// The meaning of `max(a, b)` other than the `max` of `a` along axis `b`.
pub(super) fn second_operand(what: &str) -> Option<(&'static str, &'static str)> {
    Some(match what {
        "max" => ("the elementwise maximum", "maximum({a}, {b})"),
        "min" => ("the elementwise minimum", "minimum({a}, {b})"),
        "sum" => ("their sum", "{a} + {b}"),
        "any" => ("the elementwise or", "{a} or {b}"),
        "all" => ("the elementwise and", "{a} and {b}"),
        _ => return None,
    })
}

/// An argument's type, and the types of its elements if it is a list or a tuple; `None` if it is
/// not a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Operand {
    pub(super) ty: Option<Ty>,
    pub(super) parts: Vec<Option<Ty>>,
}

/// The arguments of a call, by position and by name.
struct CallArgs<'e> {
    plain: Vec<&'e ast::Expr>,
    named: Vec<(&'e str, &'e ast::Expr)>,
}

impl<'e> CallArgs<'e> {
    fn from_args(args: &'e [ast::Arg]) -> CallArgs<'e> {
        let plain = args.iter().filter(|arg| arg.name.is_none()).map(|arg| &arg.value).collect();
        let named = args.iter().filter_map(|arg| Some((arg.name.as_ref()?.name.as_str(), &arg.value))).collect();
        CallArgs { plain, named }
    }

    fn at(&self, place: usize) -> Option<&'e ast::Expr> {
        self.plain.get(place).copied()
    }

    /// The argument at a position, or with one of these names.
    fn get(&self, place: usize, names: &[&str]) -> Option<&'e ast::Expr> {
        let named = || self.named.iter().find(|(name, _)| names.contains(name)).map(|(_, value)| *value);
        self.at(place).or_else(named)
    }

    /// The shape in `zeros(S, D)`, `zeros((S, D))` or `zeros([S, D])`, starting at a position.
    fn dims(&self, from: usize) -> Vec<&'e ast::Expr> {
        match self.plain.get(from..) {
            Some([one]) => match &one.kind {
                ExprKind::List(parts) | ExprKind::Tuple(parts) => parts.iter().collect(),
                _ => vec![one],
            },
            Some([]) => self.get(usize::MAX, &["shape", "size", "newshape", "sizes"]).map_or(Vec::new(), |shape| {
                match &shape.kind {
                    ExprKind::List(parts) | ExprKind::Tuple(parts) => parts.iter().collect(),
                    _ => vec![shape],
                }
            }),
            Some(many) => many.to_vec(),
            None => Vec::new(),
        }
    }
}

/// A call of a foreign function, with everything that rules need.
pub(super) struct Call<'e, 'b> {
    body: &'b Body<'b>,
    name: &'e str,
    /// The library named before the function, if any.
    library: Option<&'e str>,
    args: &'e [ast::Arg],
    given: CallArgs<'e>,
    operands: &'b [Operand],
}

impl<'e> Call<'e, '_> {
    /// The source of an argument, with the suggestions for its parts applied.
    fn text(&self, expr: &ast::Expr) -> String {
        self.body.written(expr.span)
    }

    fn operand_of(&self, expr: &ast::Expr) -> Option<&Operand> {
        let at = self.args.iter().position(|arg| std::ptr::eq(&arg.value, expr))?;
        self.operands.get(at)
    }

    /// The type of the argument at a position, or of its first element, if that is a tensor.
    fn tensor(&self, place: usize) -> Option<&Tensor> {
        let expr = self.given.at(place).or_else(|| {
            let names: &[&str] =
                if place == 0 { &["x", "input", "a", "self", "tensor", "query"] } else { &["y", "other", "key"] };
            self.given.get(usize::MAX, names)
        })?;
        match &self.operand_of(expr)?.ty {
            Some(Ty::Tensor(tensor)) => Some(tensor),
            _ => None,
        }
    }

    fn write(&self, place: usize) -> Option<String> {
        self.given.at(place).map(|expr| self.text(expr))
    }

    fn axis(&self, place: usize) -> Option<&'e ast::Expr> {
        self.given.get(place, table::AXES)
    }

    /// The axes in an argument, one or several.
    fn axes(&self, place: usize) -> Vec<&'e ast::Expr> {
        match self.axis(place) {
            Some(ast::Expr { kind: ExprKind::List(parts) | ExprKind::Tuple(parts), .. }) => parts.iter().collect(),
            Some(one) => vec![one],
            None => Vec::new(),
        }
    }
}

/// The advice for a call of a foreign function.
pub(super) fn advice(
    body: &Body<'_>,
    (name, library): (&str, Option<&str>),
    args: &[ast::Arg],
    operands: &[Operand],
) -> Advice {
    // `x.var(axis = 0)` is NumPy, `x.var(dim = 0)` PyTorch.
    let is_numpy = args.iter().filter_map(|arg| arg.name.as_ref()).any(|name| name.name == "axis");
    let library = library.or(is_numpy.then_some("np"));
    let call = Call { body, name, library, args, given: CallArgs::from_args(args), operands };
    let mut candidates: Vec<String> = forms::made(&call).into_iter().collect();
    let mut helps: Vec<String> = Vec::new();
    for rule in table::rules_for(name) {
        candidates.extend(rule.write(&call));
        for help in &rule.helps {
            if !helps.iter().any(|other| other == help) {
                helps.push((*help).to_string());
            }
        }
    }
    candidates.dedup();
    match forms::help(&call) {
        // The same advice with the names of this call.
        Some(help) if name.starts_with(char::is_uppercase) || name.ends_with("_norm") => helps = vec![help],
        Some(help) => helps.insert(0, help),
        None => {}
    }
    Advice { candidates, helps, silent: name == "print" }
}
