//! Random kernels that the verifier accepts: for every opcode of the table, operands that it takes.

use attnc::ptx::operand::{OperandKind, Role, Slot};
use attnc::ptx::words::{Compare, Ftz, Space, Type};
use attnc::ptx::{
    Address, Base, Kernel, Line, Module, Op, Operand, Param, ParamType, Reg, RegType, Shared, Special, Threads,
};
use attnc::random::Random;

/// Bytes of the kernel's variable in shared memory, of the buffer that it is given, and of its plain parameter.
pub(crate) const BYTES: u32 = 1024;

/// A kernel that grows, with registers that have values.
pub(crate) struct Growing {
    pub(crate) kernel: Kernel,
    values: Vec<(RegType, Vec<Reg>)>,
    global: Reg,
    shared: Reg,
    /// Labels that branches may go to: only forward, so that every kernel ends.
    pub(crate) label: String,
}

/// A kernel with so many registers of each type that have a value.
pub(crate) fn start(name: &str, each: usize, random: &mut Random) -> Growing {
    let mut k = Kernel::new(name);
    k.threads = Threads::Exactly([128, 1, 1]);
    k.params = vec![
        Param { name: "buffer".into(), ty: ParamType::Pointer(16) },
        Param { name: "plain".into(), ty: ParamType::Bytes(16, BYTES) },
    ];
    k.shared = vec![Shared { name: format!("{name}_tile"), align: 128, bytes: Some(BYTES) }];
    let pointer = k.register("pointer", RegType::B64);
    let global = k.register("global", RegType::B64);
    let shared = k.register("shared", RegType::B32);
    let at = Address { base: Base::Symbol("buffer".into()), offset: 0 };
    k.push(Op::LdParam { ty: Type::U64 }, [Operand::Reg(pointer), Operand::Address(at)]);
    k.push(Op::CvtaToGlobal {}, [Operand::Reg(global), Operand::Reg(pointer)]);
    k.push(Op::Mov { ty: Type::U32 }, [Operand::Reg(shared), Operand::Symbol(format!("{name}_tile"))]);
    let tid = k.register("lane", RegType::B32);
    k.push(Op::Mov { ty: Type::U32 }, [Operand::Reg(tid), Operand::Special(Special::Tid(0))]);
    let mut values = Vec::new();
    for ty in [RegType::B32, RegType::B16, RegType::B64, RegType::F32, RegType::F64, RegType::Pred] {
        let mut list = Vec::new();
        for _ in 0..each {
            let r = k.register("x", ty);
            let n = random.word();
            match ty {
                RegType::B16 => k.push(Op::Mov { ty: Type::B16 }, [Operand::Reg(r), Operand::Int((n & 0xffff) as i64)]),
                RegType::B32 => k.push(
                    Op::Add { sat: attnc::ptx::words::Sat::Wrap, ty: Type::U32 },
                    [Operand::Reg(r), Operand::Reg(tid), Operand::Int(n as u32 as i64)],
                ),
                RegType::B64 => k.push(Op::Mov { ty: Type::B64 }, [Operand::Reg(r), Operand::Int(n as i64)]),
                RegType::F32 => k.push(Op::Mov { ty: Type::F32 }, [Operand::Reg(r), Operand::F32(n as u32)]),
                RegType::F64 => k.push(Op::Mov { ty: Type::F64 }, [Operand::Reg(r), Operand::F64(n)]),
                RegType::Pred => k.push(
                    Op::SetP { compare: Compare::Lt, ftz: Ftz::Keep, ty: Type::U32 },
                    [Operand::Reg(r), Operand::Reg(tid), Operand::Int((n % 128) as i64)],
                ),
            }
            list.push(r);
        }
        values.push((ty, list));
    }
    Growing { kernel: k, values, global, shared, label: "end".into() }
}

impl Growing {
    /// Registers that an operand of the type can be.
    fn fitting(&self, ty: Type) -> Vec<Reg> {
        self.values.iter().filter(|(r, _)| ty.takes(*r)).flat_map(|(_, list)| list.clone()).collect()
    }

    fn operand(&mut self, slot: &Slot, random: &mut Random) -> Operand {
        let place = |base: Reg, bytes: u32, random: &mut Random| {
            let offset = random.below((BYTES / bytes) as usize) as i32 * bytes as i32;
            Operand::Address(Address { base: Base::Reg(base), offset })
        };
        match slot.kind {
            OperandKind::Register(ty) | OperandKind::Sunk(ty) if slot.role == Role::Def => {
                if slot.kind == OperandKind::Sunk(ty) && random.chance(50) {
                    return Operand::Sink;
                }
                Operand::Reg(self.kernel.register("d", random.pick(&takers(ty))))
            }
            OperandKind::Register(ty) | OperandKind::Sunk(ty) => Operand::Reg(random.pick(&self.fitting(ty))),
            OperandKind::Value(ty) => {
                let n = random.word();
                match ty {
                    _ if random.chance(60) => Operand::Reg(random.pick(&self.fitting(ty))),
                    Type::F32 => Operand::F32(n as u32),
                    Type::F64 => Operand::F64(n),
                    Type::Pred | Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 => {
                        Operand::Reg(random.pick(&self.fitting(ty)))
                    }
                    _ => Operand::Int((n % 128) as i64),
                }
            }
            OperandKind::Source(ty) => match ty {
                Type::U32 if random.chance(50) => {
                    let all: Vec<Special> =
                        Special::all().into_iter().filter(|s| s.ty() == Type::U32 && !s.is_of_cluster()).collect();
                    Operand::Special(random.pick(&all))
                }
                Type::U32 | Type::U64 | Type::B32 if random.chance(30) => {
                    Operand::Symbol(self.kernel.shared[0].name.clone())
                }
                _ => Operand::Reg(random.pick(&self.fitting(ty))),
            },
            OperandKind::Flag(ty) => match random.below(3) {
                0 => Operand::Int(0),
                1 => Operand::Int(1),
                _ => Operand::Reg(random.pick(&self.fitting(ty))),
            },
            OperandKind::Bytes16 => Operand::Int(16 * random.below(8) as i64),
            OperandKind::AtMost(_) if random.chance(50) => Operand::Reg(random.pick(&self.fitting(Type::U32))),
            OperandKind::AtMost(_) => Operand::Int(random.below(5) as i64),
            OperandKind::Fraction => Operand::F32(random.pick(&[0.25f32, 0.5, 1.0]).to_bits()),
            OperandKind::Nothing => Operand::Sink,
            OperandKind::Vector(n, ty) | OperandKind::Fragment(n, ty) => {
                if slot.role == Role::Use {
                    // All declared alike.
                    let exactly = matches!(slot.kind, OperandKind::Fragment(..));
                    let alike = if exactly { RegType::for_type(ty) } else { random.pick(&takers(ty)) };
                    let list: Vec<Reg> =
                        self.values.iter().filter(|(r, _)| *r == alike).flat_map(|(_, l)| l.clone()).collect();
                    return Operand::Vector((0..n).map(|_| random.pick(&list)).collect());
                }
                let regs: Vec<Reg> = (0..n).map(|_| self.kernel.register("v", RegType::for_type(ty))).collect();
                if slot.role == Role::Both {
                    for r in &regs {
                        let from = random.pick(&self.fitting(ty));
                        let ty = if RegType::for_type(ty) == RegType::F32 { Type::F32 } else { Type::B32 };
                        self.kernel.push(Op::Mov { ty }, [Operand::Reg(*r), Operand::Reg(from)]);
                    }
                }
                Operand::Vector(regs)
            }
            OperandKind::Pair(ty) | OperandKind::SunkPair(ty) => {
                let d = self.kernel.register("d", RegType::for_type(ty));
                let p = self.kernel.register("p", RegType::Pred);
                let sunk = matches!(slot.kind, OperandKind::SunkPair(_)) && random.chance(30);
                Operand::Pair(if sunk { None } else { Some(d) }, Some(p))
            }
            OperandKind::Address(Space::Global, bytes) => place(self.global, bytes, random),
            OperandKind::Address(Space::Shared, bytes) => place(self.shared, bytes, random),
            OperandKind::Address(Space::Param, bytes) => {
                let offset = random.below((BYTES / bytes) as usize) as i32 * bytes as i32;
                Operand::Address(Address { base: Base::Symbol("plain".into()), offset })
            }
            OperandKind::Sized(Space::Global, _) => place(self.global, 16, random),
            OperandKind::Sized(..) => place(self.shared, 16, random),
            OperandKind::Opaque(Type::U64) => place(self.global, 16, random),
            OperandKind::Opaque(_) => place(self.shared, 16, random),
            OperandKind::Tensor(rank) => {
                let at = (0..rank).map(|_| random.pick(&self.fitting(Type::S32))).collect();
                Operand::Tensor(random.pick(&self.fitting(Type::U64)), at)
            }
            // Registers can only be given up that a kernel has: the least that can be left is always right.
            OperandKind::Number(24, 256, 8) => Operand::Int(24),
            OperandKind::Number(from, to, step) => {
                Operand::Int(from + step * random.below(((to - from) / step + 1) as usize) as i64)
            }
            OperandKind::OneOf(list) => Operand::Int(random.pick(list)),
            OperandKind::Label => Operand::Label(self.label.clone()),
        }
    }

    /// Adds an instruction of this opcode, and says which line of the body it is.
    pub(crate) fn add(&mut self, op: Op, guarded: bool, random: &mut Random) -> usize {
        let slots = op.slots();
        let count = slots.iter().filter(|s| !s.optional || random.chance(50)).count();
        let operands: Vec<Operand> = slots.iter().take(count).map(|slot| self.operand(slot, random)).collect();
        if guarded {
            self.kernel.push_if(random.pick(&self.fitting(Type::Pred)), random.chance(50), op, operands);
        } else {
            self.kernel.push(op, operands);
        }
        self.kernel.body.len() - 1
    }

    /// The kernel, whose end is the label.
    pub(crate) fn finish(mut self) -> Kernel {
        let label = self.label.clone();
        self.kernel.label(label);
        self.kernel.push(Op::Ret {}, []);
        self.kernel
    }
}

/// What a register for a value of the type can be declared as.
fn takers(ty: Type) -> Vec<RegType> {
    RegType::ALL.iter().copied().filter(|r| ty.takes(*r)).collect()
}

/// A module of random kernels over all opcodes, with labels, comments and guards, and the lowest head that serves.
pub(crate) fn module(seed: u64) -> Module {
    let mut random = Random::new(seed);
    let mut module = Module::new();
    // One generation: what only Hopper has stands beside what all have.
    let ops: Vec<Op> = Op::all().to_vec();
    for n in 0..1 + random.below(3) {
        let mut g = start(&format!("kernel{n}"), 6, &mut random);
        g.kernel.comments = vec![format!("kernel {n} of seed {seed}"); random.below(3)];
        for i in 0..random.below(40) {
            match random.below(10) {
                0 => {
                    let label = format!("part_{i}");
                    if random.chance(50) {
                        let p = random.pick(&g.fitting(Type::Pred));
                        g.kernel.push_if(p, random.chance(50), Op::Bra {}, [Operand::Label(label.clone())]);
                    }
                    g.kernel.label(label);
                }
                1 => g.kernel.comment(&format!("line {i}: {:x}", random.word())),
                _ => {
                    let op = random.pick(&ops);
                    if !op.ends() {
                        let guarded = random.chance(20);
                        g.add(op, guarded, &mut random);
                    }
                }
            }
        }
        module.kernels.push(g.finish());
    }
    (module.version, module.target) = module.lowest();
    module
}

/// How many instructions a module has.
pub(crate) fn count(module: &Module) -> usize {
    module.kernels.iter().flat_map(|k| &k.body).filter(|line| matches!(line, Line::Inst(_))).count()
}
