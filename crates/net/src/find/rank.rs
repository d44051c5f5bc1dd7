//! Order of candidates by the age that their state will have at boot. No I/O.
//!
//! That is the present age plus the time to download and restore. Rates that were not measured are assumed to be low,
//! so that an unknown server never ranks before a known one that is as good.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use slotpress_format::SlotTime;

use super::Candidate;
use crate::Offer;

/// Assumed rate of a server that was not measured: a quarter of a 1 Gbit/s line.
const UNMEASURED_BYTES_PER_SECOND: u64 = 30_000_000;

/// Assumed size of an archive of unknown size: about mainnet's.
const UNKNOWN_BYTES: u64 = 110_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Time since the bank of the state; if that is unknown, since a newer bank.
    pub age: Duration,
    /// Bytes to fetch: of a local archive none.
    pub fetch_bytes: Option<u64>,
    /// Bytes of all archives.
    pub bytes: Option<u64>,
    pub rate_bytes_per_second: Option<u64>,
}

/// Estimates the ages of banks from the times of archives: a bank is at least as old as the file that holds it, and
/// older than a newer bank by at least the slots between them. `None` for banks newer than all archives of known time.
pub fn ages_by_time(
    offers: &[(Offer, String, bool)],
    slot_time: SlotTime,
    now: SystemTime,
) -> impl Fn(u64) -> Option<Duration> + use<> {
    let dated = offers
        .iter()
        .filter_map(|(offer, ..)| Some((offer.name.slot, now.duration_since(offer.modified?).unwrap_or_default())));
    let dated: Vec<(u64, Duration)> = dated.collect();
    move |slot| {
        let not_older = dated.iter().filter_map(|(newer, age)| Some((newer.checked_sub(slot)?, *age)));
        not_older.map(|(slots, age)| age.saturating_add(slot_time.of_slots(slots))).max()
    }
}

impl Facts {
    /// The time to fetch what is not on a local disk.
    pub fn fetch_time(self) -> Duration {
        let rate = self.rate_bytes_per_second.unwrap_or(UNMEASURED_BYTES_PER_SECOND);
        time_for(self.fetch_bytes.unwrap_or(UNKNOWN_BYTES), rate.max(1))
    }

    /// The time to restore all archives.
    pub fn restore_time(self, restore_bytes_per_second: u64) -> Duration {
        time_for(self.bytes.unwrap_or(UNKNOWN_BYTES), restore_bytes_per_second.max(1))
    }

    /// The age that the state will have at boot.
    pub fn expected_age(self, restore_bytes_per_second: u64) -> Duration {
        self.age.saturating_add(self.fetch_time()).saturating_add(self.restore_time(restore_bytes_per_second))
    }
}

fn time_for(bytes: u64, bytes_per_second: u64) -> Duration {
    let thousands = u128::from(bytes).saturating_mul(1000);
    let milliseconds = thousands.checked_div(u128::from(bytes_per_second)).and_then(|time| time.try_into().ok());
    Duration::from_millis(milliseconds.unwrap_or(u64::MAX))
}

/// Computes all ages, and sorts by the age at boot, the youngest first. Ties are resolved by: sources that the operator
/// named, newer slots, then names.
pub fn sort(candidates: &mut [Candidate], restore_bytes_per_second: u64) {
    for candidate in candidates.iter_mut() {
        let facts = candidate.facts();
        candidate.rank = facts.expected_age(restore_bytes_per_second);
        let rest = candidate.rank.saturating_sub(facts.age);
        candidate.expected_age = candidate.age.map(|age| age.saturating_add(rest));
    }
    candidates.sort_by_cached_key(|one| {
        (one.rank, !one.is_operator, Reverse(one.slot()), one.full.shown(), one.source.clone())
    });
}

/// Pairs each full archive with the newest incremental one based on it: one of the same server, otherwise one of
/// another server, since all validators of a cluster have the same state at one slot.
pub fn pair_up(offers: Vec<(Offer, String, bool)>, wants_incremental: bool) -> Vec<Candidate> {
    let (full, incremental): (Vec<_>, Vec<_>) =
        offers.into_iter().partition(|(offer, ..)| offer.name.base_slot.is_none());
    let newest_on = |full: &Offer, source: Option<&str>| {
        let fits = incremental.iter().filter(|(offer, from, _)| {
            wants_incremental && offer.goes_on(&full.name) && source.is_none_or(|source| source == from)
        });
        // Equal slots are resolved independently of the order of offers.
        fits.max_by_key(|(offer, from, is_operator)| (offer.name.slot, *is_operator, Reverse(from.clone())))
    };
    let candidate = |(full, source, is_operator): (Offer, String, bool)| {
        let found = newest_on(&full, Some(&source)).or_else(|| newest_on(&full, None));
        Candidate {
            incremental: found.map(|(offer, ..)| offer.clone()),
            full,
            source,
            is_operator,
            age_slots: None,
            age: None,
            behind: Duration::ZERO,
            rate_bytes_per_second: None,
            expected_age: None,
            expected_age_slots: None,
            rank: Duration::MAX,
        }
    };
    full.into_iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;
    use slotpress_format::ledger::names::Extension;
    use slotpress_format::{ArchiveName, Hash};

    use super::*;
    use crate::Place;

    fn offer(base_slot: Option<u64>, slot: u64, source: u64, length_bytes: Option<u64>) -> (Offer, String, bool) {
        let name = ArchiveName { base_slot, slot, hash: Hash([7; 32]), extension: Extension::TarZstd };
        let place = Place::Local(PathBuf::from(format!("/{source}/{name}")));
        (
            Offer { name, place, length_bytes, root: None, modified: None, slot_time: None, rebased_on: None },
            format!("source {source}"),
            source.is_multiple_of(2),
        )
    }

    prop_compose! {
        fn offers()(list in proptest::collection::vec((proptest::option::of(1u64..20), 1u64..20, 0u64..4, proptest::option::of(any::<u64>())), 0..20))
            -> Vec<(Offer, String, bool)> {
            list.into_iter().map(|(base, slot, source, bytes)| offer(base, slot + base.unwrap_or(0), source, bytes)).collect()
        }
    }

    fn facts() -> impl Strategy<Value = Facts> {
        let option = || proptest::option::of(0u64..1 << 45);
        (0u64..1 << 45, option(), option(), option()).prop_map(|(age_ms, fetch_bytes, bytes, rate)| Facts {
            age: Duration::from_millis(age_ms),
            fetch_bytes,
            bytes,
            rate_bytes_per_second: rate,
        })
    }

    #[test]
    fn mainnet() {
        // 110 GB at 1 Gbit/s: 880 s, restored in 550 s, 200 s old.
        let age = Duration::from_secs(200);
        let bytes = Some(110_000_000_000);
        let facts = Facts { age, fetch_bytes: bytes, bytes, rate_bytes_per_second: Some(125_000_000) };
        assert_eq!(facts.expected_age(200_000_000), Duration::from_secs(200 + 880 + 550));
        // With the full archive on the disk, and an incremental one of 2 GB on it.
        let facts = Facts { fetch_bytes: Some(2_000_000_000), bytes: Some(112_000_000_000), ..facts };
        assert_eq!(facts.expected_age(200_000_000), Duration::from_secs(200 + 16 + 560));
    }

    /// A file that was copied today holds an older bank, if an archive of a newer bank is older than the copy.
    #[test]
    fn ages_by_the_times_of_files() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let dated = |slot: u64, age_seconds: Option<u64>| {
            let (mut offer, source, is_operator) = offer(None, slot, 0, None);
            offer.modified = age_seconds.map(|seconds| now - Duration::from_secs(seconds));
            (offer, source, is_operator)
        };
        let ages = |list: &[(u64, Option<u64>)], slot: u64| {
            let list: Vec<_> = list.iter().map(|(slot, age)| dated(*slot, *age)).collect();
            ages_by_time(&list, SlotTime::ASSUMED, now)(slot).map(|age| age.as_secs())
        };
        assert_eq!(ages(&[(100, None)], 100), None, "unknown");
        assert_eq!(ages(&[(100, Some(500))], 100), Some(500));
        assert_eq!(ages(&[(100, Some(5)), (200, Some(500))], 100), Some(540), "copied since");
        assert_eq!(ages(&[(100, Some(500)), (200, Some(5))], 200), Some(5), "an older archive says nothing");
        assert_eq!(ages(&[(100, Some(500)), (200, None)], 200), None, "newer than what is dated");
        assert_eq!(ages(&[(100, None), (200, Some(0))], 100), Some(40));
    }

    /// A local full archive is not fetched: what counts is what a server has on it, if it is of the same state.
    #[test]
    fn an_incremental_on_a_full_archive_that_is_there() {
        let remote = |base_slot, slot: u64, bytes: u64, rebased_on: Option<u8>| {
            let (mut offer, ..) = offer(base_slot, slot, 0, Some(bytes));
            let url = crate::parse_url(&format!("http://host/{}", offer.name)).expect("a URL");
            offer.place = Place::Remote(crate::Remote::of_url(&url));
            offer.rebased_on = rebased_on.map(|byte| Hash([byte; 32]));
            (offer, "http://host".to_string(), true)
        };
        let local = || offer(None, 10, 1, Some(100_000_000_000));
        let best = |rebased_on: Option<u8>| {
            let full = remote(None, 90, 100_000_000_000, None);
            let mut candidates = pair_up(vec![full, local(), remote(Some(10), 90, 1_000_000_000, rebased_on)], true);
            for candidate in &mut candidates {
                candidate.behind = Duration::from_secs(10_000 * (90 - candidate.slot()));
            }
            sort(&mut candidates, 200_000_000);
            let best = candidates.swap_remove(0);
            (best.full.name.slot, best.slot(), best.fetch_bytes())
        };
        assert_eq!(best(Some(7)), (10, 90, Some(1_000_000_000)));
        assert_eq!(best(None), (10, 90, Some(1_000_000_000)), "a list that does not tell");
        assert_eq!(best(Some(8)), (90, 90, Some(100_000_000_000)), "of another state at that slot");
    }

    #[test]
    fn the_incremental_of_another_server() {
        let list = vec![
            offer(None, 10, 1, None),
            offer(None, 10, 2, None),
            offer(Some(10), 15, 2, None),
            offer(Some(9), 20, 1, None),
        ];
        let pairs = pair_up(list, true);
        let slots: Vec<u64> = pairs.iter().map(Candidate::slot).collect();
        assert_eq!(slots, [15, 15]);
    }

    proptest! {
        #[test]
        fn older_larger_and_slower_is_never_better(facts in facts(), more in 1u64..1 << 40, restore in 1u64..1 << 40) {
            let age = facts.expected_age(restore);
            let older = Facts { age: facts.age + Duration::from_millis(more), ..facts };
            prop_assert!(older.expected_age(restore) >= age);
            let larger = Facts { bytes: facts.bytes.map(|bytes| bytes + more), ..facts };
            prop_assert!(larger.expected_age(restore) >= age);
            let larger = Facts { fetch_bytes: facts.fetch_bytes.map(|bytes| bytes + more), ..facts };
            prop_assert!(larger.expected_age(restore) >= age);
            let faster = Facts { rate_bytes_per_second: facts.rate_bytes_per_second.map(|rate| rate + more), ..facts };
            prop_assert!(faster.expected_age(restore) <= age);
            prop_assert!(facts.expected_age(restore + more) <= age);
        }

        #[test]
        fn nothing_overflows(age in any::<u64>(), bytes in any::<u64>(), rate in any::<u64>(), restore in any::<u64>()) {
            let (age, bytes, rate_bytes_per_second) = (Duration::from_nanos(age), Some(bytes), Some(rate));
            let _ = Facts { age, fetch_bytes: bytes, bytes, rate_bytes_per_second }.expected_age(restore);
        }

        #[test]
        fn pairs_fit_and_the_order_does_not_depend_on_who_answered_first(list in offers(), seed in any::<u64>()) {
            let order = |list: Vec<(Offer, String, bool)>| {
                let mut candidates = pair_up(list, true);
                for candidate in &mut candidates {
                    candidate.behind = Duration::from_secs(100 - candidate.slot());
                }
                sort(&mut candidates, 1_000_000);
                candidates.into_iter().map(|one| (one.source, one.full, one.incremental)).collect::<Vec<_>>()
            };
            let mut other = list.clone();
            if !other.is_empty() {
                let middle = seed as usize % other.len();
                other.rotate_left(middle);
                other.reverse();
            }
            let ranked = order(list.clone());
            prop_assert_eq!(ranked.len(), list.iter().filter(|(offer, ..)| offer.name.base_slot.is_none()).count());
            for (_, full, incremental) in &ranked {
                prop_assert!(incremental.as_ref().is_none_or(|one| one.name.base_slot == Some(full.name.slot)));
            }
            let names = |ranked: &[(String, Offer, Option<Offer>)]| ranked.iter()
                .map(|(source, full, incremental)| (source.clone(), full.name.slot, incremental.as_ref().map(|one| one.name.slot)))
                .collect::<Vec<_>>();
            // Offers that agree in everything but their length cannot be told apart by name; their order may differ.
            let mut lengths: Vec<_> = list.iter().map(|(offer, source, _)| (offer.name.to_string(), source.clone())).collect();
            lengths.sort();
            lengths.dedup();
            if lengths.len() == list.len() {
                prop_assert_eq!(names(&ranked), names(&order(other)));
            }
        }
    }
}
