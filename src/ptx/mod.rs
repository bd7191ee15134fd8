//! PTX, NVIDIA's virtual instruction set: typed kernels, with printer, parser and verifier.
//!
//! In: kernels built by code generation, or PTX text. Out: text for `ptxas` or the driver. Must not
//! know: tiles, launches, how a GPU executes a kernel (that is `sim`).
//!
//! A [`Kernel`] is a flat list of labels, comments and instructions over registers. A register has
//! a name and a type, and may be written more than once: PTX has no block arguments; they become
//! moves. An instruction is an [`Op`], its opcode with all modifiers, and [`Operand`]s, optionally
//! under a predicate. The table in [`op`] lists every legal opcode with its operands and the
//! version and processor that it needs. [`Module::lowest`] computes the lowest sufficient head.
//!
//! ```text
//! .version 7.0
//! .target sm_80
//! .address_size 64
//!
//! // y = 2 x
//! .visible .entry double(
//!     .param .u64 .ptr .global .align 4 x,
//!     .param .u32 n
//! )
//! .reqntid 128, 1, 1
//! {
//!     .reg .b64 %x, %at;
//!     ..
//!     ld.param.u64 %x, [x];
//!     @%outside bra $end;
//! $end:
//!     ret;
//! }
//! ```
//!
//! [`text`] prints and parses, [`verify()`] checks the rules.

pub mod op;
pub mod operand;
pub mod sim;
mod swizzle;
mod table;
pub mod target;
pub mod text;
pub mod verify;

pub mod words;

pub use op::Op;
pub use operand::{Address, Base, Operand, Reg, Special};
pub use swizzle::Swizzle;
pub use target::{Target, Version};
pub use verify::verify;

pub use words::{RegType, Type};

/// A module: the content of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// `.version`
    pub version: Version,
    /// `.target`
    pub target: Target,
    /// Shared variables visible to all kernels; each block of each launch has its own copy.
    pub shared: Vec<Shared>,
    /// Kernels, in file order.
    pub kernels: Vec<Kernel>,
}

/// A variable in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Identifier, unique in its scope.
    pub name: String,
    /// Alignment in bytes, a power of two.
    pub align: u32,
    /// Size in bytes; `None` if the launch sets it (`.extern`), only allowed in a module.
    pub bytes: Option<u32>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Identifier, without `%`.
    pub name: String,
    /// Type, with alignment.
    pub ty: ParamType,
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// A scalar, passed by value.
    Scalar(Type),
    /// A pointer to global memory with this alignment in bytes.
    Pointer(u32),
    /// An array of bytes: alignment, size. Used for tensor maps.
    Bytes(u32, u32),
}

impl ParamType {
    /// Size in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            ParamType::Scalar(ty) => ty.bytes(),
            ParamType::Pointer(_) => 8,
            ParamType::Bytes(_, bytes) => bytes,
        }
    }

    /// Alignment in bytes.
    pub fn align(self) -> u32 {
        match self {
            ParamType::Scalar(ty) => ty.bytes(),
            ParamType::Pointer(_) => 8,
            ParamType::Bytes(align, _) => align,
        }
    }
}

/// Constraints on the threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// No constraint.
    Any,
    /// Exactly these extents (`.reqntid`).
    Exactly([u32; 3]),
    /// At most these (`.maxntid`).
    AtMost([u32; 3]),
}

/// A kernel (`.visible .entry`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Identifier, unique in the module.
    pub name: String,
    /// Comment lines before it.
    pub comments: Vec<String>,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// Constraint on the threads of a block.
    pub threads: Threads,
    /// Minimum number of resident blocks per multiprocessor (`.minnctapersm`).
    pub min_blocks: Option<u32>,
    /// Blocks of a cluster (`.reqnctapercluster`).
    pub cluster: Option<[u32; 3]>,
    /// Declared registers, indexed by [`Reg`].
    pub registers: Vec<Register>,
    /// Shared variables of this kernel.
    pub shared: Vec<Shared>,
    /// Instructions, labels and comments, in order.
    pub body: Vec<Line>,
}

/// A declared register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its name, with the `%`.
    pub name: String,
    /// Declared type: bits for integers, or a float.
    pub ty: RegType,
}

/// A line of a kernel's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The target of branches.
    Label(String),
    /// A comment, of one line.
    Comment(String),
    /// An instruction, with its guard.
    Inst(Inst),
}

/// An instruction: opcode, operands, optional guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inst {
    /// The predicate under which it executes.
    pub guard: Option<Guard>,
    /// The opcode with all modifiers.
    pub op: Op,
    /// Operands, in the order of [`Op::slots`].
    pub operands: Vec<Operand>,
}

/// `@%p` or `@!%p`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guard {
    /// A predicate register.
    pub reg: Reg,
    /// Is the instruction executed if the predicate is false?
    pub negated: bool,
}

impl Module {
    /// An empty module for the baseline ([`target::Needs::BASE`]).
    pub fn new() -> Module {
        Module { version: Version(7, 0), target: Target::SM_80, shared: Vec::new(), kernels: Vec::new() }
    }

    /// The lowest sufficient `.version` and `.target`. No target supports instructions of two
    /// generation-specific sets; then the higher one is returned, and [`verify()`] reports the
    /// conflict.
    pub fn lowest(&self) -> (Version, Target) {
        let insts = self.kernels.iter().flat_map(Kernel::insts);
        let mut needs: Vec<target::Needs> = Vec::new();
        for (_, inst) in insts.clone() {
            let own = inst.op.needs();
            // Deduplicate: thousands of instructions have a handful of requirements.
            if !needs.contains(&own) {
                needs.push(own);
            }
        }
        let of_cluster = insts.flat_map(|(_, inst)| &inst.operands);
        let of_cluster = of_cluster.filter(|o| matches!(o, Operand::Special(s) if s.is_of_cluster()));
        needs.extend(of_cluster.map(|_| target::Needs::from(7, 8, 90)));
        needs.extend(self.kernels.iter().filter(|k| k.cluster.is_some()).map(|_| target::Needs::from(7, 8, 90)));
        let target = needs.iter().map(|n| n.least()).max().unwrap_or(Target::SM_80);
        let version = needs.iter().map(|n| n.version).chain(target.version()).max().unwrap_or(Version(7, 0));
        (version, target)
    }
}

impl Default for Module {
    fn default() -> Self {
        Module::new()
    }
}

impl Kernel {
    /// An empty kernel, without even a `ret`.
    pub fn new(name: impl Into<String>) -> Kernel {
        Kernel {
            name: name.into(),
            comments: Vec::new(),
            params: Vec::new(),
            threads: Threads::Any,
            min_blocks: None,
            cluster: None,
            registers: Vec::new(),
            shared: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Adds a register. Invalid characters in the name become `_`, and a number is appended if the
    /// name is taken.
    pub fn register(&mut self, name: &str, ty: RegType) -> Reg {
        let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let mut full = format!("%{clean}");
        let taken = |full: &str| {
            full == "%" || operand::RESERVED.contains(&full) || self.registers.iter().any(|r| r.name == full)
        };
        let mut n = 1;
        while taken(&full) {
            full = format!("%{clean}_{n}");
            n += 1;
        }
        self.registers.push(Register { name: full, ty });
        Reg(self.registers.len() as u32 - 1)
    }

    /// Appends an instruction without a guard.
    pub fn push(&mut self, op: Op, operands: impl Into<Vec<Operand>>) {
        self.body.push(Line::Inst(Inst { guard: None, op, operands: operands.into() }));
    }

    /// Appends an instruction under a predicate.
    pub fn push_if(&mut self, reg: Reg, negated: bool, op: Op, operands: impl Into<Vec<Operand>>) {
        self.body.push(Line::Inst(Inst { guard: Some(Guard { reg, negated }), op, operands: operands.into() }));
    }

    /// Appends a label.
    pub fn label(&mut self, name: impl Into<String>) {
        self.body.push(Line::Label(name.into()));
    }

    /// Appends a comment line for each line of `text`.
    pub fn comment(&mut self, text: &str) {
        self.body.extend(text.lines().map(|line| Line::Comment(line.trim().to_string())));
    }

    /// Its instructions, each with its index in the body.
    pub fn insts(&self) -> impl Iterator<Item = (usize, &Inst)> + Clone {
        self.body.iter().enumerate().filter_map(|(n, line)| match line {
            Line::Inst(inst) => Some((n, inst)),
            Line::Label(_) | Line::Comment(_) => None,
        })
    }

    /// The name and type of a register, if there is one.
    pub fn reg(&self, reg: Reg) -> Option<&Register> {
        self.registers.get(reg.0 as usize)
    }
}

impl Operand {
    /// The registers that occur in it.
    pub fn regs(&self) -> impl Iterator<Item = Reg> + Clone + '_ {
        let (one, some, more): (Option<Reg>, &[Reg], &[Reg]) = match self {
            Operand::Reg(r) | Operand::Address(Address { base: Base::Reg(r), .. }) => (Some(*r), &[], &[]),
            Operand::Pair(a, b) => (None, a.as_slice(), b.as_slice()),
            Operand::Vector(list) => (None, list, &[]),
            Operand::Tensor(map, at) => (Some(*map), at, &[]),
            Operand::Int(_)
            | Operand::F32(_)
            | Operand::F64(_)
            | Operand::Special(_)
            | Operand::Symbol(_)
            | Operand::Address(_)
            | Operand::Label(_)
            | Operand::Sink => (None, &[], &[]),
        };
        one.into_iter().chain(some.iter().copied()).chain(more.iter().copied())
    }
}

impl Inst {
    /// Is it a `wgmma` with `scale-d` 0, which does not read the accumulator?
    pub fn begins_sums(&self) -> bool {
        let of_group = matches!(self.op, Op::Wgmma { .. } | Op::WgmmaRegisters { .. });
        of_group && matches!(self.operands.get(3), Some(Operand::Int(0)))
    }

    /// The registers that it reads (its predicate first), and the registers that it writes.
    pub fn uses_and_defs(&self) -> (Vec<Reg>, Vec<Reg>) {
        let (mut uses, mut defs): (Vec<Reg>, Vec<Reg>) = (Vec::new(), Vec::new());
        uses.extend(self.guard.map(|g| g.reg));
        let begins = self.begins_sums();
        for (slot, operand) in self.op.slots().iter().zip(&self.operands) {
            if slot.role != operand::Role::Def && !(slot.role == operand::Role::Both && begins) {
                uses.extend(operand.regs());
            }
            if slot.role != operand::Role::Use {
                defs.extend(operand.regs());
            }
        }
        (uses, defs)
    }
}
