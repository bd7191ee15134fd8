//! Do products of integers by packed weights compute what they mean when a batch stands before them and either side is
//! transposed? At every level that runs here, exactly: all numbers are whole, and each group of steps has the largest.

use crate::{compiled, front};

use std::collections::BTreeMap;

use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::tensor::Tensor;
use attnc::tile::WeightFormat;

const WIDTH: usize = 40;

/// Whole numbers up to `most`, which every 32nd step has.
fn whole(step: usize, other: usize, most: i64) -> f32 {
    let n = i64::try_from((step * 7 + other * 13) % 11).unwrap() - 5;
    (if step.is_multiple_of(32) { most } else { n.clamp(-most, most) }) as f32
}

#[test]
fn batched_and_transposed_products_by_whole_numbers() {
    // Is the left operand transposed, is the result?
    for (expression, left, right) in
        [("x @ w", false, false), ("(x @ w).T", false, true), ("x.T @ w", true, false), ("(x.T @ w).T", true, true)]
    {
        let shape = |turned: bool| if turned { "[B, D, S]" } else { "[B, S, D]" };
        let source = format!(
            "model M<D = {WIDTH}> {{\n    w: f32[D, D]\n    pub fn forward(x: f32{}) -> f32{} {{ {expression} }}\n}}\n",
            shape(left),
            shape(right)
        );
        let module = front::module("batched.attn", &source, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let module = compiled::optimised(module, &passes::Options::default());
        for (format, most) in [(WeightFormat::Int8, 127), (WeightFormat::Int4, 7)] {
            let weight = |i: usize, j: usize| whole(i, j, most);
            let values: Vec<f32> = (0..WIDTH * WIDTH).map(|n| weight(n / WIDTH, n % WIDTH)).collect();
            let params = BTreeMap::from([("w".to_string(), Tensor::from_f32(vec![WIDTH, WIDTH], &values).unwrap())]);
            for level in compiled::levels_for(format) {
                let folder = tempfile::tempdir().unwrap();
                let tiles = compiled::scheduled_with(&module, level, format);
                let model = compiled::load_tiles(level, &module, &tiles, &params, folder.path());
                let mut session = model.session().unwrap();
                for (b, s) in [(1, 1), (2, 3), (3, 0), (0, 4), (2, 70)] {
                    let element = |batch: usize, row: usize, step: usize| whole(step, batch * s + row, 127);
                    // Elements of `[B, S, D]` in the order of a shape.
                    let lay = |turned: bool, f: &dyn Fn(usize, usize, usize) -> f32| -> Vec<f32> {
                        let place = |n: usize| match turned {
                            true => (n / (s * WIDTH), n % s, n / s % WIDTH),
                            false => (n / (s * WIDTH), n / WIDTH % s, n % WIDTH),
                        };
                        (0..b * s * WIDTH).map(place).map(|(x, y, z)| f(x, y, z)).collect()
                    };
                    let extents = |turned: bool| if turned { vec![b, WIDTH, s] } else { vec![b, s, WIDTH] };
                    let x = Tensor::from_f32(extents(left), &lay(left, &element)).unwrap();
                    let sum = |batch: usize, row: usize, column: usize| -> f32 {
                        (0..WIDTH).map(|k| element(batch, row, k) * weight(k, column)).sum()
                    };
                    let got = session.call(0, &[x]).unwrap_or_else(|e| panic!("{e}"));
                    let what = format!("{expression}, {format:?}, {}, [{b}, {s}]", level.name());
                    assert_eq!(
                        (got[0].shape(), got[0].to_f32()),
                        (extents(right).as_slice(), lay(right, &sum)),
                        "{what}"
                    );
                }
            }
        }
    }
}
