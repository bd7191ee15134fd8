//! Tests of the PTX module: texts, the verifier, what NVIDIA's assembler says, and what the simulator makes of kernels.

mod assembled;
use attnc::ir::interp::bounded;
mod by_hand;
mod candidates;
#[path = "../common/centred.rs"]
mod centred;
mod chains;
mod elements;
mod epilogues;
mod examples;
mod few_rows;
mod fragments;
mod generate;
mod hidden;
mod in_time;
mod kernels;
mod large_scores;
mod long_rows;
mod oracle;
mod packed;
mod parts;
mod persistent;
mod ptxas;
mod readable;
mod runs;
mod scans;
mod sim;
mod tensor_cores;
mod texts;
mod tf32;
mod traffic;
mod transposes;
mod verifier;
mod windows;
mod wounded;

#[path = "../common/fixtures.rs"]
mod fixtures;
#[path = "../common/front.rs"]
mod front;
#[path = "../common/gen_source/mod.rs"]
mod gen_source;
#[path = "../common/gen_tile.rs"]
mod gen_tile;
#[path = "../common/grouped.rs"]
mod grouped;
#[path = "../common/host.rs"]
mod host;
#[path = "../common/meant.rs"]
mod meant;
