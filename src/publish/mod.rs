//! Publishing beside a running validator: watch its directory, pin what is new, check and recompress it, put it where others
//! take it from, prune there; for ever, or once.
//!
//! `plan` decides, and is pure. The calling thread looks, pins and hands out work; one thread prepares archives, and each
//! target has one. A run may be killed anywhere: what there is to do follows from what is in the directory of pins, from the
//! journal in it, and from the targets.

mod event;
mod index;
mod journal;
mod metrics;
mod pins;
mod plan;
#[cfg(test)]
mod plan_tests;
mod publisher;
mod target;
mod upload;
mod workers;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use derive_setters::Setters;
pub use event::{Event, Published};
pub use publisher::{preview, publish};
use slotpress_net::ClientOptions;
use slotpress_read::Keep;
use slotpress_stores::{StoreOptions, Target};

pub use workers::HOOK_TIMEOUT_DEFAULT;

use crate::recompress::RecompressOptions;

/// Who writes the archives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writer {
    /// As the archives and the directory's owner tell.
    #[default]
    Auto,
    /// Agave: a file never changes once it has its name, and may have a second one.
    Agave,
    /// Firedancer: it uses files again, and refuses those with two names.
    Firedancer,
}

/// What to publish, where, and how.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct PublishOptions {
    /// The validator's directory of archives.
    #[setters(into)]
    pub snapshots: PathBuf,
    /// Where to.
    #[setters(into)]
    pub targets: Vec<Target>,
    /// The cluster's `genesis.tar.bz2`, put beside the archives for those that begin with them.
    #[setters(into)]
    pub genesis: Option<PathBuf>,
    /// How targets are written.
    pub stores: StoreOptions,
    /// How servers are reached.
    pub client: ClientOptions,
    /// Our own directory, on the file system of the archives.
    #[setters(into)]
    pub pins: PathBuf,
    /// Where damaged archives are kept, on the same file system; `None`: in the directory of pins.
    #[setters(into)]
    pub quarantine: Option<PathBuf>,
    /// Who writes the archives.
    pub writer: Writer,
    /// How archives are recompressed, and checked.
    pub recompress: RecompressOptions,
    /// Archives are checked, and published as they are.
    pub is_as_is: bool,
    /// The full archive below an incremental one is read, to check its state.
    pub checks_pairs: bool,
    /// How often an incremental archive is published.
    pub every: Duration,
    /// The most bytes of pinned archives.
    #[setters(into)]
    pub pin_bytes: Option<u64>,
    /// What stays on targets.
    pub keep: Keep,
    /// What was published more recently than this is never deleted: downloads of it may be running.
    pub grace: Duration,
    /// Slots around which archives are kept apart.
    #[setters(into)]
    pub keep_slots: BTreeSet<u64>,
    /// Those around the end of each epoch are.
    pub keeps_epoch_ends: bool,
    /// The most bytes of archives that are kept apart, on each target.
    #[setters(into)]
    pub keep_bytes: Option<u64>,
    /// A program that is told of each archive that is published.
    #[setters(into)]
    pub on_published: Option<PathBuf>,
    /// A program that is told of each failure.
    #[setters(into)]
    pub on_failed: Option<PathBuf>,
    /// How long these programs may take.
    pub hook_timeout: Duration,
    /// Where to tell metrics and health.
    #[setters(into)]
    pub metrics: Option<SocketAddr>,
    /// Health turns red when the newest archive of a target is older.
    #[setters(into)]
    pub alert_after: Option<Duration>,
    /// Ends when what is there is published.
    pub is_once: bool,
}

/// What stays on a target unless told otherwise: what validators keep.
pub const KEEP_FULL_DEFAULT: usize = 2;
/// The same of incremental archives.
pub const KEEP_INCREMENTAL_DEFAULT: usize = 4;

/// How long what was published stays, unless told otherwise: a full archive of mainnet takes less over 100 Mbit/s.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(2 * 3600);

/// A target that fails for so long has failed, which is told, and is left alone for a while; what it has got is not sent again.
/// Buckets are away for a minute or two when they restart: that is a warning, and wakes nobody.
const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

/// How often an incremental archive is published, unless told otherwise.
pub const EVERY_DEFAULT: Duration = Duration::from_secs(300);

impl PublishOptions {
    /// From a validator's directory to some targets, with pins beside that directory.
    pub fn new(snapshots: impl Into<PathBuf>, targets: impl IntoIterator<Item = Target>) -> Self {
        let snapshots = snapshots.into();
        Self {
            pins: pins_beside(&snapshots),
            snapshots,
            targets: Vec::from_iter(targets),
            genesis: None,
            stores: StoreOptions::default().give_up_after(GIVE_UP_AFTER),
            client: ClientOptions::default(),
            quarantine: None,
            writer: Writer::Auto,
            recompress: RecompressOptions::default(),
            is_as_is: false,
            checks_pairs: false,
            every: EVERY_DEFAULT,
            pin_bytes: None,
            keep: Keep::new(KEEP_FULL_DEFAULT, KEEP_INCREMENTAL_DEFAULT),
            grace: GRACE_DEFAULT,
            keep_slots: BTreeSet::new(),
            keeps_epoch_ends: false,
            keep_bytes: None,
            on_published: None,
            on_failed: None,
            hook_timeout: HOOK_TIMEOUT_DEFAULT,
            metrics: None,
            alert_after: None,
            is_once: false,
        }
    }
}

/// The directory of pins unless told otherwise: beside the validator's, which is on the same file system unless that is a
/// mount point.
fn pins_beside(snapshots: &Path) -> PathBuf {
    // Of "." and the like only the system knows the name.
    let whole = snapshots.canonicalize().unwrap_or_else(|_| snapshots.to_path_buf());
    let mut name = whole.file_name().map_or_else(|| "snapshots".into(), |name| name.to_os_string());
    name.push(".publish");
    whole.with_file_name(name)
}
