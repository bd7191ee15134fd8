//! Loads and stores of fragments.
//!
//! In: tiles of buffers, which may extend past the end of an axis. Out: bounds-checked accesses:
//! elements outside are not written, and read as zero. Two adjacent elements of a row are accessed
//! together if they are contiguous and aligned.

use std::collections::HashMap;

use super::code::{Code, Number, ValueLocation, address, int, register_type, word};
use super::layout::Share;
use crate::ptx::words::{Compare, LoadCache, ReadOnly, Relu, Round, StoreCache, Vector};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as W};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Elem};
use crate::tile::alignment::needed;
use crate::tile::{Extent, InstData, Op, ParamMode, TileType, Value, ValueDef};

/// The tile of an access.
struct Access {
    base: Reg,
    strides: Vec<Number>,
    indices: Vec<Number>,
    /// Constant byte offset, kept separate so that several accesses share the address.
    beside: i64,
    /// The buffer's axes for rows and columns.
    axes: [Option<usize>; 2],
    extents: [Option<Dim>; 2],
    /// Is the tile known to be inside along rows and columns?
    inside: [bool; 2],
    elem: Elem,
    /// Are pairs of adjacent elements contiguous and aligned?
    in_pairs: bool,
    /// Does the kernel only read the buffer?
    is_only_read: bool,
}

/// State shared by the elements of an access: addresses up to the column.
struct Ready {
    access: Access,
    /// This thread's first row of the tile.
    own_row: Reg,
    /// Offset that its first column adds to an address.
    way: Number,
    /// Number of columns from that one to the end, if the tile may extend past it.
    left: Option<Reg>,
    /// For each row so far: address of the first column, and the predicate that it is inside.
    rows: HashMap<i64, (Reg, Option<Reg>)>,
}

/// A load of a stretch of elementwise work.
pub(super) struct Reading {
    ready: Ready,
    tile: TileType,
    /// Is it the same in all rows and in all columns?
    same: [bool; 2],
    /// May it be moved across stores?
    is_free: bool,
    /// Elements so far by row and column, as loaded or already converted.
    loaded: HashMap<(i64, i64), Loaded>,
    made: HashMap<(i64, i64), Reg>,
}

/// Elements as loaded from memory.
#[derive(Clone, Copy)]
enum Loaded {
    One(Reg),
    /// Two adjacent 16-bit elements in a register.
    Halves(Reg),
    Two(Reg, Reg),
}

/// A store at the end of a stretch.
pub(super) struct Storing {
    pub(super) value: Value,
    pub(super) share: Share,
    ready: Ready,
}

impl Storing {
    /// The type in memory.
    pub(super) fn elem(&self) -> Elem {
        self.ready.access.elem
    }
}

/// Maximum constant index, so that offsets fit an address operand.
const FARTHEST: i64 = 1 << 30;

/// Can two adjacent elements of this type be accessed together?
fn is_in_pairs(elem: Elem) -> bool {
    matches!(elem, Elem::F32 | Elem::BF16 | Elem::F16)
}

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

impl Reading {
    pub(super) fn tile(&self) -> &TileType {
        &self.tile
    }

    /// Orders the load after the stores before it, so that the loads in flight fit the registers.
    pub(super) fn bind(&mut self) {
        self.is_free = false;
    }

    /// Registers for the elements loaded for a block of columns of an accumulator.
    pub(super) fn registers(&self, share: Share) -> usize {
        let one = Extent::Static(1);
        if self.same[1] || self.tile.cols == one {
            return 0;
        }
        let rows = if self.same[0] || self.tile.rows == one { 1 } else { share.row_count() };
        rows * match self.ready.access.elem {
            Elem::BF16 | Elem::F16 if self.ready.access.in_pairs => 1,
            Elem::I64 => 4,
            _ => 2,
        }
    }
}

impl Code<'_> {
    /// The access of an operation, whose first operands are a buffer and indices.
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
        // With an even extent, a pair is inside if its first element is.
        let whole = inside[1] || extents[1].as_ref().is_some_and(|d| d.is_multiple_of(2));
        let begins = i64::try_from(needed(self.kernel, buffer)).unwrap_or(1) % (2 * size) == 0;
        let in_pairs = dense && whole && begins && (0..rank).all(even) && is_in_pairs(ty.elem);
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
        let is_only_read = self.is_only_read(buffer);
        Ok(Access { base, strides, indices, beside, axes, extents, inside, elem: ty.elem, in_pairs, is_only_read })
    }

    /// Is a tile that begins at an index known to be inside the axis?
    pub(super) fn fits(&self, start: Value, length: Extent, extent: &Dim) -> bool {
        let (Extent::Static(length), Some(extent)) = (length, extent.as_const()) else { return false };
        if let Some(ValueLocation::Number(Number::Known(start))) = self.held.get(&start) {
            return *start >= 0 && start.saturating_add(length) <= extent;
        }
        // A grid index times its step, possibly plus a constant.
        let Some((axis, step, more)) = self.grid_start(start) else { return false };
        self.kernel
            .grid
            .iter()
            .any(|g| g.value == axis && g.step == step && g.extent.as_const() == Some(extent) && extent % step == 0)
            && more >= 0
            && more + length <= step
    }

    /// Matches a value as grid index * step + constant.
    fn grid_start(&self, v: Value) -> Option<(Value, i64, i64)> {
        let known = |v: Value| match self.held.get(&v) {
            Some(ValueLocation::Number(Number::Known(n))) => Some(*n),
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

    /// Address of a row of the tile (without columns), and whether it is inside; `own` is this
    /// thread's first row.
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

    /// The first column of this thread as an index, and its byte offset.
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

    /// Prepares the addresses of an access; this thread's first row and column follow the
    /// accumulator layout, or are 0 for a single row or column.
    fn ready(&mut self, name: &str, access: Access, t: &TileType) -> Result<Ready, String> {
        let one = Extent::Static(1);
        let zero = |code: &mut Code<'_>| code.make("none", RegType::B32, P::Mov { ty: W::B32 }, &[int(0)]);
        let own_row = if t.rows == one { zero(self) } else { self.row_in_tile(self.share(t)?) };
        let own_col = if t.cols == one { zero(self) } else { self.group.col };
        let (first, way) = self.col_of_access(name, &access, own_col)?;
        let left = self.columns_left(&access, first)?;
        Ok(Ready { access, own_row, way, left, rows: HashMap::new() })
    }

    /// The number of columns from `first` to the end, clamped to 31 bits, so that one comparison
    /// checks a column of the tile.
    fn columns_left(&mut self, a: &Access, first: Number) -> Result<Option<Reg>, String> {
        let (false, Some(extent)) = (a.inside[1], a.extents[1].clone()) else { return Ok(None) };
        let extent = self.dim(&extent)?;
        let left = self.arithmetic("left", BinaryOp::Sub, extent, first)?;
        let left = self.arithmetic("left", BinaryOp::Max, left, Number::Known(0))?;
        let left = self.arithmetic("left", BinaryOp::Min, left, Number::Known(i64::from(i32::MAX)))?;
        let left = self.low32("left", left);
        Ok(Some(self.in_register32("left", left)))
    }

    /// The address of the first column of a row, and whether it is inside.
    fn row_of(&mut self, name: &str, ready: &mut Ready, place: i64) -> Result<(Reg, Option<Reg>), String> {
        if let Some(row) = ready.rows.get(&place) {
            return Ok(*row);
        }
        let (at, inside) = self.row_of_access(name, &ready.access, place, ready.own_row)?;
        let at = self.arithmetic(name, BinaryOp::Add, Number::Reg(at), ready.way)?;
        let row = (self.in_register(name, at), inside);
        ready.rows.insert(place, row);
        Ok(row)
    }

    /// Is a column inside?
    fn col_inside(&mut self, ready: &Ready, place: i64) -> Option<Reg> {
        ready.left.map(|left| self.compare32("inside", Compare::Gt, left, place))
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

    /// Address of a column of a row; a constant stride becomes an immediate offset.
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

    /// Does a kernel only read a buffer?
    pub(super) fn is_only_read(&self, buffer: Value) -> bool {
        self.kernel.params.iter().any(|p| p.value == buffer && p.mode == ParamMode::In)
    }

    /// Prepares a store of a tile of fragments.
    pub(super) fn storing(&mut self, data: &InstData) -> Result<Storing, String> {
        let Op::Store { rows, cols } = data.op else { return Err("no store".into()) };
        let value = *data.operands.last().ok_or("an operand is missing")?;
        let t = self.tile(value)?.clone();
        let share = self.share(&t)?;
        let access = self.access(data, [rows, cols], &t)?;
        let one = Extent::Static(1);
        if t.cols == one || t.rows == one {
            return Err(format!("a store of {t} in a kernel of fragments"));
        }
        let ready = self.ready("to", access, &t)?;
        Ok(Storing { value, share, ready })
    }

    /// Stores the elements of a block of columns.
    pub(super) fn store(&mut self, s: &mut Storing, block: i64, elements: &HashMap<usize, Reg>) -> Result<(), String> {
        let elem = s.ready.access.elem;
        for row in 0..s.share.row_count() {
            let (at, row_inside) = self.row_of("to", &mut s.ready, Share::row_place(row))?;
            let n = s.share.register(row as i64 / 2, block, (row as i64 % 2) * 2);
            let (Some(x), Some(y)) = (elements.get(&n).copied(), elements.get(&(n + 1)).copied()) else {
                return Err("an element is missing".into());
            };
            let place = block * 8;
            if s.ready.access.in_pairs {
                let inside = self.col_inside(&s.ready, place);
                let inside = self.both("inside", row_inside, inside);
                let to = self.place_in_row(at, &s.ready.access, place)?;
                if elem == Elem::F32 {
                    let op = P::St { cache: StoreCache::Default, vector: Vector::Two, ty: W::F32 };
                    self.push_where(inside, op, vec![to, Operand::Vector(vec![x, y])]);
                } else {
                    let pair = self.pair("pair", x, y, elem);
                    let op = P::St { cache: StoreCache::Default, vector: Vector::One, ty: W::B32 };
                    self.push_where(inside, op, vec![to, word(pair)]);
                }
            } else {
                for (k, r) in [x, y].into_iter().enumerate() {
                    let place = place + k as i64;
                    let inside = self.col_inside(&s.ready, place);
                    let inside = self.both("inside", row_inside, inside);
                    let to = self.place_in_row(at, &s.ready.access, place)?;
                    self.store_element(inside, to, r, elem)?;
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

    /// Prepares a load. `is_dropped`: do elements outside only affect elements that are not stored?
    /// Then they may have any value, and elements that are the same in all rows or columns are
    /// loaded once, unchecked: each block's tile has at least one row and one column inside.
    pub(super) fn reading(&mut self, data: &InstData, t: &TileType, is_dropped: bool) -> Result<Reading, String> {
        let Op::Load { rows, cols } = data.op else { return Err("no load".into()) };
        let access = self.access(data, [rows, cols], t)?;
        let same = [0, 1].map(|n: usize| {
            let stays = access.axes[n].is_none_or(|axis| access.strides.get(axis) == Some(&Number::Known(0)));
            stays && is_dropped
        });
        let is_free = access.is_only_read;
        let ready = self.ready("from", access, t)?;
        Ok(Reading { ready, tile: t.clone(), same, is_free, loaded: HashMap::new(), made: HashMap::new() })
    }

    /// Position of the element to load for an element of a tile.
    fn place_of(&self, r: &Reading, n: usize) -> Result<(i64, i64), String> {
        let one = Extent::Static(1);
        let (row, col) = match (r.tile.rows == one, r.tile.cols == one) {
            (false, false) => {
                let place = self.share(&r.tile)?.place(n);
                (place.row, place.col)
            }
            (false, true) => (Share::row_place(n), 0),
            (true, false) => (0, Share::col_place(n)),
            (true, true) => (0, 0),
        };
        Ok((if r.same[0] { 0 } else { row }, if r.same[1] { 0 } else { col }))
    }

    /// Loads an element, together with its neighbour if possible; conversion is deferred.
    pub(super) fn load_ahead(&mut self, r: &mut Reading, n: usize) -> Result<(), String> {
        let (row, col) = self.place_of(r, n)?;
        let together = r.ready.access.in_pairs && !r.same[1] && r.tile.cols != Extent::Static(1);
        let col = if together { col - col % 2 } else { col };
        if r.loaded.contains_key(&(row, col)) {
            return Ok(());
        }
        let (at, row_inside) = self.row_of("from", &mut r.ready, row)?;
        let row_inside = row_inside.filter(|_| !r.same[0]);
        let col_inside = if r.same[1] { None } else { self.col_inside(&r.ready, col) };
        let inside = self.both("inside", row_inside, col_inside);
        let from = self.place_in_row(at, &r.ready.access, col)?;
        let elem = r.ready.access.elem;
        let loaded = match (together, elem) {
            (true, Elem::F32) => {
                let [x, y] = [0, 1].map(|_| self.empty("loaded", RegType::F32, inside));
                self.load_into(Operand::Vector(vec![x, y]), from, inside, (Vector::Two, W::F32), r.is_free);
                Loaded::Two(x, y)
            }
            (true, _) => {
                let pair = self.empty("loaded", RegType::B32, inside);
                self.load_into(word(pair), from, inside, (Vector::One, W::B32), r.is_free);
                Loaded::Halves(pair)
            }
            (false, _) => Loaded::One(self.load_at("loaded", from, inside, elem, r.is_free)),
        };
        r.loaded.insert((row, col), loaded);
        Ok(())
    }

    /// An element of a loaded tile, in the type of computation.
    pub(super) fn load_element(&mut self, r: &mut Reading, n: usize) -> Result<Reg, String> {
        let (row, col) = self.place_of(r, n)?;
        if let Some(x) = r.made.get(&(row, col)) {
            return Ok(*x);
        }
        self.load_ahead(r, n)?;
        let elem = r.ready.access.elem;
        let even = col - col % 2;
        let pair = r.loaded.get(&(row, even)).copied().filter(|l| !matches!(l, Loaded::One(_)));
        let [x, y] = match pair.or(r.loaded.get(&(row, col)).copied()).ok_or("nothing was loaded")? {
            Loaded::One(x) => {
                let x = self.computed("loaded", x, elem);
                r.made.insert((row, col), x);
                return Ok(x);
            }
            Loaded::Two(x, y) => [x, y],
            Loaded::Halves(pair) => {
                let halves = [0, 1].map(|_| self.reg("half", RegType::B16));
                self.push(P::Unpack { ty: W::B32 }, [Operand::Vector(halves.to_vec()), word(pair)]);
                halves.map(|half| self.widened_half("loaded", half, elem))
            }
        };
        r.made.extend([((row, even), x), ((row, even + 1), y)]);
        Ok(if col == even { x } else { y })
    }

    /// A register for a conditional load, initialised to 0.
    fn empty(&mut self, name: &str, ty: RegType, inside: Option<Reg>) -> Reg {
        let r = self.reg(name, ty);
        if inside.is_some() {
            let (zero, moved) = match ty {
                RegType::F32 => (Operand::F32(0), W::F32),
                RegType::B16 => (int(0), W::B16),
                RegType::B64 => (int(0), W::B64),
                _ => (int(0), W::B32),
            };
            self.push(P::Mov { ty: moved }, [word(r), zero]);
        }
        r
    }

    fn load_into(&mut self, to: Operand, from: Operand, inside: Option<Reg>, what: (Vector, W), is_free: bool) {
        let (vector, ty) = what;
        let op = match is_free {
            true => P::LdReadOnly { cache: ReadOnly::Default, vector, ty },
            false => P::Ld { cache: LoadCache::Default, vector, ty },
        };
        self.push_where(inside, op, vec![to, from]);
    }

    /// Loads an element without conversion, 0 if it is outside. `is_free`: the load need not be
    /// ordered with stores.
    fn load_at(&mut self, name: &str, from: Operand, inside: Option<Reg>, elem: Elem, is_free: bool) -> Reg {
        let register = match elem {
            Elem::BF16 | Elem::F16 => RegType::B16,
            Elem::I8 | Elem::Bool => RegType::B32,
            other => register_type(other),
        };
        let r = self.empty(name, register, inside);
        self.load_into(word(r), from, inside, (Vector::One, memory_type(elem)), is_free);
        r
    }

    /// Converts a loaded element to the type of computation.
    fn computed(&mut self, name: &str, r: Reg, elem: Elem) -> Reg {
        match elem {
            Elem::BF16 | Elem::F16 => self.widened_half(name, r, elem),
            Elem::Bool => self.compare32(name, Compare::Ne, r, 0),
            _ => r,
        }
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
        let is_free = self.is_only_read(buffer);
        let r = self.load_at(name, address(at, 0)?, inside, ty.elem, is_free);
        Ok(self.computed(name, r, ty.elem))
    }
}
