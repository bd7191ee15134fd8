//! Replacements that depend on shapes or on the number of operands.
//!
//! In: a call of a foreign function. Out: the equivalent expression, or advice. Pure movement of
//! axes is in `moved`.

use super::super::values::Ty;
use super::numbers::{LETTERS, axis_number, elem_of, number, piece, rank};
use super::{Call, layer_help, moved};
use crate::shape::{Dim, Elem};
use crate::syntax::ast::{self, ExprKind};

/// The replacement of a call that the table has no form for.
pub(super) fn made(call: &Call<'_, '_>) -> Option<String> {
    let x = || call.write(0);
    match call.name {
        "transpose" | "permute" | "swapaxes" | "swapdims" | "t" | "mT" | "adjoint" => moved::permutation(call),
        "movedim" | "moveaxis" => moved::one_axis(call),
        "unsqueeze" | "expand_dims" | "squeeze" => moved::ones(call),
        "reshape" | "view" => moved::reshape(call),
        "flatten" | "ravel" => moved::flatten(call),
        "unflatten" => moved::unflatten(call),
        "cat" | "concatenate" | "concat" | "hstack" | "vstack" | "row_stack" | "append" => joined(call),
        "stack" => stacked(call),
        "flip" | "reverse" => flipped(call),
        "roll" => rolled(call),
        "pad" => padded(call),
        "tril" | "triu" => mask(call, x()),
        "repeat_interleave" | "repeat" | "tile" => copies(call, x(), call.write(1)),
        "float" | "constant" | "tensor"
            if matches!(call.given.at(0), Some(ast::Expr { kind: ExprKind::Str(_), .. })) =>
        {
            match &call.given.at(0)?.kind {
                ExprKind::Str(text) if text.trim().trim_start_matches(['+', '-']) == "inf" => {
                    Some(if text.trim().starts_with('-') { "-inf" } else { "inf" }.to_string())
                }
                _ => None,
            }
        }
        "len" | "size" | "shape" | "ndim" | "dim" | "numel" => length(call),
        "full" => full(call),
        "cast" => {
            let elem = elem_of(call.given.get(1, &["dtype"])?)?;
            Some(format!("cast<{elem}>({})", call.write(0)?))
        }
        "print" => match &call.given.at(0)?.kind {
            ExprKind::Name(name) if call.tensor(0).is_some() => Some(format!("tap {}", name.name)),
            _ => None,
        },
        _ => None,
    }
}

/// Advice that depends on the arguments.
pub(super) fn help(call: &Call<'_, '_>) -> Option<String> {
    match call.name {
        "layer_norm" | "rms_norm" => {
            let last =
                call.tensor(0).and_then(|x| x.shape.axes.last()).map_or("D".to_string(), |axis| axis.to_string());
            let x = call.write(0).unwrap_or("x".to_string());
            Some(layer_help(call.name).replace("<D>", &format!("<{last}>")).replace("norm(x)", &format!("norm({x})")))
        }
        "Linear" | "LinearNoBias" | "Dense" | "LayerNorm" | "RMSNorm" | "Embedding" | "MultiHeadAttention"
        | "SelfAttention" | "GroupNorm" | "Embed" | "LayerNormalization" | "Conv1D" | "Flatten" | "Softmax"
        | "LogSoftmax" | "ELU" | "Softplus" | "Hardswish" => Some(match call.name {
            "Flatten" | "Softmax" | "LogSoftmax" | "ELU" | "Softplus" | "Hardswish" => {
                "an operation without parameters is a function, not a layer: call it where it is needed, `softmax(x)`"
                    .to_string()
            }
            layer => layer_help(layer),
        }),
        "len" | "size" | "shape" | "ndim" | "dim" | "numel" => {
            call.tensor(0).map(|x| format!("the shape is {}; use the names of the lengths", x.shape))
        }
        "print" if made(call).is_none() => Some("name the value first: `let y = ..`, then `tap y`".to_string()),
        _ => None,
    }
}

/// `full((S, D), 0.5)`
fn full(call: &Call<'_, '_>) -> Option<String> {
    let (ExprKind::List(dims) | ExprKind::Tuple(dims)) = &call.given.at(0)?.kind else { return None };
    let value = call.text(call.given.get(1, &["fill_value"])?);
    let elem = call.given.get(2, &["dtype"]).and_then(elem_of).map_or(String::new(), |elem| format!("<{elem}>"));
    let dims: Vec<String> = dims.iter().map(|dim| call.text(dim)).collect();
    Some(format!("full{elem}({value}, [{}])", dims.join(", ")))
}

/// The tensors that are concatenated: the elements of a list, or all arguments.
fn parts<'e>(call: &Call<'e, '_>) -> (Vec<&'e ast::Expr>, bool) {
    match call.given.at(0).map(|first| &first.kind) {
        Some(ExprKind::List(parts) | ExprKind::Tuple(parts)) => (parts.iter().collect(), true),
        _ => (call.given.plain.clone(), false),
    }
}

/// `cat([x, y], dim=-1)`
fn joined(call: &Call<'_, '_>) -> Option<String> {
    let (parts, in_list) = parts(call);
    let axis = call.axis(if in_list { 1 } else { usize::MAX }).map_or("0".to_string(), |axis| call.text(axis));
    let axis = if call.name == "hstack" { "1".to_string() } else { axis };
    let parts: Vec<String> = parts.into_iter().map(|part| call.text(part)).collect();
    (!parts.is_empty()).then(|| format!("concat({}, axis = {axis})", parts.join(", ")))
}

/// `stack([x, y], dim=0)`: concatenates tensors with a new axis of length 1.
fn stacked(call: &Call<'_, '_>) -> Option<String> {
    let (parts, in_list) = parts(call);
    let ty = if in_list { call.operands.first()?.parts.first()?.as_ref() } else { call.operands.first()?.ty.as_ref() };
    let Some(Ty::Tensor(tensor)) = ty else { return None };
    let rank = rank(Some(tensor)).filter(|rank| *rank < LETTERS.len())?;
    let axis = call.axis(if in_list { 1 } else { usize::MAX });
    let at = axis.map_or(Some(0), |axis| axis_number(axis, rank + 1))?;
    let names: Vec<&str> = LETTERS.into_iter().take(rank).collect();
    let mut wide = names.clone();
    wide.insert(at.min(rank), "1");
    let pattern = format!("{} -> {}", names.join(" "), wide.join(" "));
    let list: Vec<String> =
        parts.into_iter().map(|part| format!("rearrange({}, \"{pattern}\")", call.text(part))).collect();
    (!list.is_empty()).then(|| format!("concat({}, axis = {at})", list.join(", ")))
}

/// `x[.., i]`: an index for one axis.
fn at_axis(axis: usize, index: &str) -> String {
    "0.., ".repeat(axis) + index
}

/// `flip(x, dims=[0])`: descending indices, one axis after the other.
fn flipped(call: &Call<'_, '_>) -> Option<String> {
    let tensor = call.tensor(0)?;
    let rank = rank(Some(tensor))?;
    let mut axes: Vec<&ast::Expr> = call.axes(1);
    if axes.len() == 1 && call.given.plain.len() > 2 {
        axes = call.given.dims(1);
    }
    let axes: Option<Vec<usize>> = axes.into_iter().map(|axis| axis_number(axis, rank)).collect();
    let axes = axes.filter(|axes| !axes.is_empty())?;
    let mut text = call.body.operand(call.given.at(0)?);
    for axis in axes {
        let length = piece(tensor.shape.dim(axis)?)?;
        text = format!("{text}[{}]", at_axis(axis, &format!("{length} - 1 - iota({length})")));
    }
    Some(text)
}

/// `roll(x, 1, dims=0)`: moves the last part to the front.
fn rolled(call: &Call<'_, '_>) -> Option<String> {
    let tensor = call.tensor(0)?;
    let shift = call.given.get(1, &["shifts", "shift"])?;
    let axis = axis_number(call.axis(2)?, rank(Some(tensor))?)?;
    let length = piece(tensor.shape.dim(axis)?)?;
    let split = match number(shift) {
        Some(0) => return call.write(0),
        Some(n) if n < 0 => n.unsigned_abs().to_string(),
        _ => format!("{length}-{}", call.body.operand(shift)),
    };
    let x = call.body.operand(call.given.at(0)?);
    let part = |range: String| format!("{x}[{}]", at_axis(axis, &range));
    Some(format!("concat({}, {}, axis = {axis})", part(format!("{split}..")), part(format!("0..{split}"))))
}

/// `F.pad(x, (1, 2))`, with pairs starting at the last axis; `np.pad(x, ((0, 0), (1, 2)))`, with a
/// pair for each axis.
fn padded(call: &Call<'_, '_>) -> Option<String> {
    let widths = match &call.given.get(1, &["pad", "pad_width", "paddings"])?.kind {
        ExprKind::List(parts) | ExprKind::Tuple(parts) => parts,
        _ => return None,
    };
    let pair = |parts: &[ast::Expr]| match parts {
        [low, high] => Some((call.text(low), call.text(high))),
        _ => None,
    };
    let nested = widths.iter().map(|width| match &width.kind {
        ExprKind::List(parts) | ExprKind::Tuple(parts) => pair(parts),
        _ => None,
    });
    let mut axes: Vec<(String, (String, String))> = Vec::new();
    if let Some(pairs) = nested.collect::<Option<Vec<(String, String)>>>().filter(|pairs| !pairs.is_empty()) {
        axes.extend(pairs.into_iter().enumerate().map(|(at, pair)| (at.to_string(), pair)));
    } else {
        for (at, parts) in widths.chunks(2).enumerate() {
            axes.push((format!("-{}", at + 1), pair(parts)?));
        }
    }
    let value = call.given.get(usize::MAX, &["value", "constant_values"]);
    let value = value.map_or(String::new(), |value| format!(", value = {}", call.text(value)));
    let mut text = call.write(0)?;
    for (axis, (low, high)) in axes {
        let sides = [("low", low), ("high", high)].into_iter().filter(|(_, width)| width != "0");
        let sides: String = sides.map(|(side, width)| format!(", {side} = {width}")).collect();
        if !sides.is_empty() {
            text = format!("pad({text}, axis = {axis}{sides}{value})");
        }
    }
    Some(text)
}

/// `tril(ones(S, S))` as `causal(S, S)`; for another tensor, a `where` with that mask.
fn mask(call: &Call<'_, '_>, x: Option<String>) -> Option<String> {
    let tensor = call.tensor(0)?;
    let (_, last) = tensor.shape.split_last(2)?;
    let [rows, columns] = last.as_slice() else { return None };
    if rows != columns {
        return None;
    }
    let diagonal = call.given.get(1, &["diagonal", "k"]).map(number);
    let is_ones = x.as_ref().is_some_and(|x| x.starts_with("full<f32>(1,") || x.starts_with("full<bool>(true"));
    let kept = match (call.name, diagonal) {
        ("tril", None | Some(Some(0))) => format!("causal({rows}, {columns})"),
        ("triu", Some(Some(1))) => format!("not causal({rows}, {columns})"),
        ("triu", None | Some(Some(0))) => format!("causal({columns}, {rows}).T"),
        _ => return None,
    };
    if is_ones && tensor.shape.rank() == 2 { Some(kept) } else { Some(format!("where({kept}, {}, 0)", x?)) }
}

/// `repeat_interleave(x, n, dim = 0)` and `tile`: each entry `n` times, or all entries `n` times
/// over.
fn copies(call: &Call<'_, '_>, x: Option<String>, n: Option<String>) -> Option<String> {
    let tensor = call.tensor(0)?;
    let rank = rank(Some(tensor)).filter(|rank| rank + 1 < LETTERS.len())?;
    if !(tensor.elem.is_float() || tensor.elem.is_int()) {
        return None;
    }
    let with_axis = call.axis(2).filter(|_| call.name != "tile" && call.given.plain.len() <= 3);
    let is_numpy = matches!(call.library, Some("np" | "numpy" | "jnp" | "jax"));
    let with_axis = with_axis.filter(|_| call.name == "repeat_interleave" || is_numpy || call.given.plain.len() <= 2);
    if let Some(axis) = with_axis {
        return once(x?, &n?, axis_number(axis, rank)?, rank, tensor.elem, false);
    }
    // `x.repeat(1, 2)`, `tile(x, (1, 2))`: the number of repetitions for each axis.
    let times = call.given.dims(1);
    if call.name == "repeat_interleave" || times.len() != rank {
        return None;
    }
    let mut text = x?;
    for (at, n) in times.into_iter().enumerate().filter(|(_, n)| number(n) != Some(1)) {
        text = once(text, &call.text(n), at, rank, tensor.elem, true)?;
    }
    Some(text)
}

/// Repeats the entries of one axis `n` times: each entry, or the whole axis.
fn once(x: String, n: &str, at: usize, rank: usize, elem: Elem, over: bool) -> Option<String> {
    let names: Vec<&str> = LETTERS.into_iter().take(rank).collect();
    let (own, mut wide, mut joined) = (names.get(at).copied()?, names.clone(), names.clone());
    let place = if over { at } else { at + 1 };
    wide.insert(place, "1");
    let pair = if over { format!("(n {own})") } else { format!("({own} n)") };
    let mut split = names.clone();
    split.insert(place, "n");
    *joined.get_mut(at)? = &pair;
    let mut dims: Vec<String> = vec!["1".to_string(); rank + 1];
    *dims.get_mut(place)? = n.to_string();
    Some(format!(
        "rearrange(rearrange({x}, \"{} -> {}\") * full<{elem}>(1, [{}]), \"{} -> {}\")",
        names.join(" "),
        wide.join(" "),
        dims.join(", "),
        split.join(" "),
        joined.join(" ")
    ))
}

/// `len(x)`, `x.size(0)`, `shape(x)`: lengths have names.
fn length(call: &Call<'_, '_>) -> Option<String> {
    let tensor = call.tensor(0)?;
    if tensor.shape.rest().is_some() {
        return None;
    }
    let axis = call.axis(1);
    let at = match (call.name, axis) {
        ("len", None) => tensor.shape.axis(0),
        ("ndim" | "dim", None) => return Some(tensor.shape.rank().to_string()),
        ("numel", None) => return piece(&Dim::product(tensor.shape.axes.iter().filter_map(|axis| axis.dim()))),
        (_, Some(axis)) => axis_number(axis, tensor.shape.rank()),
        _ => None,
    };
    piece(tensor.shape.dim(at?)?)
}
