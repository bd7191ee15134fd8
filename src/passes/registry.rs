//! The passes by name: the single list that `--passes`, `--print-after`, `--stop-after` and the
//! reference use.

use super::{
    Changed, Context, canonicalise_cast, canonicalise_heads, canonicalise_mask, canonicalise_reduce, canonicalise_row,
    canonicalise_scale, canonicalise_softmax, canonicalise_transpose, cse, dce, differentiate, fold_constants,
    fuse_attention, fuse_chain, fuse_epilogue, fuse_map, fuse_mask, fuse_rows, gather_diagonals, hoist_products, licm,
    merge_matmuls, separate_taps, simplify, simplify_cfg,
};
use crate::diagnostics::did_you_mean;
use crate::ir::Function;

/// A pass: name, summary and function.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Name on the command line and in dumps.
    pub name: &'static str,
    /// One line for the reference.
    pub summary: &'static str,
    /// Is every result bit-identical unless `--float` is `fast`?
    pub exact: bool,
    /// Rewrites one function and reports whether it changed.
    pub run: fn(&mut Function, &mut Context) -> Changed,
}

/// Passes are equal if their names are.
impl PartialEq for Pass {
    fn eq(&self, other: &Pass) -> bool {
        self.name == other.name
    }
}

impl Eq for Pass {}

/// Declares each pass as a constant, and the list of all passes.
macro_rules! passes {
    ($($constant:ident = $name:literal, $exact:literal, $module:ident, $summary:literal;)*) => {
        $(#[doc = $summary]
        pub(super) const $constant: Pass =
            Pass { name: $name, summary: $summary, exact: $exact, run: $module::run };)*

        /// Every pass, in the order in which the pipeline first runs it.
        pub const PASSES: &[Pass] = &[$($constant,)*];
    };
}

// Constant, name, exactness, module, and the summary for the reference.
passes! {
    DIFFERENTIATE = "differentiate", true, differentiate, "gradients as the operations that compute them";
    FOLD_CONSTANTS = "fold-constants", true, fold_constants, "evaluates operations on literals";
    SIMPLIFY = "simplify", true, simplify, "identities of single operations";
    SIMPLIFY_CFG = "simplify-cfg", true, simplify_cfg, "constant branches, unreachable blocks, redundant block arguments";
    CSE = "cse", true, cse, "merges operations that compute the same value";
    LICM = "licm", true, licm, "hoists loop-invariant operations";
    DCE = "dce", true, dce, "removes operations whose results are unused";
    SEPARATE_TAPS = "separate-taps", true, separate_taps, "recomputes tapped values outside of fused kernels";
    FUSE_CHAIN = "fuse-chain", false, fuse_chain, "matmuls of formulas over matmuls, as the gradient of attention, as one kernel";
    CANONICALISE_HEADS = "canonicalise-heads", true, canonicalise_heads, "regrouped scores computed in their groups";
    CANONICALISE_TRANSPOSE = "canonicalise-transpose", true, canonicalise_transpose, "transposed attention as softmax(q @ k.T) @ v";
    CANONICALISE_SOFTMAX = "canonicalise-softmax", true, canonicalise_softmax, "a hand-written softmax as softmax";
    CANONICALISE_MASK = "canonicalise-mask", true, canonicalise_mask, "masks of attention as where(keep, scores, number)";
    CANONICALISE_CAST = "canonicalise-cast", false, canonicalise_cast, "scores of attention in f32 throughout";
    CANONICALISE_SCALE = "canonicalise-scale", false, canonicalise_scale, "scales of attention as one multiplication next to q @ k.T";
    FUSE_ATTENTION = "fuse-attention", false, fuse_attention, "softmax with its two matmuls as one attention";
    CANONICALISE_REDUCE = "canonicalise-reduce", true, canonicalise_reduce, "reductions over the last axis keep it";
    CANONICALISE_ROW = "canonicalise-row", true, canonicalise_row, "elementwise operations on one-row matmuls before they become vectors";
    HOIST_PRODUCTS = "hoist-products", true, hoist_products, "matmuls of a loop's rows as one matmul before the loop";
    MERGE_MATMULS = "merge-matmuls", true, merge_matmuls, "matmuls of one tensor by several parameters as one matmul";
    GATHER_DIAGONALS = "gather-diagonals", true, gather_diagonals, "gathers indexed by row minus column, once per diagonal";
    FUSE_MASK = "fuse-mask", true, fuse_mask, "masks that are formulas over positions into the kernel of their attention";
    FUSE_EPILOGUE = "fuse-epilogue", true, fuse_epilogue, "elementwise operations after a matmul into its kernel";
    FUSE_ROWS = "fuse-rows", true, fuse_rows, "norms, and softmaxes with adjacent operations, as one kernel";
    FUSE_MAP = "fuse-map", true, fuse_map, "runs of elementwise operations as one kernel";
}

/// The pass with this name.
///
/// # Errors
/// A line that suggests the nearest name.
pub fn find_pass(name: &str) -> Result<Pass, String> {
    match PASSES.iter().find(|p| p.name == name) {
        Some(pass) => Ok(*pass),
        None => Err(match did_you_mean(name, PASSES.iter().map(|p| p.name)) {
            Some(near) => format!("there is no pass `{name}`; did you mean `{near}`?"),
            None => format!(
                "there is no pass `{name}`; there are {}",
                PASSES.iter().map(|p| p.name).collect::<Vec<_>>().join(", ")
            ),
        }),
    }
}

/// Parses a comma-separated list of passes, `cse,fuse-attention`; an empty list selects no pass.
///
/// # Errors
/// A line about the first unknown name.
pub fn parse_pass_list(list: &str) -> Result<Vec<Pass>, String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(find_pass).collect()
}
