//! Adds the descriptor to the object file under construction.
//!
//! In: a Cranelift module in which the plans are declared under the names that the descriptor uses.
//! Out: one more data object in it. Nothing else in the runtime uses Cranelift.

use cranelift_module::{DataDescription, FuncOrDataId, Linkage, Module};

use super::abi::{DESCRIPTOR_SYMBOL, NAME_PREFIX};
use super::descriptor::{ALIGN, ModelDescriptor, Target, serialise};

/// Defines the descriptor of `model` in `module`, in which every plan that it names must have been
/// declared.
///
/// # Errors
/// An inconsistent descriptor, or one that names an undeclared function: internal errors.
pub fn define(module: &mut dyn Module, model: &ModelDescriptor) -> Result<(), String> {
    let image = serialise(model)?;
    let id = module.declare_data(DESCRIPTOR_SYMBOL, Linkage::Hidden, false, false).map_err(|e| e.to_string())?;
    let mut data = DataDescription::new();
    data.define(image.bytes.into_boxed_slice());
    data.set_align(ALIGN);
    let own = module.declare_data_in_data(id, &mut data);
    for r in image.relocations {
        let offset = u32::try_from(r.offset).map_err(|_| "the descriptor is too large".to_owned())?;
        match r.target {
            Target::Own(place) => {
                data.write_data_addr(offset, own, i64::try_from(place).map_err(|e| e.to_string())?);
            }
            Target::Function(name) => match module.get_name(&name) {
                Some(FuncOrDataId::Func(f)) => {
                    let f = module.declare_func_in_data(f, &mut data);
                    data.write_function_addr(offset, f);
                }
                _ => return Err(format!("the descriptor names the function `{name}`, which is not declared")),
            },
        }
    }
    module.define_data(id, &data).map_err(|e| e.to_string())?;
    // Tells the linker the model's name.
    let name = format!("{NAME_PREFIX}{}", model.symbol());
    let id = module.declare_data(&name, Linkage::Hidden, false, false).map_err(|e| e.to_string())?;
    let mut data = DataDescription::new();
    data.define(Box::new([0]));
    module.define_data(id, &data).map_err(|e| e.to_string())
}
