//! Events of publishing, for the log, for hooks and for metrics.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use slotpress_base::{Error, text};
use slotpress_format::{ArchiveName, ArchiveRoot, Hash, serialize_name_and_parts};
use slotpress_read::{ListedArchive, StateCheck};

pub type HookVariables = Vec<(String, String)>;

/// An event of publishing. [`PublishEvent::kind`] is its `type` in JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names of the fields suffice")]
pub enum PublishEvent {
    /// The run has begun.
    Watching {
        #[serde(serialize_with = "text::path")]
        snapshots: PathBuf,
        targets: Vec<String>,
        metrics: Option<SocketAddr>,
    },
    /// An archive was pinned: its content remains when the validator deletes the archive.
    Pinned {
        #[serde(flatten, serialize_with = "serialize_name_and_parts")]
        name: ArchiveName,
    },
    /// An archive was left out: it is being written, it cannot be pinned or rebased, no current client
    /// loads it, or there is not enough space.
    Skipped {
        #[serde(flatten, serialize_with = "serialize_name_and_parts")]
        name: ArchiveName,
        reason: String,
    },
    /// An archive was checked and recompressed, or rebased, and is ready to be published.
    Prepared(ReadyArchive),
    /// An archive is damaged, and will not be published.
    Refused {
        #[serde(flatten, serialize_with = "serialize_name_and_parts")]
        name: ArchiveName,
        #[serde(rename = "message", serialize_with = "text::display")]
        error: Error,
        /// Path in the quarantine; `None` if it was not kept.
        #[serde(serialize_with = "text::optional_path")]
        kept: Option<PathBuf>,
    },
    /// An archive is on a target, and in the target's index.
    Published(ReadyArchive),
    /// Archives were removed from a target.
    Pruned { target: String, names: Vec<String> },
    /// An operation failed on this machine or on a target.
    Failed {
        #[serde(rename = "message", serialize_with = "text::display")]
        error: Error,
        /// The target that failed; `None` for failures elsewhere.
        target: Option<String>,
        /// Time until the next attempt; `None` if none is scheduled.
        #[serde(rename = "retry_seconds", serialize_with = "text::optional_seconds")]
        retry: Option<Duration>,
    },
    /// The run was asked to stop.
    Stopping,
}

/// An archive that is ready to be published, or was published.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ReadyArchive {
    /// Name of the archive.
    #[serde(flatten, serialize_with = "serialize_name_and_parts")]
    pub name: ArchiveName,
    /// Path or URL of the target; `None` if it is not published yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Result of the check of the state.
    pub state: StateCheck,
    /// Length of the archive, in bytes.
    pub size_bytes: u64,
    /// Root hash; `None` if its frames are not hashed.
    pub root: Option<ArchiveRoot>,
    /// For rebased archives: snapshot hash of the full archive on which this archive builds.
    pub rebased_on: Option<Hash>,
    /// Duration of preparing, rebasing or publishing.
    #[serde(rename = "elapsed_seconds", serialize_with = "text::seconds")]
    pub elapsed: Duration,
}

/// Returns whether the state of an archive is checked before it is published, with the default checks. The
/// state of a validator's incremental archive is not, because its full archive would have to be read again.
pub fn state_check_of(archive: &ListedArchive) -> StateCheck {
    if archive.is_full() || archive.is_rebased() { StateCheck::Checked } else { StateCheck::NotChecked }
}

impl ReadyArchive {
    pub(crate) fn new(archive: &ListedArchive, target: Option<String>, elapsed: Duration) -> Self {
        Self {
            name: archive.name.clone(),
            target,
            state: state_check_of(archive),
            size_bytes: archive.size_bytes,
            root: archive.hashes.map(|hashes| hashes.root),
            rebased_on: archive.rebased_on(),
            elapsed,
        }
    }
}

impl PublishEvent {
    /// The `type` of the event in JSON; `None` if it is not reported there.
    pub fn kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Watching { .. } => "publish_started",
            Self::Pinned { .. } => "publish_pinned",
            Self::Skipped { .. } => "publish_skipped",
            Self::Prepared(_) => "publish_prepared",
            Self::Refused { .. } => "publish_refused",
            Self::Published(_) => "published",
            Self::Pruned { .. } => "publish_pruned",
            Self::Failed { .. } => "publish_failed",
            Self::Stopping => return None,
        })
    }

    /// Returns the variables of a hook: the fields of the event in JSON, as `PUBLISH_…`.
    pub fn variables(&self) -> HookVariables {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else { return HookVariables::new() };
        let mut variables = HookVariables::new();
        for (name, value) in fields {
            let text = match value {
                Value::Null => String::new(),
                Value::String(text) => text,
                other => other.to_string(),
            };
            variables.push((format!("PUBLISH_{}", name.to_uppercase()), text));
        }
        variables
    }
}
