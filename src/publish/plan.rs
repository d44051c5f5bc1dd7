//! What to do next, from what is seen, what is pinned, what is ready and what is published. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use slotpress_format::{ArchiveName, Hash};
use slotpress_read::catalog::Archive;

/// A state: two archives of one state may be compressed differently, and are one thing here.
pub type Key = (Option<u64>, u64, Hash);

/// What state an archive is of.
pub fn key(name: &ArchiveName) -> Key {
    (name.base_slot, name.slot, name.hash)
}

/// What a target has on one shelf; nothing where that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The archives.
    pub keys: BTreeSet<Key>,
    /// It was asked, and has not answered yet: nothing is begun for it.
    pub is_silent: bool,
}

impl Published {
    /// Of these archives.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a ArchiveName>) -> Self {
        Self { keys: names.into_iter().map(key).collect(), is_silent: false }
    }

    fn newest_full(&self) -> Option<u64> {
        self.keys.iter().filter(|(base, ..)| base.is_none()).map(|(_, slot, _)| *slot).max()
    }

    fn newest_incremental_on(&self, base: u64) -> Option<u64> {
        self.keys.iter().filter(|key| key.0 == Some(base)).map(|(_, slot, _)| *slot).max()
    }

    /// Whether an archive makes it newer: an incremental one, only on the newest full archive.
    pub fn wants(&self, name: &ArchiveName) -> bool {
        let newest_full = self.newest_full();
        match name.base_slot {
            _ if self.is_silent => false,
            None => newest_full.is_none_or(|newest| newest < name.slot),
            Some(base) => {
                newest_full == Some(base) && self.newest_incremental_on(base).is_none_or(|newest| newest < name.slot)
            }
        }
    }

    /// What it has once everything that is ready for it is published.
    fn with<'a>(&self, ready: impl Iterator<Item = &'a ArchiveName>) -> Self {
        Self { keys: self.keys.iter().copied().chain(ready.map(key)).collect(), ..*self }
    }
}

/// What there is.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// In the validator's directory.
    pub seen: Vec<Archive>,
    /// Pinned against its purge.
    pub pinned: Vec<Archive>,
    /// Checked, and ready to be published.
    pub ready: Vec<ArchiveName>,
    /// What each target has.
    pub targets: Vec<Published>,
    /// What is kept apart on each target.
    pub kept: Vec<Published>,
    /// What failed or was left out, and is not tried again as it is.
    pub refused: BTreeSet<Key>,
    /// What could not be prepared, again and again, and is not tried now: others get their turn.
    pub waiting: BTreeSet<Key>,
    /// What is being prepared.
    pub preparing: Option<Key>,
    /// How long ago the last incremental archive was begun.
    pub since_incremental: Option<Duration>,
}

/// What the operator asked for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// How often an incremental archive is published.
    pub every: Duration,
    /// Slots whose bracket is kept.
    pub keep_slots: BTreeSet<u64>,
    /// Pins may have so many bytes.
    pub pin_bytes: Option<u64>,
    /// The full archive below an incremental one is read to check it.
    pub checks_pairs: bool,
}

/// What becomes of pins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// What is to be pinned: the most important first.
    pub add: Vec<ArchiveName>,
    /// What is not needed any more.
    pub drop: Vec<ArchiveName>,
    /// What is needed, and has no room.
    pub no_room: Vec<ArchiveName>,
}

impl Situation {
    fn candidates(&self) -> BTreeMap<Key, &Archive> {
        // What is pinned stays; what is seen may go at any moment.
        let all = self.seen.iter().chain(&self.pinned);
        all.map(|archive| (key(&archive.name), archive)).filter(|(key, _)| !self.refused.contains(key)).collect()
    }

    fn ready_keys(&self) -> BTreeSet<Key> {
        self.ready.iter().map(key).collect()
    }

    /// Whether what is ready, or will be, leaves a target without this.
    fn is_wanted(&self, name: &ArchiveName) -> bool {
        self.targets.iter().any(|target| target.with(self.ready.iter()).wants(name))
    }

    fn newest_wanted(&self, is_full: bool, but: &BTreeSet<Key>) -> Option<&Archive> {
        let candidates =
            self.candidates().into_iter().filter(|(key, archive)| archive.is_full() == is_full && !but.contains(key));
        let wanted = candidates.map(|(_, archive)| archive).filter(|archive| self.is_wanted(&archive.name));
        wanted.max_by_key(|archive| archive.name.slot)
    }

    /// The newest full archive that some target wants.
    fn next_full(&self) -> Option<&Archive> {
        self.newest_wanted(true, &self.waiting)
    }

    fn next_incremental(&self, wishes: &Wishes) -> Option<&Archive> {
        if self.since_incremental.is_some_and(|since| since < wishes.every) {
            return None;
        }
        self.newest_wanted(false, &self.waiting)
    }

    /// What is kept apart, and not published there yet everywhere; the brackets of slots that are complete.
    fn to_keep(&self, wishes: &Wishes, is_pinned_only: bool) -> BTreeSet<Key> {
        let kept = self.kept.iter().flat_map(|kept| kept.keys.iter().copied());
        let known: BTreeSet<Key> = self.candidates().into_keys().chain(self.ready_keys()).chain(kept).collect();
        let brackets = wishes.keep_slots.iter().map(|slot| bracket(*slot, &known));
        let wanted = brackets.filter(|bracket| is_pinned_only || bracket.is_complete).flat_map(|bracket| bracket.keys);
        wanted.filter(|key| self.kept.iter().any(|kept| !kept.keys.contains(key))).collect()
    }

    /// What to check and recompress next: full archives first, the newest of each.
    pub fn next_to_prepare(&self, wishes: &Wishes) -> Option<Archive> {
        if self.preparing.is_some() {
            return None;
        }
        let next = self.next_full().or_else(|| self.next_incremental(wishes)).cloned();
        next.or_else(|| {
            let (ready, keep) = (self.ready_keys(), self.to_keep(wishes, false));
            let is_next = |key: &Key| keep.contains(key) && !ready.contains(key) && !self.waiting.contains(key);
            self.pinned.iter().find(|archive| is_next(&key(&archive.name))).cloned()
        })
    }

    /// What to pin, and what to let go.
    pub fn pins(&self, wishes: &Wishes) -> Pins {
        let mut needed: Vec<&Archive> = Vec::new();
        let candidates = self.candidates();
        let mut need = |archive: Option<&'_ Archive>| {
            let found = archive.and_then(|archive| candidates.get(&key(&archive.name)).copied());
            needed.extend(found.filter(|found| needed.iter().all(|other| key(&other.name) != key(&found.name))));
        };
        need(self.preparing.and_then(|key| candidates.get(&key).copied()));
        let base = self.preparing.and_then(|(base, ..)| base);
        let newest_full = self.targets.iter().filter_map(|target| target.with(self.ready.iter()).newest_full()).max();
        if wishes.checks_pairs {
            let is_base =
                |archive: &&&Archive| archive.is_full() && [base, newest_full].contains(&Some(archive.name.slot));
            candidates.values().filter(is_base).for_each(|base| need(Some(base)));
        }
        // Also if it waits: it is tried again.
        need(self.newest_wanted(true, &BTreeSet::new()));
        need(self.next_full());
        let incremental = match self.preparing.is_some() || self.next_full().is_some() {
            // It would be old by the time it is its turn.
            true => None,
            false => self.next_incremental(wishes),
        };
        need(incremental);
        let (keep, complete, ready) = (self.to_keep(wishes, true), self.to_keep(wishes, false), self.ready_keys());
        // What is ready stays so only for a bracket that is complete.
        let stays = |key: &Key| ready.contains(key) && complete.contains(key);
        let kept = candidates.iter().filter(|(key, _)| keep.contains(key) && !stays(key));
        kept.for_each(|(_, archive)| need(Some(archive)));

        let pinned: BTreeSet<Key> = self.pinned.iter().map(|archive| key(&archive.name)).collect();
        let (mut pins, mut bytes) = (Pins::default(), 0u64);
        for archive in &needed {
            let is_pinned = pinned.contains(&key(&archive.name));
            let with_it = bytes.saturating_add(archive.size_bytes);
            if wishes.pin_bytes.is_some_and(|bytes_max| with_it > bytes_max)
                && self.preparing != Some(key(&archive.name))
            {
                pins.no_room.push(archive.name.clone());
                continue;
            }
            bytes = with_it;
            if !is_pinned {
                pins.add.push(archive.name.clone());
            }
        }
        needed.retain(|archive| !pins.no_room.contains(&archive.name));
        let needed: BTreeSet<Key> = needed.iter().map(|archive| key(&archive.name)).collect();
        let spent = self.pinned.iter().filter(|archive| !needed.contains(&key(&archive.name)));
        pins.drop = spent.map(|archive| archive.name.clone()).collect();
        pins
    }

    /// What one target gets next: the newest full archive, then the newest incremental one on it.
    pub fn next_to_publish(&self, target: usize) -> Option<&ArchiveName> {
        let published = self.targets.get(target)?;
        let newest = |is_full: bool| {
            let wanted = self.ready.iter().filter(move |name| name.base_slot.is_none() == is_full);
            wanted.filter(|name| published.wants(name)).max_by_key(|name| name.slot)
        };
        newest(true).or_else(|| newest(false))
    }

    /// What one target gets next to be kept apart.
    pub fn next_to_keep(&self, target: usize, wishes: &Wishes) -> Option<&ArchiveName> {
        let (kept, keep) = (self.kept.get(target)?, self.to_keep(wishes, false));
        self.ready.iter().find(|name| keep.contains(&key(name)) && !kept.keys.contains(&key(name)))
    }

    /// What is ready, and of no use any more: no target will want it, or it is not the newest of its kind.
    pub fn spent(&self, wishes: &Wishes) -> Vec<&ArchiveName> {
        let keep = self.to_keep(wishes, false);
        let wanted: BTreeSet<Key> = (0..self.targets.len())
            .flat_map(|target| {
                let full = self.next_to_publish(target).filter(|name| name.base_slot.is_none());
                let published = self.targets.get(target).map(|published| published.with(full.into_iter()));
                let incrementals = self.ready.iter().filter(|name| name.base_slot.is_some());
                let wanted = incrementals.filter(|name| published.as_ref().is_some_and(|it| it.wants(name)));
                full.into_iter().chain(wanted.max_by_key(|name| name.slot)).map(key).collect::<Vec<_>>()
            })
            .collect();
        self.ready.iter().filter(|name| !wanted.contains(&key(name)) && !keep.contains(&key(name))).collect()
    }
}

/// The archives around a slot.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bracket {
    keys: BTreeSet<Key>,
    /// Nothing that comes later belongs to it.
    is_complete: bool,
}

/// The newest state at or before a slot, and the first one after it; none where nothing lies before it.
fn bracket(slot: u64, known: &BTreeSet<Key>) -> Bracket {
    let fulls = known.iter().filter(|(base, at, _)| base.is_none() && *at <= slot);
    let Some(full) = fulls.max_by_key(|(_, at, _)| *at) else { return Bracket::default() };
    let on_it = || known.iter().filter(|key| key.0 == Some(full.1));
    let before = on_it().filter(|(_, at, _)| *at <= slot).max_by_key(|(_, at, _)| *at);
    let later_fulls = known.iter().filter(|(base, at, _)| base.is_none() && *at > slot);
    let after = on_it().filter(|(_, at, _)| *at > slot).chain(later_fulls).min_by_key(|(_, at, _)| *at);
    let is_exact = full.1 == slot || before.is_some_and(|(_, at, _)| *at == slot);
    let after = after.filter(|_| !is_exact);
    Bracket {
        keys: [Some(full), before, after].into_iter().flatten().copied().collect(),
        is_complete: is_exact || after.is_some(),
    }
}

/// The last slot of an epoch, and of the one before, where that ended at or after `since`.
pub fn epoch_ends(epoch: &RangeInclusive<u64>, since: u64) -> BTreeSet<u64> {
    let before = epoch.start().checked_sub(1).filter(|end| *end >= since);
    before.into_iter().chain([*epoch.end()]).collect()
}
