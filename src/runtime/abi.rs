//! Binary interface between a compiled model and the support library: the model descriptor, and the
//! context of a call.
//!
//! The compiler writes a [`ModelDesc`] into `model.o` (as bytes and relocations, see
//! `descriptor.rs`) under the symbol [`DESCRIPTOR_SYMBOL`]; the support library, linked into the
//! same `model.so`, reads it. This file is compiled into both, so it uses only `core`.
//!
//! Every field is 8 bytes wide and 8-aligned, so the layout has no padding and is the same for
//! every 64-bit target.

#![allow(dead_code, reason = "the compiler and the support library each use their half")]

#[path = "abi_cuda.rs"]
pub mod cuda;

/// Version of everything in this file and of the exported C functions; incremented with every
/// incompatible change.
pub const ABI_VERSION: u64 = 8;

/// Arguments of more than 2 to the power of this many bytes are rejected (counting extents of 0 as
/// 1): no machine addresses them. The compiler relies on it to prove that other sizes fit 64 bits.
pub const ADDRESS_BITS: u32 = 47;

/// Name of the [`ModelDesc`] in `model.o`; hidden, so that it never leaves the `.so`.
pub const DESCRIPTOR_SYMBOL: &str = "attnc_model_descriptor";

/// The function that every `model.so` exports, to be looked up with `dlsym`; returns its
/// [`Functions`].
pub const LIBRARY_SYMBOL: &str = "attnc_library";

/// Prefix of the symbol that programs link a model by: `attnc_library_gpt2_0123456789abcdef` is the
/// same function as [`LIBRARY_SYMBOL`], in that model's library alone. The prefix is followed by
/// the model's name and [`ModelDesc::id`].
pub const LIBRARY_PREFIX: &str = "attnc_library_";

/// Prefix of a data symbol in `model.o` that tells the linker what follows [`LIBRARY_PREFIX`].
pub const NAME_PREFIX: &str = "attnc_name_";

/// The functions of the interface, in the order of [`Functions`]. `runtime.h` declares each as a
/// member of `attnc_functions` under this name, and, prefixed with `attnc_`, as a function for
/// programs.
pub const FUNCTIONS: [&str; 69] = [
    "status_text",
    "info",
    "model_name",
    "target",
    "variant_count",
    "variant_name",
    "entry_count",
    "entry_index",
    "entry_name",
    "entry_signature",
    "entry_doc",
    "dimension_count",
    "dimension_name",
    "argument_count",
    "argument_name",
    "argument_type",
    "result_count",
    "result_type",
    "tap_count",
    "tap_name",
    "tap_cost",
    "parameter_count",
    "parameter_name",
    "model_open",
    "model_close",
    "model_error",
    "model_copy_error",
    "model_variant",
    "unused_weight_count",
    "unused_weight",
    "converted_weight_count",
    "converted_weight",
    "session_open",
    "session_close",
    "session_reset",
    "session_error",
    "session_copy_error",
    "session_poll",
    "session_profile",
    "launch_count",
    "launch_nanoseconds",
    "launch_points",
    "result_shape",
    "call",
    "call_owned",
    "call_taps",
    "taps_count",
    "taps_name",
    "taps_tensor",
    "taps_written",
    "taps_close",
    "result_shape_raw",
    "call_raw",
    "python_call",
    "model_open_on",
    "model_device",
    "model_device_note",
    "session_stream",
    "session_use_stream",
    "call_on_device",
    "copy_to_host",
    "python_capsule",
    "state_count",
    "state_index",
    "state_name",
    "state_type",
    "state_shape",
    "session_state",
    "session_set_state",
];

/// Function table of a library. The functions are not exported by name: every library has the same
/// names, and a linker would bind all references to the first.
#[repr(C)]
pub struct Functions {
    /// [`ABI_VERSION`] of the library.
    pub abi_version: u64,
    /// In the order of [`FUNCTIONS`], with the types that `runtime.h` declares.
    pub functions: [*const (); FUNCTIONS.len()],
}

// SAFETY: addresses of functions, never written.
unsafe impl Sync for Functions {}

/// Magic numbers of live handles, by kind. Closing a handle overwrites its mark, so most uses after
/// close are detected.
pub mod mark {
    /// A model.
    pub const MODEL: u64 = 0x6174_746e_6d6f_6431;
    /// A session.
    pub const SESSION: u64 = 0x6174_746e_7365_7331;
    /// The taps of a call.
    pub const TAPS: u64 = 0x6174_746e_7461_7031;
}

/// First fields of every handle, through which a program finds the library that it belongs to.
#[repr(C)]
pub struct Head {
    /// One of [`mark`]; 0 once it is closed.
    pub mark: core::sync::atomic::AtomicU64,
    /// The library's functions.
    pub functions: *const Functions,
    /// [`ModelDesc::id`].
    pub model: u64,
}

/// An entry point index that no model has; a typed function of `model.h` passes it where the
/// session belongs to another model.
pub const NO_ENTRY: u64 = u64::MAX;

/// Element type codes ([`ParamDesc::elem`] and its like).
pub mod elem {
    /// IEEE 754 binary32.
    pub const F32: u64 = 1;
    /// bfloat16.
    pub const BF16: u64 = 2;
    /// IEEE 754 binary16.
    pub const F16: u64 = 3;
    /// 8-bit signed integer.
    pub const I8: u64 = 4;
    /// 32-bit signed integer.
    pub const I32: u64 = 5;
    /// 64-bit signed integer.
    pub const I64: u64 = 6;
    /// Truth value, one byte that is 0 or 1.
    pub const BOOL: u64 = 7;
}

/// A UTF-8 string: `len` bytes at `ptr`, followed by a NUL that is not counted. The pointer of an
/// empty string is valid too.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Str {
    /// First byte.
    pub ptr: *const u8,
    /// Number of bytes, without the NUL.
    pub len: u64,
}

/// A table of `len` rows at `ptr`; `ptr` is any aligned address where `len` is 0.
#[repr(C)]
pub struct Slice<T> {
    /// First row.
    pub ptr: *const T,
    /// Number of rows.
    pub len: u64,
}

impl<T> Clone for Slice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<T> {}

/// Operations of a dimension expression, in postfix order on a stack of `i64`; overflow is an
/// error.
pub mod op {
    /// Push [`super::ExprOp::value`].
    pub const CONST: i64 = 0;
    /// Push the run-time dimension whose index in [`super::EntryDesc::symbols`] is the value.
    pub const SYMBOL: i64 = 1;
    /// `a + b`.
    pub const ADD: i64 = 2;
    /// `a - b`.
    pub const SUB: i64 = 3;
    /// `a * b`.
    pub const MUL: i64 = 4;
    /// `a / b`; a remainder is an error, and so is `b == 0`.
    pub const DIV_EXACT: i64 = 5;
    /// `a / b` rounded down; `b == 0` is an error.
    pub const DIV_FLOOR: i64 = 6;
    /// Remainder of the division that rounds down; `b == 0` is an error.
    pub const MOD: i64 = 7;
    /// The smaller.
    pub const MIN: i64 = 8;
    /// The larger.
    pub const MAX: i64 = 9;
    /// Maximum stack depth of an expression.
    pub const STACK: usize = 32;
}

/// One operation of a dimension expression.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExprOp {
    /// One of [`op`].
    pub op: i64,
    /// The constant of `CONST`, the index of `SYMBOL`, else 0.
    pub value: i64,
}

/// A dimension with its source text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DimDesc {
    /// Its value; a single constant if it was bound when the model was compiled.
    pub expr: Slice<ExprOp>,
    /// Its source text for messages: `S`, `D / H`, `768`.
    pub text: Str,
}

/// An argument, result or state.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TensorDesc {
    /// Name in the program; `result`, or `result.0` and so on, for results.
    pub name: Str,
    /// Element type, one of [`elem`].
    pub elem: u64,
    /// 1 where the type begins with `..`: any number of leading axes, flattened into
    /// [`EntryDesc::batch_symbol`].
    pub batch: u64,
    /// The axes after `..`.
    pub dims: Slice<DimDesc>,
}

/// A family of parameters: one tensor, or one for each index into arrays of layers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ParamDesc {
    /// Name in the weights file; each `*` stands for an index: `h.*.ln_1.weight`.
    pub pattern: Str,
    /// Number of indices for each `*`, outermost first; empty for a single tensor.
    pub extents: Slice<u64>,
    /// Element type, one of [`elem`].
    pub elem: u64,
    /// Shape of each tensor of the family; all dimensions are constants.
    pub dims: Slice<DimDesc>,
}

/// A run-time dimension and how the arguments bind it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SymbolDesc {
    /// Name for messages.
    pub name: Str,
    /// Index of the argument that binds it.
    pub arg: u64,
    /// Index into that argument's [`TensorDesc::dims`]; ignored for the batch symbol.
    pub axis: u64,
    /// The extent of that axis is `scale * symbol + offset`, `scale >= 1`.
    pub scale: i64,
    /// See `scale`.
    pub offset: i64,
}

/// Comparisons of a [`CheckDesc`].
pub mod cmp {
    /// `==`.
    pub const EQ: u64 = 0;
    /// `!=`.
    pub const NE: u64 = 1;
    /// `<`.
    pub const LT: u64 = 2;
    /// `<=`.
    pub const LE: u64 = 3;
    /// `>`.
    pub const GT: u64 = 4;
    /// `>=`.
    pub const GE: u64 = 5;
}

/// A `where` clause that is checked on entry to a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CheckDesc {
    /// Left side.
    pub left: Slice<ExprOp>,
    /// One of [`cmp`].
    pub cmp: u64,
    /// Right side.
    pub right: Slice<ExprOp>,
    /// Source text: `S <= T`.
    pub text: Str,
    /// Source location of the clause, or of what requires it: `model.attn:3:9`; empty if unknown.
    pub place: Str,
}

/// A family of taps of an entry point.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TapDesc {
    /// Name; each `*` stands for an index: `h.*.attn.weights`.
    pub pattern: Str,
    /// Number of indices for each `*`, outermost first. The buffer of the tap stacks all of them in
    /// this order.
    pub extents: Slice<u64>,
    /// Element type, one of [`elem`].
    pub elem: u64,
    /// 1 where each element begins with the flattened batch.
    pub batch: u64,
    /// Shape of each element, after the batch.
    pub dims: Slice<DimDesc>,
    /// The number of leading `dims` that are loops over time, each iteration of which writes one
    /// element.
    pub stacked: u64,
    /// The cost of requesting it, in one line for users; may be empty.
    pub cost: Str,
}

/// The interface of an entry point.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EntryDesc {
    /// Name: `forward`.
    pub name: Str,
    /// Doc comment.
    pub doc: Str,
    /// Signature as in the source.
    pub signature: Str,
    /// Run-time dimensions, in the order of [`PlanContext::dims`].
    pub symbols: Slice<SymbolDesc>,
    /// Index in `symbols` of the flattened batch `..`; -1 where no argument has one.
    pub batch_symbol: i64,
    /// Arguments.
    pub args: Slice<TensorDesc>,
    /// Conditions that are checked after the arguments' shapes.
    pub checks: Slice<CheckDesc>,
    /// Results.
    pub results: Slice<TensorDesc>,
    /// Taps, in the order of [`PlanContext::taps`].
    pub taps: Slice<TapDesc>,
    /// 1 where a call changes states of the session.
    pub sets_states: u64,
}

/// An error that generated code can report while it runs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SiteDesc {
    /// The message; `{0}`, `{1}`, `{2}` are the three values given to [`Fail`]:
    /// `index out of range: tokens holds {0}, and wte has {1} rows (V)`.
    pub text: Str,
}

/// The compiled code of one entry point in one variant.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlanDesc {
    /// The host program of a call.
    pub plan: Option<Plan>,
    /// The host program of a call that requests taps; null where the entry has none.
    pub tapped: Option<Plan>,
    /// Bytes of arena that `plan` needs, 64-aligned.
    pub arena: Slice<ExprOp>,
    /// Bytes of arena that `tapped` needs.
    pub tapped_arena: Slice<ExprOp>,
    /// Bytes of scratch per worker, the maximum over the kernels of both, 64-aligned.
    pub scratch: u64,
}

/// Bits of [`VariantDesc::features`]: required CPU features.
pub mod feature {
    /// SSE4.2 and everything below it.
    pub const SSE42: u64 = 1 << 0;
    /// AVX2, BMI1, BMI2, F16C, LZCNT, MOVBE: x86-64-v3 without FMA.
    pub const AVX2: u64 = 1 << 1;
    /// FMA3.
    pub const FMA: u64 = 1 << 2;
    /// AVX-512 F, BW, CD, DQ and VL: x86-64-v4.
    pub const AVX512: u64 = 1 << 3;
    /// AVX-512 BF16.
    pub const AVX512_BF16: u64 = 1 << 4;
    /// AVX-512 VNNI, and VBMI, which processors with VNNI have except for two.
    pub const AVX512_VNNI: u64 = 1 << 5;
    /// AMX tiles and BF16 tile multiplication. The process must have requested permission to use
    /// tiles before such code runs.
    pub const AMX_BF16: u64 = 1 << 6;
    /// AVX-VNNI: dot products of bytes with 256-bit vectors.
    pub const AVX_VNNI: u64 = 1 << 7;
}

/// Instruction sets: the names of variants that `ATTNC_CPU` accepts.
pub mod level {
    /// All of them, lowest first.
    pub const NAMES: [&str; 6] = ["portable", "avx2", "avx2vnni", "avx512", "avx512bf16", "amx"];
}

/// All code of the model for one instruction set or GPU architecture.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VariantDesc {
    /// Name for users: `avx2`.
    pub name: Str,
    /// Bits of [`feature`], all of which are required.
    pub features: u64,
    /// Runs once when a model is opened, with `params` and `packed` set, and packs weights; null if
    /// nothing is packed.
    pub prepare: Option<Plan>,
    /// Bytes of [`PlanContext::packed`], 64-aligned.
    pub packed_bytes: u64,
    /// One for each of [`ModelDesc::entries`].
    pub entries: Slice<PlanDesc>,
    /// One row if the kernels are for NVIDIA GPUs, else empty.
    pub cuda: Slice<cuda::CudaDesc>,
}

/// Everything the support library knows about a model.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ModelDesc {
    /// [`ABI_VERSION`] of the compiler.
    pub abi_version: u64,
    /// Distinguishes builds: a hash of everything that was compiled.
    pub id: u64,
    /// Name of the model: `Gpt2`.
    pub name: Str,
    /// Doc comment of the model.
    pub doc: Str,
    /// Target triple: `x86_64-unknown-linux-gnu`.
    pub target: Str,
    /// A human-readable summary of the descriptor, see `attnc_info`.
    pub info: Str,
    /// Parameters, in the order of [`PlanContext::params`].
    pub params: Slice<ParamDesc>,
    /// States of a session, in the order of [`PlanContext::states`]; shapes are constants.
    pub states: Slice<TensorDesc>,
    /// Entry points.
    pub entries: Slice<EntryDesc>,
    /// Messages of run-time errors; [`Fail`] takes an index into this table.
    pub sites: Slice<SiteDesc>,
    /// The code, best first; the first variant that the processor or GPU supports is used.
    pub variants: Slice<VariantDesc>,
}

// SAFETY: a descriptor is read-only data of the model.so, never written after relocation.
unsafe impl Sync for ModelDesc {}

/// The host program of a call: launches kernels in order. Returns 0, or the result of a failed
/// [`Launch`].
pub type Plan = unsafe extern "C" fn(ctx: *mut PlanContext) -> i32;

/// A kernel: computes the grid points `start..end` of its launch. `args` was passed by the plan to
/// [`Launch`]; `scratch` and `ctx`, a copy of the plan's context, belong to the worker. A kernel
/// may call [`PlanContext::fail`], and then continues or returns; either way it must not access
/// memory out of bounds. It must not launch. Its results must not depend on how the grid is split
/// into ranges.
pub type Kernel = unsafe extern "C" fn(args: *const u64, start: i64, end: i64, scratch: *mut u8, ctx: *mut PlanContext);

/// Runs a kernel over the grid points `0..total`, in parallel where that is profitable, and returns
/// when all are done: 0, or non-zero after a failure, which the plan must return at once. `total <=
/// 0` does nothing. Each launch may poll the caller of the entry point on whether to continue; a
/// launch with null `args` only does that, whatever `kernel` is, and is not timed.
///
/// Two hints, which never affect results: the kernel's buffers have `bytes` bytes in total; and
/// `next_bytes` bytes of packed weights starting at `next` will be read by a later launch in the
/// order of its grid points (0 bytes if there is no such launch). If this launch reads the same
/// weights itself, the number is `-next_bytes`.
pub type Launch = unsafe extern "C" fn(
    ctx: *mut PlanContext,
    kernel: Kernel,
    args: *const u64,
    total: i64,
    bytes: i64,
    next: *const u8,
    next_bytes: i64,
) -> i32;

/// Reports a run-time error: `site` is an index into [`ModelDesc::sites`], `a`, `b`, `c` the values
/// for its message.
/// The first report of a call is kept (with several workers: that of the lowest grid points).
pub type Fail = unsafe extern "C" fn(ctx: *mut PlanContext, site: i64, a: i64, b: i64, c: i64);

/// The context of a call, for generated code. Fields in this order, 8 bytes each; offsets are in
/// [`context`].
///
/// Arguments, results and taps are row-major, contiguous, and aligned at least to their element's
/// size (on a GPU to 16 bytes); arena, scratch, packed weights and states are aligned to 64 bytes,
/// parameters to their element's size. Integer indices in arguments are *not* checked: generated
/// code checks them, and reports through `fail`. A `bool` byte is 0 or 1.
#[repr(C)]
pub struct PlanContext {
    /// Values of the entry's run-time dimensions, including the flattened batch.
    pub dims: *const i64,
    /// Data of each argument.
    pub args: *const *const u8,
    /// Data of each result; every element must be written.
    pub outs: *const *mut u8,
    /// A table of tensors for each of [`ModelDesc::params`], row-major over the extents (one entry
    /// for a single tensor).
    pub params: *const *const *const u8,
    /// Three lists, each with one pointer per tap. Data, `[extents.., shape..]`; null if no element
    /// is requested. Flags, `[extents.., stacked..]`: zero bytes, to be set to 1 for written
    /// elements; null likewise. Requests, `[extents..]`: bytes that are 1 or 0, never null.
    /// Elements that are not requested are not written.
    pub taps: *const *mut u8,
    /// Memory for intermediate buffers.
    pub arena: *mut u8,
    /// Scratch of the plan, shared with worker 0.
    pub scratch: *mut u8,
    /// Packed weights: written by `prepare`, read-only otherwise.
    pub packed: *mut u8,
    /// Data of each state of the session.
    pub states: *const *mut u8,
    /// See [`Launch`].
    pub launch: Option<Launch>,
    /// See [`Fail`].
    pub fail: Option<Fail>,
    /// Non-zero once something has failed.
    pub failed: i64,
    /// The best access pattern for weights: 0 several pages at once; 1 in address order; 2 in
    /// address order, bypassing the caches, which hold at most a small part of them. Affects
    /// prefetching only, never results.
    pub in_order: i64,
    /// Reads from GPU memory; null where plans can load everything directly.
    pub read: Option<cuda::Read>,
    /// Reserved for the support library.
    pub runtime: *mut u8,
}

/// Offsets of the fields of [`PlanContext`] in bytes, for generated code.
pub mod context {
    /// Offset of `dims`.
    pub const DIMS: i32 = 0;
    /// Offset of `args`.
    pub const ARGS: i32 = 8;
    /// Offset of `outs`.
    pub const OUTS: i32 = 16;
    /// Offset of `params`.
    pub const PARAMS: i32 = 24;
    /// Offset of `taps`.
    pub const TAPS: i32 = 32;
    /// Offset of `arena`.
    pub const ARENA: i32 = 40;
    /// Offset of `scratch`.
    pub const SCRATCH: i32 = 48;
    /// Offset of `packed`.
    pub const PACKED: i32 = 56;
    /// Offset of `states`.
    pub const STATES: i32 = 64;
    /// Offset of `launch`.
    pub const LAUNCH: i32 = 72;
    /// Offset of `fail`.
    pub const FAIL: i32 = 80;
    /// Offset of `failed`.
    pub const FAILED: i32 = 88;
    /// Offset of `in_order`.
    pub const IN_ORDER: i32 = 96;
    /// Offset of `read`.
    pub const READ: i32 = 104;
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(offset_of!(PlanContext, dims) == context::DIMS as usize);
    assert!(offset_of!(PlanContext, args) == context::ARGS as usize);
    assert!(offset_of!(PlanContext, outs) == context::OUTS as usize);
    assert!(offset_of!(PlanContext, params) == context::PARAMS as usize);
    assert!(offset_of!(PlanContext, taps) == context::TAPS as usize);
    assert!(offset_of!(PlanContext, arena) == context::ARENA as usize);
    assert!(offset_of!(PlanContext, scratch) == context::SCRATCH as usize);
    assert!(offset_of!(PlanContext, packed) == context::PACKED as usize);
    assert!(offset_of!(PlanContext, states) == context::STATES as usize);
    assert!(offset_of!(PlanContext, launch) == context::LAUNCH as usize);
    assert!(offset_of!(PlanContext, fail) == context::FAIL as usize);
    assert!(offset_of!(PlanContext, failed) == context::FAILED as usize);
    assert!(offset_of!(PlanContext, in_order) == context::IN_ORDER as usize);
    assert!(offset_of!(PlanContext, read) == context::READ as usize);
    // The writer in descriptor.rs counts words; these are the sizes it must produce.
    assert!(size_of::<ExprOp>() == 16);
    assert!(size_of::<DimDesc>() == 32);
    assert!(size_of::<TensorDesc>() == 48);
    assert!(size_of::<ParamDesc>() == 56);
    assert!(size_of::<SymbolDesc>() == 48);
    assert!(size_of::<CheckDesc>() == 72);
    assert!(size_of::<TapDesc>() == 88);
    assert!(size_of::<EntryDesc>() == 144);
    assert!(size_of::<SiteDesc>() == 16);
    assert!(size_of::<PlanDesc>() == 56);
    assert!(size_of::<VariantDesc>() == 72);
    assert!(size_of::<ModelDesc>() == 160);
    // runtime.h declares it.
    assert!(size_of::<Head>() == 24);
};
