//! Line tables (DWARF 5): maps machine code to lines of the program, for debuggers and profilers.
//!
//! In: an object before it is written, and the origins of its functions. Out: the sections
//! `.debug_line`, `.debug_info` and the sections that these refer to: one unit, named after the
//! program's file, with a function for each kernel, plan and leaf. Files have only base names, so
//! the bytes do not depend on the program's directory.

use std::collections::BTreeMap;

use cranelift_module::FuncId;
use cranelift_object::ObjectProduct;
use gimli::constants;
use gimli::write::{
    Address, AttributeValue, DwarfUnit, EndianVec, LineProgram, LineString, RelocateWriter, Relocation,
    RelocationTarget, Sections,
};
use gimli::{Encoding, Format, LineEncoding, LittleEndian};
use object::write::{Relocation as ObjectRelocation, SymbolId};
use object::{RelocationEncoding, RelocationFlags, RelocationKind, SectionKind};

use super::origins::Origin;
use crate::tile::Module;

/// A section being written, and its relocations.
#[derive(Clone)]
struct Section {
    bytes: EndianVec<LittleEndian>,
    relocations: Vec<Relocation>,
}

impl RelocateWriter for Section {
    type Writer = EndianVec<LittleEndian>;

    fn writer(&self) -> &Self::Writer {
        &self.bytes
    }

    fn writer_mut(&mut self) -> &mut Self::Writer {
        &mut self.bytes
    }

    fn relocate(&mut self, relocation: Relocation) {
        self.relocations.push(relocation);
    }
}

/// Adds the line table of all functions to an object; `module` has the file names.
///
/// # Errors
/// The error of the DWARF or object writer: a bug in attnc.
pub(super) fn add(
    product: &mut ObjectProduct,
    origins: &BTreeMap<FuncId, Origin<'_>>,
    module: &Module,
) -> Result<(), String> {
    let functions: Vec<&Origin<'_>> = origins.values().collect();
    let symbols: Vec<SymbolId> = functions.iter().map(|f| product.function_symbol(f.id)).collect();
    let ranges: Vec<(u64, u64)> =
        symbols.iter().map(|s| product.object.symbol(*s)).map(|s| (s.value, s.size)).collect();
    let text = |e: gimli::write::Error| format!("line table: {e}");
    let mut dwarf = unit(&functions, &ranges, module);
    let empty = Section { bytes: EndianVec::new(LittleEndian), relocations: Vec::new() };
    let mut sections = Sections::new(empty);
    dwarf.write(&mut sections).map_err(text)?;

    // All sections first, since they refer to each other.
    let mut added = Vec::new();
    sections.for_each(|id, section| -> Result<(), String> {
        if !section.bytes.slice().is_empty() {
            let place = product.object.add_section(Vec::new(), id.name().as_bytes().to_vec(), SectionKind::Debug);
            product.object.append_section_data(place, section.bytes.slice(), 1);
            added.push((id, place, section.relocations.clone()));
        }
        Ok(())
    })?;
    let places: BTreeMap<&str, _> = added.iter().map(|(id, place, _)| (id.name(), *place)).collect();
    for (_, place, relocations) in &added {
        for r in relocations {
            let symbol = match r.target {
                RelocationTarget::Symbol(n) => *symbols.get(n).ok_or("a line table entry without a function")?,
                RelocationTarget::Section(id) => {
                    let target = places.get(id.name()).ok_or("a relocation against a missing section")?;
                    product.object.section_symbol(*target)
                }
            };
            let flags = RelocationFlags::Generic {
                kind: RelocationKind::Absolute,
                encoding: RelocationEncoding::Generic,
                size: r.size * 8,
            };
            let relocation = ObjectRelocation { offset: r.offset as u64, symbol, addend: r.addend, flags };
            product.object.add_relocation(*place, relocation).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// A valid file name for the table: not empty, and without zero bytes.
fn base_name(name: &str) -> Vec<u8> {
    let name = if name.is_empty() { "?" } else { name };
    name.bytes().map(|b| if b == 0 { b'?' } else { b }).collect()
}

/// The compilation unit, given the address and size of each function.
fn unit(functions: &[&Origin<'_>], ranges: &[(u64, u64)], module: &Module) -> DwarfUnit {
    let encoding = Encoding { format: Format::Dwarf32, version: 5, address_size: 8 };
    let name = || LineString::String(base_name(&module.name));
    let folder = LineString::String(b".".to_vec());
    let mut lines = LineProgram::new(encoding, LineEncoding::default(), folder, None, name(), None);
    let folder = lines.default_directory();
    let mut files = BTreeMap::new();
    let mut rows = Vec::new();
    for f in functions {
        let own = f.rows();
        for (_, loc) in &own {
            let base = base_name(module.file(*loc));
            files.entry(loc.file).or_insert_with(|| lines.add_file(LineString::String(base), folder, None));
        }
        rows.push(own);
    }
    for (n, (own, (_, size))) in rows.iter().zip(ranges).enumerate() {
        if own.is_empty() {
            continue;
        }
        lines.begin_sequence(Some(Address::Symbol { symbol: n, addend: 0 }));
        for (at, loc) in own {
            let Some(file) = files.get(&loc.file) else { continue };
            let row = lines.row();
            row.address_offset = u64::from(*at);
            row.file = *file;
            row.line = u64::from(loc.line);
            row.column = u64::from(loc.column);
            lines.generate_row();
        }
        lines.end_sequence(*size);
    }
    let mut dwarf = DwarfUnit::new(encoding);
    dwarf.unit.line_program = lines;
    let root = dwarf.unit.root();
    let producer = dwarf.strings.add(concat!("attnc ", env!("CARGO_PKG_VERSION")));
    let (name, folder) = (dwarf.strings.add(module.name.clone()), dwarf.strings.add("."));
    let unit = dwarf.unit.get_mut(root);
    unit.set(constants::DW_AT_producer, AttributeValue::StringRef(producer));
    // Debuggers do not know the language; for assembly they show addresses, registers and lines.
    unit.set(constants::DW_AT_language, AttributeValue::Language(constants::DW_LANG_Mips_Assembler));
    unit.set(constants::DW_AT_name, AttributeValue::StringRef(name));
    unit.set(constants::DW_AT_comp_dir, AttributeValue::StringRef(folder));
    unit.set(constants::DW_AT_stmt_list, AttributeValue::LineProgramRef);
    // Functions are consecutive, with padding between them; the unit spans the first to the last.
    if let Some((first, (start, _))) = ranges.iter().enumerate().min_by_key(|(_, (start, _))| *start) {
        let end = ranges.iter().map(|(start, size)| start + size).max().unwrap_or(*start);
        unit.set(constants::DW_AT_low_pc, AttributeValue::Address(Address::Symbol { symbol: first, addend: 0 }));
        unit.set(constants::DW_AT_high_pc, AttributeValue::Udata(end - start));
    }
    for (n, (f, (_, size))) in functions.iter().zip(ranges).enumerate() {
        let name = dwarf.strings.add(f.name.clone());
        let entry = dwarf.unit.add(root, constants::DW_TAG_subprogram);
        let place = f.first_line().and_then(|loc| Some((*files.get(&loc.file)?, loc.line)));
        let entry = dwarf.unit.get_mut(entry);
        entry.set(constants::DW_AT_name, AttributeValue::StringRef(name));
        let low = Address::Symbol { symbol: n, addend: 0 };
        entry.set(constants::DW_AT_low_pc, AttributeValue::Address(low));
        entry.set(constants::DW_AT_high_pc, AttributeValue::Udata(*size));
        if let Some((file, line)) = place {
            entry.set(constants::DW_AT_decl_file, AttributeValue::FileIndex(Some(file)));
            entry.set(constants::DW_AT_decl_line, AttributeValue::Udata(u64::from(line)));
        }
    }
    dwarf
}
