//! The text form of the tile IR: printed by [`print`], parsed by [`parse`].
//!
//! The syntax is that of [`crate::irtext`]: a module is a list of statements, one per line; bodies
//! of kernels and plans are in braces. Unnamed values and blocks are numbered in textual order.
//!
//! ```text
//! module "gpt2.attn"
//! file "nn.attn"
//! model "Gpt2"
//! param "h.*.ln_1.weight"[12]            : f32[768]
//! site "index {0} is out of range"
//! packed 4096
//!
//! kernel @map.0(%x: in f32[S, 768], %y: out f32[S, 768] strides[1, S], %n: index) symbols(S) grid(%i: ceil(S, 8)) {
//! ^bb0:
//!   %0 = const 8                         : index
//!   %1 = mul %i, %0                      : index                loc(3:5)
//! }
//!
//! plan @forward tapped symbols(S) taps("h.*.weights") slots(S*3072, 64) {
//! plan @weights prepare {
//! ```

mod computes;
mod entries;
mod forms;
mod parse;
mod print;
mod types;

pub(crate) use entries::lines as lines_of_entry;
pub use parse::{Parsed, parse};
pub use print::{
    Anchor, ErrorLocation, Owner, Printed, print, print_kernel, print_part, print_plan, print_with_anchors,
};
pub(crate) use print::{head_of_kernel, lines_of_kernel, lines_of_plan, names_of_kernel, with_names};
