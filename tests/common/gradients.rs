//! Compares gradients that the compiler makes with the tape's, in `f64`.
//!
//! In: a module with `grad`s, and a call. The interpreter runs the module as it is with numbers that record themselves
//! ([`Tape`]), and after `differentiate`, alone and with all other passes, with `f64`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use attnc::ir::interp::{Array, Call, Data, Limits, Params, run};
use attnc::ir::{Module, text, verify};
use attnc::passes::{Collected, Options, find_pass, optimise, run_passes};
use attnc::tensor::Tensor;

use crate::tape::{self, Tape};

/// Relative to the greatest number of the same tensor, or a tenth of the greatest of all.
const DIFFERENCE: f64 = 1e-10;

fn floats<F: attnc::ir::interp::Real>(a: &Array<F>) -> Vec<f64> {
    match &a.data {
        Data::Float(v) => v.iter().map(|x| x.value()).collect(),
        Data::Int(v) => v.iter().map(|n| *n as f64).collect(),
        Data::Bool(v) => v.iter().map(|b| f64::from(u8::from(*b))).collect(),
    }
}

fn results<F: attnc::ir::interp::Real>(
    module: &Module,
    args: &[Tensor],
    params: &dyn Params,
) -> Result<Vec<Vec<f64>>, String> {
    let verified = verify(module).map_err(|e| format!("{e}\n{}", text::print(module)))?;
    let limits = Limits { work: 20_000_000, ..Limits::default() };
    let call = Call { function: "f", args, params, limits };
    let outcome = run::<F>(verified, &call).map_err(|e| e.to_string())?;
    Ok(outcome.results.iter().map(floats).collect())
}

/// What the gradients are.
pub(crate) fn meant(module: &Module, args: &[Tensor], params: &dyn Params) -> Result<Vec<Vec<f64>>, String> {
    tape::clear();
    let meant = results::<Tape>(module, args, params);
    tape::clear();
    meant
}

/// Is each number the same, where what is meant is finite? Else a line about the first that differs.
pub(crate) fn same(meant: &[Vec<f64>], found: &[Vec<f64>], bound: f64) -> Result<(), String> {
    let greatest = |of: &[f64]| of.iter().filter(|x| x.is_finite()).fold(1e-2f64, |m, x| m.max(x.abs()));
    // All are computed from the same numbers: differences of large ones leave their errors in small ones.
    let of_all = meant.iter().fold(0.0f64, |m, of| m.max(greatest(of)));
    for (k, (meant, found)) in meant.iter().zip(found).enumerate() {
        let scale = greatest(meant).max(0.1 * of_all);
        if meant.len() != found.len() {
            return Err(format!("result {k} has {} elements, expected {}", found.len(), meant.len()));
        }
        let is_near = |a: f64, b: f64| (a - b).abs() <= bound * scale;
        let wrong = |(_, (a, b)): &(usize, (&f64, &f64))| a.is_finite() && !is_near(**a, **b);
        if let Some((i, (a, b))) = meant.iter().zip(found).enumerate().find(wrong) {
            return Err(format!("result {k}, element {i}: {b}, expected {a}"));
        }
    }
    Ok(())
}

/// Compares the gradients of a module; the module after `differentiate` is in the message of an error.
pub(crate) fn compare(module: &Module, args: &[Tensor], params: &dyn Params) -> Result<Vec<Vec<f64>>, String> {
    let meant = meant(module, args, params)?;
    let mut sink = Collected::default();
    let pass = find_pass("differentiate")?;
    let mut alone = module.clone();
    run_passes(&mut alone, &[pass], &Options::default(), &mut sink).map_err(|e| e.to_string())?;
    let say = |e: String, m: &Module| format!("{e}\n{}", text::print(m));
    let found = results::<f64>(&alone, args, params).map_err(|e| say(e, &alone))?;
    same(&meant, &found, DIFFERENCE).map_err(|e| say(e, &alone))?;
    let mut all = module.clone();
    optimise(&mut all, &Options::default(), &mut sink).map_err(|e| format!("{e}\n{}", e.errors))?;
    let found = results::<f64>(&all, args, params).map_err(|e| say(e, &all))?;
    same(&meant, &found, 10.0 * DIFFERENCE).map_err(|e| format!("after all passes: {}", say(e, &all)))?;
    Ok(meant)
}
