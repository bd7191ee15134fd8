//! From one level to the next: typed AST to graph IR (`graph`), graph IR to tile IR (`tile`).

pub mod graph;
pub mod tile;
