//! A canonical encoding of kernels, plans and modules as bytes. Encodings are equal exactly if the
//! text forms are equal up to the names of values and blocks, and are much cheaper than text.
//!
//! In: any kernel, plan or module. Out: bytes to compare and to hash; they are meaningful only
//! inside this process, and are never decoded. Values and blocks are numbered in order of first
//! occurrence, so it does not matter whether a body was made by lowering or parsed. It must not
//! know the semantics of operations.

use std::hash::{Hash, Hasher};

use cranelift_entity::SecondaryMap;

use super::{
    Block, BlockCall, Body, Extent, Inst, Kernel, Module, Op, Plan, State, Terminator, TileType, Type, Value, text,
};
use crate::scalar::{Scalar, round_to};
use crate::source::Loc;

/// Parts of a kernel that its encoding includes.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// Include its name.
    pub name: bool,
    /// Include source locations.
    pub places: bool,
    /// Encoded in place of its own scheduling state.
    pub state: State,
}

/// Encodes a kernel.
pub fn kernel(kernel: &Kernel, how: Encoding) -> Vec<u8> {
    let mut e = Encoder::new(how.places);
    if how.name {
        e.put(&kernel.name);
    }
    e.kernel(kernel, how.state);
    e.out.0
}

/// Encodes a module, with names and locations.
pub fn module(module: &Module) -> Vec<u8> {
    let mut e = Encoder::new(true);
    let Module {
        name,
        files,
        model,
        doc,
        entries,
        params,
        states,
        sites,
        packed,
        scheduled: _,
        origins: _,
        kernels,
        plans,
    } = module;
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

/// The encoding; it is injective, because each item has a fixed length or writes its length.
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

/// Numbers values and blocks in order of first occurrence, from 1; 0 means not seen.
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

    /// Starts another body.
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
                    // A run must not contain runs; in an invalid body this would recurse endlessly.
                    let plain = |i: &&Inst| !matches!(body.inst(**i).op, Op::Run { .. });
                    let insts: Vec<Inst> = insts.iter().filter(plain).copied().collect();
                    self.insts(body, &insts);
                }
                // A constant is encoded in its type.
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
        // The body represents the description too, except for locations in the latter.
        match self.places {
            true => self.put(&k.compute),
            false => self.put(&k.compute.as_ref().map(std::mem::discriminant)),
        }
        k.tiled.iter().for_each(|tiled| self.put(tiled));
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
