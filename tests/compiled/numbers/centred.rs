//! Norms of rows that rounding spoils, and what else is centred by a mean, at every level of processors that runs here, with passes and
//! without, and in the interpreter.

use std::collections::BTreeMap;

use attnc::passes::{self, Level};
use attnc::shape::Elem;
use attnc::tensor::Tensor;

use super::{interpreted, module};
use crate::centred::{Meaning, check, rows};
use crate::compiled;

/// What the axes of an argument are.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    Rows,
    Columns,
    /// Four channels, this many in a group; groups are the rows.
    Groups(usize),
}

use Layout::{Columns, Groups, Rows};
use Meaning::{Centred, Mean, Norm, Root, Variance};

/// Entry points, what they compute, of rows of which width and element type.
const ENTRIES: [(&str, Meaning, usize, Elem, Layout); 13] = [
    ("three", Norm, 3, Elem::F32, Rows),
    ("wide", Norm, 768, Elem::F32, Rows),
    ("long", Norm, 4100, Elem::F32, Rows),
    ("half", Norm, 768, Elem::F16, Rows),
    ("brain", Norm, 768, Elem::BF16, Rows),
    ("group", Norm, 14, Elem::F32, Groups(2)),
    ("instance", Norm, 9, Elem::F32, Groups(1)),
    ("root", Root, 768, Elem::F32, Rows),
    ("centred", Centred, 1030, Elem::F32, Rows),
    ("columns", Centred, 70, Elem::F32, Columns),
    ("variance", Variance, 70, Elem::F32, Rows),
    ("average", Mean, 1030, Elem::F32, Rows),
    ("mean_of_columns", Mean, 33, Elem::F32, Columns),
];

fn source() -> String {
    let mut fields = String::new();
    let mut functions = String::new();
    let layers = [
        ("three", "LayerNorm<3>", "f32[S, 3]"),
        ("wide", "LayerNorm<768>", "f32[S, 768]"),
        ("long", "LayerNorm<4100>", "f32[S, 4100]"),
        ("half", "LayerNorm<768, E = f16>", "f16[S, 768]"),
        ("brain", "LayerNorm<768, E = bf16>", "bf16[S, 768]"),
        ("group", "GroupNorm<4, 2>", "f32[B, 4, S]"),
        ("instance", "GroupNorm<4, 4>", "f32[B, 4, S]"),
        ("root", "RMSNorm<768>", "f32[S, 768]"),
    ];
    for (name, layer, ty) in layers {
        fields += &format!("    {name}_layer: {layer}\n");
        functions += &format!("    pub fn {name}(x: {ty}) -> {ty} {{ {name}_layer(x) }}\n");
    }
    let centred = |axis: i64| format!("x - mean(x, axis = {axis}, keep = true)");
    format!(
        "use std.nn\nmodel M {{\n{fields}{functions}    pub fn centred(x: f32[S, T]) -> f32[S, T] {{ {last} }}\n    \
         pub fn columns(x: f32[S, T]) -> f32[S, T] {{ {first} }}\n    \
         pub fn variance(x: f32[S, T]) -> f32[S] {{ mean(pow({last}, 2), axis = -1) }}\n    \
         pub fn average(x: f32[S, T]) -> f32[S] {{ mean(x, axis = -1) }}\n    \
         pub fn mean_of_columns(x: f32[S, T]) -> f32[T] {{ mean(x, axis = 0) }}\n}}\n",
        last = centred(-1),
        first = centred(0),
    )
}

/// Rows as an argument.
fn argument(rows: &[Vec<f64>], elem: Elem, layout: Layout) -> Tensor {
    let (count, width) = (rows.len(), rows[0].len());
    let all = match layout {
        Columns => (0..width).flat_map(|j| rows.iter().map(move |row| row[j])).collect(),
        Rows | Groups(_) => rows.concat(),
    };
    let shape = match layout {
        Rows => vec![count, width],
        Columns => vec![width, count],
        Groups(channels) => vec![count * channels / 4, 4, width / channels],
    };
    Tensor::from_floats(elem, shape, &all).unwrap()
}

#[test]
fn centred_rows_are_what_they_mean_wherever_their_mean_is() {
    let module = module(&source());
    let mut params = BTreeMap::new();
    for p in &module.params {
        let shape: Vec<usize> = p.ty.shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
        let value = if p.name.ends_with("weight") { 1.0 } else { 0.0 };
        let values = vec![value; shape.iter().product()];
        params.insert(p.name.clone(), Tensor::from_floats(p.ty.elem, shape, &values).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let compare = |what: &str, is_apart: bool, call: &mut dyn FnMut(&str, &Tensor) -> Tensor| {
        for (name, meaning, width, elem, layout) in ENTRIES {
            let mut all = rows(width, elem);
            all.resize(all.len().next_multiple_of(4), vec![1.0; width]);
            let got = call(name, &argument(&all, elem, layout)).to_f64();
            let each = got.len() / all.len();
            // Norms of 16 bits are computed in 32 bits and rounded at the end.
            let is_apart = is_apart || meaning == Centred && layout == Columns;
            for (i, row) in all.iter().enumerate() {
                let got: Vec<f64> = match layout {
                    Columns => (0..each).map(|j| got[j * all.len() + i]).collect(),
                    Rows | Groups(_) => got[i * each..(i + 1) * each].to_vec(),
                };
                check(&format!("{name}, {what}"), meaning, row, &got, elem, is_apart);
            }
        }
    };
    compare("interpreted", true, &mut |name, x| interpreted(&module, name, std::slice::from_ref(x), &params));
    for level in [Level::O0, Level::O2] {
        let options = passes::Options { level, ..passes::Options::default() };
        let module = compiled::optimised(module.clone(), &options);
        for cpu in compiled::levels() {
            let model = compiled::load_at(cpu, &module, &params, folder.path());
            let mut session = model.session().unwrap();
            compare(&format!("{level:?}, {}", cpu.name()), level == Level::O0, &mut |name, x| {
                session.call(model.entry(name).unwrap(), std::slice::from_ref(x)).unwrap().remove(0)
            });
        }
    }
}
