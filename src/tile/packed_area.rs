//! How the preparing plan fills the packed area: a launch for each tensor of a parameter, in loops
//! over the arrays of layers around it.
//!
//! In: a kernel's name, the views of a parameter that it reads, and the areas it writes. Out:
//! instructions of the plan. It must not know what a kernel does with a parameter.

use super::{Block, Op, PlanBuilder, PlanOp, Type, Value, View};
use crate::interface::{ParamDecl, param_named};
use crate::scalar::CmpOp;
use crate::shape::{Dim, TensorType};

/// An area that a launch writes, per tensor of an array: a part of a whole.
pub(crate) struct Area {
    /// Offset of the array's area.
    pub(crate) offset: u64,
    /// Extents of the area of one tensor.
    pub(crate) whole: Vec<Dim>,
    /// The view passed to the kernel, with the strides of the whole.
    pub(crate) part: View,
    /// Offset of its first element in the whole.
    pub(crate) start: Dim,
}

/// Launches a kernel for each tensor of a parameter: it reads views of the tensor and writes areas.
///
/// # Errors
/// An undeclared parameter, which is a bug in attnc.
pub(crate) fn launch_for_each(
    b: &mut PlanBuilder,
    params: &[ParamDecl],
    (name, counts): (&str, &[i64]),
    kernel: &str,
    sources: &[View],
    areas: Vec<Area>,
) -> Result<(), String> {
    let param = param_named(params, name).ok_or("a weight that is not a parameter")?;
    let source = View::whole(Value::from_u32(0), &param.ty).buffer_type();
    let mut targets = Vec::new();
    for Area { offset, whole, part, start } in areas {
        let mut all: Vec<Dim> = counts.iter().copied().map(Dim::from).collect();
        all.extend(whole);
        let whole = View::whole(part.root, &TensorType::new(part.elem, all));
        targets.push((b.packed(offset, whole.buffer_type()), whole.strides, start, part.buffer_type()));
    }
    let (indices, ends) = open_loops(b, counts);
    let op = Op::Plan(PlanOp::Param { name: name.to_string() });
    let from = b.value(op, indices.clone(), Type::Buffer(source.clone()));
    let mut operands = Vec::new();
    for view in sources {
        let same = source == view.buffer_type() && view.offset == Dim::zero();
        operands.push(if same { from } else { b.view(from, view.offset.clone(), &[], view.buffer_type()) });
    }
    for (to, strides, start, ty) in targets {
        let dynamic: Vec<(Value, Dim)> = indices.iter().copied().zip(strides).collect();
        let same = dynamic.is_empty() && start == Dim::zero() && b.ty(to).buffer() == Some(&ty);
        operands.push(if same { to } else { b.view(to, start, &dynamic, ty) });
    }
    b.launch(kernel, operands);
    close_loops(b, ends);
    Ok(())
}

/// A loop under construction: its header, its exit, its counter.
type Loop = (Block, Block, Value);

/// Opens a loop for each count, outermost first; returns the counters, and the loops to close.
fn open_loops(b: &mut PlanBuilder, counts: &[i64]) -> (Vec<Value>, Vec<Loop>) {
    let (mut indices, mut loops) = (Vec::new(), Vec::new());
    for count in counts {
        let zero = b.index(0);
        let (head, args) = b.new_block(vec![Type::Index]);
        let (inner, _) = b.new_block(Vec::new());
        let (done, _) = b.new_block(Vec::new());
        b.br(head, &[zero]);
        b.switch_to(head);
        let end = b.index(*count);
        let more = b.compare_scalars(CmpOp::Lt, args[0], end);
        b.br_if(more, (inner, &[]), (done, &[]));
        b.switch_to(inner);
        indices.push(args[0]);
        loops.push((head, done, args[0]));
    }
    (indices, loops)
}

fn close_loops(b: &mut PlanBuilder, loops: Vec<Loop>) {
    for (head, done, counter) in loops.into_iter().rev() {
        let next = b.plus(counter, 1);
        b.br(head, &[next]);
        b.switch_to(done);
    }
}
