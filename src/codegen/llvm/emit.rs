//! The grip on LLVM's builder: a function under construction, numbers, addresses, variables, intrinsics.
//!
//! In: wishes for single instructions. Out: LLVM IR in the function. The variables are slots on the stack that
//! LLVM turns into values.

use inkwell::basic_block::BasicBlock;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{BasicMetadataTypeEnum, BasicType, BasicTypeEnum, PointerType, VectorType};
use inkwell::values::{BasicMetadataValueEnum, FunctionValue, IntValue, PointerValue, ValueKind, VectorValue};
use inkwell::{AddressSpace, IntPredicate};

use crate::tile::Cpu;

/// What went wrong: a form that the verifier refuses, or a bug in attnc in making IR.
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

/// What was made, or why not.
pub(super) type Made<T> = Result<T, Error>;

/// A function under construction.
pub(super) struct Emit<'m, 'c> {
    /// Where types and constants live.
    pub(super) cx: &'c Context,
    /// The module that the function is in.
    pub(super) module: &'m Module<'c>,
    /// Writes instructions.
    pub(super) b: Builder<'c>,
    /// What code is made for.
    pub(super) level: Cpu,
    function: FunctionValue<'c>,
    /// Holds the variables alone.
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

    /// Ends the function.
    pub(super) fn finish(&self) -> Made<()> {
        self.b.position_at_end(self.entry);
        self.b.build_unconditional_branch(self.start)?;
        Ok(())
    }

    /// A block, empty.
    pub(super) fn block(&self) -> BasicBlock<'c> {
        self.cx.append_basic_block(self.function, "")
    }

    /// The block that is being written.
    pub(super) fn here(&self) -> Made<BasicBlock<'c>> {
        Ok(self.b.get_insert_block().ok_or("no block is being written")?)
    }

    /// A 64-bit number.
    pub(super) fn int(&self, n: i64) -> IntValue<'c> {
        self.cx.i64_type().const_int(n.cast_unsigned(), true)
    }

    /// The type of addresses.
    pub(super) fn pointer(&self) -> PointerType<'c> {
        self.cx.ptr_type(AddressSpace::default())
    }

    /// The address this many bytes further.
    pub(super) fn offset(&self, from: PointerValue<'c>, bytes: IntValue<'c>) -> Made<PointerValue<'c>> {
        // SAFETY: asks that the indices fit the type: one index, of bytes. No `inbounds` is promised to LLVM.
        Ok(unsafe { self.b.build_gep(self.cx.i8_type(), from, &[bytes], "") }?)
    }

    /// `a < b`
    pub(super) fn less(&self, a: IntValue<'c>, b: IntValue<'c>) -> Made<IntValue<'c>> {
        Ok(self.b.build_int_compare(IntPredicate::SLT, a, b, "")?)
    }

    /// A variable.
    pub(super) fn variable(&self, ty: impl BasicType<'c>) -> Made<PointerValue<'c>> {
        let builder = self.cx.create_builder();
        builder.position_at_end(self.entry);
        Ok(builder.build_alloca(ty, "")?)
    }

    /// An intrinsic function of LLVM, for these types.
    pub(super) fn intrinsic(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'c>],
        args: &[BasicMetadataValueEnum<'c>],
    ) -> Made<ValueKind<'c>> {
        let found = Intrinsic::find(name).and_then(|i| i.get_declaration(self.module, types));
        let function = found.ok_or_else(|| format!("LLVM has no {name}"))?;
        Ok(self.b.build_call(function, args, "")?.try_as_basic_value())
    }

    /// The type of a parameter of an intrinsic function that has one form.
    pub(super) fn parameter_of(&self, name: &str, parameter: usize) -> Made<VectorType<'c>> {
        let function = Intrinsic::find(name).and_then(|i| i.get_declaration(self.module, &[]));
        let types = function.ok_or_else(|| format!("LLVM has no {name}"))?.get_type().get_param_types();
        match types.get(parameter) {
            Some(BasicMetadataTypeEnum::VectorType(ty)) => Ok(*ty),
            _ => Err(format!("{name} takes no vector there").into()),
        }
    }

    /// An intrinsic function from vectors to a vector.
    pub(super) fn vector_intrinsic(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'c>],
        args: &[BasicMetadataValueEnum<'c>],
    ) -> Made<VectorValue<'c>> {
        match self.intrinsic(name, types, args)? {
            ValueKind::Basic(v) if v.is_vector_value() => Ok(v.into_vector_value()),
            _ => Err(format!("{name} gives no vector").into()),
        }
    }
}
