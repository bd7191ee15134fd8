//! Passes on the graph IR: a formula becomes the same formula in fewer and larger steps.
//!
//! What lives here: the passes, each a function in a file of its own that opens with what it does, a before and after,
//! the conditions under which it is legal, and what it leaves alone; the pipeline (`pipeline`: one function, read from
//! top to bottom); what surrounds a pass when it runs (`manager`: dumps, verification, bisection, times); and the
//! remarks in which passes account for what they did and did not do (`remarks`). What comes in: a verified module. What
//! goes out: a verified module that computes the same. What it must not know: source syntax, tiles, machines; and it does
//! no I/O: texts go to a [`Sink`].
//!
//! To add a pass: write `fn run(&mut Function, &mut Context) -> Changed` in a new file, add its row to [`PASSES`], call
//! it in `pipeline`, and show it in a named snapshot test.

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
mod fold_constants;
mod fuse_attention;
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

pub use manager::{Collected, PassError, Sink, run_passes};
pub use options::{Float, Level, Options, PrintChanged, Select};
pub use pipeline::{OptError, optimise, optimise_text};
pub use registry::{PASSES, Pass, find_pass, parse_pass_list};
pub use remarks::{Condition, Outcome, Remark, place_of, render_remarks};

use std::collections::BTreeMap;

/// Did a pass change the function?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Changed {
    /// It is as it was.
    No,
    /// Something is different.
    Yes,
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Changed {
        if changed { Changed::Yes } else { Changed::No }
    }
}

impl Changed {
    /// Changed by either.
    pub fn or(self, other: Changed) -> Changed {
        Changed::from(self == Changed::Yes || other == Changed::Yes)
    }
}

/// What a pass may ask and tell while it works on one function.
#[derive(Debug, Default)]
pub struct Context {
    /// What may be done to floating-point arithmetic.
    pub float: Float,
    /// How many tensors the parameters of the module have, for each array of layers on their paths.
    pub arrays: BTreeMap<String, Vec<u64>>,
    /// Name of the pass at work, for its remarks and counters.
    pub pass: &'static str,
    /// Remarks so far, in the order in which they were made.
    pub remarks: Vec<Remark>,
    /// Counters so far, by pass and what is counted.
    pub stats: BTreeMap<(&'static str, &'static str), u64>,
}

impl Context {
    /// A context under a float mode, with nothing said yet.
    pub fn new(float: Float) -> Context {
        Context { float, ..Context::default() }
    }

    /// Counts something, for `--stats`.
    pub fn count(&mut self, what: &'static str, by: usize) {
        if by > 0 {
            *self.stats.entry((self.pass, what)).or_insert(0) += by as u64;
        }
    }
}
