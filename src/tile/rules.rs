//! Type rules: valid operands of each operation, and the type of its result.
//!
//! In: an operation, the types of its operands, and the declared type of its result if the operands
//! do not determine it. Out: the type that the result must have, or an error message. Memory spaces
//! of tiles are not checked here: the space of a result is taken from its declaration and checked
//! by `verify`, as is everything that depends on the body, the kernel or the order of instructions.

use super::types::{Fragment, Queue, Space, computed};
use super::{BufferType, DotMode, Extent, GROUP, Inst, Op, TileType, Type};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::table;

type Rule<T = Option<Type>> = Result<T, String>;
type OperandTypes<'a> = table::OperandTypes<'a, Type>;

const ONE: Extent = Extent::Static(1);

/// Rows and columns of a tile.
type Shape = (Extent, Extent);

/// Element type and extents of a scalar or tile.
fn shape(t: &Type) -> Rule<(Elem, Option<Shape>)> {
    match t {
        Type::Scalar(elem) => Ok((*elem, None)),
        Type::Tile(t) => Ok((t.elem, Some((t.rows, t.cols)))),
        Type::Index | Type::Buffer(_) | Type::Slot(_) | Type::Pending(..) | Type::Group(..) | Type::Ring { .. } => {
            Err(format!("takes scalars and tiles, not {t}"))
        }
    }
}

/// The broadcast extents of operands: equal, or one of them is 1.
fn broadcast(shapes: &[(Elem, Option<Shape>)]) -> Rule<Option<Shape>> {
    let join = |name: &str, a: Extent, b: Extent| match (a, b) {
        _ if a == b || b == ONE => Ok(a),
        _ if a == ONE => Ok(b),
        _ => Err(format!("the {name} of the operands, {a} and {b}, differ")),
    };
    let mut out: Option<Shape> = None;
    for (rows, cols) in shapes.iter().filter_map(|(_, s)| *s) {
        out = Some(match out {
            None => (rows, cols),
            Some((r, c)) => (join("rows", r, rows)?, join("columns", c, cols)?),
        });
    }
    Ok(out)
}

fn made(elem: Elem, shape: Option<Shape>, declared: Option<&Type>) -> Type {
    match shape {
        None => Type::Scalar(elem),
        Some((rows, cols)) => Type::Tile(TileType { elem, rows, cols, space: space_of(declared) }),
    }
}

/// The declared space; undecided if there is no declaration.
fn space_of(declared: Option<&Type>) -> Space {
    declared.and_then(Type::tile).map_or(Space::Any, |t| t.space)
}

fn count(types: &[&Type], n: usize) -> Rule<()> {
    if types.len() == n { Ok(()) } else { Err(format!("takes {n} operands, not {}", types.len())) }
}

fn tile<'a>(types: &[&'a Type], i: usize) -> Rule<&'a TileType> {
    types.get(i).and_then(|t| t.tile()).ok_or_else(|| format!("operand {i} must be a tile"))
}

fn buffer<'a>(types: &[&'a Type], i: usize) -> Rule<&'a BufferType> {
    types.get(i).and_then(|t| t.buffer()).ok_or_else(|| format!("operand {i} must be a buffer"))
}

fn is_index(types: &[&Type], i: usize) -> Rule<()> {
    if types.get(i) == Some(&&Type::Index) { Ok(()) } else { Err(format!("operand {i} must be an index")) }
}

fn declared_tile(declared: Option<&Type>) -> Rule<&TileType> {
    declared.and_then(Type::tile).ok_or_else(|| "makes a tile".into())
}

/// Accepts the declared type.
fn keep(declared: Option<&Type>) -> Rule {
    Ok(declared.cloned())
}

/// The buffer at operand `at`, followed by an index for each of its axes, and `after` more
/// operands.
fn accessed<'a>(types: &[&'a Type], at: usize, after: usize) -> Rule<&'a BufferType> {
    let b = buffer(types, at)?;
    if types.len() != at + 1 + b.shape.len() + after {
        return Err(format!("needs an index for each of the {} axes of the buffer", b.shape.len()));
    }
    (at + 1..at + 1 + b.shape.len()).try_for_each(|i| is_index(types, i))?;
    Ok(b)
}

fn walks(rows: Option<usize>, cols: Option<usize>, t: &TileType, b: &BufferType) -> Rule<()> {
    if rows.is_some() && rows == cols {
        return Err("rows and columns walk the same axis".into());
    }
    for (axis, extent) in [(rows, t.rows), (cols, t.cols)] {
        match axis {
            Some(a) if a >= b.shape.len() => return Err(format!("the buffer has no axis {a}")),
            None if extent != ONE => return Err("a tile axis that walks no buffer axis has extent 1".into()),
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn same(a: Elem, b: Elem) -> Rule<()> {
    if a == b { Ok(()) } else { Err(format!("element types {a} and {b} differ")) }
}

fn same_shape(a: &TileType, b: &TileType) -> Rule<()> {
    if (a.rows, a.cols) == (b.rows, b.cols) { Ok(()) } else { Err("the extents differ".into()) }
}

/// The extents of a matmul must match the accumulator.
fn product(a: Shape, b: Shape, acc: &TileType) -> Rule<()> {
    if a.1 != b.0 {
        return Err(format!("the inner extents {} and {} differ", a.1, b.0));
    }
    if (a.0, b.1) != (acc.rows, acc.cols) {
        return Err("the accumulator's extents differ from the product's".into());
    }
    Ok(())
}

fn shape_of(t: &TileType) -> Shape {
    (t.rows, t.cols)
}

fn transposed(t: &TileType) -> Shape {
    (t.cols, t.rows)
}

/// The type that the result of an operation must have; `None` if it has no result.
///
/// # Errors
/// An error message that continues after the operation's name.
pub fn result_type(op: &Op, types: &[&Type], declared: Option<&Type>) -> Rule {
    op.rule(OperandTypes { types, declared })
}

pub(super) fn constant(given: OperandTypes<'_>, value: &Scalar) -> Rule {
    let declared = given.declared;
    let fits = match declared {
        Some(Type::Index | Type::Scalar(Elem::I64)) => matches!(value, Scalar::Int(_)),
        Some(Type::Scalar(Elem::I32)) => matches!(value, Scalar::Int(n) if i32::try_from(*n).is_ok()),
        Some(Type::Scalar(Elem::F32)) => matches!(value, Scalar::Float(_)),
        Some(Type::Scalar(Elem::Bool)) => matches!(value, Scalar::Bool(_)),
        _ => return Err("makes an index, or a scalar f32, i32, i64 or bool".into()),
    };
    if fits { keep(declared) } else { Err("the literal does not fit its type".into()) }
}

pub(super) fn dimension(given: OperandTypes<'_>, _value: &Dim) -> Rule {
    let declared = given.declared;
    match declared {
        Some(Type::Index | Type::Scalar(Elem::F32 | Elem::I32 | Elem::I64)) => keep(declared),
        _ => Err("makes an index, or a scalar f32, i32 or i64".into()),
    }
}

pub(super) fn unary(given: OperandTypes<'_>, op: &UnaryOp) -> Rule {
    let OperandTypes { types, declared } = given;
    let (elem, s) = shape(types[0])?;
    if !op.takes(elem) || computed(elem) != elem {
        return Err(format!("is not defined for {elem}"));
    }
    Ok(Some(made(elem, s, declared)))
}

pub(super) fn binary(given: OperandTypes<'_>, op: &BinaryOp) -> Rule {
    let OperandTypes { types, declared } = given;
    if types == [&Type::Index, &Type::Index] {
        return match op {
            BinaryOp::And | BinaryOp::Or | BinaryOp::Pow => Err("is not defined for indices".into()),
            op if op.is_of_bits() => Err("is not defined for indices".into()),
            _ => Ok(Some(Type::Index)),
        };
    }
    let shapes = [shape(types[0])?, shape(types[1])?];
    let elem = shapes[0].0;
    same(elem, shapes[1].0)?;
    if !op.takes(elem) {
        return Err(format!("is not defined for {elem}"));
    }
    Ok(Some(made(elem, broadcast(&shapes)?, declared)))
}

pub(super) fn compare(given: OperandTypes<'_>, _op: &CmpOp) -> Rule {
    let OperandTypes { types, declared } = given;
    if types == [&Type::Index, &Type::Index] {
        return Ok(Some(Type::Scalar(Elem::Bool)));
    }
    let shapes = [shape(types[0])?, shape(types[1])?];
    same(shapes[0].0, shapes[1].0)?;
    Ok(Some(made(Elem::Bool, broadcast(&shapes)?, declared)))
}

pub(super) fn select(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let condition = shape(types[0])?;
    same(condition.0, Elem::Bool)?;
    if types[1..] == [&Type::Index, &Type::Index] && condition.1.is_none() {
        return Ok(Some(Type::Index));
    }
    let shapes = [condition, shape(types[1])?, shape(types[2])?];
    same(shapes[1].0, shapes[2].0)?;
    Ok(Some(made(shapes[1].0, broadcast(&shapes)?, declared)))
}

pub(super) fn cast(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let ok = match (types[0], declared) {
        (Type::Scalar(a), Some(Type::Index)) => a.is_int(),
        (Type::Index, Some(Type::Scalar(b))) => computed(*b) == *b && *b != Elem::Bool,
        (Type::Scalar(_), Some(Type::Scalar(b))) => computed(*b) == *b,
        (Type::Tile(a), Some(Type::Tile(b))) => shape_of(a) == shape_of(b),
        _ => false,
    };
    if ok { keep(declared) } else { Err("cannot convert to the result's type".into()) }
}

pub(super) fn narrow(given: OperandTypes<'_>, elem: &Elem) -> Rule {
    let OperandTypes { types, declared } = given;
    let (from, s) = shape(types[0])?;
    if !matches!(elem, Elem::BF16 | Elem::F16 | Elem::I8) {
        return Err(format!("{elem} is not narrower than what is computed in"));
    }
    same(from, computed(*elem))?;
    Ok(Some(made(from, s, declared)))
}

pub(super) fn load_scalar(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    Ok(Some(Type::Scalar(computed(accessed(types, 0, 0)?.elem))))
}

pub(super) fn check_index(given: OperandTypes<'_>, _site: &u32) -> Rule {
    let types = given.types;
    is_index(types, 0)?;
    is_index(types, 1)?;
    Ok(Some(Type::Index))
}

pub(super) fn length(given: OperandTypes<'_>, name: &str, _most: &Dim) -> Rule {
    is_index(given.types, 0)?;
    if name.is_empty() { Err("a dimension has a name".into()) } else { Ok(None) }
}

pub(super) fn load(given: OperandTypes<'_>, rows: &Option<usize>, cols: &Option<usize>) -> Rule {
    let OperandTypes { types, declared } = given;
    let (b, t) = (accessed(types, 0, 0)?, declared_tile(declared)?);
    same(t.elem, computed(b.elem))?;
    walks(*rows, *cols, t, b)?;
    keep(declared)
}

pub(super) fn store(given: OperandTypes<'_>, rows: &Option<usize>, cols: &Option<usize>) -> Rule {
    let types = given.types;
    let b = accessed(types, 0, 1)?;
    let t = tile(types, types.len() - 1)?;
    // Only GPU fragments hold narrow elements.
    if t.elem != b.elem {
        same(t.elem, computed(b.elem))?;
    }
    walks(*rows, *cols, t, b)?;
    Ok(None)
}

pub(super) fn full(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let t = declared_tile(declared)?;
    match types[0] {
        Type::Scalar(e) => same(*e, t.elem).and_then(|()| keep(declared)),
        _ => Err("takes a scalar".into()),
    }
}

pub(super) fn copy(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let t = declared_tile(declared)?;
    let (elem, s) = shape(types[0])?;
    same(elem, t.elem)?;
    let spread = |from: Extent, to: Extent| from == to || from == ONE;
    match s {
        Some((rows, cols)) if !spread(rows, t.rows) || !spread(cols, t.cols) => {
            Err("the extents cannot be broadcast to the result's".into())
        }
        Some(_) | None => keep(declared),
    }
}

pub(super) fn iota(given: OperandTypes<'_>, axis: &usize) -> Rule {
    let OperandTypes { types, declared } = given;
    is_index(types, 0)?;
    let t = declared_tile(declared)?;
    match (t.elem, axis) {
        (Elem::I32 | Elem::I64, 0 | 1) => keep(declared),
        (Elem::I32 | Elem::I64, _) => Err("a tile has axes 0 and 1".into()),
        (e, _) => Err(format!("counts in i32 or i64, not {e}")),
    }
}

pub(super) fn reduce(given: OperandTypes<'_>, kind: &ReduceKind, axis: &usize) -> Rule {
    let OperandTypes { types, declared } = given;
    let t = tile(types, 0)?;
    let number = t.elem != Elem::Bool;
    let elem = match kind {
        ReduceKind::Sum | ReduceKind::Max | ReduceKind::Min if number => t.elem,
        ReduceKind::All | ReduceKind::Any if !number => Elem::Bool,
        ReduceKind::ArgMax if number => Elem::I32,
        ReduceKind::Mean | ReduceKind::LogSumExp => return Err("is several operations in the tile IR".into()),
        _ => return Err(format!("is not defined for {}", t.elem)),
    };
    let s = match axis {
        0 => (ONE, t.cols),
        1 => (t.rows, ONE),
        _ => return Err("a tile has axes 0 and 1".into()),
    };
    Ok(Some(made(elem, Some(s), declared)))
}

pub(super) fn element(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    let t = tile(types, 0)?;
    if shape_of(t) == (ONE, ONE) { Ok(Some(Type::Scalar(t.elem))) } else { Err("takes a tile of one".into()) }
}

pub(super) fn transpose(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let t = tile(types, 0)?;
    Ok(Some(made(t.elem, Some(transposed(t)), declared)))
}

pub(super) fn dot(given: OperandTypes<'_>, _mode: &Option<DotMode>) -> Rule {
    let OperandTypes { types, declared } = given;
    let (a, b) = (tile(types, 0)?, tile(types, 1)?);
    let start = match types.get(2) {
        Some(Type::Scalar(elem)) => TileType { elem: *elem, rows: a.rows, cols: b.cols, space: Space::Any },
        _ => tile(types, 2)?.clone(),
    };
    multiplied(a, b, &start)?;
    product(shape_of(a), shape_of(b), &start)?;
    Ok(Some(made(start.elem, Some(shape_of(&start)), declared)))
}

pub(super) fn view(given: OperandTypes<'_>, _offset: &Dim, strides: &[Dim]) -> Rule {
    let OperandTypes { types, declared } = given;
    let b = buffer(types, 0)?;
    count(types, 1 + strides.len())?;
    (1..types.len()).try_for_each(|i| is_index(types, i))?;
    if let Some(Type::Buffer(view)) = declared {
        same(b.elem, view.elem)?;
    }
    declared_buffer(declared)
}

pub(super) fn launch(given: OperandTypes<'_>, _kernel: &str) -> Rule {
    let types = given.types;
    match types.iter().find(|t| !matches!(t, Type::Buffer(_) | Type::Index)) {
        None => Ok(None),
        Some(t) => Err(format!("takes buffers and indices, not {t}")),
    }
}

pub(super) fn shared(given: OperandTypes<'_>, _offset: &u32) -> Rule {
    let declared = given.declared;
    match declared {
        Some(Type::Slot(_)) => keep(declared),
        _ => Err("makes a slot".into()),
    }
}

pub(super) fn copy_async(
    given: OperandTypes<'_>,
    rows: &Option<usize>,
    cols: &Option<usize>,
    panels: &Option<usize>,
) -> Rule {
    let types = given.types;
    let (t, b) = (slot(types, 0)?, accessed(types, 1, 0)?);
    same(t.elem, b.elem)?;
    walks(*rows, *cols, t, b)?;
    if panels.is_some() {
        walks(*panels, *rows, t, b)?;
        walks(*panels, *cols, t, b)?;
        let Space::Shared { swizzle } = t.space else { return Err("room for panels is in shared memory".into()) };
        let width = cols.and_then(|axis| b.shape.get(axis)).and_then(Dim::as_const).unwrap_or(0);
        let bytes = width.saturating_mul(i64::try_from(t.elem.size()).unwrap_or(1));
        if bytes == 0 || bytes != i64::from(swizzle) {
            return Err(format!("a panel has rows of {swizzle} bytes, not {bytes}"));
        }
    }
    Ok(Some(Type::Pending(Queue::Copy, t.clone())))
}

pub(super) fn tma_load(given: OperandTypes<'_>, rows: &Option<usize>, cols: &Option<usize>) -> Rule {
    let types = given.types;
    let (t, b) = (slot(types, 0)?, accessed(types, 1, 0)?);
    same(t.elem, b.elem)?;
    walks(*rows, *cols, t, b)?;
    Ok(None)
}

pub(super) fn commit(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    match types[0] {
        Type::Pending(q, t) => Ok(Some(Type::Group(*q, t.clone()))),
        t => Err(format!("commits what is under way, not {t}")),
    }
}

pub(super) fn wait(given: OperandTypes<'_>, _pending: &u32) -> Rule {
    let types = given.types;
    match types[0] {
        Type::Group(_, t) => Ok(Some(Type::Tile(t.clone()))),
        t => Err(format!("waits for a group, not {t}")),
    }
}

pub(super) fn release(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    Ok(Some(Type::Slot(tile(types, 0)?.clone())))
}

pub(super) fn load_fragment(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let (x, t) = (tile(types, 0)?, declared_tile(declared)?);
    same(x.elem, t.elem)?;
    same_shape(x, t)?;
    keep(declared)
}

pub(super) fn pack(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let (x, t) = (tile(types, 0)?, declared_tile(declared)?);
    same(x.elem, Elem::F32)?;
    sixteen_bits(t.elem)?;
    same_shape(x, t)?;
    keep(declared)
}

pub(super) fn mma(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    let (a, b, acc) = (tile(types, 0)?, tile(types, 1)?, tile(types, 2)?);
    if a.elem != Elem::F32 {
        sixteen_bits(a.elem)?;
    }
    same(a.elem, b.elem)?;
    same(acc.elem, Elem::F32)?;
    let right = if b.space == Space::Fragment(Fragment::BT) { transposed(b) } else { shape_of(b) };
    product(shape_of(a), right, acc)?;
    Ok(Some(Type::Tile(acc.clone())))
}

pub(super) fn mma_scaled(given: OperandTypes<'_>, bits: &u8) -> Rule {
    let types = given.types;
    let (a, numbers, scales, acc) = (tile(types, 0)?, tile(types, 1)?, tile(types, 2)?, tile(types, 3)?);
    sixteen_bits(a.elem)?;
    same(numbers.elem, Elem::I8)?;
    same(scales.elem, Elem::F32)?;
    same(acc.elem, Elem::F32)?;
    let each = match *bits {
        8 => 1,
        4 => 2,
        n => return Err(format!("numbers have 8 or 4 bits, not {n}")),
    };
    let [Extent::Static(steps), Extent::Static(rows), Extent::Static(groups)] = [a.cols, numbers.rows, scales.rows]
    else {
        return Err("the number of steps is known".into());
    };
    let group = i64::from(GROUP);
    if steps % group != 0 || rows.checked_mul(each) != Some(steps) || groups != steps / group {
        return Err(format!("{steps} steps of {rows} rows of numbers and {groups} of scales"));
    }
    if numbers.cols != scales.cols {
        return Err("numbers and scales have not the same columns".into());
    }
    product(shape_of(a), (a.cols, numbers.cols), acc)?;
    Ok(Some(Type::Tile(acc.clone())))
}

pub(super) fn convert_layout(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let (x, t) = (tile(types, 0)?, declared_tile(declared)?);
    same(x.elem, t.elem)?;
    same_shape(x, t)?;
    keep(declared)
}

pub(super) fn ring_acquire(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    is_index(types, 1)?;
    Ok(Some(Type::Slot(ring(types)?.clone())))
}

pub(super) fn ring_wait(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    is_index(types, 1)?;
    Ok(Some(Type::Tile(ring(types)?.clone())))
}

pub(super) fn ring_release(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    if ring(types)? == tile(types, 1)? {
        Ok(None)
    } else {
        Err("the tile does not have the type of the ring's tiles".into())
    }
}

pub(super) fn wgmma(given: OperandTypes<'_>, trans_b: &bool) -> Rule {
    let types = given.types;
    let (a, b) = (tile(types, 0)?, tile(types, 1)?);
    let acc = match types[2] {
        Type::Tile(t) | Type::Pending(Queue::Mma, t) => t,
        t => return Err(format!("adds to an accumulator, not to {t}")),
    };
    sixteen_bits(a.elem)?;
    same(a.elem, b.elem)?;
    same(acc.elem, Elem::F32)?;
    product(shape_of(a), if *trans_b { transposed(b) } else { shape_of(b) }, acc)?;
    Ok(Some(Type::Pending(Queue::Mma, acc.clone())))
}

/// Operations that stand alone: a loop nest, whose operations are checked separately; a barrier.
pub(super) fn run(_given: OperandTypes<'_>, _rows: &Extent, _cols: &Extent, _insts: &[Inst]) -> Rule {
    Ok(None)
}

pub(super) fn alone(_given: OperandTypes<'_>) -> Rule {
    Ok(None)
}

pub(super) fn blocks(_given: OperandTypes<'_>) -> Rule {
    Ok(Some(Type::Index))
}

pub(super) fn named_barrier(given: OperandTypes<'_>, _threads: &u32, _wait: &bool) -> Rule {
    is_index(given.types, 0).map(|()| None)
}

pub(super) fn ring_of(given: OperandTypes<'_>, _offset: &u32, _barriers: &u32, _readers: &u32) -> Rule {
    match given.declared {
        Some(Type::Ring { stages: 1..=64, .. }) => keep(given.declared),
        _ => Err("makes a ring of 1 to 64 stages".into()),
    }
}

/// Memory of a plan, identified by its number, name or offset.
pub(super) fn memory<T: ?Sized>(given: OperandTypes<'_>, _which: &T) -> Rule {
    declared_buffer(given.declared)
}

pub(super) fn param(given: OperandTypes<'_>, _name: &str) -> Rule {
    (0..given.types.len()).try_for_each(|i| is_index(given.types, i))?;
    declared_buffer(given.declared)
}

fn declared_buffer(declared: Option<&Type>) -> Rule {
    match declared {
        Some(Type::Buffer(b)) if b.shape.len() == b.strides.len() => keep(declared),
        Some(Type::Buffer(_)) => Err("a buffer has as many strides as axes".into()),
        _ => Err("makes a buffer".into()),
    }
}

/// The buffers have the same axes, except for the one before the columns, along which there is a
/// row of scales per group.
pub(super) fn scaled(given: OperandTypes<'_>, bits: &u8) -> Rule {
    let OperandTypes { types, declared } = given;
    let (b, t) = (accessed(types, 0, 1)?, declared_tile(declared)?);
    let scales = buffer(types, types.len() - 1)?;
    let rows_of_group = match *bits {
        8 => i64::from(GROUP),
        4 => i64::from(GROUP / 2),
        n => return Err(format!("numbers have 8 or 4 bits, not {n}")),
    };
    same(b.elem, Elem::I8)?;
    same(scales.elem, Elem::F32)?;
    same(t.elem, Elem::F32)?;
    let known = |b: &BufferType| {
        let both = b.shape.len() >= 2 && b.shape.len() == b.strides.len();
        let last = b.strides.last().and_then(Dim::as_const) == Some(1);
        let all = b.shape.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
        all.filter(|_| both && last)
            .ok_or("takes buffers of two axes or more whose extents are known and columns dense")
    };
    let (mut wanted, have) = (known(b)?, known(scales)?);
    let at = wanted.len() - 2;
    let rows = wanted[at];
    if t.rows.capacity() > rows.saturating_mul(i64::from(8 / bits)) || t.cols.capacity() > wanted[at + 1] {
        return Err("the tile is larger than the buffer".into());
    }
    wanted[at] = rows.div_euclid(rows_of_group) + i64::from(rows % rows_of_group != 0);
    if wanted != have {
        return Err(format!("the scales have not the extents {wanted:?}"));
    }
    keep(declared)
}

/// A buffer of `bf16` whose last two axes are columns and the halves of a pair, contiguous, with
/// constant extents from the pairs on.
pub(super) fn pairs(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let (b, t) = (accessed(types, 0, 0)?, declared_tile(declared)?);
    same(b.elem, Elem::BF16)?;
    same(t.elem, Elem::F32)?;
    let last = |list: &[Dim]| list.last_chunk::<3>().map(|last| [0, 1, 2].map(|i| last[i].as_const()));
    let (Some([Some(rows), Some(columns), Some(2)]), Some([Some(_), Some(2), Some(1)])) =
        (last(&b.shape), last(&b.strides))
    else {
        return Err("takes a buffer of pairs: `[.., pairs, columns, 2]`, the last two axes dense".into());
    };
    if t.rows.capacity() > rows.saturating_mul(2) || t.cols.capacity() > columns {
        return Err("the tile is larger than the buffer".into());
    }
    keep(declared)
}

/// As many rows as the operand, or one more to make them even; if they are bounded, so are the
/// operand's, and this holds for the bounds.
pub(super) fn pair_rows(given: OperandTypes<'_>) -> Rule {
    let OperandTypes { types, declared } = given;
    let (x, t) = (tile(types, 0)?, declared_tile(declared)?);
    same(x.elem, Elem::F32)?;
    same(t.elem, Elem::F32)?;
    if x.cols != t.cols {
        return Err("the columns differ".into());
    }
    let even = |n: i64| n.saturating_add(n.rem_euclid(2));
    let fits = match (x.rows, t.rows) {
        (Extent::Static(n), Extent::Static(m)) => m == even(n),
        (Extent::Bounded { max: n, .. }, Extent::Bounded { max: m, .. }) => m == even(n),
        _ => false,
    };
    if fits { keep(declared) } else { Err("has the rows of its operand, or one more to be even".into()) }
}

fn multiplied(a: &TileType, b: &TileType, acc: &TileType) -> Rule<()> {
    same(a.elem, b.elem)?;
    same(a.elem, acc.elem)?;
    match acc.elem {
        Elem::F32 | Elem::I32 | Elem::I64 => Ok(()),
        e => Err(format!("is not defined for {e}")),
    }
}

fn slot<'a>(types: &[&'a Type], i: usize) -> Rule<&'a TileType> {
    match types.get(i) {
        Some(Type::Slot(t)) => Ok(t),
        _ => Err(format!("operand {i} must be a slot")),
    }
}

fn ring<'a>(types: &[&'a Type]) -> Rule<&'a TileType> {
    match types.first() {
        Some(Type::Ring { tile, .. }) => Ok(tile),
        _ => Err("operand 0 must be a ring".into()),
    }
}

fn sixteen_bits(elem: Elem) -> Rule<()> {
    match elem {
        Elem::BF16 | Elem::F16 => Ok(()),
        e => Err(format!("multiplies bf16 or f16, not {e}")),
    }
}
