//! PTX loops that measure a GPU, and do nothing else.
//!
//! In: nothing. Out: a [`Module`] for all GPUs, and one for Hopper. All kernels have the same
//! parameters (see [`Loop::new`]). `steps` is the number of steps; at the end a sum is compared
//! with `never`, a value that no sum has, and written to `out` if they are equal, so that the
//! assembler cannot remove the work. Operands have random bits, as in models. It must not know how
//! kernels are launched.

use crate::ptx::words::{
    Columns, Compare, Ftz, Half, LoadCache, Mma, Relu, Round, Sat, StoreCache, Vector, Wgmma as WgmmaKind,
};
use crate::ptx::{
    Address, Base, Kernel, Module, Op, Operand, Param, ParamType, Reg, RegType, Shared, Special, Target, Threads, Type,
    Version,
};

/// Threads per block: where warps work independently, and where warpgroups do.
pub(super) const THREADS: u32 = 256;
pub(super) const GROUP: u32 = 128;
/// Multiply-adds per thread and step of `fma`, which is the number of independent sums.
pub(super) const FMAS: u32 = 64;
const SUMS: u32 = 16;
/// Tensor core instructions per step.
pub(super) const PRODUCTS: u32 = 8;
/// 16-byte loads per thread and step.
pub(super) const LOADS: u32 = 4;
/// Shared memory for the tiles of a `wgmma`: 64 rows and 256 columns of 128 bytes.
const TILES: u32 = (64 + 256) * 128;
/// Constant part of the tiles' matrix descriptor: 8 rows in 1024 bytes, 128-byte swizzle.
const SWIZZLED: i64 = 1 << 62 | 64 << 32 | 1 << 16;

/// How random bits become numbers: an AND mask and an OR mask. The results have either sign and a
/// magnitude near 1.
#[derive(Clone, Copy)]
struct Bits {
    kept: i64,
    set: i64,
}

/// Two `bf16` per register, and one `tf32`.
const BF16: Bits = Bits { kept: 0x80ff_807f, set: 0x3f00_3f00 };
const TF32: Bits = Bits { kept: 0x807f_e000, set: 0x3f00_0000 };

/// The loops that run on all GPUs.
pub(super) fn common() -> Module {
    let kernels =
        vec![fma(), products("tensor", Mma::F32Bf16K16, BF16), products("tensor_tf32", Mma::F32Tf32K8, TF32), read()];
    Module { kernels, ..Module::new() }
}

/// The loops with Hopper's own instructions.
pub(super) fn hopper() -> Module {
    let kernels = vec![
        group_products("tensor_hopper", WgmmaKind::F32Bf16, BF16),
        group_products("tensor_hopper_tf32", WgmmaKind::F32Tf32, TF32),
    ];
    Module { version: Version(8, 0), target: Target::SM_90A, kernels, ..Module::new() }
}

/// `f32` multiply-adds.
fn fma() -> Kernel {
    let mut k =
        Loop::new("fma", THREADS, "Multiply-adds of f32 in each thread, on registers that do not wait for each other.");
    let (sums, x, y) = (k.regs("s", SUMS, Type::F32), k.reg("x", Type::F32), k.reg("y", Type::F32));
    k.set(x, Type::F32, Operand::F32((1.0 - 1.0 / 4096.0_f32).to_bits()));
    k.set(y, Type::F32, Operand::F32(0.001_f32.to_bits()));
    k.clear(&sums);
    k.steps(|k| {
        let fma = Op::Fma { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, relu: Relu::No, ty: Type::F32 };
        for sum in sums.iter().cycle().take(FMAS as usize) {
            k.push(fma, [*sum, *sum, x, y].map(Operand::Reg));
        }
    });
    k.ends_with(&sums)
}

/// 16 x 8 tensor core matmuls, per warp.
fn products(name: &str, kind: Mma, bits: Bits) -> Kernel {
    let mut k = Loop::new(name, THREADS, "Products of 16 x 8 on tensor cores in each warp.");
    let (a, b) = (k.regs("a", 4, Type::B32), k.regs("b", 2, Type::B32));
    let sums = k.regs("s", 4 * PRODUCTS, Type::F32);
    let seed = k.reg("seed", Type::U32);
    k.set(seed, Type::U32, Operand::Special(Special::Tid(0)));
    for to in a.iter().chain(&b) {
        k.random(*to, seed, bits);
    }
    k.clear(&sums);
    k.steps(|k| {
        for four in sums.chunks(4) {
            let four = Operand::Vector(four.to_vec());
            k.push(Op::Mma { kind }, [four.clone(), Operand::Vector(a.clone()), Operand::Vector(b.clone()), four]);
        }
    });
    k.ends_with(&sums)
}

/// Reads `count` 16-byte pieces per step, bypassing the L1 cache.
fn read() -> Kernel {
    let mut k = Loop::new(
        "read",
        THREADS,
        "Reads all of the data in each step, several pieces of 16 bytes at a time in each thread.",
    );
    let all = k.regs("x", 4 * LOADS, Type::U32);
    let [block, blocks, thread, sum] = ["block", "blocks", "thread", "sum"].map(|name| k.reg(name, Type::U32));
    let [data, count, first, apart, end, at] =
        ["data", "count", "first", "apart", "end", "at"].map(|name| k.reg(name, Type::U64));
    let outside = k.reg("outside", Type::Pred);
    k.parameter(data, Type::U64, "data");
    k.parameter(count, Type::U64, "count");
    for (to, special) in [(block, Special::Ctaid(0)), (blocks, Special::Nctaid(0)), (thread, Special::Tid(0))] {
        k.set(to, Type::U32, Operand::Special(special));
    }
    let mad = Op::Mad { half: Half::Low, ty: Type::U32 };
    k.push(mad, [Operand::Reg(thread), Operand::Reg(block), Operand::Int(THREADS.into()), Operand::Reg(thread)]);
    k.push(Op::MulWide { ty: Type::U32 }, [Operand::Reg(first), Operand::Reg(thread), Operand::Int(16)]);
    k.push(
        Op::MulWide { ty: Type::U32 },
        [Operand::Reg(apart), Operand::Reg(blocks), Operand::Int(16 * i64::from(THREADS))],
    );
    let (add, mul) = (Op::Add { sat: Sat::Wrap, ty: Type::U64 }, Op::Mul { half: Half::Low, ty: Type::U64 });
    k.push(add, [first, first, data].map(Operand::Reg));
    k.push(mul, [Operand::Reg(end), Operand::Reg(count), Operand::Int(16)]);
    k.push(add, [end, end, data].map(Operand::Reg));
    k.set(sum, Type::U32, Operand::Int(0));
    k.steps(|k| {
        k.set(at, Type::U64, Operand::Reg(first));
        k.repeat("piece", |k, leave| {
            k.compare(outside, Compare::Ge, Type::U64, [Operand::Reg(at), Operand::Reg(end)]);
            k.leave_if(outside, leave);
            for four in all.chunks(4) {
                let load = Op::Ld { cache: LoadCache::Global, vector: Vector::Four, ty: Type::U32 };
                k.push(load, [Operand::Vector(four.to_vec()), address(Base::Reg(at))]);
                k.push(add, [at, at, apart].map(Operand::Reg));
            }
            for x in &all {
                k.push(Op::Xor { ty: Type::B32 }, [sum, sum, *x].map(Operand::Reg));
            }
        });
    });
    k.returns(sum)
}

/// 64 x 256 matmuls on Hopper's tensor cores, per warpgroup.
fn group_products(name: &str, kind: WgmmaKind, bits: Bits) -> Kernel {
    let mut k = Loop::new(name, GROUP, "Products of 64 x 256 on tensor cores in each group of four warps.");
    k.kernel.shared.push(Shared { name: "tiles".into(), align: 1024, bytes: Some(TILES) });
    let sums = k.regs("s", 128, Type::F32);
    let [seed, i, at, tile, word] = ["seed", "i", "at", "tile", "word"].map(|name| k.reg(name, Type::U32));
    let (left, right) = (k.regs("left", 4, Type::U64), k.regs("right", 4, Type::U64));
    let filled = k.reg("filled", Type::Pred);
    for to in [seed, i] {
        k.set(to, Type::U32, Operand::Special(Special::Tid(0)));
    }
    k.set(tile, Type::U32, Operand::Symbol("tiles".into()));
    k.repeat("fill", |k, leave| {
        k.compare(filled, Compare::Ge, Type::U32, [Operand::Reg(i), Operand::Int((TILES / 4).into())]);
        k.leave_if(filled, leave);
        k.random(word, seed, bits);
        let mad = Op::Mad { half: Half::Low, ty: Type::U32 };
        k.push(mad, [Operand::Reg(at), Operand::Reg(i), Operand::Int(4), Operand::Reg(tile)]);
        let store = Op::StShared { vector: Vector::One, ty: Type::U32 };
        k.push(store, [address(Base::Reg(at)), Operand::Reg(word)]);
        k.push(
            Op::Add { sat: Sat::Wrap, ty: Type::U32 },
            [Operand::Reg(i), Operand::Reg(i), Operand::Int(GROUP.into())],
        );
    });
    k.push(Op::FenceProxy {}, []);
    k.push(Op::BarSync {}, [Operand::Int(0)]);
    // Descriptors count in units of 16 bytes: the right tile starts 64 rows later, the next k step
    // 32 bytes later.
    k.push(Op::Shr { ty: Type::U32 }, [Operand::Reg(at), Operand::Reg(tile), Operand::Int(4)]);
    k.push(Op::And { ty: Type::B32 }, [Operand::Reg(at), Operand::Reg(at), Operand::Int(0x3fff)]);
    k.push(Op::CvtInt { sat: Sat::Wrap, to: Type::U64, from: Type::U32 }, [left[0], at].map(Operand::Reg));
    k.push(Op::Or { ty: Type::B64 }, [Operand::Reg(left[0]), Operand::Reg(left[0]), Operand::Int(SWIZZLED)]);
    for (n, (l, r)) in left.iter().zip(&right).enumerate() {
        let add = Op::Add { sat: Sat::Wrap, ty: Type::U64 };
        if n > 0 {
            k.push(add, [Operand::Reg(*l), Operand::Reg(left[0]), Operand::Int(2 * n as i64)]);
        }
        k.push(add, [Operand::Reg(*r), Operand::Reg(*l), Operand::Int(64 * 128 / 16)]);
    }
    k.clear(&sums);
    k.steps(|k| {
        k.push(Op::WgmmaFence {}, []);
        for (l, r) in left.iter().zip(&right).cycle().take(PRODUCTS as usize) {
            let mut operands = vec![Operand::Vector(sums.clone()), Operand::Reg(*l), Operand::Reg(*r)];
            operands.extend([1, 1, 1].map(Operand::Int));
            operands.extend([0, 0].map(Operand::Int).into_iter().filter(|_| kind.has_transposes()));
            k.push(Op::Wgmma { columns: Columns(256), kind }, operands);
        }
        k.push(Op::WgmmaCommit {}, []);
        k.push(Op::WgmmaWait {}, [Operand::Int(1)]);
    });
    k.push(Op::WgmmaWait {}, [Operand::Int(0)]);
    k.ends_with(&sums)
}

fn address(base: Base) -> Operand {
    Operand::Address(Address { base, offset: 0 })
}

/// A kernel under construction.
struct Loop {
    kernel: Kernel,
}

impl Loop {
    /// Declares the parameters that all kernels share.
    fn new(name: &str, threads: u32, comment: &str) -> Loop {
        let mut kernel = Kernel::new(name);
        kernel.comments.push(comment.to_string());
        kernel.threads = Threads::Exactly([threads, 1, 1]);
        kernel.params = [
            ("data", ParamType::Pointer(16)),
            ("out", ParamType::Pointer(4)),
            ("count", ParamType::Scalar(Type::U64)),
            ("steps", ParamType::Scalar(Type::U32)),
            ("never", ParamType::Scalar(Type::U32)),
        ]
        .map(|(name, ty)| Param { name: name.into(), ty })
        .into();
        Loop { kernel }
    }

    fn push(&mut self, op: Op, operands: impl Into<Vec<Operand>>) {
        self.kernel.push(op, operands);
    }

    fn reg(&mut self, name: &str, ty: Type) -> Reg {
        self.kernel.register(name, RegType::for_type(ty))
    }

    fn regs(&mut self, name: &str, count: u32, ty: Type) -> Vec<Reg> {
        (0..count).map(|n| self.reg(&format!("{name}{n}"), ty)).collect()
    }

    fn set(&mut self, to: Reg, ty: Type, x: Operand) {
        self.push(Op::Mov { ty }, [Operand::Reg(to), x]);
    }

    fn clear(&mut self, sums: &[Reg]) {
        for sum in sums {
            self.set(*sum, Type::F32, Operand::F32(0));
        }
    }

    fn parameter(&mut self, to: Reg, ty: Type, name: &str) {
        self.push(Op::LdParam { ty }, [Operand::Reg(to), address(Base::Symbol(name.into()))]);
    }

    fn compare(&mut self, to: Reg, compare: Compare, ty: Type, [a, b]: [Operand; 2]) {
        self.push(Op::SetP { compare, ftz: Ftz::Keep, ty }, [Operand::Reg(to), a, b]);
    }

    fn leave_if(&mut self, condition: Reg, label: &str) {
        self.kernel.push_if(condition, false, Op::Bra {}, [Operand::Label(label.into())]);
    }

    /// Advances a linear congruential generator.
    fn random(&mut self, to: Reg, seed: Reg, bits: Bits) {
        let [factor, plus] = [1_664_525, 1_013_904_223].map(Operand::Int);
        let mad = Op::Mad { half: Half::Low, ty: Type::U32 };
        self.push(mad, [Operand::Reg(seed), Operand::Reg(seed), factor, plus]);
        self.push(Op::And { ty: Type::B32 }, [Operand::Reg(to), Operand::Reg(seed), Operand::Int(bits.kept)]);
        self.push(Op::Or { ty: Type::B32 }, [Operand::Reg(to), Operand::Reg(to), Operand::Int(bits.set)]);
    }

    /// A loop that its body leaves, through the label that it receives.
    fn repeat(&mut self, name: &str, body: impl FnOnce(&mut Loop, &str)) {
        let (top, end) = (format!("${name}"), format!("${name}_end"));
        self.kernel.label(top.clone());
        body(self, &end);
        self.push(Op::Bra {}, [Operand::Label(top)]);
        self.kernel.label(end);
    }

    /// The measured loop.
    fn steps(&mut self, body: impl FnOnce(&mut Loop)) {
        let (left, done) = (self.reg("n", Type::U32), self.reg("done", Type::Pred));
        self.parameter(left, Type::U32, "steps");
        self.repeat("step", |k, leave| {
            k.compare(done, Compare::Eq, Type::U32, [Operand::Reg(left), Operand::Int(0)]);
            k.leave_if(done, leave);
            body(k);
            k.push(
                Op::Sub { sat: Sat::Wrap, ty: Type::U32 },
                [Operand::Reg(left), Operand::Reg(left), Operand::Int(1)],
            );
        });
    }

    /// Ends a kernel so that all sums are used.
    fn ends_with(mut self, sums: &[Reg]) -> Kernel {
        let add = Op::AddFloat { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, ty: Type::F32 };
        for other in &sums[1..] {
            self.push(add, [sums[0], sums[0], *other].map(Operand::Reg));
        }
        let bits = self.reg("bits", Type::B32);
        self.push(Op::Mov { ty: Type::B32 }, [bits, sums[0]].map(Operand::Reg));
        self.returns(bits)
    }

    /// Ends a kernel so that a word is used.
    fn returns(mut self, word: Reg) -> Kernel {
        let (never, out) = (self.reg("never", Type::U32), self.reg("out", Type::U64));
        let equal = self.reg("equal", Type::Pred);
        self.parameter(never, Type::U32, "never");
        self.parameter(out, Type::U64, "out");
        self.compare(equal, Compare::Eq, Type::U32, [word, never].map(Operand::Reg));
        let store = Op::St { cache: StoreCache::Default, vector: Vector::One, ty: Type::U32 };
        self.kernel.push_if(equal, false, store, [address(Base::Reg(out)), Operand::Reg(word)]);
        self.push(Op::Ret {}, []);
        self.kernel
    }
}
