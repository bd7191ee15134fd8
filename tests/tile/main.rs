//! Tile IR and vector IR: text, verifier and its proofs, lowering, schedule, witnesses.

#[path = "../common/front.rs"]
mod front;
mod schedule_steps;
mod tile_bounds;
mod tile_lowering;
mod tile_persistent;
mod tile_scheduled;
mod tile_texts;
mod tile_witnesses;
mod vector_ir;
