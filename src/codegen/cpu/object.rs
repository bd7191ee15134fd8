//! From functions to an object file.
//!
//! In: a scheduled module and the descriptor without code. Out: the object, in which everything is local but the
//! descriptor; on request the CLIF of each function and its machine code as text. Same input, same bytes: functions are
//! compiled in the order of the module.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cranelift_codegen::ir::{AbiParam, FuncRef, Function, InstBuilder, Signature, UserFuncName, types};
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, ir};
use cranelift_entity::SecondaryMap;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{FuncId, Linkage, Module as _, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};

use super::clif::print_function;
use super::code::Code;
use super::math::Libm;
use super::plan::{Launching, arena};
use super::wide::{Leaves, Objects};
use crate::runtime::descriptor::{ModelDescriptor, PlanCode, Variant};
use crate::runtime::expr::Expr;
use crate::runtime::object as runtime_object;
use crate::tile::{Kernel, Module, Plan, PlanVariant};

/// What a caller wants besides the object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// The CLIF of each function, as text.
    pub clif: bool,
    /// The machine code of each function, as text.
    pub asm: bool,
}

/// What comes out.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The object file.
    pub object: Vec<u8>,
    /// CLIF, if wanted.
    pub clif: String,
    /// Assembly, if wanted.
    pub asm: String,
}

/// The target triple of this machine, which is what is compiled for.
pub fn triple() -> target_lexicon::Triple {
    target_lexicon::Triple::host()
}

pub(super) fn target() -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    for (name, value) in
        [("opt_level", "speed"), ("is_pic", "true"), ("enable_verifier", "false"), ("unwind_info", "false")]
    {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let builder = isa::lookup(triple()).map_err(|e| format!("this machine is no target of the code generator: {e}"))?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())
}

/// Compiles a module. `model` has everything but sites and code.
///
/// # Errors
/// A form that the verifier refuses, or that Cranelift does; a mistake of ours either way.
pub fn compile(module: &Module, model: &ModelDescriptor, wanted: Wanted) -> Result<Compiled, String> {
    let isa = target()?;
    let builder = ObjectBuilder::new(isa, module.name.clone(), default_libcall_names()).map_err(|e| e.to_string())?;
    let mut b = Builder {
        object: ObjectModule::new(builder),
        libm: BTreeMap::new(),
        wanted,
        clif: String::new(),
        asm: String::new(),
        frontend: FunctionBuilderContext::new(),
        leaves: Leaves::new(wanted.asm),
    };
    let mut kernels = BTreeMap::new();
    for (i, k) in module.kernels.iter().enumerate() {
        kernels.insert(k.name.clone(), (i, b.kernel(k)?));
    }
    let mut plans: BTreeMap<(String, bool), String> = BTreeMap::new();
    for p in &module.plans {
        let tapped = p.variant == PlanVariant::Tapped;
        let name = if tapped { format!("plan.{}.tapped", p.name) } else { format!("plan.{}", p.name) };
        b.plan(p, &name, module, &kernels)?;
        plans.insert((p.name.clone(), tapped), name);
    }
    b.descriptor(module, model, &plans)?;
    let Builder { object, clif, mut asm, leaves, .. } = b;
    asm += &leaves.asm;
    let object = object.finish().emit().map_err(|e| e.to_string())?;
    Ok(Compiled { object, clif, asm })
}

struct Builder {
    object: ObjectModule,
    libm: BTreeMap<&'static str, FuncId>,
    wanted: Wanted,
    clif: String,
    asm: String,
    frontend: FunctionBuilderContext,
    leaves: Leaves,
}

impl Builder {
    fn signature(&self, params: usize, returns: bool) -> Signature {
        let mut s = self.object.make_signature();
        s.params.extend(vec![AbiParam::new(types::I64); params]);
        if returns {
            s.returns.push(AbiParam::new(types::I32));
        }
        s
    }

    fn libm_function(&mut self, name: &'static str, params: usize) -> Result<FuncId, String> {
        if let Some(id) = self.libm.get(name) {
            return Ok(*id);
        }
        let mut s = self.object.make_signature();
        s.params.extend(vec![AbiParam::new(types::F32); params]);
        s.returns.push(AbiParam::new(types::F32));
        let id = self.object.declare_function(name, Linkage::Import, &s).map_err(|e| e.to_string())?;
        self.libm.insert(name, id);
        Ok(id)
    }

    fn libm(&mut self, f: &mut Function) -> Result<Libm, String> {
        let mut get = |name, params| -> Result<FuncRef, String> {
            let id = self.libm_function(name, params)?;
            Ok(self.object.declare_func_in_func(id, f))
        };
        Ok(Libm { logf: get("logf", 1)?, sinf: get("sinf", 1)?, cosf: get("cosf", 1)?, powf: get("powf", 2)? })
    }

    /// Declares and compiles one function; `emit` fills it after its entry block.
    fn function(
        &mut self,
        name: &str,
        signature: Signature,
        body: &crate::tile::Body,
        emit: impl FnOnce(&mut Code<'_, '_>, &[ir::Value]) -> Result<(), String>,
        kernels: &BTreeMap<String, (usize, FuncId)>,
    ) -> Result<FuncId, String> {
        let returns = !signature.returns.is_empty();
        let id = self.object.declare_function(name, Linkage::Local, &signature).map_err(|e| e.to_string())?;
        let mut context =
            Context::for_function(Function::with_name_signature(UserFuncName::user(0, id.as_u32()), signature));
        let libm = self.libm(&mut context.func)?;
        let mut references = BTreeMap::new();
        for (kernel, (index, id)) in kernels {
            references.insert(kernel.clone(), (*index, self.object.declare_func_in_func(*id, &mut context.func)));
        }
        let fail = self.signature(5, false);
        let mut frontend = std::mem::take(&mut self.frontend);
        {
            let mut builder = FunctionBuilder::new(&mut context.func, &mut frontend);
            let fail = builder.import_signature(fail);
            let entry = builder.create_block();
            builder.append_block_params_for_function_params(entry);
            builder.switch_to_block(entry);
            builder.seal_block(entry);
            let params = builder.block_params(entry).to_vec();
            let stop = builder.create_block();
            let call_context = *if returns { params.first() } else { params.last() }.ok_or("no context")?;
            let mut code = Code {
                b: &mut builder,
                libm,
                body,
                symbols: BTreeMap::new(),
                values: SecondaryMap::new(),
                kernels: references,
                objects: Objects { object: &mut self.object, leaves: &mut self.leaves },
                context: call_context,
                fail,
                stop,
            };
            emit(&mut code, &params)?;
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
            builder.finalize(self.object.target_config());
        }
        self.frontend = frontend;
        if self.wanted.clif {
            self.clif += &print_function(name, &context.func);
        }
        context.set_disasm(self.wanted.asm);
        self.object.define_function(id, &mut context).map_err(|e| format!("{name}: {e:?}"))?;
        if self.wanted.asm
            && let Some(code) = context.compiled_code()
        {
            let _ = writeln!(self.asm, "{name}:\n{}", code.vcode.as_deref().unwrap_or_default());
        }
        Ok(id)
    }

    fn kernel(&mut self, kernel: &Kernel) -> Result<FuncId, String> {
        let signature = self.signature(5, false);
        let emit = |code: &mut Code<'_, '_>, params: &[ir::Value]| match params {
            [args, start, end, scratch, _] => code.kernel(kernel, [*args, *start, *end, *scratch]),
            _ => Err("a kernel has five parameters".into()),
        };
        let name = format!("kernel.{}", kernel.name);
        self.function(&name, signature, &kernel.body, emit, &BTreeMap::new())
            .map_err(|e| format!("kernel {}: {e}", kernel.name))
    }

    fn plan(
        &mut self,
        plan: &Plan,
        name: &str,
        module: &Module,
        kernels: &BTreeMap<String, (usize, FuncId)>,
    ) -> Result<(), String> {
        let signature = self.signature(1, true);
        let launch = self.signature(4, true);
        let emit = |code: &mut Code<'_, '_>, _: &[ir::Value]| {
            let launch = code.b.import_signature(launch);
            code.plan(plan, &Launching { module, launch })
        };
        self.function(name, signature, &plan.body, emit, kernels).map_err(|e| format!("plan {name}: {e}"))?;
        Ok(())
    }

    fn descriptor(
        &mut self,
        module: &Module,
        model: &ModelDescriptor,
        plans: &BTreeMap<(String, bool), String>,
    ) -> Result<(), String> {
        let scratch = module.kernels.iter().map(|k| k.scratch).max().unwrap_or(0).next_multiple_of(64);
        let arena_of = |name: &str, variant: PlanVariant| {
            let plan = module.plans.iter().find(|p| p.name == name && p.variant == variant);
            plan.map_or(Some(Expr::constant(0)), arena).ok_or("the arena's size is too large an expression")
        };
        let mut code = Vec::new();
        for e in &model.entries {
            let plan = plans.get(&(e.name.clone(), false)).cloned().ok_or_else(|| format!("no plan for {}", e.name))?;
            code.push(PlanCode {
                plan,
                tapped: plans.get(&(e.name.clone(), true)).cloned(),
                arena: arena_of(&e.name, PlanVariant::Plain)?,
                tapped_arena: arena_of(&e.name, PlanVariant::Tapped)?,
                scratch,
                taps_together: true,
            });
        }
        let mut model = model.clone();
        model.sites = module.sites.clone();
        model.variants =
            vec![Variant { name: "portable".into(), features: 0, prepare: None, packed_bytes: 0, plans: code }];
        runtime_object::define(&mut self.object, &model)
    }
}
