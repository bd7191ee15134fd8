//! What packing in fewer bytes loses of each parameter.
//!
//! In: the packed area of a module, and the values of its parameters. Out: for each parameter how far the weights that
//! products read are from those that were given. It says again in a few lines what the kernels of `packing` and `quantise`
//! compute, for one column at a time.

use std::collections::BTreeMap;

use super::formats::WeightFormat;
use super::packing::Packing;
use crate::shape::{Dim, Elem};
use crate::tile::{GROUP, View};

/// A parameter that is packed in fewer bytes.
#[derive(Clone, Debug)]
pub struct PackedWeight {
    /// Its name in the IR, `*` for each array index.
    pub name: String,
    /// What it is kept as.
    pub format: WeightFormat,
    /// What is packed of it.
    windows: Vec<Window>,
}

/// Elements of a tensor: `[batch.., K, N]`, by where they lie.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// How far packed weights are from what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// The sum of the squares of the weights.
    squares: f64,
    /// That of the squares of their errors.
    error_squares: f64,
    /// The largest weight.
    largest: f64,
    /// The largest error.
    largest_error: f64,
}

impl Loss {
    /// The root mean square of the errors, as a share of that of the weights.
    pub fn mean(&self) -> f64 {
        share(self.error_squares.sqrt(), self.squares.sqrt())
    }

    /// The largest error, as a share of the largest weight.
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

/// The larger, or NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn share(part: f64, whole: f64) -> f64 {
    if part == 0.0 { 0.0 } else { part / whole }
}

/// The parameters that are packed in fewer bytes than they have.
pub(super) fn packed(packing: &Packing) -> Vec<PackedWeight> {
    let mut all: BTreeMap<&str, PackedWeight> = BTreeMap::new();
    for weight in &packing.weights {
        for (name, view) in &weight.parts {
            let rounds = view.elem != Elem::BF16 || weight.format != WeightFormat::Bf16;
            let narrower = packing.choice.of(name) != WeightFormat::F32 && weight.format != WeightFormat::F32 && rounds;
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
    /// Adds what is lost of a tensor with these elements, row-major; those that lie beyond are omitted.
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

    /// The steps of one column.
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
