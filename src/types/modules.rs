//! The modules that a program can `use`: the standard library, whose source is embedded in the
//! compiler. Modules may use others, but not in cycles.
//!
//! In: a module's path. Out: its source, for `attnc std` and the checker.

/// A module of the standard library.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The path after `use`.
    pub path: &'static str,
    /// The file name that messages show.
    pub file: &'static str,
    /// The embedded source.
    pub text: &'static str,
}

/// All modules, sorted by path.
pub const MODULES: &[Module] = &[
    Module { path: "std.decode", file: "std/decode.attn", text: include_str!("std/decode.attn") },
    Module { path: "std.loss", file: "std/loss.attn", text: include_str!("std/loss.attn") },
    Module { path: "std.nn", file: "std/nn.attn", text: include_str!("std/nn.attn") },
    Module { path: "std.optim", file: "std/optim.attn", text: include_str!("std/optim.attn") },
    Module { path: "std.random", file: "std/random.attn", text: include_str!("std/random.attn") },
];

/// The layer without source, because it takes any number of layers, and the module that it belongs
/// to.
pub const SEQUENTIAL: (&str, &str) = ("std.nn", "Sequential");

/// The module with a path (`std.nn`), or with the last part of one (`nn`).
pub fn module(name: &str) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.path == name || module.path.rsplit('.').next() == Some(name))
}
