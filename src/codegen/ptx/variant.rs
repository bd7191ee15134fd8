//! A compiled module as a variant of a library: its PTX text, and launch data of each kernel.
//!
//! In: the PTX module and the [`KernelInfo`] of each kernel, in the order of the tile IR. Out: the
//! GPU part of a descriptor's variant. Dimensions become expressions that the runtime evaluates;
//! element types and swizzles become the driver's enum values.

use super::info::{Grid, KernelInfo, TensorMapInfo};
use crate::codegen::cpu::GpuKernels;
use crate::ptx::{self, Version};
use crate::runtime::cuda::{Axis, Blocks, Cuda, Kernel, TensorMap};
use crate::runtime::expr::Expr;
use crate::shape::{Dim, Elem};

/// The first driver version (as reported by `cuDriverGetVersion`) that accepts a PTX version: that
/// of the CUDA release.
///
/// | PTX | CUDA |
/// |---|---|
/// | 7.0 to 7.8 | 11.0 to 11.8 |
/// | 8.0 to 8.5 | 12.0 to 12.5 |
/// | 8.6, 8.7 | 12.8 (8.6 came with 12.7, of which no toolkit was published) |
/// | 8.8 | 12.9 |
/// | 9.x | 13.x |
fn driver_for(Version(major, minor): Version) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    let cuda = match (major, minor) {
        (..=7, _) => (11, minor),
        (8, ..=5) => (12, minor),
        (8, 6 | 7) => (12, 8),
        (8, _) => (12, 9),
        _ => (major + 4, minor),
    };
    1000 * cuda.0 + 10 * cuda.1
}

/// PTX and name of the runtime's kernel that copies callers' tensors.
const COPIES: &str = include_str!("../../runtime/support/cuda/copy.ptx");
pub(super) const COPIES_NAME: &str = "attnc_copy";

/// The GPU variant of a compiled module: its kernels, followed by the one that copies tensors.
/// `name` is the variant's.
///
/// # Errors
/// A dimension whose expression is too large.
pub fn variant(name: &str, module: &ptx::Module, infos: &[KernelInfo]) -> Result<GpuKernels, String> {
    let kernels = infos.iter().map(kernel).collect::<Result<_, _>>()?;
    let copies = ptx::text::parse(COPIES).map_err(|e| format!("the kernel that copies tensors: {e:?}"))?;
    let mut module = module.clone();
    module.version = module.version.max(copies.version);
    module.kernels.extend(copies.kernels);
    Ok(GpuKernels {
        name: name.to_string(),
        cuda: Cuda {
            capability: u64::from(module.target.sm),
            only: module.target.alone,
            driver: driver_for(module.version),
            ptx: ptx::text::print(&module),
            cubins: Vec::new(),
            kernels,
        },
    })
}

fn kernel(info: &KernelInfo) -> Result<Kernel, String> {
    let expr = |d: &Dim| {
        let made = Expr::from_dim(d, &info.symbols).filter(|e| e.is_well_formed(info.symbols.len()));
        made.ok_or_else(|| format!("kernel {}: the expression of dimension {d} is too large", info.name))
    };
    let (grid, blocks) = match &info.grid {
        Grid::Axes(_) => (Vec::new(), Blocks::ForEachPoint),
        Grid::Persistent(_) => (Vec::new(), Blocks::AtATime),
        Grid::Meeting(_) => (Vec::new(), Blocks::Together),
        Grid::Extents(extents) => (extents.iter().map(expr).collect::<Result<_, _>>()?, Blocks::ForEachPoint),
    };
    Ok(Kernel {
        name: info.name.clone(),
        symbols: info.symbols.len(),
        params: info.params.len(),
        threads: info.threads,
        grid,
        blocks,
        static_shared: info.static_shared,
        dynamic_shared: info.dynamic_shared,
        tensor_maps: info.tensor_maps.iter().map(|m| tensor_map(m, &expr)).collect::<Result<_, _>>()?,
    })
}

fn tensor_map(map: &TensorMapInfo, expr: &impl Fn(&Dim) -> Result<Expr, String>) -> Result<TensorMap, String> {
    let mut axes = Vec::new();
    for (i, extent) in map.extents.iter().enumerate() {
        let stride = i.checked_sub(1).and_then(|i| map.byte_strides.get(i));
        axes.push(Axis {
            extent: expr(extent)?,
            stride: stride.map_or(Ok(Expr::constant(0)), expr)?,
            part: map.boxes.get(i).copied().unwrap_or(1),
            step: map.element_strides.get(i).copied().unwrap_or(1),
        });
    }
    Ok(TensorMap { param: map.param, elem: type_code(map.elem), swizzle: u64::from(map.swizzle.code()), axes })
}

/// `CUtensorMapDataType`.
fn type_code(elem: Elem) -> u64 {
    match elem {
        Elem::I8 | Elem::Bool => 0,
        Elem::I32 => 3,
        Elem::I64 => 5,
        Elem::F16 => 6,
        Elem::F32 => 7,
        Elem::BF16 => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::Swizzle;

    #[test]
    fn a_version_of_ptx_needs_the_driver_of_its_time() {
        let needs = |major, minor| driver_for(Version(major, minor));
        assert_eq!([needs(7, 0), needs(7, 8), needs(8, 0), needs(8, 5)], [11000, 11080, 12000, 12050]);
        assert_eq!([needs(8, 6), needs(8, 7), needs(8, 8), needs(9, 0)], [12080, 12080, 12090, 13000]);
    }

    #[test]
    fn a_map_of_a_matrix_with_rows_apart() {
        let (s, d) = (Dim::symbol("S"), Dim::from(48));
        let info = KernelInfo {
            name: "k".into(),
            kernel: "k".into(),
            symbols: vec!["S".into()],
            params: Vec::new(),
            threads: [128, 1, 1],
            grid: Grid::Extents([s.clone(), Dim::from(2), Dim::one()]),
            static_shared: 16,
            dynamic_shared: 32,
            tensor_maps: vec![TensorMapInfo {
                param: 0,
                elem: Elem::BF16,
                extents: vec![d, s.clone()],
                byte_strides: vec![Dim::from(128)],
                boxes: vec![32, 8],
                element_strides: vec![1, 1],
                swizzle: Swizzle::Bytes64,
            }],
            cluster: None,
        };
        let made = kernel(&info).unwrap();
        assert_eq!(made.grid, [Expr::symbol(0), Expr::constant(2), Expr::constant(1)]);
        let map = &made.tensor_maps[0];
        assert_eq!((map.elem, map.swizzle), (9, 2));
        let axis = |extent, stride, part| Axis { extent, stride, part, step: 1 };
        let want = [axis(Expr::constant(48), Expr::constant(0), 32), axis(Expr::symbol(0), Expr::constant(128), 8)];
        assert_eq!(map.axes, want);
        let unknown = KernelInfo { symbols: Vec::new(), ..info };
        assert!(kernel(&unknown).unwrap_err().contains("dimension S"));
    }
}
