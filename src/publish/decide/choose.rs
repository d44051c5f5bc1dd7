//! Decides what to pin, prepare, publish and delete next, from the validator's archives and the pinned, ready
//! and published archives. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};

use slotpress_format::{ArchiveName, Hash};
use slotpress_read::ListedArchive;

use super::retry::Retry;
use super::{Planner, TargetState};

/// Identifies an archive, regardless of its compression. Keys of full archives sort first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchiveKey {
    pub base_slot: Option<u64>,
    pub slot: u64,
    pub hash: Hash,
}

impl ArchiveKey {
    pub fn to_full(self) -> Self {
        Self { base_slot: None, ..self }
    }
}

pub fn key_of(name: &ArchiveName) -> ArchiveKey {
    ArchiveKey { base_slot: name.base_slot, slot: name.slot, hash: name.hash }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArchiveKind {
    Full,
    Incremental,
}

fn kind_of(name: &ArchiveName) -> ArchiveKind {
    if name.base_slot.is_none() { ArchiveKind::Full } else { ArchiveKind::Incremental }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveSet {
    pub keys: BTreeSet<ArchiveKey>,
    /// Archives that `rebase` made. They never count as the newest.
    pub rebased: BTreeSet<ArchiveKey>,
}

impl ArchiveSet {
    pub fn from_archives<'a>(archives: impl IntoIterator<Item = &'a ListedArchive>) -> Self {
        let mut set = Self::default();
        for archive in archives {
            set.keys.insert(key_of(&archive.name));
            if archive.is_rebased() {
                set.rebased.insert(key_of(&archive.name));
            }
        }
        set
    }

    fn full_keys(&self) -> impl DoubleEndedIterator<Item = &ArchiveKey> {
        self.keys.iter().filter(|key| key.base_slot.is_none())
    }

    fn newest_full(&self) -> Option<u64> {
        self.full_keys().next_back().map(|key| key.slot)
    }

    fn newest_incremental_on(&self, base: u64) -> Option<u64> {
        let is_counted = |key: &&ArchiveKey| key.base_slot == Some(base) && !self.rebased.contains(*key);
        self.keys.iter().rev().find(is_counted).map(|key| key.slot)
    }

    /// True if a target with these archives lacks this archive, and would become newer with it. An
    /// incremental archive must be based on the target's newest full archive.
    pub fn wants(&self, name: &ArchiveName) -> bool {
        let newest = match name.base_slot {
            None => self.newest_full(),
            Some(base) if self.newest_full() == Some(base) => self.newest_incremental_on(base),
            Some(_) => return false,
        };
        !self.keys.contains(&key_of(name)) && newest.is_none_or(|newest| newest < name.slot)
    }

    fn with_added<'a>(&self, names: impl IntoIterator<Item = &'a ArchiveName>) -> Self {
        let mut set = self.clone();
        set.keys.extend(names.into_iter().map(key_of));
        set
    }

    /// Returns the missing rebases of the newest full archive onto each of the `count` full archives
    /// before it.
    fn missing_rebases(&self, count: usize) -> BTreeSet<ArchiveKey> {
        let mut fulls = self.full_keys().rev();
        let Some(newest) = fulls.next() else { return BTreeSet::new() };
        let older = fulls.filter(|full| full.slot < newest.slot).take(count);
        let rebases = older.map(|full| ArchiveKey { base_slot: Some(full.slot), ..*newest });
        rebases.filter(|key| !self.keys.contains(key)).collect()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinChanges {
    pub to_pin: Vec<ArchiveName>,
    pub to_unpin: Vec<ArchiveName>,
    pub no_room: Vec<ArchiveName>,
}

impl TargetState {
    /// True if the target has neither answered nor failed yet. Nothing is prepared for such a target.
    pub fn is_untried(&self) -> bool {
        !self.is_read && self.retry.failures == 0
    }

    fn published(&self) -> &ArchiveSet {
        &self.contents.published
    }

    /// True if the target is a directory that has both full archives that the rebase reads.
    pub fn can_rebase(&self, rebase: &ArchiveKey) -> bool {
        let keys = &self.published().keys;
        let is_base = |key: &ArchiveKey| key.base_slot.is_none() && Some(key.slot) == rebase.base_slot;
        self.is_dir && keys.contains(&rebase.to_full()) && keys.iter().any(is_base)
    }
}

impl Planner<'_> {
    pub fn retry_of(&self, key: &ArchiveKey) -> Retry {
        self.retries.get(key).copied().unwrap_or_default()
    }

    fn candidates(&self) -> BTreeMap<ArchiveKey, &ListedArchive> {
        // Prefer a pinned archive: the validator's archive with the same key may vanish.
        let mut candidates = BTreeMap::new();
        for archive in self.scan.validator_archives.iter().chain(&self.scan.pinned) {
            candidates.insert(key_of(&archive.name), archive);
        }
        candidates.retain(|key, _| !self.retry_of(key).is_refused());
        candidates
    }

    pub fn ready_names(&self) -> impl Iterator<Item = &ArchiveName> {
        self.scan.ready.iter().map(|ready| &ready.archive.name)
    }

    /// Returns the ready archives that `rebase` made from a full archive on a target.
    pub fn ready_rebases(&self) -> BTreeSet<ArchiveKey> {
        let ready = self.scan.ready.iter().map(|ready| &ready.archive);
        let mut rebased = ArchiveSet::from_archives(ready).rebased;
        let is_published = |key: &ArchiveKey| self.targets.iter().any(|target| target.published().keys.contains(key));
        rebased.retain(|rebase| is_published(&rebase.to_full()));
        rebased
    }

    /// Returns the contents that each target will have once all ready archives are published. Leaves out
    /// untried targets.
    fn future_contents(&self) -> Vec<ArchiveSet> {
        let rebased = self.ready_rebases();
        let mut contents = Vec::new();
        for target in self.targets.iter().filter(|target| !target.is_untried()) {
            let mut future = target.published().with_added(self.ready_names());
            future.rebased.extend(&rebased);
            contents.push(future);
        }
        contents
    }

    /// True if an archive may be prepared: full archives always, incremental archives when their turn comes.
    /// An archive that failed keeps its turn.
    fn has_turn(&self, key: &ArchiveKey) -> bool {
        let is_incremental_due = if self.options.once {
            !self.has_begun_incremental
        } else {
            self.scan.since_incremental.is_none_or(|since| since >= self.options.every)
        };
        key.base_slot.is_none() || self.retries.contains_key(key) || is_incremental_due
    }

    /// Returns the archives of a kind whose turn has come, and that a target will still want when all
    /// ready archives are published. The newest comes last.
    fn wanted_archives(&self, kind: ArchiveKind) -> Vec<&ListedArchive> {
        let future = self.future_contents();
        let mut wanted = Vec::from_iter(self.candidates().into_values());
        wanted.retain(|archive| kind_of(&archive.name) == kind && self.has_turn(&key_of(&archive.name)));
        wanted.retain(|archive| future.iter().any(|target| target.wants(&archive.name)));
        wanted.sort_by_key(|archive| archive.name.slot);
        wanted
    }

    fn choose_next(&self, kind: ArchiveKind) -> Option<&ListedArchive> {
        let is_eligible = |archive: &&ListedArchive| {
            let retry = self.retry_of(&key_of(&archive.name));
            !retry.yields_to_others(self.options.once, self.now)
        };
        self.wanted_archives(kind).into_iter().rfind(is_eligible)
    }

    /// Chooses the next archive to check and recompress: the newest full archive, then the newest incremental
    /// archive.
    pub fn next_to_prepare(&self) -> Option<&ListedArchive> {
        if self.preparing.is_some() {
            return None;
        }
        self.choose_next(ArchiveKind::Full).or_else(|| self.choose_next(ArchiveKind::Incremental))
    }

    pub fn choose_pins(&self) -> PinChanges {
        let preparing = self.preparing.as_ref().map(key_of);
        let next_full = self.choose_next(ArchiveKind::Full);
        let mut needed: Vec<&ListedArchive> = Vec::new();
        needed.extend(preparing.and_then(|key| self.candidates().get(&key).copied()));
        // The newest full archive may be waiting after failures. It stays pinned until it is tried again.
        needed.extend(self.wanted_archives(ArchiveKind::Full).pop());
        needed.extend(next_full);
        // Do not pin an incremental archive while another archive is prepared: it would be old by the time
        // its turn comes.
        if preparing.is_none() && next_full.is_none() {
            needed.extend(self.wanted_archives(ArchiveKind::Incremental).pop());
            needed.extend(self.choose_next(ArchiveKind::Incremental));
        }
        let pinned = ArchiveSet::from_archives(&self.scan.pinned).keys;
        let bytes_max = self.options.pin_bytes.unwrap_or(u64::MAX);
        let mut pins = PinChanges::default();
        let mut bytes = 0u64;
        let mut kept = BTreeSet::new();
        for archive in needed {
            let key = key_of(&archive.name);
            if kept.contains(&key) {
                continue;
            }
            let new_bytes = bytes.saturating_add(archive.size_bytes);
            if new_bytes <= bytes_max || preparing == Some(key) {
                bytes = new_bytes;
                kept.insert(key);
                if !pinned.contains(&key) {
                    pins.to_pin.push(archive.name.clone());
                }
            } else if !pins.no_room.contains(&archive.name) {
                pins.no_room.push(archive.name.clone());
            }
        }
        for archive in &self.scan.pinned {
            if !kept.contains(&key_of(&archive.name)) {
                pins.to_unpin.push(archive.name.clone());
            }
        }
        pins
    }

    /// Chooses the next archive for a target, apart from rebased archives: the newest full archive, then the
    /// newest incremental archive based on it.
    pub fn next_ordinary(&self, target: &TargetState) -> Option<&ArchiveName> {
        let published = target.published();
        self.newest_ready(published, ArchiveKind::Full)
            .or_else(|| self.newest_ready(published, ArchiveKind::Incremental))
    }

    fn newest_ready(&self, published: &ArchiveSet, kind: ArchiveKind) -> Option<&ArchiveName> {
        let rebased = self.ready_rebases();
        let mut wanted = Vec::from_iter(self.ready_names());
        wanted.retain(|name| kind_of(name) == kind && published.wants(name));
        wanted.retain(|name| !rebased.contains(&key_of(name)));
        wanted.into_iter().max_by_key(|name| name.slot)
    }

    /// Returns the rebases that a target lacks, or will lack once it has the full archive that is ready
    /// for it.
    pub fn missing_rebases(&self, target: &TargetState) -> BTreeSet<ArchiveKey> {
        let published = target.published();
        let future = published.with_added(self.newest_ready(published, ArchiveKind::Full));
        future.missing_rebases(self.options.rebase_onto)
    }

    /// Returns the rebases to be made; none while a newer full archive is to be prepared.
    pub fn needed_rebases(&self) -> BTreeSet<ArchiveKey> {
        let mut needed = BTreeSet::new();
        for target in &self.targets {
            needed.extend(self.missing_rebases(target));
        }
        if needed.is_empty() || self.choose_next(ArchiveKind::Full).is_some() {
            return BTreeSet::new();
        }
        for ready in self.ready_names() {
            needed.remove(&key_of(ready));
        }
        needed.retain(|rebase| !self.retry_of(rebase).is_refused());
        needed.retain(|rebase| self.targets.iter().any(|target| target.can_rebase(rebase)));
        needed
    }

    /// Chooses a rebased archive for a target.
    pub fn next_ready_rebase(&self, target: &TargetState) -> Option<&ArchiveName> {
        let missing = self.missing_rebases(target);
        let publishable = &missing & &self.ready_rebases();
        self.ready_names().find(|name| publishable.contains(&key_of(name)))
    }

    /// Chooses the next archive for a target. Rebased archives come last.
    pub fn next_for_target(&self, target: &TargetState) -> Option<&ArchiveName> {
        self.next_ordinary(target).or_else(|| self.next_ready_rebase(target))
    }

    /// Returns ready archives that no target wants, or that newer ready archives replace.
    pub fn find_unneeded(&self) -> Vec<&ArchiveName> {
        let mut wanted = BTreeSet::new();
        let rebased = self.ready_rebases();
        for target in &self.targets {
            wanted.extend(self.missing_rebases(target).intersection(&rebased));
            let published = target.published();
            let full = self.newest_ready(published, ArchiveKind::Full);
            let incremental = self.newest_ready(&published.with_added(full), ArchiveKind::Incremental);
            wanted.extend(full.into_iter().chain(incremental).map(key_of));
        }
        let names = self.ready_names();
        names.filter(|name| !wanted.contains(&key_of(name))).collect()
    }
}
