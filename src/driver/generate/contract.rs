//! What `attnc generate` requires of an entry point, and the arguments of its calls.
//!
//! In: the entry point, and the sampling options. Out: a [`Contract`], which makes the arguments
//! for given tokens; or an error about the argument that does not match.
//!
//! ```text
//! next(tokens: i32[S], temperature: f32, top_k: i32, top_p: f32, penalty: f32, seed: i64) -> i32
//! ```
//!
//! The tokens are the only argument with an axis. The others are optional, in any order, and
//! recognised by name. An entry point that sets states remembers what it has read: it receives the
//! prompt, then each token it generated. Otherwise it receives all tokens in each call, even if
//! another entry point of the model has state.
//!
//! A model that reads one text and writes another, such as a translator, has an entry point `read`
//! for the former, in addition to the one that is called. Its prompt is a complete text, with the
//! tokens that its tokenizer appends at the end; a prompt to be continued has none there.

use crate::cli::WriteOptions;
use crate::diagnostics::did_you_mean;
use crate::interface::ArgDecl;
use crate::ir::{Function, InstData, Module, Op, sets_states};
use crate::shape::Elem;
use crate::tensor::Tensor;

/// The number passed for an argument.
#[derive(Clone, Copy)]
enum Number {
    Float(f64),
    Int(i64),
}

/// A sampling argument: its name, its option, the given value, and the default.
type Choice = (&'static str, &'static str, Option<Number>, Number);

fn choices(options: &WriteOptions) -> [Choice; 5] {
    let float = |given: Option<f64>| given.map(Number::Float);
    [
        ("temperature", "--temperature", float(options.temperature), Number::Float(1.0)),
        ("top_k", "--top-k", options.top_k.map(|k| Number::Int(k.into())), Number::Int(i32::MAX.into())),
        ("top_p", "--top-p", float(options.top_p), Number::Float(1.0)),
        ("penalty", "--repetition-penalty", float(options.repetition_penalty), Number::Float(1.0)),
        ("seed", "--seed", options.seed.map(Number::Int), Number::Int(0)),
    ]
}

/// How an entry point is called.
pub(in crate::driver) struct Contract {
    /// Index of the token argument, and its element type.
    tokens: (usize, Elem),
    /// Exclusive upper bound of tokens: the length of the axis that they index directly, if any.
    vocabulary: Option<u64>,
    /// The entry point sets states, so it remembers what it has read.
    pub(in crate::driver) keeps: bool,
    /// The other arguments, in order.
    others: Vec<Tensor>,
}

impl Contract {
    /// Checks an entry point.
    ///
    /// # Errors
    /// A message about the argument or result that does not match.
    pub(in crate::driver) fn check(f: &Function, options: &WriteOptions) -> Result<Contract, String> {
        let (tokens, elem) = tokens(f)?;
        let [result] = f.results.as_slice() else { return Err(no_token(f, &format!("{} results", f.results.len()))) };
        if result.batch || result.ty.rank() > 0 || !is_integer(result.ty.elem) {
            return Err(no_token(f, &result.ty.to_string()));
        }
        let choices = choices(options);
        let has = |name: &str| f.args.iter().any(|arg| arg.name == name);
        if let Some((name, option, ..)) = choices.iter().find(|(name, _, given, _)| given.is_some() && !has(name)) {
            let known: Vec<String> = f.args.iter().map(|arg| format!("`{}`", arg.name)).collect();
            return Err(format!(
                "`{}` has no argument `{name}`, which `{option}` is for; it has {}",
                f.name,
                known.join(", ")
            ));
        }
        let mut others = Vec::new();
        for arg in f.args.iter().enumerate().filter(|(at, _)| *at != tokens).map(|(_, arg)| arg) {
            let Some((_, option, given, usual)) = choices.iter().find(|(name, ..)| *name == arg.name) else {
                let names = choices.map(|(name, ..)| name);
                let near =
                    did_you_mean(&arg.name, names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                return Err(format!(
                    "the argument `{}: {}` of `{}` is not one that `attnc generate` has a value for ({}){near}",
                    arg.name,
                    arg.ty,
                    f.name,
                    names.join(", ")
                ));
            };
            let made = scalar(arg, given.unwrap_or(*usual));
            others.push(
                made.map_err(|why| format!("the argument `{}` of `{}`, for `{option}`, {why}", arg.name, f.name))?,
            );
        }
        Ok(Contract { tokens: (tokens, elem), vocabulary: vocabulary(f, tokens), keeps: sets_states(f), others })
    }

    /// The first token that is out of range, and the exclusive upper bound.
    pub(in crate::driver) fn too_great(&self, tokens: &[u32]) -> Option<(u32, u64)> {
        let most = if self.tokens.1 == Elem::I32 { i32::MAX as u64 + 1 } else { u64::MAX };
        let bound = self.vocabulary.map_or(most, |vocabulary| vocabulary.min(most));
        tokens.iter().find(|token| u64::from(**token) >= bound).map(|token| (*token, bound))
    }

    /// The arguments of a call with these tokens.
    pub(in crate::driver) fn arguments(&self, tokens: &[u32]) -> Option<Vec<Tensor>> {
        let (at, elem) = self.tokens;
        let tokens: Vec<i64> = tokens.iter().copied().map(i64::from).collect();
        let mut args = self.others.clone();
        args.insert(at, Tensor::from_ints(elem, vec![tokens.len()], &tokens)?);
        Some(args)
    }
}

/// Does the model have an entry point that reads the prompt as a complete text?
pub(in crate::driver) fn reads(graph: &Module) -> bool {
    graph.functions.iter().any(|f| f.name == "read" && tokens(f).is_ok())
}

fn is_integer(elem: Elem) -> bool {
    matches!(elem, Elem::I32 | Elem::I64)
}

/// The argument with an axis.
fn tokens(f: &Function) -> Result<(usize, Elem), String> {
    let wide: Vec<(usize, &ArgDecl)> = f.args.iter().enumerate().filter(|(_, arg)| arg.ty.rank() > 0).collect();
    let open = |arg: &ArgDecl| arg.ty.shape.first().is_some_and(|extent| extent.as_const().is_none());
    match wide.as_slice() {
        [(at, arg)] if !arg.batch && arg.ty.rank() == 1 && is_integer(arg.ty.elem) && open(arg) => {
            Ok((*at, arg.ty.elem))
        }
        _ => {
            let found: Vec<String> = wide.iter().map(|(_, arg)| format!("`{}: {}`", arg.name, arg.ty)).collect();
            let found = if found.is_empty() { "none with an axis".to_string() } else { found.join(", ") };
            let name = &f.name;
            Err(format!(
                "`{name}` cannot write text: expected the tokens as one argument `tokens: i32[S]`, any number of them; found {found}"
            ))
        }
    }
}

/// The length of the axis that an argument indexes.
pub(in crate::driver) fn vocabulary(f: &Function, argument: usize) -> Option<u64> {
    let tokens = *f.block(f.entry()).args.get(argument)?;
    let extent = |data: &InstData| {
        let (Op::Gather { axis, .. } | Op::Scatter { axis, .. }) = &data.op else { return None };
        let [table, at, ..] = data.operands.as_slice() else { return None };
        let extent = f.ty(*table).tensor()?.shape.get(*axis)?.as_const()?;
        (*at == tokens).then(|| u64::try_from(extent).ok())?
    };
    f.insts().filter_map(|(_, _, data)| extent(data)).min()
}

fn no_token(f: &Function, found: &str) -> String {
    format!("`{}` cannot write text: expected the next token as its result, an i32; found {found}", f.name)
}

/// A scalar argument.
fn scalar(arg: &ArgDecl, number: Number) -> Result<Tensor, String> {
    let elem = arg.ty.elem;
    let made = match number {
        Number::Float(x) if elem.is_float() => Tensor::from_floats(elem, Vec::new(), &[x]),
        Number::Int(n) if elem == Elem::I64 || elem == Elem::I32 && i32::try_from(n).is_ok() => {
            Tensor::from_ints(elem, Vec::new(), &[n])
        }
        Number::Int(n) if elem == Elem::I32 => return Err(format!("is an i32, and {n} is not")),
        Number::Float(_) => return Err(format!("must be a float; found {elem}")),
        Number::Int(_) => return Err(format!("must be an i32 or i64; found {elem}")),
    };
    made.ok_or_else(|| "has no value".to_string())
}
