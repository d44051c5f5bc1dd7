//! Finds snapshots: which sources have which archives, how fast they send, and how old each state
//! will be when a node boots from it.
//!
//! [`find`] asks the sources and RPC servers that the operator names, and the peers that the RPC servers
//! list. It briefly measures the rates of the best servers, and ranks all states by their expected age at
//! boot ([`rank`]). The slots and hashes in archive names are not checked here.

mod ask;
mod cluster;
mod measure;
pub mod node;
mod options;
pub mod rank;

use std::collections::BTreeSet;
use std::time::Duration;

use ask::{AskedSource, ask_all, read_local_slot_time};
pub use ask::{ask_patiently, read_bank_time};
use cluster::ask_cluster;
pub use cluster::{Cluster, ClusterFacts};
pub use node::{ExpectedState, FailedArchive, Node};
pub use options::{FindOptions, MaxAge, RESTORE_BYTES_PER_SECOND_DEFAULT};
use rank::Ranking;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Error, ErrorKind, Progress, Result, Stage, clock, hint, quantity};
use slotpress_format::SlotTimeSource;

use crate::{Client, Offer, Remote, SourceLocation};

/// Largest number of sources that are asked: mainnet has about 5,000 nodes, and hundreds of
/// them answer RPC.
const SOURCES_MAX: usize = 4096;

/// Maximum number of rounds of measuring. A round can change which candidates are best. The servers of the
/// new best candidates are measured in the next round.
const MEASURE_ROUNDS_MAX: usize = 3;

/// Largest number of refused sources in a report.
pub const REFUSED_MAX: usize = 10_000;

/// A state that can be fetched: a full archive, alone or with an incremental archive that builds on it.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct Candidate {
    /// The full archive of the state.
    pub full: Offer,
    /// The incremental archive on it, if there is one.
    pub incremental: Option<Offer>,
    /// Source that has the full archive: its URL or path, without secrets.
    pub source: String,
    /// True if the operator named the source; false if it is a peer.
    pub named_by_operator: bool,
    /// Number of slots since the state's slot; computed from [`Candidate::age`] if no RPC server reports
    /// the current slot. `None` if unknown.
    pub age_slots: Option<u64>,
    /// Time since the state's slot; `None` if unknown.
    pub age: Option<Duration>,
    /// Number of bytes that need not be fetched, because an earlier run fetched them.
    pub(crate) kept_bytes: u64,
    /// Estimated time to fetch the archives that are not on a local disk.
    pub fetch_time: Duration,
    /// Measured rate of one connection to the server of the first archive to fetch; `None` if the server
    /// was not measured.
    pub rate_bytes_per_second: Option<u64>,
    /// Age of the state at boot: its present age plus the time to fetch and restore it. `None` if its
    /// present age is unknown.
    pub expected_age: Option<Duration>,
    /// Number of slots that `expected_age` corresponds to; `None` if the age is unknown.
    pub expected_age_slots: Option<u64>,
    /// Key of the ranking: like `expected_age`, but instead of the present age, with the time between the state's
    /// slot and the cluster's slot or, if that is unknown, the slot of the newest offered state.
    pub(crate) ranking_age: Duration,
}

#[warn(missing_docs)]
impl Candidate {
    /// Returns the slot of the state.
    pub fn slot(&self) -> u64 {
        self.incremental.as_ref().map_or(self.full.name.slot, |incremental| incremental.name.slot)
    }

    /// Returns the archives, the full one first.
    pub fn offers(&self) -> impl Iterator<Item = &Offer> {
        [Some(&self.full), self.incremental.as_ref()].into_iter().flatten()
    }

    /// Returns the archives as sources. From these, `fetch` and `bootstrap` obtain exactly this state.
    pub fn sources(&self) -> Vec<SourceLocation> {
        self.offers().map(Offer::as_source).collect()
    }

    /// Returns the total size of the archives, in bytes; `None` if a server does not state a size.
    pub fn total_bytes(&self) -> Option<u64> {
        total_bytes(self.offers())
    }

    /// Returns the total size of the archives that are not on a local disk; `None` if a server does
    /// not state a size.
    pub fn fetch_bytes(&self) -> Option<u64> {
        total_bytes(self.offers().filter(|offer| !offer.is_local()))
    }

    /// Returns the archives that are on servers, the full one first.
    #[doc(hidden)]
    pub fn remotes(&self) -> impl Iterator<Item = (&Offer, &Remote)> {
        self.offers().filter_map(|offer| Some((offer, offer.remote()?)))
    }
}

/// Returns the total length; `None` if a length is unknown. The sum saturates, because servers may claim
/// any length.
fn total_bytes<'a>(mut offers: impl Iterator<Item = &'a Offer>) -> Option<u64> {
    offers.try_fold(0u64, |sum, offer| Some(sum.saturating_add(offer.file_bytes?)))
}

impl Serialize for Candidate {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Candidate", 12)?;
        fields.serialize_field("source", &self.source)?;
        fields.serialize_field("named_by_operator", &self.named_by_operator)?;
        fields.serialize_field("full", &self.full)?;
        fields.serialize_field("incremental", &self.incremental)?;
        fields.serialize_field("slot", &self.slot())?;
        fields.serialize_field("age_slots", &self.age_slots)?;
        fields.serialize_field("age_seconds", &self.age.map(|age| age.as_secs_f64()))?;
        fields.serialize_field("bytes", &self.total_bytes())?;
        fields.serialize_field("fetch_bytes", &self.fetch_bytes())?;
        fields.serialize_field("rate_bytes_per_second", &self.rate_bytes_per_second)?;
        fields.serialize_field("expected_age_slots", &self.expected_age_slots)?;
        fields.serialize_field("expected_age_seconds", &self.expected_age.map(|age| age.as_secs_f64()))?;
        fields.end()
    }
}

/// An unusable source or state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct RefusedSource {
    /// URL or path of the source, without secrets.
    pub source: String,
    /// Reason, as a clause about the source.
    pub reason: String,
    /// True if the state would be too old at boot.
    #[serde(rename = "stale")]
    pub is_stale: bool,
}

impl RefusedSource {
    fn new(source: String, reason: String) -> Self {
        Self { source, reason, is_stale: false }
    }

    /// Returns a message that names the source and the reason.
    #[doc(hidden)]
    pub fn message(&self) -> String {
        if self.reason.contains(&self.source) {
            self.reason.clone()
        } else {
            format!("{}: {}", self.source, self.reason)
        }
    }
}

/// Result of the function [`find`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct FindReport {
    /// States that can be fetched, best first.
    pub candidates: Vec<Candidate>,
    /// Unusable sources and states: at most 10,000.
    pub refused: Vec<RefusedSource>,
    /// Ranks the candidates again after a failure.
    #[doc(hidden)]
    pub ranking: Ranking,
    /// Notes about unknown facts, missing archives, and RPC servers that were left out.
    pub notes: Vec<String>,
    #[doc(hidden)]
    pub cluster: ClusterFacts,
    /// Number of sources that were asked, including peers and RPC servers.
    pub asked_count: usize,
    /// Limit on the age at boot: older states are refused.
    pub max_age: Duration,
    /// Assumed rate of a restore, used for expected ages, in compressed bytes per second.
    pub assumed_restore_bytes_per_second: u64,
}

/// Serializes a summary with counts, because candidates and refused sources are printed as separate lines.
impl Serialize for FindReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("FindReport", 10)?;
        fields.serialize_field("candidates", &self.candidates.len())?;
        fields.serialize_field("refused", &self.refused.len())?;
        fields.serialize_field("asked_count", &self.asked_count)?;
        fields.serialize_field("notes", &self.notes)?;
        fields.serialize_field("slot_ms", &self.ranking.slot_time.milliseconds())?;
        fields.serialize_field("slot_time_source", &self.ranking.slot_time.source())?;
        fields.serialize_field("max_age_slots", &self.ranking.slot_time.slots_in(self.max_age))?;
        fields.serialize_field("max_age_seconds", &self.max_age.as_secs_f64())?;
        fields.serialize_field("assumed_restore_bytes_per_second", &self.assumed_restore_bytes_per_second)?;
        fields.serialize_field("cluster", &self.cluster)?;
        fields.end()
    }
}

/// Asks all sources for their archives, and ranks the states. `client` may connect to any address that
/// the options name. It connects to peers at private addresses only if its own options allow that.
///
/// # Errors
/// No RPC server answers and there are no other sources, RPC servers disagree on the genesis hash, there is no
/// server to ask, or `progress` is interrupted. If no server has a usable state, that is not an error: see
/// [`FindReport::require_candidate`].
pub fn find(client: &Client, options: &FindOptions, progress: &dyn Progress) -> Result<FindReport> {
    client.check_thread()?;
    progress.stage(Stage::AskingServers, None);
    let mut report =
        FindReport { assumed_restore_bytes_per_second: options.restore_bytes_per_second, ..Default::default() };
    let cluster = ask_cluster(client, options, &mut report.notes, progress)?;
    report.cluster = cluster.facts;

    let mut locations = options.sources.clone();
    locations.extend(options.rpc.iter().cloned().map(SourceLocation::Server));
    let named_count = locations.len();
    locations.extend(cluster.peers.into_iter().map(SourceLocation::Server));
    let mut seen = BTreeSet::new();
    let mut sources = Vec::new();
    for (index, source) in locations.into_iter().enumerate() {
        if sources.len() < SOURCES_MAX && seen.insert(source.to_string()) {
            sources.push(AskedSource { source, named_by_operator: index < named_count });
        }
    }
    if sources.is_empty() {
        return Err(Error::usage("there is no server to ask").with_hint("name a source, --rpc or --cluster"));
    }
    report.asked_count = sources.len();
    let answers = ask_all(client, &sources, progress)?;

    let mut offers: Vec<Offer> = Vec::new();
    for (asked, answer) in sources.iter().zip(answers) {
        match answer {
            Ok(source_offers) => offers.extend(source_offers),
            Err(why) => report.refuse(RefusedSource::new(asked.source.to_string(), why)),
        }
    }
    let mut ranking = Ranking {
        cluster_slot: report.cluster.slot,
        max_age: options.max_age,
        wants_incremental: options.incremental,
        restore_bytes_per_second: options.restore_bytes_per_second,
        ..Ranking::default()
    };
    for offer in offers {
        if ranking.is_plausible(&offer) {
            ranking.offers.push(offer);
        } else {
            let why = format!("names slot {}, which the cluster has not reached", offer.name.slot);
            report.refuse(RefusedSource::new(offer.source, why));
        }
    }
    let mut slot_time = cluster.slot_time;
    slot_time = slot_time.or(ranking.offers.iter().find_map(|offer| offer.slot_time));
    slot_time = slot_time.or_else(|| read_local_slot_time(&options.sources));
    // Reading bank files takes a few requests, so it is done only if ages are required or shown.
    if ranking.cluster_slot.is_none() && (options.max_age != MaxAge::Default || options.read_bank_times) {
        let named_offers = ranking.offers.iter_mut().filter(|offer| offer.is_named_by_operator());
        slot_time = slot_time.or(read_bank_time(client, named_offers, progress)?);
    }
    ranking.slot_time = slot_time.unwrap_or_default();
    ranking.compute_ages(clock::now());
    report.max_age = ranking.max_age();
    report.ranking = ranking;
    report.rank_and_measure(client, options, progress)?;
    report.add_notes(options);
    Ok(report)
}

/// Reason to refuse a state of unknown age if a maximum age is set.
const UNKNOWN_AGE: &str = "is of unknown age";

const REASONS_MAX: usize = 8;

/// Returns an error message that lists the first reasons, and says how many more there are.
pub fn list_reasons(head: &str, reasons: impl IntoIterator<Item = String>) -> String {
    let mut reasons = reasons.into_iter();
    let listed: Vec<String> = reasons.by_ref().take(REASONS_MAX).collect();
    match (listed.is_empty(), reasons.count()) {
        (true, _) => head.to_string(),
        (false, 0) => format!("{head}: {}", listed.join("; ")),
        (false, more) => format!("{head}: {}; and {more} more", listed.join("; ")),
    }
}

#[warn(missing_docs)]
impl FindReport {
    /// Returns the best candidate.
    ///
    /// # Errors
    /// No source has a usable state that would be new enough at boot.
    pub fn require_candidate(&self) -> Result<&Candidate> {
        if let Some(best) = self.candidates.first() {
            return Ok(best);
        }
        let hint = if self.refused.iter().any(|refused| refused.is_stale) {
            hint::RAISE_MAX_AGE
        } else if self.refused.iter().any(|refused| refused.reason.ends_with(UNKNOWN_AGE)) {
            hint::PASS_RPC
        } else if self.refused.len() > REASONS_MAX {
            hint::USE_FIND_JSON
        } else {
            "check the addresses, try again later, or use other sources"
        };
        let message = list_reasons("no source has a usable snapshot", self.refused.iter().map(RefusedSource::message));
        Err(Error::new(ErrorKind::Network, message).with_hint(hint))
    }

    fn refuse(&mut self, refused: RefusedSource) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.push(refused);
        }
    }

    /// Ranks the candidates, measures the servers of the best ones, and ranks again.
    fn rank_and_measure(&mut self, client: &Client, options: &FindOptions, progress: &dyn Progress) -> Result<()> {
        let node = Node::default();
        // The ranking leaves out states that are already too old, so their servers are not measured.
        let mut ranked = self.ranking.rank(&node);
        // A server that was not measured may be slower than assumed. If it now has the best candidate, the
        // next round measures it.
        for _ in 0..MEASURE_ROUNDS_MAX {
            if ranked.candidates.len() > 1 || options.measure_single_server {
                let rates = &mut self.ranking.rates;
                measure::measure(client, &ranked.candidates, rates, options.max_measured_candidates, progress)?;
            }
            ranked = self.ranking.rank(&node);
            let is_measured = |best: &Candidate| best.remotes().all(|(_, remote)| self.ranking.rate(remote).is_some());
            if ranked.candidates.first().is_none_or(is_measured) {
                break;
            }
        }
        self.candidates = ranked.candidates;
        self.refuse_stale(ranked.stale);
        Ok(())
    }

    /// Adds notes about unknown facts of the cluster, and about archives that nobody offers.
    fn add_notes(&mut self, options: &FindOptions) {
        let ranking = &self.ranking;
        let offers = &ranking.offers;
        let slot_time = ranking.slot_time;
        let mut has_full = false;
        let mut has_pair = false;
        let mut has_all_ages = true;
        for full in offers.iter().filter(|offer| offer.is_full()) {
            has_full = true;
            has_pair = has_pair || offers.iter().any(|offer| offer.builds_on(&full.name));
            has_all_ages &= ranking.age(full.name.slot).is_some();
        }
        if options.incremental && has_full && !has_pair {
            self.notes.push("no incremental archive matches a full one: using full archives only".to_string());
        }
        if slot_time.source() == SlotTimeSource::Assumed {
            self.notes.push(format!("the time per slot is unknown: ages are computed with {slot_time}"));
        }
        if self.cluster.slot.is_none() && has_full {
            let ages = if has_all_ages { "ages follow from the times in bank files" } else { "not every age is known" };
            self.notes.push(format!("no RPC server reports the current slot: {ages}"));
        }
    }

    fn refuse_stale(&mut self, stale: Vec<Candidate>) {
        for candidate in stale {
            let slot = candidate.slot();
            let Some(expected_age) = candidate.expected_age else {
                self.refuse(RefusedSource::new(candidate.source, format!("slot {slot} {UNKNOWN_AGE}")));
                continue;
            };
            let slots = quantity::count(self.ranking.slot_time.slots_in(expected_age));
            let [age, limit] = [expected_age, self.max_age].map(quantity::age);
            let why = format!("slot {slot} would be {age} ({slots} slots) old at boot, more than {limit}");
            self.refuse(RefusedSource { is_stale: true, ..RefusedSource::new(candidate.source, why) });
        }
    }
}
