//! Precision loss of packed weights, per parameter.
//!
//! In: the packed area of a module, and the values of its parameters. Out: for each parameter, the
//! difference between the weights that matmuls read and the given ones. A short reimplementation of
//! the kernels of `packing` and `quantise`, one column at a time.

use std::collections::BTreeMap;

use super::formats::WeightFormat;
use super::packing::Packing;
use crate::shape::{Dim, Elem};
use crate::tile::{GROUP, View};

/// A parameter that is packed in a narrower format.
#[derive(Clone, Debug)]
pub struct PackedWeight {
    /// Its name in the IR, `*` for each array index.
    pub name: String,
    /// Its packed format.
    pub format: WeightFormat,
    /// The packed parts of it.
    windows: Vec<Window>,
}

/// A view of a tensor: `[batch.., K, N]`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// Differences between packed weights and the originals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Sum of the squares of the weights.
    squares: f64,
    /// Sum of the squares of the errors.
    error_squares: f64,
    /// Largest absolute weight.
    largest: f64,
    /// Largest absolute error.
    largest_error: f64,
}

impl Loss {
    /// Root mean square of the errors, relative to that of the weights.
    pub fn mean(&self) -> f64 {
        share(self.error_squares.sqrt(), self.squares.sqrt())
    }

    /// Largest error, relative to the largest weight.
    pub fn most(&self) -> f64 {
        share(self.largest_error, self.largest)
    }

    fn add(&mut self, weight: f32, kept: f32) {
        let (weight, error) = (f64::from(weight), f64::from(kept) - f64::from(weight));
        self.squares += weight * weight;
        self.error_squares += error * error;
        self.largest = larger(self.largest, weight.abs());
        self.largest_error = larger(self.largest_error, error.abs());
    }
}

/// The larger one, or NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn share(part: f64, whole: f64) -> f64 {
    if part == 0.0 { 0.0 } else { part / whole }
}

/// The parameters that are packed in a narrower format.
pub(super) fn packed(packing: &Packing) -> Vec<PackedWeight> {
    let mut all: BTreeMap<&str, PackedWeight> = BTreeMap::new();
    for weight in &packing.weights {
        for (name, view) in &weight.parts {
            let rounds = view.elem != Elem::BF16 || weight.format != WeightFormat::Bf16;
            let narrower =
                packing.choice.format_of(name) != WeightFormat::F32 && weight.format != WeightFormat::F32 && rounds;
            let Some(window) = window(view).filter(|_| narrower) else { continue };
            let new = || PackedWeight { name: name.clone(), format: weight.format, windows: Vec::new() };
            let known = all.entry(name).or_insert_with(new);
            if !known.windows.contains(&window) {
                known.windows.push(window);
            }
        }
    }
    all.into_values().collect()
}

fn window(view: &View) -> Option<Window> {
    let number = |d: &Dim| d.as_const().and_then(|n| usize::try_from(n).ok());
    let all = |list: &[Dim]| list.iter().map(number).collect::<Option<Vec<usize>>>();
    Some(Window { offset: number(&view.offset)?, shape: all(&view.shape)?, strides: all(&view.strides)? })
}

impl PackedWeight {
    /// Accumulates the loss of a tensor with these row-major elements; indices out of range are
    /// skipped.
    pub fn lose(&self, weights: &[f32], loss: &mut Loss) {
        for window in &self.windows {
            let (Some((lead, [k, n])), Some((lead_strides, [down, across]))) =
                (window.shape.split_last_chunk::<2>(), window.strides.split_last_chunk::<2>())
            else {
                continue;
            };
            let matrices: usize = lead.iter().product();
            for matrix in 0..matrices {
                let (mut rest, mut start) = (matrix, window.offset);
                for (extent, stride) in lead.iter().zip(lead_strides).rev() {
                    start += rest % extent * stride;
                    rest /= extent;
                }
                for column in 0..*n {
                    let at = |row: usize| weights.get(start + row * down + column * across).copied();
                    let column: Vec<f32> = (0..*k).map_while(at).collect();
                    self.lose_column(&column, loss);
                }
            }
        }
    }

    /// Accumulates the loss of one column.
    fn lose_column(&self, column: &[f32], loss: &mut Loss) {
        let most = match self.format {
            WeightFormat::F32 => return,
            WeightFormat::Bf16 => {
                column.iter().for_each(|w| loss.add(*w, half::bf16::from_f32(*w).to_f32()));
                return;
            }
            WeightFormat::Int8 => 127.0,
            WeightFormat::Int4 => 7.0,
        };
        for group in column.chunks(usize::try_from(GROUP).unwrap_or(usize::MAX)) {
            let scale = group.iter().fold(0.0f32, |most, w| most.max(w.abs())) / most;
            for w in group {
                let kept = if scale == 0.0 { 0.0 } else { (w / scale + 0.5).floor() * scale };
                loss.add(*w, kept);
            }
        }
    }
}
