//! Graph IR: SSA in CFG form whose values are tensors.
//!
//! The folder holds the data structures ([`Module`], [`Function`]), the operations ([`Op`],
//! declared once in `op`), their shape rules (`rules`), the text form, the verifier and the
//! interpreter. In: functions built by `lowering::graph` or parsed from text. Out: the same,
//! rewritten by `passes`, read by `lowering::tile`. The IR knows no source syntax, back ends,
//! machines or files.
//!
//! # The IR in one page
//!
//! A [`Module`] holds parameter declarations (weights are referred to by name, never stored) and
//! functions, one for each exported entry point. Layers are inlined; a loop over an array of layers
//! is a loop in the CFG that indexes parameters (`param "h.*.ln_1.weight"[%i]`). Dimensions known
//! at compile time are numbers; the others are symbols, bound by the arguments of a call.
//!
//! A [`Function`] is a list of blocks with arguments. The entry block's arguments are the
//! function's. Every instruction has at most one result. Values are numbered in order before
//! printing.

pub mod chain;
mod function;
mod graphviz;
pub mod interp;
mod needed;
mod op;
mod ranges;
pub mod requirements;
mod rules;
mod signature;
pub mod text;
mod verify;

pub use function::{BlockData, Body, Function, GraphIr, InstData, Module, Terminator, Type};
pub use graphviz::dot;
pub use needed::needed_without_taps;
pub(crate) use op::mask_operands;
pub use op::{Class, FusionKind, MaskKind, Op};
pub use ranges::{bound_of_counter, in_range};
pub use rules::result_type;
pub use signature::{entries, run_time_dims, sets_states, tap_patterns, taps};
pub use verify::{Errors, Verified, verify};

pub use crate::interface::{
    ArgDecl, EntryDecl, ParamDecl, ResultDecl, StateDecl, TapDecl, arrays_of, param_named, tensors,
};
pub use crate::scalar::Scalar;
pub use crate::source::Loc;
pub use crate::ssa::{Block, BlockCall, Inst, Use, Value, ValueDef};

/// The control-flow graph of a function.
pub type Cfg = crate::cfg::Cfg<Block>;
/// A natural loop of a function.
pub type Loop = crate::cfg::Loop<Block>;
