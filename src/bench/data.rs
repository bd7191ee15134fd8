//! Pseudorandom data to call a model with, if the user gives none.
//!
//! In: types and shapes. Out: tensors, and a safetensors file with a value for every parameter.

use std::io::{self, Write};

use crate::random::Random;
use crate::runtime::descriptor::Param;
use crate::runtime::weights::{self, members};
use crate::shape::Elem;
use crate::tensor::Tensor;

/// Uniform in [-1, 1).
fn symmetric(rng: &mut Random) -> f64 {
    2.0 * rng.unit() - 1.0
}

/// A random argument: floats in [-1, 1); integers below `bound`, or 0 and 1 if there is no bound;
/// truth values that are true with probability 3/4. `None` if it is too large.
pub fn tensor(rng: &mut Random, elem: Elem, shape: &[usize], bound: Option<i64>) -> Option<Tensor> {
    let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).filter(|n| *n <= 1 << 40)?;
    let shape = shape.to_vec();
    match elem {
        Elem::F32 => Tensor::from_f32(shape, &(0..count).map(|_| symmetric(rng) as f32).collect::<Vec<_>>()),
        Elem::BF16 | Elem::F16 => {
            Tensor::from_floats(elem, shape, &(0..count).map(|_| symmetric(rng)).collect::<Vec<_>>())
        }
        Elem::Bool => {
            let values: Vec<i64> = (0..count).map(|_| i64::from(!rng.word().is_multiple_of(4))).collect();
            Tensor::from_ints(elem, shape, &values)
        }
        Elem::I8 | Elem::I32 | Elem::I64 => {
            let bound = bound.unwrap_or(2).max(1).unsigned_abs();
            let value = |rng: &mut Random| i64::try_from(rng.word() % bound).unwrap_or(0);
            Tensor::from_ints(elem, shape, &(0..count).map(|_| value(rng)).collect::<Vec<_>>())
        }
    }
}

/// Number of values drawn for a parameter; larger ones repeat them.
const DRAWN: usize = 65_521;

/// Writes a safetensors file with values for every parameter: matrices in +-1 divided by the square
/// root of the number of rows, vectors between 0.5 and 1.5, small integers.
///
/// # Errors
/// The error of a write.
pub fn write_weights(rng: &mut Random, params: &[Param], out: &mut dyn Write) -> io::Result<()> {
    let tensors: Vec<(&Param, Vec<usize>, Vec<String>)> = params
        .iter()
        .map(|p| {
            let shape = p.dims.iter().filter_map(|d| usize::try_from(d.dim.as_const()?).ok()).collect();
            (p, shape, members(&p.pattern, &p.extents))
        })
        .collect();
    let all = tensors.iter().flat_map(|(p, shape, names)| names.iter().map(|name| (name.as_str(), p.elem, &shape[..])));
    out.write_all(&weights::header_for(&[], all))?;
    for (p, shape, names) in &tensors {
        let count: usize = shape.iter().product();
        let block = block(rng, p.elem, shape, count.min(DRAWN));
        let size = usize::try_from(p.elem.size()).unwrap_or(4);
        for _ in names {
            let mut left = count * size;
            while left > 0 && !block.is_empty() {
                let part = block.get(..left.min(block.len())).unwrap_or_default();
                out.write_all(part)?;
                left -= part.len();
            }
        }
    }
    Ok(())
}

/// The bytes of `count` elements of a parameter.
fn block(rng: &mut Random, elem: Elem, shape: &[usize], count: usize) -> Vec<u8> {
    let drawn = if elem.is_float() {
        let value = |rng: &mut Random| match shape {
            [] | [_] => 1.0 + symmetric(rng) / 2.0,
            [rows, ..] => symmetric(rng) / (*rows as f64).sqrt(),
        };
        Tensor::from_floats(elem, vec![count], &(0..count).map(|_| value(rng)).collect::<Vec<_>>())
    } else {
        tensor(rng, elem, &[count], None)
    };
    drawn.map(|t| t.bytes().to_vec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::descriptor::DimText;
    use crate::shape::Dim;

    #[test]
    fn weights_read_back() {
        let dims = |ns: &[i64]| ns.iter().map(|n| DimText::canonical(Dim::from(*n))).collect::<Vec<_>>();
        let param = |pattern: &str, extents: &[u64], elem, shape: &[i64]| Param {
            pattern: pattern.to_string(),
            extents: extents.to_vec(),
            elem,
            dims: dims(shape),
        };
        let params = [
            param("a", &[], Elem::F32, &[300, 300]),
            param("h.*.b", &[3], Elem::BF16, &[7]),
            param("c", &[], Elem::I8, &[2, 0]),
        ];
        let mut file = Vec::new();
        write_weights(&mut Random::new(1), &params, &mut file).unwrap();
        let read = safetensors::SafeTensors::deserialize(&file).unwrap();
        assert_eq!(read.len(), 5);
        let a = read.tensor("a").unwrap();
        let floats: Vec<f32> = a.data().chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(floats.len(), 90_000);
        assert!(floats.iter().all(|x| x.abs() <= 1.0 / 300f32.sqrt()));
        assert_eq!(read.tensor("h.2.b").unwrap().shape(), [7]);
    }

    #[test]
    fn integers_stay_below_their_bound() {
        let t = tensor(&mut Random::new(3), Elem::I32, &[1000], Some(5)).unwrap();
        assert!(t.to_i64().iter().all(|n| (0..5).contains(n)));
        assert!((0..5).all(|n| t.to_i64().contains(&n)));
        let t = tensor(&mut Random::new(3), Elem::Bool, &[1000], None).unwrap();
        assert!((650..850).contains(&t.to_i64().iter().sum::<i64>()));
    }
}
