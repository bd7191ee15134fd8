//! Counts the blocks of keys that an attention's masks leave to visit, at compile time.
//!
//! ```text
//! where S = 4096, 372 of 4096 blocks of 32 queries by 128 keys are visited (9.1 %), 124 of them without a mask
//! ```
//!
//! In: the unscheduled kernel of an attention, and a machine's parameters. Out: block counts of one
//! head, for an assumed sequence length. A kernel that computes only bounds is built by the same
//! code as the attention (`visible`), and interpreted for each tile of queries and block of keys.
//! So a hidden block that the bounds do not prove hidden counts as visited, as it is at run time.
//!
//! A partly visible block counts as one, even if hidden keys at its ends are trimmed (`visible`).
//!
//! Masks that read memory (document ids) are not counted: the data is not known at compile time.

use std::collections::BTreeMap;
use std::fmt;

use super::{QueryLayout, begin, first_hiding};
use crate::scalar::{BinaryOp, CmpOp, Scalar};
use crate::shape::{Dim, Elem};
use crate::ssa::remove_dead;
use crate::tile::attention::{Described, KEYS as KEYS_PARAM, QUERIES, VALUES};
use crate::tile::interp::{Argument, Limits, run_kernel};
use crate::tile::{BufferType, Extent, Kernel, KernelBuilder, Machine, Module, Op, ParamMode, Type, Value, row_major};

/// Assumed size of a dimension that is known only at run time.
const LENGTH: i64 = 4096;
/// Largest number of blocks that are counted; with more, there is no result.
const MAX_BLOCKS: i64 = 1 << 17;

/// The blocks of keys that an attention visits, in each head.
pub(super) struct VisitedBlocks {
    /// Assumed sizes of the dimensions that are known only at run time.
    assumed: Vec<(String, i64)>,
    /// Queries of a tile.
    queries: i64,
    /// Keys of a block.
    keys: i64,
    /// All blocks, hidden ones included.
    all: usize,
    /// Blocks that are visited.
    visited: usize,
    /// Visited blocks in which nothing is hidden.
    whole: usize,
}

impl fmt::Display for VisitedBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.assumed.is_empty() {
            let assumed: Vec<String> = self.assumed.iter().map(|(name, n)| format!("{name} = {n}")).collect();
            write!(f, "where {}, ", assumed.join(", "))?;
        }
        let share = 100.0 * self.visited as f64 / self.all.max(1) as f64;
        write!(
            f,
            "{} of {} blocks of {} queries by {} keys are visited ({share:.1} %), {} of them without a mask",
            self.visited, self.all, self.queries, self.keys, self.whole
        )
    }
}

/// Counts the visited blocks of a module's unscheduled attentions, by the names of their kernels,
/// for masks that are formulas over positions alone.
pub(super) fn counts(module: &Module, machine: Machine) -> Vec<(String, VisitedBlocks)> {
    let of = |k: &Kernel| Some((k.name.clone(), count(k, &Described::from_kernel(k)?, machine)?));
    module.kernels.iter().filter_map(of).collect()
}

/// The blocks that one attention visits.
fn count(unscheduled: &Kernel, found: &Described, machine: Machine) -> Option<VisitedBlocks> {
    let ty = |n: usize| unscheduled.buffer_type(n);
    let [of_q, of_k, of_v] = [ty(QUERIES)?, ty(KEYS_PARAM)?, ty(VALUES)?];
    let rows = |ty: &BufferType| ty.shape.iter().nth_back(1).cloned();
    let bounds = Bounds::write(unscheduled, found, machine, [of_k, of_v])?;
    let symbols: BTreeMap<String, i64> = bounds.kernel.symbols.iter().map(|s| (s.clone(), LENGTH)).collect();
    let value = |d: &Dim| d.eval(&|s| symbols.get(s).copied()).ok().filter(|n| (1..=i64::from(i32::MAX)).contains(n));
    let (s, t) = (value(&rows(of_q)?)?, value(&rows(of_k)?)?);
    let count = |extent: i64, size: i64| (extent - 1) / size.max(1) + 1;
    let (tiles, blocks) = (count(s, bounds.queries), count(t, bounds.keys));
    let all = tiles.checked_mul(blocks).filter(|n| *n <= MAX_BLOCKS)?;
    let kernel = bounds.with_result([tiles, blocks]);
    let size = usize::try_from(all).ok()?;
    let mut args = vec![Argument::Buffer(Vec::new()); kernel.params.len()];
    *args.last_mut()? = Argument::Buffer(vec![0; 4 * size]);
    // Reading a mask from memory fails, since there are no inputs.
    run_kernel(&kernel, &symbols, &mut args, Limits::default()).ok()?;
    let Some(Argument::Buffer(bytes)) = args.pop() else { return None };
    let (words, _) = bytes.as_chunks::<4>();
    let at_least = |n: i32| words.iter().filter(|b| i32::from_le_bytes(**b) >= n).count();
    let names = rows(of_q)?.symbols().into_iter().chain(rows(of_k)?.symbols());
    let mut assumed: Vec<(String, i64)> = names.map(|name| (name.to_string(), LENGTH)).collect();
    assumed.sort();
    assumed.dedup();
    let (queries, keys) = (bounds.queries, bounds.keys);
    Some(VisitedBlocks { assumed, queries, keys, all: size, visited: at_least(1), whole: at_least(2) })
}

/// A kernel over a grid of query tiles and key blocks that stores a code for each: 0 hidden, 1
/// visible in part, 2 visible as a whole.
struct Bounds {
    kernel: Kernel,
    queries: i64,
    keys: i64,
}

impl Bounds {
    /// The kernel for a machine; `None` where no formula hides keys.
    fn write(
        unscheduled: &Kernel,
        found: &Described,
        machine: Machine,
        keys_and_values: [&BufferType; 2],
    ) -> Option<Bounds> {
        let hiding = first_hiding(found.attention.steps.iter())?;
        let (mut kb, parts) = begin(unscheduled, found, machine, QueryLayout::InLanes, keys_and_values, None)?;
        let queries = match parts.queries {
            Extent::Static(n) => n,
            Extent::Bounded { max, .. } => max,
        };
        let keys = parts.block;
        let place = kb.grid_axis(&parts.t, keys);
        let first = kb.times(place, keys);
        let hiding = parts.hiding(&mut kb, hiding)?;
        let end = hiding.end(&mut kb);
        let seen = hiding.block_at(&mut kb, first, end)?;
        let is_before = kb.compare_scalars(CmpOp::Lt, first, end);
        let [zero, one] = [0, 1].map(|n| kb.scalar(Scalar::Int(n), Elem::I32));
        let visited = match seen.ever {
            Some(ever) => kb.binary(BinaryOp::And, is_before, ever),
            None => is_before,
        };
        let mut code = kb.select(visited, one, zero);
        if let Some(always) = seen.always {
            let whole = kb.select(always, one, zero);
            let both = kb.binary(BinaryOp::Mul, code, whole);
            code = kb.binary(BinaryOp::Add, code, both);
        }
        let size = kb.index(queries);
        let tile = kb.index_binary(BinaryOp::Div, parts.row, size);
        store_code(&mut kb, [tile, place], code);
        let mut kernel = kb.finish();
        // One head is enough, and its columns are one tile.
        let rows = parts.points().len();
        for (n, axis) in kernel.grid.iter_mut().enumerate() {
            if n < rows || n == rows + 1 {
                (axis.extent, axis.step) = (Dim::one(), 1);
            }
        }
        remove_dead(&mut kernel.body);
        kernel.find_symbols();
        Some(Bounds { kernel, queries, keys })
    }

    /// The kernel, with its result resized to this shape.
    fn with_result(&self, shape: [i64; 2]) -> Kernel {
        let mut kernel = self.kernel.clone();
        if let Some(p) = kernel.params.last() {
            let ty = result_type(shape);
            kernel.body.set_ty(p.value, Type::Buffer(ty));
        }
        kernel
    }
}

fn result_type(shape: [i64; 2]) -> BufferType {
    let shape: Vec<Dim> = shape.into_iter().map(Dim::from).collect();
    BufferType { elem: Elem::I32, strides: row_major(&shape), shape }
}

/// Stores a code in the result, whose shape is set later ([`Bounds::with_result`]).
fn store_code(kb: &mut KernelBuilder, at: [Value; 2], code: Value) {
    let result = kb.buffer(result_type([1, 1]), ParamMode::Out);
    let one = Extent::Static(1);
    let ty = KernelBuilder::tile_type(Elem::I32, one, one);
    let tile = kb.value(Op::Full, vec![code], Type::Tile(ty));
    kb.store(result, &at, (None, None), tile);
}
