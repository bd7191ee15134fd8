//! What a row of the table of instructions says, and what is made of it.
//!
//! A row: name of the member of `Op`, the words that it carries and which of them it can have, the text that they make in
//! order, a condition on words that do not go together, operands, what it needs, where the language's description
//! (PTX ISA) has it, what it does. From the rows are made the enum, its texts, and the list of all legal opcodes:
//! what is not in the list is not an instruction.

/// Declares the instructions.
macro_rules! instructions {
    ($($variant:ident { $($field:ident: $fty:ty = $list:expr),* } [$($part:tt)+] $(if $legal:expr)?;
        $operands:expr; $needs:expr; $section:literal, $meaning:literal;)*) => {
        /// An instruction with its words, but without operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op {
            $(
                #[doc = $meaning]
                #[doc = concat!("(", $section, ")")]
                $variant { $(#[allow(missing_docs, reason = "a word of the opcode, whose type says what it is")] $field: $fty),* },
            )*
        }

        impl Op {
            /// The opcode as it is written.
            pub fn text(self) -> String {
                let mut out = String::new();
                match self {
                    $(Op::$variant { $($field),* } => { $($part.put(&mut out);)+ })*
                }
                out
            }

            /// What its operands are.
            pub fn slots(self) -> Vec<Slot> {
                match self {
                    $(Op::$variant { $($field),* } => { $(let _ = $field;)* $operands.into() })*
                }
            }

            /// What a module must state for it.
            pub fn needs(self) -> Needs {
                match self {
                    $(Op::$variant { $($field),* } => { $(let _ = $field;)* $needs })*
                }
            }

            /// Its section in the language's description.
            pub fn section(self) -> &'static str {
                match self { $(Op::$variant { .. } => $section),* }
            }

            /// What it does.
            pub fn meaning(self) -> &'static str {
                match self { $(Op::$variant { .. } => $meaning),* }
            }

            /// Every legal opcode.
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
