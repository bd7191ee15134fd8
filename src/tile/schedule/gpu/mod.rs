//! size-tiles, and the other steps that only GPUs have: a block of threads computes a grid point.
//!
//! `size-tiles` gives each kernel the tiles of the machine, and decides what `place` reads
//! ([`Tiled`]): how many warps a block has, and which accesses get loop nests of their own.
//!
//! ```text
//! fn f(x: f32[S]) -> f32[S] { exp(x) }
//! ...
//! kernel @map.0(%0: in f32[S], %1: out f32[S]) symbols(S) grid(%2: ceil(S, 256)) {
//! ...
//!   %9 = exp %8 : tile f32[1, %7<=256]
//! ->
//! kernel @map.0(%0: in f32[S], %1: out f32[S]) symbols(S) grid(%2: ceil(S, 1024)) tiled() {
//! ...
//!   %10 = exp %9 : tile f32[1, %8<=1024]
//! ```
//!
//! * A matmul with few rows gets a tile width with which all multiprocessors read its right operand
//!   ([`few_rows`]).
//! * A grid point that loops over elements serially is split: one element per point
//!   ([`one_each`]).
//! * If elementwise work has both row-contiguous and column-contiguous operands and results, tiles
//!   are transposed in shared memory ([`transposes`]).
//! * A matmul with many columns gets larger tiles, if they fit shared memory, which is only known
//!   when they have their places: so that is tried first ([`would_fit`]).
//! * Elementwise work and reductions get the sizes of [`cost`], which has the heuristics; [`tiles`]
//!   resizes.
//!
//! Limits: tile sizes of other matmuls do not depend on occupancy.

pub(super) mod candidates;
pub(super) mod cost;
pub(super) mod divided;
pub(super) mod few_rows;
pub(super) mod in_steps;
pub(super) mod limits;
pub(super) mod long_rows;
mod one_each;
mod parts;
pub(super) mod persistent;
pub(super) mod ranks;
pub(super) mod reads;
pub(super) mod scans;
mod tiles;
mod transposes;

use super::step::{Changed, Log, unscheduled};
use super::{place, windows};
use crate::tile::{Gpu, Kernel, Machine, Module, State, Tiled};
use limits::fits;

/// Gives all kernels their tile sizes.
pub(super) fn run_size_tiles(module: &mut Module, machine: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    let Some(gpu) = machine.gpu() else { return Ok(Changed::new()) };
    let chunks = few_rows::kernels_in_chunks(module);
    let mut changed = Changed::new();
    for kernel in unscheduled(module).filter(|k| k.tiled.is_none()) {
        if chunks.contains(&kernel.name) {
            few_rows::retile(kernel);
        }
        let (tiled, resized, note) = size(kernel, machine, gpu);
        note.iter().for_each(|note| log.note(&kernel.name, note));
        if resized {
            changed.insert(kernel.name.clone());
        }
        (kernel.tiled, kernel.compute) = (Some(tiled), None);
    }
    Ok(changed)
}

/// Gives a kernel its tile sizes; returns the decisions, whether sizes changed, and a remark.
fn size(kernel: &mut Kernel, machine: &Machine, gpu: Gpu) -> (Tiled, bool, Option<String>) {
    if one_each::one_each(kernel) {
        return (Tiled::default(), true, None);
    }
    let (apart, note) = transposes::turn(kernel).unzip();
    if let Some(apart) = apart.flatten() {
        return (Tiled { apart, ..Tiled::default() }, true, note);
    }
    let mut large = kernel.clone();
    if cost::enlarge(&mut large) {
        let mut placed = large.clone();
        if is_placed(&mut placed, machine) && fits(&placed, gpu).is_ok() {
            *kernel = large;
            return (Tiled::default(), true, note);
        }
    }
    let (tiled, resized) = cost::choose(kernel);
    (tiled, resized, note)
}

/// Reads operands in place and gives tiles their memory; returns whether that is possible.
fn is_placed(kernel: &mut Kernel, machine: &Machine) -> bool {
    windows::make_windows(kernel, machine);
    place::place(kernel, machine).is_ok()
}

/// Will a kernel need no more shared memory than a block has? Yes too if it has no schedule at all,
/// which `place` reports.
pub(super) fn would_fit(kernel: &Kernel, machine: &Machine, gpu: Gpu) -> bool {
    let mut tried = kernel.clone();
    if tried.state != State::Unscheduled {
        return true;
    }
    tried.tiled = Some(size(&mut tried, machine, gpu).0);
    !is_placed(&mut tried, machine) || fits(&tried, gpu).is_ok()
}
