//! From one level to the next: typed AST to graph IR (`graph`), graph IR to tile IR (`tile`), runs of tile IR to vector IR
//! (`vector`).

pub mod graph;
pub mod tile;
pub mod vector;
