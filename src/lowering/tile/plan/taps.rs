//! Taps: an observed value is copied to where the caller wants it, and a flag tells that it was.
//!
//! In: a tap of the graph IR. Out: two launches. A call need not come to every tap, in every step of a loop; what it did not come
//! to is zeros, which are the caller's to make, and the flags say which zeros are values.

use super::super::map;
use super::super::region::buffer_type;
use super::super::views::View;
use super::Lowering;
use crate::ir::{self, Function, Op, Scalar, Terminator, Value};
use crate::shape::{Dim, Elem, TensorType};
use crate::tile;

impl Lowering<'_> {
    pub(super) fn tap(&mut self, data: &ir::InstData, name: &str, extents: &[Dim]) -> Result<(), String> {
        let from = self.view(data.operands.first().copied().ok_or("an operand is missing")?)?;
        let mut shape = extents.to_vec();
        shape.extend(from.shape.iter().cloned());
        let indices = self.indices_of_tap(data, extents)?;
        let to = self.place_of_tap(&indices, name.to_owned(), &TensorType::new(from.elem, shape));
        let call = map::copy("tap", &from, &to)?;
        self.launch(call)?;

        let flags = TensorType::new(Elem::Bool, extents.to_vec());
        let to = self.place_of_tap(&indices, tile::flags_of_tap(name), &flags);
        let mut body = Function::new("");
        let (entry, ty) = (body.entry(), ir::Type::Tensor(TensorType::new(Elem::Bool, Vec::new())));
        let made = body.push(entry, Op::Const(Scalar::Bool(true)), Vec::new(), Some(ty), data.loc);
        body.terminate(entry, Terminator::Return(vec![made.ok_or("a constant without a value")?]));
        let call = map::map("flag", &body, &[], &to)?;
        self.launch(call)
    }

    /// The indices of a tap, in range from here on.
    fn indices_of_tap(&mut self, data: &ir::InstData, extents: &[Dim]) -> Result<Vec<Value>, String> {
        let mut indices = Vec::new();
        for index in self.indices_within(data, data.operands.get(1..).unwrap_or_default(), extents)? {
            let name = self.fresh_root();
            self.indices[name] = Some(index);
            indices.push(name);
        }
        Ok(indices)
    }

    /// Where the tap of these indices writes, in a tap or in flags of this type.
    fn place_of_tap(&mut self, indices: &[Value], name: String, ty: &TensorType) -> View {
        let root = self.fresh_root();
        let mut to = View::whole(root, ty);
        let buffer = tile::Type::Buffer(buffer_type(&to));
        self.roots[root] = Some(self.builder.value(tile::Op::Tap { name }, Vec::new(), buffer));
        for i in indices {
            to = to.select_at(0, *i);
        }
        to
    }
}
