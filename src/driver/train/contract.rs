//! Which entry points `attnc train` calls, and with which arguments.
//!
//! In: a module, before the passes. Out: a [`Contract`], or a message about what does not match.
//!
//! ```text
//! learn(tokens: i32[B, S], next: i32[B, S], step: i64, seed: i64, rate: f32) -> (f32[], ..)
//! ```
//!
//! The tokens are the first argument with axes, the tokens that follow them the second; they have
//! one shape, of two axes, or of one if a step has one window. Scalars are optional, in any order,
//! and recognised by name.

use super::super::generate::vocabulary;
use crate::interface::{ArgDecl, ResultDecl};
use crate::ir::{Function, Module, Op};
use crate::shape::{Dim, Elem, Relation};
use crate::tensor::Tensor;

/// The scalars that have a value.
const SCALARS: [&str; 3] = ["step", "seed", "rate"];

/// How an entry point is called.
pub(super) struct Contract {
    pub(super) name: String,
    /// For messages.
    pub(super) signature: String,
    args: Vec<ArgDecl>,
    /// The extents of the tokens: windows, if there is an axis for them, and tokens of each.
    extents: Vec<Extent>,
    /// Exclusive upper bound of tokens, if they index a table directly.
    pub(super) vocabulary: Option<u64>,
}

/// An axis of the tokens.
struct Extent {
    name: String,
    fixed: Option<u64>,
    most: Option<u64>,
}

impl Contract {
    /// The entry point of this name, or the only one that trains and takes tokens.
    ///
    /// # Errors
    /// A message that names what there is.
    pub(super) fn find(module: &Module, name: Option<&str>) -> Result<Contract, String> {
        let entries: Vec<&Function> = module.functions.iter().filter(|f| !f.tapped).collect();
        if let Some(name) = name {
            let listed = || entries.iter().map(|f| format!("`{}`", f.name)).collect::<Vec<_>>().join(", ");
            let Some(f) = entries.iter().find(|f| f.name == name) else {
                return Err(format!("there is no entry point `{name}`; the entry points are {}", listed()));
            };
            if !trains(f, module) {
                return Err(format!("`{name}` contains no `train`"));
            }
            return Contract::check(f);
        }
        let training: Vec<&Function> = entries.into_iter().filter(|f| trains(f, module)).collect();
        let mut checked: Vec<Result<Contract, String>> = training.iter().map(|f| Contract::check(f)).collect();
        let fitting: Vec<usize> = (0..checked.len()).filter(|i| checked.get(*i).is_some_and(Result::is_ok)).collect();
        match (fitting.as_slice(), training.as_slice()) {
            ([one], _) => checked.swap_remove(*one),
            ([], []) => Err(format!("no entry point of `{}` contains a `train`", module.model)),
            ([], _) => checked.swap_remove(0),
            (several, _) => {
                let names = several.iter().filter_map(|i| training.get(*i)).map(|f| format!("`{}`", f.name));
                let names = names.collect::<Vec<_>>().join(", ");
                Err(format!("several entry points train; choose one with `--function`: {names}"))
            }
        }
    }

    fn check(f: &Function) -> Result<Contract, String> {
        let signature = signature(f);
        let wrong = |why: &str| {
            format!(
                "`attnc train` cannot call `{signature}`: {why}; expected \
                 `{}(tokens: i32[B, S], next: i32[B, S], ..) -> (f32[], ..)`",
                f.name
            )
        };
        let wide: Vec<&ArgDecl> = f.args.iter().filter(|arg| arg.ty.rank() > 0).collect();
        let [tokens, next] = wide.as_slice() else {
            return Err(wrong(&format!("{} of its arguments have axes, not 2", wide.len())));
        };
        if let Some(arg) = wide.iter().find(|arg| !matches!(arg.ty.elem, Elem::I32 | Elem::I64)) {
            return Err(wrong(&format!("`{}` has elements of type {}", arg.name, arg.ty.elem)));
        }
        if tokens.ty.shape != next.ty.shape || tokens.ty.rank() > 2 {
            return Err(wrong(&format!("`{}` and `{}` do not have one shape, of 1 or 2 axes", tokens.name, next.name)));
        }
        for arg in f.args.iter().filter(|arg| arg.ty.rank() == 0) {
            let fits = match arg.name.as_str() {
                "step" | "seed" => matches!(arg.ty.elem, Elem::I32 | Elem::I64),
                "rate" => arg.ty.elem.is_float(),
                _ => return Err(wrong(&format!("`{}` is not one of {}", arg.name, SCALARS.join(", ")))),
            };
            if !fits {
                return Err(wrong(&format!("`{}` has the type {}", arg.name, arg.ty.elem)));
            }
        }
        if !f.results.first().is_some_and(is_loss) {
            return Err(wrong("its first result is not one float, the loss"));
        }
        let extents = tokens.ty.shape.iter().map(|extent| Extent::of_axis(extent, f)).collect();
        let at = f.args.iter().position(|arg| arg.name == tokens.name).unwrap_or(0);
        Ok(Contract { name: f.name.clone(), signature, args: f.args.clone(), extents, vocabulary: vocabulary(f, at) })
    }

    /// Windows of a step.
    ///
    /// # Errors
    /// The entry point takes another number.
    pub(super) fn batch(&self, given: Option<u32>, saved: Option<usize>) -> Result<usize, String> {
        let given = given.map(|n| n as usize);
        match self.extents.as_slice() {
            [own, _] => own.chosen("--batch", given, saved, self).map(|n| n.unwrap_or(8)),
            _ if given.is_some_and(|n| n != 1) => Err(format!("`{}` takes one window: `--batch 1`", self.signature)),
            _ => Ok(1),
        }
    }

    /// Tokens of a window.
    ///
    /// # Errors
    /// The entry point takes another number, or any.
    pub(super) fn length(&self, given: Option<u32>, saved: Option<usize>) -> Result<usize, String> {
        let own = self.extents.last();
        let chosen = own.map(|own| own.chosen("--length", given.map(|n| n as usize), saved, self)).transpose()?;
        let most = own.and_then(|own| own.most).and_then(|n| usize::try_from(n).ok());
        let missing = || format!("`{}` takes windows of any length: choose one with `--length`", self.signature);
        chosen.flatten().or(most).filter(|n| *n > 0).ok_or_else(missing)
    }

    /// The arguments of a call: all windows with the token after each, one after another.
    pub(super) fn arguments(
        &self,
        windows: &[Vec<u32>],
        [batch, length]: [usize; 2],
        step: u64,
        seed: i64,
        rate: Option<f64>,
    ) -> Option<Vec<Tensor>> {
        let shape = if self.extents.len() == 2 { vec![batch, length] } else { vec![length] };
        let mut first = 0;
        let mut args = Vec::new();
        for arg in &self.args {
            args.push(match arg.name.as_str() {
                _ if arg.ty.rank() > 0 => {
                    let part = |window: &Vec<u32>| window.get(first..first + length).map(<[u32]>::to_vec);
                    let parts: Option<Vec<Vec<u32>>> = windows.iter().map(part).collect();
                    let tokens: Vec<i64> = parts?.concat().into_iter().map(i64::from).collect();
                    first += 1;
                    Tensor::from_ints(arg.ty.elem, shape.clone(), &tokens)?
                }
                "step" => Tensor::from_ints(arg.ty.elem, Vec::new(), &[i64::try_from(step).ok()?])?,
                "seed" => Tensor::from_ints(arg.ty.elem, Vec::new(), &[seed])?,
                _ => Tensor::from_floats(arg.ty.elem, Vec::new(), &[rate.unwrap_or(1.0)])?,
            });
        }
        Some(args)
    }
}

impl Extent {
    fn of_axis(extent: &Dim, f: &Function) -> Extent {
        let number = |dim: &Dim| dim.as_const().and_then(|n| u64::try_from(n).ok());
        let bounds = f.checks.iter().filter(|(fact, _)| fact.relation == Relation::Le && fact.left == *extent);
        Extent {
            name: extent.to_string(),
            fixed: number(extent),
            most: bounds.filter_map(|(fact, _)| number(&fact.right)).min(),
        }
    }

    /// The given length, or that of the checkpoint or program, if there is one.
    fn chosen(
        &self,
        option: &str,
        given: Option<usize>,
        saved: Option<usize>,
        own: &Contract,
    ) -> Result<Option<usize>, String> {
        let fixed = self.fixed.and_then(|n| usize::try_from(n).ok());
        match (given, fixed, self.most) {
            (Some(n), Some(fixed), _) if n != fixed => {
                Err(format!("`{option} {n}`: `{}` takes {fixed}", own.signature))
            }
            (Some(n), _, Some(most)) if n as u64 > most => {
                Err(format!("`{option} {n}`: `{}` takes at most {most} ({} <= {most})", own.signature, self.name))
            }
            _ => Ok(given.or(fixed).or(saved)),
        }
    }
}

/// The entry point of the held-out loss: the one of this name, or the first that fits.
///
/// # Errors
/// The one of this name does not fit.
pub(super) fn loss(module: &Module, own: &Contract, name: Option<&str>) -> Result<Option<Contract>, String> {
    let fits = |f: &Function| {
        let found = Contract::check(f).ok().filter(|_| !f.tapped && f.results.len() == 1 && !trains(f, module));
        found.filter(|found| found.extents.len() == own.extents.len())
    };
    let Some(name) = name else { return Ok(module.functions.iter().find_map(fits)) };
    let Some(f) = module.functions.iter().find(|f| f.name == name && !f.tapped) else {
        return Err(format!("`--loss {name}`: there is no such entry point"));
    };
    let wrong = || {
        let (found, own) = (signature(f), &own.signature);
        format!("`--loss {name}`: `{found}` must take the tokens of `{own}`, have one result, f32[], and not train")
    };
    fits(f).map(Some).ok_or_else(wrong)
}

/// The results that are one float: the loss, and what else the entry point tells.
pub(super) fn numbers(results: &[Tensor]) -> Vec<f32> {
    let scalars = results.iter().filter(|t| t.shape().is_empty() && t.elem().is_float());
    scalars.filter_map(|t| t.to_f64().first().map(|x| *x as f32)).collect()
}

fn is_loss(result: &ResultDecl) -> bool {
    !result.batch && result.ty.rank() == 0 && result.ty.elem.is_float()
}

/// Does a call change parameters?
fn trains(f: &Function, module: &Module) -> bool {
    let is_read =
        |v, name: &str| f.definition(v).is_some_and(|(_, d)| matches!(&d.op, Op::State { name: read } if read == name));
    f.insts().any(|(_, _, data)| match &data.op {
        Op::SetState { name } => {
            module.params.iter().any(|p| p.name == *name) && !data.operands.first().is_some_and(|v| is_read(*v, name))
        }
        _ => false,
    })
}

/// The entry point as in a program.
fn signature(f: &Function) -> String {
    let args = f.args.iter().map(|arg| format!("{}: {}", arg.name, arg.ty)).collect::<Vec<_>>().join(", ");
    let results: Vec<String> = f.results.iter().map(|result| result.ty.to_string()).collect();
    let results = if let [one] = results.as_slice() { one.clone() } else { format!("({})", results.join(", ")) };
    format!("{}({args}) -> {results}", f.name)
}
