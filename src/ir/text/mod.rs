//! The text form of the graph IR: printer and parser.
//!
//! In: a [`Module`](super::Module), or text. Out: its canonical text, or the module. This is the
//! output of `--emit ir` and the format of `.air` files; printing a parsed canonical text
//! reproduces it byte for byte. The generic syntax (statements made of phrases) is `irtext`'s; this
//! folder gives it meaning. It does not know how the module was created.
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
//! * Values and blocks are numbered in the order of the text, including values in the bodies of
//!   fused regions.
//! * Constants of rank 0 have no line of their own and are printed inline: `f32` floats bare
//!   (`0.5`, `-inf`), booleans bare, bare integers are indices, all others with their type:
//!   `i32(3)`, `bf16(0.5)`. The parser inserts an instruction for each before its user, one per
//!   literal and block.
//! * The symbols of a function are those in its arguments' types. `batch` before the type of an
//!   argument or a result means that its first axis stands for any number of leading axes. Lines
//!   `doc`, `where` and `tapped` come before the first block.
//! * A source location is `loc(line:column)`, or `loc("file":line:column)` if it is not in the
//!   module's own file. An attention also has the known locations of the operations it was fused
//!   from: `loc(9:5, scores 6:13, scale 6:21, causal 7:9, softmax 8:9)`.
//! * A region: `%9 = fused matmul(%10 = %7, %11 = %8) : f32[S, 64] { ... yield %12 }`, with its
//!   arguments named where they are bound.

mod operand;
mod operations;
mod parse;
mod print;

pub use parse::{Parsed, parse};
pub use print::{Anchor, Printed, PrintedPart, print, print_function, print_with_anchors, print_with_entities};

#[cfg(test)]
mod tests;
