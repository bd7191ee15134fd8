//! Loads and stores of fragments.
//!
//! In: tiles of buffers, which may reach beyond the end of an axis. Out: accesses of what is inside: what is outside is not
//! written, and reads as zero. Two neighbours of a row go together where they lie side by side and the address allows it.

use super::code::{Code, Held, Number, address, int, register_type, word};
use super::layout::Share;
use crate::ptx::words::{LoadCache, ReadOnly, Relu, Round, StoreCache, Vector};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as W};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem};
use crate::tile::{Extent, Inst, InstData, Op, ParamMode, TileType, Value, ValueDef};

/// Where the tile of an access lies.
struct Access {
    base: Reg,
    strides: Vec<Number>,
    indices: Vec<Number>,
    /// Bytes to add, of indices that are known: the address without them is one for several accesses.
    beside: i64,
    /// The buffer's axes of rows and columns.
    axes: [Option<usize>; 2],
    extents: [Option<Dim>; 2],
    /// Is the tile inside along rows, and columns?
    inside: [bool; 2],
    elem: Elem,
    /// Do pairs of neighbours of a row lie side by side at a multiple of their size?
    in_pairs: bool,
}

/// How far known indices go at most, so that what is added beside still fits an address.
const FARTHEST: i64 = 1 << 30;

/// The type of an access to an element.
fn memory_type(elem: Elem) -> W {
    match elem {
        Elem::F32 => W::F32,
        Elem::BF16 | Elem::F16 => W::B16,
        Elem::I8 => W::S8,
        Elem::I32 => W::B32,
        Elem::I64 => W::B64,
        Elem::Bool => W::U8,
    }
}

impl Code<'_> {
    /// The access of an operation: a buffer and indices from the first operand on.
    fn access(&mut self, data: &InstData, axes: [Option<usize>; 2], t: &TileType) -> Result<Access, String> {
        let buffer = *data.operands.first().ok_or("an operand is missing")?;
        let (base, strides, ty) = self.buffer(buffer)?;
        let rank = ty.shape.len();
        let values = data.operands.get(1..=rank).ok_or("an index is missing")?;
        let mut indices = values.iter().map(|v| self.index(*v)).collect::<Result<Vec<_>, _>>()?;
        let tile = [t.rows, t.cols];
        let extents = axes.map(|a| a.and_then(|a| ty.shape.get(a).cloned()));
        let mut inside = [true, true];
        for n in 0..2 {
            if let (Some(axis), Some(extent)) = (axes[n], &extents[n]) {
                let start = *values.get(axis).ok_or("an index is missing")?;
                inside[n] = self.fits(start, tile[n], extent);
            }
        }
        let size = i64::try_from(ty.elem.size()).unwrap_or(1);
        let even = |axis: usize| {
            let stride_is_even = ty.neighbours().all(|(n, stride)| n != axis || stride.is_multiple_of(2));
            let start_is_even = values.get(axis).is_some_and(|v| self.is_multiple(*v, 2));
            if Some(axis) == axes[1] { start_is_even } else { stride_is_even }
        };
        let dense = axes[1].is_some_and(|a| ty.strides.get(a).and_then(Dim::as_const) == Some(1));
        // A pair that ends beyond the axis is one that begins there, where the extent is even.
        let whole = inside[1] || extents[1].as_ref().is_some_and(|d| d.is_multiple_of(2));
        let in_pairs = dense && whole && (0..rank).all(even) && matches!(size, 2 | 4);
        let mut beside = 0i64;
        for (axis, (index, stride)) in indices.iter_mut().zip(&strides).enumerate() {
            let (Number::Known(i), Number::Known(stride), false) = (*index, *stride, axes.contains(&Some(axis))) else {
                continue;
            };
            let more = i.checked_mul(stride).and_then(|n| n.checked_mul(size)).and_then(|n| n.checked_add(beside));
            if let Some(bytes) = more.filter(|n| n.abs() < FARTHEST) {
                (beside, *index) = (bytes, Number::Known(0));
            }
        }
        Ok(Access { base, strides, indices, beside, axes, extents, inside, elem: ty.elem, in_pairs })
    }

    /// Is a tile that begins at an index certainly inside of the axis?
    pub(super) fn fits(&self, start: Value, length: Extent, extent: &Dim) -> bool {
        let (Extent::Static(length), Some(extent)) = (length, extent.as_const()) else { return false };
        if let Some(Held::Number(Number::Known(start))) = self.held.get(&start) {
            return *start >= 0 && start.saturating_add(length) <= extent;
        }
        // A point of the grid times its step, perhaps in parts.
        let Some((axis, step, more)) = self.grid_start(start) else { return false };
        self.kernel
            .grid
            .iter()
            .any(|g| g.value == axis && g.step == step && g.extent.as_const() == Some(extent) && extent % step == 0)
            && more >= 0
            && more + length <= step
    }

    /// A value as a point of the grid times a step, plus a number.
    fn grid_start(&self, v: Value) -> Option<(Value, i64, i64)> {
        let known = |v: Value| match self.held.get(&v) {
            Some(Held::Number(Number::Known(n))) => Some(*n),
            _ => None,
        };
        let ValueDef::Result(i) = self.body.def(v) else { return Some((v, 1, 0)) };
        let data = self.body.inst(i);
        let (a, b) = (*data.operands.first()?, *data.operands.get(1)?);
        match data.op {
            Op::Binary(BinaryOp::Mul) => {
                let (point, step) = match (known(a), known(b)) {
                    (_, Some(n)) => (a, n),
                    (Some(n), _) => (b, n),
                    _ => return None,
                };
                matches!(self.body.def(point), ValueDef::Param).then_some((point, step, 0))
            }
            Op::Binary(BinaryOp::Add) => {
                let (start, n) = match (known(a), known(b)) {
                    (_, Some(n)) => (a, n),
                    (Some(n), _) => (b, n),
                    _ => return None,
                };
                let (axis, step, more) = self.grid_start(start)?;
                Some((axis, step, more + n))
            }
            _ => None,
        }
    }

    /// Of a row of the tile its address (without columns), and whether it is inside; `own` is this thread's first row.
    fn row_of_access(&mut self, name: &str, a: &Access, place: i64, own: Reg) -> Result<(Reg, Option<Reg>), String> {
        let size = i64::try_from(a.elem.size()).unwrap_or(1);
        let mut indices = a.indices.clone();
        if let Some(cols) = a.axes[1]
            && let Some(n) = indices.get_mut(cols)
        {
            *n = Number::Known(0);
        }
        let mut inside = None;
        if let Some(axis) = a.axes[0] {
            let own = self.widened(name, own);
            let start = *indices.get(axis).ok_or("an index is missing")?;
            let row = self.arithmetic(name, BinaryOp::Add, Number::Reg(own), start)?;
            let row = self.arithmetic(name, BinaryOp::Add, row, Number::Known(place))?;
            if let (false, Some(extent)) = (a.inside[0], &a.extents[0]) {
                let extent = self.dim(extent)?;
                let row = self.in_register(name, row);
                inside = Some(self.inside(name, row, extent));
            }
            if let Some(n) = indices.get_mut(axis) {
                *n = row;
            }
        }
        let at = self.element_address(name, a.base, &a.strides, &indices, size)?;
        Ok((at, inside))
    }

    /// The first column of this thread as an index, and what it adds to an address.
    fn col_of_access(&mut self, name: &str, a: &Access, own: Reg) -> Result<(Number, Number), String> {
        let Some(axis) = a.axes[1] else { return Ok((Number::Known(0), Number::Known(0))) };
        let size = i64::try_from(a.elem.size()).unwrap_or(1);
        let own = self.widened(name, own);
        let start = *a.indices.get(axis).ok_or("an index is missing")?;
        let col = self.arithmetic(name, BinaryOp::Add, Number::Reg(own), start)?;
        let stride = *a.strides.get(axis).ok_or("a stride is missing")?;
        let step = self.arithmetic(name, BinaryOp::Mul, stride, Number::Known(size))?;
        let way = self.arithmetic(name, BinaryOp::Mul, col, step)?;
        Ok((col, way))
    }

    /// Is a column inside?
    fn col_inside(&mut self, name: &str, a: &Access, col: Number, place: i64) -> Result<Option<Reg>, String> {
        let (false, Some(extent)) = (a.inside[1], a.extents[1].clone()) else { return Ok(None) };
        let extent = self.dim(&extent)?;
        let at = self.arithmetic(name, BinaryOp::Add, col, Number::Known(place))?;
        let at = self.in_register(name, at);
        Ok(Some(self.inside(name, at, extent)))
    }

    fn both(&mut self, name: &str, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.make(name, RegType::Pred, P::And { ty: W::Pred }, &[word(a), word(b)])),
            (a, b) => a.or(b),
        }
    }

    fn push_where(&mut self, inside: Option<Reg>, op: P, operands: Vec<Operand>) {
        match inside {
            Some(p) => self.e.kernel.push_if(p, false, op, operands),
            None => self.e.kernel.push(op, operands),
        }
    }

    /// The address of a column of a row: a distance that is known stays in the access.
    fn place_in_row(&mut self, row: Reg, a: &Access, place: i64) -> Result<Operand, String> {
        let size = i64::try_from(a.elem.size()).unwrap_or(1);
        let stride = a.axes[1].and_then(|axis| a.strides.get(axis).copied()).unwrap_or(Number::Known(0));
        match stride {
            Number::Known(n) => address(row, place * n * size + a.beside),
            Number::Reg(_) => {
                let way = self.arithmetic("at", BinaryOp::Mul, stride, Number::Known(place * size))?;
                let at = self.arithmetic("at", BinaryOp::Add, Number::Reg(row), way)?;
                let at = self.in_register("at", at);
                address(at, a.beside)
            }
        }
    }

    /// Writes a tile of fragments.
    pub(super) fn store(&mut self, data: &InstData) -> Result<(), String> {
        let Op::Store { rows, cols } = data.op else { return Err("no store".into()) };
        let v = *data.operands.last().ok_or("an operand is missing")?;
        let t = self.tile(v)?.clone();
        let (share, list) = (self.share(&t)?, self.elements(v)?);
        let a = self.access(data, [rows, cols], &t)?;
        let one = Extent::Static(1);
        if t.cols == one || t.rows == one {
            return Err(format!("a store of {t} in a kernel of fragments"));
        }
        let own_row = self.row_in_tile(share);
        let own_col = self.group.col;
        let (col, way) = self.col_of_access("col", &a, own_col)?;
        for row in 0..share.row_count() {
            let (at, row_inside) = self.row_of_access("to", &a, Share::row_place(row), own_row)?;
            let at = self.arithmetic("to", BinaryOp::Add, Number::Reg(at), way)?;
            let at = self.in_register("to", at);
            for block in 0..share.col_blocks() {
                let n = share.register(row as i64 / 2, block, (row as i64 % 2) * 2);
                let (Some(x), Some(y)) = (list.get(n).copied(), list.get(n + 1).copied()) else {
                    return Err("an element is missing".into());
                };
                let place = block * 8;
                if a.in_pairs {
                    let inside = self.col_inside("inside", &a, col, place)?;
                    let inside = self.both("inside", row_inside, inside);
                    let to = self.place_in_row(at, &a, place)?;
                    if a.elem == Elem::F32 {
                        let op = P::St { cache: StoreCache::Default, vector: Vector::Two, ty: W::F32 };
                        self.push_where(inside, op, vec![to, Operand::Vector(vec![x, y])]);
                    } else if matches!(a.elem, Elem::BF16 | Elem::F16) {
                        let pair = self.pair("pair", x, y, a.elem);
                        let op = P::St { cache: StoreCache::Default, vector: Vector::One, ty: W::B32 };
                        self.push_where(inside, op, vec![to, word(pair)]);
                    } else {
                        self.store_element(inside, to, x, a.elem)?;
                        let to = self.place_in_row(at, &a, place + 1)?;
                        self.store_element(inside, to, y, a.elem)?;
                    }
                } else {
                    for (k, r) in [x, y].into_iter().enumerate() {
                        let place = place + k as i64;
                        let inside = self.col_inside("inside", &a, col, place)?;
                        let inside = self.both("inside", row_inside, inside);
                        let to = self.place_in_row(at, &a, place)?;
                        self.store_element(inside, to, r, a.elem)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn store_element(&mut self, inside: Option<Reg>, to: Operand, r: Reg, elem: Elem) -> Result<(), String> {
        let ty = memory_type(elem);
        let x = match elem {
            Elem::F32 | Elem::I32 | Elem::I64 => r,
            Elem::BF16 | Elem::F16 => {
                let half = if elem == Elem::BF16 { W::Bf16 } else { W::F16 };
                let op = P::CvtNarrow {
                    round: Round::Nearest,
                    ftz: crate::ptx::words::Ftz::Keep,
                    relu: Relu::No,
                    to: half,
                    from: W::F32,
                };
                self.make("half", RegType::B16, op, &[word(r)])
            }
            Elem::I8 => r,
            Elem::Bool => self.make("truth", RegType::B32, P::SelP { ty: W::B32 }, &[int(1), int(0), word(r)]),
        };
        self.push_where(inside, P::St { cache: StoreCache::Default, vector: Vector::One, ty }, vec![to, word(x)]);
        Ok(())
    }

    /// An element of a tile that is read from a buffer.
    pub(super) fn load_element(&mut self, _inst: Inst, data: &InstData, t: &TileType, n: usize) -> Result<Reg, String> {
        let Op::Load { rows, cols } = data.op else { return Err("no load".into()) };
        let share = self.share(t)?;
        let a = self.access(data, [rows, cols], t)?;
        let one = Extent::Static(1);
        let (row, col) = match (t.rows == one, t.cols == one) {
            (false, false) => (share.place(n).row, share.place(n).col),
            (false, true) => (Share::row_place(n), 0),
            (true, false) => (0, Share::col_place(n)),
            (true, true) => (0, 0),
        };
        let zero = |code: &mut Code<'_>| code.make("none", RegType::B32, P::Mov { ty: W::B32 }, &[int(0)]);
        let own_row = if t.rows == one { zero(self) } else { self.row_in_tile(share) };
        let own_col = if t.cols == one { zero(self) } else { self.group.col };
        let (at, row_inside) = self.row_of_access("from", &a, row, own_row)?;
        let (first, way) = self.col_of_access("from", &a, own_col)?;
        let at = self.arithmetic("from", BinaryOp::Add, Number::Reg(at), way)?;
        let at = self.in_register("from", at);
        let inside = self.col_inside("inside", &a, first, col)?;
        let inside = self.both("inside", row_inside, inside);
        let from = self.place_in_row(at, &a, col)?;
        let buffer = *data.operands.first().ok_or("an operand is missing")?;
        let is_read_only = self.kernel.params.iter().any(|p| p.value == buffer && p.mode == ParamMode::In);
        self.load_at("loaded", from, inside, a.elem, is_read_only)
    }

    /// An element at an address, 0 where it is not inside, in the type of computation.
    fn load_at(
        &mut self,
        name: &str,
        from: Operand,
        inside: Option<Reg>,
        elem: Elem,
        is_read_only: bool,
    ) -> Result<Reg, String> {
        let ty = memory_type(elem);
        let register = match elem {
            Elem::BF16 | Elem::F16 => RegType::B16,
            Elem::I8 | Elem::Bool => RegType::B32,
            other => register_type(other),
        };
        let r = self.reg(name, register);
        if inside.is_some() {
            let (zero, moved) = match register {
                RegType::F32 => (Operand::F32(0), W::F32),
                RegType::B16 => (int(0), W::B16),
                RegType::B64 => (int(0), W::B64),
                _ => (int(0), W::B32),
            };
            self.push(P::Mov { ty: moved }, [word(r), zero]);
        }
        let op = match is_read_only {
            true => P::LdReadOnly { cache: ReadOnly::Default, vector: Vector::One, ty },
            false => P::Ld { cache: LoadCache::Default, vector: Vector::One, ty },
        };
        self.push_where(inside, op, vec![word(r), from]);
        Ok(match elem {
            Elem::BF16 | Elem::F16 => self.widened_half(name, r, elem),
            Elem::Bool => self.compare32(name, crate::ptx::words::Compare::Ne, r, 0),
            _ => r,
        })
    }

    /// One element of a buffer, the same in all threads.
    pub(super) fn load_scalar(&mut self, name: &str, data: &InstData) -> Result<Reg, String> {
        let buffer = *data.operands.first().ok_or("an operand is missing")?;
        let (base, strides, ty) = self.buffer(buffer)?;
        let mut indices = Vec::new();
        let mut inside = None;
        for (v, extent) in data.operands.iter().skip(1).zip(&ty.shape) {
            let n = self.index(*v)?;
            if !self.fits(*v, Extent::Static(1), extent) {
                let extent = self.dim(extent)?;
                let r = self.in_register(name, n);
                let here = self.inside(name, r, extent);
                inside = self.both(name, inside, Some(here));
            }
            indices.push(n);
        }
        let size = i64::try_from(ty.elem.size()).unwrap_or(1);
        let at = self.element_address(name, base, &strides, &indices, size)?;
        let is_read_only = self.kernel.params.iter().any(|p| p.value == buffer && p.mode == ParamMode::In);
        self.load_at(name, address(at, 0)?, inside, ty.elem, is_read_only)
    }
}
