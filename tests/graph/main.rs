//! Graph IR: lowering to it, its text and verifier, its interpreter against references and random programs.

use attnc::ir::interp::bounded;
mod bounds;
mod broken_ir;
#[path = "../common/compiled.rs"]
mod compiled;
#[path = "../common/fixtures.rs"]
mod fixtures;
#[path = "../common/front.rs"]
mod front;
#[path = "../common/gen_ir/mod.rs"]
mod gen_ir;
#[path = "../common/gen_source/mod.rs"]
mod gen_source;
#[path = "../common/host.rs"]
mod host;
mod idempotent;
mod lowering;
mod references;
mod untrusted_graphs;
