//! Moving, splitting and merging axes as patterns: `transpose`, `unsqueeze`, `reshape`.
//!
//! In: a call and the shape of its operand. Out: `.T`, or a `rearrange` whose pattern results in
//! the requested shape. A `reshape` is a pattern if each axis of one side is a product of adjacent
//! axes of the other: `(B, S, D)` to `(B, S, H, -1)` splits, `(B, C, H, W)` to `(B, C, H*W)`
//! merges.

use super::super::values::Ty;
use super::Call;
use super::numbers::{LETTERS, axis_number, number, rank};
use crate::shape::Dim;
use crate::syntax::ast::{self, ExprKind};

/// The maximum number of axes for which a pattern is searched.
const MAX_AXES: usize = 6;

/// The letters of axes, permuted.
fn letters(order: impl IntoIterator<Item = usize>) -> String {
    order.into_iter().filter_map(|at| LETTERS.get(at).copied()).collect::<Vec<_>>().join(" ")
}

/// `transpose(x, 1, 2)`, `permute(x, 0, 2, 1)` as `.T` or as a pattern.
pub(super) fn permutation(call: &Call<'_, '_>) -> Option<String> {
    let x = call.body.operand(call.given.at(0)?);
    let tensor = call.tensor(0);
    let mut axes = call.given.dims(1);
    if axes.is_empty() && call.given.named.is_empty() {
        let of_two = tensor.is_some_and(|tensor| tensor.shape.rank() <= 2);
        return (matches!(call.name, "t" | "mT" | "adjoint") || of_two).then(|| format!("{x}.T"));
    }
    if axes.is_empty() {
        axes = match &call.given.get(usize::MAX, &["axes", "dims", "perm", "axis"])?.kind {
            ExprKind::List(parts) | ExprKind::Tuple(parts) => parts.iter().collect(),
            _ => return None,
        };
    }
    let swaps = !matches!(call.name, "permute") && axes.len() == 2;
    let negative = |expr: &ast::Expr| number(expr).filter(|n| *n < 0);
    if let [a, b] = axes.as_slice()
        && swaps
        && matches!((negative(a), negative(b)), (Some(-2), Some(-1)) | (Some(-1), Some(-2)))
    {
        return Some(format!("{x}.T"));
    }
    let rank = rank(tensor)?;
    let numbers: Vec<usize> = axes.iter().map(|axis| axis_number(axis, rank)).collect::<Option<Vec<usize>>>()?;
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
    Some(ordered(x, &order))
}

/// A permutation of a tensor's axes.
fn ordered(x: String, order: &[usize]) -> String {
    let rank = order.len();
    let last = (0..rank.saturating_sub(2)).chain((rank.saturating_sub(2)..rank).rev());
    if rank >= 2 && order.iter().copied().eq(last) {
        return format!("{x}.T");
    }
    format!("rearrange({x}, \"{} -> {}\")", letters(0..rank), letters(order.iter().copied()))
}

/// `movedim(x, 0, 1)`
pub(super) fn one_axis(call: &Call<'_, '_>) -> Option<String> {
    let rank = rank(call.tensor(0))?;
    let from = axis_number(call.given.get(1, &["source"])?, rank)?;
    let to = axis_number(call.given.get(2, &["destination"])?, rank)?;
    let mut order: Vec<usize> = (0..rank).filter(|at| *at != from).collect();
    order.insert(to.min(order.len()), from);
    Some(ordered(call.body.operand(call.given.at(0)?), &order))
}

/// `unsqueeze(x, 1)` and `squeeze(x, 1)` as patterns; `squeeze(x)` removes all axes of length 1.
pub(super) fn ones(call: &Call<'_, '_>) -> Option<String> {
    let (tensor, removes) = (call.tensor(0)?, call.name == "squeeze");
    let rank = rank(Some(tensor))?;
    let (x, axis) = (call.write(0)?, call.axis(1));
    let (from, to) = match axis {
        None if removes => {
            let is_one = |at: &usize| tensor.shape.dim(*at).and_then(Dim::as_const) == Some(1);
            let wide: Vec<&str> = (0..rank).map(|at| if is_one(&at) { "1" } else { LETTERS[at] }).collect();
            let narrow: Vec<&str> = wide.iter().copied().filter(|name| *name != "1").collect();
            (wide, narrow)
        }
        axis => {
            let (wide, narrow) = if removes { (rank, rank.checked_sub(1)?) } else { (rank + 1, rank) };
            let at = axis_number(axis?, wide)?;
            let narrow: Vec<&str> = LETTERS.into_iter().take(narrow).collect();
            let mut wide = narrow.clone();
            wide.insert(at.min(wide.len()), "1");
            if removes { (wide, narrow) } else { (narrow, wide) }
        }
    };
    Some(format!("rearrange({x}, \"{} -> {}\")", from.join(" "), to.join(" ")))
}

/// `flatten(x)`, `flatten(x, 1)`, `flatten(x, 0, 1)`: merges adjacent axes.
pub(super) fn flatten(call: &Call<'_, '_>) -> Option<String> {
    let rank = rank(call.tensor(0)).filter(|rank| *rank > 0)?;
    let start = call.given.get(1, &["start_dim"]).map_or(Some(0), |axis| axis_number(axis, rank))?;
    let end = call.given.get(2, &["end_dim"]).map_or(Some(rank - 1), |axis| axis_number(axis, rank))?;
    if start >= end {
        return None;
    }
    let parts = [letters(0..start), format!("({})", letters(start..end + 1)), letters(end + 1..rank)];
    let merged: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Some(format!("rearrange({}, \"{} -> {}\")", call.write(0)?, letters(0..rank), merged.join(" ")))
}

/// `unflatten(x, -1, (H, D))`: splits an axis.
pub(super) fn unflatten(call: &Call<'_, '_>) -> Option<String> {
    let tensor = call.tensor(0)?;
    let at = axis_number(call.given.get(1, &["dim"])?, rank(Some(tensor))?)?;
    let own: Vec<Target> =
        tensor.shape.axes.iter().map(|axis| Target { dim: axis.dim().cloned(), text: axis.to_string() }).collect();
    let mut wanted = own.clone();
    wanted.splice(at..=at, targets(call, 2)?);
    pattern(call, &wanted)
}

/// A requested length: its dimension, `None` for `-1`, and its source.
#[derive(Clone)]
struct Target {
    dim: Option<Dim>,
    text: String,
}

/// The requested lengths of a call, starting at an argument: `(B, -1)`, `B, -1`.
fn targets(call: &Call<'_, '_>, from: usize) -> Option<Vec<Target>> {
    let shape = call.given.get(usize::MAX, &["shape", "newshape", "sizes"]);
    let alone = match call.given.plain.get(from..) {
        Some([one]) => Some(*one),
        Some([]) => shape,
        _ => None,
    };
    let list = alone.filter(|one| matches!(one.kind, ExprKind::List(_) | ExprKind::Tuple(_)));
    let types: Vec<Option<&Ty>> = match (list, call.given.plain.get(from..)) {
        (Some(list), _) => call.operand_of(list)?.parts.iter().map(Option::as_ref).collect(),
        (None, Some(many)) => many.iter().map(|expr| call.operand_of(expr)?.ty.as_ref()).collect(),
        (None, None) => return None,
    };
    let exprs = call.given.dims(from);
    if exprs.is_empty() || exprs.len() != types.len() {
        return None;
    }
    let target = |(expr, ty): (&ast::Expr, Option<&Ty>)| match ty {
        _ if number(expr) == Some(-1) => Some(Target { dim: None, text: String::new() }),
        Some(Ty::Dim(dim)) => Some(Target { dim: Some(dim.clone()), text: call.text(expr) }),
        _ => None,
    };
    let targets: Vec<Target> = exprs.into_iter().zip(types).map(target).collect::<Option<Vec<Target>>>()?;
    (targets.iter().filter(|target| target.dim.is_none()).count() <= 1).then_some(targets)
}

/// `reshape(x, B, S, H, -1)`
pub(super) fn reshape(call: &Call<'_, '_>) -> Option<String> {
    pattern(call, &targets(call, 1)?)
}

/// The correspondence between axes of the operand and of the result.
enum Group {
    /// This many axes become one.
    Merge(usize),
    /// One axis becomes this many.
    Split(usize),
    /// A new axis of length 1.
    New,
    /// An axis of length 1 that is dropped.
    Gone,
}

/// A `rearrange` to a given shape.
fn pattern(call: &Call<'_, '_>, wanted: &[Target]) -> Option<String> {
    let tensor = call.tensor(0)?;
    let rank = rank(Some(tensor)).filter(|rank| *rank <= MAX_AXES && wanted.len() <= MAX_AXES)?;
    let own: Vec<Dim> = (0..rank).filter_map(|at| tensor.shape.dim(at).cloned()).collect();
    let same = |a: &Dim, b: &Dim| call.body.scope.canonical(a.clone()) == call.body.scope.canonical(b.clone());
    let groups = groups(&own, wanted, &same)?;
    let mut names = Names::default();
    let (mut from, mut to, mut given) = (Vec::new(), Vec::new(), Vec::new());
    let (mut at, mut out) = (0, 0);
    for group in groups {
        match group {
            Group::New => to.push("1".to_string()),
            Group::Gone => from.push("1".to_string()),
            Group::Merge(n) => {
                let own: Vec<String> = own.get(at..at + n)?.iter().map(|dim| names.name_for(dim)).collect();
                from.extend(own.iter().cloned());
                to.push(if n == 1 { own.join(" ") } else { format!("({})", own.join(" ")) });
            }
            Group::Split(n) => {
                let parts = wanted.get(out..out + n)?;
                // The last length that is not given is the quotient of the axis by the others.
                let open = parts.iter().position(|part| part.dim.is_none()).unwrap_or(n - 1);
                let own_name = own.get(at)?;
                let length = |(i, part): (usize, &Target)| part.dim.clone().filter(|_| i != open);
                let lengths: Vec<Option<Dim>> = parts.iter().enumerate().map(length).collect();
                let named: Vec<String> =
                    lengths.iter().map(|length| names.name_for(length.as_ref().unwrap_or(own_name))).collect();
                let others = parts.iter().zip(&named).enumerate().filter(|(i, _)| *i != open);
                given.extend(others.map(|(_, (part, name))| format!(", {name} = {}", part.text)));
                from.push(format!("({})", named.join(" ")));
                to.extend(named);
            }
        }
        match group {
            Group::New => out += 1,
            Group::Gone => at += 1,
            Group::Merge(n) => (at, out) = (at + n, out + 1),
            Group::Split(n) => (at, out) = (at + 1, out + n),
        }
    }
    let x = call.write(0)?;
    if from == to {
        return Some(x);
    }
    Some(format!("rearrange({x}, \"{} -> {}\"{})", from.join(" "), to.join(" "), given.concat()))
}

/// Unique names of axes: their lengths in lower case.
#[derive(Default)]
struct Names {
    used: Vec<String>,
}

impl Names {
    fn name_for(&mut self, dim: &Dim) -> String {
        let own =
            dim.as_symbol().map(str::to_lowercase).filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let letters = ('a'..='z').map(String::from);
        let free = own.into_iter().chain(letters).find(|name| !self.used.contains(name));
        let name = free.unwrap_or_else(|| format!("a{}", self.used.len()));
        self.used.push(name.clone());
        name
    }
}

/// Groups axes and lengths: adjacent ones on one side correspond to one on the other.
fn groups(own: &[Dim], wanted: &[Target], same: &dyn Fn(&Dim, &Dim) -> bool) -> Option<Vec<Group>> {
    let is_one = |dim: &Dim| dim.as_const() == Some(1);
    let (first, target) = match (own.split_first(), wanted.split_first()) {
        (None, None) => return Some(Vec::new()),
        (first, target) => (first, target),
    };
    let after = |group: Group, at: usize, out: usize| {
        let mut rest = groups(own.get(at..)?, wanted.get(out..)?, same)?;
        rest.insert(0, group);
        Some(rest)
    };
    let product = |dims: &[Dim]| Dim::product(dims);
    // Equal axes first, then the shortest groups that match.
    if let Some((target, _)) = target {
        for n in 1..=own.len() {
            let merged = product(own.get(..n)?);
            let fits = target.dim.as_ref().is_none_or(|dim| same(dim, &merged));
            if fits && let Some(found) = after(Group::Merge(n), n, 1) {
                return Some(found);
            }
        }
    }
    if target.is_some_and(|(target, _)| target.dim.as_ref().is_some_and(is_one))
        && let Some(found) = after(Group::New, 0, 1)
    {
        return Some(found);
    }
    if let Some((first, _)) = first {
        for n in 2..=wanted.len() {
            let parts = wanted.get(..n)?;
            let known: Vec<Dim> = parts.iter().filter_map(|part| part.dim.clone()).collect();
            let divides = || first.div(&product(&known)).is_some() || product(&known).as_const().is_none();
            let fits = if known.len() == n { same(first, &product(&known)) } else { divides() };
            if fits && let Some(found) = after(Group::Split(n), 1, n) {
                return Some(found);
            }
        }
    }
    if first.is_some_and(|(first, _)| is_one(first)) {
        return after(Group::Gone, 1, 0);
    }
    None
}
