//! What happens while archives are published: for the log, for hooks, for metrics.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use slotpress_base::Error;
use slotpress_format::{ArchiveName, Root};

use super::journal::State;

/// What happens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// It watches.
    Watching {
        /// The validator's directory.
        snapshots: PathBuf,
        /// Where to.
        targets: Vec<String>,
        /// The address of the metrics.
        metrics: Option<SocketAddr>,
    },
    /// An archive is safe from the validator's purge.
    Pinned(ArchiveName),
    /// An archive cannot be pinned, or has no room, and is left out.
    Skipped {
        /// The archive.
        name: ArchiveName,
        /// Why.
        why: String,
    },
    /// An archive is checked, and ready.
    Prepared {
        /// Its new name.
        name: ArchiveName,
        /// How its state was checked.
        state: State,
        /// Its length now, in bytes.
        bytes: u64,
        /// What stands for all of its bytes.
        root: Option<Root>,
        /// How long that took.
        elapsed: Duration,
    },
    /// An archive is damaged, and is not published.
    Refused {
        /// The archive.
        name: ArchiveName,
        /// What is wrong with it.
        error: Error,
        /// Where it is kept.
        kept: Option<PathBuf>,
    },
    /// An archive is published on a target.
    Published(Published),
    /// Archives are not on a target any more.
    Pruned {
        /// The target.
        target: String,
        /// The archives.
        names: Vec<String>,
    },
    /// Something failed, and will be tried again.
    Failed {
        /// What.
        error: Error,
        /// The target, where it is one's.
        target: Option<String>,
        /// When it is tried again; none: not in this run.
        retry: Option<Duration>,
    },
    /// Kept archives take most of what they may.
    KeepIsNearlyFull {
        /// The target.
        target: String,
        /// What they take, in bytes.
        bytes: u64,
        /// What they may.
        bytes_max: u64,
    },
    /// A program of the operator failed.
    HookFailed(Error),
    /// Asked to stop.
    Stopping,
}

/// An archive that got to a target.
#[derive(Clone, Debug)]
pub struct Published {
    /// The archive.
    pub name: ArchiveName,
    /// The target.
    pub target: String,
    /// Whether it is kept apart.
    pub is_kept: bool,
    /// Its length in bytes.
    pub bytes: u64,
    /// How its state was checked.
    pub state: State,
    /// What stands for all of its bytes.
    pub root: Option<Root>,
    /// How long that took.
    pub elapsed: Duration,
}

impl Event {
    /// What a program of the operator is told; `None` for what none is for. Whether it is a failure.
    pub fn facts(&self) -> Option<(bool, Vec<(&'static str, String)>)> {
        let name = |name: &ArchiveName| {
            let base = name.base_slot.map_or(String::new(), |base| base.to_string());
            [
                ("PUBLISH_ARCHIVE", name.to_string()),
                ("PUBLISH_SLOT", name.slot.to_string()),
                ("PUBLISH_BASE_SLOT", base),
            ]
        };
        match self {
            Self::Published(published) => {
                let mut facts = Vec::from(name(&published.name));
                facts.push(("PUBLISH_TARGET", published.target.clone()));
                facts.push(("PUBLISH_BYTES", published.bytes.to_string()));
                facts.push(("PUBLISH_STATE", published.state.as_str().into()));
                facts.push(("PUBLISH_KEPT", u8::from(published.is_kept).to_string()));
                facts.push(("PUBLISH_ROOT", published.root.map_or(String::new(), |root| root.to_string())));
                Some((false, facts))
            }
            Self::Refused { name: archive, error, .. } => {
                Some((true, [name(archive).to_vec(), vec![("PUBLISH_ERROR", error.to_string())]].concat()))
            }
            Self::Skipped { name: archive, why } => {
                Some((true, [name(archive).to_vec(), vec![("PUBLISH_ERROR", why.clone())]].concat()))
            }
            Self::Failed { error, target, .. } => {
                let target = ("PUBLISH_TARGET", target.clone().unwrap_or_default());
                Some((true, vec![("PUBLISH_ERROR", error.to_string()), target]))
            }
            _ => None,
        }
    }
}
