//! Shape checking on entry: binds an entry's run-time dimensions from its arguments, checks every
//! axis and every `where` clause, and then provides the shapes of results and taps.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::abi::{ADDRESS_BITS, CheckDesc, DimDesc, EntryDesc, TensorDesc, cmp, op};
use crate::desc::{TypeText, elem_size};
use crate::error::{List, Result, fail};
use crate::expr::eval;

/// The bound dimensions of a call.
pub(crate) struct Bound {
    /// Extents of the axes of `..`.
    pub(crate) lead: Vec<i64>,
    /// Values of the entry's symbols.
    pub(crate) dims: Vec<i64>,
}

/// Binds dimensions from the arguments' shapes.
pub(crate) fn bind(entry: &EntryDesc, shapes: &[&[i64]]) -> Result<Bound> {
    let name = entry.name.get();
    for (a, shape) in entry.args.get().iter().zip(shapes) {
        addressable(shape, a)?;
    }
    let lead = leading_axes(entry, shapes)?;
    let mut dims = Vec::new();
    for (i, s) in entry.symbols.get().iter().enumerate() {
        if usize::try_from(entry.batch_symbol) == Ok(i) {
            let Some(batch) = product(&lead) else {
                fail!(Tensor, "{name}: the leading axes {} are too large", List(&lead))
            };
            dims.push(batch);
            continue;
        }
        let tails = entry.args.get().get(s.arg as usize).zip(shapes.get(s.arg as usize));
        let tail = tails.and_then(|(a, shape)| Some((a, tail_of(shape, a.dims.get().len())?.get(s.axis as usize)?)));
        let Some((arg, extent)) = tail else { fail!(Internal, "{name}: {} is bound by no axis", s.name.get()) };
        let value = extent
            .checked_sub(s.offset)
            .filter(|n| *n >= 0 && n.checked_rem(s.scale) == Some(0))
            .and_then(|n| n.checked_div(s.scale));
        let Some(value) = value else {
            let text = arg.dims.get().get(s.axis as usize).map_or("", |d| d.text.get());
            fail!(
                Tensor,
                "{name}: axis {} of `{}` ({text}) is {extent}, which is not `{text}` for any {}",
                s.axis as usize + if arg.batch != 0 { lead.len() } else { 0 },
                arg.name.get(),
                s.name.get()
            )
        };
        dims.push(value);
    }
    let bound = Bound { lead, dims };
    check_axes(entry, shapes, &bound)?;
    check_conditions(entry, &bound)?;
    Ok(bound)
}

/// Binds dimensions to given values; the batch is a single leading axis.
pub(crate) fn bind_values(entry: &EntryDesc, dims: &[i64]) -> Result<Bound> {
    let symbols = entry.symbols.get();
    let name = entry.name.get();
    if dims.len() != symbols.len() {
        fail!(Call, "{name} has {} run-time dimensions, found {}", symbols.len(), dims.len());
    }
    for (s, d) in symbols.iter().zip(dims) {
        if *d < 0 {
            fail!(Tensor, "{name}: {} is negative ({d})", s.name.get());
        }
    }
    let batch = usize::try_from(entry.batch_symbol).ok().and_then(|i| dims.get(i));
    let bound = Bound { lead: batch.copied().into_iter().collect(), dims: dims.to_vec() };
    for a in entry.args.get() {
        let shape = bound.shape(a.batch != 0, a.dims.get())?;
        addressable(&shape, a)?;
    }
    check_conditions(entry, &bound)?;
    Ok(bound)
}

impl Bound {
    /// The shape of a result or tap in this call, including the axes of `..`.
    pub(crate) fn shape(&self, batch: bool, dims: &[DimDesc]) -> Result<Vec<i64>> {
        let mut shape = if batch { self.lead.clone() } else { Vec::new() };
        for d in dims {
            let value = eval(&d.expr, &self.dims)?;
            if value < 0 {
                fail!(Tensor, "dimension `{}` would be {value}", d.text.get());
            }
            shape.push(value);
        }
        Ok(shape)
    }
}

/// Rejects arguments larger than any address space, counting extents of 0 as 1. The compiler's
/// proofs about other sizes rely on it.
fn addressable(shape: &[i64], arg: &TensorDesc) -> Result<()> {
    let size = elem_size(arg.elem);
    let bytes = shape.iter().try_fold(size, |n, d| n.checked_mul(d.unsigned_abs().max(1)));
    if bytes.is_none_or(|n| n >> ADDRESS_BITS > 0) {
        fail!(Tensor, "`{}`: a tensor of shape {} is too large", arg.name.get(), List(shape));
    }
    Ok(())
}

/// Size of a tensor in bytes, checked for overflow.
pub(crate) fn bytes(shape: &[i64], code: u64) -> Result<u64> {
    let size = elem_size(code).cast_signed();
    match product(shape).and_then(|n| n.checked_mul(size)) {
        Some(n) => Ok(n.unsigned_abs()),
        None => fail!(Tensor, "a tensor of shape {} is too large", List(shape)),
    }
}

fn product(shape: &[i64]) -> Option<i64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1i64, |n, d| n.checked_mul(*d))
}

/// The last `count` axes.
fn tail_of(shape: &[i64], count: usize) -> Option<&[i64]> {
    shape.len().checked_sub(count).and_then(|start| shape.get(start..))
}

/// Checks ranks; returns the leading axes, which all arguments with `..` share.
fn leading_axes(entry: &EntryDesc, shapes: &[&[i64]]) -> Result<Vec<i64>> {
    let name = entry.name.get();
    let mut lead: Option<(&str, &[i64])> = None;
    for (a, shape) in entry.args.get().iter().zip(shapes) {
        let rank = a.dims.get().len();
        let extra = match shape.len().checked_sub(rank) {
            Some(extra) if extra == 0 || a.batch != 0 => extra,
            _ => fail!(
                Tensor,
                "{name}: argument `{}` has {} axes (shape {}), expected {}",
                a.name.get(),
                shape.len(),
                List(shape),
                TypeText::from(a)
            ),
        };
        if a.batch == 0 {
            continue;
        }
        let own = shape.get(..extra).unwrap_or(&[]);
        match lead {
            None => lead = Some((a.name.get(), own)),
            Some((first, axes)) if axes != own => fail!(
                Tensor,
                "{name}: `..` is {} in `{first}` and {} in `{}`: the leading axes must be the same",
                List(axes),
                List(own),
                a.name.get()
            ),
            Some(_) => {}
        }
    }
    Ok(lead.map_or(Vec::new(), |(_, axes)| axes.to_vec()))
}

fn check_axes(entry: &EntryDesc, shapes: &[&[i64]], bound: &Bound) -> Result<()> {
    for (a, shape) in entry.args.get().iter().zip(shapes) {
        let before = shape.len().saturating_sub(a.dims.get().len());
        for (i, d) in a.dims.get().iter().enumerate() {
            let axis = before + i;
            let Some(extent) = shape.get(axis) else { continue };
            let expected = eval(&d.expr, &bound.dims)?;
            if *extent == expected {
                continue;
            }
            let text = d.text.get();
            let shown = alloc::format!("{expected}");
            let expected = if shown == text { shown } else { alloc::format!("{text}, which is {shown}") };
            fail!(
                Tensor,
                "{}: axis {axis} of `{}` is {extent}, expected {expected}{} (found shape {}, expected {})",
                entry.name.get(),
                a.name.get(),
                origin(entry, d, bound),
                List(shape),
                TypeText::from(a)
            );
        }
    }
    Ok(())
}

/// The arguments that bound the run-time dimensions in `d`: `; S is axis 0 of `x``.
fn origin(entry: &EntryDesc, d: &DimDesc, bound: &Bound) -> String {
    let mut out = String::new();
    for o in d.expr.get().iter().filter(|o| o.op == op::SYMBOL) {
        let symbol = usize::try_from(o.value).ok().and_then(|i| entry.symbols.get().get(i));
        let arg = symbol.and_then(|s| entry.args.get().get(s.arg as usize));
        let (Some(s), Some(a)) = (symbol, arg) else { continue };
        if o.value == entry.batch_symbol {
            out += &alloc::format!("; `..` is {} in `{}`", List(&bound.lead), a.name.get());
        } else {
            let axis = s.axis as usize + if a.batch != 0 { bound.lead.len() } else { 0 };
            out += &alloc::format!("; {} was bound by axis {axis} of `{}`", s.name.get(), a.name.get());
        }
    }
    out
}

/// The source location of a condition in parentheses, for messages.
struct CheckOrigin<'a>(&'a CheckDesc);

impl fmt::Display for CheckOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.place.get() {
            "" => Ok(()),
            place => write!(f, " ({place})"),
        }
    }
}

fn check_conditions(entry: &EntryDesc, bound: &Bound) -> Result<()> {
    for c in entry.checks.get() {
        let (left, right) = match (eval(&c.left, &bound.dims), eval(&c.right, &bound.dims)) {
            (Ok(left), Ok(right)) => (left, right),
            (Err(e), _) | (_, Err(e)) => {
                fail!(
                    Tensor,
                    "{}: the call must satisfy {}{}: {}",
                    entry.name.get(),
                    c.text.get(),
                    CheckOrigin(c),
                    e.text
                )
            }
        };
        let holds = match c.cmp {
            cmp::EQ => left == right,
            cmp::NE => left != right,
            cmp::LT => left < right,
            cmp::LE => left <= right,
            cmp::GT => left > right,
            _ => left >= right,
        };
        if !holds {
            fail!(
                Tensor,
                "{}: the arguments must satisfy {}{}; here the sides are {left} and {right}",
                entry.name.get(),
                c.text.get(),
                CheckOrigin(c)
            );
        }
    }
    Ok(())
}
