//! Matrices of a warp: `ldmatrix`, `stmatrix`, `mma.sync`.
//!
//! A register of 32 bits holds `e` elements of a fragment. With lane `l`, `g = l / 4` and
//! `q = l % 4`, register `r` of A has row `g + 8 (r % 2)` and columns starting at
//! `e q + 4 e (r / 2)`, register `r` of B rows starting at `e q + 4 e r` and column `g`, element
//! `i` of C and D row `g + 8 (i / 2 % 2)` and column `2 q + i % 2` (PTX ISA, "Matrix Fragments for
//! mma").

use super::code::Arg;
use super::fragments::{accumulator, dot, element, result, rows_of_a};
use super::lanes::{V, bank_conflicts};
use super::report::{Check, Fault, at_address, problem};
use super::state::{Ctx, Flow, shared_address};
use crate::ptx::words::{Matrices, Mma, MmaShape, Trans};
use crate::ptx::{Op, Type};

impl Ctx<'_, '_> {
    pub(super) fn matrix(&mut self, op: Op) -> Check<Flow> {
        match op {
            Op::LdMatrix { count, trans } => self.ldmatrix(count, trans),
            Op::StMatrix { count, trans } => self.stmatrix(count, trans),
            Op::Mma { kind } => self.mma(kind),
            _ => Ok(Flow::Next),
        }
    }

    /// The registers of an operand in braces.
    pub(super) fn list(&self, n: usize) -> Vec<u32> {
        match self.inst.args.get(n) {
            Some(Arg::Regs(regs)) => regs.to_vec(),
            _ => Vec::new(),
        }
    }

    /// The values of the registers of an operand in braces.
    pub(super) fn fragment(&self, n: usize) -> Check<Vec<V>> {
        self.list(n).into_iter().map(|r| self.register(r, self.mask)).collect()
    }

    /// Counts the shared memory access of `ldmatrix` or `stmatrix`.
    fn count_rows(&mut self, at: &V, count: Matrices) {
        let mask = if count == Matrices::Four { u32::MAX } else { (1 << (8 * count.count())) - 1 };
        self.run.stats.shared_accesses += 1;
        self.run.stats.bank_conflicts += bank_conflicts(at, mask, 16);
    }

    fn ldmatrix(&mut self, count: Matrices, trans: Trans) -> Check<Flow> {
        let at = self.addresses(1)?;
        self.count_rows(&at, count);
        let registers = self.list(0);
        for (j, r) in registers.into_iter().enumerate() {
            let mut rows = [[0u64; 8]; 8];
            for (i, row) in rows.iter_mut().enumerate() {
                let lane = (8 * j + i) as u32;
                let place = self.shared_access(lane, at[lane as usize], 16, false)?;
                if !self.b.shared.is_known(place, 16) {
                    let address = shared_address(place);
                    return at_address(Fault::Uninitialised, lane, address, "16 bytes of uninitialised shared memory");
                }
                for (c, v) in row.iter_mut().enumerate() {
                    *v = self.b.shared.load(place + 2 * c, 2).unwrap_or(0);
                }
            }
            let d = std::array::from_fn(|t| {
                let (row, column) = (t / 4, 2 * (t % 4));
                match trans {
                    Trans::No => rows[row][column + 1] << 16 | rows[row][column],
                    Trans::Yes => rows[column + 1][row] << 16 | rows[column][row],
                }
            });
            self.set_register(r, &d);
        }
        Ok(Flow::Next)
    }

    fn stmatrix(&mut self, count: Matrices, trans: Trans) -> Check<Flow> {
        let at = self.addresses(0)?;
        self.count_rows(&at, count);
        for (j, values) in self.fragment(1)?.into_iter().enumerate() {
            let half = |t: usize, high: usize| values[t] >> (16 * high) & 0xffff;
            for i in 0..8 {
                let lane = (8 * j + i) as u32;
                let place = self.shared_access(lane, at[lane as usize], 16, true)?;
                for c in 0..8 {
                    let v = match trans {
                        Trans::No => half(4 * i + c / 2, c % 2),
                        Trans::Yes => half(4 * c + i / 2, i % 2),
                    };
                    self.b.shared.store(place + 2 * c, 2, v);
                }
            }
        }
        self.w.effects += 1;
        Ok(Flow::Next)
    }

    fn mma(&mut self, kind: Mma) -> Check<Flow> {
        let shape = kind.shape();
        let (a, b, c) = (self.fragment(1)?, self.fragment(2)?, self.fragment(3)?);
        let depth = shape.k as usize;
        let left = rows_of_a(&a, shape.a, depth);
        let mut right = vec![0.0; 8 * depth];
        let e = 32 / shape.b.bits();
        for (r, values) in b.iter().enumerate() {
            for lane in 0..32 {
                for n in 0..e {
                    let k = (e * (lane % 4) + 4 * e * r as u32 + n) as usize;
                    right[(lane / 4) as usize * depth + k] = element(values[lane as usize], n, shape.b);
                }
            }
        }
        let registers = self.list(0);
        if registers.len() != c.len() {
            return problem(Fault::BadOperand, "result and addend must have the same shape");
        }
        let packed = shape.d == Type::F16;
        for (r, (register, addend)) in registers.into_iter().zip(c).enumerate() {
            let d = std::array::from_fn(|lane| {
                let one = |i: usize, addend: f64| {
                    let (row, column) = (lane / 4 + 8 * (i / 2 % 2), 2 * (lane % 4) + i % 2);
                    dot(&left[row * depth..][..depth], &right[column * depth..][..depth]) + addend
                };
                store(addend[lane], r, packed, shape, one)
            });
            self.set_register(register, &d);
        }
        self.run.stats.matrix_products += 16 * 8 * u64::from(shape.k);
        Ok(Flow::Next)
    }
}

/// A register of the result: one element, or two.
fn store(addend: u64, r: usize, packed: bool, shape: MmaShape, one: impl Fn(usize, f64) -> f64) -> u64 {
    if packed {
        let low = result(one(2 * r, accumulator(addend & 0xffff, shape.d)), shape.d);
        let high = result(one(2 * r + 1, accumulator(addend >> 16 & 0xffff, shape.d)), shape.d);
        return high << 16 | low;
    }
    result(one(r, accumulator(addend, shape.d)), shape.d)
}
