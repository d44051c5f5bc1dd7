//! Decides which archives may be deleted, without I/O, and deletes them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType};
use slotpress_base::{Error, Result, ShowPath};
use slotpress_format::ArchiveName;

use super::keep::{Keep, KeepReason};
use super::{Archive, Catalog, scan};

/// Returns the reason for which each archive of the catalog is kept, in order. `None` if it may be
/// deleted.
///
/// Always kept: the full archive of a kept incremental one; what a node would choose; the newest
/// incremental archive whose full one is present, with that full one. Results of `rebase` do not
/// keep their full archive, and are deleted with it.
pub fn plan_prune(catalog: &Catalog, keep: &Keep, now: SystemTime) -> Vec<Option<KeepReason>> {
    let archives = catalog.archives();
    let last_pair = last_pair(catalog);
    let newest_slot = last_pair.iter().map(|name| name.slot).max().unwrap_or_default();
    let mut reasons = by_periods(catalog, keep, newest_slot);
    // The catalog sorts incremental archives by base slot first; here, only their own slot counts.
    let mut newest = |is_kind: fn(&Archive) -> bool, count: usize| {
        let mut kept: Vec<_> = archives.iter().zip(&mut reasons).filter(|(archive, _)| is_kind(archive)).collect();
        kept.sort_by_cached_key(|(archive, _)| archive.order());
        kept.into_iter().take(count).for_each(|(_, reason)| *reason = (*reason).max(Some(KeepReason::Newest)));
    };
    newest(Archive::is_full, keep.full);
    newest(|archive| !archive.is_full() && !archive.is_rebased(), keep.incremental);
    newest(Archive::is_rebased, keep.rebased);
    let mut keep_wanted = |is_wanted: &dyn Fn(&Archive) -> bool, reason: KeepReason| {
        for (archive, kept) in archives.iter().zip(&mut reasons) {
            if kept.is_none() && is_wanted(archive) {
                *kept = Some(reason);
            }
        }
    };
    let is_recent = |archive: &Archive| !keep.within.is_zero() && archive.age(now) <= keep.within;
    keep_wanted(&is_recent, KeepReason::Recent);
    keep_wanted(&|archive| last_pair.contains(&&archive.name), KeepReason::LastPair);
    let bases: BTreeSet<u64> = archives
        .iter()
        .zip(&reasons)
        .filter(|(archive, reason)| reason.is_some() && !archive.is_rebased())
        .filter_map(|(archive, _)| archive.name.base_slot)
        .collect();
    for (archive, kept) in archives.iter().zip(&mut reasons) {
        if kept.is_none() && archive.is_full() && bases.contains(&archive.name.slot) {
            *kept = Some(KeepReason::Base);
        }
    }
    drop_rebased_with_base(archives, &mut reasons);
    if let Some(bytes_max) = keep.bytes_max {
        shrink(archives, &last_pair, &mut reasons, bytes_max);
        drop_rebased_with_base(archives, &mut reasons);
    }
    reasons
}

fn drop_rebased_with_base(archives: &[Archive], reasons: &mut [Option<KeepReason>]) {
    // By the slots of full archives; several files may have the same slot.
    let mut is_base_kept: BTreeMap<u64, bool> = BTreeMap::new();
    for (archive, reason) in archives.iter().zip(&*reasons).filter(|(archive, _)| archive.is_full()) {
        *is_base_kept.entry(archive.name.slot).or_default() |= reason.is_some();
    }
    for (archive, reason) in archives.iter().zip(reasons).filter(|(archive, _)| archive.is_rebased()) {
        if archive.name.base_slot.is_some_and(|base| is_base_kept.get(&base) == Some(&false)) {
            *reason = None;
        }
    }
}

/// Names of archives that are always kept: what a node would choose, and the newest incremental
/// archive whose full one is present.
fn last_pair(catalog: &Catalog) -> Vec<&ArchiveName> {
    let choice = catalog.choice();
    let chosen = choice.into_iter().flat_map(|choice| [Some(choice.full), choice.incremental]).flatten();
    let whole = catalog.archives().iter().filter(|archive| !archive.is_rebased() && catalog.base_of(archive).is_some());
    chosen.chain(whole.max_by_key(|archive| archive.name.slot)).map(|archive| &archive.name).collect()
}

fn base_of(archive: &Archive) -> u64 {
    archive.name.base_slot.unwrap_or(archive.name.slot)
}

/// Returns the strongest reason of each full archive and the archives that build on it. The full
/// archive is deleted after all of these.
fn strongest_by_base(archives: &[Archive], reasons: &[Option<KeepReason>]) -> BTreeMap<u64, Option<KeepReason>> {
    let mut strongest: BTreeMap<u64, Option<KeepReason>> = BTreeMap::new();
    for (archive, reason) in archives.iter().zip(reasons).filter(|(archive, _)| !archive.is_rebased()) {
        let strongest = strongest.entry(base_of(archive)).or_default();
        *strongest = (*strongest).max(*reason);
    }
    strongest
}

/// Stops keeping archives until the rest fits into `bytes_max`: first results of `rebase`, then the
/// others, those of the weakest reason first, and of these the oldest. Always keeps `must_stay` and
/// their full archives, and archives of unknown time. A full archive that was kept only for
/// incremental ones is not kept without them.
fn shrink(archives: &[Archive], must_stay: &[&ArchiveName], reasons: &mut [Option<KeepReason>], bytes_max: u64) {
    let mut order: Vec<usize> = (0..archives.len()).collect();
    let strongest = strongest_by_base(archives, reasons);
    order.sort_by_key(|index| {
        let (archive, reason) = archives.get(*index).zip(reasons.get(*index))?;
        let is_only_base = *reason == Some(KeepReason::Base);
        let strongest = strongest.get(&archive.name.slot).filter(|_| archive.is_full()).unwrap_or(reason);
        let strength = (*strongest).max(Some(KeepReason::Newest));
        let rest = (base_of(archive), archive.is_full(), archive.name.slot, !is_only_base);
        Some((!archive.is_rebased(), strength, rest))
    });
    let kept_bytes = archives.iter().zip(&*reasons).filter(|(_, reason)| reason.is_some());
    let mut bytes = kept_bytes.map(|(archive, _)| archive.size_bytes).fold(0, u64::saturating_add);
    for index in order {
        let Some(archive) = archives.get(index) else { continue };
        let builds_on_it = |(other, reason): (&Archive, &Option<KeepReason>)| {
            reason.is_some() && !other.is_rebased() && other.name.base_slot == Some(archive.name.slot)
        };
        let is_base = archive.is_full() && archives.iter().zip(&*reasons).any(builds_on_it);
        let Some(reason) = reasons.get_mut(index) else { continue };
        let is_over = bytes > bytes_max || *reason == Some(KeepReason::Base);
        let stays = is_base || matches!(reason, None | Some(KeepReason::Undated)) || must_stay.contains(&&archive.name);
        if is_over && !stays {
            *reason = None;
            bytes = bytes.saturating_sub(archive.size_bytes);
        }
    }
}

/// Deletes the file if it is still the one that was scanned; succeeds if it is gone already.
///
/// # Errors
/// Another file has its name now, or the file system refuses.
pub fn remove(archive: &Archive) -> Result<()> {
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
        return Err(Error::failed(format!("{} changed in the meantime, and was not removed", path.shown()))
            .with_hint("run the command again"));
    }
    rustix::fs::unlinkat(&parent, &name, AtFlags::empty()).map_err(failed)
}

fn day(time: Duration) -> u64 {
    time.as_secs() / 86_400
}

/// Number of a week since 1970. Weeks begin on Monday; 1970 began on a Thursday.
fn week(time: Duration) -> u64 {
    day(time).saturating_add(3) / 7
}

/// Returns the reason for which days, weeks or epochs keep each archive of the catalog, in order. If
/// there are several reasons, returns the last in the order of [`KeepReason`].
///
/// A state is a full archive, or an incremental one with its full one. Results of `rebase` are not
/// counted. An archive of unknown time stays if days or weeks are asked for. If epochs are asked
/// for and their lengths are not known, every archive stays. An epoch counts only if it is over: an
/// archive that is never deleted has a later slot (`newest_slot`).
fn by_periods(catalog: &Catalog, keep: &Keep, newest_slot: u64) -> Vec<Option<KeepReason>> {
    let archives = catalog.archives();
    let mut reasons = vec![None; archives.len()];
    let is_state = |archive: &Archive| archive.is_full() || !archive.is_rebased() && catalog.base_of(archive).is_some();
    let mut states: Vec<usize> =
        (0..).zip(archives).filter(|(_, archive)| is_state(archive)).map(|(index, _)| index).collect();
    states.sort_by_key(|index| archives.get(*index).map(|archive| Reverse(archive.name.slot)));
    // A time may be computed from those of all archives, so this is done only if it is asked for.
    let is_by_time = keep.daily > 0 || keep.weekly > 0;
    let wanted_time = |archive: &Archive| if is_by_time { catalog.time_of(archive) } else { None };
    let times: Vec<Option<Duration>> = archives.iter().map(wanted_time).collect();
    let mut keep_newest = |count: usize, reason: KeepReason, period_of: &dyn Fn(usize) -> Option<u64>| {
        let mut periods = BTreeSet::new();
        for index in &states {
            let Some(period) = period_of(*index) else { continue };
            if periods.len() < count
                && periods.insert(period)
                && let Some(kept) = reasons.get_mut(*index)
            {
                *kept = Some(reason);
            }
        }
    };
    let time_of = |index: usize| times.get(index).copied().flatten();
    keep_newest(keep.daily, KeepReason::Daily, &|index| time_of(index).map(day));
    keep_newest(keep.weekly, KeepReason::Weekly, &|index| time_of(index).map(week));
    if let Some(schedule) = catalog.epoch_schedule {
        keep_newest(keep.epoch_ends, KeepReason::EpochEnd, &|index| {
            let slots = schedule.epoch_slots_at(archives.get(index)?.name.slot);
            (*slots.end() < newest_slot).then_some(*slots.start())
        });
    }
    let is_epoch_unknown = keep.epoch_ends > 0 && catalog.epoch_schedule.is_none();
    for ((archive, time), reason) in archives.iter().zip(&times).zip(&mut reasons) {
        if is_epoch_unknown || is_by_time && time.is_none() && !archive.is_rebased() {
            *reason = Some(KeepReason::Undated);
        }
    }
    reasons
}
