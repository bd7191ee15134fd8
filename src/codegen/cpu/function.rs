//! One function: from a kernel or a plan to machine code.
//!
//! In: a kernel or plan, and the numbers of the kernels that a plan launches. Out: bytes,
//! relocations, and on request listings. Nothing here depends on another function or on the object,
//! so functions are compiled on several threads; callees are symbols that the object resolves
//! ([`Callee`]).

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{
    ExtFuncData, ExternalName, FuncRef, Function, InstBuilder, Signature, SourceLoc, UserExternalName, UserFuncName,
    Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_codegen::{CodegenError, CodegenResult, CompiledCode, Context, Final, MachSrcLoc};
use cranelift_entity::SecondaryMap;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{FuncId, ModuleReloc, ModuleRelocTarget};

use super::clif::print_function;
use super::code::{Code, inst_at};
use super::origins::{Kernels, Places, Source};
use super::plan::Launching;
use super::target::{Arch, EmitOptions, signature};
use super::wide::LeafCalls;
use crate::source::Loc;
use crate::tile::Body;

/// An operation that is computed with 128-bit vectors although the processor has wider ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Narrow {
    /// Source location of the operation.
    pub loc: Loc,
    /// The kernel's symbol, which begins with the instruction set.
    pub kernel: String,
    /// The operation that lacks wider code, as a noun for the remark.
    pub what: String,
}

/// A function that code refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callee {
    /// A function declared in the object.
    Declared(FuncId),
    /// A leaf: its index among the caller's requests.
    Leaf(u32),
}

impl Callee {
    /// Its name in CLIF. Namespaces 0 and 1 are Cranelift's own, for declared functions and data.
    fn name(self) -> UserExternalName {
        match self {
            Callee::Declared(id) => UserExternalName::new(0, id.as_u32()),
            Callee::Leaf(place) => UserExternalName::new(2, place),
        }
    }

    /// The callee of a relocation, if it is a function.
    pub(super) fn from_relocation(target: &ModuleRelocTarget) -> Option<Callee> {
        match target {
            ModuleRelocTarget::User { namespace: 0, index } => Some(Callee::Declared(FuncId::from_u32(*index))),
            ModuleRelocTarget::User { namespace: 2, index } => Some(Callee::Leaf(*index)),
            _ => None,
        }
    }

    /// Imports the callee into a function. `colocated`: is it in this object?
    pub(super) fn declare(self, function: &mut Function, signature: Signature, colocated: bool) -> FuncRef {
        let name = ExternalName::user(function.declare_imported_user_function(self.name()));
        let signature = function.import_signature(signature);
        function.import_function(ExtFuncData { name, signature, colocated, patchable: false })
    }
}

/// A function to compile.
#[derive(Clone, Debug)]
pub(super) struct Job<'a> {
    /// Its id in the object.
    pub(super) id: FuncId,
    pub(super) name: String,
    /// The kernel or plan.
    pub(super) source: Source<'a>,
}

/// A compiled function.
pub(super) struct CompiledFunction {
    pub(super) bytes: Vec<u8>,
    /// Alignment in bytes.
    pub(super) alignment: u64,
    /// Relocations, by offset.
    pub(super) relocations: Vec<ModuleReloc>,
    /// Leaf functions that the code calls.
    pub(super) leaves: LeafCalls,
    pub(super) clif: String,
    /// Offset at which the code of each operation begins, if requested.
    pub(super) places: Places,
    /// Cranelift's own assembly listing, for architectures that `listing` cannot disassemble.
    pub(super) vcode: String,
    /// Operations that are computed with 128-bit vectors although there are wider ones.
    pub(super) narrow: Vec<Narrow>,
}

/// Number of parameters of a kernel: arguments, start and end of the range, scratch, context.
const KERNEL: usize = 5;
/// Number of parameters of the runtime's `fail`.
const FAIL: usize = 5;
/// Number of parameters of the runtime's `launch`.
const LAUNCH: usize = 7;
/// Number of parameters of the runtime's `read`.
const READ: usize = 4;

impl Source<'_> {
    /// The signature of the function.
    pub(super) fn signature(&self, convention: CallConv) -> Signature {
        match self {
            Source::Kernel(_) => signature(convention, KERNEL, false),
            Source::Plan { .. } => signature(convention, 1, true),
        }
    }

    fn body(&self) -> &Body {
        match self {
            Source::Kernel(kernel) => &kernel.body,
            Source::Plan { plan, .. } => &plan.body,
        }
    }

    /// Fills the function after its entry block, with its parameters.
    fn emit(&self, code: &mut Code<'_, '_>, params: &[Value]) -> Result<(), String> {
        match (self, params) {
            (Source::Kernel(kernel), [args, start, end, scratch, _]) => {
                code.kernel(kernel, [*args, *start, *end, *scratch])
            }
            (Source::Kernel(_), _) => Err("a kernel has five parameters".into()),
            (Source::Plan { plan, module, kernels }, _) => {
                let convention = code.b.func.signature.call_conv;
                let launch = code.b.import_signature(signature(convention, LAUNCH, true));
                let read = match kernels {
                    Kernels::Functions(_) => None,
                    Kernels::OfGpu => Some(code.b.import_signature(signature(convention, READ, true))),
                };
                code.plan(plan, &Launching { module, launch, read })
            }
        }
    }
}

/// CLIF text without source locations (which encode operations, see `code::place`).
fn shown(name: &str, function: &Function) -> String {
    let mut function = function.clone();
    function.stencil.srclocs.clear();
    print_function(name, &function)
}

/// Offset at which the code of each operation begins.
fn places(code: &CompiledCode) -> Places {
    let place = |s: &MachSrcLoc<Final>| (s.start, inst_at(s.loc));
    code.buffer.get_srclocs_sorted().iter().map(place).collect()
}

/// Machine code. If places are wanted, Cranelift's two halves are called one after the other: the
/// first drops the places of operations that it replaces.
fn compiled(context: &mut Context, isa: &dyn TargetIsa, wanted: EmitOptions) -> CodegenResult<CompiledCode> {
    let mut plane = ControlPlane::default();
    if !wanted.places() {
        context.compile(isa, &mut plane).map_err(|e| e.inner)?;
        return context.take_compiled_code().ok_or_else(|| CodegenError::Unsupported("a function without code".into()));
    }
    let own = u32::try_from(context.func.dfg.num_insts()).unwrap_or(u32::MAX);
    context.optimize(isa, &mut plane)?;
    place_new(&mut context.func, own);
    let (func, mut registers) = (&context.func, regalloc2::Ctx::default());
    let made = isa.compile_function(func, &context.domtree, &mut registers, context.want_disasm, &mut plane)?;
    Ok(made.apply_params(&func.params))
}

/// Gives each instruction after the first `own` the place of the first instruction that uses it.
fn place_new(func: &mut Function, own: u32) {
    let mut users: SecondaryMap<Value, Option<SourceLoc>> = SecondaryMap::new();
    let blocks: Vec<_> = func.layout.blocks().collect();
    for block in blocks.into_iter().rev() {
        let insts: Vec<_> = func.layout.block_insts(block).collect();
        for inst in insts.into_iter().rev() {
            let user = func.dfg.inst_results(inst).iter().find_map(|v| users[*v]);
            if let Some(place) = user.filter(|_| func.srcloc(inst).is_default() && inst.as_u32() >= own) {
                func.set_srcloc(inst, place);
            }
            let place = Some(func.srcloc(inst)).filter(|place| !place.is_default());
            for v in func.dfg.inst_values(inst) {
                users[v] = place.or(users[v]);
            }
        }
    }
}

impl Job<'_> {
    /// Compiles it.
    ///
    /// # Errors
    /// IR that the verifier or Cranelift rejects: a bug in attnc.
    pub(super) fn make(&self, isa: &dyn TargetIsa, wanted: EmitOptions) -> Result<CompiledFunction, String> {
        self.compile(isa, wanted).map_err(|e| match &self.source {
            Source::Kernel(kernel) => format!("kernel {}: {e}", kernel.name),
            Source::Plan { .. } => format!("plan {}: {e}", self.name),
        })
    }

    fn compile(&self, isa: &dyn TargetIsa, wanted: EmitOptions) -> Result<CompiledFunction, String> {
        let name = UserFuncName::user(0, self.id.as_u32());
        let signature = self.source.signature(isa.default_call_conv());
        let mut context = Context::for_function(Function::with_name_signature(name, signature));
        let mut leaves = LeafCalls::new(wanted.places());
        self.build(&mut context.func, isa, &mut leaves, wanted)?;
        let clif = if wanted.clif { shown(&self.name, &context.func) } else { String::new() };
        let by_generator = wanted.asm && wanted.arch == Arch::Aarch64;
        context.set_disasm(by_generator);
        let code = compiled(&mut context, isa, wanted).map_err(|e| format!("{}: {e:?}", self.name))?;
        let vcode = code.vcode.clone().unwrap_or_default();
        let places = if wanted.places() { places(&code) } else { Places::new() };
        let (bytes, alignment) = (code.code_buffer().to_vec(), u64::from(code.buffer.alignment));
        let all = code.buffer.relocs().to_vec();
        let relocations = all.iter().map(|r| ModuleReloc::from_mach_reloc(r, &context.func, self.id)).collect();
        let body = self.source.body();
        let declined = leaves.declined().iter();
        let narrow = declined.map(|(inst, what)| Narrow {
            loc: body.inst(*inst).loc,
            kernel: self.name.clone(),
            what: what.clone(),
        });
        let narrow = narrow.collect();
        Ok(CompiledFunction { narrow, bytes, alignment, relocations, leaves, clif, places, vcode })
    }

    /// Builds the function as CLIF.
    fn build(
        &self,
        function: &mut Function,
        isa: &dyn TargetIsa,
        leaves: &mut LeafCalls,
        wanted: EmitOptions,
    ) -> Result<(), String> {
        let near = !wanted.kernels_elsewhere;
        let convention = function.signature.call_conv;
        let returns = !function.signature.returns.is_empty();
        let mut kernels = BTreeMap::new();
        if let Source::Plan { plan, module, kernels: ids } = &self.source {
            // Only the kernels that it launches: a function does not declare kernels of other entry
            // points.
            let launched = plan.launched();
            let all: Vec<_> = match ids {
                Kernels::Functions(_) => module.kernels.iter().collect(),
                Kernels::OfGpu => module.entry_kernels().collect(),
            };
            let all = all.into_iter().enumerate();
            for (index, kernel) in all.filter(|(_, kernel)| launched.contains(kernel.name.as_str())) {
                let id = match ids {
                    Kernels::Functions(ids) => Some(*ids.get(index).ok_or("a kernel without a function")?),
                    Kernels::OfGpu => None,
                };
                let mut declare =
                    |id| Callee::Declared(id).declare(function, signature(convention, KERNEL, false), near);
                kernels.insert(kernel.name.clone(), (index, id.map(&mut declare)));
            }
        }
        let mut frontend = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(function, &mut frontend);
        let fail = builder.import_signature(signature(convention, FAIL, false));
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        builder.seal_block(entry);
        let params = builder.block_params(entry).to_vec();
        let stop = builder.create_block();
        let call_context = *if returns { params.first() } else { params.last() }.ok_or("no context")?;
        let mut code = Code {
            b: &mut builder,
            body: self.source.body(),
            symbols: BTreeMap::new(),
            lengths: BTreeSet::new(),
            values: SecondaryMap::new(),
            kernels,
            leaves,
            context: call_context,
            fail,
            stop,
            places: wanted.places(),
            here: None,
        };
        self.source.emit(&mut code, &params)?;
        let finish = |b: &mut FunctionBuilder<'_>, status: i64| {
            if returns {
                let status = b.ins().iconst(types::I32, status);
                b.ins().return_(&[status]);
            } else {
                b.ins().return_(&[]);
            }
        };
        finish(&mut builder, 0);
        builder.switch_to_block(stop);
        builder.seal_block(stop);
        finish(&mut builder, 1);
        builder.finalize(isa.frontend_config());
        Ok(())
    }
}
