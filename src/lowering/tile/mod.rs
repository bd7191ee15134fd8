//! From graph IR to tile IR: each instruction or fused region that computes becomes a kernel, the function becomes a plan
//! that launches them, and movement becomes strided views.
//!
//! In: graph IR after the passes, and the numbers of a machine ([`Target`]). Out: unscheduled tile IR. Decided here: which values need storage and where it lies
//! (`views`, `plan`), each kernel's loops over tiles (`map`, `rows`, `matmul`, `attention`, `gather`; what they share in
//! `region`), which parameters are packed before all calls, and in how many bytes (`packing`, `pairs`,
//! `quantise`, `join`; what that loses: `precision`).
//! Not decided here: what a tile becomes on a machine, and which buffers share memory.

mod attention;
mod gather;
mod join;
mod map;
mod matmul;
mod packing;
mod pairs;
mod plan;
mod precision;
mod prepare;
mod quantise;
mod region;
mod rows;
mod views;

use std::collections::{BTreeMap, HashMap};

use crate::ir;
use crate::tile::encode::{self, Encoding};
use crate::tile::verify::VerifiedModule;
use crate::tile::{self, Kernel, KernelBuilder, ParamMode, Target, Type};
use packing::Packing;
pub use packing::{WeightChoice, WeightFormat};
pub use precision::{Loss, PackedWeight};
use region::Position;
use views::View;

/// A kernel and the view behind each of its parameters, in order; the last one is what it writes.
struct Call {
    kernel: Kernel,
    buffers: Vec<View>,
}

/// What the functions of a module share.
struct Shared {
    /// The names of the kernels so far, by what they are without name and places.
    known: HashMap<Vec<u8>, String>,
    /// How many kernels there are of each kind.
    counts: BTreeMap<String, usize>,
    /// The parameters that are packed.
    packing: Packing,
}

impl Shared {
    /// The name of a kernel in the module: one that is there already is not added again.
    fn kernel(&mut self, out: &mut tile::Module, mut kernel: Kernel) -> String {
        tile::simplify(&mut kernel.body);
        let kind = kernel.name.clone();
        let bytes = encode::kernel(&kernel, Encoding { name: false, places: false, state: kernel.state });
        if let Some(name) = self.known.get(&bytes) {
            return name.clone();
        }
        let number = self.counts.entry(kind.clone()).or_default();
        kernel.name = format!("{kind}.{number}");
        *number += 1;
        let name = kernel.name.clone();
        self.known.insert(bytes, name.clone());
        out.kernels.push(kernel);
        name
    }
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

/// Does a module multiply `bf16` by `bf16`, in attention too? Then levels that have instructions for that may make
/// other code of it; of attention they do where its heads are of an even width and there are several queries.
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

/// Lowers a module whose functions went through the passes, with the numbers of a target. Packed weights stay
/// as they are.
///
/// # Errors
/// A form that the lowering does not know, or what it made is wrong; a bug in attnc, for the verifier accepted the module.
pub fn lower(module: ir::Verified<'_>, target: impl Into<Target>) -> Result<VerifiedModule, String> {
    lower_packed(module, target, WeightFormat::F32)
}

/// The same, with packed weights in a format of the caller's choice.
///
/// # Errors
/// As [`lower`].
pub fn lower_packed(
    module: ir::Verified<'_>,
    target: impl Into<Target>,
    weights: impl Into<WeightChoice>,
) -> Result<VerifiedModule, String> {
    let out = lowered(&module, target.into(), &weights.into())?.0;
    VerifiedModule::new(out).map_err(|errors| errors.to_string())
}

/// The parameters that a module would pack in fewer bytes, each with what is packed of it, in order of name.
///
/// # Errors
/// As [`lower`].
pub fn packed_weights(
    module: &ir::Module,
    target: impl Into<Target>,
    weights: &WeightChoice,
) -> Result<Vec<PackedWeight>, String> {
    Ok(lowered(module, target.into(), weights)?.1)
}

fn lowered(
    module: &ir::Module,
    target: Target,
    weights: &WeightChoice,
) -> Result<(tile::Module, Vec<PackedWeight>), String> {
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
    let packing = Packing::new(target.columns, weights.clone());
    let mut shared = Shared { known: HashMap::new(), counts: BTreeMap::new(), packing };
    for f in &module.functions {
        let mut f = f.clone();
        prepare::run(&mut f)?;
        plan::lower(&f, target, &mut shared, &mut out)?;
    }
    let packed = precision::packed(&shared.packing);
    packing::finish(&mut shared, &mut out)?;
    out.plans.iter_mut().for_each(|plan| tile::simplify(&mut plan.body));
    Ok((out, packed))
}
