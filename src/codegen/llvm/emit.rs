//! Helpers around LLVM's builder: a function under construction, constants, addresses, variables,
//! intrinsics.
//!
//! In: requests for single instructions. Out: LLVM IR in the function. Variables are `alloca`s that
//! LLVM promotes to SSA values.

use inkwell::basic_block::BasicBlock;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicMetadataTypeEnum, BasicType, BasicTypeEnum, PointerType, VectorType};
use inkwell::values::{BasicMetadataValueEnum, FunctionValue, IntValue, PointerValue, ValueKind, VectorValue};
use inkwell::{AddressSpace, IntPredicate};

use crate::tile::Cpu;

/// IR that the verifier rejects, or a bug in attnc in building LLVM IR.
#[derive(Debug)]
pub(super) struct Error(pub(super) String);

impl From<BuilderError> for Error {
    fn from(error: BuilderError) -> Error {
        Error(error.to_string())
    }
}

impl From<String> for Error {
    fn from(text: String) -> Error {
        Error(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Error {
        Error(text.to_string())
    }
}

pub(super) type EmitResult<T> = Result<T, Error>;

/// A function under construction.
pub(super) struct Emit<'m, 'c> {
    /// Owns types and constants.
    pub(super) cx: &'c Context,
    /// The module that the function is in.
    pub(super) module: &'m Module<'c>,
    pub(super) b: Builder<'c>,
    /// The instruction set to generate code for.
    pub(super) level: Cpu,
    function: FunctionValue<'c>,
    /// The entry block, with only the `alloca`s of variables.
    entry: BasicBlock<'c>,
    start: BasicBlock<'c>,
}

impl<'m, 'c> Emit<'m, 'c> {
    /// Begins the body of a function.
    pub(super) fn new(
        cx: &'c Context,
        module: &'m Module<'c>,
        level: Cpu,
        function: FunctionValue<'c>,
    ) -> Emit<'m, 'c> {
        let entry = cx.append_basic_block(function, "");
        let start = cx.append_basic_block(function, "");
        let b = cx.create_builder();
        b.position_at_end(start);
        Emit { cx, module, b, level, function, entry, start }
    }

    pub(super) fn finish(&self) -> EmitResult<()> {
        self.b.position_at_end(self.entry);
        self.b.build_unconditional_branch(self.start)?;
        Ok(())
    }

    /// A block, empty.
    pub(super) fn block(&self) -> BasicBlock<'c> {
        self.cx.append_basic_block(self.function, "")
    }

    /// The current block.
    pub(super) fn here(&self) -> EmitResult<BasicBlock<'c>> {
        Ok(self.b.get_insert_block().ok_or("there is no current block")?)
    }

    /// A 64-bit constant.
    pub(super) fn int(&self, n: i64) -> IntValue<'c> {
        self.cx.i64_type().const_int(n.cast_unsigned(), true)
    }

    /// The type of addresses.
    pub(super) fn pointer(&self) -> PointerType<'c> {
        self.cx.ptr_type(AddressSpace::default())
    }

    /// Adds an offset in bytes to an address.
    pub(super) fn offset(&self, from: PointerValue<'c>, bytes: IntValue<'c>) -> EmitResult<PointerValue<'c>> {
        // SAFETY: `build_gep` requires that the indices match the type: one index, of bytes,
        // without `inbounds`.
        Ok(unsafe { self.b.build_gep(self.cx.i8_type(), from, &[bytes], "") }?)
    }

    /// `a < b`
    pub(super) fn less(&self, a: IntValue<'c>, b: IntValue<'c>) -> EmitResult<IntValue<'c>> {
        Ok(self.b.build_int_compare(IntPredicate::SLT, a, b, "")?)
    }

    pub(super) fn variable(&self, ty: impl BasicType<'c>) -> EmitResult<PointerValue<'c>> {
        let builder = self.cx.create_builder();
        builder.position_at_end(self.entry);
        Ok(builder.build_alloca(ty, "")?)
    }

    /// Calls an LLVM intrinsic, overloaded for these types.
    pub(super) fn intrinsic(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'c>],
        args: &[BasicMetadataValueEnum<'c>],
    ) -> EmitResult<ValueKind<'c>> {
        let found = Intrinsic::find(name).and_then(|i| i.get_declaration(self.module, types));
        let function = found.ok_or_else(|| format!("LLVM has no {name}"))?;
        Ok(self.b.build_call(function, args, "")?.try_as_basic_value())
    }

    /// The type of a parameter of an intrinsic that is not overloaded.
    pub(super) fn parameter_of(&self, name: &str, parameter: usize) -> EmitResult<VectorType<'c>> {
        let function = Intrinsic::find(name).and_then(|i| i.get_declaration(self.module, &[]));
        let types = function.ok_or_else(|| format!("LLVM has no {name}"))?.get_type().get_param_types();
        match types.get(parameter) {
            Some(BasicMetadataTypeEnum::VectorType(ty)) => Ok(*ty),
            _ => Err(format!("parameter {parameter} of {name} is not a vector").into()),
        }
    }

    /// Calls an intrinsic from vectors to a vector.
    pub(super) fn vector_intrinsic(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'c>],
        args: &[BasicMetadataValueEnum<'c>],
    ) -> EmitResult<VectorValue<'c>> {
        match self.intrinsic(name, types, args)? {
            ValueKind::Basic(v) if v.is_vector_value() => Ok(v.into_vector_value()),
            _ => Err(format!("{name} does not return a vector").into()),
        }
    }
}
