//! Limits that decide which archives of a catalog are kept, and the reasons for keeping them.

use std::fmt;
use std::time::Duration;

use derive_setters::Setters;
use serde::{Deserialize, Serialize};

/// Limits that decide which archives are kept. By default, as many of the newest as validators keep.
#[derive(Clone, Copy, Debug, Setters)]
#[non_exhaustive]
pub struct Keep {
    /// Number of newest full archives to keep. Default: 2.
    pub full: usize,
    /// Number of newest incremental archives to keep, not counting results of `rebase`. Default: 4.
    pub incremental: usize,
    /// Number of newest results of `rebase` to keep, unless their full archive is deleted. Default: all.
    pub rebased: usize,
    /// Keeps archives that were modified within this time. Default: 0, which keeps none.
    pub within: Duration,
    /// Keeps the newest state of each of the last N days (UTC) that have one: a full archive, or an
    /// incremental archive with its full one. Days without a state are skipped. An archive of unknown
    /// time is kept: call `read_bank_times` first. Default: 0.
    pub daily: usize,
    /// Number of newest weeks, from Monday to Sunday, of which the newest state is kept. Default: 0.
    pub weekly: usize,
    /// Keeps the newest state of each of the last N finished epochs. Default: 0.
    pub epoch_ends: usize,
    /// Limit on the total size in bytes. Results of `rebase` are deleted first, then archives kept
    /// only by count or age, then daily, weekly and epoch ones; oldest first within each,
    /// incremental ones before their full archive. Default: no limit.
    #[setters(strip_option)]
    pub bytes_max: Option<u64>,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            full: 2,
            incremental: 4,
            rebased: usize::MAX,
            within: Duration::ZERO,
            daily: 0,
            weekly: 0,
            epoch_ends: 0,
            bytes_max: None,
        }
    }
}

/// Reason why an archive is kept. If several apply, the last is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeepReason {
    /// It is the full archive of a kept incremental one.
    Base,
    /// A node would choose it, or it is the newest incremental archive whose full archive is present.
    LastPair,
    /// It was modified within [`Keep::within`].
    Recent,
    /// It is among the newest of its kind.
    Newest,
    /// It is the newest state of a day.
    Daily,
    /// It is the newest state of a week.
    Weekly,
    /// It is the newest state of a finished epoch.
    EpochEnd,
    /// Its day, its week or its epoch is not known.
    Undated,
}

/// Shows the name that `--json` uses.
impl fmt::Display for KeepReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}
