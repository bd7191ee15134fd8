//! A canonical encoding of kernels, plans and modules as bytes. Bytes are equal exactly where the texts are equal up to the
//! names of values and blocks, and they cost far less than a text.
//!
//! In: any kernel, plan or module. Out: bytes to compare and to hash; they mean nothing outside of the process that made
//! them, and nothing reads them back. Values and blocks are numbered in order of first occurrence, so it does not matter whether
//! a body was made by lowering or read from a text. What this must not know: what an operation does.

use std::hash::{Hash, Hasher};

use cranelift_entity::SecondaryMap;

use super::{
    Block, BlockCall, Body, Extent, Inst, Kernel, Module, Op, Plan, State, Terminator, TileType, Type, Value, text,
};
use crate::scalar::{Scalar, round_to};
use crate::source::Loc;

/// What of a kernel is omitted.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// Is its name in the bytes?
    pub name: bool,
    /// Are the places in the source?
    pub places: bool,
    /// What it is scheduled for, instead of its own state.
    pub state: State,
}

/// The bytes of a kernel.
pub fn kernel(kernel: &Kernel, how: Encoding) -> Vec<u8> {
    let mut e = Encoder::new(how.places);
    if how.name {
        e.put(&kernel.name);
    }
    e.kernel(kernel, how.state);
    e.out.0
}

/// The bytes of a module, names and places included.
pub fn module(module: &Module) -> Vec<u8> {
    let mut e = Encoder::new(true);
    let Module { name, files, model, doc, entries, params, states, sites, packed, kernels, plans } = module;
    e.put(&(name, files, model, doc, sites, packed));
    e.put(&(entries.len(), params.len(), states.len(), kernels.len(), plans.len()));
    for entry in entries {
        for (line, loc) in text::lines_of_entry(entry) {
            e.put(&(line, loc));
        }
    }
    for p in params {
        e.put(&(&p.name, &p.counts, p.ty.to_string()));
    }
    for s in states {
        e.put(&(&s.name, s.ty.to_string()));
    }
    for k in kernels {
        e.forget_values();
        e.put(&k.name);
        e.kernel(k, k.state);
    }
    for p in plans {
        e.forget_values();
        e.plan(p);
    }
    e.out.0
}

/// What is hashed, as it is: no two sequences of things become the same bytes, for each writes its own length or has a
/// fixed one.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

/// Numbers for what is met, from 1; 0 where nothing was met yet.
struct Encoder {
    out: Bytes,
    places: bool,
    values: SecondaryMap<Value, u32>,
    blocks: SecondaryMap<Block, u32>,
    next: u32,
}

impl Encoder {
    fn new(places: bool) -> Encoder {
        Encoder { out: Bytes::default(), places, values: SecondaryMap::new(), blocks: SecondaryMap::new(), next: 0 }
    }

    /// Begins another body.
    fn forget_values(&mut self) {
        self.values.clear();
        self.blocks.clear();
        self.next = 0;
    }

    fn put(&mut self, x: &impl Hash) {
        x.hash(&mut self.out);
    }

    fn number(&mut self, v: Value) -> u32 {
        if self.values[v] == 0 {
            self.next += 1;
            self.values[v] = self.next;
        }
        self.values[v]
    }

    fn value(&mut self, v: Value) {
        let n = self.number(v);
        self.put(&n);
    }

    fn values(&mut self, vs: &[Value]) {
        self.put(&vs.len());
        for v in vs {
            self.value(*v);
        }
    }

    fn block(&mut self, b: Block) {
        if self.blocks[b] == 0 {
            self.next += 1;
            self.blocks[b] = self.next;
        }
        let n = self.blocks[b];
        self.put(&n);
    }

    fn call(&mut self, call: &BlockCall) {
        self.block(call.block);
        self.values(&call.args);
    }

    fn loc(&mut self, loc: Loc) {
        if self.places {
            self.put(&loc);
        }
    }

    fn extent(&mut self, e: Extent) {
        match e {
            Extent::Static(n) => self.put(&(0_u8, n)),
            Extent::Bounded { value, max } => {
                self.put(&(1_u8, max));
                self.value(value);
            }
        }
    }

    fn tile(&mut self, t: &TileType) {
        self.put(&(t.elem, t.space));
        self.extent(t.rows);
        self.extent(t.cols);
    }

    fn ty(&mut self, ty: &Type) {
        std::mem::discriminant(ty).hash(&mut self.out);
        match ty {
            Type::Index => {}
            Type::Scalar(e) => self.put(e),
            Type::Tile(t) | Type::Slot(t) => self.tile(t),
            Type::Buffer(b) => self.put(b),
            Type::Pending(q, t) | Type::Group(q, t) => {
                self.put(q);
                self.tile(t);
            }
            Type::Ring { stages, tile } => {
                self.put(stages);
                self.tile(tile);
            }
        }
    }

    fn body(&mut self, body: &Body) {
        self.put(&body.layout.len());
        for b in &body.layout {
            self.block(*b);
            let block = body.block(*b);
            self.put(&block.args.len());
            for v in &block.args {
                self.value(*v);
                self.ty(body.ty(*v));
            }
            self.insts(body, &block.insts);
            match &block.terminator {
                Terminator::Br(call) => {
                    self.put(&0_u8);
                    self.call(call);
                }
                Terminator::BrIf { condition, then, otherwise } => {
                    self.put(&1_u8);
                    self.value(*condition);
                    self.call(then);
                    self.call(otherwise);
                }
                Terminator::Return(values) => {
                    self.put(&2_u8);
                    self.values(values);
                }
                Terminator::Roles(roles) => {
                    self.put(&(3_u8, roles.len()));
                    for role in roles {
                        self.put(&(&role.name, role.warps, role.registers));
                        self.call(&role.target);
                    }
                }
            }
        }
    }

    fn insts(&mut self, body: &Body, insts: &[Inst]) {
        self.put(&insts.len());
        for i in insts {
            let data = body.inst(*i);
            match &data.op {
                Op::Run { rows, cols, insts } => {
                    std::mem::discriminant(&data.op).hash(&mut self.out);
                    self.extent(*rows);
                    self.extent(*cols);
                    // A run does not hold runs; a broken body must not make this endless.
                    let plain = |i: &&Inst| !matches!(body.inst(**i).op, Op::Run { .. });
                    let insts: Vec<Inst> = insts.iter().filter(plain).copied().collect();
                    self.insts(body, &insts);
                }
                // A literal has as many digits as the type needs.
                Op::Const(Scalar::Float(x)) => {
                    let elem = data.result.and_then(|v| body.ty(v).elem());
                    let rounded = elem.map_or(*x, |elem| round_to(elem, *x));
                    self.put(&Op::Const(Scalar::Float(rounded)));
                }
                op => self.put(op),
            }
            self.values(&data.operands);
            self.put(&data.result.is_some());
            if let Some(v) = data.result {
                self.value(v);
                self.ty(body.ty(v));
            }
            self.loc(data.loc);
        }
    }

    fn kernel(&mut self, k: &Kernel, state: State) {
        self.put(&(&k.symbols, k.scratch, state, k.params.len(), k.grid.len()));
        // The loops are those of the description, which differs by its locations.
        match self.places {
            true => self.put(&k.compute),
            false => self.put(&k.compute.as_ref().map(std::mem::discriminant)),
        }
        for p in &k.params {
            self.put(&(p.mode, p.aligned));
            self.value(p.value);
            self.ty(k.body.ty(p.value));
        }
        for axis in &k.grid {
            self.put(&(&axis.extent, axis.step));
            self.value(axis.value);
        }
        self.body(&k.body);
    }

    fn plan(&mut self, p: &Plan) {
        self.put(&(&p.name, p.variant, &p.symbols, &p.taps, p.slots.len()));
        for slot in &p.slots {
            self.put(&slot.bytes);
        }
        self.body(&p.body);
    }
}
