//! The words of other libraries, and how what they say is written here.
//!
//! In: the name of a function and its arguments. Out: the expression to write instead, in the author's own operands, or
//! advice in general words where the operands do not decide.

use super::axes::Shape;
use super::body::Body;
use super::typed::Tensor;
use super::values::Ty;
use crate::syntax::ast::{self, ExprKind};

/// What to say of a foreign function.
#[derive(Default)]
pub(super) struct Advice {
    /// What to write in place of the call.
    pub(super) replacement: Option<String>,
    /// More to say.
    pub(super) helps: Vec<String>,
    /// Has the replacement no value?
    pub(super) silent: bool,
}

/// Names that programs in Python have for libraries.
pub(super) const LIBRARIES: &[&str] =
    &["torch", "F", "np", "numpy", "jnp", "jax", "nn", "tf", "math", "mx", "einops", "functional"];

/// What to say of `torch.name`, where nothing is known of the name.
pub(super) fn library_help(name: &str) -> String {
    if name.starts_with(char::is_uppercase) {
        layer_help(name)
    } else {
        "call operations by name alone: `softmax(x)`".to_string()
    }
}

fn layer_help(name: &str) -> String {
    let generics = match name {
        "Linear" | "LinearNoBias" | "Conv1D" => "<I, O>",
        "Embedding" => "<V, D>",
        "SelfAttention" | "MultiHeadAttention" => "<D, H>",
        _ => "<D>",
    };
    let field = match name {
        "LayerNorm" | "RMSNorm" => "norm",
        "Embedding" => "table",
        "SelfAttention" | "MultiHeadAttention" => "attn",
        _ => "proj",
    };
    format!("make it a field, `{field}: {name}{generics}` (with `use std.nn`), and call the field: `{field}(x)`")
}

/// Is it the name of a function that other libraries have?
pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || is_layer(name)
}

fn is_layer(name: &str) -> bool {
    matches!(
        name,
        "Linear" | "LinearNoBias" | "LayerNorm" | "RMSNorm" | "Embedding" | "MultiHeadAttention" | "SelfAttention"
    )
}

const KNOWN: &[&str] = &[
    "matmul",
    "mm",
    "bmm",
    "dot",
    "transpose",
    "permute",
    "swapaxes",
    "swapdims",
    "t",
    "reshape",
    "view",
    "flatten",
    "squeeze",
    "unsqueeze",
    "expand_dims",
    "cat",
    "concatenate",
    "stack",
    "hstack",
    "vstack",
    "zeros",
    "ones",
    "zeros_like",
    "ones_like",
    "full_like",
    "fill",
    "empty",
    "arange",
    "range",
    "tril",
    "triu",
    "masked_fill",
    "float",
    "int",
    "long",
    "half",
    "double",
    "to",
    "astype",
    "type",
    "square",
    "amax",
    "amin",
    "var",
    "std",
    "clamp",
    "clip",
    "chunk",
    "embedding",
    "gather",
    "take",
    "index_select",
    "repeat",
    "tile",
    "repeat_interleave",
    "expand",
    "broadcast_to",
    "layer_norm",
    "LayerNorm",
    "rms_norm",
    "linear",
    "dropout",
    "Dropout",
    "print",
    "len",
    "shape",
    "size",
    "ndim",
    "dim",
    "topk",
    "add",
    "subtract",
    "sub",
    "multiply",
    "mul",
    "divide",
    "div",
    "power",
    "logical_and",
    "logical_or",
    "logical_not",
    "contiguous",
    "detach",
    "clone",
    "eye",
    "outer",
];

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
            Some(many) => many.to_vec(),
            None => Vec::new(),
        }
    }
}

/// What to write for a call of a foreign function. `types` are those of the arguments, where they have one.
pub(super) fn advice(body: &Body<'_>, name: &str, args: &[ast::Arg], types: &[Option<Ty>]) -> Advice {
    let given = Given::of(args);
    let write = |place: usize| given.at(place).map(|expr| body.written(expr.span));
    let operand = |place: usize| given.at(place).map(|expr| body.operand(expr));
    let text = |expr: &ast::Expr| body.written(expr.span);
    let tensor = |place: usize| match types.get(place) {
        Some(Some(Ty::Tensor(tensor))) => Some(tensor),
        _ => None,
    };
    let axis = |place: usize| given.get(place, &["dim", "axis", "dims", "axes"]);
    let both = |form: &str| Some(form.replace("{a}", &operand(0)?).replace("{b}", &operand(1)?));
    let mut helps: Vec<&str> = Vec::new();
    let mut silent = false;
    let replacement = match name {
        "matmul" | "mm" | "bmm" | "dot" => {
            helps.push("a matrix product is written `a @ b`");
            both("{a} @ {b}")
        }
        "add" => both("{a} + {b}"),
        "sub" | "subtract" => both("{a} - {b}"),
        "mul" | "multiply" => both("{a} * {b}"),
        "div" | "divide" => both("{a} / {b}"),
        "logical_and" => both("{a} and {b}"),
        "logical_or" => both("{a} or {b}"),
        "logical_not" => operand(0).map(|x| format!("not {x}")),
        "power" => Some(format!("pow({}, {})", write(0).unwrap_or_default(), write(1).unwrap_or_default())),
        "square" => write(0).map(|x| format!("pow({x}, 2)")),
        "transpose" | "permute" | "swapaxes" | "swapdims" | "t" => {
            let found = permutation(name, &given, tensor(0), operand(0));
            if found.is_none() {
                helps.push("`x.T` swaps the last two axes; `rearrange(x, \"a b c -> b a c\")` any");
            }
            found
        }
        "unsqueeze" | "expand_dims" | "squeeze" => {
            let found = ones(name, given.at(0).map(text), axis(1), tensor(0));
            if found.is_none() {
                helps.push("add and remove axes of length 1 with a pattern: `rearrange(x, \"s d -> s 1 d\")`");
            }
            found
        }
        "reshape" | "view" | "flatten" => {
            helps.push("split, merge and move axes with a pattern: `rearrange(x, \"s (h d) -> h s d\", h = H)`");
            None
        }
        "cat" | "concatenate" | "hstack" | "vstack" => {
            let parts: Vec<String> = match given.at(0).map(|first| &first.kind) {
                Some(ExprKind::List(parts) | ExprKind::Tuple(parts)) => parts.iter().map(text).collect(),
                _ => given.plain.iter().copied().map(text).collect(),
            };
            let in_list = matches!(given.at(0).map(|first| &first.kind), Some(ExprKind::List(_) | ExprKind::Tuple(_)));
            let axis = if in_list { axis(1) } else { axis(usize::MAX) }.map_or("0".to_string(), text);
            let axis = if name == "hstack" { "1".to_string() } else { axis };
            (!parts.is_empty()).then(|| format!("concat({}, axis = {axis})", parts.join(", ")))
        }
        "stack" => {
            helps.push("give each an axis of length 1 and join them: `concat(rearrange(a, \"d -> 1 d\"), rearrange(b, \"d -> 1 d\"), axis = 0)`");
            None
        }
        "zeros" | "ones" | "empty" => {
            let value = if name == "ones" { 1 } else { 0 };
            let dims: Vec<String> = given.dims(0).into_iter().map(text).collect();
            (!dims.is_empty()).then(|| format!("full<f32>({value}, [{}])", dims.join(", ")))
        }
        "zeros_like" | "ones_like" | "full_like" => tensor(0).filter(|x| x.shape.rest().is_none()).map(|x| {
            let value = match name {
                "zeros_like" => "0".to_string(),
                "ones_like" => "1".to_string(),
                _ => write(1).unwrap_or_default(),
            };
            format!("full<{}>({value}, {})", x.elem, x.shape)
        }),
        "fill" => {
            helps.push("`full<f32>(value, [S, D])` is a tensor of one value");
            None
        }
        "arange" | "range" => match given.plain.as_slice() {
            [n] => Some(format!("iota({})", text(n))),
            [low, high] => {
                Some(format!("{} + iota({} - {})", body.operand(low), body.operand(high), body.operand(low)))
            }
            _ => {
                helps.push("`iota(S)` gives 0, 1, .. as i32");
                None
            }
        },
        "eye" => write(0).map(|n| format!("one_hot(iota({n}), {n})")),
        "tril" | "triu" => {
            helps.push("`causal(q_len, kv_len)` is the mask in which each query sees the keys up to its own position");
            mask(name, &given, tensor(0), write(0))
        }
        "masked_fill" => match (write(0), write(1), write(2)) {
            (Some(x), Some(mask), Some(value)) => Some(format!("where({mask}, {value}, {x})")),
            _ => {
                helps.push("use `where(mask, -inf, x)`");
                None
            }
        },
        "float" | "int" | "long" | "half" | "double" => match given.at(0).map(|first| &first.kind) {
            Some(ExprKind::Str(text)) if text.trim().trim_start_matches(['+', '-']) == "inf" => {
                Some(if text.trim().starts_with('-') { "-inf" } else { "inf" }.to_string())
            }
            _ => {
                let elem = match name {
                    "int" => "i32",
                    "long" => "i64",
                    "half" => "f16",
                    _ => "f32",
                };
                write(0).map(|x| format!("cast<{elem}>({x})"))
            }
        },
        "to" | "astype" | "type" => {
            helps.push("use `cast<f32>(x)`");
            None
        }
        "amax" | "amin" => {
            let keep = given.get(usize::MAX, &["keepdim", "keepdims"]).is_some();
            let axis = axis(1).map_or(String::new(), |axis| format!(", axis = {}", body.value_text(axis, true)));
            let keep = if keep { ", keep = true" } else { "" };
            write(0).map(|x| format!("{}({x}{axis}{keep})", &name[1..]))
        }
        "var" | "std" => {
            let keep = given.get(usize::MAX, &["keepdim", "keepdims"]).is_some();
            let keep = if keep { ", keep = true" } else { "" };
            let axis = axis(1).map_or("-1".to_string(), |axis| body.value_text(axis, true));
            let variance =
                |x: String| format!("mean(pow({x} - mean({x}, axis = {axis}, keep = true), 2), axis = {axis}{keep})");
            let found = operand(0).map(variance);
            if name == "std" { found.map(|variance| format!("sqrt({variance})")) } else { found }
        }
        "clamp" | "clip" => {
            let low = given.get(1, &["min", "a_min"]).map(text);
            let high = given.get(2, &["max", "a_max"]).map(text);
            write(0).map(|x| {
                let x = low.map_or(x.clone(), |low| format!("maximum({x}, {low})"));
                high.map_or(x.clone(), |high| format!("minimum({x}, {high})"))
            })
        }
        "chunk" => match (write(0), write(1)) {
            (Some(x), Some(n)) => {
                let axis = axis(2).map_or("0".to_string(), text);
                Some(format!("split({x}, parts = {n}, axis = {axis})"))
            }
            _ => None,
        },
        "embedding" | "index_select" => both("{b}[{a}]"),
        "gather" | "take" => {
            helps.push("index the table: `table[tokens]`");
            None
        }
        "repeat_interleave" | "repeat" | "tile" => {
            let place = if name == "repeat_interleave" { 2 } else { usize::MAX };
            let found = copies(name == "tile", &given, axis(place), tensor(0), write(0), write(1));
            helps.push(
                "axes of length 1 are broadcast: `rearrange(x, \"s d -> s 1 d\")` next to the other operand is enough",
            );
            found
        }
        "expand" | "broadcast_to" => {
            helps.push("axes of length 1 are broadcast, so this is not needed in a formula");
            helps.push("if a shape is required, add zeros: `x + full<f32>(0, [S, D])`");
            None
        }
        "linear" => match (operand(0), operand(1), operand(2)) {
            (Some(x), Some(w), Some(b)) => Some(format!("{x} @ {w}.T + {b}")),
            (Some(x), Some(w), None) => Some(format!("{x} @ {w}.T")),
            _ => None,
        },
        "layer_norm" | "rms_norm" => {
            let layer = if name == "layer_norm" { "LayerNorm" } else { "RMSNorm" };
            let last = tensor(0).and_then(|x| x.shape.axes.last()).map_or("D".to_string(), |axis| axis.to_string());
            let x = write(0).unwrap_or("x".to_string());
            return Advice {
                helps: vec![format!(
                    "make it a field, `norm: {layer}<{last}>` (with `use std.nn`), and call the field: `norm({x})`"
                )],
                ..Advice::default()
            };
        }
        "dropout" | "Dropout" => {
            helps.push("models are compiled for inference, where dropout does nothing");
            write(0)
        }
        "contiguous" | "detach" | "clone" => {
            helps.push("values are immutable, and the compiler chooses the memory layout");
            write(0)
        }
        "print" => {
            helps.push("`tap` makes a value observable: callers request it by name");
            silent = true;
            match given.at(0).map(|first| &first.kind) {
                Some(ExprKind::Name(name)) if matches!(types.first(), Some(Some(Ty::Tensor(_)))) => {
                    Some(format!("tap {}", name.name))
                }
                _ => {
                    helps.push("name the value first: `let y = ..`, then `tap y`");
                    None
                }
            }
        }
        "len" | "size" | "shape" | "ndim" | "dim" => {
            return length(name, given.get(1, &["dim", "axis"]), tensor(0));
        }
        "topk" => {
            let (x, k) = (given.get(0, &["input"]).map(text), given.get(1, &["k"]).map(text));
            x.zip(k).map(|(x, k)| format!("top_k({x}, {k})"))
        }
        "outer" => {
            helps.push("give one an axis of length 1 and multiply: `rearrange(a, \"s -> s 1\") * b`");
            None
        }
        _ if is_layer(name) => {
            return Advice { helps: vec![layer_help(name)], ..Advice::default() };
        }
        _ => None,
    };
    Advice { replacement, helps: helps.into_iter().map(String::from).collect(), silent }
}

/// Names of axes for a pattern.
const LETTERS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// How many axes a tensor has, if that is known and few enough for a pattern.
fn rank(tensor: Option<&Tensor>) -> Option<usize> {
    let shape: &Shape = &tensor?.shape;
    (shape.rest().is_none() && shape.rank() <= LETTERS.len()).then(|| shape.rank())
}

/// An axis as an index, by a literal.
fn axis_number(expr: &ast::Expr, rank: usize) -> Option<usize> {
    let number = match &expr.kind {
        ExprKind::Int(n) => i64::try_from(*n).ok()?,
        ExprKind::Unary { op: ast::UnaryOp::Neg, operand, .. } => match operand.kind {
            ExprKind::Int(n) => -i64::try_from(n).ok()?,
            _ => return None,
        },
        _ => return None,
    };
    let rank = i64::try_from(rank).ok()?;
    let index = if number < 0 { number + rank } else { number };
    (0..rank).contains(&index).then_some(index as usize)
}

/// `transpose(x, 1, 2)`, `permute(x, 0, 2, 1)` as `.T` or as a pattern.
fn permutation(name: &str, given: &Given<'_>, tensor: Option<&Tensor>, x: Option<String>) -> Option<String> {
    let x = x?;
    let axes = given.dims(1);
    if axes.is_empty() {
        let plain = name == "t" || tensor.is_some_and(|tensor| tensor.shape.rank() <= 2);
        return plain.then(|| format!("{x}.T"));
    }
    let swaps = name != "permute" && axes.len() == 2;
    let is = |expr: &ast::Expr, wanted: i64| axis_number(expr, 2) == Some((wanted + 2) as usize) && wanted < 0;
    let negative = |expr: &ast::Expr| matches!(expr.kind, ExprKind::Unary { .. });
    if let [a, b] = axes.as_slice()
        && swaps
        && negative(a)
        && negative(b)
        && (is(a, -2) && is(b, -1) || is(a, -1) && is(b, -2))
    {
        return Some(format!("{x}.T"));
    }
    let rank = rank(tensor)?;
    let numbers: Option<Vec<usize>> = axes.iter().map(|axis| axis_number(axis, rank)).collect();
    let numbers = numbers?;
    let mut order: Vec<usize> = (0..rank).collect();
    if swaps {
        order.swap(*numbers.first()?, *numbers.get(1)?);
    } else {
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        if sorted != order {
            return None;
        }
        order = numbers;
    }
    let last: Vec<usize> = (0..rank.saturating_sub(2)).chain((rank.saturating_sub(2)..rank).rev()).collect();
    if order == last && rank >= 2 {
        return Some(format!("{x}.T"));
    }
    let names = |order: &[usize]| order.iter().filter_map(|at| LETTERS.get(*at).copied()).collect::<Vec<_>>().join(" ");
    let before: Vec<usize> = (0..rank).collect();
    Some(format!("rearrange({x}, \"{} -> {}\")", names(&before), names(&order)))
}

/// `unsqueeze(x, 1)` and `squeeze(x, 1)` as patterns.
fn ones(name: &str, x: Option<String>, axis: Option<&ast::Expr>, tensor: Option<&Tensor>) -> Option<String> {
    let rank = rank(tensor)?;
    let (wide, narrow) = if name == "squeeze" { (rank, rank.checked_sub(1)?) } else { (rank + 1, rank) };
    let at = axis_number(axis?, wide)?;
    let narrow: Vec<&str> = LETTERS.into_iter().take(narrow).collect();
    let mut wide = narrow.clone();
    wide.insert(at.min(wide.len()), "1");
    let (from, to) = if name == "squeeze" { (wide, narrow) } else { (narrow, wide) };
    Some(format!("rearrange({}, \"{} -> {}\")", x?, from.join(" "), to.join(" ")))
}

/// `tril(ones(S, S))` as `causal(S, S)`; of another tensor, as a choice by that mask.
fn mask(name: &str, given: &Given<'_>, tensor: Option<&Tensor>, x: Option<String>) -> Option<String> {
    let (_, last) = tensor?.shape.split_last(2)?;
    let [rows, columns] = last.as_slice() else { return None };
    if rows != columns {
        return None;
    }
    let diagonal = given.get(1, &["diagonal", "k"]).map(|expr| &expr.kind);
    let is_ones = x.as_ref().is_some_and(|x| x.starts_with("full<f32>(1,") || x.starts_with("full<bool>(true"));
    let kept = match (name, diagonal) {
        ("tril", None | Some(ExprKind::Int(0))) => format!("causal({rows}, {columns})"),
        ("triu", Some(ExprKind::Int(1))) => format!("not causal({rows}, {columns})"),
        ("triu", None | Some(ExprKind::Int(0))) => format!("causal({columns}, {rows}).T"),
        _ => return None,
    };
    if is_ones && tensor?.shape.rank() == 2 { Some(kept) } else { Some(format!("where({kept}, {}, 0)", x?)) }
}

/// `repeat_interleave(x, n, dim = 0)`: each entry `n` times, or all of them `n` times over.
fn copies(
    over: bool,
    given: &Given<'_>,
    axis: Option<&ast::Expr>,
    tensor: Option<&Tensor>,
    x: Option<String>,
    n: Option<String>,
) -> Option<String> {
    let (tensor, rank) = (tensor?, rank(tensor)?);
    if given.plain.len() > 3 || rank + 1 > LETTERS.len() || !(tensor.elem.is_float() || tensor.elem.is_int()) {
        return None;
    }
    let at = axis_number(axis?, rank)?;
    let names: Vec<&str> = LETTERS.into_iter().take(rank).collect();
    let (own, mut wide, mut joined) = (names.get(at).copied()?, names.clone(), names.clone());
    let place = if over { at } else { at + 1 };
    wide.insert(place, "1");
    let pair = if over { format!("(n {own})") } else { format!("({own} n)") };
    let mut split = names.clone();
    split.insert(place, "n");
    *joined.get_mut(at)? = &pair;
    let mut dims: Vec<String> = vec!["1".to_string(); rank + 1];
    *dims.get_mut(place)? = n?;
    Some(format!(
        "rearrange(rearrange({}, \"{} -> {}\") * full<{}>(1, [{}]), \"{} -> {}\")",
        x?,
        names.join(" "),
        wide.join(" "),
        tensor.elem,
        dims.join(", "),
        split.join(" "),
        joined.join(" ")
    ))
}

/// `len(x)`, `x.size(0)`, `shape(x)`: lengths have names.
fn length(name: &str, axis: Option<&ast::Expr>, tensor: Option<&Tensor>) -> Advice {
    let general = || "a length is known by its name: `x: f32[S, D]` makes `S` and `D` known".to_string();
    let Some(tensor) = tensor else { return Advice { helps: vec![general()], ..Advice::default() } };
    let at = match (name, axis) {
        ("len", None) => tensor.shape.axis(0),
        (_, Some(axis)) => axis_number(axis, tensor.shape.rank()).filter(|_| tensor.shape.rest().is_none()),
        _ => None,
    };
    match at.and_then(|at| tensor.shape.dim(at)) {
        Some(dim) => {
            let helps = vec![format!("the shape is {}; each length is known by its name", tensor.shape)];
            let text = dim.to_string();
            let one_piece = text.chars().all(|c| c.is_alphanumeric() || c == '_');
            let text = if one_piece { text } else { format!("({text})") };
            Advice { replacement: Some(text), helps, silent: false }
        }
        None => {
            let helps = vec![format!("the shape is {}; each length is known by its name", tensor.shape)];
            Advice { helps, ..Advice::default() }
        }
    }
}
