//! Concatenation: an operand whose only use is a `concat` is computed directly in its part of the
//! result.
//!
//! ```text
//! %a = fused map(..)                      // into columns 0..32 of the slot of %x
//! %b = fused map(..)                      // into columns 32..64
//! %x = concat %a, %b, axis=1              // nothing is copied
//! ```
//!
//! In: a concat, and elementwise regions whose only use it is. Out: the views these regions write
//! to, and a copy for every other operand. Slots are assigned to memory later, by what the launches
//! read and write, so the slot may be written before the concat itself. Regions of other kinds keep
//! slots of their own, since tiles that are stored whole need rows aligned to their size. So do
//! regions whose part has rows too short for vector stores.

use super::super::map;
use super::Lowering;
use super::together::has_long_rows;
use crate::ir::{self, FusionKind, Op, Use, Value};
use crate::shape::Dim;
use crate::tile::View;

impl Lowering<'_> {
    /// The part of a concat that a region's result is written to, if that is its only use, in the
    /// same block.
    pub(super) fn part_of_concat(&mut self, v: Value, kind: FusionKind) -> Result<Option<View>, String> {
        if kind != FusionKind::Map || self.storage.home(v).is_some() || self.result_slot(v).is_some() {
            return Ok(None);
        }
        let uses = self.leading_uses(v);
        let [Use::Operand(inst, number)] = uses.as_slice() else { return Ok(None) };
        let data = self.f.inst(*inst);
        let (Op::Concat { axis }, Some(whole)) = (&data.op, data.result) else { return Ok(None) };
        // Slot sharing was decided under the assumption that the slot is written at the concat.
        let stands_here = self.f.block(self.at).insts.contains(inst);
        if !stands_here || self.is_for_taps(data) || self.storage.home(whole).is_some() {
            return Ok(None);
        }
        let to = match self.concats.get(&whole) {
            Some(to) => to.clone(),
            None => {
                let to = self.destination(whole)?;
                self.concats.insert(whole, to.clone());
                to
            }
        };
        let part = self.parts_of(data, *axis, &to)?.into_iter().nth(*number).filter(has_long_rows);
        self.parts.extend(part.is_some().then_some(v));
        Ok(part)
    }

    /// Copies the operands that are not yet in place. Concatenated parameters are instead packed
    /// when the model is opened.
    pub(super) fn concat(&mut self, data: &ir::InstData, axis: usize) -> Result<(), String> {
        let v = data.result.ok_or("a concat without a result")?;
        if let Some(joined) = self.join(v, &data.operands, axis) {
            self.places[v] = Some(joined);
            return Ok(());
        }
        let to = match self.concats.remove(&v) {
            Some(to) => to,
            None => self.destination(v)?,
        };
        for (x, part) in data.operands.iter().zip(self.parts_of(data, axis, &to)?) {
            let from = self.view(*x)?;
            if from != part {
                self.launch(map::copy("concat", &from, &part))?;
            }
        }
        self.places[v] = Some(to);
        Ok(())
    }

    /// The part of the result for each operand.
    fn parts_of(&self, data: &ir::InstData, axis: usize, to: &View) -> Result<Vec<View>, String> {
        let mut start = Dim::zero();
        let mut parts = Vec::new();
        for x in &data.operands {
            let stop = start.add(self.tensor(*x)?.shape.get(axis).ok_or("an axis is missing")?);
            parts.push(to.slice(axis, &start, &stop));
            start = stop;
        }
        Ok(parts)
    }
}
