//! Versions of the language and processors: what `.version` and `.target` say, and what an instruction asks of them.
//!
//! PTX for `sm_80` runs on every later processor. What is for `sm_90a` runs on compute capability 9.0 alone: the letter admits
//! instructions of one generation (`wgmma`). The driver refuses a `.version` that is newer than itself, so a module should
//! state the least that serves ([`super::Module::lowest`]).

use std::fmt;

/// A version of the PTX language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u8, pub u8);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// A processor: `sm_80`, `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Compute capability without its point.
    pub sm: u16,
    /// Is it for this generation alone?
    pub alone: bool,
}

impl Target {
    /// Ampere: what all kernels are written for that do not say more.
    pub const SM_80: Target = Target { sm: 80, alone: false };
    /// Hopper, in what all later processors have too.
    pub const SM_90: Target = Target { sm: 90, alone: false };
    /// Hopper with `wgmma`.
    pub const SM_90A: Target = Target { sm: 90, alone: true };
    /// Blackwell of data centres.
    pub const SM_100: Target = Target { sm: 100, alone: false };

    /// Processors with the first version of the language that names them (PTX ISA, "Release Notes").
    pub const KNOWN: &'static [(Target, Version)] = &[
        (Target::SM_80, Version(7, 0)),
        (Target { sm: 86, alone: false }, Version(7, 1)),
        (Target { sm: 87, alone: false }, Version(7, 4)),
        (Target { sm: 89, alone: false }, Version(7, 8)),
        (Target::SM_90, Version(7, 8)),
        (Target::SM_90A, Version(8, 0)),
        (Target::SM_100, Version(8, 6)),
        (Target { sm: 100, alone: true }, Version(8, 6)),
        (Target { sm: 120, alone: false }, Version(8, 7)),
        (Target { sm: 120, alone: true }, Version(8, 7)),
    ];

    /// The first version that names it, if it is known.
    pub fn version(self) -> Option<Version> {
        Target::KNOWN.iter().find(|(target, _)| *target == self).map(|(_, version)| *version)
    }

    /// The known processor of this name.
    pub fn named(name: &str) -> Option<Target> {
        Target::KNOWN.iter().map(|(target, _)| *target).find(|target| target.to_string() == name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.alone { "a" } else { "" })
    }
}

/// Which processors have an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processors {
    /// All from a compute capability on.
    From(u16),
    /// Those of some generations, which a module names with the letter.
    Alone(&'static [u16]),
}

/// What an instruction asks of a module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The first version of the language that has it.
    pub version: Version,
    /// Who has it.
    pub processors: Processors,
}

impl Needs {
    /// What every module has here: PTX 7.0 for `sm_80`.
    pub const BASE: Needs = Needs::from(7, 0, 80);

    /// Version and compute capability.
    pub const fn from(major: u8, minor: u8, sm: u16) -> Needs {
        Needs { version: Version(major, minor), processors: Processors::From(sm) }
    }

    /// The one if the condition holds, else the other.
    pub const fn when(condition: bool, then: Needs, otherwise: Needs) -> Needs {
        if condition { then } else { otherwise }
    }

    /// Does a processor have it?
    pub fn runs_on(self, target: Target) -> bool {
        match self.processors {
            Processors::From(sm) => target.sm >= sm,
            Processors::Alone(sms) => target.alone && sms.contains(&target.sm),
        }
    }

    /// The least processor that has it.
    pub fn least(self) -> Target {
        let known = Target::KNOWN.iter().map(|(target, _)| *target);
        known.filter(|target| self.runs_on(*target)).min().unwrap_or(Target::SM_80)
    }
}
