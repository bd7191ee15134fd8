//! Inlines and expands a library function to straight-line code for back ends.
//!
//! In: a function's name and the machine's features. Out: a [`Function`] without calls and
//! polynomials, and without `fma` if the machine lacks it; cached for each set of features. Three
//! rewrites, in one walk:
//!
//! * a call is replaced by the callee's body, in the version for these features;
//! * a polynomial becomes Horner's scheme: `c[n]`, then `sum * x + c[i]` downwards;
//! * `fma` and `fnma` become a product and a sum or difference where the machine has no such
//!   instruction.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is reported as an error here")]

use std::sync::OnceLock;

pub use super::verify::shift;
use super::{Features, Function, Inst, Op, Type, Value, library};

/// Maximum nesting of calls: the library stays below it, and recursion is stopped here.
const MAX_DEPTH: usize = 8;

/// A function expanded for a set of features.
#[derive(Clone, Debug)]
pub struct Expanded {
    /// Its operations, none of them a call or a polynomial.
    pub function: Function,
    /// The use of each instruction's result, so that back ends need no registers for unused ones.
    pub needs: Vec<Need>,
}

/// A cached result or error.
type Once<T> = OnceLock<Result<T, String>>;

/// The function that a file is named after, expanded for these features; cached.
///
/// # Errors
/// No such function, no version for these features, or recursion.
pub fn expanded(name: &str, features: Features) -> Result<&'static Expanded, String> {
    static MADE: [[Once<Expanded>; Features::SETS]; library::COUNT] =
        [const { [const { OnceLock::new() }; Features::SETS] }; library::COUNT];
    let made = MADE[library::number(name)?][features.number()].get_or_init(|| expand(name, features));
    made.as_ref().map_err(Clone::clone)
}

/// Expands a function for these features, without caching.
///
/// # Errors
/// No such function, no version for these features, or recursion.
pub(super) fn expand(name: &str, features: Features) -> Result<Expanded, String> {
    let f = library::version(name, features)?;
    let mut out = Function { insts: Vec::new(), requires: features, ..f.clone() };
    let params: Vec<Value> = (0..f.params.len()).map(Value::from_index).collect();
    let mut walk = Walk { out: &mut out, features, names: 0 };
    let result = walk.body(f, &params, 0)?;
    out.result = result;
    super::verify(&out)?;
    Ok(Expanded { needs: needs(&out), function: out })
}

/// The use of an instruction's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The result is unused.
    Nothing,
    /// Only as an immediate, such as a shift count.
    Number,
    /// As a value in a register.
    Value,
}

impl Expanded {
    /// Number of operations per vector, not counting constants.
    pub fn size(&self) -> usize {
        let computed = |(inst, need): (&Inst, &Need)| *need == Need::Value && !matches!(inst.op, Op::Const(_));
        self.function.insts.iter().zip(&self.needs).filter(|pair| computed(*pair)).count()
    }
}

fn needs(f: &Function) -> Vec<Need> {
    let mut needs = vec![Need::Nothing; f.params.len() + f.insts.len()];
    let mut note = |v: Value, need: Need| {
        if let Some(known) = needs.get_mut(v.index())
            && *known != Need::Value
        {
            *known = need;
        }
    };
    note(f.result, Need::Value);
    for inst in &f.insts {
        let is_shift = inst.op.is_shift();
        for (i, v) in inst.operands.iter().enumerate() {
            note(*v, if is_shift && i == 1 { Need::Number } else { Need::Value });
        }
    }
    needs.split_off(f.params.len())
}

struct Walk<'a> {
    out: &'a mut Function,
    features: Features,
    names: usize,
}

impl Walk<'_> {
    fn push(&mut self, op: Op, operands: Vec<Value>, ty: Type) -> Value {
        let name = self.names.to_string();
        self.names += 1;
        self.out.push(op, operands, ty, name)
    }

    /// Appends a body with `args` as parameters; returns its result.
    fn body(&mut self, f: &Function, args: &[Value], depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("@{}: calls are nested too deeply", f.name));
        }
        let mut values = args.to_vec();
        let find = |values: &[Value], v: Value| {
            values.get(v.index()).copied().ok_or_else(|| format!("@{}: a value that does not exist", f.name))
        };
        for inst in &f.insts {
            let operands = inst.operands.iter().map(|v| find(&values, *v)).collect::<Result<Vec<Value>, String>>()?;
            let result = match (&inst.op, operands.as_slice()) {
                (Op::Call(name), _) => {
                    let callee = library::version(name, self.features)?;
                    let given = operands.iter().map(|v| self.out.ty(*v)).collect::<Option<Vec<Type>>>();
                    let wanted: Vec<Type> = callee.params.iter().map(|(_, ty)| *ty).collect();
                    if given.as_ref() != Some(&wanted) || callee.result_type != inst.ty {
                        return Err(format!("@{}: a call of @{name} with other types", f.name));
                    }
                    self.body(callee, &operands, depth + 1)?
                }
                (Op::Polynomial(coefficients), [x]) => self.horner(coefficients, *x),
                (Op::Fma, [a, b, c]) => self.fma(*a, *b, *c),
                (Op::Fnma, [a, b, c]) if !self.features.fma => {
                    let product = self.push(Op::Mul, vec![*a, *b], Type::F32);
                    self.push(Op::Sub, vec![*c, product], Type::F32)
                }
                (op, _) => self.push(op.clone(), operands, inst.ty),
            };
            values.push(result);
        }
        find(&values, f.result)
    }

    fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        if self.features.fma {
            return self.push(Op::Fma, vec![a, b, c], Type::F32);
        }
        let product = self.push(Op::Mul, vec![a, b], Type::F32);
        self.push(Op::Add, vec![product, c], Type::F32)
    }

    fn horner(&mut self, coefficients: &[f32], x: Value) -> Value {
        let mut highest_first = coefficients.iter().rev().map(|c| Op::Const(c.to_bits()));
        let mut sum = self.push(highest_first.next().unwrap_or(Op::Const(0)), Vec::new(), Type::F32);
        for c in highest_first {
            let c = self.push(c, Vec::new(), Type::F32);
            sum = self.fma(sum, x, c);
        }
        sum
    }
}
