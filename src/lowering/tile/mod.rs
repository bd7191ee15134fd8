//! From graph IR to tile IR: each instruction or fused region that computes becomes a kernel, the function becomes a plan
//! that launches them, and movement becomes strided views.
//!
//! In: graph IR after the passes. Out: unscheduled tile IR. Decided here: which values need storage and where it lies
//! (`views`, `plan`), and each kernel's loops over tiles (`map`, `rows`, `matmul`, `attention`, `gather`; what they
//! share in `region`). Not decided here: what a tile becomes on a machine, and which buffers share memory.

mod attention;
mod gather;
mod map;
mod matmul;
mod plan;
mod prepare;
mod region;
mod rows;
mod views;

use std::collections::BTreeMap;

use crate::ir;
use crate::tile::{self, CpuLevel, Kernel, KernelBuilder, ParamMode, Type};
use region::Position;
use views::View;

/// A kernel and the view behind each of its parameters, in order; the last one is what it writes.
struct Call {
    kernel: Kernel,
    buffers: Vec<View>,
}

/// Declares the buffer that a kernel writes.
fn output_buffer(kb: &mut KernelBuilder, out: &View) -> tile::Value {
    kb.buffer(region::buffer_type(out), ParamMode::Out)
}

/// A value at a tile's place as a tile of its full extents: scalars and rows or columns are spread.
fn as_tile(kb: &mut KernelBuilder, v: tile::Value, at: &Position) -> tile::Value {
    let elem = kb.ty(v).elem().unwrap_or(crate::shape::Elem::F32);
    let full = Type::Tile(KernelBuilder::tile_type(elem, at.rows, at.cols));
    if *kb.ty(v) == full {
        return v;
    }
    match kb.ty(v).tile() {
        None => kb.value(tile::Op::Full, vec![v], full),
        Some(_) => kb.value(tile::Op::Copy, vec![v], full),
    }
}

/// Lowers a module whose functions went through the passes, with tile sizes for a level of processors.
///
/// # Errors
/// A form that the lowering does not know; a mistake of ours, for the verifier accepted it.
pub fn lower(module: &ir::Module, level: CpuLevel) -> Result<tile::Module, String> {
    let mut out = tile::Module {
        name: module.name.clone(),
        files: module.files.clone(),
        model: module.model.clone(),
        doc: module.doc.clone(),
        entries: ir::entries(module),
        params: module.params.clone(),
        ..tile::Module::default()
    };
    let mut known = BTreeMap::new();
    for f in &module.functions {
        let mut f = f.clone();
        prepare::run(&mut f)?;
        plan::lower(&f, level, &mut known, &mut out)?;
    }
    Ok(out)
}
