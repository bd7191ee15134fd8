//! The text form of the graph IR: printer and parser.
//!
//! In: a [`Module`](super::Module), or a text. Out: its canonical text, or the module. It is what `--emit ir` writes and
//! what a `.air` file holds; printing what was parsed gives the canonical text back, byte for byte. The generic syntax
//! (statements made of phrases) is `irtext`'s; here is what the words mean. It must not know who made the module.
//!
//! ```text
//! module "gpt2.attn"
//! file "std/nn.attn"
//! model "Gpt2"
//! doc "One line of documentation."
//! param "h.*.ln_1.weight"[12] : f32[768]
//! param "wte.weight" : f32[50257, 768]
//!
//! func @forward(%0 "x": f32[S, 768]) -> (f32[S, 768]) {
//!   doc "One line of documentation."
//!   where S <= 1024                                                       loc(61:9)
//! ^bb0:
//!   br ^bb1(0, %0)
//! ^bb1(%1: index, %2: f32[S, 768]):
//!   %3 = lt %1, 12 : bool[]                                               loc(63:9)
//!   br_if %3, ^bb2, ^bb3
//! ^bb2:
//!   %4 = param "h.*.ln_1.weight"[%1] : f32[768]                           loc("std/nn.attn":12:5)
//!   %5 = mul %2, %4 : f32[S, 768]                                         loc("std/nn.attn":14:9)
//!   tap %5, "h.*.scaled"[%1 < 12]                                         loc(64:9)
//!   %6 = add %1, 1 : index
//!   br ^bb1(%6, %5)
//! ^bb3:
//!   return %2
//! }
//! ```
//!
//! * Values are numbered in the order of the text, those of a fused region's body among them. Blocks too.
//! * Constants of rank 0 have no line of their own: they are where they are used, floats of type `f32` bare (`0.5`,
//!   `-inf`), truth values bare, bare integers are indices, the others show their type: `i32(3)`, `bf16(0.5)`. The
//!   parser makes an instruction of each before its user, one for each literal and block.
//! * The symbols of a function are those of its arguments' types. `batch` beside an argument or a result marks that its
//!   first axis stands for any number of leading axes. Lines `doc`, `where` and `tapped` come before the first block.
//! * A place is `loc(line:column)`, in another file than the module's own `loc("file":line:column)`. An attention has those of
//!   its steps too, as far as they are known: `loc(9:5, scores 6:13, scale 6:21, causal 7:9, softmax 8:9)`.
//! * A region: `%9 = fused matmul(%10 = %7, %11 = %8) : f32[S, 64] { ... yield %12 }`, its arguments named as bound.

mod operand;
mod operations;
mod parse;
mod print;

pub use parse::{Parsed, parse};
pub use print::{Anchor, At, Printed, print, print_function, print_with_anchors};

#[cfg(test)]
mod tests;
