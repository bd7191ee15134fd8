//! The layout of what a compiled model hands to the support library: the model descriptor, and the context of a call.
//!
//! The compiler writes a [`ModelDesc`] into `model.o` (as bytes and relocations, see `descriptor.rs`) under the symbol
//! [`DESCRIPTOR_SYMBOL`]; the support library, linked into the same `model.so`, reads it. This file is compiled into
//! both, so it uses only `core` and knows of nothing else.
//!
//! Every field is 8 bytes wide and 8-aligned, so that the layout has no padding and is the same for every 64-bit target.

#![allow(dead_code, reason = "the compiler and the support library each use their half")]

#[path = "abi_cuda.rs"]
pub mod cuda;

/// Version of everything in this file and of the exported C functions; a change of meaning raises it.
pub const ABI_VERSION: u64 = 7;

/// Arguments of more bytes than 2 to this power are refused (zero extents counted as ones): no machine addresses them. The
/// compiler proves from it that other sizes fit 64 bits.
pub const ADDRESS_BITS: u32 = 47;

/// Name of the [`ModelDesc`] in `model.o`; hidden, so that it never leaves the `.so`.
pub const DESCRIPTOR_SYMBOL: &str = "attnc_model_descriptor";

/// The function that every `model.so` exports, to be looked up in one library (`dlsym`): gives its [`Functions`].
pub const LIBRARY_SYMBOL: &str = "attnc_library";

/// Begins the name under which programs are linked with a model: `attnc_library_gpt2_0123456789abcdef` is the same function as
/// [`LIBRARY_SYMBOL`], in that model's library alone. What follows is the model's name and [`ModelDesc::id`].
pub const LIBRARY_PREFIX: &str = "attnc_library_";

/// Begins the name of an object in `model.o` whose rest is what follows [`LIBRARY_PREFIX`]; the linker gets it from there.
pub const NAME_PREFIX: &str = "attnc_name_";

/// The functions of the interface in the order of [`Functions`]. `runtime.h` declares each under its name, as a member of
/// `attnc_functions` and, with `attnc_` before it, for programs.
pub const FUNCTIONS: [&str; 62] = [
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
];

/// What a library gives of itself: all its functions. Nothing of them is exported by name, because the names are the same in
/// every library, and a linker would bind all uses to the first.
#[repr(C)]
pub struct Functions {
    /// [`ABI_VERSION`] of the library.
    pub abi_version: u64,
    /// [`FUNCTIONS`], of the types that `runtime.h` declares.
    pub functions: [*const (); FUNCTIONS.len()],
}

// SAFETY: addresses of functions, never written.
unsafe impl Sync for Functions {}

/// Marks of live handles, by their kind. What was closed has another mark, as far as can be known.
pub mod mark {
    /// A model.
    pub const MODEL: u64 = 0x6174_746e_6d6f_6431;
    /// A session.
    pub const SESSION: u64 = 0x6174_746e_7365_7331;
    /// The taps of a call.
    pub const TAPS: u64 = 0x6174_746e_7461_7031;
}

/// How every handle begins, so that a program finds the library that it came from.
#[repr(C)]
pub struct Head {
    /// One of [`mark`]; 0 once it is closed.
    pub mark: core::sync::atomic::AtomicU64,
    /// The library's functions.
    pub functions: *const Functions,
    /// [`ModelDesc::id`].
    pub model: u64,
}

/// The entry point that no model has: what a typed function of `model.h` asks for where the session is another model's.
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

/// UTF-8 text: `len` bytes at `ptr`, then a NUL that is not counted. An empty text points to its NUL too.
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

/// Operations of a dimension expression, in postfix order on a stack of `i64`; each that overflows is an error.
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
    /// Operands that an expression may need at the same time.
    pub const STACK: usize = 32;
}

/// One step of a dimension expression.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExprOp {
    /// One of [`op`].
    pub op: i64,
    /// The constant of `CONST`, the index of `SYMBOL`, else 0.
    pub value: i64,
}

/// A dimension as the program spells it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DimDesc {
    /// Its value; a single constant where it was bound when the model was compiled.
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
    /// 1 where the type begins with `..`: any number of leading axes, flattened into [`EntryDesc::batch_symbol`].
    pub batch: u64,
    /// The axes after those of `..`.
    pub dims: Slice<DimDesc>,
}

/// A family of parameters: one tensor, or one for each index into arrays of layers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ParamDesc {
    /// Name in the weights file; each `*` stands for an index: `h.*.ln_1.weight`.
    pub pattern: Str,
    /// How many indices each `*` has, outermost first; empty for a single tensor.
    pub extents: Slice<u64>,
    /// Element type, one of [`elem`].
    pub elem: u64,
    /// Shape of each tensor of the family: constants.
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
    /// Index into that argument's [`TensorDesc::dims`]; not looked at for the batch symbol.
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
    /// Where it is stated, or what needs it: `model.attn:3:9`; empty where that is not known.
    pub place: Str,
}

/// A family of taps of an entry point.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TapDesc {
    /// Name; each `*` stands for an index: `h.*.attn.weights`.
    pub pattern: Str,
    /// How many indices each `*` has, outermost first. The buffer of the tap holds them all, stacked in this order.
    pub extents: Slice<u64>,
    /// Element type, one of [`elem`].
    pub elem: u64,
    /// 1 where each element begins with the flattened batch.
    pub batch: u64,
    /// Shape of each element, after the batch.
    pub dims: Slice<DimDesc>,
    /// How many of `dims` come first that are loops over time, one step of which writes each element.
    pub stacked: u64,
    /// What asking for it costs, as one line for the reader; may be empty.
    pub cost: Str,
}

/// What an entry point looks like from outside.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EntryDesc {
    /// Name: `forward`.
    pub name: Str,
    /// Doc comment.
    pub doc: Str,
    /// Signature as the program spells it.
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
    /// 1 where a call changes what the session keeps.
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
    /// Bytes of scratch that a kernel of either needs, for each worker, 64-aligned.
    pub scratch: u64,
}

/// Bits of [`VariantDesc::features`]: what a processor must have.
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
    /// AMX tiles and their products of BF16. Before its code runs, the process must have asked the system for tiles.
    pub const AMX_BF16: u64 = 1 << 6;
    /// AVX-VNNI: sums of products of bytes in 256 bits.
    pub const AVX_VNNI: u64 = 1 << 7;
}

/// Instruction set levels: names of variants that `ATTNC_CPU` may name.
pub mod level {
    /// Every level, the lowest first.
    pub const NAMES: [&str; 6] = ["portable", "avx2", "avx2vnni", "avx512", "avx512bf16", "amx"];
}

/// All code of the model for one tier of processors.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VariantDesc {
    /// Name for the reader: `avx2`.
    pub name: Str,
    /// Bits of [`feature`] that the processor must have, all of them.
    pub features: u64,
    /// Run once when a model is opened, with `params` and `packed` set: packs weights; null where nothing is packed.
    pub prepare: Option<Plan>,
    /// Bytes of [`PlanContext::packed`], 64-aligned.
    pub packed_bytes: u64,
    /// One for each of [`ModelDesc::entries`].
    pub entries: Slice<PlanDesc>,
    /// One row where the kernels are for NVIDIA GPUs, else none.
    pub cuda: Slice<cuda::CudaDesc>,
}

/// All that the support library knows of a model.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ModelDesc {
    /// [`ABI_VERSION`] of the compiler.
    pub abi_version: u64,
    /// Tells builds from each other: a hash of what was compiled.
    pub id: u64,
    /// Name of the model: `Gpt2`.
    pub name: Str,
    /// Doc comment of the model.
    pub doc: Str,
    /// What it was compiled for: `x86_64-unknown-linux-gnu`.
    pub target: Str,
    /// Everything above and below as text for a reader, see `attnc_info`.
    pub info: Str,
    /// Parameters, in the order of [`PlanContext::params`].
    pub params: Slice<ParamDesc>,
    /// What a session keeps between calls, in the order of [`PlanContext::states`]; shapes are constants.
    pub states: Slice<TensorDesc>,
    /// Entry points.
    pub entries: Slice<EntryDesc>,
    /// Errors at run time; [`Fail`] takes an index into this.
    pub sites: Slice<SiteDesc>,
    /// The code, best first; the first whose features the processor has is used, or that the GPU can run.
    pub variants: Slice<VariantDesc>,
}

// SAFETY: a descriptor is read-only data of the model.so, never written after relocation.
unsafe impl Sync for ModelDesc {}

/// The host program of a call: launches kernels in order. Returns 0, or what a failed [`Launch`] returned.
pub type Plan = unsafe extern "C" fn(ctx: *mut PlanContext) -> i32;

/// A kernel: does the grid points `start..end` of its launch. `args` is what the plan gave to [`Launch`], `scratch` the
/// worker's own; `ctx` is the worker's own copy of the plan's. May call [`PlanContext::fail`], and then goes on or
/// returns, without a wild read either way. Must not launch. What it writes must not depend on how the grid is cut
/// into ranges.
pub type Kernel = unsafe extern "C" fn(args: *const u64, start: i64, end: i64, scratch: *mut u8, ctx: *mut PlanContext);

/// Runs a kernel over the grid points `0..total`, in parallel where that pays, and returns when all are done:
/// 0, or non-zero once something has failed; the plan then returns that at once. `total <= 0` does nothing.
/// Each launch may ask the caller of the entry point whether to continue; one whose `args` is null does nothing else, whatever
/// `kernel` is, and is not timed.
///
/// Two hints, which never affect results: the buffers that the kernel is given have `bytes` bytes together; and from `next` on lie
/// `next_bytes` bytes of packed weights, which a later launch will read in the order of its grid points (0 bytes if none
/// will). Where this launch itself reads the same ones, the number is `-next_bytes`.
pub type Launch = unsafe extern "C" fn(
    ctx: *mut PlanContext,
    kernel: Kernel,
    args: *const u64,
    total: i64,
    bytes: i64,
    next: *const u8,
    next_bytes: i64,
) -> i32;

/// Reports an error at run time: `site` is an index into [`ModelDesc::sites`], `a`, `b`, `c` the values of its text.
/// The first report of a call is kept (with several workers: that of the lowest grid points).
pub type Fail = unsafe extern "C" fn(ctx: *mut PlanContext, site: i64, a: i64, b: i64, c: i64);

/// What generated code gets to see of a call. Fields in this order, 8 bytes each: see [`context`] for the offsets.
///
/// Arguments, results and taps are row-major, contiguous, and aligned to their element's size at least (on a GPU to 16 bytes); arena, scratch,
/// packed weights and states to 64 bytes. Parameters are aligned to their element's size. Integer indices among the
/// arguments are *not* checked: generated code does that, and reports through `fail`. A `bool` byte is 0 or 1.
#[repr(C)]
pub struct PlanContext {
    /// Values of the entry's run-time dimensions, the flattened batch among them.
    pub dims: *const i64,
    /// Data of each argument.
    pub args: *const *const u8,
    /// Data of each result, to be written in full.
    pub outs: *const *mut u8,
    /// For each of [`ModelDesc::params`] a table of tensors, row-major over the extents (one for a single tensor).
    pub params: *const *const *const u8,
    /// Data of each tap, `[extents.., shape..]`; null where nothing of it is requested. Then for each tap its flags,
    /// `[extents.., stacked..]`: bytes that are 0, to be set to 1 for what is written; null as above. Then for each tap
    /// what is requested, `[extents..]`: bytes that are 1 or 0, never null. What is not requested is not written.
    pub taps: *const *mut u8,
    /// Buffers between kernels.
    pub arena: *mut u8,
    /// Scratch of the plan itself, which is also that of worker 0.
    pub scratch: *mut u8,
    /// Packed weights of the model: written by `prepare`, else read only.
    pub packed: *mut u8,
    /// Data of each state of the session.
    pub states: *const *mut u8,
    /// See [`Launch`].
    pub launch: Option<Launch>,
    /// See [`Fail`].
    pub fail: Option<Fail>,
    /// Non-zero once something has failed.
    pub failed: i64,
    /// How weights are best read: 0 at several pages at once; 1 in the order of addresses; 2 in that order, and past the caches,
    /// which hold a small part of them at most. It affects what is prefetched, never results.
    pub in_order: i64,
    /// Reads what is in a GPU's memory; null where plans can load all that they read.
    pub read: Option<cuda::Read>,
    /// The runtime's own, not for generated code.
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
    // The writer in descriptor.rs counts words; these are what it must write.
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
