//! Ranks candidates by the age that their state will have at boot: its present age plus the time to fetch
//! and restore it. Reads no files, and sends no requests.
//!
//! This is the only ranking: `find`, `fetch` and `bootstrap` use it, and use it again after each failure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use slotpress_base::saturating_add_to;
use slotpress_format::{ArchiveName, SlotTime};

use super::{Candidate, MaxAge, Node, total_bytes};
use crate::{Offer, Remote};

/// Assumed rate of a server that was not measured: a quarter of a 1 Gbit/s line.
const UNMEASURED_BYTES_PER_SECOND: u64 = 30_000_000;

/// Assumed size of an archive whose size is unknown: about the size of mainnet's.
const UNKNOWN_BYTES: u64 = 110_000_000_000;

/// Number of slots that an archive may be ahead of the RPC servers' slot. Archives are older than the newest
/// slot, and RPC servers lag by at most a few minutes, so a server that names a later archive is wrong or lies.
const FUTURE_SLOTS_MAX: u64 = 1_000;

#[derive(Clone, Copy)]
struct OfferPair<'a> {
    full: &'a Offer,
    incremental: Option<&'a Offer>,
}

impl<'a> OfferPair<'a> {
    fn slot(&self) -> u64 {
        self.incremental.unwrap_or(self.full).name.slot
    }

    fn offers(self) -> impl Iterator<Item = &'a Offer> {
        std::iter::once(self.full).chain(self.incremental)
    }
}

pub struct RankedCandidates {
    /// Candidates that a node may use, best first.
    pub candidates: Vec<Candidate>,
    /// Candidates whose states would be too old at boot.
    pub stale: Vec<Candidate>,
}

/// Offers of sources, and facts about their cluster, from which candidates are ranked.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    pub offers: Vec<Offer>,
    /// Current slot of the cluster, according to RPC servers.
    pub cluster_slot: Option<u64>,
    pub slot_time: SlotTime,
    /// Slots of banks, and their ages according to their bank files.
    pub ages: Vec<(u64, Duration)>,
    pub max_age: MaxAge,
    pub wants_incremental: bool,
    /// Measured rates of servers in bytes per second, by origin.
    pub rates: BTreeMap<String, u64>,
    pub restore_bytes_per_second: u64,
}

impl Ranking {
    /// True if the cluster may have reached the slot of an offer. Always true without an RPC server.
    pub fn is_plausible(&self, offer: &Offer) -> bool {
        self.cluster_slot.is_none_or(|slot| offer.name.slot <= slot.saturating_add(FUTURE_SLOTS_MAX))
    }

    /// Computes ages from the times in the offers' bank files.
    pub fn compute_ages(&mut self, now: SystemTime) {
        let age = |offer: &Offer| Some((offer.name.slot, now.duration_since(offer.bank_time?).unwrap_or_default()));
        self.ages = self.offers.iter().filter_map(age).collect();
    }

    /// Returns the age of the bank at a slot. If the cluster's slot is unknown, the age is that of the nearest
    /// bank of known age that is not older, plus the time of the slots between them. Returns `None` if all
    /// banks of known age are older.
    pub fn age(&self, slot: u64) -> Option<Duration> {
        if let Some(cluster_slot) = self.cluster_slot {
            return Some(self.slot_time.duration(cluster_slot.saturating_sub(slot)));
        }
        let not_older = self.ages.iter().filter_map(|(known_slot, age)| Some((known_slot.checked_sub(slot)?, *age)));
        let (slots, age) = not_older.min_by_key(|(slots, _)| *slots)?;
        Some(age.saturating_add(self.slot_time.duration(slots)))
    }

    /// Returns the limit on the age at boot: older states are refused.
    pub fn max_age(&self) -> Duration {
        self.max_age.time(self.slot_time)
    }

    /// True if the state would be too old at boot. If the operator set no limit, the default limit
    /// applies only to ages that follow from the cluster's slot.
    fn is_stale(&self, candidate: &Candidate) -> bool {
        let is_limited = self.max_age != MaxAge::Default;
        match candidate.expected_age {
            Some(age) => (is_limited || self.cluster_slot.is_some()) && age > self.max_age(),
            None => is_limited,
        }
    }

    /// Ranks the candidates for a node.
    pub fn rank(&self, node: &Node) -> RankedCandidates {
        let pairs = self.combine_offers(node);
        // Uses only the slots of pairs that may still be tried. After a lying server has failed, its
        // slot must not add the same delay to every other candidate.
        let newest_slot = self.cluster_slot.or(pairs.iter().map(OfferPair::slot).max());
        let mut candidates: Vec<Candidate> =
            pairs.into_iter().map(|pair| self.estimate(pair, newest_slot, node)).collect();
        // If the operator named an archive by one or more URLs, they are tried in the given order.
        if node.requested.is_some() {
            return RankedCandidates { candidates, stale: Vec::new() };
        }
        // Among equal ages, prefers fewer bytes to fetch, then sources that the operator named, newer slots,
        // and fewer faults. The locations make the order unique.
        candidates.sort_by_cached_key(|candidate| {
            let faults = candidate.offers().map(|offer| node.count_faults(offer)).sum::<usize>();
            (
                candidate.ranking_age,
                candidate.remaining_bytes().unwrap_or(u64::MAX),
                !candidate.named_by_operator,
                Reverse(candidate.slot()),
                faults,
                candidate.full.location(),
                candidate.source.clone(),
            )
        });
        // Keeps only the best pair of each full archive.
        let mut seen = BTreeSet::new();
        candidates.retain(|candidate| seen.insert((candidate.full.location(), candidate.source.clone())));
        let stale = candidates.extract_if(.., |candidate| self.is_stale(candidate)).collect();
        demote_and_drop_local_bases(&mut candidates, node);
        RankedCandidates { candidates, stale }
    }

    fn estimate(&self, pair: OfferPair<'_>, newest_slot: Option<u64>, node: &Node) -> Candidate {
        let OfferPair { full, incremental } = pair;
        let slot = pair.slot();
        let lag = self.slot_time.duration(newest_slot.unwrap_or(slot).saturating_sub(slot));
        let age = self.age(slot);
        let remotes = || pair.offers().filter_map(|offer| offer.remote().map(|remote| (offer, remote)));
        let mut kept_bytes = 0;
        let mut fetch_time = Duration::ZERO;
        for (offer, remote) in remotes() {
            let offer_kept_bytes = node.kept_bytes(&offer.name);
            saturating_add_to(&mut kept_bytes, offer_kept_bytes);
            let remaining_bytes = offer.file_bytes.map(|bytes| bytes.saturating_sub(offer_kept_bytes));
            let rate = self.rate(remote).unwrap_or(UNMEASURED_BYTES_PER_SECOND);
            fetch_time = fetch_time.saturating_add(time_at_rate(remaining_bytes, rate));
        }
        let restore_time = time_at_rate(total_bytes(pair.offers()), self.restore_bytes_per_second);
        let preparation_time = fetch_time.saturating_add(restore_time);
        let expected_age = age.map(|age| age.saturating_add(preparation_time));
        let age_slots = match self.cluster_slot {
            Some(cluster_slot) => Some(cluster_slot.saturating_sub(slot)),
            None => age.map(|age| self.slot_time.slots_in(age)),
        };
        Candidate {
            incremental: incremental.cloned(),
            source: full.source.clone(),
            named_by_operator: full.is_named_by_operator(),
            age_slots,
            age,
            kept_bytes,
            fetch_time,
            rate_bytes_per_second: remotes().next().and_then(|(_, remote)| self.rate(remote)),
            expected_age,
            expected_age_slots: expected_age.map(|age| self.slot_time.slots_in(age)),
            ranking_age: lag.saturating_add(preparation_time),
            full: full.clone(),
        }
    }

    pub(crate) fn rate(&self, remote: &Remote) -> Option<u64> {
        self.rates.get(&remote.origin()).copied()
    }

    /// Returns each full archive alone, and with the newest incremental archives that build on it.
    /// The incremental archive may come from another source, because all validators of a cluster have the
    /// same state at a slot. If a state is expected, returns only combinations with that state.
    fn combine_offers(&self, node: &Node) -> Vec<OfferPair<'_>> {
        let mut pairs = Vec::new();
        for full in &self.offers {
            let is_wanted = match &node.requested {
                Some(requested) => *requested == full.name,
                None => full.is_full(),
            };
            if !is_wanted || !node.allows(full, None) {
                continue;
            }
            let location = full.location();
            let own_incremental = self.newest_incremental_on(&full.name, &location, node, Some(&full.source));
            let newest_incremental = self.newest_incremental_on(&full.name, &location, node, None);
            // An incremental archive from another source is used if the full archive's own source has none. A
            // local full archive is also combined with a newer incremental archive from another source.
            if let Some(newest) = newest_incremental
                && own_incremental.is_none_or(|own| full.is_local() && own.name.slot < newest.name.slot)
            {
                pairs.push(OfferPair { full, incremental: newest_incremental });
            }
            if own_incremental.is_some() {
                pairs.push(OfferPair { full, incremental: own_incremental });
            }
            // The state of the full archive alone can be younger at boot, because fetching the incremental
            // archive may take longer than the time between their slots.
            pairs.push(OfferPair { full, incremental: None });
        }
        pairs.retain(|pair| pair.offers().any(|offer| node.expected.matches(&offer.name)));
        pairs
    }

    pub fn wants_incremental_on(&self, full: &ArchiveName, node: &Node) -> bool {
        let is_enough = node.expected.is_set() && node.expected.matches(full);
        self.wants_incremental && !is_enough && node.requested.is_none()
    }

    /// Returns the newest incremental archive on the full archive at `full_location`. If `source` is given,
    /// looks only at the offers of that source.
    pub fn newest_incremental_on(
        &self,
        full: &ArchiveName,
        full_location: &str,
        node: &Node,
        source: Option<&String>,
    ) -> Option<&Offer> {
        if !self.wants_incremental_on(full, node) {
            return None;
        }
        let usable = self.offers.iter().filter(|offer| {
            let is_wanted = offer.builds_on(full) && node.expected.matches(&offer.name);
            is_wanted && source.is_none_or(|source| *source == offer.source) && node.allows(offer, Some(full_location))
        });
        // Among equal slots, the choice must not depend on the order of offers.
        usable.max_by_key(|offer| {
            let faults = Reverse(node.count_faults(offer));
            (offer.name.slot, offer.is_local(), faults, offer.is_named_by_operator(), Reverse(offer.source.clone()))
        })
    }
}

/// Moves candidates that need a local base to the end, unless they need fewer bytes than the best candidate
/// that fetches its full archive. Drops a candidate that needs a local base if the node has a full archive
/// between the slots of the base and of the incremental archive: a restore would refuse the candidate.
fn demote_and_drop_local_bases(candidates: &mut Vec<Candidate>, node: &Node) {
    let fetched = candidates.iter().filter(|candidate| !candidate.full.is_local());
    let newest_remote_slot = fetched.map(|candidate| candidate.full.name.slot).max();
    let needs_base = |candidate: &Candidate| candidate.needs_local_base(newest_remote_slot);
    candidates.retain(|candidate| {
        let between = candidate.full.name.slot.saturating_add(1)..candidate.slot();
        !needs_base(candidate) || !node.full_slots.iter().any(|slot| between.contains(slot))
    });
    // All local full archives save the same fetch, so ages decide between them.
    let best_fetched = candidates.iter().find(|candidate| !candidate.full.is_local());
    let fetched_bytes = best_fetched.and_then(Candidate::remaining_bytes);
    candidates.sort_by_key(|candidate| match (fetched_bytes, candidate.remaining_bytes()) {
        (Some(fetched_bytes), Some(bytes)) => needs_base(candidate) && bytes >= fetched_bytes,
        _ => false,
    });
}

impl Candidate {
    /// True if the full archive is local, and useful only as the base of the incremental archive: a server has
    /// a newer full archive, or the incremental archive was rebased on the local archive.
    fn needs_local_base(&self, newest_remote_slot: Option<u64>) -> bool {
        let is_older = newest_remote_slot.is_some_and(|newest| self.full.name.slot < newest);
        let incremental = self.incremental.as_ref();
        self.full.is_local() && incremental.is_some_and(|offer| is_older || offer.rebased_on.is_some())
    }

    /// Returns the number of bytes still to be fetched; `None` if unknown.
    pub(crate) fn remaining_bytes(&self) -> Option<u64> {
        self.fetch_bytes().map(|bytes| bytes.saturating_sub(self.kept_bytes))
    }
}

/// Returns the time that a transfer or a restore takes at a rate. If the size is unknown, assumes the size of
/// a mainnet archive.
pub fn time_at_rate(bytes: Option<u64>, bytes_per_second: u64) -> Duration {
    let thousands = u128::from(bytes.unwrap_or(UNKNOWN_BYTES)).saturating_mul(1000);
    let milliseconds = thousands.checked_div(u128::from(bytes_per_second.max(1))).and_then(|time| time.try_into().ok());
    Duration::from_millis(milliseconds.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;
    use slotpress_format::Hash;
    use slotpress_format::ledger::names::ArchiveCompression;

    use super::*;
    use crate::OfferPlace;

    fn offer(base_slot: Option<u64>, slot: u64, source: u64, file_bytes: Option<u64>) -> Offer {
        let name = ArchiveName { base_slot, slot, hash: Hash([7; 32]), compression: ArchiveCompression::Zstd };
        let place = OfferPlace::Local(PathBuf::from(format!("/{source}/{name}")));
        Offer { file_bytes, source: format!("source {source}"), ..Offer::new(name, place) }
    }

    prop_compose! {
        fn offers()(list in proptest::collection::vec((proptest::option::of(1u64..20), 1u64..20, 0u64..4, proptest::option::of(any::<u64>())), 0..20))
            -> Vec<Offer> {
            list.into_iter().map(|(base, slot, source, bytes)| offer(base, slot + base.unwrap_or(0), source, bytes)).collect()
        }
    }

    fn remote_offer(base_slot: Option<u64>, slot: u64, host: &str, file_bytes: Option<u64>) -> Offer {
        let mut offer = offer(base_slot, slot, 0, file_bytes);
        let url = crate::parse_url(&format!("http://{host}/{}", offer.name)).expect("a URL");
        offer.place = OfferPlace::Remote(Remote::from_url(&url));
        Offer { source: format!("http://{host}"), ..offer }
    }

    /// Facts about a local full archive and a remote incremental one, from which the age at boot follows.
    #[derive(Clone, Copy, Debug)]
    struct PairFacts {
        age_ms: u64,
        local_bytes: Option<u64>,
        fetch_bytes: Option<u64>,
        fetch_bytes_per_second: Option<u64>,
        restore_bytes_per_second: u64,
    }

    fn age_at_boot(facts: PairFacts) -> Duration {
        let full = offer(None, 10, 1, facts.local_bytes);
        let incremental = remote_offer(Some(10), 20, "host", facts.fetch_bytes);
        let rates = facts.fetch_bytes_per_second.map(|rate| ("http://host".to_string(), rate));
        let ranking = Ranking {
            ages: vec![(20, Duration::from_millis(facts.age_ms))],
            rates: rates.into_iter().collect(),
            restore_bytes_per_second: facts.restore_bytes_per_second,
            ..Ranking::default()
        };
        let pair = OfferPair { full: &full, incremental: Some(&incremental) };
        ranking.estimate(pair, None, &Node::default()).expected_age.expect("a known age")
    }

    prop_compose! {
        fn pair_facts(max: u64)(
            age_ms in 0..max,
            local_bytes in proptest::option::of(0..max),
            fetch_bytes in proptest::option::of(0..max),
            fetch_bytes_per_second in proptest::option::of(0..max),
            restore_bytes_per_second in 0..max,
        ) -> PairFacts {
            PairFacts { age_ms, local_bytes, fetch_bytes, fetch_bytes_per_second, restore_bytes_per_second }
        }
    }

    #[test]
    fn ages_at_boot_include_fetching_and_restoring() {
        // 110 GB take 880 s at 1 Gbit/s, and 550 s to restore; the state is 200 s old.
        let facts = PairFacts {
            age_ms: 200_000,
            local_bytes: Some(0),
            fetch_bytes: Some(110_000_000_000),
            fetch_bytes_per_second: Some(125_000_000),
            restore_bytes_per_second: 200_000_000,
        };
        assert_eq!(age_at_boot(facts), Duration::from_secs(200 + 880 + 550));
        // The full archive is on the disk. An incremental archive of 2 GB is fetched.
        let facts = PairFacts { local_bytes: Some(110_000_000_000), fetch_bytes: Some(2_000_000_000), ..facts };
        assert_eq!(age_at_boot(facts), Duration::from_secs(200 + 16 + 560));
    }

    fn ranking(offers: Vec<Offer>) -> Ranking {
        let restore_bytes_per_second = super::super::RESTORE_BYTES_PER_SECOND_DEFAULT;
        Ranking { offers, wants_incremental: true, restore_bytes_per_second, ..Ranking::default() }
    }

    /// The age of a bank follows from the bank's own time, or from the time of a newer bank. The time
    /// of the archive file is not used.
    #[test]
    fn ages_follow_from_the_times_of_banks() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let dated = |slot: u64, age_seconds: Option<u64>| {
            let mut offer = offer(None, slot, 0, None);
            offer.bank_time = age_seconds.map(|seconds| now - Duration::from_secs(seconds));
            offer.modified = Some(now);
            offer
        };
        let ages = |list: &[(u64, Option<u64>)], slot: u64| {
            let mut ranking = ranking(list.iter().map(|(slot, age)| dated(*slot, *age)).collect());
            ranking.compute_ages(now);
            ranking.age(slot).map(|age| age.as_secs())
        };
        assert_eq!(ages(&[(100, None)], 100), None, "unknown");
        assert_eq!(ages(&[(100, Some(500))], 100), Some(500));
        assert_eq!(ages(&[(150, Some(20)), (200, Some(500))], 100), Some(40), "from the next newer bank");
        assert_eq!(ages(&[(100, Some(500)), (200, Some(5))], 200), Some(5), "an older bank is not used");
        assert_eq!(ages(&[(100, Some(500)), (200, None)], 200), None, "newer than all banks of known age");
        assert_eq!(ages(&[(100, None), (200, Some(0))], 100), Some(40));
    }

    /// A local full archive need not be fetched, so an incremental archive on it needs the fewest
    /// bytes. The incremental archive must build on the state of the local archive.
    #[test]
    fn a_local_full_archive_saves_a_fetch() {
        let remote = |base_slot, slot: u64, bytes: u64, rebased_on: Option<u8>| Offer {
            rebased_on: rebased_on.map(|byte| Hash([byte; 32])),
            ..remote_offer(base_slot, slot, "host", Some(bytes))
        };
        let local = || offer(None, 10, 1, Some(100_000_000_000));
        let best = |rebased_on: Option<u8>| {
            let full = remote(None, 20_010, 100_000_000_000, None);
            let ranking = Ranking {
                slot_time: SlotTime::new(Duration::from_secs(2), slotpress_format::SlotTimeSource::Rpc)
                    .expect("a time"),
                ..ranking(vec![full, local(), remote(Some(10), 20_010, 1_000_000_000, rebased_on)])
            };
            let best = ranking.rank(&Node::default()).candidates.swap_remove(0);
            (best.full.name.slot, best.slot(), best.fetch_bytes())
        };
        assert_eq!(best(Some(7)), (10, 20_010, Some(1_000_000_000)));
        assert_eq!(best(None), (10, 20_010, Some(1_000_000_000)), "the list does not name the base's hash");
        assert_eq!(
            best(Some(8)),
            (20_010, 20_010, Some(100_000_000_000)),
            "the base has a different state at that slot"
        );
        let offers = vec![
            remote(None, 1010, 100_000_000_000, None),
            offer(None, 1010, 1, Some(100_000_000_000)),
            remote(Some(1010), 1015, 1_000, None),
            local(),
            remote(Some(10), 20_010, 2_000, None),
        ];
        let best = ranking(offers).rank(&Node::default()).candidates.swap_remove(0);
        assert_eq!(
            (best.full.name.slot, best.slot()),
            (10, 20_010),
            "the newest incremental archive on either local full archive"
        );
    }

    #[test]
    fn an_incremental_archive_of_another_server_is_used() {
        let list = vec![
            offer(None, 10, 1, None),
            offer(None, 10, 2, None),
            offer(Some(10), 15, 2, None),
            offer(Some(9), 20, 1, None),
        ];
        let slots: Vec<u64> = ranking(list).rank(&Node::default()).candidates.iter().map(Candidate::slot).collect();
        assert_eq!(slots, [15, 15]);
    }

    /// A fast server's full archive is used alone, although a slow server has an incremental archive on it.
    #[test]
    fn a_slow_incremental_archive_is_left_out() {
        let remote = |base_slot, slot: u64, host: &str| remote_offer(base_slot, slot, host, Some(1_000_000));
        let slots = |rate: u64| -> Vec<u64> {
            let list = vec![remote(None, 1000, "good"), remote(Some(1000), 1010, "slow"), remote(None, 900, "good")];
            let rates = [("http://good", 100_000_000), ("http://slow", rate)];
            let rates = rates.map(|(host, rate)| (host.to_string(), rate)).into();
            let ranking = Ranking { rates, ..ranking(list) };
            ranking.rank(&Node::default()).candidates.iter().map(Candidate::slot).collect()
        };
        assert_eq!(slots(100_000_000), [1010, 900]);
        assert_eq!(slots(1_000), [1000, 900], "1,000 s for 10 slots");
    }

    /// A local full archive is combined with the newest incremental archive of any source.
    #[test]
    fn the_newest_incremental_archive_of_any_source_is_used() {
        let list = vec![offer(None, 10, 1, None), offer(Some(10), 12, 1, None), offer(Some(10), 15, 2, None)];
        let best = ranking(list.clone()).rank(&Node::default()).candidates.swap_remove(0);
        assert_eq!(best.incremental.map(|offer| offer.name.slot), Some(15));
        // If the older state is expected, the older incremental archive is used.
        let mut check = slotpress_read::CheckOptions::default();
        check.expect_slot = Some(12);
        let node = Node { expected: super::super::ExpectedState::from_check(&check), ..Node::default() };
        let best = ranking(list).rank(&node).candidates.swap_remove(0);
        assert_eq!(best.incremental.map(|offer| offer.name.slot), Some(12));
    }

    proptest! {
        #[test]
        fn older_larger_and_slower_is_never_younger_at_boot(
            facts in pair_facts(1 << 45),
            difference in 1u64..1 << 40,
        ) {
            let add = |number: Option<u64>| number.map(|number| number + difference);
            let age = age_at_boot(facts);
            let older = PairFacts { age_ms: facts.age_ms + difference, ..facts };
            let larger = PairFacts { local_bytes: add(facts.local_bytes), ..facts };
            let longer_fetch = PairFacts { fetch_bytes: add(facts.fetch_bytes), ..facts };
            for worse in [older, larger, longer_fetch] {
                prop_assert!(age_at_boot(worse) >= age, "{:?}", worse);
            }
            let faster_fetch = PairFacts { fetch_bytes_per_second: add(facts.fetch_bytes_per_second), ..facts };
            let restore_bytes_per_second = facts.restore_bytes_per_second + difference;
            let faster_restore = PairFacts { restore_bytes_per_second, ..facts };
            for better in [faster_fetch, faster_restore] {
                prop_assert!(age_at_boot(better) <= age, "{:?}", better);
            }
        }

        #[test]
        fn ages_do_not_overflow(facts in pair_facts(u64::MAX)) {
            let _ = age_at_boot(facts);
        }

        #[test]
        fn pairs_fit_and_the_order_does_not_depend_on_who_answered_first(list in offers(), seed in any::<u64>()) {
            let order = |list: Vec<Offer>| {
                let candidates = Ranking { restore_bytes_per_second: 1_000_000, ..ranking(list) }.rank(&Node::default()).candidates;
                candidates.into_iter().map(|candidate| (candidate.source, candidate.full, candidate.incremental)).collect::<Vec<_>>()
            };
            let mut reordered = list.clone();
            if !reordered.is_empty() {
                let middle = seed as usize % reordered.len();
                reordered.rotate_left(middle);
                reordered.reverse();
            }
            let ranked = order(list.clone());
            // Offers of the same archive at the same place count once.
            let fulls = list.iter().filter(|offer| offer.name.base_slot.is_none());
            let places: BTreeSet<_> = fulls.map(|offer| (offer.location(), &offer.source)).collect();
            prop_assert_eq!(ranked.len(), places.len());
            for (_, full, incremental) in &ranked {
                prop_assert!(incremental.as_ref().is_none_or(|offer| offer.name.base_slot == Some(full.name.slot)));
            }
            let names = |ranked: &[(String, Offer, Option<Offer>)]| ranked.iter()
                .map(|(source, full, incremental)| (source.clone(), full.name.slot, incremental.as_ref().map(|offer| offer.name.slot)))
                .collect::<Vec<_>>();
            // Offers of one name and source differ only in length, so their order may differ.
            let mut names_and_sources: Vec<_> = list.iter().map(|offer| (offer.name.to_string(), offer.source.clone())).collect();
            names_and_sources.sort();
            names_and_sources.dedup();
            if names_and_sources.len() == list.len() {
                prop_assert_eq!(names(&ranked), names(&order(reordered)));
            }
        }
    }
}
