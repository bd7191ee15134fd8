//! Executes a kernel's runs in the interpreter of vector IR, on behalf of the interpreter of tile
//! IR.
//!
//! In: the routines of a kernel's runs ([`super::runs`]). Out: an implementation of [`Runs`], which
//! the tile interpreter calls instead of executing a run tile by tile. So the result of lowering
//! can be compared with the semantics of the run, whatever instruction set the host has.

use std::collections::BTreeMap;

use super::{Declined, Lowered, Word};
use crate::tile::interp::{RunMemory, Runs, SCRATCH};
use crate::tile::{Cpu, Inst, Kernel};
use crate::vector::routine::interp::{self, Memory, Pointer, RuntimeValue};
use crate::vector::routine::{Type, verify};

/// Limit on the instructions that one run executes.
const WORK: u64 = 1 << 32;

/// The runs of a kernel as routines.
pub struct Routines(BTreeMap<Inst, Lowered>);

impl Routines {
    /// The verified routines of a kernel for a CPU; `None` if one of its runs cannot be lowered.
    ///
    /// # Errors
    /// A bug in lowering.
    pub fn lower(kernel: &Kernel, cpu: Cpu) -> Result<Option<Routines>, String> {
        let mut routines = BTreeMap::new();
        for (i, lowered) in super::runs(kernel, cpu) {
            let lowered = match lowered {
                Ok(lowered) => lowered,
                Err(Declined::Form(..)) => return Ok(None),
                Err(Declined::Wrong(message)) => return Err(message),
            };
            verify(&lowered.routine).map_err(|errors| format!("{}: {errors:?}", lowered.routine.name))?;
            routines.insert(i, lowered);
        }
        Ok(Some(Routines(routines)))
    }
}

impl Runs for Routines {
    fn execute(&self, run: Inst, memory: &mut dyn RunMemory) -> Result<(), String> {
        let lowered = self.0.get(&run).ok_or("a run of another kernel")?;
        let routine = &lowered.routine;
        let mut args = Vec::new();
        for ((v, _), word) in routine.params.iter().zip(&lowered.words) {
            args.push(match (word, routine.body.ty(*v)) {
                (Word::Scalar(v), Type::Lanes(..)) => RuntimeValue::Lanes(vec![memory.scalar(*v)?]),
                (Word::Index(v), Type::Index) => RuntimeValue::Index(memory.index(*v)?),
                (Word::StrideBytes { buffer, axis }, Type::Index) => {
                    RuntimeValue::Index(memory.stride_bytes(*buffer, *axis)?)
                }
                (Word::Address { buffer, indices }, Type::Address) => {
                    let (storage, at) = memory.address(*buffer, indices)?;
                    RuntimeValue::Address(Pointer { storage, at })
                }
                (Word::Scratch, Type::Address) => RuntimeValue::Address(Pointer { storage: SCRATCH, at: 0 }),
                _ => return Err("a parameter of another type than its word".to_string()),
            });
        }
        let mut work = WORK;
        interp::run(routine, &args, &mut Checked(memory), &mut work)
    }
}

/// The tile interpreter's memory, behind the interface of the vector interpreter.
struct Checked<'a>(&'a mut dyn RunMemory);

impl Memory for Checked<'_> {
    fn read(&self, from: Pointer, bytes: &mut [u8]) -> Result<(), String> {
        self.0.read(from.storage, from.at, bytes)
    }

    fn write(&mut self, to: Pointer, bytes: &[u8]) -> Result<(), String> {
        self.0.write(to.storage, to.at, bytes)
    }
}
