//! The registry of error codes: for each, an explanation, with a failing and a corrected example.
//!
//! There is one file for each range of codes; a stage adds its codes there with the `codes!` macro,
//! which generates a constant (`codes::shapes::MATMUL_INNER`) and the entry that `attnc explain`
//! prints. Tests compile every failing example, which must report its code, and every corrected
//! one, which must not.

pub mod dimensions;
pub mod driver;
pub mod entries;
pub mod ir;
pub mod names;
pub mod parameters;
pub mod shapes;
pub mod syntax;
pub mod weights;

use std::fmt;

/// The code of a rule, such as `E0301`. Only the `codes!` macro creates codes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(&'static str);

impl Code {
    /// Is it a syntax error, i.e. about text that could not be parsed?
    pub fn is_unread(self) -> bool {
        // Unused values and comments were parsed.
        self.0.starts_with("E01") && self != syntax::UNUSED_VALUE && self != syntax::LOST_DOC
    }

    /// The code as written: `E0301`.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// The entry of this code in the registry.
    pub fn entry(self) -> Option<&'static Entry> {
        find(self.0)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The documentation of a code.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Unique in the registry.
    pub code: Code,
    /// The rule in a few words.
    pub title: &'static str,
    /// The rule in full, with its reason.
    pub rule: &'static str,
    /// A failing program and its corrected version; `None` for errors that no program text can
    /// cause.
    pub example: Option<Example>,
}

/// Two programs that differ only in the mistake.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// A program that reports the code.
    pub failing: &'static str,
    /// The same program without the mistake.
    pub fixed: &'static str,
}

/// Declares the codes of one range.
///
/// ```text
/// codes! {
///     /// Description of the constant.
///     MATMUL_INNER = "E0301", "`@` needs equal inner dimensions";
///     rule: "..";
///     - failing: ".."; - fixed: "..";    // both omitted where no program shows it
/// }
/// ```
macro_rules! codes {
    ($(
        $(#[$doc:meta])*
        $name:ident = $code:literal, $title:literal;
        rule: $rule:literal;
        $(- failing: $failing:literal; - fixed: $fixed:literal;)?
    )*) => {
        $(
            $(#[$doc])*
            pub const $name: $crate::diagnostics::codes::Code =
                $crate::diagnostics::codes::Code($code);
        )*

        /// The entries of this range, by code.
        pub(super) const ENTRIES: &[$crate::diagnostics::codes::Entry] = &[$(
            $crate::diagnostics::codes::Entry {
                code: $name,
                title: $title,
                rule: $rule,
                example: codes!(@example $($failing, $fixed)?),
            },
        )*];
    };
    (@example) => { None };
    (@example $failing:literal, $fixed:literal) => {
        Some($crate::diagnostics::codes::Example { failing: $failing, fixed: $fixed })
    };
}
pub(crate) use codes;

/// The entries of all ranges, ordered by code.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    [
        driver::ENTRIES,
        syntax::ENTRIES,
        names::ENTRIES,
        shapes::ENTRIES,
        dimensions::ENTRIES,
        parameters::ENTRIES,
        entries::ENTRIES,
        ir::ENTRIES,
        weights::ENTRIES,
    ]
    .into_iter()
    .flatten()
}

/// The entry of a code given as text, case-insensitive (`e0301`).
pub fn find(code: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.code.0.eq_ignore_ascii_case(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_each_once() {
        let codes: Vec<&str> = all().map(|entry| entry.code.0).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        for code in codes {
            let digits = code.strip_prefix('E').unwrap_or_default();
            assert!(digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()), "{code}");
        }
    }
}
