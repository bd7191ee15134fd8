//! Checks of single instructions: opcode and operands.

use super::Fault;
use crate::diagnostics::did_you_mean;
use crate::ptx::operand::{OperandKind, Role, Slot};
use crate::ptx::target::Processors;
use crate::ptx::words::Space;
use crate::ptx::{Address, Base, Inst, Kernel, Module, Operand, Reg, RegType, Shared, Type};

/// Names in scope of a kernel's instructions.
struct Ctx<'a> {
    module: &'a Module,
    kernel: &'a Kernel,
}

pub(super) fn check(module: &Module, kernel: &Kernel, faults: &mut Vec<Fault>) {
    let ctx = Ctx { module, kernel };
    for (at, i) in kernel.insts() {
        if let Err(message) = ctx.inst(i) {
            faults.push((Some(at), message));
        }
    }
}

impl Ctx<'_> {
    fn inst(&self, i: &Inst) -> Result<(), String> {
        if let Some(g) = i.guard
            && self.ty(g.reg)? != RegType::Pred
        {
            return Err(format!("`{}` is not a predicate; compare it first (`setp.ne`)", self.name(g.reg)));
        }
        if !i.op.is_legal() {
            return Err(format!("`{}` is not a PTX instruction", i.op.text()));
        }
        self.head(i)?;
        let slots = i.op.slots();
        let required = slots.iter().take_while(|s| !s.optional).count();
        if !(required..=slots.len()).contains(&i.operands.len()) {
            let names: Vec<&str> = slots.iter().map(|s| s.name).collect();
            return Err(format!("{} operands; it takes {}: {}", i.operands.len(), slots.len(), names.join(", ")));
        }
        for (slot, o) in slots.iter().zip(&i.operands) {
            self.operand(i, slot, o).map_err(|message| format!("operand {}: {message}", slot.name))?;
        }
        // Results are written simultaneously: a register must not occur twice.
        let results = slots.iter().zip(&i.operands).filter(|(slot, _)| slot.role != Role::Use);
        let written = results.flat_map(|(_, o)| o.regs());
        let twice = written.clone().enumerate().find(|(n, r)| written.clone().skip(n + 1).any(|other| other == *r));
        if let Some((_, r)) = twice {
            return Err(format!("`{}` is written twice; use another register", self.name(r)));
        }
        Ok(())
    }

    /// Checks version and target of the module.
    fn head(&self, i: &Inst) -> Result<(), String> {
        let mut needs = vec![i.op.needs()];
        if i.operands.iter().any(|o| matches!(o, Operand::Special(s) if s.is_of_cluster())) {
            needs.push(crate::ptx::target::Needs::from(7, 8, 90));
        }
        for needs in needs {
            if !needs.runs_on(self.module.target) {
                let who = match needs.processors {
                    Processors::From(sm) => format!("sm_{sm} or later"),
                    Processors::Alone(list) => {
                        list.iter().map(|sm| format!("sm_{sm}a")).collect::<Vec<_>>().join(" or ")
                    }
                };
                let target = self.module.target;
                return Err(format!("needs {who}, the module is for {target}; set `.target {}`", needs.least()));
            }
            if needs.version > self.module.version {
                return Err(format!(
                    "came with PTX {0}, the module has {1}; set `.version {0}`",
                    needs.version, self.module.version
                ));
            }
        }
        Ok(())
    }

    fn operand(&self, i: &Inst, slot: &Slot, o: &Operand) -> Result<(), String> {
        match (slot.kind, o) {
            (OperandKind::Register(ty), Operand::Reg(r))
            | (OperandKind::Sunk(ty), Operand::Reg(r))
            | (OperandKind::Value(ty) | OperandKind::Source(ty), Operand::Reg(r)) => self.takes(ty, *r),
            (OperandKind::Sunk(_), Operand::Sink) => Ok(()),
            (OperandKind::Value(ty) | OperandKind::Source(ty), Operand::Int(_) | Operand::F32(_) | Operand::F64(_)) => {
                number(ty, o)
            }
            (OperandKind::Source(ty), Operand::Special(s)) => {
                let fits = ty.bits() == s.ty().bits() && !matches!(ty, Type::F32 | Type::F64);
                if fits { Ok(()) } else { Err(format!("{s} is {}; use mov{}", s.ty(), s.ty())) }
            }
            (OperandKind::Source(ty), Operand::Symbol(name)) => self.symbol_address(ty, name),
            (OperandKind::Flag(ty), Operand::Reg(r)) => self.takes(ty, *r),
            (OperandKind::Flag(_), Operand::Int(0 | 1)) | (OperandKind::Nothing, Operand::Sink) => Ok(()),
            (OperandKind::Bytes16 | OperandKind::AtMost(_), Operand::Reg(r)) => self.takes(Type::U32, *r),
            (OperandKind::Bytes16, Operand::Int(n)) => {
                let fits = (0..1 << 20).contains(n) && n % 16 == 0;
                if fits { Ok(()) } else { Err(format!("{n} is not a multiple of 16")) }
            }
            (OperandKind::AtMost(other), Operand::Int(n)) => match i.operands.get(other) {
                Some(Operand::Int(most)) if (0..=*most).contains(n) => Ok(()),
                _ => Err(format!("{n} is larger than the size of the copy")),
            },
            (OperandKind::Fraction, Operand::F32(bits)) => {
                let x = f32::from_bits(*bits);
                if x > 0.0 && x <= 1.0 {
                    Ok(())
                } else {
                    Err(format!("{x} is not a fraction; it must be above 0, at most 1"))
                }
            }
            (OperandKind::Vector(n, ty) | OperandKind::Fragment(n, ty), Operand::Vector(regs)) => {
                if regs.len() as u64 != u64::from(n) {
                    return Err(format!("{} registers in braces; it takes {n}", regs.len()));
                }
                regs.iter().try_for_each(|r| self.takes(ty, *r))?;
                let first = match (slot.kind, regs.first()) {
                    (OperandKind::Vector(..), Some(r)) => self.ty(*r)?,
                    _ => RegType::for_type(ty),
                };
                match regs.iter().find(|r| self.kernel.reg(**r).is_some_and(|r| r.ty != first)) {
                    None => Ok(()),
                    Some(r) => Err(format!("`{}` is not {first} like the others; move it first", self.name(*r))),
                }
            }
            (OperandKind::Pair(ty), Operand::Pair(Some(a), p)) => {
                self.takes(ty, *a)?;
                p.iter().try_for_each(|r| self.takes(Type::Pred, *r))
            }
            (OperandKind::SunkPair(ty), Operand::Pair(a, Some(p))) => {
                a.iter().try_for_each(|r| self.takes(ty, *r))?;
                self.takes(Type::Pred, *p)
            }
            (OperandKind::Address(space, bytes), Operand::Address(a)) => self.address(space, u64::from(bytes), a),
            (OperandKind::Sized(space, n), Operand::Address(a)) => {
                let bytes = match i.operands.get(n) {
                    Some(Operand::Int(n)) => u64::try_from(*n).unwrap_or(0),
                    _ => 0,
                };
                self.address(space, bytes, a)
            }
            (OperandKind::Opaque(ty), Operand::Address(a)) => match &a.base {
                Base::Reg(r) => self.takes(ty, *r),
                Base::Symbol(s) if ty == Type::U32 => self.shared(s).map(|_| ()),
                Base::Symbol(s) => Err(format!("`{s}` is not a 64-bit address; use a register")),
            },
            (OperandKind::Tensor(rank), Operand::Tensor(map, at)) => {
                if at.len() != usize::from(rank) {
                    return Err(format!("{} coordinates; it takes {rank}", at.len()));
                }
                self.takes(Type::B64, *map)?;
                at.iter().try_for_each(|r| self.takes(Type::S32, *r))
            }
            (OperandKind::Number(from, to, step), Operand::Int(n)) => {
                if (from..=to).contains(n) && n % step == 0 {
                    return Ok(());
                }
                let step = if step == 1 { String::new() } else { format!(", a multiple of {step}") };
                Err(format!("{n} is out of range: {from} to {to}{step}"))
            }
            (OperandKind::OneOf(list), Operand::Int(n)) => {
                if list.contains(n) {
                    return Ok(());
                }
                let list: Vec<String> = list.iter().map(ToString::to_string).collect();
                Err(format!("{n} is not allowed; it must be {}", list.join(" or ")))
            }
            (OperandKind::Label, Operand::Label(_)) => Ok(()),
            (kind, _) => Err(format!("{} belongs here", expected(kind))),
        }
    }

    fn ty(&self, r: Reg) -> Result<RegType, String> {
        let found = self.kernel.reg(r).map(|r| r.ty);
        found.ok_or_else(|| format!("there is no register {}; declare it", r.0))
    }

    fn name(&self, r: Reg) -> &str {
        self.kernel.reg(r).map_or("", |r| &r.name)
    }

    fn takes(&self, ty: Type, r: Reg) -> Result<(), String> {
        let found = self.ty(r)?;
        if ty.takes(found) {
            return Ok(());
        }
        let way = if ty.bits() == found.bits() || (ty.bits() == 8 && found.bits() >= 16) {
            format!("move it with mov.b{} first", found.bits())
        } else {
            "convert it with cvt first".to_string()
        };
        Err(format!("`{}` is {found}, expected {}; {way}", self.name(r), RegType::for_type(ty)))
    }

    /// The shared variable of a name.
    fn shared(&self, name: &str) -> Result<&Shared, String> {
        let all = || self.kernel.shared.iter().chain(&self.module.shared);
        all().find(|s| s.name == name).ok_or_else(|| {
            let near = did_you_mean(name, all().map(|s| s.name.as_str()));
            let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            format!("there is no shared variable `{name}`{hint}")
        })
    }

    /// Checks an address operand of `mov`: shared variables have 32 or 64 bits, parameters (tensor
    /// maps) 64.
    fn symbol_address(&self, ty: Type, name: &str) -> Result<(), String> {
        if self.kernel.params.iter().any(|p| p.name == name) {
            let fits = matches!(ty, Type::B64 | Type::U64 | Type::S64);
            return if fits {
                Ok(())
            } else {
                Err(format!("the address of parameter `{name}` has 64 bits; use mov.b64"))
            };
        }
        self.shared(name)?;
        let fits = ty.is_integer() || matches!(ty, Type::B32 | Type::B64);
        if fits && ty.bits() >= 32 {
            Ok(())
        } else {
            Err(format!("the address of `{name}` is an integer; use mov.u32"))
        }
    }

    fn address(&self, space: Space, bytes: u64, a: &Address) -> Result<(), String> {
        let size = match (space, &a.base) {
            (Space::Global, Base::Reg(r)) => return self.takes(Type::U64, *r),
            (Space::Global, Base::Symbol(s)) => return Err(format!("`{s}` is not in global memory; use a register")),
            (Space::Shared, Base::Reg(r)) => {
                let ty = self.ty(*r)?;
                let is_address = matches!(ty, RegType::B32 | RegType::B64);
                let message = || format!("`{}` is {ty}; an address in shared memory has 32 bits", self.name(*r));
                return if is_address { Ok(()) } else { Err(message()) };
            }
            (Space::Shared, Base::Symbol(s)) => self.shared(s)?.bytes,
            (Space::Param, Base::Reg(_)) => return Err("parameters are accessed by name".to_string()),
            (Space::Param, Base::Symbol(s)) => {
                let found = self.kernel.params.iter().find(|p| p.name == *s);
                Some(found.map(|p| p.ty.bytes()).ok_or_else(|| {
                    let near = did_you_mean(s, self.kernel.params.iter().map(|p| p.name.as_str()));
                    let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                    format!("there is no parameter `{s}`{hint}")
                })?)
            }
        };
        let end = i64::from(a.offset) + bytes as i64;
        match size {
            _ if a.offset < 0 => Err(format!("it begins {} bytes before the variable", -i64::from(a.offset))),
            Some(size) if end > i64::from(size) => {
                Err(format!("it ends at byte {end}, the variable has {size}; make it larger or the offset smaller"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks an immediate of a type.
fn number(ty: Type, o: &Operand) -> Result<(), String> {
    match (ty, o) {
        (Type::F32, Operand::F32(_)) | (Type::F64, Operand::F64(_)) => Ok(()),
        (Type::F32 | Type::F64, _) => {
            Err(format!("a number of type {ty} is written by its bits: 0f3F800000, 0d3FF0000000000000"))
        }
        (Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2, _) => {
            Err("numbers of 16 bits go through a register: mov.b16".to_string())
        }
        (Type::Pred, _) => Err("a predicate goes through a register: setp".to_string()),
        (_, Operand::Int(n)) => {
            let bits = ty.bits().min(63);
            let fits = ty.bits() >= 64 || (-(1i64 << (bits - 1))..1i64 << bits).contains(n);
            if fits { Ok(()) } else { Err(format!("{n} does not fit in {} bits; use a wider type", ty.bits())) }
        }
        (Type::B32, Operand::F32(_)) | (Type::B64, Operand::F64(_)) => Ok(()),
        _ => Err("expected an integer".to_string()),
    }
}

fn expected(kind: OperandKind) -> String {
    match kind {
        OperandKind::Register(ty) => format!("a register ({})", RegType::for_type(ty)),
        OperandKind::Sunk(ty) => format!("a register ({}) or `_`", RegType::for_type(ty)),
        OperandKind::Value(ty) => format!("a register ({}) or a number", RegType::for_type(ty)),
        OperandKind::Source(ty) => {
            format!("a register ({}), a number, a special register or the name of a variable", RegType::for_type(ty))
        }
        OperandKind::Flag(ty) => format!("a register ({}), 0 or 1", RegType::for_type(ty)),
        OperandKind::Bytes16 => "a register (.b32) or a multiple of 16".to_string(),
        OperandKind::AtMost(_) => "a register (.b32) or a number".to_string(),
        OperandKind::Fraction => "the bits of a float, `0f3F800000`,".to_string(),
        OperandKind::Nothing => "`_`".to_string(),
        OperandKind::Vector(n, ty) | OperandKind::Fragment(n, ty) => {
            format!("{n} registers ({}) in braces", RegType::for_type(ty))
        }
        OperandKind::SunkPair(ty) => format!("a register ({}) or `_`, and a predicate, `_|%p`,", RegType::for_type(ty)),
        OperandKind::Pair(ty) => format!("a register ({}) and a predicate, `%x|%p`,", RegType::for_type(ty)),
        OperandKind::Address(..) | OperandKind::Sized(..) | OperandKind::Opaque(_) => {
            "an address, `[%x+16]`,".to_string()
        }
        OperandKind::Tensor(rank) => format!("a tensor's map and {rank} coordinates, `[%map, {{%x}}]`,"),
        OperandKind::Number(from, to, _) => format!("a number, {from} to {to},"),
        OperandKind::OneOf(list) => format!("one of {list:?}"),
        OperandKind::Label => "a label".to_string(),
    }
}
