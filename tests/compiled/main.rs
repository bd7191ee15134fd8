//! Compiled code against interpreters and references. `tests/llvm.sh` runs all of this with LLVM's code too.

mod attention_compiled;
mod backends;
mod beam;
mod bf16;
mod bits;
use attnc::ir::interp::bounded;
mod c_program;
mod cached;
#[path = "../common/centred.rs"]
mod centred;
#[path = "../common/compiled.rs"]
mod compiled;
mod control_flow;
mod decode;
mod diagonals;
mod dropout;
#[path = "../common/everywhere.rs"]
mod everywhere;
#[path = "../common/fixtures.rs"]
mod fixtures;
#[path = "../common/front.rs"]
mod front;
mod functions;
#[path = "../common/gen_source/mod.rs"]
mod gen_source;
#[path = "../common/gen_tile.rs"]
mod gen_tile;
mod generate;
mod gradients_compiled;
#[path = "../common/host.rs"]
mod host;
mod hostile;
mod indexing;
mod joined;
mod layer_lists;
mod lengths;
mod masks;
mod mixture;
mod narrow;
mod numbers;
mod oracle_compiled;
mod packing;
mod recurrent;
mod rows_compiled;
mod selection;
mod session_states;
mod state;
mod std_nn;
mod systems;
#[path = "../common/tape.rs"]
mod tape;
mod training;
mod training_torch;
mod update;
