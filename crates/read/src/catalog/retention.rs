//! Chooses the archives that stay by days, weeks and epochs, without I/O: of each of the newest
//! ones, the newest state.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use super::keep::{Keep, KeepReason};
use super::{Archive, Catalog};

/// Number of a day since 1970, in UTC.
fn day(time: Duration) -> u64 {
    time.as_secs() / 86_400
}

/// Number of a week since 1970. Weeks begin on Monday; 1970 began on a Thursday.
fn week(time: Duration) -> u64 {
    day(time).saturating_add(3) / 7
}

/// Returns for each archive of the catalog, in order, whether days, weeks or epochs keep it. Of
/// several reasons, returns the last in the order of [`KeepReason`].
///
/// A state is a full archive, or an incremental one with its full one. Results of `rebase` are not
/// counted. An archive of unknown time stays if days or weeks are asked for. If epochs are asked
/// for and their lengths are not known, every archive stays. An epoch counts if it is over, that
/// is, if an archive beyond its last slot is there that is never deleted (`newest_slot`).
pub(super) fn by_periods(catalog: &Catalog, keep: &Keep, newest_slot: u64) -> Vec<Option<KeepReason>> {
    let archives = catalog.archives();
    let mut reasons = vec![None; archives.len()];
    let is_state = |archive: &Archive| archive.is_full() || !archive.is_rebased() && catalog.base_of(archive).is_some();
    let mut states: Vec<usize> = (0..).zip(archives).filter(|(_, it)| is_state(it)).map(|(at, _)| at).collect();
    states.sort_by_key(|at| archives.get(*at).map(|archive| Reverse(archive.name.slot)));
    // A time may be reckoned from those of all archives, so it is only where it is asked for.
    let is_by_time = keep.daily > 0 || keep.weekly > 0;
    let of_archive = |archive: &Archive| if is_by_time { catalog.time_of(archive) } else { None };
    let times: Vec<Option<Duration>> = archives.iter().map(of_archive).collect();
    let mut keep_newest = |count: usize, reason: KeepReason, period_of: &dyn Fn(usize) -> Option<u64>| {
        let mut periods = BTreeSet::new();
        for at in &states {
            let is_new = |period: &u64| periods.len() < count && !periods.contains(period);
            let Some(period) = period_of(*at).filter(is_new) else { continue };
            periods.insert(period);
            reasons.get_mut(*at).into_iter().for_each(|kept| *kept = Some(reason));
        }
    };
    let time_of = |at: usize| times.get(at).copied().flatten();
    keep_newest(keep.daily, KeepReason::Daily, &|at| time_of(at).map(day));
    keep_newest(keep.weekly, KeepReason::Weekly, &|at| time_of(at).map(week));
    if let Some(schedule) = catalog.epoch_schedule {
        keep_newest(keep.epoch_ends, KeepReason::EpochEnd, &|at| {
            let slots = schedule.slots_of_epoch_of(archives.get(at)?.name.slot);
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
