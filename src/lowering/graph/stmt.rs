//! Statements and control flow: loops and branches become blocks, and the variables they assign
//! become block arguments.

use cranelift_entity::SecondaryMap;

use super::builder::{Builder, Loop};
use super::conditions::{Decision, decide};
use super::frame::{Frame, Local};
use super::{LowerError, Res};
use crate::ir::{Block as IrBlock, BlockCall, Op, Scalar, Terminator, Type, Value};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::types::typed::{Block, Bound, Expr, ExprKind, LocalId, Pattern, Stmt, StmtKind};

impl<'a> Builder<'a> {
    /// Emits a block of statements; returns its value.
    pub(super) fn block(&mut self, frame: &mut Frame<'a>, block: &'a Block) -> Res<Local> {
        for statement in &block.statements {
            self.stmt(frame, statement)?;
            if self.has_left {
                return Ok(Local::unit());
            }
        }
        match &block.value {
            Some(value) => self.expr(frame, value),
            None => Ok(Local::unit()),
        }
    }

    fn stmt(&mut self, frame: &mut Frame<'a>, stmt: &'a Stmt) -> Res<()> {
        let span = stmt.span;
        match &stmt.kind {
            StmtKind::Set { pattern, value } => {
                let made = self.expr(frame, value)?;
                self.bind(frame, pattern, made, value.span)
            }
            StmtKind::SetState { field, value } => {
                let made = match &value.kind {
                    ExprKind::Update { base, entries, value: part } => {
                        self.update_state(frame, *field, (base, entries, part), value.span)?
                    }
                    _ => {
                        let whole = self.value(frame, value)?;
                        self.whole_state(frame, *field, whole, span)?
                    }
                };
                let at = self.state_of(frame, *field, span)?.0;
                if let Some(state) = self.states.get_mut(at) {
                    state.value = made;
                }
                Ok(())
            }
            StmtKind::Length { name, value, most } => self.length(frame, name, value, most, span),
            StmtKind::Tap { local } => {
                let Some(value) = frame.local(*local).cloned() else {
                    return Err(self.bug(span, "a variable is tapped that has no value"));
                };
                let name = frame.function.local(*local).name.clone();
                let parts = self.flatten(&value, span)?;
                let [value] = parts.as_slice() else {
                    return Err(self.bug(span, "a tuple is tapped"));
                };
                self.tap(frame, &name, *value, span)
            }
            StmtKind::For { counter, start, end, carried, body, over_layers: _ } => match (start, end) {
                (Bound::Dim(start), Bound::Dim(end)) => {
                    let start = self.dim(&frame.dims, start, span)?;
                    let end = self.dim(&frame.dims, end, span)?;
                    self.count_loop(frame, *counter, (start, end), carried, body, span)
                }
                (Bound::Dim(_) | Bound::Value(_), Bound::Dim(_) | Bound::Value(_)) => {
                    let elem = |bound: &Bound| match bound {
                        Bound::Value(Expr { ty: crate::types::typed::Type::Tensor(t), .. }) => Some(t.elem),
                        Bound::Value(_) | Bound::Dim(_) => None,
                    };
                    let wide = [elem(start), elem(end)].contains(&Some(Elem::I64));
                    let elem = if wide { Elem::I64 } else { Elem::I32 };
                    let start = self.bound_value(frame, start, elem, span)?;
                    let end = self.bound_value(frame, end, elem, span)?;
                    self.value_loop(frame, *counter, (start, end), carried, body, span)
                }
            },
            StmtKind::While { condition, carried, body } => self.while_loop(frame, condition, carried, body, span),
            StmtKind::Break => {
                let Some(carried) = self.loops.last().map(|l| l.carried.clone()) else {
                    return Err(self.bug(span, "`break` outside of a loop"));
                };
                let (_, values) = self.carried(frame, &carried, span)?;
                let block = self.block;
                if let Some(around) = self.loops.last_mut() {
                    around.breaks.push((block, values));
                }
                self.has_left = true;
                Ok(())
            }
            StmtKind::If { condition, then, otherwise, carried } => {
                self.branch(frame, condition, [then, otherwise], carried, span)?;
                Ok(())
            }
            StmtKind::Expr(value) => {
                self.expr(frame, value)?;
                Ok(())
            }
        }
    }

    /// `let dim N = ..`: binds a dimension at run time. Each inlined copy of the function has a
    /// dimension of its own.
    fn length(&mut self, frame: &mut Frame<'a>, name: &'a str, value: &'a Expr, most: &Dim, span: Span) -> Res<()> {
        let value = self.value(frame, value)?;
        let most = self.dim(&frame.dims, most, span)?;
        let mut fresh = name.to_string();
        let mut next = 2;
        while self.taken.contains(&fresh) {
            fresh = format!("{name}_{next}");
            next += 1;
        }
        self.taken.insert(fresh.clone());
        frame.dims.insert(name.to_string(), Dim::symbol(&fresh));
        self.effect(Op::Length { name: fresh, most }, vec![value], span)?;
        let mut ok = true;
        // The conditions whose last unbound name this was.
        let open: Vec<&str> =
            frame.function.lengths.iter().map(String::as_str).filter(|n| !frame.dims.contains_key(*n)).collect();
        for condition in &frame.function.conditions {
            if !condition.fact.names_any(&[name]) || condition.fact.names_any(&open) {
                continue;
            }
            match decide(condition, &frame.dims, self.diagnostics)? {
                Decision::Holds => {}
                Decision::Open(fact) => self.require(fact, condition.span),
                Decision::Fails => ok = false,
            }
        }
        if ok { Ok(()) } else { Err(LowerError::Reported) }
    }

    fn bind(&mut self, frame: &mut Frame<'a>, pattern: &Pattern, value: Local, span: Span) -> Res<()> {
        match (pattern, value) {
            (Pattern::Ignore, _) => Ok(()),
            (Pattern::Local(local), value) => {
                // A variable that is assigned again is carried through loops as a tensor, not as an
                // index.
                let value = match value {
                    Local::Counter(v) if frame.function.local(*local).is_assigned => {
                        Local::Tensor(self.counter_value(v, Elem::I32, span)?)
                    }
                    value => value,
                };
                frame.set(*local, value);
                Ok(())
            }
            (Pattern::Tuple(parts), Local::Tuple(values)) if parts.len() == values.len() => {
                for (part, value) in parts.iter().zip(values) {
                    self.bind(frame, part, value, span)?;
                }
                Ok(())
            }
            (Pattern::Tuple(_), _) => Err(self.bug(span, "a tuple of variables is given something else")),
        }
    }

    /// Current values of the variables that a loop or branch assigns, flattened to block arguments.
    fn carried(&mut self, frame: &Frame<'a>, carried: &[LocalId], span: Span) -> Res<(Vec<Local>, Vec<Value>)> {
        let mut shapes = Vec::new();
        let mut values = Vec::new();
        for local in carried {
            let Some(value) = frame.local(*local).cloned() else {
                return Err(self.bug(span, "a variable is assigned that has no value"));
            };
            values.extend(self.flatten(&value, span)?);
            shapes.push(value);
        }
        // States are carried too; a state that is not set has the same value on every path.
        values.extend(self.states.iter().map(|state| state.value));
        Ok((shapes, values))
    }

    fn set_carried(
        &mut self,
        frame: &mut Frame<'a>,
        carried: &[LocalId],
        shapes: &[Local],
        values: &[Value],
        span: Span,
    ) -> Res<()> {
        let mut values = values.iter().copied();
        for (local, shape) in carried.iter().zip(shapes) {
            let value = self.rebuild(shape, &mut values, span)?;
            frame.set(*local, value);
        }
        for state in &mut self.states {
            if let Some(value) = values.next() {
                state.value = value;
            }
        }
        Ok(())
    }

    /// `for i in start..end` with bounds that are functions of the dimensions: the counter is an
    /// index value.
    fn count_loop(
        &mut self,
        frame: &mut Frame<'a>,
        counter: LocalId,
        (start, end): (Dim, Dim),
        carried: &[LocalId],
        body: &'a Block,
        span: Span,
    ) -> Res<()> {
        if start.as_const().zip(end.as_const()).is_some_and(|(a, b)| b <= a) {
            return Ok(());
        }
        let first = self.index(&start, span)?;
        let last = self.index(&end, span)?;
        let around = Loop { counter: None, range: Some((start, end)), breaks: Vec::new(), carried: carried.to_vec() };
        self.counted_loop(frame, (first, last), around, span, |this, frame, i| {
            frame.set(counter, Local::Counter(i));
            if let Some(around) = this.loops.last_mut() {
                around.counter = Some(i);
            }
            this.block(frame, body)?;
            if this.has_left { Ok(i) } else { this.index(&Dim::one(), span) }
        })
    }

    /// `for i in a..b` with computed bounds: the counter is a scalar.
    fn value_loop(
        &mut self,
        frame: &mut Frame<'a>,
        counter: LocalId,
        ends: (Value, Value),
        carried: &[LocalId],
        body: &'a Block,
        span: Span,
    ) -> Res<()> {
        let around = Loop { counter: None, range: None, breaks: Vec::new(), carried: carried.to_vec() };
        self.counted_loop(frame, ends, around, span, |this, frame, i| {
            let elem = this.tensor(i, span)?.elem;
            let value = this.cast(i, Elem::I32, span)?;
            frame.set(counter, Local::Tensor(value));
            this.block(frame, body)?;
            if this.has_left { Ok(i) } else { this.scalar(Scalar::Int(1), elem, span) }
        })
    }

    /// Blocks of a counted loop: header with the test, body with the back edge, exit. `make` emits
    /// the body and returns the increment.
    pub(super) fn counted_loop(
        &mut self,
        frame: &mut Frame<'a>,
        (first, last): (Value, Value),
        around: Loop,
        span: Span,
        make: impl FnOnce(&mut Self, &mut Frame<'a>, Value) -> Res<Value>,
    ) -> Res<()> {
        let mut counter = None;
        let test = |this: &mut Self, _: &mut Frame<'a>, args: &[Value]| {
            let Some(i) = args.first().copied() else { return Err(this.bug(span, "a loop has no counter")) };
            counter = Some(i);
            this.emit(Op::Compare(CmpOp::Lt), vec![i, last], None, span)
        };
        let body = |this: &mut Self, frame: &mut Frame<'a>, args: &[Value]| {
            let Some(i) = args.first().copied() else { return Err(this.bug(span, "a loop has no counter")) };
            let step = make(this, frame, i)?;
            if this.has_left {
                return Ok(None);
            }
            this.emit(Op::Binary(BinaryOp::Add), vec![i, step], None, span).map(Some)
        };
        self.any_loop(frame, Some(first), around, span, test, body)
    }

    /// `while`: a header that computes the condition, a body with the back edge, and the exit.
    fn while_loop(
        &mut self,
        frame: &mut Frame<'a>,
        condition: &'a Expr,
        carried: &[LocalId],
        body: &'a Block,
        span: Span,
    ) -> Res<()> {
        let around = Loop { counter: None, range: None, breaks: Vec::new(), carried: carried.to_vec() };
        let test = |this: &mut Self, frame: &mut Frame<'a>, _: &[Value]| this.value(frame, condition);
        let make = |this: &mut Self, frame: &mut Frame<'a>, _: &[Value]| this.block(frame, body).map(|_| None);
        self.any_loop(frame, None, around, span, test, make)
    }

    /// Blocks of a loop: header with the test, body with the back edge, and the exit block, where
    /// `break`s join. The header's arguments are the counter, if any, and the variables that the
    /// loop assigns. `test` emits the condition; `make` emits the body and returns the next
    /// counter.
    fn any_loop(
        &mut self,
        frame: &mut Frame<'a>,
        first: Option<Value>,
        around: Loop,
        span: Span,
        test: impl FnOnce(&mut Self, &mut Frame<'a>, &[Value]) -> Res<Value>,
        make: impl FnOnce(&mut Self, &mut Frame<'a>, &[Value]) -> Res<Option<Value>>,
    ) -> Res<()> {
        let carried = around.carried.clone();
        let (shapes, before) = self.carried(frame, &carried, span)?;
        let initial_states = before.split_at(before.len() - self.states.len()).1.to_vec();
        let initial: Vec<Value> = first.into_iter().chain(before).collect();
        let (head, args) = self.block_like(&initial);
        let values = args.get(usize::from(first.is_some())..).unwrap_or_default();
        let body = self.f.add_block();
        let after = self.f.add_block();
        self.finish_block(Terminator::Br(Self::to(head, initial)), head);
        self.set_carried(frame, &carried, &shapes, values, span)?;
        let condition = self.nested(span, |this| test(this, frame, &args))?;
        let (_, at_test) = self.carried(frame, &carried, span)?;
        let tested = self.block;
        let (then, otherwise) = (Self::to(body, Vec::new()), Self::to(after, Vec::new()));
        self.finish_block(Terminator::BrIf { condition, then: then.clone(), otherwise }, body);
        self.place_last(body);

        self.loops.push(around);
        let next = self.nested(span, |this| make(this, frame, &args));
        let breaks = self.loops.pop().map(|l| l.breaks).unwrap_or_default();
        let next = next?;
        if !std::mem::take(&mut self.has_left) {
            let (_, made) = self.carried(frame, &carried, span)?;
            self.same_types(values, &made, span)?;
            let back: Vec<Value> = next.into_iter().chain(made).collect();
            self.f.terminate(self.block, Terminator::Br(Self::to(head, back)));
        }
        self.block = after;
        self.place_last(after);
        // If the test is the only exit, the header's values dominate the code after the loop.
        let mut at_end = at_test.clone();
        if !breaks.is_empty() {
            let types: Vec<Type> = at_test.iter().map(|v| self.f.ty(*v).clone()).collect();
            at_end = types.into_iter().map(|ty| self.f.add_block_arg(after, ty)).collect();
            let otherwise = Self::to(after, at_test.clone());
            self.f.terminate(tested, Terminator::BrIf { condition, then, otherwise });
            for (block, values) in breaks {
                self.same_types(&at_test, &values, span)?;
                self.f.terminate(block, Terminator::Br(Self::to(after, values)));
            }
        }
        self.forget_unchanged(head, &args, &initial_states, &mut at_end);
        self.set_carried(frame, &carried, &shapes, &at_end, span)
    }

    /// Removes arguments of a loop for trained parameters that it does not change: a gradient is
    /// taken with respect to the value before it.
    fn forget_unchanged(&mut self, head: IrBlock, args: &[Value], before: &[Value], at_end: &mut [Value]) {
        let first = args.len() - before.len();
        let mut by = SecondaryMap::new();
        for (k, (state, initial)) in self.states.iter().zip(before).enumerate() {
            let arg = args[first + k];
            let passed =
                |c: &&BlockCall| c.block == head && c.args.get(first + k).is_some_and(|v| v != initial && *v != arg);
            let mut calls = self.f.layout.iter().flat_map(|b| self.f.block(*b).terminator.targets());
            if state.is_parameter && !calls.any(|c| passed(&c)) {
                by[arg] = Some(*initial);
            }
        }
        if args.iter().all(|arg| by[*arg].is_none()) {
            return;
        }
        self.f.remove_block_args(head, |k| args.get(k).is_some_and(|arg| by[*arg].is_some()));
        self.f.replace_uses(&by);
        for value in at_end {
            *value = by[*value].unwrap_or(*value);
        }
    }

    fn same_types(&mut self, a: &[Value], b: &[Value], span: Span) -> Res<()> {
        let differ = a.len() != b.len() || a.iter().zip(b).any(|(x, y)| self.f.ty(*x) != self.f.ty(*y));
        if differ { Err(self.bug(span, "a variable changes its type in a loop or branch")) } else { Ok(()) }
    }

    fn bound_value(&mut self, frame: &mut Frame<'a>, bound: &'a Bound, elem: Elem, span: Span) -> Res<Value> {
        match bound {
            Bound::Dim(dim) => {
                let dim = self.dim(&frame.dims, dim, span)?;
                self.dim_scalar(&dim, elem, span)
            }
            Bound::Value(value) => {
                let at = value.span;
                let value = self.value(frame, value)?;
                self.cast(value, elem, at)
            }
        }
    }

    /// A dimension as a scalar tensor.
    pub(super) fn dim_scalar(&mut self, dim: &Dim, elem: Elem, span: Span) -> Res<Value> {
        match dim.as_const() {
            Some(n) => self.scalar(Scalar::Int(n), elem, span),
            None => {
                let ty = Type::Tensor(crate::shape::TensorType::scalar(elem));
                self.emit(Op::DimValue(dim.clone()), Vec::new(), Some(ty), span)
            }
        }
    }

    /// `if`: two blocks and their join, whose arguments are the assigned variables and the value of
    /// the `if`.
    pub(super) fn branch(
        &mut self,
        frame: &mut Frame<'a>,
        condition: &'a Expr,
        branches: [&'a Block; 2],
        carried: &[LocalId],
        span: Span,
    ) -> Res<Local> {
        let condition = self.value(frame, condition)?;
        let (shapes, before) = self.carried(frame, carried, span)?;
        let starts = [self.f.add_block(), self.f.add_block()];
        let (then, otherwise) = (Self::to(starts[0], Vec::new()), Self::to(starts[1], Vec::new()));
        self.f.terminate(self.block, Terminator::BrIf { condition, then, otherwise });
        let mut ends = Vec::new();
        let mut value = Local::unit();
        for (start, branch) in starts.into_iter().zip(branches) {
            self.block = start;
            self.place_last(start);
            self.set_carried(frame, carried, &shapes, &before, span)?;
            let made = self.nested(span, |this| this.block(frame, branch))?;
            if std::mem::take(&mut self.has_left) {
                continue;
            }
            value = made;
            let (_, mut made) = self.carried(frame, carried, span)?;
            made.extend(self.flatten(&value, span)?);
            ends.push((self.block, made));
        }
        let Some((_, sample)) = ends.first().cloned() else {
            self.has_left = true;
            return Ok(value);
        };
        let (meet, args) = self.block_like(&sample);
        for (end, made) in ends {
            self.same_types(&sample, &made, span)?;
            self.f.terminate(end, Terminator::Br(Self::to(meet, made)));
        }
        self.block = meet;
        let count: usize = args.len().min(before.len());
        let (assigned, rest) = args.split_at(count);
        self.set_carried(frame, carried, &shapes, assigned, span)?;
        self.rebuild(&value, &mut rest.iter().copied(), span)
    }
}
