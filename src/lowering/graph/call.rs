//! Calls, which are inlined, and flattening of tuples.

use super::Res;
use super::bind::constant;
use super::builder::Builder;
use super::frame::{Frame, Local};
use crate::ir::{Op, Type, Value};
use crate::shape::{Elem, TensorType};
use crate::source::Span;
use crate::types::axes::Axis;
use crate::types::typed::{self, Call, FunctionId};

impl<'a> Builder<'a> {
    /// The types of an expression's tensors, in order, with dimensions substituted.
    pub(super) fn types(&mut self, frame: &Frame, ty: &typed::Type, span: Span) -> Res<Vec<TensorType>> {
        match ty {
            typed::Type::Tensor(tensor) => Ok(vec![self.tensor_type(tensor, &frame.dims, &frame.rest, span)?]),
            typed::Type::Tuple(parts) => {
                let mut out = Vec::new();
                for part in parts {
                    out.extend(self.types(frame, part, span)?);
                }
                Ok(out)
            }
        }
    }

    /// The tensors of a value, in order; counters become scalars.
    pub(super) fn flatten(&mut self, value: &Local, span: Span) -> Res<Vec<Value>> {
        match value {
            Local::Tensor(v) => Ok(vec![*v]),
            Local::Counter(v) => Ok(vec![self.counter_value(*v, Elem::I32, span)?]),
            Local::Tuple(parts) => {
                let mut out = Vec::new();
                for part in parts {
                    out.extend(self.flatten(part, span)?);
                }
                Ok(out)
            }
        }
    }

    /// A value like `shape`, its tensors taken from `values` in order.
    pub(super) fn rebuild(&mut self, shape: &Local, values: &mut dyn Iterator<Item = Value>, span: Span) -> Res<Local> {
        match shape {
            Local::Tensor(_) | Local::Counter(_) => match values.next() {
                Some(v) => Ok(Local::Tensor(v)),
                None => Err(self.bug(span, "a value has fewer parts than its type")),
            },
            Local::Tuple(parts) => {
                let mut out = Vec::new();
                for part in parts {
                    out.push(self.rebuild(part, values, span)?);
                }
                Ok(Local::Tuple(out))
            }
        }
    }

    /// The counter of a loop as a scalar tensor.
    pub(super) fn counter_value(&mut self, counter: Value, elem: Elem, span: Span) -> Res<Value> {
        if let Some(value) = self.counters.get(&(self.block, counter, elem)) {
            return Ok(*value);
        }
        let range = self.loops.iter().find(|l| l.counter == Some(counter)).and_then(|l| l.range.clone());
        let Some((_, end)) = range else {
            return Err(self.bug(span, "a counter is used outside of its loop"));
        };
        let numbers = Type::Tensor(TensorType::new(elem, vec![end]));
        let numbers = self.emit(Op::Iota { axis: 0 }, Vec::new(), Some(numbers), span)?;
        let value = self.emit(Op::Index { axis: 0 }, vec![numbers, counter], None, span)?;
        self.counters.insert((self.block, counter, elem), value);
        Ok(value)
    }

    pub(super) fn call(&mut self, frame: &mut Frame<'a>, call: &'a Call, span: Span) -> Res<Local> {
        let callee = self.program.function(call.function);
        let place = match &call.receiver {
            Some(path) => Some(self.walk(frame, path, span)?),
            None => None,
        };
        let mut inner = Frame::new(callee, place);
        for (name, dim) in &call.dims {
            let dim = self.dim(&frame.dims, dim, span)?;
            inner.dims.insert(name.clone(), dim);
        }
        for (name, value) in &call.constants {
            inner.constants.insert(name.clone(), constant(value, &frame.constants)?);
        }
        for axis in &call.rest {
            match axis {
                Axis::Rest => inner.rest.extend(frame.rest.iter().cloned()),
                Axis::Dim(dim) => inner.rest.push(self.dim(&frame.dims, dim, span)?),
            }
        }
        if call.args.len() != callee.params.len() {
            return Err(self.bug(span, "a call has not as many arguments as parameters"));
        }
        for (param, arg) in callee.params.iter().zip(&call.args) {
            let value = self.expr(frame, arg)?;
            let value = self.argument(&inner, &callee.local(param.local).ty, value, arg.span)?;
            inner.set(param.local, value);
        }
        self.inline(call.function, &mut inner, span)
    }

    /// Broadcasts an argument to the leading axes that its parameter has.
    fn argument(&mut self, inner: &Frame, ty: &typed::Type, value: Local, span: Span) -> Res<Local> {
        let types = self.types(inner, ty, span)?;
        let (Local::Tensor(v), [wanted]) = (&value, types.as_slice()) else { return Ok(value) };
        let given = self.tensor(*v, span)?;
        if given.elem != wanted.elem {
            return Err(self.bug(span, &format!("an argument is {given}, not {wanted}")));
        }
        Ok(Local::Tensor(self.broadcast(*v, wanted.shape.clone(), span)?))
    }

    /// Emits the body of a function here.
    pub(super) fn inline(&mut self, id: FunctionId, frame: &mut Frame<'a>, span: Span) -> Res<Local> {
        // The type checker rejects functions that call themselves.
        if self.calls.contains(&id) {
            return Err(self.bug(span, "a function calls itself"));
        }
        self.calls.push(id);
        let function = frame.function;
        let result = self.nested(span, |this| this.block(frame, &function.body));
        self.calls.pop();
        let value = result?;
        self.check_type(frame, &value, &function.result, span)?;
        Ok(value)
    }

    /// Checks a value against the type that the type checker inferred.
    pub(super) fn check_type(&mut self, frame: &Frame, value: &Local, ty: &typed::Type, span: Span) -> Res<()> {
        let wanted = self.types(frame, ty, span)?;
        let given = tensors(value);
        if wanted.len() != given.len() {
            return Err(self.bug(span, "a value has another number of parts than its type"));
        }
        for (wanted, given) in wanted.iter().zip(given) {
            match given.and_then(|v| self.f.tensor(v)) {
                Some(given) if given != wanted => {
                    let text = format!("the checker says {wanted}, the lowering makes {given}");
                    return Err(self.bug(span, &text));
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }
}

/// The tensors of a value; none for a counter.
fn tensors(value: &Local) -> Vec<Option<Value>> {
    match value {
        Local::Tensor(v) => vec![Some(*v)],
        Local::Counter(_) => vec![None],
        Local::Tuple(parts) => parts.iter().flat_map(tensors).collect(),
    }
}
