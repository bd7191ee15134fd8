//! Builders of kernels and plans: one call per instruction, with result types from the type rules.
//!
//! In: calls from lowering. Out: well-typed bodies. Operands of the wrong kind are a bug in attnc:
//! the builder guesses the result type, and the verifier reports the error.

use super::{
    Block, BlockCall, Body, BufferType, Extent, GridAxis, Kernel, Op, Param, ParamMode, Plan, PlanOp, PlanVariant,
    Role, SlotData, Space, State, Terminator, TileType, Type, Value,
};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::source::Loc;

/// Methods of both builders: indices, scalars, control flow.
macro_rules! common {
    () => {
        /// Sets the source location of the following instructions.
        pub fn at(&mut self, loc: Loc) {
            self.loc = loc;
        }

        /// Emits some instructions with another source location.
        pub fn placed<T>(&mut self, loc: Loc, make: impl FnOnce(&mut Self) -> T) -> T {
            let before = std::mem::replace(&mut self.loc, loc);
            let made = make(self);
            self.loc = before;
            made
        }

        /// Appends an instruction of this type; returns its result, if it has one.
        pub fn push(&mut self, op: Op, operands: Vec<Value>, ty: Option<Type>) -> Option<Value> {
            self.body().push_at(op, operands, ty)
        }

        /// Appends an instruction with a result.
        pub fn value(&mut self, op: Op, operands: Vec<Value>, ty: Type) -> Value {
            let (block, loc) = (self.block, self.loc);
            match self.inner.body.push(block, op, operands, Some(ty), loc) {
                Some(v) => v,
                None => unreachable!("an instruction that is given a type has a result"),
            }
        }

        /// The operation that defines a value, if any.
        pub fn op_of(&self, v: Value) -> Option<&Op> {
            self.inner.body.def_inst(v).map(|d| &d.op)
        }

        /// A constant index.
        pub fn index(&mut self, n: i64) -> Value {
            self.value(Op::Const(Scalar::Int(n)), Vec::new(), Type::Index)
        }

        /// The value of a dimension as an index.
        pub fn dim(&mut self, d: &Dim) -> Value {
            match d.as_const() {
                Some(n) => self.index(n),
                None => self.value(Op::DimValue(d.clone()), Vec::new(), Type::Index),
            }
        }

        /// An operation on two indices; constants are folded.
        pub fn index_binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
            let literal = |v: Value| match self.inner.body.def_inst(v)?.op {
                Op::Const(s) => Some(s.as_i64()),
                _ => None,
            };
            match (op, literal(a), literal(b)) {
                (_, Some(x), Some(y)) => self.index(op.eval_int(x, y)),
                (BinaryOp::Add, Some(0), _) | (BinaryOp::Mul, Some(1), _) => b,
                (BinaryOp::Add | BinaryOp::Sub, _, Some(0)) | (BinaryOp::Mul, _, Some(1)) => a,
                _ => self.value(Op::Binary(op), vec![a, b], Type::Index),
            }
        }

        /// An index times a constant.
        pub fn times(&mut self, a: Value, n: i64) -> Value {
            let n = self.index(n);
            self.index_binary(BinaryOp::Mul, a, n)
        }

        /// An index plus a constant.
        pub fn plus(&mut self, a: Value, n: i64) -> Value {
            let n = self.index(n);
            self.index_binary(BinaryOp::Add, a, n)
        }

        /// The arguments of a block.
        pub fn block_args(&self, block: Block) -> Vec<Value> {
            self.inner.body.block(block).args.clone()
        }

        /// A comparison of two indices or scalars.
        pub fn compare_scalars(&mut self, op: CmpOp, a: Value, b: Value) -> Value {
            self.value(Op::Compare(op), vec![a, b], Type::Scalar(Elem::Bool))
        }

        /// Loads one element of a buffer.
        pub fn load_scalar(&mut self, buffer: Value, indices: &[Value]) -> Value {
            let elem = self.inner.body.ty(buffer).buffer().map_or(Elem::F32, |b| super::op::computed(b.elem));
            let operands = std::iter::once(buffer).chain(indices.iter().copied()).collect();
            self.value(Op::LoadScalar, operands, Type::Scalar(elem))
        }

        /// An integer scalar as an index.
        pub fn to_index(&mut self, scalar: Value) -> Value {
            self.value(Op::Cast, vec![scalar], Type::Index)
        }

        /// Checks an index against its bound; `site` is the message if it is out of range.
        pub fn check_index(&mut self, index: Value, bound: Value, site: u32) -> Value {
            self.value(Op::CheckIndex { site }, vec![index, bound], Type::Index)
        }

        /// A new block with arguments of these types.
        pub fn new_block(&mut self, args: Vec<Type>) -> (Block, Vec<Value>) {
            let b = self.inner.body.add_block();
            let values = args.into_iter().map(|t| self.inner.body.add_block_arg(b, t)).collect();
            (b, values)
        }

        /// Continues in another block.
        pub fn switch_to(&mut self, block: Block) {
            self.block = block;
        }

        /// The insertion point.
        pub fn current(&self) -> Block {
            self.block
        }

        /// Ends the block with an unconditional jump.
        pub fn br(&mut self, block: Block, args: &[Value]) {
            let t = Terminator::Br(BlockCall { block, args: args.to_vec() });
            self.inner.body.terminate(self.block, t);
        }

        /// Ends the block with a conditional branch.
        pub fn br_if(&mut self, condition: Value, then: (Block, &[Value]), otherwise: (Block, &[Value])) {
            let call = |(block, args): (Block, &[Value])| BlockCall { block, args: args.to_vec() };
            let t = Terminator::BrIf { condition, then: call(then), otherwise: call(otherwise) };
            self.inner.body.terminate(self.block, t);
        }

        /// Type of a value.
        pub fn ty(&self, v: Value) -> &Type {
            self.inner.body.ty(v)
        }
    };
}

/// A loop under construction.
pub(crate) struct Loop {
    /// The header, which tests whether to continue.
    pub(crate) head: Block,
    /// Arguments of the header: the carried values.
    pub(crate) args: Vec<Value>,
    body: Block,
    /// The exit block.
    pub(crate) done: Block,
}

/// Builds a kernel.
pub struct KernelBuilder {
    inner: Kernel,
    block: Block,
    loc: Loc,
}

struct InsertPoint<'a> {
    body: &'a mut Body,
    block: Block,
    loc: Loc,
}

impl InsertPoint<'_> {
    fn push_at(self, op: Op, operands: Vec<Value>, ty: Option<Type>) -> Option<Value> {
        self.body.push(self.block, op, operands, ty, self.loc)
    }
}

impl KernelBuilder {
    /// A kernel without parameters, grid or instructions.
    pub fn new(name: &str) -> KernelBuilder {
        let body = Body::new();
        let block = body.entry();
        let inner = Kernel {
            name: name.to_string(),
            symbols: Vec::new(),
            params: Vec::new(),
            grid: Vec::new(),
            scratch: 0,
            state: State::Unscheduled,
            compute: None,
            tiled: None,
            body,
        };
        KernelBuilder { inner, block, loc: Loc::default() }
    }

    fn body(&mut self) -> InsertPoint<'_> {
        InsertPoint { body: &mut self.inner.body, block: self.block, loc: self.loc }
    }

    common!();

    /// Adds a buffer parameter.
    pub fn buffer(&mut self, ty: BufferType, mode: ParamMode) -> Value {
        let value = self.inner.body.add_param(Type::Buffer(ty));
        self.inner.params.push(Param::new(value, mode));
        value
    }

    /// Adds an index parameter.
    pub fn index_param(&mut self) -> Value {
        let value = self.inner.body.add_param(Type::Index);
        self.inner.params.push(Param::new(value, ParamMode::In));
        value
    }

    /// The parameter of this number.
    pub fn param(&self, number: usize) -> Option<Value> {
        self.inner.params.get(number).map(|p| p.value)
    }

    /// The last parameter.
    pub fn last_param(&self) -> Option<Value> {
        self.inner.params.last().map(|p| p.value)
    }

    /// The index of the grid point along an axis.
    pub fn grid_point(&self, axis: usize) -> Option<Value> {
        self.inner.grid.get(axis).map(|g| g.value)
    }

    /// Adds an axis to the grid; returns the grid index along it.
    pub fn grid_axis(&mut self, extent: &Dim, step: i64) -> Value {
        let value = self.inner.body.add_param(Type::Index);
        self.inner.grid.push(GridAxis { value, extent: extent.clone(), step });
        value
    }

    /// Ends the block with a branch by role.
    pub fn roles(&mut self, roles: Vec<Role>) {
        self.inner.body.terminate(self.block, Terminator::Roles(roles));
    }

    /// An unscheduled tile type.
    pub fn tile_type(elem: Elem, rows: Extent, cols: Extent) -> TileType {
        TileType { elem, rows, cols, space: Space::Any }
    }

    /// The extent of the tile that starts at `start` on an axis of `extent`, at most `max` long:
    /// static if `extent` is a constant and divisible, else bounded by `min(extent - start, max)`.
    pub fn extent_at(&mut self, extent: &Dim, start: Value, max: i64) -> Extent {
        if extent.as_const().is_some_and(|n| n % max == 0 && n > 0) {
            return Extent::Static(max);
        }
        let end = self.dim(extent);
        let rest = self.index_binary(BinaryOp::Sub, end, start);
        let max_value = self.index(max);
        let value = self.index_binary(BinaryOp::Min, rest, max_value);
        Extent::Bounded { value, max }
    }

    /// Loads a tile of a buffer at `indices`; its rows and columns go along the given buffer axes.
    pub fn load(
        &mut self,
        buffer: Value,
        indices: &[Value],
        axes: (Option<usize>, Option<usize>),
        rows: Extent,
        cols: Extent,
    ) -> Value {
        let elem = self.ty(buffer).buffer().map_or(Elem::F32, |b| super::op::computed(b.elem));
        let operands = std::iter::once(buffer).chain(indices.iter().copied()).collect();
        let ty = Type::Tile(KernelBuilder::tile_type(elem, rows, cols));
        self.value(Op::Load { rows: axes.0, cols: axes.1 }, operands, ty)
    }

    /// Is an axis of a buffer contiguous?
    pub(crate) fn is_dense(&self, buffer: Value, axis: usize) -> bool {
        self.ty(buffer).buffer().is_some_and(|b| b.is_dense(axis))
    }

    /// Loads a tile with rows along `axes.0` and columns along `axes.1`. Where only the rows' axis
    /// is contiguous, it is loaded with the axes exchanged, then transposed. `then` is applied to
    /// it before that.
    pub(crate) fn load_dense(
        &mut self,
        buffer: Value,
        at: &[Value],
        axes: (usize, usize),
        extents: (Extent, Extent),
        then: impl FnOnce(&mut Self, Value) -> Value,
    ) -> Value {
        let is_turned = self.is_dense(buffer, axes.0) && !self.is_dense(buffer, axes.1);
        let ((rows, cols), (high, wide)) =
            if is_turned { ((axes.1, axes.0), (extents.1, extents.0)) } else { (axes, extents) };
        let x = self.load(buffer, at, (Some(rows), Some(cols)), high, wide);
        let x = then(self, x);
        if is_turned { self.transpose(x) } else { x }
    }

    /// Stores a tile to a buffer at `indices`.
    pub fn store(&mut self, buffer: Value, indices: &[Value], axes: (Option<usize>, Option<usize>), tile: Value) {
        let operands = std::iter::once(buffer).chain(indices.iter().copied()).chain([tile]).collect();
        self.push(Op::Store { rows: axes.0, cols: axes.1 }, operands, None);
    }

    /// A constant scalar.
    pub fn scalar(&mut self, value: Scalar, elem: Elem) -> Value {
        self.value(Op::Const(value), Vec::new(), Type::Scalar(elem))
    }

    /// The value of a dimension as a scalar.
    pub fn dim_scalar(&mut self, d: &Dim, elem: Elem) -> Value {
        self.value(Op::DimValue(d.clone()), Vec::new(), Type::Scalar(elem))
    }

    /// A constant in its computation type, rounded to its own type.
    pub fn literal(&mut self, value: Scalar, elem: Elem) -> Value {
        let v = self.scalar(value, super::computed(elem));
        self.narrow(v, elem)
    }

    /// The value of a dimension in its computation type, rounded to its own type.
    pub fn dim_literal(&mut self, d: &Dim, elem: Elem) -> Value {
        let v = self.dim_scalar(d, super::computed(elem));
        self.narrow(v, elem)
    }

    /// A tile filled with a constant.
    pub fn full(&mut self, value: Scalar, elem: Elem, rows: Extent, cols: Extent) -> Value {
        let scalar = self.scalar(value, elem);
        self.value(Op::Full, vec![scalar], Type::Tile(KernelBuilder::tile_type(elem, rows, cols)))
    }

    /// `start + i` along an axis, as `elem` (`i32` or `i64`).
    pub fn iota(&mut self, axis: usize, start: Value, elem: Elem, rows: Extent, cols: Extent) -> Value {
        self.value(Op::Iota { axis }, vec![start], Type::Tile(KernelBuilder::tile_type(elem, rows, cols)))
    }

    /// Shape of an elementwise result: extents of 1 and scalars broadcast.
    fn joined(&self, operands: &[Value], elem: Elem) -> Type {
        let mut shape: Option<(Extent, Extent)> = None;
        for v in operands {
            let Some(t) = self.ty(*v).tile() else { continue };
            shape = Some(match shape {
                None => (t.rows, t.cols),
                Some((r, c)) => (if r.is_one() { t.rows } else { r }, if c.is_one() { t.cols } else { c }),
            });
        }
        match shape {
            Some((rows, cols)) => Type::Tile(KernelBuilder::tile_type(elem, rows, cols)),
            None => Type::Scalar(elem),
        }
    }

    fn elem_of(&self, v: Value) -> Elem {
        self.ty(v).elem().unwrap_or(Elem::F32)
    }

    /// A unary elementwise operation.
    pub fn unary(&mut self, op: UnaryOp, x: Value) -> Value {
        let ty = self.joined(&[x], self.elem_of(x));
        self.value(Op::Unary(op), vec![x], ty)
    }

    /// A binary elementwise operation, with broadcasting.
    pub fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        let ty = self.joined(&[a, b], self.elem_of(a));
        self.value(Op::Binary(op), vec![a, b], ty)
    }

    /// An elementwise comparison, with broadcasting.
    pub fn compare(&mut self, op: CmpOp, a: Value, b: Value) -> Value {
        let ty = self.joined(&[a, b], Elem::Bool);
        self.value(Op::Compare(op), vec![a, b], ty)
    }

    /// `condition ? a : b`, with broadcasting.
    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        let ty = self.joined(&[condition, a, b], self.elem_of(a));
        self.value(Op::Select, vec![condition, a, b], ty)
    }

    /// Conversion to another computation type.
    pub fn cast(&mut self, x: Value, elem: Elem) -> Value {
        if self.elem_of(x) == elem {
            return x;
        }
        let ty = self.joined(&[x], elem);
        self.value(Op::Cast, vec![x], ty)
    }

    /// Rounds to `elem` if that is narrower than its computation type.
    pub fn narrow(&mut self, x: Value, elem: Elem) -> Value {
        match elem {
            Elem::BF16 | Elem::F16 | Elem::I8 => {
                let ty = self.joined(&[x], self.elem_of(x));
                self.value(Op::Narrow { elem }, vec![x], ty)
            }
            Elem::F32 | Elem::I32 | Elem::I64 | Elem::Bool => x,
        }
    }

    /// An elementwise operation whose result has a computation type, with broadcasting.
    pub(crate) fn each(&mut self, op: Op, operands: Vec<Value>, elem: Elem) -> Value {
        let ty = self.joined(&operands, elem);
        self.value(op, operands, ty)
    }

    /// A reduction along an axis, which is kept with extent 1.
    pub fn reduce(&mut self, kind: ReduceKind, axis: usize, x: Value) -> Value {
        let elem = if kind == ReduceKind::ArgMax { Elem::I32 } else { self.elem_of(x) };
        let one = Extent::Static(1);
        let (rows, cols) = match self.ty(x).tile() {
            Some(t) if axis == 0 => (one, t.cols),
            Some(t) => (t.rows, one),
            None => (one, one),
        };
        self.value(Op::Reduce { kind, axis }, vec![x], Type::Tile(KernelBuilder::tile_type(elem, rows, cols)))
    }

    /// The element of a 1 x 1 tile, as a scalar.
    pub fn element(&mut self, x: Value) -> Value {
        let elem = self.elem_of(x);
        self.value(Op::Element, vec![x], Type::Scalar(elem))
    }

    /// Rows and columns exchanged.
    pub fn transpose(&mut self, x: Value) -> Value {
        let ty = match self.ty(x).tile() {
            Some(t) => Type::Tile(KernelBuilder::tile_type(t.elem, t.cols, t.rows)),
            None => self.ty(x).clone(),
        };
        self.value(Op::Transpose, vec![x], ty)
    }

    /// Interleaves pairs of `bf16` rows; a row of zeros completes an odd number.
    pub fn pair_rows(&mut self, x: Value) -> Value {
        let t = self.ty(x).tile().cloned();
        let (rows, cols) = t.map_or((Extent::Static(1), Extent::Static(1)), |t| (t.rows, t.cols));
        let even = |n: i64| n.saturating_add(n.rem_euclid(2));
        let rows = match rows {
            Extent::Static(n) => Extent::Static(even(n)),
            Extent::Bounded { max, .. } if max % 2 == 0 && rows.is_even(&self.inner.body) => rows,
            Extent::Bounded { value, max } => {
                let more = self.plus(value, 1);
                let two = self.index(2);
                let half = self.index_binary(BinaryOp::Div, more, two);
                Extent::Bounded { value: self.index_binary(BinaryOp::Mul, half, two), max: even(max) }
            }
        };
        self.value(Op::PairRows, vec![x], Type::Tile(KernelBuilder::tile_type(Elem::F32, rows, cols)))
    }

    /// Starts a loop with these carried values; continues in its header, whose arguments they
    /// become.
    pub(crate) fn begin_loop(&mut self, carried: &[Value]) -> Loop {
        let (head, args) = self.new_block(carried.iter().map(|v| self.ty(*v).clone()).collect());
        let (body, _) = self.new_block(Vec::new());
        let (done, _) = self.new_block(Vec::new());
        self.br(head, carried);
        self.switch_to(head);
        Loop { head, args, body, done }
    }

    /// Ends the header of a loop: branches to the body if a condition holds, else to the exit.
    pub(crate) fn enter_loop(&mut self, of: &Loop, condition: Value) {
        self.br_if(condition, (of.body, &[]), (of.done, &[]));
        self.switch_to(of.body);
    }

    /// `acc + a @ b`, without a mode.
    pub fn dot(&mut self, a: Value, b: Value, acc: Value) -> Value {
        let ty = self.ty(acc).clone();
        self.value(Op::Dot { mode: None }, vec![a, b, acc], ty)
    }

    /// A sum over the k indices `0..k`. `part` adds a number of them, from a start index, to a
    /// partial sum. Emits a loop over blocks of `block` indices, with the last block after the loop
    /// if `peeled`.
    pub fn summed(
        &mut self,
        k: &Dim,
        block: i64,
        peeled: bool,
        acc: Value,
        mut part: impl FnMut(&mut Self, Value, Extent, Value) -> Value,
    ) -> Value {
        let zero = self.index(0);
        let steps = self.begin_loop(&[zero, acc]);
        let [start, sum] = *steps.args.as_slice() else { return acc };
        let end = self.dim(k);
        let bound = if peeled { self.plus(start, block) } else { start };
        let more = self.compare_scalars(CmpOp::Lt, bound, end);
        self.enter_loop(&steps, more);
        let extent = if peeled { Extent::Static(block) } else { self.extent_at(k, start, block) };
        let then = part(self, start, extent, sum);
        let next = self.plus(start, block);
        self.br(steps.head, &[next, then]);
        self.switch_to(steps.done);
        if !peeled {
            return sum;
        }
        let extent = self.extent_at(k, start, block);
        part(self, start, extent, sum)
    }

    /// Finishes the kernel. Its run-time dimensions are the ones that occur in it.
    pub fn finish(mut self) -> Kernel {
        self.inner.find_symbols();
        self.inner
    }
}

/// The tile size along an axis: its extent if that is a constant and at most `max`, else `max`.
pub(crate) fn tile_size(extent: &Dim, max: i64) -> i64 {
    match extent.as_const() {
        Some(n) if n <= max => n.max(1),
        _ => max,
    }
}

/// Builds a plan.
pub struct PlanBuilder {
    inner: Plan,
    block: Block,
    loc: Loc,
}

impl PlanBuilder {
    /// An empty plan.
    pub fn new(name: &str, variant: PlanVariant, symbols: Vec<String>, taps: Vec<String>) -> PlanBuilder {
        let body = Body::new();
        let block = body.entry();
        let inner = Plan { name: name.to_string(), variant, symbols, taps, slots: Vec::new(), body };
        PlanBuilder { inner, block, loc: Loc::default() }
    }

    fn body(&mut self) -> InsertPoint<'_> {
        InsertPoint { body: &mut self.inner.body, block: self.block, loc: self.loc }
    }

    common!();

    /// Adds a slot of this many bytes to the arena, as a buffer.
    pub fn slot(&mut self, bytes: Dim, ty: BufferType) -> Value {
        let number = u32::try_from(self.inner.slots.len()).unwrap_or(u32::MAX);
        self.inner.slots.push(SlotData { bytes });
        self.value(Op::Plan(PlanOp::Slot(number)), Vec::new(), Type::Buffer(ty))
    }

    /// Part of the packed area.
    pub fn packed(&mut self, offset: u64, ty: BufferType) -> Value {
        self.value(Op::Plan(PlanOp::Packed { offset }), Vec::new(), Type::Buffer(ty))
    }

    /// Another view of a buffer's memory.
    pub fn view(&mut self, buffer: Value, offset: Dim, dynamic: &[(Value, Dim)], ty: BufferType) -> Value {
        let operands = std::iter::once(buffer).chain(dynamic.iter().map(|(v, _)| *v)).collect();
        let strides = dynamic.iter().map(|(_, d)| d.clone()).collect();
        self.value(Op::Plan(PlanOp::View { offset, strides }), operands, Type::Buffer(ty))
    }

    /// Binds a run-time dimension.
    pub fn length(&mut self, value: Value, name: &str, most: Dim) {
        self.push(Op::Length { name: name.to_string(), most }, vec![value], None);
    }

    /// Launches a kernel over its grid.
    pub fn launch(&mut self, kernel: &str, operands: Vec<Value>) {
        self.push(Op::Plan(PlanOp::Launch { kernel: kernel.to_string() }), operands, None);
    }

    /// Finishes the plan.
    pub fn finish(self) -> Plan {
        self.inner
    }
}
