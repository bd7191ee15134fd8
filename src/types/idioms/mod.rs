//! The words of other libraries, and how what they say is written here.
//!
//! In: the name of a function and its arguments. Out: the expressions that may be meant, in the author's own operands, of which
//! `foreign` suggests the first that checks, and advice in words. The names and most of the forms are in `table.txt`; `forms` makes
//! those that depend on shapes.

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

/// What to say of a foreign function.
#[derive(Default)]
pub(super) struct Advice {
    /// What may be written in place of the call; the first that checks is.
    pub(super) candidates: Vec<String>,
    /// More to say.
    pub(super) helps: Vec<String>,
    /// Has the replacement no value?
    pub(super) silent: bool,
}

/// Names that programs in Python have for libraries.
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

/// Parts of libraries: `torch.nn.functional`, `jax.lax`.
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

/// What to say of `torch.name`, where nothing is known of the name.
pub(super) fn library_help(name: &str) -> String {
    if name.starts_with(char::is_uppercase) {
        layer_help(name)
    } else {
        "call operations by name alone: `softmax(x)`; `attnc ref` lists them".to_string()
    }
}

/// What to say of a layer that is called like a function.
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

/// Is it the name of a function that other libraries have?
pub(super) fn is_known(name: &str) -> bool {
    table::of(name).next().is_some()
}

/// Has a library something else of the name of an operation?
pub(super) fn is_of(name: &str, library: Option<&str>) -> bool {
    table::of(name).any(|rule| rule.is_of(library))
}

/// What `max(a, b)` may mean besides the `max` of `a` along the axis `b`.
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

/// An argument's type, and those of its parts where it is a list or a tuple; none for what is no value here.
#[derive(Clone, Debug, Default)]
pub(super) struct Operand {
    pub(super) ty: Option<Ty>,
    pub(super) parts: Vec<Option<Ty>>,
}

/// The arguments of a call, by place and by name.
struct Given<'e> {
    plain: Vec<&'e ast::Expr>,
    named: Vec<(&'e str, &'e ast::Expr)>,
}

impl<'e> Given<'e> {
    fn of(args: &'e [ast::Arg]) -> Given<'e> {
        let plain = args.iter().filter(|arg| arg.name.is_none()).map(|arg| &arg.value).collect();
        let named = args.iter().filter_map(|arg| Some((arg.name.as_ref()?.name.as_str(), &arg.value))).collect();
        Given { plain, named }
    }

    fn at(&self, place: usize) -> Option<&'e ast::Expr> {
        self.plain.get(place).copied()
    }

    /// The argument at a place, or by one of its names.
    fn get(&self, place: usize, names: &[&str]) -> Option<&'e ast::Expr> {
        let named = || self.named.iter().find(|(name, _)| names.contains(name)).map(|(_, value)| *value);
        self.at(place).or_else(named)
    }

    /// The shape that `zeros(S, D)`, `zeros((S, D))` or `zeros([S, D])` is given, from a place on.
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

/// A call of a foreign function.
pub(super) struct Call<'e, 'b> {
    body: &'b Body<'b>,
    name: &'e str,
    /// The library before the name, if any.
    library: Option<&'e str>,
    args: &'e [ast::Arg],
    given: Given<'e>,
    operands: &'b [Operand],
}

impl<'e> Call<'e, '_> {
    /// An argument as it is written, with what was advised about its parts.
    fn text(&self, expr: &ast::Expr) -> String {
        self.body.written(expr.span)
    }

    fn operand_of(&self, expr: &ast::Expr) -> Option<&Operand> {
        let at = self.args.iter().position(|arg| std::ptr::eq(&arg.value, expr))?;
        self.operands.get(at)
    }

    /// The type of the argument at a place, or of its first one, if that is a tensor.
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

    /// The axes that are named, as one number or several.
    fn axes(&self, place: usize) -> Vec<&'e ast::Expr> {
        match self.axis(place) {
            Some(ast::Expr { kind: ExprKind::List(parts) | ExprKind::Tuple(parts), .. }) => parts.iter().collect(),
            Some(one) => vec![one],
            None => Vec::new(),
        }
    }
}

/// What to write for a call of a foreign function.
pub(super) fn advice(
    body: &Body<'_>,
    (name, library): (&str, Option<&str>),
    args: &[ast::Arg],
    operands: &[Operand],
) -> Advice {
    // `x.var(axis = 0)` is NumPy's, `x.var(dim = 0)` PyTorch's.
    let is_numpy = args.iter().filter_map(|arg| arg.name.as_ref()).any(|name| name.name == "axis");
    let library = library.or(is_numpy.then_some("np"));
    let call = Call { body, name, library, args, given: Given::of(args), operands };
    let mut candidates: Vec<String> = forms::made(&call).into_iter().collect();
    let mut helps: Vec<String> = Vec::new();
    for rule in table::of(name) {
        candidates.extend(rule.write(&call));
        for help in &rule.helps {
            if !helps.iter().any(|other| other == help) {
                helps.push((*help).to_string());
            }
        }
    }
    candidates.dedup();
    match forms::help(&call) {
        // The same in the names of this call.
        Some(help) if name.starts_with(char::is_uppercase) || name.ends_with("_norm") => helps = vec![help],
        Some(help) => helps.insert(0, help),
        None => {}
    }
    Advice { candidates, helps, silent: name == "print" }
}
