//! Happens-before: vector clocks, which detect unordered accesses.
//!
//! Everything that accesses memory is an *agent* of its block: each thread, each thread's
//! asynchronous copies, each mbarrier (for the copies that complete at it) and each warp's `wgmma`.
//! An agent's accesses carry its *epoch*, which is incremented at each release. For every agent, a
//! thread [knows](Know) the epoch up to which its accesses happened before; barriers, mbarriers,
//! waits and ordered accesses propagate this. An access is ordered after another if its thread
//! knows the other's epoch.
//!
//! `fenced` is the same for the asynchronous proxy: a proxy fence copies the thread's knowledge and
//! its own epoch there.

use std::collections::BTreeMap;
use std::rc::Rc;

/// For each agent of a block the last known epoch; 0 for none.
pub(super) type Clock = Vec<u32>;

/// Identity of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Label {
    /// Index of the block in the grid.
    pub(super) block: u32,
    /// The agent of that block.
    pub(super) agent: u32,
    /// Its epoch, from 1; 0 for no access at all.
    pub(super) epoch: u32,
}

/// The knowledge of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Know {
    /// About its own block.
    pub(super) here: Rc<Clock>,
    /// About its own block, as visible to the asynchronous proxy.
    pub(super) fenced: Rc<Clock>,
    /// About other blocks, by index.
    pub(super) others: Option<Rc<BTreeMap<u32, Rc<Clock>>>>,
}

fn get(clock: &Clock, agent: u32) -> u32 {
    clock.get(agent as usize).copied().unwrap_or(0)
}

/// Sets an agent's epoch, if that is later.
pub(super) fn raise(clock: &mut Clock, agent: u32, epoch: u32) {
    let at = agent as usize;
    if clock.len() <= at {
        clock.resize(at + 1, 0);
    }
    if let Some(known) = clock.get_mut(at) {
        *known = epoch.max(*known);
    }
}

fn join(clock: &mut Rc<Clock>, other: &Rc<Clock>) {
    if Rc::ptr_eq(clock, other) || other.is_empty() {
        return;
    }
    if clock.is_empty() {
        *clock = Rc::clone(other);
        return;
    }
    if clock.len() >= other.len() && clock.iter().zip(other.iter()).all(|(a, b)| a >= b) {
        return;
    }
    let clock = Rc::make_mut(clock);
    if clock.len() < other.len() {
        clock.resize(other.len(), 0);
    }
    for (a, b) in clock.iter_mut().zip(other.iter()) {
        *a = (*a).max(*b);
    }
}

impl Know {
    /// Is an access of its own block known?
    pub(super) fn has(&self, agent: u32, epoch: u32) -> bool {
        get(&self.here, agent) >= epoch
    }

    /// Is an access known? `block` is its own block.
    pub(super) fn has_label(&self, block: u32, label: Label) -> bool {
        if label.block == block {
            return self.has(label.agent, label.epoch);
        }
        let other = self.others.as_ref().and_then(|map| map.get(&label.block));
        other.is_some_and(|clock| get(clock, label.agent) >= label.epoch)
    }

    /// Is an access of its own block visible to the asynchronous proxy?
    pub(super) fn has_fenced(&self, agent: u32, epoch: u32) -> bool {
        get(&self.fenced, agent) >= epoch
    }

    /// Joins the knowledge of another thread of the same block.
    pub(super) fn learn(&mut self, other: &Know) {
        join(&mut self.here, &other.here);
        join(&mut self.fenced, &other.fenced);
        self.learn_others(other);
    }

    fn learn_others(&mut self, other: &Know) {
        match (&mut self.others, &other.others) {
            (_, None) => {}
            (mine @ None, Some(theirs)) => *mine = Some(Rc::clone(theirs)),
            (Some(mine), Some(theirs)) => {
                if !Rc::ptr_eq(mine, theirs) {
                    let mine = Rc::make_mut(mine);
                    for (block, clock) in theirs.iter() {
                        join(mine.entry(*block).or_default(), clock);
                    }
                }
            }
        }
    }

    /// Joins the knowledge of a thread of any block.
    pub(super) fn learn_from(&mut self, own: u32, block: u32, other: &Know) {
        if own == block {
            return self.learn(other);
        }
        self.learn_others(other);
        let others = Rc::make_mut(self.others.get_or_insert_with(Rc::default));
        join(others.entry(block).or_default(), &other.here);
        // Knowledge about the own block that comes back.
        if let Some(back) = others.remove(&own) {
            join(&mut self.here, &back);
        }
    }

    /// Adds an access of its own block.
    pub(super) fn add(&mut self, agent: u32, epoch: u32) {
        if !self.has(agent, epoch) {
            raise(Rc::make_mut(&mut self.here), agent, epoch);
        }
    }

    /// A proxy fence of an agent in its epoch: everything known, and its own accesses, become
    /// visible to the asynchronous proxy.
    pub(super) fn fence(&mut self, agent: u32, epoch: u32) {
        let mut here = Rc::clone(&self.here);
        join(&mut here, &self.fenced);
        raise(Rc::make_mut(&mut here), agent, epoch);
        self.fenced = here;
    }
}

/// The joined knowledge of arrived threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Gather {
    know: Know,
    /// A cache of the last addition: threads of a warp usually share their knowledge.
    last: Option<Rc<Know>>,
}

impl Gather {
    /// A thread of the block arrives in its epoch.
    pub(super) fn arrive(&mut self, know: &Rc<Know>, agent: u32, epoch: u32) {
        if !self.last.as_ref().is_some_and(|last| Rc::ptr_eq(last, know)) {
            self.know.learn(know);
            self.last = Some(Rc::clone(know));
        }
        self.know.add(agent, epoch);
    }

    /// A thread of any block arrives.
    pub(super) fn arrive_from(&mut self, own: u32, block: u32, know: &Know) {
        self.know.learn_from(own, block, know);
        self.last = None;
    }

    /// An agent's accesses are complete.
    pub(super) fn complete(&mut self, agent: u32, epoch: u32) {
        self.know.add(agent, epoch);
    }

    /// Takes the joined knowledge, and resets.
    pub(super) fn take(&mut self) -> Know {
        self.last = None;
        std::mem::take(&mut self.know)
    }
}

/// Joins a message into several lanes, which usually share their knowledge.
#[derive(Default)]
pub(super) struct Learner {
    last: Option<(Rc<Know>, Rc<Know>)>,
}

impl Learner {
    /// Joins a message into a thread's knowledge; `own` is its block.
    pub(super) fn learn(&mut self, know: &mut Rc<Know>, own: u32, block: u32, message: &Know) {
        if let Some((before, after)) = &self.last
            && Rc::ptr_eq(before, know)
        {
            *know = Rc::clone(after);
            return;
        }
        let before = Rc::clone(know);
        let mut new = Know::clone(know);
        new.learn_from(own, block, message);
        *know = Rc::new(new);
        self.last = Some((before, Rc::clone(know)));
    }
}
