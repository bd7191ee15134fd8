//! Terminators: jumps, which pass block arguments, and returns.
//!
//! In: a terminator of the graph IR. Out: the plan's terminator, preceded by copies into the slots
//! of the target's block arguments, or into the function's results, for values that are not there
//! yet. Parallel copies may permute slots; then sources are first copied to temporaries.

use super::super::map;
use super::super::region::buffer_type;
use super::{Lowering, literal_of};
use crate::ir::{self, Terminator, Value, ValueDef};
use crate::tile::{self, View};

impl Lowering<'_> {
    pub(super) fn terminator(&mut self, t: &Terminator) -> Result<(), String> {
        match t {
            Terminator::Return(values) => {
                for (i, v) in values.iter().enumerate() {
                    self.return_value(u32::try_from(i).unwrap_or(u32::MAX), *v)?;
                }
                // `Return` is the default terminator of a block.
                Ok(())
            }
            Terminator::Roles(never) => match *never {},
            Terminator::Br(call) => {
                let args = self.edge(call)?;
                let target = self.blocks[call.block].ok_or("a block without a counterpart")?;
                self.builder.br(target, &args);
                Ok(())
            }
            Terminator::BrIf { condition, then, otherwise } => {
                let condition = match self.indices[*condition] {
                    Some(c) => c,
                    None => {
                        let place = self.view(*condition)?;
                        let buffer = self.buffer(&place)?;
                        self.builder.load_scalar(buffer, &[])
                    }
                };
                let here = self.builder.current();
                let mut targets = Vec::new();
                for call in [then, otherwise] {
                    let target = self.blocks[call.block].ok_or("a block without a counterpart")?;
                    let moves = call.args.iter().any(|v| self.f.tensor(*v).is_some());
                    if moves {
                        // The copies of this edge need a block of their own (a critical edge).
                        let (edge, _) = self.builder.new_block(Vec::new());
                        self.builder.switch_to(edge);
                        let args = self.edge(call)?;
                        self.builder.br(target, &args);
                        self.builder.switch_to(here);
                        targets.push((edge, Vec::new()));
                    } else {
                        let args = self.edge(call)?;
                        targets.push((target, args));
                    }
                }
                if let [(a, x), (b, y)] = targets.as_slice() {
                    self.builder.br_if(condition, (*a, x), (*b, y));
                }
                Ok(())
            }
        }
    }

    /// Copies the tensors of a jump into the target's slots; returns the index arguments.
    fn edge(&mut self, call: &ir::BlockCall) -> Result<Vec<tile::Value>, String> {
        let targets = self.f.block(call.block).args.clone();
        let mut indices = Vec::new();
        // Value and block argument, source (`None`: materialised in place) and destination.
        let mut copies: Vec<([Value; 2], Option<View>, View)> = Vec::new();
        for (v, target) in call.args.iter().zip(&targets) {
            if *self.f.ty(*v) == ir::Type::Index {
                indices.push(self.index(*v)?);
                continue;
            }
            let to = self.places[*target].clone().ok_or("a block argument without a slot")?;
            let from = self.places[*v].clone();
            if from.as_ref() != Some(&to) {
                copies.push(([*v, *target], from, to));
            }
        }
        // A copy must not overwrite the source of a later one, nor its own source in another order:
        // such sources are first copied to temporaries.
        for i in 0..copies.len() {
            let Some(from) = copies[i].1.clone() else { continue };
            if copies.iter().any(|(_, _, to)| to.root == from.root) {
                copies[i].1 = Some(self.copied(&from)?);
            }
        }
        for ([v, target], from, to) in copies {
            self.at_values(&[v, target]);
            match from {
                None => self.fill(v, &to)?,
                Some(from) => {
                    let call = map::copy("carry", &from, &to);
                    self.launch(call)?;
                }
            }
        }
        Ok(indices)
    }

    fn return_value(&mut self, number: u32, v: Value) -> Result<(), String> {
        self.at_values(&[v]);
        let from = self.view(v)?;
        if let Some(buffer) = self.roots[from.root]
            && from.is_whole()
            && self.is_out(buffer, number)
        {
            return Ok(());
        }
        let root = self.fresh_root();
        let to = View::whole(root, self.tensor(v)?);
        let ty = buffer_type(&to);
        let buffer = self.builder.value(tile::Op::Plan(tile::PlanOp::Out(number)), Vec::new(), tile::Type::Buffer(ty));
        self.roots[root] = Some(buffer);
        let call = map::copy("result", &from, &to);
        self.launch(call)
    }

    /// Locates the next instructions where the first of these values with a location is computed;
    /// for a block argument, the first value passed to it that has one. Literals have none: the
    /// text of graph IR does not keep it.
    fn at_values(&mut self, values: &[Value]) {
        let mut values = values.to_vec();
        let mut next = 0;
        while let Some(v) = values.get(next).copied() {
            next += 1;
            match self.f.def(v) {
                ValueDef::Result(i) if self.f.inst(i).loc.line > 0 && literal_of(self.f, v).is_none() => {
                    return self.builder.at(self.f.inst(i).loc);
                }
                ValueDef::Arg(block, n) => {
                    let jumps = self.f.layout.iter().flat_map(|b| self.f.block(*b).terminator.targets());
                    let passed = jumps.filter(|call| call.block == block).filter_map(|call| call.args.get(n));
                    let new: Vec<Value> = passed.filter(|v| !values.contains(v)).copied().collect();
                    values.extend(new);
                }
                ValueDef::Result(_) | ValueDef::Param => {}
            }
        }
    }

    fn is_out(&self, buffer: tile::Value, number: u32) -> bool {
        self.builder.op_of(buffer) == Some(&tile::Op::Plan(tile::PlanOp::Out(number)))
    }
}
