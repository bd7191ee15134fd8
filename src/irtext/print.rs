//! Helpers of all IR printers: strings and floats.

use std::fmt::Write as _;

/// The shortest text of a float that parses to the same `f64`: `0.125`, `1e-5`, `inf`, `-inf`,
/// `nan`.
pub fn float_text(x: f64) -> String {
    if x.is_nan() { "nan".to_string() } else { format!("{x:?}") }
}

/// The shortest text of a float that parses to the same `f32`.
pub fn float32_text(x: f32) -> String {
    if x.is_nan() { "nan".to_string() } else { format!("{x:?}") }
}

/// The string token for a text, with escapes.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
