//! Execution of `wgmma`: descriptors, pending registers, fences and waits.
//!
//! Each warp computes its own 16 rows, so the warps of a warpgroup need not synchronise; it is
//! checked that they execute the same sequence. Registers of a `wgmma` must not be accessed from
//! its issue to the wait for its group. A `wgmma.fence` must separate earlier accesses to these
//! registers from the `wgmma`.

use std::rc::Rc;

use super::clock::Know;
use super::code::SHARED_BASE;
use super::fragments::{accumulator, dot, element, result, rows_of_a};
use super::lanes::{V, lanes, zero};
use super::products::{Left, PendingWgmma};
use super::report::{Check, Fault, at_address, at_lane, problem};
use super::shadow::{Access, Reach};
use super::state::{Ctx, Flow, conflict, shared_address};
use crate::ptx::words::{Columns, Wgmma};
use crate::ptx::{Op, Swizzle, Type};

/// A decoded descriptor.
struct Descriptor {
    start: u64,
    /// Strides of core matrices, along the contiguous axis and the other.
    leading: u64,
    stride: u64,
    swizzle: Swizzle,
}

impl Descriptor {
    fn decode(descriptor: u64) -> Check<Descriptor> {
        let field = |at: u32| (descriptor >> at & 0x3fff) << 4;
        let swizzle = match descriptor >> 62 {
            0 => Swizzle::None,
            1 => Swizzle::Bytes128,
            2 => Swizzle::Bytes64,
            _ => Swizzle::Bytes32,
        };
        if descriptor >> 49 & 7 != 0 {
            return problem(
                Fault::BadOperand,
                "a descriptor with a base offset; tiles must begin at multiples of their swizzle's pattern",
            );
        }
        Ok(Descriptor { start: field(0), leading: field(16), stride: field(32), swizzle })
    }

    /// The address of 16 bytes: row `row` of the operand, `chunk` along its depth (K-major); or
    /// depth `row`, `chunk` along its rows (MN-major).
    fn chunk(&self, row: u64, chunk: u64, transposed: bool) -> u64 {
        let span = self.swizzle.span();
        let at = match (span, transposed) {
            (0, false) => row / 8 * self.stride + chunk * self.leading + row % 8 * 16,
            (0, true) => chunk * self.stride + row / 8 * self.leading + row % 8 * 16,
            (_, false) => row / 8 * self.stride + row % 8 * span + chunk * 16,
            (_, true) => {
                let per = span / 16;
                chunk / per * self.leading + row / 8 * self.stride + row % 8 * span + chunk % per * 16
            }
        };
        self.swizzle.apply(self.start + at)
    }
}

impl Ctx<'_, '_> {
    pub(super) fn wgmma(&mut self, op: Op) -> Check<Flow> {
        match op {
            Op::WgmmaFence {} => {
                self.w.products.fences += 1;
                Ok(Flow::Next)
            }
            Op::WgmmaCommit {} => {
                let products = &mut self.w.products;
                let open = std::mem::take(&mut products.open);
                products.groups.push_back(open);
                products.count += 1;
                Ok(Flow::Next)
            }
            Op::WgmmaWait {} => self.wgmma_wait(self.immediate(0) as usize),
            Op::Wgmma { columns, kind } => self.product(columns, kind, false),
            Op::WgmmaRegisters { columns, kind } => self.product(columns, kind, true),
            _ => Ok(Flow::Next),
        }
    }

    /// Checks that accessed registers are not pending.
    pub(super) fn touch(&mut self) -> Check<()> {
        let inst = self.inst;
        for (r, written) in &inst.touched {
            let i = *r as usize;
            let products = &mut self.w.products;
            let result = products.result_of.get(i).copied().unwrap_or(0);
            let operand = products.operand_of.get(i).copied().unwrap_or(0);
            if result != 0 || (*written && operand != 0) {
                let name = self.run.code.names.get(i).cloned().unwrap_or_default();
                let what = if result != 0 { "the result" } else { "an operand" };
                let message = format!("register `{name}` is {what} of a pending wgmma; `wgmma.wait_group` first");
                return problem(Fault::MissingWait, message);
            }
            let fences = products.fences;
            if let Some(touched) = products.touched.get_mut(i) {
                *touched = fences;
            }
        }
        Ok(())
    }

    /// The value of an operand that must be uniform in all lanes.
    fn uniform(&self, n: usize) -> Check<u64> {
        let v = self.value(n)?;
        match lanes(self.mask).find(|lane| v[*lane as usize] != v[0]) {
            Some(lane) => at_lane(Fault::Divergence, lane, "lanes of a wgmma have different descriptors"),
            None => Ok(v[0]),
        }
    }

    fn product(&mut self, columns: Columns, kind: Wgmma, in_registers: bool) -> Check<Flow> {
        let d = self.list(0);
        let right = self.uniform(2)?;
        let left = if in_registers { Left::Registers(self.list(1)) } else { Left::Shared(self.uniform(1)?, false) };
        let adds = self.predicate(3)?;
        if adds != 0 && adds != u32::MAX {
            return problem(Fault::Divergence, "lanes of a wgmma disagree on scale-d");
        }
        let mut n = 4;
        let mut negative = false;
        if kind.has_scales() {
            negative = (self.immediate(4) as i64 == -1) != (self.immediate(5) as i64 == -1);
            n = 6;
        }
        let (mut left, mut right_transposed) = (left, false);
        if kind.has_transposes() {
            if let Left::Shared(_, transposed) = &mut left {
                *transposed = self.immediate(n) == 1;
                n += 1;
            }
            right_transposed = self.immediate(n) == 1;
        }
        self.in_step(
            match &left {
                Left::Shared(a, _) => *a,
                Left::Registers(_) => 0,
            },
            right,
        )?;
        let product = PendingWgmma {
            columns: u32::from(columns.0),
            kind,
            d,
            left,
            right,
            right_transposed,
            adds: adds != 0,
            negative,
        };
        self.check_registers(&product, columns)?;
        self.check_shared(&product)?;
        self.run.stats.matrix_products += 16 * u64::from(columns.0) * u64::from(kind.k());
        let group = self.w.products.count + 1;
        let products = &mut self.w.products;
        let fences = products.fences;
        for r in &product.d {
            products.result_of[*r as usize] = group;
            products.shape[*r as usize] = (fences, columns, Some(kind));
        }
        if let Left::Registers(list) = &product.left {
            list.iter().for_each(|r| products.operand_of[*r as usize] = group);
        }
        if !self.run.is_late() {
            self.compute(&product)?;
        }
        self.w.products.open.push(product);
        self.w.effects += 1;
        Ok(Flow::Next)
    }

    /// Checks that the four warps execute the same sequence.
    fn in_step(&mut self, a: u64, b: u64) -> Check<()> {
        let (group, n) = (self.w.number as usize / 4, self.w.number as usize % 4);
        if self.b.warps.len() < group * 4 + 4 {
            return problem(Fault::BadOperand, "this warp's warpgroup has fewer than four warps");
        }
        let this = (self.pc, a, b);
        let Some(sequence) = self.b.sequences.get_mut(group) else { return Ok(()) };
        match sequence.log.get(sequence.at[n]) {
            None => sequence.log.push(this),
            Some(other) if *other != this => {
                let line = self.run.code.lines.get(other.0 as usize).map_or(0, |l| l.0);
                let message = format!(
                    "another warp of the warpgroup executes the wgmma of line {line} here, with descriptors {:#x} and {:#x}",
                    other.1, other.2
                );
                return problem(Fault::Divergence, message);
            }
            Some(_) => {}
        }
        sequence.at[n] += 1;
        Ok(())
    }

    /// Checks that the registers of a `wgmma` are fenced and not pending.
    fn check_registers(&mut self, p: &PendingWgmma, columns: Columns) -> Check<()> {
        let products = &self.w.products;
        let name = |r: u32| self.run.code.names.get(r as usize).cloned().unwrap_or_default();
        let fences = products.fences;
        if fences == 1 {
            return problem(Fault::MissingWgmmaFence, "there is no `wgmma.fence` before the first wgmma");
        }
        let touched = |r: &&u32| products.touched.get(**r as usize) == Some(&fences);
        let operands: &[u32] = if let Left::Registers(list) = &p.left { list } else { &[] };
        if let Some(r) = p.d.iter().chain(operands).find(touched) {
            let message = format!("register `{}` was accessed since the last `wgmma.fence`", name(*r));
            return problem(Fault::MissingWgmmaFence, message);
        }
        for r in &p.d {
            let i = *r as usize;
            let (interval, shape, kind) = products.shape[i];
            if interval == fences && kind.is_some() && (shape, kind) != (columns, Some(p.kind)) {
                let message = format!(
                    "register `{}` is the result of a wgmma of another shape since the last `wgmma.fence`",
                    name(*r)
                );
                return problem(Fault::MissingWgmmaFence, message);
            }
            if products.operand_of[i] != 0 {
                return problem(
                    Fault::MissingWait,
                    format!("register `{}` is an operand of a pending wgmma", name(*r)),
                );
            }
            if p.adds && products.result_of[i] == 0 && self.w.known[i] & self.mask != self.mask {
                return problem(Fault::Uninitialised, format!("register `{}` has no value", name(*r)));
            }
        }
        for r in operands {
            if products.result_of[*r as usize] != 0 {
                return problem(
                    Fault::MissingWait,
                    format!("register `{}` is the result of a pending wgmma", name(*r)),
                );
            }
            self.register(*r, self.mask)?;
        }
        Ok(())
    }

    /// The 16-byte chunks of an operand: address, row and depth.
    fn chunks(p: &PendingWgmma, place: &Descriptor, first: u64, rows: u64, transposed: bool) -> Vec<(u64, u64, u64)> {
        let ty = operand_type(p.kind);
        let per = u64::from(16 / ty.bytes());
        let depth = u64::from(p.kind.k());
        let mut out = Vec::new();
        if transposed {
            for k in 0..depth {
                for chunk in first / per..(first + rows).div_ceil(per) {
                    out.push((place.chunk(k, chunk, true), chunk * per, k));
                }
            }
        } else {
            for row in first..first + rows {
                for chunk in 0..depth / per {
                    out.push((place.chunk(row, chunk, false), row, chunk * per));
                }
            }
        }
        out
    }

    /// Records the shared memory reads of a `wgmma`.
    fn check_shared(&mut self, p: &PendingWgmma) -> Check<()> {
        let lane = self.mask.trailing_zeros();
        let agent = self.b.products_agent(self.w.number);
        let label = self.agent_label(agent, self.w.products.count + 1);
        let know = Rc::clone(&self.w.know[lane as usize]);
        let thread = self.w.thread(lane);
        let mut operands = vec![(p.right, p.right_transposed, 0, u64::from(p.columns))];
        if let Left::Shared(a, transposed) = p.left {
            operands.push((a, transposed, u64::from(self.w.number % 4) * 16, 16));
        }
        for (descriptor, transposed, first, rows) in operands {
            let place = Descriptor::decode(descriptor)?;
            for (address, _, _) in Self::chunks(p, &place, first, rows, transposed) {
                let at = self.shared_at(lane, address, 16, 16)?;
                let access =
                    Access { label, know: &know, reach: Reach::Plain, is_async: true, thread, own: self.b.number };
                if let Err(c) = self.b.shared.shadow.note(at, 16, false, &access) {
                    return Err(conflict(self.b, c, false, true, lane, shared_address(c.at)));
                }
                if !self.b.shared.is_known(at, 16) && !self.run.is_late() {
                    return at_address(
                        Fault::Uninitialised,
                        lane,
                        address,
                        "the wgmma reads uninitialised shared memory",
                    );
                }
            }
        }
        Ok(())
    }

    /// The elements of an operand, row by row.
    fn matrix_of(&self, p: &PendingWgmma, descriptor: u64, first: u64, rows: u64, transposed: bool) -> Check<Vec<f64>> {
        let ty = operand_type(p.kind);
        let (per, depth) = (16 / ty.bytes(), u64::from(p.kind.k()));
        let place = Descriptor::decode(descriptor)?;
        let mut out = vec![0.0; (rows * depth) as usize];
        for (address, row, k) in Self::chunks(p, &place, first, rows, transposed) {
            let at = address as usize - SHARED_BASE as usize;
            if !self.b.shared.is_known(at, 16) {
                let lane = self.mask.trailing_zeros();
                return at_address(Fault::Uninitialised, lane, address, "the wgmma reads uninitialised shared memory");
            }
            for n in 0..per {
                let bytes = ty.bytes() as usize;
                let v = element(self.b.shared.load(at + n as usize * bytes, bytes).unwrap_or(0), 0, ty);
                let (row, k) = if transposed { (row + u64::from(n), k) } else { (row, k + u64::from(n)) };
                if let Some(to) = row.checked_sub(first).and_then(|row| out.get_mut((row * depth + k) as usize)) {
                    *to = v;
                }
            }
        }
        Ok(out)
    }

    fn compute(&mut self, p: &PendingWgmma) -> Check<()> {
        let ty = operand_type(p.kind);
        let depth = p.kind.k() as usize;
        let left = match &p.left {
            Left::Registers(list) => {
                let values: Vec<V> = list.iter().map(|r| self.register(*r, self.mask)).collect::<Check<_>>()?;
                rows_of_a(&values, ty, depth)
            }
            Left::Shared(a, transposed) => self.matrix_of(p, *a, u64::from(self.w.number % 4) * 16, 16, *transposed)?,
        };
        let right = self.matrix_of(p, p.right, 0, u64::from(p.columns), p.right_transposed)?;
        let (d_type, _) = p.kind.d(Columns(p.columns as u16));
        let packed = d_type == Type::F16x2;
        let scalar = if packed { Type::F16 } else { d_type };
        for (r, register) in p.d.iter().enumerate() {
            let old: V = if p.adds { self.register(*register, self.mask)? } else { [0; 32] };
            let new = std::array::from_fn(|lane| {
                let one = |i: usize, old: u64| {
                    let row = lane / 4 + 8 * (i >> 1 & 1);
                    let column = 8 * (i >> 2) + 2 * (lane % 4) + (i & 1);
                    let sum = dot(&left[row * depth..][..depth], &right[column * depth..][..depth]);
                    let old = if p.adds { accumulator(old, scalar) } else { 0.0 };
                    result(old + if p.negative { -sum } else { sum }, scalar)
                };
                if packed {
                    one(2 * r + 1, old[lane] >> 16) << 16 | one(2 * r, zero(old[lane], 16))
                } else {
                    one(r, old[lane])
                }
            });
            self.set_register(*register, &new);
        }
        Ok(())
    }

    fn wgmma_wait(&mut self, most: usize) -> Check<Flow> {
        while self.w.products.groups.len() > most {
            let group = self.w.products.groups.pop_front().unwrap_or_default();
            if self.run.is_late() {
                for p in &group {
                    self.compute(p)?;
                }
            }
        }
        let products = &mut self.w.products;
        let done = products.count - products.groups.len() as u32;
        for of in products.result_of.iter_mut().chain(&mut products.operand_of) {
            if *of <= done {
                *of = 0;
            }
        }
        let agent = self.b.products_agent(self.w.number);
        let mut last: Option<(Rc<Know>, Rc<Know>)> = None;
        for lane in lanes(self.mask) {
            let Some(know) = self.w.know.get_mut(lane as usize) else { continue };
            if done == 0 || know.has(agent, done) {
                continue;
            }
            if let Some((before, after)) = &last
                && Rc::ptr_eq(before, know)
            {
                *know = Rc::clone(after);
                continue;
            }
            let before = Rc::clone(know);
            let mut new = Know::clone(know);
            new.add(agent, done);
            *know = Rc::new(new);
            last = Some((before, Rc::clone(know)));
        }
        Ok(Flow::Next)
    }
}

/// The type of the operands.
fn operand_type(kind: Wgmma) -> Type {
    match kind {
        Wgmma::F32Bf16 => Type::Bf16,
        Wgmma::F32F16 | Wgmma::F16F16 => Type::F16,
        Wgmma::F32Tf32 => Type::Tf32,
        Wgmma::S32S8 => Type::S8,
    }
}
