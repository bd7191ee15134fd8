//! What Cranelift and the leaves make for a CPU: levels, modes of products, assembly, taps, threads.

mod ahead;
mod assembly;
use attnc::ir::interp::bounded;
mod clif_texts;
#[path = "../common/compiled.rs"]
mod compiled;
mod dot_modes;
#[path = "../common/fixtures.rs"]
mod fixtures;
#[path = "../common/front.rs"]
mod front;
#[path = "../common/gen_source/mod.rs"]
mod gen_source;
#[path = "../common/host.rs"]
mod host;
mod levels;
mod packing_batched;
mod taps;
mod threads;
