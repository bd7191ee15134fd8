//! What `grad` means: numbers that record how they were computed, and a sweep back over the record.
//!
//! [`Tape`] is an `f64` and a node of a scalar reverse-mode tape (Wengert 1964; Speelpenning 1980). The interpreter runs a
//! program with it, operation by operation on elements, and takes the gradient by the chain rule of single numbers. It
//! shares no tensor rule and no derivative with the compiler. Its sweep computes with tapes, so a gradient has gradients.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use attnc::ir::interp::Real;
use attnc::scalar::{BinaryOp, CmpOp, UnaryOp};
use attnc::shape::Elem;

/// How a node was computed.
#[derive(Clone, Debug)]
enum Made {
    Variable,
    Unary(UnaryOp, Tape),
    Binary(BinaryOp, Tape, Tape),
    /// A sum plus a product.
    Product(Tape, Tape, Tape),
    /// The elements that equal the extreme of a row.
    Extreme(Vec<Tape>),
}

thread_local! {
    static NODES: RefCell<Vec<(Made, Tape)>> = const { RefCell::new(Vec::new()) };
    static WILD: Cell<bool> = const { Cell::new(false) };
}

/// A number, and its node; constants have none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tape {
    pub(crate) value: f64,
    node: Option<u32>,
}

fn constant(value: f64) -> Tape {
    Tape { value, node: None }
}

fn record(value: f64, made: Made, from: &[Tape]) -> Tape {
    if from.iter().all(|x| x.node.is_none()) && !matches!(made, Made::Variable) {
        return constant(value);
    }
    NODES.with_borrow_mut(|nodes| {
        let tape = Tape { value, node: Some(nodes.len() as u32) };
        nodes.push((made, tape));
        tape
    })
}

/// Factors of sums that are larger make differences of large numbers, or are not finite.
const LARGE: f64 = 1e4;

/// Forgets all records of this thread. Did a sum of products have a large factor?
pub(crate) fn clear() -> bool {
    NODES.with_borrow_mut(Vec::clear);
    WILD.replace(false)
}

fn unary(op: UnaryOp, x: Tape) -> Tape {
    record(op.eval_f64(x.value), Made::Unary(op, x), &[x])
}

fn binary(op: BinaryOp, x: Tape, y: Tape) -> Tape {
    record(op.eval_f64(x.value, y.value), Made::Binary(op, x, y), &[x, y])
}

fn add(x: Tape, y: Tape) -> Tape {
    binary(BinaryOp::Add, x, y)
}

fn mul(x: Tape, y: Tape) -> Tape {
    binary(BinaryOp::Mul, x, y)
}

/// Times a literal, which a program has in `f32`.
fn scaled(factor: f64, x: Tape) -> Tape {
    mul(constant(f64::from(factor as f32)), x)
}

/// The derivative of an operation on one element, of which `z` is the result.
fn slope(op: UnaryOp, x: Tape, z: Tape) -> Tape {
    let one = constant(1.0);
    let minus = |a, b| binary(BinaryOp::Sub, a, b);
    let over = |a, b| binary(BinaryOp::Div, a, b);
    match op {
        UnaryOp::Neg => constant(-1.0),
        UnaryOp::Abs => constant(if x.value > 0.0 {
            1.0
        } else if x.value < 0.0 {
            -1.0
        } else {
            x.value
        }),
        UnaryOp::Exp => z,
        UnaryOp::Exp2 => scaled(2f64.ln(), z),
        UnaryOp::Expm1 => unary(UnaryOp::Exp, x),
        UnaryOp::Log => over(one, x),
        UnaryOp::Log1p => over(one, add(one, x)),
        UnaryOp::Sqrt => over(constant(0.5), z),
        UnaryOp::Rsqrt => over(constant(-0.5), mul(x, unary(UnaryOp::Sqrt, x))),
        UnaryOp::Sin => unary(UnaryOp::Cos, x),
        UnaryOp::Cos => scaled(-1.0, unary(UnaryOp::Sin, x)),
        UnaryOp::Tanh => mul(minus(one, z), add(one, z)),
        UnaryOp::Erf => scaled(2.0 / std::f64::consts::PI.sqrt(), unary(UnaryOp::Exp, scaled(-1.0, mul(x, x)))),
        UnaryOp::Sigmoid => mul(z, unary(UnaryOp::Sigmoid, scaled(-1.0, x))),
        UnaryOp::Softplus => over(one, add(one, unary(UnaryOp::Exp, scaled(-1.0, x)))),
        UnaryOp::Relu => constant(f64::from(u8::from(x.value > 0.0))),
        UnaryOp::Gelu => {
            let density =
                scaled(1.0 / (2.0 * std::f64::consts::PI).sqrt(), unary(UnaryOp::Exp, scaled(-0.5, mul(x, x))));
            let below = scaled(0.5, add(one, unary(UnaryOp::Erf, scaled(0.5f64.sqrt(), x))));
            add(below, mul(x, density))
        }
        UnaryOp::GeluTanh => {
            let c = (2.0 / std::f64::consts::PI).sqrt();
            let cube = mul(x, mul(x, x));
            let t = unary(UnaryOp::Tanh, scaled(c, add(x, scaled(0.044_715, cube))));
            let inner = scaled(c, add(one, scaled(0.134_145, mul(x, x))));
            let bell = mul(mul(minus(one, t), add(one, t)), inner);
            scaled(0.5, add(add(one, t), mul(x, bell)))
        }
        UnaryOp::Silu => {
            let s = unary(UnaryOp::Sigmoid, x);
            mul(s, add(one, mul(x, minus(one, s))))
        }
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round | UnaryOp::Sign | UnaryOp::Not => {
            constant(0.0)
        }
    }
}

/// The derivatives of an operation on two elements.
fn slopes(op: BinaryOp, x: Tape, y: Tape) -> [Tape; 2] {
    let one = constant(1.0);
    let share = |first: bool| constant(if x.value == y.value { 0.5 } else { f64::from(u8::from(first)) });
    match op {
        BinaryOp::Add => [one, one],
        BinaryOp::Sub => [one, constant(-1.0)],
        BinaryOp::Mul => [y, x],
        BinaryOp::Div => {
            let square = mul(y, y);
            [binary(BinaryOp::Div, one, y), scaled(-1.0, binary(BinaryOp::Div, x, square))]
        }
        BinaryOp::Rem => [one, constant(-(x.value / y.value).floor())],
        BinaryOp::Pow => {
            let less = binary(BinaryOp::Sub, y, one);
            let of_base = if y.value == 0.0 { constant(0.0) } else { mul(y, binary(BinaryOp::Pow, x, less)) };
            let log = if x.value == 0.0 { constant(0.0) } else { unary(UnaryOp::Log, x) };
            [of_base, if x.value == 0.0 { log } else { mul(binary(BinaryOp::Pow, x, y), log) }]
        }
        BinaryOp::Max => [share(x.value > y.value), share(y.value > x.value)],
        BinaryOp::Min => [share(x.value < y.value), share(y.value < x.value)],
        BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::BitAnd
        | BinaryOp::BitOr
        | BinaryOp::BitXor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRight => [constant(0.0); 2],
    }
}

/// A gradient of 0 contributes 0, whatever the derivative.
fn passed(g: Tape, slope: Tape) -> Option<Tape> {
    (g.value != 0.0 || slope.value.is_finite()).then(|| mul(g, slope))
}

impl Real for Tape {
    type Sum = Tape;

    fn literal(x: f64, elem: Elem) -> Tape {
        constant(f64::literal(x, elem))
    }

    fn value(self) -> f64 {
        self.value
    }

    fn from_int(n: i64, _: Elem) -> Tape {
        constant(n as f64)
    }

    fn unary(op: UnaryOp, x: Tape, _: Elem) -> Tape {
        unary(op, x)
    }

    fn binary(op: BinaryOp, x: Tape, y: Tape, _: Elem) -> Tape {
        binary(op, x, y)
    }

    fn compare(op: CmpOp, x: Tape, y: Tape) -> (bool, bool) {
        (op.eval(x.value, y.value), true)
    }

    fn cast(self, _: Elem) -> Tape {
        self
    }

    fn to_int(self) -> (i64, bool) {
        (self.value as i64, true)
    }

    fn zero() -> Tape {
        constant(0.0)
    }

    fn add(sum: &mut Tape, x: Tape) {
        *sum = add(*sum, x);
    }

    fn add_product(sum: &mut Tape, x: Tape, y: Tape) {
        if !(x.value.abs() < LARGE && y.value.abs() < LARGE) {
            WILD.set(true);
        }
        *sum = record(sum.value + x.value * y.value, Made::Product(*sum, x, y), &[*sum, x, y]);
    }

    fn join(sum: &mut Tape, more: Tape) {
        *sum = add(*sum, more);
    }

    fn total(sum: Tape, _: usize, _: Elem) -> Tape {
        sum
    }

    fn extreme(op: BinaryOp, row: &[Tape], elem: Elem) -> Tape {
        let end = if op == BinaryOp::Max { f64::NEG_INFINITY } else { f64::INFINITY };
        let value = row.iter().fold(f64::literal(end, elem), |m, x| op.eval_f64(m, x.value));
        let chosen: Vec<Tape> = row.iter().copied().filter(|x| x.value == value).collect();
        record(value, Made::Extreme(chosen.clone()), &chosen)
    }

    fn variable(self) -> Tape {
        // A sum with nothing: what it was computed from has gradients too.
        match self.node {
            None => record(self.value, Made::Variable, &[]),
            Some(_) => record(self.value, Made::Binary(BinaryOp::Add, self, constant(0.0)), &[self]),
        }
    }

    fn constant(self) -> Tape {
        constant(self.value)
    }

    fn gradient(loss: Tape, of: &[Tape]) -> Option<Vec<Tape>> {
        let mut gradients: BTreeMap<u32, Tape> = BTreeMap::new();
        gradients.extend(loss.node.map(|node| (node, constant(1.0))));
        let mut done: BTreeMap<u32, Tape> = BTreeMap::new();
        while let Some((node, g)) = gradients.pop_last() {
            done.insert(node, g);
            let (made, z) = NODES.with_borrow(|nodes| nodes[node as usize].clone());
            let mut give = |to: Tape, part: Option<Tape>| {
                if let (Some(node), Some(part)) = (to.node, part) {
                    let sum = gradients.get(&node).map_or(part, |so_far| add(*so_far, part));
                    gradients.insert(node, sum);
                }
            };
            match made {
                Made::Variable => {}
                Made::Unary(op, x) => give(x, passed(g, slope(op, x, z))),
                Made::Binary(op, x, y) => {
                    let [a, b] = slopes(op, x, y);
                    give(x, passed(g, a));
                    give(y, passed(g, b));
                }
                Made::Product(sum, x, y) => {
                    give(sum, Some(g));
                    give(x, Some(mul(g, y)));
                    give(y, Some(mul(g, x)));
                }
                Made::Extreme(chosen) => {
                    let share = binary(BinaryOp::Div, g, constant(chosen.len() as f64));
                    chosen.into_iter().for_each(|x| give(x, Some(share)));
                }
            }
        }
        let of = of.iter().map(|x| x.node.and_then(|node| done.get(&node).copied()).unwrap_or(constant(0.0)));
        Some(of.collect())
    }
}
