//! Parser of types.

use super::forms::{Names, Read, fail, form};
use crate::diagnostics::codes::ir as codes;
use crate::irtext::syntax::{CompareKind, Expr, ExprKind, Phrase};
use crate::irtext::{TextSpan, read};
use crate::tile::{BufferType, Extent, Fragment, ParamMode, Pitch, Queue, Space, TileType, Type, row_major};

/// The phrases of a call.
fn call(e: &Expr) -> Option<(&Expr, &[Phrase])> {
    match &e.kind {
        ExprKind::Call(f, args) => Some((f, args)),
        _ => None,
    }
}

fn is_word(e: &Expr, word: &str) -> bool {
    matches!(&e.kind, ExprKind::Word(w) if w == word)
}

/// Parses an extent: `64`, `%n<=64`.
pub(super) fn extent(e: &Expr, names: &Names) -> Read<Extent> {
    match &e.kind {
        ExprKind::Compare(CompareKind::Le, v, max) => {
            Ok(Extent::Bounded { value: names.value(v)?, max: form(read::integer(max))? })
        }
        _ => Ok(Extent::Static(form(read::integer(e))?)),
    }
}

/// Parses a type from its terms.
pub(super) fn ty(terms: &[Expr], place: TextSpan, names: &Names) -> Read<Type> {
    match terms {
        [e] if is_word(e, "index") => Ok(Type::Index),
        [e] if matches!(e.kind, ExprKind::Word(_)) => Ok(Type::Scalar(form(read::elem(e))?)),
        [e, rest @ ..] if is_word(e, "buf") => buffer(rest, place).map(Type::Buffer),
        [e, ..] if is_word(e, "tile") => tile(terms, place, names).map(Type::Tile),
        [e, rest @ ..] if is_word(e, "slot") => tile(rest, place, names).map(Type::Slot),
        [e, rest @ ..] => match call(e) {
            Some((f, args)) if is_word(f, "pending") => {
                Ok(Type::Pending(queue(args, place)?, tile(rest, place, names)?))
            }
            Some((f, args)) if is_word(f, "group") => Ok(Type::Group(queue(args, place)?, tile(rest, place, names)?)),
            Some((f, [n])) if is_word(f, "ring") => {
                Ok(Type::Ring { stages: form(read::integer(form(read::single(n))?))?, tile: tile(rest, place, names)? })
            }
            _ => fail(codes::FORM, place, "a type belongs here"),
        },
        [] => fail(codes::FORM, place, "a type belongs here"),
    }
}

fn queue(args: &[Phrase], place: TextSpan) -> Read<Queue> {
    match args {
        [p] => {
            let e = form(read::single(p))?;
            let word = form(read::word(e))?;
            match [Queue::Copy, Queue::Mma].into_iter().find(|q| q.name() == word) {
                Some(q) => Ok(q),
                None => fail(codes::UNKNOWN_NAME, e.place, format!("`{word}` is not a queue")),
            }
        }
        _ => fail(codes::FORM, place, "one queue belongs here"),
    }
}

/// Parses `tile f32[64, %n<=64] @l1(0)`.
fn tile(terms: &[Expr], place: TextSpan, names: &Names) -> Read<TileType> {
    let [head, shape, rest @ ..] = terms else { return fail(codes::FORM, place, "a tile type belongs here") };
    let (true, ExprKind::Index(elem, extents)) = (is_word(head, "tile"), &shape.kind) else {
        return fail(codes::FORM, place, "a tile type (`tile f32[64, 64]`) belongs here");
    };
    let [rows, cols] = extents.as_slice() else {
        return fail(codes::FORM, shape.place, "a tile has rows and columns");
    };
    let space = match rest {
        [] => Space::Any,
        [e] => space(e)?,
        [_, more, ..] => return fail(codes::FORM, more.place, "a tile has one space"),
    };
    Ok(TileType {
        elem: form(read::elem(elem))?,
        rows: extent(form(read::single(rows))?, names)?,
        cols: extent(form(read::single(cols))?, names)?,
        space,
    })
}

fn space(e: &Expr) -> Read<Space> {
    let number = |p: &Phrase| form(read::integer(form(read::single(p))?));
    let (name, args): (&Expr, &[Phrase]) = call(e).unwrap_or((e, &[]));
    let ExprKind::Global(name) = &name.kind else {
        return fail(codes::FORM, e.place, "a space (`@l1(0)`) belongs here");
    };
    match (name.as_str(), args) {
        ("reg", []) => Ok(Space::Reg),
        ("window", []) => Ok(Space::Window),
        ("l1", [offset]) => Ok(Space::L1(number(offset)?, Pitch::Aligned)),
        ("l1", [offset, pitch]) => match form(read::word(form(read::single(pitch))?))? {
            "padded" => Ok(Space::L1(number(offset)?, Pitch::Padded)),
            word => fail(codes::UNKNOWN_NAME, e.place, format!("`{word}` is not a pitch")),
        },
        ("shared", [swizzle]) => Ok(Space::Shared { swizzle: number(swizzle)? }),
        ("fragment", [layout]) => {
            let word = form(read::word(form(read::single(layout))?))?;
            match Fragment::ALL.into_iter().find(|f| f.name() == word) {
                Some(f) => Ok(Space::Fragment(f)),
                None => fail(codes::UNKNOWN_NAME, e.place, format!("`{word}` is not a layout of fragments")),
            }
        }
        _ => fail(codes::UNKNOWN_NAME, e.place, format!("`@{name}` is not a space, or has other numbers")),
    }
}

/// Parses `f32[S, 64] strides[64, 1]`.
fn buffer(terms: &[Expr], place: TextSpan) -> Read<BufferType> {
    let (shape, strides): (&Expr, Option<&Expr>) = match terms {
        [a] => (a, None),
        [a, b] => (a, Some(b)),
        _ => return fail(codes::FORM, place, "a buffer type (`f32[2, 3]`) belongs here"),
    };
    let t = form(read::tensor_type(shape))?;
    let strides = match strides {
        None => row_major(&t.shape),
        Some(e) => match &e.kind {
            ExprKind::Index(word, items) if is_word(word, "strides") => form(read::dims(items))?,
            _ => return fail(codes::FORM, e.place, "`strides[..]` belongs here"),
        },
    };
    if strides.len() != t.shape.len() {
        return fail(codes::FORM, place, "a buffer has a stride for each axis");
    }
    Ok(BufferType { elem: t.elem, shape: t.shape, strides })
}

/// Parses a parameter of a kernel: `%x: in f32[S]`, `%x: in f32[S] aligned`, `%n: index`. The last
/// result is whether it is aligned.
pub(super) fn parameter(p: &Phrase) -> Read<(Option<ParamMode>, Type, bool)> {
    match p.types.as_slice() {
        [e] if is_word(e, "index") => Ok((None, Type::Index, false)),
        [e, rest @ ..] => {
            let mode = match &e.kind {
                ExprKind::Word(w) if w == "in" => ParamMode::In,
                ExprKind::Word(w) if w == "out" => ParamMode::Out,
                ExprKind::Word(w) if w == "inout" => ParamMode::InOut,
                _ => return fail(codes::FORM, e.place, "`in`, `out`, `inout` or `index` belongs here"),
            };
            let (rest, aligned) = match rest {
                [rest @ .., last] if is_word(last, "aligned") => (rest, true),
                rest => (rest, false),
            };
            Ok((Some(mode), Type::Buffer(buffer(rest, p.place)?), aligned))
        }
        [] => fail(codes::FORM, p.place, "`%name: in f32[2, 3]` belongs here"),
    }
}
