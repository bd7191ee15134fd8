//! The modules that a program can `use`: the standard library, whose text is carried inside the compiler.
//! A module may use others; none uses itself by that.
//!
//! In: a module's path. Out: its text, as `attnc std` prints it and as the checker reads it.

/// A module of the standard library.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The path after `use`.
    pub path: &'static str,
    /// The name under which messages show its text.
    pub file: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// Every module, by path.
pub const MODULES: &[Module] = &[
    Module { path: "std.decode", file: "std/decode.attn", text: include_str!("std/decode.attn") },
    Module { path: "std.nn", file: "std/nn.attn", text: include_str!("std/nn.attn") },
    Module { path: "std.random", file: "std/random.attn", text: include_str!("std/random.attn") },
];

/// The layer that is written in no text, because it takes any number of layers; after the module that has it.
pub const SEQUENTIAL: (&str, &str) = ("std.nn", "Sequential");

/// The module of a path (`std.nn`), or of its last part (`nn`).
pub fn module(name: &str) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.path == name || module.path.rsplit('.').next() == Some(name))
}
