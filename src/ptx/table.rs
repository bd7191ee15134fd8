//! The macro behind the table of instructions.
//!
//! A row: the variant of `Op`, its modifiers with their legal values, the opcode text composed of
//! them in order, a condition that excludes illegal combinations, operands, requirements, section
//! in the PTX ISA, meaning. From the rows come the enum, the opcode texts, and the list of all
//! legal opcodes; anything else is not an instruction.

macro_rules! instructions {
    ($($variant:ident { $($field:ident: $fty:ty = $list:expr),* } [$($part:tt)+] $(if $legal:expr)?;
        $operands:expr; $needs:expr; $section:literal, $meaning:literal;)*) => {
        /// An opcode with its modifiers, without operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $(
                #[doc = $meaning]
                #[doc = concat!("(", $section, ")")]
                $variant { $(#[allow(missing_docs, reason = "a modifier of the opcode, described by its type")] $field: $fty),* },
            )*
        }

        impl Op {
            /// The opcode as text.
            pub fn text(self) -> String {
                let mut out = String::new();
                match self {
                    $(Op::$variant { $($field),* } => { $($part.put(&mut out);)+ })*
                }
                out
            }

            /// Declarations of its operands.
            pub fn slots(self) -> Vec<Slot> {
                match self {
                    $(Op::$variant { $($field),* } => { $(let _ = $field;)* $operands.into() })*
                }
            }

            /// The version and processors that it requires.
            pub fn needs(self) -> Needs {
                match self {
                    $(Op::$variant { $($field),* } => { $(let _ = $field;)* $needs })*
                }
            }

            /// Its section in the PTX ISA.
            pub fn section(self) -> &'static str {
                match self { $(Op::$variant { .. } => $section),* }
            }

            /// One-sentence description.
            pub fn meaning(self) -> &'static str {
                match self { $(Op::$variant { .. } => $meaning),* }
            }

            /// Every legal opcode, with all combinations of modifiers.
            pub fn all() -> &'static [Op] {
                static ALL: std::sync::OnceLock<Vec<Op>> = std::sync::OnceLock::new();
                ALL.get_or_init(|| {
                    let mut out = Vec::new();
                    $($crate::ptx::table::instructions!(@each out, [$($field in $list),*], (true $(&& $legal)?), Op::$variant { $($field),* });)*
                    out
                })
            }
        }
    };

    (@each $out:ident, [$f:ident in $l:expr $(, $g:ident in $m:expr)*], $legal:expr, $make:expr) => {
        for $f in $l.iter().copied() {
            $crate::ptx::table::instructions!(@each $out, [$($g in $m),*], $legal, $make);
        }
    };
    (@each $out:ident, [], $legal:expr, $make:expr) => {
        if $legal {
            $out.push($make);
        }
    };
}

pub(crate) use instructions;
