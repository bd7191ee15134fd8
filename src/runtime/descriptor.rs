//! The model descriptor: what the runtime must know about a model, as a plain value, and its
//! serialisation for `model.o`.
//!
//! In: a [`ModelDescriptor`] filled in by `codegen`. Out: a [`DescriptorImage`], one data object
//! with relocations, to be defined under [`abi::DESCRIPTOR_SYMBOL`](super::abi::DESCRIPTOR_SYMBOL)
//! in RELRO data, 8-aligned, with hidden visibility. Its layout is
//! [`ModelDesc`](super::abi::ModelDesc) of `abi.rs`.

use std::collections::BTreeMap;

use super::abi::{ABI_VERSION, cmp, elem, feature};
use super::cuda::Cuda;
use super::expr::Expr;
use super::link::SUPPORT_OBJECT;
use crate::shape::{Dim, Elem};

/// A dimension with its source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DimText {
    /// Its value, over the entry's run-time dimensions.
    pub dim: Dim,
    /// Its name in messages: `S`, `D / H`, or the number if it is a constant.
    pub text: String,
}

impl DimText {
    /// A dimension whose text is its canonical form.
    pub fn canonical(dim: Dim) -> DimText {
        DimText { text: dim.to_string(), dim }
    }
}

/// An argument, result or state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Name in the program; `result` (or `result.0`, `result.1`) for results.
    pub name: String,
    /// Element type.
    pub elem: Elem,
    /// Does the type begin with `..`?
    pub batch: bool,
    /// The axes after `..`.
    pub dims: Vec<DimText>,
}

/// A family of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name in the weights file, `*` for each index into an array of layers.
    pub pattern: String,
    /// Number of indices for each `*`.
    pub extents: Vec<u64>,
    /// Element type.
    pub elem: Elem,
    /// Shape of each tensor; all constants.
    pub dims: Vec<DimText>,
}

/// A run-time dimension, bound by `scale * symbol + offset` = the extent of `args[arg].dims[axis]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name in the entry's [`Dim`]s.
    pub name: String,
    /// Its name in messages; nearly always the same as `name`.
    pub text: String,
    /// Index of the argument that binds it; for the batch symbol, of the first argument with `..`.
    pub arg: usize,
    /// Index of the axis (after `..`) that binds it; ignored for the batch symbol.
    pub axis: usize,
    /// At least 1.
    pub scale: i64,
    /// May be negative.
    pub offset: i64,
}

/// Comparison of a [`Check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`.
    Eq,
    /// `!=`.
    Ne,
    /// `<`.
    Lt,
    /// `<=`.
    Le,
    /// `>`.
    Gt,
    /// `>=`.
    Ge,
}

/// A `where` clause to check at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Left side.
    pub left: Expr,
    /// Comparison.
    pub comparison: Comparison,
    /// Right side.
    pub right: Expr,
    /// Source text: `S <= T`.
    pub text: String,
    /// Source location of the clause, or of what requires it: `model.attn:3:9`; empty if unknown.
    pub place: String,
}

/// A family of taps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Name, `*` for each index into an array of layers.
    pub pattern: String,
    /// Number of indices for each `*`.
    pub extents: Vec<u64>,
    /// Element type.
    pub elem: Elem,
    /// Does each element begin with the flattened batch?
    pub batch: bool,
    /// Shape of each element, after the batch.
    pub dims: Vec<DimText>,
    /// The number of leading `dims` that are loops over time.
    pub stacked: usize,
    /// The cost of requesting it; may be empty.
    pub cost: String,
}

/// The interface of an entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: String,
    /// Doc comment.
    pub doc: String,
    /// Signature as in the source: `forward(tokens: i32[S]) -> f32[S, V] where S <= T`.
    pub signature: String,
    /// Run-time dimensions, in the order of the context's `dims`.
    pub symbols: Vec<Symbol>,
    /// Index in `symbols` of the flattened batch.
    pub batch_symbol: Option<usize>,
    /// Arguments.
    pub args: Vec<Tensor>,
    /// Conditions that a call checks on entry.
    pub checks: Vec<Check>,
    /// Results.
    pub results: Vec<Tensor>,
    /// Taps.
    pub taps: Vec<Tap>,
    /// Does a call change states of the session?
    pub sets_states: bool,
}

/// The compiled code of one entry in one variant; functions are named by their symbols in
/// `model.o`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanCode {
    /// Function of type [`abi::Plan`](super::abi::Plan).
    pub plan: String,
    /// The variant with taps.
    pub tapped: Option<String>,
    /// Bytes of arena.
    pub arena: Expr,
    /// Bytes of arena with taps.
    pub tapped_arena: Expr,
    /// Bytes of scratch per worker.
    pub scratch: u64,
}

/// All code for one instruction set or GPU architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name: `portable`, `avx2`.
    pub name: String,
    /// Bits of [`abi::feature`](super::abi::feature).
    pub features: u64,
    /// Function that packs weights when the model is opened.
    pub prepare: Option<String>,
    /// Size of the packed weights.
    pub packed_bytes: u64,
    /// One for each entry.
    pub plans: Vec<PlanCode>,
    /// The GPU part, if the kernels are for NVIDIA GPUs.
    pub cuda: Option<Cuda>,
}

/// Everything the runtime must know about a model.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ModelDescriptor {
    /// Name.
    pub name: String,
    /// Distinguishes builds: [`id_of`] what was compiled.
    pub id: u64,
    /// Doc comment.
    pub doc: String,
    /// Target triple.
    pub target: String,
    /// Parameters.
    pub params: Vec<Param>,
    /// States.
    pub states: Vec<Tensor>,
    /// Entry points.
    pub entries: Vec<Entry>,
    /// Messages of run-time errors, with `{0}`, `{1}`, `{2}` for values; generated code refers to
    /// them by index.
    pub sites: Vec<String>,
    /// Code, best first.
    pub variants: Vec<Variant>,
}

/// [`ModelDescriptor::id`]: a hash (64-bit FNV-1a) of everything that determines the behaviour of a
/// library, and of nothing else: the model's description, without code; the compiled programs; the
/// code generation options; and this compiler. So a library, its header and its wrapper have the
/// same id whether they are written together or separately.
pub fn id_of(model: &ModelDescriptor, programs: &[Vec<u8>], options: &str) -> u64 {
    let description = format!("{model:?}");
    let own = [env!("CARGO_PKG_VERSION").as_bytes(), SUPPORT_OBJECT, options.as_bytes(), description.as_bytes()];
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for part in own.into_iter().chain(programs.iter().map(Vec::as_slice)) {
        for byte in (part.len() as u64).to_le_bytes().iter().chain(part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

impl ModelDescriptor {
    /// A unique part of the symbols of this model's library: the name in lower case, and the id.
    pub fn symbol(&self) -> String {
        format!("{}_{:016x}", snake_case(&self.name), self.id)
    }
}

/// Replaces everything except letters, digits and `_` by `_`.
pub(super) fn word(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

/// `MiniLm` as `mini_lm`: the prefix of a model's functions.
pub(super) fn snake_case(name: &str) -> String {
    let mut out = String::new();
    let mut before = '_';
    for c in word(name).chars() {
        if c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
        before = c;
    }
    if out.is_empty() || out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert_str(0, "model");
    }
    out
}

/// Where a relocation of the descriptor points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An offset in the descriptor itself.
    Own(u64),
    /// A function of `model.o`, by its symbol.
    Function(String),
}

/// An 8-byte absolute address to be written at `offset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Offset in the image.
    pub offset: u64,
    /// The address to store.
    pub target: Target,
}

/// The descriptor as one data object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorImage {
    /// Contents; zero at relocations.
    pub bytes: Vec<u8>,
    /// In order of `offset`.
    pub relocations: Vec<Relocation>,
}

/// Alignment of the data object.
pub const ALIGN: u64 = 8;

/// The code of an element type in the descriptor.
pub fn elem_code(e: Elem) -> u64 {
    match e {
        Elem::F32 => elem::F32,
        Elem::BF16 => elem::BF16,
        Elem::F16 => elem::F16,
        Elem::I8 => elem::I8,
        Elem::I32 => elem::I32,
        Elem::I64 => elem::I64,
        Elem::Bool => elem::BOOL,
    }
}

/// The features of an instruction set, one of [`abi::level::NAMES`](super::abi::level::NAMES);
/// `None` for an unknown name.
pub fn features_of(level: &str) -> Option<u64> {
    match level {
        "portable" => Some(0),
        "avx2" => Some(feature::SSE42 | feature::AVX2 | feature::FMA),
        "avx2vnni" => Some(features_of("avx2")? | feature::AVX_VNNI),
        "avx512" => Some(feature::SSE42 | feature::AVX2 | feature::FMA | feature::AVX512),
        "avx512bf16" => Some(features_of("avx512")? | feature::AVX512_BF16),
        "amx" => Some(features_of("avx512bf16")? | feature::AMX_BF16),
        _ => None,
    }
}

/// Serialises the descriptor.
///
/// # Errors
/// An inconsistent descriptor, which is an internal error of the compiler.
pub fn serialise(model: &ModelDescriptor) -> Result<DescriptorImage, String> {
    let mut w = Writer::default();
    w.model(model)?;
    Ok(w.finish())
}

/// Writes tables top down: the rows of a table are reserved first, then its nested tables follow.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    relocations: BTreeMap<u64, Target>,
    /// Offset of each distinct string in `text`.
    texts: BTreeMap<String, u64>,
    text: Vec<u8>,
    /// Offsets of string pointers, and the offsets in `text` they refer to.
    text_uses: Vec<(u64, u64)>,
}

/// Words (8 bytes) per row; `abi.rs` asserts the same sizes.
mod words {
    pub(super) const MODEL: u64 = 20;
    pub(super) const PARAM: u64 = 7;
    pub(super) const TENSOR: u64 = 6;
    pub(super) const DIM: u64 = 4;
    pub(super) const ENTRY: u64 = 18;
    pub(super) const SYMBOL: u64 = 6;
    pub(super) const CHECK: u64 = 9;
    pub(super) const TAP: u64 = 11;
    pub(super) const SITE: u64 = 2;
    pub(super) const VARIANT: u64 = 9;
    pub(super) const PLAN: u64 = 7;
    pub(super) const EXPR_OP: u64 = 2;
}

/// A cursor over the words of one row.
pub(super) struct Row(pub(super) u64);

impl Row {
    fn next(&mut self) -> u64 {
        let at = self.0;
        self.0 += 8;
        at
    }
}

impl Writer {
    fn reserve(&mut self, words: u64) -> u64 {
        let at = self.bytes.len() as u64;
        self.bytes.resize(self.bytes.len() + words as usize * 8, 0);
        at
    }

    pub(super) fn word(&mut self, row: &mut Row, value: u64) {
        let at = row.next() as usize;
        if let Some(place) = self.bytes.get_mut(at..at + 8) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }

    fn signed(&mut self, row: &mut Row, value: i64) {
        self.word(row, value.cast_unsigned());
    }

    fn function(&mut self, row: &mut Row, symbol: Option<&str>) {
        let at = row.next();
        if let Some(s) = symbol {
            self.relocations.insert(at, Target::Function(s.to_owned()));
        }
    }

    pub(super) fn str(&mut self, row: &mut Row, s: &str) {
        let place = match self.texts.get(s) {
            Some(p) => *p,
            None => {
                let p = self.text.len() as u64;
                self.text.extend_from_slice(s.as_bytes());
                self.text.push(0);
                self.texts.insert(s.to_owned(), p);
                p
            }
        };
        self.text_uses.push((row.next(), place));
        self.word(row, s.len() as u64);
    }

    /// Reserves a table of `len` rows and writes its `Slice` into `row`.
    pub(super) fn table(&mut self, row: &mut Row, len: usize, words: u64) -> u64 {
        let start = self.reserve(len as u64 * words);
        self.relocations.insert(row.next(), Target::Own(start));
        self.word(row, len as u64);
        start
    }

    /// Writes bytes as a `Slice<u8>`.
    pub(super) fn bytes(&mut self, row: &mut Row, bytes: &[u8]) {
        let start = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.relocations.insert(row.next(), Target::Own(start));
        self.word(row, bytes.len() as u64);
    }

    pub(super) fn expr(&mut self, row: &mut Row, e: &Expr, symbols: usize, what: &str) -> Result<(), String> {
        if !e.is_well_formed(symbols) {
            return Err(format!("the expression of {what} is not well formed: {:?}", e.ops()));
        }
        let start = self.table(row, e.ops().len(), words::EXPR_OP);
        let mut r = Row(start);
        for o in e.ops() {
            self.signed(&mut r, o.op);
            self.signed(&mut r, o.value);
        }
        Ok(())
    }

    fn dims(&mut self, row: &mut Row, dims: &[DimText], symbols: &[String], what: &str) -> Result<(), String> {
        let start = self.table(row, dims.len(), words::DIM);
        let mut r = Row(start);
        for d in dims {
            let e = Expr::from_dim(&d.dim, symbols)
                .ok_or_else(|| format!("{what}: `{}` uses a dimension that nothing binds", d.dim))?;
            self.expr(&mut r, &e, symbols.len(), what)?;
            self.str(&mut r, &d.text);
        }
        Ok(())
    }

    fn extents(&mut self, row: &mut Row, pattern: &str, extents: &[u64]) -> Result<(), String> {
        if pattern.matches('*').count() != extents.len() {
            return Err(format!("`{pattern}` has not as many `*` as extents ({})", extents.len()));
        }
        let start = self.table(row, extents.len(), 1);
        let mut r = Row(start);
        for e in extents {
            self.word(&mut r, *e);
        }
        Ok(())
    }

    fn tensors(&mut self, row: &mut Row, tensors: &[Tensor], symbols: &[String]) -> Result<(), String> {
        let start = self.table(row, tensors.len(), words::TENSOR);
        let mut r = Row(start);
        for t in tensors {
            self.str(&mut r, &t.name);
            self.word(&mut r, elem_code(t.elem));
            self.word(&mut r, u64::from(t.batch));
            self.dims(&mut r, &t.dims, symbols, &t.name)?;
        }
        Ok(())
    }

    fn entry(&mut self, r: &mut Row, e: &Entry) -> Result<(), String> {
        let names: Vec<String> = e.symbols.iter().map(|s| s.name.clone()).collect();
        if e.batch_symbol.is_some_and(|b| b >= names.len()) {
            return Err(format!("{}: no such batch symbol", e.name));
        }
        if e.batch_symbol.is_none() && (e.results.iter().any(|t| t.batch) || e.taps.iter().any(|t| t.batch)) {
            return Err(format!("{}: a batch that no argument binds", e.name));
        }
        self.str(r, &e.name);
        self.str(r, &e.doc);
        self.str(r, &e.signature);
        let start = self.table(r, e.symbols.len(), words::SYMBOL);
        let mut row = Row(start);
        for (i, s) in e.symbols.iter().enumerate() {
            let arg = e.args.get(s.arg).ok_or_else(|| format!("{}: {} is bound by no argument", e.name, s.name))?;
            let fits = if e.batch_symbol == Some(i) { arg.batch } else { s.axis < arg.dims.len() };
            if !fits || s.scale < 1 {
                return Err(format!("{}: {} is bound by no axis of {}", e.name, s.name, arg.name));
            }
            self.str(&mut row, &s.text);
            self.word(&mut row, s.arg as u64);
            self.word(&mut row, s.axis as u64);
            self.signed(&mut row, s.scale);
            self.signed(&mut row, s.offset);
        }
        self.signed(r, e.batch_symbol.map_or(-1, |b| b as i64));
        self.tensors(r, &e.args, &names)?;
        let start = self.table(r, e.checks.len(), words::CHECK);
        let mut row = Row(start);
        for c in &e.checks {
            self.expr(&mut row, &c.left, names.len(), &c.text)?;
            let code = match c.comparison {
                Comparison::Eq => cmp::EQ,
                Comparison::Ne => cmp::NE,
                Comparison::Lt => cmp::LT,
                Comparison::Le => cmp::LE,
                Comparison::Gt => cmp::GT,
                Comparison::Ge => cmp::GE,
            };
            self.word(&mut row, code);
            self.expr(&mut row, &c.right, names.len(), &c.text)?;
            self.str(&mut row, &c.text);
            self.str(&mut row, &c.place);
        }
        self.tensors(r, &e.results, &names)?;
        let start = self.table(r, e.taps.len(), words::TAP);
        let mut row = Row(start);
        for t in &e.taps {
            self.str(&mut row, &t.pattern);
            self.extents(&mut row, &t.pattern, &t.extents)?;
            self.word(&mut row, elem_code(t.elem));
            self.word(&mut row, u64::from(t.batch));
            self.dims(&mut row, &t.dims, &names, &t.pattern)?;
            self.word(&mut row, t.stacked as u64);
            self.str(&mut row, &t.cost);
        }
        self.word(r, u64::from(e.sets_states));
        Ok(())
    }

    fn variant(&mut self, r: &mut Row, v: &Variant, entries: &[Entry]) -> Result<(), String> {
        if v.plans.len() != entries.len() {
            return Err(format!("variant {}: {} plans for {} entries", v.name, v.plans.len(), entries.len()));
        }
        self.str(r, &v.name);
        self.word(r, v.features);
        self.function(r, v.prepare.as_deref());
        self.word(r, v.packed_bytes);
        let start = self.table(r, v.plans.len(), words::PLAN);
        let mut row = Row(start);
        for (p, e) in v.plans.iter().zip(entries) {
            if p.tapped.is_none() && !e.taps.is_empty() {
                return Err(format!("variant {}: {} has taps and no plan for them", v.name, e.name));
            }
            self.function(&mut row, Some(&p.plan));
            self.function(&mut row, p.tapped.as_deref());
            self.expr(&mut row, &p.arena, e.symbols.len(), "an arena")?;
            self.expr(&mut row, &p.tapped_arena, e.symbols.len(), "an arena")?;
            self.word(&mut row, p.scratch);
        }
        self.cuda(r, v.cuda.as_ref())
    }

    fn model(&mut self, m: &ModelDescriptor) -> Result<(), String> {
        let start = self.reserve(words::MODEL);
        let mut r = Row(start);
        self.word(&mut r, ABI_VERSION);
        self.word(&mut r, m.id);
        self.str(&mut r, &m.name);
        self.str(&mut r, &m.doc);
        self.str(&mut r, &m.target);
        self.str(&mut r, &info_text(m));
        let start = self.table(&mut r, m.params.len(), words::PARAM);
        let mut row = Row(start);
        for p in &m.params {
            self.str(&mut row, &p.pattern);
            self.extents(&mut row, &p.pattern, &p.extents)?;
            self.word(&mut row, elem_code(p.elem));
            self.dims(&mut row, &p.dims, &[], &p.pattern)?;
        }
        self.tensors(&mut r, &m.states, &[])?;
        let start = self.table(&mut r, m.entries.len(), words::ENTRY);
        let mut row = Row(start);
        for e in &m.entries {
            self.entry(&mut row, e)?;
        }
        let start = self.table(&mut r, m.sites.len(), words::SITE);
        let mut row = Row(start);
        for s in &m.sites {
            self.str(&mut row, s);
        }
        if m.variants.is_empty() {
            return Err("a model without code".to_owned());
        }
        let start = self.table(&mut r, m.variants.len(), words::VARIANT);
        let mut row = Row(start);
        for v in &m.variants {
            self.variant(&mut row, v, &m.entries)?;
        }
        Ok(())
    }

    fn finish(mut self) -> DescriptorImage {
        let base = self.bytes.len() as u64;
        for (at, place) in self.text_uses {
            self.relocations.insert(at, Target::Own(base + place));
        }
        self.bytes.extend_from_slice(&self.text);
        let relocations = self.relocations.into_iter().map(|(offset, target)| Relocation { offset, target }).collect();
        DescriptorImage { bytes: self.bytes, relocations }
    }
}

/// First words of the summary inside the `.so`, so that `strings model.so` finds it.
pub const INFO_MARK: &str = "attnc model";

/// The human-readable summary: entry points with their signatures, parameters, targets.
pub fn info_text(m: &ModelDescriptor) -> String {
    let list = |dims: &[DimText]| dims.iter().map(|d| d.text.as_str()).collect::<Vec<_>>().join(", ");
    let mut out = format!("{INFO_MARK} {}, abi {ABI_VERSION}, {}\n", m.name, m.target);
    for v in &m.variants {
        out += &format!("variant {}\n", v.name);
    }
    for e in &m.entries {
        out += &format!("entry {}\n", e.signature);
        for t in &e.taps {
            out += &format!("  tap {}: {}[{}]\n", t.pattern, t.elem, list(&t.dims));
        }
    }
    for p in &m.params {
        let extents = p.extents.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let count = if extents.is_empty() { String::new() } else { format!(" ({extents})") };
        out += &format!("param {}: {}[{}]{count}\n", p.pattern, p.elem, list(&p.dims));
    }
    for s in &m.states {
        out += &format!("state {}: {}[{}]\n", s.name, s.elem, list(&s.dims));
    }
    out
}
