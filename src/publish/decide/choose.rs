//! Decides what to pin, prepare, publish and delete next, from the archives seen, pinned, ready and published. Does no
//! I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use slotpress_format::{ArchiveName, Hash};
use slotpress_read::catalog::Archive;

/// Identifies a state by base slot, slot and hash. Archives of one state with different compression count as the same.
pub type Key = (Option<u64>, u64, Hash);

pub fn key(name: &ArchiveName) -> Key {
    (name.base_slot, name.slot, name.hash)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveSet {
    pub keys: BTreeSet<Key>,
    /// Those of them that `rebase` made: never the newest.
    pub rebased: BTreeSet<Key>,
    /// True if the target has not answered: nothing is prepared for it.
    pub is_silent: bool,
    /// True if it is a directory: what is to be rebased can be read there.
    pub is_dir: bool,
}

impl ArchiveSet {
    pub fn of<'a>(names: impl IntoIterator<Item = &'a ArchiveName>) -> Self {
        Self { keys: names.into_iter().map(key).collect(), ..Self::default() }
    }

    fn newest_full(&self) -> Option<u64> {
        self.keys.iter().filter(|(base, ..)| base.is_none()).map(|(_, slot, _)| *slot).max()
    }

    fn newest_incremental_on(&self, base: u64) -> Option<u64> {
        self.keys.difference(&self.rebased).filter(|key| key.0 == Some(base)).map(|(_, slot, _)| *slot).max()
    }

    /// True if the target lacks this archive and would become newer by it. An incremental archive must be based on the
    /// target's newest full archive.
    pub fn wants(&self, name: &ArchiveName) -> bool {
        let newest_full = self.newest_full();
        match name.base_slot {
            _ if self.is_silent || self.keys.contains(&key(name)) => false,
            None => newest_full.is_none_or(|newest| newest < name.slot),
            Some(base) => {
                newest_full == Some(base) && self.newest_incremental_on(base).is_none_or(|newest| newest < name.slot)
            }
        }
    }

    fn with<'a>(&self, ready: impl Iterator<Item = &'a ArchiveName>) -> Self {
        Self { keys: self.keys.iter().copied().chain(ready.map(key)).collect(), ..self.clone() }
    }

    /// Rebased states that the target lacks: the newest full archive on each of the `onto` newest older ones.
    pub fn lacked_rebased(&self, onto: usize) -> BTreeSet<Key> {
        let mut fulls = self.keys.iter().rev().filter(|(base, ..)| base.is_none() && !self.is_silent);
        let Some((_, new, hash)) = fulls.next() else { return BTreeSet::new() };
        let older = fulls.map(|(_, slot, _)| *slot).filter(|slot| slot < new).take(onto);
        older.map(|old| (Some(old), *new, *hash)).filter(|key| !self.keys.contains(key)).collect()
    }

    /// True if it is a directory with both full archives of which this rebased state is made.
    pub fn can_rebase(&self, (base, slot, hash): &Key) -> bool {
        let is_base = |key: &Key| key.0.is_none() && Some(key.1) == *base;
        self.is_dir && self.keys.contains(&(None, *slot, *hash)) && self.keys.iter().any(is_base)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Situation {
    pub seen: Vec<Archive>,
    pub pinned: Vec<Archive>,
    pub ready: Vec<ArchiveName>,
    /// States in `ready` that were rebased here: a target has the full archive.
    pub rebased: BTreeSet<Key>,
    pub targets: Vec<ArchiveSet>,
    /// States in `kept/` of each target.
    pub kept: Vec<ArchiveSet>,
    /// States that failed or were left out, and are not tried again.
    pub refused: BTreeSet<Key>,
    /// States whose preparation failed repeatedly: skipped for now, so that others get their turn.
    pub waiting: BTreeSet<Key>,
    pub preparing: Option<Key>,
    /// Time since the preparation of the last incremental archive began.
    pub since_incremental: Option<Duration>,
}

/// Settings of the operator; see [`super::PublishOptions`].
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    pub every: Duration,
    pub keep_slots: BTreeSet<u64>,
    pub pin_bytes: Option<u64>,
    pub checks_pairs: bool,
    pub rebase_onto: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinChanges {
    pub add: Vec<ArchiveName>,
    pub drop: Vec<ArchiveName>,
    pub no_room: Vec<ArchiveName>,
}

impl Situation {
    fn candidates(&self) -> BTreeMap<Key, &Archive> {
        // A pinned archive takes precedence over the one seen, which may vanish.
        let all = self.seen.iter().chain(&self.pinned);
        all.map(|archive| (key(&archive.name), archive)).filter(|(key, _)| !self.refused.contains(key)).collect()
    }

    fn ready_keys(&self) -> BTreeSet<Key> {
        self.ready.iter().map(key).collect()
    }

    /// What a target has once everything ready is published.
    fn later(&self, target: &ArchiveSet) -> ArchiveSet {
        let mut later = target.with(self.ready.iter());
        later.rebased.extend(&self.rebased);
        later
    }

    /// The newest archive of a kind that a target will still want after everything ready is published.
    fn newest_wanted(&self, is_full: bool, but: &BTreeSet<Key>) -> Option<&Archive> {
        let later: Vec<ArchiveSet> = self.targets.iter().map(|target| self.later(target)).collect();
        let is_wanted = |key: &Key, archive: &Archive| {
            archive.is_full() == is_full && !but.contains(key) && later.iter().any(|it| it.wants(&archive.name))
        };
        let wanted = self.candidates().into_iter().filter(|(key, archive)| is_wanted(key, archive));
        wanted.map(|(_, archive)| archive).max_by_key(|archive| archive.name.slot)
    }

    fn next_full(&self) -> Option<&Archive> {
        self.newest_wanted(true, &self.waiting)
    }

    fn next_incremental(&self, options: &PlanOptions) -> Option<&Archive> {
        if self.since_incremental.is_some_and(|since| since < options.every) {
            return None;
        }
        self.newest_wanted(false, &self.waiting)
    }

    /// States for `kept/` that some target lacks there. To be published, the bracket of a slot must be complete; to be
    /// pinned, not.
    fn to_keep(&self, options: &PlanOptions, is_pinned_only: bool) -> BTreeSet<Key> {
        let kept = self.kept.iter().flat_map(|kept| kept.keys.iter().copied());
        let ready = self.ready_keys().into_iter().filter(|key| !self.rebased.contains(key));
        let known: BTreeSet<Key> = self.candidates().into_keys().chain(ready).chain(kept).collect();
        let brackets = options.keep_slots.iter().map(|slot| bracket(*slot, &known));
        let wanted = brackets.filter(|bracket| is_pinned_only || bracket.is_complete).flat_map(|bracket| bracket.keys);
        wanted.filter(|key| self.kept.iter().any(|kept| !kept.keys.contains(key))).collect()
    }

    /// Chooses the next archive to check and recompress: the newest full one, then the newest incremental one, then one
    /// to be kept.
    pub fn next_to_prepare(&self, options: &PlanOptions) -> Option<Archive> {
        if self.preparing.is_some() {
            return None;
        }
        let next = self.next_full().or_else(|| self.next_incremental(options)).cloned();
        next.or_else(|| {
            let (ready, keep) = (self.ready_keys(), self.to_keep(options, false));
            let is_next = |key: &Key| keep.contains(key) && !ready.contains(key) && !self.waiting.contains(key);
            self.pinned.iter().find(|archive| is_next(&key(&archive.name))).cloned()
        })
    }

    pub fn pins(&self, options: &PlanOptions) -> PinChanges {
        let (candidates, next_full) = (self.candidates(), self.next_full());
        let mut needed = Vec::from_iter(self.preparing);
        if options.checks_pairs {
            let of_next = self.preparing.and_then(|(base, ..)| base);
            let fulls = self.targets.iter().filter_map(|target| self.later(target).newest_full());
            let bases = [of_next, fulls.max()];
            needed.extend(candidates.keys().filter(|(base, slot, _)| base.is_none() && bases.contains(&Some(*slot))));
        }
        let incremental = match self.preparing.is_some() || next_full.is_some() {
            // Do not pin it yet: it would be old when its turn comes.
            true => None,
            false => self.next_incremental(options),
        };
        // An archive that waits is tried again, and stays pinned until then.
        let wanted = [self.newest_wanted(true, &BTreeSet::new()), next_full, incremental];
        needed.extend(wanted.into_iter().flatten().map(|archive| key(&archive.name)));
        let (complete, ready) = (self.to_keep(options, false), self.ready_keys());
        // A pin may go once the archive is ready, but only if its bracket is complete: else the ready file may be
        // dropped.
        let stays_ready = |key: &Key| ready.contains(key) && complete.contains(key);
        needed.extend(self.to_keep(options, true).into_iter().filter(|key| !stays_ready(key)));

        let is_pinned = |needed: Key| self.pinned.iter().any(|archive| key(&archive.name) == needed);
        let (mut pins, mut bytes, mut stay) = (PinChanges::default(), 0u64, BTreeSet::new());
        for needed in needed {
            let Some(archive) = candidates.get(&needed).filter(|_| !stay.contains(&needed)) else { continue };
            let with_it = bytes.saturating_add(archive.size_bytes);
            if options.pin_bytes.is_none_or(|bytes_max| with_it <= bytes_max) || self.preparing == Some(needed) {
                bytes = with_it;
                stay.insert(needed);
                pins.add.extend(Some(archive.name.clone()).filter(|_| !is_pinned(needed)));
            } else if !pins.no_room.contains(&archive.name) {
                pins.no_room.push(archive.name.clone());
            }
        }
        let unneeded = self.pinned.iter().map(|archive| &archive.name).filter(|name| !stay.contains(&key(name)));
        pins.drop = unneeded.cloned().collect();
        pins
    }

    /// Chooses the next archive for a target: the newest full one, then the newest incremental one based on it.
    pub fn next_to_publish(&self, target: usize) -> Option<&ArchiveName> {
        let published = self.targets.get(target)?;
        self.newest_ready(published, true).or_else(|| self.newest_ready(published, false))
    }

    fn newest_ready(&self, target: &ArchiveSet, is_full: bool) -> Option<&ArchiveName> {
        let is_wanted = |name: &&ArchiveName| name.base_slot.is_none() == is_full && target.wants(name);
        let wanted = self.ready.iter().filter(is_wanted).filter(|name| !self.rebased.contains(&key(name)));
        wanted.max_by_key(|name| name.slot)
    }

    pub fn next_to_keep(&self, target: usize, options: &PlanOptions) -> Option<&ArchiveName> {
        let (kept, keep) = (self.kept.get(target)?, self.to_keep(options, false));
        self.ready.iter().find(|name| keep.contains(&key(name)) && !kept.keys.contains(&key(name)))
    }

    /// True if a target has the full archive of a state.
    pub fn has_full_of(&self, (_, slot, hash): &Key) -> bool {
        self.targets.iter().any(|target| target.keys.contains(&(None, *slot, *hash)))
    }

    /// Rebased states that a target lacks, now or as soon as it has the full archive that is ready for it.
    fn lacked_rebased(&self, target: &ArchiveSet, options: &PlanOptions) -> BTreeSet<Key> {
        target.with(self.newest_ready(target, true).into_iter()).lacked_rebased(options.rebase_onto)
    }

    /// Rebased states to be made; none while a newer full archive is there to be prepared.
    pub fn to_rebase(&self, options: &PlanOptions) -> BTreeSet<Key> {
        if self.next_full().is_some() {
            return BTreeSet::new();
        }
        let lacked = self.targets.iter().flat_map(|target| self.lacked_rebased(target, options));
        let ready = self.ready_keys();
        let can_be_made = |key: &Key| self.targets.iter().any(|target| target.can_rebase(key));
        lacked.filter(|key| can_be_made(key) && !ready.contains(key) && !self.refused.contains(key)).collect()
    }

    /// Chooses a rebased archive for a target that has nothing else to publish.
    pub fn next_rebased(&self, target: usize, options: &PlanOptions) -> Option<&ArchiveName> {
        let lacked = self.lacked_rebased(self.targets.get(target)?, options);
        self.ready.iter().find(|name| lacked.contains(&key(name)) && self.rebased.contains(&key(name)))
    }

    /// Ready archives that can be deleted: not the newest of their kind, or wanted by no target.
    pub fn unneeded(&self, options: &PlanOptions) -> Vec<&ArchiveName> {
        let mut wanted = self.to_keep(options, false);
        for target in &self.targets {
            wanted.extend(self.lacked_rebased(target, options).intersection(&self.rebased));
            let full = self.newest_ready(target, true);
            let incremental = self.newest_ready(&target.with(full.into_iter()), false);
            wanted.extend(full.into_iter().chain(incremental).map(key));
        }
        self.ready.iter().filter(|name| !wanted.contains(&key(name))).collect()
    }
}

/// The archives that enclose a slot: a pair at or before it, and the next archive after it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bracket {
    keys: BTreeSet<Key>,
    is_complete: bool,
}

/// Finds the newest state at or before a slot, and the first one after it; empty if no full archive is at or before the
/// slot.
fn bracket(slot: u64, known: &BTreeSet<Key>) -> Bracket {
    let fulls = known.iter().filter(|(base, at, _)| base.is_none() && *at <= slot);
    let Some(full) = fulls.max_by_key(|(_, at, _)| *at) else { return Bracket::default() };
    let on_it = known.iter().filter(|key| key.0 == Some(full.1));
    let (earlier, mut later): (Vec<&Key>, Vec<&Key>) = on_it.partition(|key| key.1 <= slot);
    later.extend(known.iter().filter(|key| key.0.is_none() && key.1 > slot));
    let before = earlier.into_iter().max_by_key(|key| key.1);
    let is_exact = full.1 == slot || before.is_some_and(|key| key.1 == slot);
    let after = later.into_iter().min_by_key(|key| key.1).filter(|_| !is_exact);
    let keys = [Some(full), before, after].into_iter().flatten().copied().collect();
    Bracket { keys, is_complete: is_exact || after.is_some() }
}

/// The last slot of an epoch, and of the epoch before if that ended at or after `since`.
pub fn epoch_ends(epoch: &RangeInclusive<u64>, since: u64) -> BTreeSet<u64> {
    let before = epoch.start().checked_sub(1).filter(|end| *end >= since);
    before.into_iter().chain([*epoch.end()]).collect()
}
