//! From graph IR to tile IR: each instruction or fused region that computes becomes a kernel, the
//! function becomes a plan that launches them, and data movement becomes strided views.
//!
//! In: graph IR after the passes. Out: unscheduled tile IR, which is independent of the machine.
//! Decided here: which values need storage and where (`plan`), each kernel's loops over tiles
//! (`map`, `rows`, `matmul`, `attention`, `gather`, `scan`, and `tile::scan`, `tile::sort`; shared
//! code is in `region`), and which parameters are stored contiguously (`join`).
//! Not decided here: how a tile is implemented on a machine, the layout and packing of matmul
//! operands, the variant of an attention kernel, and which buffers share memory.

mod attention;
mod build;
mod chain;
mod gather;
mod join;
mod map;
mod matmul;
mod means;
mod plan;
mod prepare;
mod region;
mod rows;
mod scan;

use std::collections::BTreeSet;

use crate::ir;
use crate::tile::verify::VerifiedModule;
use crate::tile::{self, Kernel, KernelBuilder, Kernels, ParamMode, Type, View};
use join::PackedArea;
use region::Position;

/// A kernel and the view behind each of its parameters, in order; the results come last.
struct Call {
    kernel: Kernel,
    buffers: Vec<View>,
}

/// State shared by the functions of a module.
#[derive(Default)]
struct Shared {
    kernels: Kernels,
    /// Concatenated parameters.
    area: PackedArea,
    /// Performance remarks, without duplicates.
    remarks: BTreeSet<(ir::Loc, String)>,
}

/// Declares an output buffer of a kernel.
fn output_buffer(kb: &mut KernelBuilder, out: &View) -> tile::Value {
    kb.buffer(region::buffer_type(out), ParamMode::Out)
}

/// Broadcasts a scalar, row or column to a full tile.
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

/// Does a module multiply `bf16` by `bf16`, in attention too? Then instruction sets with `bf16` dot
/// products may get different code; for attention, where the head width is even and there are
/// several queries.
pub fn multiplies_bf16(module: &ir::Module) -> bool {
    fn in_function(f: &ir::Function) -> bool {
        let is_bf16 = |v: &ir::Value| f.tensor(*v).is_some_and(|t| t.elem == crate::shape::Elem::BF16);
        f.insts().any(|(_, _, d)| match &d.op {
            ir::Op::Matmul => d.operands.iter().all(is_bf16),
            ir::Op::Attention { .. } => d.operands.iter().take(3).all(is_bf16),
            ir::Op::Fused { body, .. } => in_function(body),
            _ => false,
        })
    }
    module.functions.iter().any(in_function)
}

/// Lowers a module whose functions have been through the passes.
///
/// # Errors
/// An unknown instruction pattern, or an ill-formed result; a bug in attnc, since the verifier
/// accepted the module.
pub fn lower(module: ir::Verified<'_>) -> Result<VerifiedModule, String> {
    lower_with_remarks(module).map(|(tiles, _)| tiles)
}

/// The same, with located remarks: which assignments at an index copy a whole tensor, and which
/// operations run element by element.
///
/// # Errors
/// As [`lower`].
pub fn lower_with_remarks(module: ir::Verified<'_>) -> Result<(VerifiedModule, Vec<String>), String> {
    let (tiles, remarks) = lowered(&module)?;
    Ok((VerifiedModule::new(tiles).map_err(|errors| errors.to_string())?, remarks))
}

/// Tells the locations of a function's instructions which operation they are; the ones inside a
/// region are the region's, and a tap is that of the tapped value.
fn name_operations(number: usize, f: &mut ir::Function) {
    fn all_of(f: &mut ir::Function, number: usize, value: Option<ir::Value>) {
        let insts: Vec<ir::Inst> = f.insts().map(|(_, i, _)| i).collect();
        for i in insts {
            let data = f.inst_mut(i);
            let Some(value) = value.or(data.result).or(data.operands.first().copied()) else { continue };
            data.loc = data.loc.of_operation(number, value.as_u32());
            if let ir::Op::Fused { body, .. } = &mut data.op {
                all_of(body, number, Some(value));
            }
        }
    }
    all_of(f, number, None);
}

fn lowered(module: &ir::Module) -> Result<(tile::Module, Vec<String>), String> {
    let mut out = tile::Module {
        name: module.name.clone(),
        files: module.files.clone(),
        model: module.model.clone(),
        doc: module.doc.clone(),
        entries: ir::entries(module),
        params: module.params.clone(),
        states: module.states.clone(),
        ..tile::Module::default()
    };
    let mut shared = Shared::default();
    for (n, f) in module.functions.iter().enumerate() {
        let mut f = f.clone();
        name_operations(n, &mut f);
        prepare::run(&mut f)?;
        plan::lower(&f, &mut shared, &mut out)?;
    }
    join::finish(&mut shared, &mut out)?;
    out.kernels = shared.kernels.list;
    out.plans.iter_mut().for_each(|plan| tile::simplify(&mut plan.body));
    let remark = |(loc, text): &(ir::Loc, String)| format!("{}: {text}", loc.text(&out.name, &out.files));
    let remarks = shared.remarks.iter().map(remark).collect();
    Ok((out, remarks))
}
