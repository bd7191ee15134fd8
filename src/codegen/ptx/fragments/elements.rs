//! Elementwise work on fragments, and reductions along rows.
//!
//! In: a stretch of consecutive elementwise operations, and the stores of its results. Out: their
//! instructions, one element at a time through all of them, so that few values are live at once.
//! Values that are the same for a row or a column are computed once for each row or column of the
//! thread.
//!
//! A stretch with stores, the epilogue of a matmul, processes the accumulator in chunks of columns:
//!
//! ```text
//! for each chunk:  read what the chunk needs of other tensors;  for each 8 columns of it:  compute;  store
//! ```
//!
//! An accumulator of 64 x 256 takes 128 registers of a thread, and ptxas hoists loads as far as
//! possible, which caused spills. So at most [`IN_FLIGHT`] registers are loaded at a time; each
//! further chunk waits for memory once more. ptxas does not hoist the loads of all chunks because
//! they are plain `ld.global`, which may alias the stores before them. `ld.global.nc` would promise
//! that they do not.

use std::collections::{BTreeSet, HashMap};

use super::code::{Code, Number, ValueLocation, float, int, register_type, word};
use super::layout::{Share, steps_of};
use super::memory::{Reading, Storing};
use crate::codegen::ptx::lanes::Lane;
use crate::ptx::words::{Compare, Ftz, Nan, Relu, Round, Sat, Shuffle, Vote};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as W};
use crate::scalar::{BinaryOp, ReduceKind, UnaryOp};
use crate::shape::Elem;
use crate::ssa::Use;
use crate::tile::{Extent, Fragment, GpuOp, Inst, InstData, Op, Space, TileType, Type, Value};

/// Independent partial results of a reduction, to hide latency.
const CHAINS: usize = 4;
/// Registers of a thread for an epilogue's loads: with 128 sums, 16 of the 240 registers of a
/// `wgmma` thread remain. A bias and a 16-bit residual fit in one chunk. (With 128 ptxas 13.0
/// spilled nothing either; with 192, three tensors at once, 448 bytes.)
const IN_FLIGHT: usize = 96;
/// All lanes of a warp.
pub(super) const ALL_LANES: i64 = 0xffff_ffff;

/// Shape of a tile of fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FragmentShape {
    Whole,
    /// A column of one element for each row.
    Row,
    /// A row of one element for each column.
    Col,
    /// A single element, the same in all threads.
    One,
}

/// State of compiling a stretch.
struct Stretch {
    /// Operations by result.
    makers: HashMap<Value, Inst>,
    /// Elements computed so far.
    made: HashMap<(Value, usize), Reg>,
    readings: HashMap<Inst, Reading>,
}

fn kind(t: &TileType) -> FragmentShape {
    let one = Extent::Static(1);
    match (t.rows == one, t.cols == one) {
        (true, true) => FragmentShape::One,
        (false, true) => FragmentShape::Row,
        (true, false) => FragmentShape::Col,
        (false, false) => FragmentShape::Whole,
    }
}

impl Code<'_> {
    /// Is an operation elementwise work on fragments?
    pub(super) fn is_element_work(&self, inst: Inst) -> bool {
        let data = self.body.inst(inst);
        let makes = data.result.and_then(|v| self.body.ty(v).tile());
        let is_fragment = makes.is_some_and(|t| matches!(t.space, Space::Fragment(_)));
        is_fragment
            && matches!(
                data.op,
                Op::Unary(_)
                    | Op::Binary(_)
                    | Op::Compare(_)
                    | Op::Select
                    | Op::Cast
                    | Op::Narrow { .. }
                    | Op::Copy
                    | Op::Full
                    | Op::Iota { .. }
                    | Op::Load { .. }
            )
    }

    /// Number of registers of a thread for a tile of fragments, and whether it is a matmul operand.
    pub(super) fn registers_of(&self, t: &TileType) -> Result<(usize, bool), String> {
        let share = self.share(t)?;
        let Space::Fragment(f) = t.space else { return Err("the tile is not of fragments".into()) };
        Ok(match f {
            Fragment::Acc | Fragment::Quads | Fragment::Row | Fragment::Col => (self.element_count(t)?, false),
            Fragment::A => {
                (usize::try_from(share.row_blocks() * (share.cols / steps_of(t.elem)) * 4).unwrap_or(0), true)
            }
            Fragment::B | Fragment::BT => {
                return Err("a right operand cannot be an argument of a block".into());
            }
        })
    }

    /// Number of elements of a thread.
    fn element_count(&self, t: &TileType) -> Result<usize, String> {
        let share = self.share(t)?;
        let aligned = |whole: bool| if whole { Ok(()) } else { Err(format!("{t} is not made of whole blocks")) };
        Ok(match kind(t) {
            FragmentShape::Whole => {
                aligned(share.is_whole())?;
                share.registers()
            }
            FragmentShape::Row => {
                aligned(Share { cols: 8, ..share }.is_whole())?;
                share.row_count()
            }
            FragmentShape::Col => {
                aligned(share.cols % 8 == 0)?;
                share.col_count()
            }
            FragmentShape::One => 1,
        })
    }

    /// Number of leading operations that form one stretch: elementwise work, operations that only
    /// compute indices or scalars, and stores, with at least one store. A load from memory that the
    /// kernel writes ends the stretch, since it must stay ordered with stores.
    pub(super) fn stored_stretch(&self, insts: &[Inst]) -> usize {
        let belongs = |i: &&Inst| {
            let data = self.body.inst(**i);
            let buffer = data.operands.first();
            match data.op {
                Op::Store { .. } => true,
                Op::Load { .. } => self.is_element_work(**i) && buffer.is_some_and(|b| self.is_only_read(*b)),
                _ => self.is_element_work(**i) || self.is_made_of_scalars(**i),
            }
        };
        let count = insts.iter().take_while(belongs).count();
        let stores = |i: &Inst| matches!(self.body.inst(*i).op, Op::Store { .. });
        insts.iter().take(count).rposition(stores).map_or(0, |last| last + 1)
    }

    /// Does an operation compute an index or a scalar without reading memory?
    fn is_made_of_scalars(&self, inst: Inst) -> bool {
        let data = self.body.inst(inst);
        let is_scalar = |v: &Value| matches!(self.body.ty(*v), Type::Index | Type::Scalar(_));
        data.result.iter().chain(&data.operands).all(is_scalar)
            && data.result.is_some()
            && data.op != Op::Gpu(GpuOp::Blocks)
    }

    /// Compiles a stretch.
    pub(super) fn stretch(&mut self, insts: &[Inst]) -> Result<(), String> {
        let inside: BTreeSet<Inst> = insts.iter().copied().collect();
        let mut s = Stretch { makers: HashMap::new(), made: HashMap::new(), readings: HashMap::new() };
        let mut wanted = Vec::new();
        for i in insts {
            if self.is_made_of_scalars(*i) {
                let data = self.body.inst(*i).clone();
                self.instruction(*i, &data)?;
                continue;
            }
            self.note(*i);
            let Some(v) = self.body.inst(*i).result else { continue };
            s.makers.insert(v, *i);
            let leaves = self.uses[v].iter().any(|u| !matches!(u, Use::Operand(i, _) if inside.contains(i)));
            if leaves {
                wanted.push(v);
            }
        }
        let mut stores = Vec::new();
        for i in insts {
            let data = self.body.inst(*i).clone();
            if matches!(data.op, Op::Store { .. }) {
                let mut store = self.storing(&data)?;
                // The store rounds to its type itself.
                if let Some(maker) = s.makers.get(&store.value).map(|i| self.body.inst(*i))
                    && maker.op == (Op::Narrow { elem: store.elem() })
                {
                    store.value = *maker.operands.first().ok_or("an operand is missing")?;
                }
                stores.push(store);
            }
        }
        let is_dropped = wanted.is_empty() && !stores.is_empty();
        for i in insts {
            let data = self.body.inst(*i).clone();
            if let (Op::Load { .. }, Some(v)) = (&data.op, data.result) {
                let t = self.tile(v)?.clone();
                let reading = self.reading(&data, &t, is_dropped)?;
                s.readings.insert(*i, reading);
            }
        }
        let mut whole: Vec<(Value, Share)> = Vec::new();
        for v in &wanted {
            let t = self.tile(*v)?;
            if kind(t) == FragmentShape::Whole {
                self.element_count(t)?;
                whole.push((*v, self.share(t)?));
                continue;
            }
            let mut list = Vec::new();
            for n in 0..self.element_count(t)? {
                list.push(self.element(&mut s, *v, n)?);
            }
            self.held.insert(*v, ValueLocation::Elements(list));
        }
        // Accumulators of the same extents are processed together.
        while let Some(share) = whole.first().map(|(_, s)| *s).or(stores.first().map(|s| s.share)) {
            let values = whole.iter().filter(|(_, s)| *s == share).map(|(v, _)| *v).collect();
            whole.retain(|(_, s)| *s != share);
            let (these, others) = stores.into_iter().partition(|s| s.share == share);
            stores = others;
            self.accumulators(&mut s, share, values, these)?;
        }
        Ok(())
    }

    /// Computes the elements of a stretch's accumulators, a block of 8 columns at a time, so that
    /// values per column, such as masks, are short-lived.
    fn accumulators(
        &mut self,
        s: &mut Stretch,
        share: Share,
        values: Vec<Value>,
        mut stores: Vec<Storing>,
    ) -> Result<(), String> {
        let chunk = if stores.is_empty() { 0 } else { self.chunk(s, share)? };
        let mut lists: Vec<Vec<Option<Reg>>> = vec![vec![None; share.registers()]; values.len()];
        for col in 0..share.col_blocks() {
            if chunk > 0 && col % chunk == 0 {
                for block in col..(col + chunk).min(share.col_blocks()) {
                    self.read_ahead(s, share, block)?;
                }
            }
            let own = (0..share.row_blocks()).flat_map(|row| (0..4).map(move |e| share.register(row, col, e)));
            for n in own.clone() {
                for (v, list) in values.iter().zip(&mut lists) {
                    let r = self.element(s, *v, n)?;
                    if let Some(place) = list.get_mut(n) {
                        *place = Some(r);
                    }
                }
            }
            for store in &mut stores {
                let mut elements = HashMap::new();
                for n in own.clone() {
                    elements.insert(n, self.element(s, store.value, n)?);
                }
                self.store(store, col, &elements)?;
            }
            s.made.retain(|(v, _), _| {
                let t = self.body.ty(*v).tile();
                t.is_none_or(|t| kind(t) == FragmentShape::Row || kind(t) == FragmentShape::One || t.elem != Elem::Bool)
            });
        }
        for (v, list) in values.into_iter().zip(lists) {
            let list = list.into_iter().collect::<Option<Vec<Reg>>>().ok_or("an element is missing")?;
            self.held.insert(v, ValueLocation::Elements(list));
        }
        Ok(())
    }

    /// Does a load read different elements for each block of columns of an accumulator?
    fn is_of_columns(&self, r: &Reading, share: Share) -> Result<bool, String> {
        let of = self.share(r.tile())?;
        Ok(match kind(r.tile()) {
            FragmentShape::Whole => of == share,
            FragmentShape::Col => of.cols == share.cols,
            FragmentShape::Row | FragmentShape::One => false,
        })
    }

    /// Number of column blocks per chunk of a stretch with stores: all chunks have the same length.
    /// With several chunks, loads must follow the stores of the previous chunk.
    fn chunk(&self, s: &mut Stretch, share: Share) -> Result<i64, String> {
        let mut registers = 0;
        for r in s.readings.values() {
            registers += if self.is_of_columns(r, share)? { r.registers(share) } else { 0 };
        }
        let blocks = usize::try_from(share.col_blocks()).unwrap_or(0).max(1);
        let most = IN_FLIGHT.checked_div(registers).unwrap_or(blocks).clamp(1, blocks);
        let chunks = blocks.div_ceil(most);
        if chunks > 1 {
            s.readings.values_mut().for_each(Reading::bind);
        }
        Ok(i64::try_from(blocks.div_ceil(chunks)).unwrap_or(1))
    }

    /// Loads the inputs of a stretch for a block of columns.
    fn read_ahead(&mut self, s: &mut Stretch, share: Share, block: i64) -> Result<(), String> {
        let mut insts: Vec<Inst> = s.readings.keys().copied().collect();
        insts.sort();
        for i in insts {
            let Some(mut r) = s.readings.remove(&i) else { continue };
            if self.is_of_columns(&r, share)? {
                let is_whole = kind(r.tile()) == FragmentShape::Whole;
                for (row, e) in (0..share.row_blocks()).flat_map(|row| (0..4).map(move |e| (row, e))) {
                    let n = share.register(row, block, e);
                    self.load_ahead(&mut r, if is_whole { n } else { share.col_of(n) })?;
                }
            }
            s.readings.insert(i, r);
        }
        Ok(())
    }

    /// An element of a tile, computed by the stretch or already in registers.
    fn element(&mut self, s: &mut Stretch, v: Value, n: usize) -> Result<Reg, String> {
        if let Some(r) = s.made.get(&(v, n)) {
            return Ok(*r);
        }
        let Some(inst) = s.makers.get(&v).copied() else {
            let list = self.elements(v)?;
            return list.get(n).copied().ok_or_else(|| format!("{v} has no element {n}"));
        };
        let data = self.body.inst(inst).clone();
        let t = self.tile(v)?.clone();
        let name = self.name(v);
        let r = match &data.op {
            Op::Full => self.scalar(*data.operands.first().ok_or("an operand is missing")?)?,
            Op::Iota { axis } => {
                let start = self.index(*data.operands.first().ok_or("an operand is missing")?)?;
                self.counted(&name, start, *axis, &t, n)?
            }
            Op::Load { .. } => {
                let mut r = s.readings.remove(&inst).ok_or("a load outside of the stretch")?;
                let x = self.load_element(&mut r, n)?;
                s.readings.insert(inst, r);
                x
            }
            Op::Unary(UnaryOp::Exp2) => match self.exponent(s, &data, &t, n)? {
                Some(r) => r,
                None => {
                    let x = self.operand_element(s, &data, 0, &t, n)?;
                    self.apply(&name, &data.op, Elem::F32, t.elem, &[x])?
                }
            },
            op => {
                let mut regs = Vec::new();
                for k in 0..data.operands.len() {
                    regs.push(self.operand_element(s, &data, k, &t, n)?);
                }
                let from = data.operands.first().and_then(|v| self.body.ty(*v).elem()).unwrap_or(Elem::F32);
                self.apply(&name, op, from, t.elem, &regs)?
            }
        };
        s.made.insert((v, n), r);
        Ok(r)
    }

    /// The element of an operand (possibly broadcast) for an element of the result.
    fn operand_element(
        &mut self,
        s: &mut Stretch,
        data: &InstData,
        k: usize,
        of: &TileType,
        n: usize,
    ) -> Result<Reg, String> {
        let v = *data.operands.get(k).ok_or("an operand is missing")?;
        let Type::Tile(t) = self.body.ty(v) else { return self.scalar(v) };
        let share = self.share(of)?;
        let n = match (kind(of), kind(t)) {
            (a, b) if a == b => n,
            (FragmentShape::Whole, FragmentShape::Row) => share.row_of(n),
            (FragmentShape::Whole, FragmentShape::Col) => share.col_of(n),
            (_, FragmentShape::One) => 0,
            _ => return Err(format!("{v} cannot be broadcast to the result")),
        };
        self.element(s, v, n)
    }

    /// Matches `2^(a b - c)`: product and difference become one FMA, rounded once.
    fn exponent(&mut self, s: &mut Stretch, data: &InstData, t: &TileType, n: usize) -> Result<Option<Reg>, String> {
        let inner = |v: Option<&Value>, code: &Code<'_>| -> Option<InstData> {
            let inst = s.makers.get(v?)?;
            let once = code.uses[*v?].len() == 1;
            once.then(|| code.body.inst(*inst).clone())
        };
        let Some(sub) = inner(data.operands.first(), self).filter(|d| d.op == Op::Binary(BinaryOp::Sub)) else {
            return Ok(None);
        };
        let Some(mul) = inner(sub.operands.first(), self).filter(|d| d.op == Op::Binary(BinaryOp::Mul)) else {
            return Ok(None);
        };
        let a = self.operand_element(s, &mul, 0, t, n)?;
        let b = self.operand_element(s, &mul, 1, t, n)?;
        // Each row's base is negated once.
        let base = *sub.operands.get(1).ok_or("an operand is missing")?;
        let c = self.operand_element(s, &sub, 1, t, n)?;
        let key = match self.body.ty(base) {
            Type::Tile(of) if kind(of) == FragmentShape::Row && kind(t) == FragmentShape::Whole => {
                self.share(t)?.row_of(n)
            }
            _ => n,
        };
        let negated = (sub.result.unwrap_or(base), usize::MAX - key);
        let c = match s.made.get(&negated) {
            Some(r) => *r,
            None => {
                let r = self.make("minus", RegType::F32, P::NegFloat { ftz: Ftz::Keep, ty: W::F32 }, &[word(c)]);
                s.made.insert(negated, r);
                r
            }
        };
        let x = self.make("x", RegType::F32, FMA, &[word(a), word(b), word(c)]);
        let name = data.result.map_or_else(String::new, |v| self.name(v));
        Ok(Some(self.power(&name, x)))
    }

    /// 2 to the power of a register: a relative error of 2.5 * 2^-23.
    fn power(&mut self, name: &str, x: Reg) -> Reg {
        self.make(name, RegType::F32, P::Ex2Approx { ftz: Ftz::Flush, ty: W::F32 }, &[word(x)])
    }

    /// `sigmoid(x)`, or a product of `x` and the sigmoid of a polynomial, with `ex2.approx` and
    /// `rcp.approx`: `1 / (1 + 2^e)`, where `e` is `-log2(e)` times the polynomial. In 9
    /// instructions at most, because an epilogue has this for each element of a large tile, and
    /// tens of KiB of straight code are fetched more slowly than they are executed.
    fn gate(&mut self, name: &str, op: UnaryOp, x: Reg) -> Reg {
        const NEGATED: f32 = -std::f32::consts::LOG2_E;
        // 2 sqrt(2 / pi), for `gelu_tanh`: x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)).
        const INNER: f32 = 1.595_769 * NEGATED;
        let f32 = RegType::F32;
        // A gated value is 0 long before this; there, infinity would be multiplied by 0.
        let x = match op {
            UnaryOp::Sigmoid => x,
            _ => {
                let ty = W::F32;
                self.make("x", f32, P::MaxFloat { ftz: Ftz::Keep, nan: Nan::Nan, ty }, &[word(x), float(-512.0)])
            }
        };
        let exponent = if op == UnaryOp::GeluTanh {
            let square = self.make("square", f32, MUL, &[word(x), word(x)]);
            let factor = self.make("factor", f32, FMA, &[word(square), float(0.044_715 * INNER), float(INNER)]);
            self.make("e", f32, MUL, &[word(factor), word(x)])
        } else {
            self.make("e", f32, MUL, &[word(x), float(NEGATED)])
        };
        let gate = self.logistic(exponent);
        if op == UnaryOp::Sigmoid { gate } else { self.make(name, f32, MUL, &[word(x), word(gate)]) }
    }

    /// `1 / (1 + 2^e)`
    fn logistic(&mut self, exponent: Reg) -> Reg {
        let power = self.power("power", exponent);
        let sum = self.make("sum", RegType::F32, ADD, &[word(power), float(1.0)]);
        self.make("gate", RegType::F32, P::RcpApprox { ftz: Ftz::Flush }, &[word(sum)])
    }

    /// `tanh(x)` as `1 - 2 / (1 + e^2|x|)` with the sign of `x`; for `|x| < 1/4` as its series up
    /// to `x^7`, with a truncation error of `2^-21`.
    fn tanh(&mut self, name: &str, x: Reg) -> Reg {
        let (f32, ty) = (RegType::F32, W::F32);
        let magnitude = self.make("magnitude", f32, P::AbsFloat { ftz: Ftz::Keep, ty }, &[word(x)]);
        let exponent = self.make("e", f32, MUL, &[word(magnitude), float(2.0 * std::f32::consts::LOG2_E)]);
        let gate = self.logistic(exponent);
        let far = self.make("far", f32, FMA, &[word(gate), float(-2.0), float(1.0)]);
        let square = self.make("square", f32, MUL, &[word(x), word(x)]);
        let series = self.make("series", f32, FMA, &[word(square), float(-17.0 / 315.0), float(2.0 / 15.0)]);
        let series = self.make("series", f32, FMA, &[word(series), word(square), float(-1.0 / 3.0)]);
        let cube = self.make("cube", f32, MUL, &[word(square), word(magnitude)]);
        let near = self.make("near", f32, FMA, &[word(series), word(cube), word(magnitude)]);
        let less = P::SetP { compare: Compare::Lt, ftz: Ftz::Keep, ty };
        let is_near = self.make("is_near", RegType::Pred, less, &[word(magnitude), float(0.25)]);
        let chosen = self.make("chosen", f32, P::SelP { ty }, &[word(near), word(far), word(is_near)]);
        // The first operand gives the sign.
        self.make(name, f32, P::CopySign { ty }, &[word(x), word(chosen)])
    }

    /// `start` plus the index along an axis.
    fn counted(&mut self, name: &str, start: Number, axis: usize, t: &TileType, n: usize) -> Result<Reg, String> {
        let share = self.share(t)?;
        let (place, own) = match (axis, kind(t)) {
            (1, FragmentShape::Col) => (Share::col_place(n), self.group.col),
            (1, FragmentShape::Whole) => (share.place(n).col, self.group.col),
            (0, FragmentShape::Row | FragmentShape::Whole) => {
                let place = if kind(t) == FragmentShape::Row { Share::row_place(n) } else { share.place(n).row };
                (place, self.row_in_tile(share))
            }
            _ => return self.number_as(name, start, t.elem),
        };
        if t.elem == Elem::I64 {
            let own = self.widened(name, own);
            let at = self.arithmetic(name, BinaryOp::Add, Number::Reg(own), start)?;
            let at = self.arithmetic(name, BinaryOp::Add, at, Number::Known(place))?;
            return Ok(self.in_register(name, at));
        }
        let start = match start {
            Number::Known(k) => int(i64::from((k + place) as i32)),
            Number::Reg(_) => {
                let low = self.low32(name, start);
                let r = self.in_register32(name, low);
                word(self.add32(name, r, int(place)))
            }
        };
        Ok(self.add32(name, own, start))
    }

    /// The first row of this thread in a tile.
    pub(super) fn row_in_tile(&mut self, share: Share) -> Reg {
        let (warp, row) = (self.group.warp, self.group.row);
        let first = self.mul32("warp_row", warp, share.warp_rows());
        self.add32("thread_row", first, word(row))
    }

    /// An operation on elements.
    pub(super) fn apply(&mut self, name: &str, op: &Op, from: Elem, to: Elem, x: &[Reg]) -> Result<Reg, String> {
        let at = |n: usize, elem: Elem| -> Result<Lane, String> {
            let r = *x.get(n).ok_or("an operand is missing")?;
            Ok(Lane { value: word(r), elem: elem.computed() })
        };
        let made = match op {
            Op::Unary(UnaryOp::Exp2) if from == Elem::F32 => {
                return Ok(self.power(name, *x.first().ok_or("no operand")?));
            }
            Op::Unary(UnaryOp::Exp) if from == Elem::F32 => {
                let x = self.make("x", RegType::F32, MUL, &[at(0, from)?.value, float(std::f32::consts::LOG2_E)]);
                return Ok(self.power(name, x));
            }
            Op::Unary(op @ (UnaryOp::Sigmoid | UnaryOp::Silu | UnaryOp::GeluTanh)) if from == Elem::F32 => {
                return Ok(self.gate(name, *op, *x.first().ok_or("no operand")?));
            }
            Op::Unary(UnaryOp::Tanh) if from == Elem::F32 => {
                return Ok(self.tanh(name, *x.first().ok_or("no operand")?));
            }
            Op::Unary(op) => self.e.unary(name, *op, &at(0, from)?)?,
            Op::Binary(op) => self.e.binary(name, *op, &at(0, from)?, &at(1, from)?)?,
            Op::Compare(op) => self.e.compare_lanes(name, *op, &at(0, from)?, &at(1, from)?),
            Op::Select => self.e.select_lanes(name, &at(0, Elem::Bool)?, &at(1, to)?, &at(2, to)?),
            Op::Cast => self.e.cast(name, &at(0, from)?, to),
            Op::Narrow { elem } => self.e.narrow(name, &at(0, from)?, *elem),
            Op::Copy => at(0, to)?,
            other => return Err(format!("{} of {from} in a kernel of fragments", other.info().name)),
        };
        // Matmuls may accumulate in a value's registers, so values never share registers.
        Ok(match made.value {
            Operand::Reg(r) if !x.contains(&r) => r,
            other => self.make(name, register_type(to), P::Mov { ty: super::code::moved_type(to) }, &[other]),
        })
    }

    /// Widens a 16-bit float to `f32`.
    pub(super) fn widened_half(&mut self, name: &str, r: Reg, elem: Elem) -> Reg {
        if elem == Elem::F16 {
            return self.make(name, RegType::F32, P::CvtWiden { ftz: Ftz::Keep, to: W::F32, from: W::F16 }, &[word(r)]);
        }
        let zero = self.make("zero", RegType::B16, P::Mov { ty: W::B16 }, &[int(0)]);
        let bits = self.make(name, RegType::B32, P::Pack { ty: W::B32 }, &[crate::ptx::Operand::Vector(vec![zero, r])]);
        self.make(name, RegType::F32, P::Mov { ty: W::B32 }, &[word(bits)])
    }

    /// A reduction of an accumulator along its rows; the result is the same in the four lanes of a
    /// quad.
    pub(super) fn reduce(&mut self, data: &InstData) -> Result<(), String> {
        let what = match data.op {
            Op::Reduce { kind, axis: 1 } => kind,
            Op::Reduce { kind: ReduceKind::Any, axis: 0 } => return self.any_row(data),
            _ => return Err("a reduction along columns in a kernel of fragments".into()),
        };
        let (x, v) = (*data.operands.first().ok_or("an operand is missing")?, data.result.ok_or("no result")?);
        let t = self.tile(x)?.clone();
        let (share, list, name) = (self.share(&t)?, self.elements(x)?, self.name(v));
        // A row with one element per column is the same in all quads.
        let rows = match kind(&t) {
            FragmentShape::Whole => share.row_count(),
            FragmentShape::Col => 1,
            FragmentShape::Row | FragmentShape::One => {
                return Err(format!("a reduction of {t} in a kernel of fragments"));
            }
        };
        let (ty, op) = match (what, t.elem) {
            (ReduceKind::Sum, Elem::F32) => (RegType::F32, ADD),
            (ReduceKind::Max, Elem::F32) => (RegType::F32, P::MaxFloat { ftz: Ftz::Keep, nan: Nan::Nan, ty: W::F32 }),
            (ReduceKind::Min, Elem::F32) => (RegType::F32, P::MinFloat { ftz: Ftz::Keep, nan: Nan::Nan, ty: W::F32 }),
            (ReduceKind::Max, Elem::I32) => (RegType::B32, P::Max { ty: W::S32 }),
            (ReduceKind::Min, Elem::I32) => (RegType::B32, P::Min { ty: W::S32 }),
            (ReduceKind::Any, Elem::Bool) if rows == 1 => (RegType::Pred, P::Or { ty: W::Pred }),
            _ => return Err(format!("{} of {t} in a kernel of fragments", what.name())),
        };
        let mut out = Vec::new();
        for row in 0..rows {
            let is_here = |n: usize| rows == 1 || share.row_of(n) == row;
            let of_row: Vec<Reg> = list.iter().enumerate().filter(|(n, _)| is_here(*n)).map(|(_, r)| *r).collect();
            let mut chains: Vec<Reg> = Vec::new();
            for (n, r) in of_row.iter().enumerate() {
                match chains.get(n % CHAINS).copied() {
                    None => chains.push(*r),
                    Some(chain) => {
                        let next = self.make(&name, ty, op, &[word(chain), word(*r)]);
                        if let Some(place) = chains.get_mut(n % CHAINS) {
                            *place = next;
                        }
                    }
                }
            }
            while chains.len() > 1 {
                let pairs: Vec<Vec<Reg>> = chains.chunks(2).map(<[Reg]>::to_vec).collect();
                chains.clear();
                for pair in pairs {
                    chains.push(match pair.as_slice() {
                        [a, b] => self.make(&name, ty, op, &[word(*a), word(*b)]),
                        other => *other.first().ok_or("a row without elements")?,
                    });
                }
            }
            let mut sum = *chains.first().ok_or("a row without elements")?;
            if ty == RegType::Pred {
                let any = P::Vote { vote: Vote::Any };
                out.push(self.make(&name, ty, any, &[word(sum), int(ALL_LANES)]));
                continue;
            }
            for lanes in [1, 2] {
                let other = self.make(
                    &name,
                    ty,
                    P::Shfl { mode: Shuffle::Butterfly },
                    &[word(sum), int(lanes), int(31), int(ALL_LANES)],
                );
                sum = self.make(&name, ty, op, &[word(sum), word(other)]);
            }
            out.push(sum);
        }
        self.held.insert(v, ValueLocation::Elements(out));
        Ok(())
    }

    /// Does a condition hold for any row? The result is uniform in all warps that share the rows.
    fn any_row(&mut self, data: &InstData) -> Result<(), String> {
        let (x, v) = (*data.operands.first().ok_or("an operand is missing")?, data.result.ok_or("no result")?);
        let (list, name) = (self.elements(x)?, self.name(v));
        let mut any = *list.first().ok_or("a column without rows")?;
        for r in list.iter().skip(1) {
            any = self.make(&name, RegType::Pred, P::Or { ty: W::Pred }, &[word(any), word(*r)]);
        }
        let (barrier, threads) = (self.group.barrier, 32 * self.group.warps);
        let any = self.make(&name, RegType::Pred, P::BarAny {}, &[int(barrier), int(threads), word(any)]);
        self.held.insert(v, ValueLocation::Elements(vec![any]));
        Ok(())
    }

    /// Converts an accumulator to a 16-bit left operand.
    pub(super) fn pack(&mut self, data: &InstData) -> Result<(), String> {
        let (x, v) = (*data.operands.first().ok_or("an operand is missing")?, data.result.ok_or("no result")?);
        let (share, list, name) = (self.share(self.tile(x)?)?, self.elements(x)?, self.name(v));
        let elem = self.tile(v)?.elem;
        let mut out = Vec::new();
        for row in 0..share.row_blocks() {
            for step in 0..share.cols / 16 {
                // Registers of A: rows g and g + 8 of the first 8 steps, then of the other 8.
                for (half, below) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let at = |e: i64| {
                        let n = share.register(row, 2 * step + half, 2 * below + e);
                        list.get(n).copied().ok_or("an element is missing")
                    };
                    let (low, high) = (at(0)?, at(1)?);
                    out.push(self.pair(&name, low, high, elem));
                }
            }
        }
        self.held.insert(v, ValueLocation::Operand(out));
        Ok(())
    }

    /// Rounds two floats to 16 bits and packs them into one register.
    pub(super) fn pair(&mut self, name: &str, low: Reg, high: Reg, elem: Elem) -> Reg {
        let to = if elem == Elem::BF16 { W::Bf16x2 } else { W::F16x2 };
        let op = P::CvtPack { round: Round::Nearest, relu: Relu::No, to };
        self.make(name, RegType::B32, op, &[word(high), word(low)])
    }

    /// Is 0 <= index < bound? One unsigned comparison: negative numbers are above all bounds.
    pub(super) fn inside(&mut self, name: &str, a: Reg, bound: Number) -> Reg {
        let bound = self.operand(bound);
        let op = P::SetP { compare: Compare::Lt, ftz: Ftz::Keep, ty: W::U64 };
        self.make(name, RegType::Pred, op, &[word(a), bound])
    }
}

const ADD: P = P::AddFloat { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, ty: W::F32 };
const MUL: P = P::MulFloat { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, ty: W::F32 };
const FMA: P = P::Fma { round: Round::Nearest, ftz: Ftz::Keep, sat: Sat::Wrap, relu: Relu::No, ty: W::F32 };
