//! The passes by name: the one list that `--passes`, `--print-after`, `--stop-after` and the reference read.

use super::{
    Changed, Context, canonicalise_cast, canonicalise_heads, canonicalise_mask, canonicalise_reduce, canonicalise_row,
    canonicalise_scale, canonicalise_softmax, canonicalise_transpose, cse, dce, fold_constants, fuse_attention,
    fuse_epilogue, fuse_map, fuse_mask, fuse_rows, gather_diagonals, hoist_products, licm, merge_matmuls,
    separate_taps, simplify, simplify_cfg,
};
use crate::diagnostics::did_you_mean;
use crate::ir::Function;

/// A pass: its name, what it says about itself, and the function.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Name on the command line and in dumps.
    pub name: &'static str,
    /// One line for the reference.
    pub summary: &'static str,
    /// Does it leave every bit of every result as it was, whenever `--float` is not `fast`?
    pub exact: bool,
    /// The pass.
    pub run: fn(&mut Function, &mut Context) -> Changed,
}

/// Passes are equal if their names are.
impl PartialEq for Pass {
    fn eq(&self, other: &Pass) -> bool {
        self.name == other.name
    }
}

impl Eq for Pass {}

/// Declares the passes, each as a constant, and the list of all of them.
macro_rules! passes {
    ($($constant:ident = $name:literal, $exact:literal, $module:ident, $summary:literal;)*) => {
        $(#[doc = $summary]
        pub(super) const $constant: Pass =
            Pass { name: $name, summary: $summary, exact: $exact, run: $module::run };)*

        /// Every pass, in the order in which the pipeline first runs it.
        pub const PASSES: &[Pass] = &[$($constant,)*];
    };
}

// Name, whether it is exact, the module, and one line for the reference.
passes! {
    FOLD_CONSTANTS = "fold-constants", true, fold_constants, "what is computed from literals alone is a literal";
    SIMPLIFY = "simplify", true, simplify, "identities of single operations";
    SIMPLIFY_CFG = "simplify-cfg", true, simplify_cfg, "decided jumps, unreachable blocks, arguments that are always the same";
    CSE = "cse", true, cse, "what was computed before is not computed again";
    LICM = "licm", true, licm, "what is the same in every turn of a loop is computed before it";
    DCE = "dce", true, dce, "what nothing needs goes";
    SEPARATE_TAPS = "separate-taps", true, separate_taps, "what only a tap needs is computed apart, so that the rest is fused as without it";
    CANONICALISE_HEADS = "canonicalise-heads", true, canonicalise_heads, "regrouped scores computed in their groups";
    CANONICALISE_TRANSPOSE = "canonicalise-transpose", true, canonicalise_transpose, "transposed attention as softmax(q @ k.T) @ v";
    CANONICALISE_SOFTMAX = "canonicalise-softmax", true, canonicalise_softmax, "a softmax written out by hand as softmax";
    CANONICALISE_MASK = "canonicalise-mask", true, canonicalise_mask, "masks of attention as where(keep, scores, number)";
    CANONICALISE_CAST = "canonicalise-cast", false, canonicalise_cast, "scores of attention in f32 from the product on";
    CANONICALISE_SCALE = "canonicalise-scale", false, canonicalise_scale, "scales of attention as one product next to q @ k.T";
    FUSE_ATTENTION = "fuse-attention", false, fuse_attention, "softmax with its two matmuls as one attention";
    CANONICALISE_REDUCE = "canonicalise-reduce", true, canonicalise_reduce, "reductions over the last axis keep it";
    CANONICALISE_ROW = "canonicalise-row", true, canonicalise_row, "elementwise work on products of one row before they are vectors";
    HOIST_PRODUCTS = "hoist-products", true, hoist_products, "products of a loop's rows as one product before it";
    MERGE_MATMULS = "merge-matmuls", true, merge_matmuls, "products of one tensor by several parameters as one product";
    GATHER_DIAGONALS = "gather-diagonals", true, gather_diagonals, "tables read at row minus column once for each diagonal";
    FUSE_MASK = "fuse-mask", true, fuse_mask, "masks that are formulas over positions into the kernel of their attention";
    FUSE_EPILOGUE = "fuse-epilogue", true, fuse_epilogue, "elementwise work after a matmul into its kernel";
    FUSE_ROWS = "fuse-rows", true, fuse_rows, "norms and softmaxes with what surrounds them as one kernel";
    FUSE_MAP = "fuse-map", true, fuse_map, "runs of elementwise work as one kernel";
}

/// The pass of this name.
///
/// # Errors
/// A line that names the nearest pass there is.
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

/// Reads a list of passes with commas, `cse,fuse-attention`; an empty list is no pass.
///
/// # Errors
/// A line about the first name that is no pass.
pub fn parse_pass_list(list: &str) -> Result<Vec<Pass>, String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(find_pass).collect()
}
