//! Random programs of all three generators: sources, graph IR, tile IR. What each becomes, to compiled code, computes the same.
//!
//! `tests/live/random.sh COUNT` runs more of them than CI does.

use attnc::ir::interp::bounded;
#[path = "../common/compiled.rs"]
mod compiled;
#[path = "../common/front.rs"]
mod front;
mod fuzz;
#[path = "../common/gen_ir/mod.rs"]
mod gen_ir;
#[path = "../common/gen_plan.rs"]
mod gen_plan;
#[path = "../common/gen_source/mod.rs"]
mod gen_source;
#[path = "../common/gen_tile.rs"]
mod gen_tile;
#[path = "../common/gradients.rs"]
mod gradients;
mod gradients_of_programs;
mod graph_ir;
#[path = "../common/grouped.rs"]
mod grouped;
#[path = "../common/meant.rs"]
mod meant;
mod passes;
mod rounded;
mod sources;
#[path = "../common/tape.rs"]
mod tape;
#[path = "../../fuzz/targets/mod.rs"]
mod targets;
mod tile_ir;

/// The seeds of a test: as many as it usually has, from 0 on; `ATTNC_SEEDS` says how many otherwise, `ATTNC_FIRST_SEED` where to start.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let first = number("ATTNC_FIRST_SEED").unwrap_or(0);
    first..first + number("ATTNC_SEEDS").unwrap_or(usual)
}
