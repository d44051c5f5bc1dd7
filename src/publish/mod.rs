//! Publishes the archives of a running validator, continuously or once: watches its directory, pins
//! new archives, checks and recompresses them, puts them on targets, and prunes the targets. A run may
//! be killed at any time: the next run finds the unfinished work in the directory of pins, in the
//! journal there, and on the targets.
//!
//! ```no_run
//! use slotpress::CancelToken;
//! use slotpress::publish::{PublishOptions, publish};
//! use slotpress::stores::Target;
//!
//! let targets = vec!["/srv/archives".parse::<Target>()?];
//! let options = PublishOptions::new("/mnt/snapshots", targets);
//! let stop = CancelToken::default();
//! publish(&options, &stop, |event| println!("{event:?}"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Four kinds of loops take their work from one planner (`decide`), which does no I/O: the `watcher`,
// on the calling thread, scans and pins; one loop prepares archives, one rebases them, and one for
// each target publishes them (`act`). `report` receives all events. `journal` keeps what the next
// run needs.

mod act;
mod decide;
mod journal;
mod report;
mod watcher;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use derive_setters::Setters;
pub use report::event::{PublishEvent, ReadyArchive};
use slotpress_base::{Error, Result};
use slotpress_net::ClientOptions;
use slotpress_read::{CheckOptions, Keep};
use slotpress_stores::{StoreOptions, Target};
pub use watcher::publish;

use crate::archive::encoding::EncodingOptions;

/// Client that writes the archives, which determines how they can be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Agave: an archive never changes once it has its final name, and may have a second hard link.
    Agave,
    /// Firedancer: overwrites its oldest archive with the next one, and refuses to start if an archive
    /// has a second hard link.
    Firedancer,
}

/// Options of [`publish()`]: directories, targets, and what is kept on them.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct PublishOptions {
    /// Directory that the validator writes its archives to.
    #[setters(into)]
    pub snapshots: PathBuf,
    /// Directory that the validator writes incremental archives to, on the same file system.
    /// Default: `snapshots`.
    #[setters(into, strip_option)]
    pub incremental_snapshots: Option<PathBuf>,
    /// Directories and buckets to publish to, at least one.
    #[setters(into)]
    pub targets: Vec<Target>,
    /// Settings for writing to stores. Default: as in [`StoreOptions`], but a request is given up after 5
    /// minutes without success, and is also retried if the store has never answered.
    pub stores: StoreOptions,
    /// Settings for connections to stores.
    pub client: ClientOptions,
    /// Directory for pins, ready archives, damaged archives and the journal, on the file system of
    /// `snapshots`. Default: the path of `snapshots` with `.publish` appended.
    #[setters(into)]
    pub pins: PathBuf,
    /// The only client that writes the archives. Default: unknown; then archives are pinned as for
    /// Firedancer, which is safe for every client.
    #[setters(strip_option)]
    pub writer: Option<Writer>,
    /// Format, level, frames, threads and memory of the published archives.
    pub encoding: EncodingOptions,
    /// Checks that are made before an archive is published. The state is checked only in full archives,
    /// because an incremental archive contains only a part of it. Default: all.
    pub check: CheckOptions,
    /// Publishes archives as they are after checking them, without recompressing. Default: false.
    pub as_is: bool,
    /// Minimum time between two incremental archives; full archives do not wait. Default: 5 minutes.
    pub every: Duration,
    /// Limit on the size of all pinned archives in bytes; archives that do not fit are left out.
    /// Default: none.
    #[setters(strip_option)]
    pub pin_bytes: Option<u64>,
    /// Archives to keep on each target. Default: 2 full and 4 incremental archives, as validators do.
    pub keep: Keep,
    /// Number of older full archives on each target onto which the target's newest full archive is
    /// rebased. Full archives are read only from targets that are directories. [`Keep::rebased`] must be
    /// at least this number. Default: 0.
    pub rebase_onto: usize,
    /// Time for which a published archive is kept in any case, because downloads of it may be running.
    /// Default: 2 hours, in which 90 GB are downloaded at 100 Mbit/s.
    pub grace: Duration,
    /// Program to run after each publication of an archive; it is killed after a minute. Default: none.
    #[setters(into, strip_option)]
    pub on_published: Option<PathBuf>,
    /// Program to run after each failure, and for each archive that is left out; it is killed after a
    /// minute. Default: none.
    #[setters(into, strip_option)]
    pub on_failed: Option<PathBuf>,
    /// Address for serving metrics and health. Default: none.
    #[setters(strip_option)]
    pub metrics: Option<SocketAddr>,
    /// Age of a target's newest archive above which `/healthz` fails. Default: none.
    #[setters(strip_option)]
    pub alert_after: Option<Duration>,
    /// Ends the run once every archive that is present was published or has failed. Default: false.
    pub once: bool,
}

/// Time for which requests to a store are retried before the target has failed. It is longer than the
/// minute or two of a restart. A target that has failed is tried again after a pause, with the parts that
/// it already has.
const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

impl PublishOptions {
    /// Creates options with defaults, and with the directory of pins next to `snapshots`.
    pub fn new(snapshots: impl Into<PathBuf>, targets: impl IntoIterator<Item = Target>) -> Self {
        let snapshots = snapshots.into();
        Self {
            pins: pins_beside(&snapshots),
            snapshots,
            incremental_snapshots: None,
            targets: Vec::from_iter(targets),
            stores: StoreOptions::default().give_up_after(GIVE_UP_AFTER).wait_for_first(true),
            client: ClientOptions::default(),
            writer: None,
            encoding: EncodingOptions::default(),
            check: CheckOptions::default(),
            as_is: false,
            every: Duration::from_secs(300),
            pin_bytes: None,
            keep: Keep::default(),
            rebase_onto: 0,
            grace: Duration::from_secs(2 * 3600),
            on_published: None,
            on_failed: None,
            metrics: None,
            alert_after: None,
            once: false,
        }
    }

    fn validator_dirs(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.snapshots.clone()];
        dirs.extend(self.incremental_snapshots.clone());
        dirs
    }

    fn check_rebasing(&self) -> Result<()> {
        let onto = self.rebase_onto;
        let kept = self.keep.rebased;
        if onto > kept {
            // Rebased archives would be pruned and made again, without end.
            let message =
                format!("{onto} rebased archives are to be made of each full archive, but only {kept} are kept");
            return Err(Error::usage(message).with_hint("keep at least as many rebased archives as are made"));
        }
        if onto > 0 && !self.targets.iter().any(|target| matches!(target, Target::Dir(_))) {
            let message =
                "nothing can be rebased: a rebase reads two full archives twice, and no target is a directory";
            return Err(Error::usage(message)
                .with_hint("add a directory as a target: it is read to make rebased archives for all targets"));
        }
        Ok(())
    }
}

/// Returns the path of the snapshots directory with `.publish` appended. That directory is on the same
/// file system unless `snapshots` is a mount point.
fn pins_beside(snapshots: &Path) -> PathBuf {
    // A path such as `.` has no file name until it is resolved.
    let resolved = snapshots.canonicalize().unwrap_or_else(|_| snapshots.to_path_buf());
    let mut name = resolved.file_name().map_or_else(|| "snapshots".into(), |name| name.to_os_string());
    name.push(".publish");
    resolved.with_file_name(name)
}
