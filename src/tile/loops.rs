//! Construction of loops and branches in kernels.
//!
//! In: a builder at the block before the loop. Out: the builder at the exit. `body` builds one
//! iteration and returns the carried values of the next one; it may add blocks.

use super::{KernelBuilder, Op, Type, Value};
use crate::scalar::CmpOp;

/// A loop over `start, start + step, ..` below `end`, with carried values; returns their final
/// values.
pub(crate) fn counted(
    kb: &mut KernelBuilder,
    (start, end, step): (Value, Value, i64),
    carried: &[Value],
    body: impl FnOnce(&mut KernelBuilder, Value, &[Value]) -> Vec<Value>,
) -> Vec<Value> {
    let initial: Vec<Value> = [start].into_iter().chain(carried.iter().copied()).collect();
    repeated(
        kb,
        &initial,
        |kb, state| kb.compare_scalars(CmpOp::Lt, state[0], end),
        |kb, state| {
            let (i, rest) = (state[0], &state[1..]);
            let next = body(kb, i, rest);
            let i = kb.plus(i, step);
            [i].into_iter().chain(next).collect()
        },
    )
    .split_off(1)
}

/// A loop that runs while a condition on the carried values holds; returns their final values.
pub(crate) fn repeated(
    kb: &mut KernelBuilder,
    initial: &[Value],
    condition: impl FnOnce(&mut KernelBuilder, &[Value]) -> Value,
    body: impl FnOnce(&mut KernelBuilder, &[Value]) -> Vec<Value>,
) -> Vec<Value> {
    let types: Vec<Type> = initial.iter().map(|v| kb.ty(*v).clone()).collect();
    let (head, state) = kb.new_block(types);
    let (inner, _) = kb.new_block(Vec::new());
    let (done, _) = kb.new_block(Vec::new());
    kb.br(head, initial);
    kb.switch_to(head);
    let more = condition(kb, &state);
    kb.br_if(more, (inner, &[]), (done, &[]));
    kb.switch_to(inner);
    let next = body(kb, &state);
    kb.br(head, &next);
    kb.switch_to(done);
    state
}

/// A truth value that is computed differently depending on a condition.
pub(crate) fn truth(
    kb: &mut KernelBuilder,
    condition: Value,
    then: impl FnOnce(&mut KernelBuilder) -> Value,
    otherwise: impl FnOnce(&mut KernelBuilder) -> Value,
) -> Value {
    // Block arguments may be indices, but not truth values.
    let number = |kb: &mut KernelBuilder, truth: Value| {
        let (yes, no) = (kb.index(1), kb.index(0));
        kb.value(Op::Select, vec![truth, yes, no], Type::Index)
    };
    let given = branch(
        kb,
        condition,
        |kb| {
            let truth = then(kb);
            vec![number(kb, truth)]
        },
        |kb| {
            let truth = otherwise(kb);
            vec![number(kb, truth)]
        },
    );
    let no = kb.index(0);
    kb.compare_scalars(CmpOp::Ne, given[0], no)
}

/// An if-else; returns the values of the branch that was taken, which are indices or tiles of the
/// same types.
pub(crate) fn branch(
    kb: &mut KernelBuilder,
    condition: Value,
    then: impl FnOnce(&mut KernelBuilder) -> Vec<Value>,
    otherwise: impl FnOnce(&mut KernelBuilder) -> Vec<Value>,
) -> Vec<Value> {
    let (yes, _) = kb.new_block(Vec::new());
    let (no, _) = kb.new_block(Vec::new());
    kb.br_if(condition, (yes, &[]), (no, &[]));
    kb.switch_to(yes);
    let given = then(kb);
    let types: Vec<Type> = given.iter().map(|v| kb.ty(*v).clone()).collect();
    let (after, results) = kb.new_block(types);
    kb.br(after, &given);
    kb.switch_to(no);
    let given = otherwise(kb);
    kb.br(after, &given);
    kb.switch_to(after);
    results
}
