//! Several modules in one library: linking and opening a library costs more than compiling a small program, and a library of many
//! programs tests more.
//!
//! In: modules after the passes, each with its parameters. Out: a loaded model, where the entry points, parameters and states of the module
//! of a number have its number before their names. A test program takes it in by
//! `#[path = "../common/grouped.rs"] mod grouped;`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use attnc::ir::{Function, Module, Op};
use attnc::runtime::load::CompiledModel;
use attnc::tensor::Tensor;

/// Compiles a module with its parameters into a folder, and loads it; panics where that fails.
pub(crate) type Load<'a> = &'a dyn Fn(&Module, &BTreeMap<String, Tensor>, &Path) -> CompiledModel;

/// A module after the passes, with its parameters.
pub(crate) struct Member {
    pub(crate) number: u64,
    pub(crate) module: Module,
    pub(crate) params: BTreeMap<String, Tensor>,
}

impl Member {
    /// What a name of the module is in the library.
    pub(crate) fn name(&self, own: &str) -> String {
        format!("m{}_{own}", self.number)
    }

    fn renamed(&self) -> Module {
        let mut module = self.module.clone();
        module.params.iter_mut().for_each(|p| p.name = self.name(&p.name));
        module.states.iter_mut().for_each(|s| s.name = self.name(&s.name));
        for f in &mut module.functions {
            f.name = self.name(&f.name);
            self.rename(f);
        }
        module
    }

    fn rename(&self, f: &mut Function) {
        let insts: Vec<_> = f.insts().map(|(_, inst, _)| inst).collect();
        for inst in insts {
            match &mut f.inst_mut(inst).op {
                Op::Param { name } | Op::State { name } | Op::SetState { name } => *name = self.name(name),
                Op::Fused { body, .. } => self.rename(body),
                _ => {}
            }
        }
    }
}

/// Gives a check each member with a library that has it. Where they do not compile together, each is compiled alone; those that
/// do not even so are passed to `refused`.
pub(crate) fn each(
    load: Load<'_>,
    members: &[Member],
    mut check: impl FnMut(&Member, &CompiledModel),
    mut refused: impl FnMut(&Member),
) {
    let folder = tempfile::tempdir().unwrap();
    if let Some(model) = loaded(load, members, folder.path()) {
        members.iter().for_each(|m| check(m, &model));
        return;
    }
    let mut all = true;
    for (n, member) in members.iter().enumerate() {
        let folder = folder.path().join(n.to_string());
        std::fs::create_dir(&folder).unwrap();
        match loaded(load, std::slice::from_ref(member), &folder) {
            Some(model) => check(member, &model),
            None => {
                all = false;
                refused(member);
            }
        }
    }
    assert!(!all, "modules {:?} compile alone but not together", members.iter().map(|m| m.number).collect::<Vec<_>>());
}

fn loaded(load: Load<'_>, members: &[Member], folder: &Path) -> Option<CompiledModel> {
    let mut all = Module { name: "random.attn".into(), ..Module::default() };
    let mut params = BTreeMap::new();
    for member in members {
        let module = member.renamed();
        if all.files.len() < module.files.len() {
            all.files = module.files;
        }
        all.params.extend(module.params);
        all.states.extend(module.states);
        all.functions.extend(module.functions);
        params.extend(member.params.iter().map(|(name, x)| (member.name(name), x.clone())));
    }
    all.params.sort_by(|a, b| a.name.cmp(&b.name));
    catch_unwind(AssertUnwindSafe(|| load(&all, &params, folder))).ok()
}
