//! Passes on the graph IR: rewrite a module into an equivalent one with fewer and larger
//! operations.
//!
//! Each pass is a function in a file of its own, whose head has a summary, an example before and
//! after, the conditions under which it is legal, and its limits. `pipeline` orders the passes (one
//! function, read from top to bottom), `manager` runs them with dumps, verification, bisection and
//! timing, and in `remarks` they report their rewrites and missed rewrites. In: a verified module.
//! Out: a verified module that computes the same. Passes know no tiles or machines, and
//! source syntax only where a remark proposes an edit; they do no I/O: text goes to a [`Sink`].
//!
//! To add a pass: write `fn run(&mut Function, &mut Context) -> Changed` in a new file, add its row
//! to [`PASSES`], call it in `pipeline`, and show it in a named snapshot test.

mod canonicalise_cast;
mod canonicalise_heads;
mod canonicalise_mask;
mod canonicalise_reduce;
mod canonicalise_row;
mod canonicalise_scale;
mod canonicalise_softmax;
mod canonicalise_transpose;
mod counters;
mod cse;
mod dce;
mod differentiate;
mod edits;
mod fold_constants;
mod fuse_attention;
mod fuse_chain;
mod fuse_epilogue;
mod fuse_map;
mod fuse_mask;
mod fuse_rows;
mod gather_diagonals;
mod hoist_products;
mod licm;
mod manager;
mod merge_matmuls;
mod options;
mod outline;
mod pipeline;
mod registry;
mod remarks;
mod rewrite;
mod scores;
mod separate_taps;
mod simplify;
mod simplify_cfg;
mod single_trip;

pub use crate::observe::{Collected, PrintChanged, Select, Sink, Watch};
pub use edits::{Edit, Written};
pub use manager::{PassError, Step, run_passes};
pub use options::{Float, Level, Options};
pub use pipeline::{OptError, optimise, optimise_observed, optimise_text};
pub use registry::{PASSES, Pass, find_pass, parse_pass_list};
pub use remarks::{Condition, Outcome, Refusal, Remark, place_of, render_remarks};

use std::collections::BTreeMap;

/// Did a pass change the function?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Changed {
    /// The function is unchanged.
    No,
    /// The function differs from before.
    Yes,
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Changed {
        if changed { Changed::Yes } else { Changed::No }
    }
}

impl Changed {
    /// `Yes` if either is.
    pub fn or(self, other: Changed) -> Changed {
        Changed::from(self == Changed::Yes || other == Changed::Yes)
    }
}

/// Context of a pass on one function: options, remarks, counters.
#[derive(Debug, Default)]
pub struct Context {
    /// Permitted rewrites of floating-point arithmetic.
    pub float: Float,
    /// For each parameter of the module, the extents of the arrays of layers on its path.
    pub arrays: BTreeMap<String, Vec<u64>>,
    /// Name of the running pass, for remarks and counters.
    pub pass: &'static str,
    /// Remarks so far, oldest first.
    pub remarks: Vec<Remark>,
    /// Errors in the program that passes found.
    pub refused: Vec<Refusal>,
    /// Counters so far, by pass and event.
    pub stats: BTreeMap<(&'static str, &'static str), u64>,
}

impl Context {
    /// A context with this float mode and no remarks.
    pub fn new(float: Float) -> Context {
        Context { float, ..Context::default() }
    }

    /// Adds `by` to the running pass's counter `what`, for `--stats`.
    pub fn count(&mut self, what: &'static str, by: usize) {
        if by > 0 {
            *self.stats.entry((self.pass, what)).or_insert(0) += by as u64;
        }
    }
}
