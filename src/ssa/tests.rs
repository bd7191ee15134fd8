//! Bodies of a toy IR: numbers, bounded extents, nested instructions.

use std::convert::Infallible;
use std::fmt;
use std::hash::{Hash, Hasher};

use cranelift_entity::{EntityRef, SecondaryMap};

use super::verify::{ErrorLocation, structure, uses};
use super::{Block, BlockCall, Body, Dialect, Effects, Inst, Terminator, Use, Value, merge_common, remove_dead};
use crate::source::Loc;

#[derive(Clone, Debug)]
struct Toy;

#[derive(Clone, Debug, PartialEq)]
enum Op {
    Number(i64),
    Add,
    Sub,
    Read,
    Write,
    Hold(Vec<Inst>, Option<Value>),
}

#[derive(Clone, Debug, PartialEq)]
enum Type {
    Number,
    Truth,
    /// An extent bounded by a value.
    Many(Value),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Toy::name(self))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Dialect for Toy {
    type Op = Op;
    type Type = Type;
    type Roles = Infallible;

    const CONDITION: &'static str = "truth";

    fn is_condition(ty: &Type) -> bool {
        *ty == Type::Truth
    }

    fn result_type(op: &Op, operands: &[&Type], declared: Option<&Type>) -> Result<Option<Type>, String> {
        match (op, operands) {
            (Op::Add | Op::Sub, [a, b]) if a == b => Ok(Some((*a).clone())),
            (Op::Add | Op::Sub, _) => Err("takes two of one type".to_string()),
            (Op::Number(_) | Op::Read, _) => Ok(declared.cloned()),
            (Op::Write | Op::Hold(..), _) => Ok(None),
        }
    }

    fn effects(op: &Op) -> Effects {
        match op {
            Op::Number(_) | Op::Add | Op::Sub => Effects::NONE,
            Op::Read => Effects::READS,
            Op::Write => Effects::WRITES,
            Op::Hold(..) => Effects::BOTH,
        }
    }

    fn name(op: &Op) -> &'static str {
        match op {
            Op::Number(_) => "number",
            Op::Add => "add",
            Op::Sub => "sub",
            Op::Read => "read",
            Op::Write => "write",
            Op::Hold(..) => "hold",
        }
    }

    fn digest(op: &Op, h: &mut impl Hasher) {
        Toy::name(op).hash(h);
    }

    fn is_commutative(op: &Op) -> bool {
        *op == Op::Add
    }

    fn inner(op: &Op) -> &[Inst] {
        match op {
            Op::Hold(insts, _) => insts,
            Op::Number(_) | Op::Add | Op::Sub | Op::Read | Op::Write => &[],
        }
    }

    fn inner_mut(op: &mut Op) -> Option<&mut Vec<Inst>> {
        match op {
            Op::Hold(insts, _) => Some(insts),
            Op::Number(_) | Op::Add | Op::Sub | Op::Read | Op::Write => None,
        }
    }

    fn for_each_value_of_type(ty: &Type, f: &mut dyn FnMut(Value)) {
        if let Type::Many(v) = ty {
            f(*v);
        }
    }

    fn for_each_value_of_type_mut(ty: &mut Type, f: &mut dyn FnMut(&mut Value)) {
        if let Type::Many(v) = ty {
            f(v);
        }
    }

    fn for_each_value_of_op(op: &Op, f: &mut dyn FnMut(Value)) {
        if let Op::Hold(_, Some(v)) = op {
            f(*v);
        }
    }

    fn for_each_value_of_op_mut(op: &mut Op, f: &mut dyn FnMut(&mut Value)) {
        if let Op::Hold(_, Some(v)) = op {
            f(v);
        }
    }
}

fn number(body: &mut Body<Toy>, b: Block, n: i64) -> Value {
    body.push(b, Op::Number(n), Vec::new(), Some(Type::Number), Loc::default()).unwrap()
}

fn made(body: &mut Body<Toy>, b: Block, op: Op, operands: &[Value]) -> Value {
    body.append(b, op, operands.to_vec(), Some(Type::Number), Loc::default()).unwrap().unwrap()
}

fn complaints(body: &Body<Toy>) -> Vec<(ErrorLocation, String)> {
    let mut found = Vec::new();
    let definitions = structure(body, [], &mut |at, message| found.push((at, message)));
    if found.is_empty() {
        uses(body, &definitions, &body.cfg(), &mut |at, message| found.push((at, message)));
    }
    found
}

/// A body whose second instruction holds a nested write, bounded by the first.
fn holding() -> (Body<Toy>, Value, Inst, Inst) {
    let mut body = Body::new();
    let b = body.entry();
    let n = number(&mut body, b, 4);
    let many = body.make_inst(Op::Read, vec![n], Some(Type::Many(n)), Loc::default());
    let x = body.inst(many).result.unwrap();
    let write = body.make_inst(Op::Write, vec![x], None, Loc::default());
    let hold = body.make_inst(Op::Hold(vec![many, write], Some(n)), Vec::new(), None, Loc::default());
    body.block_mut(b).insts.push(hold);
    (body, n, many, write)
}

#[test]
fn replacing_reaches_types_operations_and_what_is_held() {
    let (mut body, n, many, _) = holding();
    let b = body.entry();
    let m = body.make_inst(Op::Number(5), Vec::new(), Some(Type::Number), Loc::default());
    let m_value = body.inst(m).result.unwrap();
    body.block_mut(b).insts.insert(0, m);
    body.terminate(b, Terminator::Return(vec![n]));
    assert_eq!(body.uses()[n], [Use::Operand(many, 0), Use::Terminator(b)]);
    let mut by: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    by[n] = Some(m_value);
    body.replace_uses(&by);
    assert_eq!(body.inst(many).operands, [m_value]);
    assert_eq!(*body.ty(body.inst(many).result.unwrap()), Type::Many(m_value));
    let hold = *body.block(b).insts.last().unwrap();
    assert!(matches!(body.inst(hold).op, Op::Hold(_, Some(v)) if v == m_value));
    assert_eq!(body.block(b).terminator.values(), [m_value]);
    assert!(complaints(&body).is_empty());
    // Dead instructions are removed; nested ones count as uses.
    assert_eq!(remove_dead(&mut body), (1, 0));
    assert_eq!(body.insts().count(), 4);
}

#[test]
fn what_is_held_is_in_the_body_and_removed_from_its_holder() {
    let (mut body, _, many, write) = holding();
    let all: Vec<Inst> = body.insts().map(|(_, i, _)| i).collect();
    assert_eq!((all.len(), all[2], all[3]), (4, many, write));
    body.remove_insts(|i, _| i == write);
    assert_eq!(body.insts().count(), 3);
    assert!(matches!(&body.insts().nth(1).unwrap().2.op, Op::Hold(held, _) if *held == [many]));
}

#[test]
fn broken_structures_are_found() {
    type Break = fn(&mut Body<Toy>, Value, Inst, Inst);
    let breaks: [(&str, Break); 7] = [
        ("instruction 1 does not exist, or is in two blocks", |body, _, many, write| {
            *Toy::inner_mut(&mut body.inst_mut(Inst::new(3)).op).unwrap() = vec![many, many];
            body.inst_mut(write).operands.clear();
        }),
        ("instruction 0 does not exist", |body, _, _, _| {
            *Toy::inner_mut(&mut body.inst_mut(Inst::new(3)).op).unwrap() = vec![Inst::new(77)];
        }),
        ("a `hold` in a `hold`", |body, _, many, write| {
            body.inst_mut(write).op = Op::Hold(vec![many], None);
            *Toy::inner_mut(&mut body.inst_mut(Inst::new(3)).op).unwrap() = vec![write];
        }),
        ("what bounds an extent is defined nowhere", |body, _, many, _| {
            let lost = body.make_inst(Op::Number(1), Vec::new(), Some(Type::Number), Loc::default());
            let (lost, v) = (body.inst(lost).result.unwrap(), body.inst(many).result.unwrap());
            body.set_ty(v, Type::Many(lost));
        }),
        ("operand 1 is defined nowhere", |body, _, many, _| body.inst_mut(many).operands = vec![Value::new(99)]),
        ("the definition of operand 1 does not dominate it", |body, _, many, write| {
            *Toy::inner_mut(&mut body.inst_mut(Inst::new(3)).op).unwrap() = vec![write, many];
        }),
        ("the definition of an extent's bound does not dominate it", |body, n, _, _| {
            // An argument's extent must be defined before its block is entered.
            let next = body.add_block();
            let late = number(body, next, 3);
            body.add_block_arg(next, Type::Many(late));
            let (entry, x) = (body.entry(), body.inst(Inst::new(1)).result.unwrap());
            body.terminate(entry, Terminator::Br(BlockCall { block: next, args: vec![x] }));
            body.set_ty(x, Type::Many(n));
        }),
    ];
    for (wanted, change) in breaks {
        let (mut body, n, many, write) = holding();
        assert!(complaints(&body).is_empty(), "{:?}", complaints(&body));
        change(&mut body, n, many, write);
        let found = complaints(&body);
        assert!(found.iter().any(|(_, m)| m.contains(wanted)), "{wanted}: {found:?}");
    }
}

#[test]
fn the_same_is_merged_where_nothing_changes_it() {
    let mut body: Body<Toy> = Body::new();
    let b = body.entry();
    let (one, two) = (number(&mut body, b, 1), number(&mut body, b, 2));
    let again = number(&mut body, b, 1);
    let sums = [[one, two], [two, again]].map(|o| made(&mut body, b, Op::Add, &o));
    let differences = [[one, two], [two, one]].map(|o| made(&mut body, b, Op::Sub, &o));
    let reads = [(); 2].map(|()| made(&mut body, b, Op::Read, &[one]));
    body.append(b, Op::Write, vec![reads[1]], None, Loc::default()).unwrap();
    let results = [sums, differences, reads].concat();
    body.terminate(b, Terminator::Return(results));
    // One of the sums is initially in a separate group.
    let last = sums[1];
    assert_eq!(merge_common(&mut body, |_, _, v| Some(u8::from(v == last))), 1);
    assert_eq!(merge_common(&mut body, |_, _, _| None), 0);
    assert_eq!(merge_common(&mut body, |_, _, _| Some(0)), 1);
    let [r0, r1] = reads;
    let [d0, d1] = differences;
    assert_eq!(body.block(b).terminator.values(), [sums[0], sums[0], d0, d1, r0, r1]);
    assert_eq!(body.insts().count(), 8);
}

#[test]
fn arguments_that_only_feed_themselves_are_dead() {
    let mut body: Body<Toy> = Body::new();
    let entry = body.entry();
    let n = number(&mut body, entry, 1);
    let truth = body.push(entry, Op::Number(1), Vec::new(), Some(Type::Truth), Loc::default()).unwrap();
    let (head, end) = (body.add_block(), body.add_block());
    let (used, unused) = (body.add_block_arg(head, Type::Number), body.add_block_arg(head, Type::Number));
    let more = made(&mut body, head, Op::Add, &[used, n]);
    let nothing = made(&mut body, head, Op::Add, &[unused, n]);
    body.terminate(entry, Terminator::Br(BlockCall { block: head, args: vec![n, n] }));
    let back = BlockCall { block: head, args: vec![more, nothing] };
    let out = BlockCall { block: end, args: Vec::new() };
    body.terminate(head, Terminator::BrIf { condition: truth, then: back, otherwise: out });
    body.terminate(end, Terminator::Return(vec![used]));
    assert!(complaints(&body).is_empty());
    assert_eq!(remove_dead(&mut body), (1, 1));
    assert_eq!(body.block(head).args, [used]);
    assert_eq!(body.block(entry).terminator.targets()[0].args, [n]);
    assert!(complaints(&body).is_empty());
    // A condition of another type, and a jump with too few arguments.
    body.set_ty(truth, Type::Number);
    body.terminate(entry, Terminator::Br(BlockCall { block: head, args: Vec::new() }));
    let found: Vec<String> = complaints(&body).into_iter().map(|(_, m)| m).collect();
    assert_eq!(
        found,
        ["the target has 1 arguments, the jump gives 0", "the condition is Number, not truth"],
        "{found:?}"
    );
}
