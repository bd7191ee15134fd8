//! The weights that `attnc train` begins with if it gets no file: random, by name and shape.
//!
//! A weight with two or more axes is drawn from a normal distribution with the variance 2 / (m + n)
//! of its last two extents (Glorot and Bengio, 2010), which is the same for a matrix and its
//! transpose, so layouts do not matter. Any other is a bias, 0, or a scale, 1: its name says which.

use super::super::arguments::wrong_weights;
use super::super::session::{CommandError, Session};
use super::checkpoint;
use crate::random::philox;
use crate::runtime::descriptor::Param;
use crate::runtime::weights::members;
use crate::shape::Elem;
use crate::tensor::Tensor;
use std::path::{Path, PathBuf};

/// Writes a file with a value for each parameter.
pub(super) fn weights(s: &mut Session, params: &[Param], seed: i64, folder: &Path) -> Result<PathBuf, CommandError> {
    let mut tensors = Vec::new();
    for param in params {
        if !param.elem.is_float() {
            let message =
                format!("`{}` has elements of type {}, for which there is no first value", param.pattern, param.elem);
            return Err(s.fail(wrong_weights(message).help("give its values: `--weights FILE`")));
        }
        let shape: Vec<usize> = param.dims.iter().filter_map(|d| usize::try_from(d.dim.as_const()?).ok()).collect();
        for name in members(&param.pattern, &param.extents) {
            let made = first(&name, param.elem, &shape, seed);
            let made = made.ok_or_else(|| s.fail(wrong_weights(format!("`{name}` is too large"))))?;
            tensors.push((name, made));
        }
    }
    let path = folder.join("weights.safetensors");
    checkpoint::write_file(s, &path, &[], &tensors)?;
    Ok(path)
}

/// The first value of a weight.
fn first(name: &str, elem: Elem, shape: &[usize], seed: i64) -> Option<Tensor> {
    let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    let [.., m, n] = shape else {
        let last = name.rsplit(['.', '_']).next().unwrap_or(name);
        let value = if ["bias", "b"].contains(&last) { 0.0 } else { 1.0 };
        return Tensor::from_floats(elem, shape.to_vec(), &vec![value; count]);
    };
    let deviation = (2.0 / (m + n) as f64).sqrt();
    // Names keep the numbers of different weights apart (FNV-1a).
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, fold);
    let values: Vec<f64> = (0..count as u64).map(|at| deviation * normal(seed, hash, at)).collect();
    Tensor::from_floats(elem, shape.to_vec(), &values)
}

/// A number of a nearly normal distribution: the sum of twelve uniform ones, whose variance is 1
/// and which needs no function that differs between machines.
fn normal(seed: i64, stream: u32, at: u64) -> f64 {
    let seed = seed.cast_unsigned();
    let block = |i: u32| philox([at as u32, (at >> 32) as u32, stream, i], [seed as u32, (seed >> 32) as u32]);
    let unit = |word: u32| (f64::from(word) + 0.5) / 2f64.powi(32);
    (0..3).flat_map(block).map(unit).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_begin_by_name_and_shape() {
        let of = |name: &str, shape: &[usize]| first(name, Elem::F32, shape, 3).unwrap().to_f64();
        for (name, value) in
            [("norm.weight", 1.0), ("scale", 1.0), ("b", 0.0), ("norm.bias", 0.0), ("in_proj_bias", 0.0), ("crab", 1.0)]
        {
            assert_eq!(of(name, &[3]), [value; 3], "{name}");
            assert_eq!(of(name, &[]), [value], "{name}");
        }
        let w = of("w", &[30, 2, 170]);
        let mean = w.iter().sum::<f64>() / w.len() as f64;
        let variance = w.iter().map(|x| x * x).sum::<f64>() / w.len() as f64;
        let within = w.iter().filter(|x| x.abs() < (2.0f64 / 172.0).sqrt()).count() as f64 / w.len() as f64;
        assert!(mean.abs() < 0.005, "{mean}");
        assert!((variance * 172.0 / 2.0 - 1.0).abs() < 0.05, "{variance}");
        assert!((within - 0.683).abs() < 0.02, "{within}");
        assert_ne!(w, of("v", &[30, 2, 170]));
        assert!(of("w", &[0, 4]).is_empty());
    }
}
