//! A `run`: its vector IR routine, translated to CLIF.
//!
//! In: a run of a scheduled kernel, which `lowering::vector` turns into a routine of four lanes, or
//! of one. Out: CLIF, inside the kernel's function. Blocks become blocks with the same parameters,
//! and each operation has one case here. Loops, tails and the order of reductions are decided in
//! the routine.
//!
//! | type | four lanes | one lane |
//! |---|---|---|
//! | `index`, `address` | | `I64` |
//! | others | as in `lanes` | as in `lanes` |

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, BlockArg, InstBuilder, Value, types};
use cranelift_entity::SecondaryMap;

use super::code::Code;
use super::lanes::{Lane, Width};
use crate::lowering::vector::{Lowered, Word, lower_for};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::Elem;
use crate::ssa;
use crate::tile::{Cpu, Extent, Inst};
use crate::vector::routine::{AddressMode, Body, InstData, Op, Terminator, Type};

/// State of the translation of one routine.
struct Print<'r> {
    body: &'r Body,
    /// CLIF values of the routine's values.
    values: SecondaryMap<ssa::Value, Option<Value>>,
    /// For values that are the same in every lane: the scalar.
    scalars: SecondaryMap<ssa::Value, Option<Value>>,
}

/// The error for an operation without a translation.
fn unfit<T>(inst: &InstData) -> Result<T, String> {
    Err(format!("`{}` of vector IR has no translation to CLIF for these operands", inst.op))
}

impl Code<'_, '_> {
    /// Emits a run.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn run(&mut self, rows: Extent, cols: Extent, insts: &[Inst], scratch: Value) -> Result<(), String> {
        let lowered = lower_for(Cpu::PORTABLE, "run", self.body, (rows, cols), insts).map_err(|e| e.to_string())?;
        let Lowered { routine, words, origins } = lowered;
        let body = &routine.body;
        let mut p = Print { body, values: SecondaryMap::new(), scalars: SecondaryMap::new() };
        for ((v, _), word) in routine.params.iter().zip(&words) {
            p.values[*v] = Some(match word {
                Word::Scalar(v) => self.scalar(*v)?.value,
                word => self.word(word, scratch)?,
            });
        }
        let mut blocks: SecondaryMap<ssa::Block, Option<ir::Block>> = SecondaryMap::new();
        for b in body.layout.iter().skip(1) {
            let block = self.b.create_block();
            for v in &body.block(*b).args {
                let ty = p.ty(*v);
                p.values[*v] = Some(self.b.append_block_param(block, ty));
            }
            blocks[*b] = Some(block);
        }
        let run_itself = self.here;
        let done = self.b.create_block();
        for b in &body.layout {
            if let Some(block) = blocks[*b] {
                self.b.switch_to_block(block);
            }
            for i in &body.block(*b).insts {
                self.at(origins[*i].or(run_itself));
                self.vector_inst(&mut p, body.inst(*i))?;
            }
            self.at(run_itself);
            let call = |c: &ssa::BlockCall| -> Result<(ir::Block, Vec<BlockArg>), String> {
                let args = c.args.iter().map(|v| p.value(*v).map(BlockArg::Value)).collect::<Result<_, _>>()?;
                Ok((blocks[c.block].ok_or("a jump to the entry")?, args))
            };
            match &body.block(*b).terminator {
                Terminator::Return(_) => {
                    self.b.ins().jump(done, &[]);
                }
                Terminator::Br(c) => {
                    let (block, args) = call(c)?;
                    self.b.ins().jump(block, &args);
                }
                Terminator::BrIf { condition, then, otherwise } => {
                    let ((then, given), (otherwise, rest)) = (call(then)?, call(otherwise)?);
                    self.b.ins().brif(p.value(*condition)?, then, &given, otherwise, &rest);
                }
                Terminator::Roles(roles) => match *roles {},
            }
        }
        for block in body.layout.iter().filter_map(|b| blocks[*b]).chain([done]) {
            self.b.seal_block(block);
        }
        self.b.switch_to_block(done);
        Ok(())
    }

    fn vector_inst(&mut self, p: &mut Print<'_>, inst: &InstData) -> Result<(), String> {
        match (&inst.op, inst.operands.as_slice()) {
            (Op::Store { elem, place, masked: false }, operands) => {
                let ((at, offset), rest) = self.vector_place(p, *place, operands)?;
                let [x] = rest else { return unfit(inst) };
                self.lanes().store(*elem, p.lane(*x)?, at, offset);
                return Ok(());
            }
            // Only a hint; Cranelift has no prefetch.
            (Op::Prefetch(_), _) => return Ok(()),
            _ => {}
        }
        let Some(result) = inst.result else { return unfit(inst) };
        let value = match p.body.ty(result) {
            Type::Index | Type::Address => self.vector_index(p, inst)?,
            Type::Lanes(elem, lanes) => {
                let width = p.width(*lanes);
                let (x, same) = self.vector_lanes(p, inst, *elem, width)?;
                p.scalars[result] = same;
                x
            }
        };
        p.values[result] = Some(value);
        Ok(())
    }

    /// Splits off an addressing mode: address, byte offset, remaining operands.
    fn vector_place<'o>(
        &mut self,
        p: &Print<'_>,
        place: AddressMode,
        operands: &'o [ssa::Value],
    ) -> Result<((Value, i32), &'o [ssa::Value]), String> {
        let (of_place, rest) = operands.split_at_checked(place.operands()).ok_or("a place without an address")?;
        let mut at = p.value(*of_place.first().ok_or("a place without an address")?)?;
        if let Some(index) = of_place.get(1) {
            let bytes = self.b.ins().ishl_imm_u(p.value(*index)?, i64::from(place.scale.trailing_zeros()));
            at = self.b.ins().iadd(at, bytes);
        }
        Ok(((at, place.offset), rest))
    }

    /// Operations on indices and addresses.
    fn vector_index(&mut self, p: &Print<'_>, inst: &InstData) -> Result<Value, String> {
        Ok(match (&inst.op, inst.operands.as_slice()) {
            (Op::Const(s), []) => self.int(s.as_i64()),
            (Op::Address(place), operands) => {
                let ((at, offset), _) = self.vector_place(p, *place, operands)?;
                self.b.ins().iadd_imm_s(at, i64::from(offset))
            }
            (Op::Binary(op), [a, b]) => {
                let (x, known) = (p.value(*a)?, p.number(*b));
                match (op, known) {
                    (BinaryOp::Add, Some(n)) => self.b.ins().iadd_imm_s(x, n),
                    (BinaryOp::Rem, Some(n)) if n.cast_unsigned().is_power_of_two() => {
                        self.b.ins().band_imm_s(x, n - 1)
                    }
                    (_, _) => self.index_binary(*op, x, p.value(*b)?),
                }
            }
            _ => return unfit(inst),
        })
    }

    /// Operations on lanes; also the scalar, where all lanes are known to be the same.
    fn vector_lanes(
        &mut self,
        p: &Print<'_>,
        inst: &InstData,
        to: Elem,
        width: Width,
    ) -> Result<(Value, Option<Value>), String> {
        let result = |value| Lane { value, elem: to, width };
        let x = match (&inst.op, inst.operands.as_slice()) {
            (Op::Const(s), []) => self.lanes().constant(*s, to, width),
            (Op::Lanes, []) => result(self.lanes().numbers(width)),
            (Op::Load { elem, place, masked: false }, operands) => {
                let ((at, offset), _) = self.vector_place(p, *place, operands)?;
                self.lanes().load(*elem, width, at, offset)
            }
            (Op::Splat, [x]) => {
                let mut x = p.lane(*x)?;
                if (x.elem, to) == (Elem::I64, Elem::I32) {
                    x = self.lanes().lane_cast(x, to);
                }
                let all = if width == Width::Four { self.lanes().spread(x) } else { x };
                return Ok((all.value, Some(x.value)));
            }
            (Op::First | Op::Extract(_), [x]) => {
                let lane = if let Op::Extract(lane) = inst.op { lane } else { 0 };
                match p.scalars[*x] {
                    Some(same) => result(same),
                    None => {
                        let (x, lane) = (p.lane(*x)?, u8::try_from(lane).map_err(|_| "the lane number is too large")?);
                        self.lanes().lane(x, lane)
                    }
                }
            }
            (Op::Build, [x]) => p.lane(*x)?,
            (Op::Build, [a, b, c, d]) => {
                let xs = [p.lane(*a)?, p.lane(*b)?, p.lane(*c)?, p.lane(*d)?];
                self.lanes().gather(xs)
            }
            (Op::LanesBelow, [n]) => {
                let n = self.b.ins().ireduce(types::I32, p.value(*n)?);
                let count = self.lanes().spread(Lane { value: n, elem: Elem::I32, width: Width::One });
                let numbers = self.lanes().numbers(Width::Four);
                result(self.b.ins().icmp(IntCC::SignedGreaterThan, count.value, numbers))
            }
            (op, [x]) => {
                let x = p.lane(*x)?;
                match op {
                    Op::Unary(op) => self.lanes().lane_unary(*op, x)?,
                    Op::Cast => self.lanes().lane_cast(x, to),
                    Op::Narrow(elem) => self.lanes().lane_narrow(x, *elem),
                    Op::MaskBits => self.lanes().mask_bits(x),
                    Op::MaskOfBits => self.lanes().mask_of_bits(x),
                    Op::Exchange(distance) => self.lanes().exchange(x, *distance),
                    Op::Reduce(_) if x.width == Width::One => x,
                    Op::Reduce(kind) => {
                        let mut all = x;
                        for distance in [2, 1] {
                            let other = self.lanes().exchange(all, distance);
                            all = self.lanes().combine(kind.kind(), all, other);
                        }
                        self.lanes().lane(all, 0)
                    }
                    _ => return unfit(inst),
                }
            }
            (op, [x, y]) => {
                let (x, y) = (p.lane(*x)?, p.lane(*y)?);
                match op {
                    Op::Binary(op) => self.lanes().lane_binary(*op, x, y)?,
                    Op::Compare(op) => self.lanes().lane_compare(*op, x, y),
                    Op::BitAnd => self.lanes().lane_arithmetic(BinaryOp::And, x, y),
                    Op::BitOr => self.lanes().lane_arithmetic(BinaryOp::Or, x, y),
                    Op::MaxOrSecond => self.lanes().or_second(true, x, y),
                    Op::MinOrSecond => self.lanes().or_second(false, x, y),
                    Op::Unordered => result(self.b.ins().fcmp(FloatCC::Unordered, x.value, y.value)),
                    Op::Beats => self.beats(x, y),
                    _ => return unfit(inst),
                }
            }
            (Op::Select, [c, x, y]) => {
                let (c, x, y) = (p.lane(*c)?, p.lane(*x)?, p.lane(*y)?);
                self.lanes().lane_select(c, x, y)
            }
            _ => return unfit(inst),
        };
        Ok((x.value, None))
    }

    /// Is `x` greater, or NaN while `y` is not?
    fn beats(&mut self, x: Lane, y: Lane) -> Lane {
        let greater = self.lanes().lane_compare(CmpOp::Gt, x, y);
        if x.elem != Elem::F32 {
            return greater;
        }
        let nan = self.lanes().lane_compare(CmpOp::Ne, x, x);
        let number = self.lanes().lane_compare(CmpOp::Eq, y, y);
        let first_nan = self.lanes().lane_arithmetic(BinaryOp::And, nan, number);
        self.lanes().lane_arithmetic(BinaryOp::Or, greater, first_nan)
    }
}

impl Print<'_> {
    fn value(&self, v: ssa::Value) -> Result<Value, String> {
        self.values[v].ok_or_else(|| format!("{v} of a routine has no value"))
    }

    fn width(&self, lanes: u32) -> Width {
        if lanes == 1 { Width::One } else { Width::Four }
    }

    /// The CLIF type of a value.
    fn ty(&self, v: ssa::Value) -> ir::Type {
        match self.body.ty(v) {
            Type::Index | Type::Address => types::I64,
            Type::Lanes(elem, lanes) => super::lanes::clif_type(*elem, self.width(*lanes)),
        }
    }

    /// A value as lanes; an index is one 64-bit lane.
    fn lane(&self, v: ssa::Value) -> Result<Lane, String> {
        let (elem, width) = match self.body.ty(v) {
            Type::Index | Type::Address => (Elem::I64, Width::One),
            Type::Lanes(elem, lanes) => (*elem, self.width(*lanes)),
        };
        Ok(Lane { value: self.value(v)?, elem, width })
    }

    fn number(&self, v: ssa::Value) -> Option<i64> {
        match self.body.def_inst(v)?.op {
            Op::Const(s) => Some(s.as_i64()),
            _ => None,
        }
    }
}
