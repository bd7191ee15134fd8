//! Assembly for aarch64, as Cranelift prints it.
//!
//! In: Cranelift's listing of a function. Out: the same with one name for each block: Cranelift
//! calls a block `block3` where it begins, and `label3` where a jump refers to it.

use std::fmt::Write as _;

/// Renames the labels and adds the function's name.
pub(in crate::codegen::cpu) fn text(name: &str, code: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{name}:");
    for line in code.lines() {
        let mut rest = line;
        while let Some(at) = rest.find("label") {
            let (before, after) = rest.split_at(at);
            let is_label = after.get(5..).is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
            out += before;
            out += if is_label { "block" } else { "label" };
            rest = after.get(5..).unwrap_or_default();
        }
        out += rest;
        out.push('\n');
    }
    out.push('\n');
    out
}
