//! Shadow memory: records the last accesses to each byte and finds unordered ones.
//!
//! In: accesses to a region of memory, each with its agent and the agent's knowledge. Out: the
//! earlier access that it conflicts with, if any. Four bytes share a cell as long as they are
//! accessed together; afterwards each has its own.

use super::clock::{Know, Label};
use super::timeline::Watch;
use crate::ptx::words::Scope;

/// Synchronisation scope of an access: plain, or ordered within a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Reach {
    #[default]
    Plain,
    /// Ordered among threads of the block.
    Block,
    /// Ordered among threads of the cluster.
    Cluster,
    /// Ordered among all threads.
    Grid,
}

impl Reach {
    /// The reach of an ordered access with a PTX scope.
    pub(super) fn among(scope: Scope) -> Reach {
        match scope {
            Scope::Block => Reach::Block,
            Scope::Cluster => Reach::Cluster,
            Scope::Gpu | Scope::System => Reach::Grid,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Access<'a> {
    /// The agent, with its block and epoch.
    pub(super) label: Label,
    /// Knowledge of the thread that executes or issued it.
    pub(super) know: &'a Know,
    pub(super) reach: Reach,
    /// Is it an access of the asynchronous proxy?
    pub(super) is_async: bool,
    /// The thread that executes or issued it: its own accesses are ordered before.
    pub(super) thread: u32,
    /// Index of that thread's block.
    pub(super) own: u32,
}

/// An earlier access that is not ordered before this one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    pub(super) other: Label,
    /// Was it a write?
    pub(super) was_write: bool,
    /// Is it ordered, but a proxy fence is missing?
    pub(super) needs_fence: bool,
    /// Offset of the byte in the region.
    pub(super) at: usize,
}

/// Lanes of a warp, or one agent, that read in an epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    block: u32,
    /// The agent of bit 0.
    base: u32,
    epoch: u32,
    /// Bit set of agents, starting at `base`; 0 if empty.
    mask: u32,
    reach: Reach,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    writer: Label,
    writer_reach: Reach,
    writer_async: bool,
    reader: Reader,
    /// Further readers: an index into `more`, plus 1.
    more: u32,
    /// The bytes of the cell that are accessed together.
    mask: u8,
    /// A cell for each byte: an index into `parts`, plus 1.
    parts: u32,
}

/// Cells per page.
const PAGE: usize = 256;
/// Maximum readers per cell; if more blocks read it, the earliest are forgotten.
const MAX_READERS: usize = 48;

/// The accesses to a region.
#[derive(Default)]
pub(super) struct Shadow {
    pages: Vec<Option<Box<[Cell]>>>,
    parts: Vec<[Cell; 4]>,
    more: Vec<Vec<Reader>>,
    /// Records access times for the timeline, if enabled.
    pub(super) watch: Option<Box<Watch>>,
}

impl Shadow {
    /// Records an access of `n` bytes.
    pub(super) fn note(&mut self, at: usize, n: usize, write: bool, a: &Access<'_>) -> Result<(), Conflict> {
        // Writes of copies are recorded on arrival.
        if let Some(watch) = &mut self.watch
            && (!write || a.label.agent == a.thread)
        {
            watch.note(at, n, write);
        }
        let (first, last) = (at / 4, (at + n.max(1) - 1) / 4);
        for word in first..=last {
            let from = at.max(word * 4) - word * 4;
            let to = (at + n).min(word * 4 + 4) - word * 4;
            let mask = ((1u16 << to) - (1u16 << from)) as u8;
            let page = word / PAGE;
            if self.pages.len() <= page {
                self.pages.resize_with(page + 1, || None);
            }
            let Some(slot) = self.pages.get_mut(page) else { continue };
            let cells = slot.get_or_insert_with(|| vec![Cell::default(); PAGE].into_boxed_slice());
            let Some(cell) = cells.get_mut(word % PAGE) else { continue };
            if cell.parts == 0 && (cell.mask == 0 || cell.mask == mask) {
                cell.mask = mask;
                note(cell, &mut self.more, write, a).map_err(|c| Conflict { at: word * 4 + from, ..c })?;
                continue;
            }
            if cell.parts == 0 {
                let mut four = [Cell::default(); 4];
                for (i, part) in four.iter_mut().enumerate() {
                    if cell.mask >> i & 1 == 1 {
                        *part = *cell;
                        // Reader lists are not shared.
                        if cell.more != 0 {
                            let list = self.more.get(cell.more as usize - 1).cloned().unwrap_or_default();
                            self.more.push(list);
                            part.more = self.more.len() as u32;
                        }
                    }
                }
                self.parts.push(four);
                cell.parts = self.parts.len() as u32;
            }
            let Some(four) = self.parts.get_mut(cell.parts as usize - 1) else { continue };
            for (i, part) in four.iter_mut().enumerate() {
                if mask >> i & 1 == 1 {
                    note(part, &mut self.more, write, a).map_err(|c| Conflict { at: word * 4 + i, ..c })?;
                }
            }
        }
        Ok(())
    }

    /// Was any of the bytes written?
    pub(super) fn is_written(&self, at: usize, n: usize) -> bool {
        (at / 4..=(at + n.max(1) - 1) / 4).any(|word| {
            let page = self.pages.get(word / PAGE).and_then(Option::as_ref);
            page.and_then(|cells| cells.get(word % PAGE)).is_some_and(|cell| match cell.parts {
                0 => cell.writer.epoch != 0,
                n => self.parts.get(n as usize - 1).is_some_and(|four| four.iter().any(|c| c.writer.epoch != 0)),
            })
        })
    }
}

/// May two accesses be unordered because both synchronise?
fn both_ordered(a: Reach, b: Reach, same_block: bool) -> bool {
    let least = if same_block { Reach::Block } else { Reach::Cluster };
    a >= least && b >= least
}

fn is_own(other: Label, a: &Access<'_>) -> bool {
    other.block == a.own && other.agent == a.thread
}

fn note(cell: &mut Cell, more: &mut Vec<Vec<Reader>>, write: bool, a: &Access<'_>) -> Result<(), Conflict> {
    let block = a.own;
    let w = cell.writer;
    if w.epoch != 0 && !both_ordered(cell.writer_reach, a.reach, w.block == block) {
        let conflict = Conflict { other: w, was_write: true, needs_fence: false, at: 0 };
        if !is_own(w, a) && !a.know.has_label(block, w) {
            return Err(conflict);
        }
        if a.is_async && !cell.writer_async && w.block == block && !a.know.has_fenced(w.agent, w.epoch) {
            return Err(Conflict { needs_fence: true, ..conflict });
        }
    }
    if !write {
        read(cell, more, a);
        return Ok(());
    }
    check_reader(&cell.reader, a)?;
    if cell.more != 0
        && let Some(list) = more.get_mut(cell.more as usize - 1)
    {
        for r in list.iter() {
            check_reader(r, a)?;
        }
        list.clear();
    }
    cell.reader = Reader::default();
    cell.writer = a.label;
    cell.writer_reach = a.reach;
    cell.writer_async = a.is_async;
    Ok(())
}

/// Are all reads of a reader ordered before a write?
fn check_reader(r: &Reader, a: &Access<'_>) -> Result<(), Conflict> {
    if r.mask == 0 || both_ordered(r.reach, a.reach, r.block == a.label.block) {
        return Ok(());
    }
    let mut mask = r.mask;
    while mask != 0 {
        let other = Label { block: r.block, agent: r.base + mask.trailing_zeros(), epoch: r.epoch };
        if !is_own(other, a) && !a.know.has_label(a.own, other) {
            return Err(Conflict { other, was_write: false, needs_fence: false, at: 0 });
        }
        mask &= mask - 1;
    }
    Ok(())
}

/// Is a reader ordered before this access, which therefore subsumes it?
fn is_before(r: &Reader, a: &Access<'_>) -> bool {
    // An ordered read does not subsume a plain one.
    a.reach <= r.reach && check_reader(&Reader { reach: Reach::Plain, ..*r }, a).is_ok()
}

fn read(cell: &mut Cell, more: &mut Vec<Vec<Reader>>, a: &Access<'_>) {
    let bit = a.label.agent % 32;
    let new = Reader {
        block: a.label.block,
        base: a.label.agent - bit,
        epoch: a.label.epoch,
        mask: 1 << bit,
        reach: a.reach,
    };
    let alike =
        |r: &Reader| r.mask != 0 && (r.block, r.base, r.epoch, r.reach) == (new.block, new.base, new.epoch, new.reach);
    if alike(&cell.reader) {
        cell.reader.mask |= new.mask;
        return;
    }
    if cell.reader.mask == 0 || is_before(&cell.reader, a) {
        cell.reader = new;
        if cell.more == 0 {
            return;
        }
        if let Some(list) = more.get_mut(cell.more as usize - 1) {
            list.retain(|r| !is_before(r, a));
        }
        return;
    }
    if cell.more == 0 {
        more.push(Vec::new());
        cell.more = more.len() as u32;
    }
    let Some(list) = more.get_mut(cell.more as usize - 1) else { return };
    if let Some(r) = list.iter_mut().rev().take(16).find(|r| alike(r)) {
        r.mask |= new.mask;
        return;
    }
    list.retain(|r| !is_before(r, a));
    if list.len() >= MAX_READERS {
        list.remove(0);
    }
    list.push(new);
}
