//! Does a `model.so` do what its callers were promised? Asked of a toy model whose kernels are written by hand, so that
//! nothing of the compiler but the runtime takes part.

extern crate alloc;

mod ahead;
mod arguments;
mod calls;
mod checks;
mod linking;
mod ranges;
mod several;
mod style;
mod toy;
mod weights;
mod wrappers;
