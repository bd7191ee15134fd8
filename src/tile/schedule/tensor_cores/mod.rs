//! Tensor cores: the step of the schedule for a GPU that gives products and attention of 16-bit floats kernels of fragments.
//!
//! In: an unscheduled module and a kind of GPU. Out: the same module, in which kernels that fit are scheduled for the GPU: their
//! tiles are fragments of registers and tiles of shared memory, copied in the background. What does not fit stays as it is, for the
//! generic schedule. What this must not know: instructions, how fragments lie in registers.
//!
//! What fits:
//!
//! * a product of two operands of `bf16`, or of two of `f16`, over a known number of steps, with elementwise work on its result
//!   ([`products`]). `f32` stays exact, its products chains of fused steps, unless `tf32` is allowed; then it fits too;
//! * a product of 16-bit floats by integers in panels, packed before all calls, of at least [`FEW_ROWS`] rows, or of a number of rows that is known at run
//!   time ([`by_integers`]);
//! * attention whose queries, keys and values are `bf16`, or `f16`, with heads of known width up to 256 ([`attention`]); calls of few
//!   queries, with as many keys as there may be, divide the keys among blocks ([`split`]);
//! * in both, operands whose rows are made of chunks of 16 bytes, at addresses that the plan's views show to be multiples of 16.
//!
//! # Numerics
//!
//! Products of 16-bit floats are exact; sums are `f32`, of all steps, in the order of the unit, which may drop bits below those of
//! the largest of the terms that it adds at a time. So an element is off by at most `K 2^-23` times the sum of the magnitudes of its products.
//! With `tf32`, operands of `f32` are rounded to 11 significant bits before, ties away from zero, which adds at most `2^-10 (1 + 2^-12)` times that sum.
//! Integers are multiplied as they are, and the sum over a group by its scale, which rounds once for each group.
//! Attention's softmax is `f32`, powers of 2 have a relative error of 2.5 * 2^-23; weights are rounded to 16 bits before they are divided
//! by their sum, and the sum is of the weights as they were, as on a CPU with products of pairs (`schedule/attention.rs`). A row that
//! sees no key gives zeros. Weights of one query have an error in common, the rounding of its highest score, which the division by their sum
//! takes out, however large the scores are ([`scores`]).
//!
//! A key that a mask hides contributes nothing, even if its value is NaN or infinite ([`careful`]).

mod attention;
mod build;
mod careful;
mod machine;
mod products;
mod roles;
mod scores;
mod split;

use std::collections::{BTreeMap, BTreeSet};

use super::attention::{Divided, Whole, may_be_replaced};
use crate::shape::Elem;
use crate::tile::alignment::{CHUNK, launches_give, needed};
use crate::tile::{BufferType, GpuArch, InstData, Kernel, Module, Op, Param, State};
use machine::Machine;
pub(super) use products::{FEW_COLS, FEW_ROWS, Integers, PANEL, by_integers, unpacked_rows};

/// Gives the kernels of a module that fit their forms for tensor cores; their names, and what takes the place of attentions whose calls
/// of few queries have kernels of their own: the step of attention puts these into plans. `tf32`: products of `f32` may be rounded to that.
pub(super) fn expand(module: &mut Module, arch: GpuArch, tf32: bool) -> (BTreeSet<String>, BTreeMap<String, Divided>) {
    let machine = Machine { tf32, ..Machine::of(arch) };
    let mut changed = BTreeSet::new();
    let mut made = Vec::new();
    let mut divided = BTreeMap::new();
    for k in module.kernels.iter().filter(|k| k.state == State::Unscheduled) {
        let gives = |param: &Param, bytes: u64| gives(module, k, param, bytes);
        let aligned = |param: &Param| gives(param, CHUNK);
        let new = attention::kernel(k, &machine, &aligned).or_else(|| products::kernel(k, &machine, &aligned));
        let is_aligned = |n: usize| k.params.get(n).is_some_and(&aligned);
        let new = new.map(|new| reads_in_pairs(new, &is_aligned));
        // What it writes in pairs begins at a multiple of a pair.
        let fits = |new: &Kernel| k.params.iter().zip(&new.params).all(|(old, p)| gives(old, needed(new, p.value)));
        let of_few = attention::divided(k, &machine, &aligned);
        let of_few = of_few.map(|d| Divided { whole: reads_in_pairs(d.whole, &is_aligned), ..d });
        let of_few = of_few.filter(|d| fits(&d.whole));
        if let Some(of_few) = of_few.filter(|_| may_be_replaced(module, k)) {
            divided.insert(k.name.clone(), of_few);
        } else if let Some(new) = new.filter(fits) {
            changed.insert(k.name.clone());
            made.push(new);
        }
    }
    for new in made {
        if let Some(k) = module.kernels.iter_mut().find(|k| k.name == new.name) {
            *k = new;
        }
    }
    (changed, divided)
}

/// A kernel in which tensors that elementwise work reads are said to begin at multiples of 16 bytes, where the parameters with their numbers
/// are given such: then code generation reads neighbours together. What begins elsewhere it reads element by element.
pub(super) fn reads_in_pairs(mut kernel: Kernel, is_aligned: &dyn Fn(usize) -> bool) -> Kernel {
    let body = &kernel.body;
    let is_read = |p: &Param| {
        let buffer = body.ty(p.value).buffer().filter(|b| matches!(b.elem, Elem::F32 | Elem::BF16 | Elem::F16));
        let reads = |data: &InstData| match data.op {
            Op::Load { cols: Some(cols), .. } if data.operands.first() == Some(&p.value) => {
                buffer.is_some_and(|b| b.is_dense(cols))
            }
            _ => false,
        };
        body.insts().any(|(_, _, data)| reads(data))
    };
    let read: Vec<bool> = kernel.params.iter().map(is_read).collect();
    for (n, (p, read)) in kernel.params.iter_mut().zip(read).enumerate() {
        p.aligned |= read && is_aligned(n);
    }
    kernel
}

/// Do all launches of a kernel give a parameter a buffer at a multiple of so many bytes?
fn gives(module: &Module, kernel: &Kernel, param: &Param, bytes: u64) -> bool {
    let n = kernel.params.iter().position(|p| p == param);
    n.is_some_and(|n| launches_give(module, &kernel.name, n, bytes))
}

/// Into how many parts an attention on tensor cores divides the keys of calls of few queries, or why it does not; `None` for what is not
/// computed there.
pub(super) fn parts_of_keys(module: &Module, kernel: &Kernel, arch: GpuArch) -> Option<Result<i64, Whole>> {
    let aligned = |param: &Param| gives(module, kernel, param, CHUNK);
    attention::parts(kernel, &Machine::of(arch), &aligned)
}

/// Can tiles of a left operand be copied to shared memory?
pub(super) fn is_left_operand(b: &BufferType) -> bool {
    build::has_rows_of_chunks(b, b.shape.len().saturating_sub(1))
}

/// The form of a kernel by itself for tensor cores, its parameters at multiples of 16 bytes; `None` where it has none.
pub fn tensor_core_kernel(kernel: &Kernel, arch: GpuArch) -> Option<Kernel> {
    let machine = Machine::of(arch);
    let aligned = |_: &Param| true;
    attention::kernel(kernel, &machine, &aligned).or_else(|| products::kernel(kernel, &machine, &aligned))
}
