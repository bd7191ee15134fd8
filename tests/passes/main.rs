//! The passes over graph IR: their examples, small cases, fusion with its bounds, and that results stay.

use attnc::ir::interp::bounded;
#[macro_use]
#[path = "../common/passes.rs"]
mod passes;

mod attention;
mod essays;
#[path = "../common/fixtures.rs"]
mod fixtures;
mod flow;
mod forms;
#[path = "../common/front.rs"]
mod front;
mod fusion_attention;
mod fusion_bounds;
mod fusion_examples;
mod fusion_property;
mod fusion_regions;
mod fusion_sources;
#[path = "../common/gen_source/mod.rs"]
mod gen_source;
#[path = "../common/gradients.rs"]
mod gradients;
mod gradients_of_operations;
mod gradients_of_programs;
mod hoist;
#[path = "../common/host.rs"]
mod host;
mod merge;
mod pass_manager;
mod passes_keep_results;
mod passes_small;
mod row;
mod small;
#[path = "../common/tape.rs"]
mod tape;
mod values;
