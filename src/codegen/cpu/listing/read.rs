//! Reads functions from an object file.
//!
//! In: the bytes of an ELF object for x86-64. Out: its functions by name, each with its bytes and
//! relocations. A relocation against a section and an offset is shown as the symbol at that offset.

use std::collections::BTreeMap;

use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget, SymbolKind, elf,
};

use super::{Function, Reference};

/// The functions of an object.
///
/// # Errors
/// A malformed or inconsistent object: a bug in attnc.
pub(in crate::codegen::cpu) fn functions(object: &[u8]) -> Result<BTreeMap<&str, Function<'_>>, String> {
    let file = ElfFile64::<Endianness>::parse(object).map_err(|e| e.to_string())?;
    let mut out = BTreeMap::new();
    let mut symbols = Vec::new();
    for s in file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_definition()) {
        symbols.push((s.name().map_err(|e| e.to_string())?, s));
    }
    for (name, s) in &symbols {
        let section = s.section_index().ok_or("a function without a section")?;
        let section = file.section_by_index(section).map_err(|e| e.to_string())?;
        let data = section.data().map_err(|e| e.to_string())?;
        let (start, end) = (s.address(), s.address() + s.size());
        let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let bytes = data.get(place(start)..place(end)).ok_or("a function outside of its section")?;
        let mut references = Vec::new();
        for (at, r) in section.relocations() {
            if !(start..end).contains(&at) {
                continue;
            }
            let RelocationTarget::Symbol(target) = r.target() else {
                return Err("a relocation without a symbol".into());
            };
            let target: ElfSymbol64<'_, '_, Endianness> = file.symbol_by_index(target).map_err(|e| e.to_string())?;
            let indirect = matches!(r.flags(), RelocationFlags::Elf { r_type: elf::R_X86_64_GOTPCREL });
            let (mut symbol, mut addend) = (target.name().map_err(|e| e.to_string())?, r.addend());
            if target.kind() == SymbolKind::Section {
                let meant = addend + 4;
                let here = symbols.iter().find(|(_, s)| {
                    s.section_index() == target.section_index() && i64::try_from(s.address()) == Ok(meant)
                });
                (symbol, addend) = (here.ok_or("a relocation to an unknown function")?.0, -4);
            }
            references.push(Reference { at: at - start, symbol: symbol.to_string(), addend, indirect });
        }
        references.sort_by_key(|r| r.at);
        out.insert(*name, Function { name, address: start, bytes, references });
    }
    Ok(out)
}
