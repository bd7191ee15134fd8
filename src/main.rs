<<<<<<< HEAD
=======
//! The `attnc` command.

>>>>>>> 785a644 (Syntax tree, spans, diagnostics with a registry of codes and their rendering)
fn main() {}
