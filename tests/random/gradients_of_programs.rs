//! Are the gradients of random programs what `grad` means?
//!
//! The loss is a sum over the results of a program of graph IR, with control flow, layers and integers at odd places. Its
//! gradients with respect to all arguments and parameters that it depends on are compared with those of a tape of single
//! numbers, in `f64`. `ATTNC_SEEDS=100000 cargo test --profile long --test random gradients_of` runs more than CI does.

use std::collections::BTreeMap;

use attnc::ir::interp::{Data, Limits, Real};
use attnc::ir::{Function, Module, Op, ResultDecl, Terminator, Type, Value, text, verify};
use attnc::passes::{Collected, Options, find_pass, optimise, run_passes};
use attnc::scalar::{BinaryOp, ReduceKind};
use attnc::shape::{Elem, TensorType};

use crate::gen_ir::{Program, program};
use crate::gradients::same;
use crate::seeds;
use crate::tape::{self, Tape};

/// Programs in CI.
const PROGRAMS: u64 = 400;

/// With respect to what.
#[derive(Clone)]
enum Variable {
    Value(Value),
    Param(String, TensorType),
}

/// The program with these gradients as its results.
fn differentiated(p: &Program, variables: &[Variable]) -> Option<Module> {
    let mut module = p.untapped();
    let f = module.functions.first_mut()?;
    let block = *f.layout.iter().find(|b| matches!(f.block(**b).terminator, Terminator::Return(_)))?;
    let Terminator::Return(results) = f.block(block).terminator.clone() else { return None };
    let emit = |f: &mut Function, op: Op, operands: Vec<Value>, ty: Option<TensorType>| {
        f.append(block, op, operands, ty.map(Type::Tensor), Default::default()).ok().flatten()
    };
    let mut loss: Option<Value> = None;
    for (n, v) in results.into_iter().enumerate() {
        let ty = f.tensor(v)?.clone();
        if !ty.elem.is_float() {
            continue;
        }
        let wide = emit(f, Op::Cast { elem: Elem::F32 }, vec![v], Some(ty.with_elem(Elem::F32)))?;
        let factor =
            emit(f, Op::Const(attnc::ir::Scalar::Float(0.5 + n as f64)), vec![], Some(TensorType::scalar(Elem::F32)))?;
        let scaled = emit(f, Op::Binary(BinaryOp::Mul), vec![wide, factor], None)?;
        let sum = match ty.rank() {
            0 => scaled,
            rank => emit(
                f,
                Op::Reduce { kind: ReduceKind::Sum, axes: (0..rank).collect(), keep: false },
                vec![scaled],
                None,
            )?,
        };
        // Every second one counts twice in the loss, and once in its gradients.
        let sum = match n % 2 {
            0 => sum,
            _ => {
                let constant = emit(f, Op::Stop, vec![sum], None)?;
                emit(f, Op::Binary(BinaryOp::Add), vec![sum, constant], None)?
            }
        };
        loss = match loss {
            None => Some(sum),
            Some(loss) => emit(f, Op::Binary(BinaryOp::Add), vec![loss, sum], None),
        };
    }
    let loss = loss?;
    let mut grads = Vec::new();
    for x in variables {
        let (op, operands, ty) = match x {
            Variable::Value(v) => (Op::Grad { of: String::new() }, vec![loss, *v], f.tensor(*v)?.clone()),
            Variable::Param(of, ty) => (Op::Grad { of: of.clone() }, vec![loss], ty.clone()),
        };
        grads.push(emit(f, op, operands, Some(ty))?);
    }
    grads.push(loss);
    f.results =
        grads.iter().map(|v| ResultDecl { ty: f.tensor(*v).expect("a tensor").clone(), batch: false }).collect();
    f.terminate(block, Terminator::Return(grads));
    Some(module)
}

/// The results of all calls; those of a call whose loss is not finite have no elements.
fn run<F: Real>(module: &Module, p: &Program) -> Result<Vec<Vec<f64>>, String> {
    let calls = p.interpreted::<F>(module, Limits { elements: 1 << 16, work: 1 << 22 }).map_err(|e| e.to_string())?;
    let floats = |data: &Data<F>| match data {
        Data::Float(v) => v.iter().map(|x| x.value()).collect(),
        Data::Int(_) | Data::Bool(_) => Vec::new(),
    };
    let of = |o: &attnc::ir::interp::Outcome<F>| {
        let results: Vec<Vec<f64>> = o.results.iter().map(|a| floats(&a.data)).collect();
        let is_finite = results.last().is_some_and(|loss| loss.iter().all(|x| x.is_finite()));
        if is_finite { results } else { vec![Vec::new(); results.len()] }
    };
    Ok(calls.iter().flat_map(of).collect())
}

#[derive(Default, Debug)]
struct Tally {
    compared: usize,
    gradients: usize,
    refused: BTreeMap<String, usize>,
    failing: usize,
}

fn check(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let p = program(seed);
    let pass = find_pass("differentiate")?;
    let differentiate =
        |module: &mut Module| run_passes(module, &[pass], &Options::default(), &mut Collected::default());
    let f = &p.module.functions[0];
    let args = f.block(f.entry()).args.iter().filter(|v| f.tensor(**v).is_some_and(|t| t.elem.is_float()));
    let params = p.module.params.iter().filter(|d| d.ty.elem.is_float());
    let all = args.map(|v| Variable::Value(*v)).chain(params.map(|d| Variable::Param(d.name.clone(), d.stacked())));
    let mut variables = Vec::new();
    for x in all {
        let Some(mut module) = differentiated(&p, std::slice::from_ref(&x)) else { return Ok(()) };
        match differentiate(&mut module) {
            Ok(_) => variables.push(x),
            Err(e) => match e.refused.first() {
                Some(refusal) => {
                    *tally
                        .refused
                        .entry(refusal.message.split('`').next().unwrap_or_default().to_string())
                        .or_default() += 1
                }
                None => return Err(format!("seed {seed}: {}", e.errors)),
            },
        }
    }
    if variables.is_empty() {
        return Ok(());
    }
    let Some(module) = differentiated(&p, &variables) else { return Ok(()) };
    tape::clear();
    let meant = run::<Tape>(&module, &p);
    let is_comparable = p.tame && !tape::clear();
    let Ok(meant) = meant else {
        tally.failing += 1;
        return Ok(());
    };
    let story = |e: String, after: &Module| {
        format!("seed {seed}: {e}\n{:?}\n{}\n{}", p.symbols, text::print(&module), text::print(after))
    };
    let mut alone = module.clone();
    differentiate(&mut alone).map_err(|e| story(format!("{e}\n{}", e.errors), &module))?;
    verify(&alone).map_err(|e| story(e.to_string(), &alone))?;
    let found = run::<f64>(&alone, &p).map_err(|e| story(e, &alone))?;
    // With NaN and infinities among its operands, a matmul makes NaN of zeros that single numbers never reach, and with very
    // large numbers differences cancel: such programs need only run.
    let compare = |found: &[Vec<f64>], bound: f64| if is_comparable { same(&meant, found, bound) } else { Ok(()) };
    compare(&found, 1e-10).map_err(|e| story(e, &alone))?;
    let mut after = module.clone();
    optimise(&mut after, &Options::default(), &mut Collected::default()).map_err(|e| story(e.errors, &module))?;
    // Literals that other passes fold are rounded to `f32`, and may be infinite there.
    let mut found = run::<f64>(&after, &p).map_err(|e| story(e, &after))?;
    for (found, meant) in found.iter_mut().zip(&meant).filter(|(found, _)| found.is_empty()) {
        found.clone_from(meant);
    }
    compare(&found, 1e-3).map_err(|e| story(format!("after all passes: {e}"), &after))?;
    tally.compared += 1;
    tally.gradients += meant.iter().flatten().filter(|g| g.is_finite() && **g != 0.0).count();
    Ok(())
}

#[test]
fn gradients_of_programs_are_the_tapes() {
    let mut tally = Tally::default();
    let failures: Vec<String> = seeds(PROGRAMS).filter_map(|seed| check(seed, &mut tally).err()).take(3).collect();
    println!("{tally:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let n = seeds(PROGRAMS).count();
    assert!(n < PROGRAMS as usize || tally.compared * 3 > n, "{tally:?}");
}
