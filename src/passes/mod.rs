//! Passes on the graph IR. Each is a function in a file of its own; none does I/O.
