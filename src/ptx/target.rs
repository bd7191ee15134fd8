//! PTX versions and processors: the values of `.version` and `.target`, and the requirements of
//! instructions.
//!
//! PTX for `sm_80` runs on every later processor. PTX for `sm_90a` runs only on compute capability
//! 9.0: the letter enables instructions of one generation (`wgmma`). The driver rejects a
//! `.version` newer than itself, so a module should use the lowest sufficient one
//! ([`super::Module::lowest`]).

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
    /// Is it generation-specific (suffix `a`)?
    pub alone: bool,
}

impl Target {
    /// Ampere: the default target of kernels.
    pub const SM_80: Target = Target { sm: 80, alone: false };
    /// Hopper, without generation-specific instructions.
    pub const SM_90: Target = Target { sm: 90, alone: false };
    /// Hopper with generation-specific instructions (`wgmma`).
    pub const SM_90A: Target = Target { sm: 90, alone: true };
    /// Data-centre Blackwell.
    pub const SM_100: Target = Target { sm: 100, alone: false };

    /// Processors with the first PTX version that supports them (PTX ISA, "Release Notes").
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

    /// The first PTX version that supports it, if known.
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

/// The processors that support an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processors {
    /// This compute capability and all later ones.
    From(u16),
    /// Only these generations, with suffix `a`.
    Alone(&'static [u16]),
}

/// Requirements of an instruction on a module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The first PTX version that has it.
    pub version: Version,
    /// The processors that support it.
    pub processors: Processors,
}

impl Needs {
    /// The baseline: PTX 7.0 for `sm_80`.
    pub const BASE: Needs = Needs::from(7, 0, 80);

    /// Requires a version and a compute capability.
    pub const fn from(major: u8, minor: u8, sm: u16) -> Needs {
        Needs { version: Version(major, minor), processors: Processors::From(sm) }
    }

    /// `then` if the condition holds, else `otherwise`.
    pub const fn when(condition: bool, then: Needs, otherwise: Needs) -> Needs {
        if condition { then } else { otherwise }
    }

    /// Does a processor support it?
    pub fn runs_on(self, target: Target) -> bool {
        match self.processors {
            Processors::From(sm) => target.sm >= sm,
            Processors::Alone(sms) => target.alone && sms.contains(&target.sm),
        }
    }

    /// The lowest processor that supports it.
    pub fn least(self) -> Target {
        let known = Target::KNOWN.iter().map(|(target, _)| *target);
        known.filter(|target| self.runs_on(*target)).min().unwrap_or(Target::SM_80)
    }
}
