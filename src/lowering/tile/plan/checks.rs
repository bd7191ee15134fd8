//! Run-time checks of a plan: indices that depend on loop counters or on data, and the axes of
//! `argmax`.
//!
//! In: instructions of the graph IR with indices. Out: `check_index` operations of the plan, each
//! with the message to report, and views at the checked indices. Conditions on dimensions alone are
//! entry checks (`ir::requirements`).

use super::super::Call;
use super::{Lowering, Operand, literal_of, map};
use crate::ir::{self, Function, Op, Value};
use crate::scalar::{ARGMAX_LENGTH, BinaryOp, CmpOp, ReduceKind};
use crate::shape::{Dim, Elem, Fact, Relation, TensorType};
use crate::tile::{self, Compute, View, sort};

impl Lowering<'_> {
    pub(super) fn site(&mut self, text: String) -> u32 {
        let found = self.out.sites.iter().position(|s| *s == text);
        let i = found.unwrap_or_else(|| {
            self.out.sites.push(text);
            self.out.sites.len() - 1
        });
        u32::try_from(i).unwrap_or(u32::MAX)
    }

    /// The message for an index out of range.
    pub(super) fn index_site(&mut self, loc: ir::Loc) -> u32 {
        let text = format!("{}: index {{0}} is out of range for an axis of {{1}}", self.place_text(loc));
        self.site(text)
    }

    pub(super) fn place_text(&self, loc: ir::Loc) -> String {
        loc.text(&self.out.name, &self.out.files)
    }

    /// A dimension gets its value: checks the value, and the conditions that depend on it.
    pub(super) fn length(&mut self, inst: ir::Inst, data: &ir::InstData, name: &str, most: &Dim) -> Result<(), String> {
        let value = data.operands.first().copied().ok_or("a length without a value")?;
        let index = self.index_value(value)?;
        let place = self.place_text(data.loc);
        let range = match most.as_const() {
            Some(most) => format!("at most {most}"),
            None => format!("less than {{1}} ({name} <= {most})"),
        };
        let full = self.state_of(value).map_or(String::new(), |state| {
            format!("; the cache is full: `{state}` counts what it holds, and a new session begins with an empty one")
        });
        let site = self.site(format!("{place}: {name} is {{0}}, but must be at least 0 and {range}{full}"));
        let bound = self.builder.dim(&most.add(&Dim::one()));
        let index = self.builder.check_index(index, bound, site);
        self.builder.length(index, name, most.clone());
        for (fact, loc) in self.checks.get(&inst).cloned().unwrap_or_default() {
            self.check_fact(&fact, loc);
        }
        Ok(())
    }

    /// The state that an integer is computed from, found by walking back over at most 16
    /// operations.
    fn state_of(&self, value: Value) -> Option<&str> {
        let mut open = vec![value];
        for _ in 0..16 {
            let made = self.f.def_inst(open.pop()?);
            match made.map(|made| (&made.op, &made.operands)) {
                Some((Op::State { name }, _)) => return Some(name),
                Some((_, operands)) => open.extend(operands.iter().copied()),
                None => {}
            }
        }
        None
    }

    fn check_fact(&mut self, fact: &Fact, loc: ir::Loc) {
        let Fact { left, relation, right } = fact;
        let text = format!("{}: the call must satisfy {}", self.place_text(loc), fact.as_written());
        let slack = right.sub(left);
        let (a, b) = match relation {
            // Size limits were checked on entry with the upper bound of the dimension; that covers
            // everything computed here.
            Relation::Le if fact.is_fit() => return,
            Relation::Le => (Dim::zero(), slack.add(&Dim::one())),
            Relation::Lt => (Dim::zero(), slack),
            Relation::Eq => (slack, Dim::one()),
            Relation::Ne => {
                let site = self.site(text);
                let (left, right) = (self.builder.dim(left), self.builder.dim(right));
                let same = self.builder.compare_scalars(CmpOp::Eq, left, right);
                let (one, zero) = (self.builder.index(1), self.builder.index(0));
                let same = self.builder.value(tile::Op::Select, vec![same, one, zero], tile::Type::Index);
                self.builder.check_index(same, one, site);
                return;
            }
            Relation::Divisible => {
                let site = self.site(text);
                let (zero, one) = (self.builder.index(0), self.builder.index(1));
                let (left, right) = (self.builder.dim(left), self.builder.dim(right));
                // The divisor must be at least 1.
                self.builder.check_index(zero, right, site);
                let rest = self.builder.index_binary(BinaryOp::Rem, left, right);
                self.builder.check_index(rest, one, site);
                return;
            }
        };
        let site = self.site(match relation {
            Relation::Eq => format!("{text}, and they differ"),
            Relation::Lt => format!("{text}: {left} may be {} at most", right.sub(&Dim::one())),
            Relation::Le | Relation::Ne | Relation::Divisible => format!("{text}: {left} may be {right} at most"),
        });
        let (a, b) = (self.builder.dim(&a), self.builder.dim(&b));
        self.builder.check_index(a, b, site);
    }

    /// Converts indices, and checks them unless the enclosing loops prove them to be in range.
    pub(super) fn indices_within(
        &mut self,
        data: &ir::InstData,
        indices: &[Value],
        extents: &[Dim],
    ) -> Result<Vec<tile::Value>, String> {
        let mut out = Vec::new();
        for (i, extent) in indices.iter().zip(extents) {
            let index = self.index(*i)?;
            if ir::in_range(self.f, &self.cfg, self.at, *i, extent) {
                out.push(index);
                continue;
            }
            let bound = self.builder.dim(extent);
            let site = self.index_site(data.loc);
            out.push(self.builder.check_index(index, bound, site));
        }
        Ok(out)
    }

    /// An update: writes the value into a part of the slot that the result shares with the target,
    /// or, if they share none, of a copy of the target.
    pub(super) fn update(&mut self, data: &ir::InstData, axes: &[usize]) -> Result<(), String> {
        let v = data.result.ok_or("an update without a result")?;
        let [target, value, indices @ ..] = data.operands.as_slice() else {
            return Err("an update without operands".into());
        };
        let (target, value) = (*target, *value);
        let (whole, part) = (self.tensor(v)?.clone(), self.tensor(value)?.clone());
        let to = self.own_slot(v, &whole);
        let window = self.window(&to, &part, (axes, indices), data.loc)?;
        // If the target is updated in place, the kernel that computes the value may write it there
        // directly.
        let in_place = self.places[target].as_ref().is_some_and(|from| *from == to);
        if self.write_too(Some(&window).filter(|_| in_place), data.loc)? {
            self.places[v] = Some(to);
            return Ok(());
        }
        // The value must not lie in the memory that is written: another part of the same slot, or
        // another view of it (transposed, say).
        let mut aside = None;
        if self.places[value].as_ref().is_some_and(|from| from.root == to.root) {
            let from = self.view(value)?;
            aside = Some(self.copied(&from)?);
        }
        match self.places[target].clone() {
            Some(from) if from == to => {}
            Some(from) if from.root == to.root => {
                self.remark_copy(data.loc, &whole, &from);
                let from = self.copied(&from)?;
                self.launch(map::copy("update", &from, &to))?;
            }
            from => {
                // A target without memory, such as a constant, is materialised in place rather than
                // copied.
                if let Some(from) = &from {
                    self.remark_copy(data.loc, &whole, from);
                }
                self.put("update", target, &to)?;
            }
        }
        match aside {
            Some(from) => self.launch(map::copy("update", &from, &window))?,
            None => self.put("update", value, &window)?,
        }
        self.places[v] = Some(to);
        Ok(())
    }

    /// Remarks that an update copies its target, and why.
    fn remark_copy(&mut self, loc: ir::Loc, whole: &TensorType, from: &View) {
        // A root may also denote a state's memory, or a copy.
        let root = Some(from.root).filter(|v| self.f.has_value(*v));
        let of_caller = root.is_some_and(|v| {
            self.f.block(self.f.entry()).args.contains(&v)
                || self.f.def_inst(v).is_some_and(|d| matches!(d.op, Op::Param { .. }))
        });
        let why =
            if of_caller { "arguments and parameters are not written" } else { "the old value is needed afterwards" };
        self.remark(loc, format!("the assignment copies the whole {whole}: {why}"));
    }

    pub(super) fn remark(&mut self, loc: ir::Loc, text: String) {
        self.shared.remarks.insert((loc, text));
    }

    /// A view of part of a tensor: along each of `axes` it starts at a checked index.
    pub(super) fn window(
        &mut self,
        from: &View,
        ty: &TensorType,
        (axes, indices): (&[usize], &[Value]),
        loc: ir::Loc,
    ) -> Result<View, String> {
        let mut view = from.clone();
        for (axis, at) in axes.iter().zip(indices) {
            let lengths = (from.shape.get(*axis), ty.shape.get(*axis));
            let (Some(extent), Some(length)) = lengths else {
                return Err("a window of an axis that is not there".into());
            };
            let index = self.index_value(*at)?;
            let place = self.place_text(loc);
            let text = match length.as_const() {
                Some(1) => format!("{place}: index {{0}} is out of range for an axis of {{1}}"),
                _ => format!("{place}: {length} elements from {{0}} on are out of range: they can begin below {{1}}"),
            };
            let site = self.site(text);
            let bound = self.builder.dim(&extent.sub(length).add(&Dim::one()));
            let index = self.builder.check_index(index, bound, site);
            let name = self.fresh_root();
            self.indices[name] = Some(index);
            view = view.window_at(*axis, name, length);
        }
        Ok(view)
    }

    /// An index value, converted from an integer scalar if need be.
    fn index_value(&mut self, at: Value) -> Result<tile::Value, String> {
        match self.f.ty(at) {
            ir::Type::Index => self.index(at),
            ir::Type::Tensor(_) => {
                let place = self.view(at)?;
                let buffer = self.buffer(&place)?;
                let scalar = self.builder.load_scalar(buffer, &[]);
                Ok(self.builder.to_index(scalar))
            }
        }
    }

    pub(super) fn select(&mut self, data: &ir::InstData, axis: usize) -> Result<(), String> {
        let v = data.result.ok_or("an index without a result")?;
        let (x, at) = match data.operands.as_slice() {
            [x, at] => (*x, *at),
            _ => return Err("an index has two operands".into()),
        };
        let from = self.view(x)?;
        let extent = from.shape.get(axis).cloned().ok_or("an axis is missing")?;
        // A constant index into a constant extent needs no check.
        if let (Some(Operand::Literal(s)), Some(n)) = (literal_of(self.f, at), extent.as_const())
            && (0..n).contains(&s.as_i64())
        {
            self.places[v] = Some(from.select(axis, &Dim::from(s.as_i64())));
            return Ok(());
        }
        let index = self.index_value(at)?;
        let bound = self.builder.dim(&extent);
        let site = self.index_site(data.loc);
        let index = self.builder.check_index(index, bound, site);
        // The checked index gets a root of its own, so that the view can refer to it.
        let name = self.fresh_root();
        self.indices[name] = Some(index);
        self.places[v] = Some(from.select_at(axis, name));
        Ok(())
    }

    /// `argsort`: one kernel for the first few indices, another for all of them, which needs
    /// scratch of two indices per element.
    pub(super) fn argsort(
        &mut self,
        data: &ir::InstData,
        axis: usize,
        descending: bool,
        first: &Dim,
    ) -> Result<(), String> {
        let v = data.result.ok_or("an order without a result")?;
        let from = self.view(*data.operands.first().ok_or("an operand is missing")?)?;
        let extent = from.shape.get(axis).cloned().ok_or("an axis is missing")?;
        let place = self.place_text(data.loc);
        if extent.as_const().is_none_or(|n| n > ARGMAX_LENGTH) {
            let site = self.site(format!("{place}: {{0}} elements are sorted, and their indices are of i32"));
            let (length, bound) = (self.builder.dim(&extent), self.builder.index(ARGMAX_LENGTH + 1));
            self.builder.check_index(length, bound, site);
        }
        let to = self.destination(v)?;
        // For an empty result a kernel runs as well, so that the result is written like any other.
        let few = first.as_const().filter(|k| (1..=sort::FEW).contains(k));
        let last: Vec<usize> = (0..from.shape.len()).filter(|i| *i != axis).chain([axis]).collect();
        let (x, out) = (from.transpose(&last), to.transpose(&last));
        let site = self.site(format!("{place}: the index {{0}} of {{1}} elements that are sorted is a bug in attnc"));
        let (compute, types) = (Compute::Sort { descending, site }, [x.buffer_type(), out.buffer_type()]);
        let (kernel, buffers) = match few {
            Some(_) => (compute.expand("top", &types), vec![x, out]),
            None => {
                self.remark(data.loc, format!("on a CPU, {extent} elements are sorted one by one, without vectors"));
                let mut shape = x.shape.clone();
                shape.insert(shape.len() - 1, Dim::from(2));
                let room = View::whole(self.fresh_root(), &TensorType::new(Elem::I32, shape));
                self.add_slot(room.root, &room);
                let [from, to] = types;
                let kernel = compute.expand("sort", &[from, room.buffer_type(), to]);
                (kernel, vec![x, room, out])
            }
        };
        self.launch(Call { kernel: kernel.ok_or("a scalar is sorted")?, buffers })?;
        self.places[v] = Some(to);
        Ok(())
    }

    /// Checks that the axis of `argmax` is not empty, and that its indices fit an `i32`.
    pub(super) fn check_argmax(&mut self, body: &Function) -> Result<(), String> {
        for (_, _, d) in body.insts() {
            let Op::Reduce { kind: ReduceKind::ArgMax, axes, .. } = &d.op else { continue };
            let x = d.operands.first().and_then(|v| body.tensor(*v)).ok_or("argmax of no tensor")?;
            let extent = axes.first().and_then(|a| x.shape.get(*a)).cloned().unwrap_or_default();
            let (known, place) = (extent.as_const(), self.place_text(d.loc));
            if known.is_none_or(|n| n < 1) {
                let site = self.site(format!("{place}: argmax of an empty axis"));
                let (zero, bound) = (self.builder.index(0), self.builder.dim(&extent));
                self.builder.check_index(zero, bound, site);
            }
            if known.is_none_or(|n| n > ARGMAX_LENGTH) {
                let site = self.site(format!("{place}: argmax of {{0}} elements, and its indices are of i32"));
                let (length, bound) = (self.builder.dim(&extent), self.builder.index(ARGMAX_LENGTH + 1));
                self.builder.check_index(length, bound, site);
            }
        }
        Ok(())
    }
}
