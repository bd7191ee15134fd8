//! Leaves of runs against the interpreter and against `f64`: kernels of runs are parsed, their
//! leaves are called in this process on memory that ends at a guard page, and the results are
//! compared.

mod dot;
mod emulator;
mod functions;
mod pairs;
mod random;
mod reading;
mod small;

use std::collections::BTreeMap;

use super::testing::Executable;
use super::{Word, run_leaf};
use crate::shape::{Dim, Elem};
use crate::source::SourceMap;
use crate::tile::interp::{Argument, run_kernel};
use crate::tile::{Cpu, Feature, Kernel, Op, Type, Value, text, verify};

unsafe extern "C" {
    fn mprotect(start: *mut u8, bytes: usize, allowed: i32) -> i32;
}

const PAGE: usize = 4096;
const CANARY: u8 = 0xa5;

/// Memory that ends at a guard page; the bytes before it are canaries.
struct Guarded {
    map: memmap2::MmapMut,
    start: usize,
    bytes: usize,
}

impl Guarded {
    fn new(content: &[u8]) -> Guarded {
        let size = (content.len() + 256).next_multiple_of(PAGE);
        let mut map = memmap2::MmapMut::map_anon(size + PAGE).expect("memory");
        let start = size - content.len();
        map[..start].fill(CANARY);
        map[start..size].copy_from_slice(content);
        // SAFETY: the page belongs to the mapping, and nothing in it is used.
        assert_eq!(unsafe { mprotect(map[size..].as_mut_ptr(), PAGE, 0) }, 0);
        Guarded { map, start, bytes: content.len() }
    }

    fn address(&mut self) -> u64 {
        self.map[self.start..].as_mut_ptr() as u64
    }

    /// The current content; asserts that nothing before it has changed.
    fn content(&self) -> &[u8] {
        assert!(self.map[..self.start].iter().all(|b| *b == CANARY), "bytes before a buffer were written");
        &self.map[self.start..self.start + self.bytes]
    }
}

/// A value while the single block of a kernel is interpreted.
#[derive(Clone)]
enum LeafOperand {
    Index(i64),
    Scalar(u64),
    Buffer(u64, Vec<i64>, Elem),
}

/// Parses the first kernel of a valid source.
fn kernel(source: &str) -> Kernel {
    let mut sources = SourceMap::new();
    let file = sources.add("run.tir", source);
    let parsed = text::parse(source, file)
        .unwrap_or_else(|d| panic!("{}\n{source}", crate::diagnostics::render_all(&d, &sources, false)));
    // Only the form is verified: there is no launch, and each test chooses its parameters.
    verify::verify_form(&parsed.module).unwrap_or_else(|e| panic!("{e}\n{source}"));
    parsed.module.kernels.into_iter().next().expect("a kernel")
}

/// Runs the leaves of a kernel's runs; returns the final arguments, or `None` if this machine
/// cannot run them. `leaves` receives the listings.
fn run_leaves(
    k: &Kernel,
    level: Cpu,
    symbols: &BTreeMap<String, i64>,
    args: &[Argument],
    leaves: &mut dyn FnMut(&str),
) -> Option<Vec<Argument>> {
    let dim = |d: &Dim| d.eval(&|s| symbols.get(s).copied()).expect("a dimension");
    let mut memory: Vec<Option<Guarded>> = Vec::new();
    let mut values: BTreeMap<Value, LeafOperand> = BTreeMap::new();
    for (p, a) in k.params.iter().zip(args) {
        match (k.body.ty(p.value), a) {
            (Type::Buffer(ty), Argument::Buffer(bytes)) => {
                let mut guarded = Guarded::new(bytes);
                let strides = ty.strides.iter().map(dim).collect();
                values.insert(p.value, LeafOperand::Buffer(guarded.address(), strides, ty.elem));
                memory.push(Some(guarded));
            }
            (_, Argument::Index(n)) => {
                values.insert(p.value, LeafOperand::Index(*n));
                memory.push(None);
            }
            _ => panic!("an argument does not fit"),
        }
    }
    let mut scratch = vec![CANARY; usize::try_from(k.scratch).expect("a size") + 192];
    let at = scratch.as_ptr().align_offset(64) + 64;
    let scratch_address = scratch[at..].as_mut_ptr() as u64;
    let mut can_run = true;
    for i in &k.body.block(k.body.entry()).insts {
        let data = k.body.inst(*i);
        match &data.op {
            Op::Const(s) => {
                let v = data.result.expect("a constant");
                let x = match k.body.ty(v) {
                    Type::Index => LeafOperand::Index(s.as_i64()),
                    Type::Scalar(Elem::F32) => LeafOperand::Scalar(u64::from((s.as_f64() as f32).to_bits())),
                    Type::Scalar(Elem::Bool) => LeafOperand::Scalar(u64::from(s.as_f64() != 0.0)),
                    _ => LeafOperand::Scalar(u64::from((s.as_i64() as i32).cast_unsigned())),
                };
                values.insert(v, x);
            }
            Op::Run { rows, cols, insts } => {
                let leaf = run_leaf(level, &k.body, *rows, *cols, insts)
                    .unwrap_or_else(|e| panic!("{e:?}:\n{}", text::print_kernel(k, &[])));
                leaves(&super::testing::listing(&leaf.code, &Vec::new()));
                let index = |v: &Value| match values.get(v) {
                    Some(LeafOperand::Index(n)) => *n,
                    _ => panic!("{v} is not an index"),
                };
                let words: Vec<u64> = leaf
                    .words
                    .iter()
                    .map(|w| match w {
                        Word::Index(v) => index(v).cast_unsigned(),
                        Word::Scalar(v) => match values.get(v) {
                            Some(LeafOperand::Scalar(x)) => *x,
                            _ => panic!("{v} is not a scalar"),
                        },
                        Word::Address { buffer, indices } => {
                            let Some(LeafOperand::Buffer(start, strides, elem)) = values.get(buffer) else {
                                panic!("no buffer")
                            };
                            let at: i64 = indices.iter().map(index).zip(strides).map(|(i, s)| i * s).sum();
                            start.wrapping_add_signed(at * i64::try_from(elem.size()).expect("a size"))
                        }
                        Word::StrideBytes { buffer, axis } => {
                            let Some(LeafOperand::Buffer(_, strides, elem)) = values.get(buffer) else {
                                panic!("no buffer")
                            };
                            (strides[*axis] * i64::try_from(elem.size()).expect("a size")).cast_unsigned()
                        }
                        Word::Scratch => scratch_address,
                    })
                    .collect();
                match Executable::new(level, &leaf.code) {
                    // SAFETY: the words are the arguments that the leaf expects, and the kernel is
                    // verified.
                    Some(e) => unsafe { e.call(&words) },
                    None => can_run = false,
                }
            }
            _ => panic!("only constants and runs are expected"),
        }
    }
    let (before, after) = (&scratch[..at], &scratch[at + usize::try_from(k.scratch).expect("a size")..]);
    assert!(before.iter().chain(after).all(|b| *b == CANARY), "bytes around the scratch were written");
    let out =
        memory.into_iter().zip(args).map(|(m, a)| m.map_or(a.clone(), |m| Argument::Buffer(m.content().to_vec())));
    can_run.then(|| out.collect())
}

/// Are two elements the same: the same bits, or both NaN, or both zero?
fn same(elem: Elem, a: &[u8], b: &[u8]) -> bool {
    let float = |x: &[u8]| match elem {
        Elem::F32 => f32::from_le_bytes(x.try_into().expect("4 bytes")),
        Elem::BF16 => half::bf16::from_le_bytes(x.try_into().expect("2 bytes")).to_f32(),
        _ => half::f16::from_le_bytes(x.try_into().expect("2 bytes")).to_f32(),
    };
    a == b || elem.is_float() && (float(a) == float(b) || float(a).is_nan() && float(b).is_nan())
}

/// Is one 0 and the other, of the same sign, a subnormal, or rounded up from one? The rounding
/// instruction flushes them.
fn is_subnormal(elem: Elem, rounded: &[u8], exact: &[u8]) -> bool {
    let bits = |x: &[u8]| x.try_into().map(u16::from_le_bytes);
    let (Ok(rounded), Ok(exact)) = (bits(rounded), bits(exact)) else { return false };
    elem == Elem::BF16 && rounded == exact & 0x8000 && exact & 0x7fff <= 0x0080
}

/// Runs a kernel as leaves of both widths and in the interpreter; asserts that all buffers are
/// equal.
fn check(source: &str, symbols: &[(&str, i64)], args: &[Argument]) {
    let k = kernel(source);
    let symbols: BTreeMap<String, i64> = symbols.iter().map(|(s, n)| ((*s).to_string(), *n)).collect();
    let mut want = args.to_vec();
    run_kernel(&k, &symbols, &mut want, crate::interp::Limits::default())
        .unwrap_or_else(|e| panic!("{}\n{source}", e.message));
    for level in [Cpu::AVX512_BF16, Cpu::AVX512, Cpu::AVX2] {
        let mut listings = String::new();
        let Some(got) = run_leaves(&k, level, &symbols, args, &mut |l| listings.push_str(l)) else { continue };
        for ((p, got), want) in k.params.iter().zip(&got).zip(&want) {
            let (Type::Buffer(ty), Argument::Buffer(got), Argument::Buffer(want)) = (k.body.ty(p.value), got, want)
            else {
                continue;
            };
            let size = usize::try_from(ty.elem.size()).expect("a size");
            for (n, (x, y)) in got.chunks(size).zip(want.chunks(size)).enumerate() {
                assert!(
                    same(ty.elem, x, y) || level.has(Feature::Bf16) && is_subnormal(ty.elem, x, y),
                    "{}: element {n} of {} is {x:x?}, not {y:x?}; arguments {:?}\n{source}\n{listings}",
                    level.name(),
                    k.body.name(p.value),
                    args.iter().filter(|a| matches!(a, Argument::Index(_))).collect::<Vec<_>>(),
                );
            }
        }
    }
}

/// Bytes of floats.
fn floats(xs: impl IntoIterator<Item = f32>) -> Argument {
    Argument::Buffer(xs.into_iter().flat_map(f32::to_le_bytes).collect())
}
