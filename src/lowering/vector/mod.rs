//! From a `run` of a scheduled kernel to a routine of vector IR.
//!
//! In: the run's iteration space and instructions, and the [`Shape`] of a machine's vectors. Out: a
//! [`Lowered`] routine, its arguments, and the tile operation that each of its instructions comes
//! from; or the reason why it was not lowered. This must not know a machine's instructions or back
//! ends.
//!
//! A run with an operation that cannot be vectorised (`single`) becomes a scalar routine (one
//! lane).
//!
//! * `frame`: along which axes each value varies, and where it is stored;
//! * `run`: loops over rows and vectors of columns; `steps`: single instructions; `reduce`:
//!   reductions, with `accumulators`;
//! * [`execute`]: runs a kernel's routines in the interpreter of vector IR, on behalf of the
//!   interpreter of tile IR.

mod accumulators;
pub mod execute;
mod frame;
mod reduce;
mod run;
mod steps;

use std::fmt;

use cranelift_entity::SecondaryMap;

use crate::scalar::BinaryOp;
use crate::shape::Elem;
use crate::ssa;
use crate::tile::{Body, Cpu, Extent, Inst, Kernel, Op, Value, Width};
use crate::vector::Features;
use crate::vector::routine::{Routine, legalise};
use frame::Frame;
use run::Lower;

/// Vector properties of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Lanes of 32 bits.
    pub lanes: u32,
    /// Number of vector registers.
    pub registers: u32,
    /// Optional instructions that the routine may use.
    pub features: Features,
    /// Are there masked loads and stores? If not, the elements beyond the last full vector of a row
    /// are processed one by one.
    pub masks: bool,
    /// Largest unroll factor, in vectors. A general-purpose compiler's time grows with it.
    pub unroll: usize,
}

impl Shape {
    /// Scalar code, for any CPU.
    const SINGLE: Shape = Shape { lanes: 1, registers: 16, features: Features::PLAIN, masks: false, unroll: 1 };

    /// The shape for a CPU.
    pub fn for_cpu(cpu: Cpu) -> Shape {
        let (features, masks, unroll) = match cpu.width() {
            Width::V128 => (Features::PLAIN, false, 1),
            Width::V256 => (Features::AVX2, true, 4),
            Width::V512 => (Features::AVX512, true, 4),
        };
        Shape { lanes: cpu.lanes(), registers: cpu.registers(), features, masks, unroll }
    }
}

/// An argument of a routine: one 64-bit word per parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Word {
    /// An index.
    Index(Value),
    /// A scalar, in the low bytes: the bits of an `f32`, an `i32` or `i64`, or a truth value as 0
    /// or 1 (64 bits).
    Scalar(Value),
    /// The address of an element of a buffer.
    Address {
        /// The buffer.
        buffer: Value,
        /// One index per axis.
        indices: Vec<Value>,
    },
    /// The stride in bytes of an axis of a buffer.
    StrideBytes {
        /// The buffer.
        buffer: Value,
        /// The axis.
        axis: usize,
    },
    /// The address of the worker's scratch, a multiple of 64.
    Scratch,
}

impl Word {
    /// Text form; values by their numbers.
    fn label(&self) -> String {
        match self {
            Word::Index(v) | Word::Scalar(v) => v.to_string(),
            Word::Address { buffer, indices } => {
                let indices: Vec<String> = indices.iter().map(Value::to_string).collect();
                format!("{buffer}[{}]", indices.join(", "))
            }
            Word::StrideBytes { buffer, axis } => format!("stride of {buffer} along axis {axis}"),
            Word::Scratch => "scratch".to_string(),
        }
    }
}

/// A run lowered to a routine.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The routine.
    pub routine: Routine,
    /// Its arguments, one per parameter.
    pub words: Vec<Word>,
    /// The tile operation that each instruction comes from, if it is a single one.
    pub origins: SecondaryMap<ssa::Inst, Option<Inst>>,
}

/// Why a run was not lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declined {
    /// An operation that cannot be lowered, and the reason.
    Form(Inst, String),
    /// A bug in attnc.
    Wrong(String),
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declined::Form(_, reason) | Declined::Wrong(reason) => f.write_str(reason),
        }
    }
}

/// The routine of a run, for a back end that expands operations which a machine lacks.
///
/// # Errors
/// The reason why it was not lowered.
pub fn lower(
    name: &str,
    body: &Body,
    (rows, cols): (Extent, Extent),
    insts: &[Inst],
    shape: Shape,
) -> Result<Lowered, Declined> {
    let Some(frame) = Frame::new(body, rows, cols, insts) else { return Err(no_frame(body, insts)) };
    let mut lower = Lower::new(name, frame, shape);
    let done = lower.go();
    let Lower { b, f, .. } = lower;
    if done.is_none() {
        return Err(declined(body, b.origin(), insts));
    }
    let (routine, origins) = b.finish().map_err(Declined::Wrong)?;
    let mut words = f.words;
    words.truncate(routine.params.len());
    Ok(Lowered { routine, words, origins })
}

/// The routine of a run for a CPU, with operations that it lacks already expanded.
///
/// # Errors
/// The reason why it was not lowered.
pub fn lower_for(
    cpu: Cpu,
    name: &str,
    body: &Body,
    extents: (Extent, Extent),
    insts: &[Inst],
) -> Result<Lowered, Declined> {
    let shape = if single(body, insts).is_some() { Shape::SINGLE } else { Shape::for_cpu(cpu) };
    let mut lowered = lower(name, body, extents, insts, shape)?;
    let Lowered { routine, origins, .. } = &mut lowered;
    let made = |new, old| origins[new] = origins[old];
    if !shape.masks {
        legalise::drop_prefetches(routine);
        legalise::split_accesses(routine, made);
    } else if cpu.width() == Width::V256 {
        legalise::part_narrow_accesses(routine, made);
    }
    Ok(lowered)
}

/// The operations of a run that prevent vectorisation: `i64`, integer powers and shifts, and stores
/// along an axis of stride 0. Prefers one that has a source location.
pub fn single(body: &Body, insts: &[Inst]) -> Option<(Inst, String)> {
    let reason = |i: &Inst| {
        let data = body.inst(*i);
        let name = data.op.info().name;
        let elem = data.result.and_then(|v| body.ty(v).elem());
        if data.operands.iter().chain(&data.result).any(|v| body.ty(*v).elem() == Some(Elem::I64)) {
            return Some(format!("`{name}` of i64"));
        }
        match (&data.op, elem) {
            (Op::Binary(BinaryOp::Pow), Some(elem)) if elem != Elem::F32 => Some(format!("`{name}` of {elem}")),
            (Op::Binary(BinaryOp::ShiftLeft | BinaryOp::ShiftRight), _) => Some(format!("`{name}`")),
            (Op::Store { .. }, _) if frame::repeats(body, data) => Some("a store that repeats".to_string()),
            _ => None,
        }
    };
    let all = insts.iter().filter_map(|i| Some((*i, reason(i)?)));
    all.min_by_key(|(i, _)| body.inst(*i).loc.line == 0)
}

/// Why a run has no frame.
fn no_frame(body: &Body, insts: &[Inst]) -> Declined {
    let accesses = |i: &&Inst| matches!(body.inst(**i).op, Op::Load { .. } | Op::Store { .. });
    match insts.iter().find(accesses).or(insts.first()) {
        Some(i) => Declined::Form(*i, "loops over both axes".into()),
        None => Declined::Wrong("a run of nothing".into()),
    }
}

/// The operation at which lowering stopped.
pub fn declined(body: &Body, origin: Option<Inst>, insts: &[Inst]) -> Declined {
    let Some(i) = origin.or(insts.first().copied()) else { return Declined::Wrong("a run of nothing".into()) };
    let data = body.inst(i);
    let elem = data.result.and_then(|v| body.ty(v).elem());
    let elem = elem.map_or(String::new(), |elem| format!(" of {elem}"));
    Declined::Form(i, format!("`{}`{elem}", data.op.info().name))
}

/// The runs of a kernel as routines for a CPU, named `kernel.0`, `kernel.1`, .. in order, each with
/// its instruction, without dead code. Parameters are labelled by what they hold, with value
/// numbers.
pub fn runs(kernel: &Kernel, cpu: Cpu) -> Vec<(Inst, Result<Lowered, Declined>)> {
    let runs = kernel.body.insts().filter_map(|(_, i, data)| match &data.op {
        Op::Run { rows, cols, insts } => Some((i, *rows, *cols, insts)),
        _ => None,
    });
    let each = runs.enumerate().map(|(n, (i, rows, cols, insts))| {
        let mut lowered = lower_for(cpu, &format!("{}.{n}", kernel.name), &kernel.body, (rows, cols), insts);
        if let Ok(Lowered { routine, words, .. }) = &mut lowered {
            ssa::remove_dead(&mut routine.body);
            routine.params.iter_mut().zip(words).for_each(|((_, label), word)| *label = word.label());
        }
        (i, lowered)
    });
    each.collect()
}
