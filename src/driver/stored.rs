//! Parameters with the element type of a weights file.
//!
//! In: a graph whose parameters are `f32`, as most programs declare them, and the file. Out: a
//! graph in which a parameter that is `bf16` in the file is declared so, and widened where it is
//! read. The results are the same; but the library maps the tensor, and packs it in half the bytes,
//! instead of converting it when it is opened.

use super::arguments::{weights, wrong_weights};
use super::session::{CommandError, Session};
use crate::ir::{InstData, Module, Op, Type};
use crate::runtime::weights::{WeightsFile, members};
use crate::shape::Elem;
use std::collections::BTreeSet;
use std::path::Path;

/// Declares parameters as they are stored in a file.
pub(super) fn as_stored(s: &mut Session, graph: &mut Module, path: &Path) -> Result<(), CommandError> {
    weights(s, path)?;
    let file = WeightsFile::open(path).map_err(|message| s.fail(wrong_weights(message)))?;
    let (elems, mut narrow) = (file.elems(), BTreeSet::new());
    for param in graph.params.iter_mut().filter(|param| param.ty.elem == Elem::F32) {
        let mut names = members(&param.name, &param.counts).into_iter().peekable();
        if names.peek().is_some() && names.all(|name| elems.get(&name) == Some(&Elem::BF16)) {
            param.ty.elem = Elem::BF16;
            narrow.insert(param.name.clone());
        }
    }
    for f in &mut graph.functions {
        let of = |data: &InstData| matches!(&data.op, Op::Param { name } if narrow.contains(name));
        let reads: Vec<_> = f.insts().filter(|(_, _, data)| of(data)).map(|(block, inst, _)| (block, inst)).collect();
        for (block, inst) in reads {
            let data = f.inst(inst).clone();
            let Some(mut ty) = data.result.and_then(|v| f.tensor(v)).cloned() else { continue };
            ty.elem = Elem::BF16;
            let read = f.make_inst(data.op, data.operands, Some(Type::Tensor(ty)), data.loc);
            f.insert_before(block, inst, read);
            let operands = f.inst(read).result.into_iter().collect();
            let cast = f.inst_mut(inst);
            (cast.op, cast.operands) = (Op::Cast { elem: Elem::F32 }, operands);
        }
    }
    Ok(())
}
