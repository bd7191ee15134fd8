//! Element types and symbolic dimensions: the vocabulary that types, both IRs and the runtime
//! share.
//!
//! In: names and integers written by a program's author. Out: [`Elem`], [`Dim`] (a dimension
//! expression in canonical form), [`TensorType`]. Nothing here knows of source text, IR or
//! machines.

mod dim;
mod divide;
mod elem;
mod facts;
mod lattice;
mod monomial;
mod poly;
pub(crate) mod prove;
mod rounding;
mod sizes;
mod tensor;

pub use dim::{Dim, DimError, Factor, Monomial, Term};
pub use elem::Elem;
pub use facts::{Fact, Facts, Relation};
pub use sizes::{ADDRESS_BITS, Sizes};
pub use tensor::{TensorType, broadcast};
