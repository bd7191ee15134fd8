//! PTX, NVIDIA's language between compilers and assemblers: typed kernels that print as text, read back, and are verified.
//!
//! In: kernels that code generation builds, or a text. Out: the text that `ptxas` or the driver takes. What this must not
//! know: tiles, who calls a kernel, how a GPU executes it (that is `sim`).
//!
//! A [`Kernel`] is a flat list of labels, comments and instructions over registers. A register has a name and a type, and may be
//! written more than once: PTX has no block arguments, so what leaves SSA form becomes moves. An instruction is an [`Op`], its
//! opcode with all words, and [`Operand`]s, perhaps under a predicate. The table in [`op`] lists every legal opcode with its
//! operands and the version and processor that it needs. [`Module::lowest`] is the least head that serves.
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
//! [`text`] prints and parses, [`verify()`] says what must hold.

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

/// A module: what one file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// `.version`
    pub version: Version,
    /// `.target`
    pub target: Target,
    /// Shared memory that all kernels can name; each block of each launch has its own.
    pub shared: Vec<Shared>,
    /// The kernels.
    pub kernels: Vec<Kernel>,
}

/// A variable in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Its name.
    pub name: String,
    /// Its address is a multiple of this.
    pub align: u32,
    /// Its size; `None` where the launch says it (`.extern`), which only a module can declare.
    pub bytes: Option<u32>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// What it is.
    pub ty: ParamType,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamType {
    /// A number.
    Scalar(Type),
    /// A pointer to global memory, a multiple of so many bytes.
    Pointer(u32),
    /// So many bytes at a multiple of the first number: a tensor's map.
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

    /// Its place is a multiple of this.
    pub fn align(self) -> u32 {
        match self {
            ParamType::Scalar(ty) => ty.bytes(),
            ParamType::Pointer(_) => 8,
            ParamType::Bytes(align, _) => align,
        }
    }
}

/// How many threads a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// As the launch says.
    Any,
    /// Exactly these extents (`.reqntid`).
    Exactly([u32; 3]),
    /// At most these (`.maxntid`).
    AtMost([u32; 3]),
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Lines of comment before it.
    pub comments: Vec<String>,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// Threads of a block.
    pub threads: Threads,
    /// How many blocks a multiprocessor should hold (`.minnctapersm`).
    pub min_blocks: Option<u32>,
    /// Blocks of a cluster (`.reqnctapercluster`).
    pub cluster: Option<[u32; 3]>,
    /// Its registers.
    pub registers: Vec<Register>,
    /// Its variables in shared memory.
    pub shared: Vec<Shared>,
    /// What it does.
    pub body: Vec<Line>,
}

/// A register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its name, with the `%`.
    pub name: String,
    /// Its type.
    pub ty: RegType,
}

/// A line of a kernel's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Where branches go.
    Label(String),
    /// A comment.
    Comment(String),
    /// An instruction.
    Inst(Inst),
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inst {
    /// The predicate that it depends on.
    pub guard: Option<Guard>,
    /// Its opcode.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<Operand>,
}

/// `@%p` or `@!%p`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guard {
    /// The predicate.
    pub reg: Reg,
    /// Does the instruction happen where it is false?
    pub negated: bool,
}

impl Module {
    /// An empty module for what every processor here has.
    pub fn new() -> Module {
        Module { version: Version(7, 0), target: Target::SM_80, shared: Vec::new(), kernels: Vec::new() }
    }

    /// The lowest `.version` and `.target` that serve. Where instructions of two generations stand together, no target
    /// serves; the greater is given, and [`verify()`] says what does not fit.
    pub fn lowest(&self) -> (Version, Target) {
        let insts = self.kernels.iter().flat_map(Kernel::insts);
        let mut needs: Vec<target::Needs> = Vec::new();
        for (_, inst) in insts.clone() {
            let own = inst.op.needs();
            // Thousands of instructions have a handful of needs.
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
    /// A kernel that does nothing yet, not even return.
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

    /// Adds a register. Its name is made of the given one: what no identifier may have becomes `_`, and a number follows
    /// where the name is taken.
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

    /// Adds an instruction.
    pub fn push(&mut self, op: Op, operands: impl Into<Vec<Operand>>) {
        self.body.push(Line::Inst(Inst { guard: None, op, operands: operands.into() }));
    }

    /// Adds an instruction that depends on a predicate.
    pub fn push_if(&mut self, reg: Reg, negated: bool, op: Op, operands: impl Into<Vec<Operand>>) {
        self.body.push(Line::Inst(Inst { guard: Some(Guard { reg, negated }), op, operands: operands.into() }));
    }

    /// Adds a label.
    pub fn label(&mut self, name: impl Into<String>) {
        self.body.push(Line::Label(name.into()));
    }

    /// Adds a comment; each line becomes one of its own.
    pub fn comment(&mut self, text: &str) {
        self.body.extend(text.lines().map(|line| Line::Comment(line.trim().to_string())));
    }

    /// Its instructions, each with its place in the body.
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
    /// The registers that stand in it.
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
    /// Is it a product that adds to nothing (its `scale-d` is 0), so that what its result was is not read?
    pub fn begins_sums(&self) -> bool {
        let of_group = matches!(self.op, Op::Wgmma { .. } | Op::WgmmaRegisters { .. });
        of_group && matches!(self.operands.get(3), Some(Operand::Int(0)))
    }

    /// The registers that it reads, its predicate first, and those that it writes.
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
