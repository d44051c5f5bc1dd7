//! Options for directories and buckets.

use std::time::Duration;

use derive_setters::Setters;
use slotpress_net::s3::S3Options;

/// Options for reading and writing targets.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Options for reaching buckets.
    pub s3: S3Options,
    /// Memory for the parts of one upload, in bytes: those in flight, and one that is being filled.
    /// Default: 256 MiB.
    pub memory_bytes: u64,
    /// Time without success after which requests to a failing store are no longer retried. Default: 10
    /// minutes, longer than it takes to move a service to another machine.
    pub give_up_after: Duration,
    /// Retries requests even if the store has never been reached, as a long-running service should. Default: false,
    /// because a wrong endpoint should fail at once.
    pub wait_for_first: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            s3: S3Options::default(),
            memory_bytes: 256 << 20,
            give_up_after: Duration::from_secs(600),
            wait_for_first: false,
        }
    }
}
