//! What the values of options may be: kinds of output, instruction sets, formats, names with numbers.
//!
//! In: a word of the command line. Out: the value it stands for, or what is wrong with it.

use clap::ValueEnum;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Something to write, with an optional path of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Emit {
    /// What.
    pub kind: EmitKind,
    /// Where, as in `ir=model.air`.
    pub path: Option<PathBuf>,
}

impl FromStr for Emit {
    type Err = String;

    fn from_str(text: &str) -> Result<Emit, String> {
        let (kind, path) = match text.split_once('=') {
            Some((_, "")) => return Err("a path must follow `=`".to_string()),
            Some((kind, path)) => (kind, Some(PathBuf::from(path))),
            None => (text, None),
        };
        let kind = EmitKind::ALL.into_iter().find(|known| known.name() == kind);
        let names = || EmitKind::ALL.map(EmitKind::name).join(", ");
        Ok(Emit { kind: kind.ok_or_else(|| format!("known are {}", names()))?, path })
    }
}

/// The kinds of output, in the order of the way through the compiler.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EmitKind {
    /// The tokens as the grammar reads them.
    Tokens,
    /// The syntax tree.
    Ast,
    /// The typed tree.
    Types,
    /// The graph IR after the pipeline.
    Ir,
    /// The graph IR as a picture for Graphviz.
    Dot,
    /// The tile IR.
    Tile,
    /// Cranelift's IR.
    Clif,
    /// Machine code as text.
    Asm,
    /// The object file before linking.
    Obj,
    /// The shared library.
    So,
    /// The C header.
    Header,
    /// The Python wrapper.
    Python,
}

impl EmitKind {
    /// Every kind, in the order of the way through the compiler.
    pub const ALL: [EmitKind; 12] = [
        EmitKind::Tokens,
        EmitKind::Ast,
        EmitKind::Types,
        EmitKind::Ir,
        EmitKind::Dot,
        EmitKind::Tile,
        EmitKind::Clif,
        EmitKind::Asm,
        EmitKind::Obj,
        EmitKind::So,
        EmitKind::Header,
        EmitKind::Python,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EmitKind::Tokens => "tokens",
            EmitKind::Ast => "ast",
            EmitKind::Types => "types",
            EmitKind::Ir => "ir",
            EmitKind::Tile => "tile",
            EmitKind::Clif => "clif",
            EmitKind::Asm => "asm",
            EmitKind::Obj => "obj",
            EmitKind::So => "so",
            EmitKind::Header => "header",
            EmitKind::Python => "python",
            EmitKind::Dot => "dot",
        }
    }

    /// The ending of its files.
    pub fn extension(self) -> &'static str {
        match self {
            EmitKind::Tokens => "tokens",
            EmitKind::Ast => "ast",
            EmitKind::Types => "types",
            EmitKind::Ir => "air",
            EmitKind::Tile => "tir",
            EmitKind::Clif => "clif",
            EmitKind::Asm => "s",
            EmitKind::Obj => "o",
            EmitKind::So => "so",
            EmitKind::Header => "h",
            EmitKind::Python => "py",
            EmitKind::Dot => "dot",
        }
    }

    /// True for kinds that a terminal can show.
    pub fn is_text(self) -> bool {
        !matches!(self, EmitKind::Obj | EmitKind::So)
    }
}

/// `NAME=VALUE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named<T> {
    /// Before `=`.
    pub name: String,
    /// After `=`.
    pub value: T,
}

impl<T: FromStr<Err: fmt::Display>> FromStr for Named<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Named<T>, String> {
        let (name, value) = text.split_once('=').ok_or("the form is NAME=VALUE")?;
        let (name, value) = (name.trim(), value.trim());
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            return Err(format!("`{name}` is not a name"));
        }
        let value = value.parse().map_err(|error| format!("`{value}`: {error}"))?;
        Ok(Named { name: name.to_string(), value })
    }
}

/// The machines that programs are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Target {
    /// The processor
    Cpu,
}

/// What runs a program under `attnc run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Backend {
    /// The graph IR's interpreter
    Interp,
    /// Compiled code
    Cpu,
    /// Code compiled through LLVM; only if attnc is built with it (cargo feature `llvm`)
    Llvm,
}

/// What makes the machine code of kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CodeBackend {
    /// Cranelift, and leaf functions of attnc's own
    Cranelift,
    /// LLVM; only if attnc is built with it (cargo feature `llvm`)
    Llvm,
}

/// Levels of processors, by what they have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CpuTier {
    /// Every processor of the architecture
    Portable,
    /// x86-64 with AVX2 and FMA
    Avx2,
    /// The same, with its sums of products of bytes (AVX-VNNI)
    Avx2vnni,
    /// x86-64 with AVX-512
    Avx512,
    /// The same, with its products of bf16
    Avx512bf16,
    /// x86-64 with AVX-512 and tiles of bf16 (AMX)
    Amx,
    /// aarch64, whose vectors are NEON's; on other machines as an object or text only
    Neon,
}

impl CpuTier {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CpuTier::Portable => "portable",
            CpuTier::Avx2 => "avx2",
            CpuTier::Avx2vnni => "avx2vnni",
            CpuTier::Avx512 => "avx512",
            CpuTier::Avx512bf16 => "avx512bf16",
            CpuTier::Amx => "amx",
            CpuTier::Neon => "neon",
        }
    }
}

/// What packed weights are kept as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum WeightPacking {
    /// As they are
    F32,
    /// The nearest bf16
    Bf16,
    /// Whole numbers of 8 bits, a scale for each 32
    Int8,
    /// Whole numbers of 4 bits, a scale for each 32
    Int4,
}

impl WeightPacking {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            WeightPacking::F32 => "f32",
            WeightPacking::Bf16 => "bf16",
            WeightPacking::Int8 => "int8",
            WeightPacking::Int4 => "int4",
        }
    }
}

/// Which changes of rounding are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FloatMode {
    /// None
    Strict,
    /// Fused multiply-add, reassociation inside one reduction, and the named rewrites of attention and norms
    Contract,
    /// Whatever is true of real numbers
    Fast,
}

/// Forms of `--print-changed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PrintChanged {
    /// The whole IR
    Whole,
    /// The lines that differ
    Diff,
}

/// When messages are coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Colour {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
