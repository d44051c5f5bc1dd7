//! Options for the function [`find`](super::find()).

#![warn(missing_docs)]

use std::time::Duration;

use derive_setters::Setters;
use slotpress_format::{Hash, SlotTime};

use super::Cluster;
use crate::{SourceLocation, Url};

/// Sources of snapshots, and requirements that snapshots must meet.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct FindOptions {
    /// Servers, stores, directories and single archives. Default: none; then RPC servers or a cluster are
    /// required.
    #[setters(into)]
    pub sources: Vec<SourceLocation>,
    /// RPC servers that are asked for the cluster's slot, for its peers, and for archives. Default: none.
    #[setters(into)]
    pub rpc: Vec<Url>,
    /// A cluster whose public RPC server is asked for its slot and its peers. Default: none.
    #[setters(strip_option)]
    pub cluster: Option<Cluster>,
    /// Largest age of the state at boot. Default: [`MaxAge::Default`].
    #[setters(into)]
    pub max_age: MaxAge,
    /// Looks for incremental archives too. Default: true.
    pub incremental: bool,
    /// Assumed rate of a restore, in compressed bytes per second, which is used to estimate the age at boot.
    /// Default: 200 MB/s. The machine then writes about 700 MB/s of storages.
    pub restore_bytes_per_second: u64,
    /// Number of candidates, best first, whose servers are measured for two seconds each. Because a measurement
    /// can change the order, there are up to three rounds. A server that is not measured is assumed to send
    /// 30 MB/s, a quarter of a 1 Gbit/s line. Default: 8.
    pub max_measured_candidates: usize,
    /// Measures a server even if there is no other to compare it with. Default: false.
    pub measure_single_server: bool,
    /// Reads bank files to learn ages if no RPC server reports the current slot, even without a maximum age.
    /// This takes a few requests. Default: false.
    pub read_bank_times: bool,
    /// Genesis hash that RPC servers must report. Default: the hash of `cluster`; without a cluster, any.
    #[setters(strip_option)]
    pub expect_genesis_hash: Option<Hash>,
}

impl FindOptions {
    /// Creates options with these sources, and defaults for the rest. Without sources, begin with `default`.
    pub fn new(sources: impl IntoIterator<Item = SourceLocation>) -> Self {
        Self { sources: Vec::from_iter(sources), ..Self::default() }
    }

    /// True if RPC servers are asked for the nodes of a cluster.
    #[doc(hidden)]
    pub fn asks_cluster(&self) -> bool {
        !self.rpc.is_empty() || self.cluster.is_some()
    }
}

impl<I: IntoIterator<Item = SourceLocation>> From<I> for FindOptions {
    fn from(sources: I) -> Self {
        Self::new(sources)
    }
}

impl Default for FindOptions {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            rpc: Vec::new(),
            cluster: None,
            max_age: MaxAge::Default,
            incremental: true,
            restore_bytes_per_second: RESTORE_BYTES_PER_SECOND_DEFAULT,
            max_measured_candidates: 8,
            measure_single_server: false,
            read_bank_times: false,
            expect_genesis_hash: None,
        }
    }
}

/// Default limit on a state's age at boot: two and a quarter hours. A validator replays slots about twice as
/// fast as the cluster produces them, so catching up takes about as long as the state is old. A mainnet full
/// archive without an incremental one is usually older, and is refused.
const MAX_AGE_DEFAULT: Duration = Duration::from_secs(135 * 60);

/// Largest age of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxAge {
    /// 135 minutes if an RPC server reports the current slot, and no limit otherwise.
    #[default]
    Default,
    /// Time since the state's slot. States of unknown age are refused too.
    Time(Duration),
    /// The time that this many slots take. States of unknown age are refused too.
    Slots(u64),
}

impl From<Duration> for MaxAge {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

impl MaxAge {
    #[doc(hidden)]
    pub fn time(self, slot_time: SlotTime) -> Duration {
        match self {
            Self::Default => MAX_AGE_DEFAULT,
            Self::Time(time) => time,
            Self::Slots(slots) => slot_time.duration(slots),
        }
    }
}

/// Default for the rate of a restore, in compressed bytes per second.
pub const RESTORE_BYTES_PER_SECOND_DEFAULT: u64 = 200_000_000;
