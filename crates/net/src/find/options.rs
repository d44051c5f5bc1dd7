//! What to look for, and where.

use std::time::Duration;

use derive_setters::Setters;
use slotpress_format::{Hash, SlotTime};

use super::Cluster;
use crate::{SourceArg, Url};

#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct FindOptions {
    #[setters(into)]
    pub sources: Vec<SourceArg>,
    /// RPC servers that know the cluster and its peers.
    #[setters(into)]
    pub rpc: Vec<Url>,
    /// A cluster whose public RPC server is asked too.
    #[setters(into)]
    pub cluster: Option<Cluster>,
    /// The oldest that a state may be at boot, which must be known then. Without it, what is known to be older than
    /// [`MAX_AGE_DEFAULT`] is refused.
    #[setters(into)]
    pub max_age: Option<MaxAge>,
    pub wants_incremental: bool,
    /// Compressed bytes that the machine restores in a second: assumed, not measured.
    pub restore_bytes_per_second: u64,
    pub measured_max: usize,
    pub measures_single: bool,
    /// Whether bank files are read for ages that nobody tells, without a maximum age too.
    pub dates_by_banks: bool,
    #[setters(into)]
    pub expected_genesis_hash: Option<Hash>,
}

impl FindOptions {
    pub fn new(sources: impl IntoIterator<Item = SourceArg>) -> Self {
        Self { sources: Vec::from_iter(sources), ..Self::default() }
    }
}

impl Default for FindOptions {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            rpc: Vec::new(),
            cluster: None,
            max_age: None,
            wants_incremental: true,
            restore_bytes_per_second: RESTORE_BYTES_PER_SECOND_DEFAULT,
            measured_max: 8,
            measures_single: true,
            dates_by_banks: true,
            expected_genesis_hash: None,
        }
    }
}

/// Default limit on a state's age: two and a quarter hours. A validator catches up at about twice the cluster's speed,
/// so this costs as long again. Mainnet's full archive alone is older most of the time, and is then refused.
pub const MAX_AGE_DEFAULT: Duration = Duration::from_secs(135 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxAge {
    Time(Duration),
    Slots(u64),
}

impl From<Duration> for MaxAge {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

impl MaxAge {
    pub fn time(self, slot_time: SlotTime) -> Duration {
        match self {
            Self::Time(time) => time,
            Self::Slots(slots) => slot_time.of_slots(slots),
        }
    }
}

/// Default rate of a restore in bytes of the archive per second: about 700 MB/s of storages, on a machine for
/// validators.
pub const RESTORE_BYTES_PER_SECOND_DEFAULT: u64 = 200_000_000;
