//! Decides what to pin, prepare, publish and delete next, from the archives that are seen, pinned,
//! ready and published. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};

use slotpress_format::{ArchiveName, Hash};
use slotpress_read::catalog::Archive;

use super::retry::Retry;
use super::{Planner, TargetState};

/// Identifies a state by base slot, slot and hash. Archives of one state with different compression
/// have the same key.
pub type StateKey = (Option<u64>, u64, Hash);

pub fn key(name: &ArchiveName) -> StateKey {
    (name.base_slot, name.slot, name.hash)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveSet {
    pub keys: BTreeSet<StateKey>,
    /// Archives that `rebase` made: they are never the newest.
    pub rebased: BTreeSet<StateKey>,
}

impl ArchiveSet {
    pub fn from_archives<'a>(archives: impl IntoIterator<Item = &'a Archive>) -> Self {
        let mut set = Self::default();
        for archive in archives {
            set.keys.insert(key(&archive.name));
            set.rebased.extend(archive.is_rebased().then(|| key(&archive.name)));
        }
        set
    }

    fn fulls(&self) -> impl DoubleEndedIterator<Item = &StateKey> {
        self.keys.iter().filter(|(base, ..)| base.is_none())
    }

    fn newest_full(&self) -> Option<u64> {
        self.fulls().next_back().map(|(_, slot, _)| *slot)
    }

    fn newest_incremental_on(&self, base: u64) -> Option<u64> {
        let incrementals = self.keys.iter().rev().filter(|key| key.0 == Some(base) && !self.rebased.contains(*key));
        incrementals.map(|(_, slot, _)| *slot).next()
    }

    /// True if a target with these archives lacks this one, and would become newer with it. An
    /// incremental archive must be based on the target's newest full archive.
    pub fn wants(&self, name: &ArchiveName) -> bool {
        let newest_full = self.newest_full();
        match name.base_slot {
            _ if self.keys.contains(&key(name)) => false,
            None => newest_full.is_none_or(|newest| newest < name.slot),
            Some(base) => {
                newest_full == Some(base) && self.newest_incremental_on(base).is_none_or(|newest| newest < name.slot)
            }
        }
    }

    fn plus<'a>(&self, names: impl IntoIterator<Item = &'a ArchiveName>) -> Self {
        let mut with = self.clone();
        with.keys.extend(names.into_iter().map(key));
        with
    }

    /// Returns the rebased states that are missing: those of the newest full archive on each of the
    /// `onto` full archives before it.
    fn lacked_rebased(&self, onto: usize) -> BTreeSet<StateKey> {
        let mut fulls = self.fulls().rev();
        let Some((_, new, hash)) = fulls.next() else { return BTreeSet::new() };
        let older = fulls.map(|(_, slot, _)| *slot).filter(|slot| slot < new).take(onto);
        older.map(|old| (Some(old), *new, *hash)).filter(|key| !self.keys.contains(key)).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinChanges {
    pub add: Vec<ArchiveName>,
    pub drop: Vec<ArchiveName>,
    pub no_room: Vec<ArchiveName>,
}

impl TargetState {
    /// True if the target has not answered yet: nothing is prepared for it.
    pub fn is_silent(&self) -> bool {
        !self.is_known && self.retry.failures == 0
    }

    fn published(&self) -> &ArchiveSet {
        &self.contents.published
    }

    /// True if the target is a directory that has both full archives from which this rebased state
    /// is made.
    pub fn can_rebase(&self, (base, slot, hash): &StateKey) -> bool {
        let is_base = |key: &StateKey| key.0.is_none() && Some(key.1) == *base;
        let has = &self.published().keys;
        self.is_dir && has.contains(&(None, *slot, *hash)) && has.iter().any(is_base)
    }
}

impl Planner<'_> {
    pub fn retry_of(&self, key: &StateKey) -> Retry {
        self.retries.get(key).copied().unwrap_or_default()
    }

    fn candidates(&self) -> BTreeMap<StateKey, &Archive> {
        // A pinned archive takes precedence over a seen one of the same state, which may vanish.
        let all = self.facts.seen.iter().chain(&self.facts.pinned);
        all.map(|archive| (key(&archive.name), archive)).filter(|(key, _)| !self.retry_of(key).is_refused()).collect()
    }

    fn ready_names(&self) -> impl Iterator<Item = &ArchiveName> {
        self.facts.ready.iter().map(|ready| &ready.archive.name)
    }

    /// Returns ready archives that `rebase` made from a full archive that a target has.
    pub fn rebased_ready(&self) -> BTreeSet<StateKey> {
        let ready = self.facts.ready.iter().map(|ready| &ready.archive);
        let mut rebased = ArchiveSet::from_archives(ready).rebased;
        rebased.retain(|(_, slot, hash)| {
            let full = (None, *slot, *hash);
            self.targets.iter().any(|target| target.published().keys.contains(&full))
        });
        rebased
    }

    /// Returns the contents that each target will have once all ready archives are published. Leaves
    /// out targets that have not answered.
    fn later_contents(&self) -> Vec<ArchiveSet> {
        let rebased = self.rebased_ready();
        let answering = self.targets.iter().filter(|target| !target.is_silent());
        let later = answering.map(|target| {
            let mut later = target.published().plus(self.ready_names());
            later.rebased.extend(&rebased);
            later
        });
        later.collect()
    }

    /// True if an archive may be prepared: full ones always, incremental ones when their turn
    /// comes. An archive that failed keeps its turn.
    fn has_turn(&self, key: &StateKey) -> bool {
        let every = self.options.every;
        let is_due = if self.options.once {
            !self.has_begun_incremental
        } else {
            self.facts.since_incremental.is_none_or(|since| since >= every)
        };
        key.0.is_none() || self.retries.contains_key(key) || is_due
    }

    /// Returns the archives of a kind that have their turn, and that a target will still want when all
    /// ready ones are published. The newest comes last.
    fn wanted_archives(&self, is_full: bool) -> Vec<&Archive> {
        let later = self.later_contents();
        let candidates = self.candidates();
        let mut wanted = Vec::from_iter(candidates.into_values());
        wanted.retain(|archive| archive.is_full() == is_full && self.has_turn(&key(&archive.name)));
        wanted.retain(|archive| later.iter().any(|target| target.wants(&archive.name)));
        wanted.sort_by_key(|archive| archive.name.slot);
        wanted
    }

    fn choose_next(&self, is_full: bool) -> Option<&Archive> {
        let is_first = |archive: &&Archive| {
            let retry = self.retry_of(&key(&archive.name));
            !retry.lets_others_go(self.options.once, self.now)
        };
        self.wanted_archives(is_full).into_iter().rfind(is_first)
    }

    /// Chooses the next archive to check and recompress: the newest full one, then the newest
    /// incremental one.
    pub fn next_to_prepare(&self) -> Option<&Archive> {
        if self.preparing.is_some() {
            return None;
        }
        self.choose_next(true).or_else(|| self.choose_next(false))
    }

    pub fn choose_pins(&self) -> PinChanges {
        let candidates = self.candidates();
        let next_full = self.choose_next(true);
        let preparing = self.preparing.as_ref().map(key);
        let mut wanted = vec![self.wanted_archives(true).pop(), next_full];
        // An incremental archive that is pinned while another one is prepared would be old when its
        // turn comes.
        if preparing.is_none() && next_full.is_none() {
            wanted.extend([self.wanted_archives(false).pop(), self.choose_next(false)]);
        }
        // An archive that waits after failures is tried again, and stays pinned until then.
        let wanted = wanted.into_iter().flatten().map(|archive| key(&archive.name));
        let pinned = ArchiveSet::from_archives(&self.facts.pinned).keys;
        let mut pins = PinChanges::default();
        let mut bytes = 0u64;
        let mut stay = BTreeSet::new();
        for needed in preparing.into_iter().chain(wanted) {
            if stay.contains(&needed) {
                continue;
            }
            let Some(archive) = candidates.get(&needed) else { continue };
            let new_bytes = bytes.saturating_add(archive.size_bytes);
            if self.options.pin_bytes.is_none_or(|bytes_max| new_bytes <= bytes_max) || preparing == Some(needed) {
                bytes = new_bytes;
                stay.insert(needed);
                if !pinned.contains(&needed) {
                    pins.add.push(archive.name.clone());
                }
            } else if !pins.no_room.contains(&archive.name) {
                pins.no_room.push(archive.name.clone());
            }
        }
        let unneeded = self.facts.pinned.iter().filter(|archive| !stay.contains(&key(&archive.name)));
        pins.drop = unneeded.map(|archive| archive.name.clone()).collect();
        pins
    }

    /// Chooses the next archive for a target: the newest full one, then the newest incremental one
    /// based on it.
    pub fn next_to_publish(&self, target: &TargetState) -> Option<&ArchiveName> {
        let has = target.published();
        self.newest_ready(has, true).or_else(|| self.newest_ready(has, false))
    }

    fn newest_ready(&self, has: &ArchiveSet, is_full: bool) -> Option<&ArchiveName> {
        let rebased = self.rebased_ready();
        let mut wanted = Vec::from_iter(self.ready_names());
        wanted.retain(|name| name.base_slot.is_none() == is_full && has.wants(name));
        wanted.retain(|name| !rebased.contains(&key(name)));
        wanted.into_iter().max_by_key(|name| name.slot)
    }

    /// Returns the rebased states that a target lacks, now or as soon as it has the full archive that
    /// is ready for it.
    pub fn lacked_rebased(&self, target: &TargetState) -> BTreeSet<StateKey> {
        let has = target.published();
        has.plus(self.newest_ready(has, true)).lacked_rebased(self.options.rebase_onto)
    }

    /// Returns the rebased states to be made; none while a newer full archive is to be prepared.
    pub fn needed_rebases(&self) -> BTreeSet<StateKey> {
        let lacked: BTreeSet<StateKey> = self.targets.iter().flat_map(|target| self.lacked_rebased(target)).collect();
        if lacked.is_empty() || self.choose_next(true).is_some() {
            return BTreeSet::new();
        }
        let ready: BTreeSet<StateKey> = self.ready_names().map(key).collect();
        let mut to_rebase = &lacked - &ready;
        to_rebase.retain(|key| !self.retry_of(key).is_refused());
        to_rebase.retain(|key| self.targets.iter().any(|target| target.can_rebase(key)));
        to_rebase
    }

    /// Chooses a rebased archive for a target that has nothing else to publish.
    pub fn next_rebased(&self, target: &TargetState) -> Option<&ArchiveName> {
        let lacked = self.lacked_rebased(target);
        let rebased = self.rebased_ready();
        self.ready_names().find(|name| lacked.contains(&key(name)) && rebased.contains(&key(name)))
    }

    pub fn next_for(&self, target: &TargetState) -> Option<&ArchiveName> {
        self.next_to_publish(target).or_else(|| self.next_rebased(target))
    }

    /// Returns ready archives that no target wants, or that newer ready ones replace.
    pub fn find_unneeded(&self) -> Vec<&ArchiveName> {
        let mut wanted = BTreeSet::new();
        let rebased = self.rebased_ready();
        for target in &self.targets {
            wanted.extend(self.lacked_rebased(target).intersection(&rebased));
            let has = target.published();
            let full = self.newest_ready(has, true);
            let incremental = self.newest_ready(&has.plus(full), false);
            wanted.extend(full.into_iter().chain(incremental).map(key));
        }
        self.ready_names().filter(|name| !wanted.contains(&key(name))).collect()
    }
}
