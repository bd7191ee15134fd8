//! Lowering between representations: typed AST to graph IR (`graph`), graph IR to tile IR (`tile`),
//! and runs of tile IR to vector IR (`vector`).

pub mod graph;
pub mod tile;
pub mod vector;
