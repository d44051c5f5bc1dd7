//! What happens while archives are published: for the log, for hooks, for metrics.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use slotpress_base::{Error, text};
use slotpress_format::{ArchiveName, Root};

use super::journal::StateCheck;

/// What happens. [`Event::kind`] is the type of the report.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Event {
    /// It watches.
    Watching {
        /// The validator's directory.
        #[serde(serialize_with = "text::path")]
        snapshots: PathBuf,
        /// Where to.
        targets: Vec<String>,
        /// The address of the metrics.
        metrics: Option<SocketAddr>,
    },
    /// An archive is safe from the validator's purge.
    Pinned {
        /// The archive.
        name: ArchiveName,
    },
    /// An archive cannot be pinned, or has no room, and is left out.
    Skipped {
        /// The archive.
        name: ArchiveName,
        /// Why.
        #[serde(rename = "reason")]
        why: String,
    },
    /// An archive is checked, and ready.
    Prepared {
        /// Its new name.
        name: ArchiveName,
        /// How its state was checked.
        state: StateCheck,
        /// Its length now, in bytes.
        #[serde(rename = "size_bytes")]
        bytes: u64,
        /// What stands for all of its bytes.
        root: Option<Root>,
        /// How long that took.
        #[serde(rename = "elapsed_seconds", serialize_with = "text::seconds")]
        elapsed: Duration,
    },
    /// An archive is damaged, and is not published.
    Refused {
        /// The archive.
        name: ArchiveName,
        /// What is wrong with it.
        #[serde(rename = "message", serialize_with = "text::display")]
        error: Error,
        /// Where it is kept.
        #[serde(serialize_with = "text::optional_path")]
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
    /// Something failed.
    Failed {
        /// What.
        #[serde(rename = "message", serialize_with = "text::display")]
        error: Error,
        /// The target, where it is one's.
        target: Option<String>,
        /// When it is tried again; none: not in this run.
        #[serde(rename = "retry_seconds", serialize_with = "text::optional_seconds")]
        retry: Option<Duration>,
        /// Whether it is a program of the operator that failed.
        #[serde(skip)]
        is_of_hook: bool,
    },
    /// Asked to stop.
    Stopping,
}

/// An archive that got to a target.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    /// The archive.
    pub name: ArchiveName,
    /// The target.
    pub target: String,
    /// Whether it is kept apart.
    #[serde(rename = "kept")]
    pub is_kept: bool,
    /// How its state was checked.
    pub state: StateCheck,
    /// Its length in bytes.
    #[serde(rename = "size_bytes")]
    pub bytes: u64,
    /// What stands for all of its bytes.
    pub root: Option<Root>,
    /// How long that took.
    #[serde(rename = "elapsed_seconds", serialize_with = "text::seconds")]
    pub elapsed: Duration,
}

impl Event {
    /// The type of its report; none for what is not reported.
    pub fn kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Watching { .. } => "publish_started",
            Self::Pinned { .. } => "publish_pinned",
            Self::Skipped { .. } => "publish_skipped",
            Self::Prepared { .. } => "publish_prepared",
            Self::Refused { .. } => "publish_refused",
            Self::Published(_) => "published",
            Self::Pruned { .. } => "publish_pruned",
            Self::Failed { .. } => "publish_failed",
            Self::Stopping => return None,
        })
    }

    /// What a program of the operator is told; `None` for what none is for. Whether it is a failure.
    pub fn facts(&self) -> Option<(bool, Vec<(&'static str, String)>)> {
        let of_name = |name: &ArchiveName, more: &[(&'static str, String)]| {
            let base = name.base_slot.map_or(String::new(), |base| base.to_string());
            let (archive, slot) = (("PUBLISH_ARCHIVE", name.to_string()), ("PUBLISH_SLOT", name.slot.to_string()));
            [&[archive, slot, ("PUBLISH_BASE_SLOT", base)], more].concat()
        };
        match self {
            Self::Published(published) => {
                let facts = [
                    ("PUBLISH_TARGET", published.target.clone()),
                    ("PUBLISH_BYTES", published.bytes.to_string()),
                    ("PUBLISH_STATE", published.state.as_str().into()),
                    ("PUBLISH_KEPT", u8::from(published.is_kept).to_string()),
                    ("PUBLISH_ROOT", published.root.map_or(String::new(), |root| root.to_string())),
                ];
                Some((false, of_name(&published.name, &facts)))
            }
            Self::Refused { name, error, .. } => Some((true, of_name(name, &[("PUBLISH_ERROR", error.to_string())]))),
            Self::Skipped { name, why } => Some((true, of_name(name, &[("PUBLISH_ERROR", why.clone())]))),
            Self::Failed { error, target, is_of_hook: false, .. } => {
                let target = ("PUBLISH_TARGET", target.clone().unwrap_or_default());
                Some((true, vec![("PUBLISH_ERROR", error.to_string()), target]))
            }
            _ => None,
        }
    }
}
