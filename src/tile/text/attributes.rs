//! Operations and their spelling: the literal that some have in place of operands, and their attributes.

use crate::ir::Scalar;
use crate::irtext::syntax::{Expr, ExprKind, Phrase};
use crate::irtext::{Place, TextError, float_text, float32_text, quoted, read};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::tile::{DotMode, Op, Type};

/// What stands where other operations have their first operand: a literal, a number, a name.
pub(super) fn literal(op: &Op, ty: Option<&Type>) -> Option<String> {
    match op {
        Op::Const(Scalar::Float(x)) => Some(match ty {
            Some(Type::Scalar(Elem::F32)) => float32_text(*x as f32),
            _ => float_text(*x),
        }),
        Op::Const(Scalar::Int(n)) => Some(n.to_string()),
        Op::Const(Scalar::Bool(b)) => Some(b.to_string()),
        Op::DimValue(d) => Some(d.to_string()),
        Op::Arg(n) | Op::Out(n) | Op::Slot(n) => Some(n.to_string()),
        Op::Packed { offset } => Some(offset.to_string()),
        Op::Tap { name } | Op::Param { name } => Some(quoted(name)),
        Op::Launch { kernel } => Some(format!("@{kernel}")),
        _ => None,
    }
}

/// The attributes, in order.
pub(super) fn attributes(op: &Op) -> Vec<(&'static str, String)> {
    let axes = |rows: &Option<usize>, cols: &Option<usize>| {
        let axis = |name, a: &Option<usize>| a.map(|a| (name, a.to_string()));
        [axis("rows", rows), axis("cols", cols)].into_iter().flatten().collect()
    };
    match op {
        Op::Load { rows, cols }
        | Op::Store { rows, cols }
        | Op::Window { rows, cols }
        | Op::CopyAsync { rows, cols }
        | Op::TmaLoad { rows, cols } => axes(rows, cols),
        Op::Narrow { elem } => vec![("elem", elem.to_string())],
        Op::CheckIndex { site } => vec![("site", site.to_string())],
        Op::Iota { axis } | Op::Reduce { axis, .. } => vec![("axis", axis.to_string())],
        Op::View { offset, strides } => {
            let mut out = Vec::new();
            if *offset != Dim::zero() {
                out.push(("offset", offset.to_string()));
            }
            if !strides.is_empty() {
                let strides: Vec<String> = strides.iter().map(Dim::to_string).collect();
                out.push(("strides", format!("[{}]", strides.join(", "))));
            }
            out
        }
        Op::LoadScaled { bits } => vec![("bits", bits.to_string())],
        Op::Dot { mode } => mode.iter().map(|mode| ("mode", mode.name().to_string())).collect(),
        Op::DotPanels { unroll } => vec![("unroll", unroll.to_string())],
        Op::Wait { pending } => vec![("pending", pending.to_string())],
        Op::SharedSlot { offset } => vec![("offset", offset.to_string())],
        Op::Ring { offset, barriers, readers } => {
            vec![("offset", offset.to_string()), ("barriers", barriers.to_string()), ("readers", readers.to_string())]
        }
        Op::Wgmma { trans_b } => vec![("trans_b", trans_b.to_string())],
        Op::NamedBarrier { threads, wait } => {
            vec![("threads", threads.to_string()), ("wait", wait.to_string())]
        }
        Op::Const(_)
        | Op::DimValue(_)
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Cast
        | Op::LoadScalar
        | Op::Full
        | Op::Copy
        | Op::Element
        | Op::Transpose
        | Op::LoadPairs
        | Op::PairRows
        | Op::Run { .. }
        | Op::Commit
        | Op::Release
        | Op::Barrier
        | Op::LoadFragment
        | Op::Pack
        | Op::Mma
        | Op::RingAcquire
        | Op::RingWait
        | Op::RingRelease
        | Op::WgmmaFence
        | Op::Arg(_)
        | Op::Out(_)
        | Op::Tap { .. }
        | Op::Param { .. }
        | Op::Slot(_)
        | Op::Packed { .. }
        | Op::Launch { .. } => Vec::new(),
    }
}

type Read<T> = Result<T, TextError>;

fn err<T>(place: Place, message: impl Into<String>) -> Read<T> {
    Err(TextError::new(place, message))
}

/// The attributes of a statement as read; each is taken once.
pub(super) struct Attributes<'a> {
    place: Place,
    list: Vec<(&'a str, &'a [Expr])>,
}

impl<'a> Attributes<'a> {
    /// The phrases that have a name and a value.
    ///
    /// # Errors
    /// A name that stands twice.
    pub(super) fn new(args: &'a [Phrase], place: Place) -> Read<Attributes<'a>> {
        let mut list: Vec<(&str, &[Expr])> = Vec::new();
        for p in args {
            if let Some((name, value)) = read::named(p) {
                if list.iter().any(|(n, _)| *n == name) {
                    return err(p.place, format!("`{name}` stands twice"));
                }
                list.push((name, value));
            }
        }
        Ok(Attributes { place, list })
    }

    fn take(&mut self, name: &str) -> Option<&'a [Expr]> {
        let at = self.list.iter().position(|(n, _)| *n == name)?;
        Some(self.list.remove(at).1)
    }

    fn one(&mut self, name: &str) -> Read<Option<&'a Expr>> {
        match self.take(name) {
            None => Ok(None),
            Some([x]) => Ok(Some(x)),
            Some(more) => err(more.first().map_or(self.place, |x| x.place), "one value belongs here"),
        }
    }

    fn need(&mut self, name: &str) -> Read<&'a Expr> {
        match self.one(name)? {
            Some(x) => Ok(x),
            None => err(self.place, format!("`{name}=` is missing")),
        }
    }

    fn axis(&mut self, name: &str) -> Read<Option<usize>> {
        self.one(name)?.map(read::integer).transpose()
    }

    fn number<T: TryFrom<i128>>(&mut self, name: &str) -> Read<T> {
        read::integer(self.need(name)?)
    }

    fn flag(&mut self, name: &str) -> Read<bool> {
        let x = self.need(name)?;
        match read::literal(x) {
            Some(read::Literal::Bool(b)) => Ok(b),
            _ => err(x.place, "`true` or `false` belongs here"),
        }
    }

    /// # Errors
    /// An attribute that nobody took.
    pub(super) fn finish(self) -> Read<()> {
        match self.list.first() {
            None => Ok(()),
            Some((name, value)) => {
                err(value.first().map_or(self.place, |x| x.place), format!("`{name}=` does not belong here"))
            }
        }
    }
}

/// A mode by its name.
fn dot_mode(x: &Expr) -> Read<DotMode> {
    let name = read::word(x)?;
    let known = DotMode::ALL.into_iter().find(|mode| mode.name() == name);
    known.map_or_else(|| err(x.place, format!("`{name}` is no mode of a product")), Ok)
}

/// The operation of this name, its attributes read, unless it is one with a literal or a body.
///
/// # Errors
/// A name that no operation has; an attribute that is missing or of the wrong kind.
pub(super) fn operation(head: &str, a: &mut Attributes, place: Place) -> Read<Op> {
    Ok(match head {
        "select" => Op::Select,
        "cast" => Op::Cast,
        "narrow" => Op::Narrow { elem: read::elem(a.need("elem")?)? },
        "load_scalar" => Op::LoadScalar,
        "check_index" => Op::CheckIndex { site: a.number("site")? },
        "load" => Op::Load { rows: a.axis("rows")?, cols: a.axis("cols")? },
        "store" => Op::Store { rows: a.axis("rows")?, cols: a.axis("cols")? },
        "full" => Op::Full,
        "copy" => Op::Copy,
        "iota" => Op::Iota { axis: a.number("axis")? },
        "reduce_sum" => Op::Reduce { kind: ReduceKind::Sum, axis: a.number("axis")? },
        "reduce_mean" => Op::Reduce { kind: ReduceKind::Mean, axis: a.number("axis")? },
        "reduce_max" => Op::Reduce { kind: ReduceKind::Max, axis: a.number("axis")? },
        "reduce_min" => Op::Reduce { kind: ReduceKind::Min, axis: a.number("axis")? },
        "reduce_all" => Op::Reduce { kind: ReduceKind::All, axis: a.number("axis")? },
        "reduce_any" => Op::Reduce { kind: ReduceKind::Any, axis: a.number("axis")? },
        "argmax" => Op::Reduce { kind: ReduceKind::ArgMax, axis: a.number("axis")? },
        "element" => Op::Element,
        "transpose" => Op::Transpose,
        "load_scaled" => Op::LoadScaled { bits: a.number("bits")? },
        "load_pairs" => Op::LoadPairs,
        "pair_rows" => Op::PairRows,
        "dot" => Op::Dot { mode: a.one("mode")?.map(dot_mode).transpose()? },
        "window" => Op::Window { rows: a.axis("rows")?, cols: a.axis("cols")? },
        "dot_panels" => Op::DotPanels { unroll: a.number("unroll")? },
        "shared" => Op::SharedSlot { offset: a.number("offset")? },
        "copy_async" => Op::CopyAsync { rows: a.axis("rows")?, cols: a.axis("cols")? },
        "commit" => Op::Commit,
        "wait" => Op::Wait { pending: a.number("pending")? },
        "release" => Op::Release,
        "barrier" => Op::Barrier,
        "load_fragment" => Op::LoadFragment,
        "pack" => Op::Pack,
        "mma" => Op::Mma,
        "ring" => {
            Op::Ring { offset: a.number("offset")?, barriers: a.number("barriers")?, readers: a.number("readers")? }
        }
        "ring_acquire" => Op::RingAcquire,
        "tma_load" => Op::TmaLoad { rows: a.axis("rows")?, cols: a.axis("cols")? },
        "ring_wait" => Op::RingWait,
        "ring_release" => Op::RingRelease,
        "wgmma_fence" => Op::WgmmaFence,
        "wgmma" => Op::Wgmma { trans_b: a.flag("trans_b")? },
        "named_barrier" => Op::NamedBarrier { threads: a.number("threads")?, wait: a.flag("wait")? },
        "view" => {
            let offset = a.one("offset")?.map(read::dim).transpose()?.unwrap_or_default();
            let strides = match a.one("strides")? {
                None => Vec::new(),
                Some(Expr { kind: ExprKind::List(items), .. }) => read::dims(items)?,
                Some(x) => return err(x.place, "a list (`[1, 2]`) belongs here"),
            };
            Op::View { offset, strides }
        }
        _ => match (UnaryOp::from_name(head), BinaryOp::from_name(head), CmpOp::from_name(head)) {
            (Some(op), _, _) => Op::Unary(op),
            (_, Some(op), _) => Op::Binary(op),
            (_, _, Some(op)) => Op::Compare(op),
            (None, None, None) => return err(place, format!("`{head}` is no operation")),
        },
    })
}
