//! Decides which archives may be deleted, without I/O, and deletes them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType};
use slotpress_base::{Error, EscapePath, Result};
use slotpress_format::ArchiveName;

use super::keep::{Keep, KeepReason};
use super::{Catalog, ListedArchive, NodeChoice, scan};

/// Decides which archives to keep. Returns a decision on each, in the order of the catalog.
///
/// What a node would choose is always kept. So are the newest incremental archive whose full archive is
/// present, and the full archive of each kept incremental one. Results of `rebase` do not keep their
/// full archive, and are deleted with it. With limits on days, weeks or
/// epochs, archives of unknown time are kept, so call [`read_bank_times`](scan::read_bank_times) first.
pub fn plan_prune<'a>(catalog: &'a Catalog, keep: &Keep, now: SystemTime) -> Vec<PruneDecision<'a>> {
    let always_kept = names_always_kept(catalog);
    let newest_slot = always_kept.iter().map(|name| name.slot).max();
    let mut decisions = decide_by_period(catalog, keep, newest_slot.unwrap_or_default());
    // The catalog sorts incremental archives by base slot first; here, they are sorted by their own slots.
    keep_newest(&mut decisions, ListedArchive::is_full, keep.full);
    let is_incremental = |archive: &ListedArchive| !archive.is_full() && !archive.is_rebased();
    keep_newest(&mut decisions, is_incremental, keep.incremental);
    keep_newest(&mut decisions, ListedArchive::is_rebased, keep.rebased);
    for decision in &mut decisions {
        if !keep.within.is_zero() && decision.archive.age(now) <= keep.within {
            decision.keep(KeepReason::Recent);
        }
        if always_kept.contains(&&decision.archive.name) {
            decision.keep(KeepReason::LastPair);
        }
    }
    let kept = decisions.iter().filter(|decision| decision.keep_reason.is_some() && !decision.archive.is_rebased());
    let bases: BTreeSet<u64> = kept.filter_map(|decision| decision.archive.name.base_slot).collect();
    for decision in &mut decisions {
        if decision.archive.is_full() && bases.contains(&decision.archive.name.slot) {
            decision.keep(KeepReason::Base);
        }
    }
    drop_rebased_with_base(&mut decisions);
    if let Some(bytes_max) = keep.bytes_max {
        shrink(&mut decisions, &always_kept, bytes_max);
        drop_rebased_with_base(&mut decisions);
    }
    decisions
}

/// Decision whether to keep or to delete an archive.
#[derive(Clone, Copy, Debug)]
pub struct PruneDecision<'a> {
    /// The archive to keep or to delete.
    pub archive: &'a ListedArchive,
    /// Reason why it is kept; `None` if it may be deleted.
    pub keep_reason: Option<KeepReason>,
    /// Time of the bank, if days or weeks are requested and the time is known.
    time: Option<Duration>,
}

impl PruneDecision<'_> {
    /// Keeps the archive. Of several reasons, the strongest stays: the last in the order of [`KeepReason`].
    fn keep(&mut self, reason: KeepReason) {
        self.keep_reason = self.keep_reason.max(Some(reason));
    }
}

fn keep_newest(decisions: &mut [PruneDecision<'_>], is_kind: fn(&ListedArchive) -> bool, count: usize) {
    let mut newest: Vec<_> = decisions.iter_mut().filter(|decision| is_kind(decision.archive)).collect();
    newest.sort_by_cached_key(|decision| decision.archive.sort_key());
    for decision in newest.into_iter().take(count) {
        decision.keep(KeepReason::Newest);
    }
}

fn drop_rebased_with_base(decisions: &mut [PruneDecision<'_>]) {
    // The keys are slots of full archives. Several files may have the same slot.
    let mut is_base_kept: BTreeMap<u64, bool> = BTreeMap::new();
    for full in decisions.iter().filter(|decision| decision.archive.is_full()) {
        *is_base_kept.entry(full.archive.name.slot).or_default() |= full.keep_reason.is_some();
    }
    for decision in decisions {
        let base_slot = decision.archive.name.base_slot;
        let has_lost_base = base_slot.is_some_and(|base| is_base_kept.get(&base) == Some(&false));
        if decision.archive.is_rebased() && has_lost_base {
            decision.keep_reason = None;
        }
    }
}

/// Returns the names of archives that are always kept: those that a node would choose, and the newest
/// incremental archive whose full one is present.
fn names_always_kept(catalog: &Catalog) -> Vec<&ArchiveName> {
    let mut names = Vec::new();
    if let Some(NodeChoice { full, incremental }) = catalog.choice() {
        names.push(&full.name);
        names.extend(incremental.map(|archive| &archive.name));
    }
    let has_base = |archive: &&ListedArchive| !archive.is_rebased() && catalog.base_of(archive).is_some();
    let with_base = catalog.archives().iter().filter(has_base);
    let newest = with_base.max_by_key(|archive| archive.name.slot);
    names.extend(newest.map(|archive| &archive.name));
    names
}

fn base_slot_of(archive: &ListedArchive) -> u64 {
    archive.name.base_slot.unwrap_or(archive.name.slot)
}

/// Returns, for each base slot, the strongest reason for keeping the full archive or an archive that builds
/// on it. The full archive is deleted after all of these, because they are useless without it.
fn strongest_reasons_by_base(decisions: &[PruneDecision<'_>]) -> BTreeMap<u64, Option<KeepReason>> {
    let mut reasons: BTreeMap<u64, Option<KeepReason>> = BTreeMap::new();
    for decision in decisions.iter().filter(|decision| !decision.archive.is_rebased()) {
        let strongest = reasons.entry(base_slot_of(decision.archive)).or_default();
        *strongest = (*strongest).max(decision.keep_reason);
    }
    reasons
}

/// Decides to delete archives until the kept ones fit into `bytes_max`. Deletes results of `rebase` first,
/// then archives with the weakest reason, the oldest of them first. Never deletes archives in `always_kept`,
/// their full archives, or archives of unknown time. A full archive that was kept only for incremental ones
/// is deleted with the last of them.
fn shrink(decisions: &mut [PruneDecision<'_>], always_kept: &[&ArchiveName], bytes_max: u64) {
    let strongest_reasons = strongest_reasons_by_base(decisions);
    let key_of = |PruneDecision { archive, keep_reason, .. }: &PruneDecision<'_>| {
        let strongest = if archive.is_full() { strongest_reasons.get(&archive.name.slot) } else { None };
        // Count and age are equally weak reasons.
        let strength = (*strongest.unwrap_or(keep_reason)).max(Some(KeepReason::Newest));
        (!archive.is_rebased(), strength, base_slot_of(archive), archive.is_full(), archive.name.slot)
    };
    let mut order: Vec<_> = decisions.iter().map(key_of).zip(0..).collect();
    order.sort_unstable();
    let kept = decisions.iter().filter(|decision| decision.keep_reason.is_some());
    let mut kept_bytes = kept.map(|decision| decision.archive.size_bytes).fold(0, u64::saturating_add);
    for (_, index) in order {
        if kept_bytes <= bytes_max {
            return;
        }
        let Some(decision) = decisions.get(index) else { continue };
        let name = &decision.archive.name;
        let is_base = decision.archive.is_full() && has_kept_incremental(decisions, name.slot);
        let is_undated = decision.keep_reason == Some(KeepReason::Undated);
        if decision.keep_reason.is_none() || is_undated || is_base || always_kept.contains(&name) {
            continue;
        }
        let base_slot = name.base_slot;
        if let Some(decision) = decisions.get_mut(index) {
            kept_bytes = kept_bytes.saturating_sub(decision.archive.size_bytes);
            decision.keep_reason = None;
        }
        if let Some(base_slot) = base_slot
            && !has_kept_incremental(decisions, base_slot)
        {
            for full in decisions.iter_mut().filter(|decision| decision.archive.name.slot == base_slot) {
                if full.keep_reason == Some(KeepReason::Base) {
                    kept_bytes = kept_bytes.saturating_sub(full.archive.size_bytes);
                    full.keep_reason = None;
                }
            }
        }
    }
}

/// True if a kept archive, other than a result of `rebase`, builds on the full archive at this slot.
fn has_kept_incremental(decisions: &[PruneDecision<'_>], base_slot: u64) -> bool {
    decisions.iter().any(|decision| {
        let is_kept = decision.keep_reason.is_some() && !decision.archive.is_rebased();
        is_kept && decision.archive.name.base_slot == Some(base_slot)
    })
}

/// Deletes the file if it is still the one that was scanned; succeeds if it no longer exists.
///
/// # Errors
/// The file was changed or replaced, or it cannot be removed.
pub fn remove_archive(archive: &ListedArchive) -> Result<()> {
    let path = archive.path();
    let failed = |error: rustix::io::Errno| Error::io("remove", &path, &error.into());
    let name = archive.name.to_string();
    let parent = archive.open_parent().map_err(failed)?;
    let stat = match rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        // Another process removed it first.
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let is_same = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && scan::file_id(&stat) == archive.file_id
        && scan::modified_ns(&stat) == archive.modified_ns;
    if !is_same {
        return Err(Error::failed(format!("{} changed in the meantime, and was not removed", path.escaped()))
            .with_hint("run the command again"));
    }
    rustix::fs::unlinkat(&parent, &name, AtFlags::empty()).map_err(failed)
}

fn day_number(time: Duration) -> u64 {
    time.as_secs() / 86_400
}

/// Returns the number of weeks since 1970. Weeks begin on Monday; 1970 began on a Thursday.
fn week_number(time: Duration) -> u64 {
    day_number(time).saturating_add(3) / 7
}

/// Decides which archives the limits on days, weeks and epochs keep. Returns a decision on each archive,
/// in the order of the catalog.
///
/// A state is a full archive, or an incremental one with its full one. Results of `rebase` are not
/// counted. If days or weeks are requested, an archive of unknown time is kept. If epochs are requested
/// and their lengths are not known, every archive is kept. An epoch is considered only after its end, that
/// is, if `newest_slot` is later.
fn decide_by_period<'a>(catalog: &'a Catalog, keep: &Keep, newest_slot: u64) -> Vec<PruneDecision<'a>> {
    // Computing the time of an archive may look at all other archives, so it is done only if needed.
    let is_time_needed = keep.daily > 0 || keep.weekly > 0;
    let undecided = |archive| {
        let time = if is_time_needed { catalog.bank_time_of(archive) } else { None };
        PruneDecision { archive, time, keep_reason: None }
    };
    let mut decisions: Vec<PruneDecision<'_>> = catalog.archives().iter().map(undecided).collect();
    let is_state =
        |archive: &ListedArchive| archive.is_full() || !archive.is_rebased() && catalog.base_of(archive).is_some();
    let mut states: Vec<_> = decisions.iter_mut().filter(|decision| is_state(decision.archive)).collect();
    states.sort_by_key(|state| Reverse(state.archive.name.slot));
    keep_newest_of_each(&mut states, keep.daily, KeepReason::Daily, |state| state.time.map(day_number));
    keep_newest_of_each(&mut states, keep.weekly, KeepReason::Weekly, |state| state.time.map(week_number));
    if let Some(schedule) = catalog.epoch_schedule {
        keep_newest_of_each(&mut states, keep.epoch_ends, KeepReason::EpochEnd, |state| {
            let slots = schedule.epoch_slots_at(state.archive.name.slot);
            (*slots.end() < newest_slot).then_some(*slots.start())
        });
    }
    let is_epoch_unknown = keep.epoch_ends > 0 && catalog.epoch_schedule.is_none();
    for decision in &mut decisions {
        if is_epoch_unknown || is_time_needed && decision.time.is_none() && !decision.archive.is_rebased() {
            decision.keep(KeepReason::Undated);
        }
    }
    decisions
}

/// Keeps the newest state of each of the `count` newest periods. `states` are sorted, the newest first.
fn keep_newest_of_each(
    states: &mut [&mut PruneDecision<'_>],
    count: usize,
    reason: KeepReason,
    period_of: impl Fn(&PruneDecision<'_>) -> Option<u64>,
) {
    let mut periods = BTreeSet::new();
    for state in states {
        if let Some(period) = period_of(state)
            && periods.len() < count
            && periods.insert(period)
        {
            state.keep(reason);
        }
    }
}
