//! Origins of code: the tile operations and program lines that functions are compiled from.
//!
//! In: the functions of an object, and for each the offsets at which the code of another operation
//! begins ([`Places`]). Out: the comments of a listing, and the rows of a line table. Code that
//! belongs to no single operation (loops over the grid, addresses) is marked as such; in a table it
//! belongs to the line before. A leaf that is called from several places is attributed to the first
//! call.

use std::collections::BTreeMap;
use std::sync::Arc;

use cranelift_module::FuncId;

use super::listing::Note;
use crate::source::Loc;
use crate::tile::text::{lines_of_kernel, lines_of_plan};
use crate::tile::{Body, Inst, Kernel, Module, Plan};

/// Offsets at which the code of another operation begins; `None` for code of no operation.
pub(super) type Places = Vec<(u32, Option<Inst>)>;

/// Comments of a code generator, by offset.
pub(super) type Comments = Vec<(u32, String)>;

/// The source of a function.
#[derive(Clone, Debug)]
pub(super) enum Source<'a> {
    Kernel(&'a Kernel),
    Plan {
        plan: &'a Plan,
        /// The module that declares its parameters and kernels.
        module: &'a Module,
        /// The module's kernels, in module order.
        kernels: Kernels,
    },
}

/// How a plan refers to kernels.
#[derive(Clone, Debug)]
pub(super) enum Kernels {
    Functions(Arc<[FuncId]>),
    /// GPU kernels, which the runtime finds by number.
    OfGpu,
}

/// A function and the origin of its code.
#[derive(Clone, Debug)]
pub(super) struct Origin<'a> {
    /// Its id in the object.
    pub(super) id: FuncId,
    pub(super) name: String,
    /// The kernel or plan.
    pub(super) source: Source<'a>,
    /// For a leaf: the operation that it computes, and the functions that call it.
    pub(super) leaf: Option<(Inst, Vec<String>)>,
    pub(super) places: Places,
    /// Comments of the code generator.
    pub(super) comments: Comments,
}

impl Origin<'_> {
    fn body(&self) -> &Body {
        match &self.source {
            Source::Kernel(kernel) => &kernel.body,
            Source::Plan { plan, .. } => &plan.body,
        }
    }

    /// The source location of an operation; for parts of a leaf without one, that of the whole
    /// leaf.
    fn loc(&self, inst: Option<Inst>) -> Option<Loc> {
        let known = |i: Inst| Some(self.body().inst(i).loc).filter(|loc| loc.line > 0);
        inst.and_then(known).or_else(|| self.leaf.as_ref().and_then(|(whole, _)| known(*whole)))
    }

    /// The first known source location.
    pub(super) fn first_line(&self) -> Option<Loc> {
        let own = self.leaf.as_ref().and_then(|(whole, _)| self.loc(Some(*whole)));
        own.or_else(|| self.body().insts().find_map(|(_, i, _)| self.loc(Some(i))))
    }

    /// Rows of a line table: ascending offsets, and the source location that begins there.
    pub(super) fn rows(&self) -> Vec<(u32, Loc)> {
        let mut rows: Vec<(u32, Loc)> = self.first_line().map(|loc| (0, loc)).into_iter().collect();
        for (at, inst) in &self.places {
            let Some(loc) = self.loc(*inst) else { continue };
            match rows.last_mut() {
                Some(last) if last.1 == loc => {}
                Some(last) if last.0 == *at => last.1 = loc,
                _ => rows.push((*at, loc)),
            }
        }
        rows
    }

    /// Tile IR text of each operation.
    pub(super) fn lines(&self) -> BTreeMap<Inst, String> {
        match &self.source {
            Source::Kernel(kernel) => lines_of_kernel(kernel),
            Source::Plan { plan, .. } => lines_of_plan(plan),
        }
    }

    /// The comments before a leaf.
    pub(super) fn of_leaf(&self, module: &Module) -> Vec<String> {
        let Some((whole, callers)) = &self.leaf else { return Vec::new() };
        vec![format!("called by {}", callers.join(", ")), self.operation(*whole, &self.lines(), module)]
    }

    /// The comments of a listing.
    pub(super) fn notes(&self, module: &Module) -> Vec<Note> {
        let lines = self.lines();
        let mut notes = Vec::new();
        let mut note = |at: u32, text: String| notes.push(Note { at, text });
        let mut now = None;
        if let Some((whole, _)) = &self.leaf {
            self.of_leaf(module).into_iter().for_each(|text| note(0, text));
            now = Some(Some(*whole));
        }
        for (n, (at, inst)) in self.places.iter().enumerate() {
            // Operations without code are omitted.
            if self.places.get(n + 1).is_some_and(|next| next.0 == *at) {
                continue;
            }
            let inst = inst.or(self.leaf.as_ref().map(|(whole, _)| *whole));
            if now == Some(inst) {
                continue;
            }
            now = Some(inst);
            note(*at, inst.map_or_else(|| "control flow".to_string(), |i| self.operation(i, &lines, module)));
        }
        for (at, text) in &self.comments {
            note(*at, format!("  {text}"));
        }
        notes.sort_by_key(|n| n.at);
        notes
    }

    /// Source location and text of an operation.
    pub(super) fn operation(&self, inst: Inst, lines: &BTreeMap<Inst, String>, module: &Module) -> String {
        let text = lines.get(&inst).map_or("", String::as_str);
        match self.loc(Some(inst)) {
            Some(loc) => format!("{}:{}:{}  {text}", module.file(loc), loc.line, loc.column),
            None => text.to_string(),
        }
    }
}
